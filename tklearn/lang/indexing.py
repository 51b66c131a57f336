"""Indices: elements of arrays and shared tiles, registers, and one tile of an array of them.

Knows how many indices something has and what a lane gets; what stands in them, `front` reads.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from tklearn.lang import ir
from tklearn.lang import types as T
from tklearn.lang.names import DeviceName
from tklearn.lang.source import UNKNOWN
from tklearn.lang.types import GL, RT, ST, SV, Regs, SArr, Scalar, Shared, Vec

if TYPE_CHECKING:
    from tklearn.lang.expressions import Expressions


def subscript(front: Expressions, n: ast.Subscript) -> ir.Expr:
    """x[i, j]: an element, a register, several neighbours, or one tile of an array of them."""
    vec = vec_base(front, n.value)
    nodes = list(n.slice.elts) if isinstance(n.slice, ast.Tuple) else [n.slice]
    for x in nodes:
        if isinstance(x, ast.Slice):
            raise front.fail(
                x,
                "TK100",
                "slices are not part of the kernel language",
                "take tiles with warp.load(t, x, (row, col)), or tile.subtile(rows, cols, (i, j))",
            )
    if vec is not None:
        base, width = vec
        count_indices(front, n, base.type, nodes)
        t: T.Type = Vec(base.type.dtype, width)
        return ir.VecIndex(t, front.loc(n), base, width, [front.integer(x) for x in nodes])
    base = front.ex(n.value)
    t = base.type
    if isinstance(t, (Regs, Vec)):
        return _register(front, n, base, nodes)
    if isinstance(t, Shared):
        return _one_of(front, n, base, nodes)
    if isinstance(t, (GL, ST, SV, SArr)):
        count_indices(front, n, t, nodes)
        at = [front.integer(x) for x in nodes]
        return ir.Index(element_type(t.dtype), front.loc(n), base, at)
    hint = ""
    if isinstance(t, RT):
        hint = "store it to shared memory, or look at this lane's registers with tile.reg(i)"
    elif isinstance(base, ir.Index) and not isinstance(t, T.Semaphore):
        hint = f"it is an element already: write all indices together, as in {_together(n)}"
    raise front.fail(n, "TK200", f"{t} has no elements that a lane can index", hint)


def _register(
    front: Expressions, n: ast.Subscript, base: ir.Expr, nodes: list[ast.expr]
) -> ir.Expr:
    """One of a lane's registers, by a compile-time number."""
    t: Any = base.type
    i = front.static(nodes[0])
    if len(nodes) != 1 or not isinstance(i, int) or isinstance(i, bool):
        raise front.fail(
            n, "TK105", "registers are indexed by one compile-time number", "use tk.static_range"
        )
    if not 0 <= i < t.n:
        raise front.fail(n, "TK204", f"register {i} of {t}", f"0 to {t.n - 1}")
    at = ir.Const(T.I32, front.loc(n), i)
    return ir.Index(element_type(t.dtype), front.loc(n), base, [at])


def _one_of(front: Expressions, n: ast.Subscript, base: ir.Expr, nodes: list[ast.expr]) -> ir.Expr:
    """One tile, vector or semaphore of an array of them, or a part of the array."""
    t: Any = base.type
    semaphores = isinstance(t.elem, T.Semaphore)
    for x, d in zip(nodes, t.dims):
        i = front.static(x)
        if isinstance(i, int) and not 0 <= i < d:
            what = "semaphore" if semaphores else "tile"
            raise front.fail(x, "TK204", f"{what} {i} of {d}", f"they count from 0 to {d - 1}")
    if len(nodes) > len(t.dims):
        hint = "select the tile first, then the element: tiles[s][r, c]"
        if semaphores:
            hint = f"one for each dimension: {len(t.dims)}"
        raise front.fail(n, "TK204", f"{len(nodes)} indices for {t}", hint)
    rest = t.dims[len(nodes) :]
    out = Shared(t.elem, rest) if rest else t.elem
    return ir.Index(out, front.loc(n), base, [front.integer(x) for x in nodes])


def count_indices(front: Expressions, n: ast.AST, t: T.Type, nodes: list) -> None:
    """TK204 unless there is an index for each dimension."""
    want = (
        t.ndim
        if isinstance(t, GL)
        else len(t.dims)
        if isinstance(t, SArr)
        else 1
        if isinstance(t, SV)
        else 2
    )
    if want is not None and len(nodes) != want:
        form = ", ".join(["i", "j", "k", "l"][:want])
        raise front.fail(
            n,
            "TK204",
            f"{len(nodes)} {'index' if len(nodes) == 1 else 'indices'} for {t} of {want} "
            f"dimension{'s' if want > 1 else ''}",
            f"write x[{form}]: an index for each dimension, in one pair of brackets",
        )


def vec_base(front: Expressions, n: ast.expr) -> tuple[ir.Expr, int] | None:
    """(x, n) of tk.vec(x, n)."""
    if not isinstance(n, ast.Call):
        return None
    f = front.static(n.func)
    if not (isinstance(f, DeviceName) and f.path == "vec"):
        return None
    if len(n.args) != 2 or n.keywords:
        raise front.fail(
            n, "TK106", "tk.vec takes an array and a number of elements", "tk.vec(x, 4)[i]"
        )
    base, width = front.ex(n.args[0]), front.static(n.args[1])
    if not isinstance(base.type, (GL, SArr, SV)):
        raise front.fail(n.args[0], "TK200", f"tk.vec works on arrays, not {base.type}")
    if width is UNKNOWN:
        raise front.fail(n.args[1], "TK105", "the number of elements must be known at compile time")
    possible = type(width) is int and width in (1, 2, 4, 8, 16)
    if not possible or not 2 <= width * base.type.dtype.itemsize <= 16:
        raise front.fail(
            n.args[1],
            "TK200",
            f"{width!r} elements of {base.type.dtype} are no single access",
            "an access moves 2, 4, 8 or 16 bytes",
        )
    return base, width


def _together(n: ast.Subscript) -> str:
    """x[i][j] as x[i, j]."""
    if not isinstance(n.value, ast.Subscript):
        return "x[i, j]"
    parts = [ast.unparse(x.slice).strip("()") for x in (n.value, n)]
    return f"{ast.unparse(n.value.value)}[{', '.join(parts)}]"


def element_type(d: T.DType) -> Scalar:
    """What a lane holds after reading an element: narrow floats become f32, u8 becomes i32."""
    if d.kind == "f":
        return T.F32
    return T.I32 if d == T.u8 else Scalar(d)
