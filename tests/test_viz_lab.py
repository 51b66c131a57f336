"""The widgets in a real JupyterLab in Chromium, by mouse and by keyboard, without a network.

A notebook draws each figure as a widget. What is clicked must reach Python; where the widgets'
code cannot load, the picture must be there instead.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tklearn.lang import layouts
from tklearn.lang.errors import FigureError
from tklearn.report import Report
from tklearn.viz import widgets
from tklearn.viz.banks import banks
from tklearn.viz.coalescing import coalescing
from tklearn.viz.layout import layout, ownership
from tklearn.viz.swizzle import swizzle

FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
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
READY = """async () => {
  const app = window.jupyterapp;
  await app.restored;
  for (let i = 0; i < 200; i++) {
    window.book = [...app.shell.widgets("main")].find(w => w.context && w.content?.widgets);
    if (window.book) break;
    await new Promise(r => setTimeout(r, 50));
  }
  await book.context.ready;
  await book.sessionContext.ready;
  await book.sessionContext.session.kernel.info;
  await app.commands.execute("notebook:run-all-cells");
}"""
ASK = """async code => {
  const kernel = book.sessionContext.session.kernel;
  const run = kernel.requestExecute({ code });
  let text = "";
  run.onIOPub = m => { if (m.header.msg_type === "stream") text += m.content.text; };
  await run.done;
  return text.trim();
}"""


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
    import tklearn as tk

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


# ------------------------------------------------------------------------------- in JupyterLab
@pytest.fixture(scope="module")
def lab(tmp_path_factory) -> Iterator[str]:
    """The address of a JupyterLab with the notebook, with settings of its own."""
    import nbformat
    from nbformat.v4 import new_code_cell, new_notebook

    home = tmp_path_factory.mktemp("lab")
    spec = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    book = new_notebook(metadata=spec, cells=[new_code_cell(c.strip()) for c in CELLS])
    (home / "work").mkdir()
    nbformat.write(book, home / "work" / "figures.ipynb")
    settings = home / "settings" / "@jupyterlab"
    for name, text in (
        ("notebook-extension/tracker", '{"windowingMode": "none"}'),
        ("apputils-extension/notification", '{"fetchNews": "false", "checkForUpdates": false}'),
    ):
        path = settings / f"{name}.jupyterlab-settings"
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
    command = [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--expose-app-in-browser",
        "--allow-root", f"--port={port}", "--ServerApp.port_retries=0",
        "--IdentityProvider.token=figures", f"--ServerApp.root_dir={home / 'work'}",
    ]  # fmt: skip
    with (home / "log").open("w") as log:
        server = subprocess.Popen(command, env=env, stdout=log, stderr=log)
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(300):
            try:
                urllib.request.urlopen(f"{address}/api?token=figures", timeout=2).read()
                break
            except OSError:
                assert server.poll() is None, (home / "log").read_text()
                time.sleep(0.2)
        yield f"{address}/lab/tree/figures.ipynb?token=figures"
    finally:
        server.terminate()
        server.wait(20)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    from tklearn.doctor import find_chromium

    with sync_playwright() as p:
        b = p.chromium.launch(executable_path=find_chromium(), args=FLAGS)
        yield b
        b.close()


def open_and_run(browser: Any, address: str, refused: str = "") -> Any:
    """A page with the notebook run; requests that leave this machine, or hold `refused`, fail."""
    context = browser.new_context(viewport={"width": 1300, "height": 1000})
    context.set_default_timeout(60_000)
    context.route(
        lambda url: "//127.0.0.1:" not in url or bool(refused and refused in url),
        lambda route: route.abort(),
    )
    page = context.new_page()
    page.goto(address)
    page.wait_for_function("window.jupyterapp")
    page.evaluate(READY)
    page.get_by_text("all cells ran", exact=True).wait_for()
    return page


def shot(page: Any, name: str) -> None:
    """A screenshot where TKLEARN_SHOTS says that somebody wants to look."""
    folder = os.environ.get("TKLEARN_SHOTS")
    if folder:
        page.screenshot(path=f"{folder}/{name}.png")


def arrives(page: Any, code: str, want: str) -> None:
    """What `code` prints becomes `want`: a widget sends its state when its last one has arrived."""
    for _ in range(100):
        got = page.evaluate(ASK, code)
        if got == want:
            return
        page.wait_for_timeout(100)
    assert got == want


@pytest.mark.browser
def test_widgets_in_jupyterlab(browser, lab) -> None:
    page = open_and_run(browser, lab)
    boxes = page.locator(".tkx")
    boxes.nth(5).wait_for()
    assert boxes.count() == 6
    assert page.locator("[id^=tk-still] img").count() == 6
    assert not any(x.is_visible() for x in page.locator("[id^=tk-still] img").all())
    a, b, c, d, e, f = (boxes.nth(i) for i in range(6))

    def said(box: Any) -> str:
        return box.locator(".say").inner_text()

    # by mouse
    a.locator("td[data-at='9,3']").click()
    assert "Element (9, 3): lane 5, register 3." in said(a)
    shot(page, "layout")
    arrives(page, "print(a.state['lane'], a.state['row'], a.state['col'])", "5 9 3")
    # by keyboard: JupyterLab must not take the keys
    for key in ("ArrowDown", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    lane, reg = ownership("m16n8k16 C").owner(10, 4)
    assert f"Element (10, 4): lane {lane}, register {reg}." in said(a)
    arrives(page, "print(a.state['lane'])", str(lane))
    a.locator("[name=what]").select_option("m16n8k32 A")
    a.locator("td[data-at='0,17']").click()
    lane, reg = ownership("m16n8k32 A").owner(0, 17)
    assert f"Element (0, 17): lane {lane}, register {reg}." in said(a)

    assert said(b).startswith("32 wavefronts (ideal 1): 31 bank conflicts.")
    b.locator("td[data-at='7,0']").click()
    assert "Lane 7: byte 896, bank 0, transaction 1, pass 8 of 32." in said(b)
    shot(page, "banks")
    b.locator("[name=source]").select_option("tile")
    b.locator("[name=itemsize]").select_option("4")
    b.locator("[name=cols]").select_option("32")
    b.locator("[name=how]").select_option("column")
    assert said(b).startswith("32 wavefronts (ideal 1)")
    b.locator("[name=pad]").select_option("1")
    assert said(b).startswith("1 wavefront (ideal 1): no bank conflicts.")
    arrives(page, "print(b.state['pad'], b.state['source'])", "1 tile")

    c.locator("td[data-at='3,2']").click()
    place = layouts.st_offset(64, 64, 2, 128)[3, 16]
    assert said(c).startswith(f"Row 3, piece 2: byte {place},")
    assert said(c).endswith("1 pass.")
    shot(page, "swizzle")
    c.locator("[name=map]").select_option("no swizzle")
    assert said(c).endswith("8 passes.")

    assert said(d).startswith("4 sectors of 32 bytes: 128 bytes moved, 128 used.")
    d.locator("[name=source]").select_option("stride")
    d.locator("[name=stride]").fill("8")
    assert said(d).startswith("32 sectors of 32 bytes: 1024 bytes moved, 128 used.")
    shot(page, "sectors")
    arrives(page, "print(d.state['stride'])", "8")

    e.locator("[name=counter]").select_option("shared_ld_wavefronts")
    e.locator("td", has_text="= tile[").click()
    assert said(e) == (
        "Line 12: global st requests 32, global st sectors 128 (ideal 128), "
        "shared ld wavefronts 1,024 (ideal 32), shared ld conflicts 992."
    )
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    assert said(e) == "Line 11: no counter moved."
    shot(page, "lines")

    assert "32.0 FLOP a byte (the roofs meet at 206), a bound of 153.6 TFLOP/s" in said(f)
    f.locator("[name=device]").select_option("T4")
    assert "gemm on T4: 32.0 FLOP a byte (the roofs meet at 204)" in said(f)
    assert "not measurements" in said(f)
    shot(page, "roofs")
    page.context.close()


@pytest.mark.browser
def test_the_picture_stays_where_widgets_cannot_load(browser, lab) -> None:
    page = open_and_run(browser, lab, refused="anywidget")
    stills = page.locator("[id^=tk-still] img")
    stills.nth(5).wait_for()
    page.wait_for_timeout(1500)
    assert page.locator(".tkx").count() == 0
    assert all(x.is_visible() for x in stills.all())
    alts = [x.get_attribute("alt") or "" for x in stills.all()]
    assert "lane 5, register 3" in alts[0]
    assert "31 bank conflicts" in alts[1]
    assert "128-byte swizzle" in alts[2]
    assert "4 sectors" in alts[3]
    assert all(x.evaluate("i => i.naturalWidth > 300") for x in stills.all())
    stills.nth(0).scroll_into_view_if_needed()
    shot(page, "fallback")
    page.context.close()
