"""Both machines agree: every row of the op table, on the simulator and (marked gpu) on a GPU."""

import async_op_cases
import numpy as np
import op_cases
import pytest

import tklearn as tk
from tklearn.lang import ir
from tklearn.lang.ops import OPS

CASES = list(op_cases.cases())
IDS = [c.name for c in CASES]


def _run(case: op_cases.Case, seed: int, **options: object) -> tuple[list, tk.Kernel]:
    args = case.args(np.random.default_rng(seed))
    report = case.kernel.sim[case.grid](*args, **case.consts, **options)
    return args, report


def test_cases_use_every_operation() -> None:
    used = set()
    for c in (*CASES, *async_op_cases.cases()):  # the latter run in test_cuda_async.py
        k = c.kernel.ir(*c.args(np.random.default_rng(0)), **c.consts)
        for n in ir.walk([*k.body, *(s for f in k.functions for s in f.body)]):
            if isinstance(n, (ir.Do, ir.Call)):
                used.add(n.op.name)
    assert set(OPS) <= used


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_simulator_runs_without_a_fault(case: op_cases.Case) -> None:
    args, report = _run(case, 1)
    single, report1 = _run(case, 1, batch=False)
    wrote = False
    before = case.args(np.random.default_rng(1))
    for a, b, c in zip(args, single, before, strict=True):
        if isinstance(a, np.ndarray):
            assert a.tobytes() == b.tobytes(), "batched and unbatched runs differ"
            wrote |= a.tobytes() != c.tobytes()
    assert wrote
    assert report.lines == report1.lines
    assert report.clipped == report1.clipped


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_gpu_equals_simulator(case: op_cases.Case) -> None:
    import cupy

    if int(cupy.cuda.Device().compute_capability) < case.arch:
        pytest.skip(f"needs sm_{case.arch}")
    sim, _ = _run(case, 2)
    host = case.args(np.random.default_rng(2))
    dev = [to_gpu(a) if isinstance(a, np.ndarray) else a for a in host]
    case.kernel[case.grid](*[d[0] if isinstance(d, tuple) else d for d in dev], **case.consts)
    cupy.cuda.runtime.deviceSynchronize()
    for s, d, h in zip(sim, dev, host, strict=True):
        if isinstance(s, np.ndarray):
            close(from_gpu(d, h), s, case.tol)


def to_gpu(a: np.ndarray) -> tuple:
    """A torch tensor on the GPU with the same bits, shape and strides (CuPy lacks bfloat16)."""
    import torch

    base = a if a.base is None else a.base
    names = {
        "float32": torch.float32,
        "float16": torch.float16,
        "bfloat16": torch.bfloat16,
        "float8_e4m3fn": torch.float8_e4m3fn,
        "float8_e5m2": torch.float8_e5m2,
        "int32": torch.int32,
        "uint32": torch.uint32,
        "int64": torch.int64,
    }
    raw = np.ascontiguousarray(base)
    flat = torch.from_numpy(raw.view(np.uint8).reshape(-1).copy()).cuda()
    whole = flat.view(names[a.dtype.name])
    offset = (a.ctypes.data - base.ctypes.data) // a.itemsize
    strides = [s // a.itemsize for s in a.strides]
    return (torch.as_strided(whole, a.shape, strides, offset), whole)


def from_gpu(d: tuple, like: np.ndarray) -> np.ndarray:
    t = d[0].contiguous().cpu()
    import torch

    return t.view(torch.uint8).numpy().reshape(-1).view(like.dtype).reshape(like.shape)


def close(got: np.ndarray, want: np.ndarray, tol: float) -> None:
    if tol == 0:
        assert got.tobytes() == want.tobytes(), _worst(got, want)
        return
    g, w = got.astype(np.float64), want.astype(np.float64)
    np.testing.assert_array_equal(np.isnan(g), np.isnan(w))
    scale = max(1.0, float(np.nanmax(np.abs(np.where(np.isfinite(w), w, 0)), initial=0)))
    with np.errstate(invalid="ignore"):
        d = np.where(g == w, 0, np.abs(g - w))
    assert np.nanmax(d, initial=0) <= tol * scale, _worst(got, want)


def _worst(got: np.ndarray, want: np.ndarray) -> str:
    g, w = np.atleast_1d(got).astype(np.float64), np.atleast_1d(want).astype(np.float64)
    with np.errstate(invalid="ignore"):
        d = np.where((g == w) | (np.isnan(g) & np.isnan(w)), 0, np.abs(g - w))
    i = np.unravel_index(int(np.nanargmax(d)), d.shape)
    n = int((d > 0).sum())
    return f"{n} of {d.size} differ; worst at {i}: GPU {g[i]!r}, simulator {w[i]!r}"
