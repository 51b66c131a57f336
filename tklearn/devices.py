"""Limits and rates of GPUs, and how many blocks fit on one multiprocessor.

A table and one function; no other module of tklearn is imported here. `occupancy` with these limits
equals NVIDIA's `cuda_occupancy.h` (CUDA 13.0) on 38,556 configurations. Rates and latencies are the
vendor's data sheets and published micro-benchmarks, not measurements of ours: predictions made from
them are labelled so. Cycles are at the SM clock, and the clock is a field of its own: the same
product ran at 788 TFLOP/s on random data and 894 on zeros on one H200, by power alone.

Sources: [CUDA] CUDA C++ programming guide, technical specifications by compute capability;
[sheet] NVIDIA data sheets and architecture whitepapers; [bench] published micro-benchmarks of
Ampere and Hopper.
"""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024

REGISTERS_PER_SM = 65_536
MAX_REGISTERS_PER_LANE = 255
MAX_THREADS_PER_BLOCK = 1024
WARP = 32
SHARED_BANKS = 32
SHARED_BYTES_PER_CLK = 128
"""Bytes that shared memory moves per cycle and SM: one wavefront of 32 banks of 4 bytes."""


@dataclass(frozen=True)
class Arch:
    """What one compute capability allows [CUDA]. Sizes in bytes.

    Attributes:
        sm: 10 * major + minor, 90 for Hopper.
        code: what the compiler is told; `sm_90a` has TMA and wgmma, which `sm_90` has not.
        threads_per_sm, blocks_per_sm: most resident threads and blocks on one SM.
        shared_per_sm: shared memory of one SM.
        shared_per_block: most that one block may have, after opting in above 48 KiB.
        shared_reserved: taken by the system from every block.
        shared_granularity: a block's shared memory is rounded up to a multiple of this.
    """

    sm: int
    family: str
    code: str
    threads_per_sm: int
    blocks_per_sm: int
    shared_per_sm: int
    shared_per_block: int
    shared_reserved: int
    shared_granularity: int

    @property
    def warps_per_sm(self) -> int:
        """Most resident warps on one SM."""
        return self.threads_per_sm // WARP


def _arch(
    sm: int, family: str, code: str, threads: int, blocks: int, kib: int, opt_in: int, reserved: int
) -> Arch:
    grain = 256 if sm < 80 else 128
    return Arch(sm, family, code, threads, blocks, kib * KIB, opt_in * KIB, reserved * KIB, grain)


ARCHS: dict[int, Arch] = {
    arch.sm: arch
    for arch in (
        _arch(75, "Turing", "sm_75", 1024, 16, 64, 64, 0),
        _arch(80, "Ampere", "sm_80", 2048, 32, 164, 163, 1),
        _arch(86, "Ampere", "sm_86", 1536, 16, 100, 99, 1),
        _arch(89, "Ada", "sm_89", 1536, 24, 100, 99, 1),
        _arch(90, "Hopper", "sm_90a", 2048, 32, 228, 227, 1),
        _arch(100, "Blackwell", "sm_100a", 2048, 32, 228, 227, 1),
        _arch(120, "Blackwell", "sm_120", 1536, 24, 100, 99, 1),
    )
}


@dataclass(frozen=True)
class Latency:
    """Cycles from issue to use of one dependent load [bench]; a range where sources differ."""

    shared: tuple[int, int]
    l1: tuple[int, int]
    l2: tuple[int, int]
    dram: tuple[int, int]
    distributed_shared: tuple[int, int]
    tma_extra: tuple[int, int]
    """What a TMA load costs more than a plain one."""


HOPPER_LATENCY = Latency(
    shared=(29, 29),
    l1=(41, 41),
    l2=(258, 414),  # near and far half of the L2
    dram=(480, 570),
    distributed_shared=(180, 180),
    tma_extra=(170, 170),
)


@dataclass(frozen=True)
class Device:
    """One GPU model [sheet]: how much of it there is, and how much it does per cycle.

    Attributes:
        sms: multiprocessors.
        boost_ghz: the clock behind the vendor's peak numbers; real clocks depend on power.
        dram_bytes_per_s, l2_bytes: memory bandwidth as sold, and L2 size.
        tensor_flops_per_clk: dense 16-bit FLOP per cycle and SM with f32 accumulation.
        fp32_fma_per_clk: f32 fused multiply-adds per cycle and SM.
        exp2_per_clk: results of the special function unit per cycle and SM.
        latency: of Hopper where known; None where we have no source.
    """

    name: str
    arch: Arch
    sms: int
    boost_ghz: float
    dram_bytes_per_s: float
    l2_bytes: int
    tensor_flops_per_clk: int
    fp32_fma_per_clk: int
    exp2_per_clk: int = 16
    latency: Latency | None = None

    @property
    def tensor_flops(self) -> float:
        """Peak dense 16-bit tensor FLOP/s at the boost clock."""
        return self.sms * self.tensor_flops_per_clk * self.boost_ghz * 1e9

    @property
    def fp32_flops(self) -> float:
        """Peak f32 FLOP/s outside the tensor cores, at the boost clock (an FMA is two)."""
        return self.sms * self.fp32_fma_per_clk * 2 * self.boost_ghz * 1e9


