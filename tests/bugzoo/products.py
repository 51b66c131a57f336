"""Kinds 28 to 33: products of a warpgroup (wgmma). The products are 64 x 16 x 64."""

from __future__ import annotations

import tklearn as tk
from tklearn import (
    arrive,
    block,
    init_semaphore,
    tma,
    wait,
    warp,
    warpgroup,
    warpid,
)

from .zoo import bf, f32, fault, wide


def product():
    """A of 64 x 64, B of 64 x 16, C of 64 x 16."""
    return bf(64, 64), bf(64, 16), f32(64, 16)


def ab(a, b, c):
    return wide(a) @ wide(b)


# ------------------------------------------------------------------------------- 28: missing fence
@fault(28, "TK526", hint="mma_fence", args=product, want=lambda a, b, c: ab(a, b, c) + 1)
def accumulator_changed_without_fence(good):
    @tk.kernel(warps=4)
    def kernel(A: tk.gl_bf, B: tk.gl_bf, C: tk.gl_fl):
        a = tk.shared(tk.st_bf(64, 64))
        b = tk.shared(tk.st_bf(64, 16))
        acc = tk.rt_fl(16, 16)
        warp.one(acc)
        warpgroup.load(a, A, (0, 0))
        warpgroup.load(b, B, (0, 0))
        tma.fence()
        block.sync()
        if good:
            warpgroup.mma_fence()
        warpgroup.mma_AB(acc, a, b, fence=False)  # <- fault
        warpgroup.mma_async_wait()
        warpgroup.store(C, acc, (0, 0))

    return kernel


@fault(28, "TK526", hint="mma_fence", args=product, want=ab)
def registers_of_a_changed_after_the_fence(good):
    @tk.kernel(warps=4)
    def kernel(A: tk.gl_bf, B: tk.gl_bf, C: tk.gl_fl):
        b = tk.shared(tk.st_bf(64, 16))
        a = tk.rt_bf(16, 64)
        acc = tk.rt_fl(16, 16)
        warpgroup.load(b, B, (0, 0))
        tma.fence()
        block.sync()
        if not good:
            warpgroup.mma_fence()
        warpgroup.load(a, A, (0, 0))
        if good:
            warpgroup.mma_fence()
        warpgroup.mm_AB(acc, a, b, fence=False)  # <- fault
        warpgroup.mma_async_wait()
        warpgroup.store(C, acc, (0, 0))

    return kernel


# ----------------------------------------------------------- 29: accumulators read before the wait
@fault(29, "TK521", hint="mma_async_wait", args=product, want=ab)
def accumulator_stored_before_the_wait(good):
    @tk.kernel(warps=4)
    def kernel(A: tk.gl_bf, B: tk.gl_bf, C: tk.gl_fl):
        a = tk.shared(tk.st_bf(64, 64))
        b = tk.shared(tk.st_bf(64, 16))
        acc = tk.rt_fl(16, 16)
        block.load(a, A, (0, 0))
        block.load(b, B, (0, 0))
        tma.fence()
        block.sync()
        warpgroup.mm_AB(acc, a, b)  # <- other
        if good:
            warpgroup.mma_async_wait()
        warpgroup.store(C, acc, (0, 0))  # <- fault
        if not good:
            warpgroup.mma_async_wait()

    return kernel


@fault(29, "TK521", hint="mma_async_wait", args=product, want=lambda a, b, c: 2 * ab(a, b, c))
def accumulator_scaled_before_the_wait(good):
    @tk.kernel(warps=4)
    def kernel(A: tk.gl_bf, B: tk.gl_bf, C: tk.gl_fl):
        a = tk.shared(tk.st_bf(64, 64))
        b = tk.shared(tk.st_bf(64, 16))
        acc = tk.rt_fl(16, 16)
        block.load(a, A, (0, 0))
        block.load(b, B, (0, 0))
        tma.fence()
        block.sync()
        warpgroup.mm_AB(acc, a, b)  # <- other
        if good:
            warpgroup.mma_async_wait()
        acc *= 2.0  # <- fault
        if not good:
            warpgroup.mma_async_wait()
        warpgroup.store(C, acc, (0, 0))

    return kernel


