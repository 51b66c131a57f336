"""What the tests of grading share: submissions made of stored answers."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

from course_kit import ANSWERS

from tklearn.course import submit
from tklearn.course.extract import code_cells


def text(item: str, stem: str) -> str:
    """A stored answer."""
    return (ANSWERS / item / f"{stem}.py").read_text(encoding="utf-8")


def cells(**answers: str) -> dict[str, str]:
    """The files of a submission that hold these answers: M1="right_range", or the text itself."""
    out = {}
    for item, stem in answers.items():
        path = ANSWERS / item / f"{stem}.py"
        code = code_cells(path) if "\n" not in stem else [("cell 1", stem)]
        out[f"cells/{item}.json"] = json.dumps({"file": "", "cells": code})
    return out


def zipped(
    files: dict[str, str | bytes], learner: str = "", seed: int = 0, made: float = 1.0, **said: Any
) -> bytes:
    """A submission as tk.submit() writes it. said: what else its manifest says."""
    data = {n: f.encode() if isinstance(f, str) else f for n, f in files.items()}
    sums = {n: submit._sha(f) for n, f in data.items()}
    manifest = {"format": 1, "learner": learner, "seed": seed, "made": made, "sha256": sums, **said}
    manifest.setdefault("hash", submit._sealed(manifest))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("manifest.json", json.dumps(manifest))
        for name, body in data.items():
            z.writestr(name, body)
    return out.getvalue()


def journal(*events: dict[str, Any]) -> str:
    """attempts.jsonl."""
    lines = [json.dumps({"time": float(i), **e}) for i, e in enumerate(events)]
    return "\n".join(lines) + "\n"


def put(folder: Path, name: str, data: bytes) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


def computing(constant: str) -> str:
    """A right answer to M1 whose constant only Python tells; `constant` are the lines for it."""
    good = text("M1", "right_range").replace("PER_BLOCK = 4 * 256\n", "")
    head, _, rest = good.partition("\n\n\n")
    return f"{head}\n\nimport os\n{constant}\n\n\n{rest}"
