"""`report.what_if(stages=3)`: the estimated time of a launch, and of it with one thing changed.

Knows a kernel, what it was launched with, and the time estimate; it runs nothing. A change is
another compile-time value (a tk.const parameter, or a module or closure constant that the kernel
reads), another grid or another GPU.

Registers are those of a compiled kernel where they decide how many blocks an SM runs and NVRTC is
there (no GPU is needed); else they are guessed from the tiles.
"""

from __future__ import annotations

import html
import itertools
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tklearn import devices
from tklearn.lang import frontend, ir
from tklearn.lang.errors import LaunchError, TkError
from tklearn.lang.types import DType

if TYPE_CHECKING:
    from tklearn.kernel import Kernel
    from tklearn.sim.timing import Estimate


@dataclass(frozen=True)
class Way:
    """One line of the table: what is changed, and the estimate, or why there is none."""

    changes: dict[str, Any]
    estimate: Estimate | None
    why: str = ""

    @property
    def seconds(self) -> float | None:
        return None if self.estimate is None else self.estimate.seconds


@dataclass
class WhatIf:
    """The launch as it is (`now`), and each way asked for (`ways`). All times are estimates."""

    kernel: str
    now: Way
    ways: list[Way] = field(default_factory=list)

    HEAD = ("change", "estimate", "of now", "blocks an SM", "busiest", "why not")

    @property
    def best(self) -> Way:
        """The fastest of all, the present one included."""
        return min(
            (w for w in (self.now, *self.ways) if w.seconds is not None),
            key=lambda w: w.seconds or 0.0,
        )

    def cells(self) -> list[tuple[str, ...]]:
        out: list[tuple[str, ...]] = []
        for w in (self.now, *self.ways):
            name = ", ".join(f"{k}={v!r}" for k, v in w.changes.items()) or "as it is"
            e = w.estimate
            if e is None:
                out.append((name, "-", "-", "-", "-", w.why))
                continue
            of = f"{e.seconds / self.now.seconds:.2f}x" if self.now.seconds else "-"
            busy = f"{e.bound} {100 * e.use.get(e.bound, 0.0):.0f} %"
            out.append((name, f"{e.seconds * 1e6:.2f} us", of, str(e.blocks_per_sm), busy, ""))
        return out

    def notes(self) -> list[str]:
        e = self.now.estimate or next((w.estimate for w in self.ways if w.estimate), None)
        if e is None:
            return []
        found = [w.estimate for w in (self.now, *self.ways) if w.estimate]
        bands = {
            x.device: "not checked" if x.error is None else f"{100 * x.error:.0f} % median error"
            for x in found
        }
        gpus = "; ".join(f"for the {name} ({band})" for name, band in bands.items())
        return [f"estimates {gpus}, no measurements", *e.notes]

    def __str__(self) -> str:
        table = [self.HEAD, *self.cells()]
        widths = [max(len(r[i]) for r in table) for i in range(len(self.HEAD))]
        lines = [
            "  ".join([r[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(r[1:5], widths[1:5])),
                       r[5]]).rstrip() for r in table
        ]  # fmt: skip
        lines.insert(1, "-" * len(lines[0]))
        return "\n".join([f"what if: {self.kernel}", *lines, *(f"note: {n}" for n in self.notes())])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head = "".join(f"<th style='text-align:left'>{html.escape(h)}</th>" for h in self.HEAD)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(c)}</td>" for c in row) + "</tr>"
            for row in self.cells()
        )
        notes = "".join(f"<p>note: {html.escape(n)}</p>" for n in self.notes())
        return f"<table><tr>{head}</tr>{body}</table>{notes}"


