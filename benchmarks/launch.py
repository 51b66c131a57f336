"""What a launch costs on the processor, and what compiling costs: prints a table.

    python benchmarks/launch.py [--out FILE]

Needs torch, CuPy and a GPU. A launch is timed in bursts of 200 without waiting for the GPU; the
median burst counts. The goal is 10 microseconds from torch tensors.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

from side_by_side import HERE, command

import tklearn as tk
from tklearn import blockDim, blockIdx, threadIdx

BURST = 200
GOAL = 10e-6


@tk.kernel(threads=256)
def saxpy(n: tk.i32, a: tk.f32, x: tk.gl_fl, y: tk.gl_fl):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < n:
        y[i] = a * x[i] + y[i]


@tk.kernel(threads=256)
def add(x: tk.gl_fl, y: tk.gl_fl, z: tk.gl_fl):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < z.cols:
        z[0, i] = x[0, i] + y[0, i]


def per_launch(launch: Callable[[], object], synchronize: Callable[[], object]) -> float:
    """Median seconds of one call in bursts."""
    samples = []
    for _ in range(20):
        synchronize()
        start = time.perf_counter()
        for _ in range(BURST):
            launch()
        samples.append((time.perf_counter() - start) / BURST)
    synchronize()
    return statistics.median(samples)


HIT = """
import time
import tklearn
from launch import saxpy
from tklearn.cuda.emit import emit
source = emit(saxpy.ir())
start = time.perf_counter()
from tklearn.cuda.compile import compile_source
made = compile_source(source, {arch})
print(time.perf_counter() - start, made.cached, made.seconds)
"""


def compile_times(arch: int) -> dict[str, float]:
    """Seconds of a first compile and of a disk cache hit, each in a new process."""
    with tempfile.TemporaryDirectory() as cache:
        path = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
        env = {**os.environ, "TKLEARN_CACHE": cache, "PYTHONPATH": path}
        runs = [
            subprocess.run([sys.executable, "-c", HIT.format(arch=arch)], env=env, check=True,
                           capture_output=True, text=True).stdout.split()
            for _ in range(4)
        ]  # fmt: skip
    assert [r[1] for r in runs] == ["False", "True", "True", "True"]
    return {
        "first compile, CuPy's import included": float(runs[0][0]),
        "first compile, NVRTC alone": float(runs[0][2]),
        "disk cache hit": min(float(r[0]) for r in runs[1:]),
    }


def main() -> None:
    """Prints, and with --out writes, the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", help="write the figures to this JSON file")
    out = parser.parse_args().out
    import cupy
    import torch

    x, y, z = (torch.ones(1, 1000, device="cuda") for _ in range(3))
    cx, cy = (cupy.ones(1000, dtype=cupy.float32) for _ in range(2))
    wait = torch.cuda.synchronize
    rows = {
        "tklearn, 2 torch tensors, 2 numbers": per_launch(
            lambda: saxpy[4](1000, 0.0, x[0], y[0]), wait
        ),
        "  of which x[0], y[0]": per_launch(lambda: (x[0], y[0]), wait),
        "tklearn, 3 torch tensors": per_launch(lambda: add[4](x, y, z), wait),
        "tklearn, 2 CuPy arrays, 2 numbers": per_launch(lambda: saxpy[4](1000, 0.0, cx, cy), wait),
        "torch.add(x, y, out=z)": per_launch(lambda: torch.add(x, y, out=z), wait),
    }
    capability = torch.cuda.get_device_capability()
    compiles = compile_times(10 * capability[0] + capability[1])
    for name, seconds in rows.items():
        print(f"{name:42s} {seconds * 1e6:8.2f} us")
    for name, seconds in compiles.items():
        print(f"{name:42s} {seconds * 1e3:8.1f} ms")
    reached = rows["tklearn, 3 torch tensors"] <= GOAL
    print(f"goal of {GOAL * 1e6:.0f} us from torch tensors: {'reached' if reached else 'MISSED'}")
    if out:
        record = {
            "device": torch.cuda.get_device_name(), "date": datetime.date.today().isoformat(),
            "command": command(), "torch": torch.__version__,
            "seconds": {**rows, **compiles},
        }  # fmt: skip
        with open(out, "w") as f:
            json.dump(record, f, indent=1)


if __name__ == "__main__":
    main()
