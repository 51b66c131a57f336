"""Makes the constants of the time estimate from what calibrate.py measured, and from nothing else.

    python benchmarks/fit_timing.py [FILE ...] [--check]

Writes tklearn/sim/timing/h200.json. `--check` then predicts each micro-benchmark with the model.
Each function below says how one group of constants follows from the measured seconds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
TABLE = HERE.parent / "tklearn" / "sim" / "timing" / "h200.json"
RESULTS = [  # micro_more.py's were measured later
    HERE / "results" / f"calibration_h200{x}.json" for x in ("", "_more", "_third")
]
sys.path[:0] = [str(HERE), str(HERE / "probes"), str(HERE.parent)]

Row = dict[str, Any]


class Measured:
    """The rows of a calibration, and cycles from them."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.rows: list[Row] = data["rows"]
        self.sms: int = data["sms"]
        self.data = data
        self.ghz = statistics.median(r["ghz"] for r in self.rows)

    def find(self, group: str, cold: bool = False, **params: Any) -> Row:
        """The one row of a group with these parameters."""
        found = [
            r for r in self.rows
            if r["group"] == group and r["cold"] == cold
            and all(r["params"].get(k) == v for k, v in params.items())
        ]  # fmt: skip
        if len(found) != 1:
            raise KeyError(f"{len(found)} rows of {group} {params}")
        return found[0]

    def cycles(self, group: str, **params: Any) -> float:
        """Cycles of one repetition."""
        r = self.find(group, **params)
        return float(np.diff(r["seconds"])[0] / np.diff(r["n"])[0] * r["ghz"] * 1e9)

    def seconds(self, group: str, cold: bool = False, **params: Any) -> float:
        return float(self.find(group, cold, **params)["seconds"][0])


# Instructions of one element in sm_90a's code where no slow path is taken: all, and how many
# are the special-function unit's. They are the same for tiles and for lanes, and for a divisor that
# many elements share. calibrate.py's group tile_map measures them: `--check` compares.
COUNTED = {
    "log2": (4, 1),  # FSETP, FMUL, MUFU.LG2, FADD
    "log": (5, 1),
    "divide": (10, 2),  # MUFU.RCP, FCHK, 5 FFMA, BSSY, BRA, BSYNC
    "sqrt": (10, 1),  # MUFU.RSQ, IADD3, ISETP, 2 FMUL, 2 FFMA, BSSY, BRA, BSYNC
    "sin": (25, 1),  # F2I among them
}


def operations(m: Measured) -> dict[str, tuple[float, float]]:
    """Slots and special-function cycles a register, from 16 warps (4 on each scheduler)."""

    def tile(name: str) -> float:  # 32 registers a lane
        return m.cycles("tile_op", op=name, warps=16) / 4 / 32

    def lane(name: str) -> float:  # eight in a row
        return m.cycles("lane_op", op=name, warps=16) / 4 / 8

    add = tile("add")
    iadd = lane("iadd") / 2  # an exclusive or, an addition
    special = tile("rsqrt")
    # A map's instruction and what it costs the special-function unit; e^x multiplies first.
    return {
        "add": (add, 0.0),
        "max": (max(tile("max") - add, add), 0.0),
        "exp2": (add, tile("exp2")),
        "exp": (2 * add, tile("exp2")),
        "rsqrt": (add, special),
        **{x: (slots * add, n * special) for x, (slots, n) in COUNTED.items()},
        "convert": (tile("convert") - add, 0.0),  # to bf16 and back
        "tril": (tile("tril"), 0.0),
        "swap": (tile("swap") / 2, 0.0),
        "iadd": (iadd, 0.0),
        "imul": (max(lane("imul") - iadd, iadd), 0.0),
        "idiv": (max(lane("idiv") - iadd, iadd), 0.0),
    }


