# words: start of a block
import tklearn as tk
from tklearn import block, blockIdx, laneid, threadIdx, warp, warpid


@tk.kernel(threads=256)
def copy(n: tk.i32, x: tk.gl_fl, y: tk.gl_fl):
    first = blockIdx.x * 256 + threadIdx.x
    step = 256
    for j in range(4):
        i = first + j * step
        if i < n:
            y[i] = x[i]
