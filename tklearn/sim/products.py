"""Tensor-core operations: products of tiles, single instructions on registers, ldmatrix.

A product is float32 (`mma="fast"`), with f32 inputs rounded to tf32 and f16 sums rounded to f16,
one for each mma operation, so that a batch has the bits of single blocks. With `mma="exact"` it has
the tensor core's bits (exact.py). This file knows fragments (lang/layouts.py) and how tiles are
kept; it schedules nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tklearn import numerics
from tklearn.lang import layouts
from tklearn.sim import counters, exact
from tklearn.sim.memory import Place, Tile, use
from tklearn.sim.registry import OPS, op
from tklearn.sim.spread import Spread, matmul

ndarray = np.ndarray


def accumulate(
    acc: Tile, a: Any, b: Any, how: tuple[str, str, str] | None, add: bool = True
) -> None:
    """acc += a @ b, or acc = a @ b.

    `how`: None, or the dtypes of inputs and accumulator, and the architecture, for exact bits.
    """
    old = plain(acc._a) if add else None
    if how is not None:
        zeros = np.zeros((1, acc.type.rows, acc.type.cols), np.float32)
        new = exact.tile_product(a, b, zeros if old is None else old, *how)
    else:
        new = matmul(a, b)
        if old is not None and old is acc.mine and len(old) >= len(new):
            old += new
            new = old
        elif old is not None:
            new = new + old if len(old) > len(new) else np.add(new, old, out=new)
        if acc.type.dtype.itemsize != 4:
            new = numerics.round_to(new, acc.type.dtype.name)
    acc._a = acc.mine = new


def plain(x: Any) -> Any:
    """One array for each block."""
    return x.expand() if type(x) is Spread else x


def _operand(w: Any, s: Any, t: Tile, transposed: bool, tf32: bool) -> Any:
    """A factor of a product, as it is kept."""
    if t._a is None:
        use(t, w, s)  # has the message
    x = t._a
    if type(x) is Spread:
        return x.map(lambda u: factor(u, transposed, tf32)) if transposed or tf32 else x
    return factor(x, transposed, tf32)


def factor(x: Any, transposed: bool, tf32: bool) -> Any:
    """An array as a factor of a product."""
    if tf32:
        x = numerics.round_to(x, "tf32")
    return x.transpose(0, 2, 1) if transposed else x


def _mma(ta: bool, tb: bool) -> Callable:
    def mma(w: Any, s: Any, m: Any, acc: Tile, left: Tile, right: Tile) -> None:
        d, x = acc.type, left.type
        if w.counting:
            delta = s.cache.get("delta")
            if delta is None:
                k, depth = x.rows if ta else x.cols, {1: 32, 2: 16, 4: 8}[x.dtype.itemsize]
                delta = s.cache["delta"] = counters.Delta(
                    tensor_instructions=d.rows // 16 * (d.cols // 8) * (k // depth),
                    tensor_flops=2 * d.rows * d.cols * k,
                )
            w.add(s, delta)
        if acc._a is None:
            raise w.fault(
                "TK513",
                f"'{acc.name}' ({d}) is added to but nothing was stored in it",
                s,
                hint=f"start with warp.zero({acc.name})",
            )
        tf32 = x.dtype.itemsize == 4
        a, b = _operand(w, s, left, ta, tf32), _operand(w, s, right, tb, tf32)
        how = None
        if w.launch.exact:
            exact.check(w, s, x.dtype.name)
            how = x.dtype.name, d.dtype.name, w.launch.arch
        accumulate(acc, a, b, how)
        acc.a = acc._a

    return mma


for _ta in (False, True):
    for _tb in (False, True):
        OPS["warp.mma_A" + "t" * _ta + "B" + "t" * _tb] = _mma(_ta, _tb)


def _gather(
    w: Any, s: Any, regs: list, instruction: str, operand: str, shape: tuple[int, int]
) -> Any:
    row, col = layouts.fragment(instruction, operand)
    parts = []
    for i, v in enumerate(regs):
        if v is None:
            raise w.fault(
                "TK513", f"register {i} of {operand} is read but nothing was stored in it", s
            )
        parts.append(v if type(v) is ndarray and v.ndim == 2 else np.full((1, 1), v, np.float32))
    out = np.zeros((max(len(p) for p in parts), *shape), np.float32)
    for i, v in enumerate(parts):
        out[:, row[:, i], col[:, i]] = v
    return out


def _mma_regs(instruction: str, k: int) -> Callable:
    def mma(w: Any, s: Any, m: Any, c: list, a: list, b: list) -> None:
        A, B = (
            _gather(w, s, a, instruction, "A", (16, k)),
            _gather(w, s, b, instruction, "B", (k, 8)),
        )
        C = _gather(w, s, c, instruction, "C", (16, 8))
        if k == 8:
            A, B = numerics.round_to(A, "tf32"), numerics.round_to(B, "tf32")
        if w.launch.exact:
            dtype = s.node.args[1].type.dtype.name
            C = exact.registers_product(w, s, A, B, C, dtype)
        else:
            C = C + np.matmul(A, B)
        row, col = layouts.fragment(instruction, "C")
        for i in range(4):
            c[i] = C[:, row[:, i], col[:, i]]
        w.add(s, delta)

    delta = counters.Delta(tensor_instructions=1, tensor_flops=2 * 16 * 8 * k)
    return mma


OPS["warp.mma_m16n8k16"] = _mma_regs("m16n8k16", 16)
OPS["warp.mma_m16n8k8"] = _mma_regs("m16n8k8.tf32", 8)


@op("warp.ldmatrix")
def _ldmatrix(w: Any, s: Any, m: Any, dst: list, ref: Any, trans: bool) -> None:
    mem, at = ref
    count = len(dst) // 2
    flat, _ = mem.flat(w, at, None, s)
    first = mem.geo.offsets[flat[:, : 8 * count]] + mem.base
    if (first % 16).any():
        b, lane = (int(x) for x in np.argwhere(first % 16)[0])
        raise w.fault(
            "TK505",
            f"row {lane % 8} of matrix {lane // 8} starts at byte {first[b, lane]}, "
            "which is no multiple of 16",
            s,
            (b, lane),
            "pad rows by multiples of 8 halves",
        )
    cells = flat[:, : 8 * count, None] + np.arange(8)
    over = cells // mem.geo.dims[-1] != cells[:, :, :1] // mem.geo.dims[-1]
    if over.any():
        b, lane = (int(x) for x in np.argwhere(over)[0][:2])
        raise w.fault(
            "TK504",
            f"8 elements from {mem.element(int(flat[b, lane]))} go past the end of the row",
            s,
            (b, lane),
            "each lane names the first of 8 neighbours",
        )
    if mem.log is not None:
        if len(flat) == 1:
            key = ("ldmatrix", count, flat.tobytes())
            place = mem.geo.places.get(key)
            if place is None:
                idx = np.unique(cells)
                place = mem.geo.places[key] = Place(idx, np.full(len(idx), 63))
            mem.log.read(w, place, s, True)
        else:
            rows = np.repeat(np.arange(len(flat)), 64 * count)
            mem.log.scatter(w, rows, cells.ravel(), np.full(len(rows), 63), s, False)
    if w.counting:
        counters.ldmatrix(w, s, mem.geo.offsets[flat], count)
    d = mem.values()
    v = d[:, cells[0]] if len(flat) == 1 else d[np.arange(len(d))[:, None, None], cells]
    row, col = layouts.ldmatrix(trans)
    for j in range(count):
        for e in range(2):
            dst[2 * j + e] = v[:, 8 * j + row[:, e], col[:, e]]
