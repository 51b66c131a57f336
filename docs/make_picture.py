"""Draws docs/transpose.png, the README's picture, from two runs of the gallery's transpose kernels.

    python docs/make_picture.py

Nothing in the picture is typed: the source is the kernels', the bars are the simulator's counters.
"""

from pathlib import Path

import numpy as np

import tklearn as tk
from tklearn import block, blockIdx, threadIdx
from tklearn.viz import lines


@tk.kernel(threads=(32, 8))
def transpose(src: tk.gl_fl, dst: tk.gl_fl):
    tile = tk.shared_array(tk.f32, 32, 32)
    x = blockIdx.x * 32 + threadIdx.x
    for j in range(0, 32, 8):
        tile[threadIdx.y + j, threadIdx.x] = src[blockIdx.y * 32 + threadIdx.y + j, x]
    block.sync()
    x = blockIdx.y * 32 + threadIdx.x
    for j in range(0, 32, 8):
        dst[blockIdx.x * 32 + threadIdx.y + j, x] = tile[threadIdx.x, threadIdx.y + j]


@tk.kernel(threads=(32, 8))
def transpose_padded(src: tk.gl_fl, dst: tk.gl_fl):
    tile = tk.shared_array(tk.f32, 32, 33)  # one more column: no two lanes share a bank
    x = blockIdx.x * 32 + threadIdx.x
    for j in range(0, 32, 8):
        tile[threadIdx.y + j, threadIdx.x] = src[blockIdx.y * 32 + threadIdx.y + j, x]
    block.sync()
    x = blockIdx.y * 32 + threadIdx.x
    for j in range(0, 32, 8):
        dst[blockIdx.x * 32 + threadIdx.y + j, x] = tile[threadIdx.x, threadIdx.y + j]


def main() -> None:
    src = np.random.default_rng(0).standard_normal((1024, 1024), dtype=np.float32)
    dst = np.empty_like(src)
    keys = ["shared_ld_wavefronts", "shared_st_wavefronts", "global_ld_sectors"]
    report = transpose[32, 32](src, dst)
    assert (dst == src.T).all()
    figure = lines(
        report, keys, "A 1024x1024 transpose: what each line costs (hatched: bank conflicts)"
    )
    figure.savefig(Path(__file__).parent / "transpose.png", dpi=160, facecolor="white")
    padded = transpose_padded[32, 32](src, dst)
    print(report.total["shared_ld_wavefronts"], "wavefronts;", "padded:",
          padded.total["shared_ld_wavefronts"])  # fmt: skip


if __name__ == "__main__":
    main()
