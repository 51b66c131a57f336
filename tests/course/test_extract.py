"""A learner's answer as plain data: from a file without running it, from a page, and back."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import tklearn as tk
from tklearn import blockIdx, threadIdx, warp
from tklearn.course.engine import Outcome
from tklearn.course.extract import Answer, Refused, from_cells, from_file, live, rebuild
from tklearn.course.plain import pack, unpack

HEAD = "import tklearn as tk\nfrom tklearn import threadIdx, warp as w, block\n"
KERNEL = """
@tk.kernel(threads=THREADS)
def k(y: tk.gl_fl, S: tk.const = 2):
    y[threadIdx.x] = twice(VALUE * S)
"""
HELPER = "@tk.device\ndef twice(x):\n    return x * 2.0\n"


def read(*cells: str) -> Answer:
    return from_cells([(f"cell {i + 1}", c) for i, c in enumerate(cells)]).answer("M1", ("k",))


def ran(answer: Answer) -> np.ndarray:
    y = np.zeros(32, np.float32)
    rebuild(answer)["k"].sim[1](y)
    return y


def test_a_kernel_with_what_it_reads() -> None:
    answer = read(HEAD, "N = 4\nTHREADS, VALUE = 8 * N, (1.5 if N > 3 else 0.0)", HELPER, KERNEL)
    assert answer.constants == {"THREADS": "32", "VALUE": "1.5"}
    assert answer.imports == {"tk": "tklearn", "threadIdx": "tklearn.threadIdx"}
    assert [p.cell for p in answer.pieces.values()] == ["cell 4", "cell 3"]
    assert (ran(answer) == 6.0).all()
    again = Answer.of(json.loads(json.dumps(answer.json())))
    assert again == answer
    assert (ran(again) == 6.0).all()


def test_the_last_definition_counts_as_in_a_notebook_that_ran() -> None:
    other = KERNEL.replace("* S", "+ S")
    answer = read(HEAD, "THREADS = 32\nVALUE = 1.0", HELPER, KERNEL, "VALUE = 3.0", other)
    assert (ran(answer) == 10.0).all()


def test_nothing_is_run(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    touch = f"__import__('pathlib').Path({str(mark)!r}).touch()"
    cells = [
        HEAD,
        f"{touch}\nTHREADS = 32\nVALUE = 1.0",
        f"%time {touch}\n!touch {mark}",
        f"%%bash\ntouch {mark}\nif",
        f"class A:\n    {touch}\nwith open('x') as f:\n    {touch}",
        HELPER,
        KERNEL,
    ]
    assert (ran(read(*cells)) == 4.0).all()
    evil = {
        "decorator": KERNEL.replace("threads=THREADS", f"threads={touch} or 32"),
        "default": KERNEL.replace("= 2)", f"= {touch})"),
        "annotation": KERNEL.replace("tk.const", f"({touch}, tk.const)[1]"),
        "returns": KERNEL.replace("):\n", f") -> {touch}:\n", 1),
        "two decorators": KERNEL.replace("@tk.kernel", f"@({touch} or (lambda f: f))\n@tk.kernel"),
        "walrus": KERNEL.replace("threads=THREADS", "threads=(THREADS := 32)"),
    }
    for what, text in evil.items():
        with pytest.raises(Refused):
            rebuild(read(*cells[:-1], text))
        assert not mark.exists(), what


@pytest.mark.parametrize(
    "value",
    ["10 ** 10 ** 10", "1 << 10 ** 9", "[0] * 10 ** 12", "'x' * 10 ** 12", "f()", "open('/')",
     "[i for i in range(9)]", "lambda: 0", "'9' * 9", "(" * 150 + "1" + ")" * 150 + ".real",
     "x" + ".a" * 3000],
)  # fmt: skip
def test_a_constant_that_needs_python_is_named(value: str) -> None:
    answer = read(HEAD, f"THREADS = 32\nVALUE = {value}", HELPER, KERNEL)
    assert "VALUE" in answer.missing or answer.problem
    if not answer.problem:
        with pytest.raises(Refused, match="VALUE is not known without running"):
            rebuild(answer)


@pytest.mark.parametrize(
    "cell",
    ["def k(:", "k = 1", "def k(y): pass", "class k: pass", "for k in (1, 2): pass", "\0",
     "import k", "@tk.device\ndef k(x):\n    return x", "x = (" + "(" * 5000],
)  # fmt: skip
def test_no_kernel(cell: str) -> None:
    assert "there is no kernel 'k'" in read(HEAD, cell).problem


def test_a_cell_that_is_no_python_is_named() -> None:
    assert "cell 2, line 3" in read(HEAD, "\n\nif x\n").problem


def test_files_that_are_no_notebooks(tmp_path: Path) -> None:
    for raw in (b"", b"{", b"\xff\xfe", b"[]", b'{"cells": 3}', b'{"cells": [{"x": 1}]}', b"null"):
        path = tmp_path / "a.ipynb"
        path.write_bytes(raw)
        with pytest.raises(Refused, match=r"a\.ipynb"):
            from_file(path)
    with pytest.raises(Refused, match="cannot be read"):
        from_file(tmp_path / "none.ipynb")


def test_predictions_and_orders() -> None:
    book = from_cells([("cell 1", 'import tklearn as tk\ntk.predict("P3", a=1, b=None)\nn = 4'),
                       ("cell 2", 'tk.predict("P3", a=2, b=n * 8, c=f())\norder = ["b", "a"]'),
                       ("cell 3", 'v = tk.check("S2", ("c", "d"))')])  # fmt: skip
    answer = book.answer("P3")
    assert answer.first == {"a": 1, "b": 32}
    assert answer.latest == {"a": 2, "b": 32}
    assert answer.order == ("b", "a")
    assert book.answer("S2").order == ("c", "d")


def test_from_the_page() -> None:
    scale, kind, tile, barrier = np.float32(2.5), tk.bf16, tk.rt_fl(16, 16), warp.sync
    swizzled = tk.st(tk.bf16, 16, 16, pad=8)
    pair = (1, float("-inf"), True, None, "text")

    @tk.device
    def helper(x):
        return x * scale

    @tk.kernel(warps=1)
    def k(y: tk.gl_fl, n: tk.i32):
        t = tile
        s = tk.shared(swizzled)
        warp.zero(t)
        warp.store(s, t)
        barrier()
        y[blockIdx.x, threadIdx.x] = helper(float(pair[0])) if n > 0 else pair[1]

    answer = live("M1", {"k": k})
    assert not answer.missing
    assert set(answer.pieces) == {"k", "helper"}
    made = rebuild(Answer.of(json.loads(json.dumps(answer.json()))))["k"]
    assert made is not k
    y = np.zeros((1, 32), np.float32)
    made.sim[1](y, 1)
    assert (y == 2.5).all()
    assert "kind" not in answer.constants
    assert kind is tk.bf16


def test_objects_that_only_look_like_numbers() -> None:
    class Five(int):
        def __repr__(self) -> str:
            return "__import__('os').abort()"

    five = Five(5)

    @tk.kernel(threads=32)
    def k(y: tk.gl_fl):
        y[threadIdx.x] = float(five)

    answer = live("M1", {"k": k})
    assert answer.missing == ("five",)
    with pytest.raises(Refused, match="five"):
        rebuild(answer)


def test_functions_of_ones_own_are_not_taken() -> None:
    text = "@tk.intrinsic(cuda='0', sim=lambda x: x)\ndef twice(x):\n    pass\n"
    with pytest.raises(Refused, match="twice"):
        rebuild(read(HEAD, "THREADS = 32\nVALUE = 1.0", text, KERNEL))


def test_a_forged_answer_is_refused() -> None:
    """Answers come from other processes: nothing in one may run."""
    good = read(HEAD, "THREADS = 32\nVALUE = 1.0", HELPER, KERNEL).json()
    for name, value in (
        ("constants", {**good["constants"], "VALUE": "__import__('os').abort()"}),
        ("imports", {**good["imports"], "tk": "os"}),
        ("imports", {**good["imports"], "tk": "tklearn.course.worker"}),
        ("imports", {**good["imports"], "tk": "numpy.ctypeslib"}),
    ):
        with pytest.raises((Refused, tk.TkError)):
            ran(Answer.of({**good, name: value}))


def test_plain_data() -> None:
    rng = np.random.default_rng(0)
    for kind in (np.float32, np.float16, ml_dtypes.bfloat16, np.int32, np.uint8, bool):
        a = (rng.standard_normal((3, 5)) * 9).astype(kind)
        b = unpack(json.loads(json.dumps(pack(a))))
        assert b.dtype == a.dtype
        assert b.tobytes() == a.tobytes()
    data = {"a": [1, 2.5, None, "x"], 3: {"b": np.float32(1)}}
    assert unpack(json.loads(json.dumps(pack(data)))) == {"a": [1, 2.5, None, "x"], 3: {"b": 1.0}}
    for bad in (object(), {1, 2}, len, np.array([object()])):
        with pytest.raises(TypeError):
            json.dumps(pack(bad))
    for bad in ({"array": "", "dtype": "O", "shape": [0]}, {"x": 1}, {"array": "AAAA"}):
        with pytest.raises(ValueError, match=r"objects|packed"):
            unpack(bad)


def test_outcomes_are_plain() -> None:
    out = Outcome(({"y": np.arange(3.0)},), {"barriers": 2}, ("x",), None, {"seed": 1},
                  (({"schedule": "reverse"}, {"y": np.zeros(2)}),), 64, 4)  # fmt: skip
    again = Outcome.of(json.loads(json.dumps(out.json())))
    assert again.total == out.total
    assert again.changed == out.changed
    assert (again.outputs[0]["y"] == out.outputs[0]["y"]).all()
    assert again.lucky[0][0] == {"schedule": "reverse"}
