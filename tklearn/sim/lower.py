"""The IR of a kernel as Python source nodes: a generator a kernel, a function a helper.

The code is compiled under the learner's file name with the learner's line and column on every node,
so that tracebacks and the debugger show the kernel itself. Local names are the learner's; names of
the simulator start with an underscore: `_w` the warp, `_m*` masks over (block, lane), `_s*` places.

Control flow has two forms. Plain: the condition is one value for the warp in all blocks of the
batch (or the body holds what a mask cannot express, and batching.py has seen to it that it is one
value). Masked: both branches run, each for its lanes. This file knows the IR and the names of
run-time functions, and no values.
"""

from __future__ import annotations

import ast
from typing import Any

from tklearn.lang import ir, ops
from tklearn.lang.types import RT, RV, Coord, Regs, Ring, Scalar, Vec
from tklearn.sim.batching import Shape, bodies, heads, jumps
from tklearn.sim.lower_expr import Expressions, Site, call, const, located, name, tup
from tklearn.sim.rings import Stages, step_of


class Lowered:
    """A kernel ready to run. `fn(warp, *params)` is the generator; `sites` index messages."""

    def __init__(self, kernel: ir.Kernel, runtime: dict[str, Any], big_grid: bool) -> None:
        self.kernel, self.shape = kernel, Shape(kernel)
        self.sites: list[Site] = []
        ns: dict[str, Any] = {**runtime, "_kernel": kernel}
        todo: list[tuple[str, Any]] = [("_kernel_" + kernel.name, kernel)]
        done: dict[int, str] = {}
        while todo:
            fname, fn = todo.pop()
            low = Lowering(ns, self.sites, self.shape, big_grid, todo, done)
            tree = low.module(fname, fn)
            exec(compile(tree, fn.file, "exec"), ns)
        self.fn = ns["_kernel_" + kernel.name]
        self.namespace = ns


class Loop:
    """Where break and continue go; `obj` is None for a plain loop."""

    def __init__(self, obj: str | None) -> None:
        self.obj = obj
        self.inner_masked = False  # between here and the loop there is a masked If


