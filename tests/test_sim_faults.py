"""Planted faults, each with a correct twin that must pass: FACTS.md 10, cases.md 1-8."""

from __future__ import annotations

import numpy as np
import pytest

import tklearn as tk
from tklearn import block, blockDim, blockIdx, laneid, threadIdx, warp, warpid
from tklearn.lang.errors import KernelFault, TkError

RNG = np.random.default_rng(7)
N = 64


def f32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def line_of(kernel: object, text: str) -> int:
    """The line of this file that holds `text` inside the kernel."""
    import inspect

    lines, first = inspect.getsourcelines(kernel.fn)  # type: ignore[attr-defined]
    return first + next(i for i, x in enumerate(lines) if text in x)


def fault(code: str, kernel: object, grid: object, *args: object, **options: object) -> TkError:
    with pytest.raises(TkError) as e:
        kernel.sim[grid](*args, **options)  # type: ignore[attr-defined]
    assert e.value.code == code, str(e.value)
    return e.value


# ------------------------------------------------------------------------- races between warps
@tk.kernel(threads=64)
def reversed_bad(x: tk.gl_fl, y: tk.gl_fl):
    s = tk.shared_array(tk.f32, 64)
    s[threadIdx.x] = x[threadIdx.x]
    y[threadIdx.x] = s[63 - threadIdx.x]


@tk.kernel(threads=64)
def reversed_good(x: tk.gl_fl, y: tk.gl_fl):
    s = tk.shared_array(tk.f32, 64)
    s[threadIdx.x] = x[threadIdx.x]
    block.sync()
    y[threadIdx.x] = s[63 - threadIdx.x]


@pytest.mark.parametrize("schedule", ["rotate", "reverse", "random"])
def test_missing_barrier(schedule):
    x, y = f32(N), f32(N)
    with pytest.raises(KernelFault) as e:
        reversed_bad.sim[1](x, y, schedule=schedule)
    # a warp that runs first reads what nobody wrote; one that runs second races
    assert e.value.code in ("TK500", "TK501", "TK503")
    reversed_good.sim[1](x, y, schedule=schedule)
    assert (y == x[::-1]).all()


@tk.kernel(threads=64)
def overwrite_bad(y: tk.gl_fl):
    s = tk.shared_array(tk.f32, 64)
    s[threadIdx.x] = 1.0
    block.sync()
    y[threadIdx.x] = s[63 - threadIdx.x]
    s[threadIdx.x] = 2.0


@tk.kernel(threads=64)
def overwrite_good(y: tk.gl_fl):
    s = tk.shared_array(tk.f32, 64)
    s[threadIdx.x] = 1.0
    block.sync()
    y[threadIdx.x] = s[63 - threadIdx.x]
    block.sync()
    s[threadIdx.x] = 2.0


def test_write_after_read():
    y = f32(N)
    e = fault("TK500", overwrite_bad, 1, y)
    assert e.loc.line == line_of(overwrite_bad, "= s[63") or e.loc.line == line_of(
        overwrite_bad, "= 2.0"
    )
    assert (
        str(line_of(overwrite_bad, "= s[63")) in e.message
        or str(line_of(overwrite_bad, "= 2.0")) in e.message
    )
    assert "s[" in e.message
    assert "warp 0" in e.message
    assert "block (0, 0, 0)" in e.message
    assert "block.sync()" in e.hint
    overwrite_good.sim[1](y)
    assert (y == 1).all()


@tk.kernel(threads=64)
def one_place_bad(y: tk.gl_fl):
    s = tk.shared_array(tk.f32, 4)
    if laneid() == 0:
        s[0] = 1.0 + warpid()
    block.sync()
    y[threadIdx.x] = s[0]


@tk.kernel(threads=64)
def one_place_good(y: tk.gl_fl):
    s = tk.shared_array(tk.f32, 4)
    if laneid() == 0:
        s[warpid()] = 1.0 + warpid()
    block.sync()
    y[threadIdx.x] = s[0]


def test_two_warps_write_one_place():
    y = f32(N)
    e = fault("TK500", one_place_bad, 1, y)
    assert "s[0]" in e.message
    one_place_good.sim[1](y)
    assert (y == 1).all()


