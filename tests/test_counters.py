"""Every counter that Nsight Compute measured, against the simulator: equal, or with a reason here.

Recordings are tests/data/counters*.json and async*.json, which benchmarks/counters.py writes. A
recording whose kernel or data are no longer what patterns.py makes fails: record it again.
"""

from __future__ import annotations

import json
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tklearn.lang import ir
from tklearn.report import METRICS

ROOT = Path(__file__).parent.parent
DATA = ROOT / "tests" / "data"
sys.path.insert(0, str(ROOT / "benchmarks"))
import counters  # noqa: E402
import patterns  # noqa: E402

# (launches, counter, why the hardware's counter is not the simulator's): a difference is allowed.
REASONS = [
    (
        r"product (f16|f32|e4m3|e5m2)|gemm \w+ f16",
        "tensor_flops",
        "the metric counts bf16 products summed in f32 only",
    ),
    (
        r"product (e4m3|e5m2)",
        "tensor_instructions",
        "mma.sync in fp8 is emulated by two HMMA on sm_90 (FACTS.md 7)",
    ),
]
# A recording's counter -> the simulator's, where the names differ. Others are kept to be looked at.
SAME = {"shared_atom_wavefronts": "shared_atomic_wavefronts"}
CASES = {c.name: c for c in patterns.all_cases()}


@cache
def recorded() -> dict[str, dict[str, Any]]:
    """launch -> its recording, with the counters of all files."""
    out: dict[str, dict[str, Any]] = {}
    for path in sorted([*DATA.glob("counters*.json"), *DATA.glob("async*.json")]):
        for r in json.loads(path.read_text())["recordings"]:
            kept = out.setdefault(r["name"], {**r, "counters": {}})
            kept["counters"] = {**kept["counters"], **r["counters"]}
    return out


def reason(name: str, key: str) -> str:
    return next((why for launches, k, why in REASONS if k == key and re.search(launches, name)), "")


def test_the_patterns_are_frozen_and_enough() -> None:
    assert len(patterns.generated()) >= 100
    gallery = list(patterns.gallery())
    assert len({c.kernel for c in gallery}) >= 12
    assert len(CASES) == len(gallery) + len(patterns.generated()), "names are unique"
    blocks = [c.grid[0] * c.grid[1] * c.grid[2] for c in CASES.values()]
    assert max(blocks) <= 132, "at most one block for each SM of an H200"


def test_every_reason_has_a_launch() -> None:
    for launches, key, _ in REASONS:
        assert key in METRICS
        assert any(re.search(launches, n) for n in CASES)


@pytest.mark.parametrize("name", sorted(recorded()))
def test_recordings_equal_the_simulator(name: str) -> None:
    r = recorded()[name]
    assert name in CASES, "patterns.py no longer makes this launch"
    case = CASES[name]
    args = case.args()
    assert r["digest"] == ir.digest(case.spec(args)), "the kernel has changed: record again"
    assert r["data"] == counters.data_digest(args), "the arguments have changed: record again"
    total = case.kernel.sim[case.grid](*args, **case.consts).total
    differ = {}
    for key, measured in r["counters"].items():
        mine = SAME.get(key, key)
        if mine in total and total[mine] != measured and not reason(name, mine):
            differ[mine] = {"simulated": total[mine], "measured": measured}
    assert not differ, f"{name} ({case.about}): {differ}"


def test_something_is_recorded() -> None:
    if not recorded():
        pytest.skip("no recordings yet: python benchmarks/counters.py on a GPU")
    assert len(recorded()) >= 112
