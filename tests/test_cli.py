"""The `tklearn` command."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tklearn import cli

nbformat = pytest.importorskip("nbformat")

TABLE = "             predicted  simulated  measured\nwavefronts         128        128       128"


def notebook(tmp_path: Path, *cells: str) -> Path:
    """A notebook of these code cells, not executed."""
    book = nbformat.v4.new_notebook()
    book.cells = [nbformat.v4.new_code_cell(cell) for cell in cells]
    path = tmp_path / "book.ipynb"
    nbformat.write(book, path)
    return path


def test_run_prints_the_comparison_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = notebook(tmp_path, "print('not this')", f"print({TABLE!r})", "1 + 1")
    before = path.read_bytes()
    assert cli.main(["run", str(path)]) == 0
    said = capsys.readouterr()
    assert said.out == TABLE + "\n"
    assert "cell  3/3" in said.err
    assert path.read_bytes() == before


def test_run_with_widgets_does_not_wait_for_the_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """nbclient as it is took 16 to 62 s for this notebook at a cell timeout of 15 s; ours 2 s."""
    monkeypatch.setattr(cli, "CELL_TIMEOUT_S", 45)
    cells = ["from ipywidgets import Output, interactive"]
    cells += [
        "out = Output()\ndisplay(out)\nwith out:\n    print('inside')",
        "w = interactive(lambda n: print(n), n=(0, 9))\ndisplay(w)\n"
        "for i in range(5):\n    w.children[0].value = i",
    ] * 10
    started = time.monotonic()
    assert cli.main(["run", str(notebook(tmp_path, *cells, f"print({TABLE!r})"))]) == 0
    assert time.monotonic() - started < 40


def test_run_says_what_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", str(notebook(tmp_path, "1 / 0"))]) == 1
    assert "ZeroDivisionError" in capsys.readouterr().err
    assert cli.main(["run", str(notebook(tmp_path, "1"))]) == 1
    assert "no output holds a comparison table" in capsys.readouterr().err
    assert cli.main(["run", str(tmp_path / "none.ipynb")]) == 2
    assert "there is no notebook" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("system", "env", "display"),
    [
        ("linux", {}, False),
        ("linux", {"DISPLAY": ":0"}, True),
        ("linux", {"WAYLAND_DISPLAY": "wayland-0"}, True),
        ("linux", {"SSH_CONNECTION": "1 2 3 4"}, False),
        ("darwin", {}, True),
        ("darwin", {"SSH_CONNECTION": "1 2 3 4"}, False),
        ("win32", {}, True),
    ],
)
def test_display(system: str, env: dict[str, str], display: bool) -> None:
    assert cli.has_display(system, env) is display


def test_lab_command(tmp_path: Path) -> None:
    (tmp_path / "notebooks").mkdir()
    (tmp_path / cli.FIRST_NOTEBOOK).touch()
    first = cli.FIRST_NOTEBOOK
    served = cli.lab_command(tmp_path, first, display=False, is_root=True, extra=["--port=1"])
    assert {"--allow-root", "--no-browser", "--port=1"} <= set(served)
    assert f"--LabApp.default_url=/lab/tree/{first.as_posix()}" in served
    opened = cli.lab_command(tmp_path, Path("none.ipynb"), display=True, is_root=False, extra=[])
    assert not {"--allow-root", "--no-browser"} & set(opened)
    assert "--LabApp.default_url=/lab" in opened


def test_only_what_exists_is_listed() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tklearn.cli", "--help"], capture_output=True, text=True, check=True
    )
    for name in ("lab", "run", "doctor", "bench", "record"):
        assert name in done.stdout
    with pytest.raises(SystemExit) as caught:
        cli.main(["grade"])
    assert caught.value.code == 2


def test_an_unknown_benchmark_is_answered_with_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "no-such"]) == 2
    assert "there is no benchmark 'no-such'" in capsys.readouterr().err
    assert cli.main(["bench"]) == 0
    assert capsys.readouterr().out.startswith("benchmarks: ")


def test_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor"]) == 0
    assert "This machine can: simulator" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        cli.main(["doctor", "--no-such-option"])
