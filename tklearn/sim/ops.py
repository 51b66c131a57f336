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
from tklearn.lang.types import RT, RV, SV, Scalar, Type
from tklearn.sim import counters, lanes
from tklearn.sim.copies import group_load, group_store
from tklearn.sim.globals import GlobalArray
from tklearn.sim.memory import LANE, Place, SharedMem, SubTile, Tile, number, scattered, use
from tklearn.sim.spread import Spread, matmul

ndarray = np.ndarray
OPS: dict[str, Callable[..., Any]] = {}
RUNTIME: dict[str, Any] = {}


def op(*names: str) -> Callable:
    def put(f: Callable) -> Callable:
        for n in names:
            OPS[n] = f
        return f

    return put


def _kind(t: Type) -> str:
    return t.dtype.name


# ---------------------------------------------------------------------------------- barriers
@op("block.sync")
def _block_sync(w: Any, s: Any, m: Any) -> None:
    raise AssertionError("block.sync is lowered to a yield")


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
    v = _scalar_like(t, _rounded(value, _kind(t.type)))
    t.a = np.ascontiguousarray(np.broadcast_to(v, (len(v) if type(v) is ndarray else 1, *_shape(t.type)[1:])))
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
            w.add(s.line, make(limit, start), n * times)


def _global(w: Any, s: Any, g: GlobalArray, at: tuple, t: Type, kind: str) -> Any:
    """The window of a register tile or vector in a global array, counted and checked."""
    if isinstance(t, RT):
        win = g.window(w, at, t.rows, t.cols, s)
        pitch, layout = g.bstr4[2], t.layout.name
        _count_window(w, s, win, lambda limit, start: counters.tile_delta(
            kind, t.rows, t.cols, g.itemsize, pitch, layout, limit, start))
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
        a = a.map(lambda u: numerics.round_to(u, kind)) if type(a) is Spread else numerics.round_to(a, kind)
    dst.a, dst.mine = a, None


def _load_window(w: Any, s: Any, src: Any, t: RT) -> Any:
    mem, r0, c0 = _window_of(src)
    key = (r0, c0, id(mem.geo))
    known = s.cache.get(key)
    if known is None:
        how = "ldmatrix" if mem.geo.itemsize == 2 and mem.geo.tile.chunk >= 16 else t.layout.name
        known = s.cache[key] = (mem.geo.window(r0, c0, t.rows, t.cols, how), _window_delta(w, s, mem, r0, c0, t, "ld"),
                                how == "ldmatrix", mem.geo)
    place, delta, collective, _ = known
    if mem.log is not None:
        mem.log.read(w, place, s, collective)
    if w.counting:
        w.add(s.line, delta)
    if mem.spread is not None:
        return mem.spread.like(mem.spread.u[:, r0 : r0 + t.rows, c0 : c0 + t.cols])
    d = mem.values()
    mem.lent = True
    return d.reshape(len(d), *mem.geo.dims)[:, r0 : r0 + t.rows, c0 : c0 + t.cols]


def _window_delta(w: Any, s: Any, mem: SharedMem, r0: int, c0: int, t: RT, kind: str) -> Any:
    try:
        return counters.window_delta(kind, mem.geo.tile, t.layout.name, (r0, c0), (t.rows, t.cols))
    except ValueError as e:  # the plan knows which paddings keep rows aligned
        raise w.fault("TK505", f"{mem.name}: {e}", s, hint="ldmatrix rows must stay 16-byte aligned: pad by multiples "
                      "of 8 halves, or use a swizzle") from None


def _shared_vector(w: Any, s: Any, mem: SharedMem, t: RV, kind: str) -> Any:
    """Count and check a register vector's access to a shared vector; the values it reads."""
    if mem.log is not None:
        place = mem.geo.places.get(("vec", t))
        if place is None:
            lane = layouts.rv_owner(t.n, t.dtype.itemsize)[0] if t.kind == "flat" else layouts.vec_owner(
                t.n, t.kind, t.layout.name)[0][:, 0]
            place = mem.geo.places["vec", t] = Place(np.arange(t.n), np.asarray(lane))
        if kind == "ld":
            mem.log.read(w, place, s)
        else:
            mem.log.write(w, place, s)
    if w.counting:
        w.add(s.line, counters.shared_vector_delta(kind, t, mem.geo.itemsize))
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
        w.add(s.line, _window_delta(w, s, mem, r0, c0, t, "st"))
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


