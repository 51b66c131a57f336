"""TMA, semaphores, wgmma, named barriers and register reallocation, asked of the hardware.

    pytest -n 1 -m gpu -k async tests/test_cuda_async.py

(-n 1: a kernel that never ends costs its own test only, see watchdog.py.)

Each operation's kernel against NumPy (small whole numbers: a wrong layout shows), the same on the
simulator, and what a launch refuses. Without a GPU: that all kernels are ones the language takes.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import async_cases
import async_op_cases
import numpy as np
import pytest

import tklearn as tk
from tklearn.cuda.emit import emit
from tklearn.lang import ir
from tklearn.lang.async_rows import YIELDING
from tklearn.lang.errors import TkError
from tklearn.lang.ops import OPS

CASES = list(async_op_cases.cases())
IDS = [c.name for c in CASES]


def spec_of(case: async_op_cases.Case) -> ir.Kernel:
    return case.kernel.ir(*case.args(np.random.default_rng(0)), **case.consts)


def wrong(got: np.ndarray, want: np.ndarray, tol: float) -> str:
    """What differs; "" if nothing does."""
    g, w = got.astype(np.float64), want.astype(np.float64)
    with np.errstate(invalid="ignore"):
        d = np.where((g == w) | (np.isnan(g) & np.isnan(w)), 0, np.abs(g - w))
    scale = np.abs(w[np.isfinite(w)]).max(initial=1.0) if tol else 0.0
    bad = ~(d <= tol * scale)
    if not bad.any():
        return ""
    i = tuple(int(v) for v in np.argwhere(bad)[0])
    return f"{int(bad.sum())} of {bad.size} differ, first at {i}: {got[i]} instead of {want[i]}"


def same_place(base: np.ndarray, view: np.ndarray) -> np.ndarray:
    """The part of a copy of `view.base` that `view` is of the original."""
    if view.base is None:
        return base
    offset = view.ctypes.data - view.base.ctypes.data
    flat = base.reshape(-1).view(np.uint8)[offset:]
    return np.ndarray(view.shape, view.dtype, flat.data, 0, view.strides)


# ------------------------------------------------------------------------------- without a GPU
def test_every_asynchronous_operation_has_a_case() -> None:
    used = {n.op.name for c in CASES for n in ir.walk(spec_of(c).body) if isinstance(n, ir.Do)}
    for c in CASES:
        for f in spec_of(c).functions:
            used |= {n.op.name for n in ir.walk(f.body) if isinstance(n, ir.Do)}
    new = {n for n, op in OPS.items() if op.effect in YIELDING or n.startswith(("tma.", "warpgr"))}
    assert new - used == set()


def test_every_case_is_printed() -> None:
    for c in CASES:
        assert "namespace tk" in emit(spec_of(c)).text


def differences(
    case: async_op_cases.Case, host: list[Any], want: list[Any], results: list[np.ndarray]
) -> str:
    """What the memory behind each argument holds that it should not; "" if all is well.

    results: the memory behind the arguments (the base of a view) after the run.
    """
    failures = []
    for i, (h, w, got) in enumerate(zip(host, want, results, strict=True)):
        expected = (h if h.base is None else h.base).copy()
        if w is not None:
            same_place(expected, h)[...] = w
        if text := wrong(got, expected, case.tol if w is not None else 0.0):
            failures.append(f"argument {i}: {text}")
    return "\n".join(failures)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_simulator_equals_numpy(case: async_op_cases.Case) -> None:
    before, after = (case.args(np.random.default_rng(2)) for _ in range(2))
    case.kernel.sim[case.grid](*after, **case.consts)
    results = [a if a.base is None else a.base for a in after]
    assert not differences(case, before, case.want(*before), results)


def test_async_refused_rows_on_the_simulator() -> None:
    """A TMA store writes 16 bytes at a time: the same arrays as on the GPU."""
    k = tk.kernel(warps=1)(async_cases.copy_only)
    x, y = np.ones((64, 64), np.float32), np.zeros((64, 64), np.float32)
    with pytest.raises(TkError, match=r"TMA cannot address y: it has rows of 248 bytes") as e:
        k[2, 2](x, y[:, :62])
    assert e.value.code == "TK527"
    k[2, 2](x[:, :62], y)
    assert (y[:, :62] == 1).all()
    assert not y[:, 62:].any()


# --------------------------------------------------------------------------------------- a GPU
def build(part: int, parts: int, arch: int) -> None:
    """Compile every parts-th kernel into the disk cache (in a process of its own)."""
    from tklearn.cuda.compile import compile_source

    for case in CASES[part::parts]:
        if case.arch <= arch:
            with contextlib.suppress(TkError):  # its own test says so
                compile_source(emit(spec_of(case)), arch)


@pytest.fixture(scope="module")
def compiled() -> None:
    """All kernels at once, by all cores: NVRTC takes a third of a second for each."""
    from tklearn.cuda.launch import device_facts

    arch = device_facts(0)[1]
    parts = min(16, len(os.sched_getaffinity(0)))
    with ProcessPoolExecutor(parts, multiprocessing.get_context("spawn")) as pool:
        for done in [pool.submit(build, i, parts, arch) for i in range(parts)]:
            done.result()


def on_gpu(a: np.ndarray) -> tuple[Any, Any]:
    """A torch tensor with the same bits, shape and strides, and the whole memory behind it."""
    from test_parity import to_gpu

    return to_gpu(a)


def memory(whole: Any, like: np.ndarray) -> np.ndarray:
    import torch

    bits = whole.contiguous().view(torch.uint8).cpu().numpy()
    return bits.reshape(-1).view(like.dtype).reshape(like.shape)


@pytest.mark.gpu(limit=30)
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_async_gpu_equals_numpy(case: async_op_cases.Case, compiled: None) -> None:
    import cupy

    if int(cupy.cuda.Device().compute_capability) < case.arch:
        pytest.skip(f"needs sm_{case.arch}")
    host = case.args(np.random.default_rng(2))
    want = case.want(*host)
    device = [on_gpu(a) for a in host]
    for _ in range(2 if case.name.startswith("copy") else 1):  # again: the quick way
        report = case.kernel[case.grid](*(d for d, _ in device), **case.consts)
    cupy.cuda.runtime.deviceSynchronize()
    assert not report.compiled.notes
    assert not report.compiled.spills
    results = [
        memory(whole, h if h.base is None else h.base)
        for h, (_, whole) in zip(host, device, strict=True)
    ]
    assert not differences(case, host, want, results)


@pytest.mark.gpu(limit=60)
def test_async_repeats_give_the_same_bits(compiled: None) -> None:
    """Races would show as differences: the largest kernels, many times, on a busy GPU."""
    import cupy

    for name in ("gemm 256x256x1024", "attention of 896 keys", "ring, helper, persistent loop"):
        case = next(c for c in CASES if c.name == name)
        if int(cupy.cuda.Device().compute_capability) < case.arch:
            pytest.skip("needs sm_90")
        device = [on_gpu(a) for a in case.args(np.random.default_rng(3))]
        seen = set()
        for _ in range(200):
            device[-1][1].fill_(0)
            case.kernel[case.grid](*(d for d, _ in device))
            seen.add(hash(device[-1][1].contiguous().view(-1).cpu().float().numpy().tobytes()))
        assert len(seen) == 1, name


@pytest.mark.gpu(limit=60)
def test_async_refused_arrays() -> None:
    import torch

    k = tk.kernel(warps=1)(async_cases.copy_only)
    x = torch.zeros((64, 64), device="cuda")
    flat = torch.zeros(64 * 64 + 8, device="cuda")
    with pytest.raises(TkError, match=r"TK402.*'x' .*stride of 248 bytes"):
        k[2, 2](x[:, :62].contiguous(), x)
    with pytest.raises(TkError, match=r"TK402.*'y' .*4 bytes past"):
        k[2, 2](x, flat[1 : 64 * 64 + 1].view(64, 64))
    with pytest.raises(TkError, match=r"TK402.*'y' .*rows of 248 bytes"):
        k[2, 2](x, torch.ones((64, 64), device="cuda")[:, :62])
    k[2, 2](x[:, :62], torch.ones((64, 64), device="cuda"))
    empty = torch.zeros((0, 64), device="cuda")
    y = torch.ones((64, 64), device="cuda")
    k[2, 2](empty, y)  # an empty array reads as zeros
    assert not y.any()
    k[2, 2](y, empty)
    torch.cuda.synchronize()


@pytest.mark.gpu(limit=60)
def test_async_in_a_cuda_graph() -> None:
    import torch

    k = tk.kernel(warps=1)(async_cases.copy_only)
    x, y = torch.rand((64, 64), device="cuda"), torch.zeros((64, 64), device="cuda")
    k[2, 2](x, y)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        k[2, 2](x, y)
    x += 1
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(x, y)


@pytest.mark.gpu(limit=60)
def test_async_launch_is_quick() -> None:
    """About 10 us with maps that are kept; the bound here is for a busy machine."""
    import torch

    k = tk.kernel(warps=1)(async_cases.copy_only)
    x, y = torch.rand((64, 64), device="cuda"), torch.zeros((64, 64), device="cuda")
    k[2, 2](x, y)
    best = 1.0
    for _ in range(20):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(100):
            k[2, 2](x, y)
        best = min(best, (time.perf_counter() - start) / 100)
    print(f"a launch with two tensor maps: {best * 1e6:.1f} us")
    assert best < 40e-6


@pytest.mark.gpu(limit=60)
def test_async_report_is_timed() -> None:
    import torch

    k = tk.kernel(warps=1)(async_cases.copy_only)
    x, y = torch.rand((64, 64), device="cuda"), torch.zeros((64, 64), device="cuda")
    assert 0 < k[2, 2](x, y).seconds < 1e-3  # on copies of what it writes: new maps
