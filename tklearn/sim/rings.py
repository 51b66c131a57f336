"""What a kernel's loops keep besides numbers: a ring's place, and a step known when it runs."""

from __future__ import annotations

from typing import Any

from tklearn.sim.lanes import as_int


class Stages:
    """tk.ring(n) of one warp: plain numbers, the same in all blocks of a batch."""

    __slots__ = ("n", "stage", "phase")

    def __init__(self, n: int) -> None:
        self.n, self.stage, self.phase = n, 0, 0

    def advance(self) -> None:
        self.stage += 1
        if self.stage == self.n:
            self.stage, self.phase = 0, self.phase ^ 1


def step_of(w: Any, x: Any, s: Any) -> int:
    """The step of a range as it is in this run."""
    step = as_int(w, x, s)
    if step <= 0:
        raise w.fault(
            "TK510",
            f"the step of this range is {step}",
            s,
            hint="a step that is not known before the run must be positive",
        )
    return step
