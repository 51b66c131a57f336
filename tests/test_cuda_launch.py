"""Launching: argument buffer, limits, errors, the quick way on a pretended driver; and on a GPU."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import cuda_cases as cases
import numpy as np
import pytest

import tklearn as tk
from tklearn.cuda import compile as cc
from tklearn.cuda import launch as cl
from tklearn.cuda.quick import Quick
from tklearn.lang import ir
from tklearn.lang import types as T
from tklearn.lang.errors import Loc, TkError

HERE = Loc(__file__, 1)


def _param(t: T.Type) -> ir.Sym:
    return ir.Sym("p", t, "param", HERE)


# ------------------------------------------------------------------------------ argument buffer
def test_argument_buffer_is_laid_out_as_cpp_does() -> None:
    params = [
        _param(t)
        for t in (T.I32, T.GL(T.bf16, 2), T.BOOL, T.F32, T.I64, T.BOOL, T.U32, T.GL(T.f32, 1))
    ]
    packed = cl.argument_format(params)
    # int 0; gl 8 (aligned); bool 56; float 60; long long 64; bool 72; unsigned 76; gl 80
    assert packed.size == 128
    data = packed.pack(
        -1, 7, 1, 1, 5, 6, 0, 0, 6, True, 1.5, -2, False, 2**32 - 1, 9, 1, 1, 1, 3, 0, 0, 0
    )
    assert struct.unpack_from("<i", data, 0) == (-1,)
    assert struct.unpack_from("<Qiiiiqqq", data, 8) == (7, 1, 1, 5, 6, 0, 0, 6)
    assert struct.unpack_from("<?", data, 56) == (True,)
    assert struct.unpack_from("<f", data, 60) == (1.5,)
    assert struct.unpack_from("<q", data, 64) == (-2,)
    assert struct.unpack_from("<I", data, 76) == (2**32 - 1,)
    assert struct.unpack_from("<Q", data, 80) == (9,)


def test_argument_buffer_agrees_with_the_compiler() -> None:
    """The cubin says where each parameter lies: EIATTR_KPARAM_INFO of its .nv.info section."""
    pytest.importorskip("cupy", reason="CuPy is not installed")
    from tklearn.cuda.emit import emit

    spec = cases.specialise(cases.parameters, 32, {"B": 2})
    image = cc.compile_source(emit(spec), 80).image
    places, at = {}, image.find(b"\x04\x17\x0c\x00")
    while at >= 0:
        _, ordinal, offset, size = struct.unpack_from("<IHHI", image, at + 4)
        places[ordinal] = offset, size >> 18
        at = image.find(b"\x04\x17\x0c\x00", at + 16)
    want, end = {}, 0
    for i in range(len(spec.params)):
        before = cl.argument_format(spec.params[:i]).size
        end = cl.argument_format(spec.params[: i + 1]).size
        size = struct.calcsize(cl.argument_format(spec.params[i : i + 1]).format)
        assert before + size <= end
        want[i] = end - size, size
    assert places == want


@pytest.mark.parametrize(("shape", "strides", "fields"), [
    ((5,), (1,), (9, 1, 1, 1, 5, 0, 0, 0)),
    ((4, 5), (8, 1), (9, 1, 1, 4, 5, 0, 0, 8)),
    ((3, 4, 5), (40, 8, 1), (9, 1, 3, 4, 5, 0, 40, 8)),
    ((2, 3, 4, 5), (200, 40, 8, 1), (9, 2, 3, 4, 5, 200, 40, 8)),
])  # fmt: skip
def test_arrays_become_gl(
    shape: tuple[int, ...], strides: tuple[int, ...], fields: tuple[int, ...]
) -> None:
    assert cl.gl_fields(9, shape, strides) == fields


def test_numbers_beyond_float32_become_infinite() -> None:
    assert cl.number(T.F32, 1e300) == float("inf")
    assert cl.number(T.F32, -1e300) == float("-inf")
    assert cl.number(T.F32, 0.1) == 0.1
    assert cl.number(T.I32, 3) == 3


# -------------------------------------------------------------------------------- limits, errors
@pytest.mark.parametrize("grid", [(2**31, 1, 1), (1, 65536, 1), (1, 1, 65536), (-1, 1, 1)])
def test_impossible_grids(grid: tuple[int, int, int]) -> None:
    with pytest.raises(TkError, match="TK407"):
        cl.check_grid(grid)
    cl.check_grid((2**31 - 1, 65535, 65535))


def test_an_old_gpu_is_told_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = cases.specialise(cases.gemm, 128, {"A": 2, "B": 2, "C": 2})
    monkeypatch.setattr(cl, "device_facts", lambda d: ("Tesla T4", 75, 64 * 1024))
    with pytest.raises(TkError, match=r"TK422.*sm_80.*Tesla T4") as e:
        cl.check_device(spec, 0)
    assert e.value.loc is not None
    assert e.value.loc.file == spec.file


def test_too_much_shared_memory_for_this_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = cases.specialise(cases.gemm, 128, {"A": 2, "B": 2, "C": 2}, STAGES=8)
    monkeypatch.setattr(cl, "device_facts", lambda d: ("RTX 3090", 86, 99 * 1024))
    with pytest.raises(TkError, match=r"TK408.*131072 bytes.*RTX 3090"):
        cl.check_device(spec, 0)
    monkeypatch.setattr(cl, "device_facts", lambda d: ("A100", 80, 163 * 1024))
    cl.check_device(spec, 0)


def test_a_lost_context_says_restart() -> None:
    broken = RuntimeError("CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered")
    broken.status = 700  # type: ignore[attr-defined]
    e = cl.gpu_error(broken, "the launch of 'k'")
    assert e.code == "TK424"
    assert "restart the kernel" in e.hint
    assert "illegal memory access" in e.message
    assert cl.gpu_error(RuntimeError("invalid"), "x").code == "TK400"


def test_no_gpu_is_an_error_with_a_remedy() -> None:
    pytest.importorskip("cupy", reason="CuPy is not installed")
    from tklearn.doctor import ask_driver

    if ask_driver().gpus:
        pytest.skip("this machine has a GPU")
    cl.device_facts.cache_clear()
    with pytest.raises(TkError, match="TK420") as e:
        cl.device_facts(0)
    assert "tklearn doctor" in e.value.hint


def test_importing_launch_needs_no_cupy() -> None:
    code = (
        "import sys, tklearn.cuda.launch, tklearn.cuda.quick;"
        "assert not {'cupy', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parent.parent)


# ----------------------------------------------------------------- a pretended driver and arrays
class FakeArray:
    """What the quick way asks of a CuPy array."""

    def __init__(
        self, ptr: int, shape: Any, itemsize: int = 4, strides: Any = None, device: int = 0
    ) -> None:
        steps = [itemsize]
        for n in reversed(shape[1:]):
            steps.insert(0, steps[0] * n)
        self.shape, self.ndim, self.itemsize = shape, len(shape), itemsize
        self.strides = tuple(steps) if strides is None else strides
        self.dtype = f"float{8 * itemsize}"
        self.data = types.SimpleNamespace(ptr=ptr, device_id=device)


FakeArray.__module__ = "cupy._core.core"


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """A launcher's calls of the driver; no CuPy, no compiler."""
    made: list[tuple[Any, ...]] = []

    def load(self: cl.Launcher) -> None:
        def launch(handle: int, *rest: int) -> None:
            import ctypes

            data = ctypes.string_at(self._extra[1], self._size.value)
            assert (self._extra[0], self._extra[2], self._extra[4]) == (1, 2, None)
            made.append((handle, rest[:3], rest[3:6], rest[6], rest[7], data))

        self.handle, self.driver_launch, self.get_device = 77, launch, lambda: 0

    monkeypatch.setattr(cl.Launcher, "_load", load)
    monkeypatch.setattr(cl, "device_facts", lambda d: ("H200", 90, 227 * 1024))
    monkeypatch.setattr(
        cl, "compile_source", lambda s, a, **k: cc.Cubin(b"", s.entry, a, cc.Facts(9), "")
    )
    for module in (cl, sys.modules["tklearn.cuda.quick"]):
        monkeypatch.setattr(module, "current_stream", lambda d, t: 5)
    return made


