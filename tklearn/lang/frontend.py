"""The front end: a Python function becomes a typed ir.Kernel for given argument types.

Statements, names and blocks. A name lives in the block of its first assignment and keeps one type;
an `if` on compile-time values keeps only the branch taken. Nothing is inserted for the learner.
"""

from __future__ import annotations

import ast
import inspect
from typing import Any, Callable

from tklearn.lang import analysis, infer, ir
from tklearn.lang import types as T
from tklearn.lang.errors import Loc, SourceError
from tklearn.lang.expressions import SYMBOL, DeviceFunction, Expressions, Intrinsic, _hint, _kind
from tklearn.lang.names import DeviceName
from tklearn.lang.ops import DTYPE_ARCH
from tklearn.lang.source import UNKNOWN, FunctionSource, source_of
from tklearn.lang.types import GL, REF_TYPES, RT, RV, ST, SV, ConstType, Regs, SArr, Scalar, Shared

__all__ = ["DeviceFunction", "Intrinsic", "parameters", "specialise"]


def parameters(fn: Callable) -> tuple[dict[str, T.Type], dict[str, Any]]:
    """The annotated parameters of a kernel in order, and the defaults of compile-time ones.

    Errors: TK104 for a missing or unusable annotation.
    """
    src = source_of(fn)
    front = Front(src, {}, None)
    args = src.node.args
    if args.vararg or args.kwarg or args.posonlyargs:
        raise front.fail(
            src.node, "TK104", "a kernel has plain parameters only", "no *args, **kwargs or '/'"
        )
    params: dict[str, T.Type] = {}
    defaults: dict[str, Any] = {}
    for a, p in zip(
        [*args.args, *args.kwonlyargs], inspect.signature(fn).parameters.values(), strict=True
    ):
        t = p.annotation
        if isinstance(t, str):  # from __future__ import annotations
            t = front.static(ast.parse(t, mode="eval").body)
        if isinstance(t, T.DType):
            t = Scalar(t)
        if not isinstance(t, (GL, Scalar, ConstType)) or (
            isinstance(t, Scalar) and t.dtype not in (T.i32, T.u32, T.i64, T.f32, T.bool_)
        ):
            raise front.fail(
                a,
                "TK104",
                f"parameter '{a.arg}' needs an annotation",
                "tk.gl_bf or tk.gl(T) for arrays, tk.i32 or tk.f32 for numbers, tk.const for "
                "compile-time values",
            )
        params[a.arg] = t
        if p.default is not inspect.Parameter.empty:
            defaults[a.arg] = p.default
    return params, defaults


def annotation(front: Front, a: ast.arg) -> Any:
    """What a parameter is annotated with, or UNKNOWN.

    Python's own value comes first: a function made by another function (`tk.gl(T)` for a local T)
    keeps T for its body only, so the text alone would not say what T was.
    """
    if a.annotation is None:
        return UNKNOWN
    try:
        t = front.src.fn.__annotations__.get(a.arg, UNKNOWN)
    except NameError:  # Python 3.14 evaluates annotations when they are read
        t = UNKNOWN
    if isinstance(t, str):
        return front.static(ast.parse(t, mode="eval").body)
    return front.static(a.annotation) if t is UNKNOWN else t


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
    params = [ir.Sym(n, t, "param", src.loc) for n, t in arg_types.items()]
    front.scopes.append({s.name: s for s in params})
    body = front.block(src.node.body)
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
    kernel.captures = front.captures
    for s in params:
        unit.need(DTYPE_ARCH.get(s.type.dtype.name, 75), src.loc)
    kernel.arch, kernel.arch_loc = unit.arch, unit.arch_loc
    analysis.place_shared(kernel)
    infer.infer(kernel)
    analysis.check_registers(kernel)
    return kernel


