"""Functions of one float32 as the header library's instructions give them (math.cuh).

Bit for bit: `exp2` (ex2.approx.ftz), `exp` (exp2 of x * log2 e, rounded), `rcp` and `rsqrt`
(.approx.ftz), `sqrt` (to nearest). These .ftz instructions take and give zero for subnormals; sqrt,
division, sums and products keep them, since kernels are compiled without -ftz. The unit that
computes the first three is a table of quadratics: the fraction's leading bits choose c0, c1, c2,
the rest is x, and the result is

    (c0 + c1 * x + c2 * square(x)) >> point,

where square(x) leaves out the columns of the partial products of x * x below a certain weight. With
that, 64 (rcp: 128) rows of coefficients in special_functions.json reproduce the results for all
2**23 fractions of an H200, which FACTS.md 7 describes; the one exception is rsqrt(4**n), which is
exact. (The design: Oberman and Siu, "A high-performance area-efficient multifunction interpolator",
ARITH 2005.)

Within a bound: `log2`, `log`, `tanh`, `sin`, `cos` are the function rounded to float32, and
`BOUNDS` says how far the GPU's may lie from that.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tklearn.numerics.rounding import F32

_NAN = np.uint32(0x7FFFFFFF).view(np.float32)
_LEAST = np.float32(2.0**-126)  # below it, .ftz inputs and outputs are zero
_BLOCK = 1 << 14  # elements: a block and its temporaries stay in the first two cache levels


class Bound(NamedTuple):
    """Largest difference of the GPU's results from the exact function, how it is counted, source.

    Ours differ from the exact function by half a unit in the last place (log: one).
    """

    how: str
    most: float
    source: str


_AROUND_1 = "absolute in [0.5, 2], else relative"
BOUNDS: dict[str, Bound] = {
    "log2": Bound(
        _AROUND_1, 2.3e-7, "H200, all floats: 2.16e-7 absolute, 2.30e-7 relative; PTX: 2**-22"
    ),
    "log": Bound(_AROUND_1, 2.7e-7, "H200, all floats: 1.75e-7 absolute, 2.60e-7 relative"),
    "tanh": Bound("relative", 1.2e-5, "H200, all floats: 1.12e-5; PTX, tanh.approx: 2**-11"),
    "sin": Bound("units in the last place", 1.6, "H200, all floats: 1.50; CUDA guide, sinf: 2"),
    "cos": Bound("units in the last place", 1.6, "H200, all floats: 1.52; CUDA guide, cosf: 2"),
}
"""Measured by benchmarks/probes/tensor_bits.py (tests/data/h200_tensor_bits.npz), rounded up."""


class _Quadratics(NamedTuple):
    """c: (segments, 3) int64. squares: the truncated square of each x, in units of its weight."""

    bits: int
    point: int
    c: NDArray[np.int64]
    squares: NDArray[np.int64]

    def __call__(self, fraction: NDArray[np.int64]) -> NDArray[np.int64]:
        x = fraction & ((1 << self.bits) - 1)
        row = fraction >> self.bits
        sum_ = self.squares.take(x)
        sum_ *= self.c[:, 2].take(row)
        x *= self.c[:, 1].take(row)
        sum_ += x
        sum_ += self.c[:, 0].take(row)
        sum_ >>= self.point
        return sum_


@cache
def _quadratics(name: str) -> _Quadratics:
    path = Path(__file__).with_name("special_functions.json")
    d = json.loads(path.read_text(encoding="utf-8"))[name]
    return _Quadratics(d["bits"], d["point"], np.array(d["c"]), _squares(d["bits"], d["dropped"]))


@cache
def _squares(bits: int, dropped: int) -> NDArray[np.int64]:
    """x * x >> dropped for x < 2**bits, without the partial products of weight below 2**dropped.

    The products of bits i and j != i are added once, at weight 2**(i + j + 1).
    """
    x = np.arange(1 << bits)
    bit = [(x >> i) & 1 for i in range(bits)]
    out = np.zeros(1 << bits, np.int64)
    for i in range(bits):
        if 2 * i >= dropped:
            out += bit[i] << (2 * i - dropped)
        for j in range(max(i + 1, dropped - 1 - i), bits):
            out += (bit[i] & bit[j]) << (i + j + 1 - dropped)
    return out


def _blockwise(f: Callable[[F32], F32]) -> Callable[[ArrayLike], F32]:
    def run(x: ArrayLike) -> F32:
        src = np.asarray(x, np.float32)
        flat = src.reshape(-1)
        out = np.empty(flat.shape, np.float32)
        with np.errstate(all="ignore"):
            for i in range(0, flat.size, _BLOCK):
                out[i : i + _BLOCK] = f(flat[i : i + _BLOCK])
        return out.reshape(src.shape)

    run.__doc__ = f.__doc__
    return run


# ------------------------------------------------------------------------------- bit for bit
def _exp2(x: F32) -> F32:
    """2**x, any shape: ex2.approx.ftz.f32. Subnormal inputs and results are zero.

    The argument is cut to 23 fractional bits toward zero. A negative one whose fraction is then not
    zero takes the complement of it, one unit below: whole numbers, and all between -2**-23 and 0,
    are exact.
    """
    inside = np.abs(x) < 200  # false for NaN
    size = np.where(inside & (np.abs(x) >= _LEAST), np.abs(x), np.float32(0))
    fixed = (size * np.float32(2.0**23)).astype(np.int64)  # exact, then toward zero
    negative = x < 0
    np.negative(fixed, out=fixed, where=negative)
    fixed -= negative & ((fixed & 0x7FFFFF) != 0)
    power = fixed >> 23
    power -= 23
    value = np.ldexp(_quadratics("ex2")(fixed & 0x7FFFFF).astype(np.float32), power)
    value[value < _LEAST] = 0
    value[x >= 128] = np.inf
    value[x <= -200] = 0
    value[np.isnan(x)] = _NAN
    return value


def _rcp(x: F32) -> F32:
    """1 / x, any shape: rcp.approx.ftz.f32. Subnormal inputs and results are zeros."""
    bits = x.view(np.int32)
    exponent = (bits >> 23) & 255
    size = _quadratics("rcp")((bits & 0x7FFFFF).astype(np.int64)).astype(np.float32)
    value = np.ldexp(size, 103 - exponent)  # 2**-24 / 2**(exponent - 127)
    value[value < _LEAST] = 0
    value[exponent == 0] = np.inf
    value[exponent == 255] = 0
    np.copysign(value, x, out=value)
    value[np.isnan(x)] = _NAN
    return value


def _rsqrt(x: F32) -> F32:
    """1 / sqrt(x), any shape: rsqrt.approx.ftz.f32. A subnormal counts as zero, with its sign."""
    bits = x.view(np.int32)
    exponent = (bits >> 23) & 255
    fraction = (bits & 0x7FFFFF).astype(np.int64)
    odd = (exponent & 1).astype(bool)  # the power of two is even: 127 stands for 0
    size = np.where(odd, _quadratics("rsqrt1")(fraction), _quadratics("rsqrt2")(fraction))
    size[odd & (fraction == 0)] = 1 << 24
    value = np.ldexp(size.astype(np.float32), ((128 - exponent) >> 1) - 24)
    value[exponent == 255] = 0
    value[x < 0] = _NAN
    value = np.where(exponent == 0, np.copysign(np.float32(np.inf), x), value)
    value[np.isnan(x)] = _NAN
    return value


exp2, rcp, rsqrt = _blockwise(_exp2), _blockwise(_rcp), _blockwise(_rsqrt)


def exp(x: ArrayLike) -> F32:
    """e**x, any shape: exp2 of the rounded product of x and log2 e."""
    with np.errstate(all="ignore"):
        return exp2(np.asarray(x, np.float32) * np.float32(1.4426950408889634))


def sqrt(x: ArrayLike) -> F32:
    """Square root, any shape, to nearest: sqrt.rn.f32."""
    with np.errstate(all="ignore"):
        return _canonical(np.sqrt(np.asarray(x, np.float32)))


# ------------------------------------------------------------------------------ within BOUNDS
def _rounded(f: Any) -> Callable[[ArrayLike], F32]:
    def run(x: ArrayLike) -> F32:
        """The function in float64, rounded to float32."""
        with np.errstate(all="ignore"):
            return _canonical(f(np.asarray(x, np.float64)).astype(np.float32))

    return run


def _canonical(x: F32) -> F32:
    return np.where(np.isnan(x), _NAN, x)


log2, tanh, sin, cos = (_rounded(f) for f in (np.log2, np.tanh, np.sin, np.cos))


def log(x: ArrayLike) -> F32:
    """Natural logarithm, any shape: log2 times ln 2, as in the headers."""
    with np.errstate(all="ignore"):
        return log2(x) * np.float32(0.6931471805599453)


MAPS: dict[str, Callable[[ArrayLike], F32]] = {
    "exp": exp,
    "exp2": exp2,
    "log": log,
    "log2": log2,
    "sqrt": sqrt,
    "tanh": tanh,
    "sin": sin,
    "cos": cos,
    "rsqrt": rsqrt,
    "rcp": rcp,
}
"""Name in the language -> the function."""
