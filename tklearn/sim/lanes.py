"""Numbers and masks of lanes, as the lowered code uses them.

A value is a Python int, bool or np.float32 where the warp and all blocks of the batch agree, else
an array (blocks or 1, lanes or 1); integers are int64 there. A mask is None (all lanes), False
(none) or a bool array. Operations that can fail look at the mask only once something is wrong. This
file knows no memory and no scheduling.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tklearn import numerics

LO, HI = -(1 << 31), (1 << 31) - 1
U32 = (1 << 32) - 1
ndarray = np.ndarray
np_bool = np.bool_


# ------------------------------------------------------------------------------------- masks
def mand(m: Any, c: Any) -> Any:
    """The lanes of `m` where `c` holds."""
    if type(c) is not ndarray:
        return m if c else False
    if m is not None:
        c = c & m
    if c.all():
        return None
    return c if c.any() else False


def mnot(m: Any, c: Any) -> Any:
    """The lanes of `m` where `c` does not hold."""
    return mand(m, ~c if type(c) is ndarray else not c)


def mor(a: Any, b: Any) -> Any:
    if a is False or b is None:
        return b
    if b is False or a is None:
        return a
    c = a | b
    return None if c.all() else c


def minus(m: Any, *gone: Any) -> Any:
    for g in gone:
        if g is None or m is False:
            return False
        if g is not False:
            m = mand(m, ~g)
    return m


def sel(m: Any, new: Any, old: Any) -> Any:
    """`new` where the mask holds, else `old`."""
    return new if m is None else np.where(m, new, old)


def sel_vec(m: Any, new: Any, old: Any) -> list:
    return [sel(m, a, b) for a, b in zip(new, old)]


def where(c: Any, a: Any, b: Any) -> Any:
    if type(c) is not ndarray:
        return a if c else b
    if a is None:
        return b
    return a if b is None else np.where(c, a, b)


def land(a: Any, b: Any) -> Any:
    if type(a) is not ndarray:
        return b if a else False
    return np.logical_and(a, b)


def lor(a: Any, b: Any) -> Any:
    if type(a) is not ndarray:
        return True if a else b
    return np.logical_or(a, b)


def lnot(a: Any) -> Any:
    return ~a if type(a) is ndarray else not a


def truth(w: Any, c: Any, s: Any, barrier: int = 0) -> bool:
    """The one value that a plain condition has. `barrier`: the line of a block.sync() under it."""
    if type(c) is not ndarray:
        return bool(c)
    if c.size == 1:
        return bool(c.item())
    first = bool(c.flat[0])
    if (c != first).any():
        raise w.fault(
            "TK512",
            "some lanes find this condition true and others false, but it guards a barrier or "
            "an operation that the 32 lanes of a warp do together",
            s,
            hint="move that out of the 'if' or loop, or let the condition be the same in all "
            "lanes of a warp, as with warpid()",
        )
    return first


def as_int(w: Any, x: Any, s: Any) -> int:
    """A number that must be one for the warp, as a Python int."""
    if type(x) is not ndarray:
        return int(x)
    if x.size > 1 and (x != x.flat[0]).any():
        raise w.fault(
            "TK512",
            "this number differs between lanes, but one for the warp is needed",
            s,
            hint="use a warp-uniform value",
        )
    return int(x.flat[0])


# ------------------------------------------------------------------------------------- loops
def range_(w: Any, lo: Any, hi: Any, step: int, s: Any) -> range:
    r = range(as_int(w, lo, s), as_int(w, hi, s), step)
    w.spend(len(r), s)
    return r


class For:
    """A range whose bounds may differ by lane and which lanes may leave."""

    def __init__(self, w: Any, lo: Any, hi: Any, step: int, m: Any, s: Any) -> None:
        self.w, self.lo, self.hi, self.step, self.m, self.s = w, lo, hi, step, m, s
        self.brk: Any = False
        self.cnt: Any = False

    def __iter__(self):
        i, hi, step, start = self.lo, self.hi, self.step, self.m
        while True:
            go = i < hi if step > 0 else i > hi
            self.m = minus(mand(start, go), self.brk)
            if self.m is False:
                return
            self.w.spend(1, self.s)
            self.cnt = False
            yield i
            i = i + step


class While:
    """The lanes still in a while loop."""

    def __init__(self, m: Any) -> None:
        self.m = m
        self.brk: Any = False
        self.cnt: Any = False

    def begin(self) -> Any:
        self.cnt = False
        return minus(self.m, self.brk)


def turn(w: Any, s: Any) -> None:
    w.spend(1, s)


# ------------------------------------------------------------------------- whole-number arithmetic
def _fit(w: Any, r: Any, m: Any, s: Any, kind: str, sign: str, a: Any, b: Any) -> Any:
    """A result as the type holds it: u32 and i64 wrap, i32 must fit."""
    if kind == "i32":
        if type(r) is not ndarray:
            if LO <= r <= HI:
                return r
        elif r.min() >= LO and r.max() <= HI:
            return r
        at = w.first(m, (r < LO) | (r > HI))
        if at is not None:
            x, y, z = (w.at_position(v, at) for v in (a, b, r))
            raise w.fault(
                "TK510",
                f"{x} {sign} {y} = {z} does not fit 32 bits",
                s,
                at,
                "i32 holds -2147483648 to 2147483647; use tk.i64(x) for larger numbers",
            )
        return ((r - LO) & U32) + LO
    if kind == "i64":
        return r if type(r) is ndarray else ((r + (1 << 63)) & ((1 << 64) - 1)) - (1 << 63)
    return r & (0xFF if kind == "u8" else U32)


def iadd(w: Any, a: Any, b: Any, m: Any, s: Any, kind: str) -> Any:
    return _fit(w, a + b, m, s, kind, "+", a, b)


def isub(w: Any, a: Any, b: Any, m: Any, s: Any, kind: str) -> Any:
    return _fit(w, a - b, m, s, kind, "-", a, b)


def imul(w: Any, a: Any, b: Any, m: Any, s: Any, kind: str) -> Any:
    if kind == "u32" and (type(a) is ndarray or type(b) is ndarray):
        lo, hi = a & 0xFFFF, a >> 16  # products of 32-bit numbers need more than int64 has
        return (lo * b + (((hi * b) & 0xFFFF) << 16)) & U32
    return _fit(w, a * b, m, s, kind, "*", a, b)


def _nonzero(w: Any, a: Any, b: Any, m: Any, s: Any, sign: str) -> Any:
    if type(b) is not ndarray:
        if b != 0:
            return b
        zero: Any = True
    else:
        if b.all():
            return b
        zero = b == 0
    at = w.first(m, zero)
    if at is not None:
        raise w.fault(
            "TK510",
            f"division by zero: {w.at_position(a, at)} {sign} 0",
            s,
            at,
            "test the divisor first: lanes that an 'if' leaves out do not divide",
        )
    return np.where(zero, 1, b)


def idiv(w: Any, a: Any, b: Any, m: Any, s: Any, kind: str) -> Any:
    return _fit(w, a // _nonzero(w, a, b, m, s, "//"), m, s, kind, "//", a, b)


def imod(w: Any, a: Any, b: Any, m: Any, s: Any, kind: str) -> Any:
    return a % _nonzero(w, a, b, m, s, "%")


def _shift(w: Any, b: Any, m: Any, s: Any, kind: str) -> Any:
    width = 64 if kind == "i64" else 32
    bad = (b < 0) | (b >= width)
    if not (bad.any() if type(bad) is ndarray else bad):
        return b
    at = w.first(m, bad)
    if at is not None:
        raise w.fault(
            "TK510",
            f"a shift by {w.at_position(b, at)} bits",
            s,
            at,
            f"shifts of {kind} are by 0 to {width - 1} bits",
        )
    return b & (width - 1)


def ishl(w: Any, a: Any, b: Any, m: Any, s: Any, kind: str) -> Any:
    return _fit(w, a << _shift(w, b, m, s, kind), m, s, kind, "<<", a, b)


def ishr(w: Any, a: Any, b: Any, m: Any, s: Any, kind: str) -> Any:
    return a >> _shift(w, b, m, s, kind)


def iand(w: Any, a: Any, b: Any, m: Any, s: Any, kind: str) -> Any:
    return a & b


def ior(w: Any, a: Any, b: Any, m: Any, s: Any, kind: str) -> Any:
    return a | b


def ixor(w: Any, a: Any, b: Any, m: Any, s: Any, kind: str) -> Any:
    return a ^ b


def uinv(a: Any) -> Any:
    return ~a & U32


def cdiv(w: Any, s: Any, m: Any, a: Any, b: Any) -> Any:
    return -(-a // _nonzero(w, a, b, m, s, "cdiv"))


# --------------------------------------------------------------------------------- conversions
def cast(a: Any, src: str, dst: str) -> Any:
    """A number as another type: float to int saturates (NaN gives 0), narrower ints wrap."""
    if dst == "bool":
        return a != 0
    if dst == "f32":
        return a.astype(np.float32) if type(a) is ndarray else np.float32(a)
    if dst in numerics.STORAGE:
        r = numerics.round_to(a, dst)
        return r if type(a) is ndarray else np.float32(r)
    if src == "f32":
        lo, hi = {"u32": (0, U32), "u8": (0, 255), "i64": (-(1 << 63), (1 << 63) - 1)}.get(
            dst, (LO, HI)
        )
        if type(a) is not ndarray:
            if np.isnan(a):
                return 0
            return lo if a <= lo else hi if a >= hi else int(a)
        x = np.trunc(np.where(np.isnan(a), np.float32(0), a)).astype(np.float64)
        if dst != "i64":
            return np.clip(x, lo, hi).astype(np.int64)
        big = x >= 2.0**63
        return np.where(big, hi, np.where(x <= lo, lo, np.where(big, 0, x)).astype(np.int64))
    a = a.astype(np.int64) if type(a) is ndarray else int(a)
    if dst == "i32":
        return a if src == "bool" else ((a - LO) & U32) + LO
    if dst == "u32":
        return a & U32
    return a & 0xFF if dst == "u8" else a


NUMBERS = {"f32": np.float32, "i32": np.int32, "u32": np.uint32, "i64": np.int64, "u8": np.uint8,
           "bool": np.bool_}  # fmt: skip


LANES = (
    "it gets the values of all lanes at once, as numbers or arrays of shape (1, 32) or "
    "(blocks, 32), and gives as many numbers"
)


def own(op: Any, dtypes: list[str | None], result: str | None) -> Callable[..., Any]:
    """A learner's NumPy function as an operation: that of an intrinsic's row.

    It gets NumPy numbers and arrays of the types that its CUDA gets, and its value becomes a number
    of the declared type. Lanes that an `if` leaves out compute too; nothing of theirs is kept.
    Error TK514 where it fails, or gives no numbers of lanes.
    """
    fn = op.intrinsic[1]
    kinds = [None if d is None else NUMBERS.get(d, np.float32) for d in dtypes]

    def run(w: Any, s: Any, m: Any, *values: Any) -> Any:
        try:
            x = fn(*[v if k is None else _typed(v, k) for v, k in zip(values, kinds)])
        except Exception as e:
            said = f"{type(e).__name__}: {e}"
            raise w.fault(
                "TK514", f"the sim function of '{op.name}' raises {said}", s, hint=LANES
            ) from e
        if result is None:
            return x
        x = np.asarray(x)
        if x.dtype.kind not in "fiub" or not _of_lanes(x.shape, w.batch.n):
            what = f"{x.dtype} of shape {x.shape}"
            raise w.fault("TK514", f"the sim function of '{op.name}' gives {what}", s, hint=LANES)
        r = np.asarray(cast(x, "f32" if x.dtype.kind == "f" else "i64", result))
        return r if x.ndim else r[()] if r.dtype == np.float32 else r.item()

    return run


def _of_lanes(shape: tuple[int, ...], blocks: int) -> bool:
    """Whether values of this shape are those of a warp's lanes."""
    return len(shape) < 3 and all(x in (1, n) for x, n in zip(shape[::-1], (32, blocks)))


