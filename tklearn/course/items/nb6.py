"""NB6, FlashAttention: the online softmax, in order, mended, finished, causal."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from tklearn.course.item import (
    RACES,
    Case,
    KernelItem,
    Line,
    Order,
    Out,
    Predict,
    Question,
    Work,
    Wrong,
)
from tklearn.course.items.online import (
    HIDDEN,
    KEYS,
    SCALE,
    D,
    Tile,
    add,
    add_unscaled,
    divide,
    gives,
    keep,
    new,
    plain,
    product,
    remember,
    rescale,
    tiles,
    upside_down,
    weigh,
    without,
)
from tklearn.kernels import attention


def _rounding(causal: bool) -> Callable[..., np.ndarray]:
    """Weights are rounded to f16, by 2**-11 of themselves; scores and sums are f32."""

    def bound(Q: np.ndarray, K: np.ndarray, V: np.ndarray, scale: float) -> np.ndarray:
        far = np.abs(Q.astype(np.float64)) @ np.abs(K.astype(np.float64)).T * scale
        error = 2.0**-9 + far.max() * 2.0**-20
        sizes = np.abs(V.astype(np.float64))
        return plain(Q, K, V, scale, causal)[0] @ sizes * error + 1e-4 * sizes.max(0)

    return bound


def _arrays(rng: np.random.Generator, n: int, m: int, kind: str) -> dict[str, Any]:
    """f16 arrays. "rising": each tile has larger scores than the one before; "falling": smaller,
    by so much that exp2 of the difference is infinite. "low": all so far below 0 that exp2 of the
    difference to a score of 0 is 0."""
    normal: list[np.ndarray] = [rng.standard_normal((r, D), dtype=np.float32) for r in (n, m, m)]
    q, k, v = normal
    if kind in ("rising", "falling"):
        tile = np.arange(m)[:, None] // KEYS
        tile = tile if kind == "rising" else (m - 1) // KEYS - tile
        q, k = np.abs(q), np.abs(k) * (1 + 16.0 * tile)
    if kind == "low":
        q, k = 2 + q / 4, k / 2 - 10
    return {
        "Q": q.astype(np.float16),
        "K": k.astype(np.float16),
        "V": v.astype(np.float16),
        "O": Out((n, D)),
        "scale": SCALE,
    }


def _count(n: int, noun: str) -> str:
    many = f"{noun[:-1]}ies" if noun == "query" else f"{noun}s"
    return f"{n} {noun if n == 1 else many}"


KINDS = {"rising": "rising scores", "falling": "falling scores", "low": "all scores below -128"}


def _case(rows: int) -> Callable[[np.random.Generator, Any], Case]:
    """Cases for blocks of so many queries. A size is (queries, keys, kind)."""

    def case(rng: np.random.Generator, size: tuple[int, int, str]) -> Case:
        n, m, kind = size
        said = f", {KINDS[kind]}" if kind else ""
        says = f"{_count(n, 'query')}, {_count(m, 'key')}{said}"
        return Case(says=says, grid=-(-n // rows), args=_arrays(rng, n, m, kind))

    return case


# ------------------------------------------------------------------------------------------- S2
HEAD = """
@tk.kernel(warps=1)
def attend(Q: tk.gl_hf, K: tk.gl_hf, V: tk.gl_hf, O: tk.gl_fl, scale: tk.f32):
    q = tk.rt_hf(16, 64)
    k = tk.rt_hf(64, 64)
    v = tk.rt_hf(64, 64, tk.col)
    s = tk.rt_fl(16, 64)
    p = tk.rt_hf(16, 64)
    o = tk.rt_fl(16, 64)
    top = tk.col_vec(16)
    total = tk.col_vec(16)
    warp.load(q, Q, (blockIdx.x, 0))
    warp.zero(o)
    warp.zero(total)
    warp.neg_infty(top)
    for j in range(tk.cdiv(K.rows, 64)):
        warp.load(k, K, (j, 0))
        warp.load(v, V, (j, 0))
        warp.zero(s)
        warp.mma_ABt(s, q, k)
        s *= scale
        warp.right_fill(s, K.rows - j * 64, -1e30)
