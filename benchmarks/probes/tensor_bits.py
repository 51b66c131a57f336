"""Does the GPU compute what tklearn.numerics says, bit for bit?

Products: mma.sync in every input format on random, extreme and special numbers, 128 dot products a
warp, compared with `numerics.mma_sync` here and now; some inputs and all kinds of results are kept
for tests/test_tensor_bits.py. Functions: ex2, rcp and rsqrt on all fractions, at their edges, on
every 251st float and, against the same rules in CUDA, on all floats; IEEE division and root; the
largest differences of lg2, log, tanh, sin and cos from double precision, over all floats. Kernels
are compiled as tklearn compiles a learner's: CuPy's own compiler would add -ftz. What would be
needed to find lg2's and tanh's rules goes to a second file, NAME_tables.npz (about 1 MB).

Run on the GPU machine (about 40 s), in the repository's root:

    python3 benchmarks/probes/tensor_bits.py --out tensor_bits.npz

Without a GPU, --compile compiles the kernels and --dry runs all but the GPU's part.
"""

# ruff: noqa: E501 (lines of generated C++)
from __future__ import annotations

import argparse
import hashlib
import json
import lzma
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tklearn import numerics
from tklearn.cuda.compile import OPTIONS, arch_name, load_nvrtc
from tklearn.numerics import functions

FRACTIONS = 1 << 23


# ----------------------------------------------------------------------------------- the kernels
def mma_source() -> str:
    """One warp of a block multiplies matrices number blockIdx.x; fragments as in FACTS.md 4."""
    kinds = [  # name, element, k, types of D, A, B, C
        ("bf16", "unsigned short", 16, "f32.bf16.bf16.f32"),
        ("fp16", "unsigned short", 16, "f32.f16.f16.f32"),
        ("fp16h", "unsigned short", 16, "f16.f16.f16.f16"),
        ("tf32", "unsigned", 8, "f32.tf32.tf32.f32"),
        ("e4m3", "unsigned char", 32, "f32.e4m3.e4m3.f32"),
        ("e5m2", "unsigned char", 32, "f32.e5m2.e5m2.f32"),
    ]
    out = []
    for name, element, k, types in kinds:
        per = {16: 2, 8: 1, 32: 4}[k]
        half = name == "fp16h"
        cells = "unsigned short" if half else "float"
        load = [
            f"A[(g + {8 * (r & 1)}) * {k} + {per} * t + {k // 2} * {r >> 1} + {{}}]"
            for r in range(4)
        ]
        load += [f"B[({per} * t + {k // 2} * {r} + {{}}) * 8 + g]" for r in range(2)]
        words = " | ".join
        regs = ", ".join(
            words(f"(unsigned){x.format(i)} << {32 // per * i}" for i in range(per)) for x in load
        )
        at = [f"(g + {8 * (i >> 1)}) * 8 + 2 * t + {i & 1}" for i in range(4)]
        if half:
            body = f"""
    unsigned c0 = C[{at[0]}] | C[{at[1]}] << 16, c1 = C[{at[2]}] | C[{at[3]}] << 16;
    asm volatile("mma.sync.aligned.m16n8k{k}.row.col.{types} {{%0, %1}}, {{%2, %3, %4, %5}}, {{%6, %7}}, {{%0, %1}};"
        : "+r"(c0), "+r"(c1) : "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]), "r"(r[4]), "r"(r[5]));
    D[{at[0]}] = c0; D[{at[1]}] = c0 >> 16; D[{at[2]}] = c1; D[{at[3]}] = c1 >> 16;"""
        else:
            body = f"""
    float c[4] = {{{", ".join(f"C[{x}]" for x in at)}}};
    asm volatile("mma.sync.aligned.m16n8k{k}.row.col.{types} {{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, {{%8, %9}}, {{%0, %1, %2, %3}};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]), "r"(r[4]), "r"(r[5]));
    {" ".join(f"D[{x}] = c[{i}];" for i, x in enumerate(at))}"""
        out.append(f"""
extern "C" __global__ void mma_{name}(const {element}* A, const {element}* B, const {cells}* C, {cells}* D) {{
    int g = threadIdx.x >> 2, t = threadIdx.x & 3;
    A += blockIdx.x * {16 * k}; B += blockIdx.x * {8 * k}; C += blockIdx.x * 128; D += blockIdx.x * 128;
    unsigned r[6] = {{{regs}}};{body}
}}""")
    return "".join(out)


