"""One warp: its clocks, what it waits for, what it has under way, its counts and its messages.

The lowered code calls it `_w`. Who runs when is batch.py's.
"""

from __future__ import annotations

import dataclasses
import sys
from contextlib import contextmanager
from typing import Any

import numpy as np

from tklearn.lang import ir
from tklearn.lang.errors import Deadlock, KernelFault, Loc
from tklearn.lang.types import GL
from tklearn.sim import memory
from tklearn.sim.engines import Copies, Products, Stores

ndarray = np.ndarray


class _Place:
    """A line of the kernel of which no operation keeps the place."""

    def __init__(self, kernel: ir.Kernel, line: int) -> None:
        self.line, self.id, self.node = line, 0, None
        self.loc = dataclasses.replace(kernel.loc, line=line)


class Warp:
    """One warp of all blocks of a batch: what the lowered code calls `_w`.

    clock: the epoch of its accesses, which barriers and arrivals end; synced: from which epoch on
    its lanes are ordered. vc: for each agent, up to which of its accesses this warp is ordered
    after; fenced: for each warp, up to which of its plain stores the async proxy may see.
    """

    def __init__(self, batch: Any, i: int) -> None:
        launch = batch.launch
        self.batch, self.launch, self.id, self.warpid = batch, launch, i, i
        self.trace = batch.trace
        self.shared = batch.shared
        self.gen: Any = None
        self.at: Any = None  # the site of the barrier at which it waits
        self.waiting: Any = None  # for what else it waits
        self.idle: dict[Any, Any] = {}  # its waits for semaphores that passed without waiting
        self.loading: Any = None  # the semaphore of its latest TMA load
        self.vc, self.fenced = launch.agents.clock(), launch.agents.clock()
        self.vc[i] = self.clock = self.synced = 1
        self.steps = launch.steps
        self.copies = Copies()
        self.stores = Stores(self)
        self.products = Products(self)
        self.turns: dict[int, int] = {}
        t = launch.threads[i]
        self.mask = t["mask"]
        self.laneid = memory.LANE[None]
        self.threadIdx_x, self.threadIdx_y, self.threadIdx_z = t["x"], t["y"], t["z"]
        self.blockIdx_x, self.blockIdx_y, self.blockIdx_z = batch.index
        self.blockDim_x, self.blockDim_y, self.blockDim_z = launch.kernel.threads
        self.gridDim_x, self.gridDim_y, self.gridDim_z = launch.grid

    # ------------------------------------------------------------------------------ time and order
    def tick(self) -> None:
        """What comes after is ordered after what this warp did before."""
        self.clock += 1
        self.vc[self.id] = self.synced = self.clock

    def after(self, agents: Any, clocks: Any) -> Any:
        """Whether it is ordered after each of these: an array of agents' numbers, and one of their
        clocks."""
        vc = np.asarray(self.vc)
        return vc[np.minimum(agents, len(vc) - 1)] >= clocks

    def fence(self) -> None:
        """What it has stored so far, the async proxy may see."""
        self.fenced[self.id] = self.clock
        self.clock += 1
        self.vc[self.id] = self.clock

    @property
    def checking(self) -> bool:
        return self.launch.check != "off"

    def ready(self) -> bool:
        """Whether it can go on."""
        if self.gen is None or self.at is not None:
            return False
        return self.waiting is None or self.waiting.ready(self)

    def wait(self, waiting: Any) -> bool:
        """Wait unless there is nothing to wait for; True: the generator has to give way."""
        if self.launch.chooser is None and waiting.ready(self):
            waiting.resume(self)
            return False
        self.waiting = waiting
        return True

    def give_way(self) -> bool:
        """Whether another agent may act between this operation and what follows."""
        return self.launch.chooser is not None

    def event(self, kind: str, s: Any, *what: Any) -> None:
        """Tell the recorder, and who chooses the order of steps."""
        if self.launch.chooser is not None:
            self.launch.chooser.event(self, kind, s, *what)
        if self.launch.recorder is not None:
            self.launch.recorder.event(self, kind, s, *what)

    def here(self) -> Any:
        """The place in the learner's kernel that is running; only for messages."""
        files = {f.file for f in (self.launch.kernel, *self.launch.kernel.functions)}
        frame: Any = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename not in files:
            frame = frame.f_back
        line = frame.f_lineno if frame is not None else self.launch.kernel.loc.line
        sites = self.launch.code.sites
        return next((s for s in sites if s.line == line), _Place(self.launch.kernel, line))

    def end(self) -> None:
        """The kernel is over for this warp."""
        self.stores.end()
        self.products.end()

    def barrier(self, s: Any, m: Any) -> None:
        """Arrive at block.sync()."""
        if m is not self.mask and m is not None:
            full = np.ones((1, 32), bool) if self.mask is None else self.mask
            missing = np.argwhere(full & ~np.broadcast_to(m, (len(m), 32)))
            if len(missing):
                b, lane = (int(x) for x in missing[0])
                active = int(np.broadcast_to(m, (len(m), 32))[b].sum())
                raise self.fault(
                    "TK506",
                    f"only {active} lanes of warp {self.id} arrive at this block.sync(); "
                    "the others have returned",
                    s,
                    (b, lane),
                    "every thread of the block must reach it: put the work in "
                    "an 'if' instead of returning early",
                )
        self.at = s
        self.count(s.line, "barriers", self.batch.n)

    def spend(self, n: int, s: Any) -> None:
        """Count loop iterations against the step budget."""
        self.steps -= n
        if self.steps < 0:
            raise self._endless(s)

    def _endless(self, s: Any) -> KernelFault:
        waiting = [w for w in self.batch.warps if w.at is not None or w.waiting is not None]
        node = s.node
        loads = (
            [x for x in ir.walk(node.cond) if isinstance(x, ir.Index)]
            if isinstance(node, ir.While)
            else []
        )
        hint = (
            "check what ends the loop; one that is meant to be that long runs with "
            f"{self.launch.kernel.name}.sim[grid](..., steps=n)"
        )
        if any(isinstance(x.base.type, GL) for x in loads):
            hint = (
                "the condition reads global memory: if it waits for another block, that block may "
                "never run at the same time; blocks cannot wait for each other"
            )
        if waiting and len(waiting) + 1 >= sum(w.gen is not None for w in self.batch.warps):
            said = "; ".join(
                f"warp {w.id} waits at block.sync() on line {w.at.line}"
                if w.at is not None
                else f"warp {w.id} waits on line {w.waiting.site.line}: {w.waiting.says()}"
                for w in waiting
            )
            return self.fault(
                "TK507",
                f"deadlock: warp {self.id} turns in this loop, and {said} ({len(waiting)} of "
                f"{len(self.batch.warps)} arrived)",
                s,
                hint="block.sync() waits for every warp: put what this loop waits for before it",
                kind=Deadlock,
            )
        return self.fault(
            "TK509",
            f"warp {self.id} has run {self.launch.steps:,} loop iterations and has not ended",
            s,
            hint=hint,
        )

    # ---------------------------------------------------------------------------------- counting
    @property
    def counting(self) -> bool:
        return self.launch.counting

    def add(self, s: Any, delta: Any, times: int = 0) -> None:
        """One execution of a counted pattern in each block (or `times` executions)."""
        self.launch.result.calls += 1
        if self.trace is not None:
            for seen in delta.seen:
                self.trace.see(self, s, *seen)
        if self.launch.recorder is not None:
            self.launch.recorder.counted(self, s, delta)
        tally, key = self.launch.tally, (s.line, delta)
        tally[key] = tally.get(key, 0) + (times or self.batch.n)

    def count(self, line: int, metric: str, n: int) -> None:
        loose, key = self.launch.loose, (line, metric)
        loose[key] = loose.get(key, 0) + n

    def clip(self, line: int, n: int) -> None:
        c = self.launch.result.clipped
        c[line] = c.get(line, 0) + n

    @contextmanager
    def silent(self):
        """What is done inside was counted already."""
        was, self.launch.counting = self.launch.counting, False
        try:
            yield
        finally:
            self.launch.counting = was

    # ---------------------------------------------------------------------------------- messages
    def first(self, m: Any, bad: Any) -> tuple[int, int] | None:
        """(block in the batch, lane) of the first active lane where `bad` holds, or None."""
        if type(bad) is not ndarray:
            if not bad:
                return None
            bad = np.ones((1, 1), bool)
        m = self.mask if m is None else m
        if m is not None:
            bad = bad & m
        if bad.shape[1] == 1:
            bad = np.broadcast_to(bad, (len(bad), 32))
        k = np.argwhere(bad)
        return (int(k[0, 0]), int(k[0, 1])) if len(k) else None

    @staticmethod
    def at_position(v: Any, pos: tuple[int, int]) -> Any:
        if type(v) is not ndarray or v.ndim != 2:
            return v
        return v[min(pos[0], len(v) - 1), min(pos[1], v.shape[1] - 1)]

    def where(self, pos: Any) -> str:
        b, lane = pos if pos is not None else (0, None)
        linear = int(self.batch.tags[min(b, self.batch.n - 1), 0]) - 1
        tail = f", lane {lane}" if lane is not None else ""
        return f"block {self.batch.block_name(linear)}, warp {self.id}{tail}"

    def fault(
        self,
        code: str,
        message: str,
        s: Any,
        pos: Any = None,
        hint: str = "",
        kind: type[KernelFault] = KernelFault,
    ) -> KernelFault:
        loc: Loc = s.loc
        e = kind(code, f"{message} [{self.where(pos)}]", loc, hint)
        e.where = {"warp": self.id, "block": self.where(pos)}  # type: ignore[attr-defined]
        return e


