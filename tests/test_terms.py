"""The index of terms: made from the notebooks, and each term explained where it first appears."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "docs"))
import make_terms  # noqa: E402

TERMS = make_terms.terms(ROOT)
# Words of every day, too: that one stands in an earlier sentence shows nothing.
EVERYDAY = {
    "active", "asynchronous", "attention", "block", "broadcast", "consumers", "grid", "group",
    "intensity", "kernel", "layout", "line", "mask", "order", "padding", "peak", "phase",
    "producer", "query, key, value", "reference", "register", "request", "ridge", "schedule",
    "score", "specification", "stage", "tile", "transaction", "word",
}  # fmt: skip


def spoken(text: str) -> str:
    """A text without code, headings, links' texts and quoted titles."""
    text = re.sub(r"```.*?```|`[^`]*`", " ", text, flags=re.DOTALL)
    text = re.sub(r"^#.*$", " ", text, flags=re.MULTILINE)
    return re.sub(r"\[[^\]]*\]\([^)]*\)", " ", text)


def stressed(text: str, name: str) -> bool:
    """Whether a term stands in italics or in bold: it is said there what it is, in passing."""
    return any(
        make_terms.pattern(name).search(m) for m in re.findall(r"\*{1,2}([^*]+)\*{1,2}", text)
    )


def first(name: str) -> make_terms.Text | None:
    """The first cell of all notebooks that uses a term; what a notebook promises at its head, and
    where it says what comes next, does not count."""
    found = make_terms.pattern(name)
    for path in make_terms.lessons(ROOT):
        for n, cell in enumerate(make_terms.texts(path)):
            if n == 0 or cell.heading == "What to keep":
                continue
            if found.search(spoken(cell.text)):
                return cell
    return None


def test_the_page_is_the_notebooks() -> None:
    assert (ROOT / "docs" / "terms.md").read_text(encoding="utf-8") == make_terms.page(ROOT), (
        "run: python docs/make_terms.py"
    )


def test_there_are_terms_in_every_lesson() -> None:
    assert {t.notebook for t in TERMS} == {p.stem for p in make_terms.lessons(ROOT)}
    assert all(5 < len(t.says) < 200 for t in TERMS)


@pytest.mark.parametrize("term", TERMS, ids=lambda t: t.name)
def test_a_term_is_explained_where_it_first_appears(term: make_terms.Term) -> None:
    assert term.where is not None, f"{term.notebook} lists it and has it nowhere in bold"
    if term.name in EVERYDAY:
        return
    where = first(term.name)
    assert where is not None
    if stressed(where.text, term.name):
        return
    place = f"{where.notebook}, cell {where.cell}: {where.text[:200]}"
    assert (where.notebook, where.cell) == (term.where.notebook, term.where.cell), place