@fault(29, "TK521", hint="mma_async_wait", args=product, want=lambda a, b, c: 2 * ab(a, b, c))
def wait_leaves_the_product_running(good):
    """Kind 25 for wgmma: mma_async_wait(1) leaves the newest group running."""

    @tk.kernel(warps=4)
    def kernel(A: tk.gl_bf, B: tk.gl_bf, C: tk.gl_fl):
        a = tk.shared(tk.st_bf(64, 64))
        b = tk.shared(tk.st_bf(64, 16))
        first = tk.rt_fl(16, 16)
        second = tk.rt_fl(16, 16)
        block.load(a, A, (0, 0))
        block.load(b, B, (0, 0))
        tma.fence()
        block.sync()
        warpgroup.mm_AB(first, a, b)
        warpgroup.mm_AB(second, a, b)  # <- other
        warpgroup.mma_async_wait(0 if good else 1)
        first += second  # <- fault
        warpgroup.mma_async_wait()
        warpgroup.store(C, first, (0, 0))

    return kernel


@fault(24, "TK521", hint="commit", args=product, want=ab)
def product_without_commit(good):
    @tk.kernel(warps=4)
    def kernel(A: tk.gl_bf, B: tk.gl_bf, C: tk.gl_fl):
        a = tk.shared(tk.st_bf(64, 64))
        b = tk.shared(tk.st_bf(64, 16))
        acc = tk.rt_fl(16, 16)
        block.load(a, A, (0, 0))
        block.load(b, B, (0, 0))
        tma.fence()
        block.sync()
        warpgroup.mm_AB(acc, a, b, commit=False)  # <- other
        if good:
            warpgroup.mma_commit_group()
        warpgroup.mma_async_wait()
        warpgroup.store(C, acc, (0, 0))  # <- fault

    return kernel


# --------------------------------------- 30: the stage is released before the wait proves the read
def steps():
    """A of 64 x 192, B of 192 x 16."""
    return bf(64, 192), bf(192, 16), f32(64, 16)


