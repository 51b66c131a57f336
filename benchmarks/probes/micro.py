"""Micro-kernels for calibrate.py: each repeats one thing `n` times, so that two values of n give
its cost alone. Written in tklearn's own language, because what is calibrated is what its headers
make of an operation.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import tklearn as tk
from tklearn import (
    arrive,
    block,
    blockIdx,
    gridDim,
    init_semaphore,
    laneid,
    threadIdx,
    tma,
    wait,
    warp,
    warpgroup,
    warpid,
)

# ruff: noqa: B007  (kernels: the language has no `_`)

# What an operation of tile_op is: name -> its number in the kernel. Of each, `tile` is 16 x 64 f32.
TILE_OPS = {
    name: i
    for i, name in enumerate((
        "fma", "add", "exp2", "exp", "row_max", "row_sum", "convert", "tril", "scale", "max",
        "rsqrt", "divide", "col_max", "log2", "swap", "col_sum",
    ))
}  # fmt: skip


@cache
def tile_op(W: int, OP: int) -> tk.Kernel:
    """n times one operation on a register tile of 32 values a lane. The values stay finite, but for
    `divide`, which doubles them: finite in the shorter launch only, and fit_timing.py takes that.
    """

    @tk.kernel(warps=W)
    def micro_tile_op(n: tk.i32, a: tk.f32, x: tk.gl_fl, y: tk.gl_fl):
        t = tk.rt_fl(16, 64)
        v = tk.col_vec(16)
        r = tk.row_vec(64)
        p = tk.rt_bf(16, 64)
        warp.load(t, x, (warpid(), 0))
        warp.zero(v)
        warp.zero(r)
        for i in range(n):
            if OP == 0:
                t = t * a + a
            elif OP == 1:
                t = t + a
            elif OP == 2:
                t = tk.exp2(t)
            elif OP == 3:
                t = tk.exp(t)
            elif OP == 4:
                v = tk.row_max(t, v)
                t += v
            elif OP == 5:
                v = tk.row_sum(t, v)
                t += v
            elif OP == 6:
                warp.copy(p, t)
                warp.copy(t, p)
                t += a
            elif OP == 7:
                warp.tril(t, i, a)
            elif OP == 8:
                t *= v
            elif OP == 9:
                t = tk.max(t, a)
                t += a
            elif OP == 10:
                t = tk.rsqrt(t)
            elif OP == 11:
                t /= a
            elif OP == 12:
                r = tk.col_max(t, r)
                t += r
            elif OP == 13:
                t = tk.log2(t)
            elif OP == 14:
                t = tk.swap_layout(tk.swap_layout(t))
            else:
                r = tk.col_sum(t, r)
                t += r
        t += v
        t += r
        warp.store(y, t, (blockIdx.x * W + warpid(), 0))

    return micro_tile_op


VECTOR_OPS = {name: i for i, name in enumerate(("add", "exp", "sum", "max", "rsqrt"))}


@cache
def vector_op(W: int, OP: int) -> tk.Kernel:
    """n times one operation on a register vector of 1024 values, 32 a lane."""

    @tk.kernel(warps=W)
    def micro_vector_op(n: tk.i32, a: tk.f32, x: tk.gl_fl, y: tk.gl_fl):
        t = tk.rv(tk.f32, 1024)
        warp.load(t, x, (warpid(), 0))
        for i in range(n):
            if OP == 0:
                t = t + a
            elif OP == 1:
                t = tk.exp(t)
            elif OP == 2:
                t = t + tk.sum(t)
            elif OP == 3:
                t = t + tk.max(t)
            else:
                t = tk.rsqrt(t)
        warp.store(y, t, (blockIdx.x * W + warpid(), 0))

    return micro_vector_op


LANE_OPS = {name: i for i, name in enumerate((
    "iadd", "imul", "idiv", "fadd", "shuffle", "branch", "atomic_shared", "fdiv",
))}  # fmt: skip


@cache
def lane_op(W: int, OP: int) -> tk.Kernel:
    """n times eight of one scalar operation, each waiting for the one before."""

    @tk.kernel(warps=W)
    def micro_lane_op(n: tk.i32, k: tk.i32, a: tk.f32, y: tk.gl_fl):
        cells = tk.shared_array(tk.f32, 32)
        if threadIdx.x < 32:
            cells[threadIdx.x] = 0.0
        block.sync()
        j = laneid()
        f = a * laneid()
        for i in range(n):
            for u in tk.static_range(8):
                if OP == 0:
                    j = (j ^ k) + i
                elif OP == 1:
                    j = (j * k) & 1023
                elif OP == 2:
                    j = (j + 1000000) // k
                elif OP == 3:
                    f = f + a
                elif OP == 4:
                    f = warp.shfl_xor(f, 1 + u)
                elif OP == 5:
                    if j < i:
                        j = j + k
                elif OP == 6:
                    tk.atomic_add(cells[laneid()], f)
                else:
                    f = f / a
        y[blockIdx.x, threadIdx.x] = f + j + cells[laneid()]

    return micro_lane_op


@cache
def shared_chain(W: int, STRIDE: int) -> tk.Kernel:
    """n dependent loads of one word a lane from shared memory, lanes STRIDE words apart."""

    @tk.kernel(warps=W)
    def micro_shared(n: tk.i32, y: tk.gl_fl):
        cells = tk.shared_array(tk.i32, 1024)
        for i in range(threadIdx.x, 1024, W * 32):
            cells[i] = (i + STRIDE * 32) % 1024
        block.sync()
        j = laneid() * STRIDE
        for i in range(n):
            for u in tk.static_range(8):
                j = cells[j]
        y[blockIdx.x, threadIdx.x] = j * 1.0

    return micro_shared


@cache
def global_chain(W: int) -> tk.Kernel:
    """n dependent loads of a warp's 128 bytes; x[i] says where to go on."""

    @tk.kernel(warps=W)
    def micro_chain(n: tk.i32, x: tk.gl(tk.i32), y: tk.gl_fl):
        j = (blockIdx.x * W + warpid()) * 32 % x.cols + laneid()
        for i in range(n):
            j = x[j]
        y[blockIdx.x, threadIdx.x] = j * 1.0

    return micro_chain


