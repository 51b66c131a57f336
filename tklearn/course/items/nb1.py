"""NB1, warps and memory: sectors and coalescing."""

from __future__ import annotations

import numpy as np

from tklearn.course.item import Case, KernelItem, Out, Work, Wrong

PER_BLOCK = 1024  # numbers: 256 threads with 4 each


def _copy(rng: np.random.Generator, n: int) -> Case:
    x = rng.standard_normal(n, dtype=np.float32)
    grid = -(-n // PER_BLOCK)
    return Case(says=f"{n} number{'s' * (n > 1)}", grid=grid, args={"n": n, "x": x, "y": Out((n,))})


M1 = KernelItem(
    id="M1",
    topic="coalesce",
    title="Make a strided copy coalesced",
    notebook="01_warps_and_memory",
    minutes=4,
    points=3,
    optional=True,
    hints=(
        "Where: the two lines that set `first` and `step`. Write down for j = 0 which element lane "
        "0 touches, which lane 1, which lane 2.",
        "Rule: the 32 lanes of a warp ask together. What they ask for in one instruction should "
        "lie side by side, so neighbouring lanes need neighbouring elements. Where one lane goes "
        "next does not matter.",
        "A worked sibling, with 64 threads a block and 2 elements each: "
        "`first = blockIdx.x * 128 + threadIdx.x` and `step = 64`.",
    ),
    kernels=("copy",),
    case=_copy,
    sizes=(4096, 1, 2, 3, 1000, 5001),
    hidden=(7, 1023, 1025, 9999),
    expected=lambda n, x: x,
    work=(
        Work(
            says="sectors of 32 bytes read and written",
            metrics=("global_ld_sectors", "global_st_sectors"),
            ideal=lambda case: 2 * -(-case.args["n"] // 8),
            full=1.05,
            zero=3.0,
        ),
    ),
    wrong=(
        Wrong(
            says="each block must copy 1024 numbers of its own: blocks overlap, because the start "
            "of a block is not blockIdx.x * 1024",
            error="TK502",
        ),
        Wrong(
            says="some lanes go past the end of the array: keep the line `if i < n`",
            error="TK504",
        ),
        Wrong(
            says="the four numbers of one lane lie side by side, but a lane asks for one of them "
            "at a time. The 32 lanes ask together, and there they are four numbers apart: each "
            "request touches four times the sectors it uses",
            costs=True,
            when=lambda f: f.total["global_ld_sectors"] > 8 * f.total["global_ld_requests"],
        ),
        Wrong(
            says="the loads are side by side, the stores are not: both sides of the copy count",
            costs=True,
            when=lambda f: f.total["global_st_sectors"] > 8 * f.total["global_st_requests"],
        ),
    ),
)

ITEMS = (M1,)
