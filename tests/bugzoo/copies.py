"""Kinds 18 to 27: TMA loads and stores, cp.async, and what TMA cannot address."""

from __future__ import annotations

import numpy as np

import tklearn as tk
from tklearn import (
    arrive,
    block,
    blockIdx,
    init_semaphore,
    laneid,
    tma,
    wait,
    warp,
    warpid,
)

from .semaphores import rows, same
from .zoo import bf, f32, fault

# ruff: noqa: SIM102


def tiles(n: int, m: int | None = None):
    """A source and a destination of n and m tiles of 16 x 32."""
    return lambda: (bf(16 * n, 32), bf(16 * (m or n), 32))


# ---------------------------------------------------------------------------- 18: read before full
@fault(18, "TK500", error=tk.Race, hint="wait", args=rows(1), want=same)
def element_read_before_full(good):
    @tk.kernel(warps=2)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared(tk.sv(tk.f32, 32))
        full = tk.shared(tk.semaphore)
        if warpid() == 0:
            init_semaphore(full, 1)
        block.sync()
        if warpid() == 0:
            tma.expect(full, s)
            tma.load_async(s, x, (0, 0), full)  # <- other
            wait(full, 0)
        else:
            if good:
                wait(full, 0)
            y[0, laneid()] = s[laneid()]  # <- fault

    return kernel


@fault(18, "TK500", error=tk.Race, hint="wait", args=tiles(1), want=same)
def tile_read_before_full(good):
    @tk.kernel(warps=1)
    def kernel(x: tk.gl_bf, y: tk.gl_bf):
        s = tk.shared(tk.st_bf(16, 32))
        full = tk.shared(tk.semaphore)
        t = tk.rt_bf(16, 32)
        init_semaphore(full, 1)
        tma.expect(full, s)
        tma.load_async(s, x, (0, 0), full)  # <- other
        if good:
            wait(full, 0)
        warp.load(t, s)  # <- fault
        warp.store(y, t, (0, 0))
        if not good:
            wait(full, 0)

    return kernel


@fault(18, "TK500", error=tk.Race, hint="full[1]", args=rows(2), want=same)
def waits_for_the_other_stage(good):
    @tk.kernel(warps=2)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared(tk.sv(tk.f32, 32), 2)
        full = tk.shared(tk.semaphore, 2)
        if warpid() == 0:
            for i in range(2):
                init_semaphore(full[i], 1)
        block.sync()
        if warpid() == 0:
            for i in range(2):
                tma.expect(full[i], s[i])
                tma.load_async(s[i], x, (i, 0), full[i])  # <- other
                wait(full[i], 0)
        else:
            for i in range(2):
                wait(full[i if good else 0], 0)
                y[i, laneid()] = s[i][laneid()]  # <- fault

    return kernel


