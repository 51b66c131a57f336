"""One launch: the arguments checked, the machine chosen, the report returned.

Above both machines: knows arrays and kernels, and calls sim or cuda only when a launch needs them.
"""

from __future__ import annotations

import math
import numbers
from typing import TYPE_CHECKING, Any

from tklearn import tensor
from tklearn.lang import ir
from tklearn.lang import types as T
from tklearn.lang.errors import LaunchError, Race
from tklearn.lang.frontend import parameter_loc
from tklearn.lang.types import GL, ConstType, Scalar
from tklearn.progress import Progress
from tklearn.report import Report
from tklearn.tensor import Array
from tklearn.whatif import Launched

if TYPE_CHECKING:
    from tklearn.kernel import Kernel

RANGES = {"i32": (-(1 << 31), 1 << 31), "u32": (0, 1 << 32), "i64": (-(1 << 63), 1 << 63)}


def launch(
    k: Kernel, grid: tuple[int, int, int], machine: str | None, args: tuple, kwargs: dict[str, Any]
) -> Report:
    """Checks the arguments and runs `k` on the machine where its arrays live."""
    from tklearn.kernel import SIM_OPTIONS

    options: dict[str, Any] = {}
    if machine == "simulator":
        from tklearn.sim.options import unknown

        unknown(k.__name__, k.params, kwargs, SIM_OPTIONS)
        options = {n: kwargs.pop(n) for n in SIM_OPTIONS if n in kwargs and n not in k.params}
    values, consts = k.bind(args, kwargs)
    if any(type(v).__name__ == "FakeTensor" for v in values):
        # torch traces shapes: nothing to compute, and there is no memory behind these.
        return Report(k.__name__, "traced", "none", (0, 0, 0), k.threads)
    types, arrays = typed(k, values)
    where = place(k, arrays, machine)
    spec = k.specialise(types, consts)
    check_outputs(k, spec, arrays)
    shapes = tuple(tuple(a.shape) if isinstance(a, Array) else a for a in arrays)
    if where == "cpu":
        host = [a.numpy() if isinstance(a, Array) else a for a in arrays]
        report = simulate(k, spec, grid, host, options)
        report.launched = Launched(k, spec, grid, types, consts, shapes, report.device)
        return report
    from tklearn.cuda.launch import run

    report = run(spec, grid, arrays, where, counting=machine == "counting")
    registers = report.compiled.registers if report.compiled else None
    report.launched = Launched(k, spec, grid, types, consts, shapes, report.device, registers)
    if machine is None:
        from tklearn.cuda.quick import Quick

        k.quick = k.quick or Quick(k.params)
        k.quick.remember(args, kwargs, spec, where)
    return report


def explore(
    k: Kernel, grid: tuple[int, int, int], machine: str | None, args: tuple, kwargs: dict[str, Any]
) -> Any:
    """Checks the arguments and runs all schedules of `k` (sim.explore)."""
    from tklearn.sim.explore import OPTIONS
    from tklearn.sim.explore import explore as run
    from tklearn.sim.options import unknown

    unknown(k.__name__, k.params, kwargs, OPTIONS)
    options = {n: kwargs.pop(n) for n in OPTIONS if n in kwargs and n not in k.params}
    values, consts = k.bind(args, kwargs)
    types, arrays = typed(k, values)
    place(k, arrays, "simulator")
    if machine in ("cuda", "counting"):
        raise LaunchError(
            "TK411",
            "only the simulator can choose who goes on",
            hint=f"write {k.__name__}.sim[grid].explore(...)",
        )
    spec = k.specialise(types, consts)
    check_outputs(k, spec, arrays)
    given = [a.numpy() if isinstance(a, Array) else a for a in arrays]
    return run(spec, grid, given, **options)


