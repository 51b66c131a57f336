"""The op table: one row per operation of the language.

The front end, both machines, docs/language.md and the parity tests read this one table. A row says
who acts (scope), what each parameter is for (role), which types fit (rule), what it does to memory
(effect), its C++ spelling, the smallest architecture, and for sums the order of additions. How a
machine performs it is in sim/ops.py and in the CUDA headers; a test asserts that both have all.
The rows of TMA, semaphores and warpgroups are in async_rows.py.
"""

from __future__ import annotations

from tklearn.lang import async_rows, async_rules, rules
from tklearn.lang import types as T
from tklearn.lang.table import OPS, Op, Param
from tklearn.lang.table import row as _row

__all__ = ["DTYPE_ARCH", "FOLD", "MMA_ARCH", "OPS", "YIELDING", "Op", "Param", "blocks"]
YIELDING, blocks = async_rows.YIELDING, async_rows.blocks

FOLD = "halves folded in index order: n -> (n+1)//2, x[i] += x[i+h]; an accumulator is added last"
NAN_DROP = "NaN loses against a number (CUDA fmaxf, fminf)"

# ----------------------------------------------------------------------------------- the rows
INF = float("inf")
_row(
    "block.sync",
    "block",
    "id:index threads:static",
    async_rules.block_sync,
    "sync",
    "Barrier: waits until every thread of the block is here; orders all their memory accesses. "
    "With an id, a named barrier: waits until `threads` threads (default: all of the block) have "
    "come to it or passed its arrive.",
    defaults={"id": None, "threads": None},
)
_row(
    "warp.sync",
    "warp",
    "",
    rules.statement,
    "sync",
    "Orders the memory accesses of the 32 lanes of this warp.",
)

_row("warp.zero", "warp", "dst:dst", rules.fill, "fill", "Sets every element to 0.")
_row("warp.one", "warp", "dst:dst", rules.fill, "fill", "Sets every element to 1.")
_row(
    "warp.neg_infty", "warp", "dst:dst", rules.fill, "fill", "Sets every element to minus infinity."
)
_row("warp.pos_infty", "warp", "dst:dst", rules.fill, "fill", "Sets every element to infinity.")
_row(
    "warp.fill",
    "warp",
    "dst:dst value:value",
    rules.fill,
    "fill",
    "Sets every element to a number.",
)
_row(
    "warp.copy",
    "warp",
    "dst:dst src:src",
    rules.copy_into,
    "fill",
    "Copies a tile or vector, converting the dtype (round to nearest even; fp8 saturates).",
)

_OPT = {"coord": None}
_row(
    "warp.load",
    "warp",
    "dst:dst src:src coord:coord",
    rules.load,
    "load",
    "Loads a register tile or vector from global or shared memory, or (by one warp) a shared "
    "tile from global memory; converts to the register's dtype. Past the end of the array: "
    "zeros.",
    defaults=_OPT,
)
_row(
    "warp.store",
    "warp",
    "dst:dst src:src coord:coord",
    rules.store,
    "store",
    "Stores a register tile or vector, or (by one warp) a shared tile; converts to the memory's "
    "dtype. Past the end of the array: nothing.",
    defaults=_OPT,
)
_row(
    "block.load",
    "block",
    "dst:dst src:src coord:coord",
    rules.block_load,
    "load",
    "All threads of the block copy a tile from global into shared memory, 16 bytes at a time. A "
    "barrier must follow before others read it.",
)
_row(
    "block.store",
    "block",
    "dst:dst src:src coord:coord",
    rules.block_store,
    "store",
    "All threads of the block copy a shared tile to global memory.",
)
_row(
    "warp.load_async",
    "warp",
    "dst:dst src:src coord:coord",
    rules.block_load,
    "load_async",
    "cp.async by one warp: starts copying a tile into shared memory; the data is there only "
    "after commit_group and wait_group (sm_75: an ordinary load).",
)
_row(
    "block.load_async",
    "block",
    "dst:dst src:src coord:coord",
    rules.block_load,
    "load_async",
    "cp.async by all threads: starts copying a tile into shared memory; the data is there only "
    "after commit_group and wait_group, and for other threads after a barrier (sm_75: an "
    "ordinary load).",
)
_row(
    "commit_group",
    "warp",
    "",
    rules.statement,
    "async_group",
    "Closes the group of asynchronous copies this thread has started.",
)
_row(
    "wait_group",
    "warp",
    "n:static",
    rules.wait_group,
    "async_group",
    "Waits until at most the newest n groups of this thread are still running.",
    cpp="wait_group",
)

