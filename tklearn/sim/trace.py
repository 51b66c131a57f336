"""The accesses of one block, kept as they were executed: `kernel.sim[grid](..., trace=True)`.

Of each source line the first warp that runs it is followed, in the first block of the launch, which
then runs as a batch of its own. This file knows sites and lanes' byte offsets; what an access costs
is access.py's, and how it looks is viz's.
"""

from __future__ import annotations

from typing import Any

from tklearn.lang import ir
from tklearn.lang.types import GL, REF_TYPES, Shared
from tklearn.report import WarpAccess

MOST = 256
"""Accesses kept of one line; a loop goes on without being kept."""


class Trace:
    """Source line -> accesses, in the order of execution."""

    def __init__(self, kernel: ir.Kernel) -> None:
        self.lines: dict[int, list[WarpAccess]] = {}
        self.warps: dict[int, int] = {}
        self.bases = {s.name: s.offset for s in kernel.shared if not isinstance(s.type, Shared)}

    def see(self, w: Any, s: Any, space: str, kind: str, width: int, offsets: Any) -> None:
        """Keep accesses [n, 32] of `kind`, `width` bytes a lane (or matrices), at site `s`."""
        kept = self.lines.setdefault(s.line, [])
        if self.warps.setdefault(s.line, w.id) != w.id:
            return
        array = _array(s.node, space)
        base = self.bases.get(array, 0) if space == "shared" else 0
        block = tuple(int(x) for x in w.batch.blocks[0])
        for row in offsets[: MOST - len(kept)]:
            at = tuple(int(x) for x in row)
            kept.append(WarpAccess(space, kind, width, at, array, base, w.id, block))


def _array(node: Any, space: str) -> str:
    """The name of the first array of this space that a node names, "" if there is none."""
    for x in ir.walk(node):
        held = x.type if isinstance(x, ir.Var) else None
        if isinstance(held, REF_TYPES) and isinstance(held, GL) == (space == "global"):
            return str(x.sym.name)
    return ""
