"""Calls of @tk.device helpers: each specialised for the types of its arguments.

Knows how arguments meet parameters and which names a helper changes. The statements of its body are
frontend.py's.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from tklearn.lang import calls, ir
from tklearn.lang import types as T
from tklearn.lang.parameters import annotation, plain_parameters
from tklearn.lang.parameters import defaults as default_values
from tklearn.lang.source import UNKNOWN
from tklearn.lang.types import GL, RT, RV, ConstType, Regs, Ring, Scalar

if TYPE_CHECKING:
    from tklearn.lang.calls import DeviceFunction
    from tklearn.lang.frontend import Front


def call(front: Front, n: ast.Call, fn: DeviceFunction) -> ir.CallDevice:
    """A helper, specialised for the types of these arguments and its compile-time ones."""
    inner = front.helper(fn)
    params = plain_parameters(inner)
    defaults = default_values(fn.fn)
    names = [x.arg for x in params]
    nodes = calls.arguments(front, n, names, fn.__name__, set(defaults))
    consts: dict[str, Any] = {}
    args: list[ir.Expr] = []
    types: list[tuple[str, T.Type]] = []
    for p in params:
        want = annotation(inner, p)
        node = nodes.get(p.arg)
        if isinstance(want, ConstType):
            v = defaults[p.arg] if node is None else front.static(node)
            if v is UNKNOWN or not _hashable(v):
                raise front.fail(
                    node or n,
                    "TK105",
                    f"'{p.arg}' of {fn.__name__} must be known at compile time",
                    "pass a number, a module constant or a tk.const parameter",
                )
            consts[p.arg] = v
            continue
        e = front.constant(n, defaults[p.arg]) if node is None else front.ex(node)
        e = passed(front, node or n, fn, p.arg, want, e)
        args.append(e)
        types.append((p.arg, e.type))
    f = body_of(front, n, fn, inner, consts, types)
    one_name_each(front, n, f, args)
    return ir.CallDevice(f.ret or T.I32, front.loc(n), f, args)


def passed(
    front: Front, node: ast.expr, fn: DeviceFunction, name: str, want: Any, e: ir.Expr
) -> ir.Expr:
    """An argument of a helper as its annotation wants it."""
    if isinstance(want, T.DType):
        return front.coerce(node, e, Scalar(want), name)
    if isinstance(want, GL) and isinstance(e.type, GL) and want.dtype == e.type.dtype:
        return e
    if isinstance(want, T.Type) and want != e.type:
        raise front.fail(node, "TK200", f"'{name}' of {fn.__name__} is {want}, not {e.type}")
    return e


def one_name_each(front: Front, n: ast.AST, f: ir.Function, args: list[ir.Expr]) -> None:
    """TK120 where a helper changes a tile that it also knows under another name."""
    assert front.unit
    if f not in front.unit.changes:
        front.unit.changes[f] = assigned(f.body, front.unit.changes)
    changed = front.unit.changes[f]
    for i, (p, a) in enumerate(zip(f.params, args)):
        if p not in changed or not isinstance(p.type, (RT, RV, Regs, Ring)):
            continue
        if not isinstance(a, ir.Var):
            raise front.fail(
                n,
                "TK120",
                f"'{f.name}' changes its argument '{p.name}', but this one has no name",
                "give the tile a name before the call",
            )
        if any(isinstance(b, ir.Var) and b.sym is a.sym for b in args[:i] + args[i + 1 :]):
            raise front.fail(
                n,
                "TK120",
                f"'{f.name}' would know '{a.sym.name}' under two names, and changes it",
                f"pass a copy: tk.copy({a.sym.name})",
            )


def body_of(
    front: Front,
    n: ast.AST,
    fn: DeviceFunction,
    inner: Front,
    consts: dict[str, Any],
    types: list[tuple[str, T.Type]],
) -> ir.Function:
    assert front.unit
    src = inner.src
    values = tuple((k, type(v).__name__, v) for k, v in sorted(consts.items()))
    key = (fn.fn, tuple(types), values)
    if key in front.unit.by_key:
        return front.unit.by_key[key]
    if fn in front.unit.active:
        raise front.fail(n, "TK100", f"'{fn.__name__}' calls itself", "write a loop")
    front.unit.active.append(fn)
    inner.consts = dict(consts)
    params = [ir.Sym(name, t, "param", src.loc) for name, t in types]
    inner.scopes.append({s.name: s for s in params})
    body = inner.block(src.node.body)
    front.unit.active.pop()
    f = ir.Function(
        fn.__name__, params, body, inner.ret.type if inner.ret else None, src.file, src.loc, key
    )
    front.unit.captures[fn.fn] = inner.captures
    front.unit.by_key[key] = f
    front.unit.functions.append(f)
    return f


def _hashable(v: Any) -> bool:
    try:
        hash(v)
    except TypeError:
        return False
    return True


def assigned(body: list[ir.Stmt], known: dict[ir.Function, set[ir.Sym]]) -> set[ir.Sym]:
    """The symbols that statements give another value; `known` says it of the helpers called."""
    found: set[ir.Sym] = set()
    for s in ir.walk(body):
        targets: list[Any] = []
        if isinstance(s, (ir.Assign, ir.AugAssign)):
            targets = [s.target]
        elif isinstance(s, ir.Swap):
            targets = s.targets
        elif isinstance(s, ir.Advance):
            targets = [s.ring]
        elif isinstance(s, ir.Do):
            targets = [a for p, a in zip(s.op.params, s.args) if p.role in ("dst", "acc")]
        elif isinstance(s, ir.CallDevice):
            inner = known[s.fn]
            targets = [a for p, a in zip(s.fn.params, s.args) if p in inner]
        for t in targets:
            while isinstance(t, (ir.Index, ir.Subtile)):
                t = t.base
            if isinstance(t, ir.Var):
                found.add(t.sym)
    return found
