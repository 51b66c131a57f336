"""Where a GPU's arithmetic is: the tensor cores' share, and one product with and without them.

The shares come from the device table; the times from two comparisons that the reader has just
made (tk.compare), so that nothing in the figure is typed.
"""

from __future__ import annotations

from typing import Any

from tklearn.comparison import Comparison
from tklearn.devices import DEVICES, device
from tklearn.viz.picture import OKABE_ITO, Picture, new_figure

GPUS = ("T4", "A100", "H100")
TENSOR, LANES = OKABE_ITO[4], OKABE_ITO[0]


def share(name: str) -> float:
    """The tensor cores' part of a GPU's peak arithmetic: 16-bit products against f32 ones."""
    gpu = DEVICES[name]
    return gpu.tensor_flops / (gpu.tensor_flops + gpu.fp32_flops)


def shares(names: tuple[str, ...] = GPUS) -> Picture:
    """A bar for each GPU: what its tensor cores can do, and what its lanes can."""
    fig = new_figure(7.4, 0.62 * len(names) + 0.75)
    ax = fig.add_axes((0.09, 0.08, 0.89, 0.74))
    for y, name in enumerate(names):
        gpu, part = DEVICES[name], 100 * share(name)
        ax.barh(y, part, color=TENSOR, height=0.66)
        ax.barh(y, 100 - part, left=part, color=LANES, height=0.66, hatch="///", edgecolor="white")
        said = f"tensor cores: {gpu.tensor_flops / 1e12:,.0f} TFLOP/s, {part:.0f} %"
        ax.text(part / 2, y, said, color="white", ha="center", va="center", size=9)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.set_xlim(0, 100)
    ax.set_yticks(range(len(names)), names, size=9)
    _bare(ax)
    fig.text(0.09, 0.93, "Where the arithmetic is", size=10, weight="bold", va="center")
    fig.text(
        0.98, 0.93, "hatched: ordinary f32 arithmetic of the lanes", size=8.5, ha="right",
        va="center",
    )  # fmt: skip
    each = "; ".join(
        f"{n}: tensor cores {DEVICES[n].tensor_flops / 1e12:,.0f} TFLOP/s, lanes "
        f"{DEVICES[n].fp32_flops / 1e12:,.0f}, a share of {share(n):.0%}"
        for n in names
    )
    alt = f"Bars of the peak arithmetic of GPUs, from the device table. {each}."
    return Picture(fig, alt, {n: share(n) for n in names})


def measured(c: Comparison) -> float | None:
    """Seconds on a GPU: of this machine, else of a recording; None without either."""
    if c.gpu is not None:
        return c.gpu.seconds
    return None if c.recording is None else c.recording.seconds


def times(products: dict[str, Comparison]) -> Picture:
    """Times of the same product, made with and without tensor cores.

    Args: products, what a bar is called -> its comparison; those with tensor-core work tell how
        many operations the product has. Each has a bar for the least time that the arithmetic
        takes at full rate, for the estimate, and for what was measured.
    """
    flops = max(c.simulated.total["tensor_flops"] for c in products.values())
    rows: list[tuple[str, float, bool]] = []
    for name, c in products.items():
        gpu, tensor = device(c.device), c.simulated.total["tensor_flops"] > 0
        rate = gpu.tensor_flops if tensor else gpu.fp32_flops
        rows.append((f"{name}: arithmetic alone", flops / rate, tensor))
        rows.append((f"{name}: estimated", c.simulated.estimate(device=c.device).seconds, tensor))
        seconds = measured(c)
        if seconds:
            rows.append((f"{name}: measured", seconds, tensor))
    most = max(s for _, s, _ in rows)
    fig = new_figure(7.4, 0.32 * len(rows) + 0.6)
    ax = fig.add_axes((0.36, 0.04, 0.62, 0.94 - 0.4 / (0.32 * len(rows) + 0.6)))
    for y, (_, seconds, tensor) in enumerate(rows):
        ax.barh(y, seconds, color=TENSOR if tensor else LANES, height=0.62)
        ax.text(seconds + most / 80, y, f"{seconds * 1e6:,.2f} us", size=8.5, va="center")
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.set_xlim(0, most * 1.15)
    ax.set_yticks(range(len(rows)), [n for n, _, _ in rows], size=8.5)
    _bare(ax)
    where = next(iter(products.values())).device
    title = f"{flops:,} operations on the {where}"
    fig.text(0.02, 0.95, title, size=10, weight="bold", va="center")
    alt = f"Bars of times: {title}. " + "; ".join(f"{n} {s * 1e6:.2f} us" for n, s, _ in rows) + "."
    return Picture(fig, alt, rows)


def _bare(ax: Any) -> None:
    ax.set_xticks([])
    ax.tick_params(length=0)
    for side in ax.spines.values():
        side.set_visible(False)
