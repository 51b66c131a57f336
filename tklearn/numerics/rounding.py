"""Rounding to storage types, the fused multiply-add and reductions, on float32 arrays.

The simulator keeps narrow values decoded: a bf16 array is a float32 array whose values are all
bf16. `round_to` puts values on a narrow type's grid, `encode` and `decode` change to and from the
bits in memory, `fma32` is the fused multiply-add, `fold_sum` and its fellows add in the order of
the header library's reductions.

Type names are the language's: f32 f16 bf16 e4m3 e5m2, and tf32 for tensor-core inputs. This file
imports NumPy and ml_dtypes, and knows no tile, lane or machine.

The conversions modelled are cvt.rn.bf16.f32, cvt.rn.f16.f32 and cvt.rn.satfinite.e4m3x2.f32 (and
e5m2x2): to nearest even, subnormals kept. f16 and bf16 overflow to infinity; fp8 saturates, also
from infinity. A NaN stays a NaN; in memory it is the type's canonical one (0x7fff or 0x7f).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike, NDArray

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]

STORAGE: dict[str, np.dtype[Any]] = {
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "tf32": np.dtype(np.float32),
}
"""Type name -> the NumPy dtype that memory holds."""

_BLOCK = 1 << 14  # elements: a block and its temporaries stay in the first two cache levels


class _Format(NamedTuple):
    mantissa: int
    bias: int
    largest: float
    saturates: bool


_FORMATS = {
    "f16": _Format(10, 15, 65504.0, False),
    "e4m3": _Format(3, 7, 448.0, True),
    "e5m2": _Format(2, 15, 57344.0, True),
}


# ------------------------------------------------------------------------------------ rounding
def round_to(x: ArrayLike, dtype: str, out: F32 | None = None) -> F32:
    """x (float32, any shape) rounded to `dtype`, as float32; into `out` if given (it may be x).

    bf16, f16, e4m3, e5m2: as the GPU's cvt, see above. tf32: to the nearest with 10 bits of
    significand, ties away from zero, as cvt.rna.tf32.f32, which the headers issue before a tf32
    product (the tensor core itself would ignore the low 13 bits). f32: a copy.
    """
    if dtype not in _ROUND:
        raise ValueError(f"no rounding to {dtype!r}; known: {', '.join(_ROUND)}")
    src = np.asarray(x, np.float32)
    if out is None:
        out = np.empty(src.shape, np.float32)
    elif out.shape != src.shape or out.dtype != np.float32:
        raise ValueError(f"out is {out.dtype} {out.shape}, not float32 {src.shape}")
    func = _ROUND[dtype]
    if not src.ndim:
        func(src.reshape(1), out.reshape(1))
    elif src.size > _BLOCK and src.flags.c_contiguous and out.flags.c_contiguous:
        a, b = src.reshape(-1), out.reshape(-1)
        for i in range(0, a.size, _BLOCK):
            func(a[i : i + _BLOCK], b[i : i + _BLOCK])
    elif src.size:
        func(src, out)
    return out


def _round_bf16(x: F32, out: F32) -> None:
    with np.errstate(invalid="ignore"):  # a signalling NaN
        np.copyto(out, x.astype(STORAGE["bf16"]), casting="unsafe")


def _round_tf32(x: F32, out: F32) -> None:
    bits = x.view(np.uint32)
    finite = (bits & np.uint32(0x7F800000)) != np.uint32(0x7F800000)
    rounded = bits + np.where(finite, np.uint32(0x1000), np.uint32(0))
    np.bitwise_and(rounded, np.uint32(0xFFFFE000), out=out.view(np.uint32))


def _grid(fmt: _Format) -> Callable[[F32, F32], None]:
    """Rounding to a format with `fmt.mantissa` bits below the leading one, by float32's own.

    Adding 1.5 * 2**(23 - mantissa) times the value's power of two leaves that many bits; taking it
    away again is exact. In the subnormal range the power stays that of the least exponent.
    """
    step = np.float32(1.5 * 2.0 ** (23 - fmt.mantissa))
    least = np.float32(2.0 ** (1 - fmt.bias))
    largest = np.float32(fmt.largest)

    def rounded(x: F32, out: F32) -> None:
        if not (x.max() <= largest and x.min() >= -largest):  # also if there is a NaN
            if not fmt.saturates:
                with np.errstate(over="ignore", invalid="ignore"):
                    np.copyto(out, x.astype(np.float16))
                return
            x = np.clip(x, -largest, largest)
        bits = x.view(np.uint32)
        power = (bits & np.uint32(0x7F800000)).view(np.float32)
        sign = bits & np.uint32(0x80000000)
        np.maximum(power, least, out=power)
        power *= step
        with np.errstate(invalid="ignore"):
            np.add(x, power, out=out)
        out -= power
        out_bits = out.view(np.uint32)
        out_bits |= sign  # a negative number that rounds to zero gives -0

    return rounded


_ROUND: dict[str, Callable[[F32, F32], None]] = {
    "f32": lambda x, out: np.copyto(out, x),
    "bf16": _round_bf16,
    "tf32": _round_tf32,
    **{name: _grid(fmt) for name, fmt in _FORMATS.items()},
}


# ---------------------------------------------------------------------------- bits in memory
_FP8_VALUES: dict[np.dtype[Any], F32] = {
    STORAGE[name]: np.arange(256, dtype=np.uint8).view(STORAGE[name]).astype(np.float32)
    for name in ("e4m3", "e5m2")
}


def decode(x: NDArray[Any]) -> F32:
    """The exact float32 values of an array of f32, f16, bf16, e4m3 or e5m2 (any shape).

    A float32 array is returned as it is, not copied.
    """
    if x.dtype == np.float32:
        return x
    if x.dtype in (np.float16, STORAGE["bf16"]):
        return x.astype(np.float32)
    if x.dtype in _FP8_VALUES:
        return _FP8_VALUES[x.dtype].take(x.view(np.uint8))
    raise ValueError(f"cannot decode {x.dtype}; known: f32, f16, bf16, e4m3, e5m2")


def encode(x: ArrayLike, dtype: str) -> NDArray[Any]:
    """x (float32, any shape) rounded to `dtype` as `round_to` does, in that type's own dtype."""
    src = np.asarray(x, np.float32)
    if dtype in ("bf16", "f16"):
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            stored = src.astype(STORAGE[dtype])
        canonical = 0x7FFF
    elif dtype in _FORMATS:
        stored = np.empty(src.shape, STORAGE[dtype])
        rounded = np.ascontiguousarray(round_to(src, dtype)).reshape(-1)
        code = stored.reshape(-1).view(np.uint8)
        for i in range(0, code.size, _BLOCK):
            _pack(rounded[i : i + _BLOCK], _FORMATS[dtype], code[i : i + _BLOCK])
        canonical = 0x7F
    else:
        return round_to(src, dtype)
    if src.size and np.isnan(src.max()):
        word = stored.view(np.uint16 if stored.itemsize == 2 else np.uint8)
        word[np.isnan(src)] = canonical
    return stored


