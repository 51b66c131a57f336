"""One small kernel per form of every operation: what the parity tests run on both machines.

`cases()` yields Case(name, kernel, grid, arguments); outputs are the arrays that the kernel
writes. A test asserts that together they use every row of the op table.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import tklearn as tk
from tklearn import block, blockDim, blockIdx, laneid, threadIdx, warp, warpid
from tklearn.tensor import NUMPY_DTYPES

FLOATS = (tk.f32, tk.bf16, tk.f16)


@dataclass
class Case:
    """`args(rng)` makes fresh arguments; `tol` bounds |gpu - sim| relative to the largest value."""

    name: str
    kernel: Any
    grid: Any
    args: Callable[[np.random.Generator], list[Any]]
    consts: dict[str, Any] = field(default_factory=dict)
    tol: float = 0.0
    arch: int = 75


def normal(rng: np.random.Generator, shape: Any, dtype: Any = tk.f32) -> np.ndarray:
    """Random normal values in the storage dtype, never zeros."""
    return rng.standard_normal(shape, dtype=np.float32).astype(NUMPY_DTYPES[dtype.name])


def poison(shape: Any, dtype: Any = tk.f32) -> np.ndarray:
    """An output full of a value no kernel writes, so that what stays unwritten is seen."""
    d = NUMPY_DTYPES[dtype.name]
    return np.full(shape, 77, d)


def _arch(*dtypes: Any) -> int:
    return max({"bf16": 80, "e4m3": 89, "e5m2": 89}.get(d.name, 75) for d in dtypes)


# ----------------------------------------------------------------------------- memory
def _load_store(S: Any, D: Any, lay: Any) -> Iterator[Case]:
    @tk.kernel(warps=2)
    def direct(x: tk.gl(S), y: tk.gl(D)):
        t = tk.rt(D, 16, 32, lay)
        warp.load(t, x, (blockIdx.y * 2 + warpid(), blockIdx.x))
        warp.store(y, t, (blockIdx.y * 2 + warpid(), blockIdx.x))

    for r, c in ((64, 64), (1, 7), (65, 33), (50, 96)):
        yield Case(
            f"load_store {S.name}->{D.name} {lay.name} {r}x{c}",
            direct,
            (-(-c // 32), -(-r // 32)),
            lambda g, r=r, c=c: [normal(g, (r, c), S), poison((r, c), D)],
            arch=_arch(S, D),
        )


def _strided(S: Any) -> Iterator[Case]:
    @tk.kernel(warps=1)
    def strided(x: tk.gl(S), y: tk.gl(S)):
        t = tk.rt(S, 16, 16)
        warp.load(t, x, (1, blockIdx.y, blockIdx.x))
        warp.store(y, t, (0, blockIdx.y, blockIdx.x))

    yield Case(
        f"strided view {S.name}",
        strided,
        (3, 2),
        lambda g: [normal(g, (2, 40, 70), S)[:, 3:33, 5:45], poison((2, 30, 40), S)],
        arch=_arch(S),
    )


def _shared(S: Any, sw: int, pad: int, lay: Any) -> Iterator[Case]:
    @tk.kernel(warps=2)
    def through(x: tk.gl(S), y: tk.gl(S), z: tk.gl(S)):
        s = tk.shared(tk.st(S, 32, 64, sw, pad))
        u = tk.shared(tk.st(S, 32, 64, sw, pad))
        t = tk.rt(S, 16, 32, lay)
        block.load(s, x, (0, blockIdx.x))
        block.sync()
        for j in range(2):
            warp.load(t, s.subtile(16, 32, (warpid(), j)))
            warp.store(u.subtile(16, 32, (warpid(), j)), t)
            warp.store(z, t, (warpid(), blockIdx.x * 2 + j))
        block.sync()
        block.store(y, u, (0, blockIdx.x))

    yield Case(
        f"shared {S.name} swizzle {sw} pad {pad} {lay.name}",
        through,
        2,
        lambda g: [normal(g, (30, 100), S), poison((30, 100), S), poison((30, 100), S)],
        arch=_arch(S),
    )


def _warp_shared(S: Any) -> Iterator[Case]:
    @tk.kernel(warps=2)
    def by_warp(x: tk.gl(S), y: tk.gl(S)):
        s = tk.shared(tk.st(S, 16, 32), 2)
        mine = s[warpid()]
        warp.load(mine, x, (warpid(), blockIdx.x))
        warp.sync()
        warp.store(y, mine, (warpid(), blockIdx.x))

    @tk.kernel(warps=2)
    def whole(x: tk.gl(S), y: tk.gl(S)):
        s = tk.shared(tk.st(S, 32, 32))
        t = tk.rt(tk.f32, 32, 32)
        block.load_async(s, x, (0, blockIdx.x))
        tk.commit_group()
        tk.wait_group(0)
        block.sync()
        warp.load(t, s)
        if warpid() == 0:
            warp.store(y, t, (0, blockIdx.x))

    @tk.kernel(warps=2)
    def ring(x: tk.gl(S), y: tk.gl(S)):
        s = tk.shared(tk.st(S, 16, 32), 2, 2)
        t = tk.rt(S, 16, 32)
        warp.load_async(s[warpid(), 0], x, (warpid(), 0))
        tk.commit_group()
        for k in range(1, 4):
            warp.load_async(s[warpid(), k % 2], x, (warpid(), k))
            tk.commit_group()
            tk.wait_group(1)
            warp.sync()
            warp.load(t, s[warpid(), (k - 1) % 2])
            warp.store(y, t, (warpid(), k - 1))
            warp.sync()
        tk.wait_group(0)
        warp.sync()
        warp.load(t, s[warpid(), 1])
        warp.store(y, t, (warpid(), 3))

    for k in (by_warp, whole, ring):
        for shape in ((32, 128), (29, 117)):
            grid = 1 if k is ring else 4
            yield Case(
                f"{k.__name__} {S.name} {shape}",
                k,
                grid,
                lambda g, shape=shape: [normal(g, shape, S), poison(shape, S)],
                arch=_arch(S),
            )


def _vectors(S: Any) -> Iterator[Case]:
    for n in (1, 7, 65, 256, 1000, 1024):

        @tk.kernel(warps=2)
        def flat(x: tk.gl(S), y: tk.gl(S), w: tk.gl_fl, N: tk.const):
            v = tk.rv(tk.f32, N)
            s = tk.shared(tk.sv(S, N), 2)
            warp.load(v, x, (blockIdx.x * 2 + warpid(), 0))
            warp.store(s[warpid()], v)
            warp.sync()
            u = tk.rv(S, N)
            warp.load(u, s[warpid()])
            total = tk.sum(v)
            big = tk.max(v)
            small = tk.min(v)
            if laneid() == 0:
                w[blockIdx.x * 2 + warpid(), 0] = total
                w[blockIdx.x * 2 + warpid(), 1] = big
                w[blockIdx.x * 2 + warpid(), 2] = small
            warp.store(y, u, (blockIdx.x * 2 + warpid(), 0))

        yield Case(
            f"rv {S.name} {n}",
            flat,
            3,
            lambda g, n=n: [normal(g, (6, n), S), poison((6, n), S), poison((6, 3))],
            {"N": n},
            arch=_arch(S),
        )

    @tk.kernel(warps=1)
    def of_tiles(x: tk.gl(S), y: tk.gl(S)):
        r = tk.row_vec(32)
        c = tk.col_vec(32)
        rc = tk.row_vec(32, layout=tk.col)
        cc = tk.col_vec(32, layout=tk.col)
        s = tk.shared(tk.sv(S, 32), 4)
        warp.load(r, x, (0, blockIdx.x))
        warp.load(c, x, (1, blockIdx.x))
        warp.load(rc, x, (2, blockIdx.x))
        warp.load(cc, x, (3, blockIdx.x))
        warp.store(s[0], r)
        warp.store(s[1], c)
        warp.store(s[2], rc)
        warp.store(s[3], cc)
        warp.sync()
        warp.load(r, s[3])
        warp.load(c, s[2])
        warp.load(rc, s[1])
        warp.load(cc, s[0])
        warp.store(y, r, (0, blockIdx.x))
        warp.store(y, c, (1, blockIdx.x))
        warp.store(y, rc, (2, blockIdx.x))
        warp.store(y, cc, (3, blockIdx.x))

    yield Case(
        f"tile vectors {S.name}",
        of_tiles,
        2,
        lambda g: [normal(g, (4, 50), S), poison((4, 50), S)],
        arch=_arch(S),
    )

    @tk.kernel(warps=2)
    def block_vector(x: tk.gl(S), y: tk.gl(S)):
        s = tk.shared(tk.sv(S, 100))
        block.load(s, x, (blockIdx.x,))
        block.sync()
        block.store(y, s, (blockIdx.x,))

    yield Case(
        f"block vector {S.name}",
        block_vector,
        3,
        lambda g: [normal(g, (250,), S), poison((250,), S)],
        arch=_arch(S),
    )


# -------------------------------------------------------------------------- arithmetic
MAPS = ("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "rcp", "tanh", "sin", "cos", "relu", "abs")


def _map(name: str) -> Iterator[Case]:
    f = getattr(tk, name)

    @tk.kernel(warps=1)
    def mapped(x: tk.gl_fl, y: tk.gl_fl, z: tk.gl_fl):
        t = tk.rt_fl(16, 32)
        warp.load(t, x, (0, blockIdx.x))
        t = f(t)
        warp.store(y, t, (0, blockIdx.x))
        v = tk.rv(tk.f32, 32)
        warp.load(v, x, (15, blockIdx.x))
        v = f(v)
        i = blockIdx.x * 32 + laneid()
        z[0, i] = f(x[0, i])
        warp.store(z, v, (1, blockIdx.x))

    def args(g: np.random.Generator) -> list[Any]:
        x = normal(g, (16, 64))
        if name in ("log", "log2", "sqrt", "rsqrt"):
            x = np.abs(x) + np.float32(1e-3)
        return [x, poison((16, 64)), poison((2, 64))]

    exact = ("relu", "abs", "sqrt")
    tol = {"tanh": 1e-3, "log": 1e-5, "log2": 1e-5}.get(name, 0.0 if name in exact else 2e-6)
    yield Case(f"map {name}", mapped, 2, args, tol=tol)


def _binary(S: Any, lay: Any) -> Iterator[Case]:
    @tk.kernel(warps=1)
    def arithmetic(x: tk.gl(S), y: tk.gl(S)):
        a = tk.rt(S, 16, 32, lay)
        b = tk.rt(S, 16, 32, lay)
        r = tk.row_vec(32, S, lay)
        c = tk.col_vec(16, S, lay)
        warp.load(a, x, (0, 0))
        warp.load(b, x, (1, 0))
        warp.load(r, x, (32, 0))
        warp.load(c, x, (66, 0))
        warp.store(y, a + b, (0, 0))
        warp.store(y, a - b, (1, 0))
        warp.store(y, a * b, (2, 0))
        warp.store(y, a / b, (3, 0))
        warp.store(y, a + r, (4, 0))
        warp.store(y, a * c, (5, 0))
        warp.store(y, 2.0 - a, (6, 0))
        warp.store(y, a * 3.0 - b, (7, 0))
        warp.store(y, a * c + r, (8, 0))
        warp.store(y, -a, (9, 0))
        warp.store(y, max(a, b), (10, 0))
        warp.store(y, min(a, 0.5), (11, 0))
        b += a
        b *= 0.25
        b -= r
        b /= c
        warp.store(y, b, (12, 0))
        warp.store(y, c * c - c, (208, 0))
        warp.store(y, r + 1.0, (209, 0))
        warp.store(y, a * 1.5 - c, (14, 0))
        warp.store(y, 1.0 / a, (15, 0))
        warp.store(y, max(a, r), (16, 0))

    yield Case(
        f"arithmetic {S.name} {lay.name}",
        arithmetic,
        1,
        lambda g: [normal(g, (80, 32), S), poison((272, 32), S)],
        arch=_arch(S),
    )


def _reductions(S: Any, lay: Any) -> Iterator[Case]:
    for r, c in ((16, 16), (48, 80), (64, 32)):

        @tk.kernel(warps=1)
        def reduced(x: tk.gl(S), y: tk.gl_fl, R: tk.const, C: tk.const):
            t = tk.rt(S, R, C, lay)
            warp.load(t, x, (0, 0))
            s = tk.row_sum(t)
            m = tk.row_max(t)
            n = tk.row_min(t)
            warp.store(y, s, (0, 0))
            warp.store(y, m, (1, 0))
            warp.store(y, n, (2, 0))
            warp.store(y, tk.row_sum(t, s), (3, 0))
            warp.store(y, tk.row_max(t, s), (4, 0))
            warp.store(y, tk.row_min(t, s), (5, 0))
            u = tk.col_sum(t)
            warp.store(y, u, (6, 0))
            warp.store(y, tk.col_max(t), (7, 0))
            warp.store(y, tk.col_min(t), (8, 0))
            warp.store(y, tk.col_sum(t, u), (9, 0))
            warp.store(y, tk.col_max(t, u), (10, 0))
            warp.store(y, tk.col_min(t, u), (11, 0))

        yield Case(
            f"reductions {S.name} {lay.name} {r}x{c}",
            reduced,
            1,
            lambda g, r=r, c=c: [normal(g, (r, c), S), poison((12, max(r, c)))],
            {"R": r, "C": c},
            arch=_arch(S),
        )


def _fills() -> Iterator[Case]:
    @tk.kernel(warps=1)
    def fills(y: tk.gl_fl):
        t = tk.rt_fl(16, 16)
        v = tk.rv(tk.f32, 50)
        c = tk.col_vec(16)
        warp.zero(t)
        warp.store(y, t, (0, 0))
        warp.one(t)
        warp.store(y, t, (1, 0))
        warp.fill(t, 2.5)
        warp.store(y, t, (2, 0))
        warp.neg_infty(t)
        warp.store(y, t, (3, 0))
        warp.pos_infty(c)
        warp.store(y, c, (64, 0))
        warp.one(v)
        warp.store(y, v, (65, 0))
        u = tk.copy(t)
        warp.copy(t, u)
        warp.store(y, t, (5, 0))

    yield Case("fills", fills, 1, lambda g: [poison((96, 50))])

    for S in FLOATS:
        for D in FLOATS:

            @tk.kernel(warps=1)
            def converts(x: tk.gl(S), y: tk.gl(D)):
                a = tk.rt(S, 16, 16)
                b = tk.rt(D, 16, 16)
                v = tk.rv(S, 70)
                warp.load(a, x, (0, 0))
                warp.copy(b, a)
                warp.store(y, b, (0, 0))
                warp.store(y, tk.convert(a, D), (1, 0))
                warp.load(v, x, (20, 0))
                warp.store(y, tk.convert(v, D), (40, 0))

            yield Case(
                f"convert {S.name}->{D.name}",
                converts,
                1,
                lambda g, S=S, D=D: [normal(g, (21, 70), S), poison((41, 70), D)],
                arch=_arch(S, D),
            )


def _masks(lay: Any) -> Iterator[Case]:
    @tk.kernel(warps=1)
    def masks(x: tk.gl_fl, y: tk.gl_fl, n: tk.i32):
        t = tk.rt_fl(32, 32, lay)
        warp.load(t, x, (0, 0))
        u = tk.copy(t)
        warp.tril(u)
        warp.store(y, u, (0, 0))
        u = tk.copy(t)
        warp.triu(u, n, -1.0)
        warp.store(y, u, (1, 0))
        u = tk.copy(t)
        warp.make_causal(u)
        warp.store(y, u, (2, 0))
        u = tk.copy(t)
        warp.right_fill(u, n)
        warp.store(y, u, (3, 0))
        u = tk.copy(t)
        warp.left_fill(u, n, 9.0)
        warp.store(y, u, (4, 0))
        u = tk.copy(t)
        warp.upper_fill(u, n)
        warp.store(y, u, (5, 0))
        u = tk.copy(t)
        warp.lower_fill(u, n)
        warp.store(y, u, (6, 0))
        u = tk.copy(t)
        warp.tril(u, -n, 3.0)
        warp.store(y, u, (7, 0))

    for n in (0, 5, 40):
        yield Case(
            f"masks {lay.name} {n}",
            masks,
            1,
            lambda g, n=n: [normal(g, (32, 32)), poison((256, 32)), n],
        )


def _moves(S: Any) -> Iterator[Case]:
    for lay in (tk.row, tk.col):

        @tk.kernel(warps=1)
        def moves(x: tk.gl(S), y: tk.gl(S), z: tk.gl(S)):
            t = tk.rt(S, 16, 48, lay)
            warp.load(t, x, (0, 0))
            warp.store(y, tk.swap_layout(t), (0, 0))
            warp.store(z, tk.transpose(t), (0, 0))

        yield Case(
            f"moves {S.name} {lay.name}",
            moves,
            1,
            lambda g: [normal(g, (16, 48), S), poison((16, 48), S), poison((48, 16), S)],
            arch=_arch(S),
        )


# ------------------------------------------------------------------------ tensor cores
def _products(S: Any, D: Any) -> Iterator[Case]:
    row, col = tk.row, tk.col

    @tk.kernel(warps=1)
    def products(a: tk.gl(S), at: tk.gl(S), b: tk.gl(S), bt: tk.gl(S), y: tk.gl(D)):
        x = tk.rt(S, 32, 32, row)
        xt = tk.rt(S, 32, 32, col)
        w = tk.rt(S, 32, 48, col)
        wt = tk.rt(S, 48, 32, row)
        acc = tk.rt(D, 32, 48)
        warp.load(x, a, (0, 0))
        warp.load(xt, at, (0, 0))
        warp.load(w, b, (0, 0))
        warp.load(wt, bt, (0, 0))
        warp.zero(acc)
        warp.mma_AB(acc, x, w)
        warp.store(y, acc, (0, 0))
        warp.mma_ABt(acc, x, wt)
        warp.store(y, acc, (1, 0))
        warp.mma_AtB(acc, xt, w)
        warp.store(y, acc, (2, 0))
        warp.mma_AtBt(acc, xt, wt)
        warp.store(y, acc, (3, 0))

    yield Case(
        f"mma {S.name} -> {D.name}",
        products,
        1,
        lambda g: [
            normal(g, (32, 32), S), normal(g, (32, 32), S), normal(g, (32, 48), S),
            normal(g, (48, 32), S), poison((128, 48), D),
        ],
        tol=128 * 2.0**-23 if D is tk.f32 else 32 * 2.0**-11,
        arch=max(_arch(S), 80 if S is tk.f32 else 75),
    )  # fmt: skip


def _fragments(S: Any) -> Iterator[Case]:
    @tk.kernel(warps=1)
    def fragments(a: tk.gl(S), b: tk.gl(S), y: tk.gl_fl):
        a_s = tk.shared(tk.st(S, 16, 16))
        b_s = tk.shared(tk.st(S, 16, 16))
        block.load(a_s, a, (0, 0))
        block.load(b_s, b, (0, 0))
        block.sync()
        lane = laneid()
        fa = tk.reg_array(S, 8)
        fb = tk.reg_array(S, 4)
        c = tk.reg_array(tk.f32, 4)
        for i in tk.static_range(4):
            c[i] = 0.0
        warp.ldmatrix(fa, a_s[lane % 16, lane // 16 * 8])
        warp.ldmatrix(fb, b_s[lane % 16, 0], trans=True)
        warp.mma_m16n8k16(c, fa, fb)
        for i in tk.static_range(4):
            y[lane // 4 + 8 * (i // 2), lane % 4 * 2 + i % 2] = c[i]

    yield Case(
        f"fragments {S.name}",
        fragments,
        1,
        lambda g: [normal(g, (16, 16), S), normal(g, (16, 16), S), poison((16, 8))],
        tol=64 * 2.0**-23,
        arch=80,
    )


def _tf32_fragment() -> Iterator[Case]:
    @tk.kernel(warps=1)
    def tf32(a: tk.gl_fl, b: tk.gl_fl, y: tk.gl_fl):
        lane = laneid()
        g = lane // 4
        t = lane % 4
        fa = tk.reg_array(tk.f32, 4)
        fb = tk.reg_array(tk.f32, 2)
        c = tk.reg_array(tk.f32, 4)
        for i in tk.static_range(4):
            c[i] = 1.0
            fa[i] = a[g + 8 * (i % 2), t + 4 * (i // 2)]
        for i in tk.static_range(2):
            fb[i] = b[t + 4 * i, g]
        warp.mma_m16n8k8(c, fa, fb)
        for i in tk.static_range(4):
            y[g + 8 * (i // 2), t * 2 + i % 2] = c[i]

    yield Case(
        "fragments tf32",
        tf32,
        1,
        lambda g: [normal(g, (16, 8)), normal(g, (8, 8)), poison((16, 8))],
        tol=64 * 2.0**-23,
        arch=80,
    )


# ------------------------------------------------------------------------------- lanes
@tk.device
def bump(v: tk.f32, by):
    w = v + by
    return w * 2.0


@tk.device
def scale_tile(t, s):
    t *= s


@tk.intrinsic(
    cuda="__popc({x})",
    sim=lambda x: np.bitwise_count(np.asarray(x).astype(np.uint32)).astype(np.int64),
    result=tk.i32,
)
def popc(x):
    """The number of set bits."""


def _lanes() -> Iterator[Case]:
    @tk.kernel(threads=96)
    def shuffles(x: tk.gl_fl, y: tk.gl_fl, m: tk.gl(tk.u32)):
        i = blockIdx.x * blockDim.x + threadIdx.x
        v = x[i]
        y[0, i] = warp.shfl(v, 3)
        y[1, i] = warp.shfl_up(v, 1)
        y[2, i] = warp.shfl_down(v, 2)
        y[3, i] = warp.shfl_xor(v, 16)
        y[4, i] = warp.shfl(v, 31 - laneid())
        b = warp.ballot(v > 0.0)
        m[i] = b
        y[5, i] = 1.0 if warp.any(v > 2.0) else 0.0
        y[6, i] = 1.0 if warp.all(v > -2.0) else 0.0
        y[7, i] = float(popc(b))
        u = warp.uniform(warp.shfl(v, 0))
        y[8, i] = bump(u, 0.5)

    yield Case(
        "shuffles",
        shuffles,
        2,
        lambda g: [normal(g, 192), poison((9, 192)), np.zeros(192, np.uint32)],
    )

    @tk.kernel(threads=64)
    def integers(x: tk.gl(tk.i32), y: tk.gl(tk.i32), u: tk.gl(tk.u32), w: tk.gl(tk.i64)):
        i = blockIdx.x * 64 + threadIdx.x
        a = x[i]
        b = x[63 - threadIdx.x]
        d = b if b != 0 else 3
        y[0, i] = a // d
        y[1, i] = a % d
        y[2, i] = (a & b) | (a ^ 5)
        y[3, i] = a << 3
        y[4, i] = a >> 2
        y[5, i] = abs(a) - min(a, b, 7) + max(a, b)
        y[6, i] = tk.cdiv(abs(a), 7)
        y[7, i] = int(float(a) * 0.37)
        y[8, i] = ~a
        y[9, i] = 1 if -10 < a <= 10 and not b == 0 else 0
        u[i] = tk.u32(a) * 2654435761 + 12345
        w[i] = tk.i64(a) * 1000000007 * tk.i64(b)

    yield Case(
        "integers",
        integers,
        1,
        lambda g: [
            g.integers(-1000, 1000, 64).astype(np.int32), np.full((10, 64), 77, np.int32),
            np.zeros(64, np.uint32), np.zeros(64, np.int64),
        ],
    )  # fmt: skip

    @tk.kernel(threads=128)
    def atomics(x: tk.gl(tk.i32), s: tk.gl(tk.i32), f: tk.gl_fl, u: tk.gl(tk.u32)):
        part = tk.shared_array(tk.i32, 4)
        i = blockIdx.x * 128 + threadIdx.x
        if threadIdx.x < 4:
            part[threadIdx.x] = 0
        block.sync()
        tk.atomic_add(part[i % 4], x[i])
        tk.atomic_max(s[0], x[i])
        tk.atomic_min(s[1], x[i])
        tk.atomic_add(f[0], 1.0)
        tk.atomic_add(u[0], tk.u32(3))
        old = tk.atomic_exch(s[2 + i], i)
        if old != 0:
            tk.atomic_add(s[0], 1000000)
        tk.atomic_cas(s[1000], 0, 42)
        block.sync()
        if threadIdx.x < 4:
            tk.atomic_add(s[1001 + threadIdx.x], part[threadIdx.x])

    yield Case(
        "atomics",
        atomics,
        3,
        lambda g: [
            g.integers(-99, 99, 384).astype(np.int32),
            np.zeros(1005, np.int32),
            np.zeros(1, np.float32),
            np.zeros(1, np.uint32),
        ],
    )

    @tk.kernel(threads=(16, 8))
    def flow(x: tk.gl_fl, y: tk.gl_fl, n: tk.i32):
        i = blockIdx.x * 128 + threadIdx.y * 16 + threadIdx.x
        total = 0.0
        steps = 0
        v = x[i] if i < n else 0.0
        while abs(v) > 0.1 and steps < 50:
            v *= 0.5
            steps += 1
            if steps == 7:
                continue
            if v > 3.0:
                break
            total += v
        for j in range(threadIdx.x % 5, 12, 3):
            if j == 9:
                break
            total = total * 0.5 + float(j)
        for j in range(10, 2, -2):
            total -= float(j)
        if i >= n:
            return
        if threadIdx.x % 3 == 0:
            y[i] = total
        elif threadIdx.x % 3 == 1:
            y[i] = -total
        else:
            a = total
            b = v
            a, b = b, a
            y[i] = a - b

    yield Case("flow", flow, 3, lambda g: [normal(g, 300) * 5, poison(300), 300])

    @tk.kernel(threads=64)
    def wide(x: tk.gl_fl, h: tk.gl_bf, y: tk.gl_fl, z: tk.gl_bf):
        s = tk.shared_array(tk.f32, 256)
        i = threadIdx.x
        v = tk.vec(x, 4)[i]
        tk.vec(s, 4)[i] = v
        block.sync()
        w = tk.vec(s, 2)[127 - i]
        tk.vec(y, 2)[i] = (w[1], w[0] * 2.0)
        p = tk.vec(h, 8)[i]
        tk.vec(z, 8)[i] = (p[7], p[6], p[5], p[4], p[3], p[2], p[1], p[0] + v[0])

    yield Case(
        "wide",
        wide,
        1,
        lambda g: [normal(g, 256), normal(g, 512, tk.bf16), poison(128), poison(512, tk.bf16)],
        arch=80,
    )

    @tk.kernel(warps=1)
    def helpers(x: tk.gl_fl, y: tk.gl_fl):
        t = tk.rt_fl(16, 16)
        warp.load(t, x, (0, 0))
        scale_tile(t, 3.0)
        i = laneid() // 4
        u = tk.fma(t, 2.0, t)
        warp.store(y, u, (0, 0))
        y[16, laneid()] = t.reg(0) + float(i)

    yield Case("helpers", helpers, 1, lambda g: [normal(g, (16, 16)), poison((17, 32))])


def cases() -> Iterator[Case]:
    """Every case, in a fixed order."""
    for lay in (tk.row, tk.col):
        for S, D in ((tk.f32, tk.f32), (tk.bf16, tk.f32), (tk.f16, tk.f16), (tk.f32, tk.bf16)):
            yield from _load_store(S, D, lay)
        for S in FLOATS:
            for sw, pad in ((None, 0), (0, 0), (0, 8)):
                yield from _shared(S, sw, pad, lay)
            yield from _binary(S, lay)
            yield from _reductions(S, lay)
        yield from _shared(tk.bf16, 32, 0, lay)
        yield from _shared(tk.bf16, 64, 0, lay)
        yield from _masks(lay)
    for S in FLOATS:
        yield from _strided(S)
        yield from _warp_shared(S)
        yield from _vectors(S)
        yield from _moves(S)
    for name in MAPS:
        yield from _map(name)
    yield from _fills()
    for S, D in ((tk.bf16, tk.f32), (tk.f16, tk.f32), (tk.f16, tk.f16), (tk.f32, tk.f32)):
        yield from _products(S, D)
    for S in (tk.e4m3, tk.e5m2):
        yield from _load_store(S, tk.f32, tk.row)
        yield from _load_store(tk.f32, S, tk.col)
        yield from _shared(S, None, 0, tk.row)
        yield from _products(S, tk.f32)
    for S in (tk.bf16, tk.f16):
        yield from _fragments(S)
    yield from _tf32_fragment()
    yield from _lanes()
