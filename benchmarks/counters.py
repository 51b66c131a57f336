"""Does the GPU count what the simulator counts? The launches of patterns*.py under Nsight Compute.

    python benchmarks/counters.py --out FOLDER [--seconds 110] [--only hopper]

In the folder: `counters.json`, `async.json` and `hopper.json` (the recordings: move them to
tests/data/, where a test compares each with the simulator), `tensor.json` (every tensor-pipe metric
of a few launches: which one is exact), `names.json` (the same for every metric of TMA, wgmma and
the shared-memory pipe), `lines.json` (counters by source line, from the profiler's SASS counters)
and `metrics.txt` (the names this profiler knows). hopper.json and names.json are of
patterns_async.py, for sm_90 only, and how far hopper.json is from the simulator is printed. All
launches of a step run in one profiled process; a step that runs out of time keeps what it has.
Exits with 2 without a GPU or ncu.

`--compile`: only compiles the counting builds into the disk cache, by several processes.
"""

import argparse
import csv
import datetime
import hashlib
import io
import json
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import patterns  # noqa: E402
import patterns_async  # noqa: E402

from tklearn import recordings  # noqa: E402
from tklearn.lang import ir  # noqa: E402
from tklearn.report import HOPPER, METRICS, TENSOR_MOVES  # noqa: E402

