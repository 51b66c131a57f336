"""Instant checks of exercises: pass, or why not, with the place.

An Item says what a solution must compute, on which sizes, and which misconception a wrong result
points to. A check runs the learner's kernel on the simulator on copies of its own inputs and
compares plain numbers, so nothing in the learner's notebook decides the verdict.
"""

from __future__ import annotations

import difflib
import html
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tklearn.kernel import Kernel
from tklearn.lang.errors import TkError


@dataclass(frozen=True)
class Verdict:
    """The answer to one attempt: `passed`, and `message` with what to look at."""

    item: str
    passed: bool
    message: str

    def __bool__(self) -> bool:
        return self.passed

    def __str__(self) -> str:
        return f"{self.item}: {'passed' if self.passed else 'not yet'}\n{self.message}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        mark = "&#10003; passed" if self.passed else "&#9998; not yet"
        return (
            f"<p><b>{html.escape(self.item)}: {mark}</b></p><pre>{html.escape(self.message)}</pre>"
        )


@dataclass(frozen=True)
class Item:
    """One exercise.

    Attributes: `inputs(rng, rows)` makes the kernel's arguments, output last; `grid(rows)`;
    `expected(*inputs)` the right output in float64; `wrong` maps a misconception's message to the
    output it would give; `tolerance` is absolute; `hints` are given one at a time.
    """

    name: str
    inputs: Callable[[np.random.Generator, int], list[Any]]
    grid: Callable[[int], Any]
    expected: Callable[..., np.ndarray]
    wrong: dict[str, Callable[..., np.ndarray]]
    tolerance: float
    hints: tuple[str, ...]
    sizes: tuple[int, ...] = (64, 16, 1, 35)
    consts: dict[str, Any] = field(default_factory=dict)


def _softmax(x: np.ndarray, t: float = 1.0) -> np.ndarray:
    z = x.astype(np.float64) / t
    e = np.exp(z - z.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


ITEMS: dict[str, Item] = {
    "temperature": Item(
        name="temperature",
        inputs=lambda rng, rows: [
            rng.standard_normal((rows, 128), dtype=np.float32) * 4,
            np.full((rows, 128), -1, np.float32),
            2.5,
        ],
        grid=lambda rows: -(-rows // 64),
        expected=lambda x, _y, t: _softmax(x, t),
        wrong={
            "the temperature has no effect: this is the plain softmax": (
                lambda x, _y, _t: _softmax(x)
            ),
            "the result was divided by T; the scores must be, before exp": (
                lambda x, _y, t: _softmax(x) / t
            ),
            "the scores were multiplied by T: a high temperature must make the rows flatter": (
                lambda x, _y, t: _softmax(x, 1 / t)
            ),
        },
        tolerance=2e-6,
        hints=(
            "Where: between warp.load, when the tile holds the scores, and tk.exp.",
            "Rule: softmax with temperature T is softmax(x / T). A tile and a number combine "
            "element by element.",
            "A worked sibling: `row *= 0.5` halves every element of the tile `row`.",
        ),
    ),
}  # fmt: skip
_asked: dict[str, int] = {}


class Hints(str):
    """Text that a notebook shows as it is, without quotes and with its line ends."""

    __slots__ = ()
    __repr__ = str.__str__


def hint(item: str) -> Hints:
    """The next hint of an exercise; after the last one, all of them. TkError: no such exercise."""
    it = _item(item)
    n = min(_asked.get(item, 0) + 1, len(it.hints))
    _asked[item] = n
    lines = (f"hint {i + 1} of {len(it.hints)}: {h}" for i, h in enumerate(it.hints[:n]))
    return Hints("\n".join(lines))


def _item(name: str) -> Item:
    known = ", ".join(map(repr, ITEMS))
    if isinstance(name, Kernel):
        raise TkError(
            "TK400", "the name of the exercise comes first", hint=f"check(name, my_kernel): {known}"
        )
    if not isinstance(name, str) or name not in ITEMS:
        near = difflib.get_close_matches(str(name), ITEMS, 1)
        said = f"did you mean {near[0]!r}? " if near else ""
        raise TkError("TK110", f"no exercise {name!r}", hint=f"{said}there are {known}")
    return ITEMS[name]


def check(item: str, kernel: Any = None) -> Verdict:
    """Checks an attempt on the simulator: results on several sizes, and no fault while it runs.

    Args: item, a name of ITEMS; kernel, the learner's @tk.kernel. TkError: no such exercise.
    """
    it = _item(item)
    if not isinstance(kernel, Kernel):
        return Verdict(
            item,
            False,
            f"give the kernel itself, not {type(kernel).__name__}: check({item!r}, my_kernel)"
            if kernel is not None
            else f"give your kernel too: check({item!r}, my_kernel)",
        )
    for rows in it.sizes:
        args = it.inputs(np.random.default_rng(rows), rows)
        given = [np.copy(a) if isinstance(a, np.ndarray) else a for a in args]
        try:
            kernel.sim[it.grid(rows)](*given, **it.consts)
        except TkError as e:
            return Verdict(item, False, f"with {rows} rows the kernel was stopped:\n{e}")
        out = next(
            g
            for g, a in zip(given, args, strict=True)
            if isinstance(a, np.ndarray) and (a == -1).all()
        )
        problem = _differs(it, args, out, rows)
        if problem:
            return Verdict(item, False, problem)
    return Verdict(
        item, True, f"right for {', '.join(map(str, it.sizes))} rows, no fault in any run"
    )


def _differs(it: Item, args: list[Any], out: np.ndarray, rows: int) -> str:
    want = it.expected(*args)
    gap = np.abs(out.astype(np.float64) - want)
    if np.all(gap <= it.tolerance):
        return ""
    at = np.unravel_index(int(np.nanargmax(np.where(np.isnan(gap), np.inf, gap))), gap.shape)
    index = ", ".join(str(int(i)) for i in at)
    where = f"with {rows} rows, element [{index}] is {out[at]:.6g} and should be {want[at]:.6g}"
    for message, f in it.wrong.items():
        if np.all(np.abs(out - f(*args)) <= max(it.tolerance, 1e-5)):
            return f"{message}\n({where})"
    if np.all(out == -1):
        return f"nothing was stored into the output\n({where})"
    return where
