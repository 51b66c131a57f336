"""Who touched which element of shared memory, and what orders two accesses.

Every region (a shared tile, vector or array) keeps the accesses of the current interval between
block barriers: a barrier orders all that came before it. Within an interval another warp's access
is unordered, and so is one of another lane of my own warp, unless a warp.sync lies between or a
collective instruction read all its elements at once. Accesses are compared as interned places
(`Place`: element numbers and lanes), so that a pattern met before costs a look-up. Places that
differ by block (data-dependent indices) go through a shadow per element (`Shadow`).

This file knows warps by number, clock and what orders them; it knows no values and no addresses.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tklearn.lang.errors import Race
from tklearn.sim.agents import NEVER

COLLECTIVE = 63
MANY = 62
ATOMIC = 61
CLOCK, SITE = 38, 18  # bits of an entry of the shadow
LATEST = (1 << 24) - 1
MOST = 64  # records of one interval; with more, elements cost less than comparing all pairs


class Place:
    """Elements that one access touches: idx[k] by lanes[k]; the same in all blocks of the batch."""

    __slots__ = ("idx", "lanes", "lo", "hi", "n", "repeated", "rel", "extra")

    def __init__(self, idx: Any, lanes: Any) -> None:
        self.idx, self.lanes = idx, lanes
        self.n = len(idx)
        self.lo, self.hi = (int(idx.min()), int(idx.max()) + 1) if self.n else (0, 0)
        self.repeated = self.n > 1 and len(np.unique(idx)) < self.n
        self.rel: dict[int, tuple[Place, tuple[int, int]]] = {}
        self.extra: dict[Any, Any] = {}


def relation(a: Place, b: Place) -> tuple[int, int]:
    """(an element both touch, an element that different lanes touch), -1 for none."""
    got = a.rel.get(id(b))
    if got is None or got[0] is not b:  # the entry keeps b alive, so that its id stays its own
        got = a.rel[id(b)] = (b, _relation(a, b) if a.lo < b.hi and b.lo < a.hi else (-1, -1))
    return got[1]


def _relation(a: Place, b: Place) -> tuple[int, int]:
    lo, n = min(a.lo, b.lo), max(a.hi, b.hi) - min(a.lo, b.lo)
    bounds = []
    for p in (a, b):
        least, most = np.full(n, 99), np.full(n, -1)
        np.minimum.at(least, p.idx - lo, p.lanes)
        np.maximum.at(most, p.idx - lo, p.lanes)
        bounds.append((least, most))
    (la, ha), (lb, hb) = bounds
    both = (ha >= 0) & (hb >= 0)
    if not both.any():
        return -1, -1
    mixed = both & (np.minimum(la, lb) != np.maximum(ha, hb))
    return int(both.argmax()) + lo, int(mixed.argmax()) + lo if mixed.any() else -1


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
            raise self.unfenced(w, s, at, now, r.agent, r.site)
        raise self.race(w, s, at, place, now, r.agent, r.site, COLLECTIVE, then)

    def unfenced(self, w: Any, s: Any, e: int, now: str, warp: int, site: Any) -> Exception:
        """The error for a plain store that the async proxy may not see."""
        what = self.region.element(e)
        w.event("clash", s, warp, site, what)
        return w.fault(
            "TK520",
            f"{_operation(s)} {now} {what} through the async proxy, and warp {warp} stored to it "
            f"on line {site.line} without a proxy fence (lines {site.line} and {s.line})",
            s,
            (0, None),
            f"put tma.fence() after the stores of line {site.line}, in the warps that store, then "
            f"a barrier before line {s.line}",
            kind=Race,
        )

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
            mine = _lane(place, at) if r.agent == w.id else -1
            raise self.race(w, s, at, place, now, r.agent, r.site, _lane(r.place, at, mine), then)

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
                    raise self._async(
                        w, p, s, int(idx[hit.argmax()]), "writes" if write else "reads"
                    )
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
        self._to_shadow(w.batch.n).access(w, rows, idx, lanes, s, write, False)

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

    # ------------------------------------------------------------------------------- messages
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
                raise self._async(w, p, s, e, "reads")
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
                raise self._async(w, p, s, at, now)

    def _async(self, w: Any, p: Pending, s: Any, at: int, now: str) -> Exception:
        what, line = self.region.element(at), p.site.line
        w.event("clash", s, p.warp, p.site, what)
        whose = "" if p.warp == w.id else f" of warp {p.warp}"
        if p.group is None:
            hint = (
                f"commit_group() is missing after line {line}: wait_group waits only for "
                "groups that were committed"
            )
        elif p.warp == w.id:
            hint = (
                "wait_group(n) leaves the newest n groups running: wait for the group that brings "
                "this data"
            )
        else:
            hint = (
                "if this data is what is wanted: wait_group waits for a warp's own copies, then "
                f"block.sync() tells the other warps; if it is older data: line {line} refills it "
                "too early, put block.sync() before that"
            )
        return w.fault(
            "TK508",
            f"warp {w.id} {now} {what} while the copy{whose} of line {line} may still "
            "be writing it",
            s,
            (0, None),
            hint,
        )

    def race(
        self,
        w: Any,
        s: Any,
        e: int,
        place: Any,
        now: str,
        other: int,
        site: Any,
        lane: int,
        then: str,
        block: int = 0,
    ) -> Race:
        """The error for two unordered accesses of element e: `other` is the earlier's agent."""
        what = self.region.element(e)
        w.event("clash", s, other, site, what)
        lines = f"lines {site.line} and {s.line}" if site.line != s.line else f"line {s.line}"
        past = {"writes": "wrote", "reads": "read"}[then]
        if other >= w.launch.agents.warps or _operation(s):
            return self._proxy_race(w, s, what, now, other, site, then, block)
        if w.batch.suspected is not None and site is w.batch.suspected_at:
            # The read came first in this run and found nothing: tell it as the reader meant it.
            msg = (
                f"warp {other} reads {what} before warp {w.id} writes it on line {s.line}; "
                f"nothing orders the two ({lines})"
            )
            hint = f"put block.sync() between line {s.line} and line {site.line}"
            return w.fault("TK500", msg, site, (block, None), hint, kind=Race)
        if other != w.id:
            msg = (
                f"warp {w.id} {now} {what}, which warp {other} {past} on line {site.line}; "
                f"nothing orders the two ({lines})"
            )
            hint = f"put block.sync() between line {site.line} and line {s.line}"
            if site.line >= s.line:
                hint = (
                    f"put block.sync() between line {site.line} and the next run of line {s.line}"
                    if site.line > s.line
                    else "let each thread use elements of its own, or use an atomic"
                )
            if "async" in getattr(getattr(site.node, "op", None), "name", ""):
                hint = "wait_group is for the warp's own copies only: put block.sync() after it"
            return w.fault("TK500", msg, s, (block, None), hint, kind=Race)
        mine = _lane(place, e) if isinstance(place, Place) else int(place)
        who = "several lanes" if mine >= MANY else f"lane {mine}"
        whom = "several lanes" if lane >= MANY else f"lane {lane}"
        msg = (
            f"{who} of warp {w.id} {now} {what}, which {whom} {past} on line {site.line}; "
            f"nothing orders the two ({lines})"
        )
        hint = (
            f"put block.sync() between line {site.line} and line {s.line}; warp.sync() is enough "
            "if only lanes of one warp share these elements"
            if site.line != s.line
            else "let each lane use an element of its own, or use an atomic"
        )
        return w.fault("TK501", msg, s, (block, None), hint, kind=Race)

    def _proxy_race(
        self, w: Any, s: Any, what: str, now: str, other: int, site: Any, then: str, block: int
    ) -> Race:
        """The error for two unordered accesses, at least one of them by TMA or wgmma."""
        agents, lines = w.launch.agents, f"lines {site.line} and {s.line}"
        mine, theirs = _operation(s), _operation(site)
        if site.line == s.line:
            lines = f"line {s.line}"
        doing = {"writes": "writing", "reads": "reading"}[then]
        who = f"the {mine} of line {s.line} (warp {w.id})" if mine else f"warp {w.id}"
        if other < agents.warps:
            whom = f"warp {other} may still be {doing} on line {site.line}"
        elif theirs:
            whom = f"the {theirs} of line {site.line} may still be {doing}"
        else:
            whom = f"{agents.who(other)} may still be {doing} (line {site.line})"
        ends = _END.get(theirs, f"let warp {other} arrive on a semaphore, or use a barrier,")
        hint = f"{ends} after line {site.line}; wait for that before line {s.line}"
        if theirs:
            hint = f"{ends} between line {site.line} and line {s.line}"
        message = f"{who} {now} {what}, which {whom}; nothing orders the two ({lines})"
        return w.fault("TK500", message, s, (block, None), hint, kind=Race)

    def same_instruction(self, w: Any, s: Any, e: int, lanes: Any, block: int) -> Race:
        """Lanes of one store that write different values to one element."""
        what = self.region.element(e)
        names = ", ".join(map(str, lanes[:4])) + (", ..." if len(lanes) > 4 else "")
        return w.fault(
            "TK501",
            f"lanes {names} of warp {w.id} write different values to {what} at once",
            s,
            (block, None),
            "which lane wins is undefined: use an atomic, or let one lane store",
            kind=Race,
        )


