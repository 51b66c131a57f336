"""Calls: of rows of the op table, of helpers, conversions, and what tiles have as functions.

Knows how arguments meet the parameters of a row and who refuses them; the rows are ops.py's, their
rules rules.py's. `front` reads the expressions that stand as arguments.
"""

from __future__ import annotations

import ast
import builtins
import types as pytypes
from collections.abc import Callable, Set
from typing import TYPE_CHECKING, Any

from tklearn.lang import intrinsics, ir
from tklearn.lang import types as T
from tklearn.lang.errors import SourceError
from tklearn.lang.hints import DEVICE_HEADS, ONLY_THERE, near, undefined
from tklearn.lang.intrinsics import Intrinsic
from tklearn.lang.names import SPECIAL_CALLS, DeviceName
from tklearn.lang.ops import OPS, Op, Param
from tklearn.lang.rules import OpMismatch, elementwise
from tklearn.lang.source import UNKNOWN
from tklearn.lang.types import GL, RT, RV, ST, Scalar, SubST

if TYPE_CHECKING:
    from tklearn.lang.expressions import Expressions

BUILTIN_OPS: dict[Any, str] = {builtins.abs: "abs", builtins.min: "min", builtins.max: "max"}
BUILTIN_CASTS: dict[Any, T.DType] = {
    builtins.int: T.i32,
    builtins.float: T.f32,
    builtins.bool: T.bool_,
}


class DeviceFunction:
    """What @tk.device returns: a helper that kernels call. `fn` is the plain Python function."""

    def __init__(self, fn: Callable) -> None:
        self.fn, self.__name__, self.__doc__ = fn, fn.__name__, fn.__doc__

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise SourceError("TK107", f"'{self.__name__}' is a device function: only kernels call it")


def call(front: Expressions, n: ast.Call) -> ir.Expr:
    """The value of a call."""
    f = front.static(n.func)
    if isinstance(n.func, ast.Attribute) and f is UNKNOWN:
        return method(front, n, n.func)
    if isinstance(f, DeviceFunction):
        value = front.call_device(n, f)
        if value.fn.ret is None:
            raise front.fail(
                n,
                "TK101",
                f"'{f.__name__}' gives no value",
                "write it on a line of its own, or end it with return x",
            )
        return value
    if isinstance(f, T.DType):
        return cast(front, n, f)
    if isinstance(f, type) and f in BUILTIN_CASTS:
        return cast(front, n, BUILTIN_CASTS[f])
    if isinstance(f, DeviceName) and f.path in SPECIAL_CALLS:
        arguments(front, n, [], "")
        return ir.Special(T.I32, front.loc(n), f.path)
    if isinstance(f, DeviceName) and f.path == "fma":
        return fma(front, n)
    op = op_of(front, n)
    if op is None:
        raise no_function(front, n, f)
    if not op.is_value:
        raise front.fail(n, "TK101", f"{op.name} gives no value", "write it on a line of its own")
    if op.name in ("min", "max") and len(n.args) > 2:
        first = ast.copy_location(ast.Call(n.func, n.args[:-1], []), n)
        n = ast.copy_location(ast.Call(n.func, [first, n.args[-1]], n.keywords), n)
    args, t = apply(front, n, op)
    assert t is not None
    if op.name in ("min", "max", "cdiv") and args[1] is not None:
        to = t if isinstance(t, Scalar) else T.F32
        args = [front.convert(a, to) if isinstance(a.type, Scalar) else a for a in args]
    front.need(op, args, front.loc(n))
    return ir.Call(t, front.loc(n), op, args)


def no_function(front: Expressions, n: ast.Call, f: Any) -> SourceError:
    """Why something cannot be called in a kernel."""
    name = ast.unparse(n.func)[:60]
    hint = near(name)
    path = f.path if isinstance(f, DeviceName) else ""
    if isinstance(n.func, ast.Name) and front.is_local(n.func.id):
        hint = f"'{name}' is {front.lookup(n.func).type} here, and hides a function of that name"
    elif isinstance(n.func, ast.Name) and f is UNKNOWN:
        hint = undefined(name) or f"'{name}' is not defined here; {hint}"
    elif isinstance(f, pytypes.FunctionType):
        hint = f"'{name}' is a plain Python function: mark it with @tk.device"
    elif type(f).__name__ == "Kernel":
        hint = "kernels do not call kernels: make the common part a @tk.device helper"
    elif path in ("shared", "shared_array", "alias"):
        hint = f"give shared memory a name on a line of its own: x = {ast.unparse(n)}"
    elif path == "vec":
        hint = f"index it: {ast.unparse(n)}[i]"
    elif path == "static_range" or name in ONLY_THERE:
        hint = ONLY_THERE.get(name, "it stands in a for loop: for i in tk.static_range(4)")
    return front.fail(n, "TK102", f"{name}(...) is not a kernel function", hint)


