"""The gallery on both machines: values, odd sizes, faults, counters, and its cost in the simulator.

Tolerances follow from the dtypes and from how many numbers are added, so that a kernel that leaves
out one k-step, one chunk of a row or one block fails.
"""

from __future__ import annotations

import importlib.util
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest

import tklearn as tk
from tklearn.kernels import gemm, layernorm, reduction, rotary, saxpy, softmax, transpose
from tklearn.tensor import NUMPY_DTYPES

FLOATS = (tk.f32, tk.f16, tk.bf16)
HALVES = (tk.f16, tk.bf16)
UNIT = {"f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}  # error of one rounding, relative
TINY = {"f32": 2.0**-126, "f16": 2.0**-25, "bf16": 2.0**-126}  # and where that ends, absolute
U = UNIT["f32"]


def normal(shape: Any, T: Any, seed: int = 0) -> np.ndarray:
    """Random normal numbers in T."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal(shape, dtype=np.float32).astype(NUMPY_DTYPES[T.name])


def view(x: np.ndarray) -> np.ndarray:
    """The same values as a window of a larger array: the pitch is no longer the row's length."""
    big = np.full((*x.shape[:-2], x.shape[-2] + 1, x.shape[-1] + 3), 99, x.dtype)
    big[..., : x.shape[-2], : x.shape[-1]] = x
    return big[..., : x.shape[-2], : x.shape[-1]]


def unit(x: np.ndarray) -> tuple[float, float]:
    name = next(n for n, d in NUMPY_DTYPES.items() if d == x.dtype)
    return UNIT[name], TINY[name]


# ------------------------------------------- how far a result may be from the float64 reference
def saxpy_bound(a: float, x: np.ndarray, y: np.ndarray) -> Any:
    return U * np.abs(saxpy.reference(a, x, y)) + TINY["f32"]  # one fused operation


def sum_bound(x: np.ndarray) -> Any:
    return np.abs(x.astype(np.float64)).sum() * U * (math.log2(max(len(x), 1)) + 8) + TINY["f32"]


def softmax_bound(x: np.ndarray) -> Any:
    """exp: its argument carries two roundings, itself 2 ulp; the sum a rounding for each fold."""
    u, tiny = unit(x)
    finite = np.where(np.isfinite(x), x, 0).astype(np.float64)
    reach = float(np.ptp(finite)) if x.size else 0.0
    per_value = (2 * reach + 8 + math.log2(max(x.shape[-1], 1))) * U
    return softmax.reference(x) * (u + per_value) + tiny


def layernorm_bound(x: Any, r: Any, w: Any, b: Any) -> tuple[Any, Any]:
    u, tiny = unit(x)
    y, total = layernorm.reference(x, r, w, b)
    if not total.size:
        return y, total
    size = np.abs(y) + np.abs(w.astype(np.float64)) + np.abs(b.astype(np.float64))
    spread = np.abs(total).max(axis=-1, keepdims=True) / np.sqrt(
        total.var(axis=-1, keepdims=True) + 1e-5
    )
    folds = 16 + math.log2(max(x.shape[-1], 1))
    return u * np.abs(y) + folds * U * size * (1 + spread) + tiny, (u + U) * np.abs(total) + tiny


def rotary_bound(x: Any, cos: Any, sin: Any) -> Any:
    u, tiny = unit(x)
    a, b = np.split(np.abs(x.astype(np.float64)), 2, axis=-1)
    c, s = np.abs(cos.astype(np.float64)), np.abs(sin.astype(np.float64))
    size = np.concatenate([a * c + b * s, b * c + a * s], axis=-1)
    return u * np.abs(rotary.reference(x, cos, sin)) + 2 * U * size + tiny


def gemm_bound(a: np.ndarray, b: np.ndarray) -> Any:
    """Each instruction truncates 16 products and their sum, up to 10 U of it (FACTS.md 7)."""
    u, tiny = unit(a)
    size = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))
    return u * np.abs(gemm.reference(a, b)) + 10 * U * (a.shape[1] / 16 + 1) * size + tiny


# -------------------------------------------------------------------------------------- the cases
@dataclass(frozen=True)
class Case:
    """One call: `run` on the arrays of `make()`, beside `reference` and `bound` of the same."""

    name: str
    run: Callable[..., Any]
    make: Callable[[], list[np.ndarray]]
    reference: Callable[..., Any]
    bound: Callable[..., Any]