# ------------------------------------------------------------------------------- tensor cores
LONGEST = 256  # inner size of a product that is put together from neighbouring pieces


class Product:
    """a @ b that an accumulator owes: neighbouring windows of the same two arrays join into one product.

    Kernels cut the inner dimension into steps of one instruction; NumPy is much faster on longer ones.
    """

    __slots__ = ("a", "b", "k", "end")

    def __init__(self, a: Any, b: Any) -> None:
        self.a, self.b = a, b
        self.k = _array(a).shape[2]
        self.end: Any = None

    def extend(self, a: Any, b: Any) -> bool:
        """Take a @ b in, if a continues the columns of mine and b the rows."""
        x, y, p, q = _array(self.a), _array(self.b), _array(a), _array(b)
        if p.base is not x.base or q.base is not y.base or x.base is None or y.base is None:
            return False
        k = p.shape[2]
        if p.strides != x.strides or q.strides != y.strides or self.k + k > LONGEST or len(p) != len(x):
            return False
        if self.end is None:
            self.end = (_address(x) + self.k * x.strides[2], _address(y) + self.k * y.strides[1])
        at = (_address(p), _address(q))
        if at != self.end:
            return False
        self.k += k
        self.end = (at[0] + k * p.strides[2], at[1] + k * q.strides[1])
        return True

    def settle(self, acc: Tile) -> None:
        """Add the product to the accumulator."""
        acc.owed = None
        a, b = self.a, self.b
        if self.k != _array(a).shape[2]:
            a, b = _longer(a, 2, self.k), _longer(b, 1, self.k)
        r, now = matmul(a, b), acc.a
        if now is acc.mine and len(now) >= len(r):
            now += r
        else:
            acc._a = acc.mine = r + now if len(now) > len(r) else np.add(r, now, out=r)


def _array(x: Any) -> Any:
    return x.u if type(x) is Spread else x


def _address(x: Any) -> int:
    return x.__array_interface__["data"][0]


def _longer(x: Any, axis: int, k: int) -> Any:
    """The window x, its `axis` made k long; the memory behind it belongs to the same array."""
    if type(x) is Spread:
        return x.like(_longer(x.u, axis, k))
    shape = list(x.shape)
    shape[axis] = k
    return np.ndarray(shape, x.dtype, x.base, _address(x) - _address(x.base), x.strides)


def _operand(w: Any, s: Any, t: Tile, transposed: bool, tf32: bool) -> Any:
    """A factor of a product, as it is kept."""
    if t.owed is not None or t._a is None:
        use(t, w, s)
    if t.mine is t._a:
        t.mine = None  # the product keeps the array: later sums go into a new one
    x = t._a
    if type(x) is Spread:
        return x.map(lambda u: _factor(u, transposed, tf32)) if transposed or tf32 else x
    return _factor(x, transposed, tf32)


def _factor(x: Any, transposed: bool, tf32: bool) -> Any:
    if tf32:
        x = numerics.round_to(x, "tf32")
    return x.transpose(0, 2, 1) if transposed else x


def _mma(ta: bool, tb: bool) -> Callable:
    def mma(w: Any, s: Any, m: Any, acc: Tile, left: Tile, right: Tile) -> None:
        d, x = acc.type, left.type
        if w.counting:
            delta = s.cache.get("delta")
            if delta is None:
                k, depth = x.rows if ta else x.cols, {1: 32, 2: 16, 4: 8}[x.dtype.itemsize]
                delta = s.cache["delta"] = counters.Delta(
                    tensor_instructions=d.rows // 16 * (d.cols // 8) * (k // depth),
                    tensor_flops=2 * d.rows * d.cols * k)
            w.add(s.line, delta)
        if acc._a is None:
            raise w.fault("TK513", f"'{acc.name}' ({d}) is added to but nothing was stored in it", s,
                          hint=f"start with warp.zero({acc.name})")
        tf32 = x.dtype.itemsize == 4
        a, b = _operand(w, s, left, ta, tf32), _operand(w, s, right, tb, tf32)
        if acc.owed is not None:
            if acc.owed.extend(a, b):
                return
            acc.owed.settle(acc)
        acc.owed = Product(a, b)
        if d.dtype.itemsize != 4:
            acc.owed.settle(acc)
            acc._a = acc.mine = numerics.round_to(acc._a, _kind(d))

    return mma


