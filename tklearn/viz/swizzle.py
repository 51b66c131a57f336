"""Where a shared tile's pieces lie: the address map without a swizzle, with one, or one's own.

Draws from lang/layouts.py (or a function of the reader's) and access.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tklearn import access
from tklearn.lang import layouts
from tklearn.lang.errors import FigureError
from tklearn.lang.types import ST, DType
from tklearn.viz.picture import (
    Picture,
    axis_numbers,
    colours,
    count,
    grid,
    ink,
    lane_colour,
    new_figure,
)

SHOWN = 16, 32  # rows of 16-byte pieces, and of words, that are drawn
Own = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class AddressMap:
    """Where the pieces of a shared tile lie.

    Attributes:
        name: "no swizzle", "128-byte swizzle", ... unit: bytes of a piece, 16 or 4.
        place: [rows, pieces of a row], the byte at which each piece is stored.
        passes: wavefronts of reading down each column of pieces: by 8 rows with ldmatrix for pieces
            of 16 bytes, by 32 lanes for words; the worst of the column. 1 is ideal.
        wide: bytes from one row to the next (a narrow swizzle cuts a tile into strips, row by row).
    """

    name: str
    unit: int
    place: NDArray[Any]
    passes: tuple[int, ...]
    wide: int

    @property
    def banks(self) -> NDArray[Any]:
        """The first bank of each piece."""
        return self.place // 4 % 32

    @property
    def own_row(self) -> NDArray[Any]:
        """Whether each piece lies in its own row."""
        rows = len(self.place)
        return self.place // self.wide % rows == np.arange(rows)[:, None]

    @property
    def groups(self) -> NDArray[Any]:
        """Which of the 32 / (unit / 4) groups of banks each piece lies in."""
        return self.place // self.unit % (128 // self.unit)


def address_map(
    tile: ST | tuple[int, int, DType], own: Own | None = None, name: str = ""
) -> AddressMap:
    """The map of a shared tile type, or of rows x cols words of tk.shared_array.

    own(row, piece) says in which piece of its row a piece is stored: arrays in, an array out.
    Errors: TK600 where it is not one-to-one or leaves the row.
    """
    unit = 16 if isinstance(tile, ST) else 4
    if isinstance(tile, ST):
        rows, row_bytes = tile.rows, tile.cols * tile.dtype.itemsize
        per, pitch = unit // tile.dtype.itemsize, row_bytes + tile.pad * tile.dtype.itemsize
    else:
        rows, cols, dtype = tile
        row_bytes = pitch = cols * dtype.itemsize
        if dtype.itemsize != 4:
            raise FigureError("TK600", f"words of 4 bytes are drawn, not {dtype.name}")
    pieces = row_bytes // unit
    r, p = np.arange(rows)[:, None], np.arange(pieces)[None]
    if own is not None:
        to = np.broadcast_to(np.asarray(own(r, p)), (rows, pieces))
        if (np.sort(to, axis=1) != p).any():
            bad = int((np.sort(to, axis=1) != p).any(axis=1).argmax())
            raise FigureError(
                "TK600",
                f"row {bad}: pieces {list(range(pieces))[:8]}... go to {to[bad].tolist()[:8]}...",
                hint=f"each of the {pieces} pieces of a row needs a place of its own among them",
            )
        place, wide = r * pitch + to * unit, pitch
        name = name or "your function"
    elif isinstance(tile, ST):
        t = layouts.SharedTile(rows, tile.cols, tile.dtype.itemsize, tile.swizzle, tile.pad)
        place, wide = t.offset(r, p * per), tile.swizzle or pitch
        plain = f"rows padded by {tile.pad} elements" if tile.pad else "no swizzle"
        name = name or (f"{tile.swizzle}-byte swizzle" if tile.swizzle else plain)
    else:
        place, wide, name = r * pitch + p * unit, pitch, name or "no swizzle"
    return AddressMap(name, unit, place, _passes(place, unit), wide)


def _passes(place: NDArray[Any], unit: int) -> tuple[int, ...]:
    """Wavefronts down each column, the worst of its groups of 8 rows (or 32 lanes)."""
    step = 8 if unit == 16 else 32
    rows = len(place) // step * step or len(place)
    down = place[:rows].T.reshape(place.shape[1], -1, min(step, rows))
    lanes = np.full((down.shape[0] * down.shape[1], 32), -1)
    lanes[:, : down.shape[2]] = down.reshape(len(lanes), -1)
    wave = access.shared_many("ldmatrix" if unit == 16 else "ld", 1 if unit == 16 else 4, lanes)[0]
    return tuple(int(x) for x in wave.reshape(down.shape[:2]).max(axis=1))


def maps(tile: ST | tuple[int, int, DType], own: Own | None = None) -> list[AddressMap]:
    """What `swizzle` draws: without, as the type says or with each swizzle that fits, one's own."""
    if not isinstance(tile, ST):
        return [address_map(tile)] + ([address_map(tile, own)] if own else [])
    row_bytes = tile.cols * tile.dtype.itemsize
    plain = ST(tile.dtype, tile.rows, tile.cols, 0)
    out = [address_map(plain)]
    if own is not None:
        return [*out, address_map(plain, own)]
    if tile.pad:
        return [*out, address_map(tile)]
    fits = [w for w in (32, 64, 128) if row_bytes % w == 0]
    return out + [address_map(ST(tile.dtype, tile.rows, tile.cols, w)) for w in fits]


