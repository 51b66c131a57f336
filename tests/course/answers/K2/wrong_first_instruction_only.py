# words: need places of their own
import tklearn as tk
from tklearn import blockIdx, laneid, warp


@tk.kernel(warps=1)
def product(A: tk.gl_hf, B: tk.gl_hf, C: tk.gl_fl):
    a = tk.rt_hf(16, 16)
    b = tk.rt_hf(16, 16, tk.col)
    acc = tk.rt_fl(16, 16)
    warp.zero(acc)
    for k in range((A.cols + 15) // 16):
        warp.load(a, A, (blockIdx.y, k))
        warp.load(b, B, (k, blockIdx.x))
        warp.mma_AB(acc, a, b)
    first_row = blockIdx.y * 16  # of this block's piece
    first_col = blockIdx.x * 16
    group = laneid() // 4
    pair = laneid() % 4
    for i in tk.static_range(4):
        row = first_row + group + 8 * (i // 2 % 2)
        col = first_col + 2 * pair + i % 2 + 8 * (i // 4)
        if row < C.rows and col < C.cols:
            C[row, col] = acc.reg(i)