def latencies(m: Measured) -> dict[str, float]:
    """Cycles from issue to use, from chains of one warp on each SM."""
    rate = tensor_cores(m)["wgmma"]
    waits = [  # of four products of one warpgroup, and a semaphore that lets it pass
        m.cycles("group", groups=1, n=n, deep=1, registers=1) - 4 * rate[str(n)]
        for n in (64, 128, 192, 256)
    ]
    passing = m.cycles("barrier", kind="semaphore", warps=1) / 2
    engine = tma(m)
    l2 = m.cycles("chain", kib=4096, warps=1, blocks=m.sms)
    far = _farther(m)
    box = m.cycles("tma", rows=16, cols=64, stages=1, mib=16, blocks=m.sms)
    return {
        "math": m.cycles("lane_op", op="fadd", warps=1) / 8,
        "idiv": _division(m),
        "branched": _branched(m),
        "shuffle": m.cycles("lane_op", op="shuffle", warps=1) / 8,
        "swap": m.cycles("lane_op", op="atomic_shared", warps=1) / 8,
        "shared": m.cycles("shared", stride=1, warps=1) / 8,
        "l1": _hits(m, l2),
        "l2": l2,
        "l2_full": l2 + _crowded(m),
        "dram": l2 + far[0],
        "dram_full": l2 + sum(far),
        "mma": m.cycles("mma", m=16, n=16, k=16, warps=4, dtype="bf16"),
        "wgmma": max(statistics.median(waits) - passing, 0.0),
        "tma": max(box - l2 - engine["tma_issue"] - 16 * engine["tma_box"], 0.0),
    }


def _division(m: Measured) -> float:
    """Of integers, in a chain of divisions and additions."""
    return (m.cycles("lane_op", op="idiv", warps=1) - m.cycles("lane_op", op="fadd", warps=1)) / 8


def _branched(m: Measured) -> float:
    """What an element that branches around a slow path takes of its warp, besides dependent steps:
    from the shorter launch of divisions by 0.5, since in the longer one values become infinite and
    the slow path is taken. Five dependent steps of each are known."""
    r, base = (m.find("tile_op", op=x, warps=4) for x in ("divide", "rsqrt"))
    n = r["n"][0]
    rest = base["seconds"][0] - n * np.diff(base["seconds"])[0] / np.diff(base["n"])[0]
    each = (r["seconds"][0] - rest) * r["ghz"] * 1e9 / n / 32
    return float(each) - 5 * m.cycles("lane_op", op="fadd", warps=1) / 8


def copies(m: Measured) -> float:
    """What stands before the accesses of a tile's copy: four warps with three tiles under way, so
    that none waits for memory. A turn has a barrier, too, and a division."""
    turn = m.cycles("copy_ring", rows=64, warps=4, stages=4, mib=16, blocks=1)
    return turn - m.cycles("barrier", kind="block", warps=4) - _division(m)


def batch(m: Measured) -> int:
    """Loads of a tile's copy that are under way together: a tile of eight 16-byte loads a lane
    against one of four takes longer by so many latencies of the L2 cache."""
    same = {"warps": 4, "stages": 0, "mib": 16, "blocks": 1}
    eight, four = (m.cycles("copy_ring", rows=rows, **same) for rows in (128, 64))
    l2 = m.cycles("chain", kib=4096, warps=1, blocks=1)
    return 4 // max(round((eight - four) / l2), 1)


def lanes(m: Measured) -> dict[str, float]:
    """Accesses of single elements: a request of the L1 cache; a broadcast from shared memory, of
    which the compiler merges neighbours; a turn of the loop that copies element by element."""
    fused = m.cycles("fused", warps=32) / 32 / 32  # one wavefront for the column, one broadcast
    return {
        "request": m.cycles("cached", width=0, warps=32) / 8 / 32,
        "broadcast": min(max(fused - 1, 0.0), 1.0),
        "rolled": m.cycles("odd", rows=64, warps=4, stages=0, blocks=1) / (64 * 64 / 128),
    }


def _hits(m: Measured, l2: float) -> float:
    """A chain through 128 lines: all loads after those hit the L1 cache."""
    r = m.find("chain", kib=16, warps=1, blocks=m.sms)
    (a, b), took = r["n"], np.diff(r["seconds"])[0] * r["ghz"] * 1e9
    return float((took - (128 - a) * l2) / (b - 128))


def _farther(m: Measured) -> tuple[float, float]:
    """What DRAM adds to the latency: idle, and more of it when it is busy all the time.

    Single boxes of each SM, one after the other: all different, so many that the L2 cache keeps
    none, against boxes that the L2 cache holds. A straight line over the bandwidth they get.
    """
    busy, more = [], []
    top = _dram_read(m)
    for rows, cols in ((64, 32), (64, 64), (128, 64)):
        p = {"rows": rows, "cols": cols, "stages": 1, "blocks": m.sms}
        far, near = (m.find("tma", mib=x, **p) for x in (1024, 16))
        took = far["seconds"][1] / far["n"][1]
        busy.append(rows * cols * 2 * m.sms / took / top)
        more.append((took - near["seconds"][1] / near["n"][1]) * far["ghz"] * 1e9)
    each, base = np.polyfit(busy, more, 1)
    return max(float(base), 0.0), max(float(each), 0.0)


