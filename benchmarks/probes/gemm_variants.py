"""Which block tile, depth and raster suit the mma.sync GEMM on this GPU?

Standalone: NVRTC through CuPy, checked against torch, timed with CUDA events (median, cold L2),
cuBLAS beside it in the same run. Run on the GPU machine:

    python3 benchmarks/probes/gemm_variants.py --out gemm_variants.json [--sizes 4096 8192] [--quick]

Without a GPU, ``--compile sm_90a`` compiles all variants and prints registers and spills.
"""

# ruff: noqa: E501 (tables, and lines of generated C++)
from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np

INCLUDE = Path(__file__).resolve().parents[2] / "tklearn" / "cuda" / "include"


@dataclass(frozen=True)
class Variant:
    """Block tile bm x bn x bk, warp tile wm x wn, ring of `stages`, raster groups of `group` rows."""

    bm: int
    bn: int
    bk: int
    wm: int
    wn: int
    stages: int
    group: int = 8
    blocks: int = 1  # per SM, for __launch_bounds__
    late: bool = False  # issue the next copies after the first k-slice of the products

    @property
    def threads(self) -> int:
        return self.bm // self.wm * (self.bn // self.wn) * 32

    @property
    def smem(self) -> int:
        return self.stages * self.bk * (self.bm + self.bn) * 2

    @property
    def name(self) -> str:
        return (f"{self.bm}x{self.bn}x{self.bk} w{self.wm}x{self.wn} s{self.stages} g{self.group}"
                f" b{self.blocks}{' late' if self.late else ''}")  # fmt: skip


def source(v: Variant, dtype: str = "bf16") -> str:
    """The kernel as the printer would emit it."""
    swizzle = 128 if v.bk % 64 == 0 else 64
    a_t, b_t = f"st<{dtype}, {v.bm}, {v.bk}, {swizzle}>", f"st<{dtype}, {v.bk}, {v.bn}, 128>"
    cols = v.bn // v.wn
    copies = f"""        if (k + {v.stages - 1} < ks) {{
            block::load_async(a_s[write], A, {{by, k + {v.stages - 1}}});
            block::load_async(b_s[write], B, {{k + {v.stages - 1}, bx}});
        }}
        commit_group();
"""
    step = f"""            warp::load(a, subtile<{v.wm}, 16>(a_s[read], {{wr, i}}));
            warp::load(b, subtile<16, {v.wn}>(b_s[read], {{i, wc}}));
            warp::mma_AB(acc, a, b);
"""
    return f"""#define TK_THREADS {v.threads}
#define TK_BLOCK_1D
#include "tk/tk.cuh"
namespace tk {{
extern "C" __global__ void __launch_bounds__({v.threads}, {v.blocks}) gemm(gl<{dtype}, 2> A, gl<{dtype}, 2> B, gl<{dtype}, 2> C) {{
    shared_memory(smem);
    auto& a_s = smem.at<{a_t}[{v.stages}]>(0);
    auto& b_s = smem.at<{b_t}[{v.stages}]>({v.stages * v.bm * v.bk * 2});
    rt<{dtype}, {v.wm}, 16> a;
    rt<{dtype}, 16, {v.wn}, col> b;
    rt<float, {v.wm}, {v.wn}> acc;
    warp::zero(acc);
    int rows = cdiv(C.rows(), {v.bm}), cols = cdiv(C.cols(), {v.bn}), ks = cdiv(A.cols(), {v.bk});
    int group = blockIdx.x / ({v.group} * cols), first = group * {v.group}, height = min(rows - first, {v.group});
    int by = first + blockIdx.x % ({v.group} * cols) % height, bx = blockIdx.x % ({v.group} * cols) / height;
    int wr = warpid() / {cols}, wc = warpid() % {cols};
    for (int s = 0; s < {v.stages - 1}; s++) {{
        if (s < ks) {{
            block::load_async(a_s[s], A, {{by, s}});
            block::load_async(b_s[s], B, {{s, bx}});
        }}
        commit_group();
    }}
    int read = 0, write = {v.stages - 1};
    for (int k = 0; k < ks; k++) {{
        wait_group<{v.stages - 2}>();
        block::sync();
{"" if v.late else copies}#pragma unroll
        for (int i = 0; i < {1 if v.late else v.bk // 16}; i++) {{
{step}        }}
{copies if v.late else ""}#pragma unroll
        for (int i = 1; i < {v.bk // 16 if v.late else 1}; i++) {{
{step}        }}
        read = read == {v.stages - 1} ? 0 : read + 1;
        write = write == {v.stages - 1} ? 0 : write + 1;
    }}
    warp::store(C, acc, {{by * {v.bm // v.wm} + wr, bx * {cols} + wc}});
}}
}}  // namespace tk
"""


