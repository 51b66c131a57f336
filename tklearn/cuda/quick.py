"""Launches like earlier ones, from the caller's own arrays, in a few microseconds.

For each kind of call that went the long way, a straight-line Python function is written and
compiled (as dataclasses writes __init__): it looks at what may have changed (types, sizes, strides,
overlaps), packs the argument buffer and launches. Whatever is not plainly fine goes the long way
again, which has the messages.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from tklearn.cuda.launch import Launcher, current_stream, launcher, object_values
from tklearn.lang import ir
from tklearn.lang.types import GL, ConstType, Type
from tklearn.report import Report

MOST = 16  # kinds of calls kept for one kernel


class Quick:
    """The kinds of calls of one kernel that were made before, the newest first.

    `params`: the kernel's annotated parameters in order.
    """

    def __init__(self, params: dict[str, Type]) -> None:
        self._params = params
        self._plans: list[tuple[tuple[Any, ...], ir.Kernel, Callable[..., Report | None]]] = []

    def again(
        self,
        grid: tuple[int, int, int],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        is_current: Callable[[ir.Kernel], bool],
    ) -> Report | None:
        """Launch, if a call like this was made before and nothing needs a closer look.

        is_current: whether the module constants that a specialisation read are still the same.
        """
        for _, spec, plan in self._plans:
            report = plan(grid, args, kwargs, spec, is_current)
            if report is not None:
                return report
        return None

    def remember(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], spec: ir.Kernel, where: str
    ) -> None:
        """Next time, a call like this one may go the quick way. `where`: its device, "cuda:0"."""
        kind = (spec, where, tuple(kwargs), *map(type, args))
        arrays = [t for t in self._params.values() if isinstance(t, GL)]
        given = dict(zip(self._params, args, strict=False))
        if any(k == kind for k, _, _ in self._plans) or len(given) + len(kwargs) < len(arrays):
            return
        one = launcher(spec, int(where.partition(":")[2] or 0))
        plan = _plan(self._params, given, kwargs, spec, one)
        if plan is not None:
            self._plans.insert(0, (kind, spec, plan))
            del self._plans[MOST:]


def _plan(
    params: dict[str, Type],
    given: dict[str, Any],
    kwargs: dict[str, Any],
    spec: ir.Kernel,
    one: Launcher,
) -> Callable[..., Report | None] | None:
    """The function for calls of one kind; None if a run-time argument came by keyword."""
    known: dict[str, Any] = {
        "launch": one.driver_launch, "pack_into": one.format.pack_into, "buffer": one.buffer,
        "lock": one.lock, "get_device": one.get_device, "device": one.device, "one": one,
        "report": _reporter(one), "error": struct.error, "stream_of": current_stream,
        "torch": sys.modules.get("torch"), "handle": one.handle,
    }  # fmt: skip
    checks, fields, spans = [f"len(args) == {len(given)} and len(kwargs) == {len(kwargs)}"], [], {}
    names = [f"a{i}" for i in range(len(given))]
    body: list[str] = []
    objects: list[str] = []
    torch = False
    for n, v in kwargs.items():
        if not isinstance(params[n], ConstType):
            return None
        known[f"k_{n}"] = v
        checks.append(f"type(kwargs.get({n!r})) is type(k_{n}) and kwargs[{n!r}] == k_{n}")
    runtime = 0
    for i, (a, t) in enumerate(zip(given.values(), params.values(), strict=False)):
        known[f"t{i}"] = type(a)
        checks.append(f"type(a{i}) is t{i}")
        if isinstance(t, ConstType):
            known[f"k{i}"] = a
            checks.append(f"a{i} == k{i}")
            continue
        if isinstance(t, GL):
            is_torch = hasattr(a, "data_ptr")
            torch |= is_torch
            known[f"d{i}"] = a.dtype
            checks.append(f"a{i}.dtype == d{i}")
            body += _array_lines(i, len(a.shape), t.dtype.itemsize, is_torch)
            fields += _array_fields(i, len(a.shape))
            maps = one.maps[runtime]
            if maps is not None:  # encoded for an array that lies the same way, or not yet
                known[f"maps{i}"] = maps.kept.get
                body.append(f"m{i} = maps{i}(({_map_key(i, len(a.shape))}))")
                body.append(f"if m{i} is None: return None")
                fields.append(f"m{i}")
            spans[runtime] = i
        else:
            fields.append(f"a{i}")
        objects.append(f"a{i}")
        runtime += 1
    if runtime != len(spec.params) or not objects:
        return None
    apart = [
        f"(p{spans[w]} >= e{i} or p{i} >= e{spans[w]})"
        for w in one.written for r, i in spans.items() if r != w
    ]  # fmt: skip
    stream = "torch._C._cuda_getCurrentRawStream(device)" if torch else "stream_of(device, None)"
    unpack = f"{', '.join(names)}, = args" if names else "pass"
    fixed = ", ".join(map(str, (*one.threads, one.shared)))
    given_at = ", ".join(map(str, one.arguments))
    lines = [
        "def plan(grid, args, kwargs, spec, is_current):",
        f"    if not ({checks[0]}): return None",
        f"    {unpack}",
        f"    if not ({' and '.join(checks[1:]) or True}): return None",
        "    try:",  # an array of another number of dimensions cannot be unpacked
        *(f"        {b}" for b in body),
        "    except ValueError: return None",
        f"    if not ({' and '.join([*apart, '0 not in grid'])}): return None",
        "    if get_device() != device: return None",
        *(["    if not is_current(spec): return None"] if spec.captures or spec.helpers else []),
        "    try:",
        "        with lock:",
        f"            pack_into(buffer, 0, {', '.join(fields)})",
        f"            stream = {stream}",
        f"            try: launch(handle, *grid, {fixed}, stream, {given_at})",
        "            except RuntimeError: one.launch_packed(grid, stream)",  # has the messages
        "    except (error, OverflowError): return None",
        f"    return report(grid, ({', '.join(objects)},), {'torch' if torch else None})",
    ]
    exec("\n".join(lines), known)  # the text is made above, of indices and fixed words
    return known["plan"]  # type: ignore[no-any-return]


def _array_lines(i: int, ndim: int, itemsize: int, torch: bool) -> list[str]:
    """Reads array i: first byte p, end e. Gives up unless its rows plainly lie apart."""
    s = [f"s{i}_{k}" for k in range(ndim)]
    q = [f"q{i}_{k}" for k in range(ndim)]
    if torch:
        lines = [
            f"if a{i}.get_device() != device: return None",
            f"if a{i}.requires_grad and torch.is_grad_enabled(): return None",
            f"p{i} = a{i}.data_ptr()",
            f"{', '.join(s)}, = a{i}.shape",
        ]
        if ndim == 1:
            lines.append(f"if not a{i}.is_contiguous(): return None")
            lines.append(f"{q[0]} = 1")
        else:
            lines.append(f"{', '.join(q)}, = a{i}.stride()")
        unit = 1
    else:
        lines = [
            f"if a{i}.data.device_id != device: return None",
            f"p{i} = a{i}.data.ptr",
            f"{', '.join(s)}, = a{i}.shape",
            f"{', '.join(q)}, = a{i}.strides",
        ]
        unit = itemsize
    # Rows lie apart if each stride is at least the extent of what is inside it.
    apart = [f"{q[-1]} == {unit}", f"{s[-1]} > 0"]
    extent = s[-1] if unit == 1 else f"{s[-1]} * {unit}"
    for k in range(ndim - 2, -1, -1):
        apart += [f"{q[k]} >= {extent}", f"{s[k]} > 0"]
        extent = f"({s[k]} - 1) * {q[k]} + {extent}"
    lines.append(f"if not ({' and '.join(apart)}): return None")
    scale = f"({extent}) * {itemsize}" if unit == 1 else extent
    lines.append(f"e{i} = p{i} + {scale}")
    if not torch:
        lines += [f"{x} //= {itemsize}" for x in q[:-1]]
    return lines


def _array_fields(i: int, ndim: int) -> list[str]:
    """The header's gl: pointer, dim[4], stride[3]."""
    dims = ["1"] * (4 - ndim) + [f"s{i}_{k}" for k in range(ndim)]
    strides = ["0"] * (4 - ndim) + [f"q{i}_{k}" for k in range(ndim - 1)]
    return [f"p{i}", *dims, *strides]


def _map_key(i: int, ndim: int) -> str:
    """What tensor maps are kept by: address, shape, strides without the last."""
    strides = [f"q{i}_{k}" for k in range(ndim - 1)]
    return ", ".join([f"p{i}", *(f"s{i}_{k}" for k in range(ndim)), *strides])


def _reporter(one: Launcher) -> Callable[..., Report]:
    """Makes the report of a launch by copying one that was made before: a third of the time.

    What a GPU run leaves empty is shared between reports, and so cannot be changed.
    """
    fields = dict(vars(one.report((1, 1, 1), None)))
    nothing: Mapping[Any, Any] = MappingProxyType({})
    fields |= {"lines": nothing, "clipped": nothing, "stats": nothing, "notes": ()}

    def report(grid: tuple[int, int, int], objects: tuple[Any, ...], torch: Any) -> Report:
        made = Report.__new__(Report)
        values = fields.copy()
        values["grid"] = grid
        values["timer"] = lambda: one.timer(grid, object_values(one, objects), objects, torch)()
        made.__dict__ = values
        return made

    return report
