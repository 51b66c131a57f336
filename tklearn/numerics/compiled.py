"""`tensor_core.product` for one pair of matrices as machine code, where numba is installed.

The arithmetic is that of `tensor_core._float32_work`, and so is what it may be given; only float32
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
    import numba

    return numba.njit(cache=True, error_model="numpy")(product)


def product(a: Any, b: Any, c: Any, ea: Any, eb: Any, block: int, fraction: int) -> Any:
    """c + a @ b, on one core. a (M, K), b (K, N), c (M, N) float32; ea, eb: exponents, int16.

    K and block are multiples of 4. Four k at a time: results stay in registers meanwhile, and a
    loop over j is what the compiler turns into vector instructions.
    """
    m, depth = a.shape
    n = b.shape[1]
    d = np.empty((m, n), np.float32)
    most, sums = np.empty(n, np.int16), np.empty(n, np.int32)
    scale, v = np.empty(n, np.float32), np.empty(n, np.float64)
    scale_bits, v_bits = scale.view(np.int32), v.view(np.int64)
    for i in range(m):
        acc = c[i].copy()
        acc_bits = acc.view(np.int32)
        for first in range(0, depth, block):
            last = min(first + block, depth)
            for j in range(n):
                most[j] = max(((acc_bits[j] >> 23) & 255) - 127, -100)
            for k in range(first, last, 4):
                e0, e1, e2, e3 = ea[i, k], ea[i, k + 1], ea[i, k + 2], ea[i, k + 3]
                f0, f1, f2, f3 = eb[k], eb[k + 1], eb[k + 2], eb[k + 3]
                for j in range(n):
                    x, y = np.int16(e0 + f0[j]), np.int16(e1 + f1[j])
                    z, w = np.int16(e2 + f2[j]), np.int16(e3 + f3[j])
                    most[j] = max(most[j], max(max(x, y), max(z, w)))
            for j in range(n):
                scale_bits[j] = (fraction + 127 - np.int32(most[j])) << 23
            for j in range(n):
                sums[j] = 0
            for k in range(first, last, 4):
                a0, a1, a2, a3 = a[i, k], a[i, k + 1], a[i, k + 2], a[i, k + 3]
                b0, b1, b2, b3 = b[k], b[k + 1], b[k + 2], b[k + 3]
                for j in range(n):
                    s = scale[j]
                    sums[j] += (
                        np.int32((a0 * b0[j]) * s)
                        + np.int32((a1 * b1[j]) * s)
                        + np.int32((a2 * b2[j]) * s)
                        + np.int32((a3 * b3[j]) * s)
                    )
            for j in range(n):
                v[j] = np.float64(sums[j]) + np.float64(np.int32(acc[j] * scale[j]))
            for j in range(n):
                v_bits[j] &= np.int64(-536870912)  # toward zero to 24 significant bits
            for j in range(n):
                acc[j] = np.float32(v[j]) / scale[j]
        d[i] = acc
    return d
