"""One small kernel per form of every asynchronous operation, with what NumPy says it computes.

`cases()` yields Case: `args(rng)` makes fresh arguments, `want(*args)` the outputs in order, None
for an argument that stays as it is. Small whole numbers wherever a result can then be exact, so
that a wrong layout or address shows. tests/test_cuda_async.py runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import async_cases
import numpy as np

import tklearn as tk
from tklearn import (
    arrive,
    block,
    blockIdx,
    gridDim,
    init_semaphore,
    invalidate_semaphore,
    laneid,
    tma,
    wait,
    warp,
    warpgroup,
    warpid,
)
from tklearn.tensor import NUMPY_DTYPES

BYTES = {"f32": 4, "f16": 2, "bf16": 2, "e4m3": 1, "e5m2": 1}
F32 = np.float32


@dataclass
class Case:
    """`tol` bounds |got - want| relative to the largest value; 0: the same numbers."""

    name: str
    kernel: Any
    grid: Any
    args: Callable[[np.random.Generator], list[Any]]
    want: Callable[..., list[Any]]
    consts: dict[str, Any] = field(default_factory=dict)
    tol: float = 0.0
    arch: int = 90


def whole(g: np.random.Generator, shape: Any, dtype: Any, top: int = 3) -> np.ndarray:
    """Whole numbers from -top to top."""
    return g.integers(-top, top + 1, shape).astype(F32).astype(NUMPY_DTYPES[dtype.name])


def poison(shape: Any, dtype: Any) -> np.ndarray:
    return np.full(shape, 77, F32).astype(NUMPY_DTYPES[dtype.name])


def part(x: np.ndarray, *sizes: int) -> np.ndarray:
    """A view of the first elements along each axis: outer strides larger than the sizes."""
    return x[tuple(slice(n) for n in sizes)]


def whole_rows(n: int, S: Any) -> int:
    """At least n elements that are a multiple of 16 bytes, as TMA stores need them."""
    unit = 16 // BYTES[S.name]
    return -(-n // unit) * unit


def wider(x: np.ndarray, cols: int) -> np.ndarray:
    """x with zeros behind its rows, as TMA reads past the end of them."""
    return np.pad(x, [*((0, 0),) * (x.ndim - 1), (0, cols - x.shape[-1])])


# --------------------------------------------------------------------------------- TMA copies
def _through(S: Any, sw: int, rows: int, cols: int) -> Case:
    """x by TMA into shared memory and out by all threads (y), and the other way round (z)."""

    @tk.kernel(warps=2)
    def through(x: tk.gl(S), y: tk.gl(S), z: tk.gl(S)):
        here = tk.shared(tk.st(S, rows, cols, sw))
        there = tk.shared(tk.st(S, rows, cols, sw))
        full = tk.shared(tk.semaphore)
        at = (blockIdx.y, blockIdx.x)
        if warpid() == 0:
            init_semaphore(full, 1)
            tma.expect(full, here)
            tma.load_async(here, x, at, full)
        block.load(there, x, at)
        tma.fence()
        block.sync()
        wait(full, 0)
        block.store(y, here, at)
        if warpid() == 1:
            tma.store_async(z, there, at)
            tma.store_async_wait()

    n, m = 2 * rows - 9, 3 * cols - 7
    out = whole_rows(m, S)
    pitch = out + 16

    def args(g: np.random.Generator) -> list[Any]:
        return [
            part(whole(g, (n, pitch), S), n, m),
            part(poison((n, pitch), S), n, m),
            part(poison((n, pitch), S), n, out),
        ]

    return Case(
        f"copy {S.name} {rows}x{cols} swizzle {sw}", through, (3, 2), args,
        lambda x, y, z: [None, x, wider(x, out)],
    )  # fmt: skip


def _dims() -> Iterator[Case]:
    @tk.kernel(warps=1)
    def three(x: tk.gl_bf, y: tk.gl_bf):
        s = tk.shared(tk.st_bf(32, 64), 2)
        full = tk.shared(tk.semaphore)
        init_semaphore(full, 1)
        tma.expect(full, s)
        for d in range(2):
            tma.load_async(s[d], x, (d, blockIdx.y, blockIdx.x), full)
        wait(full, 0)
        for d in range(2):
            tma.store_async(y, s[d], (1 - d, blockIdx.y, blockIdx.x))
        tma.store_async_wait()

    yield Case(
        "copy of 3 dimensions", three, (2, 2),
        lambda g: [part(whole(g, (2, 50, 120), tk.bf16), 2, 45, 101),
                   part(poison((2, 60, 112), tk.bf16), 2, 45, 104)],
        lambda x, y: [None, wider(x[::-1], 104)],
    )  # fmt: skip

    @tk.kernel(warps=1)
    def four(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared(tk.st_fl(16, 32))
        full = tk.shared(tk.semaphore)
        init_semaphore(full, 1)
        for b in range(2):
            for d in range(3):
                tma.expect(full, s)
                tma.load_async(s, x, (b, d, blockIdx.y, blockIdx.x), full)
                wait(full, (b * 3 + d) % 2)
                tma.store_async(y, s, (b, 2 - d, blockIdx.y, blockIdx.x))
                tma.store_async_read_wait()
        tma.store_async_wait()

    yield Case(
        "copy of 4 dimensions", four, (2, 2),
        lambda g: [part(whole(g, (2, 3, 32, 52), tk.f32), 2, 3, 27, 45),
                   part(poison((3, 3, 30, 64), tk.f32), 2, 3, 27, 48)],
        lambda x, y: [None, wider(x[:, ::-1], 48)],
    )  # fmt: skip

    # heads between rows: the stride of dimension 1 is less than that of dimension 2
    yield Case(
        "copy of transposed dimensions", four, (2, 2),
        lambda g: [whole(g, (2, 20, 3, 40), tk.f32).transpose(0, 2, 1, 3),
                   poison((2, 20, 3, 40), tk.f32).transpose(0, 2, 1, 3)],
        lambda x, y: [None, x[:, ::-1]],
    )  # fmt: skip


def _vectors(S: Any, n: int) -> Case:
    @tk.kernel(warps=1)
    def vectors(x: tk.gl(S), m: tk.gl(S), y: tk.gl(S)):
        s = tk.shared(tk.sv(S, n))
        u = tk.shared(tk.sv(S, n))
        v = tk.rv(S, n)
        full = tk.shared(tk.semaphore)
        init_semaphore(full, 1)
        tma.expect(full, s, u)
        tma.load_async(s, x, (blockIdx.x,), full)
        tma.load_async(u, m, (1, blockIdx.x), full)
        wait(full, 0)
        tma.store_async(y, s, (2, blockIdx.x))
        tma.store_async(y, u, (1, blockIdx.x))
        warp.load(v, u)
        warp.store(y, v, (0, blockIdx.x))
        tma.store_async_wait()

    length = 2 * n + n // 2
    out = whole_rows(length, S)
    wide = -(-length // 16) * 16
    return Case(
        f"vectors {S.name} {n}", vectors, 3,
        lambda g: [part(whole(g, wide, S), length), part(whole(g, (2, wide), S), 2, length),
                   part(poison((3, wide), S), 3, out)],
        lambda x, m, y: [None, None, wider(np.stack([m[1], m[1], x]), out)],
    )  # fmt: skip


def _reduce(S: Any, kind: str, f: Any) -> Case:
    store = getattr(tma, f"store_{kind}_async")

    @tk.kernel(warps=2)
    def reduces(x: tk.gl(S), y: tk.gl(S)):
        s = tk.shared(tk.st(S, 32, 64))
        block.load(s, x, (blockIdx.y, blockIdx.x))
        tma.fence()
        block.sync()
        if warpid() == 0:
            store(y, s, (blockIdx.y, blockIdx.x))
            tma.store_async_wait()

    def want(x: np.ndarray, y: np.ndarray) -> list[Any]:
        return [None, f(wider(x, out).astype(F32), y.astype(F32)).astype(x.dtype)]

    out = whole_rows(99, S)

    return Case(
        f"store_{kind}_async {S.name}", reduces, (2, 2),
        lambda g: [part(whole(g, (50, 128), S, 30), 50, 99),
                   part(whole(g, (50, 112), S, 30), 50, out)],
        want,
    )  # fmt: skip


def _groups() -> Iterator[Case]:
    @tk.kernel(warps=1)
    def groups(x: tk.gl_bf, y: tk.gl_bf):
        """Two buffers: a source is written again after its store has read it."""
        s = tk.shared(tk.st_bf(16, 64), 2)
        t = tk.rt_bf(16, 64)
        for i in range(x.rows // 16):
            tma.store_async_read_wait(1)
            warp.load(t, x, (i, 0))
            warp.store(s[i % 2], t)
            tma.fence()
            tma.store_async(y, s[i % 2], (i, 0))
            tma.store_commit_group()
            tma.store_async_read_wait(1)
        tma.store_async_wait(0)

    yield Case(
        "store groups", groups, 1,
        lambda g: [whole(g, (160, 64), tk.bf16), poison((160, 64), tk.bf16)],
        lambda x, y: [None, x],
    )  # fmt: skip

    @tk.kernel(warps=2)
    def ahead(x: tk.gl_bf, y: tk.gl_bf):
        """Prefetch, bytes by number, several arrivals, a semaphore that ends and starts again."""
        s = tk.shared(tk.st_bf(64, 64))
        full = tk.shared(tk.semaphore)
        for i in range(2):
            if warpid() == 0:
                tma.prefetch(s, x, (i, 0))
                init_semaphore(full, 4)
            block.sync()
            if warpid() == 0:
                tma.expect_bytes(full, 64 * 64 * 2)
                tma.load_async(s, x, (i, 0), full)
            else:
                arrive(full, 2)
                arrive(full)
            wait(full, 0)
            block.store(y, s, (i, 0))
            block.sync()
            if warpid() == 0:
                invalidate_semaphore(full)

    yield Case(
        "prefetch, counts, invalidate", ahead, 1,
        lambda g: [whole(g, (128, 64), tk.bf16), poison((128, 64), tk.bf16)],
        lambda x, y: [None, x],
    )  # fmt: skip


def _helpers() -> Iterator[Case]:
    @tk.device
    def fetch(r, tiles, A, full, empty, at: tk.i32):
        wait(empty[r.stage], r.phase ^ 1)
        here = full[r.stage]
        tma.expect(here, tiles[r.stage])
        tma.load_async(tiles[r.stage], A, (at, 0), here)
        r.advance()

    @tk.kernel(warps=2)
    def persistent(x: tk.gl_bf, u: tk.gl_bf, y: tk.gl_bf):
        """Producer and consumer warp, a ring, a helper for two arrays, a loop over all tiles."""
        tiles = tk.shared(tk.st_bf(16, 64), 3)
        full = tk.shared(tk.semaphore, 3)
        empty = tk.shared(tk.semaphore, 3)
        if warpid() == 0:
            for s in range(3):
                init_semaphore(full[s], 1)
                init_semaphore(empty[s], 1)
        block.sync()
        if warpid() == 0:
            r = tk.ring(3)
            for t in range(blockIdx.x, x.rows // 16, gridDim.x):
                fetch(r, tiles, x, full, empty, t)
                fetch(r, tiles, u, full, empty, t)
        else:
            a = tk.rt_bf(16, 64)
            b = tk.rt_bf(16, 64)
            r = tk.ring(3)
            for t in range(blockIdx.x, x.rows // 16, gridDim.x):
                wait(full[r.stage], r.phase)
                warp.load(a, tiles[r.stage])
                arrive(empty[r.stage])
                r.advance()
                wait(full[r.stage], r.phase)
                warp.load(b, tiles[r.stage])
                arrive(empty[r.stage])
                r.advance()
                warp.store(y, a + b, (t, 0))

    yield Case(
        "ring, helper, persistent loop", persistent, 5,
        lambda g: [whole(g, (23 * 16, 64), tk.bf16), whole(g, (23 * 16, 64), tk.bf16),
                   poison((23 * 16, 64), tk.bf16)],
        lambda x, u, y: [None, None, (x.astype(F32) + u.astype(F32)).astype(x.dtype)],
    )  # fmt: skip

    yield Case(
        "semaphores without TMA", tk.kernel(warps=2)(async_cases.semaphores_only), 3,
        lambda g: [whole(g, (17, 32), tk.f32), poison((17, 32), tk.f32)],
        lambda x, y: [None, 2 * x[:, ::-1]],
        arch=80,
    )  # fmt: skip
    yield Case(
        "copy", tk.kernel(warps=1)(async_cases.copy_only), (2, 2),
        lambda g: [whole(g, (60, 40), tk.f32), poison((60, 40), tk.f32)],
        lambda x, y: [None, x],
    )  # fmt: skip


# ------------------------------------------------------------------------- warpgroups' own
def _warpgroups(S: Any) -> Iterator[Case]:
    @tk.kernel(warps=8)
    def moves(x: tk.gl(S), y: tk.gl_fl, z: tk.gl(S)):
        s = tk.shared(tk.st(S, 64, 64), 2)
        wg = warpgroup.groupid()
        here = s[wg]
        t = tk.rt_fl(16, 64)
        u = tk.rt(S, 16, 64)
        warpgroup.load_async(here, x, (wg, 0))
        tk.commit_group()
        tk.wait_group(0)
        warpgroup.sync(wg + 1)
        warpgroup.load(u, here)  # from shared memory
        warp.copy(t, u)
        warpgroup.tril(t)
        warpgroup.store(y, t, (wg, 0))
        warp.copy(t, u)
        warpgroup.triu(t, 2, 5.0)
        warpgroup.store(y, t, (2 + wg, 0))
        warpgroup.load(u, x, (wg, 1))  # from global memory, past the end
        warp.copy(t, u)
        warpgroup.make_causal(t)
        warpgroup.store(y, t, (4 + wg, 0))
        warpgroup.sync(wg + 1)
        warpgroup.load(here, x, (1 - wg, 0))  # by 128 threads
        warpgroup.sync(wg + 1)
        warpgroup.load(t, here)
        warpgroup.store(here, t)
        warpgroup.sync(wg + 1)
        warpgroup.store(z, here, (wg, 0))
        if laneid() == 3:
            y[384, warpid()] = float(warpgroup.warpid() * 10 + wg)
            y[385, warpid()] = float(warpgroup.laneid())

    def want(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> list[Any]:
        f = np.zeros((128, 128), F32)
        f[:100, :90] = x
        r, c = np.mgrid[:64, :64]
        out = y.copy()
        for w in range(2):
            left, right = f[64 * w : 64 * w + 64, :64], f[64 * w : 64 * w + 64, 64:]
            rows = [slice(64 * (2 * i + w), 64 * (2 * i + w) + 64) for i in range(3)]
            out[rows[0]] = np.where(c <= r, left, 0)
            out[rows[1]] = np.where(c >= r + 2, left, 5)
            out[rows[2]] = np.where(c <= r, right, -np.inf)
        out[384, :8] = [i % 4 * 10 + i // 4 for i in range(8)]
        out[385, :8] = [i % 4 * 32 + 3 for i in range(8)]
        return [None, out, np.roll(f[:, :64], 64, axis=0).astype(x.dtype)]

    yield Case(
        f"warpgroup memory and masks {S.name}", moves, 1,
        lambda g: [part(whole(g, (100, 96), S), 100, 90), poison((386, 64), tk.f32),
                   poison((128, 64), S)],
        want, arch=80,
    )  # fmt: skip


def _named() -> Iterator[Case]:
    @tk.kernel(warps=4)
    def named(x: tk.gl_fl, y: tk.gl_fl):
        """Warps 0 and 1 write, 2 and 3 read: two named barriers, one waited for, one passed."""
        line = tk.shared(tk.sv(tk.f32, 64))
        if warpid() < 2:
            for i in range(x.rows):
                line[warpid() * 32 + laneid()] = x[i, warpid() * 32 + laneid()]
                block.arrive(1, 128)
                block.sync(2)
        else:
            for i in range(x.rows):
                block.sync(1, 128)
                y[i, (warpid() - 2) * 32 + laneid()] = line[63 - (warpid() - 2) * 32 - laneid()]
                block.sync(2)

    yield Case(
        "named barriers", named, 1,
        lambda g: [whole(g, (9, 64), tk.f32), poison((9, 64), tk.f32)],
        lambda x, y: [None, x[:, ::-1]],
        arch=75,
    )  # fmt: skip


# ------------------------------------------------------------------------------------ products
def _product(S: Any, D: Any, form: str, n: int, k: int, sa: Any = None, sb: Any = None) -> Case:
    """acc = A B (over what was there), then two more times acc += A B."""
    ta, tb = "At" in form, form.endswith("Bt")
    mm, mma = getattr(warpgroup, f"mm_{form}"), getattr(warpgroup, f"mma_{form}")
    (ra, ca), (rb, cb) = ((k, 64) if ta else (64, k)), ((n, k) if tb else (k, n))

    @tk.kernel(warps=4)
    def product(A: tk.gl(S), B: tk.gl(S), C: tk.gl(D)):
        a = tk.shared(tk.st(S, ra, ca, sa))
        b = tk.shared(tk.st(S, rb, cb, sb))
        full = tk.shared(tk.semaphore)
        acc = tk.rt(D, 16, n)
        if warpid() == 0:
            init_semaphore(full, 1)
            tma.expect(full, a, b)
            tma.load_async(a, A, (0, 0), full)
            tma.load_async(b, B, (0, 0), full)
        block.sync()
        wait(full, 0)
        warp.fill(acc, 5.0)
        mm(acc, a, b)
        warpgroup.mma_async_wait()
        warpgroup.store(C, acc, (0, 0))
        mma(acc, a, b)
        mma(acc, a, b)
        warpgroup.mma_async_wait()
        warpgroup.store(C, acc, (1, 0))

    return _product_case(
        f"{form} {S.name}->{D.name} n{n} k{k} {sa} {sb}", product, S, D, form, n, k
    )


def _product_case(name: str, kernel: Any, S: Any, D: Any, form: str, n: int, k: int) -> Case:
    ta, tb = "At" in form, form.endswith("Bt")
    of_a, of_b = ((k, 64) if ta else (64, k)), ((n, k) if tb else (k, n))

    def want(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> list[Any]:
        x, y = a.astype(F32), b.astype(F32)
        p = (x.T if ta else x) @ (y.T if tb else y)
        return [None, None, np.concatenate([p, 3 * p]).astype(c.dtype)]

    return Case(
        name, kernel, 1,
        lambda g: [whole(g, of_a, S, 2), whole(g, of_b, S, 2), poison((128, n), D)], want,
    )  # fmt: skip


def _register_product(S: Any, D: Any, form: str, n: int, k: int) -> Case:
    """A in registers; B written by ordinary stores, with a proxy fence."""
    mm, mma = getattr(warpgroup, f"mm_{form}"), getattr(warpgroup, f"mma_{form}")
    rb, cb = (n, k) if form.endswith("Bt") else (k, n)

    @tk.kernel(warps=4)
    def product(A: tk.gl(S), B: tk.gl(S), C: tk.gl(D)):
        b = tk.shared(tk.st(S, rb, cb))
        a = tk.rt(S, 16, k)
        acc = tk.rt(D, 16, n)
        block.load(b, B, (0, 0))
        warpgroup.load(a, A, (0, 0))
        tma.fence()
        block.sync()
        warp.fill(acc, 5.0)
        mm(acc, a, b)
        warpgroup.mma_async_wait()
        warpgroup.store(C, acc, (0, 0))
        mma(acc, a, b)
        mma(acc, a, b)
        warpgroup.mma_async_wait()
        warpgroup.store(C, acc, (1, 0))

    return _product_case(
        f"registers {form} {S.name}->{D.name} n{n} k{k}", product, S, D, form, n, k
    )


def _product_groups() -> Iterator[Case]:
    @tk.kernel(warps=8)
    def groups(A: tk.gl_bf, B: tk.gl_bf, C: tk.gl_fl, E: tk.gl_fl):
        """Two accumulators in flight, fence and commit by hand; each warpgroup its 64 rows."""
        a = tk.shared(tk.st_bf(64, 64), 2)
        b = tk.shared(tk.st_bf(64, 64))
        full = tk.shared(tk.semaphore)
        one = tk.rt_fl(16, 64)
        two = tk.rt_fl(16, 64)
        wg = warpgroup.groupid()
        if warpid() == 0:
            init_semaphore(full, 1)
            tma.expect(full, a, b)
            tma.load_async(a[0], A, (0, 0), full)
            tma.load_async(a[1], A, (1, 0), full)
            tma.load_async(b, B, (0, 0), full)
        block.sync()
        wait(full, 0)
        warp.zero(one)
        warpgroup.mma_fence()
        warpgroup.mma_AB(one, a[wg], b, fence=False, commit=False)
        warpgroup.mma_ABt(one, a[wg], b, fence=False, commit=False)
        warpgroup.mma_commit_group()
        warpgroup.mm_AtB(two, a[wg], b)
        warpgroup.mma_async_wait(1)
        warpgroup.store(C, one, (wg, 0))
        warpgroup.mma_async_wait()
        warpgroup.store(E, two, (wg, 0))

    def want(a: np.ndarray, b: np.ndarray, c: np.ndarray, e: np.ndarray) -> list[Any]:
        x, y = a.astype(F32), b.astype(F32)
        both = [(x[r : r + 64] @ y + x[r : r + 64] @ y.T, x[r : r + 64].T @ y) for r in (0, 64)]
        return [None, None, *(np.concatenate(p) for p in zip(*both))]

    yield Case(
        "groups of products", groups, 1,
        lambda g: [whole(g, (128, 64), tk.bf16), whole(g, (64, 64), tk.bf16),
                   poison((128, 64), tk.f32), poison((128, 64), tk.f32)],
        want,
    )  # fmt: skip


def _kernels() -> Iterator[Case]:
    """The three kernels of the design."""

    def product(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> list[Any]:
        return [None, None, (a.astype(F32) @ b.astype(F32)).astype(c.dtype)]

    gemm = tk.kernel(warps=12)(async_cases.gemm_ws)
    for m, n, k in ((256, 256, 1024), (128, 128, 64), (200, 136, 448)):
        yield Case(
            f"gemm {m}x{n}x{k}", gemm, (-(-n // 128), -(-m // 128)),
            lambda g, m=m, n=n, k=k: [whole(g, (m, k), tk.bf16, 1), whole(g, (k, n), tk.bf16, 1),
                                      poison((m, n), tk.bf16)],
            product,
        )  # fmt: skip

    def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, o: np.ndarray) -> list[Any]:
        q, k, v = (x.astype(np.float64) for x in (q, k, v))
        s = q @ np.swapaxes(k, -1, -2) / 8
        p = np.exp(s - s.max(-1, keepdims=True))
        return [None, None, None, (p @ v / p.sum(-1, keepdims=True)).astype(o.dtype)]

    def normal(g: np.random.Generator, *shape: int) -> np.ndarray:
        return g.standard_normal(shape, dtype=F32).astype(NUMPY_DTYPES["bf16"])

    attend = tk.kernel(warps=16)(async_cases.attend)
    for blocks in (1, 2, 7):
        shape = (2, 2, 192, 64), (2, 2, 128 * blocks, 64)
        yield Case(
            f"attention of {128 * blocks} keys", attend, (1, 2, 2),
            lambda g, shape=shape: [normal(g, *shape[0]), normal(g, *shape[1]),
                                    normal(g, *shape[1]), poison(shape[0], tk.bf16)],
            attention, tol=2.0**-6,  # P and O rounded to bf16, and ex2.approx
        )  # fmt: skip

    def linear(q: np.ndarray, k: np.ndarray, v: np.ndarray, o: np.ndarray) -> list[Any]:
        q, k, v = (x.astype(np.float64) for x in (q, k, v))
        return [None, None, None, (np.tril(q @ np.swapaxes(k, -1, -2)) @ v).astype(o.dtype)]

    yield Case(
        "linear attention", tk.kernel(warps=4)(async_cases.linear_attention), (2, 2),
        lambda g: [*(normal(g, 2, 2, 256, 64) for _ in "qkv"), poison((2, 2, 256, 64), tk.bf16)],
        linear, tol=2.0**-5,  # state and P rounded to bf16 for each chunk
    )  # fmt: skip


def cases() -> Iterator[Case]:
    """Every case, in a fixed order."""
    for S in (tk.f32, tk.f16, tk.bf16, tk.e4m3, tk.e5m2):
        size = BYTES[S.name]
        for sw in (0, 32, 64, 128):
            yield _through(S, sw, 32, 2 * (sw or 128) // size)
    yield _through(tk.bf16, 128, 256, 64)
    yield _through(tk.bf16, 0, 48, 48)
    yield from _dims()
    for S, n in ((tk.f32, 100), (tk.bf16, 256), (tk.f16, 8), (tk.e4m3, 48), (tk.f32, 32)):
        yield _vectors(S, n)
    for S in (tk.f32, tk.f16, tk.bf16):
        yield _reduce(S, "add", np.add)
        if S is not tk.f32:
            yield _reduce(S, "min", np.minimum)
            yield _reduce(S, "max", np.maximum)
    yield from _groups()
    yield from _helpers()
    for S in (tk.bf16, tk.f32):
        yield from _warpgroups(S)
    yield from _named()
    forms = ("AB", "ABt", "AtB", "AtBt")
    for S, D in ((tk.bf16, tk.f32), (tk.f16, tk.f32), (tk.f16, tk.f16)):
        for n in (16, 64, 128, 256):
            for form in forms:
                yield _product(S, D, form, n, 64)
            for form in ("AB", "ABt"):
                yield _register_product(S, D, form, n, 64)
    for form in forms:  # swizzles of both operands, an inner size of several column blocks
        for sa, sb in ((32, 128), (64, 32), (128, 64)):
            yield _product(tk.bf16, tk.f32, form, 64, 128, sa, sb)
    yield _product(tk.bf16, tk.f32, "AB", 80, 48)
    yield _product(tk.bf16, tk.f32, "AtBt", 208, 16)
    for S, k in ((tk.f32, 64), (tk.e4m3, 128), (tk.e5m2, 128)):
        for n in (16, 64, 128, 256):
            yield _product(S, tk.f32, "ABt", n, k)
        for sw in (32, 64):
            yield _product(S, tk.f32, "ABt", 64, k, sw, sw)
    yield from _product_groups()
    yield from _kernels()
