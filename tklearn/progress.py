"""How far a long piece of work is, on one line that goes away when it is done.

Only where somebody looks: a terminal or a notebook. Nothing is shown in the first two seconds.
"""

from __future__ import annotations

import sys
import time

QUIET = 2.0  # seconds before anything is shown
EVERY = 0.5  # seconds between two lines


def watched() -> bool:
    """Whether standard error is a terminal or a notebook's cell."""
    return "ipykernel" in sys.modules or sys.stderr.isatty()


class Progress:
    """`step(n)` after each part of `total`; `done()` at the end, also after an error."""

    def __init__(self, what: str, total: int) -> None:
        self.what, self.total = what, total
        self.finished = 0
        self.start = time.monotonic()
        self.last = self.start + QUIET - EVERY
        self.shown = 0

    def step(self, n: int) -> None:
        self.finished += n
        now = time.monotonic()
        if now - self.last < EVERY or self.finished >= self.total or not watched():
            return
        self.last = now
        rest = (now - self.start) * (self.total - self.finished) / max(self.finished, 1)
        text = f"{self.what}: {self.finished} of {self.total}, about {rest:.0f} s left"
        sys.stderr.write("\r" + text.ljust(self.shown))
        sys.stderr.flush()
        self.shown = len(text)

    def done(self) -> None:
        if self.shown:
            sys.stderr.write("\r" + " " * self.shown + "\r")
            sys.stderr.flush()
