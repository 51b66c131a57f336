"""What each row of the op table does in the simulator: `OPS`, name -> function.

A function takes (warp, site, mask, *arguments): tiles that are written as `Tile`, values as arrays,
memory as the objects of memory.py, an element reference as (memory, index). It counts through
counters.py and checks through the memory's log. Arithmetic on tiles is float32, rounded once to the
tile's dtype; sums are in the language's order (numerics.fold_sum). This file schedules nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tklearn import numerics
from tklearn.lang import layouts
from tklearn.lang.types import RT, RV, Scalar, SubST, Type
from tklearn.sim import counters, lanes
from tklearn.sim.copies import group_load, group_store
from tklearn.sim.globals import GlobalArray
from tklearn.sim.memory import Place, SharedMem, SubTile, Tile
from tklearn.sim.registry import OPS, op
from tklearn.sim.spread import Spread

ndarray = np.ndarray


def _kind(t: Type) -> str:
    return t.dtype.name


# ---------------------------------------------------------------------------------- barriers
@op("warp.sync")
def _warp_sync(w: Any, s: Any, m: Any) -> None:
    w.tick()


@op("commit_group")
def _commit(w: Any, s: Any, m: Any) -> None:
    w.copies.commit()


@op("wait_group")
def _wait(w: Any, s: Any, m: Any, n: int) -> None:
    w.copies.wait(w, n)


# ------------------------------------------------------------------------------ fills, copies
def _shape(t: Type) -> tuple[int, ...]:
    return (1, t.rows, t.cols) if isinstance(t, RT) else (1, t.n)  # type: ignore[attr-defined]


def _filler(value: float) -> Callable:
    def fill(w: Any, s: Any, m: Any, t: Tile) -> None:
        t.a = np.full(_shape(t.type), value, np.float32)
        t.mine = t.a

    return fill


for _n, _v in (("zero", 0.0), ("one", 1.0), ("neg_infty", -np.inf), ("pos_infty", np.inf)):
    OPS[f"warp.{_n}"] = _filler(_v)


@op("warp.fill")
def _fill(w: Any, s: Any, m: Any, t: Tile, value: Any) -> None:
    v = _scalar_like(t, _rounded(value, _kind(t.type))[()])
    t.a = np.ascontiguousarray(
        np.broadcast_to(v, (len(v) if type(v) is ndarray else 1, *_shape(t.type)[1:]))
    )
    t.a = t.a.astype(np.float32)


def _scalar_like(t: Tile, v: Any) -> Any:
    if type(v) is not ndarray or v.ndim == 0:
        return v
    return lanes.spread3(v) if isinstance(t.type, RT) else lanes.spread2(v)


def _rounded(x: Any, kind: str) -> Any:
    return x if kind == "f32" else numerics.round_to(x, kind)


@op("warp.copy")
def _copy_to(w: Any, s: Any, m: Any, dst: Tile, src: Any) -> None:
    if _kind(dst.type) in ("f32", _kind(s.node.args[1].type)):
        dst.a = src.copy()
    else:
        dst.a = numerics.round_to(src, _kind(dst.type))
    dst.mine = dst.a


@op("copy")
def _copy(w: Any, s: Any, m: Any, x: Any) -> Any:
    return x.copy()


@op("convert")
def _convert(w: Any, s: Any, m: Any, x: Any, dtype: Any) -> Any:
    return numerics.round_to(x, dtype.name)


@op("swap_layout")
def _swap_layout(w: Any, s: Any, m: Any, x: Any) -> Any:
    return x.copy()


@op("transpose")
def _transpose(w: Any, s: Any, m: Any, x: Any) -> Any:
    return np.ascontiguousarray(x.transpose(0, 2, 1))


# --------------------------------------------------------------------------- loads and stores
def _count_window(w: Any, s: Any, win: Any, make: Callable) -> None:
    """Add the deltas of a global tile access: make(limit, start) for each kind of place."""
    if w.counting:
        kinds = win.keys()
        times = w.batch.n // max(sum(k[2] for k in kinds), 1)
        for limit, start, n in kinds:
            w.add(s, make(limit, start), n * times)


def _global(w: Any, s: Any, g: GlobalArray, at: tuple, t: Type, kind: str) -> Any:
    """The window of a register tile or vector in a global array, counted and checked."""
    if isinstance(t, RT):
        win = g.window(w, at, t.rows, t.cols, s)
        pitch, layout = g.bstr4[2], t.layout.name
        _count_window(
            w,
            s,
            win,
            lambda limit, start: counters.tile_delta(
                kind, t.rows, t.cols, g.itemsize, pitch, layout, limit, start
            ),
        )
        how = layout
    else:
        assert isinstance(t, RV)
        win = g.window(w, at, 1, t.n, s)

        def make(limit: Any, start: int) -> Any:
            left = None if limit is None else 0 if limit[0] <= 0 else limit[1]
            return counters.vector_delta(kind, t, g.itemsize, left, start)

        _count_window(w, s, win, make)
        how = "vec"
    if g.owners is not None and (kind == "st" or g.read):
        g.owners.tile(w, s, win, kind == "st", how)
    return win


def _narrower(t: Type, memory: Type) -> bool:
    return _kind(t) not in ("f32", _kind(memory))


def _window_of(x: Any) -> tuple[SharedMem, int, int]:
    return (x.mem, x.r0, x.c0) if isinstance(x, SubTile) else (x, 0, 0)


@op("warp.load")
def _load(w: Any, s: Any, m: Any, dst: Any, src: Any, at: Any) -> None:
    if isinstance(dst, SharedMem):
        group_load(w, s, dst, src, at, 32, False)
        return
    t = dst.type
    if isinstance(src, GlobalArray):
        w.batch.flush(src)
        a = _global(w, s, src, at, t, "ld").load(once=isinstance(t, RT))
        if isinstance(t, RV):
            a = a[:, 0]
    elif isinstance(t, RV):
        a = _shared_vector(w, s, src, t, "ld").copy()
    else:
        a = _load_window(w, s, src, t)
    if _narrower(t, src.type):
        kind = _kind(t)
        a = (
            a.map(lambda u: numerics.round_to(u, kind))
            if type(a) is Spread
            else numerics.round_to(a, kind)
        )
    dst.a, dst.mine = a, None


def _load_window(w: Any, s: Any, src: Any, t: RT) -> Any:
    mem, r0, c0 = _window_of(src)
    key = (r0, c0, id(mem.geo))
    known = s.cache.get(key)
    if known is None:
        how = "ldmatrix" if mem.geo.itemsize == 2 and mem.geo.tile.chunk >= 16 else t.layout.name
        known = s.cache[key] = (
            mem.geo.window(r0, c0, t.rows, t.cols, how),
            _window_delta(w, s, mem, r0, c0, t, "ld"),
            how == "ldmatrix",
            mem.geo,
        )
    place, delta, collective, _ = known
    if mem.log is not None:
        mem.log.read(w, place, s, collective)
    if w.counting:
        w.add(s, delta)
    if mem.spread is not None:
        return mem.spread.like(mem.spread.u[:, r0 : r0 + t.rows, c0 : c0 + t.cols])
    d = mem.values()
    mem.lent = True
    return d.reshape(len(d), *mem.geo.dims)[:, r0 : r0 + t.rows, c0 : c0 + t.cols]


def _window_delta(w: Any, s: Any, mem: SharedMem, r0: int, c0: int, t: RT, kind: str) -> Any:
    try:
        return counters.window_delta(kind, mem.geo.tile, t.layout.name, (r0, c0), (t.rows, t.cols))
    except ValueError as e:  # the plan knows which paddings keep rows aligned
        raise w.fault(
            "TK505",
            f"{mem.name}: {e}",
            s,
            hint="ldmatrix rows must stay 16-byte aligned: pad by multiples "
            "of 8 halves, or use a swizzle",
        ) from None


def _vector_place(mem: SharedMem, t: RV, kind: str) -> Place:
    """The elements of a register vector by lanes; several lanes load one element, one stores it."""
    key = ("vec", t, kind)
    place = mem.geo.places.get(key)
    if place is None:
        if t.kind == "flat":
            lane, idx = layouts.rv_owner(t.n, t.dtype.itemsize)[0], np.arange(t.n)
        else:
            lanes_of = layouts.vec_owner(t.n, t.kind, t.layout.name)[0]
            lanes_of = lanes_of if kind == "ld" else lanes_of[:, :1]
            lane, idx = lanes_of.ravel(), np.repeat(np.arange(t.n), lanes_of.shape[1])
        place = mem.geo.places[key] = Place(idx, np.asarray(lane))
    return place


def _shared_vector(w: Any, s: Any, mem: SharedMem, t: RV, kind: str) -> Any:
    """Count and check a register vector's access to a shared vector; the values it reads."""
    if mem.log is not None:
        check = mem.log.read if kind == "ld" else mem.log.write
        check(w, _vector_place(mem, t, kind), s)
    if w.counting:
        w.add(s, counters.shared_vector_delta(kind, t, mem.geo.itemsize))
    return mem.values()


