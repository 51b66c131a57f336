"""@kernel: from a Python function to runs on either machine.

Specialises a kernel for the arguments of a launch, caches that, and sends the launch to the machine
where the arrays live. Machines are imported when first used.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tklearn.lang import frontend, ir
from tklearn.lang import types as T
from tklearn.lang.errors import LaunchError, TkError, at_the_call
from tklearn.lang.intrinsics import Intrinsic
from tklearn.lang.source import VALUE_TYPES, plain
from tklearn.lang.types import GL, ConstType
from tklearn.report import Report

COMPARABLE = (*VALUE_TYPES, tuple, list, dict)
CONSTANTS = (*VALUE_TYPES, tuple, frontend.DeviceFunction)  # what a tk.const parameter may be
SIM_OPTIONS = (
    "schedule", "seed", "delay", "check", "mma", "arch", "blocks", "device", "batch", "steps",
    "trace", "timeline",
)  # fmt: skip


def kernel(
    *bare: Any, warps: int | None = None, threads: int | tuple[int, ...] | None = None
) -> Callable[[Callable], Kernel]:
    """Marks a function as a kernel: `@tk.kernel(warps=4)` or `@tk.kernel(threads=(32, 8))`.

    Errors: TK407 for a block of no or more than 1024 threads, TK103/TK104 for a function that
    cannot be read.
    """
    if bare:
        raise LaunchError(
            "TK407",
            "a kernel needs the size of its block, by name",
            hint="write @tk.kernel(warps=4) or @tk.kernel(threads=256)",
        )
    if (warps is None) == (threads is None):
        raise LaunchError(
            "TK407", "give either warps or threads", hint="@tk.kernel(warps=4) is 128 threads"
        )
    given: Any = threads if warps is None else warps
    dims = tuple(given) if isinstance(given, tuple | list) and warps is None else (given,)
    if not 1 <= len(dims) <= 3 or any(
        isinstance(d, bool) or not isinstance(d, int) or d < 1 for d in dims
    ):
        raise LaunchError(
            "TK407",
            f"a block of {given!r} {'threads' if warps is None else 'warps'} is not possible",
            hint="1 to 3 positive whole numbers",
        )
    x, y, z = (*dims, 1, 1)[:3] if warps is None else (dims[0] * 32, 1, 1)
    block = (x, y, z)
    if math.prod(block) > 1024 or z > 64:
        raise LaunchError(
            "TK407",
            f"a block of {block} has {math.prod(block)} threads",
            hint="at most 1024, and at most 64 along z",
        )
    return lambda fn: Kernel(fn, block)


def device(fn: Callable) -> frontend.DeviceFunction:
    """Marks a helper that kernels call. Tiles are passed by reference, numbers by value.

    Errors: TK103 for a function that cannot be read.
    """
    frontend.source_of(fn)
    return frontend.DeviceFunction(fn)


def intrinsic(
    *, cuda: str, sim: Callable, result: T.DType | None = T.f32, arch: int = 75
) -> Callable[[Callable], Intrinsic]:
    """A learner's own row of the op table: the way out to raw CUDA.

    `cuda`: a C++ expression or statement with the parameters' names in braces, as in
    "__popc({x})". `sim`: a NumPy function of the same arguments (lane values broadcast over
    (blocks, 32)). `result`: the dtype of the value, None for a statement. `arch`: smallest
    architecture, as 10 * major + minor. The function's annotations (tk.i32, tk.u32, tk.i64, tk.f32
    or tk.bool_) say which numbers it takes; a parameter without one takes any.

    Errors: TK106 where `cuda` or `sim` do not fit the parameters, TK104 for other annotations;
    TK200 at a call with something else, TK514 where `sim` fails.
    """
    return lambda fn: Intrinsic(fn, cuda, sim, result, arch)


class Kernel:
    """A kernel. `k[grid](*args)` runs it where the arrays live and returns a Report.

    `k.sim[grid](*args, schedule=, seed=, delay=, check=, mma=, arch=, blocks=)` simulates with
    options, and keeps accesses (trace=True) or events (timeline=True) of the first block for the
    figures of `viz`; `k.source(...)` and `k.show(...)` give its CUDA, which needs no GPU and no
    compiler, and `k.export(folder, ...)` writes it as files that build without tklearn.
    """

    def __init__(self, fn: Callable, threads: tuple[int, int, int]) -> None:
        self.params, self.defaults = frontend.parameters(fn)
        self.fn, self.threads = fn, threads
        self.__name__, self.__doc__ = fn.__name__, fn.__doc__
        self._specialised: dict[tuple, list[ir.Kernel]] = {}
        self.quick: Any = None  # cuda.quick.Quick, after the first launch on a GPU
        self._launches: dict[int, Launch] = {}

    def __repr__(self) -> str:
        return f"<tk.kernel {self.__name__}({', '.join(self.params)})>"

    def __call__(self, *_: Any, **__: Any) -> None:
        raise LaunchError(
            "TK407", f"'{self.__name__}' needs a grid", hint=f"write {self.__name__}[blocks](...)"
        )

    def __getitem__(self, grid: Any) -> Launch:
        if type(grid) is int and grid in self._launches:  # the same grid again, in a loop
            return self._launches[grid]
        made = Launch(self, as_grid(grid), None)
        if type(grid) is int:
            if len(self._launches) >= 64:
                self._launches.clear()
            self._launches[grid] = made
        return made

    @property
    def sim(self) -> On:
        """Run on the simulator, whatever the arrays are on the CPU: `k.sim[grid](...)`."""
        return On(self, "simulator")

    @property
    def gpu(self) -> On:
        """Run on the GPU; arrays must live there: `k.gpu[grid](...)`."""
        return On(self, "cuda")

    @property
    def counting(self) -> On:
        """As `gpu`, compiled so that a profiler counts each access as written (compare, record)."""
        return On(self, "counting")

    def bind(self, args: tuple, kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Arguments in order (without compile-time ones) and the compile-time values.

        Errors: TK400 for missing, extra or unhashable ones.
        """
        form = f"{self.__name__}({', '.join(self.params)})"
        if len(args) > len(self.params):
            raise LaunchError(
                "TK400",
                f"'{self.__name__}' takes {len(self.params)} arguments, not {len(args)}",
                hint=form,
            )
        given = dict(zip(self.params, args))
        for k, v in kwargs.items():
            if k not in self.params:
                raise LaunchError(
                    "TK411" if k in SIM_OPTIONS else "TK400",
                    f"'{self.__name__}' has no parameter '{k}'",
                    hint=f"simulator options go with {self.__name__}.sim[grid](...)"
                    if k in SIM_OPTIONS
                    else form,
                )
            if k in given:
                raise LaunchError("TK400", f"'{k}' is given twice", hint=form)
            given[k] = v
        missing = [p for p in self.params if p not in given and p not in self.defaults]
        if missing:
            raise LaunchError("TK400", f"'{self.__name__}' lacks {', '.join(missing)}", hint=form)
        values, consts = [], {}
        for name, t in self.params.items():
            v = given.get(name, self.defaults.get(name))
            if isinstance(t, ConstType):
                consts[name] = self._constant(name, plain(v))
            else:
                values.append(v)
        return values, consts

    def _constant(self, name: str, v: Any) -> Any:
        if type(v).__name__ == "SymInt":  # a size under torch's tracing, where nothing is launched
            return v
        if not isinstance(v, CONSTANTS) or not _hashable(v):
            raise LaunchError(
                "TK400",
                f"'{name}' of {self.__name__} is a compile-time value "
                f"and cannot be {type(v).__name__}",
                hint="numbers, dtypes, layouts, flags and tuples of those can",
            )
        return v

    def specialise(self, types: dict[str, T.Type], consts: dict[str, Any]) -> ir.Kernel:
        """The typed IR for these argument types, from the cache if nothing it read has changed."""
        key = (tuple(types.values()), tuple((k, type(v), v) for k, v in consts.items()))
        kept = self._specialised.setdefault(key, [])
        for k in kept:
            if self.is_current(k):
                return k
        k = frontend.specialise(self.fn, self.threads, types, consts)
        kept[:] = [*kept[-15:], k]  # a constant that changes at each launch must not fill memory
        return k

    def is_current(self, spec: ir.Kernel) -> bool:
        """Whether the module and closure names that a specialisation read still mean the same."""
        if not spec.captures and not spec.helpers:
            return True
        return current(self.fn, spec.captures) and all(
            current(fn, read) for fn, read in spec.helpers.items()
        )

    def types_of(
        self, consts: dict[str, Any], values: list[Any] | None = None
    ) -> dict[str, T.Type]:
        """Argument types for a listing without a launch: dimensions from how the kernel indexes."""
        runtime = {n: t for n, t in self.params.items() if not isinstance(t, ConstType)}
        k = self.specialise(runtime, consts)
        dims: dict[ir.Sym, int] = {}
        passed: list[tuple[ir.Sym, ir.Sym]] = []  # parameter of a helper, what it stands for
        bodies = [k.body, *(f.body for f in k.functions)]
        for node in (n for body in bodies for n in ir.walk(body)):
            if isinstance(node, ir.Index | ir.VecIndex) and isinstance(node.base, ir.Var):
                dims.setdefault(node.base.sym, len(node.idx))
            if isinstance(node, ir.Do):
                n = [
                    a.type.n
                    for a in node.args
                    if isinstance(a, ir.Expr) and isinstance(a.type, T.Coord)
                ]
                for a in node.args if n else []:
                    if isinstance(a, ir.Var) and isinstance(a.type, GL):
                        dims.setdefault(a.sym, n[0])
            if isinstance(node, ir.CallDevice):
                passed += [
                    (p, a.sym) for p, a in zip(node.fn.params, node.args) if isinstance(a, ir.Var)
                ]
        for _ in k.functions:  # helpers may call helpers
            for inner, outer in passed:
                if inner in dims:
                    dims.setdefault(outer, dims[inner])
        found = {s.name: dims.get(s, 2) for s in k.params}
        return {n: GL(t.dtype, found[n]) if isinstance(t, GL) else t for n, t in runtime.items()}

    def _typed(self, args: tuple, consts: dict[str, Any]) -> ir.Kernel:
        if args:
            from tklearn.launching import typed

            values, static = self.bind(args, consts)
            return self.specialise(typed(self, values)[0], static)
        static = {
            n: consts.get(n, self.defaults.get(n))
            for n, t in self.params.items()
            if isinstance(t, ConstType)
        }
        missing = [
            n for n, v in static.items() if v is None and n not in consts and n not in self.defaults
        ]
        if missing:
            raise LaunchError(
                "TK400",
                f"'{self.__name__}' has compile-time parameters without values: "
                + ", ".join(missing),
                hint=f"write {self.__name__}.show({missing[0]}=...)",
            )
        return self.specialise(self.types_of(static), static)

    def ir(self, *args: Any, **consts: Any) -> ir.Kernel:
        """The typed IR for example arguments, or (without) for compile-time values only."""
        try:
            return self._typed(args, consts)
        except TkError as e:
            raise at_the_call(e)  # noqa: B904

    def source(self, *args: Any, **consts: Any) -> str:
        """The CUDA C++ of this kernel (for the given arguments); needs no GPU and no compiler."""
        from tklearn.cuda.emit import emit

        return emit(self.ir(*args, **consts)).text

    def export(self, folder: str | Path, *args: Any, **consts: Any) -> Path:
        """Writes this kernel as files that build with nvcc alone, and returns the folder.

        The .cu and its headers, a C++ function that launches it, a torch operator
        (`torch.ops.tk.<name>`) with build.py, and a README.md with the commands. The folder is
        made; files of the same names are overwritten. `args`, `consts`: as for `source`. Needs no
        GPU and no compiler.

        Errors: those of `source`; TK409 for warpgroups that would wait for registers for ever;
        TK400 for a kernel without arrays; OSError where nothing can be written.
        """
        from tklearn.cuda.export import export

        return export(self.ir(*args, **consts), Path(folder))

    def show(self, *args: Any, **consts: Any) -> Any:
        """The learner's Python beside its CUDA C++, line by line."""
        from tklearn.cuda.emit import emit
        from tklearn.cuda.listing import show

        k = self.ir(*args, **consts)
        return show(k, emit(k))


