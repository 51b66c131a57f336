"""Kernels that together use every IR node and every row of the op table, for the CUDA tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import tklearn as tk
from tklearn import block, blockDim, blockIdx, gridDim, laneid, threadIdx, warp, warpid
from tklearn.lang import frontend, ir
from tklearn.lang import types as T


def specialise(
    fn: Callable[..., Any], threads: Any, ndims: dict[str, int] | None = None, **consts: Any
) -> ir.Kernel:
    """`fn` for blocks of `threads`; arrays have the dimensions in `ndims`, else 1."""
    params, defaults = frontend.parameters(fn)
    types = {
        n: replace(t, ndim=(ndims or {}).get(n, 1)) if isinstance(t, T.GL) else t
        for n, t in params.items()
        if not isinstance(t, T.ConstType)
    }
    shape = (threads, 1, 1) if isinstance(threads, int) else tuple(threads)
    return frontend.specialise(fn, shape, types, {**defaults, **consts})


# ------------------------------------------------------------------------------- example kernels
def saxpy(n: tk.i32, a: tk.f32, x: tk.gl_fl, y: tk.gl_fl):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < n:
        y[i] = a * x[i] + y[i]


def transpose(src: tk.gl_fl, dst: tk.gl_fl):
    tile = tk.shared_array(tk.f32, 32, 33)
    x = blockIdx.x * 32 + threadIdx.x
    for j in range(0, 32, 8):
        tile[threadIdx.y + j, threadIdx.x] = src[blockIdx.y * 32 + threadIdx.y + j, x]
    block.sync()
    x = blockIdx.y * 32 + threadIdx.x
    for j in range(0, 32, 8):
        dst[blockIdx.x * 32 + threadIdx.y + j, x] = tile[threadIdx.x, threadIdx.y + j]


def softmax(x: tk.gl_bf, y: tk.gl_bf):
    row = tk.rt_fl(16, 128)
    warp.load(row, x, (blockIdx.x * 4 + warpid(), 0))
    row = tk.exp(row - tk.row_max(row))
    row /= tk.row_sum(row)
    warp.store(y, row, (blockIdx.x * 4 + warpid(), 0))


def layernorm(
    x: tk.gl_bf, w: tk.gl_bf, b: tk.gl_bf, y: tk.gl_bf, D: tk.const = 256, EPS: tk.const = 1e-5
):
    at = blockIdx.x * 4 + warpid()
    v = tk.rv(tk.f32, D)
    g = tk.rv(tk.f32, D)
    warp.load(v, x, (at, 0))
    v -= tk.sum(v) / D
    v *= tk.rsqrt(tk.sum(v * v) / D + EPS)
    warp.load(g, w, (0,))
    v *= g
    warp.load(g, b, (0,))
    v += g
    warp.store(y, v, (at, 0))


def gemm(A: tk.gl_bf, B: tk.gl_bf, C: tk.gl_bf, STAGES: tk.const = 2):
    a_s = tk.shared(tk.st_bf(64, 64), STAGES)
    b_s = tk.shared(tk.st_bf(64, 64), STAGES)
    a = tk.rt_bf(16, 64)
    b = tk.rt_bf(64, 64, tk.col)
    acc = tk.rt_fl(16, 64)
    warp.zero(acc)
    steps = A.cols // 64
    for k in range(STAGES - 1):
        block.load_async(a_s[k], A, (blockIdx.y, k))
        block.load_async(b_s[k], B, (k, blockIdx.x))
        tk.commit_group()
    for k in range(steps):
        tk.wait_group(STAGES - 2)
        block.sync()
        last = k + STAGES - 1
        if last < steps:
            block.load_async(a_s[last % STAGES], A, (blockIdx.y, last))
            block.load_async(b_s[last % STAGES], B, (last, blockIdx.x))
        tk.commit_group()
        here = a_s[k % STAGES]
        warp.load(a, here.subtile(16, 64, (warpid(), 0)))
        warp.load(b, b_s[k % STAGES])
        warp.mma_AB(acc, a, b)
    warp.store(C, acc, (blockIdx.y * 4 + warpid(), blockIdx.x))


def histogram(n: tk.i32, x: tk.gl(tk.u8), count: tk.gl(tk.i32)):
    bins = tk.shared_array(tk.i32, 256)
    bins[threadIdx.x] = 0
    block.sync()
    for i in range(blockIdx.x * 256 + threadIdx.x, n, 256):
        tk.atomic_add(bins[x[i]], 1)
    block.sync()
    tk.atomic_add(count[threadIdx.x], bins[threadIdx.x])


def warp_sum(x: tk.gl_fl, y: tk.gl_fl):
    total = x[blockIdx.x * 32 + laneid()]
    delta = 16
    while delta > 0:
        total += warp.shfl_down(total, delta)
        delta //= 2
    if laneid() == 0:
        y[blockIdx.x] = total


def parameters(i: tk.i32, A: tk.gl_fl, ok: tk.bool_, f: tk.f32, big: tk.i64, no: tk.bool_,
               u: tk.u32, B: tk.gl_bf):  # fmt: skip
    if ok and not no:
        A[i] = f + float(big) + float(u) + B[0, 1]


# ------------------------------------------------------------------- every node of lanes' language
@tk.intrinsic(cuda="__popc({x})", sim=lambda x: x, result=tk.i32)
def popc(x):
    """Bits that are set."""


@tk.intrinsic(cuda="{x} * {x}", sim=lambda x: x * x)
def square(x):
    """x times x."""


@tk.intrinsic(cuda="__nanosleep({ns});", sim=lambda ns: None, result=None)
def nap(ns):
    """Waits."""


@tk.device
def scale(t, factor: tk.f32, twice: tk.const):
    t *= factor
    if twice:
        t *= factor


@tk.device
def larger(a: tk.i32, b: tk.i32):
    c = a if a > b else b
    return c


@tk.device
def larger_plus(a: tk.i32):
    a += 1
    return larger(a, 3)


def nodes(
    n: tk.i32,
    half: tk.f32,
    big: tk.i64,
    u: tk.u32,
    flag: tk.bool_,
    x: tk.gl_fl,
    y: tk.gl(tk.i32),
    h: tk.gl_hf,
    c: tk.gl(tk.u8),
    A: tk.gl_hf,
):
    s = tk.shared_array(tk.f32, 32, 33)
    hist = tk.shared_array(tk.i32, 32)
    tile = tk.shared(tk.st_hf(64, 64))
    part = tk.shared(tk.sv(tk.f32, 32), 2, 2)
    i = blockIdx.x * blockDim.x + threadIdx.x
    w = i // 3 - 7
    w = w // 3 + w % 5 + n // 2
    w //= 3
    w %= 4
    w <<= 1
    w = w ^ (i & 7) | 3
    w = -(-w) + ~i - (i - (n - 1)) - gridDim.x
    v = half * 2.0 + 1.0 - x[threadIdx.x] / 3.0
    v = v * v - half
    for k in range(0, n // 2, 2):
        w += k
    for k in range(n - 1, -1, -1):
        if k == 3 or (k < 1 and not flag) or 1 < k < 5:
            continue
        elif k > 100:
            break
        else:
            w -= k if k > 2 else 0
    for k in range(w):
        w += k
    while w > 0 and flag:
        w -= 10
    a, d = w, i
    a, d = d, a
    hist[threadIdx.x % 32], w = w, hist[0]
    s[threadIdx.x % 32, 0] = v
    h[i] = v
    h[i] += 1
    c[i] = c[i] + 1
    c[i] += 1
    tile[0, i % 64] = float(a) + float(u)
    z = tile[0, 1] + h[threadIdx.x]
    part[0, 1][threadIdx.x % 32] = z
    quad = tk.vec(x, 4)[i]
    tk.vec(x, 4)[i] = (quad[0], quad[1], quad[2] + 1.0, quad[3])
    tk.vec(x, 4)[threadIdx.x] = quad
    tk.vec(h, 2)[i + 1] = (z, 1.0)
    r = tk.reg_array(tk.f32, 4)
    for q in tk.static_range(2):
        r[q] = quad[q] * 2.0
    packed = tk.reg_array(tk.f16, 8)
    packed[0] = 1.0
    packed[0] += 2.0
    t = tk.rt_fl(16, 16)
    narrow = tk.rt_hf(16, 16)
    warp.zero(t)
    warp.zero(narrow)
    x[i] = t.reg(0) + narrow.reg(1)
    scale(t, 2.0, True)
    scale(t, 2.0, False)
    scale(narrow, 2.0, False)
    t = t * half + t
    t = half - t * tk.row_max(t)
    t = -t
    e = larger_plus(threadIdx.x) + larger(i, 3)
    y[i] = e + int(v) + tk.i32(big) + tk.i32(u > 3) + tk.i32(flag) + A.cols * A.rows
    y[i] += popc(i + 1)
    v += square(v - 1.0) * 2.0
    nap(i)
    g = tk.i64(i) * big
    m = tk.max(i, 3) + tk.min(w, n, e) + tk.cdiv(n, 3) + abs(w)
    p = tk.u32(m) + u * 3 >> 2
    bins = hist
    old = tk.atomic_add(bins[threadIdx.x % 32], m)
    tk.atomic_max(y[0], old)
    ok = warp.any(i > 3) and flag
    y[i] = 1 if g > 3 and p != 0 else 0
    assert w < 100, 'w is "too big": 100%'
    assert ok
    print("x =", v, i, "100%", threadIdx.x, big, flag)
    print("hello")
    breakpoint()
    if ok and n > 100:
        return
    pass


# ---------------------------------------------------------------------------- every tile operation
TILE_DIMS = {"A": 2, "B": 3, "C": 2, "out": 2}


def tiles(dtype: T.DType) -> Callable[..., Any]:
    """A kernel of 2 warps with every operation on tiles of `dtype`."""

    def tile_operations(
        A: tk.gl(dtype), B: tk.gl(dtype), C: tk.gl_fl, v: tk.gl(dtype), out: tk.gl(dtype)
    ):
        s = tk.shared(tk.st(dtype, 32, 32))
        pair = tk.shared(tk.st(dtype, 32, 32, 0, 8), 2)
        sv = tk.shared(tk.sv(dtype, 64))
        block.load(s, A, (blockIdx.x, blockIdx.y))
        block.load_async(pair[0], B, (0, blockIdx.x, 0))
        warp.load_async(pair[1], A, (1, 1))
        warp.load(sv, v, (1,))
        tk.commit_group()
        tk.wait_group(0)
        warp.sync()
        block.sync()
        a = tk.rt(dtype, 32, 32)
        at_ = tk.rt(dtype, 32, 32, tk.col)
        b = tk.rt(dtype, 32, 32, tk.col)
        bt = tk.rt(dtype, 32, 32)
        acc = tk.rt_fl(32, 32)
        warp.load(a, s)
        warp.load(at_, A, (blockIdx.x, warpid()))
        warp.load(b, pair[0])
        warp.load(bt, s.subtile(32, 32, (0, 0)))
        warp.zero(acc)
        warp.mma_AB(acc, a, b)
        warp.mma_ABt(acc, a, bt)
        warp.mma_AtB(acc, at_, b)
        warp.mma_AtBt(acc, at_, bt)
        warp.tril(acc)
        warp.triu(acc, warpid(), 1.0)
        warp.make_causal(acc)
        warp.right_fill(acc, 30, 0.0)
        warp.left_fill(acc, warpid())
        warp.upper_fill(acc, 1, 2.0)
        warp.lower_fill(acc, 31)
        big = tk.row_max(acc)
        big = tk.row_max(acc, big)
        small = tk.row_min(acc)
        total = tk.row_sum(acc, small)
        wide = tk.col_sum(acc) + tk.col_max(acc) * tk.col_min(acc)
        wide = tk.col_sum(acc, wide)
        f = tk.exp(acc - big) / total
        f = tk.max(f, acc) + tk.min(f, 1.0)
        f = tk.exp2(f) + tk.log(f) * tk.log2(f) - tk.sqrt(f) * tk.rsqrt(f)
        f += tk.rcp(f) - tk.tanh(f)
        big = tk.sin(big) + tk.cos(big)
        f *= tk.relu(f) + tk.abs(f) * wide
        f -= tk.sum(big) + tk.max(wide) * tk.min(small)
        g = tk.convert(f, dtype)
        g = tk.swap_layout(tk.swap_layout(g))
        g = tk.transpose(g) + tk.copy(g)
        low = tk.rt_hf(32, 32)
        warp.copy(low, f)
        warp.one(low)
        warp.neg_infty(small)
        warp.pos_infty(small)
        warp.fill(small, tk.sum(total))
        r = tk.rv(dtype, 64)
        r2 = tk.rv(tk.f32, 64)
        warp.load(r, sv)
        warp.copy(r2, r)
        r2 = r2 * 2.0 + 1.0
        warp.store(sv, r2)
        warp.store(v, r2, (0,))
        warp.store(s, g)
        part = tk.rt(dtype, 16, 16)
        warp.load(part, s.subtile(16, 16, (0, warpid())))
        warp.store(s.subtile(16, 16, (warpid(), 0)), part)
        block.sync()
        block.store(out, s, (blockIdx.x, 0))
        warp.store(out, s, (2, 2))
        warp.store(C, acc, (blockIdx.x, warpid()))

    return tile_operations


def products(dtype: T.DType) -> Callable[..., Any]:
    """A kernel with one product of `dtype`, from and to shared memory."""

    def product(A: tk.gl(dtype), C: tk.gl_fl):
        s = tk.shared(tk.st(dtype, 32, 32))
        warp.load(s, A, (0, 0))
        warp.sync()
        a = tk.rt(dtype, 32, 32)
        b = tk.rt(dtype, 32, 32, tk.col)
        acc = tk.rt_fl(32, 32)
        warp.zero(acc)
        warp.load(a, s)
        warp.load(b, A, (0, 1))
        warp.mma_AB(acc, a, b)
        s[0, 1] = 3.0 + s[0, 0]
        a = tk.convert(acc, dtype)
        warp.store(s, a)
        warp.store(C, acc, (0, 0))

    return product


def instructions(A: tk.gl_bf, x: tk.gl_fl, y: tk.gl(tk.i32), u: tk.gl(tk.u32), C: tk.gl_fl):
    s = tk.shared(tk.st_bf(32, 32))
    f = tk.shared(tk.sv(tk.f32, 32))
    warp.load(s, A, (0, 0))
    warp.sync()
    a = tk.reg_array(tk.bf16, 8)
    b = tk.reg_array(tk.bf16, 4)
    c = tk.reg_array(tk.f32, 4)
    ta = tk.reg_array(tk.f32, 4)
    tb = tk.reg_array(tk.f32, 2)
    for i in tk.static_range(4):
        c[i] = 0.0
        ta[i] = x[i]
    tb[0] = ta[1]
    tb[1] = ta[2]
    lane = laneid()
    warp.ldmatrix(a, s[lane % 16, lane // 16 * 8])
    warp.ldmatrix(b, s[lane % 16, 16], True)
    warp.mma_m16n8k16(c, a, b)
    warp.mma_m16n8k8(c, ta, tb)
    v = (
        warp.shfl(c[0], 3)
        + warp.shfl_up(c[1], 1)
        + warp.shfl_down(c[2], 2)
        + warp.shfl_xor(c[3], 1)
    )
    n = warp.shfl(threadIdx.x, 0)
    if warp.all(v > 0.0) and warp.any(v > 1.0):
        n += tk.i32(warp.ballot(v > 2.0))
    n += warp.uniform(n)
    f[lane] = v
    g = tk.atomic_add(f[0], v) + tk.exp(v)
    n += tk.atomic_max(y[0], lane)
    tk.atomic_min(y[1], lane)
    tk.atomic_exch(u[0], tk.u32(lane))
    n += tk.atomic_cas(y[2], 0, lane)
    tk.atomic_add(x[0], g)
    y[3] = n
    quad = tk.vec(A, 4)[0, lane]
    C[0, lane] = quad[1] + tk.max(v, 0.0) + tk.min(v, 1.0) + tk.abs(v) + tk.relu(v) + tk.sin(v)


# -------------------------------------------------------------------- calls that C++ is picky about
@tk.device
def normalise(t):
    t /= tk.row_sum(t)
    return t


@tk.device
def corner(tile, window, bins, parts, v, quad, big: tk.i64):
    r = tk.rt_hf(16, 16)
    warp.load(r, window)
    warp.store(tile.subtile(16, 16, (0, 1)), r)
    bins[threadIdx.x % 32] = quad[0]
    parts[1][0] = tk.sum(v) + float(big)
    tk.vec(bins, 4)[threadIdx.x % 8] = (quad[0], 1.0, 2.0, quad[3])


def corners(x: tk.gl_fl, A: tk.gl_hf, ok: tk.gl(tk.bool_), big: tk.i64):
    tile = tk.shared(tk.st_hf(32, 32))
    bins = tk.shared_array(tk.f32, 32)
    line = tk.shared_array(tk.f32, 32, 1)
    parts = tk.shared(tk.sv(tk.f32, 32), 2)
    row = tk.rt_fl(16, 16)
    warp.load(row, A, (blockIdx.x, 0))
    row = tk.exp(row)
    shifted = normalise(row) + 1.0
    row += shifted
    v = tk.row_max(row)
    corner(tile, tile.subtile(16, 16, (0, 0)), bins, parts, v, tk.vec(x, 4)[threadIdx.x], big)
    corner(tile, tile.subtile(16, 16, (0, 0)), bins, parts, v, tk.vec(x, 4)[threadIdx.x], big)
    half = threadIdx.x if blockIdx.x > 2 else blockIdx.x
    if threadIdx.x == blockIdx.x and not ok[threadIdx.x]:
        half = -threadIdx.x
    line[threadIdx.x, 0] = tk.min(threadIdx.x, half) + float(threadIdx.x)
    int_ = tk.max(threadIdx.x, blockIdx.y)
    ok[threadIdx.x] = int_ < half
    a, b = threadIdx.x, blockIdx.x
    a, b = b + threadIdx.y, a
    x[a] = b // 2 + a % 3 + tk.i64(threadIdx.x) // big
    x[threadIdx.x] -= line[threadIdx.x, 0] * 2.0
    tk.atomic_add(x[threadIdx.x], 1.0)
    for i in range(threadIdx.x, x.cols, 32):
        x[i] = 0.0
    print(threadIdx.x, blockIdx.x)
