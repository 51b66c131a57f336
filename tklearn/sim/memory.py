"""Shared tiles and arrays, and register tiles: where values live while a kernel runs.

Narrow floats are kept decoded, as float32 that the narrow type can hold exactly; the bits are made
when the launch ends or an alias looks at them. Shared memory has a leading block axis of 1 as long
as all blocks of the batch agree. Register tiles share arrays with shared memory, so nobody writes
into an array that may be lent. This file knows indices, addresses and bounds; what an access costs
is counters.py's and whether it is ordered races.py's.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from tklearn import numerics
from tklearn.lang import layouts
from tklearn.lang.types import ST, SArr, SubST
from tklearn.sim.bounds import flat_index
from tklearn.sim.counters import global_lanes, shared_lanes, shared_place
from tklearn.sim.lanes import as_int
from tklearn.sim.races import Log, Place
from tklearn.sim.spread import Spread

ndarray = np.ndarray
LANE = np.arange(32)
NATURAL = {"i32": np.int32, "u32": np.uint32, "i64": np.int64, "u8": np.uint8, "bool": np.bool_}


class Tile:
    """A register tile or vector: `a` is (blocks or 1, rows, cols) or (blocks or 1, n) float32.

    It may be kept as a Spread until somebody asks. `mine` is the array that only this tile holds
    and may therefore be added to in place. `busy` is the wgmma group that is using it.
    """

    __slots__ = ("type", "name", "_a", "mine", "busy")

    def __init__(self, type: Any, name: str, a: Any = None) -> None:
        self.type, self.name, self._a = type, name, a
        self.mine: Any = None
        self.busy: Any = None

    @property
    def a(self) -> Any:
        if self.busy is not None:
            self.busy.touched(self, "read")
        if type(self._a) is Spread:
            self._a = self._a.expand()
        return self._a

    @a.setter
    def a(self, value: Any) -> None:
        if self.busy is not None:
            self.busy.touched(self, "written")
        self._a = value

    def __repr__(self) -> str:
        return f"{self.name}: {self.type} = {self.a}"


def use(t: Tile, w: Any, s: Any) -> Any:
    """The array of a tile that is read."""
    if t._a is None:
        raise w.fault(
            "TK513",
            f"'{t.name}' ({t.type}) is read but nothing was stored in it",
            s,
            hint=f"fill it first: warp.zero({t.name}), warp.load({t.name}, ...)",
        )
    return t.a


class Geometry:
    """The index maths of a shared type: element number -> byte offset, and interned places."""

    def __init__(self, type: Any) -> None:
        self.type = type
        self.itemsize = type.dtype.itemsize
        if isinstance(type, ST):
            self.dims: tuple[int, ...] = (type.rows, type.cols)
            self.tile = layouts.SharedTile(
                type.rows, type.cols, self.itemsize, type.swizzle, type.pad
            )
            self.offsets = np.asarray(
                self.tile.offset(np.arange(type.rows)[:, None], np.arange(type.cols)[None])
            )
            self.offsets = self.offsets.reshape(-1).astype(np.int64)
        else:
            self.dims = type.dims if isinstance(type, SArr) else (type.n,)
            if not isinstance(type, SArr):
                self.tile = layouts.SharedTile(1, type.n, self.itemsize)
            self.offsets = np.arange(int(np.prod(self.dims)), dtype=np.int64) * self.itemsize
        self.n = len(self.offsets)
        strides = np.cumprod((1, *self.dims[::-1]))[:-1][::-1]
        self.strides = tuple(int(x) for x in strides)
        self.places: dict[Any, Place] = {}
        self.whole = Place(np.arange(self.n), np.full(self.n, 63))
        self.narrow = type.dtype.kind == "f" and type.dtype.name != "f32"
        self.store_dtype = np.float32 if type.dtype.kind == "f" else NATURAL[type.dtype.name]

    def place(self, flat: Any, m: Any) -> Place:
        """The interned place of 32 element numbers [1, 32] under a mask [1, 32] or None."""
        key = (flat.tobytes(), None if m is None else m.tobytes())
        p = self.places.get(key)
        if p is None:
            lanes = LANE if m is None else np.flatnonzero(m[0])
            if len(self.places) > 1 << 14:
                self.places.clear()
            p = self.places[key] = Place(flat[0, lanes].copy(), lanes)
            p.extra["at"] = (
                np.where(m[0], self.offsets[flat[0]], -1)
                if m is not None
                else self.offsets[flat[0]]
            )
        return p

    def window(self, r0: int, c0: int, rows: int, cols: int, how: str) -> Place:
        """The place of a warp's access to a window; how: "ldmatrix" or a register layout."""
        key = (r0, c0, rows, cols, how)
        p = self.places.get(key)
        if p is None:
            grid = (
                np.arange(r0, r0 + rows)[:, None] * self.dims[1] + np.arange(c0, c0 + cols)[None]
            ).ravel()
            lanes = (
                np.full(len(grid), 63)
                if how == "ldmatrix"
                else layouts.rt_owner(rows, cols, how)[0].ravel()
            )
            p = self.places[key] = Place(grid, lanes)
        return p


