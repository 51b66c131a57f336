# words: i // 2 % 2
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
    for i in tk.static_range(8):
        row = first_row + laneid() // 4 + 8 * (i // 2)
        col = first_col + 2 * (laneid() % 4) + i % 2 + 8 * (i // 4)
        if row < C.rows and col < C.cols:
            C[row, col] = acc.reg(i)
