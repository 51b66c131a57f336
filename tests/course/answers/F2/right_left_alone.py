import tklearn as tk
from tklearn import block, blockIdx, threadIdx


@tk.kernel(threads=128)
def steps(n: tk.i32, x: tk.gl_fl, y: tk.gl_fl):
    s = tk.shared_array(tk.f32, 128)
    t = threadIdx.x
    i = blockIdx.x * 128 + t
    mine = 0.0
    if i < n:
        mine = x[i]
    s[t] = mine
    block.sync()
    left = 0.0
    if t > 0:
        left = s[t - 1]
    elif i > 0 and i < n:
        left = x[i - 1]
    if i < n:
        y[i] = mine - left
