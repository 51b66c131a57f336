"""mma="exact": products and maps with the GPU's bits.

Knows the order in which the header library (mma.cuh) gives the inner dimension of tiles to
instructions, because it decides which products a tensor core adds at once. The arithmetic itself is
numerics.tensor_core and numerics.functions.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from tklearn import numerics
from tklearn.sim.spread import Spread

INPUTS = {"f32": "tf32", "bf16": "bf16", "f16": "fp16", "e4m3": "e4m3", "e5m2": "e5m2"}
"""A tile's dtype -> the format in which the tensor core takes it."""


@lru_cache(maxsize=64)
def tile_order(dtype: str, depth: int) -> Any:
    """Column of a tile for each k that the instructions see in turn; None if they are the same.

    tf32: an instruction's k = t and t + 4 are columns 2t and 2t + 1 of 8. fp8: its k = 4t + i and
    16 + 4t + i are columns (2t, 2t + 1, 2t + 8, 2t + 9)[i] of the first and of the second 16.
    """
    t = np.arange(4)
    if dtype == "tf32":
        step = np.concatenate([2 * t, 2 * t + 1])
    elif dtype in ("e4m3", "e5m2"):
        step = (2 * t[:, None] + np.array([0, 1, 8, 9])).ravel()
    else:
        return None
    return (np.arange(0, depth, len(step))[:, None] + step).ravel()


def tile_product(w: Any, s: Any, a: Any, b: Any, c: Any, dtype: str, out: str) -> Any:
    """c + a @ b of tiles as `warp.mma_*` computes it: (blocks or 1, rows, columns)."""
    kind = INPUTS[dtype]
    a, b = (x.expand() if type(x) is Spread else x for x in (a, b))
    order = tile_order(kind, a.shape[2])
    if order is not None:
        a, b = a[:, :, order], b[:, order]
    return registers_product(w, s, a, b, c, dtype, out)


def registers_product(w: Any, s: Any, a: Any, b: Any, c: Any, dtype: str, out: str) -> Any:
    """c + a @ b with k in the instructions' order."""
    kind, arch = INPUTS[dtype], w.launch.arch
    if kind not in numerics.CORES[arch]:
        raise w.fault(
            "TK411",
            f"the tensor core of arch={arch!r} takes no {dtype} tiles",
            s,
            hint="it takes: "
            + ", ".join(n for n, k in INPUTS.items() if k in numerics.CORES[arch])
            + '; choose another arch=, or mma="fast"',
        )
    return numerics.mma_sync(a, b, c, dtype=kind, arch=arch, out=out)
