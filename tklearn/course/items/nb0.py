"""NB0, one kernel, two machines: the first change."""

from __future__ import annotations

import numpy as np

from tklearn.course.item import Case, KernelItem, Out, Wrong


def _softmax(x: np.ndarray, t: float = 1.0) -> np.ndarray:
    z = x.astype(np.float64) / t
    e = np.exp(z - z.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def _case(rng: np.random.Generator, rows: int) -> Case:
    scale = 60 if rows in (16, 3) else 4  # exp overflows unless the largest score goes first
    x = rng.standard_normal((rows, 128), dtype=np.float32) * scale
    args = {"x": x, "y": Out((rows, 128)), "T": 2.5}
    return Case(says=f"{rows} rows", grid=-(-rows // 64), args=args)


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

ITEMS = (temperature,)
