"""Accesses element by element: for places that differ by block, and for very many places.

This file knows what races.py knows; it is slower, and exact for each block.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tklearn.sim import race_reports as reports
from tklearn.sim.places import COLLECTIVE, MANY, Place

CLOCK, SITE = 38, 18  # bits of an entry of the shadow
LATEST = (1 << 24) - 1


class Shadow:
    """Per (block, element), within one interval: the last write, and of each warp the last read
    and the last atomic, which need no order among their like.

    An entry packs clock << 38 | site << 18 | warp << 6 | lane, 0 for none.
    """

    def __init__(self, log: Any, blocks: int) -> None:
        self.log, self.blocks = log, blocks
        self.w = np.zeros((blocks, log.size), np.int64)
        self.r: dict[int, Any] = {}
        self.a: dict[int, Any] = {}
        self.sites: dict[int, Any] = {}

    def _pack(self, warp: int, clock: int, site: Any, lanes: Any) -> Any:
        self.sites[site.id] = site
        return (min(clock, LATEST) << CLOCK) | (site.id << SITE) | (warp << 6) | lanes

    def widen(self, blocks: int) -> None:
        """From one row for all blocks to a row for each."""
        self.blocks = blocks
        self.w = np.repeat(self.w, blocks, axis=0)
        self.r, self.a = (
            {k: np.repeat(v, blocks, axis=0) for k, v in x.items()} for x in (self.r, self.a)
        )

    def prune(self, vc: list[int], fenced: list[int]) -> None:
        """Forget what `vc` is ordered after, but for writes that no proxy fence has published."""
        self.r = {k: np.where(v >> CLOCK > vc[k], v, 0) for k, v in self.r.items()}

        def unknown(written: Any) -> Any:
            agent, clock = (written >> 6) & 0xFFF, written >> CLOCK
            known = (np.array(vc)[agent] >= clock) & (np.array(fenced)[agent] >= clock)
            return np.where(known, 0, written)

        self.w = unknown(self.w)
        self.a = {k: unknown(v) for k, v in self.a.items()}

    def fly(self, w: Any, place: Place, s: Any, write: bool) -> None:
        """Compare what TMA or wgmma starts, issued by warp w, with plain accesses."""
        idx, log, now = place.idx, self.log, "overwrites" if write else "reads"
        before = [(x, "writes") for x in (self.w, *self.a.values())]
        before += [(x, "reads") for x in self.r.values() if write]
        for old, then in before:
            found = old[:, idx]
            agent, clock = (found >> 6) & 0xFFF, found >> CLOCK
            late = (found != 0) & (agent != w.id) & (np.array(w.vc)[agent] < clock)
            bare = (found != 0) & (np.array(w.fenced)[agent] < clock) & (then == "writes")
            for bad in (late, bare):
                if bad.any():
                    b, k = np.unravel_index(int(bad.argmax()), bad.shape)
                    e, who = int(idx[k]), int(agent[b, k])
                    site = self.sites[int(found[b, k] >> SITE) & 0xFFFFF]
                    if bad is bare:
                        raise reports.unfenced(log.region, w, s, e, now, who, site)
                    raise reports.race(
                        log.region, w, s, e, place, now, who, site, COLLECTIVE, then, int(b)
                    )

    def note(self, r: Any, write: bool) -> None:
        """Take over an access that was compared already."""
        rows, idx, lanes = self._flat(r.place, r.collective)
        if r.atomic:
            self._record(self.a, r.agent, r.clock, r.site, rows, idx, lanes)
        elif write:
            self.w[rows, idx] = self._pack(r.agent, r.clock, r.site, lanes)
        else:
            self._record(self.r, r.agent, r.clock, r.site, rows, idx, lanes)

    def _flat(self, p: Place, collective: bool) -> tuple[Any, Any, Any]:
        key = ("flat", self.blocks, collective)
        found = p.extra.get(key)
        if found is None:
            shape = (self.blocks, p.n)
            lanes = COLLECTIVE if collective else p.lanes
            rows = np.repeat(np.arange(self.blocks), p.n)
            idx, lanes = (np.broadcast_to(x, shape).ravel() for x in (p.idx, lanes))
            found = p.extra[key] = (rows, idx, lanes)
        return found

    def place(
        self, w: Any, place: Place, s: Any, write: bool, collective: bool, atomic: bool = False
    ) -> None:
        """An access that is the same in all blocks."""
        rows, idx, lanes = self._flat(place, collective)
        self.access(w, rows, idx, lanes, s, write, collective, atomic)

    def access(
        self,
        w: Any,
        rows: Any,
        idx: Any,
        lanes: Any,
        s: Any,
        write: bool,
        collective: bool,
        atomic: bool = False,
    ) -> None:
        """Compare and record: element idx[k] of block rows[k] by lanes[k]."""
        self._against(w, rows, idx, lanes, s, write, self.w[rows, idx], "writes", False)
        if not atomic:
            for changed in self.a.values():
                self._against(w, rows, idx, lanes, s, write, changed[rows, idx], "writes", False)
        if not write:
            self._record(self.r, w.id, w.clock, s, rows, idx, lanes)
            return
        for reads in self.r.values():
            self._against(w, rows, idx, lanes, s, write, reads[rows, idx], "reads", True)
        if atomic:
            self._record(self.a, w.id, w.clock, s, rows, idx, lanes)
        else:
            self.w[rows, idx] = self._pack(w.id, w.clock, s, lanes)

    def _record(
        self, kept: dict, warp: int, clock: int, s: Any, rows: Any, idx: Any, lanes: Any
    ) -> None:
        """A read or an atomic; MANY where other lanes of the warp did the same since its last
        sync."""
        if warp not in kept:
            kept[warp] = np.zeros((self.blocks, self.log.size), np.int64)
        mine, now = kept[warp].reshape(-1), self._pack(warp, clock, s, lanes)
        at = rows * self.log.size + idx
        old = mine[at]
        again = old >> CLOCK == clock
        if type(lanes) is np.ndarray and (lanes == COLLECTIVE).all():
            now = np.where(again, old, now)  # adds nothing to what single lanes read
        many = again & (old & 63 != now & 63) & (old & 63 != COLLECTIVE)
        mine[at] = now
        many |= mine[at] != now  # another lane of this access reads the same element
        if many.any():
            mine[at[many]] = self._pack(warp, clock, s, MANY)

    def _against(
        self,
        w: Any,
        rows: Any,
        idx: Any,
        lanes: Any,
        s: Any,
        write: bool,
        old: Any,
        then: str,
        reads: bool,
    ) -> None:
        hot = np.flatnonzero(old)
        if not len(hot):
            return
        old, lanes = old[hot], lanes[hot]
        warp, clock, lane = (old >> 6) & 0xFFF, old >> CLOCK, old & 63
        own = warp == w.id
        bad = ~own & ~w.after(warp, clock)
        bad |= own & (clock >= w.synced) & (lane != lanes) & ~(reads & (lane == COLLECTIVE))
        if bad.any():
            k = int(bad.argmax())
            site = self.sites[int(old[k] >> SITE) & 0xFFFFF]
            raise reports.race(
                self.log.region,
                w,
                s,
                int(idx[hot[k]]),
                int(lanes[k]),
                "writes" if write else "reads",
                int(warp[k]),
                site,
                int(lane[k]),
                then,
                int(rows[hot[k]]),
            )
