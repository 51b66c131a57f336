"""Expressions of the IR as C++ text, with no more parentheses than C++ needs.

This file knows C++ operators, literals and the spellings of the headers (include/tk). It must not
know statements; emit.py prints those.
"""

from __future__ import annotations

import math
import re
import struct
import textwrap
from collections.abc import Callable, Iterable
from typing import Any

from tklearn.lang import ir
from tklearn.lang import types as T

# How tightly C++ binds; a higher number binds tighter.
PRIMARY, UNARY, MUL, ADD, SHIFT, REL, EQ, BAND, XOR, BOR, AND, OR, COND = range(16, 3, -1)
PREC = {
    "*": MUL, "/": MUL, "%": MUL, "//": MUL, "+": ADD, "-": ADD, "<<": SHIFT, ">>": SHIFT,
    "<": REL, "<=": REL, ">": REL, ">=": REL, "==": EQ, "!=": EQ,
    "&": BAND, "^": XOR, "|": BOR, "and": AND, "or": OR,
}  # fmt: skip
# Legal without parentheses, but compilers warn: && inside ||, a sum shifted, bit operators mixed.
CLARIFY = {
    "or": {"and"}, "<<": {"+", "-"}, ">>": {"+", "-"},
    "&": {"+", "-", "<<", ">>"}, "^": {"+", "-", "<<", ">>", "&"},
    "|": {"+", "-", "<<", ">>", "&", "^"},
}  # fmt: skip
NARROW = (T.bf16, T.f16, T.e4m3, T.e5m2)
# Compile-time arguments that the headers take as template arguments, not in parentheses.
TEMPLATE_ARGS = {
    "convert": ("dtype",),
    "wait_group": ("n",),
    "tma.store_async_wait": ("n",),
    "tma.store_async_read_wait": ("n",),
    "warpgroup.mma_async_wait": ("n",),
    "warpgroup.increase_registers": ("n",),
    "warpgroup.decrease_registers": ("n",),
    **{
        f"warpgroup.{m}_A{'t' * ta}B{'t' * tb}": ("fence", "commit")
        for m in ("mm", "mma") for ta in (0, 1) for tb in (0, 1)
    },
}  # fmt: skip
# Arguments that are left out where they are what the headers take anyway.
LEFT_OUT = {("arrive", "count"): 1}
_CAST = {"f32": "float", "i32": "int", "u32": "unsigned", "i64": "i64", "u8": "u8"}
_FROM_FLOAT = {"i32": "to_i32", "u32": "to_u32", "i64": "to_i64"}

Text = tuple[str, int]  # C++ and how tightly its outermost operator binds


def _bits(v: float) -> bytes | None:
    try:
        return struct.pack("<f", v)
    except OverflowError:
        return None


def f32_text(v: float) -> str:
    """The shortest C++ literal that is this float32."""
    if math.isnan(v):
        return "NAN"
    if math.isinf(v):
        return "INFINITY" if v > 0 else "-INFINITY"
    bits = _bits(v)
    if bits is None:  # beyond the largest float32
        return "INFINITY" if v > 0 else "-INFINITY"
    short = next(s for p in range(1, 18) if _bits(float(s := f"{v:.{p}g}")) == bits)
    mantissa, _, exponent = short.partition("e")
    if exponent and -5 < int(exponent) < 10:
        mantissa, exponent = f"{float(short):.1f}", ""
    if "." not in mantissa and not exponent:
        mantissa += ".0"
    return mantissa + (f"e{int(exponent)}" if exponent else "") + "f"


def literal(v: Any, dtype: T.DType) -> Text:
    """A compile-time value of a number type."""
    if dtype.kind == "f":
        text = f32_text(float(v))
    elif dtype is T.bool_ or dtype == T.bool_:
        text = "true" if v else "false"
    else:
        suffix = {"u32": "u", "i64": "LL"}.get(dtype.name, "")
        lowest = {"i32": -(2**31), "i64": -(2**63)}.get(dtype.name)
        if v == lowest:  # C++ has no literal for it: -2147483648 is minus a long
            return f"-{-(v + 1)}{suffix} - 1", ADD
        text = f"{int(v)}{suffix}"
    return text, UNARY if text.startswith("-") else PRIMARY