@tk.kernel(threads=256)
def matmul_bad(A: tk.gl_fl, B: tk.gl_fl, C: tk.gl_fl):
    a_s = tk.shared_array(tk.f32, 16, 16)
    b_s = tk.shared_array(tk.f32, 16, 16)
    ty = threadIdx.x // 16
    tx = threadIdx.x % 16
    r = blockIdx.y * 16 + ty
    c = blockIdx.x * 16 + tx
    total = 0.0
    for k in range(A.cols // 16):
        a_s[ty, tx] = A[r, k * 16 + tx]
        b_s[ty, tx] = B[k * 16 + ty, c]
        block.sync()
        for j in range(16):
            total += a_s[ty, j] * b_s[j, tx]
    C[r, c] = total


@tk.kernel(threads=256)
def matmul_good(A: tk.gl_fl, B: tk.gl_fl, C: tk.gl_fl):
    a_s = tk.shared_array(tk.f32, 16, 16)
    b_s = tk.shared_array(tk.f32, 16, 16)
    ty = threadIdx.x // 16
    tx = threadIdx.x % 16
    r = blockIdx.y * 16 + ty
    c = blockIdx.x * 16 + tx
    total = 0.0
    for k in range(A.cols // 16):
        a_s[ty, tx] = A[r, k * 16 + tx]
        b_s[ty, tx] = B[k * 16 + ty, c]
        block.sync()
        for j in range(16):
            total += a_s[ty, j] * b_s[j, tx]
        block.sync()
    C[r, c] = total


@pytest.mark.parametrize("schedule", ["rotate", "reverse", "random"])
def test_case_1_and_8_matmul_with_one_barrier(schedule):
    A, B, C = f32(48, 48), f32(48, 48), f32(48, 48)
    with pytest.raises(KernelFault) as info:
        matmul_bad.sim[3, 3](A, B, C, schedule=schedule)
    e = info.value
    assert e.code in ("TK500", "TK501")
    assert "block.sync()" in e.hint
    lines = {
        line_of(matmul_bad, "b_s[ty, tx] ="),
        line_of(matmul_bad, "a_s[ty, tx] ="),
        line_of(matmul_bad, "total +="),
    }
    assert e.loc.line in lines
    assert str(line_of(matmul_bad, "total +=")) in str(e)
    matmul_good.sim[3, 3](A, B, C, schedule=schedule)
    np.testing.assert_allclose(C, A @ B, rtol=1e-4, atol=1e-4)


@tk.kernel(threads=4)
def case_3_bad(x: tk.gl_fl, y: tk.gl_fl):
    s = tk.shared_array(tk.f32, 1)
    if threadIdx.x == 0:
        s[0] = 0.0
    warp.sync()
    s[0] += x[threadIdx.x]
    warp.sync()
    y[threadIdx.x] = s[0]


@tk.kernel(threads=4)
def case_3_good(x: tk.gl_fl, y: tk.gl_fl):
    s = tk.shared_array(tk.f32, 1)
    if threadIdx.x == 0:
        s[0] = 0.0
    warp.sync()
    tk.atomic_add(s[0], x[threadIdx.x])
    warp.sync()
    y[threadIdx.x] = s[0]


def test_case_3_sum_needs_an_atomic():
    x, y = f32(4), f32(4)
    e = fault("TK501", case_3_bad, 1, x, y)
    assert "s[0]" in e.message
    assert "atomic" in e.hint
    case_3_good.sim[1](x, y)
    assert np.allclose(y, x.sum())


@tk.kernel(threads=32)
def one_place_in_shared(x: tk.gl_fl, y: tk.gl_fl):
    s = tk.shared_array(tk.f32, 1)
    s[0] = x[threadIdx.x]
    warp.sync()
    y[threadIdx.x] = s[0]


@tk.kernel(threads=32)
def one_place_in_global(x: tk.gl_fl, y: tk.gl_fl):
    y[0] = x[threadIdx.x]


@pytest.mark.parametrize("kernel", [one_place_in_shared, one_place_in_global])
def test_lanes_of_one_line_are_first_sent_to_places_of_their_own(kernel):
    e = fault("TK501", kernel, 1, np.arange(32, dtype=np.float32), f32(32))
    assert "write different values to" in e.message
    assert e.hint.startswith("give each lane a place of its own; ")
    assert "atomic" in e.hint


# ------------------------------------------------------------------------- races between lanes
@tk.kernel(threads=32)
def neighbours_bad(x: tk.gl_fl, y: tk.gl_fl):
    s = tk.shared_array(tk.f32, 33)
    s[threadIdx.x] = x[threadIdx.x]
    if threadIdx.x == 0:
        s[32] = 0.0
    y[threadIdx.x] = s[threadIdx.x + 1]


@tk.kernel(threads=32)
def neighbours_good(x: tk.gl_fl, y: tk.gl_fl):
    s = tk.shared_array(tk.f32, 33)
    s[threadIdx.x] = x[threadIdx.x]
    if threadIdx.x == 0:
        s[32] = 0.0
    warp.sync()
    y[threadIdx.x] = s[threadIdx.x + 1]


def test_lanes_need_a_warp_sync():
    x, y = f32(32), f32(32)
    e = fault("TK501", neighbours_bad, 1, x, y)
    assert "warp.sync()" in e.hint
    assert "lane" in e.message
    assert "block" not in e.hint, "there is one warp"
    neighbours_good.sim[1](x, y)
    assert (y[:31] == x[1:]).all()
    assert y[31] == 0


def broadcast(where: str):
    """Each lane reads what lane 0 of its warp or another one stored; where: the barriers."""

    @tk.kernel(threads=64)
    def kernel(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared_array(tk.f32, 64)
        for _ in range(2):
            s[threadIdx.x] = x[threadIdx.x]  # store
            if where == "between":
                block.sync()
            y[threadIdx.x] = s[0]  # load
        if where == "last":
            block.sync()

    return kernel


@pytest.mark.parametrize("where", ["", "between", "last"])
def test_a_warp_is_not_sent_to_synchronise_what_the_block_shares(where):
    """warp.sync() is offered only where the kernel has no barrier of the block, with its limit."""
    kernel = broadcast(where)
    e = fault("TK501", kernel, 1, f32(64), f32(64))
    store, load = line_of(kernel, "# store"), line_of(kernel, "# load")
    if where == "between":
        says = f"line {store} has run again: put block.sync() after line {load}, before line "
        assert e.hint == says + f"{store} runs again"
    else:
        limit = "; warp.sync() is enough only where no warp reads what another one stores"
        assert e.hint == f"put block.sync() between line {store} and line {load}" + limit * (
            where == ""
        )
        assert "lane 1 of warp 0 reads s[0], which lane 0 wrote" in e.message


@tk.kernel(warps=2)
def together(x: tk.gl_fl, y: tk.gl_fl):
    s = tk.shared(tk.st_fl(32, 16))
    t = tk.rt_fl(16, 16)
    block.load(s, x, (0, 0))
    warp.load(t, s.subtile(16, 16, (warpid(), 0)))
    warp.store(y, t, (warpid(), 0))


def test_what_the_block_brings_takes_a_barrier_of_the_block():
    e = fault("TK501", together, 1, f32(32, 16), f32(32, 16))
    assert "put block.sync() between" in e.hint
    assert "warp.sync()" not in e.hint


@tk.kernel(threads=32)
def shuffle_orders_nothing(x: tk.gl_fl, y: tk.gl_fl):
    s = tk.shared_array(tk.f32, 32)
    v = x[threadIdx.x]
    s[threadIdx.x] = v
    v = warp.shfl_xor(v, 1)
    y[threadIdx.x] = s[threadIdx.x ^ 1] + v


def test_shuffles_order_nothing():
    fault("TK501", shuffle_orders_nothing, 1, f32(32), f32(32))


@tk.kernel(threads=32)
def own_elements(x: tk.gl_fl, y: tk.gl_fl):
    s = tk.shared_array(tk.f32, 32)
    s[threadIdx.x] = x[threadIdx.x]
    for _ in range(4):
        s[threadIdx.x] += 1.0
    y[threadIdx.x] = s[threadIdx.x]


def test_a_lane_may_reuse_its_own_element():
    x, y = f32(32), f32(32)
    own_elements.sim[1](x, y)
    assert np.allclose(y, x + 4)


@tk.kernel(warps=1)
def tile_lanes_bad(x: tk.gl_bf, y: tk.gl_bf):
    s = tk.shared(tk.st_bf(16, 16))
    t = tk.rt_bf(16, 16)
    u = tk.rt_bf(16, 16, tk.col)
    warp.load(t, x, (0, 0))
    warp.store(s, t)
    warp.load(u, s)
    warp.store(y, u, (0, 0))


@tk.kernel(warps=1)
def tile_lanes_good(x: tk.gl_bf, y: tk.gl_bf):
    s = tk.shared(tk.st_bf(16, 16))
    t = tk.rt_bf(16, 16)
    u = tk.rt_bf(16, 16, tk.col)
    warp.load(t, x, (0, 0))
    warp.store(s, t)
    warp.sync()
    warp.load(u, s)
    warp.store(y, u, (0, 0))


def bf(*shape: int) -> np.ndarray:
    import ml_dtypes

    return f32(*shape).astype(ml_dtypes.bfloat16)


def test_store_then_load_of_a_tile_by_one_warp():
    x, y = bf(16, 16), bf(16, 16)
    e = fault("TK501", tile_lanes_bad, 1, x, y)
    assert "s[" in e.message
    tile_lanes_good.sim[1](x, y)
    assert (x == y).all()


# ------------------------------------------------------------------------ races between blocks
@tk.kernel(threads=32)
def blocks_bad(y: tk.gl_fl):
    y[threadIdx.x] = float(blockIdx.x)


@tk.kernel(threads=32)
def blocks_good(y: tk.gl_fl):
    y[blockIdx.x * 32 + threadIdx.x] = float(blockIdx.x)


@pytest.mark.parametrize("batch", [True, False])
def test_two_blocks_write_one_place(batch):
    y = f32(64)
    e = fault("TK502", blocks_bad, 2, y, batch=batch)
    assert "y[0]" in e.message
    assert "block" in e.message
    blocks_good.sim[2](y)
    assert (y == np.repeat([0, 1], 32)).all()


@tk.kernel(threads=32)
def neighbour_block_bad(y: tk.gl_fl):
    i = blockIdx.x * 32 + threadIdx.x
    y[i] = y[(i + 32) % 64] + 1.0


@tk.kernel(threads=32)
def neighbour_block_good(x: tk.gl_fl, y: tk.gl_fl):
    i = blockIdx.x * 32 + threadIdx.x
    y[i] = x[(i + 32) % 64] + 1.0


def test_block_reads_what_another_writes():
    x, y = f32(64), f32(64)
    fault("TK502", neighbour_block_bad, 2, y)
    neighbour_block_good.sim[2](x, y)
    assert (y == np.roll(x, -32) + 1).all()


@tk.kernel(threads=32)
def tiles_of_blocks_bad(x: tk.gl_fl, y: tk.gl_fl):
    t = tk.rt_fl(16, 16)
    warp.load(t, x, (blockIdx.x, 0))
    warp.store(y, t, (blockIdx.x // 2, 0))


def test_two_blocks_store_one_tile():
    e = fault("TK502", tiles_of_blocks_bad, 2, f32(32, 16), f32(32, 16))
    assert "tile (0, 0) of y" in e.message


@tk.kernel(threads=32)
def blocks_atomic(y: tk.gl_fl):
    tk.atomic_add(y[0], 1.0)


def test_atomics_of_blocks_are_no_race():
    y = np.zeros(1, np.float32)
    blocks_atomic.sim[5](y)
    assert y[0] == 160


# ---------------------------------------------------------------------------------- barriers
@tk.kernel(threads=64)
def case_4(y: tk.gl_fl):
    if warpid() == 0:
        block.sync()
    else:
        block.sync()
    y[threadIdx.x] = 1.0


def test_case_4_a_barrier_in_each_branch():
    e = fault("TK506", case_4, 1, f32(64))
    first = line_of(case_4, "block.sync()")
    assert f"line {first}: warp 0 (1 of 2 warps)" in e.message
    assert f"line {first + 2}: warp 1 (1 of 2 warps)" in e.message


@tk.kernel(threads=64)
def leaves(y: tk.gl_fl):
    if warpid() == 0:
        return
    block.sync()
    y[threadIdx.x] = 1.0


def test_a_warp_leaves_before_the_barrier():
    e = fault("TK506", leaves, 1, f32(64))
    assert "warp 0 left the kernel" in e.message


@tk.kernel(threads=64)
def lanes_leave(n: tk.i32, y: tk.gl_fl):
    if threadIdx.x >= n:
        return
    block.sync()
    y[threadIdx.x] = 1.0


def test_lanes_return_before_the_barrier():
    e = fault("TK506", lanes_leave, 1, 40, f32(64))
    assert "lanes of warp 1" in e.message
    lanes_leave.sim[1](64, f32(64))


# ------------------------------------------------------------------------------------ memory
@tk.kernel(threads=32)
def case_2_bad(x: tk.gl_fl, y: tk.gl_fl):
    s = tk.shared_array(tk.f32, 64)
    s[threadIdx.x] = x[threadIdx.x]
    block.sync()
    y[threadIdx.x] = s[threadIdx.x] + s[threadIdx.x + 16]


@tk.kernel(threads=32)
def case_2_good(x: tk.gl_fl, y: tk.gl_fl):
    s = tk.shared_array(tk.f32, 64)
    s[threadIdx.x] = x[threadIdx.x]
    block.sync()
    v = s[threadIdx.x]
    if threadIdx.x + 16 < 32:
        v += s[threadIdx.x + 16]
    y[threadIdx.x] = v


def test_case_2_uninitialised_shared_memory():
    x, y = f32(32), f32(32)
    e = fault("TK503", case_2_bad, 1, x, y)
    assert "s[32]" in e.message
    assert "lane 16" in e.message
    case_2_good.sim[1](x, y)


@tk.kernel(warps=1)
def no_zero(x: tk.gl_bf, y: tk.gl_fl):
    a = tk.rt_bf(16, 16)
    b = tk.rt_bf(16, 16, tk.col)
    acc = tk.rt_fl(16, 16)
    warp.load(a, x, (0, 0))
    warp.load(b, x, (0, 0))
    warp.mma_AB(acc, a, b)
    warp.store(y, acc, (0, 0))


def test_accumulator_that_was_never_zeroed():
    e = fault("TK513", no_zero, 1, bf(16, 16), f32(16, 16))
    assert "acc" in e.message
    assert "warp.zero(acc)" in e.hint


@tk.kernel(threads=32)
def out_of_bounds(x: tk.gl_fl, y: tk.gl_fl):
    y[threadIdx.x, 0] = x[threadIdx.x - 1, 2]


def test_out_of_bounds():
    e = fault("TK504", out_of_bounds, 1, f32(32, 4), f32(32, 1))
    assert "x[-1, 2]" in e.message
    assert "lane 0" in e.message
    e = fault("TK504", out_of_bounds, 1, f32(40, 2), f32(32, 1))
    assert "x, which has 40 x 2 elements" in e.message


@tk.kernel(threads=32)
def past_the_end(n: tk.i32, x: tk.gl_fl, y: tk.gl_fl):
    s = tk.shared(tk.st_fl(16, 32))
    y[threadIdx.x] = s[n, 0] if n > 15 else x[threadIdx.x + n]


@pytest.mark.parametrize(
    ("size", "n", "says"),
    [(40, 9, "x[40] is outside x, which has 40 elements"),
     (1, 0, "x[1] is outside x, which has 1 element "),
     (40, 16, "s[16, 0] is outside s, which has 16 x 32 elements")],
)  # fmt: skip
def test_what_has_how_many(size, n, says):
    """A length and no name: "which is 40" reads as if x were the number."""
    assert says in fault("TK504", past_the_end, 1, n, f32(size), f32(32)).message


@tk.kernel(warps=1)
def negative_tile(x: tk.gl_fl, y: tk.gl_fl):
    t = tk.rt_fl(16, 16)
    warp.load(t, x, (blockIdx.x - 1, 0))
    warp.store(y, t, (blockIdx.x, 0))


def test_negative_tile_coordinate():
    e = fault("TK504", negative_tile, 2, f32(32, 16), f32(32, 16))
    assert "row is -1" in e.message
    assert "block (0, 0, 0)" in e.message


@tk.kernel(threads=32)
def vectors(x: tk.gl_fl, y: tk.gl_fl):
    v = tk.vec(x, 4)[threadIdx.x]
    y[threadIdx.x] = v[0] + v[1] + v[2] + v[3]


def test_misaligned_vector():
    y = f32(32)
    x = f32(132)
    vectors.sim[1](x, y)
    np.testing.assert_allclose(y, x[:128].reshape(32, 4).sum(1), rtol=1e-5, atol=1e-5)
    e = fault("TK505", vectors, 1, x[1:], y)
    assert "16-byte" in e.message


# ---------------------------------------------------------------------------------- asynchrony
@tk.kernel(warps=2)
def async_no_wait(x: tk.gl_bf, y: tk.gl_bf):
    s = tk.shared(tk.st_bf(32, 32))
    t = tk.rt_bf(32, 32)
    block.load_async(s, x, (0, 0))
    tk.commit_group()
    block.sync()
    warp.load(t, s)
    if warpid() == 0:
        warp.store(y, t, (0, 0))


@tk.kernel(warps=2)
def async_no_commit(x: tk.gl_bf, y: tk.gl_bf):
    s = tk.shared(tk.st_bf(32, 32))
    t = tk.rt_bf(32, 32)
    block.load_async(s, x, (0, 0))
    tk.wait_group(0)
    block.sync()
    warp.load(t, s)
    if warpid() == 0:
        warp.store(y, t, (0, 0))


@tk.kernel(warps=2)
def async_no_barrier(x: tk.gl_bf, y: tk.gl_bf):
    s = tk.shared(tk.st_bf(32, 32))
    t = tk.rt_bf(32, 32)
    block.load_async(s, x, (0, 0))
    tk.commit_group()
    tk.wait_group(0)
    if warpid() == 1:
        warp.load(t, s)
        warp.store(y, t, (0, 0))


@tk.kernel(warps=2)
def async_good(x: tk.gl_bf, y: tk.gl_bf):
    s = tk.shared(tk.st_bf(32, 32))
    t = tk.rt_bf(32, 32)
    block.load_async(s, x, (0, 0))
    tk.commit_group()
    tk.wait_group(0)
    block.sync()
    warp.load(t, s)
    if warpid() == 0:
        warp.store(y, t, (0, 0))


def test_async_copies():
    x, y = bf(32, 32), bf(32, 32)
    e = fault("TK508", async_no_wait, 1, x, y)
    assert str(line_of(async_no_wait, "load_async")) in e.message
    assert "wait_group" in e.hint
    e = fault("TK508", async_no_commit, 1, x, y)
    assert "commit_group() is missing" in e.hint
    e = fault("TK500", async_no_barrier, 1, x, y)
    assert "block.sync()" in e.hint
    assert "wait_group" in e.hint
    async_good.sim[1](x, y)
    assert (x == y).all()


def pipeline(keep: int, stages: int = 2, barrier: bool = True):
    @tk.kernel(warps=2)
    def pipe(x: tk.gl_bf, y: tk.gl_bf):
        s = tk.shared(tk.st_bf(32, 32), stages)
        t = tk.rt_bf(16, 32)
        block.load_async(s[0], x, (0, 0))
        tk.commit_group()
        n = x.rows // 32
        for k in range(n):
            if k + 1 < n:
                block.load_async(s[(k + 1) % stages], x, (k + 1, 0))
            tk.commit_group()
            tk.wait_group(keep)
            block.sync()
            warp.load(t, s[k % stages].subtile(16, 32, (warpid(), 0)))
            warp.store(y, t, (k * 2 + warpid(), 0))
            if barrier:
                block.sync()

    return pipe


@pytest.mark.parametrize("schedule", ["rotate", "reverse", "random"])
def test_case_9_10_pipelines(schedule):
    x, y = bf(160, 32), bf(160, 32)
    pipeline(1).sim[1](x, y, schedule=schedule)
    assert (x == y).all()
    pipeline(0).sim[1](x, y, schedule=schedule)
    e = fault("TK508", pipeline(2), 1, x, y, schedule=schedule)  # leaves the needed group running
    assert "wait_group" in e.hint
    with pytest.raises(KernelFault) as info:  # the stage is refilled while another warp may read it
        pipeline(1, barrier=False).sim[1](x, y, schedule=schedule)
    assert info.value.code in ("TK500", "TK508")
    assert "block.sync()" in info.value.hint
    fault("TK508", pipeline(1, stages=1), 1, x, y, schedule=schedule)


# ----------------------------------------------------------------------------- numbers, asserts
@tk.kernel(threads=32)
def arithmetic(a: tk.i32, b: tk.i32, y: tk.gl(tk.i32)):
    if threadIdx.x < b:
        y[threadIdx.x] = a * (threadIdx.x + 1) // (threadIdx.x - 20)


def test_integer_faults():
    y = np.zeros(32, np.int32)
    arithmetic.sim[1](1 << 20, 20, y)
    e = fault("TK510", arithmetic, 1, 1 << 20, 21, y)
    assert "division by zero" in e.message
    assert "lane 20" in e.message
    e = fault("TK510", arithmetic, 1, 1 << 30, 20, y)
    assert "32 bits" in e.message
    assert "lane 1" in e.message


@tk.kernel(threads=32)
def shifts(n: tk.i32, y: tk.gl(tk.i32)):
    y[threadIdx.x] = 1 << (threadIdx.x + n)


def test_shift_fault():
    y = np.zeros(32, np.int32)
    e = fault("TK510", shifts, 1, 1, y)
    assert "shift by 32" in e.message or "does not fit" in e.message


@tk.kernel(threads=32)
def asserting(n: tk.i32, y: tk.gl_fl):
    i = threadIdx.x
    assert i < n
    y[i] = 1.0


def test_assert_shows_values():
    e = fault("TK511", asserting, 1, 30, f32(32))
    assert "i = 30" in e.message
    assert "n = 30" in e.message
    assert "lane 30" in e.message
    asserting.sim[1](32, f32(32))


@tk.kernel(threads=32)
def uniform(x: tk.gl(tk.i32), y: tk.gl_fl):
    n = warp.uniform(x[threadIdx.x])
    t = tk.rt_fl(16, 16)
    warp.zero(t)
    for _ in range(n):
        t += 1.0
    warp.store(y, t, (0, 0))


def test_uniform():
    x, y = np.full(32, 3, np.int32), f32(16, 16)
    uniform.sim[1](x, y)
    assert (y == 3).all()
    x[5] = 4
    e = fault("TK512", uniform, 1, x, y)
    assert "lane 5 holds 4" in e.message


@tk.kernel(threads=32)
def endless(flag: tk.gl(tk.i32), y: tk.gl_fl):
    while flag[0] == 0:
        pass
    y[threadIdx.x] = 1.0


def test_spinning_on_another_block():
    e = fault("TK509", endless, 2, np.zeros(1, np.int32), f32(32), steps=1000)
    assert "another block" in e.hint
    endless.sim[1](np.ones(1, np.int32), f32(32))


# ------------------------------------------------------------------------------------- aliases
@tk.kernel(threads=64)
def case_5_bad(y: tk.gl(tk.i32)):
    raw = tk.shared_array(tk.i32, 64)
    b = tk.alias(raw, (tk.i32, 32), 64)
    if warpid() == 0:
        raw[laneid()] = 1
    else:
        b[laneid()] = 2
    block.sync()
    y[threadIdx.x] = raw[laneid()]


@tk.kernel(threads=64)
def case_5_good(y: tk.gl(tk.i32)):
    raw = tk.shared_array(tk.i32, 64)
    b = tk.alias(raw, (tk.i32, 32), 128)
    if warpid() == 0:
        raw[laneid()] = 1
    else:
        b[laneid()] = 2
    block.sync()
    y[threadIdx.x] = raw[threadIdx.x]


def test_case_5_buffers_that_overlap():
    y = np.zeros(64, np.int32)
    e = fault("TK500", case_5_bad, 1, y)
    assert "b[0]" in e.message or "raw[16]" in e.message
    case_5_good.sim[1](y)
    assert (y == np.repeat([1, 2], 32)).all()


# ------------------------------------------------------------------------- tiles by several warps
@tk.kernel(warps=4)
def bands(x: tk.gl_fl, y: tk.gl_fl):
    s = tk.shared(tk.st_fl(64, 32))
    t = tk.rt_fl(16, 32)
    warp.load(t, x, (warpid(), 0))
    warp.store(s.subtile(16, 32, (warpid(), 0)), t)
    warp.sync()
    warp.load(t, s.subtile(16, 32, (warpid(), 0)))
    t += 1.0
    warp.store(s.subtile(16, 32, (warpid(), 0)), t)
    block.sync()
    block.store(y, s, (0, 0))


def test_warps_own_bands_of_a_tile():
    x, y = f32(64, 32), f32(64, 32)
    bands.sim[1](x, y)
    assert (y == x + 1).all()


@tk.kernel(warps=4)
def epilogue_bad(x: tk.gl_fl, y: tk.gl_fl):
    s = tk.shared(tk.st_fl(64, 32))
    t = tk.rt_fl(16, 32)
    warp.load(t, x, (warpid(), 0))
    warp.store(s.subtile(16, 32, (warpid(), 0)), t)
    block.store(y, s, (0, 0))


@pytest.mark.parametrize("delay", [{}, {0: 3}, {3: 3}])
def test_case_6_epilogue_too_early(delay):
    with pytest.raises(KernelFault) as e:
        epilogue_bad.sim[1](f32(64, 32), f32(64, 32), delay=delay)
    assert isinstance(e.value, tk.Race)


@tk.kernel(threads=64)
def data_dependent(bins: tk.gl(tk.i32), y: tk.gl(tk.i32)):
    s = tk.shared_array(tk.i32, 64, 4)
    for k in range(4):
        s[threadIdx.x, k] = 0
    for k in range(4):
        b = bins[blockIdx.x * 64 + (threadIdx.x * 7 + k) % 64]
        s[threadIdx.x, b] += 1
    block.sync()
    y[blockIdx.x * 64 + threadIdx.x] = s[threadIdx.x, 0]


@tk.kernel(threads=64)
def data_dependent_bad(bins: tk.gl(tk.i32), y: tk.gl(tk.i32)):
    s = tk.shared_array(tk.i32, 64, 4)
    for k in range(4):
        s[threadIdx.x, k] = 0
    for k in range(4):
        b = bins[blockIdx.x * 64 + (threadIdx.x * 7 + k) % 64]
        s[threadIdx.x // 2, b] += 1
    block.sync()
    y[blockIdx.x * 64 + threadIdx.x] = s[threadIdx.x, 0]


def test_indices_that_depend_on_data():
    bins = RNG.integers(0, 4, 256).astype(np.int32)
    y = np.zeros(256, np.int32)
    data_dependent.sim[4](bins, y)
    want = [
        sum(bins[b * 64 + (t * 7 + k) % 64] == 0 for k in range(4))
        for b in range(4)
        for t in range(64)
    ]
    assert (y == want).all()
    with pytest.raises(KernelFault) as e:
        data_dependent_bad.sim[4](bins, y)
    assert e.value.code in ("TK500", "TK501")


@tk.kernel(threads=64)
def deadlock(y: tk.gl(tk.i32)):
    if warpid() == 1:
        block.sync()
        tk.atomic_exch(y[0], 1)
    else:
        while tk.atomic_add(y[0], 0) == 0:
            pass
        block.sync()


@tk.kernel(threads=64)
def signal(y: tk.gl(tk.i32)):
    if warpid() == 1:
        tk.atomic_exch(y[0], 1)
    else:
        while tk.atomic_add(y[0], 0) == 0:
            pass
    block.sync()


def test_deadlock_says_who_waits():
    e = fault("TK507", deadlock, 1, np.zeros(1, np.int32), steps=2000)
    assert "warp 1 waits at block.sync()" in e.message
    assert "1 of 2 arrived" in e.message
    signal.sim[1](np.zeros(1, np.int32), schedule="rotate")


@tk.kernel(threads=48)
def odd_threads(x: tk.gl_fl, y: tk.gl_fl):
    t = tk.rt_fl(16, 16)
    warp.load(t, x, (0, 0))
    warp.store(y, t, (warpid(), 0))


def test_tiles_need_whole_warps():
    fault("TK407", odd_threads, 1, f32(16, 16), f32(32, 16))


def test_checks_can_be_turned_off():
    y = f32(N)
    overwrite_bad.sim[1](y, check="off")
    assert blockDim is not None


@tk.kernel(warps=4)
def part_sums_bad(x: tk.gl_fl, out: tk.gl_fl):
    part = tk.shared_array(tk.f32, 4)
    v = tk.rv(tk.f32, 128)
    warp.load(v, x, (warpid(), 0))
    s = tk.sum(v)
    if laneid() == 0:
        part[warpid()] = s
    if warpid() == 0 and laneid() == 0:
        out[0] = part[0] + part[1] + part[2] + part[3]


@pytest.mark.parametrize("schedule", ["rotate", "reverse", "random"])
def test_a_read_that_comes_too_early_is_a_race(schedule):
    """Not "nobody wrote it": the barrier is missing, in whatever order the warps ran."""
    with pytest.raises(tk.Race) as e:
        part_sums_bad.sim[1](f32(4, 128), f32(1), schedule=schedule)
    first = part_sums_bad.fn.__code__.co_firstlineno
    assert e.value.code == "TK500"
    assert e.value.loc.line == first + 9
    assert f"put block.sync() between line {first + 7} and line {first + 9}" in e.value.hint


@tk.kernel(threads=32)
def absolute(x: tk.gl(tk.i32), y: tk.gl(tk.i32)):
    y[threadIdx.x] = abs(x[threadIdx.x])


def test_the_least_number_has_no_absolute_value():
    x = np.arange(-5, 27, dtype=np.int32)
    y = np.zeros(32, np.int32)
    absolute.sim[1](x, y)
    assert (y == np.abs(x)).all()
    x[7] = -(2**31)
    with pytest.raises(tk.KernelFault, match="TK510"):
        absolute.sim[1](x, y)
