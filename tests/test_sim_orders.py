"""Random asynchronous programs: what the simulator says must not depend on the order of the warps.

Programs start correct (rings, exchanges, TMA stores, named barriers, split barriers of three warps)
and get up to three random edits: a line deleted, inserted or swapped, a parity, a count. Whatever
is wrong with them must be reported in every order; what is silent gives the same values in all.
"""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path

import numpy as np
import pytest

import tklearn as tk

HEAD = """import tklearn as tk
from tklearn import arrive, block, init_semaphore, laneid, tma, wait, warp, warpid


@tk.kernel(warps=3)
def kernel(x: tk.gl_fl, y: tk.gl_fl):
    s = tk.shared(tk.sv(tk.f32, 32))
    t = tk.shared(tk.sv(tk.f32, 32))
    full = tk.shared(tk.semaphore)
    empty = tk.shared(tk.semaphore)
    v = 0.0
    if warpid() == 0:
        init_semaphore(full, {full})
        init_semaphore(empty, {empty})
        s[laneid()] = 0.0
        t[laneid()] = 0.0
        tma.fence()
    block.sync()
"""
LOAD = "tma.expect(full, s); tma.load_async(s, x, ({k}, 0), full)"
EXTRA = (
    "arrive(empty)", "arrive(full)", "wait(empty, 0)", "wait(empty, 1)", "wait(full, 0)",
    "wait(full, 1)", "v += s[laneid()]", "t[laneid()] = v", "v += t[laneid()]", "tma.fence()",
    LOAD.format(k=3), "block.sync(1, 64)", "block.arrive(1, 64)", "warp.sync()",
)  # fmt: skip
Lines = list[list[str]]


def ring(laps: int) -> tuple[Lines, int, int]:
    p: Lines = [[], [], []]
    for k in range(laps):
        p[0] += [f"wait(empty, {(k + 1) % 2})"] * (k > 0) + [LOAD.format(k=k)]
        for w in (1, 2):
            p[w] += [f"wait(full, {k % 2})", "v += s[laneid()]", "arrive(empty)"]
    return p, 1, 2


def exchange(laps: int) -> tuple[Lines, int, int]:
    p: Lines = [[], [], []]
    for k in range(laps):
        p[1] += [f"wait(full, {(k + 1) % 2})"] * (k > 0) + ["t[laneid()] = v", "arrive(empty)"]
        p[0] += [f"wait(empty, {k % 2})", "v += t[laneid()]", "arrive(full)"]
    return p, 1, 1


def through(laps: int) -> tuple[Lines, int, int]:
    store = ["wait(empty, 0)", "tma.store_async(y, t, (2, 0))", "tma.store_async_wait()"]
    change = ["v += s[laneid()]", "t[laneid()] = v", "tma.fence()", "arrive(empty)"]
    return [[LOAD.format(k=0)], ["wait(full, 0)", *change], store], 1, 1


def named(laps: int) -> tuple[Lines, int, int]:
    p: Lines = [[], [], []]
    for k in range(laps):
        p[0] += ["block.sync(2, 64)"] * (k > 0) + ["t[laneid()] = v", "block.arrive(1, 64)"]
        p[1] += ["block.sync(1, 64)", "v += t[laneid()]"]
        p[1] += ["block.arrive(2, 64)"] * (k < laps - 1)
    return p, 1, 1


def stages(laps: int) -> tuple[Lines, int, int]:
    meet = "block.sync(1, 96)"
    p: Lines = [[], [], []]
    for k in range(laps):
        change = [f"wait(full, {k % 2})", "t[laneid()] = s[laneid()]", "tma.fence()"]
        p[0] += [LOAD.format(k=k), *change, meet, meet]
        p[1] += [meet, "v += t[laneid()]", meet]
        p[2] += [meet, f"tma.store_async(y, t, ({k}, 0))", "tma.store_async_read_wait()", meet]
    return p, 1, 1


def split(laps: int) -> tuple[Lines, int, int]:
    p: Lines = [[], [], []]
    for k in range(laps):
        for w in range(3):
            p[w] += ["t[laneid()] = v" if w == k % 3 else "v += 1.0"]
            p[w] += ["arrive(empty)", f"wait(empty, {k % 2})", "v += t[laneid()]"]
            p[w] += ["arrive(full)", f"wait(full, {k % 2})"]
    return p, 3, 3


BASES = (ring, exchange, through, named, stages, split)


def make(seed: int) -> str:
    """A program with random edits."""
    r = random.Random(seed)
    p, full, empty = r.choice(BASES)(r.randint(1, 3))
    for _ in range(r.choice((1, 1, 1, 2, 2, 3))):
        kind, w = r.choice("ddisscp"), r.choice([w for w in range(3) if p[w]])
        i = r.randrange(len(p[w]))
        if kind == "d" and sum(map(len, p)) > 1:
            del p[w][i]
        elif kind == "i":
            p[w].insert(i, r.choice(EXTRA))
        elif kind == "s":
            j = (i + 1) % len(p[w])
            p[w][i], p[w][j] = p[w][j], p[w][i]
        elif kind == "c":
            full, empty = max(1, full + r.choice((-1, 0, 1))), max(1, empty + r.choice((-1, 0, 1)))
        elif p[w][i].startswith("wait"):
            p[w][i] = p[w][i].translate(str.maketrans("01", "10"))
    return text_of(p, full, empty)


def text_of(p: Lines, full: int, empty: int) -> str:
    text = HEAD.format(full=full, empty=empty)
    for w in range(3):
        body = "\n        ".join(x for line in p[w] for x in line.split("; "))
        text += f"    if warpid() == {w}:\n        {body or 'pass'}\n"
    return text + "    y[3 + warpid(), laneid()] = v\n"


def load(path: Path, source: str):
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.kernel


ORDERS = [
    {}, {"schedule": "reverse"}, *({"schedule": "random", "seed": s} for s in range(5)),
    *({"delay": {w: 3}} for w in range(3)),
]  # fmt: skip


def outcome(kernel, **options) -> tuple[str, bytes]:
    x, y = np.arange(128, dtype=np.float32).reshape(4, 32), np.zeros((6, 32), np.float32)
    try:
        kernel.sim[1](x, y, **options)
    except tk.KernelFault as e:
        return f"reported {e}", b""
    return "silent", y.tobytes()


@pytest.mark.parametrize("laps", [1, 2, 3, 7])
@pytest.mark.parametrize("base", BASES)
def test_unedited_programs_are_silent(tmp_path, base, laps):
    laps = min(laps, 3) if base in (ring, stages) else laps  # they have rows of their own
    kernel = load(tmp_path / f"{base.__name__}{laps}.py", text_of(*base(laps)))
    results = [outcome(kernel, **options) for options in ORDERS]
    assert {said for said, _ in results} == {"silent"}
    assert len({bits for _, bits in results}) == 1


@pytest.mark.parametrize("part", range(4))
def test_no_order_hides_a_fault(tmp_path, part):
    found = 0
    for seed in range(part * 25, part * 25 + 25):
        source = make(seed)
        kernel = load(tmp_path / f"orders{seed}.py", source)
        results = [outcome(kernel, **options) for options in ORDERS]
        kinds = {said[:6] for said, _ in results}
        assert len(kinds) == 1, (seed, source, *(said for said, _ in results))
        assert len({bits for _, bits in results}) == 1, (seed, source)
        found += "report" in kinds
    assert 3 < found < 24  # both kinds of program occur
