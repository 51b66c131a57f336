"""What a run counts, per source line, under the names of `report.METRICS`.

Knows accesses as lanes' byte addresses (through access.py) and tile operations as plans
(lang/plans.py). Each distinct pattern is counted once and kept as a `Delta`; running it again adds
one to a tally. Knows no values.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from tklearn import access
from tklearn.lang import plans
from tklearn.lang.types import RV, SV

Seen = tuple[str, str, int, Any]
"""Accesses for a trace: space, kind, width, byte offsets [n, 32]."""


class Delta:
    """What one execution of a pattern adds; `seen`: the accesses it consists of."""

    __slots__ = ("values", "seen")

    def __init__(self, *seen: Seen, **values: int) -> None:
        self.values = {k: v for k, v in values.items() if v}
        self.seen = seen


def totals(
    tally: dict[tuple[int, Delta], int], loose: dict[tuple[int, str], int]
) -> dict[int, dict[str, int]]:
    """The tally as line -> metric -> count."""
    lines: dict[int, dict[str, int]] = {}
    for (line, delta), n in tally.items():
        for k, v in delta.values.items():
            row = lines.setdefault(line, {})
            row[k] = row.get(k, 0) + v * n
    for (line, k), n in loose.items():
        if n:
            row = lines.setdefault(line, {})
            row[k] = row.get(k, 0) + n
    return {line: lines[line] for line in sorted(lines)}


# -------------------------------------------------------------------------------- shared memory
def _shared_delta(kind: str, width: int, offsets: Any) -> Delta:
    wave, ideal = access.shared_many(kind, width, offsets)
    op, seen = "st" if kind in ("st", "stmatrix") else "ld", ("shared", kind, width, offsets)
    return shared_counts(op, int(wave.sum()), int(ideal.sum()), seen)


def shared_counts(op: str, wave: int, ideal: int, *seen: Seen) -> Delta:
    return Delta(
        *seen,
        **{
            f"shared_{op}_wavefronts": wave,
            f"shared_{op}_ideal": ideal,
            f"shared_{op}_conflicts": wave - ideal,
        },
    )


def shared_place(w: Any, s: Any, kind: str, mem: Any, place: Any, width: int) -> None:
    """A lane access at an interned place. A base only rotates the banks."""
    if w.counting:
        delta = place.extra.get((kind, width))
        if delta is None:
            delta = place.extra[kind, width] = _shared_delta(kind, width, place.extra["at"][None])
        w.add(s, delta)


def shared_lanes(w: Any, s: Any, kind: str, mem: Any, flat: Any, m: Any, width: int) -> None:
    """A lane access of element numbers flat [blocks or 1, 32]."""
    if not w.counting:
        return
    at = mem.geo.offsets[flat]
    if m is not None:
        at = np.where(m, at, -1)
    if w.trace is not None:
        w.trace.see(w, s, "shared", kind, width, at)
    wave, ideal = access.shared_many(kind, width, at)
    n = w.batch.n if len(at) == 1 else 1
    a, b = int(wave.sum()) * n, int(ideal.sum()) * n
    if kind == "atom":
        w.count(s.line, "shared_atomic_wavefronts", a)
        return
    w.count(s.line, f"shared_{kind}_wavefronts", a)
    w.count(s.line, f"shared_{kind}_ideal", b)
    w.count(s.line, f"shared_{kind}_conflicts", a - b)


# -------------------------------------------------------------------------------- global memory
def global_counts(kind: str, requests: int, sectors: int, ideal: int, *seen: Seen) -> Delta:
    return Delta(
        *seen,
        **{
            f"global_{kind}_requests": requests,
            f"global_{kind}_sectors": sectors,
            f"global_{kind}_ideal": ideal,
        },
    )


@lru_cache(maxsize=1 << 14)
def _global_row(kind: str, width: int, row: bytes) -> Delta:
    at = np.frombuffer(row, np.int64)[None]
    return global_counts(
        kind,
        int((at >= 0).any()),
        int(access.sectors_many(at, width)[0]),
        int(access.ideal_sectors_many(at, width)[0]),
    )


def global_lanes(w: Any, s: Any, kind: str, addr: Any, m: Any, width: int) -> None:
    """A lane access at byte addresses `addr` (a number, or [blocks or 1, lanes or 1])."""
    if not w.counting:
        return
    if type(addr) is not np.ndarray:
        addr = np.full((1, 1), addr)
    b = len(addr) if m is None else max(len(addr), len(m))
    at = np.broadcast_to(addr, (b, 32))
    if m is not None:
        at = np.where(m, at, -1)
    if w.trace is not None:
        w.trace.see(w, s, "global", kind, width, at)
    if b == 1:
        low = at[at >= 0]
        if len(low):
            base = int(low.min()) & ~31
            row = np.where(at >= 0, at - base, -1).astype(np.int64)
            w.add(s, _global_row(kind, width, row.tobytes()))
        return
    requests = b if m is None else int(np.broadcast_to(m, (b, 32)).any(axis=1).sum())
    ideal = access.ideal_sectors_many(at, width)
    w.count(s.line, f"global_{kind}_requests", requests)
    w.count(s.line, f"global_{kind}_sectors", int(access.sectors_many(at, width).sum()))
    w.count(s.line, f"global_{kind}_ideal", int(ideal.sum()))


def _from(offsets: Any, start: int) -> Any:
    """Offsets counted from `start` bytes before; inactive lanes stay -1."""
    return np.where(offsets >= 0, offsets.astype(np.int64) + start, -1)


def _sectors(offsets: Any, start: int, width: int) -> tuple[int, int, int]:
    """(requests, sectors, ideal) of [n, 32] offsets from `start` bytes into a sector."""
    at = _from(offsets, start)
    return (
        int((at >= 0).any(axis=1).sum()),
        int(access.sectors_many(at, width).sum()),
        int(access.ideal_sectors_many(at, width).sum()),
    )


@lru_cache(maxsize=1 << 14)
def tile_delta(
    kind: str,
    rows: int,
    cols: int,
    itemsize: int,
    pitch: int,
    layout: str,
    limit: tuple[int, int] | None,
    start: int,
) -> Delta:
    """A register tile to or from global memory."""
    if limit is not None and min(limit) <= 0:
        return Delta()
    return _global_delta(
        kind,
        plans.tile_global(
            kind, rows, cols, itemsize, pitch, layout, limit, start % (2 * itemsize) == 0
        ),
        start,
    )


def _global_delta(kind: str, accesses: tuple[plans.Access, ...], start: int) -> Delta:
    sums = [0, 0, 0]
    for a in accesses:
        sums = [x + y for x, y in zip(sums, _sectors(a.offsets, start, a.width))]
    seen = [("global", a.kind, a.width, _from(a.offsets, start)) for a in accesses]
    return global_counts(kind, sums[0], sums[1], sums[2], *seen)


def _vector_plan(
    kind: str, v: RV, itemsize: int, limit: int | None, aligned: bool
) -> tuple[plans.Access, ...]:
    if v.kind == "flat":
        return plans.vector(kind, v.n, itemsize, v.dtype.itemsize, limit, aligned)
    return plans.tile_vector(kind, v.n, v.kind, itemsize, v.layout.name, limit, aligned)


@lru_cache(maxsize=1 << 14)
def vector_delta(kind: str, v: RV, itemsize: int, left: int | None, start: int) -> Delta:
    """A register vector to or from global memory; `left` elements are there (None: all)."""
    if left is not None and left <= 0:
        return Delta()
    width = _vector_plan(kind, v, itemsize, None, True)[0].width
    return _global_delta(kind, _vector_plan(kind, v, itemsize, left, start % width == 0), start)


@lru_cache(maxsize=1 << 12)
def shared_vector_delta(kind: str, v: RV, itemsize: int) -> Delta:
    """A register vector to or from a shared vector."""
    (a,) = _vector_plan(kind, v, itemsize, None, True)
    return _shared_delta(kind, a.width, a.offsets)


@lru_cache(maxsize=1 << 14)
def copy_delta(
    kind: str,
    tile: Any,
    threads: int,
    warp: int,
    pitch: int,
    limit: tuple[int, int] | None,
    start: int,
) -> Delta:
    """One warp's part of a cooperative copy; kind: "load", "store" or "async"."""
    if limit is not None:
        limit = (max(limit[0], 0), max(limit[1], 0))
    chunk = plans.copy_chunk(tile, start, pitch, limit is None, kind == "store")
    if kind == "async" and chunk >= 4:
        c = plans.group_copy(tile, threads, pitch, chunk, limit=limit)
        return _async_delta(c, warp, start)
    if kind == "store" or limit is None:
        copies = [plans.group_copy(tile, threads, pitch, chunk, limit=limit, store=kind == "store")]
    else:
        full, rest = plans.copy_rest(tile, threads, pitch, chunk, limit)
        copies = [full, *rest]
    far, near = ("st", "ld") if kind == "store" else ("ld", "st")
    seen: list[Any] = []
    sums = np.zeros(5, np.int64)
    for c in copies:
        g, sh = c.global_offsets[warp], c.shared_offsets[warp]
        wave, least = access.shared_many(near, c.width, sh)
        sums += (*_sectors(g, start, c.width), wave.sum(), least.sum())
        seen += [
            ("global", far, c.width, _from(g, start)),
            ("shared", near, c.width, sh),
        ]
    requests, sectors, ideal, passes, best = sums.tolist()
    side = shared_counts(near, passes, best).values
    return Delta(*seen, **side, **global_counts(far, requests, sectors, ideal).values)


