"""One file with all of a learner's work, and how a grader reads it.

The file is a zip: manifest.json (who, when, versions, a hash of each other file), cells/<ID>.json
(the code cells of an exercise, as text: no outputs, nothing that runs), answers/<ID>.py (the same
answer for people to read) and attempts.jsonl (predictions, attempts, hints). `submit` makes it.
`opened` reads it, and a bare notebook, too; it takes nothing on trust: it runs in a sandbox,
unpacks nothing to disk, and stops at sizes that no honest submission has.
"""

from __future__ import annotations

import contextlib
import hashlib
import html
import io
import json
import math
import os
import platform
import time
import zipfile
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tklearn.course import attempts, release
from tklearn.course.check import answer_in
from tklearn.course.extract import Refused, code_cells, from_cells
from tklearn.course.item import Item, Predict
from tklearn.course.items import ITEMS
from tklearn.lang.errors import TkError

FORMAT = 1
LARGEST = 30_000_000  # bytes of a submission
ENTRIES = 2_000  # files in it: a whole course's folder has about 400
UNPACKED = 5_000_000  # bytes of one file in it
ALL_UNPACKED = 40_000_000
DAMAGE = (zipfile.BadZipFile, zlib.error, RuntimeError, EOFError, OSError, ValueError, KeyError)
EVENTS = 5_000  # lines of the journal that are handed in, the newest


class Unreadable(Exception):
    """A submission that cannot be read; the text is for its learner."""


# --------------------------------------------------------------------------------------------- make
@dataclass(frozen=True, repr=False)
class Submitted:
    """The file that was written. Shows what is in it.

    Attributes: path. exercises: the names of those in it. lacking: of graded ones that are not.
    """

    path: Path
    exercises: tuple[str, ...]
    lacking: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"hand in this file: {self.path}", f"in it: {', '.join(self.exercises)}"]
        if self.lacking:
            lines.append(f"as they were handed out, or not there: {', '.join(self.lacking)}")
        lines.append("Notebooks are taken as saved: save first, and submit again after a change.")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def submit(folder: str | os.PathLike[str] | None = None, out: str | None = None) -> Submitted:
    """Writes one file with your work, to hand in: the saved notebooks, predictions, attempts.

    Args: folder, the course (default: the one around the working folder). out, the file (default:
    submission-<you>.zip in the course's folder). TkError: nothing is there to hand in.
    """
    root = attempts.course() if folder is None else Path(folder)
    if root is None or not (root / "exercises").is_dir():
        where = f"in {root}" if root else f"above {Path.cwd()}"
        raise TkError(
            "TK400", f"there is no folder exercises/ {where}: nothing to hand in",
            hint="go to the course's folder, or name it: tk.submit('path/to/course')",
        )  # fmt: skip
    cells, skipped = _work(root)
    journal = _journal(root)
    tried = {e.get("item") for e in map(json.loads, journal)}
    if not cells and not tried & set(_graded()):
        broken = f" ({'; '.join(skipped)})" if skipped else ""
        raise TkError(
            "TK400", f"nothing to hand in: each exercise is as it was handed out{broken}",
            hint="save the notebooks (Ctrl-S); then submit again",
        )  # fmt: skip
    me = _me(root)
    files = {f"cells/{n}.json": json.dumps(c, ensure_ascii=False) for n, c in cells.items()}
    for name, found in cells.items():
        answer = answer_in(ITEMS[name], from_cells([(c, t) for c, t in found["cells"]]))
        files[f"answers/{name}.py"] = answer.text() + "\n"
    files["attempts.jsonl"] = "\n".join(journal) + "\n"
    manifest = {
        "format": FORMAT, **me, "made": round(time.time(), 3), "versions": _versions(),
        "skipped": skipped, "sha256": {n: _sha(t.encode()) for n, t in files.items()},
    }  # fmt: skip
    manifest["hash"] = _sealed(manifest)
    name = "".join(c if c.isalnum() or c in "-_." else "-" for c in me["learner"]) or "course"
    path = Path(out) if out else root / f"submission-{name}.zip"
    _write(path, {"manifest.json": json.dumps(manifest, indent=1), **files})
    there = tuple(n for n in _graded() if n in cells or n in tried)
    return Submitted(path, there, tuple(n for n in _graded() if n not in there))


def _graded() -> list[str]:
    return [n for n, i in ITEMS.items() if i.points]


def _work(root: Path) -> tuple[dict[str, Any], list[str]]:
    """The code of each exercise that differs from what was handed out, and what cannot be read."""
    found: dict[str, Any] = {}
    skipped = []
    for name in _graded():
        path = root / "exercises" / ITEMS[name].file
        if not path.is_file():
            continue
        try:
            cells = code_cells(path)
        except Refused as e:
            skipped.append(str(e))
            continue
        text = release.original(path.name, root)
        if text is not None and [t for _, t in cells] == _code(json.loads(text)):
            continue
        found[name] = {"file": path.name, "cells": [list(c) for c in cells]}
    return found, skipped


