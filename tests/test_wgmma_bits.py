"""The wgmma probe without a GPU, and what it recorded on an H200, against numerics."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tklearn import numerics

ROOT = Path(__file__).parents[1]
RECORDING = Path(__file__).parent / "data" / "h200_wgmma_bits.npz"  # probes/wgmma_bits.py


@pytest.fixture(scope="module")
def probe() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "wgmma_bits", ROOT / "benchmarks" / "probes" / "wgmma_bits.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = list(sys.path)
    spec.loader.exec_module(module)
    sys.path[:] = before
    return module


def test_the_probe_compiles(probe: ModuleType) -> None:
    pytest.importorskip("cupy", reason="CuPy is not installed")
    assert probe.compiled()[:4] == b"\x7fELF"


def test_a_dry_run_finds_nothing(probe: ModuleType) -> None:
    kept: dict[str, Any] = {}
    report = probe.products(probe.Dry(), 2, kept)
    assert report["total"] == {"dots": 101376, "mismatches": 0}
    check(kept)
    assert report["bf16 special"]["nan_bits"]


def check(data: dict[str, Any]) -> None:
    """Every kept problem: inputs as stored, results of wgmma."""
    names = sorted(n[:-2] for n in data if n.endswith("_d") and not n.startswith("low_"))
    assert len(names) >= 90
    for name in names:
        kind = name.split("_")[0]
        half = kind == "fp16h"
        dtype = "fp16" if half else kind
        stored = {"tf32": "f32", "fp16": "f16"}.get(dtype, dtype)
        a, b = (numerics.decode(data[f"{name}_{v}"].view(numerics.STORAGE[stored])) for v in "ab")
        c, d = data[f"{name}_c"], data[f"{name}_d"]
        if half:
            c = numerics.decode(c.view(np.float16))
        if "keep_0" in name:
            c = np.zeros_like(c)
        rows, columns = np.repeat(a, 8, axis=0), np.tile(b.T, (len(a), 1))
        got = numerics.dot(
            rows, columns, c.ravel(), dtype=dtype, arch="hopper", out="fp16" if half else "fp32"
        ).reshape(d.shape)
        got = numerics.encode(got, "f16").view(np.uint16) if half else got.view(np.uint32)
        assert (got == d.view(got.dtype)).all(), name


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    if not RECORDING.exists():
        pytest.skip("benchmarks/probes/wgmma_bits.py has not yet been run on an H200")
    return dict(np.load(RECORDING))


def test_recorded_products(recorded: dict[str, Any]) -> None:
    check(recorded)


def test_recorded_counts(recorded: dict[str, Any]) -> None:
    about = json.loads(bytes(recorded["about"]))
    counts = about["products"]
    assert "H200" in about["device"]
    assert counts["total"]["dots"] >= 300_000
    wrong = {k: v["mismatches"] for k, v in counts.items() if v["mismatches"]}
    assert not wrong, wrong


def test_recorded_low_bits_of_tf32(recorded: dict[str, Any]) -> None:
    """A float's low 13 bits take no part: the tensor core cuts, where cvt.rna would round."""
    low = json.loads(bytes(recorded["about"]))["low_bits"]
    assert low["cut"] == 0
    assert low["rounded away"] > 0
