"""Compile-time values: parameters, module and closure names, and what happens when they change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lang_kit import load, typed

import tklearn as tk
from tklearn.lang import ir


def first(k: Any, *args: Any, **consts: Any) -> float:
    y = np.zeros(4, np.float32)
    k[1](y, *args, **consts)
    return float(y[0])


def test_module_names_are_read_at_every_launch(tmp_path: Path) -> None:
    m = load(
        tmp_path,
        """
import types
config = types.SimpleNamespace(scale=2)
SIZES = [1, 2, 3]
TABLE = {"a": 5}

class Limits:
    top = 7

@tk.kernel(threads=1)
def k(y: tk.gl_fl):
    y[0] = N + config.scale * 10 + SIZES[1] * 100 + TABLE["a"] * 1000 + Limits.top * 10000
""",
    )
    assert first(m.k) == 75224
    one = m.k.ir()
    assert m.k.ir() is one  # nothing changed: from the cache
    m.N = 5
    assert first(m.k) == 75225
    m.N = 4
    assert m.k.ir() is one
    m.config.scale = 3
    assert first(m.k) == 75234
    m.SIZES[1] = 9  # changed in place
    assert first(m.k) == 75934
    m.TABLE["a"] = 6
    assert first(m.k) == 76934
    m.Limits.top = 1
    assert first(m.k) == 16934
    m.N = 4.0
    assert first(m.k) == 16934
    del m.N
    with pytest.raises(tk.SourceError, match="TK110"):
        first(m.k)


def test_closure_names_are_read_at_every_launch(tmp_path: Path) -> None:
    m = load(
        tmp_path,
        """
def make():
    scale = 2
    @tk.kernel(threads=1)
    def k(y: tk.gl_fl):
        y[0] = scale
    def change(v):
        nonlocal scale
        scale = v
    return k, change
""",
    )
    k, change = m.make()
    other, _ = m.make()
    assert first(k) == 2
    change(3)
    assert first(k) == 3
    assert first(other) == 2


def test_a_helper_that_is_defined_anew_is_used(tmp_path: Path) -> None:
    """A learner edits the cell of a helper and runs the kernel of another cell again."""
    text = """
M = 10

@tk.device
def inner(a):
    return a * M

@tk.device
def f(a):
    return inner(a) + 1

import types
tools = types.SimpleNamespace(f=f)
g = f

@tk.kernel(threads=1)
def k(y: tk.gl_fl, n: tk.i32):
    y[0] = g(n) + tools.f(n)
"""
    m = load(tmp_path, text)
    assert first(m.k, 1) == 22
    one = m.k.ir()
    assert m.k.ir() is one
    m.M = 20
    assert first(m.k, 1) == 42
    new = load(tmp_path, "@tk.device\ndef inner(a):\n    return a * 1000\n", "new")
    m.inner = new.inner
    assert first(m.k, 1) == 2002
    m.g = new.inner
    assert first(m.k, 1) == 2001


def test_flags_decide_what_is_typed_and_emitted(tmp_path: Path) -> None:
    m = load(
        tmp_path,
        """
@tk.kernel(threads=1)
def k(y: tk.gl_fl, n: tk.i32, MODE: tk.const = "plain", T: tk.const = None, D: tk.const = 1):
    if MODE == "plain":
        y[0] = 1
    elif MODE is None:
        y[0] = nothing_of_this_name
    else:
        y[0] = 2
    if T is not None:
        t = tk.rt(T, 16, 16)
        warp.zero(t)
    if D > 1 and D < 4:
        y[0] += D
    x = 5 if D == 1 else nothing
    assert D < 9, "D is small"
""",
    )
    assert first(m.k, 0) == 1
    assert first(m.k, 0, MODE="other") == 2
    k = m.k.ir(T=tk.bf16)
    assert k.arch == 80
    assert not any(isinstance(s, ir.If) for s in ir.walk(k.body))
    for bad, code in (({"MODE": None}, "TK110"), ({"D": 3}, "TK110"), ({"D": 9}, "TK110")):
        with pytest.raises(tk.SourceError, match=code):
            first(m.k, 0, **bad)


def test_equal_numbers_of_different_types_are_different_constants(tmp_path: Path) -> None:
    m = load(
        tmp_path,
        "@tk.kernel(threads=1)\ndef k(y: tk.gl_fl, D: tk.const):\n    x = D\n    y[0] = x + 0.5\n",
    )
    kinds = [str(typed(m.k, D=d).body[0].sym.type) for d in (1, True, 1.0)]  # type: ignore[attr-defined]
    assert kinds == ["i32", "bool", "f32"]


def test_numbers_of_numpy(tmp_path: Path) -> None:
    m = load(
        tmp_path,
        "A, B, C = np.float32(0.5), np.int64(3), np.bool_(True)\n"
        "@tk.kernel(threads=1)\n"
        "def k(y: tk.gl_fl, D: tk.const = np.int32(2)):\n"
        "    if C:\n"
        "        y[0] = A * B + D\n",
    )
    assert first(m.k) == 3.5
    assert first(m.k, D=np.float64(1.5)) == 3


def test_many_values_do_not_fill_memory(tmp_path: Path) -> None:
    m = load(tmp_path, "@tk.kernel(threads=1)\ndef k(y: tk.gl_fl):\n    y[0] = N\n")
    for i in range(40):
        m.N = i
        m.k.ir()
    assert sum(map(len, m.k._specialised.values())) <= 32


def test_generic_types(tmp_path: Path) -> None:
    m = load(
        tmp_path,
        """
TILE = tk.st_bf(32, 64)

@tk.kernel(warps=1)
def k(x: tk.gl_bf, y: tk.gl_fl, T: tk.const = tk.bf16, R: tk.const = 32, L: tk.const = tk.row):
    s = tk.shared(TILE, R // 16)
    a = tk.rt(T, R, TILE.cols, L)
    v = tk.rv(T, R)
    c = tk.col_vec(a.rows, tk.f32, L)
    w = tk.reg_array(tk.f32, min(R, 4))
    z = a.cols + TILE.rows
    m = tk.shared_array(tk.f32, *(2, 2)) if False else 0
""",
    )
    k = m.k.ir(R=16, L=tk.col, T=tk.f16)
    types = [str(s.sym.type) for s in k.body if isinstance(s, ir.Decl)]
    assert types[:5] == [
        "shared(st_bf(32, 64), 1)",
        "rt_hf(16, 64, col)",
        "rv(f16, 16)",
        "col_vec(16, layout=col)",
        "reg_array(f32, 4)",
    ]
