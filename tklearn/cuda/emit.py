"""A kernel of the IR as CUDA C++: about one C++ line per Python line.

Statements, functions and the file around them; expr.py prints expressions. Nothing is transformed
at tile level and nothing is inserted: no barrier, no conversion that was not written. Needs no
compiler and no GPU.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tklearn.cuda.cppnames import Names, legal
from tklearn.cuda.expr import NARROW, Expressions, changes, literal, nonneg, pure, type_text
from tklearn.lang import ir
from tklearn.lang import types as T
from tklearn.lang.errors import Loc

WIDTH = 100
_PRINTF = {"f32": "%g", "i32": "%d", "u32": "%u", "i64": "%lld", "u8": "%d", "bool": "%s"}


@dataclass(frozen=True)
class Source:
    """The C++ of one specialised kernel.

    `lines`: the Python line (None: has none) and text of each C++ line; `locs`: the same places
    with their files; `entry`: the symbol to load.
    """

    lines: list[tuple[int | None, str]]
    entry: str
    locs: list[Loc | None] = field(repr=False)

    @property
    def text(self) -> str:
        """The complete .cu file."""
        return "".join(t + "\n" for _, t in self.lines)

    def loc_of(self, cpp_line: int) -> Loc | None:
        """The Python place behind a C++ line (from 1), or behind the nearest line above it."""
        for i in range(min(cpp_line, len(self.locs)) - 1, -1, -1):
            if self.locs[i]:
                return self.locs[i]
        return None

    def __str__(self) -> str:
        return self.text


def emit(kernel: ir.Kernel, comments: bool = False) -> Source:
    """Print `kernel` as a .cu file; with `comments` the Python lines stand between the C++ lines."""
    return _File(kernel, comments).source()


def c_string(s: str) -> str:
    """`s` as the inside of a C++ string literal."""
    named = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    out = []
    for ch in s:
        if ch in named:
            out.append(named[ch])
        elif ch.isascii() and not ch.isprintable():
            out.append(f"\\{ord(ch):03o}")
        else:
            out.append(ch)
    return "".join(out)


def _short_file(path: str) -> str:
    return os.path.basename(path).replace("\n", " ").rstrip("\\") or "?"


def _text_of(loc: Loc) -> str:
    return loc.text().strip().rstrip("\\").rstrip()


class _File:
    """One .cu file: collects lines, and names for what is global in it."""

    def __init__(self, kernel: ir.Kernel, comments: bool) -> None:
        self.kernel, self.comments = kernel, comments
        self.out: list[tuple[Loc | None, str]] = []
        self._globals = Names()
        self.entry = self._globals(kernel.name)
        self._functions: dict[ir.Function, str] = {}
        self._signatures: set[tuple[str, ...]] = set()
        self._intrinsics: dict[tuple[Any, ...], str] = {}
        self._ordered: list[ir.Function] = []
        self._order(kernel.body)
        for f in kernel.functions:
            self._add(f)

    # ------------------------------------------------------------------- helpers and their names
    def _order(self, body: list[ir.Stmt]) -> None:
        for n in ir.walk(body):
            if isinstance(n, ir.CallDevice):
                self._add(n.fn)

    def _add(self, f: ir.Function) -> None:
        if f in self._functions:
            return
        self._functions[f] = name = legal(f.name) if legal(f.name) != self.entry else f.name + "_"
        self._order(f.body)
        signature, n = tuple(type_text(p.type) for p in f.params), 2
        while (self._functions[f], *signature) in self._signatures:
            self._functions[f] = f"{name}_{n}"
            n += 1
        self._signatures.add((self._functions[f], *signature))
        self._ordered.append(f)

    def function_name(self, f: ir.Function) -> str:
        return self._functions[f]

    def intrinsic_name(self, op: Any, args: list[Any], result: T.Type | None) -> str:
        """The function that holds the learner's CUDA; printed before its first use."""
        text, name = op.intrinsic[0], legal(op.cpp)
        params = []
        for p, a in zip(op.params, args, strict=False):
            if isinstance(a, ir.Expr):
                params.append(f"{_parameter_type(a.type, p.role in ('dst', 'acc', 'ref'))} {p.name}")
            elif a is not None:
                params.append(f"{'bool' if isinstance(a, bool) else 'float' if isinstance(a, float) else 'int'} {p.name}")
        ret = type_text(result) if result else "void"
        whole = "__device__" in text
        key = (name, text) if whole else (name, text, ret, *params)
        if key not in self._intrinsics:
            body = text.strip()
            if not whole:
                if ";" not in body:
                    body = f"return {body};" if result else f"{body};"
                body = f"__device__ __forceinline__ {ret} {name}({', '.join(params)}) {{\n{body}\n}}"
            self._intrinsics[key] = body
        return name

    # ------------------------------------------------------------------------------ the whole file
    def source(self) -> Source:
        bodies = [_Body(self, f).lines() for f in self._ordered]
        main = _Body(self, self.kernel).lines()
        self.out = [(None, t) for t in self._head()]
        for body in self._intrinsics.values():
            self.out += [(None, t) for t in (*body.splitlines(), "")]
        for lines in bodies:
            self.out += [*lines, (None, "")]
        self.out += [*main, (None, ""), (None, "}  // namespace tk")]
        locs = [loc for loc, _ in self.out]
        return Source([(loc.line if loc else None, t) for loc, t in self.out], self.entry, locs)

    def _head(self) -> Iterator[str]:
        k = self.kernel
        params = ", ".join(f"{p.name}: {_describe(p.type)}" for p in k.params)
        consts = ", ".join(f"{n} = {str(v).splitlines()[0]}" for n, v in k.consts.items())
        yield f"// {k.name}: generated by tklearn from {_short_file(k.file)}:{k.loc.line}"
        special = f"// for {params}" + (f"; {consts}" if consts else "")
        yield special.rstrip("\\")
        yield f"#define TK_THREADS {k.nthreads}"
        if k.threads[1] == k.threads[2] == 1:
            yield "#define TK_BLOCK_1D"
        if _uses_fp8(k, self._ordered):
            yield "#define TK_FP8"
        yield '#include "tk/tk.cuh"'
        if any(isinstance(n, (ir.Print, ir.Assert)) for b in (k, *self._ordered) for n in ir.walk(b.body)):
            yield '#include "tk/debug.cuh"'
        yield ""
        yield "namespace tk {"
        yield ""


