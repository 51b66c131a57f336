"""Which block, warp and lane last wrote and read each place of a written global array.

Nothing orders two blocks, so any two of them that touch one place, one writing, race unless both do
it atomically. Inside a block the same order holds as for shared memory. Kept per tile while all
accesses are the same tiles, per element after that. This file knows positions, no values.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tklearn.lang.errors import Race

LANES = np.arange(32, dtype=np.int64)[None]
MANY = (1 << 24) - 1
CODES = {"row": 60, "col": 61, "vec": 59, "group": 58}  # lane numbers of tile accesses
ATOMIC = 57


def padded(values: Any, rp: int, cp: int, copy: bool = True) -> Any:
    if values.shape[2:] == (rp, cp):
        return (
            np.array(values, order="C", copy=True) if copy else np.ascontiguousarray(values)
        ).reshape(-1)
    out = np.zeros((*values.shape[:2], rp, cp), values.dtype)
    out[:, :, : values.shape[2], : values.shape[3]] = values
    return out.reshape(-1)


class Owners:
    """Last writer and last reader of each tile or element of a written array.

    An entry packs block+1 << 39 | clock << 23 | warp << 18 | lane << 12 | site, 0 for none. A
    reader entry of several blocks has block MANY.
    """

    def __init__(self, g: Any) -> None:
        self.g = g
        self.shape: tuple[int, int] | None = (
            None  # the tile shape, while all accesses are of these tiles
        )
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
            setattr(self, k, padded(old, g.rp, g.cp))

    def _pack(self, w: Any, s: Any, lanes: Any) -> Any:
        self.sites[s.id & 0xFFF] = s
        return (
            (w.batch.tags << 39)
            | (min(w.clock, 0xFFFF) << 23)
            | (w.id << 18)
            | (lanes << 12)
            | (s.id & 0xFFF)
        )

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

    def tile(self, w: Any, s: Any, win: Any, write: bool, how: str) -> None:
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
                inside = np.broadcast_to(
                    np.asarray((win.r < down) & (win.c < per)).reshape(-1, 1), (n, 1)
                )
                idx, mine = idx[inside], mine[inside]

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
        if blocks.any() and (mine.flat[0] >> 12) & 63 != ATOMIC:
            k = int(blocks.argmax())
            self._raise(
                w, s, int(idx.flat[k]), int(mine.flat[k]), int(after.flat[k]), "wrote", name
            )
        return True

    def _against(self, w: Any, s: Any, idx: Any, mine: Any, old: Any, then: str, name: Any) -> None:
        block = old >> 39
        atomic = ((old >> 12) & 63 == ATOMIC) & ((mine >> 12) & 63 == ATOMIC)
        bad = (old != 0) & (block != mine >> 39) & ~atomic
        same = (old != 0) & (block == mine >> 39) & ~atomic
        if same.any():
            warp, clock, lane, me = (
                (old >> 18) & 31,
                (old >> 23) & 0xFFFF,
                (old >> 12) & 63,
                (mine >> 12) & 63,
            )
            vc = np.array(w.vc)
            bad |= same & (warp != w.id) & (vc[np.minimum(warp, len(vc) - 1)] < clock)
            bad |= (
                same
                & (warp == w.id)
                & (clock >= min(w.clock, 0xFFFF))
                & (lane != me)
                & ((lane < 32) == (me < 32))
            )
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
            who = (
                "other blocks"
                if old >> 39 == MANY
                else f"block {w.batch.block_name((old >> 39) - 1)}"
            )
            raise w.fault(
                "TK502",
                f"this block {now} {what}, which {who} {then} on line {site.line}; nothing orders "
                f"two blocks ({lines})",
                s,
                (row, None),
                "give each block elements of its own, use an "
                "atomic, or split the work into two kernels",
                kind=Race,
            )
        warp, lane = (old >> 18) & 31, (old >> 12) & 63
        if warp != w.id:
            raise w.fault(
                "TK500",
                f"warp {w.id} {now} {what}, which warp {warp} {then} on line {site.line}; nothing "
                f"orders the two ({lines})",
                s,
                (row, None),
                f"put block.sync() between line {site.line} and line {s.line}",
                kind=Race,
            )
        raise w.fault(
            "TK501",
            f"a lane of warp {w.id} {now} {what}, which lane {lane} {then} on line {site.line}; "
            f"nothing orders the two ({lines})",
            s,
            (row, None),
            f"put warp.sync() between line {site.line} and line {s.line}",
            kind=Race,
        )
