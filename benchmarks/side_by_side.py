"""Timing several ways to do one thing in turns, and saying where and when it was done.

Each candidate is timed by triton.testing.do_bench (CUDA events, the L2 cache flushed before each
call, median); the candidates take turns for several rounds, so that clocks and temperature are the
same for all, and the median of the rounds counts.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


def require_gpu() -> Any:
    """torch, with a GPU and Triton; otherwise says what is missing and exits with 2."""
    try:
        import torch
        import triton.testing  # noqa: F401
    except ImportError as e:
        sys.exit(_missing(f"{e.name} is not installed"))
    if not torch.cuda.is_available():
        sys.exit(_missing("no GPU that torch can use"))
    return torch


def _missing(what: str) -> int:
    print(f"nothing was measured: {what}; this benchmark needs a GPU, torch and Triton")
    return 2


def milliseconds(
    candidates: dict[str, Callable[[], Any]], rounds: int = 3, rep: int = 60
) -> dict[str, float]:
    """Median milliseconds of each candidate; `rep`: about how many ms each is timed in a round."""
    from triton.testing import do_bench

    times: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, call in candidates.items():
            times[name].append(do_bench(call, warmup=15, rep=rep, return_mode="median"))
    return {name: statistics.median(t) for name, t in times.items()}


def machine(torch: Any) -> dict[str, Any]:
    """What a record must say to be read later: device, driver, versions, date, command."""
    versions = {}
    for name in ("torch", "triton", "cupy-cuda13x", "nvidia-cuda-nvrtc", "numpy"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    return {
        "device": torch.cuda.get_device_name(),
        "driver": _said("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
        "python": platform.python_version(),
        "versions": versions,
        "commit": _said("git", "-C", str(HERE), "rev-parse", "--short", "HEAD"),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": command(),
    }


def command() -> str:
    """How this program was called, without where its result went."""
    words = list(sys.argv)
    if "--out" in words:
        del words[words.index("--out") : words.index("--out") + 2]
    return " ".join(["python", *words])


def _said(*command: str) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip().splitlines()[0] if done.stdout.strip() else None


def write(path: Path, torch: Any, rows: list[dict[str, Any]], **more: Any) -> None:
    """One JSON file: the machine, then the rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**machine(torch), **more, "rows": rows}, indent=1) + "\n")
    print(f"written: {path}")
