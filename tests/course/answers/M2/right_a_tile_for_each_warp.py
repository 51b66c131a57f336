import tklearn as tk
from tklearn import block, blockIdx, warp, warpid

PAD = 0  # numbers of 2 bytes at the end of each row
PAD = 8


@tk.kernel(warps=4)
def through(x: tk.gl_hf, y: tk.gl_hf):
    s = tk.shared(tk.st_hf(16, 64, swizzle=0, pad=PAD), 4)
    t = tk.rt_hf(16, 64)
    warp.load(s[warpid()], x, (blockIdx.y * 4 + warpid(), blockIdx.x))
    warp.sync()
    warp.load(t, s[warpid()])
    warp.store(y, t, (blockIdx.y * 4 + warpid(), blockIdx.x))
