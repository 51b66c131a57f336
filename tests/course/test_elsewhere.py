"""The notebooks without ./course: in Colab, in VS Code, and where tklearn cannot be installed.

These tests make environments with pip, as ./course does; without a network they are skipped.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import nbformat
import pytest
from course_kit import code
from elsewhere_kit import COLAB, ROOT, Elsewhere, first_cell, outputs, pip
from nbclient.exceptions import CellExecutionError

from tklearn.doctor import Look, examine

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
EVERY = [*NOTEBOOKS, *(p for d in ("exercises", "solutions") for p in (ROOT / d).glob("*.ipynb"))]
PINS = ROOT / "tests" / "data" / "colab.txt"
CELL = first_cell(NOTEBOOKS[0])
VIEW = "application/vnd.jupyter.widget-view+json"


def pictures(book: nbformat.NotebookNode) -> int:
    """How many pictures a notebook's outputs hold."""
    return sum(text.count("<img") for text in outputs(book, "text/html"))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future]]:
    """The environments, and a folder with what a learner uploads to Colab: the wheel."""
    folder = tmp_path_factory.mktemp("elsewhere")
    home = {"XDG_DATA_HOME": str(folder / "home"), "TKLEARN_COURSE_DIR": ""}
    pins = ["--no-deps", "-r", str(PINS)]
    looks = {"COLAB_RELEASE_TAG": "release-colab", **home}
    kernel = ["ipykernel", "pip", "-c", "constraints.txt"]
    with ThreadPoolExecutor() as pool:
        yield {
            "colab": pool.submit(Elsewhere, folder / "colab", pins, COLAB, **looks),
            "content": pool.submit(wheel, folder / "content"),
            "vscode": pool.submit(Elsewhere, folder / "vscode", kernel, VSCODE_PID="1"),
        }


def wheel(folder: Path) -> Path:
    """Makes tklearn's wheel."""
    pip(sys.executable, "wheel", "--no-deps", "-w", folder, ".")
    return folder


@pytest.fixture
def colab(made: dict[str, Future]) -> Elsewhere:
    """An environment with Colab's packages, whose kernel looks like Colab's."""
    return made["colab"].result()


@pytest.fixture
def content(made: dict[str, Future]) -> Path:
    """The working folder in Colab."""
    return made["content"].result()


# -- Colab ----------------------------------------------------------------------------------------
def test_colab(colab: Elsewhere, content: Path) -> None:
    before = colab.versions()
    for package in ("numpy", "ipykernel", "ipython", "ipywidgets", "matplotlib"):
        assert f"{package}=={before[package]}" in PINS.read_text().splitlines()
    asked = "import sys; print(sys.modules['google.colab.output'].asked)"
    for path, widget in zip(NOTEBOOKS[:2], (False, True)):
        book = nbformat.read(path, as_version=4)
        stored = pictures(book)
        book.cells.append(nbformat.v4.new_code_cell(asked))
        copy = content / f"Copy of {path.name}"
        nbformat.write(book, copy)
        done = colab.run(copy, content)
        assert pictures(done) == stored > 0
        assert bool(outputs(done, VIEW)) == widget
        assert outputs(done, "")[-1] == ("[1]\n" if widget else "[]\n"), "Colab is asked for them"
        after = colab.versions()
        assert after.pop("tklearn")
        assert after == before, "the install replaced a package under the running kernel"


def test_exercises_in_colab(colab: Elsewhere, content: Path) -> None:
    """Each notebook has a machine of its own there, and no course around it."""
    cells = code(ROOT / "exercises" / "K1_swizzle.ipynb")
    for name in ("K1_swizzle.ipynb", "P1_sectors.ipynb"):
        cells += code(ROOT / "solutions" / name)
    done = colab.run(cells, content)
    texts = outputs(done, "text/plain")
    (unsolved,) = [text for text in texts if text.startswith("K1: not yet")]
    assert "the words of a column still lie in one bank" in unsolved
    assert [text for text in texts if text in ("4.0", "2.0")] == ["4.0", "2.0"], "full marks"
    assert (content.parent / "home" / "tklearn" / "attempts.jsonl").exists()


