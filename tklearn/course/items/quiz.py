"""Three questions, asked before the course and after it: "quiz-before" and "quiz-after"."""

from __future__ import annotations

from functools import cache

import numpy as np

import tklearn as tk
from tklearn import blockIdx, laneid, threadIdx, warpid
from tklearn.course.item import Predict, Question
from tklearn.kernels import attention
from tklearn.lang.errors import Race

PARAMS = {"n": 32, "row": 1000}


@tk.kernel(threads=32)
def column(x: tk.gl_fl, y: tk.gl_fl):
    y[threadIdx.x] = x[threadIdx.x, 0]


@tk.kernel(warps=2)
def note(y: tk.gl_fl):
    box = tk.shared_array(tk.f32, 1)
    if warpid() == 0 and laneid() == 0:
        box[0] = 7.0
    if warpid() == 1 and laneid() == 0:
        y[blockIdx.x] = box[0]


@cache
def _bytes_of_a_column(n: int, row: int) -> int:
    report = column.sim[1](np.zeros((n, row), np.float32), np.zeros(n, np.float32))
    return 32 * report.total["global_ld_sectors"]


@cache
def _verdict() -> str:
    try:
        note.sim[1](np.zeros(1, np.float32))
    except Race:
        return "wrong"
    return "right"


@cache
def _written(words: int) -> int:
    q = np.zeros((1, 1, words, 64), np.float16)
    _, report = attention.run(q, q, q, report=True, check="off")
    return report.total["global_st_sectors"]


QUESTIONS = (
    Question(
        name="bytes",
        text="A matrix of 4-byte numbers lies in memory row by row, {row} numbers a row. {n} "
        "threads read its first column, {n} numbers. How many bytes does the memory move?",
        truth=lambda n, row: str(_bytes_of_a_column(n, row)),
        choices=("128", "1024", "4096"),
        wrong={
            "these are the bytes that are wanted. Memory answers in sectors of 32 bytes, and each "
            "number of a column lies in another one": lambda n, row: str(4 * n),
            "memory answers in sectors of 32 bytes, not of 128": lambda n, row: str(128 * n),
        },
        why="Memory answers in sectors of 32 bytes; each number of a column lies in another one.",
    ),
    Question(
        name="passed",
        text="One group of threads writes a number, another group reads it; nothing makes the "
        "second wait. The test passed a thousand times. Is the program right?",
        truth=lambda **_: _verdict(),
        choices=("right", "wrong", "right on this GPU"),
        wrong={
            "a thousand times the writer came first. Nothing says that it must": (
                lambda **_: "right"
            ),
            "nothing orders the two on any GPU; luck is no order": lambda **_: "right on this GPU",
        },
        why="Nothing orders the two: who comes first is luck, and luck passes tests.",
    ),
    Question(
        name="written",
        text="FlashAttention computes attention over N words. For twice as many words, how many "
        "times as many bytes does it write to memory?",
        truth=lambda **_: str(_written(128) // _written(64)),
        choices=("1", "2", "4"),
        wrong={
            "the table of scores is four times as large, and it is never written: its tiles live "
            "and die in registers": lambda **_: "4",
            "each word has an output of its own, which must be written": lambda **_: "1",
        },
        why="Only the output is written, one row a word; the scores never leave the registers.",
    ),
)


def _quiz(when: str, notebook: str, intro: str) -> Predict:
    return Predict(
        id=f"quiz-{when}",
        topic=f"quiz_{when}",
        title=f"Three questions, {when} the course",
        notebook=notebook,
        minutes=2,
        points=0,
        params=lambda rng: dict(PARAMS),
        intro=intro,
        questions=QUESTIONS,
        hints=(
            "Where: no hints in a quiz. It only shows what the course changes.",
            "Rule: guess, and go on; a wrong guess costs nothing and is remembered longer.",
            "A worked sibling: there is none; you meet all three again in the last notebook.",
        ),
    )


LESSON = (
    _quiz("before", "00_one_kernel_two_machines", "Guess. Nothing depends on it; the same three "
          "questions come again at the end."),
    _quiz("after", "07_your_own_kernel", "The same three questions as in the first notebook."),
)  # fmt: skip
