import tklearn as tk
from tklearn import block, blockIdx, laneid, threadIdx, warp, warpid

NEG = float("-inf")


@tk.kernel(warps=4)
def window_scores(Q: tk.gl_hf, K: tk.gl_hf, S: tk.gl_fl, scale: tk.f32):
    q = tk.rt_hf(16, 64)
    k = tk.rt_hf(64, 64)
    s = tk.rt_fl(16, 64)
    mine = blockIdx.y * 4 + warpid()
    if blockIdx.x == blockIdx.y or blockIdx.x + 1 == blockIdx.y:
        warp.load(q, Q, (mine, 0))
        warp.load(k, K, (blockIdx.x, 0))
        warp.zero(s)
        warp.mma_ABt(s, q, k)
        s *= scale
        d = mine * 16 - blockIdx.x * 64
        warp.tril(s, d, NEG)
        warp.triu(s, d - 63, NEG)
    else:
        warp.neg_infty(s)
    warp.store(S, s, (mine, blockIdx.x))
