"""Where kernels may stand: files, functions, classes, notebook cells; and where not (TK103)."""

from __future__ import annotations

import importlib.util
import linecache
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lang_kit import HEAD, load, message, typed

import tklearn as tk
from tklearn.lang.errors import Loc, excerpt


def error(call: Any) -> tk.TkError:
    with pytest.raises(tk.TkError) as e:
        call()
    return e.value


def test_kernels_in_functions_classes_and_branches(tmp_path: Path) -> None:
    m = load(
        tmp_path,
        '''
def make(T, scale):
    """Kernels of one shape for several dtypes."""

    @tk.kernel(
        threads=(
            32,
            1,
        ),
    )
    # a comment between decorator and function
    def inner(y: tk.gl(T), D: tk.const = 2):
        """Text
with a line at the margin."""
        y[threadIdx.x] = scale * D
    return inner

class Group:
    size = 7

    @tk.kernel(threads=32)
    def member(y: tk.gl_fl):
        y[threadIdx.x] = Group.size

if True:
    @tk.kernel(threads=32)
    def k(y: tk.gl_fl):
        y[threadIdx.x] = 3
''',
    )
    for kernel, value in ((m.make(tk.f32, 2), 4), (m.Group.member, 7), (m.k, 3)):
        y = np.zeros(32, np.float32)
        kernel[1](y)
        assert (y == value).all()
    h = np.zeros(32, np.float16)
    m.make(tk.f16, 1.5)[1](h, D=1)
    assert (h == 1.5).all()


def test_places_in_nested_code_with_tabs_and_wide_text(tmp_path: Path) -> None:
    m = load(
        tmp_path,
        "def make():\n"
        "\t@tk.kernel(threads=32)\n"
        "\tdef k(y: tk.gl_fl, größe: tk.i32):\n"
        "\t\tif größe > 0:\n"
        "\t\t\ty[größe] = größe / 2\n"
        "\treturn k\n"
        "\n"
        "@tk.kernel(threads=32)\n"
        "def wide(y: tk.gl_fl, n: tk.i32):\n"
        "    print('宽度', n / 2)\n",
    )
    name = str(tmp_path) + "/"
    assert str(error(lambda: typed(m.make()))).replace(name, "") == (
        "TK202: '/' between whole numbers\n"
        "  learner.py:10\n"
        "    \t\t\ty[größe] = größe / 2\n"
        "    \t\t\t           ^^^^^^^^^\n"
        "  hint: write // for the quotient rounded down, or float(a) / b"
    )
    lines = str(error(lambda: typed(m.wide))).splitlines()
    assert lines[2] == "        print('宽度', n / 2)"
    assert lines[3] == " " * 22 + "^^^^^"  # two columns for each wide character


def test_an_expression_over_several_lines(tmp_path: Path) -> None:
    text = (
        "@tk.kernel(threads=32)\ndef k(y: tk.gl_fl, n: tk.i32):\n    y[0] = (n /\n            2)\n"
    )
    assert message(tmp_path, text) == (
        "TK202: '/' between whole numbers\n"
        "  learner.py:8\n"
        "        y[0] = (n /\n"
        "                ^^^\n"
        "  hint: write // for the quotient rounded down, or float(a) / b"
    )


def test_a_missing_file_still_has_a_place() -> None:
    assert excerpt(Loc("gone.py", 7, 3)) == "  gone.py:7"


def cell(text: str, file: str = "/tmp/ipykernel_4711/1234567890.py") -> dict[str, Any]:
    """What IPython does with a cell: its text goes into linecache under the name of the code."""
    text = textwrap.dedent(text)
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(HEAD + "\n", "head", "exec"), space)
    exec(compile(text, file, "exec"), space)
    return space


@pytest.mark.parametrize(
    "file", ["/tmp/ipykernel_4711/99.py", "<ipython-input-3-0123456789ab>"], ids=["kernel", "shell"]
)
def test_a_notebook_cell(file: str) -> None:
    k = cell(
        """
        @tk.kernel(threads=32)
        def k(y: tk.gl_fl, n: tk.i32):
            y[0] = n / 2
        """,
        file,
    )["k"]
    assert str(error(lambda: typed(k))) == (
        "TK202: '/' between whole numbers\n"
        "  notebook cell:4\n"
        "        y[0] = n / 2\n"
        "               ^^^^^\n"
        "  hint: write // for the quotient rounded down, or float(a) / b"
    )


def test_two_cells_with_the_same_name() -> None:
    old = cell("@tk.kernel(threads=1)\ndef k(y: tk.gl_fl):\n    y[0] = 1\n", "<ipython-input-1-a>")
    new = cell("@tk.kernel(threads=1)\ndef k(y: tk.gl_fl):\n    y[0] = 2\n", "<ipython-input-2-b>")
    y = np.zeros(1, np.float32)
    new["k"][1](y)
    assert y[0] == 2
    old["k"][1](y)
    assert y[0] == 1


@pytest.mark.skipif(importlib.util.find_spec("IPython") is None, reason="IPython is not installed")
def test_in_ipython() -> None:
    code = """
        from IPython.core.interactiveshell import InteractiveShell
        shell = InteractiveShell.instance()
        shell.run_cell("import tklearn as tk, numpy as np", store_history=True)
        kernel = "@tk.kernel(threads=1)\\ndef k(y: tk.gl_fl):\\n    y[0] = 5\\n"
        shell.run_cell(kernel, store_history=True)
        use = "y = np.zeros(1, np.float32); k[1](y); print(y[0])"
        out = shell.run_cell(use, store_history=True)
        out.raise_error()
    """
    out = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False
    )
    assert "5.0" in out.stdout, out.stdout + out.stderr


