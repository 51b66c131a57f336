"""kernel.export: files that build with nvcc and torch alone, and the same results as from here."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import async_op_cases
import pytest

import tklearn as tk
from tklearn import blockIdx, threadIdx, warp, warpgroup
from tklearn.cuda.cppnames import legal
from tklearn.kernels import attention_hopper, gemm_hopper, saxpy, softmax
from tklearn.lang.errors import TkError

BF = tk.bf16


@tk.kernel(threads=64)
def awkward(
    stream: tk.gl_hf, blocks: tk.gl(tk.i32), filled: tk.gl(tk.u8), wrong: tk.gl_fl, n: tk.i32,
    double: tk.i64, flag: tk.bool_, s: tk.f32, few: tk.u32,
):  # fmt: skip
    """Every kind of number, and names that the exported files use themselves."""
    i = threadIdx.x
    assert n > 0, "n is positive"
    if flag and i < n:
        filled[i] = 7
        wrong[i] = s * stream[blockIdx.x, i] + float(blocks[i]) + float(n)
    if i == 0:
        print(n)


@tk.kernel(threads=32)
def host(EOF: tk.gl_fl, tk_host: tk.gl_fl):
    """Names of the headers and of C's macros."""
    stdin = EOF[threadIdx.x]
    offsetof = stdin + 1.0
    tk_host[threadIdx.x] = offsetof


@tk.kernel(warps=12)
def greedy(x: tk.gl_fl):
    warpgroup.increase_registers(240)
    t = tk.rt_fl(16, 16)
    warp.load(t, x, (0, 0))
    warp.store(x, t, (0, 0))


MADE = {
    "softmax": (softmax.short(BF), {"D": 256}),
    "saxpy": (saxpy.saxpy, {}),
    "awkward": (awkward, {}),
    "host": (host, {}),
    "gemm": (gemm_hopper.persistent(), {}),
    "attention": (attention_hopper.make(), {}),
    "vectors": (async_op_cases._vectors(tk.f16, 64).kernel, {}),
}
EVERY = pytest.mark.parametrize("name", MADE)


def exported(name: str, folder: Path) -> Path:
    kernel, consts = MADE[name]
    return kernel.export(folder, **consts)


@EVERY
def test_nothing_of_tklearn_is_needed(name: str, tmp_path: Path) -> None:
    """Each include is a file beside, or of CUDA and torch; no place on this machine is named."""
    folder = exported(name, tmp_path / "new" / "folder")
    assert folder == tmp_path / "new" / "folder"
    texts = [p for p in folder.rglob("*") if p.is_file()]
    assert len([p for p in texts if p.parent == folder]) == 6
    for p in texts:
        text = p.read_text(encoding="utf-8")
        assert "import tklearn" not in text
        assert str(tmp_path) not in text
        assert "site-packages" not in text
        for found in re.findall(r'^\s*#include "([^"]+)"', text, re.M):
            assert (p.parent / found).is_file() or (folder / found).is_file(), (p, found)


def test_the_kernel_is_the_one_that_source_prints(tmp_path: Path) -> None:
    kernel, consts = MADE["softmax"]
    folder = exported("softmax", tmp_path)
    assert (folder / "softmax.cu").read_text() == kernel.source(**consts)


def test_registers_that_cannot_come_out_even(tmp_path: Path) -> None:
    with pytest.raises(TkError) as e:
        greedy.export(tmp_path / "x")
    assert e.value.code == "TK409"
    assert not (tmp_path / "x").exists()


def test_a_kernel_without_arrays(tmp_path: Path) -> None:
    @tk.kernel(warps=1)
    def says(n: tk.i32):
        print(n)

    with pytest.raises(TkError, match="takes no array") as e:
        says.export(tmp_path / "x", 3)
    assert e.value.code == "TK400"


@pytest.mark.parametrize("name", ["softmax", "awkward", "host", "attention", "vectors"])
def test_it_builds_as_a_library(name: str, tmp_path: Path) -> None:
    """The command of its README.md, without a warning of ours; the function is in the result."""
    if shutil.which("nvcc") is None:
        pytest.skip("nvcc is not installed")
    folder = exported(name, tmp_path)
    readme = (folder / "README.md").read_text()
    command = re.search(r"^ +(nvcc [^\n]*?\\\n[^\n]*)$", readme, re.M)
    assert command is not None
    words = command[1].replace("\\\n", " ").split()
    made = subprocess.run(words, cwd=folder, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    assert not re.search(r"^(tk/|\S+_launch)\S*: warning", made.stderr, re.M), made.stderr
    symbols = subprocess.run(
        ["nm", "-DC", next(folder.glob("lib*.so"))], capture_output=True, text=True
    ).stdout
    assert re.search(rf" T {name}_launch\(", symbols)


def test_no_name_is_a_macro_of_the_headers(tmp_path: Path) -> None:
    """What nvcc includes by itself defines words that a learner may use."""
    if shutil.which("nvcc") is None:
        pytest.skip("nvcc is not installed")
    exported("host", tmp_path)
    (tmp_path / "all.cu").write_text('#include "tk/host.cuh"\n#include "tk/debug.cuh"\n')
    command = ["nvcc", "-std=c++17", "-I.", "-E", "-Xcompiler", "-dM", "all.cu"]
    text = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True).stdout
    names = set(re.findall(r"^#define ([A-Za-z][A-Za-z0-9]*)\b", text, re.M))
    assert len(names) > 20
    assert not {n for n in names if legal(n) == n and not n.startswith(("CU", "cu"))}