_END = {
    "TMA load": "wait for the semaphore of the load, with the phase it completes,",
    "TMA store": "tma.store_async_read_wait() in the warp that stores, and a barrier for others,",
    "wgmma": "warpgroup.mma_async_wait() in the warps that issued it, and an arrival or barrier "
    "for others,",
}


def _operation(site: Any) -> str:
    """What the async proxy does at this place; "" for plain accesses."""
    effect = getattr(getattr(site.node, "op", None), "effect", "")
    return {"tma_load": "TMA load", "tma_store": "TMA store", "wgmma": "wgmma"}.get(effect, "")


def _lane(place: Place, e: int, other: int = -1) -> int:
    """A lane of `place` that touches element e, if possible not lane `other`."""
    lanes = place.lanes[place.idx == e]
    if not len(lanes):
        return COLLECTIVE
    different = lanes[lanes != other]
    return int(different[0] if len(different) else lanes[0])


class Shadow:
    """Last write, and last read of each warp, per (block, element), within one interval.

    An entry packs clock << 38 | site << 18 | warp << 6 | lane, 0 for none.
    """

    def __init__(self, log: Log, blocks: int) -> None:
        self.log, self.blocks = log, blocks
        self.w = np.zeros((blocks, log.size), np.int64)
        self.r: dict[int, Any] = {}
        self.sites: dict[int, Any] = {}

    def _pack(self, warp: int, clock: int, site: Any, lanes: Any) -> Any:
        self.sites[site.id] = site
        return (min(clock, LATEST) << CLOCK) | (site.id << SITE) | (warp << 6) | lanes

    def widen(self, blocks: int) -> None:
        """From one row for all blocks to a row for each."""
        self.blocks = blocks
        self.w = np.repeat(self.w, blocks, axis=0)
        self.r = {k: np.repeat(v, blocks, axis=0) for k, v in self.r.items()}

    def prune(self, vc: list[int], fenced: list[int]) -> None:
        """Forget what `vc` is ordered after, but for writes that no proxy fence has published."""
        self.r = {k: np.where(v >> CLOCK > vc[k], v, 0) for k, v in self.r.items()}
        agent, clock = (self.w >> 6) & 0xFFF, self.w >> CLOCK
        known = (np.array(vc)[agent] >= clock) & (np.array(fenced)[agent] >= clock)
        self.w = np.where(known, 0, self.w)

    def fly(self, w: Any, place: Place, s: Any, write: bool) -> None:
        """Compare what TMA or wgmma starts, issued by warp w, with plain accesses."""
        idx, log, now = place.idx, self.log, "overwrites" if write else "reads"
        for old, then in [(self.w, "writes"), *((r, "reads") for r in self.r.values() if write)]:
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
                        raise log.unfenced(w, s, e, now, who, site)
                    raise log.race(w, s, e, place, now, who, site, COLLECTIVE, then, int(b))

    def note(self, r: Rec, write: bool) -> None:
        """Take over an access that was compared already."""
        rows, idx, lanes = self._flat(r.place, r.atomic, r.collective)
        if write:
            self.w[rows, idx] = self._pack(r.agent, r.clock, r.site, lanes)
        else:
            self._record(r.agent, r.clock, r.site, rows, idx, lanes)

    def _flat(self, p: Place, atomic: bool, collective: bool) -> tuple[Any, Any, Any]:
        shape = (self.blocks, p.n)
        lanes = COLLECTIVE if collective else ATOMIC if atomic else p.lanes
        rows = np.repeat(np.arange(self.blocks), p.n)
        return rows, np.broadcast_to(p.idx, shape).ravel(), np.broadcast_to(lanes, shape).ravel()

    def place(
        self, w: Any, place: Place, s: Any, write: bool, collective: bool, atomic: bool = False
    ) -> None:
        """An access that is the same in all blocks."""
        rows, idx, lanes = self._flat(place, atomic, collective)
        self.access(w, rows, idx, lanes, s, write, collective)

    def access(
        self, w: Any, rows: Any, idx: Any, lanes: Any, s: Any, write: bool, collective: bool
    ) -> None:
        """Compare and record: element idx[k] of block rows[k] by lanes[k]."""
        self._against(w, rows, idx, lanes, s, write, self.w[rows, idx], "writes", False)
        if not write:
            self._record(w.id, w.clock, s, rows, idx, lanes)
            return
        for reads in self.r.values():
            self._against(w, rows, idx, lanes, s, write, reads[rows, idx], "reads", True)
        self.w[rows, idx] = self._pack(w.id, w.clock, s, lanes)

    def _record(self, warp: int, clock: int, s: Any, rows: Any, idx: Any, lanes: Any) -> None:
        """A read; MANY where other lanes of the warp read the element since its last sync."""
        if warp not in self.r:
            self.r[warp] = np.zeros((self.blocks, self.log.size), np.int64)
        mine, now = self.r[warp], self._pack(warp, clock, s, lanes)
        old = mine[rows, idx]
        again = old >> CLOCK == clock
        if type(lanes) is np.ndarray and (lanes == COLLECTIVE).all():
            now = np.where(again, old, now)  # adds nothing to what single lanes read
        many = again & (old & 63 != now & 63) & (old & 63 != COLLECTIVE)
        mine[rows, idx] = now
        many |= mine[rows, idx] != now  # another lane of this access reads the same element
        if many.any():
            mine[rows[many], idx[many]] = self._pack(warp, clock, s, MANY)

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
        vc = np.array(w.vc)
        own = warp == w.id
        bad = ~own & (vc[np.minimum(warp, len(vc) - 1)] < clock)
        bad |= own & (clock >= w.synced) & (lane != lanes) & ~(reads & (lane == COLLECTIVE))
        bad &= ~((lane == ATOMIC) & (lanes == ATOMIC))
        if bad.any():
            k = int(bad.argmax())
            site = self.sites[int(old[k] >> SITE) & 0xFFFFF]
            raise self.log.race(
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
