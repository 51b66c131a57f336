"""Counters against numbers worked out by hand; batched runs against single blocks."""

from __future__ import annotations

import inspect

import ml_dtypes
import numpy as np
import pytest

import tklearn as tk
from tklearn import block, blockIdx, laneid, threadIdx, warp, warpid
from tklearn.kernels import gemm, layernorm, reduction, rotary, saxpy, softmax, transpose
from tklearn.lang.ops import OPS
from tklearn.sim import registry as sim_ops

RNG = np.random.default_rng(3)


def f32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def bf(*shape: int) -> np.ndarray:
    return f32(*shape).astype(ml_dtypes.bfloat16)


def line_of(kernel, text: str) -> int:
    lines, first = inspect.getsourcelines(kernel.fn)
    return first + next(i for i, x in enumerate(lines) if text in x)


def test_every_row_of_the_op_table_has_an_implementation():
    assert set(OPS) <= set(sim_ops.OPS)


# ------------------------------------------------------------------------------ global sectors
def strided(stride: int, offset: int = 0):
    @tk.kernel(threads=32)
    def read(x: tk.gl_fl, y: tk.gl_fl):
        y[blockIdx.x * 32 + threadIdx.x] = x[threadIdx.x * stride + offset]

    return read


@pytest.mark.parametrize(
    ("stride", "offset", "sectors"),
    [(0, 0, 1), (1, 0, 4), (2, 0, 8), (8, 0, 32), (1, 1, 5), (32, 0, 32)],
)
def test_sectors_of_strides(stride, offset, sectors):
    x, y = f32(1100), f32(96)
    k = strided(stride, offset)
    r = k.sim[3](x, y)
    line = line_of(k, "y[")
    assert r.lines[line]["global_ld_sectors"] == 3 * sectors
    assert r.lines[line]["global_ld_requests"] == 3
    assert r.lines[line]["global_st_sectors"] == 12
    assert (y[:32] == x[np.arange(32) * stride + offset]).all()


@tk.kernel(threads=32)
def float4(x: tk.gl_fl, y: tk.gl_fl):
    tk.vec(y, 4)[threadIdx.x] = tk.vec(x, 4)[threadIdx.x]


def test_vector_accesses():
    x, y = f32(128), f32(128)
    t = float4.sim[1](x, y).total
    assert (x == y).all()
    assert (t["global_ld_requests"], t["global_ld_sectors"], t["global_st_sectors"]) == (1, 16, 16)


@tk.kernel(threads=64)
def masked(n: tk.i32, x: tk.gl_fl, y: tk.gl_fl):
    i = blockIdx.x * 64 + threadIdx.x
    if i < n:
        y[i] = x[i]


def test_inactive_lanes_count_nothing():
    x, y = f32(256), f32(256)
    t = masked.sim[4](100, x, y).total
    assert (t["global_ld_requests"], t["global_ld_sectors"]) == (4, 13)  # 8 * 12 + 4 floats


def test_views_keep_their_alignment():
    x, y = f32(257), f32(256)
    assert masked.sim[4](256, x[1:], y).total["global_ld_sectors"] == 8 * 5
    wide = f32(256, 2)
    assert masked.sim[4](256, wide[:, 0].copy(), y).total["global_ld_sectors"] == 32


# --------------------------------------------------------------------------------- bank conflicts
def column(width: int, swizzle: int = 0):
    @tk.kernel(threads=32)
    def read(y: tk.gl_fl):
        s = tk.shared_array(tk.f32, 32, width)
        for j in range(32):
            s[j, laneid()] = 1.0
        warp.sync()
        y[laneid()] = s[laneid(), 3]

    return read


@pytest.mark.parametrize(("width", "wavefronts"), [(32, 32), (33, 1), (34, 2), (36, 4), (40, 8)])
def test_case_16_columns(width, wavefronts):
    k = column(width)
    r = k.sim[2](f32(32)) if False else k.sim[1](f32(32))
    at = r.lines[line_of(k, "y[laneid()]")]
    assert at["shared_ld_wavefronts"] == wavefronts
    assert at.get("shared_ld_conflicts", 0) == wavefronts - 1
    assert at["shared_ld_ideal"] == 1
    assert r.lines[line_of(k, "= 1.0")]["shared_st_wavefronts"] == 32


