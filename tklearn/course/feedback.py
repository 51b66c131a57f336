"""What a class gets back: a page for each learner, tables for Moodle and Canvas, an overview.

A result is what marking.Grader.grade returns: name, digest, learner, verified, made, notes, problem
(why nothing could be graded), items (id -> passed, score, points, message, code, done, optional,
attempts, hints, png, alt) and said (the predictions). Pages are plain HTML without JavaScript;
every text in them may come from a learner and is escaped. Tables are CSV in UTF-8, in which no cell
begins like a formula.
"""

from __future__ import annotations

import csv
import hashlib
import html
import io
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tklearn.course.items import ITEMS
from tklearn.course.marking import graded

STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:52rem;margin:2rem auto;padding:0 1rem;color:#111}
table{border-collapse:collapse}th,td{text-align:left;padding:.25rem .8rem .25rem 0}
td.n,th.n{text-align:right}section{border-left:5px solid #999;padding-left:1rem;margin:1.5rem 0}
section.yes{border-color:#009E73}section.no{border-color:#D55E00}
img{max-width:100%}pre{white-space:pre-wrap;overflow-wrap:anywhere;background:#f4f4f4;padding:.6rem}
"""
MOODLE = re.compile(r"(.*)_(?P<number>\d+)_assignsubmission_file(?:_(?P<file>.*))?$", re.DOTALL)
CANVAS = re.compile(r"(.*?)_(?:LATE_)?(?P<number>\d+)_\d+_(?P<file>.+)$", re.DOTALL)


@dataclass(frozen=True)
class Learner:
    """One line of a class list. number: the id of Canvas; login: of Moodle and Canvas."""

    id: str
    name: str = ""
    email: str = ""
    number: str = ""
    login: str = ""
    section: str = ""


def page_name(name: str) -> str:
    """The file name for a submission's page and result: readable, and different for each name."""
    clean = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-")[:60] or "submission"
    return f"{clean}-{hashlib.sha256(name.encode(errors='surrogateescape')).hexdigest()[:8]}"


def score(result: dict[str, Any]) -> float:
    """All points, those of "if ahead" exercises among them, up to the full number."""
    got = sum(i["score"] for i in result["items"].values())
    return round(min(got, full()), 2)


def full() -> int:
    """The points of all exercises that everybody does."""
    return sum(i.points for i in graded() if not i.optional)


def who(result: dict[str, Any]) -> str:
    """What a result is called."""
    return result["learner"] or result["name"]


# -------------------------------------------------------------------------------------------- pages
def _document(title: str, body: str) -> str:
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}'
        f'</title><meta http-equiv="Content-Security-Policy" content="{policy}">'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head>'
        f"<body>{body}</body></html>\n"
    )


def _state(i: dict[str, Any]) -> str:
    if i["passed"]:
        return "passed"
    return "not yet" if i["done"] else "not handed in"


def page(result: dict[str, Any], weaker: str = "") -> str:
    """A learner's page."""
    e = html.escape
    body = [f"<h1>{e(who(result))}</h1>"]
    body += [f"<p>Note: {e(n)}</p>" for n in result["notes"]]
    if result["problem"]:
        body.append(f"<p>Nothing could be graded: {e(result['problem'])}</p>")
        return _document(who(result), "".join(body))
    body.append(f"<p><b>{score(result):g} of {full()} points</b></p>")
    rows = []
    for name, i in result["items"].items():
        ahead = " (if ahead)" if i["optional"] else ""
        link = f'<a href="#{e(name)}">{e(name)}</a>' if i["done"] else e(name)
        cells = f"<td>{link}</td><td>{e(_title(name))}{ahead}</td>"
        cells += f'<td>{_state(i)}</td><td class="n">{i["score"]:g} of {i["points"]}</td>'
        cells += f'<td class="n">{i["attempts"]}</td><td class="n">{i["hints"]}</td>'
        rows.append(f"<tr>{cells}</tr>")
    head = '<th>exercise<th><th>state<th class="n">points<th class="n">checks<th class="n">hints'
    body.append(f"<table><thead><tr>{head}</thead><tbody>{''.join(rows)}</tbody></table>")
    for name, i in result["items"].items():
        if i["done"]:
            kind = "yes" if i["passed"] else "no"
            body.append(
                f'<section id="{e(name)}" class="{kind}"><h2>{e(name)}. {e(_title(name))}</h2>'
                f"<p>{_state(i)}, {i['score']:g} of {i['points']} points</p>"
                f"<pre>{e(i['message'])}</pre>{_picture(i)}</section>"
            )
    return _document(who(result), "".join(body))


def _picture(i: dict[str, Any]) -> str:
    if not i["png"]:
        return ""
    alt = html.escape(i["alt"], quote=True)
    return f'<img alt="{alt}" src="data:image/png;base64,{html.escape(i["png"], quote=True)}">'


def _title(name: str) -> str:
    return ITEMS[name].title if name in ITEMS else ""


def overview(
    rows: list[tuple[str, dict[str, Any]]], said: str, counts: list[dict[str, Any] | None],
    names: dict[str, str] | None = None,
) -> str:  # fmt: skip
    """The instructor's page: a line for each (page's file, result), and how each exercise went.

    counts: for each learner of the class the result that counts, None where nothing was handed in.
    names: of learners, by the names of the submissions that count for them.
    """
    e = html.escape
    lines = []
    called = {r["name"]: (names or {}).get(r["name"], who(r)) for _, r in rows}
    for file, r in sorted(rows, key=lambda x: called[x[1]["name"]].lower()):
        points = e(r["problem"]) if r["problem"] else f"{score(r):g} of {full()}"
        notes = "; ".join(r["notes"])
        link = f'<a href="feedback/{e(file)}.html">{e(called[r["name"]])}</a>'
        lines.append(f"<tr><td>{link}</td><td>{points}</td><td>{e(notes)}</td></tr>")
    good = [r for r in counts if r is not None and not r["problem"]]
    exercises = []
    for i in graded():
        done = [r["items"][i.id] for r in good if i.id in r["items"]]
        passed, there = sum(d["passed"] for d in done), sum(d["done"] for d in done)
        cells = f"<td>{e(i.id)}</td><td>{e(i.title)}</td>"
        cells += f'<td class="n">{passed} of {len(counts)}</td><td class="n">{there}</td>'
        cells += f'<td class="n">{sum(d["hints"] > 0 for d in done)}</td>'
        exercises.append(f"<tr>{cells}</tr>")
    numbers = ("passed, of the class", "handed in", "took hints")
    head = "<th>exercise<th>" + "".join(f'<th class="n">{n}' for n in numbers)
    return _document(
        "Grades",
        f"<h1>Grades</h1><p>{e(said)}</p><table>{''.join(lines)}</table>"
        f"<h2>Exercises</h2><table><thead><tr>{head}</thead><tbody>{''.join(exercises)}</tbody></table>",
    )


# ------------------------------------------------------------------------------------------- tables
def cell(x: Any) -> str:
    """A cell of a table that no program takes for a formula."""
    text = f"{x:g}" if isinstance(x, float) else str(x)
    text = text.encode("utf-8", "backslashreplace").decode()
    return "'" + text if text != "-" and text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def _table(rows: Iterable[Iterable[Any]]) -> str:
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator="\r\n").writerows([cell(c) for c in row] for row in rows)
    return out.getvalue()


