"""The time limit of GPU tests ends a process that hangs, names the test, and spares others."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
import watchdog

HERE = Path(__file__).parent
PRELUDE = f"import sys, threading, time; sys.path.insert(0, {str(HERE)!r}); import watchdog\n"


def python(text: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", PRELUDE + text]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_a_hang_ends_the_process_and_is_named() -> None:
    start = time.monotonic()
    done = python("with watchdog.watchdog('tests/x.py::test_y', 0.3): time.sleep(50)")
    assert done.returncode == watchdog.STATUS
    assert "tests/x.py::test_y: no end after 0.3 s" in done.stderr
    assert "line 2 in <module>" in done.stderr, "where it waits"
    assert time.monotonic() - start < 20


def test_what_ends_in_time_is_left_alone() -> None:
    blocks = "for i in range(3):\n    with watchdog.watchdog('a', 0.4): pass\n"
    done = python(blocks + "time.sleep(0.8)\nprint('on')")
    assert (done.returncode, done.stdout, done.stderr) == (0, "on\n", "")


def test_an_error_passes_through() -> None:
    with pytest.raises(KeyError), watchdog.watchdog("a", 60):
        raise KeyError("x")


def test_pytest_gives_each_gpu_test_a_limit(tmp_path: Path) -> None:
    """The hook of conftest.py, on a machine that is said to have a GPU."""
    (tmp_path / "conftest.py").write_text(
        f"import sys; sys.path.insert(0, {str(HERE)!r})\n"
        f"exec(open({str(HERE / 'conftest.py')!r}).read())\n"
        "why_not = lambda marker: ''\n"
    )
    (tmp_path / "test_it.py").write_text(
        "import time, pytest\n"
        "def test_plain(): time.sleep(1)\n"
        "@pytest.mark.gpu(limit=0.3)\ndef test_quick(): pass\n"
        "@pytest.mark.gpu(limit=0.3)\ndef test_slow(): time.sleep(40)\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    gpu: needs a GPU\n")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:xdist",
        "-p",
        "no:cacheprovider",
        ".",
    ]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == watchdog.STATUS, done.stdout
    assert done.stdout.startswith(".."), "the others ran"
    assert "test_it.py::test_slow: no end after 0.3 s" in done.stderr
