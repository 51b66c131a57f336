"""tklearn release --wheels: all that ./course installs, for machines that are not this one."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from course_kit import ROOT
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tklearn.course import wheels

NEEDS = {  # what each package of this small index requires
    "lab": ["shell[fast]>=1", 'console; sys_platform == "win32"', 'tty; os_name != "nt"'],
    "shell": ["old", 'quick; extra == "fast"', 'dev; extra == "x"'],
    "quick": ["lab"],
}
PINS = """# exact
lab==2.0
shell==1.5
quick==1.0
console==1.0 ; sys_platform == 'win32'
old==1.0 ; python_full_version < '3.12.3'
old==2.0 ; python_full_version >= '3.12.3'
"""
PROJECT = """[build-system]
requires = ["maker>=1"]
[project]
dependencies = []
[project.optional-dependencies]
lab = ["lab>=1,<3"]
more = ["tty"]
"""


RUNS_ON = {"old==1.0": "<3.12.3", "old==2.0": ">=3.12.3"}
"""Requires-Python of two wheels of that index; pip wants it to hold for --python-version."""


class Index:
    """Stands for pip: writes a wheel for each requirement that it is asked for."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def versions(self) -> set[str]:
        return {c[c.index("--python-version") + 1] for c in self.asked}

    def __call__(self, command: list[str]) -> int:
        self.asked.append(command)
        release = command[command.index("--python-version") + 1]
        if any(release not in SpecifierSet(RUNS_ON.get(spec, "")) for spec in command):
            return 1  # No matching distribution found
        folder = Path(command[command.index("-d") + 1])
        for spec in command:
            if "=" not in spec and ">" not in spec and spec != "tty" or spec.startswith("-"):
                continue
            r = Requirement(spec)
            version = str(r.specifier).lstrip("=<>") or "1.0"
            needs = "".join(f"Requires-Dist: {n}\n" for n in NEEDS.get(r.name, []))
            with zipfile.ZipFile(folder / f"{r.name}-{version}-py3-none-any.whl", "w") as z:
                meta = f"Metadata-Version: 2.1\nName: {r.name}\nVersion: {version}\n{needs}"
                z.writestr(f"{r.name}-{version}.dist-info/METADATA", meta)
        return 0

    def fetched(self, folder: Path) -> set[str]:
        return {"-".join(p.name.split("-")[:2]) for p in (folder / "wheels").iterdir()}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "constraints.txt").write_text(PINS)
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    return tmp_path


ALWAYS = {"maker-1", "lab-2.0", "shell-1.5", "quick-1.0", "old-1.0", "old-2.0"}
"""For 3.12.0 and 3.12.99, which want two versions of one package."""


@pytest.mark.parametrize(
    ("platform", "more"),
    [("win_amd64", {"console-1.0"}), ("macosx_11_0_arm64", {"tty-1.0"}),
     ("manylinux_2_28_x86_64", {"tty-1.0"})],
)  # fmt: skip
def test_what_is_needed_there_and_not_here(root: Path, platform: str, more: set[str]) -> None:
    """Markers are those of the learners' machines; both ends of a version of Python are served."""
    pip = Index()
    assert wheels.wheels(root, root, (), [platform], "3.12", run=pip) > 0
    assert pip.fetched(root) == ALWAYS | more
    assert pip.versions() == {"3.12.0", "3.12.99"}
    first = pip.asked[0]
    assert platform in first
    assert ("manylinux_2_17_x86_64" in first) == platform.startswith("manylinux")
    fetched = [x for c in pip.asked for x in c if "==" in x]
    assert len(fetched) == len(set(fetched)), "nothing twice"


def test_this_machine_is_served_without_a_word(root: Path) -> None:
    pip = Index()
    wheels.wheels(root, root, ["more"], run=pip)
    assert not [c for c in pip.asked if "--platform" in c]
    own = "{}.{}".format(*sys.version_info)
    assert {v.rpartition(".")[0] for v in pip.versions()} == {own}
    assert "tty-1.0" in pip.fetched(root)


