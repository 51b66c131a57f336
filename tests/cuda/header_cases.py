"""Small kernels in the emitted style, one for each function of the header library, with their inputs
and what they must compute. `tests/test_headers.py` compiles and runs them.

This file knows the C++ of the headers and NumPy; it compiles nothing.
"""
# ruff: noqa: E501 (tables: one kernel or one expression a line)

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np

BF16 = np.dtype(ml_dtypes.bfloat16)
E4M3 = np.dtype(ml_dtypes.float8_e4m3fn)
E5M2 = np.dtype(ml_dtypes.float8_e5m2)
F16, F32 = np.dtype(np.float16), np.dtype(np.float32)
CPP = {F32: "float", F16: "f16", BF16: "bf16", E4M3: "e4m3", E5M2: "e5m2",
       np.dtype(np.int32): "int", np.dtype(np.uint32): "u32"}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One kernel: arrays in, arrays out. ``want`` computes the outputs from the inputs; ``tol`` is
    relative to 1 + |want|, 0 means the same bits."""

    name: str
    body: str
    inputs: tuple[np.ndarray, ...]
    want: Callable[..., Sequence[np.ndarray]]
    tol: float = 0.0
    threads: int = 32
    smem: int = 0
    minimum: int = 75
    grid: tuple[int, ...] = (1,)

    def kernel(self) -> str:
        outs = self.want(*self.inputs)
        arrays = [("in", i, a) for i, a in enumerate(self.inputs)]
        arrays += [("out", i, a) for i, a in enumerate(outs)]
        args = ", ".join(f"gl<{CPP[a.dtype]}, {a.ndim}> {n}{i}" for n, i, a in arrays)
        shared = "    shared_memory(smem);\n" if self.smem else ""
        return (f'extern "C" __global__ void __launch_bounds__({self.threads}) {self.name}({args}) {{\n'
                f"{shared}{self.body}\n}}\n")  # fmt: skip


RNG = np.random.default_rng(1)


def rand(*shape: int, dtype: np.dtype = F32) -> np.ndarray:
    return RNG.standard_normal(shape).astype(F32).astype(dtype)


def ints(*shape: int, dtype: np.dtype = F32, hi: int = 4) -> np.ndarray:
    """Small integers: exact in every format, so any layout mistake shows as a wrong number."""
    return RNG.integers(-hi, hi + 1, shape).astype(F32).astype(dtype)


def rnd(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(x, F32).astype(dtype).astype(F32)


def fold(x: np.ndarray, axis: int) -> np.ndarray:
    """Sum by halves, in float32: the order of the language."""
    x = np.moveaxis(np.asarray(x, F32), axis, 0).copy()
    n = len(x)
    while n > 1:
        h = (n + 1) // 2
        x[: n - h] = x[: n - h] + x[h:n]
        n = h
    return x[0]


def fold_groups(x: np.ndarray, axis: int, group: int = 8) -> np.ndarray:
    """The reduction of a tile or its vectors: groups of 8 first, then the 8."""
    x = np.moveaxis(np.asarray(x, F32), axis, 0)
    return fold(fold(x.reshape(-1, group, *x.shape[1:]), 0), 0)


def rv_sum(x: np.ndarray, width: int) -> np.ndarray:
    n = len(x)
    padded = np.full(-(-n // (32 * width)) * 32 * width, -0.0, F32)
    padded[:n] = x
    lanes = fold(padded.reshape(-1, 32 * width), 0).reshape(32, width)
    return fold(fold(lanes, 0), 0)


def rv_width(n: int, size: int) -> int:
    v = 16 // size
    while v > 1 and n % (32 * v):
        v //= 2
    return v


def cropped(x: np.ndarray, rows: int, cols: int) -> np.ndarray:
    out = np.zeros((rows, cols), x.dtype)
    out[: x.shape[0], : x.shape[1]] = x[:rows, :cols]
    return out


def memory_cases() -> list[Case]:
    cases = []
    for dt in (F32, F16, BF16):
        t, low = CPP[dt], 80 if dt == BF16 else 75
        for lay in ("row", "col"):
            n = f"{t}_{lay}"
            x = rand(64, 96, dtype=dt)
            cases.append(Case(f"gl_{n}", f"""
    rt<{t}, 32, 48, {lay}> a;
    for (int i = 0; i < 2; i++) {{ warp::load(a, in0, {{i, 1}}); warp::store(out0, a, {{i, 0}}); }}""",
                (x,), lambda x: [x[:, 48:].copy()], minimum=low))  # fmt: skip
            odd = rand(37, 45, dtype=dt)
            cases.append(Case(f"gl_edge_{n}", f"""
    rt<{t}, 32, 32, {lay}> a;
    rt<float, 32, 32, {lay}> f;
    for (int i = 0; i < 2; i++) for (int j = 0; j < 2; j++) {{
        warp::load(a, in0, {{i, j}});
        warp::store(out0, a, {{i, j}});
        warp::copy(f, a);
        warp::store(out1, f, {{i, j}});
    }}""", (odd,), lambda x: [x, cropped(x.astype(F32), 64, 64)], minimum=low))  # fmt: skip
            cases.append(Case(f"convert_{n}", f"""
    rt<{t}, 16, 32, {lay}> a;
    warp::load(a, in0, {{0, 0}});
    warp::store(out0, a, {{0, 0}});""",
                (rand(16, 32),), lambda x, dt=dt: [rnd(x, dt)], minimum=low))  # fmt: skip
            for sw, pad in ((0, 0), (0, 8), (0, 1), (32, 0), (64, 0), (128, 0)):
                if sw == 32 and dt == F32:
                    continue
                s = f"st<{t}, 32, 64, {sw}, {pad}>"
                cases.append(Case(f"st_{n}_{sw}_{pad}", f"""
    auto& s = smem.at<{s}>(0);
    auto& d = smem.at<{s}>(16384);
    rt<{t}, 32, 64, {lay}> a;
    rt<{t}, 16, 32, {lay}> p;
    block::load(s, in0, {{0, 0}});
    block::sync();
    if (warpid() == 0) {{
        warp::load(a, s);
        warp::store(out0, a, {{0, 0}});
        for (int i = 0; i < 2; i++) for (int j = 0; j < 2; j++) {{
            warp::load(p, subtile<16, 32>(s, {{i, j}}));
            warp::store(subtile<16, 32>(d, {{1 - i, 1 - j}}), p);
        }}
    }}
    block::sync();
    block::store(out1, d, {{0, 0}});
    if (warpid() == 0) {{
        warp::sync();
        out2[{{laneid(), 63 - laneid()}}] = s[{{laneid(), 63 - laneid()}}];
    }}""", (rand(32, 64, dtype=dt),),
                    lambda x: [x, np.ascontiguousarray(x.reshape(2, 16, 2, 32)[::-1, :, ::-1].reshape(32, 64)),
                               np.where(np.fliplr(np.eye(32, 64)) > 0, x.astype(F32), 0).astype(x.dtype)],
                    threads=64, smem=32768, minimum=low))  # fmt: skip
        for cols in (64, 60, 58, 57):  # pitches of 16, 8, 4 and 2 bytes for 16-bit types
            for name in ("load", "load_async"):
                cases.append(Case(f"{name}_{t}_{cols}", f"""
    auto& ring = smem.at<st<{t}, 32, 64, 128>[2][2]>(0);
    for (int i = 0; i < 2; i++) for (int j = 0; j < 2; j++) block::{name}(ring[i][j], in0, {{i, j}});
    commit_group();
    wait_group<0>();
    block::sync();
    for (int i = 0; i < 2; i++) for (int j = 0; j < 2; j++) {{
        warp::store(out0, ring[i][j], {{i, j}});
        block::store(out1, ring[i][j], {{i, j}});
    }}""", (rand(45, cols, dtype=dt),), lambda x: [cropped(x, 64, 128), x], threads=96, smem=32768, minimum=low))  # fmt: skip
        cases.append(Case(f"batch_{t}", f"""
    auto& s = smem.at<st<{t}, 16, 16, 0>>(0);
    rt<{t}, 16, 16> a;
    for (int b = 0; b < 2; b++) for (int d = 0; d < 3; d++) {{
        warp::sync();
        warp::load(s, in0, {{b, d, 1, 0}});
        warp::sync();
        warp::load(a, s);
        warp::store(out0, a, {{b, d, 0, 0}});
        if (laneid() == 0) out1[{{b, d, 0}}] = in0[{{b, d, 3, 4}}];
    }}""", (rand(2, 3, 32, 16, dtype=dt),), lambda x: [x[:, :, 16:].copy(), x[:, :, 3, 4, None].copy()],
            smem=4096, minimum=low))  # fmt: skip
        for n in (16, 32, 48, 100, 128, 1024):
            cases.append(Case(f"rv_{t}_{n}", f"""
    rv<{t}, {n}> v, u;
    rv<float, {n}, {rv_width(n, dt.itemsize)}> f;
    auto& s = smem.at<sv<{t}, {n}>>(0);
    warp::load(v, in0, {{2, 0}});
    warp::store(s, v);
    warp::sync();
    warp::load(u, s);
    warp::store(out0, u, {{1, 0}});
    warp::copy(f, u);
    warp::store(out1, f, {{0}});
    float a = sum(v), b = max(v), c = min(v);
    out2[laneid()] = laneid() == 0 ? a : laneid() == 1 ? b : c;
    warp::sync();
    warp::load_async(s, in0, {{1, 0}});
    commit_group(); wait_group<0>(); warp::sync();
    warp::store(out0, s, {{0, 0}});""", (rand(3, n, dtype=dt),),
                lambda x, n=n: [np.stack([x[1], x[2]]), x[2].astype(F32), np.array(
                    [rv_sum(x[2].astype(F32), rv_width(n, x.dtype.itemsize)), x[2].astype(F32).max()]
                    + [x[2].astype(F32).min()] * 30, F32)], smem=8192, minimum=low))  # fmt: skip
        for n in (256, 1024):
            cases.append(Case(f"rv_spread_{t}_{n}", f"""
    rv<{t}, {n}> a, c;
    rv<float, {n}> f;
    warp::load(a, in0, {{0, 0}});
    warp::copy(f, a);
    warp::store(out0, f, {{0, 0}});
    c = convert<{t}>(f);
    warp::store(out1, c, {{0, 0}});""", (rand(1, n, dtype=dt),), lambda x: [x.astype(F32), x], minimum=low))  # fmt: skip
        cases.append(Case(f"rv_short_{t}", f"""
    rv<{t}, 128> v;
    warp::load(v, in0, {{0, 0}});
    warp::store(out0, v, {{0, 0}});
    warp::store(out1, v, {{0, 0}});
    warp::load(v, in0, {{1, 0}});
    warp::store(out1, v, {{1, 0}});""", (rand(1, 77, dtype=dt),),
            lambda x: [x, cropped(x, 2, 128)], minimum=low))  # fmt: skip
        for lay in ("row", "col"):
            cases.append(Case(f"vecs_{t}_{lay}", f"""
    col_vec<{t}, 48, {lay}> c, c2;
    row_vec<{t}, 48, {lay}> r, r2;
    auto& s = smem.at<sv<{t}, 48>>(0);
    auto& q = smem.at<sv<{t}, 48>>(512);
    warp::load(c, in0, {{0, 0}});
    warp::load(r, in0, {{0, 1}});
    warp::store(s, c);
    warp::store(q, r);
    warp::sync();
    warp::load(c2, q);
    warp::load(r2, s);
    warp::store(out0, c2, {{0, 0}});
    warp::store(out0, r2, {{0, 1}});
    rt<{t}, 48, 48, {lay}> z;
    warp::zero(z);
    rt<{t}, 48, 48, {lay}> y = z + c;
    warp::store(out1, y, {{0, 0}});
    y = z + r;
    warp::store(out1, y, {{1, 0}});
    float a = sum(c), b = sum(r), m = max(r), n = min(c);
    if (laneid() == 7) {{ out2[0] = a; out2[1] = b; out2[2] = m; out2[3] = n; }}""",
                (rand(1, 80, dtype=dt),),
                lambda x: vectors_want(x), smem=4096, minimum=low))  # fmt: skip
    return cases


def vectors_want(x: np.ndarray) -> list[np.ndarray]:
    c, r = x[0, :48], np.zeros(48, x.dtype)
    r[:32] = x[0, 48:]
    f = [a.astype(F32) for a in (c, r)]
    return [np.concatenate([r, c])[None],
            np.concatenate([np.repeat(c[:, None], 48, 1), np.repeat(r[None], 48, 0)]),
            np.array([fold_groups(f[0], 0), fold_groups(f[1], 0), f[1].max(), f[0].min()], F32)]  # fmt: skip


MAPS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "exp": np.exp, "exp2": np.exp2, "log": lambda x: np.log(np.abs(x)), "log2": lambda x: np.log2(np.abs(x)),
    "sqrt": lambda x: np.sqrt(np.abs(x)), "rsqrt": lambda x: 1 / np.sqrt(np.abs(x)), "rcp": lambda x: 1 / x,
    "tanh": np.tanh, "sin": np.sin, "cos": np.cos, "abs": np.abs, "relu": lambda x: np.maximum(x, 0),
}  # fmt: skip


def fma64(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Products are exact in float64; the sum there rounds far below float32's last bit."""
    return (a.astype(np.float64) * b + c).astype(F32)


