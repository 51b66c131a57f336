"""Semaphores, TMA, warpgroups, rings, named barriers, run-time steps: what the front end makes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from async_cases import KERNELS
from lang_kit import load, message, result, typed

import tklearn as tk
from tklearn.lang import ir, reference_async
from tklearn.lang import types as T
from tklearn.lang.async_rows import YIELDING
from tklearn.lang.ops import OPS, blocks
from tklearn.sim.batching import Shape
from tklearn.sim.lower import Lowered


def nodes(k: ir.Kernel, kind: type) -> list[Any]:
    bodies = (k.body, *(f.body for f in k.functions))
    return [n for body in bodies for n in ir.walk(body) if isinstance(n, kind)]


def kernel(body: str, params: str = "A: tk.gl_bf, n: tk.i32", warps: int = 8, top: str = "") -> str:
    lines = "".join(f"    {x}\n" for x in body.strip("\n").splitlines())
    return f"{top}@tk.kernel(warps={warps})\ndef k({params}):\n{lines}"


# ------------------------------------------------------------------------------- whole kernels
@pytest.mark.parametrize("name", KERNELS)
def test_the_example_kernels_are_in_the_language(name: str) -> None:
    k = typed(KERNELS[name])
    assert k.arch == 90
    assert k.arch_loc is not None
    assert re.search(r"tma|warpgroup", k.arch_loc.text())
    assert k.shared_bytes <= 227 * 1024
    assert len(ir.digest(k)) == 16


def test_arrays_get_their_dimensions_from_coordinates() -> None:
    dims = {n: {s.type.ndim for s in typed(k).params} for n, k in KERNELS.items()}
    assert dims == {
        "gemm_ws": {2},
        "gemm_persistent": {2},
        "attend": {4},
        "linear_attention": {4},
        "linear_attention_staged": {3},
    }


def values(rng: np.random.Generator, *shape: int) -> Any:
    return (rng.standard_normal(shape) / 2).astype(ml_dtypes.bfloat16)


def near(got: Any, want: Any, terms: int) -> None:
    """bf16 results of `terms` products of bf16 numbers, added in f32."""
    bound = 2.0**-8 * np.abs(want) + terms * 2.0**-22
    assert (np.abs(got.astype(np.float32) - want) <= bound).all()


def product(k: Any, grid: Any, rng: np.random.Generator, **options: Any) -> None:
    A, B = values(rng, 256, 320), values(rng, 320, 256)
    C = np.zeros((256, 256), ml_dtypes.bfloat16)
    k.sim[grid](A, B, C, **options)
    near(C, A.astype(np.float32) @ B.astype(np.float32), 320)


SCHEDULES: list[dict[str, Any]] = [
    {},
    {"schedule": "reverse"},
    {"schedule": "random", "seed": 1},
    {"schedule": "random", "seed": 2, "batch": False},
]


@pytest.mark.parametrize("options", SCHEDULES, ids=str)
def test_the_example_products_are_right(options: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    product(KERNELS["gemm_ws"], (2, 2), rng, **options)
    product(KERNELS["gemm_persistent"], 3, rng, **options)


@pytest.mark.parametrize("options", SCHEDULES, ids=str)
def test_the_example_of_attention_is_right(options: dict[str, Any]) -> None:
    rng = np.random.default_rng(1)
    Q, K, V = (values(rng, 1, 2, n, 64) for n in (192, 512, 512))
    out = np.zeros_like(Q)
    KERNELS["attend"].sim[1, 2, 1](Q, K, V, out, **options)
    q, k, v = (x.astype(np.float32) for x in (Q, K, V))
    p = np.exp(q @ k.transpose(0, 1, 3, 2) / 8)
    want = p @ v / p.sum(-1, keepdims=True)
    # The weights and the result are rounded to bf16, 2^-8 of their size each.
    weighed = p @ np.abs(v) / p.sum(-1, keepdims=True)
    bound = 1.01 * 2.0**-8 * (weighed + np.abs(want))
    assert (np.abs(out.astype(np.float32) - want) <= bound).all()


@pytest.mark.parametrize("options", SCHEDULES, ids=str)
def test_the_example_of_linear_attention_is_right(options: dict[str, Any]) -> None:
    rng = np.random.default_rng(2)
    Q, K, V = (values(rng, 2, 256, 64) for _ in range(3))
    out = np.zeros_like(Q)
    KERNELS["linear_attention_staged"].sim[2](Q, K, V, out, **options)
    q, k, v, got = (x.astype(np.float32).reshape(2, 4, 64, 64) for x in (Q, K, V, out))
    att = np.tril(q @ k.transpose(0, 1, 3, 2))
    kv = k.transpose(0, 1, 3, 2) @ v
    state = np.cumsum(kv, 1) - kv  # of the chunks before
    want = att @ v + q @ state
    # Rounded to bf16, 2^-8 of their size each: att, the state, the result.
    bound = 2.0**-8 * (np.abs(att) @ np.abs(v) + np.abs(q) @ np.abs(state) + np.abs(want))
    assert (np.abs(got - want) <= 1.01 * bound).all()


def test_the_kernel_of_the_page_is_right(tmp_path: Path) -> None:
    found = re.findall(r"```python\n(.*?)```", reference_async.ASYNCHRONY, re.S)
    assert len(found) == 1
    k = load(tmp_path, found[0].replace("def gemm(", "def k(")).k
    product(k, (2, 4), np.random.default_rng(3))


# ---------------------------------------------------------------------------------- semaphores
def test_semaphores_are_references(tmp_path: Path) -> None:
    text = kernel(
        """
