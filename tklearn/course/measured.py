"""Exercises beside the hardware: predicted | simulated | measured for a learner's own kernel.

Each exercise with a kernel has one launch that is measured: of an ordinary size, its inputs the
same everywhere, so that a recording made on a GPU fits it. `tklearn record
benchmarks/exercises.ipynb` makes those of every solution and its likeliest variants; a kernel
that differs from all of them has no recording, and the table says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tklearn.comparison import Comparison, compare
from tklearn.course import engine, extract
from tklearn.course.item import Case, Item, KernelItem, OneOf, Order, Out
from tklearn.course.items import ITEMS
from tklearn.kernel import Kernel
from tklearn.lang import ir
from tklearn.lang.errors import TkError

SIZES: dict[str, Any] = {
    "M1": 1 << 18,
    "F1": (128, 128, 128),
    "F2": 1 << 14,
    "M2": (512, 512),
    "K1": (512, 512),
    "S1": (256, 256, 64),
    "K2": (256, 256, 64),
    "K3": (256, 256, 512),
    "F3": (256, 256, 512),
    "S2": (256, 256, "rising"),
    "F4": (256, 256, "rising"),
    "K4": (256, 256, "rising"),
    "K4b": (256, "rising"),
    "rmsnorm": (1024, 256),
    "swiglu": 1 << 18,
    "softmax_t": (1024, 256),
    "window_scores": 512,
}
"""Exercise, or kernel of the capstone -> the size of its measured launch; others are measured at
their first public size."""

VARIANTS = 3
"""How many variants of a solution are recorded."""

UNFIT = re.compile("endless|huge|hard_coded|constant|dropped|always_equal")
"""Stored answers that are attempts at cheating: nobody's likely variant."""


def launch(item: KernelItem) -> Case:
    """The launch of an exercise that is measured."""
    known = SIZES.get(item.id, SIZES.get(item.kernels[0]) if item.id == "C1" else None)
    return item.case(np.random.default_rng([0]), known or item.sizes[0])


def table(item: Item, answer: extract.Answer, **options: Any) -> Comparison:
    """The comparison of an answer's kernel on the measured launch.

    Errors: TkError for a kernel that the simulator stops; Refused for an answer without one.
    """
    kernel, grid, args, consts = _launched(item, answer)
    return compare(kernel, grid, args, **consts, **options)


def _launched(
    item: Item, answer: extract.Answer
) -> tuple[Kernel, Any, tuple[Any, ...], dict[str, Any]]:
    one = engine.part(item, answer)
    if not isinstance(one, KernelItem):
        raise extract.Refused(f"{item.id} has no kernel to measure")
    case = launch(one)
    made = extract.rebuild(engine.composed(one, answer))
    args = tuple(
        (np.zeros(a.shape, a.dtype) if a.start is None else a.start.copy())
        if isinstance(a, Out)
        else a
        for a in case.args.values()
    )
    return made[case.kernel or one.kernels[0]], case.grid, args, case.consts


def recorded(root: Path) -> Iterator[tuple[str, str, extract.Answer]]:
    """(item, file, answer) of what is recorded: each solution, and its likeliest variants.

    The variants, of exercises to make or to change, are the exercise as it is given, the stored
    right answers and the stored wrong ones, in this order, those which run without a fault and
    differ from one another.
    """
    for item in ITEMS.values():
        for one in item.choices if isinstance(item, OneOf) else (item,):
            if isinstance(one, KernelItem):
                yield from _variants(one, item, root)


def _variants(one: KernelItem, item: Item, root: Path) -> Iterator[tuple[str, str, extract.Answer]]:
    number = VARIANTS if item.id[0] in "MKC" else 0
    stored = root / "tests" / "course" / "answers" / item.id
    files = [root / "solutions" / item.file, root / "exercises" / item.file]
    files += [*sorted(stored.glob("right_*.py")), *sorted(stored.glob("wrong_*.py"))]
    seen: set[str] = set()
    for path in files:
        if len(seen) > number:
            return
        if not path.is_file() or UNFIT.search(path.stem):
            continue
        answer = _answer(one, item, path)
        if answer is None:
            continue
        digest = ir.digest(specialised(item, answer))
        if digest not in seen:
            seen.add(digest)
            yield item.id, path.name, answer


def _answer(one: KernelItem, item: Item, path: Path) -> extract.Answer | None:
    """What a file says, if its kernel runs without a fault."""
    book = extract.from_file(path)
    names = () if isinstance(one, Order) else one.kernels
    answer = book.answer(item.id, names)
    try:
        ready = engine.composed(one, answer)
        if ready.problem or engine.part(item, answer) is not one:
            return None
        cases = engine.plan(one)[:2]
        outcomes = engine.execute(ready, cases, one.runs, one.steps)
        if any(o.error is not None for o in outcomes):
            return None
        specialised(item, answer)
    except (extract.Refused, TkError):
        return None
    return answer


def specialised(item: Item, answer: extract.Answer) -> ir.Kernel:
    """The kernel of an answer for the measured launch."""
    kernel, _, args, consts = _launched(item, answer)
    return kernel.ir(*args, **consts)


def every(root: Path) -> None:
    """Compares everything that is recorded, with a line for each. What the simulator stops at the
    larger size is left out."""
    for item, file, answer in recorded(root):
        try:
            made = table(ITEMS[item], answer)
        except TkError as e:
            print(f"{item} {file}: not measured: {e.code}")
            continue
        print(f"{item} {file}: {made.kernel}")
