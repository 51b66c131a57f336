"""Every synchronising line of the gallery, wrong in every way: reported, or shown to do nothing.

sim/mutate.py makes the mutants. One that is neither reported at the right line nor harmless under
all schedules fails here, unless KNOWN gives the reason.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import async_cases
import ml_dtypes
import numpy as np
import pytest

import tklearn as tk
import tklearn.kernels
from tklearn.kernels import (
    attention,
    attention_hopper,
    gemm,
    gemm_hopper,
    layernorm,
    linear_attention,
    reduction,
    softmax,
    transpose,
)
from tklearn.sim.mutate import Verdict, study

BF = ml_dtypes.bfloat16
F32 = np.float32


def normal(*shape: int, dtype: Any = BF) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(dtype)


def zeros(*shape: int, dtype: Any = BF) -> np.ndarray:
    return np.zeros(shape, dtype)


@dataclass(frozen=True)
class Launch:
    """A kernel and a small launch that uses every line of it: rings wrap, loops repeat."""

    name: str
    kernel: Callable[[], tk.Kernel]
    grid: tuple[int, int, int]
    args: Callable[[], list[Any]]


def products(m: int, n: int, k: int, dtype: Any = BF) -> Callable[[], list[Any]]:
    return lambda: [normal(m, k, dtype=dtype), normal(k, n, dtype=dtype), zeros(m, n, dtype=dtype)]


def heads(n: int, m: int, d: int, *more: Any, dtype: Any = BF) -> Callable[[], list[Any]]:
    shapes = ((1, 1, n, d), (1, 1, m, d), (1, 1, m, d))
    return lambda: [
        *(normal(*s, dtype=dtype) for s in shapes),
        zeros(1, 1, n, d, dtype=dtype),
        *more,
    ]


def rows(cols: int, arrays: int, vectors: int, outputs: int) -> Callable[[], list[Any]]:
    return lambda: [
        *(normal(2, cols, dtype=F32) for _ in range(arrays)),
        *(normal(cols, dtype=F32) for _ in range(vectors)),
        *(zeros(2, cols, dtype=F32) for _ in range(outputs)),
    ]


RING = gemm.Config(BM=32, BN=32, BK=32, STAGES=3, WM=16, WN=16, KS=16, GROUP=2)
ONE = (1, 1, 1)
GALLERY = [
    *(
        Launch(
            f"transpose {v}",
            lambda v=v: transpose.VARIANTS[v](tk.f32),
            (2, 1, 1),
            lambda: [normal(32, 64, dtype=F32), zeros(64, 32, dtype=F32)],
        )
        for v in transpose.VARIANTS
    ),
    Launch("sum atomic", reduction.atomic, (2, 1, 1),
           lambda: [3000, normal(3000, dtype=F32), zeros(1, dtype=F32)]),
    Launch("sum staged", reduction.staged, (2, 1, 1),
           lambda: [3000, normal(3000, dtype=F32), zeros(2, dtype=F32)]),
    Launch("softmax long", softmax.long, ONE, rows(600, 1, 0, 1)),
    Launch("layernorm long", layernorm.long, ONE, rows(600, 2, 2, 2)),
    Launch("gemm", lambda: gemm.make(tk.bf16, RING), ONE, products(32, 32, 160)),
    Launch("attention", lambda: attention.make(tk.bf16, 32), ONE, heads(64, 200, 32, 0.2)),
    Launch("gemm_hopper simple", lambda: gemm_hopper.simple(
        tk.bf16, gemm_hopper.Config(2, 32, 16, 2)), ONE, products(128, 32, 80)),
    Launch("gemm_hopper persistent", lambda: gemm_hopper.persistent(
        tk.bf16, gemm_hopper.Config(2, 32, 16, 2)), ONE, products(128, 96, 48)),
    Launch("attention_hopper", lambda: attention_hopper.make(tk.bf16, 64), ONE,
           heads(192, 640, 64, 0.18)),
    Launch("linear_attention", linear_attention.make, ONE, heads(256, 256, 64)),
]  # fmt: skip
DESIGN = [
    Launch("design gemm_ws", lambda: tk.kernel(warps=12)(async_cases.gemm_ws), ONE,
           products(128, 128, 640)),
    Launch("design attend", lambda: tk.kernel(warps=16)(async_cases.attend), ONE,
           heads(192, 640, 64)),
    Launch("design linear_attention", lambda: tk.kernel(warps=4)(async_cases.linear_attention),
           ONE, heads(192, 192, 64)),
]  # fmt: skip
LAUNCHES = [*GALLERY, *DESIGN]

# Mutants that are neither reported nor shown harmless: (launch, source, change) -> why not.
KNOWN: dict[tuple[str, str, str], str] = {}


@cache
def verdicts(launch: Launch) -> list[Verdict]:
    args = launch.args()
    return study(launch.kernel().ir(*args), launch.grid, args)


@pytest.mark.parametrize("launch", LAUNCHES, ids=lambda x: x.name)
def test_every_mutant_is_accounted_for(launch: Launch) -> None:
    found = verdicts(launch)
    kinds = Counter(v.kind for v in found)
    print(f"{launch.name}: {len(found)} mutants, {dict(kinds)}")
    holes = [
        v
        for v in found
        if v.kind == "unexplained" and (launch.name, v.mutant.source, v.mutant.change) not in KNOWN
    ]
    assert not holes, "\n".join(map(str, holes))
    assert kinds["reported"] > 0


SYNCHRONISES = ("sync(", "wait", "commit", "arrive", "fence", "block_sum", "block_max")


def test_no_kernel_of_the_gallery_is_left_out() -> None:
    covered = {
        (Path(k.fn.__code__.co_filename).stem, k.__name__) for k in (x.kernel() for x in GALLERY)
    }
    for info in pkgutil.iter_modules(tklearn.kernels.__path__):
        module = importlib.import_module(f"tklearn.kernels.{info.name}")
        text = Path(module.__file__).read_text()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and any(
                ast.unparse(d).startswith("tk.kernel") for d in node.decorator_list
            ):
                body = ast.unparse(ast.Module(node.body, []))
                if any(word in body for word in SYNCHRONISES):
                    assert (info.name, node.name) in covered
