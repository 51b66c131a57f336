"""tklearn release --wheels: all that ./course installs, for machines that are not this one."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import zipfile
from pathlib import Path
from typing import Any

import pytest
from course_kit import ROOT
from packaging.requirements import Requirement

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


class Index:
    """Stands for pip: writes a wheel for each requirement that it is asked for."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def __call__(self, command: list[str]) -> int:
        self.asked.append(command)
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
    first = pip.asked[0]
    assert first[first.index("--python-version") + 1] == "3.12"
    assert platform in first
    assert ("manylinux_2_17_x86_64" in first) == platform.startswith("manylinux")
    fetched = [x for c in pip.asked for x in c if "==" in x]
    assert len(fetched) == len(set(fetched)), "nothing twice"


def test_this_machine_is_served_without_a_word(root: Path) -> None:
    pip = Index()
    wheels.wheels(root, root, ["more"], run=pip)
    assert not [c for c in pip.asked if "--platform" in c or "--python-version" in c]
    assert "tty-1.0" in pip.fetched(root)


def test_what_a_bundle_asks_for() -> None:
    wanted = wheels.requirements(ROOT, ["dask"])
    for name in ("flit_core", "jupyterlab", "numpy", "distributed"):
        assert [w for w in wanted if w.startswith(name)], name
    pins = (ROOT / "constraints.txt").read_text()
    for line in pins.splitlines():
        assert line.startswith("#") or str(Requirement(line).specifier).startswith("=="), line


def test_what_cannot_be(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(wheels.Problem, match="could not download the wheels for win_amd64"):
        wheels.wheels(root, root, (), ["win_amd64"], run=lambda _: 1)
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
