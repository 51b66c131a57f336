"""What happens in one block, moment by moment: `kernel.sim[grid](..., timeline=True)`.

The machine tells the recorder when a warp runs and rests, and what it does to semaphores, TMA,
wgmma and barriers; a `Watched` log tells it who touches which shared tile. Nothing here changes
what a run does. Of a long run the beginning and the end are kept. How it looks is viz's.
"""

from __future__ import annotations

import linecache
from collections import deque
from typing import Any

from tklearn.lang import ir
from tklearn.lang.errors import Deadlock, KernelFault, Race, TkError
from tklearn.report import Fault, Moment, Timeline
from tklearn.sim.memory import SharedArray
from tklearn.sim.semaphores import Waiting as PhaseWait
from tklearn.sim.trace import _array
from tklearn.sim.watched import Watched, written

MOST = 6000  # moments that are kept
ASIDE = ("land", "phase", "bytes", "start", "gap")  # not of the warp that they name
COUNTED = (  # what a count of a memory or tensor operation shows, in this order
    ("tensor_instructions", "mma"),
    ("global_ld_requests", "global read"),
    ("global_st_requests", "global write"),
    ("atomics", "atomic"),
)


class Draft:
    """A moment under construction: its number, and the fields of report.Moment."""

    __slots__ = (
        "n", "round", "warp", "kind", "line", "what", "says", "count", "changes", "ends", "cause",
    )  # fmt: skip

    def __init__(self, n: int, round: int, warp: int, kind: str, line: int, what: str) -> None:
        self.n, self.round, self.warp, self.kind = n, round, warp, kind
        self.line, self.what, self.says, self.count = line, what, "", 1
        self.changes: dict[str, dict[str, Any]] = {}
        self.ends: tuple[int, ...] = ()
        self.cause = -1


