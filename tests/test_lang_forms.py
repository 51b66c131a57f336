"""Every statement and expression form, run by one lane on the simulator against plain Python.

A form that the front end accepts must mean what Python means by it; where it cannot, it is one of
the errors of test_lang_errors.py.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lang_kit import load, result, typed

from tklearn.lang import ir

# name -> body of f(y, n), n = 5; y has 8 elements
FORMS = {
    "assign": "x = n\ny[0] = x\nx = x + 2\ny[1] = x",
    "augmented": """
        x = n
        x += 3
        y[0] = x
        x -= 1
        y[1] = x
        x *= 4
        y[2] = x
        x //= 3
        y[3] = x
        x %= 4
        y[4] = x
        x <<= 3
        x |= 5
        y[5] = x
        x &= 12
        x ^= 7
        y[6] = x
        x >>= 1
        y[7] = x""",
    "augmented_element": """
        y[0] = n
        y[0] += 2
        y[0] *= y[0]
        y[0] -= n
        y[1] += 1 + n
        y[n % 4] += 0.5""",
    "augmented_float": "x = 1.5\nx /= 4\nx *= n\ny[0] = x\nx -= 0.25\ny[1] = x\ny[1] /= 2",
    "argument": "n += 1\ny[0] = n\nn = n * n\ny[1] = n",
    "swap": """
        a, b = n, 2 * n
        a, b = b, a
        y[0] = a
        y[1] = b
        y[2], y[3] = y[1], y[0]
        a, y[4] = b + 1, a
        y[5] = a""",
    "rotate": "a = 1\nb = 2\nc = 3\na, b, c = b, c, a\ny[0] = a\ny[1] = b\ny[2] = c",
    "chain": """
        y[0] = 1 < n < 6
        y[1] = 1 < n < 5
        y[2] = n == 5 != 4 >= 4
        y[3] = not 1 < n < 5
        y[4] = 9 > n > 4 > 3""",
    "logic": """
        y[0] = n > 2 and n < 9
        y[1] = n > 7 or n == 5
        y[2] = not (n > 7 or n == 4) and n != 0
        y[3] = (n > 7) | (n == 5)
        y[4] = (n > 2) ^ (n == 5)""",
    "short_circuit": """
        i = 9
        if i < 8 and y[i] > 0:
            y[0] = 1
        if i >= 8 or y[i] > 0:
            y[1] = 2
        z = 0
        if z != 0 and n // z > 1:
            y[2] = 3""",
    "conditional": """
        y[0] = 1 if n > 2 else 2
        y[1] = n if n > 7 else 2.5
        y[2] = 1 if n > 7 else 2 if n > 6 else 3
        i = 9
        y[3] = y[i] if i < 8 else -1
        b = n > 2 if n > 3 else n < 2
        y[4] = b""",
    "min_max_abs": """
        y[0] = min(n, 3)
        y[1] = max(n, 7, 2)
        y[2] = abs(n - 9)
        y[3] = min(0.5, n)
        y[4] = max(-1, min(n, 4)) + abs(-2.5)""",
    "conversions": """
        y[0] = int(2.75) + int(n)
        x = 2.75 * n
        y[1] = int(x)
        y[2] = int(-x)
        y[3] = float(n) / 2
        y[4] = bool(n)
        y[5] = int(n > 2)
        y[6] = n // 2 / 2.0""",
    "division": """
        m = -n
        y[0] = m // 3
        y[1] = m % 3
        y[2] = n // -3
        y[3] = n % -3
        y[4] = (m - 1) // (n - 2)
        y[5] = (n * 7) % (n + 1)
        y[6] = 7 // 2""",
    "bits": """
        y[0] = n & 3
        y[1] = n | 8
        y[2] = n ^ 1
        y[3] = ~n
        y[4] = n << 3
        y[5] = -n >> 1
        y[6] = +n - -n""",
    "range": """
        for i in range(4):
            y[i] = i
        for i in range(4, n):
            y[i] = 2 * i
        for i in range(7, n, -1):
            y[i] += 3""",
    "range_bounds_once": "m = 3\nfor i in range(m):\n    m = 6\n    y[i] = 1\ny[7] = m",
    "range_negative": """
        for i in range(n - 1, -1, -2):
            y[i] = i + 1
        for i in range(3, 3):
            y[7] = 1""",
    "while": """
        i = 0
        while i < n:
            y[i] = i
            i += 2
        while True:
            i -= 1
            if i < 3:
                break
            if i % 2 == 0:
                continue
            y[i] = -1
        y[7] = i""",
    "break_continue": """
        for i in range(8):
            if i == 2:
                continue
            for j in range(4):
                if j == 2:
                    break
                y[i] += 1
            if i == n:
                break""",
    "if_elif": """
        for i in range(4):
            if i == 0:
                y[i] = 10
            elif i == 1:
                y[i] = 20
            elif i < n - 2:
                y[i] = 30
            else:
                y[i] = 40
                pass""",
    "outer_names": """
        x = 1
        for i in range(3):
            if i == 1:
                x = x + 10
            z = x
            y[i] = z
        y[3] = x""",
    "sibling_blocks": """
        if n > 2:
            t = 1
            y[0] = t
        else:
            t = 2.5
            y[0] = t
        for i in range(2):
            y[1 + i] = i
        for i in range(2):
            t = i
            y[3 + i] = t""",
    "return": "y[0] = 1\nif n > 2:\n    return\ny[1] = 2",
    "return_in_loop": "for i in range(8):\n    y[i] = 1\n    if i == 3:\n        return",
    "literals": """
        y[0] = 0x10 + 0b11 + 1_000
        y[1] = 1e3 + .5
        y[2] = True + True
        y[3] = 2 ** 10 + 7 / 2
        y[4] = -7 // 2
        y[5] = (1 << 4) | 1
        y[6] = math.pi > 3
        y[7] = float("inf") > 1e38""",
    "constants": """
        c = 3
        if c > 2:
            y[0] = c
        else:
            y[0] = n.nothing
        y[1] = N * c
        if N == 4 and c == 3:
            q = 7
        y[2] = q""",
    "assert_pass": 'assert n > 2, "too small"\nassert N == 4\npass\n"text"\n...\ny[0] = 1',
    "bool_names": "f = n > 2\ng = not f\nf = g or f\ny[0] = f\ny[1] = g\nif f:\n    y[2] = 1",
    "truth_of_numbers": """
        if n:
            y[0] = 1
        if n - 5:
            y[1] = 1
        while n:
            n -= 1
        y[2] = not n""",
    "one_line": "if n > 2: y[0] = 1; y[1] = 2\nfor i in range(2): y[2 + i] = 3",
    "comments_and_lines": "x = (n +   # one\n     2)    # two\ny[\n    0\n] = x \\\n    + 1",
}


