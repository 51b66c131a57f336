"""Exercises from solutions: an exercise is its solution without the fill-ins.

In solutions/*.ipynb a fill-in stands between `### BEGIN SOLUTION` and `### END SOLUTION`, and what
only a grader runs between `### BEGIN HIDDEN TESTS` and `### END HIDDEN TESTS` (nbgrader's words).
Both go, with their markers and the outputs; nothing is put in their place, so that solving only
adds lines. This file knows notebooks as JSON and no items.
"""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from typing import Any

REGIONS = (
    ("### BEGIN SOLUTION", "### END SOLUTION"),
    ("### BEGIN HIDDEN TESTS", "### END HIDDEN TESTS"),
)


class BadSolution(Exception):
    """A notebook from which no exercise can be made; the text says why."""


def stripped(text: str) -> str:
    """A cell's text without fill-ins and hidden tests. Errors: BadSolution for odd markers."""
    out: list[str] = []
    end = ""
    for line in text.split("\n"):
        word = line.strip()
        if word in [b for b, _ in REGIONS]:
            if end:
                raise BadSolution(f"{word} inside another region")
            end = dict(REGIONS)[word]
        elif word in [e for _, e in REGIONS]:
            if word != end:
                raise BadSolution(f"{word} without its beginning")
            end = ""
        elif not end:
            out.append(line)
    if end:
        raise BadSolution(f"{end} is missing")
    return "\n".join(out).rstrip("\n")


def exercise(solution: dict[str, Any]) -> dict[str, Any]:
    """The notebook of an exercise, from that of its solution."""
    book = copy.deepcopy(solution)
    for cell in book["cells"]:
        text = cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"])
        cell["source"] = stripped(text).splitlines(keepends=True)
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
    return book


def dumped(book: dict[str, Any]) -> str:
    """A notebook's text, always the same for the same notebook."""
    return json.dumps(book, indent=1, ensure_ascii=False) + "\n"


def original(name: str, root: Path) -> str | None:
    """The text of an exercise as it was handed out: kept in .tklearn/exercises/ of a bundle, or
    made from its solution; None where there is neither."""
    kept = root / ".tklearn" / "exercises" / name
    if kept.is_file():
        return kept.read_text(encoding="utf-8")
    solution = root / "solutions" / name
    if not solution.is_file():
        return None
    return dumped(exercise(json.loads(solution.read_text(encoding="utf-8"))))


def make_exercises(root: Path) -> list[str]:
    """Writes exercises/ from solutions/ below `root`; the names of those that changed."""
    changed = []
    for path in sorted((root / "solutions").glob("*.ipynb")):
        try:
            text = dumped(exercise(json.loads(path.read_text(encoding="utf-8"))))
        except (BadSolution, ValueError, KeyError) as e:
            raise BadSolution(f"{path.name}: {e}") from None
        target = root / "exercises" / path.name
        if not target.is_file() or target.read_text(encoding="utf-8") != text:
            write(target, text)
            changed.append(path.name)
    return changed


def write(path: Path, text: str) -> None:
    """A file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)
