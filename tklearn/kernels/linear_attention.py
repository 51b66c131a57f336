"""Causal linear attention, o_i = sum over j <= i of (q_i . k_j) v_j: sm_90a (H100, H200) only.

Without a softmax the sum can be taken in another order: all keys before a chunk of 64 rows act
through one 64 x 64 matrix, the state S = sum over those j of k_j v_j^T. A chunk is then

    o  =  q S  +  tril(q k^T) v         the history, and the chunk itself
    S  +=  k^T v                        for the next chunk

so that the work grows with N and not with N^2. One warpgroup takes one head from beginning to end.
The state is summed in f32 in its registers; for q S the tensor cores read it from shared memory as
bf16, so it is published there before each chunk: ordinary stores, a proxy fence, a barrier. Chunks
come by TMA, STAGES - 1 of them ahead. Rows past the end are zeros, add nothing and are not stored.

After ThunderKittens' linear attention (Based, Arora et al., 2024) and the chunked form of Yang et
al. (2023, gated linear attention).
"""

from functools import cache
from typing import Any

import numpy as np

import tklearn as tk
from tklearn import block, blockIdx, init_semaphore, tma, wait, warp, warpgroup, warpid
from tklearn.kernels.arrays import fit, for_tma, launch, look, output

D = 64  # features of q and k, and of v
ROWS = 64  # of a chunk


@cache
def make(STAGES: int = 2) -> tk.Kernel:
    """Q, K, V, Y (B, H, N, 64) in bf16: grid (H, B). STAGES: chunks in shared memory, from 2."""

    @tk.kernel(warps=4)
    def linear_attention(Q: tk.gl_bf, K: tk.gl_bf, V: tk.gl_bf, Y: tk.gl_bf):
        q = tk.shared(tk.st_bf(ROWS, D), STAGES)
        k = tk.shared(tk.st_bf(ROWS, D), STAGES)
        v = tk.shared(tk.st_bf(ROWS, D), STAGES)
        state = tk.shared(tk.st_bf(D, D))
        out = tk.shared(tk.st_bf(ROWS, D))
        full = tk.shared(tk.semaphore, STAGES)
        if warpid() == 0:
            for s in range(STAGES):
                init_semaphore(full[s], 1)
        block.sync()

        att = tk.rt_fl(16, ROWS)
        p = tk.rt_bf(16, ROWS)
        o = tk.rt_fl(16, D)
        kv = tk.rt_fl(16, D)  # the state: 16 of its rows, the features of k, for each warp
        warp.zero(kv)
        b, h = blockIdx.y, blockIdx.x
        chunks = tk.cdiv(Q.rows, ROWS)
        if warpid() == 0:
            for n in range(min(STAGES - 1, chunks)):
                tma.expect(full[n], q[n], k[n], v[n])
                tma.load_async(q[n], Q, (b, h, n, 0), full[n])
                tma.load_async(k[n], K, (b, h, n, 0), full[n])
                tma.load_async(v[n], V, (b, h, n, 0), full[n])

        for n in range(chunks):
            s = n % STAGES
            warpgroup.store(state, kv)  # publish the state as bf16
            tma.fence()  # wgmma reads it through the async proxy
            if warpid() == 0:
                tma.store_async_read_wait()  # the last chunk has left `out`
            block.sync()  # the state is complete, and nobody reads chunk n - 1 any more
            ahead = n + (STAGES - 1)
            if warpid() == 0 and ahead < chunks:
                t = ahead % STAGES
                tma.expect(full[t], q[t], k[t], v[t])
                tma.load_async(q[t], Q, (b, h, ahead, 0), full[t])
                tma.load_async(k[t], K, (b, h, ahead, 0), full[t])
                tma.load_async(v[t], V, (b, h, ahead, 0), full[t])

            wait(full[s], n // STAGES % 2)
            warpgroup.mm_ABt(att, q[s], k[s])
            warpgroup.mma_async_wait()
            warpgroup.tril(att)  # row i sees keys 0 to i
            warp.copy(p, att)
            warpgroup.mm_AB(o, q[s], state)  # history
            warpgroup.mma_AB(o, p, v[s])  # this chunk
            warpgroup.mma_AtB(kv, k[s], v[s])  # next state
            warpgroup.mma_async_wait()

            warpgroup.store(out, o)
            tma.fence()  # TMA is to see these ordinary stores
            block.sync()  # of all warps; and all have read the state
            if warpid() == 0:
                tma.store_async(Y, out, (b, h, n, 0))
        if warpid() == 0:
            tma.store_async_wait()

    return linear_attention


def run(
    q: Any,
    k: Any,
    v: Any,
    *,
    stages: int = 2,
    out: Any = None,
    report: bool = False,
    **options: Any,
) -> Any:
    """Causal linear attention of q, k, v (B, H, N, 64) in bf16, summed in f32; sm_90a.

    There is no scale and no normaliser: scale q, or give v a column of ones, to have them.
    """
    x = look(q, "q", 4, (tk.bf16,))
    y, z = (look(a, name, 4, (tk.bf16,)) for a, name in ((k, "k"), (v, "v")))
    batch, heads, n, d = x.shape
    fit(d == D, f"q has {d} features: this kernel takes {D}")
    fit(
        x.shape == y.shape == z.shape,
        f"q is {x.shape}, k is {y.shape} and v is {z.shape}: they must be equal",
    )
    fit(stages >= 2, f"{stages} stages", "2 or more: one chunk is copied while one is read")
    out = output(out, q, x.shape)
    for_tma(x, y, z, look(out, "out", 4, (tk.bf16,)))
    grid = (heads, batch, 1) if n else (0, 0, 1)
    told = launch(make(stages), grid, q, k, v, out, options=options)
    return (out, told) if report else out


def reference(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """The same in float64, without chunks."""
    q, k, v = (a.astype(np.float64) for a in (q, k, v))
    return np.tril(q @ k.swapaxes(-1, -2)) @ v
