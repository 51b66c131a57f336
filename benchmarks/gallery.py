"""Times each kernel of the gallery beside torch, torch.compile, Triton, cuBLAS and a plain copy.

    python benchmarks/gallery.py [--out FILE] [--only softmax gemm] [--rounds 3] [--variants]

Needs a GPU, torch and Triton; without them it says so and exits with 2. Every result is checked
against float64 before it is timed; inputs are random normal. A row's `best` is the fastest of the
others, with 0.95 of the copy's bandwidth among them for kernels that memory bounds, and `ratio` is
how much of its speed ours reaches. Numbers of different runs do not compare: power and clocks move
them by up to 8 %.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from side_by_side import HERE, milliseconds, require_gpu, write

import tklearn as tk
from tklearn.kernels import gemm, layernorm, reduction, rotary, saxpy, softmax, transpose
from tklearn.kernels.arrays import cdiv

DEVICE = "cuda"
VARIANTS = False  # other warps to a block, other heads to a thread
SIZES: dict[str, list[tuple]] = {
    "softmax": [
        (16384, 1024, "bfloat16"), (262144, 1024, "bfloat16"), (65536, 1024, "float32"),
        (65536, 4096, "bfloat16"),
    ],
    "layernorm": [(16384, 1024), (262144, 1024)],
    "rotary": [(1, 16, 16384, 64), (1, 16, 16384, 128), (16, 16, 16384, 64)],
    "saxpy": [(1 << 27,)],
    "transpose": [(16384, 16384)],
    "reduction": [(1 << 28,)],
    "gemm": [
        (512, 512, 512, "bfloat16"), (1024, 1024, 1024, "bfloat16"), (2048, 2048, 2048, "bfloat16"),
        (4096, 4096, 4096, "bfloat16"), (4096, 4096, 4096, "float16"),
        (8192, 8192, 8192, "bfloat16"), (4095, 4097, 4088, "bfloat16"),
    ],
}  # fmt: skip
UNIT = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24}  # one rounding, relative


@dataclass
class Case:
    """One shape of one kernel. `work`: bytes, each operand once, or floating-point operations."""

    kernel: str
    shape: str
    dtype: str
    work: float
    candidates: dict[str, Callable[[], Any]]
    check: Callable[[Callable[[], Any]], tuple[float, float]]  # largest error, and its bound
    tensor: bool = False


def largest(result: Any, expected: Any, bound: Any) -> tuple[float, float]:
    """The error of the element that is worst against its own bound, and that bound."""
    error = (result.double() - expected.double()).abs()
    bound = bound.double().expand_as(error)
    worst = (error / bound).argmax()
    return float(error.flatten()[worst]), float(bound.flatten()[worst])


# ---------------------------------------------------------------------------------- memory bound
def softmax_cases(torch: Any) -> Iterator[Case]:
    from peers import triton_softmax

    compiled = torch.compile(lambda x: torch.softmax(x, -1), dynamic=False)
    for rows, cols, name in SIZES["softmax"]:
        dtype = getattr(torch, name)
        x = torch.randn(rows, cols, device=DEVICE, dtype=dtype)
        y = torch.empty_like(x)

        def ours(n=2, x=x, y=y, cols=cols):
            kernel = softmax.short(_dtype(x.dtype), n)[cdiv(len(x), n)]

            def call():
                kernel(x, y, D=cols)
                return y

            return call

        def check(call, x=x, dtype=dtype):
            want = torch.softmax(x[:4096].double(), -1)
            return largest(call()[:4096], want, want * (UNIT[_name(dtype)] + 2.0**-18) + 1e-30)

        yield Case("softmax", f"{rows}x{cols}", _name(dtype), 2 * x.nbytes, {
            "tklearn": ours(),
            **{f"tklearn rows={n}": ours(n) for n in (1, 2, 4, 8) if VARIANTS},
            "torch": lambda x=x: torch.softmax(x, -1),
            "torch.compile": lambda x=x: compiled(x),
            "triton": lambda x=x, y=y: triton_softmax(x, y),
        }, check)  # fmt: skip


def layernorm_cases(torch: Any) -> Iterator[Case]:
    from peers import triton_layernorm

    def plain(x, r, w, b):
        total = x + r
        return torch.nn.functional.layer_norm(total, w.shape, w, b), total

    compiled = torch.compile(plain, dynamic=False)
    for rows, cols in SIZES["layernorm"]:
        x, r = (torch.randn(rows, cols, device=DEVICE, dtype=torch.bfloat16) for _ in range(2))
        w, b = (torch.randn(cols, device=DEVICE, dtype=torch.bfloat16) for _ in range(2))
        y, total = torch.empty_like(x), torch.empty_like(x)

        def ours(n=1, a=(x, r, w, b, y, total), cols=cols):
            kernel = layernorm.short(tk.bf16, n)[cdiv(len(a[0]), n)]

            def call():
                kernel(*a, D=cols)
                return a[4]

            return call

        def check(call, x=x, r=r, w=w, b=b, cols=cols):
            s = x[:4096].double() + r[:4096].double()
            norm = torch.nn.functional.layer_norm(s, (cols,))
            want = norm * w.double() + b.double()
            # Others round x + r to bf16 first: a unit of up to 8 more, before the weight.
            bound = 2.0**-8 * (want.abs() + w.double().abs() * 8) + 1e-6
            return largest(call()[:4096], want, bound)

        yield Case("layernorm", f"{rows}x{cols}", "bfloat16", 4 * x.nbytes, {
            "tklearn": ours(),
            **{f"tklearn rows={n}": ours(n) for n in (1, 2, 4, 8) if VARIANTS},
            "torch": lambda a=(x, r, w, b): plain(*a)[0],
            "torch.compile": lambda a=(x, r, w, b): compiled(*a)[0],
            "triton": lambda a=(x, r, w, b, y, total): triton_layernorm(*a),
        }, check)  # fmt: skip


def rotary_cases(torch: Any) -> Iterator[Case]:
    from peers import triton_rotary

    def plain(x, cos, sin):
        a, b = x.chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    compiled = torch.compile(plain, dynamic=False)
    for batch, heads, rows, d in SIZES["rotary"]:
        x = torch.randn(batch, heads, rows, d, device=DEVICE, dtype=torch.bfloat16)
        angle = torch.rand(rows, d // 2, device=DEVICE) * 6.28
        cos, sin = angle.cos().bfloat16(), angle.sin().bfloat16()
        y = torch.empty_like(x)

        def ours(n=4, a=(x, cos, sin, y)):
            batch, heads, rows, d = a[0].shape
            blocks = cdiv(rows * (d // 16), rotary.THREADS)
            kernel = rotary.make(tk.bf16, n)[blocks, cdiv(heads, n), batch]

            def call():
                kernel(*a, D=d, W=8)
                return a[3]

            return call

        def check(call, x=x, cos=cos, sin=sin):
            x = x[:1, :2].double()
            want = plain(x, cos.double(), sin.double())
            turned = torch.cat((-x.chunk(2, -1)[1], x.chunk(2, -1)[0]), -1)
            c, s = (torch.cat((t, t), -1).double() for t in (cos, sin))
            size = (x * c).abs() + (turned * s).abs()
            return largest(call()[:1, :2], want, 3 * 2.0**-8 * size)  # torch rounds three times

        moved = 2 * x.nbytes + 2 * cos.nbytes
        yield Case("rotary", f"{batch}x{heads}x{rows}x{d}", "bfloat16", moved, {
            "tklearn": ours(),
            **{f"tklearn heads={n}": ours(n) for n in (1, 2, 8, 16) if VARIANTS},
            "torch": lambda a=(x, cos, sin): plain(*a),
            "torch.compile": lambda a=(x, cos, sin): compiled(*a),
            "triton": lambda a=(x, cos, sin, y): triton_rotary(*a),
        }, check)  # fmt: skip


def saxpy_cases(torch: Any) -> Iterator[Case]:
    ((n,),) = SIZES["saxpy"]
    x, y, out = (torch.randn(n, device=DEVICE) for _ in range(3))
    kernel = saxpy.saxpy[cdiv(n, saxpy.THREADS)]

    def ours():
        kernel(n, 1e-3, x, out)
        return out

    def check(call):
        before = out[: 1 << 20].double() if call is ours else y[: 1 << 20].double()
        want = before + x[: 1 << 20].double() * 1e-3
        return largest(call()[: 1 << 20], want, 2.0**-23 * (want.abs() + 1))

    yield Case("saxpy", str(n), "float32", 3 * x.nbytes, {
        "tklearn": ours, "torch": lambda: torch.add(y, x, alpha=1e-3),
    }, check)  # fmt: skip


def transpose_cases(torch: Any) -> Iterator[Case]:
    ((rows, cols),) = SIZES["transpose"]
    x = torch.randn(rows, cols, device=DEVICE)
    y = torch.empty(cols, rows, device=DEVICE)

    def way(make):
        kernel = make(tk.f32)[cdiv(cols, 32), cdiv(rows, 32)]

        def call():
            kernel(x, y)
            return y

        return call

    def check(call):
        return largest(call()[:1024], x.t()[:1024], x.t()[:1024].abs() * 0 + 1e-30)

    yield Case("transpose", f"{rows}x{cols}", "float32", 2 * x.nbytes, {
        "tklearn": way(transpose.swizzled),
        "tklearn padded": way(transpose.padded),
        "tklearn naive": way(transpose.naive),
        "torch": lambda: x.t().contiguous(),
    }, check)  # fmt: skip


def reduction_cases(torch: Any) -> Iterator[Case]:
    ((n,),) = SIZES["reduction"]
    x = torch.randn(n, device=DEVICE)
    want = x.double().sum(0, keepdim=True)

    def check(call):
        bound = x.double().abs().sum() * 2.0**-24 * 24  # a tree of about 24 additions
        return largest(call().reshape(1), want, bound)

    yield Case("reduction", str(n), "float32", x.nbytes, {
        "tklearn": lambda: reduction.run(x),
        "tklearn atomic": lambda: reduction.run(x, variant="atomic"),
        "torch": lambda: x.sum(),
    }, check)  # fmt: skip


# ---------------------------------------------------------------------------------- tensor cores
def gemm_cases(torch: Any) -> Iterator[Case]:
    for m, n, k, name in SIZES["gemm"]:
        dtype = getattr(torch, name)
        a = torch.randn(m, k, device=DEVICE, dtype=dtype)
        b = torch.randn(k, n, device=DEVICE, dtype=dtype)
        c = torch.empty(m, n, device=DEVICE, dtype=dtype)
        config = gemm.choose(m, n)
        kernel = gemm.make(_dtype(dtype), config)[cdiv(m, config.BM) * cdiv(n, config.BN)]

        def ours(a=a, b=b, c=c, kernel=kernel):
            kernel(a, b, c)
            return c

        def check(call, a=a, b=b, k=k, dtype=dtype):
            rows = torch.linspace(0, a.shape[0] - 1, 64, device=DEVICE).long()
            want = a[rows].double() @ b.double()
            size = a[rows].double().abs() @ b.double().abs()
            bound = UNIT[_name(dtype)] * want.abs() + size * 2.0**-24 * k**0.5 * 4
            return largest(call()[rows], want, bound + 1e-6)

        yield Case("gemm", f"{m}x{n}x{k}", _name(dtype), 2.0 * m * n * k, {
            "tklearn": ours, "cuBLAS": lambda a=a, b=b, c=c: torch.mm(a, b, out=c),
        }, check, tensor=True)  # fmt: skip


ALL = {
    "softmax": softmax_cases,
    "layernorm": layernorm_cases,
    "rotary": rotary_cases,
    "gemm": gemm_cases,
    "transpose": transpose_cases,
    "reduction": reduction_cases,
    "saxpy": saxpy_cases,
}


def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _dtype(dtype: Any) -> Any:
    return {"bfloat16": tk.bf16, "float16": tk.f16, "float32": tk.f32}[_name(dtype)]


def copy_bandwidth(torch: Any, rounds: int) -> float:
    """GB/s of a device copy of 2 GiB, read and write counted."""
    x = torch.empty(1 << 29, device=DEVICE).normal_()
    y = torch.empty_like(x)
    return 2 * x.nbytes / milliseconds({"copy": lambda: y.copy_(x)}, rounds)["copy"] / 1e6


def measure(case: Case, copy: float, rounds: int) -> dict[str, Any]:
    """One row: checked, timed, compared."""
    checks = {name: case.check(call) for name, call in case.candidates.items()}
    ms = milliseconds(case.candidates, rounds)
    scale = 1e9 if case.tensor else 1e6  # TFLOP/s or GB/s from work per millisecond
    rate = {name: case.work / t / scale for name, t in ms.items()}
    others = {name: r for name, r in rate.items() if not name.startswith("tklearn")}
    if not case.tensor:
        others["0.95 copy"] = 0.95 * copy
    best = max(others, key=others.__getitem__)
    error, bound = checks["tklearn"]
    return {
        "kernel": case.kernel, "shape": case.shape, "dtype": case.dtype, "ms": ms,
        "rate": rate, "unit": "TFLOP/s" if case.tensor else "GB/s",
        "best": best, "ratio": rate["tklearn"] / others[best], "error": error, "bound": bound,
        "wrong": [name for name, (e, b) in checks.items() if not e <= b],
    }  # fmt: skip


def line(row: dict[str, Any]) -> str:
    rates = "  ".join(f"{n} {r:.0f}" for n, r in row["rate"].items())
    state = f"WRONG: {', '.join(row['wrong'])}" if row["wrong"] else "ok"
    return (
        f"{row['kernel']:9} {row['shape']:>17} {row['dtype']:8} "
        f"{row['ratio']:5.2f} of {row['best']:13} {row['unit']:7} {rates}  [{state}]"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=HERE / "results" / "gallery.json")
    parser.add_argument("--only", nargs="+", choices=ALL, default=list(ALL))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--variants", action="store_true", help="also other shapes of our blocks")
    options = parser.parse_args()
    global VARIANTS
    VARIANTS = options.variants
    torch = require_gpu()
    torch.manual_seed(0)
    copy = copy_bandwidth(torch, options.rounds)
    print(f"{torch.cuda.get_device_name()}: copy {copy:.0f} GB/s")
    rows = []
    for name in options.only:
        for case in ALL[name](torch):
            rows.append(measure(case, copy, options.rounds))
            print(line(rows[-1]), flush=True)
    write(options.out, torch, rows, copy_gb_s=copy)
    return 1 if any("tklearn" in row["wrong"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
