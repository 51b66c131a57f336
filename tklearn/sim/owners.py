"""Which block, warp and lane last wrote and read each place of a written global array.

Nothing orders two blocks, so any two of them that touch one place, one writing, race unless both do
it atomically. Inside a block the same order holds as for shared memory. Kept per tile while all
accesses are the same tiles, per element after that. This file knows positions, no values.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tklearn.lang import ir
from tklearn.lang.errors import Race
from tklearn.sim.agents import NEVER

LANES = np.arange(32, dtype=np.int64)[None]
SEVERAL_LANES, FLOWN = 62, 57
# lane numbers of tile accesses; atomic: by TMA
CODES = {"row": 60, "col": 61, "vec": 59, "group": 58, "atomic": FLOWN}
SEVERAL_BLOCKS = (1 << 24) - 1
LOCKS = ("atomic_cas", "atomic_exch")  # what a loop that waits for a lock calls

# An entry: block + 1 (24 bits), clock (15), warp (6), lane (6), site (12). 0 is none.
BLOCK, CLOCK, WARP, LANE = 39, 24, 18, 12
LATEST = (1 << 15) - 1  # clocks stop here


def padded(values: Any, rp: int, cp: int, copy: bool = True) -> Any:
    if values.shape[2:] == (rp, cp):
        return (
            np.array(values, order="C", copy=True) if copy else np.ascontiguousarray(values)
        ).reshape(-1)
    out = np.zeros((*values.shape[:2], rp, cp), values.dtype)
    out[:, :, : values.shape[2], : values.shape[3]] = values
    return out.reshape(-1)


def _meets(idx: Any, m: Any, win: Any) -> bool:
    """Whether lanes' elements idx [blocks, 32] under a mask lie in a block's window."""
    inside = (idx[:, :, None] == win.elements(len(idx))[0][:, None]).any(axis=2)
    return bool((inside if m is None else inside & m).any())


def _stored(*sites: Any) -> str:
    """What else ends a TMA store."""
    for x in sites:
        if getattr(getattr(x.node, "op", None), "effect", "") == "tma_store":
            return f", after tma.store_async_wait() in the warp of line {x.line}"
    return ""


def _apart(w: Any) -> str:
    """What to do about two blocks that meet at one place."""
    k = w.launch.kernel
    nodes = [n for body in (k.body, *(f.body for f in k.functions)) for n in ir.walk(body)]
    turning = [x for n in nodes if isinstance(n, ir.While) for x in ir.walk(n)]
    locks = any(isinstance(x, ir.Call) and x.op.name in LOCKS for x in turning)
    lock = "a lock made of atomics orders no plain accesses of blocks: " if locks else ""
    return (
        f"{lock}give each block elements of its own, use an atomic, or split the work into two "
        "kernels"
    )


class Flying:
    """A TMA store that may still be writing, or a TMA load that may still be reading.

    It is over for those who are ordered after (agent, clock).
    """

    __slots__ = ("win", "agent", "clock", "site", "batch", "atomic", "reads")

    def __init__(
        self, win: Any, agent: int, site: Any, batch: Any, atomic: bool, reads: bool
    ) -> None:
        self.win, self.agent, self.site, self.batch = win, agent, site, batch
        self.atomic, self.reads = atomic, reads
        self.clock = NEVER


class Together:
    """Who read each place, or changed it atomically: accesses that need no order among themselves.

    latest: the latest entry of each place; earlier: per warp, entries of places where another
    warp's came after. An entry stands for several lanes or blocks where theirs have no order.
    """

    def __init__(self, size: int) -> None:
        self.latest = np.zeros(size, np.int64)
        self.earlier: dict[int, Any] = {}

    def change(self, how: Any) -> None:
        """Put how(entries) in place of each array of entries."""
        self.latest = how(self.latest)
        self.earlier = {k: how(v) for k, v in self.earlier.items()}

    def entries(self, idx: Any) -> list[Any]:
        """What is known of these places, in arrays with a 0 where nothing is."""
        return [self.latest[idx], *(x[idx] for x in self.earlier.values())]

    def add(self, w: Any, idx: Any, mine: Any) -> None:
        """Record an access, joined with the one before where that is not ordered before it."""
        before, now = self.latest[idx], mine
        if before.any():
            same = before >> BLOCK == mine >> BLOCK
            own = (before >> WARP) & 63 == w.id
            lanes = same & own & ((before >> CLOCK) & LATEST >= min(w.synced, LATEST))
            lanes &= (before >> LANE) & 63 != (mine >> LANE) & 63
            now = np.where(lanes, (mine & ~(63 << LANE)) | (SEVERAL_LANES << LANE), mine)
            now = np.where((before != 0) & ~same, mine | (SEVERAL_BLOCKS << BLOCK), now)
            others = same & ~own & ~w.after((before >> WARP) & 63, (before >> CLOCK) & LATEST)
            if others.any():
                self._keep(idx[others], before[others])
        self.latest[idx] = now
        after = self.latest[idx]
        met = after != now
        if met.any():  # lanes or blocks of this one access meet at one place
            blocks = met & (after >> BLOCK != now >> BLOCK)
            again = idx[met & ~blocks]
            self.latest[again] = (self.latest[again] & ~(63 << LANE)) | (SEVERAL_LANES << LANE)
            self.latest[idx[blocks]] |= SEVERAL_BLOCKS << BLOCK

    def _keep(self, idx: Any, entries: Any) -> None:
        """Keep entries of other warps than the one that comes now."""
        warps = (entries >> WARP) & 63
        for k in set(warps.tolist()):
            kept = self.earlier.setdefault(k, np.zeros_like(self.latest))
            at, new = idx[warps == k], entries[warps == k]
            old = kept[at]
            lanes = (old >> CLOCK == new >> CLOCK) & ((old ^ new) >> LANE & 63 != 0)
            kept[at] = np.where(lanes, (new & ~(63 << LANE)) | (SEVERAL_LANES << LANE), new)


class Owners:
    """Last writer of each tile or element of a written array, who read it, and who changed it
    atomically."""

    def __init__(self, g: Any) -> None:
        self.g = g
        # the tile shape, while all accesses are of these tiles
        self.shape: tuple[int, int] | None = None
        self.w: Any = None
        self.r: Any = None
        self.a: Together | None = None  # made for the first atomic
        self.sites: dict[int, Any] = {}
        self.flying: list[Flying] = []

    # ------------------------------------------------------------------------------- storage
    def _change(self, how: Any) -> None:
        """Put how(entries) in place of each array of entries."""
        self.w = how(self.w)
        for x in (self.r, self.a):
            if x is not None:
                x.change(how)

    def elements(self) -> None:
        """From tiles to elements."""
        g, size = self.g, self.g.data.size
        if self.w is None:
            self.w, self.r = np.zeros(size, np.int64), Together(size)
        elif self.shape is not None:
            R, C = self.shape

            def spread(old: Any) -> Any:
                grid = old.reshape(g.batch, g.depth, g.rp // R, g.cp // C)
                return np.repeat(np.repeat(grid, R, axis=2), C, axis=3).reshape(-1)

            self._change(spread)
        self.shape = None

    def repad(self, rp: int, cp: int) -> None:
        """As the array's storage has been padded anew, from planes of rp x cp."""
        g = self.g
        self._change(lambda old: padded(old.reshape(g.batch, g.depth, rp, cp), g.rp, g.cp))

    def _pack(self, w: Any, s: Any, lanes: Any) -> Any:
        self.sites[s.id & 0xFFF] = s
        own = (min(w.clock, LATEST) << CLOCK) | (w.id << WARP) | (s.id & 0xFFF)
        return (w.batch.tags << BLOCK) | own | (lanes << LANE)

    # ------------------------------------------------------------------------------ accesses
    def lanes(self, w: Any, s: Any, flat: Any, m: Any, write: bool, atomic: bool = False) -> bool:
        """Check and record a lane access; True if lanes of one warp met at one element."""
        if self.shape is not None or self.w is None:
            self.elements()
        n = w.batch.n
        idx = np.broadcast_to(flat, (n, 32))
        if self.flying:
            self._in_flight(w, s, lambda other: _meets(idx, m, other), write, atomic)
        mine = np.broadcast_to(self._pack(w, s, LANES), (n, 32))
        if m is not None:
            m = np.broadcast_to(m, (n, 32))
            idx, mine = idx[m], mine[m]
        return self._touch(w, s, idx, mine, write, self.g.element, atomic)

    def tile(self, w: Any, s: Any, win: Any, write: bool, how: str) -> None:
        """Check and record a tile access."""
        g, shape = self.g, (win.rows, win.cols)
        if self.flying:
            self._in_flight(w, s, lambda o: win.overlaps(o).any(), write, how == "atomic")
        if self.w is None and not (g.rp % shape[0] or g.cp % shape[1]):
            self.shape = shape
            size = g.data.size // (shape[0] * shape[1])
            self.w, self.r = np.zeros(size, np.int64), Together(size)
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
        self._touch(w, s, idx, mine, write, name, how == "atomic")

    def fly(
        self, w: Any, s: Any, win: Any, agent: int, atomic: bool = False, reads: bool = False
    ) -> Flying:
        """A TMA store of warp w starts to write `win`, or to combine it with what is there; or a
        TMA load to read it."""
        f = Flying(win, agent, s, w.batch, atomic, reads)
        self.flying.append(f)
        return f

    def _in_flight(self, w: Any, s: Any, meets: Any, write: bool, atomic: bool) -> None:
        """Nobody may touch what a TMA store is writing before it was waited for."""
        self.flying = [f for f in self.flying if f.batch is w.batch]
        for f in self.flying:
            if w.vc[f.agent] >= f.clock or (f.reads and not write) or (atomic and f.atomic):
                continue
            if not meets(f.win):
                continue
            does = f"load of line {f.site.line} may still be reading"
            hint = f"wait for the semaphore of the load before line {s.line}"
            if not f.reads:
                does = f"store of line {f.site.line} may still be writing"
                hint = (
                    "tma.store_async_wait() in the warp that stores, and a barrier for other "
                    f"warps, before line {s.line}"
                )
            lines = f"lines {f.site.line} and {s.line}" if f.site is not s else f"line {s.line}"
            w.event("clash", s, None, f.site, self.g.name)
            raise w.fault(
                "TK500",
                f"warp {w.id} {'writes' if write else 'reads'} a part of {self.g.name} that "
                f"the TMA {does} ({lines})",
                s,
                hint=hint,
                kind=Race,
            )

    def _touch(
        self, w: Any, s: Any, idx: Any, mine: Any, write: bool, name: Any, atomic: bool
    ) -> bool:
        """Check and record; True if several lanes of a warp wrote one place."""
        self._against(w, s, idx, mine, self.w[idx], write, "wrote", name, atomic)
        if self.a is not None and not atomic:
            for old in self.a.entries(idx):
                self._against(w, s, idx, mine, old, write, "wrote", name, True)
        if not write:
            self.r.add(w, idx, mine)
            return False
        if self.g.read:
            for old in self.r.entries(idx):
                self._against(w, s, idx, mine, old, write, "read", name, atomic)
        if atomic:
            if self.a is None:
                self.a = Together(len(self.w))
            self.a.add(w, idx, mine)
            return False
        self.w[idx] = mine
        after = self.w[idx]
        met = after != mine
        if not met.any():
            return False
        blocks = met & (after >> BLOCK != mine >> BLOCK)
        if blocks.any():
            k = int(blocks.argmax())
            raise self._race(w, s, idx.flat[k], mine.flat[k], after.flat[k], write, "wrote", name)
        return True

    def _against(
        self,
        w: Any,
        s: Any,
        idx: Any,
        mine: Any,
        old: Any,
        write: bool,
        then: str,
        name: Any,
        atomic: bool,
    ) -> None:
        """Raise if an entry of `old` is not ordered before this access.

        atomic: one of the two is an atomic. Of lanes' atomics and tiles it is not asked which lane
        holds the element.
        """
        there = old != 0
        if not there.any():
            return
        same = old >> BLOCK == mine >> BLOCK
        bad = there & ~same
        same &= there
        if same.any():
            warp, lane, me = (old >> WARP) & 63, (old >> LANE) & 63, (mine >> LANE) & 63
            clock = (old >> CLOCK) & LATEST
            bad |= same & (warp != w.id) & ~w.after(warp, clock)
            own = (warp == w.id) & (clock >= min(w.synced, LATEST)) & (lane != me)
            alike = ((lane < 32) == (me < 32)) | (lane == SEVERAL_LANES)
            if atomic:
                alike |= (lane != FLOWN) & (me != FLOWN)
            bad |= same & own & alike
        if bad.any():
            k = int(bad.argmax())
            raise self._race(w, s, idx.flat[k], mine.flat[k], old.flat[k], write, then, name)

    def _race(
        self, w: Any, s: Any, e: Any, mine: Any, old: Any, write: bool, then: str, name: Any
    ) -> Race:
        mine, old = int(mine), int(old)
        site = self.sites.get(old & 0xFFF, s)
        row = int(np.flatnonzero(w.batch.tags[:, 0] == mine >> BLOCK)[0])
        what, now = name(int(e)), "writes" if write else "reads"
        lines = f"lines {site.line} and {s.line}" if site.line != s.line else f"line {s.line}"
        last = f"{then} on line {site.line}; nothing orders"
        low, high = sorted((site.line, s.line))
        between = f"between line {low} and line {high}"
        own = low == high and "let each thread use elements of its own, or use an atomic"
        if old >> BLOCK != mine >> BLOCK:
            block = old >> BLOCK
            name_of = w.batch.block_name
            who = "other blocks" if block == SEVERAL_BLOCKS else f"block {name_of(block - 1)}"
            return w.fault(
                "TK502",
                f"this block {now} {what}, which {who} {last} two blocks ({lines})",
                s,
                (row, None),
                _apart(w),
                kind=Race,
            )
        warp, lane = (old >> WARP) & 63, (old >> LANE) & 63
        w.event("clash", s, warp, site, what)
        if warp != w.id:
            return w.fault(
                "TK500",
                f"warp {w.id} {now} {what}, which warp {warp} {last} the two ({lines})",
                s,
                (row, None),
                own or f"put block.sync() {between}{_stored(s, site)}",
                kind=Race,
            )
        who = f"lane {lane}" if lane < 32 else "several lanes"
        return w.fault(
            "TK501",
            f"a lane of warp {w.id} {now} {what}, which {who} {last} the two ({lines})",
            s,
            (row, None),
            own or f"put warp.sync() {between}",
            kind=Race,
        )