MAPS = {
    "ex2": 'asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));',
    "rcp": 'asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));',
    "rsqrt": 'asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));',
    "log": 'asm("lg2.approx.f32 %0, %1;" : "=f"(y) : "f"(x)); y = __fmul_rn(y, 0.6931471805599453f);',
    "lg2": 'asm("lg2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));',
    "tanh": 'asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));',
    "sin": "y = sinf(x);",
    "cos": "y = cosf(x);",
    "sqrt": "y = __fsqrt_rn(x);",
    "reciprocal": "y = __fdiv_rn(1.f, x);",
    "thirds": "y = __fdiv_rn(x, 3.f);",
}


def map_source() -> str:
    return "".join(
        f"""
extern "C" __global__ void map_{name}(const float* X, float* Y, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {{ float x = X[i], y; {text} Y[i] = y; }}
}}"""
        for name, text in MAPS.items()
    )


# What numerics.functions says of ex2, rcp and rsqrt, on T, the GPU's results for all fractions.
RULES = {
    "ex2": """
        double d = -1;  // flushed below
        if (e == 0) d = 1;
        else if (x >= 128.f) want = __int_as_float(0x7f800000);
        else if (x > -200.f) {
            long long u = (long long)(fabsf(x) * 8388608.f), v = x < 0 ? -u : u;
            if (x < 0 && (v & 0x7fffff)) v -= 1;
            d = ldexp((double)T[v & 0x7fffff], (int)(v >> 23));
        }
        if (d >= 0x1p-126) want = (float)d;""",
    "rcp": """
        double d = ldexp((double)T[m], 127 - e);
        want = e == 0 ? __int_as_float(0x7f800000) : e == 255 || d < 0x1p-126 ? 0.f : (float)d;
        want = copysignf(want, x);""",
    "rsqrt": """
        int octave = ~e & 1;  // of the table: [1, 2) or [2, 4)
        double d = ldexp((double)T[octave << 23 | m], (127 - e + octave) >> 1);
        want = e == 0 ? copysignf(__int_as_float(0x7f800000), x)
            : x < 0 ? __int_as_float(0x7fffffff) : e == 255 ? 0.f : (float)d;""",
}
WORST = {  # what is measured: function, exact function, which x, error
    "log2 absolute [0.5, 2]": ("lg2", "log2(X)", "x >= 0.5f && x <= 2.f", "d"),
    "log2 relative": ("lg2", "log2(X)", "x > 0.f && (x < 0.5f || x > 2.f)", "d / fabs(exact)"),
    "log absolute [0.5, 2]": ("log", "log(X)", "x >= 0.5f && x <= 2.f", "d"),
    "log relative": ("log", "log(X)", "x > 0.f && (x < 0.5f || x > 2.f)", "d / fabs(exact)"),
    "tanh relative": ("tanh", "tanh(X)", "x != 0.f", "d / fabs(exact)"),
    "sin ulp": ("sin", "sin(X)", "true", "ulps(d, exact)"),
    "cos ulp": ("cos", "cos(X)", "true", "ulps(d, exact)"),
}


