# words: stores are not
import tklearn as tk
from tklearn import block, blockIdx, laneid, threadIdx, warp, warpid


@tk.kernel(threads=256)
def copy(n: tk.i32, x: tk.gl_fl, y: tk.gl_fl):
    first = blockIdx.x * 1024 + threadIdx.x
    step = 256
    part = tk.shared_array(tk.f32, 1024)
    for j in range(4):
        i = first + j * step
        if i < n:
            part[threadIdx.x + j * step] = x[i]
    block.sync()
    for j in range(4):
        i = threadIdx.x * 4 + j
        if blockIdx.x * 1024 + i < n:
            y[blockIdx.x * 1024 + i] = part[i]