def nonneg(e: ir.Expr) -> bool:
    """Is this integer provably not negative?"""
    if isinstance(e, ir.Const):
        return e.value >= 0
    if isinstance(e.type, T.Scalar) and e.type.dtype.kind == "u":
        return True
    return e.nonneg or (isinstance(e, ir.Var) and e.sym.nonneg)


def is_index(e: ir.Special) -> bool:
    """threadIdx.x and the like, which are objects in C++, as against laneid()."""
    return e.name.partition(".")[0] in ("threadIdx", "blockIdx", "blockDim", "gridDim")


def _left_out(op: str, param: str, a: Any) -> bool:
    usual = LEFT_OUT.get((op, param))
    return usual is not None and isinstance(a, ir.Const) and a.value == usual


def type_text(t: T.Type) -> str:
    """A type as it is written in a declaration."""
    return "coord" if isinstance(t, T.Coord) else t.cpp


def pure(e: Any) -> bool:
    """May this be evaluated twice, or not at all?"""
    return not any(
        isinstance(x, ir.CallDevice) or (isinstance(x, ir.Call) and x.op.effect != "pure")
        for x in ir.walk(e)
    )


class Expressions:
    """Prints the expressions of one C++ function."""

    def __init__(
        self,
        name: Callable[[ir.Sym], str],
        function: Callable[[ir.Function], str],
    ) -> None:
        self._name, self._function = name, function

    def __call__(self, e: ir.Expr, at_least: int = 0) -> str:
        """The text of a value, in parentheses if it binds less tightly than `at_least`."""
        return self._wrap(self._value(e), at_least)

    def place(self, e: ir.Expr, at_least: int = 0) -> str:
        """The text of something that is stored to, or whose address is taken."""
        return self._wrap(self._place(e), at_least)

    @staticmethod
    def _wrap(text: Text, at_least: int) -> str:
        return text[0] if text[1] >= at_least else f"({text[0]})"

    def _value(self, e: ir.Expr) -> Text:
        method = getattr(self, f"_{type(e).__name__.lower()}", None)
        assert method is not None, f"no C++ for {type(e).__name__}"
        text: Text = method(e)
        if isinstance(e, (ir.Index, ir.TileReg)) and isinstance(e.type, T.Scalar):
            held = e.base.type.dtype if isinstance(e, ir.Index) else e.tile.type.dtype
            if held in NARROW and e.type.dtype not in NARROW:
                return f"float({text[0]})", PRIMARY
            if held.kind != e.type.dtype.kind or held.bits > e.type.dtype.bits:
                return f"{_CAST.get(e.type.dtype.name, e.type.cpp)}({text[0]})", PRIMARY
        return text

    def _place(self, e: ir.Expr) -> Text:
        assert isinstance(e, (ir.Var, ir.Index, ir.TileReg, ir.VecIndex)), type(e).__name__
        return getattr(self, f"_{type(e).__name__.lower()}")(e)  # type: ignore[no-any-return]

    # ---------------------------------------------------------------- names, numbers, operators
    def _const(self, e: ir.Const) -> Text:
        return literal(e.value, e.type.dtype)

    def _var(self, e: ir.Var) -> Text:
        return self._name(e.sym), PRIMARY

    def _special(self, e: ir.Special) -> Text:
        if is_index(e):
            return e.name, PRIMARY
        return f"{e.name.replace('.', '::')}()", PRIMARY

    def _ringfield(self, e: ir.RingField) -> Text:
        return f"{self(e.ring, PRIMARY)}.{e.name}", PRIMARY

    def _tilesexpr(self, e: ir.TilesExpr) -> Text:
        return ", ".join(map(self, e.items)), 0

    def _unary(self, e: ir.Unary) -> Text:
        a = self(e.a, UNARY)
        if e.op == "-" and a.startswith("-"):
            a = f"({a})"
        return ("!" if e.op == "not" else e.op) + a, UNARY

    def _binary(self, e: ir.Binary) -> Text:
        if e.op in ("//", "%") and not (nonneg(e.a) and nonneg(e.b)):
            f = "floordiv" if e.op == "//" else "floormod"
            return f"{f}({self(e.a)}, {self(e.b)})", PRIMARY
        return self._infix("/" if e.op == "//" else e.op, PREC[e.op], e.a, e.b)

    def _infix(self, op: str, prec: int, a: ir.Expr, b: ir.Expr) -> Text:
        return f"{self._operand(a, op, prec)} {op} {self._operand(b, op, prec + 1)}", prec

    def _operand(self, e: ir.Expr, inside: str, at_least: int) -> str:
        mixed = isinstance(e, (ir.Binary, ir.Logic)) and e.op in CLARIFY.get(inside, ())
        return self(e, PRIMARY if mixed else at_least)

    def _compare(self, e: ir.Compare) -> Text:
        return self._infix(e.op, PREC[e.op], e.a, e.b)

    def _logic(self, e: ir.Logic) -> Text:
        prec = PREC[e.op]  # && and || give the same value grouped either way
        a, b = (self._operand(x, e.op, prec) for x in (e.a, e.b))
        return f"{a} {'&&' if e.op == 'and' else '||'} {b}", prec

    def _select(self, e: ir.Select) -> Text:
        return f"{self(e.cond, OR)} ? {self(e.a, COND)} : {self(e.b, COND)}", COND

    def _fma(self, e: ir.Fma) -> Text:
        return f"{'fms' if e.minus else 'fma'}({self(e.a)}, {self(e.b)}, {self(e.c)})", PRIMARY

    def _cast(self, e: ir.Cast) -> Text:
        to, a = e.type, e.a
        if not isinstance(to, T.Scalar):
            return f"convert<{to.dtype.cpp}>({self(a)})", PRIMARY
        assert isinstance(a.type, T.Scalar)
        if isinstance(a, ir.Const) and to.dtype not in NARROW and a.type.dtype.kind != "f":
            return literal(a.value, to.dtype)
        if to.dtype == a.type.dtype:
            return self._value(a)
        if to.dtype == T.bool_:
            return f"{self(a, EQ)} != {literal(0, a.type.dtype)[0]}", EQ
        if a.type.dtype.kind == "f" and to.dtype.kind != "f":
            return f"{_FROM_FLOAT[to.dtype.name]}({self(a)})", PRIMARY
        return f"{_CAST.get(to.dtype.name, to.cpp)}({self(a)})", PRIMARY

    # --------------------------------------------------------------------- arrays and registers
    def _subscript(self, idx: list[ir.Expr]) -> str:
        parts = [self(i) for i in idx]
        return parts[0] if len(parts) == 1 else "{" + ", ".join(parts) + "}"

    def _index(self, e: ir.Index) -> Text:
        base = self(e.base, PRIMARY)
        if isinstance(e.base.type, T.Shared):
            return base + "".join(f"[{self(i)}]" for i in e.idx), PRIMARY
        return f"{base}[{self._subscript(e.idx)}]", PRIMARY

    def _vecindex(self, e: ir.VecIndex) -> Text:
        return f"vec_load<{e.n}>({self(e.base)}, {self._subscript(e.idx)})", PRIMARY

    def vec_store(self, e: ir.VecIndex, value: str) -> str:
        """A store of n neighbours."""
        return f"vec_store<{e.n}>({self(e.base)}, {self._subscript(e.idx)}, {value})"

    def _tilereg(self, e: ir.TileReg) -> Text:
        return f"{self(e.tile, PRIMARY)}.reg({e.i})", PRIMARY

    def _dim(self, e: ir.Dim) -> Text:
        return f"{self(e.base, PRIMARY)}.{e.name}()", PRIMARY

    def _subtile(self, e: ir.Subtile) -> Text:
        t = e.type
        assert isinstance(t, T.SubST)
        return f"subtile<{t.rows}, {t.cols}>({self(e.base)}, {{{self(e.i)}, {self(e.j)}}})", PRIMARY

    def _coordexpr(self, e: ir.CoordExpr) -> Text:
        return "{" + ", ".join(map(self, e.items)) + "}", PRIMARY

    def _tupleexpr(self, e: ir.TupleExpr) -> Text:
        items = [self(i) for i in e.items]
        if e.type.dtype.kind == "f" and e.type.dtype.itemsize == 1:  # fp8: no implicit conversion
            items = [f"{e.type.dtype.cpp}({i})" for i in items]
        return f"{e.type.cpp}{{{', '.join(items)}}}", PRIMARY

    # ------------------------------------------------------------------------------------ calls
    def _call(self, e: ir.Call) -> Text:
        text = self.operation(e.op, e.args)
        whole = not e.op.intrinsic or re.fullmatch(r"[\w:]+\([^()]*\)", text)
        return text, PRIMARY if whole else 0

    def operation(self, op: Any, args: list[Any]) -> str:
        """A row of the op table: its C++ spelling with all arguments written."""
        if op.intrinsic:
            return self._pasted(op, args)
        template: list[str] = []
        plain: list[str] = []
        given = list(zip(op.params, args, strict=False))
        in_template = TEMPLATE_ARGS.get(op.name, ())
        last = max((i for i, (p, a) in enumerate(given) if a != p.default), default=-1)
        for i, (param, a) in enumerate(given):
            if a is None or _left_out(op.name, param.name, a):
                continue
            if param.name in in_template and i > last:
                continue  # it and all that follow are the defaults
            if (op.name, param.name) == ("warp.ldmatrix", "trans"):
                plain += ["trans"] if a else []
                continue
            text = self._argument(param.role, a)
            (template if param.name in in_template else plain).append(text)
        angled = f"<{', '.join(template)}>" if template else ""
        return f"{op.cpp}{angled}({', '.join(plain)})"

    def _pasted(self, op: Any, args: list[Any]) -> str:
        """The learner's own CUDA, with the arguments in place of {their names}."""
        given = dict(zip((p.name for p in op.params), args, strict=True))
        text = textwrap.dedent(op.intrinsic[0]).strip().removesuffix(";")

        def argument(m: re.Match[str]) -> str:
            a = given[m[1]]
            alone = text[: m.start()].rstrip()[-1:] in ("(", ",", "") and text[m.end() :].lstrip()[
                :1
            ] in (")", ",", "")
            if isinstance(a, ir.Expr) and not isinstance(a, ir.Special) and not alone:
                return self(a, PRIMARY)
            return self._argument("src", a)

        return (
            re.sub(r"\{(" + "|".join(map(re.escape, given)) + r")\}", argument, text)
            if given
            else text
        )

    def _argument(self, role: str, a: Any) -> str:
        if isinstance(a, ir.Special) and is_index(a) and role != "coord":
            return f"int({self(a)})"  # threadIdx.x is an object: templates would take its own type
        if isinstance(a, ir.Expr):
            is_place = role == "ref" or (role in ("dst", "acc") and not isinstance(a, ir.Subtile))
            return self.place(a) if is_place else self(a)
        if isinstance(a, T.DType):
            return a.cpp
        if isinstance(a, T.Layout):
            return a.name
        if isinstance(a, bool):
            return literal(a, T.bool_)[0]
        return literal(a, T.f32 if isinstance(a, float) else T.i32)[0]

    def _calldevice(self, e: ir.CallDevice) -> Text:
        return f"{self._function(e.fn)}({', '.join(map(self, e.args))})", PRIMARY