def _array(ptr: int, n: int) -> Any:
    return types.SimpleNamespace(
        ptr=ptr, shape=(n,), strides=(1,), size=n, library="cupy", obj=FakeArray(ptr, (n,))
    )


def test_run_packs_and_launches(calls: list[Any]) -> None:
    spec = cases.specialise(cases.saxpy, 256)
    report = cl.run(spec, (4, 1, 1), [1000, 2.5, _array(4096, 1000), _array(65536, 1000)], "cuda:0")
    ((handle, grid, block, shared, stream, data),) = calls
    assert (handle, grid, block, shared, stream) == (77, (4, 1, 1), (256, 1, 1), 0, 5)
    assert struct.unpack("<if" + "Qiiiiqqq" * 2, data) == (
        1000, 2.5, 4096, 1, 1, 1, 1000, 0, 0, 0, 65536, 1, 1, 1, 1000, 0, 0, 0)  # fmt: skip
    assert (report.machine, report.device, report.compiled.registers) == ("cuda", "H200", 9)
    assert report.timer is not None


def test_empty_grids_and_arrays(calls: list[Any]) -> None:
    spec = cases.specialise(cases.saxpy, 256)
    report = cl.run(spec, (0, 1, 1), [0, 2.5, _array(4096, 0), _array(65536, 0)], "cuda:0")
    assert calls == []
    assert report.seconds is None
    cl.run(spec, (1, 1, 1), [0, 2.5, _array(4096, 0), _array(65536, 0)], "cuda:0")
    assert struct.unpack_from("<Q", calls[0][-1], 8) == (0,)


