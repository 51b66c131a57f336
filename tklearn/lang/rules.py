"""Which types fit an operation, and what type its value has: the rules of the op table.

A rule takes the arguments of a call, raises OpMismatch with a code and a hint, and returns the type
of the value (None for statements). The front end adds the place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from tklearn.lang import types as T
from tklearn.lang.types import (
    GL,
    RT,
    RV,
    ST,
    SV,
    Coord,
    Regs,
    SArr,
    Scalar,
    Semaphore,
    SubST,
    Type,
)


class OpMismatch(Exception):
    """A rule's refusal; the front end adds the place. args: code, message, hint."""

    def __init__(self, code: str, message: str, hint: str = "") -> None:
        super().__init__(code, message, hint)
        self.code, self.message, self.hint = code, message, hint


def no(code: str, message: str, hint: str = "") -> NoReturn:
    raise OpMismatch(code, message, hint)


def want(x: Any, kinds: tuple[type, ...], what: str) -> Any:
    if isinstance(x.type, T.Shared) and isinstance(x.type.elem, kinds):
        what_of = "semaphores" if isinstance(x.type.elem, Semaphore) else "tiles"
        no("TK200", f"{what} cannot be all of {x.type}", f"select one of its {what_of}: x[i]")
    if not isinstance(x.type, kinds):
        no(
            "TK200",
            f"{what} cannot be {x.type}",
            "it must be "
            + " or ".join(
                {
                    RT: "a register tile",
                    RV: "a register vector",
                    ST: "a shared tile",
                    SubST: "a subtile",
                    SV: "a shared vector",
                    GL: "a global array",
                    SArr: "a shared array",
                    Scalar: "a number",
                    Regs: "a reg_array",
                    Semaphore: "a semaphore",
                }[k]
                for k in kinds
            ),
        )
    return x.type


# ------------------------------------------------------------------------------------- rules
def statement(*_: Any) -> None:
    return None


def fill(t: Any, *_: Any) -> None:
    want(t, (RT, RV), "the destination")


def copy_into(dst: Any, src: Any) -> None:
    d, s = want(dst, (RT, RV), "the destination"), want(src, (RT, RV), "the source")
    if type(d) is not type(s) or _shape(d) != _shape(s):
        no("TK210", f"shapes do not match: {d} from {s}", "both sides must have one shape")
    if d.layout != s.layout or getattr(d, "kind", "") != getattr(s, "kind", ""):
        no(
            "TK211",
            f"layouts do not match: {d} from {s}",
            "tk.swap_layout(x) moves a tile to the other layout",
        )


def _shape(t: Any) -> tuple[int, ...]:
    return (t.n,) if isinstance(t, (RV, SV)) else (t.rows, t.cols)


def _coord(c: Any, g: GL) -> None:
    if c is None or not isinstance(c.type, Coord):
        no("TK106", "a coordinate is missing", "write a tuple that counts tiles, as in (row, col)")
    n = c.type.n
    if g.ndim is not None and n > max(g.ndim, 2 if g.ndim > 1 else 1):
        no("TK204", f"{n} coordinates for an array of {g.ndim} dimensions")
    if g.ndim is not None and g.ndim > 1 and n < 2:
        no(
            "TK204",
            f"{n} coordinate for an array of {g.ndim} dimensions",
            "write (row, col) in tiles",
        )


def order(dst: Any, src: Any, form: str) -> None:
    if (
        isinstance(dst.type, (RT, RV, ST, SV))
        and isinstance(src.type, GL)
        and form.startswith("store")
    ):
        no("TK200", "the destination comes first", "write store(array, tile, (row, col))")
    if isinstance(dst.type, GL) and form.startswith("load"):
        no("TK200", "the destination comes first", "write load(tile, array, (row, col))")