def changes(
    body: Iterable[ir.Stmt], known: dict[ir.Function, set[ir.Sym]] | None = None
) -> set[ir.Sym]:
    """The names that statements may give another value; what memory holds is not a name's value.

    `known`: the answer for helpers already looked into.
    """
    known = {} if known is None else known
    found: set[ir.Sym] = set()
    for s in ir.walk(list(body)):
        targets: list[Any] = []
        if isinstance(s, (ir.Assign, ir.AugAssign)):
            targets = [s.target]
        elif isinstance(s, ir.Swap):
            targets = s.targets
        elif isinstance(s, ir.Advance):
            targets = [s.ring]
        elif isinstance(s, ir.Do):
            pairs = zip(s.op.params, s.args, strict=False)
            targets = [a for p, a in pairs if s.op.intrinsic or p.role in ("dst", "acc")]
        elif isinstance(s, ir.CallDevice):
            if s.fn not in known:
                known[s.fn] = changes(s.fn.body, known)
            written = known[s.fn]
            targets = [a for p, a in zip(s.fn.params, s.args, strict=False) if p in written]
        for t in targets:
            while isinstance(t, (ir.Index, ir.TileReg)):
                t = t.tile if isinstance(t, ir.TileReg) else t.base
            if isinstance(t, ir.Var) and not isinstance(t.type, T.REF_TYPES):
                found.add(t.sym)
    return found