@fault(30, "TK500", error=tk.Race, hint="mma_async_wait", args=steps, want=ab)
def stage_released_before_the_wait(good):
    @tk.kernel(warps=8)
    def kernel(A: tk.gl_bf, B: tk.gl_bf, C: tk.gl_fl):
        a = tk.shared(tk.st_bf(64, 64), 2)
        b = tk.shared(tk.st_bf(64, 16), 2)
        full = tk.shared(tk.semaphore, 2)
        empty = tk.shared(tk.semaphore, 2)
        acc = tk.rt_fl(16, 16)
        if warpid() == 0:
            for s in range(2):
                init_semaphore(full[s], 1)
                init_semaphore(empty[s], 4)
        block.sync()
        if warpgroup.groupid() == 1:
            r = tk.ring(2)
            if warpgroup.warpid() == 0:
                for k in range(A.cols // 64):
                    wait(empty[r.stage], r.phase ^ 1)
                    tma.expect(full[r.stage], a[r.stage], b[r.stage])
                    tma.load_async(a[r.stage], A, (0, k), full[r.stage])  # <- fault
                    tma.load_async(b[r.stage], B, (k, 0), full[r.stage])  # <- fault
                    r.advance()
        else:
            r = tk.ring(2)
            warp.zero(acc)
            for _ in range(A.cols // 64):
                wait(full[r.stage], r.phase)
                warpgroup.mma_AB(acc, a[r.stage], b[r.stage])  # <- other
                if good:
                    warpgroup.mma_async_wait()
                arrive(empty[r.stage])
                if not good:
                    warpgroup.mma_async_wait()
                r.advance()
            warpgroup.store(C, acc, (0, 0))

    return kernel


@fault(30, "TK500", error=tk.Race, hint="mma_async_wait", args=steps, want=ab)
def stage_released_one_step_early(good):
    """One product runs on: the stage before is free, not this one."""

    @tk.kernel(warps=8)
    def kernel(A: tk.gl_bf, B: tk.gl_bf, C: tk.gl_fl):
        a = tk.shared(tk.st_bf(64, 64), 2)
        b = tk.shared(tk.st_bf(64, 16), 2)
        full = tk.shared(tk.semaphore, 2)
        empty = tk.shared(tk.semaphore, 2)
        acc = tk.rt_fl(16, 16)
        if warpid() == 0:
            for s in range(2):
                init_semaphore(full[s], 1)
                init_semaphore(empty[s], 4)
        block.sync()
        if warpgroup.groupid() == 1:
            if warpgroup.warpid() == 0:
                for k in range(A.cols // 64):
                    s = k % 2
                    wait(empty[s], (k // 2 + 1) % 2)
                    tma.expect(full[s], a[s], b[s])
                    tma.load_async(a[s], A, (0, k), full[s])  # <- fault
                    tma.load_async(b[s], B, (k, 0), full[s])  # <- fault
        else:
            warp.zero(acc)
            for k in range(A.cols // 64):
                wait(full[k % 2], k // 2 % 2)
                warpgroup.mma_AB(acc, a[k % 2], b[k % 2])  # <- other
                warpgroup.mma_async_wait(1)
                if good:
                    if k > 0:
                        arrive(empty[(k + 1) % 2])
                else:
                    arrive(empty[k % 2])
            warpgroup.mma_async_wait()
            warpgroup.store(C, acc, (0, 0))

    return kernel


@fault(30, "TK500", error=tk.Race, hint="mma_async_wait", args=product, want=ab)
def operand_overwritten_before_the_wait(good):
    @tk.kernel(warps=4)
    def kernel(A: tk.gl_bf, B: tk.gl_bf, C: tk.gl_fl):
        a = tk.shared(tk.st_bf(64, 64))
        b = tk.shared(tk.st_bf(64, 16))
        out = tk.rt_bf(16, 64)
        acc = tk.rt_fl(16, 16)
        block.load(a, A, (0, 0))
        block.load(b, B, (0, 0))
        tma.fence()
        block.sync()
        warpgroup.mm_AB(acc, a, b)  # <- other
        if good:
            warpgroup.mma_async_wait()
        warp.zero(out)
        warpgroup.store(a, out)  # <- fault
        if not good:
            warpgroup.mma_async_wait()
        warpgroup.store(C, acc, (0, 0))

    return kernel


@fault(30, "TK500", error=tk.Race, hint="barrier|arriv", args=product, want=ab)
def b_overwritten_without_barrier(good):
    """Another warpgroup still reads B."""

    @tk.kernel(warps=8)
    def kernel(A: tk.gl_bf, B: tk.gl_bf, C: tk.gl_fl):
        a = tk.shared(tk.st_bf(64, 64), 2)
        b = tk.shared(tk.st_bf(64, 16))
        acc = tk.rt_fl(16, 16)
        zeros = tk.rt_bf(16, 16)
        warp.zero(zeros)
        wg = warpgroup.groupid()
        warpgroup.load(a[wg], A, (0, 0))
        block.load(b, B, (0, 0))
        tma.fence()
        block.sync()
        warpgroup.mm_AB(acc, a[wg], b)  # <- fault
        warpgroup.mma_async_wait()
        if good:
            block.sync()
        if wg == 1:
            warpgroup.store(b, zeros)  # <- other
        else:
            warpgroup.store(C, acc, (0, 0))

    return kernel


# ----------------------------------------------------------- 31: A registers overwritten in flight
@fault(31, "TK521", hint="mma_async_wait", args=product, want=lambda a, b, c: ab(a, b, c))
def registers_of_a_overwritten(good):
    @tk.kernel(warps=4)
    def kernel(A: tk.gl_bf, B: tk.gl_bf, C: tk.gl_fl):
        b = tk.shared(tk.st_bf(64, 16))
        a = tk.rt_bf(16, 64)
        acc = tk.rt_fl(16, 16)
        block.load(b, B, (0, 0))
        tma.fence()
        block.sync()
        warpgroup.load(a, A, (0, 0))
        warpgroup.mm_AB(acc, a, b)  # <- other
        if good:
            warpgroup.mma_async_wait()
        warp.zero(a)  # <- fault
        if not good:
            warpgroup.mma_async_wait()
        warpgroup.store(C, acc, (0, 0))

    return kernel


@fault(31, "TK521", hint="mma_async_wait", args=product, want=lambda a, b, c: 2 * ab(a, b, c))
def next_registers_copied_too_early(good):
    """As in attention: the second product still reads p when the next one is copied into it."""

    @tk.kernel(warps=4)
    def kernel(A: tk.gl_bf, B: tk.gl_bf, C: tk.gl_fl):
        b = tk.shared(tk.st_bf(64, 16))
        p = tk.rt_bf(16, 64)
        x = tk.rt_fl(16, 64)
        acc = tk.rt_fl(16, 16)
        block.load(b, B, (0, 0))
        tma.fence()
        block.sync()
        warp.zero(acc)
        warpgroup.load(x, A, (0, 0))
        for _ in range(2):
            warp.copy(p, x)  # <- fault
            warpgroup.mma_AB(acc, p, b)  # <- other
            if good:
                warpgroup.mma_async_wait()
        warpgroup.mma_async_wait()
        warpgroup.store(C, acc, (0, 0))

    return kernel


# ----------------------------------------------- 32: a generic-written operand without proxy fence
@fault(32, "TK520", error=tk.Race, hint="tma.fence()", args=product, want=ab)
def operand_copied_without_fence(good):
    @tk.kernel(warps=4)
    def kernel(A: tk.gl_bf, B: tk.gl_bf, C: tk.gl_fl):
        a = tk.shared(tk.st_bf(64, 64))
        b = tk.shared(tk.st_bf(64, 16))
        acc = tk.rt_fl(16, 16)
        block.load(a, A, (0, 0))  # <- other
        block.load(b, B, (0, 0))  # <- other
        if good:
            tma.fence()
        block.sync()
        warpgroup.mm_AB(acc, a, b)  # <- fault
        warpgroup.mma_async_wait()
        warpgroup.store(C, acc, (0, 0))

    return kernel


@fault(32, "TK520", error=tk.Race, hint="tma.fence()", args=product, want=ab)
def state_published_without_fence(good):
    """P is written with plain stores, and then wgmma reads it."""

    @tk.kernel(warps=4)
    def kernel(A: tk.gl_bf, B: tk.gl_bf, C: tk.gl_fl):
        p = tk.shared(tk.st_bf(64, 64))
        b = tk.shared(tk.st_bf(64, 16))
        full = tk.shared(tk.semaphore)
        x = tk.rt_bf(16, 64)
        acc = tk.rt_fl(16, 16)
        if warpid() == 0:
            init_semaphore(full, 1)
            tma.expect(full, b)
            tma.load_async(b, B, (0, 0), full)
        warpgroup.load(x, A, (0, 0))
        warpgroup.store(p, x)  # <- other
        if good:
            tma.fence()
        block.sync()
        wait(full, 0)
        warpgroup.mm_AB(acc, p, b)  # <- fault
        warpgroup.mma_async_wait()
        warpgroup.store(C, acc, (0, 0))

    return kernel


@fault(32, "TK520", error=tk.Race, hint="tma.fence()", args=product, want=ab)
def copied_asynchronously_without_fence(good):
    @tk.kernel(warps=4)
    def kernel(A: tk.gl_bf, B: tk.gl_bf, C: tk.gl_fl):
        a = tk.shared(tk.st_bf(64, 64))
        b = tk.shared(tk.st_bf(64, 16))
        acc = tk.rt_fl(16, 16)
        block.load_async(a, A, (0, 0))  # <- other
        block.load_async(b, B, (0, 0))  # <- other
        tk.commit_group()
        tk.wait_group(0)
        if good:
            tma.fence()
        block.sync()
        warpgroup.mm_AB(acc, a, b)  # <- fault
        warpgroup.mma_async_wait()
        warpgroup.store(C, acc, (0, 0))

    return kernel


@fault(32, "TK500 TK520", error=tk.Race, args=product, want=ab)
def operand_stored_without_barrier(good):
    """The fence is there, and no barrier: other warps may not have stored their rows of B."""

    @tk.kernel(warps=4)
    def kernel(A: tk.gl_bf, B: tk.gl_bf, C: tk.gl_fl):
        b = tk.shared(tk.st_bf(64, 16))
        a = tk.rt_bf(16, 64)
        x = tk.rt_bf(16, 16)
        acc = tk.rt_fl(16, 16)
        warpgroup.load(a, A, (0, 0))
        warpgroup.load(x, B, (0, 0))
        warpgroup.store(b, x)  # <- other
        tma.fence()
        if good:
            warpgroup.sync(1)
        warpgroup.mm_AB(acc, a, b)  # <- fault
        warpgroup.mma_async_wait()
        warpgroup.store(C, acc, (0, 0))

    return kernel


@fault(18, "TK500", error=tk.Race, hint="wait", args=product, want=ab)
def product_before_full(good):
    @tk.kernel(warps=4)
    def kernel(A: tk.gl_bf, B: tk.gl_bf, C: tk.gl_fl):
        a = tk.shared(tk.st_bf(64, 64))
        b = tk.shared(tk.st_bf(64, 16))
        a_here = tk.shared(tk.semaphore)
        b_here = tk.shared(tk.semaphore)
        acc = tk.rt_fl(16, 16)
        if warpid() == 0:
            init_semaphore(a_here, 1)
            init_semaphore(b_here, 1)
            tma.expect(a_here, a)
            tma.load_async(a, A, (0, 0), a_here)
            tma.expect(b_here, b)
            tma.load_async(b, B, (0, 0), b_here)  # <- other
        block.sync()
        wait(a_here, 0)
        if good:
            wait(b_here, 0)
        warpgroup.mm_AB(acc, a, b)  # <- fault
        warpgroup.mma_async_wait()
        if not good:
            wait(b_here, 0)
        warpgroup.store(C, acc, (0, 0))

    return kernel


# ---------------------------------------- 33: descriptor or swizzle mismatch, incomplete warpgroup
@fault(33, "TK211", error=tk.SourceError, hint="swizzle", args=product, want=ab)
def operand_without_swizzle(good):
    @tk.kernel(warps=4)
    def kernel(A: tk.gl_bf, B: tk.gl_bf, C: tk.gl_fl):
        a = tk.shared(tk.st_bf(64, 64) if good else tk.st_bf(64, 64, swizzle=0))
        b = tk.shared(tk.st_bf(64, 16))
        acc = tk.rt_fl(16, 16)
        block.load(a, A, (0, 0))
        block.load(b, B, (0, 0))
        tma.fence()
        block.sync()
        warpgroup.mm_AB(acc, a, b)  # <- fault
        warpgroup.mma_async_wait()
        warpgroup.store(C, acc, (0, 0))

    return kernel


@fault(33, "TK210", error=tk.SourceError, args=product, want=ab)
def transposed_by_mistake(good):
    @tk.kernel(warps=4)
    def kernel(A: tk.gl_bf, B: tk.gl_bf, C: tk.gl_fl):
        a = tk.shared(tk.st_bf(64, 64))
        b = tk.shared(tk.st_bf(64, 16))
        acc = tk.rt_fl(16, 16)
        block.load(a, A, (0, 0))
        block.load(b, B, (0, 0))
        tma.fence()
        block.sync()
        if good:
            warpgroup.mm_AB(acc, a, b)
        else:
            warpgroup.mm_ABt(acc, a, b)  # <- fault
        warpgroup.mma_async_wait()
        warpgroup.store(C, acc, (0, 0))

    return kernel


@fault(33, "TK303", error=tk.SourceError, args=product, want=ab)
def product_by_three_warps(good):
    @tk.kernel(warps=4)
    def kernel(A: tk.gl_bf, B: tk.gl_bf, C: tk.gl_fl):
        a = tk.shared(tk.st_bf(64, 64))
        b = tk.shared(tk.st_bf(64, 16))
        acc = tk.rt_fl(16, 16)
        block.load(a, A, (0, 0))
        block.load(b, B, (0, 0))
        tma.fence()
        block.sync()
        if good or warpid() > 0:
            warpgroup.mm_AB(acc, a, b)  # <- fault
        warpgroup.mma_async_wait()
        warpgroup.store(C, acc, (0, 0))

    return kernel


@fault(33, "TK303", error=tk.SourceError, hint="multiple of 128", args=product, want=ab)
def block_of_six_warps(good):
    warps = 8 if good else 6

    @tk.kernel(warps=warps)
    def kernel(A: tk.gl_bf, B: tk.gl_bf, C: tk.gl_fl):
        a = tk.shared(tk.st_bf(64, 64))
        b = tk.shared(tk.st_bf(64, 16))
        acc = tk.rt_fl(16, 16)
        block.load(a, A, (0, 0))
        block.load(b, B, (0, 0))
        tma.fence()
        block.sync()
        if warpid() < 4:
            warpgroup.mm_AB(acc, a, b)  # <- fault
            warpgroup.mma_async_wait()
            warpgroup.store(C, acc, (0, 0))

    return kernel


# ---------------------------------------------------------------------- 36: register pool exceeded
@fault(36, "TK507", error=tk.Deadlock, hint="decrease_registers", args=lambda: (f32(8),), want=None)
def more_registers_than_the_pool_has(good):
    @tk.kernel(warps=12)
    def kernel(y: tk.gl_fl):
        if warpgroup.groupid() == 2:
            warpgroup.decrease_registers(40 if good else 160)
        else:
            warpgroup.increase_registers(232)  # <- fault

    return kernel
