"""y = a * x + y on vectors: one thread, one element."""

from typing import Any

import numpy as np

import tklearn as tk
from tklearn import blockDim, blockIdx, threadIdx
from tklearn.kernels.arrays import cdiv, fit, launch, look, output

THREADS = 256


@tk.kernel(threads=THREADS)
def saxpy(n: tk.i32, a: tk.f32, x: tk.gl_fl, y: tk.gl_fl):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < n:  # lanes past the end are masked off
        y[i] = a * x[i] + y[i]


def run(a: float, x: Any, y: Any, *, out: Any = None, report: bool = False, **options: Any) -> Any:
    """a * x + y for float32 vectors of one length; `out=y` works in place."""
    n = look(x, "x", 1, (tk.f32,)).shape[0]
    fit(look(y, "y", 1, (tk.f32,)).shape == (n,), f"x has {n} elements and y {y.shape[0]}")
    out = output(out, y, (n,))
    if out is not y:
        out[...] = y
    told = launch(saxpy, cdiv(n, THREADS), n, a, x, out, options=options)
    return (out, told) if report else out


def reference(a: float, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """a * x + y in float64."""
    return np.float64(np.float32(a)) * x.astype(np.float64) + y.astype(np.float64)
