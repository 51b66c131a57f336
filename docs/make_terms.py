"""Writes docs/terms.md: every term of the course, where it is defined, from the notebooks' lists.

    python docs/make_terms.py

A notebook lists its terms in its metadata, "tklearn": {"terms": {"warp": "32 lanes ..."}}, and
defines each of them in its text, where it stands in bold for the first time. This reads both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
OUT = ROOT / "docs" / "terms.md"
HEAD = """# Index of terms

Each term of the course, and the place in the notebooks where it is explained. Made by
`python docs/make_terms.py` from the lists in the notebooks.

| term | what it is | explained in |
| --- | --- | --- |
"""


@dataclass(frozen=True)
class Text:
    """A cell of text. notebook: its file's stem; cell: its number; heading: the last one above."""

    notebook: str
    cell: int
    heading: str
    text: str


@dataclass(frozen=True)
class Term:
    """A term as its notebook lists it. where: the cell that has it in bold, None if none has."""

    name: str
    says: str
    notebook: str
    where: Text | None


def _read(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


def lessons(root: Path = ROOT) -> list[Path]:
    """The notebooks of the course, in order."""
    return sorted((root / "notebooks").glob("[0-9][0-9]_*.ipynb"))


def texts(path: Path) -> Iterator[Text]:
    """The cells of text of a notebook, cut at their headings."""
    heading = ""
    for n, cell in enumerate(_read(path)["cells"]):
        if cell["cell_type"] != "markdown":
            continue
        for part in re.split(r"^(?=#{1,4} )", "".join(cell["source"]), flags=re.MULTILINE):
            first = part.split("\n", 1)[0]
            if first.startswith("#"):
                heading = first.lstrip("# ")
            if part.strip():
                yield Text(path.stem, n, heading, part)


def pattern(name: str) -> re.Pattern[str]:
    """Finds a term in a text, in the plural, too; "query, key, value" is found by its words."""
    word = r"[\s,]+".join(re.escape(w) + r"(?:e?s)?" for w in re.split(r",?\s+", name))
    return re.compile(rf"(?<![\w.]){word}(?![\w(])", re.IGNORECASE)


def bold(text: str) -> list[str]:
    """What stands in bold."""
    return re.findall(r"\*\*(.+?)\*\*", text, re.DOTALL)


def defines(text: Text, name: str) -> bool:
    """Whether a cell has the term, or the words of "query, key, value", in bold."""
    strong = bold(text.text)
    parts = name.split(", ")
    return all(any(pattern(p).search(b) for b in strong) for p in (parts or [name])) or any(
        pattern(name).search(b) for b in strong
    )


def terms(root: Path = ROOT) -> list[Term]:
    """Every term once, from the first notebook that lists it."""
    found: dict[str, Term] = {}
    for path in lessons(root):
        cells = list(texts(path))
        listed = _read(path)["metadata"].get("tklearn", {}).get("terms", {})
        for name, says in listed.items():
            if name not in found:
                where = next((c for c in cells if defines(c, name)), None)
                found[name] = Term(name, says, path.stem, where)
    return sorted(found.values(), key=lambda t: t.name.lower())


def page(root: Path = ROOT) -> str:
    """The text of docs/terms.md."""
    rows = []
    for t in terms(root):
        number = t.notebook.split("_")[0]
        heading = t.where.heading if t.where else ""
        says = t.says.replace("|", "\\|")
        link = f"[{number}, {heading}](../notebooks/{t.notebook}.ipynb)"
        rows.append(f"| {t.name} | {says} | {link} |")
    return HEAD + "\n".join(rows) + "\n"


if __name__ == "__main__":
    OUT.write_text(page(), encoding="utf-8")
    print(OUT.relative_to(ROOT), len(terms()), "terms")
