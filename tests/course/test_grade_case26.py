"""What makes graders hang or talk: widgets, hidden tests, endless loops, tiny sizes, no GPU, a T4.

Hidden tests in feedback are in test_grade_units.py.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest
import t4_kit
from class_kit import cells, computing, text, zipped
from course_kit import ROOT, run_cell
from nbformat.v4 import new_code_cell, new_notebook

import tklearn as tk
from tklearn import block, blockIdx, threadIdx, tma, warp
from tklearn.comparison import Comparison
from tklearn.course import engine, feedback, marking, mine
from tklearn.course.item import Case, KernelItem, OneOf, Out
from tklearn.course.items import ITEMS
from tklearn.doctor import Look, examine

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


FIGURES = """
import numpy as np
import tklearn as tk
from tklearn import block, blockIdx, threadIdx, viz, warp
from IPython.display import display
from IPython.utils.capture import capture_output
from tklearn.devices import DEVICES

@tk.kernel(threads=(32, 8))
def turn(src: tk.gl_fl, dst: tk.gl_fl):
    tile = tk.shared_array(tk.f32, 32, 32)
    for j in range(0, 32, 8):
        tile[threadIdx.y + j, threadIdx.x] = src[threadIdx.y + j, threadIdx.x]
    block.sync()
    for j in range(0, 32, 8):
        dst[threadIdx.y + j, threadIdx.x] = tile[threadIdx.x, threadIdx.y + j]

x = np.ones((32, 32), np.float32)
run = turn.sim[1](x, x.copy(), trace=True)
steps = turn.sim[1](x, x.copy(), timeline=True)

@tk.kernel(warps=1)
def square(a: tk.gl_hf, c: tk.gl_fl):
    left = tk.rt_hf(16, 16)
    right = tk.rt_hf(16, 16, tk.col)
    acc = tk.rt_fl(16, 16)
    warp.zero(acc)
    warp.load(left, a, (0, 0))
    warp.load(right, a, (0, 0))
    warp.mma_AB(acc, left, right)
    warp.store(c, acc, (0, 0))

product = square.sim[1](np.ones((16, 16), np.float16), np.zeros((16, 16), np.float32))
pictures = {
    "layout": viz.layout("m16n8k16 C"), "banks": viz.banks(run, "= tile["),
    "swizzle": viz.swizzle(tk.st_hf(64, 64)), "coalescing": viz.coalescing(run, "= src["),
    "lines": viz.lines(run), "roofline": viz.roofline(product, DEVICES["H200"]),
    "timeline": viz.timeline(steps),
}
"""
WIDGET = """
w = pictures["{name}"].widget()
with capture_output() as shown:
    display(w)
(bundle,) = shown.outputs  # one display, at once
assert "<img alt=" in bundle.data["text/html"], "with the picture in it"
assert bundle.data["text/plain"]
w
"""
SLOW = """
import time
start = time.monotonic()
while time.monotonic() - start < 6:  # longer than nbval waits for an output
    slow = turn.sim[1](x, x.copy(), trace=True, schedule="random")
