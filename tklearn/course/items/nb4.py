"""NB4, tiles, layouts, tensor cores."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np

import tklearn as tk
from tklearn import warp
from tklearn.course.item import (
    RACES,
    Case,
    Facts,
    KernelItem,
    Line,
    Order,
    Out,
    Predict,
    Question,
    Rule,
    Work,
    Wrong,
)
from tklearn.viz.layout import ownership

HEAD = """
@tk.kernel(warps=4)
def product(A: tk.gl_hf, B: tk.gl_hf, C: tk.gl_fl):
    a_s = tk.shared(tk.st_hf(64, 64))
    b_s = tk.shared(tk.st_hf(64, 64))
    a = tk.rt_hf(16, 64)
    b = tk.rt_hf(64, 64, tk.col)
    acc = tk.rt_fl(16, 64)
    warp.zero(acc)
"""


def _product(rng: np.random.Generator, size: tuple[int, int, int]) -> Case:
    m, n, k = size
    a = rng.standard_normal((m, k), dtype=np.float32).astype(np.float16)
    b = rng.standard_normal((k, n), dtype=np.float32).astype(np.float16)
    return Case(
        says=f"{m} x {k} times {k} x {n}",
        grid=(-(-n // 64), -(-m // 64)),
        args={"A": a, "B": b, "C": Out((m, n))},
    )


def _exact(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    return A.astype(np.float64) @ B.astype(np.float64)


def _rounding(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    return (np.abs(A).astype(np.float64) @ np.abs(B).astype(np.float64)) * 64 * 2.0**-24 + 1e-12


S1 = Order(
    id="S1",
    topic="product_order",
    title="One step of a product, in order",
    notebook="04_tiles_layouts_tensor_cores",
    minutes=3,
    points=3,
    hints=(
        "Where: begin at the end. What does the last line need, and which line makes it?",
        "Rule: global memory -> shared memory by the whole block; then all warps must have come; "
        "then shared memory -> registers, by `ldmatrix`, as the tensor core wants them; then "
        "multiply; then store.",
        "A worked sibling, a copy through shared memory: block.load(s, x, at), block.sync(), "
        "warp.load(t, s), warp.store(y, t, at).",
    ),
    kernels=("product",),
    head=HEAD,
    lines=(
        Line("a", "    warp.mma_AB(acc, a, b)"),
        Line(
            "b",
            "    block.load(a_s, A, (blockIdx.y, 0))\n    block.load(b_s, B, (0, blockIdx.x))",
        ),
        Line(
            "c",
            "    warp.load(a, A, (blockIdx.y * 4 + warpid(), 0))",
            "it brings A from global memory into registers in pieces of a few bytes a lane, past "
            "the shared tile, and B still needs the other way",
        ),
        Line("d", "    warp.load(a, a_s.subtile(16, 64, (warpid(), 0)))\n    warp.load(b, b_s)"),
        Line("e", "    block.sync()"),
        Line(
            "f",
            "    warp.sync()",
            "it waits for the lanes of one warp, and the tile was written by all four warps",
        ),
        Line("g", "    warp.store(C, acc, (blockIdx.y * 4 + warpid(), blockIdx.x))"),
    ),
    case=_product,
    sizes=((64, 64, 64), (1, 1, 1), (2, 3, 2), (40, 70, 33)),
    hidden=((3, 1, 5), (65, 64, 64), (100, 130, 17)),
    expected=_exact,
    tolerance=_rounding,
    runs=RACES,
    wrong=(
        Wrong(
            says="other warps have written parts of the tile: between block.load and reading the "
            "tile, the whole block must meet",
            error="TK500 TK501",
        ),
        Wrong(
            says="something is read before anything was put there: which line fills it?",
            error="TK503 TK513",
        ),
        Wrong(
            says="C is stored before the product is made: it holds the zeros of warp.zero",
            gives=lambda A, B: 0 * _exact(A, B),
        ),
    ),
)


# --------------------------------------------------------------------------------------------- P4
C, B = "m16n8k16 C", "m16n8k16 B"


def _places(rng: np.random.Generator) -> dict[str, Any]:
    """Other elements for each learner, in the lower half of C, where reading order is far off."""
    row = int(rng.choice([9, 10, 11, 13, 14]))
    col = int(rng.choice([3, 4, 5, 6]))
    k = int(rng.choice([2, 3, 4, 5]))
    return {
        "row": row,
        "col": col,
        "lane": int(rng.choice([6, 13, 22, 27])),
        "k": k,
        "n": int(rng.choice([n for n in (1, 3, 5, 6) if n != k])),
    }


def _lanes_of_a_row() -> int:
    return len({ownership(C).owner(0, col)[0] for col in range(ownership(C).shape[1])})


P4 = Predict(
    id="P4",
    topic="who_owns",
    title="Who owns this element?",
    notebook="04_tiles_layouts_tensor_cores",
    minutes=4,
    points=3,
    params=_places,
    intro="C of the instruction mma.m16n8k16: 16 rows of 8 columns, spread over 32 lanes with four "
    "registers (0 to 3) each. Rows, columns, lanes and registers count from 0.",
    questions=(
        Question(
            name="lane",
            text="Which lane owns C[{row}, {col}]?",
            truth=lambda row, col, **_: ownership(C).owner(row, col)[0],
            wrong={
                "this is reading order, four numbers a lane: a fragment's index is not the "
                "matrix's index": lambda row, col, **_: (8 * row + col) // 4,
                "rows 8 to 15 are owned by the same lanes as rows 0 to 7: take row % 8": (
                    lambda row, col, **_: 4 * row + col // 2
                ),
                "a lane owns two neighbours of a row, so four lanes share a row: 4 * (row % 8) "
                "comes first": lambda row, col, **_: 8 * (row % 8) + col,
            },
            why="lane = 4 * (row % 8) + col // 2.",
        ),
        Question(
            name="register",
            text="In which of its registers?",
            truth=lambda row, col, **_: ownership(C).owner(row, col)[1],
            wrong={
                "this is reading order: a fragment's index is not the matrix's index": (
                    lambda row, col, **_: (8 * row + col) % 4
                ),
                "registers 0 and 1 belong to rows 0 to 7, registers 2 and 3 to rows 8 to 15": (
                    lambda row, col, **_: col % 2
                ),
                "inside a pair, the column decides: even first, odd second": (
                    lambda row, col, **_: 2 * (row // 8)
                ),
            },
            why="register = 2 * (row // 8) + col % 2.",
        ),
        Question(
            name="row",
            text="And the other way round: in which row lies register 3 of lane {lane}?",
            truth=lambda lane, **_: ownership(C).held(lane)[3][0],
            wrong={
                "register 3 lies eight rows below register 1": lambda lane, **_: lane // 4,
                "four lanes share a row, so the row is lane // 4, not lane % 4; and register 3 "
                "lies eight rows further down": lambda lane, **_: lane % 4 + 8,
                "this is reading order: lane 2 would begin row 1": lambda lane, **_: lane // 2,
                "register 3 lies eight rows below register 1, and four lanes (not two) share a "
                "row": lambda lane, **_: lane // 2 + 8,
            },
            why="row = lane // 4 + 8 for registers 2 and 3.",
        ),
        Question(
            name="shared_by",
            text="A kernel adds up each row of C. How many lanes must exchange their sums for it?",
            truth=lambda **_: _lanes_of_a_row(),
            wrong={
                "a row has 8 columns, and each lane owns two of them": lambda **_: 8,
                "all lanes of a warp own a part of C, but not of one row": lambda **_: 32,
                "two lanes a row would be reading order": lambda **_: 2,
            },
            why="Four neighbouring lanes share a row.",
        ),
        Question(
            name="b_lane",
            text="B of the same instruction has 16 rows (k) of 8 columns (n), and its lanes run "
            "down the columns. Which lane owns B[{k}, {n}]?",
            truth=lambda k, n, **_: ownership(B).owner(k, n)[0],
            wrong={
                "B is held the other way round: lanes run down its columns first": (
                    lambda k, n, **_: 4 * (k % 8) + n // 2
                ),
                "this is reading order: a fragment's index is not the matrix's index": (
                    lambda k, n, **_: (8 * k + n) // 4
                ),
                "a lane holds two neighbours of a column, k and k + 1: k % 8 // 2 is added, "
                "not k": lambda k, n, **_: 4 * n + k,
                "a column is shared by four lanes, not by eight: rows 8 to 15 are held by the "
                "lanes of rows 0 to 7": lambda k, n, **_: 8 * n + k // 2,
            },
            why="lane = 4 * n + k % 8 // 2: like C, with rows and columns changed over.",
        ),
    ),
    hints=(
        "Where: the grid of C in notebook 04. Find the row, and in it the pair of columns; the "
        "large number is the lane.",
        "Rule: with g = lane // 4 and t = lane % 4, register i (0 to 3) holds row g + 8 * (i // "
        "2), column 2 * t + i % 2. For B change rows and columns over: n is g, and k is 2 * t and "
        "the next one, or eight more.",
        "A worked sibling: C[12, 6]. 12 is 4 + 8, so g = 4 and i is 2 or 3; 6 is 2 * 3, so t = 3 "
        "and i is even. Lane 4 * 4 + 3 = 19, register 2.",
    ),
)


# --------------------------------------------------------------------------------------------- K2
def _small_product(rng: np.random.Generator, size: tuple[int, int, int]) -> Case:
    case = _product(rng, size)
    m, n, _ = size
    return Case(says=case.says, grid=(-(-n // 16), -(-m // 16)), args=case.args)


def _instructions(case: Case) -> float:
    """Two a block and step of 16."""
    x, y = case.grid
    return x * y * 2 * -(-case.args["A"].shape[1] // 16)


def _stored(place: Any) -> Any:
    """What comes out if register i of a lane goes to place(lane, i) of each piece of 16 x 16, a
    fragment's element for another one; where two go to one place, the last one stays."""

    def gives(A: np.ndarray, B: np.ndarray) -> np.ndarray:
        m, n = len(A), B.shape[1]
        high, wide = -(-m // 16) * 16, -(-n // 16) * 16
        right = np.zeros((high, wide))
        right[:m, :n] = _exact(A, B)
        out = np.full((high, wide), np.nan)
        held = [ownership(tk.rt_fl(16, 16)).held(lane) for lane in range(32)]
        for r in range(0, high, 16):
            for c in range(0, wide, 16):
                for i in range(8):
                    for lane in range(32):
                        row, col = place(lane, i)
                        from_row, from_col = held[lane][i]
                        out[r + row, c + col] = right[r + from_row, c + from_col]
        return out[:m, :n]

    return gives


def _rows_run_on(f: Facts) -> bool:
    """Eight registers with the row of the first four: 8 * (i // 2) reaches 24."""
    text = f.text.replace(" ", "")
    return "range(8)" in text and bool(
        re.search(r"8\*\(\w+//2\)(?!\)?%)|[+]\w+//2\*8(?!\)?%)", text)
    )


def _corner_missing(f: Facts) -> bool:
    """Row or column without the block's corner: it is computed, or not even that, and not used."""
    return any(
        f.text.count(f"first_{of}") < 2 and f.text.count(f"blockIdx.{axis}") < 3
        for of, axis in (("row", "y"), ("col", "x"))
    )


def _one_half(f: Facts) -> bool:
    """One loop over the registers, to 4, or one in which nothing sets the second four apart."""
    loops = re.findall(r"for (\w+) in (?:\w+\.)?static_range\((\d)\)", f.text)
    if len(loops) != 1 or re.search(r"reg\(\w+ \+", f.text):
        return False
    i, count = loops[0]
    apart = rf"\b{i} (// 4|> 3|>= 4|< 4|<= 3|& 4|>> 2)"
    return count == "4" or (count == "8" and not re.search(apart, f.text))


ROWS_RUN_ON = (
    "for registers 4 to 7 the row runs out of the piece of 16 rows: i // 2 goes on to 3. They have "
    "the rows of registers 0 to 3, so that the row needs i // 2 % 2, and lie eight columns further "
    "on"
)
K2 = KernelItem(
    id="K2",
    topic="store_fragment",
    title="Write the store of C",
    notebook="04_tiles_layouts_tensor_cores",
    minutes=5,
    points=4,
    hints=(
        "Where: the rule of notebook 04 for a piece of 16 x 16 says in which row and which column "
        "of the piece register i of a lane lies; viz.layout(tk.rt_fl(16, 16)) draws it. Where in C "
        "does the piece of this block begin?",
        "Rule: with g = laneid() // 4 and t = laneid() % 4, register i holds row g + 8 * (i // 2 % "
        "2), column 2 * t + i % 2 + 8 * (i // 4) of the piece. Add first_row and first_col, and "
        "store only where the row is below C.rows and the column below C.cols.",
        "A worked sibling, one C of 16 x 8 with g = laneid() // 4 and t = laneid() % 4: "
        "`for i in tk.static_range(4): y[g + 8 * (i // 2), 2 * t + i % 2] = c.reg(i)`.",
    ),
    kernels=("product",),
    case=_small_product,
    sizes=((32, 48, 32), (1, 1, 1), (2, 3, 2), (3, 2, 5), (24, 40, 33)),
    hidden=((16, 8, 16), (17, 15, 3), (3, 33, 20), (48, 16, 16)),
    expected=_exact,
    tolerance=_rounding,
    work=(
        Work(
            says="sectors of 32 bytes written to C",
            metrics=("global_st_sectors",),
            ideal=lambda case: case.args["A"].shape[0] * -(-case.args["B"].shape[1] // 8),
            full=2.7,
            zero=6.0,
        ),
        Work(
            says="instructions of the tensor core",
            metrics=("tensor_instructions",),
            ideal=_instructions,
            full=1.0,
            zero=2.0,
        ),
    ),
    rules=(
        Rule(
            says="the lanes store their registers, by acc.reg(i): here without warp.store",
            holds=lambda f: (
                not any(
                    f.calls[f"{scope}.{op}"]
                    for scope in ("warp", "block", "warpgroup")
                    for op in ("store", "store_async")
                )
                and not f.calls["tma.store_async"]
            ),
        ),
    ),
    wrong=(
        Wrong(
            says="warp.store would do all of it. Here you write what it does: each lane stores its "
            "own registers, by acc.reg(i)",
            costs=True,
            when=lambda f: f.calls["warp.store"] > 0,
        ),
        Wrong(says=ROWS_RUN_ON, error="TK500 TK501 TK502 TK504", when=_rows_run_on),
        Wrong(says=ROWS_RUN_ON, when=_rows_run_on),
        Wrong(
            says="some lanes store past the end of C: the piece has 16 rows and 16 columns, the "
            "matrix may have fewer. Store only where row < C.rows and col < C.cols",
            error="TK504",
        ),
        Wrong(
            says="each block has a piece of its own: add first_row to the row in the piece, and "
            "first_col to the column",
            error="TK500 TK501 TK502",
            when=_corner_missing,
        ),
        Wrong(
            says="two lanes, or two registers, store into the same element. Each of the 256 "
            "elements of a piece is in one register of one lane, and each must get its own place",
            error="TK500 TK501 TK502",
        ),
        Wrong(
            says="this is reading order: eight elements of a row for each lane. A fragment's index "
            "is not the matrix's index: ask viz.layout(tk.rt_fl(16, 16))",
            gives=_stored(lambda lane, i: (lane // 2, lane % 2 * 8 + i)),
        ),
        Wrong(
            says="C comes out with rows and columns changed over inside each piece: lane // 4 is "
            "the row, lane % 4 says which pair of columns",
            gives=_stored(
                lambda lane, i: (
                    2 * (lane % 4) + i % 2 + 8 * (i // 4),
                    lane // 4 + 8 * (i // 2 % 2),
                )
            ),
        ),
        Wrong(
            says="the rows 8 to 15 and the columns 8 to 15 are changed over: registers 2 and 3 lie "
            "eight rows down, registers 4 and 5 eight columns to the right",
            gives=_stored(
                lambda lane, i: (
                    lane // 4 + 8 * (i // 4),
                    2 * (lane % 4) + i % 2 + 8 * (i // 2 % 2),
                )
            ),
        ),
        Wrong(
            says="registers 4 to 7 need places of their own: they are the right half, the same "
            "rows as registers 0 to 3, eight columns further on",
            when=_one_half,
        ),
    ),
)


# ------------------------------------------------------------------------------------ in the lesson
@tk.kernel(warps=1)
def _step(a: tk.gl_hf, b: tk.gl_hf, c: tk.gl_fl, half: tk.gl_hf):
    at = tk.rt_hf(32, 16)
    bt = tk.rt_hf(16, 64, tk.col)
    acc = tk.rt_fl(32, 64)
    warp.zero(acc)
    warp.load(at, a, (0, 0))
    warp.load(bt, b, (0, 0))
    warp.mma_AB(acc, at, bt)
    warp.store(c, acc, (0, 0))
    warp.store(half, acc, (0, 0))


HALF = ("half as many", "as many", "twice as many")


@cache
def _step_run() -> Any:
    a, b = np.zeros((32, 16), np.float16), np.zeros((16, 64), np.float16)
    c, half = np.zeros((32, 64), np.float32), np.zeros((32, 64), np.float16)
    return _step.sim[1](a, b, c, half)


@cache
def _halved() -> str:
    """Sectors of the store of C in 2 bytes a number, compared with 4 bytes."""
    by = [c.get("global_st_sectors", 0) for _, c in sorted(_step_run().lines.items())]
    full, half = [n for n in by if n]
    return HALF[0] if 2 * half == full else HALF[1] if half == full else HALF[2]


N4 = Predict(
    id="N4",
    topic="lesson",
    title="Predictions of this lesson",
    notebook="04_tiles_layouts_tensor_cores",
    minutes=1,
    points=0,
    questions=(
        Question(
            name="book",
            text="If C (16 rows of 8) were dealt out as a book is read, four elements to lane 0, "
            "the next four to lane 1: which lane would hold row 9, column 3?",
            truth=lambda: (9 * 8 + 3) // 4,
            wrong={"a row of 8 is two lanes": lambda: 9},
            otherwise="count the elements before it, row by row, 8 to a row; then divide by four, "
            "without the rest",
            why="Element 9 * 8 + 3 = 75, and four go to a lane.",
        ),
        Question(
            name="mma",
            text="One mma instruction makes a piece of 16 x 8 of the result. How many does a warp "
            "need for 32 x 64, in a step of 16?",
            truth=lambda: int(_step_run().total["tensor_instructions"]),
            wrong={
                "count the pieces of 16 x 8, not of 16 x 16": lambda: 8,
                "a piece has 16 rows and 8 columns, 128 numbers, not 64": lambda: 32,
                "2 pieces down and 8 to the right": lambda: 10,
            },
            why="2 x 8 pieces.",
        ),
        Question(
            name="half",
            text="C is stored in numbers of 2 bytes instead of 4. How many sectors of 32 bytes do "
            "the stores ask for then?",
            truth=lambda: _halved(),
            choices=HALF,
            wrong={
                "half the bytes, but a lane's pair of neighbours is now 4 bytes, and the four "
                "lanes of a row fill half of the sector that they touch": lambda: HALF[0],
            },
            why="Each store touches as many sectors as before and fills half of each.",
        ),
    ),
    hints=(
        "Where: the grid of C: who sits beside whom in a row, and how many bytes is that?",
        "Rule: an mma makes 16 x 8; a row of it is held by four lanes with two neighbours each.",
        "A worked sibling: 16 x 32 of the result is four pieces of 16 x 8, so four instructions.",
    ),
)

ITEMS = (P4, S1, K2)
LESSON = (N4,)
