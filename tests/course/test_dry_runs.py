"""The kept dry runs of the course: whole ones, and what they must show."""

from __future__ import annotations

import json
import subprocess
import sys

from course_kit import ROOT

from tklearn.course.items import GRADED, ITEMS

RUNS = json.loads((ROOT / "benchmarks" / "results" / "dry_runs.json").read_text("utf-8"))["runs"]
CORE = {i for i in GRADED if not ITEMS[i].optional}


def test_six_whole_runs_and_most_exercises_solved_with_few_hints() -> None:
    whole = [r for r in RUNS if {i["id"] for i in r["items"]} >= CORE]
    assert len(whole) >= 6
    done = [i for r in whole for i in r["items"]]
    assert sum(i["passed"] and i["hints"] <= 2 for i in done) >= 0.85 * len(done)
    for r in whole:
        assert sum(r["notebook_seconds"].values()) < 300


def test_the_summary_prints() -> None:
    program = ROOT / "benchmarks" / "dry_runs.py"
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"{len(RUNS)} runs: " in done.stdout
