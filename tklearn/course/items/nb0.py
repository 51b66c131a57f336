"""NB0, one kernel, two machines: the first change, and C++ that is compiled in the head."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

import tklearn as tk
from tklearn import blockIdx, threadIdx, warp, warpid
from tklearn.course.item import Case, KernelItem, Out, Predict, Question, Wrong


def _softmax(x: np.ndarray, t: float = 1.0) -> np.ndarray:
    z = x.astype(np.float64) / t
    e = np.exp(z - z.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def _case(rng: np.random.Generator, rows: int) -> Case:
    scale = 60 if rows in (16, 3) else 4  # exp overflows unless the largest score goes first
    x = rng.standard_normal((rows, 128), dtype=np.float32) * scale
    args = {"x": x, "y": Out((rows, 128)), "T": 2.5}
    return Case(says=f"{rows} row{'s' * (rows > 1)}", grid=-(-rows // 64), args=args)


temperature = KernelItem(
    id="temperature",
    topic="temperature",
    stem="00_temperature",
    title="Softmax with a temperature",
    notebook="00_one_kernel_two_machines",
    minutes=5,
    points=0,
    hints=(
        "Where: between warp.load, when the tile holds the scores, and tk.exp.",
        "Rule: softmax with temperature T is softmax(x / T). A tile and a number combine element "
        "by element.",
        "A worked sibling: `row *= 0.5` halves every element of the tile `row`.",
    ),
    kernels=("softmax_t",),
    case=_case,
    sizes=(64, 16, 1, 35),
    hidden=(2, 3, 100),
    expected=lambda x, T: _softmax(x, T),
    tolerance=lambda x, T: 2e-6 + np.abs(x).max() / T * 2.0**-23,
    wrong=(
        Wrong(
            says="the temperature has no effect: this is the plain softmax",
            gives=lambda x, T: _softmax(x),
        ),
        Wrong(
            says="the result was divided by T; the scores must be, before exp",
            gives=lambda x, T: _softmax(x) / T,
        ),
        Wrong(
            says="the scores were multiplied by T: a high temperature must make the rows flatter",
            gives=lambda x, T: _softmax(x, 1 / T),
        ),
    ),
)


# ----------------------------------------------------------------------------------------- H1
LETTERS = ("A", "B", "C")


@tk.kernel(threads=128)
def _example(n: tk.i32, a: tk.f32, x: tk.gl_fl, y: tk.gl_fl, z: tk.gl_fl):
    tile = tk.rt_fl(16, 128)
    warp.load(tile, x, (blockIdx.x * 4 + warpid(), 0))
    warp.store(x, tile, (blockIdx.x * 4 + warpid(), 0))
    i = blockIdx.x * 128 + threadIdx.x
    back = (i - n) // 2
    y[i] = a * z[i] + y[i]
    z[i] = y[i] if back < 0 else 0.0


@tk.kernel(warps=1)
def _product(A: tk.gl_hf, B: tk.gl_hf, C: tk.gl_fl):
    a = tk.rt_hf(16, 16)
    b = tk.rt_hf(16, 16, tk.col)
    acc = tk.rt_fl(16, 16)
    warp.zero(acc)
    warp.load(a, A, (0, 0))
    warp.load(b, B, (0, 0))
    warp.mma_AB(acc, a, b)
    warp.store(C, acc, (0, 0))


@lru_cache
def _emitted() -> dict[str, str]:
    """Python line -> the line of C++ that the emitter prints for it."""
    one = np.zeros(1, np.float32)
    listing = _example.show(0, 1.0, np.zeros((16, 128), np.float32), one, one)
    return {r.python.strip(): r.cpp.strip() for r in listing.rows if r.line}


@lru_cache
def _instruction() -> str:
    """What one product of tiles ran on, by the counters of a run: in PTX, or "" for no product."""
    half = np.zeros((16, 16), np.float16)
    total = _product.sim[1](half, half, np.zeros((16, 16), np.float32)).total
    found = {"wgmma.mma_async": total["wgmma_flops"], "mma.sync": total["tensor_instructions"]}
    return next((name for name, count in found.items() if count), "")


@dataclass(frozen=True)
class Head:
    """A line of Python and three readings of it; `wrong` says why the others are not it."""

    name: str
    python: str
    truth: Callable[[], str]
    options: tuple[str, str, str]
    wrong: dict[str, str]
    why: str
    ask: str = "Which line of C++ is it?"

    def letter(self, option: str, order: tuple[int, int, int]) -> str:
        """What the option is called for the learner who sees the options in this order."""
        return LETTERS[order.index(self.options.index(option))]

    def question(self) -> Question:
        key = f"order_{self.name}"
        shown = "\n".join(f"{{{self.name}_{x}}}" for x in LETTERS)
        return Question(
            name=self.name,
            text=f"{{python_{self.name}}}\n{self.ask}\n{shown}",
            truth=lambda **params: self.letter(self.truth(), params[key]),
            choices=LETTERS,
            wrong={
                says: (lambda _option=option, **params: self.letter(_option, params[key]))
                for option, says in self.wrong.items()
            },
            why=self.why,
        )


def _line(python: str) -> Callable[[], str]:
    return lambda: _emitted()[python]


HEADS = (
    Head(
        "a",
        "tile = tk.rt_fl(16, 128)",
        _line("tile = tk.rt_fl(16, 128)"),
        (
            "float tile[16][128];",
            "rt<float, 16, 128> tile;",
            "__shared__ float tile[16][128];",
        ),
        {
            "float tile[16][128];": "this would give every lane a whole 16 x 128 matrix of its "
            "own. A register tile is one matrix, spread over the 32 lanes of a warp: 64 numbers "
            "in each",
            "__shared__ float tile[16][128];": "a register tile lies in registers. Shared memory "
            "is asked for by name: tk.shared, tk.shared_array",
        },
        "The first assignment of a name is its declaration.",
    ),
    Head(
        "b",
        "warp.load(tile, x, (blockIdx.x * 4 + warpid(), 0))",
        _line("warp.load(tile, x, (blockIdx.x * 4 + warpid(), 0))"),
        (
            "warp::load(tile, x, {blockIdx.x * 4 + warpid(), 0});",
            "warp::load(tile, x, {(blockIdx.x * 4 + warpid()) * 16, 0});",
            "warp::load(tile, x, {blockIdx.x * 4 + warpid(), 0}); __syncwarp();",
        ),
        {
            "warp::load(tile, x, {(blockIdx.x * 4 + warpid()) * 16, 0});": "a coordinate counts "
            "tiles, on both machines: the load itself multiplies by the 16 rows of a tile",
            "warp::load(tile, x, {blockIdx.x * 4 + warpid(), 0}); __syncwarp();": "nothing is "
            "inserted: a barrier that you did not write is not there",
        },
        "A dot becomes ::, the tuple becomes braces, and nothing is added.",
    ),
    Head(
        "c",
        "y[i] = a * z[i] + y[i]",
        _line("y[i] = a * z[i] + y[i]"),
        (
            "y[i] = a * z[i] + y[i];",
            "if (i < y.size()) y[i] = fma(a, z[i], y[i]);",
            "y[i] = fma(a, z[i], y[i]);",
        ),
        {
            "y[i] = a * z[i] + y[i];": "a * b + c in one expression is one fused operation, "
            "rounded once, on both machines: C++ alone would leave that to the compiler",
            "if (i < y.size()) y[i] = fma(a, z[i], y[i]);": "no guard is inserted: past the end "
            "the simulator reports a fault, and a GPU writes there",
        },
        "One multiply-add, rounded once, on both machines.",
    ),
    Head(
        "d",
        "back = (i - n) // 2",
        _line("back = (i - n) // 2"),
        (
            "int back = floordiv(i - n, 2);",
            "int back = (i - n) / 2;",
            "float back = (i - n) / 2.0f;",
        ),
        {
            "int back = (i - n) / 2;": "i - n may be negative, and there the two languages differ: "
            "Python's -1 // 2 is -1, C++'s -1 / 2 is 0",
            "float back = (i - n) / 2.0f;": "// of whole numbers is a whole number in Python",
        },
        "// means what it means in Python; a plain / is printed where nothing can be negative.",
    ),
    Head(
        "e",
        "warp.mma_AB(acc, a, b)        # acc += a @ b, tiles of 16 x 16",
        _instruction,
        ("fma.rn.f32", "mma.sync", "wgmma.mma_async"),
        {
            "fma.rn.f32": "one multiply-add of one lane: this is what ordinary arithmetic runs on. "
            "A product of tiles runs on the tensor cores",
            "wgmma.mma_async": "that one is issued by four warps together and only exists from "
            "Hopper on: it is written warpgroup.mma_AB",
        },
        "One warp, one tensor-core instruction for a 16 x 8 piece of the result.",
        ask="Which instruction of the GPU does the work of this line? It is one warp's. (fma: a "
        "multiply-add of one lane; mma: a product of small matrices, by one warp together; wgmma: "
        "the same, by four warps together.)",
    ),
)


def _readings(rng: np.random.Generator) -> dict[str, Any]:
    """The options of each line, in an order of this learner's."""
    out: dict[str, Any] = {}
    for h in HEADS:
        order = tuple(int(i) for i in rng.permutation(3))
        out[f"order_{h.name}"] = order
        out[f"python_{h.name}"] = h.python
        for letter, i in zip(LETTERS, order, strict=True):
            out[f"{h.name}_{letter}"] = f"  {letter}:  {h.options[i]}"
    return out


