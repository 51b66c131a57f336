"""Figures: the numbers they draw are the layout functions' and the trace's, and words say so."""

from __future__ import annotations

import dataclasses
import re
from html.parser import HTMLParser
from itertools import product

import ml_dtypes
import numpy as np
import pytest

import tklearn as tk
from tklearn import access, block, blockIdx, threadIdx, viz, warp
from tklearn.devices import DEVICES
from tklearn.lang import layouts
from tklearn.lang.errors import FigureError
from tklearn.viz.banks import bank_map
from tklearn.viz.coalescing import sector_map
from tklearn.viz.layout import ownership
from tklearn.viz.picture import OKABE_ITO, ink, ranges
from tklearn.viz.swizzle import address_map, maps

LANE = np.arange(32)
RNG = np.random.default_rng(11)


def f32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


# -------------------------------------------------------------------------------------- layout
def test_case_23_who_holds_c_9_3() -> None:
    o = ownership("m16n8k16 C")
    assert o.owner(9, 3) == (5, 3)
    assert viz.layout("m16n8k16", "C").data.owner(9, 3) == (5, 3)
    assert "Element (9, 3) is in lane 5, register 3." in viz.layout("m16n8k16 C").alt


def test_case_24_a_fragment_index_is_not_the_matrix_index() -> None:
    """Lane 0's four elements are not the first four of the matrix."""
    assert ownership("m16n8k16 C").held(0) == [(0, 0), (0, 1), (8, 0), (8, 1)]


EVERY = [
    *(f"{i} {x}" for i, x in product(layouts.FRAGMENTS, "ABCD")),
    "wgmma A",
    *(f"wgmma m64n{n} D" for n in (8, 64, 104, 256)),
    tk.rt_bf(64, 64),
    tk.rt(tk.e4m3, 32, 32),
    tk.rt_fl(16, 128, tk.col),
    tk.rt_fl(160, 16),
]


@pytest.mark.parametrize("what", EVERY, ids=str)
def test_each_element_has_one_owner(what) -> None:
    o = ownership(what)
    pairs = {o.owner(r, c) for r, c in product(*map(range, o.shape))}
    assert len(pairs) == o.thread.size
    assert pairs == {(t, k) for t in range(o.threads) for k in range(o.each)}
    assert sorted(x for t in range(o.threads) for x in o.held(t)) == sorted(
        product(*map(range, o.shape))
    )


def test_layout_is_the_layout_functions() -> None:
    row, col = layouts.fragment("m16n8k32", "B")
    o = ownership("m16n8k32 B")
    assert all(o.owner(row[t, i], col[t, i]) == (t, i) for t in range(32) for i in range(8))
    assert (ownership(tk.rt_bf(32, 48)).thread == layouts.rt_owner(32, 48)[0]).all()


@pytest.mark.parametrize("what", ["m16n8k16", "m16n8k7 A", tk.st_bf(64, 64), "wgmma m64n9 D", 7])
def test_layout_refuses_what_has_no_lanes(what) -> None:
    with pytest.raises(FigureError, match=r"TK600.*no lanes"):
        viz.layout(what)


# --------------------------------------------------------------------------------------- banks
OPS = [op for op in access.SHARED_OPS if op != "cpasync16cg"]


@pytest.mark.parametrize("op", OPS)
def test_passes_add_up_to_the_counters(op) -> None:
    width = 16 if op[:4] in ("ldsm", "stsm") else access.shared_op(op)[1]
    for _ in range(60):
        off = RNG.integers(0, RNG.integers(2, 200), 32) * width
        if RNG.random() < 0.4:
            off = off[LANE & ~RNG.integers(0, 4)]
        off = np.where(RNG.random(32) < RNG.random() * 0.5, -1, off)
        b = bank_map(op, off)
        assert (b.wavefronts, b.conflicts) == access.shared(op, off)
        lanes = [x for t in b.transactions for x in t.lanes]
        assert len(lanes) == len(set(lanes))
        for t in b.transactions:
            assert {x for who in t.cells.values() for x in who} == set(t.lanes)
            assert max(p for p, _ in t.cells) + 1 == t.passes


def matrix_rows(pitch: int) -> list[int]:
    return [(lane % 8) * pitch for lane in range(32)]


