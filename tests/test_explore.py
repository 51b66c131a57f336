"""All schedules of small kernels: how many there are, what only some of them show, and replay.

`prune="none"` runs every schedule and `prune="states"` every state; what `explore` does by itself
must come to the same verdict and the same results with fewer runs.
"""

from __future__ import annotations

import importlib.util
import random
import re
from math import comb, factorial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from bugzoo import KERNELS
from bugzoo.zoo import ZOO

import tklearn as tk
from tklearn import arrive, block, init_semaphore, tma, wait, warp, warpid
from tklearn.kernels import gemm_hopper
from tklearn.sim.explore import OPTIONS, Exploration, explore
from tklearn.sim.mutate import mutants
from tklearn.sim.schedule import Schedule

assert KERNELS  # they fill ZOO
BF = ml_dtypes.bfloat16


def numbers(n: int = 4) -> np.ndarray:
    return np.zeros(n, np.float32)


# --------------------------------------------------------------------- how many schedules there are
@tk.kernel(warps=2)
def two_semaphores(x: tk.gl_fl):
    a = tk.shared(tk.semaphore)
    b = tk.shared(tk.semaphore)
    if warpid() == 0:
        init_semaphore(a, 9)
        init_semaphore(b, 9)
    block.sync()
    if warpid() == 0:
        arrive(a)
        arrive(a)
    else:
        arrive(b)
        arrive(b)


@tk.kernel(warps=3)
def one_semaphore(x: tk.gl_fl):
    a = tk.shared(tk.semaphore)
    if warpid() == 0:
        init_semaphore(a, 3)
    block.sync()
    arrive(a)


@tk.kernel(threads=96)
def atomics(x: tk.gl_fl):
    if warpid() == 0:
        tk.atomic_add(x[0], 1e8)
    elif warpid() == 1:
        tk.atomic_add(x[0], 1.0)
    else:
        tk.atomic_add(x[0], -1e8)


def test_known_numbers_of_schedules() -> None:
    # Before the barrier 3 steps and 1; after it 3 and 3: two arrivals and the end.
    every = two_semaphores.sim[1].explore(numbers(), prune="none")
    assert (every.complete, every.runs) == (True, comb(4, 1) * comb(6, 3))
    assert two_semaphores.sim[1].explore(numbers()).runs == 1
    # Three warps: 2, 1 and 1 steps before the barrier, 2 each after it.
    every = one_semaphore.sim[1].explore(numbers(), prune="none")
    assert every.runs == factorial(4) // 2 * factorial(6) // 2**3
    assert one_semaphore.sim[1].explore(numbers()).runs == 1
    for prune in ("none", "states", "orders"):
        assert atomics.sim[1].explore(numbers(), prune=prune).runs == 6


def test_results_that_depend_on_the_order_of_float_atomics() -> None:
    x = numbers()
    found = atomics.sim[1].explore(x)
    assert found.complete
    assert found.fault is None
    assert not x.any()
    assert len(found.values) == len(found.schedules) == 2
    assert "2 different results" in str(found)
    assert found.differs[0] == ""
    assert re.fullmatch(r"\w+\[0\] is (0.0 and 32.0|32.0 and 0.0)", found.differs[1])
    assert str(found).endswith(f"the first element that differs: {found.differs[1]}")
    seen = set()
    for schedule in found.schedules:
        y = numbers()
        atomics.sim[1](y, schedule=schedule)
        seen.add(float(y[0]))
    assert seen == {0.0, 32.0}  # each lane adds


@tk.kernel(threads=96)
def exact_atomics(x: tk.gl(tk.i32), HERE: tk.const):
    tk.atomic_add(x[0], warpid() + 1)
    tk.atomic_max(x[HERE], 100 * warpid())


@tk.kernel(threads=96)
def tickets(x: tk.gl(tk.i32)):
    if tk.threadIdx.x % 32 == 0:
        x[1 + warpid()] = tk.atomic_add(x[0], 1)


def test_atomics_that_commute_need_one_run() -> None:
    x = np.zeros(4, np.int32)
    assert exact_atomics.sim[1].explore(x, HERE=1).runs == 1
    found = exact_atomics.sim[1].explore(x, HERE=0)  # an addition and a maximum do not
    assert found.runs == 6
    assert len(found.values) > 1
    assert len(tickets.sim[1].explore(x).values) == 6  # nor does a value that is used


