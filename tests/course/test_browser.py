"""The course as a learner has it: ./course, JupyterLab in Chromium, by mouse and by keyboard.

JupyterLab is started by the script itself, in a copy of the course, and opened at the address that
it prints. Of each kind of exercise one is done: first wrong and then right by mouse, then once more
from the file as it was handed out, by keyboard alone. The widgets are used in the lessons that show
them. Screenshots lie in the test's temporary folder, or where TKLEARN_SHOTS says.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from course_kit import ANSWERS, ROOT
from lab_kit import READY, browser, open_page, press, said, served, shot

from tklearn.course import engine
from tklearn.course.items import ITEMS

__all__ = ["browser"]  # a fixture

pytestmark = pytest.mark.browser

RUN = "[data-command='notebook:run-cell-and-select-next']"
IDLE = """() => book.sessionContext.session.kernel.status === 'idle' &&
![...document.querySelectorAll('.jp-InputPrompt')].some(x => x.textContent.includes('[*]'))"""
SOURCES = """() => book.content.widgets.map(
c => [c.inputHidden ? 'hidden' : c.model.type, c.model.sharedModel.getSource()])"""


class Lab(NamedTuple):
    """A running course: its folder, and the page that shows it."""

    course: Path
    page: Any
    first: str


def set_up(course: Path) -> None:
    """As after a first ./course: an environment (this one's parts) and the stamp that says so."""
    for name in ("bin", "lib", "lib64", "include", "share", "etc", "pyvenv.cfg"):
        part = Path(sys.prefix) / name
        if part.exists():
            (course / ".venv").mkdir(exist_ok=True)
            (course / ".venv" / name).symlink_to(part)
    loader = SourceFileLoader("course_copy", str(course / "course"))
    spec = importlib.util.spec_from_loader("course_copy", loader)
    assert spec is not None
    script = importlib.util.module_from_spec(spec)
    loader.exec_module(script)
    script.write_stamp(script.wanted_extras("lab", []))


@pytest.fixture(scope="module")
def lab(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """./course in a copy of the course, and a browser at the address that it prints."""
    home = tmp_path_factory.mktemp("browser")
    course = home / "course"
    skip = shutil.ignore_patterns("__pycache__", "*.pyc")
    for name in ("tklearn", "exercises", "notebooks"):
        shutil.copytree(ROOT / name, course / name, ignore=skip)
    for name in ("course", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, course / name)
    set_up(course)
    with served([sys.executable, "course"], course, home) as address:
        page = open_page(browser, address)
        shot(page, "first", home)
        yield Lab(course, page, address)
        page.context.close()
    assert "installing" not in (home / "log").read_text()


class Book:
    """An open notebook, alone in JupyterLab, as a learner sees it."""

    def __init__(self, lab: Lab, path: str) -> None:
        self.page = lab.page
        self.page.evaluate(
            """async path => {
              for (const w of [...jupyterapp.shell.widgets("main")])
                if (w.context) { await w.context.sessionContext.shutdown(); w.dispose(); }
              await jupyterapp.commands.execute("docmanager:open", { path });
            }""",
            path,
        )
        self.page.evaluate(READY, path)
        self.cells: list[list[str]] = self.page.evaluate(SOURCES)

    def hand_out_again(self) -> None:
        """The file as it was, unsaved changes gone; as a learner sees it after opening."""
        self.page.evaluate("book.context.revert()")
        self.page.evaluate("jupyterapp.shell.activateById(book.id)")
        press(self.page, "Escape")

    def index(self, text: str) -> int:
        """Which code cell that can be read holds this text."""
        return next(i for i, (kind, s) in enumerate(self.cells) if kind == "code" and text in s)

    def cell(self, text: str) -> Any:
        return self.page.locator(".jp-Notebook > * .jp-Cell, .jp-Notebook > .jp-Cell").nth(
            self.index(text)
        )

    def finished(self) -> None:
        self.page.wait_for_function(IDLE)

    def output(self, text: str) -> str:
        """What stands below a cell when all is done."""
        self.finished()
        found: str = self.cell(text).locator(".jp-OutputArea").first.inner_text()
        return found

    def type(self, lines: str) -> None:
        """Types lines below the caret's, each with its own indentation."""
        for line in lines.split("\n"):
            press(self.page, "End", "Enter", "Shift+Home")
            self.page.keyboard.type(line)

    # by mouse
    def click_run(self, text: str) -> str:
        """Clicks into a cell and on the button that runs it; its output."""
        self.cell(text).locator(".cm-line").first.click()
        self.page.locator(f".jp-Toolbar {RUN}").first.click()
        return self.output(text)

    def click_line(self, text: str, line: str) -> None:
        """The caret into the last line of a cell that holds `line`."""
        found = self.cell(text).locator(".cm-line").filter(has_text=line).last
        found.scroll_into_view_if_needed()
        found.click()

    # by keyboard
    def select(self, text: str) -> None:
        """From cell to cell by the arrows, as one who sees which one is selected."""
        press(self.page, "Escape")
        for _ in range(2 * len(self.cells)):
            n = self.index(text) - self.page.evaluate("book.content.activeCellIndex")
            if n == 0:
                return
            press(self.page, "ArrowDown" if n > 0 else "ArrowUp")
        raise AssertionError("the arrows do not lead to the cell")

    def caret_to(self, text: str, line: str) -> None:
        """Enter, then down to the last line that holds `line`."""
        lines = self.cells[self.index(text)][1].split("\n")
        at = max(i for i, x in enumerate(lines) if line in x)
        press(self.page, "Enter", "Control+Home", *["ArrowDown"] * at)

    def run_to(self, text: str) -> None:
        """Shift+Enter from the selected cell on, up to the one with this text."""
        here = self.page.evaluate("book.content.activeCellIndex")
        press(self.page, *["Shift+Enter"] * (self.index(text) - here + 1))


class Doing(NamedTuple):
    """An exercise: where one writes, something wrong and what is said to it, what is right."""

    item: str
    line: str
    wrong: str
    why: str
    right: Callable[[], str]


def guesses(item: str) -> str:
    """The right answers to a prediction, as a line of Python."""
    params = engine.parameters(ITEMS[item], 0)  # type: ignore[arg-type]
    questions = ITEMS[item].questions  # type: ignore[attr-defined]
    names = ", ".join(q.name for q in questions)
    return f"{names} = {', '.join(repr(q.truth(**params)) for q in questions)}"


def solution(item: str) -> str:
    """What the solution adds."""
    cells = json.loads((ROOT / "solutions" / ITEMS[item].file).read_text(encoding="utf-8"))["cells"]
    text = "".join("".join(c["source"]) for c in cells)
    return text.split("### BEGIN SOLUTION\n")[1].split("### END SOLUTION")[0].rstrip()


def swiglu() -> str:
    """A stored answer, from its decorator on."""
    text = (ANSWERS / "C1" / "right_swiglu.py").read_text(encoding="utf-8")
    return text[text.index("@tk.kernel") :].rstrip()


KINDS = (
    Doing("P1", "= None", "a, b, c = 1, 1, 1", "is not it", lambda: guesses("P1")),
    Doing("H1", "= None", 'a = b = c = d = e = "D"', "a is one of 'A', 'B', 'C'",
          lambda: guesses("H1")),
    Doing("M1", "# write here", "    step = 256", "TK500", lambda: solution("M1")),
    Doing("F1", "total += a[", "", "nothing keeps the reads before the next writes",
          lambda: solution("F1")),
    Doing("S1", "order = []", 'order = ["nothing"]', "there is no line 'nothing'",
          lambda: solution("S1")),
    Doing("K1", "# write here", "    where = (word ^ row) // 2", "K1: not yet",
          lambda: solution("K1")),
    Doing("C1", "# write your kernel here", "", "there is no kernel", swiglu),
)  # fmt: skip


@pytest.mark.parametrize("doing", KINDS, ids=[k.item for k in KINDS])
def test_each_kind_of_exercise(lab: Lab, doing: Doing, tmp_path: Path) -> None:
    """Predict, translate, modify, fix, order, make, write: by mouse, then by keyboard alone."""
    item, check = doing.item, f'tk.check("{doing.item}")'
    book = Book(lab, f"exercises/{ITEMS[item].file}")
    codes = [s for kind, s in book.cells if kind == "code"]
    writes = next(c for c in codes if doing.line in c)
    head = codes[: codes.index(writes)]
    for text in head:
        book.click_run(text)
    if doing.wrong:
        book.click_line(writes, doing.line)
        book.type(doing.wrong)
    shown = book.click_run(writes)
    shown += book.click_run(check)
    assert doing.why in shown
    assert f"{item}: not yet" in shown
    book.cell(check).scroll_into_view_if_needed()
    shot(book.page, f"{item}_wrong", tmp_path)
    book.click_line(writes, doing.wrong.strip().split("\n")[-1] or doing.line)
    book.type(doing.right())
    book.click_run(writes)
    assert f"{item}: passed" in book.click_run(check)
    shot(book.page, f"{item}_mouse", tmp_path)

    book.hand_out_again()
    book.select(codes[0])
    book.run_to(head[-1])
    book.select(writes)
    book.caret_to(writes, doing.line)
    book.type(doing.right())
    book.run_to(check)
    book.cell(check).get_by_text(f"{item}: passed").first.wait_for()
    full = "1 of 2" if item == "P1" else f"{ITEMS[item].points:g} of {ITEMS[item].points:g}"
    assert f"{full} points" in book.output(check), "all of them; half where the first guess counts"
    shot(book.page, f"{item}_keyboard", tmp_path)
    journal = (lab.course / ".tklearn" / "attempts.jsonl").read_text(encoding="utf-8")
    assert f'"{item}"' in journal, "the attempts are kept beside the course"


def test_the_course_opens_its_first_notebook(lab: Lab) -> None:
    """The printed address leads there; a token guards it."""
    first = sorted((ROOT / "notebooks").iterdir())[0].name
    assert f"/lab/tree/notebooks/{first}?token=" in lab.first
    assert (lab.course / ".venv" / "course-stamp.json").exists()


WIDGETS = (
    ("01", "viz.coalescing(report", "td[data-at='0,3']", "Lane 1", "ArrowDown"),
    ("03", "viz.banks(report", "td[data-at='7,0']", "Lane 7", "ArrowDown"),
    ("04", 'viz.layout("m16n8k16 C")', "td[data-at='9,3']", "lane 5, register 3", "ArrowDown"),
)
STEPPERS = (("05", "ring(2).sim"), ("06", "kernel.sim[1]("))


def run_up_to(book: Book, text: str) -> Any:
    """Runs what stands above a cell, then it; its widget."""
    book.select(text)
    book.page.evaluate("jupyterapp.commands.execute('notebook:run-all-above')")
    book.finished()
    book.click_run(text)
    return book.cell(text).locator(".tkx, .tkt").first


def lesson(number: str) -> str:
    (path,) = (ROOT / "notebooks").glob(f"{number}_*.ipynb")
    return f"notebooks/{path.name}"


@pytest.mark.parametrize(
    ("number", "text", "at", "words", "key"), WIDGETS, ids=[w[0] for w in WIDGETS]
)
def test_a_widget_in_its_lesson(
    lab: Lab, number: str, text: str, at: str, words: str, key: str, tmp_path: Path
) -> None:
    """A cell is clicked and says what it is; an arrow and Enter choose its neighbour."""
    book = Book(lab, lesson(number))
    box = run_up_to(book, text)
    before = said(box)
    box.locator(at).first.click()
    clicked = said(box)
    assert words in clicked
    assert clicked != before
    press(book.page, key, "Enter")
    assert said(box) not in (before, clicked)
    assert not box.page.locator(".jp-Notebook.jp-mod-editMode").count()
    box.scroll_into_view_if_needed()
    shot(book.page, f"widget_{number}", tmp_path)


@pytest.mark.parametrize(("number", "text"), STEPPERS, ids=[w[0] for w in STEPPERS])
def test_a_stepper_in_its_lesson(lab: Lab, number: str, text: str, tmp_path: Path) -> None:
    """On by a click, on by a key, to the end, and back to the beginning."""
    book = Book(lab, lesson(number))
    box = run_up_to(book, text)
    where = box.locator(".where")
    assert where.inner_text().startswith("moment 0 of ")
    box.locator("[data-act=on]").click()
    assert where.inner_text().startswith("moment 1 of ")
    box.focus()
    press(book.page, "ArrowRight", "ArrowRight")
    assert where.inner_text().startswith("moment 3 of ")
    shot(book.page, f"stepper_{number}", tmp_path)
    press(book.page, "End")
    n = int(where.inner_text().split(" of ")[1].split(",")[0])
    assert where.inner_text().startswith(f"moment {n} of {n}")
    press(book.page, "Home")
    assert where.inner_text().startswith("moment 0 of ")


def test_a_hint_and_an_error_in_the_page(lab: Lab, tmp_path: Path) -> None:
    """What a learner asks for, and what a mistake in the language looks like."""
    book = Book(lab, f"exercises/{ITEMS['M1'].file}")
    page = book.page
    book.click_run("import numpy as np")
    book.click_line("def copy(", "# write here")
    book.type("    first = np.int32(0)")
    book.click_run("def copy(")
    shown = book.click_run("copy[4](4096")
    assert "TK102" in shown
    assert 'more: tk.explain("TK102")' in shown
    press(page, "Escape", "b", "Enter")
    page.keyboard.type('print(tk.hint("M1"))\ntk.explain("TK102")')
    press(page, "Shift+Enter")
    page.get_by_text("hint 1 of 3").first.wait_for()
    heading = page.locator(".jp-RenderedMarkdown h3").filter(
        has_text="TK102: unknown kernel function or attribute"
    )
    heading.wait_for()
    heading.scroll_into_view_if_needed()
    shot(page, "explain", tmp_path)
