"""What is kept of a learner's work: predictions, attempts, hints, scores, in one local file.

The file is a journal: each event is one line of JSON, appended and flushed at once. Notebooks that
are open side by side append to the same file, and a crash can only lose the line that it was
writing: a line that is not whole is passed over. Everything else is computed from the events. The
file is the learner's own, who may edit it: what is no event of ours is passed over, too.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

NAME = "attempts.jsonl"
LONGEST = 20_000  # characters of an attempt that are kept
LARGEST = 64_000_000  # bytes that are read, the newest; two hours of checks make less than 5 MB
LINE = 400_000  # bytes of an event


def folder() -> Path:
    """Where the file lies: TKLEARN_COURSE_DIR, else .tklearn in the course that holds the working
    folder, else the user's data folder. While nbgrader grades, a folder of this process alone: a
    learner's first predictions must not be those of the learner before, or of the grader."""
    if os.environ.get("NBGRADER_EXECUTION") == "autograde":
        return Path(_of_this_process().name)
    if own := os.environ.get("TKLEARN_COURSE_DIR"):
        return Path(own)
    root = course()
    if root is not None and os.access(root, os.W_OK):
        return root / ".tklearn"
    home = Path.home()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home) / "tklearn"
    if sys.platform == "darwin":
        return home / "Library" / "Application Support" / "tklearn"
    return Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share") / "tklearn"


@cache
def _of_this_process() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="tklearn-")


def course() -> Path | None:
    """The folder above the working folder (or itself) that holds exercises/, if there is one."""
    here = Path.cwd()
    return next((p for p in (here, *here.parents) if (p / "exercises").is_dir()), None)


def outside() -> bool:
    """Whether the working folder belongs to no course, so that attempts go to the user's folder."""
    return course() is None and "TKLEARN_COURSE_DIR" not in os.environ


def add(item: str, what: str, **facts: Any) -> None:
    """Appends an event: what is "predict", "check", "hint" or "reset". Warns if it cannot."""
    event = {"time": round(time.time(), 3), "item": item, "what": what, **facts}
    data = json.dumps(event, ensure_ascii=True).encode() + b"\n"
    path = folder() / NAME
    try:
        _append(path, data)
    except OSError as e:
        warnings.warn(f"this attempt is not kept: {path}: {e.strerror}", stacklevel=3)
    if os.environ.get("TKLEARN_CLASS"):
        from tklearn.course import report

        report.send(event)


def _append(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)
    file = os.open(path, flags, 0o644)
    try:
        size = os.fstat(file).st_size
        if size:  # after a crash in the middle of a line, begin a new one
            os.lseek(file, size - 1, os.SEEK_SET)
            data = data if os.read(file, 1) == b"\n" else b"\n" + data
        os.write(file, data)
        os.fsync(file)
    finally:
        os.close(file)


def events(path: Path | None = None) -> Iterator[dict[str, Any]]:
    """All whole events, the oldest first, with facts of the kinds that `add` writes."""
    try:
        with (path or folder() / NAME).open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - LARGEST))
            raw = file.read(LARGEST)
    except OSError:
        return
    for line in raw.split(b"\n"):
        if not line or len(line) > LINE:
            continue
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if (event := _whole(event)) is not None:
            yield event


def _whole(event: Any) -> dict[str, Any] | None:
    """An event without facts of odd kinds; None for what is none."""
    if not isinstance(event, dict) or not _number(event.get("time")):
        return None
    if not all(type(event.get(n)) is str for n in ("item", "what")):
        return None
    odd = {n for n, v in event.items() if type(v) not in (str, int, float, bool)}
    odd |= {n for n in ("score", "points") if not _number(event.get(n))}
    odd |= {"n"} if type(event.get("n")) is not int else set()
    said = event.get("said")
    said = {n: v for n, v in said.items() if sane(v)} if isinstance(said, dict) else {}
    return {n: v for n, v in event.items() if n not in odd} | {"said": said}


def _number(x: Any) -> bool:
    return type(x) in (int, float) and 0 <= x < 1e15


def sane(value: Any) -> bool:
    """Whether this can be a prediction."""
    if type(value) is str:
        return len(value) <= 200
    return type(value) in (int, float) and abs(value) < 1e15


@dataclass
class Record:
    """What is known of one item.

    Attributes: first, latest: the predictions. attempts: checks. hints: how many were given.
    passed, score: the best so far. seconds: from the first event to the passing one.
    """

    item: str
    first: dict[str, Any] = field(default_factory=dict)
    latest: dict[str, Any] = field(default_factory=dict)
    attempts: int = 0
    hints: int = 0
    passed: bool = False
    score: float = 0.0
    points: int = 0
    began: float = 0.0
    seconds: float = 0.0


def records(path: Path | None = None) -> dict[str, Record]:
    """What the events of a journal come to, by item."""
    out: dict[str, Record] = {}
    for e in events(path):
        r = out.setdefault(e["item"], Record(e["item"], began=e["time"]))
        if e["what"] == "predict":
            said = e["said"]
            r.first = {**said, **r.first}
            r.latest = {**r.latest, **said}
        elif e["what"] == "hint":
            r.hints = max(r.hints, min(e.get("n", 0), 3))
        elif e["what"] == "check":
            r.attempts += 1
            if e.get("passed") is True and not r.passed:
                r.passed, r.seconds = True, max(0.0, e["time"] - r.began)
            r.points = e.get("points", 0)
            r.score = max(r.score, min(e.get("score", 0.0), r.points))
    return out


def record(item: str) -> Record:
    """What is known of one item."""
    return records().get(item) or Record(item)


def seed() -> int:
    """The learner's number, from which their predictions vary; 0 where no class is held.

    It stands in learner.json beside the journal: {"seed": 7}.
    """
    try:
        said = json.loads((folder() / "learner.json").read_text(encoding="utf-8"))["seed"]
        return max(0, int(said))
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return 0
