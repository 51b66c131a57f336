"""Attention and planted faults in the interpreters of JAX (Mosaic GPU) and Triton.

    python benchmarks/async_peers.py mosaic | mosaic-loop | triton  B H N D RUNS [RACES]
    python benchmarks/async_peers.py fault NAME

runs one of them in this process and prints one line of JSON: CPU and wall seconds of each call, the
largest error, versions; or {"missing": why}. async_sim.py starts it with the Python of its --peers
option, since JAX and Triton are no part of this project. One thread for products, as there.

The Mosaic kernel does the work of tklearn.kernels.attention_hopper as far as its interpreter allows
(JAX 0.10): K comes transposed, since wgmma takes no transposed reference, and P goes through shared
memory, since A cannot be in registers. "mosaic" has a grid point for each 128 queries; the
interpreter compiles each thread of each grid point anew, so "mosaic-loop" has one grid point for
each head and loops over the queries inside, which is the fastest form we know.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
os.environ["TRITON_INTERPRET"] = "1"

import numpy as np

LOG2E = 1.4426950408889634
KEYS, ROWS, GROUPS, STAGES = 128, 64, 2, 2


def main(argv: list[str]) -> int:
    what = argv[0]
    try:
        if what == "fault":
            told = fault(argv[1])
        else:
            told = (triton if what == "triton" else mosaic)(what, *map(int, argv[1:]))
    except ImportError as e:
        told = {"missing": f"{e.name} is not installed in {sys.executable}"}
    told["versions"] = versions()
    print(json.dumps(told))
    return 0


def versions() -> dict[str, str]:
    found = {"python": sys.version.split()[0]}
    for name in ("jax", "jaxlib", "triton", "torch", "numpy"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def inputs(b: int, h: int, n: int, d: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal((b, h, n, d), dtype=np.float32) for _ in range(3)]


def timed(call: Callable[[], Any], runs: int) -> tuple[dict[str, Any], Any]:
    """CPU and wall seconds of each call, the first one apart, and the last result."""
    cpu, wall = [], []
    for _ in range(runs + 1):
        c, t = time.process_time(), time.perf_counter()
        result = call()
        cpu.append(time.process_time() - c)
        wall.append(time.perf_counter() - t)
    return {"first": cpu[0], "cpu": cpu[1:] or cpu, "wall": wall[1:] or wall}, result


def error(q: np.ndarray, k: np.ndarray, v: np.ndarray, got: np.ndarray) -> float:
    """From float64, with the rounded inputs that the kernel had."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    s = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5
    p = np.exp(s - s.max(axis=-1, keepdims=True))
    return float(np.abs(got - p / p.sum(axis=-1, keepdims=True) @ v).max())


# -------------------------------------------------------------------------------- Mosaic GPU
def mosaic(form: str, b: int, h: int, n: int, d: int, runs: int, races: int = 0) -> dict[str, Any]:
    """Attention (B, H, N, D) in bf16; races=1: with the interpreter's race detector."""
    import jax
    import jax.numpy as jnp

    q, k, v = (jnp.asarray(x, jnp.bfloat16) for x in inputs(b, h, n, d))
    transposed = jnp.swapaxes(k, -1, -2)
    f = jax.jit(attention(b, h, n, d, form == "mosaic-loop", bool(races)))
    told, out = timed(lambda: jax.block_until_ready(f(q, transposed, v)), runs)
    told["error"] = error(*(np.asarray(x) for x in (q, k, v)), np.asarray(out, np.float64))
    if races:
        told["races_found"] = found_races()
    return told


def found_races() -> bool:
    from jax._src.pallas.mosaic_gpu.interpret import interpret_pallas_call

    return bool(interpret_pallas_call.get_races().races_found)


def interpreter(races: bool) -> Any:
    from jax._src.pallas.mosaic_gpu.interpret.params import InterpretGPUParams

    return InterpretGPUParams(detect_races=races)


