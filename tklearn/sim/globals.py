"""Global arrays while a kernel runs: decoded storage, tile windows, and who wrote what.

Storage is row-major with the last two dimensions padded by zeros to whole tiles, so that a tile
load is one gather. Read-only arrays are decoded once; float32 and integer arrays of fitting size
are worked on in place; others are written back when the launch ends. Nothing orders two blocks:
`Owners` keeps, per tile while all accesses are the same tiles and per element after that, the last
writer and reader.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tklearn import numerics
from tklearn.lang.errors import Race
from tklearn.sim.bounds import flat_index
from tklearn.sim.counters import global_lanes
from tklearn.sim.owners import Owners, padded
from tklearn.sim.race_reports import SAME_PLACE
from tklearn.sim.spread import Spread, structure

ndarray = np.ndarray


class GlobalArray:
    """One array argument. rows, cols, depth, batch are what the kernel sees."""

    def __init__(self, sym: Any, array: np.ndarray, check: bool) -> None:
        self.name, self.type, self.user = sym.name, sym.type, array
        self.written, self.read = sym.written, sym.read
        self.dims = array.shape
        self.batch, self.depth, self.rows, self.cols = (1,) * (4 - array.ndim) + array.shape
        self.itemsize = array.dtype.itemsize
        self.kind = sym.type.dtype.name
        self.bstr4 = (0,) * (4 - array.ndim) + array.strides
        self.bstr = array.strides
        self.start = _base_offset(array)
        self.isfloat = sym.type.dtype.kind == "f"
        self._data: Any = None  # made when it is first needed: by then it is known how to pad it
        self.direct = False
        self.rp, self.cp = self.rows, self.cols
        self._layout()
        self.owners = Owners(self) if check and sym.written else None

    # ------------------------------------------------------------------------------- storage
    def _storage(self, rp: int, cp: int) -> None:
        """(Re)make the decoded storage with `rp` rows and `cp` columns a plane."""
        old, shape = self._data, (self.batch, self.depth, self.rows, self.cols)
        if old is None:
            a = self.user
            plain = not self.isfloat or self.kind == "f32"
            if plain and a.flags.c_contiguous and (rp, cp) == shape[2:]:
                self._data, self.direct = a.reshape(-1), True
            else:
                values = numerics.decode(a) if self.isfloat else a
                self._data = padded(values.reshape(shape), rp, cp, values is a)
        else:
            logical = old.reshape(self.batch, self.depth, self.rp, self.cp)[
                :, :, : self.rows, : self.cols
            ]
            self._data, self.direct = padded(logical, rp, cp), False
        self.rp, self.cp = rp, cp
        self._layout()

    @property
    def data(self) -> Any:
        """The elements, flat, with strides `str4`."""
        if self._data is None:
            self._storage(self.rp, self.cp)
        return self._data

    def _layout(self) -> None:
        rp, cp = self.rp, self.cp
        self.str4 = (self.depth * rp * cp, rp * cp, cp, 1)
        self.strides = self.str4[4 - len(self.dims) :]
        tight = tuple(x * self.itemsize for x in self.strides)
        self.linear = all(x == y or n == 1 for x, y, n in zip(tight, self.bstr, self.dims))

    def fit(self, rows: int, cols: int) -> None:
        """Make planes whole numbers of rows x cols tiles."""
        if self.rp % rows or self.cp % cols:
            before, owners = (self.rp, self.cp), self.owners
            if owners is not None and owners.w is not None:
                owners.elements()
            self._storage(-(-self.rp // rows) * rows, -(-self.cp // cols) * cols)
            if owners is not None and owners.w is not None:
                owners.repad(*before)

    def write_back(self) -> None:
        """Put what was written into the caller's array."""
        if not self.written or self.direct or self._data is None:
            return
        v = self.data.reshape(self.batch, self.depth, self.rp, self.cp)[
            :, :, : self.rows, : self.cols
        ]
        v = v.reshape(self.dims)
        self.user[...] = numerics.encode(v, self.kind) if self.isfloat else v

    # -------------------------------------------------------------------------- lane accesses
    def address(self, w: Any, at: tuple, m: Any, s: Any) -> Any:
        return flat_index(self, w, at, m, s, self.dims, self.bstr) + self.start

    def _flat(self, w: Any, at: tuple, m: Any, s: Any, kind: str) -> Any:
        flat = flat_index(self, w, at, m, s, self.dims, self.strides)
        if w.counting:
            addr = flat * self.itemsize + self.start if self.linear else self.address(w, at, m, s)
            global_lanes(w, s, kind, addr, m, self.itemsize)
        return flat

    def load(self, w: Any, at: tuple, m: Any, s: Any) -> Any:
        flat = self._flat(w, at, m, s, "ld")
        w.batch.flush(self)
        if self.owners is not None and self.read:
            self.owners.lanes(w, s, flat, m, False)
        v = self.data[flat]
        if self.isfloat:
            return v
        if self.kind == "bool":
            return v
        return v.astype(np.int64) if type(v) is ndarray else int(v)

    def store(self, w: Any, at: tuple, v: Any, m: Any, s: Any) -> None:
        flat = self._flat(w, at, m, s, "st")
        w.batch.flush(self)
        if self.isfloat and self.kind != "f32":
            v = numerics.round_to(v, self.kind)
        elif self.kind == "u8":
            v = v & 0xFF
        doubled = self.owners is not None and self.owners.lanes(w, s, flat, m, True)
        b = (
            max(len(x) for x in (flat, v, m) if type(x) is ndarray and x.ndim)
            if any(type(x) is ndarray and x.ndim for x in (flat, v, m))
            else 1
        )
        b = w.batch.n if b > 1 else 1
        shape = (b, 32)
        if m is None:
            if type(flat) is ndarray and flat.shape == shape:
                self.data[flat] = v
            else:
                self.data[np.broadcast_to(flat, shape)] = v
            idx, val = flat, v
        else:
            m = np.broadcast_to(m, shape)
            idx = np.broadcast_to(flat, shape)[m]
            val = np.broadcast_to(v, shape)[m]
            self.data[idx] = val
        if doubled:
            got, want = np.broadcast_arrays(self.data[idx], val)
            bad = (got != want) & (want == want)
            if bad.any():
                e = int(np.broadcast_to(idx, bad.shape)[bad][0])
                raise w.fault(
                    "TK501",
                    f"lanes of warp {w.id} write different values to {self.element(e)} at once",
                    s,
                    hint=SAME_PLACE,
                    kind=Race,
                )

    def element(self, e: int) -> str:
        at = np.unravel_index(e, (self.batch, self.depth, self.rp, self.cp))[4 - len(self.dims) :]
        return f"{self.name}[{', '.join(str(int(i)) for i in at)}]"

    # --------------------------------------------------------------------------- tile accesses
    def window(self, w: Any, at: tuple, rows: int, cols: int, s: Any) -> Window:
        return Window(self, w, at, rows, cols, s)


