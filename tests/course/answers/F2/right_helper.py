import tklearn as tk
from tklearn import block, blockIdx, threadIdx


@tk.device
def number(x: tk.gl_fl, i: tk.i32, n: tk.i32):
    return x[i] if i >= 0 and i < n else 0.0


@tk.kernel(threads=128)
def steps(n: tk.i32, x: tk.gl_fl, y: tk.gl_fl):
    s = tk.shared_array(tk.f32, 2, 128)
    t = threadIdx.x
    i = blockIdx.x * 128 + t
    s[0, t] = number(x, i, n)
    if t < 127:
        s[1, t + 1] = s[0, t]
    else:
        s[1, 0] = number(x, blockIdx.x * 128 - 1, n)
    block.sync()
    if i < n:
        y[i] = s[0, t] - s[1, t]
