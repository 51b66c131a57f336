"""Who holds each element: lane and register of a tile, a fragment or a wgmma accumulator.

Draws from lang/layouts.py, whose maps are measured on hardware, and from nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tklearn.lang import layouts
from tklearn.lang.errors import FigureError
from tklearn.lang.types import RT
from tklearn.viz.picture import (
    Picture,
    axis_numbers,
    colours,
    grid,
    ink,
    lane_colour,
    new_figure,
    ranges,
)

INSTRUCTION_BITS = {"m16n8k16": 16, "m16n8k8": 16, "m16n8k8.tf32": 32, "m16n8k32": 8}
AXES = {"A": ("m", "k"), "B": ("k", "n"), "C": ("m", "n"), "D": ("m", "n")}
DETAIL = 16  # rows and columns up to which every cell is written


@dataclass(frozen=True)
class Ownership:
    """Who holds each element of a matrix.

    Attributes:
        name: what it is. axes: the names of its two indices.
        thread: [rows, cols], the thread of the warp (0-31) or warpgroup (0-127) that holds it.
        register: [rows, cols], the number of the element among those of that thread.
        bits: of an element; two of 16 or four of 8 share one 32-bit register.
        block: rows and columns of the pattern that repeats (base tile, or eight columns of wgmma).
    """

    name: str
    axes: tuple[str, str]
    thread: NDArray[Any]
    register: NDArray[Any]
    bits: int
    block: tuple[int, int] = (16, 16)

    @property
    def shape(self) -> tuple[int, int]:
        return self.thread.shape[0], self.thread.shape[1]

    @property
    def threads(self) -> int:
        return 128 if self.thread.max() > 31 else 32

    @property
    def each(self) -> int:
        """Elements that one thread holds."""
        return self.thread.size // self.threads

    def owner(self, row: int, col: int) -> tuple[int, int]:
        """(thread, register) of one element."""
        return int(self.thread[row, col]), int(self.register[row, col])

    def held(self, thread: int) -> list[tuple[int, int]]:
        """(row, col) of a thread's elements, by register."""
        row, col = np.nonzero(self.thread == thread)
        order = np.argsort(self.register[row, col])
        return [(int(r), int(c)) for r, c in zip(row[order], col[order], strict=True)]


def ownership(what: Any, operand: str | None = None) -> Ownership:
    """The map of `what`: a register tile type, or an instruction with its operand.

    `tk.rt_bf(64, 64)`, `tk.rt(T, 32, 32, tk.col)`; "m16n8k16 A", or "m16n8k16", "A" (instructions:
    m16n8k16, m16n8k8, m16n8k8.tf32, m16n8k32; operands: A, B, C, D); "wgmma m64n128 D", "wgmma A".
    Errors: TK600 for anything else.
    """
    if isinstance(what, RT):
        lane, reg = layouts.rt_owner(what.rows, what.cols, what.layout.name)
        return Ownership(str(what), ("row", "col"), lane, reg, what.dtype.bits)
    words = str(what).split() + ([operand] if operand else [])
    try:
        if words[:1] == ["wgmma"]:
            return _wgmma(words[1:])
        instruction, which = words
        row, col = layouts.fragment(instruction, which)
    except (ValueError, IndexError) as e:
        raise FigureError(
            "TK600",
            f"{what!r} has no lanes and registers to show",
            hint='give a register tile type, "m16n8k16 A", "wgmma m64n64 D" or "wgmma A"; '
            "shared tiles are shown by viz.swizzle",
        ) from e
    bits = 32 if which in "CD" else INSTRUCTION_BITS[instruction]
    name = f"{instruction} {which}"
    return Ownership(name, AXES[which], *_invert(row, col), bits)


def _wgmma(words: list[str]) -> Ownership:
    if words == ["A"]:
        row, col = layouts.wgmma_a()
        return Ownership("wgmma m64k16 A", AXES["A"], *_invert(row, col), 16)
    shape, which = words
    if not shape.startswith("m64n") or which not in ("C", "D"):
        raise ValueError(shape)
    row, col = layouts.wgmma_d(int(shape[4:]))
    return Ownership(f"wgmma {shape} {which}", AXES["D"], *_invert(row, col), 32, (16, 8))