def arithmetic_cases() -> list[Case]:
    cases = []
    for dt in (F32, F16, BF16):
        t, low = CPP[dt], 80 if dt == BF16 else 75
        eps = float(ml_dtypes.finfo(dt).eps)
        for lay in ("row", "col"):
            tile = f"rt<{t}, 16, 16, {lay}>"
            head = f"""
    {tile} a, b, c;
    col_vec<{t}, 16, {lay}> v;
    row_vec<{t}, 16, {lay}> w;
    warp::load(a, in0, {{0, 0}}); warp::load(b, in0, {{1, 0}});
    warp::load(v, in1, {{0, 0}}); warp::load(w, in2, {{0, 0}});
    int k = 0;
#define OUT(x) c = x; warp::store(out0, c, {{k++, 0}})"""
            exprs = [
                ("a + b", lambda a, b, v, w: a + b), ("a - b", lambda a, b, v, w: a - b),
                ("a * b", lambda a, b, v, w: a * b), ("a / b", lambda a, b, v, w: a / b),
                ("a + 2.f", lambda a, b, v, w: a + F32.type(2)), ("3.f - a", lambda a, b, v, w: F32.type(3) - a),
                ("2 * a", lambda a, b, v, w: a * F32.type(2)), ("1.f / a", lambda a, b, v, w: F32.type(1) / a),
                ("a - v", lambda a, b, v, w: a - v), ("w * a", lambda a, b, v, w: a * w),
                ("v - a", lambda a, b, v, w: v - a), ("a / v", lambda a, b, v, w: a / v), ("-a", lambda a, b, v, w: -a),
                ("fma(a, b, a)", lambda a, b, v, w: fma64(a, b, a)), ("fms(a, b, a)", lambda a, b, v, w: fma64(a, b, -a)),
                ("fma(a, 0.3f, b)", lambda a, b, v, w: fma64(a, F32.type(0.3), b)),
                ("fms(a, 0.3f, v)", lambda a, b, v, w: fma64(a, F32.type(0.3), -v)),
                ("fma(a, v, w)", lambda a, b, v, w: fma64(a, v, w)), ("fma(2.f, a, 1.f)", lambda a, b, v, w: fma64(F32.type(2), a, F32.type(1))),
                ("maximum(a, b)", lambda a, b, v, w: np.maximum(a, b)), ("minimum(a, 0.5f)", lambda a, b, v, w: np.minimum(a, F32.type(0.5))),
                ("maximum(v, a)", lambda a, b, v, w: np.maximum(a, v)),
            ]  # fmt: skip

            def want(x, cv, rv, dt=dt, exprs=exprs):
                a, b = rnd(x[:16], dt), rnd(x[16:], dt)
                v, w = rnd(cv.reshape(16, 1), dt), rnd(rv.reshape(1, 16), dt)
                return [np.concatenate([rnd(f(a, b, v, w), dt) for _, f in exprs])]

            body = head + "".join(f"\n    OUT({e});" for e, _ in exprs) + "\n#undef OUT"
            ins = (rand(32, 16), rand(1, 16), rand(1, 16))
            cases.append(Case(f"ops_{t}_{lay}", body, ins, want, minimum=low))
            masks = [
                ("tril(c)", lambda x, r, c: np.where(c <= r, x, 0)), ("tril(c, 3, 5.f)", lambda x, r, c: np.where(c <= r + 3, x, 5)),
                ("triu(c)", lambda x, r, c: np.where(c >= r, x, 0)), ("triu(c, -2, 7.f)", lambda x, r, c: np.where(c >= r - 2, x, 7)),
                ("make_causal(c)", lambda x, r, c: np.where(c <= r, x, -np.inf)), ("right_fill(c, 11, 9.f)", lambda x, r, c: np.where(c < 11, x, 9)),
                ("left_fill(c, 11, 9.f)", lambda x, r, c: np.where(c >= 11, x, 9)), ("upper_fill(c, 5, 9.f)", lambda x, r, c: np.where(r >= 5, x, 9)),
                ("lower_fill(c, 5, 9.f)", lambda x, r, c: np.where(r < 5, x, 9)), ("one(c)", lambda x, r, c: np.ones_like(x)),
                ("neg_infty(c)", lambda x, r, c: np.full_like(x, -np.inf)), ("pos_infty(c)", lambda x, r, c: np.full_like(x, np.inf)),
                ("fill(c, 2.5f)", lambda x, r, c: np.full_like(x, 2.5)),
            ]  # fmt: skip
            grid = np.indices((16, 16))
            body = (
                f"\n    {tile} a, c;\n    warp::load(a, in0, {{0, 0}});\n    int k = 0;"
                + "".join(
                    f"\n    warp::copy(c, a); warp::{m}; warp::store(out0, c, {{k++, 0}});"
                    for m, _ in masks
                )
            )
            cases.append(Case(f"masks_{t}_{lay}", body, (rand(16, 16),),
                lambda x, dt=dt, masks=masks: [np.concatenate([rnd(f(rnd(x, dt), *grid), dt) for _, f in masks])],
                minimum=low))  # fmt: skip
            for rows, cols in ((32, 32), (48, 16), (16, 48)):
                cases.append(Case(f"reduce_{t}_{lay}_{rows}x{cols}", f"""
    rt<{t}, {rows}, {cols}, {lay}> a;
    warp::load(a, in0, {{0, 0}});
    col_vec<float, {rows}, {lay}> l;
    row_vec<float, {cols}, {lay}> m;
    warp::one(l); warp::one(m);
    warp::store(out0, row_sum(a), {{0, 0}}); warp::store(out0, row_max(a), {{1, 0}}); warp::store(out0, row_min(a), {{2, 0}});
    warp::store(out0, row_sum(a, l), {{3, 0}}); warp::store(out0, row_max(a, l), {{4, 0}}); warp::store(out0, row_min(a, l), {{5, 0}});
    warp::store(out1, col_sum(a), {{0, 0}}); warp::store(out1, col_max(a), {{1, 0}}); warp::store(out1, col_min(a), {{2, 0}});
    warp::store(out1, col_sum(a, m), {{3, 0}}); warp::store(out1, col_max(a, m), {{4, 0}}); warp::store(out1, col_min(a, m), {{5, 0}});""",
                    (rand(rows, cols),), lambda x, dt=dt: [reductions_want(rnd(x, dt), 1), reductions_want(rnd(x, dt), 0)], minimum=low))  # fmt: skip
            cases.append(Case(f"transpose_{t}_{lay}", f"""
    rt<{t}, 32, 48, {lay}> a;
    warp::load(a, in0, {{0, 0}});
    auto s = swap_layout(a);
    auto r = transpose(a);
    warp::store(out0, s, {{0, 0}});
    warp::store(out1, r, {{0, 0}});""", (rand(32, 48),),
                lambda x, dt=dt: [rnd(x, dt), rnd(x, dt).T.copy()], minimum=low))  # fmt: skip
            cases.append(Case(f"regs_{t}_{lay}", f"""
    rt<{t}, 16, 16, {lay}> a;
    for (int i = 0; i < 8; i++) a.set_reg(i, in0[{{laneid(), i}}]);
    warp::store(out0, a, {{0, 0}});
    warp::load(a, in1, {{0, 0}});
    for (int i = 0; i < 8; i++) out1[{{laneid(), i}}] = a.reg(i);""",
                (ints(32, 8), ints(16, 16)), lambda p, q, lay=lay: regs_want(p, q, lay), minimum=low))  # fmt: skip
        names = list(MAPS)
        body = f"""
    rt<{t}, 16, 16> a, b, c;
    rv<{t}, 128> v;
    warp::load(a, in0, {{0, 0}}); warp::load(v, in1, {{0, 0}});
    b = abs(a);
    int k = 0;
    float x = in0[{{0, laneid() & 15}}];""" + "".join(
            f"\n    c = {n}({'b' if n.startswith(('log', 'sqrt', 'rsqrt')) else 'a'}); warp::store(out0, c, {{k++, 0}});"
            for n in names) + "\n    k = 0;" + "".join(
            f"\n    warp::store(out1, {n}({'abs(v)' if n.startswith(('log', 'sqrt', 'rsqrt')) else 'v'}), {{k++, 0}});"
            for n in names) + "\n    k = 0;" + "".join(
            f"\n    if (laneid() < 16) out2[{{k++, laneid()}}] = {n}({'abs(x)' if n.startswith(('log', 'sqrt', 'rsqrt')) else 'x'});"
            for n in names)  # fmt: skip
        cases.append(Case(f"maps_{t}", body, (rand(16, 16), rand(1, 128)), lambda x, v, dt=dt: [
            np.concatenate([f(rnd(x, dt)) for f in MAPS.values()]).astype(F32),
            np.concatenate([f(rnd(v, dt)) for f in MAPS.values()]).astype(F32),
            np.stack([f(x[0]) for f in MAPS.values()]).astype(F32)], tol=max(eps, 5e-4), minimum=low))  # fmt: skip
        cases.append(Case(f"compound_{t}", f"""
    rt<{t}, 16, 16> a, b;
    warp::load(a, in0, {{0, 0}}); warp::load(b, in0, {{0, 0}});
    auto m = row_max(b);
    rv<{t}, 64> v;
    warp::load(v, in1, {{0, 0}});
    a += b; a -= 1.f; a *= 2.f; a /= 4.f;
    v += v; v -= 1.f; v *= v; v /= 4.f;
    warp::store(out0, a, {{0, 0}});
    warp::store(out1, v, {{0, 0}});
    auto n = exp2(m * 2.f - m) + fma(m, 2.f, m);
    warp::store(out2, n, {{0, 0}});""", (ints(16, 16), ints(1, 64)),
            lambda x, v: [(2 * x - 1) / 2, (2 * v - 1) ** 2 / 4, (np.exp2(x.max(1)) + 3 * x.max(1))[None].astype(F32)],
            tol=1e-6, minimum=low))  # fmt: skip
    return cases


