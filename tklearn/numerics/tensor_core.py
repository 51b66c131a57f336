"""The bits of a tensor core: `dot` for rows, `product` for matrices, `mma_sync` for instructions.

A tensor core does not round like float32 or float64. It takes `block` products and the accumulator
c at a time (the table `CORES`) and, for each block:

    products exact; E = the largest exponent of the products and of c (exponents added, significands
    not renormalised); a product that is zero, and a zero c, take no part; E has a floor
    each product and c: magnitude cut toward zero to F fractional bits below 2**E; added exactly
    rounded once: to float32 toward zero, to float16 to nearest even; subnormals kept; +0 for zero

Source: FACTS.md 7: measured by Khattak and Mikaitis on A100 and H200, and again on an H200 for the
floor, zeros and subnormals (-133 for float32 results, -21 for float16). `benchmarks/probes/
tensor_bits.py` compared 4,718,592 dot products of an H200's mma.sync, infinities, NaN and overflow
included (tests/data/h200_tensor_bits.npz); it does not ask wgmma. The order of products inside a
block makes no difference; which products share a block does.

Two ways give the same bits: float32 products (products of narrow numbers fit), cut by conversion to
integers, for matrices whose exponents leave room; float64 for everything else. This file knows
numbers and matrices, not tiles or who holds them.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tklearn.numerics.rounding import F32, round_to

F64 = NDArray[np.float64]
Term = tuple[Any, Any]  # products in float64 and their exponents, for one k


class Core(NamedTuple):
    """Products added at once, fractional bits kept below 2**E, significand bits of a f32 result."""

    block: int
    fraction: int
    mantissa: int = 23


_TURING, _AMPERE, _HOPPER = Core(8, 24), Core(8, 24), Core(16, 25)
CORES: dict[str, dict[str, Core]] = {
    "volta": {"fp16": Core(4, 23)},
    "turing": {"fp16": _TURING},
    "ampere": {"fp16": _AMPERE, "bf16": _AMPERE, "tf32": Core(4, 24)},
    "ada": {
        "fp16": _AMPERE,
        "bf16": _AMPERE,
        "tf32": Core(4, 24),
        "e4m3": Core(16, 13, 13),
        "e5m2": Core(16, 13, 13),
    },
    "hopper": {
        "fp16": _HOPPER,
        "bf16": _HOPPER,
        "tf32": Core(8, 25),
        "e4m3": Core(32, 13, 13),  # wgmma; mma.sync is done by float16 products: see mma_sync
        "e5m2": Core(32, 13, 13),
    },
}
"""Architecture -> input format -> how its tensor core adds (FACTS.md 7)."""

_LEAST = {"fp16": -14, "bf16": -126, "tf32": -126, "e4m3": -6, "e5m2": -14, "fp32": -126}
_FLOOR = {"fp32": -133, "fp16": -21}  # of E, by the result's type
_ALIAS = {"f16": "fp16", "f32": "fp32"}
_NOTHING = -4000  # the exponent of zero: never the largest
_NAN = np.uint32(0x7FFFFFFF).view(np.float32)  # the tensor core's only NaN
_CELLS = 1 << 15  # elements of a result worked on at once: they stay in the second cache level


def dot(
    a: ArrayLike,
    b: ArrayLike,
    c: ArrayLike,
    *,
    dtype: str,
    arch: str = "hopper",
    out: str = "fp32",
) -> F32:
    """c[i] + sum over k of a[i, k] * b[i, k], with the bits of `arch`'s tensor core.

    a, b: (n, K) float32 holding values of `dtype` (fp16 bf16 tf32 e4m3 e5m2); c: (n,) float32,
    rounded to float16 first if out is "fp16". Returns (n,) float32. K may be any number: it is cut
    into the core's blocks, in order. fp8 on Hopper is what wgmma does; for mma.sync see `mma_sync`.
    Errors: ValueError for what the architecture does not have.
    """
    core, dtype, out = _core(dtype, arch, out)
    x, y, acc = (np.asarray(v, np.float32) for v in (a, b, c))
    acc = round_to(acc, "f16") if out == "fp16" else acc
    if x.ndim != 2 or x.shape != y.shape or acc.shape != x.shape[:1]:
        raise ValueError(f"dot takes (n, K), (n, K), (n,), not {x.shape}, {y.shape}, {acc.shape}")
    with np.errstate(all="ignore"):
        p, q = _split(x.T, _LEAST[dtype]), _split(y.T, _LEAST[dtype])
        terms = ((p[0][k] * q[0][k], p[1][k] + q[1][k]) for k in range(x.shape[1]))
        return _finish(_blocks(terms, acc.astype(np.float64), core, out))


def product(
    a: ArrayLike,
    b: ArrayLike,
    c: ArrayLike,
    *,
    dtype: str,
    arch: str = "hopper",
    out: str = "fp32",
    engine: str = "auto",
) -> F32:
    """a @ b + c with the bits of `arch`'s tensor core; leading axes broadcast as in np.matmul.

    a: (..., M, K), b: (..., K, N), c: (..., M, N) or what broadcasts to it; values as for `dot`.
    Returns (..., M, N) float32. engine: "numpy", "numba" (which must be installed) or "auto": numba
    for large products where it is installed. All give the same bits. Errors: ValueError for what
    the architecture does not have or shapes that do not fit, ImportError without numba.
    """
    core, dtype, out = _core(dtype, arch, out)
    x, y, acc = (np.asarray(v, np.float32) for v in (a, b, c))
    if x.ndim < 2 or y.ndim < 2 or x.shape[-1] != y.shape[-2]:
        raise ValueError(f"shapes {x.shape} and {y.shape} have no product")
    m, depth, n = *x.shape[-2:], y.shape[-1]
    acc = round_to(acc, "f16") if out == "fp16" else acc
    lead = np.broadcast_shapes(x.shape[:-2], y.shape[:-2], acc.shape[:-2])
    d = np.array(np.broadcast_to(acc, (*lead, m, n)), np.float32)  # ours: becomes the result
    if not d.size or not depth:
        return _canonical(d)
    x, y = (_batched(v, lead) for v in (x, y))
    with np.errstate(all="ignore"):
        cells = d.reshape(-1, m, n)
        ea, eb = _exponents(x, _LEAST[dtype]), _exponents(y, _LEAST[dtype])
        of_c = _span(cells)
        if not _leaves_room(ea, eb, of_c, depth):
            _strips(x, y, cells, _float64_work(x, y, dtype, core, out))
        elif _use_numba(engine, d.size * depth) and out == "fp32" and core.mantissa == 23:
            _by_numba(x, y, cells, ea, eb, core)
        else:
            _strips(x, y, cells, _float32_work(x, y, of_c, ea, eb, dtype, core, out))
    return d


def mma_sync(
    a: ArrayLike, b: ArrayLike, c: ArrayLike, *, dtype: str, arch: str = "hopper", out: str = "fp32"
) -> F32:
    """a @ b + c as the mma.sync instructions of `arch` compute it, k in the instruction's order.

    As `product`, except for fp8 on Hopper, whose mma.sync m16n8k32 is two float16 instructions and
    an addition: first the k with k % 4 in (0, 1), on a zero accumulator, then those with k % 4 in
    (2, 3), then c is added in float32 to nearest (read in the machine code that ptxas makes for
    sm_90). K is then a multiple of 32.
    """
    if arch != "hopper" or dtype not in ("e4m3", "e5m2"):
        return product(a, b, c, dtype=dtype, arch=arch, out=out)
    if out not in ("fp32", "f32"):
        raise ValueError(f"the result of {dtype} products is fp32, not {out}")
    x, y = np.asarray(a, np.float32), np.asarray(b, np.float32)
    d = np.asarray(c, np.float32)
    if x.shape[-1] % 32:
        raise ValueError(f"K is {x.shape[-1]}, not a multiple of 32")
    low = np.flatnonzero(np.arange(32) % 4 < 2)
    for k in range(0, x.shape[-1], 32):
        part: Any = np.zeros((1, 1), np.float32)
        for half in (k + low, k + low + 2):
            part = product(x[..., half], y[..., half, :], part, dtype="fp16", arch=arch)
        with np.errstate(all="ignore"):
            d = d + part
    return _canonical(np.array(d))


def _core(dtype: str, arch: str, out: str) -> tuple[Core, str, str]:
    dtype, out = _ALIAS.get(dtype, dtype), _ALIAS.get(out, out)
    if arch not in CORES:
        raise ValueError(f"no architecture {arch!r}; known: {', '.join(CORES)}")
    if dtype not in CORES[arch]:
        raise ValueError(f"{arch} has no {dtype!r} products; it has: {', '.join(CORES[arch])}")
    if out not in _FLOOR or (out == "fp16" and dtype not in ("fp16", "e4m3", "e5m2")):
        raise ValueError(f"no {out!r} result of {dtype} products; fp32, or fp16 of fp16 and fp8")
    return CORES[arch][dtype], dtype, out


def _batched(x: F32, lead: tuple[int, ...]) -> F32:
    """(batch or 1, rows, columns)."""
    if all(s == 1 for s in x.shape[:-2]):
        return x.reshape(1, *x.shape[-2:])
    return np.broadcast_to(x, (*lead, *x.shape[-2:])).reshape(-1, *x.shape[-2:])


def _canonical(d: F32) -> F32:
    if d.size and np.isnan(d.max()):
        d[np.isnan(d)] = _NAN
    return d


# ----------------------------------------------------------------- float64: every kind of number
def _split(x: F32, least: int) -> tuple[F64, NDArray[np.int32]]:
    """Values in float64, and exponents: not below the format's least, `_NOTHING` for zero."""
    return x.astype(np.float64), _exponents(x, least).astype(np.int32)


