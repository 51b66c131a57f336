"""Expressions of the IR as Python `ast` nodes that call the simulator's run time.

Knows the value forms of `lanes.py` (a number, or an array over (block, lane)) and of tiles (an
array (block, row, column)), and which operations can fail, so that an operand of `and`, `or` or `x
if c else y` runs under a mask only where that matters. Knows nothing of warps, memory or checks.
"""

from __future__ import annotations

import ast
from typing import Any

import numpy as np

from tklearn.lang import ir
from tklearn.lang.errors import Loc
from tklearn.lang.types import GL, RT, RV, Regs, Scalar, Shared, Vec
from tklearn.sim import lanes
from tklearn.sim.batching import Shape

I32_LO, I32_HI = -(1 << 31), (1 << 31) - 1
FULL = (I32_LO, I32_HI)
GRID_MAX = 1 << 16  # the arithmetic on blockIdx that needs no check assumes smaller grids
IN_BLOCK = {
    "laneid": 31,
    "warpid": 31,
    "warpgroup.groupid": 7,
    "warpgroup.warpid": 3,
    "warpgroup.laneid": 127,
}
BINOPS = {
    "+": ast.Add,
    "-": ast.Sub,
    "*": ast.Mult,
    "/": ast.Div,
    "//": ast.FloorDiv,
    "%": ast.Mod,
    "&": ast.BitAnd,
    "|": ast.BitOr,
    "^": ast.BitXor,
    "<<": ast.LShift,
    ">>": ast.RShift,
}
CMPOPS = {"<": ast.Lt, "<=": ast.LtE, "==": ast.Eq, "!=": ast.NotEq, ">": ast.Gt, ">=": ast.GtE}
CHECKED = {
    "+": "_iadd",
    "-": "_isub",
    "*": "_imul",
    "//": "_idiv",
    "%": "_imod",
    "<<": "_ishl",
    ">>": "_ishr",
    "&": "_iand",
    "|": "_ior",
    "^": "_ixor",
}


class Site:
    """One operation in the learner's source: what messages and caches hang on."""

    __slots__ = ("id", "loc", "line", "node", "cache")

    def __init__(self, id: int, loc: Loc, node: Any) -> None:
        self.id, self.loc, self.line, self.node = id, loc, loc.line, node
        self.cache: dict[Any, Any] = {}


def name(x: str) -> ast.Name:
    return ast.Name(x, ast.Load())


def const(x: Any) -> ast.Constant:
    return ast.Constant(x)


def call(f: str | ast.expr, *args: ast.expr) -> ast.Call:
    return ast.Call(name(f) if isinstance(f, str) else f, list(args), [])


def tup(items: list[ast.expr]) -> ast.Tuple:
    return ast.Tuple(items, ast.Load())


def located(node: Any, loc: Loc) -> Any:
    """Give `node` and whatever below has no place yet the learner's place."""
    todo = [node]
    end = (loc.end_line or loc.line, loc.end_col or loc.col + 1)
    while todo:
        n = todo.pop()
        if "lineno" in n._attributes:
            if getattr(n, "lineno", None) is not None:
                continue
            n.lineno, n.col_offset, n.end_lineno, n.end_col_offset = loc.line, loc.col, *end
        todo.extend(ast.iter_child_nodes(n))
    return node


