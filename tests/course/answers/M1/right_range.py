import tklearn as tk
from tklearn import block, blockIdx, laneid, threadIdx, warp, warpid

PER_BLOCK = 4 * 256


@tk.kernel(threads=256)
def copy(n: tk.i32, x: tk.gl_fl, y: tk.gl_fl):
    start = blockIdx.x * PER_BLOCK
    for i in range(start + threadIdx.x, min(n, start + PER_BLOCK), 256):
        y[i] = x[i]
