"""The stepper of timelines in a real JupyterLab, by mouse and by keyboard, against the data.

What it shows after each step is compared with Timeline.at of the same run in this process: the
simulator is deterministic.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest
from lab_kit import arrives, browser, press, said, shot
from test_timeline import fault, one_barrier, pipeline, run
from test_viz_lab import lab, open_and_run

from tklearn import viz
from tklearn.lang.errors import Race
from tklearn.report import Timeline

__all__ = ["browser", "lab"]  # fixtures

HEAD = """
from typing import Any

import ml_dtypes
import numpy as np
import tklearn as tk
from tklearn import arrive, block, blockIdx, init_semaphore, tma, viz, wait, warp, warpgroup, warpid

BF = ml_dtypes.bfloat16
A, B, C = np.ones((64, 256), BF), np.ones((256, 64), BF), np.zeros((64, 64), np.float32)
"""
CELLS = [
    HEAD,
    inspect.getsource(pipeline),
    inspect.getsource(one_barrier.fn),
    "t = viz.timeline(pipeline(2).sim[1](A, B, C, timeline=True)).widget()\nt",
    """
try:
    one_barrier.sim[1](A, B, C, timeline=True)
except tk.TkError as e:
    r = viz.timeline(e).widget()
r""",
    'print("all cells ran")',
]


@pytest.fixture(scope="module")
def page(browser, lab) -> Iterator[Any]:
    import nbformat
    from nbformat.v4 import new_code_cell, new_notebook

    spec = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    book = new_notebook(metadata=spec, cells=[new_code_cell(c.strip()) for c in CELLS])
    nbformat.write(book, lab.work / "steps.ipynb")
    page = open_and_run(browser, lab.page("steps"))
    page.locator(".tkt").nth(1).wait_for()
    yield page
    page.context.close()


def rows(box: Any, caption: str) -> dict[str, list[str]]:
    """A table of the stepper: name -> cells."""
    table = box.locator("table", has=box.page.locator("caption", has_text=caption))
    found = table.locator("tbody tr").evaluate_all(
        "all => all.map(tr => [...tr.children].map(x => x.textContent))"
    )
    return {name: cells for name, *cells in found}


def chips(box: Any) -> dict[int, int]:
    """Warp -> the line at which it is shown."""
    found = box.locator(".chip").evaluate_all(
        "all => all.map(x => [x.textContent, Number(x.closest('[data-line]').dataset.line)])"
    )
    out = {}
    for text, line in found:
        for part in text.rpartition("warp")[2].lstrip("s ").split(", "):
            a, _, b = part.partition("-")
            out |= dict.fromkeys(range(int(a), int(b or a) + 1), line)
    return out


def check(box: Any, t: Timeline, n: int, first: int) -> None:
    """The stepper shows moment n; `first`: the line in its source where t has line 1."""
    state, m = t.at(n), t.moments[n]
    assert m.says in said(box)
    assert (
        f"moment {n} of {len(t.moments) - 1}, round {m.round}" in box.locator(".where").inner_text()
    )
    if t.semaphores:
        shown = rows(box, "Semaphores")
        for name in t.semaphores:
            sem = state[f"semaphore {name}"]
            if sem["count"] is None:
                assert shown[name][0] == "not initialised"
                continue
            want = [str(sem["phase"]), f"{sem['pending']} of {sem['count']}", str(sem["bytes"])]
            assert shown[name][:3] == want
    for name, cells in rows(box, "Shared memory").items():
        tile = state[f"tile {name}"]
        assert cells[0] == tile["state"]
        assert bool(cells[2]) == bool(tile["using"])
    lines = {
        w: state[f"warp {w}"]["line"] - first for w in range(t.warps)
        if state[f"warp {w}"]["does"] != "ended"
    }  # fmt: skip
    shown_lines = chips(box)
    assert set(shown_lines) == set(lines)
    shift = {shown_lines[w] - lines[w] for w in lines}
    assert len(shift) <= 1, "each warp stands at its own line"


@pytest.mark.browser
def test_steps_by_mouse(page) -> None:
    box, t = page.locator(".tkt").nth(0), run(pipeline(2))
    first = min(t.source)
    check(box, t, 0, first)
    for n in range(1, 30):
        box.locator("[data-act=on]").click()
        check(box, t, n, first)
    box.locator("[data-act=back]").click()
    check(box, t, 28, first)
    arrives(page, "print(t.state['n'])", "28")
    box.locator("[data-act=last]").click()
    check(box, t, len(t.moments) - 1, first)
    box.locator("[data-act=first]").click()
    check(box, t, 0, first)
    # a box of the picture
    n = next(i for i, m in enumerate(t.moments) if m.kind == "wgmma" and m.warp == 3)
    at = [
        i
        for i, b in enumerate(viz.timeline(t).data.rows.bars)
        if n in b.moments and b.style == "wgmma"
    ]
    box.locator("g.b").nth(at[0]).click()
    check(box, t, n, first)
    shot(page, "stepper")


@pytest.mark.browser
def test_steps_by_keyboard(page) -> None:
    box, t = page.locator(".tkt").nth(0), run(pipeline(2))
    first = min(t.source)
    box.focus()
    press(page, "Home")
    check(box, t, 0, first)
    press(page, "ArrowRight", "ArrowRight", "ArrowRight", "ArrowLeft")
    check(box, t, 2, first)
    box.locator("[name=follow]").select_option("warp 4")
    box.focus()
    mine = [i for i, m in enumerate(t.moments)
            if m.warp == 4 and m.kind not in ("land", "phase", "bytes", "start")]  # fmt: skip
    for n in [i for i in mine if i > 2][:6]:
        press(page, "ArrowDown")
        check(box, t, n, first)
    press(page, "ArrowUp")
    check(box, t, [i for i in mine if i > 2][4], first)
    box.locator("[name=follow]").select_option("semaphore full[1]")
    box.focus()
    press(page, "Home", "ArrowDown", "ArrowDown", "ArrowDown")
    mine = [i for i, m in enumerate(t.moments)
            if i and ("semaphore full[1]" in m.changes or m.what == "full[1]")]  # fmt: skip
    check(box, t, mine[2], first)
    arrives(page, "print(t.state['n'], t.state['follow'])", f"{mine[2]} semaphore full[1]")
    press(page, "End")
    check(box, t, len(t.moments) - 1, first)
    assert page.locator(".jp-Notebook.jp-mod-editMode").count() == 0, "the keys are ours"


@pytest.mark.browser
def test_play_stops_at_the_end(page) -> None:
    box, t = page.locator(".tkt").nth(0), run(pipeline(2))
    box.locator("[name=follow]").select_option("")
    box.focus()
    press(page, "End", "ArrowLeft", "ArrowLeft", "ArrowLeft", " ")
    assert box.locator("[data-act=play]").inner_text() == "Pause"
    box.locator("[data-act=play]", has_text="Play").wait_for()
    check(box, t, len(t.moments) - 1, min(t.source))


@pytest.mark.browser
def test_a_race_is_shown_where_it_ends(page) -> None:
    box, e = page.locator(".tkt").nth(1), fault(one_barrier, Race)
    t, first = e.timeline, min(e.timeline.source)
    check(box, t, len(t.moments) - 1, first)
    text = box.locator(".fault").inner_text()
    assert text.startswith("Race TK500: warp 1 reads a_s[16, 0], which warp 0 wrote")
    assert box.locator(".mark").count() == 2
    box.focus()
    press(page, "ArrowLeft")
    assert not box.locator(".fault").is_visible()
    check(box, t, len(t.moments) - 2, first)
    shot(page, "stepper_race")
