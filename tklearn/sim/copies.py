"""Cooperative copies between global and shared memory: block.load, block.store, load_async.

Each warp copies its chunks when it gets there, and each warp's chunks are checked apart; the values
of the whole tile are moved once, by the warp that comes first (asynchronous: that lands first),
because nobody may look at them before the barrier that ends the copy. Chunk sizes follow the CUDA
headers: 16 bytes, or less where the array's base or pitch asks for it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tklearn.lang import plans
from tklearn.lang.types import ST
from tklearn.sim import counters
from tklearn.sim.engines import Flight
from tklearn.sim.memory import Place, SharedMem
from tklearn.sim.spread import Spread


class Copy:
    """One execution of a cooperative copy by all its warps."""

    __slots__ = ("key", "mem", "values", "win", "chunk", "kinds", "times")

    def __init__(
        self, key: Any, mem: SharedMem, win: Any, chunk: int, blocks: int, later: bool
    ) -> None:
        self.key, self.mem, self.win, self.chunk = key, mem, win, chunk
        self.values: Any = None
        self.kinds = win.keys(128 if later else 32)
        self.times = blocks // max(sum(k[2] for k in self.kinds), 1)

    def arrive(self) -> None:
        if self.values is not None:
            self.mem.bind(self.values)
            if type(self.values) is not Spread and self.values.base is not None:
                self.mem.lent = True  # a view of a read-only array
            self.values = None


def _chunk(mem: SharedMem, g: Any) -> int:
    """Bytes a thread copies at once wherever the tile lies, as the checks of races see it."""
    tile, start = mem.geo.tile, 0
    for x in (g.start, *g.bstr4[:2]):
        start |= x
    return plans.copy_chunk(tile, start, g.bstr4[2], True, False)


def _window(w: Any, s: Any, mem: SharedMem, g: Any, at: tuple) -> Any:
    t = mem.type
    return g.window(
        w, at, t.rows if isinstance(t, ST) else 1, t.cols if isinstance(t, ST) else t.n, s
    )


def _part(mem: SharedMem, threads: int, chunk: int, warp: int) -> Place:
    """The elements that one warp of the group copies, and which lane does."""
    key = ("part", threads, chunk, warp)
    p = mem.geo.places.get(key)
    if p is None:
        per = chunk // mem.geo.itemsize
        q = np.arange(mem.geo.n // per)
        q = q[(q % threads) // 32 == warp]
        idx = (q[:, None] * per + np.arange(per)).ravel()
        p = mem.geo.places[key] = Place(idx, np.repeat(q % 32, per))
    return p


def _rank(w: Any, threads: int) -> int:
    """The number of a warp among those that copy together."""
    return w.id % (threads // 32)


def _count(w: Any, s: Any, kind: str, c: Copy, g: Any, threads: int) -> None:
    """Add what this warp's part costs."""
    if w.counting:
        rank, pitch, tile = _rank(w, threads), g.bstr4[2], c.mem.geo.tile
        for limit, start, n in c.kinds:
            key = (kind, tile, threads, rank, pitch, limit, start)
            delta = s.cache.get(key)
            if delta is None:
                delta = s.cache[key] = counters.copy_delta(*key)
            w.add(s, delta, n * c.times)


def _copy(
    w: Any, s: Any, mem: SharedMem, g: Any, at: tuple, threads: int, later: bool = False
) -> tuple[Copy, bool]:
    """The copy that this execution belongs to: all warps' k-th run of one statement is one copy."""
    turn = w.turns.get(s.id, 0)
    w.turns[s.id] = turn + 1
    key = (s.id, turn, w.id // (threads // 32))
    c = mem.copy
    if c is not None and c.key == key:
        return c, False
    win = _window(w, s, mem, g, at)
    c = mem.copy = Copy(key, mem, win, _chunk(mem, g), w.batch.n, later)
    return c, True


def group_load(
    w: Any, s: Any, mem: SharedMem, g: Any, at: tuple, threads: int, later: bool
) -> None:
    """Copy a tile of `g` into `mem`, by `threads` threads; `later`: with cp.async."""
    c, first = _copy(w, s, mem, g, at, threads, later)
    if first:
        w.batch.flush(g)
        if g.owners is not None and g.read:
            g.owners.tile(w, s, c.win, False, "group")
        c.values = c.win.load(once=True)
    _count(w, s, "async" if later else "load", c, g, threads)
    part: Any = _part(mem, threads, c.chunk, _rank(w, threads)) if mem.log is not None else None
    if later:
        pending = mem.log.issue(w, part, s) if mem.log is not None else None
        w.copies.start(Flight(c, pending, mem.log))
        return
    if mem.log is not None:
        mem.log.write(w, part, s)
    c.arrive()


def group_store(w: Any, s: Any, g: Any, mem: SharedMem, at: tuple, threads: int) -> None:
    """Copy `mem` to a tile of `g`, by `threads` threads."""
    c, first = _copy(w, s, mem, g, at, threads)
    if mem.log is not None:
        mem.log.read(w, _part(mem, threads, c.chunk, _rank(w, threads)), s)
    if first:
        w.batch.flush(g)
        if g.owners is not None:
            g.owners.tile(w, s, c.win, True, "group")
        d = mem.values()
        c.win.store(d.reshape(len(d), c.win.rows, c.win.cols), w.batch.n)
    _count(w, s, "store", c, g, threads)
