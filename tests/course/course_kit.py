"""What the course's tests share: answers in files, notebooks run cell by cell, verdicts."""

from __future__ import annotations

import json
import linecache
import re
from pathlib import Path
from typing import Any

from tklearn.course import engine, extract
from tklearn.course.check import answer_in
from tklearn.course.item import Item
from tklearn.course.verdict import Verdict

ROOT = Path(__file__).parents[2]
ANSWERS = Path(__file__).parent / "answers"


def static(item: Item, path: Path) -> extract.Answer:
    """The answer that a file holds, read without running it."""
    return answer_in(item, extract.from_file(path))


def judged(item: Item, answer: extract.Answer, seed: int = 0, hidden: bool = False) -> Verdict:
    """The verdict, in this process."""
    if answer.problem:
        return Verdict(item.id, points=item.points, message=answer.problem)
    return engine.examine(item, answer, seed, hidden)


def answers(item: Item, kind: str) -> list[Path]:
    """The stored answers of a kind, "right" or "wrong"."""
    return sorted((ANSWERS / item.id).glob(f"{kind}_*.py"))


def promised(path: Path, what: str) -> str:
    """What the head of a stored answer says about the verdict: `# words: ...`."""
    found = re.search(rf"^# {what}: (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found else ""


def code(path: Path) -> list[str]:
    """The code cells of a notebook."""
    book = json.loads(path.read_text(encoding="utf-8"))
    return ["".join(c["source"]) for c in book["cells"] if c["cell_type"] == "code"]


def run(cells: list[str], name: str) -> dict[str, Any]:
    """Runs cells one after the other in one namespace, as a page does; the namespace."""
    space: dict[str, Any] = {"__name__": "__main__"}
    for i, text in enumerate(cells):
        run_cell(text, f"{name}-{i}", space)
    return space


def run_cell(text: str, name: str, space: dict[str, Any]) -> None:
    """Runs one cell in a namespace; its lines can be read, as kernels in it need."""
    file = f"<ipython-input-{name}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    exec(compile(text, file, "exec"), space)
