"""Cases 16 to 25 of public questions: banks and swizzles, fragments and numbers. One test each.

wf: wavefronts, in brackets the ideal. 16 to 20 and 22 are asked of `tk.access`, whose rules equal
the profiler's, and of a kernel; 21 of `tk.compare`; 23 to 25 of the maps, of a kernel's registers
and of products.
"""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import tklearn as tk
from tklearn import access, block, blockIdx, devices, laneid, recordings, viz, warp
from tklearn.lang import ir, layouts
from tklearn.viz.layout import ownership
from tklearn.viz.swizzle import address_map

LANE = np.arange(32)
DATA = Path(__file__).parent / "data"


def wavefronts(op: str, offsets: np.ndarray) -> tuple[int, int]:
    """(wavefronts, ideal) of one access by its byte offsets."""
    wf, conflicts = access.shared(op, offsets)
    return wf, wf - conflicts


def strided(word: object, op: str = "lds32") -> tuple[int, int]:
    """Lane i reads word(i) of four bytes (for lds128: the four from there)."""
    return wavefronts(op, np.asarray(word(LANE)) * 4)  # type: ignore[operator]


def reads(stride: int, vec: int = 1) -> tk.Kernel:
    """A kernel whose lanes read every stride-th word of an array, `vec` words each."""

    @tk.kernel(threads=32)
    def kernel(y: tk.gl_fl):
        s = tk.shared_array(tk.f32, 2048)
        for j in range(64):
            s[j * 32 + laneid()] = 1.0
        warp.sync()
        if vec == 1:
            y[laneid()] = s[laneid() * stride]
        else:
            v = tk.vec(s, 4)[laneid() * stride // 4]
            y[laneid()] = v[0]

    return kernel


def ran(kernel: tk.Kernel) -> tuple[int, int]:
    total = kernel.sim[1](np.zeros(32, np.float32)).total
    return total["shared_ld_wavefronts"], total["shared_ld_ideal"]


def test_case_16_a_column_of_32_by_32_and_of_32_by_33() -> None:
    assert strided(lambda i: 32 * i) == (32, 1)
    assert strided(lambda i: 33 * i) == (1, 1)
    assert (ran(reads(32)), ran(reads(33))) == ((32, 1), (1, 1))
    assert address_map((32, 32, tk.f32)).passes == (32,) * 32
    assert address_map((32, 33, tk.f32)).passes == (1,) * 33


def test_case_17_float4_on_four_banks_and_contiguous() -> None:
    assert strided(lambda i: 32 * i, "lds128") == (32, 4)
    assert strided(lambda i: 4 * i, "lds128") == (4, 4)
    assert (ran(reads(32, vec=4)), ran(reads(4, vec=4))) == ((32, 4), (4, 4))


@pytest.mark.parametrize(("stride", "wf"), [(32, 32), (64, 32), (16, 16), (33, 1)])
def test_case_18_strides(stride: int, wf: int) -> None:
    assert strided(lambda i: stride * i) == (wf, 1)
    assert ran(reads(stride)) == (wf, 1)


@pytest.mark.parametrize(("bits", "wf"), [(5, 1), (3, 4), (2, 8)])
def test_case_18_xor_of_low_bits(bits: int, wf: int) -> None:
    """A column of 32 x 32 words, each row's words shuffled by the row's low bits."""
    low = 2**bits - 1
    assert strided(lambda i: 32 * i + (7 ^ (i & low))) == (wf, 1)
    shuffled = address_map((32, 32, tk.f32), own=lambda row, word: word ^ (row & low))
    assert set(shuffled.passes) == {wf}

    @tk.kernel(threads=32)
    def kernel(y: tk.gl_fl):
        s = tk.shared_array(tk.f32, 32, 32)
        for j in range(32):
            s[j, laneid() ^ (j & low)] = 1.0
        warp.sync()
        y[laneid()] = s[laneid(), 7 ^ (laneid() & low)]

    assert ran(kernel) == (wf, 1)


def test_case_19_stride_2_costs_a_pass_and_no_time() -> None:
    """Two passes for one; the bound on the time, by global memory, is the same. Notebook 03 says so
    in words."""
    assert strided(lambda i: 2 * i) == (2, 1)
    y = np.zeros(32, np.float32)
    tables = [tk.compare(reads(stride), 1, (y,), device="H200") for stride in (1, 2)]
    passes = [t.simulated.total["shared_ld_wavefronts"] for t in tables]
    times = [next(r for r in t.rows if r.quantity == "time") for t in tables]
    assert passes == [1, 2]
    assert times[0].predicted == times[1].predicted
    assert "lower bound by memory" in times[1].reason
    book = Path(__file__).parent.parent / "notebooks" / "03_banks_padding_swizzle.ipynb"
    assert "because global memory is the bottleneck" in book.read_text(encoding="utf-8")


@pytest.mark.parametrize(("halves", "swizzle", "wf"), [(64, 128, 8), (32, 64, 4), (16, 32, 2)])
def test_case_20_ldmatrix_rows(halves: int, swizzle: int, wf: int) -> None:
    """A matrix is 8 rows of 16 bytes: as they lie, swizzled by the row's width, padded by 8."""
    row = LANE % 8
    assert wavefronts("ldsm1", row * halves * 2) == (wf, 1)
    assert wavefronts("ldsm1", row * (halves + 8) * 2) == (1, 1)
    swizzled = [layouts.SharedTile(8, halves, 2, swizzle, 0).offset(r, 0) for r in row]
    assert wavefronts("ldsm1", np.array(swizzled)) == (1, 1)
    for tile, each in (
        (tk.st_bf(16, halves, swizzle=0), wf),
        (tk.st_bf(16, halves, swizzle=swizzle), 1),
        (tk.st_bf(16, halves, pad=8), 1),
    ):

        @tk.kernel(warps=1)
        def kernel(x: tk.gl_bf, y: tk.gl_bf):
            s = tk.shared(tile)  # noqa: B023
            t = tk.rt_bf(16, halves)
            block.load(s, x, (0, 0))
            block.sync()
            warp.load(t, s)
            warp.store(y, t, (0, 0))

        x = np.ones((16, halves), ml_dtypes.bfloat16)
        total = kernel.sim[1](x, np.empty_like(x)).total
        matrices = 4 * halves // 16
        assert total["shared_ld_ideal"] == matrices
        assert total["shared_ld_wavefronts"] == each * matrices


def test_case_21_counters_that_grow_while_addresses_are_clean(monkeypatch) -> None:
    """Measured - predicted stands apart, with its reason: several blocks on an SM (FACTS.md 1)."""

    @tk.kernel(threads=32)
    def clean(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared_array(tk.f32, 32, 33)
        i = blockIdx.x * 32 + laneid()
        for j in range(32):
            s[j, laneid()] = x[i]
        warp.sync()
        total = 0.0
        for j in range(32):
            total += s[laneid(), j]
        y[i] = total

    def table(blocks: int, high: int) -> dict:
        n = 32 * blocks
        args = np.ones(n, np.float32), np.empty(n, np.float32)
        recording = recordings.Recording(
            kernel="clean", digest=ir.digest(clean.ir(*args)),
            arguments=recordings.describe_arguments(list(args)), grid=(blocks, 1, 1),
            device="NVIDIA H200", driver="580", date="2026-11-30", command="this test",
            seconds=1e-5, error=0.0,
            counters={
                "shared_ld_wavefronts": 32 * blocks + high, "shared_ld_conflicts": high,
                "shared_st_conflicts": 0,
            },
        )  # fmt: skip
        monkeypatch.setattr(recordings, "load", lambda: (recording,))
        monkeypatch.setattr("tklearn.comparison.gpu_here", lambda: False)
        return {r.quantity: r for r in tk.compare(clean, blocks, args).rows}

    sms = devices.DEVICES["H200"].sms
    one = table(sms, 0)
    assert "shared ld conflicts" not in one, "no row where nothing was predicted or measured"
    assert one["shared ld wavefronts"].difference == "0"
    many = table(8 * sms, 270)
    row = many["shared ld conflicts"]
    assert (row.simulated, row.measured, row.difference) == ("0", "270", "+270")
    assert row.reason == (
        "not from the addresses: several blocks share an SM (1,056 on 132) and the counter then "
        "reads 0.1 to 2 % high, here 0.8 % of the wavefronts"
    )
    wide = many["shared ld wavefronts"]
    assert (wide.predicted, wide.difference) == ("33,792", "+270")
    assert "several blocks share an SM" in wide.reason
    assert many["shared st wavefronts"].measured is None
    # what that reason does not explain is not called so
    for strange in (table(8 * sms, 33792), table(8 * sms, -5), table(sms, 40)):
        assert "no known reason" in strange["shared ld wavefronts"].reason


def test_case_22_lane_pairs_that_share_an_address() -> None:
    """Loads of 64 and 128 bits merge by pairs (i, i^1) or (i, i^2); stores never do."""
    pairs, twos = LANE // 2, LANE // 4 * 2 + LANE % 2
    assert strided(lambda i: 2 * (i // 2), "lds64") == (1, 1)
    assert wavefronts("lds64", twos * 8) == (1, 1)
    assert wavefronts("lds64", LANE * 8) == (2, 2)
    assert wavefronts("lds128", pairs * 16) == (2, 2)
    assert wavefronts("lds128", LANE * 16) == (4, 4)
    assert wavefronts("sts64", pairs * 8) == (2, 2)
    assert wavefronts("sts128", pairs * 16) == (4, 4)

    @tk.kernel(threads=32)
    def kernel(y: tk.gl_fl):
        s = tk.shared_array(tk.f32, 64)
        s[laneid()] = 1.0
        s[laneid() + 32] = 1.0
        warp.sync()
        v = tk.vec(s, 2)[laneid() // 2]
        y[laneid()] = v[0]

    assert ran(kernel) == (1, 1)


def test_case_23_who_holds_c_9_3() -> None:
    """Lane 5, register 3: in the map, in a kernel's registers, and as an H200 stored them."""
    assert ownership("m16n8k16 C").owner(9, 3) == (5, 3)
    assert "Element (9, 3) is in lane 5, register 3." in viz.layout("m16n8k16 C").alt

    @tk.kernel(warps=1)
    def who(x: tk.gl_fl, held: tk.gl_fl):
        c = tk.rt_fl(16, 16)
        warp.load(c, x, (0, 0))
        for i in tk.static_range(8):
            held[laneid(), i] = c.reg(i)

    x = (100 * np.arange(16)[:, None] + np.arange(16)).astype(np.float32)
    held = np.empty((32, 8), np.float32)
    who.sim[1](x, held)
    assert np.argwhere(held == 903).tolist() == [[5, 3]]
    probed = json.loads((DATA / "maps_h200.json").read_text())
    assert "H200" in probed["device"]
    row, col = layouts.fragment("m16n8k16", "C")
    assert (row[5, 3], col[5, 3]) == (9, 3)  # test_maps.py: this map is the probed one


def test_case_24_a_fragment_index_is_not_the_matrix_index() -> None:
    o = ownership("m16n8k16 C")
    assert o.held(0) == [(0, 0), (0, 1), (8, 0), (8, 1)]
    straight = [divmod(4 * 5 + i, 8) for i in range(4)]  # lane 5, as a book is read
    assert o.held(5) != straight
    assert o.held(5) == [(1, 2), (1, 3), (9, 2), (9, 3)]


def test_case_25_interpreter_and_gpu_differ_by_the_inputs_precision() -> None:
    """f32 tiles enter the tensor core as tf32: 1e-2 off at K = 1024; switching shows it."""
    rng = np.random.default_rng(0)
    k = 1024
    a, b = rng.standard_normal((16, k), np.float32), rng.standard_normal((k, 16), np.float32)
    exact = a.astype(np.float64) @ b.astype(np.float64)

    def product(dtype: tk.DType) -> np.ndarray:
        @tk.kernel(warps=1)
        def kernel(x: tk.gl(dtype), y: tk.gl(dtype), z: tk.gl_fl):
            at = tk.rt(dtype, 16, 32)
            bt = tk.rt(dtype, 32, 16, tk.col)
            acc = tk.rt_fl(16, 16)
            warp.zero(acc)
            for i in range(x.cols // 32):
                warp.load(at, x, (0, i))
                warp.load(bt, y, (i, 0))
                warp.mma_AB(acc, at, bt)
            warp.store(z, acc, (0, 0))

        c = np.empty((16, 16), np.float32)
        kind = {"f32": np.float32, "bf16": ml_dtypes.bfloat16}[dtype.name]
        kernel.sim[1](a.astype(kind), b.astype(kind), c)
        return c

    def off(c: np.ndarray) -> float:
        return float(np.abs(c - exact).max())

    plain = off(a @ b)
    tf32, bf16 = off(product(tk.f32)), off(product(tk.bf16))
    assert plain < 2e-4 < 3e-3 < tf32 < 5e-2 < 8e-2 < bf16 < 0.5
    rounded = tk.numerics.round_to(a, "tf32").astype(np.float64)
    to_tf32 = rounded @ tk.numerics.round_to(b, "tf32").astype(np.float64)
    assert float(np.abs(product(tk.f32) - to_tf32).max()) < 2e-4, "nothing but the rounding"
