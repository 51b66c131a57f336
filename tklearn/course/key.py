"""`tklearn key`: the answer key, made from the solutions and the exercises' own checks.

Nothing of it is written by hand or kept: answers come from the fill-ins of solutions/, answers to
predictions from the functions that compute them, points and what a typical mistake is told from the
items. So it cannot be out of date. It is Markdown, for the instructor.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tklearn.course import engine
from tklearn.course.item import Item, KernelItem, OneOf, Predict
from tklearn.course.items import ITEMS, LESSONS
from tklearn.course.release import BadSolution

INTRO = """Made by `tklearn key` from the solutions and the checks themselves.

The numbers of some predictions differ from learner to learner: these are for the learner number
{seed} (`--seed`; 0 where no class is held). Below each question stand the wrong answers that are
recognised, and what is said to them; any other wrong answer is only told that it is wrong."""
BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"


def key(root: Path, seed: int = 0) -> str:
    """The key for the learner with this seed. Errors: BadSolution where solutions are missing."""
    parts = ["# Answer key", INTRO.format(seed=seed)]
    lesson = ""
    for item in ITEMS.values():
        if item.notebook != lesson:
            lesson = item.notebook
            parts.append(f"## {lesson}")
            parts += (_lesson(p) for p in LESSONS.values() if p.notebook == lesson)
        parts.append("\n\n".join(_item(item, root, seed)))
    return "\n\n".join(parts) + "\n"


def _item(item: Item, root: Path, seed: int) -> Iterator[str]:
    ahead = ", if ahead" if item.optional else ""
    yield f"### {item.id}: {item.title}"
    yield f"{item.minutes:g} minutes{ahead}."
    if isinstance(item, OneOf):
        yield "\n".join(f"* {c.kernels[0]}: {c.scale()}" for c in item.choices)
    else:
        yield item.scale()
    if isinstance(item, Predict):
        yield _truths(item, seed)
    else:
        yield "What is filled in:"
        for text in fill_ins(root / "solutions" / item.file):
            yield f"```python\n{text}\n```"
    for one in item.choices if isinstance(item, OneOf) else (item,):
        if isinstance(one, KernelItem):
            name = f" ({one.kernels[0]})" if isinstance(item, OneOf) else ""
            yield f"What a typical mistake is told{name}:"
            yield "\n".join(f"* {' '.join(w.says.split())}" for w in one.wrong)
    yield "Hints:"
    yield "\n".join(f"{n}. {' '.join(h.split())}" for n, h in enumerate(item.hints, 1))


def _lesson(item: Predict) -> str:
    return f"### In the lesson: {item.title} ({item.id})\n\n{_truths(item, 0)}"


def _truths(item: Predict, seed: int) -> str:
    params = engine.parameters(item, seed)
    lines = [item.intro.format(**params), ""] if item.intro else []
    for q in item.questions:
        truth = q.truth(**params)
        text, *more = q.text.format(**params).split("\n")
        answer = f"**Answer: {_accepted(truth, q.within)}.** {q.why}".rstrip()
        if more:  # a question with lines of code
            lines += [f"* **{q.name}**: {answer}", "  ```text"]
            lines += [*(f"  {x}".rstrip() for x in (text, *more)), "  ```"]
        else:
            lines.append(f"* **{q.name}**: {text} {answer}")
        told: dict[str, str] = {}
        for says, leads in q.wrong.items():
            wrong = _said(leads(**params))
            if wrong != _said(truth):
                told.setdefault(wrong, " ".join(says.split()))
        lines += [f"  * to {wrong}: {says}" for wrong, says in told.items()]
    return "\n".join(lines)


def _said(x: Any) -> str:
    return f"{x:.6g}" if isinstance(x, float) else str(x)


def _accepted(truth: Any, within: float) -> str:
    """The right answer, and where others count as right, which."""
    if not within or not truth:
        return _said(truth)
    low, high = sorted((truth * (1 - within), truth * (1 + within)))
    about = "" if float(f"{truth:.2g}") == truth else "about "
    shown = round(truth) if abs(truth) >= 100 else _said(truth)
    return f"{about}{shown} (accepted: {low:.4g} to {high:.4g})"


def fill_ins(path: Path) -> list[str]:
    """What a solution adds to its exercise, in the order of the notebook."""
    if not path.is_file():
        raise BadSolution(f"{path.name}: the key is made from solutions/, which is not here")
    book = json.loads(path.read_text(encoding="utf-8"))
    found: list[str] = []
    for cell in book["cells"]:
        lines: list[str] | None = None
        for line in "".join(cell["source"]).split("\n") if cell["cell_type"] == "code" else ():
            if line.strip() == BEGIN:
                lines = []
            elif line.strip() == END and lines is not None:
                found.append("\n".join(lines))
                lines = None
            elif lines is not None:
                lines.append(line)
    return found
