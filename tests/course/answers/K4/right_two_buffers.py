import tklearn as tk
from tklearn import block, blockIdx, laneid, threadIdx, warp, warpid


@tk.kernel(warps=4)
def attend(Q: tk.gl_hf, K: tk.gl_hf, V: tk.gl_hf, O: tk.gl_fl, scale: tk.f32):
    k_s = tk.shared(tk.st_hf(64, 64), 2)
    v_s = tk.shared(tk.st_hf(64, 64), 2)
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
    steps = tk.cdiv(K.rows, 64)
    block.load_async(k_s[0], K, (0, 0))
    block.load_async(v_s[0], V, (0, 0))
    tk.commit_group()
    for j in range(steps):
        tk.wait_group(0)
        block.sync()
        if j + 1 < steps:
            block.load_async(k_s[(j + 1) % 2], K, (j + 1, 0))
            block.load_async(v_s[(j + 1) % 2], V, (j + 1, 0))
            tk.commit_group()
        warp.load(k, k_s[j % 2])
        warp.zero(s)
        warp.mma_ABt(s, q, k)
        s *= scale
        warp.right_fill(s, K.rows - j * 64, -1e30)
        new = tk.row_max(s, top)
        keep = tk.exp2(top - new)
        s = tk.exp2(s - new)
        o *= keep
        total = total * keep + tk.row_sum(s)
        warp.copy(top, new)
        warp.copy(p, s)
        warp.load(v, v_s[j % 2])
        warp.mma_AB(o, p, v)
    warp.store(O, o / total, (mine, 0))