one = tk.shared(tk.semaphore)
many = tk.shared(tk.semaphore, 2, 3)
row = many[1]
f = row[n % 3]
init_semaphore(one, 1)
init_semaphore(many[0, 1], 4)
use(f, many, 2)
arrive(f, 3)
invalidate_semaphore(one)
""",
        top="""@tk.device
def use(s: tk.semaphore, many, n):
    wait(s, n % 2)
    arrive(many[0, n])

""",
    )
    k = typed(load(tmp_path, text).k)
    one, many = k.shared
    assert one.type == T.semaphore
    assert one.offset % 8 == 0
    assert many.type == T.Shared(T.Semaphore(), (2, 3))
    assert many.type.nbytes == 48
    assert many.offset - one.offset == 8
    assert k.arch == 80
    assert [p.type for p in k.functions[0].params[:2]] == [T.semaphore, many.type]
    counts = [n.args[1].value for n in nodes(k, ir.Do) if n.op.name == "arrive"]
    assert counts == [3, 1]


def test_semaphores_do_not_move_tiles_that_follow(tmp_path: Path) -> None:
    text = kernel("s = tk.shared(tk.semaphore, 3)\na = tk.shared(tk.st_bf(64, 64))")
    assert [s.offset for s in typed(load(tmp_path, text).k).shared] == [0, 1024]


# ----------------------------------------------------------------------------------------- TMA
def test_tiles_are_one_argument(tmp_path: Path) -> None:
    body = """