def op_of(front: Expressions, n: ast.Call) -> Op | None:
    """The row of the op table that is called, or the learner's own."""
    f = front.static(n.func)
    if isinstance(f, DeviceName):
        return OPS.get(f.path)
    if isinstance(f, Intrinsic):
        return f.op
    builtin = isinstance(f, pytypes.BuiltinFunctionType) and f in BUILTIN_OPS
    return OPS[BUILTIN_OPS[f]] if builtin else None


def apply(front: Expressions, n: ast.Call, op: Op) -> tuple[list[Any], T.Type | None]:
    """The arguments of one row, checked by its rule, and the type of its value."""
    nodes = arguments(
        front,
        gathered(n, op),
        [p.name for p in op.params],
        op.name,
        {p.name for p in op.params if p.default is not ...},
    )
    args: list[Any] = []
    for p in op.params:
        node = nodes.get(p.name)
        args.append(p.default if node is None else argument(front, node, p, op))
        if node is None and p.default is not None and p.role in ("value", "index"):
            args[-1] = front.constant(n, p.default)
    if op.effect in ("mma", "wgmma"):
        apart(front, n, op, args)
    try:
        t = op.rule(*args)
        args = front.meets_block(op, args)
    except OpMismatch as e:
        raise SourceError(e.code, f"{op.name}: {e.message}", front.loc(n), e.hint) from None
    if op.effect == "atomic":
        front.atomics += 1
        assert isinstance(t, Scalar)
        args[1:] = [front.coerce(n, a, t, "the element") for a in args[1:]]
    return args, t


def apart(front: Expressions, n: ast.Call, op: Op, args: list[Any]) -> None:
    """The accumulator of a product is none of its inputs."""
    acc = args[0]
    if isinstance(acc, ir.Var) and any(
        isinstance(a, ir.Var) and a.sym is acc.sym for a in args[1:]
    ):
        raise front.fail(
            n,
            "TK120",
            f"{op.name}: '{acc.sym.name}' is the accumulator and an input",
            f"use a copy as the input: tk.copy({acc.sym.name})",
        )


def coordinate(front: Expressions, node: ast.expr) -> ir.Expr:
    """(row, col), a number, or a name bound to a coordinate."""
    if isinstance(node, ast.Name) and front.is_local(node.id):
        named = front.ex(node)
        if isinstance(named.type, T.Coord):
            return named
    items = node.elts if isinstance(node, ast.Tuple) else [node]
    if not 1 <= len(items) <= 4:
        raise front.fail(node, "TK106", f"a coordinate has 1 to 4 numbers, not {len(items)}")
    es = [front.integer(x, "a coordinate") for x in items]
    return ir.CoordExpr(T.Coord(len(es)), front.loc(node), es)


def argument(front: Expressions, node: ast.expr, p: Param, op: Op) -> Any:
    """What is given for one parameter, as its role wants it."""
    if op.intrinsic is not None:
        return intrinsics.argument(front, node, p.name, op)
    role, what = p.role, f"'{p.name}' of {op.name}"
    if role == "static":
        v = front.static(node)
        if v is UNKNOWN:
            raise front.fail(node, "TK105", f"{what} must be known at compile time")
        return v
    if role == "coord":
        return coordinate(front, node)
    if role == "tiles":
        tiles = [front.ex(x) for x in (node.elts if isinstance(node, ast.Tuple) else [node])]
        if not tiles:
            raise front.fail(node, "TK106", "no tile is named")
        return ir.TilesExpr(tiles[0].type, front.loc(node), tiles)
    if role == "pred":
        return front.condition(node)
    if role == "index":
        return front.whole(node, what)
    if role == "value":
        e = front.number(node, what)
        return e if op.effect == "atomic" else front.convert(e, T.F32)
    return front.ex(node)


def arguments(
    front: Expressions, n: ast.Call, names: list[str], what: str, optional: Set[str] = frozenset()
) -> dict[str, ast.expr]:
    """What is given for each of these parameters; TK106 where they do not meet."""
    what = what or ast.unparse(n.func)
    form = f"{what}({', '.join(names)})"
    out: dict[str, ast.expr] = {}
    if any(isinstance(a, ast.Starred) for a in n.args) or any(k.arg is None for k in n.keywords):
        raise front.fail(n, "TK106", f"'*' arguments do not work in kernels: {form}")
    if len(n.args) > len(names):
        raise front.fail(
            n,
            "TK106",
            f"{what} takes {len(names) or 'no'} argument{'s' if len(names) != 1 else ''}, "
            f"not {len(n.args)}",
            form,
        )
    out.update(zip(names, n.args))
    for k in n.keywords:
        assert k.arg is not None
        if k.arg not in names or k.arg in out:
            raise front.fail(n, "TK106", f"{what} has no free argument '{k.arg}'", form)
        out[k.arg] = k.value
    missing = [x for x in names if x not in out and x not in optional]
    if missing:
        raise front.fail(n, "TK106", f"{what} lacks {', '.join(missing)}", form)
    return out


