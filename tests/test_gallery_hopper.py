"""The gallery for sm_90a on both machines: values, odd sizes, schedules, batches, bits, counters.

Tolerances follow from the dtypes and from how many numbers are added; tests show that a kernel that
leaves out one step breaks them.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tklearn as tk
from tklearn import numerics
from tklearn.kernels import attention_hopper, gemm_hopper, linear_attention
from tklearn.kernels.arrays import launch, look, output
from tklearn.kernels.gemm_hopper import Config
from tklearn.report import HOPPER, METRICS

U = 2.0**-24  # error of one f32 rounding, relative
UNIT = {"bfloat16": 2.0**-8, "float16": 2.0**-11}
BF = ml_dtypes.bfloat16
CHOPPED = 10 * U  # an instruction truncates 16 products and their sum, of their size (FACTS.md 7)


def normal(shape: tuple[int, ...], dtype: Any = BF, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.standard_normal(shape, dtype=np.float32).astype(dtype)


def unit(x: np.ndarray) -> float:
    return UNIT[x.dtype.name]


# ------------------------------------------- how far a result may be from the float64 reference
def gemm_bound(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    size = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))
    steps = a.shape[1] / 16 + 1
    return unit(a) * np.abs(gemm_hopper.reference(a, b)) + CHOPPED * steps * size + 1e-30


def attention_bound(q: Any, k: Any, v: Any, causal: bool = False) -> np.ndarray:
    """Probabilities are rounded once to the dtype, and so is the result; the rest is f32."""
    size = attention_hopper.reference(q, k, np.abs(v.astype(np.float64)), causal)
    return (2 * unit(q) + 1e-4) * size


def linear_bound(q: Any, k: Any, v: Any) -> np.ndarray:
    """Scores, the state before each chunk and the result are rounded to bf16; the rest is f32."""
    q, k, v = (a.astype(np.float64) for a in (q, k, v))
    scores = np.tril(q @ k.swapaxes(-1, -2))
    chunk = np.arange(q.shape[-2]) // linear_attention.ROWS
    own = np.where(chunk[:, None] == chunk, np.abs(scores), 0) @ np.abs(v)
    states = np.cumsum(k[..., :, :, None] * v[..., :, None, :], axis=-3)
    first = np.maximum(chunk * linear_attention.ROWS - 1, 0)
    past = np.abs(states[..., first, :, :]) * (chunk > 0)[:, None, None]
    history = np.einsum("...nf,...nfd->...nd", np.abs(q), past)
    everything = np.tril(np.abs(q) @ np.abs(k).swapaxes(-1, -2)) @ np.abs(v)
    steps = q.shape[-2] / 16 + 8
    return 2.0**-8 * (own + history + np.abs(scores @ v)) + CHOPPED * steps * everything + 1e-30


# -------------------------------------------------------------------------------------- the cases
@dataclass(frozen=True)
class Case:
    """One call: `run` on the arrays of `make()`, beside `reference` and `bound` of the same."""

    name: str
    run: Callable[..., Any]
    make: Callable[[], list[np.ndarray]]
    reference: Callable[..., np.ndarray]
    bound: Callable[..., np.ndarray]


def product(m: int, n: int, k: int, variant: str, config: Config, dtype: Any = BF, **more: Any):
    run = partial(gemm_hopper.run, variant=variant, config=config, **more)
    return Case(
        f"gemm {variant} {m}x{n}x{k} {dtype.__name__} {'-'.join(map(str, config[:4]))}",
        run,
        lambda: [normal((m, k), dtype), normal((k, n), dtype, 1)],
        gemm_hopper.reference,
        gemm_bound,
    )


def attend(b: int, h: int, n: int, m: int, d: int, causal: bool, stages: int = 2, dtype: Any = BF):
    return Case(
        f"attention {b}x{h}x{n}x{m}x{d} {'causal ' * causal}{stages} {dtype.__name__}",
        partial(attention_hopper.run, causal=causal, stages=stages),
        lambda: [normal((b, h, x, d), dtype, i) for i, x in enumerate((n, m, m))],
        partial(attention_hopper.reference, causal=causal),
        partial(attention_bound, causal=causal),
    )


def taken_in_turn(q: Any, k: Any, v: Any, *, causal: bool, blocks: int, **options: Any) -> Any:
    """The persistent kernel on fewer blocks than `run` would start."""
    out, report = options.pop("out", None), options.pop("report", False)
    x = look(q, "q", 4)
    out = output(out, q, x.shape)
    kernel, grid = attention_hopper.plan(x.dtype, x.shape, causal, "persistent", 2, blocks)
    scale = attention_hopper.LOG2E * x.shape[3] ** -0.5
    told = launch(kernel, grid, q, k, v, out, scale, options=options)
    return (out, told) if report else out


def persistent(b: int, h: int, n: int, m: int, d: int, causal: bool, blocks: int) -> Case:
    case = attend(b, h, n, m, d, causal)
    run = partial(taken_in_turn, causal=causal, blocks=blocks)
    return replace(case, name=f"{case.name} persistent on {blocks}", run=run)


def linear(b: int, h: int, n: int, stages: int = 2) -> Case:
    return Case(
        f"linear attention {b}x{h}x{n} {stages}",
        partial(linear_attention.run, stages=stages),
        lambda: [normal((b, h, n, 64), BF, i) for i in range(3)],
        linear_attention.reference,
        linear_bound,
    )


ONE, TWO, THREE = Config(2, 32, 16, 2), Config(2, 64, 64, 3, 2), Config(3, 48, 32, 5)
SMALL = [  # more than one block, odd sizes, rings that wrap; a few milliseconds each
    product(130, 136, 200, "simple", TWO),
    product(130, 136, 200, "persistent", TWO, blocks=2),
    attend(1, 2, 200, 300, 64, False),
    attend(1, 2, 200, 200, 64, True),
    attend(1, 1, 150, 150, 128, True),
    persistent(1, 2, 200, 200, 64, True, 3),
    linear(1, 2, 200),
]
CASES = [
    *SMALL,
    *(product(m, n, k, v, c)
      for m, n, k in ((1, 8, 8), (64, 64, 64), (65, 72, 40), (200, 136, 328))
      for v, c in (("simple", ONE), ("persistent", ONE), ("simple", THREE), ("persistent", THREE))),
    product(256, 512, 200, "simple", Config()),
    product(300, 520, 264, "persistent", gemm_hopper.WIDE),
    product(300, 520, 264, "persistent", gemm_hopper.WIDE, blocks=2),
    product(257, 264, 136, "simple", Config(2, 64, 64, 1)),
    product(257, 264, 136, "persistent", Config(2, 64, 64, 2, 1), blocks=3),
    product(130, 72, 200, "simple", TWO, np.float16),
    product(130, 72, 200, "persistent", TWO, np.float16),
    product(0, 8, 8, "persistent", ONE),
    product(8, 0, 8, "simple", ONE),
    *(attend(2, 2, n, n, d, causal)
      for d in (64, 128) for causal in (False, True) for n in (1, 63, 128, 257, 400)),
    attend(1, 1, 64, 1, 64, False),
    attend(1, 1, 5, 129, 64, False),
    attend(1, 1, 130, 33, 128, False),
    attend(1, 1, 100, 700, 64, False, 3),
    attend(1, 1, 500, 500, 64, True, 3),
    attend(1, 1, 260, 260, 64, True, 2, np.float16),
    *(persistent(2, 2, n, n, d, causal, 3)
      for n, d, causal in ((70, 64, False), (300, 64, True), (200, 128, False), (260, 128, True))),
    persistent(1, 3, 100, 300, 64, False, 1),
    attend(0, 2, 5, 5, 64, False),
    attend(2, 1, 0, 0, 64, True),
    *(linear(2, 2, n, s) for n in (1, 63, 64, 65, 128, 333) for s in (2, 3)),
    linear(1, 1, 30, 5),
    linear(1, 1, 0),
]  # fmt: skip


def named(cases: list[Case]) -> list[Any]:
    return [pytest.param(c, id=c.name) for c in cases]


def check(case: Case, args: list[np.ndarray], got: np.ndarray) -> None:
    got, want = np.asarray(got).astype(np.float64), case.reference(*args)
    assert got.shape == want.shape
    error, bound = np.abs(got - want), np.broadcast_to(case.bound(*args), want.shape)
    wrong = ~(error <= bound)
    assert not wrong.any(), (
        f"{wrong.sum()} of {wrong.size} elements, the first at {np.argwhere(wrong)[0]}; "
        f"error up to {error[wrong].max():.3g} where {bound[wrong].min():.3g} is allowed"
    )


# -------------------------------------------------------------------------------------- simulator
@pytest.mark.parametrize("case", named(CASES))
def test_values_on_the_simulator(case: Case) -> None:
    """In a result full of other numbers: every element is written."""
    args = case.make()
    first = args[0]
    shape = case.reference(*args).shape
    out = np.full(shape, 99, first.dtype)
    assert case.run(*args, out=out, check="full") is out
    check(case, args, out)


def test_the_bounds_see_a_lost_step() -> None:
    """They are tests only if leaving out 16 of the inner dimension, or of the keys, breaks them."""
    a, b = normal((64, 512)), normal((512, 64), BF, 1)
    lost = gemm_hopper.reference(a[:, 16:], b[16:]) - gemm_hopper.reference(a, b)
    assert (np.abs(lost) > gemm_bound(a, b)).mean() > 0.9
    q, k, v = (normal((1, 1, 512, 64), BF, i) for i in range(3))
    lost = attention_hopper.reference(q, k[:, :, 16:], v[:, :, 16:])
    want = attention_hopper.reference(q, k, v)
    assert (np.abs(lost - want) > attention_bound(q, k, v)).mean() > 0.5
    lost = linear_attention.reference(q, np.where(np.arange(512)[:, None] < 16, BF(0), k), v)
    want = linear_attention.reference(q, k, v)
    assert (np.abs(lost - want) > linear_bound(q, k, v))[:, :, 64:].mean() > 0.5


@pytest.mark.parametrize("case", named(SMALL))
def test_no_alarm_and_the_same_bits_under_all_schedules(case: Case) -> None:
    args = case.make()
    result, report = case.run(*args, check="full", report=True)
    want, warps = result.tobytes(), report.threads[0] // 32
    for seed in range(20):
        late = {seed % warps: 7 * seed % 40}  # a warp begins so many rounds later
        for schedule in ("rotate", "reverse", "random"):
            got = case.run(*args, check="full", schedule=schedule, seed=seed, delay=late)
            assert got.tobytes() == want, (schedule, seed)


@pytest.mark.parametrize("case", named(SMALL))
@pytest.mark.parametrize("warp", [0, 3, 5, -1])
def test_a_late_warp_changes_nothing(case: Case, warp: int) -> None:
    args = case.make()
    want, report = case.run(*args, report=True)
    late = warp % (report.threads[0] // 32)
    assert case.run(*args, check="full", delay={late: 300}).tobytes() == want.tobytes()


@pytest.mark.parametrize("case", named(SMALL))
def test_batched_and_single_blocks_agree(case: Case) -> None:
    args = case.make()
    many, batched = case.run(*args, report=True, check="full")
    one, single = case.run(*args, report=True, check="full", batch=False)
    assert many.tobytes() == one.tobytes()
    assert batched.lines == single.lines
    assert batched.clipped == single.clipped
    assert batched.stats["batches"] <= single.stats["batches"]


@pytest.mark.parametrize("case", named(SMALL))
def test_checks_change_no_bit(case: Case) -> None:
    args = case.make()
    want = case.run(*args, check="full").tobytes()
    for check_ in ("fast", "off"):
        assert case.run(*args, check=check_).tobytes() == want


def test_exact_products_have_the_bits_of_the_tensor_core() -> None:
    """K is summed in order, 16 at a time, in both kernels and whatever the tiles are."""
    a, b = normal((70, 104)), normal((104, 72), BF, 1)
    zero = np.zeros((70, 72), np.float32)
    want = numerics.product(a.astype(np.float32), b.astype(np.float32), zero, dtype="bf16")
    for variant, config in (("simple", ONE), ("persistent", TWO), ("simple", THREE)):
        got = gemm_hopper.run(a, b, variant=variant, config=config, mma="exact")
        assert got.tobytes() == want.astype(BF).tobytes()


@pytest.mark.parametrize("case", named(SMALL[2:]))
def test_exact_attention(case: Case) -> None:
    args = case.make()
    got = case.run(*args, mma="exact", check="full")
    check(case, args, got)
    assert case.run(*args, mma="exact", batch=False).tobytes() == got.tobytes()


def test_persistent_and_simple_give_the_same_bits() -> None:
    a, b = normal((200, 328)), normal((328, 136), BF, 1)
    want = gemm_hopper.run(a, b, variant="simple", config=TWO).tobytes()
    for blocks in (1, 2, 5, 100):
        assert gemm_hopper.run(a, b, config=TWO, blocks=blocks).tobytes() == want


def test_views() -> None:
    """Rows longer than they show, and heads as they come out of one projection."""
    a, b = normal((70, 96))[:, :90], normal((96, 64), BF, 1)[3:93, 8:58]
    for variant, n in (("simple", 50), ("persistent", 48)):
        b, out = b[:, :n], np.zeros((70, 56), BF)[:, :n]
        gemm_hopper.run(a, b, variant=variant, config=ONE, out=out, check="full")
        assert (np.abs(out.astype(np.float64) - gemm_hopper.reference(a, b))
                <= gemm_bound(a, b)).all()  # fmt: skip
    qkv = normal((2, 140, 3, 3, 64))
    q, k, v = (qkv[:, :, :, i].transpose(0, 2, 1, 3) for i in range(3))
    got = attention_hopper.run(q, k, v, scale=0.25, causal=True, check="full")
    want = attention_hopper.reference(q, k, v, True, 0.25)
    assert (np.abs(got.astype(np.float64) - want) <= 2 * attention_bound(q, k, v, True)).all()
    check(linear(1, 1, 1), [q, k, v], linear_attention.run(q, k, v, check="full"))


def test_torch_arrays_on_the_cpu() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    for case in (SMALL[0], SMALL[3], SMALL[5]):
        args = case.make()
        tensors = [torch.from_numpy(a.astype(np.float32)).bfloat16() for a in args]
        got = case.run(*tensors)
        assert got.dtype == torch.bfloat16
        assert np.array_equal(got.float().numpy(), case.run(*args).astype(np.float32))


def test_every_run_makes_a_torch_operator() -> None:
    """Under torch's tracing sizes have no values and tensors no memory; `run` has to bear that."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    calls = {
        "hopper_gemm": (gemm_hopper.run, [normal((33, 40)), normal((40, 16))]),
        "hopper_attention": (attention_hopper.run, [normal((1, 2, 9, 64)) for _ in range(3)]),
        "hopper_linear": (linear_attention.run, [normal((1, 2, 9, 64)) for _ in range(3)]),
    }
    for name, (run, arrays) in calls.items():
        names = "abc"[: len(arrays)]
        made: dict[str, Any] = {"run": run, "Tensor": torch.Tensor}
        takes = ", ".join(f"{n}: Tensor" for n in names)
        exec(f"def f({takes}) -> Tensor: return run({', '.join(names)})", made)
        tk.torch_op(made["f"], name=name)
        tensors = tuple(torch.from_numpy(a.astype(np.float32)).bfloat16() for a in arrays)
        torch.library.opcheck(
            getattr(torch.ops.tklearn, name).default,
            tensors,
            test_utils=("test_schema", "test_faketensor", "test_aot_dispatch_dynamic"),
        )


