"""What one warp's access costs: shared-memory wavefronts and conflicts, global-memory sectors.

The rules are FACTS.md, sections 1 and 2. They equal Nsight Compute on an H200 for every record of
`tests/data/h200_counters.json`; `tests/test_access.py` checks each one.

This file knows byte offsets of 32 lanes and nothing else: no tiles, no types, no simulator. It
imports the standard library and NumPy.

* `shared` and `sectors` take the op names of the data file and one access.
* `shared_many`, `sectors_many`, `ideal_sectors_many`, `async_sectors_many` and
  `async_requested_many` take n accesses at once, for the simulator.

An offset is a byte offset; a negative one means that the lane is inactive. Offsets are aligned to
the width of the access (the hardware faults otherwise); the forms for one access check that, the
forms for many do not. Shared offsets are below 2**31 - 128.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Ints = NDArray[np.integer[Any]]
Counts = NDArray[np.int64]

LANES = 32
SECTOR = 32
"""Bytes of a global-memory sector."""

_CHUNK = 4096  # rows at a time: the temporaries of a chunk stay in the second-level cache

# op name -> (kind, width): bytes a lane, for matrices the number of 8x8 matrices
_SHARED: dict[str, tuple[str, int]] = {
    **{f"{op}{8 * w}": (kind, w) for op, kind in (("lds", "ld"), ("sts", "st"))
       for w in (1, 2, 4, 8, 16)},
    **{f"{op}{m}{t}": (kind, m) for op, kind in (("ldsm", "ldmatrix"), ("stsm", "stmatrix"))
       for m in (1, 2, 4) for t in ("", "t")},
    **{f"cpasync{w}ca": ("st", w) for w in (4, 8, 16)},  # writes as a store does, never merges
    "redsh": ("atom", 4),
}  # fmt: skip
_GLOBAL: dict[str, int] = {
    f"{op}{8 * w}": w for op in ("ldg", "stg") for w in (1, 2, 4, 8, 16)
}  # fmt: skip
_ASYNC: dict[str, int] = {
    "cpasync4ca": 4, "cpasync8ca": 8, "cpasync16ca": 16, "cpasync16cg": 16,
}  # fmt: skip

SHARED_OPS: tuple[str, ...] = (*_SHARED, "cpasync16cg")
"""Op names that `shared` knows."""
GLOBAL_OPS: tuple[str, ...] = (*_GLOBAL, *_ASYNC)
"""Op names that `sectors` knows."""


def shared(op: str, offsets: Sequence[int] | Ints) -> tuple[int, int]:
    """Wavefronts and bank conflicts of one warp-wide shared-memory access.

    op: `lds8 .. lds128`, `sts8 .. sts128` (bits a lane), `ldsm1/2/4` and `stsm1/2/4` (ldmatrix and
    stmatrix; a trailing `t` is `.trans`), `redsh` (red or atom, 32 bit), `cpasync4ca/8ca/16ca` and
    `cpasync16cg`. offsets: 32 byte offsets into shared memory, negative for an inactive lane; for
    ldmatrix lane 8 j + i gives row i of matrix j.

    Returns what the profiler counts as `l1tex__data_pipe_lsu_wavefronts_mem_shared` and
    `l1tex__data_bank_conflicts_pipe_lsu_mem_shared`. cp.async.cg goes past L1 and counts neither.
    Raises ValueError for an unknown op, another number of lanes or a misaligned offset.
    """
    if op == "cpasync16cg":
        _one(offsets, 16, op)
        return 0, 0
    if op not in _SHARED:
        raise ValueError(f"unknown shared-memory op {op!r}; known: {', '.join(SHARED_OPS)}")
    kind, width = _SHARED[op]
    row = _one(offsets, 16 if kind in ("ldmatrix", "stmatrix") else width, op)
    wavefronts, ideal = _count_row(kind, width, row.tobytes())
    return wavefronts, wavefronts - ideal


def sectors(
    op: str, offsets: Sequence[int] | Ints, source: Sequence[int] | Ints | None = None
) -> int:
    """Global-memory sectors of 32 bytes that one warp-wide access moves.

    op: `ldg8 .. ldg128`, `stg8 .. stg128` with `offsets` into global memory; or `cpasync...` with
    `offsets` into shared memory and `source` into global memory (default: lane i reads at i times
    the width, as the measurements did). cp.async.ca moves the distinct sectors of its source; for
    cp.async.cg this counter reads what `async_requested_many` says.

    Returns `l1tex__t_sectors_pipe_lsu_mem_global` for the access. Raises ValueError as `shared`.
    """
    if op in _GLOBAL:
        if source is not None:
            raise ValueError(f"{op} has one address a lane: give no source")
        return int(sectors_many(_one(offsets, _GLOBAL[op], op)[None])[0])
    if op not in _ASYNC:
        raise ValueError(f"unknown global-memory op {op!r}; known: {', '.join(GLOBAL_OPS)}")
    width = _ASYNC[op]
    target = _one(offsets, width, op)
    read = _one(range(0, LANES * width, width) if source is None else source, width, op)
    read = np.where(target < 0, -1, read)
    if op == "cpasync16cg":
        return int(async_requested_many(read[None], target[None])[0])
    return int(sectors_many(read[None])[0])


def shared_op(op: str) -> tuple[str, int]:
    """(kind, width) of a shared-memory op name, as `shared_many` takes them."""
    return ("st", 16) if op == "cpasync16cg" else _SHARED[op]


def _one(offsets: Sequence[int] | Ints, align: int, op: str) -> Counts:
    row = np.ascontiguousarray(offsets, dtype=np.int64)
    if row.shape != (LANES,):
        raise ValueError(f"{op}: one offset for each of 32 lanes, not shape {row.shape}")
    if ((row & (align - 1)) != 0)[row >= 0].any():
        raise ValueError(f"{op}: every offset must be a multiple of {align} bytes")
    return row


# ------------------------------------------------------------------------- many accesses at once
def shared_many(kind: str, width: int, offsets: ArrayLike) -> tuple[Counts, Counts]:
    """Wavefronts and transactions of n shared-memory accesses.

    kind: "ld", "st", "atom", "ldmatrix" or "stmatrix". width: bytes a lane (1, 2, 4, 8, 16; atom:
    4); for ldmatrix and stmatrix the number of 8x8 matrices (1, 2, 4), whose `.trans` forms cost
    the same. offsets: integers [n, 32], negative for an inactive lane.

    Returns (wavefronts[n], ideal[n]) as int64; conflicts are wavefronts - ideal.

    One row, and rows that are one row shifted as a whole by any multiple of max(4, width) bytes
    (16 for matrices), cost one cached look-up: such a shift only rotates the banks.
    """
    off = np.asarray(offsets)
    if off.ndim != 2 or off.shape[1] != LANES:
        raise ValueError(f"offsets have shape [n, 32], not {off.shape}")
    _check(kind, width)
    n = len(off)
    unit = 16 if kind in ("ldmatrix", "stmatrix") else max(4, width)
    if n == 1 or (n > 1 and _same_shape(off, unit)):
        row = np.ascontiguousarray(off[0], dtype=np.int64)
        wavefronts, ideal = _count_row(kind, width, row.tobytes())
        return np.full(n, wavefronts), np.full(n, ideal)
    out = np.empty((2, n), np.int64)
    for i in range(0, n, _CHUNK):
        part = np.ascontiguousarray(off[i : i + _CHUNK], dtype=np.int32)
        _count_rows(kind, width, part, out[:, i : i + _CHUNK])
    return out[0], out[1]


def transactions(kind: str, width: int, offsets: Sequence[int] | Ints) -> list[list[int]]:
    """The active lanes of each transaction of one access; a group without any is left out.

    kind, width: as `shared_many`; offsets: 32 byte offsets. Each transaction takes as many passes
    as the bank with the most distinct words (for "atom": lanes) has, and their sum is the access's
    wavefronts.
    """
    off = np.asarray(offsets, np.int32)[None]
    _check(kind, width)
    if off.shape != (1, LANES):
        raise ValueError(f"one offset for each of 32 lanes, not shape {off.shape[1:]}")
    if kind in ("ldmatrix", "stmatrix"):
        off, group = off[:, : 8 * width], 8
    elif kind == "atom":
        group = LANES
    else:
        group = _group(width) * (2 if kind == "ld" and width > 4 and _merges(off)[0] else 1)
    lanes = range(off.shape[1])
    found = [[x for x in lanes[i : i + group] if off[0, x] >= 0] for i in lanes[::group]]
    return [g for g in found if g]


def sectors_many(offsets: ArrayLike, width: int = 4) -> Counts:
    """Sectors[n] (int64) of n global accesses: distinct 32-byte sectors of the active lanes.

    offsets: integers [n, 32] in bytes, negative for an inactive lane. `width` is the bytes a lane
    (1 .. 16); an aligned access of a lane lies in one sector, so that it does not change the count.
    Rows that are one row shifted as a whole by a multiple of 32 bytes cost one row.
    """
    off = np.asarray(offsets)
    if off.ndim != 2 or off.shape[1] != LANES:
        raise ValueError(f"offsets have shape [n, 32], not {off.shape}")
    if width not in (1, 2, 4, 8, 16):
        raise ValueError(f"an access is 1, 2, 4, 8 or 16 bytes a lane, not {width}")
    n = len(off)
    if n > 1 and _same_shape(off, SECTOR):
        return np.full(n, _distinct(off[:1] >> 5)[0])
    out = np.empty(n, np.int64)
    for i in range(0, n, _CHUNK):
        out[i : i + _CHUNK] = _distinct(off[i : i + _CHUNK] >> 5)
    return out


def ideal_sectors_many(offsets: ArrayLike, width: int) -> Counts:
    """Sectors[n] (int64) that the distinct bytes asked for would fill: the least for n accesses.

    Arguments as `sectors_many`; offsets are multiples of `width`, so that lanes with one offset ask
    for the same bytes and others for different ones. 32 lanes on one element: 1.
    """
    off = np.asarray(offsets)
    if off.ndim != 2 or off.shape[1] != LANES:
        raise ValueError(f"offsets have shape [n, 32], not {off.shape}")
    if len(off) > 1 and _same_shape(off, width):
        return np.repeat(ideal_sectors_many(off[:1], width), len(off))
    return -(-_distinct(off) * width // SECTOR)


def async_sectors_many(source: ArrayLike, target: ArrayLike) -> Counts:
    """Sectors[n] (int64) of n 16-byte cp.async.cg accesses, which pass L1 by.

    source, target: integers [n, 32], global and shared byte offsets; a lane is inactive if either
    is negative. A warp moves one sector for each distinct pair of a global sector and a 32-byte
    piece of shared memory that it goes to: a sector that is split over two pieces (rows padded by
    16 bytes, a source 16 bytes off) is read twice.

    Equal to `smsp__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_ldgsts` and to the sectors that came
    from L2, in every measured launch. Rows that are one row shifted as a whole by multiples of 32
    bytes on each side cost one row.
    """
    return _async_pairs(source, target, SECTOR)


def async_requested_many(source: ArrayLike, target: ArrayLike) -> Counts:
    """What `l1tex__t_sectors_pipe_lsu_mem_global_op_ld` reads for the same accesses, [n] (int64).

    The counter takes each distinct pair of a 128-byte line of global memory and a 32-byte piece of
    shared memory for one sector: more or fewer than are moved where the two sides are not aligned
    alike. `source` counts from a 128-byte line. Equal to the 30 measured patterns and to every
    measured launch.
    """
    return _async_pairs(source, target, 128)


def _async_pairs(source: ArrayLike, target: ArrayLike, unit: int) -> Counts:
    """Distinct pairs (unit of the source, 32-byte piece of the target) of each row."""
    src, dst = np.asarray(source, np.int64), np.asarray(target, np.int64)
    if src.ndim != 2 or src.shape[1] != LANES or src.shape != dst.shape:
        raise ValueError(f"source and target have shape [n, 32], not {src.shape}, {dst.shape}")
    n = len(src)
    if n > 1 and _same_shape(src, unit) and _same_shape(dst, SECTOR):
        return np.repeat(_async_pairs(src[:1], dst[:1], unit), n)
    return _distinct(np.where((src | dst) < 0, -1, (src // unit << 26) + (dst >> 5)))


def _check(kind: str, width: int) -> None:
    widths = {"ld": (1, 2, 4, 8, 16), "st": (1, 2, 4, 8, 16), "atom": (4,),
              "ldmatrix": (1, 2, 4), "stmatrix": (1, 2, 4)}  # fmt: skip
    if kind not in widths:
        raise ValueError(f"unknown kind {kind!r}; known: {', '.join(widths)}")
    if width not in widths[kind]:
        raise ValueError(f"{kind}: width is one of {widths[kind]}, not {width}")


def _same_shape(off: Ints, unit: int) -> bool:
    """Whether every row is row 0 shifted by a multiple of `unit`, the same lanes being inactive."""
    first = off[0]
    active = first >= 0
    if not active.any():
        return bool((off < 0).all())
    lane = int(active.argmax())
    shift = off[:, lane] - first[lane]
    if (shift & (unit - 1)).any() or int(shift.min()) + int(first[active].min()) < 0:
        return False
    if active.all():
        last_is = (off[-1] - shift[-1] == first).all()  # says no at once for most patterns
        return bool(last_is and (off - shift[:, None] == first).all())
    rest = off[:, active] - shift[:, None] == first[active]
    return bool(rest.all() and (off[:, ~active] < 0).all())


def _distinct(units: Ints) -> Counts:
    """Distinct non-negative numbers in each row of [n, 8 or 32]."""
    s = np.sort(units, axis=1)
    new = np.empty(s.shape, np.bool_)
    new[:, 0] = s[:, 0] >= 0
    np.not_equal(s[:, 1:], s[:, :-1], out=new[:, 1:])
    new &= s >= 0
    bits = np.packbits(new, axis=1).view(f"u{units.shape[1] // 8}")[:, 0]
    return np.bitwise_count(bits).astype(np.int64)


# ------------------------------------------------------------------------------- the bank model
@lru_cache(maxsize=1 << 14)
def _count_row(kind: str, width: int, row: bytes) -> tuple[int, int]:
    out = np.empty((2, 1), np.int64)
    _count_rows(kind, width, np.frombuffer(row, np.int64).astype(np.int32)[None], out)
    return int(out[0, 0]), int(out[1, 0])


def _count_rows(kind: str, width: int, off: NDArray[np.int32], out: Counts) -> None:
    """Write (wavefronts, transactions) of the accesses off[n, 32] into out[2, n]."""
    if kind in ("ldmatrix", "stmatrix"):
        out[...] = _passes(off[:, : 8 * width], 8, 16)
    elif kind == "atom":
        wavefronts = _passes(off, LANES, 4, broadcast=False)[0]
        out[0], out[1] = wavefronts, wavefronts > 0
    elif kind == "st" or width <= 4:
        out[...] = _passes(off, _group(width), width)
    else:
        merged = _merges(off)
        for rows, factor in ((merged, 2), (~merged, 1)):
            if rows.all():
                out[...] = _passes(off, _group(width) * factor, width)
            elif rows.any():
                out[:, rows] = _passes(off[rows], _group(width) * factor, width)


def _group(width: int) -> int:
    """Lanes of one transaction: a warp to 32 bits, half a warp at 64, a quarter at 128."""
    return min(LANES, 128 // width)


def _merges(off: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Rows whose lane pairs (i, i^1), or (i, i^2), have one address: loads go in groups of two."""
    n = len(off)
    merged = np.zeros(n, np.bool_)
    for a, b in ((off[:, 0::2], off[:, 1::2]),
                 (off.reshape(n, 8, 4)[:, :, :2], off.reshape(n, 8, 4)[:, :, 2:])):  # fmt: skip
        match = (a == b) | (a < 0) | (b < 0)
        merged |= match.reshape(n, 16).all(axis=1)
    return merged


