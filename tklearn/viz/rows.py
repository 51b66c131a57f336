"""Rows and bars of a timeline's picture: what viz/timeline.py draws, and timeline.js.

Every box has a letter and every bar a name or a hatch, so that nothing is told by colour alone.
This file knows moments and their places (clock.py), and no drawing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tklearn.report import Timeline
from tklearn.viz.clock import Box, Places, Units, places
from tklearn.viz.picture import ranges

GREEN, BLUE, ORANGE, YELLOW = "#009E73", "#56B4E9", "#E69F00", "#F0E442"
PINK, RED, DARK, WHITE, GREY = "#CC79A7", "#D55E00", "#0072B2", "#FFFFFF", "#E6E6E6"
# kind of moment -> letter, colour, words
LOOK = {
    "init": ("I", WHITE, "initialise a semaphore"),
    "pass": ("P", WHITE, "pass a wait"),
    "go": ("P", WHITE, "pass a wait"),
    "barrier": ("B", WHITE, "pass block.sync()"),
    "named": ("N", WHITE, "come to a named barrier"),
    "arrive": ("A", GREEN, "arrive"),
    "expect": ("E", GREEN, "arrive and expect bytes"),
    "load": ("L", BLUE, "start a TMA load"),
    "store": ("S", BLUE, "start a TMA store"),
    "stored": ("P", WHITE, "pass a wait"),
    "copy": ("C", BLUE, "start cp.async"),
    "copied": ("G", WHITE, "its copies are there (wait_group)"),
    "fence": ("F", GREEN, "proxy fence"),
    "wgmma": ("M", ORANGE, "start wgmma"),
    "multiplied": ("D", WHITE, "wgmma is done"),
    "mma": ("X", ORANGE, "mma.sync"),
    "read": ("R", YELLOW, "read shared memory"),
    "write": ("W", PINK, "write shared memory"),
    "global read": ("g", GREY, "read global memory"),
    "global write": ("o", GREY, "write global memory"),
    "atomic": ("o", GREY, "write global memory"),
    "fault": ("!", RED, "the fault"),
}
ORDER = "order of execution, not time"  # the axis of a picture without durations
OTHERS = {
    "wait": "waits (for what is named)",
    "stuck": "waits for ever",
    "copying": "copy under way",
    "product": "tensor core works",
    "arriving": "tile arriving: not yet readable",
    "filling": "tile being written",
    "full": "tile full",
    "using": "tile being read",
    "ended": "has left the kernel",
}


@dataclass
class Bar:
    """A box or bar: row, from where to where, style, words on it, the moments it stands for.

    Styles: a kind of LOOK, or of OTHERS; "phase0" and "phase1".
    """

    row: int
    start: float
    end: float
    style: str
    text: str = ""
    moments: list[int] = field(default_factory=list)


@dataclass
class Rows:
    """What a picture shows. rows: (label, group). marks: the bars of a race. at: the place of each
    moment."""

    rows: list[tuple[str, str]] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)
    rounds: dict[int, float] = field(default_factory=dict)
    marks: list[int] = field(default_factory=list)
    at: list[tuple[float, float]] = field(default_factory=list)
    end: float = 0
    axis: str = ""

    def row(self, label: str, group: str) -> int:
        self.rows.append((label, group))
        return len(self.rows) - 1


def picture_rows(
    t: Timeline, units: Units | None = None, tiles: bool = True, semaphores: bool = True
) -> Rows:
    """Rows and bars of a picture."""
    p = places(t, units)
    out = Rows(end=max(p.end, 1) + (3 if t.fault is not None else 1), rounds=p.rounds)
    out.at = [p.at[n] for n in range(len(t.moments))]
    out.axis = ORDER
    if t.times is not None:
        out.axis = f"time in {t.unit}, as estimated"
        out.end = p.end * 1.02
    elif units is not None:
        out.axis = (
            f"what waits for what, if a step of a warp takes 1, a copy {units.copy:g} and "
            f"a product {units.product:g}"
        )
    order = sorted({w // 4 for w in range(t.warps)}, key=lambda g: _role(t, g) != "producer")
    first = [g for g in order if _role(t, g) == "producer"] or order
    _warps(t, p, out, first)
    _copies(t, p, out)
    if tiles:
        _tiles(t, p, out)
    _warps(t, p, out, [g for g in order if g not in first])
    _products(t, p, out)
    if semaphores:
        _phases(t, p, out)
    if t.fault is not None:
        out.marks = [_shown(out, n) for n in t.fault.moments]
    return out


def _shown(rows: Rows, n: int) -> int:
    """The bar on a warp's row that stands for moment n, -1 for none."""
    found = [i for i, b in enumerate(rows.bars) if n in b.moments and b.style in LOOK]
    return found[0] if found else -1


