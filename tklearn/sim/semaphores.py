"""Semaphores (mbarriers): phases, arrivals, bytes, and what a wait is ordered after.

A phase is complete when no arrival is missing and as many bytes have come as were expected; the
next phase begins at once with the same number of arrivals. `wait(P)` passes when the phase of
parity P is over, so a fresh semaphore lets wait(1) pass. FACTS.md 5. The state is one for all
blocks of a batch, since they run the same statements. This file knows counts and clocks, and no
memory.
"""

from __future__ import annotations

from typing import Any

from tklearn.lang.errors import Race
from tklearn.sim.agents import joined

MOST_BYTES = (1 << 20) - 1  # of the transaction count, PTX ISA, mbarrier
MOST_ARRIVALS = (1 << 20) - 1


class Semaphore:
    """One mbarrier of all blocks of a batch.

    count: arrivals of a phase, None before init. pending: arrivals that are missing. bytes:
    expected less arrived. phase: how many phases are complete. seen: how many of them a wait has
    observed. released, fenced: what a waiter is ordered after once it has passed.
    """

    __slots__ = (
        "name", "index", "agent", "blocks", "count", "pending", "bytes", "expected", "came",
        "phase", "seen", "gathering", "gathering_fenced", "released", "fenced", "born", "site",
        "waited",
    )  # fmt: skip

    def __init__(self, name: str, index: int, agents: Any) -> None:
        self.name, self.index = name, index
        self.agent = agents.semaphore(index)
        self.count: int | None = None
        self.pending = self.bytes = self.expected = self.came = 0
        self.phase = self.seen = 0
        none = agents.clock()
        self.gathering, self.gathering_fenced = none, none
        self.released, self.fenced = none, none
        self.born: tuple[int, int] | None = None  # warp and clock of its init; None: not checked
        self.site: Any = None
        self.waited = False

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
        self.count = self.pending = count
        self.site, self.born = s, (w.id, w.clock)
        w.event("init", s, self)

    def invalidate(self, w: Any, s: Any) -> None:
        self.use(w, s)
        self.count = None

    def use(self, w: Any, s: Any) -> None:
        """It must be live, and its init come before."""
        if self.count is None:
            raise w.fault(
                "TK522",
                f"{self.name} is used before init_semaphore",
                s,
                hint="one warp initialises each semaphore, then block.sync(), then all may use it",
            )
        assert self.born is not None
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

    def arrive(self, w: Any, s: Any, n: int = 1) -> None:
        """`n` arrivals of warp w, which release what it did before."""
        self.use(w, s)
        if self.pending < n:
            have = self.count - self.pending if self.count else 0
            missing = f", and {self._bytes()}" if self.bytes else ""
            raise w.fault(
                "TK522",
                f"{self.name} gets {n} arrival{'s' * (n > 1)} more than its {self.count} in phase "
                f"{self.phase} ({have} came{missing})",
                s,
                hint="init_semaphore(sem, n) says how many arrivals complete a phase: count the "
                "warps that arrive, once each; tma.expect is an arrival, too",
            )
        if self.phase > self.seen and self.pending == self.count:
            self._overrun(w, s)
        w.tick()
        vc = w.vc.copy()
        vc[w.id] = w.clock - 1
        self.gathering = joined(self.gathering, vc)
        self.gathering_fenced = joined(self.gathering_fenced, w.fenced)
        self.pending -= n
        w.event("arrive", s, self, n)
        self._flip(w)

    def _overrun(self, w: Any, s: Any) -> None:
        """An arrival for the next phase before anybody saw the last one end."""
        if self.waited and w.checking:
            raise w.fault(
                "TK523",
                f"warp {w.id} arrives for phase {self.phase} of {self.name}, and no warp has "
                f"waited for phase {self.phase - 1} yet",
                s,
                hint="a wait that comes later would take one phase for another: wait for each "
                "phase before the next one can complete",
            )

    def expect(self, w: Any, s: Any, nbytes: int) -> None:
        """tma.expect: one arrival, and `nbytes` more to wait for in this phase."""
        self.use(w, s)
        if nbytes < 0 or self.bytes + nbytes > MOST_BYTES:
            raise w.fault(
                "TK522",
                f"{self.name} would wait for {self.bytes + nbytes} bytes",
                s,
                hint=f"a phase counts at most {MOST_BYTES} bytes",
            )
        self.bytes += nbytes
        self.expected += nbytes
        w.event("expect", s, self, nbytes)
        self.arrive(w, s)

    def complete(self, w: Any, s: Any, nbytes: int) -> int:
        """Bytes of a TMA load have come: the phase that counts them, from 1."""
        phase = self.phase + 1
        self.bytes -= nbytes
        self.came += nbytes
        w.event("bytes", s, self, nbytes)
        self._flip(w)
        return phase

    def _flip(self, w: Any) -> None:
        if self.pending or self.bytes:
            return
        assert self.count is not None
        self.phase += 1
        self.pending, self.expected, self.came = self.count, 0, 0
        self.released = joined(self.released, self.gathering)
        self.fenced = joined(self.fenced, self.gathering_fenced)
        w.event("phase", None, self, self.phase - 1)

    def passes(self, parity: int) -> bool:
        return self.phase & 1 != parity

    def wait(self, w: Any, s: Any, parity: int) -> None:
        """What follows in warp w comes after all that the completed phases released."""
        self.seen, self.waited = self.phase, True
        w.vc = joined(w.vc, self.released)
        w.fenced = joined(w.fenced, self.fenced)
        w.vc[self.agent] = max(w.vc[self.agent], self.phase)
        w.vc[w.id] = w.clock
        w.event("pass", s, self, self.phase - 1)

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
        return f"phase {self.phase}: " + (" and ".join(parts) or "complete")


class Waiting:
    """A warp that waits for a phase."""

    __slots__ = ("sem", "parity", "site")

    def __init__(self, sem: Semaphore, parity: int, site: Any) -> None:
        self.sem, self.parity, self.site = sem, parity, site

    def ready(self, w: Any) -> bool:
        return self.sem.passes(self.parity)

    def resume(self, w: Any) -> None:
        self.sem.wait(w, self.site, self.parity)

    def says(self) -> str:
        return f"wait({self.sem.name}, {self.parity})    {self.sem.missing()}"
