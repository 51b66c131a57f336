"""Operations of the simulator against NumPy written out beside them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tklearn as tk
from tklearn import block, blockIdx, laneid, threadIdx, warp, warpid
from tklearn.numerics import fold_sum

RNG = np.random.default_rng(11)
BF = ml_dtypes.bfloat16


def f32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def bf(*shape: int) -> np.ndarray:
    return f32(*shape).astype(BF)


def on_tile(body, rows: int = 32, cols: int = 48, blocks: int = 3):
    """Run a kernel on (blocks * rows, cols) arrays: returns (x, y)."""
    x, y = f32(blocks * rows, cols), np.zeros((blocks * rows, cols), np.float32)
    body.sim[blocks](x, y)
    return x.reshape(blocks, rows, cols), y.reshape(blocks, rows, cols)


# ------------------------------------------------------------------------------ maps, reductions
@tk.kernel(warps=1)
def softmax(x: tk.gl_fl, y: tk.gl_fl):
    t = tk.rt_fl(32, 48)
    warp.load(t, x, (blockIdx.x, 0))
    t = tk.exp(t - tk.row_max(t))
    t /= tk.row_sum(t)
    warp.store(y, t, (blockIdx.x, 0))


def test_row_maps():
    x, y = on_tile(softmax)
    e = np.exp(x - x.max(-1, keepdims=True))
    assert (y == e / fold_sum(e, 2, 8)[..., None]).all()


@tk.kernel(warps=1)
def columns(x: tk.gl_fl, y: tk.gl_fl):
    t = tk.rt_fl(32, 48)
    warp.load(t, x, (blockIdx.x, 0))
    top = tk.col_max(t)
    low = tk.col_min(t, top)
    t = (t - low) * 2.0 + tk.col_sum(t, top)
    t = tk.max(t, 0.5)
    warp.store(y, t, (blockIdx.x, 0))


def test_column_maps():
    x, y = on_tile(columns)
    top = x.max(1)
    low = np.minimum(x.min(1), top)
    want = (x - low[:, None]).astype(np.float64) * 2 + (fold_sum(x, 1, 8) + top)[:, None]
    assert (y == np.maximum(want.astype(np.float32), np.float32(0.5))).all()


@tk.kernel(warps=1)
def narrow(x: tk.gl_fl, y: tk.gl_fl):
    t = tk.rt_bf(32, 48)
    warp.load(t, x, (blockIdx.x, 0))
    t = t * t
    t += t
    warp.store(y, t, (blockIdx.x, 0))


def test_narrow_tiles_round_once_for_each_operation():
    x, y = on_tile(narrow)
    a = x.astype(BF).astype(np.float32)
    a = (a * a).astype(BF).astype(np.float32)
    assert (y == (a + a).astype(BF).astype(np.float32)).all()


MASKS = {
    "tril": (lambda t: warp.tril(t, 1, 7.0), lambda r, c: c <= r + 1, 7),
    "causal": (None, lambda r, c: c <= r, -np.inf),
}


@tk.kernel(warps=1)
def tril(x: tk.gl_fl, y: tk.gl_fl):
    t = tk.rt_fl(32, 48)
    warp.load(t, x, (blockIdx.x, 0))
    warp.tril(t, blockIdx.x, 7.0)
    warp.store(y, t, (blockIdx.x, 0))


@tk.kernel(warps=1)
def triu(x: tk.gl_fl, y: tk.gl_fl):
    t = tk.rt_fl(32, 48)
    warp.load(t, x, (blockIdx.x, 0))
    warp.triu(t)
    warp.store(y, t, (blockIdx.x, 0))


@tk.kernel(warps=1)
def causal(x: tk.gl_fl, y: tk.gl_fl):
    t = tk.rt_fl(32, 48)
    warp.load(t, x, (blockIdx.x, 0))
    warp.make_causal(t)
    warp.store(y, t, (blockIdx.x, 0))


@tk.kernel(warps=1)
def fills(x: tk.gl_fl, y: tk.gl_fl):
    t = tk.rt_fl(32, 48)
    warp.load(t, x, (blockIdx.x, 0))
    warp.right_fill(t, 40 + blockIdx.x, 1.0)
    warp.left_fill(t, 5, 2.0)
    warp.lower_fill(t, 30, 3.0)
    warp.upper_fill(t, 2, 4.0)
    warp.store(y, t, (blockIdx.x, 0))


def test_masks():
    r, c = np.arange(32)[:, None], np.arange(48)[None]
    b = np.arange(3)[:, None, None]
    x, y = on_tile(tril)
    assert (y == np.where(c <= r + b, x, 7)).all()
    x, y = on_tile(triu)
    assert (y == np.where(c >= r, x, 0)).all()
    x, y = on_tile(causal)
    assert (y == np.where(c <= r, x, -np.inf)).all()
    x, y = on_tile(fills)
    want = np.where(c + 0 * b >= 40 + b, 1, x)
    want = np.where(c < 5, 2, want)
    want = np.where(r >= 30, 3, want)
    assert (y == np.where(r < 2, 4, want)).all()


# ------------------------------------------------------------------------------------ products
def products(ta: bool, tb: bool, dtype, acc):
    """acc += op(A) @ op(B), twice, with everything loaded from global memory."""

    @tk.kernel(warps=1)
    def mma(A: tk.gl(dtype), B: tk.gl(dtype), C: tk.gl(acc)):
        a = tk.rt(dtype, 32 if ta else 16, 16 if ta else 32, tk.col if ta else tk.row)
        b = tk.rt(dtype, 48 if tb else 32, 32 if tb else 48, tk.row if tb else tk.col)
        c = tk.rt(acc, 16, 48)
        warp.load(a, A, (0, 0))
        warp.load(b, B, (0, 0))
        warp.one(c)
        for _ in range(2):
            if ta:
                if tb:
                    warp.mma_AtBt(c, a, b)
                else:
                    warp.mma_AtB(c, a, b)
            else:
                if tb:
                    warp.mma_ABt(c, a, b)
                else:
                    warp.mma_AB(c, a, b)
        warp.store(C, c, (0, 0))

    return mma


@pytest.mark.parametrize("ta", [False, True])
@pytest.mark.parametrize("tb", [False, True])
def test_products(ta, tb):
    k = products(ta, tb, tk.bf16, tk.f32)
    A, B = bf(16, 32), bf(32, 48)
    C = np.zeros((16, 48), np.float32)
    k.sim[1](A.T.copy() if ta else A, B.T.copy() if tb else B, C)
    want = 1 + 2 * (A.astype(np.float64) @ B.astype(np.float64))
    np.testing.assert_allclose(C, want, rtol=0, atol=32 * 2.0**-24 * 32)


def test_tf32_inputs_are_rounded():
    A, B = f32(16, 32), f32(32, 48)
    C = np.zeros((16, 48), np.float32)
    products(False, False, tk.f32, tk.f32).sim[1](A, B, C)
    cut = [
        ((x.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000))
        .view(np.float32)
        .astype(np.float64)
        for x in (A, B)
    ]
    np.testing.assert_allclose(C, 1 + 2 * (cut[0] @ cut[1]), rtol=0, atol=32 * 2.0**-24 * 32)
    assert (
        np.abs(C - (1 + 2 * (A.astype(np.float64) @ B))).max() > 1e-3
    )  # full inputs would be closer


def test_f16_accumulators_round():
    A, B = f32(16, 32).astype(np.float16), f32(32, 48).astype(np.float16)
    C = np.zeros((16, 48), np.float16)
    products(False, False, tk.f16, tk.f16).sim[1](A, B, C)
    p = A.astype(np.float32) @ B.astype(np.float32)
    want = ((p + 1).astype(np.float16).astype(np.float32) + p).astype(np.float16)
    assert np.abs(C.astype(np.float32) - want.astype(np.float32)).max() <= 2.0**-6


@tk.kernel(warps=1)
def keeps_operands(A: tk.gl_bf, C: tk.gl_fl, D: tk.gl_fl):
    a = tk.rt_bf(16, 16)
    b = tk.rt_bf(16, 16, tk.col)
    c = tk.rt_fl(16, 16)
    d = tk.rt_fl(16, 16)
    s = tk.shared(tk.st_bf(16, 16))
    block.load(s, A, (0, 0))
    block.sync()
    warp.load(a, s)
    warp.load(b, s)
    warp.zero(c)
    warp.mma_AB(c, a, b)
    block.sync()
    warp.zero(a)
    warp.store(s, a)
    block.sync()
    warp.copy(d, c)
    warp.load(a, s)
    warp.mma_AB(c, a, b)
    warp.store(C, c, (0, 0))
    warp.store(D, d, (0, 0))


def test_products_use_the_operands_of_their_time():
    A = bf(16, 16)
    C, D = np.zeros((16, 16), np.float32), np.zeros((16, 16), np.float32)
    keeps_operands.sim[1](A, C, D)
    want = A.astype(np.float32) @ A.astype(np.float32)
    np.testing.assert_allclose(C, want, atol=1e-4)
    assert (C == D).all()


@tk.kernel(warps=1)
def instructions(A: tk.gl_bf, B: tk.gl_bf, C: tk.gl_fl):
    a_s = tk.shared(tk.st_bf(16, 16))
    b_s = tk.shared(tk.st_bf(16, 16))
    block.load(a_s, A, (0, 0))
    block.load(b_s, B, (0, 0))
    block.sync()
    a = tk.reg_array(tk.bf16, 8)
    b = tk.reg_array(tk.bf16, 4)
    c = tk.reg_array(tk.f32, 4)
    for i in tk.static_range(4):
        c[i] = 0.0
    warp.ldmatrix(a, a_s[laneid() % 16, laneid() // 16 * 8])
    warp.ldmatrix(b, b_s[laneid() % 16, 0], True)
    warp.mma_m16n8k16(c, a, b)
    g = laneid() // 4
    t = laneid() % 4
    for i in tk.static_range(4):
        C[g + 8 * (i // 2), 2 * t + i % 2] = c[i]


def test_ldmatrix_and_one_instruction():
    A, B = bf(16, 16), bf(16, 16)
    C = np.zeros((16, 8), np.float32)
    r = instructions.sim[1](A, B, C)
    np.testing.assert_allclose(C, A.astype(np.float32) @ B.astype(np.float32)[:, :8], atol=1e-4)
    assert r.total["tensor_instructions"] == 1
    assert r.total["shared_ld_wavefronts"] == 6


# ----------------------------------------------------------------------------- between the lanes
@tk.kernel(threads=64)
def lanes(x: tk.gl_fl, n: tk.i32, y: tk.gl_fl, v: tk.gl(tk.u32)):
    i = blockIdx.x * 64 + threadIdx.x
    a = x[i]
    y[i, 0] = warp.shfl(a, n)
    y[i, 1] = warp.shfl(a, (laneid() * 3) % 32)
    y[i, 2] = warp.shfl_up(a, 2)
    y[i, 3] = warp.shfl_down(a, n)
    y[i, 4] = warp.shfl_xor(a, 5)
    v[i, 0] = warp.ballot(a > 0.0)
    if warp.any(a > 2.0):
        v[i, 1] = 1
    if warp.all(a > -2.0):
        v[i, 2] = 1


def test_shuffles_and_votes():
    x, y, v = f32(192), np.zeros((192, 5), np.float32), np.zeros((192, 3), np.uint32)
    lanes.sim[3](x, 7, y, v)
    w, ln = x.reshape(6, 32), np.arange(32)
    want = [
        np.repeat(w[:, 7:8], 32, 1),
        w[:, ln * 3 % 32],
        w[:, np.where(ln >= 2, ln - 2, ln)],
        w[:, np.where(ln + 7 < 32, ln + 7, ln)],
        w[:, ln ^ 5],
    ]
    assert (y == np.stack(want, -1).reshape(192, 5)).all()
    ballot = ((w > 0).astype(np.uint64) << ln.astype(np.uint64)).sum(1).astype(np.uint32)
    assert (v.reshape(6, 32, 3)[:, :, 0] == ballot[:, None]).all()
    assert (v.reshape(6, 32, 3)[:, :, 1] == (w > 2).any(1)[:, None]).all()
    assert (v.reshape(6, 32, 3)[:, :, 2] == (w > -2).all(1)[:, None]).all()


@tk.kernel(threads=64)
def histogram(x: tk.gl(tk.i32), y: tk.gl(tk.i32), old: tk.gl(tk.i32)):
    bins = tk.shared_array(tk.i32, 8)
    if threadIdx.x < 8:
        bins[threadIdx.x] = 0
    block.sync()
    tk.atomic_add(bins[x[blockIdx.x * 64 + threadIdx.x]], 1)
    block.sync()
    if threadIdx.x < 8:
        tk.atomic_add(y[threadIdx.x], bins[threadIdx.x])
    k = tk.atomic_max(old[0], threadIdx.x)
    tk.atomic_min(old[1], -k)
    tk.atomic_cas(old[2], threadIdx.x, threadIdx.x + 1)


def test_atomics():
    x, y, old = (
        RNG.integers(0, 8, 256).astype(np.int32),
        np.zeros(8, np.int32),
        np.zeros(3, np.int32),
    )
    r = histogram.sim[4](x, y, old)
    assert (y == np.bincount(x, minlength=8)).all()
    assert old.tolist() == [63, -63, 64]
    assert r.total["atomics"] == 4 * (64 + 8 + 3 * 64)


# -------------------------------------------------------------------------------------- numbers
@tk.kernel(threads=32)
def numbers(x: tk.gl_fl, i: tk.gl(tk.i32), u: tk.gl(tk.u32), b: tk.gl(tk.u8), h: tk.gl_hf):
    t = threadIdx.x
    a = x[t]
    n = int(a)
    i[t, 0] = n
    i[t, 1] = (t - 16) // 5
    i[t, 2] = (t - 16) % 5
    i[t, 3] = (t - 16) // 4 * 100 + (t - 16) % 4
    i[t, 4] = tk.cdiv(t, 3)
    i[t, 5] = abs(t - 16) + min(t, 7) - max(t, 9)
    i[t, 6] = (t << 3 | 5) ^ t & ~2
    w = tk.u32(t)
    u[t, 0] = w - 5
    u[t, 1] = w * 3000000007
    b[t] = t * 3
    h[t] = a


def test_number_conversions():
    x = np.array([1.5, -1.5, 3e9, -3e9, np.nan, np.inf, -np.inf, 0.0, *f32(24) * 100], np.float32)
    i, u = np.zeros((32, 7), np.int32), np.zeros((32, 2), np.uint32)
    b, h = np.zeros(32, np.uint8), np.zeros(32, np.float16)
    numbers.sim[1](x, i, u, b, h)
    t = np.arange(32)
    assert i[:8, 0].tolist() == [1, -1, 2147483647, -2147483648, 0, 2147483647, -2147483648, 0]
    assert (i[8:, 0] == np.trunc(x[8:]).astype(np.int32)).all()
    assert (i[:, 1] == (t - 16) // 5).all()
    assert (i[:, 2] == (t - 16) % 5).all()
    assert (i[:, 3] == (t - 16) // 4 * 100 + (t - 16) % 4).all()
    assert (i[:, 4] == -(-t // 3)).all()
    assert (i[:, 5] == abs(t - 16) + np.minimum(t, 7) - np.maximum(t, 9)).all()
    assert (i[:, 6] == (t << 3 | 5) ^ t & ~2).all()
    assert (u[:, 0] == (t - 5).astype(np.uint32)).all()
    assert (u[:, 1] == (t.astype(np.uint64) * 3000000007).astype(np.uint32)).all()
    assert (b == (t * 3 % 256)).all()
    assert (h[8:] == x[8:].astype(np.float16)).all()


@tk.kernel(threads=32)
def fused(x: tk.gl_fl, y: tk.gl_fl):
    t = threadIdx.x
    a = x[t, 0]
    b = x[t, 1]
    c = x[t, 2]
    y[t, 0] = a * b + c
    y[t, 1] = a * b - c
    p = a * b
    y[t, 2] = p + c


def test_fused_multiply_add_rounds_once():
    x, y = f32(32, 3), np.zeros((32, 3), np.float32)
    x[:, 2] = -(x[:, 0] * x[:, 1])  # all that is left is the rounding error of the product
    fused.sim[1](x, y)
    d = x.astype(np.float64)
    assert (y[:, 0] == (d[:, 0] * d[:, 1] + d[:, 2]).astype(np.float32)).all()
    assert (y[:, 1] == (d[:, 0] * d[:, 1] - d[:, 2]).astype(np.float32)).all()
    assert (y[:, 2] == 0).all()
    assert (y[:, 0] != 0).any()


# ------------------------------------------------------------------------------------- layouts
@tk.kernel(warps=2)
def vectors(x: tk.gl_bf, y: tk.gl_fl, z: tk.gl_fl):
    v = tk.rv(tk.f32, 100)
    warp.load(v, x, (blockIdx.x * 2 + warpid(), 0))
    v -= tk.sum(v) / 100.0
    v *= tk.max(v)
    s = tk.shared(tk.sv(tk.f32, 100), 2)
    warp.store(s[warpid()], v)
    warp.sync()
    u = tk.rv(tk.f32, 100)
    warp.load(u, s[warpid()])
    warp.store(y, u, (blockIdx.x * 2 + warpid(), 0))
    c = tk.col_vec(32)
    warp.load(c, x, (blockIdx.x * 2 + warpid(), 1))
    warp.store(z, c, (blockIdx.x * 2 + warpid(), 0))


def test_vectors():
    x, y, z = bf(6, 100), np.zeros((6, 100), np.float32), np.zeros((6, 32), np.float32)
    vectors.sim[3](x, y, z)
    v = x.astype(np.float32)
    v = v - (fold_sum(v, -1, 32) / np.float32(100))[:, None]
    assert (y == v * v.max(1, keepdims=True)).all()
    assert (z == x[:, 32:64].astype(np.float32)).all()


@tk.kernel(warps=1)
def registers(x: tk.gl_fl, y: tk.gl_fl):
    t = tk.rt_fl(16, 16)
    warp.load(t, x, (0, 0))
    u = tk.transpose(t)
    for i in tk.static_range(8):
        y[laneid(), i] = t.reg(i)
        y[laneid(), 8 + i] = u.reg(i)


def test_registers_of_a_tile():
    from tklearn.lang.layouts import rt_coords

    x, y = f32(16, 16), np.zeros((32, 16), np.float32)
    registers.sim[1](x, y)
    row, col = rt_coords(16, 16, "row")
    assert (y[:, :8] == x[row, col]).all()
    assert (y[:, 8:] == x[col, row]).all()


@tk.kernel(warps=4)
def strided(x: tk.gl_fl, y: tk.gl_fl):
    s = tk.shared(tk.st_fl(64, 64))
    block.load(s, x, (blockIdx.x, 0, 0))
    block.sync()
    block.store(y, s, (blockIdx.x, 0, 0))


def test_strided_views_and_edges():
    whole = f32(3, 70, 100)
    out = np.full((3, 50, 60), 7, np.float32)
    view, target = whole[:, 10:60, 20:80], out[:, :, :]
    r = strided.sim[3](view, target)
    assert (target == view).all()
    assert sum(r.clipped.values()) == 2 * 3 * (64 * 64 - 50 * 60)
    wide = np.zeros((3, 50, 128), np.float32)
    strided.sim[3](view, wide[:, :, 30:90])
    assert (wide[:, :, 30:90] == view).all()
    assert not wide[:, :, :30].any()
    assert not wide[:, :, 90:].any()


@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, np.float16])
def test_narrow_storage(dtype):
    name = {"float8_e4m3fn": tk.e4m3, "float8_e5m2": tk.e5m2, "float16": tk.f16}[
        np.dtype(dtype).name
    ]

    @tk.kernel(warps=1)
    def move(x: tk.gl_fl, y: tk.gl(name), z: tk.gl_fl):
        s = tk.shared(tk.st(name, 16, 32))
        t = tk.rt(name, 16, 32)
        warp.load(t, x, (0, 0))
        warp.store(s, t)
        block.sync()
        block.store(y, s, (0, 0))
        warp.load(t, s)
        warp.store(z, t, (0, 0))

    x, y, z = f32(16, 32), np.zeros((16, 32), dtype), np.zeros((16, 32), np.float32)
    move.sim[1](x, y, z)
    assert (y == x.astype(dtype)).all()
    assert (z == x.astype(dtype).astype(np.float32)).all()


@tk.kernel(warps=2)
def alias(x: tk.gl_bf, y: tk.gl_bf, z: tk.gl(tk.u32)):
    s = tk.shared(tk.st_bf(32, 32))
    words = tk.alias(s, (tk.u32, 512))
    block.load(s, x, (0, 0))
    block.sync()
    for k in range(8):
        z[k * 64 + threadIdx.x] = words[k * 64 + threadIdx.x]
    block.sync()
    words[threadIdx.x] = tk.u32(0)
    block.sync()
    block.store(y, s, (0, 0))


def test_aliases_see_the_bytes():
    from tklearn.lang.layouts import st_offset

    x, y, z = bf(32, 32), bf(32, 32), np.zeros(512, np.uint32)
    alias.sim[1](x, y, z)
    raw = np.zeros(2048, np.uint8)
    off = st_offset(32, 32, 2, 64)
    raw[off[..., None] + np.arange(2)] = x.view(np.uint8).reshape(32, 32, 2)
    assert (z == raw.view(np.uint32)).all()
    raw[:256] = 0
    assert (y.view(np.uint8).reshape(32, 32, 2) == raw[off[..., None] + np.arange(2)]).all()


# --------------------------------------------------------------------------- all of it together
SCALE = 0.125 * 1.4426950408889634


@tk.kernel(warps=4)
def attend(Q: tk.gl_bf, K: tk.gl_bf, V: tk.gl_bf, out: tk.gl_bf):
    k_s = tk.shared(tk.st_bf(64, 64), 2)
    v_s = tk.shared(tk.st_bf(64, 64), 2)
    q = tk.rt_bf(16, 64)
    k = tk.rt_bf(64, 64)
    v = tk.rt_bf(64, 64, tk.col)
    p = tk.rt_bf(16, 64)
    att = tk.rt_fl(16, 64)
    o = tk.rt_fl(16, 64)
    m = tk.col_vec(16)
    total = tk.col_vec(16)
    warp.zero(o)
    warp.zero(total)
    warp.neg_infty(m)
    warp.load(q, Q, (blockIdx.z, blockIdx.y, blockIdx.x * 4 + warpid(), 0))
    n = K.rows // 64
    block.load_async(k_s[0], K, (blockIdx.z, blockIdx.y, 0, 0))
    block.load_async(v_s[0], V, (blockIdx.z, blockIdx.y, 0, 0))
    tk.commit_group()
    for i in range(n):
        tk.wait_group(0)
        block.sync()
        if i + 1 < n:
            block.load_async(k_s[(i + 1) % 2], K, (blockIdx.z, blockIdx.y, i + 1, 0))
            block.load_async(v_s[(i + 1) % 2], V, (blockIdx.z, blockIdx.y, i + 1, 0))
        tk.commit_group()
        warp.load(k, k_s[i % 2])
        warp.zero(att)
        warp.mma_ABt(att, q, k)
        m_last = m * SCALE
        m = tk.row_max(att, m)
        m_now = m * SCALE
        att = tk.exp2(att * SCALE - m_now)
        corr = tk.exp2(m_last - m_now)
        total = tk.row_sum(att, total * corr)
        o *= corr
        warp.copy(p, att)
        warp.load(v, v_s[i % 2])
        warp.mma_AB(o, p, v)
    o /= total
    warp.store(out, o, (blockIdx.z, blockIdx.y, blockIdx.x * 4 + warpid(), 0))


@pytest.mark.parametrize("schedule", ["rotate", "reverse", "random"])
def test_attention_with_a_two_stage_pipeline(schedule):
    """Products, row maps, cp.async, tiles that are refilled: right, and no false alarm."""
    q, k, v = (bf(2, 2, 192, 64) for _ in range(3))
    x, y, z = (a.astype(np.float32) for a in (q, k, v))
    e = np.exp((t := x @ y.swapaxes(-1, -2) * 0.125) - t.max(-1, keepdims=True))
    want = (e / e.sum(-1, keepdims=True)) @ z
    outs = []
    for batch in (True, False):
        o = np.zeros_like(q)
        r = attend.sim[3, 2, 2](q, k, v, o, schedule=schedule, batch=batch)
        outs.append((o.tobytes(), r.lines))
        # p and the output are rounded to 8 bits
        np.testing.assert_allclose(o.astype(np.float32), want, rtol=0, atol=2.0**-7)
    assert outs[0] == outs[1]
    assert r.total["shared_ld_conflicts"] == r.total["shared_st_conflicts"] == 0
    assert r.total["tensor_flops"] == 2 * 2 * 4 * 192 * 192 * 64


@tk.kernel(warps=1)
def ragged_product(A: tk.gl_bf, B: tk.gl_bf, C: tk.gl_fl):
    a = tk.rt_bf(16, 16)
    b = tk.rt_bf(16, 16, tk.col)
    acc = tk.rt_fl(16, 16)
    warp.zero(acc)
    for k in range(tk.cdiv(A.cols, 16)):
        warp.load(a, A, (blockIdx.y, k))
        warp.load(b, B, (k, blockIdx.x))
        warp.mma_AB(acc, a, b)
    warp.store(C, acc, (blockIdx.y, blockIdx.x))


@pytest.mark.parametrize("mma", ["fast", "exact"])
@pytest.mark.parametrize("shape", [(20, 100, 17), (64, 64, 64), (33, 48, 80)])
def test_products_have_one_order_of_additions(shape, mma):
    """Whether blocks run together or alone, and whatever lies beside them in memory."""
    m, k, n = shape
    rng = np.random.default_rng(3)
    A = rng.standard_normal((m, k), dtype=np.float32).astype(ml_dtypes.bfloat16)
    B = rng.standard_normal((k, n), dtype=np.float32).astype(ml_dtypes.bfloat16)
    found = []
    for batch in (True, False):
        C = np.zeros((m, n), np.float32)
        ragged_product.sim[-(-n // 16), -(-m // 16)](A, B, C, batch=batch, mma=mma)
        found.append(C.tobytes())
    assert found[0] == found[1]
