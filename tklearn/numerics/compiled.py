"""`tensor_core.product` for one pair of matrices as machine code, where numba is installed.

The arithmetic is that of `tensor_core._by_float32`, and so is what it may be given; only float32
results with 24 significant bits. numba takes a second to import, and a few to compile, which it
keeps on disk.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np


@cache
def compiled() -> Callable[..., Any]:
    """`product` as machine code. Error: ImportError without numba."""
    import numba  # type: ignore[import-not-found]

    return numba.njit(cache=True, error_model="numpy")(product)


def product(a: Any, b: Any, c: Any, ea: Any, eb: Any, block: int, fraction: int) -> Any:
    """c + a @ b. a (M, K), b (K, N), c (M, N) float32; ea, eb: exponents, int16. On one core."""
    m, depth = a.shape
    n = b.shape[1]
    d = np.empty((m, n), np.float32)
    most, low, high = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.int32)
    scale, v = np.empty(n, np.float32), np.empty(n, np.float64)
    scale_bits, v_bits = scale.view(np.int32), v.view(np.int64)
    for i in range(m):
        acc = c[i].copy()
        acc_bits = acc.view(np.int32)
        for first in range(0, depth, block):
            last = min(first + block, depth)
            for j in range(n):
                most[j] = max(np.int32((acc_bits[j] >> 23) & 255) - 127, -100)
            for k in range(first, last - 1, 2):  # two at a time: half the traffic of the results
                e, f = np.int32(ea[i, k]), np.int32(ea[i, k + 1])
                for j in range(n):
                    most[j] = max(most[j], max(e + np.int32(eb[k, j]), f + np.int32(eb[k + 1, j])))
            if (last - first) & 1:
                e = np.int32(ea[i, last - 1])
                for j in range(n):
                    most[j] = max(most[j], e + np.int32(eb[last - 1, j]))
            for j in range(n):
                scale_bits[j] = (fraction + 127 - most[j]) << 23
            for j in range(n):
                low[j] = np.int32(acc[j] * scale[j])
                high[j] = 0
            for k in range(first, last - 1, 2):
                x, y = a[i, k], a[i, k + 1]
                for j in range(n):
                    low[j] += np.int32((x * b[k, j]) * scale[j])
                    high[j] += np.int32((y * b[k + 1, j]) * scale[j])
            if (last - first) & 1:
                x = a[i, last - 1]
                for j in range(n):
                    low[j] += np.int32((x * b[last - 1, j]) * scale[j])
            for j in range(n):
                v[j] = np.float64(low[j]) + np.float64(high[j])
            for j in range(n):
                v_bits[j] &= np.int64(-536870912)  # toward zero to 24 significant bits
            for j in range(n):
                acc[j] = np.float32(v[j]) / scale[j]
        d[i] = acc
    return d