def pair_with_memory(reg: Any, mem: Any, coord: Any, rows: int | None = None) -> None:
    """A tile or vector beside memory; `rows`: those of the memory's tile where they are others."""
    r = want(reg, (RT, RV, ST, SV), "the tile")
    m = want(mem, (GL, ST, SubST, SV), "the memory")
    if isinstance(m, GL):
        if isinstance(r, RT) and m.ndim == 1:
            no("TK204", f"a tile {r} needs an array of at least 2 dimensions")
        _coord(coord, m)
        if isinstance(r, (ST, SV)) and r.dtype != m.dtype:
            no(
                "TK212",
                f"dtypes do not match: {r} and {m}",
                "shared tiles are copied as they are; convert in registers",
            )
        return
    if coord is not None:
        no(
            "TK106",
            "a coordinate is only for global arrays",
            "take a window with tile.subtile(rows, cols, (i, j))",
        )
    if isinstance(r, (ST, SV)):
        no("TK200", f"{r} cannot be copied from or to {m}", "go through a register tile")
    shape = _shape(r) if rows is None else (rows, r.cols)
    if isinstance(r, RT) != isinstance(m, (ST, SubST)) or shape != _shape(m):
        hint = "a register tile and shared memory must have one shape"
        if rows is not None:
            hint = f"each of the 4 warps holds 16 of the {rows} rows"
        elif isinstance(r, RT) and isinstance(m, ST):
            hint = f"take a window of that shape: tile.subtile({r.rows}, {r.cols}, (i, j))"
        no("TK210", f"shapes do not match: {r} and {m}", hint)


def load(dst: Any, src: Any, coord: Any) -> None:
    order(dst, src, "load")
    pair_with_memory(dst, src, coord)


def store(dst: Any, src: Any, coord: Any) -> None:
    order(dst, src, "store")
    pair_with_memory(src, dst, coord)


def shared_copy(reg: Any, mem: Any, coord: Any, what: str) -> None:
    if isinstance(reg.type, (RT, RV)):
        no(
            "TK200",
            f"{what} cannot be {reg.type}: this copies between global and shared memory",
            "registers belong to one warp: write warp.load, warp.store",
        )
    want(reg, (ST, SV), what)
    want(mem, (GL,), "the other side")
    pair_with_memory(reg, mem, coord)


def block_load(dst: Any, src: Any, coord: Any) -> None:
    order(dst, src, "load")
    shared_copy(dst, src, coord, "the destination")


def block_store(dst: Any, src: Any, coord: Any) -> None:
    order(dst, src, "store")
    shared_copy(src, dst, coord, "the source")


def wait_group(n: Any) -> None:
    if not isinstance(n, int) or n < 0:
        no("TK105", "wait_group(n) needs a compile-time number, 0 or more")


def mma(ta: bool, tb: bool) -> Callable:
    name = "mma_A" + ("t" if ta else "") + "B" + ("t" if tb else "")

    def rule(acc: Any, a: Any, b: Any) -> None:
        d, x, y = (want(v, (RT,), w) for v, w in ((acc, "the accumulator"), (a, "A"), (b, "B")))
        m, k = (x.cols, x.rows) if ta else (x.rows, x.cols)
        k2, n = (y.cols, y.rows) if tb else (y.rows, y.cols)
        if k != k2 or (d.rows, d.cols) != (m, n):
            no(
                "TK210",
                f"shapes do not match: {d} += {x}{'^T' if ta else ''} @ {y}{'^T' if tb else ''}",
                f"D must be {m}x{n} and the inner sizes {k} and {k2} must be equal",
            )
        want_a, want_b = (T.col if ta else T.row), (T.row if tb else T.col)
        if x.layout != want_a or y.layout != want_b or d.layout != T.row:
            no(
                "TK211",
                f"{name} wants A in {want_a}, B in {want_b} and D in tk.row layout; "
                f"got {x.layout}, {y.layout}, {d.layout}",
                "declare the tile in that layout and load it so: the load transposes on the way",
            )
        if x.dtype != y.dtype:
            no("TK212", f"A is {x.dtype} and B is {y.dtype}", "both must have one dtype")
        if d.dtype != T.f32 and not (d.dtype == T.f16 and x.dtype == T.f16):
            no(
                "TK212",
                f"an accumulator of {d.dtype} for inputs of {x.dtype}",
                "accumulate in tk.f32",
            )
        if x.dtype in (T.e4m3, T.e5m2) and k % 32:
            no("TK210", f"8-bit products need an inner size that is a multiple of 32, not {k}")

    return rule