H1 = Predict(
    id="H1",
    topic="in_your_head",
    title="Compile it in your head",
    notebook="00_one_kernel_two_machines",
    minutes=4,
    points=3,
    params=_readings,
    intro="Five lines of kernels: n and i are whole numbers, a is a float, x, y and z are f32 "
    "arrays. What does each become? Answer with a letter.",
    questions=tuple(h.question() for h in HEADS),
    hints=(
        "Where: softmax.show() in notebook 00, the two columns. Read a line on the left, cover "
        "the right one, and say it.",
        "Rule: a dot becomes ::, a tuple of coordinates becomes braces, the first assignment "
        "becomes a declaration; nothing is inserted, and numbers mean what they mean in Python.",
        "A worked sibling: `half = tk.rt_hf(16, 64)` and `warp.store(y, half, (0, k))` become "
        "`rt<f16, 16, 64> half;` and `warp::store(y, half, {0, k});`",
    ),
)


# ------------------------------------------------------------------------------------ in the lesson
@tk.kernel(warps=4)
def _softmax_f32(x: tk.gl_fl, y: tk.gl_fl):
    at = (blockIdx.x * 4 + warpid(), 0)
    row = tk.rt_fl(16, 128)
    warp.load(row, x, at)
    row = tk.exp(row - tk.row_max(row))
    row /= tk.row_sum(row)
    warp.store(y, row, at)


