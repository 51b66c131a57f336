"""Sandbox, marking, journal, tables and pages: the parts of grading, each by itself."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from class_kit import cells, computing, journal, put, text, zipped
from course_kit import ANSWERS, ROOT, answers, static

from tklearn.course import engine, feedback, grade, inside, marking, sandbox
from tklearn.course.feedback import Learner
from tklearn.course.item import Case, KernelItem, OneOf, Order, Out, Predict
from tklearn.course.items import ITEMS
from tklearn.course.plain import pack
from tklearn.course.sandbox import Limits, Sandbox, Stopped

SECRET = "a secret"


# -------------------------------------------------------------------------------------- sandbox
@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    with Sandbox(Limits(cpu=2, wall=60.0, scratch=1 << 20)) as b:
        yield b


def said(box: Sandbox, code: str) -> str:
    """What Python says inside; what it raises, as text."""
    lines = "\n".join("    " + x for x in code.split("\n"))
    whole = f"import os, socket\ntry:\n{lines}\nexcept Exception as e:\n    answer = repr(e)"
    return box.ask({"do": "echo", "code": whole})["said"]


@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("answer = os.fork()", "temporarily unavailable"),
        ("import threading\nthreading.Thread(target=print).start()", "can't start new thread"),
        ("import subprocess\nsubprocess.run('id')", "temporarily unavailable"),
        ("socket.create_connection(('192.0.2.1', 80), 3)", "unreachable"),
        ("socket.getaddrinfo('example.org', 80)", "gaierror"),
        ("open('/tmp/x', 'wb').write(bytes(2 << 20))", "File too large"),
        ("for i in range(9):\n    open(f'/tmp/{i}', 'wb').write(bytes(900_000))", "No space left"),
        ("open('/usr/x', 'w')", "denied|Read-only"),
        ("open('/etc/passwd')", "No such file"),
        (f"answer = os.listdir({str(ROOT / 'solutions')!r})", "No such file"),
        (f"open({str(ROOT / 'tklearn' / 'x.py')!r}, 'w')", "denied|Read-only"),
        ("bytearray(1 << 40)", "MemoryError"),
        ("f = [open('/dev/null') for i in range(100)]", "Too many open files"),
        ("answer = sorted(set(os.environ) - {'LC_CTYPE', 'PWD'})[:3]", "HOME|LANG|MPL"),
        ("answer = os.listdir('/proc')", "No such file"),
        ("os.kill(os.getppid() + 1000, 9)", "No such process"),
        ("os.setuid(0)", "not permitted|Invalid"),
    ],
)
def test_what_a_sandbox_forbids(box: Sandbox, code: str, words: str) -> None:
    assert re.search(words, said(box, code)), said(box, code)


@pytest.mark.sandbox
def test_what_a_sandbox_survives(box: Sandbox) -> None:
    for code, words in (
        ("while True: pass", "2 s of processor time"),
        ("os._exit(0)", "without an answer"),
        ("os.kill(os.getppid(), 9)", "ended"),
        ("os.kill(-1, 9)", "ended"),
        ("import ctypes; ctypes.string_at(0)", "without an answer"),
        ("for f in range(3, 60):\n    try: os.write(f, b'x\\n')\n    except OSError: pass", "read"),
    ):  # fmt: skip
        with pytest.raises(Stopped, match=words):
            box.ask({"do": "echo", "code": f"import os\n{code}"})
        assert said(box, "answer = 1 + 1") == "2"
    with pytest.raises(Stopped):
        box.ask({"do": "nothing"})


@pytest.mark.skipif(os.name != "posix", reason="rlimits are POSIX's")
def test_without_bubblewrap_the_limits_of_the_system_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "problem", lambda: "bwrap is not installed")
    assert "could read your files" in sandbox.weaker()
    assert "bwrap" not in " ".join(sandbox.command(Limits()))
    with Sandbox(Limits(cpu=1, scratch=1 << 20)) as b:
        assert "MemoryError" in said(b, "bytearray(1 << 40)")
        large = "import tempfile\ntempfile.TemporaryFile().write(bytes(3 << 20))"
        assert "File too large" in said(b, large)
        with pytest.raises(Stopped, match="processor time"):
            b.ask({"do": "echo", "code": "while True: pass"})
        assert said(b, "answer = 2") == "2"


def test_a_request_that_takes_too_long() -> None:
    with Sandbox(Limits(wall=0.05)) as b, pytest.raises(Stopped, match="stopped after"):
        b.ask({"do": "echo", "code": "import time; time.sleep(60)"})


def every_kernel() -> list[KernelItem]:
    out: list[KernelItem] = []
    for i in ITEMS.values():
        inner = i.choices if isinstance(i, OneOf) else (i,)
        out += [k for k in inner if isinstance(k, KernelItem)]
    return out


@pytest.mark.parametrize("item", every_kernel(), ids=lambda i: f"{i.id}-{i.kernels[0]}")
def test_every_case_passes_as_plain_data(item: KernelItem) -> None:
    for case in engine.plan(item, 3, hidden=True):
        back = inside.unpacked_case(json.loads(json.dumps(inside.packed_case(case))))
        assert (back.says, back.grid, back.kernel) == (case.says, case.grid, case.kernel)
        assert repr(back.consts) == repr(case.consts)
        assert list(back.args) == list(case.args)
        for name, a in case.args.items():
            b = back.args[name]
            if isinstance(a, Out):
                assert (tuple(b.shape), np.dtype(b.dtype)) == (tuple(a.shape), np.dtype(a.dtype))
                a, b = a.start, b.start
            if isinstance(a, np.ndarray):
                assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
            else:
                assert a == b
    assert [pack(r) for r in item.runs]


# -------------------------------------------------------------------------------------- marking
@pytest.fixture(scope="module")
def grader() -> Iterator[marking.Grader]:
    g = marking.Grader(marking.Settings(7, SECRET))
    yield g
    g.close()


def test_every_exercise_is_graded(grader: marking.Grader) -> None:
    """One submission with a right answer to each, and one with a wrong one."""
    graded = [i for i in marking.graded() if answers(i, "right") and answers(i, "wrong")]
    seed = marking.learner_seed(SECRET, "ann")
    for kind in ("right", "wrong"):
        files = cells(**{i.id: _simple(i, kind) for i in graded})
        result = grader.grade(zipped(files, "ann", seed), f"{kind}.zip")
        assert result["problem"] == ""
        assert result["verified"]
        for i in graded:
            got = result["items"][i.id]
            if not isinstance(i, Predict):  # whose questions vary
                assert got["passed"] is (kind == "right"), (i.id, got)
                assert (got["score"] == i.points) is (kind == "right")
            assert "grader failed" not in got["message"]


def _simple(item: Any, kind: str) -> str:
    """A stored answer, a quick one."""
    slow = ("endless", "huge")
    stems = [p.stem for p in answers(item, kind) if not any(s in p.stem for s in slow)]
    return stems[0]


def test_predictions_are_judged_by_the_learners_own_questions(grader: marking.Grader) -> None:
    p3 = ITEMS["P3"]
    assert isinstance(p3, Predict)
    for name in ("ann", "bob", "zoë"):
        seed = marking.learner_seed(SECRET, name)
        params = engine.parameters(p3, seed)
        truth = {q.name: q.truth(**params) for q in p3.questions}
        events = journal(
            {"item": "P3", "what": "predict", "said": {**truth, "a": 99}},
            {"item": "P3", "what": "predict", "said": truth},
        )
        result = grader.grade(zipped({"attempts.jsonl": events}, name, seed), "x.zip")
        assert result["items"]["P3"]["passed"], result["items"]["P3"]
        assert result["items"]["P3"]["score"] == 2.75, "the first answers give the points"
        assert result["said"]["P3"]["a"] == 99


def test_predictions_that_were_never_run_have_no_first_answer(grader: marking.Grader) -> None:
    typed = cells(P3="right_1")
    got = grader.grade(zipped(typed), "x.zip")["items"]["P3"]
    assert (got["passed"], got["score"]) == (True, 1.5)
    assert "no first answer was recorded" in got["message"]
    bare = (ANSWERS / "P3" / "right_1.py").read_bytes()
    assert grader.grade(bare, "P3.py")["items"]["P3"]["score"] == 1.5
    some = journal({"item": "P3", "what": "predict", "said": {"a": 1, "b": 4, "c": 7}})
    got = grader.grade(zipped({**typed, "attempts.jsonl": some}), "x.zip")["items"]["P3"]
    assert (got["passed"], got["score"]) == (False, 2.0), "half, and two of six of the other half"
    assert "no first answer of d, e, f was recorded" in got["message"]


@pytest.mark.parametrize(
    "said",
    [
        {"a": 10**300}, {"a": -(10**400)}, {"a": "x" * 10_000}, {"a": None}, {"a": [1]},
        {"a": True}, {"a": 1e999}, {"zz": 1}, {"a": "nan"}, {"a": "inf"},
    ],
)  # fmt: skip
def test_odd_predictions(grader: marking.Grader, said: dict[str, Any]) -> None:
    whole = {**dict.fromkeys("abcdef", 1), **said}
    events = journal({"item": "P3", "what": "predict", "said": whole})
    result = grader.grade(zipped({"attempts.jsonl": events}), "x.zip")
    assert not result["items"]["P3"]["passed"]
    assert "grader failed" not in result["items"]["P3"]["message"]


def test_who_handed_in(grader: marking.Grader) -> None:
    files = cells(M1="right_range")
    own = marking.learner_seed(SECRET, "ann")
    good = grader.grade(zipped(files, "ann", own), "a.zip")
    assert (good["learner"], good["verified"], good["notes"]) == ("ann", True, [])
    stolen = grader.grade(zipped(files, "bob", own), "b.zip")
    assert (stolen["learner"], stolen["verified"]) == ("", False)
    assert "claims to be 'bob'" in stolen["notes"][0]
    assert stolen["items"]["M1"]["passed"], "the work is graded all the same"


def test_constants_that_only_running_tells(grader: marking.Grader) -> None:
    good = computing("PER_BLOCK = sum(len(x) for x in ['a' * 1024])")
    assert grader.grade(zipped(cells(M1=good)), "x.zip")["items"]["M1"]["score"] == 3.0
    bad = computing("PER_BLOCK = open")
    result = grader.grade(zipped(cells(M1=bad)), "x.zip")["items"]["M1"]
    assert "had no plain value" in result["message"]


def test_hidden_tests_are_not_printed(grader: marking.Grader) -> None:
    """Answers that are right on the page's sizes only."""
    item = ITEMS["M1"]
    assert isinstance(item, KernelItem)
    hidden = engine.plan(item, 7, hidden=True)[len(item.sizes) :]
    good = text("M1", "right_range")
    for line, words in (
        ("        y[i] = x[i] if n != 7 else 0.0", "wrong on a hidden test"),
        (
            "        y[i] = x[i]\n    if n == 7:\n        y[n * n] = 1.0",
            "TK504: index out of bounds",
        ),
        ("        y[i] = x[i]\n    while n == 7:\n        n = n + 0", "TK509"),
    ):
        answer = good.replace("        y[i] = x[i]", line)
        assert answer != good
        got = grader.grade(zipped(cells(M1=answer)), "x.zip")["items"]["M1"]
        assert not got["passed"], (line, got)
        assert got["score"] == 0
        assert words in got["message"], got
        for case in hidden:
            assert case.says not in got["message"]
        assert "y[49]" not in got["message"]
        assert "at a size that is not shown: try" in got["message"]
        assert not got["png"]


