"""Some blocks run together: their shared memory, their warps, and who runs when.

A generator is one warp of all blocks of the batch. The scheduler is deterministic: it resumes warps
that can go on, in the order the launch asks for, and lands the transfers that are under way, until
each warp has ended or waits. This file knows when warps run and what they wait for; what they do to
memory is memory.py's and ops.py's, and what is wrong with it is races.py's.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tklearn.lang.errors import Deadlock, KernelFault, Race, TkError
from tklearn.lang.types import Semaphore as SemaphoreType
from tklearn.lang.types import Shared
from tklearn.sim import aliases, exchange, memory
from tklearn.sim.agents import joined
from tklearn.sim.named import Named
from tklearn.sim.registers import Pool
from tklearn.sim.registers import Waiting as RegisterWait
from tklearn.sim.semaphores import Semaphore
from tklearn.sim.semaphores import Waiting as PhaseWait
from tklearn.sim.trace import Trace
from tklearn.sim.warp import Warp

EXPLAINS = ("TK522", "TK523", "TK524")  # say more than that memory was read too early


class Batch:
    """Some blocks run together.

    barriers: how many block barriers have been passed; passed, passed_proxy: what comes after the
    last of them is ordered after (by agents; of plain stores, what the async proxy may see).
    flights: TMA transfers under way, in the order of their issue.
    """

    def __init__(self, launch: Any, blocks: np.ndarray, trace: Trace | None = None) -> None:
        self.launch, self.blocks, self.n, self.trace = launch, blocks, len(blocks), trace
        k = launch.kernel
        gx, gy, _ = launch.grid
        linear = blocks[:, 0] + gx * (blocks[:, 1] + gy * blocks[:, 2])
        self.tags = (linear[:, None] + 1).astype(np.int64)
        self.barriers = 0
        self.passed = self.passed_proxy = launch.agents.clock()
        self.suspected: TkError | None = None  # a fault to report unless a race explains it
        self.suspected_at: Any = None  # its site
        self.spans: dict[int, Any] = {}  # of coordinates, see globals.py
        self.semaphores: list[Semaphore] = []
        self.shared = [self._storage(s.name, s.type, s.offset) for s in k.shared]
        aliases.join_aliases(k.shared, self.shared, launch.check != "off", self.n)
        self.index = [
            int(blocks[0, a]) if (blocks[:, a] == blocks[0, a]).all() else blocks[:, a : a + 1]
            for a in range(3)
        ]
        self.atomics: list[Any] = []
        self.flights: list[Any] = []
        self.named = Named(launch.agents)
        self.pool = Pool(k.nthreads)
        self.warps = [Warp(self, i) for i in range(k.warps)]
        if launch.recorder is not None:
            launch.recorder.watch(self)

    def _storage(self, name: str, type: Any, offset: int) -> Any:
        if isinstance(type, SemaphoreType):
            sem = Semaphore(name, len(self.semaphores), self.launch.agents)
            self.semaphores.append(sem)
            return sem
        if isinstance(type, Shared):
            inner = Shared(type.elem, type.dims[1:]) if len(type.dims) > 1 else type.elem
            size = type.nbytes // type.dims[0]
            items = [
                self._storage(f"{name}[{k}]", inner, offset + k * size) for k in range(type.dims[0])
            ]
            return memory.SharedArray(name, items)
        return memory.SharedMem(name, type, offset, self.n, self.launch.check != "off")

    def block_name(self, linear: int) -> str:
        gx, gy, _ = self.launch.grid
        return f"({linear % gx}, {linear // gx % gy}, {linear // (gx * gy)})"

    # ------------------------------------------------------------------------------ scheduling
    def run(self) -> None:
        launch = self.launch
        for w in self.warps:
            w.gen = launch.code.fn(w, *launch.args)
        if launch.chooser is not None:
            self._run_chosen(launch.chooser)
        else:
            self._run_rounds({w.id: launch.delay.get(w.id, 0) for w in self.warps})
        if self.suspected is not None:
            raise self.suspected
        self.land(self.flights.copy())
        if launch.check != "off":
            for sem in self.semaphores:
                sem.end(self.warps)
        self.flush(None)

    def _run_rounds(self, waits: dict[int, int]) -> None:
        """Round after round: each warp that can go on, then the transfers land."""
        launch = self.launch
        while True:
            under_way = self.flights.copy()
            ready = [w for w in self.warps if w.ready()]
            if not ready:
                if under_way:
                    self.land(self._landing(under_way))
                    continue
                if not self._release():
                    break
                continue
            for w in self._order(ready):
                if waits[w.id] > 0 and len(ready) > 1:
                    waits[w.id] -= 1
                    continue
                waits[w.id] = launch.delay.get(w.id, 0)
                if w.ready():
                    self.step(w)
            if under_way and launch.schedule != "reverse":
                self.land([f for f in self._landing(under_way) if not f.landed])

    def _run_chosen(self, chooser: Any) -> None:
        """One step after the other, as the chooser says (schedule.py)."""
        while True:
            if all(w.at is not None for w in self.warps):
                self._release()
                chooser.opens(self)
            ready: list[Any] = [w for w in self.warps if w.ready()]
            ready += self.flights
            if not ready:
                if not self._release():
                    break
                continue
            agent = ready[chooser.choose(self, ready)]
            chooser.begins(agent)
            if not isinstance(agent, Warp):
                self.land([agent])
            elif isinstance(agent.waiting, PhaseWait):
                self._pass(agent)
            else:
                self.step(agent)
        chooser.ends(self)

    def _pass(self, w: Warp) -> None:
        """A warp's wait for a phase is over; it does nothing else yet."""
        waiting, w.waiting, recorder = w.waiting, None, self.launch.recorder
        if recorder is None:
            waiting.resume(w)
            return
        recorder.runs(w)
        waiting.resume(w)
        recorder.resumed(w, waiting)
        recorder.rests(w)

    def step(self, w: Warp) -> None:
        """Run a warp until it gives way, waits or ends."""
        self.launch.result.resumes += 1
        recorder = self.launch.recorder
        if recorder is not None:
            recorder.runs(w)
        if w.waiting is not None:
            waiting, w.waiting = w.waiting, None
            waiting.resume(w)
            if recorder is not None:
                recorder.resumed(w, waiting)
        try:
            next(w.gen)
        except StopIteration:
            w.gen = None
            w.end()
        except Race:
            raise
        except TkError as e:
            if e.code in EXPLAINS or self.suspected is None:
                raise
            raise self.suspected from None
        if recorder is not None:
            recorder.rests(w)

    def land(self, flights: list[Any]) -> None:
        """These transfers are complete."""
        for f in flights:
            self.flights.remove(f)
            f.land()

    def _landing(self, under_way: list[Any]) -> list[Any]:
        """Which of the transfers come in now."""
        if self.launch.schedule == "reverse":
            return under_way[-1:]
        if self.launch.random is not None:
            some = [f for f in under_way if self.launch.random.random() < 0.5]
            return some or under_way[:1]
        return under_way

    def suspect(self, w: Warp, code: str, message: str, site: Any, at: Any, hint: str) -> None:
        """Reports a fault at the next barrier; at once where no other warp can explain it."""
        if self.suspected is None:
            self.suspected, self.suspected_at = w.fault(code, message, site, at, hint), site
        if len(self.warps) == 1:
            raise self.suspected

    def _order(self, ready: list[Warp]) -> list[Warp]:
        if self.launch.schedule == "reverse":
            return ready[::-1]
        if self.launch.random is not None:
            self.launch.random.shuffle(ready)
        return ready

    def _release(self) -> bool:
        """Nobody can go on: open the block barrier, or say why. False: all have ended."""
        left = [w for w in self.warps if w.gen is not None]
        if not left:
            return False
        if self.suspected is not None:
            raise self.suspected
        waiting = [w for w in left if w.at is not None]
        if len(waiting) < len(left):
            raise self._deadlock(left)
        if len({w.at.line for w in waiting}) > 1 or len(waiting) < len(self.warps):
            raise self._divergent(waiting)
        for w in waiting:
            self.passed = joined(self.passed, w.vc)
            self.passed_proxy = joined(self.passed_proxy, w.fenced)
        self.barriers += 1
        for w in waiting:
            w.event("barrier", w.at, self.barriers)
            w.vc, w.fenced = self.passed.copy(), self.passed_proxy.copy()
            w.at = None
            w.tick()
        return True

    def _deadlock(self, left: list[Warp]) -> KernelFault:
        """Who waits where, for what."""
        said: dict[tuple[int, str], list[Warp]] = {}
        for w in left:
            what = w.waiting.says() if w.waiting is not None else "block.sync()"
            said.setdefault(((w.waiting.site if w.waiting else w.at).line, what), []).append(w)
        lines = [f"{names(ws)} line {line}: {what}" for (line, what), ws in sorted(said.items())]
        ended = [w for w in self.warps if w.gen is None]
        if ended:
            lines.append(f"{names(ended)} left the kernel")
        first = next(w for w in left if w.waiting is not None)
        return first.fault(
            "TK507",
            "deadlock: nobody can go on\n  " + "\n  ".join(lines),
            first.waiting.site,
            hint=_advice(left),
            kind=Deadlock,
        )

    def _divergent(self, waiting: list[Warp]) -> KernelFault:
        total = len(self.warps)
        per: dict[int, list[Warp]] = {}
        for w in waiting:
            per.setdefault(w.at.line, []).append(w)
        said = [
            f"line {line}: {names(ws)} ({len(ws)} of {total} warps)"
            for line, ws in sorted(per.items())
        ]
        left = [w for w in self.warps if w.gen is None]
        if left:
            said.append(
                f"{names(left)} left the kernel"
                + (" before it" if len(per) == 1 else " before them")
            )
        first = waiting[0]
        return first.fault(
            "TK506",
            "not all warps of the block arrive at one block.sync(): " + "; ".join(said),
            first.at,
            hint="every thread of the block must reach the same block.sync(): move it out of the "
            "'if' or loop, and let no warp return before it",
        )

    # --------------------------------------------------------------------- atomics in block order
    def flush(self, g: Any) -> None:
        """Apply the float atomics that wait for their turn; g: only if this array has some."""
        if not self.atomics or (g is not None and all(x[0] is not g for x in self.atomics)):
            return
        todo, self.atomics = self.atomics, []
        for mem in {id(x[0]): x[0] for x in todo}.values():
            mine = [x for x in todo if x[0] is mem]
            rows, idx, val = (np.concatenate([x[k] for x in mine]) for k in (1, 2, 3))
            order = np.argsort(rows, kind="stable")
            exchange.add_in_order(mem, idx[order], val[order])


