"""The SM clock, from inside the GPU: cycles of one block against the nanosecond timer.

Read just after other work it tells the clock under that work, because clocks move in milliseconds.
"""

from __future__ import annotations

from typing import Any

SOURCE = r"""
__device__ unsigned long long nanoseconds() {
    unsigned long long t;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
    return t;
}
__device__ unsigned long long next_tick() {  // the timer moves in steps: wait for one
    const unsigned long long before = nanoseconds();
    unsigned long long now;
    do now = nanoseconds(); while (now == before);
    return now;
}
extern "C" __global__ void clocks(long long* out, long long cycles) {
    const unsigned long long t0 = next_tick();
    const long long c0 = clock64();
    while (clock64() - c0 < cycles) {}
    const unsigned long long t1 = next_tick();
    out[0] = clock64() - c0;
    out[1] = (long long)(t1 - t0);
}
"""
CYCLES = 200_000  # 0.1 ms


class Clock:
    """Measures the clock of the current GPU."""

    def __init__(self) -> None:
        import cupy

        self.cupy: Any = cupy
        self.kernel = cupy.RawKernel(SOURCE, "clocks")
        self.out = cupy.zeros(2, cupy.int64)

    def ghz(self) -> float:
        """Cycles a nanosecond, on the current stream after what runs there."""
        self.kernel((1,), (1,), (self.out, self.cupy.int64(CYCLES)))
        cycles, nanoseconds = (int(x) for x in self.out.get())
        return cycles / max(nanoseconds, 1)
