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
from tklearn.lang.types import RT, RV, ST, SV, Semaphore, Shared, SubST

if TYPE_CHECKING:
    from tklearn.lang.table import Op

BARRIERS = 15  # named barriers of a block besides number 0, which is block.sync()'s
TMA_ALIGN = 128  # bytes, of a shared address
BOX = 256  # the longest side of a TMA box, in elements
WIDEST = 256  # columns of one wgmma
MMA_GROUPS, STORE_GROUPS = 7, 63  # that may still run after a wait
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
                "name the shared tiles that TMA will load, or write tma.expect_bytes(sem, bytes)",
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
    """One box is a vector, a tile, or one column block of a swizzled tile."""
    t = tile.type
    if isinstance(t, SV):
        inner, rows = t.n, 1
    else:
        inner, rows = t.swizzle // t.dtype.itemsize or t.cols, t.rows
    if max(inner, rows) > BOX:
        hint = f"TMA copies boxes of at most {BOX} elements along each side"
        if rows <= BOX and isinstance(t, ST):
            hint += ", or along a row as many as the tile has, with a swizzle"
        no("TK210", f"{t} is too large for one copy", hint)
    if inner * t.dtype.itemsize % 16:
        no("TK210", f"{t} has no multiple of 16 bytes", "TMA copies pieces of 16 bytes")
    if _one_of_many(tile) and t.nbytes % TMA_ALIGN:
        hint = f"TMA writes to multiples of {TMA_ALIGN} bytes: make each vector such a multiple"
        no("TK210", f"{t} has {t.nbytes} bytes, and others of its array follow", hint)


def _one_of_many(tile: Any) -> bool:
    """Is this one vector of an array of them?"""
    return isinstance(tile.type, SV) and isinstance(tile, ir.Index)


# ----------------------------------------------------------------------------------- products
def wgmma(ta: bool, tb: bool, add: bool) -> Callable:
    """acc += A B (or = without `add`) of 64 rows by a warpgroup; A or B transposed."""

    def rule(acc: Any, a: Any, b: Any, fence: Any, commit: Any) -> None:
        if isinstance(b.type, RT):
            hint = "name the shared tile itself: a warpgroup's product reads it from there"
            no("TK200", f"B cannot be {b.type}", hint)
        d, x, y = want(acc, (RT,), "the accumulator"), want(a, (ST, RT), "A"), want(b, (ST,), "B")
        if isinstance(x, RT) and ta:
            no("TK211", "A in registers cannot be transposed", "store it to shared memory first")
        _product_shapes(d, x, y, ta, tb, "+=" if add else "=")
        _product_layouts(d, x, y)
        _product_dtypes(d, x, y, ta, tb)
        if not isinstance(fence, bool) or not isinstance(commit, bool):
            no("TK105", "fence and commit are compile-time True or False")

    return rule


def _product_shapes(d: RT, x: ST | RT, y: ST, ta: bool, tb: bool, sign: str) -> None:
    rows = 16 if isinstance(x, RT) else GROUP_ROWS
    m, k = (x.cols, x.rows) if ta else (x.rows, x.cols)
    k2, n = (y.cols, y.rows) if tb else (y.rows, y.cols)
    if m == rows and k == k2 and (d.rows, d.cols) == (16, n):
        if n > WIDEST:
            no("TK210", f"a product of {n} columns", f"an instruction makes at most {WIDEST}")
        if x.dtype.itemsize == 1 and k % 32:
            no("TK210", f"8-bit products need an inner size that is a multiple of 32, not {k}")
        return
    hint = f"per warp, D must be 16x{n} and the inner sizes {k} and {k2} must be equal"
    if m != rows:
        side = "columns" if ta else "rows"
        hint = f"A has {m} {side}: it must have {GROUP_ROWS}, or 16 for each warp in registers"
    form = f"{d} {sign} {x}{'^T' * ta} @ {y}{'^T' * tb}"
    no("TK210", f"shapes do not match: {form}", hint)


def _product_layouts(d: RT, x: ST | RT, y: ST) -> None:
    for t, what in ((d, "the accumulator"), (x, "A")):
        if isinstance(t, RT) and t.layout != T.row:
            no("TK211", f"{what} must be in tk.row layout, not {t.layout}")
    for s, what in ((x, "A"), (y, "B")):
        if isinstance(s, ST) and (s.pad or not s.swizzle):
            has = f"pad={s.pad}" if s.pad else "swizzle=0"
            no(
                "TK211",
                f"{what} has {has}, and tensor cores read shared tiles with a swizzle only",
                "leave swizzle and pad out of the type, or write swizzle=128, 64 or 32",
            )


def _product_dtypes(d: RT, x: ST | RT, y: ST, ta: bool, tb: bool) -> None:
    if x.dtype != y.dtype:
        no("TK212", f"A is {x.dtype} and B is {y.dtype}", "both must have one dtype")
    if d.dtype != T.f32 and not (d.dtype == x.dtype == T.f16):
        no("TK212", f"an accumulator of {d.dtype} for inputs of {x.dtype}", "accumulate in tk.f32")
    if x.dtype.itemsize == 2:
        return
    if isinstance(x, RT):
        no("TK212", f"A in registers is 16-bit, not {x.dtype}", "store it to shared memory first")
    if ta or not tb:
        no(
            "TK211",
            f"{x.dtype} products take A as (64, K) and B as (N, K)",
            "write mma_ABt or mm_ABt, and keep B with N rows",
        )


def groups(most: int) -> Callable:
    """The number of groups that may still run: 0 to `most`."""

    def rule(n: Any) -> None:
        if type(n) is not int or not 0 <= n <= most:
            no("TK205", f"n is {n!r}", f"a compile-time number from 0 to {most}")

    return rule


# ------------------------------------------------------------------- a warpgroup's own memory
def group_load(dst: Any, src: Any, coord: Any) -> None:
    order(dst, src, "load")
    _group_pair(dst, src, coord)


def group_store(dst: Any, src: Any, coord: Any) -> None:
    order(dst, src, "store")
    _group_pair(src, dst, coord)


def _group_pair(tile: Any, mem: Any, coord: Any) -> None:
    if isinstance(tile.type, RV):
        hint = "each warp moves its own part of a vector: warp.load, warp.store"
        no("TK200", f"the tile cannot be {tile.type}", hint)
    if isinstance(mem.type, SubST):
        hint = "keep tiles of 64 rows: tk.shared(tk.st(T, 64, cols), n), and select one"
        no("TK200", f"the memory cannot be a window: {mem.type}", hint)
    t = want(tile, (RT, ST, SV), "the tile")
    if not isinstance(t, RT):
        shared_copy(tile, mem, coord, "the tile")
        return
    if t.rows * 4 != GROUP_ROWS:
        hint = f"each of the 4 warps holds 16 of the {GROUP_ROWS} rows: tk.rt(T, 16, {t.cols})"
        no("TK210", f"{t} is no warp's part of a warpgroup's tile", hint)
    pair_with_memory(tile, mem, coord, rows=GROUP_ROWS)


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
