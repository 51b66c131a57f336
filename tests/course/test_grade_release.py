"""tklearn release and tk.submit: what a learner gets, and what they hand in."""

from __future__ import annotations

import importlib
import io
import json
import os
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from course_kit import ROOT

import tklearn as tk
from tklearn import cli
from tklearn.course import attempts, engine, extract, grade, handout, marking, submit
from tklearn.course.extract import code_cells, from_cells
from tklearn.course.feedback import Learner
from tklearn.course.item import KernelItem, OneOf, Predict
from tklearn.course.items import ITEMS

CLASS = [Learner("ann", "Ann Smith", "ann@example.org"), Learner("bob"), Learner("zoë")]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release for three learners, and bundles unpacked in folders by their ids."""
    out = tmp_path_factory.mktemp("release")
    handout.release(ROOT, out, CLASS, "a secret", told=lambda _: None)
    for path in (out / "learners").iterdir():
        with zipfile.ZipFile(path) as z:
            me = json.loads(z.read(f"{handout.TOP}/.tklearn/learner.json"))
            z.extractall(out / "at home" / me["learner"])
    return out


def home(made: Path, learner: str) -> Path:
    return made / "at home" / learner / handout.TOP


def test_a_bundle_holds_no_solution_and_no_hidden_test(made: Path) -> None:
    folder = home(made, "ann")
    assert not (folder / "solutions").exists()
    assert not (folder / "tests").exists()
    assert not list(folder.rglob("class.json"))
    for path in [p for p in folder.rglob("*") if p.suffix in (".ipynb", ".json")]:
        text = path.read_text(encoding="utf-8")
        assert "BEGIN SOLUTION" not in text
        assert "BEGIN HIDDEN" not in text
        assert "a secret" not in text
    recorded = json.loads((folder / handout.RECORDED).read_text("utf-8"))["recordings"]
    assert recorded
    assert not any(r["source"] for r in recorded)
    for path in (folder / "exercises").iterdir():
        assert path.read_bytes() == (ROOT / "exercises" / path.name).read_bytes()


def test_the_modules_of_a_bundle_work_without_hidden_sizes(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = home(made, "ann") / "tklearn" / "course" / "items"
    own = dict(sys.modules)
    try:
        for path in sorted(folder.glob("nb*.py")):
            text = path.read_text(encoding="utf-8")
            spec = importlib.util.spec_from_file_location(f"bundled_{path.stem}", path)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[spec.name] = module
            spec.loader.exec_module(module)
            for item in module.ITEMS:
                inner = item.choices if isinstance(item, OneOf) else (item,)
                for i in inner:
                    if isinstance(i, KernelItem):
                        assert i.hidden == (), f"{i.id}: write hidden= as a literal, {text[:0]}"
                        assert engine.plan(i), "the public sizes are there"
    finally:
        for name in set(sys.modules) - set(own):
            del sys.modules[name]


def test_questions_vary_with_the_learner_and_follow_from_the_secret(made: Path) -> None:
    seeds = {
        x.id: json.loads((home(made, x.id) / ".tklearn/learner.json").read_text("utf-8"))["seed"]
        for x in CLASS
    }
    assert len(set(seeds.values())) == 3
    assert seeds == {x.id: marking.learner_seed("a secret", x.id) for x in CLASS}
    for item in ITEMS.values():
        if isinstance(item, Predict):
            asked = [engine.parameters(item, s) for s in seeds.values()]
            again = [engine.parameters(item, s) for s in seeds.values()]
            assert repr(asked) == repr(again)
    p3 = ITEMS["P3"]
    assert isinstance(p3, Predict)
    many = {repr(engine.parameters(p3, marking.learner_seed("s", str(i)))) for i in range(30)}
    assert len(many) > 5


def test_a_release_is_the_same_again_and_keeps_its_secret(made: Path, tmp_path: Path) -> None:
    handout.release(ROOT, tmp_path, CLASS, "a secret", told=lambda _: None)
    for path in (made / "learners").iterdir():
        assert path.read_bytes() == (tmp_path / "learners" / path.name).read_bytes()
    with pytest.raises(handout.Problem, match="another seed"):
        handout.release(ROOT, tmp_path, CLASS, "another", told=lambda _: None)
    if os.name == "posix":
        assert (tmp_path / "class.json").stat().st_mode & 0o077 == 0


def test_class_lists_of_moodle_canvas_and_hand() -> None:
    assert handout.roster("id,name\n7,Ann\n,\n8,Bob\n") == [
        Learner("7", "Ann"),
        Learner("8", "Bob"),
    ]
    moodle = "\ufeffUsername,ID number,Full name,Email address\nann,17,Ann,a@x.org\n"
    assert handout.roster(moodle) == [Learner("17", "Ann", "a@x.org", login="ann")]
    canvas = (
        "Student,ID,SIS User ID,SIS Login ID,Section\n"
        '    Points Possible,,,,\n"Smith, Ann",991,u17,ann,S1\n'
    )
    assert handout.roster(canvas) == [Learner("u17", "Smith, Ann", "", "991", "ann", "S1")]
    for bad in ("", "name\nAnn\n", "id\n7\n7\n"):
        with pytest.raises(handout.Problem):
            handout.roster(bad)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["release"]) == 2
    assert "say what to make" in capsys.readouterr().err
    (tmp_path / "r.csv").write_text("id\nann\n")
    out = tmp_path / "out"
    assert cli.main(["release", "-o", str(out), "--roster", str(tmp_path / "r.csv")]) == 0
    assert "1 bundles in" in capsys.readouterr().out
    assert len(list((out / "learners").glob("ann-*.zip"))) == 1
    assert cli.main(["release", "-o", str(out), "--roster", str(tmp_path / "none.csv")]) == 2


# -------------------------------------------------------------------------------------- submit
def solve(folder: Path, name: str) -> None:
    """What a learner would save: the solution, with outputs."""
    book = json.loads((ROOT / "solutions" / name).read_text(encoding="utf-8"))
    for c in book["cells"]:
        if c["cell_type"] == "code":
            c["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "SECRET OUTPUT"}]
    (folder / "exercises" / name).write_text(json.dumps(book), encoding="utf-8")


def test_a_submission_is_one_file_of_plain_data(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = home(made, "ann")
    monkeypatch.chdir(folder / "exercises")
    monkeypatch.delenv("TKLEARN_COURSE_DIR")
    with pytest.raises(tk.TkError, match="each exercise is as it was handed out"):
        tk.submit()
    solve(folder, ITEMS["M1"].file)
    tk.predict("P3", a=1, b=2, c=32, d=1, e=1, f=4)
    tk.predict("P3", b=8)
    tk.hint("M1")
    done = tk.submit()
    assert done.exercises == ("M1", "P3")
    assert "K1" in done.lacking
    assert "submission-ann.zip" in str(done)
    assert "save first" in done._repr_html_()
    raw = done.path.read_bytes()
    with zipfile.ZipFile(io.BytesIO(raw)) as z:
        names = set(z.namelist())
        assert names == {"manifest.json", "cells/M1.json", "answers/M1.py", "attempts.jsonl"}
        manifest = json.loads(z.read("manifest.json"))
        assert not [n for n in names if b"SECRET OUTPUT" in z.read(n)]
        assert b"def copy" in z.read("answers/M1.py")
    assert manifest["learner"] == "ann"
    assert {"tklearn", "python", "numpy"} <= set(manifest["versions"])
    said = submit.opened(raw, "x.zip")
    assert (said["learner"], said["notes"]) == ("ann", [])
    assert said["records"]["M1"] == {"attempts": 0, "hints": 1}
    p3 = extract.Answer.of(said["exercises"]["P3"]["answer"])
    assert (p3.first["b"], p3.latest["b"]) == (2, 8)
    m1 = extract.Answer.of(said["exercises"]["M1"]["answer"])
    cells = code_cells(ROOT / "solutions" / ITEMS["M1"].file)
    assert m1.pieces.keys() == from_cells(cells).answer("M1", ("copy",)).pieces.keys()
    assert attempts.seed() == manifest["seed"]


def test_nothing_to_hand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(tk.TkError, match="no folder exercises/"):
        tk.submit()
    with pytest.raises(tk.TkError, match="no folder exercises/"):
        tk.submit(tmp_path / "nowhere")
    (tmp_path / "exercises").mkdir()
    (tmp_path / "exercises" / ITEMS["M1"].file).write_text("{ broken")
    with pytest.raises(tk.TkError, match="is not a notebook"):
        tk.submit()
    assert cli.main(["submit", str(tmp_path)]) == 2


def test_the_submit_command(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = home(made, "bob")
    solve(folder, ITEMS["K1"].file)
    out = tmp_path / "mine.zip"
    assert cli.main(["submit", str(folder), "-o", str(out)]) == 0
    assert f"hand in this file: {out}" in capsys.readouterr().out
    assert submit.opened(out.read_bytes(), "x.zip")["learner"] == "bob"


def test_from_the_release_to_the_table(made: Path, tmp_path: Path) -> None:
    """Bob hands in; eve hands in his file's work under her own name, and under ann's."""
    folder = home(made, "bob")
    solve(folder, ITEMS["M1"].file)
    (tmp_path / "in").mkdir()
    tk.submit(folder, str(tmp_path / "in" / "b.zip"))
    me = folder / ".tklearn" / "learner.json"
    kept = me.read_text(encoding="utf-8")
    me.write_text(json.dumps({**json.loads(kept), "learner": "ann"}), encoding="utf-8")
    tk.submit(folder, str(tmp_path / "in" / "forged.zip"))
    me.write_text(kept, encoding="utf-8")
    out = tmp_path / "out"
    results = grade.grade_folder(
        tmp_path / "in", out, jobs=1, class_file=made / "class.json", told=lambda _: None
    )
    assert {r["name"]: r["learner"] for r in results} == {"b.zip": "bob", "forged.zip": ""}
    table = (out / "moodle.csv").read_text("utf-8").split("\n")
    assert table[1].startswith("ann,Ann Smith,-,nothing handed in")
    points = sum(ITEMS[n].points for n in ("M1",))
    assert table[2].startswith("bob,")
    assert float(table[2].split(",")[2]) >= points
    assert "Nothing from Ann Smith, zoë" in (out / "index.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("event", "kept"),
    [
        ({"said": {"a": 1, "b": "x"}}, {"a": 1, "b": "x"}),
        ({"said": {"a": float("nan"), "b": 10**400}}, {}),
        ({"said": {"a": [1], "b": None, "c": True}}, {}),
        ({"said": {"a": "x" * 300}}, {}),
        ({"said": 7}, {}),
        ({"item": ["P3"]}, None),
        ({"item": "nothing"}, None),
    ],
)
def test_what_is_taken_of_a_journal(event: dict[str, Any], kept: dict[str, Any] | None) -> None:
    line = json.dumps({"time": 1, "item": "P3", "what": "predict", **event}).encode()
    records = submit._records(b"\n[]\n{\n" + line + b"\n")
    assert records.get("P3", {}).get("first") == kept


def test_what_the_instructor_predicted_gets_into_no_bundle(tmp_path: Path) -> None:
    """JupyterLab saves lessons by itself: answers in one would be everybody's."""
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        text = path.read_text(encoding="utf-8")
        assert not handout.answered(text.encode())
        book = json.loads(text)
        filled = 0
        for cell in book["cells"]:
            source = "".join(cell["source"])
            if cell["cell_type"] == "code" and "=None" in source and "tk.predict(" in source:
                cell["source"] = source.replace("=None", "=3", 1)
                assert handout.answered(json.dumps(book).encode())
                cell["source"], filled = source, filled + 1
        assert filled, "every lesson asks for a prediction"
    for folder in (*handout.FOLDERS, "solutions"):
        (tmp_path / folder).mkdir()
    cell = {"cell_type": "code", "source": 'tk.predict(\n    "N1",\n    requests="4",\n)'}
    (tmp_path / "notebooks" / "01_mine.ipynb").write_text(json.dumps({"cells": [cell]}))
    with pytest.raises(handout.Problem, match=r"filled in in notebooks/01_mine\.ipynb: take"):
        handout.common(tmp_path)
