import tklearn as tk
from tklearn import block, blockIdx, laneid, threadIdx, warp, warpid


@tk.kernel(warps=4)
def swiglu(a: tk.gl_fl, b: tk.gl_fl, y: tk.gl_fl):
    at = (blockIdx.x * 4 + warpid(),)
    u = tk.rv(tk.f32, 256)
    v = tk.rv(tk.f32, 256)
    warp.load(u, a, at)
    warp.load(v, b, at)
    u /= tk.exp(u * -1.0) + 1.0
    warp.store(y, u * v, at)
