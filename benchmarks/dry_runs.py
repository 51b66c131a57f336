"""How the course went for who tried it: the logs of dry runs, gathered and summed up.

    python benchmarks/dry_runs.py                     the summary of results/dry_runs.json
    python benchmarks/dry_runs.py --gather FILE ...   make that file from the logs of runs

A log is one person's way through the course from its README alone: minutes, tries and hints of each
exercise, and what was not clear at first. Those kept so far are by language models that played the
person described; their tries and hints are lower bounds, their minutes estimates.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

FILE = Path(__file__).resolve().parent / "results" / "dry_runs.json"
MOST_HINTS = 2


def gather(paths: list[Path]) -> dict[str, Any]:
    """The runs of several logs in one form; what a log does not say is null."""
    runs = []
    for path in paths:
        log = json.loads(path.read_text(encoding="utf-8"))
        items = [
            {
                "id": i["id"],
                **{k: i.get(k) for k in ("minutes", "attempts", "hints", "passed")},
                "confusion": i.get("confusion") or "",
            }
            for i in log["items"]
            if i["id"][0].isupper()
        ]
        lessons = [
            {"name": x["name"][:2], **{k: x.get(k) for k in ("promised", "reading", "items")}}
            for x in log.get("lessons", ())
        ]
        seconds = {x["name"][:2]: x["seconds"] for x in log["notebooks"]}
        runs.append(
            {
                "person": log["persona"],
                "played_by": "a language model",
                "date": str(log.get("date"))[:10],
                "commit": log.get("commit"),
                "quiz": log["quiz"],
                "items": items,
                "lessons": lessons,
                "notebook_seconds": seconds,
            }
        )
    return {"command": "python benchmarks/dry_runs.py --gather", "runs": runs}


def share(runs: list[dict[str, Any]]) -> float:
    """Of all exercises tried, the share that was solved with at most MOST_HINTS hints."""
    of = [i for r in runs for i in r["items"]]
    return sum(bool(i["passed"]) and i["hints"] <= MOST_HINTS for i in of) / len(of)


def summary(runs: list[dict[str, Any]]) -> str:
    """A table of the exercises, and the share solved with few hints."""
    lines = ["exercise  minutes  tries  hints  (means)"]
    for name in dict.fromkeys(i["id"] for r in runs for i in r["items"]):
        of = [i for r in runs for i in r["items"] if i["id"] == name]
        minutes = statistics.mean(i["minutes"] for i in of if i["minutes"] is not None)
        tries, hints = (statistics.mean(i[k] for i in of) for k in ("attempts", "hints"))
        lines.append(f"{name:8} {minutes:8.1f} {tries:6.1f} {hints:6.1f}")
    lines.append(
        f"{len(runs)} runs: {100 * share(runs):.0f} % solved with at most {MOST_HINTS} hints"
    )
    for r in runs:
        if r["notebook_seconds"]:
            lines.append(
                f"{sum(r['notebook_seconds'].values()):6.0f} s for all notebooks: {r['person']}"
            )
    return "\n".join(lines)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--gather", nargs="+", type=Path, metavar="FILE")
    args = parser.parse_args(argv)
    if args.gather:
        FILE.write_text(
            json.dumps(gather(args.gather), indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )
    print(summary(json.loads(FILE.read_text(encoding="utf-8"))["runs"]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
