"""NVRTC without a GPU: operations on each architecture, the cache, errors, ptxas figures."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import async_cases
import cuda_cases as cases
import pytest

from tklearn.cuda import compile as cc
from tklearn.cuda.emit import Source, emit
from tklearn.lang import types as T
from tklearn.lang.errors import TkError

pytest.importorskip("cupy", reason="CuPy is not installed; with it NVRTC compiles, GPU or not")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Each test compiles for itself."""
    monkeypatch.setenv("TKLEARN_CACHE", str(tmp_path))
    monkeypatch.setattr(cc, "_memory", {})
    return tmp_path / "cubin"


def _saxpy() -> Source:
    return emit(cases.specialise(cases.saxpy, 256))


# One kernel with many operations for each architecture; together every operation compiles on each.
ON = {
    75: ["nodes", "corners", "tiles_f16"],
    80: ["nodes", "tiles_bf16", "instructions", "semaphores_only"],
    86: ["tiles_f32"],
    89: ["tiles_f16", "products_e4m3"],
    90: [
        "nodes", "tiles_bf16", "instructions", "products_e4m3", "gemm4", "semaphores_only",
        "copy_only", "gemm_ws", "attend", "linear_attention", "operations",
    ],
    120: [
        "tiles_bf16", "products_e5m2", "layernorm", "histogram", "semaphores_only", "copy_only",
    ],
}  # fmt: skip
ASYNC = {
    "semaphores_only": (64, dict.fromkeys("xy", 2)),
    "copy_only": (32, dict.fromkeys("xy", 2)),
    "gemm_ws": (384, dict.fromkeys("ABC", 2)),
    "attend": (512, dict.fromkeys("QKVO", 4)),
    "linear_attention": (128, dict.fromkeys("QKVO", 4)),
    "operations": (256, {"A": 2, "v": 1, "H": 2, "F": 2, "O": 2}),
    "serialised": (128, dict.fromkeys("xy", 2)),
}


def _case(name: str) -> Source:
    make = {
        "nodes": lambda: cases.specialise(cases.nodes, 128, {"A": 2}),
        "corners": lambda: cases.specialise(cases.corners, 32, {"A": 2}),
        "instructions": lambda: cases.specialise(cases.instructions, 32, {"A": 2, "C": 2}),
        "gemm4": lambda: cases.specialise(cases.gemm, 128, {"A": 3, "B": 4, "C": 2}, STAGES=4),
        "layernorm": lambda: cases.specialise(cases.layernorm, 128, {"x": 2, "y": 2}),
        "histogram": lambda: cases.specialise(cases.histogram, 256),
        "tiles_f16": lambda: cases.specialise(cases.tiles(T.f16), 64, cases.TILE_DIMS),
        "tiles_bf16": lambda: cases.specialise(cases.tiles(T.bf16), 64, cases.TILE_DIMS),
        "tiles_f32": lambda: cases.specialise(cases.tiles(T.f32), 64, cases.TILE_DIMS),
        "products_e4m3": lambda: cases.specialise(cases.products(T.e4m3), 32, {"A": 2, "C": 2}),
        "products_e5m2": lambda: cases.specialise(cases.products(T.e5m2), 32, {"A": 2, "C": 2}),
    }
    if name in ASYNC:
        return emit(cases.specialise(getattr(async_cases, name), *ASYNC[name]))
    return emit(make[name]())


@pytest.mark.parametrize(("arch", "name"), [(a, n) for a, names in ON.items() for n in names])
def test_every_operation_compiles(arch: int, name: str) -> None:
    made = cc.compile_source(_case(name), arch)
    assert made.image[:4] == b"\x7fELF"
    assert 4 <= made.facts.registers <= 255
    # no notes: no product that waits after each step, no register count that is ignored
    assert not made.facts.notes
    assert not made.facts.spills or name not in ASYNC


def test_a_touched_accumulator_is_noted() -> None:
    facts = cc.compile_source(_case("serialised"), 90).facts
    assert any("wgmma.mma_async instructions are serialized" in n for n in facts.notes)
    assert "serialized" in str(facts)


def test_other_architectures_say_that_wgmma_is_missing() -> None:
    """A launch asks first (check_device); the headers say it too."""
    with pytest.raises(TkError, match=r"TK423.*wgmma needs sm_90a") as e:
        cc.compile_source(_case("linear_attention"), 120)
    assert e.value.loc is not None


