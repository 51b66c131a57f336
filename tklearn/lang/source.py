"""From a Python function to its syntax tree, and the values known before it runs.

Knows Python source text, places and compile-time evaluation. It evaluates the tree structurally:
only names that hold numbers, dtypes, types, tuples of those, or modules with such names are
followed, and nothing with an effect is ever called.
"""

from __future__ import annotations

import ast
import builtins
import enum
import inspect
import linecache
import math
import operator
import types as pytypes
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tklearn.lang import hints
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
MATH = {"sqrt", "log", "log2", "exp", "exp2", "ceil", "floor", "pow", "sin", "cos", "tanh", "gcd"}
VALUE_TYPES = (int, float, bool, str, T.DType, T.Type, T.Layout, type(None))
MAX_BITS = 4096  # of a compile-time whole number on the way to a value
MAX_NESTING = 100  # of expressions and blocks in one another


@dataclass(frozen=True)
class FunctionSource:
    """A function's definition with line numbers of its own file."""

    node: ast.FunctionDef
    file: str
    fn: Callable

    @property
    def loc(self) -> Loc:
        return Loc(self.file, self.node.lineno, self.node.col_offset, self.node.lineno)


# A function keeps the text that it was made from, though its file may change afterwards.
_TEXTS: weakref.WeakKeyDictionary[Callable, tuple[ast.FunctionDef, str]]
_TEXTS = weakref.WeakKeyDictionary()


def source_of(fn: Callable) -> FunctionSource:
    """The syntax tree of `fn`; SourceError TK103 where the text cannot be found."""
    if not isinstance(fn, pytypes.FunctionType):
        raise _not_plain(fn, None)
    if fn not in _TEXTS:
        _TEXTS[fn] = _read(fn)
    return FunctionSource(*_TEXTS[fn], fn)


def _read(fn: pytypes.FunctionType) -> tuple[ast.FunctionDef, str]:
    file = fn.__code__.co_filename
    try:
        lines, first = inspect.getsourcelines(fn.__code__)
        file = inspect.getsourcefile(fn.__code__) or file
    except (OSError, TypeError, IndexError, SyntaxError) as e:
        raise _not_found(fn) from e
    indented = lines[0][:1].isspace()
    try:
        tree = ast.parse(("if True:\n" if indented else "") + "".join(lines))
    except (SyntaxError, ValueError):
        raise _not_plain(fn, Loc(file, first, 0, first)) from None
    node: Any = tree.body[0]
    if indented:
        node = node.body[0]
    here = isinstance(node, ast.FunctionDef) and node.name == fn.__code__.co_name
    if not here and file in ("<string>", "<stdin>"):
        raise _not_found(fn)  # since 3.13 Python keeps some such text, and not always this one
    if not isinstance(node, ast.FunctionDef):
        raise _not_plain(fn, Loc(file, first, 0, first))
    if node.name != fn.__code__.co_name:
        raise SourceError(
            "TK103",
            f"the file has changed: '{node.name}' stands where '{fn.__code__.co_name}' was",
            Loc(file, first, 0, first),
            "import the file again, or restart Python",
        )
    ast.increment_lineno(node, first - (2 if indented else 1))
    deep = _too_deep(node)
    if deep is not None:
        raise SourceError(
            "TK100",
            f"this is nested more than {MAX_NESTING} deep",
            Loc(file, deep.lineno, 0, deep.lineno),  # type: ignore[attr-defined]
            "give parts of the expression names of their own",
        )
    return node, file


def _not_found(fn: pytypes.FunctionType) -> SourceError:
    return SourceError(
        "TK103",
        f"the source text of '{fn.__name__}' cannot be found",
        hint="write the kernel in a file or in a notebook cell, "
        "not at the plain Python prompt or in exec",
    )


def _not_plain(fn: Any, loc: Loc | None) -> SourceError:
    return SourceError(
        "TK103",
        f"a kernel or helper must be a plain function (def), not {getattr(fn, '__name__', fn)!r}",
        loc,
        "lambdas, classes, methods, async functions and already marked functions cannot be one",
    )


def _too_deep(node: ast.AST) -> ast.AST | None:
    """A node with a line that lies deeper than MAX_NESTING, or None."""
    todo: list[tuple[ast.AST, int]] = [(node, 0)]
    while todo:
        n, depth = todo.pop()
        if depth > MAX_NESTING and hasattr(n, "lineno"):
            return n
        todo += [(c, depth + 1) for c in ast.iter_child_nodes(n)]
    return None


def _columns(file: str, line: int, byte_col: int) -> int:
    """ast counts columns in UTF-8 bytes; carets count characters."""
    text = linecache.getline(file, line)
    return byte_col if text.isascii() else len(text.encode()[:byte_col].decode(errors="replace"))


