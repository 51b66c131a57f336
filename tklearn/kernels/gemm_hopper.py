"""C = A @ B by TMA and warpgroup products, with roles for the warps: sm_90a (H100, H200) only.

In gemm.py each warp copies, waits and multiplies in turn. Here a warp has one role. One warpgroup,
the producer, does nothing but tell the copy engine (TMA) which tiles to bring; the others, the
consumers, do nothing but multiply (wgmma), each a 64 x BN part of the block's tile of C. Between
them is a ring of STAGES places in shared memory. A place has two semaphores:

    full[s]     ends a phase when the copies of this step have come     producer -> consumers
    empty[s]    ends a phase when every consumer warp has read them     consumers -> producer

Two kernels, in the order to read them. `simple` computes one tile of C and counts stages and phases
by hand. `persistent` is started once for each multiprocessor and takes tile after tile, so that the
copies for the next tile run while this one is finished; it keeps stage and phase in a tk.ring, one
product in flight while the next is issued, and lets TMA store C.

Edges need no code: TMA fills with zeros what lies past the end, and stores nothing there.

After ThunderKittens' producer/consumer template (HazyResearch, kernels/matmul) and CUTLASS's
warp-specialised persistent GEMM; the order of tiles is Triton's grouping.
"""

from functools import cache, lru_cache
from typing import Any, NamedTuple

import tklearn as tk
from tklearn import (
    arrive,
    block,
    blockIdx,
    gridDim,
    init_semaphore,
    tma,
    wait,
    warp,
    warpgroup,
    warpid,
)
from tklearn.kernels.arrays import cdiv, fit, for_tma, launch, look, multiprocessors, output
from tklearn.kernels.gemm import reference
from tklearn.tensor import traced

__all__ = ["Config", "choose", "persistent", "reference", "run", "simple"]

HALVES = (tk.bf16, tk.f16)


class Config(NamedTuple):
    """A choice of tiles.

    CONSUMERS: warpgroups that multiply, 2 or 3, each 64 rows of C. BN: columns, 16 to 256.
    BK: the inner dimension's step. STAGES: how many steps are in shared memory, at most 227 KB in
    all; the persistent kernel needs 2, since a product keeps its own until the next is issued.
    GROUP: tile rows that run together there, for the L2 cache.
    """

    CONSUMERS: int = 2
    BN: int = 128
    BK: int = 64
    STAGES: int = 4
    GROUP: int = 8


# Registers a lane of producer and consumers. A multiprocessor has 512 for each lane of a warpgroup,
# to be shared among all of them: what the producer does not need, the consumers take.
REGISTERS = {2: (40, 232), 3: (32, 160)}
WIDE = Config(BN=256, STAGES=3)  # 3 stages and C's tile are 208 KB

# Microseconds that the persistent kernel takes on an H200 for a tile of C, whatever K is, and for
# each 64 of K. Fitted by benchmarks/tune_gemm_hopper.py to launches of many shapes.
COSTS: dict[Config, tuple[float, float]] = {
    WIDE: (7.16, 0.634),
    Config(BN=192, STAGES=4): (6.35, 0.447),
    Config(BN=128, STAGES=6): (4.87, 0.307),
    Config(BN=64, STAGES=8): (3.21, 0.234),
    Config(3, 96, STAGES=5): (4.95, 0.407),
}


@lru_cache(maxsize=1024)
def choose(m: int, n: int, k: int, blocks: int) -> Config:
    """The tiles with which `blocks` multiprocessors are done first, by COSTS.

    All work at the same time on one tile each, so what counts is how many turns they take: 4096 x
    4096 is 512 tiles of 128 x 256, which 132 multiprocessors take in 4 turns, the last not full.
    """

    def seconds(c: Config) -> float:
        turns = cdiv(cdiv(m, 64 * c.CONSUMERS) * cdiv(n, c.BN), blocks)
        tile, step = COSTS[c]
        return turns * (tile + cdiv(k, 64) * step)

    return min(COSTS, key=seconds)


