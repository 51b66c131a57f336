"""The widgets in a real JupyterLab in Chromium, by mouse and by keyboard, without a network.

A notebook draws each figure as a widget. What is shown must be the figure's data, what is clicked
must reach Python; in a saved notebook and where the widgets' code cannot load (VS Code and Colab
without a network too) the picture must be there instead.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from lab_kit import READY, arrives, browser, open_page, press, said, served, shot

import tklearn as tk
from tklearn.lang import layouts
from tklearn.lang.errors import FigureError
from tklearn.report import Report
from tklearn.viz import widgets
from tklearn.viz.banks import bank_map, banks
from tklearn.viz.coalescing import coalescing, sector_map
from tklearn.viz.layout import layout, ownership
from tklearn.viz.swizzle import address_map, swizzle

__all__ = ["browser"]  # a fixture

CELLS = [
    """
import numpy as np
import tklearn as tk
from tklearn import block, blockIdx, threadIdx, viz

@tk.kernel(threads=(32, 8))
def turn(src: tk.gl_fl, dst: tk.gl_fl):
    tile = tk.shared_array(tk.f32, 32, 32)
    for j in range(0, 32, 8):
        tile[threadIdx.y + j, threadIdx.x] = src[threadIdx.y + j, threadIdx.x]
    block.sync()
    for j in range(0, 32, 8):
        dst[threadIdx.y + j, threadIdx.x] = tile[threadIdx.x, threadIdx.y + j]

run = turn.sim[1](np.ones((32, 32), np.float32), np.ones((32, 32), np.float32), trace=True)
""",
    'a = viz.layout("m16n8k16 C").widget()\na',
    'b = viz.banks(run, "= tile[").widget()\nb',
    "c = viz.swizzle(tk.st_bf(64, 64)).widget()\nc",
    'd = viz.coalescing(run, "= src[").widget()\nd',
    "e = viz.lines(run).widget()\ne",
    """
