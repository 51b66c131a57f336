import tklearn as tk
from tklearn import block, blockIdx, laneid, threadIdx, warp, warpid

NEG = float("-inf")


@tk.kernel(warps=4)
def window_scores(Q: tk.gl_hf, K: tk.gl_hf, S: tk.gl_fl, scale: tk.f32):
    k_s = tk.shared(tk.st_hf(64, 64))
    q = tk.rt_hf(16, 64)
    k = tk.rt_hf(64, 64)
    s = tk.rt_fl(16, 64)
    behind = blockIdx.y - blockIdx.x
    warp.zero(s)
    if behind >= 0 and behind <= 1:
        block.load(k_s, K, (blockIdx.x, 0))
        block.sync()
        warp.load(k, k_s)
        warp.load(q, Q, (blockIdx.y * 4 + warpid(), 0))
        q *= scale
        warp.mma_ABt(s, q, k)
    warp.tril(s, behind * 64 + warpid() * 16, NEG)
    warp.triu(s, behind * 64 + warpid() * 16 - 63, NEG)
    warp.store(S, s, (blockIdx.y * 4 + warpid(), blockIdx.x))