def cast(front: Expressions, n: ast.Call, d: T.DType) -> ir.Expr:
    """tk.i32(x), float(x)."""
    e = front.ex(arguments(front, n, ["x"], d.name)["x"])
    if isinstance(e.type, (RT, RV)):
        raise front.fail(
            n,
            "TK200",
            f"{d!r}(x) converts numbers, not {e.type}",
            f"write tk.convert(x, {d!r})",
        )
    if not isinstance(e.type, Scalar):
        raise front.fail(n, "TK200", f"{e.type} is not a number")
    if d in (T.f16, T.bf16, T.e4m3, T.e5m2, T.u8):
        raise front.fail(
            n, "TK200", f"a lane holds no {d.name}: narrow numbers round when they are stored"
        )
    return front.convert(e, Scalar(d)) if e.type != Scalar(d) else e


def fma(front: Expressions, n: ast.Call) -> ir.Expr:
    """tk.fma(a, b, c)."""
    a, b, c = (front.ex(x) for x in arguments(front, n, ["a", "b", "c"], "tk.fma").values())
    try:
        t = elementwise(elementwise(a.type, b.type), c.type)
    except OpMismatch as e:
        raise SourceError(e.code, e.message, front.loc(n), e.hint) from None
    if t.dtype.kind != "f" or elementwise(a.type, b.type) != t:
        raise front.fail(
            n,
            "TK200",
            f"tk.fma({a.type}, {b.type}, {c.type})",
            "a*b must have the result's type, and it is for floats",
        )
    a, b, c = (front.convert(x, T.F32) if isinstance(x.type, Scalar) else x for x in (a, b, c))
    return ir.Fma(t, front.loc(n), a, b, c)


def method(front: Expressions, n: ast.Call, f: ast.Attribute) -> ir.Expr:
    """What stands behind a dot after a tile: s.subtile(...), t.reg(i)."""
    owner = front.static(f.value)
    if owner is not UNKNOWN and not isinstance(owner, (T.Type, int, float)):
        name = ast.unparse(f)[:60]
        raise front.fail(n, "TK102", f"{name}(...) is not a kernel function", near(name))
    base = front.ex(f.value)
    t, loc = base.type, front.loc(n)
    if isinstance(t, T.Ring) and f.attr == "advance":
        hint = "write it on a line of its own"
        raise front.fail(n, "TK101", "r.advance() gives no value", hint)
    if f.attr == "subtile" and isinstance(t, ST):
        a = arguments(front, n, ["rows", "cols", "at"], "subtile")
        r, c = front.static(a["rows"]), front.static(a["cols"])
        if not isinstance(r, int) or not isinstance(c, int):
            raise front.fail(n, "TK105", "the size of a subtile must be known at compile time")
        if r <= 0 or c <= 0 or r % 16 or c % 16 or t.rows % r or t.cols % c:
            raise front.fail(
                n,
                "TK201",
                f"{t} has no subtiles of {r}x{c}",
                "sizes are multiples of 16 that divide the tile's",
            )
        if not isinstance(a["at"], ast.Tuple) or len(a["at"].elts) != 2:
            raise front.fail(
                a["at"], "TK106", "the place of a subtile is (i, j), counted in subtiles"
            )
        i, j = (front.integer(x, "the place of a subtile") for x in a["at"].elts)
        return ir.Subtile(SubST(t, r, c), loc, base, i, j)
    if f.attr == "reg" and isinstance(t, RT):
        i = front.static(arguments(front, n, ["i"], "reg")["i"])
        if type(i) is not int or not 0 <= i < t.elements_per_lane:
            raise front.fail(
                n,
                "TK105",
                f"tile.reg(i) takes a compile-time number from 0 to {t.elements_per_lane - 1}",
                f"for i in tk.static_range({t.elements_per_lane}): counts at compile time",
            )
        return ir.TileReg(T.F32, loc, base, i)
    hint = "shared tiles have subtile(rows, cols, (i, j)), register tiles have reg(i)"
    if isinstance(f.value, ast.Name) and f.value.id in DEVICE_HEADS:
        hint = f"'{f.value.id}' is a name of your own here and hides tklearn's: rename it"
    elif isinstance(t, GL):
        hint = "load a tile of it with warp.load(t, x, (row, col)), or index its elements"
    elif isinstance(t, (RT, RV)):
        x = ast.unparse(f.value)
        hint = f"functions stand before their arguments, as in tk.exp({x})"
        if isinstance(t, RT) and f"row_{f.attr}" in OPS:
            hint = f"write tk.row_{f.attr}({x}), one for each row, or tk.col_{f.attr}({x})"
        elif f.attr in OPS:
            hint = f"write tk.{f.attr}({x})"
    raise front.fail(n, "TK102", f"{t} has no function '{f.attr}'", hint)


def gathered(n: ast.Call, op: Op) -> ast.Call:
    """The call with all arguments of a last parameter of tiles as one tuple."""
    last = len(op.params) - 1
    if not op.params or op.params[-1].role != "tiles" or len(n.args) <= last:
        return n
    first, end = n.args[last], n.args[-1]
    tiles = ast.copy_location(ast.Tuple(n.args[last:], ast.Load()), first)
    tiles.end_lineno, tiles.end_col_offset = end.end_lineno, end.end_col_offset
    return ast.copy_location(ast.Call(n.func, [*n.args[:last], tiles], n.keywords), n)
