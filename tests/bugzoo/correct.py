"""Correct programs near the edge of a rule: the simulator must be silent on each of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import tklearn as tk
from tklearn import (
    arrive,
    block,
    blockIdx,
    gridDim,
    init_semaphore,
    invalidate_semaphore,
    laneid,
    threadIdx,
    tma,
    wait,
    warp,
    warpgroup,
    warpid,
)

from .zoo import bf, f32, wide


@dataclass(frozen=True)
class Correct:
    """A kernel, its arguments, and from them what it leaves in the last one."""

    kernel: Any
    args: Callable[[], tuple]
    want: Callable[..., Any]
    grid: Any


CORRECT: dict[str, Correct] = {}


def correct(args: Callable[[], tuple], want: Callable[..., Any], grid: Any = 1) -> Callable:
    def enter(kernel: Any) -> Any:
        CORRECT[kernel.__name__] = Correct(kernel, args, want, grid)
        return kernel

    return enter


def rows(n: int, m: int | None = None):
    return lambda: (f32(n, 32), f32(m or n, 32))


def same(x, y):
    return x


# ------------------------------------------------------------------------------------ semaphores
@correct(rows(60), same, 3)
@tk.kernel(warps=2)
def phases_wrap_many_times(x: tk.gl_fl, y: tk.gl_fl):
    s = tk.shared(tk.sv(tk.f32, 32), 2)
    full = tk.shared(tk.semaphore, 2)
    empty = tk.shared(tk.semaphore, 2)
    if warpid() == 0:
        for i in range(2):
            init_semaphore(full[i], 1)
            init_semaphore(empty[i], 1)
    block.sync()
    for k in range(20):
        i = k % 2
        if warpid() == 0:
            wait(empty[i], (k // 2 + 1) % 2)
            tma.expect(full[i], s[i])
            tma.load_async(s[i], x, (blockIdx.x * 20 + k, 0), full[i])
        else:
            wait(full[i], k // 2 % 2)
            y[blockIdx.x * 20 + k, laneid()] = s[i][laneid()]
            arrive(empty[i])


@correct(rows(10), same, 3)
@tk.kernel(warps=3)
def persistent_blocks(x: tk.gl_fl, y: tk.gl_fl):
    """The stages go on over the tiles of a block; two consumers read each row."""
    s = tk.shared(tk.sv(tk.f32, 32), 3)
    full = tk.shared(tk.semaphore, 3)
    empty = tk.shared(tk.semaphore, 3)
    r = tk.ring(3)
    if warpid() == 0:
        for i in range(3):
            init_semaphore(full[i], 1)
            init_semaphore(empty[i], 2)
    block.sync()
    for t in range(blockIdx.x, 10, gridDim.x):
        if warpid() == 0:
            wait(empty[r.stage], r.phase ^ 1)
            tma.expect(full[r.stage], s[r.stage])
            tma.load_async(s[r.stage], x, (t, 0), full[r.stage])
        else:
            here = s[r.stage]
            wait(full[r.stage], r.phase)
            if laneid() // 16 == warpid() - 1:
                y[t, laneid()] = here[laneid()]
            arrive(empty[r.stage])
        r.advance()


@correct(rows(1), same)
@tk.kernel(warps=2)
def load_before_expect(x: tk.gl_fl, y: tk.gl_fl):
    """The phase cannot end before the expect, which is its only arrival."""
    s = tk.shared(tk.sv(tk.f32, 32))
    full = tk.shared(tk.semaphore)
    if warpid() == 0:
        init_semaphore(full, 1)
    block.sync()
    if warpid() == 0:
        tma.load_async(s, x, (0, 0), full)
        tma.expect(full, s)
    else:
        wait(full, 0)
        y[0, laneid()] = s[laneid()]


@correct(rows(2), lambda x, y: np.vstack([x[0] + x[1], x[0] - x[1]]))
@tk.kernel(warps=4)
def two_producers_fill_one_stage(x: tk.gl_fl, y: tk.gl_fl):
    s = tk.shared(tk.sv(tk.f32, 32), 2)
    full = tk.shared(tk.semaphore)
    if warpid() == 0:
        init_semaphore(full, 2)
    block.sync()
    if warpid() < 2:
        tma.expect(full, s[warpid()])
        tma.load_async(s[warpid()], x, (warpid(), 0), full)
    elif warpid() == 2:
        wait(full, 0)
        y[0, laneid()] = s[0][laneid()] + s[1][laneid()]
    else:
        wait(full, 0)
        y[1, laneid()] = s[0][laneid()] - s[1][laneid()]


@correct(rows(4), lambda x, y: x + x[0])
@tk.kernel(warps=2)
def waits_again_for_what_is_over(x: tk.gl_fl, y: tk.gl_fl):
    s = tk.shared(tk.sv(tk.f32, 32))
    here = tk.shared(tk.semaphore)
    if warpid() == 0:
        init_semaphore(here, 1)
        tma.expect(here, s)
        tma.load_async(s, x, (0, 0), here)
    block.sync()
    for k in range(2):
        wait(here, 0)
        row = 2 * k + warpid()
        y[row, laneid()] = x[row, laneid()] + s[laneid()]


@correct(rows(6), lambda x, y: np.vstack([x[i : i + 2].sum(0) for i in (0, 0, 2, 2, 4, 4)]))
@tk.kernel(warps=2)
def semaphore_as_a_split_barrier(x: tk.gl_fl, y: tk.gl_fl):
    """Plain stores, an arrival of each warp, other work, and a wait of each: no TMA."""
    s = tk.shared_array(tk.f32, 3, 2, 32)
    met = tk.shared(tk.semaphore)
    if warpid() == 0:
        init_semaphore(met, 2)
    block.sync()
    for k in range(3):
        row = 2 * k + warpid()
        s[k, warpid(), laneid()] = x[row, laneid()]
        arrive(met)
        wait(met, k % 2)
        y[row, laneid()] = s[k, 0, laneid()] + s[k, 1, laneid()]


@correct(rows(3), same)
@tk.kernel(warps=3)
def one_warp_waits_for_another(x: tk.gl_fl, y: tk.gl_fl):
    """What a warp knows it hands on: by an arrival on a second semaphore."""
    s = tk.shared(tk.sv(tk.f32, 32))
    full = tk.shared(tk.semaphore)
    handed = tk.shared(tk.semaphore)
    empty = tk.shared(tk.semaphore)
    if warpid() == 0:
        init_semaphore(full, 1)
        init_semaphore(handed, 1)
        init_semaphore(empty, 1)
    block.sync()
    for k in range(3):
        if warpid() == 0:
            wait(empty, (k + 1) % 2)
            tma.expect(full, s)
            tma.load_async(s, x, (k, 0), full)
        elif warpid() == 1:
            wait(full, k % 2)
            arrive(handed)
        else:
            wait(handed, k % 2)
            y[k, laneid()] = s[laneid()]
            arrive(empty)


@correct(rows(4), same, 2)
@tk.kernel(warps=2)
def initialised_anew_for_each_tile(x: tk.gl_fl, y: tk.gl_fl):
    s = tk.shared(tk.sv(tk.f32, 32))
    full = tk.shared(tk.semaphore)
    for k in range(2):
        if warpid() == 0:
            init_semaphore(full, 1)
        block.sync()
        if warpid() == 0:
            tma.expect(full, s)
            tma.load_async(s, x, (blockIdx.x * 2 + k, 0), full)
        wait(full, 0)
        if warpid() == 1:
            y[blockIdx.x * 2 + k, laneid()] = s[laneid()]
        block.sync()
        if warpid() == 0:
            invalidate_semaphore(full)
        block.sync()


# ------------------------------------------------------------------------------- the two proxies
@correct(rows(1), lambda x, y: x)
@tk.kernel(warps=2)
def stored_then_loaded_over(x: tk.gl_fl, y: tk.gl_fl):
    """Plain stores, fence and barrier, and a TMA load over them."""
    s = tk.shared(tk.sv(tk.f32, 32))
    full = tk.shared(tk.semaphore)
    if warpid() == 0:
        init_semaphore(full, 1)
    if warpid() == 1:
        s[laneid()] = 0.0
        tma.fence()
    block.sync()
    if warpid() == 0:
        tma.expect(full, s)
        tma.load_async(s, x, (0, 0), full)
    wait(full, 0)
    if warpid() == 1:
        y[0, laneid()] = s[laneid()]


@correct(rows(3), lambda x, y: x + 1)
@tk.kernel(warps=1)
def loaded_changed_and_stored(x: tk.gl_fl, y: tk.gl_fl):
    """TMA load, plain reads and writes, fence, TMA store; then the next load over it."""
    s = tk.shared(tk.sv(tk.f32, 32))
    full = tk.shared(tk.semaphore)
    init_semaphore(full, 1)
    for k in range(3):
        tma.expect(full, s)
        tma.load_async(s, x, (k, 0), full)
        wait(full, k % 2)
        s[laneid()] = s[laneid()] + 1.0
        tma.fence()
        warp.sync()
        tma.store_async(y, s, (k, 0))
        tma.store_async_read_wait()


@correct(rows(3), same)
@tk.kernel(warps=1)
def loaded_and_stored_as_it_is(x: tk.gl_fl, y: tk.gl_fl):
    """Both through the async proxy: no fence."""
    s = tk.shared(tk.sv(tk.f32, 32), 3)
    full = tk.shared(tk.semaphore)
    init_semaphore(full, 1)
    tma.expect(full, s)
    for k in range(3):
        tma.load_async(s[k], x, (k, 0), full)
    wait(full, 0)
    for k in range(3):
        tma.store_async(y, s[k], (k, 0))
    tma.store_async_read_wait()


@correct(rows(2), lambda x, y: x + x[::-1])
@tk.kernel(warps=2)
def cp_async_and_semaphores(x: tk.gl_fl, y: tk.gl_fl):
    """A semaphore hands on what a warp copied with cp.async and waited for."""
    s = tk.shared(tk.sv(tk.f32, 32), 2)
    here = tk.shared(tk.semaphore)
    if warpid() == 0:
        init_semaphore(here, 2)
    block.sync()
    warp.load_async(s[warpid()], x, (warpid(), 0))
    tk.commit_group()
    tk.wait_group(0)
    arrive(here)
    wait(here, 0)
    y[warpid(), laneid()] = s[0][laneid()] + s[1][laneid()]


@correct(lambda: (bf(32, 32), bf(32, 32)), same)
@tk.kernel(warps=2)
def two_views_and_tma(x: tk.gl_bf, y: tk.gl_bf):
    """A tile that TMA fills and empties is the same memory as an array before and after."""
    s = tk.shared(tk.st_bf(32, 32))
    words = tk.alias(s, (tk.u32, 512))
    full = tk.shared(tk.semaphore)
    if warpid() == 0:
        init_semaphore(full, 1)
    for k in range(8):
        words[k * 64 + threadIdx.x] = 7
    tma.fence()
    block.sync()
    if warpid() == 0:
        tma.expect(full, s)
        tma.load_async(s, x, (0, 0), full)
    wait(full, 0)
    for k in range(8):
        words[k * 64 + threadIdx.x] = words[k * 64 + threadIdx.x] + 0
    tma.fence()
    block.sync()
    if warpid() == 0:
        tma.store_async(y, s, (0, 0))
        tma.store_async_read_wait()


@correct(rows(2), same)
@tk.kernel(warps=1)
def prefetched(x: tk.gl_fl, y: tk.gl_fl):
    s = tk.shared(tk.sv(tk.f32, 32))
    full = tk.shared(tk.semaphore)
    init_semaphore(full, 1)
    for k in range(2):
        tma.expect(full, s)
        tma.load_async(s, x, (k, 0), full)
        tma.prefetch(s, x, (1, 0))
        wait(full, k % 2)
        y[k, laneid()] = s[laneid()]


# -------------------------------------------------------------------------------- global memory
@correct(lambda: (f32(6, 32), np.zeros((2, 32), "f4")), lambda x, y: x.reshape(3, 2, 32).sum(0), 3)
@tk.kernel(warps=2)
def blocks_add_by_tma(x: tk.gl_fl, y: tk.gl_fl):
    s = tk.shared(tk.sv(tk.f32, 32), 2)
    s[warpid()][laneid()] = x[blockIdx.x * 2 + warpid(), laneid()]
    tma.fence()
    warp.sync()
    tma.store_add_async(y, s[warpid()], (warpid(), 0))
    tma.store_async_read_wait()


@correct(rows(4), lambda x, y: np.vstack([x[:2], 2 * x[:2]]))
@tk.kernel(warps=2)
def result_used_by_another_warp(x: tk.gl_fl, y: tk.gl_fl):
    s = tk.shared(tk.sv(tk.f32, 32), 2)
    s[warpid()][laneid()] = x[warpid(), laneid()]
    tma.fence()
    warp.sync()
    tma.store_async(y, s[warpid()], (warpid(), 0))
    tma.store_async_wait()
    block.sync()
    y[2 + warpid(), laneid()] = 2.0 * y[warpid(), laneid()]


@correct(lambda: (f32(2, 32),), lambda x: 2 * f32(2, 32))
@tk.kernel(warps=1)
def in_place(x: tk.gl_fl):
    """Loaded, waited for, and stored to the same rows."""
    s = tk.shared(tk.sv(tk.f32, 32))
    full = tk.shared(tk.semaphore)
    init_semaphore(full, 1)
    for k in range(2):
        tma.expect(full, s)
        tma.load_async(s, x, (k, 0), full)
        wait(full, k)
        x[k, laneid()] = 2.0 * s[laneid()]


@correct(lambda: (f32(4),), lambda y: [3.0, f32(1)[0], f32(1)[0], y[3]])
@tk.kernel(warps=3)
def two_warps_read_then_a_third_writes(y: tk.gl_fl):
    read = tk.shared(tk.semaphore)
    if warpid() == 0:
        init_semaphore(read, 2)
    block.sync()
    if warpid() < 2:
        if laneid() == 0:
            y[warpid() + 1] = y[0]
        arrive(read)
    else:
        wait(read, 0)
        if laneid() == 0:
            y[0] = 3.0


@correct(lambda: (np.zeros(2, np.float32),), lambda y: [64.0, 64.0])
@tk.kernel(warps=3)
def two_warps_add_then_a_third_reads(y: tk.gl_fl):
    added = tk.shared(tk.semaphore)
    if warpid() == 0:
        init_semaphore(added, 2)
    block.sync()
    if warpid() < 2:
        tk.atomic_add(y[0], 1.0)
        arrive(added)
    else:
        wait(added, 0)
        if laneid() == 0:
            y[1] = y[0]


@correct(lambda: (np.arange(32, dtype=np.int32)[::-1].copy(), f32(2, 32)),
         lambda at, y: np.full((2, 32), 4.0), 2)  # fmt: skip
@tk.kernel(warps=1)
def each_lane_adds_to_what_it_wrote(at: tk.gl(tk.i32), y: tk.gl_fl):
    s = tk.shared_array(tk.f32, 32)
    mine = at[laneid()]
    s[mine] = 1.0
    tk.atomic_add(s[mine], 1.0)
    tk.atomic_add(s[mine], 1.0)
    y[blockIdx.x, mine] = s[mine]
    tk.atomic_add(y[blockIdx.x, mine], 1.0)


# -------------------------------------------------------------------------------- named barriers
@correct(lambda: (f32(256), f32(256)), lambda x, y: np.r_[x[127::-1], x[:127:-1]])
@tk.kernel(warps=8)
def one_number_for_two_groups_in_turn(x: tk.gl_fl, y: tk.gl_fl):
    s = tk.shared_array(tk.f32, 256)
    s[threadIdx.x] = x[threadIdx.x]
    if warpgroup.groupid() == 0:
        warpgroup.sync(1)
        y[threadIdx.x] = s[127 - threadIdx.x]
    block.sync()
    if warpgroup.groupid() == 1:
        warpgroup.sync(1)
        y[threadIdx.x] = s[383 - threadIdx.x]


@correct(rows(6), same)
@tk.kernel(warps=2)
def writer_and_reader_alternate(x: tk.gl_fl, y: tk.gl_fl):
    """Two named barriers as full and empty: who may go on syncs, who tells arrives."""
    s = tk.shared_array(tk.f32, 32)
    for k in range(6):
        if warpid() == 0:
            if k > 0:
                block.sync(2, 64)
            s[laneid()] = x[k, laneid()]
            block.arrive(1, 64)
        else:
            block.sync(1, 64)
            y[k, laneid()] = s[laneid()]
            if k < 5:
                block.arrive(2, 64)


@correct(lambda: (f32(256), f32(256)), lambda x, y: x + 1)
@tk.kernel(warps=8)
def groups_take_turns(x: tk.gl_fl, y: tk.gl_fl):
    """Ping-pong: a warpgroup lets the other work, and waits until it is its turn again."""
    s = tk.shared_array(tk.f32, 128)
    wg = warpgroup.groupid()
    if wg == 1:
        block.sync(2, 256)
    s[warpgroup.laneid()] = x[threadIdx.x]
    warpgroup.sync(wg + 3)
    y[wg * 128 + 127 - warpgroup.laneid()] = s[127 - warpgroup.laneid()] + 1.0
    if wg == 0:
        block.arrive(2, 256)


# --------------------------------------------------------------------------------- warpgroups
def product():
    return bf(64, 64), bf(64, 16), f32(64, 16)


@correct(product, lambda a, b, c: wide(a) @ wide(b))
@tk.kernel(warps=4)
def output_over_operand_and_stored_by_one_warp(A: tk.gl_bf, B: tk.gl_bf, C: tk.gl_fl):
    """As in attention: each warp stores over its own rows of A, which no one else reads."""
    a = tk.shared(tk.st_bf(64, 64))
    b = tk.shared(tk.st_bf(64, 16))
    out = tk.shared(tk.st_fl(64, 16))
    full = tk.shared(tk.semaphore)
    acc = tk.rt_fl(16, 16)
    zeros = tk.rt_bf(16, 64)
    if warpid() == 0:
        init_semaphore(full, 1)
        tma.expect(full, a, b)
        tma.load_async(a, A, (0, 0), full)
        tma.load_async(b, B, (0, 0), full)
    block.sync()
    wait(full, 0)
    warpgroup.mm_AB(acc, a, b)
    warpgroup.mma_async_wait()
    warp.zero(zeros)
    warpgroup.store(a, zeros)
    warpgroup.store(out, acc)
    tma.fence()
    warpgroup.sync(1)
    if warpgroup.warpid() == 0:
        tma.store_async(C, out, (0, 0))
        tma.store_async_read_wait()


@correct(lambda: (bf(64, 256), bf(256, 16), f32(64, 16)), lambda a, b, c: wide(a) @ wide(b))
@tk.kernel(warps=8)
def one_warp_arrives_for_its_warpgroup(A: tk.gl_bf, B: tk.gl_bf, C: tk.gl_fl):
    """A wgmma group belongs to its warpgroup: who has waited for it knows that all is over."""
    a = tk.shared(tk.st_bf(64, 64), 2)
    b = tk.shared(tk.st_bf(64, 16), 2)
    full = tk.shared(tk.semaphore, 2)
    empty = tk.shared(tk.semaphore, 2)
    acc = tk.rt_fl(16, 16)
    if warpid() == 0:
        for s in range(2):
            init_semaphore(full[s], 1)
            init_semaphore(empty[s], 1)
    block.sync()
    if warpgroup.groupid() == 0:
        warpgroup.increase_registers(232)
        warp.zero(acc)
        for k in range(A.cols // 64):
            wait(full[k % 2], k // 2 % 2)
            warpgroup.mma_AB(acc, a[k % 2], b[k % 2])
            warpgroup.mma_async_wait()
            if warpgroup.warpid() == 0:
                arrive(empty[k % 2])
        warpgroup.store(C, acc, (0, 0))
    else:
        warpgroup.decrease_registers(24)
        if warpgroup.warpid() == 3:
            for k in range(A.cols // 64):
                s = k % 2
                wait(empty[s], (k // 2 + 1) % 2)
                tma.expect(full[s], a[s], b[s])
                tma.load_async(a[s], A, (0, k), full[s])
                tma.load_async(b[s], B, (k, 0), full[s])


@correct(product, lambda a, b, c: 2 * (wide(a) @ wide(b)))
@tk.kernel(warps=4)
def several_products_in_one_group(A: tk.gl_bf, B: tk.gl_bf, C: tk.gl_fl):
    a = tk.shared(tk.st_bf(64, 64))
    b = tk.shared(tk.st_bf(64, 16))
    acc = tk.rt_fl(16, 16)
    warpgroup.load(a, A, (0, 0))
    warpgroup.load(b, B, (0, 0))
    tma.fence()
    warpgroup.sync(1)
    warp.zero(acc)
    warpgroup.mma_fence()
    warpgroup.mma_AB(acc, a, b, fence=False, commit=False)
    warpgroup.mma_AB(acc, a, b, fence=False, commit=False)
    warpgroup.mma_commit_group()
    warpgroup.mma_async_wait()
    warpgroup.store(C, acc, (0, 0))


@correct(rows(2), lambda x, y: np.where(np.arange(32) < 20, x, 0), 2)
@tk.kernel(warps=1)
def some_lanes_read_a_stage(x: tk.gl_fl, y: tk.gl_fl):
    """A stage is one tile, whichever lanes read it."""
    s = tk.shared(tk.sv(tk.f32, 32), 2)
    full = tk.shared(tk.semaphore)
    init_semaphore(full, 1)
    tma.expect(full, s[1])
    tma.load_async(s[1], x, (blockIdx.x, 0), full)
    wait(full, 0)
    y[blockIdx.x, laneid()] = 0.0
    if laneid() < 20:
        y[blockIdx.x, laneid()] = s[1][laneid()]
