"""`tklearn grade`: a folder of submissions, in parallel, that can be interrupted at any moment.

Workers, each a process of its own with a sandbox of its own, grade and return results; this process
alone writes. For each submission first the result's file, whole or not at all, then one line of the
journal, flushed to the disk: what has a line is done. The next run reads the journal, takes over
results whose line was lost, and grades the rest. A lock keeps a second run away.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import queue
import secrets
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tklearn.course import feedback, sandbox
from tklearn.course.handed import Handed, handed_in
from tklearn.course.marking import Grader, Settings

JOURNAL = "journal.jsonl"
TRIES = 3  # of a submission whose worker dies
SECONDS = 900.0  # until a worker is ended: no submission takes so long
ANSWERS = 20.0  # seconds until a scheduler must answer


class Problem(Exception):
    """Grading cannot begin or go on; the text says why and what to do."""


# ------------------------------------------------------------------------------------- what is kept
class Ledger:
    """The results in a folder: files, and a journal of those that are done."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.folder, self.mark = folder, settings.mark()
        (folder / "results").mkdir(parents=True, exist_ok=True)
        (folder / "feedback").mkdir(exist_ok=True)
        self.done: dict[str, str] = {}  # name -> digest of the submission
        self.adopted = 0
        for line in self._lines():
            if line["mark"] == self.mark and self.result(line["name"], line["digest"]):
                self.done[line["name"]] = line["digest"]

    def _lines(self) -> Iterator[dict[str, Any]]:
        try:
            raw = (self.folder / JOURNAL).read_bytes()
        except FileNotFoundError:
            return
        for text in raw.split(b"\n"):
            with contextlib.suppress(ValueError):
                line = json.loads(text)
                if isinstance(line, dict) and {"name", "digest", "mark"} <= set(line):
                    yield line

    def _path(self, name: str) -> Path:
        return self.folder / "results" / f"{feedback.page_name(name)}.json"

    def result(self, name: str, digest: str = "") -> dict[str, Any] | None:
        """A kept result, if it is whole and of this submission."""
        try:
            kept = json.loads(self._path(name).read_text(encoding="utf-8"))
            result = kept["result"]
            good = kept["mark"] == self.mark and result["name"] == name
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return result if good and digest in ("", result["digest"]) else None

    def has(self, name: str, digest: str) -> bool:
        """Whether this submission is done. A result whose line was lost is taken over."""
        if self.done.get(name) == digest:
            return True
        if self.result(name, digest) is None:
            return False
        self._line(name, digest)
        self.adopted += 1
        return True

    def add(self, result: dict[str, Any]) -> None:
        """Keeps a result: first its file, then its line."""
        text = json.dumps({"mark": self.mark, "result": result}, indent=1)
        write(self._path(result["name"]), text)
        self._line(result["name"], result["digest"])

    def _line(self, name: str, digest: str) -> None:
        line = json.dumps({"name": name, "digest": digest, "mark": self.mark}).encode() + b"\n"
        path = self.folder / JOURNAL
        file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0))
        try:
            size = os.fstat(file).st_size
            if size:  # after a crash in the middle of a line, begin a new one
                os.lseek(file, size - 1, os.SEEK_SET)
                line = line if os.read(file, 1) == b"\n" else b"\n" + line
            while line:
                line = line[os.write(file, line) :]
            os.fsync(file)
        finally:
            os.close(file)
        self.done[name] = digest


