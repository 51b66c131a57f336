"""From a kernel's IR to what each warp of one block issues: statements and control flow.

A walk computes the integers that steer the kernel (indices, bounds, conditions) for the lanes of
each warp, and no values: no array is needed, only shapes. Where control flow depends on loaded
values, conditions are taken to hold, and the program says so. With a `Survey` the lanes are the
first lanes of many blocks instead, and only places in global memory are noted.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tklearn.lang import ir
from tklearn.lang.types import GL, RT, RV, Regs, Ring, Scalar, Semaphore, Shared, Vec
from tklearn.sim.timing import program as P
from tklearn.sim.timing.costs import Costs
from tklearn.sim.timing.moves import Survey
from tklearn.sim.timing.operations import Operations
from tklearn.sim.timing.program import HOISTED, MEETINGS, Event, Program
from tklearn.sim.timing.roles import signatures
from tklearn.sim.timing.values import Global, Place, _first

ndarray = np.ndarray
SHORT = 6  # the least number of turns in a lap
LONG = 3  # a loop of so many laps or more is cut
UNROLL = 4  # a loop of unknown length is unrolled so far
FETCHED = 16  # loads that the compiler moves before what uses them, at most


class Walker(Operations):
    """Walks one block."""

    def __init__(
        self,
        spec: ir.Kernel,
        grid: tuple[int, int, int],
        params: list[Any],
        block: tuple[Any, Any, Any],
        costs: Costs,
        laps: tuple[int, int] | None = None,
        survey: Survey | None = None,
        sectors: int = 1024,
        follow: int = 1,
    ) -> None:
        super().__init__()
        self.spec, self.costs, self.survey = spec, costs, survey
        self.follow = follow
        self.most = sectors  # that the L1 cache keeps for this warp
        self.laps = laps  # of how many laps a long loop runs, and one inside it; None: all of it
        self.lap, self.cut = lap_of(spec), 0
        self.lanes = 32 if survey is None else len(block[0])
        self.program = Program()
        self.params = params
        self.walked: dict[int, Any] = {}
        self.events: list[Event] = []
        self.order: list[int] = []
        self.loaded: dict[int, float] = {}
        self.stored: dict[int, float] = {}
        self.l1: dict[Any, int] = {}
        self.gathered = self.program.gathered
        self.brought, self.filling = {}, False
        self.tripped = [0.0, 0.0]
        self.times = 1.0  # how many more turns the outer long loop has than are walked
        self.cuts: list[tuple[int, int]] = []  # counts of loops, and the turns left out
        self.common = {f"blockIdx.{a}": b for a, b in zip("xyz", block, strict=True)}
        self.common |= {f"gridDim.{a}": n for a, n in zip("xyz", grid, strict=True)}
        self.common |= {f"blockDim.{a}": n for a, n in zip("xyz", spec.threads, strict=True)}

    def walk(self) -> Program:
        p = self.program
        seen: dict[Any, int] = {}  # how many warps of a kind were walked: the second stands for
        kept: dict[Any, int] = {}  # the rest, which find in the L1 what the first one brought
        for w, kind in enumerate(signatures(self.spec)):
            if seen.get(kind, 0) == 2 and self.survey is None:
                self.events, self.order, self.loaded, self.stored = self.walked[kept[kind]]
            else:
                self._start(w)
                self._block(self.spec.body, self.mask)
                self._rest(P.END, self.spec.loc.line)
                seen[kind], kept[kind] = seen.get(kind, 0) + 1, w
            self.walked[w] = self.events, self.order, self.loaded, self.stored
            p.warps.append(self.events)
            p.orders.append(self.order)
            for total, mine in ((p.loads, self.loaded), (p.stores, self.stored)):
                for a, b in mine.items():
                    total[a] = total.get(a, 0.0) + b
        p.filling = self.filling
        p.stretch = (self.tripped[0], self.tripped[1], self.times)
        return p

    def _start(self, w: int) -> None:
        tx, ty, _ = self.spec.threads
        t = np.arange(32 * w, 32 * w + 32)
        live = t < self.spec.nthreads
        self.warp = w
        self.mask = None if live.all() or self.survey is not None else live
        x, y, z = t % tx, t // tx % ty, t // (tx * ty)
        lane: Any = np.arange(32)
        self.specials = dict(self.common)
        if self.survey is not None:
            x, y, z, lane = x[0], y[0], z[0], 0
        for name, v in (("x", x), ("y", y), ("z", z)):
            same = not isinstance(v, ndarray) or bool((v == v[0]).all())
            self.specials[f"threadIdx.{name}"] = int(_first(v)) if same else v
        self.specials |= {
            "laneid": lane, "warpid": w, "warpgroup.groupid": w // 4, "warpgroup.warpid": w % 4,
            "warpgroup.laneid": lane + 32 * (w % 4),
        }  # fmt: skip
        self.env, self.made = {}, {}
        for p, v in zip(self.spec.params, self.params, strict=True):
            self.env[p] = v
        self.events, self.order = [], []
        self.first = {P.LOAD: 0, P.SHARED: 0}  # where hoisted events of a window go
        self.known = {P.LOAD: 0, P.SHARED: 0}  # events before this number are before the window
        self.fetched = {P.LOAD: 0, P.SHARED: 0}
        self.moved: set[int] = set()
        self.brought = {}
        self.loaded, self.stored = {}, {}
        self.math = self.xu = self.serial = 0.0
        self.reads = set()
        self.returned: Any = False

    # ---------------------------------------------------------------------------------- events
    def emit(self, e: Event) -> int:
        n = len(self.events)
        self.events.append(e)
        if e.sectors and self.survey is None:
            store = e.kind in (P.STORE, P.TMA_STORE, P.ATOMIC)
            where = self.stored if store else self.loaded
            where[e.array] = where.get(e.array, 0.0) + 32.0 * (e.sectors - e.hits)
            if e.kind == P.LOAD and sum(self.l1.values()) > self.most:
                self.l1.clear()
        kind = e.kind
        free = kind in HOISTED and not e.fixed
        if free and self.fetched[kind] < FETCHED and self._early(e, kind):
            at = self.first[kind]
            self.order.insert(at, n)
            self.moved.add(n)
            self.fetched[kind] += 1
            for k in self.first:
                self.first[k] += self.first[k] >= at
            return n
        self.order.append(n)
        if kind in (P.STORE, P.ATOMIC):
            self._close(P.LOAD)
        elif kind == P.WORK and e.shared:
            self._close(P.SHARED)
        elif kind in MEETINGS or kind == P.SYNC:
            self._close(P.LOAD)
            self._close(P.SHARED)
        return n

    def _early(self, e: Event, kind: int) -> bool:
        """Whether an event needs nothing that stands after the place for hoisted ones."""
        known = self.known[kind]
        return all(a < known or a in self.moved for a in e.after)

    def _close(self, kind: int) -> None:
        """What follows is not moved to before this point."""
        self.first[kind], self.known[kind] = len(self.order), len(self.events)
        self.fetched[kind] = 0

    def meet(self, kind: int, line: int, what: Any) -> None:
        if self.survey is None:
            e = self.event(kind, line)
            e.math += 1
            e.what = what
            self.emit(e)

    def _rest(self, kind: int, line: int) -> None:
        e = self.event(kind, line)
        self.emit(e)

    def _settle(self, line: int) -> tuple[int, ...]:
        """Ends a statement: its work becomes an event if anything waits for it."""
        if not self.reads or not (self.math or self.xu):
            made = tuple(self.reads)
            self.reads = set()
            self.chain = 0
            return made  # plain index arithmetic stays on account until the next event
        return (self.emit(self.event(P.WORK, line)),)

    # ------------------------------------------------------------------------------ statements
    def _block(self, stmts: list[ir.Stmt], m: Any) -> Any:
        """Runs statements for the lanes of m (None: all, False: none); who goes on after them."""
        for s in stmts:
            if m is False:
                return False
            self.mask = m
            m = getattr(self, "s_" + type(s).__name__)(s, m)
        return m

    def s_Decl(self, s: ir.Decl, m: Any) -> Any:
        t = s.sym.type
        if s.sym.storage == "shared":
            self.env[s.sym] = Place(t, (s.sym.name,))
        elif isinstance(t, Ring):
            self.env[s.sym] = (0, 0)
            self.made.pop(s.sym, None)
        elif s.init is None:
            self.env[s.sym] = None
            self.made.pop(s.sym, None)
        else:
            self._set(s.sym, s.init, None, s.loc.line)
        return m

    def _set(self, sym: ir.Sym, value: ir.Expr, m: Any, line: int) -> None:
        v = self.value(value)
        if isinstance(value.type, RT | RV) and isinstance(value, ir.Var):
            v = None
        made = self._settle(line)
        if made:
            self.made[sym] = made
        else:
            self.made.pop(sym, None)
        old = self.env.get(sym)
        if m is not None and isinstance(sym.type, Scalar) and old is not None:
            v = np.where(m, v, old)
        self.env[sym] = v

    def s_Assign(self, s: ir.Assign, m: Any) -> Any:
        if isinstance(s.target, ir.Var):
            self._set(s.target.sym, s.value, m, s.loc.line)
        else:
            self.value(s.value)
            self._store(s.target)
        return m

    def _store(self, target: Any) -> None:
        """A store of what was evaluated just now."""
        if isinstance(target, ir.TileReg):
            self._touch(target.tile, target.loc.line)
            return
        base = self.value(target.base)
        idx = [self.value(i) for i in target.idx]
        if isinstance(target.base.type, Regs | Vec):
            self._touch(target.base, target.loc.line)
            return
        n = target.n if isinstance(target, ir.VecIndex) else 1
        if n > 1:
            idx[-1] = idx[-1] * n
        self.store_element(target, base, idx, n)

    def _touch(self, e: Any, line: int) -> None:
        """Registers change: they wait for what they held, and for what was evaluated."""
        if isinstance(e, ir.Var):
            made = self._settle(line)
            self.made[e.sym] = tuple({*self.made.get(e.sym, ()), *made})[-4:]

    def s_AugAssign(self, s: ir.AugAssign, m: Any) -> Any:
        if isinstance(s.target, ir.Var):
            t = s.target.type
            if isinstance(t, Scalar):
                whole = ir.Binary(t, s.loc, s.op, s.target, s.value)
                whole.uni = s.target.uni | s.value.uni
                self._set(s.target.sym, whole, m, s.loc.line)
                return m
            self.value(s.target)
            self.value(s.value)
            self.work(self.costs.binary(s.op, t, t, s.value.type))
            self.made[s.target.sym] = self._settle(s.loc.line)
            return m
        self.value(s.target)
        self.value(s.value)
        self.work(self.costs.binary(s.op, s.target.type, s.target.type, s.value.type))
        self._store(s.target)
        return m

    def s_Swap(self, s: ir.Swap, m: Any) -> Any:
        values = [self.value(v) for v in s.values]
        made = self._settle(s.loc.line)
        for target, v in zip(s.targets, values, strict=True):
            if isinstance(target, ir.Var):
                self.env[target.sym] = v
                self.made[target.sym] = made
            else:
                self._store(target)
        return m

    def s_Advance(self, s: ir.Advance, m: Any) -> Any:
        ring: Any = s.ring
        stage, phase = self.env[ring.sym]
        n = ring.sym.type.n
        self.env[ring.sym] = (0, phase ^ 1) if stage + 1 == n else (stage + 1, phase)
        self.math += 2
        return m

    def s_Eval(self, s: ir.Eval, m: Any) -> Any:
        self.value(s.value)
        self._settle(s.loc.line)
        return m

    def s_Scope(self, s: ir.Scope, m: Any) -> Any:
        return self._block(s.body, m)

    def s_Assert(self, s: ir.Assert, m: Any) -> Any:
        return m

    s_Print = s_Breakpoint = s_Assert

    # ---------------------------------------------------------------------------- control flow
    def s_If(self, s: ir.If, m: Any) -> Any:
        c = self.value(s.cond)
        self._settle(s.loc.line)
        self.math += 1
        if s.cond.uni.deps & ir.DATA:
            self._assume(f"line {s.loc.line}: a condition on loaded values is taken to hold")
            return self._block(s.then, m)
        if type(c) is not ndarray:
            return self._block(s.then if c else s.els, m)
        c = np.broadcast_to(c, (self.lanes,))
        full = np.ones(self.lanes, bool) if m is None else m
        yes, no = full & c, full & ~c
        after = self._block(s.then, m if (yes == full).all() else yes) if yes.any() else False
        other = (self._block(s.els, no) if s.els else no) if no.any() else False
        return _union(after, other, m)

    def _assume(self, text: str) -> None:
        if text not in self.program.notes:
            self.program.notes.append(text)

    def s_For(self, s: ir.For, m: Any) -> Any:
        lo, hi = self.value(s.lo), self.value(s.hi)
        step = self.value(s.step) if isinstance(s.step, ir.Expr) else s.step
        self._settle(s.loc.line)
        if any(e.uni.deps & ir.DATA for e in (s.lo, s.hi)):
            self._assume(f"line {s.loc.line}: a loop over loaded bounds runs once")
            hi = lo + 1
        fixed = isinstance(s.hi, ir.Const) and isinstance(s.lo, ir.Const)
        first, last, step = int(np.min(lo)), int(np.max(hi)), int(_first(step))
        if step < 0:
            first, last = int(np.max(lo)), int(np.min(hi))
        count = max(-(-(last - first) // step), 0)
        varies = type(lo) is ndarray or type(hi) is ndarray
        run = self._laps(count)
        self.cut += run < count
        loop = {"broken": False}
        self.loops = [*getattr(self, "loops", []), loop]
        going: Any = m
        for k in range(run):
            if varies:
                at = lo + k * step
                inside = np.broadcast_to((at < hi) if step > 0 else (at > hi), (self.lanes,))
                now = inside if m is None else m & inside
                if not now.any():
                    break
                going = None if m is None and now.all() else now
                self.env[s.var] = at
            else:
                self.env[s.var] = first + k * step
            if not fixed:
                self.math += 2 * UNIFORM_LOOP
                if k % UNROLL == 0:
                    self._close(P.LOAD)
                    self._close(P.SHARED)
            self.made.pop(s.var, None)
            left = self._block(s.body, going)
            if left is False and loop["broken"]:
                break
        self.loops = self.loops[:-1]
        self.cut -= run < count
        return m if self.returned is False else _minus(m, self.returned, self.lanes)

    def _laps(self, count: int) -> int:
        """How often a loop of `count` turns is walked."""
        if self.survey is not None:
            return min(count, 2)
        if self.laps is None or self.cut > 1:
            return count
        # Loops of nearly one length (a producer's, a consumer's) lose equally many turns.
        out = next((o for c, o in self.cuts if abs(c - count) <= self.lap // 2), -1)
        if out < 0:
            out = (count // self.lap - 1) * self.lap if count >= LONG * self.lap else 0
            self.cuts.append((count, out))
        if not out:
            return count
        walked = count - out + self.lap * (self.laps[self.cut] - 1)
        self.tripped[self.cut] = max(self.tripped[self.cut], out / self.lap)
        if not self.cut:
            self.times = count / (count - out)
        return walked

    def s_While(self, s: ir.While, m: Any) -> Any:
        loop = {"broken": False}
        self.loops = [*getattr(self, "loops", []), loop]
        for k in range(1 << 12):
            c = self.value(s.cond)
            self._settle(s.loc.line)
            if s.cond.uni.deps & ir.DATA:
                self._assume(f"line {s.loc.line}: a loop on loaded values runs once")
                if k:
                    break
            elif type(c) is ndarray:
                now = np.broadcast_to(c, (self.lanes,)) & (True if m is None else m)
                if not now.any():
                    break
                self.mask = now
            elif not c or (self.survey is not None and k > 1):
                break
            left = self._block(s.body, self.mask)
            if left is False and (loop["broken"] or self.returned is not False):
                break
        self.loops = self.loops[:-1]
        return m if self.returned is False else _minus(m, self.returned, self.lanes)

    def s_Break(self, s: ir.Break, m: Any) -> Any:
        self.loops[-1]["broken"] = True
        return False

    def s_Continue(self, s: ir.Continue, m: Any) -> Any:
        return False

    def s_Return(self, s: ir.Return, m: Any) -> Any:
        if s.value is not None:
            self.result = self.value(s.value)
            self.result_made = self._settle(s.loc.line)
        full = np.ones(self.lanes, bool) if m is None else m
        self.returned = full if self.returned is False else self.returned | full
        return False

    def call_device(self, e: ir.CallDevice) -> Any:
        aliases = []
        for p, a in zip(e.fn.params, e.args, strict=True):
            reads, self.reads = self.reads, set()
            self.env[p] = self.value(a)
            made = tuple(self.reads)
            self.reads = reads
            if made:
                self.made[p] = made
            else:
                self.made.pop(p, None)
            if isinstance(a, ir.Var) and isinstance(a.type, RT | RV | Ring | Regs):
                aliases.append((p, a.sym))
        mask, was, loops = self.mask, self.returned, getattr(self, "loops", [])
        self.returned, self.result, self.result_made = False, None, ()
        self._block(e.fn.body, mask)
        self.mask, self.returned, self.loops = mask, was, loops
        for p, sym in aliases:  # by reference
            self.env[sym] = self.env[p]
            if p in self.made:
                self.made[sym] = self.made[p]
        self.reads.update(self.result_made)
        return self.result


UNIFORM_LOOP = 0.5  # slots of a loop's counter and branch that an unrolled loop keeps


def _union(a: Any, b: Any, all_of: Any) -> Any:
    """The lanes of two masks, None where that is all of `all_of`'s."""
    if a is False or b is False:
        return b if a is False else a
    if a is None or b is None:
        return None
    both = a | b
    return all_of if all_of is None and both.all() else both