def grades_csv(results: list[dict[str, Any]]) -> str:
    """One row for each submission, with each exercise."""
    names = [i.id for i in graded()]
    head = ["submission", "learner", "verified", "points", "of", *names, "problem", "notes"]
    rows = []
    for r in sorted(results, key=lambda r: r["name"]):
        each = [float(r["items"][n]["score"]) if n in r["items"] else "" for n in names]
        points: Any = "" if r["problem"] else score(r)
        seen = "yes" if r["verified"] else "no"
        row = [r["name"], r["learner"], seen, points, full(), *each, r["problem"]]
        rows.append([*row, "; ".join(r["notes"])])
    return _table([head, *rows])


def sent(name: str) -> tuple[str, str] | None:
    """Whose a file is and its own name, where Moodle or Canvas named it in a download of all
    submissions: Full name_123_assignsubmission_file_work.zip, name_LATE_991_5_work.zip."""
    named = MOODLE.match(name) or CANVAS.match(name)
    return (f"{named[1]}_{named['number']}", named["file"] or "") if named else None


def sender(name: str, learners: Iterable[Learner]) -> Learner | None:
    """The learner after whom Moodle or Canvas named a file or folder; None: nobody, or several."""
    if moodle := MOODLE.match(name):
        # 123 stands in Moodle's grading sheet; a name there has lost its quotes and the like
        same = [x for x in learners if x.number == moodle["number"] or _alike(x.name, moodle[1])]
    elif canvas := CANVAS.match(name):
        same = [x for x in learners if x.number == canvas["number"]]
    else:
        return None
    return same[0] if len(same) == 1 else None


