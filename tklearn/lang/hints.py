"""Words for what is not in the language: what Python is called, and what to write instead.

Knows Python's syntax and the names of the language, and decides nothing.
"""

from __future__ import annotations

import ast
from difflib import get_close_matches

from tklearn.lang.names import SPECIAL_CALLS, SPECIALS
from tklearn.lang.ops import OPS

DEVICE_HEADS = ("tk", "warp", "block", "threadIdx", "blockIdx", "blockDim", "gridDim")
ONLY_THERE = {
    "range": "it stands in a for loop",
    "len": "arrays have A.rows and A.cols",
    "print": "write it on a line of its own",
    "breakpoint": "write it on a line of its own",
    "enumerate": "loop over range, and index inside the loop",
    "zip": "loop over range, and index inside the loop",
}


def kind(n: ast.AST) -> str:
    words = {
        "ListComp": "a list comprehension",
        "List": "a list",
        "Dict": "a dictionary",
        "Lambda": "a lambda",
        "JoinedStr": "an f-string",
        "Pow": "'**'",
        "MatMult": "'@'",
        "Try": "try",
        "With": "with",
        "Set": "a set",
        "Starred": "'*'",
        "NamedExpr": "':='",
        "Yield": "yield",
        "Await": "await",
        "Tuple": "a tuple",
        "GeneratorExp": "a generator",
        "ClassDef": "a class",
        "FunctionDef": "an inner function",
        "Import": "import",
        "ImportFrom": "import",
        "Global": "global",
        "Nonlocal": "nonlocal",
        "Raise": "raise",
        "Delete": "del",
        "AnnAssign": "an annotated assignment",
        "Match": "match",
        "AsyncFor": "async for",
    }
    return words.get(type(n).__name__, type(n).__name__)


def hint(n: ast.AST) -> str:
    if isinstance(n, (ast.ListComp, ast.GeneratorExp, ast.List)):
        return "write a for loop over range, or use a tile"
    if isinstance(n, ast.Tuple):
        return "tuples are for coordinates and for swapping numbers: a, b = b, a"
    if isinstance(n, ast.JoinedStr):
        return "print takes several arguments: print('x', x)"
    if isinstance(n, ast.NamedExpr):
        return "assign on a line of its own"
    if isinstance(n, ast.FunctionDef):
        return "define it outside the kernel and mark it with @tk.device"
    if isinstance(n, (ast.Try, ast.Raise)):
        return "write assert condition, 'message'"
    if isinstance(n, (ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal)):
        return "write it outside the kernel"
    if isinstance(n, ast.stmt):
        return "kernels have assignments, for, while, if, assert, print and calls"
    if isinstance(n, (ast.Lambda, ast.Dict, ast.Set)):
        return "values are numbers, tiles, vectors and elements of arrays"
    return ""


def near(name: str) -> str:
    last = name.split(".")[-1]
    if last in OPS and not name.startswith(("tk.", "warp.", "block.")):
        return f"inside kernels write tk.{last}"
    if last in ("syncthreads", "__syncthreads"):
        return "write block.sync()"
    if last in ("syncwarp", "__syncwarp"):
        return "write warp.sync()"
    every = [*OPS, *SPECIALS, *SPECIAL_CALLS]
    close = get_close_matches(name.removeprefix("tk."), every, 1, 0.6)
    same = [o for o in every if o.split(".")[-1] == last]
    best = same[0] if same else close[0] if close else ""
    if not best:
        return "docs/language.md lists the functions"
    return f"did you mean {best if '.' in best or best in SPECIAL_CALLS else 'tk.' + best}?"
