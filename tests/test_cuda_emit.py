"""The C++ that kernels become: every IR node, every operation, golden files, names, listings.

TKLEARN_UPDATE_GOLDEN=1 pytest tests/test_cuda_emit.py writes tests/golden/.
"""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import async_cases
import cuda_cases as cases
import pytest

import tklearn as tk
from tklearn.cuda.cppnames import Names, legal
from tklearn.cuda.emit import c_string, emit
from tklearn.cuda.expr import f32_text, literal
from tklearn.cuda.listing import show
from tklearn.kernels import gemm, layernorm, saxpy, softmax, transpose
from tklearn.lang import ir
from tklearn.lang import types as T
from tklearn.lang.errors import Loc
from tklearn.lang.ops import OPS

GOLDEN = Path(__file__).parent / "golden"
HERE = Loc(__file__, 1)
EXAMPLES = {
    "saxpy": lambda: cases.specialise(cases.saxpy, 256),
    "transpose": lambda: cases.specialise(cases.transpose, (32, 8, 1), {"src": 2, "dst": 2}),
    "softmax": lambda: cases.specialise(cases.softmax, 128, {"x": 2, "y": 2}),
    "layernorm": lambda: cases.specialise(cases.layernorm, 128, {"x": 2, "y": 2}),
    "gemm": lambda: cases.specialise(cases.gemm, 128, {"A": 2, "B": 2, "C": 2}),
    "gemm4": lambda: cases.specialise(cases.gemm, 128, {"A": 3, "B": 4, "C": 2}, STAGES=4),
    "histogram": lambda: cases.specialise(cases.histogram, 256),
    "warp_sum": lambda: cases.specialise(cases.warp_sum, 32),
    "corners": lambda: cases.specialise(cases.corners, 32, {"A": 2}),
    "nodes": lambda: cases.specialise(cases.nodes, 128, {"A": 2}),
    "tiles_f16": lambda: cases.specialise(cases.tiles(T.f16), 64, cases.TILE_DIMS),
    "tiles_bf16": lambda: cases.specialise(cases.tiles(T.bf16), 64, cases.TILE_DIMS),
    "tiles_f32": lambda: cases.specialise(cases.tiles(T.f32), 64, cases.TILE_DIMS),
    "instructions": lambda: cases.specialise(cases.instructions, 32, {"A": 2, "C": 2}),
    "gallery_saxpy": lambda: saxpy.saxpy.ir(),
    "gallery_transpose": lambda: transpose.swizzled(T.f32).ir(),
    "gallery_softmax": lambda: softmax.short(T.bf16).ir(D=1024),
    "gallery_layernorm": lambda: layernorm.short(T.bf16).ir(D=1024),
    "gallery_gemm": lambda: gemm.make(T.bf16).ir(),
    "async_gemm": lambda: cases.specialise(async_cases.gemm_ws, 384, {"A": 2, "B": 2, "C": 2}),
    "async_gemm_persistent": lambda: cases.specialise(
        async_cases.gemm_persistent, 256, dict.fromkeys("ABC", 2)
    ),
    "async_attention": lambda: cases.specialise(async_cases.attend, 512, dict.fromkeys("QKVO", 4)),
    "async_linear_attention": lambda: cases.specialise(
        async_cases.linear_attention, 128, dict.fromkeys("QKVO", 4)
    ),
    "async_linear_attention_staged": lambda: cases.specialise(
        async_cases.linear_attention_staged, 128, dict.fromkeys("QKVO", 3)
    ),
    "async_operations": lambda: cases.specialise(
        async_cases.operations, 256, {"A": 2, "v": 1, "H": 2, "F": 2, "O": 2}
    ),
    "products_e4m3": lambda: cases.specialise(cases.products(T.e4m3), 32, {"A": 2, "C": 2}),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_golden(name: str) -> None:
    path = GOLDEN / f"{name}.cu"
    text = re.sub(r'(\w+\.py"?)[:,] ?\d+', r"\1", emit(EXAMPLES[name]()).text)  # lines move
    if os.environ.get("TKLEARN_UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert path.read_text() == text, (
        "the emitted C++ changed; look at the difference, then TKLEARN_UPDATE_GOLDEN=1"
    )


def _nodes_of(k: ir.Kernel) -> set[type]:
    return {type(n) for body in (k.body, *(f.body for f in k.functions)) for n in ir.walk(body)}


def test_every_node_is_emitted() -> None:
    wanted = {
        c
        for _, c in inspect.getmembers(ir, inspect.isclass)
        if issubclass(c, (ir.Expr, ir.Stmt)) and c not in (ir.Expr, ir.Stmt)
    }
    met: set[type] = set()
    for make in EXAMPLES.values():
        met |= _nodes_of(make())
    assert wanted - met == set()


def test_every_operation_is_emitted() -> None:
    met = set()
    for make in EXAMPLES.values():
        k = make()
        text = emit(k).text
        for body in (k.body, *(f.body for f in k.functions)):
            for n in ir.walk(body):
                if isinstance(n, (ir.Do, ir.Call)) and not n.op.intrinsic:
                    met.add(n.op.name)
                    assert re.search(rf"{n.op.cpp}(<[\w, ]+>)?\(", text)
    assert set(OPS) - met == set()


# ------------------------------------------------------------------------------ expressions
def _printed(e: ir.Expr) -> str:
    from tklearn.cuda.expr import Expressions

    return Expressions(lambda s: s.name, lambda f: f.name)(e)


def _i(name: str, nonneg: bool = False) -> ir.Expr:
    return ir.Var(T.I32, HERE, ir.Sym(name, T.I32, "reg", HERE, nonneg=nonneg))


def _b(op: str, a: ir.Expr, b: ir.Expr) -> ir.Expr:
    return ir.Binary(T.I32, HERE, op, a, b)


def test_parentheses_keep_the_tree_and_no_more() -> None:
    a, b, c = _i("a"), _i("b"), _i("c")
    assert _printed(_b("-", a, _b("-", b, c))) == "a - (b - c)"
    assert _printed(_b("-", _b("-", a, b), c)) == "a - b - c"
    assert _printed(_b("+", a, _b("+", b, c))) == "a + (b + c)"
    assert _printed(_b("*", _b("+", a, b), c)) == "(a + b) * c"
    assert _printed(_b("+", a, _b("*", b, c))) == "a + b * c"
    assert _printed(ir.Compare(T.BOOL, HERE, "==", _b("&", a, b), c)) == "(a & b) == c"
    assert _printed(_b("|", _b("&", a, b), c)) == "(a & b) | c"
    assert _printed(_b("<<", _b("+", a, b), c)) == "(a + b) << c"
    assert _printed(ir.Unary(T.I32, HERE, "-", ir.Unary(T.I32, HERE, "-", a))) == "-(-a)"
    assert _printed(ir.Unary(T.I32, HERE, "-", ir.Const(T.I32, HERE, -1))) == "-(-1)"
    less = ir.Compare(T.BOOL, HERE, "<", a, b)
    both = ir.Logic(T.BOOL, HERE, "and", less, less)
    assert _printed(ir.Logic(T.BOOL, HERE, "or", both, less)) == "(a < b && a < b) || a < b"
    assert (
        _printed(ir.Logic(T.BOOL, HERE, "and", ir.Logic(T.BOOL, HERE, "or", less, less), less))
        == "(a < b || a < b) && a < b"
    )
    assert _printed(ir.Unary(T.BOOL, HERE, "not", less)) == "!(a < b)"
    pick = ir.Select(T.I32, HERE, less, a, ir.Select(T.I32, HERE, less, b, c))
    assert _printed(pick) == "a < b ? a : a < b ? b : c"
    assert _printed(_b("+", pick, a)) == "(a < b ? a : a < b ? b : c) + a"


def test_python_division() -> None:
    a, n = _i("a"), _i("n", nonneg=True)
    two = ir.Const(T.I32, HERE, 2)
    assert _printed(_b("//", n, two)) == "n / 2"
    assert _printed(_b("%", n, two)) == "n % 2"
    assert _printed(_b("//", a, two)) == "floordiv(a, 2)"
    assert _printed(_b("%", n, a)) == "floormod(n, a)"
    u = ir.Var(T.U32, HERE, ir.Sym("u", T.U32, "reg", HERE))
    assert _printed(ir.Binary(T.U32, HERE, "//", u, u)) == "u / u"


@pytest.mark.parametrize(("value", "text"), [
    (0.0, "0.0f"), (-0.0, "-0.0f"), (1.0, "1.0f"), (0.1, "0.1f"), (1e-5, "1e-5f"),
    (100000.0, "100000.0f"),
    (3.4028234663852886e38, "3.4028235e38f"), (2.0**-149, "1e-45f"), (16777216.0, "16777216.0f"),
    (float("inf"), "INFINITY"), (float("-inf"), "-INFINITY"), (float("nan"), "NAN"),
    (1e39, "INFINITY"),
])  # fmt: skip
def test_float_literals(value: float, text: str) -> None:
    assert f32_text(value) == text


def test_float_literals_are_exact() -> None:
    np = pytest.importorskip("numpy")
    values = np.random.default_rng(1).integers(0, 2**32, 3000, dtype=np.uint32).view(np.float32)
    for v in values[np.isfinite(values)]:
        assert np.float32(f32_text(float(v)).removesuffix("f")) == v


def test_integer_literals() -> None:
    assert literal(-(2**31), T.i32)[0] == "-2147483647 - 1"
    assert literal(-(2**63), T.i64)[0] == "-9223372036854775807LL - 1"
    assert literal(2**32 - 1, T.u32)[0] == "4294967295u"
    assert literal(True, T.bool_)[0] == "true"


# ------------------------------------------------------------------------------------ names
def test_names_that_cpp_uses_get_an_underscore() -> None:
    assert [legal(n) for n in ("x", "row", "float", "warp", "template", "acc", "max")] == [
        "x", "row_", "float_", "warp_", "template_", "acc", "max_"]  # fmt: skip
    assert legal("α").isascii()


def test_names_never_meet() -> None:
    names = Names()
    names.reserve(["row", "row_", "float"])
    assert names("row_") == "row_"
    assert names("row") == "row__"
    assert len({names(n) for n in ("row", "row_", "float", "float_", "α", "u03b1")}) == 6


def test_strings() -> None:
    assert c_string('a"b\\c\nd\x07') == 'a\\"b\\\\c\\nd\\007'


# --------------------------------------------------------------------------------- the whole
def test_lines_know_their_python() -> None:
    k = EXAMPLES["softmax"]()
    source = emit(k)
    assert source.text.count("\n") == len(source.lines) == len(source.locs)
    for line, text in source.lines:
        if "row_max" in text:
            assert line is not None
            assert "tk.row_max" in Loc(k.file, line).text()
            break
    else:
        pytest.fail("no line with row_max")


def test_bounds_that_change_are_kept() -> None:
    text = emit(EXAMPLES["nodes"]()).text
    assert "for (int k = 0, k_end = w; k < k_end; k++) {" in text
    assert "for (int k = 0; k < floordiv(n, 2); k += 2) {" in text
    assert "for (int k = n - 1; k > -1; k--) {" in text


def test_specialisations_of_a_helper_have_names_of_their_own() -> None:
    text = emit(EXAMPLES["nodes"]()).text
    assert "void scale(rt<float, 16, 16>& t, float factor)" in text
    assert "void scale_2(rt<float, 16, 16>& t, float factor)" in text
    assert "void scale(rt<f16, 16, 16>& t, float factor)" in text
    assert text.index("int larger(int a, int b) {") < text.index("int larger_plus(int a) {")


def test_intrinsics_are_pasted() -> None:
    text = emit(EXAMPLES["nodes"]()).text
    assert "y[i] += __popc(i + 1);" in text
    assert "(v - 1.0f) * (v - 1.0f)" in text
    assert "__nanosleep(i);" in text


def test_comments_show_the_python() -> None:
    text = emit(EXAMPLES["saxpy"](), comments=True).text
    assert "y[i] = a * x[i] + y[i]\n            y[i]" not in text
    assert ": y[i] = a * x[i] + y[i]\n        y[i] = fma(a, x[i], y[i]);" in text


class _Rows(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        if tag == "td":
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "td" in self.open:
            self.cells[-1] += data


def test_listing_pairs_the_lines() -> None:
    k = EXAMPLES["gemm"]()
    listing = show(k, emit(k))
    pairs = {r.cpp.strip(): r.python.strip() for r in listing.rows}
    assert pairs["warp::mma_AB(acc, a, b);"] == "warp.mma_AB(acc, a, b)"
    assert pairs["wait_group<0>();"] == "tk.wait_group(STAGES - 2)"
    lines = [r.line for r in listing.rows if r.line]
    assert lines == sorted(lines)
    plain = str(listing).splitlines()
    assert len(plain) == len(listing.rows) + 1
    page = listing._repr_html_()
    assert "<script" not in page
    parser = _Rows()
    parser.feed(page)
    assert parser.open == []
    assert parser.cells[1::3] == [r.python for r in listing.rows]
    assert [c.strip("\xa0") for c in parser.cells[2::3]] == [r.cpp for r in listing.rows]


def test_listing_pairs_else_with_else() -> None:
    k = EXAMPLES["nodes"]()
    pairs = {r.cpp.strip(): r.python.strip() for r in show(k, emit(k)).rows}
    assert pairs["} else {"] == "else:"
    assert pairs["} else if (k > 100) {"] == "elif k > 100:"


def test_emit_needs_no_compiler() -> None:
    code = (
        "import sys; import cuda_cases as c; from tklearn.cuda.emit import emit;"
        "emit(c.specialise(c.saxpy, 256));"
        "assert not {'cupy', 'torch', 'tklearn.cuda.compile'} & set(sys.modules)"
    )
    subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        cwd=Path(__file__).parent.parent,
        env={
            **os.environ,
            "PYTHONPATH": f"{Path(__file__).parent}{os.pathsep}{Path(__file__).parent.parent}",
        },
    )


def test_plain_division_where_nothing_can_be_negative() -> None:
    @tk.kernel(threads=32)
    def ring(x: tk.gl(tk.i32), n: tk.i32):
        for k in range(x.cols):
            x[k] = (k + 4 - 1) % 3 + (k - 1) % 3 + (n + 5) % 2

    line = next(t for t in ring.source().splitlines() if "x[k] =" in t)
    assert line.strip() == "x[k] = (k + 4 - 1) % 3 + floormod(k - 1, 3) + floormod(n + 5, 2);"


def test_helpers_that_call_each_other_twice_do_not_explode() -> None:
    """30 levels of helpers, each calling the one below twice: 2**30 calls, 30 functions."""
    lines = ["import tklearn as tk", "@tk.device", "def h0(a):", "    return a + 1"]
    for n in range(1, 30):
        lines += ["@tk.device", f"def h{n}(a):", f"    return h{n - 1}(a) + h{n - 1}(a + 1)"]
    lines += ["@tk.kernel(threads=32)", "def deep(x: tk.gl(tk.i32)):"]
    lines += ["    for i in range(h29(0)):", "        x[i] = h29(i)"]
    assert "h29" in _written(lines).source()


def _written(lines: list[str]) -> Any:
    """The kernel `deep` of a file with these lines."""
    import importlib.util
    import tempfile

    with tempfile.NamedTemporaryFile("w", suffix=".py", delete=False) as f:
        f.write("\n".join(lines) + "\n")
    spec = importlib.util.spec_from_file_location("deep_helpers", f.name)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.deep
