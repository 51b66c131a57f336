"""The launches of timing_error.py: kernels of the gallery at several shapes, and variants of one
kernel. None of them is used for calibration.

A launch names its arrays by dtype and shape only, so that it can be predicted without any.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import ladder

import tklearn as tk
from tklearn.kernels import (
    attention,
    attention_hopper,
    gemm,
    gemm_hopper,
    layernorm,
    linear_attention,
    reduction,
    rotary,
    saxpy,
    softmax,
    transpose,
)
from tklearn.kernels.arrays import cdiv

DTYPES = {"bfloat16": tk.bf16, "float16": tk.f16, "float32": tk.f32}


@dataclass(frozen=True)
class Shape:
    """An array argument."""

    dtype: str
    dims: tuple[int, ...]


@dataclass(frozen=True)
class Timed:
    """One launch. `family`: whose variants are ranked together, "" for a gallery kernel; `variant`
    names it there."""

    kernel: str
    shape: str
    fn: Any
    grid: Any
    args: tuple[Any, ...]
    consts: dict[str, Any] = field(default_factory=dict)
    family: str = ""
    variant: str = ""

    @property
    def name(self) -> str:
        return " ".join(x for x in (self.kernel, self.shape, self.variant) if x)


def _bf(*dims: int) -> Shape:
    return Shape("bfloat16", dims)


def _fl(*dims: int) -> Shape:
    return Shape("float32", dims)


def rows_cases() -> Iterator[Timed]:
    """Row-wise kernels, which memory bounds."""
    for rows, cols, name in (
        (4096, 1024, "bfloat16"), (16384, 1024, "bfloat16"), (262144, 1024, "bfloat16"),
        (65536, 1024, "float32"), (65536, 4096, "bfloat16"), (32768, 256, "bfloat16"),
    ):  # fmt: skip
        x = Shape(name, (rows, cols))
        kernel = softmax.short(DTYPES[name])
        yield Timed("softmax", f"{rows}x{cols} {name}", kernel, cdiv(rows, 2), (x, x), {"D": cols})
    x = _fl(8192, 16384)
    yield Timed("softmax_long", "8192x16384 float32", softmax.long(tk.f32), 8192, (x, x))
    for rows, cols in ((4096, 1024), (16384, 1024), (262144, 1024), (65536, 2048)):
        x, w = _bf(rows, cols), _bf(cols)
        consts = {"EPS": 1e-5, "D": cols}
        yield Timed("layernorm", f"{rows}x{cols} bfloat16", layernorm.short(tk.bf16), rows,
                    (x, x, w, w, x, x), consts)  # fmt: skip
    for batch, heads, rows, d in (
        (1, 16, 4096, 64), (1, 16, 16384, 64), (1, 16, 16384, 128), (16, 16, 16384, 64),
    ):  # fmt: skip
        x, t = _bf(batch, heads, rows, d), _bf(rows, d // 2)
        grid = (cdiv(rows * (d // 16), rotary.THREADS), cdiv(heads, 4), batch)
        yield Timed("rotary", f"{batch}x{heads}x{rows}x{d} bfloat16", rotary.make(tk.bf16), grid,
                    (x, t, t, x), {"D": d, "W": 8})  # fmt: skip


def plain_cases() -> Iterator[Timed]:
    """Lanes: saxpy, transposes, sums."""
    for n in (1 << 20, 1 << 23, 1 << 27):
        x = _fl(n)
        yield Timed("saxpy", f"{n} float32", saxpy.saxpy, cdiv(n, 256), (n, 1e-3, x, x))
    for size in (2048, 8192, 16384):
        x = _fl(size, size)
        for name, make in transpose.VARIANTS.items():
            yield Timed(f"transpose_{name}", f"{size}x{size} float32", make(tk.f32),
                        (size // 32, size // 32), (x, x))  # fmt: skip
    for n in (1 << 22, 1 << 28):
        x, blocks = _fl(n), cdiv(n, reduction.SHARE)
        yield Timed("sum_staged", f"{n} float32", reduction.staged(tk.f32), blocks,
                    (n, x, _fl(blocks)))  # fmt: skip
        yield Timed("sum_atomic", f"{n} float32", reduction.atomic(tk.f32), blocks, (n, x, _fl(1)))


def tensor_cases() -> Iterator[Timed]:
    """Products and attention."""
    for m, n, k in (
        (512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048), (4096, 4096, 4096),
        (8192, 8192, 8192), (8192, 1024, 4096), (4096, 4096, 512), (1536, 1536, 6144),
        (4095, 4097, 4088),
    ):  # fmt: skip
        config = gemm.choose(m, n)
        grid = cdiv(m, config.BM) * cdiv(n, config.BN)
        yield Timed("gemm", f"{m}x{n}x{k} bfloat16", gemm.make(tk.bf16, config), grid,
                    (_bf(m, k), _bf(k, n), _bf(m, n)))  # fmt: skip
    for batch, heads, n, d, causal in (
        (4, 16, 512, 64, False), (4, 16, 2048, 64, False), (2, 16, 8192, 64, False),
        (4, 16, 2048, 128, False), (4, 16, 2048, 64, True), (2, 16, 4096, 128, True),
    ):  # fmt: skip
        x = _bf(batch, heads, n, d)
        kernel = attention.make(tk.bf16, d, causal)
        name = "attention causal" if causal else "attention"
        yield Timed(name, f"{batch}x{heads}x{n}x{d} bfloat16", kernel, (cdiv(n, 64), heads, batch),
                    (x, x, x, x, 0.18))  # fmt: skip


def hopper_cases() -> Iterator[Timed]:
    """TMA and warpgroups."""
    for m, n, k in (
        (1024, 1024, 1024), (4096, 4096, 4096), (8192, 8192, 8192), (2048, 8192, 1024),
    ):  # fmt: skip
        args = (_bf(m, k), _bf(k, n), _bf(m, n))
        shape = f"{m}x{n}x{k} bfloat16"
        yield Timed("gemm_hopper simple", shape, gemm_hopper.simple(), (n // 128, m // 128), args)
        config = gemm_hopper.choose(m, n, k, 132)
        tiles = cdiv(m, 64 * config.CONSUMERS) * cdiv(n, config.BN)
        kernel = gemm_hopper.persistent(tk.bf16, config)
        yield Timed("gemm_hopper persistent", shape, kernel, min(tiles, 132), args)
    for n, d, causal in (
        (1024, 64, False), (4096, 64, False), (16384, 64, False), (2048, 128, False),
        (8192, 128, False), (4096, 64, True), (8192, 128, True),
    ):  # fmt: skip
        batch, heads = 16384 // n, 2048 // d
        x = _bf(batch, heads, n, d)
        name = "attention_hopper causal" if causal else "attention_hopper"
        grid = (cdiv(n, 64 * attention_hopper.consumers(d)), heads, batch)
        kernel = attention_hopper.make(tk.bf16, d, causal)
        yield Timed(name, f"{batch}x{heads}x{n}x{d} bfloat16", kernel, grid, (x, x, x, x, 0.18))
    for heads, n in ((16, 1024), (16, 4096)):
        x = _bf(16, heads, n, 64)
        yield Timed("linear_attention", f"16x{heads}x{n}x64 bfloat16", linear_attention.make(),
                    (heads, 16), (x, x, x, x))  # fmt: skip


def variant_cases() -> Iterator[Timed]:
    """What is ranked: the ladder, stages, paddings."""
    n = 2048
    args = (_bf(n, n), _bf(n, n), _bf(n, n))
    shape = f"{n}x{n}x{n} bfloat16"

    def product(family: str, variant: str, fn: Any, grid: Any, **consts: Any) -> Timed:
        return Timed(fn.__name__, shape, fn, grid, args, consts, family, variant)

    yield product("ladder", "naive", ladder.naive, (n // 32, n // 8))
    yield product("ladder", "shared", ladder.shared, (n // 32, n // 32))
    yield product("ladder", "mma", ladder.tensor, (n // 64, n // 64))
    yield product("ladder", "cp.async", ladder.ring, (n // 128, n // 128), STAGES=3)
    yield product("ladder", "wgmma", ladder.wgmma, (n // 128, n // 64))
    yield product("ladder", "TMA", ladder.specialised, (n // 128, n // 128), STAGES=4)
    for stages in (1, 2, 3):
        yield product("stages", f"{stages}", ladder.ring, (n // 128, n // 128), STAGES=stages)
        yield product("TMA stages", f"{stages}", ladder.specialised, (n // 128, n // 128),
                      STAGES=stages)  # fmt: skip
    for pad in (0, 1, 8):
        x = _fl(8192, 8192)
        yield Timed("transpose", "8192x8192 float32", ladder.transpose, (256, 256), (x, x),
                    {"PAD": pad}, "transpose padding", f"{pad}")  # fmt: skip
    for pad in (-1, 0, 1, 8):
        yield product("tile padding", f"{pad}" if pad >= 0 else "swizzle", ladder.padded(pad),
                      (n // 64, n // 64))  # fmt: skip
    for name, config in (
        ("128x128x64 s2", gemm.Config(128, 128, 64, 2, 64, 64, 32, 8)),
        ("128x128x64 s3", gemm.Config(128, 128, 64, 3, 64, 64, 32, 8)),
        ("128x128x32 s4", gemm.Config(128, 128, 32, 4, 64, 64, 16, 8)),
        ("64x64x64 s4", gemm.SMALL),
        ("128x256x64 s3", gemm.Config(128, 256, 64, 3, 64, 64, 16, 8)),
        ("128x128x64 w32", gemm.Config(128, 128, 64, 3, 32, 64, 32, 8)),
    ):
        m = 4096
        grid = cdiv(m, config.BM) * cdiv(m, config.BN)
        yield Timed("gemm", f"{m}x{m}x{m} bfloat16", gemm.make(tk.bf16, config), grid,
                    (_bf(m, m), _bf(m, m), _bf(m, m)), {}, "gemm tiles", name)  # fmt: skip
    for config in (
        gemm_hopper.WIDE, gemm_hopper.Config(BN=192, STAGES=4), gemm_hopper.Config(STAGES=6),
        gemm_hopper.Config(BN=64, STAGES=8), gemm_hopper.Config(3, 128),
        gemm_hopper.Config(STAGES=2),
    ):  # fmt: skip
        name = f"{config.CONSUMERS} consumers, {config.BN} columns, {config.STAGES} stages"
        yield Timed("gemm_hopper persistent", f"{m}x{m}x{m} bfloat16",
                    gemm_hopper.persistent(tk.bf16, config), 132,
                    (_bf(m, m), _bf(m, m), _bf(m, m)), {}, "persistent tiles", name)  # fmt: skip


def timed() -> list[Timed]:
    """All launches."""
    parts = (rows_cases, plain_cases, tensor_cases, hopper_cases, variant_cases)
    return [t for part in parts for t in part()]
