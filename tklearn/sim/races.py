"""Who touched which element of shared memory, and what orders two accesses.

Every region (a shared tile, vector or array) keeps the accesses of the current interval between
block barriers: a barrier orders all that came before it. Within an interval another warp's access
is unordered, and so is one of another lane of my own warp, unless a warp.sync lies between or a
collective instruction read all its elements at once. Accesses are compared as interned places
(places.py), so that a pattern met before costs a look-up. Places that differ by block
(data-dependent indices) go through a shadow per element (shadow.py). What a report says is
race_reports.py's.

This file knows warps by number, clock and what orders them; it knows no values and no addresses.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tklearn.sim import race_reports as reports
from tklearn.sim.agents import NEVER
from tklearn.sim.places import COLLECTIVE, Place, lane_of, relation
from tklearn.sim.shadow import Shadow

MOST = 64  # records of one interval; with more, elements cost less than comparing all pairs


class Rec:
    """One access that later ones may have to be ordered after: who, in which epoch, where.

    `proxy`: made through the async proxy, by TMA or wgmma; its clock is NEVER until it is known
    which phase or group completes it.
    """

    __slots__ = ("agent", "clock", "place", "site", "collective", "atomic", "proxy")

    def __init__(
        self,
        agent: int,
        clock: int,
        place: Place,
        site: Any,
        collective: bool,
        atomic: bool = False,
        proxy: bool = False,
    ) -> None:
        self.agent, self.clock, self.place, self.site = agent, clock, place, site
        self.collective, self.atomic, self.proxy = collective, atomic, proxy


class Pending:
    """A cp.async into this region: from its issue until the issuing warp waits for it."""

    __slots__ = ("warp", "place", "site", "group")

    def __init__(self, warp: int, place: Place, site: Any) -> None:
        self.warp, self.place, self.site = warp, place, site
        self.group: Any = None


class Log:
    """The accesses of one region in one batch, and which of its elements have been written.

    Of equal accesses of one agent the latest is kept: who is ordered after it is ordered after the
    others.
    """

    __slots__ = (
        "region",
        "size",
        "seen",
        "writes",
        "reads",
        "pending",
        "init",
        "full",
        "shadow",
    )

    def __init__(self, region: Any, size: int) -> None:
        self.region, self.size = region, size
        self.seen = 0
        self.writes: dict[Any, Rec] = {}
        self.reads: dict[Any, Rec] = {}
        self.pending: list[Pending] = []
        self.init: Any = np.zeros((1, size), bool)
        self.full = False
        self.shadow: Shadow | None = None

    # ------------------------------------------------------------------------------ intervals
    def _enter(self, w: Any) -> None:
        """Forget what a block barrier has put before everything that follows."""
        b = w.batch
        if b.barriers == self.seen:
            return
        self.seen = b.barriers
        if not b.launch.asynchronous:
            self.writes.clear()
            self.reads.clear()
            self.shadow = None
            return
        self._prune(b.passed, b.passed_proxy)
        if self.shadow is not None:
            self.shadow.prune(b.passed, b.passed_proxy)

    def _prune(self, vc: list[int], fenced: list[int]) -> None:
        """Forget what `vc` is ordered after, but for writes that no proxy fence has published."""
        for recs, write in ((self.writes, True), (self.reads, False)):
            done = [
                k
                for k, r in recs.items()
                if vc[r.agent] >= r.clock and (r.proxy or not write or fenced[r.agent] >= r.clock)
            ]
            for k in done:
                del recs[k]

    def read(self, w: Any, place: Place, s: Any, collective: bool = False) -> None:
        """Check and record a read of `place` by warp w."""
        if w.batch.barriers != self.seen:
            self._enter(w)
        if self.pending:
            self._check_pending(w, place, s, "reads")
        for r in self.writes.values():
            self._compare(w, r, place, s, "reads", "writes", False)
        if not self.full:
            self._initialised(w, place, s)
        if self.shadow is not None:
            self.shadow.place(w, place, s, False, collective)
            return
        key = (w.id, id(place))
        old = self.reads.get(key)
        if old is None or old.clock != w.clock:
            self.reads[key] = Rec(w.id, w.clock, place, s, collective)
            if len(self.reads) > MOST:
                self._many(w)

    def write(self, w: Any, place: Place, s: Any, atomic: bool = False) -> None:
        """Check and record a write of `place` by warp w; two atomics need no order."""
        if w.batch.barriers != self.seen:
            self._enter(w)
        if self.pending:
            self._check_pending(w, place, s, "writes")
        self._compare_all(w, place, s, atomic)
        if self.shadow is not None:
            self.shadow.place(w, place, s, True, False, atomic)
        else:
            key = (w.id, id(place), atomic)
            old = self.writes.get(key)
            if old is None or old.clock != w.clock:
                self.writes[key] = Rec(w.id, w.clock, place, s, False, atomic)
                if len(self.writes) > MOST:
                    self._many(w)
        if not self.full:
            self._written(place)

    def _compare_all(self, w: Any, place: Place, s: Any, atomic: bool = False) -> None:
        """Compare a plain write with the records."""
        for r in self.writes.values():
            if not (atomic and r.atomic):
                self._compare(w, r, place, s, "writes", "writes", False)
        for r in self.reads.values():
            self._compare(w, r, place, s, "writes", "reads", True)

    def _written(self, place: Place) -> None:
        self.init[:, place.idx] = True
        self.full = bool(self.init.all())

    def _many(self, w: Any) -> None:
        """Too many records: forget what all live warps are ordered after, or go by elements."""
        if w.batch.launch.asynchronous:
            live = [x for x in w.batch.warps if x.gen is not None]
            self._prune(
                np.min([x.vc for x in live], axis=0),
                np.min([x.fenced for x in live], axis=0),
            )
        if max(len(self.writes), len(self.reads)) > MOST:
            self._to_shadow(1)

    def _to_shadow(self, blocks: int) -> Shadow:
        """Go on element by element until the next barrier, but for what TMA and wgmma do."""
        if self.shadow is None:
            self.shadow = Shadow(self, blocks)
            for recs, write in ((self.writes, True), (self.reads, False)):
                for r in recs.values():
                    if not r.proxy:
                        self.shadow.note(r, write)
            self.writes = {k: r for k, r in self.writes.items() if r.proxy}
            self.reads = {k: r for k, r in self.reads.items() if r.proxy}
        elif self.shadow.blocks < blocks:
            self.shadow.widen(blocks)
        return self.shadow

    def atomic(self, w: Any, place: Place, s: Any) -> None:
        """Check and record an atomic: it reads what must have been written, and writes."""
        if not self.full:
            self._initialised(w, place, s)
        self.write(w, place, s, True)

    def issue(self, w: Any, place: Place, s: Any) -> Pending:
        """A cp.async into `place` starts: nobody may be using it."""
        self._enter(w)
        self._check_pending(w, place, s, "overwrites")
        self._compare_all(w, place, s)
        if self.shadow is not None:
            self.shadow.place(w, place, s, True, False)
        p = Pending(w.id, place, s)
        self.pending.append(p)
        return p

    def land(self, w: Any, p: Pending) -> None:
        """Its data is there for the warp that waited; to others it has written it now."""
        self._enter(w)
        self.pending.remove(p)
        if self.shadow is not None:
            self.shadow.place(w, p.place, p.site, True, False)
        else:
            self.writes[w.id, id(p.place), False] = Rec(w.id, w.clock, p.place, p.site, False)
        if not self.full:
            self._written(p.place)

    # --------------------------------------------------------------------------- the async proxy
    def fly(
        self, w: Any, agent: int, place: Place, s: Any, write: bool, kept: Place | None = None
    ) -> Rec:
        """TMA or wgmma, issued by warp w, starts to write or read `place`.

        It comes after all that w is ordered after, w's own accesses included, and ends when
        somebody is ordered after (agent, clock of the record). Writes by plain stores must have
        been published by a proxy fence. `kept`: of a read, the part that w's own completion frees.
        """
        self._enter(w)
        if self.pending:
            self._check_pending(w, place, s, "overwrites" if write else "reads")
        now = "overwrites" if write else "reads"
        if self.shadow is not None:
            self.shadow.fly(w, place, s, write)
        for r in self.writes.values():
            self._compare_proxy(w, r, place, s, now, "writes")
        if write:
            for r in self.reads.values():
                self._compare_proxy(w, r, place, s, now, "reads")
        elif not self.full:
            self._initialised(w, place, s)
        rec = Rec(agent, NEVER, kept or place, s, True, False, True)
        recs = self.writes if write else self.reads
        key: Any = (agent, id(rec.place), True)
        if key in recs and recs[key].clock == NEVER:
            key = (*key, id(rec))
        recs[key] = rec
        return rec

    def arrived(self, place: Place) -> None:
        """The data of a TMA load is there."""
        if not self.full:
            self._written(place)

    def _compare_proxy(self, w: Any, r: Rec, place: Place, s: Any, now: str, then: str) -> None:
        ordered = r.agent == w.id or w.vc[r.agent] >= r.clock
        if ordered and (r.proxy or then == "reads" or w.fenced[r.agent] >= r.clock):
            return
        at = relation(r.place, place)[0]
        if at < 0:
            return
        if ordered:
            raise reports.unfenced(self.region, w, s, at, now, r.agent, r.site)
        raise reports.race(self.region, w, s, at, place, now, r.agent, r.site, COLLECTIVE, then)

    def _compare(
        self, w: Any, r: Rec, place: Place, s: Any, now: str, then: str, after_read: bool
    ) -> None:
        if r.agent == w.id:
            if r.clock < w.synced or (after_read and r.collective):
                return
            at = relation(r.place, place)[1]
        else:
            if w.vc[r.agent] >= r.clock:
                return
            at = relation(r.place, place)[0]
        if at >= 0:
            mine = lane_of(place, at) if r.agent == w.id else -1
            lane = lane_of(r.place, at, mine)
            raise reports.race(self.region, w, s, at, place, now, r.agent, r.site, lane, then)

    # -------------------------------------------------------------- accesses that differ by block
    def scatter(
        self, w: Any, rows: Any, idx: Any, lanes: Any, s: Any, write: bool, atomic: bool = False
    ) -> None:
        """As read and write, for flat arrays: element idx[k] of block rows[k] by lanes[k]."""
        self._enter(w)
        if self.pending:
            for p in self.pending:
                hit = np.isin(idx, p.place.idx)
                if hit.any():
                    e, now = int(idx[hit.argmax()]), "writes" if write else "reads"
                    raise reports.copying(self.region, w, p, s, e, now)
        if w.launch.asynchronous:
            self._scatter_proxies(w, idx, lanes, s, write)
        if not self.full:
            if len(self.init) == 1 < w.batch.n:
                self.init = np.repeat(self.init, w.batch.n, axis=0)
            if write and not atomic:
                self.init[rows, idx] = True
                self.full = bool(self.init.all())
            elif not (ok := self.init[rows, idx]).all():
                k = int((~ok).argmax())
                self._uninit(w, int(idx[k]), s, (int(rows[k]), int(lanes[k])))
        self._to_shadow(w.batch.n).access(w, rows, idx, lanes, s, write, False, atomic)

    def _scatter_proxies(self, w: Any, idx: Any, lanes: Any, s: Any, write: bool) -> None:
        """Compare with what TMA and wgmma do, which is the same in all blocks."""
        place: Place | None = None
        for recs, then in ((self.writes, "writes"), (self.reads, "reads")):
            for r in recs.values():
                if r.proxy and (write or then == "writes"):
                    place = place or Place(
                        *(x[np.unique(idx, return_index=True)[1]] for x in (idx, lanes))
                    )
                    self._compare(w, r, place, s, "writes" if write else "reads", then, False)

    def _initialised(self, w: Any, place: Place, s: Any) -> None:
        ok = self.init[:, place.idx]
        if not ok.all():
            b, k = np.unravel_index(int((~ok).argmax()), ok.shape)
            self._uninit(w, int(place.idx[k]), s, (int(b), int(place.lanes[k])))

    def _uninit(self, w: Any, e: int, s: Any, at: Any) -> None:
        """An element was read that nobody wrote.

        If another warp writes it before the next barrier, that is a race, and its report says
        more: the batch waits for that with this fault in hand.
        """
        for p in self.pending:
            if e in p.place.idx:
                raise reports.copying(self.region, w, p, s, e, "reads")
        what = self.region.element(e)
        lane = at[1] if at[1] < 32 else None
        w.batch.suspect(
            w,
            "TK503",
            f"this block wrote no value at {what}",
            s,
            (at[0], lane),
            "shared memory does not start as zero: store to it first, and guard indices past "
            "what was stored",
        )

    def _check_pending(self, w: Any, place: Place, s: Any, now: str) -> None:
        for p in self.pending:
            at = relation(p.place, place)[0] if place.n else -1
            if at >= 0:
                raise reports.copying(self.region, w, p, s, at, now)

    def same_instruction(self, w: Any, s: Any, e: int, lanes: Any, block: int) -> Exception:
        """The error for lanes of one store that write different values to one element."""
        return reports.same_instruction(self.region, w, s, e, lanes, block)