def _exponents(x: F32, least: int) -> NDArray[np.int16]:
    """Unbiased exponents as int16; 128 for infinity and NaN."""
    e = (np.ascontiguousarray(x).view(np.int32) >> 23).astype(np.int16)
    e &= 255
    e -= 127
    np.maximum(e, least, out=e)
    e[x == 0] = _NOTHING
    return e


def _blocks(terms: Iterable[Term], acc: F64, core: Core, out: str) -> F64:
    """Add the terms to acc, `core.block` at a time. Values of float32 or float16, in float64."""
    block: list[Term] = []
    for term in terms:
        block.append(term)
        if len(block) == core.block:
            acc = _add_block(block, acc, core, out)
            block = []
    return _add_block(block, acc, core, out) if block else acc


def _add_block(block: list[Term], acc: F64, core: Core, out: str) -> F64:
    total = sum((p for p, _ in block), acc)  # only to see infinities and NaN
    special = ~np.isfinite(total)
    some = bool(special.any())
    if some:
        block = [(np.where(np.isfinite(p), p, 0.0), e) for p, e in block]
    exponent = np.frexp(acc)[1] - 1
    np.maximum(exponent, _LEAST[out], out=exponent)
    largest = np.where(acc == 0, _NOTHING, exponent)
    for _, e in block:
        largest = np.maximum(largest, e)
    shift = core.fraction - np.maximum(largest, _FLOOR[out])
    scale = np.ldexp(1.0, shift)
    kept = np.trunc(acc * scale)
    for p, _ in block:
        kept += np.trunc(p * scale)
    value = _rounded(np.ldexp(kept, -shift), core, out)
    return np.where(special, total, value) if some else value


