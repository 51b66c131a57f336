"""Race reports against an oracle that compares all pairs of accesses of random programs.

Programs of two warps store to, load from and add atomically to one array between barriers of both
kinds. A race is two accesses of one element by two threads, neither both loads nor both atomics, in
one interval between block barriers, and within a warp in one interval between its own syncs. The
simulator must report one if and only if there is one, whatever the schedule and however many blocks
it runs at once.
"""

from __future__ import annotations

import importlib.util
import random
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from tklearn.lang.errors import Race

T = 64
INDEX = {
    "t": lambda t, b: t,
    "63 - t": lambda t, b: 63 - t,
    "t ^ 1": lambda t, b: t ^ 1,
    "t // 2": lambda t, b: t // 2,
    "t * 3 % 64": lambda t, b: t * 3 % 64,
    "t % 32": lambda t, b: t % 32,
    "5": lambda t, b: 5,
    "(t + b) % 64": lambda t, b: (t + b) % 64,
    "t ^ b": lambda t, b: t ^ b,
    "t // 2 * 2 + b % 2": lambda t, b: t // 2 * 2 + b % 2,
}
WHO = {
    "t >= 0": lambda t, b: True,
    "t < 32": lambda t, b: t < 32,
    "t % 2 == 0": lambda t, b: t % 2 == 0,
    "t == 7": lambda t, b: t == 7,
    "t >= b": lambda t, b: t >= b,
    "warpid() == 1": lambda t, b: t >= 32,
}
HEAD = """
import tklearn as tk
from tklearn import block, blockIdx, threadIdx, warp, warpid


@tk.kernel(threads=64)
def kernel(y: tk.gl_fl):
    s = tk.shared_array(tk.f32, 64)
    t = threadIdx.x
    b = blockIdx.x
    v = 0.0
    s[t] = 1.0
    block.sync()
"""


def make(seed: int, atomics: bool) -> tuple[str, list[tuple]]:
    """Source text, and its steps: ("sync", kind) or (who, [(index, kind of access)])."""
    r = random.Random(seed)
    lines, steps = [], []
    by_block = r.random() < 0.5
    names = list(INDEX) if by_block else list(INDEX)[:7]
    easy = ["t"] * 6 if r.random() < 0.5 else []
    for k in range(r.randint(2, 7)):
        kind = r.random()
        if kind < 0.35:
            name = r.choice(["block", "warp"])
            lines.append(f"    {name}.sync()")
            steps.append(("sync", name))
            continue
        who = r.choice(["t >= 0"] * 3 + list(WHO)[: 6 if by_block else 4])
        i, j = r.choice(names + easy), r.choice(names + easy)
        form = r.randint(0, 6 if atomics else 3)
        text, touched = {
            0: (f"s[{i}] = v + {k}.37 * t", [(i, "store")]),
            1: (f"v += s[{i}]", [(i, "load")]),
            2: (f"s[{i}] = s[{j}] + 1.37 * t", [(j, "load"), (i, "store")]),
            3: (f"v += s[{i}] * s[{j}]", [(i, "load"), (j, "load")]),
            4: (f"tk.atomic_add(s[{i}], 1.0)", [(i, "atomic")]),
            5: (f"v += tk.atomic_add(s[{i}], 1.0 * t)", [(i, "atomic")]),
            6: (f"s[{j}] = tk.atomic_exch(s[{i}], v)", [(i, "atomic"), (j, "store")]),
        }[form]
        lines += [f"    if {who}:", f"        {text}"]
        steps.append((who, touched))
    lines.append("    y[b * 64 + t] = v")
    return HEAD + "\n".join(lines) + "\n", steps


def races(steps: list[tuple], blocks: int) -> bool:
    for b in range(blocks):
        by_element: dict[int, list[tuple[int, str, int, int]]] = {}
        wide = narrow = 0
        for head, tail in steps:
            if head == "sync":
                wide += tail == "block"
                narrow += 1
                continue
            for t in range(T):
                if WHO[head](t, b):
                    for index, kind in tail:
                        by_element.setdefault(INDEX[index](t, b), []).append(
                            (t, kind, wide, narrow)
                        )
        for touched in by_element.values():
            for (t, k1, w1, n1), (u, k2, w2, n2) in combinations(set(touched), 2):
                ordered = w1 != w2 or (t // 32 == u // 32 and n1 != n2)
                if t != u and not ordered and (k1 != k2 or k1 == "store"):
                    return True
    return False


def load(path: Path, source: str):
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.kernel


def report(kernel, *args, **options) -> str:
    """The code of the race that the simulator reports, or ""."""
    try:
        kernel.sim[3](*args, **options)
    except Race as e:
        return e.code
    return ""


@pytest.mark.parametrize("part", range(8))
def test_reports_races_and_only_races(tmp_path, part):
    found = 0
    for seed in range(part * 40, part * 40 + 40):
        source, steps = make(seed, atomics=seed % 2 == 1)
        kernel = load(tmp_path / f"races{seed}.py", source)
        want = races(steps, 3)
        found += want
        for options in ({}, {"schedule": "reverse"}, {"batch": False, "schedule": "random"}):
            y = np.zeros(3 * T, np.float32)
            assert (report(kernel, y, **options) in ("TK500", "TK501")) == want, source
    assert 5 < found < 38  # both kinds of program occur


@pytest.mark.parametrize("part", range(4))
def test_global_memory(tmp_path, part):
    """The same programs on a part of a global array for each block."""
    found = 0
    for seed in range(1000 + part * 40, 1000 + part * 40 + 40):
        source, steps = make(seed, atomics=seed % 2 == 1)
        source = source.replace("y: tk.gl_fl", "y: tk.gl_fl, g: tk.gl_fl")
        source = source.replace("    s = tk.shared_array(tk.f32, 64)\n", "")
        source = source.replace("s[", "g[b * 64 + ").replace(
            "    g[b * 64 + t] = 1.0\n    block.sync()\n", ""
        )
        kernel = load(tmp_path / f"global{seed}.py", source)
        want = races(steps, 3)
        found += want
        for options in ({}, {"schedule": "reverse"}, {"batch": False, "schedule": "random"}):
            y, g = np.zeros(3 * T, np.float32), np.zeros(3 * T, np.float32)
            assert (report(kernel, y, g, **options) in ("TK500", "TK501")) == want, (
                seed,
                options,
                source,
            )
    assert 5 < found < 38
