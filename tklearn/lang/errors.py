"""Errors a learner meets: a code, the place, a caret under their own source, and what to do.

This file knows codes, places and how an error is printed. It must not know the language: whoever
finds a mistake raises it from there, with the words that fit.
"""

from __future__ import annotations

import linecache
import os
import re
import traceback
import types
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PACKAGE = str(Path(__file__).parents[1])  # the folder of tklearn

CODES = {
    # the source text
    "TK100": "this Python is not part of the kernel language",
    "TK101": "a value is computed and not used, or a statement is used as a value",
    "TK102": "unknown kernel function or attribute",
    "TK103": "the kernel's source text cannot be found",
    "TK104": "a kernel parameter lacks a usable annotation",
    "TK105": "a compile-time value was needed",
    "TK106": "wrong arguments for a kernel function",
    "TK107": "device names are used outside a kernel",
    "TK108": "shared memory is declared in a place that cannot own it",
    # names
    "TK110": "a name is not defined here",
    "TK111": "a name cannot be assigned",
    "TK120": "one register tile would get two names",
    "TK121": "a name would change its type",
    # types and shapes
    "TK200": "types do not fit this operation",
    "TK201": "a type is not possible",
    "TK202": "'/' between integers",
    "TK203": "more than one atomic in a statement",
    "TK204": "wrong number of indices",
    "TK205": "a number that is not possible here",
    "TK210": "shapes do not match",
    "TK211": "layouts do not match",
    "TK212": "dtypes do not match",
    # control flow
    "TK300": "a warp operation in code that differs between lanes",
    "TK301": "a block operation in code that differs between warps",
    "TK302": "an operand must be the same in all lanes",
    "TK303": "an incomplete warpgroup",
    # launching
    "TK400": "wrong arguments of a launch",
    "TK401": "wrong dtype",
    "TK402": "wrong number of dimensions or strides",
    "TK403": "arrays overlap",
    "TK404": "an output is read-only",
    "TK405": "arrays live on different devices",
    "TK406": "requires_grad outside an operator",
    "TK407": "wrong grid or block",
    "TK408": "too much shared memory",
    "TK409": "too many registers",
    "TK410": "sizes do not fit this kernel",
    "TK411": "an unknown launch option",
    # the GPU
    "TK420": "no GPU",
    "TK421": "no NVRTC",
    "TK422": "the kernel needs a newer GPU",
    "TK423": "the generated CUDA did not compile",
    "TK424": "the CUDA context is lost",
    # what the simulator catches while the kernel runs
    "TK500": "race between warps",
    "TK501": "race between lanes of a warp",
    "TK502": "race between blocks",
    "TK503": "uninitialised memory is read",
    "TK504": "index out of bounds",
    "TK505": "misaligned access",
    "TK506": "barrier in divergent code",
    "TK507": "deadlock",
    "TK508": "an asynchronous copy is used before it was waited for",
    "TK509": "the kernel does not end",
    "TK510": "integer overflow, shift or division error",
    "TK511": "assert failed in the kernel",
    "TK512": "lanes that must agree do not",
    "TK513": "an uninitialised register is read",
    "TK514": "an intrinsic's sim function fails",
    "TK520": "plain stores are read through the async proxy without a proxy fence",
    "TK521": "registers are used while wgmma is using them",
    "TK522": "a semaphore is used wrongly",
    "TK523": "a phase of a semaphore passes unseen",
    "TK524": "a named barrier is used wrongly",
    "TK525": "a kernel ends while TMA still uses its shared memory",
    "TK526": "wgmma without a fence, or by part of a warpgroup",
    "TK527": "an array that TMA cannot address",
    # figures
    "TK600": "this cannot be drawn",
}


@dataclass(frozen=True)
class Loc:
    """A place in a learner's source: lines count from 1, columns from 0 in characters."""

    file: str
    line: int
    col: int = 0
    end_line: int = 0
    end_col: int = 0

    def text(self) -> str:
        return linecache.getline(self.file, self.line).rstrip("\n")


