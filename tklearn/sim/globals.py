"""Global arrays while a kernel runs: decoded storage, tile windows, and who wrote what.

Storage is row-major with the last two dimensions padded by zeros to whole tiles, so that a tile load
is one gather. Read-only arrays are decoded once; float32 and integer arrays of fitting size are worked
on in place; others are written back when the launch ends. Nothing orders two blocks: `Owners` keeps,
per tile while all accesses are the same tiles and per element after that, the last writer and reader.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tklearn import numerics
from tklearn.lang.errors import Race
from tklearn.sim.counters import global_lanes
from tklearn.sim.spread import Spread, structure

ndarray = np.ndarray
LANES = np.arange(32, dtype=np.int64)[None]
MANY = (1 << 24) - 1
CODES = {"row": 60, "col": 61, "vec": 59, "group": 58}
ATOMIC = 57


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
                self._data = self._padded(values.reshape(shape), rp, cp, values is a)
        else:
            logical = old.reshape(self.batch, self.depth, self.rp, self.cp)[:, :, : self.rows, : self.cols]
            self._data, self.direct = self._padded(logical, rp, cp), False
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
        self.strides = self.str4[4 - len(self.dims):]
        tight = tuple(x * self.itemsize for x in self.strides)
        self.linear = all(x == y or n == 1 for x, y, n in zip(tight, self.bstr, self.dims))

    @staticmethod
    def _padded(values: Any, rp: int, cp: int, copy: bool = True) -> Any:
        if values.shape[2:] == (rp, cp):
            return (np.array(values, order="C", copy=True) if copy else np.ascontiguousarray(values)).reshape(-1)
        out = np.zeros((*values.shape[:2], rp, cp), values.dtype)
        out[:, :, : values.shape[2], : values.shape[3]] = values
        return out.reshape(-1)

    def fit(self, rows: int, cols: int) -> None:
        """Make planes whole numbers of rows x cols tiles."""
        if self.rp % rows or self.cp % cols:
            before, known = (self.rp, self.cp), self.owners is not None and self.owners.w is not None
            if known:
                self.owners.elements()
            self._storage(-(-self.rp // rows) * rows, -(-self.cp // cols) * cols)
            if known:
                self.owners.repad(*before)

    def write_back(self) -> None:
        """Put what was written into the caller's array."""
        if not self.written or self.direct or self._data is None:
            return
        v = self.data.reshape(self.batch, self.depth, self.rp, self.cp)[:, :, : self.rows, : self.cols]
        v = v.reshape(self.dims)
        self.user[...] = numerics.encode(v, self.kind) if self.isfloat else v

    # -------------------------------------------------------------------------- lane accesses
    def address(self, w: Any, at: tuple, m: Any, s: Any) -> Any:
        from tklearn.sim.memory import flat_index

        return flat_index(self, w, at, m, s, self.dims, self.bstr) + self.start

    def _flat(self, w: Any, at: tuple, m: Any, s: Any, kind: str) -> Any:
        from tklearn.sim.memory import flat_index

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
        doubled = self.owners is not None and self.owners.lanes(w, s, flat, m, True)
        b = max(len(x) for x in (flat, v, m) if type(x) is ndarray and x.ndim) if any(
            type(x) is ndarray and x.ndim for x in (flat, v, m)) else 1
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
                raise w.fault("TK501", f"lanes of warp {w.id} write different values to {self.element(e)} at once", s,
                              hint="which lane wins is undefined: use an atomic, or let one lane store", kind=Race)

    def element(self, e: int) -> str:
        at = np.unravel_index(e, (self.batch, self.depth, self.rp, self.cp))[4 - len(self.dims):]
        return f"{self.name}[{', '.join(str(int(i)) for i in at)}]"

    # --------------------------------------------------------------------------- tile accesses
    def window(self, w: Any, at: tuple, rows: int, cols: int, s: Any) -> Window:
        return Window(self, w, at, rows, cols, s)


