"""The journal is a file of the learner's own: broken or edited, it stops nothing."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from course_kit import ANSWERS, ROOT

import tklearn as tk
from tklearn import cli
from tklearn.course import attempts, result, submit
from tklearn.course.items import ITEMS
from tklearn.course.progress import Progress

GOOD: list[dict[str, Any]] = [
    {"time": 1.0, "item": "P3", "what": "predict", "said": {"a": 32, "b": 4}},
    {"time": 2.0, "item": "K1", "what": "hint", "n": 1},
    {"time": 3.0, "item": "K1", "what": "check", "passed": True, "score": 4.0, "points": 4},
    {"time": 4.0, "item": "quiz-before", "what": "predict", "said": {"bytes": 128}},
]
ODD: tuple[Any, ...] = (
    None, True, -1, 10**400, 1e308, float("nan"), float("inf"), "", "\ud800", "x" * 100_000, [],
    [[1]], {}, {"a": None}, {"a": []}, {"a": float("nan")}, {"a": "x" * 999}, {"zz": 1},
)  # fmt: skip


def lines(*events: Any) -> bytes:
    return b"".join(json.dumps(e).encode() + b"\n" for e in events)


def edited() -> bytes:
    """Each fact of each event in turn is something else."""
    out = []
    for e in GOOD:
        out += [{**e, n: v} for n in (*e, "score", "said", "n") for v in ODD]
        out += [{k: v for k, v in e.items() if k != n} for n in e]
    return lines(*out)


def garbage() -> bytes:
    return random.Random(3).randbytes(200_000)


BROKEN: dict[str, bytes] = {
    "empty": b"",
    "truncated": lines(*GOOD)[:-20],
    "only the end of a line": lines(*GOOD)[20:],
    "no lines": b"\x00" * 5000,
    "garbage": garbage(),
    "not UTF-8": b"\xff\xfe" + lines(*GOOD),
    "other values": lines(1, "x", None, [], {}, [GOOD], {"time": 1}),
    "edited": edited(),
    "deep": b"[" * 100_000 + b"\n" + b'{"time":' * 50_000 + b"\n",
    "one huge line": b'{"time": 1, "item": "K1", "what": "' + b"x" * 5_000_000 + b'"}\n',
    "huge numbers": b'{"time": ' + b"9" * 5000 + b', "item": "K1", "what": "check"}\n',
    "from the future": lines(*({**e, "time": 9e12} for e in GOOD), *GOOD),
    "backwards": lines(*reversed(GOOD)),
    "Windows line ends": lines(*GOOD).replace(b"\n", b"\r\n"),
    "a million points": lines({**GOOD[2], "score": 1_000_000}),
}


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "exercises").mkdir()
    for item in ("K1", "P3"):
        shutil.copy(ROOT / "solutions" / ITEMS[item].file, tmp_path / "exercises")
    monkeypatch.delenv("TKLEARN_COURSE_DIR")
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".tklearn").mkdir()
    return tmp_path


def everything(course: Path) -> None:
    """All that reads the journal."""
    shown = Progress.now()
    assert len(shown.rows) == len(ITEMS)
    assert "of" in str(shown) + shown._repr_html_()
    assert cli.main(["progress"]) == 0
    assert "<h1>" in result.page()
    assert "a:" in str(tk.predict("P3"))
    assert tk.predict("P3")._repr_html_()
    assert tk.hint("K1").startswith("hint 1 of 3")
    assert tk.check("P3").points == 3
    assert tk.check("quiz-before").points == 0
    assert cli.main(["check", "K1", str(ANSWERS / "K1" / "right_rotated.py")]) == 0
    assert attempts.record("K1").passed
    made = submit.submit()
    said = submit.opened(made.path.read_bytes(), made.path.name)
    assert set(said["exercises"]) >= {"K1"}
    assert 0 <= said["records"]["K1"]["hints"] <= 3


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_journal_stops_nothing(name: str, course: Path) -> None:
    (course / ".tklearn" / attempts.NAME).write_bytes(BROKEN[name])
    everything(course)
    for r in attempts.records().values():
        assert 0 <= r.score <= max(r.points, 0) or r.score == 0
        assert r.seconds >= 0
        assert all(attempts.sane(v) for v in (*r.first.values(), *r.latest.values()))


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_journal_in_a_submission_stops_nothing(name: str) -> None:
    """As it is handed in by hand; what grading reads of it is plain and bounded."""
    for r in submit._records(BROKEN[name]).values():
        assert type(r["attempts"]) is int
        assert 0 <= r["hints"] <= 3
        assert all(submit.sane(v) for v in (*r["first"].values(), *r["latest"].values()))


def test_what_is_whole_is_kept(course: Path) -> None:
    """Between broken lines the good ones count."""
    parts = [garbage(), lines(GOOD[0]), b'{"time": 1, "it\n', lines(*GOOD[1:]), edited()]
    (course / ".tklearn" / attempts.NAME).write_bytes(b"\n".join(parts))
    kept = attempts.records()
    assert kept["P3"].first["a"] == 32
    assert kept["quiz-before"].first["bytes"] == 128
    assert (kept["K1"].passed, kept["K1"].score) == (True, 4.0)


def test_a_journal_that_is_larger_than_any(course: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest part is read."""
    monkeypatch.setattr(attempts, "LARGEST", 2_000)
    old = lines(*({**GOOD[1], "n": 3} for _ in range(500)))
    (course / ".tklearn" / attempts.NAME).write_bytes(old + lines(GOOD[2]))
    assert attempts.record("K1").passed
    assert len(list(attempts.events())) < 60


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "7", '{"seed": null}', '{"seed": -5}', '{"seed": "x"}', '{"seed": Infinity}',
     '{"seed": 1e400}', '{"seed": [1]}', '{"seed": 12345678901234567890123}', "[" * 100_000],
    ids=lambda t: t[:14] or "empty",
)  # fmt: skip
def test_a_broken_learner_number(text: str, course: Path) -> None:
    (course / ".tklearn" / "learner.json").write_text(text, encoding="utf-8")
    assert "a:" in str(tk.predict("P3", a=1))
    assert tk.check("P3").points == 3


@pytest.mark.parametrize("make", [Path.mkdir, lambda p: p.symlink_to(p), lambda p: p.touch(0)])
def test_no_file_at_all(make: Callable[[Path], None], course: Path) -> None:
    """A folder of its name, a link to itself, a file that may not be read."""
    make(course / ".tklearn" / attempts.NAME)
    assert len(Progress.now().rows) == len(ITEMS)
    assert not attempts.record("K1").passed
