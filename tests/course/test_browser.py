"""Exercises as a learner does them: a real JupyterLab in Chromium, by mouse and by keyboard.

JupyterLab is opened by the course's own command, `tklearn lab`, in a copy of the course. Of each
kind of exercise one is done: first wrong, by mouse, and the reason is read; then right, by
keyboard. Screenshots lie in the test's temporary folder, or where TKLEARN_SHOTS says.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from course_kit import ROOT

from tklearn.course import engine
from tklearn.course.items import ITEMS

pytestmark = pytest.mark.browser

FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
READY = """async () => {
  const app = window.jupyterapp;
  await app.restored;
  for (let i = 0; i < 400; i++) {
    window.book = [...app.shell.widgets("main")].find(w => w.context && w.content?.widgets);
    if (window.book) break;
    await new Promise(r => setTimeout(r, 50));
  }
  await book.context.ready;
  await book.sessionContext.ready;
  await book.sessionContext.session.kernel.info;
}"""


class Lab(NamedTuple):
    """A running JupyterLab: the course it serves, and where it answers."""

    course: Path
    address: str


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The course's command, in a copy of the course."""
    home = tmp_path_factory.mktemp("browser")
    course = home / "course"
    skip = shutil.ignore_patterns("__pycache__", "*.pyc")
    for name in ("tklearn", "exercises", "notebooks"):
        shutil.copytree(ROOT / name, course / name, ignore=skip)
    for name, text in (
        ("notebook-extension/tracker", '{"windowingMode": "none"}'),
        ("apputils-extension/notification", '{"fetchNews": "false", "checkForUpdates": false}'),
    ):
        path = home / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True)
        path.write_text(text)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    folders = {
        "JUPYTER_CONFIG_DIR": "config", "JUPYTER_DATA_DIR": "data", "JUPYTER_RUNTIME_DIR": "run",
        "JUPYTERLAB_SETTINGS_DIR": "settings", "JUPYTERLAB_WORKSPACES_DIR": "spaces",
        "IPYTHONDIR": "ipython",
    }  # fmt: skip
    env = os.environ | {k: str(home / v) for k, v in folders.items()}
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"
    env.pop("TKLEARN_COURSE_DIR", None)
    command = [
        sys.executable, "-m", "tklearn.cli", "lab", f"exercises/{ITEMS['K1'].file}",
        "--no-browser", "--expose-app-in-browser", "--allow-root", f"--port={port}",
        "--ServerApp.port_retries=0", "--IdentityProvider.token=course",
    ]  # fmt: skip
    with (home / "log").open("w") as log:
        server = subprocess.Popen(command, cwd=course, env=env, stdout=log, stderr=log)
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(f"{address}/api?token=course", timeout=2).read()
                break
            except OSError:
                assert server.poll() is None, (home / "log").read_text()
                time.sleep(0.2)
        yield Lab(course, address)
    finally:
        server.terminate()
        server.wait(30)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    from tklearn.doctor import find_chromium

    with sync_playwright() as p:
        b = p.chromium.launch(executable_path=find_chromium(), args=FLAGS)
        yield b
        b.close()


