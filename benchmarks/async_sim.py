"""What the simulator's asynchrony costs, beside two other interpreters, and which faults they see.

    python benchmarks/async_sim.py [--peers PYTHON] [--out FILE] [--rounds 3] [--quick]

Overlapped FlashAttention forward (tklearn.kernels.attention_hopper: TMA, semaphores, wgmma, 16
warps a block) on the simulator, with checks "fast" and "full", beside NumPy; the same attention in
the Mosaic GPU interpreter of JAX and in Triton's interpreter; and ten planted asynchronous faults
in one pipeline, which of them Mosaic's interpreter reports. One thread for products; seconds of
process CPU time, the least and the median of all calls; ours take turns with the peers.

JAX and Triton are no part of this project: --peers names a Python that has jax, triton and torch
(default: this one). Where one is missing, the table says so. --quick leaves the peers' long rows
out. Exits with 1 where a limit of issue 4 is missed.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import datetime
import importlib.metadata
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from async_peers import error, steps

import tklearn as tk
from tklearn import arrive, block, init_semaphore, tma, wait, warp, warpgroup, warpid
from tklearn.kernels import attention_hopper

HERE = Path(__file__).resolve().parent
BF = ml_dtypes.bfloat16
BIG, HEAD = (2, 4, 1536, 64), (1, 1, 1024, 64)
LIMITS = {  # seconds, of issue 4
    "2x4x1536x64 fast": 0.25,
    "2x4x1536x64 full": 1.0,
    "1x1x1024x64 fast": 0.030,
    "2x4x1536x64 causal fast": 4 * 0.25,
    "2x4x1536x64 causal full": 4 * 1.0,
}
TIMEOUT = 600  # of one peer
HANGS = 90  # seconds after which a planted fault counts as a hang


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", default=sys.executable, help="a Python with jax, triton, torch")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()

    ours = simulated()
    seconds: dict[str, list[float]] = {name: [] for name in ours}
    for call in ours.values():
        call()  # compiled, and patterns counted
    peers: dict[str, dict[str, Any]] = {}
    measure(ours, seconds, args.rounds)
    for name, command in interpreters(args.quick).items():
        peers[name] = peer(args.peers, command, TIMEOUT)
        show_peer(name, peers[name])
        measure(ours, seconds, args.rounds)
    rows = {name: row(name, s) for name, s in seconds.items()}
    for name, r in rows.items():
        mark = "  MISSED" if r["limit"] and r["least"] > r["limit"] else ""
        limit = f"limit {r['limit']:g}" if r["limit"] else ""
        print(f"{name:34} {r['least']:8.4f} s  median {r['median']:8.4f} s  {limit}{mark}")
    seen = faults(args.peers)
    if args.out:
        args.out.write_text(json.dumps(record(rows, peers, seen), indent=1) + "\n")
        print(f"wrote {args.out}")
    return any(r["limit"] and r["least"] > r["limit"] for r in rows.values())


# --------------------------------------------------------------------------------- the simulator
def simulated() -> dict[str, Callable[[], Any]]:
    """The rows of ours, each checked against float64 once, and NumPy's."""
    out: dict[str, Callable[[], Any]] = {}
    rng = np.random.default_rng(0)
    for shape, causal in ((HEAD, False), (BIG, False), (BIG, True)):
        q, k, v = (rng.standard_normal(shape, dtype=np.float32).astype(BF) for _ in range(3))
        y = attention_hopper.run(q, k, v, causal=causal, stages=3, check="full")
        if not causal:
            assert error(q, k, v, y.astype(np.float64)) < 2e-2
        name = "x".join(map(str, shape)) + " causal" * causal
        for check in ("fast", "full"):
            out[f"{name} {check}"] = lambda a=(q, k, v), c=causal, check=check: (
                attention_hopper.run(*a, causal=c, stages=3, check=check)
            )
        if not causal:
            arrays = [x.astype(np.float32) for x in (q, k, v)]
            out[f"{name} NumPy"] = lambda a=arrays: plain(*a)
    return out


