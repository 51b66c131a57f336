"""Who agrees on a value (block, warp, lane), and on which grid axes it depends.

A fixpoint over the IR: values flow through assignments, and an assignment under a condition
inherits the condition's uniformity. Then the rules: warp operations need warp-uniform control flow
and operands, block operations block-uniform ones. block.sync is checked when it runs, so that the
report can name all sites. Also marks which arrays are read and written, and which whole numbers are
never negative.
"""

from __future__ import annotations

from typing import Any

from tklearn.lang import ir
from tklearn.lang import types as T
from tklearn.lang.errors import SourceError
from tklearn.lang.ir import AXIS, BLOCK, DATA, GROUP, LANE, SAME, WARP, Uni
from tklearn.lang.ops import blocks
from tklearn.lang.types import (
    GL,
    RT,
    RV,
    ST,
    SV,
    Regs,
    Ring,
    SArr,
    Scalar,
    Semaphore,
    Shared,
    Vec,
)

WARPS = {
    "laneid": LANE,
    "warpid": WARP,
    "warpgroup.groupid": GROUP,
    "warpgroup.warpid": WARP,
    "warpgroup.laneid": LANE,
}
ONCE = ("sem", "wait", "tma_load", "tma_store", "tma_group", "prefetch")  # not once a lane
REDUCTIONS = ("tma.store_add_async", "tma.store_min_async", "tma.store_max_async")
EVERY = DATA | AXIS["x"] | AXIS["y"] | AXIS["z"]
LEVEL = {
    BLOCK: "the same in the whole block",
    GROUP: "the same in each warpgroup",
    WARP: "the same in each warp",
    LANE: "different by lane",
}
BY = {GROUP: "warpgroup", WARP: "warp", LANE: "lane"}
# Scope of an operation: which control flow it needs, the code of its error, who does it together.
SCOPES = {
    "block": (BLOCK, "TK301", "{} is done by all threads of the block together"),
    "group": (GROUP, "TK303", "an incomplete warpgroup: {} is done by 4 warps together"),
    "warp": (WARP, "TK300", "{} is done by the 32 lanes of a warp together"),
}


def infer(k: ir.Kernel) -> None:
    """Fills in `uni` and `nonneg`; SourceError TK300 to TK302 where the rules are broken."""
    Infer(k).run()


