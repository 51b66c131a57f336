"""trace=True: the accesses of the first block, as executed, and nothing else changed."""

from __future__ import annotations

import inspect

import ml_dtypes
import numpy as np

import tklearn as tk
from tklearn import access, block, blockIdx, threadIdx, warp, warpid
from tklearn.kernels import gemm
from tklearn.sim import trace

RNG = np.random.default_rng(5)


def f32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def line_of(kernel, text: str) -> int:
    lines, first = inspect.getsourcelines(kernel.fn)
    return first + next(i for i, x in enumerate(lines) if text in x)


@tk.kernel(threads=(32, 8))
def turn(src: tk.gl_fl, dst: tk.gl_fl):
    other = tk.shared_array(tk.f32, 5)
    tile = tk.shared_array(tk.f32, 32, 32)
    if threadIdx.y == 0 and threadIdx.x < 5:
        other[threadIdx.x] = 1.0
    for j in range(0, 32, 8):
        tile[threadIdx.y + j, threadIdx.x] = src[threadIdx.y + j, blockIdx.x * 32 + threadIdx.x]
    block.sync()
    for j in range(0, 32, 8):
        dst[blockIdx.x * 32 + threadIdx.y + j, threadIdx.x] = tile[threadIdx.x, threadIdx.y + j]


def test_lane_accesses_are_kept_with_their_addresses():
    r = turn.sim[3](f32(32, 96), np.zeros((96, 32), np.float32), trace=True)
    store = [a for a in r.accesses[line_of(turn, "= src[")] if a.space == "shared"]
    load = [a for a in r.accesses[line_of(turn, "dst[")] if a.space == "shared"]
    out = [a for a in r.accesses[line_of(turn, "dst[")] if a.space == "global"]
    assert [(a.kind, a.width, a.array) for a in store] == [("st", 4, "tile")] * 4
    assert [(a.kind, a.width, a.array) for a in load] == [("ld", 4, "tile")] * 4
    lane = np.arange(32)
    for k in range(4):
        assert load[k].offsets == tuple(lane * 128 + 32 * k)
        assert store[k].offsets == tuple(lane * 4 + 1024 * k)
        assert out[k].offsets == tuple(lane * 4 + 1024 * k)
        assert out[k].array == "dst"
    assert load[0].base > 0, "an array before it moves it off bank 0"
    assert load[0].base % 16 == 0
    (few,) = r.accesses[line_of(turn, "other[")]
    assert few.offsets == (0, 4, 8, 12, 16) + (-1,) * 27


def test_a_line_keeps_the_first_warp_that_runs_it():
    @tk.kernel(warps=4)
    def late(x: tk.gl_fl):
        if warpid() == 2:
            x[threadIdx.x] = 1.0

    r = late.sim[1](np.zeros(128, np.float32), trace=True)
    (a,) = r.accesses[line_of(late, "x[")]
    assert a.warp == 2
    assert a.offsets[0] == 64 * 4


def test_tile_operations_are_kept_as_the_headers_issue_them():
    @tk.kernel(warps=2)
    def through(x: tk.gl_bf, y: tk.gl_bf):
        s = tk.shared(tk.st_bf(32, 64))
        t = tk.rt_bf(16, 64)
        block.load(s, x, (blockIdx.x, 0))
        block.sync()
        warp.load(t, s.subtile(16, 64, (warpid(), 0)))
        warp.store(y, t, (blockIdx.x * 2 + warpid(), 0))

    x = f32(96, 64).astype(ml_dtypes.bfloat16)
    r = through.sim[3](x, np.zeros_like(x), blocks=[1, 2], trace=True)
    load = r.accesses[line_of(through, "block.load")]
    assert {(a.space, a.kind, a.width) for a in load} == {
        ("global", "ld", 16),
        ("shared", "st", 16),
    }
    matrices = r.accesses[line_of(through, "warp.load")]
    assert [(a.space, a.kind, a.width) for a in matrices] == [("shared", "ldmatrix", 4)] * 4
    assert {a.block for a in load} == {(1, 0, 0)}
    store = r.accesses[line_of(through, "warp.store")]
    assert {(a.space, a.kind, a.width, a.array) for a in store} == {("global", "st", 4, "y")}


def test_nothing_else_changes():
    x = f32(32, 96)
    out = [np.zeros((96, 32), np.float32) for _ in range(2)]
    plain, traced = turn.sim[3](x, out[0]), turn.sim[3](x, out[1], trace=True)
    assert (out[0] == out[1]).all()
    assert plain.lines == traced.lines
    assert plain.accesses == {}


def test_costs_of_the_traced_accesses_are_the_counters():
    """One block of one warp: every access is kept, so that their costs add up to the report."""

    @tk.kernel(threads=32)
    def one(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared_array(tk.f32, 32, 33)
        for i in range(0, 32):
            s[i, threadIdx.x] = x[i, threadIdx.x]
        block.sync()
        for i in range(0, 16):
            v = tk.vec(x, 2)[i, threadIdx.x // 2]
            y[i, threadIdx.x] = s[threadIdx.x, 2 * i] + v[0]

    r = one.sim[1](f32(32, 32), np.zeros((32, 32), np.float32), trace=True)
    for line, kept in r.accesses.items():
        count = dict.fromkeys(r.lines[line], 0)
        for a in kept:
            at = np.array([a.offsets])
            if a.space == "global":
                count[f"global_{a.kind}_sectors"] += int(access.sectors_many(at, a.width)[0])
            else:
                wave, _ = access.shared_many(a.kind, a.width, at)
                count[f"shared_{a.kind}_wavefronts"] += int(wave[0])
        for key, n in count.items():
            if key.endswith(("_sectors", "_wavefronts")):
                assert r.lines[line][key] == n, (line, key)


def test_a_long_loop_does_not_fill_memory():
    @tk.kernel(threads=32)
    def long(x: tk.gl_fl):
        for _ in range(1000):
            x[threadIdx.x] = 1.0

    r = long.sim[1](np.zeros(32, np.float32), trace=True)
    assert len(r.accesses[line_of(long, "x[")]) == trace.MOST
    assert r.total["global_st_requests"] == 1000


def test_gallery_gemm():
    k = gemm.make(tk.bf16)
    a, b = (f32(128, 128).astype(ml_dtypes.bfloat16) for _ in range(2))
    r = k.sim[1, 1](a, b, np.zeros((128, 128), a.dtype), trace=True)
    kinds = {(x.space, x.kind) for kept in r.accesses.values() for x in kept}
    assert {("shared", "ldmatrix"), ("global", "async"), ("global", "st")} <= kinds
