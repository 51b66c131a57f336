"""Two hundred submissions in one command, some hostile, with kills and a full disk in between."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from class_kit import cells, computing, journal, put, zipped
from course_kit import ANSWERS, ROOT, judged, static

from tklearn.course import feedback
from tklearn.course.items import ITEMS

resource = pytest.importorskip("resource", reason="limits are POSIX's")
pytestmark = pytest.mark.sandbox
SEED = 7
HOW_MANY = 200
COMMON = {
    "M1": ("right_helper", "right_range", "right_warps", "wrong_half_way", "wrong_no_guard"),
    "P3": ("right_1", "wrong_all_queue", "wrong_column"),
    "S1": ("right_1", "wrong_no_store"),
}


def notebook(*code: str) -> dict[str, Any]:
    body = [{"cell_type": "code", "source": c, "outputs": [], "metadata": {}} for c in code]
    return {"cells": body, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


def raw_zip(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as z:
        for name, body in files.items():
            z.writestr(name, body)
    return out.getvalue()


RIGHT = (ANSWERS / "M1" / "right_range.py").read_text(encoding="utf-8")
WRONG = {**cells(M1="wrong_half_way")}
ATTACKS = {
    "fork": "while True:\n    os.fork()",
    "threads": "import threading\nfor i in range(99):\n    threading.Thread(target=print).start()",
    "shell": "PER_BLOCK = int(__import__('subprocess').check_output(['echo', '1024']))",
    "network": "import socket\nline = socket.create_connection(('192.0.2.1', 80), 3)\n"
    "PER_BLOCK = 1024 * bool(line)",
    "files": f"PER_BLOCK = len(open({str(ROOT / 'solutions' / 'M1_coalesce.ipynb')!r}).read())",
    "kill": "import signal\nos.kill(-1, signal.SIGKILL)",
    "parent": "os.kill(os.getppid(), 9)",
    "exit": "os._exit(0)",
    "disk": "def write(i):\n    return open(f'/tmp/{i}', 'wb').write(b'x' * (1 << 20))\n"
    "PER_BLOCK = 1024 * all([write(i) for i in range(99)])",
    "memory": "PER_BLOCK = len(bytearray(1 << 40))",
    "endless": "while True:\n    pass",
    "crash": "import ctypes\nctypes.string_at(0)",
    "forge": "for f in range(3, 60):\n    try:\n"
    '        os.write(f, b\'{"answer": {"M1": {"passed": true, "score": 99}}}\\n\')\n'
    "    except OSError:\n        pass",
}
"""Python in a submission: none of it may help, or hurt anybody else."""


def odd() -> dict[str, tuple[bytes, float, str]]:
    """name -> (bytes, points, words of its problem, notes or messages)."""
    deep = b"[" * 100_000
    known = "PER_BLOCK = len([None] * 1024)"  # by running it only
    codes = {n: t if "PER_BLOCK" in t else f"{t}\n{known}" for n, t in ATTACKS.items()}
    out = {f"evil-{n}.zip": (zipped(cells(M1=computing(t))), 0.0, "") for n, t in codes.items()}
    out["evil-endless.zip"] = (*out["evil-endless.zip"][:2], "stopped after")
    good = computing(known)
    forged = {"score": 99, "items": {"M1": {"passed": True, "score": 99}}}
    claims = journal({"item": "M1", "what": "check", "passed": True, "score": 99, "points": 99})
    huge = json.dumps(notebook(RIGHT)).replace('"outputs": []', f'"outputs": ["{"x" * 9_000_000}"]')
    out |= {
        "computed.zip": (zipped(cells(M1=good)), 3.0, "right"),
        "claims.zip": (zipped({**WRONG, "attempts.jsonl": claims}, **forged), 0.0, "twice"),
        "changed.zip": (zipped(cells(M1="right_range"), hash="00"), 3.0, "changed after"),
        "bomb.zip": (raw_zip({"cells/M1.json": bytes(60_000_000)}), 0.0, "unpacks to more"),
        "many.zip": (raw_zip({f"{i}.py": b"" for i in range(2001)}), 0.0, "more than 2000"),
        "nested.zip": (raw_zip({"a.zip": zipped(cells(M1="right_range"))}), 3.0, "right"),
        "class.zip": (raw_zip({"a.zip": b"PK", "b.zip": b"PK"}), 0.0, "must be unpacked"),
        "cut.zip": (zipped(cells(M1="right_range"))[:-40], 0.0, "damaged"),
        "traversal.zip": (
            zipped({**cells(M1="right_range"), "../../evil.py": "x", "/etc/evil": "x"}),
            3.0, "lies outside",
        ),
        "latin.zip": (raw_zip({"M1.py": RIGHT.encode() + b"# caf\xe9"}), 0.0, "is not a notebook"),
        "latin.ipynb": (b"\xff\xfe\x00", 0.0, "no exercise"),
        "M1_coalesce.ipynb": (huge.encode(), 3.0, "right"),
        "large.zip": (b"PK" + bytes(30_000_001), 0.0, "larger than"),
        "empty.zip": (b"", 0.0, "neither"),
        "garbage.zip": (bytes(range(256)) * 99, 0.0, "neither"),
        "deep.zip": (raw_zip({"manifest.json": deep}), 0.0, "manifest.json"),
        "list.zip": (raw_zip({"manifest.json": b"[1]"}), 0.0, "manifest.json"),
        "brackets.zip": (zipped(cells(M1="x = \n" + "(" * 90_000)), 0.0, "no kernel"),
        "minus.zip": (zipped(cells(M1="x = \\\n" + "-" * 90_000 + "1\n")), 0.0, ""),
        "kernel-endless.zip": (zipped(cells(M1="wrong_endless")), 0.0, ""),
        "kernel-huge.zip": (zipped(cells(M1="wrong_huge")), 0.0, ""),
        "one-of-two.zip": (zipped(cells(M1="wrong_endless", S1="right_1")), 3.0, ""),
        "=cmd|' x'!A0.zip": (zipped(cells(M1="right_range")), 3.0, "right"),
        "two\nlines <b>.zip": (zipped(cells(M1="right_range")), 3.0, "right"),
    }  # fmt: skip
    return out


def expected(answers: dict[str, str], known: dict[tuple[str, str], float] = {}) -> float:  # noqa: B006
    """The points of stored answers, judged in this process."""
    for key in answers.items():
        if key not in known:
            item = ITEMS[key[0]]
            answer = static(item, ANSWERS / key[0] / f"{key[1]}.py")
            answer = replace(answer, first={})  # typed, and not recorded
            known[key] = judged(item, answer, SEED, hidden=True).score
    return round(sum(known[k] for k in answers.items()), 2)


def class_of(folder: Path) -> dict[str, tuple[float, str]]:
    """Writes the submissions; name -> (points, words)."""
    want: dict[str, tuple[float, str]] = {}
    for name, (data, points, words) in odd().items():
        put(folder, name, data)
        want[name] = (points, words)
    raw = b"caf\xe9.zip"  # a name that is no UTF-8
    with open(os.path.join(os.fsencode(folder), raw), "wb") as f:
        f.write(zipped(cells(M1="right_range")))
    want[os.fsdecode(raw)] = (3.0, "right")
    moodle = "Ann Smith_123_assignsubmission_file"
    put(folder / moodle, "work.zip", zipped(cells(M1="right_range")))
    book = json.dumps(notebook(RIGHT)).encode()
    put(folder / "a folder" / "exercises", "M1_coalesce.ipynb", book)
    (folder / "nothing in it").mkdir()
    want |= {moodle: (3.0, ""), "a folder": (3.0, ""), "nothing in it": (0.0, "no exercise")}
    (folder / "link.zip").symlink_to("/etc/passwd")
    os.mkfifo(folder / "pipe.zip")
    names = list(COMMON)
    for i in range(HOW_MANY - len(want)):
        answers = {names[i % 3]: COMMON[names[i % 3]][i // 3 % len(COMMON[names[i % 3]])]}
        if i % 7 == 0:
            answers["M1"] = COMMON["M1"][i % 5]
        name = f"s{i:03}.zip"
        put(folder, name, zipped(cells(**answers), f"learner {i}"))
        want[name] = (expected(answers), "")
    return want


def limited() -> None:
    """A disk on which files end after 8 kB."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (8_000, resource.RLIM_INFINITY))


