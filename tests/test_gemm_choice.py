"""gemm_hopper's tiles by size: the fewest and cheapest turns by the table of measured costs."""

from __future__ import annotations

import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tklearn.kernels import gemm_hopper
from tklearn.kernels.arrays import cdiv
from tklearn.kernels.gemm_hopper import COSTS, Config, choose

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))


def turns(c: Config, m: int, n: int, blocks: int) -> int:
    return cdiv(cdiv(m, 64 * c.CONSUMERS) * cdiv(n, c.BN), blocks)


def test_large_products_take_wide_tiles_and_small_ones_many() -> None:
    for n in (8192, 16384):
        assert choose(n, n, n, 132).BN >= 192
    for n in (512, 1024):
        c = choose(n, n, n, 132)
        assert c.BN * c.CONSUMERS < 2 * 256, "one turn of smaller tiles"
        assert turns(c, n, n, 132) == 1
    assert turns(choose(2048, 2048, 2048, 132), 2048, 2048, 132) == 1


def test_the_choice_is_the_cheapest() -> None:
    for m, n, k in ((300, 5000, 64), (4096, 4096, 4096), (1, 8, 8), (1000, 3000, 512)):
        for blocks in (1, 108, 132):
            cost = {
                c: turns(c, m, n, blocks) * (a + cdiv(k, 64) * b) for c, (a, b) in COSTS.items()
            }
            assert cost[choose(m, n, k, blocks)] == min(cost.values())


def test_run_takes_the_choice() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype(ml_dtypes.bfloat16) for s in ((200, 72), (72, 136)))
    for blocks in (None, 2):
        _, told = gemm_hopper.run(a, b, blocks=blocks, report=True)
        c = choose(200, 136, 72, blocks or 132)
        tiles = cdiv(200, 64 * c.CONSUMERS) * cdiv(136, c.BN)
        assert told.grid[0] == min(tiles, blocks or 132)
        assert told.threads[0] == 128 * (c.CONSUMERS + 1)


@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_fitted_costs_are_those_that_made_the_times(noise: float) -> None:
    pytest.importorskip("torch")
    import tune_gemm_hopper as tune

    rng = np.random.default_rng(1)
    rows = [
        {"shape": s, "config": tune.name(c), "ms": 1e-3 * turns(c, s[0], s[1], 132)
         * (a + cdiv(s[2], 64) * b) * (1 + noise * rng.standard_normal())}
        for c, (a, b) in COSTS.items() for s in tune.SHAPES
    ]  # fmt: skip
    got = tune.fit(rows, 132)
    for c, (a, b) in COSTS.items():
        assert got[tune.name(c)] == pytest.approx((a, b), rel=5e-3 + 30 * noise, abs=2e-3)
        assert got[tune.name(c)][1] == pytest.approx(b, rel=2e-3 + 2 * noise)
