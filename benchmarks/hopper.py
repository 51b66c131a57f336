"""The gallery's kernels for sm_90a beside cuBLAS, cuDNN, FlashAttention-2 and torch, in one run.

    python benchmarks/hopper.py --out FOLDER [--only gemm attention linear] [--rounds 2]

Writes FOLDER/hopper.json. Every result is checked before it is timed: `error` is the largest
difference from an fp32 reference (float64 for the products), relative to its root mean square, of a
sample of rows; a wrong one is reported, not timed. `ratio` is our speed over the fastest of the
others. `host` is what a call of `run` costs the processor, in microseconds. `--variants` also times
other stages and forms of our kernels. About 80 s on an H200; `--compile` only fills the disk cache
with the kernels, without a GPU. Exits with 2 without a GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from side_by_side import milliseconds, require_gpu, write

import tklearn as tk
from tklearn.kernels import attention_hopper, gemm_hopper, linear_attention
from tklearn.kernels.arrays import cdiv
from tklearn.tensor import NUMPY_DTYPES

DEVICE = "cuda"
VARIANTS = False
PRODUCTS = (2048, 4096, 8192, 16384)
LENGTHS = (1024, 2048, 4096, 8192, 16384)
LINEAR = (1024, 4096, 16384)
ROWS = 128  # of a result that are compared
BOUND = {"gemm": 0.02, "attention": 0.03, "linear": 0.05}  # bf16 rounds by 2^-9 of a value


@dataclass
class Case:
    """`work`: floating-point operations of a call. `check` of a result: its error."""

    kernel: str
    shape: str
    work: float
    candidates: dict[str, Callable[[], Any]]
    check: Callable[[Any], float]
    run: Callable[[], Any]
    facts: dict[str, Any] = field(default_factory=dict)


def relative(got: Any, want: Any) -> float:
    """Largest |got - want| over the root mean square of `want`; infinite where one is no number."""
    gap = (got.double() - want.double()).abs().max() / want.double().pow(2).mean().sqrt()
    return float(gap) if bool(gap.isfinite()) else float("inf")


# ---------------------------------------------------------------------------------------- products
def gemm_cases(torch: Any) -> Iterator[Case]:
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    for n in PRODUCTS:
        a = torch.randn(n, n, device=DEVICE, dtype=torch.bfloat16)
        b = torch.randn(n, n, device=DEVICE, dtype=torch.bfloat16)
        c = torch.empty_like(a)
        rows = torch.linspace(0, n - 1, ROWS, device=DEVICE).long()
        want = a[rows].double() @ b.double()
        config = gemm_hopper.choose(n, n, n, sms)

        def ours(config=config, a=a, b=b, c=c, n=n):
            tiles = cdiv(n, 64 * config.CONSUMERS) * cdiv(n, config.BN)
            kernel = gemm_hopper.persistent(tk.bf16, config)[min(tiles, sms)]

            def call():
                kernel(a, b, c)
                return c

            return call

        def simple(a=a, b=b, c=c, n=n):
            kernel = gemm_hopper.simple(tk.bf16)[cdiv(n, 128), cdiv(n, 128)]

            def call():
                kernel(a, b, c)
                return c

            return call

        candidates = {"tklearn": ours(), "cuBLAS": lambda a=a, b=b, c=c: torch.mm(a, b, out=c)}
        if VARIANTS:
            candidates["tklearn wide"] = ours(gemm_hopper.WIDE)
            candidates["tklearn simple"] = simple()
        yield Case(
            "gemm", f"{n}x{n}x{n}", 2.0 * n**3, candidates,
            lambda y, rows=rows, want=want: relative(y[rows], want),
            lambda a=a, b=b, c=c: gemm_hopper.run(a, b, out=c), {"config": list(config)},
        )  # fmt: skip


# --------------------------------------------------------------------------------------- attention
def attention_cases(torch: Any) -> Iterator[Case]:
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention as sdpa

    for d in (128, 64):
        for causal in (False, True):
            for n in LENGTHS:
                batch, heads = 16384 // n, 2048 // d
                shape = (batch, heads, n, d)
                q, k, v = (torch.randn(shape, device=DEVICE, dtype=torch.bfloat16) for _ in "qkv")
                y = torch.empty_like(q)

                def ours(kernel, grid, a=(q, k, v, y), d=d):
                    launch = kernel[grid]

                    def call():
                        launch(*a, attention_hopper.LOG2E * d**-0.5)
                        return a[3]

                    return call

                def theirs(backend, a=(q, k, v), causal=causal):
                    def call():
                        with sdpa_kernel(backend):
                            return sdpa(*a, is_causal=causal)

                    return call

                candidates = {
                    "tklearn": ours(*attention_hopper.plan(tk.bf16, shape, causal)),
                    "cuDNN": theirs(SDPBackend.CUDNN_ATTENTION),
                    "FlashAttention-2": theirs(SDPBackend.FLASH_ATTENTION),
                }
                if VARIANTS:
                    for label, options in attention_hopper.PLANS.items():
                        plan = attention_hopper.plan(tk.bf16, shape, causal, **options)
                        candidates[f"tklearn {label}"] = ours(*plan)
                yield Case(
                    f"attention D{d} {'causal' if causal else 'full'}", f"{batch}x{heads}x{n}x{d}",
                    4.0 * batch * heads * n * n * d / (2 if causal else 1), candidates,
                    attention_check(torch, q, k, v, causal),
                    lambda q=q, k=k, v=v, y=y, causal=causal:
                    attention_hopper.run(q, k, v, causal=causal, out=y),
                )  # fmt: skip


def attention_check(torch: Any, q: Any, k: Any, v: Any, causal: bool) -> Callable[[Any], float]:
    """Some rows of the first and of the last head, in f32."""
    n, d = q.shape[2:]
    rows = torch.linspace(0, n - 1, ROWS, device=q.device).long()
    places, want = ((0, 0), (-1, -1)), []
    for i in places:
        s = q[i][rows].double() @ k[i].double().T * d**-0.5
        if causal:
            hidden = torch.arange(n, device=q.device)[None] > rows[:, None]
            s = s.masked_fill(hidden, float("-inf"))
        want.append(torch.softmax(s, -1) @ v[i].double())

    def check(y: Any) -> float:
        # Rows of a causal result differ in size: each is judged by its own.
        worst = 0.0
        for i, w in zip(places, want, strict=True):
            size = w.pow(2).mean(-1, keepdim=True).sqrt()
            worst = max(worst, relative(y[i][rows] / size, w / size))
        return worst

    return check


# -------------------------------------------------------------------------------- linear attention
def linear_cases(torch: Any) -> Iterator[Case]:
    for n in LINEAR:
        shape = (16, 16, n, 64)
        q, k, v = (torch.randn(shape, device=DEVICE, dtype=torch.bfloat16) for _ in "qkv")
        q = q * 0.125
        y = torch.empty_like(q)

        def ours(stages=2, a=(q, k, v, y)):
            launch = linear_attention.make(stages)[16, 16]

            def call():
                launch(*a)
                return a[3]

            return call

        def chunked(q=q, k=k, v=v):
            """The same sum in chunks of 64, with torch's batched products."""

            def call():
                cut = (*q.shape[:2], -1, 64, 64)
                a, b, c = q.reshape(cut), k.reshape(cut), v.reshape(cut)
                state = (b.mT @ c).float().cumsum(2)
                state = torch.nn.functional.pad(state, (0, 0, 0, 0, 1, 0))[:, :, :-1]
                own = (a @ b.mT).tril() @ c
                return (own + a @ state.to(a.dtype)).reshape(q.shape)

            return call

        def check(y, q=q, k=k, v=v):
            worst = 0.0
            for i in ((0, 0), (-1, -1)):
                rows = torch.linspace(64, q.shape[2] - 1, ROWS, device=DEVICE).long()
                s = q[i][rows].double() @ k[i].double().T
                s *= torch.arange(q.shape[2], device=DEVICE)[None] <= rows[:, None]
                want = s @ v[i].double()
                size = want.pow(2).mean(-1, keepdim=True).sqrt()
                worst = max(worst, relative(y[i][rows] / size, want / size))
            return worst

        candidates = {"tklearn": ours(), "torch, chunks": chunked()}
        if VARIANTS:
            candidates["tklearn 3 stages"] = ours(3)
        yield Case(
            "linear attention", f"16x16x{n}x64", 2.0 * 16 * 16 * n * 64 * 64 * 4, candidates, check,
            lambda q=q, k=k, v=v, y=y: linear_attention.run(q, k, v, out=y),
            {"bytes": 4 * q.nbytes},
        )  # fmt: skip


