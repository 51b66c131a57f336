"""TMA and wgmma without a GPU: tensor maps and descriptors name the bytes that SharedTile names.

Two small models stand for the hardware: what one TMA instruction copies where, and which bytes a
wgmma descriptor walks over. (tests/test_cuda_async.py asks the hardware itself.)
"""

from __future__ import annotations

import ctypes
import itertools
import struct
import types
from collections.abc import Iterator
from typing import Any

import async_cases
import cuda_cases as cases
import numpy as np
import pytest

import tklearn as tk
from tklearn.cuda import compile as cc
from tklearn.cuda import launch as cl
from tklearn.cuda import needs, quick, tma
from tklearn.cuda.emit import Source, emit
from tklearn.lang import types as T
from tklearn.lang.errors import Loc, TkError
from tklearn.lang.layouts import SharedTile, swizzle_address

HERE = Loc(__file__, 1)
MOST_SHARED = 227 * 1024
DTYPES = (T.f32, T.f16, T.bf16, T.e4m3, T.e5m2)


def tiles() -> Iterator[T.ST]:
    """Tiles of every dtype and swizzle that TMA can move, in a few shapes."""
    for d in DTYPES:
        for rows, cols, swizzle in itertools.product(
            (16, 64, 80, 256), (16, 32, 48, 64, 128, 256), (0, 32, 64, 128)
        ):
            if not swizzle or cols * d.itemsize % swizzle == 0:
                yield T.st(d, rows, cols, swizzle)