def _crowded(m: Measured) -> float:
    """How much longer the L2 cache takes when it is busy all the time: single boxes of all SMs
    against those of one, a straight line over the bandwidth."""
    busy, more = [], []
    for rows in (16, 64, 128):
        p = {"rows": rows, "cols": 64, "stages": 1, "mib": 16}
        all_of, one = m.cycles("tma", blocks=m.sms, **p), m.cycles("tma", blocks=1, **p)
        busy.append(rows * 128 * m.sms / all_of / _l2_read(m))
        more.append(all_of - one)
    each, base = np.polyfit(busy, more, 1)
    return max(float(each + base), 0.0)


def _dram_read(m: Measured) -> float:
    return max(_stream(m, 0, 512, b) for b in (m.sms, 2 * m.sms))


def _stream(m: Measured, write: int, mib: int, blocks: int) -> float:
    """Bytes a second in one direction, of 16 warps with 4 KiB each under way."""
    r = m.find("stream", write=write, mib=mib, blocks=blocks)
    p = r["params"]
    nbytes = 4096 * p["warps"] * p["tiles"] * p["blocks"]
    return float(nbytes * np.diff(r["n"])[0] / np.diff(r["seconds"])[0])


def tensor_cores(m: Measured) -> dict[str, Any]:
    """Cycles of mma.sync on one scheduler, and of wgmma by its columns."""
    mma = min(m.cycles("mma", m=64, n=64, k=16, warps=w, dtype="bf16") / (w / 4) for w in (4, 8))
    tf32 = m.cycles("mma", m=64, n=64, k=16, warps=4, dtype="tf32")
    # Warpgroups with A in registers, 16 products before each wait, as many as fill the pipe.
    wgmma = {
        str(n): m.cycles("group", groups=g, n=n, deep=4, registers=1) / g / 16
        for n, g in ((32, 3), (64, 3), (128, 3), (192, 2), (256, 2))
    }
    narrow = m.cycles("group", groups=3, n=32, deep=4, registers=0) / 3 / 16
    step = {"m": 16, "n": 64, "k": 64, "ks": 64}
    conflicts = m.cycles("step", pad=0, turned=0, warps=8, **step)  # 8 wavefronts a matrix
    turned, straight = (m.cycles("step", pad=-1, turned=t, warps=4, **step) for t in (1, 0))
    return {
        "mma": mma / 32,
        "mma_tf32": tf32 / 64,
        "ldmatrix": conflicts / (8 * 8 * (64 + 16)),
        "turned": (turned - straight) / 16 + 2 * mma / 32,
        "wgmma": wgmma,
        "wgmma_shared": narrow / ((64 + 32) * 32 / 128),
    }


def barriers(m: Measured) -> dict[str, tuple[float, float]]:
    """A straight line over the number of warps; a semaphore: to wake a warp, and to pass."""
    out = {}
    for kind in ("block", "named"):
        warps = [1, 4, 8, 16, 32]
        each, base = np.polyfit(warps, [m.cycles("barrier", kind=kind, warps=w) for w in warps], 1)
        out[kind] = (max(float(base), 0.0), max(float(each), 0.0))
    alone = m.cycles("barrier", kind="semaphore", warps=1)
    four = m.cycles("barrier", kind="semaphore", warps=4)
    out["semaphore"] = (max(four - alone / 2, 0.0), alone / 2)
    return out


