"""Semaphores, TMA, proxy fences and named barriers: what their operations do.

A TMA load or store is an agent of its own from its issue until it lands; the scheduler decides
when. A load puts zeros where its box lies outside the array, and its semaphore counts the whole
box. FACTS.md 5. Values move when a transfer lands; what is wrong with touching them earlier is
races.py's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tklearn import numerics
from tklearn.lang.types import ST
from tklearn.sim import counters, named, registers, semaphores
from tklearn.sim.globals import GlobalArray, Window
from tklearn.sim.lanes import as_int
from tklearn.sim.memory import SharedArray, SharedMem
from tklearn.sim.registry import OPS, op


# ------------------------------------------------------------------------------- semaphores
@op("init_semaphore")
def _init(w: Any, s: Any, m: Any, sem: Any, count: Any) -> bool:
    w.tick()
    sem.init(w, s, as_int(w, count, s))
    return w.give_way()


@op("invalidate_semaphore")
def _invalidate(w: Any, s: Any, m: Any, sem: Any) -> bool:
    sem.invalidate(w, s)
    return w.give_way()


@op("wait")
def _wait(w: Any, s: Any, m: Any, sem: Any, phase: Any) -> bool:
    parity = as_int(w, phase, s)
    if parity not in (0, 1):
        raise w.fault(
            "TK522",
            f"wait({sem.name}, {parity}): a phase is named by its parity",
            s,
            hint="0 for the 1st, 3rd, ... use, 1 for the others: k // STAGES % 2",
        )
    sem.use(w, s)
    return w.wait(semaphores.Waiting(sem, parity, s))


@op("arrive")
def _arrive(w: Any, s: Any, m: Any, sem: Any, count: Any) -> bool:
    sem.arrive(w, s, 1 if count is None else as_int(w, count, s))
    return w.give_way()


@op("tma.expect")
def _expect(w: Any, s: Any, m: Any, sem: Any, tiles: tuple) -> bool:
    sem.expect(w, s, sum(_bytes(t) for t in tiles))
    return w.give_way()


@op("tma.expect_bytes")
def _expect_bytes(w: Any, s: Any, m: Any, sem: Any, nbytes: Any) -> bool:
    sem.expect(w, s, as_int(w, nbytes, s))
    return w.give_way()


def _bytes(x: Any) -> int:
    """Bytes of the elements of a shared tile, vector or array of them."""
    if isinstance(x, SharedArray):
        return sum(_bytes(i) for i in x.items)
    return x.geo.n * x.geo.itemsize


# ------------------------------------------------------------------------------------ loads
def _box(w: Any, s: Any, mem: SharedMem, g: GlobalArray, at: tuple, store: bool = False) -> Window:
    """The place in the array, checked for what a tensor map can say.

    A store writes 16 bytes at a time, past the end of a row, too (measured on an H200).
    """
    strides = [b for b, n in zip(g.bstr4[:3], (g.batch, g.depth, g.rows)) if n > 1]
    wrong = [f"a stride of {b} bytes" for b in strides if b % 16]
    if g.start % 16:
        wrong.append(f"a start {g.start % 16} bytes past a multiple of 16")
    if store and g.cols * g.itemsize % 16:
        wrong.append(f"rows of {g.cols * g.itemsize} bytes, and a store writes 16 at a time")
    if wrong:
        raise w.fault(
            "TK527",
            f"TMA cannot address {g.name}: it has {' and '.join(wrong)}",
            s,
            hint="start and outer strides must be multiples of 16 bytes, and for stores the rows: "
            "pad them, or copy the array",
        )
    t = mem.type
    rows, cols = (t.rows, t.cols) if isinstance(t, ST) else (1, t.n)
    return g.window(w, at, rows, cols, s)


class Load:
    """A TMA load under way."""

    __slots__ = ("w", "site", "mem", "win", "sem", "record", "landed", "flying")

    def __init__(self, w: Any, s: Any, mem: SharedMem, win: Window, sem: Any, record: Any) -> None:
        self.w, self.site, self.mem, self.win = w, s, mem, win
        self.sem, self.record = sem, record
        self.landed = False
        self.flying: Any = None

    def land(self) -> None:
        w, mem, win = self.w, self.mem, self.win
        self.landed = True
        w.batch.flush(win.g)
        values = win.load(once=True)
        mem.bind(values)
        mem.lent = isinstance(values, np.ndarray) and values.base is not None
        if mem.log is not None:
            mem.log.arrived(mem.geo.whole)
        w.event("land", self.site, self)
        phase = self.sem.complete(w, self.site, _bytes(mem))
        for record in (self.record, self.flying):
            if record is not None:
                record.clock = phase

    def says(self) -> str:
        return f"TMA load of {self.mem.name} (line {self.site.line})"


@op("tma.load_async")
def _load(w: Any, s: Any, m: Any, mem: SharedMem, g: GlobalArray, at: tuple, sem: Any) -> bool:
    w.tick()
    sem.use(w, s)
    w.loading = sem
    win = _box(w, s, mem, g, at)
    flying = None
    if g.owners is not None and g.read:
        g.owners.tile(w, s, win, False, "group")
        flying = g.owners.fly(w, s, win, sem.agent, reads=True)
        w.tick()  # the lanes need no order with it, but with its end
    _count(w, s, "load", mem, win)
    record = None
    if mem.log is not None:
        record = mem.log.fly(w, sem.agent, mem.geo.whole, s, True)
    sem.issue(w, s, _bytes(mem))
    f = Load(w, s, mem, win, sem, record)
    f.flying = flying
    w.batch.flights.append(f)
    w.event("load", s, f)
    return w.give_way()


def _count(w: Any, s: Any, kind: str, mem: SharedMem, win: Window) -> None:
    if w.counting:
        kinds = win.keys()
        times = w.batch.n // max(sum(k[2] for k in kinds), 1)
        for limit, start, n in kinds:
            w.add(s, counters.tma_delta(kind, mem.type, win.g.bstr4[2], limit, start), n * times)


@op("tma.prefetch")
def _prefetch(w: Any, s: Any, m: Any, mem: Any, g: GlobalArray, at: tuple) -> None:
    _box(w, s, mem, g, at)


# ----------------------------------------------------------------------------------- stores
class Store:
    """A TMA store under way, or waiting to be."""

    __slots__ = ("w", "site", "mem", "win", "how", "record", "landed", "flying")

    def __init__(self, w: Any, s: Any, mem: SharedMem, win: Window, how: str, record: Any) -> None:
        self.w, self.site, self.mem, self.win = w, s, mem, win
        self.how, self.record = how, record
        self.landed = False
        self.flying: Any = None

    def commit(self, group: int) -> None:
        """It belongs to this group of its warp's stores, from 1."""
        if self.record is not None:
            self.record.clock = group
        if self.flying is not None:
            self.flying.clock = group

    def land(self) -> None:
        w, win = self.w, self.win
        self.landed = True
        w.batch.flush(win.g)
        d = self.mem.values()
        values = d.reshape(len(d), win.rows, win.cols)
        if self.how == "store":
            win.store(values, w.batch.n)
        else:
            _reduce(w, win, values, self.how)
        w.event("land", self.site, self)

    def says(self) -> str:
        return f"TMA store of {self.mem.name} (line {self.site.line})"


