"""Options of a run on the simulator, and of a search through its schedules: what each may be.

Knows their values only; what they do is machine.py's and explore.py's.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any, NamedTuple

import numpy as np

from tklearn import numerics
from tklearn.lang import ir
from tklearn.lang.errors import LaunchError

SCHEDULES = ("rotate", "reverse", "random")
CHECKS = ("full", "fast", "off")
PRUNE = ("orders", "states", "none")


class Rule(NamedTuple):
    """What an option may be, in words, and whether a value is that for a kernel on a grid."""

    says: str
    holds: Callable[[Any, ir.Kernel, tuple[int, int, int]], bool]


def _one_of(*names: str) -> Rule:
    return Rule("one of " + ", ".join(names), lambda v, *_: isinstance(v, str) and v in names)


def _whole(v: Any, least: int | None = None, below: float = np.inf) -> bool:
    """Whether v is a whole number in a range; NumPy's count, bools do not."""
    if isinstance(v, bool | np.bool_):
        return False
    try:
        v = operator.index(v)
    except TypeError:
        return False
    return bool((least is None or v >= least) and v < below)


def _positive(v: Any) -> bool:
    return bool(isinstance(v, int | float | np.number) and not isinstance(v, bool) and v > 0)


def _schedule(v: Any, *_: Any) -> bool:
    """A list of steps is checked where it is read (schedule.py)."""
    return v in SCHEDULES if isinstance(v, str) else isinstance(v, Iterable)


def _delay(v: Any, k: ir.Kernel, _: Any) -> bool:
    if v is None:
        return True
    return isinstance(v, dict) and all(_whole(w, 0, k.warps) and _whole(n, 0) for w, n in v.items())


def _blocks(v: Any, _: Any, grid: tuple[int, int, int]) -> bool:
    """None, or blocks of the grid by number or index."""
    if v is None:
        return True
    if not isinstance(v, list):
        return False
    x, y, z = grid
    return all(
        (len(b) == 3 and all(_whole(i, 0, n) for i, n in zip(b, grid)))
        if isinstance(b, tuple)
        else _whole(b, 0, x * y * z)
        for b in v
    )


_FLAG = Rule("True or False", lambda v, *_: isinstance(v, bool | np.bool_))
RULES = {
    "schedule": Rule(
        f"one of {', '.join(SCHEDULES)}, or a list of steps such as [0, 1, '2*5']", _schedule
    ),
    "seed": Rule("a whole number", lambda v, *_: _whole(v)),
    "delay": Rule("{warp: turns}: warps of the block, whole numbers from 0", _delay),
    "check": _one_of(*CHECKS),
    "mma": _one_of("fast", "exact"),
    "arch": _one_of(*numerics.CORES),
    "blocks": Rule("a list of blocks of the grid: numbers, or (x, y, z)", _blocks),
    "device": Rule("the name of a GPU", lambda v, *_: isinstance(v, str)),
    "batch": _FLAG,
    "steps": Rule("a whole number from 1", lambda v, *_: _whole(v, 1)),
    "trace": _FLAG,
    "timeline": _FLAG,
    "runs": Rule("a whole number from 1", lambda v, *_: _whole(v, 1)),
    "seconds": Rule("a positive number", lambda v, *_: _positive(v)),
    "prune": _one_of(*PRUNE),
}


def checked(
    kernel: ir.Kernel, grid: tuple[int, int, int], options: dict[str, Any]
) -> dict[str, Any]:
    """The options, `blocks` as a list of numbers and (x, y, z). Error TK411."""
    out = dict(options)
    blocks = out.get("blocks")
    if isinstance(blocks, Iterable) and not isinstance(blocks, str | dict):
        out["blocks"] = [_index(b) for b in blocks]
    for name, v in out.items():
        rule = RULES.get(name)
        if rule is not None and not rule.holds(v, kernel, grid):
            here = {
                "delay": f"; {kernel.name} has {kernel.warps}",
                "blocks": f"; the grid is {grid}",
            }
            raise LaunchError(
                "TK411",
                f"{name}={options[name]!r} is not possible",
                kernel.loc,
                f"{name} is {rule.says}{here.get(name, '')}",
            )
    return out


def _index(b: Any) -> Any:
    """A block's index with all three numbers, where it is one."""
    if isinstance(b, tuple | list | np.ndarray) and np.ndim(b) == 1 and 1 <= len(b) <= 3:
        return (*b, 0, 0)[:3]
    return b


def unknown(kernel: str, params: Iterable[str], given: Iterable[str], known: Iterable[str]) -> None:
    """TK411 for the first name that is neither a parameter nor an option."""
    known = list(known)
    for name in given:
        if name in params or name in known:
            continue
        near = get_close_matches(name, [*known, *params], 1)
        hint = f"did you mean '{near[0]}'? " if near else ""
        raise LaunchError(
            "TK411",
            f"'{kernel}' has no parameter '{name}', and the simulator no such option",
            hint=f"{hint}its parameters: {', '.join(params) or 'none'}; options: "
            + ", ".join(known),
        )