for _ta in (False, True):
    for _tb in (False, True):
        OPS["warp.mma_A" + "t" * _ta + "B" + "t" * _tb] = _mma(_ta, _tb)


def _gather(w: Any, s: Any, regs: list, instruction: str, operand: str, shape: tuple[int, int]) -> Any:
    row, col = layouts.fragment(instruction, operand)
    parts = []
    for i, v in enumerate(regs):
        if v is None:
            raise w.fault("TK513", f"register {i} of {operand} is read but nothing was stored in it", s)
        parts.append(v if type(v) is ndarray and v.ndim == 2 else np.full((1, 1), v, np.float32))
    out = np.zeros((max(len(p) for p in parts), *shape), np.float32)
    for i, v in enumerate(parts):
        out[:, row[:, i], col[:, i]] = v
    return out


def _mma_regs(instruction: str, k: int) -> Callable:
    def mma(w: Any, s: Any, m: Any, c: list, a: list, b: list) -> None:
        A, B = _gather(w, s, a, instruction, "A", (16, k)), _gather(w, s, b, instruction, "B", (k, 8))
        C = _gather(w, s, c, instruction, "C", (16, 8))
        if k == 8:
            A, B = numerics.round_to(A, "tf32"), numerics.round_to(B, "tf32")
        C = C + np.matmul(A, B)
        row, col = layouts.fragment(instruction, "C")
        for i in range(4):
            c[i] = C[:, row[:, i], col[:, i]]
        w.add(s.line, delta)

    delta = counters.Delta(tensor_instructions=1, tensor_flops=2 * 16 * 8 * k)
    return mma


OPS["warp.mma_m16n8k16"] = _mma_regs("m16n8k16", 16)
OPS["warp.mma_m16n8k8"] = _mma_regs("m16n8k8.tf32", 8)


@op("warp.ldmatrix")
def _ldmatrix(w: Any, s: Any, m: Any, dst: list, ref: Any, trans: bool) -> None:
    mem, at = ref
    count = len(dst) // 2
    flat, _ = mem.flat(w, at, None, s)
    first = mem.geo.offsets[flat[:, : 8 * count]] + mem.base
    if (first % 16).any():
        b, lane = (int(x) for x in np.argwhere(first % 16)[0])
        raise w.fault("TK505", f"row {lane % 8} of matrix {lane // 8} starts at byte {first[b, lane]}, which is no multiple "
                      "of 16", s, (b, lane), "pad rows by multiples of 8 halves")
    cells = flat[:, : 8 * count, None] + np.arange(8)
    over = cells // mem.geo.dims[-1] != cells[:, :, :1] // mem.geo.dims[-1]
    if over.any():
        b, lane = (int(x) for x in np.argwhere(over)[0][:2])
        raise w.fault("TK504", f"a row of 8 elements from {mem.element(int(flat[b, lane]))} goes past the end of the row", s,
                      (b, lane), "each lane names the first of 8 neighbours")
    if mem.log is not None:
        if len(flat) == 1:
            key = ("ldmatrix", count, flat.tobytes())
            place = mem.geo.places.get(key)
            if place is None:
                idx = np.unique(cells)
                place = mem.geo.places[key] = Place(idx, np.full(len(idx), 63))
            mem.log.read(w, place, s, True)
        else:
            rows = np.repeat(np.arange(len(flat)), 64 * count)
            mem.log.scatter(w, rows, cells.ravel(), np.full(len(rows), 63), s, False)
    if w.counting:
        counters.ldmatrix(w, s, mem.geo.offsets[flat], count)
    d = mem.values()
    v = d[:, cells[0]] if len(flat) == 1 else d[np.arange(len(d))[:, None, None], cells]
    row, col = layouts.ldmatrix(trans)
    for j in range(count):
        for e in range(2):
            dst[2 * j + e] = v[:, 8 * j + row[:, e], col[:, e]]