def _role(t: Timeline, group: int) -> str:
    roles = t.roles[4 * group : 4 * group + 4]
    return "producer" if "producer" in roles else "consumer" if "consumer" in roles else ""


def _warps(t: Timeline, p: Places, out: Rows, groups: list[int]) -> None:
    several = t.warps > 4
    for g in groups:
        role = _role(t, g)
        name = f"warpgroup {g}" if several else "warps"
        group = f"{name}\n{role}" if role else name
        alike: dict[Any, list[int]] = {}
        for w in range(4 * g, min(4 * g + 4, t.warps)):
            bars = _warp_bars(t, p, w, out.end)
            key = tuple((b.start, b.end, b.style, b.text) for b in bars)
            alike.setdefault(key, []).append(w)
        for ws in alike.values():
            label = ("warp " if len(ws) == 1 else "warps ") + ranges(ws)
            row = out.row(label, group)
            first = _warp_bars(t, p, ws[0], out.end)
            for w in ws[1:]:
                for a, b in zip(first, _warp_bars(t, p, w, out.end), strict=True):
                    a.moments += b.moments
            for b in first:
                b.row = row
            out.bars += first


def _warp_bars(t: Timeline, p: Places, w: int, end: float) -> list[Bar]:
    bars = []
    for b in p.boxes:
        if b.warp != w:
            continue
        if b.waited is not None and b.start > b.waited:
            bars.append(Bar(0, b.waited, b.start, "wait", _waited(t, b)))
        bars.append(Bar(0, b.start, b.end, b.kind, "", list(b.moments)))
    stuck = t.fault is not None and t.fault.kind == "deadlock"
    waits = [m.what for m in t.moments if m.kind == "wait" and m.warp == w]
    if w in p.open:
        bars.append(Bar(0, p.open[w], end, "stuck" if stuck else "wait", waits[-1]))
    ends = [n for n, m in enumerate(t.moments) if m.kind == "end" and m.warp == w]
    if ends:
        x = max([b.end for b in bars], default=0.0)
        bars.append(Bar(0, x, x, "ended", "", ends))
    return bars


def _waited(t: Timeline, b: Box) -> str:
    m = t.moments[b.moments[0]]
    return {
        "multiplied": "wgmma",
        "copied": "cp.async",
        "barrier": "block.sync()",
        "stored": "store",
    }.get(m.kind, m.what)


