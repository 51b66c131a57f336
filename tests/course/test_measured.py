"""What is measured of the exercises, and that recordings fit what learners will write."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from course_kit import ROOT, answers, static

from tklearn import recordings
from tklearn.course import measured
from tklearn.course.item import KernelItem, OneOf, Order
from tklearn.course.items import ITEMS

FILE = recordings.FOLDER / "exercises.json"


@pytest.fixture(scope="module")
def work() -> list[tuple]:
    return list(measured.recorded(ROOT))


def test_each_solution_and_its_likeliest_variants(work: list[tuple]) -> None:
    found = Counter(item for item, _, _ in work)
    for item in ITEMS.values():
        if isinstance(item, OneOf):
            assert found[item.id] >= 3 * len(item.choices)
        elif isinstance(item, KernelItem):
            free = item.id[0] in "MK" and not isinstance(item, Order)
            assert found[item.id] == (1 + measured.VARIANTS if free else 1)
    digests = {(i, measured.ir.digest(measured.specialised(ITEMS[i], a))) for i, _, a in work}
    assert len(digests) == len(work), "no kernel twice"


def test_the_launch_is_the_same_everywhere() -> None:
    item = ITEMS["M1"]
    assert isinstance(item, KernelItem)
    one, two = measured.launch(item), measured.launch(item)
    assert one.args["x"].tobytes() == two.args["x"].tobytes()


def test_a_table_of_an_answer() -> None:
    item = ITEMS["K1"]
    for path in answers(item, "right")[:1]:
        made = measured.table(item, static(item, path))
        assert "shared ld wavefronts" in str(made)
        assert "predicted | simulated | measured" in str(made)
    with pytest.raises(measured.extract.Refused):
        measured.table(ITEMS["P1"], measured.extract.Answer("P1"))


def test_the_notebook_that_records() -> None:
    book = json.loads((ROOT / "benchmarks" / "exercises.ipynb").read_text(encoding="utf-8"))
    (cell,) = (c for c in book["cells"] if c["cell_type"] == "code")
    assert "measured.every(Path.cwd())" in "".join(cell["source"])


@pytest.mark.skipif(not FILE.exists(), reason="made on a GPU: benchmarks/record_exercises.py")
def test_recordings_fit(work: list[tuple]) -> None:
    """A recording for each kernel; if an exercise has changed, record again."""
    lacking = []
    for item, file, answer in work:
        made = measured.table(ITEMS[item], answer, device="H200")
        if made.gpu is None and made.recording is None:
            lacking.append(f"{item} {file}")
    assert not lacking, "run benchmarks/record_exercises.py on a GPU: " + ", ".join(lacking)


@pytest.mark.parametrize("path", sorted(recordings.FOLDER.glob("*.json")), ids=lambda p: p.stem)
def test_recordings_have_counters(path: Path) -> None:
    """A recording made where the profiler saw other launches has times alone: record again."""
    for r in json.loads(path.read_text(encoding="utf-8"))["recordings"]:
        assert r["counters"], f"{r['kernel']} of {r['command']}"