def plain(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    s = q @ k.swapaxes(-1, -2) * np.float32(q.shape[-1] ** -0.5)
    p = np.exp(s - s.max(axis=-1, keepdims=True))
    return p @ v / p.sum(axis=-1, keepdims=True)


def measure(rows: dict[str, Callable], seconds: dict[str, list[float]], rounds: int) -> None:
    """CPU seconds of each row, in turns."""
    for _ in range(rounds):
        for name, call in rows.items():
            start = time.process_time()
            call()
            seconds[name].append(time.process_time() - start)


def row(name: str, seconds: list[float]) -> dict[str, Any]:
    return {
        "least": min(seconds),
        "median": statistics.median(seconds),
        "calls": len(seconds),
        "limit": LIMITS.get(name),
    }


# ------------------------------------------------------------------------------------- the peers
def interpreters(quick: bool) -> dict[str, list[str]]:
    """Name -> arguments of async_peers.py: what, sizes, calls after the first, race detector."""
    head, big = ([str(n) for n in shape] for shape in (HEAD, BIG))
    out = {
        "Triton 1x1x1024x64": ["triton", *head, "3"],
        "Mosaic, queries in a loop, 1x1x1024x64": ["mosaic-loop", *head, "2"],
    }
    if not quick:
        out["Mosaic, the same with races, 1x1x1024x64"] = ["mosaic-loop", *head, "1", "1"]
        out["Mosaic, a grid point a tile, 1x1x1024x64"] = ["mosaic", *head, "0"]
        out["Triton 2x4x1536x64"] = ["triton", *big, "1"]
    return out


def peer(python: str, arguments: list[str], timeout: int) -> dict[str, Any]:
    """What async_peers.py says; {"missing": why} where it cannot."""
    command = [python, str(HERE / "async_peers.py"), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        return {"missing": f"it did not end in {timeout} s", "hangs": True}
    except OSError as e:
        return {"missing": f"{python} does not start: {e}"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        said = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[-1]
        return {"missing": f"it ended with {done.returncode}: {said[:200]}"}
    return json.loads(lines[-1])


def show_peer(name: str, told: dict[str, Any]) -> None:
    if "missing" in told:
        print(f"{name:34} not measured: {told['missing']}", flush=True)
        return
    least, median = min(told["cpu"]), statistics.median(told["cpu"])
    calls = f"{len(told['cpu'])} calls, first {told['first']:.2f} s, error {told['error']:.1g}"
    print(f"{name:34} {least:8.3f} s  median {median:8.3f} s  {calls}", flush=True)


# ---------------------------------------------------------------------------- the planted faults
FAULTS = (  # "one lap": each stage is used once, so that no semaphore is used again
    "no wait for the load, one lap, read by wgmma",
    "no wait for the load, one lap, read by plain loads",
    "no wait for the load, read by wgmma",
    "no wait for the load, read by plain loads",
    "refilled before it is empty, read by wgmma",
    "refilled before it is empty, read by plain loads",
    "TMA store without proxy fence",
    "stored tile reused before TMA has read it",
    "stage given back before wgmma has read it",
    "operand of wgmma stored without proxy fence",
)


def pipeline(fault: str) -> tk.Kernel:
    """The kernel of async_peers.pipeline: Y[j] = W X[j]; or Y = X with "plain loads"."""
    PLAIN = "plain loads" in fault
    NO_WAIT, NO_EMPTY = fault.startswith("no wait"), fault.startswith("refilled")
    NO_STORE_FENCE = fault == "TMA store without proxy fence"
    REUSED = fault == "stored tile reused before TMA has read it"
    EARLY = fault == "stage given back before wgmma has read it"
    NO_FENCE = fault == "operand of wgmma stored without proxy fence"

    @tk.kernel(warps=8)
    def tiles(X: tk.gl_bf, W: tk.gl_bf, Y: tk.gl_bf):
        x = tk.shared(tk.st_bf(64, 64), 2)
        p = tk.shared(tk.st_bf(64, 64))
        o = tk.shared(tk.st_bf(64, 64))
        full = tk.shared(tk.semaphore, 2)
        empty = tk.shared(tk.semaphore, 2)
        if warpid() == 0:
            for s in range(2):
                init_semaphore(full[s], 1)
                init_semaphore(empty[s], 4)
        block.sync()
        n = X.rows // 64
        if warpgroup.groupid() == 1:
            if warpgroup.warpid() == 0:
                for j in range(n):
                    if not NO_EMPTY:
                        wait(empty[j % 2], (j // 2 + 1) % 2)
                    tma.expect(full[j % 2], x[j % 2])
                    tma.load_async(x[j % 2], X, (j, 0), full[j % 2])
        else:
            w = tk.rt_bf(16, 64)
            y = tk.rt_bf(16, 64)
            acc = tk.rt_fl(16, 64)
            warpgroup.load(w, W, (0, 0))
            for j in range(n):
                s = j % 2
                if not NO_WAIT:
                    wait(full[s], j // 2 % 2)
                if PLAIN:
                    warpgroup.load(y, x[s])
                    arrive(empty[s])
                else:
                    warpgroup.store(p, w)
                    if not NO_FENCE:
                        tma.fence()
                    warpgroup.sync(1)
                    warpgroup.mm_AB(acc, p, x[s])
                    if EARLY:
                        arrive(empty[s])
                    warpgroup.mma_async_wait()
                    if not EARLY:
                        arrive(empty[s])
                    warp.copy(y, acc)
                if not REUSED and warpid() == 0:
                    tma.store_async_read_wait()
                warpgroup.sync(1)
                warpgroup.store(o, y)
                if not NO_STORE_FENCE:
                    tma.fence()
                warpgroup.sync(1)
                if warpid() == 0:
                    tma.store_async(Y, o, (j, 0))
            if warpid() == 0:
                tma.store_async_wait()

    return tiles


def verdict(fault: str) -> dict[str, Any]:
    """What our simulator says, under each schedule."""
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal((n, 64), np.float32).astype(BF) for n in (64 * steps(fault), 64))
    found = []
    for schedule in ("rotate", "reverse", "random"):
        y = np.zeros_like(x)
        try:
            pipeline(fault).sim[1](x, w, y, schedule=schedule, check="full")
            found.append("nothing")
        except tk.TkError as e:
            found.append(f"{e.code} line {e.loc.line if e.loc else '?'}: {e.message[:200]}")
    return {"verdicts": found, "seen": "nothing" not in found}


def faults(python: str) -> dict[str, Any]:
    """Each planted fault in both, and the correct form."""
    out = {}
    for name in ("", *FAULTS):
        mine, theirs = verdict(name), peer(python, ["fault", name], HANGS)
        if theirs.get("hangs"):
            theirs = {"verdict": f"hangs ({HANGS} s)", "seen": False}
        out[name or "the correct form"] = {"tklearn": mine, "mosaic": theirs}
        says = theirs.get("verdict") or f"not run: {theirs['missing']}"
        code = mine["verdicts"][0].split(":")[0]
        print(f"{name or 'the correct form':48} tklearn {code:16} Mosaic: {says}", flush=True)
    planted = [v for k, v in out.items() if k != "the correct form"]
    mine, theirs = (sum(v[k].get("seen", False) for v in planted) for k in ("tklearn", "mosaic"))
    print(f"of {len(planted)} planted faults: tklearn reports {mine}, Mosaic {theirs}")
    return out


def record(rows: Any, peers: Any, seen: Any) -> dict[str, Any]:
    """What the numbers are, and what is needed to read them later."""
    versions = {"python": platform.python_version()}
    for name in ("numpy", "ml_dtypes"):
        versions[name] = importlib.metadata.version(name)
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=HERE, capture_output=True, text=True, check=False
    ).stdout.strip()
    return {
        "command": "python benchmarks/async_sim.py " + " ".join(_arguments()),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": commit,
        "versions": versions,
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "unit": "seconds of process CPU time",
        "simulator": rows,
        "peers": peers,
        "faults": seen,
    }


def _arguments() -> list[str]:
    """Of the command line, without this machine's paths."""
    return ["PYTHON" if before == "--peers" else Path(a).name if before == "--out" else a
            for before, a in zip(["", *sys.argv[1:]], sys.argv[1:])]  # fmt: skip


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((x.partition(":")[2].strip() for x in lines if x.startswith("model name")), "?")


if __name__ == "__main__":
    sys.exit(main())
