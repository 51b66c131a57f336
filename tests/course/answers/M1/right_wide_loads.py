import tklearn as tk
from tklearn import block, blockIdx, laneid, threadIdx, warp, warpid


@tk.kernel(threads=256)
def copy(n: tk.i32, x: tk.gl_fl, y: tk.gl_fl):
    group = blockIdx.x * 256 + threadIdx.x
    i = group * 4
    if i + 3 < n:
        tk.vec(y, 4)[group] = tk.vec(x, 4)[group]
    else:
        while i < n:
            y[i] = x[i]
            i += 1
