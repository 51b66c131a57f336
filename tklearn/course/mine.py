"""The learner's own kernels side by side: predicted, simulated, measured, in one table and figure.

`kernels` reads them from the exercises' files, as text (nothing of a file is run).
`side_by_side` runs each of them on both machines, or takes a recording.
"""

from __future__ import annotations

import html
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tklearn import devices
from tklearn.comparison import DEFAULT, Comparison, compare
from tklearn.course import attempts, engine, extract, measured
from tklearn.course.check import answer_in
from tklearn.course.item import KernelItem, OneOf, Out
from tklearn.course.items import ITEMS
from tklearn.kernel import Kernel
from tklearn.lang.errors import TkError
from tklearn.viz.picture import OKABE_ITO, Picture, new_figure


@dataclass(frozen=True)
class Launch:
    """One kernel and what it is run on. state: of which exercise, and
    whether it is solved."""

    name: str
    kernel: Kernel
    grid: Any
    args: tuple[Any, ...]
    state: str = "this page"
    consts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """One kernel's numbers. Times in seconds, None where there is none.

    Attributes:
        least: bytes of the arrays, each once. moved: bytes of the sectors that were asked for.
        tensor: operations of the tensor cores. memory, arithmetic: the least time for each.
        estimate, error: the time by the simulator's model, and by how much that may be off.
        measured, how: the GPU's time, and where it comes from.
    """

    name: str
    state: str
    least: int
    moved: int
    tensor: int
    memory: float
    arithmetic: float
    estimate: float | None
    error: float | None
    measured: float | None
    how: str

    @property
    def bound(self) -> str:
        """What bounds it if all else is hidden."""
        return "memory" if self.memory >= self.arithmetic else "tensor cores"


HEAD = ("kernel", "", "bytes at least", "bytes asked for", "tensor FLOP",
        "bound by, with bytes at least", "predicted: at least",
        "simulated", "measured")  # fmt: skip


