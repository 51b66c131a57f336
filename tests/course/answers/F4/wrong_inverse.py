# words: upside down
import tklearn as tk
from tklearn import block, blockIdx, laneid, threadIdx, warp, warpid


@tk.kernel(warps=1)
def attend(Q: tk.gl_hf, K: tk.gl_hf, V: tk.gl_hf, O: tk.gl_fl, scale: tk.f32):
    q = tk.rt_hf(16, 64)
    k = tk.rt_hf(64, 64)
    v = tk.rt_hf(64, 64, tk.col)
    s = tk.rt_fl(16, 64)
    p = tk.rt_hf(16, 64)
    o = tk.rt_fl(16, 64)
    top = tk.col_vec(16)
    total = tk.col_vec(16)
    warp.load(q, Q, (blockIdx.x, 0))
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
        new = tk.row_max(s, top)
        s = tk.exp2(s - new)
        keep = tk.exp2(top - new)
        total = total * keep + tk.row_sum(s)
        if j > 0:
            o /= keep
        warp.copy(top, new)
        warp.copy(p, s)
        warp.mma_AB(o, p, v)
    o /= total
    warp.store(O, o, (blockIdx.x, 0))
