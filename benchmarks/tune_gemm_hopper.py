"""Which tiles suit gemm_hopper at which size? Times them beside cuBLAS and fits gemm_hopper.COSTS.

    python benchmarks/tune_gemm_hopper.py --out FOLDER [--rounds 2] [--quick]

Writes FOLDER/tune_gemm_hopper.json and prints the table to paste. Two other forms need no GPU:
`--fit FILE` makes the table from such a file, and says what its choice loses against the best that
was measured; `--compile` prints registers and spills of each for sm_90a. Results are checked before
they are timed. Without a GPU it exits with 2.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from side_by_side import milliseconds, require_gpu, write

import tklearn as tk
from tklearn.kernels import gemm_hopper
from tklearn.kernels.arrays import cdiv
from tklearn.kernels.gemm_hopper import Config, persistent

CONFIGS = [
    *gemm_hopper.COSTS,
    Config(BN=256, STAGES=3, GROUP=4),
    Config(BN=256, STAGES=3, GROUP=16),
    Config(BN=224, STAGES=3),
    Config(BN=160, STAGES=5),
    Config(BN=128, BK=128, STAGES=3),
    Config(BN=96, STAGES=6),
    Config(3, 64, STAGES=6),
    Config(3, 128, STAGES=4),
    Config(3, 192, STAGES=3),
    Config(3, 160, STAGES=3),
]
SHAPES = [
    (512, 512, 512), (1024, 1024, 1024), (1536, 1536, 1536), (2048, 2048, 2048),
    (3072, 3072, 3072), (4096, 4096, 4096), (8192, 8192, 8192), (1024, 1024, 8192),
    (8192, 1024, 1024), (2048, 8192, 2048), (1000, 3000, 512), (4096, 11008, 4096),
]  # fmt: skip
QUICK = [(1024, 1024, 1024), (2048, 2048, 2048), (4096, 4096, 4096), (1024, 1024, 8192)]


def name(c: Config) -> str:
    return f"{64 * c.CONSUMERS}x{c.BN}x{c.BK} s{c.STAGES} g{c.GROUP}"


def spec(c: Config) -> Any:
    return persistent(tk.bf16, c).ir(*[np.zeros((8, 8), tk.tensor.NUMPY_DTYPES["bf16"])] * 3)


def compile_one(c: Config) -> str:
    from tklearn.cuda.compile import compile_source
    from tklearn.cuda.emit import emit

    k = spec(c)
    facts = compile_source(emit(k), 90).facts
    return (
        f"{name(c):22} {facts.registers} registers, {facts.spill_stores} B spilt, {k.nthreads} "
        f"threads, {k.shared_bytes} B shared {' '.join(facts.notes)}"
    )


def compile_all() -> None:
    """All kernels into the disk cache, by several processes."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    with ProcessPoolExecutor(8, get_context("spawn")) as pool:
        for line in pool.map(compile_one, CONFIGS):
            print(line, flush=True)


# --------------------------------------------------------------------------------------- measuring
def measure(torch: Any, shape: tuple[int, int, int], rounds: int) -> list[dict[str, Any]]:
    """Every configuration that has a tile for at least a quarter of the multiprocessors."""
    m, n, k = shape
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    a = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(k, n, device="cuda", dtype=torch.bfloat16)
    c = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
    rows = torch.linspace(0, m - 1, 64, device="cuda").long()
    want = a[rows].double() @ b.double()
    sums = a[rows].double().abs() @ b.double().abs()
    bound = 2.0**-8 * want.abs() + 4 * 2.0**-24 * k**0.5 * sums
    candidates: dict[str, Any] = {"cuBLAS": lambda: torch.mm(a, b, out=c)}
    for config in CONFIGS:
        tiles = cdiv(m, 64 * config.CONSUMERS) * cdiv(n, config.BN)
        kernel = persistent(tk.bf16, config)[min(tiles, sms)]
        c.fill_(float("nan"))
        kernel(a, b, c)
        if not bool(((c[rows].double() - want).abs() <= bound).all()):
            print(f"{name(config):22} WRONG VALUES at {shape}")
            continue
        candidates[name(config)] = lambda kernel=kernel: kernel(a, b, c)
    ms = milliseconds(candidates, rounds, rep=25)
    chosen = name(gemm_hopper.choose(m, n, k, sms))
    best = min((x for x in ms if x != "cuBLAS"), key=ms.__getitem__)
    out = [
        {"shape": shape, "config": x, "ms": t, "tflops": 2e-9 * m * n * k / t,
         "ratio": ms["cuBLAS"] / t}
        for x, t in sorted(ms.items(), key=lambda i: i[1])
    ]  # fmt: skip
    rate = {r["config"]: r["tflops"] for r in out}
    print(
        f"{m}x{n}x{k}: cuBLAS {rate['cuBLAS']:.0f}, best {best} {rate[best]:.0f}, "
        f"chosen {chosen} {rate.get(chosen, 0):.0f} TFLOP/s",
        flush=True,
    )
    return out


