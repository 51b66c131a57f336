"""One global-memory access, sector by sector: which bytes lanes ask for and which are moved.

Draws executed accesses (Report.accesses, from a run with trace=True) or offsets of the reader's
own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from tklearn import access
from tklearn.lang.errors import FigureError
from tklearn.report import Report, WarpAccess
from tklearn.viz.banks import KINDS, find
from tklearn.viz.picture import (
    OKABE_ITO,
    UNUSED,
    Picture,
    axis_numbers,
    colours,
    count,
    grid,
    ink,
    lane_colour,
    new_figure,
    ranges,
)

LINE, WORDS = 128, 32  # bytes and words of a line


@dataclass(frozen=True)
class Sectors:
    """One access: which words of which sectors each lane asks for.

    sectors: numbers of the 32-byte sectors moved. words: 4-byte word -> lanes. ideal: sectors that
    the distinct bytes asked for would fill.
    """

    name: str
    kind: str
    width: int
    offsets: tuple[int, ...]
    words: dict[int, tuple[int, ...]]
    sectors: tuple[int, ...]

    @property
    def used(self) -> int:
        """Distinct bytes that some lane asks for."""
        return len({b for o in self.offsets if o >= 0 for b in range(o, o + self.width)})

    @property
    def moved(self) -> int:
        return 32 * len(self.sectors)

    @property
    def ideal(self) -> int:
        """Sectors that would do if the distinct bytes asked for were neighbours."""
        return -(-self.used // 32)


def sector_map(
    source: Report | WarpAccess | str, at: int | str | Sequence[int] = -1, which: int = 0
) -> Sectors:
    """The numbers of `coalescing`: see there."""
    name = ""
    if isinstance(source, str):
        if isinstance(at, int | str) or source[:3] not in ("ldg", "stg"):
            raise FigureError(
                "TK600", f"no sectors of {source!r}", hint='coalescing("ldg32", 32 byte offsets)'
            )
        access.sectors(source, np.asarray(at))  # its checks
        off = tuple(int(x) for x in at)
        made = WarpAccess("global", source[:2], int(source[3:]) // 8, off, source)
    elif isinstance(source, Report):
        assert isinstance(at, int | str)
        made, name = find(source, at, "global", which)
    else:
        made = source
    if made.space != "global":
        raise FigureError("TK600", f"a {made.space} access has no sectors", hint="see viz.banks")
    words: dict[int, list[int]] = {}
    for lane, o in enumerate(made.offsets):
        for word in range(o // 4, (o + max(made.width, 4 - o % 4)) // 4) if o >= 0 else ():
            words.setdefault(word, []).append(lane)
    sectors = tuple(sorted({w // 8 for w in words}))
    at_all = np.array([made.offsets])
    assert len(sectors) == int(access.sectors_many(at_all)[0])
    held = {w: tuple(x) for w, x in sorted(words.items())}
    return Sectors(name or made.array, made.kind, made.width, made.offsets, held, sectors)


def coalescing(
    source: Report | WarpAccess | str, at: int | str | Sequence[int] = -1, which: int = 0
) -> Picture:
    """A picture of one access of global memory: lanes in the 32-byte sectors that are moved.

    Arguments as `banks`; with offsets of your own: coalescing("ldg32", offsets), for the ops ldg8
    to stg128.

    A row is 128 bytes of memory, four sectors. Coloured words are asked for (the number is the
    lane, the colour lane % 8); hatched grey ones are moved and not used. Of a cp.async this is the
    global side: into padded shared rows the hardware can move more sectors than it draws (the
    report's cp_async_sectors counts those).
    """
    s = sector_map(source, at, which)
    return Picture(_figure(s), describe(s), s)


def _figure(s: Sectors) -> Any:
    lines = sorted({w * 4 // LINE for w in s.words})
    cell, high = 0.265, 0.24
    width, height = cell * WORDS + 1.5, high * max(len(lines), 1) + 1.05
    fig = new_figure(width, height)
    fig.text(0.12 / width, 1 - 0.2 / height, title(s), size=10, weight="bold", va="center")
    fig.text(0.12 / width, 1 - 0.42 / height, verdict(s), size=8.5, va="center")
    if not lines:
        return fig
    first = np.full((len(lines), WORDS), -1)
    for i, line in enumerate(lines):
        for k in range(WORDS):
            word = line * WORDS + k
            if word // 8 in s.sectors:
                first[i, k] = s.words[word][0] % 8 if word in s.words else 8
    ax = fig.add_axes(
        (0.95 / width, 0.1 / height, cell * WORDS / width, high * len(lines) / height)
    )
    grid(ax, colours(first, (*OKABE_ITO, UNUSED)), line=0.4)
    for i, line in enumerate(lines):
        for k in range(WORDS):
            lanes = s.words.get(line * WORDS + k)
            if lanes:
                text = str(lanes[0]) if len(lanes) == 1 else f"{lanes[0]}+"
                ax.text(
                    k + 0.5, i + 0.52, text, ha="center", va="center", size=6.5,
                    color=ink(lane_colour(lanes[0])),
                )  # fmt: skip
            elif first[i, k] == 8:
                ax.fill(
                    [k, k + 1, k + 1, k], [i, i, i + 1, i + 1], facecolor="none",
                    edgecolor="0.55", hatch="////", lw=0,
                )  # fmt: skip
        ax.text(-0.3, i + 0.5, f"byte {line * LINE}", ha="right", va="center", size=6.5)
    ax.vlines(range(0, WORDS + 1, 8), 0, len(lines), color="black", lw=1.8, clip_on=False, zorder=3)
    axis_numbers(ax, (), range(0, WORDS, 8), 6)
    for k in range(4):
        ax.text(8 * k + 4.5, -0.3, f"sector {k}", ha="center", va="bottom", size=6.5, color="0.35")
    return fig


def title(s: Sectors) -> str:
    what = f"{KINDS[s.kind]}, {8 * s.width} bits a lane"
    return f"{s.name}  ({what})" if s.name else what


def verdict(s: Sectors) -> str:
    if not s.sectors:
        return "no lane is active: nothing is moved"
    said = f"{count(len(s.sectors), 'sector')} of 32 bytes (ideal {s.ideal}): "
    return said + f"{s.moved:,} bytes moved, {s.used:,} used"


def describe(s: Sectors) -> str:
    """What the figure shows, in words."""
    lanes = [i for i, o in enumerate(s.offsets) if o >= 0]
    parts = [f"Global-memory access by sectors: {title(s)}. {verdict(s)}."]
    if lanes:
        steps = {b - a for a, b in pairwise(s.offsets)}
        parts.append(f"Lanes {ranges(lanes)} are active.")
        if len(lanes) == 32 and len(steps) == 1:
            parts.append(f"Each lane is {steps.pop()} bytes after the one before.")
        parts.append(
            f"The sectors lie in {count(len({x // 4 for x in s.sectors}), 'line')} of 128 bytes."
        )
    return " ".join(parts)
