"""Types of the kernel language: numbers, tiles, vectors, and where they live.

Frozen values, compared by content. They know their shapes, bytes and C++ spelling, and nothing of
how either machine stores them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from tklearn.lang.errors import SourceError


@dataclass(frozen=True)
class DType:
    """An element type. `kind` is f (float), i (signed), u (unsigned) or b (bool)."""

    name: str
    bits: int
    kind: str
    cpp: str

    @property
    def itemsize(self) -> int:
        return max(1, self.bits // 8)

    @property
    def short(self) -> str:
        """The suffix of the ThunderKittens-style aliases: bf, hf, fl."""
        return {"bf16": "bf", "f16": "hf", "f32": "fl"}.get(self.name, self.name)

    def __repr__(self) -> str:
        return "tk.bool_" if self.name == "bool" else f"tk.{self.name}"

    def __call__(self, *_: object) -> None:
        raise SourceError(
            "TK107",
            f"tk.{self.name}(x) converts a value inside a kernel",
            hint="outside a kernel use NumPy's astype",
        )


f32 = DType("f32", 32, "f", "float")
f16 = DType("f16", 16, "f", "f16")
bf16 = DType("bf16", 16, "f", "bf16")
e4m3 = DType("e4m3", 8, "f", "e4m3")
e5m2 = DType("e5m2", 8, "f", "e5m2")
i32 = DType("i32", 32, "i", "int")
u32 = DType("u32", 32, "u", "unsigned")
i64 = DType("i64", 64, "i", "long long")
u8 = DType("u8", 8, "u", "unsigned char")
bool_ = DType("bool", 8, "b", "bool")
DTYPES = {d.name: d for d in (f32, f16, bf16, e4m3, e5m2, i32, u32, i64, u8, bool_)}
TILE_DTYPES = (f32, f16, bf16, e4m3, e5m2)


@dataclass(frozen=True)
class Layout:
    """Which way round a register tile is spread over the lanes: tk.row or tk.col."""

    name: str

    def __repr__(self) -> str:
        return f"tk.{self.name}"


row, col = Layout("row"), Layout("col")


class Type:
    """Base of all types; `dtype` is the element type."""

    dtype: DType

    @property
    def cpp(self) -> str:
        raise NotImplementedError


@dataclass(frozen=True)
class Scalar(Type):
    """One value a lane."""

    dtype: DType

    @property
    def cpp(self) -> str:
        return self.dtype.cpp

    def __str__(self) -> str:
        return self.dtype.name


@dataclass(frozen=True)
class Vec(Type):
    """n neighbouring elements held by one lane (the value of tk.vec(x, n)[i])."""

    dtype: DType
    n: int

    @property
    def cpp(self) -> str:
        return f"vec<{self.dtype.cpp}, {self.n}>"

    def __str__(self) -> str:
        return f"vec({self.dtype.name}, {self.n})"


@dataclass(frozen=True)
class Regs(Type):
    """n registers a lane, indexed by compile-time numbers: tk.reg_array(T, n)."""

    dtype: DType
    n: int

    @property
    def cpp(self) -> str:
        return f"reg_array<{self.dtype.cpp}, {self.n}>"

    def __str__(self) -> str:
        return f"reg_array({self.dtype.name}, {self.n})"


@dataclass(frozen=True)
class GL(Type):
    """A global array of 1 to 4 dimensions; `ndim` is None until a launch fixes it."""

    dtype: DType
    ndim: int | None = None

    @property
    def cpp(self) -> str:
        return f"gl<{self.dtype.cpp}, {self.ndim or 2}>"

    def __str__(self) -> str:
        return f"gl_{self.dtype.short}"


@dataclass(frozen=True)
class RT(Type):
    """A register tile: rows x cols over the 32 lanes of one warp."""

    dtype: DType
    rows: int
    cols: int
    layout: Layout = row

    @property
    def cpp(self) -> str:
        tail = ", col" if self.layout is col or self.layout == col else ""
        return f"rt<{self.dtype.cpp}, {self.rows}, {self.cols}{tail}>"

    @property
    def regs_per_lane(self) -> int:
        """32-bit registers a lane."""
        return self.rows * self.cols // 32 * self.dtype.itemsize // 4

    @property
    def elements_per_lane(self) -> int:
        return self.rows * self.cols // 32

    def __str__(self) -> str:
        lay = ", col" if self.layout == col else ""
        return f"rt_{self.dtype.short}({self.rows}, {self.cols}{lay})"


@dataclass(frozen=True)
class RV(Type):
    """A register vector.

    kind "col" / "row": belongs to tiles of `layout`; "flat": spread over 32 lanes.
    """

    dtype: DType
    n: int
    kind: str = "flat"
    layout: Layout = row

    @property
    def cpp(self) -> str:
        if self.kind == "flat":
            return f"rv<{self.dtype.cpp}, {self.n}>"
        tail = ", col" if self.layout == col else ""
        return f"{self.kind}_vec<{self.dtype.cpp}, {self.n}{tail}>"

    @property
    def regs_per_lane(self) -> int:
        per = -(-self.n // 32)
        if self.kind != "flat":
            per = self.n // 8 if (self.kind == "col") == (self.layout == row) else self.n // 4
        return -(-per * self.dtype.itemsize // 4)

    def __str__(self) -> str:
        if self.kind == "flat":
            return f"rv({self.dtype.name}, {self.n})"
        lay = ", layout=col" if self.layout == col else ""
        return f"{self.kind}_vec({self.n}{lay})"


@dataclass(frozen=True)
class ST(Type):
    """A shared tile. `swizzle`: 0, 32, 64 or 128 bytes; `pad`: elements, only with swizzle 0."""

    dtype: DType
    rows: int
    cols: int
    swizzle: int = 128
    pad: int = 0

    @property
    def cpp(self) -> str:
        pad = f", {self.pad}" if self.pad else ""
        return f"st<{self.dtype.cpp}, {self.rows}, {self.cols}, {self.swizzle}{pad}>"

    @property
    def nbytes(self) -> int:
        return self.rows * (self.cols + self.pad) * self.dtype.itemsize

    @property
    def align(self) -> int:
        """FACTS: the swizzle works on absolute addresses, so bases are aligned to its period."""
        return {0: 128, 32: 256, 64: 512, 128: 1024}[self.swizzle]

    def __str__(self) -> str:
        return f"st_{self.dtype.short}({self.rows}, {self.cols})"


@dataclass(frozen=True)
class SubST(Type):
    """A rows x cols window of a shared tile, at a run-time tile coordinate."""

    parent: ST
    rows: int
    cols: int

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        return self.parent.dtype

    @property
    def cpp(self) -> str:
        return f"subtile<{self.rows}, {self.cols}>"

    def __str__(self) -> str:
        return f"st_{self.dtype.short}({self.rows}, {self.cols}) of {self.parent}"


@dataclass(frozen=True)
class SV(Type):
    """A shared vector of n elements."""

    dtype: DType
    n: int

    @property
    def cpp(self) -> str:
        return f"sv<{self.dtype.cpp}, {self.n}>"

    @property
    def nbytes(self) -> int:
        return self.n * self.dtype.itemsize

    @property
    def align(self) -> int:
        return 16

    def __str__(self) -> str:
        return f"sv_{self.dtype.short}({self.n})"


@dataclass(frozen=True)
class SArr(Type):
    """A shared array addressed by lanes: tk.shared_array(T, *dims), row-major."""

    dtype: DType
    dims: tuple[int, ...]

    @property
    def cpp(self) -> str:
        return f"arr<{self.dtype.cpp}, {', '.join(map(str, self.dims))}>"

    @property
    def nbytes(self) -> int:
        return prod(self.dims) * self.dtype.itemsize

    @property
    def align(self) -> int:
        return 16

    def __str__(self) -> str:
        return f"shared_array({self.dtype.name}, {', '.join(map(str, self.dims))})"


@dataclass(frozen=True)
class Semaphore(Type):
    """An mbarrier in shared memory: a reference that operations name, not a value."""

    dtype: DType = field(default=i64)
    nbytes: int = field(default=8, init=False)
    align: int = field(default=8, init=False)

    @property
    def cpp(self) -> str:
        return "semaphore"

    def __str__(self) -> str:
        return "semaphore"


@dataclass(frozen=True)
class Ring(Type):
    """A warp's place in a ring of n stages: `stage` 0 to n-1, and `phase` 0 or 1, the lap."""

    n: int
    dtype: DType = field(default=i32)

    @property
    def cpp(self) -> str:
        return f"ring<{self.n}>"

    def __str__(self) -> str:
        return f"ring({self.n})"


