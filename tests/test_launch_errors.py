"""Launches that cannot work: each says which argument, why, and what to pass instead."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from lang_kit import load

import tklearn as tk

KERNELS = """
@tk.kernel(threads=32)
def k(n: tk.i32, a: tk.f32, x: tk.gl_fl, y: tk.gl_fl, D: tk.const = 2):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < n:
        y[i] = a * x[i] + D

@tk.kernel(warps=1)
def tile(x: tk.gl_bf, y: tk.gl_bf):
    t = tk.rt_bf(16, 16)
    warp.load(t, x, (0, blockIdx.x))
    warp.store(y, t, (0, blockIdx.x))
"""


@pytest.fixture(scope="module")
def m(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return load(tmp_path_factory.mktemp("launch"), KERNELS)


def refused(m: ModuleType, call: Any) -> str:
    """The message of a launch that must fail, without the folder."""
    with pytest.raises(tk.TkError) as e:
        call()
    assert m.__file__
    return str(e.value).replace(str(Path(m.__file__).parent) + "/", "")


def arrays(n: int = 32) -> tuple[np.ndarray, np.ndarray]:
    return np.ones(n, np.float32), np.zeros(n, np.float32)


DEF = "    def k(n: tk.i32, a: tk.f32, x: tk.gl_fl, y: tk.gl_fl, D: tk.const = 2):\n"


def place(name: str) -> str:
    """The place of a parameter of k, as messages show it."""
    start = DEF.index(f" {name}: ") + 1
    return f"\n  learner.py:8\n{DEF}{' ' * start}" + "^" * (len(name) + 2 + len("tk.gl_fl"))


def test_a_launch_that_works(m: ModuleType) -> None:
    x, y = arrays()
    m.k[1](32, 2, x, y)
    assert (y == 4).all()


@pytest.mark.parametrize("grid", [0, (0, 5), (3, 0, 1)])
def test_an_empty_grid_does_nothing(m: ModuleType, grid: Any) -> None:
    x, y = arrays()
    m.k[grid](32, 2, x, y)
    assert (y == 0).all()


def test_dtype(m: ModuleType) -> None:
    x, y = arrays()
    assert refused(m, lambda: m.k[1](32, 2, x.astype(np.float64), y)) == (
        "TK401: 'x' of k must be f32, but it is float64"
        + place("x")
        + "\n  hint: convert with x.astype(np.float32), or annotate another dtype"
    )
    assert "it is complex64" in refused(m, lambda: m.k[1](32, 2, x.astype(np.complex64), y))
    assert "it is >f4" in refused(m, lambda: m.k[1](32, 2, x.astype(">f4"), y))
    text = refused(m, lambda: m.tile[1](x.reshape(4, 8), y.reshape(4, 8)))
    assert text.startswith("TK401: 'x' of tile must be bf16, but it is float32")
    assert "x.astype(ml_dtypes.bfloat16)" in text


def test_dimensions_and_strides(m: ModuleType) -> None:
    x, y = arrays()
    text = refused(m, lambda: m.k[1](32, 2, np.float32(1), y))
    assert text.startswith("TK400: 'x' of k must be an array of f32, not float32")
    assert refused(m, lambda: m.k[1](32, 2, np.zeros((), np.float32), y)).startswith(
        "TK402: 'x' of k has 0 dimensions"
    )
    assert refused(m, lambda: m.k[1](32, 2, np.zeros((1,) * 5, np.float32), y)).startswith(
        "TK402: 'x' of k has 5 dimensions"
    )
    assert refused(m, lambda: m.k[1](16, 2, x[::2], y)) == (
        "TK402: 'x' of k has strides (2,) (in elements)"
        + place("x")
        + "\n  hint: the last axis must be contiguous and no stride negative: "
        "np.ascontiguousarray(x)"
    )
    assert refused(m, lambda: m.k[1](32, 2, x[::-1], y)).startswith("TK402")
    # the indexing of the kernel: found when it is specialised, shown at the line
    text = refused(m, lambda: m.k[1](32, 2, x.reshape(4, 8), y))
    assert text == (
        "TK204: 1 index for gl_fl of 2 dimensions\n"
        "  learner.py:11\n"
        "            y[i] = a * x[i] + D\n"
        "                       ^^^^\n"
        "  hint: write x[i, j]: an index for each dimension, in one pair of brackets"
    )


def test_numbers(m: ModuleType) -> None:
    x, y = arrays()
    assert refused(m, lambda: m.k[1](3.5, 2, x, y)) == (
        "TK400: 'n' of k must be a whole number (i32), not 3.5"
        "\n  learner.py:8\n" + DEF + "          ^^^^^^^^^"
        "\n  hint: pass int(x), or annotate it tk.f32"
    )
    assert refused(m, lambda: m.k[1](2**31, 2, x, y)).startswith(
        "TK400: 'n' of k is 2147483648, which does not fit i32"
    )
    assert refused(m, lambda: m.k[1](x, 2, x, y)).startswith(
        "TK400: 'n' of k must be a number (i32), not ndarray"
    )
    assert "tk.gl_fl, if one was meant" in refused(m, lambda: m.k[1](x, 2, x, y))
    assert refused(m, lambda: m.k[1](1, "2", x, y)).startswith("TK400: 'a' of k must be a number")
    m.k[1](np.int64(32), np.float64(2), x, y)
    assert (y == 4).all()


def test_missing_extra_and_unknown_arguments(m: ModuleType) -> None:
    x, y = arrays()
    form = "\n  hint: k(n, a, x, y, D)"
    assert refused(m, lambda: m.k[1](32, 2, x)) == "TK400: 'k' lacks y" + form
    assert (
        refused(m, lambda: m.k[1](32, 2, x, y, 2, 3))
        == "TK400: 'k' takes 5 arguments, not 6" + form
    )
    assert refused(m, lambda: m.k[1](32, 2, x, y, x=x)) == "TK400: 'x' is given twice" + form
    assert refused(m, lambda: m.k[1](32, 2, x, y, E=3)) == "TK400: 'k' has no parameter 'E'" + form
    assert refused(m, lambda: m.k[1](32, 2, x, y, seed=3)) == (
        "TK411: 'k' has no parameter 'seed'\n  hint: simulator options go with k.sim[grid](...)"
    )
    assert refused(m, lambda: m.k.sim[1](32, 2, x, y, schedule="sideways")).startswith("TK411")
    assert refused(m, lambda: m.k[1](32, 2, x, y, D=[1])) == (
        "TK400: 'D' of k is a compile-time value and cannot be list"
        "\n  hint: numbers, dtypes, layouts, flags and tuples of those can"
    )
    assert refused(m, lambda: m.k[1](32, 2, [1.0], y)).startswith(
        "TK400: 'x' of k must be an array of f32, not list"
    )
    assert refused(m, lambda: m.k(32, 2, x, y)) == (
        "TK407: 'k' needs a grid\n  hint: write k[blocks](...)"
    )


@pytest.mark.parametrize(
    "grid", [-1, 1.5, "3", (1, 2, 3, 4), (), (1, 65536), None, 2**31], ids=repr
)
def test_grid(m: ModuleType, grid: Any) -> None:
    text = refused(m, lambda: m.k[grid])
    assert text.startswith("TK407: a grid of ")
    assert "\n  hint: " in text


@pytest.mark.parametrize(
    "size",
    [
        {},
        {"warps": 4, "threads": 128},
        {"warps": 0},
        {"warps": 33},
        {"warps": True},
        {"warps": 2.0},
        {"threads": 1025},
        {"threads": (32, 33)},
        {"threads": (1, 1, 65)},
        {"threads": (1, 1, 1, 1)},
        {"threads": ()},
        {"threads": "many"},
        {"threads": (32, 0)},
    ],
    ids=repr,
)
def test_block(size: dict[str, Any]) -> None:
    with pytest.raises(tk.LaunchError, match="TK407") as e:
        tk.kernel(**size)
    assert e.value.hint


def test_read_only_and_overlapping_arrays(m: ModuleType) -> None:
    x, y = arrays()
    fixed = y.copy()
    fixed.flags.writeable = False
    assert refused(m, lambda: m.k[1](32, 2, x, fixed)) == (
        "TK404: 'y' is an output of k, but the array is read-only"
        + place("y")
        + "\n  hint: pass a copy: x.copy()"
    )
    frozen = x.copy()
    frozen.flags.writeable = False
    m.k[1](32, 2, frozen, y)  # inputs may be read-only
    assert refused(m, lambda: m.k[1](32, 2, x, x)) == (
        "TK403: 'y' is an output of k and overlaps 'x'"
        + place("y")
        + "\n  hint: write into another array: x.copy(), np.empty_like(x)"
    )
    both = np.zeros(48, np.float32)
    assert refused(m, lambda: m.k[1](16, 2, both[:32], both[16:])).startswith("TK403")
    m.k[1](16, 2, both[:16], both[16:])
    wide = np.zeros((16, 32), np.float32)
    apart = load(
        Path(m.__file__ or "").parent,
        "@tk.kernel(threads=32)\n"
        "def k(x: tk.gl_fl, y: tk.gl_fl):\n"
        "    y[0, threadIdx.x % 16] = x[0, threadIdx.x % 16]\n",
        "halves",
    )
    apart.k.sim[1](wide[:, :16], wide[:, 16:], check="off")  # interleaved columns share no byte
    same = np.broadcast_to(x, (4, 32))
    writable = np.lib.stride_tricks.as_strided(y, (4, 32), (0, 4))
    two = load(
        Path(m.__file__ or "").parent,
        "@tk.kernel(threads=32)\ndef k(x: tk.gl_fl, y: tk.gl_fl):\n"
        "    y[0, threadIdx.x] = x[0, threadIdx.x]\n",
        "two",
    )
    assert refused(two, lambda: two.k[1](same, writable)).startswith(
        "TK403: 'y' is an output of k, but several of its indices name one element"
    )
    two.k[1](same, y.reshape(1, 32))  # an input may repeat


def test_a_reference_or_a_helper_makes_an_output_too(tmp_path: Path) -> None:
    m = load(
        tmp_path,
        "@tk.device\ndef put(z: tk.gl_fl, i: tk.i32):\n    z[i] = 1\n"
        "@tk.kernel(threads=32)\ndef k(y: tk.gl_fl):\n    z = y\n    z[0] = 1\n"
        "@tk.kernel(threads=32)\ndef j(y: tk.gl_fl):\n    put(y, threadIdx.x)\n",
    )
    y = np.zeros(32, np.float32)
    y.flags.writeable = False
    assert refused(m, lambda: m.k[1](y)).startswith("TK404: 'y' is an output of k")
    assert refused(m, lambda: m.j[1](y)).startswith("TK404: 'y' is an output of j")


def test_no_gpu(m: ModuleType) -> None:
    x, y = arrays()
    assert refused(m, lambda: m.k.gpu[1](32, 2, x, y)) == (
        "TK420: k.gpu needs arrays on a GPU; these are in host memory"
        "\n  hint: pass cupy.asarray(x) or x.cuda(); tk.doctor() says what this machine has"
    )


def test_no_nvrtc(m: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    from tklearn.cuda import compile as nv

    for name in ("cupy", "cupy.cuda", "cupy.cuda.nvrtc"):
        monkeypatch.setitem(sys.modules, name, None)
    text = refused(m, nv.load_nvrtc)
    assert text.startswith("TK421: the CUDA compiler NVRTC cannot be loaded")
    assert "pip install 'tklearn[gpu]'" in text
    assert "__global__" in m.k.source()  # the listing needs no compiler


def test_gpu_too_old_or_too_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tklearn.cuda import launch as gpu

    m = load(
        tmp_path,
        "@tk.kernel(warps=1)\ndef k(x: tk.gl_bf, y: tk.gl_bf):\n"
        "    s = tk.shared(tk.st_bf(64, 64), 9)\n"
        "    t = tk.rt_bf(16, 64)\n"
        "    warp.load(t, s[0].subtile(16, 64, (0, 0)))\n"
        "    warp.store(y, t, (0, 0))\n",
    )
    spec = m.k.ir()
    monkeypatch.setattr(gpu, "device_facts", lambda d: ("T4", 75, 65536))
    assert refused(m, lambda: gpu.check_device(spec, 0)) == (
        "TK422: 'k' needs an sm_80 GPU; T4 is sm_75\n"
        "  learner.py:7\n"
        "    def k(x: tk.gl_bf, y: tk.gl_bf):\n"
        "          ^^^^^^^^^^^\n"
        "  hint: the simulator runs it on any machine; other dtypes may need less"
    )
    monkeypatch.setattr(gpu, "device_facts", lambda d: ("A10", 86, 65536))
    assert refused(m, lambda: gpu.check_device(spec, 0)) == (
        "TK408: 'k' needs 73728 bytes of shared memory; A10 gives a block at most 65536\n"
        "  learner.py:8\n"
        "        s = tk.shared(tk.st_bf(64, 64), 9)\n"
        "        ^\n"
        "  hint: take smaller tiles or fewer stages"
    )


def test_a_lost_context_says_to_restart() -> None:
    from tklearn.cuda.launch import STICKY, gpu_error

    error = RuntimeError("cudaErrorIllegalAddress")
    error.status = next(iter(STICKY))  # type: ignore[attr-defined]
    text = str(gpu_error(error, "the launch of k"))
    assert text.startswith("TK424")
    assert "restart the kernel" in text


needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed"
)


@needs_torch
def test_torch_arguments(m: ModuleType) -> None:
    import torch

    x, y = torch.ones(32), torch.zeros(32)
    m.k[1](32, 2, x, y)
    assert bool((y == 4).all())
    text = refused(m, lambda: m.k[1](32, 2, x.double(), y))
    assert text.startswith("TK401: 'x' of k must be f32, but it is float64")
    assert "x.to(torch.float32)" in text
    assert "x.contiguous()" in refused(m, lambda: m.k[1](16, 2, x[::2], y))
    text = refused(m, lambda: m.k[1](32, 2, torch.ones(32, requires_grad=True), y))
    assert text.startswith("TK406: 'x' of k requires grad")
    assert "tk.torch_op" in text
    with torch.no_grad():
        m.k[1](32, 2, torch.ones(32, requires_grad=True), y)
    assert refused(m, lambda: m.k[1](32, 2, torch.ones(32, device="meta"), y)).startswith(
        "TK405: the arrays of k live on different devices: 'x' on meta"
    )
    meta = torch.ones(32, device="meta")
    assert refused(m, lambda: m.k[1](32, 2, meta, torch.zeros(32, device="meta"))).startswith(
        "TK405: arrays on meta"
    )


def test_devices_by_description(m: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays of two GPUs, or of a GPU for the simulator, told apart without any GPU."""
    from tklearn import launching
    from tklearn.lang import types as T
    from tklearn.tensor import Array

    def fake(v: SimpleNamespace) -> Array:
        return Array(v, "cupy", v.device, T.f32, "float32", (32,), (1,), v.ptr, True)

    monkeypatch.setattr(launching.tensor, "describe", fake)
    on0, on1 = (SimpleNamespace(device=f"cuda:{i}", ptr=4096 * i) for i in range(2))
    assert refused(m, lambda: m.k[1](32, 2, on0, on1)) == (
        "TK405: the arrays of k live on different devices: 'x' on cuda:0, 'y' on cuda:1"
        "\n  hint: move them to one device"
    )
    assert refused(m, lambda: m.k.sim[1](32, 2, on0, on0)).startswith(
        "TK405: the simulator works on arrays in host memory, not on cuda:0"
    )