@pytest.mark.parametrize("name", FORMS)
def test_form(name: str, tmp_path: Path) -> None:
    body = textwrap.indent(textwrap.dedent(FORMS[name]).strip("\n"), "    ")
    source = f"@tk.kernel(threads=1)\ndef k(y: tk.gl_fl, n: tk.i32):\n{body}\n"
    got = result(tmp_path, source, 5)
    expected = np.zeros(8, np.float32)
    module = load(tmp_path, f"def f(y, n):\n{body}\n", "plain")
    module.f(expected, 5)
    assert got == expected.tolist()


def run(tmp_path: Path, body: str, dtype: Any = np.float32, kind: str = "tk.gl_fl") -> list[Any]:
    text = textwrap.indent(textwrap.dedent(body).strip("\n"), "    ")
    return result(
        tmp_path,
        f"@tk.kernel(threads=1)\ndef k(y: {kind}, n: tk.i32):\n{text}\n",
        5,
        dtype=dtype,
    )


def test_annotated_names_keep_their_type(tmp_path: Path) -> None:
    assert run(tmp_path, "x: tk.f32 = 0\nx += n\nx /= 2\ny[0] = x")[0] == 2.5


def test_unsigned_numbers_wrap(tmp_path: Path) -> None:
    body = """
        h: tk.u32 = 2166136261
        h ^= n
        h *= 16777619
        y[0] = h
        y[1] = tk.u32(0) - 1
        y[2] = h * 2654435761
        y[3] = tk.u32(-1) >> 28
        y[4] = ~h
        """
    h = (2166136261 ^ 5) * 16777619 % 2**32
    got = run(tmp_path, body, np.uint32, "tk.gl(tk.u32)")
    assert got[:5] == [h, 2**32 - 1, h * 2654435761 % 2**32, 15, 2**32 - 1 - h]


def test_signed_and_unsigned_compare_as_numbers(tmp_path: Path) -> None:
    body = """
        u: tk.u32 = 3000000000
        m = -n
        y[0] = u > m
        y[1] = u == n
        y[2] = m < u
        y[3] = u > 2999999999
        y[4] = 3000000000 > n
        """
    assert run(tmp_path, body)[:5] == [1, 0, 1, 1, 1]


def test_large_numbers_are_64_bits(tmp_path: Path) -> None:
    body = "x = 3000000000\ny[0] = x + n\nz: tk.i64 = n\nz *= 1000000007\ny[1] = z"
    assert run(tmp_path, body, np.int64, "tk.gl(tk.i64)")[:2] == [3000000005, 5000000035]


def test_float_literals_are_f32(tmp_path: Path) -> None:
    third = np.float32(0.1) + np.float32(0.2)
    assert run(tmp_path, "x = 0.1\nz = 0.2\nx = x + 0.0\ny[0] = x + z")[0] == third


