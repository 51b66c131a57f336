# words: should be
import tklearn as tk
from tklearn import block, blockIdx, warp, warpid

STAGES = 3


@tk.kernel(warps=4)
def matmul(A: tk.gl_hf, B: tk.gl_hf, C: tk.gl_fl):
    a_s = tk.shared(tk.st_hf(64, 64), STAGES)
    b_s = tk.shared(tk.st_hf(64, 64), STAGES)
    a = tk.rt_hf(16, 64)
    b = tk.rt_hf(64, 64, tk.col)
    acc = tk.rt_fl(16, 64)
    warp.zero(acc)
    steps = (A.cols + 63) // 64
    for k in range(STAGES - 1):  # groups 0 and 1: the tiles of steps 0 and 1
        block.load_async(a_s[k], A, (blockIdx.y, k))
        block.load_async(b_s[k], B, (k, blockIdx.x))
        tk.commit_group()
    for k in range(steps):
        ahead = k + STAGES - 1
        if ahead < steps:
            block.load_async(a_s[ahead % STAGES], A, (blockIdx.y, ahead))
            block.load_async(b_s[ahead % STAGES], B, (ahead, blockIdx.x))
        tk.commit_group()  # group k + 2: the tiles of step k + 2 (at the end an empty group)
        tk.wait_group(STAGES - 1)
        block.sync()  # the copies of the other warps are there, too
        warp.load(a, a_s[k % STAGES].subtile(16, 64, (warpid(), 0)))
        warp.load(b, b_s[k % STAGES])
        warp.mma_AB(acc, a, b)
        block.sync()  # all have read: the stage may be filled again
    warp.zero(acc)
    warp.store(C, acc, (blockIdx.y * 4 + warpid(), blockIdx.x))