def typed(k: Kernel, values: list[Any]) -> tuple[dict[str, T.Type], list[Any]]:
    """The argument types, and the arguments as Array or Python numbers.

    Errors: TK400 to TK402, TK406.
    """
    types: dict[str, T.Type] = {}
    out: list[Any] = []
    runtime = [(n, t) for n, t in k.params.items() if not isinstance(t, ConstType)]
    for (name, t), v in zip(runtime, values, strict=True):
        if isinstance(t, GL):
            a = array_argument(k, name, t, v)
            types[name] = GL(t.dtype, len(a.shape))
            out.append(a)
        else:
            assert isinstance(t, Scalar)
            types[name] = t
            out.append(number_argument(k, name, t, v))
    return types, out


def _refuse(k: Kernel, name: str, code: str, message: str, hint: str = "") -> LaunchError:
    """An error about one argument, shown at its parameter."""
    return LaunchError(code, message, parameter_loc(k.fn, name), hint)


def array_argument(k: Kernel, name: str, t: GL, v: Any) -> Array:
    """One argument as an array that the kernel can use. Errors TK400, TK401, TK402, TK406."""
    a = tensor.describe(v)
    want = f"'{name}' of {k.__name__}"
    if a is None:
        raise _refuse(
            k,
            name,
            "TK400",
            f"{want} must be an array of {t.dtype.name}, not {type(v).__name__}",
            f"pass a NumPy, CuPy or torch array: np.asarray(x, {_numpy_name(t.dtype)})",
        )
    if a.dtype != t.dtype:
        fix = f"x.astype({_numpy_name(t.dtype)})"
        if a.library == "torch":
            fix = f"x.to(torch.{_torch_name(t.dtype)})"
        raise _refuse(
            k,
            name,
            "TK401",
            f"{want} must be {t.dtype.name}, but it is {a.dtype_name}",
            f"convert with {fix}, or annotate another dtype",
        )
    if not 1 <= len(a.shape) <= 4:
        raise _refuse(
            k,
            name,
            "TK402",
            f"{want} has {len(a.shape)} dimensions",
            "arrays have 1 to 4: x.reshape(...)",
        )
    if a.size and ((a.strides[-1] != 1 and a.shape[-1] > 1) or any(s < 0 for s in a.strides)):
        dense = {"numpy": "np.ascontiguousarray(x)", "cupy": "cupy.ascontiguousarray(x)"}
        raise _refuse(
            k,
            name,
            "TK402",
            f"{want} has strides {a.strides} (in elements)",
            "the last axis must be contiguous and no stride negative: "
            + dense.get(a.library, "x.contiguous()"),
        )
    if any(n >= 1 << 31 for n in a.shape):
        raise _refuse(k, name, "TK402", f"{want} has shape {a.shape}", "each axis is below 2**31")
    if a.requires_grad and _grad_enabled():
        raise _refuse(
            k,
            name,
            "TK406",
            f"{want} requires grad, and a kernel has no gradient of its own",
            "pass x.detach(), work under torch.no_grad(), or make an operator with tk.torch_op",
        )
    return a


def _grad_enabled() -> bool:
    import torch

    return torch.is_grad_enabled()


def _numpy_name(d: T.DType) -> str:
    return {
        "bf16": "ml_dtypes.bfloat16",
        "e4m3": "ml_dtypes.float8_e4m3fn",
        "e5m2": "ml_dtypes.float8_e5m2",
    }.get(d.name, f"np.{tensor.NUMPY_DTYPES[d.name]}")


def _torch_name(d: T.DType) -> str:
    return next((n for n, k in tensor._TORCH_NAMES.items() if k == d.name), d.name)


def number_argument(k: Kernel, name: str, t: Scalar, v: Any) -> Any:
    d = t.dtype
    v = v.item() if hasattr(v, "item") and getattr(v, "shape", None) == () else v
    what = f"'{name}' of {k.__name__}"
    if not isinstance(v, numbers.Real):
        hint = "annotate it as an array, tk.gl_fl, if one was meant" if tensor.describe(v) else ""
        raise _refuse(
            k, name, "TK400", f"{what} must be a number ({d.name}), not {type(v).__name__}", hint
        )
    if d.kind == "f":
        return float(v)
    if d.kind == "b":
        return bool(v)
    if not isinstance(v, numbers.Integral):
        raise _refuse(
            k,
            name,
            "TK400",
            f"{what} must be a whole number ({d.name}), not {v!r}",
            "pass int(x), or annotate it tk.f32",
        )
    lo, hi = RANGES[d.name]
    n = int(v)
    if not lo <= n < hi:
        raise _refuse(
            k, name, "TK400", f"{what} is {n}, which does not fit {d.name}", f"{lo} to {hi - 1}"
        )
    return n


