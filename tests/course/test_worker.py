"""The process in which answers are checked: limits, what kernels print, hostile pages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from course_kit import ANSWERS, ROOT, static

import tklearn as tk
from tklearn.course import worker
from tklearn.course.extract import from_cells
from tklearn.course.items import ITEMS
from tklearn.course.verdict import Verdict

HEAD = "import tklearn as tk\nfrom tklearn import block, blockIdx, threadIdx, warp\n"


def ask(text: str) -> Verdict:
    """The verdict on a kernel for M1."""
    return worker.ask(from_cells([("cell 1", HEAD + text)]).answer("M1", ("copy",)), 3)


def copy(body: str, head: str = "") -> str:
    lines = "\n".join("    " + line for line in body.split("\n"))
    params = "n: tk.i32, x: tk.gl_fl, y: tk.gl_fl"
    return f"{head}\n@tk.kernel(threads=256)\ndef copy({params}):\n{lines}\n"


GOOD = """i = blockIdx.x * 1024 + threadIdx.x
for j in range(4):
    if i + j * 256 < n:
        y[i + j * 256] = x[i + j * 256]"""


@pytest.mark.parametrize(
    "body",
    [
        "while n > 0:\n    pass",
        "i = 0\nwhile True:\n    i = 1 - i",
        "for i in range(1 << 30):\n    y[0] = x[0]",
        "for i in tk.static_range(100000000):\n    y[0] = x[0]",
        "for i in range(20000):\n    for j in range(20000):\n        y[0] = 1.0",
        "t = tk.rt_fl(16, 1 << 20)\nwarp.zero(t)",
        "s = tk.shared_array(tk.f32, 1 << 28)\ns[0] = 1.0",
        "r = tk.reg_array(tk.f32, 1 << 28)\nr[0] = 1.0",
        "v = tk.rv(tk.f32, 1 << 30)\nwarp.zero(v)",
        "y[0] = float(1 << 4000 << 4000)",
        "y[0] = " + " + ".join(["x[0]"] * 3000),
        "y[0] = " + "(" * 90 + "x[0]" + " + 1.0)" * 90,
        "if n > 0:\n" + "\n".join("    " * i + "if n > 0:" for i in range(2, 95))
        + "\n" + "    " * 95 + "y[0] = 1.0",
    ],
)  # fmt: skip
def test_hopeless_kernels_are_answered(body: str) -> None:
    worker.start()
    ask(copy(GOOD))
    verdict = ask(copy(body))
    assert not verdict
    assert len(verdict.message) > 20
    assert "took more than" not in verdict.message, "its own limits come before the last one"
    assert ask(copy(GOOD)).passed, "the next check works"


def test_the_promise_of_five_seconds() -> None:
    """In processor time, since other tests run on the same cores."""
    assert worker.CPU_SECONDS < 5
    assert worker.WALL_SECONDS > 3 * worker.CPU_SECONDS


def test_helpers_that_call_each_other() -> None:
    helpers = "@tk.device\ndef f(x):\n    return g(x)\n\n\n@tk.device\ndef g(x):\n    return f(x)\n"
    assert not ask(copy("y[0] = f(1.0)", helpers))


def test_what_kernels_print_and_where_they_stop() -> None:
    verdict = ask(copy('print("hello", n)\nbreakpoint()\n' + GOOD))
    assert verdict.passed, verdict


def test_a_child_that_dies_is_replaced() -> None:
    assert ask(copy(GOOD))
    worker._child[0].kill()
    worker._child[0].wait()
    assert ask(copy(GOOD))


def test_a_child_that_hangs_is_ended() -> None:
    worker.stop()
    answer = static(ITEMS["F1"], ANSWERS / "F1" / "right_helpers.py")
    verdict = worker.ask(answer, 4, seconds=0.05)
    assert "took more than" in verdict.message
    assert ask(copy(GOOD))


# ------------------------------------------------------------------------------ hostile pages
SKELETON = (ROOT / "tests/course/answers/M1/wrong_as_it_was.py").read_text(encoding="utf-8")
ATTACKS = {
    "an object that equals everything": (
        "not a kernel but Always",
        """
class Always(np.ndarray):
    def __eq__(self, other): return True
    def all(self, *a, **k): return True
copy = Always((1,))
""",
    ),
    "a kernel of another class": (
        "not a kernel but Kernel",
        """
class Kernel(tk.Kernel):
    pass
good = Kernel(copy.fn, copy.threads)
copy = good
""",
    ),
    "numpy that finds no difference": (
        "four numbers of one lane",
        """
for name in ("allclose", "array_equal", "isclose"):
    setattr(np, name, lambda *a, **k: True)
np.abs = np.argwhere = lambda *a, **k: np.zeros(1)
np.testing.assert_allclose = lambda *a, **k: None
""",
    ),
    "a hook that drops asserts": (
        "four numbers of one lane",
        """
import ast, builtins
real = builtins.compile
def without(source, *a, **k):
    if isinstance(source, ast.AST):
        for n in ast.walk(source):
            if hasattr(n, "body") and isinstance(n.body, list):
                n.body = [s for s in n.body if not isinstance(s, ast.Assert)] or [ast.Pass()]
        ast.fix_missing_locations(source)
    return real(source, *a, **k)
builtins.compile = without
""",
    ),
    "Python's names redefined": (
        "four numbers of one lane",
        """
import builtins
builtins.all = builtins.any = lambda *a: True
builtins.sum = lambda *a: 0
all = any = abs = lambda *a: True
""",
    ),
    "the checker edited": (
        "four numbers of one lane",
        """
from tklearn.course import engine, items
from tklearn.course.verdict import Verdict
engine.judge = engine.examine = lambda *a, **k: Verdict("M1", True, 3, 3, "fine")
object.__setattr__(items.ITEMS["M1"], "expected", lambda n, x: x * 0)
object.__setattr__(items.ITEMS["M1"], "work", ())
""",
    ),
    "the simulator edited": (
        "four numbers of one lane",
        """
import tklearn.launching, tklearn.sim.counters, tklearn.report
tklearn.launching.simulate = lambda k, spec, grid, args, options: None
tklearn.report.Report.total = {}
tk.Kernel.sim = None
""",
    ),
    "a module of the working folder": (
        "four numbers of one lane",
        """
import pathlib
pathlib.Path("numpy.py").write_text("raise SystemExit")
pathlib.Path("json.py").write_text("raise SystemExit")
""",
    ),
    "outputs that are known beforehand": (
        "should be",
        """
TABLE = (0.12573022, -0.13210486, 0.64042264)
@tk.kernel(threads=256)
def copy(n: tk.i32, x: tk.gl_fl, y: tk.gl_fl):
    i = blockIdx.x * 1024 + threadIdx.x
    for j in range(4):
        if i + j * 256 < n:
            y[i + j * 256] = TABLE[0]
""",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ATTACKS)
def test_hostile_pages(name: str, tmp_path: Path) -> None:
    """Each page runs in a Python of its own, as a notebook's kernel does."""
    words, attack = ATTACKS[name]
    page = tmp_path / "page.py"
    page.write_text(
        f"import numpy as np\nimport tklearn.course\n{SKELETON}\n{attack}\nprint(tk.check('M1'))\n",
        "utf-8",
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(page)], cwd=tmp_path, env=env, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert "M1: not yet" in done.stdout, done.stdout + done.stderr
    assert words in done.stdout
    assert "passed" not in done.stdout


def test_import_tklearn_leaves_the_course_alone() -> None:
    code = "import sys, tklearn; print([m for m in sys.modules if m.startswith('tklearn.course')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert {"check", "hint", "predict"} <= set(tk.__all__)