"""
TAIL = """
    o /= total
    warp.store(O, o, (blockIdx.x, 0))
"""


def _before(text: str, first: str, then: str) -> bool:
    """Whether `then` is there and `first` does not stand before it."""
    return then in text and first not in text[: text.index(then)]


S2 = Order(
    id="S2",
    topic="online_softmax",
    title="The online softmax, in order",
    notebook="06_flash_attention",
    minutes=4,
    points=4,
    hints=(
        "Where: ask of each line what it reads. Three read `new`, two read `keep`, one the old "
        "`top`, two the finished weights: what must stand before them?",
        "Rule: first the new maximum; then, while `top` is still the old one, the factor "
        "`keep = exp2(top - new)`; all that was summed so far is multiplied by it before anything "
        "of this tile is added; the old maximum goes last.",
        "A worked sibling, the running mean of numbers x: `m = n + 1`, `mean = mean * n / m` (what "
        "was summed, rescaled), `mean += x / m`, and only then `n = m`.",
    ),
    kernels=("attend",),
    head=HEAD,
    lines=(
        Line("a", "        o *= keep"),
        Line("b", "        warp.copy(p, s)\n        warp.mma_AB(o, p, v)"),
        Line("c", "        new = tk.row_max(s, top)"),
        Line(
            "d",
            "        new = tk.row_max(s)",
            "it forgets the tiles before. If this tile's scores are much smaller than theirs, the "
            "factor exp2(top - new) is infinite",
        ),
        Line("e", "        warp.copy(top, new)"),
        Line("f", "        s = tk.exp2(s - new)"),
        Line(
            "g",
            "        o /= total",
            "the sum is known only after the last tile: inside the loop each tile would be divided "
            "again",
        ),
        Line("h", "        total = total * keep + tk.row_sum(s)"),
        Line("i", "        keep = tk.exp2(top - new)"),
    ),
    tail=TAIL,
    case=_case(16),
    sizes=((16, 130, ""), (1, 1, ""), (2, 192, "rising"), (3, 192, "falling")),
    hidden=((17, 3, ""), (33, 140, ""), (5, 200, "rising"), (16, 129, "falling")),
    expected=lambda Q, K, V, scale: plain(Q, K, V, scale)[1],
    tolerance=_rounding(False),
    wrong=(
        Wrong(
            says="a line reads what no line has made yet: `new` and `keep` must stand before the "
            "lines that use them",
            error="TK110 TK111 TK112 TK201",
        ),
        Wrong(
            says="something is read before anything was put there: which line fills it?",
            error="TK503 TK513",
        ),
        Wrong(
            says="the scores themselves are multiplied by V: `s` must be weights by then, exp2 of "
            "score less maximum",
            when=lambda f: _before(f.text, "tk.exp2(s - new)", "warp.copy(p, s)"),
        ),
        Wrong(
            says="the scores themselves are summed: `s` must be weights by then, exp2 of score "
            "less maximum",
            when=lambda f: _before(f.text, "tk.exp2(s - new)", "tk.row_sum(s)"),
        ),
        Wrong(
            says="nothing is added to `total`: it stays 0, and o is divided by it",
            gives=gives(steps=without(add)),
        ),
        Wrong(
            says="`top` is replaced before `keep` has looked at the old one: top - new is then 0, "
            "keep is 1, and nothing is ever rescaled",
            gives=gives(steps=(new, weigh, remember, keep, add, rescale, product)),
        ),
        Wrong(
            says="the old maximum is never replaced: `top` stays minus infinity, `keep` stays 0, "
            "and all tiles but the last are lost",
            gives=gives(steps=without(remember)),
        ),
        Wrong(
            says="`o` was summed under the older maximum and is never scaled down to the new one",
            gives=gives(steps=without(rescale)),
        ),
        Wrong(
            says="`o *= keep` comes after this tile was added: it scales the new part, too. Only "
            "what was summed *before* belongs to the old maximum",
            gives=gives(steps=(new, weigh, keep, add, product, rescale, remember)),
        ),
    ),
)


# ------------------------------------------------------------------------------------------- F4
F4 = KernelItem(
    id="F4",
    topic="missing_rescale",
    title="Right for one tile, wrong for two",
    notebook="06_flash_attention",
    minutes=4,
    points=4,
    hints=(
        "Where: inside the loop. Two things are summed over the tiles: `total`, and what else? "
        "Compare what happens to each when the maximum rises.",
        "Rule: whatever was summed under the old maximum is too large by exp2(new - top) when the "
        "maximum rises to `new`; before this tile is added, it must be multiplied by "
        "keep = exp2(top - new).",
        "A worked sibling, the line of the sum: `total = total * keep + tk.row_sum(s)` first "
        "scales what was there, then adds.",
    ),
    kernels=("attend",),
    case=_case(16),
    sizes=((16, 130, ""), (1, 1, ""), (3, 64, ""), (2, 192, "rising")),
    hidden=((17, 3, ""), (33, 129, ""), (5, 200, "rising"), (16, 192, "falling")),
    expected=lambda Q, K, V, scale: plain(Q, K, V, scale)[1],
    tolerance=_rounding(False),
    wrong=(
        Wrong(
            says="without the largest score taken off, exp2 overflows: 2**128 is more than f32 can "
            "hold",
            when=lambda f: "row_max" not in f.text,
        ),
        Wrong(
            says="one tile of keys is right and two are not: `o` holds sums under the older "
            "maximum, and nothing scales them down when it rises",
            gives=gives(steps=without(rescale)),
        ),
        Wrong(
            says="`o` is scaled after this tile was added, so that the new part is scaled, too. "
            "Only what was summed before belongs to the old maximum",
            gives=gives(steps=(new, weigh, keep, add, product, rescale, remember)),
        ),
        Wrong(
            says="`o` is scaled once, after the loop. The maximum may rise at every tile, and "
            "each time what was summed before it must follow",
            gives=gives(steps=without(rescale), last=(rescale, divide)),
        ),
        Wrong(
            says="the factor is upside down: when the maximum rises, what was summed before counts "
            "for less: exp2(old - new), at most 1",
            gives=gives(steps=(new, weigh, keep, add, upside_down, product, remember)),
        ),
        Wrong(
            says="now neither `o` nor `total` is scaled. That they agree does not help: the "
            "weights of different tiles are still measured against different maxima",
            gives=gives(steps=(new, weigh, keep, add_unscaled, product, remember)),
        ),
        Wrong(
            says="`o` is divided by the sum at every tile, and what is divided once is divided "
            "again at the next",
            gives=gives(steps=(*without(remember), divide, remember), last=()),
        ),
        Wrong(
            says="`o` is scaled by `keep` twice: once is enough",
            gives=gives(steps=(new, weigh, keep, add, rescale, rescale, product, remember)),
        ),
    ),
)


# ------------------------------------------------------------------------------------------- K4
def _sectors(case: Case) -> float:
    """Q once, K and V once for each block of 64 queries; a row of 64 f16 is 4 sectors."""
    n, m = len(case.args["Q"]), len(case.args["K"])
    return 4.0 * (n + 2 * m * -(-n // 64))


def _cut(n: int) -> Callable[[np.ndarray, int], np.ndarray]:
    """A mask that hides column n and those after it in every tile."""
    return lambda s, first: np.where(np.arange(KEYS) < n, s, HIDDEN)


K4 = KernelItem(
    id="K4",
    topic="finish_the_tile",
    title="Finish the tile",
    notebook="06_flash_attention",
    minutes=6,
    points=6,
    hints=(
        "Where: three places. Before the maximum: which columns of `s` are no keys? In the loop: "
        "what S2 put in order. After it: what are the sums still lacking?",
        "Rule: rows of K past the end are zeros, so that their scores are 0 and exp2 makes weights "
        "of them: give them a score of -1e30 first (warp.right_fill). Then maximum, weights, "
        "factor, both sums rescaled, product; at the end each row is divided by its sum.",
        "A worked sibling, softmax of rows of n numbers in a tile of 64: `warp.right_fill(t, n, "
        "-1e30)`, `t = tk.exp2(t - tk.row_max(t))`, `t /= tk.row_sum(t)`.",
    ),
    kernels=("attend",),
    case=_case(64),
    sizes=(
        (70, 130, ""), (1, 1, ""), (2, 3, "low"), (64, 192, "rising"), (16, 129, "falling"),
    ),
    hidden=(
        (3, 65, "low"), (65, 64, ""), (130, 100, ""), (40, 200, "rising"), (16, 192, "falling"),
    ),
    expected=lambda Q, K, V, scale: plain(Q, K, V, scale)[1],
    tolerance=_rounding(False),
    runs=RACES,
    work=(
        Work(
            says="sectors read (Q once; each tile of K and V once for the four warps of a block)",
            metrics=("global_ld_sectors",),
            ideal=_sectors,
            full=1.5,
            zero=4.0,
        ),
    ),
    wrong=(
        Wrong(
            says="keys are the rows of K, and there are K.rows of them: K.cols is the length of a "
            "row",
            when=lambda f: "right_fill(s, K.cols" in f.text,
        ),
        Wrong(
            says="`right_fill` stands after the maximum: scores of keys that do not exist are 0, "
            "and if all others are smaller, 0 is taken for the largest and nothing is left of "
            "them. Hide them before the maximum is taken",
            when=lambda f: "right_fill" in f.text and _before(f.text, "right_fill", "row_max("),
        ),
        Wrong(
            says="`tk.row_max(s)` forgets the tiles before: if this tile's scores are much smaller "
            "than theirs, exp2(top - new) is infinite. The new maximum is that of `s` and `top`",
            when=lambda f: "row_max(s)" in f.text and "max(top" not in f.text,
        ),
        Wrong(
            says="`warp.right_fill(s, n, ...)` hides columns of this tile: n counts from its first "
            "key, j * 64, and it is rows of K that end, not columns",
            gives=gives(past=0.0),
            when=lambda f: "right_fill" in f.text and "- j * 64" not in f.text,
        ),
        Wrong(
            says="keys past the end count: their rows read as zeros, a score of 0, and 2**0 is a "
            "weight. Their scores must be hidden before the maximum is taken",
            gives=gives(past=0.0),
        ),
        Wrong(
            says="`warp.right_fill(s, n, ...)` hides column n of this tile and those after it, in "
            "every tile: n counts from this tile's first key, K.rows - j * 64",
            gives=lambda Q, K, V, scale: tiles(Q, K, V, scale, mask=_cut(len(K) % KEYS)),
        ),
        Wrong(
            says="the sums are not divided: each row of o must be divided by its total after the "
            "last tile",
            gives=gives(last=()),
        ),
        Wrong(
            says="`o` holds sums under the older maximum, and nothing scales them down when it "
            "rises",
            gives=gives(steps=without(rescale)),
        ),
        Wrong(
            says="`total` holds a sum under the older maximum, and nothing scales it down when it "
            "rises",
            gives=gives(steps=(new, weigh, keep, add_unscaled, rescale, product, remember)),
        ),
        Wrong(
            says="`o` is scaled after this tile was added, so that the new part is scaled, too",
            gives=gives(steps=(new, weigh, keep, add, product, rescale, remember)),
        ),
        Wrong(
            says="`top` is replaced before `keep` has looked at the old one: top - new is then 0, "
            "keep is 1, and nothing is ever rescaled",
            gives=gives(steps=(new, weigh, remember, keep, add, rescale, product)),
        ),
        Wrong(
            says="`o` is divided by the sum at every tile, and what is divided once is divided "
            "again at the next: divide after the loop",
            gives=gives(steps=(*without(remember), divide, remember), last=()),
        ),
        Wrong(
            says="`o` is divided inside the loop: the sum is known only after the last tile",
            when=lambda f: "        o /= total" in f.text or "        o = o / total" in f.text,
        ),
        Wrong(
            says="the scores themselves are multiplied or summed: `s` must be weights by then, "
            "exp2 of score less maximum",
            when=lambda f: (
                not re.search(r"exp2?\(s", f.text) and ("row_sum" in f.text or "mma_AB(o" in f.text)
            ),
        ),
        Wrong(
            says="only the last tile counts: what the tiles before it gave is lost",
            gives=gives(steps=without(remember)),
        ),
        Wrong(
            says="the scores are in base 2 already (scale holds log2 e): the weights are exp2 of "
            "them, not exp",
            gives=lambda Q, K, V, scale: plain(Q, K, V, scale * 1.4426950408889634)[1],
        ),
        Wrong(
            says="nothing is summed yet: the tile's weights must be multiplied by V and added to o",
            gives=lambda Q, K, V, scale: np.zeros((len(Q), D)),
        ),
        Wrong(
            says="nothing is added to `total`: it stays 0, and o is divided by it",
            gives=gives(steps=without(add)),
        ),
        Wrong(
            says="the tile in shared memory is overwritten while a slow warp still reads it, or "
            "read before all warps have brought their part: the two barriers must stay",
            error="TK500 TK501",
        ),
        Wrong(
            says="something is read before anything was put there: which line fills it?",
            error="TK503 TK513",
        ),
    ),
)  # fmt: skip


# ------------------------------------------------------------------------------------------ K4b
def _causal(fill: float) -> Callable[[np.ndarray, int], np.ndarray]:
    """A mask that gives keys after the query this score."""

    def mask(s: np.ndarray, first: int) -> np.ndarray:
        rows, cols = np.indices(s.shape)
        return np.where(first + cols <= rows, s, fill)

    return mask


def _same_in_each_tile(s: np.ndarray, first: int) -> np.ndarray:
    rows, cols = np.indices(s.shape)
    return np.where(cols <= rows % 16, s, HIDDEN)


def _without_own(s: np.ndarray, first: int) -> np.ndarray:
    rows, cols = np.indices(s.shape)
    return np.where(first + cols < rows, s, HIDDEN)


def _one_more(s: np.ndarray, first: int) -> np.ndarray:
    rows, cols = np.indices(s.shape)
    return np.where(first + cols <= rows + 1, s, HIDDEN)


def _sign_of_d(s: np.ndarray, first: int) -> np.ndarray:
    """tril with the key's place less the query's, over the tiles that are looked at."""
    rows, cols = np.indices(s.shape)
    hidden = np.where(first // KEYS > rows // 64, -np.inf, HIDDEN)
    return np.where((cols <= rows % 16 + first - rows // 16 * 16) & (hidden > -np.inf), s, hidden)


def _after_the_weights(t: Tile) -> None:
    """Hides weights where scores should have been hidden: the sum has them."""
    rows, cols = np.indices(t.s.shape)
    t.first = getattr(t, "first", -KEYS) + KEYS
    t.s = np.where(t.first + cols <= rows, t.s, 0.0)


def _instructions(case: Case) -> float:
    """Tensor-core instructions of the tiles on and below the diagonal: 64 a warp and tile."""
    blocks = -(-len(case.args["Q"]) // 64)
    return 256.0 * blocks * (blocks + 1) / 2


def _square(rng: np.random.Generator, size: tuple[int, str]) -> Case:
    n, kind = size
    said = ", rising scores" if kind == "rising" else ""
    return Case(says=f"{_count(n, 'token')}{said}", grid=-(-n // 64), args=_arrays(rng, n, n, kind))


K4b = KernelItem(
    id="K4b",
    topic="causal",
    title="Nobody looks ahead",
    notebook="06_flash_attention",
    minutes=6,
    points=3,
    optional=True,
    hints=(
        "Where: two places. The scores of this tile, before the maximum; and how far the loop over "
        "tiles of keys has to go for the 64 queries of this block.",
        "Rule: `warp.tril(s, d, -1e30)` keeps column <= row + d of the tile. The tile's row 0 is "
        "query blockIdx.x * 64 + warpid() * 16, its column 0 is key j * 64: d is the difference. "
        "Tiles with j > blockIdx.x lie wholly ahead.",
        "A worked sibling, for tiles of 16 x 16 and one warp a block: query row r of block b is "
        "16 * b + r, key column c of tile j is 16 * j + c; c <= r + 16 * (b - j), so d is "
        "16 * (b - j), and the loop ends after j = b.",
    ),
    kernels=("attend_causal",),
    case=_square,
    sizes=((1, ""), (3, ""), (64, ""), (200, "")),
    hidden=((2, ""), (65, ""), (130, "rising"), (256, "")),
    expected=lambda Q, K, V, scale: plain(Q, K, V, scale, True)[1],
    tolerance=_rounding(True),
    runs=RACES,
    work=(
        Work(
            says="instructions of the tensor cores (tiles of keys that lie wholly ahead need none)",
            metrics=("tensor_instructions",),
            ideal=_instructions,
            full=1.05,
            zero=1.6,
        ),
    ),
    wrong=(
        Wrong(
            says="the loop ends a tile too early: the queries of block b reach into tile b, so "
            "that they need tiles 0 to b, which are b + 1",
            when=lambda f: bool(re.search(r"(= |range\(|max\()blockIdx\.x[),\n]", f.text)),
        ),
        Wrong(
            says="no key ahead is hidden yet: that is place 1. Query i may see keys 0 to i only",
            when=lambda f: not re.search(r"\b(tril|triu|right_fill|where|reg)\(", f.text),
        ),
        Wrong(
            says="this is attention over all keys: query i may see keys 0 to i only",
            gives=lambda Q, K, V, scale: plain(Q, K, V, scale)[1],
        ),
        Wrong(
            says="hidden keys have a score of 0, and 2**0 is a weight: fill them with -1e30",
            gives=gives(mask=_causal(0.0)),
        ),
        Wrong(
            says="the weights are hidden after they were summed: hide the scores, before the "
            "maximum",
            gives=gives(steps=(new, weigh, keep, add, _after_the_weights, rescale, product,
                               remember)),
        ),
        Wrong(
            says="the diagonal does not go through every tile in the same way: it lies where key "
            "and query are the same, counted over the whole matrix",
            gives=gives(mask=_same_in_each_tile),
        ),
        Wrong(
            says="the sign of d: it is the tile's first query less its first key, so that tiles "
            "of earlier keys are seen whole",
            gives=gives(mask=_sign_of_d, past=0.0),
        ),
        Wrong(
            says="each query sees its own key, too: column <= row, not column < row",
            gives=gives(mask=_without_own),
        ),
        Wrong(
            says="each query sees one key too many, the one after its own",
            gives=gives(mask=_one_more, past=0.0),
        ),
        Wrong(
            says="the tile in shared memory is overwritten while a slow warp still reads it, or "
            "a barrier stands where not all warps come by",
            error="TK500 TK501 TK506 TK507 TK512",
        ),
    ),
)  # fmt: skip


# ------------------------------------------------------------------------------ in the lesson
ROWS = 4  # queries that the lesson looks at


def lesson_scores(seed: int = 0) -> np.ndarray:
    """The scores of the lesson's small example: 4 queries, three tiles of 4 keys."""
    rng = np.random.default_rng([seed, 6])
    s = rng.integers(-4, 5, (ROWS, 12)).astype(np.float32)
    s[0, 4:8] = np.minimum(s[0, 4:8], s[0, :4].max() - 1)  # tile 2 has nothing new for query 0
    s[1, 5] = s[1, :4].max() + 2  # and something for query 1
    return s