from tklearn.devices import DEVICES
from tklearn.report import Report
counted = {1: {"tensor_flops": 1 << 30, "global_ld_sectors": 1 << 20}}
gemm = Report("gemm", "simulator", "H200", (1, 1, 1), (32, 1, 1), lines=counted)
f = viz.roofline(gemm, [DEVICES["H200"], DEVICES["T4"]]).widget()
f""",
    'print("all cells ran")',
]


# --------------------------------------------------------------------------- without a browser
def test_data_of_the_widgets_are_the_figures() -> None:
    off = np.arange(32) * 128
    data, state = widgets.widget_data(banks("lds32", off).data)
    assert data["access"] == {
        "name": "lds32", "kind": "ld", "width": 4, "offsets": off.tolist(),
    }  # fmt: skip
    assert state["view"] == "banks"
    data, state = widgets.widget_data(swizzle_picture().data)
    assert [m["name"] for m in data["maps"]][-1] == state["map"] == "128-byte swizzle"
    assert data["maps"][3]["place"] == layouts.st_offset(32, 64, 2, 128)[:, ::8].tolist()
    data, state = widgets.widget_data(layout("m16n8k16 C").data)
    assert state["what"] == next(iter(data["layouts"])) == "m16n8k16 C"
    assert len(data["layouts"]) > 10
    assert widgets.widget_data(coalescing("ldg32", off).data)[1]["view"] == "sectors"


def swizzle_picture() -> Any:
    return swizzle(tk.st_bf(32, 64))


def test_no_widget_for_what_has_none() -> None:
    with pytest.raises(FigureError, match="no widget"):
        widgets.widget_data(None)
    with pytest.raises(FigureError, match="counted nothing"):
        widgets.widget_data(Report("k", "simulator", "H200", (1, 1, 1), (32, 1, 1)))


def test_without_anywidget_the_picture_is_shown(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "anywidget", None)
    w = layout("m16n8k16 C").widget()
    assert w.view is None
    assert w.state == {}
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda x, **_: shown.append(x))
    w._ipython_display_()
    (bundle,) = shown
    assert "<img alt=" in bundle["text/html"]
    assert bundle["text/plain"] == w.picture.alt


def test_only_vs_code_and_colab_get_an_output_of_the_widget(monkeypatch) -> None:
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda x, **_: shown.append(x))
    for name in ("VSCODE_PID", "COLAB_RELEASE_TAG"):
        monkeypatch.delenv(name, raising=False)
    w = layout("m16n8k16 C").widget()
    w._ipython_display_()
    assert [type(x) for x in shown] == [dict]
    w._ipython_display_()
    assert len(w.view.places) == len(set(w.view.places)) == 2, "each output has a place"
    for name in ("VSCODE_PID", "COLAB_RELEASE_TAG"):
        shown.clear()
        monkeypatch.setenv(name, "1")
        w = layout("m16n8k16 C").widget()
        w._ipython_display_()
        assert "<img alt=" in shown[0]["text/html"], "the picture comes first"
        assert shown[1] is w.view
        assert w.view.apart
        monkeypatch.delenv(name)


# ------------------------------------------------------------------------------- in JupyterLab
class Lab(NamedTuple):
    """A running JupyterLab: the folder of its notebooks, and where it answers."""

    work: Path
    address: str

    def page(self, book: str) -> str:
        """With a workspace of its own: JupyterLab opens what was open in one."""
        return f"{self.address}/lab/workspaces/{book}/tree/{book}.ipynb?token=figures"


# A front end that draws widgets only where an output asks for one.
ELSEWHERE = {
    "vscode": 'import os; os.environ["VSCODE_PID"] = "1"',
    "colab": 'import os; os.environ["COLAB_RELEASE_TAG"] = "release-colab"',
}


@pytest.fixture(scope="module")
def lab(tmp_path_factory) -> Iterator[Lab]:
    """A JupyterLab with the notebooks, with settings of its own."""
    import nbformat
    from nbformat.v4 import new_code_cell, new_notebook

    home = tmp_path_factory.mktemp("lab")
    spec = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    (home / "work").mkdir()
    books = {"figures": CELLS, "saved": CELLS, **{n: [c, *CELLS] for n, c in ELSEWHERE.items()}}
    for name, cells in books.items():
        book = new_notebook(metadata=spec, cells=[new_code_cell(c.strip()) for c in cells])
        nbformat.write(book, home / "work" / f"{name}.ipynb")
    command = [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root",
        "--IdentityProvider.token=figures", f"--ServerApp.root_dir={home / 'work'}",
    ]  # fmt: skip
    with served(command, home, home) as address:
        yield Lab(home / "work", address.partition("/lab")[0])


def open_and_run(browser: Any, address: str, refused: str = "") -> Any:
    """A page with the notebook run; requests that leave this machine, or hold `refused`, fail."""
    page = open_page(browser, address, refused)
    page.evaluate("window.jupyterapp.commands.execute('notebook:run-all-cells')")
    page.get_by_text("all cells ran", exact=True).wait_for()
    return page


def cells(box: Any) -> dict[tuple[int, int], str]:
    """(row, column) -> what stands in the cells of a widget's tables, one after the other."""
    found = box.locator("td").evaluate_all(
        "all => all.map(x => [x.dataset.at, (x.firstChild || x).textContent])"
    )
    return {tuple(int(i) for i in at.split(",")): text for at, text in found if text}


@pytest.fixture(scope="module")
def book(browser, lab) -> Iterator[tuple[Any, Any]]:
    """The page of the notebook, run, and its six widgets."""
    page = open_and_run(browser, lab.page("figures"))
    boxes = page.locator(".tkx")
    boxes.nth(5).wait_for()
    yield page, boxes
    page.context.close()


@pytest.mark.browser
def test_a_widget_takes_the_place_of_its_picture(book) -> None:
    page, boxes = book
    assert boxes.count() == 6
    stills = page.locator("[id^=tk-still] > img")
    assert stills.count() == 6
    assert not any(x.is_visible() for x in stills.all())
    assert page.locator("[id^=tk-still] .tkx").count() == 6


@pytest.mark.browser
def test_layout_in_jupyterlab(book) -> None:
    page, boxes = book
    box, want = boxes.nth(0), ownership("m16n8k16 C")
    lanes = {(r, c): str(want.owner(r, c)[0]) for r in range(16) for c in range(8)}
    assert cells(box) == lanes
    box.locator("td[data-at='9,3']").click()
    assert "Element (9, 3): lane 5, register 3." in said(box)
    shot(page, "layout")
    arrives(page, "print(a.state['lane'], a.state['row'], a.state['col'])", "5 9 3")
    press(page, "ArrowDown", "ArrowRight", "Enter")
    lane, reg = want.owner(10, 4)
    assert f"Element (10, 4): lane {lane}, register {reg}." in said(box)
    arrives(page, "print(a.state['lane'])", str(lane))
    box.locator("[name=what]").select_option("m16n8k32 A")
    box.locator("td[data-at='0,17']").click()
    lane, reg = ownership("m16n8k32 A").owner(0, 17)
    assert f"Element (0, 17): lane {lane}, register {reg}." in said(box)