print("after", round(time.monotonic() - start), "s")
viz.banks(slow, "= tile[").widget()
"""
NAMES = ("layout", "banks", "swizzle", "coalescing", "lines", "roofline", "timeline")


def test_widgets_and_slow_cells_in_nbval(tmp_path: Path) -> None:
    """nbval waits 5 s for an output and no longer: ours are complete when their cell ends.

    A widget is one display that holds its picture, so nothing comes later, and a simulation of any
    length is waited for before the outputs are.
    """
    shown = [WIDGET.format(name=n) for n in NAMES]
    asked = ['tk.predict("P1")', 'tk.check("M1")', "tk.doctor()", "run", "turn.show()"]
    asked += [f'pictures["{n}"]' for n in NAMES]
    book = new_notebook(cells=[new_code_cell(c) for c in (FIGURES, *shown, *asked, SLOW)])
    for cell in book.cells:
        cell.execution_count = 1
    nbformat.write(book, tmp_path / "all_figures.ipynb")
    flags = ["--nbval-lax", "--nbval-current-env", "--nbval-cell-timeout=120"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-x", *flags, "all_figures.ipynb"],
        cwd=tmp_path, capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert f"{len(book.cells)} passed" in done.stdout


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


# ------------------------------------------------------------------------------------- no GPU
def machine(driver: dict[str, Any], **packages: str) -> str:
    """What the doctor says of a machine with this answer of the driver, and these packages."""

    def run(command: list[str]) -> str | None:
        return json.dumps(driver) if command[0] == sys.executable else None

    look = Look(lambda _: None, run, {"numpy": "2.5.5", **packages}.get, system="linux")
    return str(examine(look))


@tk.kernel(threads=32)
def double(x: tk.gl_fl, y: tk.gl_fl):
    y[threadIdx.x] = x[threadIdx.x] * 2.0


@tk.kernel(warps=1)
def bf16_tile(x: tk.gl_bf, y: tk.gl_bf):
    t = tk.rt_bf(16, 16)
    warp.load(t, x, (blockIdx.x, 0))
    warp.store(y, t, (blockIdx.x, 0))


@tk.kernel(warps=4)
def fenced(x: tk.gl_hf):
    s = tk.shared(tk.st_hf(64, 64))
    block.load(s, x, (0, 0))
    tma.fence()
    block.sync()


NUMBERS = np.arange(32, dtype=np.float32)


def test_without_a_gpu_the_doctor_says_what_runs() -> None:
    said = machine({"problem": "no driver"})
    assert "--  GPU" in said
    assert "no NVIDIA driver on this machine" in said
    assert "on the simulator only: no GPU" in said
    assert "This machine can: simulator + recorded GPU numbers" in said
    assert "running on a GPU: no NVIDIA driver on this machine" in said


def test_without_a_gpu_compare_shows_a_recording_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lesson's launch has one; another kernel gets no number that was not its own."""
    monkeypatch.setattr("tklearn.comparison.gpu_here", lambda: False)
    space: dict[str, Any] = {}
    run_cell("import numpy as np, tklearn as tk\n" + lesson_code("copy_four"), "case26", space)
    many = np.arange(1 << 20, dtype=np.float32)
    known = str(tk.compare(space["copy_four"], 1024, (len(many), many, np.empty_like(many))))
    assert "(recorded on NVIDIA H200, " in known
    own = tk.compare(double, 1, (NUMBERS, np.empty_like(NUMBERS)))
    assert "(not measured; H200 predicted)" in str(own)
    assert all(r.measured is None for r in own.rows)
    assert any("no recording" in n for n in own.notes), own.notes


def test_without_a_gpu_a_launch_on_one_is_refused_with_what_to_do() -> None:
    with pytest.raises(tk.TkError) as e:
        double.gpu[1](NUMBERS, np.empty_like(NUMBERS))
    assert e.value.hint


# -------------------------------------------------------------------------------------- a T4
LESSONS = sorted((ROOT / "notebooks").glob("0[0-7]_*.ipynb"))
SOLUTIONS = sorted((ROOT / "solutions").glob("*.ipynb"))


def lesson_code(kernel: str) -> str:
    """The cell of a lesson that defines a kernel, up to its first blank line after it."""
    for path in LESSONS:
        for c in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            code = "".join(c["source"])
            if c["cell_type"] == "code" and f"def {kernel}(" in code:
                imports = "from tklearn import block, blockIdx, laneid, threadIdx, warp, warpid\n"
                return imports + code.split("\n\n\n")[0]
    raise KeyError(kernel)


@pytest.fixture
def t4(monkeypatch: pytest.MonkeyPatch) -> t4_kit.T4:
    pytest.importorskip("cupy", reason="CuPy is not installed; with it NVRTC compiles, GPU or not")
    return t4_kit.pretend(monkeypatch)


