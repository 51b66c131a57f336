"""Who agrees on a value, and where warps and blocks must act together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lang_kit import load, message, typed

from tklearn.lang import ir
from tklearn.lang.ir import BLOCK, GROUP, LANE, WARP


def levels(tmp_path: Path, threads: Any, body: str) -> dict[str, int]:
    """name -> level of the names that this body declares."""
    lines = "\n".join("    " + x for x in body.strip().splitlines())
    text = (
        f"@tk.kernel(threads={threads})\n"
        f"def k(y: tk.gl_fl, z: tk.gl(tk.i32), n: tk.i32):\n    y[0] = z[0]\n{lines}\n"
    )
    k = typed(load(tmp_path, text).k)
    return {s.sym.name: s.sym.uni.level for s in ir.walk(k.body) if isinstance(s, ir.Decl)}


@pytest.mark.parametrize(
    ("threads", "value", "level"),
    [
        ((32, 8), "threadIdx.y", WARP),
        ((16, 16), "threadIdx.y", LANE),
        ((64, 4), "threadIdx.y", WARP),
        ((128, 4), "threadIdx.y", GROUP),
        ((16, 8, 4), "threadIdx.z", GROUP),
        (256, "warpgroup.groupid()", GROUP),
        (256, "warpgroup.groupid() + n", GROUP),
        (256, "warpgroup.groupid() == 1", GROUP),
        (256, "warpgroup.warpid()", WARP),
        (256, "warpgroup.laneid()", LANE),
        (256, "warpid() // 4", GROUP),
        (256, "warpid() >> 2", GROUP),
        (256, "warpid() // 2", WARP),
        (256, "warpid() < 4", GROUP),
        (256, "warpid() >= 3", WARP),
        (256, "4 <= warpid() < 8", GROUP),
        (256, "threadIdx.x // 128", GROUP),
        (256, "threadIdx.x >> 7", GROUP),
        (256, "threadIdx.x >> 40 % 8", LANE),
        (256, "threadIdx.x < 128", GROUP),
        ((128, 2), "threadIdx.x < 128", GROUP),
        ((64, 4), "threadIdx.x // 128", WARP),
        ((64, 4), "warpid() // 4", GROUP),
        (128, "warpgroup.groupid()", BLOCK),
        (128, "warpid() // 4", BLOCK),
        (128, "warpgroup.warpid()", WARP),
        (256, "z[warpgroup.groupid()]", GROUP),
        (256, "warpgroup.groupid() if n > 2 else 0", GROUP),
        (256, "warpgroup.groupid() + warpid()", WARP),
        (256, "warp.any(warpgroup.groupid() > 0)", GROUP),
        ((8, 4, 8), "threadIdx.z", WARP),
        ((8, 8, 4), "threadIdx.y", LANE),
        ((16, 2, 4), "threadIdx.z", WARP),
        ((1, 32), "threadIdx.x", BLOCK),
        ((32, 1), "threadIdx.y", BLOCK),
        (256, "threadIdx.x", LANE),
        (256, "threadIdx.x // 32", WARP),
        (256, "threadIdx.x >> 5", WARP),
        (256, "threadIdx.x // 64 + 1", WARP),
        (256, "threadIdx.x // 16", LANE),
        ((48, 2), "threadIdx.x // 32", LANE),
        (256, "threadIdx.x < 32", WARP),
        (256, "32 <= threadIdx.x < 96", WARP),
        (256, "64 > threadIdx.x", WARP),
        (256, "threadIdx.x < 40", LANE),
        (256, "threadIdx.x <= 32", LANE),
        (256, "threadIdx.x == 0", LANE),
        (256, "threadIdx.x < n", LANE),
        ((64, 2), "threadIdx.x >= 32", WARP),
        ((48, 2), "threadIdx.x < 32", LANE),
        (48, "threadIdx.x < 32", WARP),
        (256, "warpid()", WARP),
        (32, "warpid()", BLOCK),
        (256, "laneid()", LANE),
        (256, "blockIdx.x * blockDim.x + n", BLOCK),
        (256, "z[blockIdx.x]", BLOCK),
        (256, "z[warpid()]", WARP),
        (256, "z[laneid()]", LANE),
        (256, "warp.any(z[laneid()] > 0)", WARP),
        (256, "warp.ballot(z[laneid()] > 0)", WARP),
        (256, "warp.uniform(z[laneid()])", WARP),
        (256, "warp.shfl(z[laneid()], 0)", WARP),
        (256, "warp.shfl(z[laneid()], laneid())", LANE),
        (256, "warp.shfl_down(z[laneid()], 1)", LANE),
        (256, "warpid() if n > 2 else 0", WARP),
        (256, "1 if laneid() > 2 else 0", LANE),
        (256, "tk.atomic_add(z[0], 1)", LANE),
    ],
)
def test_levels(threads: Any, value: str, level: int, tmp_path: Path) -> None:
    assert levels(tmp_path, threads, f"x = {value}")["x"] == level


def test_assignments_inherit_their_conditions(tmp_path: Path) -> None:
    body = """
