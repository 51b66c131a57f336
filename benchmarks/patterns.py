"""Kernels whose counters are measured: the gallery's, and generated access patterns.

`gallery()` and `generated()` yield `Case`s: a kernel, a grid of at most one block for each SM (the
profiler's shared-memory counters are exact only then, FACTS.md 1) and its arguments. The patterns
were generated after the model was frozen: the seed and the order of draws below are never changed,
because recordings in tests/data/ are compared with what they make. `random.Random` draws the same
numbers with every version of Python.

This file knows kernels and NumPy; counters.py measures, tests/test_counters.py compares.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

import tklearn as tk
from tklearn import block, blockIdx, laneid, threadIdx, warp, warpid
from tklearn.kernels import gemm, layernorm, reduction, rotary, saxpy, softmax, transpose
from tklearn.lang import ir
from tklearn.tensor import NUMPY_DTYPES

SEED = 20261130


@dataclass(frozen=True)
class Case:
    """One launch. `args()` makes fresh arguments, the same each time; `about` says what it does."""

    name: str
    kernel: tk.Kernel
    grid: tuple[int, int, int]
    args: Callable[[], list[Any]]
    consts: dict[str, Any] = field(default_factory=dict)
    about: str = ""

    def spec(self, args: list[Any]) -> ir.Kernel:
        return self.kernel.ir(*args, **self.consts)


def filled(shape: Any, dtype: Any = tk.f32) -> np.ndarray:
    """0, 1, ... 7, 0, ... in a dtype: values that every format holds exactly."""
    n = int(np.prod(shape))
    return (np.arange(n) % 8).astype(np.float32).astype(NUMPY_DTYPES[dtype.name]).reshape(shape)


def view(shape: tuple[int, ...], dtype: Any, extra: int, shift: int) -> np.ndarray:
    """An array whose rows are `extra` elements longer than it shows and which starts at `shift`."""
    rows, cols = int(np.prod(shape[:-1])), shape[-1]
    flat = filled((rows * (cols + extra) + shift,), dtype)
    return flat[shift:].reshape(*shape[:-1], cols + extra)[..., :cols]


# ------------------------------------------------------------------------------------ the gallery
def gallery() -> Iterator[Case]:
    """Multi-block launches of the gallery's kernels, in round and odd sizes."""
    f32, f16, bf16 = tk.f32, tk.f16, tk.bf16
    for variant, make in transpose.VARIANTS.items():
        for r, c in ((256, 128), (97, 65)):
            yield Case(
                f"transpose {variant} {r}x{c}",
                make(f32),
                (-(-c // 32), -(-r // 32), 1),
                lambda r=r, c=c: [filled((r, c)), filled((c, r))],
            )
    yield Case(
        "transpose swizzled bf16 96x160",
        transpose.swizzled(bf16),
        (5, 3, 1),
        lambda: [filled((96, 160), bf16), filled((160, 96), bf16)],
    )
    for n in (32768, 5003):
        yield Case(
            f"saxpy {n}",
            saxpy.saxpy,
            (-(-n // 256), 1, 1),
            lambda n=n: [n, 2.0, filled((n,)), filled((n,))],
        )
        blocks = -(-n // reduction.SHARE)
        yield Case(
            f"reduction staged {n}",
            reduction.staged(f32),
            (blocks, 1, 1),
            lambda n=n, b=blocks: [n, filled((n,)), filled((b,))],
        )
        yield Case(
            f"reduction atomic {n}",
            reduction.atomic(bf16),
            (blocks, 1, 1),
            lambda n=n: [n, filled((n,), bf16), np.zeros(1, np.float32)],
        )
    for T in (f32, bf16):
        for rows, cols in ((64, 1024), (37, 333)):
            yield Case(
                f"softmax short {T.name} {rows}x{cols}",
                softmax.short(T),
                (-(-rows // 2), 1, 1),
                lambda T=T, s=(rows, cols): [filled(s, T), filled(s, T)],
                {"D": cols},
            )
        yield Case(
            f"softmax long {T.name} 5x4500",
            softmax.long(T),
            (5, 1, 1),
            lambda T=T: [filled((5, 4500), T), filled((5, 4500), T)],
        )
        for rows, cols in ((64, 512), (21, 200)):
            yield Case(
                f"layernorm {T.name} {rows}x{cols}",
                layernorm.short(T),
                (rows, 1, 1),
                lambda T=T, s=(rows, cols): [
                    filled(s, T), filled(s, T), filled(s[1:], T), filled(s[1:], T),
                    filled(s, T), filled(s, T),
                ],
                {"D": cols},
            )  # fmt: skip
    for T, d, rows in ((bf16, 64, 128), (bf16, 128, 100), (f32, 64, 33)):
        w = 16 // T.itemsize
        yield Case(
            f"rotary {T.name} d={d} {rows} rows",
            rotary.make(T),
            (-(-rows * (d // 2 // w) // rotary.THREADS), 2, 2),
            lambda T=T, d=d, r=rows: [
                filled((2, 6, r, d), T), filled((r, d // 2), T), filled((r, d // 2), T),
                filled((2, 6, r, d), T),
            ],
            {"D": d, "W": w},
        )  # fmt: skip
    for T, config, (m, n, k) in (
        (bf16, gemm.SMALL, (256, 256, 256)),
        (f16, gemm.SMALL, (100, 200, 72)),
        (bf16, gemm.SMALL, (65, 70, 33)),
        (bf16, gemm.BIG, (512, 512, 256)),
        (f16, gemm.BIG, (200, 136, 96)),
    ):
        name = "big" if config == gemm.BIG else "small"
        yield Case(
            f"gemm {name} {T.name} {m}x{n}x{k}",
            gemm.make(T, config),
            (-(-m // config.BM) * -(-n // config.BN), 1, 1),
            lambda T=T, m=m, n=n, k=k: [filled((m, k), T), filled((k, n), T), filled((m, n), T)],
        )


# ------------------------------------------------------------------ generated: lanes, global memory
def strided(T: Any, N: int, reads: tuple[int, int], writes: tuple[int, int], mask: tuple[int, int]):
    """Thread i copies group i * SR + OR to group i * SW + OW, if i % M < K."""
    (SR, OR), (SW, OW), (M, K) = reads, writes, mask

    @tk.kernel(threads=64)
    def strided_1(x: tk.gl(T), y: tk.gl(T)):
        i = blockIdx.x * 64 + threadIdx.x
        if i % M < K:
            y[i * SW + OW] = x[i * SR + OR]

    @tk.kernel(threads=64)
    def strided_n(x: tk.gl(T), y: tk.gl(T)):
        i = blockIdx.x * 64 + threadIdx.x
        if i % M < K:
            tk.vec(y, N)[i * SW + OW] = tk.vec(x, N)[i * SR + OR]

    return strided_1 if N == 1 else strided_n


def _strided(r: random.Random, T: Any, N: int) -> Case:
    reads, writes = (r.randrange(0, 12), r.randrange(0, 20)), (r.randrange(1, 9), r.randrange(0, 9))
    m = r.randrange(1, 9)
    mask = (m, r.randrange(1, m + 1))
    blocks = r.randrange(1, 5)
    size = [N * ((64 * blocks - 1) * s + o + 1) for s, o in (reads, writes)]
    shift = r.choice((0, 0, 1, 3)) if N == 1 else 0
    return Case(
        f"strided {T.name} x{N}",
        strided(T, N, reads, writes, mask),
        (blocks, 1, 1),
        lambda: [view((size[0],), T, 0, shift), view((size[1],), T, 0, shift)],
        about=f"read {reads}, write {writes}, mask {mask}, {shift} elements into the array",
    )


def gather(T: Any, N: int, scatter: bool):
    """Thread i moves the group that at[i] names; -1: nothing."""

    @tk.kernel(threads=32)
    def gather(at: tk.gl(tk.i32), x: tk.gl(T), y: tk.gl(T)):
        i = blockIdx.x * 32 + threadIdx.x
        k = at[i]
        if k >= 0:
            tk.vec(y, N)[i] = tk.vec(x, N)[k]

    @tk.kernel(threads=32)
    def scatter_to(at: tk.gl(tk.i32), x: tk.gl(T), y: tk.gl(T)):
        i = blockIdx.x * 32 + threadIdx.x
        k = at[i]
        if k >= 0:
            tk.vec(y, N)[k] = tk.vec(x, N)[i]

    return scatter_to if scatter else gather


def _places(r: random.Random, n: int, size: int, distinct: bool, idle: float) -> np.ndarray:
    """n random places below `size`, some of them -1."""
    at = r.sample(range(size), n) if distinct else [r.randrange(size) for _ in range(n)]
    return np.array([-1 if r.random() < idle else k for k in at], np.int32)


def _gather(r: random.Random, T: Any, N: int) -> Case:
    out, blocks = r.random() < 0.5, r.randrange(1, 4)
    size = r.choice((64, 200, 1000))
    at = _places(r, 32 * blocks, max(size, 32 * blocks), out, r.choice((0.0, 0.2, 0.6)))
    return Case(
        f"{'scatter' if out else 'gather'} {T.name} x{N}",
        gather(T, N, out),
        (blocks, 1, 1),
        lambda: [at, filled((N * 1000,), T), filled((N * 1000,), T)],
        about=f"{size} groups",
    )


# ------------------------------------------------------------------ generated: lanes, shared memory
def shared_lanes(T: Any, N: int, SIZE: int):
    """Groups go to wr[i] of a shared array and come back from rd[i]; -1: the lane is idle."""

    @tk.kernel(threads=64)
    def shared_lanes(wr: tk.gl(tk.i32), rd: tk.gl(tk.i32), x: tk.gl(T), y: tk.gl(T)):
        s = tk.shared_array(T, SIZE * N)
        for j in range(SIZE * N // 64):
            s[j * 64 + threadIdx.x] = x[j * 64 + threadIdx.x]
        block.sync()
        i = wr[threadIdx.x]
        if i >= 0:
            tk.vec(s, N)[i] = tk.vec(x, N)[threadIdx.x]
        block.sync()
        k = rd[threadIdx.x]
        if k >= 0:
            tk.vec(y, N)[blockIdx.x, threadIdx.x] = tk.vec(s, N)[k]

    @tk.kernel(threads=64)
    def shared_single(wr: tk.gl(tk.i32), rd: tk.gl(tk.i32), x: tk.gl(T), y: tk.gl(T)):
        s = tk.shared_array(T, SIZE)
        for j in range(SIZE // 64):
            s[j * 64 + threadIdx.x] = x[j * 64 + threadIdx.x]
        block.sync()
        i = wr[threadIdx.x]
        if i >= 0:
            s[i] = x[threadIdx.x]
        block.sync()
        k = rd[threadIdx.x]
        if k >= 0:
            y[blockIdx.x, threadIdx.x] = s[k]

    return shared_single if N == 1 else shared_lanes


def _merging(r: random.Random, size: int) -> np.ndarray:
    """Places in which the pairs (i, i ^ 1) or (i, i ^ 2) agree, some lanes idle: the merge rule."""
    x = r.choice((1, 2))
    at = [r.randrange(size) for _ in range(64)]
    at = [at[i & ~x] for i in range(64)]
    spoil = r.choice((0, 0, 1))  # a single pair that does not agree
    at = [-1 if r.random() < 0.2 else k for k in at]
    if spoil:
        at[5] = r.randrange(size)
    return np.array(at, np.int32)


def _shared_lanes(r: random.Random, T: Any, N: int) -> Case:
    size = r.choice((64, 128, 192))
    idle = r.choice((0.0, 0.1, 0.5))
    wr = _places(r, 64, size, True, idle)
    stride, first = r.randrange(1, 34), r.randrange(size)
    regular = np.array([(first + i * stride) % size for i in range(64)], np.int32)
    how = r.choice(("random", "merging", "strided"))
    rd = {"random": _places(r, 64, size, False, idle), "merging": _merging(r, size),
          "strided": regular}[how]  # fmt: skip
    return Case(
        f"shared {T.name} x{N} {how}",
        shared_lanes(T, N, size),
        (r.randrange(1, 4), 1, 1),
        lambda: [wr, rd, filled((N * size,), T), filled((3, N * 64), T)],
        about=f"{size} groups, stride {stride}" if how == "strided" else f"{size} groups",
    )


def matrices(T: Any, R: int, C: int, COUNT: int, TRANS: bool):
    """ldmatrix of COUNT matrices at rows that each lane names."""

    @tk.kernel(threads=32)
    def matrices(row: tk.gl(tk.i32), col: tk.gl(tk.i32), x: tk.gl(T), y: tk.gl(T)):
        s = tk.shared_array(T, R, C)
        for r in range(R):
            for c in range(laneid(), C, 32):
                s[r, c] = x[r, c]
        block.sync()
        a = tk.reg_array(T, 2 * COUNT)
        warp.ldmatrix(a, s[row[laneid()], col[laneid()]], TRANS)
        for e in tk.static_range(2 * COUNT):
            y[blockIdx.x, e * 32 + laneid()] = a[e]

    return matrices


def _matrices(r: random.Random, T: Any, COUNT: int, TRANS: bool) -> Case:
    R, C = 16, 8 * r.randrange(1, 17)
    row = np.array([r.randrange(R) for _ in range(32)], np.int32)
    if r.random() < 0.5:
        row = np.arange(32, dtype=np.int32) % R
    col = np.array([8 * r.randrange(C // 8) for _ in range(32)], np.int32)
    if r.random() < 0.4:
        col[:] = col[0]
    return Case(
        f"ldmatrix x{COUNT}{' trans' if TRANS else ''} {T.name}",
        matrices(T, R, C, COUNT, TRANS),
        (r.randrange(1, 4), 1, 1),
        lambda: [row, col, filled((R, C), T), filled((3, 64 * COUNT), T)],
        about=f"rows of {C} elements",
    )


def atomics(T: Any, SIZE: int, MAX: bool):
    """Every thread adds to (or raises) one element of a shared array."""

    @tk.kernel(threads=64)
    def atomics_add(at: tk.gl(tk.i32), x: tk.gl(T), y: tk.gl(T)):
        s = tk.shared_array(T, SIZE)
        for j in range(SIZE // 64):
            s[j * 64 + threadIdx.x] = x[j * 64 + threadIdx.x]
        block.sync()
        k = at[threadIdx.x]
        if k >= 0:
            tk.atomic_add(s[k], x[threadIdx.x])
        block.sync()
        for j in range(SIZE // 64):
            y[blockIdx.x, j * 64 + threadIdx.x] = s[j * 64 + threadIdx.x]

    @tk.kernel(threads=64)
    def atomics_max(at: tk.gl(tk.i32), x: tk.gl(T), y: tk.gl(T)):
        s = tk.shared_array(T, SIZE)
        for j in range(SIZE // 64):
            s[j * 64 + threadIdx.x] = x[j * 64 + threadIdx.x]
        block.sync()
        k = at[threadIdx.x]
        if k >= 0:
            tk.atomic_max(s[k], x[threadIdx.x])
        block.sync()
        for j in range(SIZE // 64):
            y[blockIdx.x, j * 64 + threadIdx.x] = s[j * 64 + threadIdx.x]

    return atomics_max if MAX else atomics_add


def _atomics(r: random.Random, T: Any) -> Case:
    size = r.choice((64, 128, 1024))
    at = _places(r, 64, r.choice((4, 40, size)) if r.random() < 0.7 else size, False, 0.2)
    top = r.random() < 0.5
    return Case(
        f"atomic {'max' if top else 'add'} {T.name}",
        atomics(T, size, top),
        (2, 1, 1),
        lambda: [at, filled((size,), T), filled((2, size), T)],
    )


# --------------------------------------------------------------------------------- generated: tiles
def direct(S: Any, D: Any, R: int, C: int, lay: Any):
    """A register tile from one array to another."""

    @tk.kernel(warps=2)
    def direct(x: tk.gl(S), y: tk.gl(D)):
        t = tk.rt(tk.f32, R, C, lay)
        warp.load(t, x, (blockIdx.y * 2 + warpid(), blockIdx.x))
        warp.store(y, t, (blockIdx.y * 2 + warpid(), blockIdx.x))

    return direct


def _sides(r: random.Random) -> tuple[int, int, int, int]:
    """rows, cols of an array; elements between its rows; where it starts."""
    rows, cols = r.randrange(1, 100), r.randrange(1, 140)
    return rows, cols, r.choice((0, 0, 1, 2, 4, 8)), r.choice((0, 0, 1, 2, 8))


def _direct(r: random.Random, S: Any, D: Any, lay: Any) -> Case:
    rows, cols, extra, shift = _sides(r)
    if r.random() < 0.4:
        rows, cols, extra, shift = 64, 128, 8 * r.randrange(3), 8 * r.randrange(3)
    R, C = 16 * r.randrange(1, 3), 16 * r.randrange(1, 4)
    return Case(
        f"tile {S.name}->{D.name} {lay.name} {R}x{C}",
        direct(S, D, R, C, lay),
        (-(-cols // C), -(-rows // (2 * R)), 1),
        lambda: [view((rows, cols), S, extra, shift), view((rows, cols), D, extra, shift)],
        about=f"{rows} x {cols}, pitch {cols + extra}, shift {shift}",
    )


def through(S: Any, X: Any, tiles: tuple, sizes: tuple, lay: Any, ASYNC: bool):
    """Global, shared, registers, another shared tile, global. X: dtype of the registers."""
    (sw, pad), (sw2, pad2) = tiles
    R, C, WR, WC = sizes
    A, B = tk.st(S, R, C, sw, pad), tk.st(S, R, C, sw2, pad2)

    @tk.kernel(warps=4)
    def through(x: tk.gl(S), y: tk.gl(S)):
        a = tk.shared(A)
        b = tk.shared(B)
        t = tk.rt(X, WR, WC, lay)
        block.load(a, x, (blockIdx.y, blockIdx.x))
        block.sync()
        for k in range(warpid(), R // WR * (C // WC), 4):
            warp.load(t, a.subtile(WR, WC, (k // (C // WC), k % (C // WC))))
            warp.store(b.subtile(WR, WC, (k // (C // WC), k % (C // WC))), t)
        block.sync()
        block.store(y, b, (blockIdx.y, blockIdx.x))

    @tk.kernel(warps=4)
    def through_async(x: tk.gl(S), y: tk.gl(S)):
        a = tk.shared(A)
        b = tk.shared(B)
        t = tk.rt(X, WR, WC, lay)
        block.load_async(a, x, (blockIdx.y, blockIdx.x))
        tk.commit_group()
        tk.wait_group(0)
        block.sync()
        for k in range(warpid(), R // WR * (C // WC), 4):
            warp.load(t, a.subtile(WR, WC, (k // (C // WC), k % (C // WC))))
            warp.store(b.subtile(WR, WC, (k // (C // WC), k % (C // WC))), t)
        block.sync()
        block.store(y, b, (blockIdx.y, blockIdx.x))

    return through_async if ASYNC else through


def _tile_forms(T: Any, C: int) -> list[tuple[int, int]]:
    """(swizzle, pad) of the shared tiles of C columns."""
    wide = [(w, 0) for w in (128, 64, 32) if C * T.itemsize % w == 0]
    return [*wide, (0, 0), (0, 16 // T.itemsize), (0, 1), (0, 2), (0, 4)]


def _through(r: random.Random, T: Any, lay: Any, ASYNC: bool) -> Case:
    R, C = 16 * r.randrange(1, 5), 16 * r.choice((1, 2, 3, 4, 6, 8))
    WR, WC = 16 * r.choice([k for k in (1, 2) if R // 16 % k == 0]), 16
    if C % 32 == 0 and r.random() < 0.5:
        WC = 32
    forms = (r.choice(_tile_forms(T, C)), r.choice(_tile_forms(T, C)))
    rows, cols, extra, shift = _sides(r)
    if r.random() < 0.5:
        rows, cols, extra, shift = 2 * R, 2 * C, 16 * r.randrange(3), 16 * r.randrange(3)
    return Case(
        f"{'async' if ASYNC else 'shared tile'} {T.name} {lay.name} {R}x{C}",
        through(T, r.choice((T, tk.f32)), forms, (R, C, WR, WC), lay, ASYNC),
        (min(-(-cols // C), 4), min(-(-rows // R), 4), 1),
        lambda: [view((rows, cols), T, extra, shift), view((rows, cols), T, extra, shift)],
        about=f"(swizzle, pad) {forms}, windows {WR}x{WC}, {rows} x {cols}, pitch {cols + extra}, "
        f"shift {shift}",
    )


def permuted(T: Any, R: int, C: int, sw: int, pad: int):
    """One warp copies by cp.async and looks at what came."""
    A = tk.st(T, R, C, sw, pad)

    @tk.kernel(warps=1)
    def permuted(x: tk.gl(T), y: tk.gl(T)):
        a = tk.shared(A)
        warp.load_async(a, x, (blockIdx.y, blockIdx.x))
        tk.commit_group()
        tk.wait_group(0)
        warp.sync()
        warp.store(y, a, (blockIdx.y, blockIdx.x))

    return permuted


def _permuted(r: random.Random, T: Any) -> Case:
    """FACTS.md leaves open what cp.async.cg costs where both sides are permuted or padded."""
    R, C = 16 * r.randrange(1, 3), 16 * r.choice((1, 2, 3, 4))
    sw, pad = r.choice(_tile_forms(T, C)[:-3])
    step = 16 // T.itemsize
    extra, shift = step * r.randrange(4), step * r.randrange(4)
    cut = r.choice((0, 0, step, 3))
    return Case(
        f"async warp {T.name} {R}x{C} swizzle {sw} pad {pad}",
        permuted(T, R, C, sw, pad),
        (2, 2, 1),
        lambda: [
            view((2 * R - cut, 2 * C - cut), T, extra + cut, shift),
            filled((2 * R, 2 * C), T),
        ],
        about=f"pitch {2 * C + extra}, shift {shift}, {cut} rows and columns cut off",
    )


def vectors(S: Any, X: Any, N: int):
    """A flat vector: global, registers, shared, registers, global."""

    @tk.kernel(warps=2)
    def vectors(x: tk.gl(S), y: tk.gl(S)):
        v = tk.rv(X, N)
        u = tk.rv(X, N)
        s = tk.shared(tk.sv(S, N), 2)
        warp.load(v, x, (blockIdx.x * 2 + warpid(), 0))
        warp.store(s[warpid()], v)
        warp.sync()
        warp.load(u, s[warpid()])
        warp.store(y, u, (blockIdx.x * 2 + warpid(), 0))

    return vectors


def _vectors(r: random.Random, S: Any, X: Any) -> Case:
    n = r.choice((r.randrange(1, 300), 32 * r.randrange(1, 40), 256 * r.randrange(1, 6)))
    cols = n if r.random() < 0.6 else max(1, n - r.randrange(1, 40))
    extra, shift = r.choice((0, 0, 1, 2, 8)), r.choice((0, 0, 1, 2, 4))
    return Case(
        f"rv {S.name} in {X.name} registers, {n}",
        vectors(S, X, n),
        (3, 1, 1),
        lambda: [view((6, cols), S, extra, shift), view((6, cols), S, extra, shift)],
        about=f"{cols} columns, pitch {cols + extra}, shift {shift}",
    )


def tile_vectors(S: Any, N: int, lay: Any):
    """A row_vec and a col_vec: global, registers, shared, and back."""

    @tk.kernel(warps=1)
    def tile_vectors(x: tk.gl(S), y: tk.gl(S)):
        r = tk.row_vec(N, layout=lay)
        c = tk.col_vec(N, layout=lay)
        s = tk.shared(tk.sv(S, N), 2)
        warp.load(r, x, (0, blockIdx.x))
        warp.load(c, x, (1, blockIdx.x))
        warp.store(s[0], r)
        warp.store(s[1], c)
        warp.sync()
        warp.load(r, s[1])
        warp.load(c, s[0])
        warp.store(y, r, (0, blockIdx.x))
        warp.store(y, c, (1, blockIdx.x))

    return tile_vectors


def _tile_vectors(r: random.Random, S: Any, lay: Any) -> Case:
    n = 16 * r.randrange(1, 7)
    cols = 2 * n - r.choice((0, 0, 5, 16))
    shift = r.choice((0, 0, 1, 2))
    return Case(
        f"row_vec, col_vec {S.name} {lay.name} {n}",
        tile_vectors(S, n, lay),
        (2, 1, 1),
        lambda: [view((2, cols), S, 0, shift), view((2, cols), S, 0, shift)],
        about=f"{cols} columns, shift {shift}",
    )


def block_vector(T: Any, N: int, ASYNC: bool):
    """A shared vector, copied by the block."""

    @tk.kernel(warps=2)
    def block_vector(x: tk.gl(T), y: tk.gl(T)):
        s = tk.shared(tk.sv(T, N))
        block.load(s, x, (blockIdx.x,))
        block.sync()
        block.store(y, s, (blockIdx.x,))

    @tk.kernel(warps=2)
    def block_vector_async(x: tk.gl(T), y: tk.gl(T)):
        s = tk.shared(tk.sv(T, N))
        block.load_async(s, x, (blockIdx.x,))
        tk.commit_group()
        tk.wait_group(0)
        block.sync()
        block.store(y, s, (blockIdx.x,))

    return block_vector_async if ASYNC else block_vector


def _block_vector(r: random.Random, T: Any, ASYNC: bool) -> Case:
    n = r.choice((r.randrange(3, 200), 8 * r.randrange(1, 60)))
    blocks = r.randrange(2, 5)
    length = n * blocks - r.choice((0, 1, n // 2))
    shift = r.choice((0, 0, 1, 2, 8))
    return Case(
        f"sv {T.name} {n}{' async' if ASYNC else ''}",
        block_vector(T, n, ASYNC),
        (blocks, 1, 1),
        lambda: [view((length,), T, 0, shift), view((length,), T, 0, shift)],
        about=f"{length} elements, shift {shift}",
    )


def product(T: Any, D: Any, M: int, N: int, K: int):
    """One tensor-core product of register tiles."""

    @tk.kernel(warps=2)
    def product(a: tk.gl(T), b: tk.gl(T), c: tk.gl(D)):
        x = tk.rt(T, M, K)
        y = tk.rt(T, K, N, tk.col)
        acc = tk.rt(D, M, N)
        warp.load(x, a, (blockIdx.x * 2 + warpid(), 0))
        warp.load(y, b, (0, 0))
        warp.zero(acc)
        warp.mma_AB(acc, x, y)
        warp.store(c, acc, (blockIdx.x * 2 + warpid(), 0))

    return product


def _product(r: random.Random, T: Any, D: Any) -> Case:
    M, N, K = 16 * r.randrange(1, 3), 16 * r.randrange(1, 4), 32 * r.randrange(1, 3)
    return Case(
        f"product {T.name}->{D.name} {M}x{N}x{K}",
        product(T, D, M, N, K),
        (3, 1, 1),
        lambda: [filled((6 * M, K), T), filled((K, N), T), filled((6 * M, N), D)],
    )


@cache
def generated() -> tuple[Case, ...]:
    """The frozen patterns: the same ones for ever. More may be added at the end only."""
    r = random.Random(SEED)
    f32, f16, bf16, e4m3 = tk.f32, tk.f16, tk.bf16, tk.e4m3
    out: list[Case] = []
    for T, N in ((f32, 1), (bf16, 1), (e4m3, 1), (tk.u8, 1), (tk.i64, 1), (f32, 2), (f32, 4),
                 (f16, 2), (bf16, 4), (bf16, 8), (e4m3, 2), (e4m3, 4), (e4m3, 16), (tk.i32, 4),
                 (tk.u8, 8), (tk.i64, 2)):  # fmt: skip
        out.append(_strided(r, T, N))
    for T, N in ((f32, 2), (f32, 4), (bf16, 2), (f16, 8), (e4m3, 16), (tk.u32, 2)):
        out.append(_gather(r, T, N))
    for T, N in ((f32, 1), (bf16, 1), (e4m3, 1), (tk.u8, 1), (tk.i64, 1), (bf16, 2), (f32, 2),
                 (f32, 2), (f32, 2), (f32, 4), (f32, 4), (f32, 4), (bf16, 8), (bf16, 4), (f16, 8),
                 (e4m3, 16), (tk.u8, 4), (tk.i64, 2), (tk.i64, 2), (f32, 4)):  # fmt: skip
        out.append(_shared_lanes(r, T, N))
    for count in (1, 2, 4):
        for trans in (False, True):
            for T in (bf16, f16):
                out.append(_matrices(r, T, count, trans))
    for T in (tk.i32, tk.u32, tk.i32, tk.i32):
        out.append(_atomics(r, T))
    for S, D in ((f32, f32), (bf16, bf16), (f16, f32), (e4m3, bf16), (f32, e4m3)):
        for lay in (tk.row, tk.col):
            out.append(_direct(r, S, D, lay))
            out.append(_direct(r, S, D, lay))
    for T in (f32, bf16, f16, e4m3):
        for lay in (tk.row, tk.col):
            for later in (False, True):
                for _ in range(3 if T is not f16 else 1):
                    out.append(_through(r, T, lay, later))
    for T in (bf16, bf16, bf16, f32, f32, f16, e4m3, e4m3):
        out.append(_permuted(r, T))
    for S, X in ((f32, f32), (bf16, f32), (bf16, bf16), (f16, f32), (f32, bf16), (e4m3, f32),
                 (bf16, f32), (f32, f32)):  # fmt: skip
        out.append(_vectors(r, S, X))
    for S in (f32, bf16, e4m3):
        for lay in (tk.row, tk.col):
            out.append(_tile_vectors(r, S, lay))
    for T in (f32, bf16, f16, e4m3, tk.f32, bf16):
        out.append(_block_vector(r, T, r.random() < 0.5))
    for T, D in ((bf16, f32), (f16, f32), (f16, f16), (f32, f32), (e4m3, f32), (tk.e5m2, f32)):
        out.append(_product(r, T, D))
    return tuple(Case(f"{i:03d} {c.name}", c.kernel, c.grid, c.args, c.consts, c.about)
                 for i, c in enumerate(out))  # fmt: skip


def all_cases() -> list[Case]:
    """The gallery's launches, then the patterns."""
    return [*gallery(), *generated()]
