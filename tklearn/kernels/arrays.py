"""What every `run` of the gallery does around its kernel: look at arrays, make one, launch.

Knows NumPy, CuPy and torch arrays; knows no kernel.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

import tklearn as tk
from tklearn.devices import device
from tklearn.tensor import Array, describe, traced

FLOATS = (tk.f32, tk.f16, tk.bf16)


def cdiv(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)


def look(x: Any, name: str, ndim: int, dtypes: tuple = FLOATS) -> Array:
    """The array `x`, if it has `ndim` dimensions and one of the dtypes. Errors TK400 to TK402."""
    a = describe(x)
    if a is None:
        raise tk.LaunchError(
            "TK400",
            f"'{name}' must be an array, not {type(x).__name__}",
            hint="pass a NumPy, CuPy or torch array",
        )
    if a.dtype not in dtypes:
        names = " or ".join(d.name for d in dtypes)
        raise tk.LaunchError("TK401", f"'{name}' must be {names}, but it is {a.dtype_name}")
    if len(a.shape) != ndim:
        raise tk.LaunchError(
            "TK402", f"'{name}' must have {ndim} dimensions, but its shape is {a.shape}"
        )
    return a


def fit(ok: bool, message: str, hint: str = "") -> None:
    """Error TK410 (sizes do not fit this kernel) unless `ok`."""
    if not ok:
        raise tk.LaunchError("TK410", message, hint=hint)


def empty(like: Any, shape: tuple[int, ...], dtype: Any = None) -> Any:
    """A new contiguous array of like's library, device and dtype (or tk.f32)."""
    if hasattr(like, "new_empty"):
        import torch

        return like.detach().new_empty(shape, dtype=torch.float32 if dtype is tk.f32 else None)
    kind = np.float32 if dtype is tk.f32 else None
    return np.empty_like(like, shape=shape, dtype=kind, order="C")  # CuPy makes its own


def output(out: Any, like: Any, shape: tuple[int, ...], dtype: Any = None) -> Any:
    """`out` if it has the shape, or a new array if it is None. Error TK410."""
    if out is None:
        return empty(like, shape, dtype)
    fit(tuple(out.shape) == shape, f"'out' has shape {tuple(out.shape)}, the result {shape}")
    return out


def vector_width(n: int, *arrays: Array) -> int:
    """Elements of one access, at most 16 bytes, that divide runs of n elements and are aligned."""
    item = arrays[0].itemsize
    width = 16 // item
    while width > 1 and (
        n % width
        or any(a.ptr % (width * item) or any(s % width for s in a.strides[:-1]) for a in arrays)
    ):
        width //= 2
    return width


def for_tma(*arrays: Array, stored: Array | None = None) -> None:
    """Error TK410 unless starts, outer strides and rows stored to are multiples of 16 bytes."""
    for a in arrays if stored is None else (*arrays, stored):
        if traced(a.obj) or 0 in a.shape:
            continue
        unit = 16 // a.itemsize
        outer = [s for s, n in zip(a.strides[:-1], a.shape[:-1], strict=True) if n > 1]
        if a.ptr % 16 or any(s <= 0 or s % unit for s in outer):
            _not_for_tma(a, unit, outer)
        if a is stored and a.shape[-1] % unit:
            fit(
                False,
                f"TMA stores {unit} elements at a time, and the result has rows of {a.shape[-1]}",
                "make it wider, or use a kernel that stores from registers",
            )


def _not_for_tma(a: Array, unit: int, outer: list[int]) -> None:
    odd = [s for s in outer if s <= 0 or s % unit]
    what = f"an array of shape {a.shape}"
    hint = f"TMA takes multiples of {unit} elements: make a wider array, and pass a view of it"
    fit(not odd, f"{what} has an outer stride of {odd and odd[0]} elements", hint)
    fit(False, f"{what} does not start at a multiple of 16 bytes", hint)


def multiprocessors(x: Array) -> int:
    """Of the GPU where the array lives; for an array on the host, of the H200 that is simulated."""
    if x.device == "cpu":
        return device("H200").sms
    return _of_gpu(x.library, int(x.device.partition(":")[2] or 0))


@cache
def _of_gpu(library: str, index: int) -> int:
    if library == "torch":
        import torch

        return torch.cuda.get_device_properties(index).multi_processor_count
    import cupy

    return cupy.cuda.Device(index).attributes["MultiProcessorCount"]


def launch(kernel: tk.Kernel, grid: Any, *args: Any, options: dict[str, Any], **consts: Any) -> Any:
    """Runs the kernel where its arrays live, or on the simulator if it is given options."""
    return (kernel.sim if options else kernel)[grid](*args, **consts, **options)
