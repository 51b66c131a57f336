"""What a check answers: passed or not yet, and what to look at. Shows as text and in a page."""

from __future__ import annotations

import html
from dataclasses import asdict, dataclass
from typing import Any

NO_TRY = "this is not counted as a try"


@dataclass(frozen=True, repr=False)
class Verdict:
    """The answer to one attempt.

    Attributes:
        item: its id. passed. score: 0 to points.
        message: why not, or what was checked. code, line: of an error, and where in the cell.
        index: of the first wrong element. png: a picture in base64, alt: the same in words.
        tried: False where there was nothing to judge yet, which is not counted.
        notes: what else the learner should know, of where and what was checked.
    """

    item: str
    passed: bool = False
    score: float = 0.0
    points: int = 0
    message: str = ""
    code: str = ""
    line: int = 0
    index: tuple[int, ...] | None = None
    png: str = ""
    alt: str = ""
    tried: bool = True
    notes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.passed

    def head(self) -> str:
        """The first line."""
        state = "passed" if self.passed else "not yet"
        if not self.passed and self.item.startswith("N"):
            state = "not all as predicted (no points here: read on)"
        points = f", {self.score:g} of {self.points} points" if self.score else ""
        return f"{self.item}: {state}{points}"

    def body(self) -> str:
        """The other lines."""
        notes = self.notes if self.tried else (*self.notes, NO_TRY)
        return "\n".join([self.message, *(f"({n})" for n in notes)])

    def __str__(self) -> str:
        return f"{self.head()}\n{self.body()}" + (f"\n[{self.alt}]" if self.alt else "")

    __repr__ = __str__

    def _repr_html_(self) -> str:
        mark = "&#10003;" if self.passed else "&#9998;"
        colour = "#009E73" if self.passed else "#D55E00"
        image = ""
        if self.png:
            alt = html.escape(self.alt, quote=True)
            source = f"data:image/png;base64,{self.png}"
            image = f'<img alt="{alt}" style="max-width:100%" src="{source}">'
        wrap = "white-space:pre-wrap;word-break:normal;overflow-wrap:anywhere"
        more = f'<p>More: <code>tk.explain("{html.escape(self.code)}")</code></p>'
        return (
            f'<div style="border-left:4px solid {colour};padding-left:8px">'
            f"<b>{mark} {html.escape(self.head())}</b>"
            f'<pre style="{wrap}">{html.escape(self.body())}</pre>'
            f"{more if self.code else ''}{image}</div>"
        )

    def json(self) -> dict[str, Any]:
        """The same as a dictionary."""
        return asdict(self)

    @staticmethod
    def of(data: dict[str, Any]) -> Verdict:
        """What `json` made."""
        index = data["index"]
        index = None if index is None else tuple(index)
        return Verdict(**{**data, "index": index, "notes": tuple(data["notes"])})
