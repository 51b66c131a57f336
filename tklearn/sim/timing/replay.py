"""A model of one SM that plays programs: when does each warp issue, and what does it wait for.

Resources are servers that give out their time in the order in which they are asked: four
schedulers, each with its special-function unit and tensor core; shared memory; the L1's path; the
TMA engine; the SM's share of L2 and DRAM. Warps issue in order, and wait for results at their first
use, at barriers, semaphores and groups. Whole tile operations are reserved at once: a consumer
starts when the first results of its producer are there, and ends no earlier than the last.
This file knows cycles and events, and no kernel.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from tklearn.sim.timing import program as P
from tklearn.sim.timing.program import Event, Program
from tklearn.sim.timing.rates import Rates

SMALL = 16.0  # slots: events up to this size slip in between the instructions of longer ones
LINE = 4  # sectors that the L1 passes in a cycle


@dataclass(frozen=True)
class Share:
    """What one SM has of the memory system. Bytes per cycle; `far`: which part of an array's bytes
    come from (loads) or go to (stores) DRAM; `late`: which part of its loads waits for DRAM, since
    SMs that read one place at a time all wait for its first arrival; `merged`: what a byte of an
    array costs the L2 cache where several SMs read it at a time."""

    l2_read: float
    l2_write: float
    dram: float
    far_loads: dict[int, float]
    far_stores: dict[int, float]
    sms: int
    merged: dict[int, float] = field(default_factory=dict)
    late: dict[int, float] = field(default_factory=dict)


@dataclass
class Played:
    """What a replay tells: cycles until each block ended, until all memory was written, how long
    each resource worked, and for each source line how long warps waited there."""

    ends: list[float] = field(default_factory=list)
    drained: float = 0.0
    busy: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    waits: dict[int, float] = field(default_factory=lambda: defaultdict(float))

    def work(self) -> dict[str, float]:
        """Cycles that each resource worked; the mean of the four of which an SM has four."""
        four = ("issue", "special functions", "tensor cores")
        return {k: b / 4 if k in four else b for k, b in self.busy.items()}


class Stuck(Exception):
    """Nobody can go on: the walk does not describe a run of the kernel."""


class _Warp:
    __slots__ = (
        "block", "part", "events", "order", "at", "first", "done", "open", "groups", "stores",
        "products", "product", "multiplied", "since",
    )  # fmt: skip

    def __init__(self, block: _Block, part: int, events: list[Event], order: list[int]) -> None:
        self.block, self.part, self.events, self.order = block, part, events, order
        self.at = 0
        self.first = [0.0] * len(events)
        self.done = [0.0] * len(events)
        self.open = self.product = self.multiplied = 0.0
        self.groups: list[float] = []
        self.stores: list[tuple[float, float]] = []
        self.products: list[float] = []
        self.since = 0.0


class _Semaphore:
    __slots__ = ("count", "pending", "bytes", "phase", "waiting")

    def __init__(self, count: int) -> None:
        self.count = self.pending = count
        self.bytes = self.phase = 0
        self.waiting: list[tuple[_Warp, int]] = []


class _Block:
    __slots__ = ("left", "warps", "sync", "named", "semaphores")

    def __init__(self, warps: int) -> None:
        self.left = self.warps = warps
        self.sync: list[_Warp] = []
        self.named: dict[int, list[Any]] = {}
        self.semaphores: dict[Any, _Semaphore] = {}


class Replay:
    """Plays `blocks` blocks of one program, `resident` at a time."""

    def __init__(self, program: Program, rates: Rates, share: Share) -> None:
        self.program, self.rates, self.share = program, rates, share
        self.math = [0.0] * 4
        self.xu = [0.0] * 4
        self.tensor = [0.0] * 4
        self.shared = self.engine = self.port_in = self.port_out = 0.0
        self.read = self.write = self.dram = 0.0  # the GPU's, as far as it works for this SM
        self.adds = 0.0
        self.heap: list[tuple[float, int, Any]] = []
        self.order = 0
        self.out = Played()
        self.slot = 0
        self.peers = min(len(program.warps), 4)
        self.started = 0.0  # until when the GPU's dispatcher is busy with this SM's blocks

    def run(self, blocks: int, resident: int) -> Played:
        self.waiting_blocks = blocks
        for _ in range(min(blocks, resident)):
            self._begin(0.0)
        while self.heap:
            t, _, who = heapq.heappop(self.heap)
            if type(who) is _Warp:
                self._go(who, t)
            else:
                self._arrive(who[0], who[1], 0, -who[2], t)
        if len(self.out.ends) < blocks:
            raise Stuck(f"{blocks - len(self.out.ends)} blocks did not end")
        return self.out

    def _begin(self, t: float) -> None:
        """A block starts, once the dispatcher, which serves all SMs in turn, comes to it."""
        self.waiting_blocks -= 1
        t = max(t, self.started)
        self.started = t + self.share.sms * self.rates.dispatch
        warps = self.program.warps
        block = _Block(len(warps))
        for events, order in zip(warps, self.program.orders, strict=True):
            self._push(t, _Warp(block, self.slot % 4, events, order))
            self.slot += 1

    def _push(self, t: float, who: Any) -> None:
        self.order += 1
        heapq.heappush(self.heap, (t, self.order, who))

    # -------------------------------------------------------------------------------- one warp
    def _go(self, w: _Warp, t: float) -> None:
        """Issue events of a warp from time t on, until it waits or another comes first."""
        events, order, first = w.events, w.order, w.first
        heap = self.heap
        while True:
            n = order[w.at]
            e = events[n]
            ready = t
            for a in e.after:
                if first[a] > ready:
                    ready = first[a]
            if ready > t:
                self.out.waits[e.line] += ready - t
                if heap and heap[0][0] < ready:
                    self._push(ready, w)
                    return
                t = ready
            kind = e.kind
            if kind <= P.WGMMA or kind == P.ATOMIC:
                w.at += 1
                t = self._work(w, n, e, t)
            else:
                went = self._meet(w, e, t)
                if went is None:
                    return
                t = went
            if heap and heap[0][0] < t:
                self._push(t, w)
                return

    def _work(self, w: _Warp, n: int, e: Event, t: float) -> float:
        """Reserve what an event needs; when the warp may issue the next one."""
        part = w.part
        busy = self.out.busy
        start = t
        if e.math > SMALL and self.math[part] > t:
            start = self.math[part]
        end = start + e.math
        self.math[part] = max(self.math[part], start) + e.math
        busy["issue"] += e.math
        issued = start
        if e.serial and e.kind != P.MMA:  # the access comes after what leads to it
            start += e.serial
            end = max(end, start)
        if e.xu:
            begin = max(issued, self.xu[part])
            self.xu[part] = begin + e.xu
            busy["special functions"] += e.xu
            end = max(end, self.xu[part])
        kind = e.kind
        late = 0.0  # the last result that it uses
        for a in e.after:
            if w.done[a] > late:
                late = w.done[a]
        if kind == P.MMA:
            begin = max(start, self.tensor[part])
            self.tensor[part] = max(begin + e.tensor, late)
            busy["tensor cores"] += e.tensor
            w.multiplied = self.tensor[part]
            w.first[n] = begin + e.chain
            w.done[n] = max(self.tensor[part], begin + e.serial) + e.chain
            # In order: what follows is issued after the last product.
            return max(end, self.tensor[part] - self.rates.mma, begin + e.serial)
        if kind == P.WGMMA:
            return self._wgmma(w, e, start, end)
        if e.shared:
            begin = max(start, self.shared)
            self.shared = begin + e.shared
            busy["shared memory"] += e.shared
            if kind == P.ASYNC:
                pass
            elif e.fixed:
                # The four schedulers' warps load their tiles at the same time and take turns;
                # products begin when half of their operands is there.
                turns = self.peers * e.shared
                w.first[n] = max(begin, start + turns / 2) + e.chain
                w.done[n] = max(self.shared, start + turns, end, late) + e.chain
                return max(end, begin, start + turns, late)
            elif kind == P.SHARED:
                w.first[n] = begin + e.chain
                w.done[n] = max(self.shared, end, late) + e.chain
                if e.whole:
                    w.first[n] = w.done[n]
                return max(end, begin, late)
            else:
                end = max(end, self.shared)
        if kind == P.WORK or kind == P.SHARED:
            end = max(end, late)
            w.first[n] = start + e.chain
            w.done[n] = end + e.chain
            if e.whole:
                w.first[n] = w.done[n]
            return end
        return self._memory(w, n, e, start, max(end, late))

    def _wgmma(self, w: _Warp, e: Event, start: float, end: float) -> float:
        begin = max(start, self.tensor[w.part])
        # The four warps of a group read their operands from shared memory together.
        self.tensor[w.part] = begin + max(e.tensor, 4 * e.shared)
        self.out.busy["tensor cores"] += e.tensor
        self.out.busy["shared memory"] += e.shared
        w.product = max(w.product, self.tensor[w.part] + e.chain)
        return end

    # ---------------------------------------------------------------------------------- memory
    def _memory(self, w: _Warp, n: int, e: Event, start: float, end: float) -> float:
        r = self.rates
        kind = e.kind
        if kind == P.TMA_LOAD or kind == P.TMA_STORE:
            begin = max(start, self.engine)
            cost = r.tma_issue + r.tma_box * e.sectors / LINE
            self.engine = begin + cost
            self.out.busy["TMA"] += cost
            if kind == P.TMA_LOAD:
                _, data = self._fetch(e, begin, r.latency["tma"])
                self._push(data, (w.block, *e.what))
            else:
                data = self._put(e, begin + r.latency["shared"])
                w.stores.append((self.engine + r.latency["tma"] / 2, data + r.latency["l2"]))
            return end
        # The L1 cache and shared memory are one memory, of 128 bytes a cycle.
        if kind == P.ASYNC:  # past the L1 cache
            _, data = self._fetch(e, start, 0.0)
            w.open = max(w.open, data)
            return max(end, start + (e.requests - 1 if e.requests > 1 else 0))
        begin = max(start, self.shared)
        cost = max(e.requests * r.request, e.sectors / LINE)
        self.shared = begin + cost
        self.out.busy["L1"] += cost
        if kind == P.LOAD:
            first, data = self._fetch(e, begin, e.chain if e.whole else 0.0)
            w.first[n], w.done[n] = data if e.whole else first, data
        elif kind == P.STORE:
            self._put(e, begin)
        else:
            if e.what:  # all blocks at one place
                took = r.atomic * self.share.sms  # of all SMs, one after the other
                self.adds = max(self.adds, begin) + took
                self.out.busy["atomics on one address"] += took
                begin = self.adds
            data = self._put(e, begin) + r.latency["l2"]
            w.first[n] = w.done[n] = data
        # The warp goes on when its accesses are on their way.
        return max(end, begin + (e.requests - 1 if e.requests > 1 else 0))

    def _fetch(self, e: Event, t: float, more: float) -> tuple[float, float]:
        """Bytes from L2 or DRAM: when the first and the last are there."""
        r, share = self.rates, self.share
        missing = e.sectors - e.hits
        if missing <= 0:
            return t + r.latency["l1"], max(self.shared, t) + r.latency["l1"]
        far = share.far_loads.get(e.array, 1.0)
        # What is busy has queues.
        lat, now = r.latency, max(t, 1.0)
        wait = lat["l2"] + min(self.read / now, 1.0) * (lat["l2_full"] - lat["l2"]) + more
        if far:
            busy = min(self.dram / now, 1.0)
            more = lat["dram"] + busy * (lat["dram_full"] - lat["dram"]) - lat["l2"]
            wait += share.late.get(e.array, min(far, 1.0)) * more
        nbytes = 32.0 * missing
        # The SM's port is its own. What all SMs share gives each its part on average: SMs do not
        # ask at the same time, so one may use now what the others have not used.
        begin = max(t, self.port_in, self.read, self.dram if far else 0.0)
        self.port_in = max(t, self.port_in) + nbytes / r.sm_l2
        cost = nbytes * share.merged.get(e.array, 1.0) / share.l2_read
        self.read += cost
        self.out.busy["L2"] += cost
        end = max(self.port_in, self.read)
        if far:
            took = far * nbytes / share.dram
            self.dram += took
            self.out.busy["DRAM"] += took
            end = max(end, self.dram)
        return begin + wait, end + wait

    def _put(self, e: Event, t: float) -> float:
        share = self.share
        nbytes = 32.0 * e.sectors
        self.port_out = max(t, self.port_out) + nbytes / self.rates.sm_write
        cost = nbytes / share.l2_write * e.apart
        self.write += cost
        self.out.busy["L2"] += cost
        end = max(self.port_out, self.write)
        took = share.far_stores.get(e.array, 1.0) * nbytes / share.dram
        if took:
            self.dram += took
            self.out.busy["DRAM"] += took
            end = max(end, self.dram)
        self.out.drained = max(self.out.drained, end)
        return end

    # --------------------------------------------------------------------- waits and barriers
    def _meet(self, w: _Warp, e: Event, t: float) -> float | None:
        """A meeting or a wait at time t; when the warp goes on, None: somebody will wake it."""
        part, kind = w.part, e.kind
        self.math[part] = max(self.math[part], t) + e.math
        t += e.math
        self.out.busy["issue"] += e.math
        for a in e.after:
            t = max(t, w.done[a])
        t = max(t, w.multiplied)
        w.since = t
        if kind == P.COMMIT:
            w.groups.append(max(w.open, w.groups[-1] if w.groups else 0.0))
            w.open = 0.0
        elif kind == P.WG_COMMIT:
            w.products.append(w.product)
        elif kind == P.WAIT_COPIES:
            return self._past(w, e, t, w.groups, e.what)
        elif kind == P.WG_WAIT:
            return self._past(w, e, t, w.products, e.what)
        elif kind == P.WAIT_STORES:
            n, read = e.what
            return self._past(w, e, t, [x[0 if read else 1] for x in w.stores], n)
        elif kind == P.INIT:
            w.block.semaphores[e.what[0]] = _Semaphore(e.what[1])
        elif kind == P.ARRIVE:
            key, count, nbytes = e.what
            self._arrive(w.block, key, count, nbytes, t)
        elif kind == P.WAIT:
            return self._wait(w, e, t)
        elif kind == P.SYNC:
            w.block.sync.append(w)
            if len(w.block.sync) == w.block.warps:
                ready, w.block.sync = w.block.sync, []
                self._open(ready, t, "block")
            return None
        elif kind in (P.NAMED, P.NAMED_ARRIVE):
            return self._named(w, e, t)
        elif kind == P.END:
            self._end(w, t)
            return None
        w.at += 1
        return t

    def _past(self, w: _Warp, e: Event, t: float, groups: list[float], n: int) -> float:
        """All but the newest n groups are over."""
        w.at += 1
        if len(groups) > n:
            last = groups[len(groups) - n - 1]
            if last > t:
                self.out.waits[e.line] += last - t
                t = last
        return t

    def _open(self, warps: list[_Warp], t: float, kind: str) -> None:
        base, each = self.rates.barrier[kind]
        t += base + each * len(warps)
        for w in warps:
            line = w.events[w.order[w.at]].line
            self.out.waits[line] += t - w.since
            w.at += 1
            self._push(t, w)

    def _named(self, w: _Warp, e: Event, t: float) -> float | None:
        number, count = e.what
        here = w.block.named.setdefault(number, [0, []])
        here[0] += 1
        if e.kind == P.NAMED:
            here[1].append(w)
        else:
            w.at += 1
        if here[0] == count:
            del w.block.named[number]
            self._open(here[1], t, "named")
        return t if e.kind == P.NAMED_ARRIVE else None

    def _arrive(self, block: _Block, key: Any, count: int, nbytes: int, t: float) -> None:
        sem = block.semaphores.setdefault(key, _Semaphore(1))
        sem.pending -= count
        sem.bytes += nbytes
        if sem.pending > 0 or sem.bytes:
            return
        sem.phase += 1
        sem.pending = sem.count
        waiting, sem.waiting = sem.waiting, []
        base, _ = self.rates.barrier["semaphore"]
        for w, parity in waiting:
            if sem.phase & 1 != parity:
                self.out.waits[w.events[w.order[w.at]].line] += t - w.since
                w.at += 1
                self._push(t + base, w)
            else:
                sem.waiting.append((w, parity))

    def _wait(self, w: _Warp, e: Event, t: float) -> float | None:
        key, parity = e.what
        sem = w.block.semaphores.setdefault(key, _Semaphore(1))
        if sem.phase & 1 != parity:
            w.at += 1
            return t + self.rates.barrier["semaphore"][1]
        sem.waiting.append((w, parity))
        return None

    def _end(self, w: _Warp, t: float) -> None:
        block = w.block
        block.left -= 1
        if not block.left:
            self.out.ends.append(t)
            if self.waiting_blocks:
                self._begin(t + self.rates.block)
