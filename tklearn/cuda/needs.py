"""What a kernel asks of the GPU beyond plain CUDA: arrays that TMA works on, and sm_90a's parts.

Read off the IR; emit.py writes it into types and options, launch.py acts on it. Knows nothing of
C++ or of the driver.
"""

from __future__ import annotations

from collections.abc import Iterator

from tklearn.lang import ir
from tklearn.lang.errors import Loc
from tklearn.lang.types import GL, ST, SV, Shared

Tiles = dict[ir.Sym, tuple[ST | SV, ...]]


def functions(k: ir.Kernel) -> list[ir.Function]:
    """Every helper that the kernel reaches, callees before callers."""
    found: list[ir.Function] = []

    def visit(body: list[ir.Stmt]) -> None:
        for n in ir.walk(body):
            if isinstance(n, ir.CallDevice) and n.fn not in found:
                visit(n.fn.body)
                found.append(n.fn)

    visit(k.body)
    for f in k.functions:
        if f not in found:
            visit(f.body)
            found.append(f)
    return found


def operations(k: ir.Kernel) -> Iterator[ir.Do]:
    """Every statement row that the kernel and its helpers use."""
    for body in (k.body, *(f.body for f in functions(k))):
        yield from (n for n in ir.walk(body) if isinstance(n, ir.Do))


def tma_tiles(k: ir.Kernel, stored: bool = False) -> Tiles:
    """The types of tile that TMA moves to or from each array: of the kernel and of its helpers.

    An array that TMA does not touch is not in the result. stored: only those it stores to.
    """
    found: dict[ir.Sym, list[ST | SV]] = {}
    units: list[ir.Function | ir.Kernel] = [*functions(k), k]
    for f in units:
        bound: dict[ir.Sym, ir.Expr] = {}
        for n in ir.walk(f.body):
            if isinstance(n, ir.Decl) and n.init is not None and n.sym.storage == "ref":
                bound[n.sym] = n.init
            elif isinstance(n, ir.Do) and n.op.name.startswith("tma."):
                if stored and n.op.effect != "tma_store":
                    continue
                arrays = [a for a in n.args if _is(a, GL)]
                tiles = [a.type for a in n.args if _is(a, ST) or _is(a, SV)]
                for a in arrays:
                    _add(found, _root(a, bound), tiles)
            elif isinstance(n, ir.CallDevice):
                for p, a in zip(n.fn.params, n.args, strict=False):
                    if p in found:
                        _add(found, _root(a, bound), found[p])
    return {s: tuple(t) for s, t in found.items()}


def _is(a: object, kind: type) -> bool:
    return isinstance(a, ir.Expr) and isinstance(a.type, kind) and not isinstance(a.type, Shared)


def _root(a: ir.Expr, bound: dict[ir.Sym, ir.Expr]) -> ir.Sym:
    """The parameter behind an array: other names for it are followed."""
    assert isinstance(a, ir.Var)
    while a.sym in bound:
        a = bound[a.sym]
        assert isinstance(a, ir.Var)
    return a.sym


def _add(found: dict[ir.Sym, list[ST | SV]], array: ir.Sym, tiles: list[ST | SV]) -> None:
    kept = found.setdefault(array, [])
    kept += [t for t in dict.fromkeys(tiles) if t not in kept]


def reallocates(k: ir.Kernel) -> bool:
    """Whether registers move between its warpgroups."""
    return any(n.op.effect == "registers" for n in operations(k))


def multiplies(k: ir.Kernel) -> bool:
    """Whether it uses the tensor cores of a warpgroup."""
    return any(n.op.effect in ("wgmma", "wgmma_group") for n in operations(k))


def hopper_only(k: ir.Kernel) -> Loc | None:
    """The first line that only sm_90a can do: wgmma and setmaxnreg; newer GPUs lack the former."""
    only = ("wgmma", "wgmma_group", "registers")
    return next((n.loc for n in operations(k) if n.op.effect in only), None)
