"""Which warps of a block do the same: what the kernel's conditions say of each warp.

Warps with equal answers to every comparison that tells warps apart issue the same events, so that
one of them is walked for all. This file reads conditions; it runs no statement.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tklearn.lang import ir
from tklearn.sim.timing.values import BINARY, COMPARE

MEETING = ("sem", "wait", "sync", "named", "tma_load")  # whose barriers must be told apart


class Unknown(Exception):
    """A value that depends on more than the warp's number."""


def signatures(spec: ir.Kernel) -> list[Any]:
    """For each warp what tells it from others; equal for warps that do the same."""
    defined = _definitions(spec)
    heads = list(_heads(spec))
    out: list[Any] = []
    for w in range(spec.warps):
        facts: list[Any] = []
        for e in heads:
            try:
                v = np.asarray(_value(e, _Lanes(spec, w), defined))
                whole = e.uni.level < ir.LANE or not isinstance(e, ir.Compare)
                facts.append((bool(v.any()), bool(v.all()), int(v.flat[0]) if whole else 0))
            except Unknown:
                if e.uni.level in (ir.GROUP, ir.WARP):
                    facts.append(w // 4 if e.uni.level == ir.GROUP else w)
        out.append(tuple(facts))
    return out


def _definitions(spec: ir.Kernel) -> dict[ir.Sym, ir.Expr]:
    """Names that are assigned once, in the kernel's body."""
    found: dict[ir.Sym, ir.Expr] = {}
    changed: set[ir.Sym] = set()
    for n in ir.walk(spec.body):
        if isinstance(n, ir.Decl) and n.init is not None:
            found[n.sym] = n.init
        targets = n.targets if isinstance(n, ir.Swap) else [getattr(n, "target", None)]
        changed.update(t.sym for t in targets if isinstance(t, ir.Var))
    return {s: e for s, e in found.items() if s not in changed}


def _heads(spec: ir.Kernel) -> Iterator[ir.Expr]:
    """Comparisons and bounds that may differ between the warps of a block."""
    for body in (spec.body, *(f.body for f in spec.functions)):
        for n in ir.walk(body):
            if isinstance(n, ir.For):
                yield from (e for e in (n.lo, n.hi) if e.uni.level > ir.BLOCK)
            elif isinstance(n, ir.If | ir.While):
                parts: list[ir.Expr] = [x for x in ir.walk(n.cond) if isinstance(x, ir.Compare)]
                parts = parts or [n.cond]
                yield from (e for e in parts if e.uni.level > ir.BLOCK)
            elif isinstance(n, ir.Do) and n.op.effect in MEETING:
                inside = (x for a in n.args if isinstance(a, ir.Expr) for x in ir.walk(a))
                yield from (x for x in inside if x.uni.level in (ir.GROUP, ir.WARP))


class _Lanes:
    """The indices of a warp's threads."""

    def __init__(self, spec: ir.Kernel, w: int) -> None:
        tx, ty, _ = spec.threads
        t = np.arange(32 * w, 32 * w + 32)
        self.values: dict[str, Any] = {
            "threadIdx.x": t % tx, "threadIdx.y": t // tx % ty, "threadIdx.z": t // (tx * ty),
            "laneid": t % 32, "warpid": w, "warpgroup.groupid": w // 4, "warpgroup.warpid": w % 4,
            "warpgroup.laneid": t % 128,
        }  # fmt: skip


def _value(e: Any, at: _Lanes, defined: dict[ir.Sym, ir.Expr]) -> Any:
    if isinstance(e, ir.Const):
        return e.value
    if isinstance(e, ir.Special) and e.name in at.values:
        return at.values[e.name]
    if isinstance(e, ir.Var) and e.sym in defined:
        return _value(defined[e.sym], at, defined)
    if isinstance(e, ir.Binary) and e.op != "/":
        return BINARY[e.op](_value(e.a, at, defined), _value(e.b, at, defined))
    if isinstance(e, ir.Compare):
        return COMPARE[e.op](_value(e.a, at, defined), _value(e.b, at, defined))
    raise Unknown
