"""All schedules of one block: `kernel.sim[grid].explore(...)`.

A run of the simulator shows one order of steps (schedule.py says what a step is). Most orders
differ only in the order of steps that have nothing to do with each other, and have the same
result. This file runs one order of each such class: after a run it looks for pairs of steps that
act on one object (a semaphore, a named barrier, an element that atomics change) and that nothing
orders, and runs the block again with the second one before the first. That is dynamic partial-order
reduction with source sets and sleep sets (Abdulla, Aronis, Jonsson, Sagonas: "Optimal dynamic
partial order reduction", POPL 2014). A generator cannot be copied, so that every run starts anew
and repeats its first steps.

Why accesses to memory are not among the pairs: races.py reports two accesses that nothing orders in
whatever order they come, and atomics are seen here. What commutes, and is therefore no pair either:
arrivals, expected bytes and bytes that come within one phase of a semaphore; arrivals within one
opening of a barrier; atomic minimum, maximum, and integer addition whose old value is not used. A
step that only waits for others to have come (wgmma, a named barrier) can never be too early.

Limits. Atomics and plain code between two synchronising operations are one step. A loop that spins
on memory has no end of schedules: the search is then bounded, and says so. Blocks are looked at one
by one. What a step acts on and what it comes after is orders.py's; this file knows runs.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tklearn.lang import ir
from tklearn.lang.errors import LaunchError, TkError
from tklearn.lang.types import GL
from tklearn.sim.machine import STEPS, Launch
from tklearn.sim.options import checked
from tklearn.sim.orders import LONGEST, Node, Order, Search, Stop, TooLong
from tklearn.sim.schedule import Schedule

LATE, MANY = "late", "many"
OPTIONS = ("runs", "seconds", "blocks", "prune", "check", "mma", "arch", "steps")


@dataclass(frozen=True)
class Exploration:
    """What all schedules of a kernel's blocks have shown, each block by itself.

    What two blocks do to each other is no question of schedules: a plain run reports it.

    complete: nothing was left out; else `reason` says why something was. runs: schedules that were
    run to their end (or to a fault); states: different states of the block on the way. values: a
    hash of the arrays for each different result of a block, and `schedules` one schedule for each;
    `differs`: where each differs first from the first of its block, "" for that.
    fault: the first error that a schedule showed; `witness` is that schedule, and
    `kernel.sim[grid](..., schedule=witness)` shows the error again.
    """

    kernel: str
    blocks: tuple[tuple[int, int, int], ...]
    complete: bool
    reason: str
    runs: int
    states: int
    values: tuple[str, ...]
    schedules: tuple[Schedule, ...]
    fault: TkError | None
    witness: Schedule | None
    seconds: float
    differs: tuple[str, ...] = ()

    @property
    def results(self) -> int:
        """How many different results the block has that has most; 1: the order is of no account."""
        return max(Counter(s.block for s in self.schedules).values(), default=0)

    def __str__(self) -> str:
        seen = f"{self.runs} run{'s' * (self.runs != 1)}, {self.states} states"
        what = "all schedules" if self.complete else f"some schedules ({self.reason})"
        if len(self.blocks) == 1:
            what += f" of block {self.blocks[0]}"
        lines = [f"{self.kernel}: {what}: {seen}, {self.seconds:.1f} s"]
        if self.fault is not None:
            lines += [f"a fault under schedule={self.witness}:", str(self.fault)]
        elif self.results > 1:
            each = Counter(s.block for s in self.schedules)
            block = next(b for b, n in each.items() if n == self.results)
            lines.append(f"{self.results} different results, which depend on the order:")
            one, two = [i for i, s in enumerate(self.schedules) if s.block == block][:2]
            lines += [f"  schedule={self.schedules[i]}" for i in (one, two)]
            lines.append(f"the first element that differs: {self.differs[two]}")
        else:
            lines.append(
                f"no fault, and one result in {'all' if self.complete else 'each'} of them"
            )
        return "\n".join(lines)

    __repr__ = __str__


def explore(
    kernel: ir.Kernel,
    grid: tuple[int, int, int],
    args: list[Any],
    *,
    runs: int = 10_000,
    seconds: float = 20.0,
    blocks: Iterable[Any] | None = None,
    prune: str = "orders",
    check: str = "full",
    mma: str = "fast",
    arch: str = "hopper",
    steps: int = STEPS,
) -> Exploration:
    """Run the schedules of `blocks` (None: of the first one), each block for itself.

    `runs` and `seconds` bound the search (`runs` counts those, too, that are cut off). `prune`:
    "orders" runs one schedule of each class (see above), "states" cuts a run off where a state was
    seen before, "none" runs every single schedule; they come to the same verdict, and the last two
    are there to check the first one. `check="off"` leaves out races, and with them all faults but
    deadlocks and wrong uses of semaphores and barriers: the results of a racy kernel then mean
    little. The arrays in `args` are as before when this returns. The search ends at the first
    fault. Errors: LaunchError TK411 for options that are not possible.
    """
    given = {"runs": runs, "seconds": seconds, "blocks": blocks, "prune": prune, "check": check,
             "mma": mma, "arch": arch, "steps": steps}  # fmt: skip
    blocks = checked(kernel, grid, given)["blocks"]
    if 0 in grid:
        return Exploration(kernel.name, (), True, "", 0, 0, (), (), None, None, 0.0)
    start = time.perf_counter()
    one = _One(kernel, grid, args, check, mma, arch, steps)
    found: dict[tuple[Any, str], Schedule] = {}
    differs: list[str] = []
    reasons: list[str] = []
    total = tried = states = 0
    fault: TkError | None = None
    witness: Schedule | None = None
    chosen = one.blocks(blocks)
    for block in chosen:
        search = Search(prune, start + seconds, runs - tried)
        for value, fault, schedule in one.schedules(search, block):
            if fault is not None:
                witness, search.reason = schedule, "stopped at the first fault"
                break
            if (block, value) not in found:
                found[block, value] = schedule
                differs.append(one.difference(block))
        total, states = total + search.runs, states + len(search.states)
        tried += search.tried
        if search.reason == LATE:
            search.reason = f"stopped after {seconds:g} s"
        elif search.reason == MANY:
            search.reason = f"stopped after {runs} runs"
        reasons += [search.reason] if search.reason else []
        if fault is not None:
            break
    return Exploration(
        kernel.name,
        tuple(chosen),
        not reasons,
        reasons[-1] if reasons else "",
        total,
        states,
        tuple(value for _, value in found),
        tuple(found.values()),
        fault,
        witness,
        time.perf_counter() - start,
        tuple(differs),
    )


class _One:
    """Runs one block of a kernel again and again, with the same arrays."""

    def __init__(
        self,
        kernel: ir.Kernel,
        grid: tuple[int, int, int],
        args: list[Any],
        check: str,
        mma: str,
        arch: str,
        steps: int,
    ) -> None:
        self.kernel, self.grid, self.args, self.steps = kernel, grid, args, steps
        self.check, self.mma, self.arch = check, mma, arch
        outputs = [(p, a) for p, a in zip(kernel.params, args, strict=True) if p.written]
        self.names = [p.name for p, a in outputs if isinstance(p.type, GL)]
        self.outputs = [a for p, a in outputs if isinstance(p.type, GL)]
        self.first = [a.copy() for a in self.outputs]
        self.latest: list[Any] = []  # what the outputs held after the latest whole run
        self.kept: tuple[Any, list[Any]] = (None, [])  # a block, and its first result

    def difference(self, block: tuple[int, int, int]) -> str:
        """Where the latest run's result differs from the block's first; "" for the first."""
        if self.kept[0] != block:
            self.kept = block, self.latest
            return ""
        for name, a, b in zip(self.names, self.kept[1], self.latest, strict=True):
            x, y = (v.view(np.uint8).reshape(*v.shape, -1) for v in (a, b))  # NaNs are equal, too
            other = (x != y).any(axis=-1)
            if other.any():
                at = tuple(int(i) for i in np.argwhere(other)[0])
                return f"{name}[{', '.join(map(str, at))}] is {a[at]} and {b[at]}"
        raise AssertionError("different hashes of equal arrays")

    def blocks(self, blocks: Iterable[Any] | None) -> list[tuple[int, int, int]]:
        groups = self._launch()._groups([0] if blocks is None else blocks, False, 1)
        return [tuple(int(i) for i in row) for g in groups for row in g]  # type: ignore[misc]

    def _launch(self) -> Launch:
        launch = Launch(self.kernel, self.grid, self.args, self.check, "rotate", 0, {}, self.steps)
        launch.exact, launch.arch = self.mma == "exact", self.arch
        launch.counting = False
        return launch

    def schedules(
        self, search: Search, block: tuple[int, int, int]
    ) -> Iterator[tuple[str, TkError | None, Schedule]]:
        """(hash of the result, the fault, the schedule) of one run after the other."""
        path: list[Node] = []
        while True:
            late = time.perf_counter() > search.deadline
            if late or search.tried >= search.limit:
                search.reason = search.reason or (LATE if late else MANY)
                return
            search.tried += 1
            run = Order(path, search)
            got = self._run(run, search, block)
            if got is not None:
                search.runs += 1
                yield (*got, Schedule(block, tuple(run.steps)))
            if not _next(path):
                return

    def _run(
        self, run: Order, search: Search, block: tuple[int, int, int]
    ) -> tuple[str, TkError | None] | None:
        """One run; None where it shows nothing new."""
        launch = self._launch()
        launch.chooser = run
        try:
            with np.errstate(all="ignore"), contextlib.redirect_stdout(io.StringIO()):
                launch.run([block], False, 1)
            launch.close()
            digest = hashlib.blake2b(digest_size=8)
            for a in self.outputs:
                digest.update(a.tobytes())
            self.latest = [a.copy() for a in self.outputs]
            return digest.hexdigest(), None
        except Stop:
            return None
        except TooLong:
            search.reason = f"a run has more than {LONGEST} steps"
            return None
        except LaunchError:
            raise
        except TkError as e:
            return "", e
        finally:
            for a, first in zip(self.outputs, self.first, strict=True):
                a[...] = first


def _next(path: list[Node]) -> bool:
    """Turn to what is still to be tried, deepest first. False: nothing is."""
    while path:
        node = path[-1]
        node.tried()
        left = [a for a in node.todo if a not in node.asleep]
        if left:
            node.chosen = left[0]
            return True
        path.pop()
    return False


__all__ = ["Exploration", "explore"]
