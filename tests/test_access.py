"""The bank and sector model: every measured record, the rules stated once more, fast paths."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tklearn import access

DATA = json.loads((Path(__file__).parent / "data" / "h200_counters.json").read_text())
RECORDS = DATA["records"]
WIDTHS = (1, 2, 4, 8, 16)


def test_every_measured_record():
    """All 1,194 accesses measured on the H200, with no exception and no tolerance."""
    checked = 0
    wrong = []
    for r in RECORDS:
        name = f"{r['op']} {r['name']}"
        if "wf" in r:
            got = access.shared(r["op"], r["off"])
            checked += 1
            if got != (r["wf"], r["bc"]):
                wrong.append((name, got, (r["wf"], r["bc"])))
        if "sectors" in r:
            sectors = access.sectors(r["op"], r["off"])
            checked += 1
            if sectors != r["sectors"]:
                wrong.append((name, sectors, r["sectors"]))
    assert wrong == []
    assert len(RECORDS) == 1194
    assert checked == 1194 + sum("wf" in r and "sectors" in r for r in RECORDS)


# ------------------------------------------------------------- the rules, stated once more, plainly
def words_by_bank(offsets, width):
    """Passes of one transaction: most distinct 4-byte words that one of 32 banks has."""
    words = {o // 4 + k for o in offsets if o >= 0 for k in range(max(1, width // 4))}
    return max(Counter(w % 32 for w in words).values(), default=0)


def plain(kind, width, off):
    """(wavefronts, transactions) of one access, as FACTS.md 1 words it."""
    off = [int(o) for o in off]
    if kind == "atom":
        wf = max(Counter(o // 4 % 32 for o in off if o >= 0).values(), default=0)
        return wf, int(wf > 0)
    if kind in ("ldmatrix", "stmatrix"):
        groups, width = [off[8 * j : 8 * j + 8] for j in range(width)], 16
    else:
        size = {8: 16, 16: 8}.get(width, 32)
        if kind == "ld" and width > 4:
            pairs = [[(off[i], off[i ^ x]) for i in range(32)] for x in (1, 2)]
            if any(all(a == b or a < 0 or b < 0 for a, b in p) for p in pairs):
                size *= 2
        groups = [off[i : i + size] for i in range(0, 32, size)]
    passes = [words_by_bank(g, width) for g in groups]
    return sum(passes), sum(p > 0 for p in passes)


def patterns(width, n, seed):
    """Random accesses of many kinds: spread, crowded, with shared addresses, with idle lanes."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        row = rng.integers(0, int(rng.choice([2, 8, 40, 300, 4000])), 32)
        if i % 4 == 1:
            row = np.repeat(row[:16], 2)  # lane pairs (i, i^1)
        elif i % 4 == 2:
            row = np.tile(row.reshape(8, 4)[:, :2], 2).ravel()  # lane pairs (i, i^2)
        elif i % 4 == 3:
            row = rng.integers(0, 64) + np.arange(32) * int(rng.integers(0, 40))
        row = row * width
        if rng.random() < 0.5:
            row[rng.random(32) < rng.random()] = -1
        rows.append(row)
    return np.array(rows)


CASES = [
    *[(k, w) for k in ("ld", "st") for w in WIDTHS],
    ("atom", 4),
    *[(k, m) for k in ("ldmatrix", "stmatrix") for m in (1, 2, 4)],
]


@pytest.mark.parametrize(("kind", "width"), CASES)
def test_many_equals_the_plain_rules(kind, width):
    unit = 16 if kind.endswith("matrix") else width
    off = patterns(unit, 300, seed=width)
    wavefronts, ideal = access.shared_many(kind, width, off)
    expected = np.array([plain(kind, width, row) for row in off])
    np.testing.assert_array_equal(wavefronts, expected[:, 0])
    np.testing.assert_array_equal(ideal, expected[:, 1])
    # one at a time goes another way: the cache
    for row, want in zip(off[:20], expected, strict=False):
        one = access.shared_many(kind, width, row[None].astype(np.int32))
        assert (one[0][0], one[1][0]) == tuple(want)


