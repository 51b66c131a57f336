"""Statements of the header library in a walk: which events loads, products and waits become.

Memory is moves.py's, control flow walk.py's.
"""

from __future__ import annotations

from typing import Any

from tklearn.lang import ir
from tklearn.lang.types import RT, RV, Regs
from tklearn.sim.timing import program as P
from tklearn.sim.timing.costs import registers
from tklearn.sim.timing.moves import Moves, bytes_of
from tklearn.sim.timing.values import Global, Place, _first


class Operations(Moves):
    """Moves, and the statements that are calls."""

    def _settle(self, line: int) -> tuple[int, ...]:
        raise NotImplementedError

    def s_Do(self, s: ir.Do, m: Any) -> Any:
        op, line = s.op, s.loc.line
        args = [self.value(a) if isinstance(a, ir.Expr) else a for a in s.args]
        types = [a.type if isinstance(a, ir.Expr) else None for a in s.args]
        do = getattr(self, "d_" + op.effect, None)
        if do is None:
            self.math += 1
            self._settle(line)
        else:
            do(op, s, args, types, line)
        self.reads = set()
        return m

    def _written(self, e: Any, n: int) -> None:
        if isinstance(e, ir.Var):
            self.made[e.sym] = (n,)

    def d_fill(self, op: Any, s: ir.Do, args: list[Any], types: list[Any], line: int) -> None:
        dst = types[0]
        if op.name == "warp.copy":
            self.reads = set(self.made.get(s.args[1].sym, ())) if _named(s.args[1]) else self.reads
            self.work(self.costs.convert(types[1], dst))
            made = self._settle(line)
        else:
            if op.intrinsic is None:
                self.math += registers(dst) / (1 if dst.dtype.itemsize == 4 else 2)
            made = ()
        if _named(s.args[0]):
            self.made[s.args[0].sym] = made

    def d_mask(self, op: Any, s: ir.Do, args: list[Any], types: list[Any], line: int) -> None:
        self.work(self.costs.of("tril", registers(types[0])))
        self._written(s.args[0], self.emit(self.event(P.WORK, line)))

    def d_load(self, op: Any, s: ir.Do, args: list[Any], types: list[Any], line: int) -> None:
        dst = types[0]
        if op.name == "warp.ldmatrix":
            self.math += 2
            made = self.event(P.SHARED, line)
            made.shared = types[0].n / 2
            made.chain = self.costs.rates.latency["shared"]
            self._written(s.args[0], self.emit(made))
            return
        if not isinstance(dst, RT | RV):
            self.copy("load", dst, args[1], args[2], self._threads(op), line)
            return
        self.reads -= set(self.made.get(s.args[0].sym, ())) if _named(s.args[0]) else set()
        mem, at = self._sixteen(op, args[1], args[2], dst)
        if isinstance(mem, Global):
            made = self.global_tile(P.LOAD, mem, at, dst, line)
        else:
            made = self.shared_tile("ld", mem, dst, line)
        self._written(s.args[0], self.emit(made))

    def d_store(self, op: Any, s: ir.Do, args: list[Any], types: list[Any], line: int) -> None:
        src = types[1]
        if not isinstance(src, RT | RV):
            self.copy("store", src, args[0], args[2], self._threads(op), line)
            return
        mem, at = self._sixteen(op, args[0], args[2], src)
        if isinstance(mem, Global):
            self.emit(self.global_tile(P.STORE, mem, at, src, line))
        else:
            self.emit(self.shared_tile("st", mem, src, line))

    def _sixteen(self, op: Any, mem: Any, at: Any, t: Any) -> tuple[Any, Any]:
        """A warp's 16 rows of what a warpgroup moves."""
        if op.scope != "group":
            return mem, at
        if isinstance(mem, Global):
            return mem, (*at[:-2], at[-2] * (64 // t.rows) + self.warp % 4, at[-1])
        return Place(mem.type, mem.key, t.rows * (self.warp % 4), 0), at

    def _threads(self, op: Any) -> int:
        return {"warp": 32, "group": 128}.get(op.scope, self.spec.nthreads)

    def d_load_async(self, op: Any, s: ir.Do, args: list[Any], types: list[Any], line: int) -> None:
        self.copy("async", types[0], args[1], args[2], self._threads(op), line)

    def d_async_group(
        self, op: Any, s: ir.Do, args: list[Any], types: list[Any], line: int
    ) -> None:
        if op.name == "commit_group":
            self.meet(P.COMMIT, line, None)
        else:
            self.meet(P.WAIT_COPIES, line, args[0])

    def d_sync(self, op: Any, s: ir.Do, args: list[Any], types: list[Any], line: int) -> None:
        if op.name == "warp.sync":
            self.math += 1
        elif args:
            self.meet(P.NAMED, line, (int(_first(args[0])), args[1] // 32))
        else:
            self.meet(P.SYNC, line, None)

    def d_named(self, op: Any, s: ir.Do, args: list[Any], types: list[Any], line: int) -> None:
        if op.name == "warpgroup.sync":
            self.meet(P.NAMED, line, (int(_first(args[0])), 4))
        else:
            kind = P.NAMED_ARRIVE if op.name == "block.arrive" else P.NAMED
            self.meet(kind, line, (int(_first(args[0])), args[1] // 32))

    def d_mma(self, op: Any, s: ir.Do, args: list[Any], types: list[Any], line: int) -> None:
        if isinstance(types[0], Regs):
            self.math += 1
            made = self.event(P.MMA, line)
            made.tensor = self.costs.rates.mma
            made.chain = self.costs.rates.latency["mma"]
        else:
            turned = op.name.endswith("Bt")
            made = self.mma(types[0], types[1], "_At" in op.name, turned, line)
        self._written(s.args[0], self.emit(made))

    def d_wgmma(self, op: Any, s: ir.Do, args: list[Any], types: list[Any], line: int) -> None:
        self.wgmma(args, types, line)
        for a in s.args[:2]:
            if _named(a) and isinstance(a.type, RT):
                self.made.pop(a.sym, None)  # whoever reads it has waited for the group

    def d_wgmma_group(
        self, op: Any, s: ir.Do, args: list[Any], types: list[Any], line: int
    ) -> None:
        if op.name.endswith("commit_group"):
            self.meet(P.WG_COMMIT, line, None)
        elif op.name.endswith("async_wait"):
            self.meet(P.WG_WAIT, line, args[0])

    def d_sem(self, op: Any, s: ir.Do, args: list[Any], types: list[Any], line: int) -> None:
        key = args[0].key
        if op.name == "init_semaphore":
            self.meet(P.INIT, line, (key, int(_first(args[1]))))
        elif op.name == "arrive":
            self.meet(P.ARRIVE, line, (key, int(_first(args[1] or 1)), 0))
        elif op.name == "tma.expect":
            self.meet(P.ARRIVE, line, (key, 1, sum(bytes_of(x.type) for x in args[1])))
        elif op.name == "tma.expect_bytes":
            self.meet(P.ARRIVE, line, (key, 1, int(_first(args[1]))))

    def d_wait(self, op: Any, s: ir.Do, args: list[Any], types: list[Any], line: int) -> None:
        self.meet(P.WAIT, line, (args[0].key, int(_first(args[1]))))

    def d_tma_load(self, op: Any, s: ir.Do, args: list[Any], types: list[Any], line: int) -> None:
        self.tma(True, types[0], args[1], args[2], args[3], line)

    def d_tma_store(self, op: Any, s: ir.Do, args: list[Any], types: list[Any], line: int) -> None:
        self.tma(False, types[1], args[0], args[2], None, line)

    def d_tma_group(self, op: Any, s: ir.Do, args: list[Any], types: list[Any], line: int) -> None:
        if "wait" in op.name:
            self.meet(P.WAIT_STORES, line, (args[0], "read" in op.name))


def _named(e: Any) -> bool:
    return isinstance(e, ir.Var)
