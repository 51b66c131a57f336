"""Variants of one kernel, for timing_error.py: does the estimate put them in the measured order?

A matrix product from a thread for each element to TMA and warp specialisation, the stages of its
ring, the padding of a transpose's tile and of a tile that ldmatrix reads.
"""

from __future__ import annotations

from functools import cache

import tklearn as tk
from tklearn import (
    arrive,
    block,
    blockIdx,
    init_semaphore,
    threadIdx,
    tma,
    wait,
    warp,
    warpgroup,
    warpid,
)


@tk.kernel(threads=(32, 8))
def naive(A: tk.gl_bf, B: tk.gl_bf, C: tk.gl_bf):
    """A thread an element, everything from global memory."""
    row = blockIdx.y * 8 + threadIdx.y
    col = blockIdx.x * 32 + threadIdx.x
    total = 0.0
    for k in range(A.cols):
        total += A[row, k] * B[k, col]
    C[row, col] = total


@tk.kernel(threads=(32, 32))
def shared(A: tk.gl_bf, B: tk.gl_bf, C: tk.gl_bf):
    """A thread an element, 32 x 32 tiles in shared memory."""
    a = tk.shared_array(tk.f32, 32, 32)
    b = tk.shared_array(tk.f32, 32, 32)
    row = blockIdx.y * 32 + threadIdx.y
    col = blockIdx.x * 32 + threadIdx.x
    total = 0.0
    for k in range(0, A.cols, 32):
        a[threadIdx.y, threadIdx.x] = A[row, k + threadIdx.x]
        b[threadIdx.y, threadIdx.x] = B[k + threadIdx.y, col]
        block.sync()
        for j in tk.static_range(32):
            total += a[threadIdx.y, j] * b[j, threadIdx.x]
        block.sync()
    C[row, col] = total


