"""What is kept of attempts: in one file, whole lines, from several notebooks at once."""

from __future__ import annotations

import json
import multiprocessing
import os
from pathlib import Path

import pytest

import tklearn as tk
from tklearn.course import attempts
from tklearn.course.progress import Progress


def test_the_first_prediction_counts_and_the_newest_is_checked() -> None:
    assert "word i" in str(tk.predict("P3"))
    tk.predict("P3", a=32, b=4, c=32, d=1, e=1)
    verdict = tk.check("P3")
    assert "no prediction for f" in verdict.message
    tk.predict("P3", f=4)
    assert not tk.check("P3")
    tk.predict("P3", a=1)
    verdict = tk.check("P3")
    assert verdict.passed, verdict
    assert verdict.score == pytest.approx(3 * (0.5 + 0.5 * 5 / 6), abs=0.01)
    kept = attempts.record("P3")
    assert (kept.first["a"], kept.latest["a"], kept.attempts, kept.passed) == (32, 1, 3, True)
    shown = tk.predict("P3")
    assert "1 (first: 32)" in str(shown)
    assert "<table>" in shown._repr_html_()


@pytest.mark.parametrize(
    ("said", "words"), [({"g": 1}, "no question 'g'"), ({"a": "many"}, "is a number"),
                        ({"a": float("nan")}, "is a number"), ({"a": [1]}, "is a number")]
)  # fmt: skip
def test_predictions_that_are_none(said: dict, words: str) -> None:
    with pytest.raises(tk.TkError, match=words):
        tk.predict("P3", **said)
    assert not list(attempts.events())


def test_predict_is_for_questions() -> None:
    with pytest.raises(tk.TkError, match="has nothing to predict"):
        tk.predict("K1", a=1)


def test_a_learner_has_numbers_of_their_own() -> None:
    texts = set()
    for seed in range(12):
        attempts.folder().mkdir(exist_ok=True)
        (attempts.folder() / "learner.json").write_text(json.dumps({"seed": seed}))
        texts.add(str(tk.predict("P3")))
    assert len(texts) > 4


def _many(folder: str, who: int) -> None:
    os.environ["TKLEARN_COURSE_DIR"] = folder
    for n in range(100):
        attempts.add("K1", "check", who=who, n=n, text="x" * 3000)


def test_several_notebooks_at_once(tmp_path: Path) -> None:
    processes = [multiprocessing.Process(target=_many, args=(str(tmp_path), w)) for w in range(4)]
    for p in processes:
        p.start()
    for p in processes:
        p.join()
    seen = {(e["who"], e["n"]) for e in attempts.events(tmp_path / attempts.NAME)}
    assert seen == {(w, n) for w in range(4) for n in range(100)}


def test_a_crash_in_the_middle_of_a_line_loses_that_line_only() -> None:
    attempts.add("K1", "hint", n=1)
    path = attempts.folder() / attempts.NAME
    with path.open("ab") as f:
        f.write(b'{"time": 1, "item": "K1", "what": "check", "pas')
    attempts.add("K1", "hint", n=2)
    with path.open("ab") as f:
        f.write(b"\xff\xfe\x00\n[]\n{}\n")
    attempts.add("K1", "check", passed=True, score=4.0, points=4)
    kept = attempts.record("K1")
    assert (kept.hints, kept.attempts, kept.passed, kept.score) == (2, 1, True, 4.0)


def test_where_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TKLEARN_COURSE_DIR")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    course = tmp_path / "course"
    for name in ("exercises", "notebooks"):
        (course / name).mkdir(parents=True)
        monkeypatch.chdir(course / name)
        assert attempts.folder() == course / ".tklearn", "one file for all folders of a course"
    monkeypatch.chdir(tmp_path)
    assert tmp_path / "home" in attempts.folder().parents


def test_nothing_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full or read-only disk must not take the check away."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("TKLEARN_COURSE_DIR", str(blocked / "below"))
    with pytest.warns(UserWarning, match="not kept"):
        assert tk.hint("K1").startswith("hint 1 of 3")


def test_progress() -> None:
    tk.hint("K1")
    attempts.add("K1", "check", passed=False, score=0.0, points=4)
    attempts.add("K1", "check", passed=True, score=4.0, points=4)
    attempts.add("K1", "check", passed=False, score=0.0, points=4)
    shown = Progress.now()
    row = next(r for r in shown.rows if r[0] == "K1")
    assert row[2:] == ("passed", "4 of 4", "3", "1")
    assert shown.said.startswith("core path: 1 of 17 passed, 4 of 65 points; if ahead: 0 of 3")
    assert "<table>" in shown._repr_html_()
    assert "K1" in str(shown)
