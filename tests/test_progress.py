"""Long work says how far it is, where somebody looks."""

import io
import sys

import pytest

from tklearn import progress


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def run(clock: list[float], monkeypatch: pytest.MonkeyPatch, watched: bool) -> str:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stderr", out)
    monkeypatch.setattr(progress, "watched", lambda: watched)
    p = progress.Progress("blocks", 10)
    for _ in range(10):
        clock[0] += 1
        p.step(1)
    p.done()
    return out.getvalue()


def test_a_line_after_two_seconds_that_goes_away(clock, monkeypatch) -> None:
    text = run(clock, monkeypatch, True)
    lines = text.split("\r")
    assert lines[1] == "blocks: 2 of 10, about 8 s left"
    assert lines[-1] == ""
    assert set(lines[-2]) == {" "}


def test_nothing_where_nobody_looks(clock, monkeypatch) -> None:
    assert run(clock, monkeypatch, False) == ""


def test_short_work_is_quiet(clock, monkeypatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stderr", out)
    monkeypatch.setattr(progress, "watched", lambda: True)
    p = progress.Progress("blocks", 3)
    p.step(1)
    p.done()
    assert out.getvalue() == ""
