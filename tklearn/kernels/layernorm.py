"""Layer normalisation of x + residual, the step between the layers of a transformer.

Sums, mean and variance are f32 whatever the arrays are. The sum x + residual is a result too: the
next layer adds to it.
"""

from functools import cache
from typing import Any

import numpy as np

import tklearn as tk
from tklearn import blockIdx, threadIdx, warp, warpid
from tklearn.kernels.arrays import fit, launch, look, output
from tklearn.kernels.blockwise import THREADS, WARPS, block_sum

LONGEST = 2048  # elements of a row that a warp keeps, twice


@cache
def short(T: Any = tk.f32, ROWS: int = 1) -> tk.Kernel:
    """A warp takes a row of D elements, a block ROWS rows."""

    @tk.kernel(warps=ROWS)
    def layernorm(
        x: tk.gl(T),
        residual: tk.gl(T),
        weight: tk.gl(T),
        bias: tk.gl(T),
        y: tk.gl(T),
        total: tk.gl(T),
        D: tk.const,
        EPS: tk.const = 1e-5,
    ):
        at = (blockIdx.x * ROWS + warpid(), 0)
        v = tk.rv(tk.f32, D)  # one row, spread over the 32 lanes
        r = tk.rv(tk.f32, D)
        w = tk.rv(tk.f32, D)
        b = tk.rv(tk.f32, D)
        warp.load(v, x, at)
        warp.load(r, residual, at)
        v += r
        warp.store(total, v, at)
        v -= tk.sum(v) / D
        v *= tk.rsqrt(tk.sum(v * v) / D + EPS)
        warp.load(w, weight, (0,))
        warp.load(b, bias, (0,))
        warp.store(y, v * w + b, at)

    return layernorm


@cache
def long(T: Any = tk.f32) -> tk.Kernel:
    """A block takes a row of any length: for the mean, for the variance, to write."""

    @tk.kernel(threads=THREADS)
    def layernorm_long(
        x: tk.gl(T),
        residual: tk.gl(T),
        weight: tk.gl(T),
        bias: tk.gl(T),
        y: tk.gl(T),
        total: tk.gl(T),
        EPS: tk.const = 1e-5,
    ):
        parts = tk.shared_array(tk.f32, WARPS)
        row = blockIdx.x
        mean = 0.0
        for c in range(threadIdx.x, x.cols, THREADS):
            mean += x[row, c] + residual[row, c]
        mean = block_sum(mean, parts) / x.cols
        var = 0.0
        for c in range(threadIdx.x, x.cols, THREADS):
            d = x[row, c] + residual[row, c] - mean
            var += d * d
        scale = tk.rsqrt(block_sum(var, parts) / x.cols + EPS)
        for c in range(threadIdx.x, x.cols, THREADS):
            v = x[row, c] + residual[row, c]
            total[row, c] = v
            y[row, c] = (v - mean) * scale * weight[c] + bias[c]

    return layernorm_long


def run(
    x: Any,
    residual: Any,
    weight: Any,
    bias: Any,
    *,
    eps: float = 1e-5,
    out: tuple[Any, Any] | None = None,
    report: bool = False,
    **options: Any,
) -> Any:
    """(normalised, x + residual) of matrices (rows, cols), weight and bias (cols), in x's dtype.

    `out`: a pair of arrays for the two results.
    """
    a = look(x, "x", 2)
    rows, cols = a.shape
    same = (a.dtype,)
    fit(look(residual, "residual", 2, same).shape == a.shape, "x and residual differ in shape")
    for name, v in (("weight", weight), ("bias", bias)):
        fit(look(v, name, 1, same).shape == (cols,), f"'{name}' must have {cols} elements")
    y, total = (output(o, x, a.shape) for o in out or (None, None))
    if cols == 0:
        rows = 0  # nothing to write
    arrays = (x, residual, weight, bias, y, total)
    if cols <= LONGEST:
        grid, kernel, consts = rows, short(a.dtype), {"D": max(cols, 1)}
    else:
        grid, kernel, consts = rows, long(a.dtype), {}
    told = launch(kernel, grid, *arrays, options=options, EPS=float(eps), **consts)
    return ((y, total), told) if report else (y, total)


def reference(
    x: np.ndarray, residual: np.ndarray, weight: np.ndarray, bias: np.ndarray, eps: float = 1e-5
) -> tuple[np.ndarray, np.ndarray]:
    """(normalised, x + residual) in float64."""
    total = x.astype(np.float64) + residual.astype(np.float64)
    if total.shape[-1] == 0:
        return total, total
    mean = total.mean(axis=-1, keepdims=True)
    var = ((total - mean) ** 2).mean(axis=-1, keepdims=True)
    y = (total - mean) / np.sqrt(var + eps) * weight.astype(np.float64) + bias.astype(np.float64)
    return y, total
