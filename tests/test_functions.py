"""numerics.functions: tables of all fractions by their digest, edges, and the simulator's use."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

import tklearn as tk
from tklearn import numerics, warp
from tklearn.numerics import functions

RECORDING = Path(__file__).parent / "data" / "h200_tensor_bits.npz"
# SHA-256 of an H200's results for all 2**23 fractions f, scaled to whole numbers, little-endian
# int32: 2**f * 2**23; 1 / (1 + f), 1 / sqrt(1 + f) and 1 / sqrt(2 + 2 f), each times 2**24.
DIGESTS = {
    "ex2": "629a6b6f8ed8a91f6f5842e3c432d400cd663024471e11e7dbc1b27ca58d1a92",
    "rcp": "6738fed66ac3938e70bbdd4bd049433a7daee9dca539705339d2223986bbe04c",
    "rsqrt1": "4553e0214008c41897c80858b5908f1f7c8310921f3a08b8f0d99235bfe371a8",
    "rsqrt2": "87f5dcf577f2ed88cd6d33bca7d17f8a298a49d6cfc4bc0f71e196b790efd9d4",
}
F = np.float32
INF, NAN = F(np.inf), F(np.nan)


def bits(x) -> np.ndarray:
    return np.asarray(x, F).view(np.uint32)


@pytest.mark.parametrize("name", list(DIGESTS))
def test_all_fractions_equal_the_hardware(name: str) -> None:
    f = np.arange(1 << 23, dtype=np.uint32)
    one = (f | np.uint32(0x3F800000)).view(F)
    if name == "ex2":
        table = np.ldexp(functions.exp2(one - F(1)), 23)
    elif name == "rcp":
        table = np.ldexp(functions.rcp(one), 24)
    else:
        table = np.ldexp(functions.rsqrt(one * F(name[-1])), 24)
    assert hashlib.sha256(table.astype("<i4").tobytes()).hexdigest() == DIGESTS[name]


def test_exp2_of_other_octaves_and_signs() -> None:
    """FACTS.md 7, with T read off [0, 1): cut to 23 bits; complement below zero, if not 0."""
    rng = np.random.default_rng(1)
    x = rng.uniform(-125, 127, 20000).astype(F)
    x[:2000] *= F(2.0**-20)
    x[2000:2200] = np.trunc(x[2000:2200])
    u = np.floor(np.abs(x.astype(np.float64)) * 2**23).astype(np.int64)
    less = (x < 0) & (u % 2**23 > 0)
    f = np.where(less, 2**23 - 1 - u % 2**23, u % 2**23)
    n = np.where(x < 0, -(u >> 23) - less, u >> 23)
    table = functions.exp2((f / 2**23).astype(F)).astype(np.float64)
    np.testing.assert_array_equal(bits(functions.exp2(x)), bits(table * np.exp2(n)))


@pytest.mark.parametrize(("name", "x", "want"), [
    ("exp2", 0.0, 1.0), ("exp2", 5.0, 32.0), ("exp2", 128.0, INF), ("exp2", INF, INF),
    ("exp2", -INF, 0.0), ("exp2", -1000.0, 0.0), ("exp2", -126.5, 0.0), ("exp2", NAN, NAN),
    ("exp2", 1e-40, 1.0), ("exp2", -1.0, 0.5), ("exp2", -126.0, 2.0**-126), ("exp2", -127.0, 0.0),
    ("exp2", -1e-40, 1.0), ("exp2", -(2.0**-24), 1.0), ("exp2", -(2.0**-23), 1 - 2.0**-23),
    ("exp", 0.0, 1.0), ("exp", -INF, 0.0), ("exp", 100.0, INF),
    ("rcp", 4.0, 0.25), ("rcp", -0.0, -INF), ("rcp", 1e-40, INF), ("rcp", -INF, -0.0),
    ("rcp", 2.0**127, 0.0), ("rcp", -(2.0**126), -(2.0**-126)), ("rcp", NAN, NAN),
    ("rsqrt", 4.0, 0.5), ("rsqrt", 2.0**-126, 2.0**63), ("rsqrt", 0.0, INF), ("rsqrt", -0.0, -INF),
    ("rsqrt", 1e-40, INF), ("rsqrt", -1.0, NAN), ("rsqrt", INF, 0.0), ("rsqrt", NAN, NAN),
    ("sqrt", -0.0, -0.0), ("sqrt", -1.0, NAN), ("sqrt", 2.0, 1.4142135), ("log2", 0.0, -INF),
    ("log2", -1.0, NAN), ("log2", 8.0, 3.0), ("log", 1.0, 0.0), ("tanh", -INF, -1.0),
    ("sin", INF, NAN), ("cos", 0.0, 1.0),
])  # fmt: skip
def test_edges(name: str, x: float, want: float) -> None:
    got = functions.MAPS[name](F(x))
    assert got.dtype == F
    assert got.shape == ()
    assert bits(got) == (0x7FFFFFFF if np.isnan(want) else bits(want))


def test_shapes_and_blocks() -> None:
    x = np.random.default_rng(2).uniform(0.1, 9, (3, 7, 1000)).astype(F)
    for name, f in functions.MAPS.items():
        whole = f(x)
        assert whole.shape == x.shape
        assert whole.dtype == F
        np.testing.assert_array_equal(bits(whole[1, :, ::3]), bits(f(x[1, :, ::3])), name)
        assert f(np.zeros((0, 2), F)).shape == (0, 2)


def test_errors_are_those_of_the_instructions() -> None:
    """2 units for ex2 (PTX manual), 1 for rcp, 2 for rsqrt; the table is not a rounded function."""
    x = np.random.default_rng(3).uniform(1, 4, 1 << 16).astype(F)
    for name, exact, most in (("exp2", np.exp2, 2.0), ("rcp", np.reciprocal, 1.0),
                              ("rsqrt", lambda v: 1 / np.sqrt(v), 2.0)):  # fmt: skip
        want = exact(x.astype(np.float64))
        off = np.abs(functions.MAPS[name](x) - want) / np.spacing(want.astype(F))
        assert 0.5 < off.max() < most, name


@tk.kernel(threads=32)
def lanes(x: tk.gl_fl, y: tk.gl_fl):
    i = tk.laneid()
    y[i] = tk.exp2(x[i]) + tk.rsqrt(tk.rcp(x[i]))


@tk.kernel(warps=1)
def tiles(x: tk.gl_bf, y: tk.gl_bf):
    t = tk.rt_bf(16, 16)
    warp.load(t, x, (0, 0))
    t = tk.exp(t)
    warp.store(y, t, (0, 0))


def test_simulator_uses_them() -> None:
    x = np.linspace(0.3, 9, 32, dtype=F)
    y, fast = np.zeros(32, F), np.zeros(32, F)
    lanes.sim[1](x, y, mma="exact")
    lanes.sim[1](x, fast)
    want = functions.exp2(x) + functions.rsqrt(functions.rcp(x))
    np.testing.assert_array_equal(bits(y), bits(want))
    assert (bits(fast) != bits(want)).any()
    a = numerics.encode(np.linspace(-3, 3, 256, dtype=F).reshape(16, 16), "bf16")
    b = np.zeros_like(a)
    tiles.sim[1](a, b, mma="exact")
    want = numerics.encode(functions.exp(numerics.decode(a)), "bf16")
    assert b.tobytes() == want.tobytes()


# ------------------------------------------------------------------------- measured on an H200
def recorded() -> dict:
    return json.loads(bytes(np.load(RECORDING)["about"]))["maps"]


def every_251st() -> np.ndarray:
    return np.arange(0, 1 << 32, 251, dtype=np.uint32).view(F)


def differ(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (bits(a) != bits(b)) & ~(np.isnan(a) & np.isnan(b))


def test_recorded_functions() -> None:
    """Digests, and where the model of that day was wrong: the present one has the GPU's results."""
    maps = recorded()
    assert maps["sha256"] == DIGESTS
    exact = {k: v for k, v in maps.items() if k.split()[0] in ("ex2", "rcp", "rsqrt")}
    assert len(exact) >= 12
    assert sum(v["values"] for v in exact.values()) > 90_000_000
    for name, v in exact.items():
        f = functions.MAPS[{"ex2": "exp2"}.get(name.split()[0], name.split()[0])]
        for x, got, _ in v["first"]:
            assert float(f(F(float.fromhex(x)))).hex() == got, name
    wrong = {k: v["mismatches"] for k, v in exact.items() if v["mismatches"]}
    assert set(wrong) <= {"ex2 [-32, -16)", "ex2 edges", "ex2 every 251st float"}
    # That model took the complement of a fraction 0 as well: it was wrong where this matters only.
    for x, name in (
        (-np.arange(1 << 23, 1 << 24, dtype=F) * F(2.0**-19), "ex2 [-32, -16)"),
        (np.load(RECORDING)["edges_x"], "ex2 edges"),
        (every_251st(), "ex2 every 251st float"),
    ):
        with np.errstate(all="ignore"):
            whole = (x <= -(2.0**-126)) & (x > -126) & (np.trunc(x * F(2.0**23)) % 2**23 == 0)
        assert wrong.get(name, 0) in (0, whole.sum()), name


