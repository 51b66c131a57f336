"""A kernel as files that build without tklearn: .cu, headers, a host function, a torch operator.

Knows the kernel's printed C++ (emit.py) and its arguments. What all exports share is in the header
library: tk/host.cuh for the launch, tk/torch.h for tensors. It must not know the driver or torch.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from tklearn.cuda import pool
from tklearn.cuda.compile import INCLUDE, arch_name
from tklearn.cuda.cppnames import Names
from tklearn.cuda.emit import emit
from tklearn.cuda.expr import type_text
from tklearn.cuda.needs import hopper_only, tma_tiles
from tklearn.lang import ir
from tklearn.lang.errors import LaunchError
from tklearn.lang.types import GL

TORCH_DTYPES = {
    "f32": "Float", "f16": "Half", "bf16": "BFloat16", "e4m3": "Float8_e4m3fn",
    "e5m2": "Float8_e5m2", "i32": "Int", "i64": "Long", "u32": "UInt32", "u8": "Byte",
    "bool": "Bool",
}  # fmt: skip
CPP_SCALARS = {
    "i32": "int", "u32": "unsigned", "i64": "long long", "f32": "float", "bool": "bool"
}  # fmt: skip
SCHEMA = {"f32": "float", "bool": "bool"}  # others are int
TORCH_SCALARS = {"float": "double", "bool": "bool", "int": "int64_t"}


def export(spec: ir.Kernel, folder: Path) -> Path:
    """Writes the files of one specialised kernel into `folder`, which is made if it is not there.

    Errors: TK409 for warpgroups that would wait for registers for ever; TK400 for a kernel without
    arrays; OSError.
    """
    if not any(isinstance(p.type, GL) for p in spec.params):
        raise LaunchError(
            "TK400",
            f"'{spec.name}' takes no array, so that a launch would leave nothing",
            spec.loc,
            "give it an array to write to",
        )
    if wrong := pool.problem(spec):
        raise LaunchError("TK409", *wrong)
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copytree(
        INCLUDE / "tk", folder / "tk", dirs_exist_ok=True, ignore=shutil.ignore_patterns("__*")
    )
    made = _Files(spec)
    for name, text in made.all().items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


class _Files:
    """The texts, by file name. `names`: each parameter's C++ name."""

    def __init__(self, spec: ir.Kernel) -> None:
        self.spec = spec
        self.source = emit(spec)
        self.entry = self.source.entry
        unique = Names([self.entry, f"{self.entry}_launch"])
        unique.reserve(p.name for p in spec.params)
        self.names = {p: unique(p.name) for p in spec.params}
        self.grid, self.stream, self.filled, self.wrong, self.count, self.guard = (
            unique.fresh(n) for n in ("blocks", "stream", "filled", "wrong", "count", "guard")
        )
        self.tiles = tma_tiles(spec)

    def all(self) -> dict[str, str]:
        return {
            f"{self.entry}.cu": self.source.text,
            f"{self.entry}.h": self.header(),
            f"{self.entry}_launch.cu": self.launch(),
            f"{self.entry}_torch.cpp": self.torch(),
            "build.py": self.build(),
            "README.md": self.readme(),
        }

    # ----------------------------------------------------------------------------- the host
    def signature(self) -> str:
        """The C++ function that launches."""
        params = [f"const int (&{self.grid})[3]", f"void* {self.stream}"]
        for p, name in self.names.items():
            t = "tk_array" if isinstance(p.type, GL) else CPP_SCALARS[p.type.dtype.name]
            params.append(f"{t} {name}")
        return f"const char* {self.entry}_launch({', '.join(params)})"

    def header(self) -> str:
        listed = "\n".join(
            f"//   {name}: {p.type.dtype.name}, {p.type.ndim or 2}-d{', written' * p.written}"
            for p, name in self.names.items()
            if isinstance(p.type, GL)
        )
        return f"""\
// {self.entry}.h: launches the kernel of {self.entry}.cu. Plain C++, no CUDA headers.
#pragma once

#include "tk/array.h"

// Launches on {self.stream} (a cudaStream_t), does not wait. Returns nullptr, or what is wrong.
{listed}
{self.signature()};
"""

    def launch(self) -> str:
        x, y, z = self.spec.threads
        fields, fill, given = [], [], []
        for p, name in self.names.items():
            if not isinstance(p.type, GL):
                given.append(name)
                continue
            inside = ", ".join([type_text(p.type)[3:-1], *(t.cpp for t in self.tiles.get(p, ()))])
            fields.append(f"    gl<{inside}> {name};")
            call = f"tk_host::set({self.filled}.{name}, {name}, {str(p.written).lower()})"
            fill.append(f"    if (auto {self.wrong} = {call}) return {self.wrong};")
            given.append(f"{self.filled}.{name}")
        args = "".join(f", {g}" for g in given)
        lines = [
            f"// {self.entry}_launch.cu: the CPU's side of {self.entry}.cu.",
            f'#include "{self.entry}.h"',
            f'#include "{self.entry}.cu"',
            '#include "tk/host.cuh"',
            "",
            "namespace tk {",
            f"struct {self.entry}_arrays {{",
            *fields,
            "};",
            "}  // namespace tk",
            "",
            f"{self.signature()} {{",
            f"    tk::{self.entry}_arrays {self.filled};",
            *fill,
            f"    return tk_host::launch(tk::{self.entry}, {self.grid}, dim3({x}, {y}, {z}), "
            f"{self.spec.shared_bytes}, {self.stream}{args});",
            "}",
        ]
        return "\n".join(lines) + "\n"

    # ----------------------------------------------------------------------------- torch
    def torch(self) -> str:
        schema, params, given = [f"int[] {self.grid}"], [f"at::IntArrayRef {self.grid}"], []
        first = next(name for p, name in self.names.items() if isinstance(p.type, GL))
        for p, name in self.names.items():
            dtype = p.type.dtype.name
            if isinstance(p.type, GL):
                schema.append(f"Tensor{'(a!)' if p.written else ''} {name}")
                params.append(f"const at::Tensor& {name}")
                given.append(
                    f'tk_torch::array({name}, "{name}", at::k{TORCH_DTYPES[dtype]}, '
                    f"{p.type.ndim or 2})"
                )
            else:
                kind = SCHEMA.get(dtype, "int")
                schema.append(f"{kind} {name}")
                params.append(f"{TORCH_SCALARS[kind]} {name}")
                given.append(f"static_cast<{CPP_SCALARS[dtype]}>({name})")
        args, given_names = ",\n        ".join(given), ", ".join(self.names.values())
        return f"""\
// {self.entry}_torch.cpp: the kernel as torch.ops.tk.{self.entry}({self.grid}, {given_names}).
#include "{self.entry}.h"
#include "tk/torch.h"

namespace {{

void run({", ".join(params)}) {{
    const c10::cuda::CUDAGuard {self.guard}({first}.device());
    const tk_torch::blocks {self.count}({self.grid});
    tk_torch::check("{self.entry}", {self.entry}_launch(
        {self.count}.n, c10::cuda::getCurrentCUDAStream().stream(),
        {args}));
}}

// For torch.compile, which asks with tensors that have no memory.
void nothing({", ".join(params)}) {{}}

}}  // namespace

TORCH_LIBRARY_FRAGMENT(tk, m) {{ m.def("{self.entry}({", ".join(schema)}) -> ()"); }}
TORCH_LIBRARY_IMPL(tk, CUDA, m) {{ m.impl("{self.entry}", run); }}
TORCH_LIBRARY_IMPL(tk, Meta, m) {{ m.impl("{self.entry}", nothing); }}
"""

    def build(self) -> str:
        return f'''\
"""Builds the torch operator with nvcc, for the GPU of this machine.

    from build import load
    {self.entry} = load()
    {self.entry}([blocks], {", ".join(self.names.values())})
"""

import os
from pathlib import Path

import torch
from torch.utils import cpp_extension

HERE = Path(__file__).resolve().parent
# torch switches operators of 16-bit numbers off, which the headers use.
NUMBERS = ["HALF_OPERATORS", "HALF_CONVERSIONS", "HALF2_OPERATORS", "BFLOAT16_CONVERSIONS"]


def load():
    """torch.ops.tk.{self.entry}, built if it is not yet."""
    major, minor = torch.cuda.get_device_capability()
    os.environ["TORCH_CUDA_ARCH_LIST"] = f"{{major}}.{{minor}}{{'a' if major >= 9 else ''}}"
    cpp_extension.load(
        "tk_{self.entry}",
        [str(HERE / "{self.entry}_launch.cu"), str(HERE / "{self.entry}_torch.cpp")],
        extra_include_paths=[str(HERE)],
        extra_cuda_cflags=["-O3", "-fmad=false", *(f"-U__CUDA_NO_{{n}}__" for n in NUMBERS)],
        is_python_module=False,
    )
    return torch.ops.tk.{self.entry}


if __name__ == "__main__":
    print(load())
'''

    def readme(self) -> str:
        x, y, z = self.spec.threads
        arch = arch_name(self.spec.arch)[3:]
        newer = "alone" if hopper_only(self.spec) else "or newer"
        return f"""\
# {self.entry}

A kernel written by tklearn. It needs nvcc (CUDA 12 or newer) and nothing of tklearn; the GPU
must be sm_{arch} {newer}. A block has {x} x {y} x {z} threads; the caller says how many blocks.

* `{self.entry}.cu`: the kernel. `tk/`: the headers that it uses.
* `{self.entry}.h`, `{self.entry}_launch.cu`: a C++ function that launches it.
* `{self.entry}_torch.cpp`, `build.py`: `torch.ops.tk.{self.entry}`, for torch.compile, too.

As a library:

    nvcc -shared -Xcompiler -fPIC -std=c++17 -O3 -fmad=false -I. {self.entry}_launch.cu \\
        -gencode arch=compute_{arch},code=sm_{arch} -o lib{self.entry}.so

In torch:

    python build.py

`-fmad=false` keeps the values as tklearn's simulator has them: a * b + c of one expression is fused
where it says fma, and nowhere else.
"""
