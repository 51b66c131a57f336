# words: overflows
import tklearn as tk
from tklearn import block, blockIdx, laneid, threadIdx, warp, warpid

NEG = float("-inf")


@tk.kernel(warps=1)
def softmax_t(x: tk.gl_fl, y: tk.gl_fl, T: tk.f32):
    t = tk.rt_fl(16, 256)
    warp.load(t, x, (blockIdx.x, 0))
    t /= T
    warp.right_fill(t, x.cols, NEG)
    t = tk.exp(t)
    t /= tk.row_sum(t)
    warp.store(y, t, (blockIdx.x, 0))
