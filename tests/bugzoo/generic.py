"""Kinds 1 to 8: plain accesses, barriers of the block, named barriers, lanes of one warp."""

from __future__ import annotations

import numpy as np

import tklearn as tk
from tklearn import block, laneid, threadIdx, warp, warpgroup, warpid

from .zoo import bf, f32, fault, i32

# ruff: noqa: SIM102


# ------------------------------------------- 1: no barrier between a write and another warp's read
@fault(1, "TK500", hint="block.sync()", error=tk.Race, args=lambda: (f32(64), f32(64)),
       want=lambda x, y: x[::-1])  # fmt: skip
def element_read_before_barrier(good):
    @tk.kernel(threads=64)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared_array(tk.f32, 64)
        s[threadIdx.x] = x[threadIdx.x]  # <- other
        if good:
            block.sync()
        y[threadIdx.x] = s[63 - threadIdx.x]  # <- fault

    return kernel


@fault(1, "TK500", hint="block.sync()", error=tk.Race, args=lambda: (f32(32, 32), f32(32, 32)),
       want=lambda x, y: np.roll(x, 16, 0))  # fmt: skip
def tile_read_before_barrier(good):
    @tk.kernel(warps=2)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared(tk.st_fl(32, 32))
        t = tk.rt_fl(16, 32)
        warp.load(t, x, (warpid(), 0))
        warp.store(s.subtile(16, 32, (warpid(), 0)), t)  # <- other
        if good:
            block.sync()
        warp.load(t, s.subtile(16, 32, (1 - warpid(), 0)))  # <- fault
        warp.store(y, t, (warpid(), 0))

    return kernel


@fault(1, "TK500 TK501", hint="block.sync()", error=tk.Race,
       args=lambda: (bf(32, 32), bf(32, 32)), want=lambda x, y: x)  # fmt: skip
def block_load_read_before_barrier(good):
    @tk.kernel(warps=2)
    def kernel(x: tk.gl_bf, y: tk.gl_bf):
        s = tk.shared(tk.st_bf(32, 32))
        t = tk.rt_bf(16, 32)
        block.load(s, x, (0, 0))  # <- other
        if good:
            block.sync()
        warp.load(t, s.subtile(16, 32, (warpid(), 0)))  # <- fault
        warp.store(y, t, (warpid(), 0))

    return kernel


@fault(1, "TK500 TK501", hint="block.sync()", error=tk.Race,
       args=lambda: (f32(32, 32), f32(32, 32)), want=lambda x, y: x)  # fmt: skip
def epilogue_copies_too_early(good):
    @tk.kernel(warps=2)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared(tk.st_fl(32, 32))
        t = tk.rt_fl(16, 32)
        warp.load(t, x, (warpid(), 0))
        warp.store(s.subtile(16, 32, (warpid(), 0)), t)  # <- other
        if good:
            block.sync()
        block.store(y, s, (0, 0))  # <- fault

    return kernel


@fault(1, "TK500", hint="block.sync()", error=tk.Race, args=lambda: (f32(64), f32(64)),
       want=lambda x, y: x + 1)  # fmt: skip
def global_element_read_before_barrier(good):
    @tk.kernel(threads=64)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        y[63 - threadIdx.x] = x[63 - threadIdx.x]  # <- other
        if good:
            block.sync()
        y[threadIdx.x] = y[threadIdx.x] + 1.0  # <- fault

    return kernel


# ----------------------------------------- 2: no barrier before overwriting what others still read
@fault(2, "TK500", hint="runs again|next run", error=tk.Race, args=lambda: (f32(3, 64), f32(64)),
       want=lambda x, y: x[:, ::-1].sum(0))  # fmt: skip
def element_overwritten_in_the_next_turn(good):
    @tk.kernel(threads=64)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared_array(tk.f32, 64)
        total = 0.0
        for k in range(3):
            s[threadIdx.x] = x[k, threadIdx.x]  # <- other
            block.sync()
            total += s[63 - threadIdx.x]  # <- fault
            if good:
                block.sync()
        y[threadIdx.x] = total

    return kernel