def attention(b: int, h: int, n: int, d: int, loop: bool, races: bool) -> Any:
    """A producer thread and two consumers, K and V in rings of two stages."""
    import jax
    import jax.experimental.pallas as pl
    import jax.experimental.pallas.mosaic_gpu as plgpu
    import jax.numpy as jnp
    from jax import lax

    blocks, scale = n // KEYS, LOG2E * d**-0.5
    tiles = n // (GROUPS * ROWS)
    inner = tiles if loop else 1  # tiles of queries that one grid point takes

    def kernel(Q, K, V, Y, q_s, k_s, v_s, p_s, q_here, k_full, v_full, empty):
        wg, bt, hd = (lax.axis_index(name) for name in ("wg", "b", "h"))

        def rows_of(t):
            tile = t if loop else lax.axis_index("x")
            return pl.ds((tile * GROUPS + wg) * ROWS, ROWS)

        @pl.when(wg < GROUPS)
        def _() -> None:
            q, p = q_s.at[wg], p_s.at[wg]

            def one(t, _):
                plgpu.copy_gmem_to_smem(Q.at[bt, hd, rows_of(t)], q, q_here.at[wg])
                plgpu.barrier_wait(q_here.at[wg])

                def step(j, carry):
                    o, top, total = carry
                    s = lax.rem(t * blocks + j, jnp.int32(STAGES))
                    plgpu.barrier_wait(k_full.at[s])

                    def scores(acc):
                        plgpu.wgmma(acc, q, k_s.at[s])
                        return acc[...]

                    att = pl.run_scoped(scores, plgpu.ACC((ROWS, KEYS), jnp.float32))
                    new = jnp.maximum(top, att.max(axis=1) * scale)
                    keep = jnp.exp2(top - new)
                    e = jnp.exp2(att * scale - lax.broadcast_in_dim(new, att.shape, [0]))
                    p[...] = e.astype(jnp.bfloat16)
                    plgpu.commit_smem()
                    plgpu.barrier_wait(v_full.at[s])

                    def weighted(acc):
                        plgpu.wgmma(acc, p, v_s.at[s])
                        return acc[...]

                    more = pl.run_scoped(weighted, plgpu.ACC((ROWS, d), jnp.float32))
                    plgpu.barrier_arrive(empty.at[s])
                    o = o * lax.broadcast_in_dim(keep, o.shape, [0]) + more
                    return o, new, total * keep + e.sum(axis=1)

                start = (
                    jnp.zeros((ROWS, d), jnp.float32),
                    jnp.full((ROWS,), -jnp.inf, jnp.float32),
                    jnp.zeros((ROWS,), jnp.float32),
                )
                o, _, total = lax.fori_loop(0, blocks, step, start)
                y = o / lax.broadcast_in_dim(total, o.shape, [0])
                q[...] = y.astype(jnp.bfloat16)
                plgpu.commit_smem()
                plgpu.copy_smem_to_gmem(q, Y.at[bt, hd, rows_of(t)])
                plgpu.wait_smem_to_gmem(0)
                return 0

            lax.fori_loop(0, inner, one, 0)

        @pl.when(wg == GROUPS)
        def _() -> None:
            def load(j, s):
                at = pl.ds(lax.rem(j, jnp.int32(blocks)) * KEYS, KEYS)
                plgpu.copy_gmem_to_smem(K.at[bt, hd, :, at], k_s.at[s], k_full.at[s])
                plgpu.copy_gmem_to_smem(V.at[bt, hd, at], v_s.at[s], v_full.at[s])

            def refill(j, _):
                s = lax.rem(j, jnp.int32(STAGES))
                plgpu.barrier_wait(empty.at[s])
                load(j, s)
                return 0

            for j in range(STAGES):
                load(jnp.int32(j), j)
            lax.fori_loop(STAGES, inner * blocks, refill, 0)
            for j in range(STAGES):  # it must see all phases that it has seen some of
                plgpu.barrier_wait(empty.at[(inner * blocks + j) % STAGES])

    tiled = (plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))

    def shared(*shape: int) -> Any:
        return plgpu.SMEM(shape, jnp.bfloat16, transforms=tiled)

    return plgpu.kernel(
        kernel,
        out_type=jax.ShapeDtypeStruct((b, h, n, d), jnp.bfloat16),
        grid=(tiles // inner, h, b),
        grid_names=("x", "h", "b"),
        num_threads=GROUPS + 1,
        thread_name="wg",
        scratch_types=[
            shared(GROUPS, ROWS, d),
            shared(STAGES, d, KEYS),
            shared(STAGES, KEYS, d),
            shared(GROUPS, ROWS, KEYS),
            plgpu.Barrier(num_barriers=GROUPS),
            plgpu.Barrier(num_barriers=STAGES),
            plgpu.Barrier(num_barriers=STAGES),
            plgpu.Barrier(num_arrivals=GROUPS, num_barriers=STAGES),
        ],
        interpret=interpreter(races),
    )


def steps(fault: str) -> int:
    """Of the pipeline with planted faults; it has two stages."""
    return 2 if "one lap" in fault else 6


def fault(name: str) -> dict[str, Any]:
    """Whether the interpreter, with its race detector on, sees a planted fault of async_sim.py."""
    import jax
    import jax.numpy as jnp

    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.standard_normal((steps(name) * 64, 64)), jnp.bfloat16)
    w = jnp.asarray(rng.standard_normal((64, 64)), jnp.bfloat16)
    want = np.asarray(x, np.float64).reshape(steps(name), 64, 64)
    if "plain loads" not in name:
        want = np.asarray(w, np.float64) @ want
    try:
        out = jax.block_until_ready(jax.jit(pipeline(name))(x, w))
    except Exception as e:  # noqa: BLE001 - whatever it raises is its report
        return {"verdict": str(e).strip().splitlines()[-1][:200], "seen": True}
    got = np.asarray(out, np.float64).reshape(want.shape)
    races = found_races()
    return {
        "verdict": "a race" if races else "nothing",
        "seen": races,
        "values are right": bool(np.allclose(got, want, atol=0.3)),
    }


