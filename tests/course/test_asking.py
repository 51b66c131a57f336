"""How a learner asks: nothing filled in, names mistyped, cells that failed, files renamed."""

from __future__ import annotations

import json
import linecache
import shutil
from pathlib import Path
from typing import Any

import pytest
from course_kit import ANSWERS, ROOT, code, run

import tklearn as tk
from tklearn import cli
from tklearn.course import attempts, submit
from tklearn.course.item import Predict
from tklearn.course.items import ITEMS, LESSONS
from tklearn.course.verdict import NO_TRY

GOOD = (ANSWERS / "M1" / "right_range.py").read_text(encoding="utf-8")


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A course of one's own, with exercises as they are handed out."""
    for folder in ("exercises", "solutions"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    monkeypatch.chdir(tmp_path / "exercises")
    return tmp_path


def checked(space: dict[str, Any], call: str) -> Any:
    exec(f"verdict = {call}", space)
    return space["verdict"]


# ------------------------------------------------------------------------------- nothing filled in
@pytest.mark.parametrize("item", ITEMS.values(), ids=ITEMS)
def test_an_exercise_as_it_was_handed_out_is_no_try(
    item: Any, course: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    space = run(code(course / "exercises" / item.file), item.id)
    verdict = checked(space, f"tk.check({item.id!r})")
    assert not verdict.passed
    assert NO_TRY in str(verdict)
    assert NO_TRY in verdict._repr_html_()
    assert "not done" in str(verdict) or "how it was handed out" in str(verdict)
    capsys.readouterr()
    assert cli.main(["check", item.id]) == 1
    said = capsys.readouterr().out
    assert NO_TRY in said
    assert "kept as an attempt" not in said
    assert not list(attempts.events())


@pytest.mark.parametrize("name", LESSONS)
def test_predictions_of_none_are_none(name: str) -> None:
    item = LESSONS[name]
    shown = tk.predict(name, **{q.name: None for q in item.questions})
    assert "in place of None" in str(shown)
    assert "in place of None" in shown._repr_html_()
    assert "in place of None" not in str(tk.predict(name)), "only asked for the questions"
    assert not tk.check(name).tried
    assert not list(attempts.events())


def test_one_line_more_is_a_try(course: Path) -> None:
    for n, line in enumerate(["    # a comment", "    step = 2"]):
        cells = code(course / "exercises" / ITEMS["M1"].file)
        last = next(i for i, c in enumerate(cells) if "def copy(" in c)
        cells = [c.replace("    for j in", f"{line}\n    for j in") for c in cells[: last + 1]]
        verdict = checked(run(cells, f"M1-{n}"), "tk.check('M1')")
        assert verdict.tried == bool(n)
    assert attempts.record("M1").attempts == 1


def test_one_prediction_is_a_try() -> None:
    item = ITEMS["P3"]
    assert isinstance(item, Predict)
    tk.predict("P3", a=1, b=None)
    assert tk.check("P3").tried
    assert attempts.record("P3").first == {"a": 1}
    assert attempts.record("P3").attempts == 1


# ------------------------------------------------------------------------------------------- names
@pytest.mark.parametrize(
    ("name", "says"),
    [("m1", "did you mean 'M1'?"), (" k4B ", "did you mean 'K4b'?"), ("M1_coalesce", "there are"),
     ("swizzle", "there are"), (7, "there are"), (None, "there are"), ("", "there are")],
)  # fmt: skip
def test_a_name_that_is_none(name: Any, says: str) -> None:
    for ask in (tk.check, tk.hint, tk.predict):
        with pytest.raises(tk.TkError, match="no exercise") as e:
            ask(name)
        assert says in e.value.hint


@pytest.mark.parametrize(
    ("cell", "says"),
    [
        ("", "there is no 'copy' here: run its cell"),
        (GOOD.replace("def copy", "def kopie"), "there is no 'copy' here: run its cell"),
        ("def copy(n, x, y):\n    pass", "is not a kernel but function: write @tk.kernel"),
        ("copy = None", "is not a kernel but NoneType"),
        ("copy = 'M1'", "is not a kernel but str"),
        (GOOD.replace("n: tk.i32", "m: tk.i32"), "must have the parameters (n, x, y)"),
        (GOOD.replace("laneid, threadIdx,", "laneid,"), "write 'from tklearn import threadIdx'"),
        (GOOD.replace("PER_BLOCK = 4 * 256", "PER_BLOCK = [1024].copy"), "PER_BLOCK"),
        (GOOD.replace("blockIdx.x", "blockIdx"), "TK"),
        (GOOD.replace("= x[i]", "= z[i]"), "'z' is not defined here"),
    ],
)
def test_cells_that_are_not_quite_the_exercise(cell: str, says: str) -> None:
    verdict = checked(run(["import tklearn as tk", cell], "odd"), "tk.check('M1')")
    assert not verdict.passed
    assert says in str(verdict)


def test_an_error_in_the_newest_cell_is_told() -> None:
    """The kernel of the cell before is still there, and is what is checked."""
    space = run([GOOD], "one")
    bad = GOOD.replace("for i in", "for i in in")
    inside = "if True:\n" + GOOD.replace("\n", "\n    ")
    for cells, older in (
        ([GOOD], False), ([GOOD, bad], True), ([bad, GOOD, "copy"], False), ([bad, inside], False)
    ):  # fmt: skip
        space["In"] = ["", *cells]
        verdict = checked(space, "tk.check('M1')")
        assert verdict.passed
        assert ("an older 'copy' was checked: did the newest" in str(verdict)) == older
    space["In"] = "no list"
    assert checked(space, "tk.check('M1')").passed


def test_an_older_cell_in_a_real_kernel(tmp_path: Path) -> None:
    """What IPython keeps in In is what the check looks at."""
    manager = pytest.importorskip("jupyter_client.manager")
    said: list[str] = []

    def hear(message: dict[str, Any]) -> None:
        said.append(json.dumps(message["content"]))

    owner, client = manager.start_new_kernel(kernel_name="python3", cwd=str(tmp_path))
    try:
        for cell in (GOOD, GOOD.replace("for i in", "for i in in"), "tk.check('M1')"):
            client.execute_interactive(cell, timeout=120, output_hook=hear)
    finally:
        client.stop_channels()
        owner.shutdown_kernel(now=True)
    assert "SyntaxError" in " ".join(said)
    assert "an older 'copy' was checked" in said[-2] + said[-1]


# --------------------------------------------------------------------------------- places and files
def test_outside_a_course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    space = run([GOOD], "outside")
    assert "outside" not in str(checked(space, "tk.check('M1')"))
    monkeypatch.delenv("TKLEARN_COURSE_DIR")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    verdict = checked(space, "tk.check('M1')")
    assert verdict.passed
    assert f"kept in {attempts.folder()}, and tk.submit() does not look there" in str(verdict)
    with pytest.raises(tk.TkError, match="no folder exercises/") as e:
        submit.submit()
    assert "go to the course's folder" in e.value.hint


def test_files(course: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Renamed, with tags gone, with the kernel twice, with a cell that is no Python."""
    mine = course / "exercises" / ITEMS["M1"].file
    book = json.loads(mine.read_text(encoding="utf-8"))
    body = [c for c in book["cells"] if c["cell_type"] == "code"]
    at = next(i for i, c in enumerate(body) if "def copy(" in "".join(c["source"]))
    body[at]["source"] = [GOOD]
    for c in book["cells"]:
        c["metadata"] = {}
    mine.unlink()
    assert cli.main(["check", "M1"]) == 2
    said = capsys.readouterr().err
    assert "was it renamed or moved?" in said
    assert "tklearn check M1 FILE" in said
    other = course / "exercises" / "my answer.ipynb"
    other.write_text(json.dumps(book), encoding="utf-8")
    assert cli.main(["check", "M1", str(other)]) == 0, "neither the name nor tags matter"
    assert "stands in the file" not in capsys.readouterr().out
    book["cells"].append({**body[at], "source": [GOOD]})
    other.write_text(json.dumps(book), encoding="utf-8")
    assert cli.main(["check", "M1", str(other)]) == 0
    assert "'copy' stands in the file 2 times: the last was checked" in capsys.readouterr().out
    for c in (body[at], book["cells"][-1]):
        c["source"] = [GOOD.replace("for i in", "for i in in")]
    other.write_text(json.dumps(book), encoding="utf-8")
    assert cli.main(["check", "M1", str(other)]) == 1
    said = capsys.readouterr().out
    assert "there is no kernel 'copy' in the file" in said
    assert "line " in said
    assert "invalid syntax" in said
    linecache.clearcache()