def _describe(t: T.Type) -> str:
    return f"{t}, {t.ndim}-d" if isinstance(t, T.GL) else str(t)


def _uses_fp8(k: ir.Kernel, functions: list[ir.Function]) -> bool:
    def dtypes() -> Iterator[Any]:
        for syms, body in ((k.params, k.body), *((f.params, f.body) for f in functions)):
            for s in syms:
                yield s.type
            for n in ir.walk(body):
                if isinstance(n, ir.Expr):
                    yield n.type
                elif isinstance(n, ir.Decl):
                    yield n.sym.type

    return any(getattr(t, "dtype", None) in (T.e4m3, T.e5m2) for t in dtypes())


def _parameter_type(t: T.Type, written: bool) -> str:
    """How a helper takes an argument: memory and registers by reference, numbers by value."""
    if isinstance(t, T.GL):
        return f"const {t.cpp}&"
    if isinstance(t, T.SubST):
        return f"st_view<{t.parent.cpp}, {t.rows}, {t.cols}>"
    if isinstance(t, (T.ST, T.SV, T.SArr)):
        return f"{t.cpp}&"
    if isinstance(t, (T.RT, T.RV, T.Regs)):
        return f"{t.cpp}&" if written else f"const {t.cpp}&"
    if isinstance(t, T.Scalar) and written:
        return f"{t.cpp}&"
    return type_text(t)


