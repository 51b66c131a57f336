"""A learner's answer as plain data: source text of kernels, constants, an order, predictions.

Two ways in: from the objects of a page (`live`) and from a notebook's file, of which nothing is
executed (`from_file`). One way out: `rebuild` makes kernels of the text again, in a namespace of
its own, where every name is tklearn's or a constant. So what a notebook did to Python, NumPy or
tklearn stays in the notebook. Constants are followed by the language's own rules (lang/source.py):
numbers, text, dtypes, types, tuples of those, arithmetic on them; nothing is called.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import json
import linecache
import math
import textwrap
import types as pytypes
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy

import tklearn
from tklearn.kernel import Kernel, device, kernel
from tklearn.lang import types as T
from tklearn.lang.calls import DeviceFunction
from tklearn.lang.errors import TkError
from tklearn.lang.names import DeviceName
from tklearn.lang.source import UNKNOWN, FunctionSource, Resolver, plain

MODULES = {"tklearn": tklearn, "math": math, "numpy": numpy, "ml_dtypes": ml_dtypes}
LONGEST = 100_000  # characters of a cell, and of all pieces of an answer
TK = "_tklearn"  # a name for tklearn in the texts of constants


class Refused(Exception):
    """An answer that cannot be taken; its text is for the learner."""


@dataclass(frozen=True)
class Piece:
    """A function's text. line: where it begins in its cell; cell: how that is called in messages;
    names: what it reads from outside."""

    name: str
    kind: str  # "kernel" or "device"
    text: str
    line: int
    cell: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class Answer:
    """What a learner answers to one item, as data that JSON can hold.

    Attributes:
        item: its id. kernels: the item's name of a kernel -> its piece. pieces: by name.
        constants: name -> text of its value. imports: name -> "tklearn.warp" and the like.
        missing: names that a piece reads and whose value is not plain.
        order: of an Order. first, latest: predictions. seed: the learner's.
        problem: why there is nothing to check, "" otherwise.
    """

    item: str
    kernels: dict[str, str] = field(default_factory=dict)
    pieces: dict[str, Piece] = field(default_factory=dict)
    constants: dict[str, str] = field(default_factory=dict)
    imports: dict[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    order: tuple[str, ...] | None = None
    first: dict[str, Any] = field(default_factory=dict)
    latest: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    problem: str = ""

    def json(self) -> dict[str, Any]:
        """The same as dictionaries and lists."""
        return asdict(self)

    @staticmethod
    def of(data: Mapping[str, Any]) -> Answer:
        """What `json` made. Errors: TypeError, KeyError for anything else."""
        pieces = {n: Piece(**{**p, "names": tuple(p["names"])}) for n, p in data["pieces"].items()}
        order = None if data["order"] is None else tuple(data["order"])
        missing = tuple(data["missing"])
        return Answer(**{**data, "pieces": pieces, "order": order, "missing": missing})

    def text(self) -> str:
        """What the learner wrote, to keep and to compare."""
        constants = [f"{n} = {v}" for n, v in sorted(self.constants.items())]
        parts = ["\n".join(constants), *(p.text.rstrip() for p in self.pieces.values())]
        if self.order is not None:
            parts.append(f"order = {list(self.order)}")
        return "\n\n\n".join(p for p in parts if p)


# ------------------------------------------------------------------------------- values and texts
def written(value: Any) -> str | None:
    """The text of a compile-time value, None for anything else. Exact types only."""
    value = plain(value)
    kind = type(value)
    if kind in (int, bool, str, type(None)):
        return repr(value)
    if kind is float:
        return repr(value) if math.isfinite(value) else f"float('{value}')"
    if kind in (tuple, list):
        parts = [written(v) for v in value]
        return None if None in parts else f"({''.join(f'{p}, ' for p in parts)})"
    if kind in (T.DType, T.Layout):
        return f"{TK}.{'bool_' if value.name == 'bool' else value.name}"
    if kind is T.RT:
        shape = f"{value.rows}, {value.cols}"
        return f"{TK}.rt({written(value.dtype)}, {shape}, {written(value.layout)})"
    if kind is T.ST:
        return (
            f"{TK}.st({written(value.dtype)}, {value.rows}, {value.cols}, "
            f"swizzle={value.swizzle}, pad={value.pad})"
        )
    return None


def value_of(text: str) -> Any:
    """What `written` wrote, again; UNKNOWN for anything else."""
    try:
        return Space({TK: tklearn}).value(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return UNKNOWN


def imported(value: Any) -> str | None:
    """ "tklearn.warp" and the like for what a kernel may read of tklearn and modules, or None."""
    if isinstance(value, pytypes.ModuleType):
        return value.__name__ if value.__name__ in MODULES else None
    if type(value) is DeviceName:
        return f"tklearn.{value.path}"
    if value is None or type(value) in (int, float, bool, str, tuple, list):
        return None
    for module, names in ((tklearn, tklearn.__all__), (math, dir(math))):
        found = next((n for n in names if vars(module).get(n) is value), None)
        if found:
            return f"{module.__name__}.{found}"
    return None


def _resolve(dotted: str) -> Any:
    """What `imported` named; None where there is no such thing."""
    head, *rest = dotted.split(".")
    value: Any = MODULES.get(head)
    for name in rest:
        if name.startswith("_") or (value is tklearn and name not in tklearn.__all__):
            return None
        value = getattr(value, name, None)
    return value


class Space(Resolver):
    """Names with values, and what expressions of them mean."""

    def __init__(self, values: dict[str, Any]) -> None:
        fn = pytypes.FunctionType((lambda: None).__code__, values)
        node = ast.parse("def _(): pass").body[0]
        assert isinstance(node, ast.FunctionDef)
        super().__init__(FunctionSource(node, "<constants>", fn), {})

    def value(self, n: ast.AST) -> Any:
        """The value of an expression, or UNKNOWN."""
        try:
            return self.static(n)
        except (TkError, RecursionError):
            return UNKNOWN


def _reads(node: ast.FunctionDef) -> tuple[str, ...]:
    """The names that a function takes from outside."""
    every = [a for a in ast.walk(node.args) if isinstance(a, ast.arg)]
    own = {a.arg for a in every}
    loads = []
    for n in ast.walk(node):
        if isinstance(n, ast.Name):
            if isinstance(n.ctx, ast.Load):
                loads.append(n.id)
            else:
                own.add(n.id)
    outside = [*node.decorator_list, *node.args.defaults, *node.args.kw_defaults]
    outside += [a.annotation for a in every]
    always = {n.id for e in outside if e for n in ast.walk(e) if isinstance(n, ast.Name)}
    return tuple(dict.fromkeys(n for n in loads if n not in own or n in always))


def _parsed(text: str) -> ast.FunctionDef | None:
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return body[0] if len(body) == 1 and isinstance(body[0], ast.FunctionDef) else None


# ---------------------------------------------------------------------------------- from the page
def live(item: str, kernels: Mapping[str, Any]) -> Answer:
    """The answer that the kernels of a page are. kernels: the item's name -> the object."""
    page = _Page()
    for name, k in kernels.items():
        if type(k) is not Kernel:
            what = type(k).__name__
            problem = f"'{name}' is not a kernel but {what}: write @tk.kernel(...) above the def"
            return Answer(item, problem=problem)
        try:
            page.gather(k.fn, "kernel")
        except Refused as e:
            return Answer(item, problem=str(e))
    return Answer(
        item,
        {name: k.fn.__name__ for name, k in kernels.items()},
        page.pieces,
        page.constants,
        page.imports,
        tuple(sorted(page.missing)),
    )