def _alike(a: str, b: str) -> bool:
    """Whether two names are of the same words, in whatever order."""
    words = [
        sorted(re.sub(r"[^\w\s-]", "", unicodedata.normalize("NFC", x)).casefold().split())
        for x in (a, b)
    ]
    return words[0] == words[1] != []


def by_learner(
    results: list[dict[str, Any]], learners: list[Learner]
) -> list[tuple[Learner, dict[str, Any] | None]]:
    """The submission that counts for each learner: of several, the last made.

    With a class list, a submission is a learner's if their number is in it, or if Moodle or Canvas
    named it after them; then follow those that are nobody's. Without a list, a name that several
    submissions claim counts for none, and each goes by its file.
    """
    named: dict[str, list[dict[str, Any]]] = {}
    for r in results:
        name = r["learner"] if r["verified"] or not learners else ""
        if not name and (by := sender(r["name"], learners)):
            name = by.id
        named.setdefault(name, []).append(r)
    out: list[tuple[Learner, dict[str, Any] | None]] = []
    if learners:
        for who_ in learners:
            theirs = named.pop(who_.id, [])
            readable = [r for r in theirs if not r["problem"]] or theirs
            last = max(readable, key=_newest, default=None)
            out.append((who_, last))
    for name, theirs in sorted(named.items()):
        for r in sorted(theirs, key=lambda r: r["name"]):
            alone = len(theirs) == 1 and name
            out.append((Learner(name if alone else r["name"]), r))
    return out


def _newest(r: dict[str, Any]) -> tuple[bool, float, str]:
    return bool(r["verified"]), r["made"], r["name"]  # a file's name proves less than a number


def moodle_csv(rows: list[tuple[Learner, dict[str, Any] | None]], column: str = "tklearn") -> str:
    """For Grades > Import > CSV file in Moodle: map by ID number, username or email address.

    rows: of the class list. A column by which not everybody can be told is left out: Moodle gives
    the points of a line without an ID number to the learner of the line before.
    """
    everybody = [w for w, _ in rows]
    keys = {
        "ID number": [_given(w) for w in everybody],
        "Username": [w.login for w in everybody],
        "Email address": [w.email for w in everybody],
    }
    heads = [h for h, cells in keys.items() if all(cells)]
    if not heads:  # an id that Moodle does not know stops its import: nothing goes astray
        heads, keys["ID number"] = ["ID number"], [w.id for w in everybody]
    body = []
    for n, (who_, r) in enumerate(rows):
        points: Any = "-" if r is None or r["problem"] else score(r)
        said = "nothing handed in" if r is None else r["problem"] or _line(r)
        body.append([*(keys[h][n] for h in heads), who_.name, points, said])
    return _table([[*heads, "Full name", column, f"Feedback: {column}"], *body])


def canvas_csv(rows: list[tuple[Learner, dict[str, Any] | None]], column: str = "tklearn") -> str:
    """For Grades > Import in Canvas; the second line holds the points that can be had.

    rows: of the class list. column: the assignment's name, or "name (id)" as in Canvas's exports.
    """
    head = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", column]
    body = [["    Points Possible", "", "", "", "", full()]]
    for who_, r in rows:
        points: Any = "" if r is None or r["problem"] else score(r)
        own = [who_.name or who_.id, who_.number, _given(who_), who_.login, who_.section]
        body.append([*own, points])
    return _table([head, *body])


def _given(who_: Learner) -> str:
    """A learner's id, where it is not another of their marks that stands in for it."""
    return "" if who_.id in (who_.login, who_.email, who_.number) else who_.id


def _line(r: dict[str, Any]) -> str:
    open_ = [n for n, i in r["items"].items() if not i["passed"] and not i["optional"]]
    return f"not yet: {', '.join(open_)}" if open_ else "all passed"
