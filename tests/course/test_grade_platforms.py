"""Class lists, submissions and grades as Moodle and Canvas export and import them.

The importers' rules are those of their sources (Moodle's grade/import/csv/classes/load_data.php,
Canvas's lib/gradebook_importer.rb and lib/content_zipper.rb), written down here once more, as far
as they decide whose points a line is.
"""

from __future__ import annotations

import csv
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from class_kit import cells, put, zipped
from course_kit import ANSWERS

from tklearn import cli
from tklearn.course import feedback, grade, handout, marking, submit
from tklearn.course.feedback import Learner

RIGHT = ANSWERS / "M1" / "right_range.py"
SECRET = "of the class"
CANVAS = (
    "\ufeffStudent,ID,SIS User ID,SIS Login ID,Section,GPU kernels (4711),Final Score\n"
    ",,,,,Manual Posting,\n"
    "    Points Possible,,,,,65,(read only)\n"
    '"Müller, Änne",991,u17,anne,"S1, morning",,\n'
    '"O\'Neil, Bob ""Bo""",992,,bob,S1,,\n'
    '"=HYPERLINK(""http://x"")",993,,,S1,,\n'
    '"Student, Test",994,,0a1b,S1,,\n'
)
MOODLE = (
    "\ufeffFirst name;Last name;ID number;Email address;Assignment: GPU (Real)\n"
    "Änne;Müller;;anne@example.org;-\n"
    'Bob "Bo";O\'Neil;18;bob@example.org;-\n'
    "@SUM(A1);=1+1;;eve@example.org;-\n"
)


def notebook(path: Path) -> bytes:
    """A notebook whose only cell is a stored answer."""
    cell = {"cell_type": "code", "source": path.read_text("utf-8"), "outputs": [], "metadata": {}}
    return json.dumps({"cells": [cell], "nbformat": 4, "metadata": {}}).encode()


def table(path: Path) -> list[list[str]]:
    return list(csv.reader(io.StringIO(path.read_text(encoding="utf-8"), newline="")))


def canvas_takes(export: str, grades: list[list[str]]) -> dict[str, str]:
    """Canvas's rules: the student of a line by ID, then by SIS User ID, by login, by name."""
    known = list(csv.DictReader(io.StringIO(export.lstrip("\ufeff"))))
    head = grades[0]
    assert "Student" in head[0]
    assert head[1:5] == ["ID", "SIS User ID", "SIS Login ID", "Section"]
    assert head[5] in known[0] or head[5] == "tklearn", "its own name makes a new assignment"
    got = {}
    for row in grades[1:]:
        if "Points Possible" in row[0]:
            continue
        by = ("ID", row[1]), ("SIS User ID", row[2]), ("SIS Login ID", row[3]), ("Student", row[0])
        found = [k for head, cell in by if cell for k in known if k[head] == cell]
        assert found, f"Canvas asks who {row} is"
        got[found[0]["ID"]] = row[5]
    return got


def moodle_takes(known: dict[str, str], key: str, grades: list[list[str]]) -> dict[str, str]:
    """Moodle's rules: an unknown cell stops the import, an empty one leaves the line before's
    student. known: cell -> student."""
    at, student, got = grades[0].index(key), "", {}
    for row in grades[1:]:
        if row[at]:
            assert row[at] in known, "the import stops"
            student = known[row[at]]
        points = row[-2]
        assert points == "-" or 0 <= float(points) <= 100, "more than a new item takes"
        got[student] = points
    return got


@pytest.fixture(scope="module")
def right() -> dict[str, Any]:
    """What a right answer to M1 becomes."""
    grader = marking.Grader(marking.Settings(1))
    try:
        return grader.grade(zipped(cells(M1="right_range")), "x.zip")
    finally:
        grader.close()


def of(right: dict[str, Any], name: str, learner: str = "", made: float = 1.0) -> dict[str, Any]:
    return {**right, "name": name, "learner": learner, "verified": bool(learner), "made": made}


def test_a_round_through_canvas(right: dict[str, Any], tmp_path: Path) -> None:
    learners = handout.roster(CANVAS)
    assert [(x.id, x.number) for x in learners] == [
        ("u17", "991"), ("bob", "992"), ("993", "993"),
    ]  # fmt: skip
    results = [
        of(right, "mülleränne_LATE_991_5_submission-1.zip"), of(right, "bob.zip", "bob"),
        of(right, "hyperlinkhttpx_993_7_M1_coalesce.ipynb"), of(right, "x_995_7_stranger.zip"),
        of(right, "studenttest_994_8_tried.zip"),
    ]  # fmt: skip
    (tmp_path / "feedback").mkdir()
    grade._report(tmp_path, results, learners, "GPU kernels (4711)", lambda _: None)
    got = canvas_takes(CANVAS, table(tmp_path / "canvas.csv"))
    assert got == {"991": "3", "992": "3", "993": "3"}
    page = (tmp_path / "index.html").read_text("utf-8")
    strangers = "studenttest_994_8_tried.zip, x_995_7_stranger.zip"
    assert f"Of nobody in the class list: {strangers}." in page
    assert "Nothing from" not in page
    assert ">Müller, Änne</a>" in page, "by their names, not by their files'"


