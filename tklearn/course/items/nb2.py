"""NB2, shared memory and barriers."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

import tklearn as tk
from tklearn import block, blockIdx, laneid, threadIdx
from tklearn.course.item import RACES, Case, KernelItem, Out, Predict, Question, Work, Wrong
from tklearn.lang.errors import TkError

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
    notebook="02_shared_memory_and_barriers",
    minutes=4,
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


# ----------------------------------------------------------------------------------------- P2
@tk.kernel(threads=(16, 16))
def _one_barrier(A: tk.gl_fl, B: tk.gl_fl, C: tk.gl_fl):
    a = tk.shared_array(tk.f32, 16, 16)
    b = tk.shared_array(tk.f32, 16, 16)
    row = blockIdx.y * 16 + threadIdx.y
    col = blockIdx.x * 16 + threadIdx.x
    total = 0.0
    for k in range(0, A.cols, 16):
        a[threadIdx.y, threadIdx.x] = A[row, k + threadIdx.x] if row < A.rows else 0.0
        b[threadIdx.y, threadIdx.x] = B[k + threadIdx.y, col]
        block.sync()
        for j in range(16):
            total += a[threadIdx.y, j] * b[j, threadIdx.x]
    if row < C.rows:
        C[row, col] = total


ORDERS = ("rotate", "reverse", "random")
VERDICTS = ("pass", "fail", "depends")
REPORT = ("reported", "not reported")


@lru_cache
def _passes(k: int, schedule: str, check: str = "off") -> bool:
    """Whether the product of 2 x k and k x 16 has the right numbers; a fault is no pass."""
    rng = np.random.default_rng(k)
    a = rng.standard_normal((2, k), dtype=np.float32)
    b = rng.standard_normal((k, 16), dtype=np.float32)
    c = np.zeros((2, 16), np.float32)
    try:
        _one_barrier.sim[1](a, b, c, check=check, schedule=schedule, seed=1)
    except TkError:
        return False
    return bool(np.abs(c - a.astype(np.float64) @ b).max() < 1e-4)


def _verdict(k: int) -> str:
    good = sum(_passes(k, s) for s in ORDERS)
    return "pass" if good == len(ORDERS) else "depends" if good else "fail"


def _found(k: int) -> str:
    """What the checks say in the order in which the numbers are right."""
    lucky = next(s for s in ORDERS if _passes(k, s))
    return REPORT[1] if _passes(k, lucky, "full") else REPORT[0]


P2 = Predict(
    id="P2",
    topic="does_it_pass",
    title="The second barrier removed: does it pass?",
    notebook="02_shared_memory_and_barriers",
    minutes=2.5,
    points=2,
    params=lambda rng: {"k": int(rng.choice([48, 64, 80, 96]))},
    intro="The matmul of notebook 02, without the barrier at the end of its loop. A is 2 x K and "
    "B is K x 16, so that only warp 0 has rows of C. A test compares C with the right numbers.",
    questions=(
        Question(
            name="a",
            text="K = {k}. The test is run with the warps taking turns in three different orders "
            "and nobody looking at anything but C. Does it pass, fail, or does it depend on the "
            "order?",
            truth=lambda k: _verdict(k),
            choices=VERDICTS,
            wrong={
                "in one of the orders the slow warps come late enough, and in another they "
                "do not: passing once is luck": lambda **_: "pass",
                "a race is not always seen: in one of the orders every warp reads before the "
                "next tile is written": lambda **_: "fail",
            },
            why="Right in one order, wrong in another: which one you get is not yours to choose.",
        ),
        Question(
            name="b",
            text="The same with K = 16, in the same orders (the loop goes in steps of 16). Does it "
            "pass?",
            truth=lambda k: _verdict(16),
            choices=VERDICTS,
            wrong={
                "with K = 16 there is one tile, and nobody ever writes a second one over it": (
                    lambda **_: "depends"
                ),
                "one tile is written, all meet, all read: nothing is missing there": (
                    lambda **_: "fail"
                ),
            },
            why="One step never writes a second tile: a test on a small size cannot find this.",
        ),
        Question(
            name="c",
            text="K = {k} again, with the simulator's checks on, in an order in which C comes out "
            "right. Is the race reported?",
            truth=lambda k: _found(k),
            choices=REPORT,
            wrong={
                "the checks do not compare numbers. They ask whether anything orders the two "
                "accesses, and nothing does": lambda **_: REPORT[1],
            },
            why="A race is reported because nothing orders the accesses, whatever came out.",
        ),
    ),
    hints=(
        "Where: the end of the loop and its beginning. What does warp 0 do when it is done with a "
        "tile, and what may warp 7 still be doing?",
        "Rule: without a barrier between reading a tile and writing the next one, the result "
        "depends on who comes first; with a single tile there is no next one.",
        "A worked sibling: `if warpid() == 0: s[0] = 1.0` and then `y = s[0]` in warp 1, without "
        "a barrier: right if warp 0 comes first, wrong if not, and a race in both orders.",
    ),
)


# ----------------------------------------------------------------------------------------- F2
LENGTH = 128  # threads of a block


def _steps(rng: np.random.Generator, n: int) -> Case:
    x = rng.standard_normal(n, dtype=np.float32)
    says = f"{n} number{'s' * (n > 1)}"
    return Case(says=says, grid=-(-n // LENGTH), args={"n": n, "x": x, "y": Out((n,))})


def _differences(n: int, x: np.ndarray) -> np.ndarray:
    return np.diff(x.astype(np.float64), prepend=0.0)


F2 = KernelItem(
    id="F2",
    topic="barrier_in_a_branch",
    title="A barrier in a branch",
    notebook="02_shared_memory_and_barriers",
    minutes=4,
    points=3,
    hints=(
        "Where: the `if`. With 96 numbers and 128 threads, which warps go into it, and which of "
        "them does the barrier wait for?",
        "Rule: every thread of the block must come to the same block.sync(). Work may stand in an "
        "`if`; the barrier may not, and nobody may leave before it.",
        "A worked sibling: `if t < 32: s[t] = x[t]`, then `block.sync()` at the margin of the "
        "function, then `if t < 32: y[t] = s[31 - t]`.",
    ),
    kernels=("steps",),
    case=_steps,
    sizes=(96, 128, 1, 2, 3, 100, 300),
    hidden=(5, 127, 129, 32, 64, 1000),
    expected=_differences,
    tolerance=lambda n, x: 2.0**-22 * np.abs(x).max(),
    runs=RACES,
    work=(
        Work(
            says="arrivals of warps at barriers",
            metrics=("barriers",),
            ideal=lambda case: 4 * case.grid,
            full=1.0,
            zero=3.0,
        ),
        Work(
            says="sectors of 32 bytes read",
            metrics=("global_ld_sectors",),
            ideal=lambda case: -(-case.args["n"] // 8) + case.grid - 1,
            full=1.35,
            zero=3.0,
        ),
    ),
    wrong=(
        Wrong(
            says="both branches have a barrier, and they are two different ones: the warps of the "
            "first wait at one place, the others at another, and neither is complete",
            error="TK506",
            when=lambda f: f.calls["block.sync"] > 1 and "else:" in f.text,
        ),
        Wrong(
            says="a lane that has returned never comes to the barrier, and the others wait for "
            "it: put the work into an 'if', and let nobody leave early",
            error="TK506 TK512 TK301",
            when=lambda f: "return" in f.text,
        ),
        Wrong(
            says="a barrier waits for all threads of the block: it must not stand where only some "
            "of them come by",
            error="TK506 TK507 TK512 TK301",
        ),
        Wrong(
            says="warp.sync() waits for the 32 lanes of its own warp. The left neighbour of lane 0 "
            "belongs to the warp before it: that takes a barrier of the block",
            error="TK500 TK501 TK503",
            when=lambda f: f.calls["warp.sync"] > 0,
        ),
        Wrong(
            says="threads past the end read what nobody wrote into s: the last line needs its "
            "`if i < n`, too, behind the barrier",
            error="TK503",
            when=lambda f: 0 < f.text.find("block.sync()") < f.text.rfind("y["),
        ),
        Wrong(
            says="the neighbour's number is read without anything that says it is there: between "
            "writing s and reading it the whole block must meet",
            error="TK500 TK501 TK503",
        ),
        Wrong(
            says="some lanes go past the end of the array: keep the work inside `if i < n`",
            error="TK504",
        ),
        Wrong(
            says="every number is read from global memory twice, once for itself and once for its "
            "neighbour: s is there so that one read does for both",
            when=lambda f: f.total["global_ld_sectors"] > 0 and f.calls["block.sync"] == 0,
        ),
        Wrong(
            says="one barrier is enough: nobody writes into s again after it",
            when=lambda f: f.total["barriers"] > 0 and f.calls["block.sync"] > 1,
        ),
    ),
)


# ------------------------------------------------------------------------------------ in the lesson
@tk.kernel(threads=32)
def _mirror(x: tk.gl_fl, y: tk.gl_fl):
    s = tk.shared_array(tk.f32, 32)
    s[laneid()] = x[laneid()]
    y[laneid()] = s[31 - laneid()]


@tk.kernel(threads=32)
def _count(y: tk.gl_fl):
    s = tk.shared_array(tk.f32, 32)
    s[laneid()] += 1.0
    y[laneid()] = s[laneid()]


@tk.kernel(threads=128)
def _branch(n: tk.i32, x: tk.gl_fl, y: tk.gl_fl):
    s = tk.shared_array(tk.f32, 128)
    t = threadIdx.x
    if t < n:
        s[t] = x[t]
        block.sync()
        y[t] = s[t]


def _code(kernel: Any, *args: Any) -> str:
    """The code of the fault that a run ends with, "" for none."""
    try:
        kernel.sim[1](*args)
    except TkError as e:
        return e.code
    return ""


def _pair(n: int) -> tuple[np.ndarray, np.ndarray]:
    return np.zeros(n, np.float32), np.zeros(n, np.float32)


def _zeros() -> np.ndarray:
    return np.zeros(32, np.float32)


N2 = Predict(
    id="N2",
    topic="lesson",
    title="Predictions of the lesson on shared memory",
    notebook="02_shared_memory_and_barriers",
    minutes=1,
    points=0,
    questions=(
        Question(
            name="lockstep",
            text="One warp writes 32 numbers into shared memory, and each lane then reads another "
            "lane's number. Is a synchronisation needed between?",
            truth=lambda: "yes" if _code(_mirror, _zeros(), _zeros()) else "no",
            choices=("yes", "no"),
            wrong={
                "the lanes of a warp do not march in lockstep: since 2017 they may run ahead of "
                "each other, and the compiler may move the read": lambda: "no",
            },
            why="Lanes may run ahead of each other: warp.sync() orders them.",
        ),
        Question(
            name="start",
            text="What is in shared memory when a block begins?",
            truth=lambda: "anything" if _code(_count, _zeros()) == "TK503" else "zeros",
            choices=("zeros", "anything"),
            wrong={
                "nobody clears it: what the block before left there is still there": (
                    lambda: "zeros"
                ),
            },
            why="Whatever the last block left: write before you read.",
        ),
        Question(
            name="branch",
            text="128 threads, 96 numbers, and block.sync() stands under the line if i < n. What "
            "becomes of the warps that come to it?",
            truth=lambda: "they wait" if _code(_branch, 96, *_pair(96)) == "TK506" else "they pass",
            choices=("they pass", "they wait"),
            wrong={
                "the barrier counts the threads of the whole block, and 32 of them never come": (
                    lambda: "they pass"
                ),
            },
            why="The barrier waits for the whole block, and one warp never comes.",
        ),
    ),
    hints=(
        "Where: run the two small kernels of the notebook and read what is said.",
        "Rule: nothing is ordered and nothing is cleared unless a line says so.",
        "A worked sibling: a register that was never assigned has no value either.",
    ),
)

ITEMS = (P2, F1, F2)
LESSON = (N2,)
