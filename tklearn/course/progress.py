"""What has been solved so far, as a table in text or in a page."""

from __future__ import annotations

import html
from dataclasses import dataclass

from tklearn.course import attempts
from tklearn.course.items import ITEMS

HEAD = ("exercise", "", "state", "points", "tries", "hints")


def _sum(kept: dict[str, attempts.Record], optional: bool) -> str:
    """What of the graded exercises has been passed, of the core path or of those if ahead."""
    items = [it for it in ITEMS.values() if it.points and it.optional == optional]
    of = [kept.get(it.id) or attempts.Record(it.id) for it in items]
    passed, points = sum(r.passed for r in of), sum(it.points for it in items)
    return f"{passed} of {len(items)} passed, {sum(r.score for r in of):g} of {points} points"


@dataclass(frozen=True, repr=False)
class Progress:
    """One row for each exercise; prints as text and as HTML."""

    rows: tuple[tuple[str, ...], ...]
    said: str

    @staticmethod
    def now() -> Progress:
        """From the journal of this folder (attempts.py)."""
        kept = attempts.records()
        rows = []
        for it in ITEMS.values():
            r = kept.get(it.id) or attempts.Record(it.id)
            state = "passed" if r.passed else "tried" if r.attempts else "-"
            state = "if ahead" if it.optional and state == "-" else state
            points = f"{r.score:g} of {it.points}" if it.points else "-"
            rows.append((it.id, it.title, state, points, str(r.attempts), str(r.hints)))
        core, more = (_sum(kept, optional) for optional in (False, True))
        said = f"core path: {core}; if ahead: {more} ({attempts.folder()})"
        return Progress(tuple(rows), said)

    def __str__(self) -> str:
        table = (HEAD, *self.rows)
        widths = [max(len(r[i]) for r in table) for i in range(len(HEAD))]
        lines = ["  ".join(c.ljust(w) for c, w in zip(r, widths)).rstrip() for r in table]
        return "\n".join([*lines, self.said])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        def cells(row: tuple[str, ...], tag: str) -> str:
            inner = "".join(f'<{tag} style="text-align:left">{html.escape(c)}</{tag}>' for c in row)
            return f"<tr>{inner}</tr>"

        body = cells(HEAD, "th") + "".join(cells(r, "td") for r in self.rows)
        return f"<table>{body}</table><p>{html.escape(self.said)}</p>"
