"""Softmax of each row, computed in f32 from f32, f16 or bf16.

Rows of up to 4096 stay in the registers of one warp: memory is read once and written once. Longer
rows are read three times by a whole block.
"""

from functools import cache
from typing import Any

import numpy as np

import tklearn as tk
from tklearn import blockIdx, threadIdx, warp, warpid
from tklearn.kernels.arrays import cdiv, launch, look, output
from tklearn.kernels.blockwise import THREADS, WARPS, block_max, block_sum

LONGEST = 4096  # elements of a row that a warp keeps: 128 registers a lane
NEG_INF = float("-inf")


@cache
def short(T: Any = tk.f32, ROWS: int = 2) -> tk.Kernel:
    """A warp takes a row of D elements, a block ROWS rows."""

    @tk.kernel(warps=ROWS)
    def softmax(x: tk.gl(T), y: tk.gl(T), D: tk.const):
        at = (blockIdx.x * ROWS + warpid(), 0)
        row = tk.rv(tk.f32, D)  # spread over the 32 lanes
        warp.load(row, x, at)
        row = tk.exp(row - tk.max(row))
        row *= 1.0 / tk.sum(row)
        warp.store(y, row, at)  # rounds to T

    return softmax


@cache
def long(T: Any = tk.f32) -> tk.Kernel:
    """A block takes a row of any length: once for the maximum, once for the sum, once to write."""

    @tk.kernel(threads=THREADS)
    def softmax_long(x: tk.gl(T), y: tk.gl(T)):
        parts = tk.shared_array(tk.f32, WARPS)
        row = blockIdx.x
        top = NEG_INF
        for c in range(threadIdx.x, x.cols, THREADS):
            top = max(top, x[row, c])
        top = block_max(top, parts)
        total = 0.0
        for c in range(threadIdx.x, x.cols, THREADS):
            total += tk.exp(x[row, c] - top)
        scale = 1.0 / block_sum(total, parts)
        for c in range(threadIdx.x, x.cols, THREADS):
            y[row, c] = tk.exp(x[row, c] - top) * scale

    return softmax_long


def run(x: Any, *, out: Any = None, report: bool = False, **options: Any) -> Any:
    """Softmax along the last axis of a matrix (rows, cols), in its dtype."""
    a = look(x, "x", 2)
    rows, cols = a.shape
    out = output(out, x, a.shape)
    if cols == 0:
        rows = 0  # nothing to write
    if cols <= LONGEST:
        kernel = short(a.dtype)
        told = launch(kernel, cdiv(rows, 2), x, out, D=max(cols, 1), options=options)
    else:
        told = launch(long(a.dtype), rows, x, out, options=options)
    return (out, told) if report else out


def reference(x: np.ndarray) -> np.ndarray:
    """Softmax along the last axis in float64."""
    x = x.astype(np.float64)
    if x.shape[-1] == 0:
        return x
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)
