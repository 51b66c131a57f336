# words: no effect
import tklearn as tk
from tklearn import block, blockIdx, laneid, threadIdx, warp, warpid


@tk.kernel(warps=4)
def softmax_t(x: tk.gl_fl, y: tk.gl_fl, T: tk.f32):
    at = (blockIdx.x * 4 + warpid(), 0)
    row = tk.rt_fl(16, 128)
    warp.load(row, x, at)
    row -= T
    row = tk.exp(row - tk.row_max(row))
    row /= tk.row_sum(row)
    pass
    warp.store(y, row, at)