@dataclass(frozen=True, repr=False)
class SideBySide:
    """The table; `figure` draws it. lacking: kernels that are not there, and why."""

    device: str
    rows: tuple[Row, ...]
    lacking: tuple[str, ...] = ()
    comparisons: dict[str, Comparison] = field(default_factory=dict)

    def cells(self) -> list[tuple[str, ...]]:
        """The table as text, without its head."""
        out: list[tuple[str, ...]] = []
        for r in self.rows:
            seen = f"{_time(r.measured)} ({r.how})" if r.measured else "-"
            guess = _time(r.estimate) if r.estimate else "-"
            numbers = (f"{r.least:,}", f"{r.moved:,}", f"{r.tensor:,}" if r.tensor else "-")
            least = _time(max(r.memory, r.arithmetic))
            out.append((r.name, r.state, *numbers, r.bound, least, guess, seen))
        return out

    def notes(self) -> list[str]:
        """What the table does not say."""
        errors = {f"{100 * r.error:.0f} %" for r in self.rows if r.error is not None}
        off = f"; its median error is {', '.join(sorted(errors))}" if errors else ""
        return [
            f"Predicted: the larger of bytes / bandwidth and FLOP / peak of the {self.device} "
            f"(data sheet). Simulated: the simulator's model of time{off} (half of the launches "
            "that it was tried on are further off).",
            *self._unmeasured(),
            *self.lacking,
        ]

    def _unmeasured(self) -> list[str]:
        named = [f"{r.name} ({r.state})" for r in self.rows if not r.measured]
        why = "no GPU here, and no recording of exactly this kernel (your variant) on this launch"
        return [f"Not measured: {', '.join(named)}: {why}."] if named else []

    def __str__(self) -> str:
        table = [HEAD, *self.cells()]
        widths = [max(len(r[i]) for r in table) for i in range(len(HEAD))]
        lines = ["  ".join(c.ljust(w) for c, w in zip(r, widths)).rstrip() for r in table]
        return "\n".join([*lines, *self.notes()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        def cells(row: Iterable[str], tag: str) -> str:
            style = ("left", "left", *["right"] * 3, "left", *["right"] * 3)
            wrap = "nowrap" if tag == "td" else "normal"
            return "".join(
                f'<{tag} style="text-align:{s};white-space:{wrap}">{html.escape(c)}</{tag}>'
                for c, s in zip(row, style, strict=True)
            )

        body = "".join(f"<tr>{cells(r, 'td')}</tr>" for r in self.cells())
        notes = "".join(f"<p>{html.escape(n)}</p>" for n in self.notes())
        return f"<table><tr>{cells(HEAD, 'th')}</tr>{body}</table>{notes}"

    def figure(self) -> Picture:
        """Each kernel's times on one logarithmic axis."""
        return _figure(self)


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds * 1e6:.3g} us" if seconds < 1e-3 else f"{seconds * 1e3:.3g} ms"


# ------------------------------------------------------------------------------- the exercises
SHOWN = ("M1", "K1", "F1", "K4", "C1")
"""The exercises whose kernels are put side by side, in the order of the course."""


def kernels(items: Iterable[str] = SHOWN) -> tuple[list[Launch], list[str]]:
    """(the learner's kernels on their measured launches, what is lacking and why)."""
    root, kept = attempts.course(), attempts.records()
    found: list[Launch] = []
    lacking: list[str] = []
    if root is None:
        return [], ["there is no folder exercises/ here: only the kernels of this page are shown"]
    for item in (ITEMS[n] for n in items if n in ITEMS):
        try:
            book = extract.from_file(root / "exercises" / item.file)
            answer = answer_in(item, book)
            one = engine.part(item, answer)
            assert isinstance(one, KernelItem)
            kernel = extract.rebuild(answer)[one.kernels[0]]
        except (KeyError, OSError, TkError, extract.Refused) as e:
            said = "not written yet" if isinstance(item, OneOf) else str(e).splitlines()[0]
            lacking.append(f"{item.id}: {said}")
            continue
        case = measured.launch(one)
        passed = item.id in kept and kept[item.id].passed
        args = tuple(_ready(a) for a in case.args.values())
        state = f"{item.id}, {'solved' if passed else 'as it stands'}"
        found.append(Launch(one.kernels[0], kernel, case.grid, args, state, case.consts))
    return found, lacking


def _ready(a: Any) -> Any:
    if not isinstance(a, Out):
        return a
    return np.zeros(a.shape, a.dtype) if a.start is None else a.start.copy()


# -------------------------------------------------------------------------------------- comparing
def side_by_side(
    launches: list[Launch], lacking: Iterable[str] = (), device: str | None = None
) -> SideBySide:
    """Runs each launch; one that has a fault is named below the table instead.

    device: of the predictions (default: this machine's GPU, else that of the recordings).
    """
    rows, why, kept = [], list(lacking), {}
    for x in launches:
        try:
            c = compare(x.kernel, x.grid, tuple(x.args), device=device, **x.consts)
        except TkError as e:
            why.append(f"{x.name} ({x.state}) has a fault: {str(e).splitlines()[0]}")
            continue
        kept[x.name] = c
        rows.append(_row(x, c, devices.device(c.device)))
    device = next((c.device for c in kept.values()), device or DEFAULT)
    return SideBySide(device, tuple(rows), tuple(why), kept)


def _row(x: Launch, c: Comparison, dev: devices.Device) -> Row:
    spec, total = x.kernel.ir(*x.args, **x.consts), c.simulated.total
    least = sum(
        a.nbytes * (p.read + p.written)
        for p, a in zip(spec.params, x.args, strict=False)
        if isinstance(a, np.ndarray)
    )
    tensor = total["tensor_flops"] + total["wgmma_flops"]
    try:
        e = c.simulated.estimate(device=c.device)
        guess, error = e.seconds, e.error
    except (TkError, ValueError):
        guess = error = None
    measured = c.gpu.seconds if c.gpu is not None else c.recording and c.recording.seconds
    how = "now" if c.gpu is not None else f"recorded {c.recording.date}" if c.recording else ""
    moved = 32 * (total["global_ld_sectors"] + total["global_st_sectors"])
    moved += total["tma_load_bytes"] + total["tma_store_bytes"]
    memory, arithmetic = least / dev.dram_bytes_per_s, tensor / dev.tensor_flops
    return Row(x.name, x.state, least, moved, tensor, memory, arithmetic, guess, error,
               measured or None, how)  # fmt: skip


def _figure(s: SideBySide) -> Picture:
    fig = new_figure(8.4, 0.5 * len(s.rows) + 1.25)
    ax = fig.add_axes(
        (0.19, 0.75 / (0.5 * len(s.rows) + 1.25), 0.78, 1 - 1.25 / (0.5 * len(s.rows) + 1.25))
    )
    for y, r in enumerate(s.rows):
        ax.plot([r.memory * 1e6], [y], "|", ms=20, mew=3, color=OKABE_ITO[4])
        if r.tensor:
            ax.plot([r.arithmetic * 1e6], [y], "^", ms=8, color=OKABE_ITO[0], mec="black")
        if r.estimate:
            off = r.error or 0.0
            low, high = r.estimate * (1 - off) * 1e6, r.estimate * (1 + off) * 1e6
            ax.plot([low, high], [y, y], color="0.45", lw=4, solid_capstyle="butt")
            ax.plot([r.estimate * 1e6], [y], "o", ms=6, color="0.25")
        if r.measured:
            ax.plot([r.measured * 1e6], [y], "D", ms=8, mfc="white", mec=OKABE_ITO[5], mew=2)
    ax.set_xscale("log")
    ax.set_ylim(len(s.rows) - 0.5, -0.5)
    labels = [f"{r.name}\n{r.state}" for r in s.rows]
    ax.set_yticks(range(len(s.rows)), labels, size=8)
    ax.set_xlabel("microseconds", size=9)
    ax.tick_params(labelsize=8)
    ax.grid(axis="x", color="0.9")
    marks = (
        ("|", OKABE_ITO[4], "bytes / bandwidth"),
        ("^", OKABE_ITO[0], "tensor FLOP / peak"),
        ("o", "0.25", "simulated, with its error"),
        ("D", OKABE_ITO[5], "measured"),
    )
    for m, colour, text in marks:
        if m != "D" or any(r.measured for r in s.rows):
            ax.plot([], [], m, color=colour, label=text, mfc="white" if m == "D" else colour)
    ax.legend(loc="lower center", bbox_to_anchor=(0.42, 1.0), ncols=4, fontsize=8, frameon=False)
    alt = f"Times of {len(s.rows)} kernels on the {s.device}. " + " ".join(
        f"{r.name} ({r.state}): bound by {r.bound}, at least {_time(max(r.memory, r.arithmetic))}, "
        f"simulated {_time(r.estimate)}, measured {_time(r.measured)}."
        for r in s.rows
    )
    return Picture(fig, alt, s)


# ------------------------------------------------------------------------------------------- quiz
class Quiz:
    """The quiz before and after, question by question; shows as text."""

    def __init__(self) -> None:
        from tklearn.course.items import LESSONS

        kept = attempts.records()
        self.rows = []
        for q in LESSONS["quiz-after"].questions:
            truth = q.truth(**LESSONS["quiz-after"].params(np.random.default_rng(0)))
            said = [
                kept[n].first.get(q.name, "-") if n in kept else "-"
                for n in ("quiz-before", "quiz-after")
            ]
            self.rows.append((q.name, *said, truth))

    def __repr__(self) -> str:
        table = [("question", "before", "after", "right"), *self.rows]
        widths = [max(len(str(r[i])) for r in table) for i in range(4)]
        lines = ["   ".join(str(c).ljust(w) for c, w in zip(r, widths)).rstrip() for r in table]
        if any("-" in r[1:3] for r in self.rows):  # do not give the answers away
            lines = [
                x[: x.rindex(str(r[-1]))] if i else x for i, (x, r) in enumerate(zip(lines, table))
            ]
            lines.append("(what is right is shown when both columns are full)")
        return "\n".join(x.rstrip() for x in lines)
