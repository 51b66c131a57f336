"""The header library: every function compiles for every architecture and, on a GPU, gives the
values that NumPy gives.

Each case below is one small kernel in the emitted style, with its inputs and what it must compute.
The compile tests need NVRTC (through CuPy) but no GPU; the test marked ``gpu`` runs all cases and
reports all failures at once.
"""

# ruff: noqa: E501
from __future__ import annotations

import importlib.util
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
INCLUDE = ROOT / "tklearn" / "cuda" / "include"
GOLDENS = sorted((ROOT / "tests" / "cuda").glob("*_golden.cu"))
ARCHS = ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_120"]

sys.path.insert(0, str(ROOT / "tests" / "cuda"))
pytest.importorskip("ml_dtypes")
import ptx_emulator  # noqa: E402
from header_cases import CASES, Case, golden_cases, lane_cases, module_source  # noqa: E402

# ---- compiling


def cuda_headers() -> str:
    """The folder with cuda_fp16.h: from the nvidia-cuda-runtime wheel, or CUDA_PATH."""
    for base in map(Path, sys.path):
        for inner in ("nvidia/cu13/include", "nvidia/cuda_runtime/include"):
            if (base / inner / "cuda_fp16.h").exists():
                return str(base / inner)
    for home in (os.environ.get("CUDA_PATH"), "/usr/local/cuda"):
        if home and (Path(home) / "include" / "cuda_fp16.h").exists():
            return str(Path(home) / "include")
    pytest.skip("cuda_fp16.h is not installed (wheel nvidia-cuda-runtime)")


def nvrtc_compile(source: str, arch: str, options: Sequence[str] = ()) -> tuple[bytes, str]:
    """Source to (cubin, or PTX for "compute_80", and the log with the ptxas report). Compile errors
    fail the test with their text."""
    if importlib.util.find_spec("cupy") is None:
        pytest.skip("CuPy is not installed: no NVRTC")
    from cupy.cuda import nvrtc

    try:
        program = nvrtc.createProgram(source, "kernel.cu", (), ())
    except (ImportError, OSError, RuntimeError) as e:
        pytest.skip(f"NVRTC cannot be loaded: {e}")
    flags = [f"-arch={arch}", "-std=c++17", "-fmad=false", "--ptxas-options=-v",
             f"-I{INCLUDE}", f"-I{cuda_headers()}", *options]  # fmt: skip
    try:
        nvrtc.compileProgram(program, tuple(flags))
        log = nvrtc.getProgramLog(program)
        if arch.startswith("compute_"):
            return nvrtc.getPTX(program), log
        return nvrtc.getCUBIN(program) + b"\0", log
    except nvrtc.NVRTCError:
        pytest.fail(f"{arch}: {nvrtc.getProgramLog(program)[:4000]}")
    finally:
        nvrtc.destroyProgram(program)


def spills(log: str) -> list[str]:
    return [line for line in log.splitlines()
            if re.search(r"([1-9]\d*) bytes (stack frame|spill)", line)]  # fmt: skip


# ---- tests


ARCH_DEPENDENT = (
    r"raw|st_\w+_row_128|load_async_\w+_64|transpose_\w+_row|atomics|shuffles|fp8_\w+_row"
)


def one_of_each(arch: str) -> list[Case]:
    """Every function once: one number format, one swizzle, one odd size of each kind. On the
    architectures between, only what is not plain C++ there."""
    number = int(re.sub(r"\D", "", arch))
    main = "f16" if number < 80 else "bf16"
    other = {"f16", "bf16", "float"} - {main}

    def wanted(c: Case) -> bool:
        words = c.name.split("_")
        if c.minimum > number:
            return False
        if c.name.startswith("mma"):
            return c.name.startswith("mma_AB_") or f"{main}_float" in c.name
        if arch not in ("sm_75", "sm_80", "sm_90a") and not re.match(ARCH_DEPENDENT, c.name):
            return False
        if set(words) & other or re.search(r"_(58|57|16|48|1024|48x16|16x48|0_0|64_0)$", c.name):
            return False
        return "e5m2" not in words

    return [c for c in CASES if wanted(c)]


