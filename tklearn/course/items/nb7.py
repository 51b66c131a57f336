"""NB7, a kernel of your own: the capstone, and which of my kernels is bound by memory."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from tklearn import devices
from tklearn.comparison import DEFAULT
from tklearn.course.item import (
    PLAIN,
    RACES,
    Case,
    KernelItem,
    OneOf,
    Out,
    Predict,
    Question,
    Work,
    Wrong,
)
from tklearn.kernels import attention, gemm, softmax

WINDOW = 64  # a query sees itself and the 63 keys before it
ROW = 256  # the longest row of rmsnorm and softmax_t
ROWS = 16  # rows that a block of them does
PER_BLOCK = 1024  # numbers that a block of swiglu does
SHARED_FAULTS = Wrong(
    says="warps touch the same shared memory and nothing orders them: a block.sync() is missing, "
    "or stands where not all threads come by",
    error="TK500 TK501 TK502 TK506 TK507 TK512",
)
UNFILLED = Wrong(
    says="something is read before anything was put there: which line fills it?",
    error="TK503 TK513",
)
OUTSIDE = Wrong(
    says="a lane goes past the end of the array: compare its index with the size first (tile loads "
    "and stores do that by themselves)",
    error="TK504",
)


def _says(rows: int, cols: int) -> str:
    return f"{rows} row{'s' * (rows > 1)} of {cols}"


def _sectors(*arrays: np.ndarray) -> float:
    """The least sectors that hold these rows."""
    return sum(len(a) * -(-a.shape[-1] * a.itemsize // 32) for a in arrays)


def _read_once(says: str, ideal: Any, full: float = 1.25, zero: float = 2.2) -> Work:
    return Work(
        says=says,
        metrics=("global_ld_sectors", "global_st_sectors"),
        ideal=ideal,
        full=full,
        zero=zero,
    )


def _item(name: str, title: str, **rest: Any) -> KernelItem:
    fixed: dict[str, Any] = {"id": "C1", "topic": "capstone", "notebook": "07_your_own_kernel"}
    return KernelItem(**fixed, title=title, minutes=10, points=10, kernels=(name,), **rest)


# ------------------------------------------------------------------------------------- RMSNorm
def _rms(x: np.ndarray, w: np.ndarray, eps: float, count: int = 0) -> np.ndarray:
    x = x.astype(np.float64)
    mean = (x * x).sum(1, keepdims=True) / (count or x.shape[1])
    return x / np.sqrt(mean + eps) * w


def _rms_case(rng: np.random.Generator, size: tuple[int, int]) -> Case:
    rows, cols = size
    x = rng.standard_normal(size, dtype=np.float32) * rng.choice([0.02, 1, 30], (rows, 1))
    x = (x + 0.5).astype(np.float32)
    args = {"x": x, "w": rng.uniform(0.5, 2, cols).astype(np.float32), "y": Out(size), "eps": 0.1}
    return Case(says=_says(rows, cols), grid=-(-rows // ROWS), args=args)


RMSNORM = _item(
    "rmsnorm",
    "RMSNorm",
    hints=(
        "Where: begin with the softmax of the first notebook, with one warp a block: `t = "
        "tk.rt_fl(16, 256)`, `warp.load(t, x, (blockIdx.x, 0))`. Past the last column it is 0.",
        "Rule: squares, `tk.row_sum`, divided by the number of columns that there are "
        "(`x.cols`, not 256), plus eps, `tk.rsqrt`; the tile times that, times w (`weights = "
        "tk.row_vec(256)`, `warp.load(weights, w, (0,))`).",
        "A worked sibling, each row divided by its length: `t *= tk.rsqrt(tk.row_sum(t * t))`. A "
        "tile times a vector of one number a row, or one number a column, does what you expect.",
    ),
    case=_rms_case,
    sizes=((1, 1), (2, 3), (17, 100), (32, 256)),
    hidden=((1, 2), (3, 255), (20, 33), (50, 256)),
    expected=_rms,
    tolerance=lambda x, w, eps: 1e-6 + np.abs(_rms(x, w, eps)) * 1e-5,
    runs=RACES,
    work=(
        _read_once(
            "sectors read and written (x and y once, w once a block; a row fits into registers)",
            lambda c: _sectors(c.args["x"]) * 2 + c.grid * _sectors(c.args["w"][None]),
            full=2.0,
            zero=3.0,
        ),
    ),
    wrong=(
        Wrong(
            says="the sum of squares is divided by the width of the tile, where the row has fewer "
            "columns: use x.cols",
            gives=lambda x, w, eps: _rms(x, w, eps, ROW),
        ),
        Wrong(
            says="the sum of squares is not divided by the number of columns: it is the mean that "
            "counts",
            gives=lambda x, w, eps: _rms(x, w, eps, 1),
        ),
        Wrong(says="the weights w are missing", gives=lambda x, w, eps: _rms(x, w * 0 + 1, eps)),
        Wrong(says="eps is missing under the root", gives=lambda x, w, eps: _rms(x, w, 0.0)),
        Wrong(
            says="eps is added after the root; it belongs under it",
            gives=lambda x, w, eps: (
                x / (np.sqrt((x.astype(float) ** 2).mean(1)) + eps)[:, None] * w
            ),
        ),
        Wrong(
            says="the mean was taken off first: that is LayerNorm. RMSNorm leaves the mean alone",
            gives=lambda x, w, eps: _rms(x - x.astype(float).mean(1, keepdims=True), w, eps),
        ),
        SHARED_FAULTS,
        UNFILLED,
        OUTSIDE,
    ),
)


# -------------------------------------------------------------------------------------- SwiGLU
def _silu(a: np.ndarray) -> np.ndarray:
    a = a.astype(np.float64)
    return a / (1 + np.exp(-a))


def _swiglu_case(rng: np.random.Generator, n: int) -> Case:
    a, b = (rng.standard_normal(n, dtype=np.float32) * 4 for _ in range(2))
    a[:: max(n // 3, 1)] *= 30  # exp of some of these is more than f32 can hold
    says = f"{n} number{'s' * (n > 1)}"
    grid = -(-n // PER_BLOCK)
    return Case(says=says, grid=grid, args={"a": a, "b": b, "y": Out((n,))})


SWIGLU = _item(
    "swiglu",
    "SwiGLU",
    hints=(
        "Where: begin with `copy_lanes` of notebook 01: neighbouring lanes touch neighbouring "
        "numbers. A block does 1024 numbers and has at most 1024 threads; an index past the end "
        "is left out. A 1-d array is one row: its length is a.cols, and a.rows is 1.",
        "Rule: sigmoid(a) is 1 / (1 + exp(-a)), written with tk.exp; y is a * sigmoid(a) * b. For "
        "a = -100 exp(-a) is infinite and a / infinity is 0, as it should be.",
        "A worked sibling, with 256 threads: `for j in range(4):`, `i = blockIdx.x * 1024 + j * "
        "256 + threadIdx.x`, `if i < y.cols:`, `y[i] = tk.exp(x[i])`.",
    ),
    case=_swiglu_case,
    sizes=(1, 3, 1000, 2500),
    hidden=(2, 33, 1024, 4097),
    expected=lambda a, b: _silu(a) * b,
    tolerance=lambda a, b: 1e-6 + np.abs(_silu(a) * b) * 1e-5,
    runs=PLAIN,
    work=(
        _read_once(
            "sectors read and written (a, b and y once: neighbouring lanes, neighbouring numbers)",
            lambda c: 3 * _sectors(c.args["a"][None]),
            full=1.4,
        ),
    ),
    wrong=(
        Wrong(
            says="a 1-d array is one row: its length is a.cols, and a.rows is 1",
            when=lambda f: ".rows" in f.text,
        ),
        Wrong(
            says="this is sigmoid(a) * b: SiLU multiplies by a once more",
            gives=lambda a, b: 1 / (1 + np.exp(-a.astype(np.float64))) * b,
        ),
        Wrong(
            says="a and b have changed places: the SiLU is of a",
            gives=lambda a, b: _silu(b) * a,
        ),
        Wrong(
            says="the sign in the exponent: sigmoid(a) is 1 / (1 + exp(-a))",
            gives=lambda a, b: a.astype(np.float64) / (1 + np.exp(a.astype(np.float64))) * b,
        ),
        Wrong(
            says="b is missing: SwiGLU is the product of SiLU(a) and b",
            gives=lambda a, b: _silu(a),
        ),
        Wrong(
            says="written as exp(a) / (1 + exp(a)) the sigmoid of a large a is infinity over "
            "infinity: write 1 / (1 + exp(-a))",
            gives=lambda a, b: np.where(a > 88.73, np.nan, _silu(a) * b),
        ),
        Wrong(
            says="several blocks write the same numbers: block n does numbers n * 1024 to "
            "n * 1024 + 1023",
            error="TK502",
        ),
        OUTSIDE,
        SHARED_FAULTS,
        UNFILLED,
    ),
)


# --------------------------------------------------------------------- softmax with temperature
def _softmax(x: np.ndarray, T: float, past: int = 0) -> np.ndarray:
    """past: so many zeros behind each row count, too."""
    z = np.concatenate([x, np.zeros((len(x), past))], 1) / T
    e = np.exp(z - z.max(1, keepdims=True))
    return (e / e.sum(1, keepdims=True))[:, : x.shape[1]]


def _softmax_case(rng: np.random.Generator, size: tuple[int, int]) -> Case:
    x = rng.standard_normal(size, dtype=np.float32) * 8
    x[::2] -= 60  # a row far below 0: what was padded with zeros would win
    x[2::3] *= 40  # exp of these overflows
    args = {"x": x, "y": Out(size), "T": 2.5}
    return Case(says=_says(*size), grid=-(-size[0] // ROWS), args=args)


def _padded(x: np.ndarray, T: float) -> np.ndarray:
    return _softmax(x, T, ROW - x.shape[1])


SOFTMAX = _item(
    "softmax_t",
    "Softmax with a temperature, of any number of columns",
    hints=(
        "Where: begin with the softmax of the first notebook, with one warp a block: `t = "
        "tk.rt_fl(16, 256)`, `warp.load(t, x, (blockIdx.x, 0))`. Past the last column it is 0.",
        "Rule: divide by T, take off the largest of the row, exp, divide by the sum of the row. "
        "Columns past the end must not count: `warp.right_fill(t, n, -1e30)` hides column n and "
        "those after it.",
        "A worked sibling, the mean of the positive columns before n: `warp.right_fill(t, n, "
        "0.0)`, `t = tk.relu(t)`, `t /= tk.row_sum(t)`: first hide, then compute.",
    ),
    case=_softmax_case,
    sizes=((1, 1), (2, 3), (17, 100), (32, 256)),
    hidden=((1, 2), (3, 255), (20, 33), (50, 256)),
    expected=_softmax,
    tolerance=lambda x, T: 2e-6 + np.abs(x).max() / T * 2.0**-22,
    runs=RACES,
    work=(
        _read_once(
            "sectors read and written (x and y once: a row fits into registers)",
            lambda c: 2 * _sectors(c.args["x"]),
            full=1.4,
        ),
    ),
    wrong=(
        Wrong(
            says="columns past the end count: they read as zeros, and exp makes weights of them. "
            "Hide them before the maximum is taken",
            gives=_padded,
        ),
        Wrong(
            says="columns past the end count in the sum: hide them before exp",
            gives=lambda x, T: _past_the_end_in_the_sum(x, T),
        ),
        Wrong(
            says="the temperature has no effect: this is the plain softmax",
            gives=lambda x, T: _softmax(x, 1.0),
        ),
        Wrong(
            says="the scores were multiplied by T: a high temperature must make the rows flatter",
            gives=lambda x, T: _softmax(x, 1 / T),
        ),
        Wrong(
            says="the result was divided by T; the scores must be, before exp",
            gives=lambda x, T: _softmax(x, 1.0) / T,
        ),
        SHARED_FAULTS,
        UNFILLED,
        OUTSIDE,
        Wrong(
            says="exp of a large score overflows, and of a row of very small ones nothing is left: "
            "take the row's largest off first",
            when=lambda f: "max(" not in f.text,
        ),
    ),
)


def _past_the_end_in_the_sum(x: np.ndarray, T: float) -> np.ndarray:
    z = x.astype(np.float64) / T
    top = z.max(1, keepdims=True)
    e = np.exp(z - top)
    with np.errstate(over="ignore"):
        return e / (e.sum(1, keepdims=True) + (ROW - x.shape[1]) * np.exp(-top))


# ------------------------------------------------------------------------ scores in a window
def _scores(Q: np.ndarray, K: np.ndarray, scale: float) -> np.ndarray:
    return Q.astype(np.float64) @ K.astype(np.float64).T * scale


def _band(Q: np.ndarray, K: np.ndarray, scale: float, before: int = WINDOW - 1, after: int = 0,
          fill: float = -np.inf) -> np.ndarray:  # fmt: skip
    s = _scores(Q, K, scale)
    i, j = np.indices(s.shape)
    return np.where((j >= i - before) & (j <= i + after), s, fill)


def _same_in_each_tile(Q: np.ndarray, K: np.ndarray, scale: float) -> np.ndarray:
    s = _scores(Q, K, scale)
    i, j = np.indices(s.shape)
    return np.where(j % 64 <= i % 64, s, -np.inf)


def _window_case(rng: np.random.Generator, n: int) -> Case:
    q, k = (rng.standard_normal((n, 64), dtype=np.float32).astype(np.float16) for _ in range(2))
    grid = (-(-n // 64), -(-n // 64))
    args = {"Q": q, "K": k, "S": Out((n, n)), "scale": 0.125}
    return Case(says=f"{n} word{'s' * (n > 1)}", grid=grid, args=args)


def _products(case: Case) -> float:
    """Instructions for the tiles of 64 x 64 that the window meets: 128 each."""
    blocks = -(-len(case.args["Q"]) // 64)
    return 128.0 * (2 * blocks - 1)


WINDOWED = _item(
    "window_scores",
    "Scores in a sliding window",
    hints=(
        "Where: begin with the first product of FlashAttention: `warp.mma_ABt(s, q, k)` for a tile "
        "of 64 keys. Block (blockIdx.x, blockIdx.y) has keys 64 * blockIdx.x and on, queries "
        "64 * blockIdx.y and on.",
        "Rule: a key may be at most the query's own number, and at least 63 less. `warp.tril(s, d, "
        "-inf)` keeps col <= row + d, `warp.triu(s, d, -inf)` keeps col >= row + d. Only tiles "
        "with blockIdx.x equal to blockIdx.y or one less meet the window; the others are filled.",
        "A worked sibling, for tiles of 16 x 16, one warp a block and a window of 16: d = 16 * "
        "(blockIdx.y - blockIdx.x), `warp.tril(s, d, NEG)`, `warp.triu(s, d - 15, NEG)`, with "
        '`NEG = float("-inf")` above the kernel.',
    ),
    case=_window_case,
    sizes=(200, 1, 3, 100),
    hidden=(2, 64, 65, 190),
    expected=_band,
    tolerance=lambda Q, K, scale: np.abs(_scores(np.abs(Q), np.abs(K), scale)) * 2.0**-18 + 1e-7,
    runs=RACES,
    work=(
        Work(
            says="instructions of the tensor cores (tiles outside the window need none)",
            metrics=("tensor_instructions",),
            ideal=_products,
            full=1.1,
            zero=1.5,
        ),
    ),
    wrong=(
        Wrong(
            says="the window is one key too long: a query sees itself and the 63 keys before it",
            gives=lambda Q, K, scale: _band(Q, K, scale, WINDOW),
        ),
        Wrong(
            says="the window is one key too short: a query sees itself and 63 keys before it",
            gives=lambda Q, K, scale: _band(Q, K, scale, WINDOW - 2),
        ),
        Wrong(
            says="these are all scores: nothing is hidden yet",
            gives=_scores,
        ),
        Wrong(
            says="keys before the window are not hidden: this is plain causal attention",
            gives=lambda Q, K, scale: _band(Q, K, scale, len(K)),
        ),
        Wrong(
            says="keys after the query are not hidden: nobody looks ahead",
            gives=lambda Q, K, scale: _band(Q, K, scale, WINDOW - 1, len(K)),
        ),
        Wrong(
            says="hidden scores must be minus infinity: 0 is a score like any other",
            gives=lambda Q, K, scale: _band(Q, K, scale, fill=0.0),
        ),
        Wrong(
            says="the window does not go through every tile in the same way: it is counted over "
            "the whole matrix, so that the diagonal depends on blockIdx",
            gives=_same_in_each_tile,
        ),
        Wrong(
            says="the scale is missing",
            gives=lambda Q, K, scale: _band(Q, K, 1.0),
        ),
        SHARED_FAULTS,
        UNFILLED,
        OUTSIDE,
    ),
)

EVERYONE = (SWIGLU, RMSNORM, SOFTMAX, WINDOWED)


def _each(label: str, first: str) -> str:
    """The hints that begin with a label, of all four."""
    hints = (next(h for h in c.hints if h.startswith(label)) for c in EVERYONE)
    named = (f"  {c.kernels[0]}: {h.removeprefix(label)}" for c, h in zip(EVERYONE, hints))
    return "\n".join([first, *named])


C1 = OneOf(
    id="C1",
    topic="capstone",
    title="Your own kernel",
    notebook="07_your_own_kernel",
    minutes=10,
    points=10,
    hints=(
        _each("Where: ", "Where: choose the one whose sibling you know best."),
        _each("Rule: ", "Rule:"),
        _each("A worked sibling, ", "A worked sibling for each:"),
    ),
    choices=EVERYONE,
)  # fmt: skip

ITEMS = (C1,)


# ------------------------------------------------------------------------------ in the lesson
def _bound(flops: float, nbytes: float) -> str:
    """Which takes longer on the GPU of the recordings: the bytes or the tensor cores' work."""
    dev = devices.device(DEFAULT)
    memory, arithmetic = nbytes / dev.dram_bytes_per_s, flops / dev.tensor_flops
    return "memory" if memory >= arithmetic else "tensor cores"