for _ta in (False, True):
    for _tb in (False, True):
        _n = "mma_A" + "t" * _ta + "B" + "t" * _tb
        _row(
            f"warp.{_n}",
            "warp",
            "acc:acc a:src b:src",
            rules.mma(_ta, _tb),
            "mma",
            f"Tensor cores: acc += {'A^T' if _ta else 'A'} @ {'B^T' if _tb else 'B'} "
            f"(A in {'col' if _ta else 'row'}, B in {'row' if _tb else 'col'} layout); "
            "f32 inputs are used as tf32.",
            order="k in steps of the instruction; inside a step as the tensor core does",
        )

_row(
    "warp.tril",
    "warp",
    "t:acc diagonal:index fill:value",
    rules.mask,
    "mask",
    "Keeps elements on and below a diagonal (col <= row + diagonal), fills the rest.",
    defaults={"diagonal": 0, "fill": 0.0},
)
_row(
    "warp.triu",
    "warp",
    "t:acc diagonal:index fill:value",
    rules.mask,
    "mask",
    "Keeps elements on and above a diagonal (col >= row + diagonal), fills the rest.",
    defaults={"diagonal": 0, "fill": 0.0},
)
_row(
    "warp.make_causal",
    "warp",
    "t:acc fill:value",
    rules.mask,
    "mask",
    "Fills the elements above the main diagonal, by default with minus infinity.",
    defaults={"fill": -INF},
)
_row(
    "warp.right_fill",
    "warp",
    "t:acc index:index fill:value",
    rules.mask,
    "mask",
    "Fills columns index and after.",
    defaults={"fill": 0.0},
)
_row(
    "warp.left_fill",
    "warp",
    "t:acc index:index fill:value",
    rules.mask,
    "mask",
    "Fills columns before index.",
    defaults={"fill": 0.0},
)
_row(
    "warp.lower_fill",
    "warp",
    "t:acc index:index fill:value",
    rules.mask,
    "mask",
    "Fills rows index and after.",
    defaults={"fill": 0.0},
)
_row(
    "warp.upper_fill",
    "warp",
    "t:acc index:index fill:value",
    rules.mask,
    "mask",
    "Fills rows before index.",
    defaults={"fill": 0.0},
)

for _n, _d in {
    "exp": "e^x, as ex2.approx(x * log2 e)",
    "exp2": "2^x, ex2.approx.ftz",
    "log": "natural logarithm, lg2.approx * ln 2",
    "log2": "logarithm in base 2, lg2.approx",
    "sqrt": "square root, rounded to nearest",
    "rsqrt": "1/sqrt(x), rsqrt.approx.ftz",
    "rcp": "1/x, rcp.approx.ftz",
    "tanh": "hyperbolic tangent, tanh.approx",
    "sin": "sine of radians",
    "cos": "cosine of radians",
    "relu": "max(x, 0)",
}.items():
    _row(
        _n,
        "lane",
        "x:src",
        rules.map_one,
        "pure",
        f"Elementwise on tiles, vectors and numbers: {_d}.",
    )
_row(
    "abs", "lane", "x:src", rules.absolute, "pure", "Absolute value of tiles, vectors and numbers."
)
_row(
    "max",
    "lane",
    "a:src b:src",
    rules.minmax,
    "pure",
    "Elementwise maximum of two; max(vector) is the largest element, in all lanes.",
    nan=NAN_DROP,
    defaults={"b": None},
)
_row(
    "min",
    "lane",
    "a:src b:src",
    rules.minmax,
    "pure",
    "Elementwise minimum of two; min(vector) is the smallest element, in all lanes.",
    nan=NAN_DROP,
    defaults={"b": None},
)
_row(
    "sum",
    "warp",
    "v:src",
    rules.vector_sum,
    "pure",
    "The sum of a vector's elements in f32, in all lanes.",
    order=FOLD,
)
for _k, _v in (("row", "col"), ("col", "row")):
    for _n in ("max", "min", "sum"):
        _row(
            f"{_k}_{_n}",
            "warp",
            "t:src acc:src",
            rules.reduce(_v),
            "pure",
            f"{_n} over each {'row' if _k == 'row' else 'column'} of a tile, as a {_v}_vec; "
            "with acc, combined with it.",
            order=FOLD if _n == "sum" else "",
            nan="" if _n == "sum" else NAN_DROP,
            defaults={"acc": None},
        )
