# words: eps is missing
import tklearn as tk
from tklearn import block, blockIdx, laneid, threadIdx, warp, warpid


@tk.kernel(warps=1)
def rmsnorm(x: tk.gl_fl, w: tk.gl_fl, y: tk.gl_fl, eps: tk.f32):
    t = tk.rt_fl(16, 256)
    weights = tk.row_vec(256)
    warp.load(t, x, (blockIdx.x, 0))
    warp.load(weights, w, (0,))
    t *= tk.rsqrt(tk.row_sum(t * t) / float(x.cols))
    t *= weights
    warp.store(y, t, (blockIdx.x, 0))