class Unit:
    """What all functions of one kernel share: helpers already specialised, shared memory, architecture."""

    def __init__(self, threads: tuple[int, int, int]) -> None:
        self.threads = threads
        self.functions: list[ir.Function] = []
        self.by_key: dict[tuple, ir.Function] = {}
        self.active: list[Any] = []
        self.shared: list[ir.Sym] = []
        self.arch = 75
        self.arch_loc: Loc | None = None

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
        self.ended: dict[str, int] = {}
        self.loops = 0
        self.ret: ir.Expr | None = None
        self.once = _assigned_once(src.node)

    # ------------------------------------------------------------------------------ names
    def find(self, name: str) -> ir.Sym | None:
        return next((s[name] for s in reversed(self.scopes) if name in s), None)

    def is_local(self, name: str) -> bool:
        return self.find(name) is not None

    def local_const(self, name: str) -> Any:
        return self.values.get(name, UNKNOWN)

    def lookup(self, n: ast.Name) -> ir.Sym:
        sym = self.find(n.id)
        if sym is None:
            hint = "check the spelling; module constants must exist before the kernel is called"
            if n.id in self.ended:
                hint = (
                    f"'{n.id}' was first assigned inside the block at line {self.ended[n.id]} and lives only there; "
                    f"assign it before that block"
                )
            raise self.fail(n, "TK110", f"'{n.id}' is not defined here", hint)
        return sym

    def declare(self, n: ast.Name, t: T.Type, storage: str) -> ir.Sym:
        sym = ir.Sym(n.id, t, storage, self.loc(n))
        self.scopes[-1][n.id] = sym
        if self.unit and isinstance(t, (RT, RV, ST, SV, Regs)):
            self.unit.need(DTYPE_ARCH.get(t.dtype.name, 75), sym.loc)
        return sym

    # ----------------------------------------------------------------------------- blocks
    def block(self, nodes: list[ast.stmt]) -> list[ir.Stmt]:
        self.scopes.append({})
        out = self.statements(nodes)
        for name, sym in self.scopes.pop().items():
            self.ended[name] = sym.loc.line
            self.values.pop(name, None)
        return out

    def statements(self, nodes: list[ast.stmt]) -> list[ir.Stmt]:
        out: list[ir.Stmt] = []
        for i, n in enumerate(nodes):
            method = getattr(self, "st_" + type(n).__name__, None)
            if method is None:
                raise self.fail(
                    n, "TK100", f"{_kind(n)} is not part of the kernel language", _hint(n)
                )
            self.atomics = 0
            if (
                self.device
                and isinstance(n, ast.Return)
                and n.value is not None
                and not (n is self.src.node.body[-1])
            ):
                raise self.fail(
                    n,
                    "TK100",
                    "a device function returns its value in its last statement",
                    "assign the result to a name and return it at the end",
                )
            out += method(n)
            if self.atomics > 1:
                raise self.fail(
                    n, "TK203", "more than one atomic in a statement", "give each its own line"
                )
        return out

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
        if self.find(n.target.id):
            raise self.fail(n, "TK111", f"'{n.target.id}' already has a type")
        sym_value = self.coerce(n.value, self.ex(n.value), Scalar(t), n.target.id)
        return [ir.Decl(self.loc(n), self.declare(n.target, Scalar(t), "reg"), sym_value)]

    def assign_name(self, n: ast.AST, target: ast.Name, value: ast.expr) -> list[ir.Stmt]:
        loc, old = self.loc(n), self.find(target.id)
        special = self.shared_declaration(value)
        if special is not None:
            return self.declare_shared(n, target, old, *special)
        if isinstance(value, ast.Tuple):
            return self.coordinate(n, target, old, value)
        v = self.static(value)
        if isinstance(v, (RT, RV, Regs)):
            if old is not None:
                raise self.fail(
                    n,
                    "TK111",
                    f"'{target.id}' already is {old.type}",
                    "a declaration stands once; fill it with warp.zero or an assignment",
                )
            return [ir.Decl(loc, self.declare(target, v, "reg"), None)]
        if isinstance(v, (ST, SV)):
            raise self.fail(
                value,
                "TK101",
                f"{v} lives in shared memory",
                f"write {target.id} = tk.shared({ast.unparse(value)})",
            )
        e = self.ex(value)
        if isinstance(e.type, REF_TYPES):
            if old is not None:
                raise self.fail(
                    n,
                    "TK111",
                    f"'{target.id}' is already bound",
                    "a reference is bound once per block: use a new name",
                )
            return [ir.Decl(loc, self.declare(target, e.type, "ref"), e)]
        if isinstance(e, ir.Var) and isinstance(e.type, (RT, RV, Regs)):
            hint = (
                f"write {target.id} = tk.copy({e.sym.name})"
                if not isinstance(e.type, Regs)
                else "copy the registers one by one"
            )
            raise self.fail(
                n,
                "TK120",
                f"'{target.id} = {e.sym.name}' would give one register tile two names",
                hint,
            )
        if old is None:
            if isinstance(v, (int, float)) and target.id in self.once:
                self.values[target.id] = v
            return [ir.Decl(loc, self.declare(target, e.type, "reg"), e)]
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
                else "use a new name",
            )
        return [ir.Assign(loc, ir.Var(old.type, self.loc(target), old), e)]

    def coordinate(
        self, n: ast.AST, target: ast.Name, old: ir.Sym | None, value: ast.Tuple
    ) -> list[ir.Stmt]:
        """at = (row, col): a tile coordinate with a name."""
        if old is not None:
            raise self.fail(n, "TK111", f"'{target.id}' already is a name here", "use a new name")
        e = self.argument(value, "coord", None)
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
            raise self.fail(
                n,
                "TK111",
                f"'{sym.name}' is {why[sym.storage]} and cannot be assigned",
                "use a new name",
            )

    def place(self, n: ast.expr) -> ir.Expr:
        """The target of an assignment other than a name: an element, a vector access, a register."""
        if not isinstance(n, (ast.Subscript, ast.Call)):
            raise self.fail(n, "TK100", f"{ast.unparse(n)} cannot be assigned", _hint(n))
        e = self.ex(n)
        if not isinstance(e, (ir.Index, ir.VecIndex, ir.TileReg)) or isinstance(e.type, REF_TYPES):
            raise self.fail(
                n,
                "TK100",
                f"{ast.unparse(n)} cannot be assigned",
                "store tiles with warp.store(dst, tile) " if isinstance(e.type, REF_TYPES) else "",
            )
        return e

    def element_value(self, target: ast.AST, e: ir.Expr, value: ast.expr) -> ir.Expr:
        if isinstance(e, ir.VecIndex):
            if isinstance(value, ast.Tuple):
                if len(value.elts) != e.n:
                    raise self.fail(value, "TK204", f"{len(value.elts)} values for {e.n} elements")
                from tklearn.lang.expressions import element_type

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
            raise self.fail(n, "TK100", f"{_kind(n.op)}= is not part of the kernel language")
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
        if not isinstance(n.value, ast.Tuple) or len(n.value.elts) != len(target.elts):
            raise self.fail(
                n, "TK100", "both sides of a tuple assignment need the same number of items"
            )
        values = [self.number(v, "an item of a tuple assignment") for v in n.value.elts]
        if all(isinstance(t, ast.Name) and self.find(t.id) is None for t in target.elts):
            return [s for t, v in zip(target.elts, n.value.elts) for s in self.assign_name(n, t, v)]  # type: ignore[arg-type]
        places: list[ir.Expr] = []
        for i, t in enumerate(target.elts):
            if isinstance(t, ast.Name):
                sym = self.lookup(t)
                self.assignable(t, sym)
                places.append(ir.Var(sym.type, self.loc(t), sym))
            else:
                places.append(self.place(t))
            if not isinstance(places[i].type, Scalar):
                raise self.fail(
                    t, "TK200", f"a tuple assignment is for numbers, not {places[i].type}"
                )
            values[i] = self.coerce(n.value.elts[i], values[i], places[i].type, ast.unparse(t))  # type: ignore[arg-type]
        return [ir.Swap(self.loc(n), places, values)]

    # ----------------------------------------------------------------------- shared memory
    def shared_declaration(self, value: ast.expr) -> tuple[str, ast.Call] | None:
        if isinstance(value, ast.Call):
            f = self.static(value.func)
            if isinstance(f, DeviceName) and f.path in ("shared", "shared_array", "alias"):
                return f.path, value
        return None

    def declare_shared(
        self, n: ast.AST, target: ast.Name, old: ir.Sym | None, kind: str, call: ast.Call
    ) -> list[ir.Stmt]:
        if self.device or len(self.scopes) != 2:
            raise self.fail(
                n,
                "TK108",
                "shared memory is declared at the top of the kernel, outside blocks and helpers",
                "declare it there and pass it on",
            )
        if old is not None:
            raise self.fail(n, "TK111", f"'{target.id}' already is {old.type}")
        parent: ir.Sym | None = None
        offset = 0
        if kind == "alias":
            t, parent, offset = self.alias(call)
        else:
            values = [self.static(a) for a in call.args]
            bad = next((a for a, v in zip(call.args, values) if v is UNKNOWN), None)
            if bad is not None or call.keywords or not values:
                raise self.fail(
                    bad or call,
                    "TK105",
                    "shared memory needs compile-time types and sizes",
                    "tk.shared(tk.st_bf(64, 64), 4), tk.shared_array(tk.f32, 32, 33)",
                )
            t = self.shared_type(call, kind, values)
        sym = self.declare(target, t, "shared")
        sym.alias_of, sym.offset = parent, offset
        assert self.unit
        self.unit.shared.append(sym)
        return [ir.Decl(self.loc(n), sym, None)]

    def shared_type(self, call: ast.Call, kind: str, values: list[Any]) -> T.Type:
        head, dims = values[0], values[1:]
        if any(isinstance(d, bool) or not isinstance(d, int) or d <= 0 for d in dims):
            raise self.fail(
                call,
                "TK201",
                f"sizes of shared memory must be positive whole numbers, not {tuple(dims)}",
            )
        if kind == "shared_array":
            if not isinstance(head, T.DType) or not dims:
                raise self.fail(
                    call,
                    "TK106",
                    "tk.shared_array takes a dtype and sizes",
                    "tk.shared_array(tk.f32, 32, 33)",
                )
            return SArr(head, tuple(dims))
        if not isinstance(head, (ST, SV)):
            raise self.fail(
                call,
                "TK106",
                "tk.shared takes the type of a shared tile or vector",
                "tk.shared(tk.st_bf(64, 64))",
            )
        return Shared(head, tuple(dims)) if dims else head

    def alias(self, call: ast.Call) -> tuple[T.Type, ir.Sym, int]:
        """tk.alias(x, type, offset=0): another view of x's bytes."""
        a = self.arguments(call, ["x", "type", "offset"], "tk.alias", {"offset"})
        base = self.ex(a["x"])
        if not isinstance(base, ir.Var) or base.sym.storage != "shared":
            raise self.fail(a["x"], "TK106", "tk.alias needs the name of shared memory")
        v = self.static(a["type"])
        if isinstance(v, tuple) and v and isinstance(v[0], T.DType):
            v = self.shared_type(call, "shared_array", list(v))
        off = self.static(a["offset"]) if "offset" in a else 0
        if not isinstance(v, (ST, SV, SArr)) or not isinstance(off, int):
            raise self.fail(
                call,
                "TK106",
                "tk.alias(x, type, offset): a type and a number of bytes",
                "the type is tk.st_bf(...), tk.sv(...) or (dtype, *sizes)",
            )
        if off < 0 or off % v.align:
            raise self.fail(
                call, "TK201", f"the offset of {v} must be a multiple of {v.align} bytes, not {off}"
            )
        root = base.sym
        while root.alias_of is not None:
            off, root = off + root.offset, root.alias_of
        return v, root, off

    # ------------------------------------------------------------------------ control flow
    def st_If(self, n: ast.If) -> list[ir.Stmt]:
        v = self.static(n.test)
        if v is not UNKNOWN:
            return self.statements(n.body if v else n.orelse)
        cond = self.condition(n.test)
        return [ir.If(self.loc(n), cond, self.block(n.body), self.block(n.orelse))]

    def st_While(self, n: ast.While) -> list[ir.Stmt]:
        if n.orelse:
            raise self.fail(n, "TK100", "while/else is not part of the kernel language")
        cond = self.condition(n.test)
        self.loops += 1
        body = self.block(n.body)
        self.loops -= 1
        return [ir.While(self.loc(n), cond, body)]

    def st_For(self, n: ast.For) -> list[ir.Stmt]:
        if n.orelse:
            raise self.fail(n, "TK100", "for/else is not part of the kernel language")
        f = self.static(n.iter.func) if isinstance(n.iter, ast.Call) else None
        unroll = isinstance(f, DeviceName) and f.path == "static_range"
        if (
            not isinstance(n.iter, ast.Call)
            or not (f is range or unroll)
            or not isinstance(n.target, ast.Name)
        ):
            raise self.fail(n.iter, "TK100", "kernels loop over range(...) or tk.static_range(...)")
        if not 1 <= len(n.iter.args) <= 3 or n.iter.keywords:
            raise self.fail(n.iter, "TK106", "range takes one to three numbers")
        old = self.find(n.target.id)
        if old is not None and old.storage != "loop":
            raise self.fail(
                n.target,
                "TK111",
                f"'{n.target.id}' already is a name here",
                "use a new name for the loop variable",
            )
        if unroll:
            return self.unrolled(n, n.iter, n.target)
        step = self.static(n.iter.args[2]) if len(n.iter.args) == 3 else 1
        if not isinstance(step, int) or isinstance(step, bool) or step == 0:
            raise self.fail(
                n.iter, "TK105", "the step of a range must be a compile-time whole number, not 0"
            )
        bounds = [
            self.coerce(a, self.integer(a, "a range bound"), T.I32, "a range bound")
            for a in n.iter.args[:2]
        ]
        lo, hi = bounds if len(bounds) == 2 else (ir.Const(T.I32, bounds[0].loc, 0), bounds[0])
        self.scopes.append({})
        var = self.declare(n.target, T.I32, "loop")
        self.loops += 1
        body = self.block(n.body)
        self.loops -= 1
        self.scopes.pop()
        self.ended[n.target.id] = n.lineno
        return [ir.For(self.loc(n), var, lo, hi, step, body)]

    def unrolled(self, n: ast.For, call: ast.Call, target: ast.Name) -> list[ir.Stmt]:
        args = [self.static(a) for a in call.args]
        if any(isinstance(a, bool) or not isinstance(a, int) for a in args):
            raise self.fail(
                n.iter,
                "TK105",
                "tk.static_range needs compile-time numbers",
                "use range for run-time bounds",
            )
        steps = range(*args)
        if len(steps) > 1024:
            raise self.fail(
                n.iter, "TK105", f"{len(steps)} unrolled steps are too many", "use range"
            )
        for x in ast.walk(n):
            if isinstance(x, (ast.Break, ast.Continue)):
                raise self.fail(
                    x,
                    "TK100",
                    "break and continue do not work in an unrolled loop",
                    "use range, or an if",
                )
        out: list[ir.Stmt] = []
        for i in steps:
            self.consts[target.id] = i
            out.append(ir.Scope(self.loc(n), self.block(n.body), f"{target.id} = {i}"))
        self.consts.pop(target.id, None)
        return out

    def st_Break(self, n: ast.Break) -> list[ir.Stmt]:
        return [ir.Break(self.loc(n))]

    def st_Continue(self, n: ast.Continue) -> list[ir.Stmt]:
        return [ir.Continue(self.loc(n))]

    def st_Pass(self, n: ast.Pass) -> list[ir.Stmt]:
        return []

    def st_Return(self, n: ast.Return) -> list[ir.Stmt]:
        if n.value is None:
            return [ir.Return(self.loc(n))]
        if not self.device:
            raise self.fail(n, "TK100", "a kernel returns nothing", "write results to an array")
        e = self.ex(n.value)
        if isinstance(e.type, REF_TYPES):
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
            raise self.fail(n, "TK105", "the message of an assert is a string")
        v = self.static(n.test)
        if v is not UNKNOWN:
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
        if f is print:
            return [ir.Print(self.loc(n), [self.printable(a) for a in v.args])]
        if f is breakpoint:
            return [ir.Breakpoint(self.loc(n))]
        if isinstance(f, DeviceFunction):
            return [ir.Eval(self.loc(n), self.call_device(v, f))]
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
        assert self.unit
        self.unit.need(analysis.op_arch(op, args), self.loc(n))
        return [ir.Do(self.loc(n), op, args)]

    def printable(self, n: ast.expr) -> Any:
        v = self.static(n)
        if isinstance(v, str):
            return v
        return self.ex(n)

    # ------------------------------------------------------------------- device functions
    def call_device(self, n: ast.Call, fn: DeviceFunction) -> ir.Expr:
        src = source_of(fn.fn)
        a = src.node.args
        if a.vararg or a.kwarg or a.kwonlyargs or a.posonlyargs:
            raise self.fail(n, "TK104", f"'{fn.__name__}' must have plain parameters")
        names = [x.arg for x in a.args]
        nodes = self.arguments(n, names, fn.__name__)
        inner = Front(src, {}, self.unit, device=True)
        consts: dict[str, Any] = {}
        args: list[ir.Expr] = []
        types: list[tuple[str, T.Type]] = []
        for p in a.args:
            want = annotation(inner, p)
            if isinstance(want, ConstType):
                consts[p.arg] = self.static(nodes[p.arg])
                if consts[p.arg] is UNKNOWN:
                    raise self.fail(
                        nodes[p.arg],
                        "TK105",
                        f"'{p.arg}' of {fn.__name__} must be known at compile time",
                    )
                continue
            e = self.ex(nodes[p.arg])
            if isinstance(want, T.DType):
                e = self.coerce(nodes[p.arg], e, Scalar(want), p.arg)
            elif (
                isinstance(want, T.Type)
                and not (
                    isinstance(want, GL) and isinstance(e.type, GL) and want.dtype == e.type.dtype
                )
                and want != e.type
            ):
                raise self.fail(
                    nodes[p.arg], "TK200", f"'{p.arg}' of {fn.__name__} is {want}, not {e.type}"
                )
            args.append(e)
            types.append((p.arg, e.type))
        f = self.device_body(n, fn, inner, src, consts, types)
        return ir.CallDevice(f.ret or T.I32, self.loc(n), f, args)

    def device_body(
        self,
        n: ast.AST,
        fn: DeviceFunction,
        inner: Front,
        src: FunctionSource,
        consts: dict[str, Any],
        types: list[tuple[str, T.Type]],
    ) -> ir.Function:
        assert self.unit
        key = (fn.fn, tuple(types), tuple(sorted(consts.items())))
        if key in self.unit.by_key:
            return self.unit.by_key[key]
        if fn in self.unit.active:
            raise self.fail(n, "TK100", f"'{fn.__name__}' calls itself", "write a loop")
        self.unit.active.append(fn)
        inner.consts = dict(consts)
        params = [ir.Sym(name, t, "param", src.loc) for name, t in types]
        inner.scopes.append({s.name: s for s in params})
        body = inner.block(src.node.body)
        self.unit.active.pop()
        f = ir.Function(
            fn.__name__, params, body, inner.ret.type if inner.ret else None, src.file, src.loc, key
        )
        self.captures.update({("@", fn.__name__, *k): v for k, v in inner.captures.items()})
        self.unit.by_key[key] = f
        self.unit.functions.append(f)
        return f


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
        elif isinstance(n, (ast.AugAssign, ast.For)):
            targets = [n.target] * 2
        for t in targets:
            if isinstance(t, ast.Name):
                seen[t.id] = seen.get(t.id, 0) + 1
    return {k for k, v in seen.items() if v == 1}
