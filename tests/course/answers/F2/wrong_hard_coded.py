# words: should be
import tklearn as tk
from tklearn import block, blockIdx, threadIdx


@tk.kernel(threads=128)
def steps(n: tk.i32, x: tk.gl_fl, y: tk.gl_fl):
    i = blockIdx.x * 128 + threadIdx.x
    block.sync()
    if i < n:
        y[i] = 0.1257 if i == 0 else -0.2578
