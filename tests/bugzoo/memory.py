"""Kinds 34 to 36: memory that nobody wrote, alignment and bounds, layouts, blocks, limits."""

from __future__ import annotations

import numpy as np

import tklearn as tk
from tklearn import block, blockIdx, init_semaphore, laneid, threadIdx, tma, wait, warp, warpid

from .zoo import bf, f32, fault, i32, wide


# ----------------------------------- 34: uninitialised shared memory, register or accumulator read
@fault(34, "TK503", hint="guard", args=lambda: (f32(32), f32(32)),
       want=lambda x, y: x + np.r_[x[16:], np.zeros(16)])  # fmt: skip
def sum_past_what_was_stored(good):
    @tk.kernel(threads=32)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared_array(tk.f32, 64)
        s[threadIdx.x] = x[threadIdx.x]
        block.sync()
        v = s[threadIdx.x]
        if threadIdx.x + 16 < 32 or not good:
            v += s[threadIdx.x + 16]  # <- fault
        y[threadIdx.x] = v

    return kernel


@fault(34, "TK503", args=lambda: (bf(32, 32), bf(16, 32)), want=lambda x, y: x[:16])
def half_a_tile_is_loaded(good):
    @tk.kernel(warps=2)
    def kernel(x: tk.gl_bf, y: tk.gl_bf):
        s = tk.shared(tk.st_bf(32, 32))
        t = tk.rt_bf(16, 32)
        if warpid() == 0:
            warp.load(t, x, (0, 0))
            warp.store(s.subtile(16, 32, (0, 0)), t)
        block.sync()
        if warpid() == 1:
            warp.load(t, s.subtile(16, 32, (0 if good else 1, 0)))  # <- fault
            warp.store(y, t, (0, 0))

    return kernel


@fault(34, "TK503", args=lambda: (bf(16, 32), bf(16, 32)), want=lambda x, y: x)
def stored_before_it_is_filled(good):
    @tk.kernel(warps=1)
    def kernel(x: tk.gl_bf, y: tk.gl_bf):
        s = tk.shared(tk.st_bf(16, 32), 2)
        t = tk.rt_bf(16, 32)
        warp.load(t, x, (0, 0))
        warp.store(s[0], t)
        tma.fence()
        tma.store_async(y, s[0 if good else 1], (0, 0))  # <- fault
        tma.store_async_wait()

    return kernel


@fault(34, "TK513", hint="warp.load", args=lambda: (bf(16, 16), bf(16, 16)), want=lambda x, y: x)
def register_tile_never_loaded(good):
    @tk.kernel(warps=1)
    def kernel(x: tk.gl_bf, y: tk.gl_bf):
        t = tk.rt_bf(16, 16)
        if good:
            warp.load(t, x, (0, 0))
        warp.store(y, t, (0, 0))  # <- fault

    return kernel


@fault(34, "TK513", hint="warp.zero(acc)", args=lambda: (bf(16, 16), f32(16, 16)),
       want=lambda x, y: wide(x) @ wide(x))  # fmt: skip
def accumulator_never_zeroed(good):
    @tk.kernel(warps=1)
    def kernel(x: tk.gl_bf, y: tk.gl_fl):
        a = tk.rt_bf(16, 16)
        b = tk.rt_bf(16, 16, tk.col)
        acc = tk.rt_fl(16, 16)
        warp.load(a, x, (0, 0))
        warp.load(b, x, (0, 0))
        if good:
            warp.zero(acc)
        warp.mma_AB(acc, a, b)  # <- fault
        warp.store(y, acc, (0, 0))

    return kernel


# -------------------------------------- 35: misaligned vector or ldmatrix row, index out of bounds
@fault(35, "TK505", hint="multiples of the vector", args=lambda: (f32(132)[1:], f32(32)),
       twin_args=lambda: (f32(132)[4:], f32(32)),
       want=lambda x, y: x[:128].reshape(32, 4).sum(1))  # fmt: skip
def vector_at_an_odd_address(good):
    @tk.kernel(threads=32)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        v = tk.vec(x, 4)[threadIdx.x]  # <- fault
        y[threadIdx.x] = v[0] + v[1] + v[2] + v[3]

    return kernel


@fault(35, "TK505", hint="multiples of the vector", args=lambda: (f32(8, 4), f32(8, 4)),
       want=lambda x, y: x)  # fmt: skip