@cache
def stream(W: int, WRITE: int) -> tk.Kernel:
    """Each block reads (and writes) its tiles of 4 KiB a warp, n of them, then begins again."""

    @tk.kernel(warps=W)
    def micro_stream(n: tk.i32, laps: tk.i32, x: tk.gl_fl, y: tk.gl_fl):
        t = tk.rv(tk.f32, 1024)
        total = tk.rv(tk.f32, 1024)
        warp.load(total, x, (0, 0))
        for lap in range(laps):
            for i in range(n):
                at = ((i * gridDim.x + blockIdx.x) * W + warpid(), 0)
                if WRITE == 2:
                    warp.store(y, total, at)
                else:
                    warp.load(t, x, at)
                    if WRITE == 1:
                        warp.store(y, t, at)
                    else:
                        total += t
        if WRITE == 0:
            warp.store(y, total, (blockIdx.x * W + warpid(), 0))

    return micro_stream


@tk.kernel(threads=256)
def copy4(x: tk.gl_fl, y: tk.gl_fl):
    """One access of 16 bytes a thread: blocks of 4 KiB."""
    i = blockIdx.x * 256 + threadIdx.x
    tk.vec(y, 4)[i] = tk.vec(x, 4)[i]


@cache
def tiles(ORDER: int) -> tk.Kernel:
    """Copies tiles of 32 rows of 128 bytes; the next block's lies beside (0) or below (1)."""

    @tk.kernel(threads=(32, 8))
    def micro_tiles(x: tk.gl_fl, y: tk.gl_fl):
        row = blockIdx.x if ORDER else blockIdx.y
        col = blockIdx.y if ORDER else blockIdx.x
        for j in range(0, 32, 8):
            r = row * 32 + threadIdx.y + j
            y[r, col * 32 + threadIdx.x] = x[r, col * 32 + threadIdx.x]

    return micro_tiles


