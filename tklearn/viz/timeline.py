"""Warps, TMA and tensor cores of one block from left to right: who ran, who waited, for what.

Draws from report.Timeline, with matplotlib, the rows and bars that rows.py makes of it; the widget
(timeline.js) draws the same as SVG.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Any

from tklearn.lang.errors import FigureError, TkError
from tklearn.report import Fault, Report, Timeline
from tklearn.viz.clock import Units
from tklearn.viz.picture import Picture, count, ink, new_figure, ranges
from tklearn.viz.rows import (
    BLUE,
    DARK,
    GREEN,
    LOOK,
    ORANGE,
    ORDER,
    OTHERS,
    PINK,
    RED,
    WHITE,
    Bar,
    Rows,
    picture_rows,
)

WIDEST = 90  # steps that one picture shows


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
    return Picture(_draw(t, rows, lo, hi, title), describe(t, rows, (lo, hi)), Drawn(t, rows))


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
        return _finish(self.rows)

    @property
    def first_product(self) -> float | None:
        return min((b.start for b in self.rows.bars if b.style == "product"), default=None)


def _finish(rows: Rows) -> float:
    return max((end for _, end in rows.at), default=0.0)


def _window(t: Timeline, rows: Rows) -> tuple[float, float]:
    if rows.end <= WIDEST:
        return 0, rows.end
    return (0, WIDEST) if t.fault is None else (rows.end - WIDEST, rows.end)


# --------------------------------------------------------------------------------------- words
def describe(t: Timeline, rows: Rows, window: tuple[float, float] | None = None) -> str:
    """What the figure shows, in words. window: the part of the axis that it shows, if not all."""
    out = [f"Timeline of {t.kernel}, block {t.block}: {count(t.warps, 'warp')}; {rows.axis}."]
    if window is not None and _cut(rows, *window):
        lo, hi = window
        out.append(f"The picture shows {lo:g} to {hi:g}; these words are about the whole run.")
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
    if rows.axis != ORDER:
        out.append(_spans(rows))
    if t.fault is None or t.fault.kind != "deadlock":
        out += _waits(rows)
    out += _first_phase(t)
    if t.dropped:
        out.append(f"{t.dropped:,} moments in the middle are left out.")
    return " ".join([*out, *fault_lines(t)])


def _cut(rows: Rows, lo: float, hi: float) -> bool:
    """Whether a part of the axis leaves something out."""
    return lo > 0 or hi < _finish(rows)


def _spans(rows: Rows) -> str:
    """When it ends and how much of that the tensor cores work and the warps wait."""
    end, waits = _finish(rows), [0.0] * len(rows.rows)
    busy = sorted((b.start, b.end) for b in rows.bars if b.style == "product")
    for b in rows.bars:
        waits[b.row] += (b.end - b.start) * (b.style == "wait")
    said = [f"It ends at {end:g}."]
    if busy:
        worked, until = 0.0, 0.0
        for start, stop in busy:
            worked += max(stop - max(start, until), 0.0)
            until = max(until, stop)
        said.append(
            f"The first product begins at {busy[0][0]:g}; tensor cores work in "
            f"{100 * worked / end:.0f} % of the time."
        )
    labels = [f"{label} {w:g}" for (label, _), w in zip(rows.rows, waits, strict=True) if w]
    if labels:
        said.append("Time spent waiting: " + ", ".join(labels[:8]) + ".")
    return " ".join(said)


def _waits(rows: Rows) -> list[str]:
    waits: dict[str, float] = {}
    for b in rows.bars:
        if b.style == "wait":
            waits[b.text] = waits.get(b.text, 0) + b.end - b.start
    most = sorted(waits, key=lambda k: -waits[k])[:3]
    return ["Warps wait most for " + ", ".join(most) + "."] if most else []


def _first_phase(t: Timeline) -> list[str]:
    """How the first phase of a semaphore that counts bytes goes on, to its end if it has one."""
    name = next((m.what for m in t.moments if m.kind == "expect"), None)
    if name is None:
        return []
    said: list[str] = []
    for m in t.moments:
        if f"semaphore {name}" in m.changes and m.kind in ("arrive", "expect", "land", "phase"):
            said.append(m.says)
            if m.kind == "phase":
                break
    return [f"The first phase of {name}: " + "; ".join(said) + "."]


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
ROW, LEFT, SWATCH = 0.205, 1.75, 2.15  # inches: a row's height, a label's and a legend's width


def _draw(t: Timeline, rows: Rows, lo: float, hi: float, title: str) -> Any:
    span = max(hi - lo, 1.0)
    unit = min(0.21, 9.6 / span)
    wide = max(unit * span, 4.2)
    unit = wide / span
    legend = _legend(rows, lo, hi)
    width = LEFT + wide + 0.15
    per = max(int((width - 0.3) / SWATCH), 1)
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
    if _cut(rows, lo, hi):
        end = _finish(rows)
        shown = f" (steps {lo:g} to {min(hi, end):g} of {end:g})"
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
    inside = [x for x in rows.rounds.values() if lo < x < hi]
    for x in inside if 4 * len(inside) < hi - lo else ():
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
                    size=min(8.5, 66 * inches), color=ink(colour), zorder=5)  # fmt: skip
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
        x, y = 0.1 + SWATCH * (k % per), 0.14 + 0.19 * (k // per)
        left = x + 0.1 * (style == "ended")
        _bar(ax, Bar(0, left, left + 0.2 * (style != "ended"), style), y, 1, 0, width)
        ax.text(x + 0.26, y + ROW / 2, words, size=7, va="center")
    y = 0.14 + 0.19 * -(-len(legend) // per) + 0.16
    for line in notes:
        ax.text(0.1, y, line, size=8, va="center", color="#8A3300")
        y += 0.17
