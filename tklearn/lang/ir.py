"""The typed, structured IR that both machines read.

Mutable variables, C-like blocks, one node per thing the learner wrote, each with its place. It says
what happens, not how a machine does it. `Uni` records for each expression who may see different
values (blocks, warps, lanes); infer.py fills it in.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tklearn.lang.errors import Loc
from tklearn.lang.types import Type

if TYPE_CHECKING:
    from tklearn.lang.ops import Op

# Levels of uniformity: the same in the block, in each warpgroup, in each warp, different by lane.
BLOCK, GROUP, WARP, LANE = 0, 1, 2, 3
AXIS = {"x": 1, "y": 2, "z": 4}
DATA = 8  # depends on loaded values


@dataclass(frozen=True)
class Uni:
    """`level`: who agrees on the value. `deps`: bits of AXIS and DATA on which it depends."""

    level: int = BLOCK
    deps: int = 0

    def __or__(self, other: Uni) -> Uni:
        return Uni(max(self.level, other.level), self.deps | other.deps)


SAME = Uni()


@dataclass(eq=False)
class Sym:
    """A declared name. `storage`: param, reg, shared, ref (a bound reference), loop."""

    name: str
    type: Type
    storage: str
    loc: Loc
    uni: Uni = SAME
    nonneg: bool = False
    offset: int = 0  # shared: byte offset in the block's shared memory
    alias_of: Sym | None = None  # shared: overlaps this symbol's memory (tk.alias)
    written: bool = False  # global arrays: some statement stores to it
    read: bool = False  # global arrays: some statement loads from it


# ------------------------------------------------------------------------------- expressions
@dataclass(eq=False)
class Expr:
    type: Type
    loc: Loc
    uni: Uni = field(default=SAME, init=False)
    nonneg: bool = field(default=False, init=False)  # integers: provably >= 0


@dataclass(eq=False)
class Const(Expr):
    value: Any  # int, float or bool, already within the type


@dataclass(eq=False)
class Var(Expr):
    sym: Sym


@dataclass(eq=False)
class Special(Expr):
    name: str  # threadIdx.x ... gridDim.z, laneid, warpid, warpgroup.groupid, .warpid, .laneid


@dataclass(eq=False)
class Unary(Expr):
    op: str  # - ~ not
    a: Expr


@dataclass(eq=False)
class Binary(Expr):
    op: str  # + - * / // % & | ^ << >>   on scalars of one type, or on tiles, vectors and scalars
    a: Expr
    b: Expr


@dataclass(eq=False)
class Fma(Expr):
    """a*b + c, or a*b - c with `minus`, rounded once."""

    a: Expr
    b: Expr
    c: Expr
    minus: bool = False


@dataclass(eq=False)
class Compare(Expr):
    op: str  # < <= == != > >=
    a: Expr
    b: Expr


@dataclass(eq=False)
class Logic(Expr):
    op: str  # and, or: the second operand runs only for lanes that need it
    a: Expr
    b: Expr


@dataclass(eq=False)
class Select(Expr):
    cond: Expr
    a: Expr
    b: Expr


@dataclass(eq=False)
class Index(Expr):
    """base[idx]: an element (base GL, ST, SV, SArr, Regs, Vec) or one tile of a Shared array."""

    base: Expr
    idx: list[Expr]


@dataclass(eq=False)
class VecIndex(Expr):
    """tk.vec(base, n)[idx]: n neighbouring elements of the last axis, the i-th group of n."""

    base: Expr
    n: int
    idx: list[Expr]


@dataclass(eq=False)
class TileReg(Expr):
    """tile.reg(i): this lane's i-th element of a register tile."""

    tile: Expr
    i: int


@dataclass(eq=False)
class Dim(Expr):
    base: Expr
    name: str  # batch depth rows cols


@dataclass(eq=False)
class Cast(Expr):
    """Conversion to `type`: scalars as in C (float to int saturates), tiles to nearest even."""

    a: Expr


@dataclass(eq=False)
class Subtile(Expr):
    base: Expr
    i: Expr
    j: Expr


@dataclass(eq=False)
class CoordExpr(Expr):
    """(row, col): a tile coordinate. A name bound to one (`at = (i, 0)`) is a Var of type Coord."""

    items: list[Expr]


@dataclass(eq=False)
class TupleExpr(Expr):
    """Values for the lanes of a Vec: tk.vec(y, 4)[i] = (a, b, c, d)."""

    items: list[Expr]


@dataclass(eq=False)
class TilesExpr(Expr):
    """The shared tiles of tma.expect(sem, a, b, ...): one argument; its type is the first's."""

    items: list[Expr]


@dataclass(eq=False)
class RingField(Expr):
    ring: Expr  # a Var of type Ring
    name: str  # stage, phase


@dataclass(eq=False)
class Call(Expr):
    """A value-returning row of the op table; static arguments are Python values."""

    op: Op
    args: list[Any]


@dataclass(eq=False)
class CallDevice(Expr):
    """A call of a @tk.device helper, specialised for these argument types."""

    fn: Function
    args: list[Expr]


# -------------------------------------------------------------------------------- statements
@dataclass(eq=False)
class Stmt:
    loc: Loc


@dataclass(eq=False)
class Decl(Stmt):
    """The first assignment of a name; no `init`: a tile that starts undefined, shared memory."""

    sym: Sym
    init: Expr | None


