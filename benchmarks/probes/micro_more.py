"""More micro-kernels for calibrate.py, added after a first calibration left questions: operands of
the tensor cores from shared memory, products of warpgroups without waits between them, hits of the
L1 cache by width of access, register tiles to and from the L2 cache, one element a thread.
"""

from __future__ import annotations

from functools import cache

import tklearn as tk
from tklearn import (
    block,
    blockIdx,
    gridDim,
    init_semaphore,
    threadIdx,
    tma,
    wait,
    warp,
    warpgroup,
    warpid,
)

# ruff: noqa: B007  (kernels: the language has no `_`)


MAPS = {name: i for i, name in enumerate(("divide", "sqrt", "sin", "tanh", "log", "e4m3"))}


@cache
def tile_map(W: int, OP: int) -> tk.Kernel:
    """n times one map of a register tile of 16 values a lane, none of which takes a slow path."""

    @tk.kernel(warps=W)
    def micro_tile_map(n: tk.i32, a: tk.f32, x: tk.gl_fl, y: tk.gl_fl):
        t = tk.rt_fl(16, 32)
        q = tk.rt(tk.e4m3, 16, 32)
        warp.load(t, x, (warpid(), 0))
        for i in range(n):
            if OP == 0:
                t = a / t
            elif OP == 1:
                t = tk.sqrt(t)
            elif OP == 2:
                t = tk.sin(t)
            elif OP == 3:
                t = tk.tanh(t)
            elif OP == 4:
                t = tk.log(t)
            else:
                warp.copy(q, t)
                warp.copy(t, q)
                t += a
        warp.store(y, t, (blockIdx.x * W + warpid(), 0))

    return micro_tile_map


