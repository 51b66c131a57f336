"""Broken kernels: whatever the text, the front end answers with a TkError or accepts it.

Valid kernels are mutated token by token (deleted, doubled, exchanged, replaced by others'), and
everything that is still Python is read by the front end, and by the CUDA printer if it is accepted.
TKLEARN_FUZZ=n tries n mutations instead of the few that fit a quick test.
"""

from __future__ import annotations

import ast
import io
import linecache
import os
import random
import time
import tokenize
import traceback
from pathlib import Path
from typing import Any

import pytest
from lang_kit import HEAD

import tklearn as tk
from tklearn.lang import types as T

KERNELS = [
    """
@tk.kernel(threads=256)
def k(n: tk.i32, a: tk.f32, x: tk.gl_fl, y: tk.gl_fl):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < n and not i == 7:
        y[i] = a * x[i] + y[i]
""",
    """
@tk.kernel(threads=(32, 8))
def k(src: tk.gl_fl, dst: tk.gl_fl):
    tile = tk.shared_array(tk.f32, 32, 33)
    x = blockIdx.x * 32 + threadIdx.x
    for j in range(0, 32, 8):
        tile[threadIdx.y + j, threadIdx.x] = src[blockIdx.y * 32 + threadIdx.y + j, x]
    block.sync()
    v = tk.vec(src, 4)[threadIdx.x, 0]
    tk.vec(dst, 4)[0, threadIdx.x] = (v[0], v[1], 0, v[3])
    a, b = 1, 2
    a, b = b, a
    tk.atomic_add(dst[a, b], 1.0)
""",
    """
@tk.kernel(warps=4)
def k(x: tk.gl_bf, y: tk.gl_bf, D: tk.const = 64):
    at = (blockIdx.x * 4 + warpid(), 0)
    row = tk.rt_fl(16, D)
    warp.load(row, x, at)
    m = tk.row_max(row)
    row = tk.exp(row - m)
    row /= tk.row_sum(row)
    v = tk.rv(tk.f32, D)
    warp.load(v, x, at)
    v *= tk.rsqrt(tk.sum(v * v) / D + 1e-5)
    warp.tril(row, fill=0.0)
    warp.store(y, row, at)
""",
    """
STAGES = 2
@tk.kernel(warps=4)
def k(A: tk.gl_bf, B: tk.gl_bf, C: tk.gl_bf):
    a_s = tk.shared(tk.st_bf(64, 64), STAGES)
    b_s = tk.shared(tk.st_bf(64, 64), STAGES)
    z = tk.alias(a_s, tk.st_fl(32, 32), 1024)
    a = tk.rt_bf(16, 64)
    b = tk.rt_bf(64, 64, tk.col)
    acc = tk.rt_fl(16, 64)
    warp.zero(acc)
    for k in range(A.cols // 64):
        block.load_async(a_s[k % STAGES], A, (blockIdx.y, k))
        tk.commit_group()
        tk.wait_group(0)
        block.sync()
        here = a_s[k % STAGES]
        warp.load(a, here.subtile(16, 64, (warpid(), 0)))
        warp.load(b, b_s[0])
        warp.mma_AB(acc, a, b)
    warp.store(C, acc, (blockIdx.y * 4 + warpid(), blockIdx.x))
""",
    """
@tk.device
def scale(t, by: tk.f32, twice: tk.const = False):
    t *= by
    if twice:
        t += by

@tk.device
def larger(a: tk.i32, b):
    c = a if a > b else b
    return c

@tk.kernel(threads=32)
def k(y: tk.gl_fl, h: tk.gl_hf, n: tk.i32):
    r = tk.reg_array(tk.f32, 4)
    t = tk.rt_hf(16, 16)
    s = tk.shared(tk.st_hf(16, 16))
    for i in tk.static_range(4):
        r[i] = i / 2
        if i == 2:
            r[i] = t.reg(i)
    scale(t, 2.0, twice=True)
    p: tk.u32 = 3
    while p < n:
        p += 1
        if warp.any(p == 9):
            break
        elif n < 3:
            continue
    f = tk.reg_array(tk.f16, 8)
    warp.ldmatrix(f, s[laneid() % 16, 0], trans=True)
    x = warp.shfl_down(y[0], 1) + larger(n, min(3, n, abs(n)))
    assert n > 2, "text"
    print("n", n, float(n) // 1 if False else ~n)
    y[n % 4] += tk.fma(x, 2.0, -x) + int(x) + (n << 2 | 1)
    return
""",
    """
STAGES = 2
@tk.device
def fetch(r, a, full, A: tk.gl_bf, i):
    tma.expect(full[r.stage], a[r.stage])
    tma.load_async(a[r.stage], A, (blockIdx.y, i), full[r.stage])
    r.advance()

@tk.kernel(warps=8)
def k(A: tk.gl_bf, C: tk.gl_bf, n: tk.i32):
    a = tk.shared(tk.st_bf(64, 64), STAGES)
    full = tk.shared(tk.semaphore, STAGES)
    empty = tk.shared(tk.semaphore)
    if warpid() == 0:
        init_semaphore(empty, 4)
        for s in range(STAGES):
            init_semaphore(full[s], 1)
    block.sync()
    r = tk.ring(STAGES)
    if warpgroup.groupid() == 1:
        warpgroup.decrease_registers(40)
        for t in range(blockIdx.x, n, gridDim.x):
            wait(empty, t % 2)
            fetch(r, a, full, A, t)
    else:
        acc = tk.rt_fl(16, 64)
        p = tk.rt_bf(16, 64)
        for t in range(n):
            wait(full[t % STAGES], r.phase ^ 1)
            warpgroup.mm_ABt(acc, a[0], a[t % 2], fence=False)
            warpgroup.mma_AB(acc, p, a[0])
            warpgroup.mma_async_wait(1)
            arrive(empty, count=2)
        warpgroup.tril(acc)
        warpgroup.store(a[1], acc)
        tma.fence()
        block.sync(1, 128)
        tma.store_async(C, a[1], (0, 0))
        tma.store_async_wait()
        warpgroup.sync(warpgroup.groupid() + 2)
        tma.expect(full[0], a, a[1])
        block.arrive(id=3, threads=64)
""",
]
_EXTRA = """
0 1 -1 2.5 1e30 True None 'text' n y x t s a_s acc at row laneid tk warp block tk.f32 tk.bf16 ( )
[ ] , . : + - * / // % ** @ & | ^ ~ << >> < > == != = += and or not if else for in is lambda def
return break continue pass del range len max tk.exp tk.shared tk.rt_fl threadIdx.x blockDim
99999999999 1/0 [] () {} (1,) x[0] y.rows y.T y.shape _ __name__ math np print f'{n}' *y **y ...
self 10**9 r r.stage r.phase full wait arrive tma warpgroup tk.semaphore tk.ring"""
EXTRA = _EXTRA.split()
TIME = 2.0  # seconds for one text, on a busy machine


