"""The gallery's attention: values, odd lengths, views, errors, and that it compiles."""

from __future__ import annotations

import importlib.util
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tklearn as tk
from tklearn.cuda.compile import compile_source
from tklearn.cuda.emit import emit
from tklearn.kernels import attention

U = {np.float16: 2.0**-11, ml_dtypes.bfloat16: 2.0**-8}
CASES = [  # batch, heads, queries, keys, D, dtype, causal
    (1, 2, 1, 1, 64, ml_dtypes.bfloat16, True),
    (2, 1, 77, 77, 64, np.float16, True),
    (1, 1, 65, 130, 64, np.float16, False),
    (1, 2, 130, 130, 128, ml_dtypes.bfloat16, True),
    (1, 1, 50, 33, 128, np.float16, False),
    (1, 1, 70, 70, 16, np.float16, True),
    (1, 1, 70, 7, 32, ml_dtypes.bfloat16, False),
    (1, 1, 0, 0, 64, np.float16, True),
]


def inputs(b: int, h: int, n: int, m: int, d: int, dtype: Any) -> list[np.ndarray]:
    g = np.random.default_rng(n + d)
    shapes = ((b, h, n, d), (b, h, m, d), (b, h, m, d))
    return [g.standard_normal(s, dtype=np.float32).astype(dtype) for s in shapes]


def bound(q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool) -> np.ndarray:
    """Probabilities are rounded once to the dtype, and so is the result; the rest is f32."""
    size = attention.reference(q, k, np.abs(v.astype(np.float64)), causal)
    return (2 * U[q.dtype.type] + 1e-4) * size


@pytest.mark.parametrize("case", CASES, ids=str)
def test_values(case: tuple) -> None:
    *sizes, dtype, causal = case
    q, k, v = inputs(*sizes, dtype)
    got = attention.run(q, k, v, causal=causal, check="full")
    want = attention.reference(q, k, v, causal)
    assert (np.abs(got.astype(np.float64) - want) <= bound(q, k, v, causal)).all()
    orders = [{"schedule": "random", "seed": n} for n in range(20)]
    for options in ({"batch": False}, {"schedule": "reverse"}, {"delay": {0: 50}}, *orders):
        same = attention.run(q, k, v, causal=causal, check="full", **options)
        assert same.tobytes() == got.tobytes()


def test_views_and_scale() -> None:
    """Heads as they come out of one projection: (B, N, H, 3, D), transposed."""
    g = np.random.default_rng(0)
    qkv = g.standard_normal((2, 40, 3, 3, 64), dtype=np.float32).astype(np.float16)
    q, k, v = (qkv[:, :, :, i].transpose(0, 2, 1, 3) for i in range(3))
    got = attention.run(q, k, v, scale=0.25)
    want = attention.reference(q, k, v, scale=0.25)
    assert (np.abs(got.astype(np.float64) - want) <= 8e-3).all()


@pytest.mark.gpu
@pytest.mark.parametrize("case", [c for c in CASES if c[2]], ids=str)
def test_values_on_the_gpu(case: tuple) -> None:
    import torch

    *sizes, dtype, causal = case
    host = inputs(*sizes, dtype)
    kind = torch.float16 if dtype is np.float16 else torch.bfloat16
    q, k, v = (torch.from_numpy(a.view(np.int16)).view(kind).cuda() for a in host)
    got = attention.run(q, k, v, causal=causal).double().cpu().numpy()
    assert (np.abs(got - attention.reference(*host, causal)) <= bound(*host, causal)).all()


def test_errors() -> None:
    q, k, v = inputs(1, 1, 8, 9, 64, np.float16)
    for arrays, options, text in (
        ((q, k, v), {"causal": True}, "causal attention of 8 queries over 9 keys"),
        ((q, k, v[:, :, :8]), {}, "k is .* and v is"),
        ((q, k[:, :, :0], v[:, :, :0]), {}, "there are no keys"),
        ((q[..., :40], k[..., :40], v[..., :40]), {}, "heads of 40 are not possible"),
        ((q, k.astype(np.float32), v), {}, "'k' must be f16"),
    ):
        with pytest.raises(tk.LaunchError, match=text):
            attention.run(*arrays, **options)


@pytest.mark.skipif(importlib.util.find_spec("cupy") is None, reason="CuPy is not installed")
@pytest.mark.parametrize("d", [16, 64, 128])
@pytest.mark.parametrize("arch", [75, 80, 90, 120])
def test_compiles_and_fits_registers(d: int, arch: int) -> None:
    dtype = np.float16 if arch == 75 else ml_dtypes.bfloat16
    T = tk.f16 if arch == 75 else tk.bf16
    q, k, v = inputs(1, 1, 8, 8, d, dtype)
    try:
        made = compile_source(emit(attention.make(T, d, True).ir(q, k, v, q, 0.1)), arch)
    except tk.LaunchError as e:
        pytest.skip(str(e)) if "TK421" in str(e) else pytest.fail(str(e))
    assert made.facts.spill_stores <= 16  # ptxas for sm_120 puts two registers aside
