"""docs/explorer.html: one file, from the layout functions; its formulas are Python's; by keyboard.

The browser part opens it from disk in Chromium with every network request refused.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tklearn as tk
from tklearn import access
from tklearn.lang import layouts
from tklearn.lang.layouts import SharedTile
from tklearn.viz.layout import ownership
from tklearn.viz.swizzle import address_map

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "explorer.html"
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip


def maker() -> Any:
    spec = importlib.util.spec_from_file_location("make_explorer", ROOT / "docs/make_explorer.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_its_program_writes() -> None:
    assert PAGE.read_text(encoding="utf-8") == maker().page(), "run python docs/make_explorer.py"


def test_the_page_needs_no_other_file() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert "http://" not in text
    assert "https://" not in text
    assert "import " not in text.split("<script", 1)[1]
    assert len(text) < 200_000


def page_data() -> dict[str, Any]:
    line = next(
        x for x in PAGE.read_text(encoding="utf-8").splitlines() if x.startswith("const DATA")
    )
    return json.loads(line.removeprefix("const DATA = ").removesuffix(";"))


def test_its_maps_are_the_layout_functions() -> None:
    maps = page_data()["layouts"]
    for name in (*layouts.FRAGMENTS,):
        for operand in "ABC":
            m = maps[f"{name} {operand}"]
            row, col = layouts.fragment(name, operand)
            thread = np.array(m["thread"]).reshape(m["rows"], m["cols"])
            register = np.array(m["register"]).reshape(m["rows"], m["cols"])
            assert (thread[row, col] == np.arange(32)[:, None]).all()
            assert (register[row, col] == np.arange(row.shape[1])).all()
    assert (
        maps["rt_bf(32, 32, col)"]["thread"] == layouts.rt_owner(32, 32, "col")[0].ravel().tolist()
    )


# ------------------------------------------------------------------------------- in a browser
@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    from tklearn.doctor import find_chromium

    with sync_playwright() as p:
        b = p.chromium.launch(executable_path=find_chromium(), args=FLAGS)
        yield b
        b.close()


@pytest.fixture
def page(browser) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    asked: list[str] = []

    def refuse(route: Any) -> None:
        asked.append(route.request.url)
        route.abort()

    context.route(lambda url: not url.startswith("file:"), refuse)
    made = context.new_page()
    errors: list[str] = []
    made.on("pageerror", lambda e: errors.append(str(e)))
    yield made
    context.close()
    assert errors == []
    assert asked == [], "the page wants something from a network"


def said(page: Any) -> str:
    return page.locator(".say").inner_text()


SETTINGS = [
    SharedTile(rows, cols, size, swizzle, pad)
    for rows, cols, size, swizzle, pad in product(
        (16, 32, 64), (16, 32, 64, 128), (1, 2, 4), (0, 32, 64, 128), (0, 1, 2, 4, 8, 16)
    )
    if not (swizzle and (pad or cols * size % swizzle))
]
FORMULAS = """settings => settings.map(t => {
  const out = [];
  for (let r = 0; r < t.rows; r++) for (let c = 0; c < t.cols; c++) out.push(tkviz.offset(t, r, c));
  return out;
})"""


@pytest.mark.browser
def test_address_formulas_equal_pythons_on_all_settings(page) -> None:
    page.goto(PAGE.as_uri())
    got = page.evaluate(FORMULAS, [t._asdict() for t in SETTINGS])
    assert len(SETTINGS) > 200
    for t, offsets in zip(SETTINGS, got, strict=True):
        assert offsets == layouts.st_offset(*t).ravel().tolist(), t
    bad = {"rows": 32, "cols": 16, "itemsize": 2, "swizzle": 64, "pad": 0}
    assert "do not divide" in page.evaluate("t => tkviz.problem(t)", bad)


@pytest.mark.browser
def test_costs_equal_pythons(page) -> None:
    """Every measured record, and every access that the page offers on every tile."""
    page.goto(PAGE.as_uri())
    records = json.loads((ROOT / "tests/data/h200_counters.json").read_text())["records"]
    shared = [r for r in records if "wf" in r and r["op"] in access.SHARED_OPS]
    shared = [r for r in shared if r["op"] != "cpasync16cg"]
    ask = [[*access.shared_op(r["op"]), r["off"]] for r in shared]
    got = page.evaluate("x => x.map(([k, w, o]) => tkviz.cost(k, w, o))", ask)
    for r, g in zip(shared, got, strict=True):
        assert (g["wavefronts"], g["wavefronts"] - g["ideal"]) == (r["wf"], r["bc"]), r["name"]
    far = [r for r in records if r["op"] in access.GLOBAL_OPS and r["op"][:3] in ("ldg", "stg")]
    got = page.evaluate("x => x.map(o => tkviz.sectors(o, 1).length)", [r["off"] for r in far])
    assert got == [r["sectors"] for r in far]
    assert len(shared) > 500
    assert len(far) > 50
    offered = """tiles => tiles.flatMap(t => ["column", "row", "wide", "ldmatrix"].flatMap(how =>
      [0, 1, 5].map(at => { const a = tkviz.access(t, how, at);
        return {...a, ...tkviz.cost(a.kind, a.width, a.offsets)}; })))"""
    tiles = [t._asdict() for t in SETTINGS if t.rows == 32]
    rows = page.evaluate(offered, tiles)
    for x in rows:
        if not x["problem"]:
            wave, ideal = access.shared_many(x["kind"], x["width"], [x["offsets"]])
            assert (x["wavefronts"], x["ideal"]) == (wave[0], ideal[0]), x


@pytest.mark.browser
def test_layout_by_mouse_and_keyboard(page) -> None:
    page.goto(PAGE.as_uri())
    page.select_option("[name=what]", "m16n8k16 C")
    page.click("td[data-at='9,3']")
    assert "Element (9, 3): lane 5, register 3." in said(page)
    assert "Lane 5 holds m, n = (1, 2) (1, 3) (9, 2) (9, 3)" in said(page)
    assert page.locator("td.mark").count() == 4
    assert "what=m16n8k16+C" in page.url
    assert "row=9" in page.url
    page.focus("td[data-at='9,3']")
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    lane, reg = ownership("m16n8k16 C").owner(11, 4)
    assert f"Element (11, 4): lane {lane}, register {reg}." in said(page)
    page.fill("[name=lane]", "31")
    assert "Lane 31 holds" in said(page)
    assert page.evaluate("document.activeElement.name") == "lane"


@pytest.mark.browser
def test_the_address_holds_the_state(page) -> None:
    page.goto(PAGE.as_uri() + "#view=banks&itemsize=2&cols=64&how=ldmatrix&lane=9")
    assert said(page).startswith("32 wavefronts (ideal 4): 28 bank conflicts.")
    page.select_option("[name=swizzle]", "128")
    assert said(page).startswith("4 wavefronts (ideal 4): no bank conflicts. Lane 9:")
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    assert page.input_value("[name=swizzle]") == "128"
    assert said(page).startswith("4 wavefronts (ideal 4)")
    page.select_option("[name=pad]", "8")
    assert page.input_value("[name=swizzle]") == "0"
    assert said(page).startswith("4 wavefronts (ideal 4)")
    page.select_option("[name=pad]", "1")
    assert "not aligned" in said(page)
    page.evaluate("location.hash = '#view=nonsense&lane=abc&evil=1'")
    page.wait_for_function("document.querySelector('[name=view]').value === 'layout'")


FORMULAS_OF_ONES_OWN = [
    "piece ^ row % 8", "piece ^ row & 7", "(piece + row) % 8", "word ^ row", "word ^ row % 8 << 2",
    "addr ^ (addr >> 7 & 7) << 4", "addr ^ (row & 7) * 16", "row * 3 - 2 + piece // 2 * 5 | 1",
    "7 - piece", "row << 2 >> 1 ^ word & 12 | addr // 100", "((((piece))))", "piece*8//8%(1+7)",
]  # fmt: skip


@pytest.mark.browser
def test_a_formula_of_ones_own_is_pythons(page) -> None:
    page.goto(PAGE.as_uri())
    values = [
        {"row": r, "piece": p, "word": 4 * p + 1, "addr": 128 * r + 16 * p}
        for r, p in product(range(32), range(8))
    ]
    ask = "([t, v]) => v.map(x => tkviz.expression(t).at(x))"
    for text in FORMULAS_OF_ONES_OWN:
        got = page.evaluate(ask, [text, values])
        assert got == [eval(text, {}, dict(v)) for v in values], text


@pytest.mark.browser
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("alert(1)", "there is no alert"), ("constructor", "there is no constructor"),
        ("__proto__", "there is no __proto__"), ("row.x", ". is not expected"),
        ("row = 1", "= is not expected"), ("piece ^", "missing at its end"), ("", "missing"),
        ("(piece", "a ) is missing"), ("piece row", "row is not expected"), ("1e9", "e9"),
        ("`row`", "is not expected"), ("row" + " + row" * 40, "longer than 120"),
        ("piece + 1", "outside its place"), ("row % 8", "puts row 0, byte 16 where row 0, byte 0"),
        ("piece % 0", "outside its place"), ("addr * 2", "outside its place"),
    ],
)  # fmt: skip
def test_what_is_no_swizzle_is_said(page, text, words) -> None:
    """Nothing of a text is run, and what is no permutation is refused."""
    tile = {"rows": 32, "cols": 64, "itemsize": 2, "swizzle": -1, "pad": 0, "own": text}
    page.goto(PAGE.as_uri())
    assert words in page.evaluate("t => tkviz.problem(t)", tile)


@pytest.mark.browser
def test_a_swizzle_of_ones_own(page) -> None:
    """Typed, in the address, and the same places and passes as in Python."""
    page.goto(PAGE.as_uri() + "#view=swizzle&itemsize=2&cols=64")
    page.select_option("[name=swizzle]", "-1")
    page.fill("[name=own]", "piece")
    assert said(page).endswith("8 passes.")
    page.fill("[name=own]", "")
    page.type("[name=own]", "piece ^ row % 8")
    assert page.evaluate("document.activeElement.name") == "own", "the cursor stays"
    page.click("td[data-at='3,2']")
    want = address_map(tk.st_bf(32, 64, swizzle=0), own=lambda row, piece: piece ^ row % 8)
    assert said(page).startswith(f"Row 3, piece 2: byte {want.place[3, 2]},")
    assert said(page).endswith("1 pass.")
    tile = {"rows": 32, "cols": 64, "itemsize": 2, "swizzle": -1, "pad": 0, "own": "piece^row%8"}
    places = "t => Array.from({ length: 256 }, (_, i) => tkviz.offset(t, i >> 3, 8 * (i & 7)))"
    assert page.evaluate(places, tile) == want.place.ravel().tolist()
    page.fill("[name=own]", "(piece + row) % 8")
    page.wait_for_function("location.hash.includes('own=%28piece+%2B+row%29+%25+8')")
    address = page.evaluate("location.href")  # page.url lags behind
    page.goto("about:blank")
    page.goto(address)
    assert page.input_value("[name=own]") == "(piece + row) % 8"
    assert said(page).endswith("1 pass.")
    page.fill("[name=own]", "addr ^ (addr >> 7 & 7) << 4")
    assert said(page).endswith("1 pass.")
    page.fill("[name=own]", "row")
    assert said(page).startswith("Not possible: your function puts row 0, byte 16 where")
    # words of 4 bytes, by keyboard alone
    page.goto(PAGE.as_uri() + "#view=swizzle&itemsize=4&cols=32&swizzle=-1&own=word")
    assert said(page).endswith("32 passes.")
    page.focus("[name=own]")
    for key in (" ", "^", " ", "r", "o", "w"):
        page.keyboard.press(key)
    assert said(page).endswith("down word 0: 1 pass.")
    page.select_option("[name=view]", "banks")
    page.select_option("[name=how]", "column")
    assert said(page).startswith("1 wavefront (ideal 1)")
    page.select_option("[name=how]", "ldmatrix")
    assert said(page) == "Not possible: your function tears 16 bytes apart."


@pytest.mark.browser
def test_swizzle_and_sectors(page) -> None:
    page.goto(PAGE.as_uri() + "#view=swizzle&itemsize=2&cols=64")
    assert "8 passes" in said(page)
    page.select_option("[name=swizzle]", "128")
    page.click("td[data-at='3,2']")
    place = layouts.st_offset(32, 64, 2, 128)[3, 16]
    assert said(page).startswith(f"Row 3, piece 2: byte {place}, ")
    assert said(page).endswith("down piece 2: 1 pass.")
    page.select_option("[name=view]", "sectors")
    page.select_option("[name=itemsize]", "4")
    page.fill("[name=stride]", "2")
    assert said(page).startswith("8 sectors of 32 bytes: 256 bytes moved, 128 used.")


@pytest.mark.browser
@pytest.mark.parametrize("view", ["layout", "banks", "swizzle", "sectors"])
def test_each_view_can_be_used_by_keyboard_alone(page, view) -> None:
    page.goto(PAGE.as_uri() + f"#view={view}")
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.tagName") == "TD":
            break
    assert page.evaluate("document.activeElement.getAttribute('aria-label')")
    before = page.evaluate("document.activeElement.dataset.at")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.tagName") == "TD"
    assert page.evaluate("document.activeElement.dataset.at") != before or view == "sectors"
    assert page.locator("[role=grid]").first.get_attribute("aria-label")