@pytest.mark.parametrize(("name", "f"), [
    ("sqrt", functions.sqrt), ("reciprocal", lambda x: F(1) / x), ("thirds", lambda x: x / F(3)),
])  # fmt: skip
def test_recorded_ieee_functions(name: str, f) -> None:
    """IEEE. The recording of 2026-11-30 is of CuPy's build, with -ftz: equal but for subnormals."""

    def flush(x: np.ndarray) -> np.ndarray:
        return np.where(np.abs(x) < F(2.0**-126), np.copysign(F(0), x), x)

    v = recorded()[f"{name} every 251st float"]
    with np.errstate(all="ignore"):
        flushed = differ(flush(f(flush(every_251st()))), f(every_251st()))
    assert v["mismatches"] in (0, flushed.sum())


def test_recorded_bounds() -> None:
    maps = recorded()
    octaves = [k for k in maps if k.startswith("lg2 octave")]
    assert len(octaves) == 9
    for name, key, v in [
        ("log2", "lg2 [1, 2) absolute", 0), ("log2", "lg2 [0.5, 1) absolute", 0),
        ("log2", "lg2 subnormal relative", 0), ("tanh", "tanh relative", 0),
        ("sin", "sin [-4, 4] ulp", 0), ("sin", "sin [-1000, 1000] ulp", 0),
        ("cos", "cos [-4, 4] ulp", 0), ("cos", "cos [-1000, 1000] ulp", 0),
        ("cos", "cos all exponents ulp", 0), *(("log2", k, "relative") for k in octaves),
    ]:  # fmt: skip
        most = numerics.BOUNDS[name].most
        assert 0.2 * most < (maps[key][v] if v == 0 else maps[key][v][0]) <= most, key