def _rounded(v: F64, core: Core, out: str) -> F64:
    """v as a float32, toward zero, or a float16, to nearest even; overflow is infinity."""
    least, bits = _LEAST[out], 10 if out == "fp16" else core.mantissa
    exponent = np.maximum(np.frexp(v)[1] - 1, least)
    unit = np.ldexp(1.0, exponent - bits)
    r = (np.rint if out == "fp16" else np.trunc)(v / unit) * unit + 0.0  # -0 becomes +0
    limit = 65536.0 if out == "fp16" else 2.0**128
    return np.where(np.abs(r) >= limit, np.copysign(np.inf, r), r)


def _finish(acc: F64) -> F32:
    return _canonical(acc.astype(np.float32))


Work = Callable[[Any, Any, slice, F32], F32]
"""(matrices of x, matrices of y, rows, accumulators there) -> results there."""


def _float64_work(x: F32, y: F32, dtype: str, core: Core, out: str) -> Work:
    p, q = _split(x, _LEAST[dtype]), _split(y, _LEAST[dtype])

    def work(i: Any, j: Any, rows: slice, c: F32) -> F32:
        a, ea, b, eb = p[0][i, rows], p[1][i, rows], q[0][j], q[1][j]
        terms = (
            (a[:, :, k, None] * b[:, k, None], ea[:, :, k, None] + eb[:, k, None])
            for k in range(x.shape[2])
        )
        return _finish(_blocks(terms, c.astype(np.float64), core, out))

    return work


