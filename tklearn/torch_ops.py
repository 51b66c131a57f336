"""Learners' kernels as torch operators.

`torch_op` registers a plain function that launches kernels as a torch custom operator, with its
gradient, so that autograd, opcheck and torch.compile(fullgraph=True) accept it. On CPU tensors the
kernels run on the simulator, on CUDA tensors on the GPU. Shapes are traced by running the function
itself on fake tensors, on which a launch does nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from tklearn.lang.errors import LaunchError

_NUMBERS = {"int": int, "float": float, "bool": bool}


def torch_op(
    forward: Callable, backward: Callable | None = None, *, name: str | None = None
) -> Callable:
    """`forward` as a torch operator `tklearn::name`.

    Args:
        forward: a function of torch tensors and numbers, each parameter annotated torch.Tensor,
        int,
            float or bool, that allocates its result(s), launches kernels and returns a tensor or a
            tuple of tensors (annotate the return too). It must not change its arguments.
        backward: backward(grads, inputs, outputs) -> a tuple with one gradient (or None) per tensor
            input; each of the three is a tuple, `inputs` with the numbers in their places. It may
            launch kernels too.
        name: the operator's name; by default the function's.

    Returns: a callable with forward's signature.

    Errors: TK400 for missing annotations.
    """
    import torch

    kinds = _kinds(forward, torch)
    name = name or forward.__name__
    op = torch.library.custom_op(f"tklearn::{name}", _no_grad(forward, torch), mutates_args=())
    op.register_fake(forward)
    if backward is not None:
        _register_backward(torch, op, name, backward, kinds)
    return op


def _kinds(forward: Callable, torch: Any) -> list[Any]:
    """For each parameter: "tensor", or the Python type of a number."""
    kinds: list[Any] = []
    sig = inspect.signature(forward, eval_str=True)
    for p in sig.parameters.values():
        if p.annotation is torch.Tensor:
            kinds.append("tensor")
        elif p.annotation in _NUMBERS.values():
            kinds.append(p.annotation)
        else:
            raise LaunchError(
                "TK400",
                f"parameter '{p.name}' of {forward.__name__} needs an annotation",
                hint="write x: torch.Tensor, n: int or a: float",
            )
    if sig.return_annotation is inspect.Signature.empty:
        raise LaunchError(
            "TK400",
            f"{forward.__name__} needs an annotation of its result",
            hint="write -> torch.Tensor or -> tuple[torch.Tensor, torch.Tensor]",
        )
    return kinds


def _no_grad(fn: Callable, torch: Any) -> Callable:
    """`fn` with gradients off: the operator's own gradient is the registered one."""

    def run(*args: Any, **kwargs: Any) -> Any:
        with torch.no_grad():
            return fn(*args, **kwargs)

    run.__name__ = fn.__name__
    run.__signature__ = inspect.signature(fn, eval_str=True)  # type: ignore[attr-defined]
    run.__annotations__ = {
        p.name: p.annotation
        for p in run.__signature__.parameters.values()  # type: ignore[attr-defined]
    } | {"return": run.__signature__.return_annotation}  # type: ignore[attr-defined]
    return run


def _register_backward(
    torch: Any, op: Any, name: str, backward: Callable, kinds: list[Any]
) -> None:
    """The gradient, as an operator of its own, so that torch.compile need not look into it."""

    def rebuild(tensors: list[Any], numbers: list[float]) -> tuple:
        ts, ns = iter(tensors), iter(numbers)
        return tuple(next(ts) if k == "tensor" else k(next(ns)) for k in kinds)

    def run(grads: Any, tensors: Any, numbers: Any, outputs: Any) -> Any:
        with torch.no_grad():
            result = backward(tuple(grads), rebuild(tensors, numbers), tuple(outputs))
        result = result if isinstance(result, tuple) else (result,)
        if len(result) != kinds.count("tensor"):
            raise LaunchError(
                "TK400",
                f"the backward of {name} gives {len(result)} gradients for "
                f"{kinds.count('tensor')} tensors",
                hint="return one gradient, or None, for each tensor input",
            )
        # An operator cannot return None in a list: an empty tensor stands for "no gradient".
        return [tensors[0].new_empty(0) if g is None else g for g in result]

    tensor_list = list[torch.Tensor]
    run.__annotations__ = {
        "grads": tensor_list,
        "tensors": tensor_list,
        "numbers": list[float],
        "outputs": tensor_list,
        "return": tensor_list,
    }
    gradient = torch.library.custom_op(f"tklearn::{name}_backward", run, mutates_args=())
    gradient.register_fake(run)

    def setup(ctx: Any, inputs: tuple, output: Any) -> None:
        outs = output if isinstance(output, tuple) else (output,)
        tensors = [x for x, k in zip(inputs, kinds, strict=True) if k == "tensor"]
        ctx.numbers = [float(x) for x, k in zip(inputs, kinds, strict=True) if k != "tensor"]
        ctx.inputs = len(tensors)
        ctx.save_for_backward(*tensors, *outs)

    def back(ctx: Any, *grads: Any) -> tuple:
        saved = ctx.saved_tensors
        tensors, outs = list(saved[: ctx.inputs]), list(saved[ctx.inputs :])
        filled = [
            (torch.zeros_like(o) if g is None else g.contiguous())
            for g, o in zip(grads, outs, strict=True)
        ]
        found = iter(gradient(filled, tensors, ctx.numbers, outs))
        result: list[Any] = []
        for k in kinds:
            g = next(found) if k == "tensor" else None
            result.append(None if g is None or g.numel() == 0 and g.dim() == 1 else g)
        return tuple(result)

    op.register_autograd(back, setup_context=setup)
