"""Kernels that an engineer wrote to find faults: each test keeps one kind from returning."""

from __future__ import annotations

import importlib.util
import re
import sys
import types
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tklearn as tk
from tklearn import laneid, threadIdx, warp
from tklearn.cuda.emit import emit
from tklearn.sim import machine

CUDA = importlib.util.find_spec("cupy") is not None
if CUDA:
    sys.path.insert(0, str(Path(__file__).parent / "cuda"))
    import ptx_counts
    from test_counts_by_emulation import KEYS, ptx_of


def emulated(kernel: tk.Kernel, grid: tuple, *args: Any, **consts: Any) -> dict[str, int]:
    """What the CUDA of a kernel would make a profiler count."""
    spec = kernel.ir(*args, **consts)
    source = emit(spec)
    packed = [a if isinstance(a, np.ndarray) else ("<i", a) for a in args]
    return ptx_counts.count(
        ptx_of(source.text), source.entry, grid, spec.threads, spec.shared_bytes, packed
    )


# ------------------------------------------------------------------------- functions of one's own
@tk.intrinsic(cuda="__popc({x})", sim=lambda x: np.bitwise_count(x.view(np.uint32)), result=tk.i32)
def popc(x):
    """The number of set bits."""


@tk.intrinsic(cuda="({x} * 3)", sim=lambda x: x * 3, result=tk.i32)
def exp(x):
    """Named as an operation is."""


def _another() -> Any:
    @tk.intrinsic(cuda="(1 / {x})", sim=lambda x: 1 // x, result=tk.i32)
    def popc(x):
        """Named as a function of another module is."""

    return popc


def test_functions_of_ones_own_in_the_simulator() -> None:
    other = _another()

    @tk.kernel(threads=32)
    def kernel(y: tk.gl(tk.i32), z: tk.gl_fl, n: tk.i32):
        i = threadIdx.x
        y[0, i] = popc(-1 - i) * 100  # more than the eight bits that NumPy's function answers in
        y[1, i] = exp(i)
        z[i] = tk.exp(float(i))
        y[2, i] = popc(n)
        y[3, i] = 0
        if i > 0:  # lanes differ
            y[3, i] = other(i)
        p = i if i % 2 == 0 else popc(i)
        y[4, i] = p

    y, z = np.full((5, 32), 77, np.int32), np.zeros(32, np.float32)
    i = np.arange(32)
    for batch in (True, False):
        y[:] = 77
        kernel.sim[1](y, z, -1, batch=batch)
        bits = np.bitwise_count(i.astype(np.uint32)).astype(int)
        np.testing.assert_array_equal(y[0], (32 - bits) * 100)
        np.testing.assert_array_equal(y[1], 3 * i)
        np.testing.assert_allclose(z, np.exp(i), rtol=1e-5)
        np.testing.assert_array_equal(y[2], 32)
        np.testing.assert_array_equal(y[3], i == 1)
        np.testing.assert_array_equal(y[4], np.where(i % 2 == 0, i, bits))


# ------------------------------------------------------------------------------ counts of the CUDA
@tk.kernel(warps=2)
def ragged(x: tk.gl_fl, y: tk.gl_fl):
    total = 0.0
    for c in range(laneid(), x.cols, 32):  # lanes end at different times
        total += x[threadIdx.x // 32, c]
    c = laneid()
    while c < x.cols:
        y[threadIdx.x // 32, c] = total
        c += 32
    assert total < 1e9
    if warp.any(total > 1e8):
        print("large", c)


@pytest.mark.skipif(not CUDA, reason="CuPy is not installed: no NVRTC")
@pytest.mark.parametrize("n", [1, 33, 100, 128, 265])
def test_loops_that_lanes_leave_one_by_one_are_counted_as_written(n: int) -> None:
    x, y = np.ones((2, n), np.float32), np.zeros((2, n), np.float32)
    got = emulated(ragged, (1, 1, 1), x, y)
    want = ragged.sim[1](x, y).total
    assert {k: want[k] for k in KEYS} == {k: got[k] for k in KEYS}


# --------------------------------------------------------------------------- names of the simulator
def test_names_that_the_simulator_makes_do_not_meet() -> None:
    """A local of the lowered code never hides a constant, a place or an operation."""

    @tk.device
    def pick(x: tk.f32, i: tk.i32):
        a = x / 3.0 if i > 2 and 8.0 / x > 1.5 else x + 2.5
        return a * 0.25 if i // max(i, 1) == 1 else 6.5 / x

    @tk.kernel(threads=64)
    def kernel(y: tk.gl_fl, n: tk.i32):
        i = threadIdx.x
        f = float(i) * 0.5
        g = f + 1.25
        for k in range(i % 5):
            if i > 7 + k:
                f, g = g, pick(f + 0.125, i)
            elif f > 0.75:
                f += y[i] / 1.75 if y[i] != 0.0 else 2.75
        while f > 3.25:
            f -= 1.5
            if n % (i + 1) == 3:
                break
        y[i] = f if i < 3 else g / 2.25

    lowered = machine.lowered(kernel.ir(np.zeros(64, np.float32), 3), big_grid=False)
    for value in list(lowered.namespace.values()):
        if isinstance(value, types.FunctionType) and value.__globals__ is lowered.namespace:
            local = set(value.__code__.co_varnames) - {"_m0"}
            assert not local & set(lowered.namespace)
            assert not [v for v in local if re.fullmatch(r"_[a-zA-Z]+\d+", v)]  # as `obj` names


# --------------------------------------------------------------------------------- shared memory
def test_a_view_keeps_the_bits_that_it_does_not_write() -> None:
    """Halves of f32 numbers are no bf16 numbers: some look like NaN, and stay what they are."""

    @tk.kernel(warps=1)
    def kernel(x: tk.gl_fl, y: tk.gl_fl, z: tk.gl_bf):
        a = tk.shared(tk.st_fl(64, 32))
        f = tk.alias(a, tk.st_bf(64, 64), 0)
        t = tk.rt_fl(64, 32)
        h = tk.rt_bf(16, 64)
        warp.load(a, x, (0, 0))
        warp.zero(h)
        warp.sync()
        warp.store(f.subtile(16, 64, (0, 0)), h)
        warp.sync()
        warp.load(t, a)
        warp.store(y, t, (0, 0))
        warp.load(h, f.subtile(16, 64, (3, 0)))
        warp.store(z, h, (0, 0))

    bits = np.random.default_rng(0).integers(0, 2**32, (64, 32), dtype=np.uint32)
    bits[:, ::2] |= 0x7F81  # the lower half is a NaN of its own
    x = bits.view(np.float32)
    x[np.isnan(x)] = 1.5
    y, z = np.ones((64, 32), np.float32), np.zeros((16, 64), ml_dtypes.bfloat16)
    kernel.sim[1](x, y, z, check="full")
    assert (y[:16] == 0).all()
    assert y[16:].tobytes() == x[16:].tobytes()