def test_products_in_sums_are_fused(tmp_path: Path) -> None:
    m = load(
        tmp_path,
        "@tk.kernel(threads=1)\ndef k(y: tk.gl_fl, a: tk.f32, b: tk.f32, c: tk.f32):\n"
        "    y[0] = a * b + c\n    y[1] = c + a * b\n    y[2] = a * b - c\n"
        "    p = a * b\n    y[3] = p + c\n    y[4] = c - a * b\n",
    )
    y = np.zeros(5, np.float32)
    a, c = float(np.float32(1 + 2**-12)), -1.0
    m.k[1](y, a, a, c)
    exact = a * a  # 25 bits: exact in a double
    rounded = float(np.float32(exact))
    assert y.tolist() == [exact + c, exact + c, np.float32(exact - c), rounded + c, c - rounded]


def test_helpers(tmp_path: Path) -> None:
    text = """
@tk.device
def twice(a, by=2, *, plus: tk.const = 0):
    "Text of the helper."
    a *= by
    return a + plus

@tk.device
def both(a: tk.f32):
    b = twice(a) if a > 1 else twice(a, 3)
    return b

@tk.device
def put(z, i):
    z[i] = i
    if i > 4:
        return
    z[i + 1] = i

@tk.device
def choose(a, flag: tk.const):
    if flag:
        return a
    else:
        return 0.5

@tk.kernel(threads=1)
def k(y: tk.gl_fl, n: tk.i32):
    x = n
    y[0] = twice(x)
    y[1] = x
    y[2] = twice(x, 3, plus=1)
    y[3] = twice(x, plus=1.5)
    y[4] = both(n)
    y[5] = choose(n, True) + choose(n, False)
    put(y, n + 1)
"""
    assert result(tmp_path, text, 5) == [10, 5, 16, 11.5, 10, 5.5, 6, 0]


def test_helpers_by_compile_time_value_and_type(tmp_path: Path) -> None:
    """1, True and 1.0 are three different specialisations."""
    text = """
@tk.device
def f(a, c: tk.const):
    return a + c

@tk.kernel(threads=1)
def k(y: tk.gl_fl, n: tk.i32):
    y[0] = f(n, 1) // 4
    y[1] = f(n, 1.0) / 4
    y[2] = f(n, True) // 4
"""
    assert result(tmp_path, text, 5)[:3] == [1, 1.5, 1]
    assert len(typed(load(tmp_path, text).k).functions) == 3


def test_tiles_are_passed_by_reference(tmp_path: Path) -> None:
    text = """
@tk.device
def fill(t, v: tk.f32):
    warp.fill(t, v)
    t += 1

@tk.kernel(warps=1)
def k(y: tk.gl_fl):
    t = tk.rt_fl(16, 16)
    u = tk.rt_fl(16, 16)
    fill(t, 2)
    fill(u, 5)
    u -= t
    warp.store(y, t, (0, 0))
    warp.store(y, u, (1, 0))
"""
    y = np.zeros((32, 16), np.float32)
    load(tmp_path, text).k[1](y)
    assert (y[:16] == 3).all()
    assert (y[16:] == 3).all()


def test_registers_and_vectors_of_elements(tmp_path: Path) -> None:
    text = """
@tk.kernel(threads=2)
def k(y: tk.gl_fl, x: tk.gl_fl):
    r = tk.reg_array(tk.f32, 4)
    for i in tk.static_range(4):
        r[i] = i * i
    r[1] += 10
    v = tk.vec(x, 4)[threadIdx.x]
    tk.vec(y, 4)[threadIdx.x] = (v[3] + r[0], v[2] + r[1], v[1] + r[2], v[0] + r[3])
"""
    x = np.arange(8, dtype=np.float32)
    got = result(tmp_path, text, x)
    assert got == [3, 13, 5, 9, 7, 17, 9, 13]


def test_coordinates_and_references_have_names(tmp_path: Path) -> None:
    text = """
@tk.kernel(warps=2)
def k(y: tk.gl_fl, x: tk.gl_fl):
    s = tk.shared(tk.st_fl(16, 16), 2)
    at = (warpid(), 0)
    here = s[warpid()]
    t = tk.rt_fl(16, 16)
    warp.load(t, x, at)
    warp.store(here, t)
    warp.sync()
    there = at
    warp.load(t, here.subtile(16, 16, (0, 0)))
    t += t
    warp.store(y, t, there)
"""
    x = np.arange(512, dtype=np.float32).reshape(32, 16)
    y = np.zeros_like(x)
    load(tmp_path, text).k[1](y, x)
    assert (y == 2 * x).all()