def tokens(text: str) -> list[tuple[str, str, int]]:
    """(what stands before it, token, kind) of a text; joined they are the text again."""
    out, place = [], (1, 0)
    lines = text.splitlines(True)
    for t in tokenize.generate_tokens(io.StringIO(text).readline):
        if t.type in (tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER):
            continue
        (row, col), start = place, t.start
        gap = ""
        while row < start[0]:
            gap, row, col = gap + lines[row - 1][col:], row + 1, 0
        out.append((gap + lines[start[0] - 1][col : start[1]], t.string, t.type))
        place = t.end
    return out


PARTS = [tokens(k) for k in KERNELS]
ALL = [t for parts in PARTS for t in parts]
NAMES = [t for t in EXTRA if t.isidentifier()] + [t[1] for t in ALL if t[2] == tokenize.NAME]
VALUES = [t for t in EXTRA if t[0].isalnum() or t[0] in "([{_'-."] + NAMES
OPERATORS = [t[1] for t in ALL if t[2] == tokenize.OP] + [t for t in EXTRA if not t[0].isalnum()]


def mutated(rng: random.Random) -> str:
    parts = [(gap, token) for gap, token, _ in rng.choice(PARTS)]
    kinds = {token: kind for _, token, kind in ALL}
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        i = rng.randrange(10, len(parts))
        gap, token = parts[i]
        kind = rng.randrange(10)
        if kind < 6:  # something of the same kind
            like = OPERATORS if kinds.get(token) == tokenize.OP else VALUES
            token = rng.choice(NAMES if kind < 2 and like is VALUES else like)
        elif kind == 6:
            token = ""
        elif kind == 7:
            token = f"{token} {rng.choice(EXTRA)} "
        else:
            j = rng.randrange(10, len(parts))
            token, parts[j] = parts[j][1], (parts[j][0], token)
        parts[i] = gap, token
    return "".join(gap + token for gap, token in parts)


def read(text: str, file: str, emit: bool = True) -> str:
    """The code of the error that this text gives, "ok", or "" if Python itself refuses it."""
    source = HEAD + text
    try:
        ast.parse(source)
        code = compile(source, file, "exec")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return ""
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    space: dict[str, Any] = {"__name__": "learner"}
    try:
        exec(code, space)
        k = space.get("k")
        if not isinstance(k, tk.Kernel):
            return ""
        static = {n: k.defaults.get(n) for n, t in k.params.items() if isinstance(t, T.ConstType)}
        k.specialise(k.types_of(static), static)
        if emit:
            k.source(**static)
    except tk.TkError as e:
        return e.code if str(e) else "without words"
    except (NameError, TypeError, AttributeError, ZeroDivisionError, ValueError) as e:
        if _in_module(e):
            return ""  # Python's own answer to what stands outside the kernel
        raise
    return "ok"


