"""docs/language.md is what tklearn/lang/reference.py makes, and what it says is so.

TKLEARN_UPDATE_GOLDEN=1 pytest tests/test_lang_reference.py writes the page.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from lang_kit import load, message

from tklearn.lang import reference
from tklearn.lang.errors import CODES
from tklearn.lang.ops import OPS

PAGE = Path(__file__).parent.parent / "docs" / "language.md"


def test_the_page_is_current() -> None:
    text = reference.page()
    if os.environ.get("TKLEARN_UPDATE_GOLDEN"):
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(text, encoding="utf-8")
    stale = "the table has changed: TKLEARN_UPDATE_GOLDEN=1 pytest tests/test_lang_reference.py"
    assert PAGE.read_text(encoding="utf-8") == text, stale


def test_each_operation_stands_in_one_group() -> None:
    for op in OPS.values():
        assert sum(belongs(op) for _, _, belongs in reference.GROUPS) == 1, op.name
    text = reference.page()
    for op in OPS.values():
        assert f"| `{reference.call(op)}` | `{reference.cpp_call(op)}` | {op.scope} | " in text
    for code in CODES:
        assert f"| {code} | {CODES[code]} |" in text


def test_each_row_is_documented() -> None:
    roles = {"dst", "src", "acc", "coord", "value", "index", "ref", "pred", "static"}
    roles |= {"sem", "tiles", "ref_tile"}
    for op in OPS.values():
        assert op.doc.endswith("."), op.name
        assert op.scope in ("lane", "warp", "group", "block")
        assert {p.role for p in op.params} <= roles
        if op.name.endswith("sum"):
            assert op.order, op.name
        if op.name.endswith(("max", "min")) and op.effect == "pure":
            assert op.nan, op.name


def test_tables_are_tables() -> None:
    columns = None
    for line in reference.page().splitlines():
        if not line.startswith("|"):
            columns = None
            continue
        n = line.replace("\\|", "").count("|")
        assert columns in (None, n), line
        columns = n


def test_the_example_is_a_kernel(tmp_path: Path) -> None:
    text = reference.OPENING.split("```python\n")[1].split("```")[0]
    m = load(tmp_path, text.split("softmax[")[0], head="")
    assert "row_ /= row_sum(row_);" in m.softmax.source()


# What the tables of the page show, as a kernel, and the C++ beside it.
SHOWN = {
    "x = 1.5": "float x = 1.5f;",
    "x: tk.u32 = 0": "unsigned x = 0u;",
    "A[i, j] = 1.0": "A[{i, j}] = 1.0f;",
    "c = A.cols": "int c = A.cols();",
    "d = n // 4": "floordiv(n, 4)",
    "d = n % 4": "floormod(n, 4)",
    "d = threadIdx.x // 4": "threadIdx.x / 4",
    "A[i, j] = a * A[i, j] + a": "fma(a, A[{i, j}], a)",
    "A[i, j] = a * A[i, j] - a": "fms(a, A[{i, j}], a)",
    "d = int(a)": "to_i32(a)",
    "v = tk.vec(A, 4)[i, j]": "vec_load<4>(A, {i, j})",
    "v = tk.vec(A, 4)[i, j]\ntk.vec(A, 4)[i, j] = v": "vec_store<4>(A, {i, j}, v)",
    "warp.load(t, s.subtile(16, 16, (i, j)))": "subtile<16, 16>(s, {i, j})",
    "h = tk.convert(t, tk.f16)": "convert<f16>(t)",
    "tk.wait_group(1)": "wait_group<1>()",
    "warp.ldmatrix(r, s[i, j], trans=True)": "warp::ldmatrix(r, s[{i, j}], trans)",
    "f = n > 2 and n < 4 or not n == 3": "(n > 2 && n < 4) || !(n == 3)",
    "d = 1 if n > 2 else 3": "n > 2 ? 1 : 3",
    "for q in range(8, 0, -2):\n    A[q, 0] = 1": "for (int q = 8; q > 0; q -= 2)",
    "row = 3": "int row_ = 3;",
    "while n > 2:\n    n -= 1": "while (n > 2) {",
    "print('n', n)": "TK_PRINT",
    "assert n > 2, 'text'": "TK_ASSERT(",
}


@pytest.mark.parametrize("python", SHOWN)
def test_spelling(python: str, tmp_path: Path) -> None:
    body = "\n".join("    " + x for x in python.splitlines())
    text = (
        "@tk.kernel(warps=1)\n"
        "def k(A: tk.gl_fl, i: tk.i32, j: tk.i32, n: tk.i32, a: tk.f32):\n"
        "    s = tk.shared(tk.st_hf(64, 64))\n    t = tk.rt_fl(16, 16)\n"
        f"    r = tk.reg_array(tk.f16, 8)\n    A[0, 0] = 0\n{body}\n"
    )
    assert message(tmp_path, text) == ""
    assert SHOWN[python] in load(tmp_path, text).k.source()
