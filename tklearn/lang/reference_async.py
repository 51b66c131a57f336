# ruff: noqa: E501  the lines of a page are as long as the page wants them
"""The part of docs/language.md about asynchrony: prose, and the headings of its operations."""

from __future__ import annotations

from collections.abc import Callable

from tklearn.lang.table import Op

ASYNCHRONY = """
From here on a statement may only *start* something: a copy by the copy engine (TMA), a product by the
tensor cores of a warpgroup. The warp goes on, and has to wait at the right place before it touches what
is under way. The simulator checks each of these places; a forgotten one is an error with both lines.

```python
@tk.kernel(warps=8)                                    # two warpgroups: consumer and producer
def gemm(A: tk.gl_bf, B: tk.gl_bf, C: tk.gl_bf):
    a = tk.shared(tk.st_bf(64, 64), 4)                 # a ring of 4 stages
    b = tk.shared(tk.st_bf(64, 128), 4)
    full = tk.shared(tk.semaphore, 4)
    empty = tk.shared(tk.semaphore, 4)
    if warpid() == 0:
        for s in range(4):
            init_semaphore(full[s], 1)                 # one arrival: tma.expect
            init_semaphore(empty[s], 4)                # the four warps of the consumer
    block.sync()
    if warpgroup.groupid() == 1:                       # producer
        warpgroup.decrease_registers(40)
        r = tk.ring(4)
        if warpgroup.warpid() == 0:
            for k in range(A.cols // 64):
                wait(empty[r.stage], r.phase ^ 1)
                tma.expect(full[r.stage], a[r.stage], b[r.stage])
                tma.load_async(a[r.stage], A, (blockIdx.y, k), full[r.stage])
                tma.load_async(b[r.stage], B, (k, blockIdx.x), full[r.stage])
                r.advance()
    else:                                              # consumer
        warpgroup.increase_registers(232)
        r = tk.ring(4)
        acc = tk.rt_fl(16, 128)                        # 64 x 128 for the warpgroup, 16 rows a warp
        warp.zero(acc)
        for k in range(A.cols // 64):
            wait(full[r.stage], r.phase)
            warpgroup.mma_AB(acc, a[r.stage], b[r.stage])
            warpgroup.mma_async_wait()
            arrive(empty[r.stage])
            r.advance()
        warpgroup.store(C, acc, (blockIdx.y, blockIdx.x))
```

### Semaphores and phases

A semaphore (CUDA: mbarrier) lives in shared memory and counts. `init_semaphore(s, 2)` says that a phase
of it ends when two arrivals have come; the next phase begins at once, with the same count. Phases are
numbered 0, 1, 2, ...; a semaphore knows only the parity of the one that is running. `wait(s, p)` waits
until the running phase has another parity than p: so `wait(s, 0)` waits for the end of phase 0 (or 2,
or 4), and on a fresh semaphore `wait(s, 1)` passes at once, as if a phase before the first had ended.

Two semaphores make a stage of a ring safe. `full` ends a phase when data has come, `empty` when it was
read. The consumer waits for lap n of `full` with parity n % 2. The producer waits for `empty` with the
other parity, (n + 1) % 2: in lap 0 that passes, since nobody has anything to free yet. A semaphore may
not run two phases ahead of who waits for it; that is what the other semaphore of the pair is for.

`tk.ring(n)` does this counting: `r.stage` runs from 0 to n - 1, `r.phase` changes with each lap,
`r.advance()` takes one step. Each warp has its own; producers and consumers each declare one.

`arrive(s)` counts once for the whole warp, not once a lane, and what its lanes did before is visible to
whoever waits. Whoever initialises semaphores needs a `block.sync()` before others use them.

### TMA

`tma.load_async(tile, array, coord, s)` gives the copy engine one order: a whole tile, swizzle included,
edges filled with zeros. One warp gives it, once. When the data is there, its bytes count on the
semaphore `s`. So that the phase does not end before, `tma.expect(s, tile, ...)` comes first: it arrives,
and adds the bytes of the tiles named to what the phase waits for. Bytes that were not expected, or never
come, are an error of the simulator and a hang on the GPU.

`tma.store_async(array, tile, coord)` copies the other way and uses no semaphore: each store is a group.
`tma.store_async_read_wait(n)` waits until all but the newest n have read their tiles (which may be
written again), `tma.store_async_wait(n)` until they have reached global memory. Only the warp that
started them can wait for them.

TMA and tensor cores of a warpgroup reach shared memory on a path of their own. What a warp has written
there by ordinary stores (`warp.store`, `warpgroup.store`, `s[i, j] = x`) they see only after
`tma.fence()` by the writers, followed by a barrier. The other direction needs no fence: after `wait` the
data is there for all.

Limits: the tile has the array's dtype and no padding; sides of at most 256 elements (along a row as many
as the tile has, where it is swizzled); vectors of at most 256 elements and a multiple of 16 bytes. The
array's outer strides are multiples of 16 bytes. A store writes 16 bytes at a time, even past the end of a
row (measured on an H200), so the rows of an array that TMA stores to are multiples of 16 bytes too: both
machines refuse others. A load takes what is there and no more.

### Products of a warpgroup

A warpgroup is 4 warps, beginning at a multiple of 4. `warpgroup.mma_AB(acc, a, b)` starts `acc += a b`
for 64 rows; each warp holds 16 of them, so `acc` is `tk.rt_fl(16, N)` with N up to 256. `mm_AB` starts
`acc = a b` and needs no zeros before. B, and as a rule A, are shared tiles, read by the tensor cores
themselves: swizzled, without padding. A may also be 16 rows a warp in registers, in 16-bit types.

All four warps make the call together; under a condition that differs between them it is an error
("an incomplete warpgroup"). `warpgroup.groupid()` is the same in all four, so roles are plain `if`s.

Each call is a group. `warpgroup.mma_async_wait(n)` waits until all but the newest n groups are complete.
Before that, nothing may touch the accumulator or A in registers, and nothing may write the shared tiles:
an `arrive` that frees a stage stands after the wait. The newest groups may go on while the warps
compute something else, which is how softmax hides behind the second product of attention.

The order of what does not depend on each other is the compiler's, and it likes to put a wait first, before
arithmetic that could have run beside the product. A wait for a semaphore between the two keeps them in
order: attention_hopper asks there for the next V.

`fence=False` and `commit=False` leave out what each call otherwise begins and ends with, for several
products in one group.

### Named barriers

`block.sync()` is for all threads of the block and stands where all of them come. Parts of a block meet
at barriers 1 to 15: `warpgroup.sync(id)` for the 128 threads of a warpgroup, `block.sync(id, threads)`
for any number of warps. `block.arrive(id, threads)` counts as having come, without waiting: the reader
syncs, the writer arrives. All calls that meet at one barrier name the same number of threads.

A barrier may be used again as soon as it has let its threads through. Two groups that may be at a
barrier at the same time need two numbers: `warpgroup.sync(warpgroup.groupid() + 1)`.

### Registers for roles

A block's registers are shared out evenly at its start. A producer needs few and a consumer many, so
`warpgroup.decrease_registers(n)` gives some back and `warpgroup.increase_registers(n)` takes them: n is
a multiple of 8 from 24 to 256, all four warps call it, and what is taken must have been given: 384 threads
start with 168 each, so three warpgroups may hold 504 in all (measured on an H200). Where more is asked for
by `if`s on the warpgroup's number alone, the launch on a GPU is refused; the simulator finds all of them
deadlocked.
"""

ASYNC_GROUPS: list[tuple[str, str, Callable[[Op], bool]]] = [
    (
        "Semaphores",
        "`sem` is a `tk.shared(tk.semaphore)`, or one of an array of them. They act once a warp.",
        lambda o: o.effect in ("sem", "wait") and not o.name.startswith("tma."),
    ),
    (
        "TMA",
        "They act once a warp; `coord` counts tiles, as in other loads.",
        lambda o: o.name.startswith("tma."),
    ),
    (
        "Products of a warpgroup",
        "`acc` is (16, N) a warp, f32, or f16 for f16 inputs; `a` a shared tile of 64 rows or (16, K) "
        "a warp in registers; `b` a shared tile. 16-bit types in each way; f32 (as tf32) and fp8 only "
        "as ABt.",
        lambda o: o.effect in ("wgmma", "wgmma_group"),
    ),
    (
        "Registers",
        "For all four warps of a warpgroup.",
        lambda o: o.effect == "registers",
    ),
]
