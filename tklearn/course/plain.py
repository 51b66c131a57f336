"""Arrays, numbers, answers and verdicts as JSON: what passes between processes, without pickle."""

from __future__ import annotations

import base64
from typing import Any

import ml_dtypes
import numpy as np

LARGEST = 1 << 28  # bytes of an array that is taken from another process
SIMPLE = (str, int, float, bool, type(None))


def pack(x: Any) -> Any:
    """Numbers, text, arrays, and lists and dictionaries of them, as what JSON can hold.

    Errors: TypeError for anything else.
    """
    if isinstance(x, np.ndarray) and not x.dtype.hasobject:
        data = base64.b64encode(np.ascontiguousarray(x).tobytes()).decode()
        return {"array": data, "dtype": x.dtype.name, "shape": list(x.shape)}
    if isinstance(x, np.generic):
        x = x.item()
    if type(x) in SIMPLE:
        return x
    if isinstance(x, list | tuple):
        return [pack(v) for v in x]
    if isinstance(x, dict):
        return {"dict": [[pack(k), pack(v)] for k, v in x.items()]}
    raise TypeError(f"{type(x).__name__} is not plain data")


def dtype_of(name: str) -> np.dtype:
    """The dtype of this name, NumPy's or of ml_dtypes. Errors: TypeError."""
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def unpack(x: Any) -> Any:
    """What `pack` made, again. Errors: ValueError for what it did not make."""
    if type(x) in SIMPLE:
        return x
    if isinstance(x, list):
        return [unpack(v) for v in x]
    if isinstance(x, dict) and "dict" in x:
        return {unpack(k): unpack(v) for k, v in x["dict"]}
    if not isinstance(x, dict) or set(x) != {"array", "dtype", "shape"}:
        raise ValueError("not packed by pack()")
    kind = dtype_of(x["dtype"])
    raw = base64.b64decode(x["array"], validate=True)
    if kind.hasobject or len(raw) > LARGEST:
        raise ValueError("an array of objects, or too large")
    return np.frombuffer(raw, kind).reshape([int(n) for n in x["shape"]]).copy()
