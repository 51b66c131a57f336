"""NB2, shared memory and barriers."""

from __future__ import annotations

import numpy as np

from tklearn.course.item import RACES, Case, KernelItem, Out, Work, Wrong

TILE = 16  # threads along each side of a block


def _product(rng: np.random.Generator, size: tuple[int, int, int]) -> Case:
    m, n, k = size
    a = rng.standard_normal((m, k), dtype=np.float32)
    b = rng.standard_normal((k, n), dtype=np.float32)
    return Case(
        says=f"{m} x {k} times {k} x {n}",
        grid=(-(-n // TILE), -(-m // TILE)),
        args={"A": a, "B": b, "C": Out((m, n))},
    )


def _barriers(case: Case) -> float:
    """Two barriers a step of 16, for each of the 8 warps of each block."""
    x, y = case.grid
    return x * y * 8 * 2 * -(-case.args["A"].shape[1] // TILE)


F1 = KernelItem(
    id="F1",
    topic="second_barrier",
    title="A matmul by hand, and what is missing in it",
    notebook="02_shared_memory_barriers",
    minutes=5,
    points=4,
    hints=(
        "Where: the end of the loop. What does a fast warp do next, and what may a slow one still "
        "be doing?",
        "Rule: between a write to shared memory and another warp's read of it there must be a "
        "barrier, and between a read and another warp's next write there must be one, too.",
        "A worked sibling: a letter box that is emptied and filled in turn. `fill; block.sync(); "
        "read; block.sync();` and again: without the second, somebody fills before all have read.",
    ),
    kernels=("matmul",),
    case=_product,
    sizes=((16, 16, 32), (1, 1, 1), (2, 3, 17), (3, 2, 33), (33, 20, 40)),
    hidden=((1, 40, 3), (17, 17, 49), (20, 33, 64), (5, 16, 100)),
    expected=lambda A, B: A.astype(np.float64) @ B,
    tolerance=lambda A, B: (np.abs(A) @ np.abs(B)) * (A.shape[1] + 1) * 2.0**-23,
    runs=RACES,
    work=(
        Work(
            says="arrivals of warps at barriers",
            metrics=("barriers",),
            ideal=_barriers,
            full=1.0,
            zero=4.0,
        ),
    ),
    wrong=(
        Wrong(
            says="warp.sync() waits for the 32 lanes of its own warp. The tile is shared by 8 "
            "warps, and they need a barrier of the block",
            error="TK500 TK501",
            when=lambda f: f.calls["warp.sync"] > 0,
        ),
        Wrong(
            says="the barrier keeps writes before reads, and nothing keeps the reads before the "
            "next writes: a fast warp loads the next tile while a slow one still reads this one",
            error="TK500 TK501",
            when=lambda f: f.calls["block.sync"] == 1,
        ),
        Wrong(
            says="there are barriers enough, but not where they are needed: one between loading "
            "a tile and reading it, one between reading it and loading the next",
            error="TK500 TK501",
        ),
        Wrong(
            says="a barrier waits for all threads of the block: it must not stand where only some "
            "of them come by",
            error="TK506 TK507 TK512 TK301",
        ),
        Wrong(
            says="a barrier in the innermost loop is safe, and it makes all warps wait 16 times as "
            "often as they need to",
            costs=True,
            when=lambda f: f.total["barriers"] > 0,
        ),
    ),
)

ITEMS = (F1,)
