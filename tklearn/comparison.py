"""predicted | simulated | measured: one table for one launch.

The simulator goes first, and a kernel that it faults is not launched. Where there is no GPU the
measured column comes from a recording of exactly this launch (recordings.py), or says why there is
none.
"""

from __future__ import annotations

import html
import inspect
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tklearn import devices, recordings, tensor
from tklearn.kernel import SIM_OPTIONS, Kernel, as_grid
from tklearn.lang import ir
from tklearn.lang.errors import LaunchError
from tklearn.report import METRICS, Report

DEFAULT = "H200"  # the GPU of the project's recordings


@dataclass(frozen=True)
class Row:
    """One line of the table; a column is None where there is nothing to say."""

    quantity: str
    predicted: str | None
    simulated: str | None
    measured: str | None
    difference: str
    reason: str = ""


@dataclass
class Comparison:
    """The table, the simulator's report, the GPU's report (or None) and the recording (or None)."""

    kernel: str
    device: str
    rows: list[Row]
    simulated: Report
    gpu: Report | None = None
    recording: recordings.Recording | None = None
    notes: list[str] = field(default_factory=list)

    HEAD = ("quantity", "predicted", "simulated", "measured", "difference", "why")

    def cells(self) -> list[tuple[str, ...]]:
        return [
            (
                r.quantity,
                r.predicted or "-",
                r.simulated or "-",
                r.measured or "-",
                r.difference,
                r.reason,
            )
            for r in self.rows
        ]

    def __str__(self) -> str:
        table = [self.HEAD, *self.cells()]
        widths = [max(len(row[i]) for row in table) for i in range(len(self.HEAD))]
        lines = []
        for n, row in enumerate(table):
            left = [row[0].ljust(widths[0])]
            right = [c.rjust(w) for c, w in zip(row[1:5], widths[1:5], strict=True)]
            lines.append("  ".join([*left, *right, row[5]]).rstrip())
            if n == 0:
                lines.append("-" * len(lines[0]))
        title = f"{self.kernel}: predicted | simulated | measured ({self.source_of_measurement()})"
        return "\n".join([title, *lines, *(f"note: {x}" for x in self.notes)])

    __repr__ = __str__

    def source_of_measurement(self) -> str:
        """Where the measured column comes from."""
        if self.gpu is not None:
            return f"measured now on {self.gpu.device}"
        if self.recording is not None:
            return f"recorded on {self.recording.device}, {self.recording.date}"
        return f"not measured; {self.device} predicted"

    def _repr_html_(self) -> str:
        head = "".join(f"<th style='text-align:left'>{html.escape(h)}</th>" for h in self.HEAD)
        body = ""
        for row in self.cells():
            cells = [f"<td style='text-align:left'>{html.escape(row[0])}</td>"]
            cells += [f"<td style='text-align:right'>{html.escape(c)}</td>" for c in row[1:5]]
            cells += [f"<td style='text-align:left'>{html.escape(row[5])}</td>"]
            body += f"<tr>{''.join(cells)}</tr>"
        notes = "".join(f"<p>note: {html.escape(x)}</p>" for x in self.notes)
        cap = html.escape(f"{self.kernel}: measured column: {self.source_of_measurement()}")
        return f"<table><caption>{cap}</caption><tr>{head}</tr>{body}</table>{notes}"


def compare(
    kernel: Kernel, grid: Any, args: Any, *, device: str | None = None, **options: Any
) -> Comparison:
    """Runs one launch on copies of `args` on the simulator, then on the GPU if there is one.

    Args:
        kernel: a @tk.kernel. grid: as in kernel[grid]. args: the positional arguments, NumPy arrays
            and numbers. device: the GPU of the prediction and of the recording to show, a name of
            devices.DEVICES; by default the GPU of this machine, else the H200.
        options: compile-time parameters by name, and options of kernel.sim.

    Errors: TK400 for what is no kernel or no tuple of arguments; whatever the simulator raises:
    the kernel is then not launched on the GPU.
    """
    form = "tk.compare(kernel, blocks, (x, y))"
    if not isinstance(kernel, Kernel):
        raise LaunchError("TK400", f"{type(kernel).__name__} is not a kernel", hint=form)
    if not isinstance(args, (tuple, list)):
        raise LaunchError(
            "TK400", f"the arguments must be one tuple, not {type(args).__name__}", hint=form
        )
    grid = as_grid(grid)
    consts = {n: v for n, v in options.items() if n in kernel.params}
    unknown = [n for n in options if n not in kernel.params and n not in SIM_OPTIONS]
    if unknown:
        kernel.bind(tuple(args), {**consts, unknown[0]: None})  # raises with the kernel's form
    sim_options = {n: v for n, v in options.items() if n not in consts}
    values, static = kernel.bind(tuple(args), consts)
    spec = kernel.ir(*args, **consts)
    names = [s.name for s in spec.params]
    host = [_copy(a) for a in values]
    simulated = kernel.sim[grid](**dict(zip(names, host, strict=True)), **static, **sim_options)
    live = gpu_here()
    device = device or (_model_here() if live else DEFAULT)
    out = Comparison(kernel.__name__, device, [], simulated)
    measured: dict[str, int] = {}
    error: float | None = None
    seconds: float | None = None
    if live:
        on_gpu = [_to_gpu(a) for a in values]
        given = {**dict(zip(names, on_gpu, strict=True)), **static}
        if RECORDER is not None and RECORDER.counting:
            kernel.counting[grid](**given)
            return out
        out.gpu = kernel[grid](**given)
        error = _largest_difference(spec, host, on_gpu)
        seconds = out.gpu.seconds
        if RECORDER is not None and seconds is not None:
            RECORDER.add(kernel, spec, values, grid, error, seconds)
    else:
        out.recording = recordings.find(spec, values, grid, device)
        if out.recording is not None:
            measured, error, seconds = (
                out.recording.counters,
                out.recording.error,
                out.recording.seconds,
            )
        else:
            text = inspect.getsource(kernel.fn)
            out.notes.append(recordings.nearest(spec, values, grid, text))
    blocks = grid[0] * grid[1] * grid[2]
    out.rows = _rows(spec, simulated, values, device, measured, error, seconds, blocks)
    compiled = out.gpu.compiled if out.gpu is not None else None
    warm = in_l2(values, device)
    out.rows += _estimate(simulated, device, compiled, seconds, out.notes, warm)
    return out