class Window:
    """The place of one tile access: per block the first row and column, and what lies inside."""

    __slots__ = ("g", "rows", "cols", "b", "d", "r", "c", "single", "clipped", "left")

    def __init__(self, g: GlobalArray, w: Any, at: tuple, rows: int, cols: int, s: Any) -> None:
        self.g, self.rows, self.cols = g, rows, cols
        at = (0,) * (4 - len(at)) + at
        g.fit(rows, cols)
        self.single = not any(type(x) is ndarray for x in at)
        if self.single:
            self.b, self.d, self.r, self.c = (int(x) for x in at)
        else:
            self.b, self.d, self.r, self.c = (
                x[:, 0] if type(x) is ndarray else np.full(1, x) for x in at)
        n = w.batch.n
        for what, x, size in (("batch", self.b, g.batch), ("depth", self.d, g.depth), ("row", self.r, None),
                              ("column", self.c, None)):
            low, high = (x, x) if self.single else (x.min(), x.max())
            if low < 0 or (size is not None and high >= size):
                k = 0 if self.single else int(((x < 0) | (x >= (size or 1 << 62))).argmax())
                value = x if self.single else int(x[k])
                limit = f"{g.name} has {size}" if size is not None else "it must not be negative"
                raise w.fault("TK504", f"the tile coordinate's {what} is {value}; {limit}", s, (k, None),
                              "coordinates count tiles of this operation's shape, not elements")
        lr, lc = g.rows - self.r * rows, g.cols - self.c * cols
        edge = (lr < rows) | (lc < cols)
        self.clipped = bool(edge if self.single else edge.any())
        self.left = None
        if self.clipped:
            vr, vc = np.clip(lr, 0, rows), np.clip(lc, 0, cols)
            self.left = (lr, lc)
            outside = rows * cols - vr * vc
            total = int(np.sum(outside if self.single else np.broadcast_to(outside, (n if np.size(outside) == 1 else np.size(outside),))))
            w.clip(s.line, total * (n if self.single else 1))

    def _pieces(self) -> tuple[Any, Any]:
        """Row-piece numbers [blocks, rows] in storage of `cols` wide pieces, and blocks wholly outside."""
        g = self.g
        per = g.cp // self.cols
        top = (self.b * g.depth + self.d) * g.rp + self.r * self.rows
        out = None
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
            v = plane[self.b, self.d, self.r * R : (self.r + 1) * R, self.c * C : (self.c + 1) * C][None]
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
                plane[self.b, self.d, self.r * R : (self.r + 1) * R, self.c * C : (self.c + 1) * C] = v[0]
            else:
                g.data.reshape(-1, C)[self._pieces()[0]] = v
            return
        plane = g.data.reshape(g.batch, g.depth, g.rp, g.cp)
        b, d, r, c, lr, lc = (np.broadcast_to(x, n if not self.single else 1) for x in
                              (self.b, self.d, self.r, self.c, *self.left))
        for k in range(len(b)):
            vr, vc = min(int(lr[k]), R), min(int(lc[k]), C)
            if vr > 0 and vc > 0:
                r0, c0 = int(r[k]) * R, int(c[k]) * C
                plane[b[k], d[k], r0 : r0 + vr, c0 : c0 + vc] = v[k if len(v) > 1 else 0, :vr, :vc]

    def keys(self) -> list[tuple[Any, int, int]]:
        """(limit or None, start in a sector, blocks) of each kind of place, for counting."""
        g = self.g
        sb, sd, sr, sc = g.bstr4
        if self.single:
            at = g.start + self.b * sb + self.d * sd + self.r * self.rows * sr + self.c * self.cols * sc
            return [((self.left if self.clipped else None), int(at) % 32, 1)]
        if not self.clipped and not ((self.rows * sr) % 32 or (self.cols * sc) % 32 or sd % 32 or sb % 32):
            return [(None, g.start % 32, 1)]
        at = g.start + self.b * sb + self.d * sd + self.r * self.rows * sr + self.c * self.cols * sc
        if self.left is None:
            starts, counts = np.unique(at % 32, return_counts=True)
            return [(None, int(x), int(n)) for x, n in zip(starts, counts)]
        lr, lc = (np.clip(x, 0, k) for x, k in zip(self.left, (self.rows, self.cols)))
        kinds, counts = np.unique((np.asarray(at) % 32 << 48) + (lr << 24) + lc, return_counts=True)
        full = (self.rows << 24) + self.cols
        return [(None if x & (1 << 48) - 1 == full else (x >> 24 & 0xFFFFFF, x & 0xFFFFFF), x >> 48, n)
                for x, n in zip(kinds.tolist(), counts.tolist())]


