"""What a check of each exercise takes: the first in a fresh page, and the next ones.

    python benchmarks/check_times.py [--only K1 ...] [--out FILE]

Each exercise gets a Python of its own, which does what a page does: it imports tklearn, runs the
cell of a stored answer (tests/course/answers) and calls tk.check: a right one twice, then each
other one. Processor seconds are those of the page and of the process that checks, together;
seconds pass on the wall, and say something on a quiet machine only. The goal is two seconds.
Answers that never end are listed apart: their budget stops them.
"""

from __future__ import annotations

import argparse
import datetime
import json
import linecache
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
ANSWERS = ROOT / "tests" / "course" / "answers"
GOAL = 2.0
ENDLESS = "wrong_endless"


def page(item: str) -> None:
    """One exercise, in this process; a line of JSON for each check."""
    import psutil

    import tklearn as tk

    here = psutil.Process()

    def spent() -> float:
        every = [here, *here.children(recursive=True)]
        return sum(t.user + t.system for t in (p.cpu_times() for p in every))

    files = sorted((ANSWERS / item).glob("*.py"))
    first = next(p for p in files if p.stem.startswith("right"))
    files = [first, first, *(p for p in files if p != first)]
    for n, path in enumerate(files):
        text = path.read_text(encoding="utf-8")
        name = f"<ipython-input-{n}>"
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        if "get_ipython" in text:
            continue
        space: dict[str, Any] = {"__name__": "__main__"}
        try:
            exec(compile(text, name, "exec"), space)
        except tk.TkError:  # no possible prediction, or no kernel: told in the cell, never checked
            continue
        start, cpu = time.perf_counter(), spent()
        verdict = eval(f"tk.check({item!r})", {**space, "tk": tk})
        verdict._repr_html_()
        took = {"seconds": time.perf_counter() - start, "cpu": spent() - cpu}
        took = {k: round(v, 3) for k, v in took.items()}
        print(json.dumps({"answer": path.stem, "passed": verdict.passed, **took}), flush=True)


def measured(item: str) -> list[dict[str, Any]]:
    """The checks of one exercise, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "TKLEARN_COURSE_DIR": folder, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, __file__, "--page", item], env=env, cwd=folder, check=True,
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines()]


def summary(checks: list[dict[str, Any]]) -> dict[str, Any]:
    """The first check, the second, the slowest of the others, and the endless one."""
    first, second, *rest = checks
    ends = [c for c in rest if not c["answer"].startswith(ENDLESS)]
    slowest = max(ends, key=lambda c: c["cpu"], default=second)
    endless = [c for c in rest if c not in ends]
    over = [c["answer"] for c in (first, second, *ends) if c["cpu"] > GOAL]
    return {"first": first, "second": second, "slowest": slowest, "over": over, "endless": endless}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=sorted(p.name for p in ANSWERS.iterdir()))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--page", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.page:
        return page(args.page)
    rows = {}
    print("processor seconds (and on the wall)")
    print(f"{'exercise':12} {'first':>14} {'second':>14} {'slowest other':>14}  {'endless':>14}")
    for item in args.only:
        rows[item] = got = summary(measured(item))
        cells = [got["first"], got["second"], got["slowest"], *got["endless"][:1]]
        text = "  ".join(f"{c['cpu']:5.2f} ({c['seconds']:5.2f})" for c in cells)
        print(f"{item:12}  {text}  {' '.join(got['over'])}", flush=True)
    if args.out:
        told = {
            "date": datetime.date.today().isoformat(),
            "command": "python benchmarks/check_times.py",
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python "
            f"{platform.python_version()}",
            "load": [round(x, 1) for x in os.getloadavg()],  # above 1: seconds on the wall are long
            "goal": GOAL,
            "exercises": rows,
        }
        args.out.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
