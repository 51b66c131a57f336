"""What the last two notebooks show: predictions inside lessons, the quiz, pictures, the table."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from course_kit import ROOT

import tklearn as tk
from tklearn import threadIdx
from tklearn.course import attempts, engine, flash, mine
from tklearn.course.extract import Answer
from tklearn.course.items import ITEMS, LESSONS, online

OURS = ("N6", "N6b", "N7", "quiz-before", "quiz-after")


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("seed", [0, 7])
def test_predictions_of_lessons(name: str, seed: int) -> None:
    item = LESSONS[name]
    params = engine.parameters(item, seed)
    right = {q.name: q.truth(**params) for q in item.questions}
    answer = Answer(name, first=right, latest=right, seed=seed)
    assert engine.judge_predictions(item, answer).passed
    for q in item.questions:
        assert q.why
        assert not q.choices or right[q.name] in q.choices
        for says, f in q.wrong.items():
            said = f(**params)
            if said == right[q.name]:
                continue
            latest = {**right, q.name: said}
            verdict = engine.judge_predictions(
                item, Answer(name, latest=latest, first=latest, seed=seed)
            )
            assert not verdict.passed
            assert says in verdict.message or "is not it" in verdict.message


@pytest.mark.parametrize("factor", ["2", "-2", "0.5"])
def test_any_other_factor_is_told_the_rule(factor: str) -> None:
    item = LESSONS["N6"]
    right = {q.name: q.truth(**engine.parameters(item, 1)) for q in item.questions}
    said = {**right, "keep1": factor}
    verdict = engine.judge_predictions(item, Answer("N6", first=said, latest=said, seed=1))
    assert f"keep1: {factor} is not it" in verdict.message
    assert "exp2(old top - new top)" in verdict.message


def test_the_quiz_is_the_same_before_and_after() -> None:
    before, after = LESSONS["quiz-before"], LESSONS["quiz-after"]
    assert before.questions is after.questions
    assert not ITEMS.keys() & LESSONS.keys()


def test_the_quiz_side_by_side() -> None:
    assert "both columns" in repr(mine.Quiz())
    attempts.add("quiz-before", "predict", said={"bytes": "128", "passed": "right", "written": "4"})
    attempts.add("quiz-after", "predict", said={"bytes": "1024", "passed": "wrong", "written": "2"})
    rows = [r.split() for r in repr(mine.Quiz()).splitlines()[1:]]
    assert rows == [
        ["bytes", "128", "1024", "1024"],
        ["passed", "right", "wrong", "wrong"],
        ["written", "4", "2", "2"],
    ]


def test_the_algorithm_by_tiles_is_attention() -> None:
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal((n, online.D)) for n in (5, 150, 150))
    found = online.tiles(q, k, v, online.SCALE)
    assert np.abs(found - online.plain(q, k, v, online.SCALE)[1]).max() < 2e-3  # weights in f16


def test_pictures_of_attention() -> None:
    s = flash.scores()
    assert s.shape == (4, 12)
    top = np.maximum.accumulate(s.reshape(4, 3, 4).max(2), axis=1)
    assert "query 0" in flash.table(s).alt
    assert f"query 1: {', '.join(f'{x:g}' for x in top[1])}" in flash.running(s, top).alt
    tiles = np.zeros((2, 16, 64))
    keep = np.array([[0.0] * 16, [0.5] * 16])
    assert "0.00, 0.50" in flash.steps(tiles, tiles, tiles, keep, "x").alt
    assert "1.0e-03" in flash.errors({"a": [1e-3, 1e-2]}, 64, {"b": 1e-4}).alt
    assert flash.table(s).img().startswith("<img alt=")


def test_what_a_watched_run_shows_is_attention_and_its_fault() -> None:
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((n, 64)).astype(np.float16) for n in (16, 150, 150))
    right = online.plain(q, k, v, online.SCALE)[1]
    out, s, p, o, keep = flash.watch(q, k, v, online.SCALE)
    assert np.abs(out - right).max() < 2e-3
    assert np.array_equal(o[-1], out)
    faulty = flash.watch(q, k, v, online.SCALE, faulty=True)
    assert np.array_equal(faulty[3][0], o[0]), "one tile is right"
    assert np.abs(faulty[0] - right).max() > 0.05
    words = flash.steps(s, p, o, keep, "x").alt
    ups = [int((x < 1).sum()) for x in keep[1:]]
    assert all(f"{n} of 16 queries meet a larger score" in words for n in ups)
    assert f"{64 * 3 - 150} columns are hidden" in words
    assert f"the largest weight is 1 in {int((p[0].max(1) == 1).sum())} queries" in words


@pytest.fixture
def solved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A course whose exercises are the solutions."""
    (tmp_path / "exercises").mkdir()
    for item in ("M1", "K1", "F1", "K4", "C1"):
        file = ITEMS[item].file
        shutil.copy(ROOT / "solutions" / file, tmp_path / "exercises" / file)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_mine_side_by_side(solved: Path) -> None:
    attempts.add("K4", "check", passed=True, score=6.0, points=6)
    found, lacking = mine.kernels()
    assert [x.state for x in found][3] == "K4, solved"
    assert len(found) == 5
    assert not lacking
    table = mine.side_by_side(found)
    rows = {r.name: r for r in table.rows}
    assert rows["copy"].moved == rows["copy"].least
    assert rows["copy"].bound == "memory"
    assert rows["attend"].tensor == 4 * 256 * 256 * 64
    assert rows["attend"].memory == pytest.approx(rows["attend"].least / 4.8e12)
    for text in (str(table), table._repr_html_(), table.figure().alt):
        assert all(name in text for name in rows)


