"""Where kernels stand under a GPU's roofs: bounds computed from counters and the device table.

A point is what the roofs allow for the operations that a run counted if every sector that it asked
for came from DRAM; where the L2 cache serves some again, the memory bound lies higher. If the run
was timed on a GPU, the measured rate is drawn as well. Both are labelled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tklearn.lang.errors import FigureError
from tklearn.report import Report
from tklearn.viz.picture import OKABE_ITO, Picture, new_figure

MARKERS = "osD^vPX*"


@dataclass(frozen=True)
class Point:
    """One kernel. flops: of the tensor cores. nbytes: of the sectors asked for. bound: the highest
    FLOP/s that the roofs allow if all of them come from DRAM. measured: FLOP/s of a timed run, or
    None."""

    name: str
    flops: int
    nbytes: int
    bound: float
    measured: float | None

    @property
    def intensity(self) -> float:
        """FLOP a byte."""
        return self.flops / self.nbytes


@dataclass(frozen=True)
class Roofline:
    """A device's roofs [data sheet] and the kernels below them; others: the same for more devices,
    among which the widget chooses."""

    device: str
    bandwidth: float
    tensor_flops: float
    points: tuple[Point, ...]
    others: tuple[Roofline, ...] = ()

    @property
    def ridge(self) -> float:
        """FLOP a byte at which the roofs meet."""
        return self.tensor_flops / self.bandwidth


def roofs(reports: Sequence[Report] | Report, device: Any, names: Sequence[str] = ()) -> Roofline:
    """The numbers of `roofline`: see there."""
    if isinstance(device, list | tuple):
        first, *rest = (roofs(reports, d, names) for d in device)
        return replace(first, others=tuple(rest))
    points = []
    for n, r in enumerate([reports] if isinstance(reports, Report) else reports):
        total = r.total
        sectors = sum(total[f"global_{k}_sectors"] for k in ("ld", "st"))
        flops, nbytes = total["tensor_flops"], 32 * sectors
        if not flops or not nbytes:
            raise FigureError(
                "TK600",
                f"{r.kernel} counted {flops:,} tensor operations and {nbytes:,} bytes",
                hint="a roofline needs both; a kernel without tensor-core work is bound by memory: "
                "its least time is its bytes over the bandwidth",
            )
        bound = min(device.tensor_flops, flops / nbytes * device.dram_bytes_per_s)
        seconds = r.seconds if r.machine == "cuda" else None
        name = names[n] if n < len(names) else r.kernel
        points.append(Point(name, flops, nbytes, bound, flops / seconds if seconds else None))
    return Roofline(device.name, device.dram_bytes_per_s, device.tensor_flops, tuple(points))


def roofline(reports: Sequence[Report] | Report, device: Any, names: Sequence[str] = ()) -> Picture:
    """A picture of kernels under the roofs of `device`, an entry of tklearn.devices.DEVICES.

    Of a list of devices the first is drawn, and the widget chooses among them. names: of the
    reports, in their order (default: the kernels' own).

    Filled marks are bounds, not measurements: the most that the counted tensor operations and
    sectors allow if no cache serves a sector twice (the L2 cache lifts that bound). Hollow marks,
    if any, are measured. Errors: TK600 for a report without both.
    """
    r = roofs(reports, device, names)
    return Picture(_figure(r), describe(r), r)


def _figure(r: Roofline) -> Any:
    fig = new_figure(7.2, 4.3)
    ax = fig.add_axes((0.11, 0.13, 0.85, 0.7))
    xs = [p.intensity for p in r.points] + [r.ridge]
    low = min(p.measured or p.bound for p in r.points) / 5e12
    x = np.array([min(xs) / 8, r.ridge, max(xs) * 12])
    ax.loglog(x, np.minimum(x * r.bandwidth, r.tensor_flops) / 1e12, color="black", lw=1.6)
    ax.axvline(r.ridge, color="0.6", lw=0.8, ls=":")
    ax.text(
        x[-1] * 0.93, r.tensor_flops / 1e12 * 1.12,
        f"tensor cores {r.tensor_flops / 1e12:,.0f} TFLOP/s", ha="right", va="bottom", size=8,
    )  # fmt: skip
    ax.text(
        2.4e12 * low / r.bandwidth, 1.8 * low, f"DRAM {r.bandwidth / 1e9:,.0f} GB/s",
        ha="left", va="center", size=8,
    )  # fmt: skip
    for i, p in enumerate(r.points):
        colour, marker = OKABE_ITO[(i + 4) % 8], MARKERS[i % len(MARKERS)]
        ax.plot(p.intensity, p.bound / 1e12, marker, ms=8, color=colour, mec="black")
        ax.annotate(
            f"{p.name}: at most {p.bound / 1e12:,.0f} TFLOP/s", (p.intensity, p.bound / 1e12),
            (8, -14 - 12 * (i % 3)), textcoords="offset points", size=8,
        )  # fmt: skip
        if p.measured:
            ax.plot(p.intensity, p.measured / 1e12, marker, ms=8, mfc="white", mec=colour, mew=2)
            ax.annotate(
                f"measured {p.measured / 1e12:,.0f}", (p.intensity, p.measured / 1e12), (8, -4),
                textcoords="offset points", size=8,
            )  # fmt: skip
    ax.set_ylim(low, r.tensor_flops / 1e12 * 3)
    ax.set_xlim(x[0], x[-1])
    ax.set_xlabel("tensor-core FLOP per byte moved (counted by the run)", size=8.5)
    ax.set_ylabel("TFLOP/s", size=8.5)
    ax.tick_params(labelsize=8)
    fig.text(0.02, 0.95, f"Under the roofs of {r.device}", size=10, weight="bold", va="center")
    fig.text(
        0.02, 0.89, "filled marks: bounds, not measurements (counters and data sheet; every sector "
        "from DRAM, none from L2)",
        size=8, va="center", color="0.25",
    )  # fmt: skip
    return fig


def describe(r: Roofline) -> str:
    """What the figure shows, in words."""
    parts = [
        f"Roofline of {r.device}: {r.bandwidth / 1e9:,.0f} GB/s of DRAM and "
        f"{r.tensor_flops / 1e12:,.0f} TFLOP/s of tensor cores meet at {r.ridge:.0f} FLOP a byte. "
        "Bounds, not measurements, with every counted sector from DRAM:"
    ]
    for p in r.points:
        side = "memory" if p.intensity < r.ridge else "arithmetic"
        said = f"{p.name}: {p.intensity:.1f} FLOP a byte, at most {p.bound / 1e12:,.1f} TFLOP/s"
        if p.measured:
            said += f", measured {p.measured / 1e12:,.1f}"
        parts.append(f"{said}, bound by {side} if no cache helps.")
    return " ".join(parts)
