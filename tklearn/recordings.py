"""Measured runs of kernels on real GPUs, kept as files and found again by what the kernel does.

A recording is keyed by the digest of the kernel's IR, the shapes and numbers of its arguments, the
grid and the GPU. A kernel that differs in anything has no recording: another kernel's number is
never shown as the learner's. Recordings are written by `tklearn record` and never edited by hand.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from tklearn import devices
from tklearn.lang import ir

FOLDER = Path(__file__).parent / "recorded"


@dataclass(frozen=True)
class Recording:
    """One measured launch.

    Attributes: `kernel`, `digest` (ir.digest), `arguments` (shape and dtype of arrays, values of
    numbers), `grid`; `device`, `driver`, `date`, `command`; `seconds` (median GPU time of one
    launch); `counters` (metric key -> count, from Nsight Compute; empty if not taken); `error`
    (largest |GPU - simulator| over the outputs, absolute, on the recorded inputs); `source` (the
    kernel's text).
    """

    kernel: str
    digest: str
    arguments: list[str]
    grid: tuple[int, int, int]
    device: str
    driver: str
    date: str
    command: str
    seconds: float
    error: float
    counters: dict[str, int] = field(default_factory=dict)
    source: str = ""


def describe_arguments(args: list[Any]) -> list[str]:
    """Shapes and dtypes of arrays, and numbers, as the key of a recording."""
    return [f"{a.dtype}{list(a.shape)}" if hasattr(a, "shape") else repr(a) for a in args]


@lru_cache
def load(folder: Path = FOLDER) -> tuple[Recording, ...]:
    """All recordings of a folder. A file that cannot be read is an error that names it."""
    out = []
    for path in sorted(folder.glob("*.json")):
        try:
            entries = json.loads(path.read_text(encoding="utf-8"))["recordings"]
            out += [Recording(**{**e, "grid": tuple(e["grid"])}) for e in entries]
        except (ValueError, KeyError, TypeError) as e:
            raise ValueError(f"{path} is not a file of recordings: {e}") from e
    return tuple(out)


def find(
    k: ir.Kernel, args: list[Any], grid: tuple[int, int, int], device: str
) -> Recording | None:
    """The recording of exactly this launch, or None."""
    key = (ir.digest(k), describe_arguments(args), grid, devices.device(device))
    for r in load():
        if (r.digest, r.arguments, r.grid, devices.device(r.device)) == key:
            return r
    return None


def nearest(k: ir.Kernel, args: list[Any], grid: tuple[int, int, int], source: str) -> str:
    """Why there is no recording: the closest one of the same name and what differs."""
    same = [r for r in load() if r.kernel == k.name]
    if not same:
        return "no recording of this kernel"
    digest = ir.digest(k)
    for r in same:
        if r.digest == digest:
            got = describe_arguments(args)
            diff = [f"{a} instead of {b}" for a, b in zip(got, r.arguments, strict=False) if a != b]
            diff += [f"grid {grid} instead of {r.grid}"] if r.grid != grid else []
            near = f"{r.kernel} on {r.device} ({'; '.join(diff)})"
            return f"no recording of this launch; nearest: {near}"
    r = same[0]
    mine, theirs = source.splitlines(), r.source.splitlines()
    lines = [
        str(i + 1)
        for i, (a, b) in enumerate(zip(mine, theirs, strict=False))
        if a.strip() != b.strip()
    ]
    where = (
        f"differs in lines {', '.join(lines[:6])} of its text" if lines else "has another length"
    )
    return f"no recording of this kernel; nearest: {r.kernel} on {r.device}, {where}"


def save(new: list[Recording], path: Path) -> None:
    """Adds recordings to a file, replacing older ones of the same launch; written atomically."""
    old: list[Recording] = []
    if path.exists():
        data = json.loads(path.read_text(encoding="utf-8"))
        old = [Recording(**{**e, "grid": tuple(e["grid"])}) for e in data["recordings"]]
    keys = {(r.digest, tuple(r.arguments), r.grid, r.device) for r in new}
    kept = [r for r in old if (r.digest, tuple(r.arguments), r.grid, r.device) not in keys]
    text = json.dumps({"recordings": [asdict(r) for r in [*kept, *new]]}, indent=1)
    tmp = path.with_suffix(".tmp")
    tmp.write_text(text + "\n", encoding="utf-8")
    os.replace(tmp, path)
    load.cache_clear()