class Lowering(Expressions):
    """Statements of one function."""

    def __init__(
        self,
        ns: dict,
        sites: list[Site],
        shape: Shape,
        big_grid: bool,
        todo: list,
        done: dict[int, str],
    ) -> None:
        super().__init__(ns, sites, shape, big_grid)
        self.todo, self.done = todo, done
        self.plain: dict[int, bool] = {}
        self.level = 0
        self.declared: dict[int, int] = {}
        self.loops: list[Loop] = []
        self.masked_return = False

    def function(self, fn: ir.Function) -> str:
        if id(fn) not in self.done:
            self.done[id(fn)] = f"_{fn.name}_{len(self.done)}"
            self.todo.append((self.done[id(fn)], fn))
        return self.done[id(fn)]

    # ---------------------------------------------------------------------------- functions
    def module(self, fname: str, fn: ir.Kernel | ir.Function) -> ast.Module:
        self.fn, self.is_kernel = fn, isinstance(fn, ir.Kernel)
        self._single_assignments(fn.body)
        self.masked_return = self._masked_jump(fn.body, "return")
        params = ["_w", *([] if self.is_kernel else ["_m0"])]
        for p in fn.params:
            self.declared[id(p)] = 0
            params.append(self.local(p))
        body: list[ast.stmt] = []
        if self.is_kernel:
            body.append(self.set("_m0", ast.Attribute(name("_w"), "mask", ast.Load())))
        if self.masked_return:
            body += [self.set("_ret", const(False)), self.set("_rv", const(None))]
        body += self.block(fn.body, "_m0")
        if self.masked_return and not self.is_kernel:
            body.append(ast.Return(name("_rv")))
        if isinstance(fn, ir.Kernel) or self.shape.yields(fn):
            body += [ast.Return(None), ast.Expr(ast.Yield(None))]  # makes it a generator
        args = ast.arguments([], [ast.arg(p) for p in params], None, [], [], None, [])
        make: dict[str, Any] = {"type_params": []} if hasattr(ast, "TypeAlias") else {}
        node = ast.FunctionDef(fname, args, body or [ast.Pass()], [], None, None, **make)
        return located(ast.Module([located(node, fn.loc)], []), fn.loc)

    def _single_assignments(self, body: list) -> None:
        """Ranges of names that are assigned once."""
        changed = {
            id(n.target.sym)
            for n in ir.walk(body)
            if isinstance(n, (ir.Assign, ir.AugAssign)) and isinstance(n.target, ir.Var)
        }
        changed |= {
            id(t.sym)
            for n in ir.walk(body)
            if isinstance(n, ir.Swap)
            for t in n.targets
            if isinstance(t, ir.Var)
        }
        for n in ir.walk(body):
            if isinstance(n, ir.Decl) and n.init is not None and id(n.sym) not in changed:
                if isinstance(n.sym.type, Scalar) and n.sym.type.dtype.name == "i32":
                    self.ranges[id(n.sym)] = self.range(n.init)
            elif isinstance(n, ir.For):
                lo, hi = self.range(n.lo), self.range(n.hi)
                up = isinstance(n.step, ir.Expr) or n.step > 0
                self.ranges[id(n.var)] = (
                    (lo[0], max(lo[0], hi[1] - 1)) if up else (min(hi[0] + 1, lo[1]), lo[1])
                )

    # --------------------------------------------------------------------------- statements
    def block(self, stmts: list, m: str) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        for i, s in enumerate(stmts):
            nodes = getattr(self, "s_" + type(s).__name__)(s, m)
            out += [located(n, s.loc) for n in nodes]
            if isinstance(s, (ir.Return, ir.Break, ir.Continue)):
                return out  # nobody reaches the rest
            if isinstance(s, (ir.If, ir.For, ir.While, ir.Scope)) and self._leaves_masked(s):
                out.append(located(self._shrink(m), s.loc))
                rest = self.block(stmts[i + 1 :], m)
                if rest:
                    test = ast.Compare(name(m), [ast.IsNot()], [const(False)])
                    out.append(located(ast.If(test, rest, []), s.loc))
                return out
        return out

    def _shrink(self, m: str) -> ast.stmt:
        gone: list[ast.expr] = [name("_ret")] if self.masked_return else []
        if self.loops and self.loops[-1].obj:
            obj = self.loops[-1].obj
            gone += [ast.Attribute(name(obj), a, ast.Load()) for a in ("brk", "cnt")]
        return self.set(m, call("_minus", name(m), *gone))

    def _leaves_masked(self, s: Any) -> bool:
        """Whether lanes may have left the enclosing statements inside `s`, under a mask."""
        if self.masked_return and "return" in jumps([s]):
            return True
        return any(self._masked_jump([s], k) for k in ("break", "continue"))

    def _plain_here(self, s: Any) -> bool:
        """Whether this may be a Python loop: a return in it must be able to leave the function."""
        return self.plain_loop(s) and (self.level == 0 or "return" not in jumps(s.body))

    def _masked_jump(self, stmts: list, kind: str, masked: bool = False) -> bool:
        """Whether a jump of this kind leaves `stmts` from under a masked If or a masked loop."""
        for s in stmts:
            if masked and type(s).__name__.lower() == kind:
                return True
            loop = isinstance(s, (ir.For, ir.While))
            if loop and kind != "return":
                continue
            inner = (
                masked
                or (isinstance(s, ir.If) and not self.plain_if(s))
                or (loop and not self.plain_loop(s))
            )
            if any(self._masked_jump(b, kind, inner) for b in bodies(s)):
                return True
        return False

    def plain_if(self, s: ir.If) -> bool:
        """Whether the condition is one value wherever this If runs."""
        uni, whole = s.cond.uni, self.shape.unmaskable
        if whole(s.then) or whole(s.els) or (uni.level <= ir.WARP and uni.deps == 0):
            return True
        kinds = jumps(s.then) | jumps(s.els)
        if uni.level > ir.WARP or not kinds:
            return False
        return whole(self.fn.body)  # batching.py made such conditions single

    def plain_loop(self, s: Any) -> bool:
        if id(s) not in self.plain:
            self.plain[id(s)] = False
            self.plain[id(s)] = self._plain_loop(s)
        return self.plain[id(s)]

    def _plain_loop(self, s: Any) -> bool:
        if any(self._masked_jump(s.body, k) for k in ("break", "continue", "return")):
            return False
        conds = heads(s)
        if all(c.uni.level <= ir.WARP and c.uni.deps == 0 for c in conds):
            return True
        return self.shape.unmaskable(s.body) or any(self.shape.unmaskable(c) for c in conds)

    @staticmethod
    def set(target: str, value: ast.expr) -> ast.stmt:
        return ast.Assign([ast.Name(target, ast.Store())], value)

    # ------------------------------------------------------------------------- assignments
    def s_Decl(self, s: ir.Decl, m: str) -> list[ast.stmt]:
        self.declared[id(s.sym)] = self.level
        t, n = s.sym.type, self.local(s.sym)
        if s.sym.storage == "shared":
            index = next(i for i, x in enumerate(self.ns["_kernel"].shared) if x is s.sym)
            shared = ast.Attribute(name("_w"), "shared", ast.Load())
            return [self.set(n, ast.Subscript(shared, const(index), ast.Load()))]
        if isinstance(t, (RT, RV)):
            first = [self.expr(s.init, m)] if s.init is not None else []
            return [self.set(n, call("_Tile", self.obj(t, "T"), const(s.sym.name), *first))]
        if isinstance(t, Ring):
            return [self.set(n, call(self.obj(Stages, "T"), const(t.n)))]
        if isinstance(t, Regs):
            return [
                self.set(n, ast.BinOp(ast.List([const(None)], ast.Load()), ast.Mult(), const(t.n)))
            ]
        assert s.init is not None
        value = self.expr(s.init, m)
        return [self.set(n, call("list", value) if isinstance(t, Vec) else value)]

    def s_Assign(self, s: ir.Assign, m: str) -> list[ast.stmt]:
        return self.store(s.target, self.expr(s.value, m), m)

    def store(self, target: ir.Expr, value: ast.expr, m: str) -> list[ast.stmt]:
        """Store a value of the target's type into a name, a register or memory."""
        if isinstance(target, ir.Var):
            n, t = self.local(target.sym), target.type
            if isinstance(t, (RT, RV)):
                return [ast.Assign([ast.Attribute(name(n), "a", ast.Store())], value)]
            if isinstance(t, Coord) or self.declared.get(id(target.sym), 0) == self.level:
                return [self.set(n, call("list", value) if isinstance(t, Vec) else value)]
            pick = "_sel_vec" if isinstance(t, Vec) else "_sel"
            return [self.set(n, call(pick, name(m), value, name(n)))]
        if isinstance(target, ir.TileReg):
            return [
                ast.Expr(
                    call(
                        "_set_tile_reg",
                        name("_w"),
                        self.box(target.tile, m),
                        const(target.i),
                        value,
                        name(m),
                        self.site(target),
                    )
                )
            ]
        assert isinstance(target, (ir.Index, ir.VecIndex))
        base = self.expr(target.base, m)
        if isinstance(target.base.type, (Regs, Vec)):
            return [
                ast.Expr(
                    call(
                        "_set_reg",
                        base,
                        self.expr(target.idx[0], m),
                        value,
                        name(m),
                        const(target.base.type.dtype.name),
                    )
                )
            ]
        at = tup([self.expr(i, m) for i in target.idx])
        if isinstance(target, ir.VecIndex):
            return [
                ast.Expr(
                    call(
                        "_vstore",
                        name("_w"),
                        base,
                        at,
                        const(target.n),
                        value,
                        name(m),
                        self.site(target),
                    )
                )
            ]
        return [ast.Expr(call("_store", name("_w"), base, at, value, name(m), self.site(target)))]

    def s_AugAssign(self, s: ir.AugAssign, m: str) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        target: ir.Expr = s.target
        if isinstance(target, ir.Index) and not isinstance(target.base.type, (Regs, Vec)):
            idx: list[ir.Expr] = []
            for i in target.idx:  # the index is evaluated once
                t = self.temp("i")
                out.append(self.set(t, self.expr(i, m)))
                sym = ir.Sym(t, i.type, "reg", i.loc)
                self.locals[id(sym)] = t
                self.ranges[id(sym)] = self.range(i)
                self.keep.append(sym)
                idx.append(ir.Var(i.type, i.loc, sym))
                idx[-1].uni = i.uni
            target = ir.Index(target.type, target.loc, target.base, idx)
        v = s.value
        whole: ir.Expr
        if (
            s.op == "+"
            and isinstance(target, ir.Index)
            and isinstance(v, ir.Binary)
            and v.op == "*"
            and (target.type.dtype.kind == "f")
        ):
            whole = ir.Fma(target.type, s.loc, v.a, v.b, target)
        else:
            whole = ir.Binary(target.type, s.loc, s.op, target, v)
        return out + self.store(target, self.expr(whole, m), m)

    def s_Swap(self, s: ir.Swap, m: str) -> list[ast.stmt]:
        temps = [self.temp() for _ in s.values]
        out = [self.set(t, self.expr(v, m)) for t, v in zip(temps, s.values)]
        for target, t in zip(s.targets, temps):
            out += self.store(target, name(t), m)
        return out

    # -------------------------------------------------------------------------- operations
    def s_Do(self, s: ir.Do, m: str) -> list[ast.stmt]:
        if s.op.name == "block.sync" and not s.args:
            wait = ast.Attribute(name("_w"), "barrier", ast.Load())
            return [ast.Expr(ast.Yield(call(wait, self.site(s), name(m))))]
        do = call(self.op_function(s), name("_w"), self.site(s), name(m), *self.args(s, m))
        if ops.blocks(s.op, s.args):
            return [ast.If(do, [ast.Expr(ast.Yield(None))], [])]
        return [ast.Expr(do)]

    def s_Advance(self, s: ir.Advance, m: str) -> list[ast.stmt]:
        return [ast.Expr(call(ast.Attribute(self.expr(s.ring, m), "advance", ast.Load())))]

    def s_Eval(self, s: ir.Eval, m: str) -> list[ast.stmt]:
        e = s.value
        if isinstance(e, ir.Call) and e.op.effect == "atomic":
            node = self.expr(e, m)
            node.keywords.append(located(ast.keyword("used", const(False)), s.loc))  # type: ignore[attr-defined]
            return [ast.Expr(node)]
        return [ast.Expr(self.expr(e, m))]

    def s_Assert(self, s: ir.Assert, m: str) -> list[ast.stmt]:
        seen: dict[str, ast.expr] = {}
        for n in ir.walk(s.cond):
            if isinstance(n, ir.Var) and isinstance(n.type, Scalar):
                seen[n.sym.name] = name(self.local(n.sym))
        values = tup([tup([const(k), v]) for k, v in seen.items()])
        return [
            ast.Expr(
                call(
                    "_assert",
                    name("_w"),
                    self.expr(s.cond, m),
                    name(m),
                    const(s.message),
                    values,
                    self.site(s),
                )
            )
        ]

    def s_Print(self, s: ir.Print, m: str) -> list[ast.stmt]:
        args = [self.expr(a, m) if isinstance(a, ir.Expr) else const(a) for a in s.args]
        return [ast.Expr(call("_print", name("_w"), name(m), self.site(s), *args))]

    def s_Breakpoint(self, s: ir.Breakpoint, m: str) -> list[ast.stmt]:
        return [ast.Expr(call("breakpoint"))]

    def s_Scope(self, s: ir.Scope, m: str) -> list[ast.stmt]:
        return self.block(s.body, m)

    # ------------------------------------------------------------------------ control flow
    def s_If(self, s: ir.If, m: str) -> list[ast.stmt]:
        if self.plain_if(s):
            then, els = self.block(s.then, m), self.block(s.els, m)
            return [ast.If(self.truth(s.cond, m), then or [ast.Pass()], els)]
        c, inner = self.temp("c"), self.temp("m")
        out = [self.set(c, self.expr(s.cond, m)), self.set(inner, call("_mand", name(m), name(c)))]
        out += self._masked_body(s.then, inner)
        if s.els:
            other = self.temp("m")
            out.append(self.set(other, call("_mnot", name(m), name(c))))
            out += self._masked_body(s.els, other)
        return out

    def _masked_body(self, stmts: list, m: str) -> list[ast.stmt]:
        was = self.loops[-1].inner_masked if self.loops else False
        if self.loops:
            self.loops[-1].inner_masked = True
        self.level += 1
        body = self.block(stmts, m)
        self.level -= 1
        if self.loops:
            self.loops[-1].inner_masked = was
        test = ast.Compare(name(m), [ast.IsNot()], [const(False)])
        return [ast.If(test, body or [ast.Pass()], [])]

    def s_For(self, s: ir.For, m: str) -> list[ast.stmt]:
        lo, hi = self.expr(s.lo, m), self.expr(s.hi, m)
        site, var = self.site(s), ast.Name(self.local(s.var), ast.Store())
        step: ast.expr
        if isinstance(s.step, ir.Expr):
            step = call(self.obj(step_of, "f"), name("_w"), self.expr(s.step, m), self.site(s.step))
        else:
            step = const(s.step)
        if self._plain_here(s):
            self.declared[id(s.var)] = self.level
            self.loops.append(Loop(None))
            body = self.block(s.body, m)
            self.loops.pop()
            it = call("_range", name("_w"), lo, hi, step, site)
            return [ast.For(var, it, body or [ast.Pass()], [])]
        obj, inner = self.temp("loop"), self.temp("m")
        out = [self.set(obj, call("_For", name("_w"), lo, hi, step, name(m), site))]
        body = [self.set(inner, ast.Attribute(name(obj), "m", ast.Load()))]
        body += self._loop_body(s, obj, inner)
        return [*out, ast.For(var, name(obj), body, [])]

    def _loop_body(self, s: Any, obj: str, inner: str) -> list[ast.stmt]:
        self.loops.append(Loop(obj))
        self.level += 1
        if isinstance(s, ir.For):
            self.declared[id(s.var)] = self.level
        body = self.block(s.body, inner)
        self.level -= 1
        self.loops.pop()
        return [located(b, s.loc) for b in body]

    def s_While(self, s: ir.While, m: str) -> list[ast.stmt]:
        site = self.site(s)
        turn = call("_turn", name("_w"), site)
        step: ast.stmt = ast.Expr(ast.Yield(turn) if self.shape.spins(s) else turn)
        if self._plain_here(s):
            self.loops.append(Loop(None))
            body = [step, *self.block(s.body, m)]
            self.loops.pop()
            return [ast.While(self.truth(s.cond, m), body, [])]
        obj, start, inner = self.temp("loop"), self.temp("m"), self.temp("m")
        begin = call(ast.Attribute(name(obj), "begin", ast.Load()))
        done = [ast.Compare(name(x), [ast.Is()], [const(False)]) for x in (start, inner)]
        body = [
            self.set(start, begin),
            ast.If(done[0], [ast.Break()], []),
            step,
            self.set(inner, call("_mand", name(start), self.expr(s.cond, start))),
            ast.If(done[1], [ast.Break()], []),
            ast.Assign([ast.Attribute(name(obj), "m", ast.Store())], name(inner)),
            *self._loop_body(s, obj, inner),
        ]
        return [self.set(obj, call("_While", name(m))), ast.While(const(True), body, [])]

    def s_Break(self, s: ir.Break, m: str) -> list[ast.stmt]:
        return self._jump("brk", ast.Break(), m)

    def s_Continue(self, s: ir.Continue, m: str) -> list[ast.stmt]:
        return self._jump("cnt", ast.Continue(), m)

    def _jump(self, attr: str, plain: ast.stmt, m: str) -> list[ast.stmt]:
        loop = self.loops[-1]
        if not loop.inner_masked:
            return [plain]
        return [self._leave(loop, attr, m), self.set(m, const(False))]

    @staticmethod
    def _leave(loop: Loop, attr: str, m: str) -> ast.stmt:
        assert loop.obj is not None
        had = ast.Attribute(name(loop.obj), attr, ast.Load())
        target = ast.Attribute(name(loop.obj), attr, ast.Store())
        return ast.Assign([target], call("_mor", had, name(m)))

    def s_Return(self, s: ir.Return, m: str) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        value = self.expr(s.value, m) if s.value is not None else None
        if value is not None and isinstance(s.value, ir.Var) and isinstance(s.value.type, (RT, RV)):
            value = call(
                ast.Attribute(value, "copy", ast.Load())
            )  # the caller's tile is another one
        if not self.masked_return:
            return [ast.Return(value)]
        if self.level == 0 and value is None:
            return [ast.Return(None)]
        if value is not None:
            first = ast.Compare(name("_rv"), [ast.Is()], [const(None)])
            t = self.temp()
            out.append(self.set(t, value))
            out.append(
                self.set(
                    "_rv", ast.IfExp(first, name(t), call("_sel", name(m), name(t), name("_rv")))
                )
            )
        if self.level == 0:
            return [*out, ast.Return(name("_rv"))]
        out.append(self.set("_ret", call("_mor", name("_ret"), name(m))))
        out += [self._leave(loop, "brk", m) for loop in self.loops if loop.obj]
        return [*out, self.set(m, const(False))]


__all__ = ["Lowered", "Site"]
