"""Running and judging: what is caught, and in which words."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from course_kit import ANSWERS, ROOT, judged, static

import tklearn as tk
from tklearn.course import engine
from tklearn.course.extract import Answer, from_cells
from tklearn.course.item import Case, KernelItem, OneOf, Out, Rule, Work, Wrong
from tklearn.course.items import ITEMS
from tklearn.course.verdict import Verdict

HEAD = "import tklearn as tk\nfrom tklearn import block, blockIdx, threadIdx, warp\n"
TEXTS = {"topic": "t", "title": "t", "notebook": "n", "minutes": 1, "hints": ("a", "b", "c")}


def twice(dtype: type = np.float32, **more: object) -> KernelItem:
    """y = 2 x, on n numbers, and z = what z was, plus 1."""

    def case(rng: np.random.Generator, n: int) -> Case:
        x = (rng.standard_normal(n) * 8).astype(dtype)
        args = {"x": x, "y": Out((n,), dtype), "z": Out((1,), np.float32, np.ones(1, np.float32))}
        return Case(says=f"{n} numbers", grid=1, args=args, consts={"F": 2, "T": tk.bf16})

    def expected(x: np.ndarray, z: np.ndarray, F: int, T: object) -> dict:
        return {"y": F * x.astype(np.float64), "z": z + 1.0}

    made = KernelItem(
        id="twice", points=4, kernels=("k",), case=case, sizes=(1, 2, 40), hidden=(3, 33),
        expected=expected, **TEXTS,
    )  # fmt: skip
    return replace(made, **more)


def answer(
    body: str, params: str = "x: tk.gl_fl, y: tk.gl_fl, z: tk.gl_fl, F: tk.const, T: tk.const"
) -> Answer:
    lines = "\n".join("    " + line for line in body.split("\n"))
    text = f"{HEAD}\n@tk.kernel(threads=64)\ndef k({params}):\n{lines}\n"
    return from_cells([("cell 1", text)]).answer("twice", ("k",))


GOOD = """i = threadIdx.x
if i < x.cols:
    y[i] = x[i] * F