CASES = {
    "16 column of 32x32": ("lds32", LANE * 128, 32, 1),
    "16 column of 32x33": ("lds32", LANE * 132, 1, 1),
    "17 float4 on banks 0-3": ("lds128", LANE * 128, 32, 4),
    "17 contiguous float4": ("lds128", LANE * 16, 4, 4),
    "18 stride 32": ("lds32", LANE * 128, 32, 1),
    "18 stride 64": ("lds32", LANE * 256, 32, 1),
    "18 stride 33": ("lds32", LANE * 132, 1, 1),
    "18 xor of 5 bits": ("lds32", (LANE * 32 + (LANE & 31)) * 4, 1, 1),
    "18 xor of 3 bits": ("lds32", (LANE * 32 + (LANE & 7)) * 4, 4, 1),
    "18 xor of 2 bits": ("lds32", (LANE * 32 + (LANE & 3)) * 4, 8, 1),
    "19 stride 2": ("lds32", LANE * 8, 2, 1),
    "20 ldmatrix, rows of 64 halves": ("ldsm1", matrix_rows(128), 8, 1),
    "20 ldmatrix, rows of 32 halves": ("ldsm1", matrix_rows(64), 4, 1),
    "20 ldmatrix, rows of 16 halves": ("ldsm1", matrix_rows(32), 2, 1),
    "20 ldmatrix, padded by 8": ("ldsm1", matrix_rows(144), 1, 1),
    "22 pairs share, 64 bits": ("lds64", LANE // 2 * 8, 1, 1),
    "22 pairs share, 128 bits": ("lds128", LANE // 2 * 16, 2, 2),
    "22 stores never merge": ("sts64", LANE // 2 * 8, 2, 2),
}


@pytest.mark.parametrize("case", CASES)
def test_cases_of_banks(case) -> None:
    op, off, wavefronts, ideal = CASES[case]
    picture = viz.banks(op, off)
    assert (picture.data.wavefronts, picture.data.ideal) == (wavefronts, ideal)
    noun = "wavefront" if wavefronts == 1 else "wavefronts"
    assert f"{wavefronts} {noun} (ideal {ideal})" in picture.alt
    clean = wavefronts == ideal
    assert ("no bank conflicts" in picture.alt) == clean


@pytest.mark.parametrize(("cols", "width"), [(64, 128), (32, 64), (16, 32)])
def test_case_20_swizzles_of_narrow_tiles(cols, width) -> None:
    plain = address_map(tk.st_bf(64, cols, swizzle=0))
    swizzled = address_map(tk.st_bf(64, cols))
    assert set(plain.passes) == {cols // 8}
    assert swizzled.name == f"{width}-byte swizzle"
    assert set(swizzled.passes) == {1}
    assert set(address_map(tk.st_bf(64, cols, pad=8)).passes) == {1}


@tk.kernel(threads=(32, 8))
def turn(src: tk.gl_fl, dst: tk.gl_fl):
    tile = tk.shared_array(tk.f32, 32, 32)
    for j in range(0, 32, 8):
        tile[threadIdx.y + j, threadIdx.x] = src[threadIdx.y + j, blockIdx.x * 32 + threadIdx.x]
    block.sync()
    for j in range(0, 32, 8):
        dst[blockIdx.x * 32 + threadIdx.y + j, threadIdx.x] = tile[threadIdx.x, threadIdx.y + j]


@pytest.fixture(scope="module")
def run():
    return turn.sim[3](f32(32, 96), np.zeros((96, 32), np.float32), trace=True)


def test_figures_of_a_learners_own_line(run) -> None:
    b = viz.banks(run, "= tile[")
    assert (b.data.wavefronts, b.data.ideal) == (32, 1)
    assert "= tile[threadIdx.x, threadIdx.y + j]" in b.alt
    line = next(n for n, c in run.lines.items() if c.get("shared_ld_wavefronts"))
    assert viz.banks(run, line, 3).data.offsets == tuple(LANE * 128 + 96)
    c = viz.coalescing(run, "= src[")
    assert (len(c.data.sectors), c.data.ideal) == (4, 4)
    assert viz.banks(run.accesses[line][0]).data.name == "tile"


def test_what_cannot_be_drawn_says_what_to_do(run) -> None:
    plain = turn.sim[3](f32(32, 96), np.zeros((96, 32), np.float32))
    with pytest.raises(FigureError, match="trace=True"):
        viz.banks(plain, "= tile[")
    with pytest.raises(FigureError, match=r"2 lines .* contain '='"):
        viz.banks(run, "=")
    with pytest.raises(FigureError, match=r"0 lines .* contain 'nothing'"):
        viz.coalescing(run, "nothing")
    with pytest.raises(FigureError, match="has no shared access"):
        viz.banks(run, 1)
    with pytest.raises(FigureError, match="no banks"):
        viz.banks(next(a for x in run.accesses.values() for a in x if a.space == "global"))
    with pytest.raises(FigureError, match="32 byte offsets"):
        viz.banks("lds32", 5)
    with pytest.raises(ValueError, match="multiple of 16"):
        viz.banks("lds128", LANE * 4)


# ------------------------------------------------------------------------------------- swizzle
def test_maps_are_the_layout_functions() -> None:
    for cols, width in product((16, 32, 64, 128), (0, 32, 64, 128)):
        if width and cols * 2 % width:
            continue
        m = address_map(tk.st_bf(32, cols, swizzle=width))
        assert (m.place == layouts.st_offset(32, cols, 2, width)[:, ::8]).all()
    assert [m.name for m in maps(tk.st_bf(32, 32))] == [
        "no swizzle", "32-byte swizzle", "64-byte swizzle",
    ]  # fmt: skip
    assert (address_map(tk.st_bf(32, 64, pad=8)).place[:, 0] == np.arange(32) * 144).all()


def test_pieces_stay_in_their_own_row() -> None:
    for tile in (tk.st_bf(64, 64), tk.st_bf(32, 128), tk.st_hf(64, 64, pad=8), (32, 32, tk.f32)):
        assert all(m.own_row.all() for m in maps(tile)), tile
    one_up = address_map((32, 32, tk.f32))
    moved = dataclasses.replace(one_up, place=np.roll(one_up.place, 1, axis=0))
    assert not moved.own_row.any()


def test_own_functions() -> None:
    own = address_map(tk.st_bf(64, 64), lambda row, piece: piece ^ row % 8)
    assert (own.place == address_map(tk.st_bf(64, 64)).place).all()
    words = viz.swizzle((32, 32, tk.f32), own=lambda row, word: word ^ row)
    assert [set(m.passes) for m in words.data] == [{32}, {1}]
    half = address_map((32, 32, tk.f32), lambda row, word: word ^ (row & 7))
    assert set(half.passes) == {4}
    with pytest.raises(FigureError, match=r"TK600: row 0: .*go to .*0, 0, 0"):
        address_map(tk.st_bf(64, 64), lambda row, piece: 0 * piece)
    with pytest.raises(FigureError, match="a place of its own"):
        address_map(tk.st_bf(64, 64), lambda row, piece: piece + 1)


# ---------------------------------------------------------------------------------- coalescing
@pytest.mark.parametrize(
    ("op", "off", "sectors"),
    [
        ("ldg32", LANE * 0, 1), ("ldg32", LANE * 4, 4), ("ldg32", LANE * 8, 8),
        ("ldg32", LANE * 32, 32), ("ldg32", LANE * 4 + 4, 5), ("ldg128", LANE * 16, 16),
        ("stg16", LANE * 2, 2), ("ldg8", LANE * 37, 32),
        ("ldg64", np.where(LANE < 3, LANE * 8, -1), 1),
    ],
)  # fmt: skip
def test_sectors(op, off, sectors) -> None:
    s = sector_map(op, off)
    assert len(s.sectors) == sectors == access.sectors(op, off)
    assert s.moved == 32 * sectors
    assert f"{sectors} sector" in viz.coalescing(op, off).alt


# ------------------------------------------------------------------------------------ roofline
def test_columns_of_one_unit_share_a_scale(run) -> None:
    """65,536 wavefronts beside 2,048 must not look like as many."""

    def longest(axes) -> float:
        return max(p.get_x() + p.get_width() for p in axes.patches)

    keys = ["shared_st_wavefronts", "shared_ld_wavefronts", "global_ld_sectors"]
    picture = viz.lines(run, keys)
    stores, loads, sectors = picture.figure.axes[1:]
    most = [max(n.get(k, 0) for n in run.lines.values()) for k in keys]
    assert most[0] != most[1]
    assert longest(stores) / longest(loads) == pytest.approx(most[0] / most[1])
    assert longest(sectors) == pytest.approx(max(longest(stores), longest(loads)))
    assert "one scale for the wavefronts" in picture.alt


def test_roofline_says_bounds() -> None:
    @tk.kernel(warps=1)
    def product16(a: tk.gl_bf, b: tk.gl_bf, c: tk.gl_fl):
        at = tk.rt_bf(16, 16)
        bt = tk.rt_bf(16, 16, tk.col)
        acc = tk.rt_fl(16, 16)
        warp.zero(acc)
        warp.load(at, a, (0, 0))
        warp.load(bt, b, (0, 0))
        warp.mma_AB(acc, at, bt)
        warp.store(c, acc, (0, 0))

    a = np.ones((16, 16), ml_dtypes.bfloat16)
    r = product16.sim[1](a, a, np.zeros((16, 16), np.float32))
    h200 = DEVICES["H200"]
    p = viz.roofline(r, h200)
    (point,) = p.data.points
    assert point.flops == 2 * 16**3
    assert point.bound == pytest.approx(point.intensity * h200.dram_bytes_per_s)
    assert "Bounds, not measurements" in p.alt
    assert "bound by memory if no cache helps" in p.alt
    assert f"this one: {point.intensity:.1f} FLOP" in viz.roofline(r, h200, ["this one"]).alt
    assert p.png().startswith(b"\x89PNG")
    with pytest.raises(FigureError, match="needs both"):
        viz.roofline(turn.sim[1](f32(32, 32), np.zeros((32, 32), np.float32)), h200)


# ------------------------------------------------------------------------------------ pictures
class Images(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.alts: list[str] = []

    def handle_starttag(self, tag, attrs) -> None:
        if tag == "img":
            self.alts.append(dict(attrs)["alt"] or "")


def pictures(run):
    return [
        viz.layout("m16n8k16 C"),
        viz.layout(tk.rt_bf(64, 64)),
        viz.layout("wgmma m64n256 D"),
        viz.banks(run, "= tile["),
        viz.banks("lds128", LANE * 16),
        viz.banks("lds32", [-1] * 32),
        viz.banks("cpasync16cg", LANE * 16),
        viz.swizzle(tk.st_bf(64, 64)),
        viz.swizzle((32, 32, tk.f32), own=lambda r, c: c ^ r),
        viz.coalescing(run, "= src["),
        viz.coalescing("ldg32", LANE * -1 - 1),
        viz.lines(run),
    ]


def test_pictures_show_with_their_words(run, tmp_path) -> None:
    for n, p in enumerate(pictures(run)):
        bundle = p._repr_mimebundle_()
        page = Images()
        page.feed(bundle["text/html"])
        assert page.alts == [p.alt]
        assert len(p.alt) > 40
        assert bundle["text/plain"] == str(p) == p.alt
        assert len(p.img()) < 160_000
        if n in (0, 3):
            p.savefig(tmp_path / "p.svg")
            assert "<svg" in (tmp_path / "p.svg").read_text()
    assert p.png() == p.png()
    p.savefig(tmp_path / "same.png")
    assert p.alt.encode("latin-1") in (tmp_path / "same.png").read_bytes()


def test_no_text_is_cut_off(run) -> None:
    """Everything drawn lies inside the figure."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text

    for p in pictures(run):
        canvas = FigureCanvasAgg(p.figure)
        canvas.draw()
        width, height = canvas.get_width_height()
        for t in p.figure.findobj(Text):
            if t.get_visible() and t.get_text():
                box = t.get_window_extent(canvas.get_renderer())
                assert box.x0 >= -1, (t.get_text(), p.alt[:60])
                assert box.x1 <= width + 1, (t.get_text(), p.alt[:60])
                assert box.y0 >= -1, (t.get_text(), p.alt[:60])
                assert box.y1 <= height + 1, (t.get_text(), p.alt[:60])


def luminance(colour: str) -> float:
    x = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    lin = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in x]
    return 0.2126 * lin[0] + 0.7152 * lin[1] + 0.0722 * lin[2]


def test_numbers_read_on_every_colour() -> None:
    """WCAG: at least 4.5 to 1."""
    for c in OKABE_ITO:
        light = sorted((luminance(c), 0.0 if ink(c) == "black" else 1.0))
        assert (light[1] + 0.05) / (light[0] + 0.05) >= 4.5, c


def test_palette_is_matplotlibs() -> None:
    import matplotlib
    from matplotlib.colors import to_hex

    assert {to_hex(c).upper() for c in matplotlib.color_sequences["okabe_ito"]} == set(OKABE_ITO)


def test_ranges() -> None:
    assert ranges([3, 1, 2, 8]) == "1-3, 8"
    assert ranges(range(0, 32, 2)) == "0, 2, ... 30"
    assert not re.search(r"\d", ranges([]))
