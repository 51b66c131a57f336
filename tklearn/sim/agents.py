"""Who acts in a block: warps, and the asynchronous operations that they start.

Every agent has a number and a clock of its own; a vector clock holds, for each agent, up to which
of its accesses the holder is ordered after. What runs asynchronously completes in order, agent by
agent, so that one number says how far it is known to be done:

* a warp: its accesses, in epochs that barriers and arrivals end;
* the TMA loads that complete on one semaphore: its phases;
* per warp, the shared memory that its TMA stores read, and the global memory that they write: its
  groups of stores;
* per warp, its wgmma groups.

This file knows numbers only.
"""

from __future__ import annotations

from typing import Any

import numpy as np

NEVER = 1 << 60  # the clock of an operation that nothing waits for yet


class Agents:
    """The agents of one kernel: `warps` warps and `semaphores` mbarriers, or warps alone."""

    def __init__(self, warps: int, semaphores: int, asynchronous: bool) -> None:
        self.warps = warps
        self.total = 4 * warps + semaphores if asynchronous else warps

    def clock(self) -> Any:
        """A vector clock that is ordered after nothing."""
        return np.zeros(self.total, np.int64)

    def store_reads(self, warp: int) -> int:
        """The agent that reads shared memory for the TMA stores of a warp."""
        return self.warps + warp

    def store_writes(self, warp: int) -> int:
        """The agent that writes global memory for the TMA stores of a warp."""
        return 2 * self.warps + warp

    def wgmma(self, warp: int) -> int:
        """The agent that runs the wgmma groups of a warp."""
        return 3 * self.warps + warp

    def semaphore(self, i: int) -> int:
        """The agent that runs the TMA loads of the i-th semaphore."""
        return 4 * self.warps + i

    def who(self, agent: int) -> str:
        """The name of an agent, for messages."""
        kind, warp = divmod(agent, self.warps)
        if kind == 0:
            return f"warp {agent}"
        if kind < 3:
            return f"the TMA store of warp {warp}"
        return f"wgmma of warp {warp}" if kind == 3 else "the TMA load"


def joined(a: Any, b: Any) -> Any:
    """The vector clock of somebody who is ordered after both."""
    return np.maximum(a, b)
