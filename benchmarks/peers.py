"""Plain Triton kernels for what the gallery does: softmax, layernorm with residual, rotary.

Written as their tutorials write them, one program for a row or some rows, with the number of warps
tuned; they are what ours is measured against.
"""

from __future__ import annotations

import triton
import triton.language as tl

WARPS = [triton.Config({}, num_warps=w) for w in (1, 2, 4, 8)]


@triton.autotune(WARPS, key=["cols", "BLOCK"])
@triton.jit
def _softmax(x, y, stride, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    keep = at < cols
    v = tl.load(x + row * stride + at, mask=keep, other=-float("inf")).to(tl.float32)
    v = tl.exp(v - tl.max(v, 0))
    tl.store(y + row * stride + at, (v / tl.sum(v, 0)).to(y.dtype.element_ty), mask=keep)


def triton_softmax(x, y):
    rows, cols = x.shape
    _softmax[(rows,)](x, y, x.stride(0), cols, BLOCK=triton.next_power_of_2(cols))
    return y


@triton.autotune(WARPS, key=["cols", "BLOCK"])
@triton.jit
def _layernorm(x, r, w, b, y, total, stride, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    keep = at < cols
    v = tl.load(x + row * stride + at, mask=keep, other=0).to(tl.float32)
    v += tl.load(r + row * stride + at, mask=keep, other=0).to(tl.float32)
    tl.store(total + row * stride + at, v.to(total.dtype.element_ty), mask=keep)
    v = tl.where(keep, v - tl.sum(v, 0) / cols, 0.0)
    v *= tl.rsqrt(tl.sum(v * v, 0) / cols + eps)
    weight = tl.load(w + at, mask=keep, other=0).to(tl.float32)
    bias = tl.load(b + at, mask=keep, other=0).to(tl.float32)
    tl.store(y + row * stride + at, (v * weight + bias).to(y.dtype.element_ty), mask=keep)


def triton_layernorm(x, r, w, b, y, total, eps=1e-5):
    rows, cols = x.shape
    _layernorm[(rows,)](
        x, r, w, b, y, total, x.stride(0), cols, eps, BLOCK=triton.next_power_of_2(cols)
    )
    return y


@triton.autotune(
    [triton.Config({"ROWS": r}, num_warps=w) for r in (8, 16, 32, 64) for w in (2, 4, 8)],
    key=["rows", "HALF"],
)
@triton.jit
def _rotary(x, cos, sin, y, rows, HALF: tl.constexpr, ROWS: tl.constexpr):
    head = tl.program_id(1).to(tl.int64) * rows
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    keep = (row < rows)[:, None]
    at = tl.arange(0, HALF)[None, :]
    c = tl.load(cos + row[:, None] * HALF + at, mask=keep, other=0).to(tl.float32)
    s = tl.load(sin + row[:, None] * HALF + at, mask=keep, other=0).to(tl.float32)
    first = (head + row)[:, None] * (2 * HALF) + at
    a = tl.load(x + first, mask=keep, other=0).to(tl.float32)
    b = tl.load(x + first + HALF, mask=keep, other=0).to(tl.float32)
    tl.store(y + first, (a * c - b * s).to(y.dtype.element_ty), mask=keep)
    tl.store(y + first + HALF, (b * c + a * s).to(y.dtype.element_ty), mask=keep)


def triton_rotary(x, cos, sin, y):
    batch, heads, rows, d = x.shape
    _rotary[lambda m: (triton.cdiv(rows, m["ROWS"]), batch * heads)](
        x, cos, sin, y, rows, HALF=d // 2
    )
    return y
