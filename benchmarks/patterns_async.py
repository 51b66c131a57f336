"""Launches whose TMA and wgmma counters are measured: small kernels, and the gallery for sm_90a.

Like patterns.py: counters.py measures, tests/test_counters.py compares; at most one block for each
SM, and the same arguments each time. Shapes are chosen so that rows begin and end inside a sector.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from patterns import Case, filled, view

import tklearn as tk
from tklearn import block, blockIdx, init_semaphore, tma, wait, warpgroup, warpid
from tklearn.kernels import attention_hopper, gemm_hopper, linear_attention
from tklearn.kernels.gemm_hopper import Config
from tklearn.tensor import NUMPY_DTYPES

BF, F32 = tk.bf16, tk.f32


# --------------------------------------------------------------------------------------------- TMA
@cache
def moved(T: Any, R: int, C: int, SW: int) -> tk.Kernel:
    """A tile in and out by TMA, one a block."""

    @tk.kernel(warps=1)
    def moved(x: tk.gl(T), y: tk.gl(T)):
        s = tk.shared(tk.st(T, R, C, SW))
        full = tk.shared(tk.semaphore)
        init_semaphore(full, 1)
        tma.expect(full, s)
        tma.load_async(s, x, (blockIdx.y, blockIdx.x), full)
        wait(full, 0)
        tma.store_async(y, s, (blockIdx.y, blockIdx.x))
        tma.store_async_wait()

    return moved


def _tiles() -> Iterator[Case]:
    shapes = [  # tile, swizzle, rows, columns; elements between rows of x, before its first
        (BF, 64, 64, 128, 128, 128, 0, 0),
        (BF, 64, 64, 64, 128, 128, 0, 0),
        (BF, 64, 64, 32, 128, 128, 0, 0),
        (BF, 64, 64, 0, 128, 128, 0, 0),
        (BF, 16, 256, 128, 32, 512, 0, 0),
        (BF, 64, 64, 128, 100, 104, 0, 0),  # rows of 208 bytes
        (BF, 64, 64, 128, 100, 75, 13, 0),
        (BF, 64, 64, 32, 70, 41, 7, 8),
        (BF, 64, 64, 128, 64, 128, 8, 8),  # rows from 16 bytes into a sector
        (BF, 64, 64, 128, 64, 128, 16, 8),
        (BF, 32, 32, 0, 40, 27, 5, 0),
        (F32, 32, 32, 128, 64, 64, 0, 0),
        (F32, 32, 32, 128, 45, 45, 3, 0),
        (F32, 32, 64, 64, 45, 101, 3, 4),
        (tk.e4m3, 64, 128, 128, 100, 203, 5, 0),
        (tk.f16, 128, 64, 128, 300, 64, 0, 0),
        (F32, 16, 64, 0, 30, 75, 1, 4),  # rows of a box of 256 bytes
        (F32, 16, 128, 0, 20, 140, 4, 4),
    ]
    for T, R, C, SW, rows, cols, extra, shift in shapes:
        grid = (-(-cols // C), -(-rows // R), 1)
        wide = -(-cols * T.itemsize // 16) * 16 // T.itemsize
        yield Case(
            f"tma {T.name} {R}x{C}/{SW} of {rows}x{cols}+{extra}@{shift}", moved(T, R, C, SW), grid,
            lambda T=T, s=(rows, cols), w=wide, extra=extra, shift=shift:
            [view(s, T, extra, shift), filled((s[0], w), T)],
        )  # fmt: skip


@cache
def lines(T: Any, N: int) -> tk.Kernel:
    """A vector in and out by TMA, and added to another."""

    @tk.kernel(warps=1)
    def lines(x: tk.gl(T), y: tk.gl(T), z: tk.gl(T)):
        s = tk.shared(tk.sv(T, N))
        full = tk.shared(tk.semaphore)
        init_semaphore(full, 1)
        tma.expect(full, s)
        tma.prefetch(s, x, (blockIdx.x,))
        tma.load_async(s, x, (blockIdx.x,), full)
        wait(full, 0)
        tma.store_async(y, s, (blockIdx.x,))
        tma.store_add_async(z, s, (1, blockIdx.x))
        tma.store_async_wait()

    return lines


@tk.kernel(warps=1)
def planes(x: tk.gl_bf, y: tk.gl_bf):
    """Tiles of four dimensions."""
    s = tk.shared(tk.st_bf(32, 64), 2)
    full = tk.shared(tk.semaphore)
    init_semaphore(full, 1)
    tma.expect(full, s)
    for d in range(2):
        tma.load_async(s[d], x, (blockIdx.z, d, blockIdx.y, blockIdx.x), full)
    wait(full, 0)
    for d in range(2):
        tma.store_add_async(y, s[d], (blockIdx.z, 1 - d, blockIdx.y, blockIdx.x))
    tma.store_async_wait()


def _lines() -> Iterator[Case]:
    for T, n, length in ((BF, 64, 320), (BF, 256, 1000), (F32, 32, 100)):
        yield Case(
            f"tma vectors {T.name} {n} of {length}", lines(T, n), (-(-length // n), 1, 1),
            lambda T=T, length=length: [filled((length,), T), filled((length,), T),
                                        filled((2, length), T)],
        )  # fmt: skip
    yield Case(
        "tma vectors bf16 256 of 700@8", lines(BF, 256), (3, 1, 1),
        lambda: [view((700,), BF, 0, 8), view((704,), BF, 0, 8), view((2, 704), BF, 8, 8)],
    )  # fmt: skip
    yield Case(
        "tma planes", planes, (2, 2, 3),
        lambda: [view((3, 2, 50, 104), BF, 8, 0), filled((3, 2, 50, 104), BF)],
    )  # fmt: skip


# ------------------------------------------------------------------------------------------- wgmma
@cache
def product(T: Any, D: Any, N: int, K: int, SW: int, REGISTERS: bool) -> tk.Kernel:
    """Two products of 64 x N x K a warpgroup; B lies N x K."""

    @tk.kernel(warps=8)
    def product(A: tk.gl(T), B: tk.gl(T), C: tk.gl(D)):
        a = tk.shared(tk.st(T, 64, K, SW), 2)
        b = tk.shared(tk.st(T, N, K, SW))
        full = tk.shared(tk.semaphore)
        wg = warpgroup.groupid()
        if warpid() == 0:
            init_semaphore(full, 1)
            tma.expect(full, a, b)
            for i in range(2):
                tma.load_async(a[i], A, (i, 0), full)
            tma.load_async(b, B, (0, 0), full)
        block.sync()
        wait(full, 0)
        acc = tk.rt(D, 16, N)
        if REGISTERS:
            r = tk.rt(T, 16, K)
            warpgroup.load(r, a[wg])
            warpgroup.mm_ABt(acc, r, b)
            warpgroup.mma_ABt(acc, r, b)
        else:
            warpgroup.mm_ABt(acc, a[wg], b)
            warpgroup.mma_ABt(acc, a[wg], b)
        warpgroup.mma_async_wait()
        warpgroup.store(C, acc, (wg, 0))

    return product


def _products() -> Iterator[Case]:
    for T, D, N, K, SW, registers in (
        (BF, F32, 64, 64, 128, False), (BF, F32, 256, 64, 128, False),
        (BF, F32, 16, 64, 128, False), (BF, F32, 128, 32, 64, False),
        (BF, F32, 128, 16, 32, False), (BF, F32, 128, 64, 128, True),
        (tk.f16, F32, 64, 64, 128, False), (tk.f16, tk.f16, 64, 64, 128, False),
        (F32, F32, 64, 32, 128, False), (tk.e4m3, F32, 64, 128, 128, False),
        (tk.e5m2, F32, 128, 64, 64, False),
    ):  # fmt: skip
        how = "registers" if registers else f"/{SW}"
        yield Case(
            f"wgmma {T.name}->{D.name} n{N} k{K} {how}", product(T, D, N, K, SW, registers),
            (1, 1, 1),
            lambda T=T, D=D, N=N, K=K:
            [filled((128, K), T), filled((N, K), T), filled((128, N), D)],
        )  # fmt: skip


# --------------------------------------------------------------------------------- the gallery
def _small(*shape: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.standard_normal(shape, dtype=np.float32).astype(NUMPY_DTYPES["bf16"])


def _gallery() -> Iterator[Case]:
    two, wide = Config(2, 64, 64, 3, 2), gemm_hopper.WIDE
    for m, n, k, config in ((256, 256, 256, two), (130, 136, 200, two), (256, 512, 192, wide)):
        tiles = (-(-n // config.BN), -(-m // (64 * config.CONSUMERS)), 1)

        def args(m: int = m, n: int = n, k: int = k) -> list[Any]:
            return [_small(m, k), _small(k, n, seed=1), np.zeros((m, n), NUMPY_DTYPES["bf16"])]

        yield Case(f"hopper gemm simple {m}x{n}x{k}", gemm_hopper.simple(BF, config), tiles, args)
        yield Case(
            f"hopper gemm persistent {m}x{n}x{k}", gemm_hopper.persistent(BF, config),
            (max(1, tiles[0] * tiles[1] - 1), 1, 1), args,
        )  # fmt: skip
    for shape, causal in (
        ((1, 2, 384, 64), False), ((1, 2, 384, 64), True), ((1, 2, 200, 64), True),
        ((1, 2, 256, 128), True),
    ):  # fmt: skip
        for variant in ("simple", "persistent"):
            kernel, grid = attention_hopper.plan(BF, shape, causal, variant)
            yield Case(
                f"hopper attention {variant} {'x'.join(map(str, shape))} {'causal' * causal}",
                kernel, grid if isinstance(grid, tuple) else (grid, 1, 1),
                lambda shape=shape: [*(_small(*shape, seed=i) for i in range(3)), _small(*shape),
                                     attention_hopper.LOG2E * shape[-1] ** -0.5],
            )  # fmt: skip
    for n in (256, 200):
        yield Case(
            f"hopper linear attention {n}", linear_attention.make(2), (2, 1, 1),
            lambda n=n: [_small(1, 2, n, 64, seed=i) for i in range(4)],
        )  # fmt: skip


@cache
def all_cases() -> tuple[Case, ...]:
    """Every launch, in a fixed order."""
    return (*_tiles(), *_lines(), *_products(), *_gallery())
