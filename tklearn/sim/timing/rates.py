"""What one SM and its share of the GPU do per cycle: the constants of the time estimate.

They come from `h200.json`, which benchmarks/fit_timing.py makes from micro-benchmarks of an H200
and from nothing else. Other GPUs are scaled from it by their rows in devices.py. This file knows no
kernel.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from tklearn import devices

FILE = Path(__file__).with_name("h200.json")


@dataclass(frozen=True)
class Rates:
    """Cycles are of the SM clock; bytes per cycle are of the whole GPU unless said otherwise.

    Attributes:
        ops: operation -> (issue slots, cycles of the special-function unit) for one register of
            each lane of a warp, on one of the SM's four parts.
        latency: cycles from issue to use: math, idiv, branched (an element that branches around a
            slow path), shuffle, swap (an atomic on f32 in shared memory), shared, l1, l2 and dram
            (idle, and as l2_full and dram_full when they are busy all the time), mma, wgmma, tma.
        mma: cycles of one m16n8k16 on a scheduler's tensor core; tf32's m16n8k8 as mma_tf32.
        ldmatrix: cycles of shared memory for each of its wavefronts. turned: cycles of a warp for a
            16 x 16 fragment of B^T, which is loaded right before its products.
        wgmma: columns -> cycles of one m64nNk16. wgmma_shared: cycles of shared memory for each 128
            bytes of its operands.
        copy: cycles in which a thread finds its part of a tile that the block copies.
        batch: 16-byte loads of a tile's copy that a lane has under way before it stores the first.
        barrier: kind -> (cycles, cycles more for each warp) of a meeting.
        sm_l2, sm_write: bytes per cycle that one SM can draw from the L2 cache, and send to it.
        l2_read, l2_write: bytes per cycle of the L2 cache, for all SMs.
        scatter: how much longer the L2 cache takes for single sectors than for those of whole lines
            (stores of register tiles): full ones, and half full ones.
        request: cycles of the L1 cache for an access. broadcast: of shared memory for one word that
            all lanes read. rolled: of a turn of the loop that copies element by element.
        sharing: how many SMs read one place at a time -> how much more they get together, since
            requests of neighbours are merged before the L2 cache.
        dram_read, dram_write, dram_copy: bytes per second.
        l2_bytes: how much of the L2 cache keeps data for a second use.
        dirty: bytes that go to DRAM for each byte that comes into an L2 cache full of other data.
        tma_issue, tma_box: cycles of the TMA engine for each box, and for each 128 bytes.
        launch, launch_cold: seconds of an empty launch that follows another, of one timed alone.
        start, start_cold: seconds until a kernel that does something has its first instructions and
            parameters, and (cold) its first translations of addresses.
        block: cycles that one block more costs an SM. dispatch: cycles between two blocks that the
            GPU starts. atomic: cycles between two atomics on one address.
        error: median relative error on kernels that were not used to fit, as published.
        source: where the numbers come from.
    """

    ops: dict[str, tuple[float, float]]
    latency: dict[str, float]
    mma: float
    mma_tf32: float
    ldmatrix: float
    turned: float
    wgmma: dict[int, float]
    wgmma_shared: float
    copy: float
    batch: int
    barrier: dict[str, tuple[float, float]]
    sm_l2: float
    sm_write: float
    l2_read: float
    l2_write: float
    scatter: tuple[float, float]
    request: float
    broadcast: float
    rolled: float
    sharing: dict[int, float]
    dram_read: float
    dram_write: float
    dram_copy: float
    l2_bytes: float
    dirty: float
    tma_issue: float
    tma_box: float
    launch: float
    launch_cold: float
    start: float
    start_cold: float
    block: float
    dispatch: float
    atomic: float
    ghz: float
    error: float | None
    source: str


@lru_cache(maxsize=1)
def measured() -> Rates:
    """The constants of the H200."""
    d: dict[str, Any] = json.loads(FILE.read_text())
    d["ops"] = {k: (float(a), float(b)) for k, (a, b) in d["ops"].items()}
    d["wgmma"] = {int(k): float(v) for k, v in d["wgmma"].items()}
    d["sharing"] = {int(k): float(v) for k, v in d["sharing"].items()}
    d["barrier"] = {k: (float(a), float(b)) for k, (a, b) in d["barrier"].items()}
    d["scatter"] = tuple(d["scatter"])
    names = {f.name for f in dataclasses.fields(Rates)}
    return Rates(**{k: v for k, v in d.items() if k in names})


@lru_cache(maxsize=16)
def rates(name: str) -> Rates:
    """The constants for a GPU of devices.DEVICES: the H200's, scaled by what differs."""
    own, base = devices.device(name), devices.device("H200")
    r = measured()
    if own is base:
        return r
    memory = own.dram_bytes_per_s / base.dram_bytes_per_s
    tensor = base.tensor_flops_per_clk / own.tensor_flops_per_clk
    # mma.sync reaches 63 % of Hopper's peak; it is the full rate of GPUs without wgmma.
    mma = r.mma if own.arch.sm == 90 else 4096 * 4 / own.tensor_flops_per_clk
    slow = base.fp32_fma_per_clk / own.fp32_fma_per_clk
    l2 = own.sms / base.sms
    return dataclasses.replace(
        r,
        ops={k: (a * max(1.0, slow / 1.0) if slow > 1 else a, b) for k, (a, b) in r.ops.items()},
        mma=mma,
        mma_tf32=r.mma_tf32 * mma / r.mma,
        wgmma={n: c * tensor for n, c in r.wgmma.items()},
        l2_read=r.l2_read * l2,
        l2_write=r.l2_write * l2,
        dram_read=r.dram_read * memory,
        dram_write=r.dram_write * memory,
        dram_copy=r.dram_copy * memory,
        l2_bytes=r.l2_bytes * own.l2_bytes / base.l2_bytes,
        ghz=own.boost_ghz,
        error=None,
        source=f"{r.source}; scaled from the H200 to the {name} by its data sheet: not checked",
    )