@tk.kernel(threads=32)
def case_17(y: tk.gl_fl):
    s = tk.shared_array(tk.f32, 32, 32)
    for j in range(32):
        s[j, laneid()] = 1.0
    warp.sync()
    v = tk.vec(s, 4)[laneid(), 0]
    w = tk.vec(s, 4)[laneid() // 8, laneid() % 8]
    y[laneid()] = v[0] + w[0]


def test_case_17_float4():
    r = case_17.sim[1](f32(32))
    first, second = line_of(case_17, "v = tk.vec"), line_of(case_17, "w = tk.vec")
    assert (r.lines[first]["shared_ld_wavefronts"], r.lines[first]["shared_ld_ideal"]) == (32, 4)
    assert (r.lines[second]["shared_ld_wavefronts"], r.lines[second]["shared_ld_ideal"]) == (4, 4)


def halves(cols: int, swizzle: int | None = None, pad: int = 0):
    tile = tk.st(tk.bf16, 16, cols, swizzle, pad)

    @tk.kernel(warps=1)
    def read(x: tk.gl_bf, y: tk.gl_bf):
        s = tk.shared(tile)
        t = tk.rt_bf(16, cols)
        block.load(s, x, (0, 0))
        block.sync()
        warp.load(t, s)
        warp.store(y, t, (0, 0))

    return read


@pytest.mark.parametrize(
    ("cols", "how", "each"),
    [
        (64, {"swizzle": 0}, 8),
        (32, {"swizzle": 0}, 4),
        (16, {"swizzle": 0}, 2),
        (64, {"pad": 8}, 1),
        (32, {"pad": 8}, 1),
        (64, {}, 1),
        (32, {}, 1),
        (16, {}, 1),
        (64, {"swizzle": 64}, 1),
    ],
)
def test_case_20_ldmatrix_rows(cols, how, each):
    x, y = bf(16, cols), bf(16, cols)
    k = halves(cols, **how)
    r = k.sim[1](x, y)
    assert (x == y).all()
    at = r.lines[line_of(k, "warp.load(t, s)")]
    matrices = 4 * cols // 16
    assert (at["shared_ld_wavefronts"], at["shared_ld_ideal"]) == (each * matrices, matrices)


def test_odd_paddings_go_without_ldmatrix():
    x, y = bf(16, 64), bf(16, 64)
    k = halves(64, pad=2)
    r = k.sim[1](x, y)
    assert (x == y).all()
    assert (
        r.lines[line_of(k, "warp.load(t, s)")]["shared_ld_ideal"] == 16
    )  # pairs of halves: 4 a base tile


# -------------------------------------------------------------------------------------- tiles
@tk.kernel(warps=4)
def product(A: tk.gl_bf, B: tk.gl_bf, C: tk.gl_fl):
    a_s = tk.shared(tk.st_bf(64, 64))
    b_s = tk.shared(tk.st_bf(64, 64))
    a = tk.rt_bf(16, 64)
    b = tk.rt_bf(64, 64, tk.col)
    acc = tk.rt_fl(16, 64)
    warp.zero(acc)
    for k in range(A.cols // 64):
        block.load(a_s, A, (blockIdx.y, k))
        block.load(b_s, B, (k, blockIdx.x))
        block.sync()
        warp.load(a, a_s.subtile(16, 64, (warpid(), 0)))
        warp.load(b, b_s)
        warp.mma_AB(acc, a, b)
        block.sync()
    warp.store(C, acc, (blockIdx.y * 4 + warpid(), blockIdx.x))


def test_tile_product_counts():
    A, B, C = bf(128, 192), bf(192, 64), f32(128, 64)
    r = product.sim[1, 2](A, B, C)
    np.testing.assert_allclose(C, A.astype(np.float32) @ B.astype(np.float32), rtol=1e-4, atol=1e-4)
    steps, blocks = 3, 2
    load = r.lines[line_of(product, "block.load(a_s")]
    assert load["global_ld_sectors"] == blocks * steps * 64 * 64 * 2 // 32
    assert load["global_ld_requests"] == blocks * steps * 64 * 64 * 2 // 512
    assert (
        load["shared_st_wavefronts"]
        == load["shared_st_ideal"]
        == blocks * steps * 64 * 64 * 2 // 128
    )
    reads = r.lines[line_of(product, "warp.load(b, b_s)")]
    assert reads["shared_ld_wavefronts"] == blocks * steps * 4 * 64 * 64 * 2 // 128
    tensor = r.lines[line_of(product, "mma_AB")]
    assert tensor["tensor_flops"] == 2 * 128 * 64 * 192
    assert tensor["tensor_instructions"] == 128 * 64 * 192 // (16 * 8 * 16)
    assert r.lines[line_of(product, "block.sync()")]["barriers"] == blocks * steps * 4
    store = r.lines[line_of(product, "warp.store")]
    assert store["global_st_sectors"] == 128 * 64 * 4 // 32
    assert store["global_st_requests"] == 128 * 64 // 64


def test_clipped_elements():
    A, B, C = bf(100, 64), bf(64, 50), f32(100, 50)
    r = product.sim[1, 2](A, B, C)
    np.testing.assert_allclose(C, A.astype(np.float32) @ B.astype(np.float32), rtol=1e-4, atol=1e-4)
    assert r.clipped[line_of(product, "block.load(a_s")] == 28 * 64
    assert r.clipped[line_of(product, "block.load(b_s")] == 2 * 64 * 14
    assert r.clipped[line_of(product, "warp.store")] == 128 * 64 - 100 * 50


# ------------------------------------------------------------------------- batched, unbatched
def both(run, *args, **options):
    """The same call batched and one block at a time: (result bytes, counts) of each."""
    out = []
    for batch in (True, False):
        result, report = run(*args, report=True, batch=batch, **options)
        reports = report if isinstance(report, list) else [report]
        results = result if isinstance(result, tuple) else (result,)
        out.append(
            (
                [np.asarray(x).tobytes() for x in results],
                [(r.lines, r.clipped) for r in reports],
                sum(r.stats["batches"] for r in reports),
            )
        )
    assert out[0][0] == out[1][0]
    assert out[0][1] == out[1][1]
    return out[0][2], out[1][2]


@pytest.mark.parametrize("shape", [(128, 128, 128), (65, 70, 33), (1, 7, 65), (200, 96, 160)])
def test_gemm_batched(shape):
    m, n, k = shape
    few, many = both(gemm.run, bf(m, k), bf(k, n))
    assert few <= many


@pytest.mark.parametrize("variant", ["naive", "padded", "swizzled"])
def test_transpose_batched(variant):
    if variant not in inspect.getsource(transpose):
        pytest.skip("no such variant")
    both(transpose.run, f32(96, 160), variant=variant)
    both(transpose.run, f32(33, 65), variant=variant)


def test_other_kernels_batched():
    both(saxpy.run, 2.0, f32(1000), f32(1000))
    both(softmax.run, f32(37, 129))
    both(softmax.run, bf(9, 64))
    both(softmax.run, f32(3, 4500))
    for variant in ("staged", "atomic"):
        both(reduction.run, f32(20000), variant=variant)
    both(layernorm.run, bf(70, 256), bf(70, 256), bf(256), bf(256))
    assert rotary is not None


@tk.kernel(threads=64)
def float_atomics(x: tk.gl_fl, y: tk.gl_fl):
    for k in range(3):
        tk.atomic_add(
            y[(blockIdx.x + threadIdx.x + k) % 7], x[(blockIdx.x * 64 + threadIdx.x + k) % 640]
        )
        block.sync()


def test_float_atomics_apply_in_block_order():
    x = f32(640) * np.float32(10.0) ** RNG.integers(-6, 6, 640).astype(np.float32)
    out = []
    for batch in (True, False):
        y = np.zeros(7, np.float32)
        r = float_atomics.sim[10](x, y, batch=batch)
        out.append((y.tobytes(), r.lines))
    assert out[0] == out[1]


@pytest.mark.parametrize("schedule", ["reverse", "random"])
def test_schedules_give_the_same_bits(schedule):
    A, B = bf(100, 70), bf(70, 90)
    want = gemm.run(A, B)
    got = gemm.run(A, B, schedule=schedule, seed=5, delay={1: 3})
    assert want.tobytes() == got.tobytes()


def test_only_some_blocks():
    x, y = f32(256), np.zeros(256, np.float32)
    masked.sim[4](256, x, y, blocks=[1, (3, 0, 0)])
    assert (y[64:128] == x[64:128]).all()
    assert (y[192:] == x[192:]).all()
    assert not y[:64].any()
    assert not y[128:192].any()


# ---------------------------------------------------------------------------- how much work it is
WORK = {
    # kernel: (run, most resumes, most counted operations) on the sizes below
    "gemm": (lambda: gemm.run(bf(512, 512), bf(512, 512), report=True), 48, 700),
    "softmax": (lambda: softmax.run(f32(1024, 256), report=True), 8, 16),
    "saxpy": (lambda: saxpy.run(1.0, f32(1 << 16), f32(1 << 16), report=True), 16, 48),
    "transpose": (lambda: transpose.run(f32(512, 512), report=True), 64, 400),
    "reduction": (lambda: reduction.run(f32(1 << 16), report=True), 64, 400),
    "layernorm": (
        lambda: layernorm.run(bf(256, 512), bf(256, 512), bf(512), bf(512), report=True),
        64,
        200,
    ),
}


@pytest.mark.parametrize("name", WORK)
def test_work_of_the_simulator_is_bounded(name):
    """A kernel that falls out of the batched path costs a hundred times these numbers."""
    run, resumes, calls = WORK[name]
    told = run()[1]
    reports = told if isinstance(told, list) else [told]
    assert sum(r.stats["resumes"] for r in reports) <= resumes
    assert sum(r.stats["calls"] for r in reports) <= calls


# -------------------------------------------------------------------------------- printed lines
@tk.kernel(threads=32)
def printing(n: tk.i32):
    if threadIdx.x < 2:
        print("lane", threadIdx.x, "of", n)


def test_print_names_block_and_warp(capsys):
    printing.sim[2](7)
    out = capsys.readouterr().out
    assert "[block (0, 0, 0) warp 0 lanes [0, 1]] lane [0 1] of 7" in out
    assert "[block (1, 0, 0) warp 0" in out


def test_breakpoint_stops_in_the_kernel(monkeypatch):
    import sys

    seen = []
    monkeypatch.setattr(
        sys, "breakpointhook", lambda: seen.append((sys._getframe(1), sys._getframe(1).f_lineno))
    )

    @tk.kernel(threads=32)
    def stops(x: tk.gl_fl):
        i = threadIdx.x
        breakpoint()
        x[i] = 1.0

    stops.sim[1](f32(32))
    ((frame, line),) = seen
    assert frame.f_code.co_filename == __file__
    assert "breakpoint()" in inspect.getsource(sys.modules[__name__]).splitlines()[line - 1]
    assert (frame.f_locals["i"] == np.arange(32)).all()


def test_tracebacks_show_the_kernel():
    import traceback

    @tk.kernel(threads=32)
    def bad(x: tk.gl_fl):
        i = threadIdx.x + 1
        x[i] = 1.0

    try:
        bad.sim[1](f32(32))
    except tk.TkError as e:
        text = "".join(traceback.format_exception(e))
    assert "x[i] = 1.0" in text
    assert __file__ in text