@dataclass(frozen=True)
class Launched:
    """What an estimate needs of a launch; a report keeps one. `arguments`: shapes, and numbers."""

    kernel: Kernel
    spec: ir.Kernel
    grid: tuple[int, int, int]
    types: dict[str, Any]
    consts: dict[str, Any]
    arguments: tuple[Any, ...]
    device: str
    registers: int | None = None

    def estimate(self, **options: Any) -> Estimate:
        """The time of this launch. Registers that `options` do not give are those of the launch, or
        of a compilation where they decide how many blocks an SM runs, or guessed.

        Raises ValueError where the model has no answer.
        """
        from tklearn.sim.timing import estimate

        name = options.pop("device", self.device)
        try:
            gpu = devices.device(name)
        except KeyError as e:
            raise LaunchError("TK400", str(e.args[0]), self.spec.loc) from None
        if self.spec.arch > gpu.arch.sm:
            raise ValueError(f"{self.spec.name} needs sm_{self.spec.arch}, not sm_{gpu.arch.sm}")
        lane = options.pop("registers", None) or self._registers(gpu)
        return estimate(self.spec, self.grid, list(self.arguments), name, registers=lane, **options)

    def _registers(self, gpu: devices.Device) -> int | None:
        """Of a lane: as launched, or as compiled for another GPU if it makes a difference."""
        from tklearn.sim.timing import registers_matter

        if self.registers is not None and self._is(gpu):
            return self.registers
        if not registers_matter(self.spec, self.grid, gpu):
            return None
        return compiled_registers(self.spec, gpu.arch.sm)

    def _is(self, gpu: devices.Device) -> bool:
        """Whether it was launched on such a GPU, which need not be in the table."""
        try:
            return devices.device(self.device) is gpu
        except KeyError:
            return False

    def what_if(self, changes: dict[str, Any]) -> WhatIf:
        """The table for all combinations of `changes`: a value or a list of values for each name.

        Errors: TK400 for a name that is none of the kernel's.
        """
        names = {k: self._name(k) for k in changes}
        options = [v if isinstance(v, list) else [v] for v in changes.values()]
        out = WhatIf(self.spec.name, self._way({}, {}))
        for values in itertools.product(*options):
            said = dict(zip(changes, values, strict=True))
            out.ways.append(self._way(said, {names[k]: v for k, v in said.items()}))
        return out

    def _name(self, said: str) -> str:
        """The kernel's own name for what was said: `stages` is STAGES if it has no `stages`."""
        plain = [
            path[0]
            for path, v in self.spec.captures.items()
            if len(path) == 1 and isinstance(v, bool | int | float | str | DType)
        ]
        known = ["grid", "device", *self.consts, *plain]
        for same in (str.__eq__, lambda a, b: a.casefold() == b.casefold()):
            found = [k for k in known if same(k, said)]
            if found:
                return found[0]
        raise LaunchError(
            "TK400",
            f"'{said}' is no compile-time value of {self.spec.name}",
            self.spec.loc,
            "it has " + ", ".join(dict.fromkeys(known)),
        )

    def _way(self, said: dict[str, Any], changes: dict[str, Any]) -> Way:
        try:
            return Way(said, self._changed(changes).estimate())
        except (TkError, ValueError) as e:  # what cannot be built, launched or estimated
            return Way(said, None, str(e).splitlines()[0])

    def _changed(self, changes: dict[str, Any]) -> Launched:
        """This launch with other compile-time values, grid or GPU."""
        if not changes:
            return self
        from tklearn.kernel import as_grid

        grid = as_grid(changes["grid"]) if "grid" in changes else self.grid
        device = changes.get("device", self.device)
        consts = {k: changes.get(k, v) for k, v in self.consts.items()}
        other = {k: v for k, v in changes.items() if k not in (*self.consts, "grid", "device")}
        fn = with_constants(self.kernel.fn, other)
        spec = frontend.specialise(fn, self.kernel.threads, self.types, consts)
        same = device == self.device and ir.digest(spec) == ir.digest(self.spec)
        registers = self.registers if same else None
        return Launched(
            self.kernel, spec, grid, self.types, consts, self.arguments, device, registers
        )


def compiled_registers(spec: ir.Kernel, arch: int) -> int | None:
    """Of a lane, by ptxas (a compilation of about 0.3 s, kept on disk); None without NVRTC."""
    from tklearn.cuda.compile import compile_source
    from tklearn.cuda.emit import emit

    try:
        return compile_source(emit(spec), arch).facts.registers or None
    except TkError:
        return None


def with_constants(fn: Callable, values: dict[str, Any]) -> Callable:
    """The function with other module or closure constants; it is compiled, never called."""
    if not values:
        return fn
    cells = tuple(
        types.CellType(values[n]) if n in values else c
        for n, c in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True)
    )
    outer = {n: v for n, v in values.items() if n not in fn.__code__.co_freevars}
    made = types.FunctionType(fn.__code__, {**fn.__globals__, **outer}, fn.__name__,
                              fn.__defaults__, cells or None)  # fmt: skip
    made.__kwdefaults__ = fn.__kwdefaults__
    made.__annotations__ = fn.__annotations__
    return made
