# words: that is LayerNorm|multiple of 32|warps
import tklearn as tk
from tklearn import block, blockIdx, laneid, threadIdx, warp, warpid


@tk.kernel(threads=16)
def rmsnorm(x: tk.gl_fl, w: tk.gl_fl, y: tk.gl_fl, eps: tk.f32):
    row = blockIdx.x * 16 + threadIdx.x
    if row < x.rows:
        mean = 0.0
        for c in range(x.cols):
            mean += x[row, c]
        mean /= float(x.cols)
        total = 0.0
        for c in range(x.cols):
            total += (x[row, c] - mean) * (x[row, c] - mean)
        for c in range(x.cols):
            y[row, c] = (x[row, c] - mean) * tk.rsqrt(total / float(x.cols) + eps) * w[c]
