"""`tk.tune`: measure candidates of compile-time parameters on the GPU and keep the best.

Knows launches and their measured times; candidates that cannot run (too many registers, too much
shared memory) are kept in the table with the reason.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from tklearn import tensor
from tklearn.kernel import Kernel
from tklearn.lang.errors import LaunchError


@dataclass(frozen=True)
class Candidate:
    """One choice of compile-time values: `seconds` of a launch, or None and `why` it cannot run."""

    values: dict[str, Any]
    seconds: float | None
    why: str = ""


@dataclass(frozen=True)
class Tuned:
    """What was tried, fastest first. `best` are the compile-time values to pass on."""

    kernel: str
    tried: tuple[Candidate, ...]

    @property
    def best(self) -> dict[str, Any]:
        return dict(self.tried[0].values)

    def __str__(self) -> str:
        lines = [f"{self.kernel}: {len(self.tried)} candidates, fastest first"]
        for c in self.tried:
            values = ", ".join(f"{k}={v!r}" for k, v in c.values.items())
            took = c.why if c.seconds is None else f"{c.seconds * 1e6:9.2f} us"
            lines.append(f"  {took}  {values}")
        return "\n".join(lines)

    __repr__ = __str__


def tune(
    kernel: Kernel,
    space: dict[str, Iterable[Any]] | Iterable[dict[str, Any]],
    args: tuple[Any, ...],
    *,
    grid: Any | Callable[..., Any],
) -> Tuned:
    """Measures `kernel` for every choice in `space` on the GPU, each on copies of its outputs.

    Args:
        space: values for each compile-time parameter (all combinations), or a list of choices.
        args: the run-time arguments, on a GPU.
        grid: as in kernel[grid], or a function of the compile-time values by name.

    Errors: TK420 if the arrays are not on a GPU; TK400 for an empty space, or if no choice can run
    (with the reasons).
    """
    arrays = [a for a in map(tensor.describe, args) if a is not None]
    if not any(a.device != "cpu" for a in arrays):
        raise LaunchError(
            "TK420",
            f"tuning {kernel.__name__} measures on a GPU, and these arrays are in host memory",
            hint="pass arrays on a GPU; the simulator's counters do not depend on the clock",
        )
    tried = [_try(kernel, choice, args, grid) for choice in choices(space)]
    ran = sorted((c for c in tried if c.seconds is not None), key=lambda c: c.seconds or 0.0)
    if not ran:
        reasons = "; ".join(c.why for c in tried) or "the space is empty"
        raise LaunchError("TK400", f"no choice for {kernel.__name__} can run: {reasons}")
    return Tuned(kernel.__name__, (*ran, *(c for c in tried if c.seconds is None)))


def choices(space: dict[str, Iterable[Any]] | Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The choices that a space stands for, in order."""
    if isinstance(space, dict):
        return [
            dict(zip(space, values, strict=True)) for values in itertools.product(*space.values())
        ]
    return [dict(c) for c in space]


def _try(kernel: Kernel, choice: dict[str, Any], args: tuple[Any, ...], grid: Any) -> Candidate:
    try:
        report = kernel.gpu[grid(**choice) if callable(grid) else grid](*args, **choice)
        return Candidate(choice, report.seconds)
    except LaunchError as e:
        if e.code not in ("TK408", "TK409", "TK422"):
            raise
        return Candidate(choice, None, f"{e.code}: {e.message}")
