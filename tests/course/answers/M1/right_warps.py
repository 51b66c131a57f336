import tklearn as tk
from tklearn import block, blockIdx, laneid, threadIdx, warp, warpid


@tk.kernel(threads=256)
def copy(n: tk.i32, x: tk.gl_fl, y: tk.gl_fl):
    first = blockIdx.x * 1024 + warpid() * 128 + laneid()
    step = 32
    for j in range(4):
        i = first + j * step
        if i < n:
            y[i] = x[i]
