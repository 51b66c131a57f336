"""From an index tuple to an element number, and what to say when it is outside.

Works on lane values (lanes.py) and on whatever has a name, dims and strides.
"""

from __future__ import annotations

from typing import Any

import numpy as np

ndarray = np.ndarray


def flat_index(mem: Any, w: Any, at: tuple, m: Any, s: Any, dims: Any, strides: Any) -> Any:
    """The element number of an index tuple; TK504 where an active lane is outside."""
    flat: Any = 0
    for k, i in enumerate(at):
        if type(i) is ndarray:
            if i.size and (i.min() < 0 or i.max() >= dims[k]):
                i = _outside(mem, w, at, k, m, s, dims)
        elif not 0 <= i < dims[k]:
            i = _outside(mem, w, at, k, m, s, dims)
        step = strides[k]
        flat = flat + (i if step == 1 else i * step)
    return flat


def _outside(mem: Any, w: Any, at: tuple, k: int, m: Any, s: Any, dims: Any) -> Any:
    i = at[k]
    bad = (i < 0) | (i >= dims[k])
    pos = w.first(m, bad)
    if pos is None:
        return np.where(bad, 0, i) if type(i) is ndarray else 0
    idx = ", ".join(str(w.at_position(x, pos)) for x in at)
    size = f"{' x '.join(map(str, dims))} element{'s' * (list(dims) != [1])}"
    raise w.fault(
        "TK504",
        f"{mem.name}[{idx}] is outside {mem.name}, which has {size}",
        s,
        pos,
        "guard the access with an 'if', or check the index"
        + ("; negative indices do not count from the end" if w.at_position(i, pos) < 0 else ""),
    )