s = tk.shared(tk.semaphore)
a = tk.shared(tk.st_bf(64, 64), 2, 3)
v = tk.shared(tk.sv(tk.bf16, 64))
tma.expect(s, a[1], v, a[0, 2])
tma.expect(s, v)
tma.expect_bytes(s, 16 * n)
"""
    k = typed(load(tmp_path, kernel(body)).k)
    many, one, _ = (n.args[1] for n in nodes(k, ir.Do))
    assert [str(x.type) for x in many.items] == [
        "shared(st_bf(64, 64), 3)",
        "sv_bf(64)",
        "st_bf(64, 64)",
    ]
    assert [x.type for x in one.items] == [T.sv(T.bf16, 64)]
    assert {n.sym.name for n in ir.walk(many) if isinstance(n, ir.Var)} == {"a", "v"}


def test_the_key_of_a_kernel_sees_the_tiles(tmp_path: Path) -> None:
    body = "s = tk.shared(tk.semaphore)\na = tk.shared(tk.st_bf(64, 64), 2)\ntma.expect(s, a[0])"
    first, same, other = (
        ir.digest(typed(load(tmp_path, kernel(b), name=n).k))
        for n, b in (("x", body), ("y", "# moved\n" + body), ("z", body.replace("a[0]", "a[1]")))
    )
    assert first == same != other


@pytest.mark.parametrize(
    ("make", "ok"),
    [
        ("tk.st_bf(256, 64)", True),
        ("tk.st_bf(272, 64)", False),
        ("tk.st_bf(64, 1024)", True),
        ("tk.st_bf(64, 256, swizzle=0)", True),
        ("tk.st_bf(64, 272, swizzle=0)", False),
        ("tk.st_bf(64, 64, swizzle=32)", True),
        ("tk.st_bf(64, 64, pad=8)", False),
        ("tk.sv(tk.bf16, 256)", True),
        ("tk.sv(tk.bf16, 264)", False),
        ("tk.sv(tk.bf16, 12)", False),
        ("tk.st_hf(64, 64)", False),
    ],
)
def test_boxes_that_tma_copies(make: str, ok: bool, tmp_path: Path) -> None:
    head = f"s = tk.shared(tk.semaphore)\na = tk.shared({make})\n"
    for do in (
        "tma.load_async(a, A, (0, 0), s)",
        "tma.store_async(A, a, (0, 0))",
        "tma.prefetch(a, A, (0, 0))",
    ):
        assert (message(tmp_path, kernel(head + do)) == "") is ok, do


@pytest.mark.parametrize("kind", ["add", "min", "max"])
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "e4m3"])
def test_dtypes_that_tma_reduces(kind: str, dtype: str, tmp_path: Path) -> None:
    body = f"a = tk.shared(tk.st(tk.{dtype}, 64, 64))\ntma.store_{kind}_async(A, a, (0, 0))"
    got = message(tmp_path, kernel(body, f"A: tk.gl(tk.{dtype})"))
    possible = dtype in ("f16", "bf16") or (dtype == "f32" and kind == "add")
    assert (got == "") is possible
    if not possible:
        assert got.startswith("TK212")


def test_arrays_that_tma_reads_and_writes(tmp_path: Path) -> None:
    body = """
s = tk.shared(tk.semaphore)
a = tk.shared(tk.st_bf(64, 64))
tma.load_async(a, A, (0, 0), s)
tma.store_async(B, a, (0, 0))
tma.store_add_async(C, a, (0, 0))
tma.prefetch(a, D, (0, 0))
"""
    k = typed(load(tmp_path, kernel(body, ", ".join(f"{x}: tk.gl_bf" for x in "ABCD"))).k)
    assert {p.name: (p.read, p.written) for p in k.params} == {
        "A": (True, False),
        "B": (False, True),
        "C": (True, True),
        "D": (True, False),
    }


def test_vectors_are_aligned_where_tma_writes_them(tmp_path: Path) -> None:
    """The copy engine wants 128 bytes; kernels without it keep their places."""
    body = "x = tk.shared_array(tk.f32, 4)\nv = tk.shared(tk.sv(tk.bf16, 64))\n"
    plain = typed(load(tmp_path, kernel(body), name="plain").k)
    by_tma = typed(load(tmp_path, kernel(body + "tma.store_async(A, v, (0, 0))"), name="tma").k)
    assert [s.offset for s in plain.shared] == [0, 16]
    assert [s.offset for s in by_tma.shared] == [0, 128]


# ------------------------------------------------------------------------------------ products
@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32", "e4m3", "e5m2"])
@pytest.mark.parametrize("form", ["AB", "ABt", "AtB", "AtBt"])
@pytest.mark.parametrize("kind", ["mma", "mm"])
def test_products_of_each_dtype(kind: str, form: str, dtype: str, tmp_path: Path) -> None:
    a = "96, 64" if form.startswith("At") else "64, 96"
    b = "32, 96" if form.endswith("Bt") else "96, 32"
    body = f"""
a = tk.shared(tk.st(tk.{dtype}, {a}))
b = tk.shared(tk.st(tk.{dtype}, {b}))
acc = tk.rt_fl(16, 32)
warpgroup.{kind}_{form}(acc, a, b)
"""
    got = message(tmp_path, kernel(body, f"A: tk.gl(tk.{dtype})"))
    assert (got == "") is (dtype in ("bf16", "f16") or form == "ABt"), got


@pytest.mark.parametrize(
    ("form", "ok"), [("AB", True), ("ABt", True), ("AtB", False), ("AtBt", False)]
)
def test_products_of_registers(form: str, ok: bool, tmp_path: Path) -> None:
    shape = "64, 16" if "At" in form else "16, 64"
    body = f"""
