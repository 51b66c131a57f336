"""The first exercise through the page: what passes, what does not, and what is said."""

import numpy as np
import pytest

import tklearn as tk
from tklearn import blockIdx, warp, warpid
from tklearn.course import check, hint


def make(before: float = 0.0, after: float = 0.0, store: bool = True):
    """A kernel with one step before exp (1: divide by T, 2: multiply) and one after (1: divide)."""

    @tk.kernel(warps=4)
    def softmax_t(x: tk.gl_fl, y: tk.gl_fl, T: tk.f32):
        at = (blockIdx.x * 4 + warpid(), 0)
        row = tk.rt_fl(16, 128)
        warp.load(row, x, at)
        if before == 1:
            row /= T
        if before == 2:
            row *= T
        row = tk.exp(row - tk.row_max(row))
        row /= tk.row_sum(row)
        if after == 1:
            row /= T
        if store:
            warp.store(y, row, at)

    return softmax_t


def test_right_answers_pass() -> None:
    assert check("temperature", make(before=1))

    @tk.kernel(warps=4)
    def another(x: tk.gl_fl, y: tk.gl_fl, T: tk.f32):
        row = tk.rt_fl(16, 128)
        warp.load(row, x, (blockIdx.x * 4 + warpid(), 0))
        row = tk.exp2((row - tk.row_max(row)) * (1.4426950408889634 / T))
        out = row / tk.row_sum(row)
        warp.store(y, out, (blockIdx.x * 4 + warpid(), 0))

    assert check("temperature", another)


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        (make(), "the temperature has no effect"),
        (make(after=1), "the scores must be, before exp"),
        (make(before=2), "must make the rows flatter"),
        (make(before=1, store=False), "nothing was stored"),
        (lambda x: x, "give the kernel itself, not function"),
    ],
)
def test_wrong_answers_are_told_why(kernel: object, words: str) -> None:
    verdict = check("temperature", kernel)
    assert not verdict
    assert words in verdict.message
    assert "not yet" in verdict._repr_html_()


def test_a_fault_is_shown() -> None:
    @tk.kernel(warps=4)
    def out_of_bounds(x: tk.gl_fl, y: tk.gl_fl, T: tk.f32):
        y[1000000, 0] = T

    assert "TK504" in check("temperature", out_of_bounds).message


def test_the_checker_does_not_trust_the_output_object() -> None:
    class Always(np.ndarray):
        def __eq__(self, _other: object) -> bool:  # type: ignore[override]
            return True

    assert not check("temperature", Always((1,)))


def test_hints_come_one_at_a_time() -> None:
    assert hint("temperature").count("hint ") == 1
    two = hint("temperature")
    assert two.count("hint ") == 2
    assert repr(two) == str(two), "a notebook shows lines, not quotes"


def test_a_misspelt_exercise_is_named() -> None:
    for f in (hint, check):
        with pytest.raises(tk.TkError, match="did you mean 'temperature'"):
            f("temprature")
        with pytest.raises(tk.TkError, match="there are 'temperature'"):
            f("nothing")
        with pytest.raises(tk.TkError, match="no exercise 3"):
            f(3)  # type: ignore[arg-type]
