"""Expressions of the IR, evaluated for what they cost: integers that steer a kernel are computed,
for each lane of a warp; what comes from memory, and all tile values, are not.

A value is a Python number, an array over lanes, or a reference (Global, Place). Loaded numbers are
0. On the way the evaluator adds up work (`math`, `xu`) and the events that a value waits for
(`reads`). This file knows expressions; statements are walk.py's, memory moves.py's.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from tklearn.lang import ir
from tklearn.lang.types import RV, Regs, Scalar, Shared, Vec
from tklearn.sim.timing import program as P
from tklearn.sim.timing.costs import Cost, Costs, power_of_two, registers
from tklearn.sim.timing.program import Event

ndarray = np.ndarray
UNIFORM = 0.3  # of an integer operation's slot where all lanes agree: its own datapath, or hoisted


class Global:
    """A global array: its number among the parameters, sizes and strides in elements."""

    def __init__(self, number: int, dims: tuple[int, ...], dtype: Any) -> None:
        self.number, self.dims, self.itemsize = number, dims, dtype.itemsize
        full = (1,) * (4 - len(dims)) + tuple(dims)
        self.batch, self.depth, self.rows, self.cols = full
        self.strides4 = (full[1] * full[2] * full[3], full[2] * full[3], full[3], 1)
        self.strides = self.strides4[4 - len(dims) :]
        self.nbytes = int(np.prod(full, dtype=np.int64)) * self.itemsize


class Place:
    """A shared object, or a window of a tile: `key` is equal for equal memory."""

    __slots__ = ("type", "key", "r0", "c0")

    def __init__(self, type: Any, key: tuple[Any, ...], r0: int = 0, c0: int = 0) -> None:
        self.type, self.key, self.r0, self.c0 = type, key, r0, c0


def _divide(a: Any, b: Any) -> Any:
    return a // (np.where(b == 0, 1, b) if type(b) is ndarray else b or 1)


def _modulo(a: Any, b: Any) -> Any:
    return a % (np.where(b == 0, 1, b) if type(b) is ndarray else b or 1)


BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": _divide, "%": _modulo,
    "/": lambda a, b: 0.0, "&": operator.and_, "|": operator.or_, "^": operator.xor,
    "<<": lambda a, b: a << (b & 31), ">>": lambda a, b: a >> (b & 31),
}  # fmt: skip
COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt,
    ">=": operator.ge,
}  # fmt: skip


class Values:
    """The evaluator of one warp; Walker adds statements and memory."""

    lanes = 32
    costs: Costs
    env: dict[ir.Sym, Any]
    made: dict[ir.Sym, tuple[int, ...]]  # the events whose results a name holds
    specials: dict[str, Any]

    def __init__(self) -> None:
        self.math = self.xu = 0.0
        self.chain = 0  # dependent steps since the last event
        self.serial = 0.0  # cycles of long ones
        self.reads: set[int] = set()

    # what walk.py and moves.py provide
    def emit(self, e: Event) -> int:
        raise NotImplementedError

    def load_element(self, e: Any, base: Any, idx: list[Any], width: int) -> None:
        raise NotImplementedError

    def call_device(self, e: ir.CallDevice) -> Any:
        raise NotImplementedError

    def atomic(self, e: ir.Call) -> Any:
        raise NotImplementedError

    # -------------------------------------------------------------------------------- numbers
    def value(self, e: Any) -> Any:
        """What an expression is; its work is added up on the way."""
        return getattr(self, "x_" + type(e).__name__)(e)

    def work(self, cost: Cost) -> None:
        self.math += cost.slots
        self.xu += cost.xu
        self.serial += cost.serial
        self.chain += 1

    def number(self, e: Any, op: str) -> None:
        """The work of one scalar operation."""
        cost = self.costs.binary(op, e.type, None, None)
        if e.type.dtype.kind == "f":
            self.work(cost)
        else:
            self._integer(e, cost)

    def _integer(self, e: Any, cost: Cost) -> None:
        part = UNIFORM if e.uni.level <= ir.WARP else 1.0
        self.work(cost._replace(slots=cost.slots * part))

    def x_Const(self, e: ir.Const) -> Any:
        return e.value

    def x_Var(self, e: ir.Var) -> Any:
        self.reads.update(self.made.get(e.sym, ()))
        return self.env.get(e.sym)

    def x_Special(self, e: ir.Special) -> Any:
        return self.specials[e.name]

    def x_Dim(self, e: ir.Dim) -> int:
        return int(getattr(self.value(e.base), e.name))

    def x_RingField(self, e: ir.RingField) -> int:
        stage, phase = self.value(e.ring)
        return int(stage if e.name == "stage" else phase)

    def x_Unary(self, e: ir.Unary) -> Any:
        a = self.value(e.a)
        if not isinstance(e.type, Scalar):
            self.work(self.costs.of("add", registers(e.type)))
            return None
        self.number(e, "+")
        if e.op == "not":
            return ~a if type(a) is ndarray else not a
        return -a if e.op == "-" else ~a

    def x_Binary(self, e: ir.Binary) -> Any:
        a, b = self.value(e.a), self.value(e.b)
        if not isinstance(e.type, Scalar):
            self.work(self.costs.binary(e.op, e.type, e.a.type, e.b.type))
            return None
        if all(isinstance(x, ir.Const | ir.Dim) for x in (e.a, e.b)):
            return BINARY[e.op](a, b)  # the compiler's work, or the launch's
        if isinstance(e.b, ir.Const) and e.op in ("//", "%"):
            known = e.a.nonneg or (isinstance(e.a, ir.Var) and e.a.sym.nonneg)
            self._integer(e, self.costs.by_constant(e.op, b, known))
        else:
            power = isinstance(e.b, ir.Const) and power_of_two(b)
            op = {"*": "&", "/": "*"}.get(e.op, e.op) if power else e.op
            self.number(e, op)
        if e.type.dtype.kind == "f":
            return 0.0
        return BINARY[e.op](a, b)

    def x_Fma(self, e: ir.Fma) -> Any:
        for x in (e.a, e.b, e.c):
            self.value(x)
        if isinstance(e.type, Scalar):
            self.number(e, "+")
            return 0.0
        self.work(self.costs.binary("+", e.type, e.a.type, e.c.type))
        return None

    def x_Compare(self, e: ir.Compare) -> Any:
        a, b = self.value(e.a), self.value(e.b)
        self.work(Cost(UNIFORM if e.uni.level <= ir.WARP else 1.0))
        return COMPARE[e.op](a, b)

    def x_Logic(self, e: ir.Logic) -> Any:
        a, b = self.value(e.a), self.value(e.b)
        if type(a) is ndarray or type(b) is ndarray:
            f = np.logical_and if e.op == "and" else np.logical_or
            return f(a, b)
        return (a and b) if e.op == "and" else (a or b)

    def x_Select(self, e: ir.Select) -> Any:
        c, a, b = self.value(e.cond), self.value(e.a), self.value(e.b)
        self.work(Cost(1.0))
        if a is None or b is None:
            return None
        return np.where(c, a, b) if type(c) is ndarray else a if c else b

    def x_Cast(self, e: ir.Cast) -> Any:
        a = self.value(e.a)
        if not isinstance(e.type, Scalar):
            self.work(self.costs.convert(e.a.type, e.type))
            return None
        self.work(self.costs.cast(e.a.type, e.type))
        if e.type.dtype.kind == "f":
            return a if type(a) is ndarray else float(a or 0)
        return a.astype(np.int64) if type(a) is ndarray else int(a or 0)

    # ----------------------------------------------------------------------------- references
    def x_Index(self, e: ir.Index) -> Any:
        if isinstance(e.base.type, Regs | Vec):
            self.value(e.base)
            return 0
        around, self.reads = self.reads, set()  # an access waits for its index only
        base = self.value(e.base)
        idx = [self.value(i) for i in e.idx]
        if isinstance(e.base.type, Shared):
            self.reads |= around
            return self._select(base, idx)
        self.load_element(e, base, idx, 1)
        self.reads |= around
        return 0.0 if e.type.dtype.kind == "f" else np.zeros(self.lanes, np.int64)

    def _select(self, base: Place, idx: list[Any]) -> Place:
        left = base.type.dims[len(idx) :]
        t = Shared(base.type.elem, left) if left else base.type.elem
        return Place(t, (*base.key, *(_first(i) for i in idx)))

    def x_VecIndex(self, e: ir.VecIndex) -> None:
        around, self.reads = self.reads, set()
        base = self.value(e.base)
        idx = [self.value(i) for i in e.idx]
        idx[-1] = idx[-1] * e.n
        self.load_element(e, base, idx, e.n)
        self.reads |= around

    def x_TileReg(self, e: ir.TileReg) -> float:
        self.value(e.tile)
        return 0.0

    def x_Subtile(self, e: ir.Subtile) -> Place:
        base, i, j = self.value(e.base), self.value(e.i), self.value(e.j)
        t: Any = e.type
        return Place(t.parent, base.key, int(_first(i)) * t.rows, int(_first(j)) * t.cols)

    def x_CoordExpr(self, e: ir.CoordExpr) -> tuple[Any, ...]:
        return tuple(self.value(i) for i in e.items)

    def x_TupleExpr(self, e: ir.TupleExpr) -> None:
        for i in e.items:
            self.value(i)

    def x_TilesExpr(self, e: ir.TilesExpr) -> list[Any]:
        return [self.value(i) for i in e.items]

    def x_CallDevice(self, e: ir.CallDevice) -> Any:
        return self.call_device(e)

    # ------------------------------------------------------------------------------- functions
    def x_Call(self, e: ir.Call) -> Any:
        effect = e.op.effect
        around, self.reads = self.reads, set()
        if effect == "atomic":
            old = self.atomic(e)
        else:
            args = [self.value(a) if isinstance(a, ir.Expr) else a for a in e.args]
            old = self._shuffle(e, args) if effect == "shuffle" else self._function(e, args)
        self.reads |= around
        return old

    def _function(self, e: ir.Call, args: list[Any]) -> Any:
        name = e.op.name
        t = e.args[0].type if e.args and isinstance(e.args[0], ir.Expr) else e.type
        if name == "cdiv":
            self.number(e, "//")
            return -_divide(-args[0], args[1])
        if name in ("max", "min") and args[1] is not None:
            return self._larger(e, args)
        if name in ("sum", "max", "min") or name.startswith(("row_", "col_")):
            return self._reduce(e, t)
        if name in ("swap_layout", "transpose"):
            self.work(self.costs.of("swap", registers(t)))
            return None
        if name in ("copy", "convert"):
            self.work(self.costs.convert(t, e.type))
            return None
        if e.op.intrinsic is not None:
            self.work(Cost(4.0))
            return 0
        self.work(self.costs.map(name, e.type))
        return 0.0 if isinstance(e.type, Scalar) else None

    def _larger(self, e: ir.Call, args: list[Any]) -> Any:
        if not isinstance(e.type, Scalar):
            self.work(self.costs.binary("max", e.type, e.args[0].type, e.args[1].type))
            return None
        self.number(e, "+")
        if e.type.dtype.kind == "f":
            return 0.0
        return (np.maximum if e.op.name == "max" else np.minimum)(args[0], args[1])

    def _reduce(self, e: ir.Call, t: Any) -> Any:
        math, xu, shuffles = self.costs.reduction(e.op.name, t)
        made = self.event(P.SHARED, e.loc.line)
        made.math += math
        made.xu += xu
        made.shared = shuffles
        # Folds in registers, then one shuffle after the other, those of other lines too: the
        # compiler keeps their order, and each is folded before the next.
        latency = self.costs.rates.latency
        steps = shuffles
        if isinstance(t, RV) and t.kind == "flat":  # of a lane's four sums half overlap
            steps = (5 + shuffles) / 2
        made.chain = steps * (latency["shuffle"] + latency["math"])
        made.whole = True
        self.reads = {self.emit(made)}
        return 0.0 if isinstance(e.type, Scalar) else None

    def _shuffle(self, e: ir.Call, args: list[Any]) -> Any:
        if e.op.name == "warp.uniform":
            return args[0]
        made = self.event(P.SHARED, e.loc.line)
        made.math += 1.0
        made.shared = 1.0
        made.chain = self.costs.rates.latency["shuffle"]
        made.whole = True
        self.reads = {self.emit(made)}
        if e.type.dtype.kind == "f":
            return 0.0
        if e.op.name == "warp.shfl":
            x, lane = args
            return x[int(_first(lane)) % len(x)] if type(x) is ndarray else x
        return args[0] if e.op.name != "warp.ballot" else 0xFFFFFFFF

    # ----------------------------------------------------------------------------------- events
    def event(self, kind: int, line: int) -> Event:
        """An event with the work added up so far, after what it reads; both start anew."""
        e = Event(kind, line, tuple(self.reads))
        e.math, e.xu = self.math, self.xu
        steps = max(self.chain - 1, 0)
        e.chain = self.costs.rates.latency["math"] * (1 + min(steps, 8))
        e.serial = self.serial
        self.math = self.xu = self.serial = 0.0
        self.chain = 0
        self.reads = set()
        return e


def _first(x: Any) -> Any:
    return x.flat[0] if type(x) is ndarray else x
