"""Checks in a process of their own, with limits on time and memory.

`ask` sends an answer, as plain data, to a child that stays warm, and returns the verdict. What the
page did to its Python does not reach the child, and what a kernel does there cannot hurt the page:
an endless one is stopped, one that takes all memory fails alone, and a child that dies is replaced
at the next check. `serve` is the child's side: one line of JSON in, one out.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from tklearn.course.extract import Answer
from tklearn.course.verdict import Verdict

CPU_SECONDS = 3.5  # of one check
WALL_SECONDS = 25.0  # a busy machine is slow; nothing is slower than this
MEMORY = 3 << 30  # bytes of addresses: the child itself takes 1 GiB of them
CHECKS = 200  # then a fresh child


class _OutOfTime(BaseException):
    """The processor time of one check is spent."""


# ------------------------------------------------------------------------------------ the page
_child: list[subprocess.Popen[str]] = []
_lock = threading.Lock()
_asked = [0]


def start() -> None:
    """Starts the child, so that the first check need not wait for it. Never waits itself: where
    another thread asks already (report.py), the child is there or on its way."""
    if _lock.acquire(blocking=False):
        try:
            _running()
        finally:
            _lock.release()


def _running() -> subprocess.Popen[str]:
    if _child and (_child[0].poll() is not None or _asked[0] >= CHECKS):
        stop()
    if not _child:
        root = str(Path(__file__).parents[2])
        code = f"import sys; sys.path.insert(0, {root!r}); " + (
            "from tklearn.course.worker import serve; serve()"
        )
        env = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        env["MPLBACKEND"] = "agg"
        quiet = subprocess.DEVNULL
        _child.append(
            subprocess.Popen(
                [sys.executable, "-P", "-c", code], stdin=subprocess.PIPE, encoding="utf-8",
                stdout=subprocess.PIPE, stderr=quiet, env=env,
            )
        )  # fmt: skip
        _asked[0] = 0
    return _child[0]


def stop() -> None:
    """Ends the child."""
    for child in _child:
        child.kill()
        child.communicate()
    _child.clear()


def ask(answer: Answer, points: int = 0, seconds: float = WALL_SECONDS) -> Verdict:
    """The verdict on an answer, from the child. points: what the item has."""
    no = Verdict(answer.item, points=points)
    with _lock:
        child = _running()
        assert child.stdin is not None
        assert child.stdout is not None
        _asked[0] += 1
        timer = threading.Timer(seconds, child.kill)
        timer.start()
        try:
            child.stdin.write(json.dumps(answer.json()) + "\n")
            child.stdin.flush()
            line = child.stdout.readline()
        except OSError:
            line = ""
        finally:
            late = not timer.is_alive()
            timer.cancel()
        if not line:
            stop()
    if line:
        return Verdict.of(json.loads(line))
    why = f"took more than {seconds:.0f} s" if late else "ended its process (too much memory?)"
    return Verdict(no.item, points=points, message=f"the check was stopped: your kernel {why}")


# ----------------------------------------------------------------------------------- the child
def serve() -> None:
    """Answers requests until the input ends."""
    out = _own_output()
    sys.breakpointhook = lambda *_, **__: None  # nobody is there to type
    _limit_memory()
    if hasattr(signal, "SIGPROF"):
        signal.signal(signal.SIGPROF, _stop)
    from tklearn.course.items import ITEMS, LESSONS

    for line in sys.stdin:
        data = json.loads(line)
        item = {**ITEMS, **LESSONS}[data["item"]]
        verdict = _limited(item, Answer.of(data))
        out.write(json.dumps(verdict.json()) + "\n")
        out.flush()


def _own_output() -> TextIO:
    """The pipe to the page, out of reach of what kernels print."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    return out


def _limit_memory() -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def _stop(*_: Any) -> None:
    raise _OutOfTime


@contextlib.contextmanager
def _seconds(n: float) -> Iterator[None]:
    """Raises _OutOfTime in the block after n seconds of processor time, where there are signals."""
    if not hasattr(signal, "setitimer"):
        yield
        return
    signal.setitimer(signal.ITIMER_PROF, n)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _limited(item: Any, answer: Answer) -> Verdict:
    from tklearn.course.engine import examine

    said = {"points": item.points}
    try:
        with _seconds(CPU_SECONDS):
            return examine(item, answer)
    except _OutOfTime:
        text = (
            f"the check was stopped after {CPU_SECONDS:g} s: the kernel is far more work than "
            "this exercise needs. Is there a loop that does not end, or one over too much?"
        )
        return Verdict(item.id, message=text, **said)
    except MemoryError:
        text = "the check was stopped: the kernel needs more memory than there is"
        return Verdict(item.id, message=text, **said)
