"""Who holds what: tensor-core fragments, register tiles and vectors, swizzled shared tiles.

Pure functions from shapes to index arrays; FACTS.md, sections 3 and 4, is the source of every map.
This file knows coordinates, lanes, register numbers and byte offsets. It does not know types,
machines or instructions (which instructions an operation issues is `lang/plans.py`).

Throughout: g = lane >> 2 and t = lane & 3; a register number counts elements, not 32-bit registers
(two 16-bit elements share one of those). Arrays are int32, cached and read-only.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]

LANES = 32
BASE = 16
"""Rows and columns of a base tile, of which register tiles are grids."""
BASE_REGS = 8
"""Elements of a base tile that one lane holds."""

_LANE = np.arange(LANES, dtype=np.int32)
_G, _T = (_LANE >> 2)[:, None], (_LANE & 3)[:, None]


def read_only(array: NDArray[Any]) -> Ints:
    """The array as int32 that nobody can write to: results here are cached and shared."""
    out = np.ascontiguousarray(array, dtype=np.int32)
    out.flags.writeable = False
    return out


def _both(first: NDArray[Any], second: NDArray[Any]) -> tuple[Ints, Ints]:
    return read_only(first), read_only(second)


# -------------------------------------------------------------------------------- fragments
def _a16(i: Ints) -> tuple[Any, Any]:
    return _G + 8 * ((i >> 1) & 1), 2 * _T + (i & 1) + 8 * (i >> 2)


def _b16(i: Ints) -> tuple[Any, Any]:
    return 2 * _T + (i & 1) + 8 * (i >> 1), _G + 0 * i


def _c(i: Ints) -> tuple[Any, Any]:
    return _G + 8 * (i >> 1), 2 * _T + (i & 1)


def _a_tf32(i: Ints) -> tuple[Any, Any]:
    return _G + 8 * (i & 1), _T + 4 * (i >> 1)


def _b_tf32(i: Ints) -> tuple[Any, Any]:
    return _T + 4 * i, _G + 0 * i


def _a8(i: Ints) -> tuple[Any, Any]:
    return _G + 8 * ((i >> 2) & 1), 4 * _T + (i & 3) + 16 * (i >> 3)


def _b8(i: Ints) -> tuple[Any, Any]:
    return 4 * _T + (i & 3) + 16 * (i >> 2), _G + 0 * i


# instruction -> operand -> (map, elements a lane). m16n8k8 in 16 bit is half of m16n8k16.
_FRAGMENTS = {
    "m16n8k16": {"A": (_a16, 8), "B": (_b16, 4), "C": (_c, 4)},
    "m16n8k8": {"A": (_a16, 4), "B": (_b16, 2), "C": (_c, 4)},
    "m16n8k8.tf32": {"A": (_a_tf32, 4), "B": (_b_tf32, 2), "C": (_c, 4)},
    "m16n8k32": {"A": (_a8, 16), "B": (_b8, 8), "C": (_c, 4)},
}
FRAGMENTS: tuple[str, ...] = tuple(_FRAGMENTS)
"""Instructions that `fragment` knows: mma.sync for 16-bit (k16, k8), tf32 and 8-bit operands."""


@lru_cache(maxsize=64)
def fragment(instruction: str, operand: str) -> tuple[Ints, Ints]:
    """Coordinates of an mma.sync operand: (row[32, n], col[32, n]) of lane l's element i.

    operand "A" gives (m, k), "B" gives (k, n), "C" or "D" gives (m, n). Two 16-bit (four 8-bit)
    elements i, i + 1, ... are one 32-bit register. FACTS.md 4.
    """
    try:
        func, n = _FRAGMENTS[instruction]["C" if operand == "D" else operand]
    except KeyError:
        raise ValueError(
            f"no fragment {operand!r} of {instruction!r}; instructions: {', '.join(FRAGMENTS)}; "
            "operands: A, B, C, D"
        ) from None
    return _both(*func(np.arange(n, dtype=np.int32)[None]))


@lru_cache(maxsize=64)
def wgmma_d(n: int) -> tuple[Ints, Ints]:
    """Coordinates of the wgmma m64nN accumulator: (row[128, n/2], col[128, n/2]), by thread."""
    if n % 8 or not 8 <= n <= 256:
        raise ValueError(f"wgmma has N = 8, 16, ... 256, not {n}")
    thread, i = np.arange(128)[:, None], np.arange(n // 2)[None]
    row = 16 * (thread >> 5) + ((thread & 31) >> 2) + 8 * ((i >> 1) & 1)
    return _both(row, 8 * (i >> 2) + 2 * (thread & 3) + (i & 1))


@lru_cache(maxsize=1)
def wgmma_a() -> tuple[Ints, Ints]:
    """Coordinates of wgmma's A in registers, 16-bit, m64k16: (row[128, 8], k[128, 8])."""
    row, col = wgmma_d(16)
    return row, col  # the same map, as an accumulator of 16 columns


