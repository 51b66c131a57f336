"""Planted faults on a GPU under NVIDIA's compute-sanitizer: what does it see of what we report?

    python -m tests.bugzoo.on_gpu NAME            launch one faulty kernel (--good: its twin)
    python -m tests.bugzoo.on_gpu --all DIR       each under the tools that could see it; DIR gets
                                                  sanitizer_h200.json (--twins: the twins, too)
    python -m tests.bugzoo.on_gpu --list

Each run is a process of its own, ended after `--limit` seconds: a kernel that waits for ever hangs
the GPU's time slices of its process and of no other. No run starts after `--seconds`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

import tklearn as tk

from . import KERNELS
from .zoo import ZOO, Fault

assert KERNELS
ROOT = Path(__file__).parents[2]
RACES, BARRIERS, MEMORY = "racecheck", "synccheck", "memcheck"
TOOLS = {
    **dict.fromkeys((1, 2, 3, 7), (RACES,)),
    **dict.fromkeys((4, 8), (BARRIERS,)),
    **dict.fromkeys((5, 6), (BARRIERS, RACES)),
    **dict.fromkeys((9, 10, 11, 12, 13, 14, 15, 16, 17), (BARRIERS, RACES)),
    **dict.fromkeys((18, 19, 20, 21, 22, 23, 24, 25, 26), (RACES,)),
    **dict.fromkeys((27, 35), (MEMORY,)),
    **dict.fromkeys((28, 29, 30, 31, 32), (RACES,)),
    **dict.fromkeys((33, 34), (RACES, MEMORY)),
    36: (RACES, MEMORY),
}


def launchable(f: Fault) -> bool:
    """Whether it gets as far as a GPU: neither the language nor the launch refuses it."""
    return all(c.startswith("TK5") and c != "TK527" for c in f.codes)


def hangs(f: Fault) -> bool:
    """Whether it may wait for ever."""
    return "TK507" in f.codes or f.kind in (4, 5, 8, 12, 14, 15, 16)


def _to_gpu(x: Any) -> Any:
    """The same array on the GPU: CuPy, or torch for the types that CuPy lacks."""
    if not isinstance(x, np.ndarray):
        return x
    base = x if x.base is None else x.base
    offset = (x.ctypes.data - base.ctypes.data) // x.itemsize
    if x.dtype.name == "bfloat16":
        import torch

        bits = np.ascontiguousarray(base).view(np.int16).reshape(-1)
        flat = torch.from_numpy(bits.copy()).cuda().view(torch.bfloat16)
        return torch.as_strided(flat, x.shape, [s // x.itemsize for s in x.strides], offset)
    import cupy

    flat = cupy.asarray(base).reshape(-1)[offset:]
    return cupy.lib.stride_tricks.as_strided(flat, x.shape, x.strides)


def launch(f: Fault, good: bool) -> str:
    """Run it: "right" or "wrong" values, "-" where it computes none, or the error."""
    import cupy

    host = (f.twin_args if good else f.args)()
    device = [_to_gpu(x) for x in host]
    try:
        f.make(good).gpu[f.grid](*device)
        cupy.cuda.runtime.deviceSynchronize()
    except (tk.TkError, cupy.cuda.runtime.CUDARuntimeError, RuntimeError) as e:
        return f"error {str(e).splitlines()[0]}"
    if f.want is None or (not good and f.twin_args is not f.args):
        return "-"
    back = [x if not hasattr(x, "shape") else _from_gpu(x) for x in device]
    want = np.asarray(f.want(*[np.asarray(x) for x in back])).astype(np.float32)
    return "right" if (np.asarray(back[-1]) == want).all() else "wrong"


def _from_gpu(x: Any) -> np.ndarray:
    return x.get() if hasattr(x, "get") else x.float().cpu().numpy()


# ------------------------------------------------------------------------------------ all of them
def sanitizer() -> str:
    found = shutil.which("compute-sanitizer") or next(
        (str(p) for p in Path("/usr/local").glob("cuda*/bin/compute-sanitizer")), ""
    )
    if not found:
        raise SystemExit("compute-sanitizer is not installed here")
    return found


def run(command: list[str], limit: float) -> tuple[str, str]:
    """("" or "hang", what it wrote)."""
    p = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        return "", p.communicate(timeout=limit)[0]
    except subprocess.TimeoutExpired:
        os.killpg(p.pid, signal.SIGKILL)
        return "hang", p.communicate()[0]


def judge(tool: str, text: str, hung: str) -> dict[str, str]:
    """What a run's text says: a verdict, the first finding, and the values."""
    said = re.findall(r"^=+ (.*\S)", text, re.M)
    findings = [
        x
        for x in said
        if re.match(r"(Error|Warning|Potential|Race|Barrier|Invalid|Missing|Divergent)", x)
        or "hazard" in x
    ]
    count = re.search(r"(?:ERROR SUMMARY|RACECHECK SUMMARY): (\d+)", text)
    values = re.search(r"^VALUES (.*)$", text, re.M)
    if count is not None and int(count[1]):
        verdict = "reported"
    elif hung:
        verdict = "reported, then hung" if findings else "hang"
    elif count is None:
        verdict = "failed"
    else:
        verdict = "silent"
    shown = findings[0] if findings else (text[-400:] if verdict == "failed" else "")
    return {"verdict": verdict, "says": shown, "values": values[1] if values else ""}