def _code(book: dict[str, Any]) -> list[str]:
    return ["".join(c["source"]) for c in book["cells"] if c["cell_type"] == "code"]


def _journal(root: Path) -> list[str]:
    own = root / ".tklearn" / attempts.NAME
    path = own if own.is_file() and "TKLEARN_COURSE_DIR" not in os.environ else None
    return [json.dumps(e) for e in attempts.events(path)][-EVENTS:]


def _me(root: Path) -> dict[str, Any]:
    """Who hands in, by the bundle's learner.json."""
    for path in (root / ".tklearn" / "learner.json", attempts.folder() / "learner.json"):
        try:
            said = json.loads(path.read_text(encoding="utf-8"))
            return {"learner": str(said.get("learner", "")), "seed": int(said["seed"])}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
    return {"learner": "", "seed": 0}


def _versions() -> dict[str, str]:
    import numpy

    import tklearn

    return {
        "tklearn": tklearn.__version__,
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "system": platform.system(),
    }


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _sealed(manifest: dict[str, Any]) -> str:
    """The hash of a manifest, and so of all that it names. It shows damage; it is no signature."""
    rest = {n: v for n, v in manifest.items() if n != "hash"}
    return _sha(json.dumps(rest, sort_keys=True).encode())


def _write(path: Path, files: dict[str, str]) -> None:
    """The zip, whole or not at all."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as z:
        for name, text in files.items():
            z.writestr(name, text)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.write_bytes(data.getvalue())
    os.replace(part, path)


# --------------------------------------------------------------------------------------------- read
def opened(data: bytes, name: str) -> dict[str, Any]:
    """What a submission says, as plain data. Nothing of it is run. Errors: Unreadable.

    Returns: learner, seed, made: as claimed. notes: what is odd about it. exercises: id ->
    {"answer": Answer.json(), "cells": the code, where a constant is known only by running it};
    the first predictions are those of the journal.
    records: id -> attempts and hints.
    """
    if len(data) > LARGEST:
        raise Unreadable(f"larger than {LARGEST // 1_000_000} MB")
    out: dict[str, Any] = {"learner": "", "seed": 0, "made": 0.0, "notes": [], "records": {}}
    if data[:2] == b"PK":
        files, out["notes"] = _unzipped(data)
        zips = [n for n in files if n.endswith(".zip")]
        if len(zips) == len(files) == 1:  # zipped twice
            files, out["notes"] = _unzipped(files[zips[0]])
        elif zips and not any(n.endswith((".json", ".ipynb", ".py")) for n in files):
            raise Unreadable("only other zips are in it: an export of a class must be unpacked")
        books, journal = _of_zip(files, out)
    elif name.endswith((".ipynb", ".py")):
        books, journal = _bare(name, data), b""
    else:
        raise Unreadable("neither a zip nor a notebook")
    records = _records(journal)
    out["exercises"] = {}
    for item, cells in books.items():
        answer = answer_in(ITEMS[item], from_cells(cells))
        if isinstance(ITEMS[item], Predict):  # typed; whether it was before the run, nobody knows
            answer = replace(answer, first={})
        need = [list(c) for c in cells] if answer.missing else []
        out["exercises"][item] = {"answer": answer.json(), "cells": need}
    for item, r in records.items():
        if isinstance(ITEMS[item], Predict) and r["first"]:
            kept = out["exercises"].setdefault(item, {"answer": {}, "cells": []})
            answer = answer_in(ITEMS[item], from_cells(books.get(item, [])))
            latest = {**answer.latest, **r["latest"]}
            kept["answer"] = replace(answer, first=r["first"], latest=latest).json()
    out["records"] = {n: {k: r[k] for k in ("attempts", "hints")} for n, r in records.items()}
    if not out["exercises"] and not records:
        raise Unreadable("no exercise of this course is in it")
    return out


def _unzipped(data: bytes) -> tuple[dict[str, bytes], list[str]]:
    """The files of a zip, in memory, and what was left out. Hidden files, which systems add, and a
    folder around everything do not count."""
    files: dict[str, bytes] = {}
    notes: list[str] = []
    total = 0
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as z:
            if len(z.infolist()) > ENTRIES:
                raise Unreadable(f"more than {ENTRIES} files in it: hand in what tk.submit() made")
            for entry in z.infolist():
                shown = ascii(entry.filename[:80])
                parts = entry.filename.replace("\\", "/").split("/")
                if entry.is_dir() or _by_the_system(parts):
                    continue
                if ".." in parts or parts[0] in ("", "~") or ":" in parts[0]:
                    notes.append(f"left out: {shown} lies outside the submission")
                    continue
                with z.open(entry) as file:
                    body = file.read(UNPACKED + 1)
                total += len(body)
                if len(body) > UNPACKED or total > ALL_UNPACKED:
                    raise Unreadable(f"{shown} unpacks to more than a submission holds")
                files["/".join(parts)] = body
    except Unreadable:
        raise
    except DAMAGE as e:
        raise Unreadable(f"the zip is damaged: {str(e)[:100] or type(e).__name__}") from None
    around = {n.partition("/")[0] for n in files}
    if len(around) == 1 and not around & {"cells", "exercises", *files}:
        files = {n.partition("/")[2]: body for n, body in files.items()}
    return files, notes


def _by_the_system(parts: list[str]) -> bool:
    """Whether no learner made this file of a zip: .ipynb_checkpoints, __MACOSX and such."""
    if parts[-2:] in ([".tklearn", attempts.NAME], [".tklearn", "learner.json"]):
        return False
    return "__MACOSX" in parts or any(p.startswith(".") and p != ".." for p in parts)


def _of_zip(
    files: dict[str, bytes], out: dict[str, Any]
) -> tuple[dict[str, list[tuple[str, str]]], bytes]:
    """The code by exercise, and the journal; fills in who and when."""
    if "manifest.json" not in files:  # notebooks that somebody zipped, or the whole course
        out["notes"].append("not made by tk.submit()")
        books = {}
        unread: list[str] = []
        for name, body in sorted(files.items()):
            try:
                books.update(_bare(name, body) if name.endswith((".ipynb", ".py")) else {})
            except Unreadable as e:  # it costs only itself
                unread.append(str(e))
        if unread and not books:
            raise Unreadable(unread[0])
        out["notes"] += unread[:20]
        with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
            me = json.loads(files[".tklearn/learner.json"])
            out["learner"], out["seed"] = str(me["learner"])[:100], int(me["seed"]) & (1 << 63) - 1
        return books, files.get(f".tklearn/{attempts.NAME}", b"")
    try:
        manifest = json.loads(files["manifest.json"])
        out["learner"] = str(manifest["learner"])[:100]
        out["seed"] = int(manifest["seed"]) & (1 << 63) - 1
        made = float(manifest["made"])
        out["made"] = made if math.isfinite(made) else 0.0
        sums = dict(manifest["sha256"])
        whole = manifest["hash"] == _sealed(manifest)
        whole = whole and {n: _sha(b) for n, b in files.items() if n != "manifest.json"} == sums
        out["notes"] += [str(s)[:200] for s in manifest.get("skipped", [])[:20]]
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
        raise Unreadable("its manifest.json is not what tk.submit() writes") from None
    if not whole:
        out["notes"].append("the file was changed after tk.submit() made it")
    books = {}
    for item in _graded():
        text = files.get(f"cells/{item}.json")
        if text is None:
            continue
        try:
            said = json.loads(text.decode())
            books[item] = [(str(c)[:100], str(t)) for c, t in said["cells"]]
        except (ValueError, KeyError, TypeError, RecursionError):
            out["notes"].append(f"cells/{item}.json cannot be read")
    return books, files.get("attempts.jsonl", b"")


def _bare(name: str, body: bytes) -> dict[str, list[tuple[str, str]]]:
    """A notebook by itself. Errors: Unreadable."""
    stem = name.replace("\\", "/").rpartition("/")[2].rpartition(".")[0]
    item = next((i for i in ITEMS.values() if i.points and _names(i, stem)), None)
    if item is None:
        return {}
    try:
        if name.endswith(".py"):
            return {item.id: [(stem[:60], body.decode())]}
        cells = json.loads(body)["cells"]
        code = [c["source"] for c in cells if c["cell_type"] == "code"]
        texts = [c if type(c) is str else "".join(c) for c in code]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Unreadable(f"{stem[:60]!a} is not a notebook that can be read") from None
    return {item.id: [(f"cell {i + 1} of {stem[:60]}", t) for i, t in enumerate(texts)]}


def _names(item: Item, stem: str) -> bool:
    """Whether a file's name is that of an exercise: K1, K1_swizzle, K1_swizzle (2), ann_K1_..."""
    own = item.file.rpartition(".")[0]
    return stem == item.id or own in stem or stem.startswith(f"{item.id}_")


def _records(journal: bytes) -> dict[str, dict[str, Any]]:
    """Predictions, attempts and hints by exercise. What is no event is passed over."""
    out: dict[str, dict[str, Any]] = {}
    for line in journal.split(b"\n")[-EVENTS:]:
        try:
            event = json.loads(line)
            item, what = event["item"], event["what"]
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
        if type(item) is not str or item not in ITEMS:
            continue
        r = out.setdefault(item, {"first": {}, "latest": {}, "attempts": 0, "hints": 0})
        if what == "predict" and isinstance(event.get("said"), dict):
            said = {k: v for k, v in event["said"].items() if sane(v)}
            r["first"] = {**said, **r["first"]}
            r["latest"] = {**r["latest"], **said}
        elif what == "check":
            r["attempts"] += 1
        elif what == "hint" and type(event.get("n")) is int:
            r["hints"] = max(r["hints"], min(event["n"], 3))
    return out


def sane(value: Any) -> bool:
    """Whether this can be a prediction."""
    if type(value) is str:
        return len(value) <= 200
    return type(value) in (int, float) and abs(value) < 1e15