@pytest.mark.browser
def test_banks_in_jupyterlab(book) -> None:
    page, boxes = book
    box, want = boxes.nth(1), bank_map("lds32", np.arange(32) * 128)
    (only,) = want.transactions
    assert cells(box) == {at: str(lanes[0]) for at, lanes in only.cells.items()}
    assert said(box).startswith("32 wavefronts (ideal 1): 31 bank conflicts.")
    box.locator("td[data-at='7,0']").click()
    assert "Lane 7: byte 896, bank 0, transaction 1, pass 8 of 32." in said(box)
    shot(page, "banks")
    press(page, "ArrowDown", "Enter")
    assert "Lane 8: byte 1024, bank 0, transaction 1, pass 9 of 32." in said(box)
    arrives(page, "print(b.state['lane'])", "8")
    box.locator("[name=source]").select_option("tile")
    box.locator("[name=itemsize]").select_option("4")
    box.locator("[name=cols]").select_option("32")
    box.locator("[name=how]").select_option("column")
    assert said(box).startswith("32 wavefronts (ideal 1)")
    box.locator("[name=pad]").select_option("1")
    assert said(box).startswith("1 wavefront (ideal 1): no bank conflicts.")
    arrives(page, "print(b.state['pad'], b.state['source'])", "1 tile")
    box.locator("[name=lane]").focus()
    press(page, "ArrowUp", "ArrowUp")
    assert "Lane 10: byte 1320, bank 10, transaction 1, pass 1 of 1." in said(box)
    assert page.locator(".jp-Notebook.jp-mod-editMode").count() == 0