def _running(query: int, after: int) -> Callable[..., float]:
    """The running maximum of a query after some tiles, as the kernel's steps find it."""

    def truth(scores: list[list[float]]) -> float:
        top = -np.inf
        for tile in range(after):
            top = max(top, max(scores[query][4 * tile : 4 * tile + 4]))
        return float(top)

    return truth


def _tile_only(query: int) -> Callable[..., float]:
    return lambda scores: float(max(scores[query][4:8]))


def _over_all(query: int) -> Callable[..., float]:
    return lambda scores: float(max(scores[query]))


def _factor(query: int) -> Callable[..., float]:
    def truth(scores: list[list[float]]) -> float:
        old, now = (_running(query, n)(scores) for n in (1, 2))
        return float(2.0 ** (old - now))

    return truth


@cache
def _reads_of_a_key(n: int) -> int:
    """How often attention over n words reads a row of K, counted on a run."""
    q = np.zeros((1, 1, n, D), np.float16)
    _, report = attention.run(q, q, q, report=True, check="off")
    lines = list(report.lines.values())
    rows = sum(x.get("cp_async_sectors", 0) for x in lines) / (2 * D * 2 / 32)
    return round(rows / n)


N6 = Predict(
    id="N6",
    topic="running_maximum",
    title="The running maximum after tile 2",
    notebook="06_flash_attention",
    minutes=2,
    points=0,
    params=lambda rng: {"scores": lesson_scores(int(rng.integers(1000))).tolist()},
    intro="The keys come in three tiles of four; top is the largest score of a query so far.",
    questions=(
        Question(
            name="top0",
            text="query 0: top after the second tile",
            truth=_running(0, 2),
            wrong={
                "this is the maximum of tile 2 alone; `top` remembers tile 1": _tile_only(0),
                "this is the maximum of all three tiles; the third has not come yet": _over_all(0),
            },
            why="Tile 2 brings nothing larger: top stays.",
            otherwise="top is the largest of the eight scores of tiles 1 and 2",
        ),
        Question(
            name="top1",
            text="query 1: top after the second tile",
            truth=_running(1, 2),
            wrong={
                "this is the maximum of tile 1; tile 2 has a larger score": _running(1, 1),
                "this is the maximum of all three tiles; the third has not come yet": _over_all(1),
            },
            why="Tile 2 brings a larger score.",
            otherwise="top is the largest of the eight scores of tiles 1 and 2",
        ),
        Question(
            name="keep1",
            text="query 1: by which factor is what was summed in tile 1 multiplied?",
            truth=_factor(1),
            wrong={
                "the maximum rises, so that older weights must count for less: the factor is "
                "exp2(old - new), below 1": lambda scores: 1 / _factor(1)(scores),
                "a factor of 1 is for queries whose maximum stays": lambda scores: 1.0,
            },
            otherwise="the factor is exp2(old top - new top), 2 to the power of that difference: "
            "for a top that rises from 2 to 5 it is 2 ** (2 - 5), an eighth",
            why="exp2(old maximum - new maximum).",
            within=0.01,
        ),
    ),
    hints=(
        "Where: the four scores of tile 1 and the four of tile 2 in the row of the query.",
        "Rule: top becomes the larger of top and the tile's largest; the factor is "
        "2 ** (old - new).",
        "A worked sibling: scores 1 3 | 5 2 | 7 7 in tiles of two: top is 3, 5, 7; the factor at "
        "tile 2 is 2 ** (3 - 5), a quarter.",
    ),
)

N6b = Predict(
    id="N6b",
    topic="reads_of_a_key",
    title="How often a key is read",
    notebook="06_flash_attention",
    minutes=1,
    points=0,
    questions=(
        Question(
            name="reads",
            text="512 queries in blocks of 64: how many times is each row of K read from global "
            "memory?",
            truth=lambda: _reads_of_a_key(512),
            wrong={
                "this is once for each query: the 64 queries of a block share a tile": (
                    lambda: 512
                ),
                "each block brings its own copy: blocks share no registers and no shared memory": (
                    lambda: 1
                ),
                "this is once for each warp: the four warps of a block share a tile": (
                    lambda: 4 * _reads_of_a_key(512)
                ),
            },
            why="Once for each block of 64 queries.",
        ),
    ),
    hints=(
        "Where: who brings a tile of K into shared memory, and who shares it?",
        "Rule: a tile in shared memory serves the queries of its block, and no other block.",
        "A worked sibling: 128 queries in blocks of 32 are four blocks, and each reads all keys.",
    ),
)

ITEMS = (S2, F4, K4, K4b)
LESSON = (N6, N6b)