@tk.kernel(warps=3)
def adds_by_tma(B: tk.gl_fl):
    t = tk.shared(tk.st_fl(16, 16), 3)
    r = tk.rt_fl(16, 16)
    warp.zero(r)
    if warpid() == 0:
        r += 1e8
    elif warpid() == 1:
        r += 1.0
    else:
        r -= 1e8
    warp.store(t[warpid()], r)
    tma.fence()
    warp.sync()
    tma.store_add_async(B, t[warpid()], (0, 0))
    tma.store_async_wait()


def test_results_that_depend_on_the_order_of_tma_adds() -> None:
    found = adds_by_tma.sim[1].explore(np.zeros((16, 16), np.float32))
    assert found.complete
    assert found.fault is None
    assert len(found.values) == 2


# ------------------------------------------------------------------ faults of some schedules only
@tk.kernel(warps=2)
def who_is_second(x: tk.gl(tk.i32)):
    s = tk.shared(tk.semaphore)
    if warpid() == 0:
        init_semaphore(s, 1)
    block.sync()
    ticket = warp.uniform(warp.shfl(tk.atomic_add(x[0], 1), 0))
    if ticket > 0 and warpid() == 0:
        wait(s, 0)  # nobody arrives


@tk.kernel(warps=2)
def hands_over(x: tk.gl_fl):
    s = tk.shared(tk.semaphore)
    if warpid() == 0:
        init_semaphore(s, 1)
    block.sync()
    if warpid() == 0:
        wait(s, 0)
    else:
        arrive(s)


def error_of(launch: Any, *args: Any, **options: Any) -> tk.TkError:
    with pytest.raises(tk.TkError) as e:
        launch(*args, **options)
    return e.value


def test_a_deadlock_that_the_default_schedule_does_not_show() -> None:
    who_is_second.sim[1](np.zeros(1, np.int32))
    x = np.zeros(1, np.int32)
    found = who_is_second.sim[1].explore(x)
    assert isinstance(found.fault, tk.Deadlock)
    assert not found.complete
    assert "first fault" in found.reason
    assert str(found.witness) in str(found)
    assert not x.any()
    for schedule in (found.witness, list(found.witness)):
        again = error_of(who_is_second.sim[1], np.zeros(1, np.int32), schedule=schedule)
        assert str(again) == str(found.fault)


def test_a_witness_with_a_timeline() -> None:
    found = who_is_second.sim[1].explore(np.zeros(1, np.int32))
    again = error_of(
        who_is_second.sim[1], np.zeros(1, np.int32), schedule=found.witness, timeline=True
    )
    assert again.timeline is not None


# ------------------------------------------------------------------------------- real kernels
def products(k: int, n: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype(BF) for s in ((128, k), (k, n)))
    return [a, b, np.zeros((128, n), BF)]


@pytest.mark.parametrize("steps", [3, 7])
def test_the_ring_of_a_gemm_has_one_order(steps: int) -> None:
    """12 warps, a ring of 3 stages: all that matters is ordered by the semaphores."""
    gemm = gemm_hopper.simple(tk.bf16, gemm_hopper.Config(2, 32, 16, 3))
    found = gemm.sim[1].explore(*products(16 * steps, 32))
    assert found.complete
    assert found.fault is None
    assert len(found.values) == 1
    assert found.runs == 1
    assert found.seconds < 10


def test_blocks_are_looked_at_one_by_one() -> None:
    @tk.kernel(threads=64)
    def each(x: tk.gl_fl):
        if tk.blockIdx.x == 1:
            if tk.threadIdx.x % 32 == 0:
                tk.atomic_add(x[0], 1.0 + warpid())
        else:
            x[1 + warpid()] = 1.0

    found = each.sim[2].explore(numbers(), blocks=[0, 1])
    assert found.complete
    assert found.runs == 1 + 2
    assert {s.block for s in found.schedules} == {(0, 0, 0), (1, 0, 0)}
    assert len(found.values) == 2
    assert found.results == 1  # one of each block
    assert each.sim[2].explore(numbers()).runs == 1


def test_the_twins_of_the_bug_zoo_under_all_schedules() -> None:
    """No false alarm and one result, whatever the order."""
    for name, f in ZOO.items():
        options = {k: v for k, v in f.options.items() if k in OPTIONS}
        found = f.make(True).sim[f.grid].explore(*f.twin_args(), **options)
        assert found.complete, (name, str(found))
        assert found.results <= 1, (name, str(found))


