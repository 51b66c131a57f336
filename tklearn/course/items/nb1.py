"""NB1, warps and memory: sectors and coalescing."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

import tklearn as tk
from tklearn import threadIdx, warp
from tklearn.course.item import Case, KernelItem, Out, Predict, Question, Work, Wrong

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
    minutes=4.5,
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


# ----------------------------------------------------------------------------------------- P1
LARGEST = 4096  # numbers of the array that the patterns read


@tk.kernel(threads=32)
def _read(first: tk.i32, step: tk.i32, x: tk.gl_fl, y: tk.gl_fl):
    y[threadIdx.x] = x[first + threadIdx.x * step]


@lru_cache
def _sectors(first: int, step: int) -> int:
    """How many sectors one warp asks for that reads x[first + step * lane], by a run."""
    x = np.zeros(LARGEST, np.float32)
    run = _read.sim[1](first, step, x, np.empty(32, np.float32))
    return run.total["global_ld_sectors"]


def _steps(rng: np.random.Generator) -> dict[str, Any]:
    """Numbers that vary from learner to learner and keep each question's point."""
    return {"step": int(rng.choice([2, 4])), "cols": int(rng.choice([24, 48, 64, 100]))}


P1 = Predict(
    id="P1",
    topic="sectors",
    title="Three index patterns: how many sectors?",
    notebook="01_warps_and_memory",
    minutes=2.5,
    points=2,
    params=_steps,
    intro="x holds numbers of 4 bytes and begins at the beginning of a sector (32 bytes). Lane i, "
    "from 0 to 31, reads the element named, all in one request. How many sectors are fetched?",
    questions=(
        Question(
            name="a",
            text="x[31 - i]",
            truth=lambda **_: _sectors(31, -1),
            wrong={
                "it does not matter which lane wants which number: the 32 numbers lie in as many "
                "sectors as in the usual order": lambda **_: 32,
                "4 bytes times 32 lanes are 128 bytes, and a sector has 32 of them": lambda **_: 1,
                "a sector has 32 bytes: 8 numbers, not 4": lambda **_: 8,
            },
            why="Backwards or forwards, 128 bytes side by side are four sectors.",
        ),
        Question(
            name="b",
            text="x[{step} * i]",
            truth=lambda step, **_: _sectors(0, step),
            wrong={
                "a sector is fetched as a whole, with the numbers that nobody asked for": (
                    lambda **_: 4
                ),
                "neighbouring lanes still share sectors: several of the numbers lie in one": (
                    lambda **_: 32
                ),
            },
            why="The lanes spread over more bytes, and what lies between is fetched, too.",
        ),
        Question(
            name="c",
            text="x[{cols} * i], a column of a matrix with {cols} columns",
            truth=lambda cols, **_: _sectors(0, cols),
            wrong={
                "the numbers of a column lie a whole row apart, so that no two of them share a "
                "sector": lambda **_: 4,
                "only a sector's own neighbours share it: at this distance every lane has one to "
                "itself": lambda **_: 8,
            },
            why="Every lane has a sector of its own, and uses 4 of its 32 bytes.",
        ),
    ),
    hints=(
        "Where: write down the byte at which lanes 0, 1, 2 and 3 read (4 times the index), and "
        "divide it by 32: that is the number of the sector.",
        "Rule: count the different sectors among all 32 lanes. A sector is fetched once for all "
        "lanes of the request, and always as a whole.",
        "A worked sibling: x[8 * i]. Bytes 0, 32, 64, ...: a new sector for each lane, so 32.",
    ),
)


# ------------------------------------------------------------------------------------ in the lesson
@tk.kernel(warps=1)
def _tile(x: tk.gl_fl, y: tk.gl_fl):
    t = tk.rt_fl(16, 128)
    warp.load(t, x, (0, 0))
    warp.store(y, t, (0, 0))


def _requests() -> int:
    x = np.zeros((16, 128), np.float32)
    return _tile.sim[1](x, np.empty_like(x)).total["global_ld_requests"]


N1 = Predict(
    id="N1",
    topic="lesson",
    title="Predictions of the lesson on warps and memory",
    notebook="01_warps_and_memory",
    minutes=1,
    points=0,
    questions=(
        Question(
            name="requests",
            text="A warp loads a tile of 16 x 128 numbers; in one request each lane brings two "
            "numbers. How many requests is that one line?",
            truth=_requests,
            wrong={
                "one line of Python is not one request: 32 lanes with two numbers each bring 64 "
                "of 2048": lambda: 1,
                "the lanes bring 64 numbers in a request, not 32": lambda: 64,
                "the tile has 16 rows, and each has 128 numbers: two requests": lambda: 16,
            },
            why="2048 numbers, 64 at a time.",
        ),
        Question(
            name="shifted",
            text="32 lanes read the 32 numbers x[1] to x[32], side by side. How many sectors?",
            truth=lambda: _sectors(1, 1),
            wrong={
                "the first number is not the first of its sector, so the last one falls into "
                "another": lambda: 4,
                "most of the sectors are the same ones as without the shift": lambda: 8,
            },
            why="128 bytes that do not begin at a sector's beginning touch one sector more.",
        ),
    ),
    hints=(
        "Where: count numbers first, then bytes, then sectors of 32 bytes.",
        "Rule: a sector that is touched at all is fetched as a whole.",
        "A worked sibling: 8 lanes that read x[4] to x[11] touch two sectors.",
    ),
)

ITEMS = (P1, M1)
LESSON = (N1,)
