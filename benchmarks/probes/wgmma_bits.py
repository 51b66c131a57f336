"""Does wgmma compute what tklearn.numerics says, bit for bit?

One m64n8 step of wgmma in every number format (bf16, f16 with float and f16 accumulators, tf32, e4m3,
e5m2) on the inputs of tensor_bits.py: random, extreme, cancelling, subnormal, special; 512 dot
products an instruction, compared with `numerics.product(..., arch="hopper")`, which is `dot` of rows
and columns. Also: D = A B without what was in D (scale-d = 0), where D holds numbers, infinities and
NaN; A from registers against A from shared memory; and what becomes of a float's low 13 bits in a
tf32 product. Operands lie in shared memory without a swizzle, in the instruction's own 8 x 16-byte
matrices, so that nothing of tklearn's headers is between the numbers and the tensor core. Some problems
of each kind are kept for tests/test_wgmma_bits.py.

Run on the GPU machine (about 20 s), in the repository's root:

    python3 benchmarks/probes/wgmma_bits.py --out some/folder

It writes h200_wgmma_bits.npz there. Without a GPU, --compile compiles the kernels and --dry runs all
but the GPU's part.
"""

# ruff: noqa: E501 (lines of generated C++)
from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import tensor_bits as bits

from tklearn import numerics
from tklearn.cuda.compile import OPTIONS, load_nvrtc

NAME = "h200_wgmma_bits.npz"
ROWS, COLS = 64, 8
TYPES = {  # element, types of D, A, B in the instruction's name
    "bf16": ("unsigned short", "f32.bf16.bf16"),
    "fp16": ("unsigned short", "f32.f16.f16"),
    "fp16h": ("unsigned short", "f16.f16.f16"),
    "tf32": ("unsigned", "f32.tf32.tf32"),
    "e4m3": ("unsigned char", "f32.e4m3.e4m3"),
    "e5m2": ("unsigned char", "f32.e5m2.e5m2"),
}
SIXTEEN = ("bf16", "fp16", "fp16h")


def source() -> str:
    """One warpgroup a block: block b multiplies matrices number b. A is 64 x k, B k x 8.

    In shared memory the matrices are cut into pieces of 8 rows (of m or n) by 16 bytes (of k), 128
    bytes each: pieces along k lie 128 bytes apart (the descriptor's leading byte offset), pieces along
    rows 256 (its stride byte offset).
    """
    out = []
    for name, (element, types) in TYPES.items():
        k = bits.DEPTH[name]
        per = 16 // (32 // k)  # elements in 16 bytes: a row of k elements is 32 bytes
        half = name == "fp16h"
        cells, regs = ("unsigned short", 2) if half else ("float", 4)
        trans = ", 0, 0" if name in SIXTEEN else ""
        letter, word = ("r", "unsigned") if half else ("f", "float")
        d = ", ".join(f"%{i}" for i in range(regs))
        operands = ", ".join(f'"+{letter}"(d[{i}])' for i in range(regs))
        at = [f"(row + {8 * (i >> 1)}) * 8 + 2 * t + {i & 1}" for i in range(4)]
        if half:
            load = " ".join(
                f"d[{i}] = C[{at[2 * i]}] | (unsigned)C[{at[2 * i + 1]}] << 16;" for i in range(2)
            )
            store = " ".join(
                f"D[{at[2 * i]}] = d[{i}]; D[{at[2 * i + 1]}] = d[{i}] >> 16;" for i in range(2)
            )
        else:
            load = " ".join(f"d[{i}] = C[{at[i]}];" for i in range(4))
            store = " ".join(f"D[{at[i]}] = d[{i}];" for i in range(4))
        n = regs
        both = f"""
    asm volatile("{{\\n\\t.reg .pred p;\\n\\tsetp.ne.b32 p, %{n + 2}, 0;\\n\\t"
        "wgmma.fence.sync.aligned;\\n\\t"
        "wgmma.mma_async.sync.aligned.m64n8k{k}.{types} {{{d}}}, %{n}, %{n + 1}, p, 1, 1{trans};\\n\\t"
        "wgmma.commit_group.sync.aligned;\\n\\twgmma.wait_group.sync.aligned 0;\\n\\t}}"
        : {operands} : "l"(describe(a)), "l"(describe(b)), "r"(keep) : "memory");"""
        mixed = f"""
    unsigned x[4];
    for (int i = 0; i < 4; i++) {{
        const {element}* p = A + (row + 8 * (i & 1)) * {k} + 2 * t + 8 * (i >> 1);
        x[i] = p[0] | (unsigned)p[1] << 16;
    }}
    asm volatile("{{\\n\\t.reg .pred p;\\n\\tsetp.ne.b32 p, %{n + 5}, 0;\\n\\t"
        "wgmma.fence.sync.aligned;\\n\\t"
        "wgmma.mma_async.sync.aligned.m64n8k{k}.{types} {{{d}}}, {{%{n}, %{n + 1}, %{n + 2}, %{n + 3}}}, %{n + 4}, p, 1, 1, 0;\\n\\t"
        "wgmma.commit_group.sync.aligned;\\n\\twgmma.wait_group.sync.aligned 0;\\n\\t}}"
        : {operands} : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "l"(describe(b)), "r"(keep) : "memory");"""
        for suffix, body in (("", both), *((("_mixed", mixed),) if name in SIXTEEN else ())):
            out.append(f"""
extern "C" __global__ void __launch_bounds__(128) wgmma_{name}{suffix}(
        const {element}* A, const {element}* B, const {cells}* C, {cells}* D, int keep) {{
    __shared__ __align__(1024) {element} a[{ROWS * k}], b[{COLS * k}];
    A += blockIdx.x * {ROWS * k}; B += blockIdx.x * {COLS * k}; C += blockIdx.x * {ROWS * COLS}; D += blockIdx.x * {ROWS * COLS};
    for (int i = threadIdx.x; i < {ROWS * k}; i += 128) a[place<{per}>(i / {k}, i % {k})] = A[i];
    for (int i = threadIdx.x; i < {COLS * k}; i += 128) b[place<{per}>(i % 8, i / 8)] = B[i];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    int lane = threadIdx.x & 31, t = lane & 3, row = (threadIdx.x >> 5) * 16 + (lane >> 2);
    {word} d[{regs}];
    {load}{body}
    {store}
}}""")
    return """
template <int PER> __device__ int place(int row, int k) {  // elements from the start of the operand
    return ((row >> 3) * 2 + k / PER) * 8 * PER + (row & 7) * PER + k % PER;
}
__device__ unsigned long long describe(const void* p) {
    unsigned address = (unsigned)__cvta_generic_to_shared(p);
    return (unsigned long long)(256 >> 4) << 32 | (unsigned long long)(128 >> 4) << 16 | (address & 0x3ffff) >> 4;
}""" + "".join(out)


