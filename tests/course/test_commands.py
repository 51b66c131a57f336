"""tklearn check, reset, progress and release; and how exercises are made."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from course_kit import ANSWERS, ROOT

import tklearn as tk
from tklearn import cli
from tklearn.course import attempts, release
from tklearn.course.items import ITEMS


def test_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", "K1", str(ANSWERS / "K1" / "right_rotated.py")]) == 0
    assert "K1: passed, 4 of 4 points" in capsys.readouterr().out
    assert cli.main(["check", "K1", str(ANSWERS / "K1" / "wrong_padding.py")]) == 1
    assert "padding works" in capsys.readouterr().out
    assert cli.main(["check", "K1"]) == 1, "the exercise as it is handed out"
    assert cli.main(["check", "K9", "x.ipynb"]) == 2
    assert cli.main(["check", "K1", "nothing.ipynb"]) == 2
    with pytest.raises(SystemExit):
        cli.main(["check", "K1", "x.ipynb", "--fast"])


def test_check_counts_as_the_page_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """First answers are kept, the attempt is written down and said, and progress agrees."""
    right = ANSWERS / "P3" / "right_1.py"
    tk.predict("P3", a=32, b=4, c=32, d=1, e=1, f=4)
    assert cli.main(["check", "P3", str(right)]) == 0
    said = capsys.readouterr().out
    assert "P3: passed, 2.75 of 3 points" in said
    assert str(attempts.folder() / attempts.NAME) in said
    assert cli.main(["progress"]) == 0
    assert re.search(r"P3 .* passed +2\.75 of 3 +1 ", capsys.readouterr().out)
    kept = attempts.record("P3")
    assert (kept.first["a"], kept.latest["a"], kept.attempts) == (32, 1, 1)
    assert tk.check("P3").score == 2.75, "the page says the same"
    assert cli.main(["check", "K1", str(ANSWERS / "K1" / "right_rotated.py")]) == 0
    assert (attempts.record("K1").score, attempts.record("K1").attempts) == (4, 1)
    odd = tmp_path / "odd.py"
    odd.write_text('import tklearn as tk\ntk.predict("P3", a="many")\n')
    assert cli.main(["check", "P3", str(odd)]) == 1
    assert "a is a number" in capsys.readouterr().out


def test_predictions_in_a_file_are_first_answers_when_nothing_was_said() -> None:
    assert cli.main(["check", "P3", str(ANSWERS / "P3" / "right_1.py")]) == 0
    assert attempts.record("P3").first == {"a": 1, "b": 4, "c": 32, "d": 1, "e": 1, "f": 4}
    assert attempts.record("P3").score == 3


def test_hint(capsys: pytest.CaptureFixture[str]) -> None:
    for n in (1, 2, 3, 3):
        assert cli.main(["hint", "K1"]) == 0
        said = capsys.readouterr().out
        assert f"hint {n} of 3: " in said
        assert said.count("\nhint ") + 1 == n
    assert attempts.record("K1").hints == 3
    assert cli.main(["hint", "K9"]) == 2


def test_reset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = ITEMS["K1"].file
    for folder in ("exercises", "solutions"):
        (tmp_path / folder).mkdir()
        shutil.copy(ROOT / folder / name, tmp_path / folder / name)
    monkeypatch.chdir(tmp_path / "exercises")
    mine = tmp_path / "exercises" / name
    handed_out = mine.read_text(encoding="utf-8")
    for n in range(3):
        mine.write_text(f"my work {n}", encoding="utf-8")
        assert cli.main(["reset", "K1"]) == 0
        assert mine.read_text(encoding="utf-8") == handed_out
    kept = sorted(p.read_text(encoding="utf-8") for p in mine.parent.glob("*.attempt-*.ipynb"))
    assert kept == ["my work 0", "my work 1", "my work 2"]
    assert ".attempt-" in capsys.readouterr().out
    # in a bundle there are no solutions
    original = tmp_path / ".tklearn" / "exercises"
    original.mkdir(parents=True)
    (original / name).write_text(handed_out, encoding="utf-8")
    (tmp_path / "solutions" / name).unlink()
    mine.unlink()
    assert cli.main(["reset", "K1"]) == 0
    assert mine.read_text(encoding="utf-8") == handed_out
    (original / name).unlink()
    assert cli.main(["reset", "K1"]) == 2
    assert mine.read_text(encoding="utf-8") == handed_out


def test_progress(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["progress"]) == 0
    assert "0 of" in capsys.readouterr().out


def test_release_exercises(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "solutions", tmp_path / "solutions")
    made = release.make_exercises(tmp_path)
    assert len(made) == len(ITEMS)
    for name in made:
        assert (tmp_path / "exercises" / name).read_bytes() == (
            ROOT / "exercises" / name
        ).read_bytes()
    assert release.make_exercises(tmp_path) == []
    (tmp_path / "solutions" / "bad.ipynb").write_text("{}")
    with pytest.raises(release.BadSolution, match=r"bad\.ipynb"):
        release.make_exercises(tmp_path)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("a\n### BEGIN SOLUTION\nb\n### END SOLUTION\nc", "a\nc"),
        ("def f():\n    ### BEGIN SOLUTION\n    b\n    ### END SOLUTION", "def f():"),
        ("a\n### BEGIN HIDDEN TESTS\nassert b\n### END HIDDEN TESTS", "a"),
        ("a\n\n", "a"),
    ],
)
def test_stripping(text: str, want: str) -> None:
    assert release.stripped(text) == want


@pytest.mark.parametrize(
    "text",
    [
        "### BEGIN SOLUTION",
        "### END SOLUTION",
        "### BEGIN SOLUTION\n### BEGIN SOLUTION\n### END SOLUTION",
        "### BEGIN SOLUTION\n### END HIDDEN TESTS",
    ],
)
def test_odd_markers_are_refused(text: str) -> None:
    with pytest.raises(release.BadSolution):
        release.stripped(text)


def test_outputs_do_not_reach_the_learner() -> None:
    cell = {"cell_type": "code", "source": ["1"], "outputs": [{"x": 1}], "execution_count": 3}
    made = release.exercise({"cells": [cell]})
    assert made["cells"][0]["outputs"] == []
    assert made["cells"][0]["execution_count"] is None
    assert cell["outputs"], "the solution is left as it is"


def test_every_solution_belongs_to_an_exercise() -> None:
    files = {i.file for i in ITEMS.values()}
    for folder in ("solutions", "exercises"):
        assert {p.name for p in (ROOT / folder).glob("*.ipynb")} == files
    for path in (ROOT / "exercises").glob("*.ipynb"):
        book = json.loads(path.read_text(encoding="utf-8"))
        item = next(i for i in ITEMS.values() if i.file == path.name)
        assert item.title.lower() in "".join(book["cells"][0]["source"]).lower()
