"""What TMA copies count: bytes of boxes, sectors inside the array, instructions by column block."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from tklearn.report import METRICS

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))
import patterns_async

TILES = [c for c in patterns_async.all_cases() if c.name.startswith("tma") and "/" in c.name]


def expected(
    a: np.ndarray, tile: tuple[int, int], swizzle: int, grid: tuple, load: bool
) -> dict[str, int]:
    """Element by element, from where each lies; a load's zeros by 32 bytes of its box."""
    (rows, cols), size = tile, a.itemsize
    width = swizzle or cols * size
    root = a
    while isinstance(root.base, np.ndarray):
        root = root.base
    start = a.ctypes.data - root.ctypes.data
    made = {"bytes": 0, "sectors": 0, "instructions": 0}
    for by in range(grid[1]):
        for bx in range(grid[0]):
            made["bytes"] += rows * cols * size
            made["instructions"] += cols * size // width
            touched: set = set()
            real: set = set()  # pieces of 16 bytes of the boxes that have something of the array
            for r in range(by * rows, min((by + 1) * rows, a.shape[0])):
                for c in range(bx * cols, min((bx + 1) * cols, a.shape[1])):
                    at = start + r * a.strides[0] + c * size
                    inside = (c - bx * cols) * size
                    touched.add((r, inside // width, inside % width // 128, at // 32))
                    real.add((r - by * rows, inside // 16))
            made["sectors"] += len(touched)
            if load:
                for r in range(rows):
                    for box in range(0, cols * size, width):
                        zeros = [g for g in range(box // 16, (box + width) // 16)
                                 if (r, g) not in real]  # fmt: skip
                        made["sectors"] += -(-len(zeros) // 2)
    return made


@pytest.mark.parametrize("case", TILES, ids=[c.name for c in TILES])
def test_sectors_are_those_that_the_rows_of_a_box_touch(case: patterns_async.Case) -> None:
    shape, _, _ = case.name.split()[2].partition(" ")
    sides, _, swizzle = shape.partition("/")
    rows, cols = (int(n) for n in sides.split("x"))
    args = case.args()
    report = case.kernel.sim[case.grid](*args)
    for kind, a in zip(("load", "store"), args, strict=True):
        for key, n in expected(a, (rows, cols), int(swizzle), case.grid, kind == "load").items():
            assert report[f"tma_{kind}_{key}"] == n, (kind, key)


@pytest.mark.parametrize("case", patterns_async.all_cases(), ids=lambda c: c.name)
def test_batched_and_single_blocks_count_the_same(case: patterns_async.Case) -> None:
    many = case.kernel.sim[case.grid](*case.args())
    one = case.kernel.sim[case.grid](*case.args(), batch=False)
    assert many.lines == one.lines
    assert set(many.columns()) <= set(METRICS)


def test_at_most_one_block_for_each_multiprocessor() -> None:
    cases = patterns_async.all_cases()
    assert max(np.prod(c.grid) for c in cases) <= 132
    assert len({c.name for c in cases}) == len(cases)