class Expressions:
    """The expression half of `lower.Lowering`; `ns` is the namespace the code will run in."""

    def __init__(self, ns: dict[str, Any], sites: list[Site], shape: Shape, big_grid: bool) -> None:
        self.ns, self.sites, self.shape, self.big_grid = ns, sites, shape, big_grid
        self.ranges: dict[int, tuple[int, int]] = {}
        self.locals: dict[int, str] = {}
        self.keep: list[Any] = []  # symbols made here: their ids must stay their own
        self.temps = 0

    # ------------------------------------------------------------------------------- helpers
    def site(self, node: Any) -> ast.Name:
        s = Site(len(self.sites), node.loc, node)
        self.sites.append(s)
        key = f"_s{s.id}"
        self.ns[key] = s
        return name(key)

    def obj(self, value: Any, stem: str) -> ast.Name:
        key = f"_{stem}{len(self.ns)}"
        self.ns[key] = value
        return name(key)

    def temp(self, stem: str = "t") -> str:
        self.temps += 1
        return f"_{self.temps}{stem}"  # what `obj` makes ends in a number

    def local(self, sym: ir.Sym) -> str:
        key = id(sym)
        if key not in self.locals:
            self.locals[key] = sym.name + "_" if sym.name.startswith("_") else sym.name
        return self.locals[key]

    def expr(self, e: Any, m: str) -> ast.expr:
        """`e` for the lanes in the mask variable `m`."""
        return located(getattr(self, "x_" + type(e).__name__)(e, m), e.loc)

    def truth(self, e: ir.Expr, m: str) -> ast.expr:
        return located(call("_truth", name("_w"), self.expr(e, m), self.site(e)), e.loc)

    # -------------------------------------------------------------------------------- ranges
    def range(self, e: Any) -> tuple[int, int]:
        """Bounds of an i32 expression, as far as they are known before the launch."""
        if isinstance(e, ir.Const) and isinstance(e.value, (int, bool)):
            return int(e.value), int(e.value)
        if isinstance(e, ir.Var):
            r = self.ranges.get(id(e.sym), FULL)
            return (max(r[0], 0), r[1]) if e.sym.nonneg and r[1] >= 0 else r
        r = FULL
        if isinstance(e, ir.Special):
            r = self._special_range(e.name)
        elif isinstance(e, ir.RingField):
            r = (0, 1 if e.name == "phase" else e.ring.type.n - 1)  # type: ignore[attr-defined]
        elif isinstance(e, ir.Dim):
            r = (0, I32_HI)
        elif (
            isinstance(e, ir.Cast)
            and isinstance(e.a.type, Scalar)
            and e.a.type.dtype.name in ("i32", "bool")
        ):
            r = (0, 1) if e.a.type.dtype.name == "bool" else self.range(e.a)
        elif isinstance(e, ir.Binary) and isinstance(e.type, Scalar) and e.type.dtype.name == "i32":
            r = self._binary_range(e.op, self.range(e.a), self.range(e.b))
        if r[0] < I32_LO or r[1] > I32_HI:
            r = FULL
        return (max(r[0], 0), r[1]) if e.nonneg and r[1] >= 0 else r

    def _special_range(self, what: str) -> tuple[int, int]:
        k = self.ns["_kernel"]
        if what in IN_BLOCK:
            return 0, IN_BLOCK[what]
        axis = "xyz".index(what[-1])
        if what.startswith("blockDim"):
            return k.threads[axis], k.threads[axis]
        if what.startswith("threadIdx"):
            return 0, k.threads[axis] - 1
        return 0, (I32_HI if self.big_grid else GRID_MAX)

    @staticmethod
    def _binary_range(op: str, a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
        if op == "+":
            return a[0] + b[0], a[1] + b[1]
        if op == "-":
            return a[0] - b[1], a[1] - b[0]
        if op == "*":
            c = [x * y for x in a for y in b]
            return min(c), max(c)
        if op == "//" and b[0] > 0:
            c = [x // y for x in a for y in b]
            return min(c), max(c)
        if op == "%" and b[0] > 0:
            return 0, b[1] - 1
        if op == "&" and (a[0] >= 0 or b[0] >= 0):
            return 0, min(x[1] for x in (a, b) if x[0] >= 0)
        if op in ("|", "^") and a[0] >= 0 and b[0] >= 0:
            return 0, (1 << max(a[1], b[1]).bit_length()) - 1
        if op == ">>" and a[0] >= 0 and b[0] >= 0 and b[1] < 32:
            return a[0] >> b[1], a[1] >> b[0]
        if op == "<<" and a[0] >= 0 and b[0] >= 0 and b[1] < 32:
            return a[0] << b[0], a[1] << b[1]
        return FULL

    def can_fail(self, e: Any) -> bool:
        """Whether `e` for lanes that do not need it could raise, count or touch memory."""
        for n in ir.walk(e):
            if isinstance(
                n, (ir.VecIndex, ir.CallDevice, ir.Call, ir.Select, ir.Logic, ir.TileReg)
            ):
                return True
            if isinstance(n, ir.Index) and not isinstance(n.base.type, (Regs, Vec)):
                return True
            if isinstance(n, ir.Binary) and isinstance(n.type, Scalar) and self._checked(n):
                return True
        return False

    def _checked(self, e: ir.Binary) -> bool:
        """Whether an integer operation needs the run time's check or wrap."""
        kind = e.type.dtype.name  # type: ignore[attr-defined]
        if kind in ("f32", "bool"):
            return False
        if kind != "i32":
            return True
        a, b = self.range(e.a), self.range(e.b)
        if e.op in ("&", "|", "^"):
            return False
        if e.op in ("//", "%"):
            return b[0] <= 0
        if e.op in ("<<", ">>") and not (b[0] >= 0 and b[1] < 32):
            return True
        r = self._binary_range(e.op, a, b)
        return e.op != ">>" and (r[0] < I32_LO or r[1] > I32_HI or r == FULL)

    # ----------------------------------------------------------------------------- leaves
    def x_Const(self, e: ir.Const, m: str) -> ast.expr:
        t = e.type.dtype.name  # type: ignore[attr-defined]
        if t == "bool":
            return const(bool(e.value))
        if t in ("i32", "u32", "i64", "u8"):
            return const(int(e.value))
        return self.obj(np.float32(e.value), "c")

    def x_Var(self, e: ir.Var, m: str) -> ast.expr:
        if isinstance(e.type, (RT, RV)):
            return call("_use", name(self.local(e.sym)), name("_w"), self.site(e))
        return name(self.local(e.sym))

    def box(self, e: Any, m: str) -> ast.expr:
        """A tile as an object to store into; values of expressions get one of their own."""
        if isinstance(e, ir.Var):
            return located(name(self.local(e.sym)), e.loc)
        return located(
            call("_Tile", self.obj(e.type, "T"), const("a value"), self.expr(e, m)), e.loc
        )

    def x_Special(self, e: ir.Special, m: str) -> ast.expr:
        def of_warp(attr: str) -> ast.expr:
            return ast.Attribute(name("_w"), attr, ast.Load())

        if e.name == "warpgroup.groupid":
            return ast.BinOp(of_warp("warpid"), ast.RShift(), const(2))
        if e.name == "warpgroup.warpid":
            return ast.BinOp(of_warp("warpid"), ast.BitAnd(), const(3))
        if e.name == "warpgroup.laneid":
            first = ast.BinOp(of_warp("warpid"), ast.BitAnd(), const(3))
            return ast.BinOp(ast.BinOp(first, ast.Mult(), const(32)), ast.Add(), of_warp("laneid"))
        return of_warp(e.name.replace(".", "_"))

    def x_Dim(self, e: ir.Dim, m: str) -> ast.expr:
        t = e.base.type
        if isinstance(t, GL):
            return ast.Attribute(self.expr(e.base, m), e.name, ast.Load())
        return const(
            {
                "rows": getattr(t, "rows", getattr(t, "n", 1)),
                "cols": getattr(t, "cols", getattr(t, "n", 1)),
            }.get(e.name, 1)
        )

    def x_CoordExpr(self, e: ir.CoordExpr, m: str) -> ast.expr:
        return tup([self.expr(i, m) for i in e.items])

    def x_TupleExpr(self, e: ir.TupleExpr, m: str) -> ast.expr:
        return tup([self.expr(i, m) for i in e.items])

    def x_TilesExpr(self, e: ir.TilesExpr, m: str) -> ast.expr:
        return tup([self.expr(i, m) for i in e.items])

    def x_RingField(self, e: ir.RingField, m: str) -> ast.expr:
        return ast.Attribute(self.expr(e.ring, m), e.name, ast.Load())

    # ------------------------------------------------------------------------------ arithmetic
    def x_Unary(self, e: ir.Unary, m: str) -> ast.expr:
        a = self.expr(e.a, m)
        if e.op == "not":
            return call("_lnot", a)
        kind = e.type.dtype.name
        if e.op == "~":
            return call("_uinv", a) if kind == "u32" else ast.UnaryOp(ast.Invert(), a)
        if isinstance(e.type, Scalar) and kind != "f32":
            if kind == "i32" and self.range(e.a)[0] > I32_LO:
                return ast.UnaryOp(ast.USub(), a)
            return call("_isub", name("_w"), const(0), a, name(m), self.site(e), const(kind))
        return ast.UnaryOp(ast.USub(), a)

    def x_Binary(self, e: ir.Binary, m: str) -> ast.expr:
        if not isinstance(e.type, Scalar):
            out = ast.BinOp(
                self.operand(e.a, e.type, m), BINOPS[e.op](), self.operand(e.b, e.type, m)
            )
            return self.rounded(out, e)
        a, b = self.expr(e.a, m), self.expr(e.b, m)
        if self._checked(e):
            return call(
                CHECKED[e.op], name("_w"), a, b, name(m), self.site(e), const(e.type.dtype.name)
            )
        if e.op in ("//", "%") and e.type.dtype.kind != "f" and isinstance(e.b, ir.Const):
            n = e.b.value
            if n & (n - 1) == 0:  # a shift and a mask are what // and % by a power of two mean
                out = (
                    ast.BinOp(a, ast.RShift(), const(n.bit_length() - 1))
                    if e.op == "//"
                    else (ast.BinOp(a, ast.BitAnd(), const(n - 1)))
                )
                return out
        return ast.BinOp(a, BINOPS[e.op](), b)

    def operand(self, e: ir.Expr, to: Any, m: str) -> ast.expr:
        """An operand of tile arithmetic with result type `to`, shaped to broadcast."""
        x = self.expr(e, m)
        if isinstance(e.type, Scalar):
            return call("_spread3" if isinstance(to, RT) else "_spread2", x)
        if isinstance(to, RT) and isinstance(e.type, RV):
            return call("_as_col" if e.type.kind == "col" else "_as_row", x)
        return x

    def rounded(self, node: ast.expr, e: ir.Expr) -> ast.expr:
        kind = e.type.dtype.name
        return node if kind == "f32" else call("_round", located(node, e.loc), const(kind))

    def x_Fma(self, e: ir.Fma, m: str) -> ast.expr:
        parts = [
            self.expr(x, m) if isinstance(e.type, Scalar) else self.operand(x, e.type, m)
            for x in (e.a, e.b, e.c)
        ]
        out = call("_fma", *parts, const(e.minus))
        return out if isinstance(e.type, Scalar) else self.rounded(out, e)

    def x_Compare(self, e: ir.Compare, m: str) -> ast.expr:
        return ast.Compare(self.expr(e.a, m), [CMPOPS[e.op]()], [self.expr(e.b, m)])

    def x_Logic(self, e: ir.Logic, m: str) -> ast.expr:
        a = self.expr(e.a, m)
        if not self.can_fail(e.b):
            return call("_land" if e.op == "and" else "_lor", a, self.expr(e.b, m))
        t, inner = self.temp(), self.temp("m")
        keep = call("_mand" if e.op == "and" else "_mnot", name(m), name(t))
        return call(
            "_land" if e.op == "and" else "_lor",
            ast.NamedExpr(ast.Name(t, ast.Store()), a),
            self._under(inner, keep, e.b, const(e.op == "or")),
        )

    def _under(self, inner: str, mask: ast.expr, e: ir.Expr, other: ast.expr) -> ast.expr:
        """`e` under a narrower mask, or `other` where no lane needs it."""
        test = ast.Compare(
            ast.NamedExpr(ast.Name(inner, ast.Store()), mask), [ast.Is()], [const(False)]
        )
        return ast.IfExp(test, other, self.expr(e, inner))

    def x_Select(self, e: ir.Select, m: str) -> ast.expr:
        c = self.expr(e.cond, m)
        if not isinstance(e.type, Scalar):
            return ast.IfExp(self.truth(e.cond, m), self.expr(e.a, m), self.expr(e.b, m))
        if not (self.can_fail(e.a) or self.can_fail(e.b)):
            return call("_where", c, self.expr(e.a, m), self.expr(e.b, m))
        t, ma, mb = self.temp(), self.temp("m"), self.temp("m")
        first = self._under(ma, call("_mand", name(m), name(t)), e.a, const(None))
        second = self._under(mb, call("_mnot", name(m), name(t)), e.b, const(None))
        return call("_where", ast.NamedExpr(ast.Name(t, ast.Store()), c), first, second)

    def x_Cast(self, e: ir.Cast, m: str) -> ast.expr:
        a = self.expr(e.a, m)
        if not isinstance(e.type, Scalar):
            return self.rounded(a, e)
        src, dst = e.a.type.dtype.name, e.type.dtype.name
        return a if src == dst else call("_cast", a, const(src), const(dst))

    # ------------------------------------------------------------------------------- memory
    def x_Index(self, e: ir.Index, m: str) -> ast.expr:
        t = e.base.type
        if isinstance(t, (Regs, Vec)):
            k = self.expr(e.idx[0], m)
            if isinstance(t, Vec):
                return ast.Subscript(self.expr(e.base, m), k, ast.Load())
            return call("_reg", name("_w"), self.expr(e.base, m), k, self.site(e))
        at = tup([self.expr(i, m) for i in e.idx])
        base = self.expr(e.base, m)
        if isinstance(t, Shared):
            return call("_select", name("_w"), base, at, self.site(e))
        return call("_load", name("_w"), base, at, name(m), self.site(e))

    def x_VecIndex(self, e: ir.VecIndex, m: str) -> ast.expr:
        at = tup([self.expr(i, m) for i in e.idx])
        return call(
            "_vload", name("_w"), self.expr(e.base, m), at, const(e.n), name(m), self.site(e)
        )

    def x_TileReg(self, e: ir.TileReg, m: str) -> ast.expr:
        return call("_tile_reg", name("_w"), self.box(e.tile, m), const(e.i), self.site(e))

    def x_Subtile(self, e: ir.Subtile, m: str) -> ast.expr:
        return call(
            "_subtile",
            name("_w"),
            self.expr(e.base, m),
            self.expr(e.i, m),
            self.expr(e.j, m),
            self.obj(e.type, "T"),
            self.site(e),
        )

    # -------------------------------------------------------------------------------- calls
    def x_Call(self, e: ir.Call, m: str) -> ast.expr:
        return call(self.op_function(e), name("_w"), self.site(e), name(m), *self.args(e, m))

    def op_function(self, e: ir.Call | ir.Do) -> str | ast.expr:
        op = e.op
        if op.intrinsic is not None:  # by its place: names and types are the learner's
            result = e.type.dtype.name if isinstance(e, ir.Call) else None
            return self.obj(lanes.own(op, [_dtype(a) for a in e.args], result), "own")
        key = "_op_" + op.name.replace(".", "_")
        if key not in self.ns:
            self.ns[key] = self.ns["_ops"][op.name]
        return key

    def args(self, e: Any, m: str) -> list[ast.expr]:
        """Arguments: references as (memory, index), destinations as objects, else values."""
        out: list[ast.expr] = []
        for p, a in zip(e.op.params, e.args):
            if not isinstance(a, ir.Expr):
                out.append(
                    const(a)
                    if a is None or isinstance(a, (bool, int, float, str))
                    else self.obj(a, "k")
                )
            elif p.role == "ref" and isinstance(a, ir.Index):
                at = tup([self.expr(i, m) for i in a.idx])
                out.append(located(tup([self.expr(a.base, m), at]), a.loc))
            elif isinstance(a.type, (RT, RV)) and (
                e.op.effect in ("mma", "wgmma") or p.role in ("dst", "acc")
            ):
                out.append(self.box(a, m))
            else:
                out.append(self.expr(a, m))
        return out

    def x_CallDevice(self, e: ir.CallDevice, m: str) -> ast.expr:
        args = [self.box(a, m) if isinstance(a.type, (RT, RV)) else self.expr(a, m) for a in e.args]
        out = call(self.function(e.fn), name("_w"), name(m), *args)
        return ast.YieldFrom(out) if self.shape.yields(e.fn) else out

    def function(self, fn: ir.Function) -> str:
        raise NotImplementedError


def _dtype(a: Any) -> str | None:
    """The type of a number among the arguments of an operation."""
    t = getattr(a, "type", None)
    return t.dtype.name if isinstance(t, Scalar) else None
