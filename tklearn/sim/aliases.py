"""Shared symbols that overlap (tk.alias): one set of bytes, one log over bytes.

The rare path: each view decodes what it reads and encodes what it writes. This file knows byte
addresses of elements; checks stay in races.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tklearn import numerics
from tklearn.sim.memory import NATURAL, SharedMem
from tklearn.sim.places import Place
from tklearn.sim.races import Log


class Family:
    """The bytes of shared symbols that overlap (tk.alias)."""

    def __init__(self, nbytes: int, base: int) -> None:
        self.base = base
        self.bytes = np.zeros((1, nbytes), np.uint8)

    def _where(self, mem: SharedMem) -> Any:
        size = mem.geo.itemsize
        return (mem.base - self.base + mem.geo.offsets)[:, None] + np.arange(size)

    def _decoded(self, mem: SharedMem) -> Any:
        raw = np.ascontiguousarray(self.bytes[:, self._where(mem)])
        kind = mem.type.dtype.name
        stored = raw.view(numerics.STORAGE.get(kind, np.dtype(NATURAL.get(kind, np.float32))))[
            ..., 0
        ]
        return numerics.decode(stored) if mem.type.dtype.kind == "f" else stored

    def _encoded(self, mem: SharedMem, values: Any) -> Any:
        kind = mem.type.dtype.name
        v = numerics.encode(values, kind) if mem.type.dtype.kind == "f" else values
        return np.ascontiguousarray(v).view(np.uint8).reshape(len(v), -1, mem.geo.itemsize)

    def view(self, mem: SharedMem) -> Any:
        """The elements of `mem` as its bytes say."""
        mem.data = self._decoded(mem)
        mem.lent = False
        return mem.data

    def store(self, mem: SharedMem) -> None:
        """Bytes of the elements of `mem` that have changed; what other views wrote into the others
        may be no number of this type, and keeps its bits."""
        raw, before = self._encoded(mem, mem.data), self._encoded(mem, self._decoded(mem))
        if len(raw) > len(self.bytes):
            self.bytes = np.repeat(self.bytes, len(raw), axis=0)
        changed = (raw != before).any(axis=2, keepdims=True)
        where = self._where(mem)
        self.bytes[:, where] = np.where(changed, raw, self.bytes[:, where])


def leaves(x: Any) -> list[SharedMem]:
    return [x] if isinstance(x, SharedMem) else [m for i in x.items for m in leaves(i)]


def join_aliases(syms: list, mems: list, check: bool, blocks: int) -> None:
    """Make symbols that overlap share bytes and one log over bytes."""
    roots: dict[int, list] = {}
    for sym, mem in zip(syms, mems):
        root = sym.alias_of or sym
        roots.setdefault(id(root), []).append((sym, mem, root))
    for group in roots.values():
        if len(group) < 2:
            continue
        root = group[0][2]
        family = Family(root.type.nbytes, root.offset)
        log: Any = Log(group[0][1], root.type.nbytes) if check else None
        for _, mem, _ in group:
            for leaf in leaves(mem):
                leaf.family = family
                leaf.log = None if log is None else AliasLog(log, leaf, family)


class AliasLog:
    """The log of one view of overlapping memory: element places as places of bytes."""

    def __init__(self, log: Log, mem: SharedMem, family: Family) -> None:
        self.log, self.mem, self.family = log, mem, family
        self.places: dict[int, tuple[Place, Place]] = {}

    def _place(self, p: Place) -> Place:
        got = self.places.get(id(p))
        if got is None or got[0] is not p:
            size = self.mem.geo.itemsize
            first = self.mem.base - self.family.base + self.mem.geo.offsets[p.idx]
            bytes_ = Place((first[:, None] + np.arange(size)).ravel(), np.repeat(p.lanes, size))
            got = self.places[id(p)] = (p, bytes_)
        self.log.region = self
        return got[1]

    def element(self, byte: int) -> str:
        """The name of the element of this view that holds a byte."""
        at = byte - (self.mem.base - self.family.base)
        k = np.flatnonzero(
            (self.mem.geo.offsets <= at) & (at < self.mem.geo.offsets + self.mem.geo.itemsize)
        )
        return self.mem.element(int(k[0])) if len(k) else f"byte {byte} of shared memory"

    def read(self, w: Any, p: Place, s: Any, collective: bool = False) -> None:
        self.log.read(w, self._place(p), s, collective)

    def write(self, w: Any, p: Place, s: Any) -> None:
        self.log.write(w, self._place(p), s)

    def atomic(self, w: Any, p: Place, s: Any) -> None:
        self.log.atomic(w, self._place(p), s)

    def issue(self, w: Any, p: Place, s: Any) -> Any:
        return self.log.issue(w, self._place(p), s)

    def land(self, w: Any, pending: Any) -> None:
        self.log.land(w, pending)

    def fly(
        self, w: Any, agent: int, p: Place, s: Any, write: bool, kept: Place | None = None
    ) -> Any:
        kept = None if kept is None else self._place(kept)
        return self.log.fly(w, agent, self._place(p), s, write, kept)

    def arrived(self, p: Place) -> None:
        self.log.arrived(self._place(p))

    def scatter(
        self, w: Any, rows: Any, idx: Any, lanes: Any, s: Any, write: bool, atomic: bool = False
    ) -> None:
        size = self.mem.geo.itemsize
        first = self.mem.base - self.family.base + self.mem.geo.offsets[idx]
        self.log.region = self
        self.log.scatter(
            w,
            np.repeat(rows, size),
            (first[:, None] + np.arange(size)).ravel(),
            np.repeat(lanes, size),
            s,
            write,
            atomic,
        )

    def same_instruction(self, *args: Any) -> Any:
        self.log.region = self.mem
        return self.log.same_instruction(*args)