# ---------------------------------------------------------------------------------- bounds, errors
@tk.kernel(threads=64)
def spins(x: tk.gl_fl):
    flag = tk.shared_array(tk.i32, 1)
    if tk.threadIdx.x == 0:
        flag[0] = 0
    block.sync()
    if warpid() == 0:
        tk.atomic_exch(flag[0], 1)
    else:
        while tk.atomic_add(flag[0], 0) == 0:
            pass


def test_what_has_no_end_is_bounded_and_says_so() -> None:
    found = spins.sim[1].explore(numbers(), runs=20)
    assert not found.complete
    assert found.fault is None
    assert 0 < found.runs <= 20
    assert "some schedules (stopped after 20 runs)" in str(found)
    found = spins.sim[1].explore(numbers(), seconds=0.05)
    assert "stopped after 0.05 s" in found.reason


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        ([2], "names warp 2 of 2"),
        (["a"], "is no step"),
        ([-1], "is no step"),
        ([1.5], "is no step"),
        ([1, 1], "step 1 of the schedule is warp 1, which cannot go on there: it waits at block"),
        (["0:0"], "transfer 0 of warp 0, which cannot go on there: it was not issued yet"),
        (["0*2", 1, "1*2", 1], "it has ended"),
        (
            ["0*2", 1, "0*2"],
            "step 4 of the schedule is warp 0, which cannot go on there",
        ),
        (["0*2", 1, "1*2", "0*3", 1], "the schedule has 9 steps, and the block ended after 8"),
    ],
)
def test_wrong_schedules(schedule: list, words: str) -> None:
    e = error_of(hands_over.sim[1], numbers(), schedule=schedule)
    assert e.code == "TK411"
    assert words in e.message


def test_a_schedule_is_for_one_block() -> None:
    e = error_of(hands_over.sim[2], numbers(), schedule=[0])
    assert e.code == "TK411"
    assert "one block" in e.message
    hands_over.sim[2](numbers(), schedule=["0*2", 1, 0], blocks=[1])


def test_wrong_options() -> None:
    for options in ({"prune": "some"}, {"runs": 0}, {"seconds": 0}, {"check": "no"}):
        e = error_of(hands_over.sim[1].explore, numbers(), **options)
        assert e.code == "TK411"
    e = error_of(hands_over.gpu[1].explore, numbers())
    assert e.code == "TK411"
    assert "hands_over.sim[grid].explore" in e.hint


def test_a_schedule_prints_as_it_is_written() -> None:
    s = Schedule((0, 0, 0), (0, 0, 0, 1, (0, 2), (0, 2), 1, 1))
    assert str(s) == '["0*3", 1, "0:2*2", "1*2"]'.replace('"', "'")


# -------------------------------------------------------------- against every single schedule
HEAD = """import tklearn as tk
from tklearn import arrive, block, init_semaphore, tma, wait, warp, warpid

@tk.kernel(warps={warps})
def k(A: tk.gl_fl, x: tk.gl_fl):
    t = tk.shared(tk.st_fl(16, 16), {warps})
    s0 = tk.shared(tk.semaphore)
    s1 = tk.shared(tk.semaphore)
    if warpid() == 0:
        init_semaphore(s0, {c0})
        init_semaphore(s1, {c1})
    block.sync()
"""


def program(rng: random.Random) -> str:
    """A kernel of two or three warps whose arrivals more or less fit its waits."""
    warps, count = rng.choice([2, 2, 3]), (rng.choice([1, 1, 2]), rng.choice([1, 1, 2]))
    parts: list[list[str]] = [[] for _ in range(warps)]
    for s in (0, 1):
        phases = rng.choice([0, 1, 1, 2])
        for _ in range(phases * count[s]):
            w = rng.randrange(warps)
            load = [f"tma.expect(s{s}, t[{w}])", f"tma.load_async(t[{w}], A, (0, 0), s{s})"]
            if rng.random() < 0.3:
                parts[w] += load if rng.random() < 0.8 else load[::-1]
            else:
                parts[w].append(f"arrive(s{s})")
        for part in parts:
            for phase in range(phases if rng.random() < 0.5 else 0):
                part.insert(rng.randint(0, len(part)), f"wait(s{s}, {phase % 2})")
    for part in parts:
        for _ in range(rng.choice([0, 0, 1, 1])):
            value = rng.choice(["1e8", "1.0", "-1e8"])
            part.insert(rng.randint(0, len(part)), f"tk.atomic_add(x[0], {value})")
    if rng.random() < 0.3:
        a, b = rng.sample(range(warps), 2)
        parts[a].insert(rng.randint(0, len(parts[a])), "block.sync(1, 64)")
        meets = rng.choice(["block.sync(1, 64)", "block.arrive(1, 64)"])
        parts[b].insert(rng.randint(0, len(parts[b])), meets)
    text = HEAD.format(warps=warps, c0=count[0], c1=count[1])
    for w, part in enumerate(parts):
        text += f"    if warpid() == {w}:\n" + "".join(f"        {x}\n" for x in [*part, "pass"])
    return text