def reductions_want(x: np.ndarray, axis: int) -> np.ndarray:
    s, hi, lo, one = fold_groups(x, axis), x.max(axis), x.min(axis), F32.type(1)
    return np.stack([s, hi, lo, s + one, np.maximum(hi, one), np.minimum(lo, one)])


def regs_want(p: np.ndarray, q: np.ndarray, lay: str) -> list[np.ndarray]:
    lane, i = np.indices((32, 8))
    r, c = lane // 4 + 8 * ((i >> 1) & 1), 2 * (lane % 4) + (i & 1) + 8 * (i >> 2)
    if lay == "col":
        r, c = c, r
    tile = np.zeros((16, 16), F32)
    tile[r, c] = p
    return [tile, q[r, c]]


def mma_cases() -> list[Case]:
    cases = []
    shapes = {"mma_AB": ("row", 0, "col", 0), "mma_ABt": ("row", 0, "row", 1),
              "mma_AtB": ("col", 1, "col", 0), "mma_AtBt": ("col", 1, "row", 1)}  # fmt: skip
    formats = [
        (BF16, F32, 80),
        (F16, F32, 75),
        (F16, F16, 75),
        (F32, F32, 80),
        (E4M3, F32, 89),
        (E5M2, F32, 89),
    ]
    for dt, acc, low in formats:
        t, d = CPP[dt], CPP[acc]
        for op, (al, at, bl, bt) in shapes.items():
            m, n, k = 32, 16, 64
            a, b = ints(m, k, dtype=dt), ints(k, n, dtype=dt)
            ar, ac = (k, m) if at else (m, k)
            br, bc = (n, k) if bt else (k, n)
            cases.append(Case(f"{op}_{t}_{d}", f"""
    rt<{t}, {ar}, {ac}, {al}> a;
    rt<{t}, {br}, {bc}, {bl}> b;
    rt<{d}, {m}, {n}> c;
    warp::load(a, in0, {{0, 0}}); warp::load(b, in1, {{0, 0}});
    warp::one(c);
    warp::{op}(c, a, b);
    warp::store(out0, c, {{0, 0}});""",
                (np.ascontiguousarray(a.T) if at else a, np.ascontiguousarray(b.T) if bt else b),
                lambda a, b, at=at, bt=bt: [1 + (a.T if at else a).astype(F32) @ (b.T if bt else b).astype(F32)],
                minimum=low))  # fmt: skip
    for dt, low in ((E4M3, 89), (E5M2, 89)):
        t = CPP[dt]
        for lay in ("row", "col"):
            cases.append(Case(f"fp8_{t}_{lay}", f"""
    auto& s = smem.at<st<{t}, 32, 64, 64>>(0);
    rt<{t}, 32, 64, {lay}> a;
    rt<float, 32, 64, {lay}> f;
    warp::load(f, in0, {{0, 0}});
    warp::copy(a, f * 100.f);
    warp::store(s, a);
    warp::sync();
    warp::load(a, s);
    auto u = swap_layout(a);
    warp::store(out0, u, {{0, 0}});
    warp::load(f, s);
    warp::store(out1, f, {{0, 0}});""", (rand(32, 64),),
                lambda x, dt=dt: [saturated(x * F32.type(100), dt), saturated(x * F32.type(100), dt)], smem=8192, minimum=low))  # fmt: skip
    return cases