def test_the_operator_is_right_c_plus_plus(tmp_path: Path) -> None:
    """The part that torch compiles, against torch's own headers (of any build)."""
    torch = pytest.importorskip("torch")
    if shutil.which("nvcc") is None or shutil.which("g++") is None:
        pytest.skip("nvcc or g++ is not installed")
    from torch.utils.cpp_extension import include_paths

    folder = exported("awkward", tmp_path)
    plan = subprocess.run(["nvcc", "--dryrun", "x.cu"], capture_output=True, text=True).stderr
    cuda = re.findall(r'"-I([^"]+)"', plan)
    made = subprocess.run(
        ["g++", "-std=c++20", "-fsyntax-only", "-Wall", "-DC10_USING_CUSTOM_GENERATED_MACROS",
         *(f"-isystem{p}" for p in (*include_paths(), *cuda)), f"-I{folder}",
         str(folder / "awkward_torch.cpp")],
        capture_output=True, text=True,
    )  # fmt: skip
    assert made.returncode == 0, (torch.__version__, made.stderr)
    assert "awkward" not in made.stderr, made.stderr


ELSEWHERE = """
import sys
import torch
from build import load

assert not [m for m in sys.modules if m.startswith("tklearn")]
grid, args = torch.load("in.pt")
args = [a.cuda() if isinstance(a, torch.Tensor) else a for a in args]
op = load()
op(grid, *args)
torch.save([a.cpu() for a in args if isinstance(a, torch.Tensor)], "out.pt")


@torch.compile(fullgraph=True)
def compiled(args):
    op(grid, *args)
    return args[-1] if isinstance(args[-1], torch.Tensor) else args[-2]


again = compiled([a.clone() if isinstance(a, torch.Tensor) else a for a in args])
assert torch.isfinite(again.float()).all()
try:
    op(grid, *[a.double() if isinstance(a, torch.Tensor) else a for a in args])
except RuntimeError as e:
    assert "must be" in str(e), e
else:
    raise AssertionError("float64 was taken")
"""


def launches(name: str) -> tuple[list[int], list[Any]]:
    """A grid and arguments, of sizes that are no multiples of a tile where that is allowed."""
    import torch

    F, B = torch.float32, torch.bfloat16

    g = torch.Generator().manual_seed(0)

    def rand(*shape: int, dtype: Any = B) -> Any:
        return torch.randn(shape, generator=g).to(dtype)

    return {
        "softmax": ([50], [rand(99, 256), torch.zeros(99, 256, dtype=B)]),
        "saxpy": ([4], [1000, 0.5, rand(1000, dtype=F), rand(1000, dtype=F)]),
        "gemm": ([8], [rand(500, 264), rand(264, 328), torch.zeros(500, 328, dtype=B)]),
        "attention": (
            [2, 3, 2],
            [*(rand(2, 3, 384, 64) for _ in range(3)),
             torch.zeros(2, 3, 384, 64, dtype=B), 0.18],
        ),
    }[name]  # fmt: skip


@pytest.mark.gpu(limit=400)
@pytest.mark.parametrize("name", ["softmax", "saxpy", "gemm", "attention"])
def test_the_same_bits_without_tklearn(name: str, tmp_path: Path) -> None:
    """Built by build.py in a process that has no tklearn; also under torch.compile."""
    torch = pytest.importorskip("torch")
    folder = exported(name, tmp_path)
    grid, args = launches(name)
    torch.save((grid, args), folder / "in.pt")
    (folder / "elsewhere.py").write_text(ELSEWHERE)
    clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "elsewhere.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**clean, "TORCH_EXTENSIONS_DIR": str(tmp_path / "ext")},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    kernel, consts = MADE[name]
    here = [a.cuda() if isinstance(a, torch.Tensor) else a for a in args]
    kernel[tuple(grid)](*here, **consts)
    arrays = [a.cpu() for a in here if isinstance(a, torch.Tensor)]
    for ours, theirs in zip(arrays, torch.load(folder / "out.pt"), strict=True):
        assert torch.equal(ours, theirs)
    assert arrays[-1].float().abs().max() > 0