a = 0
b = 0
c = 0
d = 0
if laneid() > 3:
    a = 1
    inner = 1
if warpid() > 3:
    b = 1
if n > 3:
    c = 1
for i in range(laneid()):
    d += 1
e = d + 1
f = 0
while f < laneid():
    f += 1
g = 0
for i in range(n):
    if z[laneid()] == i:
        break
    g += 1
h = 0
for i in range(n):
    if z[laneid()] == i:
        continue
    h = i
"""
    got = levels(tmp_path, 256, body)
    expected = dict.fromkeys("adefgh", LANE) | {"b": WARP, "c": BLOCK, "inner": BLOCK}
    assert {k: got[k] for k in expected} == expected


def test_values_flow_round_loops(tmp_path: Path) -> None:
    body = """
a = 0
b = 0
c = 0
for i in range(n):
    c = b
    b = a
    a = laneid()
"""
    assert levels(tmp_path, 256, body) == dict.fromkeys("abc", LANE)


def test_helpers_pass_on_what_they_are_given(tmp_path: Path) -> None:
    text = """
@tk.device
def f(a):
    b = a + 1
    return b

@tk.kernel(threads=64)
def k(y: tk.gl_fl, n: tk.i32):
    y[0] = n
    u = f(n)
"""
    k = typed(load(tmp_path, text).k)
    assert k.body[-1].sym.uni.level == BLOCK  # type: ignore[attr-defined]
    m = load(tmp_path, text.replace("f(n)", "f(laneid())"))
    assert typed(m.k).body[-1].sym.uni.level == LANE  # type: ignore[attr-defined]


ACCEPTED = {
    "after_an_early_exit_of_warps": """
    if warpid() > 1:
        return
    warp.store(y, t, (warpid(), 0))""",
    "lanes_leave_after_the_tile_work": """
    warp.store(y, t, (warpid(), 0))
    if laneid() > 0:
        return
    y[0, 0] = 1""",
    "lanes_continue_after_the_tile_work": """
    for i in range(n):
        warp.store(y, t, (i, 0))
        if laneid() > i:
            continue
        y[0, 0] = 1""",
    "between_lane_branches": """
    if laneid() > 3:
        y[0, 0] = 1
    warp.store(y, t, (0, 0))""",
    "a_loop_until_all_agree": """
    x = y[laneid(), 0]
    while warp.any(x > 0):
        x -= 1
        t += 1
    warp.store(y, t, (0, 0))""",
    "a_barrier_is_checked_when_it_runs": """
    if laneid() > 3:
        block.sync()""",
    "after_an_early_exit_of_a_warpgroup": """
    if warpgroup.groupid() > 0:
        return
    warpgroup.mma_async_wait()""",
    "roles_by_warpgroup": """
    if warpid() < 4:
        warpgroup.mma_async_wait()
    else:
        warpgroup.sync(warpgroup.groupid() + 1)""",
    "a_loop_of_each_warpgroup": """
    for i in range(warpgroup.groupid(), n):
        warpgroup.store(y, t, (i, 0))""",
    "named_barriers_for_some_warps": """
    if warpid() < 2:
        block.sync(warpid() % 2 + 1, 32)
    elif warpid() == 2:
        block.arrive(1, 64)""",
    "lane_values_in_lane_code": """
    if laneid() > 3 and y[0, laneid()] > 2:
        y[laneid(), 0] = t.reg(0)""",
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_no_false_alarm(name: str, tmp_path: Path) -> None:
    text = (
        "@tk.kernel(warps=8)\ndef k(y: tk.gl_fl, n: tk.i32):\n"
        f"    t = tk.rt_fl(16, 16)\n    warp.zero(t){ACCEPTED[name]}\n"
    )
    assert message(tmp_path, text) == ""


@pytest.mark.parametrize(
    ("operation", "tile", "ok"),
    [
        ("block.load(s, y, (0, 0))", "s[n]", True),
        ("block.load(s, y, (0, 0))", "s[warpgroup.groupid()]", False),
        ("warpgroup.load(s, y, (0, 0))", "s[warpgroup.groupid()]", True),
        ("warpgroup.load(s, y, (0, 0))", "s[warpid()]", False),
        ("warp.load(s, y, (0, 0))", "s[warpid()]", True),
    ],
)
def test_tiles_of_helpers(operation: str, tile: str, ok: bool, tmp_path: Path) -> None:
    """A helper's tile is as uniform as the caller's choice of it."""
    text = f"""
@tk.device
def fetch(s, y):
    {operation}

@tk.kernel(warps=8)
def k(y: tk.gl_fl, n: tk.i32):
    s = tk.shared(tk.st_fl(64, 16), 8)
    fetch({tile}, y)
