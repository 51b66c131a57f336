"""Semaphores (mbarriers): phases, arrivals, bytes, and what a wait is ordered after.

A phase is complete when no arrival is missing and as many bytes have come as were expected; the
next phase begins at once with the same number of arrivals. `wait(P)` passes when the phase of
parity P is over, so a fresh semaphore lets wait(1) pass. FACTS.md 5. The state is one for all
blocks of a batch, since they run the same statements. This file knows counts and clocks, and no
memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tklearn.lang import ir
from tklearn.lang.errors import Race
from tklearn.sim.agents import joined

MOST_BYTES = (1 << 20) - 1  # of the transaction count, PTX ISA, mbarrier
MOST_ARRIVALS = (1 << 20) - 1
KEPT = 16  # phases whose clocks are kept: nobody who waits correctly is two behind


class Semaphore:
    """One mbarrier of all blocks of a batch.

    count: arrivals of a phase, None before init. pending: arrivals that are missing. expected,
    came, coming: bytes of the running phase that tma.expect named, that have come, that loads under
    way will bring. phase: how many phases are complete, base: how many were when it was
    initialised. arrived: who has arrived in the running phase, and where. used: where each warp
    used it last. latest: the latest TMA load: the phase that it completes, its warp and place.
    starting: what its loads come after. passed: who has waited in the running phase, and when.
    """

    __slots__ = (
        "name", "index", "agent", "count", "pending", "expected", "came", "coming", "phase", "base",
        "gathering", "gathering_fenced", "released", "arrived", "used", "born", "site",
        "latest", "starting", "passed",
    )  # fmt: skip

    def __init__(self, name: str, index: int, agents: Any) -> None:
        self.name, self.index = name, index
        self.agent = agents.semaphore(index)
        self.count: int | None = None
        self.pending = self.expected = self.came = self.coming = 0
        self.phase = self.base = 0
        self.gathering, self.gathering_fenced = agents.clock(), agents.clock()
        self.starting = agents.clock()
        self.passed: dict[int, tuple[Any, Any, int, int, bool]] = {}
        self.released: dict[int, tuple[Any, Any]] = {}  # of each phase: its clocks
        self.arrived: dict[int, Any] = {}
        self.used: dict[int, tuple[int, Any]] = {}
        self.born = (0, 0)  # warp and clock of its init
        self.latest: Any = None
        self.site: Any = None

    @property
    def bytes(self) -> int:
        """What the running phase lacks; negative: what came too much."""
        return self.expected - self.came

    # ---------------------------------------------------------------------------- what warps do
    def init(self, w: Any, s: Any, count: int) -> None:
        """init_semaphore: `count` arrivals a phase."""
        if self.count is not None:
            raise w.fault(
                "TK522",
                f"{self.name} is initialised again; it has been live since line {self.site.line}",
                s,
                hint="initialise a semaphore once; its phases repeat by themselves",
            )
        if not 1 <= count <= MOST_ARRIVALS:
            raise w.fault(
                "TK522",
                f"{self.name} is initialised for {count} arrivals",
                s,
                hint="the number of arrivals that complete a phase: 1 or more",
            )
        self._alone(w, s, "initialises")
        self.count = self.pending = count
        self.base = self.phase
        self.passed.clear()
        self.expected = self.came = 0
        self.arrived.clear()
        self.site, self.born = s, (w.id, w.clock)
        w.event("init", s, self)

    def invalidate(self, w: Any, s: Any) -> None:
        self.use(w, s)
        if self.coming:
            raise w.fault(
                "TK522",
                f"{self.name} is invalidated while a TMA load that completes on it is under way",
                s,
                hint="wait for the load first",
            )
        self._alone(w, s, "invalidates")
        self.count = None

    def _alone(self, w: Any, s: Any, does: str) -> None:
        """What others did with it must come before."""
        for warp, (clock, site) in self.used.items():
            if warp != w.id and w.vc[warp] < clock and w.checking:
                raise w.fault(
                    "TK522",
                    f"warp {w.id} {does} {self.name}, which warp {warp} uses on line {site.line}; "
                    f"nothing orders the two (lines {site.line} and {s.line})",
                    s,
                    hint=f"put block.sync() between line {site.line} and line {s.line}",
                )

    def use(self, w: Any, s: Any) -> None:
        """It must be live, and its init come before."""
        if self.count is None:
            raise self._dead(w, s)
        warp, clock = self.born
        if warp != w.id and w.vc[warp] < clock and w.checking:
            w.event("clash", s, warp, self.site, self.name)
            raise w.fault(
                "TK500",
                f"warp {w.id} uses {self.name}, which warp {warp} initialises on line "
                f"{self.site.line}; nothing orders the two (lines {self.site.line} and {s.line})",
                s,
                hint=f"put block.sync() between line {self.site.line} and line {s.line}",
                kind=Race,
            )
        self.used[w.id] = (w.clock, s)

    def _dead(self, w: Any, s: Any) -> Exception:
        """The error for a use of a semaphore that is not live."""
        if self.site is not None:
            return w.fault(
                "TK522",
                f"{self.name} is used after invalidate_semaphore",
                s,
                hint="initialise it again, then block.sync(), before it is used again",
            )
        lines = sorted({x.line for x in w.launch.code.sites if _initialises(x, self.name)})
        where = f"; line {lines[0]} initialises it, and nothing orders the two" if lines else ""
        if lines and "[" in self.name:
            array = self.name.partition("[")[0]
            where = f"; line {lines[0]} initialises elements of {array}: does it reach this one?"
        return w.fault(
            "TK522",
            f"{self.name} is used before init_semaphore{where}",
            s,
            hint="one warp initialises each semaphore, then block.sync(), then all may use it",
        )

    def known(self, w: Any) -> int:
        """How many of its phases are over for certain, as far as warp w has been told."""
        return max(int(w.vc[self.agent]), self.base)

    def arrive(self, w: Any, s: Any, n: int = 1, nbytes: int = 0) -> None:
        """`n` arrivals of warp w, which release what it did before; `nbytes` more are expected."""
        self.use(w, s)
        if self.pending < n:
            raise self._too_many(w, s, n)
        if self.phase > self.known(w) and w.checking:
            raise self._unseen(w, s)
        if nbytes:
            self.expected += nbytes
            w.event("expect", s, self, nbytes)
        if self.pending == n:
            self._check_bytes(w, s)
        w.tick()
        vc = w.vc.copy()
        vc[w.id] = w.clock - 1
        self.gathering = joined(self.gathering, vc)
        self.gathering_fenced = joined(self.gathering_fenced, w.fenced)
        self.pending -= n
        self.arrived[w.id] = s
        w.event("arrive", s, self, n)
        self._flip(w)

    def _too_many(self, w: Any, s: Any, n: int) -> Exception:
        assert self.count is not None
        have = self.count - self.pending
        came = f"; it still has {self._bytes()}" if self.bytes else ""
        hint = (
            "init_semaphore(sem, n) says how many arrivals complete a phase: count the warps that "
            "arrive, once each; tma.expect is an arrival, too"
        )
        first = self.arrived.get(w.id)
        if first is not None:
            came += f"; warp {w.id} arrived before on line {first.line}" if first is not s else ""
            hint = (
                f"warp {w.id} has arrived for this phase before: it has to wait until the phase "
                "is over, or until another semaphore says so, before it arrives for the next"
            )
        return w.fault(
            "TK522",
            f"{self.name} gets {have + n} arrivals in phase {self.phase - self.base}, and "
            f"{self.count} complete{'s' * (self.count == 1)} it{came}",
            s,
            hint=idle(w) or hint,
        )

    def _unseen(self, w: Any, s: Any) -> Exception:
        """An arrival of a warp that cannot know which phase is running.

        In another order of the warps it would count in the phase before; and a wait for that phase
        that comes late would take one phase for another.
        """
        k = self.phase - self.base
        return w.fault(
            "TK523",
            f"warp {w.id} arrives for phase {k} of {self.name}, and nothing has told it that phase "
            f"{k - 1} is over",
            s,
            hint=idle(w)
            or "in another order this arrival counts in the phase before. Let each warp arrive as "
            "often as init_semaphore counts it, and only after a wait for the phase before",
        )

    def expect(self, w: Any, s: Any, nbytes: int) -> None:
        """tma.expect: one arrival, and `nbytes` more to wait for in this phase."""
        if nbytes < 0 or self.bytes + nbytes > MOST_BYTES:
            raise w.fault(
                "TK522",
                f"{self.name} would wait for {self.bytes + nbytes} bytes",
                s,
                hint=f"a phase counts at most {MOST_BYTES} bytes",
            )
        self.arrive(w, s, 1, nbytes)

    def issue(self, w: Any, s: Any, nbytes: int) -> None:
        """A TMA load starts that will bring `nbytes`."""
        self.coming += nbytes
        self.starting = joined(self.starting, w.vc)
        self.latest = (self.phase + 1, w, s)
        if not self.pending:
            self._check_bytes(w, s)

    def _check_bytes(self, w: Any, s: Any) -> None:
        """With the last arrival no more bytes may be on their way than were expected.

        The phase would end, or come to a standstill, according to which of them comes first.
        """
        come = self.came + self.coming
        if come > self.expected and w.checking:
            named = f"tma.expect named {self.expected}" if self.expected else "none were expected"
            raise w.fault(
                "TK522",
                f"{come} bytes come to {self.name} in phase {self.phase - self.base}, and {named}",
                s,
                hint="tma.expect(sem, tile, ...) stands before the loads, arrives, and names every "
                "tile that they bring",
            )

    def complete(self, w: Any, s: Any, nbytes: int) -> int:
        """Bytes of a TMA load have come: the phase that counts them, from 1."""
        phase = self.phase + 1
        self.came += nbytes
        self.coming -= nbytes
        w.event("bytes", s, self, nbytes)
        self._flip(w)
        return phase

    def _flip(self, w: Any) -> None:
        if self.pending or self.bytes:
            return
        assert self.count is not None
        for waiter, s, parity, clock, idly in self.passed.values():
            if not self._ends_after(waiter, clock):
                raise self._hasty(waiter, s, parity, self.phase, idly)
        self.passed.clear()
        self.phase += 1
        self.pending, self.expected, self.came = self.count, 0, 0
        self.arrived.clear()
        self.released[self.phase] = (self.gathering, self.gathering_fenced)
        self.released.pop(self.phase - KEPT, None)
        w.event("phase", None, self, self.phase - self.base - 1)

    def end(self, warps: list) -> None:
        """The block ends: nothing may still write its shared memory."""
        if self.latest is None:
            return
        phase, w, s = self.latest
        if max(int(x.vc[self.agent]) for x in warps) < phase and w.checking:
            raise w.fault(
                "TK525",
                f"the block ends while the TMA load of line {s.line} may still write its shared "
                f"memory: no warp has waited for phase {phase - self.base - 1} of {self.name}",
                s,
                hint="wait for each load before the kernel ends, or do not start it: a block's "
                "shared memory is given to the next block when its warps have ended",
            )

    def passes(self, parity: int) -> bool:
        return (self.phase - self.base) & 1 != parity

    def meant(self, w: Any, parity: int) -> int:
        """How many phases are over for certain once warp w has passed wait(self, parity)."""
        k = self.known(w)
        return k + ((k - self.base) & 1 == parity)

    def wait(self, w: Any, s: Any, parity: int) -> None:
        """What follows in warp w comes after all that the phase it waited for released.

        Later phases may be over by now; in another order of the warps they are not.
        """
        known, over = self.known(w), self.meant(w, parity)
        if over > known:
            w.idle.pop(self, None)
        else:
            w.idle[self] = (s, parity)
        if w.checking:
            if self.phase > over:
                raise self._hasty(w, s, parity, over, over == known)
            self.passed[w.id] = (w, s, parity, w.clock, over == known)
        vc, fenced = self.released.get(over, (None, None))
        if vc is not None:
            w.vc = joined(w.vc, vc)
            w.fenced = joined(w.fenced, fenced)
        w.vc[self.agent] = max(w.vc[self.agent], over)
        w.vc[w.id] = w.clock
        w.event("pass", s, self, self.phase - self.base - 1)

    def _ends_after(self, waiter: Any, clock: int) -> bool:
        """Whether the running phase cannot end before `waiter` did what it did at `clock`."""
        known = np.maximum(self.gathering, self.starting)
        first = waiter.id - waiter.id % 4
        return known[waiter.id] >= clock or any(
            p.products.follows(waiter.id, clock, known[p.id])
            for p in waiter.batch.warps[first : first + 4]
        )

    def _hasty(self, w: Any, s: Any, parity: int, over: int, idly: bool) -> Exception:
        """A wait that passes while a phase runs, and that the phase's end does not wait for.

        In another order of the warps the phase is over, and the wait is for the next one.
        """
        k = over - self.base
        if idly:
            does, hint = "passes at once", said(w, self, s, parity)
        else:
            does = f"passes after phase {k - 1}"
            hint = (
                f"who arrives for phase {k} has to know that warp {w.id} has passed line {s.line}: "
                "let it arrive on another semaphore ('empty') after the wait, or use a barrier"
            )
        return w.fault(
            "TK523",
            f"wait({self.name}, {parity}) of warp {w.id} {does} while phase {k} is "
            f"running, and hangs if phase {k} is over by then; nothing orders the two",
            s,
            hint=hint,
        )

    # -------------------------------------------------------------------------------- messages
    def _bytes(self) -> str:
        if self.bytes > 0:
            return f"{self.bytes} bytes missing (expects {self.expected}, got {self.came})"
        return f"{-self.bytes} bytes too many (expects {self.expected}, got {self.came})"

    def missing(self) -> str:
        """What the running phase lacks."""
        parts = []
        if self.pending:
            parts.append(f"{self.pending} of {self.count} arrivals missing")
        if self.bytes:
            parts.append(self._bytes())
        return f"phase {self.phase - self.base}: " + (" and ".join(parts) or "complete")


def _initialises(site: Any, name: str) -> bool:
    """Whether this place of the kernel initialises the semaphore, or others of its array."""
    if getattr(getattr(site.node, "op", None), "name", "") != "init_semaphore":
        return False
    x = site.node.args[0]
    while isinstance(x, ir.Index):
        x = x.base
    return isinstance(x, ir.Var) and x.sym.name == name.partition("[")[0]


def idle(w: Any) -> str:
    """What to say of the last wait of warp w that passed because it was for an old phase."""
    old = [(sem, x) for sem, x in w.idle.items() if sem.known(w) > sem.base]
    return said(w, old[-1][0], *old[-1][1]) if old else ""


def said(w: Any, sem: Semaphore, s: Any, parity: int) -> str:
    """The advice about a wait that passed at once."""
    k = sem.known(w) - sem.base
    why = f"phase {k - 1} was over" if k else "a fresh semaphore lets wait(1) pass"
    return (
        f"wait({sem.name}, {parity}) on line {s.line} did not wait, because {why}; if phase {k} is "
        f"meant, wait for parity {k % 2}: the k-th use of a semaphore, from 0, is phase k % 2; if "
        f"phase {k + 1} is meant, warp {w.id} has not waited for phase {k} before"
    )


class Waiting:
    """A warp that waits for a phase."""

    __slots__ = ("sem", "parity", "site")

    def __init__(self, sem: Semaphore, parity: int, site: Any) -> None:
        self.sem, self.parity, self.site = sem, parity, site

    def ready(self, w: Any) -> bool:
        return self.sem.passes(self.parity)

    def resume(self, w: Any) -> None:
        self.sem.wait(w, self.site, self.parity)

    def missed(self, w: Any) -> bool:
        """Whether the phase that is meant was over, and the next one with it."""
        return self.sem.meant(w, self.parity) <= self.sem.phase

    def missing_phase(self, w: Any) -> str:
        """What to say of a wait that missed its phase."""
        k = self.sem.known(w) - self.sem.base
        start = f"warp {w.id} waits on line {self.site.line} for "
        if k & 1 != self.parity:
            return (
                f"{start}parity {self.parity} of {self.sem.name}, and phase {k} comes next for it: "
                "the k-th use of a semaphore, from 0, is phase k % 2"
            )
        return (
            f"{start}phase {k} of {self.sem.name}, which was over before it came, and so was the "
            "next: who arrives has to wait until this phase was seen, as with an 'empty' semaphore"
        )

    def says(self) -> str:
        return f"wait({self.sem.name}, {self.parity})    {self.sem.missing()}"
