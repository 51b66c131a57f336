# words: its length is a.cols
import tklearn as tk
from tklearn import block, blockIdx, laneid, threadIdx, warp, warpid


@tk.kernel(threads=256)
def swiglu(a: tk.gl_fl, b: tk.gl_fl, y: tk.gl_fl):
    for j in range(4):
        i = blockIdx.x * 1024 + j * 256 + threadIdx.x
        if i < y.rows:
            v = a[i]
            y[i] = v / (1.0 + tk.exp(-v)) * b[i]
