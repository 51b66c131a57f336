"""JupyterLab in a real Chromium: what the browser tests share."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
READY = """async path => {
  const app = window.jupyterapp;
  await app.restored;
  for (let i = 0; i < 400; i++) {
    window.book = [...app.shell.widgets("main")].find(
      w => w.context && w.content?.widgets && (!path || w.context.path === path));
    if (window.book) break;
    await new Promise(r => setTimeout(r, 50));
  }
  await book.context.ready;
  await book.sessionContext.ready;
  await book.sessionContext.session.kernel.info;
}"""
ASK = """async code => {
  const kernel = book.sessionContext.session.kernel;
  const run = kernel.requestExecute({ code });
  let text = "";
  run.onIOPub = m => { if (m.header.msg_type === "stream") text += m.content.text; };
  await run.done;
  return text.trim();
}"""


@contextmanager
def served(command: list[str], cwd: Path, home: Path) -> Iterator[str]:
    """A JupyterLab that `command` starts, with settings of its own in `home`; its address.

    The address is the one that it prints, with its token.
    """
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
    for name in ("TKLEARN_COURSE_DIR", "DISPLAY", "WAYLAND_DISPLAY"):
        env.pop(name, None)
    command = [
        *command, "--expose-app-in-browser", f"--port={port}", "--ServerApp.port_retries=0",
    ]  # fmt: skip
    log = home / "log"
    with log.open("w") as file:
        server = subprocess.Popen(command, cwd=cwd, env=env, stdout=file, stderr=file)
    try:
        yield _address(log, port, server)
    finally:
        server.terminate()
        server.wait(30)


def _address(log: Path, port: int, server: subprocess.Popen) -> str:
    """What the server printed, once it answers there."""
    for _ in range(600):
        found = re.search(rf"http://127\.0\.0\.1:{port}/\S+", log.read_text())
        if found:
            try:
                urllib.request.urlopen(found[0], timeout=5).read()
                return found[0]
            except OSError:
                pass
        assert server.poll() is None, log.read_text()
        time.sleep(0.2)
    raise AssertionError(log.read_text())


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium."""
    from playwright.sync_api import sync_playwright

    from tklearn.doctor import find_chromium

    with sync_playwright() as p:
        b = p.chromium.launch(executable_path=find_chromium(), args=FLAGS)
        yield b
        b.close()


def open_page(browser: Any, address: str, refused: str = "") -> Any:
    """A page in which the first notebook is ready; requests that leave this machine, or hold
    `refused`, fail."""
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
    return page


def shot(page: Any, name: str, folder: Path | None = None) -> None:
    """A screenshot in `folder`, or where TKLEARN_SHOTS says that somebody wants to look."""
    where = os.environ.get("TKLEARN_SHOTS") or folder
    if where:
        page.screenshot(path=f"{where}/{name}.png")


def arrives(page: Any, code: str, want: str) -> None:
    """What `code` prints becomes `want`: a widget sends its state when its last one has arrived."""
    for _ in range(100):
        got = page.evaluate(ASK, code)
        if got == want:
            return
        page.wait_for_timeout(100)
    assert got == want


def said(box: Any) -> str:
    """What stands below a widget."""
    text: str = box.locator(".say").inner_text()
    return text


def press(page: Any, *keys: str) -> None:
    """Keys go to whatever has the focus: JupyterLab must not take them."""
    for key in keys:
        page.keyboard.press(key)