@tk.kernel(warps=4)
def _softmax_f16(x: tk.gl_hf, y: tk.gl_hf):
    at = (blockIdx.x * 4 + warpid(), 0)
    row = tk.rt_fl(16, 128)
    warp.load(row, x, at)
    row = tk.exp(row - tk.row_max(row))
    row /= tk.row_sum(row)
    warp.store(y, row, at)


@lru_cache
def _softmax_run(dtype: str) -> Any:
    x = np.zeros((64, 128), dtype)
    run = _softmax_f32 if dtype == "float32" else _softmax_f16
    return run.sim[1](x, np.empty_like(x))


TRAFFIC = ("load and store", "exp and sum", "all four")
HALF = ("half as many", "as many", "twice as many")


def _traffic(**_: Any) -> str:
    """Which lines of the softmax moved sectors, by the lines of a run."""
    report = _softmax_run("float32")
    moved = {
        text.strip().split("(")[0]
        for n, text, _ in report.rows(["global_ld_sectors"])
        if any(report.lines.get(n, {}).get(f"global_{s}_sectors") for s in ("ld", "st"))
    }
    return TRAFFIC[0] if moved == {"warp.load", "warp.store"} else TRAFFIC[2]


def _halved(key: str) -> str:
    now, then = (_softmax_run(d).total[key] for d in ("float16", "float32"))
    return HALF[0] if 2 * now == then else HALF[1] if now == then else HALF[2]


N0 = Predict(
    id="N0",
    topic="lesson",
    title="Predictions of the first lesson",
    notebook="00_one_kernel_two_machines",
    minutes=1,
    points=0,
    questions=(
        Question(
            name="traffic",
            text="Which of the lines warp.load, exp, sum and warp.store move data between global "
            "memory and the registers?",
            truth=_traffic,
            choices=TRAFFIC,
            wrong={
                "exp and the sum work on numbers that lie in registers already": lambda: TRAFFIC[2],
                "arithmetic moves nothing: the numbers lie in registers": lambda: TRAFFIC[1],
            },
            why="What lies between one load and one store moves nothing.",
        ),
        Question(
            name="half",
            text="The arrays get numbers of 2 bytes instead of 4. How many sectors of 32 bytes do "
            "the loads ask for then?",
            truth=lambda: _halved("global_ld_sectors"),
            choices=HALF,
            wrong={
                "half the bytes, but each request of a warp now uses only half of each sector that "
                "it touches": lambda: HALF[0],
            },
            why="Each request touches as many sectors as before and uses half of each.",
        ),
    ),
    hints=(
        "Where: the first word of each line of the kernel says what it does.",
        "Rule: only what names a global array, x or y, can move it.",
        "A worked sibling: a copy has two lines that move data, its load and its store.",
    ),
)

ITEMS = (temperature, H1)
LESSON = (N0,)
