"""The kernel of attention into which notebook 06 looks."""

from __future__ import annotations

import tklearn as tk
from tklearn import warp


@tk.kernel(warps=1)
def watched(
    Q: tk.gl_hf, K: tk.gl_hf, V: tk.gl_hf, O: tk.gl_fl,  # noqa: E741
    seen_s: tk.gl_fl, seen_p: tk.gl_hf, seen_o: tk.gl_fl, seen_keep: tk.gl_fl,
    scale: tk.f32, RESCALE: tk.const = True,
):  # fmt: skip
    """Attention of 16 queries by one warp that stores what it has after each tile of 64 keys."""
    q = tk.rt_hf(16, 64)
    k = tk.rt_hf(64, 64)
    v = tk.rt_hf(64, 64, tk.col)
    s = tk.rt_fl(16, 64)
    p = tk.rt_hf(16, 64)
    o = tk.rt_fl(16, 64)
    top = tk.col_vec(16)
    total = tk.col_vec(16)
    warp.load(q, Q, (0, 0))
    warp.zero(o)
    warp.zero(total)
    warp.neg_infty(top)
    for j in range(tk.cdiv(K.rows, 64)):
        warp.load(k, K, (j, 0))
        warp.load(v, V, (j, 0))
        warp.zero(s)
        warp.mma_ABt(s, q, k)
        s *= scale
        warp.right_fill(s, K.rows - j * 64, -1e30)
        warp.store(seen_s, s, (j, 0))
        new = tk.row_max(s, top)
        s = tk.exp2(s - new)
        keep = tk.exp2(top - new)
        total = total * keep + tk.row_sum(s)
        if RESCALE:
            o *= keep
        warp.copy(top, new)
        warp.copy(p, s)
        warp.mma_AB(o, p, v)
        warp.store(seen_p, p, (j, 0))
        warp.store(seen_keep, keep, (j,))
        warp.store(seen_o, o / total, (j, 0))  # what the answer would be if this were all
    warp.store(O, o / total, (0, 0))