def _strips(x: F32, y: F32, cells: F32, work: Work) -> None:
    """cells[i, rows] = work(matrices of x, matrices of y, rows, cells[i, rows]), by pieces."""
    batch, m, n = cells.shape
    rows = max(1, min(m, _CELLS // n))
    step = max(1, _CELLS // (rows * n))
    for i in range(0, batch, step):
        every = slice(i, i + step)
        of_x, of_y = (every if len(v) > 1 else slice(0, 1) for v in (x, y))
        for r in range(0, m, rows):
            part = slice(r, r + rows)
            cells[every, part] = work(of_x, of_y, part, cells[every, part])


# ------------------------------------------------------------- float32: exponents that leave room
_LOW, _HIGH = -100, 120  # exponents that a product may have on this way


Span = tuple[int, int] | None


def _span(c: F32) -> Span:
    """Least and greatest exponent of the values that are not zero, if any. 128: infinite or NaN.

    From the bits: they order magnitudes, and zero less one is the largest number.
    """
    bits = c.view(np.uint32) & np.uint32(0x7FFFFFFF)
    high = int(bits.max())
    if not high:
        return None
    low = int((bits - np.uint32(1)).min()) + 1
    return max(low >> 23, 1) - 127, max(high >> 23, 1) - 127


def _leaves_room(ea: NDArray[Any], eb: NDArray[Any], of_c: Span, depth: int) -> bool:
    """Whether no product, sum or intermediate result can leave float32's normal range.

    A result is a multiple of 2**(E - 25), and E is at least the least exponent of a product or of
    c: with all of those at least -100, it is 0 or normal.
    """
    least, most = of_c or (0, 0)
    high = max(int(ea.max()) + int(eb.max()), most) + int(depth).bit_length()
    if high > _HIGH:  # also infinities and NaN
        return False
    return min(int(_no_zero(ea).min()) + int(_no_zero(eb).min()), least) >= _LOW


def _no_zero(e: NDArray[Any]) -> NDArray[Any]:
    return np.where(e == _NOTHING, np.int16(0), e)


def _float32_work(
    x: F32,
    y: F32,
    of_c: Span,
    ea: NDArray[Any],
    eb: NDArray[Any],
    dtype: str,
    core: Core,
    out: str,
) -> Work:
    """Scaled products cut by conversion to int32 (toward zero) and added there.

    A block of `core.block` products stays inside int32, without c: each is less than 4 * 2**E, and
    16 of less than 4 * 2**25 are less than 2**31. c is added in float64.
    """
    depth = x.shape[2]
    drop = np.int64(-1 << (52 - core.mantissa))
    ea, eb, base = _narrow_exponents(ea, eb, of_c, depth)
    powers = _powers(ea, eb, core.block)
    base -= powers is not None  # they give exponents that are one larger
    # Exponent fields of c are raised to what the result's type, the scale and int8 can hold; for a
    # zero c, to the floor of E.
    no_c = base + 1 + _NO_C if ea.dtype == np.int8 else _LOW
    lowest, of_zero = (np.uint8(max(e, _LOW, no_c) + 127) for e in (_LEAST[out], _FLOOR[out]))
    unsigned = np.dtype(f"u{ea.itemsize}").type
    wrap = 1 << 8 * ea.itemsize
    bias_c, bias = unsigned((127 + base) % wrap), unsigned((core.fraction + 127 - base) % wrap)
    pairs = _paired(x, y)

    def scales(c: F32, ks: slice, rows: slice, ae: Any, be: Any, t: F32, e: Any, into: F32) -> None:
        """into = 2**(F - E) of each cell. t, e: room for the work."""
        ti = t.view(np.int32)
        field = (c.view(np.int32) >> 23).astype(np.uint8)  # without the sign
        np.maximum(field, lowest, out=field)
        if of_zero < lowest:
            np.copyto(field, of_zero, where=c == 0)
        most = (field.astype(unsigned) - bias_c).view(ae.dtype)
        if powers is None:
            for k in range(ks.start, ks.stop):
                np.add(ae[:, :, k, None], be[:, k, None], out=e)
                np.maximum(most, e, out=most)
        else:
            of_a, of_b, step, zeros = powers
            np.dot(of_a[rows, ks], of_b[ks], out=t[0])
            none = t == 0 if zeros else None
            ti >>= 23
            top = ti.astype(np.uint8)
            top //= step
            if none is not None:
                np.copyto(top, np.uint8(256 - 64), where=none)
            np.maximum(most, top.view(np.int8), out=most)
        power = into.view(np.int32)
        np.copyto(power, bias - most.view(unsigned))
        power <<= 23

    def work(i: Any, j: Any, rows: slice, c: F32) -> F32:
        ae, be = ea[i, rows], eb[j]
        start, shape = c, c.shape
        two = (2, *shape)
        t, ti, sums = _aligned(two, np.float32), _aligned(two, np.int32), _aligned(shape, np.int32)
        c, scale = _aligned(shape, np.float32), _aligned(shape, np.float32)
        v, e = _aligned(shape, np.float64), np.empty(shape, ae.dtype)
        c[...] = start
        multiply = pairs(i, j, rows, t)
        for first in range(0, depth, core.block):
            last = min(first + core.block, depth)
            scales(c, slice(first, last), rows, ae, be, t[0], e, scale)
            for k in range(first, last, 2):
                multiply(k)
                t *= scale
                np.copyto(ti, t, casting="unsafe")
                if k == first:
                    np.add(ti[0], ti[1], out=sums)
                else:
                    sums += ti[0]
                    sums += ti[1]
            np.multiply(c, scale, out=t[0])
            np.trunc(t[0], out=t[0])
            np.copyto(v, sums)
            v += t[0]
            if out == "fp16":
                v /= scale
                np.copyto(c, v.astype(np.float16))
                c += 0  # -0 becomes +0
                if np.isinf(c).any():
                    return _float64_work(x, y, dtype, core, out)(i, j, rows, start)
            else:
                v.view(np.int64)[...] &= drop
                np.copyto(c, v, casting="same_kind")
                c /= scale
        return c

    return work


def _paired(x: F32, y: F32) -> Callable[..., Callable[[int], Any]]:
    """The products of two k at a time: (matrices of x, of y, rows, into) -> multiply(k).

    `multiply` fills into[0] and into[1]. For one pair of matrices by a matrix product of a column
    with zeros below and one with zeros above, which is faster than the ufunc. An odd last k gets a
    neighbour of zeros.
    """
    if x.shape[2] % 2:
        x, y = np.pad(x, ((0, 0), (0, 0), (0, 1))), np.pad(y, ((0, 0), (0, 1), (0, 0)))
    columns = x.transpose(2, 0, 1)

    def start(i: Any, j: Any, rows: slice, into: F32) -> Callable[[int], Any]:
        a, b = columns[:, i, rows], y[j]
        if not len(b) == a.shape[1] == 1:
            return lambda k: np.multiply(
                a[k : k + 2, ..., None], b[:, k : k + 2].swapaxes(0, 1)[:, :, None], out=into
            )
        parts = np.zeros((len(a) // 2, 2, a.shape[2], 2), np.float32)
        parts[:, 0, :, 0], parts[:, 1, :, 1] = a[0::2, 0], a[1::2, 0]
        apart: Any = parts.reshape(len(a) // 2, -1, 2)
        flat = into.reshape(apart.shape[1], -1)
        return lambda k: np.dot(apart[k // 2], b[0, k : k + 2], out=flat)

    return start


def _aligned(shape: tuple[int, ...], dtype: Any) -> Any:
    """np.empty on a 64-byte line, a sixth faster with 64-byte registers."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    raw = np.empty(size + 64, np.uint8)
    at = -raw.ctypes.data % 64
    return raw[at : at + size].view(dtype).reshape(shape)


def _powers(
    ea: NDArray[Any], eb: NDArray[Any], block: int
) -> tuple[F32, F32, np.uint8, bool] | None:
    """To find the largest sums of exponents by a matrix product: for int8 ones of two matrices.

    A sum of `block` terms 2**(s * e), 2**s > block, is in [2**(s * top), 2**(s * top + s)): with
    2**(s - 127) for e = 0, its exponent field over s is top + 1. Returns both factors' powers (0
    for zero), s, and whether there are zeros; None if float32 cannot hold all.
    """
    s = block.bit_length()
    if len(ea) + len(eb) > 2 or ea.dtype != np.int8:
        return None
    if s * (int(ea.max()) + int(eb.max()) + 2) > 250:
        return None
    tables = []
    for lower in ((127 - s) // 2, 127 - s - (127 - s) // 2):
        power = np.ldexp(np.float32(1), s * np.arange(128) - lower)  # no exponent is above 30
        power[64:] = 0  # -64, zero, from the end
        tables.append(power)
    zeros = bool(min(ea.min(), eb.min()) < 0)
    return tables[0].take(ea[0]), tables[1].take(eb[0]), np.uint8(s), zeros


_NO_C = -34  # stands for the exponent of a zero c, relative to `base`


def _narrow_exponents(
    ea: NDArray[Any], eb: NDArray[Any], of_c: Span, depth: int
) -> tuple[NDArray[Any], NDArray[Any], int]:
    """Exponents of both factors as int8 above the least product's (`base`) if they fit, or int16.

    As int8, zero is -64: with any exponent of up to 30 it stays below those of c, which are -33 or
    more: a result is a multiple of 2**(E - 25). A zero c may have any exponent that is not above
    the products'.
    """
    low_a, low_b = (int(np.where(e == _NOTHING, 999, e).min()) for e in (ea, eb))
    if 999 in (low_a, low_b):
        return ea, eb, 0
    base = low_a + low_b
    sizes = int(ea.max()) - low_a, int(eb.max()) - low_b
    low, high = (of_c[0] - base, of_c[1] - base) if of_c else (0, 0)
    top = max(sum(sizes), high) + depth.bit_length() + 1
    if max(sizes) > 30 or top > 125 or low < -33:
        return ea, eb, 0
    return (
        np.where(ea == _NOTHING, -64, ea - low_a).astype(np.int8),
        np.where(eb == _NOTHING, -64, eb - low_b).astype(np.int8),
        base,
    )


@cache
def _has_numba() -> bool:
    return importlib.util.find_spec("numba") is not None


def _use_numba(engine: str, size: int) -> bool:
    if engine not in ("auto", "numpy", "numba"):
        raise ValueError(f"engine is {engine!r}, not auto, numpy or numba")
    return engine == "numba" or (engine == "auto" and size >= 1 << 20 and _has_numba())


def _by_numba(x: F32, y: F32, cells: F32, ea: NDArray[Any], eb: NDArray[Any], core: Core) -> None:
    from tklearn.numerics.compiled import compiled

    run, odd = compiled(), -x.shape[2] % 4
    if odd:  # four k at a time: zeros change nothing
        down, right = ((0, 0), (0, odd), (0, 0)), ((0, 0), (0, 0), (0, odd))
        x, ea = np.pad(x, right), np.pad(ea, right, constant_values=_NOTHING)
        y, eb = np.pad(y, down), np.pad(eb, down, constant_values=_NOTHING)
    x, y = np.ascontiguousarray(x), np.ascontiguousarray(y)
    for i in range(len(cells)):
        j, k = i % len(x), i % len(y)
        cells[i] = run(x[j], y[k], cells[i], ea[j], eb[k], core.block, core.fraction)
