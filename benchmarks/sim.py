"""The simulator against plain NumPy doing the same work, in one process and with one BLAS thread.

    python benchmarks/sim.py [--json FILE]

The simulator runs at a learner's defaults: all checks and counters on. Each row gives the best of
several runs of both, their ratio and the target of issue 2 or 3; rows without a NumPy side give
seconds.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import json
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

import tklearn as tk
from tklearn import block, blockIdx, numerics, threadIdx
from tklearn.kernels import gemm, saxpy, softmax

TILE = 16


@tk.kernel(threads=(TILE, TILE))
def matmul_lanes(A: tk.gl_fl, B: tk.gl_fl, C: tk.gl_fl):
    a_s = tk.shared_array(tk.f32, TILE, TILE)
    b_s = tk.shared_array(tk.f32, TILE, TILE)
    row = blockIdx.y * TILE + threadIdx.y
    col = blockIdx.x * TILE + threadIdx.x
    total = 0.0
    for k in range(A.cols // TILE):
        a_s[threadIdx.y, threadIdx.x] = A[row, k * TILE + threadIdx.x]
        b_s[threadIdx.y, threadIdx.x] = B[k * TILE + threadIdx.y, col]
        block.sync()
        for j in range(TILE):
            total += a_s[threadIdx.y, j] * b_s[j, threadIdx.x]
        block.sync()
    C[row, col] = total


class Row(NamedTuple):
    """One comparison; without NumPy the target is a limit in seconds."""

    name: str
    sim: float
    numpy: float | None
    target: float
    stats: dict[str, int]

    @property
    def value(self) -> float:
        return self.sim / self.numpy if self.numpy else self.sim


def best(f: Callable[[], Any], n: int = 5) -> float:
    """CPU seconds: everything here is one thread, and other work on this computer counts less."""
    f()
    times = []
    for _ in range(n):
        start = time.process_time()
        f()
        times.append(time.process_time() - start)
    return min(times)


def interleaved(
    f: Callable[[], Any], g: Callable[[], Any], seconds: float = 1.5
) -> tuple[float, float]:
    """Best times of f and g, taking turns for a while, so that a busy moment hurts both."""
    pairs, stop = [], time.perf_counter() + seconds
    while len(pairs) < 5 or time.perf_counter() < stop:
        pairs.append((best(f, 1), best(g, 2)))
    return min(p[0] for p in pairs), min(p[1] for p in pairs)


def operands(m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype(ml_dtypes.bfloat16) for s in ((m, k), (k, n)))
    return a, b


def gemm_row(m: int, n: int, k: int, target: float) -> Row:
    a, b = operands(m, n, k)
    fa, fb = a.astype(np.float32), b.astype(np.float32)
    _, told = gemm.run(a, b, report=True)
    sim, plain = interleaved(lambda: gemm.run(a, b), lambda: fa @ fb)
    return Row(f"gemm {m}x{n}x{k}", sim, plain, target, told.stats)


def ragged_row() -> Row:
    """Seconds for each multiplication, against the product that fills the same tiles."""
    ragged, whole = (500, 300, 200), (512, 320, 256)
    x, y = operands(*ragged), operands(*whole)
    _, told = gemm.run(*x, report=True)
    sim, other = interleaved(lambda: gemm.run(*x), lambda: gemm.run(*y))
    each = sim / np.prod(ragged), other / np.prod(whole)
    return Row("gemm 500x300x200 per element / 512x320x256", *each, 2.0, told.stats)


def softmax_row() -> Row:
    x = np.random.default_rng(0).standard_normal((4096, 1024)).astype(np.float32)

    def plain() -> np.ndarray:
        e = np.exp(x - x.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)

    _, told = softmax.run(x, report=True)
    sim, other = interleaved(lambda: softmax.run(x), plain)
    return Row("softmax 4096x1024", sim, other, 4.0, told.stats)


def lanes_row(n: int = 256) -> Row:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((n, n)).astype(np.float32) for _ in range(2))
    c = np.zeros((n, n), np.float32)
    told = matmul_lanes[n // TILE, n // TILE](a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-3, atol=1e-3)
    return Row(
        f"matmul by lanes {n}",
        best(lambda: matmul_lanes[n // TILE, n // TILE](a, b, c), 3),
        None,
        2.0,
        told.stats,
    )


def saxpy_row(n: int = 1 << 20) -> Row:
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(n).astype(np.float32) for _ in range(2))
    _, told = saxpy.run(2.0, x, y, report=True)
    return Row(f"saxpy {n}", best(lambda: saxpy.run(2.0, x, y)), None, 0.2, told.stats)


def exact_rows() -> list[Row]:
    """mma="exact": the product alone, by NumPy and by numba where it is installed, and a gemm."""
    a, b = operands(512, 512, 512)
    fa, fb, c = a.astype(np.float32), b.astype(np.float32), np.zeros((512, 512), np.float32)
    engines = {"numpy": 0.15, "numba": 0.04}
    if find_spec("numba") is None:
        del engines["numba"]
    out = []
    for engine, target in engines.items():

        def product(engine: str = engine) -> Any:
            return numerics.product(fa, fb, c, dtype="bf16", engine=engine)

        out.append(Row(f"exact product 512, {engine}", best(product, 12), None, target, {}))
    _, told = gemm.run(a, b, report=True, mma="exact")
    seconds = best(lambda: gemm.run(a, b, mma="exact"))
    return [*out, Row("exact gemm 512", seconds, None, 0.25, told.stats)]


def rows() -> list[Row]:
    square = [gemm_row(512, 512, 512, 6.0), gemm_row(1024, 1024, 1024, 6.0)]
    return [*square, ragged_row(), softmax_row(), lanes_row(), saxpy_row(), *exact_rows()]


def main() -> int:
    out = rows()
    print(f"{'':42} {'simulator':>10} {'NumPy':>10} {'ratio':>7} {'target':>7}  batches resumes")
    for r in out:
        unit = 1e12 if "per element" in r.name else 1e3
        name = "ps" if unit == 1e12 else "ms"
        plain = f"{r.numpy * unit:7.1f} {name}" if r.numpy else ""
        value = f"{r.value:.2f}x" if r.numpy else ""
        target = f"{r.target:g}x" if r.numpy else f"{r.target * 1e3:g} ms"
        mark = "" if r.value <= r.target else "  MISSED"
        print(
            f"{r.name:42} {r.sim * unit:7.1f} {name} {plain:>10} {value:>7} {target:>7}  "
            f"{r.stats.get('batches', 0):7} {r.stats.get('resumes', 0):7}{mark}"
        )
    if "--json" in sys.argv:
        with open(sys.argv[sys.argv.index("--json") + 1], "w") as f:
            json.dump([{**r._asdict(), "value": r.value} for r in out], f, indent=1)
    return any(r.value > r.target for r in out)


if __name__ == "__main__":
    sys.exit(main())
