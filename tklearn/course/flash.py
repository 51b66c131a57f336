"""What notebook 06 draws: tiles of attention step by step, the running maximum, error by tile.

All of it from arrays that the learner's own run has stored.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tklearn.course import attempts, engine
from tklearn.course.items import nb6
from tklearn.course.items.watched import watched
from tklearn.viz.picture import OKABE_ITO, Picture, new_figure

Array = NDArray[Any]
TILE = 4  # keys of a tile in the small example


def scores() -> Array:
    """The scores of this learner's small example: 4 queries, three tiles of 4 keys."""
    return np.array(engine.parameters(nb6.N6, attempts.seed())["scores"], np.float32)


def table(s: Array) -> Picture:
    """Scores with their numbers, a thick line between tiles."""
    rows, cols = s.shape
    fig = new_figure(0.5 * cols + 1.6, 0.36 * rows + 0.55)
    ax = fig.add_axes((0.16, 0.02, 0.82, 0.74))
    ax.imshow(s, cmap="cividis", aspect="auto", extent=(0, cols, rows, 0))
    _numbers(ax, s)
    for t in range(cols // TILE):
        ax.text(TILE * (t + 0.5), -0.22, f"tile {t + 1}", ha="center", va="bottom", size=9)
        ax.axvline(TILE * t, color="white", lw=4)
    ax.set_yticks(np.arange(rows) + 0.5, [f"query {i}" for i in range(rows)], size=9)
    ax.set_xticks([])
    ax.tick_params(length=0)
    said = "; ".join(f"query {i}: " + " ".join(f"{x:g}" for x in r) for i, r in enumerate(s))
    return Picture(fig, f"Scores of {rows} queries in tiles of {TILE} keys. {said}.", s)


def _numbers(ax: Any, s: Array) -> None:
    middle = (s.max() + s.min()) / 2
    for (i, j), x in np.ndenumerate(s):
        colour = "black" if x > middle else "white"
        ax.text(j + 0.5, i + 0.5, f"{x:g}", ha="center", va="center", size=9, color=colour)


def running(s: Array, top: Array) -> Picture:
    """The scores of each query as they come, and the largest so far after each tile.

    Args: s: scores (queries, keys). top: (queries, tiles), from the run.
    """
    rows, cols = s.shape
    fig = new_figure(8.4, 2.5)
    low, high = s.min() - 1, s.max() + 1.6
    for i in range(rows):
        ax = fig.add_axes((0.05 + 0.242 * i, 0.17, 0.215, 0.68))
        ax.plot(np.arange(cols) + 0.5, s[i], "o", ms=4, color=OKABE_ITO[4])
        for t in range(top.shape[1]):
            x = TILE * np.array([t, t + 1])
            ax.plot(x, [top[i, t]] * 2, color=OKABE_ITO[5], lw=2.2)
            ax.text(x.mean(), top[i, t] + 0.25, f"{top[i, t]:g}", ha="center", size=9)
            ax.axvline(x[1], color="0.85", lw=0.8, zorder=0)
        ax.set_xlim(0, cols)
        ax.set_ylim(low, high)
        ax.set_title(f"query {i}", size=9)
        ax.set_xticks(
            TILE * (np.arange(top.shape[1]) + 0.5), [f"{t + 1}" for t in range(top.shape[1])]
        )
        ax.tick_params(labelsize=8, length=0)
        ax.set_xlabel("tile", size=8)
    said = "; ".join(f"query {i}: {', '.join(f'{x:g}' for x in t)}" for i, t in enumerate(top))
    alt = f"Scores as points, and as a line the largest so far after each tile. {said}."
    return Picture(fig, alt, top)


def watch(Q: Array, K: Array, V: Array, scale: float, faulty: bool = False) -> tuple[Array, ...]:
    """Runs `watched` on the simulator: (O, scores, weights, o / total, keep), a row for each tile.

    Args: faulty: with the fault of exercise F4.
    """
    n = -(-len(K) // 64)
    out = np.empty((16, 64), np.float32)
    s, o = (np.empty((16 * n, 64), np.float32) for _ in range(2))
    p, keep = np.empty((16 * n, 64), np.float16), np.empty(16 * n, np.float32)
    watched.sim[1](Q, K, V, out, s, p, o, keep, scale, RESCALE=not faulty)
    return (out, *(a.reshape(n, 16, -1) for a in (s, p, o)), keep.reshape(n, 16))


def steps(S: Array, P: Array, O: Array, keep: Array, title: str = "") -> Picture:  # noqa: E741
    """Scores, weights and sums after each step, as a run has stored them.

    Args: S, P, O: (steps, queries, columns). keep: (steps, queries), the factors.
    """
    n = len(S)
    fig = new_figure(8.6, 1.5 * n + 0.75)
    names = (
        "S: scores of this tile",
        "P: weights of this tile",
        "keep",
        "o / total: answer so far",
    )
    at = ((0.07, 0.29), (0.39, 0.29), (0.705, 0.04), (0.775, 0.21))
    shown = [np.where(S < -1e20, np.nan, S), P, keep[:, :, None], O]
    height, top = 1.25 / (1.5 * n + 0.75), 1 - 0.62 / (1.5 * n + 0.75)
    for c, a in enumerate(shown):
        low, high = np.nanmin(a), np.nanmax(a)
        low, high = (0.0, 1.0) if c in (1, 2) else (low, high)
        for t in range(n):
            y = top - (t + 1) * 1.5 / (1.5 * n + 0.75) + (1.5 - 1.25) / (1.5 * n + 0.75)
            ax = fig.add_axes((at[c][0], y, at[c][1], height))
            ax.set_facecolor("#D9D9D9")
            ax.imshow(a[t], cmap="cividis", vmin=low, vmax=high, aspect="auto",
                      interpolation="nearest")  # fmt: skip
            ax.set_xticks([])
            ax.set_yticks([])
            if c == 0:
                ax.set_ylabel(f"tile {t + 1}", size=9)
            if t == 0:
                ax.set_title(f"{names[c]}\n{low:.2g} to {high:.2g}", size=8)
    fig.text(0.02, 1 - 0.13 / (1.5 * n + 0.75), title, size=9.5, weight="bold", va="center")
    alt = (
        f"{title}: rows of pictures, one for each of {n} tiles: scores, weights, the factor of "
        f"what was summed before, and o, for {S.shape[1]} queries. Mean factor by tile: "
        + ", ".join(f"{k.mean():.2f}" for k in keep)
        + ". "
        + " ".join(_tile_in_words(t, S, P, O, keep) for t in range(n))
        + " Hidden keys are grey."
    )
    return Picture(fig, alt, (S, P, O, keep))


def _tile_in_words(t: int, S: Array, P: Array, O: Array, keep: Array) -> str:  # noqa: E741
    """What the row of pictures of one tile shows."""
    hidden = int((S[t] < -1e20).all(0).sum())
    said = f"Tile {t + 1}: "
    if t == 0:
        said += "nothing before it"
    else:
        up = int((keep[t] < 1).sum())
        said += f"{up} of {len(keep[t])} queries meet a larger score"
        said += f", o / total moves by up to {np.abs(O[t] - O[t - 1]).max():.2g}"
    said += f", the largest weight is 1 in {int((P[t].max(1) == 1).sum())} queries"
    return said + (f", {hidden} columns are hidden." if hidden else ".")


def errors(found: dict[str, list[float]], keys: int, marks: dict[str, float]) -> Picture:
    """Largest error after each tile of keys, one line for each kernel, on a logarithmic scale.

    Args: found: name -> errors after 1, 2, ... tiles. keys: of a tile. marks: dotted lines.
    """
    fig = new_figure(7.2, 3.1)
    ax = fig.add_axes((0.11, 0.16, 0.86, 0.78))
    for i, (name, e) in enumerate(found.items()):
        colour, mark = (OKABE_ITO[5], "s--") if i else (OKABE_ITO[4], "o-")
        x = np.arange(1, len(e) + 1)
        ax.semilogy(x, e, mark, color=colour, lw=1.6, ms=5)
        ax.text(len(e), e[-1] * 1.5, name, ha="right", va="bottom", size=9, color="black")
    for name, value in marks.items():
        ax.axhline(value, color="0.4", lw=1, ls=":")
        ax.text(1, value * 1.12, name, size=8, va="bottom", color="0.25", zorder=5,
                bbox={"pad": 1, "fc": "white", "ec": "none"})  # fmt: skip
    every = [v for e in found.values() for v in e] + list(marks.values())
    ax.set_ylim(min(every) / 4, max(every) * 6)
    ax.set_xlabel(f"tiles of {keys} keys so far", size=9)
    ax.set_ylabel("largest error", size=9)
    ax.tick_params(labelsize=8)
    ax.set_xticks(range(1, 1 + max(map(len, found.values()))))
    said = "; ".join(f"{n}: {', '.join(f'{v:.1e}' for v in e)}" for n, e in found.items())
    lines = "; ".join(f"{n}: {v:.1e}" for n, v in marks.items())
    return Picture(fig, f"Largest error by tile. {said}. Dotted: {lines}.", found)