class Exercise:
    """A page with one exercise, as a learner sees it."""

    def __init__(self, browser: Any, lab: Lab, item: str, shots: Path) -> None:
        self.item, self.shots = item, Path(os.environ.get("TKLEARN_SHOTS") or shots)
        context = browser.new_context(viewport={"width": 1280, "height": 1000})
        context.set_default_timeout(60_000)
        context.route(lambda url: "//127.0.0.1:" not in url, lambda route: route.abort())
        self.page = context.new_page()
        where = f"/lab/workspaces/{item}/tree/exercises/{ITEMS[item].file}?token=course"
        self.page.goto(lab.address + where)
        self.page.wait_for_function("window.jupyterapp")
        self.page.evaluate(READY)

    def cell(self, text: str) -> Any:
        """The code cell that holds this text."""
        return self.page.locator(".jp-CodeCell").filter(
            has=self.page.locator(".jp-Editor").filter(has_text=text)
        ).first  # fmt: skip

    def place(self, line: str) -> None:
        """Mouse: the caret to the end of a line."""
        found = self.page.locator(".jp-CodeCell .cm-line").filter(has_text=line).first
        found.scroll_into_view_if_needed()
        found.click()
        self.page.keyboard.press("End")

    def run_by_mouse(self, text: str) -> Any:
        """Clicks into a cell and on the button that runs it; its output."""
        cell = self.cell(text)
        cell.locator(".cm-line").first.click()
        button = "[data-command='notebook:run-cell-and-select-next']"
        self.page.locator(f".jp-Toolbar {button}").first.click()
        return self.finished(cell)

    def run_by_keyboard(self) -> None:
        """Shift+Enter in the cell with the caret: JupyterLab goes on to the next cell."""
        self.page.keyboard.press("Shift+Enter")

    def finished(self, cell: Any) -> Any:
        self.page.wait_for_function(
            "() => book.sessionContext.session.kernel.status === 'idle' && "
            "![...document.querySelectorAll('.jp-InputPrompt')].some(x => "
            "x.textContent.includes('[*]'))"
        )
        return cell.locator(".jp-OutputArea")

    def verdict(self, words: str, name: str) -> str:
        """What the check cell says, when it says these words; kept as a screenshot."""
        cell = self.cell(f'tk.check("{self.item}")')
        cell.locator(".jp-OutputArea").get_by_text(words).first.wait_for()
        self.finished(cell)
        cell.scroll_into_view_if_needed()
        self.shots.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=str(self.shots / f"{self.item}_{name}.png"))
        return cell.locator(".jp-OutputArea").inner_text()

    def check_by_mouse(self, words: str, name: str) -> str:
        self.run_by_mouse(f'tk.check("{self.item}")')
        return self.verdict(words, name)

    def check_by_keyboard(self, cells: int, words: str, name: str) -> str:
        """Shift+Enter through the answer's cell and the following ones (texts, too), up to the
        check."""
        for _ in range(cells):
            self.run_by_keyboard()
        return self.verdict(words, name)


@pytest.fixture
def opened(
    browser: Any, lab: Lab, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Exercise]:
    exercise = Exercise(browser, lab, request.param, tmp_path)
    yield exercise
    exercise.page.context.close()


def doing(item: str) -> Any:
    return pytest.mark.parametrize("opened", [item], indirect=True)


@doing("P1")
def test_predict(opened: Exercise) -> None:
    item = ITEMS["P1"]
    params = engine.parameters(item, 0)  # type: ignore[arg-type]
    right = [q.truth(**params) for q in item.questions]  # type: ignore[attr-defined]
    names = [q.name for q in item.questions]  # type: ignore[attr-defined]
    shown = opened.run_by_mouse('tk.predict("P1")').inner_text()
    assert "your prediction" in shown, "the questions"
    opened.place(" = None")
    opened.page.keyboard.press("Enter")
    opened.page.keyboard.type(f"{', '.join(names)} = {', '.join('1' for _ in names)}")
    opened.run_by_mouse('tk.predict("P1", ')
    said = opened.check_by_mouse("not yet", "wrong")
    assert "is not it" in said
    opened.place(", 1")
    opened.page.keyboard.press("Shift+Home")
    opened.page.keyboard.type(f"{', '.join(names)} = {', '.join(map(str, right))}")
    said = opened.check_by_keyboard(2, "passed", "right")
    assert f"{right[0]} is right" in said
    assert "0 of 3 first answers were right" in said or "1 of 3 first" in said


