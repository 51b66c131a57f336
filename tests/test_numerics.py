"""Rounding, fused multiply-add and reductions against exact arithmetic in big rationals."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from tklearn import numerics as num

# name -> (significand bits with the leading one, least exponent, largest value, saturates)
FORMATS = {
    "bf16": (8, -126, Fraction(2) ** 128 - Fraction(2) ** 120, False),
    "f16": (11, -14, Fraction(65504), False),
    "e4m3": (4, -6, Fraction(448), True),
    "e5m2": (3, -14, Fraction(57344), True),
    "f32": (24, -126, Fraction(2) ** 128 - Fraction(2) ** 104, False),
}


def nearest_even(x: Fraction, bits: int, least: int, largest: Fraction, saturates: bool) -> float:
    """x rounded to nearest, ties to even, in exact arithmetic; the definition."""
    if x == 0:
        return 0.0
    size = abs(x)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if Fraction(2) ** exponent > size:
        exponent -= 1
    step = Fraction(2) ** (max(exponent, least) - bits + 1)
    got = round(size / step) * step  # Fraction rounds halves to even
    if got > largest:
        got = largest if saturates else float("inf")
    return float(got) if x > 0 else -float(got)


def same(got, want):
    """Equal bits; any NaN equals any NaN."""
    got, want = np.asarray(got, np.float32), np.asarray(want, np.float32)
    both = np.isnan(got) & np.isnan(want)
    bad = np.flatnonzero((got.view(np.uint32) != want.view(np.uint32)) & ~both)
    assert bad.size == 0, (bad[:5], got.ravel()[bad[:5]], want.ravel()[bad[:5]])


def floats(*bits):
    return np.array(bits, np.uint32).view(np.float32)


LOWS = [0, 1, 0xFFF, 0x1000, 0x1001, 0x1FFF, 0x2000, 0x3000, 0x7FFF, 0x8000, 0x8001, 0xFFFF]
EVERY = ((np.arange(1 << 16, dtype=np.uint32) << 16)[:, None] | np.array(LOWS, np.uint32)).view(
    np.float32
)
"""Every sign, exponent and upper significand, with lower halves around all the ties."""


@pytest.mark.parametrize("dtype", ["bf16", "f16", "e4m3", "e5m2"])
def test_rounding_equals_exact_arithmetic(dtype):
    rng = np.random.default_rng(1)
    x = EVERY.ravel()[rng.integers(0, EVERY.size, 3000)]
    near = np.ldexp(rng.standard_normal(500), rng.integers(-30, 18, 500)).astype(np.float32)
    grid = num.decode(np.arange(256, dtype=np.uint8).view(num.STORAGE["e4m3"]))
    halves = (grid[:126] + grid[1:127]) / 2  # the ties of e4m3 themselves, and their neighbours
    zero, far = np.float32(0), np.float32(1e9)
    sides = [halves, -halves, np.nextafter(halves, zero), np.nextafter(halves, far)]
    x = np.concatenate([x, near, *sides])
    x = x[np.isfinite(x)]
    want = [nearest_even(Fraction(float(v)), *FORMATS[dtype]) for v in x]
    same(np.abs(num.round_to(x, dtype)), np.abs(want))
    np.testing.assert_array_equal(np.signbit(num.round_to(x, dtype)), np.signbit(x))


@pytest.mark.parametrize("dtype", ["bf16", "f16", "e4m3", "e5m2"])
def test_rounding_equals_ml_dtypes_everywhere(dtype):
    """786,432 values: all exponents, both zeros, subnormals, infinities, NaN."""
    x = EVERY
    largest = np.float32(FORMATS[dtype][2])
    with np.errstate(all="ignore"):
        limited = np.clip(x, -largest, largest) if FORMATS[dtype][3] else x
        want = limited.astype(num.STORAGE[dtype]).astype(np.float32)
    same(num.round_to(x, dtype), want)
    same(num.decode(num.encode(x, dtype)), want)
    np.testing.assert_array_equal(np.isnan(num.round_to(x, dtype)), np.isnan(x))


def test_rounding_at_the_edges():
    big = np.array([65504, 65519.99, 65520, np.inf, -65520, 448, 464, 1e9, -np.inf], np.float32)
    same(
        num.round_to(big, "f16"), [65504, 65504, np.inf, np.inf, -np.inf, 448, 464, np.inf, -np.inf]
    )
    same(num.round_to(big, "e4m3"), [448, 448, 448, 448, -448, 448, 448, 448, -448])
    assert num.round_to(np.float32(3.4e38), "bf16") == np.inf  # over the last half-way point
    tiny = np.array([-1e-30, 2.0**-10, 2.0**-10 * 1.01, 2.0**-25, -(2.0**-25)], np.float32)
    same(num.round_to(tiny, "e4m3"), [-0.0, 0.0, 2.0**-9, 0.0, -0.0])
    same(num.round_to(tiny, "f16"), [-0.0, 2.0**-10, tiny[2].astype(np.float16), 0.0, -0.0])


def test_tf32_rounds_ties_away():
    x = floats(0x3F801FFF, 0x3F800FFF, 0xBF803000, 0x3F801000, 0x7F800000, 0x7FFFFFFF, 0x00000FFF)
    want = floats(0x3F802000, 0x3F800000, 0xBF804000, 0x3F802000, 0x7F800000, 0x7FFFE000, 0)
    assert num.round_to(x, "tf32").view(np.uint32).tolist() == want.view(np.uint32).tolist()


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16", "e4m3", "e5m2", "tf32"])
def test_where_the_result_goes(dtype):
    rng = np.random.default_rng(2)
    x = rng.standard_normal((300, 200)).astype(np.float32)
    keep = x.copy()
    want = num.round_to(x, dtype)
    np.testing.assert_array_equal(x, keep)
    assert want is not x
    out = np.empty_like(x)
    assert num.round_to(x, dtype, out) is out
    same(out, want)
    same(num.round_to(x[:, ::3], dtype), want[:, ::3])  # not contiguous
    spread = np.zeros((300, 400), np.float32)
    num.round_to(x, dtype, spread[:, ::2])
    same(spread[:, ::2], want)
    assert not spread[:, 1::2].any()
    num.round_to(x, dtype, x)  # in place
    same(x, want)
    assert num.round_to(np.empty((0, 3)), dtype).shape == (0, 3)
    assert num.round_to(1.5, dtype).shape == ()
    with pytest.raises(ValueError, match="not float32"):
        num.round_to(keep, dtype, np.empty(keep.shape))


@pytest.mark.parametrize(("dtype", "word"), [("f16", 16), ("bf16", 16), ("e4m3", 8), ("e5m2", 8)])
def test_every_code_survives(dtype, word):
    codes = np.arange(1 << word, dtype=f"u{word // 8}")
    values = num.decode(codes.view(num.STORAGE[dtype]))
    assert values.dtype == np.float32
    same(values, codes.view(num.STORAGE[dtype]).astype(np.float32))
    back = num.encode(values, dtype)
    assert back.dtype == num.STORAGE[dtype]
    back = back.view(codes.dtype)
    number = np.isfinite(values)
    assert (back == codes)[number].all()
    assert set(back[np.isnan(values)].tolist()) == {0x7FFF if word == 16 else 0x7F}  # canonical
    if word == 16:
        assert (back == codes)[np.isinf(values)].all()


def test_unknown_types_are_named():
    with pytest.raises(ValueError, match="no rounding to 'f64'"):
        num.round_to(np.zeros(1), "f64")
    with pytest.raises(ValueError, match="no rounding to 'i8'"):
        num.encode(np.zeros(1), "i8")
    with pytest.raises(ValueError, match="cannot decode int32"):
        num.decode(np.zeros(1, np.int32))
    x = np.ones(3, np.float32)
    assert num.decode(x) is x
    assert num.STORAGE["bf16"] == ml_dtypes.bfloat16


# ------------------------------------------------------------------------ fused multiply-add
def exact_fma(a, b, c):
    total = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    return nearest_even(total, *FORMATS["f32"])


def adversaries(n, seed):
    """a * b + c that lie a hair beside the middle of two float32 values, and other hard places."""
    rng = np.random.default_rng(seed)
    rows = []
    while len(rows) < n:
        kind = len(rows) % 6
        e = int(rng.integers(-60, 60))
        a = np.float32(rng.integers(1 << 23, 1 << 24))
        b = np.float32(rng.integers(1 << 23, 1 << 24))
        if kind in (0, 1):
            # the product lies in the middle: a significand of 25 bits, odd, as a product of two
            b = np.float32(rng.choice([3, 5, 7, 9]))
            a = np.float32(((rng.integers(1 << 24, 1 << 25) | 1) // int(b)) | 1)
            a *= np.float32(2.0) ** e
            c = np.float32(2.0 ** (e + rng.integers(-80, -4))) if kind == 0 else np.float32(0)
        elif kind == 2:  # c and half its last place, and a hair
            c = np.float32(rng.integers(1 << 23, 1 << 24)) * np.float32(2.0) ** e
            hair = float(rng.choice([-1, 1]) * 2.0 ** -int(rng.integers(5, 24)))
            a, b = np.float32(2.0 ** (e - 1)), np.float32(1 + hair)
        elif kind == 3:  # subnormal results
            a, b = a * np.float32(2.0**-100), b * np.float32(2.0) ** int(rng.integers(-98, -85))
            c = np.float32(rng.integers(-(1 << 12), 1 << 12)) * np.float32(2.0**-149)
        elif kind == 4:  # a subnormal, half its last place less a hair that float64 cannot hold
            x = int(rng.integers(1, 200))
            a, b = (np.float32((1 + y * 2.0**-23) * 2.0**-75) for y in (x, -x))
            c = np.float32(rng.integers(1 << 14, 1 << 22) * rng.choice([-1, 1]) * 2.0**-149)
        else:  # cancellation
            c = -np.float32(np.float64(a) * np.float64(b))
        sign = rng.choice([-1, 1], 3)
        c *= sign[2] if kind == 0 else 1
        rows.append((a * sign[0], b * sign[1], c * sign[0] * sign[1]))
    return np.array(rows, np.float32).T


def test_fma_equals_exact_arithmetic():
    a, b, c = adversaries(4000, seed=0)
    want = np.array([exact_fma(*v) for v in zip(a, b, c, strict=True)], np.float32)
    got = num.fma32(a, b, c)
    np.testing.assert_array_equal(got, want)
    twice = (a.astype(np.float64) * b + c).astype(np.float32)
    assert (twice != want).sum() > 100, "the cases do not tell double rounding from fma"
    for i in range(0, 4000, 47):  # scalars go the same way
        assert num.fma32(a[i], b[i], c[i]) == want[i]


def test_fma_by_hand():
    one = np.float32(1)
    up = np.float32(1 + 2.0**-12)
    # (1 + 2^-12)^2 = 1 + 2^-11 + 2^-24: a tie, to even; a hair of c decides
    assert num.fma32(up, up, np.float32(0)) == np.float32(1 + 2.0**-11)
    assert num.fma32(up, up, np.float32(2.0**-80)) == np.float32(1 + 2.0**-11 + 2.0**-23)
    assert num.fma32(up, up, np.float32(-(2.0**-80))) == np.float32(1 + 2.0**-11)
    assert num.fma32(up, -up, one) == np.float32(-(2.0**-11) - 2.0**-24)  # a*b is not rounded
    tiny = np.float32(2.0**-75)
    assert num.fma32(tiny, tiny, np.float32(0)) == 0  # 2^-150, half the smallest: to even
    assert num.fma32(tiny, tiny, np.float32(2.0**-149)) == np.float32(2.0**-148)
    assert num.fma32(tiny, tiny * np.float32(1 + 2.0**-23), np.float32(0)) == np.float32(2.0**-149)


def test_fma_special_values():
    inf, nan, big = np.float32(np.inf), np.float32(np.nan), np.float32(3e38)
    a = np.array([inf, inf, nan, big, big, -big, 0.0, -0.0, 1.0, 0.0], np.float32)
    b = np.array([1.0, 0.0, 1.0, 10.0, 10.0, 10.0, 5.0, 5.0, 1.0, -5.0], np.float32)
    c = np.array([1.0, 1.0, 1.0, 0.0, -inf, big, -0.0, -0.0, -1.0, 0.0], np.float32)
    with np.errstate(all="raise"):  # and without warnings
        got = num.fma32(a, b, c)
    same(got, [inf, nan, nan, inf, -inf, -inf, 0.0, -0.0, 0.0, 0.0])


@pytest.mark.parametrize(
    "shapes",
    [
        ((70000,), (70000,), (70000,)),
        ((3, 200, 100), (), (3, 200, 1)),
        ((1, 200, 100), (200, 1), (3, 1, 100)),
        ((1, 300, 200), (300, 200), (200,)),
        ((40000, 2), (2,), (1, 1)),
        ((0, 5), (5,), ()),
    ],
)
def test_fma_broadcasts_and_works_in_blocks(shapes):
    rng = np.random.default_rng(3)
    a, b, c = (rng.standard_normal(s).astype(np.float32) for s in shapes)
    b = num.round_to(b, "bf16")  # short products make many exact halves
    got = num.fma32(a, b, c)
    full = [v.ravel() for v in np.broadcast_arrays(a, b, c)]
    assert got.shape == np.broadcast_shapes(*shapes)
    pieces = [num.fma32(*(v[i : i + 500] for v in full)) for i in range(0, got.size, 500)]
    same(got.ravel(), np.concatenate(pieces) if pieces else np.empty(0))
    out = np.empty((*got.shape, 2), np.float32)[..., 0]
    assert num.fma32(a, b, c, out) is out
    same(out, got)


# ------------------------------------------------------------------------------- reductions
def fold(x, axis, group=1):
    """The definition, literally: whole groups, the last one filled with -0, then inside one."""
    x = np.moveaxis(np.array(x, np.float32), axis, 0)
    missing = -len(x) % group
    x = np.concatenate([x, np.full((missing, *x.shape[1:]), -0.0, np.float32)])
    x = x.reshape(-1, group, *x.shape[1:])
    for _ in range(2):
        n = len(x)
        while n > 1:
            h = (n + 1) // 2
            x[: n - h] += x[h:n]
            n = h
        x = x[0]
    return x


SIZES = [*range(1, 35), 48, 64, 96, 100, 128, 192, 250, 256, 257, 512, 1000, 1024, 2052]


@pytest.mark.parametrize("group", [1, 8, 32, 128])
@pytest.mark.parametrize("n", SIZES)
def test_fold_sum_is_the_headers_order(n, group):
    rng = np.random.default_rng(n)
    for shape, axis in (((n,), 0), ((5, n), -1), ((2, 3, n), 2), ((n, 7), 0), ((3, n, 5), 1)):
        x = (rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 4, shape)).astype(np.float32)
        keep = x.copy()
        got = num.fold_sum(x, axis, group)
        np.testing.assert_array_equal(x, keep)
        same(got, fold(x, axis, group))
        assert got.dtype == np.float32
        same(num.fold_sum(x[..., ::-1], axis, group), fold(x[..., ::-1], axis, group))
        got += 1  # the result is the caller's own
        np.testing.assert_array_equal(x, keep)


def test_fold_sum_of_many_rows():
    x = np.random.default_rng(5).standard_normal((64, 64, 64)).astype(np.float32)
    for axis in range(3):
        same(num.fold_sum(x, axis), fold(x, axis))
    assert (num.fold_sum(x) != x.sum(-1)).any(), "NumPy's order would do: the test shows nothing"
    assert num.fold_sum(np.empty((3, 0), np.float32)).tolist() == [0, 0, 0]
    with np.errstate(all="raise"):
        same(num.fold_sum(np.array([np.inf, -np.inf], np.float32)), np.nan)


def test_groups_matter_where_their_number_is_no_power_of_two():
    x = np.random.default_rng(8).standard_normal((200, 96)).astype(np.float32)
    assert (num.fold_sum(x, -1, 8) != num.fold_sum(x)).any()
    y = x[:, :64]
    same(num.fold_sum(y, -1, 8), num.fold_sum(y))


def test_fold_sum_is_a_butterfly_of_lanes():
    """32 lanes that add by xor shuffles 16, 8, 4, 2, 1 all get the fold."""
    x = np.random.default_rng(6).standard_normal(32).astype(np.float32)
    lanes = x.copy()
    for step in (16, 8, 4, 2, 1):
        lanes = lanes + lanes[np.arange(32) ^ step]
    assert set(lanes.tolist()) == {float(num.fold_sum(x))}


def test_extremes_ignore_nan_and_order_zeros():
    nan = np.nan
    x = np.array([[1, nan, 3], [nan, nan, nan], [-0.0, 0.0, -1], [0.0, -0.0, 1], [-0.0, -0.0, nan]])
    x = x.astype(np.float32)
    same(num.fold_max(x), [3, nan, 0.0, 1, -0.0])
    same(num.fold_min(x), [1, nan, -1, -0.0, -0.0])
    same(num.fold_max(x.T, 0), [3, nan, 0.0, 1, -0.0])
    same(num.fold_max(x[:, ::-1]), [3, nan, 0.0, 1, -0.0])
    same(num.fold_max(np.array([-0.0, 0.0], np.float32)), 0.0)
    same(num.fold_min(np.array([0.0, -0.0], np.float32)), -0.0)
    big = np.random.default_rng(0).standard_normal((4, 5, 64)).astype(np.float32)
    same(num.fold_max(big), big.max(-1))
    same(num.fold_min(big, 1), big.min(1))


@pytest.mark.parametrize("shape", [(1, 128), (3, 128), (1, 7), (1, 4096)])
def test_fold_sum_leaves_its_input_alone(shape: tuple[int, int]) -> None:
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    before = x.copy()
    num.fold_sum(x)
    assert np.array_equal(x, before)


def test_fma_of_a_block_is_that_of_each_element() -> None:
    """Zeros, NaN and subnormals side by side: a block looks at elements only if it must."""
    rng = np.random.default_rng(0)
    tiny = (rng.integers(0, 1 << 12, 400).astype(np.uint32)).view(np.float32)  # subnormals, zeros
    c = np.concatenate([tiny, -tiny, [0, -0.0, np.nan, np.inf, 1]]).astype(np.float32)
    a = np.exp2(rng.uniform(-80, -65, c.size)).astype(np.float32)
    b = (-np.exp2(rng.uniform(-80, -65, c.size))).astype(np.float32)
    a[::7], c[::5] = 0, 0
    got = num.fma32(a, b, c)
    alone = [num.fma32(x[None], y[None], z[None])[0] for x, y, z in zip(a, b, c, strict=True)]
    assert np.array_equal(got, np.array(alone, np.float32), equal_nan=True)
    with np.errstate(all="ignore"):  # and where nothing has to be looked at
        big = num.fma32(c * 0 + 3, np.float32(0.5), np.float32(1))
    assert (big[np.isfinite(c)] == 2.5).all()
