"""Lessons 3 to 5: their predictions, who owns what, when stages end, what a wait leaves."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import pytest
from course_kit import ROOT

from tklearn.course import engine
from tklearn.course.extract import Answer
from tklearn.course.item import Facts, Predict
from tklearn.course.items import ITEMS, LESSONS, nb5

BOOKS = {
    "03_banks_padding_swizzle": ("P3", "M2", "K1"),
    "04_tiles_layouts_tensor_cores": ("P4", "S1", "K2"),
    "05_pipelines": ("P5", "K3", "F3"),
}


def said(item: Predict, seed: int, **answers: Any) -> Any:
    return engine.judge_predictions(item, Answer(item.id, first=answers, latest=answers, seed=seed))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", ["P4", "P5", "N3", "N4", "N5"])
def test_each_misconception_is_named(name: str, seed: int) -> None:
    item = {**ITEMS, **LESSONS}[name]
    assert isinstance(item, Predict)
    params = engine.parameters(item, seed)
    right = {q.name: q.truth(**params) for q in item.questions}
    assert said(item, seed, **right).passed
    for q in item.questions:
        assert not q.choices or right[q.name] in q.choices
        told = 0
        for f in q.wrong.values():
            wrong = f(**params)
            if engine._right(right[q.name], wrong, q.within):
                continue
            verdict = said(item, seed, **{**right, q.name: wrong})
            assert not verdict.passed
            assert any(says in verdict.message for says in q.wrong)
            told += 1
        assert told, f"{q.name}: every misconception gives the right answer"


def test_the_owner_of_the_plan() -> None:
    questions = {q.name: q for q in ITEMS["P4"].questions}  # type: ignore[attr-defined]
    place = {"row": 9, "col": 3}
    assert [questions[n].truth(**place) for n in ("lane", "register")] == [5, 3]
    assert questions["row"].truth(lane=5) == 9
    assert questions["b_lane"].truth(k=9, n=3) == 12


@pytest.mark.parametrize("steps", [6, 8])
@pytest.mark.parametrize(("copy", "product"), [(400, 200), (300, 200), (450, 300), (500, 300)])
def test_stages_end_where_a_pencil_says(steps: int, copy: int, product: int) -> None:
    pencil = [
        steps * (copy + product),
        steps // 2 * (copy + product) + product,
        copy + steps * product,
    ]
    for stages, says in enumerate(pencil, 1):
        end, first = nb5._reckoned(stages, steps, copy, product)
        assert abs(says - end) < 0.05 * end
        assert abs(copy - first) < 0.05 * first


LOOP = """
def matmul(A, B, C):
    for k in range(STAGES - 1):
        block.load_async(a_s[k], A, (0, k))
        tk.commit_group()
    for k in range(steps):
        {before}
        block.load_async(a_s[k], A, (0, k + 2))
        tk.commit_group()
        {after}
        warp.mma_AB(acc, a, b)
"""


@pytest.mark.parametrize(
    ("before", "after", "left"),
    [
        ("pass", "tk.wait_group(STAGES - 1)", 2),
        ("pass", "tk.wait_group(2)", 2),
        ("tk.wait_group(STAGES - 2)", "pass", 2),
        ("pass", "wait_group(1)", 1),
        ("pass", "tk.wait_group(0)", 0),
        ("tk.wait_group(0)", "pass", 1),
        ("tk.wait_group(0)", "tk.wait_group(STAGES)", 3),
        ("pass", "tk.wait_group(NAME)", None),
        ("pass", "pass", None),
    ],
)
def test_how_many_copies_a_wait_leaves(before: str, after: str, left: int | None) -> None:
    facts = Facts(Counter(), LOOP.format(before=before, after=after))
    assert nb5._under_way(facts) == left
    assert nb5._overlaps(facts) == (left is None or left >= 2)


@pytest.mark.parametrize("book", BOOKS)
def test_a_lesson_leads_to_its_exercises(book: str) -> None:
    cells = json.loads((ROOT / "notebooks" / f"{book}.ipynb").read_text(encoding="utf-8"))["cells"]
    text = "".join("".join(c["source"]) for c in cells)
    linked = re.findall(r"\.\./exercises/(\w+\.ipynb)", text)
    assert linked == [ITEMS[n].file for n in BOOKS[book]]
    assert all((ROOT / "exercises" / f).exists() for f in linked)
    asked = set(re.findall(rf'tk\.predict\("N{book[1]}", (.*)\)', text))
    names = {n for a in asked for n in re.findall(r"(\w+)=None", a)}
    assert names == {q.name for q in LESSONS[f"N{book[1]}"].questions}
