"""What a Report shows: ideals beside counters, and a warning where coordinates count elements."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import tklearn as tk
from tklearn import block, blockIdx, laneid, warp
from tklearn.kernels import gemm, gemm_hopper, layernorm, softmax


def test_ideals_stand_beside_their_counters() -> None:
    @tk.kernel(threads=32)
    def column(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared_array(tk.f32, 32, 32)
        for j in range(32):
            s[j, laneid()] = x[j * 64]
        warp.sync()
        y[laneid() * 8] = s[laneid(), 0]

    r = column.sim[1](np.ones(2048, np.float32), np.zeros(256, np.float32))
    listing = r.listing().splitlines()
    assert listing[0].split("  ")[0] == "ld requests"
    heads = [h.strip() for h in listing[0].replace("  line", "").split("  ") if h.strip()]
    for head in ("ld ideal", "st ideal", "sh.ld ideal", "sh.st ideal"):
        counter = head.replace("ideal", "wavefronts" if head[:2] == "sh" else "sectors")
        assert heads.index(head) == heads.index(counter) + 1
    (last,) = [line for line in listing if "y[laneid() * 8]" in line]
    assert last.split()[:6] == ["1", "32", "4", "32", "1", "31"]
    assert all(f">{h}</th>" in r._repr_html_() for h in heads)


ROWS, COLS = 4 * 64, 64


def scale(step: int) -> tk.Kernel:
    """`step`: what a block's number is multiplied by; 1 is right, 64 gives elements."""

    @tk.kernel(warps=4)
    def scale(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared(tk.st_fl(64, 64))
        t = tk.rt_fl(16, 64)
        block.load(s, x, (blockIdx.x * step, 0))
        block.sync()
        warp.load(t, s.subtile(16, 64, (tk.warpid(), 0)))
        t *= 2.0
        warp.store(y, t, (blockIdx.x * step * 4 + tk.warpid(), 0))

    return scale


def test_coordinates_in_elements_are_warned_of() -> None:
    x = np.ones((ROWS, COLS), np.float32)
    y = np.empty_like(x)
    r = scale(64).sim[4](x, y)
    assert [n[: n.index(":")] for n in r.notes] == [
        "tile coordinates count tiles, not elements"
    ] * 2
    said = str(r)
    assert "12,288 of the elements that line" in said
    assert "asks of 'x' (256 x 64) are past its end" in said
    assert "note: tile coordinates count tiles" in r._repr_html_()
    assert scale(1).sim[4](x, y).notes == []
    assert scale(64).sim[4](x, y, blocks=[0, 1]).notes == [], "part of a grid proves nothing"


def halves(*shape: int) -> np.ndarray:
    return np.ones(shape, ml_dtypes.bfloat16)


@pytest.mark.parametrize("shape", [(65, 70, 33), (1, 200, 300), (130, 5, 700), (3, 2, 1)])
def test_small_and_ragged_arrays_are_not(shape) -> None:
    m, n, k = shape
    _, r = gemm.run(halves(m, k), halves(k, n), report=True)
    assert r.clipped
    assert r.notes == []


@pytest.mark.parametrize("shape", [(200, 264, 136), (64, 8, 1000), (3, 8, 8)])
def test_boxes_of_tma_past_the_end_are_not(shape) -> None:
    m, n, k = shape
    _, r = gemm_hopper.run(halves(m, k), halves(k, n), report=True)
    assert r.clipped
    assert r.notes == []


def test_rows_that_do_not_fill_the_tiles_are_not() -> None:
    x = np.ones((5, 128), np.float32)
    _, r = softmax.run(x, report=True)
    assert r.notes == []
    told = layernorm.run(x, x, np.ones(128, np.float32), np.ones(128, np.float32), report=True)[-1]
    assert told.notes == []


def test_a_listing_shows_the_whole_kernel(tmp_path: Path) -> None:
    """Its last lines, too, that count nothing; and what stands after it not."""

    @tk.kernel(threads=32)
    def k(x: tk.gl_fl, y: tk.gl_fl):
        v = x[laneid()]
        if v > 0.0:
            y[laneid()] = v
        else:
            v = 1.0
            v = 2.0  # counts nothing

    r = k.sim[1](np.ones(32, np.float32), np.zeros(32, np.float32))
    first = k.fn.__code__.co_firstlineno + 1
    listed = r.rows(r.columns())
    assert [n for n, *_ in listed] == list(range(first, first + 7))
    assert listed[0][1].strip() == "def k(x: tk.gl_fl, y: tk.gl_fl):"
    assert listed[-1][1].endswith("# counts nothing")
    assert len(r.listing().splitlines()) == 8
    gone = replace(r, file="nowhere.py")  # the source is not on this machine
    assert [n for n, *_ in gone.rows(gone.columns())] == list(range(first, first + 4))
    path = tmp_path / "changed.py"  # or it is no longer what ran
    path.write_text("\n" * first + "x = (\n")
    changed = replace(r, file=str(path))
    assert len(changed.rows(changed.columns())) == 4