def _copies(t: Timeline, p: Places, out: Rows) -> None:
    """What moves data beside the warps: one row, more where several are under way at once."""
    for name, kinds in (("TMA", ("load", "store")), ("cp.async", ("copy",))):
        ended = {i: n for n, m in enumerate(t.moments) for i in m.ends}
        spans: dict[Any, Bar] = {}
        for n, m in enumerate(t.moments):
            attempt = t.fault is not None and n in t.fault.moments[-1:]
            if m.kind not in kinds or (attempt and n not in ended):
                continue
            start = p.at[n][1]
            end = p.at[ended[n]][1] if ended.get(n) in p.at else out.end
            end = p.flown.get(n, end)
            text = m.what if m.kind != "store" else f"store {m.what}"
            key = (m.what, start) if m.kind != "copy" else (m.what, m.line, p.at[n][0] // 3)
            same = spans.get(key)
            if same is None:
                spans[key] = Bar(0, start, end, "copying", text, [n])
            else:
                same.start, same.end = min(same.start, start), max(same.end, end)
                same.moments.append(n)
        lanes: list[float] = []
        rows: list[int] = []
        for b in sorted(spans.values(), key=lambda b: (b.start, b.moments)):
            at = next((k for k, x in enumerate(lanes) if x <= b.start), len(lanes))
            if at == len(lanes):
                lanes.append(0.0)
                rows.append(out.row(name if not at else "", f"{name}\n"))
            lanes[at] = b.end
            b.row = rows[at]
            out.bars.append(b)


def _products(t: Timeline, p: Places, out: Rows) -> None:
    rows: dict[int, int] = {}
    busy: dict[int, float] = {}
    for group, start, end, moments in sorted(p.products):
        if group not in rows:
            label = "tensor core" if t.warps <= 4 else f"warpgroup {group}"
            rows[group] = out.row(label, "tensor\ncores")
        start = max(start, busy.get(group, 0.0))
        if end <= start:
            continue  # another warp's product at the same time
        busy[group] = end
        what = t.moments[moments[0]].what
        out.bars.append(Bar(rows[group], start, end, "product", what, list(moments)))


def _tiles(t: Timeline, p: Places, out: Rows) -> None:
    """Shared tiles: what is arriving, there, and being read."""
    ended = {i: n for n, m in enumerate(t.moments) for i in m.ends}
    for name in t.tiles:
        mine = [
            (n, m) for n, m in enumerate(t.moments)
            if name in m.what.split(", ") and m.kind in
            ("load", "copy", "store", "wgmma", "read", "write")
        ]  # fmt: skip
        if not mine:
            continue
        row = out.row(name, "shared\nmemory")
        arriving, using, written = [], [], []
        for n, m in mine:
            x, y = p.at[n]
            done = p.at[ended[n]][m.kind != "wgmma"] if n in ended else out.end
            if m.kind in ("load", "copy"):
                arriving.append((y, done))
            elif m.kind == "write":
                written.append((x, y))
            elif m.kind == "read":
                using.append((x, y))
            else:
                using.append((y, done))
        arriving, using, written = _union(arriving), _union(using), _union(written)
        starts = sorted(x for x, _ in arriving) + [out.end]
        for end in sorted([y for _, y in arriving] + [y for _, y in written][:1]):
            until = next((x for x in starts if x >= end), out.end)
            if until > end:
                out.bars.append(Bar(row, end, until, "full"))
        out.bars += [Bar(row, x, y, "arriving", "arriving") for x, y in arriving]
        out.bars += [Bar(row, x, y, "filling", "written") for x, y in written]
        out.bars += [Bar(row, x, y, "using", "read") for x, y in using]


def _union(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    out: list[list[float]] = []
    for x, y in sorted(spans):
        if out and x <= out[-1][1]:
            out[-1][1] = max(out[-1][1], y)
        else:
            out.append([x, y])
    return [(x, y) for x, y in out]


def _phases(t: Timeline, p: Places, out: Rows) -> None:
    for name in t.semaphores:
        born = [n for n, m in enumerate(t.moments) if m.kind == "init" and m.what == name]
        flips = [n for n, m in enumerate(t.moments) if m.kind == "phase" and m.what == name]
        if not born:
            continue
        row = out.row(name, "semaphores\nphase")
        edges = [p.at[born[0]][1], *sorted(p.at[n][0] for n in flips), out.end]
        marks = [born[0], *flips]
        state = t.at(len(t.moments) - 1).get(f"semaphore {name}", {})
        for k, n in enumerate(marks):
            if edges[k + 1] > edges[k]:
                last = k == len(marks) - 1 and t.fault is not None and t.fault.kind != "race"
                text = f"{k}: {missing(state)}" if last and missing(state) else str(k)
                out.bars.append(Bar(row, edges[k], edges[k + 1], f"phase{k % 2}", text, [n]))


def missing(semaphore: dict[str, Any]) -> str:
    """What the running phase of a semaphore lacks, in words; "" where nothing has come yet."""
    n, nbytes = semaphore.get("pending") or 0, semaphore.get("bytes") or 0
    parts = [f"{n} of {semaphore.get('count')} arrivals"] if n else []
    parts += [f"{nbytes} bytes"] if nbytes > 0 else []
    if nbytes < 0:
        return f"{-nbytes} bytes too many"
    return " and ".join(parts) + " missing" if parts else ""
