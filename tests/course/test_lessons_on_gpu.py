"""On a machine with a GPU the lessons measure: every table, on it, on a T4 and on the newest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from course_kit import ROOT

LESSONS = sorted((ROOT / "notebooks").glob("0[0-7]_*.ipynb"))
CLOSE = 0.05  # of outputs in f16 and f32 of the size of 1 to 10: largest |GPU - simulator|


@pytest.mark.gpu(limit=200)
@pytest.mark.parametrize("machine", ["", "as-t4"])
@pytest.mark.parametrize("lesson", LESSONS, ids=lambda p: p.stem[:2])
def test_lesson(lesson: Path, machine: str, tmp_path: Path) -> None:
    """No cell fails, and each comparison is measured now, with the simulator's values."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("lesson_on_gpu.py")), lesson, machine],
        cwd=lesson.parent,
        env={**os.environ, "TKLEARN_COURSE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=190,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["tables"], "a lesson without a measurement"
    name = "Tesla T4" if machine else "NVIDIA"
    for table in seen["tables"]:
        assert table["source"].startswith(f"measured now on {name}"), table
        assert table["values"] == "same bits" or float(table["values"]) < CLOSE, table