@pytest.mark.parametrize("name", ["nodes", "instructions", "gemm_ws"])
def test_the_counting_build_is_another_one(name: str) -> None:
    source = _case(name)
    counting = cc.compile_source(source, 90, counting=True)
    assert counting.image != cc.compile_source(source, 90).image


def test_layouts_agree_with_the_headers() -> None:
    """Sizes that Python computes and the headers repeat."""
    lines = ["static_assert(sizeof(gl<float, 3>) == 48 && alignof(gl<bf16, 1>) == 8);"]
    shared = [
        T.Shared(T.st(d, 16, 16 * c, sw), (2,))
        for d in (T.f32, T.bf16)
        for c in (1, 2, 4)
        for sw in (0, 32, 64, 128)
        if 16 * c * d.itemsize % (sw or 1) == 0
    ]
    shared += [T.Shared(T.st(T.bf16, 16, 16, 0, 8), (3, 2)), T.Shared(T.sv(T.bf16, 20), (3,))]
    for s in shared:
        lines.append(
            f"static_assert(sizeof({s.elem.cpp}) == {s.stride});"
            f"static_assert(alignof({s.elem.cpp}) <= {s.align});"
        )
    for a in (
        T.SArr(T.f32, (33,)),
        T.SArr(T.f32, (32, 33)),
        T.SArr(T.bf16, (3, 5, 7)),
        T.SArr(T.f32, (32, 1)),
    ):
        lines.append(
            f"static_assert(sizeof({a.cpp}) >= {a.nbytes} && alignof({a.cpp}) == {a.align});"
        )
    lines = [
        '#include "tk/tk.cuh"',
        "namespace tk {",
        *lines,
        'extern "C" __global__ void sizes() {}',
        "}",
    ]
    cc.compile_source(Source([(None, t) for t in lines], "sizes", [None] * len(lines)), 80)


def test_facts_come_from_ptxas() -> None:
    log = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'k' for 'sm_90a'
