"""Register reallocation (setmaxnreg): what a block started with, handed over between warpgroups.

Its warps start with equal shares of the SM's 65,536 registers, in steps of 8 a lane; what the steps
leave over, nobody gets (measured on an H200: 384 threads start with 168 each, and 240 + 240 + 32
hang, 240 + 240 + 24 do not). A warpgroup that asks for more waits until others have given enough
back. This file knows numbers of registers.
"""

from __future__ import annotations

from typing import Any

POOL = 65_536  # 32-bit registers of an SM, sm_70 to sm_120


class Pool:
    """The registers of all warps of a block."""

    def __init__(self, threads: int) -> None:
        warps = -(-threads // 32)
        self.start = min(POOL // (32 * max(warps, 1)) // 8 * 8, 256)
        self.held = [self.start] * warps
        self.lines: dict[int, int] = {}

    def free(self, warp: int) -> int:
        """Registers a thread that `warp` could have beside what the others hold."""
        others = sum(self.held) - self.held[warp]
        return self.start * len(self.held) - others


class Waiting:
    """A warp that waits for registers."""

    __slots__ = ("pool", "n", "site")

    def __init__(self, pool: Pool, n: int, site: Any) -> None:
        self.pool, self.n, self.site = pool, n, site

    def ready(self, w: Any) -> bool:
        return self.pool.free(w.id) >= self.n

    def resume(self, w: Any) -> None:
        self.pool.held[w.id] = self.n
        self.pool.lines[w.id] = self.site.line

    def advice(self) -> str:
        return (
            "what increase_registers takes, others must have given with decrease_registers: the "
            f"registers a lane of all {len(self.pool.held)} warps add up to at most "
            f"{self.pool.start * len(self.pool.held)}"
        )

    def says(self) -> str:
        held, all_ = self.pool.held, self.pool.start * len(self.pool.held)
        return (
            f"increase_registers({self.n}): {sum(held) - min(held)} of {all_} registers a lane are "
            f"held by other warps (all started with {self.pool.start})"
        )