def each(x: Any) -> tuple:
    return x if isinstance(x, tuple) else (x,)


def check(case: Case, args: list[np.ndarray], result: Any) -> None:
    """The result against the reference; each element within its own bound."""
    wants, bounds = each(case.reference(*args)), each(case.bound(*args))
    for got, want, bound in zip(each(result), wants, bounds, strict=True):
        got = np.asarray(got).astype(np.float64)
        assert got.shape == want.shape
        error = np.abs(got - want)
        bound = np.broadcast_to(bound, error.shape)
        wrong = ~(error <= bound)
        assert not wrong.any(), (
            f"{wrong.sum()} of {wrong.size} elements, the first at {np.argwhere(wrong)[0]}; "
            f"error up to {error[wrong].max():.3g} where {bound[wrong].min():.3g} is allowed"
        )


def row_inputs(rows: int, cols: int, T: Any) -> list[np.ndarray]:
    x, residual = normal((rows, cols), T), normal((rows, cols), T, 1)
    return [x, residual, normal(cols, T, 2), normal(cols, T, 3)]


def rotary_inputs(shape: tuple[int, ...], T: Any) -> list[np.ndarray]:
    angle = np.random.default_rng(5).uniform(0, 6.28, (shape[2], shape[3] // 2))
    tables = [f(angle).astype(np.float32).astype(NUMPY_DTYPES[T.name]) for f in (np.cos, np.sin)]
    return [normal(shape, T), *tables]


def masked(rows: int, cols: int, T: Any) -> list[np.ndarray]:
    """Scores as attention masks them: all but some are minus infinity."""
    x = normal((rows, cols), T)
    x[:, 20:] = -np.inf
    x[0, 1:] = -np.inf
    return [x]


def offset_rows(rows: int, cols: int, T: Any) -> list[np.ndarray]:
    """A mean far from 0: sums in bf16 would lose the spread altogether."""
    d = NUMPY_DTYPES[T.name]
    x = (normal((rows, cols), tk.f32) + 30).astype(d)
    return [x, np.zeros_like(x), np.ones(cols, d), np.zeros(cols, d)]


SUM = 5 * reduction.SHARE + 3
LONG_ROWS = {softmax: softmax.LONGEST + 65, layernorm: layernorm.LONGEST + 65}
ROWS = [(r, c) for c in (1, 7, 65, 128, 1000, 1024) for r in (1, 5)] + [(0, 5), (5, 0)]
PRODUCTS = [
    (1, 1, 1), (7, 65, 33), (65, 7, 129), (128, 128, 64), (130, 72, 200), (200, 136, 320),
    (64, 64, 0), (0, 5, 7), (5, 0, 7),
]  # fmt: skip


def cases(T: Any) -> Iterator[Case]:
    """Calls of every kernel that takes T, at sizes with and without edges, empty ones and views."""
    if T is tk.f32:
        for n in (0, 1, 7, 65, 256, 1000):
            yield Case(f"saxpy {n}", partial(saxpy.run, 0.7),
                       lambda n=n: [normal(n, T), normal(n, T, 1)],
                       partial(saxpy.reference, 0.7), partial(saxpy_bound, 0.7))  # fmt: skip
    for v in transpose.VARIANTS:
        run = partial(transpose.run, variant=v)
        for shape in ((1, 1), (7, 65), (65, 7), (32, 32), (64, 96), (0, 5), (5, 0)):
            yield Case(f"transpose {v} {shape}", run, lambda s=shape: [normal(s, T)],
                       transpose.reference, lambda x: 0.0)  # fmt: skip
        yield Case(f"transpose {v} view", run, lambda: [view(normal((40, 50), T))],
                   transpose.reference, lambda x: 0.0)  # fmt: skip
    for v in ("staged", "atomic"):
        run = partial(reduction.run, variant=v)
        for n in (0, 1, 7, 65, reduction.SHARE, SUM):
            yield Case(f"sum {v} {n}", run, lambda n=n: [normal(n, T)],
                       reduction.reference, sum_bound)  # fmt: skip
    for shape in (*ROWS, (3, softmax.LONGEST), (3, LONG_ROWS[softmax])):
        yield Case(f"softmax {shape}", softmax.run, lambda s=shape: [normal(s, T)],
                   softmax.reference, softmax_bound)  # fmt: skip
    for cols in (96, LONG_ROWS[softmax]):
        yield Case(f"softmax masked {cols}", softmax.run, partial(masked, 3, cols, T),
                   softmax.reference, softmax_bound)  # fmt: skip
    yield Case("softmax view", softmax.run, lambda: [view(normal((6, 100), T))],
               softmax.reference, softmax_bound)  # fmt: skip
    for shape in (*ROWS, (3, layernorm.LONGEST), (3, LONG_ROWS[layernorm])):
        yield Case(f"layernorm {shape}", layernorm.run, partial(row_inputs, *shape, T),
                   layernorm.reference, layernorm_bound)  # fmt: skip
    yield Case("layernorm far from 0", layernorm.run, partial(offset_rows, 4, 1024, T),
               layernorm.reference, layernorm_bound)  # fmt: skip
    yield Case("layernorm view", layernorm.run,
               lambda: [*map(view, row_inputs(6, 100, T)[:2]), *row_inputs(6, 100, T)[2:]],
               layernorm.reference, layernorm_bound)  # fmt: skip
    for shape in (
        (1, 1, 1, 64), (2, 5, 65, 64), (1, 4, 7, 128), (1, 3, 33, 6), (1, 2, 9, 40), (2, 1, 3, 2),
        (0, 2, 3, 64), (1, 0, 3, 64), (1, 2, 0, 64), (1, 2, 3, 0),
    ):  # fmt: skip
        yield Case(f"rotary {shape}", rotary.run, partial(rotary_inputs, shape, T),
                   rotary.reference, rotary_bound)  # fmt: skip
    yield Case("rotary view", rotary.run,  # rows no longer start at multiples of 16 bytes
               lambda: [view(normal((2, 3, 20, 64), T)), *rotary_inputs((2, 3, 20, 64), T)[1:]],
               rotary.reference, rotary_bound)  # fmt: skip
    for name, config in (("big", gemm.BIG), ("small", gemm.SMALL)) if T in HALVES else ():
        run = partial(gemm.run, config=config)
        for m, n, k in PRODUCTS:
            yield Case(f"gemm {name} {m}x{n}x{k}", run,
                       lambda m=m, n=n, k=k: [normal((m, k), T), normal((k, n), T, 1)],
                       gemm.reference, gemm_bound)  # fmt: skip
        yield Case(f"gemm {name} view", run,
                   lambda: [view(normal((70, 90), T)), view(normal((90, 50), T, 1))],
                   gemm.reference, gemm_bound)  # fmt: skip


def every(dtypes: tuple = FLOATS) -> list[Any]:
    return [pytest.param(c, id=f"{T.name} {c.name}") for T in dtypes for c in cases(T)]


def edges(*dtypes: Any) -> list[Any]:
    """One call of each kernel, with more than one block and edges."""
    wanted = (
        "saxpy 1000", "transpose naive (65, 7)", "transpose padded (65, 7)",
        "transpose swizzled (65, 7)", f"sum staged {SUM}", f"sum atomic {SUM}", "softmax (5, 65)",
        f"softmax (3, {LONG_ROWS[softmax]})", "layernorm (5, 65)",
        f"layernorm (3, {LONG_ROWS[layernorm]})", "rotary (2, 5, 65, 64)",
        "gemm big 200x136x320", "gemm small 200x136x320",
    )  # fmt: skip
    named = [(f"{T.name} {c.name}", c) for T in dtypes for c in cases(T)]
    return [pytest.param(c, id=n) for n, c in named if c.name in wanted]


# -------------------------------------------------------------------------------------- simulator
@pytest.mark.parametrize("case", every())
def test_values_on_the_simulator(case: Case) -> None:
    args = case.make()
    check(case, args, case.run(*args))


def test_gemm_bound_sees_a_lost_step() -> None:
    """The bound is a test only if leaving out 16 of the inner dimension breaks it."""
    a, b = normal((64, 512), tk.bf16), normal((512, 64), tk.bf16, 1)
    lost = np.abs(gemm.reference(a[:, 16:], b[16:]) - gemm.reference(a, b))
    assert (lost > gemm_bound(a, b)).mean() > 0.9


def bits(result: Any) -> list[bytes]:
    return [np.asarray(v).tobytes() for v in each(result)]


@pytest.mark.parametrize("case", edges(tk.f32, tk.bf16))
def test_no_fault_and_the_same_bits_in_every_schedule(case: Case) -> None:
    args = case.make()
    want = bits(case.run(*args, check="full"))
    seeds = range(20) if "bf16" in case.name else (3,)
    for options in ({"schedule": "reverse"}, *({"schedule": "random", "seed": n} for n in seeds)):
        assert bits(case.run(*args, check="full", **options)) == want


@pytest.mark.parametrize("case", edges(tk.f32, tk.bf16))
def test_batched_and_single_blocks_agree(case: Case) -> None:
    args = case.make()
    many, batched = case.run(*args, report=True)
    one, single = case.run(*args, report=True, batch=False)
    assert bits(many) == bits(one)
    for b, s in zip(reports_of(batched), reports_of(single), strict=True):
        assert (b.lines, b.clipped) == (s.lines, s.clipped)


def reports_of(r: Any) -> list[Any]:
    return r if isinstance(r, list) else [r]


@pytest.mark.parametrize("case", edges(tk.bf16))
def test_out_and_report(case: Case) -> None:
    args = case.make()
    want = case.run(*args)
    out = tuple(np.empty_like(w) for w in each(want))
    got, report = case.run(*args, out=out if isinstance(want, tuple) else out[0], report=True)
    assert all(g is o for g, o in zip(each(got), out, strict=True))
    assert bits(got) == bits(want)
    assert all(r.machine == "simulator" and r.lines for r in reports_of(report))


def test_saxpy_works_in_place() -> None:
    x, y = normal(300, tk.f32), normal(300, tk.f32, 1)
    want = saxpy.run(2.0, x, y)
    assert saxpy.run(2.0, x, y, out=y) is y
    assert bits(y) == bits(want)


def test_staged_reduction_has_a_second_stage() -> None:
    _, reports = reduction.run(normal(reduction.SHARE * 3, tk.f32), report=True)
    assert [r.grid[0] for r in reports] == [3, 1]


def test_torch_arrays_on_the_cpu() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    a, b = normal((70, 90), tk.bf16), normal((90, 50), tk.bf16, 1)
    ta, tb = (torch.from_numpy(v.astype(np.float32)).bfloat16() for v in (a, b))
    c = gemm.run(ta, tb)
    assert c.dtype == torch.bfloat16
    assert np.array_equal(c.float().numpy(), gemm.run(a, b).astype(np.float32))
    total = reduction.run(ta.reshape(-1))
    assert (total.dtype, tuple(total.shape)) == (torch.float32, (1,))


def test_every_run_makes_a_torch_operator() -> None:
    """Under torch's tracing sizes have no values and tensors no memory; `run` has to bear that."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    calls = {
        "gallery_gemm": (gemm.run, [half(33, 40), half(40, 17)]),
        "gallery_softmax": (softmax.run, [plain(5, 65)]),
        "gallery_layernorm": (layernorm.run, row_inputs(5, 65, tk.f32)),
        "gallery_rotary": (rotary.run, rotary_inputs((1, 2, 9, 64), tk.f32)),
        "gallery_sum": (reduction.run, [plain(5000)]),
        "gallery_transpose": (transpose.run, [plain(7, 65)]),
    }
    for name, (run, arrays) in calls.items():
        names = "abcd"[: len(arrays)]
        made: dict[str, Any] = {"run": run, "Tensor": torch.Tensor}
        pair = "tuple[Tensor, Tensor]" if run is layernorm.run else "Tensor"
        takes = ", ".join(f"{n}: Tensor" for n in names)
        exec(f"def f({takes}) -> {pair}: return run({', '.join(names)})", made)
        tk.torch_op(made["f"], name=name)
        tensors = tuple(torch.from_numpy(a.astype(np.float32)) for a in arrays)
        tensors = tuple(t.bfloat16() for t in tensors) if run is gemm.run else tensors
        torch.library.opcheck(getattr(torch.ops.tklearn, name).default, tensors)


def plain(*shape: int) -> np.ndarray:
    return normal(shape, tk.f32)


def half(*shape: int) -> np.ndarray:
    return normal(shape, tk.bf16)


WRONG: dict[str, tuple[Callable, str, str]] = {
    "inner sizes": (lambda: gemm.run(half(4, 5), half(6, 4)), "TK410", "5 and 6 differ"),
    "two dtypes": (
        lambda: gemm.run(half(4, 5), normal((5, 4), tk.f16)),
        "TK401",
        "'b' must be bf16",
    ),
    "f32 products": (lambda: gemm.run(plain(4, 5), plain(5, 4)), "TK401", "bf16 or f16"),
    "a vector": (lambda: gemm.run(half(4), half(4, 4)), "TK402", "2 dimensions"),
    "a list": (lambda: gemm.run([[1.0]], half(1, 1)), "TK400", "must be an array"),
    "out": (lambda: softmax.run(plain(2, 3), out=plain(3, 2)), "TK410", "'out'"),
    "an option": (lambda: softmax.run(plain(2, 3), chek="full"), "TK4", "chek"),
    "a variant": (lambda: transpose.run(plain(2, 3), variant="fast"), "TK410", "fast"),
    "tables": (lambda: rotary.run(plain(1, 1, 4, 8), plain(4, 3), plain(4, 3)), "TK410", "tables"),
    "halves": (lambda: rotary.run(plain(1, 1, 2, 7), plain(2, 3), plain(2, 3)), "TK410", "halves"),
    "bias": (lambda: layernorm.run(*row_inputs(2, 8, tk.f32)[:3], plain(7)), "TK410", "'bias'"),
    "lengths": (lambda: saxpy.run(1.0, plain(3), plain(4)), "TK410", "3 elements"),
    "the way": (lambda: reduction.run(plain(3), variant="tree"), "TK410", "tree"),
}


@pytest.mark.parametrize(("call", "code", "words"), WRONG.values(), ids=WRONG)
def test_wrong_calls_say_what_is_wrong(call: Any, code: str, words: str) -> None:
    with pytest.raises(tk.TkError) as e:
        call()
    assert e.value.code.startswith(code)
    assert words in str(e.value)


# --------------------------------------------------------------------------------------- counters
def test_bank_conflicts_of_the_transposes() -> None:
    """One block: 32 column reads. In 32 columns each costs 32 passes, padded or swizzled one."""
    conflicts = {}
    for v in transpose.VARIANTS:
        _, report = transpose.run(normal((32, 32), tk.f32), variant=v, report=True)
        conflicts[v] = report["shared_ld_conflicts"], report["shared_st_conflicts"]
        assert report["global_ld_sectors"] == report["global_st_sectors"] == 32 * 4
    assert conflicts == {"naive": (32 * 31, 0), "padded": (0, 0), "swizzled": (0, 0)}


def test_gemm_reads_shared_memory_without_conflicts() -> None:
    a, b = normal((256, 128), tk.bf16), normal((128, 256), tk.bf16, 1)
    for config in (gemm.BIG, gemm.SMALL):
        _, report = gemm.run(a, b, config=config, report=True)
        assert report["shared_ld_conflicts"] == 0
        assert report["tensor_flops"] == 2 * 256 * 256 * 128


def test_row_kernels_move_each_byte_once() -> None:
    """Whole sectors, read once and written once: what bounds a memory-bound kernel."""
    x = normal((8, 1024), tk.bf16)
    _, report = softmax.run(x, report=True)
    assert report["global_ld_sectors"] == report["global_st_sectors"] == x.nbytes // 32
    args = rotary_inputs((1, 4, 32, 64), tk.bf16)
    _, report = rotary.run(*args, report=True)
    assert report["global_ld_sectors"] == (args[0].nbytes + 2 * args[1].nbytes) // 32
    assert report["global_ld_requests"] == report["global_ld_sectors"] // 16  # 16 bytes a lane


# ----------------------------------------------------------------- what it costs in the simulator
# Inputs of s blocks or so, and most generator resumes and function calls (Python and C) of a batch.
COSTS: dict[str, tuple[Callable, Callable, int, int]] = {
    "saxpy": (partial(saxpy.run, 0.7), lambda s: [plain(256 * s), plain(256 * s)], 8, 8_000),
    "transpose": (transpose.run, lambda s: [plain(64, 32 * s)], 16, 30_000),
    "sum": (reduction.run, lambda s: [plain(reduction.SHARE * s)], 24, 25_000),
    "softmax": (softmax.run, lambda s: [half(4 * s, 256)], 4, 5_000),
    "softmax long": (softmax.run, lambda s: [half(s, LONG_ROWS[softmax])], 40, 130_000),
    "layernorm": (layernorm.run, lambda s: row_inputs(4 * s, 256, tk.bf16), 4, 11_000),
    "layernorm long": (
        layernorm.run, lambda s: row_inputs(s, LONG_ROWS[layernorm], tk.bf16), 40, 160_000,
    ),
    "rotary": (rotary.run, lambda s: rotary_inputs((1, 4, 64 * s, 64), tk.bf16), 8, 260_000),
    "gemm big": (
        partial(gemm.run, config=gemm.BIG),
        lambda s: [half(128 * s, 256), half(256, 128)], 20, 20_000,
    ),
    "gemm small": (
        partial(gemm.run, config=gemm.SMALL),
        lambda s: [half(64 * s, 256), half(256, 64)], 20, 20_000,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("run", "make", "resumes", "calls"), COSTS.values(), ids=COSTS)
def test_the_simulator_works_by_batches(run: Any, make: Any, resumes: int, calls: int) -> None:
    """Blocks are an axis of arrays: sixteen times as many cost more batches at most, by memory."""
    for s in (2, 32):
        args = make(s)
        run(*args)  # patterns are counted once and kept
        count = 0

        def hook(frame: Any, event: str, arg: Any) -> None:
            nonlocal count
            count += event in ("call", "c_call")

        sys.setprofile(hook)
        try:
            _, report = run(*args, report=True)
        finally:
            sys.setprofile(None)
        stats = reports_of(report)[0].stats
        batches = stats["batches"]
        assert batches <= (1 if s == 2 else 4)
        assert stats["resumes"] <= resumes * batches
        assert count <= calls * batches


# ------------------------------------------------------------------------------------------- CUDA
def compiled() -> Iterator[Any]:
    """Every kernel of the gallery, for each dtype and with its usual compile-time values."""
    yield saxpy.saxpy, {}, 10
    for T in FLOATS:
        for make in transpose.VARIANTS.values():
            yield make(T), {}, 40
        for make in (reduction.atomic, reduction.staged):
            yield make(T), {}, 40
        yield softmax.short(T), {"D": 1024}, 64
        yield softmax.long(T), {}, 64
        yield layernorm.short(T), {"D": 1024}, 128
        yield layernorm.long(T), {}, 64
        yield rotary.make(T), {"D": 64, "W": 16 // T.itemsize}, 64
    for T in HALVES:
        for config in (gemm.BIG, gemm.SMALL):
            yield gemm.make(T, config), {}, 255


@pytest.mark.skipif(
    importlib.util.find_spec("cupy") is None, reason="CuPy (for NVRTC) is not installed"
)
@pytest.mark.parametrize("arch", [75, 80, 86, 89, 90, 120])
def test_every_kernel_compiles_without_spills(arch: int) -> None:
    from tklearn.cuda.compile import compile_source
    from tklearn.cuda.emit import emit

    for kernel, consts, registers in compiled():
        k = kernel.ir(**consts)
        if k.arch > arch:
            continue
        facts = compile_source(emit(k), arch).facts
        assert not facts.spills, (kernel, arch, facts)
        assert facts.registers <= registers, (kernel, arch, facts)


# -------------------------------------------------------------------------------------------- GPU
def to_gpu(x: np.ndarray, library: str) -> Any:
    if library == "cupy":
        import cupy

        return cupy.asarray(x.view(f"u{x.dtype.itemsize}")).view(x.dtype)
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if x.dtype == NUMPY_DTYPES["bf16"]:
        return torch.from_numpy(x.view(np.int16)).cuda().view(torch.bfloat16)
    return torch.from_numpy(x).cuda()


def from_gpu(x: Any) -> np.ndarray:
    return x.get() if hasattr(x, "get") else x.float().cpu().numpy()


@pytest.mark.gpu
@pytest.mark.parametrize("library", ["cupy", "torch"])
@pytest.mark.parametrize("case", every())
def test_values_on_the_gpu(case: Case, library: str) -> None:
    args = case.make()
    result = case.run(*(to_gpu(a, library) for a in args))
    check(case, args, tuple(from_gpu(v) for v in each(result)))


@pytest.mark.gpu
@pytest.mark.parametrize("case", edges(*FLOATS))
def test_both_machines_agree(case: Case) -> None:
    """Twice the bound of each: both are that near to the reference."""
    args = case.make()
    gpu = tuple(from_gpu(v) for v in each(case.run(*(to_gpu(a, "cupy") for a in args))))
    simulated = each(case.run(*args))
    for g, s, bound in zip(gpu, simulated, each(case.bound(*args)), strict=True):
        assert (np.abs(g.astype(np.float64) - s.astype(np.float64)) <= 2 * np.asarray(bound)).all()