@lru_cache(maxsize=2)
def ldmatrix(trans: bool = False) -> tuple[Ints, Ints]:
    """What ldmatrix gives: (row[32, 2], col[32, 2]) of an 8x8 matrix of 16-bit elements.

    Lane l's register j holds those two elements of matrix j, low half first. Lanes 8 j .. 8 j + 7
    give the addresses of matrix j's rows. stmatrix is the same, the other way.
    """
    row, col = _G + np.zeros((1, 2), np.int32), 2 * _T + np.arange(2)
    return _both(*((col, row) if trans else (row, col)))


# --------------------------------------------------------------------------- register tiles
def check_layout(layout: str) -> str:
    if layout not in ("row", "col"):
        raise ValueError(f"a register layout is 'row' or 'col', not {layout!r}")
    return layout


def check_tile(rows: int, cols: int) -> None:
    if rows <= 0 or cols <= 0 or rows % BASE or cols % BASE:
        raise ValueError(f"a register tile is a grid of 16x16 base tiles, not {rows} x {cols}")


@lru_cache(maxsize=2)
def base_coords(layout: str) -> tuple[Ints, Ints]:
    """(row[32, 8], col[32, 8]) of a 16x16 base tile: the A map of m16n8k16, or its transpose."""
    row, col = fragment("m16n8k16", "A")
    return (row, col) if check_layout(layout) == "row" else (col, row)


