"""What lies in a folder of submissions, as learners and platforms leave it there.

A submission is a file (a zip, a notebook), a folder, or the loose notebooks that Moodle or Canvas
names after one learner. Nothing is unpacked here, and no link is followed.
"""

from __future__ import annotations

import io
import os
import re
import stat
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tklearn.course import feedback
from tklearn.course.submit import ENTRIES, LARGEST

TYPED = re.compile("_assignsubmission_onlinetext_?$")  # in Moodle, beside the folder of files
NOT_READ = (".csv", ".json", ".html", ".txt", ".pdf")


@dataclass(frozen=True)
class Handed:
    """One submission: its name in the folder, and its files (one, or the notebooks of a folder)."""

    name: str
    files: tuple[str, ...]

    def data(self) -> bytes:
        """Its bytes: a file's own, or a zip of a folder's notebooks."""
        own = (".zip",) if feedback.sent(self.name) else (".zip", os.sep + self.name)
        if len(self.files) == 1 and self.files[0].endswith(own):
            return _bytes(self.files[0])
        out, total = io.BytesIO(), 0
        with zipfile.ZipFile(out, "w") as z:
            for path in self.files:
                body = _bytes(path)
                total += len(body)
                if total > LARGEST:
                    break
                sent = feedback.sent(os.path.basename(path))
                z.writestr(zipfile.ZipInfo(sent[1] if sent else os.path.basename(path)), body)
        return out.getvalue()


def _bytes(path: str) -> bytes:
    """A regular file's bytes, up to one more than is taken; nothing else is opened."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        file = os.open(path, flags | getattr(os, "O_BINARY", 0))
    except OSError:
        return b""
    with os.fdopen(file, "rb") as f:
        return f.read(LARGEST + 1) if stat.S_ISREG(os.fstat(file).st_mode) else b""


def handed_in(folder: Path, learners: Sequence[feedback.Learner] = ()) -> list[Handed]:
    """The submissions in a folder: each zip, notebook or subfolder, by name. No links. Notebooks
    that Moodle or Canvas names after one of `learners` are one submission."""
    out = []
    books: dict[str, list[str]] = {}
    for entry in sorted(os.scandir(folder), key=lambda e: e.name):
        if entry.name.startswith(".") or entry.name.endswith(NOT_READ) or entry.is_symlink():
            continue
        if entry.is_file():
            sent = feedback.sent(entry.name)
            if sent and entry.name.endswith(".ipynb") and feedback.sender(entry.name, learners):
                books.setdefault(sent[0], []).append(entry.path)
            else:
                out.append(Handed(entry.name, (entry.path,)))
        elif entry.is_dir() and not TYPED.search(entry.name):
            out.append(Handed(entry.name, _within(Path(entry.path))))
    return out + [Handed(os.path.basename(paths[0]), tuple(paths)) for paths in books.values()]


def _within(folder: Path) -> tuple[str, ...]:
    """A subfolder's newest zip, or its notebooks and those in its exercises/."""

    def files(where: Path, ending: str) -> list[os.DirEntry[str]]:
        try:
            every = list(os.scandir(where))
        except OSError:
            return []
        there = (e for e in every if e.is_file(follow_symlinks=False))
        return [e for e in there if e.name.endswith(ending) and ".attempt-" not in e.name]

    zips = sorted(files(folder, ".zip"), key=lambda e: (e.stat().st_mtime, e.name))
    if zips:
        return (zips[-1].path,)
    books = files(folder, ".ipynb") + files(folder / "exercises", ".ipynb")
    return tuple(e.path for e in sorted(books, key=lambda e: e.path)[:ENTRIES])
