"""The sum of a vector, two ways: with one atomic for each block, and in stages without any.

Atomics add the blocks' sums in whatever order the blocks end, so the last bits may differ from run
to run. In stages the order is fixed, and so are the bits: sums of 2048, then sums of 2048 of those.
"""

from functools import cache
from typing import Any

import numpy as np

import tklearn as tk
from tklearn import blockIdx, threadIdx
from tklearn.kernels.arrays import cdiv, fit, launch, look, output
from tklearn.kernels.blockwise import THREADS, WARPS, block_sum

EACH = 8  # elements a thread adds up by itself
SHARE = THREADS * EACH  # of one block


@tk.device
def own_share(x, n: tk.i32):
    """This thread's sum: every 256th element, so that the lanes of a warp read neighbours."""
    total = 0.0
    for j in range(EACH):
        i = blockIdx.x * SHARE + j * THREADS + threadIdx.x
        if i < n:
            total += x[i]
    return total


@cache
def atomic(T: Any = tk.f32) -> tk.Kernel:
    """All blocks add to total[0], which starts at 0."""

    @tk.kernel(threads=THREADS)
    def sum_atomic(n: tk.i32, x: tk.gl(T), total: tk.gl_fl):
        parts = tk.shared_array(tk.f32, WARPS)
        value = block_sum(own_share(x, n), parts)
        if threadIdx.x == 0:
            tk.atomic_add(total[0], value)

    return sum_atomic


@cache
def staged(T: Any = tk.f32) -> tk.Kernel:
    """One stage: each block writes the sum of its share."""

    @tk.kernel(threads=THREADS)
    def sum_staged(n: tk.i32, x: tk.gl(T), sums: tk.gl_fl):
        parts = tk.shared_array(tk.f32, WARPS)
        value = block_sum(own_share(x, n), parts)
        if threadIdx.x == 0:
            sums[blockIdx.x] = value

    return sum_staged


def run(
    x: Any, *, variant: str = "staged", out: Any = None, report: bool = False, **options: Any
) -> Any:
    """The sum of a vector as an array of one float32; `variant` is staged or atomic.

    With report=True: (sum, list of one report for each launch).
    """
    a = look(x, "x", 1)
    fit(variant in ("staged", "atomic"), f"there is no variant {variant!r}", "staged or atomic")
    n = a.shape[0]
    fit(n < (1 << 31) - SHARE, f"{n} elements are too many for 32-bit indices")
    out = output(out, x, (1,), tk.f32)
    reports = []
    if variant == "atomic" or n == 0:
        out[...] = 0
        reports.append(launch(atomic(a.dtype), cdiv(n, SHARE), n, x, out, options=options))
        return (out, reports) if report else out
    kernel = staged(a.dtype)
    while True:
        blocks = cdiv(n, SHARE)
        sums = out if blocks == 1 else output(None, x, (blocks,), tk.f32)
        reports.append(launch(kernel, blocks, n, x, sums, options=options))
        if blocks == 1:
            return (out, reports) if report else out
        n, x, kernel = blocks, sums, staged(tk.f32)


def reference(x: np.ndarray) -> np.ndarray:
    """The sum in float64, as an array of one."""
    return x.astype(np.float64).sum(keepdims=True)
