"""The rows of the op table for asynchrony: semaphores, TMA, warpgroups, named barriers.

Facts of the hardware: mbarrier, cp.async.bulk.tensor, wgmma, bar.sync and setmaxnreg as PTX has
them (sm_80 for mbarrier, sm_90a for the rest).
"""

from __future__ import annotations

from typing import Any

from tklearn.lang import async_rules as rules
from tklearn.lang.rules import mask, statement
from tklearn.lang.table import Op, row

# Effects whose statement may have to wait for others, or is seen by them: the simulator gives way.
YIELDING = frozenset(
    {
        "sem",
        "wait",
        "tma_load",
        "tma_store",
        "tma_group",
        "wgmma",
        "wgmma_group",
        "named",
        "registers",
    }
)
REDUCE_DTYPES = {"add": "f32 f16 bf16", "min": "f16 bf16", "max": "f16 bf16"}


def blocks(op: Op, args: list[Any]) -> bool:
    """May a call of this row have to wait? A block.sync that names a barrier is one of these."""
    return op.effect in YIELDING or (op.name == "block.sync" and bool(args))


def add() -> None:
    """Puts the rows into the table."""
    _semaphores()
    _tma()
    _products()
    _warpgroup_memory()
    _roles()


def _semaphores() -> None:
    row(
        "init_semaphore",
        "warp",
        "sem:sem count:index",
        rules.semaphore_count,
        "sem",
        "Prepares a semaphore: each of its phases ends after `count` arrivals and all expected "
        "bytes. A barrier must follow before other warps use it.",
        arch=80,
    )
    row(
        "invalidate_semaphore",
        "warp",
        "sem:sem",
        rules.semaphore,
        "sem",
        "Ends a semaphore, so that its memory may be used for something else.",
        arch=80,
    )
    row(
        "wait",
        "warp",
        "sem:sem phase:index",
        rules.wait,
        "wait",
        "Waits until the phase of this parity (0 or 1) has ended; a fresh semaphore is in phase 0, "
        "so wait(s, 1) passes at once. Orders what was done before the arrivals.",
        arch=80,
    )
    row(
        "arrive",
        "warp",
        "sem:sem count:index",
        rules.semaphore_count,
        "sem",
        "Arrives `count` times, once for the whole warp: what its lanes did before is done for "
        "whoever waits.",
        arch=80,
        defaults={"count": 1},
    )


def _tma() -> None:
    row(
        "tma.expect",
        "warp",
        "sem:sem tiles:tiles",
        rules.expect,
        "sem",
        "Arrives once and lets the phase wait also for the bytes of all tiles named.",
        arch=90,
    )
    row(
        "tma.expect_bytes",
        "warp",
        "sem:sem bytes:index",
        rules.semaphore_count,
        "sem",
        "Arrives once and lets the phase wait also for so many bytes.",
        arch=90,
    )
    row(
        "tma.load_async",
        "warp",
        "dst:dst src:src coord:coord sem:sem",
        rules.tma_load,
        "tma_load",
        "Starts copying a tile into shared memory, once for the warp; its bytes complete on the "
        "semaphore. Past the end of the array: zeros.",
        arch=90,
    )
    row(
        "tma.store_async",
        "warp",
        "dst:dst src:src coord:coord",
        rules.tma_store,
        "tma_store",
        "Starts copying a shared tile to global memory, once for the warp, as a group of its own. "
        "Past the end of the array: nothing.",
        arch=90,
    )
    for kind, dtypes in REDUCE_DTYPES.items():
        does = {"add": "adds to", "min": "takes the minimum with", "max": "takes the maximum with"}
        row(
            f"tma.store_{kind}_async",
            "warp",
            "dst:dst src:src coord:coord",
            rules.tma_reduce(kind, dtypes.split()),
            "tma_store",
            f"As tma.store_async, but {does[kind]} what is in global memory, element by element "
            f"({dtypes.replace(' ', ', ')}).",
            arch=90,
        )
    row(
        "tma.prefetch",
        "warp",
        "tile:ref_tile src:src coord:coord",
        rules.tma_load,
        "prefetch",
        "Brings into the L2 cache what tma.load_async would copy into this tile; its memory is not "
        "touched.",
        arch=90,
    )
    row(
        "tma.store_commit_group",
        "warp",
        "",
        statement,
        "tma_group",
        "Closes a group of TMA stores of this warp; each store has made one of its own already.",
        arch=90,
    )
    row(
        "tma.store_async_wait",
        "warp",
        "n:static",
        rules.groups(rules.STORE_GROUPS),
        "tma_group",
        "Waits until all but the newest n TMA stores of this warp are complete.",
        arch=90,
        defaults={"n": 0},
    )
    row(
        "tma.store_async_read_wait",
        "warp",
        "n:static",
        rules.groups(rules.STORE_GROUPS),
        "tma_group",
        "Waits until all but the newest n TMA stores of this warp have read their shared tiles, "
        "which may be written again then.",
        arch=90,
        defaults={"n": 0},
    )
    row(
        "tma.fence",
        "warp",
        "",
        statement,
        "fence",
        "Makes this warp's ordinary writes to shared memory visible to TMA and wgmma; a barrier "
        "must follow where another warp starts those.",
        arch=90,
    )


