"""Assignments: first values of names, stores into names and elements, exchanges.

Knows which names may be assigned and what fits into them. Blocks and their names are frontend.py's.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from tklearn.lang import calls, ir, shared
from tklearn.lang import types as T
from tklearn.lang.errors import Loc
from tklearn.lang.expressions import SYMBOL
from tklearn.lang.hints import hint, kind
from tklearn.lang.indexing import element_type
from tklearn.lang.names import DeviceName
from tklearn.lang.types import GL, REF_TYPES, RT, RV, ST, SV, Regs, Ring, SArr, Scalar, Shared

if TYPE_CHECKING:
    from tklearn.lang.frontend import Front


def assign(front: Front, n: ast.Assign) -> list[ir.Stmt]:
    """x = value, A[i] = value, a, b = b, a."""
    if len(n.targets) != 1:
        raise front.fail(
            n, "TK100", "one assignment gives one name a value", "write a line for each name"
        )
    target = n.targets[0]
    if isinstance(target, ast.Tuple):
        return swap(front, n, target)
    if isinstance(target, ast.Name):
        return assign_name(front, n, target, n.value)
    e = place(front, target)
    return [ir.Assign(front.loc(n), e, element_value(front, target, e, n.value))]


def typed(front: Front, n: ast.AnnAssign) -> list[ir.Stmt]:
    """x: tk.u32 = 0."""
    t = front.static(n.annotation)
    if not isinstance(t, T.DType) or n.value is None or not isinstance(n.target, ast.Name):
        raise front.fail(
            n, "TK100", "an annotated assignment gives a number its type", "write x: tk.f32 = 0"
        )
    if t not in (T.f32, T.i32, T.u32, T.i64, T.bool_):
        raise front.fail(
            n.annotation,
            "TK200",
            f"a lane holds no {t.name}",
            "narrow numbers round when they are stored; in a lane they are f32 or i32",
        )
    free(front, n.target)
    old = front.find(n.target.id)
    if old is not None:
        raise front.fail(
            n,
            "TK111",
            f"'{n.target.id}' already is {old.type}",
            "the type stands at the first assignment only",
        )
    sym_value = front.coerce(n.value, front.ex(n.value), Scalar(t), n.target.id)
    return [ir.Decl(front.loc(n), front.declare(n.target, Scalar(t), "reg"), sym_value)]


def free(front: Front, target: ast.Name) -> None:
    """Compile-time names keep their value: TK111."""
    if target.id in front.consts and front.find(target.id) is None:
        raise front.fail(
            target,
            "TK111",
            f"'{target.id}' is a compile-time value and cannot be assigned",
            "use a new name",
        )


def assign_name(front: Front, n: ast.AST, target: ast.Name, value: ast.expr) -> list[ir.Stmt]:
    free(front, target)
    loc, old = front.loc(n), front.find(target.id)
    special = shared_declaration(front, value)
    if special is not None:
        return shared.declare(front, n, target, old, *special)
    if isinstance(value, ast.Tuple):
        return coordinate(front, n, target, old, value)
    v = front.static(value)
    if isinstance(v, T.Type):
        return storage(front, n, target, old, value, v)
    e = front.ex(value)
    if isinstance(e.type, (*REF_TYPES, T.Coord)):
        if old is not None:
            raise front.fail(
                n,
                "TK111",
                f"'{target.id}' is already bound",
                "a reference is bound once per block: use a new name",
            )
        return [ir.Decl(loc, front.declare(target, e.type, "ref"), e)]
    one_name(front, n, target, e)
    if old is None:
        if isinstance(v, (int, float)) and target.id in front.once:
            front.values[target.id] = v
        return new_name(front, loc, target, e)
    assignable(front, target, old)
    if isinstance(old.type, Scalar):
        e = front.coerce(value, e, old.type, target.id)
    elif old.type != e.type:
        raise front.fail(
            n,
            "TK121",
            f"'{target.id}' is {old.type} and cannot become {e.type}",
            f"use a new name, or warp.copy({target.id}, ...) to convert"
            if _same_shape(old.type, e.type)
            else f"use a new name, or warp.fill({target.id}, ...) to set every element"
            if isinstance(old.type, (RT, RV)) and isinstance(e.type, Scalar)
            else f"use a new name, or declare '{target.id}' as {e.type}",
        )
    return [ir.Assign(loc, ir.Var(old.type, front.loc(target), old), e)]


def storage(
    front: Front,
    n: ast.AST,
    target: ast.Name,
    old: ir.Sym | None,
    value: ast.expr,
    t: T.Type,
) -> list[ir.Stmt]:
    """t = tk.rt_fl(16, 64): a name for registers of this type."""
    if isinstance(t, (ST, SV, T.Semaphore)):
        raise front.fail(
            value,
            "TK101",
            f"{t} lives in shared memory",
            f"write {target.id} = tk.shared({ast.unparse(value)})",
        )
    if not isinstance(t, (RT, RV, Regs, Ring)):
        front.constant(value, t)  # says what is wrong with it
    if old is not None:
        raise front.fail(
            n,
            "TK111",
            f"'{target.id}' already is {old.type}",
            "use a new name"
            if isinstance(t, Ring)
            else "a declaration stands once; fill it with warp.zero or an assignment",
        )
    return [ir.Decl(front.loc(n), front.declare(target, t, "reg"), None)]


def one_name(front: Front, n: ast.AST, target: ast.Name, e: ir.Expr) -> None:
    """Registers have one name: TK120 for b = a."""
    if not (isinstance(e, ir.Var) and isinstance(e.type, (RT, RV, Regs, Ring))):
        return
    hint = f"write {target.id} = tk.copy({e.sym.name})"
    if isinstance(e.type, Regs):
        hint = "copy the registers one by one"
    elif isinstance(e.type, Ring):
        hint = f"use '{e.sym.name}' itself, or a ring of its own: {target.id} = tk.ring(n)"
    what = "ring" if isinstance(e.type, Ring) else "register tile"
    raise front.fail(
        n, "TK120", f"'{target.id} = {e.sym.name}' would give one {what} two names", hint
    )


def new_name(front: Front, loc: Loc, target: ast.Name, e: ir.Expr) -> list[ir.Stmt]:
    return [ir.Decl(loc, front.declare(target, e.type, "reg"), e)]


def coordinate(
    front: Front, n: ast.AST, target: ast.Name, old: ir.Sym | None, value: ast.Tuple
) -> list[ir.Stmt]:
    """at = (row, col): a tile coordinate with a name."""
    if old is not None:
        raise front.fail(n, "TK111", f"'{target.id}' already is a name here", "use a new name")
    e = calls.coordinate(front, value)
    return [ir.Decl(front.loc(n), front.declare(target, e.type, "ref"), e)]


def assignable(front: Front, n: ast.AST, sym: ir.Sym) -> None:
    """Only registers take another value: TK111 for references, arguments and loop variables."""
    why = {
        "loop": "a loop variable",
        "param": "a kernel argument",
        "ref": "a reference to memory",
        "shared": "shared memory",
    }
    if sym.storage in why and not (
        sym.storage == "param" and isinstance(sym.type, (Scalar, RT, RV))
    ):
        hint = "use a new name"
        if isinstance(getattr(sym.type, "elem", sym.type), T.Semaphore):
            hint = "semaphores change by init_semaphore, arrive and tma.expect"
        elif isinstance(sym.type, (GL, SArr, ST, SV, Shared)):
            hint = f"write to its elements, as in {sym.name}[i] = x, or use a new name"
        raise front.fail(
            n, "TK111", f"'{sym.name}' is {why[sym.storage]} and cannot be assigned", hint
        )


def place(front: Front, n: ast.expr) -> ir.Expr:
    """The target of an assignment other than a name: an element or a vector access."""
    if not isinstance(n, (ast.Subscript, ast.Call)):
        what = hint(n)
        if isinstance(n, ast.Attribute) and n.attr in ("stage", "phase"):
            what = "r.advance() moves a ring to its next stage"
        raise front.fail(n, "TK100", f"{ast.unparse(n)} cannot be assigned", what)
    e = front.ex(n)
    if not isinstance(e, (ir.Index, ir.VecIndex, ir.TileReg)) or isinstance(e.type, REF_TYPES):
        raise front.fail(
            n,
            "TK100",
            f"{ast.unparse(n)} cannot be assigned",
            "semaphores change by init_semaphore, arrive and tma.expect"
            if isinstance(e.type, T.Semaphore)
            else "store tiles with warp.store(memory, tile)"
            if isinstance(e.type, REF_TYPES)
            else "",
        )
    return e


def element_value(front: Front, target: ast.AST, e: ir.Expr, value: ast.expr) -> ir.Expr:
    if isinstance(e, ir.VecIndex):
        if isinstance(value, ast.Tuple):
            if len(value.elts) != e.n:
                raise front.fail(value, "TK204", f"{len(value.elts)} values for {e.n} elements")
            items = [
                front.coerce(x, front.ex(x), element_type(e.type.dtype), "the element")
                for x in value.elts
            ]
            return ir.TupleExpr(e.type, front.loc(value), items)
        v = front.ex(value)
        if v.type != e.type:
            raise front.fail(
                value,
                "TK200",
                f"{e.type} cannot take {v.type}",
                "give a tuple with a value for each element",
            )
        return v
    assert isinstance(e.type, Scalar)
    return front.coerce(value, front.ex(value), e.type, ast.unparse(target))


def augmented(front: Front, n: ast.AugAssign) -> list[ir.Stmt]:
    """x += value."""
    op = SYMBOL.get(type(n.op))
    if op is None:
        sign = kind(n.op).strip("'")
        raise front.fail(
            n,
            "TK100",
            f"'{sign}=' is not part of the kernel language",
            "write the operation out: x = x * x, or warp.mma_AB(acc, a, b) for products",
        )
    loc = front.loc(n)
    if isinstance(n.target, ast.Name):
        sym = front.lookup(n.target)
        assignable(front, n.target, sym)
        target: ir.Expr = ir.Var(sym.type, front.loc(n.target), sym)
    else:
        target = place(front, n.target)
        if isinstance(target, ir.VecIndex):
            raise front.fail(n, "TK100", f"'{op}=' does not work on several elements at once")
    result = front.binary(n, op, target, front.ex(n.value))
    if result.type != target.type:
        if isinstance(target.type, Scalar) and isinstance(result.type, Scalar):
            front.coerce(n, result, target.type, ast.unparse(n.target))
        else:
            raise front.fail(
                n,
                "TK121",
                f"'{ast.unparse(n.target)}' is {target.type} and cannot become {result.type}",
            )
    if isinstance(result, ir.Fma):
        return (
            [ir.Assign(loc, target, result)]
            if isinstance(target, ir.Var)
            else [
                ir.AugAssign(
                    loc, target, op, ir.Binary(result.type, result.loc, "*", result.a, result.b)
                )
            ]
        )
    assert isinstance(result, ir.Binary)
    return [ir.AugAssign(loc, target, op, result.b)]


def swap(front: Front, n: ast.Assign, target: ast.Tuple) -> list[ir.Stmt]:
    """a, b = b, a: numbers only; all values are read before any name changes."""
    if not isinstance(n.value, ast.Tuple) or len(n.value.elts) != len(target.elts):
        raise front.fail(
            n,
            "TK100",
            "both sides of a tuple assignment need the same number of items",
            "write a, b = x, y",
        )
    names = [t.id for t in target.elts if isinstance(t, ast.Name)]
    if len(set(names)) < len(names):
        raise front.fail(target, "TK100", "a name stands twice on the left of the assignment")
    values = [front.number(v, "an item of a tuple assignment") for v in n.value.elts]
    new = [t for t in target.elts if isinstance(t, ast.Name) and front.find(t.id) is None]
    if len(new) == len(target.elts):
        out: list[ir.Stmt] = []
        for name, e in zip(new, values):
            free(front, name)
            out += new_name(front, front.loc(n), name, e)
        return out
    if new:
        raise front.fail(
            new[0],
            "TK110",
            f"'{new[0].id}' is new, and other items of this assignment are not",
            f"give '{new[0].id}' a first value on a line before",
        )
    places: list[ir.Expr] = []
    for i, t in enumerate(target.elts):
        if isinstance(t, ast.Name):
            sym = front.lookup(t)
            assignable(front, t, sym)
            places.append(ir.Var(sym.type, front.loc(t), sym))
        else:
            places.append(place(front, t))
        kind = places[i].type
        if not isinstance(kind, Scalar):
            raise front.fail(t, "TK200", f"a tuple assignment is for numbers, not {kind}")
        values[i] = front.coerce(n.value.elts[i], values[i], kind, ast.unparse(t))
    return [ir.Swap(front.loc(n), places, values)]


def shared_declaration(front: Front, value: ast.expr) -> tuple[str, ast.Call] | None:
    """(kind, call) of tk.shared(...), tk.shared_array(...), tk.alias(...)."""
    if isinstance(value, ast.Call):
        f = front.static(value.func)
        if isinstance(f, DeviceName) and f.path in ("shared", "shared_array", "alias"):
            return f.path, value
    return None


def _same_shape(a: T.Type, b: T.Type) -> bool:
    return (
        type(a) is type(b)
        and isinstance(a, (RT, RV))
        and [getattr(a, x, None) for x in ("rows", "cols", "n")]
        == [getattr(b, x, None) for x in ("rows", "cols", "n")]
    )
