# words: place must depend on the row
import tklearn as tk
from tklearn import block, blockIdx, laneid, threadIdx, warp, warpid


@tk.device
def place(row, word):
    where = word ^ 5
    pass
    return where


@tk.kernel(threads=(32, 8))
def transpose(src: tk.gl_fl, dst: tk.gl_fl):
    tile = tk.shared_array(tk.f32, 32, 32)
    for j in range(0, 32, 8):
        r = threadIdx.y + j
        row = blockIdx.y * 32 + r
        col = blockIdx.x * 32 + threadIdx.x
        if row < src.rows and col < src.cols:
            tile[r, place(r, threadIdx.x)] = src[row, col]
    block.sync()
    for j in range(0, 32, 8):
        c = threadIdx.y + j
        row = blockIdx.x * 32 + c
        col = blockIdx.y * 32 + threadIdx.x
        if row < dst.rows and col < dst.cols:
            dst[row, col] = tile[threadIdx.x, place(threadIdx.x, c)]
