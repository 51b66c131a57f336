"""compare and recordings: another kernel's number is never shown as the learner's."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tklearn as tk
from tklearn import blockIdx, laneid, recordings, warp, warpid
from tklearn.lang import ir


@tk.kernel(warps=2)
def halve(x: tk.gl_fl, y: tk.gl_fl):
    t = tk.rt_fl(16, 32)
    warp.load(t, x, (blockIdx.x * 2 + warpid(), 0))
    t *= 0.5
    warp.store(y, t, (blockIdx.x * 2 + warpid(), 0))


def args(rows: int = 64) -> list[np.ndarray]:
    x = np.random.default_rng(0).standard_normal((rows, 32), dtype=np.float32)
    return [x, np.empty_like(x)]


def recording(**changes: object) -> recordings.Recording:
    a = args()
    r = recordings.Recording(
        kernel="halve",
        digest=ir.digest(halve.ir(*a)),
        arguments=recordings.describe_arguments(a),
        grid=(2, 1, 1),
        device="NVIDIA H200",
        driver="580",
        date="2026-11-30",
        command="a test",
        seconds=2e-6,
        error=0.0,
        counters={"global_ld_sectors": 256, "global_st_sectors": 999},
        source="def halve",
    )
    return replace(r, **changes)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[recordings.Recording]:
    kept: list[recordings.Recording] = []
    monkeypatch.setattr(recordings, "load", lambda: tuple(kept))
    monkeypatch.setattr("tklearn.comparison.gpu_here", lambda: False)
    return kept


def test_simulated_and_recorded_stand_side_by_side(recorded: list) -> None:
    recorded.append(recording())
    a = args()
    table = tk.compare(halve, 2, a)
    rows = {r.quantity: r for r in table.rows}
    assert rows["global ld sectors"].simulated == rows["global ld sectors"].measured == "256"
    assert rows["global ld sectors"].difference == "0"
    assert rows["global st sectors"].difference == "+743"
    assert rows["time"].measured == "2.00 us"
    assert rows["values"].measured == "same bits"
    assert "recorded on NVIDIA H200, 2026-11-30" in str(table)
    assert "<table>" in table._repr_html_()


def test_arguments_are_not_changed(recorded: list) -> None:
    x, _ = args()
    y = np.full_like(x, 5)
    tk.compare(halve, 2, (x, y))
    assert (y == 5).all()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"digest": "0" * 16}, "no recording of this kernel; nearest: halve on NVIDIA H200"),
        ({"arguments": ["float32[32, 32]", "float32[64, 32]"]}, "instead of float32[32, 32]"),
        ({"grid": (4, 1, 1)}, "grid (2, 1, 1) instead of (4, 1, 1)"),
        ({"kernel": "other", "digest": "0" * 16}, "no recording of this kernel"),
    ],
)
def test_no_other_launch_is_shown(recorded: list, changes: dict, words: str) -> None:
    recorded.append(recording(**changes))
    table = tk.compare(halve, 2, args())
    assert all(r.measured is None for r in table.rows)
    assert words in str(table)


def test_a_faulty_kernel_is_not_launched(recorded: list) -> None:
    @tk.kernel(warps=2)
    def racy(y: tk.gl_fl):
        s = tk.shared_array(tk.f32, 64)
        s[warpid() * 32 + laneid()] = 1.0
        s[63 - warpid() * 32 - laneid()] = 2.0
        y[warpid() * 32 + laneid()] = s[63 - warpid() * 32 - laneid()]

    with pytest.raises(tk.Race):
        tk.compare(racy, 1, (np.zeros(64, np.float32),))


def test_unknown_options_are_refused(recorded: list) -> None:
    with pytest.raises(tk.LaunchError, match="has no parameter 'speed'"):
        tk.compare(halve, 2, args(), speed=3)


def test_what_is_no_kernel_and_no_tuple_is_refused() -> None:
    with pytest.raises(tk.LaunchError, match="function is not a kernel"):
        tk.compare(args, 2, ())  # type: ignore[arg-type]
    with pytest.raises(tk.LaunchError, match=r"one tuple, not ndarray\n +hint: tk.compare\(kernel"):
        tk.compare(halve, 2, np.zeros(64, np.float32))


def test_the_digest_is_of_what_a_kernel_does() -> None:
    @tk.kernel(warps=2)
    def halve(x: tk.gl_fl, y: tk.gl_fl):
        """Other text, the same program."""
        t = tk.rt_fl(16, 32)  # a tile

        warp.load(t, x, (blockIdx.x * 2 + warpid(), 0))
        t *= 1 / 2
        warp.store(y, t, (blockIdx.x * 2 + warpid(), 0))

    here = globals()["halve"]
    assert ir.digest(halve.ir(*args())) == ir.digest(here.ir(*args()))

    @tk.kernel(warps=2)
    def halve(x: tk.gl_fl, y: tk.gl_fl):
        t = tk.rt_fl(16, 32)
        warp.load(t, x, (blockIdx.x * 2 + warpid(), 0))
        t *= 0.25
        warp.store(y, t, (blockIdx.x * 2 + warpid(), 0))

    assert ir.digest(halve.ir(*args())) != ir.digest(here.ir(*args()))


def test_files_keep_the_newest_of_each_launch(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    recordings.save([recording(), recording(grid=(3, 1, 1))], path)
    recordings.save([recording(seconds=1e-6)], path)
    found = recordings.load(tmp_path)
    assert sorted((r.grid, r.seconds) for r in found) == [((2, 1, 1), 1e-6), ((3, 1, 1), 2e-6)]
    assert list(tmp_path.iterdir()) == [path]


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text(json.dumps({"recordings": [{"kernel": "x"}]}))
    with pytest.raises(ValueError, match=r"bad\.json is not a file of recordings"):
        recordings.load(tmp_path)


def test_recordings_of_the_project_can_be_read() -> None:
    for r in recordings.load():
        assert r.seconds > 0
        assert r.device
        assert r.command.startswith("tklearn record ")


def test_profiles_are_read_in_order_of_launch() -> None:
    from tklearn.record import read_profile

    text = (
        "==PROF== noise\n"
        '"ID","Kernel Name","a.sum","b.sum"\n'
        '"","","sector","inst"\n'
        '"0","halve","1,024","7"\n'
        '"1","halve","5",""\n'
    )
    assert read_profile(text, {"a.sum": "a", "b.sum": "b"}) == [{"a": 1024, "b": 7}, {"a": 5}]


def test_another_model_with_a_longer_name_is_not_shown(recorded: list) -> None:
    recorded.append(recording(device="NVIDIA A100"))
    assert recordings.find(halve.ir(*args()), args(), (2, 1, 1), "A100") is not None
    recorded[0] = recording(device="NVIDIA RTX 4090")
    assert recordings.find(halve.ir(*args()), args(), (2, 1, 1), "A100") is None


@tk.kernel(warps=2)
def scaled(N: tk.const, x: tk.gl_fl, y: tk.gl_fl):
    t = tk.rt_fl(16, 32)
    warp.load(t, x, (blockIdx.x * 2 + warpid(), 0))
    t *= N
    warp.store(y, t, (blockIdx.x * 2 + warpid(), 0))


def test_compile_time_arguments_may_stand_anywhere(recorded: list) -> None:
    table = tk.compare(scaled, 2, (3, *args()))
    assert {r.quantity: r for r in table.rows}["global ld sectors"].simulated == "256"
    moved = 2 * args()[0].nbytes
    assert {r.quantity: r for r in table.rows}["time"].predicted == f"{moved / 4.8e12 * 1e6:.2f} us"


@pytest.mark.parametrize(
    ("rows", "warm", "quicker"),
    [(64, True, False), (2 * 65536, True, True), (32 * 8192, False, False)],
)
def test_a_bound_by_dram_says_where_l2_can_be_quicker(
    recorded: list, rows: int, warm: bool, quicker: bool
) -> None:
    """An estimate with a warm L2 cache may be below it, and both rows say so. A launch takes longer
    than any bound of a few kilobytes."""
    found = {r.quantity: r for r in tk.compare(halve, 2, args(rows)).rows}
    assert ("fit into L2" in found["time"].reason) == quicker
    assert ("L2 warm" in found["time, estimated"].reason) == warm
    assert "lower bound by memory" in found["time"].reason


@pytest.fixture
def pretended_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU that is the simulator: its name is in the table, its arrays are copies."""
    monkeypatch.setattr("tklearn.comparison.gpu_here", lambda: True)
    monkeypatch.setattr("tklearn.comparison._to_gpu", np.copy)
    monkeypatch.setattr("tklearn.cuda.launch.device_name", lambda *_: "NVIDIA RTX 4090")


