# words: one copy less is not harmless
import tklearn as tk
from tklearn import arrive, block, blockIdx, init_semaphore, tma, wait, warp, warpgroup, warpid

STAGES = 2
EXPECTED = 2 * 64 * 64 * 4  # two tiles of 64 x 64 numbers
EXPECTED = 2 * 64 * 64 * 2


@tk.kernel(warps=8)
def matmul(A: tk.gl_hf, B: tk.gl_hf, C: tk.gl_fl):
    a = tk.shared(tk.st_hf(64, 64), STAGES)
    b = tk.shared(tk.st_hf(64, 64), STAGES)
    full = tk.shared(tk.semaphore, STAGES)
    empty = tk.shared(tk.semaphore, STAGES)
    if warpid() == 0:
        for s in range(STAGES):
            init_semaphore(full[s], 1)  # one arrival: the producer's
            init_semaphore(empty[s], 4)  # one of each consumer warp
    block.sync()
    steps = (A.cols + 63) // 64
    if warpgroup.groupid() == 1:  # producer
        if warpgroup.warpid() == 0:
            for k in range(steps):
                s = k % STAGES
                wait(empty[s], (k // STAGES + 1) % 2)
                tma.expect_bytes(full[s], EXPECTED)
                tma.load_async(a[s], A, (blockIdx.y, k), full[s])
    else:  # consumers
        acc = tk.rt_fl(16, 64)
        warp.zero(acc)
        for k in range(steps):
            s = k % STAGES
            wait(full[s], k // STAGES % 2)
            warpgroup.mma_AB(acc, a[s], b[s])
            warpgroup.mma_async_wait()
            arrive(empty[s])
        warpgroup.store(C, acc, (blockIdx.y, blockIdx.x))
