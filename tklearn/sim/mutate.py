"""What if one line of synchronisation were wrong? A test of kernels, and of the simulator itself.

`mutants(kernel)` makes a copy of a kernel for each way to delete or weaken one barrier, wait,
fence, expect, commit or arrive; `judge` runs a mutant under many schedules and says whether the
simulator reports it, and where, or whether the line does nothing: then explore.py must show that no
schedule of a small launch has a fault or another result. A mutant that is neither is a hole, in a
kernel's argument or in the simulator. To try it on a kernel of your own:

    from tklearn.sim.mutate import study
    for verdict in study(kernel.ir(a, b, c), (1, 1, 1), [a, b, c]):
        print(verdict)

Statements that come from one place of the source (unrolled loops, helpers) change together, as if
the learner had edited the line. Mutants keep the learner's lines. This file knows the IR.
"""

from __future__ import annotations

import copy
import dataclasses
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tklearn.lang import ir, ops
from tklearn.lang.errors import Loc, Race, TkError
from tklearn.lang.types import GL, Scalar, i32
from tklearn.sim.explore import explore
from tklearn.sim.machine import simulate

Change = Callable[[ir.Do], ir.Do | None]  # None: delete the statement

# Schedules under which a mutant is run before all of them are: (schedule, seed, delayed warp).
TRIALS = (
    ("rotate", 0, None), ("reverse", 0, None), ("random", 0, None), ("random", 1, None),
    ("random", 2, None), ("rotate", 0, 0), ("rotate", 0, -1),
)  # fmt: skip
NAMED = ("warpgroup.sync", "block.sync", "block.arrive")
# Two accesses whose order the changed line gave: the report names these two lines.
PAIRS = ("TK500", "TK501", "TK502", "TK503", "TK508", "TK520", "TK521", "TK525", "TK526")


@dataclass(frozen=True)
class Mutant:
    """A kernel with one synchronising line changed.

    objects: names that the line acts on. guards: lines that it orders, in the same block of code:
    what follows a wait, what comes before an arrival, both for a barrier.
    """

    loc: Loc
    change: str
    objects: tuple[str, ...]
    guards: frozenset[int]
    kernel: ir.Kernel

    @property
    def line(self) -> int:
        return self.loc.line

    def __str__(self) -> str:
        return f"line {self.line}: {self.loc.text().split('  #')[0].strip()}  [{self.change}]"


@dataclass(frozen=True)
class Verdict:
    """kind: "reported", "harmless" or "unexplained". code, lines: of the report. why: in words."""

    mutant: Mutant
    kind: str
    code: str = ""
    lines: tuple[int, ...] = ()
    why: str = ""

    def __str__(self) -> str:
        tail = f" {self.code} lines {', '.join(map(str, self.lines))}" if self.code else ""
        return f"{self.kind:12}{self.mutant}{tail}: {self.why}"


# ----------------------------------------------------------------------------- what can be wrong
def _with(do: ir.Do, i: int, value: Any) -> ir.Do:
    return ir.Do(do.loc, do.op, [*do.args[:i], value, *do.args[i + 1 :]])


def _number(n: int, loc: Loc) -> ir.Expr:
    e = ir.Const(Scalar(i32), loc, n)
    e.nonneg = n >= 0
    return e


def _binary(op: str, a: ir.Expr, n: int) -> ir.Expr:
    e = ir.Binary(Scalar(i32), a.loc, op, a, _number(n, a.loc))
    e.uni, e.nonneg = a.uni, True
    return e


def _plus(i: int, n: int) -> Change:
    """Argument i (an index, or a compile-time number) with n added."""

    def change(do: ir.Do) -> ir.Do:
        x = do.args[i] if i < len(do.args) else 1
        if isinstance(x, ir.Const):
            return _with(do, i, _number(x.value + n, x.loc))
        if isinstance(x, ir.Expr):
            return _with(do, i, _binary("+", x, n))
        return _with(do, i, (1 if x is None else x) + n)

    return change


def _set(i: int, value: Any) -> Change:
    return lambda do: _with(do, i, value)


def _other_phase(do: ir.Do) -> ir.Do:
    return _with(do, 1, _binary("^", do.args[1], 1))


