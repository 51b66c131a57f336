"""Who holds what, asked of the hardware: every map of lang/layouts.py, in raw CUDA.

    python benchmarks/probes/maps.py --out maps.json

Each probe sends codes through one instruction and keeps the raw registers or bytes that came out;
tests/test_maps.py reads them with layouts.py. A code is a digit of "lane / 4, lane % 4, element", small
enough for every number format, in three runs. The other operand selects one column (or row), so
that each result is one element's code. `--compile` only compiles (needs no GPU).

Standalone: CuPy and NVRTC, and nothing of tklearn but this file's question.
"""
# ruff: noqa: E501 (lines of C++)

import argparse
import datetime
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

DIGITS = ("g", "t", "i")
MMA = {  # name: (PTX types, k, elements of A and B a lane, elements in a register, C type)
    "m16n8k16.bf16": ("m16n8k16.row.col.f32.bf16.bf16.f32", 16, 8, 4, 2, "bf16"),
    "m16n8k16.f16": ("m16n8k16.row.col.f32.f16.f16.f32", 16, 8, 4, 2, "f16"),
    "m16n8k8.f16": ("m16n8k8.row.col.f32.f16.f16.f32", 8, 4, 2, 2, "f16"),
    "m16n8k8.tf32": ("m16n8k8.row.col.f32.tf32.tf32.f32", 8, 4, 2, 1, "tf32"),
    "m16n8k32.e4m3": ("m16n8k32.row.col.f32.e4m3.e4m3.f32", 32, 16, 8, 4, "e4m3"),
}
SWIZZLES = {128: (1, 1024), 64: (2, 512), 32: (3, 256)}  # bytes: descriptor mode, SBO


def mma_kernel(name: str) -> str:
    """D of one mma.sync; a, b: packed registers [32, n], out: D's registers [32, 4]."""
    ptx, _, na, nb, per, _ = MMA[name]
    a, b = na // per, nb // per
    inputs = ", ".join([f'"r"(a[lane * {a} + {i}])' for i in range(a)]
                       + [f'"r"(b[lane * {b} + {i}])' for i in range(b)])  # fmt: skip
    regs_a = ", ".join(f"%{4 + i}" for i in range(a))
    regs_b = ", ".join(f"%{4 + a + i}" for i in range(b))
    return f"""
extern "C" __global__ void {name.replace(".", "_")}(const unsigned* a, const unsigned* b, float* out) {{
    const int lane = threadIdx.x;
    float d[4] = {{0.f, 0.f, 0.f, 0.f}};
    asm volatile("mma.sync.aligned.{ptx} {{%0, %1, %2, %3}}, {{{regs_a}}}, {{{regs_b}}}, {{%0, %1, %2, %3}};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : {inputs});
    for (int i = 0; i < 4; i++) out[lane * 4 + i] = d[i];
}}
"""


def matrix_kernels(n: int, trans: bool) -> str:
    """ldmatrix of shared memory that holds 0, 1, 2, ...; stmatrix of registers that do."""
    t = ".trans" if trans else ""
    regs = "{" + ", ".join(f"%{i}" for i in range(n)) + "}"
    outs = ", ".join(f'"=r"(r[{i}])' for i in range(n))
    ins = ", ".join(f'"r"(r[{i}])' for i in range(n))
    inputs = "{" + ", ".join(f"%{1 + i}" for i in range(n)) + "}"
    name = f"x{n}{'t' if trans else ''}"
    return f"""
extern "C" __global__ void ldmatrix_{name}(const int* at, unsigned* out) {{
    __shared__ __align__(128) unsigned short s[2048];
    for (int i = threadIdx.x; i < 2048; i += 32) s[i] = i;
    __syncwarp();
    unsigned address = (unsigned)__cvta_generic_to_shared(s) + at[threadIdx.x], r[{n}];
    asm volatile("ldmatrix.sync.aligned.m8n8.x{n}{t}.shared.b16 {regs}, [%{n}];"
        : {outs} : "r"(address) : "memory");
    for (int i = 0; i < {n}; i++) out[threadIdx.x * {n} + i] = r[i];
}}
extern "C" __global__ void stmatrix_{name}(const int* at, unsigned* out) {{
    __shared__ __align__(128) unsigned s[1024];
    for (int i = threadIdx.x; i < 1024; i += 32) s[i] = 0xffffffffu;
    __syncwarp();
    unsigned address = (unsigned)__cvta_generic_to_shared(s) + at[threadIdx.x], r[{n}];
    for (int i = 0; i < {n}; i++) {{
        unsigned code = (threadIdx.x * {n} + i) * 2;
        r[i] = code | (code + 1) << 16;
    }}
    asm volatile("stmatrix.sync.aligned.m8n8.x{n}{t}.shared.b16 [%0], {inputs};"
        :: "r"(address), {ins} : "memory");
    __syncwarp();
    for (int i = threadIdx.x; i < 1024; i += 32) out[i] = s[i];
}}
"""


