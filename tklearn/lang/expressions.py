"""Expressions: from Python syntax to typed IR.

Knows the type rules of numbers, tiles and memory elements, and the op table. Statements, names and
blocks are frontend.py's; who agrees on a value is infer.py's.
"""

from __future__ import annotations

import ast
import math
import struct
import types as pytypes
from typing import Any

from tklearn.lang import calls, indexing, ir
from tklearn.lang import types as T
from tklearn.lang.calls import DeviceFunction
from tklearn.lang.errors import Loc, SourceError
from tklearn.lang.hints import DEVICE_HEADS, hint, kind, near
from tklearn.lang.names import SPECIAL_CALLS, SPECIALS, DeviceName
from tklearn.lang.ops import Op
from tklearn.lang.rules import OpMismatch, elementwise, promote
from tklearn.lang.source import UNKNOWN, FunctionSource, Resolver
from tklearn.lang.types import GL, RT, RV, ST, Scalar, SubST, Vec

SYMBOL = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.LShift: "<<",
    ast.RShift: ">>",
}
RELATION = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
ODD_RELATIONS = {ast.In: "in", ast.NotIn: "not in", ast.Is: "is", ast.IsNot: "is not"}
DIMS = ("batch", "depth", "rows", "cols")


def f32_value(v: float) -> float:
    """v rounded to float32, as a Python float; inf and nan stay."""
    try:
        return struct.unpack("f", struct.pack("f", v))[0]
    except OverflowError:
        return float("inf") if v > 0 else float("-inf")


