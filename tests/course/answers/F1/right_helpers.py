import tklearn as tk
from tklearn import block, blockIdx, laneid, threadIdx, warp, warpid

T = 16


@tk.device
def element(M, row, col):
    v = 0.0
    if row < M.rows and col < M.cols:
        v = M[row, col]
    return v


@tk.kernel(threads=(T, T))
def matmul(A: tk.gl_fl, B: tk.gl_fl, C: tk.gl_fl):
    a = tk.shared_array(tk.f32, T, T)
    b = tk.shared_array(tk.f32, T, T)
    i = threadIdx.y
    j = threadIdx.x
    row = blockIdx.y * T + i
    col = blockIdx.x * T + j
    total = 0.0
    steps = tk.cdiv(A.cols, T)
    for k in range(steps):
        a[i, j] = element(A, row, k * T + j)
        b[i, j] = element(B, k * T + i, col)
        block.sync()
        for s in tk.static_range(T):
            total = a[i, s] * b[s, j] + total
        block.sync()
    if row < C.rows and col < C.cols:
        C[row, col] = total