def wgmma_kernel(registers: bool) -> str:
    """D of one wgmma m64n64k16 bf16: A (64 x 16) and B (64 x 16, by rows of n) lie in shared memory
    as the host wrote them, or A in registers; mode and sbo describe the swizzle."""
    d = ", ".join(f"%{i}" for i in range(32))
    outs = ", ".join(f'"+f"(d[{i}])' for i in range(32))
    if registers:
        a_text, b_text = "{%32, %33, %34, %35}", "%36"
        ins = ", ".join(f'"r"(regs[threadIdx.x * 4 + {i}])' for i in range(4)) + ', "l"(desc_b)'
        tail = "1, 1, 1, 0"
    else:
        a_text, b_text, ins, tail = "%32", "%33", '"l"(desc_a), "l"(desc_b)', "1, 1, 1, 0, 0"
    return f"""
extern "C" __global__ void __launch_bounds__(128) wgmma_{"regs" if registers else "shared"}(
        const uint4* a, const uint4* b, const unsigned* regs, float* out, unsigned long long mode, unsigned sbo) {{
    __shared__ __align__(1024) uint4 s[2][512];
    for (int i = threadIdx.x; i < 512; i += 128) s[0][i] = a[i], s[1][i] = b[i];
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
    unsigned long long tail = 1ull << 16 | (unsigned long long)(sbo >> 4) << 32 | mode << 62;
    unsigned long long desc_a = (unsigned)__cvta_generic_to_shared(s[0]) >> 4 | tail;
    unsigned long long desc_b = (unsigned)__cvta_generic_to_shared(s[1]) >> 4 | tail;
    float d[32];
    for (int i = 0; i < 32; i++) d[i] = 0.f;
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {{{d}}}, {a_text}, {b_text}, {tail};"
        : {outs} : {ins});
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    for (int i = 0; i < 32; i++) out[threadIdx.x * 32 + i] = d[i];
}}
"""


TMA = """
struct alignas(64) map { unsigned long long opaque[16]; };
extern "C" __global__ void tma_load(const __grid_constant__ map m, unsigned* out, int words) {
    extern __shared__ __align__(1024) unsigned s[];
    __shared__ __align__(8) unsigned long long bar;
    unsigned at = (unsigned)__cvta_generic_to_shared(s), b = (unsigned)__cvta_generic_to_shared(&bar);
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(b) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster; fence.proxy.async;" ::: "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" :: "r"(b), "r"(words * 4) : "memory");
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {0, 0}], [%2];"
            :: "r"(at), "l"(&m), "r"(b) : "memory");
    }
    __syncthreads();
    unsigned done = 0;
    while (!done)
        asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.u32 %0, 1, 0, p;}"
            : "=r"(done) : "r"(b) : "memory");
    for (int i = threadIdx.x; i < words; i += blockDim.x) out[i] = s[i];
}
"""


def source() -> str:
    parts = [mma_kernel(n) for n in MMA]
    parts += [matrix_kernels(n, t) for n in (1, 2, 4) for t in (False, True)]
    return "".join([*parts, wgmma_kernel(False), wgmma_kernel(True), TMA])


def compiled(arch: str = "sm_90a") -> bytes:
    from cupy.cuda import nvrtc

    program = nvrtc.createProgram(source(), "maps.cu", (), ())
    try:
        nvrtc.compileProgram(program, (f"-arch={arch}", "-std=c++17"))
    except nvrtc.NVRTCError:
        print(nvrtc.getProgramLog(program))
        raise
    return nvrtc.getCUBIN(program) + b"\0"  # CuPy drops the last byte