def test_the_prediction_is_for_the_gpu_that_measures(pretended_gpu: None) -> None:
    table = tk.compare(halve, 2, args())
    assert table.device == "RTX 4090"
    assert tk.compare(halve, 2, args(), device="T4").device == "T4"


@pytest.mark.parametrize("wrong", [np.nan, np.inf, 1.5])
def test_a_difference_cannot_hide(
    pretended_gpu: None, monkeypatch: pytest.MonkeyPatch, wrong: float
) -> None:
    """A NaN on one machine is a difference, not equality."""
    kept = type(halve).__getitem__

    def broken(k: tk.Kernel, grid: object) -> object:
        def launch(*a: object, **given: np.ndarray) -> object:
            report = kept(k, grid)(*a, **given)
            given["y"][3, 4] = wrong
            return report

        return launch

    monkeypatch.setattr(type(halve), "__getitem__", broken)
    x, y = args()
    x[3, 4] = 1.0
    row = tk.compare(halve, 2, (x, y)).rows[0]
    assert row.measured == ("inf" if wrong != 1.5 else "1")
    assert row.reason


def test_the_profiler_finds_kernels_with_names_that_cpp_or_the_headers_use() -> None:
    """A recording of a kernel `copy` had no counters: its entry point is `copy_`."""
    import re

    from tklearn.cuda.cppnames import RESERVED, legal
    from tklearn.record import entries

    pattern = re.compile(entries([*sorted(RESERVED)[:200], "copy", "gemm"]))
    for name in [*sorted(RESERVED)[:200], "copy", "gemm"]:
        assert pattern.match(legal(name)), name
    assert not pattern.match("gemm_lanes")


