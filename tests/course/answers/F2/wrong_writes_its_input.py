# words: wrote into its input|TK502
import tklearn as tk
from tklearn import block, blockIdx, threadIdx


@tk.kernel(threads=128)
def steps(n: tk.i32, x: tk.gl_fl, y: tk.gl_fl):
    s = tk.shared_array(tk.f32, 129)
    t = threadIdx.x
    i = blockIdx.x * 128 + t
    if i < n:
        s[t + 1] = x[i]
        x[i] = 0.0
    if t == 0:
        s[0] = 0.0
    block.sync()
    if i < n:
        y[i] = s[t + 1] * 0.0
