"""Which tiles suit the gallery's gemm on this GPU? Tries some, beside cuBLAS, in turns.

    python benchmarks/tune_gemm.py [--out FILE] [--sizes 4096 8192] [--rounds 3] [--dtype bf16]

Without a GPU it exits with 2; `--compile 90` needs none: it prints registers and spills of each.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from side_by_side import HERE, milliseconds, require_gpu, write

import tklearn as tk
from tklearn.kernels.arrays import cdiv
from tklearn.kernels.gemm import Config, make

CONFIGS = [  # BM, BN, BK, STAGES, WM, WN, KS, GROUP
    Config(128, 128, 64, 2, 64, 64, 32, 8),
    Config(128, 128, 64, 2, 64, 64, 16, 8),
    Config(128, 128, 64, 3, 64, 64, 16, 8),
    Config(128, 128, 64, 3, 64, 64, 16, 16),
    Config(128, 128, 64, 3, 64, 64, 32, 8),
    Config(128, 128, 64, 3, 64, 64, 32, 16),
    Config(128, 128, 32, 4, 64, 64, 16, 8),
    Config(128, 128, 32, 3, 64, 64, 16, 8),
    Config(128, 128, 64, 3, 64, 32, 16, 8),
    Config(128, 128, 32, 4, 32, 64, 16, 8),
    Config(128, 256, 64, 3, 64, 64, 16, 8),
    Config(128, 256, 32, 4, 64, 64, 16, 8),
    Config(256, 128, 64, 3, 64, 64, 32, 8),
    Config(256, 128, 64, 4, 64, 64, 16, 4),
    Config(64, 128, 64, 4, 64, 64, 16, 8),
]


def name(c: Config) -> str:
    return f"{c.BM}x{c.BN}x{c.BK} s{c.STAGES} w{c.WM}x{c.WN}x{c.KS} g{c.GROUP}"


def compile_all(arch: int, T: Any) -> None:
    from tklearn.cuda.compile import compile_source
    from tklearn.cuda.emit import emit

    for c in CONFIGS:
        k = make(T, c).ir()
        facts = compile_source(emit(k), arch).facts
        print(f"{name(c):38} {facts.registers} registers, {facts.spill_stores} B spilt, "
              f"{k.nthreads} threads, {k.shared_bytes} B shared")  # fmt: skip


def measure(torch: Any, size: int, T: Any, rounds: int) -> list[dict[str, Any]]:
    dtype = {"bf16": torch.bfloat16, "f16": torch.float16}[T.name]
    a, b = (torch.randn(size, size, device="cuda", dtype=dtype) for _ in range(2))
    c = torch.empty_like(a)
    rows = torch.linspace(0, size - 1, 64, device="cuda").long()
    want = a[rows].double() @ b.double()
    sums = a[rows].double().abs() @ b.double().abs()
    bound = 2.0**-8 * want.abs() + 4 * 2.0**-24 * size**0.5 * sums
    candidates: dict[str, Any] = {"cuBLAS": lambda: torch.mm(a, b, out=c)}
    for config in CONFIGS:
        kernel = make(T, config)[cdiv(size, config.BM) * cdiv(size, config.BN)]
        c.fill_(float("nan"))
        try:
            kernel(a, b, c)
        except tk.TkError as e:
            print(f"{name(config):38} {e.code}: {e.message}")
            continue
        if not bool(((c[rows].double() - want).abs() <= bound).all()):
            print(f"{name(config):38} WRONG VALUES")
            continue
        candidates[name(config)] = lambda kernel=kernel: kernel(a, b, c)
    ms = milliseconds(candidates, rounds)
    out = []
    for n in sorted(ms, key=ms.__getitem__):
        rate, ratio = 2e-9 * size**3 / ms[n], ms["cuBLAS"] / ms[n]
        out.append({"size": size, "config": n, "ms": ms[n], "tflops": rate, "ratio": ratio})
        print(f"{size:6} {n:38} {rate:6.0f} TFLOP/s  {ratio:.3f} of cuBLAS", flush=True)
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=HERE / "results" / "tune_gemm.json")
    parser.add_argument("--sizes", type=int, nargs="+", default=[4096, 8192])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dtype", choices=("bf16", "f16"), default="bf16")
    parser.add_argument("--compile", type=int, metavar="ARCH")
    options = parser.parse_args()
    T = {"bf16": tk.bf16, "f16": tk.f16}[options.dtype]
    if options.compile:
        compile_all(options.compile, T)
        return 0
    torch = require_gpu()
    rows = [row for size in options.sizes for row in measure(torch, size, T, options.rounds)]
    write(options.out, torch, rows, dtype=options.dtype)
    return 0


if __name__ == "__main__":
    sys.exit(main())