def _typed(v: Any, kind: Any) -> Any:
    return v.astype(kind) if type(v) is ndarray else np.asarray(v).astype(kind)[()]


def fma(a: Any, b: Any, c: Any, minus_c: bool) -> Any:
    """a*b + c (or - c), rounded once; numbers and tiles."""
    r = numerics.fma32(a, b, -c if minus_c else c)
    return r if r.ndim else np.float32(r)


# ------------------------------------------------------------------------- tiles with numbers
def spread3(x: Any) -> Any:
    """A number of a warp, shaped to combine with tiles (block, row, column)."""
    return x[:, :1, None] if type(x) is ndarray else x


def spread2(x: Any) -> Any:
    return x[:, :1] if type(x) is ndarray else x


def as_col(v: Any) -> Any:
    return v[:, :, None]


def as_row(v: Any) -> Any:
    return v[:, None, :]


def round_tile(x: Any, kind: str) -> Any:
    return numerics.round_to(x, kind)


RUNTIME: dict[str, Any] = {
    "_mand": mand,
    "_mnot": mnot,
    "_mor": mor,
    "_minus": minus,
    "_sel": sel,
    "_sel_vec": sel_vec,
    "_where": where,
    "_land": land,
    "_lor": lor,
    "_lnot": lnot,
    "_truth": truth,
    "_range": range_,
    "_For": For,
    "_While": While,
    "_turn": turn,
    "_iadd": iadd,
    "_isub": isub,
    "_imul": imul,
    "_idiv": idiv,
    "_imod": imod,
    "_ishl": ishl,
    "_ishr": ishr,
    "_iand": iand,
    "_ior": ior,
    "_ixor": ixor,
    "_uinv": uinv,
    "_cast": cast,
    "_fma": fma,
    "_spread3": spread3,
    "_spread2": spread2,
    "_as_col": as_col,
    "_as_row": as_row,
    "_round": round_tile,
}
