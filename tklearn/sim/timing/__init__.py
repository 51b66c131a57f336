"""How long a launch takes on a GPU: an estimate from the kernel, the shapes and measured rates.

A block's warps are walked (walk.py): what they issue, on what it depends. The events are replayed
(replay.py) on a model of one SM with as many blocks as fit on it; what is left of the grid is
extrapolated. Rates are an H200's, from micro-benchmarks (rates.py). It is an estimate and says so:
`Estimate.error` is its median error on kernels that were not used for calibration.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tklearn import devices
from tklearn.lang import ir
from tklearn.lang.types import RT, RV, Regs
from tklearn.sim.timing.costs import Costs, registers
from tklearn.sim.timing.moves import GATHERED_L1, Survey
from tklearn.sim.timing.program import Program
from tklearn.sim.timing.rates import Rates, rates
from tklearn.sim.timing.replay import Played, Replay, Share, Stuck
from tklearn.sim.timing.values import Global
from tklearn.sim.timing.walk import Walker, depends_on_block, parameters

SAMPLES = 3  # blocks that are walked along an axis of the grid on which the work depends
STEADY = 0.04  # laps of a loop whose times differ by less are alike
MOST = 6000  # events of a block that is walked to find out
BUSY = 1500  # of blocks with more events than this, two are walked
L1 = 256  # KiB of an SM for its L1 cache and shared memory
FEWEST = 16  # registers of a lane that any kernel has
SURVEYED = 512  # blocks of a wave whose places are compared


@dataclass(frozen=True)
class Estimate:
    """A predicted time.

    Attributes:
        seconds: at clock `ghz`, launch included. cycles: of the SM clock, without the launch.
        blocks_per_sm: resident blocks. waves: how often the GPU is filled.
        registers: a lane's, as compiled, or guessed (`guessed`).
        use: resource -> which part of the time it works. bound: the busiest.
        waits: source line -> part of the warps' time that passes waiting there.
        error: the published median error, relative; None for a GPU that was not measured.
        notes: what was assumed.
    """

    seconds: float
    cycles: float
    ghz: float
    device: str
    blocks_per_sm: int
    waves: float
    registers: int
    guessed: bool
    use: dict[str, float]
    bound: str
    waits: dict[int, float] = field(repr=False)
    error: float | None = None
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        band = "not checked" if self.error is None else f"±{100 * self.error:.0f} % (median)"
        return (
            f"about {self.seconds * 1e6:.3g} us on the {self.device} (an estimate, {band}); "
            f"busiest: {self.bound}, {100 * self.use.get(self.bound, 0.0):.0f} % of the time"
        )


def estimate(
    spec: ir.Kernel,
    grid: tuple[int, int, int],
    arguments: list[Any],
    device: str = "H200",
    *,
    registers: int | None = None,
    warm: bool = True,
    ghz: float | None = None,
) -> Estimate:
    """The time of one launch.

    Args:
        spec: the typed kernel. grid: its blocks. arguments: for each parameter the shape of an
            array, or a number. device: a name of devices.DEVICES.
        registers: of a lane as compiled; guessed from the tiles if not known.
        warm: launches follow each other on the same data, as Report.seconds measures, and what fits
            into the L2 cache is there; else it holds none of it, as benchmarks measure.
        ghz: the SM clock; by default that of the calibration.

    Raises:
        ValueError: the model has no answer (a deadlock, or a block that fits on no SM).
    """
    gpu, r = devices.device(device), rates(device)
    ghz = ghz or r.ghz
    known = registers is not None
    lane = registers if registers is not None else guess_registers(spec)
    fit = devices.occupancy(gpu, spec.nthreads, min(lane, 255), spec.shared_bytes)
    if not fit.blocks:
        raise ValueError(f"a block of {spec.name} fits on no SM of the {device}")
    job = _Job(spec, grid, parameters(spec, arguments), gpu, r, ghz, fit.blocks, warm)
    return job.estimate(lane, not known)


def guess_registers(spec: ir.Kernel) -> int:
    """Registers a lane, from the tiles that a kernel declares; ptxas knows better."""
    n = 26.0
    for body in (spec.body, *(f.body for f in spec.functions)):
        for s in ir.walk(body):
            if isinstance(s, ir.Decl):
                t = s.sym.type
                if isinstance(t, RT | RV | Regs):
                    n += registers(t) * t.dtype.itemsize / 4
                else:
                    n += 0.5
    most = 65536 // spec.nthreads if spec.nthreads > 256 else 255
    return int(min(n, most, 255))


def registers_matter(spec: ir.Kernel, grid: tuple[int, int, int], gpu: devices.Device) -> bool:
    """Whether their number can decide how many blocks of this grid an SM runs at a time."""
    each = -(-math.prod(grid) // gpu.sms)
    most = min(devices.REGISTERS_PER_SM // max(spec.nthreads, 256), 255)
    few, many = (
        min(devices.occupancy(gpu, spec.nthreads, n, spec.shared_bytes).blocks, each)
        for n in (FEWEST, most)
    )
    return few != many


@dataclass
class Walked:
    """One block: with long loops cut; with a lap more of the outer ones, of the inner ones."""

    block: tuple[int, int, int]
    short: Program
    outer: Program | None
    inner: Program | None

    def full(self, of: Any) -> float:
        """A quantity of the whole block, from those of the cut ones.

        It is linear in the laps of the outer loop, and what a turn of that adds is linear in the
        laps of the inner one.
        """
        a = float(of(self.short))
        if self.outer is None:
            return a
        return a + (float(of(self.outer)) - a) * self.short.stretch[0] + self.inside(of)

    def inside(self, of: Any) -> float:
        """What long loops inside long loops add."""
        if self.inner is None:
            return 0.0
        _, most, times = self.short.stretch
        return (float(of(self.inner)) - float(of(self.short))) * most * times


class _Job:
    """One estimate under way."""

    def __init__(
        self, spec: ir.Kernel, grid: tuple[int, int, int], params: list[Any], gpu: devices.Device,
        r: Rates, ghz: float, resident: int, warm: bool,
    ) -> None:  # fmt: skip
        self.spec, self.grid, self.params, self.gpu = spec, grid, params, gpu
        self.rates, self.ghz, self.warm = r, ghz, warm
        self.costs = Costs(r)
        self.blocks = math.prod(grid)
        self.active = max(min(self.blocks, gpu.sms), 1)
        self.each = -(-self.blocks // gpu.sms)  # blocks of the SM that has most
        self.resident = min(resident, self.each)
        # The L1 cache: what resident blocks leave of it, for each warp.
        left = (L1 << 10) - self.resident * (spec.shared_bytes + 1024)
        self.sectors = max(left // 32 // (self.resident * spec.warps), 64)
        self.notes: list[str] = []
        self.fits = False  # whether the L2 cache keeps all that is touched
        self.longer: list[Program] = []

    def estimate(self, lane: int, guessed: bool) -> Estimate:
        r = self.rates
        launch = r.launch if self.warm else r.launch_cold
        if not self.blocks:
            return Estimate(launch, 0.0, self.ghz, self.gpu.name, self.resident, 0.0, lane,
                            guessed, {}, "launch", {}, self.rates.error)  # fmt: skip
        survey = self._survey()
        programs: list[Walked] = []
        sampled = self._sampled()
        while sampled:
            programs.append(self._programs(sampled.pop(0)))
            if programs[0].short.events > BUSY:
                sampled = sampled[len(sampled) // 2 :][:1]
        share = self._share(programs, survey)
        found = [self._cycles(p, share) for p in programs]
        total = sum(c for c, _ in found) / len(found)
        if len(found) > 1:  # uneven blocks: the last ones to end are not the average ones
            total += (max(c for c, _ in found) - total) / max(self.each, 1)
        played = found[len(found) // 2][1]
        total = max(total, self._floor())
        if guessed and registers_matter(self.spec, self.grid, self.gpu):
            self.notes.append(f"registers guessed: {lane} a lane")
        if self.fits and self.warm:
            self.notes.append("the arrays fit into L2, which has them from the launch before")
        span = max(played.ends[-1], played.drained, 1.0)
        use = {name: min(busy / span, 1.0) for name, busy in played.work().items()}
        warps = self.spec.warps * len(played.ends)
        waits = {line: w / (span * warps) * len(played.ends) / max(self.resident, 1)
                 for line, w in sorted(played.waits.items())}  # fmt: skip
        if sum(self.near):
            launch += r.start if self.warm else r.start_cold
        seconds = launch + total / self.ghz / 1e9
        return Estimate(
            seconds, total, self.ghz, self.gpu.name, self.resident,
            self.blocks / (self.gpu.sms * self.resident), lane, guessed, use,
            max(use, key=use.__getitem__, default="launch"), waits, self.rates.error,
            tuple(dict.fromkeys(self.notes)),
        )  # fmt: skip

    # --------------------------------------------------------------------------- what to walk
    def _sampled(self) -> list[tuple[int, int, int]]:
        """Blocks that stand for all: the middle one, or several where their work differs."""
        bits = depends_on_block(self.spec)
        axes: list[list[int]] = []
        for a, n in enumerate(self.grid):
            count = min(n, SAMPLES) if bits >> a & 1 else 1
            axes.append([(2 * i + 1) * n // (2 * count) for i in range(count)])
        out = [(x, y, z) for z in axes[2] for y in axes[1] for x in axes[0]]
        return out[:: max(len(out) // 6, 1)]

    def _walk(self, block: tuple[int, int, int], laps: tuple[int, int]) -> Program:
        made = Walker(
            self.spec, self.grid, self.params, block, self.costs, laps,
            sectors=self.sectors, follow=self.each,
        ).walk()  # fmt: skip
        self.notes += made.notes
        return made

    def _programs(self, block: tuple[int, int, int]) -> Walked:
        """A block with its long loops cut short; and where there are any, with a lap more."""
        short = self._walk(block, (1, 1))
        outer, inner, _ = short.stretch
        return Walked(
            block,
            short,
            self._walk(block, (2, 1)) if outer else None,
            self._walk(block, (1, 2)) if inner else None,
        )

    def _survey(self) -> Survey:
        """How much of what a wave of blocks loads is shared between them."""
        wave = min(self.blocks, self.active * self.resident, SURVEYED)
        first = max((self.blocks - wave) // 2, 0)
        n = np.arange(first, first + wave)
        gx, gy, _ = self.grid
        block = (n % gx, n // gx % gy, n // (gx * gy))
        survey = Survey()
        Walker(self.spec, self.grid, self.params, block, self.costs, None, survey).walk()
        return survey

    # -------------------------------------------------------------------------------- memory
    def _share(self, programs: list[Walked], survey: Survey) -> Share:
        r = self.rates
        loads, stores = self._traffic(programs)
        sizes = {p.number: p.nbytes for p in self.params if isinstance(p, Global)}
        spread = {a: s for p in programs for a, s in p.short.gathered.items()}
        for a in spread:
            if sizes[a] <= GATHERED_L1:  # then the L1 caches have it
                loads[a] = min(loads.get(a, 0.0), float(sizes[a]) * self.blocks)
        touched = {a: min(float(sizes[a]), b * spread.get(a, 1.0)) for a, b in loads.items()}
        written = {a: min(float(sizes[a]), b) for a, b in stores.items()}
        footprint = sum(max(touched.get(a, 0.0), written.get(a, 0.0)) for a in sizes)
        fits = self.fits = footprint <= r.l2_bytes
        evicted = 0.0 if self.warm or not fits else r.dirty
        far_loads, far_stores, late = {}, {}, {}
        for a, nbytes in loads.items():
            if fits:
                far = 0.0 if self.warm else touched[a]
            else:
                far = max(touched[a], survey.unique(a) * nbytes)
            part = min(far / nbytes, 1.0) if nbytes else 0.0
            far_loads[a] = part * (1 + evicted)
            late[a] = min(part / max(survey.unique(a), 1e-9), 1.0)
        for a, nbytes in stores.items():
            far = evicted if fits else 1.0
            far_stores[a] = min(written[a] / nbytes, 1.0) * far if nbytes else 0.0
        reads = sum(far_loads[a] * b for a, b in loads.items())
        writes = sum(far_stores[a] * b for a, b in stores.items())
        per_cycle = self.ghz * 1e9
        part = reads / (reads + writes) if reads + writes else 1.0
        edge = r.dram_read if part >= 0.5 else r.dram_write
        dram = r.dram_copy + (edge - r.dram_copy) * abs(2 * part - 1)
        self.far = reads + writes
        merged = {a: 1.0 / self._together(survey.unique(a)) for a in loads}
        self.near = sum(b * merged[a] for a, b in loads.items()), sum(stores.values())
        self.dram_rate = dram / per_cycle
        return Share(
            l2_read=r.l2_read / self.active,
            l2_write=r.l2_write / self.active,
            dram=dram / per_cycle / self.active,
            far_loads=far_loads,
            far_stores=far_stores,
            sms=self.active,
            merged=merged,
            late=late,
        )

    def _together(self, unique: float) -> float:
        """What SMs gain that read one place at a time; `unique`: the part of places that differ."""
        known = sorted(self.rates.sharing)
        degree = min(1.0 / max(unique, 1e-9), float(self.active))
        gains = [self.rates.sharing[k] for k in known]
        return float(np.interp(math.log(max(degree, 1.0)), np.log(known), gains))

    def _traffic(self, programs: list[Walked]) -> tuple[dict[int, float], dict[int, float]]:
        """Bytes of the whole grid between L1 and L2, by array."""
        out: tuple[dict[int, float], dict[int, float]] = ({}, {})
        each = self.blocks / len(programs)
        for p in programs:
            for into, name in zip(out, ("loads", "stores"), strict=True):
                for a in getattr(p.short, name):
                    nbytes = p.full(lambda q, a=a, name=name: getattr(q, name).get(a, 0.0))
                    into[a] = into.get(a, 0.0) + nbytes * each
        return out

    def _floor(self) -> float:
        """Cycles that the memory system needs for the whole grid."""
        reads, writes = self.near
        return max(
            self.far / self.dram_rate, reads / self.rates.l2_read, writes / self.rates.l2_write
        )

    # --------------------------------------------------------------------------------- replay
    def _cycles(self, walked: Walked, share: Share) -> tuple[float, Played]:
        """Cycles of the SM that has most blocks, all of them like this one."""
        played: dict[int, tuple[float, Played]] = {}

        def cycles(p: Program) -> float:
            if id(p) not in played:
                played[id(p)] = self._play(p, share)
            return played[id(p)][0]

        if walked.outer is None:
            return cycles(walked.short), played[id(walked.short)][1]
        # More laps until one adds as much as the one before: short loops hide behind what stands
        # around them.
        laps, last = 1 + walked.short.stretch[0], 2.0
        now = cycles(walked.outer)
        pace = now - cycles(walked.short)
        steady = False
        while not steady and last < laps:
            ahead = min(2 * last, laps)
            longer = self._walk(walked.block, (round(ahead), 1))
            then = cycles(longer)
            self.longer.append(longer)  # kept, since it is known by its place in memory
            fresh = (then - now) / (ahead - last)
            steady = abs(fresh - pace) <= STEADY * fresh and not longer.filling
            steady = steady or longer.events > MOST
            now, last, pace = then, ahead, fresh
        return now + (laps - last) * pace + walked.inside(cycles), played[id(walked.short)][1]

    def _play(self, program: Program, share: Share) -> tuple[float, Played]:
        each, resident = self.each, self.resident
        count = each if each <= 3 * resident else 2 * resident + each % resident
        try:
            played = Replay(program, self.rates, share).run(count, resident)
        except Stuck as e:
            raise ValueError(f"no estimate for {self.spec.name}: {e}") from e
        ends = sorted(played.ends)
        last = max(ends[-1], played.drained if count == each else 0.0)
        if count < each:
            # No faster than what a block needs of the busiest resource.
            least = max(played.work().values(), default=0.0) / count
            pace = max((ends[-1] - ends[-1 - resident]) / resident, least)
            last = ends[-1] + (each - count) * pace + max(played.drained - ends[-1], 0.0)
        return last, played