def place(k: Kernel, arrays: list[Any], machine: str | None) -> str:
    """The device all arrays live on. Errors TK405, TK420."""
    devices: dict[str, str] = {}
    names = [n for n, t in k.params.items() if not isinstance(t, ConstType)]
    for n, a in zip(names, arrays, strict=True):
        if isinstance(a, Array):
            devices.setdefault(a.device, n)
    if len(devices) > 1:
        parts = ", ".join(f"'{n}' on {d}" for d, n in devices.items())
        raise LaunchError(
            "TK405",
            f"the arrays of {k.__name__} live on different devices: {parts}",
            hint="move them to one device",
        )
    where = next(iter(devices), "cpu")
    if where != "cpu" and not where.startswith("cuda"):
        raise LaunchError(
            "TK405",
            f"arrays on {where} cannot be used",
            hint="move them to the CPU or to a CUDA GPU",
        )
    if machine == "simulator" and where != "cpu":
        raise LaunchError(
            "TK405",
            f"the simulator works on arrays in host memory, not on {where}",
            hint="pass x.cpu() or cupy.asnumpy(x)",
        )
    if machine in ("cuda", "counting") and where == "cpu":
        raise LaunchError(
            "TK420",
            f"{k.__name__}.gpu needs arrays on a GPU; these are in host memory",
            hint="pass cupy.asarray(x) or x.cuda(); tk.doctor() says what this machine has",
        )
    return where


def check_outputs(k: Kernel, spec: ir.Kernel, arrays: list[Any]) -> None:
    """Errors TK403 (overlap) and TK404 (read-only)."""
    for i, (s, a) in enumerate(zip(spec.params, arrays, strict=True)):
        if not isinstance(a, Array) or not s.written:
            continue
        if not a.writable:
            raise LaunchError(
                "TK404",
                f"'{s.name}' is an output of {k.__name__}, but the array is read-only",
                s.loc,
                "pass a copy: x.copy()",
            )
        if tensor.overlaps_itself(a):
            raise LaunchError(
                "TK403",
                f"'{s.name}' is an output of {k.__name__}, but several of its indices name "
                f"one element (strides {a.strides})",
                s.loc,
                "pass a copy: x.copy()",
            )
        for j, (r, b) in enumerate(zip(spec.params, arrays, strict=True)):
            if i != j and isinstance(b, Array) and tensor.overlap(a, b):
                raise LaunchError(
                    "TK403",
                    f"'{s.name}' is an output of {k.__name__} and overlaps '{r.name}'",
                    s.loc,
                    f"write into another array: {r.name}.copy(), np.empty_like({r.name})",
                )


def unread_axis(spec: ir.Kernel, grid: tuple[int, int, int]) -> str:
    """A grid axis with several blocks that the kernel never asks for: they all do the same work."""
    read, _ = _asked(spec)
    axes = (a for a, n in zip("xyz", grid, strict=True) if n > 1 and f"blockIdx.{a}" not in read)
    return next(axes, "")


def _asked(spec: ir.Kernel) -> tuple[set[str], dict[ir.Sym, set[int]]]:
    """The indices that a kernel reads, and the lines whose operations name each array."""
    kept = spec.__dict__.get("_asked")
    if kept is None:
        bodies = [spec.body, *(f.body for f in spec.functions)]
        read = {n.name for b in bodies for n in ir.walk(b) if isinstance(n, ir.Special)}
        lines: dict[ir.Sym, set[int]] = {}
        for s in ir.walk(spec.body):
            if isinstance(s, ir.Do):
                for v in s.args:
                    if isinstance(v, ir.Var) and isinstance(v.type, GL):
                        lines.setdefault(v.sym, set()).add(s.loc.line)
        kept = spec.__dict__["_asked"] = (read, lines)
    return kept


