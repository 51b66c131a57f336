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
    row = first_row + laneid() // 4
    col = first_col + laneid() % 4 * 2
    if row < C.rows:
        if col < C.cols:
            C[row, col] = acc.reg(0)
        if col + 1 < C.cols:
            C[row, col + 1] = acc.reg(1)
        if col + 8 < C.cols:
            C[row, col + 8] = acc.reg(4)
        if col + 9 < C.cols:
            C[row, col + 9] = acc.reg(5)
    if row + 8 < C.rows:
        if col < C.cols:
            C[row + 8, col] = acc.reg(2)
        if col + 1 < C.cols:
            C[row + 8, col + 1] = acc.reg(3)
        if col + 8 < C.cols:
            C[row + 8, col + 8] = acc.reg(6)
        if col + 9 < C.cols:
            C[row + 8, col + 9] = acc.reg(7)