# ------------------------------------------------------------------------------- number formats
def bits(values: np.ndarray, kind: str) -> np.ndarray:
    """Small whole numbers in a format, as unsigned integers of its width."""
    x = np.asarray(values, np.float32)
    if kind == "tf32":
        return x.view(np.uint32)
    if kind == "bf16":
        return (x.view(np.uint32) >> 16).astype(np.uint16)
    if kind == "f16":
        return x.astype(np.float16).view(np.uint16)
    # 1, 1.125, ... 15: three bits of mantissa, exponent + 7
    table = {0.0: 0} | {2.0**e * (1 + m / 8): (e + 7) << 3 | m for e in range(4) for m in range(8)}
    return np.array([table[float(v)] for v in x.ravel()], np.uint8).reshape(x.shape)


def packed(codes: np.ndarray, kind: str) -> np.ndarray:
    """[lanes, elements] as 32-bit registers."""
    return np.ascontiguousarray(bits(codes, kind)).view(np.uint32)


def codes(n: int) -> dict[str, np.ndarray]:
    """Each lane's elements' codes, by digit: [32, n]."""
    lane, i = np.arange(32)[:, None], np.arange(n)[None]
    return {"g": (lane >> 2) + 0 * i, "t": (lane & 3) + 0 * i, "i": i + 0 * lane}


# ---------------------------------------------------------------------------------- the probes
class Device:
    """Launches kernels of the module with NumPy arrays in, NumPy arrays out."""

    def __init__(self) -> None:
        import cupy

        self.cupy = cupy
        self.module = cupy.cuda.function.Module()
        self.module.load(compiled())

    def __call__(self, name: str, args: list[Any], like: np.ndarray, threads: int = 32,
                 shared: int = 0) -> np.ndarray:  # fmt: skip
        """args: arrays and NumPy scalars; None stands for the output, of like's shape and dtype."""
        cp = self.cupy
        out = cp.asarray(like)
        given = [
            out if a is None else cp.asarray(a) if isinstance(a, np.ndarray) and a.ndim else a
            for a in args
        ]
        self.module.get_function(name)((1,), (threads,), tuple(given), shared_mem=shared)
        cp.cuda.runtime.deviceSynchronize()
        return out.get()


def mma(device: Device, name: str) -> dict[str, Any]:
    """For each operand, digit and first k: D's registers [32, 4] where the operand holds codes.

    The other operand selects: with A's codes B[k, n] = (k == first + n); with B's codes
    A[m, k] = (k == first + m % 8). Which register holds (k, n) is the claim under test: a wrong map
    gives another product.
    """
    from tklearn.lang import layouts  # the claim

    _, k, na, nb, _, kind = MMA[name]
    instruction = {"m16n8k8.tf32": "m16n8k8.tf32"}.get(name, name.split(".")[0])
    (am, ak), (bk, bn) = (layouts.fragment(instruction, x) for x in "AB")
    out: dict[str, Any] = {"A": {}, "B": {}}
    empty = np.zeros((32, 4), np.float32)
    for first in range(0, k, 8):
        select_b = packed(bk == first + bn, kind)
        select_a = packed(ak == first + am % 8, kind)
        for digit in DIGITS:
            a, b = packed(codes(na)[digit], kind), packed(codes(nb)[digit], kind)
            key = f"{digit}{first}"
            for side, x, y in (("A", a, select_b), ("B", select_a, b)):
                got = device(name.replace(".", "_"), [x, y, None], empty)
                out[side][key] = got.astype(int).tolist()
    return out


def matrix(device: Device, n: int, trans: bool) -> dict[str, Any]:
    """Row addresses (bytes, scattered), ldmatrix's registers, and memory after stmatrix."""
    lane = np.arange(32)
    at = (16 * ((37 * lane + 11) % 256)).astype(np.int32)
    name = f"x{n}{'t' if trans else ''}"
    loaded = device(f"ldmatrix_{name}", [at, None], np.zeros((32, n), np.uint32))
    stored = device(f"stmatrix_{name}", [at, None], np.zeros(1024, np.uint32))
    return {
        "rows": at.tolist(),
        "ldmatrix": np.ascontiguousarray(loaded).view(np.uint16).tolist(),
        "stmatrix": stored.view(np.uint16).astype(int).tolist(),
    }