class Recorder:
    """Keeps what happens in the batch that it watches, which has one block."""

    def __init__(self, kernel: ir.Kernel) -> None:
        self.kernel, self.half = kernel, MOST // 2
        self.first: list[Draft] = []
        self.rest: deque[Draft] = deque()
        self.dropped: dict[str, dict[str, Any]] = {}  # the state that moments left out had changed
        self.lost = self.count = self.round = 0
        self.ran: set[int] = set()  # warps that ran in this round
        self.landed = False  # the transfers of this round have begun to land
        self.steps: list[tuple[int, int, int, int, int, int]] = []
        self.step: tuple[int, int, int, int] | None = None  # round, warp, line, first moment
        self.batch: Any = None
        self.waits: dict[int, int] = {}  # warp -> the moment since which it waits
        self.flights: dict[int, int] = {}  # what is under way (by id) -> the moment it began
        self.groups: dict[int, list[Any]] = {}  # warp -> (wgmma group, moment) not waited for
        self.operands: dict[int, list[str]] = {}  # warp -> tiles that its next wgmma reads
        self.phases: dict[str, int] = {}  # semaphore -> the moment its last phase ended
        self.opened: dict[Any, int] = {}  # barrier -> the moment it opened
        self.stored: dict[int, int] = {}  # warp -> the moment its last TMA store was complete
        self.tiles: dict[str, dict[str, Any]] = {}
        self.parts: dict[str, set[Any]] = {}  # tile -> copies into it that are under way
        self.using: dict[str, dict[int, str]] = {}  # tile -> asynchronous readers
        self.roles: dict[int, str] = {}
        self.sems: set[str] = set()
        self.last: Draft | None = None
        self.found: tuple[Any, int, int, int, str] | None = None  # the accesses of a race

    # ------------------------------------------------------------------------------ the batch
    def watch(self, batch: Any) -> None:
        """Follow a batch from its start."""
        self.batch = batch
        for x in batch.shared:
            self._watch(x)
        start = self.add("start", 0, self.kernel.loc.line)
        for i in range(self.kernel.warps):
            start.changes[f"warp {i}"] = _runs(self.kernel.loc.line)
        self.sems = {sem.name for sem in batch.semaphores}
        for sem in batch.semaphores:
            start.changes[f"semaphore {sem.name}"] = _semaphore(sem)
        for name, tile in self.tiles.items():
            start.changes[f"tile {name}"] = tile
        start.says = "the block starts"

    def _watch(self, x: Any) -> None:
        if isinstance(x, SharedArray):
            for i in x.items:
                self._watch(i)
        elif hasattr(x, "log"):
            self.tiles[x.name] = {"state": "unwritten", "by": "", "using": []}
            self.parts[x.name], self.using[x.name] = set(), {}
            if x.log is not None:
                x.log = Watched(x.log, x, self)

    def add(self, kind: str, warp: int, line: int, what: str = "") -> Draft:
        """A new moment."""
        m = Draft(self.count, self.round, warp, kind, line, what)
        self.count += 1
        self.last = m
        if len(self.first) < self.half:
            self.first.append(m)
            return m
        self.rest.append(m)
        if len(self.rest) > self.half:
            old = self.rest.popleft()
            self.dropped.update(old.changes)
            self.lost += 1
        return m

    # ------------------------------------------------------------------------------ who runs
    def runs(self, w: Any) -> None:
        """Warp w goes on now."""
        if w.id in self.ran or self.landed:
            self.round += 1
            self.ran.clear()
            self.landed = False
        self.ran.add(w.id)
        self.step = (self.round, w.id, _line(w), self.count)
        self.last = None

    def rests(self, w: Any) -> None:
        """Warp w waits, has given way or has ended."""
        assert self.step is not None
        round, warp, line, n = self.step
        at = _line(w)
        self.steps.append((round, warp, line, at, n, self.count - n))
        if w.gen is None:
            m = self.add("end", w.id, line if at < 0 else at)
            m.line = self._last_line(w, m.line)
            m.says = f"warp {w.id} has left the kernel"
            m.changes[f"warp {w.id}"] = {"line": -1, "does": "ended", "for": ""}
            return
        if w.at is not None or (w.waiting is not None and not w.waiting.ready(w)):
            s, what, says = self._awaited(w)
            m = self.add("wait", w.id, s.line, what)
            m.says = f"warp {w.id} waits: {says}"
            m.changes[f"warp {w.id}"] = {"line": s.line, "does": "waits", "for": what}
            self.waits[w.id] = m.n
            if what in self.sems:
                self.roles.setdefault(w.id, "consumer")

    def _last_line(self, w: Any, line: int) -> int:
        for m in reversed(self.rest or self.first):
            if m.warp == w.id and m.kind not in ASIDE:
                return m.line
        return line

    @staticmethod
    def _awaited(w: Any) -> tuple[Any, str, str]:
        """Where, for what, and in words."""
        if w.waiting is None:
            return w.at, "block.sync()", "block.sync()"
        x = w.waiting
        says = " ".join(x.says().split())
        if isinstance(x, PhaseWait):
            return x.site, x.sem.name, says
        gen = getattr(x, "gen", None)
        if gen is not None:
            return x.site, f"barrier {gen.id}", says
        return x.site, "registers" if hasattr(x, "pool") else "wgmma", says

    def resumed(self, w: Any, waiting: Any) -> None:
        """Warp w no longer waits; a wait that has no event of its own gets one."""
        if w.id not in self.waits:
            return
        what = self._awaited_name(waiting)
        m = self.add("go", w.id, waiting.site.line, what)
        m.says = f"warp {w.id} goes on: {what}"
        m.cause = self.opened.get(what, -1)
        self._passed(m)

    @staticmethod
    def _awaited_name(x: Any) -> str:
        gen = getattr(x, "gen", None)
        return f"barrier {gen.id}" if gen is not None else "registers"

    def _passed(self, m: Draft) -> None:
        """At m its warp's wait ends, if it waited."""
        since = self.waits.pop(m.warp, None)
        if since is not None:
            m.ends = (*m.ends, since)
        m.changes[f"warp {m.warp}"] = _runs(m.line)

    def goes(self, m: Draft) -> None:
        m.changes[f"warp {m.warp}"] = _runs(m.line)

    # ----------------------------------------------------------------------------------- events
    def event(self, w: Any, kind: str, s: Any, *what: Any) -> None:
        """Told by the machine: `kind` happened at site s."""
        getattr(self, "_on_" + kind)(w, s, *what)

    def _sem(self, w: Any, s: Any, kind: str, sem: Any, says: str) -> Draft:
        m = self.add(kind, w.id, s.line if s is not None else self._line_of(w), sem.name)
        m.says = says
        m.changes[f"semaphore {sem.name}"] = _semaphore(sem)
        return m

    def _line_of(self, w: Any) -> int:
        return self.last.line if self.last is not None else -1

    def _on_init(self, w: Any, s: Any, sem: Any) -> None:
        says = f"warp {w.id} initialises {sem.name}: {_n(sem.count, 'arrival')} a phase"
        self.goes(self._sem(w, s, "init", sem, says))

    def _on_arrive(self, w: Any, s: Any, sem: Any, n: int) -> None:
        last = self.last
        if last is not None and (last.kind, last.warp, last.what) == ("expect", w.id, sem.name):
            last.changes[f"semaphore {sem.name}"] = _semaphore(sem)  # it is one act
            return
        says = f"warp {w.id} arrives on {sem.name}, {_short(sem)}"
        self.goes(self._sem(w, s, "arrive", sem, says))

    def _on_expect(self, w: Any, s: Any, sem: Any, nbytes: int) -> None:
        says = f"warp {w.id} arrives on {sem.name} and expects {nbytes} bytes"
        self.goes(self._sem(w, s, "expect", sem, says))

    def _on_bytes(self, w: Any, s: Any, sem: Any, nbytes: int) -> None:
        last = self.last
        if last is not None and last.kind == "land":
            last.says += f": {nbytes} bytes for {sem.name}, {_short(sem)}"
            last.changes[f"semaphore {sem.name}"] = _semaphore(sem)
            return
        self._sem(w, s, "bytes", sem, f"{nbytes} bytes arrive for {sem.name}, {_short(sem)}")

    def _on_phase(self, w: Any, s: Any, sem: Any, phase: int) -> None:
        cause = self.last.n if self.last is not None else -1
        m = self._sem(w, s, "phase", sem, f"{sem.name}: phase {phase} is complete")
        m.cause = cause
        self.phases[sem.name] = m.n

    def _on_pass(self, w: Any, s: Any, sem: Any, phase: int) -> None:
        says = f"warp {w.id} passes wait({sem.name})"
        says += f": phase {phase} is complete" if phase >= 0 else ": the semaphore is fresh"
        m = self._sem(w, s, "pass", sem, says)
        m.cause = self.phases.get(sem.name, -1)
        self.roles.setdefault(w.id, "consumer")
        self._passed(m)

    def _on_load(self, w: Any, s: Any, f: Any) -> None:
        self.operands.pop(w.id, None)
        m = self.add("load", w.id, s.line, f.mem.name)
        m.says = f"warp {w.id} starts the TMA load of {f.mem.name}"
        self.flights[id(f)] = m.n
        self.roles[w.id] = "producer"
        self.parts[f.mem.name].add(id(f))
        self.tile(m, f.mem, f"TMA (line {s.line})")
        self.goes(m)

    def _on_store(self, w: Any, s: Any, f: Any) -> None:
        self.operands.pop(w.id, None)
        m = self.add("store", w.id, s.line, f.mem.name)
        m.says = f"warp {w.id} starts the TMA store of {f.mem.name}"
        self.flights[id(f)] = m.n
        self.using[f.mem.name][id(f)] = f"TMA store (line {s.line})"
        self.tile(m, f.mem)
        self.goes(m)

    def _on_land(self, w: Any, s: Any, f: Any) -> None:
        self.landed = True
        m = self.add("land", w.id, s.line, f.mem.name)
        kind = "store" if id(f) in self.using[f.mem.name] else "load"
        m.says = f"the TMA {kind} of {f.mem.name} is complete"
        since = self.flights.pop(id(f), None)
        m.ends = () if since is None else (since,)
        if kind == "store":
            self.stored[w.id] = m.n
        self.using[f.mem.name].pop(id(f), None)
        self.parts[f.mem.name].discard(id(f))
        self.tile(m, f.mem)

    def _on_stored(self, w: Any, s: Any, n: int) -> None:
        m = self.add("stored", w.id, s.line)
        m.says = f"warp {w.id} knows that its TMA stores are over"
        m.says += f", all but the newest {n}" if n else ""
        m.cause = self.stored.get(w.id, -1)
        self.goes(m)

    def _on_fence(self, w: Any, s: Any) -> None:
        m = self.add("fence", w.id, s.line)
        m.says = f"warp {w.id} shows its plain stores to TMA and wgmma (proxy fence)"
        self.goes(m)

    def _on_wgmma(self, w: Any, s: Any, group: Any) -> None:
        names = self.operands.pop(w.id, [])
        m = self.add("wgmma", w.id, s.line, ", ".join(dict.fromkeys(names)))
        m.says = f"warp {w.id} starts a wgmma" + (f" that reads {m.what}" if names else "")
        self.groups.setdefault(w.id, []).append((group, m.n, names))
        self.roles.setdefault(w.id, "consumer")
        for name in names:
            self.using[name][m.n] = f"wgmma of warp {w.id}"
            self.tile(m, name)
        self.goes(m)

    def _on_multiplied(self, w: Any, s: Any, n: int) -> None:
        over = w.products.groups[: w.products.done]
        mine = self.groups.get(w.id, [])
        done = [x for x in mine if any(x[0] is g for g in over)]
        self.groups[w.id] = [x for x in mine if x not in done]
        m = self.add("multiplied", w.id, s.line)
        m.says = f"warp {w.id}: its wgmma is complete" + (f", all but {n} groups" if n else "")
        m.ends = tuple(x[1] for x in done)
        for _, at, names in done:
            for name in names:
                self.using[name].pop(at, None)
                self.tile(m, name)
        self._passed(m)

    def _on_named(self, w: Any, s: Any, g: Any) -> None:
        m = self.add("named", w.id, s.line, f"barrier {g.id}")
        m.says = f"warp {w.id} comes to named barrier {g.id}"
        m.says += f" ({len(g.came)} of {g.threads // 32} warps)"
        m.changes[m.what] = {"came": sorted(g.came), "warps": g.threads // 32}
        if 32 * len(g.came) >= g.threads:
            self.opened[m.what] = m.n
            m.changes[m.what] = {"came": [], "warps": g.threads // 32}
        self.goes(m)

    def _on_barrier(self, w: Any, s: Any, n: int) -> None:
        m = self.add("barrier", w.id, s.line, "block.sync()")
        m.says = f"warp {w.id} passes block.sync(): all warps have come"
        m.changes["block.sync()"] = {"passed": n}
        self._passed(m)
        self.landed = True

    def _on_clash(self, w: Any, s: Any, agent: int | None, site: Any, what: str) -> None:
        """An access of warp w that nothing orders after one of an agent (None: of somebody)."""
        warps = self.kernel.warps
        other = agent % warps if agent is not None and agent < 4 * warps else None
        self.found = (other, site.line, w.id, s.line, what)

    # --------------------------------------------------------------------------------- accesses
    def tile(self, m: Draft, mem: Any, by: str = "") -> None:
        """What is known of a tile after m."""
        name = mem if isinstance(mem, str) else mem.name
        tile = dict(self.tiles[name])
        if by:
            tile["by"] = by
        if self.parts[name]:
            tile["state"] = "arriving"
        elif not isinstance(mem, str):
            tile["state"] = written(mem)
        tile["using"] = list(dict.fromkeys(self.using[name].values()))
        self.tiles[name] = m.changes[f"tile {name}"] = tile

    def access(self, w: Any, s: Any, kind: str, mem: Any) -> Draft:
        """A plain access of warp w to a shared tile; repeated ones are one moment."""
        last = self.last
        key = (kind, w.id, s.line, mem.name)
        if last is not None and (last.kind, last.warp, last.line, last.what) == key:
            last.count += 1
            return last
        m = self.add(kind, w.id, s.line, mem.name)
        m.says = f"warp {w.id} {kind}s {mem.name}"
        self.goes(m)
        return m

    def counted(self, w: Any, s: Any, delta: Any) -> None:
        """A memory or tensor operation was counted: keep those that no other event tells of."""
        kind = next((k for key, k in COUNTED if key in delta.values), None)
        effect = getattr(getattr(s.node, "op", None), "effect", "")
        if kind is not None and effect != "load_async":
            self.did(w, s, kind)

    def did(self, w: Any, s: Any, kind: str) -> None:
        """A moment of a kind of COUNTED; one more of the same where it goes on."""
        what = _array(s.node, "global") if kind != "mma" and s.node is not None else ""
        last = self.last
        if last is not None and (last.kind, last.warp, last.line) == (kind, w.id, s.line):
            last.count += 1
            return
        m = self.add(kind, w.id, s.line, what)
        verb = {"mma": "multiplies on the tensor core", "atomic": "updates"}.get(
            kind, "reads" if kind == "global read" else "writes"
        )
        m.says = f"warp {w.id} {verb}" + (f" {what}, in global memory" if what else "")
        self.goes(m)

    # ---------------------------------------------------------------------------------- the end
    def timeline(self, error: TkError | None = None) -> Timeline:
        """What was kept; error: with what the run ended."""
        assert self.batch is not None, "nothing was watched"
        found = self._fault(error) if error is not None else None
        kept = [*self.first]
        if self.lost:
            gap = Draft(self.first[-1].n + 1, self.rest[0].round, 0, "gap", -1, "")
            gap.says = f"{self.lost:,} moments are left out here"
            gap.changes = self.dropped
            kept.append(gap)
        kept += self.rest
        place = {m.n: i for i, m in enumerate(kept)}
        if self.lost:
            place.pop(self.first[-1].n + 1, None)
        moments = tuple(_frozen(m, place) for m in kept)
        fault = None
        if found is not None:
            fault = Fault(**{**found, "moments": _places(found["moments"], place)})
        steps = tuple((*s[:4], place.get(s[4], -1), s[5]) for s in self.steps[-MOST:])
        k = self.kernel
        names = tuple(x.name for x in self.batch.semaphores)
        block = tuple(int(x) for x in self.batch.blocks[0])
        return Timeline(
            k.name,
            k.file,
            (block[0], block[1], block[2]),
            k.warps,
            tuple(self.roles.get(i, "") for i in range(k.warps)),
            self._source(kept),
            names,
            tuple(self.tiles),
            moments,
            steps,
            self.lost,
            fault,
        )

    def _source(self, kept: list[Draft]) -> dict[int, str]:
        first = self.kernel.loc.line
        lines = [m.line for m in kept if m.line > 0]
        last = max([first, *lines, *(s.line for s in self.batch.launch.code.sites)])
        text = {n: linecache.getline(self.kernel.file, n).rstrip() for n in range(first, last + 1)}
        low = min([first, *lines])
        if low < first:  # helpers above the kernel
            text |= {n: linecache.getline(self.kernel.file, n).rstrip() for n in range(low, first)}
        return dict(sorted(text.items()))

    def _fault(self, e: TkError) -> dict[str, Any]:
        line = e.loc.line if e.loc is not None else -1
        kind = "race" if isinstance(e, Race) else "deadlock" if isinstance(e, Deadlock) else "fault"
        warp = getattr(e, "where", {}).get("warp", 0) if isinstance(e, KernelFault) else 0
        waits = []
        if kind == "deadlock":
            for w in self.batch.warps:
                if w.gen is not None and (w.at is not None or w.waiting is not None):
                    s, _, says = self._awaited(w)
                    waits.append((w.id, s.line, says))
        return {
            "kind": kind,
            "code": e.code,
            "message": e.message,
            "hint": e.hint,
            "line": line,
            "moments": () if kind == "deadlock" else self._marked(e.message, warp, line),
            "waits": tuple(waits),
        }

    def _marked(self, message: str, warp: int, line: int) -> tuple[int, ...]:
        """The moments of a fault: two accesses that nothing orders, or where it happened."""
        every = [m for m in (*self.first, *self.rest) if m.kind not in ASIDE]
        if self.found is None:
            return (self._here(every, warp, line, message).n,)
        other, then, warp, now, what = self.found
        says = message.partition(", which")[0].partition(" that the")[0]
        late = self._here(every, warp, now, says)
        early = [m for m in every if m.line == then and m is not late]
        early = [m for m in early if other is None or m.warp == other] or early
        early = [m for m in early if _names(m.what, what)] or early
        return (*(m.n for m in early[-1:]), late.n)

    def _here(self, every: list[Draft], warp: int, line: int, says: str) -> Draft:
        """The last moment of a warp if it was on this line, else one made for the fault."""
        mine = [m for m in every if m.warp == warp][-1:]
        if mine and mine[0].line == line and mine[0].kind != "wait":
            return mine[0]
        m = self.add("fault", warp, line)
        m.says = says
        self.goes(m)
        return m


def _runs(line: int) -> dict[str, Any]:
    return {"line": line, "does": "runs", "for": ""}


def _line(w: Any) -> int:
    """The line at which a warp stands, in the kernel or a helper; -1 for none."""
    gen, line = w.gen, -1
    while gen is not None and getattr(gen, "gi_frame", None) is not None:
        line, gen = gen.gi_frame.f_lineno, gen.gi_yieldfrom
    return line


def _semaphore(sem: Any) -> dict[str, Any]:
    return {
        "count": sem.count,
        "phase": sem.phase - getattr(sem, "base", 0),
        "pending": sem.pending,
        "bytes": sem.bytes,
    }


def _short(sem: Any) -> str:
    """What the running phase lacks, briefly."""
    parts = [_n(sem.pending, "arrival")] if sem.pending else []
    parts += [f"{sem.bytes} bytes"] if sem.bytes else []
    return " and ".join(parts) + " missing" if parts else "nothing missing"


def _n(n: int | None, noun: str) -> str:
    return f"{n} {noun}" + "s" * (n != 1)


def _names(tiles: str, element: str) -> bool:
    """Whether one of these tiles holds the element that a message names."""
    return any(x and f"{element}[".startswith(f"{x}[") for x in tiles.split(", "))


def _places(numbers: Any, place: dict[int, int]) -> tuple[int, ...]:
    return tuple(place[n] for n in numbers if n in place)


def _frozen(m: Draft, place: dict[int, int]) -> Moment:
    return Moment(
        m.round,
        m.warp,
        m.kind,
        m.line,
        m.what,
        m.says,
        m.count,
        m.changes,
        _places(m.ends, place),
        place.get(m.cause, -1),
    )
