"""Which accesses a tile operation issues: instructions, and the byte offsets of their 32 lanes.

The CUDA headers issue exactly these, so that the simulator counts from them what the hardware
counts. This file knows layouts (`lang/layouts.py`) and access widths. It does not know what an
access costs (`access.py`), nor types, blocks or values.

An `Access` is a kind, a width and offsets[n, 32] relative to the tile's base (or to the first
element of the global tile); -1 is an inactive lane. It unpacks into the arguments of
`tklearn.access.shared_many`. Results are cached and their arrays read-only.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from tklearn.lang.layouts import (
    BASE,
    LANES,
    Ints,
    SharedTile,
    base_coords,
    check_layout,
    check_tile,
    read_only,
    rv_coords,
    rv_width,
    vec_coords,
    vec_owner,
)


class Access(NamedTuple):
    """n warp-wide accesses of one kind, in the order of issue.

    kind: "ld", "st" or "ldmatrix" (.trans or not). width: bytes a lane; for ldmatrix the number of
    8x8 matrices. offsets: int32 [n, 32].
    """

    kind: str
    width: int
    offsets: Ints


class Copy(NamedTuple):
    """Both sides of a group's copy: byte offsets [warps, n, 32] of `width` bytes a lane.

    Round i of warp w is row [w, i]. -1 is a lane with nothing to copy: past the last chunk on both
    sides; past the array's edge on the global side only (shared memory gets zeros).
    """

    width: int
    global_offsets: Ints
    shared_offsets: Ints


Pair = tuple[int, int]


# --------------------------------------------------- register tile <-> shared tile (one warp)
@lru_cache(maxsize=512)
def load_shared(
    tile: SharedTile, layout: str = "row", at: Pair = (0, 0), shape: Pair | None = None
) -> tuple[Access, ...]:
    """Accesses of a warp that loads a shared tile, or a window of it, into a register tile.

    at, shape: first row and column and the size of the window, in elements; default: all of it.
    16-bit tiles: one ldmatrix.x4 for each 16x16 base tile (.trans for a col layout). Others, and
    16-bit tiles whose padding leaves rows unaligned to 16 bytes: loads of pairs (4 a base tile) in
    row layout, of single elements (8 a base tile) in col layout or where a pair is not aligned.
    """
    if tile.itemsize != 2 or tile.chunk < 16:
        return (_elements("ld", tile, check_layout(layout), at, shape),)
    lane = np.arange(LANES)
    row, col = lane & 15, 8 * (lane >> 4)  # memory.cuh: the four matrices in one order for both
    check_layout(layout)
    row0, col0 = _base_tiles(*_register_window(tile, at, shape))
    return (Access("ldmatrix", 4, read_only(tile.offset(row0 + row, col0 + col))),)


@lru_cache(maxsize=512)
def store_shared(
    tile: SharedTile, layout: str = "row", at: Pair = (0, 0), shape: Pair | None = None
) -> tuple[Access, ...]:
    """Accesses of a warp that stores a register tile into a shared tile, or a window of it.

    Row layout: 4 stores of pairs for each base tile; col layout, or padding that leaves pairs
    unaligned: 8 of single elements.
    """
    return (_elements("st", tile, check_layout(layout), at, shape),)


def _register_window(tile: SharedTile, at: Pair, shape: Pair | None) -> tuple[int, int, int, int]:
    window = _window(tile, at, shape)
    check_tile(*window[2:])
    return window


def _window(tile: SharedTile, at: Pair, shape: Pair | None) -> tuple[int, int, int, int]:
    rows, cols = shape or (tile.rows - at[0], tile.cols - at[1])
    if min(at) < 0 or at[0] + rows > tile.rows or at[1] + cols > tile.cols:
        raise ValueError(f"a window of {rows} x {cols} at {at} is not inside {tile}")
    return at[0], at[1], rows, cols


def _base_tiles(row0: int, col0: int, rows: int, cols: int) -> tuple[Ints, Ints]:
    """First (row, column) of each base tile, row-major, shaped [tiles, 1]."""
    row, col = np.mgrid[row0 : row0 + rows : BASE, col0 : col0 + cols : BASE].astype(np.int32)
    return row.reshape(-1, 1), col.reshape(-1, 1)


def _tile_coords(window: tuple[int, int, int, int], layout: str, step: int) -> tuple[Ints, Ints]:
    """(row, col) [n, 32] of each access's first element: every step-th element of a base tile."""
    row0, col0 = _base_tiles(*window)
    row, col = (m.T[::step] for m in base_coords(layout))
    return (
        (row0[:, :, None] + row).reshape(-1, LANES),
        (col0[:, :, None] + col).reshape(-1, LANES),
    )