@cache
def _of(kernel: str) -> str:
    """What bounds a kernel of the gallery, from the operations that a run counts."""
    if kernel == "attend":
        q = np.zeros((1, 1, 1024, 64), np.float16)
        _, report = attention.run(q, q, q, report=True, check="off")
        nbytes = 4 * q.nbytes
    elif kernel == "small":
        a = np.zeros((128, 128), np.float16)
        _, report = gemm.run(a, a, report=True, check="off")
        nbytes = 3 * a.nbytes
    else:
        x = np.zeros((64, 256), np.float32)
        _, report = softmax.run(x, report=True, check="off")
        nbytes = 2 * x.nbytes
    return _bound(report.total["tensor_flops"], nbytes)


RIDGE = devices.device(DEFAULT).tensor_flops / devices.device(DEFAULT).dram_bytes_per_s
WHICH = ("memory", "tensor cores")
EVERY = {
    "a product does much arithmetic, but the smaller it is, the fewer operations there are for "
    "each byte: compare 128 with the n in the last line that the cell above prints": (
        lambda: "tensor cores"
    ),
}
N7 = Predict(
    id="N7",
    topic="bounds",
    title="Which of mine is bound by memory?",
    notebook="07_your_own_kernel",
    minutes=2,
    points=0,
    intro="What takes longer on an H200, if everything else is hidden: bringing the arrays from "
    "memory and back once, or the operations of the tensor cores?",
    questions=(
        Question(
            name="softmax",
            text="a softmax of 2048 rows of 256 numbers",
            truth=lambda: _of("softmax"),
            choices=WHICH,
            wrong={"exp is arithmetic, but not of the tensor cores": lambda: "tensor cores"},
            why="It has no tensor-core work at all: memory is all there is.",
        ),
        Question(
            name="small",
            text="the product of two matrices of 128 x 128 numbers in f16",
            truth=lambda: _of("small"),
            choices=WHICH,
            wrong=EVERY,
            why="128 is below the n that the notebook prints: each byte is used too seldom.",
        ),
        Question(
            name="attend",
            text="attention over 1024 words, one head",
            truth=lambda: _of("attend"),
            choices=WHICH,
            wrong={
                "it was, when the table of scores went through memory; now each byte that comes is "
                "used for hundreds of operations": lambda: "memory"
            },
            why="The table of scores never leaves the registers: few bytes, much arithmetic.",
        ),
    ),
    hints=(
        "Where: count the operations, count the bytes of the arrays, and divide.",
        f"Rule: the {DEFAULT} does {RIDGE:.0f} tensor-core operations in the time in which one "
        "byte comes. Fewer for each byte: memory. More: the tensor cores.",
        "A worked sibling: a product of n x n matrices in f16 has 2 n^3 operations and 6 n^2 "
        "bytes: n / 3 a byte. For n = 3000 that is 1000: the tensor cores.",
    ),
)

LESSON = (N7,)