@lru_cache(maxsize=512)
def geometry(type: Any) -> Geometry:
    """The one Geometry of a type: places are compared by identity."""
    return Geometry(type)


class SharedMem:
    """A shared tile, vector or array of one batch. `data` is (blocks or 1, elements)."""

    __slots__ = (
        "name",
        "type",
        "geo",
        "base",
        "blocks",
        "data",
        "spread",
        "lent",
        "log",
        "copy",
        "family",
        "turned",
    )

    def __init__(self, name: str, type: Any, base: int, blocks: int, check: bool) -> None:
        self.name, self.type, self.base, self.blocks = name, type, base, blocks
        self.geo = geometry(type)
        self.data: Any = None
        self.spread: Spread | None = None  # the tiles, where many blocks have the same one
        self.lent = False
        self.log: Any = Log(self, self.geo.n) if check else None
        self.copy: Any = None  # the cooperative copy that is under way
        self.family: Any = None
        self.turned: Any = None  # the elements as the factor of a product, for the next products

    # -------------------------------------------------------------------------------- values
    def values(self) -> Any:
        """The decoded elements (blocks or 1, n), to read from."""
        if self.family is not None:
            return self.family.view(self)
        if self.spread is not None:
            v = self.spread.expand()
            self.data, self.spread, self.lent = v.reshape(len(v), -1), None, False
        if self.data is None:
            poison = np.nan if self.geo.store_dtype == np.float32 else 0
            self.data = np.full((1, self.geo.n), poison, self.geo.store_dtype)
        return self.data

    def own(self, blocks: int) -> Any:
        """The elements to write into, for `blocks` blocks (1: the same value in all)."""
        self.turned = None
        d = self.values()
        if len(d) < blocks:
            self.data, self.lent = np.repeat(d, blocks, axis=0), False
        elif self.lent:
            self.data, self.lent = d.copy(), False
        return self.data

    def bind(self, values: Any) -> None:
        """Replace all elements by (blocks or 1, ...) `values`, which nobody else writes to."""
        self.turned = None
        if type(values) is Spread and self.family is None:
            self.spread = values
            return
        if type(values) is Spread:
            values = values.expand()
        self.spread = None
        self.data, self.lent = values.reshape(len(values), -1), False
        self.changed()

    def changed(self) -> None:
        if self.family is not None:
            self.family.store(self)

    def element(self, e: int) -> str:
        """The name of element number e, for messages."""
        at = np.unravel_index(e, self.geo.dims)
        return f"{self.name}[{', '.join(str(int(i)) for i in at)}]"

    # ---------------------------------------------------------------------------- lane accesses
    def flat(self, w: Any, at: tuple, m: Any, s: Any) -> tuple[Any, Any]:
        """Element numbers and the mask, both broadcast to (blocks or 1, 32)."""
        flat = flat_index(self, w, at, m, s, self.geo.dims, self.geo.strides)
        if type(flat) is not ndarray:
            flat = np.full((1, 32), flat)
        b = len(flat) if m is None else max(len(flat), len(m))
        if flat.shape != (b, 32):
            flat = np.broadcast_to(flat, (b, 32))
        if m is not None and m.shape != (b, 32):
            m = np.broadcast_to(m, (b, 32))
        return flat, m

    def load(self, w: Any, at: tuple, m: Any, s: Any) -> Any:
        flat, m = self.flat(w, at, m, s)
        if len(flat) == 1:
            p = self.geo.place(flat, m)
            if self.log is not None:
                self.log.read(w, p, s)
            shared_place(w, s, "ld", self, p, self.geo.itemsize)
            return number(self.values()[:, flat[0]])
        rows, idx, lanes = scattered(flat, m)
        if self.log is not None:
            self.log.scatter(w, rows, idx, lanes, s, False)
        shared_lanes(w, s, "ld", self, flat, m, self.geo.itemsize)
        d = self.values()
        return number(d[np.arange(len(d))[:, None], flat])

    def store(self, w: Any, at: tuple, v: Any, m: Any, s: Any) -> None:
        flat, m = self.flat(w, at, m, s)
        if self.geo.narrow:
            v = numerics.round_to(v, self.type.dtype.name)
        elif self.type.dtype.name == "u8":
            v = v & 0xFF
        b = len(v) if type(v) is ndarray and v.ndim else 1
        if len(flat) == 1:
            p = self.geo.place(flat, m)
            if self.log is not None:
                self.log.write(w, p, s)
            shared_place(w, s, "st", self, p, self.geo.itemsize)
            d = self.own(b)
            if type(v) is ndarray and v.ndim:
                v = np.broadcast_to(v, (b, 32))[:, p.lanes]
            d[:, p.idx] = v
            if (
                p.repeated
                and self.log is not None
                and type(v) is ndarray
                and (d[:, p.idx] != v).any()
            ):
                self._collision(w, s, d, v, p)
        else:
            rows, idx, lanes = scattered(flat, m)
            if self.log is not None:
                self.log.scatter(w, rows, idx, lanes, s, True)
            shared_lanes(w, s, "st", self, flat, m, self.geo.itemsize)
            d = self.own(w.batch.n)
            if type(v) is ndarray and v.ndim:
                v = np.broadcast_to(v, flat.shape)[rows, lanes]
            d[rows, idx] = v
            if (
                self.log is not None
                and type(v) is ndarray
                and (bad := (d[rows, idx] != v) & (v == v)).any()
            ):
                k = int(bad.argmax())
                same = (rows == rows[k]) & (idx == idx[k])
                raise self.log.same_instruction(
                    w, s, int(idx[k]), lanes[same].tolist(), int(rows[k])
                )
        self.changed()

    def _collision(self, w: Any, s: Any, d: Any, v: Any, p: Place) -> None:
        bad = (d[:, p.idx] != v) & (v == v)
        if bad.any():
            b, k = np.unravel_index(int(bad.argmax()), bad.shape)
            lanes = p.lanes[p.idx == p.idx[k]].tolist()
            assert self.log is not None
            raise self.log.same_instruction(w, s, int(p.idx[k]), lanes, int(b))


