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
from tklearn import block, blockDim, laneid, threadIdx, warp
from tklearn.cuda.emit import emit
from tklearn.sim import machine

CUDA = importlib.util.find_spec("cupy") is not None
if CUDA:
    sys.path.insert(0, str(Path(__file__).parent / "cuda"))
    import ptx_counts
    from test_counts_by_emulation import KEYS, ptx_of


def emulated(kernel: tk.Kernel, grid: tuple, *args: Any, **consts: Any) -> dict[str, int]:
    """What the CUDA of a kernel would make a profiler count; the arrays hold what it writes."""
    spec = kernel.ir(*args, **consts)
    source = emit(spec)
    form = {"i32": "<i", "i64": "<q", "u32": "<I", "f32": "<f"}
    packed = [
        a if isinstance(a, np.ndarray) else (form[p.type.dtype.name], a)
        for p, a in zip(spec.params, args, strict=True)
    ]
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


# ------------------------------------------------------------------------- values on both machines
@tk.kernel(threads=64)
def numbers(y: tk.gl(tk.i32), big: tk.gl(tk.i64), m: tk.i64):
    i = threadIdx.x
    y[0, i] = tk.cdiv(i - 30, 7)
    y[1, i] = tk.cdiv(i - 30, -7)
    y[2, i] = tk.cdiv(2147483600 + i % 48, 2)
    y[3, i] = abs(30 - i)
    big[0, i] = tk.cdiv(m + i, 9)
    big[1, i] = tk.cdiv(tk.i64(i) - m, 9)
    big[2, i] = abs(tk.i64(i) - m)


@tk.kernel(threads=64)
def sums(x: tk.gl_fl, y: tk.gl_fl, h: tk.gl_bf, at: tk.gl(tk.i32)):
    """y += a * b is y = y + a * b in one expression: rounded once, its index read once."""
    i = threadIdx.x
    s = tk.shared_array(tk.f32, 64)
    s[i] = x[0, i]
    y[0, i] += x[0, i] * x[1, i]
    s[i] += x[0, i] * 1.1
    y[1, at[i]] += x[0, i] * s[i]
    h[i] += x[0, i] * x[1, i]
    h[64 + at[i]] += x[0, i] * x[1, i]
    at[at[i] + 64] //= -3
    r = tk.reg_array(tk.f32, 2)
    r[0] = x[0, i]
    r[0] += x[1, i] * 1.3
    y[2, i] = r[0]


def numbers_args() -> list[Any]:
    return [np.zeros((4, 64), np.int32), np.zeros((3, 64), np.int64), (1 << 40) + 12345]


def sums_args() -> list[Any]:
    g = np.random.default_rng(0)
    at = np.concatenate([g.permutation(64), g.integers(-99, 99, 64)]).astype(np.int32)
    x = g.standard_normal((2, 64), dtype=np.float32)
    y = g.standard_normal((3, 64), dtype=np.float32)
    return [x, y, g.standard_normal(128, dtype=np.float32).astype(ml_dtypes.bfloat16), at]


@pytest.mark.skipif(not CUDA, reason="CuPy is not installed: no NVRTC")
@pytest.mark.parametrize(("kernel", "make"), [(numbers, numbers_args), (sums, sums_args)])
def test_both_machines_compute_the_same(kernel: tk.Kernel, make: Any) -> None:
    simulated, by_cuda = make(), make()
    want = kernel.sim[1](*simulated).total
    got = emulated(kernel, (1, 1, 1), *by_cuda)
    for a, b in zip(simulated, by_cuda, strict=True):
        if isinstance(a, np.ndarray):
            assert a.tobytes() == b.tobytes()
    assert {k: want[k] for k in KEYS} == {k: got[k] for k in KEYS}