CASES = {"gemm": gemm_cases, "attention": attention_cases, "linear": linear_cases}


# --------------------------------------------------------------------------------------- measuring
def host(torch: Any, call: Callable[[], Any]) -> float:
    """Microseconds of the processor for one call: it does not wait for the GPU."""
    call()
    times = []
    for _ in range(5):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(10):
            call()
        times.append((time.perf_counter() - start) / 10)
    torch.cuda.synchronize()
    return statistics.median(times) * 1e6


def measure(torch: Any, case: Case, rounds: int) -> dict[str, Any]:
    """One row: checked, timed, compared."""
    errors, right = {}, {}
    for name, call in case.candidates.items():
        try:
            errors[name] = case.check(call())
        except (RuntimeError, tk.TkError) as e:  # a backend that does not take this shape
            print(f"  {name}: {str(e).splitlines()[0]}")
            continue
        right[name] = call
    bound = BOUND[case.kernel.split()[0]]
    wrong = [n for n, e in errors.items() if n.startswith("tklearn") and not e <= bound]
    ms = milliseconds({n: c for n, c in right.items() if n not in wrong}, rounds, rep=30)
    rate = {name: case.work / t / 1e9 for name, t in ms.items()}
    others = [n for n in rate if not n.startswith("tklearn")]
    best = max(others, key=rate.__getitem__)
    return {
        "kernel": case.kernel, "shape": case.shape, "ms": ms, "tflops": rate, "best": best,
        "ratio": rate.get("tklearn", 0.0) / rate[best], "error": errors, "wrong": wrong,
        "host_us": host(torch, case.run), **case.facts,
    }  # fmt: skip


