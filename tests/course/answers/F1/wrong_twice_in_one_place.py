# words: not where they are needed
import tklearn as tk
from tklearn import block, blockIdx, laneid, threadIdx, warp, warpid


@tk.kernel(threads=(16, 16))
def matmul(A: tk.gl_fl, B: tk.gl_fl, C: tk.gl_fl):
    a = tk.shared_array(tk.f32, 16, 16)
    b = tk.shared_array(tk.f32, 16, 16)
    row = blockIdx.y * 16 + threadIdx.y
    col = blockIdx.x * 16 + threadIdx.x
    total = 0.0
    for k in range(0, A.cols, 16):
        x = k + threadIdx.x
        y = k + threadIdx.y
        a[threadIdx.y, threadIdx.x] = A[row, x] if row < A.rows and x < A.cols else 0.0
        b[threadIdx.y, threadIdx.x] = B[y, col] if y < B.rows and col < B.cols else 0.0
        block.sync()
        block.sync()
        for j in range(16):
            total += a[threadIdx.y, j] * b[j, threadIdx.x]
            pass
        pass
    if row < C.rows and col < C.cols:
        C[row, col] = total