def _elements(kind: str, tile: SharedTile, layout: str, at: Pair, shape: Pair | None) -> Access:
    step = 2 if layout == "row" and tile.chunk >= 2 * tile.itemsize else 1
    row, col = _tile_coords(_register_window(tile, at, shape), layout, step)
    return Access(kind, step * tile.itemsize, read_only(tile.offset(row, col)))


# ------------------------------------------------------ register tile <-> global memory (one warp)
@lru_cache(maxsize=512)
def tile_global(
    kind: str,
    rows: int,
    cols: int,
    itemsize: int,
    pitch: int,
    layout: str = "row",
    limit: Pair | None = None,
    aligned: bool = True,
) -> tuple[Access, ...]:
    """Accesses of a warp that loads (kind "ld") or stores ("st") a register tile in global memory.

    itemsize: the array's, in bytes. pitch: bytes from row to row. limit: rows and columns of the
    array left from the tile's corner; elements past them are inactive. aligned: whether the corner
    is aligned to 2 * itemsize bytes.

    Row layout: pairs of neighbouring columns, 4 accesses of 2 * itemsize bytes a lane for each base
    tile, if the tile is whole and all pairs are aligned. Else, and in col layout: 8 accesses of
    single elements.
    """
    _check_kind(kind)
    check_tile(rows, cols)
    last_row, last_col = (rows, cols) if limit is None else limit
    whole = last_row >= rows and last_col >= cols and aligned and pitch % (2 * itemsize) == 0
    step = 2 if check_layout(layout) == "row" and whole else 1
    row, col = _tile_coords((0, 0, rows, cols), layout, step)
    off = np.where((row < last_row) & (col < last_col), row * pitch + col * itemsize, -1)
    return (Access(kind, step * itemsize, read_only(off)),)


def _check_kind(kind: str) -> None:
    if kind not in ("ld", "st"):
        raise ValueError(f"kind is 'ld' or 'st', not {kind!r}")


