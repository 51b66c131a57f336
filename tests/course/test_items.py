"""Every exercise: its texts, its notebooks, its right answers, its wrong answers."""

from __future__ import annotations

import json
import time
from pathlib import Path

import nbformat
import pytest
from course_kit import ROOT, answers, code, judged, promised, run, static

import tklearn as tk
from tklearn.course import release
from tklearn.course.item import Item, KernelItem, OneOf, Order, Predict
from tklearn.course.items import GRADED, ITEMS

EVERY = pytest.mark.parametrize("item", ITEMS.values(), ids=ITEMS)
STORED = [(i, p) for i in ITEMS.values() for kind in ("right", "wrong") for p in answers(i, kind)]
SECONDS = 2.0  # of processor time, as the page promises


def solution(item: Item) -> Path:
    return ROOT / "solutions" / item.file


def exercise(item: Item) -> Path:
    return ROOT / "exercises" / item.file


@EVERY
def test_texts(item: Item) -> None:
    assert len(item.hints) == 3
    assert all(len(h) > 40 for h in item.hints)
    assert len(set(item.hints)) == 3
    assert item.title
    assert 1 <= item.minutes <= 16
    assert item.id == "temperature" or item.points > 0
    assert item.id in (*GRADED, "temperature")
    assert item.scale()
    if isinstance(item, Predict):
        assert all(q.why and q.wrong for q in item.questions)
    if isinstance(item, KernelItem):
        assert item.wrong, "no misconceptions"
        assert set(item.sizes).isdisjoint(item.hidden)


@EVERY
def test_the_exercise_is_the_solution_without_its_fill_ins(item: Item) -> None:
    solved = json.loads(solution(item).read_text(encoding="utf-8"))
    text = exercise(item).read_text(encoding="utf-8")
    assert text == release.dumped(release.exercise(solved)), "run: tklearn release --exercises"
    skeleton = json.loads(text)
    for cell in (c["source"] for c in skeleton["cells"]):
        assert "SOLUTION" not in "".join(cell)
        assert "HIDDEN TESTS" not in "".join(cell)
    rest = iter(line for c in solved["cells"] for line in "".join(c["source"]).split("\n"))
    lines = [line for c in skeleton["cells"] for line in "".join(c["source"]).split("\n")]
    assert all(line in rest for line in lines), "solving only adds lines"
    for book in (solved, skeleton):
        nbformat.validate(nbformat.from_dict(book))


@EVERY
def test_the_notebook_can_be_graded_by_nbgrader(item: Item) -> None:
    book = json.loads(exercise(item).read_text(encoding="utf-8"))
    marks = [c["metadata"]["nbgrader"] for c in book["cells"] if "nbgrader" in c["metadata"]]
    if item.points == 0:
        return
    assert all(m["schema_version"] == 3 for m in marks)
    graded = [m for m in marks if m["grade"]]
    assert [(m["grade_id"], m["points"], m["locked"]) for m in graded] == [
        (item.id, item.points, True)
    ]
    assert any(m["solution"] and not m["locked"] for m in marks)
    checks = [c for c in book["cells"] if c["metadata"].get("nbgrader", {}).get("grade")]
    assert "".join(checks[0]["source"]) == f'tk.check("{item.id}")'


@EVERY
def test_the_skeleton_runs_and_is_not_done(item: Item) -> None:
    run(code(exercise(item)), item.id)
    for hidden in (False, True):
        verdict = judged(item, static(item, exercise(item)), hidden=hidden)
        assert not verdict
        assert verdict.score == 0
        assert len(verdict.message) > 20


@EVERY
def test_the_solution_gets_full_marks(item: Item, capsys: pytest.CaptureFixture[str]) -> None:
    space = run(code(solution(item)), item.id)
    space["verdict"] = None
    exec(f"verdict = tk.check({item.id!r})", space)
    assert space["verdict"].passed, space["verdict"]
    answer = static(item, solution(item))
    for seed in (0, 1) if isinstance(item, KernelItem) else (0,):
        verdict = judged(item, answer, seed, hidden=True)
        assert verdict, verdict
        assert verdict.score == item.points


@pytest.mark.parametrize(("item", "path"), STORED, ids=lambda x: getattr(x, "stem", None) or x.id)
def test_stored_answers(item: Item, path: Path) -> None:
    answer = static(item, path)
    start = time.process_time()
    verdict = judged(item, answer)
    took = time.process_time() - start
    hidden = judged(item, answer, seed=5, hidden=True) if took < SECONDS else verdict
    if path.stem.startswith("right"):
        assert verdict, verdict
        assert hidden, hidden
        assert hidden.score == item.points
        assert took < SECONDS
        return
    assert not verdict, verdict
    assert not hidden, hidden
    words = promised(path, "words").split("|")
    assert any(w in str(verdict) for w in words), verdict
    share = 1.0 if isinstance(item, Predict) else 0.9
    assert verdict.score <= float(promised(path, "score") or share * item.points)
    if not isinstance(item, Predict) and "endless" not in path.stem:
        assert took < SECONDS


@EVERY
def test_there_are_enough_stored_answers(item: Item) -> None:
    free = isinstance(item, KernelItem | OneOf) and not isinstance(item, Order)
    assert len(answers(item, "right")) >= (3 if free else 1)
    assert len(answers(item, "wrong")) >= 5
    assert all(promised(p, "words") for p in answers(item, "wrong"))


def test_hints_are_counted() -> None:
    assert tk.hint("K1").count("hint ") == 1
    assert tk.hint("K1").count("hint ") == 2
    assert tk.hint("K1").count("hint ") == 3
    assert tk.hint("K1").count("hint ") == 3
