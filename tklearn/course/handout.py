"""`tklearn release -o OUT`: what each learner of a class gets.

A bundle is the course without its solutions, its tests and the sizes of hidden tests, with the
learner's number: it decides their questions, follows from the class's secret
(marking.learner_seed), and shows at grading that a submission is theirs. class.json holds the
secret and stays with the instructor.
"""

from __future__ import annotations

import ast
import csv
import io
import json
import os
import re
import secrets
import zipfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from tklearn.course.feedback import Learner, page_name
from tklearn.course.marking import learner_seed
from tklearn.course.release import dumped, exercise, write

TOP = "tklearn-course"
FILES = (
    "course", "README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml", "constraints.txt",
    "environment.yml", "environment-gpu.yml",
)  # fmt: skip
FOLDERS = ("notebooks", "docs", "tklearn")
RECORDED = "tklearn/recorded/exercises.json"
HEADS = {
    "id": ("id", "id number", "sis user id", "student id"),
    "name": ("name", "full name", "student"),
    "email": ("email", "email address", "e-mail"),
    "number": ("number", "canvas id", "identifier"),
    "login": ("login", "username", "sis login id"),
    "section": ("section",),
    "first": ("first name", "firstname"),
    "last": ("last name", "lastname", "surname"),
}
TEST_STUDENT = "Student, Test"  # of Canvas's student view; its export lists it without a SIS ID
KEYS = ("id", "login", "email", "number")  # what a learner can go by, the best first


class Problem(Exception):
    """A bundle that cannot be made; the text says why."""


# -------------------------------------------------------------------------------------- the class
def roster(text: str, told: Callable[[str], None] = lambda _: None) -> list[Learner]:
    """Learners from a table with a line of heads: id, and name, email, number, login, section
    where known; an export of Moodle's or Canvas's grades does as well. Who has no id goes by their
    login, email address or number. Canvas's test student is told of and left out. Errors:
    Problem."""
    text = text.lstrip("\ufeff")
    first = text.partition("\n")[0]
    lines = list(csv.reader(io.StringIO(text), delimiter=max(",;\t", key=first.count)))
    if not lines:
        raise Problem("the list of learners is empty")
    heads = [h.strip().lower() for h in lines[0]]
    at = {f: next((heads.index(n) for n in names if n in heads), -1) for f, names in HEADS.items()}
    canvas = "id" in heads and bool({"student", "lastname", "sis login id"} & set(heads))
    if canvas:
        at["number"] = heads.index("id")  # Canvas: ID is its own number
        at["id"] = heads.index("sis user id") if "sis user id" in heads else -1
    if max(at[n] for n in KEYS) < 0:
        raise Problem(f"the list of learners has no column id, only {', '.join(heads)}")
    found: dict[str, Learner] = {}
    for row in lines[1:]:
        cells = {f: row[i].strip() if 0 <= i < len(row) else "" for f, i in at.items()}
        both = f"{cells.pop('first')} {cells.pop('last')}".strip()
        cells["name"] = cells["name"] or both
        if not any(cells.values()) or cells["name"].startswith("Points Possible"):
            continue
        if canvas and cells["name"] == TEST_STUDENT and not cells["id"]:
            told(f"{TEST_STUDENT} is left out: the test student of Canvas is no learner")
            continue
        cells["number"] = cells["number"].removeprefix("Participant ")  # Moodle's grading sheet
        cells["id"] = next((cells[n] for n in KEYS if cells[n]), "")
        if not cells["id"] or len(cells["id"]) > 100 or cells["id"] in found:
            raise Problem(f"the list of learners: {cells['id']!r} is no id, or stands twice")
        found[cells["id"]] = Learner(**cells)
    return list(found.values())