def test_a_round_through_moodle(right: dict[str, Any], tmp_path: Path) -> None:
    learners = handout.roster(MOODLE)
    assert [(x.id, x.name) for x in learners] == [
        ("anne@example.org", "Änne Müller"), ("18", 'Bob "Bo" O\'Neil'),
        ("eve@example.org", "@SUM(A1) =1+1"),
    ]  # fmt: skip
    results = [
        of(right, "A\u0308nne Mu\u0308ller_77_assignsubmission_file_"), of(right, "b.zip", "18"),
        of(right, "Nobody Else_78_assignsubmission_file"),
    ]  # fmt: skip
    (tmp_path / "feedback").mkdir()
    grade._report(tmp_path, results, learners, "GPU", lambda _: None)
    rows = table(tmp_path / "moodle.csv")
    assert rows[0] == ["Email address", "Full name", "GPU", "Feedback: GPU"], (
        "not all have a number"
    )
    known = {f"{n}@example.org": n for n in ("anne", "bob", "eve")}
    assert moodle_takes(known, "Email address", rows) == {"anne": "3", "bob": "3", "eve": "-"}
    for row in rows[1:]:
        assert not [c for c in row if c[:1] in tuple("=+-@") and c != "-"], "a formula"


def test_every_key_of_a_moodle_table_is_whole(right: dict[str, Any]) -> None:
    """Whichever column is mapped, each line finds its own learner or stops the import."""
    lists = [
        [Learner("1", "A", "a@x"), Learner("2", "B", "b@x")],
        [Learner("1", "A", "a@x"), Learner("b@x", "B", "b@x")],
        [Learner("1", "A"), Learner("b", "B", login="b")],
    ]
    for learners in lists:
        rows = feedback.moodle_csv([(x, right) for x in learners])
        read = list(csv.reader(io.StringIO(rows)))
        keys = [h for h in read[0] if h in ("ID number", "Username", "Email address")]
        assert keys
        for k in keys:
            column = [row[read[0].index(k)] for row in read[1:]]
            assert all(column)
            assert len(set(column)) == len(column)


@pytest.mark.parametrize(
    ("name", "whose", "file"),
    [
        ("leeann_991_5_work.zip", "leeann_991", "work.zip"),
        ("leeann_LATE_991_5_M1_coalesce-1.ipynb", "leeann_991", "M1_coalesce-1.ipynb"),
        ("Ann Lee_12_assignsubmission_file", "Ann Lee_12", ""),
        ("Ann Lee_12_assignsubmission_file_K1.ipynb", "Ann Lee_12", "K1.ipynb"),
        ("submission-ann.zip", None, None),
        ("K1_swizzle (2).ipynb", None, None),
    ],
)
def test_names_of_downloads(name: str, whose: str | None, file: str | None) -> None:
    assert feedback.sent(name) == (None if whose is None else (whose, file))


def test_what_proves_more_counts(right: dict[str, Any]) -> None:
    """A file named after Bob does not take the place of one that holds his number."""
    bob = Learner("bob", "Bob", number="992")
    forged = of(right, "bob_992_9_work.zip", made=9.0)
    ((_, counts),) = feedback.by_learner([of(right, "b.zip", "bob"), forged], [bob])
    assert counts is not None
    assert counts["name"] == "b.zip"
    twins = [Learner("1", "Ann Lee"), Learner("2", "Lee, Ann")]
    assert feedback.sender("Ann Lee_7_assignsubmission_file", twins) is None, "which of them?"
    sheet = handout.roster("Identifier,Full name,Email address\nParticipant 7,Ann Lee,a@x\n")
    assert feedback.sender("Participant_7_assignsubmission_file_", sheet) == sheet[0]