def scattered(flat: Any, m: Any) -> tuple[Any, Any, Any]:
    """(block, element, lane) of the active lanes of flat [blocks, 32]."""
    rows, lanes = np.nonzero(m) if m is not None else np.divmod(np.arange(flat.size), 32)
    return rows, flat[rows, lanes], lanes


def number(v: Any) -> Any:
    """Loaded elements as lanes hold them: float32, int64 or bool."""
    return v.astype(np.int64) if v.dtype.kind in "iu" else v


# --------------------------------------------------------------------------- run-time functions
def load(w: Any, mem: Any, at: tuple, m: Any, s: Any) -> Any:
    return mem.load(w, at, m, s)


def store(w: Any, mem: Any, at: tuple, v: Any, m: Any, s: Any) -> None:
    mem.store(w, at, v, m, s)


def _aligned(w: Any, addr: Any, nbytes: int, mem: Any, m: Any, s: Any) -> None:
    bad = (addr % nbytes) != 0
    if np.any(bad):
        pos = w.first(m, bad)
        if pos is not None:
            raise w.fault(
                "TK505",
                f"a {nbytes}-byte access to {mem.name} at byte {w.at_position(addr, pos)}, "
                f"which is no multiple of {nbytes}",
                s,
                pos,
                "rows must be multiples of the vector: pad them, or use a narrower tk.vec",
            )


def _wide(w: Any, mem: Any, at: tuple, n: int, m: Any, s: Any, kind: str) -> tuple:
    """The index of the first of n elements, in elements; the one access is checked and counted."""
    at = (*at[:-1], at[-1] * n)
    if isinstance(mem, SharedMem):
        dims, size = mem.geo.dims, mem.geo.itemsize
    else:
        dims, size = mem.dims, mem.itemsize
    flat_index(mem, w, (*at[:-1], at[-1] + (n - 1)), m, s, dims, (0,) * len(dims))
    if isinstance(mem, SharedMem):
        flat, full = mem.flat(w, at, m, s)
        _aligned(w, mem.geo.offsets[flat] + mem.base, n * size, mem, full, s)
        shared_lanes(w, s, kind, mem, flat, full, n * size)
    else:
        addr = mem.address(w, at, m, s)
        _aligned(w, addr, n * size, mem, m, s)
        global_lanes(w, s, kind, addr, m, n * size)
    return at


