"""The table of GPUs and the occupancy rule."""

from __future__ import annotations

import pytest

from tklearn.devices import ARCHS, DEVICES, arch, device, occupancy

# (sm, threads, registers, shared bytes) -> blocks, as NVIDIA's cuda_occupancy.h of CUDA 13.0 has
# it with the largest shared-memory carve-out; picked from 38,556 equal ones, each for another
# limiter or a boundary.
HEADER = [
    (75, 33, 232, 1, 4), (75, 160, 1, 4096, 6), (75, 192, 232, 65536, 1), (75, 288, 64, 0, 3),
    (75, 544, 64, 65536, 1), (75, 1000, 0, 49152, 1), (75, 64, 255, 16384, 4),
    (80, 64, 48, 16384, 9), (80, 32, 48, 4096, 32), (80, 160, 168, 65537, 2),
    (80, 384, 48, 4096, 3), (80, 544, 72, 65537, 1), (80, 1000, 32, 65536, 2),
    (80, 1024, 0, 101376, 1), (86, 128, 33, 232448, 0), (86, 192, 40, 98304, 1),
    (86, 1000, 160, 65537, 0), (86, 512, 33, 32768, 3), (86, 96, 40, 4096, 16),
    (89, 33, 0, 4096, 20), (89, 96, 160, 4096, 4), (89, 192, 200, 65537, 1), (89, 64, 33, 1, 24),
    (90, 33, 33, 232448, 1), (90, 32, 80, 0, 24), (90, 64, 16, 16384, 13),
    (90, 128, 232, 114688, 2), (90, 768, 0, 16384, 2), (90, 160, 232, 232448, 1),
    (100, 160, 80, 49152, 4), (100, 128, 48, 0, 10), (100, 512, 1, 232448, 1),
    (120, 32, 96, 4096, 20), (120, 384, 64, 49152, 2), (120, 128, 255, 0, 2),
    (120, 1024, 48, 49153, 1),
]  # fmt: skip


@pytest.mark.parametrize(("sm", "threads", "registers", "shared", "blocks"), HEADER)
def test_occupancy_equals_the_header(
    sm: int, threads: int, registers: int, shared: int, blocks: int
) -> None:
    assert occupancy(arch(sm), threads, registers, shared).blocks == blocks


def test_occupancy_says_what_limits() -> None:
    h200 = device("H200")
    full = occupancy(h200, 128, 32)
    assert (full.blocks, full.warps, full.fraction) == (16, 64, 1.0)
    assert full.limiter == ("warps", "registers")
    shared = occupancy(h200, 128, 32, 100 * 1024)
    assert (shared.blocks, shared.limiter) == (2, ("shared memory",))
    assert occupancy(h200, 32, 32).limiter == ("blocks",)
    assert occupancy(h200, 32, 32).fraction == 0.5
    assert occupancy(h200, 1024, 255).blocks == 0
    assert occupancy(h200, 1024, 255).limiter == ("registers",)


def test_shared_memory_up_to_the_opt_in_limit_and_no_byte_more() -> None:
    for limits in ARCHS.values():
        assert occupancy(limits, 32, 16, limits.shared_per_block).blocks == 1
        assert occupancy(limits, 32, 16, limits.shared_per_block + 1).blocks == 0


@pytest.mark.parametrize(
    "numbers", [(0, 32, 0), (1025, 32, 0), (128, 256, 0), (128, -1, 0), (128, 32, -1)]
)
def test_impossible_numbers(numbers: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match=r"\d"):
        occupancy(arch(90), *numbers)


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("H200", "H200"),
        ("h200", "H200"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("rtx 3090", "RTX 3090"),
        ("Tesla T4", "T4"),
    ],
)
def test_names(name: str, row: str) -> None:
    assert device(name).name == row


@pytest.mark.parametrize("name", ["", "H20", "RTX", "GeForce RTX 3080", "40"])
def test_unknown_names_are_not_guessed(name: str) -> None:
    with pytest.raises(KeyError, match="H200"):
        device(name)


def test_unknown_architecture() -> None:
    with pytest.raises(KeyError, match="sm_90"):
        arch(70)


@pytest.mark.parametrize(
    ("name", "tensor", "fp32"),
    [
        # TFLOP/s of the data sheets, dense 16-bit with f32 accumulation, and f32.
        ("T4", 65, 8.1),
        ("A100", 312, 19.5),
        ("RTX 3090", 71, 35.6),
        ("RTX 4090", 165.2, 82.6),
        ("L40S", 362, 91.6),
        ("H200", 989, 61.8),
        ("B200", 2250, 70),
        ("RTX 5090", 209.5, 104.8),
    ],
)
def test_rates_reproduce_the_data_sheets(name: str, tensor: float, fp32: float) -> None:
    assert device(name).tensor_flops / 1e12 == pytest.approx(tensor, rel=0.015)
    assert device(name).fp32_flops / 1e12 == pytest.approx(fp32, rel=0.015)


def test_most_of_a_h100s_arithmetic_is_in_its_tensor_cores() -> None:
    h100 = DEVICES["H100"]
    assert h100.tensor_flops / (h100.tensor_flops + h100.fp32_flops) == pytest.approx(
        0.94, abs=0.005
    )


def test_hopper_is_compiled_for_its_own_instructions() -> None:
    assert arch(90).code == "sm_90a"
    assert {limits.code for limits in ARCHS.values()} >= {"sm_75", "sm_80", "sm_86", "sm_89"}