def _model_here() -> str:
    """This machine's GPU as devices.DEVICES names it; the default for one that is not in it."""
    from tklearn.cuda.launch import device_name

    try:
        return devices.device(device_name()).name
    except KeyError:
        return DEFAULT


def gpu_here() -> bool:
    """Whether CuPy is installed and sees a GPU."""
    try:
        import cupy

        return cupy.is_available()
    except ImportError:
        return False


def capability_here() -> int:
    """90 for an H200; of this machine's first GPU."""
    from tklearn.cuda.launch import device_facts

    return device_facts(0)[1]


def _copy(a: Any) -> Any:
    d = tensor.describe(a)
    return a if d is None else np.array(d.numpy(), copy=True)


def _to_gpu(a: Any) -> Any:
    d = tensor.describe(a)
    if d is None:
        return a
    from tklearn.cuda.launch import to_device

    return to_device(d.numpy())


def _largest_difference(spec: ir.Kernel, host: list[Any], on_gpu: list[Any]) -> float:
    """Over all outputs; a NaN on one machine only is infinitely far."""
    worst = 0.0
    for s, h, g in zip(spec.params, host, on_gpu, strict=True):
        if s.written and isinstance(h, np.ndarray):
            d = tensor.describe(g)
            assert d is not None
            a, b = h.astype(np.float64), d.numpy().astype(np.float64)
            with np.errstate(invalid="ignore"):
                gap = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
            worst = max(worst, float(np.max(np.where(np.isnan(gap), np.inf, gap), initial=0.0)))
    return worst


def _bound(
    spec: ir.Kernel, simulated: Report, numbers: list[Any], dev: devices.Device
) -> tuple[float, str]:
    """The roofline's lower bound on the time: seconds, and what bounds it."""
    moved = 0
    for s, a in zip(spec.params, numbers, strict=True):
        if hasattr(a, "nbytes"):
            moved += a.nbytes * (s.read + s.written)
    memory = moved / dev.dram_bytes_per_s
    total = simulated.total
    tensor_time = (total["tensor_flops"] + total["wgmma_flops"]) / dev.tensor_flops
    return (memory, "memory") if memory >= tensor_time else (tensor_time, "tensor cores")


def in_l2(numbers: list[Any], device: str) -> bool:
    """Whether the L2 cache keeps all arrays from one launch to the next."""
    from tklearn.sim.timing.rates import rates

    return sum(a.nbytes for a in numbers if hasattr(a, "nbytes")) <= rates(device).l2_bytes


HIGH = ("shared_ld_wavefronts", "shared_ld_conflicts")
"""Counters that read high with several blocks on an SM: by 0.1 to 2 % of the wavefronts."""


def _l2_beats(bound: float, dev: devices.Device) -> bool:
    """Whether a launch that finds all its bytes in L2 can take less than the bound by DRAM."""
    from tklearn.sim.timing.rates import rates

    r = rates(dev.name)
    return r.launch + bound * dev.dram_bytes_per_s / (r.l2_read * r.ghz * 1e9) < bound


UNCOUNTED = "not measured: the GPU's counter knows products of bf16 summed in f32 only"