def saturated(x: np.ndarray, dt: np.dtype) -> np.ndarray:
    top = float(ml_dtypes.finfo(dt).max)
    return rnd(np.clip(x, -top, top), dt)


def lane_cases() -> list[Case]:
    lane = np.arange(32)
    cases = [
        Case("shuffles", """
    int l = laneid();
    float x = in0[l];
    out0[{0, l}] = warp::shfl(x, 5); out0[{1, l}] = warp::shfl_up(x, 3); out0[{2, l}] = warp::shfl_down(x, 3);
    out0[{3, l}] = warp::shfl_xor(x, 9); out0[{4, l}] = warp::uniform(x);
    out0[{5, l}] = warp::any(x > 1.f); out0[{6, l}] = warp::all(x > -9.f);
    if (l == 0) out1[0] = warp::ballot(true);""".replace("if (l == 0) out1[0] = warp::ballot(true);",
             "u32 b = warp::ballot(x > 0.f); if (l == 0) out1[0] = b;"),
             (rand(32),), lambda x: [np.stack([
                 np.full(32, x[5]), np.where(lane >= 3, x[lane - 3], x), np.where(lane < 29, x[(lane + 3) % 32], x), x[lane ^ 9],
                 np.full(32, x[0]), np.full(32, (x > 1).any()), np.full(32, (x > -9).all())]).astype(F32),
                 np.array([sum(1 << int(i) for i in lane[x > 0])], np.uint32)]),
        Case("atomics", """
    int l = laneid();
    auto& s = smem.at<arr<float, 4>>(0);
    auto& n = smem.at<arr<int, 4>>(64);
    if (l < 4) { s[l] = 0.f; n[l] = 0; }
    warp::sync();
    atomic_add(s[0], (float)l); atomic_max(s[1], in0[l]); atomic_min(s[2], in0[l]);
    atomic_add(n[0], l); atomic_max(n[1], l); atomic_min(n[2], -l);
    atomic_add(out2[0], 1); atomic_max(out2[1], l); int o = atomic_cas(out2[2], 0, 7); atomic_exch(out2[3], 9);
    warp::sync();
    if (l < 4) { out0[l] = s[l]; out1[l] = n[l]; }
    if (o > 0) atomic_add(out2[2], 0);""", (rand(32),), lambda x: [
             np.array([496, max(x.max(), 0), min(x.min(), 0), 0], F32), np.array([496, 31, -31, 0], np.int32),
             np.array([32, 31, 7, 9], np.int32)], smem=1024),
        Case("integers", """
    int l = laneid() - 16;
    out0[{0, laneid()}] = floordiv(l, 5); out0[{1, laneid()}] = floormod(l, 5);
    out0[{2, laneid()}] = floordiv(l, -3); out0[{3, laneid()}] = floormod(l, -3);
    out0[{4, laneid()}] = cdiv(laneid(), 7); out0[{5, laneid()}] = min(l, 3) + max(l, -2) + abs(l);
    out0[{6, laneid()}] = to_i32(in0[laneid()] * 1e9f);
    out0[{7, laneid()}] = threadIdx.x + blockIdx.x * blockDim.x + gridDim.x - 1;""", (rand(32),), lambda x: [
             np.stack([(lane - 16) // 5, (lane - 16) % 5, (lane - 16) // -3, (lane - 16) % -3, -(-lane // 7),
                       np.minimum(lane - 16, 3) + np.maximum(lane - 16, -2) + abs(lane - 16),
                       np.clip(np.trunc((x * F32.type(1e9)).astype(np.float64)), -(2**31), 2**31 - 1), lane]).astype(np.int32)]),
        Case("arrays", """
    auto& a = smem.at<arr<float, 32, 33>>(0);
    auto& b = smem.at<arr<int, 2, 3, 4>>(8192);
    int l = laneid();
    for (int i = 0; i < 32; i++) a[{i, l}] = in0[{i, l}];
    if (l < 24) b[{l / 12, l / 4 % 3, l % 4}] = l;
    warp::sync();
    for (int i = 0; i < 32; i++) out0[{i, l}] = a[{l, i}];
    a[{l, 0}] += 1.f;
    if (l < 24) out1[l] = b[{l / 12, l / 4 % 3, l % 4}];
    auto v = vec_load<4>(in1, threadIdx.x);
    v[1] = v[0] + v[3]; v[2] *= 2.f;
    vec_store<4>(out2, l, v);
    auto w = vec_load<2>(in0, {l, 3});
    out3[l] = w[0] + w[1];""", (rand(32, 32), rand(128)), lambda x, v: [
             x.T.copy(), np.arange(24, dtype=np.int32), vec_want(v), x[:, 6] + x[:, 7]], smem=16384),
    ]  # fmt: skip
    for dt in (F16, BF16):
        t, low = CPP[dt], 80
        cases.append(Case(f"raw_mma_{t}", f"""
    auto& s = smem.at<st<{t}, 16, 16, 32>>(0);
    auto& q = smem.at<st<{t}, 16, 16, 0, 8>>(1024);
    warp::load(s, in0, {{0, 0}}); warp::load(q, in1, {{0, 0}});
    warp::sync();
    int l = laneid();
    reg_array<{t}, 8> a;
    reg_array<{t}, 4> b;
    reg_array<{t}, 2> one;
    reg_array<float, 4> c;
    warp::ldmatrix(a, s[{{l & 15, 8 * (l >> 4)}}]);
    warp::ldmatrix(b, q[{{l & 15, 0}}], trans);
    warp::ldmatrix(one, s[{{l & 7, 8}}]);
    for (int i = 0; i < 4; i++) c[i] = 0.f;
    warp::mma_m16n8k16(c, a, b);
    for (int i = 0; i < 4; i++) out0[{{(l >> 2) + 8 * (i >> 1), 2 * (l & 3) + (i & 1)}}] = c[i];
    for (int i = 0; i < 2; i++) out1[{{l >> 2, 2 * (l & 3) + i}}] = one[i];
    out2[l] = in1[{{0, l & 15}}] * 2.f + 1.f;
    for (int i = 0; i < 8; i++) a[i] = a[i] + 1.f;
    if (l < 8) out1[{{8, l}}] = a[0];""", (ints(16, 16, dtype=dt), ints(16, 16, dtype=dt)),
            lambda a, b: [(a.astype(F32) @ b.astype(F32))[:, :8].copy(), np.concatenate([a[:8, 8:].astype(F32), a.astype(F32)[:2, ::2][:, :4].reshape(1, 8) + 1]),
                          (2 * b.astype(F32)[0, np.arange(32) & 15] + 1).astype(b.dtype)], smem=4096, minimum=low))  # fmt: skip
    cases.append(Case("raw_tf32", """
    int l = laneid(), g = l >> 2, t = l & 3;
    reg_array<float, 4> a, c;
    reg_array<float, 2> b;
    for (int i = 0; i < 4; i++) { a[i] = in0[{g + 8 * (i & 1), t + 4 * (i >> 1)}]; c[i] = 0.f; }
    for (int i = 0; i < 2; i++) b[i] = in1[{t + 4 * i, g}];
    warp::mma_m16n8k8(c, a, b);
    for (int i = 0; i < 4; i++) out0[{g + 8 * (i >> 1), 2 * t + (i & 1)}] = c[i];""",
        (ints(16, 8), ints(8, 8)), lambda a, b: [a @ b], minimum=80))  # fmt: skip
    return cases