def test_recorded_bounds_of_all_floats() -> None:
    worst = recorded().get("worst")
    if worst is None:
        pytest.skip("recorded before the probe looked at all floats")
    assert len(worst) == 7
    for key, (error, _) in worst.items():
        most = numerics.BOUNDS[key.split()[0]].most
        assert 0 < error <= most, key


def test_recorded_edges_are_within_the_bounds() -> None:
    """Zeros, infinities and NaN equal; the rest within the bound (subnormals of sin: see above)."""
    data = np.load(RECORDING)
    x = data["edges_x"]
    for name, key in (("log2", "lg2"), ("tanh", "tanh"), ("sin", "sin"), ("cos", "cos")):
        got, want = data[f"edges_{key}"], functions.MAPS[name](x)
        number = np.isfinite(want) & (np.abs(x) >= 2.0**-126)
        assert not differ(got, want)[~np.isfinite(want)].any()
        with np.errstate(all="ignore"):
            exact = getattr(np, name)(x.astype(np.float64))[number]
        off = np.abs(got[number] - exact)
        if name in ("sin", "cos"):
            off /= np.spacing(np.abs(exact).astype(F))
        elif name == "tanh":
            off /= np.abs(exact)
        else:
            off /= np.where((x[number] < 0.5) | (x[number] > 2), np.abs(exact), 1)
        assert off.max() <= numerics.BOUNDS[name].most, name


def test_kernels_keep_subnormals() -> None:
    """Compiled with our options, division and square root have no .ftz in PTX; CuPy adds -ftz."""
    pytest.importorskip("cupy")
    from tklearn.cuda.compile import OPTIONS, load_nvrtc

    nvrtc = load_nvrtc()
    text = """extern "C" __global__ void k(float* x) { x[0] = x[0] / x[1]; x[2] = __fsqrt_rn(x[3]);
        x[4] = x[4] * x[5] + x[6]; x[7] = sinf(x[8]); }"""
    program = nvrtc.createProgram(text, "k.cu", (), ())
    nvrtc.compileProgram(program, ("-arch=compute_80", *(o for o in OPTIONS if "ptxas" not in o)))
    ptx = nvrtc.getPTX(program)
    ptx = ptx.decode() if isinstance(ptx, bytes) else ptx
    assert "div.rn.f32" in ptx
    assert "sqrt.rn.f32" in ptx
    assert ".ftz" not in ptx
