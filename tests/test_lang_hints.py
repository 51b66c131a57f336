"""What a newcomer gets wrong first: imports left out, words of NumPy, and how an error looks."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lang_kit import load

import tklearn as tk
from tklearn.course import check

TILE = "@tk.kernel(warps=1)\ndef k(y: tk.gl_fl):\n    at = 0\n    t = tk.rt_fl(16, 16)\n"


def refusal(folder: Path, line: str, head: str = "") -> tk.TkError:
    names = "import numpy as np\nimport tklearn as tk\nfrom tklearn import warp\n"
    m = load(folder, f"{TILE}    {line}\n", head=head or names)
    with pytest.raises(tk.TkError) as e:
        m.k[1](np.zeros((32, 16), np.float32))
    return e.value


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("y[0, laneid()] = 1.0", "write 'from tklearn import laneid' above the kernel"),
        ("y[0, threadIdx.x] = 1.0", "write 'from tklearn import threadIdx' above the kernel"),
        ("block.sync()", "write 'from tklearn import block' above the kernel"),
        ("warps = 4; block.sync()", "write 'from tklearn import block' above the kernel"),
        ("blocks = 4; block.sync()", "write 'from tklearn import block' above the kernel"),
        ("wrap.zero(t)", "did you mean 'warp'?"),
        ("t = rt_fl(16, 16)", "'rt_fl' is not defined here; write tk.rt_fl"),
        ("t = exp(t)", "'exp' is not defined here; inside kernels write tk.exp"),
        ("y[0, AT] = 1.0", "did you mean 'at'?"),
        ("tk.load(t, y)", "did you mean warp.load?"),
        ("tk.syncthreads()", "write block.sync()"),
        ("s = tk.zeros(16, 16)", "write t = tk.rt_fl(16, 16), then warp.zero(t)"),
        (
            "s = softmax(t)",
            "'softmax' is not defined here; "
            "write t = tk.exp(t - tk.row_max(t)), then t /= tk.row_sum(t)",
        ),
        ("s = tk.mean(x)", "write tk.row_sum(t) / 128, with the number of columns for 128"),
        ("s = tk.where(t, 1, 2)", "write a if condition else b, for the numbers of a lane"),
        ("s = np.zeros((16, 16))", "write t = tk.rt_fl(16, 16), then warp.zero(t)"),
        ("s = tk.softmax(t)", "write t = tk.exp(t - tk.row_max(t)), then t /= tk.row_sum(t)"),
        ("s = tk.histogram(t)", "docs/language.md lists the functions"),
        ("s = tk.float32(3)", "write tk.f32"),
        ("s = tk.blockIdx * 4", "write blockIdx.x, blockIdx.y or blockIdx.z"),
        ("s = t.T", "write tk.transpose(t)"),
        ("s = t.max()", "write tk.row_max(t), one for each row, or tk.col_max(t)"),
        ("s = t.exp()", "write tk.exp(t)"),
        ("s = tk.sum(t)", "of a tile: tk.sum(tk.col_sum(t))"),
        ("s = tk.rt_fl((16, 16))", "tk.rt_fl(rows, cols, layout=tk.row)"),
        ("s = tk.rv(128)", "tk.rv(dtype, n)"),
        ("t = 0", "use a new name, or warp.fill(t, ...) to set every element"),
        (
            "s = [0.0, 1.0]",
            "numbers that a lane keeps stand in tk.reg_array(tk.f32, 4), "
            "those of the block in tk.shared_array(tk.f32, 4)",
        ),
    ],
)
def test_the_hint_says_what_to_write(tmp_path: Path, line: str, hint: str) -> None:
    assert refusal(tmp_path, line).hint == hint


def test_the_hint_for_a_list_is_right(tmp_path: Path) -> None:
    m = load(
        tmp_path,
        "@tk.kernel(warps=1)\ndef k(y: tk.gl_fl):\n    s = tk.reg_array(tk.f32, 4)\n"
        "    s[1] = 2.0\n    y[0, laneid()] = s[1]\n",
    )
    y = np.zeros((1, 32), np.float32)
    m.k[1](y)
    assert (y == 2).all()


def test_a_notebook_shows_the_learners_frames_only(tmp_path: Path) -> None:
    fault = refusal(tmp_path, "wrap.zero(t)")
    shown = "\n".join(fault._render_traceback_())
    assert shown.endswith(f'\n\nSourceError: {fault}\n  more: tk.explain("{fault.code}")')
    assert "m.k[1](np.zeros((32, 16), np.float32))" in shown
    assert "frontend" not in shown
    assert len(shown.splitlines()) < 12


def test_a_launch_without_arguments_says_what_it_is(tmp_path: Path) -> None:
    k = load(tmp_path, TILE).k
    assert repr(k[4, 2]) == "<k with grid (4, 2, 1), not run yet: call it with (y)>"


def test_check_says_which_argument_is_missing(tmp_path: Path) -> None:
    assert "give your kernel too: check('temperature', my_kernel)" in str(check("temperature"))
    with pytest.raises(tk.TkError, match="the name of the exercise comes first"):
        check(load(tmp_path, TILE).k)


BLOCKS = """
@tk.kernel(threads=32)
def k(y: tk.gl_fl):
    y[blockIdx.x, threadIdx.x] = 1.0