class _Page:
    """Functions of a page and what they read."""

    def __init__(self) -> None:
        self.pieces: dict[str, Piece] = {}
        self.constants: dict[str, str] = {}
        self.imports: dict[str, str] = {}
        self.missing: set[str] = set()
        self.cells: dict[str, str] = {}  # file name -> how it is called in messages

    def gather(self, fn: Any, kind: str) -> None:
        """A function's text and everything it reads. Errors: Refused."""
        if not isinstance(fn, pytypes.FunctionType):
            raise Refused("a kernel is a plain function: def ... below @tk.kernel")
        try:
            lines, first = inspect.getsourcelines(fn.__code__)
        except (OSError, TypeError, IndexError, SyntaxError):
            raise Refused(
                f"the text of '{fn.__name__}' cannot be found: write it in a cell or a file"
            ) from None
        text = textwrap.dedent("".join(lines))
        node = _parsed(text)
        if node is None or node.name != fn.__name__:
            raise Refused(f"the text of '{fn.__name__}' is not that of a function of this name")
        file = fn.__code__.co_filename
        cell = self.cells.setdefault(file, f"<ipython-input-{len(self.cells)}>")
        names = _reads(node)
        self.pieces[fn.__name__] = Piece(node.name, kind, text, first, cell, names)
        inner = dict(zip(fn.__code__.co_freevars, fn.__closure__ or ()))
        for name in names:
            if name in inner:
                try:
                    self._note(name, inner[name].cell_contents)
                except ValueError:  # no value yet
                    continue
            elif name in fn.__globals__:  # else Python's own, or the language will not find it
                self._note(name, fn.__globals__[name])

    def _note(self, name: str, value: Any) -> None:
        """One name that a piece reads."""
        if type(value) is DeviceFunction:
            if value.fn.__name__ not in self.pieces:
                self.gather(value.fn, "device")
        elif (dotted := imported(value)) is not None:
            self.imports[name] = dotted
        elif (text := written(value)) is not None:
            self.constants[name] = text
        else:
            self.missing.add(name)