def mask(t: Any, *_: Any) -> None:
    want(t, (RT,), "the tile")


def map_one(x: Any) -> Type:
    t = x.type
    if isinstance(t, (RT, RV)) or (isinstance(t, Scalar) and t.dtype == T.f32):
        return t
    no(
        "TK200",
        f"this function takes f32 numbers, tiles and vectors, not {t}",
        "convert with float(x) first",
    )


def absolute(x: Any) -> Type:
    t = x.type
    return t if isinstance(t, Scalar) and t.dtype in (T.i32, T.i64) else map_one(x)


def minmax(*xs: Any) -> Type:
    if len(xs) == 1 or xs[1] is None:
        if isinstance(xs[0].type, RV):
            return T.F32
        no("TK106", "one argument must be a vector", "for tiles write row_max or col_max")
    return elementwise(xs[0].type, xs[1].type)


def elementwise(a: Type, b: Type) -> Type:
    """The type of a (+) b for tiles, vectors and numbers; a vector broadcasts by its type."""
    if isinstance(a, Scalar) and isinstance(b, Scalar):
        return promote(a, b)
    if isinstance(b, (RT, RV)) and isinstance(a, Scalar):
        return b
    if isinstance(a, (RT, RV)) and isinstance(b, Scalar):
        return a
    if isinstance(a, RV) and isinstance(b, RT):
        return elementwise(b, a)
    if isinstance(a, RT) and isinstance(b, RV):
        if b.kind == "flat":
            no(
                "TK211",
                f"{b} is spread over the lanes and does not belong to {a}",
                "use tk.col_vec or tk.row_vec with tiles",
            )
        if b.layout != a.layout:
            no("TK211", f"{b} belongs to tiles of {b.layout} layout, but {a} is {a.layout}")
        n = a.rows if b.kind == "col" else a.cols
        if b.n != n:
            no(
                "TK210",
                f"shapes do not match: {a} with {b}",
                f"a {b.kind}_vec for this tile has {n} elements",
            )
        return a
    if isinstance(a, (RT, RV)) and type(a) is type(b):
        if _shape(a) != _shape(b):
            no("TK210", f"shapes do not match: {a} and {b}")
        if a.layout != b.layout or getattr(a, "kind", "") != getattr(b, "kind", ""):
            no(
                "TK211",
                f"layouts do not match: {a} and {b}",
                "tk.swap_layout(x) gives the other layout",
            )
        if a.dtype != b.dtype:
            no(
                "TK212",
                f"dtypes do not match: {a} and {b}",
                "tk.convert(x, dtype) gives a converted tile",
            )
        return a
    odd = a if not isinstance(a, (Scalar, RT, RV)) else b
    hint = ""
    if isinstance(odd, T.Vec):
        hint = "work on its elements: v[0], v[1], ..."
    elif isinstance(odd, GL):
        hint = "index an element of the array, or load a tile of it with warp.load"
    elif isinstance(odd, Semaphore):
        hint = "a semaphore is no number: wait(s, phase) waits for it, arrive(s) counts"
    elif isinstance(odd, T.Ring):
        hint = "r.stage and r.phase are its numbers; r.advance() goes on"
    elif isinstance(odd, (ST, SubST, SV, T.Shared)):
        hint = "arithmetic is for registers: load it with warp.load first"
    no("TK200", f"no arithmetic between {a} and {b}", hint)


RANK = {"bool": 0, "i32": 1, "u32": 2, "i64": 3, "f32": 4}


def promote(a: Scalar, b: Scalar) -> Scalar:
    """The common type of two numbers in a lane: f32 over i64 over u32 over i32."""
    best = max((a, b), key=lambda s: RANK[s.dtype.name])
    return T.I32 if best.dtype == T.bool_ else best


def reduce(kind: str) -> Callable:
    def rule(t: Any, acc: Any) -> Type:
        x = want(t, (RT,), "the tile")
        out = RV(T.f32, x.rows if kind == "col" else x.cols, kind, x.layout)
        if acc is not None and acc.type != out:
            no(
                "TK211" if isinstance(acc.type, RV) else "TK200",
                f"the accumulator of {x} must be {out}, not {acc.type}",
            )
        return out

    return rule


