"""Warps, TMA and tensor cores of one block from left to right: who ran, who waited, for what.

Draws from report.Timeline. Every box has a letter and every bar a name or a hatch, so that nothing
is told by colour alone. `picture_rows` turns a timeline into rows and bars, which this file draws
with matplotlib and the widget (timeline.js) as SVG.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from typing import Any

from tklearn.lang.errors import FigureError, TkError
from tklearn.report import Fault, Report, Timeline
from tklearn.viz.clock import Box, Places, Units, places
from tklearn.viz.picture import Picture, count, ink, new_figure, ranges

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
WIDEST = 90  # steps that one picture shows


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


def the_timeline(what: Any) -> Timeline:
    """The timeline of a report, an error or a timeline. Error TK600."""
    t = what if isinstance(what, Timeline) else getattr(what, "timeline", None)
    if isinstance(t, Timeline):
        return t
    hint = "run it with kernel.sim[grid](..., timeline=True)"
    if isinstance(what, TkError):
        hint += "; faults outside the first block have none: choose the block with blocks=[n]"
    if not isinstance(what, Report | TkError):
        hint = "give a report, an error or a timeline of a run with timeline=True"
    raise FigureError("TK600", f"{type(what).__name__} has no timeline", hint=hint)


def timeline(
    what: Any,
    *,
    units: Units | None = None,
    window: tuple[float, float] | None = None,
    tiles: bool = True,
    semaphores: bool = True,
    title: str = "",
) -> Picture:
    """What happened in one block: warps, copies, tensor cores, shared tiles, phases.

    Args: what, a report of a run with timeline=True, or the error in which such a run ended; units,
        durations of a copy and of a product in steps of a warp: the axis is then what must wait for
        what, instead of the order of execution; window, the part of the axis to show (default:
        the first 90 steps; of a run that ended in a fault the last); tiles, semaphores: whether
        to show rows for them; title, a line above.

    Errors: TK600 if `what` has no timeline.
    """
    t = the_timeline(what)
    rows = picture_rows(t, units, tiles, semaphores)
    lo, hi = window or _window(t, rows)
    return Picture(_draw(t, rows, lo, hi, title), describe(t, rows), Drawn(t, rows))


@dataclass(frozen=True)
class Drawn:
    """A timeline and the rows of its picture: what the widget takes.

    finish: where on the axis the last moment ends. first_product: where the first tensor core
    begins to work, None if none does.
    """

    timeline: Timeline
    rows: Rows

    @property
    def finish(self) -> float:
        return max(end for _, end in self.rows.at)

    @property
    def first_product(self) -> float | None:
        return min((b.start for b in self.rows.bars if b.style == "product"), default=None)


def _window(t: Timeline, rows: Rows) -> tuple[float, float]:
    if rows.end <= WIDEST:
        return 0, rows.end
    return (0, WIDEST) if t.fault is None else (rows.end - WIDEST, rows.end)


# -------------------------------------------------------------------------------- rows and bars
def picture_rows(
    t: Timeline, units: Units | None = None, tiles: bool = True, semaphores: bool = True
) -> Rows:
    """Rows and bars of a picture."""
    p = places(t, units)
    out = Rows(end=max(p.end, 1) + (3 if t.fault is not None else 1), rounds=p.rounds)
    out.at = [p.at[n] for n in range(len(t.moments))]
    out.axis = "order of execution, not time"
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
    return {"multiplied": "wgmma", "copied": "cp.async", "barrier": "block.sync()"}.get(
        m.kind, m.what
    )


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


# --------------------------------------------------------------------------------------- words
def describe(t: Timeline, rows: Rows) -> str:
    """What the figure shows, in words."""
    out = [f"Timeline of {t.kernel}, block {t.block}: {count(t.warps, 'warp')}; {rows.axis}."]
    roles = [
        f"{ranges(ws)} {role}s" if len(ws) > 1 else f"{ws[0]} the {role}"
        for role in ("producer", "consumer")
        if (ws := [w for w in range(t.warps) if t.roles[w] == role])
    ]
    if roles:
        out.append("Warps " + ", ".join(roles) + ".")
    for style, noun in (("copying", "copy"), ("product", "product")):
        bars = [b for b in rows.bars if b.style == style]
        if bars:
            names = list(dict.fromkeys(b.text for b in bars if b.text))
            plural = {"copy": "copies", "product": "products on tensor cores"}[noun]
            n = f"{len(bars)} {plural}" if len(bars) > 1 else f"1 {noun}"
            out.append(f"{n} ({', '.join(names[:8])})." if names else f"{n}.")
    both = _overlap(rows)
    if both is not None:
        out.append(
            "Copies and products overlap."
            if both
            else "No copy is under way while a tensor core works."
        )
    waits: dict[str, float] = {}
    for b in rows.bars:
        if b.style == "wait":
            waits[b.text] = waits.get(b.text, 0) + b.end - b.start
    if waits:
        most = sorted(waits, key=lambda k: -waits[k])[:3]
        out.append("Warps wait most for " + ", ".join(most) + ".")
    if t.dropped:
        out.append(f"{t.dropped:,} moments in the middle are left out.")
    return " ".join([*out, *fault_lines(t)])


def _overlap(rows: Rows) -> bool | None:
    copies = [b for b in rows.bars if b.style == "copying"]
    products = [b for b in rows.bars if b.style == "product"]
    if not copies or not products:
        return None
    return any(a.start < b.end and b.start < a.end for a in copies for b in products)


def _fault_lines(t: Timeline, f: Fault) -> list[str]:
    """What is wrong, a line each."""
    if f.kind == "deadlock":
        said: dict[tuple[int, str], list[int]] = {}
        for warp, line, what in f.waits:
            said.setdefault((line, what), []).append(warp)
        lines = ["Deadlock: nobody can go on."]
        hint = [f"What to do: {f.hint}."] if f.hint else []
        for (line, what), ws in said.items():
            who = ("Warp " if len(ws) == 1 else "Warps ") + ranges(ws)
            verb = "waits" if len(ws) == 1 else "wait"
            lines.append(f"{who} {verb} on line {line}: {what}.")
        return lines + hint
    word = {"race": "Race", "fault": "Fault"}[f.kind]
    lines = [f"{word} {f.code}: {f.message.partition(' [block')[0]}."]
    if len(f.moments) == 2:
        a, b = (t.moments[n] for n in f.moments)
        why = "In another run they may come the other way round."
        if f.code == "TK508" and a.warp == b.warp:
            why = "Nothing makes sure that the copy is there by then."
        if f.code == "TK520":
            why = "No proxy fence lies between the two."
        lines.append(f"Marked: {a.says} (line {a.line}); {b.says} (line {b.line}). {why}")
    if f.hint:
        lines.append(f"What to do: {f.hint}.")
    return lines


def fault_lines(t: Timeline) -> list[str]:
    """What the run ended with, a line each; none if it ended well."""
    return _fault_lines(t, t.fault) if t.fault is not None else []


# -------------------------------------------------------------------------------------- drawing
ROW, LEFT = 0.205, 1.75  # inches: a row's height, the space for labels


def _draw(t: Timeline, rows: Rows, lo: float, hi: float, title: str) -> Any:
    span = max(hi - lo, 1.0)
    unit = min(0.21, 9.6 / span)
    wide = max(unit * span, 4.2)
    unit = wide / span
    legend = _legend(rows, lo, hi)
    width = LEFT + wide + 0.15
    per = max(int((width - 0.3) / 1.95), 1)
    notes = [x for line in fault_lines(t) for x in textwrap.wrap(line, int(width * 14.2))]
    gaps = _gaps(rows)
    top = [ROW * r + 0.09 * gaps[r] for r in range(len(rows.rows))]
    body = ROW * len(rows.rows) + 0.09 * gaps[-1]
    below = 0.32 + 0.19 * -(-len(legend) // per) + 0.17 * len(notes) + 0.08 * bool(notes)
    above = 0.55 + 0.24 * _close(rows, top)
    height = above + body + below
    fig = new_figure(width, height)
    ax = fig.add_axes((LEFT / width, below / height, wide / width, body / height))
    ax.set_xlim(lo, hi)
    ax.set_ylim(body, 0)
    ax.axis("off")
    _frame(ax, rows, top, body, lo, hi)
    for b in rows.bars:
        if b.end >= lo and b.start <= hi:
            _bar(ax, b, top[b.row], unit, lo, hi)
    _labels(fig, rows, top, width, height, above)
    _marks(ax, t, rows, top, lo, hi)
    head = title or f"{t.kernel}, block {t.block}"
    fig.text(0.1 / width, 1 - 0.17 / height, head, size=10, weight="bold", va="center")
    shown = ""
    if lo > 0 or hi < rows.end:
        shown = f" (steps {lo:g} to {min(hi, rows.end):g} of {rows.end:g})"
    fig.text(
        LEFT / width, 1 - 0.4 / height, rows.axis + shown + "  →", size=8, va="center",
        color="0.25",
    )  # fmt: skip
    _foot(fig, legend, notes, per, width, height, below)
    return fig


def _close(rows: Rows, top: list[float]) -> bool:
    """Whether two marks have no room for words between them."""
    at = [top[rows.bars[i].row] for i in rows.marks if i >= 0]
    return len(at) == 2 and abs(at[0] - at[1]) < 3 * ROW


def _gaps(rows: Rows) -> list[int]:
    """How many groups have begun before each row; the last entry: in all."""
    out, n = [], 0
    for i, (_, group) in enumerate(rows.rows):
        if i and group != rows.rows[i - 1][1]:
            n += 1
        out.append(n)
    return [*out, n]


def _frame(ax: Any, rows: Rows, top: list[float], body: float, lo: float, hi: float) -> None:
    for y in top:
        ax.fill_between([lo, hi], y + 0.02, y + ROW - 0.02, color="#F7F7F7", lw=0, zorder=0)
    for x in rows.rounds.values():
        if lo < x < hi:
            ax.plot([x, x], [0, body], color="0.75", lw=0.7, ls=(0, (1, 2)), zorder=1)


def _bar(ax: Any, b: Bar, y: float, unit: float, lo: float, hi: float) -> None:
    from matplotlib.patches import Rectangle

    x, end = max(b.start, lo), min(b.end, hi)
    inches = (end - x) * unit
    if b.style in LOOK:
        letter, colour, _ = LOOK[b.style]
        pad = min(0.06, 0.01 / unit)
        ax.add_patch(
            Rectangle((x + pad, y + 0.015), end - x - 2 * pad, ROW - 0.03, fc=colour, ec="0.25",
                      lw=0.6, zorder=4)
        )  # fmt: skip
        if inches > 0.075:
            ax.text((x + end) / 2, y + ROW / 2 + 0.005, letter, ha="center", va="center",
                    size=min(7.5, 48 * inches), color=ink(colour), zorder=5)  # fmt: skip
        return
    if b.style == "ended":
        ax.plot([x, x], [y + 0.03, y + ROW - 0.03], color="0.3", lw=1.6, zorder=3)
        return
    style: dict[str, Any] = {
        "wait": {"fc": "#EFEFEF", "ec": "0.6", "hatch": "....", "lw": 0.4},
        "stuck": {"fc": "#FBE3D6", "ec": RED, "hatch": "xxx", "lw": 0.9},
        "copying": {"fc": BLUE, "ec": "0.25", "lw": 0.6},
        "product": {"fc": ORANGE, "ec": "0.25", "lw": 0.6},
        "arriving": {"fc": "#D7ECF9", "ec": DARK, "hatch": "////", "lw": 0.4},
        "filling": {"fc": "#F0D9E5", "ec": PINK, "hatch": "\\\\\\\\", "lw": 0.4},
        "full": {"fc": "#BFE3D8", "ec": GREEN, "lw": 0.4},
        "using": {"fc": ORANGE, "ec": "0.25", "lw": 0.4},
        "phase0": {"fc": WHITE, "ec": "0.4", "lw": 0.6},
        "phase1": {"fc": "#C9C9C9", "ec": "0.4", "lw": 0.6},
    }[b.style]
    thin = {"wait": 0.045, "stuck": 0.03, "full": 0.05}.get(b.style, 0.03)
    ax.add_patch(Rectangle((x, y + thin), end - x, ROW - 2 * thin, zorder=2, **style))
    if b.style in ("arriving", "using", "filling"):
        return
    short = b.text.split(",")[0].split(":")[0]
    texts = [(x, s) for x in (b.text, short) for s in (6.5, 5.5)]
    fits = [(x, s) for x, s in texts if x and len(x) * 0.0095 * s <= inches]
    if fits:
        text, size = fits[0]
        face = {"pad": 0.6, "fc": style["fc"], "ec": "none"} if "hatch" in style else None
        ax.text((x + end) / 2, y + ROW / 2 + 0.005, text, ha="center", va="center", size=size,
                color="black", zorder=3, bbox=face)  # fmt: skip


def _labels(
    fig: Any, rows: Rows, top: list[float], width: float, height: float, above: float
) -> None:
    groups: dict[str, list[float]] = {}
    for (label, group), y in zip(rows.rows, top, strict=True):
        at = 1 - (above + y + ROW / 2) / height
        fig.text((LEFT - 0.06) / width, at, label, ha="right", va="center", size=7.5)
        groups.setdefault(group, []).append(at)
    for group, ats in groups.items():
        text = group.strip()
        if text == "TMA" or text == "cp.async":
            continue
        size = 7.5
        if len(ats) == 1:
            text, size = (text.replace("\n", " "), 7.5) if len(text) < 14 else (text, 6)
        fig.text(0.1 / width, sum(ats) / len(ats), text, ha="left", va="center", size=size,
                 weight="bold", linespacing=1.15)  # fmt: skip


def _marks(ax: Any, t: Timeline, rows: Rows, top: list[float], lo: float, hi: float) -> None:
    """The accesses of a race, and the line between them."""
    from matplotlib.patches import Rectangle

    ends = []
    for i in rows.marks:
        if i < 0:
            continue
        b = rows.bars[i]
        y = top[b.row]
        ax.add_patch(
            Rectangle((b.start - 0.1, y - 0.02), b.end - b.start + 0.2, ROW + 0.04, fill=False,
                      ec=RED, lw=2.2, zorder=8, clip_on=False)
        )  # fmt: skip
        ends.append(((b.start + b.end) / 2, y + ROW / 2))
    if len(ends) != 2:
        return
    (x0, y0), (x1, y1) = ends
    says = "no fence" if t.fault is not None and t.fault.code == "TK520" else "nothing orders these"
    x = min(max((x0 + x1) / 2, lo + 0.12 * (hi - lo)), hi - 0.12 * (hi - lo))
    y = (y0 + y1) / 2
    if _close(rows, top):  # above all rows
        y = -0.14
    for at in ends:
        ax.annotate(
            "", at, (x, y), zorder=7, annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": RED, "lw": 1.8, "ls": (0, (3, 2)),
                        "shrinkA": 0, "shrinkB": 8},
        )  # fmt: skip
    ax.text(
        x, y, says, size=8, weight="bold", color="#A33C00", ha="center", va="center", zorder=9,
        bbox={"pad": 1.5, "fc": "white", "ec": RED, "lw": 0.8},
    )  # fmt: skip


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


def _legend(rows: Rows, lo: float, hi: float) -> list[tuple[str, str]]:
    """(style, words) of what is shown."""
    styles = {b.style for b in rows.bars if b.end >= lo and b.start <= hi}
    out: dict[str, str] = {}
    for kind, (_, _, words) in LOOK.items():
        if kind in styles and words not in out.values():
            out[kind] = words
    return [*out.items(), *((k, v) for k, v in OTHERS.items() if k in styles)]


def _foot(
    fig: Any, legend: list, notes: list[str], per: int, width: float, height: float, below: float
) -> None:
    ax = fig.add_axes((0, 0, 1, below / height))
    ax.set_xlim(0, width)
    ax.set_ylim(below, 0)
    ax.axis("off")
    for k, (style, words) in enumerate(legend):
        x, y = 0.1 + 1.95 * (k % per), 0.14 + 0.19 * (k // per)
        left = x + 0.1 * (style == "ended")
        _bar(ax, Bar(0, left, left + 0.2 * (style != "ended"), style), y, 1, 0, width)
        ax.text(x + 0.26, y + ROW / 2, words, size=7, va="center")
    y = 0.14 + 0.19 * -(-len(legend) // per) + 0.16
    for line in notes:
        ax.text(0.1, y, line, size=8, va="center", color="#8A3300")
        y += 0.17