def vec_want(v: np.ndarray) -> np.ndarray:
    v = v.reshape(32, 4).copy()
    v[:, 1] = v[:, 0] + v[:, 3]
    v[:, 2] *= 2
    return v.reshape(-1)


CASES = [*memory_cases(), *arithmetic_cases(), *mma_cases(), *lane_cases()]
assert len({c.name for c in CASES}) == len(CASES)


def golden_cases(scale: int = 2) -> dict[str, list[Case]]:
    """The hand-written kernels of tests/cuda with values: file stem to cases (bodies are in the file)."""

    def product(m: int, n: int, k: int) -> Case:
        blocks = -(-m // 128) * -(-n // 128)
        return Case("gemm", "", (ints(m, k, dtype=BF16), ints(k, n, dtype=BF16)),
                    lambda a, b: [(a.astype(F32) @ b.astype(F32)).astype(BF16)], threads=128, smem=98304, grid=(blocks,))  # fmt: skip

    def softmax(x: np.ndarray) -> np.ndarray:
        e = np.exp(x.astype(F32) - x.astype(F32).max(1, keepdims=True))
        return (e / e.sum(1, keepdims=True)).astype(x.dtype)

    def layernorm(x, r, w, b):
        v = x.astype(F32) + r.astype(F32)
        z = v - v.mean(1, keepdims=True)
        y = z / np.sqrt((z * z).mean(1, keepdims=True) + 1e-5) * w.astype(F32) + b.astype(F32)
        return [v.astype(BF16), y.astype(BF16)]

    def rotary(x, c, s):
        a, b, c, s = x[..., :64].astype(F32), x[..., 64:].astype(F32), c.astype(F32), s.astype(F32)
        return [np.concatenate([a * c - b * s, b * c + a * s], -1).astype(BF16)]

    rows, eps = 4 * scale, 2.0**-8
    sm = {"want": lambda x: [softmax(x)], "threads": 128, "grid": (scale,)}
    ln = {"want": layernorm, "threads": 128, "grid": (scale,), "tol": eps}
    ln_in = (
        rand(rows, 1024, dtype=BF16),
        rand(rows, 1024, dtype=BF16),
        rand(1024, dtype=BF16),
        rand(1024, dtype=BF16),
    )
    rot_in = (
        rand(1, 1, 16 * scale, 128, dtype=BF16),
        rand(16 * scale, 64, dtype=BF16),
        rand(16 * scale, 64, dtype=BF16),
    )
    return {
        "gemm_golden": [product(128 * scale, 128, 256), product(100, 90 * scale, 77), product(1, 7, 65), product(130, 129, 64)][: 4 if scale > 1 else 3],
        "softmax_golden": [Case("softmax", "", (rand(rows, 1024, dtype=BF16),), tol=eps, **sm),
                           Case("softmax_wide", "", (rand(rows, 1024, dtype=BF16),), tol=eps, **sm),
                           Case("softmax_f32", "", (rand(rows, 1024),), tol=1e-6, **sm),
                           Case("softmax_tile", "", (rand(64 * scale, 128, dtype=BF16),), tol=eps, **sm)],
        "layernorm_golden": [Case("layernorm", "", ln_in, **ln), Case("layernorm_wide", "", ln_in, **ln)],
        "rotary_golden": [Case("rotary", "", rot_in, rotary, threads=128, grid=(scale,), tol=eps),
                          Case("rotary_rv", "", rot_in, rotary, threads=128, grid=(4 * scale,), tol=eps)],
    }  # fmt: skip


def module_source(cases: Sequence[Case], prelude: str = "") -> str:
    text = (
        "#define TK_FP8\n#define TK_BLOCK_1D\n" + prelude + '#include "tk/tk.cuh"\nnamespace tk {\n'
    )
    return text + "\n".join(c.kernel() for c in cases) + "}  // namespace tk\n"
