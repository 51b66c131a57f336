"""NB5, asynchronous pipelines: cp.async, semaphores and the bytes of TMA."""

from __future__ import annotations

import ast
from functools import cache
from typing import Any

import numpy as np

import tklearn as tk
from tklearn import (
    arrive,
    block,
    blockIdx,
    init_semaphore,
    tma,
    wait,
    warp,
    warpgroup,
    warpid,
)
from tklearn.course.item import (
    RACES,
    Case,
    Facts,
    KernelItem,
    Out,
    Predict,
    Question,
    Rule,
    Work,
    Wrong,
)
from tklearn.kernel import Kernel
from tklearn.viz.clock import Units
from tklearn.viz.rows import picture_rows
from tklearn.viz.timeline import Drawn

TILE = 64 * 64 * 2  # bytes of a tile of 64 x 64 numbers of 2 bytes


def _product(rng: np.random.Generator, size: tuple[int, int, int]) -> Case:
    m, n, k = size
    a = rng.standard_normal((m, k), dtype=np.float32).astype(np.float16)
    b = rng.standard_normal((k, n), dtype=np.float32).astype(np.float16)
    return Case(
        says=f"{m} x {k} times {k} x {n}",
        grid=(-(-n // 64), -(-m // 64)),
        args={"A": a, "B": b, "C": Out((m, n))},
    )


def _exact(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    return A.astype(np.float64) @ B.astype(np.float64)


def _rounding(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    sizes = np.abs(A).astype(np.float64) @ np.abs(B).astype(np.float64)
    return sizes * (A.shape[1] + 64) * 2.0**-24 + 1e-12


def _steps(case: Case) -> int:
    """Steps of 64 along the shared dimension, of all blocks."""
    x, y = case.grid
    return x * y * -(-case.args["A"].shape[1] // 64)


# --------------------------------------------------------------------------------------------- P5
@cache
def _pipelined(STAGES: int, last_sync: bool = True) -> Kernel:
    """The product of the lesson with so many stages."""

    @tk.kernel(warps=4)
    def matmul(A: tk.gl_hf, B: tk.gl_hf, C: tk.gl_fl):
        a_s = tk.shared(tk.st_hf(64, 64), STAGES)
        b_s = tk.shared(tk.st_hf(64, 64), STAGES)
        a = tk.rt_hf(16, 64)
        b = tk.rt_hf(64, 64, tk.col)
        acc = tk.rt_fl(16, 64)
        warp.zero(acc)
        steps = A.cols // 64
        for k in range(STAGES - 1):
            block.load_async(a_s[k], A, (0, k))
            block.load_async(b_s[k], B, (k, 0))
            tk.commit_group()
        for k in range(steps):
            ahead = k + STAGES - 1
            if ahead < steps:
                block.load_async(a_s[ahead % STAGES], A, (0, ahead))
                block.load_async(b_s[ahead % STAGES], B, (ahead, 0))
            tk.commit_group()
            tk.wait_group(STAGES - 1)
            block.sync()
            warp.load(a, a_s[k % STAGES].subtile(16, 64, (warpid(), 0)))
            warp.load(b, b_s[k % STAGES])
            warp.mma_AB(acc, a, b)
            if last_sync:
                block.sync()
        warp.store(C, acc, (warpid(), 0))

    return matmul


STEPS_A_CYCLE = 10_000


@cache
def _timeline(stages: int, steps: int) -> Any:
    a, b = np.zeros((64, 64 * steps), np.float16), np.zeros((64 * steps, 64), np.float16)
    c = np.zeros((64, 64), np.float32)
    return _pipelined(stages).sim[1](a, b, c, timeline=True)


@cache
def _reckoned(stages: int, steps: int, copy: int, product: int) -> tuple[int, int]:
    """(end, first product) on paper, from the moments of a run. A step of a warp takes 1 there, so
    copies and products take so much more of it that nothing of a step is left in the result."""
    t = _timeline(stages, steps).timeline
    units = Units(copy * STEPS_A_CYCLE, product * STEPS_A_CYCLE)
    drawn = Drawn(t, picture_rows(t, units, tiles=False, semaphores=False))
    assert drawn.first_product is not None
    return round(drawn.finish / STEPS_A_CYCLE), round(drawn.first_product / STEPS_A_CYCLE)


def _ends(stages: int) -> Any:
    return lambda steps, copy, product: _reckoned(stages, steps, copy, product)[0]


DURATIONS = ((400, 200), (300, 200), (450, 300), (500, 300), (350, 200), (250, 150))
"""(copy, product): a copy is longer than a product, not than two, so that three stages do."""


def _durations(rng: np.random.Generator) -> dict[str, Any]:
    copy, product = DURATIONS[int(rng.integers(len(DURATIONS)))]
    return {"copy": copy, "product": product, "steps": 6}


P5 = Predict(
    id="P5",
    topic="stages",
    title="When do one, two and three stages end?",
    notebook="05_pipelines",
    minutes=5,
    points=4,
    params=_durations,
    intro="{steps} steps. A copy takes {copy} cycles, a product {product}, everything "
    "else nothing. The first copy into each stage starts at 0, each later one as soon as its stage "
    "is free.",
    questions=(
        Question(
            name="one",
            text="One stage: when does the last product end?",
            truth=_ends(1),
            wrong={
                "with one stage there is no room for the next tile: its copy starts when the "
                "product is done": lambda steps, copy, product: copy + steps * product,
                "the products take time, too: neither hides the other": (
                    lambda steps, copy, product: steps * copy
                ),
                "each step needs its copy": lambda steps, copy, product: steps * product,
                "each step takes a copy and then a product, and all steps count": (
                    lambda steps, copy, product: copy + product
                ),
            },
            why="Copy, product, copy, product: they take turns.",
        ),
        Question(
            name="two",
            text="Two stages: when does the last product end?",
            truth=_ends(2),
            wrong={
                "two stages are not twice as quick: of the last two products the second has still "
                "to run. Fill in the table to its last row": (
                    lambda steps, copy, product: steps * (copy + product) // 2
                ),
                "the first product begins after one copy; count from there, and add the waits for "
                "later copies": lambda steps, copy, product: steps * product,
                "a product is shorter than a copy, so it cannot hide all of it: in every second "
                "step the tensor core waits": lambda steps, copy, product: copy + steps * product,
                "copies 0 and 1 both start at 0: not each step waits for a whole copy": (
                    lambda steps, copy, product: steps * copy + product
                ),
                "this is a copy for every step. Copies 0 and 1 both start at 0, so that there are "
                "fewer waits, and the products take time, too": (
                    lambda steps, copy, product: steps * copy
                ),
                "a copy for every two steps is right, but each of the products takes its time": (
                    lambda steps, copy, product: steps // 2 * copy + product
                ),
                "with two stages something is hidden: while a product runs, the copy for the next "
                "step is under way": (lambda steps, copy, product: steps * (copy + product)),
                "copy 2 needs stage 0, which is free when product 0 has ended, not earlier": (
                    lambda steps, copy, product: steps // 2 * copy + 2 * product
                ),
            },
            why="Every two steps take copy + product: one copy is waited for, two are made.",
        ),
        Question(
            name="three",
            text="Three stages: when does the last product end?",
            truth=_ends(3),
            wrong={
                "three times the stages are not a third of the time: the products cannot overlap "
                "one another, and they alone take longer": (
                    lambda steps, copy, product: steps * (copy + product) // 3
                ),
                "the first copy has nothing to hide behind": (
                    lambda steps, copy, product: steps * product
                ),
                "now two products pass while a copy is under way, and two are longer than a copy": (
                    lambda steps, copy, product: steps * copy + product
                ),
                "copy 3 starts when product 0 has ended, and two more products run meanwhile: it "
                "is there in time": lambda steps, copy, product: steps // 3 * (copy + 3 * product),
                "this is two stages: with three, copy 3 is there before product 3 needs it": (
                    lambda steps, copy, product: steps // 2 * (copy + product) + product
                ),
            },
            why="The first copy, then product after product: all others are hidden.",
        ),
        Question(
            name="first",
            text="Three stages: when does the first product begin?",
            truth=lambda steps, copy, product: _reckoned(3, steps, copy, product)[1],
            wrong={
                "nothing can hide the first copy": lambda steps, copy, product: 0,
                "the first three copies are under way together; the first product needs one": (
                    lambda steps, copy, product: 3 * copy
                ),
                "stages are copied side by side; none of them is quicker for it": (
                    lambda steps, copy, product: copy // 3
                ),
            },
            why="As early as with one stage: after one copy.",
        ),
    ),
    hints=(
        "Where: the table of the exercise. Write your numbers into the first two rows: both copies "
        "start at 0. Then ask for each row: when did the product end that used this stage before?",
        "Rule: a copy starts when its stage is free; a product starts when its copy has ended and "
        "the product before it has ended, whichever is later. The answer is the last row's end.",
        "A worked sibling, three stages, 4 steps, a copy 100, a product 80: copies 0, 1, 2 end at "
        "100, so products end at 180, 260, 340. Copy 3 starts at 180 and ends at 280, before "
        "product 2 ends: product 3 ends at 420.",
    ),
)


# --------------------------------------------------------------------------------------------- K3
STAGES = 3


def _value(node: ast.expr) -> int | None:
    """A compile-time number of a kernel's text; STAGES is known."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name):
        return STAGES if node.id == "STAGES" else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        left, right = _value(node.left), _value(node.right)
        if left is None or right is None:
            return None
        return left + right if isinstance(node.op, ast.Add) else left - right
    return None


def _calls(node: ast.AST, name: str) -> list[ast.Call]:
    found = [n for n in ast.walk(node) if isinstance(n, ast.Call)]
    return [n for n in found if ast.unparse(n.func).split(".")[-1] == name]


def _under_way(f: Facts) -> int | None:
    """How many copies may run beside a product: what the waits of the loop with the product leave,
    and one more where the next copy starts after the wait. None where the text does not say."""
    loops = [n for n in ast.walk(ast.parse(f.text)) if isinstance(n, ast.For)]
    inner = [n for n in loops if _calls(n, "mma_AB") and _calls(n, "wait_group")]
    if not inner:
        return None
    waits, copies = _calls(inner[-1], "wait_group"), _calls(inner[-1], "load_async")
    after = max((c.lineno for c in copies), default=0)
    left = [
        None if value is None else value + (w.lineno < after)
        for w in waits
        for value in [_value(w.args[0]) if w.args else None]
    ]
    return None if None in left else max(n for n in left if n is not None)


def _overlaps(f: Facts) -> bool:
    n = _under_way(f)
    return n is None or n >= STAGES - 1


K3 = KernelItem(
    id="K3",
    topic="wait_group",
    title="Fill in wait_group(n)",
    notebook="05_pipelines",
    minutes=3,
    points=3,
    hints=(
        "Where: the line below commit_group in the second loop. Count the groups: how many were "
        "closed up to here in step k, and which one brings the tiles of step k?",
        "Rule: wait_group(n) returns when at most the newest n groups are still running. Leave as "
        "many running as were started for later steps, and no more. It waits for this warp's own "
        "copies: the barrier tells the other warps.",
        "A worked sibling, two stages: before the loop group 0 is closed, in step 0 group 1. The "
        "tiles of step 0 come with group 0, so one group may stay under way: wait_group(1).",
    ),
    kernels=("matmul",),
    case=_product,
    sizes=((64, 64, 256), (1, 1, 1), (2, 3, 65), (3, 2, 130), (70, 40, 200)),
    hidden=((1, 2, 64), (65, 3, 320), (64, 128, 192)),
    expected=_exact,
    tolerance=_rounding,
    runs=RACES,
    work=(
        Work(
            says="arrivals of warps at barriers",
            metrics=("barriers",),
            ideal=lambda case: 4 * 2 * _steps(case),
            full=1.0,
            zero=3.0,
        ),
    ),
    rules=(
        Rule(
            says="three stages stay three: 48 KB of shared memory, so that copies have room",
            holds=lambda f: f.shared_bytes >= STAGES * 2 * TILE,
        ),
        Rule(
            says="while a step is multiplied, the copies of the two steps after it may be under "
            "way: here wait_group waits for copies that are needed later",
            holds=_overlaps,
        ),
    ),
    wrong=(
        Wrong(
            says="nothing waits for the copies: a tile is read that is still on its way. "
            "block.sync() makes the warps meet, and it knows nothing of copies",
            error="TK508",
            when=lambda f: f.calls["tk.wait_group"] + f.calls["wait_group"] == 0,
        ),
        Wrong(
            says="wait_group(n) does not wait for n groups: it leaves the newest n running, and "
            "here the group that brings this step's tiles is one of those",
            error="TK508",
            when=lambda f: (_under_way(f) or 0) >= STAGES,
        ),
        Wrong(
            says="wait_group waits for the copies of its own warp. The tiles were copied by all "
            "four: after the wait they must meet",
            error="TK508 TK500 TK501",
        ),
        Wrong(
            says="wait_group(0) leaves nothing under way: right, and as slow as with one stage. "
            "The copies for the next two steps need not be there yet",
            costs=True,
            when=lambda f: _under_way(f) == 0,
        ),
        Wrong(
            says="this waits for a copy that is needed a step later: count again how many groups "
            "are newer than the one that is needed now",
            costs=True,
            when=lambda f: not _overlaps(f),
        ),
        Wrong(
            says="more barriers than two a step only make warps wait",
            costs=True,
            when=lambda f: f.total["barriers"] > 0 and f.calls["block.sync"] > 2,
        ),
    ),
)


# --------------------------------------------------------------------------------------------- F3
def _announced(f: Facts) -> int:
    return f.calls["tma.expect"] + f.calls["tma.expect_bytes"]


F3 = KernelItem(
    id="F3",
    topic="wrong_bytes",
    title="A semaphore that expects the wrong number of bytes",
    notebook="05_pipelines",
    minutes=3,
    points=3,
    optional=True,
    hints=(
        "Where: the message says what a semaphore waits for, how many bytes it expects and how "
        "many came. Who announced that number, and in which line?",
        "Rule: what is announced must be the bytes of exactly the loads that complete on the "
        "semaphore in this phase: rows x columns x bytes of a number, for each tile.",
        "A worked sibling: one tile of 16 x 128 numbers of 4 bytes needs 16 * 128 * 4 = 8192 "
        "bytes. tma.expect(full, tile) reckons it from the type.",
    ),
    kernels=("matmul",),
    case=_product,
    sizes=((64, 64, 128), (64, 64, 64), (1, 8, 8), (2, 16, 136), (3, 64, 200)),
    hidden=((65, 8, 64), (64, 72, 72), (7, 128, 192)),
    expected=_exact,
    tolerance=_rounding,
    runs=RACES,
    work=(
        Work(
            says="bytes that TMA brings",
            metrics=("tma_load_bytes",),
            ideal=lambda case: 2 * TILE * _steps(case),
            full=1.0,
            zero=2.0,
        ),
    ),
    rules=(
        Rule(
            says="the copies stay with TMA, and their bytes are announced",
            holds=lambda f: f.total["tma_load_bytes"] > 0,
        ),
    ),
    wrong=(
        Wrong(
            says="one copy less is not harmless: either its bytes are still awaited, or a tile is "
            "multiplied that nobody has filled",
            when=lambda f: f.calls["tma.load_async"] < 2,
            error="TK503 TK507 TK508 TK522",
        ),
        Wrong(
            says="more bytes are announced than the loads of a step bring: everybody waits, for "
            "ever, for bytes that nobody sends",
            error="TK507",
            when=lambda f: _announced(f) > 0 and "while" not in f.text,
        ),
        Wrong(
            says="nobody announces bytes, so that nobody arrives: the phase of full never ends",
            error="TK507",
            when=lambda f: _announced(f) == 0,
        ),
        Wrong(
            says="fewer bytes are announced than come: the phase could end with half of the data "
            "under way. Announce both tiles",
            error="TK522",
        ),
        Wrong(
            says="the consumers no longer wait for the data before they multiply it",
            error="TK508 TK500 TK501 TK503",
        ),
    ),
)


# ------------------------------------------------------------------------------------ in the lesson
@cache
def _ring(expected: int = 2 * TILE, early: bool = False, both: bool = True) -> Kernel:
    """The ring of the lesson with two stages, and what can be wrong with it."""

    @tk.kernel(warps=8)
    def matmul(A: tk.gl_hf, B: tk.gl_hf, C: tk.gl_fl):
        a = tk.shared(tk.st_hf(64, 64), 2)
        b = tk.shared(tk.st_hf(64, 64), 2)
        full = tk.shared(tk.semaphore, 2)
        empty = tk.shared(tk.semaphore, 2)
        if warpid() == 0:
            for s in range(2):
                init_semaphore(full[s], 1)
                init_semaphore(empty[s], 4)
        block.sync()
        steps = A.cols // 64
        if warpgroup.groupid() == 1:
            if warpgroup.warpid() == 0:
                for k in range(steps):
                    s = k % 2
                    wait(empty[s], (k // 2 + 1) % 2)
                    tma.expect_bytes(full[s], expected)
                    tma.load_async(a[s], A, (0, k), full[s])
                    if both:
                        tma.load_async(b[s], B, (k, blockIdx.x), full[s])
        else:
            acc = tk.rt_fl(16, 64)
            warp.zero(acc)
            for k in range(steps):
                s = k % 2
                wait(full[s], k // 2 % 2)
                warpgroup.mma_AB(acc, a[s], b[s])
                if early:
                    arrive(empty[s])
                warpgroup.mma_async_wait()
                if not early:
                    arrive(empty[s])
            warpgroup.store(C, acc, (0, blockIdx.x))

    return matmul


def _fault(kernel: Kernel) -> str:
    """The code of the fault in which a run with six steps ends, "" for none."""
    a, b = np.ones((64, 384), np.float16), np.ones((384, 64), np.float16)
    try:
        kernel.sim[1](a, b, np.zeros((64, 64), np.float32))
    except tk.TkError as e:
        return e.code
    return ""


@cache
def _overlap() -> str:
    """With one stage: does a copy end at another time than right before a product?"""
    end, first = _reckoned(1, 6, 400, 200)
    return "no" if end >= 6 * (400 + 200) and first >= 400 else "yes"


@cache
def _barrier() -> str:
    """Two stages without the second barrier: what the checks say, and what luck gives."""
    if not _fault(_pipelined(2, last_sync=False)):
        return "pass"
    rng = np.random.default_rng(0)
    a = rng.standard_normal((64, 384), dtype=np.float32).astype(np.float16)
    b = rng.standard_normal((384, 64), dtype=np.float32).astype(np.float16)
    c = np.zeros((64, 64), np.float32)
    _pipelined(2, last_sync=False).sim[1](a, b, c, check="off")
    return "depends" if (np.abs(c - _exact(a, b)) <= _rounding(a, b)).all() else "fail"


def _end(kernel: Kernel) -> str:
    code = _fault(kernel)
    return FATE[2] if code == "TK507" else FATE[0] if not code else FATE[1]


PASS = ("pass", "fail", "depends")
FATE = ("right numbers", "a fault or wrong numbers", "all wait for ever")

N5 = Predict(
    id="N5",
    topic="lesson",
    title="Predictions of this lesson",
    notebook="05_pipelines",
    minutes=1,
    points=0,
    questions=(
        Question(
            name="overlap",
            text="With one stage (one pair of tiles in shared memory): can the copies for step 1 "
            "run while step 0 is multiplied?",
            truth=lambda: _overlap(),
            choices=("yes", "no"),
            wrong={
                "where would they be copied to? The only pair of tiles is being read": (
                    lambda: "yes"
                ),
            },
            why="There is no room to copy to.",
        ),
        Question(
            name="barrier",
            text="Two stages, and the second block.sync() of each step is taken out. Does it pass?",
            truth=lambda: _barrier(),
            choices=PASS,
            wrong={
                "one order of the warps that gives the right numbers does not show that all do": (
                    lambda: "pass"
                ),
                "it gives the right numbers in some orders of the warps: this is what makes it "
                "dangerous": lambda: "fail",
            },
            why="In some orders of the warps it passes, in others it does not.",
        ),
        Question(
            name="bytes",
            text="A semaphore is told to expect twice as many bytes as the two loads bring. What "
            "happens?",
            truth=lambda: _end(_ring(expected=4 * TILE)),
            choices=FATE,
            wrong={
                "the phase never ends: nobody can go on to compute anything": lambda: FATE[1],
                "a phase ends when no arrival and no byte is missing, and bytes are missing": (
                    lambda: FATE[0]
                ),
            },
            why="The phase never ends, and all wait.",
        ),
        Question(
            name="skip",
            text="One of the two loads of each step is left out; the semaphore still expects the "
            "bytes of both. What happens?",
            truth=lambda: _end(_ring(both=False)),
            choices=FATE,
            wrong={
                "leaving out a copy is not harmless: its bytes are still awaited": lambda: FATE[0],
                "nobody comes so far as to compute with the tile that is not there: its bytes are "
                "still awaited": lambda: FATE[1],
            },
            why="Its bytes are still awaited.",
        ),
    ),
    hints=(
        "Where: ask of each line what it starts, what it waits for, and for whom it speaks.",
        "Rule: a tile may be filled when its last reader is done; it may be read when its data was "
        "waited for.",
        "A worked sibling: a letter box. It is full when the letter lies in it, not when it was "
        "posted; and empty when the letter was taken out, not when somebody reached for it.",
    ),
)

N5b = Predict(
    id="N5b",
    topic="early",
    title="Empty before the product is done",
    notebook="05_pipelines",
    minutes=1,
    points=0,
    questions=(
        Question(
            name="early",
            text='A consumer says "empty" right after it has started its product, before '
            "mma_async_wait. Does it pass? (Of all orders in which it may happen on a GPU: pass in "
            "all, fail in all, or depends.)",
            truth=lambda: "depends" if _fault(_ring(early=True)) else "pass",
            choices=PASS,
            wrong={
                "the product was started, not done: the next tile may overwrite what it still "
                "reads": lambda: "pass",
                "where the product is quicker than the next tile, nothing happens: this is why "
                "tests pass": lambda: "fail",
            },
            why="If the next tile is quicker than the product, it overwrites what is being read.",
        ),
    ),
    hints=(
        "Where: the line that starts the product, and the line that waits for its end.",
        "Rule: a stage is empty when its last reader is done with it, not when it has begun.",
        "A worked sibling: a letter box is empty when the letter was taken out, not when somebody "
        "reached for it.",
    ),
)

ITEMS = (P5, K3, F3)
LESSON = (N5, N5b)
