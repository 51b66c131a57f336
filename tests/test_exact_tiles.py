"""mma="exact": tiles have the same bits on the simulator and on a GPU.

Without a GPU the second machine is the kernel's own PTX, run on the CPU with the instructions of
tklearn.numerics: that checks which numbers meet in which instruction, in which order. That the
instructions have the GPU's bits is for test_tensor_bits.py and, with a GPU, for the last test here.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tklearn as tk
from tklearn import numerics, warp
from tklearn.lang.errors import LaunchError, TkError
from tklearn.tensor import NUMPY_DTYPES

sys.path.insert(0, str(Path(__file__).parent / "cuda"))
import ptx_emulator

GLOBAL = ptx_emulator.GLOBAL


@tk.kernel(warps=1)
def softmax_tile(x: tk.gl_fl, y: tk.gl_fl):
    t = tk.rt_fl(16, 64)
    warp.load(t, x, (0, 0))
    t = tk.exp(t - tk.row_max(t))
    t /= tk.row_sum(t)
    warp.store(y, t, (0, 0))


@tk.kernel(warps=1)
def attention_tile(q: tk.gl_bf, k: tk.gl_bf, v: tk.gl_bf, o: tk.gl_fl):
    """Two steps of online softmax, as in FlashAttention."""
    q_r = tk.rt_bf(16, 64)
    k_r = tk.rt_bf(32, 64)
    v_r = tk.rt_bf(32, 64, tk.col)
    att = tk.rt_fl(16, 32)
    out = tk.rt_fl(16, 64)
    top = tk.col_vec(16)
    norm = tk.col_vec(16)
    warp.load(q_r, q, (0, 0))
    warp.zero(out)
    warp.zero(norm)
    warp.neg_infty(top)
    for i in range(2):
        warp.load(k_r, k, (i, 0))
        warp.load(v_r, v, (i, 0))
        warp.zero(att)
        warp.mma_ABt(att, q_r, k_r)
        last = tk.copy(top)
        top = tk.row_max(att, top)
        att = tk.exp2(att * 0.18033688 - top * 0.18033688)
        corr = tk.exp2(last * 0.18033688 - top * 0.18033688)
        norm = tk.row_sum(att, norm * corr)
        out *= corr
        p = tk.convert(att, tk.bf16)
        warp.mma_AB(out, p, v_r)
    out /= norm
    warp.store(o, out, (0, 0))


@tk.kernel(warps=1)
def normalise_tile(x: tk.gl_fl, y: tk.gl_fl):
    t = tk.rt_fl(16, 32)
    warp.load(t, x, (0, 0))
    var = tk.row_sum(t * t) * 0.03125
    t *= tk.rsqrt(var + 0.00001)
    t = t * tk.rcp(tk.exp2(-t) + 1.0)
    warp.store(y, t, (0, 0))


def products(T: Any, D: Any, deep: int) -> Any:
    @tk.kernel(warps=1)
    def product_tile(a: tk.gl(T), b: tk.gl(T), c: tk.gl(D), d: tk.gl(D)):
        x = tk.rt(T, 16, deep)
        y = tk.rt(T, 16, deep)
        acc = tk.rt(D, 16, 16)
        warp.load(x, a, (0, 0))
        warp.load(y, b, (0, 0))
        warp.load(acc, c, (0, 0))
        warp.mma_ABt(acc, x, y)
        warp.store(d, acc, (0, 0))

    return product_tile


def numbers(shape: tuple[int, ...], dtype: str, seed: int, spread: int = 3) -> np.ndarray:
    """Random numbers whose exponents differ by up to 2 * spread."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape) * np.exp2(rng.integers(-spread, spread + 1, shape))
    return numerics.encode(x.astype(np.float32), dtype)


def product_case(T: Any, D: Any, deep: int) -> tuple:
    args = [numbers((16, deep), T.name, 1), numbers((16, deep), T.name, 2),
            numbers((16, 16), D.name, 3), np.zeros((16, 16), NUMPY_DTYPES[D.name])]  # fmt: skip
    return products(T, D, deep), args