def where(file: str) -> str:
    """How a file is called in a message: notebook cells have no name that a reader knows."""
    if re.search(r"[/\\]ipykernel_\d+[/\\]", file) or file.startswith("<ipython-input"):
        return "notebook cell"
    return file


def excerpt(loc: Loc) -> str:
    """The source line with a caret line below, indented for a message."""
    src = loc.text()
    if not src:
        return f"  {where(loc.file)}:{loc.line}"
    end = loc.end_col if loc.end_line == loc.line and loc.end_col > loc.col else len(src)
    # Tabs stay tabs and wide characters count twice, so that the carets stand where they should.
    before = "".join("\t" if c == "\t" else " " * _cells(c) for c in src[: loc.col])
    under = "^" * max(1, sum(_cells(c) for c in src[loc.col : end]))
    return f"  {where(loc.file)}:{loc.line}\n    {src}\n    {before}{under}"


def _cells(c: str) -> int:
    """Columns that a character takes in a terminal."""
    return 0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1


class TkError(Exception):
    """A mistake in a kernel or in its use.

    Attributes: `code` (a key of CODES), `message`, `loc` (Loc or None), `hint` (what to do, or ""),
    `timeline` (what led to it, of a run with timeline=True, or None).
    """

    timeline: Any = None

    def __init__(self, code: str, message: str, loc: Loc | None = None, hint: str = "") -> None:
        assert code in CODES, code
        self.code, self.message, self.loc, self.hint = code, message, loc, hint
        place = f"\n{excerpt(loc)}" if loc else ""
        super().__init__(f"{code}: {message}{place}" + (f"\n  hint: {hint}" if hint else ""))

    def __reduce__(self) -> tuple:
        return type(self), (self.code, self.message, self.loc, self.hint)

    def _render_traceback_(self) -> list[str]:
        """What IPython and Jupyter print: the learner's own frames, then the message.

        Below the first frame of tklearn nothing is the learner's; `%debug` still goes there.
        """
        frames = []
        for f in traceback.extract_tb(self.__traceback__):
            if f.filename.startswith(PACKAGE):
                break
            if not re.search(r"[/\\](IPython|ipykernel)[/\\]", f.filename):
                frames.append(f"{where(f.filename)}:{f.lineno}\n    {f.line}")
        more = f'  more: tk.explain("{self.code}")'
        return [*frames, "", f"{type(self).__name__}: {self}", more]


def at_the_call(e: TkError) -> TkError:
    """The error with the learner's frames only, to be raised where the learner called tklearn.

    The kernel's own frame stays, and its variables in a debugger. With TKLEARN_TRACEBACK=full in
    the environment all frames stay: what a report about tklearn itself needs.
    """
    if os.environ.get("TKLEARN_TRACEBACK") == "full":
        return e
    frames, tb = [], e.__traceback__
    while tb is not None:
        if not tb.tb_frame.f_code.co_filename.startswith(PACKAGE):
            frames.append(tb)
        tb = tb.tb_next
    for f in reversed(frames):
        tb = types.TracebackType(tb, f.tb_frame, f.tb_lasti, f.tb_lineno)
    return e.with_traceback(tb)


class SourceError(TkError):
    """The kernel's text is not in the language (codes TK1xx to TK3xx)."""


class LaunchError(TkError):
    """A kernel is called in a way that cannot work (codes TK4xx)."""


class KernelFault(TkError):
    """The simulator found the kernel doing something wrong while it ran (codes TK5xx)."""


class Race(KernelFault):
    """Two accesses to one place, at least one a write, that nothing orders."""


class Deadlock(KernelFault):
    """Every warp that is left waits for something that cannot happen."""


class FigureError(TkError):
    """There is nothing to draw from what was given (codes TK6xx)."""
