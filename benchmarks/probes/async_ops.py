"""All asynchronous cases on the GPU, where a hang or a lost context costs that case only.

tests/test_cuda_async.py is one process: a kernel that never ends, or an illegal access, ends it.
Here a worker process runs case after case; when it says nothing for a while or dies, the case it
was at is noted and another worker goes on behind it. Run on the GPU machine, in the repository's
root:

    python3 benchmarks/probes/async_ops.py [part of a name ...]

Kernels are compiled by all cores first (about 20 s). Every failure has a line; the last one counts.
"""

from __future__ import annotations

import argparse
import os
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
START, PATIENCE = 60, 15  # seconds without a word: until the first case, between two


def work(numbers: list[int]) -> None:
    """In a worker: run these cases, one line each."""
    import cupy
    import numpy as np
    import test_cuda_async as t

    print("ready", flush=True)
    for i in numbers:
        case = t.CASES[i]
        try:
            host = case.args(np.random.default_rng(2))
            device = [t.on_gpu(a) for a in host]
            for _ in range(2):
                report = case.kernel[case.grid](*(d for d, _ in device), **case.consts)
                if not case.name.startswith("copy"):
                    break
            cupy.cuda.runtime.deviceSynchronize()
            results = [
                t.memory(whole, h if h.base is None else h.base)
                for h, (_, whole) in zip(host, device, strict=True)
            ]
            text = t.differences(case, host, case.want(*host), results)
            text += " ".join(report.compiled.notes)
        except Exception as e:  # noqa: BLE001 (told to the parent, which goes on)
            text = f"{type(e).__name__}: {e}"
            if "TK424" in text or "illegal" in text or "unspecified" in text:
                print(f"{i} lost: {' '.join(text.split())[:300]}", flush=True)
                os._exit(1)
        print(f"{i} {' '.join(text.split())[:300] or 'ok'}", flush=True)


def _read(stream: IO[str], lines: queue.Queue[str]) -> None:
    for line in stream:
        lines.put(line)
    lines.put("")  # it ended


def supervise(numbers: list[int], names: list[str]) -> dict[int, str]:
    """What became of each case that is not all right."""
    failures: dict[int, str] = {}
    while numbers:
        command = [sys.executable, __file__, "--work", ",".join(map(str, numbers))]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, bufsize=1) as worker:
            assert worker.stdout is not None
            lines: queue.Queue[str] = queue.Queue()
            threading.Thread(target=_read, args=(worker.stdout, lines), daemon=True).start()
            patience = START
            while numbers:
                try:
                    line = lines.get(timeout=patience)
                except queue.Empty:
                    line = "hung"
                first, _, text = line.strip().partition(" ")
                if first == "ready":
                    patience = PATIENCE
                elif first.isdigit():
                    number = numbers.pop(numbers.index(int(first)))
                    if text != "ok":
                        failures[number] = text
                        print(f"{names[number]}: {text}", flush=True)
                else:  # it died, or hangs
                    number = numbers.pop(0)
                    failures[number] = "does not end" if line == "hung" else "the worker died"
                    print(f"{names[number]}: {failures[number]}", flush=True)
                    break
                if text.startswith("lost"):
                    break
            worker.kill()
    return failures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="parts of the names of the cases to run")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work([int(i) for i in options.work.split(",")])
        return
    import test_cuda_async as t

    start = time.perf_counter()
    parts = len(os.sched_getaffinity(0))
    code = "import sys; sys.path[:0] = {0!r}; import test_cuda_async as t; t.build({1}, {2}, 90)"
    builders = [
        subprocess.Popen([sys.executable, "-c", code.format(sys.path[:2], i, parts)])
        for i in range(parts)
    ]
    for b in builders:
        b.wait()
    print(f"compiled: {time.perf_counter() - start:.0f} s", flush=True)
    names = [c.name for c in t.CASES]
    chosen = [
        i for i, n in enumerate(names) if not options.names or any(p in n for p in options.names)
    ]
    failures = supervise(list(chosen), names)
    seconds = time.perf_counter() - start
    print(f"{len(chosen) - len(failures)} of {len(chosen)} cases are right; {seconds:.0f} s")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
