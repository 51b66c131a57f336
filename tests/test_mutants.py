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
from tklearn import block, warpid
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
from tklearn.lang import ir
from tklearn.sim.mutate import Verdict, mutants, study

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

# What the search over all schedules has shown to do nothing, and why that is so; by the text of the
# line and the change. The search believes the simulator: a mutant that turns up here unlisted may
# be a fault that the simulator no longer sees.
FIRST_SUM = "nothing was read from `parts` before this launch's only sum"
END = "the kernel ends: nothing of this block reads what the store writes"
FENCED = "the fence of the product before this one came after all changes of its registers"
ONE_WAIT = "the next commit takes this product into its group, and one wait is for all of them"
SAME_FOR_ALL = "every group takes the next number, and no two groups take the same"
FIRST_LAP = "the first barrier of the loop comes before any warp but the first uses the semaphore"
PARTS = "block.sync()  # parts may still be read for the sum before this one"
STORED = "tma.store_async_wait()"
HARMLESS: dict[str, dict[tuple[str, str], str]] = {
    "sum atomic": {(PARTS, "deleted"): FIRST_SUM},
    "sum staged": {(PARTS, "deleted"): FIRST_SUM},
    "softmax long": {("block.sync()", "deleted"): FIRST_SUM},
    "gemm_hopper persistent": {
        (STORED + "  # c must stay until the last store has read it", "only reads"): END
    },
    "attention_hopper": {
        (
            "warpgroup.mma_AB(o, p, v[last.stage])  # ... and the last block's P V",
            "no fence",
        ): FENCED,
        ("warpgroup.sync(wg + 1)  # of all four warps", "another barrier"): SAME_FOR_ALL,
        (STORED, "only reads"): END,
    },
    "linear_attention": {
        ("block.sync()", "deleted"): FIRST_LAP,
        ("warpgroup.mm_AB(o, q[s], state)  # history", "no fence"): FENCED,
        ("warpgroup.mm_AB(o, q[s], state)  # history", "no commit"): ONE_WAIT,
        ("warpgroup.mma_AB(o, p, v[s])  # this chunk", "no fence"): FENCED,
        ("warpgroup.mma_AB(o, p, v[s])  # this chunk", "no commit"): ONE_WAIT,
        ("warpgroup.mma_AtB(kv, k[s], v[s])  # next state", "no fence"): FENCED,
        (STORED, "only reads"): END,
    },
    "design attend": {
        ("warpgroup.mma_AB(o, p, v[t])  # ... while O += P V is in flight", "no fence"): FENCED,
        ("warpgroup.sync(wg + 1)  # named barrier", "another barrier"): SAME_FOR_ALL,
        (STORED, "only reads"): END,
    },
    "design linear_attention": {
        ("block.sync()", "deleted"): FIRST_LAP,
        ("warpgroup.mm_AB(o, q, state)  # history", "no fence"): FENCED,
        ("warpgroup.mm_AB(o, q, state)  # history", "no commit"): ONE_WAIT,
        ("warpgroup.mma_AB(o, p, v)  # this chunk", "no fence"): FENCED,
        ("warpgroup.mma_AB(o, p, v)  # this chunk", "no commit"): ONE_WAIT,
        ("warpgroup.mma_AtB(kv, k, v)  # next state", "no fence"): FENCED,
        ("block.sync()  # the tiles are free again", "deleted"): (
            "one warpgroup: a wgmma group is one of all four warps, so that mma_async_wait in the "
            "warp that starts the next loads proves that all have read the tiles"
        ),
    },
}

# Mutants that are neither reported nor shown harmless: why not.
KNOWN: dict[str, dict[tuple[str, str], str]] = {}


@cache
def verdicts(launch: Launch) -> list[Verdict]:
    args = launch.args()
    return study(launch.kernel().ir(*args), launch.grid, args)


def listed(found: list[Verdict], kind: str) -> Counter:
    return Counter((v.mutant.loc.text().strip(), v.mutant.change) for v in found if v.kind == kind)


@pytest.mark.parametrize("launch", LAUNCHES, ids=lambda x: x.name)
def test_every_mutant_is_accounted_for(launch: Launch) -> None:
    found = verdicts(launch)
    said = "\n".join(str(v) for v in found if v.kind != "reported")
    assert listed(found, "unexplained") == Counter(KNOWN.get(launch.name, {}).keys()), said
    assert listed(found, "harmless") == Counter(HARMLESS.get(launch.name, {}).keys()), said
    assert any(v.kind == "reported" for v in found)


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


# ------------------------------------------------------------------------------------ the tool
@tk.device
def meet(n: tk.i32):
    block.sync(n, 64)


@tk.kernel(warps=2)
def ordered_atomics(x: tk.gl(tk.i32)):
    if warpid() == 0:
        tk.atomic_exch(x[0], 5)
    meet(1)
    tk.atomic_add(x[0], 1)


def test_a_change_that_nothing_reports_is_a_hole() -> None:
    """Atomics need no order as far as races go: only the results tell."""
    args = [np.zeros(1, np.int32)]
    found = study(ordered_atomics.ir(*args), ONE, args)
    kinds = {v.mutant.change: v for v in found}
    assert set(kinds) == {
        "deleted", "another barrier", "always barrier 1", "32 threads more", "32 threads less"
    }  # fmt: skip
    assert kinds["deleted"].kind == "unexplained"
    assert "other results" in kinds["deleted"].why
    assert kinds["another barrier"].kind == kinds["always barrier 1"].kind == "harmless"
    assert kinds["32 threads more"].code == "TK507"
    assert {v.mutant.line for v in found} == {found[0].mutant.loc.line}
    assert found[0].mutant.loc.text().strip() == "block.sync(n, 64)"
    assert not args[0].any()


def test_mutants_leave_the_kernel_as_it_was() -> None:
    args = [np.zeros(1, np.int32)]
    kernel = ordered_atomics.ir(*args)
    before = ir.digest(kernel)
    made = list(mutants(kernel))
    assert ir.digest(kernel) == before
    assert len({ir.digest(m.kernel) for m in made}) == len(made)
    assert before not in {ir.digest(m.kernel) for m in made}


def test_a_faulty_kernel_is_not_studied() -> None:
    @tk.kernel(warps=2)
    def racy(x: tk.gl_fl):
        x[0] = 1.0 + warpid()

    args = [np.zeros(1, np.float32)]
    with pytest.raises(tk.Race):
        study(racy.ir(*args), ONE, args)