def swizzle(tile: ST | tuple[int, int, DType], own: Own | None = None) -> Picture:
    """A picture of where a shared tile's pieces lie, one panel for each way.

    swizzle(tk.st_bf(64, 64)): pieces of 16 bytes (what ldmatrix reads of a row) without a swizzle
    and with each that fits. swizzle(tk.st_bf(64, 64, pad=8)): without and with padding.
    swizzle((32, 32, tk.f32)): the words of a tk.shared_array. own: a function (row, piece) ->
    piece, drawn beside the plain map: own=lambda row, piece: piece ^ row % 8.

    The number in a cell is its group of 4 banks (for words: its bank), and so is the colour; below
    each column stands in how many passes it is read downwards.
    """
    panels = maps(tile, own)
    what = (
        str(tile) if isinstance(tile, ST) else f"shared_array({tile[2].name}, {tile[0]}, {tile[1]})"
    )
    return Picture(_figure(what, panels), describe(what, panels), panels)


def _figure(what: str, panels: list[AddressMap]) -> Any:
    unit = panels[0].unit
    rows, pieces = panels[0].place.shape
    rows = min(rows, SHOWN[unit == 4])
    cell = (0.2, 0.17) if unit == 4 else (0.27, 0.22)
    wide, tall = max(cell[0] * pieces, 1.7), cell[1] * rows
    fig = new_figure((wide + 0.55) * len(panels) + 0.3, tall + 1.45)
    w, h = fig.get_size_inches()
    words = "words; number: bank" if unit == 4 else "pieces of 16 bytes; number g: banks 4g to 4g+3"
    fig.text(0.12 / w, 1 - 0.2 / h, f"Where {what} lies", size=10, weight="bold", va="center")
    fig.text(0.12 / w, 1 - 0.42 / h, words, size=8, va="center", color="0.25")
    for i, m in enumerate(panels):
        left = 0.45 + i * (wide + 0.55)
        ax = fig.add_axes((left / w, (h - 0.95 - tall) / h, cell[0] * pieces / w, tall / h))
        _panel(ax, m, rows)
        fig.text(left / w, 1 - 0.66 / h, m.name, size=8.5, weight="bold", va="center")
        how = "32 rows of a column" if unit == 4 else "8 rows of a column"
        worst = count(max(m.passes), "pass")
        fig.text(left / w, 0.12 / h, f"{how}: {worst}", size=8, va="bottom")
    return fig


def _panel(ax: Any, m: AddressMap, rows: int) -> None:
    groups = m.groups[:rows]
    grid(ax, colours(groups), line=0.5)
    for r in range(rows):
        for c in range(groups.shape[1]):
            g = int(groups[r, c])
            ax.text(
                c + 0.5, r + 0.53, str(g), ha="center", va="center",
                size=5.5 if m.unit == 4 else 7, color=ink(lane_colour(g)),
            )  # fmt: skip
    step = max(1, rows // 16)
    axis_numbers(ax, range(0, rows, step), range(0, groups.shape[1], step), 6)
    for c in range(0, groups.shape[1], 1 if m.unit == 16 else 4):
        bad = m.passes[c] > 1
        ax.text(
            c + 0.5, rows + 0.25, str(m.passes[c]), ha="center", va="top", size=6.5,
            color="#D55E00" if bad else "black", weight="bold" if bad else "normal",
        )  # fmt: skip


def describe(what: str, panels: list[AddressMap]) -> str:
    """What the figure shows, in words."""
    words = panels[0].unit == 4
    piece = "word" if words else "16-byte piece"
    parts = [f"Address maps of {what}: a grid of each row's {piece}s with the banks they lie in."]
    for m in panels:
        rows = "; ".join(
            f"row {r}: {', '.join(map(str, m.groups[r, :8].tolist()))}"
            + (", ..." if m.groups.shape[1] > 8 else "")
            for r in range(min(3, len(m.place)))
        )
        how = "32 rows down a column" if words else "8 rows down a column (ldmatrix)"
        what_ = "banks" if words else "groups of 4 banks"
        parts.append(
            f"{m.name[0].upper()}{m.name[1:]}: {what_} of {rows}; "
            f"{how} take {count(max(m.passes), 'pass')}."
        )
    return " ".join(parts)