if i == 0:
    z[0] = z[0] + 1.0"""


def test_right() -> None:
    verdict = judged(twice(), answer(GOOD), seed=3, hidden=True)
    assert verdict.passed, verdict
    assert verdict.score == 4
    assert verdict.message == "right, on 5 tests, hidden ones among them"


@pytest.mark.parametrize(
    ("was", "now", "words"),
    [
        ("y[i] = x[i] * F", "y[i] = x[i] * F + 1e-30 * 1e-30", "passed"),
        ("y[i] = x[i] * F", "y[i] = x[i] * F + 0.25", "the first is y[0]"),
        ("y[i] = x[i] * F", "pass", "nothing was stored"),
        ("i < x.cols", "i < x.cols - 1", "nothing was stored"),
        ("i < x.cols", "i < x.cols and i != 7", "stored\n40 numbers: 1 of 40"),
        ("y[i] = x[i] * F", "y[i] = x[i] * F if i < 5 else y[i]", "y[5]: never stored"),
        ("y[i] = x[i] * F", "y[i] = x[i] * F\n    x[i] = 0.0", "wrote into its input x"),
        ("y[i] = x[i] * F", "y[i] = 0.0 / (x[i] - x[i])", "y[0]: nan"),
        ("z[0] + 1.0", "1.0", "z[0]: 1, should be 2"),
        ("i < x.cols", "i < 64", "TK504"),
        ("y[i]", "y[0]", "TK5"),
        ("x[i] * F", "x[i] * G", "not run, because of an error in its text\nTK110"),
    ],
)  # fmt: skip
def test_wrong(was: str, now: str, words: str) -> None:
    assert was in GOOD
    verdict = judged(twice(), answer(GOOD.replace(was, now)))
    assert words in str(verdict), verdict
    assert verdict.passed == (words == "passed")
    for shown in (str(verdict), verdict._repr_html_()):
        assert verdict.head() in shown


@pytest.mark.parametrize(
    ("dtype", "right"),
    [(np.float32, "0"), (np.float16, "0.333252"), (ml_dtypes.bfloat16, "0.333984")],
)
def test_what_should_be_is_a_number_that_the_output_can_hold(dtype: type, right: str) -> None:
    want = 1e-110 if dtype is np.float32 else 1 / 3
    item = twice(dtype, expected=lambda x, z, F, T: {"y": np.full(len(x), want), "z": z + 1.0})
    kind = {np.float32: "fl", np.float16: "hf", ml_dtypes.bfloat16: "bf"}[dtype]
    params = f"x: tk.gl_{kind}, y: tk.gl_{kind}, z: tk.gl_fl, F: tk.const, T: tk.const"
    body = GOOD.replace("x[i] * F", "5.0")
    assert f"y[0]: 5, should be {right}\n" in str(judged(item, answer(body, params))) + "\n"


def test_hidden_numbers_are_never_shown() -> None:
    verdict = judged(twice(sizes=()), answer(GOOD.replace("* F", "* 3.0")), seed=9, hidden=True)
    assert "wrong on a hidden test, at a size that is not shown" in verdict.message
    assert "should be" not in verdict.message
    assert not verdict.png
    assert verdict.index is None


def test_parameters_must_stay() -> None:
    verdict = judged(twice(), answer("y[0] = x[0]", "x: tk.gl_fl, y: tk.gl_fl"))
    assert "must have the parameters (x, y, z, F, T)" in verdict.message


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.int32])
def test_poison(dtype: type) -> None:
    a = engine.poisoned((5,), dtype)
    assert engine.is_poison(a).all()
    a[3] = dtype(1)
    assert engine.is_poison(a).tolist() == [True, True, True, False, True]
    assert engine.is_poison(a.copy()[::-1].copy()).sum() == 4


def test_misconceptions_by_result_error_and_sign() -> None:
    item = twice(
        wrong=(
            Wrong(says="three times", gives=lambda x, z, F, T: {"y": 3.0 * x}),
            Wrong(says="outside", error="TK504", when=lambda f: "x.rows" not in f.text),
            Wrong(says="multiplied by itself", when=lambda f: "x[i] * x[i]" in f.text),
        )
    )
    for was, now, says in (("* F", "* 3.0", "three times"), ("i < x.cols", "i < 64", "outside"),
                           ("* F", "* x[i]", "multiplied by itself")):  # fmt: skip
        verdict = judged(item, answer(GOOD.replace(was, now)))
        assert verdict.message.startswith(says), verdict


def test_rules_and_work() -> None:
    work = Work(
        says="requests", metrics=("global_st_requests",), ideal=lambda c: 2, full=1.5, zero=2.5
    )
    twice_stored = GOOD.replace("y[i] = x[i] * F", "y[i] = x[i] * F\n    y[i] = x[i] * F")
    verdict = judged(twice(work=(work,)), answer(GOOD))
    assert verdict.passed, verdict
    assert "requests: 7 (up to 9 give all points)" in verdict.message
    assert "needed" not in verdict.message, "more than needed and good is no fault"
    verdict = judged(twice(work=(work,)), answer(twice_stored))
    assert not verdict
    assert 0 < verdict.score < 4
    assert "cost too much" in verdict.message
    assert [work.share(r) for r in (1, 1.5, 2, 2.5, 3)] == [1, 1, 0.5, 0, 0]
    rule = Rule(says="no warp.sync", holds=lambda f: not f.calls["warp.sync"])
    verdict = judged(twice(rules=(rule,)), answer("warp.sync()\n" + GOOD))
    assert "the results are right, but this must hold, too: no warp.sync" in verdict.message
    assert verdict.score == 0


def test_one_of_several() -> None:
    other = replace(twice(), id="twice", kernels=("other",))
    item = OneOf(id="twice", points=4, choices=(other, twice()), **TEXTS)
    assert engine.part(item, answer(GOOD)).kernels == ("k",)
    assert engine.examine(item, answer(GOOD)).passed


def test_in_two_processes_it_is_the_same() -> None:
    """As grading does: cases go out as JSON, outcomes come back as JSON, the parent compares."""
    for name in ("K1", "F1", "S1", "M1"):
        item = ITEMS[name]
        assert isinstance(item, KernelItem)
        for path in (ROOT / "solutions" / item.file, *(ANSWERS / name).glob("wrong_a*.py")):
            given = engine.composed(item, static(item, path))
            if given.problem:
                continue
            cases = engine.plan(item, 3, True)
            sent = [engine.case_of(json.loads(json.dumps(engine.case_json(c)))) for c in cases]
            given = Answer.of(json.loads(json.dumps(given.json())))
            outcomes = engine.execute(given, sent, item.runs, item.steps)
            back = [engine.Outcome.of(json.loads(json.dumps(o.json()))) for o in outcomes]
            verdict = engine.judge(item, given, cases, back)
            assert verdict == judged(item, static(item, path), 3, True)
            assert Verdict.of(json.loads(json.dumps(verdict.json()))) == verdict
    case = twice().case(np.random.default_rng(0), 5)
    again = engine.case_of(json.loads(json.dumps(engine.case_json(case))))
    assert again.consts == case.consts
    assert (again.args["x"] == case.args["x"]).all()
    assert (again.args["z"].start == 1).all()


def test_forged_outcomes_do_not_pass() -> None:
    """What comes back from the process that ran an answer may be anything."""
    item = ITEMS["M1"]
    assert isinstance(item, KernelItem)
    cases = engine.plan(item)
    given = static(item, ROOT / "solutions" / item.file)
    good = engine.execute(given, cases, item.runs, item.steps)
    assert engine.judge(item, given, cases, good).passed
    for bad in (
        [],
        good[:-1],
        [replace(o, outputs=()) for o in good],
        [replace(o, outputs=({},)) for o in good],
        [replace(o, outputs=({"y": np.zeros(3, np.float32)},)) for o in good],
        [replace(o, outputs=({"y": np.zeros(1, "M8[s]")},)) for o in good],
        [replace(o, outputs=({"y": [1, 2]},)) for o in good],
        [replace(o, total={"global_ld_sectors": -(10**9)}) for o in good],
        [replace(o, total={}) for o in good],
        [replace(o, total={"global_ld_sectors": "x"}) for o in good],
    ):
        assert not engine.judge(item, given, cases, bad).passed  # type: ignore[arg-type]


@pytest.mark.parametrize("where", ["row", "word & row"])
def test_a_hint_that_leads_away_from_an_item_is_left_out(where: str, tmp_path: Path) -> None:
    """K1: lanes that store into one place are no case for an atomic."""
    text = (ANSWERS / "K1" / "wrong_collision.py").read_text(encoding="utf-8")
    assert "where = word & row\n" in text
    path = tmp_path / "answer.py"
    path.write_text(text.replace("word & row", where), encoding="utf-8")
    verdict = judged(ITEMS["K1"], static(ITEMS["K1"], path))
    assert verdict.code == "TK501"
    assert verdict.message.startswith("two words of a row get the same place")
    assert "write different values to tile[" in verdict.message
    assert "hint" not in verdict.message
