import tklearn as tk
from tklearn import block, blockIdx, laneid, threadIdx, warp, warpid


@tk.device
def sigmoid(x: tk.f32):
    return tk.rcp(1.0 + tk.exp(0.0 - x))


@tk.kernel(threads=128)
def swiglu(a: tk.gl_fl, b: tk.gl_fl, y: tk.gl_fl):
    first = blockIdx.x * 1024
    for i in range(first + threadIdx.x, min(first + 1024, a.cols), 128):
        gate = a[i]
        y[i] = gate * sigmoid(gate) * b[i]
