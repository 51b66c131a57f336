# ruff: noqa: E501  the lines of a page are as long as the page wants them
"""docs/language.md: the language for learners, made from the op table, the types and the codes.

Knows how to say it; what it says of operations, types and codes is read from their tables, so that
the page cannot drift from what the front end does. `python -m tklearn.lang.reference` prints it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence

from tklearn.lang import types as T
from tklearn.lang.errors import CODES
from tklearn.lang.ops import DTYPE_ARCH, FOLD, MMA_ARCH, OPS, Op
from tklearn.lang.reference_async import ASYNC_GROUPS, ASYNCHRONY

OPENING = """# The kernel language

A kernel is a Python function marked `@tk.kernel`. It is not run by Python: its text is read once for
each kind of arguments, checked, and given to two machines. The simulator runs it on NumPy arrays and
explains every access; the GPU runs it as CUDA C++, about one line for each line of Python. What stands
on this page holds on both.

```python
import tklearn as tk
from tklearn import blockIdx, warp, warpid

@tk.kernel(warps=4)                             # 128 threads a block
def softmax(x: tk.gl_bf, y: tk.gl_bf):          # two arrays of bf16
    at = (blockIdx.x * 4 + warpid(), 0)         # a coordinate: tile row, tile column
    row = tk.rt_fl(16, 128)                     # a register tile of this warp
    warp.load(row, x, at)                       # destination first; converts bf16 to f32
    row = tk.exp(row - tk.row_max(row))         # register arithmetic is ordinary expressions
    row /= tk.row_sum(row)
    warp.store(y, row, at)

softmax[rows // 64](x, y)                       # NumPy: the simulator. CuPy, torch on a GPU: the GPU
```

`softmax.show(x, y)` puts the Python beside its C++; `softmax.source(x, y)` is the C++ alone.

## Four levels

| level | what you write | what it is in CUDA |
| --- | --- | --- |
| tiles | register tiles and vectors, shared tiles, `warp.load`, `block.load`, `warp.mma_AB`, `tk.exp`, \
`tk.row_max` | calls of the header library (ldmatrix, mma.sync) |
| lanes | `threadIdx`, `blockIdx`, numbers that differ by lane, `A[i]`, `tk.shared_array`, shuffles, \
atomics, `if` by lane | the same scalar C++ |
| below a tile | `tile.reg(i)`, `tk.reg_array`, `warp.ldmatrix`, `warp.mma_m16n8k16`, `tk.vec`, swizzles \
| single instructions |
| asynchrony | `tk.semaphore`, `tma.load_async`, `warpgroup.mma_AB`, named barriers, roles by plain `if` \
| mbarrier, TMA, wgmma, setmaxnreg: sm_90a |

Nothing is inserted for you: a barrier that is not written is not there.

## Launching

| Python | what it does |
| --- | --- |
| `@tk.kernel(warps=4)` | Blocks of 4 warps, 128 threads. |
| `@tk.kernel(threads=256)`, `threads=(16, 16)` | Blocks of so many threads along x, y and z; at most 1024. |
| `k[blocks](x, y)`, `k[bx, by, bz](x, y)` | Runs that many blocks along x, y, z and gives a report. The \
block size does not stand here. |
| `k.sim[blocks](x, y, steps=n)` | The simulator with its options; n loop iterations a warp, then it is stopped. |
| `print(report)`, `report.listing()` | The totals; the counters beside each line. |
| `report.total["global_ld_sectors"]` | One number. |
| `tk.compare(k, blocks, (x, y))` | Predicted, simulated and measured. |