def compiled() -> bytes:
    nvrtc = load_nvrtc()
    program = nvrtc.createProgram(source(), "wgmma_bits.cu", (), ())
    try:
        nvrtc.compileProgram(program, ("-arch=sm_90a", *OPTIONS))
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
            file.write_bytes(compiled())
            self.module = cupy.RawModule(path=str(file))
            self.module.get_function("wgmma_bf16")  # loads it
        p = cupy.cuda.runtime.getDeviceProperties(0)
        self.name = p["name"].decode()
        self.driver = cupy.cuda.runtime.driverGetVersion()

    def __call__(self, kind: str, a: Any, b: Any, c: Any, keep: int, suffix: str = "") -> Any:
        cp = self.cupy
        args = [cp.asarray(np.ascontiguousarray(v)) for v in (a, b, c)]
        d = cp.empty_like(args[2])
        kernel = self.module.get_function(f"wgmma_{kind}{suffix}")
        kernel((len(a),), (128,), (*args, d, np.int32(keep)))
        return d.get()


class Dry:
    """The model in place of the GPU, to try this program."""

    name, driver = "dry run", 0

    def __call__(self, kind: str, a: Any, b: Any, c: Any, keep: int, suffix: str = "") -> Any:
        return model(kind, a, b, c, keep)


def model(kind: str, a: Any, b: Any, c: Any, keep: int) -> Any:
    """What tklearn.numerics says, in the stored form of the result."""
    half = kind == "fp16h"
    dtype = "fp16" if half else kind
    x, y = bits.values(kind, a), bits.values(kind, b)
    z = bits.cells(c) if keep else np.zeros(c.shape, np.float32)
    with np.errstate(all="ignore"):
        d = numerics.product(x, y, z, dtype=dtype, arch="hopper", out="fp16" if half else "fp32")
    return numerics.encode(d, "f16").view(np.uint16) if half else d


def entry(kind: str, got: Any, want: Any) -> tuple[dict[str, Any], Any]:
    """Counts of one comparison, and where bits differ."""
    half = kind == "fp16h"
    word = np.uint16 if half else np.uint32
    g, w = got.view(word), want.view(word)
    number, wanted = (v.view(np.float16) if half else v for v in (got, want))
    bad, nan = g != w, np.isnan(number)
    return {
        "dots": int(bad.size),
        "mismatches": int(bad.sum()),
        "sign_of_zero_only": int((bad & (number == 0) & ((g ^ w) << 1 == 0)).sum()),
        "both_nan_other_bits": int((bad & nan & np.isnan(wanted)).sum()),
        "inf": int(np.isinf(number).sum()),
        "zero": int((number == 0).sum()),
        "nan_bits": sorted({hex(v) for v in g[nan].ravel().tolist()})[:4],
    }, bad


