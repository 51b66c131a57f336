"""What ptxas makes of the kernels for sm_90a: work that should lie beside a running product does.

ptxas moves a wait up, before arithmetic that does not need it; then the exponentials would come
after P V instead of beside it. Needs NVRTC and nvdisasm (its wheel, Triton's copy, or on PATH), no
GPU.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tklearn as tk
from tklearn.kernels import attention_hopper, gemm_hopper
from tklearn.tensor import NUMPY_DTYPES


@cache
def nvdisasm() -> str | None:
    for name, inside in (("nvidia", "cu13/bin"), ("nvidia", "cuda_nvdisasm/bin"),
                         ("triton", "backends/nvidia/bin")):  # fmt: skip
        spec = importlib.util.find_spec(name)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            if (path := Path(folder) / inside / "nvdisasm").is_file():
                return str(path)
    return shutil.which("nvdisasm")


pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("cupy") is None, reason="CuPy is not installed"),
    pytest.mark.skipif(nvdisasm() is None, reason="nvdisasm is not installed"),
]


def instructions(k: Any, folder: Path) -> list[str]:
    """The kernel for sm_90a, one instruction an entry."""
    from tklearn.cuda.compile import compile_source
    from tklearn.cuda.emit import emit

    cubin = folder / "k.cubin"
    cubin.write_bytes(compile_source(emit(k), 90).image)
    command = [nvdisasm() or "", "-c", str(cubin)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return re.findall(r"/\*[0-9a-f]{4,}\*/\s+(.*?);", text)


def at(code: list[str], pattern: str, start: int) -> int:
    return next(i for i in range(start, len(code)) if re.search(pattern, code[i]))


@pytest.mark.parametrize("variant", ["simple", "persistent"])
@pytest.mark.parametrize("d", [64, 128])
@pytest.mark.parametrize("causal", [False, True])
def test_exponentials_lie_beside_the_product(variant: str, d: int, causal: bool, tmp_path: Path):
    """Where two warpgroups compute; with three, keys and values are given back early instead."""
    four = [np.zeros((1, 1, 8, d), NUMPY_DTYPES["bf16"])] * 4
    kernel, _ = attention_hopper.plan(tk.bf16, four[0].shape, causal, variant)
    k = kernel.ir(*four, 0.1)
    code = instructions(k, tmp_path)
    scores = at(code, r"WARPGROUP\.DEPBAR\.LE gsb0, 0x1", 0)  # P V still runs
    done = at(code, r"WARPGROUP\.DEPBAR\.LE gsb0, 0x0", scores)
    if k.warps == 12:
        assert sum("MUFU.EX2" in c for c in code[scores:done]) >= 64 + 2, "16 x 128 scores, and 2"
    free = at(code, r"SYNCS\.ARRIVE\.TRANS64\.A1T0", done)
    assert free - done < 40, "the places of K and V are given back at once"
    first = max(i for i in range(scores) if "WARPGROUP.ARRIVE" in code[i])
    gaps = [i for i in range(first, scores) if "HGMMA" in code[i]]
    assert len(gaps) == 8, "P V: 128 keys, 16 at a time"
    assert gaps[-1] - gaps[0] < 100


def test_the_steps_of_a_gemm_follow_each_other(tmp_path: Path) -> None:
    flat = [np.zeros((8, 8), NUMPY_DTYPES["bf16"])] * 3
    for config in gemm_hopper.COSTS:
        code = instructions(gemm_hopper.persistent(tk.bf16, config).ir(*flat), tmp_path)
        steps = [i for i, c in enumerate(code) if "HGMMA" in c]
        assert steps, config
        loop = code[steps[0] : at(code, r"WARPGROUP\.DEPBAR\.LE gsb0, 0x1", steps[0])]
        assert sum("HGMMA" in c for c in loop) == 4, "a step of 64"
        assert len(loop) < 80, config