@cache
def simple(T: Any = tk.bf16, config: Config = Config()) -> tk.Kernel:
    """A (M, K), B (K, N), C (M, N): grid (tiles of columns, tiles of rows)."""
    CONSUMERS, BN, BK, STAGES, _ = config
    FEW, MANY = REGISTERS[CONSUMERS]

    @tk.kernel(warps=(CONSUMERS + 1) * 4)
    def gemm(A: tk.gl(T), B: tk.gl(T), C: tk.gl(T)):
        a = tk.shared(tk.st(T, 64, BK), STAGES, CONSUMERS)
        b = tk.shared(tk.st(T, BK, BN), STAGES)
        full = tk.shared(tk.semaphore, STAGES)
        empty = tk.shared(tk.semaphore, STAGES)
        if warpid() == 0:
            for s in range(STAGES):
                init_semaphore(full[s], 1)  # one arrival, tma.expect's, and the bytes it names
                init_semaphore(empty[s], CONSUMERS * 4)  # one arrival for each consumer warp
        block.sync()  # nobody may use a semaphore before this

        steps = tk.cdiv(A.cols, BK)
        row = blockIdx.y * CONSUMERS  # the first of this block's tiles of 64 rows
        wg = warpgroup.groupid()
        if wg == CONSUMERS:  # the producer: one warp of it gives the orders
            warpgroup.decrease_registers(FEW)  # the consumers need them
            if warpgroup.warpid() == 0:
                for k in range(steps):
                    s = k % STAGES
                    wait(empty[s], (k // STAGES + 1) % 2)  # passes at once in the first lap
                    tma.expect(full[s], a[s], b[s])
                    for m in range(CONSUMERS):
                        tma.load_async(a[s, m], A, (row + m, k), full[s])
                    tma.load_async(b[s], B, (k, blockIdx.x), full[s])
        else:  # a consumer: 64 rows of C, 16 for each of its warps
            warpgroup.increase_registers(MANY)
            acc = tk.rt(tk.f32, 16, BN)
            warp.zero(acc)
            for k in range(steps):
                s = k % STAGES
                wait(full[s], k // STAGES % 2)
                warpgroup.mma_AB(acc, a[s, wg], b[s])
                warpgroup.mma_async_wait()  # the product has read a[s, wg] and b[s]
                arrive(empty[s])
            warpgroup.store(C, acc, (row + wg, blockIdx.x))

    return gemm


@cache
def persistent(T: Any = tk.bf16, config: Config = WIDE) -> tk.Kernel:
    """The same on a grid of any size: block i computes tiles i, i + gridDim.x, ... of C."""
    CONSUMERS, BN, BK, STAGES, GROUP = config
    FEW, MANY = REGISTERS[CONSUMERS]

    @tk.kernel(warps=(CONSUMERS + 1) * 4)
    def gemm(A: tk.gl(T), B: tk.gl(T), C: tk.gl(T)):
        a = tk.shared(tk.st(T, 64, BK), STAGES, CONSUMERS)
        b = tk.shared(tk.st(T, BK, BN), STAGES)
        c = tk.shared(tk.st(T, 64, BN), CONSUMERS)  # on the way out
        full = tk.shared(tk.semaphore, STAGES)
        empty = tk.shared(tk.semaphore, STAGES)
        if warpid() == 0:
            for s in range(STAGES):
                init_semaphore(full[s], 1)
                init_semaphore(empty[s], CONSUMERS * 4)
        block.sync()

        steps = tk.cdiv(A.cols, BK)
        rows = tk.cdiv(C.rows, 64 * CONSUMERS)
        width = GROUP * tk.cdiv(C.cols, BN)  # tiles of a group of GROUP tile rows
        tiles = rows * tk.cdiv(C.cols, BN)
        wg = warpgroup.groupid()
        if wg == CONSUMERS:
            warpgroup.decrease_registers(FEW)
            if warpgroup.warpid() == 0:
                to = tk.ring(STAGES)  # the stage that is filled next, and its phase
                for t in range(blockIdx.x, tiles, gridDim.x):
                    first = t // width * GROUP  # column by column inside a group
                    height = min(rows - first, GROUP)
                    row = (first + t % width % height) * CONSUMERS
                    col = t % width // height
                    for k in range(steps):
                        wait(empty[to.stage], to.phase ^ 1)
                        tma.expect(full[to.stage], a[to.stage], b[to.stage])
                        for m in range(CONSUMERS):
                            tma.load_async(a[to.stage, m], A, (row + m, k), full[to.stage])
                        tma.load_async(b[to.stage], B, (k, col), full[to.stage])
                        to.advance()
        else:
            warpgroup.increase_registers(MANY)
            acc = tk.rt(tk.f32, 16, BN)
            at = tk.ring(STAGES)  # the stage that is read next
            done = tk.ring(STAGES)  # the stage that is given back next: one behind
            for t in range(blockIdx.x, tiles, gridDim.x):
                first = t // width * GROUP
                height = min(rows - first, GROUP)
                row = (first + t % width % height) * CONSUMERS
                col = t % width // height
                warp.zero(acc)
                for k in range(steps):
                    wait(full[at.stage], at.phase)
                    warpgroup.mma_AB(acc, a[at.stage, wg], b[at.stage])
                    at.advance()
                    if k > 0:
                        warpgroup.mma_async_wait(1)  # all but the product just issued
                        arrive(empty[done.stage])
                        done.advance()
                warpgroup.mma_async_wait()
                arrive(empty[done.stage])
                done.advance()

                if warpgroup.warpid() == 0:
                    tma.store_async_read_wait()  # the last tile has left c[wg]
                warpgroup.sync(wg + 1)  # this warpgroup only; the others go on
                warpgroup.store(c[wg], acc)
                tma.fence()  # TMA is to see these ordinary stores
                warpgroup.sync(wg + 1)  # of all four warps
                if warpgroup.warpid() == 0:
                    tma.store_async(C, c[wg], (row + wg, col))
            if warpgroup.warpid() == 0:
                tma.store_async_wait()  # c must stay until the last store has read it

    return gemm


def run(
    a: Any,
    b: Any,
    *,
    variant: str = "persistent",
    config: Config | None = None,
    blocks: int | None = None,
    out: Any = None,
    report: bool = False,
    **options: Any,
) -> Any:
    """a (M, K) @ b (K, N) in bf16 or f16, summed in f32, rounded once to their dtype; sm_90a.

    `variant`: persistent or simple. `config`: the tiles, by `choose` unless given. `blocks` of the
    persistent kernel: one for each multiprocessor unless given. Rows of a and b start at multiples
    of 16 bytes: K and N are multiples of 8, or the arrays are views of wider ones; for persistent N
    is a multiple of 8. Error TK410 otherwise.
    """
    x = look(a, "a", 2, HALVES)
    y = look(b, "b", 2, (x.dtype,))
    (m, k), (k2, n) = x.shape, y.shape
    fit(k == k2, f"a is {x.shape} and b is {y.shape}: the inner sizes {k} and {k2} differ")
    fit(variant in ("persistent", "simple"), f"no variant {variant!r}", "persistent or simple")
    fit(k > 0 or m * n == 0, "the inner size is 0: the product is zeros, and TMA copies no array")
    if variant == "persistent":
        blocks = multiprocessors(x) if blocks is None else blocks
        if config is None:
            unknown = any(map(traced, (m, n, k)))
            config = WIDE if unknown else choose(m, n, k, max(blocks, 1))
    config = config or Config()
    fit(config.CONSUMERS in REGISTERS, f"{config.CONSUMERS} consumers", "2 or 3")
    fit(config.STAGES > 1 or variant == "simple", "a persistent kernel of one stage", "2 or more")
    out = output(out, a, (m, n))
    for_tma(x, y)
    if variant == "simple":
        grid: Any = cdiv(n, config.BN), cdiv(m, 64 * config.CONSUMERS)
        kernel = simple(x.dtype, config)
    else:
        for_tma(stored=look(out, "out", 2, (x.dtype,)))
        tiles = cdiv(n, config.BN) * cdiv(m, 64 * config.CONSUMERS)
        grid = min(tiles, blocks or 1)
        kernel = persistent(x.dtype, config)
    told = launch(kernel, grid, a, b, out, options=options)
    return (out, told) if report else out