def vector_sum(v: Any) -> Type:
    if isinstance(v.type, RT):
        no("TK200", f"sum is for vectors, not {v.type}", "of a tile: tk.sum(tk.col_sum(t))")
    want(v, (RV,), "the vector")
    return T.F32


def copy_value(x: Any) -> Type:
    return want(x, (RT, RV), "the value")


def convert(x: Any, dtype: Any) -> Type:
    t = want(x, (RT, RV), "the value")
    if not isinstance(dtype, T.DType) or dtype not in T.TILE_DTYPES:
        no("TK106", f"{dtype!r} is not a dtype of tiles", "write tk.bf16, tk.f16, tk.f32")
    return (
        RT(dtype, t.rows, t.cols, t.layout)
        if isinstance(t, RT)
        else RV(dtype, t.n, t.kind, t.layout)
    )


def swap_layout(x: Any) -> Type:
    t = want(x, (RT,), "the tile")
    return RT(t.dtype, t.rows, t.cols, T.col if t.layout == T.row else T.row)


def transpose(x: Any) -> Type:
    t = want(x, (RT,), "the tile")
    return RT(t.dtype, t.cols, t.rows, t.layout)


def shuffle(x: Any, *_: Any) -> Type:
    t = want(x, (Scalar,), "the value")
    if t.dtype not in (T.f32, T.i32, T.u32):
        no("TK200", f"a shuffle moves 32-bit numbers, not {t}")
    return t


def atomic(kind: str) -> Callable:
    def rule(ref: Any, *vals: Any) -> Type:
        from tklearn.lang.ir import Index

        if not isinstance(ref, Index) or not isinstance(ref.base.type, (GL, SArr, SV)):
            no(
                "TK200",
                "an atomic works on an element in memory",
                "write tk.atomic_add(x[i], value)",
            )
        d = ref.base.type.dtype
        allowed = (T.f32, T.i32, T.u32) if kind in ("add", "exch") else (T.i32, T.u32)
        if d not in allowed:
            no("TK200", f"no atomic {kind} on {d}", "possible: " + ", ".join(map(repr, allowed)))
        return Scalar(d)

    return rule


def ldmatrix(dst: Any, ref: Any, trans: Any) -> None:
    from tklearn.lang.ir import Index

    r = want(dst, (Regs,), "the destination")
    if r.dtype not in (T.bf16, T.f16) or r.n not in (2, 4, 8):
        no(
            "TK200",
            f"ldmatrix fills 2, 4 or 8 halves a lane, not {r}",
            "declare tk.reg_array(tk.bf16, 8)",
        )
    if (
        not isinstance(ref, Index)
        or not isinstance(ref.base.type, (ST, SArr))
        or ref.base.type.dtype != r.dtype
    ):
        no(
            "TK200",
            "ldmatrix reads from an element of a shared tile of the same dtype",
            "each lane names the first element of a row: tile[row, col]",
        )
    if not isinstance(trans, bool):
        no("TK105", "trans is a compile-time True or False")


def mma_registers(na: int, nb: int, dtypes: tuple) -> Callable:
    def rule(c: Any, a: Any, b: Any) -> None:
        tc, ta, tb = (want(x, (Regs,), w) for x, w in ((c, "C"), (a, "A"), (b, "B")))
        if (
            tc != Regs(T.f32, 4)
            or ta.dtype not in dtypes
            or tb.dtype != ta.dtype
            or (ta.n, tb.n) != (na, nb)
        ):
            no(
                "TK210",
                f"registers do not match: {tc}, {ta}, {tb}",
                f"C is reg_array(f32, 4), A and B are reg_array(T, {na}) and reg_array(T, {nb})",
            )

    return rule


def boolean(*_: Any) -> Type:
    return T.BOOL


def unsigned(*_: Any) -> Type:
    return T.U32


def same(x: Any) -> Type:
    return want(x, (Scalar,), "the value")


def cdiv(a: Any, b: Any) -> Type:
    for x in (a, b):
        if not isinstance(x.type, Scalar) or x.type.dtype not in (T.i32, T.i64):
            no("TK200", f"cdiv takes whole numbers, not {x.type}")
    return promote(a.type, b.type)
