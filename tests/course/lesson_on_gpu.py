"""Runs the cells of one notebook on this machine's GPU, in a process of its own.

    python tests/course/lesson_on_gpu.py NOTEBOOK [as-t4]

Prints one JSON object: for each comparison that a cell makes, its kernel, where the measured column
comes from and how far the values are from the simulator's. A cell that fails ends it.

`as-t4`: the GPU calls itself a T4. Kernels are then chosen, refused and compiled as for one
(sm_75, 64 KiB of shared memory), and what the GPU loads is the PTX of sm_75, which every newer GPU
runs: the values are a T4's, the times are not.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

from course_kit import code, run_cell

T4 = ("Tesla T4", 75, 64 * 1024)


def pretend_t4() -> None:
    """Replaces what the launcher asks the driver, and the image that it loads."""
    from cupy.cuda import nvrtc

    from tklearn.cuda import compile as compiler
    from tklearn.cuda import launch

    launch.device_facts = lambda device: T4
    build = compiler._build

    def build_ptx(source: Any, arch: int, options: tuple[str, ...], key: str) -> Any:
        made = build(source, arch, options, key)
        flags = ("-arch=compute_75", *options, *(f"-I{d}" for d in compiler.include_dirs()))
        program = nvrtc.createProgram(source.text, f"{source.entry}.cu", (), ())
        nvrtc.compileProgram(program, [f for f in flags if not f.startswith("--ptxas")])
        ptx = nvrtc.getPTX(program)
        nvrtc.destroyProgram(program)
        assert b".target sm_75" in (ptx if isinstance(ptx, bytes) else ptx.encode())
        return dataclasses.replace(made, image=ptx)

    compiler._build = build_ptx
    compiler.read_entry = lambda key: None  # the disk cache holds cubins


def split(text: str) -> tuple[str, str]:
    """The statements of a cell, and the expression that it shows ("" if it ends otherwise)."""
    tree = ast.parse(text)
    if not tree.body or not isinstance(tree.body[-1], ast.Expr):
        return text, ""
    last = tree.body[-1]
    lines = text.splitlines(keepends=True)
    shown = ast.get_source_segment(text, last.value) or ""
    return "".join(lines[: last.lineno - 1]), shown


def main(path: Path, machine: str = "") -> dict[str, Any]:
    """Runs the notebook; see the head of this file."""
    from tklearn import comparison

    if machine == "as-t4":
        pretend_t4()
    made: list[comparison.Comparison] = []
    init = comparison.Comparison.__init__

    def watched(self: comparison.Comparison, *args: Any, **fields: Any) -> None:
        init(self, *args, **fields)
        made.append(self)

    comparison.Comparison.__init__ = watched
    space: dict[str, Any] = {"__name__": "__main__"}
    for i, text in enumerate(code(path)):
        body, shown = split(text)
        run_cell(body, f"{path.stem}-{i}", space)
        if shown:
            str(eval(f"({shown})", space))
    tables = [
        {"kernel": c.kernel, "source": c.source_of_measurement(), "values": c.rows[0].measured}
        for c in made
    ]
    return {"notebook": path.name, "machine": machine, "tables": tables}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), *sys.argv[2:])))