# ------------------------------------------------------------------------------------- the bundle
def without_hidden(text: str) -> str:
    """A module of items/ without the sizes of hidden tests."""
    lines = text.encode().split(b"\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    raw = bytearray(text.encode())
    found = [
        k.value
        for n in ast.walk(ast.parse(text))
        if isinstance(n, ast.Call)
        for k in n.keywords
        if k.arg == "hidden" and not isinstance(k.value, ast.Constant)
    ]
    for v in sorted(found, key=lambda v: (v.lineno, v.col_offset), reverse=True):
        assert v.end_lineno is not None
        assert v.end_col_offset is not None
        begin = starts[v.lineno - 1] + v.col_offset
        raw[begin : starts[v.end_lineno - 1] + v.end_col_offset] = b"()"
    return raw.decode()


def answered(lesson: bytes) -> bool:
    """Whether a prediction is filled in in a lesson, as whoever works in it leaves it."""
    for cell in json.loads(lesson)["cells"]:
        if cell["cell_type"] == "code":
            calls = re.findall(r"^tk\.predict\(([^)]*)\)", "".join(cell["source"]), re.MULTILINE)
            if any(re.search(r"=\s*(?!None\b)\S", said) for said in calls):
                return True
    return False


def common(root: Path) -> dict[str, bytes]:
    """The files that all learners get, by their path in the bundle. Errors: Problem."""
    files = {n: (root / n).read_bytes() for n in FILES if (root / n).is_file()}
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            name = path.relative_to(root).as_posix()
            hidden = any(p.startswith((".", "__pycache__")) for p in path.relative_to(root).parts)
            if path.is_file() and not hidden and path.suffix != ".pyc":
                files[name] = path.read_bytes()
    for name, body in files.items():
        if name.startswith("tklearn/course/items/"):
            files[name] = without_hidden(body.decode()).encode()
        if name == RECORDED:  # what was measured of the solutions, without their text
            said = json.loads(body)
            for recording in said["recordings"]:
                recording["source"] = ""
            files[name] = (json.dumps(said, indent=1) + "\n").encode()
    mine = [
        n
        for n, body in files.items()
        if n.startswith("notebooks/") and n.endswith(".ipynb") and answered(body)
    ]
    if mine:
        raise Problem(
            f"answers are filled in in {', '.join(mine)}: take them out (git checkout notebooks), "
            "and do the course in a bundle of your own"
        )
    solutions = sorted((root / "solutions").glob("*.ipynb"))
    if not solutions:
        raise Problem(f"there is no solution in {root}: a bundle is made from solutions/")
    for path in solutions:
        text = dumped(exercise(json.loads(path.read_text(encoding="utf-8")))).encode()
        files[f"exercises/{path.name}"] = files[f".tklearn/exercises/{path.name}"] = text
    told = [n for n, b in files.items() if b"### BEGIN SOLUTION" in b and not n.endswith(".py")]
    if told:
        raise Problem(f"solutions stand in {', '.join(told)}")
    return files


def bundle(files: dict[str, bytes], learner: str, seed: int) -> bytes:
    """One learner's zip; the same for the same class."""
    own = json.dumps({"learner": learner, "seed": seed}).encode()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as z:
        for name, body in {**files, ".tklearn/learner.json": own}.items():
            entry = zipfile.ZipInfo(f"{TOP}/{name}")
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o755 if name == "course" else 0o644) << 16
            z.writestr(entry, body)
    return out.getvalue()


def release(
    root: Path, out: Path, learners: list[Learner], secret: str = "",
    told: Callable[[str], None] = print,
) -> None:  # fmt: skip
    """Writes class.json and learners/*.zip; without learners, one bundle for all.

    The secret is the one given, else that of an earlier release into `out`, else a new one.
    """
    kept = out / "class.json"
    if kept.is_file():
        before = str(json.loads(kept.read_text(encoding="utf-8"))["secret"])
        if secret not in ("", before):
            raise Problem(f"{kept} holds another seed: name another folder")
        secret = before
    secret = secret or secrets.token_hex(16)
    files = common(root)
    (out / "learners").mkdir(parents=True, exist_ok=True)
    said = {"secret": secret, "learners": [asdict(x) for x in learners]}
    write(kept, json.dumps(said, indent=1))
    kept.chmod(0o600)
    for x in learners or [Learner("")]:
        seed = learner_seed(secret, x.id) if learners else 0
        path = out / "learners" / (f"{page_name(x.id)}.zip" if learners else "course.zip")
        part = path.with_suffix(".part")
        part.write_bytes(bundle(files, x.id, seed))
        os.replace(part, path)
    told(f"{max(len(learners), 1)} bundles in {out / 'learners'}; keep {kept} to yourself")
