"""Who holds what, and which accesses tile operations issue, against independent statements."""

import numpy as np
import pytest

from tklearn import access
from tklearn.lang import layouts as lay
from tklearn.lang import plans
from tklearn.lang.layouts import SharedTile

LANE = np.arange(32)


# ------------------------------------------------------------------------------------- fragments
def cute(shape, stride, threads, values, rows):
    """CuTe's (thread, value) layout of an operand, as CUTLASS's mma traits state it: (m, k)."""

    def index(x, sizes, steps):
        total = 0
        for s, d in zip(sizes, steps, strict=True):
            total, x = total + x % s * d, x // s
        return total

    t, v = np.arange(threads)[:, None], np.arange(values)[None]
    flat = index(t, shape[0], stride[0]) + index(v, shape[1], stride[1])
    return flat % rows, flat // rows


CUTLASS = {
    ("m16n8k16", "A"): (((4, 8), (2, 2, 2)), ((32, 1), (16, 8, 128)), 8, 16),
    ("m16n8k16", "B"): (((4, 8), (2, 2)), ((16, 1), (8, 64)), 4, 8),
    ("m16n8k16", "C"): (((4, 8), (2, 2)), ((32, 1), (16, 8)), 4, 16),
    ("m16n8k8", "A"): (((4, 8), (2, 2)), ((32, 1), (16, 8)), 4, 16),
    ("m16n8k8", "B"): (((4, 8), (2,)), ((16, 1), (8,)), 2, 8),
    ("m16n8k8.tf32", "A"): (((4, 8), (2, 2)), ((16, 1), (8, 64)), 4, 16),
    ("m16n8k8.tf32", "B"): (((4, 8), (2,)), ((8, 1), (32,)), 2, 8),
    ("m16n8k32", "A"): (((4, 8), (4, 2, 2)), ((64, 1), (16, 8, 256)), 16, 16),
    ("m16n8k32", "B"): (((4, 8), (4, 2)), ((32, 1), (8, 128)), 8, 8),
}


@pytest.mark.parametrize(("instruction", "operand"), CUTLASS)
def test_fragments_equal_cutlass(instruction, operand):
    shape, stride, values, rows = CUTLASS[instruction, operand]
    first, second = cute(shape, stride, 32, values, rows)
    want = (second, first) if operand == "B" else (first, second)  # B is (k, n); CuTe has (n, k)
    np.testing.assert_array_equal(lay.fragment(instruction, operand), want)