"""


def test_threads_in_the_place_of_blocks(tmp_path: Path) -> None:
    k, y = load(tmp_path, BLOCKS).k, np.zeros((2, 32), np.float32)
    k[2](y)
    with pytest.raises(tk.Race) as e:
        k[2, 32](y)
    assert e.value.hint.startswith("the grid has 32 blocks along y, but k does not read blockIdx.y")
    other = load(tmp_path, BLOCKS.replace("y[blockIdx.x,", "y[0 * blockIdx.x,")).k
    with pytest.raises(tk.Race) as e:
        other[2](y)
    assert e.value.hint.startswith("give each block elements of its own")


def test_print_takes_one_line_a_warp(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = BLOCKS + "    print('x', y[0, threadIdx.x] / 3)\n"
    load(tmp_path, text).k[1](np.ones((1, 32), np.float32))
    (line,) = capsys.readouterr().out.splitlines()
    assert line == "[block (0, 0, 0) warp 0] x [" + " ".join(["0.3333"] * 32) + "]"


def test_a_barrier_for_some_lanes(tmp_path: Path) -> None:
    text = BLOCKS.replace("    y[", "    if threadIdx.x < 16:\n        block.sync()\n    y[")
    with pytest.raises(tk.KernelFault, match="some lanes find this condition true") as e:
        load(tmp_path, text).k[1](np.zeros((1, 32), np.float32))
    assert e.value.hint.startswith("move that out of the 'if'")


def test_a_report_says_which_lines_reach_past_the_end(tmp_path: Path) -> None:
    text = TILE + "    warp.zero(t)\n    warp.store(y, t, (1, 0))\n"
    m = load(tmp_path, text, head="import tklearn as tk\nfrom tklearn import warp\n")
    report = str(m.k[1](np.zeros((16, 16), np.float32)))
    assert (
        "clipped: 256 elements past the end of an array (read as 0, not stored) by line 8;"
        in report
    )


def frames_of(call: Any) -> list[str]:
    """Files below this one, from the call to where the error came from."""
    with pytest.raises(tk.TkError) as e:
        call()
    files = [f.filename for f in traceback.extract_tb(e.value.__traceback__)]
    return [Path(f).name for f in files[files.index(__file__) :] if f != __file__]


@pytest.mark.parametrize("how", ["sim", "explore", "refused", "source"])
def test_a_traceback_has_the_learners_frames_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    text = "@tk.kernel(warps=1)\ndef k(y: tk.gl_fl):\n    y[laneid() + 5] = 1.0\n"
    if how in ("refused", "source"):
        text = text.replace("1.0", "missing")
    k = load(tmp_path, text).k
    y = np.zeros(32, np.float32)
    call = {
        "sim": lambda: k[1](y),
        "explore": lambda: k.sim[1].explore(np.zeros((32, 32), np.int8)),
        "refused": lambda: k[1](y),
        "source": lambda: k.source(y),
    }[how]
    few = frames_of(call)
    assert set(few) <= {"kernel.py", "learner.py"}
    assert few.count("kernel.py") <= 2
    assert ("learner.py" in few) == (how == "sim")  # its own frame, with its variables
    monkeypatch.setenv("TKLEARN_TRACEBACK", "full")
    assert len(frames_of(call)) > len(few)


def test_faults_of_tklearn_itself_keep_their_frames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    k = load(tmp_path, "@tk.kernel(warps=1)\ndef k(y: tk.gl_fl):\n    y[laneid()] = 1.0\n").k

    def broken(*_: Any, **__: Any) -> None:
        raise KeyError("a fault of ours")

    monkeypatch.setattr("tklearn.launching.simulate", broken)
    with pytest.raises(KeyError) as e:
        k[1](np.zeros(32, np.float32))
    assert traceback.extract_tb(e.value.__traceback__)[-1].name == "broken"
