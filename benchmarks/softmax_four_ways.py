"""Times the four softmax texts of the first notebook in one run on a GPU.

    python benchmarks/softmax_four_ways.py [--out FILE]

Needs torch, Triton and CuPy on a machine with a GPU. Checks every result against float64 first.
Writes what tklearn.course.fourways shows.
"""

import argparse
import datetime
import importlib.util
import json
import sys
from pathlib import Path

import tklearn as tk
from tklearn import blockIdx, warp, warpid
from tklearn.course import fourways

ROWS, COLS = 65536, 128


@tk.kernel(warps=4)
def softmax(x: tk.gl_fl, y: tk.gl_fl):
    at = (blockIdx.x * 4 + warpid(), 0)
    row = tk.rt_fl(16, 128)
    warp.load(row, x, at)
    row = tk.exp(row - tk.row_max(row))
    row /= tk.row_sum(row)
    warp.store(y, row, at)


def triton_softmax():
    """The softmax of others/softmax_triton.py."""
    path = fourways.OTHERS / "softmax_triton.py"
    spec = importlib.util.spec_from_file_location("softmax_triton", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.softmax


def cuda_softmax(x, y):
    """A launcher of others/softmax.cu."""
    import cupy
    import torch

    module = cupy.RawModule(code=fourways.texts()["raw CUDA"])
    kernel = module.get_function("softmax")
    pointers = [cupy.ndarray(t.shape, cupy.float32, cupy.cuda.MemoryPointer(
        cupy.cuda.UnownedMemory(t.data_ptr(), t.nbytes, t), 0)) for t in (x, y)]  # fmt: skip

    def run():
        with cupy.cuda.Stream.from_external(torch.cuda.current_stream()):
            kernel((ROWS // 8,), (256,), (*pointers, ROWS))

    return run


def main() -> int:
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--out", type=Path, default=fourways.RESULT)
    out = args.parse_args().out
    try:
        import torch
        from triton.testing import do_bench
    except ImportError as e:
        print(f"needs torch and Triton: {e}")
        return 2
    if not torch.cuda.is_available():
        print("needs a GPU")
        return 2
    x = torch.randn(ROWS, COLS, device="cuda")
    y = torch.empty_like(x)
    want = torch.softmax(x.double(), 1)
    by_triton = triton_softmax()
    ways = {
        "PyTorch": lambda: y.copy_(torch.softmax(x, dim=1)),
        "Triton": lambda: y.copy_(by_triton(x)),
        "raw CUDA": cuda_softmax(x, y),
        "tklearn": lambda: softmax[ROWS // 64](x, y),
    }
    timed = {**ways, "PyTorch": lambda: torch.softmax(x, dim=1), "Triton": lambda: by_triton(x)}
    times = {}
    for name, way in ways.items():
        y.fill_(float("nan"))
        way()
        worst = (y.double() - want).abs().max().item()
        assert worst < 1e-6, (name, worst)
    for name, way in timed.items():
        times[name] = do_bench(way, warmup=50, rep=300, return_mode="median") * 1e3
        print(f"{name:10} {times[name]:7.2f} us")
    result = {
        "device": torch.cuda.get_device_name(),
        "shape": [ROWS, COLS],
        "date": datetime.date.today().isoformat(),
        "versions": {"torch": torch.__version__, "cuda": torch.version.cuda},
        "command": "python benchmarks/softmax_four_ways.py",
        "microseconds": times,
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
