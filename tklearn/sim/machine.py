"""Runs lowered kernels: arguments, options, which blocks run together, and the tallies.

What happens within a batch of blocks is batch.py's.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tklearn import numerics
from tklearn.lang import ir
from tklearn.lang.errors import LaunchError, TkError
from tklearn.lang.ops import blocks as may_wait
from tklearn.lang.types import GL, Shared
from tklearn.lang.types import Semaphore as SemaphoreType
from tklearn.report import Timeline, WarpAccess
from tklearn.sim import counters, exchange, lanes, memory, ops, products, tma, warp, wgmma
from tklearn.sim.agents import Agents
from tklearn.sim.batch import Batch
from tklearn.sim.globals import GlobalArray
from tklearn.sim.lower import Lowered
from tklearn.sim.lower_expr import GRID_MAX
from tklearn.sim.options import checked
from tklearn.sim.recorder import Recorder
from tklearn.sim.registry import OPS
from tklearn.sim.schedule import Replay, block_of
from tklearn.sim.trace import Trace

TARGET_BYTES = 32 << 20  # of a batch: larger ones leave the caches
FULL_BATCH = 64  # blocks, for which a batch may be four times as large: calls cost, too
MAX_BATCH = 1024
STEPS = 1 << 18  # loop iterations of a warp: about 20 s, then a learner hears of an endless loop


@dataclass
class Result:
    """What one simulated launch tells.

    lines: source line -> metric (report.METRICS) -> count. clipped: line -> elements past an
    array's end. printed: the lines the kernel printed. batches, resumes, calls: work of the
    simulator itself: how often it resumed a generator and counted a memory or tensor operation.
    accesses: line -> accesses of the first block, if they were traced. timeline: what happened in
    it, if that was asked for.
    """

    lines: dict[int, dict[str, int]] = field(default_factory=dict)
    clipped: dict[int, int] = field(default_factory=dict)
    seconds: float = 0.0
    printed: list[str] = field(default_factory=list)
    batches: int = 0
    resumes: int = 0
    calls: int = 0
    accesses: dict[int, list[WarpAccess]] = field(default_factory=dict)
    timeline: Timeline | None = None


def simulate(
    kernel: ir.Kernel,
    grid: tuple[int, int, int],
    args: list[Any],
    *,
    schedule: Any = "rotate",
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
    timeline: bool = False,
) -> Result:
    """Run `kernel` on `grid` with `args`: for each parameter an array in storage dtype or a number.

    `schedule`: "rotate", "reverse", "random", or the steps of one block (schedule.py).
    `check`: "off" leaves out races, unwritten memory and copies in flight; "fast" is as "full" at
    these levels (checks of asynchronous kernels may be coarser with it).
    Arrays are written in place. `blocks` limits the run to some blocks, as (x, y, z) or linear
    numbers. `progress` is told how many blocks are done, batch by batch. `trace` keeps the
    accesses of the first block (trace.py), `timeline` what happens in it (recorder.py); an error in
    it then has a `timeline`, too. `mma="exact"` computes products with the bits of
    `arch`'s tensor core, and maps with those of its instructions (exact.py). Errors: KernelFault
    (TK5xx) for what the kernel does wrong, LaunchError TK411 for unknown options.
    """
    given = {"schedule": schedule, "seed": seed, "delay": delay, "check": check, "mma": mma,
             "arch": arch, "blocks": blocks, "batch": batch, "steps": steps, "trace": trace,
             "timeline": timeline}  # fmt: skip
    blocks = checked(kernel, grid, given)["blocks"]
    chooser = None
    if not isinstance(schedule, str):
        blocks = block_of(kernel, grid, schedule, blocks)
        chooser, schedule = Replay(kernel, schedule), "rotate"
    start = time.perf_counter()
    launch = Launch(kernel, grid, args, check, schedule, seed, delay or {}, steps)
    launch.progress, launch.chooser = progress, chooser
    launch.trace = Trace(kernel) if trace else None
    launch.exact, launch.arch = mma == "exact", arch
    launch.recorder = Recorder(kernel) if timeline else None
    with np.errstate(all="ignore"):
        try:
            launch.run(blocks, batch, max_bytes)
        except TkError as e:
            if launch.recorder is not None and launch.recorder.batch is not None:
                e.timeline = launch.recorder.timeline(e)
            raise
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
        runtime = {**lanes.RUNTIME, **memory.RUNTIME, **warp.RUNTIME, "_ops": OPS}
        if _own_fences(kernel):
            runtime["_Tile"] = wgmma.TrackedTile
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
        self.asynchronous = _asynchronous(kernel)
        self.agents = Agents(kernel.warps, _semaphores(kernel), self.asynchronous)
        self.chooser: Any = None  # explore.py decides who goes on
        self.recorder: Any = None  # is told what happens

    def run(self, blocks: Iterable[Any] | None, batch: bool, max_bytes: int) -> None:
        for group in self._groups(blocks, batch, max_bytes):
            self._batch(group)
            if self.progress is not None:
                self.progress(len(group))

    def _batch(self, group: np.ndarray) -> None:
        alone = self.trace is not None or self.recorder is not None
        if alone and self.result.batches == 0:
            self.result.batches += 1
            Batch(self, group[:1], self.trace).run()
            group = group[1:]
            if self.recorder is not None:
                self.result.timeline = self.recorder.timeline()
                self.recorder = None
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
        wanted = max(TARGET_BYTES // each, min(FULL_BATCH, 4 * TARGET_BYTES // each))
        return int(max(1, min(MAX_BATCH, wanted, max_bytes // each)))


def _operations(kernel: ir.Kernel) -> Iterator[ir.Do]:
    bodies = [kernel.body, *(f.body for f in kernel.functions)]
    return (n for body in bodies for n in ir.walk(body) if isinstance(n, ir.Do))


def _asynchronous(kernel: ir.Kernel) -> bool:
    """Whether anything runs beside the warps, or waits for other things than block.sync."""
    return any(may_wait(n.op, n.args) or n.op.effect == "fence" for n in _operations(kernel))


def _own_fences(kernel: ir.Kernel) -> bool:
    """Whether the kernel places wgmma fences itself."""
    return any(n.op.effect == "wgmma" and False in n.args[3:4] for n in _operations(kernel))


def _semaphores(kernel: ir.Kernel) -> int:
    """How many mbarriers its shared memory holds."""
    kinds = [s.type for s in kernel.shared]
    return sum(
        math.prod(t.dims) if isinstance(t, Shared) else 1
        for t in kinds
        if isinstance(t.elem if isinstance(t, Shared) else t, SemaphoreType)
    )


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


TABLES = (ops, products, exchange, tma, wgmma)  # importing them fills OPS