VARIANTS = [
    Variant(128, 128, 64, 64, 64, 3, blocks=2),
    Variant(128, 128, 64, 64, 64, 3, blocks=2, late=True),
    Variant(128, 128, 64, 64, 64, 3, group=16, blocks=2),
    Variant(128, 128, 32, 64, 64, 4, blocks=2),
    Variant(128, 128, 32, 64, 64, 6, blocks=2),
    Variant(128, 128, 64, 64, 32, 3, blocks=2),
    Variant(128, 256, 64, 64, 64, 3),
    Variant(128, 256, 64, 64, 64, 4),
    Variant(128, 256, 64, 64, 64, 4, late=True),
    Variant(128, 256, 64, 64, 64, 4, group=16),
    Variant(128, 256, 64, 64, 64, 4, group=4),
    Variant(128, 256, 32, 64, 64, 5),
    Variant(128, 256, 32, 64, 64, 6),
    Variant(256, 128, 64, 64, 64, 3),
    Variant(256, 128, 64, 64, 64, 4),
    Variant(256, 128, 64, 64, 64, 4, late=True),
    Variant(256, 128, 32, 64, 64, 6),
    Variant(128, 128, 64, 64, 64, 6, blocks=1),
    Variant(128, 192, 64, 64, 96, 3),
    Variant(192, 128, 64, 96, 64, 4),
]


def cuda_headers() -> str:
    for base in [*map(Path, sys.path), Path(os.environ.get("CUDA_PATH", "/usr/local/cuda"))]:
        for inner in ("nvidia/cu13/include", "nvidia/cuda_runtime/include", "include"):
            if (base / inner / "cuda_fp16.h").exists():
                return str(base / inner)
    raise SystemExit("cuda_fp16.h not found: install nvidia-cuda-runtime or set CUDA_PATH")


def compile_variant(v: Variant, arch: str) -> tuple[bytes, dict[str, float]]:
    from cupy.cuda import nvrtc

    started = time.perf_counter()
    program = nvrtc.createProgram(source(v), "gemm.cu", (), ())
    flags = (
        f"-arch={arch}",
        "-std=c++17",
        "-fmad=false",
        "--ptxas-options=-v",
        f"-I{INCLUDE}",
        f"-I{cuda_headers()}",
    )
    try:
        nvrtc.compileProgram(program, flags)
        log = nvrtc.getProgramLog(program)
        cubin = nvrtc.getCUBIN(program) + b"\0"
    except nvrtc.NVRTCError:
        raise SystemExit(f"{v.name}: {nvrtc.getProgramLog(program)[:3000]}") from None
    finally:
        nvrtc.destroyProgram(program)
    registers = int(re.search(r"Used (\d+) registers", log)[1])
    spilled = sum(map(int, re.findall(r"(\d+) bytes spill", log)))
    return cubin, {
        "registers": registers,
        "spill_bytes": spilled,
        "compile_s": time.perf_counter() - started,
    }


def describe(t: object) -> np.void:
    """The 48 bytes of gl<T, 2> for a torch matrix."""
    record = np.zeros(1, np.dtype([("p", "u8"), ("dim", "i4", 4), ("stride", "i8", 3)]))
    record["p"], record["dim"], record["stride"] = (
        t.data_ptr(),
        (1, 1, *t.shape),
        (0, 0, t.stride(0)),
    )
    return np.frombuffer(record.tobytes(), np.dtype((np.void, 48)))[0]


