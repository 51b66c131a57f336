"""A small picture of what should have come out and what did, with the same in words."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np

LARGEST = 64  # rows and columns that are drawn; more is cut off
ROW = 32  # elements of a vector in one row of its picture


def compare(
    want: np.ndarray, got: np.ndarray, wrong: np.ndarray, left: np.ndarray, name: str
) -> tuple[str, str]:
    """A PNG in base64 and the same in words; both are "" where a picture says nothing.

    wrong, left: where it is wrong, and where nothing was stored.
    """
    if want.ndim not in (1, 2) or want.size < 4:
        return "", ""
    alt = words(want, wrong, left, name)
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return "", alt
    bad = _sheet(wrong, False)
    sheets = [
        _sheet(np.where(hidden | ~np.isfinite(a), np.nan, a), np.nan)
        for a, hidden in ((want.astype(np.float64), False), (got.astype(np.float64), left))
    ]
    cut = "" if bad.size >= want.size else " (first rows and columns)"
    height, width = bad.shape
    size = min(2.4 / max(height, width), 0.16)  # inches of a cell
    side = max(width * size + 0.5, 1.8)
    fig = Figure(figsize=(2 * side, height * size + 0.5), layout="constrained")
    numbers = want[np.isfinite(want)]
    if not numbers.size:
        return "", alt
    low, high = numbers.min(), numbers.max()
    for ax, sheet, what in zip(fig.subplots(1, 2), sheets, ("expected", "got"), strict=True):
        extent = (-0.5, width - 0.5, height - 0.5, -0.5)
        ax.imshow(sheet, "cividis", vmin=low, vmax=high, extent=extent, interpolation="nearest")
        ax.set_title(f"{name} {what}{cut}", size=7)
        ax.tick_params(labelsize=6)
    if not bad.all():
        r, c = np.nonzero(bad)
        ax.plot(c, r, "x", ms=max(1.5, 24 * size), mew=0.6, color="#D55E00")
    if want.ndim == 1:
        fig.supxlabel(f"{ROW} elements a row", size=6)
    out = io.BytesIO()
    fig.savefig(out, format="png", dpi=110, facecolor="white")
    return base64.b64encode(out.getvalue()).decode(), alt


def _sheet(a: np.ndarray, rest: Any) -> np.ndarray:
    """What is drawn of an array, as rows and columns."""
    if a.ndim == 1:
        rows = -(-a.size // ROW)
        a = np.concatenate([a, np.full(rows * ROW - a.size, rest)]).reshape(rows, ROW)
    return a[:LARGEST, :LARGEST]


def words(want: np.ndarray, wrong: np.ndarray, left: np.ndarray, name: str) -> str:
    """The same picture for who cannot see it."""
    shape = " x ".join(map(str, want.shape))
    bad = wrong & ~left
    right = int((~wrong).sum())
    parts = [f"picture of {name} ({shape}), expected beside got: {right} elements right"]
    for what, mask in (("wrong", bad), ("never stored", left & wrong)):
        if mask.any():
            at = np.argwhere(mask)
            spans = ", ".join(
                f"{axis} {a} to {b}"
                for axis, a, b in zip(_axes(want.ndim), at.min(0), at.max(0), strict=True)
            )
            parts.append(f"{int(mask.sum())} {what}, in {spans}")
    return "; ".join(parts)


def _axes(n: int) -> Any:
    return ("elements",) if n == 1 else ("rows", "columns")