def _invert(row: NDArray[Any], col: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    thread, reg = np.empty((2, int(row.max()) + 1, int(col.max()) + 1), np.int32)
    thread[row, col] = np.arange(len(row))[:, None]
    reg[row, col] = np.arange(row.shape[1])
    return thread, reg


def layout(what: Any, operand: str | None = None) -> Picture:
    """A picture of who holds what: see `ownership` for what can be shown.

    Colour is lane % 8; each cell has the lane's number and below it the register's (elements are
    counted; two of 16 bits, or four of 8, share one 32-bit register). Of a large tile all is
    shown in colour and one corner in numbers.
    """
    o = ownership(what, operand)
    rows, cols = o.shape
    if rows <= DETAIL and cols <= 2 * DETAIL:
        return Picture(_detail_only(o), describe(o), o)
    return Picture(_with_overview(o), describe(o), o)


CELL = 0.4, 0.34  # inches of a written element
BLOCK = 0.66, 0.36  # inches of a block in the overview


def _detail_only(o: Ownership) -> Any:
    rows, cols = o.shape
    width, height = CELL[0] * cols, CELL[1] * rows
    fig = new_figure(max(width + 0.65, 4.6), height + 0.9)
    w, h = fig.get_size_inches()
    _cells(fig.add_axes((0.5 / w, 0.05 / h, width / w, height / h)), o, rows, cols)
    _words(fig, o)
    return fig


def _with_overview(o: Ownership) -> Any:
    """The registers of every block on the left, the first block's elements on the right."""
    rows, cols = o.shape
    br, bc = o.block
    across = -(-cols // bc)
    bc *= -(-across // 8) if br * across > 128 else 1  # at most 8 blocks across
    down, across = -(-rows // br), -(-cols // bc)
    r, c = min(rows, DETAIL), min(cols, DETAIL)
    wide, tall = BLOCK[0] * across, BLOCK[1] * down
    detail = CELL[0] * c, CELL[1] * r
    fig = new_figure(wide + detail[0] + 1.75, max(tall, detail[1]) + 1.15)
    w, h = fig.get_size_inches()
    left = fig.add_axes((0.6 / w, (h - 1.1 - tall) / h, wide / w, tall / h))
    blank = np.full((down, across), -1)
    grid(left, colours(blank), line=0.8)
    left.fill([0, c / bc, c / bc, 0], [0, 0, r / br, r / br], fill=False, hatch="////", ec="0.75")
    for i in range(down):
        for j in range(across):
            label = _block_label(o, slice(i * br, i * br + br), slice(j * bc, j * bc + bc))
            left.text(j + 0.5, i + 0.5, label, ha="center", va="center", size=7, zorder=4)
    for i in range(down):
        left.text(-0.1, i + 0.5, f"{i * br}", ha="right", va="center", size=7, color="0.35")
    for j in range(across):
        left.text(j + 0.5, -0.1, f"{j * bc}", ha="center", va="bottom", size=7, color="0.35")
    at = wide + 1.35
    right = fig.add_axes((at / w, (h - 1.1 - detail[1]) / h, detail[0] / w, detail[1] / h))
    _cells(right, o, r, c)
    _words(fig, o)
    names = (
        f"registers of each {br} x {bc} block; left and top: its first row and column",
        f"the hatched corner: rows 0-{r - 1}, columns 0-{c - 1}",
    )
    if wide < 4.5:
        names = f"registers of each {br} x {bc} block", names[1]
    for x, text in zip((0.6, at), names, strict=True):
        fig.text(x / w, 1 - 0.7 / h, text, size=8, va="center")
    return fig


def _words(fig: Any, o: Ownership) -> None:
    w, h = fig.get_size_inches()
    fig.text(0.12 / w, 1 - 0.2 / h, _title(o), size=10, weight="bold", va="center")
    fig.text(0.12 / w, 1 - 0.42 / h, _legend(o), size=8, va="center", color="0.25")


def _block_label(o: Ownership, rows: slice, cols: slice) -> str:
    part = o.register[rows, cols]
    regs = f"r{part.min()}-{part.max()}"
    return f"warp {o.thread[rows, cols].max() // 32}\n{regs}" if o.threads > 32 else regs


def _cells(ax: Any, o: Ownership, rows: int, cols: int) -> None:
    """Every element of the corner with its lane and register."""
    grid(ax, colours(o.thread[:rows, :cols]))
    for r in range(rows):
        for c in range(cols):
            thread, reg = o.owner(r, c)
            ink_ = ink(lane_colour(thread))
            x = c + 0.5
            ax.text(x, r + 0.36, str(thread), ha="center", va="center", size=8.5, color=ink_)
            ax.text(x, r + 0.77, f"r{reg}", ha="center", va="center", size=6, color=ink_)
    axis_numbers(ax, range(rows), range(cols), 6.5)
    ax.text(-0.3, -0.3, f"{o.axes[0]} \\ {o.axes[1]}", ha="right", va="bottom", size=6.5)


def _title(o: Ownership) -> str:
    return f"Who holds each element of {o.name}"


def _legend(o: Ownership) -> str:
    who = "thread of the warpgroup" if o.threads > 32 else "lane"
    share = {16: "; two elements share a 32-bit register", 8: "; four share a 32-bit register"}
    return f"large: {who}; small: r = its element number{share.get(o.bits, '')}"


def describe(o: Ownership) -> str:
    """What the figure shows, in words."""
    rows, cols = o.shape
    who = "thread" if o.threads > 32 else "lane"
    first = ", ".join(f"({r}, {c})" for r, c in o.held(0)[:8])
    more = ", ..." if o.each > 8 else ""
    thread, reg = o.owner(rows // 2 + 1, 3)
    lanes = ranges(o.thread[0].tolist())
    return (
        f"{_title(o)}: a grid of {rows} x {cols} elements ({o.axes[0]} by {o.axes[1]}), "
        f"{o.each} in each of {o.threads} {who}s, coloured by {who} modulo 8. "
        f"{who.capitalize()} 0 holds {first}{more}. "
        f"Row 0 is held by {who}s {lanes}. "
        f"Element ({rows // 2 + 1}, 3) is in {who} {thread}, register {reg}."
    )