def test_the_folder_grows_and_a_run_that_fails_leaves_it_as_it_was(root: Path) -> None:
    """What is in the folder is whole: a room must not find out on the day that it is not."""
    there, part = root / "wheels", root / "wheels.part"

    def stopped(command: list[str]) -> int:
        if len(pip.asked) > 1:
            raise KeyboardInterrupt
        return pip(command)

    def failing(command: list[str]) -> int:
        return 1 if len(pip.asked) > 1 else pip(command)

    for run, error in ((failing, wheels.Problem), (stopped, KeyboardInterrupt)):
        pip = Index()
        with pytest.raises(error):
            wheels.wheels(root, root, (), ["win_amd64"], "3.12", run=run)
        assert len(pip.asked) == 2, "something was gathered"
        assert not there.exists()
        assert not part.exists()
    part.mkdir()
    (part / "half.whl").touch()  # of a run that was killed
    wheels.wheels(root, root, (), ["win_amd64"], "3.12", run=Index())
    before = {p.name for p in there.iterdir()}
    assert "half.whl" not in before
    pip = Index()
    with pytest.raises(wheels.Problem, match="nothing was put into the folder"):
        wheels.wheels(root, root, (), ["macosx_11_0_arm64"], "3.12", run=failing)
    assert {p.name for p in there.iterdir()} == before
    wheels.wheels(root, root, (), ["macosx_11_0_arm64"], "3.12", run=Index())
    assert {p.name for p in there.iterdir()} - before == {"tty-1.0-py3-none-any.whl"}


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13", "3.14"])
@pytest.mark.parametrize("platform", ["manylinux_2_28_x86_64", "win_amd64", "macosx_11_0_arm64"])
def test_every_package_has_one_exact_version_for_every_machine(platform: str, python: str) -> None:
    """The constraints name one version of each package at both ends of a version of Python."""
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pins = [Requirement(x) for x in lines if x and not x.startswith("#")]
    for env in wheels.environments(platform, python):
        assert env["python_full_version"] in (f"{python}.0", f"{python}.99")
        here = [r.name for r in pins if not r.marker or r.marker.evaluate(env)]
        assert len(here) == len(set(here))


def test_what_a_bundle_asks_for() -> None:
    wanted = wheels.requirements(ROOT, ["dask"])
    for name in ("flit_core", "jupyterlab", "numpy", "distributed"):
        assert [w for w in wanted if w.startswith(name)], name
    pins = (ROOT / "constraints.txt").read_text()
    for line in pins.splitlines():
        assert line.startswith("#") or str(Requirement(line).specifier).startswith("=="), line


def test_what_cannot_be(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(wheels.Problem, match=r"for win_amd64 and Python 3\.12\.0 \(it says"):
        wheels.wheels(root, root, (), ["win_amd64"], "3.12", run=lambda _: 1)
    with pytest.raises(wheels.Problem, match="no extra"):
        wheels.wheels(root, root, ["nothing"], run=Index())
    with pytest.raises(wheels.Problem, match=r"written 3\.12"):
        wheels.wheels(root, root, python="3.12.4", run=Index())
    with pytest.raises(wheels.Problem, match="no wheel of"):
        wheels.wheels(root, root / "empty", run=lambda _: 0)
    monkeypatch.setattr(wheels, "LARGEST", 500)
    with pytest.raises(wheels.Problem, match="more than 1 GiB a learner"):
        wheels.wheels(root, root, run=Index())


def test_a_driver_without_wheels_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a network, a laptop with an NVIDIA driver asks for nothing that is not there."""
    loader = importlib.machinery.SourceFileLoader("course_script", str(ROOT / "course"))
    spec = importlib.util.spec_from_loader("course_script", loader)
    assert spec is not None
    course: Any = importlib.util.module_from_spec(spec)
    loader.exec_module(course)
    monkeypatch.setattr(course, "HERE", str(tmp_path))
    monkeypatch.setattr(course, "driver_extra", lambda: "gpu")
    monkeypatch.setattr(course.sys, "platform", "linux")
    assert course.with_cuda("lab", ["lab"]) == ["gpu", "lab"]
    (tmp_path / "wheels").mkdir()
    assert course.with_cuda("lab", ["lab"]) == ["lab"]
    (tmp_path / "wheels" / "cupy_cuda13x-14.2.0-cp312-cp312-win_amd64.whl").touch()
    assert course.with_cuda("lab", ["lab"]) == ["gpu", "lab"]