def _reduce(w: Any, win: Window, values: Any, how: str) -> None:
    """Combine tiles with what the array holds, block after block."""
    g, n = win.g, w.batch.n
    idx, inside = win.elements(n)
    f = {"add": np.add, "min": np.fmin, "max": np.fmax}[how]
    flat = np.broadcast_to(values.reshape(len(values), -1), (n, idx.shape[1]))
    if how == "add" and g.kind == "f32" and n > 1:
        rows = np.broadcast_to(np.arange(n)[:, None], idx.shape)
        w.batch.atomics.append((g, rows[inside], idx[inside], flat[inside]))
        return
    data = g.data
    for k in range(n):
        keep = inside[k]
        at, new = idx[k][keep], flat[k][keep]
        v = f(data[at], new)
        data[at] = v if g.kind == "f32" else numerics.round_to(v, g.kind)


def _storing(how: str) -> Callable:
    def store(w: Any, s: Any, m: Any, g: GlobalArray, mem: SharedMem, at: tuple) -> bool:
        w.tick()
        win = _box(w, s, mem, g, at, store=True)
        if g.owners is not None:
            g.owners.tile(w, s, win, True, "group" if how == "store" else "atomic")
        _count(w, s, "store", mem, win)
        record = None
        agents = w.launch.agents
        if mem.log is not None:
            record = mem.log.fly(w, agents.store_reads(w.id), mem.geo.whole, s, False)
        f = Store(w, s, mem, win, how, record)
        if g.owners is not None:
            f.flying = g.owners.fly(w, s, win, agents.store_writes(w.id), how != "store")
            w.tick()
        w.batch.flights.append(f)
        w.stores.start(f)
        w.stores.commit()
        w.event("store", s, f)
        return w.give_way()

    return store


OPS["tma.store_async"] = _storing("store")
for _n in ("add", "min", "max"):
    OPS[f"tma.store_{_n}_async"] = _storing(_n)


@op("tma.store_commit_group")
def _commit(w: Any, s: Any, m: Any) -> bool:
    w.stores.commit()
    return w.give_way()


@op("tma.store_async_wait")
def _wait_stores(w: Any, s: Any, m: Any, n: int) -> bool:
    w.stores.wait(n, False)
    w.event("stored", s, n)
    return w.give_way()


@op("tma.store_async_read_wait")
def _wait_reads(w: Any, s: Any, m: Any, n: int) -> bool:
    w.stores.wait(n, True)
    w.event("stored", s, n)
    return w.give_way()


@op("tma.fence")
def _fence(w: Any, s: Any, m: Any) -> None:
    w.fence()
    w.event("fence", s)


# ---------------------------------------------------------------------------- named barriers
@op("warpgroup.sync")
def _group_sync(w: Any, s: Any, m: Any, id: Any) -> bool:
    g = w.batch.named.arrive(w, s, as_int(w, id, s), 128, True)
    return w.wait(named.Waiting(g, s))


@op("block.sync")
def _block_sync(w: Any, s: Any, m: Any, id: Any, threads: int) -> bool:
    """The named form; block.sync() itself is lowered to a yield."""
    g = w.batch.named.arrive(w, s, as_int(w, id, s), threads, False)
    return w.wait(named.Waiting(g, s))


@op("block.arrive")
def _block_arrive(w: Any, s: Any, m: Any, id: Any, threads: int) -> bool:
    w.batch.named.arrive(w, s, as_int(w, id, s), threads, False)
    return w.give_way()


# --------------------------------------------------------------------------------- registers
@op("warpgroup.increase_registers", "warpgroup.decrease_registers")
def _registers(w: Any, s: Any, m: Any, n: int) -> bool:
    return w.wait(registers.Waiting(w.batch.pool, n, s))
