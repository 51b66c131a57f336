"""Hidden tests are never printed: no shape, seed, value or index of one reaches a learner.

Each stored wrong answer of each kernel is judged on the hidden tests alone, so that whatever is
wrong with it shows there. From what its learner gets, the parts that do not depend on the test are
taken away: the misconceptions' texts, codes, the learner's own line. No digit may be left.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from course_kit import answers, static

from tklearn.course import engine, feedback, marking, report
from tklearn.course.item import Item, KernelItem, OneOf
from tklearn.course.items import ITEMS

SEED = 918273
STORED = [
    (i, p)
    for i in ITEMS.values()
    if isinstance(i, KernelItem | OneOf)
    for p in answers(i, "wrong")
    if not p.stem.startswith(("wrong_endless", "wrong_huge"))
]


@pytest.fixture(scope="module")
def grader() -> marking.Grader:
    return marking.Grader(marking.Settings(seed=SEED))


def bare(item: KernelItem, message: str, own: list[str]) -> str:
    """A message without what is the same at all sizes."""
    fixed = [w.says for w in item.wrong] + [r.says for r in item.rules] + [engine.UNSEEN]
    fixed += [x.not_here for x in getattr(item, "lines", ()) if x.not_here]
    for text in sorted((t for t in (*fixed, *own) if t.strip()), key=len, reverse=True):
        message = message.replace(text, "")
    return re.sub(r"^TK\d+:|, at line \d+", "", message, flags=re.MULTILINE)


@pytest.mark.parametrize(("item", "path"), STORED, ids=lambda x: getattr(x, "stem", None) or x.id)
def test_no_number_of_a_hidden_test_is_told(
    item: Item, path: Path, grader: marking.Grader, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = marking.chosen(item, static(item, path))
    answer = engine.composed(one, static(item, path))
    if answer.problem:
        pytest.skip("nothing to run")
    cases = engine.plan(one, SEED, hidden=True)[len(one.sizes) :]
    assert cases
    assert not any(c.seen for c in cases)
    monkeypatch.setattr(grader, "_plan", lambda item, hidden: (cases, []))
    outcomes = engine.execute(answer, cases, one.runs, one.steps)
    got = {"outcomes": [o.json() for o in outcomes]}
    verdict = replace(grader._judged(one, answer, got, True), item=item.id)
    assert (verdict.png, verdict.alt, verdict.index) == ("", "", None)
    own = [line.strip() for p in answer.pieces.values() for line in p.text.split("\n")]
    if not verdict.passed:
        assert not re.search(r"\d", bare(one, verdict.message, own)), verdict.message
        assert verdict.message
    kept = {
        "passed": verdict.passed, "score": verdict.score, "points": item.points, "done": True,
        "message": verdict.message, "code": verdict.code, "optional": False, "attempts": 1,
        "hints": 0, "png": verdict.png, "alt": verdict.alt,
    }  # fmt: skip
    result = {**marking._nothing(b"", "x.zip"), "learner": "ann", "items": {item.id: kept}}
    texts = [feedback.page(result), feedback.grades_csv([result]), json.dumps(result)]
    texts.append(report.wrong(verdict.message))
    for text in texts:
        assert str(SEED) not in text
        for case in cases:
            assert case.says not in text