@tk.kernel(warps=4)
def tensor(A: tk.gl_bf, B: tk.gl_bf, C: tk.gl_bf):
    """64 x 64 a block on the tensor cores, one tile at a time."""
    a_s = tk.shared(tk.st_bf(64, 64))
    b_s = tk.shared(tk.st_bf(64, 64))
    a = tk.rt_bf(16, 64)
    b = tk.rt_bf(64, 64, tk.col)
    acc = tk.rt_fl(16, 64)
    warp.zero(acc)
    for k in range(A.cols // 64):
        block.load(a_s, A, (blockIdx.y, k))
        block.load(b_s, B, (k, blockIdx.x))
        block.sync()
        warp.load(a, a_s.subtile(16, 64, (warpid(), 0)))
        warp.load(b, b_s)
        warp.mma_AB(acc, a, b)
        block.sync()
    warp.store(C, acc, (blockIdx.y * 4 + warpid(), blockIdx.x))


@tk.kernel(warps=4)
def ring(A: tk.gl_bf, B: tk.gl_bf, C: tk.gl_bf, STAGES: tk.const):
    """128 x 128 a block; STAGES tiles by cp.async. With one stage every copy is waited for."""
    a_s = tk.shared(tk.st_bf(128, 64), STAGES)
    b_s = tk.shared(tk.st_bf(64, 128), STAGES)
    a = tk.rt_bf(64, 32)
    b = tk.rt_bf(32, 64, tk.col)
    acc = tk.rt_fl(64, 64)
    warp.zero(acc)
    steps = A.cols // 64
    for k in range(STAGES - 1):
        block.load_async(a_s[k], A, (blockIdx.y, k))
        block.load_async(b_s[k], B, (k, blockIdx.x))
        tk.commit_group()
    for k in range(steps):
        ahead = k + STAGES - 1
        if STAGES == 1:
            block.sync()
            block.load_async(a_s[0], A, (blockIdx.y, k))
            block.load_async(b_s[0], B, (k, blockIdx.x))
            tk.commit_group()
            tk.wait_group(0)
            block.sync()
        else:
            tk.wait_group(STAGES - 2)
            block.sync()
            if ahead < steps:
                block.load_async(a_s[ahead % STAGES], A, (blockIdx.y, ahead))
                block.load_async(b_s[ahead % STAGES], B, (ahead, blockIdx.x))
            tk.commit_group()
        for s in tk.static_range(2):
            warp.load(a, a_s[k % STAGES].subtile(64, 32, (warpid() // 2, s)))
            warp.load(b, b_s[k % STAGES].subtile(32, 64, (s, warpid() % 2)))
            warp.mma_AB(acc, a, b)
    warp.store(C, acc, (blockIdx.y * 2 + warpid() // 2, blockIdx.x * 2 + warpid() % 2))


@tk.kernel(warps=4)
def wgmma(A: tk.gl_bf, B: tk.gl_bf, C: tk.gl_bf):
    """64 x 128 a block by one warpgroup, one tile at a time."""
    a = tk.shared(tk.st_bf(64, 64))
    b = tk.shared(tk.st_bf(64, 128))
    acc = tk.rt_fl(16, 128)
    warp.zero(acc)
    for k in range(A.cols // 64):
        block.load(a, A, (blockIdx.y, k))
        block.load(b, B, (k, blockIdx.x))
        tma.fence()
        block.sync()
        warpgroup.mma_AB(acc, a, b)
        warpgroup.mma_async_wait()
        block.sync()
    warpgroup.store(C, acc, (blockIdx.y, blockIdx.x))


@tk.kernel(warps=12)
def specialised(A: tk.gl_bf, B: tk.gl_bf, C: tk.gl_bf, STAGES: tk.const):
    """128 x 128 a block: a producer warpgroup loads by TMA, two consumers multiply."""
    a = tk.shared(tk.st_bf(64, 64), STAGES, 2)
    b = tk.shared(tk.st_bf(64, 128), STAGES)
    full = tk.shared(tk.semaphore, STAGES)
    empty = tk.shared(tk.semaphore, STAGES)
    if warpid() == 0:
        for s in range(STAGES):
            init_semaphore(full[s], 1)
            init_semaphore(empty[s], 8)
    block.sync()
    row = blockIdx.y * 2
    wg = warpgroup.groupid()
    if wg == 2:
        warpgroup.decrease_registers(40)
        if warpgroup.warpid() == 0:
            for k in range(A.cols // 64):
                s = k % STAGES
                wait(empty[s], (k // STAGES + 1) % 2)
                tma.expect(full[s], a[s], b[s])
                for m in range(2):
                    tma.load_async(a[s, m], A, (row + m, k), full[s])
                tma.load_async(b[s], B, (k, blockIdx.x), full[s])
    else:
        warpgroup.increase_registers(232)
        acc = tk.rt_fl(16, 128)
        warp.zero(acc)
        for k in range(A.cols // 64):
            s = k % STAGES
            wait(full[s], k // STAGES % 2)
            warpgroup.mma_AB(acc, a[s, wg], b[s])
            warpgroup.mma_async_wait()
            arrive(empty[s])
        warpgroup.store(C, acc, (row + wg, blockIdx.x))


@tk.kernel(threads=(32, 8))
def transpose(src: tk.gl_fl, dst: tk.gl_fl, PAD: tk.const):
    """Rows in, columns out, through a tile of 32 + PAD columns."""
    tile = tk.shared_array(tk.f32, 32, 32 + PAD)
    for j in range(0, 32, 8):
        tile[threadIdx.y + j, threadIdx.x] = src[
            blockIdx.y * 32 + threadIdx.y + j, blockIdx.x * 32 + threadIdx.x
        ]
    block.sync()
    for j in range(0, 32, 8):
        dst[blockIdx.x * 32 + threadIdx.y + j, blockIdx.y * 32 + threadIdx.x] = tile[
            threadIdx.x, threadIdx.y + j
        ]


@cache
def padded(PAD: int) -> tk.Kernel:
    """As `tensor`, its tiles padded by PAD elements and not swizzled (-1: swizzled)."""
    kind = tk.st_bf(64, 64) if PAD < 0 else tk.st_bf(64, 64, 0, PAD)

    @tk.kernel(warps=4)
    def padded_tensor(A: tk.gl_bf, B: tk.gl_bf, C: tk.gl_bf):
        a_s = tk.shared(kind)
        b_s = tk.shared(kind)
        a = tk.rt_bf(16, 64)
        b = tk.rt_bf(64, 64, tk.col)
        acc = tk.rt_fl(16, 64)
        warp.zero(acc)
        for k in range(A.cols // 64):
            block.load(a_s, A, (blockIdx.y, k))
            block.load(b_s, B, (k, blockIdx.x))
            block.sync()
            warp.load(a, a_s.subtile(16, 64, (warpid(), 0)))
            warp.load(b, b_s)
            warp.mma_AB(acc, a, b)
            block.sync()
        warp.store(C, acc, (blockIdx.y * 4 + warpid(), blockIdx.x))

    return padded_tensor
