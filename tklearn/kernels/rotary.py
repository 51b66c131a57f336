"""Rotary position embedding: each row is turned, pair by pair, by angles of its position.

Element c of the first half of a row and element c of the second half are a pair (the GPT-NeoX
form). Tables hold the cosine and sine of each position's angles; a thread loads them once and turns
the same part of the row in several heads. All accesses are 16 bytes a lane where sizes allow.
"""

from functools import cache
from typing import Any

import numpy as np

import tklearn as tk
from tklearn import blockIdx, threadIdx
from tklearn.kernels.arrays import cdiv, fit, launch, look, output, vector_width

THREADS = 256


@cache
def make(T: Any = tk.f32, HEADS: int = 4) -> tk.Kernel:
    """A thread takes W pairs of one position, in HEADS heads; D is the length of a row."""

    @tk.kernel(threads=THREADS)
    def rotary(x: tk.gl(T), cos: tk.gl(T), sin: tk.gl(T), y: tk.gl(T), D: tk.const, W: tk.const):
        PARTS = D // 2 // W  # threads that share a row
        i = blockIdx.x * THREADS + threadIdx.x
        row = i // PARTS
        part = i % PARTS
        if row < x.rows:
            c = tk.vec(cos, W)[row, part]  # elements part * W and the next W - 1, in one access
            s = tk.vec(sin, W)[row, part]
            for j in range(HEADS):
                head = blockIdx.y * HEADS + j
                if head < x.depth:
                    a = tk.vec(x, W)[blockIdx.z, head, row, part]
                    b = tk.vec(x, W)[blockIdx.z, head, row, part + PARTS]
                    for e in tk.static_range(W):
                        first = a[e]
                        second = b[e]
                        a[e] = first * c[e] - second * s[e]
                        b[e] = second * c[e] + first * s[e]
                    tk.vec(y, W)[blockIdx.z, head, row, part] = a
                    tk.vec(y, W)[blockIdx.z, head, row, part + PARTS] = b

    return rotary


def run(
    x: Any, cos: Any, sin: Any, *, out: Any = None, report: bool = False, **options: Any
) -> Any:
    """x (batch, heads, positions, d) turned by cos and sin (positions, d / 2), in its dtype."""
    a = look(x, "x", 4)
    batch, heads, rows, d = a.shape
    fit(d % 2 == 0, f"rows of {d} elements have no halves")
    tables = [look(t, n, 2, (a.dtype,)) for n, t in (("cos", cos), ("sin", sin))]
    fit(all(t.shape == (rows, d // 2) for t in tables), f"the tables must be {(rows, d // 2)}")
    out = output(out, x, a.shape)
    if d == 0:
        rows, d = 0, 2
    width = vector_width(d // 2, a, look(out, "out", 4, (a.dtype,)), *tables)
    grid = (cdiv(rows * (d // 2 // width), THREADS), cdiv(heads, 4), batch)
    told = launch(make(a.dtype), grid, x, cos, sin, out, options=options, D=d, W=width)
    return (out, told) if report else out


def reference(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    """The same in float64."""
    x, cos, sin = (v.astype(np.float64) for v in (x, cos, sin))
    a, b = np.split(x, 2, axis=-1)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)