# ---------------------------------------------------------------------------------- from a file
def code_cells(path: Path) -> list[tuple[str, str]]:
    """(how it is called in messages, text) of each code cell of a notebook, or of one .py file.

    Errors: Refused for a file that is neither.
    """
    try:
        raw = path.read_bytes()
        if len(raw) > 50_000_000:
            raise Refused(f"{path.name} is larger than 50 MB")
        if path.suffix == ".py":
            return [(path.name, raw.decode())]
        book = json.loads(raw)
        cells = [(c["cell_type"], c["source"]) for c in book["cells"]]
    except OSError as e:
        raise Refused(f"{path.name} cannot be read: {e.strerror}") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Refused(f"{path.name} is not a notebook that can be read") from None
    out = []
    for i, (kind, source) in enumerate(cells):
        text = source if isinstance(source, str) else "".join(map(str, source))
        if kind == "code":
            out.append((f"cell {i + 1} of {path.name}", text))
    return out


@dataclass
class Notebook:
    """What the code of a notebook says, read from top to bottom without running it."""

    values: dict[str, Any] = field(default_factory=lambda: {TK: tklearn})  # Piece, value, UNKNOWN
    predicted: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    orders: dict[str, tuple[str, ...]] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    defined: Counter[str] = field(default_factory=Counter)  # functions, by name

    def notes(self, answer: Answer) -> tuple[str, ...]:
        """What is said where a kernel of the answer stands in the file more than once."""
        return tuple(
            f"'{n}' stands in the file {self.defined[n]} times: the last was checked, in {p.cell}"
            for n, p in answer.pieces.items()
            if self.defined[n] > 1
        )

    def read(self, cell: str, text: str) -> None:
        """One cell."""
        lines = [
            "pass  #" + x if x.lstrip()[:1] in ("%", "!", "?") else x for x in text.split("\n")
        ]
        if len(text) > LONGEST:
            self.broken.append(f"{cell} is longer than {LONGEST} characters")
            return
        if lines and lines[0].startswith("pass  #%%"):
            return
        try:
            tree = ast.parse("\n".join(lines))
        except SyntaxError as e:
            self.broken.append(f"{cell}, line {e.lineno}: {e.msg}")
            return
        except (ValueError, RecursionError, MemoryError):
            self.broken.append(f"{cell} cannot be read")
            return
        for node in tree.body:
            self._statement(cell, lines, node)

    def _statement(self, cell: str, lines: list[str], node: ast.stmt) -> None:
        if isinstance(node, ast.Import):
            for a in node.names:
                head = a.name.partition(".")[0]
                self.values[a.asname or head] = MODULES.get(a.name if a.asname else head, UNKNOWN)
        elif isinstance(node, ast.ImportFrom):
            for a in node.names:
                self._from(node.module or "", a.name, a.asname or a.name)
        elif isinstance(node, ast.FunctionDef):
            self.values[node.name] = self._function(cell, lines, node)
            self.defined[node.name] += 1
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for t in targets:
                self._assign(t, Space(self._plain()).value(node.value))
            self._call(node.value)
        elif isinstance(node, ast.Expr):
            self._call(node.value)
        else:  # what it binds is not known without running it
            for n in ast.walk(node):
                if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load):
                    self.values[n.id] = UNKNOWN
                elif isinstance(n, ast.FunctionDef | ast.ClassDef):
                    self.values[n.name] = UNKNOWN

    def _plain(self) -> dict[str, Any]:
        return {
            n: v for n, v in self.values.items() if v is not UNKNOWN and not isinstance(v, Piece)
        }

    def _from(self, module: str, name: str, alias: str) -> None:
        if name == "*" and module == "tklearn":
            self.values.update({n: getattr(tklearn, n) for n in tklearn.__all__})
        elif module in MODULES:
            found = _resolve(f"{module}.{name}")
            self.values[alias] = UNKNOWN if found is None else found
        else:
            self.values[alias] = UNKNOWN

    def _assign(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            self.values[target.id] = value
        elif isinstance(target, ast.Tuple) and isinstance(value, tuple):
            for t, v in zip(target.elts, value):
                self._assign(t, v)
        else:
            for n in ast.walk(target):
                if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store):
                    self.values[n.id] = UNKNOWN

    def _function(self, cell: str, lines: list[str], node: ast.FunctionDef) -> Any:
        kind = _kind(Space(self._plain()), node)
        if not kind:
            return UNKNOWN
        first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
        text = "\n".join(lines[first - 1 : node.end_lineno]) + "\n"
        return Piece(node.name, kind, text, first, cell, _reads(node))

    def _call(self, node: ast.expr) -> None:
        """tk.predict("P3", a=1) and tk.check("S1", ["b", "a"])."""
        if not isinstance(node, ast.Call) or not node.args:
            return
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        name = node.func.id if isinstance(node.func, ast.Name) else name
        space = Space(self._plain())
        item = space.value(node.args[0])
        if not isinstance(item, str):
            return
        if name == "predict":
            given = {k.arg: space.value(k.value) for k in node.keywords if k.arg}
            said = {n: v for n, v in given.items() if type(v) in (int, float, str)}
            if said:
                self.predicted.setdefault(item, []).append(said)
        if name == "check" and len(node.args) > 1:
            order = _order(space.value(node.args[1]))
            if order is not None:
                self.orders[item] = order

    def answer(self, item: str, kernels: tuple[str, ...] = ()) -> Answer:
        """The answer to one item whose kernels have these names."""
        out = Answer(item)
        missing: set[str] = set()
        order = self.orders.get(item) or _order(self.values.get("order"))
        said = self.predicted.get(item, [])
        first = {k: v for s in reversed(said) for k, v in s.items()}
        latest = {k: v for s in said for k, v in s.items()}
        out = replace(out, order=order, first=first, latest=latest)
        for name in kernels:
            piece = self.values.get(name)
            if not isinstance(piece, Piece) or piece.kind != "kernel":
                why = f" ({'; '.join(self.broken)})" if self.broken else ""
                return replace(out, problem=f"there is no kernel '{name}' in the file{why}")
            out.kernels[name] = name
            self._follow(out, piece, missing)
        return replace(out, missing=tuple(sorted(missing)))

    def _follow(self, out: Answer, piece: Piece, missing: set[str]) -> None:
        out.pieces[piece.name] = piece
        for n in piece.names:
            if n not in self.values:
                if self.broken and not hasattr(builtins, n):
                    missing.add(n)
                continue
            v = self.values[n]
            if isinstance(v, Piece):
                if v.name not in out.pieces:
                    self._follow(out, v, missing)
            elif v is UNKNOWN:
                missing.add(n)
            elif (dotted := imported(v)) is not None:
                out.imports[n] = dotted
            elif (text := written(v)) is not None:
                out.constants[n] = text
            else:
                missing.add(n)