@dataclass(eq=False)
class Assign(Stmt):
    target: Expr  # Var, Index, VecIndex, TileReg
    value: Expr


@dataclass(eq=False)
class AugAssign(Stmt):
    target: Expr
    op: str
    value: Expr


@dataclass(eq=False)
class Swap(Stmt):
    """a, b = b, a: all values are read before any name changes."""

    targets: list[Expr]
    values: list[Expr]


@dataclass(eq=False)
class Do(Stmt):
    """A statement row of the op table. partial: a block.sync() in code that differs by warp."""

    op: Op
    args: list[Any]
    partial: bool = False


@dataclass(eq=False)
class Advance(Stmt):
    """r.advance(): a ring's next stage; after the last one stage 0 of the other phase."""

    ring: Expr  # a Var of type Ring


@dataclass(eq=False)
class Eval(Stmt):
    """A call whose value is dropped (atomics, device helpers)."""

    value: Expr


@dataclass(eq=False)
class If(Stmt):
    cond: Expr
    then: list[Stmt]
    els: list[Stmt]


@dataclass(eq=False)
class For(Stmt):
    var: Sym
    lo: Expr
    hi: Expr
    step: int | Expr  # an Expr is block-uniform, and positive when it runs
    body: list[Stmt]


@dataclass(eq=False)
class While(Stmt):
    cond: Expr
    body: list[Stmt]


@dataclass(eq=False)
class Scope(Stmt):
    """A block of its own: one step of an unrolled tk.static_range."""

    body: list[Stmt]
    note: str = ""


@dataclass(eq=False)
class Break(Stmt):
    pass


@dataclass(eq=False)
class Continue(Stmt):
    pass


@dataclass(eq=False)
class Return(Stmt):
    value: Expr | None = None


@dataclass(eq=False)
class Assert(Stmt):
    cond: Expr
    message: str


@dataclass(eq=False)
class Print(Stmt):
    args: list[Any]  # str or Expr


@dataclass(eq=False)
class Breakpoint(Stmt):
    pass


# --------------------------------------------------------------------------------- functions
@dataclass(eq=False)
class Function:
    """A @tk.device helper for given argument types."""

    name: str
    params: list[Sym]
    body: list[Stmt]
    ret: Type | None
    file: str
    loc: Loc
    key: tuple = ()


@dataclass(eq=False)
class Kernel:
    """A kernel, specialised: array dtypes and dimensions fixed, compile-time values folded in."""

    name: str
    params: list[Sym]  # global arrays and scalars; compile-time parameters are gone
    body: list[Stmt]
    threads: tuple[int, int, int]
    file: str
    loc: Loc
    functions: list[Function]
    shared: list[Sym]
    shared_bytes: int
    consts: dict[str, Any]
    arch: int = 75  # the smallest architecture it runs on
    arch_loc: Loc | None = None
    captures: dict[tuple[str, ...], Any] = field(default_factory=dict)  # module constants it used
    helpers: dict[Any, dict[tuple[str, ...], Any]] = field(
        default_factory=dict
    )  # theirs, by function

    @property
    def nthreads(self) -> int:
        return self.threads[0] * self.threads[1] * self.threads[2]

    @property
    def warps(self) -> int:
        return -(-self.nthreads // 32)


def children(node: Expr | Stmt) -> Iterator[Any]:
    """The IR nodes directly below `node`, statements of bodies included, in source order."""
    for v in vars(node).values():
        if isinstance(v, (Expr, Stmt)):
            yield v
        elif isinstance(v, list):
            for x in v:
                if isinstance(x, (Expr, Stmt)):
                    yield x


def walk(nodes: list[Stmt] | Expr | Stmt) -> Iterator[Any]:
    """All nodes below, in source order; does not enter called device functions."""
    todo = list(nodes) if isinstance(nodes, list) else [nodes]
    for n in todo:
        yield n
        for c in children(n):
            yield from walk(c)


def digest(k: Kernel) -> str:
    """A hash of what a kernel does: its IR without places, so that moving its text changes nothing.

    Recordings of measured runs are keyed by it.
    """
    ids: dict[Any, int] = {}

    def dump(x: Any) -> str:
        if isinstance(x, (Sym, Function)):
            new = x not in ids
            n = ids.setdefault(x, len(ids))
            if not new:
                return f"#{n}"
            if isinstance(x, Sym):
                alias = dump(x.alias_of) if x.alias_of else ""
                return f"#{n}:{x.name}:{x.type!r}:{x.storage}:{x.offset}:{alias}"
            return f"#{n}:{x.name}({dump(x.params)}){dump(x.body)}"
        if isinstance(x, (Expr, Stmt)):
            skip = ("loc", "uni", "nonneg", "note", "message", "partial")
            parts = ",".join(dump(v) for k, v in vars(x).items() if k not in skip)
            return f"{type(x).__name__}({parts})"
        if isinstance(x, (list, tuple)):
            return f"[{','.join(map(dump, x))}]"
        if hasattr(x, "intrinsic") and hasattr(x, "cpp"):
            return x.name + (str(x.intrinsic[0]) if x.intrinsic else "")
        return repr(x)

    text = f"{dump(k.params)}{k.threads}{dump(k.body)}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]
