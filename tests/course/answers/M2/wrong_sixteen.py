# words: the same banks again
import tklearn as tk
from tklearn import block, blockIdx, warp, warpid

PAD = 0  # numbers of 2 bytes at the end of each row
PAD = 16


@tk.kernel(warps=4)
def through(x: tk.gl_hf, y: tk.gl_hf):
    s = tk.shared(tk.st_hf(64, 64, swizzle=0, pad=PAD))
    t = tk.rt_hf(16, 64)
    block.load(s, x, (blockIdx.y, blockIdx.x))
    block.sync()
    warp.load(t, s.subtile(16, 64, (warpid(), 0)))
    warp.store(y, t, (blockIdx.y * 4 + warpid(), blockIdx.x))
