"""The work of the header library's operations: registers of a lane times what an operation costs.

Knows types and how the headers spread tiles over lanes; counts of accesses come from counters.py.
It knows neither statements nor time.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from tklearn.lang.types import RT, RV, Scalar, Type, Vec
from tklearn.sim.timing.rates import Rates

MAPS = {
    "exp2": "exp2", "exp": "exp", "log2": "log2", "log": "log", "rsqrt": "rsqrt", "rcp": "rsqrt",
    "tanh": "rsqrt", "sqrt": "sqrt", "sin": "sin", "cos": "sin", "relu": "max", "abs": "add",
}  # fmt: skip
BRANCHED = {"divide": 5, "sqrt": 3, "sin": 6}
"""Operations that branch around a slow path for each element, so that a warp's elements follow one
another: so many dependent steps besides the special function and the branch (sm_90a's code)."""

BY_CONSTANT = {"//": ((9, 4), (6, 3)), "%": ((8, 5), (6, 4))}
"""Instructions of an integer divided by a constant (sm_90a's code): of a number that may be
negative, of one that may not; and the same for powers of two."""


class Cost(NamedTuple):
    """Issue slots, cycles of the special-function unit, cycles that a warp takes at least."""

    slots: float = 0.0
    xu: float = 0.0
    serial: float = 0.0


def registers(t: Type | None) -> float:
    """Elements of a value that a lane holds."""
    if isinstance(t, RT):
        return t.rows * t.cols / 32
    if isinstance(t, RV):
        if t.kind == "flat":
            return float(-(-t.n // 32))
        along = (t.kind == "col") == (t.layout.name == "row")
        return t.n / 8 if along else t.n / 4
    return float(t.n) if isinstance(t, Vec) else 1.0


class Costs:
    """What operations cost, from the rates."""

    def __init__(self, rates: Rates) -> None:
        self.rates = rates

    def of(self, name: str, n: float) -> Cost:
        """`n` registers of operation `name`."""
        slots, xu = self.rates.ops[name]
        serial = 0.0
        if name in BRANCHED:
            latency = self.rates.latency
            serial = latency["branched"] + BRANCHED[name] * latency["math"]
        elif name == "idiv":
            serial = self.rates.latency["idiv"]
        return Cost(slots * n, xu * n, serial * n)

    def binary(self, op: str, t: Any, a: Any, b: Any) -> Cost:
        """One operator on values of types a and b."""
        if isinstance(t, Scalar):
            return self._scalar(op, t)
        n = registers(t)
        name = "divide" if op == "/" else "max" if op in ("max", "min") else "add"
        cost = self.of(name, n)
        narrow = sum(self._narrow(x) for x in (a, b) if registers(x) > 1) + self._narrow(t)
        return cost._replace(slots=cost.slots + narrow * n)

    def _narrow(self, t: Any) -> float:
        """Slots a register to widen or round a narrow type."""
        return self.rates.ops["convert"][0] / 2 if t.dtype.itemsize < 4 else 0.0

    def _scalar(self, op: str, t: Scalar) -> Cost:
        if t.dtype.kind == "f":
            return self.of("divide" if op == "/" else "add", 1)
        if op in ("//", "%", "/"):
            return self.of("idiv", 1)
        return self.of("imul" if op == "*" else "iadd", 1)

    def by_constant(self, op: str, n: int, nonneg: bool) -> Cost:
        """An integer `//` or `%` the constant n."""
        return Cost(BY_CONSTANT[op][power_of_two(n)][nonneg])

    def map(self, name: str, t: Any) -> Cost:
        """An elementwise function."""
        n = registers(t)
        cost = self.of(MAPS[name], n)
        return cost._replace(slots=cost.slots + 2 * self._narrow(t) * n)

    def reduction(self, name: str, t: Any) -> tuple[float, float, float]:
        """Slots, special-function cycles and shuffles (shared-memory passes) of a reduction."""
        n = registers(t)
        kind = "sum" if name.endswith("sum") else "max"
        # One maximum after the other runs at half the rate; `max` is one among other operations.
        per = self.rates.ops["add"][0] * (1 if kind == "sum" else 2)
        slots = per * n + self._narrow(t) * n
        if isinstance(t, RT):
            lines = (t.rows if name.startswith("row") else t.cols) / 8
            along = name.startswith("row") == (t.layout.name == "row")
            shuffles = lines * ((4 if kind == "sum" else 2) if along else 6)
        elif isinstance(t, RV) and t.kind == "flat":
            width = {True: 4, False: 1}[t.n % 128 == 0]
            shuffles = 5.0 * (width if kind == "sum" else 1)
        else:
            shuffles = 6.0
        return slots + 2 * shuffles, 0.0, shuffles

    def convert(self, src: Any, dst: Any) -> Cost:
        """A copy into another dtype (or the same: moves, which the compiler mostly drops)."""
        if src.dtype == dst.dtype:
            return Cost()
        return Cost(self.rates.ops["convert"][0] / 2 * registers(dst))

    def cast(self, src: Any, dst: Any) -> Cost:
        """One number in another dtype: to an integer by the special-function unit."""
        kinds = (src.dtype.kind == "f", dst.dtype.kind == "f")
        if kinds == (True, False):
            return Cost(1.0, self.rates.ops["rsqrt"][1])
        return Cost(0.5 if kinds == (False, False) else 1.0)


def power_of_two(n: Any) -> bool:
    """Of a number in the source: the compiler multiplies or shifts by it."""
    return type(n) in (int, float) and n > 0 and math.frexp(n)[0] == 0.5