# ----------------------------------------------------------------------------------------- fitting
def fit(rows: list[dict[str, Any]], sms: int) -> dict[str, tuple[float, float]]:
    """Microseconds a tile, and a step of 64, of each configuration: least squares of relative
    errors, neither below zero."""
    configs = {name(c): c for c in CONFIGS}
    out = {}
    for x, c in configs.items():
        mine = [r for r in rows if r["config"] == x]
        if len(mine) < 3:
            continue
        turns = [cdiv(cdiv(r["shape"][0], 64 * c.CONSUMERS) * cdiv(r["shape"][1], c.BN), sms)
                 for r in mine]  # fmt: skip
        us = np.array([r["ms"] * 1e3 for r in mine])
        steps = np.array([cdiv(r["shape"][2], 64) for r in mine])
        columns = np.stack([np.array(turns), turns * steps], 1) / us[:, None]
        (tile, step), *_ = np.linalg.lstsq(columns, np.ones(len(us)), rcond=None)
        if tile < 0:
            tile, step = 0.0, float(np.mean(us / (turns * steps)))
        out[x] = (round(float(tile), 2), round(float(step), 3))
    return out


def judge(rows: list[dict[str, Any]], sms: int) -> None:
    """The fitted table, and what choosing by it loses."""
    costs = fit(rows, sms)
    configs = {name(c): c for c in CONFIGS}
    for x, pair in costs.items():
        print(f"    {configs[x]}: {pair},")
    taken = set()
    for shape in dict.fromkeys(tuple(r["shape"]) for r in rows):
        ms = {r["config"]: r["ms"] for r in rows if tuple(r["shape"]) == shape}

        def guess(x: str, shape: tuple[int, ...] = shape) -> float:
            c, (tile, step) = configs[x], costs[x]
            turns = cdiv(cdiv(shape[0], 64 * c.CONSUMERS) * cdiv(shape[1], c.BN), sms)
            return turns * (tile + cdiv(shape[2], 64) * step)

        mine = [x for x in costs if x in ms]
        pick, best = min(mine, key=guess), min(mine, key=ms.__getitem__)
        taken.add(pick)
        print(
            f"{'x'.join(map(str, shape)):>16}: {pick} is {ms[best] / ms[pick]:.3f} of the best "
            f"({best}), {ms['cuBLAS'] / ms[pick]:.3f} of cuBLAS"
        )
    print("taken:", ", ".join(sorted(taken)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("tune"))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="four shapes only")
    parser.add_argument("--fit", type=Path, metavar="FILE")
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    if options.compile:
        compile_all()
        return 0
    if options.fit:
        kept = json.loads(options.fit.read_text())
        judge(kept["rows"], kept["sms"])
        return 0
    torch = require_gpu()
    torch.manual_seed(0)
    compile_all()
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    shapes = QUICK if options.quick else SHAPES
    rows = [r for shape in shapes for r in measure(torch, shape, options.rounds)]
    write(options.out / "tune_gemm_hopper.json", torch, rows, sms=sms)
    judge(rows, sms)
    return 0


if __name__ == "__main__":
    sys.exit(main())