def _in_module(e: BaseException) -> bool:
    files = [f.filename for f in traceback.extract_tb(e.__traceback__)]
    return not any(str(Path(tk.__file__).parent) in f for f in files if f != tk.__file__)


def test_tokens_are_the_text() -> None:
    for text, parts in zip(KERNELS, PARTS, strict=True):
        assert "".join(gap + token for gap, token, _ in parts).strip() == text.strip()
        assert read(text, "<fuzz valid>") == "ok"


@pytest.mark.filterwarnings("ignore::SyntaxWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("part", range(4))
def test_mutations(part: int) -> None:
    tries = int(os.environ.get("TKLEARN_FUZZ", "2400")) // 4
    codes: dict[str, int] = {}
    for seed in range(part * tries, (part + 1) * tries):
        text = mutated(random.Random(seed))
        start = time.process_time()
        try:
            got = read(text, f"<fuzz {part}>")
        except Exception as e:
            raise AssertionError(f"seed {seed}: {type(e).__name__}: {e}\n{text}") from e
        assert time.process_time() - start < TIME, f"seed {seed} takes long:\n{text}"
        codes[got] = codes.get(got, 0) + 1
    if tries > 100:
        assert len(codes) > 10, codes  # the mutations reach many rules


@pytest.mark.parametrize(
    "body",
    [
        "y[0] = " + "-" * 80 + "n",
        "y[0] = " + "(" * 80 + "n" + ")" * 80,
        "y[0] = " + "-" * 3000 + "n",
        "y[0] = " + " + ".join(["n"] * 2000),
        "y[0] = " + "tk.exp(" * 60 + "0.5" + ")" * 60,
        "y[0] = " + "tk.exp(" * 60 + "y[0]" + ")" * 60,
        "y[0] = " + "abs(" * 150 + "n" + ")" * 150,
        "y[0] = " + "y[" * 60 + "n" + "]" * 60,
        "y[0] = " + "n if n > 1 else " * 60 + "n",
        "y[0] = " + "not " * 90 + "n",
        "y[0] = " + " < ".join(["n"] * 500),
        "y[0] = " + " and ".join(["n"] * 500),
        "y[0] = " + "(n, " * 50 + "n" + ")" * 50,
        "y[0] = 2 ** 2 ** 2 ** 2 ** 2 ** 2",
        "y[0] = 9 ** 999 * 9 ** 999 * 9 ** 999 * 9 ** 999",
        "y[0] = 1 << 4000 << 4000 << 4000",
        "y[0] = math.factorial(10 ** 8)",
        "y[0] = sum(range(10 ** 10))",
        "y[0] = len('a' * 10 ** 12)",
        "y[0] = max(n, " + ", ".join(["n"] * 500) + ")",
        "for i in tk.static_range(10 ** 12):\n        y[i] = 0",
        "for i in tk.static_range(999):\n        for j in tk.static_range(999):\n            pass",
        "\n    ".join("    " * i + "if n > 1:" for i in range(90))
        + "\n"
        + "    " * 91
        + "y[0] = 1",
        "\n    ".join(f"x{i} = n + {i}" for i in range(3000)),
        "t = tk.rt_fl(16, 16 * 10 ** 9)",
        "s = tk.shared_array(tk.f32, 10 ** 9, 10 ** 9)",
    ],
    ids=lambda body: body[:24],
)
def test_large_and_deep_texts(body: str) -> None:
    text = f"@tk.kernel(threads=32)\ndef k(y: tk.gl_fl, n: tk.i32):\n    {body}\n"
    start = time.process_time()
    read(text, "<fuzz large>")
    assert time.process_time() - start < 10


def test_helpers_that_call_helpers_that_call_helpers() -> None:
    """Each specialised once: two calls of each do not double the work."""
    helpers = "".join(
        f"@tk.device\ndef f{i + 1}(a):\n    return f{i}(a) + f{i}(a)\n" for i in range(30)
    )
    text = (
        f"@tk.device\ndef f0(a):\n    return a\n{helpers}"
        "@tk.kernel(threads=32)\ndef k(y: tk.gl_fl, n: tk.i32):\n    y[0] = f30(n)\n"
    )
    start = time.process_time()
    assert read(text, "<fuzz helpers>", emit=False) == "ok"
    assert time.process_time() - start < 5