class On:
    """`k.sim` or `k.gpu`: waits for the grid."""

    def __init__(self, k: Kernel, machine: str) -> None:
        self.k, self.machine = k, machine

    def __getitem__(self, grid: Any) -> Launch:
        return Launch(self.k, as_grid(grid), self.machine)


class Launch:
    """A kernel with its grid: call it with the arguments."""

    def __init__(self, k: Kernel, grid: tuple[int, int, int], machine: str | None) -> None:
        self.k, self.grid, self.machine = k, grid, machine

    def __repr__(self) -> str:
        name, params = self.k.__name__, ", ".join(self.k.params)
        return f"<{name} with grid {self.grid}, not run yet: call it with ({params})>"

    def __call__(self, *args: Any, **kwargs: Any) -> Report:
        quick = self.k.quick
        if quick is not None and self.machine is None:
            report = quick.again(self.grid, args, kwargs, self.k.is_current)
            if report is not None:
                return report
        from tklearn.launching import launch

        try:
            return launch(self.k, self.grid, self.machine, args, kwargs)
        except TkError as e:
            raise at_the_call(e)  # noqa: B904

    def explore(self, *args: Any, **kwargs: Any) -> Any:
        """All schedules of one block that could differ: a `sim.explore.Exploration`.

        `kernel.sim[grid].explore(*args, runs=10_000, seconds=20, blocks=None)` runs the first block
        (or each of `blocks`) in every order of its warps and transfers that could make a
        difference. The result says whether that was all of them, how many runs it took, which
        different results there are, and the first fault with a schedule that shows it again:
        `kernel.sim[grid](*args, schedule=result.witness)`. The arrays are left as they were.
        """
        from tklearn.launching import explore

        try:
            return explore(self.k, self.grid, self.machine, args, kwargs)
        except TkError as e:
            raise at_the_call(e)  # noqa: B904


