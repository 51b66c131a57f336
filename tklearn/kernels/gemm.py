"""C = A @ B on the tensor cores of any GPU from sm_80 (f16: sm_75), for any M, N and K.

A block computes a BM x BN tile of C. Tiles of A and B come by cp.async into a ring of STAGES, so
that the copies for the next steps run while the tensor cores work on this one. Each warp keeps a
WM x WN part of the tile in registers. Edges need no code: loads past the end read zeros, stores
past it write nothing.
"""

from functools import cache
from typing import Any, NamedTuple

import numpy as np

import tklearn as tk
from tklearn import block, blockIdx, warp, warpid
from tklearn.kernels.arrays import cdiv, fit, launch, look, output

HALVES = (tk.bf16, tk.f16)


class Config(NamedTuple):
    """A choice of tiles.

    BM, BN: of a block. BK, STAGES: the inner dimension's step, and how many are in shared memory.
    WM, WN: of a warp. KS: how much of a step is in registers. GROUP: tile rows that run together.
    """

    BM: int = 128
    BN: int = 128
    BK: int = 64
    STAGES: int = 2
    WM: int = 64
    WN: int = 64
    KS: int = 32
    GROUP: int = 8


BIG = Config()
SMALL = Config(64, 64, 64, 4, 32, 32, 64)


@cache
def make(T: Any = tk.bf16, config: Config = BIG) -> tk.Kernel:
    """The kernel for one dtype and one choice of tiles."""
    BM, BN, BK, STAGES, WM, WN, KS, GROUP = config

    @tk.kernel(warps=BM // WM * (BN // WN))
    def gemm(A: tk.gl(T), B: tk.gl(T), C: tk.gl(T)):
        a_s = tk.shared(tk.st(T, BM, BK), STAGES)
        b_s = tk.shared(tk.st(T, BK, BN), STAGES)
        a = tk.rt(T, WM, KS)
        b = tk.rt(T, KS, WN, tk.col)
        acc = tk.rt(tk.f32, WM, WN)
        warp.zero(acc)

        # Which tile of C: column by column inside groups of GROUP tile rows, for the L2 cache.
        rows = tk.cdiv(C.rows, BM)
        width = GROUP * tk.cdiv(C.cols, BN)
        first = blockIdx.x // width * GROUP
        height = min(rows - first, GROUP)
        row = first + blockIdx.x % width % height
        col = blockIdx.x % width // height
        i = warpid() // (BN // WN)  # this warp's part of the tile
        j = warpid() % (BN // WN)

        steps = tk.cdiv(A.cols, BK)
        for k in range(STAGES - 1):
            block.load_async(a_s[k], A, (row, k))
            block.load_async(b_s[k], B, (k, col))
            tk.commit_group()
        for k in range(steps):
            tk.wait_group(STAGES - 2)  # my copies for step k are here
            block.sync()  # everybody's are, and nobody reads step k - 1 any more
            ahead = k + (STAGES - 1)
            if ahead < steps:
                block.load_async(a_s[ahead % STAGES], A, (row, ahead))
                block.load_async(b_s[ahead % STAGES], B, (ahead, col))
            tk.commit_group()
            for s in tk.static_range(BK // KS):
                warp.load(a, a_s[k % STAGES].subtile(WM, KS, (i, s)))
                warp.load(b, b_s[k % STAGES].subtile(KS, WN, (s, j)))
                warp.mma_AB(acc, a, b)
        warp.store(C, acc, (row * (BM // WM) + i, col * (BN // WN) + j))

    return gemm


def choose(m: int, n: int) -> Config:
    """Big tiles if they fill a large GPU once, else small ones."""
    return BIG if cdiv(m, BIG.BM) * cdiv(n, BIG.BN) >= 128 else SMALL


def run(
    a: Any,
    b: Any,
    *,
    config: Config | None = None,
    out: Any = None,
    report: bool = False,
    **options: Any,
) -> Any:
    """a (M, K) @ b (K, N) in bf16 or f16, summed in f32, rounded once to their dtype.

    `config`: other tiles than `choose` would take; sm_75 has shared memory for SMALL only.
    """
    x = look(a, "a", 2, HALVES)
    y = look(b, "b", 2, (x.dtype,))
    (m, k), (k2, n) = x.shape, y.shape
    fit(k == k2, f"a is {x.shape} and b is {y.shape}: the inner sizes {k} and {k2} differ")
    out = output(out, a, (m, n))
    config = config or choose(m, n)
    grid = cdiv(m, config.BM) * cdiv(n, config.BN)
    told = launch(make(x.dtype, config), grid, a, b, out, options=options)
    return (out, told) if report else out


def reference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a @ b with float32 inputs and float64 sums."""
    return a.astype(np.float64) @ b.astype(np.float64)