Arrays have the dtype that is annotated. NumPy has no bf16 of its own: `import ml_dtypes`, then
`x.astype(ml_dtypes.bfloat16)`.
"""

STATEMENTS = [
    ("`x = 1.5`", "The first assignment declares a name, in the block where it stands; later ones "
     "store into it. It keeps its type.", "`float x = 1.5f;`"),
    ("`x: tk.u32 = 0`", "A first assignment with a type.", "`unsigned x = 0u;`"),
    ("`x += 1`", "Also `-= *= /= //= %= &= \\|= ^= <<= >>=`, on numbers, elements and tiles "
     "(`+ - * /`).", "`x += 1;`"),
    ("`a, b = b, a`", "Numbers only; all values are read first.", "`{ int tmp = b; ... }`"),
    ("`A[i, j] = x`", "An element of an array or shared tile, one index a dimension.",
     "`A[{i, j}] = x;`"),
    ("`if c:` `elif` `else`", "By lane, by warp or by block. On compile-time values only the branch "
     "taken is read.", "`if (c) { ... }`"),
    ("`for i in range(a, b, s):`", "Bounds and step are read once, `i` is not assigned. The step is a "
     "compile-time number, or a positive one that the block agrees on (`gridDim.x`).",
     "`for (int i = a; ...)`"),
    ("`for i in tk.static_range(n):`", "Unrolled: `i` is a compile-time number in each step.",
     "`{ ... } { ... }`"),
    ("`while c:`", "With `break` and `continue`, as in `for`.", "`while (c) { ... }`"),
    ("`return`", "Ends the lane. A block barrier after that is a fault.", "`return;`"),
    ("`assert c, \"text\"`", "Stops the run where a lane finds c false.", "`TK_ASSERT(...)`"),
    ("`print(\"x\", x)`", "Text and numbers. Simulator: one line a warp, with a list where lanes "
     "differ. GPU: one line a lane, or a warp that agrees.",
     "`TK_PRINT(...)`"),
    ("`breakpoint()`", "Simulator: stops in the debugger at this line. On the GPU: nothing.", "-"),
    ("`helper(t, 2)`", "A function marked `@tk.device`: tiles by reference, numbers by value, "
     "`tk.const` parameters at compile time; its last statement may return one value.",
     "`helper(t, 2);`"),
]  # fmt: skip

EXPRESSIONS = [
    ("`+ - *`", "Numbers, tiles and vectors.", "`+ - *`"),
    ("`/`", "Floats, tiles and vectors; between whole numbers it is an error (of compile-time numbers, "
     "`1 / 2` is 0.5).", "`/`"),
    ("`//` `%`", "Whole numbers, rounded down as in Python.",
     "`/` and `%` where nothing is negative, else `floordiv`, `floormod`"),
    ("`a * b + c`, `a * b - c`", "In one expression: one operation, rounded once.",
     "`fma(a, b, c)`, `fms(a, b, c)`"),
    ("`& \\| ^ ~ << >>`", "Whole numbers; `& \\| ^` on conditions too.", "the same"),
    ("`a < b <= c`", "Chains of `< <= == != > >=`, on numbers.", "`a < b && b <= c`"),
    ("`and` `or` `not`", "Short-circuit for each lane.", "`&& \\|\\| !`"),
    ("`a if c else b`", "Numbers; only the side that is needed runs.", "`c ? a : b`"),
    ("`int(x)` `float(n)` `tk.u32(n)`", "Conversions. Float to whole number saturates.",
     "`to_i32(x)`, `float(n)`"),
    ("`A.rows` `A.cols` `A.depth` `A.batch`", "Sizes of an array; a 1-d array is one row, its length is `A.cols`.", "`A.rows()`"),
    ("`tk.vec(x, 4)[i]`", "The i-th group of 4 neighbours in one access; `v[0]` to `v[3]`.",
     "`vec_load<4>(x, i)`, `vec_store<4>(x, i, v)`"),
    ("`s.subtile(16, 64, (i, j))`", "A window of a shared tile, counted in windows.",
     "`subtile<16, 64>(s, {i, j})`"),
    ("`t.reg(i)`", "This lane's i-th element of a register tile.", "`t.reg(i)`"),
    ("`threadIdx.x` `blockIdx.x` `blockDim.x` `gridDim.x`", "Also `.y` and `.z`; i32.",
     "the same"),
    ("`laneid()` `warpid()`", "The thread's lane in its warp, its warp in the block.", "the same"),
    ("`warpgroup.groupid()` `.warpid()` `.laneid()`", "The warpgroup (4 warps) in the block; the warp, "
     "and the thread (0 to 127), in the warpgroup.", "`warpgroup::groupid()`"),
    ("`r.stage` `r.phase`", "Of `r = tk.ring(n)`: 0 to n - 1, and 0 or 1; `r.advance()` goes on.",
     "the same"),
    ("`s[k]`", "One tile of `s = tk.shared(T, n)`; it may be given a name once.", "`s[k]`"),
]  # fmt: skip

NUMBERS = """
* A float literal is f32. A whole number is i32, or i64 where it does not fit; beside a u32 it is u32.
* Mixed arithmetic gives the larger of bool < i32 < u32 < i64 < f32. Comparisons of i32 with u32 are
  made as numbers, not as bits.