def vload(w: Any, mem: Any, at: tuple, n: int, m: Any, s: Any) -> list:
    """n neighbouring elements a lane, in one access of n * itemsize bytes."""
    first = _wide(w, mem, at, n, m, s, "ld")
    with w.silent():
        return [mem.load(w, (*first[:-1], first[-1] + k), m, s) for k in range(n)]


def vstore(w: Any, mem: Any, at: tuple, n: int, values: Any, m: Any, s: Any) -> None:
    first = _wide(w, mem, at, n, m, s, "st")
    with w.silent():
        for k, v in enumerate(values):
            mem.store(w, (*first[:-1], first[-1] + k), v, m, s)


def select(w: Any, mems: Any, at: tuple, s: Any) -> Any:
    """One tile, or a smaller array of tiles, of tk.shared(T, *dims)."""
    for i in at:
        k = as_int(w, i, s)
        if not 0 <= k < len(mems.items):
            raise w.fault(
                "TK504",
                f"{mems.name}[{k}] is outside {mems.name}, which has {len(mems.items)} "
                f"tile{'s' * (len(mems.items) != 1)}",
                s,
                hint="stages are counted modulo their number: s = k % STAGES",
            )
        mems = mems.items[k]
    return mems


class SharedArray:
    """tk.shared(T, *dims): nested lists of SharedMem."""

    __slots__ = ("name", "items")

    def __init__(self, name: str, items: list) -> None:
        self.name, self.items = name, items


class SubTile:
    """A window of a shared tile: its first row and column in elements."""

    __slots__ = ("mem", "r0", "c0", "type")

    def __init__(self, mem: SharedMem, r0: int, c0: int, type: SubST) -> None:
        self.mem, self.r0, self.c0, self.type = mem, r0, c0, type


def subtile(w: Any, mem: SharedMem, i: Any, j: Any, type: SubST, s: Any) -> SubTile:
    i, j = as_int(w, i, s), as_int(w, j, s)
    nr, nc = mem.type.rows // type.rows, mem.type.cols // type.cols
    if not (0 <= i < nr and 0 <= j < nc):
        raise w.fault(
            "TK504",
            f"subtile ({i}, {j}) is outside {mem.name}, which has {nr} x {nc} subtiles",
            s,
            hint="subtile coordinates count windows, not elements",
        )
    return SubTile(mem, i * type.rows, j * type.cols, type)


def reg(w: Any, regs: list, k: int, s: Any) -> Any:
    v = regs[k]
    if v is None:
        raise w.fault(
            "TK513",
            f"register {k} is read but nothing was stored in it",
            s,
            hint="fill all registers of a reg_array before reading them",
        )
    return v


def set_reg(regs: list, k: int, v: Any, m: Any, kind: str) -> None:
    if kind in ("bf16", "f16"):
        v = numerics.round_to(v, kind)
    old = regs[k]
    regs[k] = v if m is None else np.where(m, v, 0 if old is None else old)


def tile_reg(w: Any, t: Tile, i: int, s: Any) -> Any:
    """This lane's i-th element of a register tile: (blocks or 1, 32)."""
    a = use(t, w, s)
    row, col = layouts.rt_coords(t.type.rows, t.type.cols, t.type.layout.name)
    return a[:, row[:, i], col[:, i]]


def set_tile_reg(w: Any, t: Tile, i: int, v: Any, m: Any, s: Any) -> None:
    row, col = layouts.rt_coords(t.type.rows, t.type.cols, t.type.layout.name)
    if t.type.dtype.name != "f32":
        v = numerics.round_to(v, t.type.dtype.name)
    old = np.full((1, t.type.rows, t.type.cols), np.nan, np.float32) if t.a is None else t.a
    b = max(len(old), len(v) if type(v) is ndarray and v.ndim else 1, 1 if m is None else len(m))
    a = np.repeat(old, b, axis=0) if b > len(old) else old.copy()
    r, c = row[:, i], col[:, i]
    a[:, r, c] = v if m is None else np.where(m, v, a[:, r, c])
    t.a = a


RUNTIME: dict[str, Any] = {
    "_Tile": Tile,
    "_use": use,
    "_load": load,
    "_store": store,
    "_vload": vload,
    "_vstore": vstore,
    "_select": select,
    "_subtile": subtile,
    "_reg": reg,
    "_set_reg": set_reg,
    "_tile_reg": tile_reg,
    "_set_tile_reg": set_tile_reg,
}