B = partial(normal, dtype=BF)
QKV = [normal((1, 1, 8, 64), BF, i) for i in range(3)]
WRONG: dict[str, tuple[Callable, str, str]] = {
    "inner sizes": (lambda: gemm_hopper.run(B((8, 8)), B((16, 8))), "TK410", "8 and 16 differ"),
    "odd rows": (lambda: gemm_hopper.run(B((8, 9)), B((9, 8))), "TK410", "stride of 9 elements"),
    "odd columns": (lambda: gemm_hopper.run(B((8, 8)), B((8, 12))), "TK410", "multiples of 8"),
    "a start": (
        lambda: gemm_hopper.run(B((8, 16))[:, 1:9], B((8, 8))), "TK410", "does not start at",
    ),
    "no K": (lambda: gemm_hopper.run(B((8, 0)), B((0, 8))), "TK410", "inner size is 0"),
    "a variant": (lambda: gemm_hopper.run(B((8, 8)), B((8, 8)), variant="x"), "TK410", "'x'"),
    "consumers": (
        lambda: gemm_hopper.run(B((8, 8)), B((8, 8)), config=Config(1)), "TK410", "1 consumers",
    ),
    "one stage, gemm": (
        lambda: gemm_hopper.run(B((8, 8)), B((8, 8)), config=Config(STAGES=1)),
        "TK410", "2 or more",
    ),
    "one stage, attention": (lambda: attention_hopper.run(*QKV, stages=1), "TK410", "2 or more"),
    "f32": (
        lambda: gemm_hopper.run(normal((8, 8), np.float32), B((8, 8))), "TK401", "bf16 or f16",
    ),
    "too many stages": (
        lambda: gemm_hopper.run(B((8, 8)), B((8, 8)), config=Config(STAGES=20)), "TK408", "shared",
    ),
    "D": (lambda: attention_hopper.run(*[a[..., :32] for a in QKV]), "TK410", "D is 64 or 128"),
    "lengths": (
        lambda: attention_hopper.run(QKV[0], QKV[1][:, :, :4], QKV[2]), "TK410", "one length",
    ),
    "causal": (
        lambda: attention_hopper.run(QKV[0], *[a[:, :, :4] for a in QKV[1:]], causal=True),
        "TK410", "M must be N",
    ),
    "no keys": (
        lambda: attention_hopper.run(QKV[0], *[a[:, :, :0] for a in QKV[1:]]), "TK410", "no keys",
    ),
    "scale": (lambda: attention_hopper.run(*QKV, scale=-1.0), "TK410", "scale of -1.0"),
    "features": (lambda: linear_attention.run(*[a[..., :32] for a in QKV]), "TK410", "takes 64"),
    "equal": (lambda: linear_attention.run(QKV[0], QKV[1], QKV[2][:, :, :4]), "TK410", "equal"),
    "one stage": (lambda: linear_attention.run(*QKV, stages=1), "TK410", "2 or more"),
}  # fmt: skip