* i32 overflow, shifts by 32 or more and division by zero are errors in the simulator and undefined in
  C++; u32 wraps.
* A name that holds a whole number takes no float: write `s = 0.0`, or `int(x)`.
* bf16, f16 and fp8 live in memory and in tiles. A lane that reads one holds f32; storing rounds to
  nearest even, and fp8 saturates. u8 becomes i32.
* Arithmetic of narrow tiles is done in f32 and rounded once for each operation.
* f32 `+ - * /` and `tk.sqrt` round to nearest even and keep subnormals. `tk.exp`, `tk.exp2`, `tk.rsqrt`
  and `tk.rcp` take subnormals as zero and give zero for them.
* `k.sim[blocks](x, y, mma="exact", arch="hopper")` gives the GPU's bits for tensor-core products and
  the functions of numbers, but for `tk.log`, `tk.log2`, `tk.tanh`, `tk.sin` and `tk.cos`:
  `tk.numerics.BOUNDS` states how far the GPU's may lie from the exact result. `mma="fast"`, the
  default, multiplies tiles as NumPy does in f32.
"""

NAMES = """
* A name lives in the block of its first assignment (`if`, `for`, `while`) and ends with it. A name
  that is needed after the block gets a first value before it.
* A register tile is storage. Assigning to one that exists stores into it; `b = a` between tiles is an
  error, `b = tk.copy(a)` is a new tile.
* Shared tiles, arrays, their elements and coordinates are references, bound once: `buf = s[k]`.
* Shared memory is declared at the top of the kernel: `s = tk.shared(tk.st_bf(64, 64), 2)`,
  `full = tk.shared(tk.semaphore, 2)`, `h = tk.shared_array(tk.f32, 32, 33)`. `tk.alias(s, type, offset)` is another view of its bytes.
* Module and closure constants (numbers, dtypes, flags, tuples and lists of them) and `tk.const`
  parameters are compile-time values. They are read again at every launch; `if` on them leaves out the
  other branch, also from type checking.
* Parameters: `tk.gl_bf`, `tk.gl_hf`, `tk.gl_fl` or `tk.gl(T)` for arrays of 1 to 4 dimensions,
  `tk.i32 tk.u32 tk.i64 tk.f32 tk.bool_` for numbers, `tk.const` for compile-time values.
"""

TOGETHER = """
Warps are 32 consecutive threads, x fastest; warpgroups are 4 consecutive warps. Each value is known to
be the same in the block (`blockIdx`, arguments), the same in each warpgroup (`warpgroup.groupid()`,
`warpid() // 4`, `warpid() < 8`), the same in each warp (`warpid()`, `threadIdx.x // 32`, sums and
votes), or different by lane (`threadIdx.x`, `laneid()`, what they index). `threadIdx.y` is the same in
each warp for blocks of (32, 8), not of (16, 16).

* Scope *lane*: anywhere.
* Scope *warp*: where all 32 lanes are, with operands on which they agree. Tiles are worked on by
  warps. `arrive`, `wait` and `tma.*` act once for the warp: no `if laneid() == 0` stands before them.
