"""What happens inside a sandbox: submissions are read, constants computed, kernels run.

`serve` answers requests, one line of JSON each, with a fork for each: the fork takes the limits,
does the work and ends. Only `values` executes what a learner wrote as Python, in a sandbox that is
used once. Nothing here judges: what is returned is data, and the grader outside takes none of it
on trust.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import ctypes
import io
import json
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from tklearn.course import engine, submit
from tklearn.course.extract import Answer, from_cells, written
from tklearn.course.item import Case, Out
from tklearn.course.plain import pack, unpack

FORKS = hasattr(os, "fork")


class OutOfTime(BaseException):
    """The processor time of one piece of work is spent."""


# ------------------------------------------------------------------------------------ cases as data
def packed_case(case: Case) -> dict[str, Any]:
    """A launch as what JSON can hold."""
    args = []
    for name, a in case.args.items():
        if isinstance(a, Out):
            out = {"shape": list(a.shape), "dtype": np.dtype(a.dtype).name, "start": pack(a.start)}
            args.append([name, "out", out])
        else:
            args.append([name, "in", pack(a)])
    grid = list(case.grid) if isinstance(case.grid, tuple | list) else case.grid
    return {
        "says": case.says, "grid": grid, "args": args, "consts": pack(case.consts),
        "kernel": case.kernel,
    }  # fmt: skip


def unpacked_case(data: dict[str, Any]) -> Case:
    """What `packed_case` made."""
    args: dict[str, Any] = {}
    for name, kind, a in data["args"]:
        if kind == "out":
            like = unpack({"array": "", "dtype": a["dtype"], "shape": [0]})
            args[name] = Out(tuple(a["shape"]), like.dtype, unpack(a["start"]))
        else:
            args[name] = unpack(a)
    grid = tuple(data["grid"]) if isinstance(data["grid"], list) else data["grid"]
    consts = unpack(data["consts"])
    return Case(says=data["says"], grid=grid, args=args, consts=consts, kernel=data["kernel"])


# -------------------------------------------------------------------------------------------- works
def read(request: dict[str, Any]) -> dict[str, Any]:
    """What a submission holds, from its bytes."""
    return submit.opened(base64.b64decode(request["data"]), request["name"])


def values(request: dict[str, Any]) -> dict[str, str]:
    """The texts of constants that only running a notebook tells: name -> text."""
    space: dict[str, Any] = {"__name__": "__main__"}
    for cell, text in request["cells"]:
        _run_cell(cell, text, space)
    found = {n: written(space[n]) for n in request["names"] if n in space}
    return {n: t for n, t in found.items() if t is not None and len(t) < 20_000}


def _run_cell(cell: str, text: str, space: dict[str, Any]) -> None:
    """The statements of a cell up to one that fails; what asks the course is passed over."""
    lines = ["pass  #" + x if x.lstrip()[:1] in ("%", "!", "?") else x for x in text.split("\n")]
    try:
        body = ast.parse("\n".join(lines)).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            called = ast.unparse(node.value.func).rpartition(".")[2]
            if called in ("check", "predict", "hint", "submit"):
                continue
        module = ast.Module([node], [])
        try:
            exec(compile(module, cell, "exec", dont_inherit=True), space)
        except (Exception, SystemExit, KeyboardInterrupt):  # noqa: BLE001  a learner's own errors
            return


def run(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Outcomes of kernels, for each job: {"outcomes": [...]} or {"stopped": why}."""
    done: list[dict[str, Any]] = []
    for job in request["jobs"]:
        cases = [unpacked_case(c) for c in job["cases"]]
        runs = tuple(unpack(r) for r in job["runs"])
        try:
            with seconds(job["seconds"]):
                outcomes = engine.execute(Answer.of(job["answer"]), cases, runs, job["steps"])
            done.append({"outcomes": [o.json() for o in outcomes]})
        except OutOfTime:
            done.append({"stopped": f"stopped after {job['seconds']:g} s of work: it does not end, "
                         "or does far more than this exercise needs"})  # fmt: skip
        except MemoryError:
            done.append({"stopped": "it needs more memory than there is"})
        except Exception as e:  # noqa: BLE001  a fault of ours must not cost the other exercises
            done.append({"stopped": f"the simulator failed: {type(e).__name__}"})
    return done