def test_one_bundle_for_all_and_a_list_at_grading(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Loose notebooks of one learner, as Canvas exports them, are one submission."""
    book = notebook(RIGHT)
    put(tmp_path / "in", "mülleränne_991_5_M1_coalesce.ipynb", book)
    put(tmp_path / "in", "mülleränne_991_6_P1.ipynb", notebook(RIGHT))
    put(tmp_path / "in" / "Anne_1_assignsubmission_onlinetext_", "onlinetext.html", b"")
    (tmp_path / "list.csv").write_text(CANVAS, encoding="utf-8")
    command = ["grade", str(tmp_path / "in"), "-o", str(tmp_path / "out"), "--jobs", "1"]
    assert cli.main([*command, "--seed", "1"]) == 0
    assert "--roster" in capsys.readouterr().out
    assert not (tmp_path / "out" / "canvas.csv").exists()
    assert cli.main([*command, "--roster", str(tmp_path / "list.csv")]) == 0
    got = canvas_takes(CANVAS, table(tmp_path / "out" / "canvas.csv"))
    assert got["991"] == "3", "both notebooks, and one of them right"
    results = list((tmp_path / "out" / "feedback").iterdir())
    assert len([p for p in results if "_991_5_M1" in p.read_text("utf-8")]) == 1
    (tmp_path / "list.csv").write_bytes("id,name\n1,Ä\n".encode("cp1252"))
    assert cli.main([*command, "--roster", str(tmp_path / "list.csv")]) == 2
    assert "CSV UTF-8" in capsys.readouterr().err


def repacked(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        for name, body in files.items():
            z.writestr(name, body)
    return out.getvalue()


def test_what_people_make_of_a_submission() -> None:
    """Unpacked and packed again by a Mac, zipped twice, or the whole folder of the course."""
    made = zipped(cells(M1="right_range"), "ann", 7)
    with zipfile.ZipFile(io.BytesIO(made)) as z:
        inner = {n: z.read(n) for n in z.namelist()}
    mac = {f"submission-ann/{n}": b for n, b in inner.items()}
    mac |= {f"__MACOSX/submission-ann/._{n}": b"\x00\x05" for n in inner}
    for data in (repacked(mac), repacked({"submission-ann.zip": made})):
        read = submit.opened(data, "x.zip")
        assert (read["learner"], read["seed"], read["notes"]) == ("ann", 7, [])
        assert list(read["exercises"]) == ["M1"]
    book = notebook(RIGHT)
    event = {"time": 1, "item": "M1", "what": "check"}
    course = {
        "exercises/M1_coalesce.ipynb": book,
        "exercises/.ipynb_checkpoints/M1_coalesce-checkpoint.ipynb": b"broken",
        "exercises/K1_swizzle.ipynb": b"broken",
        ".tklearn/exercises/M1_coalesce.ipynb": b"broken",
        ".tklearn/attempts.jsonl": json.dumps(event).encode(),
        ".tklearn/learner.json": b'{"learner": "ann", "seed": 7}',
        **{f"docs/errors/TK{i}.md": b"" for i in range(500)},
    }
    read = submit.opened(repacked({f"tklearn-course/{n}": b for n, b in course.items()}), "x.zip")
    assert list(read["exercises"]) == ["M1"]
    assert (read["learner"], read["seed"]) == ("ann", 7)
    assert read["records"]["M1"]["attempts"] == 1
    assert [n for n in read["notes"] if "K1_swizzle" in n], "one notebook costs only itself"
    with pytest.raises(submit.Unreadable, match="unpacked"):
        submit.opened(repacked({"a/work.zip": made, "b/work.zip": made}), "all.zip")


def test_a_class_list_says_what_it_lacks() -> None:
    with pytest.raises(handout.Problem, match="no column id, only vorname, e-mail-adresse"):
        handout.roster("Vorname,E-Mail-Adresse\nA,a@x\n")
    assert handout.roster("id;name\n1;A\n") == [Learner("1", "A")]


def test_the_test_student_of_canvas_is_told_of_and_gets_no_bundle(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only Canvas's own: somebody may be called so, and elsewhere it is a name as others."""
    said: list[str] = []
    assert "Student, Test" not in [x.name for x in handout.roster(CANVAS, said.append)]
    assert said == ["Student, Test is left out: the test student of Canvas is no learner"]
    named = CANVAS.replace('"Student, Test",994,,', '"Student, Test",994,u5,')
    for text in (named, 'id,name\n5,"Student, Test"\n'):
        assert handout.roster(text, pytest.fail)[-1].name == "Student, Test"
    (tmp_path / "r.csv").write_text(CANVAS, encoding="utf-8")
    monkeypatch.setattr(handout, "common", lambda root: {})
    out = tmp_path / "out"
    assert cli.main(["release", "-o", str(out), "--roster", str(tmp_path / "r.csv")]) == 0
    printed = capsys.readouterr().out
    assert "Student, Test is left out" in printed
    assert "3 bundles" in printed
    assert len(list((out / "learners").iterdir())) == 3