def _async_delta(c: plans.Copy, warp: int, start: int) -> Delta:
    """cp.async; start: of the tile from a 128-byte line. The profiler counts its reads with the
    global loads, too, and none of its writes with the shared stores."""
    g, sh = _from(c.global_offsets[warp], start), c.shared_offsets[warp]
    requests, sectors, ideal = _sectors(g, start=0, width=c.width)
    moved = sectors
    if c.width == 16:  # past L1
        moved = int(access.async_sectors_many(g, sh).sum())
        sectors = int(access.async_requested_many(g, sh).sum())
    seen = (
        ("global", "async", c.width, g),
        ("shared", "async" if c.width == 16 else "st", c.width, sh),
    )
    return Delta(
        *seen,
        cp_async_bytes=int((sh >= 0).sum()) * c.width,
        cp_async_sectors=moved,
        **global_counts("ld", requests, sectors, ideal).values,
    )


@lru_cache(maxsize=1 << 14)
def tma_delta(kind: str, tile: Any, pitch: int, limit: tuple[int, int] | None, start: int) -> Delta:
    """A TMA copy; kind: "load" or "store". An instruction moves one column block of a tile, as wide
    as its swizzle. start: of the tile from a sector, limit: what the array has left.

    Bytes are those of the whole box. Sectors (as measured on an H200): what each row of a box
    touches inside the array, in pieces of 128 bytes; and, of a load, what is outside and filled
    with zeros, by 32 bytes, from the first 16 that have nothing of the array.
    """
    size = tile.dtype.itemsize
    rows, cols, width = 1, tile.nbytes, tile.nbytes
    if not isinstance(tile, SV):
        rows, cols = tile.rows, tile.cols * size
        width = tile.swizzle or cols
    there, left = (rows, cols) if limit is None else (limit[0], limit[1] * size)
    there = min(max(there, 0), rows)
    at = start + np.arange(there) * pitch
    sectors = 0
    for j in (j for box in range(0, cols, width) for j in range(box, box + width, 128)):
        piece = min(128, width - j % width)
        n = min(max(left - j, 0), piece)
        if n:
            sectors += int((((at + j) % 32 + n + 31) // 32).sum())
        if kind == "load":
            sectors += there * -(-(piece - -(-n // 16) * 16) // 32) + (rows - there) * (piece // 32)
    moved = {"bytes": rows * cols, "sectors": sectors, "instructions": cols // width}
    return Delta(**{f"tma_{kind}_{k}": n for k, n in moved.items()})


@lru_cache(maxsize=1 << 12)
def window_delta(
    kind: str, tile: Any, layout: str, at: tuple[int, int], shape: tuple[int, int]
) -> Delta:
    """A register tile to or from a window of a shared tile."""
    make = plans.load_shared if kind == "ld" else plans.store_shared
    wave = ideal = 0
    issued = make(tile, layout, at, shape)
    for a in issued:
        x, y = access.shared_many(a.kind, a.width, a.offsets)
        wave, ideal = wave + int(x.sum()), ideal + int(y.sum())
    seen = [("shared", a.kind, a.width, a.offsets) for a in issued]
    return shared_counts(kind, wave, ideal, *seen)


def ldmatrix(w: Any, s: Any, offsets: Any, matrices: int) -> None:
    """ldmatrix at byte offsets [blocks or 1, 32]."""
    if w.trace is not None:
        w.trace.see(w, s, "shared", "ldmatrix", matrices, offsets)
    wave, ideal = access.shared_many("ldmatrix", matrices, offsets)
    n = w.batch.n if len(offsets) == 1 else 1
    a, b = int(wave.sum()) * n, int(ideal.sum()) * n
    w.count(s.line, "shared_ld_wavefronts", a)
    w.count(s.line, "shared_ld_ideal", b)
    w.count(s.line, "shared_ld_conflicts", a - b)