@pytest.mark.parametrize(("call", "code", "words"), WRONG.values(), ids=WRONG)
def test_wrong_calls_say_what_is_wrong(call: Any, code: str, words: str) -> None:
    with pytest.raises(tk.TkError) as e:
        call()
    assert e.value.code == code, str(e.value)
    assert words in str(e.value)


def totals(report: Any, *names: str) -> dict[str, int]:
    return {n: report[n] for n in names}


def test_counters() -> None:
    """Each tile is brought once for each block that needs it, and each product counted once."""
    a, b = normal((256, 128)), normal((128, 256), BF, 1)
    for variant in ("simple", "persistent"):
        _, r = gemm_hopper.run(a, b, variant=variant, config=TWO, report=True)
        assert r["wgmma_flops"] == 2 * 256 * 256 * 128
        assert r["wgmma_instructions"] == 4 * (256 // 64) * (256 // 64) * (128 // 16)
        assert r["tma_load_bytes"] == 4 * a.nbytes + 2 * b.nbytes  # 4 columns, 2 rows of tiles
        assert r.total.get("tma_store_bytes", 0) == (
            256 * 256 * 2 if variant == "persistent" else 0
        )
    q, k, v = (normal((1, 2, 384, 64), BF, i) for i in range(3))
    _, r = attention_hopper.run(q, k, v, report=True)
    assert r["wgmma_flops"] == 2 * 2 * 2 * 384 * 384 * 64
    assert r["tma_load_bytes"] == q.nbytes + 2 * (k.nbytes + v.nbytes)  # 2 blocks of 192 queries
    assert r["tma_store_bytes"] == q.nbytes
    _, r = linear_attention.run(q, k, v, report=True)
    assert r["wgmma_flops"] == 2 * 6 * 4 * 2 * 64**3  # heads, chunks, products
    assert r["tma_load_bytes"] == 3 * q.nbytes


def test_causal_attention_leaves_hidden_blocks_out() -> None:
    q, k, v = (normal((1, 1, 768, 64), BF, i) for i in range(3))
    _, full = attention_hopper.run(q, k, v, report=True)
    _, causal = attention_hopper.run(q, k, v, causal=True, report=True)
    blocks = [2, 3, 5, 6]  # of 128 keys, for 4 blocks of 192 queries
    assert causal["wgmma_flops"] * 24 == full["wgmma_flops"] * sum(blocks)


# ------------------------------------------------------------------------------------------- CUDA
def compiled() -> dict[str, Callable[[], Any]]:
    """Every kernel with its usual choices."""
    flat = {T: np.zeros((8, 8), T) for T in (BF, np.float16)}
    out: dict[str, Callable[[], Any]] = {}
    for T, dtype in ((tk.bf16, BF), (tk.f16, np.float16)):
        three = [flat[dtype]] * 3
        wide = Config(BN=256)
        for name, kernel in (
            ("simple", gemm_hopper.simple(T)), ("simple wide", gemm_hopper.simple(T, wide)),
            ("persistent", gemm_hopper.persistent(T)),
            ("persistent small", gemm_hopper.persistent(T, Config())),
        ):  # fmt: skip
            out[f"gemm {name} {T}"] = partial(kernel.ir, *three)
        for d in (64, 128):
            for causal in (False, True):
                four = [np.zeros((1, 1, 8, d), dtype)] * 4
                for form in (attention_hopper.make, attention_hopper.persistent):
                    name = f"attention {form.__name__} {d} {causal} {T}"
                    out[name] = partial(form(T, d, causal).ir, *four, 0.1)
    four = [np.zeros((1, 1, 8, 64), BF)] * 4
    for stages in (2, 3):
        out[f"linear attention {stages}"] = partial(linear_attention.make(stages).ir, *four)
    return out


COMPILED = compiled()


@pytest.mark.skipif(
    importlib.util.find_spec("cupy") is None, reason="CuPy (for NVRTC) is not installed"
)
@pytest.mark.parametrize("make", COMPILED.values(), ids=COMPILED)
def test_compiles_for_sm_90a_without_spills_or_serialised_wgmma(make: Callable) -> None:
    """C7510, C7520: wgmma serialised. C7508: setmaxnreg ignored."""
    from tklearn.cuda.compile import compile_source
    from tklearn.cuda.emit import emit

    k = make()
    assert k.arch == 90
    facts = compile_source(emit(k), 90).facts
    assert not facts.spills, facts
    assert not facts.notes, facts
    assert not facts.stack, facts


@pytest.mark.parametrize(("gpu", "capability"), [("A100", 80), ("B200", 100), ("RTX 5090", 120)])
def test_other_gpus_are_told_apart(
    gpu: str, capability: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tklearn.cuda import launch

    monkeypatch.setattr(launch, "device_facts", lambda d: (gpu, capability, 227 * 1024))
    for make in COMPILED.values():
        with pytest.raises(tk.LaunchError, match=f"needs an sm_90a? GPU.*{gpu}") as e:
            launch.check_device(make(), 0)
        assert e.value.code == "TK422"
        assert e.value.loc is not None


# -------------------------------------------------------------------------------------------- GPU
def hopper() -> None:
    """Skips unless the GPU is an sm_90."""
    from tklearn.doctor import ask_driver

    gpus = ask_driver().gpus
    if not gpus or gpus[0].sm != 90:
        pytest.skip("the GPU is no sm_90: these kernels need TMA and wgmma")


def to_gpu(x: np.ndarray) -> Any:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    kind = torch.bfloat16 if x.dtype == BF else torch.float16
    return torch.from_numpy(x.view(np.int16)).cuda().view(kind)


@pytest.mark.gpu
@pytest.mark.parametrize("case", named(CASES))
def test_values_on_the_gpu(case: Case) -> None:
    """Against the reference, written in full; and near to what the simulator gives."""
    hopper()
    args = case.make()
    out = np.full(case.reference(*args).shape, 99, args[0].dtype)
    result = to_gpu(out)
    case.run(*map(to_gpu, args), out=result)
    got = result.double().cpu().numpy()
    check(case, args, got)
    simulated = case.run(*args).astype(np.float64)
    assert (np.abs(got - simulated) <= 2 * case.bound(*args)).all()


@pytest.mark.gpu
def test_exact_products_are_the_gpus_bits() -> None:
    hopper()
    a, b = normal((200, 328)), normal((328, 136), BF, 1)
    for variant, config in (("simple", TWO), ("persistent", TWO), ("persistent", gemm_hopper.WIDE)):
        run = partial(gemm_hopper.run, variant=variant, config=config)
        got = run(to_gpu(a), to_gpu(b)).double().cpu().numpy()
        assert np.array_equal(got, run(a, b, mma="exact").astype(np.float64))


# The simulator's counter -> the profiler's: of TMA and wgmma.
COUNTED = {key: metric for key, (metric, _) in METRICS.items() if key.startswith(HOPPER) and metric}


def one_variant(case: Case) -> Case:
    """Left to itself, `run` takes the one that is faster on its machine."""
    return replace(case, run=partial(case.run, variant="simple"))


WHOLE = [
    product(256, 256, 256, "simple", TWO),
    product(256, 256, 256, "persistent", TWO, blocks=2),
    product(256, 512, 192, "persistent", gemm_hopper.WIDE),
    one_variant(attend(1, 2, 384, 384, 64, False)),
    one_variant(attend(1, 2, 384, 384, 64, True)),
    one_variant(attend(1, 2, 256, 256, 128, True)),
    persistent(1, 2, 384, 384, 64, True, 3),
    linear(1, 2, 256),
]


@pytest.mark.gpu
def test_counters_are_the_profilers(tmp_path: Path) -> None:
    """This file runs again as a program under Nsight Compute and launches WHOLE."""
    hopper()
    if not shutil.which("ncu"):
        pytest.skip("ncu is not on PATH")
    from tklearn.record import PROFILER_FLAGS, read_profile

    metrics = {m: key for key, m in COUNTED.items()}
    command = ["ncu", *PROFILER_FLAGS, "--metrics", ",".join(metrics), "--profile-from-start"]
    done = subprocess.run(
        [*command, "off", sys.executable, __file__], capture_output=True, text=True, check=False
    )
    rows = read_profile(done.stdout, metrics)
    assert len(rows) == len(WHOLE), (done.stdout + done.stderr)[-2000:]
    for case, measured in zip(WHOLE, rows, strict=True):
        _, report = case.run(*case.make(), report=True)
        assert measured == totals(report, *measured), (case.name, json.dumps(measured))


def launch_whole() -> None:
    """Each case once between profilerStart and profilerStop."""
    import torch

    for case in WHOLE:
        args = [to_gpu(a) for a in case.make()]
        case.run(*args)
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        case.run(*args)
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()


if __name__ == "__main__":
    launch_whole()