@dataclass(frozen=True)
class Shared(Type):
    """An array of shared tiles, vectors or semaphores: tk.shared(T, *dims); an index selects."""

    elem: ST | SV | Semaphore
    dims: tuple[int, ...]

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        return self.elem.dtype

    @property
    def stride(self) -> int:
        """Bytes from one element to the next."""
        return -(-self.elem.nbytes // self.elem.align) * self.elem.align

    @property
    def nbytes(self) -> int:
        return prod(self.dims) * self.stride

    @property
    def align(self) -> int:
        return self.elem.align

    @property
    def cpp(self) -> str:
        return self.elem.cpp + "".join(f"[{d}]" for d in self.dims)

    def __str__(self) -> str:
        return f"shared({self.elem}, {', '.join(map(str, self.dims))})"


@dataclass(frozen=True)
class Coord(Type):
    """The type of a coordinate tuple."""

    n: int
    dtype: DType = field(default=i32)

    @property
    def cpp(self) -> str:
        return "coord"

    def __str__(self) -> str:
        return f"a coordinate of {self.n}"


@dataclass(frozen=True)
class ConstType(Type):
    """Annotation of a compile-time parameter: tk.const."""

    dtype: DType = i32


I32, F32, BOOL, U32, I64 = Scalar(i32), Scalar(f32), Scalar(bool_), Scalar(u32), Scalar(i64)
const = ConstType()
MemType = (GL, ST, SubST, SV, SArr)
TileType = (RT, RV)
REF_TYPES = (GL, ST, SubST, SV, SArr, Shared, Semaphore)
semaphore = Semaphore()


def _bad(msg: str, hint: str = "") -> SourceError:
    return SourceError("TK201", msg, hint=hint)


def _dtype(d: object, allowed: tuple[DType, ...] | None = None) -> DType:
    if not isinstance(d, DType):
        raise _bad(f"{d!r} is not a dtype", "write tk.f32, tk.bf16, tk.f16, ...")
    if allowed and d not in allowed:
        raise _bad(
            f"tk.{d.name} is not possible here", "possible: " + ", ".join(map(repr, allowed))
        )
    return d


def _size(n: object, of: int, what: str) -> int:
    if isinstance(n, bool) or not isinstance(n, int) or n <= 0 or n % of:
        raise _bad(
            f"{what} is {n!r}",
            f"it must be a positive multiple of {of}"
            if of > 1
            else "it must be a positive whole number",
        )
    return n


def gl(dtype: DType) -> GL:
    """Annotation of a global array of `dtype`, 1 to 4 dimensions, unit stride in the last."""
    return GL(_dtype(dtype))


def rt(dtype: DType, rows: int, cols: int, layout: Layout = row) -> RT:
    """A register tile of one warp: rows and cols are multiples of 16."""
    if not isinstance(layout, Layout):
        raise _bad(f"{layout!r} is not a layout", "write tk.row or tk.col")
    _dtype(dtype, TILE_DTYPES)
    return RT(
        dtype,
        _size(rows, 16, "the number of rows of a register tile"),
        _size(cols, 16, "the number of columns of a register tile"),
        layout,
    )


def st(dtype: DType, rows: int, cols: int, swizzle: int | None = None, pad: int = 0) -> ST:
    """A shared tile; swizzle in bytes (default: the widest that fits), or padding in elements."""
    _dtype(dtype, TILE_DTYPES)
    _size(rows, 16, "the number of rows of a shared tile")
    _size(cols, 16, "the number of columns of a shared tile")
    if isinstance(pad, bool) or not isinstance(pad, int) or pad < 0:
        raise _bad(f"pad is {pad!r}", "a number of elements, 0 or more")
    if swizzle is None:
        swizzle = 0 if pad else default_swizzle(dtype.itemsize, cols)
    if swizzle not in (0, 32, 64, 128):
        raise _bad(f"swizzle is {swizzle!r}", "0, 32, 64 or 128 bytes")
    if swizzle and pad:
        raise _bad("a shared tile is either swizzled or padded", "write swizzle=0 with pad")
    if swizzle and cols * dtype.itemsize % swizzle:
        raise _bad(
            f"rows of {cols * dtype.itemsize} bytes do not divide into {swizzle}-byte swizzles",
            "take a smaller swizzle",
        )
    return ST(dtype, rows, cols, swizzle, pad)


def default_swizzle(itemsize: int, cols: int) -> int:
    """FACTS.md 3: the widest swizzle whose column blocks divide the row, at least 32 bytes."""
    for width in (128, 64):
        if cols * itemsize % width == 0:
            return width
    return 32 if cols * itemsize % 32 == 0 else 0


def rv(dtype: DType, n: int) -> RV:
    """A register vector of n elements spread over the 32 lanes of a warp, for row-wise kernels."""
    return RV(_dtype(dtype, TILE_DTYPES), _size(n, 1, "the length of a register vector"))


def col_vec(n: int, dtype: DType = f32, layout: Layout = row) -> RV:
    """One value per row of tiles of `layout`: n rows."""
    return RV(
        _dtype(dtype, TILE_DTYPES), _size(n, 16, "the length of a column vector"), "col", layout
    )


def row_vec(n: int, dtype: DType = f32, layout: Layout = row) -> RV:
    """One value per column of tiles of `layout`: n columns."""
    return RV(_dtype(dtype, TILE_DTYPES), _size(n, 16, "the length of a row vector"), "row", layout)


def sv(dtype: DType, n: int) -> SV:
    """A shared vector of n elements."""
    return SV(_dtype(dtype), _size(n, 1, "the length of a shared vector"))


def reg_array(dtype: DType, n: int) -> Regs:
    """n registers a lane, indexed by compile-time numbers."""
    return Regs(_dtype(dtype, (f32, f16, bf16, i32, u32)), _size(n, 1, "the length"))


def ring(n: int) -> Ring:
    """A warp's place in a ring of n stages: r.stage, r.phase (0 or 1), r.advance()."""
    return Ring(_size(n, 1, "the number of stages"))


gl_bf, gl_hf, gl_fl = GL(bf16), GL(f16), GL(f32)


def rt_bf(rows: int, cols: int, layout: Layout = row) -> RT:
    """rt(tk.bf16, ...)."""
    return rt(bf16, rows, cols, layout)


def rt_hf(rows: int, cols: int, layout: Layout = row) -> RT:
    """rt(tk.f16, ...)."""
    return rt(f16, rows, cols, layout)


def rt_fl(rows: int, cols: int, layout: Layout = row) -> RT:
    """rt(tk.f32, ...)."""
    return rt(f32, rows, cols, layout)


def st_bf(rows: int, cols: int, swizzle: int | None = None, pad: int = 0) -> ST:
    """st(tk.bf16, ...)."""
    return st(bf16, rows, cols, swizzle, pad)


def st_hf(rows: int, cols: int, swizzle: int | None = None, pad: int = 0) -> ST:
    """st(tk.f16, ...)."""
    return st(f16, rows, cols, swizzle, pad)


def st_fl(rows: int, cols: int, swizzle: int | None = None, pad: int = 0) -> ST:
    """st(tk.f32, ...)."""
    return st(f32, rows, cols, swizzle, pad)


TYPE_MAKERS = (
    gl,
    rt,
    st,
    rv,
    col_vec,
    row_vec,
    sv,
    reg_array,
    ring,
    rt_bf,
    rt_hf,
    rt_fl,
    st_bf,
    st_hf,
    st_fl,
)