class Resolver:
    """Places and compile-time values of one function: parameters, closure, globals, builtins."""

    def __init__(self, src: FunctionSource, consts: dict[str, Any]) -> None:
        self.src = src
        self.consts = dict(consts)
        code = src.fn.__code__
        self.assigned = {*code.co_varnames, *code.co_cellvars}  # Python's own idea of a local name
        self.closure = _cells(src.fn)
        self.globals: dict[str, Any] = src.fn.__globals__
        self.captures: dict[tuple[str, ...], Any] = {}

    def loc(self, n: Any) -> Loc:
        f = self.src.file
        line, end = n.lineno, n.end_lineno or n.lineno
        start, stop = _columns(f, line, n.col_offset), _columns(f, end, n.end_col_offset or 0)
        return Loc(f, line, start, end, stop)

    def fail(self, n: ast.AST, code: str, message: str, hint: str = "") -> SourceError:
        return SourceError(code, message, self.loc(n), hint)

    def is_local(self, name: str) -> bool:
        return False

    def local_const(self, name: str) -> Any:
        return UNKNOWN

    def local_attribute(self, name: str, attr: str) -> Any:
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
        if n.id in self.assigned:  # a local name that has no value here
            return UNKNOWN
        for space in (self.closure, self.globals):
            if n.id in space:
                return self._captured((n.id,), space[n.id])
        return getattr(builtins, n.id, UNKNOWN)

    def _captured(self, path: tuple[str, ...], value: Any) -> Any:
        """Notes what was read, so that a later launch sees whether it has changed."""
        value = plain(value)
        if not isinstance(value, (pytypes.ModuleType, DeviceName)):
            kind = type(value)
            self.captures[path] = kind(value) if kind in (list, dict) else value
        return value

    def _static_Attribute(self, n: ast.Attribute) -> Any:
        base = self.static(n.value)
        if base is UNKNOWN and isinstance(n.value, ast.Name):
            return self.local_attribute(n.value.id, n.attr)
        if base is UNKNOWN:
            return UNKNOWN
        if isinstance(base, DeviceName):
            return UNKNOWN if n.attr.startswith("_") else getattr(base, n.attr)
        value = attribute(base, n.attr)
        if value is UNKNOWN:
            if isinstance(base, pytypes.ModuleType):
                hint = hints.lacking(base.__name__, n.attr, dir(base))
                raise self.fail(n, "TK102", f"{base.__name__} has no {n.attr}", hint)
            return UNKNOWN
        path = _dotted(n)
        return self._captured(path, value) if path else plain(value)

    def _static_BinOp(self, n: ast.BinOp) -> Any:
        a, b = self.static(n.left), self.static(n.right)
        fold = BINARY.get(type(n.op))
        if fold is None or not (_number(a) and _number(b)):
            return UNKNOWN
        if _huge(n.op, a, b):
            raise self.fail(n, "TK205", f"{ast.unparse(n)} is too large a number")
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
        foldable = isinstance(f, (pytypes.FunctionType, pytypes.BuiltinFunctionType, type)) and (
            f in T.TYPE_MAKERS
            or f in FOLDABLE
            or (getattr(f, "__module__", "") == math.__name__ and f.__name__ in MATH)
        )
        if not foldable:
            return UNKNOWN
        args = [self.static(a) for a in n.args]
        kw = {k.arg or "": self.static(k.value) for k in n.keywords}
        if (
            any(v is UNKNOWN or isinstance(v, DeviceName) for v in (*args, *kw.values()))
            or "" in kw
        ):
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
            form = f"{ast.unparse(n.func)}({_parameters(f)})" if f in T.TYPE_MAKERS else ""
            raise self.fail(n, "TK106", f"{ast.unparse(n)}: {e}", form) from None


def _parameters(f: Callable) -> str:
    """The parameters of a function as a call shows them, without their types."""
    ps = inspect.signature(f).parameters.values()
    return ", ".join(p.name + ("" if p.default is p.empty else f"={p.default!r}") for p in ps)


def _cells(fn: Callable) -> dict[str, Any]:
    """The closure of `fn`, without names that have no value yet."""
    out: dict[str, Any] = {}
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or ()):
        try:
            out[name] = cell.cell_contents
        except ValueError:
            continue
    return out


def plain(value: Any) -> Any:
    """NumPy's numbers as Python's; everything else as it is."""
    kind = type(value)
    if kind.__module__ in ("numpy", "ml_dtypes") and getattr(value, "shape", None) == ():
        return value if hasattr(value, "__setitem__") else value.item()
    return value


def attribute(base: Any, name: str) -> Any:
    """`base.name` where reading it can have no effect, or UNKNOWN."""
    if isinstance(base, (pytypes.ModuleType, enum.EnumMeta, T.Type, T.DType, T.Layout)):
        return getattr(base, name, UNKNOWN)
    try:
        value = inspect.getattr_static(base, name)
    except AttributeError:
        return UNKNOWN
    simple = isinstance(base, tuple) or isinstance(value, pytypes.MemberDescriptorType)
    if simple:  # fields of named tuples and of dataclasses with slots
        return getattr(base, name, UNKNOWN)
    return UNKNOWN if hasattr(value, "__get__") and not callable(value) else value


def _huge(op: ast.operator, a: Any, b: Any) -> bool:
    """Would folding this take long? Python's whole numbers have no end."""
    if not (isinstance(a, int) and isinstance(b, int)):
        return False
    if isinstance(op, ast.LShift):
        return b > MAX_BITS
    if isinstance(op, ast.Pow):
        return b > 0 and a.bit_length() * b > MAX_BITS
    return a.bit_length() + b.bit_length() > 2 * MAX_BITS


def _number(v: Any) -> bool:
    return v is not UNKNOWN and isinstance(v, (int, float))


def _dotted(n: ast.AST) -> tuple[str, ...] | None:
    if isinstance(n, ast.Name):
        return (n.id,)
    if isinstance(n, ast.Attribute):
        head = _dotted(n.value)
        return (*head, n.attr) if head else None
    return None
