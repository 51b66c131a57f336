"""softmax(Q K^T / sqrt(D)) V with the softmax beside the products: sm_90a (H100, H200) only.

The mathematics is that of attention.py: blocks of keys, a running maximum and sum for each query.
What differs is who works when. A producer warp brings Q once and then K and V, block by block, by
TMA into rings of STAGES places. Each consumer warpgroup has 64 queries, and issues

    S = Q K^T    of block j    and then at once    O += P V    of block j - 1

so that the tensor cores multiply P V while the warps take exponentials of S: neither waits for the
other. K and V have semaphores of their own, because V is needed a block later; one semaphore
`empty` gives back both, when V has been read.

Any number of queries and keys: TMA fills with zeros past the end of an array; keys that do not
exist are masked, and rows that do not exist are not stored.

After FlashAttention-3 (Shah et al., 2024: roles, and softmax in the shadow of the products) and
ThunderKittens' mha_h100 (how the work is divided, Q's tile used again for O).
"""

from functools import cache
from typing import Any

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
from tklearn.kernels.attention import LOG2E, reference
from tklearn.tensor import traced

__all__ = ["consumers", "make", "persistent", "plan", "reference", "run"]

HALVES = (tk.bf16, tk.f16)
NEG_INF = float("-inf")
KEYS = 128  # of a block
SHORT = 2048  # queries: up to here the beginning and end of a block count
IN_L2 = 1 << 22  # elements of K that stay in the L2 cache, with as many of V: 16 MB of bf16


def consumers(D: int) -> int:
    """Warpgroups that compute: as many as registers have room for."""
    return 3 if D == 64 else 2