def as_grid(grid: Any) -> tuple[int, int, int]:
    """One to three block counts as (x, y, z). Error TK407."""
    dims = grid if isinstance(grid, tuple) else (grid,)
    try:
        if any(type(d).__name__ == "SymInt" for d in dims):
            return (*dims, 1, 1)[:3]  # a size under torch's tracing: reading it would fix it
        dims = tuple(d.__index__() for d in dims)
    except (AttributeError, TypeError):
        raise LaunchError(
            "TK407",
            f"a grid of {grid!r} is not possible",
            hint="one to three whole numbers: kernel[x, y](...)",
        ) from None
    if not 1 <= len(dims) <= 3 or any(d < 0 for d in dims):
        raise LaunchError(
            "TK407",
            f"a grid of {grid!r} is not possible",
            hint="one to three whole numbers, 0 or more",
        )
    if dims[0] >= 1 << 31 or any(d > 65535 for d in dims[1:]):
        raise LaunchError(
            "TK407",
            f"a grid of {dims} is too large",
            hint="x is below 2**31, y and z are at most 65535",
        )
    return (*dims, 1, 1)[:3]  # type: ignore[return-value]


def _hashable(v: Any) -> bool:
    try:
        hash(v)
    except TypeError:
        return False
    return True


def current(fn: Callable, captures: dict[tuple[str, ...], Any]) -> bool:
    """Whether the module and closure names that a specialisation read still mean the same."""
    if not captures:
        return True
    cells = dict(zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True))
    for path, value in captures.items():
        try:
            now = cells[path[0]].cell_contents if path[0] in cells else fn.__globals__[path[0]]
            for attr in path[1:]:
                now = getattr(now, attr)
        except (KeyError, AttributeError, ValueError):
            return False
        now = plain(now)
        if now is value and not isinstance(value, list | dict):
            continue
        if type(now) is not type(value) or not isinstance(now, COMPARABLE) or now != value:
            return False
    return True


def torch_op(*args: Any, **kwargs: Any) -> Any:
    """Kernels as a torch operator: see tklearn.torch_ops.torch_op."""
    from tklearn.torch_ops import torch_op as run

    return run(*args, **kwargs)