class Infer:
    def __init__(self, k: ir.Kernel) -> None:
        self.k = k
        self.changed = False
        self.check = False
        self.entry: dict[ir.Function, Uni] = dict.fromkeys(k.functions, SAME)
        self.returned: dict[ir.Function, Uni] = dict.fromkeys(k.functions, SAME)
        self.loop: dict[Any, Uni] = {}
        self.depth: dict[ir.Sym, int] = {}
        self.bound: dict[ir.Sym, ir.Expr] = {}  # what a reference stands for
        self.entry_line: dict[ir.Function, int] = {}
        self.left_line: dict[Any, int] = {}
        self.columns = self._columns()

    def run(self) -> None:
        for s in ir.walk([*self.k.body, *(x for f in self.k.functions for x in f.body)]):
            if isinstance(s, ir.Decl):
                s.sym.nonneg = True
            elif isinstance(s, ir.For):
                s.var.nonneg = True
        for f in self.k.functions:
            for p in f.params:
                p.nonneg = True
        for self.check in (False, True):
            self.changed = True
            while self.changed:
                self.changed = False
                self.function(None, self.k.body)
                for f in self.k.functions:
                    self.function(f, f.body)

    def function(self, f: ir.Function | None, body: list[ir.Stmt]) -> None:
        self.f = f
        # Slot 0: who calls. Slot 1: who is left after the returns so far.
        self.ctx: list[Uni] = [self.entry[f] if f else SAME, SAME]
        self.lines = [self.entry_line.get(f, 0) if f else 0, 0]  # where each context comes from
        for p in f.params if f else self.k.params:
            self.depth[p] = 0
        self.loops: list[Any] = []
        self.block(body)

    def _columns(self) -> dict[ir.Sym, ir.Special]:
        """The names that hold threadIdx.x or warpid() and never anything else."""
        bodies = [self.k.body, *(f.body for f in self.k.functions)]
        every = [n for body in bodies for n in ir.walk(body)]
        found = {
            n.sym: n.init
            for n in every
            if isinstance(n, ir.Decl) and isinstance(n.init, ir.Special)
        }
        for n in every:
            targets = n.targets if isinstance(n, ir.Swap) else []
            if isinstance(n, (ir.Assign, ir.AugAssign)):
                targets = [n.target]
            for t in targets:
                if isinstance(t, ir.Var):
                    found.pop(t.sym, None)
        return found

    # --------------------------------------------------------------------------- contexts
    def here(self, since: int = 0) -> Uni:
        u = SAME
        for c in self.ctx[since:]:
            u = u | c
        return u

    def leave(self, key: Any, mark: int, line: int) -> None:
        """A break or return under conditions: the loop goes on with some lanes only."""
        u = self.here(mark)
        old = self.loop.get(key, SAME)
        if old | u != old:
            self.loop[key], self.left_line[key] = old | u, line
            self.changed = True

    def rest(self, slot: int, since: int, line: int) -> None:
        """From here on only the lanes that did not leave go on."""
        u = self.here(since)
        if self.ctx[slot] | u != self.ctx[slot]:
            self.ctx[slot], self.lines[slot] = self.ctx[slot] | u, line

    def enter(self, u: Uni, line: int) -> None:
        self.ctx.append(u)
        self.lines.append(line)

    def exit(self, n: int = 1) -> None:
        del self.ctx[-n:], self.lines[-n:]

    def block(self, stmts: list[ir.Stmt]) -> None:
        for s in stmts:
            getattr(self, "s_" + type(s).__name__)(s)

    def nested(self, cond: Uni, stmts: list[ir.Stmt], line: int) -> None:
        self.enter(cond, line)
        self.block(stmts)
        self.exit()

    # -------------------------------------------------------------------------- statements
    def grow(self, sym: ir.Sym, u: Uni, nonneg: bool) -> None:
        new = sym.uni | u
        if new != sym.uni or (sym.nonneg and not nonneg):
            sym.uni, sym.nonneg, self.changed = new, sym.nonneg and nonneg, True

    def s_Decl(self, s: ir.Decl) -> None:
        self.depth[s.sym] = len(self.ctx)
        if s.init is not None and s.sym.storage == "ref":
            self.bound[s.sym] = s.init
        if s.init is not None:
            self.grow(s.sym, self.e(s.init), s.init.nonneg)
            if isinstance(s.init.type, (RT, RV)):
                self.warp_only(s.init, "register tiles are worked on by whole warps")

    def s_Assign(self, s: ir.Assign) -> None:
        u = self.e(s.value)
        self.store(s.target, u, s.value.nonneg, s)

    def s_AugAssign(self, s: ir.AugAssign) -> None:
        u = self.e(s.value) | self.e(s.target)
        self.store(s.target, u, s.op in "+*//%&>>" and s.value.nonneg and s.target.nonneg, s)
        if isinstance(s.target, ir.Index):
            self.mark(s.target.base, "read")
        if isinstance(s.target.type, (RT, RV)) and isinstance(s.value.type, Scalar):
            self.operand(s.value, WARP, "a number combined with a tile")

    def store(self, target: ir.Expr, u: Uni, nonneg: bool, s: ir.Stmt) -> None:
        if isinstance(target, ir.Var):
            if isinstance(target.type, (RT, RV)):
                self.warp_only(s, "register tiles are worked on by whole warps")
            self.grow(target.sym, u | self.here(self.depth.get(target.sym, 0)), nonneg)
            self.e(target)
            return
        if isinstance(target, (ir.Index, ir.VecIndex)):
            for i in target.idx:
                self.e(i)
            self.e(target.base)
            self.mark(target.base, "written")

    def s_Swap(self, s: ir.Swap) -> None:
        values = [(self.e(v), v.nonneg) for v in s.values]
        for t, (u, n) in zip(s.targets, values):
            self.store(t, u, n, s)

    def s_Do(self, s: ir.Do) -> None:
        self.op(s, s.op, s.args)

    def s_Advance(self, s: ir.Advance) -> None:
        self.warp_only(s, "a ring belongs to a whole warp")
        assert isinstance(s.ring, ir.Var)
        self.turned(s.ring.sym, SAME)

    def turned(self, ring: ir.Sym, u: Uni) -> None:
        """A ring's stage depends on what decides whether it advances."""
        self.grow(ring, u | self.here(self.depth.get(ring, 0)), True)

    def s_Eval(self, s: ir.Eval) -> None:
        self.e(s.value)

    def s_If(self, s: ir.If) -> None:
        u = self.e(s.cond)
        self.nested(u, s.then, s.loc.line)
        self.nested(u, s.els, s.loc.line)

    def in_loop(self, s: Any, u: Uni, body: list[ir.Stmt]) -> None:
        # Who enters, who is left after breaks (earlier iterations too), who after continues.
        self.enter(u, s.loc.line)
        self.enter(self.loop.get(s, SAME), self.left_line.get(s, 0))
        self.enter(SAME, 0)
        self.loops.append((s, len(self.ctx)))
        self.block(body)
        self.loops.pop()
        self.exit(3)

    def s_For(self, s: ir.For) -> None:
        u = self.e(s.lo) | self.e(s.hi)
        up = True
        if isinstance(s.step, ir.Expr):
            u = u | self.e(s.step)
            self.operand(s.step, BLOCK, "the step of a range")
        else:
            up = s.step > 0
        self.depth[s.var] = len(self.ctx) + 3
        self.grow(s.var, u | self.loop.get(s, SAME), s.lo.nonneg and (up or s.hi.nonneg))
        self.in_loop(s, u, s.body)

    def s_While(self, s: ir.While) -> None:
        self.in_loop(s, self.e(s.cond), s.body)
        self.enter(self.loop.get(s, SAME), self.left_line.get(s, 0))
        self.e(s.cond)
        self.exit()

    def s_Scope(self, s: ir.Scope) -> None:
        self.block(s.body)

    def s_Break(self, s: ir.Break) -> None:
        key, mark = self.loops[-1]
        self.leave(key, mark, s.loc.line)

    def s_Continue(self, s: ir.Continue) -> None:
        mark = self.loops[-1][1]
        self.rest(mark - 1, mark, s.loc.line)

    def s_Return(self, s: ir.Return) -> None:
        if s.value is not None and self.f is not None:
            u = self.e(s.value) | self.here(1)
            if self.returned[self.f] | u != self.returned[self.f]:
                self.returned[self.f] = self.returned[self.f] | u
                self.changed = True
        for key, mark in self.loops:
            self.leave(key, mark, s.loc.line)
        self.rest(1, 2, s.loc.line)

    def s_Assert(self, s: ir.Assert) -> None:
        self.e(s.cond)

    def s_Print(self, s: ir.Print) -> None:
        for a in s.args:
            if isinstance(a, ir.Expr):
                self.e(a)

    def s_Breakpoint(self, s: ir.Breakpoint) -> None:
        pass

    # -------------------------------------------------------------------------- expressions
    def e(self, x: ir.Expr) -> Uni:
        x.uni = getattr(self, "e_" + type(x).__name__)(x)
        if self.alone(x.uni.level):
            x.uni = Uni(BLOCK, x.uni.deps)
        return x.uni

    def alone(self, level: int) -> bool:
        """Is the block's only warp, or only warpgroup, all that has to agree?"""
        return (level == WARP and self.k.warps == 1) or (level == GROUP and self.k.warps <= 4)

    def e_Const(self, x: ir.Const) -> Uni:
        x.nonneg = not isinstance(x.value, float) and x.value >= 0
        return SAME

    def e_Var(self, x: ir.Var) -> Uni:
        x.nonneg = x.sym.nonneg
        held = isinstance(x.type, (RT, RV, Regs, Vec))  # registers: their elements are asked
        return SAME if held else x.sym.uni

    def e_Special(self, x: ir.Special) -> Uni:
        x.nonneg = True
        tx, ty, tz = self.k.threads
        name, _, axis = x.name.partition(".")
        if name == "blockIdx":
            return Uni(BLOCK, AXIS[axis])
        if x.name in WARPS:
            return Uni(WARPS[x.name])
        if name == "threadIdx":
            size, below = {"x": (tx, 1), "y": (ty, tx), "z": (tz, tx * ty)}[axis]
            level = GROUP if below % 128 == 0 else WARP if below % 32 == 0 else LANE
            return SAME if size == 1 else Uni(level)
        return SAME

    def e_Unary(self, x: ir.Unary) -> Uni:
        u = self.e(x.a)
        x.nonneg = x.op == "not"
        self.tile_value(x)
        return u

    def e_Binary(self, x: ir.Binary) -> Uni:
        u = self.e(x.a) | self.e(x.b)
        counted = self.counted(x)
        if counted is not None:
            u = Uni(counted, u.deps)
        both = x.a.nonneg and x.b.nonneg
        x.nonneg = (
            both
            and x.op in ("+", "*", "//", "%", "&", "|", "^", ">>", "<<")
            or (x.op == "%" and x.b.nonneg)
            or (x.op == "&" and (x.a.nonneg or x.b.nonneg))
            or (x.op == "-" and isinstance(x.b, ir.Const) and least(x.a) >= x.b.value)
            or x.type == T.U32
        )
        self.tile_value(x, x.a, x.b)
        return u

    def counted(self, x: ir.Binary) -> int | None:
        """The level of threadIdx.x // 32, warpid() // 4 and the like."""
        if not isinstance(x.b, ir.Const) or x.op not in ("//", ">>"):
            return None
        n = x.b.value if x.op == "//" else 1 << min(x.b.value, 31)
        return self.whole(x.a, n)

    def whole(self, x: ir.Expr, n: int) -> int | None:
        """Who agrees on where x lies between multiples of n: x counts threads or warps."""
        what = x
        if isinstance(x, ir.Var):
            what = self.columns.get(x.sym, x)
        if not isinstance(what, ir.Special) or what.name not in ("threadIdx.x", "warpid"):
            return None
        tx, ty, tz = self.k.threads
        flat = ty * tz == 1 or what.name == "warpid"  # warps, unlike rows, are all numbered
        threads = n if what.name == "threadIdx.x" else 32 * n
        for level, size in ((GROUP, 128), (WARP, 32)):
            if threads % size == 0 and (flat or tx % size == 0):
                return level
        return None

    def e_Fma(self, x: ir.Fma) -> Uni:
        u = self.e(x.a) | self.e(x.b) | self.e(x.c)
        self.tile_value(x, x.a, x.b, x.c)
        return u

    def tile_value(self, x: ir.Expr, *operands: ir.Expr) -> None:
        if isinstance(x.type, (RT, RV)):
            self.warp_only(x, "register tiles are worked on by whole warps")
            for a in operands:
                if isinstance(a.type, Scalar):
                    self.operand(a, WARP, "a number combined with a tile")

    def e_Compare(self, x: ir.Compare) -> Uni:
        x.nonneg = True
        u = self.e(x.a) | self.e(x.b)
        for a, b, ops in ((x.a, x.b, ("<", ">=")), (x.b, x.a, (">", "<="))):
            if x.op in ops and isinstance(b, ir.Const) and b.type != T.F32:
                level = self.whole(a, b.value)  # whole warps are below it, or not
                if level is not None:
                    return Uni(level, u.deps)
        return u

    def e_Logic(self, x: ir.Logic) -> Uni:
        u = self.e(x.a)
        self.enter(u, x.loc.line)
        u = u | self.e(x.b)
        self.exit()
        x.nonneg = True
        return u

    def e_Select(self, x: ir.Select) -> Uni:
        u = self.e(x.cond)
        self.enter(u, x.loc.line)
        u = u | self.e(x.a) | self.e(x.b)
        self.exit()
        x.nonneg = x.a.nonneg and x.b.nonneg
        return u

    def e_Index(self, x: ir.Index) -> Uni:
        u = self.e(x.base)
        for i in x.idx:
            u = u | self.e(i)
        if isinstance(x.base.type, Shared):
            for i in x.idx:
                what = "semaphore" if isinstance(x.base.type.elem, Semaphore) else "shared tile"
                self.operand(i, WARP, f"the number that selects a {what}")
            return u
        if isinstance(x.base.type, (Regs, Vec)):
            return Uni(LANE, EVERY)
        self.mark(x.base, "read")
        x.nonneg = x.base.type.dtype.kind == "u"
        return u | Uni(BLOCK, DATA)

    def e_VecIndex(self, x: ir.VecIndex) -> Uni:
        u = self.e(x.base)
        for i in x.idx:
            u = u | self.e(i)
        self.mark(x.base, "read")
        return u | Uni(LANE, DATA)

    def e_TileReg(self, x: ir.TileReg) -> Uni:
        self.e(x.tile)
        return Uni(LANE, EVERY)

    def e_Dim(self, x: ir.Dim) -> Uni:
        self.e(x.base)
        x.nonneg = True
        return SAME

    def e_Cast(self, x: ir.Cast) -> Uni:
        u = self.e(x.a)
        whole = x.type == T.I64 or x.a.type in (T.BOOL, T.I32, x.type)  # others may wrap
        x.nonneg = (x.a.nonneg and whole and x.a.type != T.F32) or x.type == T.U32
        return u

    def e_Subtile(self, x: ir.Subtile) -> Uni:
        for i in (x.i, x.j):
            self.e(i)
            self.operand(i, WARP, "the place of a subtile")
        return self.e(x.base) | x.i.uni | x.j.uni

    def e_CoordExpr(self, x: ir.CoordExpr) -> Uni:
        u = SAME
        for i in x.items:
            u = u | self.e(i)
        return u

    def e_TupleExpr(self, x: ir.TupleExpr) -> Uni:
        for i in x.items:
            self.e(i)
        return Uni(LANE, EVERY)

    def e_TilesExpr(self, x: ir.TilesExpr) -> Uni:
        u = SAME
        for i in x.items:
            u = u | self.e(i)
        return u

    def e_RingField(self, x: ir.RingField) -> Uni:
        x.nonneg = True
        return self.e(x.ring)

    def e_Call(self, x: ir.Call) -> Uni:
        u = self.op(x, x.op, x.args)
        name = x.op.name
        tiles = any(isinstance(a, ir.Expr) and isinstance(a.type, (RT, RV)) for a in x.args)
        signs = [a.nonneg for a in x.args if isinstance(a, ir.Expr)]
        x.nonneg = (
            x.type == T.U32
            or (name == "max" and any(signs))
            or (name in ("abs", "min", "cdiv") and all(signs))
        )
        if x.op.effect == "atomic":
            return Uni(LANE, EVERY)
        if tiles:
            return Uni(WARP, EVERY) if isinstance(x.type, Scalar) else SAME
        if name in ("warp.shfl_up", "warp.shfl_down", "warp.shfl_xor"):
            return u | Uni(LANE)
        if name == "warp.shfl":
            return Uni(
                max(WARP, x.args[1].uni.level) if x.args[0].uni.level == LANE else u.level, u.deps
            )
        if name in ("warp.any", "warp.all", "warp.ballot", "warp.uniform"):
            return Uni(min(WARP, u.level) if u.level < LANE else WARP, u.deps)
        return u if x.op.intrinsic is None else u | Uni(LANE, EVERY)

    def e_CallDevice(self, x: ir.CallDevice) -> Uni:
        here = self.here()
        old = self.entry[x.fn]
        if old | here != old:
            self.entry[x.fn], self.changed = old | here, True
            self.entry_line[x.fn] = x.loc.line
        for p, a in zip(x.fn.params, x.args):
            self.grow(p, self.e(a), a.nonneg)
            if isinstance(p.type, Ring) and isinstance(a, ir.Var):
                self.turned(a.sym, p.uni)
            for flag in ("read", "written"):
                if getattr(p, flag):
                    self.mark(a, flag)
        return self.returned[x.fn]

    # ------------------------------------------------------------------------------- rules
    def op(self, at: Any, op: Any, args: list[Any]) -> Uni:
        u = SAME
        tiles = False
        if op.effect in ONCE and op.scope == "warp":  # before its operands: an 'if' tells on these
            most, code, why = SCOPES[op.scope]
            self.level(at, most, code, why.format(op.name), f"{op.name} acts once")
        for p, a in zip(op.params, args):
            if not isinstance(a, ir.Expr):
                continue
            u = u | self.e(a)
            tiles |= isinstance(a.type, (RT, RV))
            if isinstance(a.type, GL):
                self.mark(a, "written" if p.role == "dst" else "read")
                if op.name in REDUCTIONS:
                    self.mark(a, "read")
            if p.role == "ref":
                assert isinstance(a, ir.Index)
                self.mark(a.base, "read")
                if op.effect == "atomic":
                    self.mark(a.base, "written")
        if op.name == "block.sync" and not args:
            at.partial = any(c.level > BLOCK and not self.alone(c.level) for c in self.ctx)
            return u
        # Named barriers are for some of the block's warps.
        scope = "warp" if op.scope == "block" and blocks(op, args) else op.scope
        if scope == "lane" and tiles:
            scope = "warp"
        if scope in SCOPES:
            most, code, why = SCOPES[scope]
            self.level(at, most, code, why.format(op.name))
            self.operands(op, args, most, tiles or blocks(op, args))
        return u

    def operands(self, op: Any, args: list[Any], most: int, numbers: bool) -> None:
        """Those who do an operation together agree on where, on tiles, and on its `numbers`."""
        for p, a in zip(op.params, args):
            if not isinstance(a, ir.Expr):
                continue
            number = p.role in ("value", "index", "src") and isinstance(a.type, Scalar)
            if (
                p.role == "coord"
                or (numbers and number)
                or (p.name in ("delta", "mask") and op.effect == "shuffle")
            ):
                self.operand(a, most, f"'{p.name}' of {op.name}")
            elif most < WARP and isinstance(a.type, (ST, SV)):
                self.operand(a, most, f"the tile of {op.name}")

    def mark(self, base: ir.Expr, flag: str) -> None:
        """Notes that the array behind `base` is read or written; references are followed."""
        while True:
            if isinstance(base, (ir.Index, ir.Subtile)):
                base = base.base
            elif isinstance(base, ir.Var) and base.sym in self.bound:
                base = self.bound[base.sym]
            else:
                break
        if (
            isinstance(base, ir.Var)
            and isinstance(base.type, (GL, ST, SV, SArr, Shared))
            and not getattr(base.sym, flag)
        ):
            setattr(base.sym, flag, True)
            self.changed = True

    def warp_only(self, at: Any, why: str) -> None:
        self.level(at, WARP, "TK300", why)

    def level(self, at: Any, most: int, code: str, why: str, once: str = "") -> None:
        if not self.check:
            return
        seen = [BLOCK if self.alone(c.level) else c.level for c in self.ctx]
        slot = next((i for i, level in enumerate(seen) if level > most), None)
        if slot is None:
            return
        some, line = "some lanes" if LANE in seen else "some warps", self.lines[slot]
        if slot == 0 and self.f is not None:
            hint = f"'{self.f.name}' is called at line {line}, which {some} reach"
        else:
            hint = f"line {line} decides by {BY[seen[slot]]}: move this out of its block, or "
            hint += "before it"
        if once and seen[slot] == LANE:
            hint = f"{once} for the whole warp: line {line} needs no 'if' by lane"
            if self.k.warps > 1:
                hint += "; 'if warpid() == 0' chooses one warp of the block"
        raise SourceError(code, f"{why}, but this code is reached by {some} only", at.loc, hint)

    def operand(self, a: ir.Expr, most: int, what: str) -> None:
        if not self.check or a.uni.level <= most:
            return
        hint = ""
        if a.uni.level == LANE:
            hint = "warp.uniform(x) asserts that all lanes agree; warpid() is the same in each warp"
        elif most == BLOCK:
            hint = "blockIdx, arguments and loop counters are the same for all warps of a block"
        elif any(isinstance(n, ir.RingField) for n in ir.walk(a)):
            hint = "give each role a ring of its own: r = tk.ring(n) inside its branch"
        elif most == GROUP:
            hint = "warpgroup.groupid() is the same in each warpgroup, as is what the block shares"
        raise SourceError(
            "TK302", f"{what} must be {LEVEL[most]}, but it is {LEVEL[a.uni.level]}", a.loc, hint
        )


def least(e: ir.Expr) -> float:
    """A bound from below: what k + STAGES - 1 needs to be seen as never negative."""
    if isinstance(e, ir.Const) and e.type != T.F32:
        return e.value
    if isinstance(e, ir.Binary) and e.op == "+":
        return least(e.a) + least(e.b)
    if isinstance(e, ir.Binary) and e.op == "-" and isinstance(e.b, ir.Const):
        return least(e.a) - e.b.value
    return 0 if e.nonneg else float("-inf")
