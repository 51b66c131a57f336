"""NB4, tiles, layouts, tensor cores."""

from __future__ import annotations

import numpy as np

from tklearn.course.item import RACES, Case, Line, Order, Out, Wrong

HEAD = """
@tk.kernel(warps=4)
def product(A: tk.gl_hf, B: tk.gl_hf, C: tk.gl_fl):
    a_s = tk.shared(tk.st_hf(64, 64))
    b_s = tk.shared(tk.st_hf(64, 64))
    a = tk.rt_hf(16, 64)
    b = tk.rt_hf(64, 64, tk.col)
    acc = tk.rt_fl(16, 64)
    warp.zero(acc)
"""


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
    return (np.abs(A).astype(np.float64) @ np.abs(B).astype(np.float64)) * 64 * 2.0**-24 + 1e-12


S1 = Order(
    id="S1",
    topic="product_order",
    title="One step of a product, in order",
    notebook="04_tiles_layouts_tensor_cores",
    minutes=4,
    points=3,
    hints=(
        "Where: begin at the end. What does the last line need, and which line makes it?",
        "Rule: global memory -> shared memory by the whole block; then all warps must have come; "
        "then shared memory -> registers, by `ldmatrix`, as the tensor core wants them; then "
        "multiply; then store.",
        "A worked sibling, a copy through shared memory: block.load(s, x, at), block.sync(), "
        "warp.load(t, s), warp.store(y, t, at).",
    ),
    kernels=("product",),
    head=HEAD,
    lines=(
        Line("a", "    warp.mma_AB(acc, a, b)"),
        Line(
            "b",
            "    block.load(a_s, A, (blockIdx.y, 0))\n    block.load(b_s, B, (0, blockIdx.x))",
        ),
        Line(
            "c",
            "    warp.load(a, A, (blockIdx.y * 4 + warpid(), 0))",
            "it brings A from global memory into registers in pieces of a few bytes a lane, past "
            "the shared tile, and B still needs the other way",
        ),
        Line("d", "    warp.load(a, a_s.subtile(16, 64, (warpid(), 0)))\n    warp.load(b, b_s)"),
        Line("e", "    block.sync()"),
        Line(
            "f",
            "    warp.sync()",
            "it waits for the lanes of one warp, and the tile was written by all four warps",
        ),
        Line("g", "    warp.store(C, acc, (blockIdx.y * 4 + warpid(), blockIdx.x))"),
    ),
    case=_product,
    sizes=((64, 64, 64), (1, 1, 1), (2, 3, 2), (40, 70, 33)),
    hidden=((3, 1, 5), (65, 64, 64), (100, 130, 17)),
    expected=_exact,
    tolerance=_rounding,
    runs=RACES,
    wrong=(
        Wrong(
            says="other warps have written parts of the tile: between block.load and reading the "
            "tile, the whole block must meet",
            error="TK500 TK501",
        ),
        Wrong(
            says="something is read before anything was put there: which line fills it?",
            error="TK503 TK513",
        ),
        Wrong(
            says="C is stored before the product is made: it holds the zeros of warp.zero",
            gives=lambda A, B: 0 * _exact(A, B),
        ),
    ),
)

ITEMS = (S1,)