def write(path: Path, text: str) -> None:
    """A file, whole or not at all, on the disk when this returns."""
    part = path.with_name(f".{path.name}.part")
    try:
        with open(part, "w", encoding="utf-8", errors="backslashreplace", newline="") as f:
            f.write(text)
            f.flush()
            os.fsync(f.fileno())
        os.replace(part, path)
    except OSError:
        with contextlib.suppress(OSError):
            part.unlink()
        raise
    if os.name == "posix":
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One run at a time in a folder; the system frees the lock when a run dies."""
    with open(folder / ".lock", "a+b") as file:
        try:
            if os.name == "nt":
                import msvcrt

                msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
            else:
                import fcntl

                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Problem(f"another run is grading into {folder}") from None
        yield


# ------------------------------------------------------------------------------------------ workers
def serve() -> None:
    """A worker: one request a line, one result a line, until the input ends."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    grader: Grader | None = None
    try:
        for line in sys.stdin.buffer:
            said = json.loads(line)
            grader = grader or Grader(Settings(**said["settings"]))
            handed = Handed(said["name"], tuple(said["files"]))
            out.write(json.dumps(grader.grade(handed.data(), handed.name)).encode() + b"\n")
            out.flush()
    except BrokenPipeError:  # who asked is gone
        pass
    finally:
        if grader is not None:
            grader.close()


class Worker:
    """A process that grades, as its owner sees it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.child: subprocess.Popen[bytes] | None = None

    def grade(self, handed: Handed) -> dict[str, Any] | None:
        """A result; None where the process died."""
        if self.child is None:
            root = str(Path(__file__).parents[2])
            code = f"import sys; sys.path.insert(0, {root!r}); "
            code += "from tklearn.course.grade import serve; serve()"
            env = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
            self.child = subprocess.Popen(
                [sys.executable, "-P", "-c", code], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, env=env,
            )  # fmt: skip
        child = self.child
        assert child.stdin is not None
        assert child.stdout is not None
        timer = threading.Timer(SECONDS, child.kill)
        timer.daemon = True
        timer.start()
        try:
            request = {**asdict(handed), "settings": asdict(self.settings)}
            child.stdin.write(json.dumps(request).encode() + b"\n")
            child.stdin.flush()
            return json.loads(child.stdout.readline())
        except (OSError, ValueError):
            self.close()
            return None
        finally:
            timer.cancel()

    def close(self) -> None:
        """Ends the process."""
        child, self.child = self.child, None
        if child is not None:
            child.kill()
            for pipe in (child.stdin, child.stdout):
                assert pipe is not None
                with contextlib.suppress(OSError):
                    pipe.close()
            child.wait()


def _gave_up(handed: Handed) -> dict[str, Any]:
    """The result of a submission that ended its worker each time."""
    return {
        "name": handed.name, "digest": _digest(handed), "learner": "", "verified": False,
        "made": 0.0, "notes": [], "items": {}, "said": {},
        "problem": f"the grader's process ended {TRIES} times over it: your instructor must look",
        "broken": True,
    }  # fmt: skip


def _digest(handed: Handed) -> str:
    return hashlib.sha256(handed.data()).hexdigest()


def in_parallel(todo: list[Handed], settings: Settings, jobs: int) -> Iterator[dict[str, Any]]:
    """Results as they come, from `jobs` processes of this machine."""
    left: queue.Queue[Handed] = queue.Queue()
    came: queue.Queue[dict[str, Any]] = queue.Queue()
    for h in todo:
        left.put(h)
    ending = threading.Event()
    workers = [Worker(settings) for _ in range(min(jobs, len(todo)))]

    def work(worker: Worker) -> None:
        while not ending.is_set():
            try:
                handed = left.get_nowait()
            except queue.Empty:
                break
            results = (worker.grade(handed) for _ in range(TRIES) if not ending.is_set())
            result = next((r for r in results if r is not None), None)
            came.put(_gave_up(handed) if result is None else result)
        worker.close()

    threads = [threading.Thread(target=work, args=(w,), daemon=True) for w in workers]
    for t in threads:
        t.start()
    try:
        for _ in todo:
            yield came.get()
    finally:
        ending.set()
        for w in workers:
            w.close()
        for t in threads:
            t.join(10)


_mine = threading.local()


def grade_bytes(data: str, name: str, settings: dict[str, Any]) -> dict[str, Any]:
    """On a cluster's worker: one submission, with a sandbox that stays for the next."""
    wanted = Settings(**settings)
    grader: Grader | None = getattr(_mine, "grader", None)
    if grader is None or grader.settings != wanted:
        grader = _mine.grader = Grader(wanted)
    return {**grader.grade(base64.b64decode(data), name), "isolation": sandbox.weaker()}


