"""Timelines: what a run with timeline=True keeps, where its moments lie, what the figure says."""

from __future__ import annotations

import inspect
import json
import re
from itertools import pairwise
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from bugzoo import KERNELS
from bugzoo.zoo import ZOO

import tklearn as tk
from tklearn import (
    arrive,
    block,
    blockIdx,
    init_semaphore,
    tma,
    viz,
    wait,
    warp,
    warpgroup,
    warpid,
)
from tklearn.lang.errors import Deadlock, FigureError, KernelFault, Race
from tklearn.report import Timeline
from tklearn.sim import recorder
from tklearn.viz import widgets
from tklearn.viz.clock import Units, places
from tklearn.viz.picture import OKABE_ITO
from tklearn.viz.rows import LOOK, picture_rows
from tklearn.viz.timeline import describe

BF = ml_dtypes.bfloat16
assert KERNELS, "importing them fills the zoo"


def pipeline(STAGES: int, expected: int = 16384, late: bool = False, eager: bool = False) -> Any:
    """C = A B with a producer warp; with faults: bytes expected, what is awaited, when freed."""

    @tk.kernel(warps=8)
    def gemm(A: tk.gl_bf, B: tk.gl_bf, C: tk.gl_fl):
        a = tk.shared(tk.st_bf(64, 64), STAGES)
        b = tk.shared(tk.st_bf(64, 64), STAGES)
        full = tk.shared(tk.semaphore, STAGES)
        empty = tk.shared(tk.semaphore, STAGES)
        if warpid() == 0:
            for s in range(STAGES):
                init_semaphore(full[s], 1)
                init_semaphore(empty[s], 4)
        if not late:
            block.sync()
        if warpgroup.groupid() == 1:
            if warpgroup.warpid() == 0:
                for k in range(A.cols // 64):
                    s = k % STAGES
                    wait(empty[s], (k // STAGES + 1) % 2)
                    tma.expect_bytes(full[s], expected)
                    tma.load_async(a[s], A, (0, k), full[s])
                    tma.load_async(b[s], B, (k, 0), full[s])
        else:
            acc = tk.rt_fl(16, 64)
            warp.zero(acc)
            for k in range(A.cols // 64):
                s = k % STAGES
                wait(full[s], k // STAGES % 2)
                warpgroup.mma_AB(acc, a[s], b[s])
                if eager:
                    arrive(empty[s])
                warpgroup.mma_async_wait()
                if not eager:
                    arrive(empty[s])
            warpgroup.store(C, acc, (0, 0))

    return gemm


@tk.kernel(warps=4)
def one_barrier(A: tk.gl_bf, B: tk.gl_bf, C: tk.gl_fl):
    a_s = tk.shared(tk.st_bf(64, 64))
    b_s = tk.shared(tk.st_bf(64, 64))
    a = tk.rt_bf(16, 64)
    b = tk.rt_bf(64, 64, tk.col)
    acc = tk.rt_fl(16, 64)
    warp.zero(acc)
    for k in range(A.cols // 64):
        block.load(a_s, A, (blockIdx.y, k))
        block.load(b_s, B, (k, blockIdx.x))
        block.sync()
        warp.load(a, a_s.subtile(16, 64, (warpid(), 0)))
        warp.load(b, b_s)
        warp.mma_AB(acc, a, b)
    warp.store(C, acc, (blockIdx.y * 4 + warpid(), blockIdx.x))


def copies(STAGES: int, left: int) -> Any:
    """The same with cp.async; `left`: copies that wait_group leaves under way."""

    @tk.kernel(warps=4)
    def gemm(A: tk.gl_bf, B: tk.gl_bf, C: tk.gl_fl):
        a_s = tk.shared(tk.st_bf(64, 64), STAGES)
        b_s = tk.shared(tk.st_bf(64, 64), STAGES)
        a = tk.rt_bf(16, 64)
        b = tk.rt_bf(64, 64, tk.col)
        acc = tk.rt_fl(16, 64)
        warp.zero(acc)
        for k in range(STAGES - 1):
            block.load_async(a_s[k], A, (0, k))
            block.load_async(b_s[k], B, (k, 0))
            tk.commit_group()
        for k in range(A.cols // 64):
            n = k + STAGES - 1
            if n < A.cols // 64:
                block.load_async(a_s[n % STAGES], A, (0, n))
                block.load_async(b_s[n % STAGES], B, (n, 0))
            tk.commit_group()
            tk.wait_group(left)
            block.sync()
            warp.load(a, a_s[k % STAGES].subtile(16, 64, (warpid(), 0)))
            warp.load(b, b_s[k % STAGES])
            warp.mma_AB(acc, a, b)
            block.sync()
        warp.store(C, acc, (warpid(), 0))

    return gemm


def operands(steps: int = 4) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    r = np.random.default_rng(3)
    A = r.standard_normal((64, 64 * steps)).astype(BF)
    B = r.standard_normal((64 * steps, 64)).astype(BF)
    return A, B, np.zeros((64, 64), np.float32)


def run(kernel: Any, steps: int = 4, **options: Any) -> Timeline:
    t = kernel.sim[1](*operands(steps), timeline=True, **options).timeline
    assert t is not None
    return t


def fault(kernel: Any, kind: type, **options: Any) -> Any:
    with pytest.raises(kind) as e:
        kernel.sim[1](*operands(), timeline=True, **options)
    return e.value


def line_of(kernel: Any, text: str) -> int:
    lines, first = inspect.getsourcelines(kernel.fn)
    return first + next(i for i, x in enumerate(lines) if text in x)


# ------------------------------------------------------------------------------------ recorder
@pytest.mark.parametrize("schedule", ["rotate", "reverse", "random"])
def test_recording_changes_nothing(schedule: str) -> None:
    kernel = pipeline(2)
    A, B, C = operands()
    D = C.copy()
    plain = kernel.sim[1](A, B, C, schedule=schedule)
    kept = kernel.sim[1](A, B, D, schedule=schedule, timeline=True)
    assert plain.timeline is None
    assert (C == D).all()
    assert plain.lines == kept.lines
    assert plain.stats["resumes"] == kept.stats["resumes"]


def test_it_is_plain_data() -> None:
    t = run(pipeline(2))
    data = json.loads(json.dumps(t.json()))
    assert data["kernel"] == "gemm"
    assert len(data["moments"]) == len(t.moments)
    assert "wait(full[s]" in t.source[line_of(pipeline(2), "wait(full")]


@pytest.mark.parametrize("schedule", ["rotate", "reverse", "random"])
def test_what_is_kept_of_a_pipeline(schedule: str) -> None:
    """4 steps through 2 stages: 8 loads, 4 phases of full and of empty, 4 wgmma of each warp."""
    t = run(pipeline(2), schedule=schedule)
    kinds = [m.kind for m in t.moments]
    assert kinds.count("load") == kinds.count("land") == 8
    assert kinds.count("phase") == 8
    assert kinds.count("wgmma") == kinds.count("multiplied") == kinds.count("arrive") == 16
    assert kinds.count("end") == 8
    assert t.roles == ("consumer",) * 4 + ("producer", "", "", "")
    last = t.at(len(t.moments) - 1)
    assert {name: last[f"semaphore {name}"]["phase"] for name in t.semaphores} == {
        "full[0]": 2, "full[1]": 2, "empty[0]": 2, "empty[1]": 2,
    }  # fmt: skip
    assert all(last[f"tile {n}"] == {**last[f"tile {n}"], "state": "full", "using": []}
               for n in t.tiles)  # fmt: skip
    assert all(last[f"warp {w}"]["does"] == "ended" for w in range(8))


def test_a_wait_passes_after_its_phase_and_data_are_there_when_they_are_used() -> None:
    t = run(pipeline(2), 8)
    for n, m in enumerate(t.moments):
        if m.kind == "pass" and m.what.startswith("full"):
            assert t.moments[m.cause].kind == "phase"
            assert t.moments[m.cause].what == m.what
            assert m.cause < n
        for i in m.ends:
            assert t.moments[i].kind in ("wait", "load", "wgmma")
            assert i < n
        if m.kind == "wgmma":
            state = t.at(n)
            for name in m.what.split(", "):
                assert state[f"tile {name}"]["state"] == "full"
                assert f"wgmma of warp {m.warp}" in state[f"tile {name}"]["using"]
        if m.kind == "load":
            assert t.at(n)[f"tile {m.what}"]["state"] == "arriving"


def test_steps_say_who_ran_from_which_line_to_which() -> None:
    kernel = pipeline(1)
    t = run(kernel)
    empty, full = line_of(kernel, "wait(empty"), line_of(kernel, "wait(full")
    mine = [s for s in t.steps if s[1] == 4]
    assert mine[0][3] == line_of(kernel, "block.sync()")
    assert [s[2:4] for s in mine[2:-1]] == [(empty, empty)] * (len(mine) - 3)
    assert any(s[1] == 0 and s[3] == full for s in t.steps)
    assert [s[0] for s in t.steps] == sorted(s[0] for s in t.steps)


def test_only_the_first_block_is_kept() -> None:
    A, B, C = operands()
    kernel = one_barrier
    A, B, C = (np.ones((128, 64), BF), np.ones((64, 128), BF), np.zeros((128, 128), np.float32))
    t = kernel.sim[2, 2](A, B, C, timeline=True, blocks=[3, 1]).timeline
    assert t.block in ((1, 1, 0), (1, 0, 0))
    assert sum(m.kind == "mma" for m in t.moments) == 4


def test_a_long_run_keeps_its_beginning_and_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run(pipeline(2), 8)
    monkeypatch.setattr(recorder, "MOST", 80)
    t = run(pipeline(2), 8)
    assert len(t.moments) == 81
    assert t.dropped == len(whole.moments) - 80
    gap = next(i for i, m in enumerate(t.moments) if m.kind == "gap")
    assert t.moments[:gap] == whole.moments[:gap]
    assert t.at(80) == whole.at(len(whole.moments) - 1)
    assert [m.says for m in t.moments[gap + 1 :]] == [m.says for m in whole.moments[-40:]]
    assert "are left out" in viz.timeline(t).alt


# -------------------------------------------------------------------------------------- faults
def test_a_race_is_two_moments() -> None:
    kernel = pipeline(2, eager=True)
    e = fault(kernel, Race)
    f = e.timeline.fault
    assert (f.kind, f.code) == ("race", "TK500")
    early, late = (e.timeline.moments[n] for n in f.moments)
    assert (early.kind, early.line) == ("wgmma", line_of(kernel, "mma_AB"))
    assert (late.kind, late.line) == ("load", line_of(kernel, "tma.load_async(a"))
    assert late.what in early.what.split(", ")
    p = viz.timeline(e)
    assert "nothing orders the two" in p.alt
    assert len([i for i in p.data.rows.marks if i >= 0]) == 2
    texts = [x.get_text() for a in p.figure.axes for x in a.texts]
    assert "nothing orders these" in texts


def test_case_8_a_race_of_plain_accesses() -> None:
    e = fault(one_barrier, Race)
    early, late = (e.timeline.moments[n] for n in e.timeline.fault.moments)
    assert {early.kind, late.kind} == {"read", "write"}
    assert early.what == late.what
    assert early.warp != late.warp


def test_case_12_a_deadlock_is_who_waits_for_what() -> None:
    kernel = pipeline(2, 2 * 16384)
    e = fault(kernel, Deadlock)
    f = e.timeline.fault
    assert f.kind == "deadlock"
    assert {w for w, _, _ in f.waits} == {0, 1, 2, 3, 4}
    assert {line for w, line, _ in f.waits if w < 4} == {line_of(kernel, "wait(full")}
    p = viz.timeline(e)
    assert "Warps 0-3 wait on line" in p.alt
    assert "16384 bytes missing" in p.alt
    stuck = [b.text for b in p.data.rows.bars if b.style == "stuck"]
    assert sorted(set(stuck)) == ["empty[0]", "full[0]"]
    assert any(b.text == "0: 16384 bytes missing" for b in p.data.rows.bars)


def test_case_13_a_load_ends_on_a_semaphore_and_a_store_in_a_group() -> None:
    @tk.kernel(warps=4)
    def copy(A: tk.gl_bf, B: tk.gl_bf):
        tile = tk.shared(tk.st_bf(64, 64))
        full = tk.shared(tk.semaphore)
        if warpid() == 0:
            init_semaphore(full, 1)
        block.sync()
        if warpid() == 0:
            tma.expect(full, tile)
            tma.load_async(tile, A, (0, 0), full)
            wait(full, 0)
            tma.store_async(B, tile, (0, 0))
            tma.store_async_wait()

    A = np.ones((64, 64), BF)
    t = copy.sim[1](A, np.zeros_like(A), timeline=True).timeline
    kinds = [m.kind for m in t.moments if m.warp == 0]
    load, store = (i for i, m in enumerate(t.moments) if m.kind == "land")
    assert "semaphore full" in t.moments[load].changes
    assert "semaphore full" not in t.moments[store].changes
    assert kinds.index("load") < kinds.index("phase") < kinds.index("store") < kinds.index("stored")
    stored = next(i for i, m in enumerate(t.moments) if m.kind == "stored")
    assert t.moments[stored].cause == store
    for units in (None, Units()):
        p = check_places(t, units)
        assert p.at[stored][0] >= p.at[store][1]
        texts = [b.text for b in picture_rows(t, units).bars if b.style == "copying"]
        assert texts == ["tile", "store tile"]


def test_a_copy_that_was_not_waited_for() -> None:
    kernel = copies(2, 2)
    e = fault(kernel, KernelFault)
    assert e.code == "TK508"
    early, late = (e.timeline.moments[n] for n in e.timeline.fault.moments)
    assert (early.kind, late.kind) == ("copy", "read")
    assert "Nothing makes sure that the copy is there" in viz.timeline(e).alt


def test_a_semaphore_used_before_its_init() -> None:
    e = fault(pipeline(2, late=True), KernelFault)
    assert e.timeline.fault.moments
    assert e.code in viz.timeline(e).alt


def test_what_has_no_timeline() -> None:
    with pytest.raises(Race) as e:
        one_barrier.sim[1](*operands())
    for what in (e.value, pipeline(1).sim[1](*operands()), 3):
        with pytest.raises(FigureError, match=r"TK600.*no timeline"):
            viz.timeline(what)


# --------------------------------------------------------------------------------------- places
def check_places(t: Timeline, units: Units | None) -> Any:
    p = places(t, units)
    for w in range(t.warps):
        mine = sorted((b.start, b.end) for b in p.boxes if b.warp == w)
        assert all(a[1] <= b[0] for a, b in pairwise(mine)), "a warp does one thing at a time"
    for n, m in enumerate(t.moments):
        if m.kind == "pass" and m.cause >= 0:
            assert p.at[n][0] >= p.at[m.cause][1], "a wait passes when its phase is complete"
        for i in m.ends:
            assert p.at[n][1] >= p.at[i][0]
    return p


@pytest.mark.parametrize("schedule", ["rotate", "reverse", "random"])
@pytest.mark.parametrize("units", [None, Units(), Units(3, 9)])
def test_places(schedule: str, units: Units | None) -> None:
    for kernel in (pipeline(1), pipeline(3), copies(1, 0), copies(3, 2)):
        check_places(run(kernel, schedule=schedule), units)


def test_units_do_not_depend_on_the_schedule() -> None:
    ends = {places(run(pipeline(2), 8, schedule=s), Units()).end for s in ("rotate", "reverse")}
    assert len(ends) == 1


def test_units_of_one_two_and_three_stages() -> None:
    """With one stage a step takes a copy, a product and what lies between them, one after the
    other; with enough stages it takes what the warps of the slower side do."""
    ends = {s: [check_places(run(pipeline(s), n), Units(6, 4)) for n in (8, 16)] for s in (1, 2, 3)}
    step = {s: (b.end - a.end) / 8 for s, (a, b) in ends.items()}
    # one stage: pass, expect, load, load, copy; pass, wgmma, product, done, arrive
    assert step[1] == 4 + 6 + 2 + 4 + 2
    assert step[2] == step[1] / 2
    # the consumers' own steps: pass, wgmma, product, done, arrive
    assert step[3] == 2 + 4 + 2
    overlap = {s: "Copies and products overlap" in viz.timeline(run(pipeline(s)), units=Units()).alt
               for s in (1, 2, 3)}  # fmt: skip
    assert overlap == {1: False, 2: True, 3: True}


def test_the_words_tell_stages_apart_and_what_a_semaphore_counts() -> None:
    said = {s: viz.timeline(run(pipeline(s), 8), units=Units(6, 4)) for s in (1, 2, 3)}
    assert len({p.alt for p in said.values()}) == 3
    for p in said.values():
        assert f"It ends at {p.data.finish:g}." in p.alt
        assert f"The first product begins at {p.data.first_product:g}; tensor cores work" in p.alt
        assert "Time spent waiting: warp" in p.alt
        phase = p.alt.partition("The first phase of full[0]: ")[2]
        steps = [phase.index(x) for x in ("expects", "bytes missing", "phase 0 is complete")]
        assert steps == sorted(steps)
    busy = [float(re.search(r"work in (\d+) %", p.alt)[1]) for p in said.values()]
    assert busy == sorted(busy)
    assert busy[0] < busy[1]


def test_times_of_a_model_are_taken() -> None:
    t = run(pipeline(1))
    timed = t.timed([(10.0 * n, 10.0 * n + 5) for n in range(len(t.moments))], "ns")
    p = viz.timeline(timed)
    assert p.data.rows.axis == "time in ns, as estimated"
    loads = [n for n, m in enumerate(t.moments) if m.kind == "load"]
    bar = next(b for b in p.data.rows.bars if b.moments == [loads[0]] and b.style == "load")
    assert (bar.start, bar.end) == (10.0 * loads[0], 10.0 * loads[0] + 5)
    with pytest.raises(ValueError, match="2 times"):
        t.timed([(0, 1), (1, 2)], "ns")


# --------------------------------------------------------------------------------------- figure
def test_rows_and_bars_are_the_moments() -> None:
    t = run(pipeline(2))
    rows = picture_rows(t)
    groups = list(dict.fromkeys(g.split("\n")[0] for _, g in rows.rows))
    assert groups == [
        "warpgroup 1", "TMA", "shared", "warpgroup 0", "tensor", "semaphores",
    ]  # fmt: skip
    shown = {n for b in rows.bars for n in b.moments if b.style in LOOK}
    assert shown == {n for n, m in enumerate(t.moments) if m.kind in LOOK}
    assert sum(b.style == "copying" for b in rows.bars) == 8
    assert sum(b.style == "product" for b in rows.bars) == 4
    assert all(b.end >= b.start for b in rows.bars)
    assert all(0 <= b.row < len(rows.rows) for b in rows.bars)


def test_rows_of_cp_async() -> None:
    rows = picture_rows(run(copies(2, 1)), Units(6, 4))
    assert ("cp.async", "cp.async\n") in rows.rows
    bars = [b for b in rows.bars if b.style == "copying"]
    assert len(bars) == 8
    assert all(b.end - b.start == 6 for b in bars)


def test_the_figure_has_words_and_is_safe_in_print(tmp_path: Any) -> None:
    p = viz.timeline(run(pipeline(2)), title="two stages")
    assert "4 the producer" in p.alt
    assert "order of execution, not time" in p.alt
    p.savefig(tmp_path / "t.svg")
    assert "8 warps" in (tmp_path / "t.svg").read_text()
    texts = [x.get_text() for a in [p.figure, *p.figure.axes] for x in a.texts]
    assert "two stages" in texts
    assert any("order of execution, not time" in x for x in texts)
    assert "warps 5-7" in texts
    letters = {}
    for letter, colour, words in LOOK.values():
        assert letters.setdefault(letter, words) == words, "a letter means one thing"
        assert colour in OKABE_ITO or colour in ("#FFFFFF", "#E6E6E6")


def test_a_part_of_a_long_run() -> None:
    t = run(pipeline(1), 24)
    p = viz.timeline(t)
    assert p.data.rows.end > 90
    end = p.data.finish
    assert end == max(last for _, last in p.data.rows.at)
    assert any(f"steps 0 to 90 of {end:g})" in x.get_text() for x in p.figure.texts)
    assert "The picture shows 0 to 90; these words are about the whole run." in p.alt
    whole = viz.timeline(t, window=(0, end))
    assert "The picture shows" not in whole.alt
    assert not any("steps" in x.get_text() for x in whole.figure.texts)
    assert any(
        "steps 50 to 90" in x.get_text() for x in viz.timeline(t, window=(50, 90)).figure.texts
    )


def test_the_widget_gets_the_same_data() -> None:
    t = run(pipeline(2))
    data, state = widgets.widget_data(viz.timeline(t).data)
    d = json.loads(json.dumps(data))["timeline"]
    assert state == {"view": "timeline", "n": 0, "follow": ""}
    assert [m["says"] for m in d["moments"]] == [m.says for m in t.moments]
    folded: dict[str, Any] = {}
    for m in d["moments"]:
        folded.update(m["changes"])
    assert folded == t.at(len(t.moments) - 1)
    e = fault(one_barrier, Race)
    data, state = widgets.widget_data(viz.timeline(e).data)
    assert state["n"] == len(e.timeline.moments) - 1
    assert data["timeline"]["fault"][0].startswith("Race TK500")


# ------------------------------------------------------------------------------------- the zoo
ONE_OF_EACH = {f.kind: name for name, f in ZOO.items()}


@pytest.mark.parametrize("name", ONE_OF_EACH.values())
def test_every_kind_of_fault_has_a_picture(name: str) -> None:
    f = ZOO[name]
    with pytest.raises(tk.TkError) as e:
        f.launch(False, f.args(), timeline=True)
    t = e.value.timeline
    if t is None:  # not in the first block, or before it
        assert isinstance(e.value, tk.SourceError | tk.LaunchError) or e.value.code == "TK502"
        return
    assert t.fault.code == e.value.code
    assert t.fault.waits if t.fault.kind == "deadlock" else t.fault.moments
    if e.value.code in ("TK500", "TK508", "TK520"):
        assert len(t.fault.moments) == 2
    for units in (None, Units()):
        rows = picture_rows(t, units)
        assert all(b.end >= b.start for b in rows.bars)
        assert e.value.code in describe(t, rows) or t.fault.waits
