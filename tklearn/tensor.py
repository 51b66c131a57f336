"""Arrays in and out: NumPy, CuPy and torch seen as one kind of thing.

Knows dtypes, strides, addresses and devices of arrays; knows nothing of kernels. CuPy and torch are
recognised by the module of the object's type, so neither is imported here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from tklearn.lang import types as T

NUMPY_DTYPES: dict[str, Any] = {
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "i32": np.dtype(np.int32),
    "u32": np.dtype(np.uint32),
    "i64": np.dtype(np.int64),
    "u8": np.dtype(np.uint8),
    "bool": np.dtype(np.bool_),
}
_FROM_NUMPY = {d: T.DTYPES[n] for n, d in NUMPY_DTYPES.items()}
_TORCH_NAMES = {
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2",
    "int32": "i32",
    "uint32": "u32",
    "int64": "i64",
    "uint8": "u8",
    "bool": "bool",
}
_TORCH_BITS = {"bf16": "int16", "e4m3": "uint8", "e5m2": "uint8"}  # NumPy lacks these


@dataclass(frozen=True)
class Array:
    """One array argument.

    Attributes: `obj` the caller's object; `library` numpy, cupy or torch; `device` "cpu" or
    "cuda:N"; `dtype` a DType or None (`dtype_name` says what it was); `shape` and `strides` in
    elements; `ptr` address of the first element; `writable`; `requires_grad` (torch).
    """

    obj: Any
    library: str
    device: str
    dtype: T.DType | None
    dtype_name: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    ptr: int
    writable: bool
    requires_grad: bool = False

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize if self.dtype else 1

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    def extent(self) -> tuple[int, int]:
        """First and one past the last byte that the array can touch."""
        if self.size == 0:
            return self.ptr, self.ptr
        steps = [(n - 1) * s for n, s in zip(self.shape, self.strides, strict=True)]
        lo = sum(s for s in steps if s < 0)
        hi = sum(s for s in steps if s > 0) + 1
        return self.ptr + lo * self.itemsize, self.ptr + hi * self.itemsize

    def numpy(self) -> np.ndarray:
        """The same memory as a NumPy array (CPU), or a copy on the host (GPU)."""
        if self.library == "numpy":
            return self.obj
        if self.library == "cupy":
            return self.obj.get()
        t = self.obj.detach()
        bits = _TORCH_BITS.get(self.dtype.name) if self.dtype else None
        if bits is not None:
            import torch

            t = t.view(getattr(torch, bits))
        out = t.cpu().numpy() if self.device != "cpu" else t.numpy()
        return out.view(NUMPY_DTYPES[self.dtype.name]) if bits and self.dtype else out


def library_of(x: Any) -> str | None:
    """numpy, cupy or torch; None for anything that is not an array."""
    if isinstance(x, np.ndarray):
        return "numpy"
    root = type(x).__module__.partition(".")[0]
    if root == "torch" and hasattr(x, "data_ptr"):
        return "torch"
    if root == "cupy" and hasattr(x, "__cuda_array_interface__"):
        return "cupy"
    for base in type(x).__mro__:  # torch.nn.Parameter and other subclasses
        if base.__module__.partition(".")[0] == "torch" and base.__name__ in (
            "Tensor",
            "TensorBase",
        ):
            return "torch"
    return None


def traced(x: Any) -> bool:
    """Whether torch is tracing with `x`: a tensor without memory, or a size without a value yet."""
    return type(x).__name__ in ("FakeTensor", "SymInt")


def describe(x: Any) -> Array | None:
    """What `x` is as an array, or None."""
    lib = library_of(x)
    if lib == "torch":
        name = str(x.dtype).removeprefix("torch.")
        known = _TORCH_NAMES.get(name)
        dev = "cpu" if x.device.type == "cpu" else f"{x.device.type}:{x.device.index or 0}"
        return Array(
            x, lib, dev, T.DTYPES[known] if known else None, name, tuple(x.shape),
            tuple(x.stride()), 0 if traced(x) else x.data_ptr(), True, x.requires_grad,
        )  # fmt: skip
    if lib in ("numpy", "cupy"):
        item = x.dtype.itemsize
        whole = all(s % item == 0 for s in x.strides)
        strides = tuple(s // item if whole else -1 for s in x.strides)
        ptr = x.ctypes.data if lib == "numpy" else x.data.ptr
        return Array(
            x, lib, "cpu" if lib == "numpy" else f"cuda:{x.device.id}", _FROM_NUMPY.get(x.dtype),
            str(x.dtype), x.shape, strides, ptr, lib == "cupy" or x.flags.writeable,
        )  # fmt: skip
    return None


def overlap(a: Array, b: Array) -> bool:
    """Whether two arrays share a byte (exactly for NumPy arrays, by extents elsewhere)."""
    if a.device != b.device or a.size == 0 or b.size == 0:
        return False
    lo_a, hi_a = a.extent()
    lo_b, hi_b = b.extent()
    if hi_a <= lo_b or hi_b <= lo_a:
        return False
    if a.library == b.library == "numpy":
        try:
            return np.shares_memory(a.obj, b.obj, max_work=100_000)  # type: ignore[arg-type]
        except np.exceptions.TooHardError:
            return True
    return True


def overlaps_itself(a: Array) -> bool:
    """Whether two indices name one element (broadcast views and the like)."""
    if a.size == 0:
        return False
    dims = sorted((s, n) for n, s in zip(a.shape, a.strides, strict=True) if n > 1)
    reach = 0
    for s, n in dims:
        if s <= reach:
            return True
        reach += s * (n - 1)
    return False
