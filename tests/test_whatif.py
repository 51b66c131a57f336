"""report.what_if: changes, what cannot be built, where registers come from, each GPU's band."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import tklearn as tk
from tklearn import warp
from tklearn.sim.timing.rates import measured

sys.path[:0] = [str(Path(__file__).parents[1] / "benchmarks" / "probes")]

import ladder  # noqa: E402
from async_cases import KERNELS  # noqa: E402

BF = np.dtype(ml_dtypes.bfloat16)


def test_registers_are_guessed_only_where_no_compiler_is(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cupy")
    a = np.zeros((256, 256), BF)
    report = ladder.ring.sim[2, 2](a, a.copy(), a.copy(), STAGES=2)
    many = {"grid": (64, 64)}
    (way,) = report.what_if(**many).ways
    assert way.estimate is not None
    assert not way.estimate.guessed
    assert not any("guessed" in n for n in report.what_if(**many).notes())
    assert report.estimate().guessed  # four blocks: it makes no difference, and nothing is compiled
    assert not any("guessed" in n for n in report.estimate().notes)
    monkeypatch.setattr("tklearn.whatif.compiled_registers", lambda *_: None)
    (way,) = report.what_if(**many).ways
    assert way.estimate is not None
    assert any("registers guessed" in n for n in way.estimate.notes)


def test_registers_of_a_launch_hold_for_its_gpu_only() -> None:
    pytest.importorskip("cupy")
    a = np.zeros((256, 256), BF)
    launched = ladder.ring.sim[2, 2](a, a.copy(), a.copy(), STAGES=2).launched
    assert launched is not None
    mine = dataclasses.replace(launched, grid=(64, 64, 1), registers=123, device="NVIDIA H200")
    assert mine.estimate().registers == 123
    other = dataclasses.replace(mine, device="NVIDIA T1000")  # a GPU that the table does not have
    assert other.estimate(device="H200").registers != 123
    assert mine.estimate(device="A100").registers != 123
    assert mine.estimate(registers=60).registers == 60


@tk.kernel(warps=1)
def deep(x: tk.gl_fl, STAGES: tk.const = 2):
    s = tk.shared(tk.st_fl(16, 64), STAGES)
    for k in tk.static_range(STAGES - 1):
        warp.load_async(s[k], x, (k, 0))
        tk.commit_group()
    tk.wait_group(STAGES - 2)


def test_a_value_that_cannot_be_built_is_a_row() -> None:
    report = deep.sim[1](np.zeros((64, 64), np.float32))
    low, now, high = report.what_if(STAGES=[1, 2, 100]).ways
    assert low.seconds is None
    assert "TK105" in low.why
    assert now.seconds
    assert "TK408" in high.why


def test_only_values_are_offered() -> None:
    report = ladder.ring.sim[2, 2](*(np.zeros((256, 256), BF) for _ in range(3)), STAGES=2)
    with pytest.raises(tk.LaunchError, match=r"it has grid, device, STAGES") as e:
        report.what_if(depth=3)
    assert "tk" not in str(e.value).partition("it has ")[2].replace(",", "").split()
    with pytest.raises(tk.LaunchError, match="'tk' is no compile-time value"):
        report.what_if(tk=3)


def test_each_gpu_has_its_own_band() -> None:
    report = ladder.ring.sim[2, 2](*(np.zeros((256, 256), BF) for _ in range(3)), STAGES=2)
    (note, *_) = report.what_if(device="A100").notes()
    error = measured().error
    assert error
    assert f"for the H200 ({100 * error:.0f} % median error); for the A100 (not checked)" in note


def test_what_if_changes_parameters_and_constants() -> None:
    a = np.zeros((256, 256), BF)
    report = ladder.ring.sim[2, 2](a, a.copy(), a.copy(), STAGES=2)
    table = report.what_if(stages=[1, 2, 3])
    assert [w.changes["stages"] for w in table.ways] == [1, 2, 3]
    assert table.ways[1].seconds == table.now.seconds
    assert table.ways[0].seconds > table.now.seconds
    assert table.best.seconds <= table.now.seconds
    assert "stages=3" in str(table)
    assert "estimate" in table._repr_html_()
    report = KERNELS["gemm_ws"].sim[2, 2](a, a.copy(), a.copy())  # STAGES is its module's
    ways = report.what_if(stages=[1, 4]).ways
    assert ways[1].seconds == report.estimate().seconds < ways[0].seconds


def test_what_if_says_why_not() -> None:
    a = np.zeros((256, 256), BF)
    report = ladder.ring.sim[2, 2](a, a.copy(), a.copy(), STAGES=2)
    (way,) = report.what_if(stages=16).ways
    assert way.seconds is None
    assert "TK408" in way.why
    with pytest.raises(tk.LaunchError, match="'depth' is no compile-time value"):
        report.what_if(depth=3)
    (way,) = KERNELS["gemm_ws"].sim[2, 2](a, a.copy(), a.copy()).what_if(device="A100").ways
    assert "sm_90" in way.why
    assert report.what_if(device="A100", grid=(4, 4)).ways[0].seconds > report.estimate().seconds
    with pytest.raises(tk.LaunchError, match="does not know its launch"):
        type(report)("k", "cuda", "H200", (1, 1, 1), (32, 1, 1)).what_if(stages=2)
