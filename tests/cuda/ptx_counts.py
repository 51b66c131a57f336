"""What the CUDA of a kernel would make a profiler count, from its PTX: every access of every warp
is noted while the emulator runs it, and costed by tklearn/access.py.

An independent path to the simulator's counters: it shares with them only what one access costs, not
which accesses an operation issues. What ptxas adds or merges is not seen here; the recordings are
for that. This file knows PTX and launches; it compares nothing.
"""

from collections import Counter
from typing import Any

import numpy as np
import ptx_emulator

from tklearn import access


class Counting(ptx_emulator.Block):
    """A block that notes its accesses in `counts`, under the keys of report.METRICS."""

    def __init__(
        self, kernel: ptx_emulator.Kernel, threads: tuple, params: list[bytes], memory: np.ndarray,
        shared: int, block: tuple, grid: tuple, counts: Counter,
    ) -> None:  # fmt: skip
        n = threads[0] * threads[1] * threads[2]
        super().__init__(kernel, n, params, memory, shared)
        i = np.arange(n)
        x, y, _ = threads
        self.special = {
            "%tid.x": i % x, "%tid.y": i // x % y, "%tid.z": i // (x * y),
            "%ntid.x": threads[0], "%ntid.y": threads[1], "%ntid.z": threads[2],
            **{f"%ctaid.{a}": b for a, b in zip("xyz", block)},
            **{f"%nctaid.{a}": b for a, b in zip("xyz", grid)},
        }  # fmt: skip
        self.counts = counts

    def word(self, arg: str) -> np.ndarray:
        if arg in self.special:
            return np.zeros(self.n, np.uint64) + np.asarray(self.special[arg]).astype(np.uint64)
        return super().word(arg)

    def _rows(self, at: np.ndarray, m: np.ndarray) -> np.ndarray:
        """Offsets [warps, 32] of the active lanes, without the warps that have none."""
        lanes = -(-self.n // 32) * 32
        out = np.full(lanes, -1, np.int64)
        out[: self.n] = np.where(m, at, -1)
        rows = out.reshape(-1, 32)
        return rows[(rows >= 0).any(axis=1)]

    def _memory(self, side: str, space: str, at: np.ndarray, width: int, m: np.ndarray) -> None:
        c = self.counts
        if space == "global":
            rows = self._rows(at - ptx_emulator.GLOBAL, m)
            c[f"global_{side}_requests"] += len(rows)
            c[f"global_{side}_sectors"] += int(access.sectors_many(rows, width).sum())
        elif space == "shared":
            self._shared(side, *access.shared_many(side, width, self._rows(at & 0xFFFFFFFF, m)))

    def _shared(self, side: str, wave: np.ndarray, ideal: np.ndarray) -> None:
        self.counts[f"shared_{side}_wavefronts"] += int(wave.sum())
        self.counts[f"shared_{side}_ideal"] += int(ideal.sum())

    def op_ld(self, o: list[str], a: list[str], kind: str, bits: int, m: np.ndarray) -> None:
        space = next((s for s in o if s in ("param", "global", "shared", "local")), "")
        if space in ("global", "shared"):
            width = bits // 8 * len(ptx_emulator._regs(a[0]))
            self._memory("ld", space, self.address(a[1]), width, m)
        super().op_ld(["ld", space], a, kind, bits, m)

    def op_st(self, o: list[str], a: list[str], kind: str, bits: int, m: np.ndarray) -> None:
        space = next(s for s in o if s in ("global", "shared", "local"))
        width = bits // 8 * len(ptx_emulator._regs(a[1]))
        self._memory("st", space, self.address(a[0]), width, m)
        super().op_st(["st", space], a, kind, bits, m)

    def op_cp(self, o: list[str], a: list[str], kind: str, bits: int, m: np.ndarray) -> None:
        if len(a) >= 3:
            size = int(a[2])
            count = self.get(a[3], "u", 32) if len(a) > 3 else np.full(self.n, size)
            source = self.address(a[1]) - ptx_emulator.GLOBAL
            rows = self._rows(source, m & (count > 0))
            self.counts["global_ld_requests"] += len(rows)  # the profiler's metric has them, too
            self.counts["cp_async_bytes"] += size * int(m.sum())
            if size == 16:
                to = self._rows(self.address(a[0]) & 0xFFFFFFFF, m & (count > 0))
                moved, sectors = access.async_sectors_many, access.async_requested_many
                self.counts["cp_async_sectors"] += int(moved(rows, to).sum())
                self.counts["global_ld_sectors"] += int(sectors(rows, to).sum())
            else:
                sectors = int(access.sectors_many(rows, size).sum())
                self.counts["cp_async_sectors"] += sectors
                self.counts["global_ld_sectors"] += sectors
        super().op_cp(o, a, kind, bits, m)

    def op_ldmatrix(self, o: list[str], a: list[str], kind: str, bits: int, m: np.ndarray) -> None:
        rows = self._rows(self.address(a[1]) & 0xFFFFFFFF, m)
        count = len(ptx_emulator._regs(a[0]))
        self._shared("ld", *access.shared_many("ldmatrix", count, rows))
        super().op_ldmatrix(o, a, kind, bits, m)

    def atomic(self, o: list[str], dst: Any, a: list[str], kind: str, bits: int, m: Any) -> None:
        self.counts["atomics"] += int(m.sum())
        if o[1] == "shared":
            rows = self._rows(self.address(a[0]) & 0xFFFFFFFF, m)
            wave = access.shared_many("atom", bits // 8, rows)[0]
            self.counts["shared_atomic_wavefronts"] += int(wave.sum())
        super().atomic(o, dst, a, kind, bits, m)

    def op_mma(self, o: list[str], a: list[str], kind: str, bits: int, m: np.ndarray) -> None:
        shape = next(x for x in o if x.startswith("m16n8k"))
        warps = int(m.sum()) // 32
        self.counts["tensor_instructions"] += warps
        self.counts["tensor_flops"] += warps * 2 * 16 * 8 * int(shape.split("k")[1])
        super().op_mma(o, a, kind, bits, m)


def count(
    ptx: str, entry: str, grid: tuple, threads: tuple, shared: int, args: list[Any]
) -> Counter:
    """The counters of a launch. args: NumPy arrays (views keep their place in the array they are
    views of, which starts at a multiple of 256) and (format, number) pairs for struct.pack. The
    arrays then hold what the kernel wrote."""
    import struct

    kernel = ptx_emulator.parse(ptx)[entry]
    roots, params, size = [], [], 256
    for a in args:
        if not isinstance(a, np.ndarray):
            params.append(struct.pack(*a))
            continue
        root = a
        while isinstance(root.base, np.ndarray):
            root = root.base
        offset = a.ctypes.data - root.ctypes.data
        record = np.zeros(1, np.dtype([("p", "u8"), ("dim", "i4", 4), ("stride", "i8", 3)]))
        record["p"] = ptx_emulator.GLOBAL + size + offset
        record["dim"] = (1,) * (4 - a.ndim) + a.shape
        strides = [s // a.itemsize for s in a.strides[:-1]]
        record["stride"] = [0] * (3 - len(strides)) + strides
        params.append(record.tobytes())
        roots.append((size, root))
        size += -(-root.nbytes // 256) * 256 + 256
    memory = np.zeros(size, np.uint8)
    for at, root in roots:
        memory[at : at + root.nbytes] = np.frombuffer(root.tobytes(), np.uint8)
    counts: Counter = Counter()
    for z in range(grid[2]):
        for y in range(grid[1]):
            for x in range(grid[0]):
                Counting(kernel, threads, params, memory, shared, (x, y, z), grid, counts).run()
    for at, root in roots:
        if root.flags.writeable:
            root[...] = memory[at : at + root.nbytes].view(root.dtype).reshape(root.shape)
    return counts
