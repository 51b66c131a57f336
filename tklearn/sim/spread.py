"""Tiles that many blocks of a batch share, kept once.

In a product C = A B all blocks of a tile row read the same tiles of A, and all of a tile column the
same tiles of B. `Spread` keeps each of them once and says which block has which; whoever needs one
array for each block calls `expand`. This file knows arrays and the order of blocks, nothing of
kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np


class Spread:
    """Block i * inner + j has u[i] (axis 0) or u[j] (axis 1)."""

    __slots__ = ("u", "outer", "inner", "axis")

    def __init__(self, u: Any, outer: int, inner: int, axis: int) -> None:
        self.u, self.outer, self.inner, self.axis = u, outer, inner, axis

    def __len__(self) -> int:
        return self.outer * self.inner

    def like(self, u: Any) -> Spread:
        return Spread(u, self.outer, self.inner, self.axis)

    def map(self, f: Callable[[Any], Any]) -> Spread:
        return self.like(f(self.u))

    def lifted(self) -> Any:
        """u with both block axes, one of them 1."""
        return self.u[:, None] if self.axis == 0 else self.u[None]

    def expand(self) -> Any:
        """One array for each block."""
        shape = self.u.shape[1:]
        return np.broadcast_to(self.lifted(), (self.outer, self.inner, *shape)).reshape(-1, *shape)


def matmul(a: Any, b: Any) -> Any:
    """The product of each block's a and b: (blocks or 1, rows, cols)."""
    one, two = type(a) is Spread, type(b) is Spread
    if not (one or two):
        return np.matmul(a, b)
    if one and two and (a.outer, a.inner) != (b.outer, b.inner):
        b, two = b.expand(), False
    s = a if one else b
    r = np.matmul(_lift(a, s), _lift(b, s))
    if r.shape[:2] != (s.outer, s.inner):
        r = np.broadcast_to(r, (s.outer, s.inner, *r.shape[2:]))
    return r.reshape(-1, *r.shape[2:])


def _lift(x: Any, s: Spread) -> Any:
    if type(x) is Spread:
        return x.lifted()
    return x[None] if len(x) == 1 else x.reshape(s.outer, s.inner, *x.shape[1:])


@lru_cache(maxsize=1024)
def _structure(raw: bytes) -> tuple[int, int, int] | None:
    x = np.frombuffer(raw, np.int64)
    n = len(x)
    same = np.flatnonzero(x != x[0])
    run = int(same[0]) if len(same) else n
    if run > 1:
        if n % run or (x.reshape(-1, run) != x[::run, None]).any():
            return None
        return n // run, run, 0
    again = np.flatnonzero(x[1:] == x[0])
    period = int(again[0]) + 1 if len(again) else n
    if period == n or n % period or (x.reshape(-1, period) != x[:period]).any():
        return None
    return n // period, period, 1


def structure(x: Any) -> tuple[int, int, int] | None:
    """(outer, inner, axis) of Spread if the numbers x, one a block, repeat in that way."""
    return _structure((x - x[0]).tobytes())