def _base_offset(a: np.ndarray) -> int:
    """Bytes from the start of the allocation that `a` is a view of, which a GPU aligns to 256."""
    root = a
    while isinstance(root.base, np.ndarray):
        root = root.base
    return int(a.ctypes.data - root.ctypes.data) if root is not a else 0


class Owners:
    """Last writer and last reader of each tile or element of a written array.

    An entry packs block+1 << 39 | clock << 23 | warp << 18 | lane << 12 | site, 0 for none. A reader
    entry of several blocks has block MANY.
    """

    def __init__(self, g: GlobalArray) -> None:
        self.g = g
        self.shape: tuple[int, int] | None = None  # the tile shape, while all accesses are of these tiles
        self.w: Any = None
        self.r: Any = None
        self.sites: dict[int, Any] = {}

    # ------------------------------------------------------------------------------- storage
    def elements(self) -> None:
        """From tiles to elements."""
        g, size = self.g, self.g.data.size
        if self.w is None:
            self.w, self.r = np.zeros(size, np.int64), np.zeros(size, np.int64)
        elif self.shape is not None:
            R, C = self.shape
            for k in ("w", "r"):
                grid = getattr(self, k).reshape(g.batch, g.depth, g.rp // R, g.cp // C)
                setattr(self, k, np.repeat(np.repeat(grid, R, axis=2), C, axis=3).reshape(-1))
        self.shape = None

    def repad(self, rp: int, cp: int) -> None:
        g = self.g
        for k in ("w", "r"):
            old = getattr(self, k).reshape(g.batch, g.depth, rp, cp)
            setattr(self, k, GlobalArray._padded(old, g.rp, g.cp))

    def _pack(self, w: Any, s: Any, lanes: Any) -> Any:
        self.sites[s.id & 0xFFF] = s
        return (w.batch.tags << 39) | (min(w.clock, 0xFFFF) << 23) | (w.id << 18) | (lanes << 12) | (s.id & 0xFFF)

    # ------------------------------------------------------------------------------ accesses
    def lanes(self, w: Any, s: Any, flat: Any, m: Any, write: bool, atomic: bool = False) -> bool:
        """Check and record a lane access; True if lanes of one warp met at one element."""
        if self.shape is not None or self.w is None:
            self.elements()
        n = w.batch.n
        idx = np.broadcast_to(flat, (n, 32))
        mine = self._pack(w, s, ATOMIC if atomic else LANES)
        mine = np.broadcast_to(mine, (n, 32))
        if m is not None:
            m = np.broadcast_to(m, (n, 32))
            idx, mine = idx[m], mine[m]
        return self._touch(w, s, idx, mine, write, self.g.element)

    def tile(self, w: Any, s: Any, win: Window, write: bool, how: str) -> None:
        """Check and record a tile access."""
        g, shape = self.g, (win.rows, win.cols)
        if self.w is None and not (g.rp % shape[0] or g.cp % shape[1]):
            self.shape = shape
            size = g.data.size // (shape[0] * shape[1])
            self.w, self.r = np.zeros(size, np.int64), np.zeros(size, np.int64)
        n = w.batch.n
        mine = np.broadcast_to(self._pack(w, s, CODES[how]), (n, 1))
        if self.shape == shape:
            per, down = g.cp // win.cols, g.rp // win.rows
            idx = ((win.b * g.depth + win.d) * down + win.r) * per + win.c
            idx = np.broadcast_to(np.asarray(idx).reshape(-1, 1), (n, 1))
            if win.clipped:
                inside = np.broadcast_to(np.asarray((win.r < down) & (win.c < per)).reshape(-1, 1), (n, 1))
                idx, mine = idx[inside], mine[inside]
            R, C = shape

            def name(e: int) -> str:
                return f"tile ({e // per % down}, {e % per}) of {g.name}"
        else:
            self.elements()
            pieces, out = win._pieces()
            idx = (pieces[:, :, None] * win.cols + np.arange(win.cols)).reshape(len(pieces), -1)
            idx = np.broadcast_to(idx, (n, idx.shape[1]))
            mine = np.broadcast_to(mine, idx.shape)
            if out is not None:
                keep = np.broadcast_to(~np.asarray(out).reshape(-1, 1), idx.shape)
                idx, mine = idx[keep], mine[keep]
            name = g.element
        self._touch(w, s, idx, mine, write, name)

    def _touch(self, w: Any, s: Any, idx: Any, mine: Any, write: bool, name: Any) -> bool:
        old = self.w[idx]
        if old.any():
            self._against(w, s, idx, mine, old, "wrote", name)
        if not write:
            before = self.r[idx]
            now = mine
            if before.any():
                other = (before != 0) & (before >> 39 != mine >> 39)
                now = np.where(other, mine | (MANY << 39), mine)
            self.r[idx] = now
            if w.batch.n > 1:
                met = self.r[idx] >> 39 != mine >> 39
                if met.any():
                    self.r[idx[met]] |= MANY << 39
            return False
        if self.g.read:
            before = self.r[idx]
            if before.any():
                self._against(w, s, idx, mine, before, "read", name)
        self.w[idx] = mine
        after = self.w[idx]
        met = after != mine
        if not met.any():
            return False
        blocks = met & (after >> 39 != mine >> 39)
        if blocks.any() and not (mine.flat[0] >> 12) & 63 == ATOMIC:
            k = int(blocks.argmax())
            self._raise(w, s, int(idx.flat[k]), int(mine.flat[k]), int(after.flat[k]), "wrote", name)
        return True

    def _against(self, w: Any, s: Any, idx: Any, mine: Any, old: Any, then: str, name: Any) -> None:
        block = old >> 39
        atomic = ((old >> 12) & 63 == ATOMIC) & ((mine >> 12) & 63 == ATOMIC)
        bad = (old != 0) & (block != mine >> 39) & ~atomic
        same = (old != 0) & (block == mine >> 39) & ~atomic
        if same.any():
            warp, clock, lane, me = (old >> 18) & 31, (old >> 23) & 0xFFFF, (old >> 12) & 63, (mine >> 12) & 63
            vc = np.array(w.vc)
            bad |= same & (warp != w.id) & (vc[np.minimum(warp, len(vc) - 1)] < clock)
            bad |= same & (warp == w.id) & (clock >= min(w.clock, 0xFFFF)) & (lane != me) & ((lane < 32) == (me < 32))
        if bad.any():
            k = int(bad.argmax())
            self._raise(w, s, int(idx.flat[k]), int(mine.flat[k]), int(old.flat[k]), then, name)

    def _raise(self, w: Any, s: Any, e: int, mine: int, old: int, then: str, name: Any) -> None:
        site = self.sites.get(old & 0xFFF, s)
        row = int(np.flatnonzero(w.batch.tags[:, 0] == mine >> 39)[0])
        what = name(e)
        lines = f"lines {site.line} and {s.line}" if site.line != s.line else f"line {s.line}"
        now = "touches"
        if old >> 39 != mine >> 39:
            who = "other blocks" if old >> 39 == MANY else f"block {w.batch.block_name((old >> 39) - 1)}"
            raise w.fault("TK502", f"this block {now} {what}, which {who} {then} on line {site.line}; nothing orders "
                          f"two blocks ({lines})", s, (row, None), "give each block elements of its own, use an "
                          "atomic, or split the work into two kernels", kind=Race)
        warp, lane = (old >> 18) & 31, (old >> 12) & 63
        if warp != w.id:
            raise w.fault("TK500", f"warp {w.id} {now} {what}, which warp {warp} {then} on line {site.line}; nothing "
                          f"orders the two ({lines})", s, (row, None),
                          f"put block.sync() between line {site.line} and line {s.line}", kind=Race)
        raise w.fault("TK501", f"a lane of warp {w.id} {now} {what}, which lane {lane} {then} on line {site.line}; "
                      f"nothing orders the two ({lines})", s, (row, None),
                      f"put warp.sync() between line {site.line} and line {s.line}", kind=Race)