# ----------------------------------------------------------------------------- tensor maps
def moved(d: tma.Description, size: int, at: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """What one instruction does: for each element of its box, row by row, the byte offset in the
    array (-1: outside, a zero) and the byte offset in shared memory, from an aligned base."""
    inner, rows = d.box[:2]
    assert all(n == 1 for n in d.box[2:])
    r, c = np.mgrid[:rows, :inner]
    place = [at[0] + c, at[1] + r, *at[2:]]
    inside = np.ones_like(c, bool)
    source = np.zeros_like(c)
    for n, p, step in zip(d.dims, place, (size, *d.strides), strict=True):
        inside &= (np.asarray(p) >= 0) & (np.asarray(p) < n)
        source = source + np.asarray(p) * step
    linear = (r * inner + c) * size  # rows of a box follow one another
    width = {v: k for k, v in tma.SWIZZLES.items()}[d.swizzle]
    return np.where(inside, source, -1), swizzle_address(linear, width)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
def test_boxes_put_elements_where_the_tile_has_them(dtype: T.DType) -> None:
    """tma.cuh: box j of a tile at (r, c) starts ROWS * PITCH bytes after box j - 1, and at column
    c * WIDTH + j * COLS, row r * ROWS."""
    size = dtype.itemsize
    for t in tiles():
        if t.dtype != dtype:
            continue
        shape, pad = (3, 2, t.rows + 7, 2 * t.cols + 16), 48
        strides = (2 * shape[2] * (shape[3] + pad), shape[2] * (shape[3] + pad), shape[3] + pad, 1)
        for at in ((0, 0, 0, 0), (1, 1, 0, 1), (2, 1, 1, 2), (2, 0, 2, 3)):
            d = tma.describe(shape, strides, t)
            width = d.box[0]
            inside = SharedTile(t.rows, t.cols, size, t.swizzle)
            for j in range(t.cols // width):
                b, depth, r0, c0 = at[0], at[1], at[2] * t.rows, at[3] * t.cols + j * width
                source, place = moved(d, size, (c0, r0, depth, b))
                r, c = np.mgrid[: t.rows, :width]
                here = j * t.rows * (t.swizzle or t.cols * size) + place
                np.testing.assert_array_equal(here, inside.offset(r, c + j * width))
                index = (b, depth, r0 + r, c0 + c)
                want = size * sum(i * s for i, s in zip(index, strides, strict=True))
                out = (r0 + r >= shape[2]) | (c0 + c >= shape[3])
                np.testing.assert_array_equal(source, np.where(out, -1, want))


def test_descriptions_keep_to_the_limits() -> None:
    for t in tiles():
        d = tma.describe((5, 300, 320), (300 * 320, 320, 1), t)
        assert d.dims == (320, 300, 5)
        assert d.strides == (320 * t.dtype.itemsize, 300 * 320 * t.dtype.itemsize)
        assert max(d.box) <= 256
        assert d.box[0] * t.dtype.itemsize % 16 == 0
        assert not t.swizzle or d.box[0] * t.dtype.itemsize == t.swizzle
        assert tma.problem(0, d) is None


def test_vectors_are_one_row() -> None:
    v = T.sv(T.f32, 100)
    assert tma.describe((1000,), (1,), v) == tma.Description((1000, 1), (4000,), (100, 1), 7, 0)
    assert tma.describe((3, 100), (104, 1), v).box == (100, 1)
    assert tma.describe((2, 3, 100), (400, 104, 1), v).strides == (416, 1600)


def test_a_dimension_of_one_element_needs_no_stride() -> None:
    t = T.st(T.bf16, 16, 64)
    d = tma.describe((1, 1, 40), (7, 3, 1), t)
    assert d.strides == (80, 80)
    assert tma.problem(0, d) is None


@pytest.mark.parametrize(("ptr", "shape", "strides", "message"), [
    (8, (64, 64), (64, 1), "8 bytes past"),
    (0, (64, 60), (60, 1), "stride of 120 bytes"),
    (0, (64, 64), (0, 1), "stride of 0 bytes"),
    (0, (64, 1 << 31), (1 << 31, 1), "too large"),
    (0, (2, 64), (1 << 40, 1), "too large"),
])  # fmt: skip
def test_arrays_that_tma_cannot_use(ptr: int, shape: object, strides: object, message: str) -> None:
    maps = tma.Maps("A", HERE, (T.st(T.bf16, 16, 64),), False)
    with pytest.raises(TkError, match=f"TK402.*'A' .*{message}") as e:
        maps(ptr, shape, strides)  # type: ignore[arg-type]
    assert e.value.loc is HERE
    assert not maps.kept


def test_maps_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def encode(ptr: int, d: tma.Description) -> bytes:
        made.append(d)
        return bytes([len(made)]) * 128

    monkeypatch.setattr(tma, "encode", encode)
    maps = tma.Maps("A", HERE, (T.st(T.bf16, 16, 64), T.sv(T.bf16, 64)), False)
    first = maps(256, (64, 64), (64, 1))
    assert len(first) == maps.nbytes == 256
    assert maps(256, (64, 64), (64, 1)) is first
    assert len(made) == 2
    assert maps(256, (64, 64), (72, 1)) is not first
    assert maps(512, (64, 64), (64, 1)) is not first
    monkeypatch.setattr(tma, "MOST_MAPS", 3)
    maps(768, (64, 64), (64, 1))
    assert len(maps.kept) == 1
    monkeypatch.setattr(tma, "_nothing", lambda written: 1024)
    maps(0, (0, 64), (64, 1))
    assert made[-1].dims == (1, 1)


def test_what_the_driver_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """As cuda.h declares cuTensorMapEncodeTiled."""
    seen: list[Any] = []

    def driver(*a: Any) -> int:
        seen.append([list(x) if isinstance(x, ctypes.Array) else x for x in a])
        assert a[0].value % 64 == 0
        ctypes.memset(a[0], 7, 128)
        return 0

    monkeypatch.setattr(tma, "_driver", lambda: driver)
    tma.encode.cache_clear()
    d = tma.describe((3, 300, 320), (300 * 328, 328, 1), T.st(T.bf16, 80, 128, 64))
    assert tma.encode(1 << 40, d) == bytes([7]) * 128
    kind, rank, base, dims, strides, box, each, interleave, swizzle, promotion, fill = seen[0][1:]
    assert (kind, rank.value, base.value) == (9, 3, 1 << 40)
    assert (dims, strides) == ([320, 300, 3], [656, 300 * 656])
    assert (box, each) == ([32, 80, 1], [1, 1, 1])
    assert (interleave, swizzle, promotion, fill) == (0, 2, 2, 0)
    monkeypatch.setattr(tma, "_driver", lambda: lambda *a: 1)
    tma.encode.cache_clear()
    with pytest.raises(TkError, match=r"TK402.*refuses"):
        tma.encode(0, d)


def test_rows_that_a_store_would_write_past(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stores write whole granules of 16 bytes; loads do not, and empty arrays have no rows."""
    monkeypatch.setattr(tma, "encode", lambda p, d: bytes(128))
    monkeypatch.setattr(tma, "_nothing", lambda written: 1024)
    tile = (T.st(T.bf16, 16, 64),)
    for cols, wrong in {
        60: "rows of 120 bytes",
        1: "rows of 2 bytes",
        64: "",
        8: "",
        0: "",
    }.items():
        tma.Maps("A", HERE, tile, False)(256, (64, cols), (64, 1))
        stored = tma.Maps("A", HERE, tile, True)
        if wrong:
            with pytest.raises(TkError, match=f"TK402.*'A' has {wrong}"):
                stored(256, (64, cols), (64, 1))
        else:
            stored(256, (64, cols), (64, 1))


# ----------------------------------------------------------------------- which arrays carry maps
def test_arrays_with_maps() -> None:
    k = cases.specialise(async_cases.operations, 256, {"A": 2, "v": 1, "H": 2, "F": 2, "O": 2})
    found = {s.name: t for s, t in needs.tma_tiles(k).items() if s in k.params}
    assert found == {  # A in a helper and under another name
        "A": (T.st_bf(64, 64), T.st_bf(64, 256)),
        "v": (T.sv(T.bf16, 64),),
        "H": (T.st_hf(64, 64),),
    }
    stored = {s.name for s in needs.tma_tiles(k, stored=True) if s in k.params}
    assert stored == {"H"}
    assert needs.multiplies(k)
    assert not needs.reallocates(k)
    assert needs.tma_tiles(cases.specialise(cases.saxpy, 256)) == {}
    assert needs.reallocates(cases.specialise(async_cases.gemm_ws, 384, dict.fromkeys("ABC", 2)))


def mixed(i: tk.i32, A: tk.gl_bf, n: tk.i32, B: tk.gl_bf, F: tk.gl_fl):
    s = tk.shared(tk.st_bf(16, 64))
    v = tk.shared(tk.sv(tk.bf16, 64))
    if tk.warpid() == 0:
        tk.tma.store_async(A, s, (i, 0))
        tk.tma.prefetch(v, A, (n, 0))
        tk.tma.store_async(B, s, (0, 0, 0))
    F[0] = 1.0


def test_argument_buffer_with_maps() -> None:
    """Offsets as C++ has them; sizes also as the cubin says (EIATTR_KPARAM_INFO of .nv.info), whose
    offsets differ: ptxas aligns to 64 bytes in the constant bank, the driver knows how."""
    spec = cases.specialise(mixed, 32, {"A": 2, "B": 3})
    tiles = needs.tma_tiles(spec)
    assert cl.argument_offsets(spec.params, tiles) == [0, 64, 384, 448, 640]
    packed = cl.argument_format(spec.params, tiles)
    maps = [bytes([n]) * 256 for n in (1, 2)]
    gl = (7, 1, 1, 5, 6, 0, 0, 6)
    data = packed.pack(3, *gl, maps[0], 4, *gl, maps[1][:128], *gl)
    assert struct.unpack_from("<i", data, 0) == (3,)
    assert struct.unpack_from("<Qiiiiqqq", data, 64) == gl
    assert data[128:384] == maps[0]
    assert struct.unpack_from("<i", data, 384) == (4,)
    assert data[512:640] == maps[1][:128]
    assert struct.unpack_from("<Qiiiiqqq", data, 640) == gl
    assert packed.size == 688
    pytest.importorskip("cupy", reason="CuPy is not installed")
    image = cc.compile_source(emit(spec), 90).image
    sizes, at = {}, image.find(b"\x04\x17\x0c\x00")
    while at >= 0:
        _, ordinal, _, size = struct.unpack_from("<IHHI", image, at + 4)
        sizes[ordinal] = size >> 18
        at = image.find(b"\x04\x17\x0c\x00", at + 16)
    assert sizes == {0: 4, 1: 320, 2: 4, 3: 192, 4: 48}


def test_launches_with_maps_point_at_each_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a pretended driver: what lies behind the pointers, the long way and the quick one."""
    made = []

    def load(self: cl.Launcher) -> None:
        def launch(handle: int, *rest: int) -> None:
            assert rest[9] == 0  # extra
            params = ctypes.cast(rest[8], ctypes.POINTER(ctypes.c_void_p))
            sizes = [4, 320, 4, 192, 48]
            made.append([ctypes.string_at(params[i], n) for i, n in enumerate(sizes)])
            assert params[1] % 64 == params[3] % 64 == 0

        self.handle, self.driver_launch, self.get_device = 77, launch, lambda: 0

    monkeypatch.setattr(cl.Launcher, "_load", load)
    monkeypatch.setattr(cl, "device_facts", lambda d: ("H200", 90, 227 * 1024))
    monkeypatch.setattr(
        cl, "compile_source", lambda s, a, **k: cc.Cubin(b"", s.entry, a, cc.Facts(9), "")
    )
    monkeypatch.setattr(cl, "current_stream", lambda d, t: 5)
    monkeypatch.setattr(quick, "current_stream", lambda d, t: 5)
    monkeypatch.setattr(tma, "encode", lambda p, d: struct.pack("<QQ", p, d.dims[0]) * 8)

    def array(ptr: int, *shape: int, item: int = 2) -> Any:
        strides = [item]
        for n in reversed(shape[1:]):
            strides.insert(0, strides[0] * n)
        return types.SimpleNamespace(
            data=types.SimpleNamespace(ptr=ptr, device_id=0), shape=shape, itemsize=item,
            strides=tuple(strides), dtype=f"float{8 * item}", size=int(np.prod(shape)),
        )  # fmt: skip

    k = tk.kernel(warps=1)(mixed)
    spec = cases.specialise(mixed, 32, {"A": 2, "B": 3})
    args = (3, array(4096, 64, 64), 4, array(32768, 2, 64, 64), array(65536, 64, item=4))
    again = quick.Quick(k.params)
    again.remember(args, {}, spec, "cuda:0")
    assert again.again((1, 1, 1), args, {}, lambda s: True) is None  # not encoded yet
    as_arrays = [
        types.SimpleNamespace(
            ptr=a.data.ptr, shape=a.shape, strides=tuple(s // a.itemsize for s in a.strides),
            size=a.size, library="cupy", obj=a,
        ) if hasattr(a, "shape") else a for a in args
    ]  # fmt: skip
    cl.run(spec, (1, 1, 1), as_arrays, "cuda:0")
    assert again.again((1, 1, 1), args, {}, lambda s: True) is not None
    assert made[0] == made[1]
    assert made[0][0] == struct.pack("<i", 3)
    assert made[0][1][:24] == struct.pack("<Qiiii", 4096, 1, 1, 64, 64)
    assert made[0][1][64:80] == struct.pack("<QQ", 4096, 64)
    assert made[0][3][64:80] == struct.pack("<QQ", 32768, 64)
    moved = (3, array(4096, 32, 64), *args[2:])
    assert again.again((1, 1, 1), moved, {}, lambda s: True) is None


def test_a_newer_gpu_without_wgmma_is_told_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = cases.specialise(async_cases.gemm_ws, 384, dict.fromkeys("ABC", 2))
    for gpu in (("RTX 5090", 120, 227 * 1024), ("A100", 80, 163 * 1024)):
        monkeypatch.setattr(cl, "device_facts", lambda d, gpu=gpu: gpu)
        with pytest.raises(TkError, match=f"TK422.*{gpu[0]}") as e:
            cl.check_device(spec, 0)
        assert e.value.loc is not None
        assert e.value.loc.file == spec.file
    monkeypatch.setattr(cl, "device_facts", lambda d: ("H200", 90, 227 * 1024))
    cl.check_device(spec, 0)


# ------------------------------------------------------------------------- wgmma descriptors
def operands() -> Iterator[tuple[T.ST, bool]]:
    """(tile, transposed) of every operand that the language lets into a product."""
    for d in DTYPES:
        for major, depth, swizzle in itertools.product(
            (16, 48, 64, 128, 192, 256), (16, 32, 48, 64, 128, 256), (32, 64, 128)
        ):
            for transposed in (False, True):
                rows, cols = (depth, major) if transposed else (major, depth)
                fits = cols * d.itemsize % swizzle == 0 and depth * d.itemsize % 32 == 0
                fits &= rows * cols * d.itemsize <= MOST_SHARED
                if fits and (d.itemsize == 2 or not transposed):
                    yield T.st(d, rows, cols, swizzle), transposed


def fields(t: T.ST, transposed: bool) -> tuple[int, list[int]]:
    """FACTS.md 3: the descriptor without its address, and the bytes added for each step of k."""
    sw, size = t.swizzle, t.dtype.itemsize
    mode = {128: 1, 64: 2, 32: 3}[sw]
    leading = t.rows * sw // 16 if transposed else 1
    word = mode << 62 | (8 * sw // 16) << 32 | leading << 16
    depth = t.rows if transposed else t.cols
    steps = range(depth * size // 32)
    if transposed:
        return word, [16 * sw * k for k in steps]
    return word, [32 * k // sw * (t.rows * sw) + 32 * k % sw for k in steps]


def walked(word: int, major: int, depth: int, size: int, transposed: bool) -> np.ndarray:
    """Bytes that the instruction reads for element (i, k) of an operand of major x depth elements.

    Rows of as many bytes as the swizzle; 8 of them, then SBO bytes on; where the major dimension
    runs along rows, LBO bytes from one piece of a row to the next. The swizzle is of addresses.
    """
    start = (word & 0x3FFF) << 4
    leading, stride = (word >> 16 & 0x3FFF) << 4, (word >> 32 & 0x3FFF) << 4
    width = {1: 128, 2: 64, 3: 32}[word >> 62]
    i, k = np.mgrid[:major, :depth]
    if transposed:
        piece = width // size
        linear = i // piece * leading + i % piece * size + k // 8 * stride + k % 8 * width
    else:
        linear = i // 8 * stride + i % 8 * width + k * size
    return swizzle_address(start + linear, width)


def test_descriptors_walk_the_bytes_of_the_tile() -> None:
    count = 0
    for t, transposed in operands():
        word, offsets = fields(t, transposed)
        size = t.dtype.itemsize
        step = 32 // size
        major, depth = (t.cols, t.rows) if transposed else (t.rows, t.cols)
        assert len(offsets) * step == depth
        tile = SharedTile(t.rows, t.cols, size, t.swizzle)
        for base in (0, (MOST_SHARED - t.nbytes) // t.align * t.align):
            for s, offset in enumerate(offsets):
                assert (base + offset) % 16 == 0
                here = walked(word + ((base + offset) >> 4), major, step, size, transposed)
                i, k = np.mgrid[:major, s * step : (s + 1) * step]
                want = base + (tile.offset(k, i) if transposed else tile.offset(i, k))
                np.testing.assert_array_equal(here, want, f"{t} {transposed} step {s}")
                count += 1
    assert count > 5000


def test_the_headers_have_the_same_fields() -> None:
    """Boxes and descriptors are written twice, in Python for the host or this test, and in C++."""
    pytest.importorskip("cupy", reason="CuPy is not installed")
    lines = [
        "static_assert(sizeof(gl<bf16, 2, st<bf16, 64, 64>>) == 192 &&"
        " alignof(gl<bf16, 2, st<bf16, 64, 64>>) == 64);",
        "static_assert(sizeof(semaphore) == 8 && sizeof(semaphore[3][2]) == 48);",
    ]
    for t in tiles():
        d = tma.describe((1000, 1000), (1024, 1), t)
        pitch = t.rows * (t.swizzle or t.cols * t.dtype.itemsize)
        lines.append(
            f"static_assert(box<{t.cpp}>::COLS == {d.box[0]} && box<{t.cpp}>::ROWS == {d.box[1]} &&"
            f" box<{t.cpp}>::PITCH == {pitch} && box<{t.cpp}>::BYTES == {t.nbytes});"
        )
    for v in (T.sv(T.f32, 100), T.sv(T.bf16, 256), T.sv(T.i32, 4)):
        d = tma.describe((1000,), (1,), v)
        lines.append(
            f"static_assert(box<{v.cpp}>::COLS == {d.box[0]} && box<{v.cpp}>::BYTES == {v.nbytes});"
        )
    for t, transposed in operands():
        word, offsets = fields(t, transposed)
        x = f"operand<{t.cpp}, {str(transposed).lower()}>"
        last = len(offsets) - 1
        lines.append(
            f"static_assert({x}::FIELDS == {word}ull && {x}::STEPS == {last + 1} &&"
            f" {x}::offset({last}) == {offsets[-1]} && {x}::offset({last // 2}) =="
            f" {offsets[last // 2]});"
        )
    lines = [
        "#define TK_FP8",
        "#define TK_WGMMA",
        '#include "tk/tk.cuh"',
        "namespace tk {",
        "using namespace tma;",
        "using warpgroup::operand;",
        *lines,
        'extern "C" __global__ void sizes() {}',
        "}",
    ]
    cc.compile_source(Source([(None, t) for t in lines], "sizes", [None] * len(lines)), 90)