def echo(request: dict[str, Any]) -> dict[str, Any]:
    """For tests: executes Python, with all limits. What it leaves in `answer` is returned."""
    space: dict[str, Any] = {"answer": None}
    exec(request["code"], space)
    return {"said": str(space["answer"])}


WORKS = {"read": read, "values": values, "run": run, "echo": echo}


@contextlib.contextmanager
def seconds(n: float) -> Iterator[None]:
    """Raises OutOfTime in the block after n seconds of processor time."""
    if not hasattr(signal, "setitimer"):
        yield
        return

    def stop(*_: Any) -> None:
        raise OutOfTime

    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, n)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


# -------------------------------------------------------------------------------------------- serve
def serve(said: str) -> None:
    """Answers requests until the input ends. said: the Limits, as JSON."""
    limits = json.loads(said)
    out = os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    lines = os.fdopen(os.dup(0), "rb")
    os.dup2(null, 0)
    _undumpable()
    _warm_up()
    for line in lines:
        request = json.loads(line)
        raw = _forked(request, limits, (out, lines)) if FORKS else _reply(request)
        if b"\n" in raw:
            raw = _stopped("its process gave no answer that can be read")
        if len(raw) >= limits["reply"]:
            raw = _stopped("its answer was too long")
        out.write(raw + b"\n")
        out.flush()


def _undumpable() -> None:
    """Takes from processes of the same user the right to look into this one (Linux)."""
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)


def _warm_up() -> None:
    """Loads what the first kernel would load."""
    text = "@tk.kernel(threads=32)\ndef k(y: tk.gl_fl):\n    y[0] = 1.0\n"
    answer = from_cells([("start", "import tklearn as tk\n" + text)]).answer("", ("k",))
    case = Case(says="", grid=1, args={"y": Out((1,))}, kernel="k")
    engine.execute(answer, [case], ({},), 100)


def _stopped(why: str) -> bytes:
    return json.dumps({"stopped": why}).encode()


def _reply(request: dict[str, Any]) -> bytes:
    try:
        return json.dumps({"answer": WORKS[request["do"]](request)}).encode()
    except submit.Unreadable as e:
        return json.dumps({"answer": {"unreadable": str(e)}}).encode()
    except MemoryError:
        return _stopped("it needs more memory than there is")
    except RecursionError:
        return _stopped("it is nested too deeply")
    except Exception as e:  # noqa: BLE001  whatever is wrong, the answer says so
        return _stopped(f"{type(e).__name__} inside the sandbox")


def _forked(request: dict[str, Any], limits: dict[str, Any], ours: tuple[io.IOBase, ...]) -> bytes:
    """The reply of a fork that has taken the limits."""
    theirs, mine = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(theirs)
            for file in ours:
                os.close(file.fileno())
            _take(limits)
            with os.fdopen(mine, "wb") as pipe:
                pipe.write(_reply(request))
        finally:
            os._exit(0)
    os.close(mine)
    raw = bytearray()
    with os.fdopen(theirs, "rb") as pipe:
        while len(raw) < limits["reply"] and (more := pipe.read1(1 << 20)):
            raw += more
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)
    status = os.waitpid(pid, 0)[1]
    if raw:
        return bytes(raw)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU:
        return _stopped(f"stopped after {limits['cpu']} s of processor time")
    return _stopped("its process ended without an answer")


def _take(limits: dict[str, Any]) -> None:
    import resource

    def limit(what: int, n: int) -> None:
        with contextlib.suppress(ValueError, OSError):
            hard = resource.getrlimit(what)[1]
            n = n if hard == resource.RLIM_INFINITY else min(n, hard)
            resource.setrlimit(what, (n, n))

    limit(resource.RLIMIT_AS, limits["memory"])
    with contextlib.suppress(ValueError, OSError):  # a signal first, that says why
        resource.setrlimit(resource.RLIMIT_CPU, (limits["cpu"], limits["cpu"] + 2))
    limit(resource.RLIMIT_FSIZE, limits["scratch"])
    limit(resource.RLIMIT_NOFILE, limits["files"])
    limit(resource.RLIMIT_CORE, 0)
    limit(resource.RLIMIT_NPROC, 0)  # it can start no process
    sys.setrecursionlimit(1000)
