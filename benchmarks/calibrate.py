"""Micro-benchmarks behind the time estimate (tklearn/sim/timing.py): what one GPU does per cycle.

    python benchmarks/calibrate.py --out FOLDER [--only tile_op wgmma] [--seconds 95]

Writes FOLDER/calibration.json: for each case its parameters, the numbers of repetitions and the
seconds that a launch took with each, and the SM clock while it ran. Only kernels of
probes/micro.py run, none of the gallery. `fit_timing.py` makes the model's constants from the file.
Needs a GPU and torch; without them it says so and exits with 2. `--compile` needs neither: it
compiles every case for sm_90a.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import multiprocessing
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "probes"), str(HERE.parent)]

import micro  # noqa: E402
import micro_more  # noqa: E402
from keep import watch  # noqa: E402

from tklearn.lang.errors import LaunchError  # noqa: E402

MIB = 1 << 20
SMS = 132  # of an H200: a launch of so many blocks gives each one
N = object()  # where a case's argument is the number of repetitions


@dataclass(frozen=True)
class Array:
    """An argument: `fill` is zeros, normal, half (all 0.5) or chain:D (x[j] = j + 32 D)."""

    dtype: str
    shape: tuple[int, ...]
    fill: str = "zeros"


@dataclass(frozen=True)
class Case:
    """One micro-benchmark. `repeat`: numbers of repetitions, one launch each. `cold`: the L2 cache
    is emptied before each launch, which is timed alone; otherwise launches follow each other."""

    group: str
    params: dict[str, Any]
    kernel: Any
    grid: Any
    args: tuple[Any, ...]
    repeat: tuple[int, ...] = (0,)
    cold: bool = False
    more: dict[str, Any] = field(default_factory=dict)


OUT = Array("float32", (16 * 16 * SMS, 64))  # where results go: a tile for each of 16 warps
LINES = Array("float32", (4096, 1024))


# ------------------------------------------------------------------------------------- cases
def arithmetic() -> Iterator[Case]:
    x = Array("float32", (16 * 32, 64), "half")
    for w in (4, 16):
        for name, op in micro.TILE_OPS.items():
            p = {"op": name, "warps": w}
            yield Case("tile_op", p, micro.tile_op(w, op), SMS, (N, 0.5, x, OUT), (64, 576))
    v = Array("float32", (32, 1024), "half")
    for name, op in micro.VECTOR_OPS.items():
        for w in (4, 16):
            p = {"op": name, "warps": w}
            args = (N, 0.5, v, Array("float32", (16 * SMS, 1024)))
            yield Case("vector_op", p, micro.vector_op(w, op), SMS, args, (64, 320))
    for name, op in micro.LANE_OPS.items():
        for w in (1, 16):
            p = {"op": name, "warps": w}
            args = (N, 3, 0.5, LINES)
            yield Case("lane_op", p, micro.lane_op(w, op), SMS, args, (64, 576))


def memory() -> Iterator[Case]:
    for stride in (1, 2, 4, 8, 16, 32):
        for w in (1, 32):
            p = {"stride": stride, "warps": w}
            yield Case("shared", p, micro.shared_chain(w, stride), SMS, (N, LINES), (32, 288))
    for kib, hop in ((16, 1), (64, 1), (4 * 1024, 517), (24 * 1024, 2053), (1024 * 1024, 16411)):
        for w, grid in ((1, 1), (1, SMS), (32, SMS)):
            p = {"kib": kib, "warps": w, "blocks": grid}
            x = Array("int32", (kib * 256,), f"chain:{hop}")
            yield Case("chain", p, micro.global_chain(w), grid, (N, x, LINES), (64, 320))
    for write in (0, 1, 2):
        for mib in (4, 16, 24, 32, 40, 48, 64, 512):
            for blocks in (1, 16, SMS, 2 * SMS):
                w = 16
                if mib in (24, 40, 48, 64) and (write or blocks != SMS):
                    continue
                n = max(mib * MIB // (blocks * w * 4096), 1) if blocks >= SMS else 16
                laps = 8 if mib <= 64 and blocks >= SMS else 1
                if blocks < SMS and mib != 16:
                    continue
                rows = max(n * blocks * w, 16 * 2 * SMS)
                p = {"write": write, "mib": mib, "blocks": blocks, "warps": w, "tiles": n}
                x = Array("float32", (rows, 1024), "half")
                y = Array("float32", (rows, 1024)) if write else Array("float32", (8192, 1024))
                laps_of = (8, 40) if blocks < SMS else (laps, 3 * laps)
                yield Case("stream", p, micro.stream(w, write), blocks, (n, N, x, y), laps_of)
    for kib in (64, 256, 1024, 4096, 16384, 65536, 262144, 1048576):
        x, y = (Array("float32", (kib * 256,), f) for f in ("half", "zeros"))
        for cold in (True, False):
            yield Case("copy", {"kib": kib}, micro.copy4, kib // 4, (x, y), cold=cold)
    for size in (2048, 16384):
        x, y = (Array("float32", (size, size), f) for f in ("half", "zeros"))
        for order in (0, 1):
            p = {"order": order, "size": size}
            grid = (size // 32, size // 32)
            yield Case("tiles", p, micro.tiles(order), grid, (x, y), cold=True)
    for n in (1, 33):
        y = Array("float32", (1,))
        yield Case("atomic", {"n": n}, micro.atomics, SMS * 16, (n, y))


def launches() -> Iterator[Case]:
    y = Array("float32", (1024,))
    for w in (1, 4, 8, 32):
        for grid in (1, SMS, 8 * SMS, 64 * SMS, 512 * SMS):
            p = {"warps": w, "blocks": grid}
            for cold in (False, True):
                if not cold or w == 4:
                    yield Case("launch", p, micro.nothing(w), grid, (0, y), cold=cold)


def barriers() -> Iterator[Case]:
    for kind in (0, 1, 3, 2):
        for w in (1, 4, 8, 16, 32):
            p = {"kind": ("block", "named", "semaphore", "warp")[kind], "warps": w}
            yield Case("barrier", p, micro.barrier(w, kind), SMS, (N, LINES), (64, 576))


def products() -> Iterator[Case]:
    x = Array("bfloat16", (128, 256), "half")
    for m, n, k in ((16, 16, 16), (64, 64, 16), (16, 64, 64), (64, 64, 32)):
        for w in (4, 8, 16):
            if m * n > 2048 and w == 16:
                continue
            p = {"m": m, "n": n, "k": k, "warps": w, "dtype": "bf16"}
            y = Array("float32", (m * w * SMS, n))
            yield Case("mma", p, micro.mma(w, m, n, k), SMS, (N, x, y), (32, 288))
    t = Array("float32", (128, 256), "half")
    p = {"m": 64, "n": 64, "k": 16, "warps": 4, "dtype": "tf32"}
    y = Array("float32", (64 * 4 * SMS, 64))
    yield Case("mma", p, micro.mma(4, 64, 64, 16, micro.tk.f32), SMS, (N, t, y), (32, 160))
    for col, pad, swizzle in ((0, 0, 128), (1, 0, 128), (0, 8, 0), (0, 0, 0), (0, 1, 0)):
        for w in (4, 8):
            p = {"col": col, "pad": pad, "swizzle": swizzle, "warps": w}
            y = Array("bfloat16", (64 * w * SMS, 64))
            kernel = micro.fragments(w, col, pad, swizzle)
            yield Case("fragments", p, kernel, SMS, (N, x, y), (32, 160))


def warpgroups() -> Iterator[Case]:
    a = Array("bfloat16", (256, 256), "half")
    for groups in (1, 2):
        for n in (16, 32, 64, 128, 256):
            for late in (0, 1):
                p = {"groups": groups, "n": n, "late": late, "registers": 0}
                y = Array("float32", (64 * groups * SMS, n))
                kernel = micro.wgmma(groups, n, late)
                yield Case("wgmma", p, kernel, SMS, (N, a, y), (32, 288))
        p = {"groups": groups, "n": 128, "late": 1, "registers": 1}
        y = Array("float32", (64 * groups * SMS, 128))
        kernel = micro.wgmma(groups, 128, 1, 1)
        yield Case("wgmma", p, kernel, SMS, (N, a, y), (32, 288))


def transfers() -> Iterator[Case]:
    for rows, cols, deep in ((16, 64, 16), (64, 64, 8), (128, 64, 8), (64, 32, 8), (256, 64, 4)):
        for stages in (1, deep):
            for mib, blocks in ((16, 1), (16, SMS), (1024, SMS)):
                tiles = mib * MIB // (rows * cols * 2)
                p = {"rows": rows, "cols": cols, "stages": stages, "mib": mib, "blocks": blocks}
                step = max(tiles // SMS, 1)
                x = Array("bfloat16", (tiles * rows, cols))
                kernel = micro.tma_ring(rows, cols, stages, step)
                yield Case("tma", p, kernel, blocks, (N, tiles, x, LINES), (48, 240))
    for share in (2, 4, 16, SMS, -8, -33):  # blocks that read the same boxes: neighbours, or not
        tiles = 16 * MIB // (128 * 128)
        p = {"rows": 128, "cols": 64, "stages": 8, "mib": 16, "blocks": SMS, "share": share}
        x = Array("bfloat16", (tiles * 128, 64))
        step = max(tiles * max(share, 1) // SMS, 1)
        kernel = micro.tma_ring(128, 64, 8, step, share)
        yield Case("tma_shared", p, kernel, SMS, (N, tiles, x, LINES), (48, 240))
    for rows in (16, 64, 128):
        tiles = 64 * MIB // (rows * 128)
        y = Array("bfloat16", (tiles * rows, 64))
        p = {"rows": rows, "cols": 64}
        yield Case("tma_store", p, micro.tma_store(rows, 64), SMS, (N, tiles, y), (48, 240))


def copies() -> Iterator[Case]:
    for share in (2, 4, 16, SMS):
        tiles = 16 * MIB // (128 * 128)
        p = {"rows": 128, "warps": 8, "stages": 4, "mib": 16, "blocks": SMS, "share": share}
        x = Array("bfloat16", (tiles * 128, 64))
        args = (N, tiles, max(tiles * share // SMS, 1), x, LINES)
        kernel = micro.copy_ring(8, 128, 64, 4, share)
        yield Case("copy_shared", p, kernel, SMS, args, (48, 240))
    for rows, w in ((64, 4), (128, 4), (128, 8)):
        for stages in (0, 1, 2, 4):
            for mib, blocks in ((16, 1), (16, SMS), (1024, SMS)):
                tiles = mib * MIB // (rows * 128)
                p = {"rows": rows, "warps": w, "stages": stages, "mib": mib, "blocks": blocks}
                x = Array("bfloat16", (tiles * rows, 64))
                args = (N, tiles, max(tiles // SMS, 1), x, LINES)
                kernel = micro.copy_ring(w, rows, 64, stages)
                yield Case("copy_ring", p, kernel, blocks, args, (48, 240))


def more() -> Iterator[Case]:
    """micro_more.py: tensor cores, the L1 cache, register tiles, DRAM, the reach of the L2."""
    half = Array("float32", (32 * 16, 64), "half")
    for name, op in micro_more.MAPS.items():
        for w in (4, 16, 32):
            y = Array("float32", (16 * w * SMS, 64))
            args = (N, 0.5, half, y)
            kernel = micro_more.tile_map(w, op)
            yield Case("tile_map", {"op": name, "warps": w}, kernel, SMS, args, (64, 576))
    x = Array("bfloat16", (256, 256), "half")
    for m, n, k, ks in (
        (64, 64, 64, 32), (64, 64, 64, 16), (32, 64, 64, 32), (32, 32, 64, 64), (16, 64, 64, 64),
    ):  # fmt: skip
        for w in (4, 8):
            y = Array("float32", (m * w * SMS, n))
            shapes = [(-1, 0)] if m != 16 else [(-1, 0), (-1, 1), (0, 0), (1, 0), (8, 0)]
            for pad, turned in shapes:
                p = {"m": m, "n": n, "k": k, "ks": ks, "pad": pad, "turned": turned, "warps": w}
                kernel = micro_more.step(w, m, n, k, ks, pad, turned)
                yield Case("step", p, kernel, SMS, (N, x, y), (32, 160))
    for groups in (1, 2, 3):
        for n in (32, 64, 128, 192, 256):
            for deep in (1, 4):
                for registers in (0, 1):
                    if groups == 3 and n > 128:
                        continue
                    p = {"groups": groups, "n": n, "deep": deep, "registers": registers}
                    y = Array("float32", (64 * groups * SMS, n))
                    kernel = micro_more.group(groups, n, deep, registers)
                    yield Case("group", p, kernel, SMS, (N, x, y), (32, 160))
    z = Array("float32", (1024,), "half")
    for width in (0, 1, 2, 4):
        for w in (4, 16, 32):
            p = {"width": width, "warps": w}
            yield Case("cached", p, micro_more.cached(w, width), SMS, (N, z, LINES), (64, 320))
    for write in (0, 1):
        for half in (0, 1):
            for w in (4, 8):
                p = {"write": write, "half": half, "warps": w}
                big = Array("bfloat16" if half else "float32", (32 * w * 16 * SMS, 64))
                kernel = micro_more.register_tiles(w, write, half)
                other = Array(big.dtype, big.shape, "half")
                yield Case("register_tiles", p, kernel, SMS, (N, other, big), (1, 4, 12))
    for kib in (1024, 4096, 32768, 65536, 524288):
        x1 = Array("float32", (kib * 256,), "half")
        y1 = Array("float32", (kib * 256,))
        for cold in (True, False):
            p = {"kib": kib, "arrays": 2}
            yield Case("elements", p, micro_more.copy1, kib, (x1, y1), cold=cold)
            p = {"kib": kib, "arrays": 3}
            yield Case("elements", p, micro_more.add1, kib, (x1, x1, y1), cold=cold)
    for stages in (0, 2):  # rows of 130 bytes: nothing is aligned, and each element goes alone
        for blocks in (1, SMS):
            p = {"rows": 64, "warps": 4, "stages": stages, "blocks": blocks}
            odd = Array("bfloat16", (2048 * 64, 65))
            kernel = micro.copy_ring(4, 64, 64, stages)
            yield Case("odd", p, kernel, blocks, (N, 2048, 15, odd, LINES), (8, 40))
    for w in (8, 32):
        yield Case("fused", {"warps": w}, micro_more.fused(w), SMS, (N, LINES), (32, 160))
    for hop in (517, 16411):  # every load from DRAM: 128 and 256 MiB, one line after the other
        x2 = Array("int32", (1 << 28,), f"chain:{hop}")
        args = (N, x2, LINES)
        yield Case("far", {"hop": hop}, micro.global_chain(1), SMS, args, (8000, 16000))
    x3 = Array("bfloat16", (1024 * MIB // 128, 64))
    args = (N, 1024 * MIB // 16384, x3, LINES)
    kernel = micro.tma_ring(128, 64, 8, 1024 * MIB // 16384 // SMS)
    reach = tuple(range(4, 41, 2))  # 16 KiB for each SM and turn, and 8 more: 26 to 100 MB
    yield Case("footprint", {"rows": 128, "stages": 8}, kernel, SMS, args, reach)


def cases() -> list[Case]:
    """All of them, in the order in which they run."""
    parts = (launches, arithmetic, products, memory, copies, barriers, warpgroups, transfers, more)
    return [c for part in parts for c in part()]


# ------------------------------------------------------------------------------ compile, run
def small_arguments(case: Case) -> list[Any]:
    """Arguments of the right types, arrays of one element."""
    out: list[Any] = []
    for a in case.args:
        if isinstance(a, Array):
            out.append(np.zeros((1,) * len(a.shape), numpy_type(a.dtype)))
        else:
            out.append(1 if a is N else a)
    return out


def compile_case(i: int) -> str:
    """Compiles case i for sm_90a into the disk cache; what went wrong, or its registers."""
    from tklearn.cuda.compile import compile_source
    from tklearn.cuda.emit import emit

    case = cases()[i]
    try:
        facts = compile_source(emit(case.kernel.ir(*small_arguments(case))), 90).facts
    except Exception as e:  # noqa: BLE001  (one case must not stop the others)
        return f"{case.group} {case.params}: {type(e).__name__}: {e}"
    return f"{case.group} {case.params}: {facts}"


def compile_all(only: list[str] | None = None) -> list[str]:
    """Compiles every case (of some groups) in several processes."""
    chosen = [i for i, c in enumerate(cases()) if not only or c.group in only]
    context = multiprocessing.get_context("fork")
    with concurrent.futures.ProcessPoolExecutor(mp_context=context) as pool:
        return list(pool.map(compile_case, chosen, chunksize=4))


def numpy_type(name: str) -> Any:
    import ml_dtypes

    return ml_dtypes.bfloat16 if name == "bfloat16" else np.dtype(name)


class Bench:
    """Makes arguments and times launches; arrays of equal content are made once."""

    def __init__(self, torch: Any) -> None:
        from clock import Clock

        self.torch, self.clock = torch, Clock()
        self.kept: dict[Array, Any] = {}

    def array(self, a: Array) -> Any:
        if a not in self.kept:
            if sum(x.nbytes for x in self.kept.values()) > 24 << 30:
                self.kept.clear()
            self.kept[a] = self._make(a)
        return self.kept[a]

    def _make(self, a: Array) -> Any:
        torch = self.torch
        kind = getattr(torch, a.dtype)
        if a.fill == "zeros":
            return torch.zeros(a.shape, dtype=kind, device="cuda")
        if a.fill == "half":
            return torch.full(a.shape, 0.5, dtype=kind, device="cuda")
        hop = int(a.fill.partition(":")[2])
        n = a.shape[0]
        return ((torch.arange(n, device="cuda", dtype=torch.int64) + 32 * hop) % n).to(kind)

    def seconds(self, case: Case, n: int) -> float:
        args = [self.array(a) if isinstance(a, Array) else n if a is N else a for a in case.args]
        launch = case.kernel[case.grid]
        if case.cold:
            from triton.testing import do_bench

            launch(*args)
            return do_bench(lambda: launch(*args), warmup=2, rep=8, return_mode="median") / 1e3
        took: float = launch(*args).seconds
        return took

    def row(self, case: Case) -> dict[str, Any]:
        took = [self.seconds(case, n) for n in case.repeat]
        return {
            "group": case.group, "params": case.params, "grid": case.grid, "cold": case.cold,
            "n": list(case.repeat), "seconds": took, "ghz": self.clock.ghz(),
        }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--seconds", type=float, default=95.0)
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    start = time.time()
    said = compile_all(options.only)
    print(f"compiled {len(said)} cases: {time.time() - start:.1f} s", flush=True)
    if options.compile:
        print("\n".join(said))
        return 0
    from side_by_side import require_gpu, write

    from tklearn.cuda import profile

    torch = require_gpu()
    profile.BUDGET = 0.004
    rows: list[dict[str, Any]] = []
    failed: list[str] = []

    def keep() -> None:
        write(options.out / "calibration.json", torch, rows, failed=failed, compiled=said,
              sms=torch.cuda.get_device_properties(0).multi_processor_count)  # fmt: skip

    timer = watch(options.seconds + 10 - (time.time() - start), keep)
    bench = Bench(torch)
    for case in cases():
        if options.only and case.group not in options.only:
            continue
        if time.time() - start > options.seconds:
            failed.append(f"{case.group} {case.params}: no time left")
            continue
        try:
            rows.append(bench.row(case))
        except (LaunchError, RuntimeError) as e:
            first = str(e).splitlines()[:1]  # further lines name places on this machine
            failed.append(f"{case.group} {case.params}: {type(e).__name__}: {''.join(first)}")
            if "context is lost" in str(e):
                break
    timer.cancel()
    keep()
    print(f"{len(rows)} rows, {len(failed)} failed, {time.time() - start:.1f} s")
    print("\n".join(failed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
