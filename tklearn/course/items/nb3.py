"""NB3, banks, padding, swizzle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tklearn import access
from tklearn.course.item import RACES, Case, KernelItem, Out, Predict, Question, Rule, Work, Wrong

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
    minutes=3,
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
            text="words 4 * i to 4 * i + 3 (16 bytes a lane, in one instruction)",
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
    minutes=5,
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

ITEMS = (P3, K1)
