"""The course's tests keep attempts in folders of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tklearn.course import worker


@pytest.fixture(autouse=True)
def attempts_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TKLEARN_COURSE_DIR", str(tmp_path / "attempts"))


@pytest.fixture(scope="session", autouse=True)
def no_child_left() -> Iterator[None]:
    yield
    worker.stop()
