"""Whether the registers that warpgroups hand over (setmaxnreg) can come out even.

A warpgroup that asks for more registers than the block has left waits, on the GPU for ever, and
with it the whole process. Where each warpgroup's last wish depends on its number alone (`if
warpgroup.groupid() == 2`), that is known before the launch. Reads the IR; knows nothing of C++.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tklearn.lang import ir
from tklearn.lang.errors import Loc

POOL = 65_536  # 32-bit registers of a multiprocessor
STEP, MOST = 8, 256  # of registers a lane

ARITHMETIC = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b,
    "//": lambda a, b: a // b, "%": lambda a, b: a % b, "&": lambda a, b: a & b,
    "|": lambda a, b: a | b, "^": lambda a, b: a ^ b,
    "<": lambda a, b: a < b, "<=": lambda a, b: a <= b, "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
}  # fmt: skip


class Undetermined(Exception):
    """What a warp asks for depends on more than its number."""


def start(threads: int) -> int:
    """Registers a lane with which the warps of a block start; what the steps leave, nobody gets
    (measured on an H200: 168 for 384 threads)."""
    return min(POOL // max(threads, 1) // STEP * STEP, MOST)


@dataclass
class Warp:
    """One warp's way through the kernel: names with known values, and the last wish."""

    number: int
    held: int
    loc: Loc | None = None
    known: dict[ir.Sym, Any] = field(default_factory=dict)

    def value(self, e: Any) -> Any:
        """A number or a truth value; None if it is not known."""
        if isinstance(e, ir.Const):
            return e.value
        if isinstance(e, ir.Var):
            return self.known.get(e.sym)
        if isinstance(e, ir.Special):
            groups = {"warpid": self.number, "warpgroup.groupid": self.number // 4,
                      "warpgroup.warpid": self.number % 4}  # fmt: skip
            return groups.get(e.name)
        if isinstance(e, ir.Unary) and e.op == "not":
            a = self.value(e.a)
            return None if a is None else not a
        if isinstance(e, (ir.Binary, ir.Compare)):
            a, b = self.value(e.a), self.value(e.b)
            if a is None or b is None or e.op not in ARITHMETIC or (e.op in "//%" and not b):
                return None
            return ARITHMETIC[e.op](a, b)
        if isinstance(e, ir.Logic):
            a, b = self.value(e.a), self.value(e.b)
            decides = e.op == "or"  # one such operand is enough
            if any(x is not None and bool(x) == decides for x in (a, b)):
                return decides
            return None if a is None or b is None else not decides
        return None

    def run(self, body: list[ir.Stmt]) -> None:
        """All statements in order. Undetermined where a wish may or may not be made."""
        for s in body:
            if isinstance(s, ir.Do):
                if s.op.effect == "registers":
                    self.held, self.loc = s.args[0], s.loc
            elif isinstance(s, ir.Decl):
                self.known[s.sym] = self.value(s.init)
            elif isinstance(s, ir.Scope):
                self.run(s.body)
            elif isinstance(s, ir.If) and self.value(s.cond) is not None:
                self.run(s.then if self.value(s.cond) else s.els)
            elif isinstance(s, ir.Eval) and isinstance(s.value, ir.CallDevice):
                self._call(s.value)
            elif isinstance(s, ir.Return):
                raise Undetermined
            else:
                self._unclear(s)

    def _call(self, call: ir.CallDevice) -> None:
        if not wishes(call.fn.body):
            return
        values = [self.value(a) for a in call.args]
        self.known.update(zip(call.fn.params, values, strict=False))
        self.run(call.fn.body)

    def _unclear(self, s: ir.Stmt) -> None:
        """A loop, a branch on other values, an assignment: what it assigns is not known then."""
        if wishes([s]) or any(isinstance(n, ir.Return) for n in ir.walk(s)):
            raise Undetermined
        for n in ir.walk(s):
            targets = n.targets if isinstance(n, ir.Swap) else [getattr(n, "target", None)]
            for t in targets:
                if isinstance(t, ir.Var):
                    self.known[t.sym] = None


def wishes(body: list[ir.Stmt]) -> bool:
    """Whether registers are asked for or given back in it, or in a helper it calls."""
    return any(
        (isinstance(n, ir.Do) and n.op.effect == "registers")
        or (isinstance(n, ir.CallDevice) and wishes(n.fn.body))
        for n in ir.walk(body)
    )


def problem(k: ir.Kernel) -> tuple[str, Loc | None, str] | None:
    """What is wrong, where and what to do, if the wishes of all warpgroups are more than the block
    starts with; None if they are not, or if that cannot be known."""
    if not wishes(k.body):
        return None
    first = start(k.nthreads)
    groups = [Warp(4 * g, first) for g in range(k.warps // 4)]
    try:
        for g in groups:
            g.run(k.body)
    except Undetermined:
        return None
    total, pool = sum(g.held for g in groups), first * len(groups)
    if total <= pool:
        return None
    greedy = max(groups, key=lambda g: g.held)
    parts = " + ".join(str(g.held) for g in groups)
    return (
        f"the warpgroups of '{k.name}' ask for {parts} = {total} registers a lane, but they start "
        f"with {first} each, {pool} in all: the last one would wait for ever",
        greedy.loc,
        f"let increase_registers and decrease_registers come to {pool} or less",
    )
