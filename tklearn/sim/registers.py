"""Register reallocation (setmaxnreg): 65,536 registers an SM, handed over between warpgroups.

A kernel that reallocates owns its SM, and its warps start with equal shares of the registers. A
warpgroup that asks for more waits until others have given enough back (FACTS.md 5). This file knows
numbers of registers.
"""

from __future__ import annotations

from typing import Any

POOL = 65_536  # 32-bit registers of an SM, sm_70 to sm_120


class Pool:
    """The registers of all warps of a block."""

    def __init__(self, threads: int) -> None:
        warps = -(-threads // 32)
        start = min(POOL // (32 * max(warps, 1)) // 8 * 8, 248)
        self.held = [start] * warps
        self.lines: dict[int, int] = {}

    def free(self, warp: int) -> int:
        """Registers a thread that `warp` could have beside what the others hold."""
        others = sum(self.held) - self.held[warp]
        return POOL // 32 - others


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
            f"registers a thread of all {len(self.pool.held)} warps may add up to "
            f"{POOL // 32}"
        )

    def says(self) -> str:
        held = sum(self.pool.held) * 32
        return (
            f"increase_registers({self.n}): the block's warps hold {held} of the SM's {POOL} "
            "registers, and no warp gives any back"
        )
