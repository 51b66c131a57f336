"""The folder of wheels with which ./course needs no network.

pip reads the markers of requirements (colorama on Windows only, an older soupsieve before Python
3.11.5) for the machine that it runs on, whatever --platform says. So what is needed is found here:
the versions are those of constraints.txt, which holds for every system, the requirements those that
each wheel names, both read for the learners' machines. pip only fetches.
"""

from __future__ import annotations

import email
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

LARGEST = 1 << 30
MACHINES = {"win_amd64": "AMD64", "win_arm64": "ARM64", "win32": "x86"}


class Problem(Exception):
    """Wheels that cannot be had; the text says why."""


def requirements(root: Path, extras: Iterable[str]) -> list[str]:
    """What a bundle installs, with what builds its package. Errors: Problem."""
    said = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = [*said["build-system"]["requires"], *said["project"]["dependencies"]]
    for e in ("lab", *extras):  # as ./course does
        if e not in said["project"]["optional-dependencies"]:
            raise Problem(f"there is no extra {e!r}")
        wanted += said["project"]["optional-dependencies"][e]
    return wanted


def wheels(
    root: Path, out: Path, extras: Iterable[str] = (), platforms: Iterable[str] = (),
    python: str = "", run: Callable[[list[str]], int] = subprocess.call,
) -> int:  # fmt: skip
    """Fills OUT/wheels with all that ./course installs; its size in bytes. Errors: Problem; then
    OUT/wheels is as it was.

    platforms: pip's names (win_amd64, macosx_11_0_arm64, manylinux_2_28_x86_64); this machine's
    without. python: "3.12"; this one's version without. run: executes a command of pip.
    """
    if python and not re.fullmatch(r"3\.\d+", python):
        raise Problem(f"a version of Python is written 3.12, not {python}")
    wanted = requirements(root, extras)
    folder, part = out / "wheels", out / "wheels.part"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        for p in list(platforms) or [""]:
            _gather(root, part, wanted, p, python, run)
        there = list(folder.iterdir()) if folder.is_dir() else []
        total = _size([*there, *part.iterdir()])
        folder.mkdir(exist_ok=True)
        for path in list(part.iterdir()):
            os.replace(path, folder / path.name)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return total


def _gather(
    root: Path, part: Path, wanted: list[str], platform: str, python: str,
    run: Callable[[list[str]], int],
) -> None:  # fmt: skip
    """Fetches what one system needs, for the first and the last release of a version of Python.
    Errors: Problem."""
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary=:all:", "-d", str(part), "--progress-bar=off", "-q"]
    command += [x for tag in _tags(platform) for x in ("--platform", tag)]
    pins = (root / "constraints.txt").read_text(encoding="utf-8")
    there: set[str] = set()
    for env in environments(platform, python):
        release = env["python_full_version"]  # pip takes 3.11 for 3.11.0
        for specs in _levels(wanted, pins, env, part):
            new = sorted(specs - there)
            if new and run([*command, "--python-version", release, *new]):
                system = f"{platform or 'this machine'} and Python {release}"
                raise Problem(
                    f"pip could not download the wheels for {system} (it says above why); nothing "
                    "was put into the folder wheels"
                )
            there |= specs


def _size(files: Iterable[Path]) -> int:
    """Bytes of the files, each name once. Errors: Problem where that is too much for a room."""
    sizes = {p.name: p.stat().st_size for p in files}
    total = sum(sizes.values())
    if total > LARGEST:
        most = sorted(sizes, key=lambda n: -sizes[n])[:3]
        raise Problem(
            f"{total / 2**30:.1f} GiB of wheels, more than 1 GiB a learner; the largest: "
            f"{', '.join(most)}. Release with fewer extras or platforms"
        )
    return total


def _tags(platform: str) -> list[str]:
    """The platform and, of Linux, the older ones whose wheels run there, too; pip knows those of
    macOS."""
    linux = re.fullmatch(r"manylinux_2_(\d+)_(\w+)", platform)
    if not linux:
        return [platform] if platform else []
    newest, machine = int(linux[1]), linux[2]
    tags = [f"manylinux_2_{n}_{machine}" for n in range(newest, 4, -1)]
    return [*tags, *(f"manylinux{n}_{machine}" for n in ("2014", "2010", "1"))]


def environments(platform: str, python: str) -> Iterator[dict[str, str]]:
    """What markers are read with: the first and the last release of a version of Python."""
    from packaging.markers import default_environment

    env = {k: str(v) for k, v in default_environment().items()}
    if platform.startswith("win"):
        env |= {"os_name": "nt", "sys_platform": "win32", "platform_system": "Windows"}
        env["platform_machine"] = MACHINES.get(platform, "")
    elif platform:
        system = ("darwin", "Darwin") if platform.startswith("macosx") else ("linux", "Linux")
        env |= {"os_name": "posix", "sys_platform": system[0], "platform_system": system[1]}
        found = re.search("x86_64|aarch64|arm64|universal2", platform)
        env["platform_machine"] = found[0] if found else ""
    version = python or env["python_version"]
    for patch in (0, 99):
        yield env | {"python_version": version, "python_full_version": f"{version}.{patch}"}


def _levels(wanted: list[str], pins: str, env: dict[str, str], folder: Path) -> Iterator[set[str]]:
    """What to fetch into the folder: what is wanted, then what that needs, and so on."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name as canonical

    lines = [Requirement(x) for x in pins.split("\n") if x.strip() and not x.startswith("#")]
    exact = {canonical(r.name): r for r in lines if not r.marker or r.marker.evaluate(env)}
    need = [r for r in map(Requirement, wanted) if not r.marker or r.marker.evaluate(env)]
    seen: set[tuple[str, str]] = set()
    while new := {(canonical(r.name), e) for r in need for e in ("", *r.extras)} - seen:
        yield {f"{r.name}{exact.get(canonical(r.name), r).specifier}" for r in need}
        seen |= new
        need = [
            r
            for name, extra in sorted(new)
            for r in map(Requirement, _requires(folder, name, exact.get(name)))
            if not r.marker or r.marker.evaluate(env | {"extra": extra})
        ]


def _requires(folder: Path, name: str, exact: object) -> list[str]:
    """The requirements that a wheel in the folder names."""
    from packaging.requirements import Requirement
    from packaging.utils import parse_wheel_filename

    for path in sorted(folder.glob("*.whl")):
        found, version, _, _ = parse_wheel_filename(path.name)
        fits = not isinstance(exact, Requirement) or exact.specifier.contains(version)
        if found == name and fits:
            with zipfile.ZipFile(path) as z:
                meta = next(n for n in z.namelist() if n.endswith(".dist-info/METADATA"))
                said = email.message_from_bytes(z.read(meta))
            return [str(x) for x in said.get_all("Requires-Dist", [])]
    raise Problem(f"pip said nothing, and there is no wheel of {name} in {folder}")
