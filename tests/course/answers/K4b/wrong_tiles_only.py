# words: no key ahead is hidden yet
import tklearn as tk
from tklearn import block, blockIdx, laneid, threadIdx, warp, warpid


@tk.kernel(warps=4)
def attend_causal(Q: tk.gl_hf, K: tk.gl_hf, V: tk.gl_hf, O: tk.gl_fl, scale: tk.f32):
    k_s = tk.shared(tk.st_hf(64, 64))
    v_s = tk.shared(tk.st_hf(64, 64))
    q = tk.rt_hf(16, 64)
    k = tk.rt_hf(64, 64)
    v = tk.rt_hf(64, 64, tk.col)
    s = tk.rt_fl(16, 64)
    p = tk.rt_hf(16, 64)
    o = tk.rt_fl(16, 64)
    top = tk.col_vec(16)
    total = tk.col_vec(16)
    mine = blockIdx.x * 4 + warpid()
    warp.load(q, Q, (mine, 0))
    warp.zero(o)
    warp.zero(total)
    warp.neg_infty(top)
    tiles = blockIdx.x + 1
    for j in range(tiles):
        block.sync()
        block.load(k_s, K, (j, 0))
        block.load(v_s, V, (j, 0))
        block.sync()
        warp.load(k, k_s)
        warp.load(v, v_s)
        warp.zero(s)
        warp.mma_ABt(s, q, k)
        s *= scale
        new = tk.row_max(s, top)
        s = tk.exp2(s - new)
        keep = tk.exp2(top - new)
        total = total * keep + tk.row_sum(s)
        o *= keep
        warp.copy(top, new)
        warp.copy(p, s)
        warp.mma_AB(o, p, v)
    o /= total
    warp.store(O, o, (mine, 0))
