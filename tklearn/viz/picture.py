"""What every figure shares: colours, grids of cells, and a picture with its alternative text.

Knows matplotlib and nothing of kernels. Colour never stands alone: every cell that a colour marks
has a number or a hatch too, so that prints and colour-blind readers lose nothing.
"""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tklearn.viz.widgets import Interactive

OKABE_ITO = (
    "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#000000",
)  # fmt: skip
"""Okabe and Ito's colours, told apart by colour-blind readers; matplotlib's `okabe_ito`."""
BLANK, UNUSED, EDGE, EXCESS = "#FFFFFF", "#D9D9D9", "#8C8C8C", "#D55E00"
DPI = 110


@dataclass(frozen=True)
class Picture:
    """A figure, the numbers it was drawn from, and in words what it shows.

    Displays itself in a notebook as an image with alternative text; `savefig` writes it to a file
    (PNG, SVG, PDF); `widget()` is the same data to click through. print(picture) gives the words.
    """

    figure: Figure
    alt: str
    data: Any

    def savefig(self, path: Any, **options: Any) -> None:
        """Write the figure, its alternative text in the file's description where it has one."""
        name = str(path).lower()
        if "metadata" not in options and name.endswith((".png", ".svg")):
            options["metadata"] = {"Description": self.alt}
            if name.endswith(".svg"):
                options["metadata"]["Date"] = None  # the same bytes each time
        options = {"dpi": DPI, "facecolor": "white", **options}
        self.figure.savefig(path, **options)

    def png(self) -> bytes:
        """The figure as PNG of at most 128 colours, a third of the bytes."""
        from PIL import Image  # matplotlib writes PNG with it

        full, out = io.BytesIO(), io.BytesIO()
        self.figure.savefig(full, format="png", dpi=DPI, facecolor="white")
        few = Image.open(full).convert("RGB").quantize(128, dither=Image.Dither.NONE)
        few.save(out, format="png", optimize=True)
        return out.getvalue()

    def img(self) -> str:
        """The figure as one HTML element that needs nothing else."""
        data = base64.b64encode(self.png()).decode()
        width = round(self.figure.get_figwidth() * DPI)
        return (
            f'<img alt="{html.escape(self.alt, quote=True)}" style="max-width:100%;width:{width}px"'
            f' src="data:image/png;base64,{data}">'
        )

    def widget(self) -> Interactive:
        """The same data to click through, which shows this picture where widgets cannot load."""
        from tklearn.viz.widgets import Interactive

        return Interactive(self)

    def __str__(self) -> str:
        return self.alt

    def __repr__(self) -> str:
        return self.alt

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/html": self.img(), "text/plain": self.alt}


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, in inches, that pyplot does not know of."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height))


def lane_colour(lane: int) -> str:
    """Lanes by lane % 8: no palette separates 32, so the lane's number is written as well."""
    return OKABE_ITO[lane % 8]


def ink(colour: str) -> str:
    """Black or white, whichever reads better on `colour`."""
    from matplotlib.colors import to_rgb

    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in to_rgb(colour)]
    light = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "black" if (light + 0.05) / 0.05 > 1.05 / (light + 0.05) else "white"


def colours(numbers: NDArray[Any], palette: Iterable[str] = OKABE_ITO) -> NDArray[Any]:
    """RGB [rows, cols, 3] of numbers taken modulo the palette; negative is blank."""
    from matplotlib.colors import to_rgb

    table = np.array([to_rgb(c) for c in (*palette, BLANK)])
    return table[np.where(numbers < 0, len(table) - 1, numbers % (len(table) - 1))]


def grid(ax: Any, rgb: NDArray[Any], line: float = 0.6) -> None:
    """Cells in colour with thin lines between them; row 0 on top, one unit a cell."""
    rows, cols = rgb.shape[:2]
    ax.imshow(rgb, extent=(0, cols, rows, 0), interpolation="nearest", aspect="auto", zorder=0)
    if line:
        ax.hlines(range(rows + 1), 0, cols, color=EDGE, lw=line, zorder=2, clip_on=False)
        ax.vlines(range(cols + 1), 0, rows, color=EDGE, lw=line, zorder=2, clip_on=False)
    bare(ax, rows, cols)


def bare(ax: Any, rows: int, cols: int) -> None:
    """Limits in cells, no frame, no ticks."""
    ax.set_xlim(0, cols)
    ax.set_ylim(rows, 0)
    ax.set_xticks([])
    ax.set_yticks([])
    for side in ax.spines.values():
        side.set_visible(False)


def axis_numbers(ax: Any, rows: Iterable[int], cols: Iterable[int], size: float = 7) -> None:
    """Numbers at the left of some rows and on top of some columns."""
    for r in rows:
        ax.text(-0.3, r + 0.5, str(r), ha="right", va="center", size=size, color="0.35")
    for c in cols:
        ax.text(c + 0.5, -0.3, str(c), ha="center", va="bottom", size=size, color="0.35")


def ranges(numbers: Iterable[int]) -> str:
    """0-3, 8; 0, 2, ... 30: for labels and alternative texts."""
    out: list[list[int]] = []
    every = sorted(set(numbers))
    steps = {b - a for a, b in pairwise(every)}
    if len(every) > 4 and len(steps) == 1 and steps != {1}:
        return f"{every[0]}, {every[1]}, ... {every[-1]}"
    for n in every:
        if out and n == out[-1][1] + 1:
            out[-1][1] = n
        else:
            out.append([n, n])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in out)


def count(n: int, noun: str) -> str:
    """1 conflict, 2 conflicts, no conflicts."""
    plural = f"{noun}es" if noun.endswith("ss") else f"{noun}s"
    return f"no {plural}" if n == 0 else f"{n:,} {noun if n == 1 else plural}"
