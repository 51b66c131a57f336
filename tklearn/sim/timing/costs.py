"""The work of the header library's operations: registers of a lane times what an operation costs.

Knows types and how the headers spread tiles over lanes; counts of accesses come from counters.py.
It knows neither statements nor time.
"""

from __future__ import annotations

from typing import Any

from tklearn.lang.types import RT, RV, Scalar, Type, Vec
from tklearn.sim.timing.rates import Rates

MAPS = {
    "exp2": "exp2", "exp": "exp", "log2": "log2", "log": "log2", "rsqrt": "rsqrt", "rcp": "rsqrt",
    "tanh": "rsqrt", "sqrt": "divide", "sin": "divide", "cos": "divide", "relu": "max",
    "abs": "add",
}  # fmt: skip


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
    """Issue slots and special-function cycles of operations, from the rates."""

    def __init__(self, rates: Rates) -> None:
        self.rates = rates

    def of(self, name: str, n: float) -> tuple[float, float]:
        """`n` registers of operation `name`."""
        math, xu = self.rates.ops[name]
        return math * n, xu * n

    def binary(self, op: str, t: Any, a: Any, b: Any) -> tuple[float, float]:
        """One operator on values of types a and b."""
        n = registers(t)
        if isinstance(t, Scalar):
            return self._scalar(op, t)
        name = "divide" if op == "/" else "max" if op in ("max", "min") else "add"
        math, xu = self.of(name, n)
        narrow = sum(self._narrow(x) for x in (a, b) if registers(x) > 1) + self._narrow(t)
        return math + narrow * n, xu

    def _narrow(self, t: Any) -> float:
        """Slots a register to widen or round a narrow type."""
        return self.rates.ops["convert"][0] / 2 if t.dtype.itemsize < 4 else 0.0

    def _scalar(self, op: str, t: Scalar) -> tuple[float, float]:
        if t.dtype.kind == "f":
            return self.of("divide" if op == "/" else "add", 1)
        if op in ("//", "%", "/"):
            return self.of("idiv", 1)
        return self.of("imul" if op == "*" else "iadd", 1)

    def map(self, name: str, t: Any) -> tuple[float, float]:
        """An elementwise function."""
        n = registers(t)
        math, xu = self.of(MAPS[name], n)
        return math + 2 * self._narrow(t) * n, xu

    def reduction(self, name: str, t: Any) -> tuple[float, float, float]:
        """Slots, special-function cycles and shuffles (shared-memory passes) of a reduction."""
        n = registers(t)
        kind = "sum" if name.endswith("sum") else "max"
        per = self.rates.ops["add" if kind == "sum" else "max"][0]
        slots = per * n + self._narrow(t) * n
        if isinstance(t, RT):
            lines = (t.rows if name.startswith("row") else t.cols) / 8
            along = name.startswith("row") == (t.layout.name == "row")
            shuffles = lines * ((4 if kind == "sum" else 2) if along else 3 * 1.0)
        elif isinstance(t, RV) and t.kind == "flat":
            width = {True: 4, False: 1}[t.n % 128 == 0]
            shuffles = 5.0 * (width if kind == "sum" else 1)
        else:
            shuffles = 6.0
        return slots + 2 * shuffles, 0.0, shuffles

    def convert(self, src: Any, dst: Any) -> tuple[float, float]:
        """A copy into another dtype (or the same: moves, which the compiler mostly drops)."""
        if src.dtype == dst.dtype:
            return 0.0, 0.0
        n = registers(dst)
        return self.rates.ops["convert"][0] / 2 * n, 0.0