def test_division_rounded_up() -> None:
    y, big, m = numbers_args()
    numbers.sim[1](y, big, m)
    i = np.arange(64)
    np.testing.assert_array_equal(y[0], [-(-(int(k) - 30) // 7) for k in i])
    np.testing.assert_array_equal(y[1], [-(-(int(k) - 30) // -7) for k in i])
    np.testing.assert_array_equal(big[1], [-(-(int(k) - m) // 9) for k in i])


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


# ------------------------------------------------------------------------------ uniform conditions
def test_the_first_warp_by_the_index_of_its_threads() -> None:
    """`t < 32` is one answer for a warp, as CUDA code says it; of a name that changes it is not."""

    @tk.kernel(threads=128)
    def total(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared_array(tk.f32, 128)
        t = threadIdx.x
        s[t] = x[t]
        block.sync()
        if t < 32:
            v = s[t] + s[t + 32] + s[t + 64] + s[t + 96]
            for d in tk.static_range(5):
                v += warp.shfl_xor(v, 1 << d)
            if t == 0:
                y[0] = v
        if t // 32 == 1:
            warp.sync()

    @tk.kernel(threads=128)
    def other(y: tk.gl_fl):
        t = threadIdx.x
        t += 1
        if t < 32:
            y[t] = warp.shfl_xor(1.0, 1)

    x, y = np.arange(128, dtype=np.float32), np.zeros(1, np.float32)
    total.sim[1](x, y)
    assert y[0] == x.sum()
    with pytest.raises(tk.TkError, match="TK300"):
        other.sim[1](np.zeros(64, np.float32))


# ----------------------------------------------------------------------------------------- messages
def test_a_condition_without_its_parentheses_says_so() -> None:
    @tk.kernel(threads=32)
    def kernel(y: tk.gl_fl):
        if y[0] > 1.0 & threadIdx.x < 7:
            y[threadIdx.x] = 1.0

    with pytest.raises(tk.TkError, match=r"TK200(.|\n)*write \(a < b\) & \(c < d\)"):
        kernel.sim[1](np.zeros(32, np.float32))


@tk.kernel(threads=64)
def by_block_dim(x: tk.gl(tk.i32), y: tk.gl(tk.i32)):
    for i in range(threadIdx.x, x.cols, blockDim.x):
        y[i] = x[i] * 2


def test_a_loop_may_step_by_the_blocks_size() -> None:
    x = np.arange(300, dtype=np.int32)
    y = np.zeros_like(x)
    by_block_dim[1](x, y)
    assert (y == 2 * x).all()
    assert "i += 64" in by_block_dim.source()


def _own(**given: Any) -> Any:
    """An intrinsic of one parameter, `x`, that takes a u32."""
    options = {"cuda": "__popc({x})", "sim": np.bitwise_count, "result": tk.i32, **given}

    @tk.intrinsic(**options)
    def mine(x: tk.u32):
        """The number of set bits."""

    return mine


@pytest.mark.parametrize(
    "given",
    [
        {"cuda": "__popc({z})"},
        {"cuda": "f({x}, {y})"},
        {"cuda": 3},
        {"sim": 3},
        {"sim": np.add},
        {"sim": lambda: 3},
        {"sim": lambda x, y: x},
        {"result": np.float32},
        {"result": tk.bf16},
    ],
)
def test_a_function_of_ones_own_that_does_not_fit_its_parameters(given: dict[str, Any]) -> None:
    with pytest.raises(tk.SourceError, match=r"TK106: intrinsic 'mine': ") as e:
        _own(**given)
    assert e.value.loc is not None
    assert e.value.hint


@pytest.mark.parametrize("given", [{}, {"sim": lambda x, y=1: x}, {"cuda": "f({x}, { a })"}])
def test_a_function_of_ones_own_that_fits(given: dict[str, Any]) -> None:
    assert _own(**given).__name__ == "mine"


def test_an_annotation_that_is_no_number() -> None:
    with pytest.raises(tk.SourceError, match=r"TK104.*tk\.gl_fl"):

        @tk.intrinsic(cuda="{x}", sim=lambda x: x)
        def mine(x: tk.gl_fl):
            pass


def test_arguments_of_a_function_of_ones_own_have_its_types() -> None:
    popc = _own()

    def kernel(how: int) -> Any:
        @tk.kernel(threads=32)
        def kernel(x: tk.gl_fl, n: tk.gl(tk.u32), y: tk.gl(tk.i32)):
            t = tk.rt_fl(16, 16)
            warp.zero(t)
            if how == 0:
                y[threadIdx.x] = popc(t)
            if how == 1:
                y[threadIdx.x] = popc(x)
            if how == 2:
                y[threadIdx.x] = popc(x[threadIdx.x])
            if how == 3:
                y[threadIdx.x] = popc(threadIdx.x)
            if how == 4:
                y[threadIdx.x] = popc(1.5)
            if how == 5:
                y[threadIdx.x] = popc(n[threadIdx.x]) + popc(7) + popc(tk.u32(threadIdx.x))

        return kernel

    args = np.zeros(32, np.float32), np.full(32, 7, np.uint32), np.zeros(32, np.int32)
    for how in range(5):
        with pytest.raises(tk.SourceError, match="TK200: 'x' of mine is u32, not ") as e:
            kernel(how).sim[1](*args)
        assert "popc(" in e.value.loc.text()
        assert how < 2 or "tk.u32(" in e.value.hint
    kernel(5).sim[1](*args)
    assert args[2].tolist() == [3 + 3 + i.bit_count() for i in range(32)]


@pytest.mark.parametrize(
    ("sim", "says"),
    [
        (lambda x: x[0, 40], "raises IndexError"),
        (lambda x: x @ x, "raises ValueError"),
        (lambda x: 1 // 0, "raises ZeroDivisionError"),
        (lambda x: np.zeros(16), r"gives float64 of shape \(16,\)"),
        (lambda x: np.zeros((3, 32)), r"gives float64 of shape \(3, 32\)"),
        (lambda x: np.zeros((1, 1, 32)), "gives float64 of shape"),
        (lambda x: None, "gives object of shape"),
        (lambda x: "7", "gives <U1 of shape"),
        (lambda x: x * 1j, "gives complex"),
    ],
)
def test_a_sim_function_that_fails(sim: Any, says: str) -> None:
    mine = _own(sim=sim)

    @tk.kernel(threads=32)
    def kernel(y: tk.gl(tk.i32)):
        y[threadIdx.x] = mine(tk.u32(threadIdx.x))

    with pytest.raises(tk.KernelFault, match="TK514: the sim function of 'mine' " + says) as e:
        kernel.sim[2](np.zeros(32, np.int32))
    assert "mine(" in e.value.loc.text()
    assert (e.value.__cause__ is not None) == ("raises" in says)