def kernel_of(text: str, path: Path) -> tk.Kernel:
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.k


def verdict(found: Exploration) -> Any:
    assert found.complete or found.fault is not None
    return "fault" if found.fault is not None else set(found.values)


@pytest.mark.parametrize("check", ["full", "off"])
def test_random_kernels_against_all_states(check: str, tmp_path: Path) -> None:
    """With checks off only deadlocks and counts of arrivals are left, which depend on the order."""
    rng = random.Random(7)
    hard = 0
    for i in range(40):
        text = program(rng)
        kernel = kernel_of(text, tmp_path / f"{check}{i}.py")
        args = [np.ones((16, 16), np.float32), numbers()]
        every = kernel.sim[1].explore(*args, prune="states", check=check, seconds=10)
        if every.reason.startswith("stopped after"):
            continue
        some = kernel.sim[1].explore(*args, check=check)
        assert verdict(some) == verdict(every), text
        assert some.fault is not None or some.runs <= every.runs
        if some.fault is not None:
            again = error_of(kernel.sim[1], *args, schedule=some.witness, check=check)
            assert str(again) == str(some.fault)
        hard += every.runs > 1
    assert hard >= 10


@tk.kernel(warps=3)
def small_ring(A: tk.gl_fl, y: tk.gl_fl):
    """A producer, two consumers, one stage: TMA in, sums out."""
    tile = tk.shared(tk.st_fl(16, 16))
    full = tk.shared(tk.semaphore)
    empty = tk.shared(tk.semaphore)
    if warpid() == 0:
        init_semaphore(full, 1)
        init_semaphore(empty, 2)
    block.sync()
    if warpid() == 0:
        for k in range(A.rows // 16):
            wait(empty, (k + 1) % 2)
            tma.expect(full, tile)
            tma.load_async(tile, A, (k, 0), full)
    else:
        r = tk.rt_fl(16, 16)
        total = tk.rt_fl(16, 16)
        warp.zero(total)
        for k in range(A.rows // 16):
            wait(full, k % 2)
            warp.load(r, tile)
            total += r
            arrive(empty)
        block.sync(1, 64)
        warp.store(y, total, (warpid() - 1, 0))


def test_a_ring_and_its_mutants_against_all_states() -> None:
    rng = np.random.default_rng(0)
    args = [rng.standard_normal((32, 16)).astype(np.float32), np.zeros((32, 16), np.float32)]
    kernel = small_ring.ir(*args)
    every = explore(kernel, (1, 1, 1), args, prune="states")
    some = explore(kernel, (1, 1, 1), args)
    assert every.complete
    assert every.states > 200
    assert (some.complete, some.runs, some.values) == (True, 1, every.values)
    made = list(mutants(kernel))
    assert len(made) > 15
    seen = 0
    for m in made:  # without checks: most of them show in some orders only
        every, some = (
            explore(m.kernel, (1, 1, 1), args, prune=p, check="off", runs=600, seconds=60)
            for p in ("states", "orders")
        )
        if every.complete or every.fault is not None:
            assert (some.fault is None) == (every.fault is None), str(m)
            # A race shows in the results of some orders, which are not tried: races.py reports it.
            assert set(some.values) <= set(every.values) or every.fault is not None
            seen += 1
    assert seen > 12


def test_small_random_kernels_against_every_schedule(tmp_path: Path) -> None:
    rng = random.Random(3)
    done = 0
    for i in range(40):
        kernel = kernel_of(program(rng), tmp_path / f"{i}.py")
        args = [np.ones((16, 16), np.float32), numbers()]
        every = kernel.sim[1].explore(*args, prune="none", check="off", runs=150)
        if every.complete or every.fault is not None:
            done += 1
            for prune in ("states", "orders"):
                found = kernel.sim[1].explore(*args, prune=prune, check="off")
                assert verdict(found) == verdict(every)
    assert done >= 15
