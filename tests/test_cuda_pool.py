"""Registers handed over between warpgroups: a launch that would hang is refused, as the simulator
finds it deadlocked, and no other is."""

from __future__ import annotations

import itertools
import linecache

import numpy as np
import pytest

import tklearn as tk
from tklearn import block, blockIdx, laneid, threadIdx, warpgroup, warpid
from tklearn.cuda import launch, pool
from tklearn.kernels import attention_hopper, gemm_hopper
from tklearn.lang.errors import TkError


def by_group(MORE: int, SAME: int, LESS: int) -> tk.Kernel:
    @tk.kernel(warps=12)
    def by_group(x: tk.gl_fl):
        wg = warpgroup.groupid()
        if wg == 2:
            warpgroup.decrease_registers(LESS)
        elif wg > 0:
            warpgroup.increase_registers(SAME)
        else:
            warpgroup.increase_registers(MORE)
        if laneid() == 0:
            x[warpid()] = 1.0

    return by_group


def by_warp(MORE: int, SAME: int, LESS: int) -> tk.Kernel:
    """The same in other words, with a loop, names and a helper."""

    @tk.device
    def give(yes: tk.bool_):
        if yes:
            warpgroup.decrease_registers(LESS)

    @tk.kernel(warps=12)
    def by_warp(x: tk.gl_fl):
        last = 2
        first = warpid() // 4
        total = 0.0
        for _ in range(x.cols):
            total += 1.0
        block.sync()
        give(first == last)
        if first != last and first * 4 <= 0:
            warpgroup.increase_registers(MORE)
        elif first >= 1 and first != last:
            warpgroup.increase_registers(SAME)
        if laneid() == 0:
            x[warpid()] = total * 0.0 + 1.0

    return by_warp


@pytest.mark.parametrize("make", [by_group, by_warp])
def test_what_is_refused_is_what_deadlocks(make) -> None:
    refused = 0
    for more, same, less in itertools.product((168, 232, 240), (176, 240), (24, 32, 160)):
        kernel, x = make(more, same, less), np.zeros(12, np.float32)
        wrong = pool.problem(kernel.ir(x))
        assert (wrong is not None) == (more + same + less > 504)
        if wrong is None:
            kernel.sim[1](x)
            assert (x == 1).all()
            continue
        refused += 1
        assert f"{more} + {same} + {less} = {more + same + less}" in wrong[0]
        assert "168 each, 504" in wrong[0]
        with pytest.raises(tk.Deadlock):
            kernel.sim[1](x)
    assert 5 < refused < 18


def test_a_launch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "device_facts", lambda d: ("H200", 90, 227 * 1024))
    x = np.zeros(12, np.float32)
    with pytest.raises(TkError, match="wait for ever") as e:
        launch.check_device(by_group(240, 240, 32).ir(x), 0)
    assert e.value.code == "TK409"
    assert "504 or less" in str(e.value)
    assert e.value.loc is not None
    assert "increase_registers(MORE)" in linecache.getline(e.value.loc.file, e.value.loc.line)
    launch.check_device(by_group(240, 240, 24).ir(x), 0)


def test_what_depends_on_more_is_left_to_the_simulator() -> None:
    @tk.kernel(warps=8)
    def on_data(x: tk.gl_fl, n: tk.i32):
        if n > 0:
            warpgroup.increase_registers(240)

    @tk.kernel(warps=8)
    def on_block(x: tk.gl_fl, n: tk.i32):
        for _ in range(n):
            if blockIdx.x == 0:
                warpgroup.increase_registers(240)

    @tk.kernel(warps=8)
    def leaves(x: tk.gl_fl, n: tk.i32):
        if threadIdx.x >= 128:
            return
        warpgroup.increase_registers(240)

    for k in (on_data, on_block, leaves):
        assert pool.problem(k.ir(np.zeros(8, np.float32), 1)) is None


def test_the_gallery_is_not_refused() -> None:
    flat = [np.zeros((8, 8), tk.tensor.NUMPY_DTYPES["bf16"])] * 3
    for c in gemm_hopper.COSTS:
        for make in (gemm_hopper.simple, gemm_hopper.persistent):
            k = make(tk.bf16, c).ir(*flat)
            assert pool.wishes(k.body)
            assert pool.problem(k) is None
    for d in (64, 128):
        four = [np.zeros((1, 1, 8, d), tk.tensor.NUMPY_DTYPES["bf16"])] * 4
        for make in (attention_hopper.make, attention_hopper.persistent):
            assert pool.problem(make(tk.bf16, d).ir(*four, 0.1)) is None
