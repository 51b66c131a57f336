"""Transpose: three ways to lay out one shared tile, and what the 32 banks make of them.

Rows of the array are read and rows of the result are written, so that global memory moves whole
sectors; the turn happens in shared memory, where a warp writes a row of the tile and reads a
column. The three kernels differ only in where element (r, c) of the tile lies.
"""

from functools import cache
from typing import Any

import numpy as np

import tklearn as tk
from tklearn import block, blockIdx, threadIdx
from tklearn.kernels.arrays import cdiv, fit, launch, look, output


@cache
def naive(T: Any = tk.f32) -> tk.Kernel:
    """32 columns: a column of the tile lies in one bank, and its 32 readers take turns."""

    @tk.kernel(threads=(32, 8))
    def transpose_naive(src: tk.gl(T), dst: tk.gl(T)):
        tile = tk.shared_array(tk.f32, 32, 32)
        row = blockIdx.y * 32 + threadIdx.y
        col = blockIdx.x * 32 + threadIdx.x
        for j in range(0, 32, 8):
            if row + j < src.rows and col < src.cols:
                tile[threadIdx.y + j, threadIdx.x] = src[row + j, col]
        block.sync()
        row = blockIdx.x * 32 + threadIdx.y  # in the result the tile's place is mirrored too
        col = blockIdx.y * 32 + threadIdx.x
        for j in range(0, 32, 8):
            if row + j < dst.rows and col < dst.cols:
                dst[row + j, col] = tile[threadIdx.x, threadIdx.y + j]

    return transpose_naive


@cache
def padded(T: Any = tk.f32) -> tk.Kernel:
    """33 columns: each row starts one bank further, so a column meets every bank once."""

    @tk.kernel(threads=(32, 8))
    def transpose_padded(src: tk.gl(T), dst: tk.gl(T)):
        tile = tk.shared_array(tk.f32, 32, 33)
        row = blockIdx.y * 32 + threadIdx.y
        col = blockIdx.x * 32 + threadIdx.x
        for j in range(0, 32, 8):
            if row + j < src.rows and col < src.cols:
                tile[threadIdx.y + j, threadIdx.x] = src[row + j, col]
        block.sync()
        row = blockIdx.x * 32 + threadIdx.y
        col = blockIdx.y * 32 + threadIdx.x
        for j in range(0, 32, 8):
            if row + j < dst.rows and col < dst.cols:
                dst[row + j, col] = tile[threadIdx.x, threadIdx.y + j]

    return transpose_padded


@cache
def swizzled(T: Any = tk.f32) -> tk.Kernel:
    """32 columns, and element (r, c) lies in column c ^ r: no bank twice, no memory lost."""

    @tk.kernel(threads=(32, 8))
    def transpose_swizzled(src: tk.gl(T), dst: tk.gl(T)):
        tile = tk.shared_array(tk.f32, 32, 32)
        row = blockIdx.y * 32 + threadIdx.y
        col = blockIdx.x * 32 + threadIdx.x
        for j in range(0, 32, 8):
            if row + j < src.rows and col < src.cols:
                tile[threadIdx.y + j, threadIdx.x ^ (threadIdx.y + j)] = src[row + j, col]
        block.sync()
        row = blockIdx.x * 32 + threadIdx.y
        col = blockIdx.y * 32 + threadIdx.x
        for j in range(0, 32, 8):
            if row + j < dst.rows and col < dst.cols:
                dst[row + j, col] = tile[threadIdx.x, (threadIdx.y + j) ^ threadIdx.x]

    return transpose_swizzled


VARIANTS = {"naive": naive, "padded": padded, "swizzled": swizzled}


def run(
    x: Any, *, variant: str = "swizzled", out: Any = None, report: bool = False, **options: Any
) -> Any:
    """The transposed matrix of `x` (rows, cols); `variant` is naive, padded or swizzled."""
    a = look(x, "x", 2)
    fit(variant in VARIANTS, f"there is no variant {variant!r}", "one of " + ", ".join(VARIANTS))
    rows, cols = a.shape
    out = output(out, x, (cols, rows))
    kernel = VARIANTS[variant](a.dtype)
    told = launch(kernel, (cdiv(cols, 32), cdiv(rows, 32)), x, out, options=options)
    return (out, told) if report else out


def reference(x: np.ndarray) -> np.ndarray:
    """x with rows and columns exchanged."""
    return np.ascontiguousarray(x.T)