def _order(value: Any) -> tuple[str, ...] | None:
    """An order of lines, if it is one."""
    if not isinstance(value, tuple | list) or not all(type(v) is str for v in value):
        return None
    return tuple(value)


def from_cells(cells: list[tuple[str, str]]) -> Notebook:
    """What code says, cell by cell, as (how it is called in messages, text)."""
    book = Notebook()
    for cell, text in cells:
        book.read(cell, text)
    return book


def from_file(path: Path) -> Notebook:
    """What a notebook's (or a .py file's) code says. Nothing of it is run. Errors: Refused."""
    return from_cells(code_cells(path))


def _kind(space: Space, node: ast.FunctionDef) -> str:
    """ "kernel", "device", or "" for another function."""
    if len(node.decorator_list) != 1:
        return ""
    d = node.decorator_list[0]
    f = space.value(d.func if isinstance(d, ast.Call) else d)
    return "kernel" if f is kernel else "device" if f is device else ""


# ------------------------------------------------------------------------------------- and back
def rebuild(answer: Answer) -> dict[str, Kernel]:
    """The kernels of an answer, by the item's names, made anew from their text.

    Errors: Refused, and TkError for what the language does not take.
    """
    if answer.problem:
        raise Refused(answer.problem)
    if answer.missing:
        raise Refused(
            f"the value of {', '.join(answer.missing)} is not known without running the notebook, "
            "or is none that a kernel can read: it reads numbers, text, dtypes and tuples of "
            "them, written down or computed from such by + - * /. Hand it anything else as an "
            "argument"
        )
    if sum(len(p.text) for p in answer.pieces.values()) > LONGEST:
        raise Refused(f"the answer is longer than {LONGEST} characters")
    space: dict[str, Any] = {n: _resolve(d) for n, d in answer.imports.items()}
    space = {n: v for n, v in space.items() if v is not None}
    for n, text in answer.constants.items():
        space[n] = value_of(text)
        if space[n] is UNKNOWN:
            raise Refused(f"the value of {n} cannot be read: {text[:80]}")
    space["__builtins__"] = builtins
    made: dict[str, Any] = {}
    _remember(answer.pieces.values())
    helpers_first = sorted(answer.pieces, key=lambda n: answer.pieces[n].kind != "device")
    for name in helpers_first:
        made[name] = space[name] = _define(answer.pieces[name], space)
    return {ours: made[theirs] for ours, theirs in answer.kernels.items()}


