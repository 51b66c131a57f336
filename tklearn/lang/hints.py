"""Words for what is not in the language: what Python is called, and what to write instead.

Knows Python's syntax and the names of the language, and decides nothing.
"""

from __future__ import annotations

import ast
from difflib import get_close_matches

from tklearn.lang.names import SPECIAL_CALLS, SPECIALS
from tklearn.lang.ops import OPS

DEVICE_HEADS = (
    *("tk", "warp", "block", "warpgroup", "tma"),
    *("threadIdx", "blockIdx", "blockDim", "gridDim"),
)
# What `from tklearn import ...` brings; a kernel pasted without that line lacks them.
IMPORTED = (
    *DEVICE_HEADS[1:],
    *sorted(c for c in SPECIAL_CALLS if "." not in c),
    *("init_semaphore", "wait", "arrive"),
)
TYPES = {
    *(f"{t}{d}" for t in ("rt", "st", "gl") for d in ("", "_bf", "_hf", "_fl")),
    *("rv", "sv", "col_vec", "row_vec", "reg_array"),
}
# Words of NumPy, Numba and CUDA, and what is meant by them here.
FOREIGN = {
    **dict.fromkeys(("float32", "fp32"), "tk.f32"),
    **dict.fromkeys(("float16", "half", "fp16"), "tk.f16"),
    **dict.fromkeys(("bfloat16", "bf"), "tk.bf16"),
    **dict.fromkeys(("int32", "uint32", "int64", "uint8"), "tk.i32, tk.u32, tk.i64 or tk.u8"),
    "zeros": "t = tk.rt_fl(16, 16), then warp.zero(t)",
    "ones": "t = tk.rt_fl(16, 16), then warp.one(t)",
    "full": "t = tk.rt_fl(16, 16), then warp.fill(t, value)",
    "empty": "t = tk.rt_fl(16, 16)",
    "dot": "warp.mma_AB(acc, a, b)",
    "matmul": "warp.mma_AB(acc, a, b)",
    "softmax": "t = tk.exp(t - tk.row_max(t)), then t /= tk.row_sum(t)",
    "mean": "tk.row_sum(t) / 128, with the number of columns for 128",
    "where": "a if condition else b, for the numbers of a lane",
    "syncthreads": "block.sync()",
    "__syncthreads": "block.sync()",
    "syncwarp": "warp.sync()",
    "__syncwarp": "warp.sync()",
    **dict.fromkeys(("mbarrier", "barrier", "Semaphore"), "s = tk.shared(tk.semaphore)"),
    **dict.fromkeys(("wgmma", "mma_async"), "warpgroup.mma_AB(acc, a, b)"),
    "setmaxnreg": "warpgroup.increase_registers(232), warpgroup.decrease_registers(40)",
}
ONLY_THERE = {
    "range": "it stands in a for loop",
    "len": "arrays have A.rows and A.cols; the length of a 1-d array is A.cols",
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


def undefined(name: str) -> str:
    """What to do about a name that nobody has defined; "" where that is not known."""
    if name in IMPORTED:
        return f"write 'from tklearn import {name}' above the kernel"
    if name == "tk":
        return "write 'import tklearn as tk' above the kernel"
    close = get_close_matches(name, IMPORTED, 1, 0.7)
    return f"did you mean '{close[0]}'?" if close else ""


def lacking(module: str, name: str, names: list[str]) -> str:
    """What to write for an attribute that a module lacks; `names`: those that it has."""
    if module != "tklearn":
        close = get_close_matches(name, names, 1, 0.7)
        return f"did you mean {close[0]}?" if close else "check the spelling"
    exact = [o for o in OPS if o.split(".")[-1] == name]
    if name in FOREIGN or exact:
        return near(f"tk.{name}")
    close = get_close_matches(name, names, 1, 0.7)
    return f"did you mean tk.{close[0]}?" if close else "docs/language.md lists the functions"


def near(name: str) -> str:
    last = name.split(".")[-1]
    if last in OPS and not name.startswith(("tk.", "warp.", "block.")):
        return f"inside kernels write tk.{last}"
    if last in FOREIGN:
        return f"write {FOREIGN[last]}"
    if name in TYPES:
        return f"write tk.{name}"
    head = name.removeprefix("tk.").split(".")[0]
    if f"{head}.x" in SPECIALS:
        return f"write {head}.x, {head}.y or {head}.z"
    every = [*OPS, *SPECIALS, *SPECIAL_CALLS]
    close = get_close_matches(name.removeprefix("tk."), every, 1, 0.6)
    same = [o for o in every if o.split(".")[-1] == last]
    best = same[0] if same else close[0] if close else ""
    if not best:
        return "docs/language.md lists the functions"
    return f"did you mean {best if '.' in best or best in SPECIAL_CALLS else 'tk.' + best}?"
