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
    16-bit tiles: one ldmatrix.x4 for each 16x16 base tile (.trans for a col layout). Others: loads
    of pairs (4 a base tile) in row layout, of single elements (8 a base tile) in col layout.
    """
    if tile.itemsize != 2:
        return (_elements("ld", tile, check_layout(layout), at, shape),)
    lane = np.arange(LANES)
    if check_layout(layout) == "row":
        row, col = lane & 15, 8 * (lane >> 4)
    else:
        row, col = (lane & 7) + 8 * (lane >> 4), 8 * ((lane >> 3) & 1)
    row0, col0 = _base_tiles(*_window(tile, at, shape))
    off = tile.offset(row0 + row, col0 + col)
    _aligned(off, 16, f"ldmatrix rows of {tile}")
    return (Access("ldmatrix", 4, read_only(off)),)


@lru_cache(maxsize=512)
def store_shared(
    tile: SharedTile, layout: str = "row", at: Pair = (0, 0), shape: Pair | None = None
) -> tuple[Access, ...]:
    """Accesses of a warp that stores a register tile into a shared tile, or a window of it.

    Row layout: 4 stores of pairs for each base tile; col layout: 8 of single elements.
    """
    return (_elements("st", tile, check_layout(layout), at, shape),)


def _window(tile: SharedTile, at: Pair, shape: Pair | None) -> tuple[int, int, int, int]:
    rows, cols = shape or (tile.rows - at[0], tile.cols - at[1])
    check_tile(rows, cols)
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
    step = 2 if layout == "row" else 1
    off = tile.offset(*_tile_coords(_window(tile, at, shape), layout, step))
    width = step * tile.itemsize
    _aligned(off, width, f"pairs of {tile}")
    return Access(kind, width, read_only(off))


def _aligned(off: Ints, width: int, what: str) -> None:
    if (off & (width - 1)).any():
        raise ValueError(f"{what} are not aligned to {width} bytes: choose another padding")


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
    pairs: bool | None = None,
) -> tuple[Access, ...]:
    """Accesses of a warp that loads (kind "ld") or stores ("st") a register tile in global memory.

    itemsize: the array's, in bytes. pitch: bytes from row to row. limit: rows and columns of the
    array left from the tile's corner; elements past them are inactive. Row layout: pairs of
    neighbouring columns (2 * itemsize bytes a lane), 4 accesses a base tile; col layout: single
    elements, 8 a base tile. pairs=False asks for single elements in a row layout too, for a base,
    pitch or limit that splits a pair; None decides by pitch and limit.
    """
    if kind not in ("ld", "st"):
        raise ValueError(f"kind is 'ld' or 'st', not {kind!r}")
    check_tile(rows, cols)
    last_row, last_col = (rows, cols) if limit is None else limit
    fits = pitch % (2 * itemsize) == 0 and (last_col % 2 == 0 or last_col >= cols)
    if check_layout(layout) == "col":
        pairs = False
    elif pairs is None:
        pairs = fits
    elif pairs and not fits:
        raise ValueError(
            f"pitch {pitch} or limit {limit} splits a pair of {itemsize}-byte elements"
        )
    step = 2 if pairs else 1
    row, col = _tile_coords((0, 0, rows, cols), layout, step)
    off = np.where((row < last_row) & (col < last_col), row * pitch + col * itemsize, -1)
    return (Access(kind, step * itemsize, read_only(off)),)


# ---------------------------------------------------------- shared tile <-> global memory (a group)
@lru_cache(maxsize=512)
def group_copy(
    tile: SharedTile,
    threads: int,
    pitch: int,
    chunk: int = 16,
    at: Pair = (0, 0),
    shape: Pair | None = None,
    limit: Pair | None = None,
) -> Copy:
    """Both sides of `threads` threads (a multiple of 32) copying a shared tile, or a window.

    Chunk q = thread + threads * i, i = 0, 1, ..., lies in row q // chunks_per_row and is chunk
    q % chunks_per_row of it. chunk: bytes, 16, or less where the array's pitch or base asks for it.
    pitch: bytes from row to row of the array. limit: rows and columns of the array left.
    """
    row0, col0, rows, cols = _window(tile, at, shape)
    if threads <= 0 or threads % LANES:
        raise ValueError(f"a group has a multiple of 32 threads, not {threads}")
    if chunk not in (1, 2, 4, 8, 16) or chunk < tile.itemsize:
        raise ValueError(f"a chunk is {tile.itemsize} .. 16 bytes, a power of two, not {chunk}")
    if cols * tile.itemsize % chunk or pitch % chunk:
        raise ValueError(
            f"rows of {cols * tile.itemsize} bytes, {pitch} apart, in chunks of {chunk}"
        )
    per_row = cols * tile.itemsize // chunk
    rounds = -(-rows * per_row // threads)
    q = np.arange(rounds * threads).reshape(rounds, threads // LANES, LANES).transpose(1, 0, 2)
    row, byte = q // per_row, q % per_row * chunk
    inside = row < rows
    col = byte // tile.itemsize
    shared = tile.offset(np.where(inside, row, 0) + row0, col + col0)
    _aligned(shared, chunk, f"chunks of {tile}")
    left = (rows, cols) if limit is None else limit
    there = inside & (row < left[0]) & (col < left[1])
    return Copy(
        chunk,
        read_only(np.where(there, row * pitch + byte, -1)),
        read_only(np.where(inside, shared, -1)),
    )


# ------------------------------------------------------------------------ flat vectors (one warp)
@lru_cache(maxsize=512)
def vector(
    kind: str, n: int, itemsize: int, register_itemsize: int | None = None
) -> tuple[Access, ...]:
    """Accesses of a warp that loads ("ld") or stores ("st") a flat vector `rv` of n elements.

    itemsize: bytes of an element in memory, global or shared; register_itemsize: in the vector,
    which decides how many a lane holds together (`layouts.rv_width`; default: the same). Each chunk
    of 32 V elements is one access of V elements a lane; over 16 bytes, neighbouring ones of 16.
    """
    if kind not in ("ld", "st"):
        raise ValueError(f"kind is 'ld' or 'st', not {kind!r}")
    held = itemsize if register_itemsize is None else register_itemsize
    step = min(rv_width(n, held), 16 // itemsize)
    first = rv_coords(n, held)[:, ::step].T
    return (Access(kind, step * itemsize, read_only(np.where(first < 0, -1, first * itemsize))),)
