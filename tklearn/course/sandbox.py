"""Child processes with limits, in which a class's submissions are read and run.

A `Sandbox` is one child that stays warm. `ask` sends it a request and returns its answer, both
plain data as JSON; inside.py is the child's side, and forks once more for each request, so that
nothing stays of one request for the next. Where bubblewrap works, the child sees /usr, Python's
folders and the tklearn package, all read-only, a small folder of its own in memory, no network and
no other process, and cannot start one. Elsewhere only the limits of the system (rlimits) hold, and
`weaker()` says what that means. This file knows nothing of exercises.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tklearn.doctor import bwrap_problem

PACKAGE = Path(__file__).resolve().parents[1]
IDS = range(0x5F0000, 0x600000)
"""User numbers for sandboxes that root starts: root itself may have any number of processes."""

ENDED = "its process was ended"


@dataclass(frozen=True)
class Limits:
    """What one request may use.

    Attributes: cpu, wall: seconds. memory: bytes of addresses (tklearn itself takes 1 GiB of them).
    scratch: bytes of files. files: open at once. reply: bytes of the answer.
    """

    cpu: int = 60
    wall: float = 180.0
    memory: int = 3 << 30
    scratch: int = 16 << 20
    files: int = 64
    reply: int = 96 << 20


class Stopped(Exception):
    """A request that was not answered; the text says why, for who reads a grade."""


class Broken(Exception):
    """The sandbox itself does not work: what was asked is not to blame."""


@cache
def problem() -> str:
    """Why there is no bubblewrap here; "" where it works."""
    found = bwrap_problem()
    if found:
        return found
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        return "as root, setpriv is needed, too"
    try:  # the whole of it: a container may allow a part
        tried = [*_bwrap(Limits()), "/usr/bin/env", "true"]
        done = subprocess.run(tried, stdin=subprocess.DEVNULL, capture_output=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired) as e:
        return f"bwrap cannot be started: {type(e).__name__}"
    said = done.stderr.decode("utf-8", "replace").strip()
    return f"bwrap may not make a sandbox here: {said[:100]}" if done.returncode else ""


def weaker() -> str:
    """What the limits here do not hold off; "" with bubblewrap."""
    if not problem():
        return ""
    holds = "time, memory and the size of files are limited" if os.name == "posix" else "only time"
    return (
        f"no bubblewrap ({problem()}): {holds}, but Python in a submission could read your files "
        "and reach the network. Grade on Linux with bubblewrap, or as a user who owns nothing"
    )


# -------------------------------------------------------------------------------------- the command
def _folders() -> list[str]:
    """What Python and tklearn need beside /usr, without what lies in another of them."""
    wanted = {sys.prefix, sys.base_prefix, str(PACKAGE), sysconfig.get_path("purelib")}
    wanted |= {str(Path(p).resolve()) for p in wanted}
    return sorted(
        p
        for p in wanted
        if not any(p != q and Path(p).is_relative_to(q) for q in (*wanted, "/usr", "/lib"))
    )


def _bwrap(limits: Limits) -> list[str]:
    """The start of a command that runs in a sandbox of bubblewrap."""
    root = os.geteuid() == 0
    command = [shutil.which("bwrap") or "bwrap", "--die-with-parent", "--new-session", "--clearenv"]
    if root:  # a namespace of users would leave it root, whom no limit on processes stops
        for kind in ("ipc", "pid", "net", "uts", "cgroup-try"):
            command.append(f"--unshare-{kind}")
        for capability in ("SETUID", "SETGID", "SETPCAP"):
            command += ["--cap-add", f"CAP_{capability}"]
    else:
        command.append("--unshare-all")
    command += ["--ro-bind", "/usr", "/usr"]
    for name in ("/bin", "/lib", "/lib32", "/lib64", "/sbin"):
        if os.path.islink(name):
            command += ["--symlink", os.readlink(name), name]
        elif os.path.isdir(name):
            command += ["--ro-bind", name, name]
    # Before the folders of Python, which may lie in /tmp: a mount hides what is below it.
    command += ["--dev", "/dev"]  # no /proc: it tells much, and containers do not let it be made
    command += ["--perms", "1777", "--size", str(limits.scratch), "--tmpfs", "/tmp"]
    command += ["--size", "4096", "--tmpfs", "/dev/shm"]
    made = {Path(p) for p in ("/dev", "/dev/shm", "/tmp")}
    for folder in _folders():
        for above in reversed(Path(folder).parents[:-1]):
            if above not in made:
                command += ["--perms", "0755", "--dir", str(above)]
                made.add(above)
        command += ["--ro-bind", folder, folder]
    command += ["--chdir", "/tmp"]
    for name, value in _environment().items():
        command += ["--setenv", name, value]
    if root:
        who = IDS[os.getpid() * 31 % len(IDS)]
        command += [shutil.which("setpriv") or "setpriv", f"--reuid={who}", f"--regid={who}"]
        command += ["--clear-groups", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]
    if limiter := shutil.which("prlimit"):  # inside: outside, the namespaces could not be made
        command += [limiter, "--core=0", f"--nofile={limits.files}", f"--fsize={limits.scratch}"]
    return command


def _environment() -> dict[str, str]:
    names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    return {
        **dict.fromkeys(names, "1"),
        "PATH": "/usr/bin:/bin",
        "HOME": "/tmp",
        "LANG": "C.UTF-8",
        "MPLBACKEND": "agg",
        "TKLEARN_COURSE_DIR": "/tmp/attempts",
    }


def command(limits: Limits) -> list[str]:
    """The command of a child: with bubblewrap where it works."""
    code = f"import sys; sys.path.insert(0, {str(PACKAGE.parent)!r}); " + (
        "from tklearn.course.inside import serve; serve(sys.argv[1])"
    )
    python = [sys.executable, "-I", "-B", "-c", code, json.dumps(asdict(limits))]
    return python if problem() else _bwrap(limits) + python


# ---------------------------------------------------------------------------------------- the child
class Sandbox:
    """One child with limits. Not for several threads at once."""

    def __init__(self, limits: Limits | None = None, stderr: Any = subprocess.DEVNULL) -> None:
        self.limits, self.stderr = limits or Limits(), stderr
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> subprocess.Popen[bytes]:
        """The running child; a new one where it ended."""
        if self._child is not None and self._child.poll() is not None:
            self.close()
        if self._child is None:
            env = dict(os.environ) if os.name == "nt" else _environment()
            self._child = subprocess.Popen(
                command(self.limits), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=self.stderr, env=env, start_new_session=True,
            )  # fmt: skip
        return self._child

    def ask(self, request: dict[str, Any]) -> Any:
        """What the child answers. Errors: Stopped."""
        child = self.start()
        assert child.stdin is not None
        assert child.stdout is not None
        late = threading.Event()

        def end() -> None:
            late.set()
            self._kill(child)

        timer = threading.Timer(self.limits.wall, end)
        timer.daemon = True
        timer.start()
        line = b""
        try:
            child.stdin.write(json.dumps(request).encode() + b"\n")
            child.stdin.flush()
            line = child.stdout.readline(self.limits.reply + 1)
        except OSError:
            pass
        finally:
            timer.cancel()
        if not line.endswith(b"\n"):
            self.close()
            if late.is_set():
                raise Stopped(f"stopped after {self.limits.wall:g} s")
            raise Stopped("its answer was too long" if line else ENDED)
        try:
            reply = json.loads(line)
        except (ValueError, RecursionError):
            raise Stopped("its process gave no answer that can be read") from None
        if not isinstance(reply, dict) or "answer" not in reply:
            said = reply.get("stopped", "") if isinstance(reply, dict) else ""
            raise Stopped(str(said)[:300] or "its process gave no answer")
        return reply["answer"]

    def probe(self) -> None:
        """Asks for something that always has an answer. Errors: Broken."""
        try:
            answer = self.ask({"do": "echo", "code": "answer = 6 * 7"})
        except Stopped as e:
            raise Broken(str(e)) from None
        except OSError as e:
            raise Broken(f"it cannot be started: {e}") from None
        if answer != {"said": "42"}:
            raise Broken("it answers wrongly")

    def _kill(self, child: subprocess.Popen[bytes]) -> None:
        with contextlib.suppress(OSError):
            if os.name == "posix":
                os.killpg(child.pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            child.kill()

    def close(self) -> None:
        """Ends the child."""
        if self._child is not None:
            child, self._child = self._child, None
            self._kill(child)
            for pipe in (child.stdin, child.stdout):
                assert pipe is not None
                with contextlib.suppress(OSError):
                    pipe.close()
            child.wait()


def self_test() -> None:
    """Errors: Broken, with what the process said, where no sandbox can work on this machine."""
    with tempfile.TemporaryFile() as errors:
        try:
            with Sandbox(stderr=errors) as box:
                box.probe()
        except Broken as e:
            errors.seek(0)
            said = errors.read(100_000).decode("utf-8", "replace").strip()
            lines = said.splitlines()[-12:] or ["nothing"]
            told = "\n".join(f"    {x[:300]}" for x in lines)
            raise Broken(f"{e}. It said:\n{told}") from None