@pytest.mark.parametrize("arch", ARCHS)
def test_every_function_compiles(arch: str) -> None:
    _, log = nvrtc_compile(module_source(one_of_each(arch)), arch)
    # sinf and cosf keep a small table for huge arguments; an array of ours in local memory is larger
    frames = [int(n) for n in re.findall(r"(\d+) bytes stack frame", log)]
    assert max(frames) <= 64, f"registers go to local memory: {frames}"


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("path", GOLDENS, ids=lambda p: p.stem)
def test_goldens_compile_without_spills(path: Path, arch: str) -> None:
    source = path.read_text()
    if arch == "sm_75":
        source = source.replace("bf16", "f16")
    _, log = nvrtc_compile(source, arch)
    assert not spills(log), "\n".join(spills(log))
    registers = [int(n) for n in re.findall(r"Used (\d+) registers", log)]
    assert max(registers) <= 255


ASYNCHRONOUS = sorted((ROOT / "tests" / "golden").glob("async_*.cu"))


@pytest.mark.parametrize("path", ASYNCHRONOUS, ids=lambda p: p.stem)
def test_asynchronous_kernels_compile_with_nvcc(path: Path, tmp_path: Path) -> None:
    """The toolkit's own compiler takes the headers too, and serialises no product."""
    if shutil.which("nvcc") is None:
        pytest.skip("nvcc is not installed")
    command = ["nvcc", "-arch=sm_90a", "-std=c++17", "-fmad=false", "-Xptxas", "-v", "-Werror",
               "all-warnings", f"-I{INCLUDE}", "-cubin", "-o", str(tmp_path / "k.cubin"), str(path)]  # fmt: skip
    made = subprocess.run(command, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    assert not spills(made.stderr)
    assert "C75" not in made.stderr


ASYNC_CASES = """
template <class T, int N, class G> TK_DEVICE void all(const G& g, rt<float, 16, N>& d, rt<f16, 16, N>& h) {
    shared_memory(smem);
    auto& a = smem.at<st<T, 64, 64>>(0);
    auto& b = smem.at<st<T, 64, N, N % 64 == 0 ? 128 : N % 32 == 0 ? 64 : 32>>(8192);
    auto& t = smem.at<st<T, N, 64>>(65536);
    rt<T, 16, 64> x;
    warpgroup::load(x, a);
    warpgroup::mma_AB(d, a, b); warpgroup::mma_ABt(d, a, t); warpgroup::mma_AtB(d, a, b); warpgroup::mma_AtBt(d, a, t);
    warpgroup::mm_AB(d, x, b); warpgroup::mma_ABt<false, false>(d, x, t); warpgroup::mma_commit_group();
    warpgroup::mma_async_wait();
    if constexpr (same<T, f16>::value) {
        warpgroup::mm_AB(h, a, b); warpgroup::mma_ABt(h, a, t); warpgroup::mma_AtB(h, a, b); warpgroup::mma_AtBt(h, a, t);
        warpgroup::mma_AB(h, x, b); warpgroup::mma_ABt(h, x, t);
        warpgroup::mma_async_wait();
    }
    warpgroup::store(g, d, {0, 0});
    warpgroup::store(g, h, {0, 1});
}
#define K(T, N) extern "C" __global__ void __launch_bounds__(128) T##_##N(gl<float, 2> g) {  \
        rt<float, 16, N> d; rt<f16, 16, N> h; warp::zero(d); warp::zero(h); all<T, N>(g, d, h); }
"""


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_every_width_of_wgmma_compiles(dtype: str) -> None:
    kernels = "\n".join(f"K({dtype}, {n})" for n in range(16, 257, 16))
    source = f'#define TK_WGMMA\n#define TK_BLOCK_1D\n#include "tk/tk.cuh"\nnamespace tk {{{ASYNC_CASES}{kernels}}}'
    _, log = nvrtc_compile(source, "sm_90a")
    assert not spills(log), "\n".join(spills(log))
    assert "C75" not in log, log


@pytest.mark.parametrize(("text", "message"), [
    ("smem.at<st<bf16, 64, 64, 0>>(0), b", "needs a swizzle"),
    ("smem.at<st<bf16, 32, 64>>(0), b", "A has 64 rows"),
    ("smem.at<st<f16, 64, 64>>(0), b", "one dtype"),
    ("smem.at<st<bf16, 64, 64>>(0), smem.at<st<bf16, 64, 32, 64>>(0)", "accumulator is 16 x N"),
    ("smem.at<st<float, 64, 64>>(0), smem.at<st<float, 64, 64>>(0)", "write mma_ABt"),
])  # fmt: skip
def test_wrong_products_do_not_compile(text: str, message: str) -> None:
    source = f"""#define TK_WGMMA
#include "tk/tk.cuh"
namespace tk {{ extern "C" __global__ void k() {{
    shared_memory(smem);
    auto& b = smem.at<st<bf16, 64, 64>>(0);
    rt<float, 16, 64> d;
    warpgroup::mma_AB(d, {text});
}} }}"""
    with pytest.raises(pytest.fail.Exception, match=message):
        nvrtc_compile(source, "sm_90a")


@pytest.mark.parametrize(("text", "message"), [
    ("rt<float, 16, 16> a; col_vec<float, 16, col> v; warp::zero(a); warp::zero(v); a += v;", "belongs to a tile of the other layout"),
    ("rt<float, 16, 16> a; rt<bf16, 16, 16> b; warp::zero(a); warp::zero(b); a += b;", "operands differ in dtype"),
    ("rt<float, 16, 16> a; rv<float, 16> v; warp::zero(a); warp::zero(v); a += v;", "only col_vec and row_vec broadcast"),
    ("rt<float, 16, 16> c; rt<bf16, 16, 16> a, b; warp::zero(c); warp::zero(a); warp::zero(b); warp::mma_AB(c, a, b);", "B must have col layout"),
])  # fmt: skip
def test_wrong_mixtures_do_not_compile(text: str, message: str) -> None:
    source = f'#include "tk/tk.cuh"\nnamespace tk {{ extern "C" __global__ void k() {{ {text} }} }}'
    with pytest.raises(pytest.fail.Exception, match=message):
        nvrtc_compile(source, "sm_80")


def test_counting_build_compiles() -> None:
    nvrtc_compile(module_source(lane_cases(), "#define TK_COUNTING\n"), "sm_90a")


# ---- values


def compare(case: Case, outs: Sequence[np.ndarray]) -> str | None:
    """None if the outputs are right, else what differs."""
    for i, (got, want) in enumerate(
        zip(outs, map(np.asarray, case.want(*case.inputs)), strict=True)
    ):
        g, f = got.astype(np.float64), want.astype(np.float64)
        with np.errstate(invalid="ignore"):
            close = np.abs(g - f) <= case.tol * (1 + np.abs(f))
        bad = ~((g == f) | close | (np.isnan(g) & np.isnan(f)))
        if bad.any():
            at = tuple(int(j) for j in np.argwhere(bad)[0])
            return f"out{i}: {int(bad.sum())} of {bad.size} differ, first at {at}: {got[at]} instead of {want[at]}"
    return None


def gl_bytes(address: int, a: object) -> bytes:
    """gl<T, N> as the kernel receives it: pointer, dim[4], stride[3]."""
    strides = [s // a.itemsize for s in a.strides[:-1]]
    record = np.zeros(1, np.dtype([("p", "u8"), ("dim", "i4", 4), ("stride", "i8", 3)]))
    record["p"], record["dim"] = address, (1,) * (4 - a.ndim) + tuple(a.shape)
    record["stride"] = [0] * (3 - len(strides)) + strides
    return record.tobytes()


def emulate(kernel: ptx_emulator.Kernel, case: Case) -> str | None:
    """Runs one block on the CPU; also: nothing but the outputs is written."""
    wants = [np.asarray(w) for w in case.want(*case.inputs)]
    arrays = [*map(np.ascontiguousarray, case.inputs), *(np.zeros(w.shape, w.dtype) for w in wants)]
    starts = np.cumsum([256] + [-(-a.nbytes // 256) * 256 + 256 for a in arrays])
    memory = np.full(starts[-1] + 256, 0xAB, np.uint8)
    places = [slice(int(s), int(s) + a.nbytes) for s, a in zip(starts, arrays)]
    for a, p in zip(arrays, places):
        memory[p] = a.reshape(-1).view(np.uint8)
    before = memory.copy()
    params = [gl_bytes(ptx_emulator.GLOBAL + p.start, a) for a, p in zip(arrays, places)]
    try:
        ptx_emulator.Block(kernel, case.threads, params, memory, case.smem).run()
    except ptx_emulator.Fault as e:
        return str(e)
    first = len(case.inputs)
    outs = [
        memory[p].view(a.dtype).reshape(a.shape) for a, p in zip(arrays[first:], places[first:])
    ]
    wrong = compare(case, outs)
    for p in places[first:]:
        before[p] = memory[p]
    return wrong or ("writes outside its outputs" if (before != memory).any() else None)


@pytest.mark.parametrize("part", range(3))
@pytest.mark.parametrize("arch", ["sm_75", "sm_90a"])
def test_values_by_emulation(arch: str, part: int) -> None:
    """The PTX of every function, run on the CPU: values, bounds and alignment without a GPU. (All
    variants of all cases run on the GPU, below.)"""
    cases = one_of_each(arch)[part::3]
    virtual = arch.replace("sm_", "compute_")
    kernels = ptx_emulator.parse(nvrtc_compile(module_source(cases), virtual)[0].decode())
    failures = [f"{c.name}: {m}" for c in cases if (m := emulate(kernels[c.name], c))]
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("stem", golden_cases(1))
def test_goldens_by_emulation(stem: str) -> None:
    ptx, _ = nvrtc_compile((ROOT / "tests" / "cuda" / f"{stem}.cu").read_text(), "compute_80")
    kernels = ptx_emulator.parse(ptx.decode())
    cases = [c for c in golden_cases(1)[stem] if c.grid == (1,)]
    failures = [f"{c.name}: {m}" for c in cases if (m := emulate(kernels[c.name], c))]
    assert not failures, "\n".join(failures)


def run_case(module: object, case: Case) -> str | None:
    """None if the outputs are right, else what differs."""
    import cupy

    want = [np.asarray(w) for w in case.want(*case.inputs)]
    raw = [cupy.asarray(np.ascontiguousarray(a).view(f"u{a.itemsize}")) for a in case.inputs]
    outs = [cupy.zeros(w.shape, f"u{w.itemsize}") for w in want]
    function = module.get_function(case.name)
    if case.smem > 48000:
        from cupy_backends.cuda.api import driver

        driver.funcSetAttribute(function.ptr, 8, case.smem)
    struct = np.dtype((np.void, 48))
    args = [np.frombuffer(gl_bytes(a.data.ptr, a), struct)[0] for a in (*raw, *outs)]
    function(case.grid, (case.threads,), tuple(args), shared_mem=case.smem)
    cupy.cuda.runtime.deviceSynchronize()
    return compare(case, [o.get().view(w.dtype) for o, w in zip(outs, want, strict=True)])


@pytest.mark.gpu
def test_values_on_the_gpu() -> None:
    cupy = pytest.importorskip("cupy")
    try:
        cc = cupy.cuda.Device().compute_capability
    except cupy.cuda.runtime.CUDARuntimeError as e:
        pytest.skip(f"no GPU: {e}")
    number = int(cc)
    arch = "sm_90a" if cc == "90" else f"sm_{cc}"
    cases = [c for c in CASES if c.minimum <= number]
    failures = []
    size = math.ceil(len(cases) / 8)
    for i in range(0, len(cases), size):
        group = cases[i : i + size]
        cubin, _ = nvrtc_compile(module_source(group), arch)
        module = cupy.cuda.function.Module()
        module.load(cubin)
        failures += [f"{c.name}: {m}" for c in group if (m := run_case(module, c))]
    for stem, goldens in golden_cases().items() if number >= 80 else ():
        cubin, _ = nvrtc_compile((ROOT / "tests" / "cuda" / f"{stem}.cu").read_text(), arch)
        module = cupy.cuda.function.Module()
        module.load(cubin)
        failures += [
            f"{c.name} {c.inputs[0].shape}: {m}" for c in goldens if (m := run_case(module, c))
        ]
        cases = [*cases, *goldens]
    assert not failures, f"{len(failures)} of {len(cases)} cases:\n" + "\n".join(failures)
