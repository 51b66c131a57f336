"""`tklearn record`: run a notebook on a GPU and keep what its comparisons measured.

Every tk.compare of the notebook becomes a recording (recordings.py): the median time and the
largest difference from the simulator, and, where Nsight Compute is installed, the hardware's
counters, taken in a second run of the same cells with the counting build. Knows notebooks and the
profiler's text.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import linecache
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from tklearn import comparison, recordings
from tklearn.cuda.cppnames import legal
from tklearn.report import HOPPER, METRICS, TENSOR_MOVES

PROFILER_FLAGS = ("--clock-control", "none", "--csv", "--page", "raw", "--print-units", "base")


def main(argv: list[str]) -> int:
    """`tklearn record NOTEBOOK [--out FOLDER]`. Returns 0, or 2 where there is no GPU."""
    parser = argparse.ArgumentParser(
        prog="tklearn record", description="Record a notebook on a GPU."
    )
    parser.add_argument("notebook", type=Path)
    parser.add_argument("--out", type=Path, default=recordings.FOLDER)
    parser.add_argument("--counters-only", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if not comparison.gpu_here():
        print("tklearn record needs a GPU and CuPy; tklearn doctor says what this machine has")
        return 2
    command = f"tklearn record {args.notebook.as_posix()}"
    recorder = comparison.Recorder(command, counting=args.counters_only)
    comparison.RECORDER = recorder
    try:
        run_cells(args.notebook)
    finally:
        comparison.RECORDER = None
    if args.counters_only:
        return 0
    found = recorder.found
    if shutil.which("ncu"):
        found = with_counters(found, args.notebook)
    else:
        print("no ncu on PATH: the recordings have no counters")
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / f"{args.notebook.stem}.json"
    recordings.save(found, path)
    for r in found:
        print(
            f"{r.kernel}: {r.seconds * 1e6:.2f} us, error {r.error:.2g}, {len(r.counters)} counters"
        )
    print(f"wrote {path}")
    return 0


def run_cells(notebook: Path) -> None:
    """Executes the code cells in one namespace; each cell's text can be found by the front end."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    space: dict[str, object] = {"__name__": "__main__"}
    for i, cell in enumerate(cells):
        text = "".join(cell["source"])
        if cell["cell_type"] != "code" or text.lstrip().startswith(("%", "!")):
            continue
        name = f"<{notebook.stem} cell {i}>"
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        exec(compile_cell(text, name), space)


def compile_cell(text: str, name: str):
    """A cell as a code object whose functions know their file."""
    return compile(text, name, "exec")


def with_counters(found: list[recordings.Recording], notebook: Path) -> list[recordings.Recording]:
    """The recordings with the hardware's counters, from a run of the notebook under Nsight
    Compute."""
    # Metrics of instrumented code would run every kernel several times more.
    metrics = {m: key for key, (m, _) in METRICS.items() if m and "__sass_" not in m}
    if comparison.capability_here() < 90:  # ncu gives up at a metric that the GPU does not have
        metrics = {m: key for m, key in metrics.items() if not key.startswith(HOPPER)}
    metrics[TENSOR_MOVES] = "tensor_moves"
    command = ["ncu", *PROFILER_FLAGS, "--metrics", ",".join(metrics)]
    names = f"regex:{entries(r.kernel for r in found)}"
    command += ["--kernel-name", names, sys.executable, "-m", "tklearn.record"]
    command += [str(notebook), "--counters-only"]
    done = subprocess.run(
        command, capture_output=True, text=True, env=dict(os.environ), check=False
    )
    rows = read_profile(done.stdout, metrics)
    if len(rows) != len(found):
        print(f"ncu saw {len(rows)} launches, not {len(found)}: the recordings have no counters")
        print("\n".join(f"  {line}" for line in (done.stdout + done.stderr).splitlines()[-8:]))
        return found
    return [replace(r, counters=c) for r, c in zip(found, rows, strict=True)]


def entries(kernels: Iterable[str]) -> str:
    """A pattern for the entry points of these kernels: what C++ or the headers call so, too, has an
    underscore more."""
    names = sorted({re.escape(legal(k)) for k in kernels})
    return f"^({'|'.join(names)})_*$"


def read_profile(text: str, metrics: dict[str, str]) -> list[dict[str, int]]:
    """The counters of each launch in the order of launching, from ncu's CSV."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    out = []
    for row in csv.DictReader(io.StringIO("\n".join(lines))):
        if not (row.get("ID") or "").isdigit():
            continue  # the row of units
        counts = {}
        for metric, key in metrics.items():
            value = (row.get(metric) or "").replace(",", "")
            if value:
                counts[key] = round(float(value))
        moves = counts.pop("tensor_moves", 0)
        if "tensor_instructions" in counts:  # wgmma's are among them
            counts["tensor_instructions"] -= moves + counts.get("wgmma_instructions", 0)
        out.append(counts)
    return out


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