def begun(folder: Path, out: Path, **options: Any) -> subprocess.Popen[str]:
    code = "import sys; from tklearn.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "grade", str(folder), "-o", str(out)]
    command += ["--jobs", "2", "--seed", str(SEED)]
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options
    )


def lines(out: Path) -> int:
    path = out / "journal.jsonl"
    return path.read_bytes().count(b"\n") if path.is_file() else 0


def until(out: Path, run: subprocess.Popen[str], n: int) -> None:
    end = time.monotonic() + 300
    while lines(out) < n:
        assert run.poll() is None, run.communicate()[0]
        assert time.monotonic() < end, "no progress"
        time.sleep(0.02)


def graded_names(said: str) -> list[str]:
    graded = [s for s in said.split("\n") if s[:1].isdigit() and "  " in s]
    return [s.partition("  ")[2].rpartition(": ")[0] for s in graded]


def test_two_hundred_submissions_with_faults(tmp_path: Path) -> None:
    folder, out = tmp_path / "class", tmp_path / "out"
    want = class_of(folder)
    assert len(want) == HOW_MANY
    before = sorted(p.name for p in tmp_path.iterdir())

    full = begun(folder, out, preexec_fn=limited)  # a full disk
    said = [full.communicate(timeout=300)[0]]
    assert full.returncode == 2
    assert "What was graded is kept" in said[0]
    assert lines(out) > 20

    killed = begun(folder, out)  # kill -9 of the main process
    until(out, killed, lines(out) + 40)
    killed.kill()
    said.append(killed.communicate()[0])

    run = begun(folder, out)  # kill -9 of workers and of a sandbox
    done = lines(out)
    for n in (10, 30):
        until(out, run, done + n)
        workers = psutil.Process(run.pid).children()
        workers[0].send_signal(signal.SIGKILL)
    until(out, run, done + 40)
    boxes = [p for w in psutil.Process(run.pid).children() for p in w.children()]
    for box in boxes[:1]:
        box.send_signal(signal.SIGKILL)
    other = begun(folder, out)
    assert "another run is grading" in other.communicate()[0]
    said.append(run.communicate(timeout=300)[0])
    assert run.returncode == 0, said[-1]

    kept = [json.loads(x) for x in (out / "journal.jsonl").read_text().splitlines() if x]
    assert sorted(k["name"] for k in kept) == sorted(want), "nothing lost, nothing twice"
    names = [n for s in said for n in graded_names(s)]
    assert len(names) == len(set(names)), "nothing graded twice"
    results = {}
    for name, (points, words) in want.items():
        path = out / "results" / f"{feedback.page_name(name)}.json"
        result = json.loads(path.read_text(encoding="utf-8"))["result"]
        results[name] = result
        score = sum(i["score"] for i in result["items"].values())
        assert score == pytest.approx(points), (name, result)
        whole = json.dumps(result) + " twice" * (name == "claims.zip")
        assert words in whole, (name, whole)
        page = (out / "feedback" / f"{feedback.page_name(name)}.html").read_text("utf-8")
        assert "<script" not in page
        assert "<b>.zip" not in page
    messages = [i["message"] for r in results.values() for i in r["items"].values()]
    assert not [m for m in messages if "the grader failed" in m]
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([*before, "out"])
    table = (out / "grades.csv").read_bytes().decode()
    assert "'=cmd" in table
    assert table.count("\r\n") == HOW_MANY + 1
    seconds = time.monotonic()
    again = begun(folder, out)
    assert "200 of 200 submissions are graded already" in again.communicate()[0]
    assert time.monotonic() - seconds < 60
