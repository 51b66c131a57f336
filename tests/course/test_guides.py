"""docs/start.md and docs/instructor.md: their commands, links, tables; and the answer key."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from course_kit import ROOT

from tklearn import cli
from tklearn.course import engine, key
from tklearn.course.item import Predict
from tklearn.course.items import GRADED, ITEMS

DOCS = ROOT / "docs"
GUIDES = ("start.md", "instructor.md")
EACH = pytest.mark.parametrize("name", GUIDES)


def text_of(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def commands(text: str) -> list[list[str]]:
    """The commands of a guide: indented blocks and inline code."""
    blocks = re.findall(r"^ {4,}(\S.*)$", re.sub(r"```.*?```", "", text, flags=re.S), re.M)
    inline = re.findall(r"`([^`\n]+)`", text)
    words = [shlex.split(c) for c in [*blocks, *inline] if "'" not in c and c.count('"') % 2 == 0]
    return [w for w in words if w and w[0] in ("tklearn", "./course", "python")]


def script():
    """The program ./course as a module."""
    loader = importlib.machinery.SourceFileLoader("course_script", str(ROOT / "course"))
    spec = importlib.util.spec_from_loader("course_script", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@EACH
def test_links(name: str) -> None:
    prose = re.sub(r"```.*?```|^ {4,}.*$|`[^`\n]*`", "", text_of(name), flags=re.S | re.M)
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        if not target.startswith("https://"):
            assert (DOCS / target).exists(), target


@EACH
def test_commands_can_be_parsed(name: str) -> None:
    found = commands(text_of(name))
    assert len(found) > 5
    course = script()
    for words in found:
        if words[0] == "tklearn":
            check(words[1:])
        elif words[0] == "./course":
            _, job, rest = course.parse(words[1:])
            assert job in ("lab", "run", "test", "doctor", "python", "tklearn"), words
            if job == "tklearn":
                check(rest)


def check(words: list[str]) -> None:
    """A tklearn command that its parser knows."""
    if words:
        _, unknown = cli.parser().parse_known_args(words)
        assert unknown == [], words


def test_the_first_program_of_the_start_page(tmp_path: Path) -> None:
    code = re.findall(r"```python\n(.*?)```", text_of("start.md"), re.S)
    assert len(code) == 1
    file = tmp_path / "first.py"
    for line, number in (("tile *= 2.0 ", "2.0"), ("tile = tile * tile + 1.0 ", "2.0")):
        file.write_text(code[0].replace("tile *= 2.0 ", line), encoding="utf-8")
        done = subprocess.run([sys.executable, file], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout.rstrip().endswith(number)
    file.write_text(code[0].replace("    warp.load(tile, x, at)\n", ""), encoding="utf-8")
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, check=False)
    assert "TK513" in done.stderr


def test_the_plan_of_the_two_hours() -> None:
    text = text_of("instructor.md")
    rows = re.findall(
        r"^\| (\d+)-(\d+) \| \[.*?\]\(\.\./notebooks/(.*?)\.ipynb\) \| (.*?) \|", text, re.M
    )
    assert [r[2] for r in rows] == sorted(p.stem for p in (ROOT / "notebooks").glob("*.ipynb"))
    named: list[str] = []
    for begin, end, notebook, listed in rows:
        ids = re.findall(r"\b[A-Z]\d+b?\b", listed)
        here = [i for i in ITEMS.values() if i.notebook == notebook and i.id in GRADED]
        assert ids == [i.id for i in here]
        assert all(("(ahead)" in listed.split(i.id)[1].split(",")[0]) == i.optional for i in here)
        core = sum(i.minutes for i in here if not i.optional)
        assert core <= int(end) - int(begin), f"{notebook}: the exercises alone take {core} minutes"
        named += ids
    assert tuple(named) == GRADED
    assert rows[0][0] == "0"
    assert rows[-1][1] == "120"
    assert "**K4b, M1, F3, P3**" in text
    assert f"{len(GRADED)} graded exercises" in text


def test_what_counts_as_right_is_said_where_more_than_one_number_does() -> None:
    said = [key._accepted(*x) for x in ((3643.2, 0.05), (3600.0, 0.05), (3600, 0.0), ("A", 0.0))]
    assert said == [
        "about 3643 (accepted: 3461 to 3825)", "3600 (accepted: 3420 to 3780)", "3600", "A"
    ]  # fmt: skip


def test_the_key(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "key.md"
    assert cli.main(["key", "-o", str(path)]) == 0
    text = path.read_text(encoding="utf-8")
    for item in ITEMS.values():
        assert text.count(f"\n### {item.id}: {item.title}\n") == 1
        if isinstance(item, Predict):
            continue
        for fill_in in key.fill_ins(ROOT / "solutions" / item.file):
            assert fill_in in text
    assert "**Answer: " in text
    assert "0 points" not in text.replace("10 points", "")
    assert " 1 times" not in text
    assert not re.search(r"Answer: -?\d+\.0\b", text), "a whole number is written as one"
    assert cli.main(["key", "--seed", "3"]) == 0
    assert capsys.readouterr().out != text, "other learners, other numbers"
    with pytest.raises(key.BadSolution):
        key.key(tmp_path)


def test_the_guide_says_whose_answers_differ() -> None:
    """In the bundles of a class, found here from the questions with the numbers of 40 learners."""
    text = text_of("instructor.md")
    other_numbers = []
    for item in (i for i in ITEMS.values() if isinstance(i, Predict) and i.id in GRADED):
        many = [engine.parameters(item, seed) for seed in range(1, 41)]
        columns: dict[bool, list[str]] = {True: [], False: []}
        for q in item.questions:
            differ = len({q.truth(**p) for p in many}) > 1
            columns[differ].append(q.name)
            if not differ and len({q.text.format(**p) for p in many}) > 1:
                other_numbers.append((item.id, q.name))
        row = re.search(rf"^\| {item.id} \| ([^|\n]*)\| ([^|\n]*)\|$", text, re.M)
        assert row, f"{item.id} stands in no row"
        assert [row[1].strip(), row[2].strip()] == [", ".join(columns[b]) for b in (True, False)]
    note = re.search(r"^(P.*) show other numbers, with the same answer", text, re.M)
    assert note
    assert re.findall(r"(P\d) (\w+)", note[1]) == other_numbers
