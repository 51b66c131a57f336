"""Records the exercises' kernels on this machine's GPU: each solution and its likeliest variants.

The kernels are compiled on all cores first; then it is `tklearn record benchmarks/exercises.ipynb`,
with the hardware's counters where Nsight Compute is on PATH. About a minute. `--compile` stops
before the GPU is needed, `--list` only says what would be measured; other arguments go to
`tklearn record`.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tklearn.course import measured  # noqa: E402
from tklearn.course.items import ITEMS  # noqa: E402
from tklearn.cuda.compile import compile_source  # noqa: E402
from tklearn.cuda.emit import emit  # noqa: E402


def work() -> Iterator[tuple]:
    return measured.recorded(ROOT)


def main(argv: list[str]) -> int:
    if "--list" in argv:
        print("\n".join(f"{item} {file}: {', '.join(a.kernels)}" for item, file, a in work()))
        return 0
    start = time.monotonic()
    specs = [(emit(measured.specialised(ITEMS[i], a)), c) for i, _, a in work() for c in (0, 1)]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        jobs = [pool.submit(compile_source, s, 90, counting=bool(c)) for s, c in specs]
        for job in jobs:
            job.result()
    print(f"compiled {len(jobs)} kernels in {time.monotonic() - start:.0f} s", flush=True)
    if "--compile" in argv:
        return 0
    from tklearn import record

    os.chdir(ROOT)
    return record.main(["benchmarks/exercises.ipynb", *argv])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