def _pack(x: F32, fmt: _Format, code: NDArray[np.uint8]) -> None:
    """The fp8 bits of values on the format's grid; a NaN's are meaningless.

    Scaling by 2**(bias - 127) gives float32 the format's exponent field, and its subnormals.
    """
    with np.errstate(under="ignore"):
        bits = (x * np.float32(2.0 ** (fmt.bias - 127))).view(np.uint32)
    sign = bits >> np.uint32(24)
    sign &= np.uint32(0x80)
    bits >>= np.uint32(23 - fmt.mantissa)
    bits &= np.uint32(0x7F)
    bits |= sign
    np.copyto(code, bits, casting="unsafe")


# ------------------------------------------------------------------------ fused multiply-add
def fma32(a: ArrayLike, b: ArrayLike, c: ArrayLike, out: F32 | None = None) -> F32:
    """a * b + c rounded once to float32, to nearest even, subnormals kept: CUDA's fmaf.

    a, b, c: float32, broadcast against each other. Returns float32 of the common shape; a NaN's
    payload is not the GPU's.

    The product is exact in float64. Rounding the float64 sum to float32 rounds twice, which goes
    wrong only if the sum, by its own rounding, lies halfway between two float32 values. There it is
    first moved to the odd neighbour on the side of the error (Boldo and Melquiond, "Emulation of
    FMA and correctly rounded sums", IEEE TC 2008); that needs 2 * 24 + 2 <= 53 bits.
    """
    arrays = [np.asarray(v, np.float32) for v in (a, b, c)]
    shape = np.broadcast(*arrays).shape
    if out is None:
        out = np.empty(shape, np.float32)
    elif out.shape != shape or out.dtype != np.float32:
        raise ValueError(f"out is {out.dtype} {out.shape}, not float32 {shape}")
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        if out.ndim:
            _fma(arrays, out)
        else:
            _fma([v.reshape(1) for v in arrays], out.reshape(1))
    return out