@cache
def nothing(W: int) -> tk.Kernel:
    """A kernel that ends at once: what a launch costs, and a block."""

    @tk.kernel(warps=W)
    def micro_nothing(n: tk.i32, y: tk.gl_fl):
        if n > 0:
            y[threadIdx.x] = 0.0

    return micro_nothing


@cache
def barrier(W: int, KIND: int) -> tk.Kernel:
    """n meetings of all warps: 0 block.sync, 1 a named barrier, 2 a semaphore, 3 warp.sync."""

    @tk.kernel(warps=W)
    def micro_barrier(n: tk.i32, y: tk.gl_fl):
        sem = tk.shared(tk.semaphore)
        if warpid() == 0:
            init_semaphore(sem, W)
        block.sync()
        for i in range(n):
            if KIND == 0:
                block.sync()
            elif KIND == 1:
                block.sync(1, W * 32)
            elif KIND == 2:
                arrive(sem)
                wait(sem, i % 2)
            else:
                warp.sync()
        y[blockIdx.x, threadIdx.x] = 1.0

    return micro_barrier


@cache
def mma(W: int, M: int, N: int, K: int, T: Any = tk.bf16) -> tk.Kernel:
    """n products (M, K) x (K, N) of one warp, operands in registers."""

    @tk.kernel(warps=W)
    def micro_mma(n: tk.i32, x: tk.gl(T), y: tk.gl_fl):
        a = tk.rt(T, M, K)
        b = tk.rt(T, K, N, tk.col)
        acc = tk.rt_fl(M, N)
        warp.load(a, x, (0, 0))
        warp.load(b, x, (0, 0))
        warp.zero(acc)
        for i in range(n):
            warp.mma_AB(acc, a, b)
        warp.store(y, acc, (blockIdx.x * W + warpid(), 0))

    return micro_mma


@cache
def fragments(W: int, COL: int, PAD: int, SWIZZLE: int) -> tk.Kernel:
    """n loads of a 64 x 64 bf16 shared tile into registers (ldmatrix), and nothing else."""
    layout = tk.col if COL else tk.row

    @tk.kernel(warps=W)
    def micro_fragments(n: tk.i32, x: tk.gl_bf, y: tk.gl_bf):
        s = tk.shared(tk.st(tk.bf16, 64, 64, SWIZZLE, PAD))
        t = tk.rt(tk.bf16, 64, 64, layout)
        block.load(s, x, (0, 0))
        block.sync()
        for i in range(n):
            warp.load(t, s)
        warp.store(y, t, (blockIdx.x * W + warpid(), 0))

    return micro_fragments


@cache
def wgmma(GROUPS: int, N: int, LATE: int, REGISTERS: int = 0) -> tk.Kernel:
    """n products (64, 64) x (64, N) of each warpgroup; LATE: how many stay under way."""

    @tk.kernel(warps=4 * GROUPS)
    def micro_wgmma(n: tk.i32, x: tk.gl_bf, y: tk.gl_fl):
        a = tk.shared(tk.st_bf(64, 64))
        b = tk.shared(tk.st_bf(64, N))
        r = tk.rt_bf(16, 64)
        acc = tk.rt_fl(16, N)
        block.load(a, x, (0, 0))
        block.load(b, x, (0, 0))
        tma.fence()
        block.sync()
        if REGISTERS == 1:
            warpgroup.load(r, a)
        warp.zero(acc)
        for i in range(n):
            if REGISTERS == 1:
                warpgroup.mma_AB(acc, r, b)
            else:
                warpgroup.mma_AB(acc, a, b)
            warpgroup.mma_async_wait(LATE)
        warpgroup.mma_async_wait()
        warpgroup.store(y, acc, (blockIdx.x * GROUPS + warpgroup.groupid(), 0))

    return micro_wgmma