@doing("M1")
def test_modify(opened: Exercise) -> None:
    opened.run_by_mouse("import numpy as np")
    opened.place("# write here: first")
    opened.page.keyboard.press("Enter")
    opened.page.keyboard.type("step = 256\n")
    opened.run_by_mouse("def copy(")
    said = opened.check_by_mouse("not yet", "wrong")
    assert "TK500" in said, "two threads store one number"
    opened.place("step = 256")
    opened.page.keyboard.type("\nfirst = blockIdx.x * 1024 + threadIdx.x")
    said = opened.check_by_keyboard(4, "passed", "right")
    assert "3 of 3 points" in said
    assert "copy" in opened.cell("def copy(").inner_text()


@doing("K1")
def test_make(opened: Exercise) -> None:
    opened.run_by_mouse("import numpy as np")
    opened.place("# write here: where")
    opened.page.keyboard.press("Enter")
    opened.page.keyboard.type("where = (word ^ row) // 2")
    opened.run_by_mouse("def transpose(")
    said = opened.check_by_mouse("not yet", "wrong")
    assert "K1: not yet" in said
    opened.place("where = (word ^ row)")
    opened.page.keyboard.press("Shift+Home")
    opened.page.keyboard.type("where = word ^ row")
    said = opened.check_by_keyboard(4, "passed", "right")
    assert "4 of 4 points" in said


@doing("F1")
def test_fix(opened: Exercise) -> None:
    opened.run_by_mouse("import numpy as np")
    opened.run_by_mouse("def matmul(")
    said = opened.check_by_mouse("not yet", "wrong")
    assert "TK50" in said, "the race is named"
    assert "nothing keeps the reads before the next writes" in said
    opened.place("total += a[threadIdx.y, j]")
    opened.page.keyboard.press("Enter")
    opened.page.keyboard.press("Backspace")  # one level out of the inner loop
    opened.page.keyboard.type("block.sync()")
    said = opened.check_by_keyboard(4, "passed", "right")
    assert "4 of 4 points" in said


@doing("S1")
def test_order(opened: Exercise, lab: Lab) -> None:
    import json

    cells = json.loads((ROOT / "solutions" / ITEMS["S1"].file).read_text())["cells"]
    text = "".join("".join(c["source"]) for c in cells)
    right = text.split("### BEGIN SOLUTION")[1].split("### END SOLUTION")[0].strip()
    opened.run_by_mouse("import tklearn as tk")
    opened.place("order = []")
    opened.page.keyboard.press("Enter")
    opened.page.keyboard.type(right.replace("[", '["nothing", '))
    opened.run_by_mouse("order = []")
    said = opened.check_by_mouse("not yet", "wrong")
    assert "there is no line 'nothing'" in said
    opened.place('"nothing"')
    opened.page.keyboard.press("Shift+Home")
    opened.page.keyboard.type(right)
    said = opened.check_by_keyboard(2, "passed", "right")
    assert "S1: passed" in said
    journal = (lab.course / ".tklearn" / "attempts.jsonl").read_text()
    assert '"S1"' in journal, "the attempts are kept beside the course"


@doing("M1")
def test_a_hint_and_an_error_in_the_page(opened: Exercise) -> None:
    """What a learner asks for, and what a mistake in the language looks like."""
    page = opened.page
    opened.run_by_mouse("import numpy as np")
    opened.place("# write here: first")
    page.keyboard.press("Enter")
    page.keyboard.type("first = np.int32(0)")
    opened.run_by_mouse("def copy(")
    shown = opened.run_by_mouse("copy[4](4096").inner_text()
    assert "TK102" in shown
    assert 'more: tk.explain("TK102")' in shown
    page.keyboard.press("Escape")
    page.keyboard.press("b")
    page.keyboard.press("Enter")
    page.keyboard.type('tk.explain("TK102")')
    page.keyboard.press("Shift+Enter")
    page.get_by_text("unknown kernel function or attribute").first.wait_for()
    heading = page.locator(".jp-RenderedMarkdown h3").filter(has_text="TK102")
    heading.wait_for()
    heading.scroll_into_view_if_needed()
    page.screenshot(path=str(opened.shots / "explain.png"))