class _Body:
    """Prints one function: the kernel or a helper."""

    def __init__(self, file: _File, f: ir.Kernel | ir.Function) -> None:
        self.file, self.f = file, f
        self.depth = 0
        self.out: list[tuple[Loc | None, str]] = []
        self.names = Names([file.entry, *file._functions.values()])
        declared = [n.sym.name for n in ir.walk(f.body) if isinstance(n, ir.Decl)]
        loops = [n.var.name for n in ir.walk(f.body) if isinstance(n, ir.For)]
        self.names.reserve([*(p.name for p in f.params), *declared, *loops])
        self.ex = Expressions(self.name, file.function_name, file.intrinsic_name)
        self._noted = 0

    def name(self, s: ir.Sym) -> str:
        return self.names(s.name)

    def line(self, loc: Loc | None, text: str) -> None:
        for t in text.split("\n"):
            self.out.append((loc, "    " * self.depth + t if t else ""))

    def lines(self) -> list[tuple[Loc | None, str]]:
        """The function's lines, its head and closing brace included."""
        f = self.f
        if isinstance(f, ir.Kernel):
            params = [f"{type_text(p.type)} {self.name(p)}" for p in f.params]
            bounds = str(f.nthreads)
            if min_blocks := getattr(f, "min_blocks", None):
                bounds += f", {min_blocks}"
            head = f'extern "C" __global__ void __launch_bounds__({bounds}) {self.file.entry}('
        else:
            written = changes(f.body)
            params = [self._parameter(p, p in written) for p in f.params]
            ret = type_text(f.ret) if f.ret else "void"
            head = f"__device__ __forceinline__ {ret} {self.file.function_name(f)}("
        self.line(f.loc, _wrapped(head, params, ") {"))
        self.depth = 1
        if any(isinstance(n, ir.Decl) and n.sym.storage == "shared" for n in ir.walk(f.body)):
            self.line(None, "shared_memory(smem);")
        self.block(f.body)
        self.depth = 0
        self.line(None, "}")
        return self.out

    def _parameter(self, p: ir.Sym, written: bool) -> str:
        if isinstance(p.type, T.Shared):
            dims = "".join(f"[{d}]" for d in p.type.dims)
            return f"{p.type.elem.cpp} (&{self.name(p)}){dims}"
        by_reference = written and not isinstance(p.type, T.Scalar)
        return f"{_parameter_type(p.type, by_reference)} {self.name(p)}"

    # --------------------------------------------------------------------------------- statements
    def block(self, body: list[ir.Stmt]) -> None:
        for s in body:
            if self.file.comments and s.loc.line != self._noted and (text := _text_of(s.loc)):
                self._noted = s.loc.line
                self.line(s.loc, f"// {s.loc.line}: {text}")
            getattr(self, f"_{type(s).__name__.lower()}")(s)

    def _inner(self, body: list[ir.Stmt]) -> None:
        self.depth += 1
        self.block(body)
        self.depth -= 1

    def _decl(self, s: ir.Decl) -> None:
        sym, name = s.sym, self.name(s.sym)
        if sym.storage == "shared":
            text = f"auto& {name} = smem.at<{sym.type.cpp}>({sym.offset});"
        elif sym.storage == "ref":
            assert s.init is not None
            a_value = isinstance(s.init, (ir.Subtile, ir.CallDevice))
            text = f"auto{'' if a_value else '&'} {name} = {self.ex(s.init)};"
        elif s.init is None:
            text = f"{type_text(sym.type)} {name};"
        else:
            text = f"{type_text(sym.type)} {name} = {self.ex(s.init)};"
        self.line(s.loc, text)

    def _assign(self, s: ir.Assign) -> None:
        self.line(s.loc, self._store(s.target, self.ex(s.value)) + ";")

    def _store(self, target: ir.Expr, value: str) -> str:
        if isinstance(target, ir.VecIndex):
            return self.ex.vec_store(target, value)
        if isinstance(target, ir.TileReg) and target.tile.type.dtype in NARROW:
            return f"{self.ex(target.tile)}.set_reg({target.i}, {value})"
        return f"{self.ex.place(target)} = {value}"

    def _augassign(self, s: ir.AugAssign) -> None:
        op, t = s.op.removesuffix("="), s.target
        floors = op in ("//", "%") and not (nonneg(t) and nonneg(s.value))
        packed = isinstance(t, ir.TileReg) and t.tile.type.dtype in NARROW
        packed |= isinstance(t, ir.Index) and isinstance(t.base.type, T.Regs) and t.base.type.dtype in NARROW
        if not (floors or packed or isinstance(t, ir.VecIndex)):
            symbol = "/" if op == "//" else op
            self.line(s.loc, f"{self.ex.place(t)} {symbol}= {self.ex(s.value)};")
            return
        if not pure(t):  # its index would be evaluated twice
            ref = self.names.fresh("place")
            place = f"auto&& {ref} = {self.ex.place(t)};"
            f = "floordiv" if op == "//" else "floormod"
            self.line(s.loc, f"{{ {place} {ref} = {f}({ref}, {self.ex(s.value)}); }}")
            return
        both = ir.Binary(t.type, s.loc, op, t, s.value)
        self.line(s.loc, self._store(t, self.ex(both)) + ";")

    def _swap(self, s: ir.Swap) -> None:
        fresh = [self.names.fresh("t") for _ in s.values]
        read = " ".join(f"{type_text(v.type)} {n} = {self.ex(v)};" for n, v in zip(fresh, s.values, strict=True))
        write = " ".join(f"{self._store(t, n)};" for n, t in zip(fresh, s.targets, strict=True))
        self.line(s.loc, f"{{ {read} {write} }}")

    def _do(self, s: ir.Do) -> None:
        self.line(s.loc, self.ex.operation(s.op, s.args) + ";")

    def _eval(self, s: ir.Eval) -> None:
        self.line(s.loc, self.ex(s.value) + ";")

    # ------------------------------------------------------------------------------- control flow
    def _if(self, s: ir.If, chained: str = "") -> None:
        self.line(s.loc, f"{chained}if ({self.ex(s.cond)}) {{")
        self._inner(s.then)
        if len(s.els) == 1 and isinstance(s.els[0], ir.If):
            self._if(s.els[0], "} else ")
            return
        if s.els:
            self.line(None, "} else {")
            self._inner(s.els)
        self.line(None, "}")

    def _for(self, s: ir.For) -> None:
        var, hi = self.name(s.var), self.ex(s.hi)
        first = f"{type_text(s.var.type)} {var} = {self.ex(s.lo)}"
        if not _steady(s.hi, changes(s.body) | {s.var}):  # Python evaluates a bound once
            end = self.names.fresh(f"{var}_end")
            first, hi = f"{first}, {end} = {hi}", end
        else:
            hi = self.ex(s.hi, 11)  # binds tighter than <
        test = f"{var} {'<' if s.step > 0 else '>'} {hi}"
        if abs(s.step) == 1:
            step = var + ("++" if s.step > 0 else "--")
        else:
            step = f"{var} {'+' if s.step > 0 else '-'}= {abs(s.step)}"
        self.line(s.loc, f"for ({first}; {test}; {step}) {{")
        self._inner(s.body)
        self.line(None, "}")

    def _while(self, s: ir.While) -> None:
        self.line(s.loc, f"while ({self.ex(s.cond)}) {{")
        self._inner(s.body)
        self.line(None, "}")

    def _scope(self, s: ir.Scope) -> None:
        self.line(s.loc, "{" + (f"  // {' '.join(s.note.split())}".rstrip("\\") if s.note else ""))
        self._inner(s.body)
        self.line(None, "}")

    def _break(self, s: ir.Break) -> None:
        self.line(s.loc, "break;")

    def _continue(self, s: ir.Continue) -> None:
        self.line(s.loc, "continue;")

    def _return(self, s: ir.Return) -> None:
        self.line(s.loc, f"return {self.ex(s.value)};" if s.value else "return;")

    # ---------------------------------------------------------------------------------- debugging
    def _assert(self, s: ir.Assert) -> None:
        where = f"{_short_file(s.loc.file)}:{s.loc.line}"
        text = s.message or _text_of(s.loc)
        self.line(s.loc, f'TK_ASSERT({self.ex(s.cond)}, "{c_string(f"{where}: {text}")}");')

    def _print(self, s: ir.Print) -> None:
        form, values, level = [], [], ir.BLOCK
        for a in s.args:
            if not isinstance(a, ir.Expr):
                form.append(c_string(str(a)).replace("%", "%%"))
                continue
            level = max(level, a.uni.level)
            if not isinstance(a.type, T.Scalar):
                form.append(c_string(f"<{a.type}>").replace("%", "%%"))
                continue
            f = _PRINTF.get(a.type.dtype.name, "%g")
            form.append(f)
            if f == "%s":
                values.append(f'{self.ex(a, 5)} ? "True" : "False"')
            elif f == "%g":
                values.append(self.ex(a))
            else:  # threadIdx.x is an object that reads as an int
                values.append(f"int({self.ex(a)})" if isinstance(a, ir.Special) else self.ex(a))
        macro = "TK_PRINT" if level == ir.LANE else "TK_PRINT_WARP"
        self.line(s.loc, f'{macro}({", ".join([chr(34) + " ".join(form) + chr(34), *values])});')

    def _breakpoint(self, s: ir.Breakpoint) -> None:
        self.line(s.loc, "// breakpoint() stops in the simulator only")


def _steady(bound: ir.Expr, changed: set[ir.Sym]) -> bool:
    """Does evaluating this loop bound again give the same value, at no cost?"""
    return all(
        not (isinstance(n, ir.Var) and n.sym in changed)
        and not isinstance(n, (ir.Index, ir.VecIndex, ir.TileReg, ir.Select, ir.CallDevice))
        and not (isinstance(n, ir.Call) and n.op.effect != "pure")
        for n in ir.walk(bound)
    )


def _wrapped(head: str, params: list[str], tail: str) -> str:
    """A function's first line, its parameters on a line of their own if it would be too long."""
    flat = head + ", ".join(params) + tail
    return flat if len(flat) <= WIDTH else f"{head}\n        {', '.join(params)}{tail}"


__all__ = ["Source", "c_string", "emit", "literal"]
