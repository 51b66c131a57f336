"""Small changes of right answers: each must be refused, or be shown to change nothing.

A mutant differs from the solution by one edit: an index swapped or moved by one, a line dropped, an
operator changed. `SAME` lists those that survive a check and differ in no result and no counter
that the check can see, with the reason.
"""

from __future__ import annotations

import ast
import copy
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import permutations
from typing import Any

from tklearn.course.engine import composed, execute, judge, plan
from tklearn.course.extract import Answer
from tklearn.course.item import KernelItem, Order
from tklearn.course.verdict import Verdict

PER_ITEM = 15
SEEDS = (0, 11, 12)  # of the inputs on which a survivor is compared with the solution
OPERATORS: dict[type, type] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mod,
    ast.Mod: ast.FloorDiv, ast.BitXor: ast.BitOr, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitXor,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.And: ast.Or, ast.Or: ast.And, ast.Div: ast.Mult,
}  # fmt: skip

# item -> {mutant: why it is as good as the solution}
SAME: dict[str, dict[str, str]] = {}


def _edits(tree: ast.Module) -> Iterator[tuple[str, Callable[[ast.AST], None], int]]:
    """(what is done, how, to the n-th node of ast.walk) for each edit of a function's body."""
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    heads = [*function.decorator_list, function.args]
    skip = {id(n) for h in heads for n in ast.walk(h)}
    for at, n in enumerate(ast.walk(tree)):
        line = getattr(n, "lineno", 0)
        if id(n) in skip:
            continue
        if isinstance(n, ast.BinOp | ast.AugAssign) and type(n.op) in OPERATORS:
            yield f"line {line}: operator of {ast.unparse(n)}", _operator, at
        elif isinstance(n, ast.Compare) and type(n.ops[0]) in OPERATORS:
            yield f"line {line}: comparison {ast.unparse(n)}", _comparison, at
        elif isinstance(n, ast.BoolOp):
            yield f"line {line}: and/or of {ast.unparse(n)}", _operator, at
        elif isinstance(n, ast.Constant) and type(n.value) is int:
            yield f"line {line}:{n.col_offset} {n.value} + 1", _more, at
            yield f"line {line}:{n.col_offset} {n.value} - 1", _less, at
        elif isinstance(n, ast.Subscript) and isinstance(n.slice, ast.Tuple):
            if len(n.slice.elts) >= 2:
                yield f"line {line}: indices of {ast.unparse(n)} swapped", _swap, at
        elif isinstance(n, ast.Attribute) and n.attr in ("x", "y"):
            yield f"line {line}:{n.col_offset} {ast.unparse(n)} along the other axis", _axis, at
        elif isinstance(n, ast.Attribute) and n.attr in ("rows", "cols"):
            yield f"line {line}:{n.col_offset} {ast.unparse(n)} of the other side", _side, at
        elif isinstance(n, ast.Expr | ast.Assign | ast.AugAssign):
            yield f"line {line}: without {ast.unparse(n)}", _drop, at


def _operator(n: Any) -> None:
    n.op = OPERATORS[type(n.op)]()


def _comparison(n: Any) -> None:
    n.ops[0] = OPERATORS[type(n.ops[0])]()


def _more(n: Any) -> None:
    n.value += 1


def _less(n: Any) -> None:
    n.value -= 1


def _swap(n: Any) -> None:
    n.slice.elts[-2:] = n.slice.elts[:-3:-1]


def _axis(n: Any) -> None:
    n.attr = "y" if n.attr == "x" else "x"


def _side(n: Any) -> None:
    n.attr = "rows" if n.attr == "cols" else "cols"


def _drop(n: Any) -> None:
    n.__class__ = ast.Pass
    n._fields = ()


def mutants(item: KernelItem, answer: Answer, how_many: int = PER_ITEM) -> list[tuple[str, Answer]]:
    """(what was changed, the answer) of some of the edits, the same ones each time."""
    if isinstance(item, Order):
        return _orders(item, answer, how_many)
    every = []
    for name, piece in answer.pieces.items():
        tree = ast.parse(piece.text)
        for what, edit, at in _edits(tree):
            changed = copy.deepcopy(tree)
            edit(list(ast.walk(changed))[at])
            text = ast.unparse(ast.fix_missing_locations(changed)) + "\n"
            pieces = {**answer.pieces, name: replace(piece, text=text)}
            every.append((f"{name}, {what}", replace(answer, pieces=pieces)))
    return sorted(random.Random(5).sample(every, min(how_many, len(every))), key=lambda m: m[0])


def _orders(item: Order, answer: Answer, how_many: int) -> list[tuple[str, Answer]]:
    """Other orders, with lines left out or one too many."""
    right = answer.order or ()
    every = {tuple(p) for p in permutations(right)} - {right}
    every |= {right[:i] + right[i + 1 :] for i in range(len(right))}
    extra = [x.id for x in item.lines if x.id not in right]
    every |= {(*right[:i], e, *right[i:]) for e in extra for i in range(len(right) + 1)}
    chosen = random.Random(5).sample(sorted(every), min(how_many, len(every)))
    return [(" ".join(o), replace(answer, order=o)) for o in sorted(chosen)]


def verdict_of(item: KernelItem, answer: Answer) -> Verdict:
    """The verdict of grading."""
    answer = composed(item, answer)
    if answer.problem:
        return Verdict(item.id, message=answer.problem)
    cases = plan(item, seed=7, hidden=True)
    return judge(item, answer, cases, execute(answer, cases, item.runs, item.steps))


def difference(item: KernelItem, one: Answer, other: Answer) -> str:
    """The first difference in bits or counters on all sizes with several seeds, "" for none."""
    for seed in SEEDS:
        cases = plan(item, seed, hidden=True)
        got = [execute(composed(item, a), cases, item.runs, item.steps) for a in (one, other)]
        for case, a, b in zip(cases, *got, strict=True):
            if a.total != b.total:
                moved = [k for k in a.total if a.total[k] != b.total[k]]
                return f"{case.says}: {', '.join(moved)}"
            for x, y in zip(a.outputs, b.outputs, strict=True):
                if any(x[n].tobytes() != y[n].tobytes() for n in x):
                    return f"{case.says}: other bits"
    return ""