a = tk.rt_bf({shape})
b = tk.shared(tk.st_bf(64, 64))
acc = tk.rt_fl(16, 64)
warpgroup.mma_{form}(acc, a, b, fence=False)
warpgroup.mm_{form}(acc, a, b, commit=False)
"""
    text = kernel(body)
    assert (message(tmp_path, text) == "") is ok
    if ok:
        first, second = nodes(typed(load(tmp_path, text).k), ir.Do)
        assert first.args[3:] == [False, True]
        assert second.args[3:] == [True, False]


@pytest.mark.parametrize("n", [16, 48, 240, 256, 272])
def test_products_of_each_width(n: int, tmp_path: Path) -> None:
    body = f"""
a = tk.shared(tk.st_bf(64, 16))
b = tk.shared(tk.st_bf({n}, 16))
acc = tk.rt_fl(16, {n})
warpgroup.mma_ABt(acc, a, b)
"""
    assert (message(tmp_path, kernel(body)) == "") is (n <= 256)


def test_accumulators_of_products(tmp_path: Path) -> None:
    for dtype, acc, ok in (
        ("f16", "f16", True),
        ("f16", "f32", True),
        ("bf16", "f16", False),
        ("bf16", "bf16", False),
    ):
        body = f"""
a = tk.shared(tk.st(tk.{dtype}, 64, 64))
acc = tk.rt(tk.{acc}, 16, 64)
warpgroup.mma_AB(acc, a, a)
"""
        assert (message(tmp_path, kernel(body, f"A: tk.gl(tk.{dtype})")) == "") is ok


def test_the_memory_of_a_warpgroup(tmp_path: Path) -> None:
    body = """
t = tk.rt_fl(16, 64)
a = tk.shared(tk.st_bf(64, 64))
v = tk.shared(tk.sv(tk.bf16, 64))
b = tk.shared(tk.st_bf(32, 16))
warpgroup.load(t, a)
warpgroup.load(t, A, (n, 0))
warpgroup.store(a, t)
warpgroup.store(A, t, (n, 0))
warpgroup.load(a, A, (0, 0))
warpgroup.load(b, A, (0, 0))
warpgroup.store(A, v, (0, 0))
warpgroup.load_async(a, A, (0, 0))
warpgroup.tril(t)
warpgroup.triu(t, n, 1.0)
warpgroup.make_causal(t)
"""
    assert message(tmp_path, kernel(body)) == ""


# --------------------------------------------------------------------------- barriers and roles
def test_named_barriers(tmp_path: Path) -> None:
    text = kernel(
        """
block.sync()
block.sync(1)
block.sync(n, 64)
block.arrive(id=2, threads=96)
warpgroup.sync(3)
"""
    )
    k = typed(load(tmp_path, text).k)
    plain, all_, some, arrive, group = nodes(k, ir.Do)
    assert plain.args == []  # as it was before there were named barriers: recordings go by it
    assert [all_.args[1], some.args[1], arrive.args[1]] == [256, 64, 96]
    assert [blocks(d.op, d.args) for d in (plain, all_, arrive, group)] == [False, True, True, True]


@pytest.mark.parametrize("n", [*range(16, 48, 4), 232, 256, 264, True, 40.0])
def test_numbers_of_registers(n: Any, tmp_path: Path) -> None:
    got = message(tmp_path, kernel(f"warpgroup.increase_registers({n})"))
    possible = type(n) is int and 24 <= n <= 256 and n % 8 == 0
    assert (got == "") is possible
    assert possible or got.startswith("TK205")


def test_every_row_says_whether_it_may_wait() -> None:
    for op in OPS.values():
        head = op.name.partition(".")[0]
        later = op.effect in YIELDING
        assert not later or op.scope in ("warp", "group", "block"), op.name
        if head == "tma":
            assert later or op.name in ("tma.fence", "tma.prefetch"), op.name


# --------------------------------------------------------------------------------------- rings
RING = """
@tk.device
def step(r, times: tk.const):
    for i in tk.static_range(times):
        r.advance()

