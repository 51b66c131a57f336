"""Where the sandbox itself does not work: said before grading, and never kept as a result."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from class_kit import cells, put, zipped

from tklearn import cli
from tklearn.course import grade, marking, sandbox
from tklearn.course.sandbox import Broken, Limits, Sandbox, Stopped


@pytest.fixture
def under_tmp() -> Iterator[Path]:
    """A folder right below /tmp, wherever pytest keeps its own."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.sandbox
@pytest.mark.parametrize("where", ["tmp", "shm"])
def test_a_checkout_below_a_folder_that_the_sandbox_mounts(
    where: str, under_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if where == "shm":
        under_tmp = Path(tempfile.mkdtemp(dir="/dev/shm"))
        under_tmp.chmod(0o755)
    try:
        package = under_tmp / "a course" / "tklearn"
        shutil.copytree(sandbox.PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
        (package.parent / ".venv" / "bin").mkdir(parents=True)
        prefix = str(package.parent / ".venv")
        folders = [*sandbox._folders(), prefix, str(package)]
        monkeypatch.setattr(sandbox, "PACKAGE", package)
        monkeypatch.setattr(sandbox, "_folders", lambda: folders)
        sandbox.self_test()
        code = f"import os, tklearn\nanswer = [tklearn.__file__, os.listdir({prefix!r})]"
        with Sandbox(Limits(cpu=5)) as box:
            said = box.ask({"do": "echo", "code": code})["said"]
            assert said == str([str(package / "__init__.py"), ["bin"]])
            write = f"try: open({str(package / 'x')!r}, 'w')\nexcept OSError as e: answer = e"
            assert "Errno" in box.ask({"do": "echo", "code": write})["said"]
            write = "answer = open('/tmp/x', 'w').write('abc')"
            assert box.ask({"do": "echo", "code": write})["said"] == "3"
    finally:
        if where == "shm":
            shutil.rmtree(under_tmp)


def no_python(_: Limits) -> list[str]:
    return ["/bin/sh", "-c", "echo python: not found >&2; exit 127"]


def test_a_sandbox_that_does_not_work_is_told_before_grading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    put(tmp_path / "in", "a.zip", zipped(cells(M1="right_range")))
    out = tmp_path / "out"
    command = ["grade", str(tmp_path / "in"), "-o", str(out), "--jobs", "1", "--seed", "1"]
    with monkeypatch.context() as m:
        m.setattr(sandbox, "command", no_python)
        assert cli.main(command) == 2
    said = capsys.readouterr().err
    for words in ("nothing was graded", "python: not found", "run the same again"):
        assert words in said
    assert not (out / "grades.csv").exists()
    assert cli.main(command) == 0
    assert "3 of " in capsys.readouterr().out, "nothing was kept of the failure"


def test_a_sandbox_that_breaks_later_is_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    grader = marking.Grader(marking.Settings(1))
    monkeypatch.setattr(sandbox, "command", no_python)
    for name in ("a", "b"):
        put(tmp_path / "in", f"{name}.zip", zipped(cells(M1="right_range"), name))
    lost = grader.grade((tmp_path / "in" / "a.zip").read_bytes(), "a.zip")
    assert lost["broken"]
    assert "the sandbox did not work" in lost["problem"]
    grader.close()
    monkeypatch.undo()

    def results(todo: list[grade.Handed], *_: Any) -> Iterator[dict[str, Any]]:
        for h in todo:
            other = {"name": "b.zip", "problem": "damaged", "digest": grade._digest(h)}
            yield lost if h.name == "a.zip" else {**lost, **other, "broken": False}

    out = tmp_path / "out"
    command = ["grade", str(tmp_path / "in"), "-o", str(out), "--jobs", "1", "--seed", "1"]
    with monkeypatch.context() as m:
        m.setattr(grade, "in_parallel", results)
        assert cli.main(command) == 1
    said = capsys.readouterr().out
    assert "1 of 2 are not graded" in said
    assert "1 of them unreadable" in said
    assert (out / grade.JOURNAL).read_bytes().count(b"\n") == 1
    assert cli.main(command) == 0
    said = capsys.readouterr().out
    assert "1 of 2 submissions are graded already" in said
    assert "a.zip: 3 of" in said


class Dying(Sandbox):
    """Its process ends at the first request, and works again afterwards."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    def ask(self, request: dict[str, Any]) -> Any:
        if request["do"] != "echo" and self.times:
            self.times -= 1
            raise Stopped(sandbox.ENDED)
        return super().ask(request)


@pytest.mark.parametrize(("times", "points"), [(1, 3.0), (2, None)])
def test_a_process_that_was_killed_once_costs_nothing(times: int, points: float | None) -> None:
    grader = marking.Grader(marking.Settings(1))
    grader._box = Dying(times)
    got = grader.grade(zipped(cells(M1="right_range")), "x.zip")
    grader.close()
    assert not got.get("broken"), "the sandbox works: it is this file's fault"
    if points:
        assert got["items"]["M1"]["score"] == points
    else:
        assert got["problem"] == f"it could not be read: {sandbox.ENDED}"


def test_a_sandbox_that_answers_wrongly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sandbox, "ask", lambda self, request: {"said": "41"})
    with pytest.raises(Broken, match="answers wrongly"):
        sandbox.self_test()
