"""A machine with a T4, without having one: the driver is pretended, the compiler is real.

Arrays "on the card" lie in host memory, modules are not loaded and launches are written down
instead of made. All else is the product's own: which GPU may run a kernel, the compilation for
sm_75, the argument buffer, the table of `tk.compare`.
"""

from __future__ import annotations

import weakref
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

from tklearn import comparison, launching
from tklearn.cuda import launch as cl
from tklearn.cuda.compile import compile_source
from tklearn.cuda.emit import emit
from tklearn.cuda.quick import Quick
from tklearn.lang import ir
from tklearn.lang.errors import TkError

NAME, SM, SHARED, MEMORY = "Tesla T4", 75, 64 * 1024, 15_835_660_288


class OnCard:
    """An array that says it is CuPy's."""

    __module__ = "cupy"
    __cuda_array_interface__: dict[str, Any] = {}  # noqa: RUF012 - its presence is asked for

    def __init__(self, a: np.ndarray) -> None:
        self.host = np.array(a)
        self.dtype, self.shape, self.strides = a.dtype, self.host.shape, self.host.strides
        self.itemsize, self.size, self.nbytes = a.itemsize, a.size, self.host.nbytes
        self.data = SimpleNamespace(ptr=self.host.ctypes.data)
        self.device = SimpleNamespace(id=0)

    def get(self) -> np.ndarray:
        return self.host


class T4(NamedTuple):
    """What was launched on the card (kernels' names), and what was simulated beside it."""

    launched: list[str]
    simulated: list[ir.Kernel]

    def refusals(self) -> dict[str, TkError]:
        """Compiles every simulated kernel for sm_75; kernel -> why the card refuses it."""
        out = {}
        for spec in self.simulated:
            try:
                cl.check_device(spec, 0)
            except TkError as e:
                out[spec.name] = e
                continue
            made = compile_source(emit(spec), SM)
            assert made.image[:4] == b"\x7fELF", spec.name
            assert made.facts.registers <= 255
        return out


def pretend(monkeypatch: pytest.MonkeyPatch) -> T4:
    """This machine has a T4 until the test ends."""
    seen = T4([], [])

    def load(one: cl.Launcher) -> None:
        assert one.cubin.image[:4] == b"\x7fELF"
        one.handle = 1
        one.driver_launch = lambda *_: seen.launched.append(one.name)
        one.get_device = lambda: 0

    simulate = launching.simulate

    def watched(k: Any, spec: ir.Kernel, *rest: Any) -> Any:
        if not any(spec is s for s in seen.simulated):
            seen.simulated.append(spec)
        return simulate(k, spec, *rest)

    monkeypatch.setattr(cl, "device_facts", lambda _: (NAME, SM, SHARED))
    monkeypatch.setattr(comparison, "gpu_here", lambda: True)
    monkeypatch.setattr(cl, "to_device", OnCard)
    monkeypatch.setattr(cl, "current_stream", lambda *_: 0)
    monkeypatch.setattr(cl, "_launchers", weakref.WeakKeyDictionary())
    monkeypatch.setattr(cl.Launcher, "_load", load)
    monkeypatch.setattr(cl.Launcher, "timer", lambda *_: lambda: 1e-5)
    monkeypatch.setattr(Quick, "remember", lambda *_: None)
    monkeypatch.setattr(launching, "simulate", watched)
    return seen