def pipeline(fault: str) -> Any:
    """Y[j] = W X[j] for tiles of 64 x 64: X by TMA into two stages, Y out by TMA.

    With a fault "... plain loads": Y = X, the tile read by the thread itself.
    """
    import jax
    import jax.experimental.pallas as pl
    import jax.experimental.pallas.mosaic_gpu as plgpu
    import jax.numpy as jnp
    from jax import lax

    plain, n = "plain loads" in fault, steps(fault)

    def kernel(X, W, Y, x_s, p_s, o_s, full, empty, w_here):
        wg = lax.axis_index("wg")

        @pl.when(wg == 0)
        def _() -> None:
            plgpu.copy_gmem_to_smem(W, p_s, w_here)
            plgpu.barrier_wait(w_here)
            w = p_s[...]

            def step(j, _):
                s = lax.rem(j, jnp.int32(2))
                if not fault.startswith("no wait"):
                    plgpu.barrier_wait(full.at[s])
                p_s[...] = w
                if fault != "operand of wgmma stored without proxy fence":
                    plgpu.commit_smem()

                def product(acc):
                    plgpu.wgmma(acc, p_s, x_s.at[s])
                    if fault == "stage given back before wgmma has read it":
                        plgpu.barrier_arrive(empty.at[s])
                        plgpu.wgmma_wait(0)
                    else:
                        plgpu.wgmma_wait(0)
                        plgpu.barrier_arrive(empty.at[s])
                    return acc[...]

                if plain:
                    y = x_s[s].astype(jnp.float32)
                    plgpu.barrier_arrive(empty.at[s])
                else:
                    y = pl.run_scoped(product, plgpu.ACC((64, 64), jnp.float32))
                if fault != "stored tile reused before TMA has read it":
                    plgpu.wait_smem_to_gmem(0)
                o_s[...] = y.astype(jnp.bfloat16)
                if fault != "TMA store without proxy fence":
                    plgpu.commit_smem()
                plgpu.copy_smem_to_gmem(o_s, Y.at[pl.ds(j * 64, 64)])
                return 0

            lax.fori_loop(0, n, step, 0)
            plgpu.wait_smem_to_gmem(0)

        @pl.when(wg == 1)
        def _() -> None:
            def refill(j, _):
                s = lax.rem(j, jnp.int32(2))
                if not fault.startswith("refilled"):
                    plgpu.barrier_wait(empty.at[s])
                plgpu.copy_gmem_to_smem(X.at[pl.ds(j * 64, 64)], x_s.at[s], full.at[s])
                return 0

            for j in range(2):
                plgpu.copy_gmem_to_smem(X.at[pl.ds(j * 64, 64)], x_s.at[j], full.at[j])
            lax.fori_loop(2, n, refill, 0)
            if not fault.startswith("refilled"):
                for j in range(2):
                    plgpu.barrier_wait(empty.at[j])

    tiled = (plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))
    return plgpu.kernel(
        kernel,
        out_type=jax.ShapeDtypeStruct((n * 64, 64), jnp.bfloat16),
        grid=(1,),
        grid_names=("x",),
        num_threads=2,
        thread_name="wg",
        scratch_types=[
            plgpu.SMEM((2, 64, 64), jnp.bfloat16, transforms=tiled),
            plgpu.SMEM((64, 64), jnp.bfloat16, transforms=tiled),
            plgpu.SMEM((64, 64), jnp.bfloat16, transforms=tiled),
            plgpu.Barrier(num_barriers=2),
            plgpu.Barrier(num_barriers=2),
            plgpu.Barrier(),
        ],
        interpret=interpreter(True),
    )