def _fewer_bytes(do: ir.Do) -> ir.Do:
    """The last tile is forgotten; of a single tile, half."""
    tiles = do.args[1]
    if len(tiles.items) > 1:
        fewer = ir.TilesExpr(tiles.type, tiles.loc, tiles.items[:-1])
        return _with(do, 1, fewer)
    half = _number(tiles.items[0].type.nbytes // 2, do.loc)
    return ir.Do(do.loc, ops.OPS["tma.expect_bytes"], [do.args[0], half])


def _only_reads(do: ir.Do) -> ir.Do:
    return ir.Do(do.loc, ops.OPS["tma.store_async_read_wait"], do.args)


def changes(do: ir.Do) -> list[tuple[str, Change]]:
    """The ways in which this statement can be forgotten or be too weak; none if it orders nothing.

    Numbers of registers are no synchronisation; neither are loads and stores themselves.
    """
    name, effect = do.op.name, do.op.effect
    gone: list[tuple[str, Change]] = [("deleted", lambda do: None)]
    if name == "wait":
        return [*gone, ("the other phase", _other_phase)]
    if name == "init_semaphore":
        return [*gone, ("one arrival more", _plus(1, 1)), ("one arrival less", _plus(1, -1))]
    if name == "arrive":
        return [*gone, ("one arrival more", _plus(1, 1))]
    if name == "tma.expect":
        return [*gone, ("fewer bytes", _fewer_bytes)]
    if name == "tma.expect_bytes":
        return [*gone, ("fewer bytes", _plus(1, -16))]
    if name in ("wait_group", "warpgroup.mma_async_wait", "tma.store_async_read_wait"):
        return [*gone, ("one group less", _plus(0, 1))]
    if name == "tma.store_async_wait":
        return [*gone, ("one group less", _plus(0, 1)), ("only reads", _only_reads)]
    if effect == "wgmma":
        n = len(do.args)
        fields = [("no fence", n - 2), ("no commit", n - 1)]
        return [(what, _set(i, False)) for what, i in fields if do.args[i]]
    if name in NAMED and do.args:
        one = _number(1, do.loc)
        mine = [] if isinstance(do.args[0], ir.Const) else [("always barrier 1", _set(0, one))]
        more = [("32 threads more", _plus(1, 32)), ("32 threads less", _plus(1, -32))]
        return [*gone, ("another barrier", _plus(0, 1)), *mine, *(more if len(do.args) > 1 else [])]
    if effect in ("sync", "fence", "commit", "wait", "named") or name in ("commit_group",):
        return gone
    return gone if effect in ("tma_group", "wgmma_group") else []


# --------------------------------------------------------------------------------- making mutants
def copied(kernel: ir.Kernel) -> ir.Kernel:
    """A copy whose statements can be changed; types, operations and places are shared."""
    memo: dict[int, Any] = {}

    def of(x: Any) -> Any:
        if isinstance(x, list):
            return [of(i) for i in x]
        if not isinstance(x, (ir.Expr, ir.Stmt, ir.Sym, ir.Function)):
            return x
        if id(x) not in memo:
            new = memo[id(x)] = copy.copy(x)
            for k, v in vars(x).items():
                setattr(new, k, of(v))
        return memo[id(x)]

    parts = ("params", "body", "functions", "shared")
    return dataclasses.replace(kernel, **{k: of(getattr(kernel, k)) for k in parts})


def _lists(stmts: list[ir.Stmt]) -> Iterator[list[ir.Stmt]]:
    """This list of statements and all inside it."""
    yield stmts
    for s in stmts:
        for v in vars(s).values():
            if isinstance(v, list) and any(isinstance(x, ir.Stmt) for x in v):
                yield from _lists(v)


def _statements(kernel: ir.Kernel) -> Iterator[tuple[list[ir.Stmt], int, ir.Do]]:
    for body in (kernel.body, *(f.body for f in kernel.functions)):
        for stmts in _lists(body):
            for i, s in enumerate(stmts):
                if isinstance(s, ir.Do):
                    yield stmts, i, s


def _key(do: ir.Do) -> tuple:
    return do.loc.file, do.loc.line, do.loc.col, do.op.name


def _guards(stmts: list[ir.Stmt], i: int, do: ir.Do) -> frozenset[int]:
    """The lines of the same block of code that a statement orders, those of helpers included."""
    waits = "wait" in do.op.name or do.op.name == "init_semaphore"
    gives = do.op.effect in ("sem", "fence") and do.op.name != "init_semaphore"
    todo = list(ir.walk(([] if waits else stmts[:i]) + ([] if gives else stmts[i + 1 :])))
    found: set[int] = set()
    entered: set[int] = set()
    for n in todo:  # which grows
        found.add(n.loc.line)
        if isinstance(n, ir.CallDevice) and id(n.fn) not in entered:
            entered.add(id(n.fn))
            todo += ir.walk(n.fn.body)
    return frozenset(found)


def _origins(kernel: ir.Kernel) -> dict[ir.Sym, set[str]]:
    """For each reference and each parameter of a helper: the shared objects that it may be."""
    found: dict[ir.Sym, set[str]] = {s: {s.name} for s in kernel.shared}
    pairs: list[tuple[ir.Sym, ir.Expr]] = []
    for n in (n for b in (kernel.body, *(f.body for f in kernel.functions)) for n in ir.walk(b)):
        if isinstance(n, ir.Decl) and n.init is not None and n.sym.storage == "ref":
            pairs.append((n.sym, n.init))
        elif isinstance(n, ir.CallDevice):
            pairs += zip(n.fn.params, n.args)
    for _ in range(1 + len(kernel.functions)):  # helpers call helpers
        for sym, e in pairs:
            for v in ir.walk(e):
                if isinstance(v, ir.Var):
                    found.setdefault(sym, set()).update(found.get(v.sym, ()))
    return found


def _objects(do: ir.Do, origins: dict[ir.Sym, set[str]]) -> tuple[str, ...]:
    """The names under which a report may speak of what a statement acts on."""
    names: set[str] = set()
    for a in do.args:
        for n in ir.walk(a) if isinstance(a, ir.Expr) else ():
            if isinstance(n, ir.Var):
                names |= origins.get(n.sym, set())
    if do.op.name in NAMED and do.args:
        names.add("named barrier")
    return tuple(sorted(names))


def mutants(kernel: ir.Kernel) -> Iterator[Mutant]:
    """All mutants of a kernel, in the order of its lines."""
    origins = _origins(kernel)
    first: dict[tuple, tuple[ir.Do, frozenset[int]]] = {}
    for stmts, i, do in _statements(kernel):
        if _key(do) not in first:
            first[_key(do)] = do, _guards(stmts, i, do)
    for key, (do, guards) in sorted(first.items(), key=lambda x: x[0][1:3]):
        for what, change in changes(do):
            new = copied(kernel)
            todo = [x for x in _statements(new) if _key(x[2]) == key]
            for stmts, i, old in reversed(todo):
                stmts[i : i + 1] = [x for x in [change(old)] if x is not None]
            yield Mutant(do.loc, what, _objects(do, origins), guards, new)


# ---------------------------------------------------------------------------------------- judging
def lines_of(e: TkError) -> tuple[int, ...]:
    """The lines that an error names, its own first."""
    found = [e.loc.line] if e.loc is not None else []
    for part in re.findall(r"\blines? (\d+(?:(?:, | and )\d+)*)", e.message):
        found += [int(n) for n in re.findall(r"\d+", part)]
    return tuple(dict.fromkeys(found))


def judge(
    mutant: Mutant,
    grid: tuple[int, int, int],
    args: list[Any],
    values: tuple[str, ...],
    *,
    seconds: float = 10.0,
    runs: int = 2000,
) -> Verdict:
    """What becomes of a mutant. `values`: the results of the kernel itself, from `explore`."""
    for schedule, seed, late in TRIALS:
        delay = {} if late is None else {late % mutant.kernel.warps: 40}
        mine = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
        try:
            simulate(mutant.kernel, grid, mine, schedule=schedule, seed=seed, delay=delay)
        except TkError as e:
            said = schedule + f", warp {late} late" * (late is not None)
            return _reported(mutant, e, f"under {said}")
    total = grid[0] * grid[1] * grid[2]
    found = explore(
        mutant.kernel, grid, args, runs=runs, seconds=seconds, blocks=range(min(total, 4))
    )
    if found.fault is not None:
        return _reported(mutant, found.fault, f"under schedule={found.witness}")
    if set(found.values) != set(values):
        return Verdict(mutant, "unexplained", why="other results, and no report")
    if not found.complete:
        return Verdict(mutant, "unexplained", why=f"no report; {found.reason}")
    return Verdict(mutant, "harmless", why=f"all schedules: {found.runs} runs")


def _reported(mutant: Mutant, e: TkError, when: str) -> Verdict:
    """Reported, if the report points at the change: its line, its object, or what it ordered.

    The kernel itself has no fault, so that two accesses that only the mutant leaves without an
    order are ordered by the changed line.
    """
    lines = lines_of(e)
    said = e.message + (e.hint or "")
    if mutant.line in lines:
        how = "its line"
    elif any(re.search(rf"\b{re.escape(n)}\b", said) for n in mutant.objects):
        how = "what it acts on"
    elif mutant.guards.intersection(lines):
        how = "what it guards"
    elif (isinstance(e, Race) or e.code in PAIRS) and lines:
        how = "what it orders"
    else:
        return Verdict(mutant, "unexplained", e.code, lines, f"reported elsewhere {when}: {e}")
    return Verdict(mutant, "reported", e.code, lines, f"{how}, {when}")


def study(
    kernel: ir.Kernel, grid: tuple[int, int, int], args: list[Any], **limits: Any
) -> list[Verdict]:
    """The verdicts on all mutants of a kernel, which itself must have no fault (its own is raised).

    `args`: an array in storage dtype or a number for each parameter; they are left as they were.
    `limits`: seconds and runs of the exhaustive search, for each mutant.
    """
    total = grid[0] * grid[1] * grid[2]
    right = explore(kernel, grid, args, blocks=range(min(total, 4)), **limits)
    if right.fault is not None:
        raise right.fault
    for p, a in zip(kernel.params, args, strict=True):
        assert not isinstance(p.type, GL) or isinstance(a, np.ndarray)
    return [judge(m, grid, args, right.values, **limits) for m in mutants(kernel)]