_row(
    "copy", "warp", "x:src", rules.copy_value, "pure", "A new tile or vector with the same values."
)
_row(
    "convert",
    "warp",
    "x:src dtype:static",
    rules.convert,
    "pure",
    "A new tile or vector in another dtype (round to nearest even; fp8 saturates).",
)
_row(
    "swap_layout",
    "warp",
    "x:src",
    rules.swap_layout,
    "pure",
    "The same matrix in the other register layout (movmatrix, shuffles).",
)
_row(
    "transpose",
    "warp",
    "x:src",
    rules.transpose,
    "pure",
    "The transposed matrix in the same layout (movmatrix, shuffles).",
)
_row("cdiv", "lane", "a:src b:src", rules.cdiv, "pure", "Whole-number division rounded up.")

_row(
    "warp.shfl",
    "warp",
    "x:src lane:index",
    rules.shuffle,
    "shuffle",
    "The value that another lane holds.",
)
_row(
    "warp.shfl_up",
    "warp",
    "x:src delta:index",
    rules.shuffle,
    "shuffle",
    "The value held delta lanes below; the lowest keep their own.",
)
_row(
    "warp.shfl_down",
    "warp",
    "x:src delta:index",
    rules.shuffle,
    "shuffle",
    "The value held delta lanes above; the highest keep their own.",
)
_row(
    "warp.shfl_xor",
    "warp",
    "x:src mask:index",
    rules.shuffle,
    "shuffle",
    "The value held by lane ^ mask.",
)
_row(
    "warp.any",
    "warp",
    "p:pred",
    rules.boolean,
    "shuffle",
    "True in all lanes if any lane's predicate is.",
)
_row(
    "warp.all",
    "warp",
    "p:pred",
    rules.boolean,
    "shuffle",
    "True in all lanes if every lane's predicate is.",
)
_row("warp.ballot", "warp", "p:pred", rules.unsigned, "shuffle", "One bit a lane: its predicate.")
_row(
    "warp.uniform",
    "warp",
    "x:src",
    rules.same,
    "shuffle",
    "Asserts that all lanes hold one value and makes it warp-uniform.",
)

for _n, _d in {
    "add": "adds",
    "max": "keeps the larger",
    "min": "keeps the smaller",
    "exch": "stores",
}.items():
    _row(
        f"atomic_{_n}",
        "lane",
        "ref:ref value:value",
        rules.atomic(_n),
        "atomic",
        f"Atomically {_d} and returns the old value.",
    )
_row(
    "atomic_cas",
    "lane",
    "ref:ref compare:value value:value",
    rules.atomic("cas"),
    "atomic",
    "Atomically stores value if the element equals compare; returns the old value.",
)

_row(
    "warp.ldmatrix",
    "warp",
    "dst:dst ref:ref trans:static",
    rules.ldmatrix,
    "load",
    "Loads 8x8 matrices of halves; lanes 8j to 8j+7 name the rows of matrix j, each 16 bytes. "
    "With trans each matrix arrives transposed.",
    defaults={"trans": False},
)
_row(
    "warp.mma_m16n8k16",
    "warp",
    "c:acc a:src b:src",
    rules.mma_registers(8, 4, (T.bf16, T.f16)),
    "mma",
    "One tensor-core instruction on this lane's registers: C (16x8) += A (16x16) B (16x8).",
    arch=80,
)
_row(
    "warp.mma_m16n8k8",
    "warp",
    "c:acc a:src b:src",
    rules.mma_registers(4, 2, (T.f32,)),
    "mma",
    "One tf32 tensor-core instruction on this lane's registers: C (16x8) += A (16x8) B (8x8).",
    arch=80,
)

# A tile dtype's smallest architecture, and that of its tensor-core products.
DTYPE_ARCH = {"bf16": 80, "e4m3": 89, "e5m2": 89}
MMA_ARCH = {"f16": 75, "bf16": 80, "f32": 80, "e4m3": 89, "e5m2": 89}

async_rows.add()