def _products() -> None:
    order = "k in steps of the instruction; inside a step as the tensor core does"
    for add_to in (True, False):
        for ta in (False, True):
            for tb in (False, True):
                name = "A" + "t" * ta + "B" + "t" * tb
                row(
                    f"warpgroup.{'mma' if add_to else 'mm'}_{name}",
                    "group",
                    "acc:acc a:src b:src fence:static commit:static",
                    rules.wgmma(ta, tb, add_to),
                    "wgmma",
                    f"Starts acc {'+=' if add_to else '='} {'A^T' if ta else 'A'} @ "
                    f"{'B^T' if tb else 'B'} on the tensor cores; acc, and A in registers, are "
                    "not to be touched before mma_async_wait.",
                    arch=90,
                    order=order,
                    defaults={"fence": True, "commit": True},
                )
    row(
        "warpgroup.mma_fence",
        "group",
        "",
        statement,
        "wgmma_group",
        "Orders writes of registers before the next product; each product begins with one, unless "
        "it is called with fence=False.",
        arch=90,
    )
    row(
        "warpgroup.mma_commit_group",
        "group",
        "",
        statement,
        "wgmma_group",
        "Closes the group of the products started; each product ends with one, unless it is called "
        "with commit=False.",
        arch=90,
    )
    row(
        "warpgroup.mma_async_wait",
        "group",
        "n:static",
        rules.groups(rules.MMA_GROUPS),
        "wgmma_group",
        "Waits until all but the newest n groups of products are complete.",
        arch=90,
        defaults={"n": 0},
    )


def _warpgroup_memory() -> None:
    coord: dict[str, Any] = {"coord": None}
    row(
        "warpgroup.load",
        "group",
        "dst:dst src:src coord:coord",
        rules.group_load,
        "load",
        "Loads 64 rows: each warp its 16 rows of a shared tile or array into a register tile; or a "
        "shared tile from global memory by all 128 threads.",
        defaults=coord,
    )
    row(
        "warpgroup.store",
        "group",
        "dst:dst src:src coord:coord",
        rules.group_store,
        "store",
        "Stores 64 rows: each warp its 16 rows of a shared tile or array; or a shared tile to "
        "global memory by all 128 threads.",
        defaults=coord,
    )
    row(
        "warpgroup.load_async",
        "group",
        "dst:dst src:src coord:coord",
        rules.group_load_async,
        "load_async",
        "Starts copying a tile into shared memory, by the 128 threads of a warpgroup (cp.async).",
    )
    row(
        "warpgroup.tril",
        "group",
        "t:acc diagonal:index fill:value",
        mask,
        "mask",
        "As warp.tril; the rows are those of the warpgroup's 64-row tile.",
        defaults={"diagonal": 0, "fill": 0.0},
    )
    row(
        "warpgroup.triu",
        "group",
        "t:acc diagonal:index fill:value",
        mask,
        "mask",
        "As warp.triu; the rows are those of the warpgroup's 64-row tile.",
        defaults={"diagonal": 0, "fill": 0.0},
    )
    row(
        "warpgroup.make_causal",
        "group",
        "t:acc fill:value",
        mask,
        "mask",
        "As warp.make_causal; the rows are those of the warpgroup's 64-row tile.",
        defaults={"fill": -float("inf")},
    )


def _roles() -> None:
    row(
        "warpgroup.sync",
        "group",
        "id:index",
        rules.barrier_id,
        "named",
        "Barrier number id (1 to 15) for the 128 threads of a warpgroup.",
    )
    row(
        "block.arrive",
        "block",
        "id:index threads:static",
        rules.named_barrier,
        "named",
        "Passes barrier number id without waiting; `threads` counts who comes and who passes, as "
        "in block.sync(id, threads).",
    )
    for does in ("increase", "decrease"):
        row(
            f"warpgroup.{does}_registers",
            "group",
            "n:static",
            rules.registers(does),
            "registers",
            f"{does.capitalize()}s the registers a lane to n (setmaxnreg), for all four warps "
            "of the warpgroup.",
            arch=90,
        )