def line(row: dict[str, Any]) -> str:
    rates = "  ".join(f"{n} {r:.0f}" for n, r in row["tflops"].items())
    state = f"WRONG: {', '.join(row['wrong'])}" if row["wrong"] else "ok"
    return (
        f"{row['kernel']:22} {row['shape']:>17} {row['ratio']:5.2f} of {row['best']:13} {rates}  "
        f"error {row['error'].get('tklearn', 0):.1e} host {row['host_us']:.0f} us [{state}]"
    )


def compile_one(what: tuple[str, tuple]) -> str:
    """One kernel into the disk cache."""

    kind, options = what
    with contextlib.suppress(tk.TkError):  # too much shared memory: its row will say so
        return _compile(kind, options)
    return f"{kind} {options}: not possible"


def _compile(kind: str, options: tuple) -> str:
    from tklearn.cuda.compile import compile_source
    from tklearn.cuda.emit import emit

    x = np.zeros((1, 1, 8, 64), NUMPY_DTYPES["bf16"])
    if kind == "gemm":
        k = gemm_hopper.persistent(tk.bf16, options[0]).ir(*[x[0, 0]] * 3)
    elif kind == "simple":
        k = gemm_hopper.simple(tk.bf16).ir(*[x[0, 0]] * 3)
    elif kind == "attention":
        d, causal, more = options
        x = np.zeros((1, 1, 8, d), NUMPY_DTYPES["bf16"])
        k = attention_hopper.plan(tk.bf16, x.shape, causal, **dict(more))[0].ir(*[x] * 4, 0.1)
    else:
        k = linear_attention.make(*options).ir(*[x] * 4)
    facts = compile_source(emit(k), 90).facts
    bad = " ".join(facts.notes) + (f" {facts.spill_stores} B SPILT" if facts.spills else "")
    return f"{kind} {options}: {facts.registers} registers, {k.shared_bytes} B shared {bad}"


def compile_all() -> None:
    """Every kernel that can be asked for, by several processes."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    work: list[tuple[str, tuple]] = [("gemm", (c,)) for c in gemm_hopper.COSTS]
    work += [("simple", ()), ("linear", (2,)), ("linear", (3,))]
    for more in ({}, *(attention_hopper.PLANS.values() if VARIANTS else ())):
        work += [("attention", (d, c, tuple(more.items()))) for d in (64, 128) for c in (0, 1)]
    with ProcessPoolExecutor(8, get_context("spawn")) as pool:
        for said in pool.map(compile_one, work):
            print(said, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("hopper"))
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--variants", action="store_true", help="also other forms of our kernels")
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    global VARIANTS
    VARIANTS = options.variants
    if options.compile:
        compile_all()
        return 0
    torch = require_gpu()
    torch.manual_seed(0)
    start = time.time()
    compile_all()
    print(f"{torch.cuda.get_device_name()}; compiled in {time.time() - start:.0f} s", flush=True)
    rows = []
    for name in options.only:
        for case in CASES[name](torch):
            rows.append(measure(torch, case, options.rounds))
            print(line(rows[-1]), flush=True)
    write(options.out / "hopper.json", torch, rows, seconds=round(time.time() - start, 1))
    return 1 if any(row["wrong"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