"""
    got = message(tmp_path, text)
    assert got == "" if ok else got.startswith("TK302: the tile of "), got


REFUSED = {
    "after_lanes_left": ("    if laneid() > 3:\n        return\n    t += 1", "TK300", 11),
    "after_lanes_left_a_loop": (
        "    for i in range(n):\n        t += 1\n        if laneid() > i:\n            return",
        "TK300",
        13,
    ),
    "in_a_lane_loop": ("    for i in range(laneid()):\n        t += 1", "TK300", 10),
    "after_a_lane_continue": (
        "    for i in range(n):\n        if laneid() > i:\n            continue\n        t += 1",
        "TK300",
        12,
    ),
    "in_the_head_of_a_lane_loop": (
        "    while warp.any(n > 2):\n        if laneid() > 2:\n            break",
        "TK300",
        12,
    ),
    "in_a_conditional_expression": (
        "    y[0, 0] = warp.shfl(y[0, 0], 0) if laneid() > 2 else 0",
        "TK300",
        10,
    ),
    "by_warpgroup_in_a_block_operation": (
        "    if warpgroup.groupid() == 0:\n        block.load(s, y, (0, 0))",
        "TK301",
        10,
    ),
    "by_warp_in_a_warpgroup_operation": (
        "    for i in range(n):\n        if warpid() == i:\n            break\n"
        "        warpgroup.mma_async_wait()",
        "TK303",
        12,
    ),
    "after_warps_left": (
        "    if warpgroup.warpid() > 0:\n        return\n    warpgroup.store(y, t, (0, 0))",
        "TK303",
        11,
    ),
    "by_warp_in_a_block_operation": (
        "    for i in range(warpid()):\n        block.load(s, y, (0, 0))",
        "TK301",
        10,
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, tmp_path: Path) -> None:
    body, code, line = REFUSED[name]
    text = (
        "@tk.kernel(warps=8)\ndef k(y: tk.gl_fl, n: tk.i32):\n"
        f"    t = tk.rt_fl(16, 16)\n    s = tk.shared(tk.st_fl(16, 16))\n{body}\n"
    )
    got = message(tmp_path, text)
    assert got.startswith(code)
    assert f"hint: line {line} decides by " in got, got


def test_numbers_that_are_never_negative(tmp_path: Path) -> None:
    """Where this says yes, C++ prints plain / and %: it must not be wrong."""
    cases = {
        "threadIdx.x + 3": True,
        "blockIdx.x * 4 + laneid()": True,
        "n": False,
        "n + 3": False,
        "n % 4": True,
        "n & 7": True,
        "n // 4": False,
        "y.rows - 1": False,
        "y.rows // 2": True,
        "max(n, 0)": True,
        "min(n, 0)": False,
        "abs(n)": False,
        "n > 2": True,
        "-n": False,
        "~n": False,
        "tk.i32(tk.u32(n))": False,
        "tk.i32(tk.i64(n) * 4)": False,
        "tk.i64(threadIdx.x)": True,
        "tk.u32(n) >> 1": True,
        "tk.i32(c[0])": True,
        "z[0]": False,
        "1 if n > 2 else 0": True,
        "n if n > 2 else 0": False,
    }
    lines = "".join(f"    x{i} = {v}\n" for i, v in enumerate(cases))
    text = (
        "@tk.kernel(threads=32)\n"
        "def k(y: tk.gl_fl, z: tk.gl(tk.i32), c: tk.gl(tk.u8), n: tk.i32):\n"
        f"    y[0] = z[0] + c[0]\n{lines}"
        "    down = 0\n    up = 0\n    for i in range(n):\n"
        "        up += i\n        down -= 1\n"
        "    for j in range(8, -1, -1):\n        z[0] = j\n"
        "    for j2 in range(n, 8):\n        z[0] = j2\n"
    )
    k = typed(load(tmp_path, text).k)
    found = {s.sym.name: s.sym.nonneg for s in k.body if isinstance(s, ir.Decl)}
    found |= {s.var.name: s.var.nonneg for s in k.body if isinstance(s, ir.For)}
    expected = {f"x{i}": v for i, v in enumerate(cases.values())}
    expected |= {"up": True, "down": False, "i": True, "j2": False}
    assert {n: found[n] for n in expected} == expected


def test_reads_and_writes_of_arrays(tmp_path: Path) -> None:
    text = """
@tk.device
def put(dst, src, i):
    dst[i, 0] = src[i, 0]

@tk.kernel(warps=1)
def k(a: tk.gl_fl, b: tk.gl_fl, c: tk.gl_fl, d: tk.gl(tk.i32), e: tk.gl_fl, f: tk.gl_fl):
    t = tk.rt_fl(16, 16)
    warp.load(t, a, (0, 0))
    warp.store(b, t, (0, 0))
    c[0, 0] += 1
    tk.atomic_add(d[0, 0], 1)
    r = e
    put(r, f, 0)
"""
    k = typed(load(tmp_path, text).k)
    assert {s.name: (s.read, s.written) for s in k.params} == {
        "a": (True, False),
        "b": (False, True),
        "c": (True, True),
        "d": (True, True),
        "e": (False, True),
        "f": (True, False),
    }