@lru_cache(maxsize=256)
def rt_coords(rows: int, cols: int, layout: str = "row") -> tuple[Ints, Ints]:
    """Coordinates of a register tile: (row[32, regs], col[32, regs]), regs = rows * cols / 32.

    Register 8 b + i of a lane is its element i of base tile b; base tiles are numbered row-major,
    in either layout. A base tile is held as `base_coords(layout)` says.
    """
    check_tile(rows, cols)
    row, col = base_coords(layout)
    b = np.arange(rows // BASE * (cols // BASE))[None, :, None]
    row = row[:, None, :] + b // (cols // BASE) * BASE
    col = col[:, None, :] + b % (cols // BASE) * BASE
    return _both(row.reshape(LANES, -1), col.reshape(LANES, -1))


@lru_cache(maxsize=256)
def rt_owner(rows: int, cols: int, layout: str = "row") -> tuple[Ints, Ints]:
    """Who holds each element of a register tile: (lane[rows, cols], register[rows, cols])."""
    row, col = rt_coords(rows, cols, layout)
    lane, reg = np.empty((2, rows, cols), np.int32)
    lane[row, col] = _LANE[:, None]
    reg[row, col] = np.arange(row.shape[1])
    return _both(lane, reg)


# ------------------------------------------------------------------------- register vectors
def _per_row(kind: str, layout: str) -> bool:
    """Whether the vector runs along g: the rows of a row-layout tile, the columns of a col one."""
    if kind not in ("col", "row"):
        raise ValueError(f"a tile's vector is 'col' (a value per row) or 'row', not {kind!r}")
    return (kind == "col") == (check_layout(layout) == "row")


@lru_cache(maxsize=256)
def vec_coords(n: int, kind: str, layout: str = "row") -> Ints:
    """Element[32, regs] that each lane's registers of a tile's vector hold.

    kind "col" is a col_vec (one value per row of the tile, n rows), "row" a row_vec. The col_vec of
    a row layout: lane (g, t) holds rows g and g + 8 of each 16, so regs = n / 8, the same for each
    t. Its row_vec: columns 2t, 2t+1, 2t+8, 2t+9 of each 16, so regs = n / 4, the same for each g.
    Swapped for a col layout.
    """
    along_g = _per_row(kind, layout)
    if n <= 0 or n % BASE:
        raise ValueError(f"a tile's vector has a multiple of 16 elements, not {n}")
    base = np.arange(0, n, BASE)[None, :, None]
    held = _G + 8 * np.arange(2) if along_g else 2 * _T + np.array([0, 1, 8, 9])
    return read_only((held[:, None, :] + base).reshape(LANES, -1))


@lru_cache(maxsize=256)
def vec_owner(n: int, kind: str, layout: str = "row") -> tuple[Ints, Ints]:
    """Who holds each element of a tile's vector: (lanes[n, copies], register[n]).

    copies is 4 (the lanes of one g) or 8 (the lanes of one t); all keep it in one register.
    """
    held = vec_coords(n, kind, layout)
    reg = np.empty(n, np.int32)
    reg[held] = np.arange(held.shape[1])
    in_base = np.nonzero(held[:, None, :] == np.arange(n)[None, :, None])
    copies = 4 if _per_row(kind, layout) else 8
    lanes = in_base[0][np.argsort(in_base[1], kind="stable")].reshape(n, copies)
    return _both(lanes, reg)


def rv_width(n: int, itemsize: int) -> int:
    """V, the neighbouring elements of a flat vector that a lane holds together.

    16 bytes' worth, halved until 32 V divides n or V is 1. itemsize is the register's, in bytes.
    """
    v = 16 // itemsize
    while v > 1 and n % (LANES * v):
        v //= 2
    return v


@lru_cache(maxsize=256)
def rv_coords(n: int, itemsize: int) -> Ints:
    """Element[32, regs] of each lane's registers of a flat vector `rv`; -1 past the end."""
    if n <= 0:
        raise ValueError(f"a vector has at least one element, not {n}")
    v = rv_width(n, itemsize)
    reg = np.arange(-(-n // (LANES * v)) * v)[None]
    e = (reg // v * LANES + _LANE[:, None]) * v + reg % v
    return read_only(np.where(e < n, e, -1))


@lru_cache(maxsize=256)
def rv_owner(n: int, itemsize: int) -> tuple[Ints, Ints]:
    """Who holds each element of a flat vector: (lane[n], register[n])."""
    v = rv_width(n, itemsize)
    e = np.arange(n)
    return _both(e // v % LANES, e // (LANES * v) * v + e % v)


# ----------------------------------------------------------------------------- shared tiles
SWIZZLE_BITS = {0: 0, 32: 1, 64: 2, 128: 3}
"""Swizzle width in bytes -> B, the address bits that the formula of FACTS.md 3 moves."""


def swizzle_address(address: Any, swizzle: int) -> Any:
    """addr ^ (((addr >> 7) & (2**B - 1)) << 4), for a number or an array of byte addresses."""
    return address ^ (((address >> 7) & ((1 << _bits(swizzle)) - 1)) << 4)


def swizzle_alignment(swizzle: int) -> int:
    """Bytes to which a shared tile is aligned: the swizzle's period, 128 without one (for TMA)."""
    return 128 << _bits(swizzle)


def default_swizzle(itemsize: int, cols: int) -> int:
    """The widest of 128, 64 and 32 bytes that divides a row of `cols` elements; else 0."""
    return next((w for w in (128, 64, 32) if cols * itemsize % w == 0), 0)


def _bits(swizzle: int) -> int:
    if swizzle not in SWIZZLE_BITS:
        raise ValueError(f"a swizzle is 0, 32, 64 or 128 bytes, not {swizzle}")
    return SWIZZLE_BITS[swizzle]


class SharedTile(NamedTuple):
    """Where a tile's elements lie in shared memory, relative to its aligned base.

    rows, cols: elements. itemsize: bytes. swizzle: 0, 32, 64 or 128 bytes. pad: elements added to
    each row, only with swizzle 0. Unswizzled tiles are row-major; swizzled ones are stored as
    column blocks of `swizzle` bytes, one after the other, each XOR-ed as FACTS.md 3 says.
    """

    rows: int
    cols: int
    itemsize: int
    swizzle: int = 0
    pad: int = 0

    @property
    def nbytes(self) -> int:
        return self.rows * (self.cols + self.pad) * self.itemsize

    @property
    def chunk(self) -> int:
        """Bytes of the widest piece of a row (16 or less) that is aligned to its own size."""
        pitch = self.swizzle or (self.cols + self.pad) * self.itemsize
        return next((w for w in (16, 8, 4) if pitch % w == 0), self.itemsize)

    def offset(self, row: Any, col: Any) -> Any:
        """Byte offset of element (row, col), for numbers or for arrays that broadcast."""
        if self.swizzle == 0:
            return (row * (self.cols + self.pad) + col) * self.itemsize
        sub = self.swizzle // self.itemsize
        if self.pad:
            raise ValueError("a shared tile is either swizzled or padded")
        if self.cols % sub:
            raise ValueError(
                f"{self.cols} columns of {self.itemsize} bytes do not divide into blocks of "
                f"{self.swizzle} bytes"
            )
        linear = ((col // sub) * self.rows + row) * sub + col % sub
        return swizzle_address(linear * self.itemsize, self.swizzle)


@lru_cache(maxsize=256)
def st_offset(rows: int, cols: int, itemsize: int, swizzle: int = 0, pad: int = 0) -> Ints:
    """Byte offset of every element of a shared tile: [rows, cols], as `SharedTile.offset`."""
    tile = SharedTile(rows, cols, itemsize, swizzle, pad)
    return read_only(tile.offset(np.arange(rows)[:, None], np.arange(cols)[None]))
