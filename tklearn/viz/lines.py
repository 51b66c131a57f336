"""A kernel's source with its counters as bars: where the traffic is.

Draws from a Report. Each counter has a column of its own, the number beside the bar; columns of
one unit (wavefronts, sectors, requests) share a scale. The part above the ideal is drawn darker
and hatched, so that it can be told without colour.
"""

from __future__ import annotations

import linecache
from typing import Any

from tklearn.report import Report
from tklearn.viz.picture import Picture, new_figure

# Okabe and Ito's blue and vermilion: told apart by colour-blind readers and in print.
FITS, EXCESS = "#56B4E9", "#D55E00"


def lines(report: Report, counters: list[str] | None = None, title: str = "") -> Picture:
    """The listing of `report` with one column of bars for each counter that moved.

    Args: counters, keys of report.METRICS (default: wavefronts and sectors that moved); title, a
        line above.
    """
    keys = counters or [k for k in report.columns() if k.endswith(("_wavefronts", "_sectors"))]
    rows = report.rows(keys)
    width = max((len(t) for _, t, _ in rows), default=10)
    text_inches, bar_inches = 0.075 * width + 0.5, 1.5
    fig = new_figure(text_inches + bar_inches * len(keys), 0.19 * (len(rows) + 2) + 0.2)
    total = fig.get_figwidth()
    code = fig.add_axes((0, 0, text_inches / total, 1))
    _frame(code, len(rows))
    for y, (n, text, _) in enumerate(rows):
        code.text(0.02, y, f"{n:3d}", family="monospace", size=7.5, va="center", color="0.45")
        code.text(0.02 + 0.35 / text_inches, y, text, family="monospace", size=7.5, va="center")
    code.text(0.02, -1.2, title, size=8.5, va="center", weight="bold")
    for i, key in enumerate(keys):
        left = (text_inches + i * bar_inches) / total
        ax = fig.add_axes((left, 0, bar_inches / total * 0.96, 1))
        _frame(ax, len(rows))
        ax.text(0, -1.2, key.replace("_", " "), size=7.5, va="center")
        most = max(_most(report, k) for k in keys if _unit(k) == _unit(key))
        _bars(ax, report, key, [n for n, _, _ in rows], most or 1)
    return Picture(fig, describe(report, keys), report)


def _frame(ax: Any, rows: int) -> None:
    ax.set_xlim(0, 1)
    ax.set_ylim(rows - 0.5, -2)
    ax.axis("off")


def _unit(key: str) -> str:
    """What a counter counts: the last word of its key; ideals are of what they are ideals of."""
    last = key.rsplit("_", 1)[-1]
    if last in ("ideal", "conflicts"):
        return "sectors" if key.startswith("global") else "wavefronts"
    return last


def _most(report: Report, key: str) -> int:
    """The most that one line has of a counter."""
    return max((c.get(key, 0) for c in report.lines.values()), default=0)


def _bars(ax: Any, report: Report, key: str, numbers: list[int], most: int) -> None:
    counts = [report.lines.get(n, {}) for n in numbers]
    ideal_key = key.replace("_wavefronts", "_ideal").replace("_sectors", "_ideal")
    for y, c in enumerate(counts):
        got, best = c.get(key, 0), c.get(ideal_key, 0)
        if not got:
            continue
        fits = min(best or got, got) / most * 0.55
        ax.barh(y, fits, height=0.7, color=FITS)
        if got > best > 0:
            ax.barh(y, got / most * 0.55 - fits, left=fits, height=0.7, color=EXCESS, hatch="////")
        ax.text(got / most * 0.55 + 0.03, y, f"{got:,}", size=7, va="center")


def describe(report: Report, counters: list[str] | None = None) -> str:
    """What the figure shows, in words: each counter in total and where most of it is."""
    total = report.total
    parts = [f"Source of {report.kernel} with a bar for each counter and line."]
    keys = counters or [k for k in report.columns() if k.endswith(("_wavefronts", "_sectors"))]
    for key in keys:
        if not total.get(key):
            continue
        ideal = key.replace("_wavefronts", "_ideal").replace("_sectors", "_ideal")
        line = max(report.lines, key=lambda n: report.lines[n].get(key, 0))
        text = linecache.getline(report.file, line).strip()
        best = f", ideal {total[ideal]:,}" if ideal != key else ""
        parts.append(
            f"{key.replace('_', ' ')}: {total[key]:,}{best}; "
            f"most, {report.lines[line][key]:,}, on line {line}: {text}."
        )
    units = [_unit(key) for key in keys]
    shared = sorted({unit for unit in units if units.count(unit) > 1})
    parts += [f"The columns have one scale for the {unit}." for unit in shared]
    return " ".join(parts)