def test_typed_at_the_plain_prompt_or_in_exec() -> None:
    space = {"tk": tk}
    code = "@tk.kernel(threads=32)\ndef k(y: tk.gl_fl):\n    y[0] = 1\n"
    for file in ("<string>", "<stdin>"):
        assert str(error(lambda f=file: exec(compile(code, f, "exec"), dict(space)))) == (
            "TK103: the source text of 'k' cannot be found\n"
            "  hint: write the kernel in a file or in a notebook cell, "
            "not at the plain Python prompt or in exec"
        )
    helper = "@tk.device\ndef f(a):\n    return a\n"
    assert error(lambda: exec(helper, dict(space))).code == "TK103"
    out = subprocess.run(
        [sys.executable, "-i"],
        input="import tklearn as tk\n" + code + "\n",
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parent.parent,
    )
    missing = "TK103: the source text of 'k' cannot be found" in out.stderr
    assert missing == (sys.version_info < (3, 13))  # since 3.13 the prompt keeps what was typed


class _Callable:
    def __call__(self, y: tk.gl_fl) -> None:
        pass


@pytest.mark.parametrize(
    "thing",
    [lambda y: None, _Callable, _Callable(), print, 3, None, np.exp],
    ids=["lambda", "class", "object", "builtin", "number", "none", "ufunc"],
)
def test_what_is_no_plain_function(thing: Any) -> None:
    e = error(lambda: tk.kernel(threads=32)(thing))
    assert e.code == "TK103"
    assert "must be a plain function (def)" in e.message
    assert error(lambda: tk.device(thing)).code == "TK103"


def test_marked_twice(tmp_path: Path) -> None:
    for decorators in ("@tk.kernel(threads=1)\n" * 2, "@tk.device\n@tk.kernel(threads=1)\n"):
        text = f"{decorators}def k(y: tk.gl_fl):\n    y[0] = 1\n"
        assert error(lambda t=text: load(tmp_path, t)).code == "TK103"


def test_a_kernel_keeps_the_text_it_was_made_from(tmp_path: Path) -> None:
    """The learner edits the file while the notebook still holds the old module."""
    text = "@tk.kernel(threads=1)\ndef k(y: tk.gl_fl, D: tk.const = 1):\n    y[0] = D\n"
    m = load(tmp_path, text)
    (tmp_path / "learner.py").write_text(HEAD + "\n\n" + text.replace("= D", "= 99"))
    linecache.checkcache()
    y = np.zeros(1, np.float32)
    m.k[1](y, D=3)
    assert y[0] == 3


def test_a_file_that_changed_before_it_was_read(tmp_path: Path) -> None:
    m = load(tmp_path, "def f(y: tk.gl_fl):\n    y[0] = 1\n\ndef g(y: tk.gl_fl):\n    y[0] = 2\n")
    (tmp_path / "learner.py").write_text(HEAD + "def g(y: tk.gl_fl):\n    y[0] = 2\n\n\n\n\n")
    linecache.checkcache()
    e = error(lambda: tk.kernel(threads=1)(m.f))
    assert e.code == "TK103"
    assert "the file has changed: 'g' stands where 'f' was" in e.message


def test_postponed_annotations(tmp_path: Path) -> None:
    head = "from __future__ import annotations\n" + HEAD
    text = (
        'T = tk.f32\n@tk.kernel(threads=1)\ndef k(y: tk.gl(T), D: "tk.const" = 2):\n    y[0] = D\n'
    )
    y = np.zeros(1, np.float32)
    load(tmp_path, text, head=head).k[1](y)
    assert y[0] == 2
    bad = "@tk.kernel(threads=1)\ndef k(y: 'tk.gl(', n: 'nothing'):\n    pass\n"
    assert error(lambda: load(tmp_path, bad, head=head)).code == "TK104"


def test_names_of_the_surrounding_function_that_come_later(tmp_path: Path) -> None:
    m = load(
        tmp_path,
        "def make():\n"
        "    @tk.kernel(threads=1)\n"
        "    def k(y: tk.gl_fl):\n"
        "        y[0] = scale\n"
        "    if len(N_later) > 1:\n"
        "        scale = 3\n"
        "    return k\n"
        "N_later = [1]\n",
    )
    e = error(lambda: typed(m.make()))
    assert (e.code, e.hint) == ("TK110", "the surrounding function has not given it a value yet")
    m.N_later.append(2)
    y = np.zeros(1, np.float32)
    m.make()[1](y)
    assert y[0] == 3


def test_device_names_outside_kernels() -> None:
    for call in (
        lambda: tk.exp(1.0),
        lambda: tk.threadIdx.x + 1,
        lambda: 2 * tk.blockIdx.x,
        lambda: tk.threadIdx.x == 0,
        lambda: bool(tk.laneid),
        lambda: tk.warp.load(1, 2),
        lambda: tk.shared[0],
        lambda: [*tk.warpid],
        lambda: tk.f32(3),
    ):
        e = error(call)
        assert e.code == "TK107"
        assert "inside a kernel" in e.message
    assert not hasattr(tk.warp, "_repr_html_")  # Jupyter asks
    assert repr(tk.warp.load) == "tk.warp.load"
    m = tk.device(_helper)
    assert error(lambda: m(1)).code == "TK107"


def _helper(a: Any) -> Any:
    return a
