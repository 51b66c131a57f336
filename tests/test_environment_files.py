"""pyproject.toml, the conda files and constraints.txt say the same thing."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PLATFORMS = (("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64"), ("win32", "AMD64"))


def bounds(lines: list[str]) -> dict[str, str]:
    """Canonical name -> version specifier, for lines of conda, pip or pyproject."""
    found = {}
    for line in lines:
        requirement = Requirement(line)
        found[canonicalize_name(requirement.name)] = str(requirement.specifier)
    return found


def conda_file(name: str) -> tuple[dict[str, str], dict[str, str]]:
    """Bounds of the conda lines and of the pip lines of an environment file."""
    parsed = yaml.safe_load((ROOT / name).read_text())
    assert parsed["channels"] == ["conda-forge"]
    (pip,) = [line["pip"] for line in parsed["dependencies"] if isinstance(line, dict)]
    assert "-e ." in pip
    conda = bounds([line for line in parsed["dependencies"] if isinstance(line, str)])
    assert conda.pop("pip") == ""
    return conda, bounds([line for line in pip if line != "-e ."])


def constraints() -> list[Requirement]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


@pytest.mark.parametrize("name", ["environment.yml", "environment-gpu.yml"])
def test_conda_lines_equal_pyproject(name: str) -> None:
    lab = PROJECT["optional-dependencies"]["lab"]
    wanted = [f"python{PROJECT['requires-python']}", *PROJECT["dependencies"], *lab]
    assert conda_file(name)[0] == bounds(wanted)


def test_gpu_parts_are_in_the_gpu_file_alone() -> None:
    assert conda_file("environment.yml")[1] == {}
    assert conda_file("environment-gpu.yml")[1] == bounds(PROJECT["optional-dependencies"]["gpu"])


def test_every_dependency_has_a_lower_and_an_upper_bound() -> None:
    extras = PROJECT["optional-dependencies"]
    assert set(extras) == {"lab", "torch", "gpu", "gpu12", "numba", "nbgrader", "dask", "dev"}
    tools = {"packaging"}  # numbered by year, never breaking
    for line in [*PROJECT["dependencies"], *(x for lines in extras.values() for x in lines)]:
        requirement = Requirement(line)
        operators = {spec.operator for spec in requirement.specifier}
        exact = "==" in operators
        assert exact or {">=", "<"} <= operators or requirement.name in tools, line


def test_the_core_needs_neither_torch_nor_cuda() -> None:
    core = bounds(PROJECT["dependencies"])
    assert not [name for name in core if re.match("torch|cupy|nvidia|cuda", name)]


def test_torch_is_exact() -> None:
    assert PROJECT["optional-dependencies"]["torch"] == ["torch==2.13.0"]
    (torch,) = [line for line in constraints() if line.name == "torch"]
    assert str(torch.specifier) == "==2.13.0"


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize(("system", "machine"), PLATFORMS)
def test_constraints_pin_each_dependency_once(python: str, system: str, machine: str) -> None:
    env = {
        "python_version": python,
        "python_full_version": f"{python}.1",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "sys_platform": system,
        "platform_machine": machine,
        "platform_system": {"linux": "Linux", "darwin": "Darwin", "win32": "Windows"}[system],
        "os_name": "nt" if system == "win32" else "posix",
    }
    pins: dict[str, str] = {}
    for line in constraints():
        if line.marker is None or line.marker.evaluate(env):
            name = canonicalize_name(line.name)
            assert name not in pins, f"{name} twice on Python {python}, {system}"
            (spec,) = line.specifier
            assert spec.operator == "=="
            pins[name] = spec.version
    wanted = [*PROJECT["dependencies"]]
    wanted += [line for lines in PROJECT["optional-dependencies"].values() for line in lines]
    for line in wanted:
        requirement = Requirement(line)
        if requirement.marker is not None and not requirement.marker.evaluate(env):
            continue
        pin = pins[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(pin), f"{line} is pinned to {pin}"


@pytest.mark.parametrize(
    "name",
    ["pyproject.toml", "constraints.txt", "environment.yml", "environment-gpu.yml", "course"],
)
def test_no_index_address_and_no_path_of_one_machine(name: str) -> None:
    text = (ROOT / name).read_text()
    assert not re.search(
        r"--(extra-)?index-url|--find-links|file://|https?://(?!github\.com)", text
    )
    assert not re.search(r"/(root|home|opt|work|Users)/", text)