def test_sizes_of_the_gallery() -> None:
    from tklearn.kernels import saxpy

    with pytest.raises(tk.LaunchError) as e:
        saxpy.run(2.0, np.zeros(4, np.float32), np.zeros(5, np.float32))
    assert e.value.code == "TK410"


RIGHT: dict[str, list] = {
    "schedule": ["rotate", "reverse", "random", [0, 1], (1, 0), ["1*1", 0]],
    "seed": [0, -3, np.int64(5)],
    "delay": [None, {}, {0: 3, 1: 0}, {np.int32(1): np.int64(2)}],
    "check": ["full", "fast", "off"],
    "mma": ["fast", "exact"],
    "arch": ["hopper", "ampere"],
    "blocks": [None, [0], [(0, 0, 0)], range(1), [(0,)], np.arange(1), iter([0]), []],
    "device": ["H200", "nvidia t4"],
    "batch": [True, False],
    "steps": [1000, np.int64(1000)],
    "trace": [True],
    "timeline": [True],
    "runs": [1, np.int64(100)],
    "seconds": [1, 2.5, np.float32(3)],
    "prune": ["orders", "states", "none"],
}
WRONG: dict[str, list] = {
    "schedule": ["sideways", 3, None, ["a"], [7]],
    "seed": ["a", 1.5, None],
    "delay": [5, {"a": 1}, {77: 3}, {0: -1}, {0: "x"}, [1], {-1: 1}, {0: 1.5}],
    "check": ["most", None, True, ["full"]],
    "mma": ["slow", 1],
    "arch": ["H200", 90],
    "blocks": [0, "0", [5], [(0, 1)], ["a"], [(0, 0, 0, 0)], [-1], {0: 1}, [1.5]],
    "device": ["abacus", 5, None],
    "batch": [1, "yes"],
    "steps": ["a", 0, -1, 1.5, True],
    "trace": ["yes"],
    "timeline": [1],
    "runs": ["x", 0, -1, 2.5],
    "seconds": ["x", 0, -1, None],
    "prune": ["all", None],
}