ptxas info    : Function properties for k
    40 bytes stack frame, 24 bytes spill stores, 28 bytes spill loads
ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async is serialized due to ...
ptxas info    : Used 168 registers, used 1 barriers, 40 bytes cumulative stack size, 1024 bytes smem
"""
    facts = cc.read_facts(log)
    assert (facts.registers, facts.stack, facts.spill_stores, facts.spill_loads, facts.shared) == (
        168,
        40,
        24,
        28,
        1024,
    )
    assert facts.spills
    assert "spills 24 bytes" in str(facts)
    assert len(facts.notes) == 1
    assert "serialized" in facts.notes[0]


# -------------------------------------------------------------------------------------- errors
@cases.tk.intrinsic(cuda="no_such_function({x})", sim=lambda x: x)
def missing(x):
    """Does not exist in CUDA."""


def _wrong(x: cases.tk.gl_fl):
    x[0] = 1.0
    x[1] = missing(x[0])


def test_an_error_of_the_compiler_names_the_python_line() -> None:
    with pytest.raises(TkError) as e:
        cc.compile_source(emit(cases.specialise(_wrong, 32)), 90)
    assert e.value.code == "TK423"
    assert e.value.loc is not None
    assert e.value.loc.text().strip() == "x[1] = missing(x[0])"
    assert 'identifier "no_such_function" is undefined' in e.value.message
    assert "_wrong.cu:" in e.value.message
    assert "error.log" in e.value.hint


def test_an_error_inside_a_header_names_the_python_line() -> None:
    lines = [
        '#include "tk/tk.cuh"',
        "namespace tk {",
        'extern "C" __global__ void k(gl<float, 1> x) {',
        "    rt<float, 17, 16> t;",
        "    x[0] = t.reg(0);",
        "}",
        "}",
    ]
    from tklearn.lang.errors import Loc

    locs = [None, None, None, Loc("f.py", 7), Loc("f.py", 8), None, None]
    with pytest.raises(TkError, match="multiples of 16") as e:
        cc.compile_source(
            Source([(loc and loc.line, t) for loc, t in zip(locs, lines, strict=True)], "k", locs),
            90,
        )
    assert e.value.loc is not None
    assert e.value.loc.line == 7


def test_missing_nvrtc_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy.cuda", None)
    with pytest.raises(TkError, match="TK421") as e:
        cc.compile_source(_saxpy(), 90)
    assert "tklearn[gpu]" in e.value.hint


def test_missing_headers_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(_: str) -> list[object]:
        raise cc.importlib.metadata.PackageNotFoundError

    monkeypatch.setattr(cc.importlib.metadata, "files", nothing)
    monkeypatch.setattr(cc.Path, "is_file", lambda _: False)
    with pytest.raises(TkError, match=r"cuda_bf16\.h"):
        cc.include_dirs()


def test_an_unknown_architecture() -> None:
    with pytest.raises(TkError, match=r"TK421.*sm_999"):
        cc.compile_source(_saxpy(), 999)


# ------------------------------------------------------------------------------------- the cache
def test_cache_hit_is_the_same_cubin(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = cc.compile_source(_saxpy(), 90)
    assert not first.cached
    cc._memory.clear()
    monkeypatch.setattr(cc, "_build", lambda *_: pytest.fail("compiled again"))
    again = cc.compile_source(_saxpy(), 90)
    assert again.cached
    assert (again.image, again.facts, again.entry, again.log) == (
        first.image,
        first.facts,
        first.entry,
        first.log,
    )
    assert [p.name for p in cache.iterdir()] == [first.key]


def test_cache_key_has_all_that_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    def key(text: str = "int x;", arch: int = 90, options: tuple[str, ...] = cc.OPTIONS) -> str:
        return cc.cache_key(text, arch, options)

    base = key()
    assert base == key()
    assert base == key("// from another notebook cell\nint x;")
    others = {key("int y;"), key(arch=80), key(options=(*cc.OPTIONS, "-DTK_COUNTING"))}
    monkeypatch.setattr(cc, "headers_hash", lambda: "other")
    others.add(key())
    monkeypatch.undo()
    monkeypatch.setattr(cc, "compiler_version", lambda: "other")
    others.add(key())
    assert len(others | {base}) == 6


@pytest.mark.parametrize(
    "damage",
    [lambda d: b"", lambda d: d[:-1], lambda d: d[:200] + b"x" + d[201:], lambda d: b"junk" + d],
)
def test_damaged_entries_are_made_again(cache: Path, damage) -> None:
    first = cc.compile_source(_saxpy(), 80)
    entry = cache / first.key
    entry.write_bytes(damage(entry.read_bytes()))
    cc._memory.clear()
    assert cc.read_entry(first.key) is None
    again = cc.compile_source(_saxpy(), 80)
    assert not again.cached
    assert cc.read_entry(first.key) is not None


def test_a_cache_that_cannot_be_written_only_warns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TKLEARN_CACHE", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="TKLEARN_CACHE"):
        cc.compile_source(_saxpy(), 80)


def test_cache_is_bounded(tmp_path: Path) -> None:
    for i in range(5):
        (tmp_path / f"e{i}").write_bytes(b"x" * 100)
        os.utime(tmp_path / f"e{i}", (1000 + i, 1000 + i))
    cc.trim_cache(tmp_path, limit=250)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["e3", "e4"]


def test_headers_are_read_again_when_they_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.cuh").write_text("1")
    monkeypatch.setattr(cc, "INCLUDE", tmp_path)
    before = cc.headers_hash()
    (tmp_path / "a.cuh").write_text("22")
    assert cc.headers_hash() != before


def test_a_hit_in_a_new_process_is_quick_and_needs_no_cupy(cache: Path) -> None:
    cc.compile_source(_saxpy(), 90)
    code = """
import sys, time
import cuda_cases as c
from tklearn.cuda.emit import emit
source = emit(c.specialise(c.saxpy, 256))
start = time.perf_counter()
from tklearn.cuda.compile import compile_source
made = compile_source(source, 90)
seconds = time.perf_counter() - start
assert made.cached
assert "cupy" not in sys.modules
print(seconds)
"""
    here = Path(__file__).parent
    env = {**os.environ, "PYTHONPATH": f"{here}{os.pathsep}{here.parent}"}
    times = [
        float(
            subprocess.run(
                [sys.executable, "-c", code], check=True, env=env, capture_output=True, text=True
            ).stdout
        )
        for _ in range(3)
    ]
    assert min(times) < 0.05