@tk.kernel(warps=1)
def squared(x: tk.gl_hf, y: tk.gl_fl):
    a = tk.rt_hf(16, 16)
    b = tk.rt_hf(16, 16, tk.col)
    c = tk.rt_fl(16, 16)
    warp.load(a, x, (0, 0))
    warp.load(b, x, (0, 0))
    warp.zero(c)
    warp.mma_AB(c, a, b)
    warp.store(y, c, (0, 0))


def test_what_the_counter_cannot_count_has_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    """It knows products of bf16: the 0 that it says to those of f16 is none of this kernel's."""
    given = [np.ones((16, 16), np.float16), np.zeros((16, 16), np.float32)]
    kept = recording(
        kernel="squared",
        digest=ir.digest(squared.ir(*given)),
        arguments=recordings.describe_arguments(given),
        grid=(1, 1, 1),
        counters={"tensor_flops": 0, "tensor_instructions": 2},
    )
    monkeypatch.setattr(recordings, "load", lambda: (kept,))
    monkeypatch.setattr("tklearn.comparison.gpu_here", lambda: False)
    rows = {r.quantity: r for r in tk.compare(squared, 1, given).rows}
    flops = rows["tensor flops"]
    assert (flops.simulated, flops.measured, flops.difference) == ("8,192", None, "")
    assert flops.reason.startswith("not measured: the GPU's counter knows products of bf16")
    assert rows["tensor instructions"].measured == "2"