def test_each_option_has_values_to_try() -> None:
    from tklearn.kernel import SIM_OPTIONS
    from tklearn.sim.explore import OPTIONS

    assert set(RIGHT) == set(WRONG) == {*SIM_OPTIONS, *OPTIONS}


@tk.kernel(warps=2)
def two_warps(y: tk.gl_fl):
    y[tk.threadIdx.x] = 1.0


def ways(name: str):
    """The calls that take an option."""
    from tklearn.kernel import SIM_OPTIONS
    from tklearn.sim.explore import OPTIONS

    launch = two_warps.sim[1]
    return ([launch] if name in SIM_OPTIONS else []) + ([launch.explore] * (name in OPTIONS))


@pytest.mark.parametrize("name", RIGHT)
def test_options_that_are_possible(name: str) -> None:
    for way in ways(name):
        for value in RIGHT[name]:
            given = list(value) if type(value).__name__ == "list_iterator" else value
            way(np.zeros(64, np.float32), **{name: given})


@pytest.mark.parametrize("name", WRONG)
def test_options_that_are_not_possible(name: str) -> None:
    for way in ways(name):
        for value in WRONG[name]:
            with pytest.raises(tk.LaunchError, match="TK411") as e:
                way(np.zeros(64, np.float32), **{name: value})
            assert name in e.value.message or value == "abacus", e.value
            assert e.value.hint


def test_a_misspelt_option() -> None:
    y = np.zeros(64, np.float32)
    for near, name in (("shedule", "schedule"), ("seeds", "seed"), ("delays", "delay")):
        with pytest.raises(tk.LaunchError, match=rf"TK411.*'{near}'") as e:
            two_warps.sim[1](y, **{near: 1})
        assert e.value.hint.startswith(f"did you mean '{name}'? its parameters: y; options: sch")
    with pytest.raises(tk.LaunchError, match=r"TK411.*'run'") as e:
        two_warps.sim[1].explore(y, run=1)
    assert e.value.hint.startswith("did you mean 'runs'?")
    with pytest.raises(tk.LaunchError, match=r"TK411.*'quux'") as e:
        two_warps.sim[1](y, quux=1)
    assert e.value.hint.startswith("its parameters: y; options: schedule, seed, ")
