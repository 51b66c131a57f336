# words: TK509|stopped after
import tklearn as tk
from tklearn import block, blockIdx, laneid, threadIdx, warp, warpid


@tk.kernel(threads=256)
def copy(n: tk.i32, x: tk.gl_fl, y: tk.gl_fl):
    first = blockIdx.x * 1024 + threadIdx.x
    step = 256
    while first >= 0:
        step = 256