def test_launchers_are_kept_per_device(calls: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    spec = cases.specialise(cases.saxpy, 256)
    one = cl.launcher(spec, 0)
    assert cl.launcher(spec, 0) is one
    assert cl.launcher(spec, 1) is not one
    assert cl.launcher(spec, 0, counting=True) is not one


PARAMS = {"n": T.I32, "a": T.F32, "x": T.gl_fl, "y": T.gl_fl}


def _again(
    quick: Quick, args: tuple[Any, ...], grid: tuple[int, int, int] = (2, 1, 1), **kwargs: Any
) -> Any:
    return quick.again(grid, args, kwargs, lambda spec: True)


def _quick(spec: ir.Kernel) -> tuple[Quick, tuple[Any, ...]]:
    quick, args = Quick(PARAMS), (10, 1.0, FakeArray(4096, (10,)), FakeArray(8192, (10,)))
    assert _again(quick, args) is None
    quick.remember(args, {}, spec, "cuda:0")
    return quick, args


def test_quick_launch_equals_the_long_one(calls: list[Any]) -> None:
    spec = cases.specialise(cases.saxpy, 256)
    quick, args = _quick(spec)
    report = _again(quick, args)
    long = cl.run(spec, (2, 1, 1), [10, 1.0, _array(4096, 10), _array(8192, 10)], "cuda:0")
    assert len(calls) == 2
    assert calls[0] == calls[1]
    assert (report.kernel, report.grid, report.compiled) == (long.kernel, long.grid, long.compiled)
    other = (7, 2.5, FakeArray(16, (3,)), FakeArray(32, (3,)))
    assert _again(quick, other) is not None
    cl.run(spec, (2, 1, 1), [7, 2.5, _array(16, 3), _array(32, 3)], "cuda:0")
    assert calls[2] == calls[3]


def test_quick_launch_of_many_dimensions(calls: list[Any]) -> None:
    spec = cases.specialise(cases.gemm, 128, {"A": 3, "B": 4, "C": 2})
    params = {"A": T.gl_bf, "B": T.gl_bf, "C": T.gl_bf, "STAGES": T.const}
    a = FakeArray(1 << 20, (3, 4, 5), 2, strides=(2000, 200, 2))
    b, c = FakeArray(1 << 21, (2, 3, 4, 5), 2), FakeArray(1 << 22, (4, 5), 2)
    quick = Quick(params)
    quick.remember((a, b, c), {"STAGES": 2}, spec, "cuda:0")
    assert _again(quick, (a, b, c), STAGES=2) is not None
    assert _again(quick, (a, b, c), STAGES=3) is None
    assert _again(quick, (a, b, c), STAGES=2.0) is None
    assert _again(quick, (a, b, c)) is None
    ((_, _, _, shared, _, data),) = calls
    assert shared == spec.shared_bytes
    assert struct.unpack("<" + "Qiiiiqqq" * 3, data) == (
        1 << 20, 1, 3, 4, 5, 0, 1000, 100, 1 << 21, 2, 3, 4, 5, 60, 20, 5,
        1 << 22, 1, 1, 4, 5, 0, 0, 5)  # fmt: skip
    quick2 = Quick(params)  # 40 bytes that end where C starts
    near = (FakeArray((1 << 22) - 40, (1, 4, 5), 2), b, c)
    quick2.remember(near, {"STAGES": 2}, spec, "cuda:0")
    assert _again(quick2, near, STAGES=2) is not None
    closer = (FakeArray((1 << 22) - 38, (1, 4, 5), 2), b, c)
    assert _again(quick2, closer, STAGES=2) is None


@pytest.mark.parametrize("change", [
    lambda a: (a[0], a[1], FakeArray(4096, (10,), itemsize=2), a[3]),  # another dtype
    lambda a: (a[0], a[1], FakeArray(4096, (2, 5)), a[3]),  # another number of dimensions
    lambda a: (a[0], a[1], FakeArray(4096, (10,), device=1), a[3]),  # another device
    lambda a: (a[0], 2, a[2], a[3]),  # an int for a float
    lambda a: (True, a[1], a[2], a[3]),  # a bool for an int
    lambda a: (a[0], a[1], np.zeros(10, np.float32), a[3]),  # host memory
    lambda a: a[:3],
    lambda a: (*a, 1),
    lambda a: (a[0], a[1], a[2], FakeArray(4096, (10,))),  # the output is the input
    lambda a: (a[0], a[1], a[2], FakeArray(4096 + 36, (10,))),  # and overlaps by one element
    lambda a: (a[0], a[1], a[2], FakeArray(8192, (10,), strides=(8,))),  # not contiguous
    lambda a: (a[0], a[1], a[2], FakeArray(8192, (10,), strides=(0,))),  # broadcast
    lambda a: (a[0], a[1], a[2], FakeArray(8192, (0,))),  # empty
    lambda a: (2**31, a[1], a[2], a[3]),  # too large for an i32
    lambda a: (a[0], 1e300, a[2], a[3]),  # too large for an f32
])  # fmt: skip
def test_other_or_doubtful_arguments_go_the_long_way(calls: list[Any], change: Any) -> None:
    quick, args = _quick(cases.specialise(cases.saxpy, 256))
    assert _again(quick, change(args)) is None
    assert calls == []
    assert _again(quick, args) is not None


def test_changed_constants_and_empty_grids_go_the_long_way(calls: list[Any]) -> None:
    spec = cases.specialise(cases.saxpy, 256)
    spec.captures = {("SCALE",): 2.0}  # a module constant that it read
    quick, args = _quick(spec)
    assert quick.again((1, 1, 1), args, {}, lambda spec: False) is None
    assert _again(quick, args, grid=(0, 1, 1)) is None
    assert calls == []


class FakeTensor:
    """What the quick way asks of a torch tensor."""

    def __init__(self, ptr: int, *shape: int, grad: bool = False, device: int = 0) -> None:
        self._ptr, self.shape, self.requires_grad, self._device = ptr, shape, grad, device
        self.dtype = "torch.float32"

    def data_ptr(self) -> int:
        return self._ptr

    def dim(self) -> int:
        return len(self.shape)

    def get_device(self) -> int:
        return self._device

    def stride(self) -> tuple[int, ...]:
        return tuple(int(np.prod(self.shape[i + 1 :])) for i in range(len(self.shape)))


def test_quick_launch_of_torch_tensors(calls: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    streams = types.SimpleNamespace(_cuda_getCurrentRawStream=lambda device: 40 + device)
    torch = types.SimpleNamespace(_C=streams, is_grad_enabled=lambda: True)
    monkeypatch.setitem(sys.modules, "torch", torch)
    spec = cases.specialise(cases.transpose, (32, 8, 1), {"src": 2, "dst": 2})
    quick = Quick({"src": T.gl_fl, "dst": T.gl_fl})
    args = FakeTensor(4096, 6, 5), FakeTensor(8192, 5, 6)
    quick.remember(args, {}, spec, "cuda:0")
    assert _again(quick, args) is not None
    ((_, _, _, shared, stream, data),) = calls
    assert (shared, stream) == (32 * 33 * 4, 40)
    assert struct.unpack("<" + "Qiiiiqqq" * 2, data) == (
        4096, 1, 1, 6, 5, 0, 0, 5, 8192, 1, 1, 5, 6, 0, 0, 6)  # fmt: skip
    for other in (
        (FakeTensor(4096, 6, 5, grad=True), args[1]),
        (FakeTensor(4096, 6, 5, device=1), args[1]),
        (FakeTensor(4096, 6, 5), FakeTensor(4096 + 119, 5, 6)),
    ):
        assert _again(quick, other) is None
    torch.is_grad_enabled = lambda: False
    assert _again(quick, (FakeTensor(4096, 6, 5, grad=True), args[1])) is not None


def test_keyword_arrays_are_not_remembered(calls: list[Any]) -> None:
    quick, args = Quick(PARAMS), (10, 1.0, FakeArray(4096, (10,)), FakeArray(8192, (10,)))
    quick.remember(args[:3], {"y": args[3]}, cases.specialise(cases.saxpy, 256), "cuda:0")
    assert quick.again((1, 1, 1), args[:3], {"y": args[3]}, lambda spec: True) is None


def test_to_device_without_torch_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    import ml_dtypes

    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(TkError, match=r"TK401.*bfloat16"):
        cl.to_device(np.zeros(3, ml_dtypes.bfloat16))


# ------------------------------------------------------------------------------------ on a GPU
@tk.kernel(threads=256)
def gpu_saxpy(n: tk.i32, a: tk.f32, x: tk.gl_fl, y: tk.gl_fl):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < n:
        y[i] = a * x[i] + y[i]


@tk.kernel(threads=32)
def gpu_crash(x: tk.gl(tk.i32)):
    assert x[0] == 1, "x[0] is not 1"


from tklearn import blockDim, blockIdx, threadIdx  # noqa: E402


@pytest.mark.gpu
def test_gpu_saxpy_with_cupy_and_a_stream() -> None:
    import cupy

    x, y = cupy.arange(1000, dtype=cupy.float32), cupy.ones(1000, dtype=cupy.float32)
    with cupy.cuda.Stream(non_blocking=True) as stream:
        for _ in range(2):  # the second goes the quick way
            report = gpu_saxpy[4](1000, 2.0, x, y)
        stream.synchronize()
    cupy.testing.assert_array_equal(y, 4 * x + 1)
    before = y.copy()
    assert report.compiled.registers > 0
    assert 0 < report.seconds < 1e-3
    cupy.testing.assert_array_equal(y, before)  # timing works on copies


@pytest.mark.gpu
def test_gpu_launch_in_a_torch_graph() -> None:
    torch = pytest.importorskip("torch")
    x = torch.arange(1000, device="cuda", dtype=torch.float32)
    y = torch.zeros_like(x)
    gpu_saxpy[4](1000, 1.0, x, y)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        gpu_saxpy[4](1000, 1.0, x, y)
        gpu_saxpy[4](1000, 1.0, x, y)
    graph.replay()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(y, 5 * x)


@pytest.mark.gpu
def test_gpu_shared_memory_over_48_kb() -> None:
    cupy = pytest.importorskip("cupy")
    torch = pytest.importorskip("torch")
    spec = cases.specialise(cases.gemm, 128, {"A": 2, "B": 2, "C": 2}, STAGES=4)
    assert spec.shared_bytes > 48 * 1024
    from tklearn import tensor

    a, b = (torch.randn(64, 64, device="cuda").bfloat16() for _ in range(2))
    c = torch.zeros(64, 64, device="cuda", dtype=torch.bfloat16)
    cl.run(spec, (1, 1, 1), [tensor.describe(t) for t in (a, b, c)], "cuda:0")
    cupy.cuda.runtime.deviceSynchronize()
    torch.testing.assert_close(
        c.float(), (a.float() @ b.float()).bfloat16().float(), rtol=2e-2, atol=2e-2
    )


CRASH = """
import sys
sys.path[:0] = {paths!r}
import cupy, test_cuda_launch as t
from tklearn.lang.errors import TkError
t.gpu_crash[1](cupy.zeros(1, dtype=cupy.int32))
try:
    cupy.cuda.runtime.deviceSynchronize()
except Exception as e:
    print("stopped")
try:
    t.gpu_crash[1](cupy.zeros(1, dtype=cupy.int32)) if False else t.gpu_saxpy.gpu
    from tklearn.cuda import launch
    one = next(iter(launch._launchers.values()))[0, False]
    one.enqueue((1, 1, 1), [1, 1, 1, 1, 1, 0, 0, 0], 0)
except TkError as e:
    print(e.code, e.hint)
"""


@pytest.mark.gpu
def test_gpu_failed_assert_names_the_line_and_the_context_is_lost() -> None:
    here = Path(__file__).parent
    code = CRASH.format(paths=[str(here), str(here.parent)])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ, check=False
    )
    said = done.stdout + done.stderr  # the driver prints to stderr
    assert "test_cuda_launch.py:" in said, said
    assert "x[0] is not 1" in said
    assert "TK424" in done.stdout
    assert "restart the kernel" in done.stdout
