# ruff: noqa: B007, E741  O, l and unused counters: the names of the papers, in the language
"""Kernels of the level "asynchrony", as a learner writes them: TMA, semaphores, warpgroups."""

from __future__ import annotations

import tklearn as tk
from tklearn import (
    arrive,
    block,
    blockIdx,
    gridDim,
    init_semaphore,
    tma,
    wait,
    warp,
    warpgroup,
    warpid,
)

STAGES, CONSUMERS = 4, 2


@tk.kernel(warps=12)
def gemm_ws(A: tk.gl_bf, B: tk.gl_bf, C: tk.gl_bf):
    """C = A B in blocks of 128 x 128: one producer warpgroup, two consumers."""
    a = tk.shared(tk.st_bf(64, 64), STAGES, CONSUMERS)
    b = tk.shared(tk.st_bf(64, 128), STAGES)
    full = tk.shared(tk.semaphore, STAGES)
    empty = tk.shared(tk.semaphore, STAGES)
    if warpid() == 0:
        for s in range(STAGES):
            init_semaphore(full[s], 1)
            init_semaphore(empty[s], CONSUMERS * 4)
    block.sync()
    row = blockIdx.y * CONSUMERS
    wg = warpgroup.groupid()
    if wg == CONSUMERS:
        warpgroup.decrease_registers(40)
        if warpgroup.warpid() == 0:
            for k in range(A.cols // 64):
                s = k % STAGES
                wait(empty[s], (k // STAGES + 1) % 2)
                tma.expect(full[s], a[s], b[s])
                for m in range(CONSUMERS):
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


WG, KV = 3, 3
SCALE = 0.125 * 1.4426950408889634


@tk.kernel(warps=(WG + 1) * 4)
def attend(Q: tk.gl_bf, K: tk.gl_bf, V: tk.gl_bf, O: tk.gl_bf):
    """FlashAttention forward, head size 64: softmax overlapped with the second product."""
    q = tk.shared(tk.st_bf(64, 64), WG)
    k = tk.shared(tk.st_bf(128, 64), KV)
    v = tk.shared(tk.st_bf(128, 64), KV)
    q_here = tk.shared(tk.semaphore)
    k_full = tk.shared(tk.semaphore, KV)
    v_full = tk.shared(tk.semaphore, KV)
    empty = tk.shared(tk.semaphore, KV)
    if warpid() == 0:
        init_semaphore(q_here, 1)
        for s in range(KV):
            init_semaphore(k_full[s], 1)
            init_semaphore(v_full[s], 1)
            init_semaphore(empty[s], WG * 4)
    block.sync()
    blocks = K.rows // 128
    batch = blockIdx.z
    head = blockIdx.y
    row = blockIdx.x * WG
    wg = warpgroup.groupid()
    if wg == WG:
        warpgroup.decrease_registers(32)
        if warpgroup.warpid() == 0:
            tma.expect(q_here, q)
            for i in range(WG):
                tma.load_async(q[i], Q, (batch, head, row + i, 0), q_here)
            for it in range(blocks):
                s = it % KV
                wait(empty[s], (it // KV + 1) % 2)
                tma.expect(k_full[s], k[s])
                tma.load_async(k[s], K, (batch, head, it, 0), k_full[s])
                tma.expect(v_full[s], v[s])
                tma.load_async(v[s], V, (batch, head, it, 0), v_full[s])
    else:
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
        warpgroup.mm_ABt(att, q[wg], k[0])
        warpgroup.mma_async_wait()
        m = tk.row_max(att, m)
        att = tk.exp2(att * SCALE - m * SCALE)
        l = tk.row_sum(att, l)
        warp.copy(p, att)
        for it in range(1, blocks):
            s = it % KV
            t = (it - 1) % KV
            wait(k_full[s], it // KV % 2)
            warpgroup.mm_ABt(att, q[wg], k[s])
            wait(v_full[t], (it - 1) // KV % 2)
            warpgroup.mma_AB(o, p, v[t])
            warpgroup.mma_async_wait(1)
            m_last = m * SCALE
            m = tk.row_max(att, m)
            m_now = m * SCALE
            att = tk.exp2(att * SCALE - m_now)
            corr = tk.exp2(m_last - m_now)
            l = tk.row_sum(att, l * corr)
            warpgroup.mma_async_wait()
            arrive(empty[t])
            o *= corr
            warp.copy(p, att)
        last = (blocks - 1) % KV
        wait(v_full[last], (blocks - 1) // KV % 2)
        warpgroup.mma_AB(o, p, v[last])
        warpgroup.mma_async_wait()
        o /= l
        warpgroup.store(q[wg], o)
        tma.fence()
        warpgroup.sync(wg + 1)
        if warpgroup.warpid() == 0:
            tma.store_async(O, q[wg], (batch, head, row + wg, 0))
            tma.store_async_wait()


@tk.kernel(warps=4)
def linear_attention(Q: tk.gl_bf, K: tk.gl_bf, V: tk.gl_bf, O: tk.gl_bf):
    """o_i = sum over j <= i of (q_i . k_j) v_j: chunks of 64 rows, head size 64, state in f32."""
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


@tk.kernel(warps=8)
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


KERNELS = {
    "gemm_ws": gemm_ws,
    "attend": attend,
    "linear_attention": linear_attention,
    "gemm_persistent": gemm_persistent,
}