def memory(m: Measured) -> dict[str, float]:
    """Bandwidths, from streams, and a copy."""

    def rate(write: int, mib: int, blocks: int) -> float:
        return _stream(m, write, mib, blocks)

    per_cycle = m.ghz * 1e9
    grids = (m.sms, 2 * m.sms)
    big, small = (m.seconds("copy", cold=True, kib=k) for k in (1048576, 262144))
    return {
        "sm_l2": rate(0, 16, 1) / per_cycle,
        "sm_write": rate(2, 16, 1) / per_cycle,
        "l2_read": _l2_read(m),
        "l2_write": max(rate(2, mib, b) for mib in (4, 16) for b in grids) / per_cycle,
        "dram_read": _dram_read(m),
        "dram_write": max(rate(2, 512, b) for b in grids),
        "dram_copy": 2 * (1048576 - 262144) * 1024 / (big - small),
        "dirty": _dirty(m, 2 * (1048576 - 262144) * 1024 / (big - small)),
        "scatter": _scattered(m, max(rate(2, mib, b) for mib in (4, 16) for b in grids)),
        "l2_bytes": _kept(m, rate),
    }


def _scattered(m: Measured, whole: float) -> tuple[float, float]:
    """Stores of register tiles against stores of whole lines: sectors that are full (f32), and
    sectors that are half full (bf16)."""
    out = []
    for half in (0, 1):
        r = m.find("register_tiles", write=1, half=half, warps=4)
        took = (r["seconds"][2] - r["seconds"][1]) / (r["n"][2] - r["n"][1])
        out.append(took * whole / (4 * 16 * 8 * 32 * m.sms))  # 16 requests of 8 sectors a tile
    return max(out[0], 1.0), max(out[1], 1.0)


def _dirty(m: Measured, copy: float) -> float:
    """When the L2 cache was emptied by writing something else, what comes in sends that out to
    DRAM. How much for each byte, from a copy that the cache has room for, timed cold."""
    kib = 16384
    begun = launches(m)
    took = m.seconds("copy", cold=True, kib=kib) - begun["launch_cold"] - begun["start_cold"]
    moved = (took - latencies(m)["dram"] / m.ghz / 1e9) * copy
    return min(max((moved / (kib * 1024) - 1) / 2, 0.0), 1.0)


def _l2_read(m: Measured) -> float:
    """All SMs read different places by TMA, so that no L1 cache has a part in it."""
    took = m.cycles("tma", rows=256, cols=64, stages=4, mib=16, blocks=m.sms)
    return 256 * 128 * m.sms / took


def _kept(m: Measured, rate: Any) -> float:
    """Up to which footprint less than half of a stream that is read and written goes to DRAM."""
    near, far = rate(1, 4, m.sms), rate(1, 512, m.sms)
    kept = 0.0
    for blocks in (m.sms, 2 * m.sms):
        r = m.find("stream", write=1, mib=32, blocks=blocks)["params"]
        if (1 / rate(1, 32, blocks) - 1 / near) / (1 / far - 1 / near) < 0.5:
            kept = max(kept, 2 * 4096.0 * r["warps"] * r["tiles"] * r["blocks"])
    return kept


def sharing(m: Measured) -> dict[str, float]:
    """Bandwidth of all SMs when neighbours read the same boxes by TMA, against when none do."""
    same = {"rows": 128, "stages": 8, "mib": 16, "blocks": m.sms}
    alone = m.cycles("tma", cols=64, **same)
    out = {"1": 1.0}
    for share in (2, 4, 16, m.sms):
        gain = alone / m.cycles("tma_shared", share=share, **same)
        out[str(share)] = max(gain, *out.values())
    return out


def tma(m: Measured) -> dict[str, float]:
    """The engine's time for a box: a straight line over its bytes, from many boxes under way."""
    sizes, took = [], []
    for rows, deep in ((16, 16), (64, 8), (128, 8), (256, 4)):
        sizes.append(rows)  # in 128-byte rows
        took.append(m.cycles("tma", rows=rows, cols=64, stages=deep, mib=16, blocks=1))
    each, base = np.polyfit(sizes, took, 1)
    return {"tma_issue": max(float(base), 1.0), "tma_box": max(float(each), 0.0)}


