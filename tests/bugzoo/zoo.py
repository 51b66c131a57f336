"""What a planted fault is, and where the places are that its report must name.

One function makes both kernels: `make(good=False)` the faulty one, `make(good=True)` its twin,
which differs by what stands under `if good` or in `... if good else ...`. Compile-time conditions
leave no trace in the kernel. Comments in the source mark the lines of the fault:

* `# <- fault`: the report stands here, or names this line;
* `# <- other`: the report stands here or names it, too. Of several such lines one is enough.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import tklearn as tk
from tklearn.lang.errors import TkError
from tklearn.numerics import STORAGE

BF16 = STORAGE["bf16"]


@dataclass(frozen=True)
class Fault:
    """A planted fault.

    kind: its number in FACTS.md 10. codes: the report must have one of them; several where the
    order in which warps come decides which of two mistakes is met first. error: its class. hint: a
    part of what it must advise, or several, with | between, one of which it must advise. args:
    makes the arguments; from them `want` computes what the twin leaves in the last one.
    """

    kind: int
    name: str
    make: Callable[[bool], Any]
    codes: tuple[str, ...]
    hint: str
    args: Callable[[], tuple]
    want: Callable[..., Any] | None
    grid: Any
    error: type[TkError]
    twin_args: Callable[[], tuple]
    places: dict[str, tuple[int, ...]]
    options: dict[str, Any]

    def launch(self, good: bool, args: tuple, **options: Any) -> Any:
        """Run one of the two on the simulator."""
        return self.make(good).sim[self.grid](*args, **self.options, **options)


ZOO: dict[str, Fault] = {}


def fault(
    kind: int,
    codes: str,
    *,
    args: Callable[[], tuple],
    hint: str = "",
    want: Callable[..., Any] | None = None,
    grid: Any = 1,
    error: type[TkError] = tk.KernelFault,
    twin_args: Callable[[], tuple] | None = None,
    **options: Any,
) -> Callable:
    """Enter the two kernels that the decorated function makes into the zoo."""

    def enter(make: Callable[[bool], Any]) -> Callable[[bool], Any]:
        name = make.__name__
        assert name not in ZOO, name
        made: dict[bool, Any] = {}

        def once(good: bool) -> Any:
            if good not in made:
                made[good] = make(good)
            return made[good]

        ZOO[name] = Fault(
            kind, name, once, tuple(codes.split()), hint, args, want, grid, error,
            twin_args or args, _places(make), options,
        )  # fmt: skip
        return make

    return enter


def _places(make: Callable) -> dict[str, tuple[int, ...]]:
    lines, first = inspect.getsourcelines(make)
    return {
        mark: tuple(first + k for k, line in enumerate(lines) if f"# <- {mark}" in line)
        for mark in ("fault", "other")
    }


def lines_of(e: TkError) -> set[int]:
    """The line at which a report stands, and those that it names."""
    named: set[int] = {e.loc.line} if e.loc else set()
    for found in re.findall(r"\blines? (\d+)(?: and (\d+))?", e.message):
        named |= {int(x) for x in found if x}
    return named


def misplaced(f: Fault, e: TkError) -> str:
    """What is wrong with the lines of a report; "" if nothing."""
    marked, named = f.places, lines_of(e)
    every = {x for places in marked.values() for x in places}
    if e.loc is None or e.loc.line not in every:
        return f"stands on line {e.loc and e.loc.line}, not on one of {sorted(every)}"
    for mark, places in marked.items():
        if places and not named & set(places):
            return f"names no line marked {mark}: {sorted(named)} of {places}"
    return ""


# ------------------------------------------------------------------------------------ arguments
def f32(*shape: int) -> np.ndarray:
    """Small whole numbers, which sums and products keep exact."""
    return np.random.default_rng(0).integers(-3, 4, shape).astype(np.float32)


def bf(*shape: int) -> np.ndarray:
    return f32(*shape).astype(BF16)


def i32(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 4, shape).astype(np.int32)


def wide(x: Any) -> np.ndarray:
    """As float32, to compute with."""
    return np.asarray(x, np.float32)