def _reason(
    key: str, gap: int, total: dict[str, int], blocks: int, spec: ir.Kernel, dev: devices.Device
) -> str:
    """Why a counter reads `gap` more than the addresses say, where that is known (FACTS.md 1)."""
    if not gap:
        return ""
    bf16 = "bf16" in {_dtype(s) for s in spec.params}
    if key in ("tensor_flops", "wgmma_flops") and gap < 0 and not bf16:
        return UNCOUNTED
    if key in HIGH and gap > 0 and blocks > dev.sms:
        high = gap / max(total["shared_ld_wavefronts"], 1)
        if high <= 0.02:
            return (
                f"not from the addresses: several blocks share an SM ({blocks:,} on {dev.sms}) and "
                f"the counter then reads 0.1 to 2 % high, here {100 * high:.2g} % of the wavefronts"
            )
    return "no known reason: is it the same build and are the addresses the same?"


def _dtype(s: Any) -> str:
    return getattr(getattr(s.type, "dtype", None), "name", "")


def _rows(
    spec: ir.Kernel, simulated: Report, numbers: list[Any], device: str,
    measured: dict[str, int], error: float | None, seconds: float | None, blocks: int = 1,
) -> list[Row]:  # fmt: skip
    dev = devices.device(device)
    rows = [
        Row(
            "values",
            None,
            "reference",
            None if error is None else f"{error:.2g}" if error else "same bits",
            "0" if error == 0 else "",
            "largest |GPU - simulator|" if error else "",
        )
    ]
    total = simulated.total
    for key in METRICS:
        if not (total[key] or measured.get(key)) or key.endswith("_ideal"):
            continue
        ideal = total.get(key.replace("_sectors", "_ideal").replace("_wavefronts", "_ideal"), 0)
        predicted = f"{ideal:,}" if ideal and ("sectors" in key or "wavefronts" in key) else None
        got = measured.get(key)
        gap = "" if got is None else "0" if got == total[key] else f"{got - total[key]:+,}"
        why = _reason(key, 0 if got is None else got - total[key], total, blocks, spec, dev)
        if why == UNCOUNTED:
            got, gap = None, ""
        if not why and predicted:
            why = "predicted: every byte used, no conflict"
        rows.append(
            Row(
                key.replace("_", " "),
                predicted,
                f"{total[key]:,}",
                None if got is None else f"{got:,}",
                gap,
                why,
            )
        )
    bound, by = _bound(spec, simulated, numbers, dev)
    gap = f"{seconds / bound:.2f}x" if seconds and bound else ""
    took = f"{seconds * 1e6:.2f} us" if seconds else None
    why = f"predicted: lower bound by {by} of the {device}"
    if by == "memory" and in_l2(numbers, device) and _l2_beats(bound, dev):
        why = (
            "predicted: lower bound by memory (DRAM); the arrays fit into L2, which can be quicker"
        )
    rows.append(Row("time", f"{bound * 1e6:.2f} us", None, took, gap, why))
    return rows


def _estimate(
    simulated: Report, device: str, compiled: Any, seconds: float | None, notes: list[str],
    warm: bool = False,
) -> list[Row]:  # fmt: skip
    """The time by the model of sim/timing, with the error that is published for it. `warm`: said
    where the L2 cache has the arrays from the launch before."""
    registers = compiled.registers if compiled is not None else None
    try:
        e = simulated.estimate(device=device, registers=registers)
    except (LaunchError, ValueError) as none:
        notes.append(f"no time estimate: {none}")
        return []
    took = f"{seconds * 1e6:.2f} us" if seconds else None
    gap = f"{seconds / e.seconds:.2f}x" if seconds else ""
    band = f"median error {100 * e.error:.0f} %" if e.error is not None else "not checked"
    busy = f"busiest: {e.bound}, {100 * e.use.get(e.bound, 0.0):.0f} %"
    why = f"an estimate ({band}{', L2 warm' if warm else ''}); {busy}"
    return [Row("time, estimated", f"{e.seconds * 1e6:.2f} us", None, took, gap, why)]


class Recorder:
    """What `tklearn record` collects while it runs a notebook on a GPU.

    `counting`: each comparison only launches its kernel once, in the counting build, under a
    profiler.
    """

    def __init__(self, command: str, counting: bool = False) -> None:
        self.command, self.counting = command, counting
        self.found: list[recordings.Recording] = []

    def add(
        self, kernel: Kernel, spec: ir.Kernel, numbers: list[Any], grid: tuple[int, int, int],
        error: float, seconds: float,
    ) -> None:  # fmt: skip
        import datetime

        from tklearn.cuda.launch import device_name, driver_version

        self.found.append(
            recordings.Recording(
                kernel=spec.name,
                digest=ir.digest(spec),
                arguments=recordings.describe_arguments(numbers),
                grid=grid,
                device=device_name(),
                driver=driver_version(),
                date=datetime.date.today().isoformat(),
                command=self.command,
                seconds=seconds,
                error=error,
                source=inspect.getsource(kernel.fn),
            )
        )


RECORDER: Recorder | None = None
"""Set by `tklearn record` for the time of one notebook."""
