"""Kernels that together use every IR node and every row of the op table, for the CUDA tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import tklearn as tk
from tklearn import block, blockDim, blockIdx, gridDim, laneid, threadIdx, warp, warpid
from tklearn.lang import frontend, ir
from tklearn.lang import types as T


def specialise(fn: Callable[..., Any], threads: Any, ndims: dict[str, int] | None = None, **consts: Any) -> ir.Kernel:
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


def layernorm(x: tk.gl_bf, w: tk.gl_bf, b: tk.gl_bf, y: tk.gl_bf, D: tk.const = 256, EPS: tk.const = 1e-5):
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


def nodes(n: tk.i32, half: tk.f32, big: tk.i64, u: tk.u32, flag: tk.bool_,
          x: tk.gl_fl, y: tk.gl(tk.i32), h: tk.gl_hf, c: tk.gl(tk.u8), A: tk.gl_hf):
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