def all_floats_source() -> str:
    """check_NAME counts unequal results; worst_N finds the largest error and its argument."""
    loop = """
    unsigned stride = gridDim.x * blockDim.x, first = blockIdx.x * blockDim.x + threadIdx.x;
    for (unsigned long long i = first; i < 1ull << 32; i += stride) {
        float x = __uint_as_float((unsigned)i), y;"""
    out = [
        """
__device__ double ulps(double d, double exact) {
    float f = fabsf((float)exact);
    int e = (int)(__float_as_uint(f) >> 23);
    return ldexp(d, 150 - (e > 1 ? e : 1));
}"""
    ]
    for name, rule in RULES.items():
        out.append(f"""
extern "C" __global__ void check_{name}(const float* T, unsigned long long* bad, float* where) {{{loop}
        {MAPS[name]}
        int e = (int)(i >> 23) & 255, m = (int)i & 0x7fffff;
        float want = 0.f;
        if (x != x) want = __int_as_float(0x7fffffff);
        else {{{rule}
        }}
        if (__float_as_uint(y) != __float_as_uint(want)) {{ atomicAdd(bad, 1ull); *where = x; }}
    }}
}}""")
    for n, (name, exact, which, error) in enumerate(WORST.values()):
        out.append(f"""
extern "C" __global__ void worst_{n}(unsigned long long* out) {{
    unsigned long long worst = 0;{loop}
        if ((i >> 23 & 255) == 255 || !({which})) continue;
        {MAPS[name]}
        double exact = {exact.replace("X", "(double)x")}, d = fabs((double)y - exact);
        unsigned long long key = (unsigned long long)__float_as_uint((float)({error})) << 32 | (unsigned)i;
        if (key > worst) worst = key;
    }}
    atomicMax(out, worst);
}}""")
    return "".join(out)


def compiled(arch: int) -> bytes:
    """The kernels, with the options of tklearn's own."""
    nvrtc = load_nvrtc()
    text = mma_source() + map_source() + all_floats_source()
    program = nvrtc.createProgram(text, "bits.cu", (), ())
    try:
        nvrtc.compileProgram(program, (f"-arch={arch_name(arch)}", *OPTIONS))
    except nvrtc.NVRTCError:
        raise SystemExit(nvrtc.getProgramLog(program)) from None
    return bytes(nvrtc.getCUBIN(program)) + b"\0"  # CuPy drops the last byte


