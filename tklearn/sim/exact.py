"""mma="exact": products and maps with the GPU's bits.

Knows the order in which the header library (mma.cuh) gives the inner dimension of tiles to
instructions, because it decides which products a tensor core adds at once. The arithmetic itself is
numerics.tensor_core and numerics.functions.

What it guarantees: products with the bits of mma.sync, and maps with those of the instructions, but
for log, log2, tanh, sin and cos, whose differences numerics.BOUNDS states. Softmax and attention
tiles equal an H200's (tests/test_exact_tiles.py). Atomic sums of floats depend on their order,
which a GPU does not fix.
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


def check(w: Any, s: Any, dtype: str) -> None:
    """Error TK411 if the launch's tensor core does not take `dtype`."""
    known = numerics.CORES[w.launch.arch]
    if INPUTS[dtype] not in known:
        raise w.fault(
            "TK411",
            f"the tensor core of arch={w.launch.arch!r} takes no {dtype} tiles",
            s,
            hint="it takes: "
            + ", ".join(n for n, k in INPUTS.items() if k in known)
            + '; choose another arch=, or mma="fast"',
        )


def tile_product(a: Any, b: Any, c: Any, dtype: str, out: str, arch: str) -> Any:
    """c + a @ b of tiles as `warp.mma_*` computes it: (blocks or 1, rows, columns).

    Tiles that blocks share (Spread) form one large matrix product, which is much faster.
    """
    kind = INPUTS[dtype]
    order = tile_order(kind, (a.u if type(a) is Spread else a).shape[2])
    if order is not None:
        a, b = _map(a, lambda u: u[:, :, order]), _map(b, lambda u: u[:, order])
    if type(a) is type(b) is Spread and a.axis != b.axis and len(a) == len(b):
        return _shared(a, b, c, kind, out, arch)
    a, b = (x.expand() if type(x) is Spread else x for x in (a, b))
    return numerics.mma_sync(a, b, c, dtype=kind, arch=arch, out=out)


def _map(x: Any, f: Any) -> Any:
    return x.map(f) if type(x) is Spread else f(x)


def _shared(a: Spread, b: Spread, c: Any, kind: str, out: str, arch: str) -> Any:
    (p, m, depth), (q, _, n) = a.u.shape, b.u.shape
    first, back = ((0, 2, 1, 3), (0, 2, 1, 3)) if a.axis == 0 else ((1, 2, 0, 3), (2, 0, 1, 3))
    cells = np.broadcast_to(c, (len(a), m, n)).reshape(a.outer, a.inner, m, n)
    d = numerics.mma_sync(
        a.u.reshape(p * m, depth),
        b.u.transpose(1, 0, 2).reshape(depth, q * n),
        cells.transpose(first).reshape(p * m, q * n),
        dtype=kind,
        arch=arch,
        out=out,
    )
    return np.ascontiguousarray(d.reshape(p, m, q, n).transpose(back)).reshape(-1, m, n)


def registers_product(w: Any, s: Any, a: Any, b: Any, c: Any, dtype: str) -> Any:
    """c + a @ b of one instruction, k in its order."""
    check(w, s, dtype)
    return numerics.mma_sync(a, b, c, dtype=INPUTS[dtype], arch=w.launch.arch)