FORGED: list[tuple[str, Any]] = [
    ("no list", {"outcomes": 7}),
    ("nothing", {}),
    ("empty", {"outcomes": [{}]}),
    ("stopped", {"stopped": ["x"]}),
]


@pytest.mark.parametrize("what", ["scalar", "dtype", "name", "count", "total", "changed", *FORGED])
def test_forged_outcomes_are_refused(what: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a learner's code had taken over the sandbox."""
    item = ITEMS["M1"]
    assert isinstance(item, KernelItem)
    g = marking.Grader(marking.Settings(7))
    cases, _ = g._plan(item, True)
    right = [
        engine.Outcome(({n: c.args["x"].copy() for n, a in c.args.items() if isinstance(a, Out)},),
                       {"gld_sectors": 1}, warps=8)
        for c in cases
    ]  # fmt: skip
    if isinstance(what, tuple):
        got = what[1]
    else:
        name = next(n for n, a in cases[0].args.items() if isinstance(a, Out))
        first = right[0].outputs[0][name]
        change: dict[str, Any] = {
            "scalar": {"outputs": ({name: np.float32(np.nan).reshape(())},)},
            "dtype": {"outputs": ({name: first.astype(np.float64)},)},
            "name": {"outputs": ({"other": first},)},
            "count": {"outputs": ({name: first}, {name: first})},
            "total": {"total": {"gld_sectors": -(10**9)}},
            "changed": {"changed": (7,)},
        }[what]
        right[0] = replace(right[0], **change)
        got = {"outcomes": [o.json() for o in right]}
    given = static(item, ANSWERS / "M1" / "right_range.py")
    verdict = g._judged(item, given, got, True)
    assert not verdict.passed
    assert verdict.score == 0
    assert "not judged" in verdict.message


def test_a_fault_of_ours_costs_one_exercise(
    grader: marking.Grader, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(engine, "judge_predictions", broken)
    result = grader.grade(zipped(cells(M1="right_range", P3="right_1")), "x.zip")
    assert "your instructor must look" in result["items"]["P3"]["message"]
    assert result["items"]["M1"]["passed"]


# --------------------------------------------------------------------------- journal and tables
def result(name: str, learner: str = "", points: float = 3.0, **more: Any) -> dict[str, Any]:
    item = {
        "passed": points == 3, "score": points, "points": 3, "message": "m", "code": "",
        "done": True, "optional": False, "attempts": 1, "hints": 0, "png": "", "alt": "",
    }  # fmt: skip
    return {
        "name": name, "digest": f"d{name}", "learner": learner, "verified": True, "made": 1.0,
        "notes": [], "problem": "", "items": {"P3": item}, "said": {}, **more,
    }  # fmt: skip


def test_the_journal_survives_a_crash_at_any_byte(tmp_path: Path) -> None:
    settings = marking.Settings(1)
    whole = grade.Ledger(tmp_path, settings)
    for n in "abc":
        whole.add(result(n))
    raw = (tmp_path / grade.JOURNAL).read_bytes()
    for cut in range(0, len(raw), 7):
        (tmp_path / grade.JOURNAL).write_bytes(raw[:cut])
        ledger = grade.Ledger(tmp_path, settings)
        assert all(ledger.has(n, f"d{n}") for n in "abc"), "results without a line are taken over"
        assert set(grade.Ledger(tmp_path, settings).done) == set("abc")
    path = tmp_path / "results" / f"{feedback.page_name('b')}.json"
    path.write_bytes(path.read_bytes()[:-9])
    ledger = grade.Ledger(tmp_path, settings)
    assert [ledger.has(n, f"d{n}") for n in "abc"] == [True, False, True]
    assert not ledger.has("a", "changed since")
    assert not grade.Ledger(tmp_path, marking.Settings(2)).done, "another seed: other grades"


def test_another_seed_needs_another_folder(tmp_path: Path) -> None:
    put(tmp_path / "in", "a.zip", b"")
    quiet: Any = lambda _: None  # noqa: E731
    out = tmp_path / "out"
    grade.grade_folder(tmp_path / "in", out, seed=1, jobs=1, told=quiet)
    with pytest.raises(grade.Problem, match="another seed"):
        grade.grade_folder(tmp_path / "in", out, seed=2, told=quiet)
    with pytest.raises(grade.Problem, match="no folder"):
        grade.grade_folder(tmp_path / "nowhere", out, told=quiet)
    (tmp_path / "empty").mkdir()
    with pytest.raises(grade.Problem, match="no submission"):
        grade.grade_folder(tmp_path / "empty", tmp_path / "o2", told=quiet)
    (tmp_path / "class.json").write_text("{}")
    with pytest.raises(grade.Problem, match=r"no class\.json"):
        grade.grade_folder(tmp_path / "in", out, class_file=tmp_path / "class.json", told=quiet)
    seeds = {json.loads((tmp_path / d / "grading.json").read_text())["seed"] for d in ("out", "o2")}
    assert len(seeds) == 2, "without one, a secret one"


CLASS = [
    Learner("17", "Ann", "ann@example.org", "991", "ann", "S1"), Learner("18", "=Bob"),
    Learner("19", "Zoë"),
]  # fmt: skip


def rows(text_: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text_, newline="")))