def _passes(
    off: NDArray[np.int32], group: int, width: int, broadcast: bool = True
) -> tuple[Counts, Counts]:
    """Wavefronts[n] and transactions[n] of off[n, lanes], `group` lanes to a transaction.

    A transaction takes as many passes as the bank with the most distinct words (with
    broadcast=False: lanes) has. An access of 8 or 16 bytes is one word of 16 or 8 wide banks.
    """
    n, lanes = off.shape
    groups = lanes // group
    # Sort key: transaction, bank, 128-byte line. Equal keys are equal words, and a transaction
    # keeps its `group` columns. The largest line stands for an inactive lane and sorts last.
    bank = 127 & -max(4, width)
    key = (off >> 7) | ((off & bank) << 22)
    idle = np.int32((1 << 29) - 1)
    key[off < 0] = idle
    key |= (np.arange(lanes, dtype=np.int32) // group) << 29
    key.sort(axis=1)
    ranked = np.ascontiguousarray(key.T).reshape(groups, group, n)
    rank = np.zeros((groups, n), np.int32)  # which distinct word of its bank this one is
    worst = np.zeros((groups, n), np.int32)
    for i in range(group):
        now = ranked[:, i]
        new = (now & idle) != idle
        if i:
            before = ranked[:, i - 1]
            rank *= ((now ^ before) >> 24) == 0
            if broadcast:
                new &= now != before
        rank += new
        np.maximum(worst, rank, out=worst)
    return worst.sum(axis=0, dtype=np.int64), np.count_nonzero(worst, axis=0).astype(np.int64)
