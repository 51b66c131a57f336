"""The one-page result; and that a killed kernel loses nothing that it has told."""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from course_kit import ROOT

import tklearn as tk
from tklearn import cli
from tklearn.course import attempts, result
from tklearn.course.items import ITEMS


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A course of one's own, in which two exercises are solved."""
    (tmp_path / "exercises").mkdir()
    for item in ITEMS.values():
        folder = "solutions" if item.id in ("K1", "M1") else "exercises"
        shutil.copy(ROOT / folder / item.file, tmp_path / "exercises")
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Reader(HTMLParser):
    """What the page holds: its tags, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def read(path: Path) -> Reader:
    reader = Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    assert reader.open == [], "each tag is closed"
    return reader


def test_the_page_of_a_beginner(course: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["progress", "--page"]) == 0
    assert str(course / result.NAME) in capsys.readouterr().out
    seen = read(course / result.NAME)
    assert "0 of " in seen.text
    assert "None of the exercises with a kernel" in seen.text
    assert not {"script", "link", "iframe"} & set(seen.tags)


def test_the_page_of_a_learner(course: Path, tmp_path: Path) -> None:
    tk.predict("quiz-before", bytes="128", passed="right", written="4")
    for name in ("K1", "M1"):
        assert cli.main(["check", name, f"exercises/{ITEMS[name].file}"]) == 0
        points = ITEMS[name].points
        attempts.add(name, "check", passed=True, score=float(points), points=points)
    tk.hint("K1")
    page = tmp_path / "page.html"
    assert cli.main(["progress", "--page", str(page)]) == 0
    seen = read(page)
    assert f"{ITEMS['K1'].points + ITEMS['M1'].points:g} of " in seen.text
    assert re.search(r"K1.*passed4 of 4", seen.text, re.S)
    assert "shown when both have been answered" in seen.text
    assert "transpose" in seen.text
    assert "K1, solved" in seen.text
    tk.predict("quiz-after", bytes="1024", passed="wrong", written="4")
    seen = read(result.write(page))
    assert "Right: 0 of 3 before, 2 of 3 after." in seen.text
    assert "128 (no)" in seen.text
    assert "1024 (yes)" in seen.text
    assert [p.name for p in tmp_path.glob(".*html*")] == [], "nothing is left half written"


def test_a_page_that_cannot_be_written(course: Path) -> None:
    assert cli.main(["progress", "--page", str(course / "no" / "folder.html")]) == 2


WRITE = """
from tklearn.course import attempts
for n in range({first}, 10_000):
    good = n % 2 == 0
    attempts.add("K1", "check", passed=good, score=4.0 * good, points=4, n=n, text="x" * 5000)
    print(n, flush=True)
"""


@pytest.mark.skipif(os.name != "posix", reason="kill -9")
def test_a_kernel_that_is_killed_loses_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """kill -9 in the middle of attempts: what the page has shown is kept, and a new one goes on."""
    from jupyter_client.manager import start_new_kernel

    told: set[int] = set()
    for round_ in range(3):
        manager, client = start_new_kernel(kernel_name="python3")
        try:
            client.execute(WRITE.format(first=1000 * round_))
            first = len(told)
            end = time.monotonic() + 60
            while len(told) < first + 20 + 7 * round_:
                assert time.monotonic() < end
                message = client.get_iopub_msg(timeout=30)
                if message["msg_type"] == "stream":
                    told |= {int(x) for x in message["content"]["text"].split()}
                assert message["msg_type"] != "error", message["content"]
            pid = manager.provisioner.process.pid
            os.kill(pid, signal.SIGKILL)
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)
    kept = [e["n"] for e in attempts.events()]
    assert told <= set(kept)
    assert len(kept) == len(set(kept)), "nothing twice"
    assert all(len(e["text"]) == 5000 for e in attempts.events()), "whole lines"
    before = attempts.record("K1")
    assert before.passed
    tk.hint("K1")
    assert attempts.record("K1").hints == 1
    assert cli.main(["progress"]) == 0
    assert re.search(rf"K1 .*passed.* {len(kept)} +1", capsys.readouterr().out)