def on_cluster(
    todo: list[Handed], settings: Settings, address: str, told: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    """Results as they come, from a Dask cluster. A few submissions are on their way at a time."""
    try:
        from distributed import Client, as_completed
    except ImportError:
        raise Problem("--scheduler needs dask.distributed: ./course --extra dask") from None
    try:
        client = Client(address, timeout=ANSWERS)
    except (OSError, TimeoutError, ValueError) as e:
        raise Problem(f"no Dask scheduler answers at {address}: {e}") from None
    with client:
        waiting = iter(todo)
        running: dict[Any, Handed] = {}
        weaker: set[str] = set()

        def send() -> Any:
            handed = next(waiting, None)
            if handed is None:
                return None
            data = base64.b64encode(handed.data()).decode()
            future = client.submit(grade_bytes, data, handed.name, asdict(settings), pure=False)
            running[future] = handed
            return future

        cores = sum(client.ncores().values()) or 1
        first = [f for f in (send() for _ in range(2 * cores)) if f is not None]
        order = as_completed(first)
        for future in order:
            handed = running.pop(future)
            if (more := send()) is not None:
                order.add(more)
            try:
                result = future.result()
            except Exception as e:  # noqa: BLE001  a worker that died too often, or lost its way
                told(f"{handed.name}: {type(e).__name__} on the cluster")
                result = _gave_up(handed)
            if (why := result.pop("isolation", "")) and why not in weaker:
                weaker.add(why)
                told(f"a worker of the cluster: {why}")
            yield result


# ------------------------------------------------------------------------------------------ a class
@dataclass(frozen=True)
class Class:
    """What `tklearn release` kept of a class: its secret and its learners."""

    secret: str = ""
    learners: tuple[feedback.Learner, ...] = ()

    @staticmethod
    def read(path: Path) -> Class:
        """From class.json. Errors: Problem."""
        try:
            said = json.loads(path.read_text(encoding="utf-8"))
            learners = tuple(feedback.Learner(**x) for x in said["learners"])
            return Class(str(said["secret"]), learners)
        except (OSError, ValueError, KeyError, TypeError) as e:
            raise Problem(f"{path} is no class.json of tklearn release: {e}") from None


def _seed(out: Path, given: int | None) -> int:
    """The seed of hidden tests: the one given, the one of the last run, or a new one."""
    path = out / "grading.json"
    kept: int | None = None
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        kept = int(json.loads(path.read_text(encoding="utf-8"))["seed"])
    if kept is not None and given not in (None, kept):
        raise Problem(f"{out} holds grades made with another seed: name another folder")
    seed = given if given is not None else kept if kept is not None else secrets.randbits(40)
    if kept is None:
        write(path, json.dumps({"seed": seed}))
        path.chmod(0o600)
    return seed


def grade_folder(
    folder: Path, out: Path, *, jobs: int = 0, scheduler: str = "", seed: int | None = None,
    class_file: Path | None = None, learners: Sequence[feedback.Learner] = (),
    column: str = "tklearn", told: Callable[[str], None] = print,
) -> list[dict[str, Any]]:  # fmt: skip
    """Grades what is in a folder and writes everything into `out`. All results. Errors: Problem.

    learners: the class list, for that of class_file. column: what the assignment is called in the
    tables for Moodle and Canvas.
    """
    if not folder.is_dir():
        unpacked = ": unpack it first" if folder.is_file() else ""
        raise Problem(f"there is no folder {folder}{unpacked}")
    group = Class.read(class_file) if class_file else Class()
    group = replace(group, learners=tuple(learners) or group.learners)
    try:
        out.mkdir(parents=True, exist_ok=True)
        with locked(out):
            results = _grade(folder, out, jobs, scheduler, seed, group, told)
            _report(out, results, list(group.learners), column, told)
            return results
    except OSError as e:
        raise Problem(
            f"{e.filename or out}: {e.strerror}. What was graded is kept; run the same again"
        ) from None


def _grade(
    folder: Path, out: Path, jobs: int, scheduler: str, seed: int | None, group: Class,
    told: Callable[[str], None],
) -> list[dict[str, Any]]:  # fmt: skip
    settings = Settings(_seed(out, seed), group.secret)
    ledger = Ledger(out, settings)
    every = handed_in(folder, group.learners)
    if not every:
        raise Problem(f"no submission in {folder}: zips of tk.submit(), notebooks, or subfolders")
    todo = [h for h in every if not ledger.has(h.name, _digest(h))]
    if len(todo) < len(every):
        told(f"{len(every) - len(todo)} of {len(every)} submissions are graded already")
    weaker = sandbox.weaker()
    if weaker and not scheduler:
        told(weaker)
    broken: dict[str, dict[str, Any]] = {}
    if todo:
        if not scheduler:
            _self_test()
        jobs = jobs or os.cpu_count() or 1
        results = (
            on_cluster(todo, settings, scheduler, told)
            if scheduler
            else in_parallel(todo, settings, jobs)
        )
        with contextlib.closing(results):  # type: ignore[type-var]
            for n, result in enumerate(results, 1):
                if result.get("broken"):  # the machine's failure: the next run tries again
                    broken[result["name"]] = result
                else:
                    ledger.add(result)
                points = result["problem"] or f"{feedback.score(result):g} of {feedback.full()}"
                told(f"{n} of {len(todo)}  {ascii(result['name'])[1:-1]}: {points}")
    kept = [r for h in every if (r := broken.get(h.name) or ledger.result(h.name)) is not None]
    assert len(kept) == len(every)
    return kept


def _self_test() -> None:
    """Errors: Problem where the sandbox does not work at all."""
    try:
        sandbox.self_test()
    except sandbox.Broken as e:
        how = "bubblewrap" if not sandbox.problem() else "no bubblewrap"
        raise Problem(
            f"the sandbox ({how}) does not work here, and nothing was graded: {e}\n"
            f"It runs {sys.executable} with tklearn from {sandbox.PACKAGE}: see that both can be "
            "read by everybody, and that 4 GB of memory are free. Then run the same again; if it "
            "stays so, grade on another Linux machine"
        ) from None


def _report(
    out: Path, results: list[dict[str, Any]], learners: list[feedback.Learner], column: str,
    told: Callable[[str], None],
) -> None:  # fmt: skip
    """The tables and pages."""
    files = [(feedback.page_name(r["name"]), r) for r in results]
    for file, r in files:
        text = feedback.page(r)
        path = out / "feedback" / f"{file}.html"
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            write(path, text)
    rows = feedback.by_learner(results, learners)
    group = rows[: len(learners)]
    write(out / "grades.csv", "\ufeff" + feedback.grades_csv(results))  # the mark is for Excel
    if learners:
        write(out / "moodle.csv", feedback.moodle_csv(group, column))
        write(out / "canvas.csv", feedback.canvas_csv(group, column))
    else:
        told("no class list, so no moodle.csv and canvas.csv: name one with --roster")
    lacking = [w.name or w.id for w, r in group if r is None]
    nobody = [str(r["name"]) for _, r in rows[len(learners) :] if r is not None and learners]
    said = f"{len(results)} submissions."
    said += f" Nothing from {', '.join(lacking)}." if lacking else ""
    said += f" Of nobody in the class list: {', '.join(nobody)}." if nobody else ""
    said += f" Limits: {weaker}." if (weaker := sandbox.weaker()) else ""
    if nobody:
        told(f"of nobody in the class list, see index.html: {len(nobody)}")
    counts = [r for _, r in (group or rows)]
    names = {r["name"]: who.name for who, r in group if r is not None and who.name}
    write(out / "index.html", feedback.overview(files, said, counts, names))
