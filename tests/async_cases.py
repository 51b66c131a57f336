"""Kernels with TMA, semaphores and wgmma: those of the design, and all other operations.

Plain functions: cuda_cases.specialise makes kernels of them, and tk.kernel runs them; KERNELS are
those that a learner might write, ready to launch.
"""
# ruff: noqa: E741 (O and l are the design's own names)

from __future__ import annotations

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

STAGES, CONSUMERS = 4, 2


def gemm_ws(A: tk.gl_bf, B: tk.gl_bf, C: tk.gl_bf):
    """C = A B in blocks of 128 x 128: one producer warpgroup, two consumers."""
    a = tk.shared(tk.st_bf(64, 64), STAGES, CONSUMERS)
    b = tk.shared(tk.st_bf(64, 128), STAGES)
    full = tk.shared(tk.semaphore, STAGES)
    empty = tk.shared(tk.semaphore, STAGES)
    if warpid() == 0:
        for s in range(STAGES):
            init_semaphore(full[s], 1)
            init_semaphore(empty[s], CONSUMERS * 4)  # one arrival per consumer warp
    block.sync()
    row = blockIdx.y * CONSUMERS
    wg = warpgroup.groupid()
    if wg == CONSUMERS:  # producer
        warpgroup.decrease_registers(40)
        if warpgroup.warpid() == 0:
            for k in range(A.cols // 64):
                s = k % STAGES
                wait(empty[s], (k // STAGES + 1) % 2)
                tma.expect(full[s], a[s], b[s])  # bytes follow from the types
                for m in range(CONSUMERS):
                    tma.load_async(a[s, m], A, (row + m, k), full[s])
                tma.load_async(b[s], B, (k, blockIdx.x), full[s])
    else:  # consumers
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


WG, KV_STAGES = 3, 3
SCALE = 0.125 * 1.4426950408889634  # 1/sqrt(64) in base 2


def attend(Q: tk.gl_bf, K: tk.gl_bf, V: tk.gl_bf, O: tk.gl_bf):
    """FlashAttention forward, head size 64: softmax overlapped with the second product."""
    q = tk.shared(tk.st_bf(64, 64), WG)  # reused for the output
    k = tk.shared(tk.st_bf(128, 64), KV_STAGES)
    v = tk.shared(tk.st_bf(128, 64), KV_STAGES)
    q_here = tk.shared(tk.semaphore)
    k_full = tk.shared(tk.semaphore, KV_STAGES)
    v_full = tk.shared(tk.semaphore, KV_STAGES)
    empty = tk.shared(tk.semaphore, KV_STAGES)
    if warpid() == 0:
        init_semaphore(q_here, 1)
        for s in range(KV_STAGES):
            init_semaphore(k_full[s], 1)
            init_semaphore(v_full[s], 1)
            init_semaphore(empty[s], WG * 4)
    block.sync()
    blocks = K.rows // 128
    batch = blockIdx.z
    head = blockIdx.y
    row = blockIdx.x * WG
    wg = warpgroup.groupid()
    if wg == WG:  # producer
        warpgroup.decrease_registers(32)
        if warpgroup.warpid() == 0:
            tma.expect(q_here, q)
            for i in range(WG):
                tma.load_async(q[i], Q, (batch, head, row + i, 0), q_here)
            for it in range(blocks):
                s = it % KV_STAGES
                wait(empty[s], (it // KV_STAGES + 1) % 2)
                tma.expect(k_full[s], k[s])
                tma.load_async(k[s], K, (batch, head, it, 0), k_full[s])
                tma.expect(v_full[s], v[s])
                tma.load_async(v[s], V, (batch, head, it, 0), v_full[s])
    else:  # consumers
        warpgroup.increase_registers(160)
        att = tk.rt_fl(16, 128)
        p = tk.rt_bf(16, 128)
        o = tk.rt_fl(16, 64)
        m = tk.col_vec(16)
        l = tk.col_vec(16)
        warp.zero(o)
        warp.zero(l)
        warp.neg_infty(m)
        wait(q_here, 0)
        wait(k_full[0], 0)
        warpgroup.mm_ABt(att, q[wg], k[0])  # S = Q K^T
        warpgroup.mma_async_wait()
        m = tk.row_max(att, m)
        att = tk.exp2(att * SCALE - m * SCALE)
        l = tk.row_sum(att, l)
        warp.copy(p, att)  # fp32 -> bf16
        for it in range(1, blocks):
            s = it % KV_STAGES
            t = (it - 1) % KV_STAGES
            wait(k_full[s], it // KV_STAGES % 2)
            warpgroup.mm_ABt(att, q[wg], k[s])  # next scores ...
            wait(v_full[t], (it - 1) // KV_STAGES % 2)
            warpgroup.mma_AB(o, p, v[t])  # ... while O += P V is in flight
            warpgroup.mma_async_wait(1)  # scores ready, P V may still run
            m_last = m * SCALE
            m = tk.row_max(att, m)
            m_now = m * SCALE
            att = tk.exp2(att * SCALE - m_now)
            corr = tk.exp2(m_last - m_now)
            l = tk.row_sum(att, l * corr)
            warpgroup.mma_async_wait()  # P V done: o, p and v[t] are free
            arrive(empty[t])
            o *= corr
            warp.copy(p, att)
        last = (blocks - 1) % KV_STAGES
        wait(v_full[last], (blocks - 1) // KV_STAGES % 2)
        warpgroup.mma_AB(o, p, v[last])
        warpgroup.mma_async_wait()
        o /= l
        warpgroup.store(q[wg], o)  # this warpgroup's q tile is no longer read
        tma.fence()  # generic writes before the async store
        warpgroup.sync(wg + 1)  # named barrier
        if warpgroup.warpid() == 0:
            tma.store_async(O, q[wg], (batch, head, row + wg, 0))
            tma.store_async_wait()


def linear_attention(Q: tk.gl_bf, K: tk.gl_bf, V: tk.gl_bf, O: tk.gl_bf):
    """o_i = sum over j <= i of (q_i . k_j) v_j: chunks of 64 rows, head size 64, state in f32."""
    q = tk.shared(tk.st_bf(64, 64))
    k = tk.shared(tk.st_bf(64, 64))
    v = tk.shared(tk.st_bf(64, 64))
    state = tk.shared(tk.st_bf(64, 64))
    full = tk.shared(tk.semaphore)
    kv = tk.rt_fl(16, 64)
    att = tk.rt_fl(16, 64)
    o = tk.rt_fl(16, 64)
    p = tk.rt_bf(16, 64)
    if warpid() == 0:
        init_semaphore(full, 1)
    warp.zero(kv)
    block.sync()
    for n in range(Q.rows // 64):
        if warpid() == 0:
            tma.expect(full, q, k, v)
            tma.load_async(q, Q, (blockIdx.y, blockIdx.x, n, 0), full)
            tma.load_async(k, K, (blockIdx.y, blockIdx.x, n, 0), full)
            tma.load_async(v, V, (blockIdx.y, blockIdx.x, n, 0), full)
        warpgroup.store(state, kv)  # publish the state as bf16
        tma.fence()  # wgmma reads it through the async proxy
        block.sync()
        wait(full, n % 2)
        warpgroup.mm_ABt(att, q, k)
        warpgroup.mma_async_wait()
        warpgroup.tril(att)
        warp.copy(p, att)
        warpgroup.mm_AB(o, q, state)  # history
        warpgroup.mma_AB(o, p, v)  # this chunk
        warpgroup.mma_AtB(kv, k, v)  # next state
        warpgroup.mma_async_wait()
        warpgroup.store(O, o, (blockIdx.y, blockIdx.x, n, 0))
        block.sync()  # the tiles are free again


def linear_attention_staged(Q: tk.gl_bf, K: tk.gl_bf, V: tk.gl_bf, O: tk.gl_bf):
    """The same with heads in one axis; the result goes out through shared memory, by TMA."""
    q = tk.shared(tk.st_bf(64, 64))
    k = tk.shared(tk.st_bf(64, 64))
    v = tk.shared(tk.st_bf(64, 64))
    state = tk.shared(tk.st_bf(64, 64))
    out = tk.shared(tk.st_bf(64, 64))
    full = tk.shared(tk.semaphore)
    if warpid() == 0:
        init_semaphore(full, 1)
    block.sync()
    head = blockIdx.x
    att = tk.rt_fl(16, 64)
    p = tk.rt_bf(16, 64)
    o = tk.rt_fl(16, 64)
    kv = tk.rt_fl(16, 64)
    warp.zero(kv)
    for n in range(Q.rows // 64):
        if warpid() == 0:
            tma.expect(full, q, k, v)
            tma.load_async(q, Q, (head, n, 0), full)
            tma.load_async(k, K, (head, n, 0), full)
            tma.load_async(v, V, (head, n, 0), full)
        warpgroup.store(state, kv)
        tma.fence()
        block.sync()
        wait(full, n % 2)
        warpgroup.mm_ABt(att, q, k)
        warpgroup.mma_async_wait()
        warpgroup.tril(att)
        warp.copy(p, att)
        warpgroup.mm_AB(o, q, state)
        warpgroup.mma_AB(o, p, v)
        warpgroup.mma_AtB(kv, k, v)
        warpgroup.mma_async_wait()
        if warpid() == 0:
            tma.store_async_read_wait()
        block.sync()
        warpgroup.store(out, o)
        tma.fence()
        block.sync()
        if warpid() == 0:
            tma.store_async(O, out, (head, n, 0))
    if warpid() == 0:
        tma.store_async_wait()


@tk.device
def fetch(r, a, b, full, A: tk.gl_bf, B: tk.gl_bf, i, j, k):
    """One stage: both tiles, on its semaphore."""
    tma.expect(full[r.stage], a[r.stage], b[r.stage])
    tma.load_async(a[r.stage], A, (i, k), full[r.stage])
    tma.load_async(b[r.stage], B, (k, j), full[r.stage])
    r.advance()


def gemm_persistent(A: tk.gl_bf, B: tk.gl_bf, C: tk.gl_bf):
    """C = A B in tiles of 64 x 128 taken in turn by gridDim.x blocks; places in the ring."""
    a = tk.shared(tk.st_bf(64, 64), STAGES)
    b = tk.shared(tk.st_bf(64, 128), STAGES)
    full = tk.shared(tk.semaphore, STAGES)
    empty = tk.shared(tk.semaphore, STAGES)
    if warpid() == 0:
        for s in range(STAGES):
            init_semaphore(full[s], 1)
            init_semaphore(empty[s], 4)
    block.sync()
    columns = C.cols // 128
    tiles = C.rows // 64 * columns
    if warpgroup.groupid() == 1:
        r = tk.ring(STAGES)
        if warpgroup.warpid() == 0:
            for t in range(blockIdx.x, tiles, gridDim.x):
                for k in range(A.cols // 64):
                    wait(empty[r.stage], r.phase ^ 1)
                    fetch(r, a, b, full, A, B, t // columns, t % columns, k)
    else:
        r = tk.ring(STAGES)
        acc = tk.rt_fl(16, 128)
        for t in range(blockIdx.x, tiles, gridDim.x):
            warp.zero(acc)
            for k in range(A.cols // 64):
                wait(full[r.stage], r.phase)
                warpgroup.mma_AB(acc, a[r.stage], b[r.stage])
                warpgroup.mma_async_wait()
                arrive(empty[r.stage])
                r.advance()
            warpgroup.store(C, acc, (t // columns, t % columns))


@tk.device
def fill_stage(r, tiles, A, full, empty, at: tk.i32):
    """Producer's step: tiles of A at two places into the ring's stage."""
    wait(empty[r.stage], r.phase ^ 1)
    here = full[r.stage]
    tma.expect(here, tiles[r.stage])
    tma.load_async(tiles[r.stage], A, (at, 0), here)
    r.advance()


@tk.device
def count_down(r, full):
    wait(full[r.stage], r.phase)
    return r.stage + r.phase


def operations(A: tk.gl_bf, v: tk.gl_bf, H: tk.gl_hf, F: tk.gl_fl, O: tk.gl_bf):
    """Every operation of this level that the kernels above do not use; 2 warpgroups."""
    tiles = tk.shared(tk.st_bf(64, 64), 3)
    wide = tk.shared(tk.st_bf(64, 256), 2)
    half = tk.shared(tk.st_hf(64, 64))
    line = tk.shared(tk.sv(tk.bf16, 64), 2)
    full = tk.shared(tk.semaphore, 3)
    empty = tk.shared(tk.semaphore, 3)
    once = tk.shared(tk.semaphore)
    if warpid() == 0:
        for s in range(3):
            init_semaphore(full[s], 1)
            init_semaphore(empty[s], 4)
        init_semaphore(once, 2)
    block.sync()
    wg = warpgroup.groupid()
    if wg == 0:
        r = tk.ring(3)
        if warpgroup.warpid() == 0:
            for t in range(blockIdx.x, A.rows // 64, gridDim.x):
                fill_stage(r, tiles, A, full, empty, t)
            other = A
            tma.prefetch(wide[0], other, (blockIdx.x, 0))
            tma.expect_bytes(once, 256)
            tma.load_async(line[0], v, (0,), once)
            tma.load_async(line[1], v, (1,), once)
            arrive(once, 1)
            wait(once, 0)
            invalidate_semaphore(once)
        block.arrive(1, 256)
    else:
        r = tk.ring(3)
        acc = tk.rt_fl(16, 64)
        big = tk.rt_fl(16, 256)
        a = tk.rt_bf(16, 64)
        warp.zero(acc)
        for t in range(blockIdx.x, A.rows // 64, gridDim.x):
            stage = count_down(r, full)
            warpgroup.load(a, tiles[r.stage])
            warpgroup.mma_fence()
            warpgroup.mma_ABt(acc, a, tiles[r.stage], fence=False)
            warpgroup.mma_AtBt(acc, tiles[r.stage], tiles[r.stage], commit=False)
            warpgroup.mm_AtB(acc, tiles[r.stage], tiles[r.stage], fence=False, commit=False)
            warpgroup.mma_commit_group()
            warpgroup.mma_async_wait(0)
            arrive(empty[r.stage], 2 - stage % 2)
            r.advance()
        block.sync(1)
        warpgroup.mm_AtBt(acc, tiles[0], tiles[1])
        warpgroup.mma_async_wait()
        warpgroup.mm_AB(big, tiles[0], wide[0])
        warpgroup.mma_async_wait()
        warpgroup.triu(acc, 1)
        warpgroup.make_causal(acc)
        warpgroup.load(acc, F, (0, 0))
        warpgroup.store(F, acc, (1, 0))
        warpgroup.load(tiles[0], A, (0, 0))
        warpgroup.load_async(tiles[1], A, (1, 0))
        tk.commit_group()
        tk.wait_group(0)
        warpgroup.sync(2)
        warpgroup.store(O, tiles[1], (2, 0))
        warpgroup.store(half, acc)
        tma.fence()
        block.sync(2, 128)
        if warpgroup.warpid() == 0:
            tma.store_add_async(H, half, (0, 0))
            tma.store_min_async(H, half, (1, 0))
            tma.store_max_async(H, half, (2, 0))
            tma.store_commit_group()
            tma.store_async_read_wait(1)
            tma.store_async_wait()
    if warpgroup.laneid() + laneid() + threadIdx.x < 0:
        O[0, 0] = 0.0


def semaphores_only(x: tk.gl_fl, y: tk.gl_fl):
    """What sm_80 has too: semaphores, rings and named barriers between two warps."""
    line = tk.shared(tk.sv(tk.f32, 32), 2)
    full = tk.shared(tk.semaphore, 2)
    empty = tk.shared(tk.semaphore, 2)
    if warpid() == 0:
        for s in range(2):
            init_semaphore(full[s], 1)
            init_semaphore(empty[s], 1)
    block.sync()
    if warpid() == 0:
        r = tk.ring(2)
        for i in range(blockIdx.x, x.rows, gridDim.x):
            wait(empty[r.stage], r.phase ^ 1)
            line[r.stage][laneid()] = x[i, laneid()] * 2.0
            arrive(full[r.stage])
            r.advance()
        block.arrive(1, 64)
    else:
        r = tk.ring(2)
        for i in range(blockIdx.x, x.rows, gridDim.x):
            wait(full[r.stage], r.phase)
            y[i, laneid()] = line[r.stage][31 - laneid()]
            arrive(empty[r.stage])
            r.advance()
        block.sync(1, 64)


def copy_only(x: tk.gl_fl, y: tk.gl_fl):
    """TMA without wgmma, which newer GPUs have too."""
    tile = tk.shared(tk.st_fl(32, 32))
    full = tk.shared(tk.semaphore)
    init_semaphore(full, 1)
    tma.expect(full, tile)
    tma.load_async(tile, x, (blockIdx.y, blockIdx.x), full)
    wait(full, 0)
    tma.store_async(y, tile, (blockIdx.y, blockIdx.x))
    tma.store_async_wait()


def serialised(x: tk.gl_bf, y: tk.gl_fl):
    """Touches the accumulator of a running product: ptxas has to wait after each step."""
    a = tk.shared(tk.st_bf(64, 64))
    acc = tk.rt_fl(16, 64)
    warp.zero(acc)
    for _ in range(x.rows // 64):
        warpgroup.mma_ABt(acc, a, a)
        acc *= 2.0
        warpgroup.mma_async_wait()
    warpgroup.store(y, acc, (0, 0))


WARPS = {
    gemm_ws: 12, gemm_persistent: 8, attend: (WG + 1) * 4,
    linear_attention: 4, linear_attention_staged: 4,
}  # fmt: skip
KERNELS = {fn.__name__: tk.kernel(warps=n)(fn) for fn, n in WARPS.items()}
