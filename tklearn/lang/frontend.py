"""The front end: a Python function becomes a typed ir.Kernel for given argument types.

Statements, names and blocks. A name lives in the block of its first assignment and keeps one type;
an `if` on compile-time values keeps only the branch taken. Nothing is inserted for the learner.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from difflib import get_close_matches
from math import prod
from typing import Any

from tklearn.lang import analysis, assignments, calls, helpers, infer, ir, loops
from tklearn.lang import types as T
from tklearn.lang.async_rules import block_size
from tklearn.lang.calls import DeviceFunction
from tklearn.lang.errors import Loc, SourceError
from tklearn.lang.expressions import Expressions
from tklearn.lang.hints import IMPORTED, hint, kind, undefined
from tklearn.lang.ops import DTYPE_ARCH, Op
from tklearn.lang.parameters import parameter_loc, parameters
from tklearn.lang.source import UNKNOWN, FunctionSource, source_of
from tklearn.lang.types import (
    REF_TYPES,
    RT,
    ST,
    Regs,
    Ring,
    Scalar,
    SubST,
)

__all__ = ["DeviceFunction", "parameter_loc", "parameters", "source_of", "specialise"]
MAX_STATEMENTS = 10_000  # in one kernel, after unrolling


def specialise(
    fn: Callable,
    threads: tuple[int, int, int],
    arg_types: dict[str, T.Type],
    consts: dict[str, Any],
) -> ir.Kernel:
    """The kernel `fn` for blocks of `threads`, with array types (ndim set) and compile-time values.

    Errors: SourceError with the learner's line.
    """
    src = source_of(fn)
    front = Front(src, consts, Unit(threads))
    params = [ir.Sym(n, t, "param", parameter_loc(fn, n)) for n, t in arg_types.items()]
    front.scopes.append({s.name: s for s in params})
    for s in params:
        front.need_dtype(s.type, s.loc)
    try:
        body = front.block(src.node.body)
    except RecursionError:
        raise SourceError(
            "TK100",
            f"'{src.node.name}' is nested too deeply",
            src.loc,
            "give parts of the expressions names of their own",
        ) from None
    unit = front.unit
    assert unit is not None
    kernel = ir.Kernel(
        src.node.name,
        params,
        body,
        threads,
        src.file,
        src.loc,
        unit.functions,
        unit.shared,
        0,
        dict(consts),
    )
    kernel.captures, kernel.helpers = front.captures, unit.captures
    kernel.arch, kernel.arch_loc = unit.arch, unit.arch_loc
    analysis.place_shared(kernel)
    infer.infer(kernel)
    analysis.check_registers(kernel)
    return kernel


class Unit:
    """What all functions of one kernel share: specialised helpers, shared memory, architecture."""

    def __init__(self, threads: tuple[int, int, int]) -> None:
        self.threads = threads
        self.functions: list[ir.Function] = []
        self.by_key: dict[tuple, ir.Function] = {}
        self.active: list[Any] = []
        self.shared: list[ir.Sym] = []
        self.arch = 75
        self.arch_loc: Loc | None = None
        self.statements = 0
        self.changes: dict[ir.Function, set[ir.Sym]] = {}  # what helpers give another value
        self.captures: dict[Callable, dict[tuple[str, ...], Any]] = {}  # of helpers

    def need(self, arch: int, loc: Loc) -> None:
        if arch > self.arch:
            self.arch, self.arch_loc = arch, loc


class Front(Expressions):
    """One function being read."""

    def __init__(
        self, src: FunctionSource, consts: dict[str, Any], unit: Unit | None, device: bool = False
    ) -> None:
        super().__init__(src, consts)
        self.unit, self.device = unit, device
        self.scopes: list[dict[str, ir.Sym]] = []
        self.values: dict[str, Any] = {}
        self.ended: dict[str, list[int]] = {}
        self.loop_names: set[str] = set()
        self.loops: list[str] = []
        self.ret: ir.Expr | None = None
        self.once = _assigned_once(src.node)

    # ------------------------------------------------------------------------------ names
    def find(self, name: str) -> ir.Sym | None:
        return next((s[name] for s in reversed(self.scopes) if name in s), None)

    def is_local(self, name: str) -> bool:
        return self.find(name) is not None

    def local_const(self, name: str) -> Any:
        return self.values.get(name, UNKNOWN)

    def local_attribute(self, name: str, attr: str) -> Any:
        """The rows and columns of a tile are known at compile time."""
        sym = self.find(name)
        if sym is None or attr not in ("rows", "cols"):
            return UNKNOWN
        return getattr(sym.type, attr) if isinstance(sym.type, (RT, ST, SubST)) else UNKNOWN

    def lookup(self, n: ast.Name) -> ir.Sym:
        sym = self.find(n.id)
        if sym is None:
            raise self.fail(n, "TK110", f"'{n.id}' is not defined here", self.why_undefined(n))
        return sym

    def why_undefined(self, n: ast.Name) -> str:
        lines = self.ended.get(n.id, [])
        if len(lines) > 1:
            places = f"lines {', '.join(map(str, lines[:-1]))} and {lines[-1]}"
            return (
                f"'{n.id}' is assigned in blocks at {places}, and each of these lives only in its "
                f"block; give '{n.id}' a first value before them"
            )
        if lines and n.id in self.loop_names:
            return (
                f"the loop variable '{n.id}' lives only in its loop (line {lines[0]}); "
                "copy it to a name that is assigned before the loop"
            )
        if lines:
            return (
                f"'{n.id}' was first assigned inside the block at line {lines[0]} and lives only "
                "there; assign it before that block"
            )
        if n.id in self.assigned:
            return "it is assigned further down; assign it before this line"
        if n.id in self.src.fn.__code__.co_freevars:
            return "the surrounding function has not given it a value yet"
        names = [*(x for s in self.scopes for x in s), *self.consts]
        near = [x for x in names if x.lower() == n.id.lower()] or get_close_matches(n.id, names, 1)
        if near and n.id not in IMPORTED:
            return f"did you mean '{near[0]}'?"
        last = "check the spelling; module constants must exist before the kernel is called"
        return undefined(n.id) or last

    def declare(self, n: ast.Name, t: T.Type, storage: str) -> ir.Sym:
        sym = ir.Sym(n.id, t, storage, self.loc(n))
        self.scopes[-1][n.id] = sym
        self.need_dtype(t, sym.loc)
        return sym

    def need_dtype(self, t: T.Type, loc: Loc) -> None:
        if self.unit:
            self.unit.need(DTYPE_ARCH.get(t.dtype.name, 75), loc)

    def need(self, op: Op, args: list[Any], loc: Loc) -> None:
        assert self.unit
        self.unit.need(analysis.op_arch(op, args), loc)

    # ----------------------------------------------------------------------------- blocks
    def block(self, nodes: list[ast.stmt]) -> list[ir.Stmt]:
        self.scopes.append({})
        out = self.statements(nodes)
        self.leave(self.scopes.pop())
        return out

    def leave(self, scope: dict[str, ir.Sym]) -> None:
        """The names of a block end with it."""
        for name, sym in scope.items():
            lines = self.ended.setdefault(name, [])
            if sym.loc.line not in lines:
                lines.append(sym.loc.line)
            self.values.pop(name, None)

    def statements(self, nodes: list[ast.stmt]) -> list[ir.Stmt]:
        out: list[ir.Stmt] = []
        for n in nodes:
            method = getattr(self, "st_" + type(n).__name__, None)
            if method is None:
                raise self.fail(
                    n, "TK100", f"{kind(n)} is not part of the kernel language", hint(n)
                )
            self.atomics = 0
            self.count(n)
            out += method(n)
            if self.atomics > 1:
                raise self.fail(
                    n, "TK203", "more than one atomic in a statement", "give each its own line"
                )
        return out

    def count(self, n: ast.stmt) -> None:
        """A bound on what unrolling makes of a kernel."""
        assert self.unit
        self.unit.statements += 1
        if self.unit.statements > MAX_STATEMENTS:
            raise self.fail(
                n,
                "TK105",
                f"unrolled loops make more than {MAX_STATEMENTS} statements of this kernel",
                "use range instead of tk.static_range for the outer loop",
            )

    # ------------------------------------------------------------------------- assignments
    def st_Assign(self, n: ast.Assign) -> list[ir.Stmt]:
        return assignments.assign(self, n)

    def st_AnnAssign(self, n: ast.AnnAssign) -> list[ir.Stmt]:
        return assignments.typed(self, n)

    def st_AugAssign(self, n: ast.AugAssign) -> list[ir.Stmt]:
        return assignments.augmented(self, n)

    # ------------------------------------------------------------------------ control flow
    def st_If(self, n: ast.If) -> list[ir.Stmt]:
        v = self.static(n.test)
        if known(v):
            return self.statements(n.body if v else n.orelse)
        cond = self.condition(n.test)
        return [ir.If(self.loc(n), cond, self.block(n.body), self.block(n.orelse))]

    def st_While(self, n: ast.While) -> list[ir.Stmt]:
        if n.orelse:
            raise self.fail(
                n, "TK100", "while/else is not part of the kernel language", loops.NO_ELSE
            )
        cond = self.condition(n.test)
        body = self.loop_body(n.body, "while")
        return [ir.While(self.loc(n), cond, body)]

    def st_For(self, n: ast.For) -> list[ir.Stmt]:
        return loops.loop(self, n)

    def loop_body(self, nodes: list[ast.stmt], kind: str) -> list[ir.Stmt]:
        self.loops.append(kind)
        body = self.block(nodes)
        self.loops.pop()
        return body

    def st_Break(self, n: ast.Break) -> list[ir.Stmt]:
        self.not_unrolled(n)
        return [ir.Break(self.loc(n))]

    def st_Continue(self, n: ast.Continue) -> list[ir.Stmt]:
        self.not_unrolled(n)
        return [ir.Continue(self.loc(n))]

    def not_unrolled(self, n: ast.stmt) -> None:
        if self.loops and self.loops[-1] == "unrolled":
            raise self.fail(
                n,
                "TK100",
                "break and continue do not work in an unrolled loop",
                "use range, or an if",
            )

    def st_Pass(self, n: ast.Pass) -> list[ir.Stmt]:
        return []

    def st_Return(self, n: ast.Return) -> list[ir.Stmt]:
        if not self.device:
            if n.value is not None:
                raise self.fail(n, "TK100", "a kernel returns nothing", "write results to an array")
            return [ir.Return(self.loc(n))]
        last = _last(self.src.node.body)
        if n.value is None:
            if isinstance(last, ast.Return) and last.value is not None:
                raise self.fail(
                    n,
                    "TK100",
                    f"'{self.src.node.name}' returns a value, but not here",
                    "put what follows under an if, and return the value at the end",
                )
            return [ir.Return(self.loc(n))]
        if len(self.scopes) != 2 or self.ret is not None or not _ends_with(self.src.node.body, n):
            raise self.fail(
                n,
                "TK100",
                "a device function returns its value in its last statement",
                "assign the result to a name and return it at the end",
            )
        if isinstance(n.value, ast.Tuple):
            raise self.fail(
                n,
                "TK100",
                "a device function returns one value",
                "store others into tile arguments",
            )
        e = self.ex(n.value)
        if isinstance(e.type, (*REF_TYPES, Regs, Ring, T.Coord)):
            raise self.fail(
                n,
                "TK200",
                f"a device function cannot return {e.type}",
                "return numbers, tiles or vectors",
            )
        self.ret = e
        return [ir.Return(self.loc(n), e)]

    def st_Assert(self, n: ast.Assert) -> list[ir.Stmt]:
        msg = self.static(n.msg) if n.msg else ""
        if not isinstance(msg, str):
            raise self.fail(
                n, "TK105", "the message of an assert is plain text", "print shows values"
            )
        v = self.static(n.test)
        if known(v):
            if not v:
                raise self.fail(
                    n, "TK105", f"assert failed at compile time: {msg or ast.unparse(n.test)}"
                )
            return []
        return [ir.Assert(self.loc(n), self.condition(n.test), msg or ast.unparse(n.test))]

    def st_Expr(self, n: ast.Expr) -> list[ir.Stmt]:
        v = n.value
        if isinstance(v, ast.Constant):
            return []
        if not isinstance(v, ast.Call):
            raise self.fail(
                n, "TK101", f"the value of '{ast.unparse(v)}' is not used", "assign it to a name"
            )
        f = self.static(v.func)
        if (f is print or f is breakpoint) and (v.keywords or (f is breakpoint and v.args)):
            raise self.fail(
                n,
                "TK106",
                f"{f.__name__} takes no options in a kernel",
                "print('x', x) writes a line; breakpoint() takes nothing",
            )
        if f is print:
            return [ir.Print(self.loc(n), [self.printable(a) for a in v.args])]
        if f is breakpoint:
            return [ir.Breakpoint(self.loc(n))]
        if isinstance(f, DeviceFunction):
            return [ir.Eval(self.loc(n), self.call_device(v, f))]
        if self.advances(v):
            return [ir.Advance(self.loc(n), self.ex(v.func.value))]  # type: ignore[attr-defined]
        op = calls.op_of(self, v)
        if op is None or op.effect == "atomic":
            e = self.ex(v)
            if not isinstance(e, ir.Call):
                raise self.fail(
                    n,
                    "TK101",
                    f"the value of '{ast.unparse(v)}' is not used",
                    "assign it to a name",
                )
            return [ir.Eval(self.loc(n), e)]
        if op.is_value:
            raise self.fail(
                n,
                "TK101",
                f"{op.name} gives a value that is not used",
                f"write x = {ast.unparse(v)}",
            )
        args, _ = calls.apply(self, v, op)
        self.need(op, args, self.loc(n))
        return [ir.Do(self.loc(n), op, args)]

    def advances(self, n: ast.Call) -> bool:
        """Is this r.advance() of a ring?"""
        f = n.func
        if not (isinstance(f, ast.Attribute) and f.attr == "advance"):
            return False
        owner = self.find(f.value.id) if isinstance(f.value, ast.Name) else None
        if owner is None or not isinstance(owner.type, Ring):
            return False
        calls.arguments(self, n, [], f"{owner.name}.advance")
        return True

    def meets_block(self, op: Op, args: list[Any]) -> list[Any]:
        assert self.unit
        return block_size(op, args, prod(self.unit.threads))

    def printable(self, n: ast.expr) -> Any:
        v = self.static(n)
        if isinstance(v, str):
            return v
        e = self.ex(n)
        if not isinstance(e.type, Scalar):
            raise self.fail(
                n, "TK200", f"print shows text and numbers, not {e.type}", "store it to an array"
            )
        return e

    # ------------------------------------------------------------------- device functions
    def call_device(self, n: ast.Call, fn: DeviceFunction) -> ir.CallDevice:
        return helpers.call(self, n, fn)

    def helper(self, fn: DeviceFunction) -> Front:
        """The reader of a helper's body, within the same kernel."""
        return Front(source_of(fn.fn), {}, self.unit, device=True)