# ---------------------------------------------------------- shared tile <-> global memory (a group)
@lru_cache(maxsize=512)
def group_copy(
    tile: SharedTile,
    threads: int,
    pitch: int,
    chunk: int | None = None,
    at: Pair = (0, 0),
    shape: Pair | None = None,
    limit: Pair | None = None,
    store: bool = False,
) -> Copy:
    """Both sides of `threads` threads (a multiple of 32) copying a shared tile, or a window.

    Chunk q = thread + threads * i, i = 0, 1, ..., lies in row q // chunks_per_row and is chunk
    q % chunks_per_row of it. chunk: bytes; default: the tile's widest, 16 but for odd paddings. A
    shared vector of n elements is a tile of one row. pitch: bytes from row to row of the array.

    limit: rows and columns of the array left from the tile's corner. Past it a load reads nothing
    and writes zeros to shared memory, and with store=True neither side is touched. `copy_chunk`
    says which chunks the headers take, `copy_rest` what becomes of chunks that are not all there.
    """
    row0, col0, rows, cols = _window(tile, at, shape)
    size = tile.chunk if chunk is None else chunk
    row_bytes = cols * tile.itemsize
    if threads <= 0 or threads % LANES:
        raise ValueError(f"a group has a multiple of 32 threads, not {threads}")
    if size not in (1, 2, 4, 8, 16) or not tile.itemsize <= size <= tile.chunk:
        raise ValueError(f"a chunk of {tile} has {tile.itemsize} .. {tile.chunk} bytes, not {size}")
    if row_bytes % size or (pitch % size and rows > 1):
        raise ValueError(f"rows of {row_bytes} bytes, {pitch} apart, in chunks of {size}")
    per_row = row_bytes // size
    rounds = -(-rows * per_row // threads)
    q = np.arange(rounds * threads).reshape(rounds, threads // LANES, LANES).transpose(1, 0, 2)
    row, byte = q // per_row, q % per_row * size
    inside = row < rows
    col = byte // tile.itemsize
    left = (rows, cols) if limit is None else limit
    there = inside & (row < left[0]) & (col < left[1])
    shared = tile.offset(np.where(inside, row, 0) + row0, col + col0)
    return Copy(
        size,
        read_only(np.where(there, row * pitch + byte, -1)),
        read_only(np.where(there if store else inside, shared, -1)),
    )


def copy_chunk(tile: SharedTile, start: int, pitch: int, whole: bool, store: bool) -> int:
    """Bytes of a chunk, as the headers choose: the widest that tile, corner and pitch allow.

    start: bytes from a 16-byte boundary to the tile's corner in the array. whole: nothing of the
    tile is past the array's end. A load takes 16, 8 or 4 bytes, else single elements; a store takes
    the tile's own chunk if it can and the tile is whole, else single elements.
    """
    fits = [b for b in (16, 8, 4) if b <= tile.chunk and start % b == 0 and pitch % b == 0]
    if store:
        return tile.chunk if whole and tile.chunk in fits else tile.itemsize
    return max(fits, default=tile.itemsize)


@lru_cache(maxsize=512)
def copy_rest(
    tile: SharedTile, threads: int, pitch: int, chunk: int, limit: Pair
) -> tuple[Copy, tuple[Copy, ...]]:
    """An ordinary load past an array's edge: the chunks that are there, and the other ones.

    The other ones are written element by element, the same element of every such chunk at once:
    what is there is read, the rest is zero. Rows [w, i] as in `group_copy`; limit is not negative.
    """
    each = chunk // tile.itemsize
    full = group_copy(
        tile, threads, pitch, chunk, limit=(limit[0], limit[1] // each * each), store=True
    )
    some = group_copy(tile, threads, pitch, chunk, limit=limit)
    other = (full.shared_offsets < 0) & (some.shared_offsets >= 0)
    rest = []
    for e in range(each):
        there = other & (some.global_offsets >= 0) & (e < limit[1] % each)
        if each == 1:
            there = np.zeros_like(other)  # such a chunk is past the end altogether
        rest.append(
            Copy(
                tile.itemsize,
                read_only(np.where(there, some.global_offsets + e * tile.itemsize, -1)),
                read_only(np.where(other, some.shared_offsets + e * tile.itemsize, -1)),
            )
        )
    return full, tuple(rest)


# ----------------------------------------------------------------------------- vectors (one warp)
@lru_cache(maxsize=512)
def vector(
    kind: str,
    n: int,
    itemsize: int,
    register_itemsize: int | None = None,
    limit: int | None = None,
    aligned: bool = True,
) -> tuple[Access, ...]:
    """Accesses of a warp that loads ("ld") or stores ("st") a flat vector `rv` of n elements.

    itemsize: bytes of an element in memory, global or shared; register_itemsize: in the vector,
    which decides how many a lane holds together (`layouts.rv_width`; default: the same). Each chunk
    of 32 V elements is one access of V elements a lane; over 16 bytes, several of 16.

    limit: elements of the array left; fewer than n, or aligned=False (a base not aligned to such an
    access): single elements, those past the limit inactive.
    """
    held = itemsize if register_itemsize is None else register_itemsize
    return _runs(kind, rv_coords(n, held), rv_width(n, held), n, itemsize, limit, aligned)


@lru_cache(maxsize=512)
def tile_vector(
    kind: str,
    n: int,
    which: str,
    itemsize: int,
    layout: str = "row",
    limit: int | None = None,
    aligned: bool = True,
) -> tuple[Access, ...]:
    """Accesses of a warp that loads or stores a tile's vector: which = "col" or "row", n elements.

    As `vector`, with `layouts.vec_coords`: one element at a time along g, two along t. All lanes
    load; of those that hold the same element only the first stores.
    """
    held = vec_coords(n, which, layout)
    if kind == "st":
        first = vec_owner(n, which, layout)[0][:, 0]
        held = np.where(np.isin(np.arange(LANES), first)[:, None], held, -1)
    run = 1 if held.shape[1] == n // 8 else 2
    return _runs(kind, held, run, n, itemsize, limit, aligned)


def _runs(
    kind: str, held: Ints, run: int, n: int, itemsize: int, limit: int | None, aligned: bool
) -> tuple[Access, ...]:
    """Accesses for element[32, registers], `run` neighbours in a lane; -1 is no element."""
    _check_kind(kind)
    left = n if limit is None else limit
    step = min(run, 16 // itemsize) if left >= n and aligned else 1
    first = held[:, ::step].T
    off = np.where((first >= 0) & (first < left), first * itemsize, -1)
    return (Access(kind, step * itemsize, read_only(off)),)
