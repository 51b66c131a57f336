"""The script `./course`: what it installs, when, and what it says when it cannot."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = (ROOT / "course").read_text()
TESTS = ["lab", "nbgrader", "numba", "torch"]  # with dask and dev, the extras of `./course test`


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module, living in an empty repository of its own."""
    loader = SourceFileLoader("course", str(ROOT / "course"))
    spec = importlib.util.spec_from_loader("course", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader.exec_module(module)
    for name in ("pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    monkeypatch.setattr(module, "HERE", str(tmp_path))
    monkeypatch.setattr(module, "VENV", str(tmp_path / ".venv"))
    monkeypatch.setattr(module, "STAMP", str(tmp_path / ".venv" / "course-stamp.json"))
    monkeypatch.setattr(module, "LOG", str(tmp_path / ".venv" / "install.log"))
    return module


class FakeInstall:
    """Stands in for venv and pip: notes what was asked and makes the files that count."""

    def __init__(self, course: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
        self.course = course
        self.venvs = 0
        self.installs: list[list[str]] = []
        monkeypatch.setattr(course, "make_venv", self.make_venv)
        monkeypatch.setattr(course, "run_pip", self.run_pip)
        monkeypatch.setattr(course, "same_python", lambda: self.venvs > 0)
        monkeypatch.setattr(course, "driver_extra", lambda: None)
        monkeypatch.setattr(course.subprocess, "call", lambda *a, **k: 0)

    def make_venv(self) -> None:
        self.venvs += 1
        python = Path(self.course.in_venv("python"))
        python.parent.mkdir(parents=True, exist_ok=True)
        python.touch()

    def run_pip(self, extras: list[str]) -> tuple[float, int]:
        self.installs.append(extras)
        return 1.0, 100


@pytest.fixture
def fake(course: ModuleType, monkeypatch: pytest.MonkeyPatch) -> FakeInstall:
    return FakeInstall(course, monkeypatch)


def imports(source: str) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {name.name.split(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.module
            found.add(node.module.split(".")[0])
    return found


# -- before anything is installed -----------------------------------------------------------------


def test_only_the_standard_library_and_syntax_of_old_pythons() -> None:
    ast.parse(SOURCE, feature_version=(3, 6))
    assert imports(SOURCE) <= sys.stdlib_module_names
    assert "from __future__" not in SOURCE
    assert os.access(ROOT / "course", os.X_OK)


@pytest.mark.parametrize("version", [(3, 6), (3, 10), (3, 15), (2, 7)])
def test_an_old_python_is_turned_away_with_a_remedy(course: ModuleType, version: tuple) -> None:
    with pytest.raises(course.Problem) as caught:
        course.check_python(version, which=lambda name: None)
    assert "needs Python 3.11 to 3.14, and this is {}.{}".format(*version) in str(caught.value)
    assert "Install one" in str(caught.value)


def test_a_newer_python_beside_the_old_one_is_named(course: ModuleType) -> None:
    def which(name: str) -> str | None:
        return "/usr/bin/" + name if name in ("python3.12", "python3.11") else None

    with pytest.raises(course.Problem, match=r"run\n    python3\.12 course"):
        course.check_python((3, 9), which=which)


@pytest.mark.parametrize("version", [(3, 11), (3, 12), (3, 13), (3, 14)])
def test_supported_pythons(course: ModuleType, version: tuple[int, int]) -> None:
    course.check_python(version)


@pytest.mark.parametrize("module", ["venv", "ensurepip"])
def test_a_missing_venv_module_is_named_with_the_package(course: ModuleType, module: str) -> None:
    with pytest.raises(course.Problem) as caught:
        course.check_venv(find_spec=lambda name: None if name == module else object())
    package = "python{}.{}-venv".format(*sys.version_info[:2])
    assert module in str(caught.value)
    assert f"sudo apt install {package}" in str(caught.value)


# -- one message for a failed install -------------------------------------------------------------

NO_NETWORK = """\
WARNING: Retrying (Retry(total=1)) after connection broken by 'NewConnectionError(
'Failed to establish a new connection: [Errno -3] Temporary failure in name resolution')'
ERROR: Could not find a version that satisfies the requirement flit_core<5,>=3.12
ERROR: No matching distribution found for flit_core<5,>=3.12
"""


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (NO_NETWORK, "no network"),
        ("ERROR: Could not install packages: [Errno 28] No space left on device\n", "disk is full"),
        ("ERROR: No matching distribution found for numpy==2.5.5\n", "Try another Python"),
        ("boom\nERROR: it broke\n", "ERROR: it broke"),
        ("", "pip ended with code 1"),
    ],
)
def test_pip_problems(course: ModuleType, tmp_path: Path, said: str, message: str) -> None:
    log = tmp_path / "log"
    log.write_text(said)
    text = course.pip_problem(str(log), 1)
    assert message in text
    assert len(text.splitlines()) <= 5


def test_a_failing_pip_leaves_no_stamp(
    course: ModuleType, fake: FakeInstall, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(extras: list[str]) -> None:
        raise course.Problem("no network")

    monkeypatch.setattr(course, "run_pip", fail)
    with pytest.raises(course.Problem):
        course.set_up("lab", [])
    assert not Path(course.STAMP).exists()


def test_no_network_end_to_end(tmp_path: Path) -> None:
    """A fresh clone, a real venv, an index that nobody answers for: one message, exit code 2."""
    for name in ("course", "pyproject.toml", "constraints.txt", "README.md"):
        shutil.copy(ROOT / name, tmp_path / name)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "TKLEARN_"))}
    env.update(PIP_CONFIG_FILE=os.devnull, PIP_INDEX_URL="http://127.0.0.1:9/simple")
    done = subprocess.run(
        [sys.executable, "course", "python", "-c", "1"],
        cwd=tmp_path,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.count("no network") == 1
    assert "Traceback" not in done.stderr
    assert "WARNING" not in done.stderr
    assert len(done.stderr.splitlines()) <= 8


# -- what is installed, and when ------------------------------------------------------------------


def test_the_second_time_is_instant(course: ModuleType, fake: FakeInstall) -> None:
    course.set_up("lab", [])
    started = time.perf_counter()
    course.set_up("lab", [])
    course.set_up("python", [])
    assert time.perf_counter() - started < 0.5
    assert (fake.venvs, fake.installs) == (1, [["lab"]])


def test_extras_add_up_and_are_remembered(course: ModuleType, fake: FakeInstall) -> None:
    course.set_up("lab", ["torch"])
    course.set_up("test", [])
    course.set_up("lab", ["torch"])
    course.set_up("test", [])
    cuda = [] if sys.platform == "darwin" else ["gpu"]
    assert fake.installs == [["lab", "torch"], ["dask", "dev", *cuda, *TESTS]]


def test_the_driver_chooses_the_cuda_extra(
    course: ModuleType, fake: FakeInstall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(course, "driver_extra", lambda: "gpu12")
    course.set_up("lab", [])
    course.set_up("test", [])
    assert fake.installs == [["gpu12", "lab"], ["dask", "dev", "gpu12", *TESTS]]
    course.set_up("lab", ["gpu"])
    assert fake.installs[-1] == ["dask", "dev", "gpu", *TESTS]


def test_no_cuda_on_macos(
    course: ModuleType, fake: FakeInstall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    course.set_up("test", [])
    course.set_up("test", [])
    assert fake.installs == [["dask", "dev", *TESTS]]


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt"])
def test_a_changed_file_installs_again(course: ModuleType, fake: FakeInstall, name: str) -> None:
    course.set_up("lab", ["torch"])
    with open(Path(course.HERE) / name, "a") as file:
        file.write("\n# changed\n")
    course.set_up("lab", [])
    assert fake.installs == [["lab", "torch"], ["lab", "torch"]]


def test_a_broken_stamp_or_a_removed_python_installs_again(
    course: ModuleType, fake: FakeInstall
) -> None:
    course.set_up("lab", [])
    Path(course.STAMP).write_text('{"finger')
    course.set_up("lab", [])
    Path(course.in_venv("python")).unlink()
    course.set_up("lab", [])
    assert len(fake.installs) == 3


def test_the_stamp_is_written_whole(course: ModuleType, fake: FakeInstall) -> None:
    course.set_up("lab", [])
    stamp = json.loads(Path(course.STAMP).read_text())
    assert stamp == {"fingerprint": course.fingerprint(), "extras": ["lab"]}
    assert not Path(course.STAMP + ".part").exists()


def test_pip_is_given_the_constraints_and_no_address(course: ModuleType) -> None:
    command = course.pip_command(["dev", "torch"])
    assert command[-1] == ".[dev,torch]"
    assert command[command.index("-c") + 1] == "constraints.txt"
    assert not [word for word in command if "://" in word]
    assert course.pip_command([])[-1] == "."


def test_a_folder_of_wheels_stands_for_the_network(course: ModuleType) -> None:
    assert "--no-index" not in course.pip_command([])
    (Path(course.HERE) / "wheels").mkdir()
    command = course.pip_command(["torch"])
    assert command[-5:] == ["--no-index", "-f", "wheels", "-e", ".[torch]"]


@pytest.mark.parametrize(
    ("said", "counted"),
    [
        ("Collecting numpy\nDownloading numpy-2.whl (9 MB)\nCollecting tornado\n", 2),
        (
            "Looking in links: wheels\nProcessing ./wheels/numpy-2.whl\n"
            "Processing ./wheels/a.whl\n",
            2,
        ),
        ("Requirement already satisfied: numpy\n", 0),
    ],
)
def test_packages_are_counted_wherever_they_come_from(
    course: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: str, counted: int
) -> None:
    """pip words of an index, of a folder of wheels, and of what is there already."""
    pip = [sys.executable, "-c", f"print({said!r}, end='')"]
    monkeypatch.setattr(course, "pip_command", lambda extras: pip)
    monkeypatch.setattr(course, "LOG", str(tmp_path / "log"))
    assert course.run_pip([])[1] == counted


@pytest.mark.parametrize(("packages", "want"), [(0, "ready in 25 s"), (95, "95 packages in 25 s")])
def test_a_set_up_that_worked_does_not_look_like_a_failure(
    course: ModuleType, fake: FakeInstall, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str], packages: int, want: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(course, "run_pip", lambda extras: (25.0, packages))
    course.set_up("lab", [])
    assert want in "".join(capfd.readouterr())


def test_windows_paths(course: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(course, "WINDOWS", True)
    assert course.in_venv("python").replace("\\", "/").endswith(".venv/Scripts/python.exe")


# -- jobs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "parsed"),
    [
        ([], ([], "lab", [])),
        (["--extra", "torch"], (["torch"], "lab", [])),
        (["--extra=torch,gpu", "run"], (["torch", "gpu"], "run", [])),
        (["test", "-m", "gpu"], ([], "test", ["-m", "gpu"])),
        (["python", "-c", "print(1)"], ([], "python", ["-c", "print(1)"])),
        (["--port=9999"], ([], "lab", ["--port=9999"])),
    ],
)
def test_arguments(course: ModuleType, argv: list[str], parsed: tuple) -> None:
    assert course.parse(argv) == parsed


def test_unknown_extra_and_unknown_job(course: ModuleType) -> None:
    with pytest.raises(course.Problem, match=r"no extra 'cuda'.*torch, gpu"):
        course.parse(["--extra", "cuda"])
    with pytest.raises(course.Problem, match="no job and no program called 'no-such-job'"):
        course.start(["no-such-job"])


def test_environment_variables(course: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHOME", "/elsewhere")
    monkeypatch.delenv("OPENBLAS_NUM_THREADS")
    env = course.environment()
    assert env["PATH"].split(os.pathsep)[0] == os.path.dirname(course.in_venv("python"))
    assert env["OPENBLAS_NUM_THREADS"] == "1"
    assert "PYTHONHOME" not in env
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "4")
    assert course.environment()["OPENBLAS_NUM_THREADS"] == "4"


def test_test_runs_every_step_and_returns_the_first_failure(course: ModuleType) -> None:
    notebooks = Path(course.HERE) / "notebooks"
    notebooks.mkdir()
    (notebooks / "00.ipynb").touch()
    ran: list[list[str]] = []
    codes = iter([0, 3, 1, 0])

    def call(command: list[str], **options: object) -> int:
        ran.append(command)
        return next(codes)

    assert course.run_tests([], call=call) == 3
    assert [command[2] for command in ran] == ["ruff", "mypy", "pytest", "pytest"]
    assert ran[2][-4:] == ["-n", "2", "--dist", "loadscope"]
    assert ran[3][-1] == os.path.join("notebooks", "00.ipynb")
    assert "--nbval-lax" in ran[3]


def test_test_with_arguments_is_pytest_alone(course: ModuleType) -> None:
    (step,) = course.test_steps(["-m", "gpu"], ["notebooks/00.ipynb"])
    assert step[1][1:] == ["-m", "pytest", "-m", "gpu"]


def test_help_needs_no_environment() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "course"), "--help"], capture_output=True, text=True, check=True
    )
    assert "./course test" in done.stdout