@fault(2, "TK500", hint="runs again|next run", error=tk.Race,
       args=lambda: (bf(32, 64), bf(64, 32), f32(32, 32)),
       want=lambda a, b, c: a.astype("f4") @ b.astype("f4"))  # fmt: skip
def tiled_matmul_with_one_barrier(good):
    @tk.kernel(warps=2)
    def kernel(A: tk.gl_bf, B: tk.gl_bf, C: tk.gl_fl):
        a_s = tk.shared(tk.st_bf(32, 32))
        b_s = tk.shared(tk.st_bf(32, 32))
        a = tk.rt_bf(16, 32)
        b = tk.rt_bf(32, 32, tk.col)
        acc = tk.rt_fl(16, 32)
        warp.zero(acc)
        for k in range(A.cols // 32):
            block.load(a_s, A, (0, k))  # <- other
            block.load(b_s, B, (k, 0))  # <- other
            block.sync()
            warp.load(a, a_s.subtile(16, 32, (warpid(), 0)))  # <- fault
            warp.load(b, b_s)  # <- fault
            warp.mma_AB(acc, a, b)
            if good:
                block.sync()
        warp.store(C, acc, (warpid(), 0))

    return kernel


@fault(2, "TK500 TK501", hint="block.sync()", error=tk.Race, args=lambda: (f32(4, 64), f32(64)),
       want=lambda x, y: np.full(64, x[:, 0].sum(), "f4"))  # fmt: skip
def value_carried_round_the_loop(good):
    @tk.kernel(threads=64)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        carry = tk.shared_array(tk.f32, 1)
        if threadIdx.x == 0:
            carry[0] = 0.0
        block.sync()
        for k in range(4):
            v = carry[0]  # <- fault
            if good:
                block.sync()
            if threadIdx.x == 0:
                carry[0] = v + x[k, 0]  # <- other
            block.sync()
        y[threadIdx.x] = carry[0]

    return kernel


# -------------------------------------------------------------------- 3: two warps write one place
@fault(3, "TK500", hint="atomic", error=tk.Race, args=lambda: (f32(64), f32(1)),
       want=lambda x, y: [x[0] + x[32]])  # fmt: skip
def sum_without_atomic(good):
    @tk.kernel(threads=64)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        total = tk.shared_array(tk.f32, 1)
        if threadIdx.x == 0:
            total[0] = 0.0
        block.sync()
        if laneid() == 0:
            if good:
                tk.atomic_add(total[0], x[threadIdx.x])
            else:
                total[0] += x[threadIdx.x]  # <- fault
        block.sync()
        if threadIdx.x == 0:
            y[0] = total[0]

    return kernel


@fault(
    3, "TK500", error=tk.Race, hint="tk.alias", args=lambda: (f32(64), f32(64)), want=lambda x, y: x
)
def buffers_that_overlap(good):
    @tk.kernel(threads=64)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        room = tk.shared_array(tk.f32, 64)
        low = tk.alias(room, (tk.f32, 32))
        high = tk.alias(room, (tk.f32, 32), 128 if good else 64)
        if warpid() == 0:
            low[laneid()] = x[laneid()]  # <- fault
        else:
            high[laneid()] = x[32 + laneid()]  # <- other
        block.sync()
        y[threadIdx.x] = room[threadIdx.x]

    return kernel


@fault(3, "TK500", error=tk.Race, args=lambda: (f32(32, 32), f32(32, 32)), want=lambda x, y: x)
def warps_store_one_band(good):
    @tk.kernel(warps=2)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared(tk.st_fl(32, 32))
        t = tk.rt_fl(16, 32)
        warp.load(t, x, (warpid(), 0))
        warp.store(s.subtile(16, 32, (warpid() if good else warpid() // 2, 0)), t)  # <- fault
        block.sync()
        if good:
            block.store(y, s, (0, 0))

    return kernel


@fault(3, "TK500", hint="block.sync()", error=tk.Race, args=lambda: (np.zeros(2, np.float32),),
       want=lambda y: [2.0, 2.0])  # fmt: skip
def sum_read_by_the_warp_that_added_last(good):
    @tk.kernel(threads=64)
    def kernel(y: tk.gl_fl):
        if laneid() == 0:
            tk.atomic_add(y[0], 1.0)  # <- other
        if good:
            block.sync()
        if threadIdx.x == 32:
            y[1] = y[0]  # <- fault

    return kernel


# ---------------------------------------------------------------- 4: barrier in a divergent branch
@fault(4, "TK506", args=lambda: (f32(64),), want=lambda y: np.ones(64, "f4"))
def barrier_in_each_branch(good):
    @tk.kernel(threads=64)
    def kernel(y: tk.gl_fl):
        if good:
            block.sync()
        elif warpid() == 0:
            block.sync()  # <- fault
        else:
            block.sync()  # <- other
        y[threadIdx.x] = 1.0

    return kernel


@fault(4, "TK506", hint="move it out", args=lambda: (f32(64), f32(64)), want=lambda x, y: x)
def barrier_for_one_role_only(good):
    @tk.kernel(threads=64)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared_array(tk.f32, 64)
        s[threadIdx.x] = x[threadIdx.x]
        if warpid() == 0:
            if not good:
                block.sync()  # <- fault
            y[laneid()] = s[laneid()]
        if good:
            block.sync()
        if warpid() == 1:
            y[threadIdx.x] = s[threadIdx.x]

    return kernel


@fault(4, "TK507", error=tk.Deadlock, args=lambda: (f32(64),), want=lambda y: np.ones(64, "f4"))
def named_barrier_in_one_branch(good):
    @tk.kernel(threads=64)
    def kernel(y: tk.gl_fl):
        if good or warpid() == 0:
            block.sync(1, 64)  # <- fault
        y[threadIdx.x] = 1.0

    return kernel


@fault(4, "TK303", error=tk.TkError, args=lambda: (f32(128),), want=lambda y: np.ones(128, "f4"))
def warpgroup_barrier_for_three_warps(good):
    @tk.kernel(threads=128)
    def kernel(y: tk.gl_fl):
        if warpid() < (4 if good else 3):
            y[threadIdx.x] = 0.0
        if good or warpid() < 3:
            warpgroup.sync(1)  # <- fault
        y[threadIdx.x] = 1.0

    return kernel


@fault(4, "TK500 TK506", hint="move it out", args=lambda: (f32(128), f32(128)),
       want=lambda x, y: x[::-1])  # fmt: skip
def barrier_of_half_the_warps_in_a_loop(good):
    @tk.kernel(threads=128)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared_array(tk.f32, 128)
        for _ in range(2):
            s[threadIdx.x] = x[threadIdx.x]  # <- fault
            if good:
                block.sync()
            elif warpid() < 2:
                block.sync()  # <- fault
            y[threadIdx.x] = s[127 - threadIdx.x]  # <- fault
            if good:
                block.sync()

    return kernel


# ------------------------------------------------------------- 5: a named barrier's count is wrong
@fault(
    5,
    "TK500 TK524",
    hint="count them both",
    args=lambda: (f32(64), f32(64)),
    want=lambda x, y: x[::-1],
)
def named_barrier_count_too_small(good):
    @tk.kernel(threads=96)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared_array(tk.f32, 64)
        if warpid() < 2:
            s[threadIdx.x] = x[threadIdx.x]
            block.sync(1, 64 if good else 32)  # <- fault
            y[threadIdx.x] = s[63 - threadIdx.x]  # <- fault

    return kernel


@fault(5, "TK507", error=tk.Deadlock, args=lambda: (f32(64), f32(64)), want=lambda x, y: x[::-1])
def named_barrier_count_too_large(good):
    @tk.kernel(threads=96)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared_array(tk.f32, 64)
        if warpid() < 2:
            s[threadIdx.x] = x[threadIdx.x]
            block.sync(1, 64 if good else 96)  # <- fault
            y[threadIdx.x] = s[63 - threadIdx.x]

    return kernel


@fault(5, "TK524", args=lambda: (f32(32), f32(32)), want=lambda x, y: x)
def counts_of_arrive_and_sync_differ(good):
    @tk.kernel(threads=96)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared_array(tk.f32, 32)
        if warpid() == 0:
            s[laneid()] = x[laneid()]
            block.arrive(1, 64)  # <- other
        if warpid() == 1:
            block.sync(1, 64 if good else 96)  # <- fault
            y[laneid()] = s[laneid()]

    return kernel


# ------------------------------------------------------------- 6: two groups use one named barrier
@fault(6, "TK524", hint="number of its own", args=lambda: (f32(256), f32(256)),
       want=lambda x, y: np.concatenate([x[127::-1], x[:127:-1]]))  # fmt: skip
def warpgroups_share_a_barrier(good):
    @tk.kernel(threads=256)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared_array(tk.f32, 256)
        g = warpgroup.groupid()
        s[threadIdx.x] = x[threadIdx.x]
        warpgroup.sync(g + 1 if good else 1)  # <- fault
        y[threadIdx.x] = s[g * 128 + 127 - warpgroup.laneid()]

    return kernel


@fault(6, "TK524 TK500", args=lambda: (f32(128), f32(128)),
       want=lambda x, y: np.concatenate([x[63::-1], x[:63:-1]]))  # fmt: skip
def pairs_of_warps_share_a_barrier(good):
    @tk.kernel(threads=128)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared_array(tk.f32, 128)
        pair = warpid() // 2
        s[threadIdx.x] = x[threadIdx.x]
        block.sync(pair + 1 if good else 1, 64)  # <- fault
        y[threadIdx.x] = s[pair * 128 + 63 - threadIdx.x]  # <- fault

    return kernel


@fault(6, "TK524 TK500", args=lambda: (f32(2, 32), f32(2, 32)), want=lambda x, y: x)
def writer_runs_ahead_of_a_barrier(good):
    @tk.kernel(threads=64)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared_array(tk.f32, 2, 32)
        for k in range(2):
            if warpid() == 0:
                s[k, laneid()] = x[k, laneid()]
                block.arrive(1, 64)  # <- fault
            else:
                block.sync(1, 64)  # <- fault
                y[k, laneid()] = s[k, laneid()]
            if good:
                block.sync()

    return kernel


# --------------------------------------- 7: lanes exchange through shared memory without warp.sync
@fault(7, "TK501", hint="warp.sync()", error=tk.Race, args=lambda: (f32(32), f32(32)),
       want=lambda x, y: x[::-1])  # fmt: skip
def lanes_exchange_elements(good):
    @tk.kernel(threads=32)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared_array(tk.f32, 32)
        s[laneid()] = x[laneid()]  # <- other
        if good:
            warp.sync()
        y[laneid()] = s[31 - laneid()]  # <- fault

    return kernel


@fault(7, "TK501", hint="warp.sync()", error=tk.Race, args=lambda: (f32(64), f32(2)),
       want=lambda x, y: x.reshape(2, 32).sum(1))  # fmt: skip
def reduction_in_a_warp(good):
    @tk.kernel(threads=64)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared_array(tk.f32, 64)
        s[threadIdx.x] = x[threadIdx.x]  # <- other
        half = 16
        while half > 0:
            if good:
                warp.sync()
            if laneid() < half:
                s[threadIdx.x] += s[threadIdx.x + half]  # <- fault
            half //= 2
        if laneid() == 0:
            y[warpid()] = s[threadIdx.x]

    return kernel


@fault(7, "TK501", hint="warp.sync()", error=tk.Race, args=lambda: (f32(16, 16), f32(16, 16)),
       want=lambda x, y: x)  # fmt: skip
def lanes_write_what_the_warp_loads(good):
    @tk.kernel(threads=32)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared(tk.st_fl(16, 16))
        t = tk.rt_fl(16, 16)
        for k in range(8):
            i = k * 32 + laneid()
            s[i // 16, i % 16] = x[i // 16, i % 16]  # <- other
        if good:
            warp.sync()
        warp.load(t, s)  # <- fault
        warp.store(y, t, (0, 0))

    return kernel


# An atomic is no barrier: other lanes' plain accesses of its element need an order, too.
@fault(7, "TK501", hint="warp.sync()", error=tk.Race, args=lambda: (f32(1),), want=lambda y: [37.0])
def element_set_before_all_lanes_add(good):
    @tk.kernel(warps=1)
    def kernel(y: tk.gl_fl):
        if laneid() == 0:
            y[0] = 5.0  # <- other
        if good:
            warp.sync()
        tk.atomic_add(y[0], 1.0)  # <- fault

    return kernel


@fault(7, "TK501", hint="warp.sync()", error=tk.Race, args=lambda: (np.zeros(2, np.float32),),
       want=lambda y: [32.0, 32.0])  # fmt: skip
def sum_read_after_all_lanes_add(good):
    @tk.kernel(warps=1)
    def kernel(y: tk.gl_fl):
        tk.atomic_add(y[0], 1.0)  # <- other
        if good:
            warp.sync()
        if laneid() == 31:
            y[1] = y[0]  # <- fault

    return kernel


@fault(7, "TK501", hint="warp.sync()", error=tk.Race, args=lambda: (f32(32),),
       want=lambda y: np.arange(32))  # fmt: skip
def ticket_taken_where_another_lane_writes(good):
    @tk.kernel(warps=1)
    def kernel(y: tk.gl_fl):
        if laneid() == 0:
            y[0] = 0.0
        warp.sync()
        v = tk.atomic_add(y[0], 1.0)  # <- other
        if good:
            warp.sync()
        y[laneid()] = v  # <- fault

    return kernel


@fault(7, "TK501", hint="warp.sync()", error=tk.Race, args=lambda: (i32(32), f32(32)),
       want=lambda at, y: np.bincount(at, minlength=32))  # fmt: skip
def bins_read_after_lanes_add(good):
    @tk.kernel(warps=1)
    def kernel(at: tk.gl(tk.i32), y: tk.gl_fl):
        s = tk.shared_array(tk.f32, 32)
        s[laneid()] = 0.0
        warp.sync()
        tk.atomic_add(s[at[laneid()]], 1.0)  # <- other
        if good:
            warp.sync()
        y[laneid()] = s[laneid()]  # <- fault

    return kernel


# --------------------------------------------------------- 8: a warp leaves before a block barrier
@fault(8, "TK506", hint="no warp return before it", args=lambda: (f32(64),),
       want=lambda y: np.ones(64, "f4"))  # fmt: skip
def warp_leaves_before_the_barrier(good):
    @tk.kernel(threads=64)
    def kernel(y: tk.gl_fl):
        if good:
            y[threadIdx.x] = 0.0
        elif warpid() == 0:
            return
        block.sync()  # <- fault
        y[threadIdx.x] = 1.0

    return kernel


@fault(8, "TK506", args=lambda: (50, f32(64)), want=lambda n, y: np.r_[np.ones(50), y[50:]])
def lanes_past_the_end_return(good):
    @tk.kernel(threads=64)
    def kernel(n: tk.i32, y: tk.gl_fl):
        s = tk.shared_array(tk.f32, 64)
        if not good:
            if threadIdx.x >= n:
                return
        s[threadIdx.x] = 1.0
        block.sync()  # <- fault
        if threadIdx.x < n:
            y[threadIdx.x] = s[63 - threadIdx.x]

    return kernel
