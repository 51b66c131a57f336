"""What makes graders hang or talk: widgets, hidden tests, endless loops, tiny sizes, no GPU.

Widgets in nbval, whose limit on outputs is fixed, are in the notebooks' own runs (./course test);
hidden tests in feedback are in test_grade_units.py.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from class_kit import cells, computing, text, zipped
from course_kit import ROOT

from tklearn.course import engine, feedback, marking
from tklearn.course.item import Case, KernelItem, OneOf, Out
from tklearn.course.items import ITEMS

WIDGETS = """
import ipywidgets
from IPython.display import display
out = ipywidgets.Output()
display(out)
with out:
    print("hangs in some clients")
box = ipywidgets.interactive(lambda n: n, n=(0, 9))
display(box)
ipywidgets.interact(lambda n: n, n=(0, 9))
"""


@pytest.fixture(scope="module")
def grader() -> Iterator[marking.Grader]:
    g = marking.Grader(marking.Settings(7))
    g.grade(zipped(cells(M1="right_range")), "warm.zip")
    yield g
    g.close()


def test_widgets_do_not_hang(grader: marking.Grader) -> None:
    """Cells are read, not run; where they must be run, no widget waits for a browser."""
    start = time.monotonic()
    written = grader.grade(zipped(cells(M1=WIDGETS + text("M1", "right_range"))), "x.zip")
    assert written["items"]["M1"]["passed"]
    known = WIDGETS + "\nPER_BLOCK = len([None] * 1024)"
    computed = grader.grade(zipped(cells(M1=computing(known))), "x.zip")
    assert computed["items"]["M1"]["passed"], computed["items"]["M1"]
    assert time.monotonic() - start < 60


@pytest.mark.parametrize("loop", ["while True:\n    pass", "for i in iter(int, 1):\n    pass"])
def test_an_endless_loop_beside_a_right_answer(grader: marking.Grader, loop: str) -> None:
    """In a cell: never reached, as the answer needs no cell to be run."""
    got = grader.grade(zipped(cells(M1=text("M1", "right_range") + "\n" + loop)), "x.zip")
    assert got["items"]["M1"]["passed"]


def test_an_endless_loop_in_a_kernel_costs_its_exercise_only(grader: marking.Grader) -> None:
    start = time.monotonic()
    files = cells(M1="wrong_endless", F1="wrong_endless", S1="right_1")
    got = grader.grade(zipped(files), "x.zip")["items"]
    assert not got["M1"]["passed"]
    assert not got["F1"]["passed"]
    assert got["S1"]["passed"]
    page = feedback.page(grader.grade(zipped(files), "x.zip"))
    assert "TK509" in page or "stopped" in page
    assert time.monotonic() - start < 120


def every_case() -> list[tuple[KernelItem, Case]]:
    out = []
    for i in ITEMS.values():
        for k in i.choices if isinstance(i, OneOf) else (i,):
            if isinstance(k, KernelItem):
                out += [(k, c) for c in engine.plan(k, 7, hidden=True)]
    return out


def test_sizes_below_four_are_graded() -> None:
    """Where the kernel guards its edges, sizes 1, 2 and 3 are among the tests."""
    small = {
        k.id
        for k, c in every_case()
        for a in c.args.values()
        if isinstance(a, Out) and 0 < min(a.shape) < 4
    }
    assert {"M1", "K1", "F1"} <= small, small


def test_grading_asks_for_no_gpu(grader: marking.Grader) -> None:
    """The same grades without a GPU, on a T4 and on an H100: only the simulator judges."""
    code = "import sys; answer = sorted({m.split('.')[0] for m in sys.modules} & {'cupy', 'torch'})"
    assert grader._box.ask({"do": "echo", "code": code})["said"] == "[]"
    code = "import os; answer = [n for n in os.listdir('/dev') if n.startswith('nvidia')]"
    assert grader._box.ask({"do": "echo", "code": code})["said"] == "[]"


def test_every_exercise_handed_out_is_read_and_not_done(grader: marking.Grader) -> None:
    """What a learner who did nothing would hand in by hand: all skeletons in one zip."""
    import io
    import zipfile

    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as z:
        for i in marking.graded():
            z.write(ROOT / "exercises" / i.file, i.file)
    got = grader.grade(data.getvalue(), "all.zip")
    assert got["problem"] == ""
    assert not [n for n, i in got["items"].items() if i["passed"]]
    assert all(i["done"] for i in got["items"].values())
    assert json.dumps(got)
