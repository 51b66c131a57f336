"""The accesses that a kernel's CUDA issues, taken from its PTX, against the simulator's counts.

Without a GPU: every disagreement between the headers and lang/plans.py shows here, long before the
profiler's. The generated patterns of benchmarks/patterns.py; a sixth of them, others each day in
turn would not be repeatable.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tests" / "cuda"), str(ROOT / "benchmarks")]
if importlib.util.find_spec("cupy") is None:
    pytest.skip("CuPy is not installed: no NVRTC", allow_module_level=True)
import patterns  # noqa: E402
import ptx_counts  # noqa: E402

from tklearn.cuda.compile import include_dirs, load_nvrtc  # noqa: E402
from tklearn.cuda.emit import emit  # noqa: E402
from tklearn.lang.errors import LaunchError  # noqa: E402

KEYS = (
    "global_ld_requests", "global_ld_sectors", "global_st_requests", "global_st_sectors",
    "shared_ld_wavefronts", "shared_ld_ideal", "shared_st_wavefronts", "shared_st_ideal",
    "shared_atomic_wavefronts", "cp_async_bytes", "cp_async_sectors", "tensor_flops",
    "tensor_instructions", "atomics",
)  # fmt: skip
CASES = patterns.generated()[::6]


def ptx_of(text: str) -> str:
    """The PTX of the counting build for sm_90."""
    try:
        nvrtc = load_nvrtc()
    except LaunchError as e:
        pytest.skip(str(e))
    program = nvrtc.createProgram(text, "kernel.cu", (), ())
    flags = ["-arch=compute_90", "-std=c++17", "-fmad=false", "-DTK_COUNTING"]
    nvrtc.compileProgram(program, (*flags, *(f"-I{d}" for d in include_dirs())))
    ptx = nvrtc.getPTX(program)
    nvrtc.destroyProgram(program)
    return ptx.decode() if isinstance(ptx, bytes) else ptx


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_the_cuda_issues_what_the_simulator_counts(case: patterns.Case) -> None:
    args = case.args()
    spec = case.spec(args)
    source = emit(spec)
    numbers = {"f": "<f", "i": "<i", "u": "<I"}
    packed = [
        a if isinstance(a, np.ndarray) else (numbers[p.type.dtype.kind], a)
        for p, a in zip(spec.params, args, strict=True)
    ]
    got = ptx_counts.count(
        ptx_of(source.text), source.entry, case.grid, spec.threads, spec.shared_bytes, packed
    )
    want = case.kernel.sim[case.grid](*args, **case.consts).total
    differ = {k: (want[k], got[k]) for k in KEYS if want[k] != got[k]}
    assert not differ, f"{case.about}: (simulator, CUDA) {differ}"
