"""Timing a launch on the GPU, with events around replays of a CUDA graph.

Knows streams, events and graphs through CuPy, and how to keep a measurement from changing the
caller's arrays. It must not know kernels.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tklearn.cuda.launch import Launcher

LAUNCHES = 10  # in one graph: the processor's own launch overhead is not measured
BUDGET = 0.05  # seconds to spend


def time_launches(enqueue: Callable[[int], None], stream: int, device: int) -> float:
    """Median seconds of one launch, its data as warm in L2 as the launches before leave it.

    enqueue(stream): puts one launch on a raw stream. `stream`: work on it is waited for first.
    """
    import cupy

    with cupy.cuda.Device(device):
        cupy.cuda.runtime.streamSynchronize(stream)
        side = cupy.cuda.Stream(non_blocking=True)
        with side:
            enqueue(side.ptr)
            side.synchronize()
            side.begin_capture()
            for _ in range(LAUNCHES):
                enqueue(side.ptr)
            graph = side.end_capture()
            start, end = cupy.cuda.Event(), cupy.cuda.Event()
            samples: list[float] = []
            while len(samples) < 5 or (len(samples) < 200 and sum(samples) < BUDGET):
                start.record(side)
                graph.launch(stream=side)
                end.record(side)
                end.synchronize()
                samples.append(cupy.cuda.get_elapsed_time(start, end) / 1e3)
    return statistics.median(samples[1:]) / LAUNCHES


def scratch(
    one: Launcher, values: list[Any], objects: Sequence[Any]
) -> tuple[list[Any], list[Any]]:
    """The argument fields with copies in place of what the kernel writes, and the copies.

    A copy is contiguous: what is timed may differ from the launch where a caller's view was not.
    """
    fields, keep, at = list(values), [], 0
    for i, (is_array, a) in enumerate(zip(one.arrays, objects, strict=True)):
        n = 1 if not is_array else 8 if one.maps[i] is None else 9
        if is_array and i in one.written:
            if hasattr(a, "data_ptr"):
                c = a.detach().contiguous().clone()
                made = one.array_fields(i, c.data_ptr(), tuple(c.shape), c.stride())
            else:
                c = a.copy(order="C")
                strides = tuple(s // c.itemsize for s in c.strides)
                made = one.array_fields(i, c.data.ptr, c.shape, strides)
            fields[at : at + n] = made
            keep.append(c)
        at += n
    return fields, keep