def every(folder: Path, limit: float, seconds: float, workers: int, twins: bool) -> None:
    """Run all, those that may hang last, and write what was found."""
    tool_path, start = sanitizer(), time.monotonic()
    faults = sorted((f for f in ZOO.values() if launchable(f)), key=hangs)
    jobs = [(f, tool, good) for f in faults for good in (False, True)[: 1 + twins]
            for tool in TOOLS[f.kind]]  # fmt: skip
    jobs.sort(key=lambda j: (hangs(j[0]) and not j[2], j[2]))

    def one(job: tuple[Fault, str, bool]) -> dict[str, str]:
        f, tool, good = job
        if time.monotonic() - start > seconds:
            return {"verdict": "not run", "says": "", "values": ""}
        program = [sys.executable, "-m", "tests.bugzoo.on_gpu", f.name, *["--good"] * good]
        hung, text = run([tool_path, "--tool", tool, *program], limit)
        return judge(tool, text, hung)

    with ThreadPoolExecutor(workers) as pool:
        found = list(pool.map(one, jobs))
    results: dict[str, Any] = {}
    for (f, tool, good), said in zip(jobs, found):
        row = results.setdefault(f.name, {"kind": f.kind, "fault": {}, "twin": {}})
        row["twin" if good else "fault"][tool] = said
    import cupy

    version = run([tool_path, "--version"], 20)[1].strip().splitlines()[-1]
    text = json.dumps(
        {
            "gpu": cupy.cuda.runtime.getDeviceProperties(0)["name"].decode(),
            "driver": cupy.cuda.runtime.driverGetVersion(),
            "sanitizer": version,
            "date": datetime.now(UTC).strftime("%Y-%m-%d"),
            "command": "python -m tests.bugzoo.on_gpu --all DIR" + " --twins" * twins,
            "seconds": round(time.monotonic() - start),
            "results": results,
        },
        indent=1,
    )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sanitizer_h200.json").write_text(text + "\n", encoding="utf-8")
    print(table(results))


def table(results: dict[str, Any]) -> str:
    """One line a fault: ours, and what each tool said."""
    lines = []
    for name, row in sorted(results.items(), key=lambda x: (x[1]["kind"], x[0])):
        ours = " ".join(ZOO[name].codes) if name in ZOO else "?"
        theirs = "; ".join(f"{t} {v['verdict']}" for t, v in row["fault"].items())
        lines.append(f"{row['kind']:2} {name:45} {ours:18} {theirs}")
    seen = sum(
        any(v["verdict"].startswith("reported") for v in row["fault"].values())
        for row in results.values()
    )
    lines.append(f"{seen} of {len(results)} reported by compute-sanitizer")
    return "\n".join(lines)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("name", nargs="?", choices=[*ZOO])
    p.add_argument("--good", action="store_true", help="the twin")
    p.add_argument("--all", type=Path, metavar="DIR")
    p.add_argument("--list", action="store_true")
    p.add_argument("--twins", action="store_true")
    p.add_argument("--limit", type=float, default=20)
    p.add_argument("--seconds", type=float, default=140)
    p.add_argument("--workers", type=int, default=12)
    a = p.parse_args()
    if a.list:
        for f in ZOO.values():
            print(f"{f.kind:2} {f.name:45} {' '.join(TOOLS[f.kind]) if launchable(f) else '-'}")
    elif a.all is not None:
        every(a.all, a.limit, a.seconds, a.workers, a.twins)
    elif a.name is not None:
        print("VALUES", launch(ZOO[a.name], a.good))
    else:
        p.print_usage()


if __name__ == "__main__":
    main()