def wgmma(device: Device, swizzle: int) -> dict[str, Any]:
    """D's registers [128, 32]: "D" holds 64 m + n; "A" and "B" the codes of one operand's (row, k),
    in a tile of `swizzle` bytes a row that the host laid out as layouts.py says."""
    from tklearn.lang import layouts

    cols = swizzle // 2
    place = layouts.st_offset(64, cols, 2, swizzle)[:, :16] // 2
    mode, sbo = SWIZZLES[swizzle]
    row, k = np.arange(64)[:, None], np.arange(16)[None]

    def image(values: np.ndarray) -> np.ndarray:
        flat = np.zeros(4096, np.uint16)
        flat[place] = bits(np.broadcast_to(values, (64, 16)), "bf16")
        return flat

    def go(a: np.ndarray, b: np.ndarray, registers: np.ndarray | None = None) -> Any:
        regs = np.zeros((128, 4), np.uint32) if registers is None else packed(registers, "bf16")
        got = device(
            "wgmma_shared" if registers is None else "wgmma_regs",
            [image(a), image(b), regs, None, np.uint64(mode), np.uint32(sbo)],
            np.zeros((128, 32), np.float32),
            threads=128,
        )
        return got.astype(int).tolist()

    select = row % 16 == k
    out = {
        "D": go(np.where(k == 0, row, k == 1), np.where(k == 0, 64, np.where(k == 1, row, 0))),
        "A row": go(row + 0 * k, select),
        "A k": go(k + 0 * row, select),
        "B row": go(select, row + 0 * k),
        "B k": go(select, k + 0 * row),
    }
    if swizzle == 128:
        thread, i = np.arange(128)[:, None], np.arange(8)[None]
        out["A in registers, thread"] = go(select, select, thread + 0 * i)
        out["A in registers, element"] = go(select, select, i + 0 * thread)
    return out


def tma(device: Device, swizzle: int) -> list[int]:
    """Shared memory (16-bit words) after TMA has loaded a 16 x (swizzle / 2) tile of 0, 1, 2, ..."""
    import ctypes

    cuda = ctypes.CDLL("libcuda.so.1")
    rows, cols = 16, swizzle // 2
    data = device.cupy.arange(rows * cols, dtype=device.cupy.uint16)
    raw = (ctypes.c_uint64 * 24)()
    at = (ctypes.addressof(raw) + 63) // 64 * 64
    u64, u32 = ctypes.c_uint64, ctypes.c_uint32
    code = cuda.cuTensorMapEncodeTiled(
        ctypes.c_void_p(at), 1, 2, ctypes.c_void_p(int(data.data.ptr)), (u64 * 2)(cols, rows),
        (u64 * 1)(2 * cols), (u32 * 2)(cols, rows), (u32 * 2)(1, 1), 0,
        {32: 1, 64: 2, 128: 3}[swizzle], 0, 0,
    )  # fmt: skip
    if code:
        raise RuntimeError(f"cuTensorMapEncodeTiled: {code}")
    record = np.frombuffer(ctypes.string_at(at, 128), np.dtype((np.void, 128)))[0]
    words = rows * cols // 2
    got = device("tma_load", [record, None, np.int32(words)], np.zeros(words, np.uint32),
                 shared=4 * words)  # fmt: skip
    return got.view(np.uint16).astype(int).tolist()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("maps.json"))
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()
    if args.compile:
        print(f"{len(compiled())} bytes of cubin")
        return 0
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from tklearn.comparison import gpu_here
    from tklearn.cuda.launch import device_name, driver_version

    if not gpu_here():
        print("maps.py needs a GPU and CuPy")
        return 2
    device = Device()
    found: dict[str, Any] = {
        "device": device_name(),
        "driver": driver_version(),
        "date": datetime.date.today().isoformat(),
        "command": "python benchmarks/probes/maps.py",
    }
    probes = [(f"mma {n}", lambda n=n: mma(device, n)) for n in MMA]
    probes += [
        (f"matrix x{n}{'t' if t else ''}", lambda n=n, t=t: matrix(device, n, t))
        for n in (1, 2, 4)
        for t in (False, True)
    ]
    probes += [(f"wgmma {s}", lambda s=s: wgmma(device, s)) for s in SWIZZLES]
    probes += [(f"tma {s}", lambda s=s: tma(device, s)) for s in SWIZZLES]
    for name, probe in probes:
        found[name] = probe()
        # Written after each probe: a wrong descriptor can end the process.
        args.out.write_text(json.dumps(found, separators=(",", ":")) + "\n")
        print(name, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
