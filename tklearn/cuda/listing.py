"""A kernel's Python beside its C++, line by line.

`str()` is plain text; in a notebook it is a table without scripts that takes its colours from the
page. This file knows source text and the line numbers of a Source, nothing else.
"""

from __future__ import annotations

import html
import linecache
import textwrap
from dataclasses import dataclass

from tklearn.cuda.emit import Source
from tklearn.lang import ir
from tklearn.lang.errors import Loc


@dataclass(frozen=True)
class Row:
    """One line of the listing: a Python line (0: none) with its text, and a line of C++."""

    line: int
    python: str
    cpp: str


class Listing:
    """What `kernel.show()` returns. `rows`: the paired lines."""

    def __init__(self, rows: list[Row], name: str, file: str) -> None:
        self.rows, self.name, self.file = rows, name, file

    def __str__(self) -> str:
        width = max((len(r.python) for r in self.rows), default=0)
        out = [f"{'':4}  {'Python':{width}} | CUDA C++"]
        for r in self.rows:
            number = str(r.line) if r.line else ""
            out.append(f"{number:>4}  {r.python:{width}} | {r.cpp}".rstrip())
        return "\n".join(out)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        cell = (
            "border:0;background:transparent;color:inherit;text-align:left;vertical-align:top;"
            "padding:0 1em 0 0;white-space:pre;font-family:monospace;font-size:13px;line-height:1.4"
        )
        rule = "border-left:1px solid rgba(128,128,128,.5);padding-left:1em"

        def row(tag: str, number: str, python: str, cpp: str) -> str:
            return (
                f"<tr style='background:transparent'>"
                f"<{tag} style='{cell};text-align:right;opacity:.6'>{number}</{tag}>"
                f"<{tag} style='{cell}'>{html.escape(python)}</{tag}>"
                f"<{tag} style='{cell};{rule}'>{html.escape(cpp) or '&nbsp;'}</{tag}></tr>"
            )

        lines = [row("th", "", "Python", "CUDA C++")]
        lines += [row("td", str(r.line or ""), r.python, r.cpp) for r in self.rows]
        table = "<table style='border-collapse:collapse;margin:0'>" + "".join(lines) + "</table>"
        return f"<div style='overflow-x:auto'>{table}</div>"


def show(kernel: ir.Kernel, source: Source) -> Listing:
    """Pair each C++ line with the Python line it comes from."""
    rows: list[Row] = []
    file, last, cpp_only = "", 0, True
    starts = {kernel.loc, *(f.loc for f in kernel.functions)}
    for i, (line, cpp) in enumerate(source.lines):
        loc = source.locs[i]
        if loc in starts and (i == 0 or source.locs[i - 1] != loc):
            assert loc is not None
            file, last, cpp_only = loc.file, _first_line(loc) - 1, False
        if line is None:
            upcoming = next((x for x in source.locs[i:] if x), None)
            end = upcoming.line if upcoming and upcoming.file == file else last
            if cpp.strip() == "} else {" and (found := _else_line(file, last, end)):
                rows += _skipped(file, last, found)
                rows.append(Row(found, _text(file, found), cpp))
                last = found
            else:
                rows.append(Row(0, "", cpp))
            cpp_only = cpp_only or cpp == "}"
            continue
        assert loc is not None
        if line == last and rows and rows[-1].cpp and not cpp_only:
            rows.append(Row(0, "", cpp))
            continue
        rows += _skipped(file, last, line)
        rows.append(Row(line, _text(loc.file, line), cpp))
        last = line
    return Listing(_dedented(rows), kernel.name, kernel.file)


def _text(file: str, line: int) -> str:
    return linecache.getline(file, line).rstrip("\n").expandtabs(4)


def _first_line(loc: Loc) -> int:
    """The line of the first decorator above a def."""
    line = loc.line
    while line > 1 and _text(loc.file, line - 1).lstrip().startswith("@"):
        line -= 1
    return line


def _skipped(file: str, last: int, line: int) -> list[Row]:
    """Python lines without C++ of their own: decorators, comments, the rest of a long statement."""
    return [Row(n, t, "") for n in range(last + 1, line) if (t := _text(file, n)).strip()]


def _else_line(file: str, last: int, end: int) -> int:
    return next(
        (n for n in range(last + 1, end + 1) if _text(file, n).lstrip().startswith("else")), 0
    )


def _dedented(rows: list[Row]) -> list[Row]:
    """A kernel inside a function or class is shown from its own margin."""
    texts = textwrap.dedent("\n".join(r.python for r in rows)).split("\n")
    return [Row(r.line, t, r.cpp) for r, t in zip(rows, texts, strict=True)]