@pytest.mark.parametrize("n", [8, 64, 256])
def test_wgmma_equals_cutlass(n):
    want = cute(((4, 8, 4), (2, 2, n // 8)), ((128, 1, 16), (64, 8, 512)), 128, n // 2, 64)
    np.testing.assert_array_equal(lay.wgmma_d(n), want)
    want = cute(((4, 8, 4), (2, 2, 2)), ((128, 1, 16), (64, 8, 512)), 128, 8, 64)
    np.testing.assert_array_equal(lay.wgmma_a(), want)


def test_every_fragment_holds_each_element_once():
    for instruction in lay.FRAGMENTS:
        for operand in "ABCD":
            row, col = lay.fragment(instruction, operand)
            assert len(set(zip(row.ravel().tolist(), col.ravel().tolist(), strict=True))) == (
                row.max() + 1
            ) * (col.max() + 1)
    row, col = lay.fragment("m16n8k16", "C")
    assert (row[5, 3], col[5, 3]) == (9, 3)  # cases.md 23: lane 5, register 3


# -------------------------------------------------------------------------------- register tiles
@pytest.mark.parametrize("layout", ["row", "col"])
@pytest.mark.parametrize(("rows", "cols"), [(16, 16), (16, 64), (64, 32), (48, 80)])
def test_register_tile_maps(rows, cols, layout):
    row, col = lay.rt_coords(rows, cols, layout)
    lane, reg = lay.rt_owner(rows, cols, layout)
    assert row.shape == (32, rows * cols // 32)
    # FACTS.md 4, element by element
    for r in range(rows):
        for c in range(cols):
            a, b = (r % 16, c % 16) if layout == "row" else (c % 16, r % 16)
            g, t = a % 8, b % 8 // 2
            i = b % 2 + 2 * (a // 8) + 4 * (b // 8)
            assert lane[r, c] == 4 * g + t
            assert reg[r, c] == 8 * (r // 16 * (cols // 16) + c // 16) + i
            assert (row[lane[r, c], reg[r, c]], col[lane[r, c], reg[r, c]]) == (r, c)


def test_a_warps_part_of_a_wgmma_accumulator_is_a_register_tile():
    row, col = lay.wgmma_d(128)
    for w in range(4):
        mine = slice(32 * w, 32 * w + 32)
        np.testing.assert_array_equal(
            (row[mine] - 16 * w, col[mine]), lay.rt_coords(16, 128, "row")
        )


def test_mma_operands_are_register_tiles():
    """mma_AB wants B in col layout, mma_ABt in row layout: base tiles split into two n8 halves."""
    k, n = lay.fragment("m16n8k16", "B")
    row, col = lay.base_coords("col")  # of B[k, n]
    trow, tcol = lay.base_coords("row")  # of Bt[n, k]
    for half in (0, 1):
        regs = [0 + 2 * half, 1 + 2 * half, 4 + 2 * half, 5 + 2 * half]
        np.testing.assert_array_equal((row[:, regs], col[:, regs]), (k, n + 8 * half))
        np.testing.assert_array_equal((tcol[:, regs], trow[:, regs]), (k, n + 8 * half))
    arow, acol = lay.base_coords("row")
    crow, ccol = lay.fragment("m16n8k16", "C")
    for half in (0, 1):  # a 16x16 accumulator is two m16n8 ones
        regs = slice(4 * half, 4 * half + 4)
        np.testing.assert_array_equal((arow[:, regs], acol[:, regs]), (crow, ccol + 8 * half))


# ------------------------------------------------------------------------------------- vectors
@pytest.mark.parametrize("layout", ["row", "col"])
@pytest.mark.parametrize("kind", ["row", "col"])
def test_tile_vectors_lie_where_their_tile_needs_them(kind, layout):
    """A lane holds exactly the elements that meet its part of the tile."""
    n = 48
    held = lay.vec_coords(n, kind, layout)
    shape = (n, 32) if kind == "col" else (32, n)
    tile = lay.rt_coords(*shape, layout)[0 if kind == "col" else 1]
    for lane in range(32):
        assert held[lane].tolist() == sorted(set(tile[lane].tolist()))
    assert held.shape[1] == (n // 8 if (kind == "col") == (layout == "row") else n // 4)
    lanes, reg = lay.vec_owner(n, kind, layout)
    for e in range(n):
        assert lanes[e].tolist() == [x for x in range(32) if e in held[x].tolist()]
        assert (held[lanes[e], reg[e]] == e).all()


@pytest.mark.parametrize(
    ("n", "itemsize", "v", "regs"),
    [
        (1024, 4, 4, 32),
        (1024, 2, 8, 32),
        (1024, 1, 16, 32),
        (768, 2, 8, 24),
        (640, 2, 4, 20),
        (128, 2, 4, 4),
        (64, 4, 2, 2),
        (96, 4, 1, 3),
        (100, 4, 1, 4),
        (33, 2, 1, 2),
        (1, 4, 1, 1),
    ],
)
def test_flat_vectors(n, itemsize, v, regs):
    assert lay.rv_width(n, itemsize) == v
    held = lay.rv_coords(n, itemsize)
    assert held.shape == (32, regs)
    assert sorted(held[held >= 0].tolist()) == list(range(n))
    lane, reg = lay.rv_owner(n, itemsize)
    assert (held[lane, reg] == np.arange(n)).all()
    if v > 1:  # a lane's V neighbours are neighbours in memory
        assert (np.diff(held.reshape(32, -1, v), axis=2) == 1).all()
    (ld,) = plans.vector("ld", n, itemsize)
    assert ld.width == v * itemsize
    touched = (ld.offsets[ld.offsets >= 0][:, None] + np.arange(ld.width)).ravel()
    assert sorted(touched.tolist()) == list(range(n * itemsize))


def test_flat_vectors_that_convert():
    (bf_to_f32,) = plans.vector("ld", 1024, itemsize=2, register_itemsize=4)
    assert (bf_to_f32.width, bf_to_f32.offsets[1, 3]) == (8, 256 + 24)
    (f32_to_bf,) = plans.vector("ld", 1024, itemsize=4, register_itemsize=2)  # 8 a lane: 2 x 16 B
    assert f32_to_bf.width == 16
    assert f32_to_bf.offsets[:3, 1].tolist() == [32, 48, 1024 + 32]


# -------------------------------------------------------------------------------- shared tiles
def test_swizzle_formula():
    for width, bits in {0: 0, 32: 1, 64: 2, 128: 3}.items():
        for address in range(0, 4096, 16):
            line, chunk = address // 128, address % 128 // 16
            want = line * 128 + (chunk ^ (line % 2**bits)) * 16
            assert lay.swizzle_address(address, width) == want
        assert lay.swizzle_alignment(width) == max(128, 8 * width)


@pytest.mark.parametrize("itemsize", [1, 2, 4])
@pytest.mark.parametrize("swizzle", [32, 64, 128])
@pytest.mark.parametrize(("rows", "cols"), [(16, 128), (64, 256), (48, 128)])
def test_shared_offsets_are_what_tma_writes(rows, cols, itemsize, swizzle):
    """TMA stores boxes of at most the swizzle width, row after row, chunks XOR-ed by address."""
    sub = swizzle // itemsize
    off = lay.st_offset(rows, cols, itemsize, swizzle)
    assert sorted(off.ravel().tolist()) == list(range(0, rows * cols * itemsize, itemsize))
    for c0 in range(0, cols, sub):
        box = c0 // sub * rows * swizzle + np.arange(rows * swizzle).reshape(rows, swizzle)
        box ^= box // 128 % (swizzle // 16) * 16
        np.testing.assert_array_equal(off[:, c0 : c0 + sub], box[:, ::itemsize])


def test_unswizzled_tiles_are_row_major_with_padding():
    off = lay.st_offset(16, 32, 4, 0, 1)
    assert off[3, 5] == (3 * 33 + 5) * 4
    assert SharedTile(16, 32, 4, 0, 1).nbytes == 16 * 33 * 4
    with pytest.raises(ValueError, match="either swizzled or padded"):
        lay.st_offset(16, 32, 4, 128, 1)
    with pytest.raises(ValueError, match="do not divide"):
        lay.st_offset(16, 48, 2, 128)


def test_default_swizzle():
    table = {
        2: {64: 128, 128: 128, 192: 128, 32: 64, 96: 64, 16: 32, 48: 32},
        1: {128: 128, 64: 64, 32: 32, 96: 32, 16: 0},
        4: {32: 128, 64: 128, 16: 64, 48: 64},
    }
    for itemsize, cases in table.items():
        for cols, want in cases.items():
            assert lay.default_swizzle(itemsize, cols) == want


# ---------------------------------------------------------------- plans: register tile <-> memory
TILES = [
    SharedTile(64, 64, 2, 128),
    SharedTile(32, 48, 2, 32),
    SharedTile(16, 32, 2, 64),
    SharedTile(32, 64, 2, 0, 8),
    SharedTile(32, 32, 4, 128),
    SharedTile(16, 48, 4, 64),
    SharedTile(32, 32, 4, 0, 2),
    SharedTile(16, 64, 1, 64),
]
WINDOWS = [((0, 0), None), ((0, 16), (16, 16)), ((0, 0), (16, 32))]


def received(plan, layout, tile):
    """Byte address of each element's memory, [32, regs] in order of arrival, by the definitions."""
    (acc,) = plan
    out = []
    for off in acc.offsets:
        if acc.kind == "ldmatrix":
            row, col = lay.ldmatrix(layout == "col")
            # Matrix j's two halves; memory.cuh keeps matrix 1 as pair 2 of a col-layout tile.
            for j in (0, 1, 2, 3) if layout == "row" else (0, 2, 1, 3):
                out.append(off[8 * j + row] + 2 * col)
        else:
            out.append(off[:, None] + tile.itemsize * np.arange(acc.width // tile.itemsize))
    return np.concatenate(out, axis=1)


@pytest.mark.parametrize("layout", ["row", "col"])
@pytest.mark.parametrize("tile", TILES, ids=str)
@pytest.mark.parametrize(("at", "shape"), WINDOWS)
def test_loads_and_stores_reach_the_elements_the_registers_hold(tile, layout, at, shape):
    rows, cols = shape or (tile.rows, tile.cols)
    row, col = lay.rt_coords(rows, cols, layout)
    want = lay.st_offset(*tile)[row + at[0], col + at[1]]
    load = plans.load_shared(tile, layout, at, shape)
    np.testing.assert_array_equal(received(load, layout, tile), want)
    store = plans.store_shared(tile, layout, at, shape)
    np.testing.assert_array_equal(received(store, layout, tile), want)
    base_tiles = rows * cols // 256
    per_base = {"ldmatrix": 1}.get(load[0].kind, 4 if layout == "row" else 8)
    assert load[0].offsets.shape == (base_tiles * per_base, 32)
    assert load[0].kind == ("ldmatrix" if tile.itemsize == 2 else "ld")
    assert store[0].width == tile.itemsize * (2 if layout == "row" else 1)


@pytest.mark.parametrize("layout", ["row", "col"])
@pytest.mark.parametrize("itemsize", [1, 2, 4])
def test_global_tiles(itemsize, layout):
    pitch = 200 * itemsize
    (acc,) = plans.tile_global("ld", 32, 48, itemsize, pitch, layout)
    row, col = lay.rt_coords(32, 48, layout)
    got = received((acc,), layout, SharedTile(32, 48, itemsize))
    np.testing.assert_array_equal(got, row * pitch + col * itemsize)
    assert acc.width == (2 * itemsize if layout == "row" else itemsize)
    assert len(acc.offsets) == 6 * (4 if layout == "row" else 8)


def test_global_tiles_at_the_arrays_edge():
    """A tile that is not whole, or whose pairs are not aligned, moves element by element."""
    col = plans.tile_global("st", 16, 32, 2, 64, layout="col")[0]
    for layout in ("row", "col"):
        (cut,) = plans.tile_global("st", 16, 32, 2, 64, layout, limit=(5, 18))
        row, column = lay.rt_coords(16, 32, layout)
        want = np.where((row < 5) & (column < 18), row * 64 + column * 2, -1)
        np.testing.assert_array_equal(cut.offsets, want.T)
        assert cut.width == 2
    assert plans.tile_global("st", 16, 32, 2, 64, limit=(16, 32))[0].width == 4
    assert plans.tile_global("st", 16, 32, 2, 66)[0].width == 2
    assert plans.tile_global("st", 16, 32, 2, 64, aligned=False)[0].width == 2
    assert plans.tile_global("st", 16, 32, 2, 66, "col")[0].width == col.width == 2


@pytest.mark.parametrize("threads", [32, 128, 256])
@pytest.mark.parametrize("chunk", [4, 16])
def test_group_copies_move_each_chunk_once(threads, chunk):
    tile = SharedTile(48, 64, 2, 128)
    pitch = 1000 if chunk == 4 else 1024
    copy = plans.group_copy(tile, threads, pitch, chunk)
    rounds = -(-48 * 128 // chunk // threads)
    assert copy.global_offsets.shape == copy.shared_offsets.shape == (threads // 32, rounds, 32)
    seen = {}
    for w in range(threads // 32):
        for i in range(rounds):
            for lane in range(32):
                q = 32 * w + lane + threads * i
                row, c = q // (128 // chunk), q % (128 // chunk)
                g, s = copy.global_offsets[w, i, lane], copy.shared_offsets[w, i, lane]
                if row >= 48:
                    assert (g, s) == (-1, -1)
                else:
                    assert g == row * pitch + c * chunk
                    assert s == tile.offset(row, c * chunk // 2)
                    seen[int(s)] = q
    assert sorted(seen) == list(range(0, 48 * 128, chunk))


def test_group_copies_of_windows_and_edges():
    tile = SharedTile(64, 64, 2, 128)
    copy = plans.group_copy(tile, 32, 256, at=(16, 32), shape=(32, 32), limit=(20, 24))
    assert copy.shared_offsets[0, 0, 5] == tile.offset(17, 40)
    rows, cols = copy.global_offsets // 256, copy.global_offsets % 256 // 2
    inside = copy.global_offsets >= 0
    assert inside.sum() == 20 * 3
    assert rows[inside].max() == 19
    assert cols[inside].max() == 16
    assert (copy.shared_offsets >= 0).all()  # past the edge zeros are written


def test_edges_of_stores_and_odd_paddings():
    tile = SharedTile(16, 32, 2, 64)
    copy = plans.group_copy(tile, 32, 66, chunk=2, limit=(3, 7), store=True)
    for side in (copy.global_offsets, copy.shared_offsets):
        assert (side >= 0).sum() == 21
    np.testing.assert_array_equal(copy.global_offsets >= 0, copy.shared_offsets >= 0)
    assert SharedTile(16, 32, 4, 0, 1).chunk == 4
    assert plans.group_copy(SharedTile(16, 32, 4, 0, 1), 32, 128).width == 4
    for tile, width in ((SharedTile(16, 32, 4, 0, 1), 4), (SharedTile(16, 32, 2, 0, 2), 4)):
        for layout in ("row", "col"):
            (load,) = plans.load_shared(tile, layout)
            (store,) = plans.store_shared(tile, layout)
            want = lay.st_offset(*tile)[lay.rt_coords(16, 32, layout)]
            np.testing.assert_array_equal(received((load,), layout, tile), want)
            np.testing.assert_array_equal(load.offsets, store.offsets)
            assert (load.kind, load.width) == ("ld", width if layout == "row" else tile.itemsize)
    shared_vector = plans.group_copy(SharedTile(1, 100, 4), 64, 0)
    assert shared_vector.width == 16
    np.testing.assert_array_equal(shared_vector.global_offsets, shared_vector.shared_offsets)
    assert (shared_vector.global_offsets >= 0).sum() == 25


@pytest.mark.parametrize("layout", ["row", "col"])
@pytest.mark.parametrize("which", ["row", "col"])
def test_tile_vectors_in_memory(which, layout):
    held = lay.vec_coords(48, which, layout)
    run = 1 if (which == "col") == (layout == "row") else 2
    (load,) = plans.tile_vector("ld", 48, which, 4, layout)
    assert load.width == 4 * run
    np.testing.assert_array_equal(load.offsets, 4 * held[:, ::run].T)
    (store,) = plans.tile_vector("st", 48, which, 4, layout)
    assert sorted(store.offsets[store.offsets >= 0].tolist()) == list(range(0, 192, 4 * run))
    lanes = np.unique(np.nonzero(store.offsets >= 0)[1]).tolist()
    assert lanes == (list(range(0, 32, 4)) if run == 1 else [0, 1, 2, 3])  # t == 0, or g == 0
    (cut,) = plans.tile_vector("ld", 48, which, 4, layout, limit=41)
    assert cut.width == 4
    np.testing.assert_array_equal(cut.offsets, np.where(held < 41, 4 * held, -1).T)


def test_flat_vectors_at_the_arrays_edge():
    (cut,) = plans.vector("ld", 1024, 4, limit=1000)
    assert cut.width == 4
    assert sorted(cut.offsets[cut.offsets >= 0].tolist()) == list(range(0, 4000, 4))
    assert plans.vector("ld", 1024, 4, limit=5000)[0].width == 16
    assert plans.vector("ld", 1024, 4, aligned=False)[0].width == 4


# -------------------------------------------------------------------------------- what they cost
def cost(plan):
    wavefronts, ideal = access.shared_many(*plan[0])
    return int(wavefronts.sum()), int(ideal.sum())


def test_default_swizzles_load_and_copy_without_conflict():
    for rows, cols in ((64, 64), (32, 32), (16, 16), (64, 128)):
        tile = SharedTile(rows, cols, 2, lay.default_swizzle(2, cols))
        for layout in ("row", "col"):
            wavefronts, ideal = cost(plans.load_shared(tile, layout))
            assert wavefronts == ideal == rows * cols // 64
        copy = plans.group_copy(tile, 128, 1024)
        got = access.shared_many("st", 16, copy.shared_offsets.reshape(-1, 32))
        assert (got[0] == got[1]).all()
    bare = SharedTile(64, 64, 2)
    assert cost(plans.load_shared(bare)) == (8 * 64, 64)  # FACTS.md 1: x4 at pitch 128: 32 each
    assert cost(plans.load_shared(SharedTile(64, 64, 2, pad=8))) == (64, 64)


def test_results_are_cached_and_read_only():
    tile = SharedTile(64, 64, 2, 128)
    assert plans.load_shared(tile) is plans.load_shared(tile)
    for array in (
        plans.load_shared(tile)[0].offsets,
        plans.group_copy(tile, 64, 256).global_offsets,
        *lay.rt_coords(16, 32),
        lay.rv_coords(64, 4),
        lay.st_offset(16, 32, 2, 64),
    ):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: lay.fragment("m16n8k4", "A"), "no fragment"),
        (lambda: lay.rt_coords(16, 24), "16x16"),
        (lambda: lay.rt_coords(16, 16, "diag"), "'row' or 'col'"),
        (lambda: lay.vec_coords(16, "flat"), "'col'"),
        (lambda: lay.wgmma_d(260), "N ="),
        (lambda: lay.swizzle_address(0, 16), "0, 32, 64 or 128"),
        (lambda: plans.load_shared(SharedTile(16, 32, 2), at=(0, 0), shape=(8, 16)), "16x16"),
        (lambda: plans.load_shared(SharedTile(16, 32, 2), at=(0, 16), shape=(16, 32)), "inside"),
        (lambda: plans.group_copy(SharedTile(16, 32, 2), 48, 64), "multiple of 32"),
        (lambda: plans.group_copy(SharedTile(16, 32, 2), 32, 72), "in chunks of 16"),
        (lambda: plans.group_copy(SharedTile(16, 32, 2, 0, 1), 32, 64, 16), "a chunk of"),
        (lambda: plans.tile_vector("ld", 24, "col", 4), "multiple of 16"),
        (lambda: plans.tile_global("move", 16, 16, 2, 64), "'ld' or 'st'"),
    ],
)
def test_mistakes_are_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()
