"""The public cases 1 to 15: planted programs, the answer they must get, the correct form silent.

Cases 1 to 6, 8 and 10 have further tests, of more forms, in test_sim_faults.py; here is what those
do not demand (the wrong values that a delay shows, both tiles, the next iteration), and all that is
asynchronous. `make(good)` gives both forms of a program: compile-time conditions leave no trace in
it. Comments in a kernel mark the lines that a report must name.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tklearn as tk
from tklearn import (
    arrive,
    block,
    blockIdx,
    gridDim,
    init_semaphore,
    threadIdx,
    tma,
    wait,
    warp,
    warpgroup,
    warpid,
)

BF = ml_dtypes.bfloat16
RUNS = [
    *({"schedule": s, "batch": b} for s in ("rotate", "reverse") for b in (True, False)),
    *({"schedule": "random", "seed": seed} for seed in range(5)),
]


def bf(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape, dtype=np.float32).astype(BF)


def f32(*shape: int) -> np.ndarray:
    return np.random.default_rng(2).standard_normal(shape, dtype=np.float32)


def line(kernel: tk.Kernel, mark: str) -> int:
    """The line of this file with the comment `# mark` inside the kernel."""
    lines, first = inspect.getsourcelines(kernel.fn)
    found = [first + i for i, text in enumerate(lines) if re.search(rf"# {mark}\b", text)]
    assert len(found) == 1, (mark, found)
    return found[0]


def demand(
    kernel: tk.Kernel,
    grid: Any,
    make: Any,
    codes: str,
    at: str,
    *,
    names: str = "",
    says: tuple[str, ...] = (),
    hint: str = "",
    runs: Any = RUNS,
) -> list[tk.TkError]:
    """Each run ends in one of the codes, at a marked line, and names the other marked lines.

    at, names: marks, separated by spaces; of `at` one is the error's place, of `names` each is in
    the text. A batch of blocks and single blocks get the same verdict.
    """
    errors = []
    places = {line(kernel, m) for m in at.split()}
    for options in runs:
        with pytest.raises(tk.TkError) as info:
            kernel.sim[grid](*make(), check="full", **options)
        e = info.value
        errors.append(e)
        assert e.code in codes.split(), (options, str(e))
        assert e.loc.line in places, (options, places, str(e))
        for m in names.split():
            assert re.search(rf"\b{line(kernel, m)}\b", str(e)), (options, m, str(e))
        for text in says:
            assert text in str(e), (options, text, str(e))
        assert hint in e.hint, (options, str(e))
    pairs = {}
    for options, e in zip(runs, errors, strict=True):
        if "batch" in options:
            pairs.setdefault(options["schedule"], []).append((e.code, e.loc.line, e.message))
    assert all(a == b for a, b in pairs.values())
    return errors


def silent(kernel: tk.Kernel, grid: Any, make: Any, want: Any) -> None:
    """Each run ends well and leaves `want` in its last argument."""
    for options in RUNS:
        args = make()
        kernel.sim[grid](*args, check="full", **options)
        got, expected = args[-1].astype(np.float64), np.asarray(want(*args[:-1]), np.float64)
        np.testing.assert_allclose(got, expected, rtol=2e-2, atol=2e-2 * np.abs(expected).max())


# --------------------------------------------------------------------------- races and barriers
def matmul(good: bool, two: str = ""):
    """Tiles by lanes; `two`: the operand that has two buffers, and so needs no second barrier."""
    NA, NB = 1 + (two == "a"), 1 + (two == "b")

    @tk.kernel(threads=256)
    def product(A: tk.gl_fl, B: tk.gl_fl, C: tk.gl_fl):
        a_s = tk.shared_array(tk.f32, NA, 16, 16)
        b_s = tk.shared_array(tk.f32, NB, 16, 16)
        ty = threadIdx.x // 16
        tx = threadIdx.x % 16
        total = 0.0
        for k in range(A.cols // 16):
            a_s[k % NA, ty, tx] = A[blockIdx.y * 16 + ty, k * 16 + tx]  # storea
            b_s[k % NB, ty, tx] = B[k * 16 + ty, blockIdx.x * 16 + tx]  # storeb
            block.sync()
            for j in range(16):
                total += a_s[k % NA, ty, j] * b_s[k % NB, j, tx]  # load
            if good:
                block.sync()
        C[blockIdx.y * 16 + ty, blockIdx.x * 16 + tx] = total

    return product


def operands() -> list[np.ndarray]:
    return [f32(32, 32), f32(32, 32), np.zeros((32, 32), np.float32)]


@pytest.mark.parametrize(("two", "store"), [("b", "storea"), ("a", "storeb")])
def test_case_1_one_barrier_a_step_leaves_both_tiles_unsafe(two: str, store: str) -> None:
    kernel = matmul(False, two)
    tile = {"storea": "a_s[", "storeb": "b_s["}[store]
    runs = [r for r in RUNS if r["schedule"] != "reverse"]
    demand(
        kernel, (2, 2), operands, "TK500 TK501", f"{store} load", names=f"{store} load",
        says=(tile, "nothing orders the two"), hint="block.sync()", runs=runs,
    )  # fmt: skip
    silent(matmul(True), (2, 2), operands, lambda a, b: a @ b)


def test_case_1_a_late_warp_gets_the_wrong_values() -> None:
    """The report does not depend on it, but this is what it means."""
    a, b, c = operands()
    for good in (False, True):
        matmul(good).sim[2, 2](a, b, c, check="off", delay={5: 40})
        assert np.allclose(c, a @ b, rtol=1e-4, atol=1e-4) == good


def neighbours(same: bool, late: bool):
    @tk.kernel(threads=64)
    def exchange(y: tk.gl_fl):
        s = tk.shared_array(tk.f32, 64)
        s[threadIdx.x] = 1.0 * threadIdx.x  # store
        if same:
            if not late:
                block.sync()
        elif warpid() == 0:
            block.sync()  # one
        else:
            block.sync()  # other
        y[threadIdx.x] = s[63 - threadIdx.x]  # load
        if late:
            block.sync()

    return exchange


def test_case_4_barriers_in_two_branches_and_the_race_beside_them() -> None:
    def make() -> list[np.ndarray]:
        return [np.zeros(64, np.float32)]

    kernel = neighbours(False, False)
    for e in demand(kernel, 1, make, "TK506", "one other", names="one other"):
        assert f"line {line(kernel, 'one')}: warp 0 (1 of 2 warps)" in e.message
        assert f"line {line(kernel, 'other')}: warp 1 (1 of 2 warps)" in e.message
    demand(
        neighbours(True, True), 1, make, "TK500", "store load", names="store load",
        says=("warp 0", "warp 1", "s["), hint="block.sync() between",
    )  # fmt: skip
    silent(neighbours(True, False), 1, make, lambda: np.arange(64)[::-1])


def epilogue(good: bool):
    @tk.kernel(warps=4)
    def copy_out(x: tk.gl_fl, y: tk.gl_fl):
        s = tk.shared(tk.st_fl(64, 32))
        t = tk.rt_fl(16, 32)
        if threadIdx.x < 64:
            for i in range(32):  # an earlier kernel's values
                s[threadIdx.x, i] = 0.0
        block.sync()
        warp.load(t, x, (warpid(), 0))
        warp.store(s.subtile(16, 32, (warpid(), 0)), t)  # fill
        warp.sync()
        if good:
            block.sync()
        if warpid() == 3:
            o = tk.rt_fl(64, 32)
            warp.load(o, s)  # out
            warp.store(y, o, (0, 0))

    return copy_out


def test_case_6_an_epilogue_before_the_slow_warp() -> None:
    def make() -> list[np.ndarray]:
        return [f32(64, 32), np.zeros((64, 32), np.float32)]

    kernel = epilogue(False)
    runs = [*RUNS, {"delay": {2: 9}}]
    demand(kernel, 1, make, "TK500", "fill out", names="fill out", says=("s[",),
           hint="block.sync()", runs=runs)  # fmt: skip
    x, y = make()
    for late in range(3):  # the values show it only when one warp is late
        kernel.sim[1](x, y, check="off")
        assert (y == x).all()
        kernel.sim[1](x, y, check="off", delay={late: 9})
        assert (np.flatnonzero((y != x).all(axis=1)) // 16 == late).all()
        assert (y != x).any()
    silent(epilogue(True), 1, make, lambda x: x)


def carried(good: bool):
    @tk.kernel(threads=64)
    def loop(x: tk.gl_fl, y: tk.gl_fl):
        sw = tk.shared_array(tk.f32, 1)
        total = 0.0
        for t in range(x.cols):
            if threadIdx.x == 0:
                sw[0] = x[t]  # store
            block.sync()
            total += sw[0]  # load
            if good:
                block.sync()
        y[threadIdx.x] = total

    return loop


def test_case_7_a_value_carried_round_the_loop() -> None:
    """The read of iteration t and the write of iteration t + 1; one iteration alone is right."""

    def make(n: int = 4) -> list[np.ndarray]:
        return [np.arange(1, n + 1, dtype=np.float32), np.zeros(64, np.float32)]

    bad = carried(False)
    load, store = line(bad, "load"), line(bad, "store")
    demand(
        bad, 1, make, "TK500 TK501", "store load", names="store load", says=("sw[0]",),
        hint=f"put block.sync() after line {load}, before line {store} runs again",
    )  # fmt: skip
    silent(carried(False), 1, lambda: make(1), lambda x: np.full(64, x.sum()))
    silent(carried(True), 1, make, lambda x: np.full(64, x.sum()))


def shift(good: bool):
    """Each step moves all values one place on: two barriers, the second at the end of the body."""

    @tk.kernel(threads=64)
    def rotate(n: tk.i32, y: tk.gl_fl):
        s = tk.shared_array(tk.f32, 64)
        s[threadIdx.x] = 1.0 * threadIdx.x
        block.sync()
        for _ in range(n):
            v = s[(threadIdx.x + 1) % 64]  # load
            block.sync()
            s[threadIdx.x] = v  # store
            if good:
                block.sync()
        block.sync()
        y[threadIdx.x] = s[threadIdx.x]

    return rotate


def test_case_8_no_barrier_at_the_end_of_a_loop_body() -> None:
    def make() -> list[Any]:
        return [3, np.zeros(64, np.float32)]

    demand(
        shift(False), 1, make, "TK500 TK501", "store load", names="store load", says=("s[",),
        hint="block.sync()",
    )  # fmt: skip
    silent(shift(True), 1, make, lambda n: (np.arange(64) + n) % 64)


# --------------------------------------------------------------------------------- asynchrony
def ahead(good: bool, STAGES: int = 2):
    """All warps compute; one brings the next tile meanwhile."""

    @tk.kernel(warps=4)
    def pipeline(x: tk.gl_bf, y: tk.gl_bf):
        s = tk.shared(tk.st_bf(64, 64), STAGES)
        full = tk.shared(tk.semaphore, STAGES)
        if warpid() == 0:
            for i in range(STAGES):
                init_semaphore(full[i], 1)
        block.sync()
        t = tk.rt_bf(16, 64)
        n = x.rows // 64
        if STAGES > 1 and warpid() == 0:
            tma.expect(full[0], s[0])
            tma.load_async(s[0], x, (0, 0), full[0])
        for k in range(n):
            to = k + STAGES - 1
            if warpid() == 0 and to < n:
                tma.expect(full[to % STAGES], s[to % STAGES])
                tma.load_async(s[to % STAGES], x, (to, 0), full[to % STAGES])  # refill
            wait(full[k % STAGES], k // STAGES % 2)
            warpgroup.load(t, s[k % STAGES])  # read
            warpgroup.store(y, t, (k, 0))
            if good:
                block.sync()

    return pipeline


def tiles(n: int, cols: int = 64) -> Any:
    return lambda: [bf(64 * n, cols), np.zeros((64 * n, cols), BF)]


def test_case_9_a_stage_is_overwritten_while_it_is_read() -> None:
    """As long as no stage is used twice all is well; then a late warp may lose its tile."""
    kernel = ahead(False)
    silent(kernel, 1, tiles(2), lambda x: x)
    for e in demand(
        kernel, 1, tiles(5), "TK500", "refill read", names="refill read", says=("s[",), hint="wait"
    ):
        assert isinstance(e, tk.Race)
        assert re.search(r"TMA load", e.message), str(e)
    silent(ahead(True), 1, tiles(5), lambda x: x)


def counted(STAGES: int, good: bool):
    """Producer and consumer whose phases change with each step: right for one stage only."""
    LAP = STAGES if good else 1

    @tk.kernel(warps=8)
    def pipeline(x: tk.gl_bf, y: tk.gl_bf):
        s = tk.shared(tk.st_bf(64, 64), STAGES)
        full = tk.shared(tk.semaphore, STAGES)
        empty = tk.shared(tk.semaphore, STAGES)
        if warpid() == 0:
            for i in range(STAGES):
                init_semaphore(full[i], 1)
                init_semaphore(empty[i], 4)
        block.sync()
        if warpgroup.groupid() == 1:
            if warpgroup.warpid() == 0:
                for k in range(x.rows // 64):
                    wait(empty[k % STAGES], (k // LAP + 1) % 2)
                    tma.expect(full[k % STAGES], s[k % STAGES])
                    tma.load_async(s[k % STAGES], x, (k, 0), full[k % STAGES])  # fill
        else:
            t = tk.rt_bf(16, 64)
            for k in range(x.rows // 64):
                wait(full[k % STAGES], k // LAP % 2)
                warpgroup.load(t, s[k % STAGES])  # read
                warpgroup.store(y, t, (k, 0))
                arrive(empty[k % STAGES])  # free

    return pipeline


def test_case_9_phases_that_are_right_for_one_stage_only() -> None:
    silent(counted(1, False), 1, tiles(5), lambda x: x)
    kernel = counted(2, False)
    for e in demand(kernel, 1, tiles(5), "TK500 TK503 TK522 TK523", "read fill free"):
        assert "[1]" in str(e) or "did not wait" in e.hint, str(e)
    for stages in (1, 2, 3):
        silent(counted(stages, True), 1, tiles(5), lambda x: x)


def groups(read: int):
    @tk.kernel(warps=1)
    def three(x: tk.gl_bf, y: tk.gl_bf):
        s = tk.shared(tk.st_bf(16, 64), 3)
        t = tk.rt_bf(16, 64)
        for i in tk.static_range(3):
            warp.load_async(s[i], x, (i, 0))  # copy
            tk.commit_group()
        tk.wait_group(1)
        warp.sync()
        for i in range(read):
            warp.load(t, s[i])  # read
            warp.store(y, t, (i, 0))
        tk.wait_group(0)

    return three


def stores(reuse: int):
    @tk.kernel(warps=1)
    def three(x: tk.gl_bf, y: tk.gl_bf):
        s = tk.shared(tk.st_bf(16, 64), 3)
        t = tk.rt_bf(16, 64)
        for i in range(3):
            warp.load(t, x, (i, 0))
            warp.store(s[i], t)
        tma.fence()
        warp.sync()
        for i in range(3):
            tma.store_async(y, s[i], (i, 0))  # out
        tma.store_async_read_wait(1)
        warp.zero(t)
        for i in range(reuse):
            warp.store(s[i], t)  # reuse
        tma.store_async_wait()

    return three


def test_case_10_wait_group_1_with_three_groups() -> None:
    """It returns when two are done: the first two tiles are free, the third is not."""

    def make() -> list[np.ndarray]:
        return [bf(48, 64), np.zeros((48, 64), BF)]

    rows = np.arange(48)[:, None]
    silent(groups(2), 1, make, lambda x: np.where(rows < 32, x, 0))
    demand(groups(3), 1, make, "TK508", "read", names="copy", says=("s[2]",), hint="wait_group(n)")
    silent(stores(2), 1, make, lambda x: x)
    demand(
        stores(3), 1, make, "TK500", "reuse", names="out reuse", says=("s[2]", "TMA store"),
        hint="tma.store_async_read_wait()",
    )  # fmt: skip


def two_copies(what: str):
    """One product of A and B; `what` is wrong with the bytes."""

    @tk.kernel(warps=8)
    def product(A: tk.gl_bf, B: tk.gl_bf, C: tk.gl_bf):
        a = tk.shared(tk.st_bf(64, 64))
        b = tk.shared(tk.st_bf(64, 128))
        full = tk.shared(tk.semaphore)
        if warpid() == 0:
            init_semaphore(full, 1)
        block.sync()
        if warpid() == 4:
            if what == "high":
                tma.expect_bytes(full, 64 * 64 * 2 + 64 * 128 * 2 + 128)
            elif what == "low":
                tma.expect(full, a)
            else:
                tma.expect(full, a, b)
            tma.load_async(a, A, (0, 0), full)  # first
            if what != "one copy":
                tma.load_async(b, B, (0, blockIdx.x), full)  # second
        if warpgroup.groupid() == 0:
            acc = tk.rt_fl(16, 128)
            wait(full, 0)  # wait
            warpgroup.mm_AB(acc, a, b)  # product
            warpgroup.mma_async_wait()
            warpgroup.store(C, acc, (0, blockIdx.x))

    return product


def factors() -> list[np.ndarray]:
    return [bf(64, 64), bf(64, 256), np.zeros((64, 256), BF)]


def multiplied(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a.astype(np.float64) @ b.astype(np.float64)


A_BYTES, B_BYTES = 64 * 64 * 2, 64 * 128 * 2


@pytest.mark.parametrize(
    ("what", "expected", "got"),
    [
        ("one copy", A_BYTES + B_BYTES, A_BYTES),
        ("high", A_BYTES + B_BYTES + 128, A_BYTES + B_BYTES),
    ],
    ids=["case 11", "case 12"],
)
def test_cases_11_and_12_bytes_that_never_come(what: str, expected: int, got: int) -> None:
    """Who waits, where, for how many bytes; and at once: nothing is waited out."""
    kernel = two_copies(what)
    at = line(kernel, "wait")
    says = (
        f"warps 0, 1, 2, 3 line {at}: wait(full, 0)",
        f"{expected - got} bytes missing (expects {expected}, got {got})",
        "warps 4, 5, 6, 7 left the kernel",
    )
    errors = demand(kernel, 2, factors, "TK507", "wait", says=says, hint="tma.expect")
    assert all(isinstance(e, tk.Deadlock) for e in errors)
    with pytest.raises(tk.Deadlock):
        kernel.sim[2](*factors(), steps=100)
    silent(two_copies(""), 2, factors, multiplied)


def test_case_12_expected_bytes_set_too_low() -> None:
    """More bytes come than were named: which load brings them, and how many."""
    says = (f"{A_BYTES + B_BYTES} bytes come to full in phase 0", f"named {A_BYTES}")
    demand(two_copies("low"), 2, factors, "TK522", "first second", says=says, hint="tma.expect")


def both_ways(what: str):
    """A tile in by TMA, and out again."""

    @tk.kernel(warps=4)
    def through(x: tk.gl_bf, y: tk.gl_bf):
        s = tk.shared(tk.st_bf(64, 64))
        full = tk.shared(tk.semaphore)
        if warpid() == 0:
            init_semaphore(full, 1)
            tma.expect(full, s)
            tma.load_async(s, x, (blockIdx.x, 0), full)  # load
            if what != "no semaphore":
                wait(full, 0)  # arrived
            tma.store_async(y, s, (blockIdx.x, 0))  # store
            if what != "no group":
                tma.store_async_wait()  # left

    return through


def test_case_13_a_load_completes_on_a_semaphore_and_a_store_as_a_group() -> None:
    """The timeline draws it: which moment ends the copy, and which lets the warp know."""
    good = both_ways("")
    silent(good, 2, tiles(2), lambda x: x)
    demand(both_ways("no semaphore"), 2, tiles(2), "TK500 TK503", "store", names="load")
    demand(both_ways("no group"), 2, tiles(2), "TK525", "store", hint="tma.store_async_wait()")
    moments = good.sim[1](*tiles(1)(), timeline=True).timeline.moments
    at = {m: line(good, m) for m in ("load", "arrived", "store", "left")}
    load = next(i for i, m in enumerate(moments) if (m.kind, m.line) == ("load", at["load"]))
    store = next(i for i, m in enumerate(moments) if (m.kind, m.line) == ("store", at["store"]))
    landed = [next(i for i, m in enumerate(moments) if start in m.ends) for start in (load, store)]
    assert all(moments[i].kind == "land" for i in landed)
    phase = next(i for i, m in enumerate(moments) if m.kind == "phase")
    assert (moments[phase].what, moments[phase].cause) == ("full", landed[0])
    passed = next(m for m in moments if m.kind == "pass")
    assert (passed.line, passed.cause) == (at["arrived"], phase)
    known = next(i for i, m in enumerate(moments) if m.kind == "stored")
    assert moments[known].line == at["left"]
    assert load < landed[0] < phase < store < landed[1] <= known


def stored(fence: bool, barrier: bool):
    """P by plain stores, then P^T V by the tensor cores: each warp reads what all have stored."""

    @tk.kernel(warps=4)
    def weigh(P: tk.gl_bf, V: tk.gl_bf, Y: tk.gl_bf):
        p = tk.shared(tk.st_bf(64, 64))
        v = tk.shared(tk.st_bf(64, 64))
        here = tk.shared(tk.semaphore)
        if warpid() == 0:
            init_semaphore(here, 1)
        block.sync()
        if warpid() == 0:
            tma.expect(here, v)
            tma.load_async(v, V, (blockIdx.x, 0), here)
        t = tk.rt_bf(16, 64)
        o = tk.rt_fl(16, 64)
        warpgroup.load(t, P, (blockIdx.x, 0))
        wait(here, 0)
        warpgroup.store(p, t)  # store
        if fence:
            tma.fence()
        if barrier:
            warpgroup.sync(1)
        warpgroup.mm_AtB(o, p, v)  # product
        warpgroup.mma_async_wait()
        warpgroup.store(Y, o, (blockIdx.x, 0))

    return weigh


@pytest.mark.parametrize(("fence", "barrier"), [(False, False), (False, True), (True, False)])
def test_case_14_plain_stores_before_wgmma(fence: bool, barrier: bool) -> None:
    """Both are needed, the fence by the warps that store, then a barrier: between which lines."""

    def make() -> list[np.ndarray]:
        return [bf(128, 64), bf(128, 64)[::-1].copy(), np.zeros((128, 64), BF)]

    kernel = stored(fence, barrier)
    errors = demand(
        kernel, 2, make, "TK500" if fence else "TK520", "product", names="store product",
        says=("wgmma", "p["),
    )  # fmt: skip
    first, last = line(kernel, "store"), line(kernel, "product")
    for e in errors:
        assert f"line {first}" in e.hint
        assert f"line {last}" in e.hint
        assert "barrier" in e.hint or "block.sync()" in e.hint
        assert ("tma.fence()" in e.hint) == (not fence)

    def want(p: np.ndarray, v: np.ndarray) -> np.ndarray:
        p, v = (x.astype(np.float64).reshape(2, 64, 64) for x in (p, v))
        return (p.swapaxes(1, 2) @ v).reshape(128, 64)

    silent(stored(True, True), 2, make, want)


def reused(good: bool):
    """Each block of the grid takes blocks of rows in turn; phases start again with each of them."""

    @tk.kernel(warps=8)
    def several(x: tk.gl_bf, y: tk.gl_bf):
        s = tk.shared(tk.st_bf(64, 64))
        full = tk.shared(tk.semaphore)
        empty = tk.shared(tk.semaphore)
        if warpid() == 0:
            init_semaphore(full, 1)
            init_semaphore(empty, 4)
        block.sync()
        steps = x.cols // 64
        n = 0  # uses of the stage in all
        if warpgroup.groupid() == 1:
            if warpgroup.warpid() == 0:
                for tile in range(blockIdx.x, x.rows // 64, gridDim.x):
                    for k in range(steps):
                        if good:
                            wait(empty, (n + 1) % 2)
                        else:
                            wait(empty, (k + 1) % 2)  # produce
                        tma.expect(full, s)  # expect
                        tma.load_async(s, x, (tile, k), full)  # fill
                        n += 1
        else:
            t = tk.rt_bf(16, 64)
            for tile in range(blockIdx.x, x.rows // 64, gridDim.x):
                for k in range(steps):
                    if good:
                        wait(full, n % 2)
                    else:
                        wait(full, k % 2)  # consume
                    warpgroup.load(t, s)  # read
                    warpgroup.store(y, t, (tile, k))
                    arrive(empty)
                    n += 1

    return several


def test_case_15_right_for_one_block_and_wrong_for_several() -> None:
    """With an odd number of steps the second block of rows begins in the other phase."""
    rows = tiles(4, 3 * 64)
    silent(reused(False), 4, rows, lambda x: x)  # one for each: never reused
    silent(reused(False), 2, tiles(4, 2 * 64), lambda x: x)  # even: right by chance
    for e in demand(
        reused(False), 2, rows, "TK500 TK503 TK507 TK522 TK523",
        "produce expect fill consume read",
    ):  # fmt: skip
        text = str(e)
        assert "phase" in text or "nothing orders" in text, text
    for grid in (1, 2, 3, 4):
        silent(reused(True), grid, rows, lambda x: x)


def test_every_case_is_named() -> None:
    """1 to 15, here or in test_sim_faults.py."""
    import test_sim_faults

    text = " ".join([*globals(), *vars(test_sim_faults)])
    found = {int(n) for part in re.findall(r"test_cases?_([\d_and]+)", text)
             for n in re.findall(r"\d+", part)}  # fmt: skip
    assert set(range(1, 16)) <= found