def known(v: Any) -> bool:
    """Is this a compile-time condition?"""
    return v is not UNKNOWN and (v is None or isinstance(v, (int, float, str)))


def _last(body: list[ast.stmt]) -> ast.stmt:
    """The statement with which a function ends; the first branch of a final if."""
    last = body[-1]
    return _last(last.body) if isinstance(last, ast.If) else last


def _ends_with(body: list[ast.stmt], n: ast.stmt) -> bool:
    """Is `n` the last statement, or the last one of a branch of a final if?"""
    last = body[-1]
    if isinstance(last, ast.If):
        return _ends_with(last.body, n) or bool(last.orelse) and _ends_with(last.orelse, n)
    return last is n


def _assigned_once(fn: ast.FunctionDef) -> set[str]:
    """Names that one plain assignment gives their only value: compile-time if that value is."""
    seen: dict[str, int] = {}
    for n in ast.walk(fn):
        targets: list[Any] = []
        if isinstance(n, ast.Assign):
            targets = [t for t in n.targets if isinstance(t, ast.Name)]
            targets += [e for t in n.targets if isinstance(t, ast.Tuple) for e in t.elts] * 2
        elif isinstance(n, (ast.AugAssign, ast.AnnAssign, ast.For)):
            targets = [n.target] * 2
        for t in targets:
            if isinstance(t, ast.Name):
                seen[t.id] = seen.get(t.id, 0) + 1
    return {k for k, v in seen.items() if v == 1}