def test_mine_names_what_is_not_there(solved: Path) -> None:
    shutil.copy(ROOT / "exercises" / ITEMS["C1"].file, solved / "exercises")
    (solved / "exercises" / ITEMS["K1"].file).write_text("no notebook", encoding="utf-8")
    shutil.copy(ROOT / "exercises" / ITEMS["F1"].file, solved / "exercises")
    found, lacking = mine.kernels()
    table = mine.side_by_side(found, lacking)
    said = "\n".join(table.notes())
    assert "C1: not written yet" in said
    assert "K1: " in said
    assert "matmul (F1, as it stands) has a fault: TK50" in said
    assert {r.name for r in table.rows} == {"copy", "attend"}


def test_mine_without_a_course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found, lacking = mine.kernels()
    assert not found
    assert "no folder exercises" in lacking[0]


@tk.kernel(threads=32)
def double(x: tk.gl_fl, y: tk.gl_fl):
    y[threadIdx.x] = x[threadIdx.x] * 2.0


def test_a_kernel_of_the_page() -> None:
    x = np.ones(32, np.float32)
    table = mine.side_by_side([mine.Launch("double", double, 1, (x, x * 0))])
    assert table.rows[0].state == "this page"
    assert (table.rows[0].least, table.rows[0].moved) == (256, 256)
    note = "Not measured: double (this page): no GPU here, and no recording"
    assert (table.rows[0].measured is None) == any(n.startswith(note) for n in table.notes())
    assert "bound by, with bytes at least" in str(table)


@pytest.mark.parametrize(
    "path", sorted((ROOT / "notebooks").glob("0*.ipynb")), ids=lambda p: p.stem
)
def test_links_of_a_lesson_lead_to_files(path: Path) -> None:
    """JupyterLab opens files, and folders not."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    text = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    links = [x for x in re.findall(r"\]\(([^)\s]+)\)", text) if not x.startswith("https:")]
    assert links
    assert [x for x in links if not (path.parent / x.split("#")[0]).is_file()] == []


def test_the_capstone_publishes_its_scale() -> None:
    text = (ROOT / "exercises" / ITEMS["C1"].file).read_text(encoding="utf-8")
    swiglu, rmsnorm, softmax, window = (c.work[0].full for c in ITEMS["C1"].choices)
    assert (softmax, rmsnorm) == (swiglu, 2.0)
    assert f"up to {swiglu:g} times" in text
    assert f"instructions up to {window:g} times" in text