def launches(m: Measured) -> dict[str, float]:
    """A launch, and what one block more costs an SM and the GPU's dispatcher."""
    grids = (64 * m.sms, 512 * m.sms)

    def more(warps: int) -> float:  # cycles of the GPU for one block more
        a, b = (m.seconds("launch", warps=warps, blocks=g) for g in grids)
        return (b - a) / (grids[1] - grids[0]) * m.ghz * 1e9

    # The straight line of short kernels, at no repetitions: what they take besides their loop.
    names = ("iadd", "imul", "idiv", "fadd", "shuffle", "branch")
    rows = [m.find("lane_op", op=x, warps=1) for x in names]
    bare = statistics.median(
        r["seconds"][0] - r["n"][0] * np.diff(r["seconds"])[0] / np.diff(r["n"])[0] for r in rows
    )
    launch = m.seconds("launch", warps=1, blocks=m.sms)
    cold, warm = (m.seconds("copy", cold=c, kib=64) for c in (True, False))
    empty = m.seconds("launch", cold=True, warps=4, blocks=1) - m.seconds(
        "launch", warps=4, blocks=1
    )
    start = float(bare) - launch
    farther = _farther(m)[0] / m.ghz / 1e9
    adds = m.find("atomic", n=33)["seconds"][0] - m.find("atomic", n=1)["seconds"][0]
    return {
        "launch": m.seconds("launch", warps=4, blocks=m.sms),
        "launch_cold": m.seconds("launch", cold=True, warps=4, blocks=m.sms),
        "start": start,
        "start_cold": start + max(cold - warm - empty - farther, 0.0),
        "dispatch": more(1),
        "block": more(32) * m.sms * 2,  # of blocks of 32 warps an SM holds two
        "atomic": adds / (32 * 16 * m.sms) * m.ghz * 1e9,
    }


def fit(data: dict[str, Any]) -> dict[str, Any]:
    """All constants."""
    m = Measured(data)
    table = {
        "ops": operations(m), "latency": latencies(m), **tensor_cores(m), "copy": copies(m),
        "batch": batch(m),
        "barrier": barriers(m),
        **memory(m), "sharing": sharing(m), **tma(m), **launches(m), **lanes(m), "ghz": m.ghz,
    }  # fmt: skip
    old = json.loads(TABLE.read_text()) if TABLE.is_file() else {}
    return {
        **table,
        "error": old.get("error"),  # timing_error.py writes it
        "source": f"benchmarks/fit_timing.py from micro-benchmarks on an {data['device']}, "
        f"driver {data['driver']}, {data['date'][:10]}",
    }


def rounded(x: Any) -> Any:
    """Four significant digits everywhere."""
    if isinstance(x, dict):
        return {k: rounded(v) for k, v in x.items()}
    if isinstance(x, tuple | list):
        return [rounded(v) for v in x]
    return float(f"{x:.4g}") if isinstance(x, float) else x


def check(data: dict[str, Any]) -> None:
    """What the model says of the micro-benchmarks themselves."""
    import calibrate

    from tklearn.sim.timing import estimate

    measured = {
        (r["group"], json.dumps(r["params"], sort_keys=True), r["cold"]): r for r in data["rows"]
    }
    errors: dict[str, list[float]] = {}
    for c in calibrate.cases():
        row = measured.get((c.group, json.dumps(c.params, sort_keys=True), c.cold))
        if row is None:
            continue
        small = calibrate.small_arguments(c)
        spec = c.kernel.ir(*small)
        grid = c.grid if isinstance(c.grid, tuple) else (c.grid,)
        for n, seconds in zip(c.repeat, row["seconds"], strict=True):
            args = [
                a.shape if isinstance(a, calibrate.Array) else n if a is calibrate.N else a
                for a in c.args
            ]
            e = estimate(spec, (*grid, 1, 1)[:3], args, warm=not c.cold, ghz=row["ghz"])
            errors.setdefault(c.group, []).append(e.seconds / seconds - 1)
            us, model = seconds * 1e6, e.seconds * 1e6
            name = f"{c.group:10} {c.params!s:70.70} n={n:4}"
            print(f"{name} {us:9.2f} us, model {model:9.2f} us {100 * (model / us - 1):+6.0f} %")
    for group, es in errors.items():
        print(f"{group:10} median |error| {100 * statistics.median(map(abs, es)):.0f} %")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path, nargs="*", default=RESULTS)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    data = json.loads(options.source[0].read_text())
    rows = {}  # of equal cases the last one counts
    for source in options.source:
        for r in json.loads(source.read_text())["rows"]:
            rows[r["group"], json.dumps(r["params"], sort_keys=True), r["cold"]] = r
    data["rows"] = list(rows.values())
    TABLE.write_text(json.dumps(rounded(fit(data)), indent=1) + "\n")
    print(TABLE.read_text())
    if options.check:
        check(data)
    return 0


if __name__ == "__main__":
    sys.exit(main())
