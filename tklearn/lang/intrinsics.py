"""Operations of a learner's own: CUDA text for one machine, a NumPy function for the other.

Knows what @tk.intrinsic takes and how a call's arguments meet its parameters. What runs is
sim/lanes.py's and cuda/expr.py's.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tklearn.lang import ir
from tklearn.lang import types as T
from tklearn.lang.errors import SourceError
from tklearn.lang.parameters import annotation, plain_parameters
from tklearn.lang.source import UNKNOWN, Resolver, source_of
from tklearn.lang.table import Op, Param
from tklearn.lang.types import Scalar

if TYPE_CHECKING:
    from tklearn.lang.expressions import Expressions

NUMBERS = (T.i32, T.u32, T.i64, T.f32, T.bool_)


class Intrinsic:
    """What @tk.intrinsic returns: the learner's own row of the op table.

    Errors: TK106 for a `{name}` in `cuda` that is no parameter, a `sim` of another number of
    arguments, and what is no text, function or dtype; TK104 for an annotation that is no number.
    """

    def __init__(
        self, fn: Callable, cuda: str, sim: Callable, result: T.DType | None, arch: int
    ) -> None:
        self.__name__, self.__doc__ = fn.__name__, fn.__doc__
        front = Resolver(source_of(fn), {})
        front.assigned = set()  # annotations are read outside the function
        types = {a.arg: _type(front, a) for a in plain_parameters(front)}
        wrong, hint = _wrong(list(types), cuda, sim, result)
        if wrong:
            raise SourceError("TK106", f"intrinsic '{fn.__name__}': {wrong}", front.src.loc, hint)
        value = Scalar(result) if result is not None else None
        self.op = Op(
            fn.__name__, "lane", tuple(Param(n, "src") for n in types), lambda *_: value,
            "pure" if value else "fill", fn.__name__, (fn.__doc__ or "").strip(), arch,
            intrinsic=(cuda, sim, types),
        )  # fmt: skip

    def __call__(self, *_: Any, **__: Any) -> None:
        raise SourceError("TK107", f"'{self.__name__}' is an intrinsic: only kernels call it")


def _type(front: Resolver, a: ast.arg) -> Scalar | None:
    """What a parameter takes; None for any number."""
    t = annotation(front, a)
    if a.annotation is None:
        return None
    if t is UNKNOWN or t not in NUMBERS:
        raise front.fail(
            a,
            "TK104",
            f"parameter '{a.arg}' cannot be annotated with {ast.unparse(a.annotation)}",
            "an intrinsic takes the numbers of a lane: "
            + ", ".join(f"tk.{x.name}" for x in NUMBERS),
        )
    return Scalar(t)


def _wrong(names: list[str], cuda: Any, sim: Any, result: Any) -> tuple[str, str]:
    """What @tk.intrinsic cannot take, and what to write; "" for nothing."""
    if not isinstance(cuda, str) or not callable(sim):
        return "cuda is text and sim a function", 'cuda="__popc({x})", sim=np.bitwise_count'
    if result is not None and result not in NUMBERS:
        kinds = ", ".join(f"tk.{x.name}" for x in NUMBERS)
        return f"result={result!r} is not possible", f"{kinds}, or None for a statement"
    unknown = [x for x in re.findall(r"\{([A-Za-z_]\w*)\}", cuda) if x not in names]
    if unknown:
        mine = ", ".join(names) or "none"
        return (
            f"cuda has {{{unknown[0]}}}, which is no parameter",
            f"its parameters: {mine}; braces of C++ itself stand with spaces: {{ {unknown[0]} }}",
        )
    takes = getattr(sim, "nin", None)  # a NumPy ufunc
    if takes is not None and takes != len(names):
        return f"sim takes {takes} arguments, not {len(names)}", "it gets those of the intrinsic"
    if takes is None:
        try:
            inspect.signature(sim).bind(*names)
        except TypeError as e:
            return f"sim cannot take {len(names)} arguments: {e}", "it gets those of the intrinsic"
        except ValueError:  # written in C, without a signature
            pass
    return "", ""


def argument(front: Expressions, node: ast.expr, name: str, op: Op) -> ir.Expr:
    """What is given for one parameter: a number, of its annotation's type. Error TK200."""
    e, want = front.ex(node), op.intrinsic[2][name]
    if not isinstance(e.type, Scalar):
        what = want or "a number"
        raise front.fail(
            node,
            "TK200",
            f"'{name}' of {op.name} is {what}, not {e.type}",
            "an intrinsic is called by each lane, with numbers such as x[i]",
        )
    if want is None or e.type == want:
        return e
    if (
        isinstance(e, ir.Const)
        and want.dtype.kind != "b"
        and (e.type.dtype.kind != "f" or want == T.F32)
    ):
        return front.coerce(node, e, want, name)
    raise front.fail(
        node,
        "TK200",
        f"'{name}' of {op.name} is {want}, not {e.type}",
        f"convert it: tk.{want.dtype.name}({ast.unparse(node)})",
    )