def test_tables_for_moodle_and_canvas() -> None:
    results = [
        result("a1.zip", "17", 1.0, made=1.0), result("a2.zip", "17", 3.0, made=2.0),
        result("evil.zip", "18", 3.0, verified=False, made=9.0),
        result("b.zip", "18", 2.0), result("broken.zip", "", problem="damaged", items={}),
    ]  # fmt: skip
    by = feedback.by_learner(results, CLASS)
    assert [x.id for x, _ in by[3:]] == ["broken.zip", "evil.zip"], "of nobody"
    moodle, canvas = rows(feedback.moodle_csv(by[:3])), rows(feedback.canvas_csv(by[:3]))
    assert moodle[0] == ["ID number", "Full name", "tklearn", "Feedback: tklearn"]
    assert moodle[1] == ["17", "Ann", "3", "all passed"]
    assert moodle[2][:3] == ["18", "'=Bob", "2"], "another's file does not count"
    assert moodle[3] == ["19", "Zoë", "-", "nothing handed in"]
    assert canvas[0] == ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "tklearn"]
    assert canvas[1][0] == "    Points Possible"
    assert canvas[1][5] == str(feedback.full())
    assert canvas[2] == ["Ann", "991", "17", "ann", "S1", "3"]
    each = rows(feedback.grades_csv(results))
    assert len(each) == 6
    assert len({len(r) for r in each}) == 1