@pytest.mark.parametrize(("kind", "width"), CASES)
def test_shifted_rows_cost_the_same(kind, width):
    unit = 16 if kind.endswith("matrix") else max(4, width)
    for row in patterns(unit, 30, seed=7):
        shift = unit * np.arange(50)[:, None]
        off = np.where(row < 0, -1, row + shift)
        wavefronts, ideal = access.shared_many(kind, width, off)
        assert set(zip(wavefronts.tolist(), ideal.tolist(), strict=True)) == {
            plain(kind, width, row)
        }
        mixed = np.vstack([off, np.arange(32)[None] * 128])  # breaks the pattern: the general way
        np.testing.assert_array_equal(access.shared_many(kind, width, mixed)[0][:-1], wavefronts)


def test_the_shift_shortcut_looks_at_every_row_and_lane():
    base = np.arange(32) * 4
    worst = np.arange(32) * 128
    for off in (
        [base, worst, base + 128],  # the middle row differs
        [base, base + 128, worst],  # the last one
        [worst, base, base],
        [base, np.where(np.arange(32) < 4, worst, base + 4), base],  # lane 0 alone agrees
        [base, np.full(32, -1), base],  # nothing active
        [np.where(base == 0, -1, base), worst, base],
        [np.full(32, -1), base, worst],
        [np.where(base < 64, base, -1), base * 32, base],  # equal but for lanes that were idle
        [np.where(base < 64, base, -1), np.where(base < 64, base, 4 * base), base],
    ):
        got = access.shared_many("ld", 4, np.array(off))
        want = [plain("ld", 4, row) for row in off]
        assert list(zip(*got, strict=True)) == want
        sectors = access.sectors_many(np.array(off))
        assert sectors.tolist() == [len({o // 32 for o in row if o >= 0}) for row in off]


def test_shifts_that_do_change_the_count():
    """16-bit accesses by part of a word; any access by part of a sector."""
    halves = np.arange(32) * 2 + np.array([[0], [66]]) + np.where(np.arange(32) < 31, 0, 128)
    want = [plain("ld", 2, row) for row in halves]
    assert want == [(2, 1), (1, 1)]
    assert list(zip(*access.shared_many("ld", 2, halves), strict=True)) == want
    assert access.sectors_many(np.arange(32) * 4 + np.array([[0], [4]])).tolist() == [4, 5]


def test_an_inactive_row_is_no_shift_of_an_active_one():
    """Byte 3 shifted by -4 would be -1, the mark of an idle lane."""
    off = np.array([[3] * 32, [-1] * 32, [7] * 32])
    assert access.shared_many("ld", 1, off)[0].tolist() == [1, 0, 1]


def test_sectors_many_equals_a_set():
    rng = np.random.default_rng(0)
    for spread in (40, 4000, 2**40):
        off = rng.integers(0, spread, (500, 32)) * 8
        off[rng.random(off.shape) < 0.2] = -1
        off[3] = -1
        want = [len({o // 32 for o in row.tolist() if o >= 0}) for row in off]
        assert access.sectors_many(off, 8).tolist() == want
    shifted = off[:1] + 32 * np.arange(9)[:, None]
    assert access.sectors_many(np.where(off[0] < 0, -1, shifted)).tolist() == [want[0]] * 9


def test_ideal_sectors_are_of_distinct_bytes():
    lane = np.arange(32)
    rows = np.array(
        [lane * 4, lane * 0, lane // 2 * 4, np.where(lane < 3, lane * 64, -1), lane - 99]
    )
    assert access.ideal_sectors_many(rows, 4).tolist() == [4, 1, 2, 1, 0]
    assert access.ideal_sectors_many(lane[None] * 16, 16).tolist() == [16]
    assert access.ideal_sectors_many(lane[None] * 4 + [[0], [64], [4]], 4).tolist() == [4, 4, 4]
    with pytest.raises(ValueError, match="have shape"):
        access.ideal_sectors_many(lane, 4)


def test_more_rows_than_one_chunk():
    off = np.arange(32) * 4 * np.arange(1, 34)[:, None]
    once = access.shared_many("ld", 4, off)[0]
    np.testing.assert_array_equal(
        access.shared_many("ld", 4, np.tile(off, (300, 1)))[0], np.tile(once, 300)
    )
    np.testing.assert_array_equal(
        access.sectors_many(np.tile(off, (300, 1))), np.tile(access.sectors_many(off), 300)
    )


def test_async_copies_of_many_rows():
    """Pairs counted plainly; then rows that are one row, shifted."""
    rng = np.random.default_rng(4)
    src, dst = rng.integers(0, 60, (2, 200, 32)) * 16
    src[rng.random(src.shape) < 0.2] = -1
    dst[5] = -1

    for count, unit in ((access.async_sectors_many, 32), (access.async_requested_many, 128)):
        want = [
            len({(a // unit, b // 32) for a, b in zip(s, d, strict=True) if a >= 0 and b >= 0})
            for s, d in zip(src.tolist(), dst.tolist(), strict=True)
        ]
        assert count(src, dst).tolist() == want
    src, dst = np.arange(32) * 16 + np.array([[[0], [32], [48]], [[0], [64], [16]]])
    assert access.async_sectors_many(src[:2], dst[:2]).tolist() == [16, 16]
    assert access.async_sectors_many(src, dst).tolist() == [16, 16, 17]


def test_no_rows():
    none = np.empty((0, 32), np.int64)
    assert [len(a) for a in access.shared_many("ld", 4, none)] == [0, 0]
    assert len(access.sectors_many(none)) == 0
    assert len(access.async_sectors_many(none, none)) == 0


# ----------------------------------------------------------------- cases.md 16-20, and async copies
def test_the_textbook_cases():
    lane = np.arange(32)
    assert access.shared("lds32", lane * 128) == (32, 31)  # a column of 32 x 32 floats
    assert access.shared("lds32", lane * 132) == (1, 0)  # of 32 x 33
    assert access.shared("lds128", lane * 128) == (32, 28)  # every lane on banks 0-3
    assert access.shared("lds128", lane * 16) == (4, 0)
    for stride, want in {32: 32, 64: 32, 16: 16, 33: 1, 2: 2}.items():
        assert access.shared("lds32", lane * stride * 4)[0] == want
    for bits, want in {5: 1, 3: 4, 2: 8}.items():  # column 0 with an XOR of the row's low bits
        column = lane * 32 + (lane & (2**bits - 1))
        assert access.shared("lds32", column * 4)[0] == want
    for halves, want in {64: 8, 32: 4, 16: 2}.items():  # rows of an ldmatrix
        assert access.shared("ldsm1", lane * halves * 2)[0] == want
        assert access.shared("ldsm1t", lane * (halves + 8) * 2)[0] == 1
    assert access.sectors("ldg32", lane * 4 + 4) == 5


def test_cp_async():
    lane = np.arange(32)
    padded = lane // 8 * 144 + lane % 8 * 16  # rows of 128 bytes, 144 apart
    assert access.shared("cpasync16cg", padded) == (0, 0)
    assert access.sectors("cpasync16cg", padded) == 18  # measured: tile_pitch144
    assert access.sectors("cpasync16cg", padded, source=lane * 128) == 32
    assert access.async_sectors_many(lane[None] * 16, padded[None])[0] == 24  # moved
    assert access.sectors("cpasync4ca", lane * 4, source=lane * 128) == 32
    half = np.where(lane < 16, lane * 16, -1)
    assert access.sectors("cpasync16ca", half) == 8
    assert access.sectors("cpasync16cg", half) == 8
    # lane pairs with one address do not merge: cp.async writes as a store does
    assert access.shared("cpasync8ca", lane // 2 * 8)[0] == 2
    assert access.shared("lds64", lane // 2 * 8)[0] == 1


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: access.shared("lds24", range(32)), "unknown shared-memory op"),
        (lambda: access.sectors("lds32", [0] * 32), "unknown global-memory op"),
        (lambda: access.shared("lds32", range(0, 64, 4)), "each of 32 lanes"),
        (lambda: access.shared("lds64", [4] * 32), "multiple of 8"),
        (lambda: access.shared("ldsm4", [8] * 32), "multiple of 16"),
        (lambda: access.sectors("ldg32", [0] * 32, [0] * 32), "no source"),
        (lambda: access.shared_many("load", 4, np.zeros((1, 32), int)), "unknown kind"),
        (lambda: access.shared_many("ldmatrix", 16, np.zeros((1, 32), int)), "width"),
        (lambda: access.shared_many("ld", 4, np.zeros(32, int)), r"\[n, 32\]"),
        (lambda: access.sectors_many(np.zeros((2, 16), int)), r"\[n, 32\]"),
    ],
)
def test_mistakes_are_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()