def vector_in_a_padded_row(good):
    @tk.kernel(threads=32)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared_array(tk.f32, 8, 8 if good else 5)
        s[threadIdx.x // 4, threadIdx.x % 4] = x[threadIdx.x // 4, threadIdx.x % 4]
        block.sync()
        if threadIdx.x < 8:
            v = tk.vec(s, 4)[threadIdx.x, 0]  # <- fault
            for k in tk.static_range(4):
                y[threadIdx.x, k] = v[k]

    return kernel


@fault(35, "TK504", args=lambda: (f32(32), f32(32)), want=lambda x, y: np.roll(x, 1))
def index_before_the_array(good):
    @tk.kernel(threads=32)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        i = threadIdx.x - 1
        if good:
            i = (threadIdx.x + 31) % 32
        y[threadIdx.x] = x[i]  # <- fault

    return kernel


@fault(35, "TK504", grid=2, args=lambda: (40, f32(40), f32(40)), want=lambda n, x, y: 2 * x)
def threads_past_the_end(good):
    @tk.kernel(threads=32)
    def kernel(n: tk.i32, x: tk.gl_fl, y: tk.gl_fl):
        i = blockIdx.x * 32 + threadIdx.x
        if not good or i < n:
            y[i] = 2.0 * x[i]  # <- fault

    return kernel


@fault(35, "TK504", args=lambda: (f32(32), f32(32)), want=lambda x, y: x)
def index_past_shared_memory(good):
    @tk.kernel(threads=32)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared_array(tk.f32, 32)
        s[threadIdx.x if good else threadIdx.x + 1] = x[threadIdx.x]  # <- fault
        block.sync()
        y[threadIdx.x] = s[threadIdx.x]

    return kernel


@fault(35, "TK504", hint="modulo", args=lambda: (bf(48, 16), bf(48, 16)), want=lambda x, y: x)
def stage_past_the_ring(good):
    @tk.kernel(warps=1)
    def kernel(x: tk.gl_bf, y: tk.gl_bf):
        s = tk.shared(tk.st_bf(16, 16), 2)
        t = tk.rt_bf(16, 16)
        for k in range(3):
            i = k % 2 if good else k
            warp.load(t, x, (k, 0))
            warp.store(s[i], t)  # <- fault
            warp.sync()
            warp.load(t, s[i])
            warp.store(y, t, (k, 0))
            warp.sync()

    return kernel


# ----------------------- 36: layouts, races between blocks, missing atomics, limits of the machine
@fault(36, "TK211", error=tk.SourceError, args=lambda: (bf(16, 16), f32(16, 16)),
       want=lambda x, y: wide(x) @ wide(x))  # fmt: skip
def operand_in_row_layout(good):
    @tk.kernel(warps=1)
    def kernel(x: tk.gl_bf, y: tk.gl_fl):
        a = tk.rt_bf(16, 16)
        b = tk.rt_bf(16, 16, tk.col if good else tk.row)
        acc = tk.rt_fl(16, 16)
        warp.load(a, x, (0, 0))
        warp.load(b, x, (0, 0))
        warp.zero(acc)
        warp.mma_AB(acc, a, b)  # <- fault
        warp.store(y, acc, (0, 0))

    return kernel


@fault(36, "TK502", error=tk.Race, grid=2, args=lambda: (f32(64), f32(64)),
       want=lambda x, y: np.roll(x, -32))  # fmt: skip
def block_reads_what_another_writes(good):
    @tk.kernel(threads=32)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        i = blockIdx.x * 32 + threadIdx.x
        v = x[(i + 32) % 64]  # <- other
        if not good:
            x[i] = v  # <- fault
        y[i] = v

    return kernel


@fault(36, "TK502", error=tk.Race, grid=2, hint="elements of its own",
       args=lambda: (f32(32, 16), f32(32, 16)), want=lambda x, y: x)  # fmt: skip
def blocks_store_one_tile(good):
    @tk.kernel(warps=1)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        t = tk.rt_fl(16, 16)
        warp.load(t, x, (blockIdx.x, 0))
        warp.store(y, t, (blockIdx.x if good else blockIdx.x // 2, 0))  # <- fault

    return kernel


@fault(36, "TK502", error=tk.Race, grid=3, args=lambda: (f32(3, 32), np.zeros((1, 32), "f4")),
       want=lambda x, y: x.sum(0, keepdims=True))  # fmt: skip
def blocks_store_by_tma_where_they_should_add(good):
    @tk.kernel(warps=1)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared(tk.sv(tk.f32, 32))
        s[laneid()] = x[blockIdx.x, laneid()]
        tma.fence()
        if good:
            tma.store_add_async(y, s, (0, 0))
        else:
            tma.store_async(y, s, (0, 0))  # <- fault
        tma.store_async_wait()

    return kernel


@fault(36, "TK502", error=tk.Race, grid=2, hint="atomic",
       args=lambda: (i32(64), np.zeros(4, np.int32)),
       want=lambda x, y: np.bincount(x, minlength=4))  # fmt: skip
def histogram_without_atomic(good):
    @tk.kernel(threads=32)
    def kernel(x: tk.gl(tk.i32), y: tk.gl(tk.i32)):
        s = tk.shared_array(tk.i32, 4)
        if threadIdx.x < 4:
            s[threadIdx.x] = 0
        block.sync()
        tk.atomic_add(s[x[blockIdx.x * 32 + threadIdx.x]], 1)
        block.sync()
        if threadIdx.x < 4:
            if good:
                tk.atomic_add(y[threadIdx.x], s[threadIdx.x])
            else:
                y[threadIdx.x] += s[threadIdx.x]  # <- fault

    return kernel


@fault(36, "TK502", error=tk.Race, grid=2, hint="a lock made of atomics orders no",
       args=lambda: (np.zeros(1, np.int32), np.zeros(1, np.float32)),
       want=lambda lock, y: [2.0])  # fmt: skip
def lock_of_atomics(good):
    @tk.kernel(threads=1)
    def kernel(lock: tk.gl(tk.i32), y: tk.gl_fl):
        if good:
            tk.atomic_add(y[0], 1.0)
        else:
            while tk.atomic_cas(lock[0], 0, 1) != 0:
                pass
            y[0] += 1.0  # <- fault
            tk.atomic_exch(lock[0], 0)

    return kernel


@fault(36, "TK502", error=tk.Race, grid=2, hint="two kernels",
       args=lambda: (np.zeros(2, np.float32),), want=lambda y: [2.0, 0.0])  # fmt: skip
def total_read_by_the_last_block(good):
    @tk.kernel(warps=1)
    def kernel(y: tk.gl_fl):
        if laneid() == 0:
            tk.atomic_add(y[0], 1.0)  # <- fault
            if blockIdx.x == 1 and not good:
                y[1] = y[0]  # <- other

    return kernel


@fault(36, "TK501 TK500", error=tk.Race, hint="atomic",
       args=lambda: (i32(64), np.zeros(4, np.int32)),
       want=lambda x, y: np.bincount(x, minlength=4))  # fmt: skip
def histogram_of_lanes_without_atomic(good):
    @tk.kernel(threads=64)
    def kernel(x: tk.gl(tk.i32), y: tk.gl(tk.i32)):
        s = tk.shared_array(tk.i32, 4)
        if threadIdx.x < 4:
            s[threadIdx.x] = 0
        block.sync()
        if good:
            tk.atomic_add(s[x[threadIdx.x]], 1)
        else:
            s[x[threadIdx.x]] += 1  # <- fault
        block.sync()
        if threadIdx.x < 4:
            y[threadIdx.x] = s[threadIdx.x]

    return kernel


@fault(36, "TK502", error=tk.Race, grid=2, args=lambda: (f32(2, 32), f32(2, 32)),
       want=lambda x, y: x)  # fmt: skip
def block_loads_by_tma_what_another_writes(good):
    @tk.kernel(warps=1)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared(tk.sv(tk.f32, 32))
        full = tk.shared(tk.semaphore)
        init_semaphore(full, 1)
        tma.expect(full, s)
        tma.load_async(s, x, (blockIdx.x, 0), full)  # <- other
        wait(full, 0)
        y[blockIdx.x, laneid()] = s[laneid()]
        if not good:
            x[1 - blockIdx.x, laneid()] = 0.0  # <- fault

    return kernel


@fault(36, "TK408", error=tk.TkError, args=lambda: (bf(64, 256), bf(64, 256)), want=None)
def more_shared_memory_than_there_is(good):
    stages = 6 if good else 8

    @tk.kernel(warps=1)  # <- fault
    def kernel(x: tk.gl_bf, y: tk.gl_bf):
        s = tk.shared(tk.st_bf(64, 256), stages)  # <- fault
        full = tk.shared(tk.semaphore)
        init_semaphore(full, 1)
        tma.expect(full, s[0])
        tma.load_async(s[0], x, (0, 0), full)
        wait(full, 0)

    return kernel
