"""NB3, banks, padding, swizzle."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

import tklearn as tk
from tklearn import access, block, threadIdx, warp, warpid
from tklearn.course.item import (
    RACES,
    Case,
    Facts,
    KernelItem,
    Out,
    Predict,
    Question,
    Rule,
    Work,
    Wrong,
)
from tklearn.viz.swizzle import address_map

LANE = np.arange(32)


def _wavefronts(words: Callable[..., np.ndarray], op: str = "lds32") -> Callable[..., int]:
    """How many passes a load of these words takes, by the rules that were measured on hardware."""
    return lambda **params: access.shared(op, words(**params) * 4)[0]


def _patterns(rng: np.random.Generator) -> dict[str, Any]:
    """Numbers that vary from learner to learner and keep each question's point."""
    return {
        "step": int(rng.choice([2, 4, 8])),
        "pitch": int(rng.choice([32, 64, 96])),
        "odd": int(rng.choice([31, 33, 35])),
        "group": int(rng.choice([4, 8, 16])),
    }


P3 = Predict(
    id="P3",
    topic="bank_patterns",
    title="Six patterns: how many passes?",
    notebook="03_banks_padding_swizzle",
    minutes=3.5,
    points=3,
    params=_patterns,
    intro="Lane i (0 to 31) reads the word, or the words, named. A word is 4 bytes; word w lies in "
    "bank w % 32. In how many passes over the banks (wavefronts) is the request done?",
    questions=(
        Question(
            name="a",
            text="word i",
            truth=_wavefronts(lambda **_: LANE),
            wrong={"the 32 words lie in 32 banks, and all banks answer at once": lambda **_: 32},
            why="32 words in 32 banks.",
        ),
        Question(
            name="b",
            text="word {step} * i",
            truth=_wavefronts(lambda step, **_: step * LANE),
            wrong={
                "a step leaves out banks, so that several lanes meet in each of the others": (
                    lambda **_: 1
                ),
                "not all lanes meet in one bank: the words go round the banks several times": (
                    lambda **_: 32
                ),
            },
            why="The step leaves out banks, so that as many lanes meet in each.",
        ),
        Question(
            name="c",
            text="word {pitch} * i",
            truth=_wavefronts(lambda pitch, **_: pitch * LANE),
            wrong={"a multiple of 32 is always the same bank: (32 * i) % 32 is 0": lambda **_: 1},
            why="All 32 words lie in bank 0: a column of rows of 32 words.",
        ),
        Question(
            name="d",
            text="word {odd} * i",
            truth=_wavefronts(lambda odd, **_: odd * LANE),
            wrong={
                "an odd step goes through all banks before it comes back to one": lambda **_: 32,
                "two steps of an odd length never meet in 32 banks": lambda **_: 2,
            },
            why="An odd step meets every bank once: this is why padding works.",
        ),
        Question(
            name="e",
            text="word i // {group} (the same word for {group} lanes)",
            truth=_wavefronts(lambda group, **_: LANE // group),
            wrong={
                "the same bank is no conflict where it is the same word: it is read once for all": (
                    lambda group, **_: group
                ),
                "the different words lie in different banks": lambda group, **_: 32 // group,
                "32 lanes ask, but for few different words": lambda **_: 32,
            },
            why="A word that several lanes want is read once for all of them.",
        ),
        Question(
            name="f",
            text="words 4 * i to 4 * i + 3 (16 bytes a lane, in one instruction: four "
            "transactions of 8 lanes each)",
            truth=_wavefronts(lambda **_: 4 * LANE, "lds128"),
            wrong={
                "512 bytes do not fit into one pass of 128: more passes are needed, and they are "
                "no conflict": lambda **_: 1,
                "16 bytes a lane go in transactions of 8 lanes; each meets all banks once": (
                    lambda **_: 8
                ),
                "128 words in 32 banks are four for each bank": lambda **_: 32,
            },
            why="Four transactions of 8 lanes, one pass each: no conflict.",
        ),
    ),
    hints=(
        "Where: write down bank = word % 32 for lanes 0, 1, 2 and 3, and go on until a bank comes "
        "again.",
        "Rule: count the different words in each bank; the largest count is the number of passes. "
        "16 bytes a lane are four transactions of 8 lanes; count each and add.",
        "A worked sibling: word 16 * i. Banks 0, 16, 0, 16, ...: 16 different words in each of two "
        "banks, so 16 passes.",
    ),
)


def _transpose(rng: np.random.Generator, size: tuple[int, int]) -> Case:
    rows, cols = size
    src = rng.standard_normal(size, dtype=np.float32)
    grid = (-(-cols // 32), -(-rows // 32))
    return Case(says=f"{rows} x {cols}", grid=grid, args={"src": src, "dst": Out((cols, rows))})


def _requests(case: Case) -> float:
    """One pass for each row of a tile, on the way in and on the way out."""
    rows, cols = case.args["src"].shape
    return rows * -(-cols // 32) + cols * -(-rows // 32)


K1 = KernelItem(
    id="K1",
    topic="swizzle",
    title="Write the swizzle",
    notebook="03_banks_padding_swizzle",
    minutes=4.5,
    points=4,
    hints=(
        "Where: the helper `place`. The kernel writes along rows of the tile and reads along "
        "columns. Reading a column, `row` runs from 0 to 31 while `word` stays the same: which "
        "banks are asked?",
        "Rule: for a fixed `row` no two words may get the same place (or one is lost); for a fixed "
        "`word` no two rows should (or they queue). For a fixed b, `a ^ b` (exclusive or) is "
        "another number for each a.",
        "A worked sibling, for 4 rows of 4 words: `word ^ row` puts words 0 1 2 3 of row 1 into "
        "places 1 0 3 2, and of row 2 into places 2 3 0 1. Each column has each number once.",
    ),
    kernels=("transpose",),
    own_words=("TK501",),
    case=_transpose,
    sizes=((32, 32), (1, 1), (2, 3), (3, 2), (40, 70)),
    hidden=((1, 33), (31, 64), (65, 31), (96, 32)),
    expected=lambda src: src.T,
    runs=RACES,
    work=(
        Work(
            says="passes over the 32 banks (wavefronts), in and out",
            metrics=("shared_ld_wavefronts", "shared_st_wavefronts"),
            ideal=_requests,
            full=1.05,
            zero=3.0,
        ),
    ),
    rules=(
        Rule(
            says="the tile stays 32 rows of 32 words (4096 bytes); a swizzle needs no more memory",
            holds=lambda f: f.shared_bytes <= 4096,
        ),
    ),
    wrong=(
        Wrong(
            says="padding works, and it costs memory: here the tile must stay 32 x 32, and the "
            "words change places inside their rows",
            costs=True,
            when=lambda f: f.shared_bytes > 4096,
        ),
        Wrong(
            says="a swizzle moves words inside their own row: the place must be 0 to 31",
            error="TK504",
        ),
        Wrong(
            says="two words of a row get the same place, so that one overwrites the other: for "
            "each row, the 32 places must all differ",
            error="TK500 TK501",
        ),
        Wrong(
            says="the kernel reads a place that it never wrote: `place` must give the same answer "
            "for the same row and word on the way in and on the way out",
            error="TK503",
        ),
        Wrong(
            says="the words of a column still lie in one bank: the place must depend on the row",
            costs=True,
            when=lambda f: f.total["shared_ld_wavefronts"] > 12 * f.total["shared_ld_ideal"],
        ),
        Wrong(
            says="better, but some rows still share a bank: all 32 rows need another place for the "
            "same word",
            costs=True,
            when=lambda f: f.total["shared_ld_wavefronts"] > 1.1 * f.total["shared_ld_ideal"],
        ),
        Wrong(
            says="now the writes queue: for a fixed row, neighbouring words must go to different "
            "banks, too",
            costs=True,
            when=lambda f: f.total["shared_st_wavefronts"] > 1.1 * f.total["shared_st_ideal"],
        ),
    ),
)


# --------------------------------------------------------------------------------------------- M2
ROW = 64 * 2  # bytes of a row of a tile of 64 x 64 numbers of 2 bytes


def _copy(rng: np.random.Generator, size: tuple[int, int]) -> Case:
    rows, cols = size
    x = rng.standard_normal(size, dtype=np.float32).astype(np.float16)
    grid = (-(-cols // 64), -(-rows // 64))
    args = {"x": x, "y": Out((rows, cols), np.float16)}
    return Case(says=f"{rows} x {cols}", grid=grid, args=args)


def _tile_passes(case: Case) -> float:
    """A pass for each 128 bytes of each tile that is read."""
    return case.grid[0] * case.grid[1] * 64


def _pitch(f: Facts) -> int:
    """Bytes from one row of the tile to the next."""
    return f.shared_bytes // 64


M2 = KernelItem(
    id="M2",
    topic="pad_for_ldmatrix",
    title="A pad that keeps ldmatrix",
    notebook="03_banks_padding_swizzle",
    minutes=3.5,
    points=3,
    hints=(
        "Where: the line `PAD = 0`. A row is 64 numbers of 2 bytes; with PAD more of them, how "
        "many bytes further on does the next row begin, and in which bank is that?",
        "Rule: ldmatrix takes pieces of 16 bytes, eight of them down a column. Each must begin at "
        "a multiple of 16 bytes, and the eight must lie in different groups of four banks.",
        "A worked sibling, for numbers of 4 bytes: a row of 32 of them is 128 bytes. One more "
        "makes 132: no multiple of 16. Four more make 144: a multiple of 16, and each row begins "
        "four banks further on.",
    ),
    kernels=("through",),
    case=_copy,
    sizes=((64, 64), (1, 1), (2, 3), (3, 2), (40, 70)),
    hidden=((3, 65), (64, 130), (63, 64)),
    expected=lambda x: x,
    runs=RACES,
    work=(
        Work(
            says="passes over the banks to read the tile (wavefronts)",
            metrics=("shared_ld_wavefronts",),
            ideal=_tile_passes,
            full=1.05,
            zero=2.0,
        ),
    ),
    rules=(
        Rule(
            says="the tile is padded, and no more than it must be: at most 16 bytes a row",
            holds=lambda f: 64 * ROW < f.shared_bytes <= 64 * (ROW + 16),
        ),
    ),
    wrong=(
        Wrong(
            says="with this pad a row is no multiple of 16 bytes, and ldmatrix takes 16 bytes at a "
            "time: the load falls back to single numbers. (A pad of one word helps columns of "
            "single words only)",
            costs=True,
            when=lambda f: f.shared_bytes > 0 and _pitch(f) % 16 > 0,
        ),
        Wrong(
            says="a swizzle cures it, too, and needs no memory: it comes later in the lesson. "
            "Here leave swizzle=0 and find the pad",
            costs=True,
            when=lambda f: (
                0 < f.shared_bytes <= 64 * ROW
                and f.total["shared_ld_wavefronts"] <= 1.05 * f.total["shared_ld_ideal"]
            ),
        ),
        Wrong(
            says="all rows begin in the same bank, so that the eight pieces of a column queue: the "
            "next row must begin in another one",
            costs=True,
            when=lambda f: f.shared_bytes > 0 and _pitch(f) % ROW == 0,
        ),
        Wrong(
            says="PAD counts numbers of 2 bytes, so this pad is twice as many bytes. Each row "
            "begins at a multiple of 16 bytes, but rows a few further down lie in the same banks "
            "again: try a smaller multiple of 16 bytes",
            costs=True,
            when=lambda f: f.total["shared_ld_wavefronts"] > 1.05 * f.total["shared_ld_ideal"],
        ),
        Wrong(
            says="this pad works, and a smaller one works as well: shared memory is scarce",
            costs=True,
            when=lambda f: f.shared_bytes > 64 * (ROW + 16),
        ),
        Wrong(
            says="the tile is read before all warps have filled their part: keep block.sync()",
            error="TK500 TK501 TK503",
        ),
    ),
)


# ------------------------------------------------------------------------------------ in the lesson
@tk.kernel(threads=(32, 8))
def _plain(src: tk.gl_fl, dst: tk.gl_fl):
    tile = tk.shared_array(tk.f32, 32, 32)
    for j in range(0, 32, 8):
        tile[threadIdx.y + j, threadIdx.x] = src[threadIdx.y + j, threadIdx.x]
    block.sync()
    for j in range(0, 32, 8):
        dst[threadIdx.y + j, threadIdx.x] = tile[threadIdx.x, threadIdx.y + j]


@tk.kernel(warps=4)
def _padded(x: tk.gl_hf, y: tk.gl_hf, PAD: tk.const):
    s = tk.shared(tk.st_hf(64, 64, swizzle=0, pad=PAD))
    t = tk.rt_hf(16, 64)
    block.load(s, x, (0, 0))
    block.sync()
    warp.load(t, s.subtile(16, 64, (warpid(), 0)))
    warp.store(y, t, (warpid(), 0))


SLOW = ("first", "second", "both", "neither")
THAN = ("fewer", "as many", "more")
ROWS = ("none", "some", "all")


@cache
def _slow() -> str:
    """Which lines with the tile take more passes than they must."""
    x = np.zeros((32, 32), np.float32)
    t = _plain.sim[1](x, np.empty_like(x)).total
    queues = [t[f"shared_{s}_wavefronts"] > t[f"shared_{s}_ideal"] for s in ("st", "ld")]
    return {(1, 0): "first", (0, 1): "second", (1, 1): "both", (0, 0): "neither"}[tuple(queues)]


@cache
def _by_one() -> str:
    """Passes with a pad of one number, compared with those without a pad."""
    x = np.zeros((64, 64), np.float16)
    one, none = (
        _padded.sim[1](x, np.empty_like(x), PAD=p).total["shared_ld_wavefronts"] for p in (1, 0)
    )
    return THAN[0] if one < none else THAN[1] if one == none else THAN[2]


@cache
def _other_rows() -> str:
    """How many rows of a swizzled tile hold numbers of another row, by its addresses."""
    place = address_map(tk.st_hf(64, 64)).place
    away = (place // ROW != np.arange(64)[:, None]).any(axis=1)
    return ROWS[2] if away.all() else ROWS[1] if away.any() else ROWS[0]


N3 = Predict(
    id="N3",
    topic="lesson",
    title="Predictions of this lesson",
    notebook="03_banks_padding_swizzle",
    minutes=1,
    points=0,
    questions=(
        Question(
            name="slow",
            text="A block writes a square of 32 x 32 words into shared memory along its rows "
            "(first) and reads it along its columns (second). Where do lanes queue for a bank?",
            truth=lambda: _slow(),
            choices=SLOW,
            wrong={
                "along a row, the 32 lanes of a warp go to 32 different banks": lambda: SLOW[0],
                "one of the two goes along a row, to 32 different banks": lambda: SLOW[2],
                "look at a column: a row has 32 words, so one row down is the same bank": (
                    lambda: SLOW[3]
                ),
            },
            why="One row down is 32 words further on: the same bank.",
        ),
        Question(
            name="one",
            text="A tile of 64 x 64 numbers of 2 bytes is read by ldmatrix, in pieces of 16 bytes. "
            "Each row is made one number longer. Compared with no padding, the passes are then ...",
            truth=lambda: _by_one(),
            choices=THAN,
            wrong={
                "padding by one works for columns of single words. Here a row would begin at no "
                "multiple of 16 bytes, where ldmatrix cannot read": lambda: THAN[0],
                "ldmatrix cannot read rows that begin at no multiple of 16 bytes; what takes its "
                "place is not the same": lambda: THAN[1],
            },
            why="Without ldmatrix, every number is fetched alone.",
        ),
        Question(
            name="rows",
            text="A swizzle gives the pieces of a tile other places. In how many of its rows does "
            "a number of another row lie then?",
            truth=lambda: _other_rows(),
            choices=ROWS,
            wrong={
                "a swizzle changes places inside a row: the row of a number stays": lambda: ROWS[1],
                "the pieces change places inside their row: no row gets another's": lambda: ROWS[2],
            },
            why="A swizzle shuffles the pieces inside each row.",
        ),
    ),
    hints=(
        "Where: the bank of a word is its number modulo 32; a row of 32 words goes round once.",
        "Rule: lanes queue where they want different words of one bank in one transaction.",
        "A worked sibling: a square of 16 x 16 words. One row down is 16 banks further on, two "
        "rows down is the first bank again: a column of 16 lies in two banks.",
    ),
)

ITEMS = (P3, M2, K1)
LESSON = (N3,)
