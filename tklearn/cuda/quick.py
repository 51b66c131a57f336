"""Launches like earlier ones, from the caller's own arrays, in a few microseconds.

Knows what makes two launches alike (dtypes, dimensions, compile-time values) and what must be
looked at every time (addresses, sizes, strides, overlaps). Whatever is not plainly fine goes the
long way, which has the messages.
"""

from __future__ import annotations

import struct
import sys
from typing import Any

from tklearn.cuda.launch import Launcher, current_stream, gl_fields, launcher
from tklearn.lang import ir
from tklearn.report import Report


class Quick:
    """The launches of one kernel that were made before, by the types of their arguments.

    `roles`: for each parameter in order its name and "array", "number" or "const". A call that is
    not plainly like an earlier one gives None, and the caller takes the long way.
    """

    def __init__(self, roles: list[tuple[str, str]]) -> None:
        self._roles = [r for _, r in roles]
        self._consts = {n for n, r in roles if r == "const"}
        self._made: dict[tuple[Any, ...], tuple[ir.Kernel, Launcher]] = {}

    def key(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
        """What decides specialisation and device: dtypes, dimensions, compile-time values."""
        torch = sys.modules.get("torch")
        tensor = torch.Tensor if torch is not None else None
        parts: list[Any] = []
        for role, a in zip(self._roles, args):
            kind = type(a)
            if role == "array":
                if kind is tensor:
                    parts += (a.dtype, a.dim(), a.get_device())
                elif kind.__module__.startswith("cupy"):
                    parts += (a.dtype, a.ndim, a.data.device_id)
                else:
                    return None
            elif role == "const":
                parts += (kind, a)
            elif kind is int or kind is float or kind is bool:
                parts.append(kind)
            else:
                return None
        if kwargs:
            if not self._consts.issuperset(kwargs):
                return None
            parts += ((n, type(v), v) for n, v in kwargs.items())
        return (len(args), *parts)

    def remember(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], spec: ir.Kernel, where: str
    ) -> None:
        """Next time, arguments like these may go the quick way."""
        key = self.key(args, kwargs)
        if key is not None:
            self._made[key] = spec, launcher(spec, int(where.partition(":")[2] or 0))

    def find(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[ir.Kernel, Launcher] | None:
        """The specialisation and launcher of an earlier call like this one."""
        try:
            key = self.key(args, kwargs)
            return self._made.get(key) if key is not None else None
        except TypeError:  # a compile-time value that cannot be a key: the long way says so
            return None

    def launch(
        self, one: Launcher, grid: tuple[int, int, int], args: tuple[Any, ...]
    ) -> Report | None:
        """Launch with the caller's own arrays; None if they need a closer look."""
        torch = None
        values: list[Any] = []
        objects: list[Any] = []
        spans: list[tuple[int, int] | None] = []
        for role, a in zip(self._roles, args):
            if role == "array":
                if hasattr(a, "data_ptr"):
                    torch = sys.modules["torch"]
                    ptr, shape, strides = a.data_ptr(), a.shape, a.stride()
                    if a.requires_grad and torch.is_grad_enabled():
                        return None
                else:
                    item = a.itemsize
                    ptr, shape, strides = a.data.ptr, a.shape, tuple(s // item for s in a.strides)
                span = _span(ptr, shape, strides, one.itemsizes[len(spans)])
                if span is None:
                    return None
                values += gl_fields(ptr, shape, strides)
                spans.append(span)
            elif role == "number":
                values.append(a)
                spans.append(None)
            else:
                continue
            objects.append(a)
        if len(spans) != len(one.arrays) or 0 in grid or _overlaps(spans, one.written):
            return None
        try:
            one.enqueue(grid, values, current_stream(one.device, torch))
        except (struct.error, OverflowError):
            return None
        return one.report(grid, one.timer(grid, values, objects, torch))


def _span(
    ptr: int, shape: tuple[int, ...], strides: tuple[int, ...], item: int
) -> tuple[int, int] | None:
    """An array's first byte and one past its last; None unless its rows plainly do not overlap."""
    extent = 1
    for n, s in zip(reversed(shape), reversed(strides)):
        if n == 0 or s < extent or n >= 1 << 31:
            return None
        extent += (n - 1) * s
    return (ptr, ptr + extent * item) if strides[-1] == 1 else None


def _overlaps(spans: list[tuple[int, int] | None], written: tuple[int, ...]) -> bool:
    for w in written:
        a = spans[w]
        for i, b in enumerate(spans):
            if b is not None and i != w and a is not None and a[0] < b[1] and b[0] < a[1]:
                return True
    return False
