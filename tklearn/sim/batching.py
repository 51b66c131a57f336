"""Which grid axes one run of the generators may serve at once, and how many blocks fit in a batch.

Static questions about the IR only: what a mask over (block, lane) can express and what it cannot.
This file knows no NumPy and nothing of how the simulator stores values.
"""

from __future__ import annotations

from typing import Any

from tklearn.lang import ir
from tklearn.lang.ops import blocks
from tklearn.lang.types import (
    GL,
    RT,
    RV,
    ST,
    SV,
    Regs,
    Ring,
    SArr,
    Scalar,
    Semaphore,
    Shared,
    SubST,
)

ALL_AXES = 1 | 2 | 4


class Shape:
    """What a kernel's statements need: answers are cached per statement list and function."""

    def __init__(self, kernel: ir.Kernel) -> None:
        self.kernel = kernel
        self._unmaskable: dict[int, bool] = {}
        self._yields: dict[int, bool] = {}
        self._busy: set[int] = set()
        self.bad = 0
        for body in (kernel.body, *(f.body for f in kernel.functions)):
            self._axes(body, body, body)
        self.single = bool(self.bad & ir.DATA)
        self.bytes_per_block = self._bytes_per_block()
        every = [kernel.body, *(f.body for f in kernel.functions)]
        self.tiles = any(
            isinstance(n, ir.Expr) and isinstance(n.type, (RT, RV, ST, SV))
            for body in every
            for n in ir.walk(body)
        )

    # ------------------------------------------------------------------ what masks cannot express
    def unmaskable(self, nodes: Any) -> bool:
        """Whether a statement list or node holds something that acts for a whole warp or block."""
        key = id(nodes)
        if key not in self._unmaskable:
            if key in self._busy:
                return False
            self._busy.add(key)
            self._unmaskable[key] = any(self._whole(n) for n in ir.walk(nodes))
            self._busy.discard(key)
        return self._unmaskable[key]

    def _whole(self, n: Any) -> bool:
        if isinstance(n, (ir.Do, ir.Subtile, ir.Advance)):
            return True
        if isinstance(n, ir.Call):
            return n.op.scope != "lane" or n.op.effect == "shuffle"
        if isinstance(n, ir.CallDevice):
            refs = any(isinstance(a.type, (RT, RV, Shared, Semaphore)) for a in n.args)
            return refs or self.unmaskable(n.fn.body)
        if isinstance(n, ir.Index) and isinstance(n.base.type, Shared):
            return any(i.uni.level > ir.WARP for i in n.idx)  # else one tile, whoever is active
        if isinstance(n, ir.Decl):
            return isinstance(n.sym.type, (RT, RV, ST, SV, SArr, Shared, Semaphore, Ring))
        return isinstance(n, ir.Expr) and isinstance(n.type, (RT, RV)) and not isinstance(n, ir.Var)

    # ------------------------------------------------------------------------- axes to loop over
    def _axes(self, stmts: list, loop: list, func: list) -> None:
        for s in stmts:
            if isinstance(s, ir.If):
                self._need(
                    s.cond,
                    self.unmaskable(s.then)
                    or self.unmaskable(s.els)
                    or self._jump_matters(s, loop, func),
                )
            elif isinstance(s, ir.For):
                for e in heads(s):
                    self._need(e, e is s.step or self.unmaskable(s.body))
            elif isinstance(s, ir.While):
                self._need(s.cond, self.unmaskable(s.body) or self.unmaskable(s.cond))
            for n in self._own(s):
                self._node(n)
            inner = s.body if isinstance(s, (ir.For, ir.While)) else loop
            for part in bodies(s):
                self._axes(part, inner, func)

    def _own(self, s: Any):
        """Nodes of a statement that are not in its nested statements."""
        for c in ir.children(s):
            if isinstance(c, ir.Expr):
                yield from ir.walk(c)
        yield s

    def _jump_matters(self, s: ir.If, loop: list, func: list) -> bool:
        kinds = jumps(s.then) | jumps(s.els)
        if "return" in kinds and self.unmaskable(func):
            return True
        return bool(kinds - {"return"}) and self.unmaskable(loop)

    def _need(self, e: ir.Expr, matters: bool) -> None:
        if matters:
            self.bad |= e.uni.deps
            if e.uni.deps & ir.DATA:
                self.bad |= ALL_AXES

    def _node(self, n: Any) -> None:
        if isinstance(n, (ir.Print, ir.Breakpoint)):
            self.bad |= ALL_AXES | ir.DATA
        elif isinstance(n, ir.Index) and isinstance(n.base.type, Shared):
            for i in n.idx:
                self._need(i, True)
        elif isinstance(n, ir.Do) and blocks(n.op, n.args):
            for p, a in zip(n.op.params, n.args):
                if p.role == "index":  # phases, counts, barriers: one for all blocks of a batch
                    self._need(a, True)
        elif isinstance(n, ir.Subtile):
            self._need(n.i, True)
            self._need(n.j, True)
        elif isinstance(n, (ir.Call, ir.Do)) and n.op.intrinsic is not None:
            self.bad |= ALL_AXES | ir.DATA
        elif isinstance(n, ir.Eval) and isinstance(n.value, ir.Call):
            return
        elif isinstance(n, ir.Call) and n.op.effect == "atomic" and id(n) not in self._dropped():
            self.bad |= ALL_AXES | ir.DATA

    def _dropped(self) -> set[int]:
        """Atomics whose old value is not used."""
        if not hasattr(self, "_drop"):
            every = [self.kernel.body, *(f.body for f in self.kernel.functions)]
            self._drop = {id(n.value) for b in every for n in ir.walk(b) if isinstance(n, ir.Eval)}
        return self._drop

    # ---------------------------------------------------------------------------- who may yield
    def yields(self, fn: ir.Function) -> bool:
        """Whether a device function can block: it is a generator then."""
        key = id(fn)
        if key not in self._yields:
            self._yields[key] = False
            self._yields[key] = any(self._blocks(n) for n in ir.walk(fn.body))
        return self._yields[key]

    def _blocks(self, n: Any) -> bool:
        if isinstance(n, ir.Do):
            return n.op.name == "block.sync" or blocks(n.op, n.args)
        if isinstance(n, ir.While):
            return self.spins(n)
        return isinstance(n, ir.CallDevice) and self.yields(n.fn)

    def spins(self, s: ir.While) -> bool:
        """Whether what others write may end this loop."""
        return any(
            isinstance(n, ir.Index) and isinstance(n.base.type, (GL, SArr, SV, ST))
            for n in ir.walk(s)
        )

    # ----------------------------------------------------------------------------- size of a batch
    def _bytes_per_block(self) -> int:
        """Decoded bytes that one block keeps alive: registers, shared memory, lane values."""
        k = self.kernel
        shared = sum(_decoded(s.type) for s in k.shared)
        # indices that differ by block need shadow entries: last write, last read of some warps
        shared += sum(
            8 * 4 * _decoded(s.type) // 4 for s in k.shared if isinstance(s.type, (SArr, SV))
        )
        regs = lanes = 0
        for body in (k.body, *(f.body for f in k.functions)):
            for n in ir.walk(body):
                if isinstance(n, ir.Decl):
                    regs += _decoded(n.sym.type) if isinstance(n.sym.type, (RT, RV, Regs)) else 0
                    lanes += isinstance(n.sym.type, Scalar)
        return shared + k.warps * (regs + 256 * (lanes + 4))


