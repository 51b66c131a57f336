"""One page with what a learner has done: points, hints, the quiz before and after, own kernels.

Plain HTML without JavaScript, for reading, for printing and for keeping. Everything in it is
computed when it is written: from the journal (attempts.py) and from the exercises' files, whose
kernels run once more beside their recordings (mine.py).
"""

from __future__ import annotations

import datetime
import html
import os
from collections.abc import Iterable
from pathlib import Path

from tklearn.course import attempts
from tklearn.course.item import Item, KernelItem, OneOf, Order
from tklearn.course.items import ITEMS

NAME = "result.html"
STYLE = """
body{font:15px/1.45 system-ui,sans-serif;max-width:60rem;margin:1.5rem auto;padding:0 1rem;
color:#111;background:#fff}
h1{font-size:1.5rem;margin:0 0 .3rem}h2{font-size:1.1rem;margin:1.4rem 0 .4rem}
table{border-collapse:collapse;width:100%}caption{text-align:left;color:#444}
th,td{text-align:left;padding:.15rem .7rem .15rem 0;border-bottom:1px solid #ddd;vertical-align:top}
th{border-bottom-color:#111}td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}
td.n{white-space:nowrap}
p.big{font-size:1.15rem}.wide{overflow-x:auto}
@media print{body{font-size:7.5pt;line-height:1.25;margin:0;max-width:none;padding:0}
h1{font-size:12pt}h2{font-size:9pt;margin:.6rem 0 .2rem;break-after:avoid}p{margin:.2rem 0}
p.big{font-size:9pt}td,th{padding:.06rem .5rem .06rem 0}tr{break-inside:avoid}}
@page{size:A4;margin:9mm}
"""
COLUMNS = ("exercise", "", "lesson", "state", "points", "tries", "hints", "minutes")
NUMBERS = ("points", "tries", "hints", "minutes")


def page() -> str:
    """The whole page."""
    kept = attempts.records()
    full = sum(i.points for i in ITEMS.values() if not i.optional)
    got = sum(kept[i].score for i in ITEMS if i in kept)
    passed = sum(kept[i].passed for i in ITEMS if i in kept)
    day = datetime.date.today().isoformat()
    body = [
        "<h1>tklearn: the two-hour course</h1>",
        f"<p class='big'><b>{min(got, full):g} of {full} points</b>, {passed} of {len(ITEMS)} "
        f"exercises passed ({day}).</p>",
        "<p>Points of exercises marked “if ahead” make up for others, up to the full number.</p>",
        "<h2>Exercises</h2>",
        _table(COLUMNS, [_row(i, kept.get(i.id)) for i in ITEMS.values()], NUMBERS),
        "<h2>The quiz, before and after</h2>",
        _quiz(),
        "<h2>My kernels: predicted, simulated, measured</h2>",
        _kernels(kept),
    ]
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>tklearn: my result</title><style>{STYLE}</style></head>\n<body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def write(path: Path | None = None) -> Path:
    """Writes the page, whole or not at all; by default beside exercises/. Errors: OSError."""
    path = path or (attempts.course() or Path.cwd()) / NAME
    text = page()
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        new.write_text(text, encoding="utf-8")
        os.replace(new, path)
    finally:
        new.unlink(missing_ok=True)
    return path


def _row(item: Item, r: attempts.Record | None) -> tuple[str, ...]:
    r = r or attempts.Record(item.id)
    state = "passed" if r.passed else "not yet" if r.attempts else "-"
    if item.optional and state == "-":
        state = "if ahead"
    points = f"{r.score:g} of {item.points}" if item.points else "-"
    took = f"{r.seconds / 60:.0f}" if r.passed else "-"
    name = "" if item.id == "temperature" else item.id
    lesson = item.notebook[:2]
    return (name, item.title, lesson, state, points, str(r.attempts), str(r.hints), took)


def _table(head: Iterable[str], rows: Iterable[Iterable[object]], numbers: Iterable[str]) -> str:
    """A table whose texts may hold anything; columns of `numbers` are set to the right."""
    head = tuple(head)
    right = [h in tuple(numbers) for h in head]

    def cells(row: Iterable[object], tag: str) -> str:
        return "<tr>" + "".join(
            f"<{tag}{' class=n' if n else ''}>{html.escape(str(c))}</{tag}>"
            for c, n in zip(row, right, strict=True)
        ) + "</tr>"  # fmt: skip

    body = "\n".join(cells(r, "td") for r in rows)
    return f"<div class='wide'><table>{cells(head, 'th')}\n{body}</table></div>"


def _quiz() -> str:
    from tklearn.course.items import LESSONS
    from tklearn.course.mine import Quiz

    texts = {q.name: q.text for q in LESSONS["quiz-after"].questions}
    params = LESSONS["quiz-after"].params(None)  # type: ignore[arg-type]
    rows = Quiz().rows
    done = all("-" not in r[1:3] for r in rows)
    shown, right = [], [0, 0]
    for name, before, after, truth in rows:
        good = [str(x) == str(truth) for x in (before, after)]
        right = [n + g for n, g in zip(right, good)]
        marks = ["yes" if g else "no" for g in good] if done else ["", ""]
        said = [f"{x} ({m})" if m else str(x) for x, m in zip((before, after), marks)]
        shown.append((texts[name].format(**params), *said))
    note = (
        f"<p>Right: {right[0]} of {len(rows)} before, {right[1]} of {len(rows)} after.</p>"
        if done
        else "<p>What is right is shown when both have been answered.</p>"
    )
    return _table(("question", "before", "after"), shown, ()) + note


def _kernels(kept: dict[str, attempts.Record]) -> str:
    from tklearn.course import mine

    passed = [
        i.id
        for i in ITEMS.values()
        if isinstance(i, KernelItem | OneOf)
        and not isinstance(i, Order)
        and i.id in kept
        and kept[i.id].passed
    ]
    launches, lacking = mine.kernels(passed)
    if not launches:
        return "<p>None of the exercises with a kernel is passed yet.</p>"
    table = mine.side_by_side(launches, lacking)
    numbers = mine.HEAD[2:5] + mine.HEAD[6:]
    notes = "".join(f"<p>{html.escape(n)}</p>" for n in table.notes())
    none = sum(r.measured is None for r in table.rows)
    if none:
        notes += (
            f"<p>Not measured: {none}. A kernel that differs in anything from those that were "
            "recorded has no measured time here: on a machine with a GPU it is measured.</p>"
        )
    return _table(mine.HEAD, table.cells(), numbers) + notes