@cache
def tma_ring(ROWS: int, COLS: int, STAGES: int, STEP: int, SHARE: int = 1) -> tk.Kernel:
    """n TMA loads of one box by one warp, STAGES under way, from `tiles` boxes. Neighbouring blocks
    start STEP boxes apart; SHARE of them (negative: every SHARE-th one) read the same boxes."""

    @tk.kernel(warps=1)
    def micro_tma(n: tk.i32, tiles: tk.i32, x: tk.gl_bf, y: tk.gl_fl):
        s = tk.shared(tk.st_bf(ROWS, COLS), STAGES)
        full = tk.shared(tk.semaphore, STAGES)
        for k in range(STAGES):
            init_semaphore(full[k], 1)
        block.sync()
        at = (blockIdx.x // SHARE if SHARE > 0 else blockIdx.x % -SHARE) * STEP % tiles
        for k in range(STAGES):
            tma.expect(full[k], s[k])
            tma.load_async(s[k], x, (at, 0), full[k])
            at = (at + 1) % tiles
        for i in range(n):
            wait(full[i % STAGES], i // STAGES % 2)
            tma.expect(full[i % STAGES], s[i % STAGES])
            tma.load_async(s[i % STAGES], x, (at, 0), full[i % STAGES])
            at = (at + 1) % tiles
        for k in range(STAGES):
            wait(full[(n + k) % STAGES], (n + k) // STAGES % 2)
        y[blockIdx.x, threadIdx.x] = 1.0

    return micro_tma


@cache
def tma_store(ROWS: int, COLS: int) -> tk.Kernel:
    """n TMA stores of one box by one warp, one under way."""

    @tk.kernel(warps=1)
    def micro_tma_store(n: tk.i32, tiles: tk.i32, y: tk.gl_bf):
        s = tk.shared(tk.st_bf(ROWS, COLS))
        at = blockIdx.x * 16 % tiles
        for i in range(n):
            tma.store_async(y, s, (at, 0))
            tma.store_async_wait(1)
            at = (at + 1) % tiles
        tma.store_async_wait()

    return micro_tma_store


@cache
def copy_ring(W: int, ROWS: int, COLS: int, STAGES: int, SHARE: int = 1) -> tk.Kernel:
    """n cp.async copies of one tile by the block, STAGES - 1 under way; STAGES 0: plain loads.
    SHARE neighbouring blocks copy the same tiles."""
    DEPTH = max(STAGES, 1)

    @tk.kernel(warps=W)
    def micro_copy(n: tk.i32, tiles: tk.i32, step: tk.i32, x: tk.gl_bf, y: tk.gl_fl):
        s = tk.shared(tk.st_bf(ROWS, COLS), DEPTH)
        at = blockIdx.x // SHARE * step % tiles
        if STAGES == 0:
            for i in range(n):
                block.load(s[0], x, (at, 0))
                block.sync()
                at = (at + 1) % tiles
        else:
            for k in range(STAGES - 1):
                block.load_async(s[k], x, (at, 0))
                tk.commit_group()
                at = (at + 1) % tiles
            for i in range(n):
                block.load_async(s[(i + STAGES - 1) % STAGES], x, (at, 0))
                tk.commit_group()
                at = (at + 1) % tiles
                tk.wait_group(STAGES - 1)
                block.sync()
            tk.wait_group(0)
        y[blockIdx.x, threadIdx.x] = 1.0

    return micro_copy


@tk.kernel(warps=4)
def atomics(n: tk.i32, y: tk.gl_fl):
    """n atomic additions of one lane of each block, all blocks to one place."""
    if threadIdx.x == 0:
        for i in range(n):
            tk.atomic_add(y[0], 1.0)
