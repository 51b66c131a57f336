"""Runs lowered kernels: batches of blocks, warps as generators, block barriers, the scheduler.

A batch is some blocks that the generators serve at once; a generator is one warp of all of them.
The scheduler is deterministic: it resumes warps that can go on, in the order the launch asks for,
until each has ended or waits at a barrier. This file knows when warps run. What they do to memory
is memory.py's and ops.py's; what is wrong with it is races.py's.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tklearn import numerics
from tklearn.lang import ir
from tklearn.lang.errors import Deadlock, KernelFault, LaunchError, Loc, Race, TkError
from tklearn.lang.types import GL
from tklearn.report import WarpAccess
from tklearn.sim import aliases, counters, exchange, lanes, memory, ops, products
from tklearn.sim.engines import Copies
from tklearn.sim.globals import GlobalArray
from tklearn.sim.lower import Lowered
from tklearn.sim.lower_expr import GRID_MAX
from tklearn.sim.registry import OPS
from tklearn.sim.trace import Trace

ndarray = np.ndarray
TARGET_BYTES = 32 << 20
MAX_BATCH = 1024
STEPS = 1 << 18  # loop iterations of a warp: about 20 s, then a learner hears of an endless loop
SCHEDULES = ("rotate", "reverse", "random")


@dataclass
class Result:
    """What one simulated launch tells.

    lines: source line -> metric (report.METRICS) -> count. clipped: line -> elements past an
    array's end. printed: the lines the kernel printed. batches, resumes, calls: work of the
    simulator itself: how often it resumed a generator and counted a memory or tensor operation.
    accesses: line -> accesses of the first block, if they were traced.
    """

    lines: dict[int, dict[str, int]] = field(default_factory=dict)
    clipped: dict[int, int] = field(default_factory=dict)
    seconds: float = 0.0
    printed: list[str] = field(default_factory=list)
    batches: int = 0
    resumes: int = 0
    calls: int = 0
    accesses: dict[int, list[WarpAccess]] = field(default_factory=dict)


def simulate(
    kernel: ir.Kernel,
    grid: tuple[int, int, int],
    args: list[Any],
    *,
    schedule: str = "rotate",
    seed: int = 0,
    delay: dict[int, int] | None = None,
    check: str = "full",
    mma: str = "fast",
    arch: str = "hopper",
    blocks: Iterable[Any] | None = None,
    batch: bool = True,
    max_bytes: int = 256 << 20,
    steps: int = STEPS,
    progress: Callable[[int], None] | None = None,
    trace: bool = False,
) -> Result:
    """Run `kernel` on `grid` with `args`: for each parameter an array in storage dtype or a number.

    `check`: "off" leaves out races, unwritten memory and copies in flight; "fast" is as "full" at
    these levels (checks of asynchronous kernels may be coarser with it).
    Arrays are written in place. `blocks` limits the run to some blocks, as (x, y, z) or linear
    numbers. `progress` is told how many blocks are done, batch by batch. `trace` keeps the
    accesses of the first block (trace.py). `mma="exact"` computes products with the bits of
    `arch`'s tensor core, and maps with those of its instructions (exact.py). Errors: KernelFault
    (TK5xx) for what the kernel does wrong, LaunchError TK411 for unknown options.
    """
    options = (
        ("schedule", schedule, SCHEDULES),
        ("check", check, ("full", "fast", "off")),
        ("mma", mma, ("fast", "exact")),
        ("arch", arch, tuple(numerics.CORES)),
    )
    for what, value, known in options:
        if value not in known:
            raise LaunchError(
                "TK411",
                f"{what}={value!r} is not possible",
                kernel.loc,
                "possible: " + ", ".join(known),
            )
    start = time.perf_counter()
    launch = Launch(kernel, grid, args, check, schedule, seed, delay or {}, steps)
    launch.progress = progress
    launch.trace = Trace(kernel) if trace else None
    launch.exact, launch.arch = mma == "exact", arch
    with np.errstate(all="ignore"):
        try:
            launch.run(blocks, batch, max_bytes)
        finally:
            launch.close()
    result = launch.result
    result.lines = counters.totals(launch.tally, launch.loose)
    result.accesses = launch.trace.lines if launch.trace is not None else {}
    result.seconds = time.perf_counter() - start
    return result


def lowered(kernel: ir.Kernel, big_grid: bool) -> Lowered:
    cache = kernel.__dict__.setdefault("_lowered", {})
    if big_grid not in cache:
        runtime = {**lanes.RUNTIME, **memory.RUNTIME, **RUNTIME, "_ops": OPS}
        cache[big_grid] = Lowered(kernel, runtime, big_grid)
    return cache[big_grid]


class Launch:
    """One launch: arguments as the machine holds them, options, tallies."""

    def __init__(
        self,
        kernel: ir.Kernel,
        grid: tuple[int, int, int],
        args: list[Any],
        check: str,
        schedule: str,
        seed: int,
        delay: dict[int, int],
        steps: int,
    ) -> None:
        self.kernel, self.grid = kernel, grid
        self.code = lowered(kernel, max(grid) > GRID_MAX)
        if self.code.shape.tiles and kernel.nthreads % 32:
            raise LaunchError(
                "TK407",
                f"{kernel.name} works on tiles, and {kernel.nthreads} threads are no whole warps",
                kernel.loc,
                "tiles need a multiple of 32 threads",
            )
        self.check = check
        self.schedule, self.delay, self.steps = schedule, delay, steps
        self.random = random.Random(seed) if schedule == "random" else None
        self.result = Result()
        self.tally: dict[Any, int] = {}
        self.loose: dict[Any, int] = {}
        self.counting = True
        self.exact, self.arch = False, "hopper"
        self.trace: Trace | None = None
        self.progress: Callable[[int], None] | None = None
        self.args = [
            GlobalArray(p, a, check != "off") if isinstance(p.type, GL) else _scalar(p, a)
            for p, a in zip(kernel.params, args, strict=True)
        ]
        self.threads = [_thread_indices(kernel.threads, w) for w in range(kernel.warps)]

    def run(self, blocks: Iterable[Any] | None, batch: bool, max_bytes: int) -> None:
        for group in self._groups(blocks, batch, max_bytes):
            self._batch(group)
            if self.progress is not None:
                self.progress(len(group))

    def _batch(self, group: np.ndarray) -> None:
        if self.trace is not None and self.result.batches == 0:
            self.result.batches += 1
            Batch(self, group[:1], self.trace).run()
            group = group[1:]
        if len(group):
            self.result.batches += 1
            Batch(self, group).run()

    def close(self) -> None:
        for a in self.args:
            if isinstance(a, GlobalArray):
                a.write_back()

    def _groups(
        self, blocks: Iterable[Any] | None, batch: bool, max_bytes: int
    ) -> Iterable[np.ndarray]:
        """Block indices [n, 3] of each batch: axes that must be looped over change slowest."""
        gx, gy, gz = self.grid
        if blocks is None:
            z, y, x = np.meshgrid(np.arange(gz), np.arange(gy), np.arange(gx), indexing="ij")
            every = np.stack([x.ravel(), y.ravel(), z.ravel()], axis=1)
        else:
            every = np.array(
                [
                    (i % gx, i // gx % gy, i // (gx * gy))
                    if isinstance(i, (int, np.integer))
                    else tuple(i)
                    for i in blocks
                ],
                np.int64,
            ).reshape(-1, 3)
            if ((every < 0) | (every >= (gx, gy, gz))).any():
                raise LaunchError(
                    "TK411", f"blocks= names a block outside the grid {self.grid}", self.kernel.loc
                )
        shape = self.code.shape
        looped = [a for a, bit in enumerate((1, 2, 4)) if shape.bad & bit]
        if looped:
            keys = every[:, looped]
            order = np.lexsort(keys.T)
            every, keys = every[order], keys[order]
            cuts = np.flatnonzero((np.diff(keys, axis=0) != 0).any(axis=1)) + 1
            parts = np.split(every, cuts)
        else:
            parts = [every]
        most = self._batch_size(max_bytes) if batch and not shape.single else 1
        for part in parts:
            size = len(part)
            if size > most:
                # whole rows of the grid, or a power of two: then equal tiles lie regularly
                rows = gx <= most and not looped
                size = most // gx * gx if rows else 1 << most.bit_length() - 1
            for i in range(0, len(part), max(size, 1)):
                yield part[i : i + size]

    def _batch_size(self, max_bytes: int) -> int:
        each = max(self.code.shape.bytes_per_block, 1)
        return int(max(1, min(MAX_BATCH, max(TARGET_BYTES // each, 1), max_bytes // each)))


def _scalar(p: ir.Sym, a: Any) -> Any:
    kind = p.type.dtype.name  # type: ignore[attr-defined]
    if kind == "bool":
        return bool(a)
    if kind in ("f32", "f16", "bf16"):
        return np.float32(numerics.round_to(np.float32(a), kind))
    return int(a)


def _thread_indices(threads: tuple[int, int, int], w: int) -> dict[str, Any]:
    """threadIdx of a warp's lanes, a number where all agree, else [1, 32]; and the lane mask."""
    tx, ty, tz = threads
    t = np.arange(32 * w, 32 * w + 32)
    live = t < tx * ty * tz
    t = np.where(live, t, 0)
    out: dict[str, Any] = {}
    for axis, v in zip("xyz", (t % tx, t // tx % ty, t // (tx * ty))):
        out[axis] = int(v[0]) if (v[live] == v[0]).all() else v[None]
    out["mask"] = None if live.all() else live[None]
    return out


class Batch:
    """Some blocks run together. `barriers` counts the block barriers passed."""

    def __init__(self, launch: Launch, blocks: np.ndarray, trace: Trace | None = None) -> None:
        self.launch, self.blocks, self.n, self.trace = launch, blocks, len(blocks), trace
        k = launch.kernel
        gx, gy, _ = launch.grid
        linear = blocks[:, 0] + gx * (blocks[:, 1] + gy * blocks[:, 2])
        self.tags = (linear[:, None] + 1).astype(np.int64)
        self.barriers = 0
        self.suspected: TkError | None = None  # a fault to report unless a race explains it
        self.suspected_at: Any = None  # its site
        self.spans: dict[int, Any] = {}  # of coordinates, see globals.py
        self.shared = [
            memory.make_shared(s.name, s.type, s.offset, self.n, launch.check != "off")
            for s in k.shared
        ]
        aliases.join_aliases(k.shared, self.shared, launch.check != "off", self.n)
        self.index = [
            int(blocks[0, a]) if (blocks[:, a] == blocks[0, a]).all() else blocks[:, a : a + 1]
            for a in range(3)
        ]
        self.atomics: list[Any] = []
        self.warps = [Warp(self, i) for i in range(k.warps)]

    def block_name(self, linear: int) -> str:
        gx, gy, _ = self.launch.grid
        return f"({linear % gx}, {linear // gx % gy}, {linear // (gx * gy)})"

    # ------------------------------------------------------------------------------ scheduling
    def run(self) -> None:
        launch = self.launch
        waits = {w.id: launch.delay.get(w.id, 0) for w in self.warps}
        for w in self.warps:
            w.gen = launch.code.fn(w, *launch.args)
        while True:
            ready = [w for w in self.warps if w.gen is not None and w.at is None]
            if not ready:
                if all(w.gen is None for w in self.warps):
                    break
                self._release()
                continue
            for w in self._order(ready):
                if waits[w.id] > 0 and len(ready) > 1:
                    waits[w.id] -= 1
                    continue
                waits[w.id] = launch.delay.get(w.id, 0)
                launch.result.resumes += 1
                try:
                    next(w.gen)
                except StopIteration:
                    w.gen = None
                except Race:
                    raise
                except TkError as e:
                    raise (self.suspected or e) from None
        if self.suspected is not None:
            raise self.suspected
        self.flush(None)

    def suspect(self, w: Warp, code: str, message: str, site: Any, at: Any, hint: str) -> None:
        """Reports a fault at the next barrier; at once where no other warp can explain it."""
        if self.suspected is None:
            self.suspected, self.suspected_at = w.fault(code, message, site, at, hint), site
        if len(self.warps) == 1:
            raise self.suspected

    def _order(self, ready: list[Warp]) -> list[Warp]:
        if self.launch.schedule == "reverse":
            return ready[::-1]
        if self.launch.random is not None:
            self.launch.random.shuffle(ready)
        return ready

    def _release(self) -> None:
        """All that are left wait at a barrier: let them go, or say why nobody can."""
        if self.suspected is not None:
            raise self.suspected
        waiting = [w for w in self.warps if w.at is not None]
        sites = {w.at.line for w in waiting}
        if len(sites) > 1 or len(waiting) < len(self.warps):
            raise self._divergent(waiting)
        vc = [max(w.vc[i] for w in waiting) for i in range(len(self.warps))]
        self.barriers += 1
        for w in waiting:
            w.vc = vc.copy()
            w.at = None
            w.tick()

    def _divergent(self, waiting: list[Warp]) -> KernelFault:
        total = len(self.warps)
        per: dict[int, list[Warp]] = {}
        for w in waiting:
            per.setdefault(w.at.line, []).append(w)
        said = [
            f"line {line}: {_warps(ws)} ({len(ws)} of {total} warps)"
            for line, ws in sorted(per.items())
        ]
        left = [w for w in self.warps if w.gen is None]
        if left:
            said.append(
                f"{_warps(left)} left the kernel"
                + (" before it" if len(per) == 1 else " before them")
            )
        first = waiting[0]
        return first.fault(
            "TK506",
            "not all warps of the block arrive at one block.sync(): " + "; ".join(said),
            first.at,
            hint="every thread of the block must reach the same block.sync(): move it out of the "
            "'if' or loop, and let no warp return before it",
        )

    # --------------------------------------------------------------------- atomics in block order
    def flush(self, g: Any) -> None:
        """Apply the float atomics that wait for their turn; g: only if this array has some."""
        if not self.atomics or (g is not None and all(x[0] is not g for x in self.atomics)):
            return
        todo, self.atomics = self.atomics, []
        for mem in {id(x[0]): x[0] for x in todo}.values():
            mine = [x for x in todo if x[0] is mem]
            rows, idx, val = (np.concatenate([x[k] for x in mine]) for k in (1, 2, 3))
            order = np.argsort(rows, kind="stable")
            exchange.add_in_order(mem, idx[order], val[order])


def _warps(ws: list[Warp]) -> str:
    return ("warp " if len(ws) == 1 else "warps ") + ", ".join(str(w.id) for w in ws)


class Warp:
    """One warp of all blocks of a batch: what the lowered code calls `_w`."""

    def __init__(self, batch: Batch, i: int) -> None:
        launch = batch.launch
        self.batch, self.launch, self.id, self.warpid = batch, launch, i, i
        self.trace = batch.trace
        self.shared = batch.shared
        self.gen: Any = None
        self.at: Any = None  # the site of the barrier at which it waits
        self.vc = [0] * launch.kernel.warps
        self.vc[i] = self.clock = 1
        self.steps = launch.steps
        self.copies = Copies()
        self.turns: dict[int, int] = {}
        t = launch.threads[i]
        self.mask = t["mask"]
        self.laneid = memory.LANE[None]
        self.threadIdx_x, self.threadIdx_y, self.threadIdx_z = t["x"], t["y"], t["z"]
        self.blockIdx_x, self.blockIdx_y, self.blockIdx_z = batch.index
        self.blockDim_x, self.blockDim_y, self.blockDim_z = launch.kernel.threads
        self.gridDim_x, self.gridDim_y, self.gridDim_z = launch.grid

    # ------------------------------------------------------------------------------ time and order
    def tick(self) -> None:
        """What comes after is ordered after what this warp did before."""
        self.clock += 1
        self.vc[self.id] = self.clock

    def barrier(self, s: Any, m: Any) -> None:
        """Arrive at block.sync()."""
        if m is not self.mask and m is not None:
            full = np.ones((1, 32), bool) if self.mask is None else self.mask
            missing = np.argwhere(full & ~np.broadcast_to(m, (len(m), 32)))
            if len(missing):
                b, lane = (int(x) for x in missing[0])
                active = int(np.broadcast_to(m, (len(m), 32))[b].sum())
                raise self.fault(
                    "TK506",
                    f"only {active} lanes of warp {self.id} arrive at this block.sync(); "
                    "the others have returned",
                    s,
                    (b, lane),
                    "every thread of the block must reach it: put the work in "
                    "an 'if' instead of returning early",
                )
        self.at = s
        self.count(s.line, "barriers", self.batch.n)

    def spend(self, n: int, s: Any) -> None:
        """Count loop iterations against the step budget."""
        self.steps -= n
        if self.steps < 0:
            raise self._endless(s)

    def _endless(self, s: Any) -> TkError:
        waiting = [w for w in self.batch.warps if w.at is not None]
        node = s.node
        loads = (
            [x for x in ir.walk(node.cond) if isinstance(x, ir.Index)]
            if isinstance(node, ir.While)
            else []
        )
        hint = (
            "check what ends the loop; one that is meant to be that long runs with "
            f"{self.launch.kernel.name}.sim[grid](..., steps=n)"
        )
        if any(isinstance(x.base.type, GL) for x in loads):
            hint = (
                "the condition reads global memory: if it waits for another block, that block may "
                "never run at the same time; blocks cannot wait for each other"
            )
        if waiting and len(waiting) + 1 >= sum(w.gen is not None for w in self.batch.warps):
            said = "; ".join(
                f"warp {w.id} waits at block.sync() on line {w.at.line}" for w in waiting
            )
            return self.fault(
                "TK507",
                f"deadlock: warp {self.id} turns in this loop, and {said} ({len(waiting)} of "
                f"{len(self.batch.warps)} arrived)",
                s,
                hint="block.sync() waits for every warp: put what this loop waits for before it",
                kind=Deadlock,
            )
        return self.fault(
            "TK509",
            f"warp {self.id} has run {self.launch.steps:,} loop iterations and has not ended",
            s,
            hint=hint,
        )

    # ---------------------------------------------------------------------------------- counting
    @property
    def counting(self) -> bool:
        return self.launch.counting

    def add(self, s: Any, delta: Any, times: int = 0) -> None:
        """One execution of a counted pattern in each block (or `times` executions)."""
        self.launch.result.calls += 1
        if self.trace is not None:
            for seen in delta.seen:
                self.trace.see(self, s, *seen)
        tally, key = self.launch.tally, (s.line, delta)
        tally[key] = tally.get(key, 0) + (times or self.batch.n)

    def count(self, line: int, metric: str, n: int) -> None:
        loose, key = self.launch.loose, (line, metric)
        loose[key] = loose.get(key, 0) + n

    def clip(self, line: int, n: int) -> None:
        c = self.launch.result.clipped
        c[line] = c.get(line, 0) + n

    @contextmanager
    def silent(self):
        """What is done inside was counted already."""
        was, self.launch.counting = self.launch.counting, False
        try:
            yield
        finally:
            self.launch.counting = was

    # ---------------------------------------------------------------------------------- messages
    def first(self, m: Any, bad: Any) -> tuple[int, int] | None:
        """(block in the batch, lane) of the first active lane where `bad` holds, or None."""
        if type(bad) is not ndarray:
            if not bad:
                return None
            bad = np.ones((1, 1), bool)
        m = self.mask if m is None else m
        if m is not None:
            bad = bad & m
        if bad.shape[1] == 1:
            bad = np.broadcast_to(bad, (len(bad), 32))
        k = np.argwhere(bad)
        return (int(k[0, 0]), int(k[0, 1])) if len(k) else None

    @staticmethod
    def at_position(v: Any, pos: tuple[int, int]) -> Any:
        if type(v) is not ndarray or v.ndim != 2:
            return v
        return v[min(pos[0], len(v) - 1), min(pos[1], v.shape[1] - 1)]

    def where(self, pos: Any) -> str:
        b, lane = pos if pos is not None else (0, None)
        linear = int(self.batch.tags[min(b, self.batch.n - 1), 0]) - 1
        tail = f", lane {lane}" if lane is not None else ""
        return f"block {self.batch.block_name(linear)}, warp {self.id}{tail}"

    def fault(
        self,
        code: str,
        message: str,
        s: Any,
        pos: Any = None,
        hint: str = "",
        kind: type[KernelFault] = KernelFault,
    ) -> KernelFault:
        loc: Loc = s.loc
        e = kind(code, f"{message} [{self.where(pos)}]", loc, hint)
        e.where = {"warp": self.id, "block": self.where(pos)}  # type: ignore[attr-defined]
        return e


def _assert(w: Warp, c: Any, m: Any, message: str, values: tuple, s: Any) -> None:
    pos = w.first(m, ~c if type(c) is ndarray else not c)
    if pos is not None:
        said = ", ".join(f"{k} = {w.at_position(v, pos)}" for k, v in values)
        raise w.fault(
            "TK511",
            f"assert failed: {message}" + (f" ({said})" if said else ""),
            s,
            pos,
            "the assertion is the kernel's own",
        )


def _print(w: Warp, m: Any, s: Any, *args: Any) -> None:
    """[block (0, 0, 0) warp 0] and the values: arrays of 32 where lanes differ."""
    if m is None:
        m = w.mask
    shown = []
    for a in args:
        if type(a) is ndarray:
            a = a[0]
            if a.shape == (32,) and m is not None:
                a = a[np.broadcast_to(m, (1, 32))[0]]
            a = a.item() if a.size == 1 else a
        if type(a) is ndarray:
            shown.append(np.array2string(a, precision=4, max_line_width=2000))
        else:
            shown.append(f"{a:g}" if isinstance(a, (np.float32, float)) else str(a))
    who = "" if m is None else f" lanes {np.flatnonzero(np.broadcast_to(m, (1, 32))[0]).tolist()}"
    linear = int(w.batch.tags[0, 0]) - 1
    line = f"[block {w.batch.block_name(linear)} warp {w.id}{who}] {' '.join(shown)}"
    w.launch.result.printed.append(line)
    print(line, file=sys.stdout)


RUNTIME: dict[str, Any] = {"_assert": _assert, "_print": _print}
TABLES = (ops, products, exchange)  # importing them fills OPS