FLAGS = ("--clock-control", "none", "--profile-from-start", "off")
CSV = ("--csv", "--page", "raw", "--print-units", "base")
# Counters that report.METRICS has no name for: asked for where the profiler knows them.
MORE = {
    "shared_atom_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_atom.sum",
    "shared_atom_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_atom.sum",
    "shared_red_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_red.sum",
    "shared_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "cp_async_instructions": "smsp__inst_executed_op_ldgsts.sum",
    "tensor_moves": TENSOR_MOVES,
}
# The same for cp.async, from instrumented code: a process of its own, on launches that have some.
SASS = "smsp__sass_l1tex_{}_mem_global_op_ldgsts{}.sum"
ASYNC = {
    "cp_async_sectors": SASS.format("t_sectors_pipe_lsu", ""),
    "cp_async_sectors_bypass": SASS.format("t_sectors_pipe_lsu", "_cache_bypass"),
    "cp_async_sectors_access": SASS.format("t_sectors_pipe_lsu", "_cache_access"),
    "cp_async_read_bypass": SASS.format("m_xbar2l1tex_read_sectors", "_cache_bypass"),
    "cp_async_read_access": SASS.format("m_xbar2l1tex_read_sectors", "_cache_access"),
    "cp_async_shared_wavefronts": (
        "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ldgsts.sum"
    ),
    "cp_async_shared_conflicts": (
        "smsp__sass_l1tex_data_bank_conflicts_pipe_lsu_mem_shared_op_ldgsts.sum"
    ),
}
LINES = (
    "memory_l1_wavefronts_shared",
    "smsp__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "smsp__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_st.sum",
    "smsp__sass_l1tex_data_bank_conflicts_pipe_lsu_mem_shared_op_ldsm.sum",
)
# Of TMA and wgmma, where report.METRICS has no name or not for every dtype.
TMA = {
    "shared_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "tma_st_sectors": "l1tex__m_l1tex2xbar_write_sectors_mem_global_op_tma_st.sum",
    "tma_red_sectors": "l1tex__m_l1tex2xbar_write_sectors_mem_global_op_tma_red.sum",
    "wgmma_flops_f16": "sm__ops_path_tensor_op_hgmma_src_fp16.sum",
    "wgmma_flops_tf32": "sm__ops_path_tensor_op_hgmma_src_tf32_dst_fp32.sum",
    "wgmma_flops_fp8": "sm__ops_path_tensor_src_fp8.sum",
}
WHICH = {  # launches of a step, by name
    "all": "",
    "async": "async|gemm",
    "tensor": "saxpy 5003|softmax short f32 64|transpose naive 97|gemm small f16|gemm big|product ",
    "lines": "transpose (naive|padded) 97|saxpy 5003|gemm small f16|softmax short bf16 37",
    "hopper": "",
    "names": r"64x64/32 of 70x41|vectors bf16 256|planes|n256|registers|f16->f16|f32->f32|e4m3->",
}
STEPS = ("counters", "async", "tensor", "lines", "hopper", "names")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("counters"))
    parser.add_argument("--seconds", type=float, default=110.0, help="for all steps together")
    parser.add_argument("--only", nargs="+", choices=STEPS, default=list(STEPS))
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--run", help=argparse.SUPPRESS)  # inside the profiler: which launches
    parser.add_argument("--until", type=float, default=0.0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.run:
        return run(args.run, args.until)
    if args.compile:
        compile_all()
        return 0
    from tklearn.comparison import gpu_here

    if not gpu_here() or not shutil.which("ncu"):
        print("counters.py needs a GPU, CuPy and ncu")
        return 2
    args.out.mkdir(parents=True, exist_ok=True)
    end = time.time() + args.seconds
    step("compile", lambda: compile_all(args.only), end)
    known = step("names of metrics", lambda: query(args.out), end) or set()
    work: dict[str, Any] = {
        "hopper": lambda: hopper(args.out, known, end - 25),
        "names": lambda: names(args.out, known, end - 5),
        "counters": lambda: measure(args.out, known, end - 45),
        "async": lambda: asynchronous(args.out, known, end - 32),
        "tensor": lambda: tensor(args.out, known, end - 18),
        "lines": lambda: by_line(args.out, end - 5),
    }
    for name in work:
        if name in args.only:
            step(name, work[name], end)
    return 0


def step(name: str, work: Any, end: float) -> Any:
    """Runs one step if there is time, and says how long it took."""
    start = time.time()
    if start > end - 5:
        print(f"{name}: no time left", flush=True)
        return None
    try:
        return work()
    finally:
        print(f"{name}: {time.time() - start:.1f} s", flush=True)


# ----------------------------------------------------------------------- in the profiled process
def cases(which: str) -> list[patterns.Case]:
    """The launches among which a step chooses."""
    if which in ("hopper", "names"):
        return list(patterns_async.all_cases())
    return patterns.all_cases()


def chosen(which: str) -> list[patterns.Case]:
    """The launches of a step, in order."""
    return [c for c in cases(which) if re.search(WHICH[which], c.name)]


def run(which: str, until: float) -> int:
    """Launches each case once between profilerStart and profilerStop, until the time is over."""
    import cupy
    from cupy.cuda import runtime

    from tklearn.cuda.launch import launcher, number

    for case in chosen(which):
        if until and time.time() > until:
            print("out of time before", case.name, file=sys.stderr)
            break
        args = case.args()
        spec = case.spec(args)
        one = launcher(spec, 0, counting=True)
        values: list[Any] = []
        keep = []
        for i, (p, a) in enumerate(zip(spec.params, args, strict=True)):
            if not isinstance(a, np.ndarray):
                values.append(number(p.type, a))
                continue
            root = a
            while isinstance(root.base, np.ndarray):
                root = root.base
            flat = cupy.asarray(np.frombuffer(root.tobytes(), np.uint8))
            keep.append(flat)
            at = flat.data.ptr + a.ctypes.data - root.ctypes.data
            values += one.array_fields(i, at, a.shape, tuple(s // a.itemsize for s in a.strides))
        runtime.profilerStart()
        one.enqueue(case.grid, values, 0)
        runtime.deviceSynchronize()
        runtime.profilerStop()
    return 0


# ------------------------------------------------------------------------------------- compiling
def compile_one(what: tuple[str, int]) -> None:
    """The counting build of launch i of a step's, for sm_90a, into the disk cache."""
    from tklearn.cuda.compile import compile_source
    from tklearn.cuda.emit import emit

    case = cases(what[0])[what[1]]
    compile_source(emit(case.spec(case.args())), 90, counting=True)


def compile_all(steps: Sequence[str] = STEPS) -> None:
    """The kernels of these steps, by several processes."""
    sets = dict.fromkeys("hopper" if s in ("hopper", "names") else "all" for s in steps)
    work = [(which, i) for which in sets for i in range(len(cases(which)))]
    jobs = min(16, os.cpu_count() or 1)
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        pool.map(compile_one, work, chunksize=max(1, len(work) // (4 * jobs)))


# --------------------------------------------------------------------------------- the profiler
def query(out: Path) -> set[str]:
    """The names of the metrics that this profiler knows for this GPU, kept in metrics.txt."""
    done = subprocess.run(
        ["ncu", "--query-metrics", "--chips", "gh100"], capture_output=True, text=True, check=False
    )
    names = {line.split()[0] for line in done.stdout.splitlines() if re.match(r"[a-z]\w+__", line)}
    pattern = "l1tex|ldgsts|tensor|hmma|gmma|tma|shared|sass"
    keep = sorted(n for n in names if re.search(pattern, n))
    (out / "metrics.txt").write_text("\n".join([version(), *keep]) + "\n")
    return names


def profile(
    which: str, metrics: list[str], until: float, extra: tuple[str, ...] = CSV
) -> list[dict[str, str]]:
    """One row of the CSV for each launch, in order."""
    command = ["ncu", *FLAGS, *extra, "--metrics", ",".join(metrics)]
    command += [sys.executable, __file__, "--run", which, "--until", str(until)]
    limit = max(30.0, until + 30 - time.time())  # a kernel that hangs would take the session
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit)
    except subprocess.TimeoutExpired:
        print(f"{which}: no answer in {limit:.0f} s")
        return []
    lines = [line for line in done.stdout.splitlines() if line.startswith('"')]
    table = csv.DictReader(io.StringIO("\n".join(lines)))
    rows = [r for r in table if (r.get("ID") or "").isdigit()]
    if not rows:
        print("\n".join((done.stdout + done.stderr).splitlines()[-12:]))
    elif "out of time" in done.stderr:
        print(f"{which}: {len(rows)} launches, then no time")
    return rows


def of_those(wanted: dict[str, str], known: set[str]) -> dict[str, str]:
    """metric -> key, of the metrics that the profiler knows."""
    return {m: key for key, m in wanted.items() if m.rpartition(".")[0] in known}


def plain_metrics() -> dict[str, str]:
    """key -> metric, of those that do not need instrumented code."""
    return {k: m for k, (m, _) in METRICS.items() if m and "__sass_" not in m}


def hopper(out: Path, known: set[str], until: float) -> None:
    """TMA and wgmma: the recordings, and what differs from the simulator."""
    keys = of_those(plain_metrics() | TMA | {"tensor_moves": TENSOR_MOVES}, known)
    print("the profiler does not know:", sorted(set(TMA.values()) - set(keys)) or "nothing")
    rows = profile("hopper", list(keys), until)
    write(out / "hopper.json", "hopper", rows, keys)
    recorded = json.loads((out / "hopper.json").read_text())["recordings"]
    equal = 0
    for case, r in zip(chosen("hopper"), recorded, strict=False):
        total = case.kernel.sim[case.grid](*case.args(), **case.consts).total
        counts = dict(r["counters"])
        others = counts.pop("tensor_moves", 0) + counts["wgmma_instructions"]
        counts["tensor_instructions"] -= others
        gaps = {k: (total[k], n) for k, n in counts.items() if k in METRICS and total[k] != n}
        more = {k: n for k, n in counts.items() if k not in METRICS and n}
        equal += not gaps
        print(f"{case.name}: {'(simulated, measured) ' + str(gaps) if gaps else 'equal'}; {more}")
    print(f"{equal} of {len(recorded)} launches are equal in every counter that has a name")


def names(out: Path, known: set[str], until: float) -> None:
    """Every metric of TMA, wgmma and the shared-memory pipe, on a few launches."""
    pattern = r"tma|gmma|wavefronts_mem|l1tex__data|xbar2l1tex|l1tex2xbar|bank_reads|bank_writes"
    found = [n for n in sorted(known) if re.search(pattern, n) and "cycles" not in n]
    found = sorted(found, key=lambda n: (not re.search("tma|gmma", n), "__sass_" in n))
    found = [f"{n}.sum" for n in found if "__sass_" not in n][:120]
    rows = profile("names", found, until)
    write(out / "names.json", "names", rows, {m: m for m in found})


def measure(out: Path, known: set[str], until: float) -> None:
    """The recordings of all launches."""
    keys = {m: k for k, m in plain_metrics().items() if not k.startswith(HOPPER)}
    keys |= of_those(MORE, known)
    write(out / "counters.json", "all", profile("all", list(keys), until), keys)


def asynchronous(out: Path, known: set[str], until: float) -> None:
    """The counters of cp.async."""
    keys = of_those(ASYNC, known)
    if not keys:
        print("async: this profiler knows none of the metrics")
        return
    write(out / "async.json", "async", profile("async", list(keys), until), keys)


def tensor(out: Path, known: set[str], until: float) -> None:
    """All metrics of the tensor pipe, on launches with and without tensor instructions."""
    found = [f"{n}.sum" for n in sorted(known) if re.search("hmma|imma|pipe_tensor|path_tensor", n)]
    found = [m for m in found if not re.search("cycles|gmma|dmma|igmma", m)]
    found = sorted(found, key=lambda m: "inst_executed" not in m)[:40]
    rows = profile("tensor", found, until)
    write(out / "tensor.json", "tensor", rows, {m: m for m in found})


def write(path: Path, which: str, rows: list[dict[str, str]], keys: dict[str, str]) -> None:
    """Recordings: what ran, where, and what was counted. A row of another kernel ends it all."""
    from tklearn.cuda.compile import compiler_version
    from tklearn.cuda.launch import device_name, driver_version

    found = []
    for case, row in zip(chosen(which), rows, strict=False):
        args = case.args()
        spec = case.spec(args)
        if not row["Kernel Name"].split("(")[0].endswith(spec.name):
            raise SystemExit(f"{case.name}: the profiler saw {row['Kernel Name']}")
        counts = {}
        for metric, key in keys.items():
            text = (row.get(metric) or "").replace(",", "")
            if re.fullmatch(r"[0-9.e+]+", text):
                counts[key] = round(float(text))
        found.append(entry(case, spec, args) | {"counters": counts})
    head = {
        "device": device_name(), "driver": driver_version(), "compiler": compiler_version(),
        "profiler": version(), "date": datetime.date.today().isoformat(),
        "command": "python benchmarks/counters.py", "metrics": {k: m for m, k in keys.items()},
    }  # fmt: skip
    text = ",\n".join(json.dumps(r, separators=(",", ":")) for r in found)
    path.write_text(json.dumps(head, indent=1)[:-2] + ',\n "recordings": [\n' + text + "\n]}\n")
    print(f"{path.name}: {len(found)} launches, {len(keys)} counters")


def entry(case: patterns.Case, spec: ir.Kernel, args: list[Any]) -> dict[str, Any]:
    """What identifies a launch: name, digest of the IR, arguments, grid, digest of the bytes."""
    return {
        "name": case.name,
        "about": case.about,
        "kernel": spec.name,
        "digest": ir.digest(spec),
        "arguments": recordings.describe_arguments(args),
        "grid": list(case.grid),
        "data": data_digest(args),
    }


def data_digest(args: list[Any]) -> str:
    """A hash of the arguments' values, strides and places: the counters depend on them."""
    h = hashlib.sha256()
    for a in args:
        if isinstance(a, np.ndarray):
            root = a
            while isinstance(root.base, np.ndarray):
                root = root.base
            h.update(repr((a.shape, a.strides, a.ctypes.data - root.ctypes.data)).encode())
            h.update(a.tobytes())
        else:
            h.update(repr(a).encode())
    return h.hexdigest()[:16]


def version() -> str:
    text = subprocess.run(["ncu", "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"Version ([\d.]+)", text)
    return f"ncu {found[1] if found else '?'}"


def by_line(out: Path, until: float) -> None:
    """Counters by C++ line and by Python line, through the profiler's Python module."""
    report = out / "lines.ncu-rep"
    command = ["ncu", *FLAGS, "-f", "-o", str(report), "--import-source", "no"]
    command += ["--section", "SourceCounters", "--metrics", ",".join(LINES)]
    command += [sys.executable, __file__, "--run", "lines", "--until", str(until)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not report.exists():
        print("\n".join((done.stdout + done.stderr).splitlines()[-12:]))
        return
    try:
        found = read_lines(report)
    except (ImportError, AttributeError, RuntimeError, TypeError, ValueError, IndexError) as e:
        # The profiler's module differs between versions; the page below is kept in any case.
        print(f"lines: {type(e).__name__}: {e}")
        found = {}
    text = subprocess.run(
        ["ncu", "-i", str(report), "--page", "source", "--csv", "--print-source", "sass"],
        capture_output=True, text=True, check=False,
    ).stdout  # fmt: skip
    (out / "lines_sass.csv").write_text(text[: 4 << 20])
    (out / "lines.json").write_text(json.dumps(found, indent=1))
    report.unlink()
    print(f"lines.json: {len(found)} launches")


def read_lines(report: Path) -> dict[str, Any]:
    """launch -> metric -> [C++ line, Python line, count]."""
    ncu = Path(shutil.which("ncu") or "").resolve()
    folders = [f for p in list(ncu.parents)[:4] for f in p.glob("extras/python")]
    folders += [f for p in list(ncu.parents)[:4] for f in p.glob("*/extras/python")]
    folders += sorted(Path("/opt/nvidia").glob("nsight-compute/*/extras/python"))
    sys.path[:0] = [str(f) for f in folders]
    import ncu_report

    from tklearn.cuda.emit import emit

    context = ncu_report.load_report(str(report))
    spans = [context.range_by_idx(i) for i in range(context.num_ranges())]
    actions = [s.action_by_idx(i) for s in spans for i in range(s.num_actions())]
    out: dict[str, Any] = {}
    for action, case in zip(actions, chosen("lines"), strict=False):
        source = emit(case.spec(case.args()))
        rows = out[case.name] = {}
        for name in action.metric_names():
            metric = action.metric_by_name(name)
            if not metric.has_correlation_ids():
                continue
            ids = metric.correlation_ids()
            for k in range(metric.num_instances()):
                info = action.source_info(ids.as_uint64(k))
                count = metric.as_uint64(k) or 0
                if not count:
                    continue
                line = info.line() if info else 0
                file = info.file_name() if info else ""
                loc = source.loc_of(line) if file.endswith(f"{source.entry}.cu") else None
                at = f"{Path(file).name}:{line}" + (f" (Python {loc.line})" if loc else "")
                rows.setdefault(name, {}).setdefault(at, 0)
                rows[name][at] += count
    return out


if __name__ == "__main__":
    sys.exit(main())