class Window:
    """The place of one tile access: per block the first row and column, and what lies inside."""

    __slots__ = ("g", "rows", "cols", "b", "d", "r", "c", "single", "clipped", "left")

    def __init__(self, g: GlobalArray, w: Any, at: tuple, rows: int, cols: int, s: Any) -> None:
        self.g, self.rows, self.cols = g, rows, cols
        g.fit(rows, cols)
        spans = [_span(w.batch, x) for x in (0,) * (4 - len(at)) + at]
        self.single = all(type(x[0]) is int for x in spans)
        # numbers, or one for each block
        self.b, self.d, self.r, self.c = (x[0] for x in spans)
        for x, what, size in zip(spans, ("batch", "depth", "row", "column"), (g.batch, g.depth)):
            if x[1] < 0 or x[2] >= size:
                raise self._outside(w, s, x[0], what, f"that of {g.name} is {size}", size)
        self._edges(w, s, spans[2], spans[3])

    def _edges(self, w: Any, s: Any, r: Any, c: Any) -> None:
        """What lies past the array's last row and column."""
        g, rows, cols = self.g, self.rows, self.cols
        for x, what in ((r, "row"), (c, "column")):
            if x[1] < 0:
                raise self._outside(w, s, x[0], what, "it must not be negative", 1 << 62)
        self.clipped = (r[2] + 1) * rows > g.rows or (c[2] + 1) * cols > g.cols
        self.left = None
        if self.clipped:
            lr, lc = self.left = (g.rows - self.r * rows, g.cols - self.c * cols)
            outside = rows * cols - _clip(lr, rows) * _clip(lc, cols)
            one = type(outside) is int
            w.clip(s.line, outside * w.batch.n if one else int(outside.sum()))

    @staticmethod
    def _outside(w: Any, s: Any, x: Any, what: str, limit: str, size: int) -> Exception:
        k = int(np.argmax((np.asarray(x) < 0) | (np.asarray(x) >= size)))
        return w.fault(
            "TK504",
            f"the tile coordinate's {what} is {int(np.ravel(x)[k])}; {limit}",
            s,
            (k, None),
            "coordinates count tiles of this operation's shape, not elements",
        )

    def _pieces(self) -> tuple[Any, Any]:
        """Numbers [blocks, rows] of `cols` wide pieces of storage, and which blocks are outside."""
        g = self.g
        per = g.cp // self.cols
        top: Any = (self.b * g.depth + self.d) * g.rp + self.r * self.rows
        out: Any = None
        if self.clipped:
            over = (self.r * self.rows >= g.rp) | (self.c >= per)
            if np.any(over):
                top, out = np.where(over, 0, top), over
        c = self.c if out is None else np.where(out, 0, self.c)
        first = np.asarray(top * per + c).reshape(-1, 1)
        return first + np.arange(self.rows)[None] * per, out

    def load(self, once: bool = False) -> Any:
        """The tiles (blocks or 1, rows, cols), zeros past the end; the array is fresh or read-only.

        once: equal tiles may come as one, in a Spread.
        """
        g, R, C = self.g, self.rows, self.cols
        if self.single and not self.clipped:
            plane = g.data.reshape(g.batch, g.depth, g.rp, g.cp)
            v = plane[self.b, self.d, self.r * R : (self.r + 1) * R, self.c * C : (self.c + 1) * C][
                None
            ]
            return v if not g.written else v.copy()
        pieces, out = self._pieces()
        if not g.data.size:  # no row, or no column, at all
            return np.zeros((len(pieces), R, C), g.data.dtype)
        if out is None and once and len(pieces) > 3:
            how = structure(pieces[:, 0])
            if how is not None:
                outer, inner, axis = how
                pieces = pieces[:inner] if axis else pieces[::inner]
                v = g.data.reshape(-1, C).take(pieces, axis=0)
                return v if outer == 1 and axis == 0 else Spread(v, outer, inner, axis)
        v = g.data.reshape(-1, C).take(pieces, axis=0)
        if out is not None:
            v[np.broadcast_to(out, len(v))] = 0
        return v

    def store(self, v: Any, n: int) -> None:
        """Write tiles (blocks or 1, rows, cols)."""
        g, R, C = self.g, self.rows, self.cols
        if self.single:
            v = v[-1:]
        if not self.clipped:
            if self.single:
                plane = g.data.reshape(g.batch, g.depth, g.rp, g.cp)
                plane[
                    self.b, self.d, self.r * R : (self.r + 1) * R, self.c * C : (self.c + 1) * C
                ] = v[0]
            else:
                g.data.reshape(-1, C)[self._pieces()[0]] = v
            return
        plane = g.data.reshape(g.batch, g.depth, g.rp, g.cp)
        b, d, r, c, lr, lc = (
            np.broadcast_to(x, n if not self.single else 1)
            for x in (self.b, self.d, self.r, self.c, *(self.left or ()))
        )
        for k in range(len(b)):
            vr, vc = min(int(lr[k]), R), min(int(lc[k]), C)
            if vr > 0 and vc > 0:
                r0, c0 = int(r[k]) * R, int(c[k]) * C
                plane[b[k], d[k], r0 : r0 + vr, c0 : c0 + vc] = v[k if len(v) > 1 else 0, :vr, :vc]

    def elements(self, n: int) -> tuple[Any, Any]:
        """Numbers in storage of all elements [n, rows * cols], and which lie inside the array."""
        R, C = self.rows, self.cols
        pieces, _ = self._pieces()
        idx = (pieces[:, :, None] * C + np.arange(C)).reshape(len(pieces), -1)
        inside: Any = np.ones((1, R, C), bool)
        if self.left is not None:
            lr, lc = (np.asarray(x).reshape(-1, 1, 1) for x in self.left)
            inside = (np.arange(R)[None, :, None] < lr) & (np.arange(C)[None, None] < lc)
        inside = inside.reshape(len(inside), -1)
        return np.broadcast_to(idx, (n, R * C)), np.broadcast_to(inside, (n, R * C))

    def overlaps(self, other: Window) -> Any:
        """Per block, whether two places of one array share an element."""
        sides = (
            (self.b == other.b)
            & (self.d == other.d)
            & (self.r * self.rows < (other.r + 1) * other.rows)
            & (other.r * other.rows < (self.r + 1) * self.rows)
            & (self.c * self.cols < (other.c + 1) * other.cols)
            & (other.c * other.cols < (self.c + 1) * self.cols)
        )
        return np.atleast_1d(sides)

    def keys(self, unit: int = 32) -> list[tuple[Any, int, int]]:
        """(limit or None, start in a sector, blocks) of each kind of place, for counting.

        unit: 128 where the start in a 128-byte line is wanted.
        """
        g = self.g
        sb, sd, sr, sc = g.bstr4
        if self.single:
            at = (
                g.start
                + self.b * sb
                + self.d * sd
                + self.r * self.rows * sr
                + self.c * self.cols * sc
            )
            return [((self.left if self.clipped else None), int(at) % unit, 1)]
        if not self.clipped and not (
            (self.rows * sr) % unit or (self.cols * sc) % unit or sd % unit or sb % unit
        ):
            return [(None, g.start % unit, 1)]
        at = g.start + self.b * sb + self.d * sd + self.r * self.rows * sr + self.c * self.cols * sc
        if self.left is None:
            starts, counts = np.unique(at % unit, return_counts=True)
            return [(None, int(x), int(n)) for x, n in zip(starts, counts)]
        lr, lc = (_clip(x, k) for x, k in zip(self.left, (self.rows, self.cols)))
        key = (np.asarray(at) % unit << 48) + (lr << 24) + lc
        kinds, counts = np.unique(key, return_counts=True)
        full = (self.rows << 24) + self.cols
        return [
            (None if x & (1 << 48) - 1 == full else (x >> 24 & 0xFFFFFF, x & 0xFFFFFF), x >> 48, n)
            for x, n in zip(kinds.tolist(), counts.tolist())
        ]


def _clip(x: Any, most: int) -> Any:
    """x between 0 and `most`; np.clip takes ten times as long on short arrays."""
    if type(x) is int:
        return min(max(x, 0), most)
    return np.minimum(np.maximum(x, 0), most)


def _span(batch: Any, x: Any) -> tuple[Any, int, int]:
    """A coordinate as a number or [blocks], its least and its greatest value."""
    if type(x) is not ndarray:
        x = int(x)
        return x, x, x
    got = batch.spans.get(id(x))
    if got is None:
        flat: Any = x[:, 0]
        if len(flat) == 1:
            flat = int(flat[0])
        # the entry keeps x alive, so that its id stays its own
        got = batch.spans[id(x)] = (flat, int(np.min(flat)), int(np.max(flat)), x)
        if len(batch.spans) > 256:
            batch.spans.clear()
    return got[:3]


def _base_offset(a: np.ndarray) -> int:
    """Bytes from the start of the allocation that `a` is a view of, which a GPU aligns to 256."""
    root = a
    while isinstance(root.base, np.ndarray):
        root = root.base
    return int(a.ctypes.data - root.ctypes.data) if root is not a else 0
