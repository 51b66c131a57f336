"""Memory, tensor cores and asynchrony in a walk: which event each operation becomes.

Accesses are counted by the same functions as the simulator's (counters.py, access.py). This file
knows operations of the language; expressions are values.py's, time is replay.py's.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from tklearn import access
from tklearn.lang import ir, plans
from tklearn.lang.types import RT, ST, Shared
from tklearn.sim import counters
from tklearn.sim.memory import geometry
from tklearn.sim.timing import program as P
from tklearn.sim.timing.costs import registers
from tklearn.sim.timing.program import Event
from tklearn.sim.timing.values import Global, Place, Values, _first

ndarray = np.ndarray
GATHERED_L1 = 128 << 10  # bytes of an array that the L1 cache holds whole
ROLLED = 12.0  # slots of a turn of the loop that copies what is not whole or not aligned
ADDRESS = 1.5  # slots of an access besides the access: its address, and its predicate


@lru_cache(maxsize=1 << 14)
def _sectors(row: bytes, width: int) -> tuple[int, tuple[int, ...]]:
    """Active lanes, and the sectors (from that of the first lane) of 32 byte offsets."""
    at = np.frombuffer(row, np.int64)
    live = at[at >= 0]
    return len(live), tuple(np.unique(np.concatenate([live, live + width - 1]) >> 5).tolist())


class Survey:
    """Where blocks of one wave read: how much of it is the same place. All blocks at once."""

    def __init__(self) -> None:
        self.seen: dict[tuple[int, bool], list[tuple[float, float, int]]] = {}

    def note(self, array: int, store: bool, keys: Any, nbytes: float, lanes: int) -> None:
        """`lanes` blocks access `nbytes` each, at places that `keys` number."""
        distinct = len(np.unique(keys)) if type(keys) is ndarray else 1
        self.seen.setdefault((array, store), []).append((nbytes, distinct / lanes, lanes))

    def unique(self, array: int) -> float:
        """What part of the bytes that a wave loads from an array are of different places."""
        found = self.seen.get((array, False), [])
        total = sum(b for b, _, _ in found)
        return sum(b * u for b, u, _ in found) / total if total else 1.0


class Moves(Values):
    """Values, and what touches memory."""

    warp: int
    mask: Any
    spec: ir.Kernel
    survey: Survey | None
    l1: dict[Any, int]
    gathered: dict[int, float]
    follow: int  # blocks that an SM runs
    brought: dict[int, float]  # bytes of arrays that this warp has gathered
    filling: bool  # the L1 cache still had not all of what was gathered last

    def meet(self, kind: int, line: int, what: Any) -> None:
        raise NotImplementedError

    def _close(self, kind: int) -> None:
        raise NotImplementedError

    # ------------------------------------------------------------------------- single elements
    def _address(self, base: Global, idx: list[Any], width: int) -> Any:
        at: Any = 0
        for i, s in zip(idx, base.strides[-len(idx) :], strict=True):
            at = at + i * s
        return at * base.itemsize

    def _global_element(self, base: Global, idx: list[Any], n: int, kind: int, line: int) -> Event:
        width = base.itemsize * n
        at = self._address(base, idx, width)
        store = kind != P.LOAD
        if self.survey is not None:
            keys = at >> 5 if type(at) is ndarray else 0
            self.survey.note(base.number, store, keys, 32.0 * width, self.lanes)
        e = self.event(kind, line)
        e.math += ADDRESS + 1
        e.requests, e.array = 1, base.number
        lanes = np.broadcast_to(np.asarray(at, np.int64), (self.lanes,))
        if self.mask is not None:
            lanes = np.where(self.mask, lanes, -1)
        if self.survey is not None:
            return e
        low = lanes[lanes >= 0]
        if not len(low):
            e.requests = 0
            return e
        first = int(low.min()) & ~31
        row = np.where(lanes >= 0, lanes - first, -1)
        _, parts = _sectors(row.tobytes(), min(width, 16))
        passes = max(width // 16, 1)
        e.sectors, e.requests = len(parts) * passes, passes
        if kind == P.LOAD:
            e.hits = self._hits([(base.number, (first >> 5) + p) for p in parts]) * passes
        return e

    def _hits(self, sectors: list[Any]) -> int:
        """How many of these sectors the L1 cache has; afterwards it has all."""
        hits = sum(s in self.l1 for s in sectors)
        for s in sectors:
            self.l1[s] = 1
        return hits

    def _gather(self, base: Global, e: Event) -> None:
        """An access whose index was loaded: it may be anywhere in the array."""
        spread = self.lanes / max(e.sectors, 1)  # each lane may be in a sector of its own
        self.gathered[base.number] = max(self.gathered.get(base.number, 1.0), spread)
        e.hits = 0
        if base.nbytes > GATHERED_L1:
            return
        # Until the SM's blocks have brought in all of it, line by line, accesses miss. Warps that
        # run in step bring in the same lines.
        mine = self.brought.get(base.number, 0.0)
        self.filling = mine * self.follow < base.nbytes
        if self.filling:
            self.brought[base.number] = mine + 128.0
        else:
            e.hits = e.sectors

    def load_element(self, e: Any, base: Any, idx: list[Any], width: int) -> None:
        line = e.loc.line
        if isinstance(base, Global):
            made = self._global_element(base, idx, width, P.LOAD, line)
            if any(i.uni.deps & ir.DATA for i in e.idx):
                self._gather(base, made)
        else:
            made = self._shared_element(base, idx, width, "ld", line)
        self.reads = {self.emit(made)}

    def store_element(self, e: Any, base: Any, idx: list[Any], width: int) -> None:
        line = e.loc.line
        if isinstance(base, Global):
            made = self._global_element(base, idx, width, P.STORE, line)
        else:
            made = self._shared_element(base, idx, width, "st", line)
            made.kind = P.WORK
        self.emit(made)

    def _shared_element(self, base: Place, idx: list[Any], n: int, kind: str, line: int) -> Event:
        geo = geometry(base.type)
        made = self.event(P.SHARED, line)
        made.math += ADDRESS + 1
        made.chain = self.costs.rates.latency["shared"]
        if self.survey is not None:
            return made
        flat: Any = 0
        for i, s in zip(idx, geo.strides, strict=True):
            flat = flat + i * s
        flat = np.broadcast_to(np.asarray(flat, np.int64), (32,)) % geo.n
        at = geo.offsets[flat]
        if self.mask is not None:
            at = np.where(self.mask, at, -1)
        if (at >= 0).any():
            wave, _ = access.shared_many(kind, min(geo.itemsize * n, 16), at[None])
            made.shared = float(wave[0])
            if kind == "ld" and (at == at[0]).all():
                made.shared *= self.costs.rates.broadcast
        return made

    def atomic(self, e: ir.Call) -> Any:
        ref = e.args[0]
        base = self.value(ref.base)
        idx = [self.value(i) for i in ref.idx]
        for a in e.args[1:]:
            if isinstance(a, ir.Expr):
                self.value(a)
        if isinstance(base, Global):
            made = self._global_element(base, idx, 1, P.ATOMIC, e.loc.line)
            at = self._address(base, idx, 1)
            # Do all blocks add to one place? Then they take turns.
            made.what = not (e.args[0].idx and any(i.uni.deps & 7 for i in ref.idx))
            made.sectors = max(made.sectors, 1) if type(at) is ndarray else 1
        else:
            made = self._shared_element(base, idx, 1, "atom", e.loc.line)
            if e.type.dtype.kind == "f":  # a loop of compare and swap
                made.serial += self.costs.rates.latency["swap"]
        self.reads = {self.emit(made)}
        return 0.0 if e.type.dtype.kind == "f" else 0

    # ---------------------------------------------------------------------------- global tiles
    def _corner(self, g: Global, at: tuple[Any, ...], rows: int, cols: int) -> tuple[Any, Any, Any]:
        """Byte offset of a tile, and how many rows and columns there are from it."""
        b, d, r, c = (0,) * (4 - len(at)) + tuple(at)
        r, c = r * rows, c * cols
        s = g.strides4
        offset = (b * s[0] + d * s[1] + r * s[2] + c * s[3]) * g.itemsize
        return offset, g.rows - r, g.cols - c

    def _limit(self, rows: Any, cols: Any, t: tuple[int, int]) -> tuple[int, int] | None:
        rows, cols = int(_first(rows)), int(_first(cols))
        if rows >= t[0] and cols >= t[1]:
            return None
        return max(min(rows, t[0]), 0), max(min(cols, t[1]), 0)

    def global_tile(self, kind: int, g: Global, at: Any, t: Any, line: int) -> Event:
        """A register tile or vector to or from global memory."""
        shape = (t.rows, t.cols) if isinstance(t, RT) else (1, t.n)
        offset, rows, cols = self._corner(g, at, *shape)
        op = "ld" if kind == P.LOAD else "st"
        made = self.event(kind, line)
        made.array = g.number
        nbytes = shape[0] * shape[1] * g.itemsize
        if self.survey is not None:
            self.survey.note(g.number, op == "st", offset, nbytes, self.lanes)
            return made
        limit, start = self._limit(rows, cols, shape), int(_first(offset)) % 32
        if isinstance(t, RT):
            pitch = g.strides4[2] * g.itemsize
            delta = counters.tile_delta(
                op, t.rows, t.cols, g.itemsize, pitch, t.layout.name, limit, start
            )
        else:
            left = None if limit is None else 0 if limit[0] <= 0 else limit[1]
            delta = counters.vector_delta(op, t, g.itemsize, left, start)
        made.requests = delta.values.get(f"global_{op}_requests", 0)
        made.sectors = delta.values.get(f"global_{op}_sectors", 0)
        if isinstance(t, RT) and op == "st":
            made.apart = self.costs.rates.scatter[g.itemsize < 4]
        made.math += made.requests * (1 + ADDRESS / 3) + 4
        if t.dtype.itemsize != g.itemsize:
            made.math += registers(t) * self.costs.rates.ops["convert"][0] / 2
        if kind == P.LOAD:
            key = (g.number, "tile", int(_first(offset)), shape)
            made.hits = made.sectors if key in self.l1 else 0
            self.l1[key] = made.sectors
        return made

    # ---------------------------------------------------------------------------- shared tiles
    def shared_tile(self, op: str, place: Place, t: Any, line: int) -> Event:
        """A register tile or vector to or from shared memory."""
        mem = place.type
        made = self.event(P.SHARED if op == "ld" else P.WORK, line)
        made.chain = self.costs.rates.latency["shared"]
        geo = geometry(mem)
        if not isinstance(t, RT):
            delta = counters.shared_vector_delta(op, t, geo.itemsize)
            made.math += registers(t)
        else:
            try:
                delta = counters.window_delta(
                    op, geo.tile, t.layout.name, (place.r0, place.c0), (t.rows, t.cols)
                )
            except ValueError:  # the simulator has the message
                return made
            made.fixed = op == "ld"
            matrices = made.fixed and geo.itemsize == 2 and geo.tile.chunk >= 16
            made.math += registers(t) / (8 if matrices else 2)
        made.shared = float(delta.values.get(f"shared_{op}_wavefronts", 0))
        if made.fixed and matrices:
            made.shared *= self.costs.rates.ldmatrix
        if t.dtype.itemsize != geo.itemsize:
            made.math += registers(t) * self.costs.rates.ops["convert"][0] / 2
        return made

    # ---------------------------------------------------------------------- copies of a group
    def copy(self, kind: str, mem: Any, g: Global, at: Any, threads: int, line: int) -> None:
        """A shared tile copied by `threads` threads: "load", "store" or "async"."""
        geo = geometry(mem)
        shape = (mem.rows, mem.cols) if isinstance(mem, ST) else (1, mem.n)
        offset, rows, cols = self._corner(g, at, *shape)
        nbytes = shape[0] * shape[1] * g.itemsize * 32 / threads
        if self.survey is not None:
            self.survey.note(g.number, kind == "store", offset, nbytes, self.lanes)
            return
        rank = self.warp % (threads // 32)
        limit = self._limit(rows, cols, shape)
        start = int(_first(offset)) % (128 if kind == "async" else 32)
        pitch = g.strides4[2] * g.itemsize
        v = counters.copy_delta(kind, geo.tile, threads, rank, pitch, limit, start).values
        chunk = plans.copy_chunk(geo.tile, start, pitch, limit is None, kind == "store")
        fast = limit is None and chunk == geo.tile.chunk  # else: a loop that is not unrolled
        far = "st" if kind == "store" else "ld"
        requests, sectors = v.get(f"global_{far}_requests", 0), v.get(f"global_{far}_sectors", 0)
        near = v.get("shared_ld_wavefronts", 0) + v.get("shared_st_wavefronts", 0)
        slots = requests * (1 + ADDRESS / 2 if fast else ROLLED) + 6
        r, latency = self.costs.rates, self.costs.rates.latency
        if kind == "async" and chunk >= 4:
            made = self.event(P.ASYNC, line)
            made.math += slots
            made.serial += self.costs.rates.copy
            made.shared = v.get("cp_async_bytes", 0) / 128
            made.requests, made.sectors, made.array = requests, sectors, g.number
            self.emit(made)
            return
        store = kind == "store"
        if not store and fast and chunk == 16 and requests > r.batch:
            self._batches(g, requests, sectors, near, slots, line)
            return
        first = self.event(P.SHARED if store else P.LOAD, line)
        first.math += slots
        first.serial += self.costs.rates.copy
        first.array = g.number
        if store:
            first.shared = near
            first.chain = latency["shared"]
        else:
            first.requests, first.sectors, first.chain = requests, sectors, 0.0
        if not fast:  # each turn of the loop waits for its own load
            turn = r.rolled - (latency["l2"] - latency["shared"] if store else 0.0)
            first.serial += (requests - 1) * turn
            first.whole = True
        self.reads = {self.emit(first)}
        second = self.event(P.STORE if store else P.WORK, line)
        second.math += requests
        if store:
            second.requests, second.sectors, second.array = requests, sectors, g.number
        else:
            second.shared = near
        self.emit(second)
        if not store:
            self._close(P.LOAD)  # which path the next copy takes is decided first

    def _batches(
        self, g: Global, requests: int, sectors: int, near: float, slots: float, line: int
    ) -> None:
        """Ordinary loads of a tile: so many at a time as the compiler keeps registers for, then
        their stores, which wait for them."""
        left, all_of = requests, requests
        while left:
            n = min(left, self.costs.rates.batch)
            part = n / all_of
            load = self.event(P.LOAD, line)
            load.math += slots * part
            load.serial += self.costs.rates.copy if left == all_of else 0.0
            load.array, load.requests = g.number, n
            load.sectors = sectors * left // all_of - sectors * (left - n) // all_of
            self.reads = {self.emit(load)}
            save = self.event(P.WORK, line)
            save.math += n
            save.shared = near * part
            self.emit(save)
            self._close(P.LOAD)
            left -= n

    # --------------------------------------------------------------------------- tensor cores
    def mma(self, d: Any, a: Any, transposed: bool, turned: bool, line: int) -> Event:
        """mma.sync on tiles."""
        k = a.rows if transposed else a.cols
        depth = {1: 32, 2: 16, 4: 8}[a.dtype.itemsize]
        n = d.rows // 16 * (d.cols // 8) * (k // depth)
        r = self.costs.rates
        made = self.event(P.MMA, line)
        made.math += n * (1.0 if depth != 8 else 2.0)
        made.tensor = n * (r.mma_tf32 if depth == 8 else r.mma * (2 if depth == 32 else 1))
        made.chain = r.latency["mma"]
        if turned:  # each fragment of keys is waited for
            made.serial = d.cols / 16 * (k / depth) * r.turned
        return made

    def wgmma(self, args: list[Any], types: list[Any], line: int) -> None:
        """A warp's quarter of a product of its warpgroup."""
        acc, left, right = types[:3]
        geo = geometry(right)
        k = geo.n // acc.cols
        steps = k // (32 // geo.itemsize)
        r = self.costs.rates
        made = self.event(P.WGMMA, line)
        made.math += 2.0 * steps + 4
        made.tensor = steps * wgmma_cycles(r.wgmma, acc.cols)
        moved = geo.n * geo.itemsize
        if isinstance(left, ST):
            moved += geometry(left).n * geo.itemsize
        made.shared = moved / 128 / 4 * r.wgmma_shared
        made.chain = r.latency["wgmma"]
        self.emit(made)
        if args[4]:
            self.meet(P.WG_COMMIT, line, None)

    # ------------------------------------------------------------------------------------ TMA
    def tma(self, load: bool, mem: Any, g: Global, at: Any, sem: Any, line: int) -> None:
        shape = (mem.rows, mem.cols) if isinstance(mem, ST) else (1, mem.n)
        offset, _, _ = self._corner(g, at, *shape)
        nbytes = shape[0] * shape[1] * g.itemsize
        if self.survey is not None:
            self.survey.note(g.number, not load, offset, nbytes, self.lanes)
            return
        made = self.event(P.TMA_LOAD if load else P.TMA_STORE, line)
        made.math += 6
        made.sectors, made.array = nbytes // 32, g.number
        made.what = (sem.key if load else None, nbytes)
        self.emit(made)


def wgmma_cycles(table: dict[int, float], n: int) -> float:
    """Cycles of one m64nNk16, between the columns that were measured."""
    known = sorted(table)
    return float(np.interp(n, known, [table[x] for x in known]))


def bytes_of(t: Any) -> int:
    """Bytes of the elements of a shared object."""
    if isinstance(t, Shared):
        return int(np.prod(t.dims)) * bytes_of(t.elem)
    return geometry(t).n * geometry(t).itemsize
