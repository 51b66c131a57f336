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

from tklearn.lang import analysis, helpers, infer, ir, shared
from tklearn.lang import types as T
from tklearn.lang.async_rules import block_size
from tklearn.lang.errors import Loc, SourceError
from tklearn.lang.expressions import (
    SYMBOL,
    DeviceFunction,
    Expressions,
    Intrinsic,
    element_type,
)
from tklearn.lang.hints import IMPORTED, hint, kind, undefined
from tklearn.lang.names import DeviceName
from tklearn.lang.ops import DTYPE_ARCH, Op
from tklearn.lang.parameters import parameter_loc, parameters
from tklearn.lang.source import UNKNOWN, FunctionSource, source_of
from tklearn.lang.types import (
    GL,
    REF_TYPES,
    RT,
    RV,
    ST,
    SV,
    Regs,
    Ring,
    SArr,
    Scalar,
    Shared,
    SubST,
)

__all__ = ["DeviceFunction", "Intrinsic", "parameter_loc", "parameters", "source_of", "specialise"]
MAX_STATEMENTS = 10_000  # in one kernel, after unrolling
NO_ELSE = "write what follows the loop after it"
MAX_UNROLL = 1024  # steps of one loop


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


BLOCK_DIMS = ("blockDim.x", "blockDim.y", "blockDim.z")


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
        if len(n.targets) != 1:
            raise self.fail(
                n, "TK100", "one assignment gives one name a value", "write a line for each name"
            )
        target = n.targets[0]
        if isinstance(target, ast.Tuple):
            return self.swap(n, target)
        if isinstance(target, ast.Name):
            return self.assign_name(n, target, n.value)
        e = self.place(target)
        return [ir.Assign(self.loc(n), e, self.element_value(target, e, n.value))]

    def st_AnnAssign(self, n: ast.AnnAssign) -> list[ir.Stmt]:
        t = self.static(n.annotation)
        if not isinstance(t, T.DType) or n.value is None or not isinstance(n.target, ast.Name):
            raise self.fail(
                n, "TK100", "an annotated assignment gives a number its type", "write x: tk.f32 = 0"
            )
        if t not in (T.f32, T.i32, T.u32, T.i64, T.bool_):
            raise self.fail(
                n.annotation,
                "TK200",
                f"a lane holds no {t.name}",
                "narrow numbers round when they are stored; in a lane they are f32 or i32",
            )
        self.free(n.target)
        old = self.find(n.target.id)
        if old is not None:
            raise self.fail(
                n,
                "TK111",
                f"'{n.target.id}' already is {old.type}",
                "the type stands at the first assignment only",
            )
        sym_value = self.coerce(n.value, self.ex(n.value), Scalar(t), n.target.id)
        return [ir.Decl(self.loc(n), self.declare(n.target, Scalar(t), "reg"), sym_value)]

    def free(self, target: ast.Name) -> None:
        """Compile-time names keep their value: TK111."""
        if target.id in self.consts and self.find(target.id) is None:
            raise self.fail(
                target,
                "TK111",
                f"'{target.id}' is a compile-time value and cannot be assigned",
                "use a new name",
            )

    def assign_name(self, n: ast.AST, target: ast.Name, value: ast.expr) -> list[ir.Stmt]:
        self.free(target)
        loc, old = self.loc(n), self.find(target.id)
        special = self.shared_declaration(value)
        if special is not None:
            return shared.declare(self, n, target, old, *special)
        if isinstance(value, ast.Tuple):
            return self.coordinate(n, target, old, value)
        v = self.static(value)
        if isinstance(v, (RT, RV, Regs, Ring)):
            if old is not None:
                raise self.fail(
                    n,
                    "TK111",
                    f"'{target.id}' already is {old.type}",
                    "use a new name"
                    if isinstance(v, Ring)
                    else "a declaration stands once; fill it with warp.zero or an assignment",
                )
            return [ir.Decl(loc, self.declare(target, v, "reg"), None)]
        if isinstance(v, (ST, SV, T.Semaphore)):
            raise self.fail(
                value,
                "TK101",
                f"{v} lives in shared memory",
                f"write {target.id} = tk.shared({ast.unparse(value)})",
            )
        e = self.ex(value)
        if isinstance(e.type, (*REF_TYPES, T.Coord)):
            if old is not None:
                raise self.fail(
                    n,
                    "TK111",
                    f"'{target.id}' is already bound",
                    "a reference is bound once per block: use a new name",
                )
            return [ir.Decl(loc, self.declare(target, e.type, "ref"), e)]
        if isinstance(e, ir.Var) and isinstance(e.type, (RT, RV, Regs, Ring)):
            hint = f"write {target.id} = tk.copy({e.sym.name})"
            if isinstance(e.type, Regs):
                hint = "copy the registers one by one"
            elif isinstance(e.type, Ring):
                hint = f"use '{e.sym.name}' itself, or a ring of its own: {target.id} = tk.ring(n)"
            what = "ring" if isinstance(e.type, Ring) else "register tile"
            raise self.fail(
                n,
                "TK120",
                f"'{target.id} = {e.sym.name}' would give one {what} two names",
                hint,
            )
        if old is None:
            if isinstance(v, (int, float)) and target.id in self.once:
                self.values[target.id] = v
            return self.new_name(loc, target, e)
        self.assignable(target, old)
        if isinstance(old.type, Scalar):
            e = self.coerce(value, e, old.type, target.id)
        elif old.type != e.type:
            raise self.fail(
                n,
                "TK121",
                f"'{target.id}' is {old.type} and cannot become {e.type}",
                f"use a new name, or warp.copy({target.id}, ...) to convert"
                if _same_shape(old.type, e.type)
                else f"use a new name, or warp.fill({target.id}, ...) to set every element"
                if isinstance(old.type, (RT, RV)) and isinstance(e.type, Scalar)
                else f"use a new name, or declare '{target.id}' as {e.type}",
            )
        return [ir.Assign(loc, ir.Var(old.type, self.loc(target), old), e)]

    def new_name(self, loc: Loc, target: ast.Name, e: ir.Expr) -> list[ir.Stmt]:
        return [ir.Decl(loc, self.declare(target, e.type, "reg"), e)]

    def coordinate(
        self, n: ast.AST, target: ast.Name, old: ir.Sym | None, value: ast.Tuple
    ) -> list[ir.Stmt]:
        """at = (row, col): a tile coordinate with a name."""
        if old is not None:
            raise self.fail(n, "TK111", f"'{target.id}' already is a name here", "use a new name")
        e = self.coordinate_value(value)
        return [ir.Decl(self.loc(n), self.declare(target, e.type, "ref"), e)]

    def assignable(self, n: ast.AST, sym: ir.Sym) -> None:
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
            raise self.fail(
                n, "TK111", f"'{sym.name}' is {why[sym.storage]} and cannot be assigned", hint
            )

    def place(self, n: ast.expr) -> ir.Expr:
        """The target of an assignment other than a name: an element or a vector access."""
        if not isinstance(n, (ast.Subscript, ast.Call)):
            what = hint(n)
            if isinstance(n, ast.Attribute) and n.attr in ("stage", "phase"):
                what = "r.advance() moves a ring to its next stage"
            raise self.fail(n, "TK100", f"{ast.unparse(n)} cannot be assigned", what)
        e = self.ex(n)
        if not isinstance(e, (ir.Index, ir.VecIndex, ir.TileReg)) or isinstance(e.type, REF_TYPES):
            raise self.fail(
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

    def element_value(self, target: ast.AST, e: ir.Expr, value: ast.expr) -> ir.Expr:
        if isinstance(e, ir.VecIndex):
            if isinstance(value, ast.Tuple):
                if len(value.elts) != e.n:
                    raise self.fail(value, "TK204", f"{len(value.elts)} values for {e.n} elements")
                items = [
                    self.coerce(x, self.ex(x), element_type(e.type.dtype), "the element")
                    for x in value.elts
                ]
                return ir.TupleExpr(e.type, self.loc(value), items)
            v = self.ex(value)
            if v.type != e.type:
                raise self.fail(
                    value,
                    "TK200",
                    f"{e.type} cannot take {v.type}",
                    "give a tuple with a value for each element",
                )
            return v
        assert isinstance(e.type, Scalar)
        return self.coerce(value, self.ex(value), e.type, ast.unparse(target))

    def st_AugAssign(self, n: ast.AugAssign) -> list[ir.Stmt]:
        op = SYMBOL.get(type(n.op))
        if op is None:
            sign = kind(n.op).strip("'")
            raise self.fail(
                n,
                "TK100",
                f"'{sign}=' is not part of the kernel language",
                "write the operation out: x = x * x, or warp.mma_AB(acc, a, b) for products",
            )
        loc = self.loc(n)
        if isinstance(n.target, ast.Name):
            sym = self.lookup(n.target)
            self.assignable(n.target, sym)
            target: ir.Expr = ir.Var(sym.type, self.loc(n.target), sym)
        else:
            target = self.place(n.target)
            if isinstance(target, ir.VecIndex):
                raise self.fail(n, "TK100", f"'{op}=' does not work on several elements at once")
        result = self.binary(n, op, target, self.ex(n.value))
        if result.type != target.type:
            if isinstance(target.type, Scalar) and isinstance(result.type, Scalar):
                self.coerce(n, result, target.type, ast.unparse(n.target))
            else:
                raise self.fail(
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

    def swap(self, n: ast.Assign, target: ast.Tuple) -> list[ir.Stmt]:
        """a, b = b, a: numbers only; all values are read before any name changes."""
        if not isinstance(n.value, ast.Tuple) or len(n.value.elts) != len(target.elts):
            raise self.fail(
                n,
                "TK100",
                "both sides of a tuple assignment need the same number of items",
                "write a, b = x, y",
            )
        names = [t.id for t in target.elts if isinstance(t, ast.Name)]
        if len(set(names)) < len(names):
            raise self.fail(target, "TK100", "a name stands twice on the left of the assignment")
        values = [self.number(v, "an item of a tuple assignment") for v in n.value.elts]
        new = [t for t in target.elts if isinstance(t, ast.Name) and self.find(t.id) is None]
        if len(new) == len(target.elts):
            out: list[ir.Stmt] = []
            for name, e in zip(new, values):
                self.free(name)
                out += self.new_name(self.loc(n), name, e)
            return out
        if new:
            raise self.fail(
                new[0],
                "TK110",
                f"'{new[0].id}' is new, and other items of this assignment are not",
                f"give '{new[0].id}' a first value on a line before",
            )
        places: list[ir.Expr] = []
        for i, t in enumerate(target.elts):
            if isinstance(t, ast.Name):
                sym = self.lookup(t)
                self.assignable(t, sym)
                places.append(ir.Var(sym.type, self.loc(t), sym))
            else:
                places.append(self.place(t))
            kind = places[i].type
            if not isinstance(kind, Scalar):
                raise self.fail(t, "TK200", f"a tuple assignment is for numbers, not {kind}")
            values[i] = self.coerce(n.value.elts[i], values[i], kind, ast.unparse(t))
        return [ir.Swap(self.loc(n), places, values)]

    # ----------------------------------------------------------------------- shared memory
    def shared_declaration(self, value: ast.expr) -> tuple[str, ast.Call] | None:
        if isinstance(value, ast.Call):
            f = self.static(value.func)
            if isinstance(f, DeviceName) and f.path in ("shared", "shared_array", "alias"):
                return f.path, value
        return None

    # ------------------------------------------------------------------------ control flow
    def st_If(self, n: ast.If) -> list[ir.Stmt]:
        v = self.static(n.test)
        if known(v):
            return self.statements(n.body if v else n.orelse)
        cond = self.condition(n.test)
        return [ir.If(self.loc(n), cond, self.block(n.body), self.block(n.orelse))]

    def st_While(self, n: ast.While) -> list[ir.Stmt]:
        if n.orelse:
            raise self.fail(n, "TK100", "while/else is not part of the kernel language", NO_ELSE)
        cond = self.condition(n.test)
        body = self.loop_body(n.body, "while")
        return [ir.While(self.loc(n), cond, body)]

    def st_For(self, n: ast.For) -> list[ir.Stmt]:
        if n.orelse:
            raise self.fail(n, "TK100", "for/else is not part of the kernel language", NO_ELSE)
        f = self.static(n.iter.func) if isinstance(n.iter, ast.Call) else None
        unroll = isinstance(f, DeviceName) and f.path == "static_range"
        if not isinstance(n.iter, ast.Call) or not (f is range or unroll):
            own = isinstance(n.iter, ast.Call) and ast.unparse(n.iter.func) == "range"
            raise self.fail(
                n.iter,
                "TK100",
                "kernels loop over range(...) or tk.static_range(...)",
                "'range' is a name of your own here: rename it"
                if own
                else "write for i in range(n), and index inside the loop",
            )
        if not isinstance(n.target, ast.Name):
            raise self.fail(
                n.target, "TK100", "a loop has one variable", "compute others inside the loop"
            )
        if not 1 <= len(n.iter.args) <= 3 or n.iter.keywords:
            raise self.fail(n.iter, "TK106", "range takes one to three numbers")
        self.free(n.target)
        old = self.find(n.target.id)
        if old is not None:
            raise self.fail(
                n.target,
                "TK111",
                f"'{n.target.id}' already is a name here (line {old.loc.line})",
                "use a new name for the loop variable",
            )
        self.loop_names.add(n.target.id)
        return self.unrolled(n, n.iter, n.target) if unroll else self.counted(n, n.iter, n.target)

    def counted(self, n: ast.For, call: ast.Call, target: ast.Name) -> list[ir.Stmt]:
        step = self.static(call.args[2]) if len(call.args) == 3 else 1
        if isinstance(step, DeviceName) and step.path in BLOCK_DIMS and self.unit is not None:
            step = self.unit.threads[BLOCK_DIMS.index(step.path)]  # the block's size is a constant
        if isinstance(step, bool) or (isinstance(step, int) and step == 0):
            raise self.fail(
                call.args[2],
                "TK105",
                f"the step of a range cannot be {step}",
                "a whole number other than 0, or a positive number that the block agrees on",
            )
        if not isinstance(step, int):  # of the run: gridDim.x
            what = "the step of a range"
            step = self.coerce(call.args[2], self.whole(call.args[2], what), T.I32, what)
        bounds = [
            self.coerce(a, self.whole(a, "a range bound"), T.I32, "a range bound")
            for a in call.args[:2]
        ]
        lo, hi = bounds if len(bounds) == 2 else (ir.Const(T.I32, bounds[0].loc, 0), bounds[0])
        self.scopes.append({})
        var = self.declare(target, T.I32, "loop")
        body = self.loop_body(n.body, "for")
        self.leave(self.scopes.pop())
        return [ir.For(self.loc(n), var, lo, hi, step, body)]

    def loop_body(self, nodes: list[ast.stmt], kind: str) -> list[ir.Stmt]:
        self.loops.append(kind)
        body = self.block(nodes)
        self.loops.pop()
        return body

    def unrolled(self, n: ast.For, call: ast.Call, target: ast.Name) -> list[ir.Stmt]:
        args = [self.static(a) for a in call.args]
        bad = next(
            (x for x, a in zip(call.args, args) if isinstance(a, bool) or not isinstance(a, int)),
            None,
        )
        if bad is not None or args[2:] == [0]:
            raise self.fail(
                bad or call.args[2],
                "TK105",
                "tk.static_range needs compile-time whole numbers, and a step other than 0",
                "use range for run-time bounds",
            )
        steps = range(*args)
        if steps[MAX_UNROLL:]:
            raise self.fail(
                n.iter, "TK105", f"more than {MAX_UNROLL} unrolled steps are too many", "use range"
            )
        out: list[ir.Stmt] = []
        for i in steps:
            self.consts[target.id] = i
            body = self.loop_body(n.body, "unrolled")
            out.append(ir.Scope(self.loc(n), body, f"{target.id} = {i}"))
        self.consts.pop(target.id, None)
        self.ended.setdefault(target.id, []).append(n.lineno)
        return out

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
        op = self.op_of(v)
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
        args, _ = self.apply(v, op)
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
        self.arguments(n, [], f"{owner.name}.advance")
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


def _same_shape(a: T.Type, b: T.Type) -> bool:
    return (
        type(a) is type(b)
        and isinstance(a, (RT, RV))
        and [getattr(a, x, None) for x in ("rows", "cols", "n")]
        == [getattr(b, x, None) for x in ("rows", "cols", "n")]
    )


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