def _remember(pieces: Iterable[Piece]) -> None:
    """Puts the pieces where Python looks for source lines, at the lines where they stood."""
    cells: dict[str, list[str]] = {}
    for p in pieces:
        lines, own = cells.setdefault(p.cell, []), p.text.splitlines(keepends=True)
        lines += ["\n"] * (p.line - 1 + len(own) - len(lines))
        lines[p.line - 1 : p.line - 1 + len(own)] = own
    for cell, lines in cells.items():
        linecache.cache[cell] = (sum(map(len, lines)), None, lines, cell)


def _define(piece: Piece, space: dict[str, Any]) -> Any:
    """One kernel or helper. Only its decorator, annotations and defaults are evaluated, after
    each was found to be a plain value."""
    tree = ast.parse("\n" * (piece.line - 1) + piece.text)
    node = tree.body[0]
    values = Space({n: v for n, v in space.items() if n != "__builtins__"})
    if not isinstance(node, ast.FunctionDef) or _kind(values, node) != piece.kind:
        raise Refused(f"'{piece.name}' is not marked @tk.{piece.kind}")
    decorator = node.decorator_list[0]
    given = [k.value for k in decorator.keywords] if isinstance(decorator, ast.Call) else []
    given += list(decorator.args) if isinstance(decorator, ast.Call) else []
    given += [d for d in (*node.args.defaults, *node.args.kw_defaults) if d is not None]
    given += [a.annotation for a in ast.walk(node.args) if isinstance(a, ast.arg) and a.annotation]
    given += [node.returns] if node.returns is not None else []
    for e in given:
        if values.static(e) is UNKNOWN:
            raise Refused(
                f"line {e.lineno}: {ast.unparse(e)[:80]} must be a plain value, such as "
                "tk.gl_fl, tk.const or a number"
            )
    if getattr(node, "type_params", None):
        raise Refused(f"'{piece.name}' has type parameters; kernels have none")
    exec(compile(tree, piece.cell, "exec", dont_inherit=True), space)
    return space[piece.name]