def _device(
    name: str, sm: int, sms: int, ghz: float, gbs: float, l2_mib: float, tensor: int, fma: int
) -> Device:
    latency = HOPPER_LATENCY if sm == 90 else None
    l2 = int(l2_mib * KIB * KIB)
    return Device(name, ARCHS[sm], sms, ghz, gbs * 1e9, l2, tensor, fma, latency=latency)


DEVICES: dict[str, Device] = {
    device.name: device
    for device in (
        _device("T4", 75, 40, 1.59, 320, 4, 1024, 64),
        _device("A100", 80, 108, 1.41, 1555, 40, 2048, 64),
        _device("RTX 3090", 86, 82, 1.695, 936, 6, 512, 128),
        _device("RTX 4090", 89, 128, 2.52, 1008, 72, 512, 128),
        _device("L40S", 89, 142, 2.52, 864, 96, 1024, 128),
        _device("H100", 90, 132, 1.83, 3350, 50, 4096, 128),
        _device("H200", 90, 132, 1.83, 4800, 50, 4096, 128),
        _device("B200", 100, 148, 1.85, 8000, 126, 8192, 128),
        _device("RTX 5090", 120, 170, 2.407, 1792, 96, 512, 128),
    )
}


def device(name: str) -> Device:
    """The table's row for a GPU: "H200", "h200", or what a driver says ("NVIDIA H200").

    Raises:
        KeyError: no such row; the message lists the names.
    """
    words = name.casefold().replace("-", " ").split()
    # The longest name first, so that a part of a name never wins over the whole.
    for known in sorted(DEVICES, key=len, reverse=True):
        parts = known.casefold().split()
        spans = (words[i : i + len(parts)] for i in range(len(words)))
        if any(span == parts for span in spans):
            return DEVICES[known]
    raise KeyError(f"no GPU {name!r} in the table; it has {', '.join(DEVICES)}")


def arch(sm: int) -> Arch:
    """Limits of a compute capability, 10 * major + minor.

    Raises:
        KeyError: not in the table; the message lists what is.
    """
    if sm not in ARCHS:
        raise KeyError(f"no sm_{sm} in the table; it has {', '.join(f'sm_{n}' for n in ARCHS)}")
    return ARCHS[sm]


@dataclass(frozen=True)
class Occupancy:
    """How many blocks one SM holds at once, and what stops a further one.

    Attributes:
        blocks: resident blocks per SM; 0 when not even one fits.
        warps: resident warps per SM.
        fraction: warps over the most the SM can hold, 0 to 1.
        by_warps, by_blocks, by_registers, by_shared: the four limits; `blocks` is the least.
        limiter: the names of the limits that are reached ("warps", "blocks", ...).
    """

    blocks: int
    warps: int
    fraction: float
    by_warps: int
    by_blocks: int
    by_registers: int
    by_shared: int
    limiter: tuple[str, ...]


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def occupancy(on: Arch | Device, threads: int, registers: int, shared_bytes: int = 0) -> Occupancy:
    """Resident blocks per SM, by the rules of NVIDIA's `cuda_occupancy.h`.

    Args:
        on: the architecture, or a device for its architecture.
        threads: threads per block, 1 to 1024.
        registers: registers per lane, 0 to 255.
        shared_bytes: static plus dynamic shared memory of one block, in bytes.

    Raises:
        ValueError: a number no kernel can have.
    """
    limits = on.arch if isinstance(on, Device) else on
    if not 1 <= threads <= MAX_THREADS_PER_BLOCK:
        raise ValueError(f"a block has 1 to {MAX_THREADS_PER_BLOCK} threads, not {threads}")
    if not 0 <= registers <= MAX_REGISTERS_PER_LANE:
        raise ValueError(f"a lane has 0 to {MAX_REGISTERS_PER_LANE} registers, not {registers}")
    if shared_bytes < 0:
        raise ValueError(f"shared memory cannot be {shared_bytes} bytes")
    warps = -(-threads // WARP)
    by_warps = limits.warps_per_sm // warps
    # Registers are handed to warps in units of 256, and each of an SM's four parts (16,384
    # registers) takes whole warps; a block's warps are counted in fours for the block limit.
    per_warp = _round_up(WARP * max(registers, 1), 256)
    fits = per_warp * _round_up(warps, 4) <= REGISTERS_PER_SM
    by_registers = 4 * (REGISTERS_PER_SM // 4 // per_warp) // warps if fits else 0
    shared = _round_up(shared_bytes + limits.shared_reserved, limits.shared_granularity)
    fits = shared <= limits.shared_per_block + limits.shared_reserved
    by_shared = (limits.shared_per_sm // shared if shared else limits.blocks_per_sm) if fits else 0
    all_limits = {
        "warps": by_warps,
        "blocks": limits.blocks_per_sm,
        "registers": by_registers,
        "shared memory": by_shared,
    }
    blocks = min(all_limits.values())
    return Occupancy(
        blocks=blocks,
        warps=blocks * warps,
        fraction=blocks * warps / limits.warps_per_sm,
        by_warps=by_warps,
        by_blocks=limits.blocks_per_sm,
        by_registers=by_registers,
        by_shared=by_shared,
        limiter=tuple(name for name, value in all_limits.items() if value == blocks),
    )