@tk.kernel(warps=2)
def k(y: tk.gl_fl, n: tk.i32):
    r = tk.ring(3)
    for i in range(n):
        r.advance()
    if warpid() == 1:
        step(r, 4)
    if laneid() == 0:
        y[2 * warpid()] = r.stage
        y[2 * warpid() + 1] = r.phase
"""


@pytest.mark.parametrize("n", range(8))
def test_a_ring_counts_stages_and_laps(n: int, tmp_path: Path) -> None:
    expected = [n % 3, n // 3 % 2, (n + 4) % 3, (n + 4) // 3 % 2]
    assert result(tmp_path, RING, n, n=4) == expected


def test_a_ring_of_one_stage(tmp_path: Path) -> None:
    text = """
@tk.kernel(warps=1)
def k(y: tk.gl_fl):
    r = tk.ring(1)
    for i in range(4):
        y[2 * i] = r.stage
        y[2 * i + 1] = r.phase
        r.advance()
"""
    assert result(tmp_path, text) == [0, 0, 0, 1, 0, 0, 0, 1]


def test_rings_of_all_blocks_of_a_batch(tmp_path: Path) -> None:
    """A ring that advances a number of times that differs by block."""
    text = """
@tk.kernel(warps=1)
def k(y: tk.gl_fl):
    r = tk.ring(2)
    for i in range(blockIdx.x):
        r.advance()
    y[blockIdx.x] = 2 * r.phase + r.stage
"""
    y = np.zeros(9, np.float32)
    load(tmp_path, text).k.sim[9](y)
    assert y.tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 0]


def test_what_the_ir_says_of_rings(tmp_path: Path) -> None:
    k = typed(load(tmp_path, RING).k)
    assert len(nodes(k, ir.Advance)) == 5
    assert k.functions[0].params[0].type == T.Ring(3)
    fields = nodes(k, ir.RingField)
    assert {f.name for f in fields} == {"stage", "phase"}
    assert all(f.nonneg and f.uni.level == ir.WARP for f in fields)  # two calls of step differ
    assert T.ring(3).cpp == "ring<3>"


# ------------------------------------------------------------------------------- run-time steps
def test_persistent_loops(tmp_path: Path) -> None:
    text = """
@tk.kernel(threads=1)
def k(y: tk.gl(tk.i32), n: tk.i32):
    for i in range(blockIdx.x, n, gridDim.x):
        y[i] += blockIdx.x + 1
"""
    k = load(tmp_path, text).k
    for grid, n in ((1, 5), (4, 13), (7, 3)):
        y = np.zeros(13, np.int32)
        k.sim[grid](y, n)
        assert y.tolist() == [(i % grid + 1) * (i < n) for i in range(13)]
    loop = next(s for s in typed(k).body if isinstance(s, ir.For))
    assert isinstance(loop.step, ir.Special)
    assert loop.var.nonneg


def test_steps_of_lanes_that_leave(tmp_path: Path) -> None:
    """The same loop where lanes end it one by one, and with a step that differs by block."""
    text = """
@tk.kernel(threads=32)
def k(y: tk.gl(tk.i32), n: tk.i32):
    count = 0
    for i in range(threadIdx.x, n, (blockIdx.x + 1) * 4):
        if i > 40:
            break
        count += 1
    y[blockIdx.x, threadIdx.x] = count
"""
    y = np.zeros((3, 32), np.int32)
    load(tmp_path, text).k.sim[3](y, 60)
    expected = [
        [len([i for i in range(t, 60, 4 * (b + 1)) if i <= 40]) for t in range(32)]
        for b in range(3)
    ]
    assert y.tolist() == expected


@pytest.mark.parametrize("step", [0, -2])
def test_a_step_that_is_not_positive(step: int, tmp_path: Path) -> None:
    text = """
@tk.kernel(threads=32)
def k(y: tk.gl_fl, n: tk.i32):
    for i in range(0, 8, n):
        y[i] = 1
"""
    with pytest.raises(tk.KernelFault) as e:
        load(tmp_path, text).k.sim[1](np.zeros(8, np.float32), step)
    assert e.value.code == "TK510"
    assert f"the step of this range is {step}" in str(e.value)
    assert "must be positive" in e.value.hint
    assert e.value.loc is not None
    assert e.value.loc.text().strip().startswith("for i in range")


def test_steps_of_helpers(tmp_path: Path) -> None:
    text = """