@pytest.mark.browser
def test_swizzle_in_jupyterlab(book) -> None:
    page, boxes = book
    box, places = boxes.nth(2), layouts.st_offset(64, 64, 2, 128)[:, ::8]
    groups = {(r, c): str(places[r, c] // 16 % 8) for r in range(16) for c in range(8)}
    assert cells(box) == groups
    box.locator("td[data-at='3,2']").click()
    assert said(box).startswith(f"Row 3, piece 2: byte {places[3, 2]},")
    assert said(box).endswith("1 pass.")
    shot(page, "swizzle")
    press(page, "ArrowDown", "ArrowRight", "Enter")
    assert said(box).startswith(f"Row 4, piece 3: byte {places[4, 3]},")
    arrives(page, "print(c.state['row'], c.state['col'])", "4 3")
    box.locator("[name=map]").select_option("no swizzle")
    assert said(box).endswith("8 passes.")
    box.locator("[name=map]").focus()
    press(page, "ArrowDown")
    (passes,) = set(address_map(tk.st_bf(64, 64, swizzle=32)).passes)
    assert said(box).endswith(f"{passes} pass{'es' * (passes > 1)}."), "the 32-byte swizzle"


@pytest.mark.browser
def test_coalescing_in_jupyterlab(book) -> None:
    page, boxes = book
    box, want = boxes.nth(3), sector_map("ldg32", np.arange(32) * 4)
    assert cells(box) == {(0, w): str(lanes[0]) for w, lanes in want.words.items()}
    assert said(box).startswith("4 sectors of 32 bytes: 128 bytes moved, 128 used.")
    box.locator("td[data-at='0,11']").click()
    assert said(box).endswith("Lane 11: byte 44, sector 1.")
    press(page, "ArrowRight", "Enter")
    assert said(box).endswith("Lane 12: byte 48, sector 1.")
    arrives(page, "print(d.state['lane'])", "12")
    box.locator("[name=source]").select_option("stride")
    box.locator("[name=stride]").fill("8")
    assert said(box).startswith("32 sectors of 32 bytes: 1024 bytes moved, 128 used.")
    shot(page, "sectors")
    arrives(page, "print(d.state['stride'])", "8")
    box.locator("[name=stride]").focus()
    press(page, "ArrowDown")
    assert said(box).startswith("28 sectors of 32 bytes: 896 bytes moved, 128 used.")


@pytest.mark.browser
def test_lines_in_jupyterlab(book) -> None:
    page, boxes = book
    box = boxes.nth(4)
    box.locator("[name=counter]").select_option("shared_ld_wavefronts")
    bars = box.locator("tbody tr").evaluate_all(
        "all => all.filter(x => x.querySelector('.bars')).map(x => x.innerText.split('\\t'))"
    )
    (bar,) = bars
    assert [bar[0].strip(), bar[-1].strip()] == ["12", "1,024"]
    box.locator("td", has_text="= tile[").click()
    assert said(box) == (
        "Line 12: global st requests 32, global st sectors 128 (ideal 128), "
        "shared ld wavefronts 1,024 (ideal 32), shared ld conflicts 992."
    )
    press(page, "ArrowUp", "Enter")
    assert said(box) == "Line 11: no counter moved."
    shot(page, "lines")
    box.locator("[name=counter]").focus()
    press(page, "Home")
    assert box.locator("[name=counter]").input_value() == "global_ld_requests"


@pytest.mark.browser
def test_roofline_in_jupyterlab(book) -> None:
    page, boxes = book
    box = boxes.nth(5)
    assert "32.0 FLOP a byte (the roofs meet at 206), a bound of 153.6 TFLOP/s" in said(box)
    box.locator("td").click()
    box.locator("[name=device]").select_option("T4")
    assert "gemm on T4: 32.0 FLOP a byte (the roofs meet at 204)" in said(box)
    assert "not measurements" in said(box)
    shot(page, "roofs")
    box.locator("[name=device]").focus()
    press(page, "ArrowUp")
    assert said(box).startswith("gemm on H200: ")
    press(page, "Tab", "Enter")
    assert box.locator("td").evaluate("x => x.getRootNode().activeElement.tagName") == "TD"
    arrives(page, "print(f.state['device'])", "H200")


@pytest.mark.browser
def test_a_saved_notebook_shows_pictures(browser, lab) -> None:
    """With its kernel alive the widgets come back; without it only the pictures are there."""
    page = open_and_run(browser, lab.page("saved"))
    page.locator(".tkx").nth(5).wait_for()
    page.evaluate("window.jupyterapp.commands.execute('docmanager:save')")
    page.locator(".tkx td[data-at='9,3']").first.click()
    path = lab.work / "saved.ipynb"
    for _ in range(100):
        if "tk-still" in path.read_text():
            break
        page.wait_for_timeout(100)
    text = path.read_text()
    assert text.count('<div id=\\"tk-still') == 6
    assert "widget-view" not in text
    page.reload()
    page.locator(".tkx").nth(5).wait_for()
    assert not any(x.is_visible() for x in page.locator("[id^=tk-still] > img").all())
    page.evaluate(READY)
    page.evaluate("book.sessionContext.shutdown()")
    page.reload()
    pictures_only(page)
    shot(page, "saved")
    page.context.close()


def pictures_only(page: Any) -> Any:
    stills = page.locator("[id^=tk-still] > img")
    stills.nth(5).wait_for()
    page.wait_for_timeout(1500)
    assert page.locator(".tkx").count() == 0
    assert page.get_by_text("displaying widget").count() == 0
    assert all(x.is_visible() for x in stills.all())
    assert all(x.evaluate("i => i.naturalWidth > 300") for x in stills.all())
    return stills


@pytest.mark.browser
@pytest.mark.parametrize("refused", ["anywidget", "jupyterlab-manager"])
def test_the_picture_stays_where_widgets_cannot_load(browser, lab, refused) -> None:
    page = open_and_run(browser, lab.page("figures"), refused)
    stills = pictures_only(page)
    alts = [x.get_attribute("alt") or "" for x in stills.all()]
    assert "lane 5, register 3" in alts[0]
    assert "31 bank conflicts" in alts[1]
    assert "128-byte swizzle" in alts[2]
    assert "4 sectors" in alts[3]
    stills.nth(0).scroll_into_view_if_needed()
    shot(page, "fallback")
    page.context.close()


@pytest.mark.browser
@pytest.mark.parametrize("name", ELSEWHERE)
def test_elsewhere_without_a_network(browser, lab, name) -> None:
    """As in VS Code and Colab: an output asks for the widget, whose code comes by network."""
    page = open_and_run(browser, lab.page(name), refused="anywidget")
    stills = page.locator("[id^=tk-still] > img")
    stills.nth(5).wait_for()
    page.wait_for_timeout(1500)
    assert page.locator(".tkx").count() == 0
    assert all(x.is_visible() for x in stills.all())
    page.context.close()


@pytest.mark.browser
def test_elsewhere_with_a_network(browser, lab) -> None:
    page = open_and_run(browser, lab.page("vscode"))
    page.locator(".tkx").nth(5).wait_for()
    assert page.locator(".tkx").count() == 6, "once, not also in the picture's place"
    assert not any(x.is_visible() for x in page.locator("[id^=tk-still] > img").all())
    page.context.close()
