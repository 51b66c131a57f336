"""The online softmax of attention in float64, in all the ways in which learners write it down.

Knows the steps of one tile and their likely slips, not exercises: nb6.py makes those of them.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

KEYS, D = 64, 64  # keys of a tile, numbers of a query
HIDDEN = -1e30  # the score of a key that does not count
SCALE = 1.4426950408889634 / D**0.5  # exp2(SCALE * q k) is exp(q k / sqrt(D))
Tile = SimpleNamespace


def new(t: Tile) -> None:
    t.new = np.maximum(t.s.max(1), t.top)


def new_of_tile(t: Tile) -> None:
    t.new = t.s.max(1)


def weigh(t: Tile) -> None:
    t.s = np.exp2(t.s - t.new[:, None])


def keep(t: Tile) -> None:
    t.keep = np.exp2(t.top - t.new)


def add(t: Tile) -> None:
    t.total = t.total * t.keep + t.s.sum(1)


def add_unscaled(t: Tile) -> None:
    t.total = t.total + t.s.sum(1)


def rescale(t: Tile) -> None:
    t.o = t.o * t.keep[:, None]


def upside_down(t: Tile) -> None:
    t.o = np.where(t.keep[:, None] > 0, t.o / t.keep[:, None], 0.0)


def product(t: Tile) -> None:
    t.o = t.o + t.s.astype(np.float16).astype(np.float64) @ t.v  # the tensor core takes f16


def remember(t: Tile) -> None:
    t.top = t.new


def divide(t: Tile) -> None:
    t.o = t.o / t.total[:, None]


STEPS = (new, weigh, keep, add, rescale, product, remember)
"""One step of the online softmax."""


def tiles(
    Q: np.ndarray,
    K: np.ndarray,
    V: np.ndarray,
    scale: float,
    steps: tuple[Callable[[Tile], None], ...] = STEPS,
    last: tuple[Callable[[Tile], None], ...] = (divide,),
    past: float = HIDDEN,
    mask: Callable[[np.ndarray, int], np.ndarray] | None = None,
) -> np.ndarray:
    """Attention tile by tile, in any of the ways in which it is written down.

    Args: steps: what the body of the loop does; last: what comes after it. past: the score of keys
    past the end. mask: from the scores of a tile and its first key.
    """
    q, k, v = (a.astype(np.float64) for a in (Q, K, V))
    n = len(q)
    t = Tile(o=np.zeros((n, D)), total=np.zeros(n), top=np.full(n, -np.inf), keep=np.ones(n))
    with np.errstate(all="ignore"):
        for first in range(0, len(k), KEYS):
            t.s, t.v = np.full((n, KEYS), past), np.zeros((KEYS, D))
            here = len(k[first : first + KEYS])
            t.s[:, :here] = q @ k[first : first + KEYS].T * scale
            t.v[:here] = v[first : first + KEYS]
            if mask is not None:
                t.s = mask(t.s, first)
            for step in steps:
                step(t)
        for step in last:
            step(t)
    return t.o


def gives(**how: Any) -> Callable[..., np.ndarray]:
    """The output of a way of writing it."""
    return lambda Q, K, V, scale: tiles(Q, K, V, scale, **how)


def without(*steps: Callable[[Tile], None]) -> tuple[Callable[[Tile], None], ...]:
    """The steps but these."""
    return tuple(s for s in STEPS if s not in steps)


def plain(Q: np.ndarray, K: np.ndarray, V: np.ndarray, scale: float, causal: bool = False) -> Any:
    """(weights, output) with all scores at once, in float64."""
    s = Q.astype(np.float64) @ K.astype(np.float64).T * scale
    if causal:
        s = np.where(np.tril(np.ones(s.shape, bool)), s, -np.inf)
    e = np.exp2(s - s.max(1, keepdims=True))
    e /= e.sum(1, keepdims=True)
    return e, e @ V.astype(np.float64)
