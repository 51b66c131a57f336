import tklearn as tk
from tklearn import block, blockIdx, laneid, threadIdx, warp, warpid


@tk.kernel(warps=16)
def softmax_t(x: tk.gl_fl, y: tk.gl_fl, T: tk.f32):
    row = blockIdx.x * 16 + warpid()
    if row < x.rows:
        v = tk.reg_array(tk.f32, 8)
        top = -1e30
        for j in tk.static_range(8):
            c = j * 32 + laneid()
            v[j] = -1e30
            if c < x.cols:
                v[j] = x[row, c] / T
            top = max(top, v[j])
        for i in tk.static_range(5):
            top = max(top, warp.shfl_xor(top, 16 >> i))
        total = 0.0
        for j in tk.static_range(8):
            v[j] = tk.exp(v[j] - top)
            total += v[j]
        for i in tk.static_range(5):
            total += warp.shfl_xor(total, 16 >> i)
        for j in tk.static_range(8):
            c = j * 32 + laneid()
            if c < x.cols:
                y[row, c] = v[j] / total