def _minus(m: Any, gone: Any, lanes: int) -> Any:
    left = (np.ones(lanes, bool) if m is None else m) & ~gone
    return left if left.any() else False


def parameters(spec: ir.Kernel, arguments: list[Any]) -> list[Any]:
    """What a walk takes for the arguments: shapes (tuples) for arrays, numbers as they are."""
    out: list[Any] = []
    for i, (p, a) in enumerate(zip(spec.params, arguments, strict=True)):
        out.append(Global(i, tuple(a), p.type.dtype) if isinstance(p.type, GL) else a)
    return out


def depends_on_block(spec: ir.Kernel) -> int:
    """The axes of the grid on which a kernel's control flow depends (bits of ir.AXIS)."""
    bits = 0
    for body in (spec.body, *(f.body for f in spec.functions)):
        for n in ir.walk(body):
            if isinstance(n, ir.For):
                heads = [n.lo, n.hi]
            elif isinstance(n, ir.While | ir.If):
                heads = [n.cond]
            else:
                continue
            for h in heads:
                if isinstance(n, ir.If) and h.uni.level == ir.LANE:
                    continue  # an array's edge
                bits |= h.uni.deps & 7
    return bits


def lap_of(spec: ir.Kernel) -> int:
    """Turns by which a loop may be cut: rings of semaphores keep their stages and phases."""
    ring = 1
    for s in spec.shared:
        if isinstance(s.type, Shared) and isinstance(s.type.elem, Semaphore):
            ring = math.lcm(ring, 2 * math.prod(s.type.dims))
    return ring * -(-SHORT // ring) if ring <= 64 else SHORT
