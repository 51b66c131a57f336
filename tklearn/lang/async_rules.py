"""The rules of the op table for asynchrony: semaphores, TMA, warpgroup products, named barriers.

As in rules.py: a rule takes the arguments of a call and raises OpMismatch. Limits of the hardware
are those of PTX: TMA boxes, wgmma shapes and operand layouts, named barriers, setmaxnreg.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tklearn.lang import ir
from tklearn.lang import types as T
from tklearn.lang.rules import no, order, pair_with_memory, shared_copy, want
from tklearn.lang.types import RT, ST, SV, Semaphore, Shared

if TYPE_CHECKING:
    from tklearn.lang.table import Op

BARRIERS = 15  # named barriers of a block besides number 0, which is block.sync()'s
BOX = 256  # the longest side of a TMA box, in elements
GROUP_THREADS = 128
GROUP_ROWS = 64  # rows of a warpgroup's tile: 16 for each of its 4 warps


def _constant(x: Any) -> int | None:
    return x.value if isinstance(x, ir.Const) else None


# -------------------------------------------------------------------------------- semaphores
def semaphore(sem: Any, *_: Any) -> None:
    want(sem, (Semaphore,), "the semaphore")


def semaphore_count(sem: Any, count: Any) -> None:
    semaphore(sem)
    n = _constant(count)
    if n is not None and n < 1:
        no("TK205", f"a count of {n}", "it is a positive number")


def wait(sem: Any, phase: Any) -> None:
    semaphore(sem)
    p = _constant(phase)
    if p is not None and p not in (0, 1):
        no("TK205", f"phase {p}", "a phase is the parity 0 or 1: take it modulo 2")


# ----------------------------------------------------------------------------------------- TMA
def expect(sem: Any, tiles: Any) -> None:
    semaphore(sem)
    for x in tiles.items:
        t = x.type.elem if isinstance(x.type, Shared) else x.type
        if not isinstance(t, (ST, SV)):
            no(
                "TK200",
                f"bytes of {x.type} cannot be expected",
                "name the shared tiles or vectors that TMA will load",
            )
        _unpadded(t)


def tma_load(dst: Any, src: Any, coord: Any, sem: Any = None) -> None:
    order(dst, src, "load")
    _tma_pair(dst, src, coord, "the destination")
    if sem is not None:
        semaphore(sem)


def tma_store(dst: Any, src: Any, coord: Any) -> None:
    order(dst, src, "store")
    _tma_pair(src, dst, coord, "the source")


def tma_reduce(kind: str, dtypes: list[str]) -> Callable:
    def rule(dst: Any, src: Any, coord: Any) -> None:
        tma_store(dst, src, coord)
        if src.type.dtype.name not in dtypes:
            no(
                "TK212",
                f"TMA has no {kind} of {src.type.dtype.name}",
                "possible: " + ", ".join(f"tk.{d}" for d in dtypes),
            )

    return rule


def _tma_pair(tile: Any, array: Any, coord: Any, what: str) -> None:
    shared_copy(tile, array, coord, what)
    _unpadded(tile.type)
    _box(tile)


def _unpadded(t: Any) -> None:
    if isinstance(t, ST) and t.pad:
        no(
            "TK211",
            f"{t} has {t.pad} elements of padding, and TMA cannot write round them",
            "declare it without pad: a swizzle also avoids bank conflicts",
        )


def _box(tile: Any) -> None:
    t = tile.type
    inner, rows = (t.n, 1) if isinstance(t, SV) else (t.swizzle // t.dtype.itemsize or t.cols, t.rows)
    if max(inner, rows) > BOX:
        no("TK210", f"a side of {t} is longer than {BOX}, the most TMA copies at once")
    if inner * t.dtype.itemsize % 16:
        no("TK210", f"rows of {t} are no multiple of 16 bytes, in which TMA copies")


# ----------------------------------------------------------------------------------- products
def wgmma(ta: bool, tb: bool, add: bool) -> Callable:
    name = f"{'mma' if add else 'mm'}_A{'t' * ta}B{'t' * tb}"

    def rule(acc: Any, a: Any, b: Any, fence: Any, commit: Any) -> None:
        d, x, y = want(acc, (RT,), "the accumulator"), want(a, (ST, RT), "A"), want(b, (ST,), "B")
        in_registers = isinstance(x, RT)
        m, k = (x.cols, x.rows) if ta else (x.rows, x.cols)
        k2, n = (y.cols, y.rows) if tb else (y.rows, y.cols)
        if k != k2 or d.rows != 16 or m != (16 if in_registers else GROUP_ROWS) or d.cols != n:
            no("TK210", f"shapes do not match: {d} {x} {y}")
        if not isinstance(fence, bool) or not isinstance(commit, bool):
            no("TK105", f"fence and commit of warpgroup.{name} are compile-time True or False")

    return rule


def groups(name: str) -> Callable:
    def rule(n: Any) -> None:
        if type(n) is not int or n < 0:
            no("TK105", f"{name}(n) needs a compile-time number, 0 or more")

    return rule


# ------------------------------------------------------------------- a warpgroup's own memory
def group_load(dst: Any, src: Any, coord: Any) -> None:
    order(dst, src, "load")
    _group_pair(dst, src, coord)


def group_store(dst: Any, src: Any, coord: Any) -> None:
    order(dst, src, "store")
    _group_pair(src, dst, coord)


def _group_pair(tile: Any, mem: Any, coord: Any) -> None:
    t = want(tile, (RT, ST, SV), "the tile")
    pair_with_memory(tile, mem, coord, rows=GROUP_ROWS if isinstance(t, RT) else None)


def group_load_async(dst: Any, src: Any, coord: Any) -> None:
    order(dst, src, "load")
    shared_copy(dst, src, coord, "the destination")


# ------------------------------------------------------------------------------ barriers, roles
def barrier_id(id: Any, *_: Any) -> None:
    n = _constant(id)
    if n is not None and not 1 <= n <= BARRIERS:
        no("TK205", f"barrier {n}", f"named barriers are 1 to {BARRIERS}; 0 is block.sync()'s")


def named_barrier(id: Any, threads: Any) -> None:
    barrier_id(id)
    if threads is not None and (type(threads) is not int or threads <= 0 or threads % 32):
        no("TK205", f"{threads!r} threads", "whole warps come to a barrier: a multiple of 32")


def block_sync(id: Any, threads: Any) -> None:
    if id is not None:
        named_barrier(id, threads)
    elif threads is not None:
        no("TK106", "a number of threads without a barrier's id", "write block.sync(id, threads)")


def registers(does: str) -> Callable:
    def rule(n: Any) -> None:
        if type(n) is not int or not 24 <= n <= 256 or n % 8:
            no("TK205", f"{n!r} registers a lane", "a compile-time multiple of 8 from 24 to 256")

    return rule


def block_size(op: Op, args: list[Any], threads: int) -> list[Any]:
    """The arguments for a block of so many threads; OpMismatch where it has too few or odd ones."""
    if op.scope == "group" and threads % GROUP_THREADS:
        no(
            "TK303",
            f"an incomplete warpgroup: the block has {threads} threads",
            f"warpgroups are 4 warps: give the block a multiple of {GROUP_THREADS} threads",
        )
    if not any(p.name == "threads" for p in op.params):
        return args
    if args[0] is None:
        return []  # block.sync() names no barrier
    many = threads if args[1] is None else args[1]
    if many > threads or many % 32:
        no("TK205", f"{many} threads", f"the block has {threads}; whole warps come to a barrier")
    return [args[0], many]