@op("warp.store")
def _store(w: Any, s: Any, m: Any, dst: Any, src: Any, at: Any) -> None:
    if isinstance(src, SharedMem):
        group_store(w, s, dst, src, at, 32)
        return
    t = s.node.args[1].type
    if isinstance(dst, GlobalArray):
        w.batch.flush(dst)
        win = _global(w, s, dst, at, t, "st")
        v = numerics.round_to(src, dst.kind) if _narrower(dst.type, t) else src
        win.store(v[:, None] if isinstance(t, RV) else v, w.batch.n)
        return
    mem, r0, c0 = _window_of(dst)
    v = numerics.round_to(src, _kind(mem.type)) if _narrower(mem.type, t) else src
    if isinstance(t, RV):
        _shared_vector(w, s, mem, t, "st")
        mem.bind(np.array(v, copy=True))
        return
    if mem.log is not None:
        mem.log.write(w, mem.geo.window(r0, c0, t.rows, t.cols, t.layout.name), s)
    if w.counting:
        w.add(s, _window_delta(w, s, mem, r0, c0, t, "st"))
    if (t.rows, t.cols) == mem.geo.dims:
        mem.bind(v if v is not src else np.array(v, copy=True))
        return
    d = mem.own(len(v))
    d.reshape(len(d), *mem.geo.dims)[:, r0 : r0 + t.rows, c0 : c0 + t.cols] = v
    mem.changed()


