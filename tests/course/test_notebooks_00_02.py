"""The first three lessons: as stored, and what they compute."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from course_kit import ROOT

import tklearn as tk
from tklearn.course import arithmetic, engine, fourways
from tklearn.course.items import ITEMS, LESSONS
from tklearn.devices import DEVICES
from tklearn.recordings import FOLDER as RECORDED

NAMES = (
    "00_one_kernel_two_machines",
    "01_warps_and_memory",
    "02_shared_memory_and_barriers",
)
EVERY = pytest.mark.parametrize("name", NAMES)


def book(name: str) -> dict:
    return json.loads((ROOT / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8"))


def text(name: str, kind: str) -> str:
    return "\n".join("".join(c["source"]) for c in book(name)["cells"] if c["cell_type"] == kind)


@EVERY
def test_every_cell_was_run_and_none_failed(name: str) -> None:
    for cell in book(name)["cells"]:
        if cell["cell_type"] == "code":
            assert cell["execution_count"]
            assert all(o["output_type"] != "error" for o in cell["outputs"])
            assert len("".join(cell["source"]).split("\n")) <= 40, "a long cell"


@EVERY
def test_it_opens_with_its_minutes_and_what_the_reader_will_be_able_to_do(name: str) -> None:
    first = "".join(book(name)["cells"][0]["source"])
    minutes = book(name)["metadata"]["tklearn"]["minutes"]
    assert re.search(rf"\*\*{minutes} minutes, [\d.]+ of them exercises\.\*\* After this", first)
    assert first.count("\n* ") >= 3


@EVERY
def test_terms_are_defined_where_they_first_appear(name: str) -> None:
    terms = book(name)["metadata"]["tklearn"]["terms"]
    assert len(terms) >= 6
    words = re.sub(r"\s+", " ", text(name, "markdown")).lower()
    for term, meaning in terms.items():
        assert f"**{term}" in words, term
        assert len(meaning) > 15


@EVERY
def test_the_first_cell_brings_tklearn_where_there_is_none(name: str) -> None:
    first = next("".join(c["source"]) for c in book(name)["cells"] if c["cell_type"] == "code")
    assert 'find_spec("tklearn") is None' in first
    assert "://" not in first
    exec(compile(first, "first cell", "exec"), {})  # here it does nothing


@EVERY
def test_predictions_come_before_their_runs(name: str) -> None:
    code = text(name, "code")
    lesson = LESSONS[f"N{name[1]}"]
    assert lesson.notebook == name
    assert code.index(f'tk.predict("{lesson.id}"') < code.index(f'tk.check("{lesson.id}")')
    for q in lesson.questions:
        assert re.search(rf'tk\.predict\("{lesson.id}".*\b{q.name}=None', code), q.name


@EVERY
def test_its_exercises_are_there(name: str) -> None:
    words = text(name, "markdown")
    for file in re.findall(r"\]\(\.\./exercises/(\S+?)\)", words):
        assert (ROOT / "exercises" / file).exists()
    for item in ITEMS.values():
        if Path(item.notebook).name.startswith(name[:2]):
            assert item.file in words, item.id
    for file in re.findall(r"\]\((\d\d_\S+?\.ipynb)\)", words):
        assert (ROOT / "notebooks" / file).exists()


@EVERY
def test_misconceptions_are_told(name: str) -> None:
    lesson = LESSONS[f"N{name[1]}"]
    truth = {q.name: q.truth() for q in lesson.questions}
    right = engine.Answer(lesson.id, first=truth, latest=truth)
    assert engine.examine(lesson, right).passed
    for q in lesson.questions:
        for says, f in q.wrong.items():
            said = {**truth, q.name: f()}
            verdict = engine.examine(lesson, engine.Answer(lesson.id, first=said, latest=said))
            assert verdict.passed == (f() == truth[q.name])
            assert verdict.passed or says in verdict.message


def test_predictions_of_a_lesson_are_kept() -> None:
    tk.predict("N1", requests=1)
    asked = str(tk.predict("N1", requests=32))
    assert "32 (first: 1)" in asked
    assert "no prediction for shifted" in str(tk.check("N1"))


@pytest.mark.parametrize("seed", range(4))
def test_h1_has_three_readings_and_one_is_the_emitters(seed: int) -> None:
    params = engine.parameters(ITEMS["H1"], seed)
    for q in ITEMS["H1"].questions:
        letters = {q.truth(**params), *(f(**params) for f in q.wrong.values())}
        assert letters == {"A", "B", "C"}
        shown = q.text.format(**params)
        assert all(f"  {x}:  " in shown for x in "ABC")


@pytest.mark.parametrize("item", ["P1", "P2"])
def test_predictions_vary_and_keep_their_point(item: str) -> None:
    seen = set()
    for seed in range(12):
        params = engine.parameters(ITEMS[item], seed)
        seen.add(str(params))
        for q in ITEMS[item].questions:
            assert any(f(**params) != q.truth(**params) for f in q.wrong.values())
    assert len(seen) >= 3


def test_the_share_is_the_device_tables() -> None:
    h100 = DEVICES["H100"]
    tensor, lanes = h100.tensor_flops_per_clk, 2 * h100.fp32_fma_per_clk
    assert arithmetic.share("H100") == pytest.approx(tensor / (tensor + lanes))
    picture = arithmetic.shares()
    assert picture.data.keys() == set(arithmetic.GPUS)
    assert all(name in picture.alt for name in arithmetic.GPUS)


def test_the_kernel_of_the_table_is_the_lessons() -> None:
    assert fourways.TKLEARN.strip() in text("00_one_kernel_two_machines", "code")


COMPARED = re.compile(
    r"^(\w+): predicted \| simulated \| measured \(recorded on (.*), (.*)\)\n", re.M
)


@pytest.mark.parametrize(
    "path", sorted((ROOT / "notebooks").glob("0*.ipynb")), ids=lambda p: p.stem
)
def test_stored_comparisons_show_the_recordings_that_there_are(path: Path) -> None:
    """A recording that is made again makes its notebook old: it must be run again."""
    file = RECORDED / path.name.replace(".ipynb", ".json")
    known = [
        (r["kernel"], r["device"], r["date"], f"{r['seconds'] * 1e6:.2f} us")
        for r in json.loads(file.read_text(encoding="utf-8"))["recordings"]
    ]
    outputs = [o for c in book(path.stem)["cells"] for o in c.get("outputs", ())]
    for out in outputs:
        text = "".join(out.get("text", out.get("data", {}).get("text/plain", "")))
        for found in COMPARED.finditer(text):
            rows = text[found.end() :].split("\n\n")[0]
            times = re.findall(r"^time .* (\S+ us) +\S+x", rows, re.M)
            assert times, f"{found[1]} has no measured time"
            assert all((*found.groups(), t) in known for t in times), f"{found[0]} {times}"
