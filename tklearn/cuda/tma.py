"""How the copy engine (TMA) sees an array: the tensor maps that kernel arguments carry.

Knows which box one instruction moves (tma.cuh cuts tiles into the same ones), the driver's
cuTensorMapEncodeTiled, and its limits. It must not know kernels or launches.

A swizzled tile is stored as column blocks as wide as the swizzle, one box each; a tile without a
swizzle, and a vector, is one box. Element (r, c) of a block then lies where
lang.layouts.SharedTile says: TMA swizzles by the same formula.
"""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from tklearn.lang.errors import LaunchError, Loc
from tklearn.lang.types import ST, SV

MAP_BYTES = 128  # a CUtensorMap, aligned to 64
MOST_MAPS = 1024  # kept for one argument of one kernel
GRANULE = 16  # bytes: bases and strides are multiples of it
# CUtensorMapDataType, CUtensorMapSwizzle, CUtensorMapL2promotion
DATA_TYPES = {
    "u8": 0, "bool": 0, "e4m3": 0, "e5m2": 0, "u32": 2, "i32": 3, "i64": 5, "f16": 6, "f32": 7,
    "bf16": 9,
}  # fmt: skip
SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
L2_128_BYTES = 2
NO_CONTEXT = (3, 201)  # the driver's errors: not initialised, no context in this thread


@dataclass(frozen=True)
class Description:
    """The fields of a tensor map; the last dimension of the array comes first.

    dims: elements. strides: bytes, of all dimensions but the first. box: elements of each dimension
    that one instruction moves. data_type, swizzle: the driver's numbers.
    """

    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    data_type: int
    swizzle: int


def describe(shape: tuple[int, ...], strides: tuple[int, ...], tile: ST | SV) -> Description:
    """The tensor map of an array of 1 to 4 dimensions, strides in elements, for tiles of a type.

    No dimension may be 0. A vector is one row. A dimension of one element has no stride of its own.
    """
    size = tile.dtype.itemsize
    shape, strides = ((1,) * (2 - len(shape)) + shape, (0,) * (2 - len(strides)) + strides)
    if isinstance(tile, SV):
        inner, rows, swizzle = tile.n, 1, 0
    else:
        inner = tile.swizzle // size if tile.swizzle else tile.cols
        rows, swizzle = tile.rows, tile.swizzle
    steps, extent = [], shape[-1] * size
    for n, s in zip(shape[-2::-1], strides[-2::-1], strict=True):
        step = s * size if n > 1 else -(-extent // GRANULE) * GRANULE
        steps.append(step)
        extent = n * step
    box = (inner, rows, *(1,) * (len(shape) - 2))
    return Description(
        shape[::-1], tuple(steps), box, DATA_TYPES[tile.dtype.name], SWIZZLES[swizzle]
    )


def problem(ptr: int, d: Description) -> tuple[str, str] | None:
    """Why TMA cannot work on such an array, and what to do; None if it can."""
    if ptr % GRANULE:
        return (
            f"starts at an address that is {ptr % GRANULE} bytes past a multiple of {GRANULE}",
            "TMA needs an aligned first element: pass a copy, or a view that starts elsewhere",
        )
    for s in d.strides:
        if s % GRANULE or s <= 0:
            return (
                f"has a stride of {s} bytes",
                f"TMA needs strides of a positive multiple of {GRANULE} bytes: pad the rows, as in "
                "x = np.zeros((rows, padded))[:, :cols], or use block.load_async",
            )
    if any(n >= 1 << 31 for n in d.dims) or any(s >= 1 << 40 for s in d.strides):
        return f"is too large for TMA ({d.dims} elements)", "pass parts of it"
    return None


@cache
def _driver() -> Any:
    """cuTensorMapEncodeTiled of the CUDA driver. Error TK420 without one."""
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        encode = ctypes.CDLL(name).cuTensorMapEncodeTiled
    except (OSError, AttributeError) as e:
        raise LaunchError(
            "TK420",
            f"the CUDA driver has no cuTensorMapEncodeTiled ({e})",
            hint="TMA needs a driver for CUDA 12 or newer; tklearn doctor says what is here",
        ) from None
    encode.restype = ctypes.c_int
    return encode


@lru_cache(maxsize=4096)
def encode(ptr: int, d: Description) -> bytes:
    """The driver's 128 bytes for an array at `ptr`. About 7 us the first time."""
    n = len(d.dims)
    room = ctypes.create_string_buffer(MAP_BYTES + 64)
    at = -(-ctypes.addressof(room) // 64) * 64
    arguments = (
        ctypes.c_void_p(at), d.data_type, ctypes.c_uint32(n), ctypes.c_void_p(ptr),
        (ctypes.c_uint64 * n)(*d.dims), (ctypes.c_uint64 * (n - 1))(*d.strides),
        (ctypes.c_uint32 * n)(*d.box), (ctypes.c_uint32 * n)(*(1,) * n),
        0, d.swizzle, L2_128_BYTES, 0,
    )  # fmt: skip
    status = _driver()(*arguments)
    if status in NO_CONTEXT:
        from cupy.cuda import runtime

        runtime.setDevice(runtime.getDevice())  # a thread that has not used CUDA before
        status = _driver()(*arguments)
    if status:
        raise LaunchError("TK402", f"the driver refuses {d} for TMA (error {status})")
    return ctypes.string_at(at, MAP_BYTES)


class Maps:
    """The tensor maps of one array argument, for all the types of tile that its kernel moves.

    `written`: whether TMA stores to it. `kept`: what was encoded, by address, shape and strides
    (without the last).
    """

    def __init__(self, name: str, loc: Loc, tiles: tuple[ST | SV, ...], written: bool) -> None:
        self.name, self.loc, self.tiles, self.written = name, loc, tiles, written
        self.nbytes = MAP_BYTES * len(tiles)
        self.kept: dict[tuple[int, ...], bytes] = {}

    def __call__(self, ptr: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> bytes:
        """The maps of an array, one after the other. Error TK402 for one that TMA cannot use."""
        key = (ptr, *shape, *strides[:-1])
        found = self.kept.get(key)
        if found is None:
            self._ends(shape[-1] * self.tiles[0].dtype.itemsize)
            if 0 in shape:
                ptr, shape, strides = _nothing(self.written), (1,) * len(shape), (1,) * len(shape)
            found = b"".join(self._map(ptr, describe(shape, strides, t)) for t in self.tiles)
            if len(self.kept) >= MOST_MAPS:
                self.kept.clear()
            self.kept[key] = found
        return found

    def _map(self, ptr: int, d: Description) -> bytes:
        if wrong := problem(ptr, d):
            raise LaunchError("TK402", f"'{self.name}' {wrong[0]}", self.loc, wrong[1])
        return encode(ptr, d)

    def _ends(self, row: int) -> None:
        """A store writes whole granules: what lies behind the end of a row would be lost."""
        if self.written and row % GRANULE:
            raise LaunchError(
                "TK402",
                f"'{self.name}' has rows of {row} bytes, and TMA stores write {GRANULE} at a time",
                self.loc,
                f"up to {GRANULE - row % GRANULE} bytes behind each row would be overwritten: give "
                "the array wider rows, or write them with warpgroup.store",
            )


@cache
def _nothing(written: bool) -> int:
    """The address of 16 bytes that stand for an empty array: read as zeros, or written in vain."""
    import cupy

    _keep.append(cupy.zeros(16, cupy.uint8))
    return int(_keep[-1].data.ptr)


_keep: list[Any] = []  # part of the kernel cache