def _assert(w: Warp, c: Any, m: Any, message: str, values: tuple, s: Any) -> None:
    pos = w.first(m, ~c if type(c) is ndarray else not c)
    if pos is not None:
        said = ", ".join(f"{k} = {w.at_position(v, pos)}" for k, v in values)
        raise w.fault(
            "TK511",
            f"assert failed: {message}" + (f" ({said})" if said else ""),
            s,
            pos,
            "the assertion is the kernel's own",
        )


def _print(w: Warp, m: Any, s: Any, *args: Any) -> None:
    """[block (0, 0, 0) warp 0] and the values: arrays of 32 where lanes differ."""
    if m is None:
        m = w.mask
    shown = []
    for a in args:
        if type(a) is ndarray:
            a = a[0]
            if a.shape == (32,) and m is not None:
                a = a[np.broadcast_to(m, (1, 32))[0]]
            a = a.item() if a.size == 1 else a
        if type(a) is ndarray:
            shown.append(np.array2string(a, precision=4, max_line_width=2000))
        else:
            shown.append(f"{a:g}" if isinstance(a, (np.float32, float)) else str(a))
    who = "" if m is None else f" lanes {np.flatnonzero(np.broadcast_to(m, (1, 32))[0]).tolist()}"
    linear = int(w.batch.tags[0, 0]) - 1
    line = f"[block {w.batch.block_name(linear)} warp {w.id}{who}] {' '.join(shown)}"
    w.launch.result.printed.append(line)
    print(line, file=sys.stdout)


RUNTIME: dict[str, Any] = {"_assert": _assert, "_print": _print}