# --------------------------------------------------------------------------------------- masks
def _masked(keep: Callable) -> Callable:
    def mask(w: Any, s: Any, m: Any, t: Tile, *args: Any) -> None:
        if t.a is None:
            raise w.fault("TK513", f"'{t.name}' is masked but nothing was stored in it", s)
        row, col = np.arange(t.type.rows)[:, None], np.arange(t.type.cols)[None]
        fill = _rounded(args[-1], _kind(t.type))
        inside = keep(row, col, *(lanes.spread3(a) for a in args[:-1]))
        t.a = np.where(inside, t.a, _scalar_like(t, fill))

    return mask


for _n, _keep in {
    "tril": lambda r, c, d: c <= r + d, "triu": lambda r, c, d: c >= r + d, "make_causal": lambda r, c: c <= r,
    "right_fill": lambda r, c, i: c + 0 * r < i, "left_fill": lambda r, c, i: c + 0 * r >= i,
    "lower_fill": lambda r, c, i: r + 0 * c < i, "upper_fill": lambda r, c, i: r + 0 * c >= i,
}.items():
    OPS[f"warp.{_n}"] = _masked(_keep)


# ---------------------------------------------------------------------------- maps, reductions
def _map(f: Callable) -> Callable:
    def run(w: Any, s: Any, m: Any, x: Any) -> Any:
        r = f(x)
        kind = _kind(s.node.type)
        if kind in ("f32", "i32", "i64", "u32"):
            return r
        return numerics.round_to(r, kind, out=r)

    return run


_ONE = np.float32(1)
for _n, _f in {
    "exp": np.exp, "exp2": np.exp2, "log": np.log, "log2": np.log2, "sqrt": np.sqrt, "tanh": np.tanh,
    "sin": np.sin, "cos": np.cos, "abs": np.abs, "rsqrt": lambda x: _ONE / np.sqrt(x), "rcp": lambda x: _ONE / x,
    "relu": lambda x: np.fmax(x, np.float32(0)),
}.items():
    OPS[_n] = _map(_f)


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


# ------------------------------------------------------------------------- between the lanes
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
        return np.take_along_axis(np.broadcast_to(x, (b, 32)), np.broadcast_to(src, (b, src.shape[1])), axis=1)

    return shuffle


def _shfl(w: Any, s: Any, m: Any, x: Any, lane: Any) -> Any:
    if type(x) is not ndarray or x.shape[1] == 1:
        return x
    if type(lane) is not ndarray:
        k = int(lane) % 32
        return x[:, k : k + 1]
    b = max(len(x), len(lane))
    return np.take_along_axis(np.broadcast_to(x, (b, 32)), np.broadcast_to(lane & 31, (b, lane.shape[1])), axis=1)


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
    return (np.broadcast_to(p, (len(p) if type(p) is ndarray else 1, 32)) * live * _BITS).sum(axis=1, keepdims=True)


@op("warp.uniform")
def _uniform(w: Any, s: Any, m: Any, x: Any) -> Any:
    if type(x) is not ndarray:
        return x
    bad = x != x[:, :1]
    if w.mask is not None:
        bad &= w.mask
    if bad.any():
        b, lane = (int(i) for i in np.argwhere(bad)[0])
        raise w.fault("TK512", f"warp.uniform: lane 0 holds {x[b, 0]} and lane {lane} holds {x[b, lane]}", s, (b, lane),
                      "the value must be the same in all 32 lanes")
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
    from tklearn.sim.memory import flat_index

    flat = flat_index(g, w, at, m, s, g.dims, g.strides)
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
        rows, idx, _ = scattered(flat, m)
        mem.log.scatter(w, rows, idx, np.full(len(idx), 61), s, True, atomic=True)


for _n in ("add", "max", "min", "exch", "cas"):
    OPS[f"atomic_{_n}"] = _atomic(_n)


def add_in_order(mem: Any, idx: Any, val: Any) -> None:
    """Float atomics whose order among blocks had to wait."""
    np.add.at(mem.data, idx, val.astype(mem.data.dtype))


__all__ = ["OPS", "RUNTIME", "SV", "add_in_order"]
