"""Products of warpgroups (wgmma): operands in shared memory, accumulators in registers.

A wgmma of four warps is four agents here, one a warp: each computes its 16 rows, from its own rows
of A and all of B, when it is issued; nobody may look at the result, change an operand or use the
registers before the group was waited for. FACTS.md 5. How a product is computed is products.py's.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from tklearn.lang.types import RT
from tklearn.sim import counters, exact, products
from tklearn.sim.memory import Place, SharedMem, Tile, use
from tklearn.sim.registry import OPS, op
from tklearn.sim.spread import Spread

_changes = itertools.count(1)  # tells the order of changes and fences, nothing else


class TrackedTile(Tile):
    """A register tile of a kernel that places its own wgmma fences: it knows when it changed."""

    __slots__ = ("changed",)

    def __init__(self, type: Any, name: str, a: Any = None) -> None:
        super().__init__(type, name, a)
        self.changed = next(_changes)

    @property
    def a(self) -> Any:
        return Tile.a.fget(self)  # type: ignore[attr-defined]

    @a.setter
    def a(self, value: Any) -> None:
        Tile.a.fset(self, value)  # type: ignore[attr-defined]
        self.changed = next(_changes)


def _mma(ta: bool, tb: bool, add: bool) -> Callable:
    def mma(
        w: Any, s: Any, m: Any, acc: Tile, left: Any, right: SharedMem, fence: bool, commit: bool
    ) -> bool:
        w.tick()
        group, d = w.products.open, acc.type
        if fence:
            w.products.fenced = next(_changes)
        if add and acc._a is None:
            raise w.fault(
                "TK513",
                f"'{acc.name}' ({d}) is added to but nothing was stored in it",
                s,
                hint=f"start with warp.zero({acc.name}), or with warpgroup.mm_* instead of mma_*",
            )
        _count(w, s, d, left, right)
        group.site = group.site or s
        a, b = _left(w, s, group, left, ta), _right(w, s, group, right, tb)
        kind = right.type.dtype.name
        if w.launch.exact:
            exact.check(w, s, kind)
        how = (kind, d.dtype.name, w.launch.arch) if w.launch.exact else None
        products.accumulate(acc, a, b, how, add)
        for t in (acc, left):
            if isinstance(t, Tile):
                _hold(w, s, t, group)
        w.event("wgmma", s, group)
        if commit:
            w.products.commit()
        return w.give_way()

    return mma


def _hold(w: Any, s: Any, t: Tile, group: Any) -> None:
    """The registers belong to the tensor core until the group was waited for."""
    if isinstance(t, TrackedTile) and w.checking and t.changed > w.products.fenced:
        raise w.fault(
            "TK526",
            f"'{t.name}' ({t.type}) was changed after the last wgmma fence, and wgmma uses it",
            s,
            hint="call warpgroup.mma_fence() after the change, or leave fence=False out",
        )
    t.busy = group
    group.tiles.append(t)


def _left(w: Any, s: Any, group: Any, x: Any, transposed: bool) -> Any:
    """The 16 rows of A that this warp multiplies."""
    if isinstance(x, Tile):
        if x._a is None:
            use(x, w, s)
        return x._a
    rank = w.id % 4
    if x.log is not None:
        agent = w.launch.agents.wgmma(w.id)
        group.records.append(x.log.fly(w, agent, x.geo.whole, s, False, _rows(x, rank, transposed)))
    cut = slice(16 * rank, 16 * rank + 16)
    return _operand(x, transposed, lambda u: u[:, cut] if not transposed else u[:, :, cut])


def _right(w: Any, s: Any, group: Any, x: SharedMem, transposed: bool) -> Any:
    if x.log is not None:
        agent = w.launch.agents.wgmma(w.id)
        group.records.append(x.log.fly(w, agent, x.geo.whole, s, False))
    if x.family is not None:
        return _operand(x, transposed, lambda u: u)
    if x.turned is None or x.turned[0] != transposed:  # all warps multiply by the same tile
        x.turned = (transposed, _contiguous(_operand(x, transposed, lambda u: u)))
    return x.turned[1]


def _contiguous(x: Any) -> Any:
    """The same values; BLAS is several times faster with them if there are few rows of A."""
    return x.map(np.ascontiguousarray) if type(x) is Spread else np.ascontiguousarray(x)


def _operand(mem: SharedMem, transposed: bool, cut: Callable) -> Any:
    """A shared tile as a factor; of an f32, the tensor core reads the upper 19 bits (measured)."""

    def made(u: Any) -> Any:
        x = cut(u)
        if mem.geo.itemsize == 4:
            x = (x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
        return products.factor(x, transposed, False)

    if mem.spread is not None:
        return mem.spread.map(made)
    d = mem.values()
    mem.lent = True
    return made(d.reshape(len(d), *mem.geo.dims))


def _rows(mem: SharedMem, rank: int, transposed: bool) -> Place:
    """The elements of A that warp `rank` of a warpgroup reads: 16 rows, or columns of A^T."""
    r, c = (0, 16 * rank) if transposed else (16 * rank, 0)
    rows, cols = mem.geo.dims
    shape = (rows, 16) if transposed else (16, cols)
    return mem.geo.window(r, c, *shape, "ldmatrix")


def _count(w: Any, s: Any, d: RT, left: Any, right: SharedMem) -> None:
    """A quarter of what the wgmma of four warps costs (FACTS.md 1)."""
    if not w.counting:
        return
    delta = s.cache.get("wgmma")
    if delta is None:
        k = right.geo.n // d.cols
        itemsize = right.geo.itemsize
        depth = 32 // itemsize
        moved = right.geo.n * itemsize
        if isinstance(left, SharedMem):
            moved += left.geo.n * itemsize
        delta = s.cache["wgmma"] = counters.Delta(
            wgmma_instructions=k // depth,
            wgmma_flops=2 * d.rows * d.cols * k,
            wgmma_wavefronts=moved // 128 // 4,
        )
    w.add(s, delta)


for _ta in (False, True):
    for _tb in (False, True):
        _n = "A" + "t" * _ta + "B" + "t" * _tb
        OPS[f"warpgroup.mma_{_n}"] = _mma(_ta, _tb, True)
        OPS[f"warpgroup.mm_{_n}"] = _mma(_ta, _tb, False)


@op("warpgroup.mma_fence")
def _fence(w: Any, s: Any, m: Any) -> bool:
    w.products.fenced = next(_changes)
    return w.give_way()


@op("warpgroup.mma_commit_group")
def _commit(w: Any, s: Any, m: Any) -> bool:
    w.products.commit()
    return w.give_way()


@op("warpgroup.mma_async_wait")
def _wait(w: Any, s: Any, m: Any, n: int) -> bool:
    return w.wait(Waiting(w, n, s))


class Waiting:
    """A warp that waits for wgmma groups, which start when all four warps have issued them."""

    __slots__ = ("peers", "over", "n", "site")

    def __init__(self, w: Any, n: int, site: Any) -> None:
        first = w.id - w.id % 4
        self.peers = w.batch.warps[first : first + 4]
        self.over, self.n, self.site = len(w.products.groups) - n, n, site

    def ready(self, w: Any) -> bool:
        return all(len(p.products.groups) >= self.over for p in self.peers)

    def resume(self, w: Any) -> None:
        w.products.wait(self.n)
        w.event("multiplied", self.site, self.n)

    def says(self) -> str:
        late = [p.id for p in self.peers if len(p.products.groups) < self.over]
        who = ("warp " if len(late) == 1 else "warps ") + ", ".join(map(str, late))
        return f"mma_async_wait({self.n}): {who} of the warpgroup did not issue the same wgmma"
