"""What a row of the op table is, and the table itself; ops.py and async_rows.py fill it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tklearn.lang.types import Type


@dataclass(frozen=True)
class Param:
    """One parameter; `default` is used when it is left out.

    role: dst src acc coord value index ref pred static sem, ref_tile (a tile of which only the type
    counts), tiles (the last parameter: one or more shared tiles).
    """

    name: str
    role: str
    default: Any = ...


@dataclass(frozen=True)
class Op:
    """One row.

    `effect`: pure fill load store load_async async_group sync mma mask atomic shuffle; of
    asynchrony: sem wait named registers fence prefetch tma_load tma_store tma_group wgmma
    wgmma_group.
    """

    name: str
    scope: str  # lane, warp, group (a warpgroup: 4 warps), block
    params: tuple[Param, ...]
    rule: Callable[..., Type | None]
    effect: str
    cpp: str
    doc: str
    arch: int = 75
    order: str = ""
    nan: str = ""
    intrinsic: Any = None  # (cuda text, sim function, types) of a learner's own row

    @property
    def is_value(self) -> bool:
        return self.effect in ("pure", "shuffle", "atomic")


OPS: dict[str, Op] = {}


def row(
    name: str,
    scope: str,
    params: str,
    rule: Callable,
    effect: str,
    doc: str,
    *,
    cpp: str | None = None,
    arch: int = 75,
    order: str = "",
    nan: str = "",
    defaults: dict[str, Any] | None = None,
) -> None:
    """Adds a row. `params`: "name:role" of each parameter, separated by spaces."""
    ps = []
    for p in params.split():
        pname, role = p.split(":")
        ps.append(Param(pname, role, (defaults or {}).get(pname, ...)))
    OPS[name] = Op(
        name, scope, tuple(ps), rule, effect, cpp or name.replace(".", "::"), doc, arch, order, nan
    )