* Scope *group*: where all 4 warps of a warpgroup are, with operands on which they agree.
* Scope *block*: where all threads are, with operands on which the block agrees. `block.sync()` itself
  is checked when it runs. Named barriers are for some of the warps.

`warp.uniform(x)` asserts that all lanes hold one value.
"""

MEMORY = """
* Coordinates of tile loads and stores count tiles: `(i,)`, `(row, col)`, `(depth, row, col)`,
  `(batch, depth, row, col)`; depth and batch count elements. For a vector they count rows and vectors.
* `A[i, j]` counts elements and has an index for each dimension. Indices start at 0; negative ones are
  errors.
* Rows and columns past the end of an array read as zero and are not stored; the report counts them.
* The last dimension is contiguous; outer strides are free.
* A `col_vec` has one value for each row of a tile, a `row_vec` one for each column; they belong to the
  tile's layout. `tk.rv(T, n)` is spread over the 32 lanes, for kernels that work on whole rows.
"""

EACH = "Elementwise on tiles, vectors and numbers: "
MMA_ORDER = OPS["warp.mma_AB"].order


def is_product(op: Op) -> bool:
    return op.effect == "mma" and op.order == MMA_ORDER


# Headings of the operations, and which rows stand below each.
GROUPS: list[tuple[str, str, Callable[[Op], bool]]] = [
    (
        "Barriers",
        "Named barriers have an `id` from 1 to 15.",
        lambda o: o.effect in ("sync", "named"),
    ),
    ("Filling and copying registers", "", lambda o: o.effect == "fill"),
    (
        "Loading and storing",
        "The coordinate is only for global arrays; shared tiles are whole, or windows of them.",
        lambda o: o.effect in ("load", "store") and o.name != "warp.ldmatrix",
    ),
    (
        "Asynchronous copies",
        "`load_async`, then `tk.commit_group()`; the data is there after `tk.wait_group(n)`, and for "
        "other threads after a barrier.",
        lambda o: o.effect in ("load_async", "async_group"),
    ),
    (
        "Tensor cores",
        "The load brings a tile into the layout that its declaration asks for. An accumulator is "
        "f32, or f16 for f16 inputs.\n"
        + "; ".join(f"{d} from sm_{a}" for d, a in MMA_ARCH.items())
        + f". Order of additions: {MMA_ORDER}.",
        is_product,
    ),
    ("Masks", "They change the tile; indices may be negative.", lambda o: o.effect == "mask"),
    (
        "Functions of numbers, tiles and vectors",
        "Element by element. Python's `abs`, `min` and `max` are the same functions.",
        lambda o: o.effect == "pure" and o.scope == "lane",
    ),
    (
        "Reductions",
        f"In f32. Order of additions: {FOLD}.",
        lambda o: o.name == "sum" or o.name[:4] in ("row_", "col_"),
    ),
    (
        "New tiles from tiles",
        "",
        lambda o: o.name in ("copy", "convert", "swap_layout", "transpose"),
    ),
    (
        "Shuffles and votes",
        "They move 32-bit numbers between the lanes of a warp.",
        lambda o: o.effect == "shuffle",
    ),
    (
        "Atomics",
        "`ref` is an element: `tk.atomic_add(h[i], 1)`. At most one in a statement.",
        lambda o: o.effect == "atomic",
    ),
    ("Below a tile", "", lambda o: o.name == "warp.ldmatrix" or "m16" in o.name),
    *ASYNC_GROUPS,
]

# Where the C++ is not the Python with "." as "::" and coordinates in braces.
SPELLING = [
    ("`A[i, j]`", "`A[{i, j}]`"),
    ("`A.cols`", "`A.cols()`"),
    ("`n // 4`, `n % 4`", "`n / 4`, `n % 4` where n cannot be negative; else `floordiv(n, 4)`, "
     "`floormod(n, 4)`"),
    ("`a * x + y`", "`fma(a, x, y)`"),
    ("`int(x)`", "`to_i32(x)`"),
    ("`tk.vec(y, 4)[i] = v`", "`vec_store<4>(y, i, v)`"),
    ("`s.subtile(16, 64, at)`", "`subtile<16, 64>(s, at)`"),
    ("`tk.convert(t, tk.bf16)`", "`convert<bf16>(t)`"),
    ("`tk.wait_group(1)`", "`wait_group<1>()`"),
    ("`tma.store_async_wait(1)`, `warpgroup.mma_async_wait(1)`, `warpgroup.increase_registers(232)`",
     "`tma::store_async_wait<1>()`, `warpgroup::mma_async_wait<1>()`, "
     "`warpgroup::increase_registers<232>()`"),
    ("`warpgroup.mma_AB(acc, a, b, fence=False)`", "`warpgroup::mma_AB<false>(acc, a, b)`"),
    ("`warp.ldmatrix(a, s[i, j], trans=True)`", "`warp::ldmatrix(a, s[{i, j}], trans)`"),
    ("`and`, `or`, `not`", "`&&`, `\\|\\|`, `!`"),
    ("a name that C++ or the headers use (`row`)", "the name with an underscore (`row_`)"),
]  # fmt: skip


def table(heads: list[str], rows: Sequence[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = [heads, ["---"] * len(heads), *(list(r) for r in rows)]
    return "\n".join("| " + " | ".join(r) + " |" for r in lines) + "\n"


def call(op: Op) -> str:
    """How an operation is written: tk.row_max(t, acc=None)."""
    head = op.name if "." in op.name else f"tk.{op.name}"
    parts = [p.name if p.default is ... else f"{p.name}={p.default}" for p in op.params]
    return f"{head}({', '.join(parts)})"


def cpp_call(op: Op) -> str:
    """The same in C++, with what a call must have."""
    shown = [p.name for p in op.params if p.default is ... or p.name in ("coord", "diagonal")]
    special = {"convert": "convert<dtype>(x)", "wait_group": "wait_group<n>()"}
    if op.name == "block.sync":
        shown = []  # the plain one
    elif op.effect in ("tma_group", "wgmma_group", "registers") and op.params:
        return f"{op.cpp}<n>()"
    return special.get(op.name, f"{op.cpp}({', '.join(shown)})")


def operation(op: Op) -> tuple[str, ...]:
    doc = op.doc.removeprefix(EACH)
    notes = [doc[:1].upper() + doc[1:] if doc[:1].islower() and doc[1:2].isalpha() else doc]
    if op.arch > 75:
        notes.append(f"From sm_{op.arch}.")
    if op.order not in ("", FOLD, MMA_ORDER):
        notes.append(f"Order of additions: {op.order}.")
    if op.nan:
        notes.append(f"{op.nan}.")
    return f"`{call(op)}`", f"`{cpp_call(op)}`", op.scope, " ".join(notes)


def operations() -> str:
    out = []
    for title, text, belongs in GROUPS:
        rows = [operation(o) for o in OPS.values() if belongs(o)]
        head = ["Python", "C++", "scope", "what it does"]
        out.append(f"### {title}\n\n" + (f"{text}\n\n" if text else "") + table(head, rows))
    return "\n".join(out)


def dtypes() -> str:
    rows = []
    for d in T.DTYPES.values():
        where = "tiles and memory" if d in T.TILE_DTYPES else "numbers and memory"
        if d == T.f32:
            where = "everywhere"
        name = "bool_" if d == T.bool_ else d.name
        rows.append((f"`tk.{name}`", f"`{d.cpp}`", where, f"sm_{DTYPE_ARCH.get(d.name, 75)}"))
    return table(["dtype", "C++", "where", "from"], rows)


def makers() -> str:
    """The types, by their constructors."""
    examples = {
        "gl": T.gl(T.bf16), "rt": T.rt(T.bf16, 16, 64), "st": T.st(T.bf16, 64, 64),
        "rv": T.rv(T.f32, 128), "col_vec": T.col_vec(16), "row_vec": T.row_vec(64),
        "sv": T.sv(T.f32, 128), "reg_array": T.reg_array(T.f32, 4), "ring": T.ring(4),
    }  # fmt: skip
    rows = []
    for f in T.TYPE_MAKERS:
        if f.__name__ not in examples:
            continue  # an alias
        args = []
        for p in inspect.signature(f).parameters.values():
            d = "" if p.default is inspect.Parameter.empty else f"={p.default!r}"
            args.append(p.name + d)
        doc = (f.__doc__ or "").strip().splitlines()[0]
        example = examples[f.__name__]
        rows.append((f"`tk.{f.__name__}({', '.join(args)})`", doc, f"`{example.cpp}`"))
    rows.append(
        ("`tk.semaphore`", "Counts arrivals and bytes in shared memory: `tk.shared(tk.semaphore, 4)`.",
         f"`{T.semaphore.cpp}`")
    )  # fmt: skip
    rows.append(
        ("`tk.shared(T, *dims)`", "Shared memory: one tile, vector or semaphore, or an array of them.",
         "`smem.at<T[2]>(offset)`")
    )  # fmt: skip
    rows.append(
        ("`tk.shared_array(dtype, *dims)`", "Shared memory that lanes index, row-major.",
         f"`{T.SArr(T.f32, (32, 33)).cpp}`")
    )  # fmt: skip
    return table(["type", "what it is", "in C++, for example"], rows)


def codes() -> str:
    return table(["code", "meaning"], [(c, text) for c, text in CODES.items()])


def page() -> str:
    """All of docs/language.md."""
    parts = [
        OPENING,
        "## Statements\n\n" + table(["Python", "what it does", "C++"], STATEMENTS),
        "Everything else is an error with a code, the line, a caret and a hint.\n",
        "## Expressions\n\n" + table(["Python", "what it does", "C++"], EXPRESSIONS),
        "## Types\n\n" + dtypes(),
        makers(),
        "`_bf`, `_hf` and `_fl` are short for bf16, f16 and f32: `tk.rt_bf(16, 64)` is "
        "`tk.rt(tk.bf16, 16, 64)`.\n",
        "## Numbers\n" + NUMBERS,
        "## Names and compile time\n" + NAMES,
        "## Who acts together\n" + TOGETHER,
        "## Memory\n" + MEMORY,
        "## Asynchrony (from sm_90a)\n" + ASYNCHRONY,
        "## Operations\n\n" + operations(),
        "A function of your own is a row of this table for both machines:\n\n```python\n"
        "@tk.intrinsic(cuda=\"__popc({x})\", sim=np.bitwise_count, result=tk.i32)\n"
        "def popc(x: tk.u32):\n    \"\"\"The number of set bits.\"\"\"\n```\n\n"
        "`sim` gets NumPy numbers and arrays of the arguments' types, from all lanes at once; tiles "
        "are no\narguments. A parameter's annotation (tk.i32, tk.u32, tk.i64, tk.f32, tk.bool_) "
        "says what it takes, so\nthat both machines get the same number; another type is refused "
        "with TK200. One without takes any\nnumber, as it is.\n",
        "## Where the C++ is spelled differently\n\n"
        "A dot becomes `::`, a coordinate tuple becomes `{}`, the first assignment a declaration. "
        "Besides:\n\n" + table(["Python", "C++"], SPELLING),
        "## Error codes\n\nTK1xx to TK3xx: the text of the kernel. TK4xx: a launch, or the GPU. "
        "TK5xx: what the\nsimulator catches while the kernel runs. TK6xx: figures. Each has "
        "[a page](errors/README.md),\nwhich `tk.explain(\"TK210\")` shows.\n\n" + codes(),
        "*Made by tklearn/lang/reference.py; tests/test_lang_reference.py keeps it true.*\n",
    ]  # fmt: skip
    return "\n".join(parts)


if __name__ == "__main__":
    print(page(), end="")
