"""How far is the time estimate from what an H200 measures, on kernels it was not calibrated with?

    python benchmarks/timing_error.py --out FOLDER [--seconds 95]     on a GPU: measure
    python benchmarks/timing_error.py --from FILE [--markdown FILE] [--publish]   anywhere: predict

Measuring writes FOLDER/timing_measured.json: seconds of each launch of probes/timed.py (median of
do_bench, the L2 cache emptied before each; and of launches one after the other), the SM clock just
after it, and the registers of the compiled kernel. Comparing prints the error of each launch, the
median, and the order of variants. Measuring needs a GPU, torch and Triton and exits with 2 without.
`--compile` compiles everything for sm_90a.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import multiprocessing
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "probes"), str(HERE.parent)]

from keep import watch  # noqa: E402
from timed import Shape, Timed, timed  # noqa: E402

from tklearn.lang.errors import TkError  # noqa: E402


def spec_of(t: Timed) -> Any:
    """The typed kernel of a launch, from arrays of one element."""
    import ml_dtypes

    kinds = {"bfloat16": ml_dtypes.bfloat16}
    small = [
        np.zeros((1,) * len(a.dims), kinds.get(a.dtype, a.dtype)) if isinstance(a, Shape) else a
        for a in t.args
    ]
    return t.fn.ir(*small, **t.consts)


def facts_of(i: int) -> dict[str, Any]:
    """What ptxas says of launch i, or what went wrong."""
    from tklearn.cuda.compile import compile_source
    from tklearn.cuda.emit import emit

    try:
        facts = compile_source(emit(spec_of(timed()[i])), 90).facts
    except Exception as e:  # noqa: BLE001  (one launch must not stop the others)
        return {"error": f"{type(e).__name__}: {e}"}
    return {"registers": facts.registers, "spills": facts.spill_stores, "notes": facts.notes}


def compile_all() -> list[dict[str, Any]]:
    context = multiprocessing.get_context("fork")
    with concurrent.futures.ProcessPoolExecutor(mp_context=context) as pool:
        return list(pool.map(facts_of, range(len(timed())), chunksize=2))


# ------------------------------------------------------------------------------------ measure
def measure(t: Timed, torch: Any, clock: Any, kept: dict[Any, Any]) -> dict[str, Any]:
    from triton.testing import do_bench

    args = []
    for i, a in enumerate(t.args):
        if isinstance(a, Shape):
            if (i, a) not in kept:
                if sum(x.nbytes for x in kept.values()) > 40 << 30:
                    kept.clear()
                kept[i, a] = torch.randn(a.dims, device="cuda").to(getattr(torch, a.dtype))
            args.append(kept[i, a])
        else:
            args.append(a)
    launch = t.fn[t.grid]
    report = launch(*args, **t.consts)
    torch.cuda.synchronize()
    warm = report.seconds
    cold = do_bench(lambda: launch(*args, **t.consts), warmup=3, rep=25, return_mode="median")
    return {"name": t.name, "family": t.family, "variant": t.variant, "cold": cold / 1e3,
            "warm": warm, "ghz": clock.ghz()}  # fmt: skip


def measure_all(out: Path, seconds: float) -> int:
    start = time.time()
    facts = compile_all()
    print(f"compiled {len(facts)}: {time.time() - start:.1f} s", flush=True)
    from clock import Clock
    from side_by_side import require_gpu, write

    from tklearn.cuda import profile

    torch = require_gpu()
    torch.manual_seed(0)
    profile.BUDGET = 0.02
    rows: list[dict[str, Any]] = []
    kept: dict[Any, Any] = {}
    file = out / "timing_measured.json"
    timer = watch(seconds + 10 - (time.time() - start), lambda: write(file, torch, rows))
    clock = Clock()
    for t, f in zip(timed(), facts, strict=True):
        row: dict[str, Any] = {"name": t.name, **f}
        if "error" not in f and time.time() - start < seconds:
            try:
                row |= measure(t, torch, clock, kept)
            except (TkError, RuntimeError) as e:
                row["error"] = f"{type(e).__name__}: {e}"
                if "context is lost" in str(e):
                    rows.append(row)
                    break
        rows.append(row)
        took = f"{row['cold'] * 1e6:10.2f} us" if "cold" in row else row.get("error", "no time")
        print(f"{row['name']:60} {took}", flush=True)
    timer.cancel()
    write(file, torch, rows)
    print(f"{time.time() - start:.1f} s")
    return 0


# ------------------------------------------------------------------------------------ compare
def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--seconds", type=float, default=95.0)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--from", type=Path, dest="source")
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--publish", action="store_true", help="the median into the model's table")
    options = parser.parse_args()
    if options.compile:
        for t, f in zip(timed(), compile_all(), strict=True):
            print(f"{t.name:60} {f}")
        return 0
    if options.source is None:
        return measure_all(options.out, options.seconds)
    from timing_table import compare, markdown, summary

    data = json.loads(options.source.read_text())
    rows = compare(data["rows"], timed(), spec_of)
    where = f"{data['device']}, driver {data['driver']}, {data['date'][:10]}"
    text = markdown(rows, where)
    print(text)
    if options.markdown:
        options.markdown.write_text(text)
    if options.publish:
        publish(summary(rows))
    return 0


def publish(found: dict[str, Any]) -> None:
    """The median error becomes the band that reports show."""
    from tklearn.sim.timing.rates import FILE

    table = json.loads(FILE.read_text())
    table["error"] = float(f"{found['median']:.3g}")
    FILE.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