@pytest.fixture
def solved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working folder is that of a course whose exercises are the solutions."""
    shutil.copytree(ROOT / "solutions", tmp_path / "exercises")
    (tmp_path / "notebooks").mkdir()
    monkeypatch.chdir(tmp_path / "notebooks")


def run_on(t4: t4_kit.T4, path: Path, everywhere: bool) -> dict[str, Any]:
    """Runs a notebook on the T4 and compiles each kernel that it launches for sm_75.

    Where the T4 refuses one, the cell or the text right above it (`everywhere`: any text) must say
    that it stays on the simulator, and why.
    """
    space: dict[str, Any] = {"__name__": "__main__"}
    above = ""
    for i, c in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"]):
        words = "".join(c["source"])
        if c["cell_type"] == "markdown":
            above += words
            continue
        t4.simulated.clear()
        run_cell(words, f"{path.stem}-{i}", space)
        for name, e in t4.refusals().items():
            assert e.code == "TK422", f"{name}: {e}"
            assert e.loc is not None
            assert "simulator" in str(e)
            said = above + words
            assert "simulator" in said, f"cell {i} does not say why {name} stays there"
            assert "sm_90" in said or "Hopper" in said, f"cell {i} does not say what {name} needs"
        if not everywhere:
            above = ""
    return space


@pytest.mark.parametrize("path", LESSONS, ids=lambda p: p.stem[:2])
def test_a_lesson_on_a_t4(t4: t4_kit.T4, path: Path, solved: None) -> None:
    """Each cell runs, each comparison is measured on the card, what cannot run there says why."""
    space = run_on(t4, path, everywhere=False)
    assert t4.launched, "nothing was measured"
    for v in space.values():
        if isinstance(v, Comparison):
            assert v.device == "T4"
            assert "measured now on Tesla T4" in str(v)
        if isinstance(v, mine.SideBySide):
            assert not v.lacking
            assert {r.how for r in v.rows} == {"now"}


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda p: p.stem)
def test_a_solution_on_a_t4(t4: t4_kit.T4, path: Path, solved: None) -> None:
    """Exercises are answered on the simulator; their kernels compile, or the text says why not."""
    run_on(t4, path, everywhere=True)
    assert not t4.launched


def test_every_lesson_says_where_its_cells_run() -> None:
    for path in LESSONS[1:]:  # the first explains it where it first launches a kernel
        first = json.loads(path.read_text(encoding="utf-8"))["cells"][0]["source"]
        assert "stay on the simulator" in " ".join("".join(first).split()), path.stem


def test_on_a_t4_the_doctor_says_what_runs() -> None:
    gpus = [[t4_kit.NAME, t4_kit.SM, t4_kit.MEMORY]]
    driver = {"version": 13000, "gpus": gpus, "problem": "", "tma": True}
    wheels = ("cupy-cuda13x", "nvidia-cuda-nvrtc", "nvidia-cuda-runtime")
    said = machine(driver, **dict.fromkeys(wheels, "13.0.1"))
    assert "Tesla T4, sm_75, 15 GiB; driver runs CUDA 13.0" in said
    assert "on the simulator only: they need sm_90, this is sm_75" in said
    assert "This machine can: simulator + GPU" in said


@pytest.mark.parametrize(("kernel", "needs", "line"), [
    (bf16_tile, "sm_80", "tk.gl_bf"),
    (fenced, "sm_90", "tma.fence()"),
])  # fmt: skip
def test_a_kernel_that_a_t4_cannot_run_names_the_line(
    t4: t4_kit.T4, kernel: tk.Kernel, needs: str, line: str
) -> None:
    """The simulator ran it; then the launch is refused, before anything is compiled."""
    x = np.ones((64, 64), np.float16)
    if kernel is bf16_tile:
        ml_dtypes = pytest.importorskip("ml_dtypes")
        x = np.ones((16, 16), ml_dtypes.bfloat16)
    args = (x, x.copy())[: len(kernel.params)]
    with pytest.raises(tk.TkError, match=rf"TK422.*needs an {needs} GPU; Tesla T4 is sm_75") as e:
        tk.compare(kernel, 1, args)
    assert line in str(e.value)
    assert "the simulator runs it on any machine" in str(e.value)
    assert t4.simulated
    assert not t4.launched
