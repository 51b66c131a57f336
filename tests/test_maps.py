"""lang/layouts.py against what the hardware did with codes (benchmarks/probes/maps.py).

Recordings are tests/data/maps*.json: raw registers and bytes. Here they are read by the maps.
"""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tklearn.lang import layouts

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "benchmarks" / "probes"))
import maps  # noqa: E402


@cache
def recorded() -> dict[str, Any]:
    out: dict[str, Any] = {}
    for path in sorted((ROOT / "tests" / "data").glob("maps*.json")):
        out.update(json.loads(path.read_text()))
    return out


def probe(name: str) -> Any:
    if name not in recorded():
        pytest.skip("not recorded: python benchmarks/probes/maps.py on a GPU")
    return recorded()[name]


def owner(row: np.ndarray, col: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(lane, element) of each (row, column) of a fragment."""
    lane, element = np.full((2, row.max() + 1, col.max() + 1), -1)
    lane[row, col] = np.arange(len(row))[:, None]
    element[row, col] = np.arange(row.shape[1])
    return lane, element


def want_mma(name: str, side: str, digit: str, first: int) -> np.ndarray:
    """D's registers: A[m, first + n], or B[first + m % 8, n], as the digit of who holds it."""
    instruction = name if name.endswith("tf32") else name.split(".")[0]
    lane, element = owner(*layouts.fragment(instruction, side))
    m, n = layouts.fragment(instruction, "D")
    at = (m, first + n) if side == "A" else (first + m % 8, n)
    return {"g": lane >> 2, "t": lane & 3, "i": element}[digit][at]


@pytest.mark.parametrize("name", maps.MMA)
def test_fragments(name: str) -> None:
    found = probe(f"mma {name}")
    assert len(found["A"]) == len(found["B"]) == 3 * maps.MMA[name][1] // 8
    for side in "AB":
        for key, got in found[side].items():
            want = want_mma(name, side, key[0], int(key[1:]))
            np.testing.assert_array_equal(got, want, f"{side} {key}")


@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("n", [1, 2, 4])
def test_ldmatrix_and_stmatrix(n: int, trans: bool) -> None:
    found = probe(f"matrix x{n}{'t' if trans else ''}")
    at = np.array(found["rows"]) // 2
    row, col = layouts.ldmatrix(trans)
    want = np.concatenate([at[8 * j + row] + col for j in range(n)], axis=1)
    np.testing.assert_array_equal(found["ldmatrix"], want)
    memory = np.full(2048, 0xFFFF)
    memory[want] = np.arange(32)[:, None] * 2 * n + np.arange(2 * n)
    np.testing.assert_array_equal(found["stmatrix"], memory)


@pytest.mark.parametrize("swizzle", maps.SWIZZLES)
def test_wgmma(swizzle: int) -> None:
    found = probe(f"wgmma {swizzle}")
    m, n = layouts.wgmma_d(64)
    np.testing.assert_array_equal(found["D"], 64 * m + n)
    np.testing.assert_array_equal(found["A row"], m)
    np.testing.assert_array_equal(found["A k"], n % 16)
    np.testing.assert_array_equal(found["B row"], n)
    np.testing.assert_array_equal(found["B k"], m % 16)
    if swizzle == 128:
        thread, element = owner(*layouts.wgmma_a())
        np.testing.assert_array_equal(found["A in registers, thread"], thread[m, n % 16])
        np.testing.assert_array_equal(found["A in registers, element"], element[m, n % 16])


@pytest.mark.parametrize("swizzle", maps.SWIZZLES)
def test_swizzle_through_tma(swizzle: int) -> None:
    found = np.array(probe(f"tma {swizzle}"))
    place = layouts.st_offset(16, swizzle // 2, 2, swizzle) // 2
    np.testing.assert_array_equal(found[place], np.arange(place.size).reshape(place.shape))


def test_the_probes_compile() -> None:
    pytest.importorskip("cupy")
    try:
        from cupy.cuda import nvrtc

        nvrtc.getVersion()
    except (ImportError, RuntimeError, OSError) as e:
        pytest.skip(f"NVRTC cannot be loaded: {e}")
    assert len(maps.compiled()) > 10_000


@pytest.mark.parametrize("name", maps.MMA)
def test_the_probe_asks_what_the_test_reads(name: str) -> None:
    """The probe's inputs, multiplied by the definition of a product, give what the test wants."""
    instruction = name if name.endswith("tf32") else name.split(".")[0]
    k, na, nb = maps.MMA[name][1:4]
    (am, ak), (bk, bn), (m, n) = (layouts.fragment(instruction, x) for x in "ABD")
    for first in range(0, k, 8):
        for digit in maps.DIGITS:
            a, b = np.zeros((16, k)), np.zeros((k, 8))
            a[am, ak], b[bk, bn] = maps.codes(na)[digit], bk == first + bn
            np.testing.assert_array_equal((a @ b)[m, n], want_mma(name, "A", digit, first))
            a[am, ak], b[bk, bn] = ak == first + am % 8, maps.codes(nb)[digit]
            np.testing.assert_array_equal((a @ b)[m, n], want_mma(name, "B", digit, first))
