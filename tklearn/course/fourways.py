"""Softmax in PyTorch, Triton, raw CUDA and tklearn: how long each text is and how fast each ran.

The texts lie in tklearn/course/others/ and in the first notebook; the times are those that
benchmarks/softmax_four_ways.py measured on a GPU and wrote to tklearn/recorded/softmax_four_ways/.
"""

from __future__ import annotations

import html
import json
from dataclasses import dataclass
from pathlib import Path

OTHERS = Path(__file__).parent / "others"
RESULT = Path(__file__).parents[1] / "recorded" / "softmax_four_ways" / "h200.json"
TORCH = "y = torch.softmax(x, dim=1)"
TKLEARN = """
@tk.kernel(warps=4)
def softmax(x: tk.gl_fl, y: tk.gl_fl):
    at = (blockIdx.x * 4 + warpid(), 0)
    row = tk.rt_fl(16, 128)
    warp.load(row, x, at)
    row = tk.exp(row - tk.row_max(row))
    row /= tk.row_sum(row)
    warp.store(y, row, at)
"""
HIDES = {
    "PyTorch": "everything",
    "Triton": "warps, lanes, shared memory, barriers",
    "raw CUDA": "nothing",
    "tklearn": "which lane holds what",
}


def texts() -> dict[str, str]:
    """Name -> source text, in the order of the table."""
    return {
        "PyTorch": TORCH,
        "Triton": (OTHERS / "softmax_triton.py").read_text(encoding="utf-8"),
        "raw CUDA": (OTHERS / "softmax.cu").read_text(encoding="utf-8"),
        "tklearn": TKLEARN,
    }


def count_lines(text: str) -> int:
    """Lines that are neither blank, nor comments, nor imports."""
    skip = ("#", "//", "import ", "from ")
    return sum(bool(s) and not s.startswith(skip) for s in map(str.strip, text.splitlines()))


@dataclass(frozen=True)
class FourWays:
    """The table; prints as text and as HTML."""

    rows: tuple[tuple[str, str, str, str], ...]
    measured: str

    HEAD = ("softmax in", "lines", "time", "hides")

    def __str__(self) -> str:
        table = [self.HEAD, *self.rows]
        widths = [max(len(r[i]) for r in table) for i in range(4)]
        lines = ["  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)) for r in table]
        return "\n".join([*lines, self.measured])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        def cells(row: tuple[str, ...], tag: str) -> str:
            out = "".join(f"<{tag} style='text-align:left'>{html.escape(c)}</{tag}>" for c in row)
            return f"<tr>{out}</tr>"

        body = cells(self.HEAD, "th") + "".join(cells(r, "td") for r in self.rows)
        return f"<table>{body}</table><p>{html.escape(self.measured)}</p>"


def table() -> FourWays:
    """Lines, time and what each hides. Times are "-" where nothing was recorded."""
    times: dict[str, float] = {}
    said = "not measured yet: run benchmarks/softmax_four_ways.py on a GPU"
    if RESULT.exists():
        data = json.loads(RESULT.read_text(encoding="utf-8"))
        times = data["microseconds"]
        rows, cols = data["shape"]
        said = f"{rows:,} x {cols} f32, median on {data['device']}, {data['date']}"
    rows = tuple(
        (
            name,
            str(count_lines(text)),
            f"{times[name]:.2f} us" if name in times else "-",
            HIDES[name],
        )
        for name, text in texts().items()
    )
    return FourWays(rows, said)
