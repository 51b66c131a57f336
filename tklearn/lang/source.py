"""From a Python function to its syntax tree, and the values known before it runs.

Knows Python source text, places and compile-time evaluation. It evaluates the tree structurally:
only names that hold numbers, dtypes, types, tuples of those, or modules with such names are followed,
and nothing with an effect is ever called.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import linecache
import math
import operator
import types as pytypes
from dataclasses import dataclass
from typing import Any, Callable

from tklearn.lang import types as T
from tklearn.lang.errors import Loc, SourceError
from tklearn.lang.names import DeviceName


class _Unknown:
    def __bool__(self) -> bool:
        raise AssertionError("test with `is UNKNOWN`")


UNKNOWN = _Unknown()
BINARY: dict[type, Callable] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
}
UNARY: dict[type, Callable] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
    ast.Invert: operator.invert,
}
COMPARE: dict[type, Callable] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}
FOLDABLE = {int, float, bool, abs, min, max, len, round, sum}
VALUE_TYPES = (int, float, bool, str, T.DType, T.Type, T.Layout, type(None))


@dataclass(frozen=True)
class FunctionSource:
    """A function's definition with line numbers of its own file."""

    node: ast.FunctionDef
    file: str
    fn: Callable

    @property
    def loc(self) -> Loc:
        return Loc(self.file, self.node.lineno, self.node.col_offset, self.node.lineno)


def source_of(fn: Callable) -> FunctionSource:
    """The syntax tree of `fn`; SourceError TK103 where the text cannot be found."""
    try:
        lines, first = inspect.getsourcelines(fn)
        file = inspect.getsourcefile(fn) or fn.__code__.co_filename
    except (OSError, TypeError) as e:
        raise SourceError(
            "TK103",
            f"the source text of '{getattr(fn, '__name__', fn)}' cannot be found",
            hint="write the kernel in a file or in a notebook cell, not at the plain Python prompt or in exec",
        ) from e
    indented = lines[0][:1].isspace()
    tree = ast.parse(("if True:\n" if indented else "") + "".join(lines))
    node: Any = tree.body[0]
    if indented:
        node = node.body[0]
    if not isinstance(node, ast.FunctionDef):
        raise SourceError(
            "TK103",
            "a kernel must be a plain function (def)",
            Loc(file, first, 0, first),
            "lambdas, async functions and classes cannot be kernels",
        )
    ast.increment_lineno(node, first - (2 if indented else 1))
    return FunctionSource(node, file, fn)


def _columns(file: str, line: int, byte_col: int) -> int:
    """ast counts columns in UTF-8 bytes; carets count characters."""
    text = linecache.getline(file, line)
    return byte_col if text.isascii() else len(text.encode()[:byte_col].decode(errors="replace"))


