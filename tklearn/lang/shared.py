"""Declarations of shared memory: tk.shared, tk.shared_array, tk.alias.

Knows what may be declared and where; offsets are analysis.py's.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from tklearn.lang import calls, ir
from tklearn.lang import types as T
from tklearn.lang.source import UNKNOWN
from tklearn.lang.types import ST, SV, SArr, Semaphore, Shared

if TYPE_CHECKING:
    from tklearn.lang.frontend import Front


def declare(
    front: Front, n: ast.AST, target: ast.Name, old: ir.Sym | None, kind: str, call: ast.Call
) -> list[ir.Stmt]:
    if front.device or len(front.scopes) != 2:
        raise front.fail(
            n,
            "TK108",
            "shared memory is declared at the top of the kernel, outside blocks and helpers",
            "declare it there and pass it on",
        )
    if old is not None:
        raise front.fail(n, "TK111", f"'{target.id}' already is {old.type}")
    parent: ir.Sym | None = None
    offset = 0
    if kind == "alias":
        t, parent, offset = alias(front, call)
    else:
        values = [front.static(a) for a in call.args]
        bad = next((a for a, v in zip(call.args, values) if v is UNKNOWN), None)
        if bad is not None or call.keywords or not values:
            raise front.fail(
                bad or call,
                "TK105",
                "shared memory needs compile-time types and sizes",
                "tk.shared(tk.st_bf(64, 64), 4), tk.shared_array(tk.f32, 32, 33)",
            )
        t = shared_type(front, call, kind, values)
    sym = front.declare(target, t, "shared")
    sym.alias_of, sym.offset = parent, offset
    assert front.unit
    front.unit.shared.append(sym)
    return [ir.Decl(front.loc(n), sym, None)]


def shared_type(front: Front, call: ast.Call, kind: str, values: list[Any]) -> T.Type:
    head, dims = values[0], values[1:]
    if any(isinstance(d, bool) or not isinstance(d, int) or d <= 0 for d in dims):
        raise front.fail(
            call,
            "TK201",
            f"sizes of shared memory must be positive whole numbers, not {tuple(dims)}",
        )
    if kind == "shared_array":
        if not isinstance(head, T.DType) or not dims:
            raise front.fail(
                call,
                "TK106",
                "tk.shared_array takes a dtype and sizes",
                "tk.shared_array(tk.f32, 32, 33)",
            )
        return SArr(head, tuple(dims))
    if not isinstance(head, (ST, SV, Semaphore)):
        raise front.fail(
            call,
            "TK106",
            "tk.shared takes the type of a shared tile or vector, or tk.semaphore",
            "tk.shared(tk.st_bf(64, 64))",
        )
    return Shared(head, tuple(dims)) if dims else head


def alias(front: Front, call: ast.Call) -> tuple[T.Type, ir.Sym, int]:
    """tk.alias(x, type, offset=0): another view of x's bytes."""
    a = calls.arguments(front, call, ["x", "type", "offset"], "tk.alias", {"offset"})
    base = front.ex(a["x"])
    if not isinstance(base, ir.Var) or base.sym.storage != "shared":
        raise front.fail(a["x"], "TK106", "tk.alias needs the name of shared memory")
    if isinstance(getattr(base.type, "elem", base.type), Semaphore):
        raise front.fail(a["x"], "TK106", "semaphores have no other view", "alias tiles or arrays")
    v = front.static(a["type"])
    if isinstance(v, tuple) and v and isinstance(v[0], T.DType):
        v = shared_type(front, call, "shared_array", list(v))
    off = front.static(a["offset"]) if "offset" in a else 0
    if not isinstance(v, (ST, SV, SArr)) or not isinstance(off, int):
        raise front.fail(
            call,
            "TK106",
            "tk.alias(x, type, offset): a type and a number of bytes",
            "the type is tk.st_bf(...), tk.sv(...) or (dtype, *sizes)",
        )
    if off < 0 or off % v.align:
        raise front.fail(
            call, "TK201", f"the offset of {v} must be a multiple of {v.align} bytes, not {off}"
        )
    root = base.sym
    while root.alias_of is not None:
        off, root = off + root.offset, root.alias_of
    return v, root, off
