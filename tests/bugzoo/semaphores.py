"""Kinds 9 to 17: semaphores, their phases, arrivals and bytes.

Most kernels here move rows of 32 numbers: warp 0 loads them by TMA, others read them.
"""

from __future__ import annotations

import numpy as np

import tklearn as tk
from tklearn import (
    arrive,
    block,
    init_semaphore,
    invalidate_semaphore,
    laneid,
    tma,
    wait,
    warp,
    warpid,
)

from .zoo import bf, f32, fault


def rows(n: int):
    """A source and a destination of n rows."""
    return lambda: (f32(n, 32), f32(n, 32))


def same(x, y):
    return x


# --------------------------------------------------------------------------------- 9: wrong parity
@fault(9, "TK500 TK507", args=rows(1), want=same)
def consumer_waits_for_the_other_parity(good):
    @tk.kernel(warps=2)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared(tk.sv(tk.f32, 32))
        full = tk.shared(tk.semaphore)
        if warpid() == 0:
            init_semaphore(full, 1)
        block.sync()
        if warpid() == 0:
            tma.expect(full, s)
            tma.load_async(s, x, (0, 0), full)  # <- fault
        else:
            wait(full, 0 if good else 1)  # <- fault
            y[0, laneid()] = s[laneid()]  # <- fault

    return kernel