# -- VS Code --------------------------------------------------------------------------------------
def test_vscode_with_a_kernel_and_nothing_else(made: dict[str, Future], tmp_path: Path) -> None:
    """The folder of the clone is the working folder, so that `import tklearn` finds half of it."""
    vscode: Elsewhere = made["vscode"].result()
    offline = {
        "PIP_RETRIES": "0",
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
    }
    said = tell(vscode.python, CELL, ROOT, **offline)
    assert said.endswith("pip could not install tklearn. It needs a network.\n")
    with pytest.raises(CellExecutionError, match="Upload tklearn-"):
        vscode.run([CELL, "print('a run of all cells must not get here')"], tmp_path)
    done = vscode.run(NOTEBOOKS[1], ROOT)
    assert pictures(done) == pictures(nbformat.read(NOTEBOOKS[1], as_version=4)) > 0
    assert outputs(done, VIEW)
    where = [vscode.python, "-c", "import tklearn; print(tklearn.__path__[0], end='')"]
    there = subprocess.check_output(where, cwd=tmp_path, text=True)
    assert there == str(ROOT / "tklearn"), "what git pull brings counts at once"


# -- what the first cell says ---------------------------------------------------------------------
def tell(python: str | Path, cell: str, cwd: Path, *options: str, **env: str) -> str:
    """What a cell says before it stops."""
    command = [python, *options, "-c", cell]
    env = {**{k: v for k, v in os.environ.items() if not k.startswith("PIP_")}, **env}
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    return done.stderr


BARE = ["-I", "-S"]  # a Python without any package, pip neither


def test_every_notebook_has_this_cell() -> None:
    assert len(EVERY) > 40
    assert {first_cell(path) for path in EVERY} == {CELL}
    assert "://" not in CELL
    ast.parse(CELL, feature_version=(3, 7))  # an old Python must get as far as its message


def test_where_tklearn_is_the_cell_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", None)
    path = list(sys.path)
    exec(compile(CELL, "cell", "exec"), {})
    assert sys.path == path


def test_no_wheel(tmp_path: Path) -> None:
    said = tell(sys.executable, CELL, tmp_path, *BARE)
    assert said.startswith("Upload tklearn-*.whl beside this notebook")


def test_an_old_python(tmp_path: Path) -> None:
    older = "import sys; sys.version_info, sys.version = (3, 10, 13), '3.10.13 (main)'\n"
    said = tell(sys.executable, older + CELL, tmp_path, *BARE)
    assert said.startswith("tklearn needs Python 3.11 or newer.")
    assert said.endswith("3.10.13 (main)\n")


def test_no_pip(tmp_path: Path) -> None:
    """As in the environments that uv makes."""
    said = tell(sys.executable, CELL, ROOT, *BARE)
    assert f"uv pip install --python '{sys.executable}' -e {ROOT} anywidget\n" in said
    (tmp_path / "tklearn-0.1.0-py3-none-any.whl").touch()
    (tmp_path / "tklearn-0.1.0-py3-none-any (1).whl").touch()  # uploaded twice
    said = tell(sys.executable, CELL, tmp_path, *BARE)
    assert f"{tmp_path / 'tklearn-0.1.0-py3-none-any.whl'} anywidget\n" in said


@pytest.mark.parametrize("name", ["COLAB_RELEASE_TAG", "VSCODE_PID"])
def test_the_doctor_knows_who_opens_notebooks(name: str) -> None:
    def left_out(env: dict[str, str]) -> set[str]:
        look = Look(which=lambda _: None, run=lambda _: None, version=lambda _: None, env=env)
        return {skip.what for skip in examine(look).skips}

    assert left_out({}) - left_out({name: "1"}) == {"notebooks"}
    assert "widgets" in left_out({name: "1"})