@op("block.load")
def _block_load(w: Any, s: Any, m: Any, dst: Any, src: Any, at: Any) -> None:
    group_load(w, s, dst, src, at, w.launch.kernel.nthreads, False)


@op("block.store")
def _block_store(w: Any, s: Any, m: Any, dst: Any, src: Any, at: Any) -> None:
    group_store(w, s, dst, src, at, w.launch.kernel.nthreads)


@op("block.load_async")
def _block_load_async(w: Any, s: Any, m: Any, dst: Any, src: Any, at: Any) -> None:
    group_load(w, s, dst, src, at, w.launch.kernel.nthreads, True)


@op("warp.load_async")
def _warp_load_async(w: Any, s: Any, m: Any, dst: Any, src: Any, at: Any) -> None:
    group_load(w, s, dst, src, at, 32, True)


# ---------------------------------------------------------------------------------- warpgroups
def _sixteen(w: Any, mem: Any, at: Any, t: RT) -> tuple[Any, Any]:
    """This warp's 16 rows of the 64 that a warpgroup loads or stores."""
    rank = w.id % 4
    if isinstance(mem, GlobalArray):
        return mem, (*at[:-2], at[-2] * (64 // t.rows) + rank, at[-1])
    part = SubST(mem.type, t.rows, t.cols)
    return SubTile(mem, t.rows * rank, 0, part), at


@op("warpgroup.load")
def _group_load(w: Any, s: Any, m: Any, dst: Any, src: Any, at: Any) -> None:
    if isinstance(dst, SharedMem):
        group_load(w, s, dst, src, at, 128, False)
    else:
        _load(w, s, m, dst, *_sixteen(w, src, at, dst.type))


@op("warpgroup.store")
def _group_store(w: Any, s: Any, m: Any, dst: Any, src: Any, at: Any) -> None:
    if isinstance(src, SharedMem):
        group_store(w, s, dst, src, at, 128)
    else:
        mem, place = _sixteen(w, dst, at, s.node.args[1].type)
        _store(w, s, m, mem, src, place)


@op("warpgroup.load_async")
def _group_load_async(w: Any, s: Any, m: Any, dst: Any, src: Any, at: Any) -> None:
    group_load(w, s, dst, src, at, 128, True)


# --------------------------------------------------------------------------------------- masks
def _masked(keep: Any, group: bool = False) -> Callable:
    def mask(w: Any, s: Any, m: Any, t: Tile, *args: Any) -> None:
        if t.a is None:
            raise w.fault("TK513", f"'{t.name}' is masked but nothing was stored in it", s)
        row, col = np.arange(t.type.rows)[:, None], np.arange(t.type.cols)[None]
        if group:
            row = row + t.type.rows * (w.id % 4)
        fill = _rounded(args[-1], _kind(t.type))
        inside = keep(row, col, *(lanes.spread3(a) for a in args[:-1]))
        t.a = np.where(inside, t.a, _scalar_like(t, fill))

    return mask


for _n, _keep in {
    "tril": lambda r, c, d: c <= r + d,
    "triu": lambda r, c, d: c >= r + d,
    "make_causal": lambda r, c: c <= r,
    "right_fill": lambda r, c, i: c + 0 * r < i,
    "left_fill": lambda r, c, i: c + 0 * r >= i,
    "lower_fill": lambda r, c, i: r + 0 * c < i,
    "upper_fill": lambda r, c, i: r + 0 * c >= i,
}.items():
    OPS[f"warp.{_n}"] = _masked(_keep)
    if _n in ("tril", "triu", "make_causal"):
        OPS[f"warpgroup.{_n}"] = _masked(_keep, group=True)


# ---------------------------------------------------------------------------- maps, reductions
def _map(f: Any, exact: Any) -> Callable:
    def run(w: Any, s: Any, m: Any, x: Any) -> Any:
        r = exact(x)[()] if w.launch.exact else f(x)  # [()]: a number, not an array of none
        kind = _kind(s.node.type)
        if kind in ("f32", "i32", "i64", "u32"):
            return r
        return numerics.round_to(r, kind, out=r)

    return run


_ONE = np.float32(1)
for _n, _f in {
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log2": np.log2,
    "sqrt": np.sqrt,
    "tanh": np.tanh,
    "sin": np.sin,
    "cos": np.cos,
    "abs": np.abs,
    "rsqrt": lambda x: _ONE / np.sqrt(x),
    "rcp": lambda x: _ONE / x,
    "relu": lambda x: np.fmax(x, np.float32(0)),
}.items():
    OPS[_n] = _map(_f, numerics.MAPS.get(_n, _f))
_float_abs = OPS["abs"]


@op("abs")
def _abs(w: Any, s: Any, m: Any, x: Any) -> Any:
    if _kind(s.node.type) == "i32":  # -2**31 has no absolute value: as its negation, an error
        lanes.isub(w, 0, np.minimum(x, 0), m, s, "i32")
    return _float_abs(w, s, m, x)


def _extreme(f_int: Callable, f_float: Callable, fold: Callable, python: Callable) -> Callable:
    def run(w: Any, s: Any, m: Any, a: Any, b: Any = None) -> Any:
        ta, tb, t = s.node.args[0].type, getattr(s.node.args[1], "type", None), s.node.type
        if tb is None:
            return fold(a)[:, None]
        if isinstance(t, Scalar):
            if t.dtype.kind == "f":
                return f_float(a, b)
            return f_int(a, b) if type(a) is ndarray or type(b) is ndarray else python(a, b)
        return f_float(_fit(a, ta, t), _fit(b, tb, t))

    return run


def _fit(x: Any, own: Type, to: Type) -> Any:
    """An operand shaped to broadcast against a result of type `to`."""
    if isinstance(own, Scalar):
        return lanes.spread3(x) if isinstance(to, RT) else lanes.spread2(x)
    if isinstance(to, RT) and isinstance(own, RV):
        return lanes.as_col(x) if own.kind == "col" else lanes.as_row(x)
    return x


OPS["max"] = _extreme(np.maximum, np.fmax, numerics.fold_max, max)
OPS["min"] = _extreme(np.minimum, np.fmin, numerics.fold_min, min)
OPS["cdiv"] = lanes.cdiv


@op("sum")
def _sum(w: Any, s: Any, m: Any, v: Any) -> Any:
    t = s.node.args[0].type
    group = 8 if t.kind != "flat" else 32 * layouts.rv_width(t.n, t.dtype.itemsize)
    return numerics.fold_sum(v, group=group)[:, None]


def _fold_groups(t: ndarray, axis: int) -> ndarray:
    return numerics.fold_sum(t, axis, group=8)  # reductions.cuh: groups of 8 rows or columns first


def _reduction(fold: Callable, combine: Callable, axis: int) -> Callable:
    def reduce(w: Any, s: Any, m: Any, t: Any, acc: Any = None) -> Any:
        r = fold(t, axis)
        return r if acc is None else combine(r, acc)

    return reduce


for _k, _axis in (("row", 2), ("col", 1)):
    OPS[f"{_k}_max"] = _reduction(numerics.fold_max, np.fmax, _axis)
    OPS[f"{_k}_min"] = _reduction(numerics.fold_min, np.fmin, _axis)
    OPS[f"{_k}_sum"] = _reduction(_fold_groups, np.add, _axis)