@fault(9, "TK507", error=tk.Deadlock, args=rows(4), want=same, hint="parity 1")
def producer_waits_for_the_consumers_parity(good):
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
                wait(empty[i], (k // 2 + 1) % 2 if good else k // 2 % 2)  # <- fault
                tma.expect(full[i], s[i])
                tma.load_async(s[i], x, (k, 0), full[i])
            else:
                wait(full[i], k // 2 % 2)  # <- other
                y[k, laneid()] = s[i][laneid()]
                arrive(empty[i])

    return kernel


@fault(9, "TK500 TK507", args=lambda: (bf(32, 16), bf(32, 16)), want=same)
def tile_wait_with_the_wrong_parity(good):
    @tk.kernel(warps=3)
    def kernel(x: tk.gl_bf, y: tk.gl_bf):
        s = tk.shared(tk.st_bf(32, 16))
        full = tk.shared(tk.semaphore)
        t = tk.rt_bf(16, 16)
        if warpid() == 0:
            init_semaphore(full, 1)
        block.sync()
        if warpid() == 2:
            tma.expect(full, s)
            tma.load_async(s, x, (0, 0), full)  # <- fault
        else:
            wait(full, 0 if good else 1)  # <- fault
            warp.load(t, s.subtile(16, 16, (warpid(), 0)))  # <- fault
            warp.store(y, t, (warpid(), 0))

    return kernel


@fault(9, "TK500 TK523", hint="warp 2 has not waited for phase 0 before",
       args=lambda: (f32(32, 32), f32(32, 32)), want=lambda x, y: x)  # fmt: skip
def second_consumer_waits_for_its_own_phase_only(good):
    @tk.kernel(warps=3)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared(tk.st_fl(16, 32))
        t = tk.rt_fl(16, 32)
        full = tk.shared(tk.semaphore)
        empty = tk.shared(tk.semaphore)
        if warpid() == 0:
            init_semaphore(full, 1)
            init_semaphore(empty, 2 if good else 1)
        block.sync()
        if warpid() == 0:
            for k in range(2):
                wait(empty, (k + 1) % 2)
                tma.expect(full, s)
                tma.load_async(s, x, (k, 0), full)
        if warpid() == 1:
            wait(full, 0)
            warp.load(t, s)
            warp.store(y, t, (0, 0))
            arrive(empty)
        if warpid() == 2:
            if good:
                wait(full, 0)
                arrive(empty)
            wait(full, 1)  # <- fault
            warp.load(t, s)  # <- fault
            warp.store(y, t, (1, 0))

    return kernel


# ------------------------------------------------ 10: the phase is not flipped when the ring wraps
@fault(10, "TK500 TK507 TK523", args=rows(4), want=same)
def phase_never_flips(good):
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
                wait(empty[i], (k // 2 + 1) % 2)  # <- fault
                tma.expect(full[i], s[i])
                tma.load_async(s[i], x, (k, 0), full[i])  # <- fault
            else:
                wait(full[i], k // 2 % 2 if good else 0)  # <- fault
                y[k, laneid()] = s[i][laneid()]  # <- fault
                arrive(empty[i])  # <- fault

    return kernel


@fault(10, "TK500 TK507 TK523", args=rows(4), want=same)
def phase_flips_at_every_step(good):
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
                wait(empty[i], (k // 2 + 1) % 2)  # <- fault
                tma.expect(full[i], s[i])
                tma.load_async(s[i], x, (k, 0), full[i])  # <- fault
            else:
                wait(full[i], k // 2 % 2 if good else k % 2)  # <- fault
                y[k, laneid()] = s[i][laneid()]  # <- fault
                arrive(empty[i])  # <- fault

    return kernel


@fault(10, "TK500 TK507 TK522 TK523", args=rows(6), want=same)
def phases_start_again_with_each_tile(good):
    """Right for one tile and wrong for several: the semaphores go on where they stood."""

    @tk.kernel(warps=2)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared(tk.sv(tk.f32, 32))
        full = tk.shared(tk.semaphore)
        empty = tk.shared(tk.semaphore)
        if warpid() == 0:
            init_semaphore(full, 1)
            init_semaphore(empty, 1)
        block.sync()
        n = 0
        for tile in range(2):
            if not good:
                n = 0
            for k in range(3):
                if warpid() == 0:
                    wait(empty, (n + 1) % 2)  # <- fault
                    tma.expect(full, s)  # <- fault
                    tma.load_async(s, x, (tile * 3 + k, 0), full)  # <- fault
                else:
                    wait(full, n % 2)  # <- fault
                    y[tile * 3 + k, laneid()] = s[laneid()]  # <- fault
                    arrive(empty)  # <- fault
                n += 1

    return kernel


@fault(10, "TK500 TK507 TK523", args=rows(4), want=same)
def ring_does_not_advance(good):
    @tk.kernel(warps=2)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared(tk.sv(tk.f32, 32), 2)
        full = tk.shared(tk.semaphore, 2)
        empty = tk.shared(tk.semaphore, 2)
        r = tk.ring(2)
        if warpid() == 0:
            for i in range(2):
                init_semaphore(full[i], 1)
                init_semaphore(empty[i], 1)
        block.sync()
        for k in range(4):
            if warpid() == 0:
                wait(empty[r.stage], r.phase ^ 1)  # <- fault
                tma.expect(full[r.stage], s[r.stage])
                tma.load_async(s[r.stage], x, (k, 0), full[r.stage])  # <- fault
                r.advance()
            else:
                wait(full[r.stage], r.phase)  # <- fault
                y[k, laneid()] = s[r.stage][laneid()]  # <- fault
                arrive(empty[r.stage])  # <- fault
                if good:
                    r.advance()

    return kernel


# ------------------------------------------------------------------------- 11: wrong arrival count
@fault(11, "TK500 TK523 TK507", args=rows(3), want=same)
def one_arrival_for_two_consumers(good):
    @tk.kernel(warps=3)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared(tk.sv(tk.f32, 32))
        full = tk.shared(tk.semaphore)
        empty = tk.shared(tk.semaphore)
        if warpid() == 0:
            init_semaphore(full, 1)
            init_semaphore(empty, 2 if good else 1)
        block.sync()
        for k in range(3):
            if warpid() == 0:
                wait(empty, (k + 1) % 2)  # <- fault
                tma.expect(full, s)
                tma.load_async(s, x, (k, 0), full)  # <- fault
            else:
                wait(full, k % 2)
                if laneid() // 16 == warpid() - 1:
                    y[k, laneid()] = s[laneid()]  # <- fault
                arrive(empty)  # <- fault

    return kernel


@fault(11, "TK507", error=tk.Deadlock, args=rows(2), want=same, hint="arrival")
def more_arrivals_awaited_than_come(good):
    @tk.kernel(warps=3)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared(tk.sv(tk.f32, 32))
        full = tk.shared(tk.semaphore)
        empty = tk.shared(tk.semaphore)
        if warpid() == 0:
            init_semaphore(full, 1)
            init_semaphore(empty, 2 if good else 3)
        block.sync()
        for k in range(2):
            if warpid() == 0:
                wait(empty, (k + 1) % 2)  # <- fault
                tma.expect(full, s)
                tma.load_async(s, x, (k, 0), full)
            else:
                wait(full, k % 2)  # <- other
                if laneid() // 16 == warpid() - 1:
                    y[k, laneid()] = s[laneid()]
                arrive(empty)

    return kernel


@fault(11, "TK507", error=tk.Deadlock, args=rows(1), want=same, hint="arrival")
def full_counts_an_arrival_too_many(good):
    @tk.kernel(warps=2)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared(tk.sv(tk.f32, 32))
        full = tk.shared(tk.semaphore)
        if warpid() == 0:
            init_semaphore(full, 1 if good else 2)
            tma.expect(full, s)
            tma.load_async(s, x, (0, 0), full)
        block.sync()
        wait(full, 0)  # <- fault
        if warpid() == 1:
            y[0, laneid()] = s[laneid()]

    return kernel


@fault(11, "TK507", error=tk.Deadlock, args=rows(3), want=same, hint="arrival")
def consumer_forgets_to_arrive(good):
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
                wait(empty, (k + 1) % 2)  # <- fault
                tma.expect(full, s)
                tma.load_async(s, x, (k, 0), full)
            else:
                wait(full, k % 2)  # <- other
                y[k, laneid()] = s[laneid()]
                if good:
                    arrive(empty)

    return kernel


# --------------------------------------------------- 12: use before init, or init not made visible
@fault(12, "TK522", hint="initialises", args=rows(1), want=same)
def never_initialised(good):
    @tk.kernel(warps=2)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared(tk.sv(tk.f32, 32))
        full = tk.shared(tk.semaphore)
        if good and warpid() == 0:
            init_semaphore(full, 1)
        block.sync()
        if warpid() == 0:
            tma.expect(full, s)  # <- fault
            tma.load_async(s, x, (0, 0), full)
        else:
            wait(full, 0)  # <- fault
            y[0, laneid()] = s[laneid()]

    return kernel


@fault(12, "TK500 TK522", hint="block.sync()", args=rows(1), want=same)
def init_is_not_made_visible(good):
    @tk.kernel(warps=2)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared(tk.sv(tk.f32, 32))
        full = tk.shared(tk.semaphore)
        if warpid() == 0:
            init_semaphore(full, 1)  # <- other
        if good:
            block.sync()
        if warpid() == 0:
            tma.expect(full, s)
            tma.load_async(s, x, (0, 0), full)
        else:
            wait(full, 0)  # <- fault
            y[0, laneid()] = s[laneid()]

    return kernel


@fault(12, "TK522", args=rows(3), want=same)
def last_stage_is_not_initialised(good):
    @tk.kernel(warps=2)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared(tk.sv(tk.f32, 32), 3)
        full = tk.shared(tk.semaphore, 3)
        if warpid() == 0:
            for i in range(3 if good else 2):
                init_semaphore(full[i], 1)
        block.sync()
        for k in range(3):
            if warpid() == 0:
                tma.expect(full[k], s[k])  # <- fault
                tma.load_async(s[k], x, (k, 0), full[k])
            else:
                wait(full[k], 0)  # <- fault
                y[k, laneid()] = s[k][laneid()]

    return kernel


# --------------------------------------------------------------- 13: more bytes expected than come
@fault(13, "TK507", error=tk.Deadlock, args=rows(1), want=same, hint="bytes")
def expected_bytes_too_many(good):
    @tk.kernel(warps=2)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared(tk.sv(tk.f32, 32))
        full = tk.shared(tk.semaphore)
        if warpid() == 0:
            init_semaphore(full, 1)
            tma.expect_bytes(full, 128 if good else 256)
            tma.load_async(s, x, (0, 0), full)
        block.sync()
        wait(full, 0)  # <- fault
        if warpid() == 1:
            y[0, laneid()] = s[laneid()]

    return kernel


@fault(13, "TK507", error=tk.Deadlock, args=lambda: (bf(16, 16), bf(16, 16), bf(16, 16)),
       want=lambda a, b, c: (a + b), hint="bytes")  # fmt: skip
def one_of_two_copies_is_missing(good):
    @tk.kernel(warps=2)
    def kernel(A: tk.gl_bf, B: tk.gl_bf, C: tk.gl_bf):
        a = tk.shared(tk.st_bf(16, 16))
        b = tk.shared(tk.st_bf(16, 16))
        full = tk.shared(tk.semaphore)
        t = tk.rt_bf(16, 16)
        u = tk.rt_bf(16, 16)
        if warpid() == 0:
            init_semaphore(full, 1)
            tma.expect(full, a, b)
            tma.load_async(a, A, (0, 0), full)
            if good:
                tma.load_async(b, B, (0, 0), full)
        block.sync()
        if warpid() == 1:
            wait(full, 0)  # <- fault
            warp.load(t, a)
            warp.load(u, b)
            t += u
            warp.store(C, t, (0, 0))

    return kernel


# -------------------------------------------------------------- 14: fewer bytes expected than come
@fault(14, "TK522", args=lambda: (bf(16, 16), bf(16, 16), bf(16, 16)),
       want=lambda a, b, c: (a + b), hint="tma.expect")  # fmt: skip
def only_one_of_two_tiles_expected(good):
    @tk.kernel(warps=2)
    def kernel(A: tk.gl_bf, B: tk.gl_bf, C: tk.gl_bf):
        a = tk.shared(tk.st_bf(16, 16))
        b = tk.shared(tk.st_bf(16, 16))
        full = tk.shared(tk.semaphore)
        t = tk.rt_bf(16, 16)
        u = tk.rt_bf(16, 16)
        if warpid() == 0:
            init_semaphore(full, 1)
            if good:
                tma.expect(full, a, b)
            else:
                tma.expect(full, a)
            tma.load_async(a, A, (0, 0), full)
            tma.load_async(b, B, (0, 0), full)  # <- fault
        block.sync()
        if warpid() == 1:
            wait(full, 0)
            warp.load(t, a)
            warp.load(u, b)
            t += u
            warp.store(C, t, (0, 0))

    return kernel


@fault(14, "TK522", args=rows(1), want=same, hint="tma.expect")
def expected_bytes_too_few(good):
    @tk.kernel(warps=2)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared(tk.sv(tk.f32, 32))
        full = tk.shared(tk.semaphore)
        if warpid() == 0:
            init_semaphore(full, 1)
            tma.expect_bytes(full, 128 if good else 32)
            tma.load_async(s, x, (0, 0), full)  # <- fault
        block.sync()
        wait(full, 0)
        if warpid() == 1:
            y[0, laneid()] = s[laneid()]

    return kernel


# ---------------------------------------------------------------------- 15: expect missing or late
@fault(15, "TK500", args=rows(1), want=same, hint="tma.expect")
def arrive_in_place_of_expect(good):
    @tk.kernel(warps=2)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared(tk.sv(tk.f32, 32))
        full = tk.shared(tk.semaphore)
        if warpid() == 0:
            init_semaphore(full, 1)
        block.sync()
        if warpid() == 0:
            if good:
                tma.expect(full, s)
            else:
                arrive(full)
            tma.load_async(s, x, (0, 0), full)  # <- fault
        else:
            wait(full, 0)
            y[0, laneid()] = s[laneid()]  # <- other

    return kernel


@fault(15, "TK507", error=tk.Deadlock, args=rows(1), want=same, hint="tma.expect")
def expect_forgotten(good):
    @tk.kernel(warps=2)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared(tk.sv(tk.f32, 32))
        full = tk.shared(tk.semaphore)
        if warpid() == 0:
            init_semaphore(full, 1)
        block.sync()
        if warpid() == 0:
            if good:
                tma.expect(full, s)
            tma.load_async(s, x, (0, 0), full)
        else:
            wait(full, 0)  # <- fault
            y[0, laneid()] = s[laneid()]

    return kernel


@fault(15, "TK522", args=rows(1), want=same, hint="tma.expect")
def expect_after_the_phase_has_ended(good):
    @tk.kernel(warps=2)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared(tk.sv(tk.f32, 32))
        full = tk.shared(tk.semaphore)
        if warpid() == 0:
            init_semaphore(full, 2)
        block.sync()
        if warpid() == 0:
            if good:
                tma.expect(full, s)
            tma.load_async(s, x, (0, 0), full)
            arrive(full)
            if not good:
                arrive(full)  # <- fault
                tma.expect(full, s)
        else:
            wait(full, 0)
            y[0, laneid()] = s[laneid()]

    return kernel


# ------------------------------------------------------------------------------- 16: arrives twice
@fault(16, "TK500 TK522 TK523", args=rows(3), want=same)
def consumer_arrives_twice(good):
    @tk.kernel(warps=3)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared(tk.sv(tk.f32, 32))
        full = tk.shared(tk.semaphore)
        empty = tk.shared(tk.semaphore)
        if warpid() == 0:
            init_semaphore(full, 1)
            init_semaphore(empty, 2)
        block.sync()
        for k in range(3):
            if warpid() == 0:
                wait(empty, (k + 1) % 2)
                tma.expect(full, s)
                tma.load_async(s, x, (k, 0), full)  # <- fault
            else:
                wait(full, k % 2)
                if laneid() // 16 == warpid() - 1:
                    y[k, laneid()] = s[laneid()]  # <- fault
                arrive(empty, 1 if good or warpid() == 2 else 2)  # <- fault

    return kernel


@fault(16, "TK522 TK523", args=rows(1), want=same)
def every_warp_expects(good):
    @tk.kernel(warps=2)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared(tk.sv(tk.f32, 32))
        full = tk.shared(tk.semaphore)
        if warpid() == 0:
            init_semaphore(full, 1)
        block.sync()
        if warpid() == 0 or not good:
            tma.expect(full, s)  # <- fault
        if warpid() == 0:
            tma.load_async(s, x, (0, 0), full)
        wait(full, 0)
        if warpid() == 1:
            y[0, laneid()] = s[laneid()]

    return kernel


@fault(16, "TK522 TK523", args=rows(2), want=same)
def producer_runs_a_phase_ahead(good):
    @tk.kernel(warps=2)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared(tk.sv(tk.f32, 32), 2)
        full = tk.shared(tk.semaphore)
        if warpid() == 0:
            init_semaphore(full, 1)
        block.sync()
        for k in range(2):
            if warpid() == 0:
                tma.expect(full, s[k])  # <- fault
                tma.load_async(s[k], x, (k, 0), full)
            else:
                wait(full, k)
                y[k, laneid()] = s[k][laneid()]
            if good:
                block.sync()

    return kernel


# ------------------------------------------------------------ 17: initialised again, or overlapped
@fault(17, "TK522", hint="once", args=rows(2), want=same)
def initialised_again(good):
    @tk.kernel(warps=2)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared(tk.sv(tk.f32, 32))
        full = tk.shared(tk.semaphore)
        if good and warpid() == 0:
            init_semaphore(full, 1)
        for k in range(2):
            if not good and warpid() == 0:
                init_semaphore(full, 1)  # <- fault
            block.sync()
            if warpid() == 0:
                tma.expect(full, s)
                tma.load_async(s, x, (k, 0), full)
            wait(full, k if good else 0)
            if warpid() == 1:
                y[k, laneid()] = s[laneid()]
            block.sync()

    return kernel


@fault(17, "TK522", args=rows(2), want=same)
def invalidated_while_another_warp_waits(good):
    @tk.kernel(warps=2)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared(tk.sv(tk.f32, 32))
        full = tk.shared(tk.semaphore)
        for k in range(2):
            if warpid() == 0:
                init_semaphore(full, 1)
            block.sync()
            if warpid() == 0:
                tma.expect(full, s)
                tma.load_async(s, x, (k, 0), full)
            wait(full, 0)  # <- fault
            if warpid() == 1:
                y[k, laneid()] = s[laneid()]
            if good:
                block.sync()
            if warpid() == 0:
                invalidate_semaphore(full)  # <- fault
            block.sync()

    return kernel


@fault(17, "TK106", error=tk.TkError, args=rows(1), want=same)
def tile_over_a_semaphore(good):
    @tk.kernel(warps=2)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        full = tk.shared(tk.semaphore, 16)
        if good:
            s = tk.shared(tk.sv(tk.f32, 32))
        else:
            s = tk.alias(full, tk.sv(tk.f32, 32))  # <- fault
        if warpid() == 0:
            init_semaphore(full[0], 1)
            tma.expect(full[0], s)
            tma.load_async(s, x, (0, 0), full[0])
        block.sync()
        wait(full[0], 0)
        if warpid() == 1:
            y[0, laneid()] = s[laneid()]

    return kernel


assert np is not None