def names(ws: list[Warp]) -> str:
    """ "warp 0", "warps 0, 1"."""
    return ("warp " if len(ws) == 1 else "warps ") + ", ".join(str(w.id) for w in ws)


def _advice(left: list[Warp]) -> str:
    """What to look at first."""
    sems = [w.waiting.sem for w in left if hasattr(w.waiting, "sem")]
    for w in left:
        if isinstance(w.waiting, PhaseWait) and w.waiting.missed(w):
            return w.waiting.missing_phase(w)
    taking = next((w.waiting for w in left if isinstance(w.waiting, RegisterWait)), None)
    if taking is not None:
        return taking.advice()
    if any(x.bytes > 0 for x in sems):
        return (
            "tma.expect must name the bytes of exactly the loads that complete on the semaphore in "
            "this phase"
        )
    if any(x.bytes < 0 for x in sems):
        return "more bytes came than tma.expect named: name every tile that is loaded"
    fresh = {x.name for x in sems if x.phase == x.base and x.pending == x.count}
    if len(fresh) > 1 and len(fresh) == len({x.name for x in sems}):
        return (
            "nothing has arrived anywhere: who waits until a stage is empty begins with parity 1, "
            "which a fresh semaphore lets pass: wait(empty, (k // STAGES + 1) % 2)"
        )
    if any(x.pending for x in sems):
        return (
            "either an arrival is missing, or the wait is for a later phase than the one meant: "
            "the k-th use of a semaphore waits for phase k % 2"
        )
    return "let every warp that a barrier counts come to it"