def problems(kind: str, what: str, n: int, rng: Any) -> tuple[Any, Any, Any]:
    a, b, c = bits.inputs(kind, what, n, rng, ROWS)
    with np.errstate(over="ignore"):
        c = c.astype(np.float32)
    if kind == "fp16h":
        c = numerics.encode(c, "f16").view(np.uint16)
    return bits.as_raw(kind, a), bits.as_raw(kind, b), c


def products(gpu: Any, n: int, kept: dict[str, Any]) -> dict[str, Any]:
    rng = np.random.default_rng(21)
    report: dict[str, Any] = {}
    total = {"dots": 0, "mismatches": 0}

    def compare(kind: str, label: str, a: Any, b: Any, c: Any, keep: int, suffix: str = "") -> None:
        got, want = gpu(kind, a, b, c, keep, suffix), model(kind, a, b, c, keep)
        made, bad = entry(kind, got, want)
        report[f"{kind} {label}"] = made
        total["dots"] += made["dots"]
        total["mismatches"] += made["mismatches"]
        problem = int(np.argwhere(bad)[0, 0]) if bad.any() else 0  # one is kept, 16 of its rows
        rows = np.argsort(~bad[problem].any(-1), kind="stable")[:16]
        name = f"{kind}_{label.replace(' ', '_')}"
        for key, v in zip("abcd", (a, b, c, got), strict=True):
            kept[f"{name}_{key}"] = v[problem] if key == "b" else v[problem][rows]
        if made["mismatches"]:
            print(f"{kind:6} {label:22} {made}", flush=True)

    for kind in TYPES:
        for what in bits.KINDS:
            a, b, c = problems(kind, what, n, rng)
            compare(kind, what, a, b, c, 1)
            if what in ("normal", "special", "zeros"):
                compare(kind, f"{what} keep 0", a, b, c, 0)
            if kind in SIXTEEN and what in ("normal", "wide", "special"):
                compare(kind, f"{what} registers", a, b, c, 1, "_mixed")
    report["total"] = dict(total)
    print("products:", total, flush=True)
    return report


def low_bits(gpu: Any, n: int, kept: dict[str, Any]) -> dict[str, Any]:
    """Floats with all 24 bits as tf32 operands: cut, rounded to nearest, or used?"""
    rng = np.random.default_rng(22)
    k = bits.DEPTH["tf32"]
    shapes = (n, ROWS, k), (n, k, COLS)
    a, b = (rng.standard_normal(s).astype(np.float32).view(np.uint32) for s in shapes)
    c = np.zeros((n, ROWS, COLS), np.float32)
    got = gpu("tf32", a, b, c, 1)
    cut = [v & np.uint32(0xFFFFE000) for v in (a, b)]
    away = [(v + np.uint32(0x1000)) & np.uint32(0xFFFFE000) for v in (a, b)]  # cvt.rna
    even = [numerics.round_to(v.view(np.float32), "tf32").view(np.uint32) for v in (a, b)]
    report = {
        how: entry("tf32", got, model("tf32", *v, c, 1))[0]["mismatches"]
        for how, v in (("cut", cut), ("rounded away", away), ("rounded to even", even))
    }
    for key, v in zip("abcd", (a, b, c, got), strict=True):
        kept[f"low_{key}"] = v[0] if key == "b" else v[0][:16]
    print("tf32 of whole floats, mismatches if the low bits are", report, flush=True)
    return report | {"dots": int(got.size)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(), help=f"folder for {NAME}")
    parser.add_argument("--problems", type=int, default=64, help="of 512 dot products, per kind")
    parser.add_argument("--dry", action="store_true", help="the model in place of the GPU")
    parser.add_argument("--compile", action="store_true", help="compile only, no GPU needed")
    options = parser.parse_args()
    if options.compile:
        print(len(compiled()), "bytes")
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
    }
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / NAME
    for name, part in (("products", products), ("low_bits", low_bits)):
        about[name] = part(gpu, options.problems, kept)
        about["seconds"] = round(time.perf_counter() - start, 1)
        # Written after each part: what is there counts if the rest does not finish.
        kept["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
        np.savez_compressed(file, **kept)
    print(f"wrote {file}: {file.stat().st_size} bytes; {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
