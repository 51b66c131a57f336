"""tk.explain("TK210"): a page for each error code, in the terminal and in a notebook.

Each page is a file of this folder: what the error means, a program that gives it, its message, why
it is so on the hardware, what to do. docs/errors/ holds the same pages for reading on the web
(`tklearn explain --docs FOLDER` writes them); a test runs every program.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tklearn.lang.errors import CODES, TkError

FOLDER = Path(__file__).parent
MARK = "# <- here"
"""Stands in a page's program at the line that the message names."""

GROUPS = {
    "TK10": "The source text",
    "TK11": "Names",
    "TK12": "Names",
    "TK20": "Types and shapes",
    "TK21": "Types and shapes",
    "TK30": "Who reaches an operation",
    "TK40": "Launching",
    "TK41": "Launching",
    "TK42": "The GPU",
    "TK50": "What the simulator catches while a kernel runs",
    "TK51": "What the simulator catches while a kernel runs",
    "TK52": "Asynchronous copies and products",
    "TK60": "Figures",
}


@dataclass(frozen=True, repr=False)
class Page:
    """What is to be said about an error: `code`, and `text` in Markdown."""

    code: str
    text: str

    def program(self) -> str:
        """The example, to be pasted into a cell or a file."""
        return _fenced(self.text, "python")

    def message(self) -> str:
        """What the example's error says."""
        return _fenced(self.text, "text")

    def __str__(self) -> str:
        plain = re.sub(r"^```\w*\n", "", self.text, flags=re.M)
        return re.sub(r"^#+ ", "", plain, flags=re.M).rstrip()

    __repr__ = __str__

    def _repr_markdown_(self) -> str:
        return re.sub(r"^# ", "### ", re.sub(r"^## ", "#### ", self.text, flags=re.M), flags=re.M)


@dataclass(frozen=True, repr=False)
class Index:
    """All codes with their meanings."""

    def __str__(self) -> str:
        lines: list[str] = []
        group = ""
        for code, title in CODES.items():
            if GROUPS[code[:4]] != group:
                group = GROUPS[code[:4]]
                lines += ["", group] if lines else [group]
            lines.append(f"  {code}  {title}")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_markdown_(self) -> str:
        return _table(lambda code: f"`{code}`")


def explain(code: str | int | TkError | None = None) -> Page | Index:
    """The page of an error code; without a code, the list of all.

    Args: code: "TK210", 210, or an error that was caught. Errors: TkError for no such code, with
    the nearest ones.
    """
    if code is None:
        return Index()
    name = code.code if isinstance(code, TkError) else str(code).strip().upper().rstrip(":")
    name = name if name.startswith("TK") else f"TK{name}"
    if name not in CODES:
        raise TkError("TK110", f"no error has the code {str(code)!r}", hint=_near(name))
    return Page(name, (FOLDER / f"{name}.md").read_text(encoding="utf-8"))


def _near(name: str) -> str:
    """The codes that may have been meant."""
    number = re.fullmatch(r"TK(\d{3})\d*", name)
    near = [c for c in CODES if c.startswith(name)][:3] if len(name) > 3 else []
    if number and not near:
        near = sorted(CODES, key=lambda c: abs(int(c[2:]) - int(number[1])))[:3]
    near = near or difflib.get_close_matches(name, CODES, 3, 0.7)
    if not near:
        return "tk.explain() lists all codes"
    return "did you mean " + ", or ".join(f"{c} ({CODES[c]})" for c in sorted(near)) + "?"


def _fenced(text: str, kind: str) -> str:
    found = re.search(rf"^```{kind}\n(.*?)^```$", text, re.M | re.S)
    assert found is not None, kind
    return found[1]


def _table(link: Any) -> str:
    """All codes as Markdown tables, one a group."""
    out: list[str] = []
    group = ""
    for code, title in CODES.items():
        if GROUPS[code[:4]] != group:
            group = GROUPS[code[:4]]
            out += ["", f"## {group}", "", "| code | meaning |", "| --- | --- |"]
        out.append(f"| {link(code)} | {title} |")
    return "\n".join(out).lstrip("\n")


# -------------------------------------------------------------------------------------------- docs
def docs() -> dict[str, str]:
    """The files of docs/errors/: name -> text."""
    head = (
        "# Error codes\n\nEach error of tklearn has a code and a page: what it means, a program "
        "that gives\nit, why it is so on the hardware, what to do. In a notebook "
        '`tk.explain("TK210")` shows it,\nin a terminal `tklearn explain TK210`.\n\n'
    )
    files = {"README.md": head + _table(lambda code: f"[{code}]({code}.md)") + "\n"}
    for code in CODES:
        page = explain(code)
        assert isinstance(page, Page)
        text = re.sub(
            r"^See also .*$",
            lambda m: re.sub(r"TK\d{3}", lambda c: f"[{c[0]}]({c[0]}.md)", m[0]),
            page.text,
            flags=re.M,
        )
        files[f"{code}.md"] = text + "\n[All error codes](README.md)\n"
    return files


def write_docs(folder: Path) -> None:
    """Writes the files of docs/errors/."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in docs().items():
        (folder / name).write_text(text, encoding="utf-8")
