import tklearn as tk
from tklearn import block, blockIdx, threadIdx


@tk.kernel(threads=128)
def steps(n: tk.i32, x: tk.gl_fl, y: tk.gl_fl):
    s = tk.shared_array(tk.f32, 129)
    t = threadIdx.x
    i = blockIdx.x * 128 + t
    here = i < n
    s[t + 1] = x[i] if here else 0.0
    if t == 127:
        first = blockIdx.x * 128
        s[0] = x[first - 1] if first > 0 else 0.0
    block.sync()
    if here:
        y[i] = s[t + 1] - s[t]
