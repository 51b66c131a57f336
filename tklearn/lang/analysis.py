"""Facts of a finished IR that both machines need: shared memory offsets, registers, architecture.

Knows sizes and limits that hold on every GPU. Which values agree is infer.py's.
"""

from __future__ import annotations

from typing import Any

from tklearn.lang import ir
from tklearn.lang import types as T
from tklearn.lang.async_rules import TMA_ALIGN
from tklearn.lang.errors import LaunchError, SourceError
from tklearn.lang.ops import MMA_ARCH, Op
from tklearn.lang.types import RT, RV, SV, Regs

MAX_SHARED = 227 * 1024  # the largest opt-in of any supported GPU (FACTS.md 6, sm_90)
MAX_REGISTERS = 255  # 32-bit registers a lane


def op_arch(op: Op, args: list[Any]) -> int:
    """The smallest architecture that has this operation on these types."""
    if op.effect == "mma" and isinstance(args[1].type, RT):
        return MMA_ARCH[args[1].type.dtype.name]
    return op.arch


def place_shared(k: ir.Kernel) -> None:
    """Gives each shared symbol its byte offset. Error TK408 above 227 KB."""
    at = 0
    by_tma = _vectors_by_tma(k)
    for s in k.shared:
        size = _bytes(s)
        if s.alias_of is not None:
            s.offset += s.alias_of.offset
            end = s.alias_of.offset + _bytes(s.alias_of)
            if s.offset + size > end:
                raise SourceError(
                    "TK201",
                    f"'{s.name}' ends {s.offset + size - end} bytes past '{s.alias_of.name}'",
                    s.loc,
                    f"'{s.name}' has {size} bytes, '{s.alias_of.name}' has {_bytes(s.alias_of)}",
                )
            continue
        align = s.type.align  # type: ignore[attr-defined]
        if by_tma and isinstance(getattr(s.type, "elem", s.type), SV):
            align = TMA_ALIGN
        s.offset = -(-at // align) * align
        at = s.offset + size
    k.shared_bytes = at
    if at > MAX_SHARED:
        own = sorted((s for s in k.shared if s.alias_of is None), key=_bytes, reverse=True)
        parts = ", ".join(f"{s.name} {_bytes(s)}" for s in own)
        raise LaunchError(
            "TK408",
            f"'{k.name}' needs {at} bytes of shared memory; "
            f"no GPU gives a block more than {MAX_SHARED}",
            own[0].loc,
            f"bytes: {parts}; take smaller tiles or fewer stages",
        )


def _vectors_by_tma(k: ir.Kernel) -> bool:
    """Does TMA copy shared vectors? It wants their places more aligned than others do."""
    return any(
        n.op.name.startswith("tma.")
        and any(isinstance(getattr(a, "type", None), SV) for a in n.args)
        for body in (k.body, *(f.body for f in k.functions))
        for n in ir.walk(body)
        if isinstance(n, ir.Do)
    )


def _bytes(s: ir.Sym) -> int:
    return s.type.nbytes  # type: ignore[attr-defined, no-any-return]


def registers(t: T.Type) -> int:
    """32-bit registers a lane for a tile, a vector or a number."""
    if isinstance(t, (RT, RV)):
        return t.regs_per_lane
    if isinstance(t, Regs):
        return -(-t.n * t.dtype.itemsize // 4)
    return 0


def check_registers(k: ir.Kernel) -> None:
    """Error TK409 where tiles that live at the same time need more than 255 registers a lane.

    A tile lives from its first to its last use (through the whole loop if it was declared outside);
    temporaries are not counted, so a kernel that passes may still spill: the compile report
    says so.
    """
    for body in (k.body, *(f.body for f in k.functions)):
        _check_body(k, body)


def _check_body(k: ir.Kernel, body: list[ir.Stmt]) -> None:
    first: dict[ir.Sym, int] = {}
    last: dict[ir.Sym, int] = {}
    clock = 0

    def visit(stmts: list[ir.Stmt]) -> None:
        nonlocal clock
        for s in stmts:
            clock += 1
            start = clock
            inner = [
                b
                for b in (getattr(s, x, None) for x in ("body", "then", "els"))
                if isinstance(b, list)
            ]
            heads = [c for c in ir.children(s) if not isinstance(c, ir.Stmt)]
            for e in heads:
                for n in ir.walk(e):
                    if isinstance(n, ir.Var) and registers(n.type):
                        first.setdefault(n.sym, clock)
                        last[n.sym] = clock
            if isinstance(s, ir.Decl) and registers(s.sym.type) > MAX_REGISTERS:
                first[s.sym] = last[s.sym] = clock  # too large for any lane, used or not
            if isinstance(s, ir.Decl) and s.init is not None and registers(s.sym.type):
                first.setdefault(s.sym, clock)
                last[s.sym] = clock
            for b in inner:
                visit(b)
            clock += 1
            if isinstance(s, (ir.For, ir.While)):
                for sym in first:
                    if first[sym] < start <= last[sym]:
                        last[sym] = clock

    visit(body)
    for at in sorted(set(first.values())):
        live = [s for s in first if first[s] <= at <= last[s]]
        total = sum(registers(s.type) for s in live)
        if total > MAX_REGISTERS:
            parts = ", ".join(f"{s.name} {registers(s.type)}" for s in live)
            raise LaunchError(
                "TK409",
                f"'{k.name}' keeps {total} registers a lane in tiles; a lane has {MAX_REGISTERS}",
                max(live, key=lambda s: registers(s.type)).loc,
                f"registers: {parts}; take smaller tiles or more warps",
            )