def _decoded(t: Any) -> int:
    if isinstance(t, Shared):
        n = 1
        for d in t.dims:
            n *= d
        return n * _decoded(t.elem)
    if isinstance(t, (RT, ST, SubST)):
        return 4 * t.rows * t.cols
    if isinstance(t, (RV, SV)):
        return 4 * t.n
    if isinstance(t, Regs):
        return 128 * t.n
    return t.nbytes if isinstance(t, SArr) else 0


def heads(s: Any) -> list[ir.Expr]:
    """The expressions that decide how often a loop runs."""
    if isinstance(s, ir.While):
        return [s.cond]
    return [s.lo, s.hi, *([s.step] if isinstance(s.step, ir.Expr) else [])]


def bodies(s: Any) -> list[list]:
    """The statement lists inside a statement."""
    if isinstance(s, ir.If):
        return [s.then, s.els]
    return [s.body] if isinstance(s, (ir.For, ir.While, ir.Scope)) else []


def jumps(stmts: list) -> set[str]:
    """Which of break, continue, return leave these statements."""
    out: set[str] = set()
    for s in stmts:
        if isinstance(s, ir.Return):
            out.add("return")
        elif isinstance(s, ir.Break):
            out.add("break")
        elif isinstance(s, ir.Continue):
            out.add("continue")
        for b in bodies(s):
            inner = jumps(b)
            out |= inner & {"return"} if isinstance(s, (ir.For, ir.While)) else inner
    return out