def test_without_a_list_a_name_that_two_claim_counts_for_none() -> None:
    results = [result("a.zip", "ann"), result("b.zip", "ann"), result("c.zip", "bob")]
    assert [x.id for x, _ in feedback.by_learner(results, [])] == ["a.zip", "b.zip", "bob"]


def test_pages_show_hostile_text_as_text() -> None:
    evil = "<script>alert(1)</script>\x00\udcff"
    r = result(evil, evil, 1.0, notes=[evil])
    r["items"]["P3"]["message"] = evil
    for page in (feedback.page(r), feedback.overview([("f", r)], evil, [r])):
        assert "<script" not in page
        assert "&lt;script&gt;" in page
        assert "default-src 'none'" in page
    bad = feedback.page(result("x", problem=evil, items={}))
    assert "Nothing could be graded" in bad
    names = [feedback.page_name(n) for n in ("a/b", "a-b", "../x", "", evil, "x" * 500, "a b")]
    assert len(set(names)) == len(names)
    assert not [n for n in names if "/" in n or n.startswith(".") or len(n) > 80]


def test_the_overview_counts_the_class() -> None:
    """Ann passed, Bob's file cannot be read, Zoë handed in nothing."""
    results = [result("a.zip", "17"), result("b.zip", "18", problem="damaged", items={})]
    results[0]["items"]["P3"]["hints"] = 2
    counts = [r for _, r in feedback.by_learner(results, CLASS)]
    page = feedback.overview([(r["name"], r) for r in results], "", counts)
    assert "passed, of the class" in page
    assert "took hints" in page
    row = page.partition("<td>P3</td>")[2].partition("</tr>")[0]
    assert re.findall('class="n">([^<]*)', row) == ["1 of 3", "1", "1"]


def test_a_picture_of_the_failure_is_in_the_page(grader: marking.Grader) -> None:
    bad = text("M1", "right_range").replace("y[i] = x[i]", "y[i] = 0.0")
    r = grader.grade(zipped(cells(M1=bad)), "x.zip")
    page = feedback.page(r)
    assert 'src="data:image/png;base64,' in page
    assert 'alt="' in page


def test_orders_and_choices_of_case() -> None:
    order = next(i for i in ITEMS.values() if isinstance(i, Order))
    assert marking.chosen(order, engine.Answer("")) is order
    assert isinstance(engine.plan(order)[0], Case)