@cache
def make(
    T: Any = tk.bf16, D: int = 64, CAUSAL: bool = False, STAGES: int = 2, GROUPS: int = 0
) -> tk.Kernel:
    """Q, Y (B, H, N, D), K, V (B, H, M, D): grid (N / (64 * GROUPS), H, B).

    GROUPS: warpgroups that compute, consumers(D) unless given.
    `scale` multiplies the scores, which are then powers of 2: LOG2E / sqrt(D).
    """
    WG = GROUPS or consumers(D)
    FEWER, REGISTERS = (32, 160) if WG == 3 else (24, 240)  # of a lane: 512 and 504 in total
    # The compiler puts the wait for P V before the exponentials, unless a wait for the next V
    # stands between them. Two warpgroups need that: exponentials beside one's own P V. With three
    # the others' products run beside them, and to give V back early is worth more (measured).
    BESIDE = WG == 2

    @tk.kernel(warps=(WG + 1) * 4)
    def attention(Q: tk.gl(T), K: tk.gl(T), V: tk.gl(T), Y: tk.gl(T), scale: tk.f32):
        q = tk.shared(tk.st(T, 64, D), WG)  # used again for the output
        k = tk.shared(tk.st(T, KEYS, D), STAGES)
        v = tk.shared(tk.st(T, KEYS, D), STAGES)
        q_here = tk.shared(tk.semaphore)
        k_full = tk.shared(tk.semaphore, STAGES)
        v_full = tk.shared(tk.semaphore, STAGES)
        empty = tk.shared(tk.semaphore, STAGES)
        if warpid() == 0:
            init_semaphore(q_here, 1)
            for s in range(STAGES):
                init_semaphore(k_full[s], 1)
                init_semaphore(v_full[s], 1)
                init_semaphore(empty[s], WG * 4)
        block.sync()

        b, h = blockIdx.z, blockIdx.y
        # The first of this block's tiles of 64 queries: those with most keys to see start first.
        row = (gridDim.x - 1 - blockIdx.x if CAUSAL else blockIdx.x) * WG
        blocks = tk.cdiv(K.rows, KEYS)
        if CAUSAL:  # later keys are hidden from all queries of this block
            blocks = min(blocks, tk.cdiv((row + WG) * 64, KEYS))
        wg = warpgroup.groupid()
        if wg == WG:  # the producer
            warpgroup.decrease_registers(FEWER)
            if warpgroup.warpid() == 0:
                tma.expect(q_here, q)
                for i in range(WG):
                    tma.load_async(q[i], Q, (b, h, row + i, 0), q_here)
                to = tk.ring(STAGES)
                for j in range(blocks):
                    wait(empty[to.stage], to.phase ^ 1)
                    tma.expect(k_full[to.stage], k[to.stage])
                    tma.load_async(k[to.stage], K, (b, h, j, 0), k_full[to.stage])
                    tma.expect(v_full[to.stage], v[to.stage])
                    tma.load_async(v[to.stage], V, (b, h, j, 0), v_full[to.stage])
                    to.advance()
        else:  # a consumer: 64 queries, 16 for each of its warps
            warpgroup.increase_registers(REGISTERS)
            att = tk.rt(tk.f32, 16, KEYS)  # scores, then their exponentials
            p = tk.rt(T, 16, KEYS)  # the same for the tensor cores
            o = tk.rt(tk.f32, 16, D)
            top = tk.col_vec(16)  # of each query's scores so far
            total = tk.col_vec(16)
            warp.zero(o)
            warp.zero(total)
            warp.neg_infty(top)
            mine = (row + wg) * 64  # the first query of this warpgroup
            here = tk.ring(STAGES)  # where K and V of this block are
            last = tk.ring(STAGES)  # where V of the block before it is

            wait(q_here, 0)
            wait(k_full[here.stage], here.phase)
            warpgroup.mm_ABt(att, q[wg], k[here.stage])
            warpgroup.mma_async_wait()
            if KEYS > K.rows:
                warp.right_fill(att, K.rows, NEG_INF)
            if CAUSAL:
                if KEYS > mine:
                    warpgroup.tril(att, mine, NEG_INF)
            top = tk.row_max(att, top)
            att = tk.exp2(att * scale - top * scale)
            total = tk.row_sum(att, total)
            warp.copy(p, att)
            if BESIDE:
                wait(v_full[here.stage], here.phase)
            here.advance()

            for j in range(1, blocks):
                wait(k_full[here.stage], here.phase)
                warpgroup.mm_ABt(att, q[wg], k[here.stage])  # the next scores ...
                if not BESIDE:
                    wait(v_full[last.stage], last.phase)
                warpgroup.mma_AB(o, p, v[last.stage])  # ... and the last block's P V
                warpgroup.mma_async_wait(1)  # the scores are there; P V may still run
                if (j + 1) * KEYS > K.rows:
                    warp.right_fill(att, K.rows - j * KEYS, NEG_INF)
                if CAUSAL:
                    if (j + 1) * KEYS > mine:
                        warpgroup.tril(att, mine - j * KEYS, NEG_INF)
                before = top * scale
                top = tk.row_max(att, top)
                now = top * scale
                att = tk.exp2(att * scale - now)
                keep = tk.exp2(before - now)
                total = tk.row_sum(att, total * keep)
                if BESIDE:  # V of this block, for the next turn
                    wait(v_full[here.stage], here.phase)
                here.advance()
                warpgroup.mma_async_wait()  # P V is done: o, p and v are free
                arrive(empty[last.stage])
                last.advance()
                o *= keep
                warp.copy(p, att)

            if not BESIDE:
                wait(v_full[last.stage], last.phase)
            warpgroup.mma_AB(o, p, v[last.stage])
            warpgroup.mma_async_wait()
            o *= 1.0 / total  # one division for each query
            warpgroup.store(q[wg], o)  # this warpgroup has read its queries for the last time
            tma.fence()  # TMA is to see these ordinary stores
            warpgroup.sync(wg + 1)  # of all four warps
            if warpgroup.warpid() == 0:
                tma.store_async(Y, q[wg], (b, h, row + wg, 0))
                tma.store_async_wait()

    return attention


