"""Tells the instructor's live page what happens in a notebook, where a class is held.

Only where TKLEARN_CLASS holds the page's address (http://.../TOKEN) is anything sent: which
exercise, whether it passed, the first line of what was wrong, and of each prediction whether it was
right or which misconception it shows; under a number instead of a name. `send` never waits and
never fails: a thread sends, and gives up after two seconds.
"""

from __future__ import annotations

import hashlib
import json
import os
import queue
import re
import threading
import time
import urllib.request
import uuid
from typing import Any

SECONDS = 2.0  # of one report
PAUSE = 20.0  # after one that did not arrive
_waiting: queue.Queue[tuple[str, dict[str, Any]]] = queue.Queue(maxsize=100)
_threads: list[threading.Thread] = []
_lock = threading.Lock()


def send(event: dict[str, Any]) -> None:
    """Reports an event of attempts.py: item, what, and what belongs to it."""
    address = os.environ.get("TKLEARN_CLASS", "").strip().rstrip("/")
    if not address.startswith(("http://", "https://")):
        return
    from tklearn.course.items import ITEMS

    if event["item"] not in ITEMS:  # predictions in a lesson: the page has no place for them
        return
    said: dict[str, Any] = {
        n: event[n] for n in ("item", "what", "said", "passed", "code", "n") if n in event
    }
    said["message"] = wrong(str(event.get("message", "")))
    said["who"] = _number(address)
    try:
        _waiting.put_nowait((address + "/report", said))
    except queue.Full:
        return
    with _lock:
        if not _threads or not _threads[0].is_alive():
            _threads[:] = [threading.Thread(target=_work, daemon=True, name="tklearn-report")]
            _threads[0].start()


def wrong(message: str) -> str:
    """The first line of a verdict that says what is wrong, without what was right."""
    lines = (x for x in message.split("\n") if not re.match(r"\w+: .* is right\.( |$)", x))
    return next(lines, "")[:160]


def seen(item: str, said: dict[str, Any]) -> dict[str, int]:
    """Of each prediction: 0 right, n for the n-th misconception of its question, -1 another.

    Found here, where the learner's own numbers are known, by the process that checks.
    """
    from tklearn.course import attempts, worker
    from tklearn.course.engine import NOT_IT
    from tklearn.course.extract import Answer
    from tklearn.course.item import Predict
    from tklearn.course.items import ITEMS

    it = ITEMS.get(item)
    if not isinstance(it, Predict):
        return {}
    latest = {**{q.name: "" for q in it.questions}, **said}
    verdict = worker.ask(Answer(item, first=latest, latest=latest, seed=attempts.seed()), it.points)
    out = {}
    for q in it.questions:
        line = next((x for x in verdict.message.split("\n") if x.startswith(f"{q.name}: ")), "")
        if q.name not in said or not line:
            continue
        if line.startswith(f"{q.name}: {said[q.name]} is right."):
            out[q.name] = 0
        else:
            told = line.partition(f" is not it{NOT_IT}")[2]
            kinds = [says.partition("\n")[0].rstrip() for says in q.wrong]
            out[q.name] = kinds.index(told) + 1 if told in kinds else -1
    return out


def _number(address: str) -> str:
    """The same for all notebooks of a learner, and no name."""
    from tklearn.course import attempts

    own = f"{attempts.seed()} {uuid.getnode()} {attempts.folder()} {address}"
    return hashlib.sha256(own.encode()).hexdigest()[:16]


def _work() -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while True:
        address, said = _waiting.get()
        kind = {"Content-Type": "application/json"}
        try:
            if said["what"] == "predict":
                said["seen"] = seen(said["item"], said.pop("said"))
            data = json.dumps(said).encode()
            request = urllib.request.Request(address, data, kind)
            with opener.open(request, timeout=SECONDS) as reply:
                reply.read(1000)
        except (OSError, ValueError, TypeError, KeyError):
            time.sleep(PAUSE)
        finally:
            _waiting.task_done()
