# words: read from global memory twice
# score: 2.6
import tklearn as tk
from tklearn import blockIdx, threadIdx


@tk.kernel(threads=128)
def steps(n: tk.i32, x: tk.gl_fl, y: tk.gl_fl):
    i = blockIdx.x * 128 + threadIdx.x
    if i < n:
        y[i] = x[i] - (x[i - 1] if i > 0 else 0.0)
