"""Counted loops: those that run, and those that are unrolled.

Knows what may stand in a range. The bodies are read by frontend.py.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from tklearn.lang import assignments, ir
from tklearn.lang import types as T
from tklearn.lang.names import DeviceName

if TYPE_CHECKING:
    from tklearn.lang.frontend import Front

NO_ELSE = "write what follows the loop after it"
MAX_UNROLL = 1024  # steps of one loop
BLOCK_DIMS = ("blockDim.x", "blockDim.y", "blockDim.z")


def loop(front: Front, n: ast.For) -> list[ir.Stmt]:
    """for i in range(...), for i in tk.static_range(...)."""
    if n.orelse:
        raise front.fail(n, "TK100", "for/else is not part of the kernel language", NO_ELSE)
    f = front.static(n.iter.func) if isinstance(n.iter, ast.Call) else None
    unroll = isinstance(f, DeviceName) and f.path == "static_range"
    if not isinstance(n.iter, ast.Call) or not (f is range or unroll):
        own = isinstance(n.iter, ast.Call) and ast.unparse(n.iter.func) == "range"
        raise front.fail(
            n.iter,
            "TK100",
            "kernels loop over range(...) or tk.static_range(...)",
            "'range' is a name of your own here: rename it"
            if own
            else "write for i in range(n), and index inside the loop",
        )
    if not isinstance(n.target, ast.Name):
        raise front.fail(
            n.target, "TK100", "a loop has one variable", "compute others inside the loop"
        )
    if not 1 <= len(n.iter.args) <= 3 or n.iter.keywords:
        raise front.fail(n.iter, "TK106", "range takes one to three numbers")
    assignments.free(front, n.target)
    old = front.find(n.target.id)
    if old is not None:
        raise front.fail(
            n.target,
            "TK111",
            f"'{n.target.id}' already is a name here (line {old.loc.line})",
            "use a new name for the loop variable",
        )
    front.loop_names.add(n.target.id)
    return unrolled(front, n, n.iter, n.target) if unroll else counted(front, n, n.iter, n.target)


def counted(front: Front, n: ast.For, call: ast.Call, target: ast.Name) -> list[ir.Stmt]:
    """A loop that runs: bounds and step are numbers of the run, or constants."""
    step = front.static(call.args[2]) if len(call.args) == 3 else 1
    if isinstance(step, DeviceName) and step.path in BLOCK_DIMS and front.unit is not None:
        step = front.unit.threads[BLOCK_DIMS.index(step.path)]  # the block's size is a constant
    if isinstance(step, bool) or (isinstance(step, int) and step == 0):
        raise front.fail(
            call.args[2],
            "TK105",
            f"the step of a range cannot be {step}",
            "a whole number other than 0, or a positive number that the block agrees on",
        )
    if not isinstance(step, int):  # of the run: gridDim.x
        what = "the step of a range"
        step = front.coerce(call.args[2], front.whole(call.args[2], what), T.I32, what)
    bounds = [
        front.coerce(a, front.whole(a, "a range bound"), T.I32, "a range bound")
        for a in call.args[:2]
    ]
    lo, hi = bounds if len(bounds) == 2 else (ir.Const(T.I32, bounds[0].loc, 0), bounds[0])
    front.scopes.append({})
    var = front.declare(target, T.I32, "loop")
    body = front.loop_body(n.body, "for")
    front.leave(front.scopes.pop())
    return [ir.For(front.loc(n), var, lo, hi, step, body)]


def unrolled(front: Front, n: ast.For, call: ast.Call, target: ast.Name) -> list[ir.Stmt]:
    """Each step written out, with the variable as a compile-time number."""
    args = [front.static(a) for a in call.args]
    bad = next(
        (x for x, a in zip(call.args, args) if isinstance(a, bool) or not isinstance(a, int)),
        None,
    )
    if bad is not None or args[2:] == [0]:
        raise front.fail(
            bad or call.args[2],
            "TK105",
            "tk.static_range needs compile-time whole numbers, and a step other than 0",
            "use range for run-time bounds",
        )
    steps = range(*args)
    if steps[MAX_UNROLL:]:
        raise front.fail(
            n.iter, "TK105", f"more than {MAX_UNROLL} unrolled steps are too many", "use range"
        )
    out: list[ir.Stmt] = []
    for i in steps:
        front.consts[target.id] = i
        body = front.loop_body(n.body, "unrolled")
        out.append(ir.Scope(front.loc(n), body, f"{target.id} = {i}"))
    front.consts.pop(target.id, None)
    front.ended.setdefault(target.id, []).append(n.lineno)
    return out
