"""The two hours: what a lesson asks for fits into the minutes that it states, and they add up.

The numbers are those of six dry runs: 220 words of text a minute, 0.3 minutes for a cell in which a
prediction is filled in, the minutes that each exercise states, and 1.5 for the quiz. What stands
under "If you are ahead" and the exercises for those who are ahead count nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from course_kit import ROOT

from tklearn.course.items import GRADED, ITEMS

LESSONS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
EVERY = pytest.mark.parametrize("path", LESSONS, ids=lambda p: p.stem)
WORDS_A_MINUTE, PREDICTION, QUIZ = 220, 0.3, 1.5
AHEAD = "if you are ahead"


def core(path: Path) -> Iterator[tuple[str, str]]:
    """(type, text) of each cell that everybody comes to; a cell of text is cut at its headings."""
    level = 0  # of the heading of the section for who is ahead, 0 outside it
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "code":
            parts = [text]
        else:
            parts = re.split(r"^(?=#{1,4} )", text, flags=re.MULTILINE)
        for part in parts:
            heading = re.match(r"(#+) (.*)", part) if cell["cell_type"] == "markdown" else None
            if heading and (not level or len(heading[1]) <= level):
                level = len(heading[1]) if heading[2].lower().startswith(AHEAD) else 0
            if part.strip() and not level:
                yield cell["cell_type"], part


def words(text: str) -> int:
    """Words of a text as it is read: where links lead and rules of tables are none."""
    text = re.sub(r"\]\([^)]*\)", "]", text)
    return sum(any(c.isalnum() for c in word) for word in text.split())


def needed(path: Path) -> tuple[float, str]:
    """The minutes of a lesson's core path, and their parts in words."""
    cells = list(core(path))
    read = sum(words(text) for kind, text in cells if kind == "markdown")
    code = "\n".join(text for kind, text in cells if kind == "code")
    guesses = len(re.findall(r"^tk\.predict\((?!\"quiz-before\").*=None", code, re.MULTILINE))
    quiz = QUIZ if 'tk.predict("quiz-before"' in code else 0.0
    here = [i for i in ITEMS.values() if i.notebook == path.stem and i.id in GRADED]
    items = {i.id: i.minutes for i in here if not i.optional}
    total = read / WORDS_A_MINUTE + PREDICTION * guesses + quiz + sum(items.values())
    return total, f"{read} words, {guesses} predictions, quiz {quiz}, {items}: {total:.1f}"


def stated(path: Path) -> int:
    """The minutes that a lesson states at its top."""
    first = next(text for _, text in core(path))
    found = re.search(r"\*\*(\d+) minutes, [\d.]+ of them exercises\.\*\*", first)
    assert found, f"{path.stem} does not say how long it takes"
    return int(found[1])


def plan() -> list[tuple[int, int, str]]:
    """(from, to, notebook or "pause") of the instructor's table."""
    text = (ROOT / "docs" / "instructor.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+)-(\d+) \| (.*?) \|", text, re.MULTILINE)
    linked = re.compile(r"\(\.\./notebooks/(.*)\.ipynb\)")
    named = [(int(a), int(b), linked.search(what)) for a, b, what in rows]
    return [(a, b, found[1] if found else "pause") for a, b, found in named]


@EVERY
def test_a_lesson_fits_into_its_minutes(path: Path) -> None:
    total, parts = needed(path)
    assert total <= stated(path), parts


@EVERY
def test_the_minutes_of_exercises_are_those_of_its_items(path: Path) -> None:
    first = next(text for _, text in core(path))
    said = re.search(r"minutes, ([\d.]+) of them exercises", first)
    here = [i for i in ITEMS.values() if i.notebook == path.stem and i.id in GRADED]
    assert said is not None
    assert float(said[1]) == sum(i.minutes for i in here if not i.optional)


@EVERY
def test_the_minutes_are_the_same_in_all_places(path: Path) -> None:
    minutes = stated(path)
    assert json.loads(path.read_text(encoding="utf-8"))["metadata"]["tklearn"]["minutes"] == minutes
    row = next(r for r in plan() if r[2] == path.stem)
    assert row[1] - row[0] == minutes
    heading = f"### {row[0]}-{row[1]}: "
    assert heading in (ROOT / "docs" / "instructor.md").read_text(encoding="utf-8")


def test_the_plan_has_no_gap_and_two_hours() -> None:
    rows = plan()
    assert [r[0] for r in rows] == [0, *(r[1] for r in rows[:-1])]
    pause = sum(end - begin for begin, end, what in rows if what == "pause")
    assert pause > 0
    assert pause + sum(stated(p) for p in LESSONS) == 120


@pytest.mark.parametrize("item", [ITEMS[i] for i in GRADED], ids=GRADED)
def test_an_exercise_states_its_minutes(item) -> None:
    for folder in ("solutions", "exercises"):
        first = json.loads((ROOT / folder / item.file).read_text(encoding="utf-8"))["cells"][0]
        assert f"**{item.minutes:g} minutes, {item.points} points" in "".join(first["source"])


@pytest.mark.parametrize("item", [ITEMS[i] for i in GRADED], ids=GRADED)
def test_where_an_exercise_is_linked(item) -> None:
    """On the core path, or under "If you are ahead": as it is counted."""
    path = ROOT / "notebooks" / f"{item.notebook}.ipynb"
    link = f"](../exercises/{item.file})"
    everywhere = path.read_text(encoding="utf-8").count(link)
    on_the_way = sum(text.count(link) for _, text in core(path))
    assert (on_the_way == 0 and everywhere > 0) if item.optional else on_the_way > 0


def test_what_is_for_those_who_are_ahead_is_not_counted(tmp_path: Path) -> None:
    def cell(kind: str, text: str) -> dict:
        return {"cell_type": kind, "source": text}

    book = [
        cell("markdown", "# Title\none two [three](four) | --- |"),
        cell("code", 'tk.predict("N1", a=None)'),
        cell("markdown", "four\n## If you are ahead\nfive six"),
        cell("code", 'tk.predict("N1", b=None)'),
        cell("markdown", "### Deeper\nseven\n## What to keep\neight"),
    ]
    path = tmp_path / "lesson.ipynb"
    path.write_text(json.dumps({"cells": book}), encoding="utf-8")
    texts = [text for kind, text in core(path) if kind == "markdown"]
    assert sum(map(words, texts)) == 9  # Title one two three four What to keep eight
    assert [text for kind, text in core(path) if kind == "code"] == ['tk.predict("N1", a=None)']
