import tklearn as tk
from tklearn import block, blockIdx, laneid, threadIdx, warp, warpid


@tk.kernel(warps=16)
def rmsnorm(x: tk.gl_fl, w: tk.gl_fl, y: tk.gl_fl, eps: tk.f32):
    row = blockIdx.x * 16 + warpid()
    total = 0.0
    if row < x.rows:
        for c in range(laneid(), x.cols, 32):
            v = x[row, c]
            total += v * v
    for i in tk.static_range(5):
        total += warp.shfl_xor(total, 16 >> i)
    factor = tk.rsqrt(total / float(x.cols) + eps)
    if row < x.rows:
        for c in range(laneid(), x.cols, 32):
            y[row, c] = x[row, c] * factor * w[c]
