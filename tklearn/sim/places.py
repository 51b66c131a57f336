"""Places: the elements of a region that one access touches, and by which lanes.

Places are interned by whoever makes them, so that what two of them share is computed once. This
file knows numbers of elements and lanes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

COLLECTIVE = 63  # lane number of an instruction that reads for all lanes at once
MANY = 62  # several lanes


class Place:
    """Elements that one access touches: idx[k] by lanes[k]; the same in all blocks of the batch."""

    __slots__ = ("idx", "lanes", "lo", "hi", "n", "repeated", "rel", "extra")

    def __init__(self, idx: Any, lanes: Any) -> None:
        self.idx, self.lanes = idx, lanes
        self.n = len(idx)
        self.lo, self.hi = (int(idx.min()), int(idx.max()) + 1) if self.n else (0, 0)
        self.repeated = self.n > 1 and len(np.unique(idx)) < self.n
        self.rel: dict[int, tuple[Place, tuple[int, int]]] = {}
        self.extra: dict[Any, Any] = {}


def relation(a: Place, b: Place) -> tuple[int, int]:
    """(an element both touch, an element that different lanes touch), -1 for none."""
    got = a.rel.get(id(b))
    if got is None or got[0] is not b:  # the entry keeps b alive, so that its id stays its own
        got = a.rel[id(b)] = (b, _relation(a, b) if a.lo < b.hi and b.lo < a.hi else (-1, -1))
    return got[1]


def _relation(a: Place, b: Place) -> tuple[int, int]:
    lo, n = min(a.lo, b.lo), max(a.hi, b.hi) - min(a.lo, b.lo)
    bounds = []
    for p in (a, b):
        least, most = np.full(n, 99), np.full(n, -1)
        np.minimum.at(least, p.idx - lo, p.lanes)
        np.maximum.at(most, p.idx - lo, p.lanes)
        bounds.append((least, most))
    (la, ha), (lb, hb) = bounds
    both = (ha >= 0) & (hb >= 0)
    if not both.any():
        return -1, -1
    mixed = both & (np.minimum(la, lb) != np.maximum(ha, hb))
    return int(both.argmax()) + lo, int(mixed.argmax()) + lo if mixed.any() else -1


def lane_of(place: Place, e: int, other: int = -1) -> int:
    """A lane of `place` that touches element e, if possible not lane `other`."""
    lanes = place.lanes[place.idx == e]
    if not len(lanes):
        return COLLECTIVE
    different = lanes[lanes != other]
    return int(different[0] if len(different) else lanes[0])
