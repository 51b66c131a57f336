"""What each warp of a block issues, as data: events with their work, and what they wait for.

walk.py makes programs from a kernel, replay.py plays them on a model of one SM. This file knows
neither the language nor the machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

# Kinds of events. WORK: arithmetic. LOAD, STORE: memory through the L1. ASYNC: cp.async. TMA loads
# and stores, and wgmma, run by themselves after their issue. The rest are meetings and waits.
WORK, LOAD, STORE, SHARED, MMA, ASYNC, TMA_LOAD, TMA_STORE, WGMMA = range(9)
COMMIT, WAIT_COPIES, WAIT_STORES, WG_COMMIT, WG_WAIT = range(9, 14)
SYNC, NAMED, NAMED_ARRIVE, INIT, ARRIVE, WAIT, ATOMIC, END = range(14, 22)
HOISTED = frozenset({LOAD, SHARED})
MEETINGS = frozenset({SYNC, NAMED, NAMED_ARRIVE, ARRIVE, WAIT, WG_WAIT, WAIT_COPIES, WAIT_STORES})


class Event:
    """One step of a warp. Work is in cycles of a pipe for this warp.

    Attributes:
        kind: one of the numbers above.
        math: issue slots of the warp's scheduler. xu: cycles of its special-function unit.
        tensor: cycles of its tensor core. shared: wavefronts of shared memory.
        chain: cycles from the last issue to the result.
        serial: cycles that the warp itself takes at least: steps that wait for one another.
        whole: the result is there only when all of it is (a reduction, a vote).
        fixed: stays where the kernel has it (a register tile is not loaded before its last use).
        apart: what its sectors cost the L2 cache, if they are single ones of many lines.
        requests, sectors: global accesses and 32-byte sectors. array: whose they are. hits: sectors
            that the L1 cache has.
        after: numbers of the events whose results it uses.
        what: of a meeting: the barrier, its count, the phase; bytes of a transfer.
        line: the source line.
    """

    __slots__ = (
        "kind", "math", "xu", "tensor", "shared", "chain", "serial", "whole", "fixed", "apart",
        "requests", "sectors", "array", "hits", "after", "what", "line",
    )  # fmt: skip

    def __init__(self, kind: int, line: int, after: tuple[int, ...] = ()) -> None:
        self.kind, self.line, self.after = kind, line, after
        self.math = self.xu = self.tensor = self.shared = self.chain = self.serial = 0.0
        self.requests = self.sectors = self.hits = 0
        self.array = -1
        self.whole = self.fixed = False
        self.apart = 1.0
        self.what: Any = None


@dataclass
class Program:
    """One block: for each warp its events, and the order in which it issues them.

    loads, stores: bytes that each array moves between the L1 and the L2 cache.
    notes: what was assumed.
    """

    warps: list[list[Event]] = field(default_factory=list)
    orders: list[list[int]] = field(default_factory=list)
    loads: dict[int, float] = field(default_factory=dict)
    stores: dict[int, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    gathered: dict[int, float] = field(default_factory=dict)
    """Arrays that are read at loaded indices: how much more than is counted that may touch."""
    filling: bool = False  # such an array is small, and not yet all in the L1 cache at the end
    stretch: tuple[float, float, float] = (0.0, 0.0, 1.0)
    """How many laps more its long loops run than these events show; and long loops inside them;
    and how many times as often the outer ones turn."""

    @property
    def events(self) -> int:
        return sum(map(len, self.warps))
