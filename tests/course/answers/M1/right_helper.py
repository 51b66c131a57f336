import tklearn as tk
from tklearn import block, blockIdx, laneid, threadIdx, warp, warpid


@tk.device
def move(y, x, i, n):
    if i < n:
        y[i] = x[i]


@tk.kernel(threads=256)
def copy(n: tk.i32, x: tk.gl_fl, y: tk.gl_fl):
    i = threadIdx.x + blockIdx.x * 1024
    move(y, x, i, n)
    move(y, x, i + 256, n)
    move(y, x, i + 512, n)
    move(y, x, i + 768, n)