def out(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


ATTENTION = ((16, 64), (64, 64), (64, 64))  # Q, K, V
CASES = {
    "softmax": lambda: (softmax_tile, [numbers((16, 64), "f32", 4, 1), out(16, 64)]),
    "attention": lambda: (
        attention_tile,
        [*(numbers(s, "bf16", i, 1) for i, s in enumerate(ATTENTION)), out(16, 64)],
    ),
    "normalise": lambda: (normalise_tile, [numbers((16, 32), "f32", 5, 1), out(16, 32)]),
    "bf16": lambda: product_case(tk.bf16, tk.f32, 64),
    "f16": lambda: product_case(tk.f16, tk.f32, 64),
    "f16 to f16": lambda: product_case(tk.f16, tk.f16, 64),
    "tf32": lambda: product_case(tk.f32, tk.f32, 48),
    "e4m3": lambda: product_case(tk.e4m3, tk.f32, 64),
    "e5m2": lambda: product_case(tk.e5m2, tk.f32, 64),
}  # fmt: skip


class Exact(ptx_emulator.Block):
    """A block whose approximate functions, fused operations and products have the GPU's bits."""

    arch = "hopper"

    def arithmetic(self, o: list[str], a: list[str], kind: str, bits: int, m: Any) -> None:
        maps = {"ex2": "exp2", "rcp": "rcp", "rsqrt": "rsqrt"}
        if o[0] in maps and "approx" in o:
            self.put(a[0], numerics.MAPS[maps[o[0]]](self.get(a[1], "f", 32)), m)
        elif o[0] == "fma" and bits == 32:
            self.put(a[0], numerics.fma32(*(self.get(x, "f", 32) for x in a[1:])), m)
        else:
            super().arithmetic(o, a, kind, bits, m)

    def multiply(self, x: Any, y: Any, c: Any, form: str, wide: bool) -> Any:
        kind = "fp16" if form == "f16" else form
        return numerics.mma_sync(
            x, y, c, dtype=kind, arch=self.arch, out="fp32" if wide else "fp16"
        )


def emulated(kernel: tk.Kernel, args: list[np.ndarray], arch: str) -> list[np.ndarray]:
    """The arrays after the kernel's PTX ran as one block."""
    if importlib.util.find_spec("cupy") is None:
        pytest.skip("CuPy is not installed: no NVRTC")
    from tklearn.cuda.compile import include_dirs, load_nvrtc
    from tklearn.cuda.emit import emit

    try:
        nvrtc = load_nvrtc()
    except LaunchError as e:
        pytest.skip(str(e))
    spec = kernel.ir(*args)
    source = emit(spec)
    program = nvrtc.createProgram(source.text, "kernel.cu", (), ())
    virtual = {"hopper": "90", "ada": "89", "ampere": "80"}[arch]
    flags = [f"-arch=compute_{virtual}", "-std=c++17", "-fmad=false"]
    nvrtc.compileProgram(program, (*flags, *(f"-I{d}" for d in include_dirs())))
    ptx = nvrtc.getPTX(program)
    code = ptx_emulator.parse(ptx.decode() if isinstance(ptx, bytes) else ptx)[source.entry]
    starts = np.cumsum([256, *(-(-a.nbytes // 256) * 256 + 256 for a in args)])
    memory = np.zeros(starts[-1], np.uint8)
    params = []
    for a, at in zip(args, starts, strict=False):
        memory[at : at + a.nbytes] = a.view(np.uint8).ravel()
        record = np.zeros(1, np.dtype([("p", "u8"), ("dim", "i4", 4), ("stride", "i8", 3)]))
        record["p"], record["dim"], record["stride"] = (
            GLOBAL + at,
            (1, 1, *a.shape),
            (0, 0, a.shape[1]),
        )
        params.append(record.tobytes())
    block = Exact(code, spec.threads[0], params, memory, spec.shared_bytes)
    block.arch = arch
    with np.errstate(all="ignore"):
        block.run()
    return [
        memory[at : at + a.nbytes].view(a.dtype).reshape(a.shape)
        for a, at in zip(args, starts, strict=False)
    ]


def differences(got: np.ndarray, want: np.ndarray) -> int:
    word = np.uint16 if got.itemsize == 2 else np.uint32
    return int((got.view(word) != want.view(word)).sum())


RUNS = [(n, "hopper") for n in CASES] + [
    ("bf16", "ampere"), ("tf32", "ampere"), ("e4m3", "ada"), ("f16 to f16", "ampere"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arch"), RUNS)
def test_the_kernels_own_instructions_give_the_same_bits(name: str, arch: str) -> None:
    kernel, args = CASES[name]()
    want = emulated(kernel, args, arch)[-1]
    kernel.sim[1](*args, mma="exact", arch=arch)
    assert args[-1].any()
    assert differences(args[-1], want) == 0


@pytest.mark.parametrize("name", list(CASES))
def test_exact_is_not_fast(name: str) -> None:
    """The option does something: these numbers were chosen so that rounding shows."""
    kernel, args = CASES[name]()
    fast = args[-1].copy()
    kernel.sim[1](*args, mma="exact")
    kernel.sim[1](*args[:-1], fast)
    close = np.abs(fast.astype(np.float64) - args[-1].astype(np.float64)).max()
    assert 0 < close < 0.1 * np.abs(fast.astype(np.float64)).max()


@tk.kernel(warps=2)
def grid_product(a: tk.gl_bf, b: tk.gl_bf, c: tk.gl_fl):
    x = tk.rt_bf(16, 32)
    y = tk.rt_bf(32, 32, tk.col)
    acc = tk.rt_fl(16, 32)
    warp.zero(acc)
    for k in range(a.cols // 32):
        warp.load(x, a, (tk.blockIdx.y * 2 + tk.warpid(), k))
        warp.load(y, b, (k, tk.blockIdx.x))
        warp.mma_AB(acc, x, y)
    warp.store(c, acc, (tk.blockIdx.y * 2 + tk.warpid(), tk.blockIdx.x))


@pytest.mark.parametrize("across_x", [False, True])
@pytest.mark.parametrize("arch", ["hopper", "ampere"])
def test_batched_equals_one_block_at_a_time_and_numerics(arch: str, across_x: bool) -> None:
    """Rows of blocks along y or along x: shared tiles form one product either way."""
    kernel, grid = (across, (2, 3)) if across_x else (grid_product, (3, 2))
    a, b = numbers((64, 96), "bf16", 1), numbers((96, 96), "bf16", 2)
    c, d = np.zeros((64, 96), np.float32), np.zeros((64, 96), np.float32)
    kernel.sim[grid](a, b, c, mma="exact", arch=arch)
    kernel.sim[grid](a, b, d, mma="exact", arch=arch, batch=False)
    want = numerics.product(
        numerics.decode(a), numerics.decode(b), np.zeros((64, 96)), dtype="bf16", arch=arch
    )
    assert differences(c, want) == differences(d, want) == 0


@tk.kernel(warps=2)
def across(a: tk.gl_bf, b: tk.gl_bf, c: tk.gl_fl):
    x = tk.rt_bf(16, 32)
    y = tk.rt_bf(32, 32, tk.col)
    acc = tk.rt_fl(16, 32)
    row = tk.blockIdx.x * 2 + tk.warpid()
    warp.zero(acc)
    for k in range(a.cols // 32):
        warp.load(x, a, (row, k))
        warp.load(y, b, (k, tk.blockIdx.y))
        warp.mma_AB(acc, x, y)
    warp.store(c, acc, (row, tk.blockIdx.y))


@tk.kernel(warps=1)
def bare(a: tk.gl_bf, b: tk.gl_bf, c: tk.gl_fl):
    x = tk.reg_array(tk.bf16, 8)
    y = tk.reg_array(tk.bf16, 4)
    acc = tk.reg_array(tk.f32, 4)
    g, t = tk.laneid() // 4, tk.laneid() % 4
    for i in tk.static_range(8):
        x[i] = a[g + 8 * ((i >> 1) & 1), 2 * t + (i & 1) + 8 * (i >> 2)]
    for i in tk.static_range(4):
        y[i] = b[2 * t + (i & 1) + 8 * (i >> 1), g]
        acc[i] = 0.0
    warp.mma_m16n8k16(acc, x, y)
    for i in tk.static_range(4):
        c[g + 8 * (i >> 1), 2 * t + (i & 1)] = acc[i]


def test_bare_instructions_are_exact() -> None:
    a, b, c = (
        numbers((16, 16), "bf16", 1),
        numbers((16, 8), "bf16", 2),
        np.zeros((16, 8), np.float32),
    )
    for arch in ("hopper", "ampere"):
        bare.sim[1](a, b, c, mma="exact", arch=arch)
        want = numerics.product(
            numerics.decode(a), numerics.decode(b), np.zeros((16, 8)), dtype="bf16", arch=arch
        )
        assert differences(c, want) == 0


def test_options_are_checked() -> None:
    kernel, args = CASES["e4m3"]()
    with pytest.raises(TkError, match=r"(?s)TK411.*fast, exact"):
        kernel.sim[1](*args, mma="precise")
    with pytest.raises(TkError, match=r"(?s)TK411.*volta.*hopper"):
        kernel.sim[1](*args, mma="exact", arch="fermi")
    with pytest.raises(TkError, match=r"(?s)TK411.*takes no e4m3 tiles.*it takes: f32, bf16, f16"):
        kernel.sim[1](*args, mma="exact", arch="ampere")
    with pytest.raises(TkError, match=r"(?s)TK411.*takes no e4m3 tiles"):
        kernel.sim[1](*args, mma="exact", device="A100")
    with pytest.raises(TkError, match=r"(?s)TK411.*'blackwell' is not possible"):
        kernel.sim[1](*args, mma="exact", device="B200")
    with pytest.raises(TkError, match=r"(?s)TK411.*no GPU 'abacus'"):
        kernel.sim[1](*args, mma="exact", device="abacus")


@pytest.mark.gpu
@pytest.mark.parametrize("name", list(CASES))
def test_gpu_gives_the_same_bits(name: str) -> None:
    import cupy
    from test_parity import from_gpu, to_gpu

    arch = {80: "ampere", 86: "ampere", 89: "ada", 90: "hopper"}.get(
        int(cupy.cuda.Device().compute_capability)
    )
    if arch is None or (arch == "ampere" and name in ("e4m3", "e5m2")):
        pytest.skip("the bits of this GPU's tensor core are not known")
    kernel, args = CASES[name]()
    device = [to_gpu(a) for a in args]
    kernel[1](*[d[0] for d in device])
    cupy.cuda.runtime.deviceSynchronize()
    kernel.sim[1](*args, mma="exact", arch=arch)
    assert differences(from_gpu(device[-1], args[-1]), args[-1]) == 0
