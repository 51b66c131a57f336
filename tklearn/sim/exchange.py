"""Operations between the lanes of a warp (shuffles, votes) and atomics on memory.

Lanes act in order, blocks too: float atomics on global memory whose old value is not used wait
until the batch ends and are then applied block by block, so that the bits do not depend on the
batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tklearn.sim import counters
from tklearn.sim.bounds import flat_index
from tklearn.sim.globals import GlobalArray
from tklearn.sim.memory import LANE, SharedMem, number, scattered
from tklearn.sim.registry import OPS, op

ndarray = np.ndarray


def _wide(x: Any) -> Any:
    return np.broadcast_to(x, (len(x), 32)) if type(x) is ndarray else x


def _shuffle(source: Callable) -> Callable:
    def shuffle(w: Any, s: Any, m: Any, x: Any, arg: Any) -> Any:
        if type(x) is not ndarray or x.shape[1] == 1:
            return x
        src = source(LANE, arg)
        if type(src) is not ndarray or src.ndim == 1:
            return x[:, src]
        b = max(len(x), len(src))
        return np.take_along_axis(
            np.broadcast_to(x, (b, 32)), np.broadcast_to(src, (b, src.shape[1])), axis=1
        )

    return shuffle


def _shfl(w: Any, s: Any, m: Any, x: Any, lane: Any) -> Any:
    if type(x) is not ndarray or x.shape[1] == 1:
        return x
    if type(lane) is not ndarray:
        k = int(lane) % 32
        return x[:, k : k + 1]
    b = max(len(x), len(lane))
    return np.take_along_axis(
        np.broadcast_to(x, (b, 32)), np.broadcast_to(lane & 31, (b, lane.shape[1])), axis=1
    )


OPS["warp.shfl"] = _shfl
OPS["warp.shfl_up"] = _shuffle(lambda lane, d: np.where(lane - d >= 0, lane - d, lane))
OPS["warp.shfl_down"] = _shuffle(lambda lane, d: np.where(lane + d < 32, lane + d, lane))
OPS["warp.shfl_xor"] = _shuffle(lambda lane, k: (lane ^ k) & 31)


@op("warp.any")
def _any(w: Any, s: Any, m: Any, p: Any) -> Any:
    if type(p) is not ndarray:
        return p
    return (p if w.mask is None else p & w.mask).any(axis=1, keepdims=True)


@op("warp.all")
def _all(w: Any, s: Any, m: Any, p: Any) -> Any:
    if type(p) is not ndarray:
        return p
    return (p if w.mask is None else p | ~w.mask).all(axis=1, keepdims=True)


_BITS = (np.int64(1) << LANE.astype(np.int64))[None]


@op("warp.ballot")
def _ballot(w: Any, s: Any, m: Any, p: Any) -> Any:
    live = np.ones((1, 32), bool) if w.mask is None else w.mask
    return (np.broadcast_to(p, (len(p) if type(p) is ndarray else 1, 32)) * live * _BITS).sum(
        axis=1, keepdims=True
    )


@op("warp.uniform")
def _uniform(w: Any, s: Any, m: Any, x: Any) -> Any:
    if type(x) is not ndarray:
        return x
    bad = x != x[:, :1]
    if w.mask is not None:
        bad &= w.mask
    if bad.any():
        b, lane = (int(i) for i in np.argwhere(bad)[0])
        raise w.fault(
            "TK512",
            f"warp.uniform: lane 0 holds {x[b, 0]} and lane {lane} holds {x[b, lane]}",
            s,
            (b, lane),
            "the value must be the same in all 32 lanes",
        )
    return x[:, :1]


# ------------------------------------------------------------------------------------- atomics
def _apply(kind: str, old: Any, v: Any, compare: Any) -> Any:
    if kind == "add":
        return old + v
    if kind in ("max", "min"):
        return max(old, v) if kind == "max" else min(old, v)
    return v if kind == "exch" or old == compare else old


def _atomic(kind: str) -> Callable:
    def atomic(w: Any, s: Any, m: Any, ref: Any, *vals: Any, used: bool = True) -> Any:
        mem, at = ref
        if isinstance(mem, GlobalArray):
            flat, m2 = _atomic_global(w, s, m, mem, at)
            data = mem.data
        else:
            flat, m2 = mem.flat(w, at, m, s)
            _atomic_shared(w, s, mem, flat, m2)
            data = mem.own(w.batch.n if len(flat) > 1 or w.batch.n > 1 else 1)
        b = w.batch.n
        flat = np.broadcast_to(flat, (b, 32))
        rows, idx, lane = scattered(flat, None if m2 is None else np.broadcast_to(m2, (b, 32)))
        w.count(s.line, "atomics", len(idx))
        if w.launch.chooser is not None:
            w.launch.chooser.event(w, "atomic", s, mem, kind, used, idx)
        v = [np.broadcast_to(x, (b, 32))[rows, lane] for x in vals]
        where: Any = idx if isinstance(mem, GlobalArray) else (rows, idx)
        if not used and kind == "add" and isinstance(mem, GlobalArray) and mem.isfloat and b > 1:
            w.batch.atomics.append((mem, rows, idx, v[0]))
            return None
        if not used and kind in ("add", "max", "min"):
            f = {"add": np.add, "max": np.maximum, "min": np.minimum}[kind]
            f.at(data, where, v[0].astype(data.dtype))
            old = None
        else:
            old = _one_by_one(kind, data, where, v, lane, b, rows)
        if isinstance(mem, SharedMem):
            mem.changed()
        return old

    return atomic


def _one_by_one(kind: str, data: Any, where: Any, v: list, lane: Any, b: int, rows: Any) -> Any:
    """Lane after lane; the old values (blocks, 32)."""
    out = np.zeros((b, 32), data.dtype)
    bits = data.dtype.kind in "iu"
    for k in range(len(lane)):
        place = where[k] if isinstance(where, ndarray) else (where[0][k], where[1][k])
        old = data[place]
        out[rows[k], lane[k]] = old
        value, compare = v[-1][k], v[0][k]
        new = _apply(kind, int(old) if bits else old, int(value) if bits else value, compare)
        if bits:
            size = 8 * data.dtype.itemsize
            new &= (1 << size) - 1
            if data.dtype.kind == "i" and new >= 1 << (size - 1):
                new -= 1 << size
        data[place] = new
    return number(out)


def _atomic_global(w: Any, s: Any, m: Any, g: GlobalArray, at: tuple) -> tuple[Any, Any]:
    flat = flat_index(g, w, at, m, s, g.dims, g.strides)
    if w.launch.recorder is not None:
        w.launch.recorder.did(w, s, "atomic")
    if g.owners is not None:
        g.owners.lanes(w, s, flat, m, True, atomic=True)
    return flat, m if m is not None else w.mask


def _atomic_shared(w: Any, s: Any, mem: SharedMem, flat: Any, m: Any) -> None:
    counters.shared_lanes(w, s, "atom", mem, flat, m, 4)
    if mem.log is None:
        return
    if len(flat) == 1:
        mem.log.atomic(w, mem.geo.place(flat, m), s)
    else:
        rows, idx, lanes = scattered(flat, m)
        mem.log.scatter(w, rows, idx, lanes, s, True, atomic=True)


for _n in ("add", "max", "min", "exch", "cas"):
    OPS[f"atomic_{_n}"] = _atomic(_n)


def add_in_order(mem: Any, idx: Any, val: Any) -> None:
    """Float atomics whose order among blocks had to wait."""
    np.add.at(mem.data, idx, val.astype(mem.data.dtype))