def test_aliases_share_bytes(tmp_path: Path) -> None:
    text = """
@tk.kernel(threads=1)
def k(y: tk.gl_fl):
    a = tk.shared_array(tk.f32, 64)
    b = tk.alias(a, (tk.f32, 4, 4), 128)
    a[33] = 7
    y[0] = b[0, 1]
"""
    assert result(tmp_path, text)[0] == 7
    k = typed(load(tmp_path, text).k)
    a, b = k.shared
    assert (b.alias_of, b.offset, k.shared_bytes) == (a, 128, 256)


def test_unrolled_loops_know_their_number(tmp_path: Path) -> None:
    text = """
@tk.kernel(threads=1)
def k(y: tk.gl_fl, n: tk.i32):
    for i in tk.static_range(7, -1, -2):
        if i > 3:
            y[i] = i
        else:
            y[i] = -i
        for j in range(3):
            if j == i:
                break
            y[i] += 1
"""
    got = result(tmp_path, text, 5)
    assert got == [0, -1 + 1, 0, -3 + 3, 0, 8, 0, 10]
    body = typed(load(tmp_path, text).k).body
    assert [s.note for s in body if isinstance(s, ir.Scope)] == [f"i = {i}" for i in (7, 5, 3, 1)]
    assert not any(isinstance(s, ir.If) for scope in body for s in scope.body)  # decided when read


def test_intrinsics(tmp_path: Path) -> None:
    text = """
@tk.intrinsic(cuda="__popc({x})", sim=lambda x: np.bitwise_count(x).astype(np.int32),
              result=tk.i32, arch=90)
def popc(x):
    "The number of bits that are set."

@tk.kernel(threads=1)
def k(y: tk.gl_fl, n: tk.i32):
    y[0] = popc(n) + popc(x=7)
"""
    assert result(tmp_path, text, 5)[0] == 5
    m = load(tmp_path, text)
    assert typed(m.k).arch == 90
    assert "__popc(" in m.k.source()


def test_print_takes_text_and_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, 'print("n is", n, 2.5)\nprint()')
    out = capsys.readouterr().out
    assert "n is 5 2.5" in out


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("1", "i32"),
        ("1.0", "f32"),
        ("True", "bool"),
        ("n", "i32"),
        ("n > 1", "bool"),
        ("n > 1 and n < 3", "bool"),
        ("threadIdx.x", "i32"),
        ("laneid() * 2", "i32"),
        ("y.rows", "i32"),
        ("3000000000", "i64"),
        ("tk.u32(3)", "u32"),
        ("tk.u32(3) + n", "u32"),
        ("tk.i64(3) + n", "i64"),
        ("tk.i64(3) + 0.5", "f32"),
        ("n + 0.5", "f32"),
        ("(n > 1) + 1", "i32"),
        ("n << 3", "i32"),
        ("N / 8", "f32"),
        ("N // 8", "i32"),
        ("c[0]", "i32"),
        ("h[0]", "f32"),
        ("1 if n > 1 else 0.5", "f32"),
        ("max(n, 0.5)", "f32"),
        ("warp.ballot(n > 1)", "u32"),
        ("tk.rt_fl(16, 32)", "rt_fl(16, 32)"),
        ("tk.col_vec(32)", "col_vec(32)"),
    ],
)
def test_type_of(value: str, kind: str, tmp_path: Path) -> None:
    text = (
        "@tk.kernel(threads=32)\n"
        "def k(y: tk.gl_fl, h: tk.gl_hf, c: tk.gl(tk.u8), n: tk.i32):\n"
        f"    y[0] = h[0] + c[0]\n    x = {value}\n"
    )
    decl = typed(load(tmp_path, text).k).body[-1]
    assert isinstance(decl, ir.Decl)
    assert str(decl.sym.type) == kind


def test_a_tile_that_a_helper_returns_is_a_new_one(tmp_path: Path) -> None:
    text = """
@tk.device
def same(t):
    return t

@tk.kernel(warps=1)
def k(y: tk.gl_fl):
    a = tk.rt_fl(16, 16)
    warp.zero(a)
    b = same(a)
    b += 1
    warp.store(y, a, (0, 0))
    warp.store(y, b, (1, 0))
"""
    y = np.ones((32, 16), np.float32)
    load(tmp_path, text).k[1](y)
    assert (y[:16] == 0).all()
    assert (y[16:] == 1).all()


def test_variables_may_have_names_of_builtins(tmp_path: Path) -> None:
    """`max` and `sum` of a learner are variables, as in Python."""
    body = """
        max = 0.0
        sum = 0
        for i in range(n):
            y[i] = (i * 7) % 5
            if y[i] > max:
                max = y[i]
            sum += i
        y[6] = max
        y[7] = sum"""
    assert run(tmp_path, body)[6:] == [4, 10]