def median_ms(torch: object, call: object, flush: object, repeat: int) -> float:
    for _ in range(3):
        call()
    events = []
    for _ in range(repeat):
        flush.zero_()
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        stop.record()
        events.append((start, stop))
    torch.cuda.synchronize()
    return statistics.median(a.elapsed_time(b) for a, b in events)


def measure(sizes: list[int], variants: list[Variant], repeat: int) -> list[dict[str, object]]:
    import cupy
    import torch
    from cupy_backends.cuda.api import driver

    torch.cuda.init()
    arch = "sm_" + cupy.cuda.Device().compute_capability
    arch = "sm_90a" if arch == "sm_90" else arch
    stream = cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream)
    functions = {}
    for v in variants:
        cubin, facts = compile_variant(v, arch)
        module = cupy.cuda.function.Module()
        module.load(cubin)
        f = module.get_function("gemm")
        try:
            driver.funcSetAttribute(f.ptr, 8, v.smem)
        except driver.CUDADriverError as e:  # more shared memory than this GPU has
            print(f"{v.name}: {e}")
            continue
        functions[v] = (f, module, facts)
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    results = []
    for n in sizes:
        a, b = (torch.randn(n, n, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        c = torch.empty_like(a)
        want = torch.mm(a, b)
        cublas = []
        rows = []
        for v, (f, _, facts) in functions.items():
            grid = -(-n // v.bm) * -(-n // v.bn)
            args = tuple(map(describe, (a, b, c)))

            def call(f=f, grid=grid, v=v, args=args):
                with stream:
                    f((grid,), (v.threads,), args, shared_mem=v.smem)

            c.zero_()
            call()
            error = ((c.float() - want.float()).abs().max() / want.float().abs().max()).item()
            ms = median_ms(torch, call, flush, repeat)
            cublas.append(
                median_ms(torch, partial(torch.mm, a, b, out=c), flush, max(5, repeat // 2))
            )
            rows.append({"variant": v.name, **asdict(v), **facts, "n": n, "ms": ms, "tflops": 2 * n**3 / ms / 1e9,
                         "cublas_tflops": 2 * n**3 / cublas[-1] / 1e9, "error": error})  # fmt: skip
        for r in rows:
            r["ratio"] = r["ms"] and r["tflops"] / (2 * n**3 / statistics.median(cublas) / 1e9)
        print(
            f"\nn = {n}: cuBLAS {2 * n**3 / statistics.median(cublas) / 1e9:.0f} TFLOP/s (median of {len(cublas)} runs between the variants)"
        )
        print(
            f"{'variant':34} {'regs':>5} {'spill':>5} {'ms':>8} {'TFLOP/s':>8} {'ratio':>6} {'error':>8}"
        )
        for r in sorted(rows, key=lambda r: r["ms"]):
            print(f"{r['variant']:34} {r['registers']:5} {r['spill_bytes']:5} {r['ms']:8.3f} {r['tflops']:8.0f} {r['ratio']:6.2f} {r['error']:8.1e}"
                  + ("  WRONG" if r["error"] > 1e-2 else ""))  # fmt: skip
        results += rows
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("gemm_variants.json"))
    parser.add_argument("--sizes", type=int, nargs="*", default=[4096, 8192])
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--quick", action="store_true", help="every third variant")
    parser.add_argument("--compile", metavar="ARCH", help="compile only, no GPU needed")
    options = parser.parse_args()
    variants = VARIANTS[::3] if options.quick else VARIANTS
    if options.compile:
        for v in variants:
            _, facts = compile_variant(v, options.compile)
            print(
                f"{v.name:34} {facts['registers']:4} registers, {facts['spill_bytes']} bytes spilled, {v.smem:6} B shared, {facts['compile_s']:.2f} s"
            )
        return
    import torch

    rows = measure(options.sizes, variants, options.repeat)
    options.out.write_text(json.dumps({"device": torch.cuda.get_device_name(), "torch": torch.__version__,
                                       "command": " ".join(sys.argv), "date": time.strftime("%Y-%m-%d %H:%M"), "rows": rows}, indent=1))  # fmt: skip
    print(f"\nwrote {options.out}")


if __name__ == "__main__":
    main()