class Expressions(Resolver):
    """Typed expressions of one function. Subclasses keep the names."""

    def __init__(self, src: FunctionSource, consts: dict[str, Any]) -> None:
        super().__init__(src, consts)
        self.atomics = 0

    def lookup(self, n: ast.Name) -> ir.Sym:
        raise NotImplementedError

    def call_device(self, n: ast.Call, fn: DeviceFunction) -> ir.CallDevice:
        raise NotImplementedError

    def need(self, op: Op, args: list[Any], loc: Loc) -> None:
        """Notes the architecture that an operation needs."""
        raise NotImplementedError

    def meets_block(self, op: Op, args: list[Any]) -> list[Any]:
        """The arguments as they are for this size of block; OpMismatch where it does not fit."""
        raise NotImplementedError

    # ------------------------------------------------------------------------- entry points
    def ex(self, n: ast.expr) -> ir.Expr:
        """A value: number, tile, vector or reference."""
        value = UNKNOWN if isinstance(n, ast.Name) and self.is_local(n.id) else self.static(n)
        if value is not UNKNOWN:
            return self.constant(n, value)
        method = getattr(self, "ex_" + type(n).__name__, None)
        if method is None:
            raise self.fail(n, "TK100", f"{kind(n)} is not part of the kernel language", hint(n))
        return method(n)

    def number(self, n: ast.expr, what: str = "this") -> ir.Expr:
        e = self.ex(n)
        if not isinstance(e.type, Scalar):
            hint = ""
            if isinstance(e.type, GL):
                hint = f"take one element, as in {ast.unparse(n)}[i]"
            elif isinstance(e.type, (RT, RV)):
                hint = "a tile is not one number: reduce it first, as in tk.row_max(t) or tk.sum(v)"
            elif isinstance(e.type, Vec):
                hint = f"take one of its elements, as in {ast.unparse(n)}[0]"
            elif isinstance(e.type, T.Ring):
                hint = f"write {ast.unparse(n)}.stage or {ast.unparse(n)}.phase"
            elif isinstance(e.type, T.Semaphore):
                hint = "a semaphore is no number: wait(s, phase) waits for it, arrive(s) counts"
            raise self.fail(n, "TK200", f"{what} must be a number, not {e.type}", hint)
        return e

    def integer(self, n: ast.expr, what: str = "an index") -> ir.Expr:
        """A whole number that counts from 0."""
        e = self.whole(n, what)
        if isinstance(e, ir.Const) and e.value < 0:
            raise self.fail(
                n,
                "TK205",
                f"{what} is {e.value}",
                "indices count from 0 and never from the end: write A.cols - 1 for the last",
            )
        return e

    def whole(self, n: ast.expr, what: str) -> ir.Expr:
        """A whole number that may be negative."""
        e = self.number(n, what)
        if e.type.dtype.kind == "f":
            raise self.fail(
                n, "TK200", f"{what} must be a whole number, not {e.type}", "write int(x) or use //"
            )
        return self.convert(e, T.I32) if e.type == T.BOOL else e

    def condition(self, n: ast.expr) -> ir.Expr:
        e = self.number(n, "a condition")
        if e.type == T.BOOL:
            return e
        return ir.Compare(
            T.BOOL, e.loc, "!=", e, ir.Const(e.type, e.loc, 0.0 if e.type == T.F32 else 0)
        )

    def constant(self, n: ast.AST, v: Any) -> ir.Expr:
        loc = self.loc(n)
        if isinstance(v, bool):
            return ir.Const(T.BOOL, loc, v)
        if isinstance(v, int):
            for t in (T.I32, T.I64):
                if fits(v, t):
                    return ir.Const(t, loc, int(v))
            raise self.fail(
                n, "TK205", "this number does not fit 64 bits", "write a float, as in 1e20"
            )
        if isinstance(v, float):
            rounded = f32_value(v)
            if math.isinf(rounded) and not math.isinf(v):
                raise self.fail(n, "TK205", f"{v} is too large for f32", "the largest is 3.4e38")
            return ir.Const(T.F32, loc, rounded)
        if isinstance(v, DeviceName):
            if v.path in SPECIALS:
                return ir.Special(T.I32, loc, v.path)
            if v.path in SPECIAL_CALLS:
                raise self.fail(n, "TK101", f"{v.path} is a function", f"write {v.path}()")
            raise self.fail(n, "TK102", f"{v!r} is not a value", near(v.path))
        if isinstance(v, T.Type):
            raise self.fail(
                n,
                "TK101",
                f"{v} is a type, not a value",
                "give the tile a name first: t = " + ast.unparse(n),
            )
        raise self.no_value(n, v)

    def no_value(self, n: ast.AST, v: Any) -> SourceError:
        """Why a Python object that the kernel names is no value in it."""
        what, hint = f"{type(v).__name__} {str(v)[:40]!r}", ""
        if hasattr(v, "shape") and hasattr(v, "dtype"):
            what, hint = f"an array ({type(v).__name__})", "make it a parameter: x: tk.gl_fl"
        elif callable(v) and not isinstance(v, T.DType):
            what = f"the function '{getattr(v, '__name__', '?')}'"
            hint = "call it, or use another name if a variable was meant"
        elif isinstance(v, (T.DType, T.Layout)):
            what, hint = f"{v!r}", "dtypes are arguments of types and of tk.convert"
        elif isinstance(v, pytypes.ModuleType):
            what = f"the module '{v.__name__}'"
        elif isinstance(v, str):
            what, hint = f"the text {v[:40]!r}", "text stands in print and assert only"
        elif v is None:
            what, hint = "None", "compare a compile-time name with 'is None', or use a number"
        elif isinstance(n, ast.List):
            what = "a list"
            hint = (
                "numbers that a lane keeps stand in tk.reg_array(tk.f32, 4), "
                "those of the block in tk.shared_array(tk.f32, 4)"
            )
        elif isinstance(v, (tuple, list, dict)):
            what = f"a {type(v).__name__}"
            hint = "a compile-time tuple is read with compile-time indices, as in SIZES[0]"
        return self.fail(
            n,
            "TK100",
            f"{what} is not a value of the kernel language",
            hint or "numbers, tk.const parameters and kernel arguments are",
        )

    def convert(self, e: ir.Expr, t: Scalar) -> ir.Expr:
        """A number as another type; constants are folded."""
        if e.type == t:
            return e
        if isinstance(e, ir.Const):
            if t == T.F32:
                return ir.Const(t, e.loc, f32_value(float(e.value)))
            if t.dtype.kind in "iu" and e.type.dtype.kind in "iub":
                return ir.Const(t, e.loc, wrapped(int(e.value), t))
        return ir.Cast(t, e.loc, e)

    def coerce(self, n: ast.AST, e: ir.Expr, t: Scalar, what: str) -> ir.Expr:
        """Implicit conversion into a name or element: only where nothing is lost by surprise."""
        s = e.type
        if not isinstance(s, Scalar):
            hint = ""
            if isinstance(s, (RT, RV)):
                hint = "store tiles with warp.store(array, tile, (row, col))"
            raise self.fail(n, "TK200", f"{what} holds numbers ({t}), not {s}", hint)
        if isinstance(e, ir.Const) and t.dtype.kind in "iu" and s.dtype.kind in "iub":
            if not fits(int(e.value), t):
                raise self.fail(
                    n,
                    "TK205",
                    f"{e.value} does not fit {what}, which is {t}",
                    f"tk.{t.dtype.name}(x) keeps the low {t.dtype.bits} bits",
                )
            return self.convert(e, t)
        lossless = {T.I32: (T.BOOL,), T.U32: (T.BOOL, T.I32), T.I64: (T.BOOL, T.I32, T.U32)}
        if not (s == t or t == T.F32 or s in lossless.get(t, ())):
            hint = f"convert with tk.{t.dtype.name}(x)"
            if t == T.BOOL:
                hint = "compare it, as in x != 0"
            elif s == T.F32:
                hint = "write int(x) to drop the fraction"
                if what.isidentifier():
                    hint += f", or make '{what}' a float from the start (0.0)"
            raise self.fail(n, "TK121", f"{what} is {t} and cannot take {s}", hint)
        return self.convert(e, t)

    # --------------------------------------------------------------------------- syntax
    def ex_Name(self, n: ast.Name) -> ir.Expr:
        sym = self.lookup(n)
        return ir.Var(sym.type, self.loc(n), sym)

    def ex_BinOp(self, n: ast.BinOp) -> ir.Expr:
        op = SYMBOL.get(type(n.op))
        if op is None:
            hint = (
                "write x * x, or tk.exp2 for powers of 2"
                if isinstance(n.op, ast.Pow)
                else "write warp.mma_AB(acc, a, b)"
                if isinstance(n.op, ast.MatMult)
                else ""
            )
            raise self.fail(n, "TK100", f"{kind(n.op)} is not part of the kernel language", hint)
        return self.binary(n, op, self.ex(n.left), self.ex(n.right))

    def binary(self, n: ast.AST, op: str, a: ir.Expr, b: ir.Expr) -> ir.Expr:
        loc = self.loc(n)
        a, b = self.adapted(a, b)
        try:
            t = elementwise(a.type, b.type)
        except OpMismatch as e:
            raise SourceError(e.code, e.message, loc, e.hint) from None
        if not isinstance(t, Scalar):
            if op not in "+-*/":
                raise self.fail(
                    n,
                    "TK200",
                    f"'{op}' does not work on {t}",
                    "tiles take + - * / and functions such as tk.exp",
                )
            a, b = (self.convert(x, T.F32) if isinstance(x.type, Scalar) else x for x in (a, b))
            return self.fused(loc, op, a, b, t) or ir.Binary(t, loc, op, a, b)
        isf = t == T.F32
        if op == "/" and not isf:
            raise self.fail(
                n,
                "TK202",
                "'/' between whole numbers",
                "write // for the quotient rounded down, or float(a) / b",
            )
        if isf and op in ("&", "|", "^", "<<", ">>", "//", "%"):
            raise self.fail(
                n,
                "TK200",
                f"'{op}' needs whole numbers, not {a.type} and {b.type}",
                f"'{op}' binds tighter than comparisons: write (a < b) {op} (c < d), or 'and', 'or'"
                if op in "&|^"
                else "convert with int(x) first",
            )
        if isinstance(b, ir.Const):
            self.possible(n, op, b.value, 64 if a.type == T.I64 else 32)
        if a.type == b.type == T.BOOL and op in ("&", "|", "^"):
            return ir.Binary(T.BOOL, loc, op, a, b)
        if op in ("<<", ">>"):
            t = T.I32 if a.type == T.BOOL else a.type
            b = self.convert(b, T.I32) if b.type == T.BOOL else b
            assert isinstance(t, Scalar)
            return ir.Binary(t, loc, op, self.convert(a, t), b)
        a, b = self.convert(a, t), self.convert(b, t)
        return self.fused(loc, op, a, b, t) or ir.Binary(t, loc, op, a, b)

    def possible(self, n: ast.AST, op: str, b: Any, bits: int) -> None:
        if op in ("//", "%") and b == 0:
            raise self.fail(n, "TK205", f"'{op} 0' divides by zero")
        if op in ("<<", ">>") and not 0 <= b < bits:
            raise self.fail(
                n, "TK205", f"a shift by {b}", f"a number of {bits} bits shifts by 0 to {bits - 1}"
            )

    def adapted(self, a: ir.Expr, b: ir.Expr) -> tuple[ir.Expr, ir.Expr]:
        """A large literal beside a u32 is a u32, as in h * 2654435761."""
        for x, y in ((a, b), (b, a)):
            literal = isinstance(x, ir.Const) and x.type == T.I64 and y.type == T.U32
            if isinstance(x, ir.Const) and literal and fits(x.value, T.U32):
                new = ir.Const(T.U32, x.loc, x.value)
                return (new, b) if x is a else (a, new)
        return a, b

    def fused(self, loc: Loc, op: str, a: ir.Expr, b: ir.Expr, t: T.Type) -> ir.Expr | None:
        """a*b + c, c + a*b and a*b - c are rounded once, on both machines."""
        if op not in "+-" or t.dtype.kind != "f":
            return None
        if isinstance(a, ir.Binary) and a.op == "*" and a.type == t:
            return ir.Fma(t, loc, a.a, a.b, b, op == "-")
        if op == "+" and isinstance(b, ir.Binary) and b.op == "*" and b.type == t:
            return ir.Fma(t, loc, b.a, b.b, a)
        return None

    def ex_UnaryOp(self, n: ast.UnaryOp) -> ir.Expr:
        loc = self.loc(n)
        if isinstance(n.op, ast.Not):
            return ir.Unary(T.BOOL, loc, "not", self.condition(n.operand))
        a = self.ex(n.operand)
        if isinstance(n.op, ast.UAdd):
            return a
        if isinstance(n.op, ast.Invert):
            if a.type.dtype.kind not in "iu" or not isinstance(a.type, Scalar):
                raise self.fail(
                    n,
                    "TK200",
                    f"'~' needs a whole number, not {a.type}",
                    "write 'not' for conditions",
                )
            return ir.Unary(a.type, loc, "~", a)
        if isinstance(a.type, (RT, RV)):
            return ir.Unary(a.type, loc, "-", a)
        if not isinstance(a.type, Scalar):
            raise self.fail(n, "TK200", f"'-' does not work on {a.type}")
        if a.type == T.BOOL:
            a = self.convert(a, T.I32)
        return ir.Unary(a.type, loc, "-", a)

    def ex_Compare(self, n: ast.Compare) -> ir.Expr:
        odd = next((ODD_RELATIONS[type(o)] for o in n.ops if type(o) in ODD_RELATIONS), None)
        if odd is not None:
            raise self.fail(
                n,
                "TK100",
                f"'{odd}' is not part of the kernel language",
                "write == for 'is', and comparisons joined with 'or' for 'in'",
            )
        parts = [self.number(x, "a side of a comparison") for x in (n.left, *n.comparators)]
        for x, e in list(zip(n.comparators, parts[1:]))[:-1]:
            if any(_acts(y) for y in ir.walk(e)):
                raise self.fail(
                    x, "TK100", "the middle of this comparison acts twice", "give it a name first"
                )
        out: list[ir.Expr] = []
        for op, a, b in zip(n.ops, parts, parts[1:]):
            a, b = self.adapted(a, b)
            assert isinstance(a.type, Scalar)
            assert isinstance(b.type, Scalar)
            t = promote(a.type, b.type)
            if {a.type, b.type} == {T.I32, T.U32}:
                # C++ would compare -1 as 4294967295
                t = T.U32 if _nonneg_const(a) or _nonneg_const(b) else T.I64
            c = ir.Compare(
                T.BOOL, self.loc(n), RELATION[type(op)], self.convert(a, t), self.convert(b, t)
            )
            out.append(c)
        return self.joined(self.loc(n), "and", out)

    def ex_BoolOp(self, n: ast.BoolOp) -> ir.Expr:
        op = "and" if isinstance(n.op, ast.And) else "or"
        return self.joined(self.loc(n), op, [self.condition(x) for x in n.values])

    def joined(self, loc: Loc, op: str, parts: list[ir.Expr]) -> ir.Expr:
        """a and b and ..., grouped so that long chains do not nest deeply."""
        if len(parts) == 1:
            return parts[0]
        half = (len(parts) + 1) // 2
        a, b = self.joined(loc, op, parts[:half]), self.joined(loc, op, parts[half:])
        return ir.Logic(T.BOOL, loc, op, a, b)

    def ex_IfExp(self, n: ast.IfExp) -> ir.Expr:
        v = self.static(n.test)
        if v is not UNKNOWN and (v is None or isinstance(v, (int, float, str))):
            return self.ex(n.body if v else n.orelse)
        c = self.condition(n.test)
        a, b = self.adapted(*(self.number(x, "a side of if/else") for x in (n.body, n.orelse)))
        assert isinstance(a.type, Scalar)
        assert isinstance(b.type, Scalar)
        t = T.BOOL if a.type == b.type == T.BOOL else promote(a.type, b.type)
        return ir.Select(t, self.loc(n), c, self.convert(a, t), self.convert(b, t))

    def ex_Attribute(self, n: ast.Attribute) -> ir.Expr:
        base = self.ex(n.value)
        if isinstance(base.type, GL) and n.attr in DIMS:
            return ir.Dim(T.I32, self.loc(n), base, n.attr)
        if isinstance(base.type, (ST, SubST, RT)) and n.attr in ("rows", "cols"):
            return ir.Const(T.I32, self.loc(n), getattr(base.type, n.attr))
        if isinstance(base.type, T.Ring) and n.attr in ("stage", "phase"):
            return ir.RingField(T.I32, self.loc(n), base, n.attr)
        hint = ""
        if isinstance(base.type, GL):
            hint = (
                "global arrays have rows, cols, depth and batch; a 1-d array is one row: its "
                "length is A.cols"
            )
        elif isinstance(n.value, ast.Name) and n.value.id in DEVICE_HEADS:
            hint = f"'{n.value.id}' is a name of your own here and hides tklearn's: rename it"
        elif isinstance(base.type, (RT, ST, SubST)):
            hint = "tiles have rows and cols"
            if n.attr == "T":
                hint = f"write tk.transpose({ast.unparse(n.value)})"
        elif isinstance(base.type, T.Ring):
            hint = "a ring has stage, phase and advance()"
        raise self.fail(n, "TK102", f"{base.type} has no attribute '{n.attr}'", hint)

    # ----------------------------------------------------------------------- parts and calls
    def ex_Subscript(self, n: ast.Subscript) -> ir.Expr:
        return indexing.subscript(self, n)

    def ex_Call(self, n: ast.Call) -> ir.Expr:
        return calls.call(self, n)


def fits(v: int, t: Scalar) -> bool:
    """Is v a value of this type of whole numbers?"""
    bits = t.dtype.bits
    return 0 <= v < 1 << bits if t.dtype.kind == "u" else -(1 << bits - 1) <= v < 1 << bits - 1


def wrapped(v: int, t: Scalar) -> int:
    """The low bits of v as a value of this type."""
    bits = t.dtype.bits
    v &= (1 << bits) - 1
    return v - (1 << bits) if t.dtype.kind == "i" and v >> (bits - 1) else v


def _nonneg_const(e: ir.Expr) -> bool:
    return isinstance(e, ir.Const) and e.value >= 0


def _acts(e: Any) -> bool:
    """Would evaluating this twice do something twice?"""
    return isinstance(e, ir.CallDevice) or (isinstance(e, ir.Call) and e.op.effect == "atomic")