def astray(
    spec: ir.Kernel, args: list[Any], lines: dict[int, dict[str, int]], clipped: dict[int, int]
) -> list[str]:
    """Arrays whose tile accesses ask for more past the end than inside, of which they see the less
    than half: most often the sign of coordinates in elements. A small or ragged array is not one:
    it is reached in full.
    """
    found: list[str] = []
    if not clipped:
        return found
    _, named = _asked(spec)
    for sym, a in zip(spec.params, args, strict=True):
        used = named.get(sym, set())
        past = {n: clipped[n] for n in sorted(used & clipped.keys())}
        size = sym.type.dtype.itemsize
        moved = sum(_moved(lines.get(n, {}), past.get(n, 0) * size) for n in used)
        if sum(past.values()) * size > moved and moved < a.nbytes / 2:
            found.append(
                f"tile coordinates count tiles, not elements: {sum(past.values()):,} of the "
                f"elements that line {', '.join(map(str, past))} asks of '{sym.name}' "
                f"({' x '.join(map(str, a.shape))}) are past its end"
            )
    return found


def _moved(counts: dict[str, int], past: int) -> int:
    """Bytes inside an array that a line moved; TMA's count holds what it filled with zeros."""
    by_tma = sum(v for k, v in counts.items() if k.startswith("tma_") and k.endswith("_bytes"))
    ideal = counts.get("global_ld_ideal", 0) + counts.get("global_st_ideal", 0)
    return max(by_tma - past, 0) if by_tma else 32 * ideal


def simulate(
    k: Kernel, spec: ir.Kernel, grid: tuple[int, int, int], args: list[Any], options: dict[str, Any]
) -> Report:
    from tklearn.devices import device as row
    from tklearn.sim import simulate as run
    from tklearn.sim.options import checked

    options = checked(spec, grid, options)
    device = options.pop("device", "H200")
    try:
        family = row(device).arch.family.lower()
    except KeyError as e:
        raise LaunchError("TK411", str(e.args[0]), spec.loc, "or give arch=") from None
    if options.get("mma") == "exact":
        options.setdefault("arch", family)
    if 0 in grid:
        return Report(spec.name, "simulator", device, grid, spec.threads, spec.file, spec.loc.line)
    chosen = options.get("blocks")
    if chosen is None and not isinstance(options.get("schedule", ""), str):
        chosen = [0]
    total = math.prod(grid) if chosen is None else len(chosen)
    progress = Progress(f"simulating {spec.name}, blocks", total)
    try:
        r = run(spec, grid, args, progress=progress.step, **options)
    except Race as e:
        axis = "" if e.hint.startswith("a lock") else unread_axis(spec, grid)
        if e.code == "TK502" and axis:
            seen = e.timeline
            e = Race(
                e.code,
                e.message,
                e.loc,
                f"the grid has {grid['xyz'.index(axis)]} blocks along {axis}, but {spec.name} does "
                f"not read blockIdx.{axis}: {spec.name}[...] takes numbers of blocks only, threads "
                "stand in @tk.kernel(threads=...)",
            )
            e.timeline = seen
            raise e from None
        raise
    finally:
        progress.done()
    stats = {n: getattr(r, n) for n in ("batches", "resumes", "calls") if hasattr(r, n)}
    return Report(
        spec.name,
        "simulator",
        device,
        grid,
        spec.threads,
        spec.file,
        spec.loc.line,
        r.lines,
        r.clipped,
        wall=r.seconds,
        notes=astray(spec, args, r.lines, r.clipped) if chosen is None and r.clipped else [],
        stats=stats,
        accesses=r.accesses,
        timeline=r.timeline,
    )