# ------------------------------------------------------------------------------------ Triton
def triton(_: str, b: int, h: int, n: int, d: int, runs: int) -> dict[str, Any]:
    """Attention (B, H, N, D), 128 queries and 128 keys at a time; f16: bf16 comes out wrong."""
    import torch
    import triton as tr
    import triton.language as tl

    torch.set_num_threads(1)

    @tr.jit
    def forward(Q, K, V, Y, N, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
        head = tl.program_id(1) * N * D
        rows = tl.program_id(0) * BM + tl.arange(0, BM)
        cols = tl.arange(0, D)
        q = tl.load(Q + head + rows[:, None] * D + cols[None])
        o = tl.zeros((BM, D), tl.float32)
        top = tl.full((BM,), float("-inf"), tl.float32)
        total = tl.zeros((BM,), tl.float32)
        for j in range(0, N, BN):
            keys = j + tl.arange(0, BN)
            k = tl.load(K + head + keys[:, None] * D + cols[None])
            v = tl.load(V + head + keys[:, None] * D + cols[None])
            att = tl.dot(q, tl.trans(k)) * scale
            new = tl.maximum(top, tl.max(att, 1))
            keep = tl.exp2(top - new)
            e = tl.exp2(att - new[:, None])
            total = total * keep + tl.sum(e, 1)
            o = o * keep[:, None] + tl.dot(e.to(tl.float16), v)
            top = new
        tl.store(Y + head + rows[:, None] * D + cols[None], (o / total[:, None]).to(tl.float16))

    q, k, v = (torch.from_numpy(x).half() for x in inputs(b, h, n, d))
    y = torch.empty_like(q)
    grid = (n // 128, b * h)

    def call() -> Any:
        forward[grid](q, k, v, y, n, LOG2E * d**-0.5, D=d, BM=128, BN=128)
        return y

    told, out = timed(call, runs)
    told["error"] = error(*(x.float().numpy() for x in (q, k, v)), out.double().numpy())
    return told


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
