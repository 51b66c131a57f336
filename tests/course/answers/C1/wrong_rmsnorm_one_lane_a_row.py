# words: cost too much
# score: 2
import tklearn as tk
from tklearn import block, blockIdx, laneid, threadIdx, warp, warpid


@tk.kernel(warps=1)
def rmsnorm(x: tk.gl_fl, w: tk.gl_fl, y: tk.gl_fl, eps: tk.f32):
    row = blockIdx.x * 16 + threadIdx.x
    if threadIdx.x < 16 and row < x.rows:
        total = 0.0
        for c in range(x.cols):
            total += x[row, c] * x[row, c]
        for c in range(x.cols):
            y[row, c] = x[row, c] * tk.rsqrt(total / float(x.cols) + eps) * w[c]
