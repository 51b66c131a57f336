"""A small picture of what should have come out and what did, with the same in words."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np

LARGEST = 64  # rows and columns that are drawn; more is cut off
RIGHT, WRONG, LEFT = "#56B4E9", "#D55E00", "#FFFFFF"  # safe for colour-blind readers


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
        from matplotlib.colors import ListedColormap
        from matplotlib.figure import Figure
    except ImportError:
        return "", alt
    rows = want.shape[0] if want.ndim == 2 else -(-want.size // 32)
    states = np.full((rows, want.shape[1] if want.ndim == 2 else 32), -1)
    flat = np.where(left, 2, np.where(wrong, 1, 0))
    states.ravel()[: flat.size] = flat.ravel()
    shown = states[:LARGEST, :LARGEST]
    height, width = (min(1.0, n / 32) for n in shown.shape)
    fig = Figure(figsize=(0.9 + 3.0 * width, 0.7 + 2.6 * height))
    ax = fig.add_subplot()
    colours = ListedColormap(["#D9D9D9", RIGHT, WRONG, LEFT])
    ax.pcolormesh(shown, cmap=colours, vmin=-1, vmax=2, edgecolors="#8C8C8C", linewidth=0.3)
    for r, c in np.argwhere(shown == 1)[:512]:  # colour never stands alone
        ax.text(c + 0.5, r + 0.5, "x", ha="center", va="center", size=4)
    ax.invert_yaxis()
    ax.set_aspect("equal")
    ax.set_title(f"{name}: x wrong, white never stored", size=7)
    ax.tick_params(labelsize=6)
    out = io.BytesIO()
    fig.savefig(out, format="png", dpi=110, bbox_inches="tight", facecolor="white")
    return base64.b64encode(out.getvalue()).decode(), alt


def words(want: np.ndarray, wrong: np.ndarray, left: np.ndarray, name: str) -> str:
    """The same picture for who cannot see it."""
    shape = " x ".join(map(str, want.shape))
    bad = wrong & ~left
    parts = [f"picture of {name} ({shape}): {int((~wrong).sum())} elements right"]
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
