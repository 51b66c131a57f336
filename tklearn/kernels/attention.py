"""softmax(Q K^T / sqrt(D)) V by blocks of keys (FlashAttention-2), for any length, causal or not.

A block takes BQ queries of one head, a warp 16 of them. Keys and values come by cp.async into two
buffers. The scores of one block of keys at a time stand in registers: a running maximum and sum
for each query make the softmax exact without all scores, and what was summed under an older
maximum is scaled down.
"""

from functools import cache
from typing import Any

import numpy as np

import tklearn as tk
from tklearn import block, blockIdx, warp, warpid
from tklearn.kernels.arrays import cdiv, fit, launch, look, output

HALVES = (tk.bf16, tk.f16)
NEG_INF = float("-inf")
BQ, BK, WARPS = 64, 64, 4
LOG2E = 1.4426950408889634


@cache
def make(T: Any = tk.bf16, D: int = 64, CAUSAL: bool = False) -> tk.Kernel:
    """The kernel for one dtype and one size of heads."""
    KEYS = BK if D <= 64 else BK // 2  # as many as registers have room for

    @tk.kernel(warps=WARPS)
    def attention(Q: tk.gl(T), K: tk.gl(T), V: tk.gl(T), Y: tk.gl(T), scale: tk.f32):
        k_s = tk.shared(tk.st(T, KEYS, D), 2)
        v_s = tk.shared(tk.st(T, KEYS, D), 2)
        q = tk.rt(T, 16, D)
        k = tk.rt(T, KEYS, D)
        v = tk.rt(T, KEYS, D, tk.col)
        att = tk.rt(tk.f32, 16, KEYS)
        p = tk.rt(T, 16, KEYS)
        o = tk.rt(tk.f32, 16, D)
        top = tk.col_vec(16)  # of each query's scores so far
        total = tk.col_vec(16)
        b, h, mine = blockIdx.z, blockIdx.y, blockIdx.x * WARPS + warpid()

        warp.load(q, Q, (b, h, mine, 0))
        warp.zero(o)
        warp.zero(total)
        warp.neg_infty(top)
        steps = tk.cdiv(K.rows, KEYS)
        if CAUSAL:  # later keys are hidden from all queries of this block
            steps = min(steps, (blockIdx.x + 1) * (BQ // KEYS))
        block.load_async(k_s[0], K, (b, h, 0, 0))
        block.load_async(v_s[0], V, (b, h, 0, 0))
        tk.commit_group()
        for j in range(steps):
            tk.wait_group(0)
            block.sync()  # step j is here, and nobody reads step j - 1 any more
            if j + 1 < steps:
                block.load_async(k_s[(j + 1) % 2], K, (b, h, j + 1, 0))
                block.load_async(v_s[(j + 1) % 2], V, (b, h, j + 1, 0))
                tk.commit_group()
            warp.load(k, k_s[j % 2])
            warp.zero(att)
            warp.mma_ABt(att, q, k)
            att *= scale
            warp.right_fill(att, K.rows - j * KEYS, NEG_INF)
            if CAUSAL:
                warp.tril(att, mine * 16 - j * KEYS, NEG_INF)
            new = tk.row_max(att, top)
            att = tk.exp2(att - new)
            keep = tk.exp2(top - new)
            total = total * keep + tk.row_sum(att)
            o *= keep
            warp.copy(top, new)
            warp.copy(p, att)
            warp.load(v, v_s[j % 2])
            warp.mma_AB(o, p, v)
        o /= total
        warp.store(Y, o, (b, h, mine, 0))

    return attention


def run(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = False,
    scale: float | None = None,
    out: Any = None,
    report: bool = False,
    **options: Any,
) -> Any:
    """Attention of q (B, H, N, D) over k and v (B, H, M, D) in bf16 or f16, summed in f32.

    `causal`: query i sees keys 0 to i, and M must be N. `scale` of the scores: 1 / sqrt(D) unless
    given. D is 16, 32, 64 or 128.
    """
    x = look(q, "q", 4, HALVES)
    y, z = (look(a, name, 4, (x.dtype,)) for a, name in ((k, "k"), (v, "v")))
    (batch, heads, n, d), m = x.shape, y.shape[2]
    fit(d in (16, 32, 64, 128), f"heads of {d} are not possible: D is 16, 32, 64 or 128")
    fit(
        y.shape == z.shape == (batch, heads, m, d),
        f"q is {x.shape}, but k is {y.shape} and v is {z.shape}",
        "k and v have the batch, heads and D of q, and one length",
    )
    fit(not causal or m == n, f"causal attention of {n} queries over {m} keys", "M must be N")
    fit(m > 0 or n == 0, "there are no keys")
    out = output(out, q, x.shape)
    factor = LOG2E * (d**-0.5 if scale is None else scale)  # the kernel takes powers of 2
    kernel = make(x.dtype, d, bool(causal))
    told = launch(kernel, (cdiv(n, BQ), heads, batch), q, k, v, out, factor, options=options)
    return (out, told) if report else out


def reference(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool = False, scale: float | None = None
) -> np.ndarray:
    """The same in float64."""
    q, k, v = (a.astype(np.float64) for a in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if causal:
        scores = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True, initial=-np.inf))
    return e / e.sum(axis=-1, keepdims=True) @ v