class Gpu:
    """Runs the kernels through CuPy."""

    def __init__(self) -> None:
        import cupy

        self.cupy = cupy
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "bits.cubin"
            file.write_bytes(compiled(int(cupy.cuda.Device().compute_capability)))
            self.module = cupy.RawModule(path=str(file))
            self.module.get_function("map_ex2")  # loads it
        p = cupy.cuda.runtime.getDeviceProperties(0)
        self.name = p["name"].decode()
        self.driver = cupy.cuda.runtime.driverGetVersion()

    def mma(self, kind: str, a: Any, b: Any, c: Any) -> Any:
        cp = self.cupy
        args = [cp.asarray(np.ascontiguousarray(v)) for v in (a, b, c)]
        d = cp.empty_like(args[2])
        self.module.get_function(f"mma_{kind}")((len(a),), (32,), (*args, d))
        return d.get()

    def map(self, name: str, x: Any) -> Any:
        cp = self.cupy
        x = cp.asarray(x)
        y = cp.empty_like(x)
        self.module.get_function(f"map_{name}")(
            (-(-x.size // 256),), (256,), (x, y, np.int32(x.size))
        )
        return y.get()

    def check(self, name: str, table: Any) -> tuple[int, float]:
        """Of all floats: how many results are not the rule's, and one of them."""
        cp = self.cupy
        bad, where = cp.zeros(1, np.uint64), cp.zeros(1, np.float32)
        args = (cp.asarray(table), bad, where)
        self.module.get_function(f"check_{name}")((4096,), (256,), args)
        return int(bad.get()[0]), float(where.get()[0])

    def worst(self, n: int) -> list[float]:
        """Largest error of measure n over all floats, and its argument."""
        out = self.cupy.zeros(1, np.uint64)
        self.module.get_function(f"worst_{n}")((4096,), (256,), (out,))
        words = out.get().view(np.float32)
        return [float(words[1]), float(words[0])]


class Dry:
    """The model in place of the GPU, to try this program."""

    name, driver = "dry run", 0

    def mma(self, kind: str, a: Any, b: Any, c: Any) -> Any:
        d = model(kind, *(values(kind, v) for v in (a, b)), cells(c))
        return numerics.encode(d, "f16").view(np.uint16) if kind == "fp16h" else d

    def map(self, name: str, x: Any) -> Any:
        return reference(name, x)

    def check(self, name: str, table: Any) -> tuple[int, float]:
        return 0, 0.0

    def worst(self, n: int) -> list[float]:
        return [0.0, 0.0]


# ---------------------------------------------------------------------------------- the products
STORED = {"bf16": "bf16", "fp16": "f16", "fp16h": "f16", "e4m3": "e4m3", "e5m2": "e5m2"}
DEPTH = {"bf16": 16, "fp16": 16, "fp16h": 16, "tf32": 8, "e4m3": 32, "e5m2": 32}
RANGE = {  # least exponent of a normal number, largest exponent, significand bits
    "bf16": (-126, 127, 8),
    "fp16": (-14, 15, 11),
    "fp16h": (-14, 15, 11),
    "tf32": (-126, 127, 11),
    "e4m3": (-6, 8, 4),
    "e5m2": (-14, 15, 3),
}


def raw(kind: str, x: Any) -> Any:
    """float32 values as the unsigned integers that the kernel reads."""
    if kind == "tf32":
        return numerics.round_to(x, "tf32").view(np.uint32)
    stored = numerics.encode(x, STORED[kind])
    return stored.view(np.uint16 if stored.itemsize == 2 else np.uint8)


def values(kind: str, bits: Any) -> Any:
    if kind == "tf32":
        return bits.view(np.float32)
    return numerics.decode(bits.view(numerics.STORAGE[STORED[kind]]))


def cells(c: Any) -> Any:
    return c if c.dtype == np.float32 else numerics.decode(c.view(np.float16))


def model(kind: str, a: Any, b: Any, c: Any) -> Any:
    half = kind == "fp16h"
    return numerics.mma_sync(
        a, b, c, dtype="fp16" if half else kind, arch="hopper", out="fp16" if half else "fp32"
    )


def floats(rng: Any, shape: Any, low: int, high: int, bits: int) -> Any:
    """Random signs, significands of `bits` bits and exponents from low to high."""
    m = rng.integers(1 << (bits - 1), 1 << bits, shape).astype(np.float64)
    e = rng.integers(low, high + 1, shape)
    return np.ldexp(m * rng.choice([-1.0, 1.0], shape), e - bits + 1)


def inputs(kind: str, what: str, n: int, rng: Any, rows: int = 16) -> tuple[Any, Any, Any]:
    """n problems: A (n, rows, k), B (n, k, 8), C (n, rows, 8) in float64, before rounding."""
    k, (least, most, bits) = DEPTH[kind], RANGE[kind]
    sa, sb, sc = (n, rows, k), (n, k, 8), (n, rows, 8)
    half = kind == "fp16h"
    c_low, c_high, c_bits = (-24, 14, 11) if half else (-140, 126, 24)
    middle = max(least, -60), min(most, 60)
    one = {"fp16h": (-8, 7)}.get(kind, middle)
    a, b = floats(rng, sa, *one, bits), floats(rng, sb, *one, bits)
    c = floats(rng, sc, max(2 * one[0], c_low), min(2 * one[1], c_high), c_bits)
    if what == "normal":
        a, b, c = (rng.standard_normal(s) for s in (sa, sb, sc))
    elif what == "near":  # exponents within a few of each other: every bit of the cut matters
        a, b = floats(rng, sa, -3, 0, bits), floats(rng, sb, -3, 0, bits)
        c = floats(rng, sc, -12, 2, c_bits)
    elif what == "cancel":  # pairs of products that cancel, all but a little
        a, b = floats(rng, sa, -4, 4, bits), floats(rng, sb, -4, 4, bits)
        h = k // 2
        a[..., h:] = -a[..., :h] * (
            1 + (rng.integers(0, 4, a[..., h:].shape) == 0) * 2.0 ** (1 - bits)
        )
        b[:, h:] = b[:, :h]
        c = floats(rng, sc, -20, -6, c_bits)
    elif what == "cancel c":
        a, b = floats(rng, sa, -4, 4, bits), floats(rng, sb, -4, 4, bits)
        c = -np.matmul(numerics.round_to(a.astype(np.float32), STORED.get(kind, "tf32")).astype(np.float64),
                       numerics.round_to(b.astype(np.float32), STORED.get(kind, "tf32")).astype(np.float64))  # fmt: skip
    elif what == "subnormal":  # inputs and results below the normal range
        tiny = least - bits + 1
        a = floats(rng, sa, tiny, least + 1, bits)
        up = max(min(most, -least - 24), least + 4)
        b = floats(rng, sb, up - 30 if up > 20 else least, up, bits)
        c = floats(rng, sc, -24 if half else -149, -14 if half else -120, c_bits)
    elif what == "tiny":  # products around and below the least number of the result
        target = -24 if half else -150
        low = max(least - bits + 1, target // 2 - 6)
        high = max(min(target // 2 + 6, most), low + 3)  # fp8 has none so small: its least
        a, b = (floats(rng, s, low, high, bits) for s in (sa, sb))
        c = floats(rng, sc, target - 1, target + 12, c_bits) * (rng.random(sc) < 0.5)
    elif what == "zeros":  # zeros of both signs times anything, and zero c
        a *= rng.random(sa) < 0.3
        b *= rng.random(sb) < 0.5
        c *= rng.random(sc) < 0.3
    elif what == "integers":
        top = 2 ** min(bits, 8)
        a, b, c = (rng.integers(-top, top + 1, s).astype(float) for s in (sa, sb, sc))
    elif what == "large c":
        c = floats(rng, sc, 6, 14 if half else 40, c_bits)
        a, b = floats(rng, sa, -6, 4, bits), floats(rng, sb, -6, 4, bits)
    elif what == "overflow":  # sums near and past the result's largest number
        if half:
            a, b = floats(rng, sa, 4, 8, bits), floats(rng, sb, 4, 8, bits)
            c = floats(rng, sc, 13, 15, c_bits)
        elif most > 100:
            a, b = floats(rng, sa, 60, 65, bits), floats(rng, sb, 60, 65, bits)
            c = floats(rng, sc, 124, 127, c_bits)
        else:
            a, b = floats(rng, sa, most - 1, most, bits), floats(rng, sb, most - 1, most, bits)
            c = floats(rng, sc, 127, 127, c_bits)
    elif what == "special":  # infinities and NaN among ordinary numbers and zeros
        for v, p in ((a, 0.004), (b, 0.004), (c, 0.05)):
            u = rng.random(v.shape)
            v[u < p] = np.inf
            v[u < 0.6 * p] = -np.inf
            v[u < 0.2 * p] = np.nan
            v[u > 0.9] = 0.0
        if kind == "e4m3":  # it has no infinity: numerics.encode would saturate
            a[np.isinf(a)] = np.nan
    elif what != "wide":
        raise ValueError(what)
    return a, b, c


KINDS = (
    "normal", "near", "wide", "cancel", "cancel c", "subnormal", "tiny", "zeros", "integers",
    "large c", "overflow", "special",
)  # fmt: skip


def as_raw(kind: str, x: Any) -> Any:
    x = x.astype(np.float32)
    bits = raw(kind, x)
    if kind == "e5m2":  # encode saturates infinities; here they are wanted
        bits[np.isinf(x)] = np.where(x[np.isinf(x)] > 0, 0x7C, 0xFC)
    return bits


def products(gpu: Any, n: int, kept: dict[str, Any]) -> dict[str, Any]:
    rng = np.random.default_rng(20)
    report: dict[str, Any] = {}
    total = wrong = 0
    for kind in DEPTH:
        for what in KINDS:
            a, b, c = inputs(kind, what, n, rng)
            a, b = as_raw(kind, a), as_raw(kind, b)
            with np.errstate(over="ignore"):
                c = c.astype(np.float32)
            if kind == "fp16h":
                c = numerics.encode(c, "f16").view(np.uint16)
            d = gpu.mma(kind, a, b, c)
            want = model(kind, values(kind, a), values(kind, b), cells(c))
            want = numerics.encode(want, "f16") if kind == "fp16h" else want
            word = np.uint16 if kind == "fp16h" else np.uint32
            got, want = d.view(word), want.view(word)
            bad = got != want
            number = d.view(np.float16) if kind == "fp16h" else d
            nan = np.isnan(number)
            entry = {
                "dots": int(bad.size),
                "mismatches": int(bad.sum()),
                "sign_of_zero_only": int((bad & (number == 0) & ((got ^ want) << 1 == 0)).sum()),
                "both_nan_other_bits": int((bad & nan & np.isnan(want.view(number.dtype))).sum()),
                "inf": int(np.isinf(number).sum()),
                "zero": int((number == 0).sum()),
                "nan_bits": sorted({hex(v) for v in got[nan].ravel().tolist()})[:4],
            }
            report[f"{kind} {what}"] = entry
            total, wrong = total + entry["dots"], wrong + entry["mismatches"]
            keep = np.unique(np.concatenate([[0], np.argwhere(bad)[:, 0]]))[:4]
            name = f"{kind}_{what.replace(' ', '_')}"
            for key, v in zip("abcd", (a, b, c, d)):
                kept[f"{name}_{key}"] = v[keep]
            if entry["mismatches"]:
                print(f"{kind:6} {what:10} {entry}", flush=True)
    report["total"] = {"dots": total, "mismatches": wrong}
    print("products:", report["total"], flush=True)
    return report


# --------------------------------------------------------------------------------- the functions
def reference(name: str, x: Any) -> Any:
    known = {"ex2": functions.exp2, "lg2": functions.log2}
    with np.errstate(all="ignore"):
        if name == "reciprocal":
            return (np.float32(1) / x).astype(np.float32)
        if name == "thirds":
            return (x / np.float32(3)).astype(np.float32)
        return known.get(name, functions.MAPS.get(name))(x)


def differ(got: Any, want: Any) -> Any:
    """Where bits differ; any NaN equals any NaN."""
    return (got.view(np.uint32) != want.view(np.uint32)) & ~(np.isnan(got) & np.isnan(want))


def compare(gpu: Any, name: str, x: Any, label: str, report: dict[str, Any]) -> Any:
    got, want = gpu.map(name, x), reference(name, x)
    bad = np.flatnonzero(differ(got, want))
    nan = np.isnan(got)
    report[f"{name} {label}"] = {
        "values": int(x.size),
        "mismatches": int(bad.size),
        "nan_bits": sorted({hex(v) for v in got[nan].view(np.uint32)[:10000].tolist()})[:4],
        "first": [[float(v[i]).hex() if np.isfinite(v[i]) else str(v[i]) for v in (x, got, want)] for i in bad[:12]],
    }  # fmt: skip
    print(
        f"{name} {label}: {bad.size} of {x.size}",
        report[f"{name} {label}"]["first"][:6],
        flush=True,
    )
    return got


def edges() -> Any:
    """Zeros, whole numbers, powers of two and their neighbours, subnormals, limits, NaN."""
    whole = np.arange(-160, 161, dtype=np.float32)
    powers = np.ldexp(np.float32(1), np.arange(-149, 128)).astype(np.float32)
    base = np.concatenate(
        [whole, powers, -powers, np.float32([np.inf, -np.inf, np.nan, 0.0, -0.0])]
    )
    bits = base.view(np.uint32)
    near = np.concatenate([bits + np.uint32(d & 0xFFFFFFFF) for d in (-2, -1, 0, 1, 2)])
    halves = (whole + np.float32(0.5)).view(np.uint32)
    return np.concatenate([near, halves]).view(np.float32)


def error(got: Any, exact: Any, x: Any, how: str) -> list[float]:
    """Largest difference and its argument."""
    e = np.abs(got.astype(np.float64) - exact)
    if how == "relative":
        e /= np.abs(exact)
    elif how == "ulp":
        e /= np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64)
    e[~np.isfinite(e)] = 0
    i = int(e.argmax())
    return [float(e[i]), float(x[i])]


def deltas(got: Any, exact: Any) -> Any:
    """Units in the last place between the results and the rounded function."""
    d = got.view(np.int32).astype(np.int64) - exact.astype(np.float32).view(np.int32)
    return np.clip(d, -32768, 32767).astype(np.int16)


def packed(x: Any) -> Any:
    small = x.astype(np.int8) if np.abs(x).max() < 128 else x
    return np.frombuffer(lzma.compress(small.tobytes(), preset=2), np.uint8)


def maps(gpu: Any, kept: dict[str, Any]) -> dict[str, Any]:
    report: dict[str, Any] = {}
    f = np.arange(FRACTIONS, dtype=np.uint32)
    one = (f | np.uint32(0x3F800000)).view(np.float32)  # [1, 2)
    part = (f.astype(np.float64) / FRACTIONS).astype(np.float32)  # [0, 1), exact
    hashes, tables = {}, {}
    for key, name, x, scale in (
        ("ex2", "ex2", part, 23), ("rcp", "rcp", one, 24),
        ("rsqrt1", "rsqrt", one, 24), ("rsqrt2", "rsqrt", one * np.float32(2), 24),
    ):  # fmt: skip
        got = compare(gpu, name, x, f"all fractions ({key})", report)
        tables[key] = got
        table = np.ldexp(got, scale).astype("<i4")
        hashes[key] = hashlib.sha256(table.tobytes()).hexdigest()
    compare(gpu, "ex2", -part, "all negative fractions", report)
    compare(gpu, "ex2", -one * np.float32(16), "[-32, -16)", report)
    report["sha256"] = hashes
    tables["rsqrt"] = np.concatenate([tables.pop("rsqrt1"), tables.pop("rsqrt2")])
    for name, table in tables.items():
        bad, where = gpu.check(name, table)
        report[f"{name} all floats"] = {"values": 1 << 32, "mismatches": bad, "first": []}
        print(f"{name} all floats: {bad}", where if bad else "", flush=True)
    report["worst"] = {what: gpu.worst(n) for n, what in enumerate(WORST)}
    for what, v in report["worst"].items():
        print("all floats:", what, v, flush=True)
    edge = edges()
    every = np.arange(0, 1 << 32, 251, dtype=np.uint32).view(np.float32)
    for name in ("ex2", "rcp", "rsqrt"):
        compare(gpu, name, edge, "edges", report)
        compare(gpu, name, every, "every 251st float", report)
    for name in ("sqrt", "reciprocal", "thirds"):
        compare(gpu, name, every, "every 251st float", report)
    for name in ("lg2", "tanh", "sin", "cos"):
        got = gpu.map(name, edge)
        kept[f"edges_{name}"] = got
        report[f"{name} edges"] = {"mismatches": int(differ(got, reference(name, edge)).sum())}
    kept["edges_x"] = edge

    exact = np.log2(one.astype(np.float64))
    upper = gpu.map("lg2", one)
    lower = gpu.map("lg2", one * np.float32(0.5))
    report["lg2 [1, 2) absolute"] = error(upper, exact, one, "absolute")
    report["lg2 [0.5, 1) absolute"] = error(lower, exact - 1, one / 2, "absolute")
    kept["lg2_upper"], kept["lg2_lower"] = (
        packed(deltas(upper, exact)),
        packed(deltas(lower, exact - 1)),
    )
    for n in (1, 2, 5, 20, 100, -2, -3, -30, -126):  # is lg2(2**n m) a rounding of n + lg2(m)?
        got = gpu.map("lg2", np.ldexp(one, n))
        total = n + upper.astype(np.float64)
        near = total.astype(np.float32)
        cut = np.where(np.abs(near) > np.abs(total), np.nextafter(near, np.float32(0)), near)
        report[f"lg2 octave {n}"] = {
            "not_nearest": int((got != near).sum()),
            "not_toward_zero": int((got != cut).sum()),
            "relative": error(got, n + exact, one, "relative"),
            "ulp": error(got, n + exact, one, "ulp"),
        }
    low = (np.arange(1, 1 << 23, 7, dtype=np.uint32)).view(np.float32)
    report["lg2 subnormal relative"] = error(
        gpu.map("lg2", low), np.log2(low.astype(np.float64)), low, "relative"
    )

    x = np.concatenate([np.ldexp(one[::16], n) for n in range(-20, 5)])
    got = gpu.map("tanh", x)
    report["tanh relative"] = error(got, np.tanh(x.astype(np.float64)), x, "relative")
    report["tanh odd"] = int((gpu.map("tanh", -x) != -got).sum())
    for n in (-3, -2, -1, 0, 1):
        y = np.ldexp(one[: 1 << 16], n)
        kept[f"tanh_{n}"] = packed(deltas(gpu.map("tanh", y), np.tanh(y.astype(np.float64))))
    rng = np.random.default_rng(5)
    for name, f64 in (("sin", np.sin), ("cos", np.cos)):
        for label, x in (
            ("[-4, 4]", rng.uniform(-4, 4, 1 << 22)), ("[-1000, 1000]", rng.uniform(-1000, 1000, 1 << 21)),
            ("all exponents", every[np.isfinite(every)][::8]),
        ):  # fmt: skip
            x = x.astype(np.float32)
            report[f"{name} {label} ulp"] = error(
                gpu.map(name, x), f64(x.astype(np.float64)), x, "ulp"
            )
    for key, v in report.items():
        if key.split()[0] in ("lg2", "tanh", "sin", "cos"):
            print(key, v, flush=True)
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("tensor_bits.npz"))
    parser.add_argument("--problems", type=int, default=512, help="of 128 dot products, per kind")
    parser.add_argument("--dry", action="store_true", help="the model in place of the GPU")
    parser.add_argument("--compile", metavar="90", help="compile only, no GPU needed")
    options = parser.parse_args()
    if options.compile:
        print(len(compiled(int(options.compile))), "bytes")
        return
    start = time.perf_counter()
    gpu = Dry() if options.dry else Gpu()
    kept: dict[str, Any] = {}
    about: dict[str, Any] = {
        "device": gpu.name,
        "driver": gpu.driver,
        "command": " ".join(sys.argv),
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "options": OPTIONS,
        "seconds": {},
    }
    for name, part in (
        ("products", lambda: products(gpu, options.problems, kept)),
        ("maps", lambda: maps(gpu, kept)),
    ):
        before = time.perf_counter()
        about[name] = part()
        about["seconds"][name] = round(time.perf_counter() - before, 1)
        # Written after each part: what is there counts if the rest does not finish.
        kept["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
        tables = {k: v for k, v in kept.items() if k.startswith(("lg2_", "tanh_"))}
        np.savez_compressed(options.out, **{k: v for k, v in kept.items() if k not in tables})
        if tables:
            np.savez(options.out.with_name(options.out.stem + "_tables.npz"), **tables)
    size = options.out.stat().st_size
    print(f"wrote {options.out}: {size} bytes; {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
