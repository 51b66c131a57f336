"""One shared-memory access, bank by bank: which lanes share a pass and which must wait.

Draws executed accesses (Report.accesses, from a run with trace=True) or 32 offsets of the reader's
own; costs come from access.py, whose rules equal the profiler's.
"""

from __future__ import annotations

import linecache
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tklearn import access
from tklearn.lang.errors import FigureError, Loc
from tklearn.report import Report, WarpAccess
from tklearn.viz.picture import (
    BLANK,
    EXCESS,
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

BANKS = 32
KINDS = {
    "ld": "load", "st": "store", "atom": "atomic", "ldmatrix": "ldmatrix", "stmatrix": "stmatrix",
    "async": "asynchronous copy",
}  # fmt: skip


@dataclass(frozen=True)
class Transaction:
    """The lanes that go to the banks together; cells: (pass, bank) -> lanes, passes from 0."""

    lanes: tuple[int, ...]
    cells: dict[tuple[int, int], tuple[int, ...]]
    passes: int


@dataclass(frozen=True)
class Banks:
    """One access: its lanes' offsets, its transactions, and what they cost together.

    wavefronts is the sum of the transactions' passes, ideal their number, as the profiler counts.
    """

    name: str
    kind: str
    width: int
    offsets: tuple[int, ...]
    transactions: tuple[Transaction, ...]

    @property
    def wavefronts(self) -> int:
        return sum(t.passes for t in self.transactions)

    @property
    def ideal(self) -> int:
        return len(self.transactions)

    @property
    def conflicts(self) -> int:
        return self.wavefronts - self.ideal

    @property
    def bytes_a_lane(self) -> int:
        """Bytes at each lane's address: a matrix row is 16."""
        return 16 if self.kind in ("ldmatrix", "stmatrix") else self.width


def find(report: Report, line: int | str, space: str, which: int = 0) -> tuple[WarpAccess, str]:
    """The which-th access of a source line that a trace kept, and the line's text.

    line: its number, or a part of its text. Errors: TK600 if there is no trace, line or access.
    """
    if not report.accesses:
        raise FigureError(
            "TK600",
            f"this run of {report.kernel} kept no accesses",
            hint=f"run it as {report.kernel}.sim[grid](..., trace=True)",
        )
    text = {n: linecache.getline(report.file, n).strip() for n in report.accesses}
    kept = {n: [a for a in report.accesses[n] if a.space == space] for n in text}
    if isinstance(line, str):
        lines = [n for n in text if line in text[n] and kept[n]]
        if len(lines) != 1:
            have = "; ".join(f"{n}: {text[n]}" for n in text if kept[n]) or "none"
            raise FigureError(
                "TK600",
                f"{len(lines)} lines with {space} accesses contain {line!r}",
                hint=f"lines with {space} accesses: {have}",
            )
        line = lines[0]
    found = kept.get(line, [])
    if not -len(found) <= which < len(found):
        have = ", ".join(f"{n} ({len(a)})" for n, a in kept.items() if a) or "none"
        raise FigureError(
            "TK600",
            f"line {line} has {count(len(found), f'{space} access')} in this trace",
            Loc(report.file, line),
            f"lines with {space} accesses (how many): {have}",
        )
    return found[which], text[line]


def bank_map(
    source: Report | WarpAccess | str, at: int | str | Sequence[int] = -1, which: int = 0
) -> Banks:
    """The numbers of `banks`: see there."""
    if isinstance(source, str):
        if isinstance(at, int | str) or source not in access.SHARED_OPS:
            raise FigureError(
                "TK600",
                f"no bank picture of {source!r}",
                hint=f'give 32 byte offsets: banks("lds32", offsets); ops: '
                f"{', '.join(access.SHARED_OPS)}",
            )
        access.shared(source, np.asarray(at))  # its checks
        kind, width = access.shared_op(source)
        return _bank_map(source, kind, width, tuple(int(x) for x in at), 0)
    name = ""
    if isinstance(source, Report):
        assert isinstance(at, int | str)
        source, name = find(source, at, "shared", which)
    if source.space != "shared":
        raise FigureError(
            "TK600", f"a {source.space} access has no banks", hint="viz.coalescing draws it"
        )
    return _bank_map(name or source.array, source.kind, source.width, source.offsets, source.base)


def _bank_map(name: str, kind: str, width: int, offsets: tuple[int, ...], base: int) -> Banks:
    off = np.array([o + base if o >= 0 else -1 for o in offsets])
    if kind == "async":  # past L1: the profiler counts no wavefronts
        return Banks(name, kind, width, tuple(off.tolist()), ())
    nbytes = 16 if kind in ("ldmatrix", "stmatrix") else width
    parts = [
        _transaction(g, off, nbytes, kind == "atom") for g in access.transactions(kind, width, off)
    ]
    made = Banks(name, kind, width, tuple(off.tolist()), tuple(parts))
    wave, _ = access.shared_many(kind, width, off[None])
    assert made.wavefronts == int(wave[0]), made
    return made


def _transaction(lanes: list[int], off: Any, nbytes: int, apart: bool) -> Transaction:
    """Which pass serves which word: in each bank the words queue up by their first lane."""
    queue: dict[int, dict[Any, list[int]]] = {}
    for lane in lanes:
        for word in range(int(off[lane]) // 4, (int(off[lane]) + max(nbytes, 4)) // 4):
            key = (word, lane) if apart else word
            queue.setdefault(word % BANKS, {}).setdefault(key, []).append(lane)
    cells = {
        (p, bank): tuple(who)
        for bank, words in queue.items()
        for p, who in enumerate(words.values())
    }
    return Transaction(tuple(lanes), cells, max(len(w) for w in queue.values()))


def banks(
    source: Report | WarpAccess | str, at: int | str | Sequence[int] = -1, which: int = 0
) -> Picture:
    """A picture of one access of shared memory: 32 banks, pass by pass, for each transaction.

    banks(report, line): the `which`-th access that a run with trace=True kept of a source line; the
    line by number, or by a part of its text. banks(access): an element of report.accesses.
    banks("lds32", offsets): 32 byte offsets of your own, with an op name of tk.access.

    Colour is lane % 8; the number in a cell is the lane (or the first of several that read one
    word: they are served together). Passes that a conflict adds are marked at the side.
    """
    b = bank_map(source, at, which)
    return Picture(_figure(b), describe(b), b)


def _figure(b: Banks) -> Any:
    cell, high, gap = 0.265, 0.2, 0.46
    rows = sum(t.passes for t in b.transactions)
    width = cell * BANKS + 1.35
    height = high * rows + gap * max(len(b.transactions), 1) + 0.6
    fig = new_figure(width, height)
    fig.text(0.12 / width, 1 - 0.2 / height, title(b), size=10, weight="bold", va="center")
    fig.text(0.12 / width, 1 - 0.42 / height, verdict(b), size=8.5, va="center")
    top = 0.7
    for n, t in enumerate(b.transactions):
        size = high * t.passes
        fig.text(
            0.12 / width, 1 - (top + 0.02) / height, f"transaction {n + 1}: lanes "
            f"{ranges(t.lanes)}", size=7.5, va="center",
        )  # fmt: skip
        top += 0.28
        ax = fig.add_axes(
            (0.75 / width, 1 - (top + size) / height, cell * BANKS / width, size / height)
        )
        _draw(ax, t)
        top += size + gap - 0.28
    return fig


def _draw(ax: Any, t: Transaction) -> None:
    first = np.full((t.passes, BANKS), -1)
    for (p, bank), lanes in t.cells.items():
        first[p, bank] = lanes[0]
    grid(ax, colours(first), line=0.5)
    for (p, bank), lanes in t.cells.items():
        text = str(lanes[0]) if len(lanes) == 1 else f"{lanes[0]}+"
        ax.text(
            bank + 0.5, p + 0.52, text, ha="center", va="center", size=6.5,
            color=ink(lane_colour(lanes[0])),
        )  # fmt: skip
    axis_numbers(ax, (), range(BANKS), 6)
    ax.text(-0.3, -0.3, "bank", ha="right", va="bottom", size=6.5, color="0.35")
    for p in range(t.passes):
        extra = p > 0
        ax.text(
            -0.3, p + 0.5, f"pass {p + 1}", ha="right", va="center", size=6.5,
            color=EXCESS if extra else "black", weight="bold" if extra else "normal",
        )  # fmt: skip
    if t.passes > 1:
        ax.fill(
            [BANKS + 0.2, BANKS + 0.6, BANKS + 0.6, BANKS + 0.2], [1, 1, t.passes, t.passes],
            facecolor=BLANK, edgecolor=EXCESS, hatch="//////", lw=0.8, clip_on=False,
        )  # fmt: skip
        ax.text(
            BANKS + 0.85, (1 + t.passes) / 2, f"+{t.passes - 1}", ha="left", va="center",
            size=8, color=EXCESS, weight="bold",
        )  # fmt: skip


def title(b: Banks) -> str:
    what = f"{KINDS[b.kind]}, {8 * b.width} bits a lane"
    if b.kind in ("ldmatrix", "stmatrix"):
        what = f"{b.kind}.x{b.width}, 16 bytes a row"
    return f"{b.name}  ({what})" if b.name else what


def verdict(b: Banks) -> str:
    if b.kind == "async":
        return "cp.async of 16 bytes goes past L1: no wavefronts and no conflicts are counted"
    if not b.transactions:
        return "no lane is active: no wavefronts"
    said = f"{count(b.wavefronts, 'wavefront')} (ideal {b.ideal}): "
    return said + count(b.conflicts, "bank conflict")


def describe(b: Banks) -> str:
    """What the figure shows, in words."""
    parts = [f"Shared-memory access by banks: {title(b)}. {verdict(b)}."]
    for n, t in enumerate(b.transactions):
        used = sorted({bank for _, bank in t.cells})
        busy: dict[int, int] = {}
        for _, bank in t.cells:
            busy[bank] = busy.get(bank, 0) + 1
        worst = [k for k, v in busy.items() if v == t.passes]
        said = f"Transaction {n + 1}, lanes {ranges(t.lanes)}: {count(t.passes, 'pass')}"
        said += f" over {count(len(used), 'bank')} ({ranges(used)})"
        if t.passes > 1:
            said += f"; the longest queue at bank{'s' * (len(worst) > 1)} {ranges(worst)}"
        shared = sum(len(x) > 1 for x in t.cells.values())
        if shared:
            said += f"; {count(shared, 'bank')} serving several lanes at once"
        parts.append(said + ".")
    return " ".join(parts)
