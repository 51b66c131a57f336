"""The order of steps of one block, as a list that can be printed, kept and run again.

A step is one agent's: a warp up to and with its next synchronising operation (a wait has a step of
its own in which it passes), or a TMA transfer that lands. Warps are named by their number, and
transfers by the warp that issued them and their number among its transfers: "4:0" is the first one
of warp 4. `kernel.sim[grid](..., schedule=[0, 0, "4*3", "4:0"])` runs such a list ("4*3" is three
steps of warp 4) and then goes on by itself; explore.py makes them. This file knows agents by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tklearn.lang import ir
from tklearn.lang.errors import LaunchError

Agent = int | tuple[int, int]  # a warp, or (the warp that issued a transfer, its number there)
PATIENCE = 64  # steps that one warp makes in a row where nobody says who is next
_ITEM = re.compile(r"(\d+)(?::(\d+))?(?:\*(\d+))?")


@dataclass(frozen=True)
class Schedule:
    """The steps of one block: `kernel.sim[grid](..., schedule=this)` runs exactly that.

    block: its index in the grid. steps: who makes them, in order.
    """

    block: tuple[int, int, int]
    steps: tuple[Agent, ...]

    def __iter__(self) -> Iterator[int | str]:
        """As a list that can be written in a call: equal steps in a row are one item."""
        start = 0
        for i in range(1, len(self.steps) + 1):
            if i == len(self.steps) or self.steps[i] != self.steps[start]:
                agent, n = self.steps[start], i - start
                said = said_of(agent)
                yield f"{said}*{n}" if n > 1 else said if isinstance(agent, tuple) else agent
                start = i

    def __str__(self) -> str:
        return f"[{', '.join(map(repr, self))}]"


def said_of(agent: Agent) -> str:
    """3, or "3:0" for a transfer."""
    return str(agent) if isinstance(agent, int) else f"{agent[0]}:{agent[1]}"


def parsed(kernel: ir.Kernel, items: Iterable[Any]) -> list[Agent]:
    """The steps that a list names. Error TK411."""
    steps: list[Agent] = []
    for i, x in enumerate(items):
        m = _ITEM.fullmatch(x) if isinstance(x, str) else None
        if isinstance(x, tuple) and len(x) == 2:
            m = _ITEM.fullmatch(f"{x[0]}:{x[1]}")
        if type(x) is int and x >= 0:
            warp, k, n = x, None, 1
        elif m is not None:
            warp, k, n = int(m[1]), m[2], int(m[3] or 1)
        else:
            raise _wrong(kernel, i, x, "is no step")
        if warp >= kernel.warps:
            raise _wrong(kernel, i, x, f"names warp {warp} of {kernel.warps} (from 0)")
        steps += [warp if k is None else (warp, int(k))] * n
    return steps


def _wrong(kernel: ir.Kernel, i: int, x: Any, why: str) -> LaunchError:
    return LaunchError(
        "TK411",
        f"schedule[{i}] = {x!r} {why}",
        kernel.loc,
        'a warp\'s number for its next step, "2*5" for five steps of warp 2, "2:0" for the first '
        "TMA transfer of warp 2 to land",
    )


class Chooser:
    """Who makes the next step of a block. The batch asks; the warps tell what they do.

    This one lets a warp go on for as long as it can.
    """

    def __init__(self) -> None:
        self.transfers: dict[int, tuple[Any, Agent]] = {}  # by id of the flight, which is kept
        self.issued: dict[int, int] = {}
        self.steps: list[Agent] = []
        self.row = 0  # steps that the last agent has made in a row

    def agent(self, x: Any) -> Agent:
        """The name of a warp or of a transfer under way."""
        found = self.transfers.get(id(x))
        return found[1] if found is not None else x.id

    def choose(self, batch: Any, ready: list[Any]) -> int:
        """Which of `ready` goes on."""
        agents = [self.agent(x) for x in ready]
        agent = self.pick(batch, agents)
        self.row = self.row + 1 if self.steps[-1:] == [agent] else 1
        self.steps.append(agent)
        return agents.index(agent)

    def pick(self, batch: Any, agents: list[Agent]) -> Agent:
        return self.next(agents)

    def next(self, agents: list[Agent]) -> Agent:
        """The one that went last, or who comes after it."""
        last = self.steps[-1] if self.steps else -1
        if last in agents and self.row < PATIENCE:
            return last
        after = last if isinstance(last, int) else last[0]
        later = [a for a in agents if isinstance(a, int) and a > after]
        return later[0] if later else agents[0]

    def event(self, w: Any, kind: str, s: Any, *what: Any) -> None:
        """Something that warp w does: the kinds are those of Warp.event."""
        if kind in ("load", "store"):
            k = self.issued[w.id] = self.issued.get(w.id, -1) + 1
            self.transfers[id(what[0])] = (what[0], (w.id, k))

    def begins(self, agent: Any) -> None:
        """A step begins: of a warp or a transfer."""

    def opens(self, batch: Any) -> None:
        """All warps stand at block.sync(), and it opens."""

    def ends(self, batch: Any) -> None:
        """All warps have ended."""


class Replay(Chooser):
    """Runs a list of steps, then lets warps go on for as long as they can."""

    def __init__(self, kernel: ir.Kernel, items: Iterable[Any]) -> None:
        super().__init__()
        self.kernel = kernel
        self.todo = parsed(kernel, items)

    def pick(self, batch: Any, agents: list[Agent]) -> Agent:
        at = len(self.steps)
        if at >= len(self.todo):
            return self.next(agents)
        agent = self.todo[at]
        if agent not in agents:
            raise LaunchError(
                "TK411",
                f"step {at} of the schedule is {self._who(agent)}, which cannot go on there"
                f"{self._why(batch, agent)}",
                self.kernel.loc,
                f"who can: {', '.join(map(said_of, agents))}",
            )
        return agent

    def ends(self, batch: Any) -> None:
        left = len(self.todo) - len(self.steps)
        if left > 0:
            raise LaunchError(
                "TK411",
                f"the schedule has {len(self.todo)} steps, and the block ended after "
                f"{len(self.steps)}",
                self.kernel.loc,
                "a schedule belongs to one kernel, its arguments and one block",
            )

    @staticmethod
    def _who(agent: Agent) -> str:
        if isinstance(agent, int):
            return f"warp {agent}"
        return f"transfer {agent[1]} of warp {agent[0]}"

    def _why(self, batch: Any, agent: Agent) -> str:
        if not isinstance(agent, int):
            known = any(a == agent for _, a in self.transfers.values())
            return ": it has landed" if known else ": it was not issued yet"
        w = batch.warps[agent]
        if w.gen is None:
            return ": it has ended"
        if w.at is not None:
            return f": it waits at block.sync() on line {w.at.line}"
        return f": it waits on line {w.waiting.site.line}" if w.waiting is not None else ""


def block_of(
    kernel: ir.Kernel, grid: tuple[int, int, int], schedule: Any, blocks: Iterable[Any] | None
) -> list[Any]:
    """The one block that a schedule is for. Error TK411."""
    if blocks is None and isinstance(schedule, Schedule):
        return [schedule.block]
    chosen = [0] if blocks is None else list(blocks)
    if len(chosen) != 1 or (blocks is None and grid != (1, 1, 1)):
        raise LaunchError(
            "TK411",
            f"a schedule orders the steps of one block, and this launch has "
            f"{grid[0] * grid[1] * grid[2] if blocks is None else len(chosen)}",
            kernel.loc,
            "say which: blocks=[(0, 0, 0)]",
        )
    return chosen
