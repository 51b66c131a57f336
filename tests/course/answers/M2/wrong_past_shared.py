# words: padded, and no more|TK5|no more than
import tklearn as tk
from tklearn import block, blockIdx, warp, warpid

PAD = 0  # numbers of 2 bytes at the end of each row
PAD = 8


@tk.kernel(warps=4)
def through(x: tk.gl_hf, y: tk.gl_hf):
    t = tk.rt_hf(16, 64)
    warp.load(t, x, (blockIdx.y * 4 + warpid(), blockIdx.x))
    warp.store(y, t, (blockIdx.y * 4 + warpid(), blockIdx.x))