@cache
def step(W: int, M: int, N: int, K: int, KS: int, PAD: int = -1, TURNED: int = 0) -> tk.Kernel:
    """n times: a warp's operands come from one of two shared tiles (ldmatrix), KS of the depth K at
    a time, and are multiplied. PAD: elements after each row of a tile that is not swizzled. TURNED:
    the right operand is stored by columns, as keys are."""
    LEFT = tk.st(tk.bf16, M, K) if PAD < 0 else tk.st(tk.bf16, M, K, 0, PAD)
    ROWS, COLS = (N, K) if TURNED else (K, N)
    RIGHT = tk.st(tk.bf16, ROWS, COLS) if PAD < 0 else tk.st(tk.bf16, ROWS, COLS, 0, PAD)

    @tk.kernel(warps=W)
    def micro_step(n: tk.i32, x: tk.gl_bf, y: tk.gl_fl):
        a_s = tk.shared(LEFT, 2)
        b_s = tk.shared(RIGHT, 2)
        a = tk.rt_bf(M, KS)
        b = tk.rt_bf(KS, N, tk.col)
        bt = tk.rt_bf(N, KS)
        acc = tk.rt_fl(M, N)
        for k in range(2):
            block.load(a_s[k], x, (0, 0))
            block.load(b_s[k], x, (0, 0))
        block.sync()
        warp.zero(acc)
        for i in range(n):
            for s in tk.static_range(K // KS):
                warp.load(a, a_s[i % 2].subtile(M, KS, (0, s)))
                if TURNED == 1:
                    warp.load(bt, b_s[i % 2].subtile(N, KS, (0, s)))
                    warp.mma_ABt(acc, a, bt)
                else:
                    warp.load(b, b_s[i % 2].subtile(KS, N, (s, 0)))
                    warp.mma_AB(acc, a, b)
        warp.store(y, acc, (blockIdx.x * W + warpid(), 0))

    return micro_step


@cache
def group(GROUPS: int, N: int, DEEP: int, REGISTERS: int) -> tk.Kernel:
    """n times DEEP products (64, 64) x (64, N) of each warpgroup, then a wait. A in registers if
    REGISTERS. The semaphore lets everybody pass: it keeps the compiler from moving products."""

    @tk.kernel(warps=4 * GROUPS)
    def micro_group(n: tk.i32, x: tk.gl_bf, y: tk.gl_fl):
        a = tk.shared(tk.st_bf(64, 64), GROUPS)
        b = tk.shared(tk.st_bf(64, N))
        open_door = tk.shared(tk.semaphore)
        r = tk.rt_bf(16, 64)
        acc = tk.rt_fl(16, N)
        if warpid() == 0:
            init_semaphore(open_door, 1)
        for g in range(GROUPS):
            block.load(a[g], x, (0, 0))
        block.load(b, x, (0, 0))
        tma.fence()
        block.sync()
        wg = warpgroup.groupid()
        if REGISTERS == 1:
            warpgroup.load(r, a[wg])
        warp.zero(acc)
        for i in range(n):
            wait(open_door, 1)
            for u in tk.static_range(DEEP):
                if REGISTERS == 1:
                    warpgroup.mma_AB(acc, r, b)
                else:
                    warpgroup.mma_AB(acc, a[wg], b)
            warpgroup.mma_async_wait()
        warpgroup.store(y, acc, (blockIdx.x * GROUPS + wg, 0))

    return micro_group


@cache
def cached(W: int, WIDTH: int) -> tk.Kernel:
    """n times eight independent loads that hit the L1 cache, WIDTH floats a lane; 0: all lanes read
    one float."""

    @tk.kernel(warps=W)
    def micro_cached(n: tk.i32, x: tk.gl_fl, y: tk.gl_fl):
        total = 0.0
        lane = threadIdx.x % 32
        for i in range(n):
            for u in tk.static_range(8):
                at = (i + u) % 8
                if WIDTH == 0:
                    total += x[at * 32]
                elif WIDTH == 1:
                    total += x[at * 32 + lane]
                elif WIDTH == 2:
                    v2 = tk.vec(x, 2)[at * 32 + lane]
                    total += v2[0] + v2[1]
                else:
                    v4 = tk.vec(x, 4)[at * 32 + lane]
                    total += v4[0] + v4[1] + v4[2] + v4[3]
        y[blockIdx.x, threadIdx.x] = total

    return micro_cached


@cache
def register_tiles(W: int, WRITE: int, HALF: int) -> tk.Kernel:
    """Each warp loads (or stores) n register tiles of 16 x 64, f32 or (HALF) bf16, of its own."""
    T = tk.bf16 if HALF else tk.f32

    @tk.kernel(warps=W)
    def micro_register_tiles(n: tk.i32, x: tk.gl(T), y: tk.gl(T)):
        t = tk.rt(T, 16, 64)
        total = tk.rt(T, 16, 64)
        warp.load(total, x, (warpid(), 0))
        for i in range(n):
            at = ((i * gridDim.x + blockIdx.x) * W + warpid(), 0)
            if WRITE == 1:
                warp.store(y, total, at)
            else:
                warp.load(t, x, at)
                total += t
        warp.store(y, total, (blockIdx.x * W + warpid(), 0))

    return micro_register_tiles


@tk.kernel(threads=256)
def copy1(x: tk.gl_fl, y: tk.gl_fl):
    """One float a thread: blocks of 1 KiB."""
    i = blockIdx.x * 256 + threadIdx.x
    y[i] = x[i]


@tk.kernel(threads=256)
def add1(x: tk.gl_fl, y: tk.gl_fl, z: tk.gl_fl):
    """Two floats in, one out, a thread."""
    i = blockIdx.x * 256 + threadIdx.x
    z[i] = x[i] + y[i]


@cache
def fused(W: int) -> tk.Kernel:
    """n times 32 products of a broadcast and a column, both from shared memory, for each lane."""

    @tk.kernel(warps=W)
    def micro_fused(n: tk.i32, y: tk.gl_fl):
        a = tk.shared_array(tk.f32, 32, 32)
        b = tk.shared_array(tk.f32, 32, 32)
        lane = threadIdx.x % 32
        if warpid() == 0:
            for k in range(32):
                a[k, lane] = 0.5
                b[k, lane] = 0.25
        total = 0.0
        for i in range(n):
            block.sync()
            for j in tk.static_range(32):
                total += a[warpid(), j] * b[j, lane]
        y[blockIdx.x, threadIdx.x] = total

    return micro_fused
