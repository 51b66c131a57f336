# words: threads past the end read what nobody wrote
import tklearn as tk
from tklearn import block, blockIdx, threadIdx


@tk.kernel(threads=128)
def steps(n: tk.i32, x: tk.gl_fl, y: tk.gl_fl):
    s = tk.shared_array(tk.f32, 129)
    t = threadIdx.x
    i = blockIdx.x * 128 + t
    if i < n:
        s[t + 1] = x[i]
        if t == 0:
            s[0] = x[i - 1] if i > 0 else 0.0
    block.sync()
    y[i] = s[t + 1] - s[t]