@tk.device
def mark(y, first, step):
    for i in range(first, 8, step):
        y[i] = first + 1

@tk.kernel(threads=32)
def k(y: tk.gl_fl):
    mark(y, 0, gridDim.x + 1)
    mark(y, 1, 2)
"""
    assert result(tmp_path, text) == [1, 2] * 4
    by_lane = text.replace("mark(y, 1, 2)", "mark(y, 1, laneid())")
    assert message(tmp_path, by_lane).startswith("TK302: the step of a range")


# ------------------------------------------------------------------- the simulator's side of it


def test_helpers_that_wait_are_generators(tmp_path: Path) -> None:
    text = kernel(
        "s = tk.shared(tk.semaphore)\nf(s)\nquick(s)\nmeet(1)",
        top="""@tk.device
def f(s):
    wait(s, 0)

@tk.device
def quick(s):
    tma.fence()

@tk.device
def meet(i):
    block.sync(i, 256)

""",
    )
    k = typed(load(tmp_path, text).k)
    shape = Shape(k)
    assert {f.name: shape.yields(f) for f in k.functions} == {
        "f": True,
        "quick": False,
        "meet": True,
    }


def test_what_waits_is_one_value_for_a_batch(tmp_path: Path) -> None:
    """Phases, counts and barriers that differ by block are not batched; coordinates are."""
    head = "s = tk.shared(tk.semaphore, 2)\na = tk.shared(tk.st_bf(64, 64))\n"
    axes = {
        "wait(s[0], blockIdx.x % 2)": 1,
        "arrive(s[0], blockIdx.y + 1)": 2,
        "arrive(s[blockIdx.z % 2])": 4,
        "block.sync(blockIdx.x % 4 + 1, 64)": 1,
        "tma.load_async(a, A, (blockIdx.x, blockIdx.y), s[0])": 0,
        "tma.store_async(A, a, (blockIdx.x, blockIdx.y))": 0,
        "for i in range(blockIdx.y, n, gridDim.x):\n    arrive(s[0])": 2,
    }
    for do, bad in axes.items():
        k = typed(load(tmp_path, kernel(head + do)).k)
        assert Shape(k).bad == bad, do
    assert Shape(typed(KERNELS["attend"])).bad == 0


class Script:
    """Just enough of a warp to run lowered code: who gives way where."""

    def __init__(self, warpid: int) -> None:
        self.warpid, self.mask, self.shared = warpid, True, [f"shared{i}" for i in range(9)]
        self.laneid = np.arange(32)[None]


def test_blocking_statements_give_way(tmp_path: Path) -> None:
    text = kernel(
        """
s = tk.shared(tk.semaphore)
a = tk.shared(tk.st_bf(64, 64), 2)
init_semaphore(s, 2)
tma.expect(s, a)
wait(s, 0)
tma.fence()
block.sync(warpgroup.groupid() + 1, 128)
"""
    )
    log: list[tuple] = []

    def op(name: str):
        def run(w: Any, site: Any, mask: Any, *args: Any) -> bool:
            log.append((name, *args))
            return name in ("wait", "block.sync")

        return run

    runtime = {"_ops": {n: op(n) for n in OPS}}
    low = Lowered(typed(load(tmp_path, text).k), runtime, False)
    steps = list(low.fn(Script(5), None, None))
    assert steps == [None, None]
    assert log == [
        ("init_semaphore", "shared0", 2),
        ("tma.expect", "shared0", ("shared1",)),
        ("wait", "shared0", 0),
        ("tma.fence",),
        ("block.sync", 2, 128),
    ]


def test_places_in_a_warpgroup(tmp_path: Path) -> None:
    text = """
@tk.kernel(warps=8)
def k(y: tk.gl(tk.i32)):
    y[threadIdx.x, 0] = warpgroup.groupid()
    y[threadIdx.x, 1] = warpgroup.warpid()
    y[threadIdx.x, 2] = warpgroup.laneid()
"""
    y = np.zeros((256, 3), np.int32)
    load(tmp_path, text).k.sim[1](y)
    i = np.arange(256)
    assert (y == np.stack([i // 128, i // 32 % 4, i % 128], 1)).all()
