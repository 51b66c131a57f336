"""Mutants of the solutions: each is refused, or differs in nothing (mutants.py)."""

from __future__ import annotations

import pytest
from course_kit import ROOT, static
from mutants import PER_ITEM, SAME, difference, mutants, verdict_of

from tklearn.course.item import KernelItem, OneOf
from tklearn.course.items import ITEMS

KERNELS = [
    k
    for i in ITEMS.values()
    for k in (i.choices if isinstance(i, OneOf) else (i,))
    if isinstance(k, KernelItem)
]


@pytest.mark.parametrize("item", KERNELS, ids=lambda i: f"{i.id}-{i.kernels[0]}")
def test_mutants_are_refused(item: KernelItem) -> None:
    answer = static(item, ROOT / "solutions" / item.file)
    assert verdict_of(item, answer), "the solution itself"
    made = mutants(item, answer)
    assert len(made) >= min(10, PER_ITEM)
    known = dict(SAME.get(item.id, {}))
    survivors = []
    for what, mutant in made:
        verdict = verdict_of(item, mutant)
        if verdict.passed:
            why = known.pop(what, "")
            moved = difference(item, answer, mutant)
            if moved and not why:
                survivors.append(f"{what}: passes, though it differs: {moved}")
    assert not survivors, "\n".join(survivors)
    assert not known, "no survivors any more"