class Resolver:
    """Places and compile-time values of one function: parameters, closure, globals, builtins."""

    def __init__(self, src: FunctionSource, consts: dict[str, Any]) -> None:
        self.src = src
        self.consts = dict(consts)
        closure = inspect.getclosurevars(src.fn).nonlocals if src.fn.__closure__ else {}
        self.closure: dict[str, Any] = dict(closure)
        self.globals: dict[str, Any] = src.fn.__globals__
        self.captures: dict[tuple[str, ...], Any] = {}

    def loc(self, n: ast.AST) -> Loc:
        f = self.src.file
        line, end = n.lineno, n.end_lineno or n.lineno  # type: ignore[attr-defined]
        return Loc(
            f,
            line,
            _columns(f, line, n.col_offset),
            end,  # type: ignore[attr-defined]
            _columns(f, end, n.end_col_offset or 0),
        )  # type: ignore[attr-defined]

    def fail(self, n: ast.AST, code: str, message: str, hint: str = "") -> SourceError:
        return SourceError(code, message, self.loc(n), hint)

    def is_local(self, name: str) -> bool:
        raise NotImplementedError

    def local_const(self, name: str) -> Any:
        return UNKNOWN

    def static(self, n: ast.AST) -> Any:
        """The compile-time value of an expression, or UNKNOWN."""
        method = getattr(self, "_static_" + type(n).__name__, None)
        return method(n) if method else UNKNOWN

    def _static_Constant(self, n: ast.Constant) -> Any:
        return n.value

    def _static_Name(self, n: ast.Name) -> Any:
        if self.is_local(n.id):
            return self.local_const(n.id)
        if n.id in self.consts:
            return self.consts[n.id]
        for space in (self.closure, self.globals):
            if n.id in space:
                return self._captured((n.id,), space[n.id])
        return getattr(builtins, n.id, UNKNOWN)

    def _captured(self, path: tuple[str, ...], value: Any) -> Any:
        if isinstance(value, (*VALUE_TYPES, tuple)):
            self.captures[path] = value
        return value

    def _static_Attribute(self, n: ast.Attribute) -> Any:
        base = self.static(n.value)
        if base is UNKNOWN:
            return UNKNOWN
        if isinstance(base, DeviceName):
            return getattr(base, n.attr)
        if not hasattr(base, n.attr):
            if isinstance(base, pytypes.ModuleType):
                raise self.fail(n, "TK102", f"{base.__name__} has no {n.attr}")
            return UNKNOWN
        value = getattr(base, n.attr)
        path = _dotted(n)
        return self._captured(path, value) if path else value

    def _static_BinOp(self, n: ast.BinOp) -> Any:
        a, b = self.static(n.left), self.static(n.right)
        fold = BINARY.get(type(n.op))
        if fold is None or not (_number(a) and _number(b)):
            return UNKNOWN
        try:
            return fold(a, b)
        except (ArithmeticError, TypeError, ValueError) as e:
            raise self.fail(n, "TK205", f"{ast.unparse(n)}: {e}") from None

    def _static_UnaryOp(self, n: ast.UnaryOp) -> Any:
        a = self.static(n.operand)
        if not _number(a) or (isinstance(n.op, ast.Invert) and not isinstance(a, int)):
            return UNKNOWN
        return UNARY[type(n.op)](a)

    def _static_Compare(self, n: ast.Compare) -> Any:
        values = [self.static(x) for x in (n.left, *n.comparators)]
        if any(v is UNKNOWN or not isinstance(v, VALUE_TYPES) for v in values):
            return UNKNOWN
        for op, a, b in zip(n.ops, values, values[1:]):
            f = COMPARE.get(type(op))
            if f is None:
                return UNKNOWN
            try:
                if not f(a, b):
                    return False
            except TypeError as e:
                raise self.fail(n, "TK105", f"{ast.unparse(n)}: {e}") from None
        return True

    def _static_BoolOp(self, n: ast.BoolOp) -> Any:
        stop = isinstance(n.op, ast.Or)
        value: Any = not stop
        for x in n.values:
            value = self.static(x)
            if not (_number(value) or value is None or isinstance(value, str)):
                return UNKNOWN
            if bool(value) == stop:
                return value
        return value

    def _static_IfExp(self, n: ast.IfExp) -> Any:
        test = self.static(n.test)
        if not _number(test):
            return UNKNOWN
        return self.static(n.body if test else n.orelse)

    def _static_Tuple(self, n: ast.Tuple) -> Any:
        values = [self.static(x) for x in n.elts]
        return (
            UNKNOWN
            if any(v is UNKNOWN or isinstance(v, DeviceName) for v in values)
            else tuple(values)
        )

    _static_List = _static_Tuple

    def _static_Subscript(self, n: ast.Subscript) -> Any:
        base, i = self.static(n.value), self.static(n.slice)
        if base is UNKNOWN or i is UNKNOWN or not isinstance(base, (tuple, list, dict, str)):
            return UNKNOWN
        try:
            return base[i]
        except (LookupError, TypeError) as e:
            raise self.fail(n, "TK105", f"{ast.unparse(n)}: {type(e).__name__}: {e}") from None

    def _static_Call(self, n: ast.Call) -> Any:
        f = self.static(n.func)
        foldable = (
            f in T.TYPE_MAKERS or f in FOLDABLE or getattr(f, "__module__", "") == math.__name__
            if isinstance(f, (pytypes.FunctionType, pytypes.BuiltinFunctionType, type))
            else False
        )
        if not foldable:
            return UNKNOWN
        args = [self.static(a) for a in n.args]
        kw = {k.arg: self.static(k.value) for k in n.keywords}
        if any(v is UNKNOWN for v in (*args, *kw.values())) or None in kw:
            if f in T.TYPE_MAKERS:
                bad = next((a for a, v in zip(n.args, args) if v is UNKNOWN), n)
                raise self.fail(
                    bad,
                    "TK105",
                    f"{ast.unparse(bad)} must be known at compile time",
                    "use numbers, tk.const parameters or module constants",
                )
            return UNKNOWN
        try:
            return f(*args, **kw)
        except SourceError as e:
            raise SourceError(e.code, e.message, self.loc(n), e.hint) from None
        except (TypeError, ValueError, ArithmeticError) as e:
            raise self.fail(n, "TK106", f"{ast.unparse(n)}: {e}") from None


def _number(v: Any) -> bool:
    return v is not UNKNOWN and isinstance(v, (int, float))


def _dotted(n: ast.AST) -> tuple[str, ...] | None:
    if isinstance(n, ast.Name):
        return (n.id,)
    if isinstance(n, ast.Attribute):
        head = _dotted(n.value)
        return (*head, n.attr) if head else None
    return None
