"""The table of what each operation of the language does in the simulator: name -> function.

A function takes (warp, site, mask, *arguments): tiles that are written as `Tile`, values as arrays,
memory as the objects of memory.py, an element reference as (memory, index).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

OPS: dict[str, Callable[..., Any]] = {}


def op(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function for these rows of the op table."""

    def put(f: Callable[..., Any]) -> Callable[..., Any]:
        for n in names:
            OPS[n] = f
        return f

    return put