def _fma(arrays: list[F32], out: F32) -> None:
    if out.size > _BLOCK and out.ndim > 1 and len(out) == 1:
        _fma([v[0] if v.ndim == out.ndim else v for v in arrays], out[0])
    elif out.size > _BLOCK:  # block by block along the first axis; what has none broadcasts
        step = max(1, len(out) * _BLOCK // out.size)
        whole = [v.ndim < out.ndim or len(v) == 1 for v in arrays]
        for i in range(0, len(out), step):
            part = [v if w else v[i : i + step] for v, w in zip(arrays, whole, strict=True)]
            _fma(part, out[i : i + step])
    elif out.size:
        _fma_block(arrays, out)


_memory = threading.local()


def _scratch() -> tuple[F64, F64, F64]:
    """Room for a block, kept: making it anew takes longer than computing in it."""
    if not hasattr(_memory, "blocks"):
        _memory.blocks = tuple(np.empty(_BLOCK, np.float64) for _ in range(3))
    return _memory.blocks


def _has_subnormals(x: F32, exact: F64) -> bool:
    """Whether x holds a subnormal, the least normal number, or a zero that stands for `exact` != 0.

    Zeros that are exact are common (a row less its maximum) and need no look.
    """
    bits = x.view(np.uint32) << np.uint32(1)  # without the sign
    bits -= np.uint32(1)  # a zero becomes the largest
    if bits.min() < np.uint32(0x01000000):
        return True
    zeros = np.count_nonzero(x == 0)  # of a mask: several times as fast as of the numbers
    return bool(zeros and zeros != np.count_nonzero(exact == 0))


def _fma_block(arrays: list[F32], out: F32) -> None:
    a, b, c = arrays
    p, s, low = (x[: out.size].reshape(out.shape) for x in _scratch())
    np.copyto(p, a)
    p *= b if b.size == 1 else b.astype(np.float64)
    np.copyto(s, c)
    s += p
    np.copyto(out, s, casting="same_kind")
    bits = s.view(np.int64)
    # Halfway between two normal float32 values, the low 29 bits are 1000...; subnormals have other
    # halves, so that each is looked at. Both are rare, and least values find them fastest.
    low = np.left_shift(bits, np.int64(35), out=low.view(np.int64))
    halves = int(low.min()) == -(1 << 63)
    if _has_subnormals(out, s):
        tie = ((bits & 0x1FFFFFFF) == 0x10000000) | (np.abs(out) <= np.float32(2.0**-126))
    elif halves:
        tie = (bits & 0x1FFFFFFF) == 0x10000000
    else:
        return
    at = np.flatnonzero(tie)
    c64 = np.broadcast_to(c, out.shape)[np.unravel_index(at, out.shape)].astype(np.float64)
    s, p = s.reshape(-1)[at], p.reshape(-1)[at]
    q = s - p
    err = (p - (s - q)) + (c64 - q)  # TwoSum: p + c = s + err exactly; 0 where s is 0
    move = np.flatnonzero(err)  # false for most: short operands often give an exact half
    if move.size:
        s, err, at = s[move], err[move], at[move]
        bits = s.view(np.int64)
        away = np.where((err > 0) == (s > 0), 1, -1)  # from zero, or towards it
        bits += np.where(bits & 1, 0, away)
        out[np.unravel_index(at, out.shape)] = s.astype(np.float32)


# ------------------------------------------------------------------------------- reductions
def fold_sum(x: F32, axis: int = -1, group: int = 1) -> F32:
    """Sum along an axis in the header library's order, in float32; the axis goes away.

    With n elements: while n > 1: h = (n + 1) // 2; x[:n-h] += x[h:n]; n = h. With group > 1 (a
    power of two) that is done to whole groups of neighbours first, and then inside the one left, as
    if it were full; a last group that is not full is as if filled with nothing. For n a power of
    two it makes no difference. Inside a group of 32, this is what lanes do by xor shuffles of 16,
    8, 4, 2, 1.

    The headers (`reductions.cuh`) use group = 8 along a tile's rows or columns and for a tile's
    vectors, 32 * `rv_width` for flat vectors. x is not changed. An empty axis sums to 0.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(_fold(x, axis, group))


def fold_max(x: F32, axis: int = -1) -> F32:
    """Largest element along an axis by CUDA's fmaxf: a NaN loses to a number, and -0 < +0.

    An empty axis gives -inf. The order of the reduction makes no difference.
    """
    return _extreme(x, axis, np.fmax, np.float32(-np.inf), 0)


def fold_min(x: F32, axis: int = -1) -> F32:
    """Smallest element along an axis by CUDA's fminf: a NaN loses to a number, and -0 < +0."""
    return _extreme(x, axis, np.fmin, np.float32(np.inf), 0x80000000)


def _half(n: int, group: int) -> int:
    """How many of n > 1 elements are left after one step of the fold."""
    if n > group:
        return -(-n // (2 * group)) * group
    return 1 << ((n - 1).bit_length() - 1)


def _fold(x: F32, axis: int, group: int) -> F32:
    x = np.asarray(x, np.float32)
    n = x.shape[axis]
    if n == 0:
        return np.zeros(np.delete(x.shape, axis), np.float32)
    if x.ndim > 1 and axis in (-1, x.ndim - 1) and x.flags.c_contiguous and n > 1:
        return _fold_last(x.reshape(-1, n), group).reshape(x.shape[:-1])
    rows = x if axis == 0 else np.moveaxis(x, axis, 0)
    return _fold_first(rows, group) if n > 1 else rows[0].copy()


def _fold_first(rows: F32, group: int) -> F32:
    """Fold axis 0 of an array of at least two rows, which stays as it is."""
    n = len(rows)
    h = _half(n, group)
    buf = np.empty((h, *rows.shape[1:]), np.float32)
    np.add(rows[: n - h], rows[h:], out=buf[: n - h])
    buf[n - h :] = rows[n - h : h]
    while (n := h) > 1:
        h = _half(n, group)
        buf[: n - h] += buf[h:n]
    return buf[0]


def _fold_last(x: F32, group: int) -> F32:
    """Fold axis 1 of a contiguous [m, n]: long rows as they lie, short ones transposed.

    Transposed, each step is one long addition. Four neighbours move together, as one 16-byte item:
    that is several times faster than element by element.
    """
    m, n = x.shape
    while n > 256:
        h = _half(n, group)
        buf = np.empty((m, h), np.float32)
        np.add(x[:, : n - h], x[:, h:], out=buf[:, : n - h])
        buf[:, n - h :] = x[:, n - h : h]
        x, n = buf, h
    step = max(64, 2 * _BLOCK // n)
    if m <= step:
        return _fold_short(x, group)
    out = np.empty(m, np.float32)
    for i in range(0, m, step):
        out[i : i + step] = _fold_short(x[i : i + step], group)
    return out


def _fold_short(x: F32, group: int) -> F32:
    m, n = x.shape
    if n == 1:
        return x[:, 0].copy()
    if n % 4:
        return _fold_first(np.ascontiguousarray(x.T), group)
    fours = x.view(np.complex128).T.copy().view(np.float32).reshape(-1, m, 4)
    while n > 4:
        h = _half(n, group)
        if h % 4:  # the rest does not keep to fours
            rest = fours[: n // 4].transpose(0, 2, 1).reshape(n, m)
            return _fold_first(rest, group)
        fours[: (n - h) // 4] += fours[h // 4 : n // 4]
        n = h
    four = fours[0]
    return (four[:, 0] + four[:, 2]) + (four[:, 1] + four[:, 3])


def _extreme(x: F32, axis: int, op: np.ufunc, empty: np.float32, zero: int) -> F32:
    x = np.asarray(x, np.float32)
    out = op.reduce(x, axis=axis, initial=empty) if x.shape[axis] == 0 else op.reduce(x, axis=axis)
    out = np.asarray(out, np.float32)
    if not out.all():  # a zero: its sign is that of the better zero among the elements
        better = (x.view(np.uint32) == zero).any(axis=axis)
        out = np.where((out == 0) & better, np.uint32(zero).view(np.float32), out)
    return out
