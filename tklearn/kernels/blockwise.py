"""Sums and maxima over the threads of a block: shuffles in a warp, shared memory between warps."""

import tklearn as tk
from tklearn import block, laneid, warp, warpid

THREADS = 256  # of the blocks that use these helpers
WARPS = THREADS // 32


@tk.device
def block_sum(value: tk.f32, parts):
    """The sum over all threads, in every thread; parts: a shared array of WARPS numbers."""
    for i in range(5):
        value += warp.shfl_xor(value, 16 >> i)  # after five exchanges each lane has the warp's sum
    block.sync()  # parts may still be read for the sum before this one
    if laneid() == 0:
        parts[warpid()] = value
    block.sync()
    total = 0.0
    for w in range(WARPS):
        total += parts[w]
    return total


@tk.device
def block_max(value: tk.f32, parts):
    """The largest value of all threads, in every thread; parts: a shared array of WARPS numbers."""
    for i in range(5):
        value = max(value, warp.shfl_xor(value, 16 >> i))
    block.sync()
    if laneid() == 0:
        parts[warpid()] = value
    block.sync()
    top = parts[0]
    for w in range(1, WARPS):
        top = max(top, parts[w])
    return top