@cache
def persistent(
    T: Any = tk.bf16, D: int = 64, CAUSAL: bool = False, STAGES: int = 2, GROUPS: int = 0
) -> tk.Kernel:
    """The same on a grid of any size: block i computes tiles i, i + gridDim.x, ...

    The next tile's queries and keys are on their way while this one is finished, and results leave
    through a tile of their own. Tiles are taken in sections of as many heads as L2 keeps K and V
    of, in a section those with the most keys first.
    """
    WG = GROUPS or consumers(D)
    FEWER, REGISTERS = (32, 160) if WG == 3 else (24, 240)

    @tk.kernel(warps=(WG + 1) * 4)
    def attention(Q: tk.gl(T), K: tk.gl(T), V: tk.gl(T), Y: tk.gl(T), scale: tk.f32):
        q = tk.shared(tk.st(T, 64, D), WG)
        y = tk.shared(tk.st(T, 64, D), WG)  # on the way out
        k = tk.shared(tk.st(T, KEYS, D), STAGES)
        v = tk.shared(tk.st(T, KEYS, D), STAGES)
        q_full = tk.shared(tk.semaphore, WG)
        q_empty = tk.shared(tk.semaphore, WG)
        k_full = tk.shared(tk.semaphore, STAGES)
        v_full = tk.shared(tk.semaphore, STAGES)
        empty = tk.shared(tk.semaphore, STAGES)
        if warpid() == 0:
            for i in range(WG):
                init_semaphore(q_full[i], 1)
                init_semaphore(q_empty[i], 4)
            for s in range(STAGES):
                init_semaphore(k_full[s], 1)
                init_semaphore(v_full[s], 1)
                init_semaphore(empty[s], WG * 4)
        block.sync()

        rows = tk.cdiv(Q.rows, 64 * WG)  # tiles of one head
        heads = Q.batch * Q.depth
        section = max(1, min(heads, IN_L2 // (K.rows * D)))  # heads
        wg = warpgroup.groupid()
        if wg == WG:  # the producer
            warpgroup.decrease_registers(FEWER)
            if warpgroup.warpid() == 0:
                to = tk.ring(STAGES)
                tile = tk.ring(1)  # Q has one place: its phase is that of this tile
                for t in range(blockIdx.x, rows * heads, gridDim.x):
                    first = t // (section * rows) * section
                    width = min(section, heads - first)
                    head = first + t % (section * rows) % width
                    row = (rows - 1 - t % (section * rows) // width) * WG
                    b = head // Q.depth
                    h = head % Q.depth
                    blocks = tk.cdiv(K.rows, KEYS)
                    if CAUSAL:
                        blocks = min(blocks, tk.cdiv((row + WG) * 64, KEYS))
                    for i in range(WG):
                        wait(q_empty[i], tile.phase ^ 1)
                        tma.expect(q_full[i], q[i])
                        tma.load_async(q[i], Q, (b, h, row + i, 0), q_full[i])
                    tile.advance()
                    for j in range(blocks):
                        wait(empty[to.stage], to.phase ^ 1)
                        tma.expect(k_full[to.stage], k[to.stage])
                        tma.load_async(k[to.stage], K, (b, h, j, 0), k_full[to.stage])
                        tma.expect(v_full[to.stage], v[to.stage])
                        tma.load_async(v[to.stage], V, (b, h, j, 0), v_full[to.stage])
                        to.advance()
        else:  # a consumer
            warpgroup.increase_registers(REGISTERS)
            att = tk.rt(tk.f32, 16, KEYS)
            p = tk.rt(T, 16, KEYS)
            o = tk.rt(tk.f32, 16, D)
            top = tk.col_vec(16)
            total = tk.col_vec(16)
            here = tk.ring(STAGES)
            last = tk.ring(STAGES)
            tile = tk.ring(1)
            for t in range(blockIdx.x, rows * heads, gridDim.x):
                first = t // (section * rows) * section
                width = min(section, heads - first)
                head = first + t % (section * rows) % width
                row = (rows - 1 - t % (section * rows) // width) * WG
                blocks = tk.cdiv(K.rows, KEYS)
                if CAUSAL:
                    blocks = min(blocks, tk.cdiv((row + WG) * 64, KEYS))
                mine = (row + wg) * 64
                warp.zero(o)
                warp.zero(total)
                warp.neg_infty(top)

                wait(q_full[wg], tile.phase)
                tile.advance()
                wait(k_full[here.stage], here.phase)
                warpgroup.mm_ABt(att, q[wg], k[here.stage])
                warpgroup.mma_async_wait()
                if KEYS > K.rows:
                    warp.right_fill(att, K.rows, NEG_INF)
                if CAUSAL:
                    if KEYS > mine:
                        warpgroup.tril(att, mine, NEG_INF)
                top = tk.row_max(att, top)
                att = tk.exp2(att * scale - top * scale)
                total = tk.row_sum(att, total)
                warp.copy(p, att)
                wait(v_full[here.stage], here.phase)
                here.advance()

                for j in range(1, blocks):
                    wait(k_full[here.stage], here.phase)
                    warpgroup.mm_ABt(att, q[wg], k[here.stage])
                    warpgroup.mma_AB(o, p, v[last.stage])
                    warpgroup.mma_async_wait(1)
                    if (j + 1) * KEYS > K.rows:
                        warp.right_fill(att, K.rows - j * KEYS, NEG_INF)
                    if CAUSAL:
                        if (j + 1) * KEYS > mine:
                            warpgroup.tril(att, mine - j * KEYS, NEG_INF)
                    before = top * scale
                    top = tk.row_max(att, top)
                    now = top * scale
                    att = tk.exp2(att * scale - now)
                    keep = tk.exp2(before - now)
                    total = tk.row_sum(att, total * keep)
                    wait(v_full[here.stage], here.phase)  # before the wait for P V: see make
                    here.advance()
                    warpgroup.mma_async_wait()
                    arrive(empty[last.stage])
                    last.advance()
                    o *= keep
                    warp.copy(p, att)

                arrive(q_empty[wg])  # all scores of this tile are made
                warpgroup.mma_AB(o, p, v[last.stage])
                warpgroup.mma_async_wait()
                arrive(empty[last.stage])
                last.advance()
                o *= 1.0 / total  # one division for each query
                if warpgroup.warpid() == 0:
                    tma.store_async_read_wait()  # the last tile has left y[wg]
                warpgroup.sync(wg + 1)
                warpgroup.store(y[wg], o)
                tma.fence()
                warpgroup.sync(wg + 1)
                if warpgroup.warpid() == 0:
                    tma.store_async(Y, y[wg], (head // Q.depth, head % Q.depth, row + wg, 0))
            if warpgroup.warpid() == 0:
                tma.store_async_wait()

    return attention


PLANS: dict[str, dict[str, Any]] = {
    "2 stages": {"variant": "simple", "stages": 2},
    "3 stages": {"variant": "simple", "stages": 3},
    "persistent, 3 groups": {"variant": "persistent", "groups": 3, "stages": 3},
    "persistent, 2 groups": {"variant": "persistent", "groups": 2},
    "2 groups": {"variant": "simple", "groups": 2},
}
"""Options of `plan` that a benchmark compares with the usual ones."""


def plan(
    T: Any,
    shape: tuple[int, int, int, int],
    causal: bool,
    variant: str | None = None,
    stages: int | None = None,
    blocks: int = 132,
    groups: int = 0,
) -> tuple[tk.Kernel, Any]:
    """A kernel and its grid for q of a shape; `blocks`: multiprocessors, for the persistent one.

    What is not given is as an H200 likes it: short sequences of D = 64 in a persistent kernel of
    two computing warpgroups, 3 stages where two compute and 2 where three do.
    """
    batch, heads, n, d = shape
    if variant is None:
        variant = "persistent" if d == 64 and n <= SHORT else "simple"
    groups = groups or (2 if variant == "persistent" else consumers(d))
    stages = stages or (2 if groups == 3 or (variant == "persistent" and d == 128) else 3)
    tiles = cdiv(n, 64 * groups)
    if variant == "simple":
        return make(T, d, causal, stages, groups), (tiles, heads, batch)
    return persistent(T, d, causal, stages, groups), min(tiles * heads * batch, blocks)


def run(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = False,
    scale: float | None = None,
    variant: str | None = None,
    stages: int | None = None,
    out: Any = None,
    report: bool = False,
    **options: Any,
) -> Any:
    """Attention of q (B, H, N, D) over k and v (B, H, M, D) in bf16 or f16, summed in f32; sm_90a.

    `causal`: query i sees keys 0 to i, and M must be N. `scale` of the scores: 1 / sqrt(D)
    unless given. `variant`: simple or persistent, by `plan` unless given. D is 64 or 128; outer
    strides are multiples of 16 bytes (error TK410).
    """
    x = look(q, "q", 4, HALVES)
    y, z = (look(a, name, 4, (x.dtype,)) for a, name in ((k, "k"), (v, "v")))
    (batch, heads, n, d), m = x.shape, y.shape[2]
    fit(d in (64, 128), f"heads of {d} are not possible: D is 64 or 128")
    fit(
        y.shape == z.shape == (batch, heads, m, d),
        f"q is {x.shape}, but k is {y.shape} and v is {z.shape}",
        "k and v have the batch, heads and D of q, and one length",
    )
    fit(not causal or m == n, f"causal attention of {n} queries over {m} keys", "M must be N")
    fit(m > 0 or n == 0, "there are no keys")
    fit(
        variant in (None, "persistent", "simple"), f"no variant {variant!r}", "persistent or simple"
    )
    fit(
        stages is None or stages >= 2,
        f"{stages} stages",
        "2 or more: one block's V is held for the next one's K",
    )
    fit(scale is None or scale > 0, f"a scale of {scale}: the largest score is sought before it")
    out = output(out, q, x.shape)
    for_tma(x, y, z, look(out, "out", 4, (x.dtype,)))
    d = 64 if d == 64 else 128  # a number, also while torch is tracing
    factor = LOG2E * (d**-0.5 if scale is None else scale)
    if variant is None and (x.device == "cpu" or traced(n)):
        variant = "simple"  # which the simulator runs faster
    shape = (batch, heads, n, d)
    kernel, grid = plan(x.dtype, shape, bool(causal), variant, stages, multiprocessors(x))
    told = launch(kernel, grid, q, k, v, out, factor, options=options)
    return (out, told) if report else out
