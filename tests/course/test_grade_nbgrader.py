"""nbgrader's own release and autograde with the course's notebooks."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from course_kit import ROOT, code

from tklearn.course.items import ITEMS

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("nbgrader") is None, reason="nbgrader is not installed"
)
ITEM = ITEMS["M1"]
P3 = ITEMS["P3"]


def nbgrader(folder: Path, *words: str) -> None:
    env = {**os.environ, "TKLEARN_COURSE_DIR": str(folder / "attempts"), "HOME": str(folder)}
    env["PATH"] = str(Path(sys.executable).parent) + os.pathsep + env.get("PATH", "")
    for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "JUPYTER_DATA_DIR"):
        env[name] = str(folder / name.lower())
    done = subprocess.run(
        [sys.executable, "-m", "nbgrader", *words, "--course-dir", str(folder)],
        cwd=folder, env=env, capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def test_generate_assignment_and_autograde(tmp_path: Path) -> None:
    source = tmp_path / "source" / "nb1"
    source.mkdir(parents=True)
    for item in (ITEM, P3):
        shutil.copy(ROOT / "solutions" / item.file, source)
    nbgrader(tmp_path, "generate_assignment", "nb1")
    released = tmp_path / "release" / "nb1" / ITEM.file
    text = "\n".join(code(released))
    assert "BEGIN SOLUTION" not in text
    assert "HIDDEN TESTS" not in text
    assert f'tk.check("{ITEM.id}")' in text

    solved = json.loads((ROOT / "solutions" / ITEM.file).read_text(encoding="utf-8"))
    answers = {
        c["metadata"]["nbgrader"]["grade_id"]: c["source"]
        for c in solved["cells"]
        if c["metadata"].get("nbgrader", {}).get("solution")
    }
    for learner in ("ann", "bob", "eve"):
        book = json.loads(released.read_text(encoding="utf-8"))
        for c in book["cells"]:
            mark = c["metadata"].get("nbgrader", {})
            if learner == "ann" and mark.get("solution"):
                c["source"] = answers[mark["grade_id"]]
            if learner == "eve" and mark.get("grade"):
                c["source"] = "99"  # a check cell that was edited
        place = tmp_path / "submitted" / learner / "nb1" / ITEM.file
        place.parent.mkdir(parents=True)
        place.write_text(json.dumps(book), encoding="utf-8")
        predicted = tmp_path / "submitted" / learner / "nb1" / P3.file
        solution = (ROOT / "solutions" / P3.file).read_text(encoding="utf-8")
        wrong = solution.replace("f = 1, 4,", "f = 7, 4,") if learner == "ann" else solution
        assert (wrong != solution) == (learner == "ann")
        predicted.write_text(wrong, encoding="utf-8")
    nbgrader(tmp_path, "autograde", "nb1")
    with sqlite3.connect(tmp_path / "gradebook.db") as db:
        rows = db.execute(
            "select sa.student_id, n.name, g.auto_score from grade g "
            "join submitted_notebook sn on g.notebook_id = sn.id "
            "join submitted_assignment sa on sn.assignment_id = sa.id "
            "join notebook n on sn.notebook_id = n.id"
        ).fetchall()
    scores = {(who, book.partition("_")[0]): score for who, book, score in rows}
    full = float(ITEM.points)
    assert [scores[w, "M1"] for w in ("ann", "bob", "eve")] == [full, 0.0, 0.0]
    ann, bob, eve = (scores[w, "P3"] for w in ("ann", "bob", "eve"))
    assert bob == eve == float(P3.points) > ann > 0, "nobody has the first answers of another"
