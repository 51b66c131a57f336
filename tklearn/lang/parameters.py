"""The parameters of kernels and helpers: their annotations, defaults and places.

Knows what a parameter may be; reads no statement of the function.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from tklearn.lang import types as T
from tklearn.lang.errors import Loc
from tklearn.lang.source import UNKNOWN, Resolver, plain, source_of
from tklearn.lang.types import GL, ConstType, Scalar


def parameters(fn: Callable) -> tuple[dict[str, T.Type], dict[str, Any]]:
    """The annotated parameters of a kernel in order, and the defaults that they have.

    Errors: TK103 for a function without text, TK104 for a missing or unusable annotation.
    """
    src = source_of(fn)
    front = Resolver(src, {})
    front.assigned = set()  # annotations and defaults are read outside the function
    params: dict[str, T.Type] = {}
    for a in plain_parameters(front):
        t = annotation(front, a)
        if isinstance(t, T.DType):
            t = Scalar(t)
        if not isinstance(t, (GL, Scalar, ConstType)) or (
            isinstance(t, Scalar) and t.dtype not in (T.i32, T.u32, T.i64, T.f32, T.bool_)
        ):
            what = "needs an annotation"
            if a.annotation is not None:
                what = f"cannot be annotated with {ast.unparse(a.annotation)}"
            raise front.fail(
                a,
                "TK104",
                f"parameter '{a.arg}' {what}",
                "tk.gl_bf or tk.gl(T) for arrays, tk.i32 or tk.f32 for numbers, "
                "tk.const for compile-time values",
            )
        params[a.arg] = t
    return params, defaults(fn)


def plain_parameters(front: Resolver) -> list[ast.arg]:
    """The parameters of a kernel or helper; TK104 for '*', '**' and '/'."""
    args = front.src.node.args
    odd = args.vararg or args.kwarg or next(iter(args.posonlyargs), None)
    if odd is not None:
        raise front.fail(
            odd,
            "TK104",
            "kernels and helpers have plain parameters only",
            "no *args, **kwargs or '/'",
        )
    return [*args.args, *args.kwonlyargs]


def parameter_loc(fn: Callable, name: str) -> Loc:
    """Where a parameter stands in the learner's source."""
    front = Resolver(source_of(fn), {})
    args = front.src.node.args
    found = next((a for a in [*args.args, *args.kwonlyargs] if a.arg == name), None)
    return front.loc(found) if found is not None else front.src.loc


def annotation(front: Resolver, a: ast.arg) -> Any:
    """What a parameter's annotation means: Python's value, or the text of a postponed one."""
    try:
        t = front.src.fn.__annotations__.get(a.arg, UNKNOWN)
    except NameError:  # Python 3.14 evaluates annotations only now
        t = UNKNOWN
    while isinstance(t, str):  # postponed, quoted, or both
        try:
            node = ast.parse(t, mode="eval").body
        except (SyntaxError, ValueError):
            return UNKNOWN
        for n in ast.walk(node):
            ast.copy_location(n, a)
        t = front.static(node)
    return t


def defaults(fn: Any) -> dict[str, Any]:
    """The default values of a function's parameters."""
    code, values = fn.__code__, fn.__defaults__ or ()
    names = code.co_varnames[: code.co_argcount]
    found = dict(zip(names[len(names) - len(values) :], values))
    return {n: plain(v) for n, v in {**found, **(fn.__kwdefaults__ or {})}.items()}