# ------------------------------------------------------------------------- 19: refill before empty
@fault(19, "TK500", error=tk.Race, hint="arrive", args=rows(4), want=same)
def refill_without_wait_for_empty(good):
    @tk.kernel(warps=2)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared(tk.sv(tk.f32, 32), 2)
        full = tk.shared(tk.semaphore, 2)
        empty = tk.shared(tk.semaphore, 2)
        if warpid() == 0:
            for i in range(2):
                init_semaphore(full[i], 1)
                init_semaphore(empty[i], 1)
        block.sync()
        for k in range(4):
            i = k % 2
            if warpid() == 0:
                if good:
                    wait(empty[i], (k // 2 + 1) % 2)
                else:
                    if k >= 2:
                        wait(full[i], 0)  # its own load is over; is it read?
                tma.expect(full[i], s[i])
                tma.load_async(s[i], x, (k, 0), full[i])  # <- fault
            else:
                wait(full[i], k // 2 % 2)
                y[k, laneid()] = s[i][laneid()]  # <- other
                if good:
                    arrive(empty[i])

    return kernel


@fault(19, "TK500", error=tk.Race, args=tiles(3), want=same)
def refill_without_barrier(good):
    @tk.kernel(warps=2)
    def kernel(x: tk.gl_bf, y: tk.gl_bf):
        s = tk.shared(tk.st_bf(16, 32))
        full = tk.shared(tk.semaphore)
        t = tk.rt_bf(16, 32)
        if warpid() == 0:
            init_semaphore(full, 1)
        block.sync()
        for k in range(3):
            if warpid() == 0:
                tma.expect(full, s)
                tma.load_async(s, x, (k, 0), full)  # <- fault
            wait(full, k % 2)
            if warpid() == 1:
                warp.load(t, s)  # <- other
                warp.store(y, t, (k, 0))
            if good:
                block.sync()

    return kernel


@fault(19, "TK500", error=tk.Race, args=rows(3), want=same)
def arrives_before_it_has_read(good):
    @tk.kernel(warps=2)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared(tk.sv(tk.f32, 32))
        full = tk.shared(tk.semaphore)
        empty = tk.shared(tk.semaphore)
        if warpid() == 0:
            init_semaphore(full, 1)
            init_semaphore(empty, 1)
        block.sync()
        for k in range(3):
            if warpid() == 0:
                wait(empty, (k + 1) % 2)
                tma.expect(full, s)
                tma.load_async(s, x, (k, 0), full)  # <- fault
            else:
                wait(full, k % 2)
                if not good:
                    arrive(empty)
                y[k, laneid()] = s[laneid()]  # <- other
                if good:
                    arrive(empty)

    return kernel


# ------------------------------------------------------------------------------ 20: too few stages
@fault(20, "TK500 TK501 TK508", args=tiles(4), want=same)
def pipeline_for_one_stage(good):
    @tk.kernel(warps=2)
    def kernel(x: tk.gl_bf, y: tk.gl_bf):
        s = tk.shared(tk.st_bf(16, 32), 2)
        t = tk.rt_bf(16, 32)
        block.load_async(s[0], x, (0, 0))
        tk.commit_group()
        for k in range(4):
            if k < 3:
                block.load_async(s[(k + 1) % 2 if good else 0], x, (k + 1, 0))  # <- fault
            tk.commit_group()
            tk.wait_group(1)
            block.sync()
            warp.load(t, s[k % 2 if good else 0])  # <- fault
            if warpid() == 0:
                warp.store(y, t, (k, 0))
            block.sync()

    return kernel


@fault(20, "TK500", error=tk.Race, args=rows(4), want=same)
def prefetches_as_many_as_there_are_stages(good):
    @tk.kernel(warps=2)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared(tk.sv(tk.f32, 32), 3 if good else 2)
        full = tk.shared(tk.semaphore, 3)
        n = 3 if good else 2
        if warpid() == 0:
            for i in range(3):
                init_semaphore(full[i], 1)
            for k in range(2):
                tma.expect(full[k], s[k])
                tma.load_async(s[k], x, (k, 0), full[k])
        block.sync()
        for k in range(4):
            wait(full[k % n], k // n % 2)
            if warpid() == 0:
                if k + 2 < 4:
                    i = (k + 2) % n
                    tma.expect(full[i], s[i])
                    tma.load_async(s[i], x, (k + 2, 0), full[i])  # <- fault
            else:
                y[k, laneid()] = s[k % n][laneid()]  # <- other
            block.sync()

    return kernel


# --------------------------------------------------------------- 21: TMA store without proxy fence
@fault(21, "TK520", error=tk.Race, hint="tma.fence()", args=tiles(1), want=same)
def tile_stored_without_fence(good):
    @tk.kernel(warps=1)
    def kernel(x: tk.gl_bf, y: tk.gl_bf):
        s = tk.shared(tk.st_bf(16, 32))
        t = tk.rt_bf(16, 32)
        warp.load(t, x, (0, 0))
        warp.store(s, t)  # <- other
        if good:
            tma.fence()
        tma.store_async(y, s, (0, 0))  # <- fault
        tma.store_async_wait()

    return kernel


@fault(21, "TK520", error=tk.Race, hint="tma.fence()", args=rows(1), want=same)
def elements_stored_without_fence(good):
    @tk.kernel(warps=2)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared(tk.sv(tk.f32, 32))
        if warpid() == 1:
            s[laneid()] = x[0, laneid()]  # <- other
            if good:
                tma.fence()
        block.sync()
        if warpid() == 0:
            tma.store_async(y, s, (0, 0))  # <- fault
            tma.store_async_wait()

    return kernel


@fault(21, "TK520", error=tk.Race, hint="in the warps that store", args=rows(1), want=same)
def fence_by_another_warp(good):
    @tk.kernel(warps=2)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared(tk.sv(tk.f32, 32))
        if warpid() == 1:
            s[laneid()] = x[0, laneid()]  # <- other
        if warpid() == (1 if good else 0):
            tma.fence()
        block.sync()
        if warpid() == 0:
            tma.store_async(y, s, (0, 0))  # <- fault
            tma.store_async_wait()

    return kernel


@fault(21, "TK520", error=tk.Race, hint="tma.fence()", args=rows(1), want=same)
def fence_before_the_stores(good):
    @tk.kernel(warps=1)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared(tk.sv(tk.f32, 32))
        if not good:
            tma.fence()
        s[laneid()] = x[0, laneid()]  # <- other
        if good:
            tma.fence()
        tma.store_async(y, s, (0, 0))  # <- fault
        tma.store_async_wait()

    return kernel


@fault(21, "TK500", error=tk.Race, hint="barrier|block.sync", args=tiles(1), want=same)
def fence_without_barrier(good):
    @tk.kernel(warps=2)
    def kernel(x: tk.gl_bf, y: tk.gl_bf):
        s = tk.shared(tk.st_bf(16, 32))
        t = tk.rt_bf(16, 16)
        warp.load(t, x, (0, warpid()))
        warp.store(s.subtile(16, 16, (0, warpid())), t)  # <- other
        tma.fence()
        if good:
            block.sync()
        if warpid() == 0:
            tma.store_async(y, s, (0, 0))  # <- fault
            tma.store_async_wait()

    return kernel


# ------------------------------------------- 22: the source is reused before the store has read it
@fault(22, "TK500", error=tk.Race, hint="read_wait", args=tiles(3), want=same)
def tile_overwritten_while_it_is_stored(good):
    @tk.kernel(warps=1)
    def kernel(x: tk.gl_bf, y: tk.gl_bf):
        s = tk.shared(tk.st_bf(16, 32))
        t = tk.rt_bf(16, 32)
        for k in range(3):
            warp.load(t, x, (k, 0))
            warp.store(s, t)  # <- fault
            tma.fence()
            tma.store_async(y, s, (k, 0))  # <- other
            if good:
                tma.store_async_read_wait()
        if not good:
            tma.store_async_wait()

    return kernel


@fault(22, "TK500", error=tk.Race, hint="read_wait", args=rows(2), want=same)
def other_warp_overwrites_the_source(good):
    @tk.kernel(warps=2)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared(tk.sv(tk.f32, 32))
        for k in range(2):
            if warpid() == 1:
                s[laneid()] = x[k, laneid()]  # <- fault
                tma.fence()
            block.sync()
            if warpid() == 0:
                tma.store_async(y, s, (k, 0))  # <- other
                if good:
                    tma.store_async_wait()
            block.sync()
        if not good:
            if warpid() == 0:
                tma.store_async_wait()

    return kernel


@fault(22, "TK525", hint="store_async_wait", args=tiles(1), want=same)
def block_ends_while_a_store_reads(good):
    @tk.kernel(warps=1)
    def kernel(x: tk.gl_bf, y: tk.gl_bf):
        s = tk.shared(tk.st_bf(16, 32))
        t = tk.rt_bf(16, 32)
        warp.load(t, x, (0, 0))
        warp.store(s, t)
        tma.fence()
        tma.store_async(y, s, (0, 0))  # <- fault
        if good:
            tma.store_async_read_wait()

    return kernel


@fault(22, "TK525", hint="wait for each load", args=rows(2), want=same)
def block_ends_while_a_load_writes(good):
    @tk.kernel(warps=2)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared(tk.sv(tk.f32, 32), 3)
        full = tk.shared(tk.semaphore, 3)
        if warpid() == 0:
            for i in range(3):
                init_semaphore(full[i], 1)
        block.sync()
        if warpid() == 0:
            for k in range(2 if good else 3):
                tma.expect(full[k], s[k])
                tma.load_async(s[k], x, (k, 0), full[k])  # <- fault
        else:
            for k in range(2):
                wait(full[k], 0)
                y[k, laneid()] = s[k][laneid()]

    return kernel


# ------------------------------------------------- 23: results used before the stores are complete
@fault(23, "TK500", error=tk.Race, hint="store_async_wait", args=lambda: (f32(1, 32), f32(2, 32)),
       want=lambda x, y: np.vstack([x, x + 1]))  # fmt: skip
def result_read_before_the_store_is_over(good):
    @tk.kernel(warps=1)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared(tk.sv(tk.f32, 32))
        s[laneid()] = x[0, laneid()]
        tma.fence()
        tma.store_async(y, s, (0, 0))  # <- other
        if good:
            tma.store_async_wait()
        y[1, laneid()] = y[0, laneid()] + 1.0  # <- fault
        if not good:
            tma.store_async_wait()

    return kernel


@fault(23, "TK500", error=tk.Race, hint="store_async_wait", args=lambda: (f32(1, 32), f32(2, 32)),
       want=lambda x, y: np.vstack([x, x + 1]))  # fmt: skip
def read_wait_is_too_little(good):
    @tk.kernel(warps=2)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared(tk.sv(tk.f32, 32))
        if warpid() == 0:
            s[laneid()] = x[0, laneid()]
            tma.fence()
            tma.store_async(y, s, (0, 0))  # <- other
            if good:
                tma.store_async_wait()
            else:
                tma.store_async_read_wait()
        block.sync()
        if warpid() == 1:
            y[1, laneid()] = y[0, laneid()] + 1.0  # <- fault

    return kernel


@fault(23, "TK500", error=tk.Race, hint="barrier|block.sync", args=lambda: (f32(1, 32), f32(2, 32)),
       want=lambda x, y: np.vstack([x, x + 1]))  # fmt: skip
def other_warp_reads_without_barrier(good):
    @tk.kernel(warps=2)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared(tk.sv(tk.f32, 32))
        if warpid() == 0:
            s[laneid()] = x[0, laneid()]
            tma.fence()
            tma.store_async(y, s, (0, 0))  # <- other
            tma.store_async_wait()
        if good:
            block.sync()
        if warpid() == 1:
            y[1, laneid()] = y[0, laneid()] + 1.0  # <- fault

    return kernel


@fault(23, "TK500", error=tk.Race, args=rows(1), want=lambda x, y: 2 * x)
def two_stores_to_one_place(good):
    @tk.kernel(warps=1)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared(tk.sv(tk.f32, 32))
        d = tk.shared(tk.sv(tk.f32, 32))
        s[laneid()] = x[0, laneid()]
        d[laneid()] = 2.0 * x[0, laneid()]
        tma.fence()
        tma.store_async(y, s, (0, 0))  # <- other
        if good:
            tma.store_async_wait()
        tma.store_async(y, d, (0, 0))  # <- fault
        tma.store_async_wait()

    return kernel


@fault(23, "TK500", error=tk.Race, args=rows(1), want=lambda x, y: x)
def source_in_memory_changed_while_it_is_loaded(good):
    @tk.kernel(warps=1)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared(tk.sv(tk.f32, 32))
        full = tk.shared(tk.semaphore)
        init_semaphore(full, 1)
        tma.expect(full, s)
        tma.load_async(s, x, (0, 0), full)  # <- other
        if good:
            wait(full, 0)
        x[0, laneid()] = 1.0 * x[0, laneid()]  # <- fault
        if not good:
            wait(full, 0)
        y[0, laneid()] = s[laneid()]

    return kernel


# ------------------------------------------------------------------------------ 24: commit missing
@fault(24, "TK508", hint="commit_group() is missing", args=tiles(1), want=same)
def copy_without_commit(good):
    @tk.kernel(warps=1)
    def kernel(x: tk.gl_bf, y: tk.gl_bf):
        s = tk.shared(tk.st_bf(16, 32))
        t = tk.rt_bf(16, 32)
        warp.load_async(s, x, (0, 0))  # <- other
        if good:
            tk.commit_group()
        tk.wait_group(0)
        warp.sync()
        warp.load(t, s)  # <- fault
        warp.store(y, t, (0, 0))

    return kernel


@fault(24, "TK508", hint="wait_group", args=tiles(2), want=same)
def copy_after_the_commit(good):
    @tk.kernel(warps=1)
    def kernel(x: tk.gl_bf, y: tk.gl_bf):
        s = tk.shared(tk.st_bf(16, 32), 2)
        t = tk.rt_bf(16, 32)
        warp.load_async(s[0], x, (0, 0))
        if not good:
            tk.commit_group()
        warp.load_async(s[1], x, (1, 0))  # <- other
        if good:
            tk.commit_group()
        tk.wait_group(0)
        warp.sync()
        for k in range(2):
            warp.load(t, s[k])  # <- fault
            warp.store(y, t, (k, 0))

    return kernel


# ----------------------------------------------------------------------- 25: wait_group off by one
@fault(25, "TK508", hint="wait_group", args=tiles(3), want=same)
def wait_group_leaves_one_too_many(good):
    @tk.kernel(warps=1)
    def kernel(x: tk.gl_bf, y: tk.gl_bf):
        s = tk.shared(tk.st_bf(16, 32), 3)
        t = tk.rt_bf(16, 32)
        for k in range(3):
            warp.load_async(s[k], x, (k, 0))  # <- other
            tk.commit_group()
        tk.wait_group(0 if good else 1)
        warp.sync()
        for k in range(3):
            warp.load(t, s[k])  # <- fault
            warp.store(y, t, (k, 0))

    return kernel


@fault(25, "TK500", error=tk.Race, hint="read_wait", args=tiles(4), want=same)
def read_wait_leaves_one_too_many(good):
    @tk.kernel(warps=1)
    def kernel(x: tk.gl_bf, y: tk.gl_bf):
        s = tk.shared(tk.st_bf(16, 32), 2)
        t = tk.rt_bf(16, 32)
        for k in range(4):
            tma.store_async_read_wait(1 if good else 2)
            warp.load(t, x, (k, 0))
            warp.store(s[k % 2], t)  # <- fault
            tma.fence()
            tma.store_async(y, s[k % 2], (k, 0))  # <- other
        tma.store_async_wait()

    return kernel


# ----------------------------------------------------------------- 26: waited but no block barrier
@fault(26, "TK500 TK501 TK508", hint="block.sync()", args=tiles(1), want=same)
def waited_for_its_own_part_only(good):
    @tk.kernel(warps=2)
    def kernel(x: tk.gl_bf, y: tk.gl_bf):
        s = tk.shared(tk.st_bf(16, 32))
        t = tk.rt_bf(16, 32)
        block.load_async(s, x, (0, 0))  # <- other
        tk.commit_group()
        tk.wait_group(0)
        if good:
            block.sync()
        if warpid() == 1:
            warp.load(t, s)  # <- fault
            warp.store(y, t, (0, 0))

    return kernel


@fault(26, "TK500 TK508", args=rows(1), want=same)
def element_read_after_own_wait(good):
    @tk.kernel(warps=2)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared(tk.sv(tk.f32, 32))
        here = tk.shared(tk.semaphore)
        if warpid() == 0:
            init_semaphore(here, 1)
        block.sync()
        if warpid() == 0:
            warp.load_async(s, x, (0, 0))  # <- other
            tk.commit_group()
            if good:
                tk.wait_group(0)
            arrive(here)
            if not good:
                tk.wait_group(0)
        else:
            wait(here, 0)
            y[0, laneid()] = s[laneid()]  # <- fault

    return kernel


@fault(26, "TK500", error=tk.Race, args=rows(2), want=same)
def read_wait_without_barrier(good):
    @tk.kernel(warps=2)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared(tk.sv(tk.f32, 32))
        for k in range(2):
            if warpid() == 1:
                s[laneid()] = x[k, laneid()]  # <- fault
                tma.fence()
            block.sync()
            if warpid() == 0:
                tma.store_async(y, s, (k, 0))  # <- other
                tma.store_async_read_wait()
            if good:
                block.sync()

    return kernel


# --------------------------------------------------------------------- 27: what TMA cannot address
@fault(27, "TK504", args=lambda: (bf(16, 32), bf(16, 32)), want=same)
def negative_coordinate(good):
    @tk.kernel(warps=1)
    def kernel(x: tk.gl_bf, y: tk.gl_bf):
        s = tk.shared(tk.st_bf(16, 32))
        full = tk.shared(tk.semaphore)
        init_semaphore(full, 1)
        tma.expect(full, s)
        tma.load_async(s, x, (blockIdx.x - (0 if good else 1), 0), full)  # <- fault
        wait(full, 0)
        tma.store_async(y, s, (0, 0))
        tma.store_async_read_wait()

    return kernel


@fault(27, "TK504", args=lambda: (bf(2, 16, 32), bf(16, 32)), want=lambda x, y: x[1])
def depth_outside_the_array(good):
    @tk.kernel(warps=1)
    def kernel(x: tk.gl_bf, y: tk.gl_bf):
        s = tk.shared(tk.st_bf(16, 32))
        full = tk.shared(tk.semaphore)
        init_semaphore(full, 1)
        tma.expect(full, s)
        tma.load_async(s, x, (1 if good else 2, 0, 0), full)  # <- fault
        wait(full, 0)
        tma.store_async(y, s, (0, 0))
        tma.store_async_read_wait()

    return kernel


@fault(27, "TK210", error=tk.SourceError, args=lambda: (bf(512, 16), bf(512, 16)), want=None)
def box_too_large(good):
    @tk.kernel(warps=1)
    def kernel(x: tk.gl_bf, y: tk.gl_bf):
        s = tk.shared(tk.st_bf(256 if good else 512, 16))
        full = tk.shared(tk.semaphore)
        init_semaphore(full, 1)
        tma.expect(full, s)
        tma.load_async(s, x, (0, 0), full)  # <- fault
        wait(full, 0)
        tma.store_async(y, s, (0, 0))
        tma.store_async_read_wait()

    return kernel


@fault(27, "TK211", error=tk.SourceError, hint="pad", args=tiles(1), want=same)
def padded_tile(good):
    @tk.kernel(warps=1)
    def kernel(x: tk.gl_bf, y: tk.gl_bf):
        s = tk.shared(tk.st_bf(16, 32) if good else tk.st_bf(16, 32, swizzle=0, pad=8))
        full = tk.shared(tk.semaphore)
        init_semaphore(full, 1)
        tma.expect_bytes(full, 1024)
        tma.load_async(s, x, (0, 0), full)  # <- fault
        wait(full, 0)
        tma.store_async(y, s, (0, 0))
        tma.store_async_read_wait()

    return kernel


@fault(27, "TK527", hint="multiples of 16", args=lambda: (bf(16, 36), bf(16, 32)),
       twin_args=lambda: (bf(16, 40), bf(16, 32)), want=lambda x, y: x[:, :32])  # fmt: skip
def stride_no_multiple_of_16_bytes(good):
    @tk.kernel(warps=1)
    def kernel(x: tk.gl_bf, y: tk.gl_bf):
        s = tk.shared(tk.st_bf(16, 32))
        full = tk.shared(tk.semaphore)
        t = tk.rt_bf(16, 32)
        init_semaphore(full, 1)
        tma.expect(full, s)
        tma.load_async(s, x, (0, 0), full)  # <- fault
        wait(full, 0)
        warp.load(t, s)
        warp.store(y, t, (0, 0))

    return kernel


@fault(27, "TK527", hint="multiples of 16", args=lambda: (bf(16, 40)[:, 1:33], bf(16, 32)),
       twin_args=lambda: (bf(16, 40)[:, 8:40], bf(16, 32)), want=same)  # fmt: skip
def start_no_multiple_of_16_bytes(good):
    @tk.kernel(warps=1)
    def kernel(x: tk.gl_bf, y: tk.gl_bf):
        s = tk.shared(tk.st_bf(16, 32))
        full = tk.shared(tk.semaphore)
        t = tk.rt_bf(16, 32)
        init_semaphore(full, 1)
        tma.expect(full, s)
        tma.load_async(s, x, (0, 0), full)  # <- fault
        wait(full, 0)
        warp.load(t, s)
        warp.store(y, t, (0, 0))

    return kernel
