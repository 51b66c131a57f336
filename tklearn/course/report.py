"""Tells the instructor's live page what happens in a notebook, where a class is held.

Only where TKLEARN_CLASS holds the page's address (http://.../TOKEN) is anything sent: which
exercise, whether it passed, the first line of what was said, a prediction; under a number instead
of a name. `send` never waits and never fails: a thread sends, and gives up after two seconds.
"""

from __future__ import annotations

import hashlib
import json
import os
import queue
import threading
import time
import urllib.request
import uuid
from typing import Any

SECONDS = 2.0  # of one report
PAUSE = 20.0  # after one that did not arrive
_waiting: queue.Queue[tuple[str, bytes]] = queue.Queue(maxsize=100)
_threads: list[threading.Thread] = []
_lock = threading.Lock()


def send(event: dict[str, Any]) -> None:
    """Reports an event of attempts.py: item, what, and what belongs to it."""
    address = os.environ.get("TKLEARN_CLASS", "").strip().rstrip("/")
    if not address.startswith(("http://", "https://")):
        return
    said: dict[str, Any] = {
        n: event[n] for n in ("item", "what", "said", "passed", "code", "n") if n in event
    }
    said["message"] = str(event.get("message", "")).partition("\n")[0][:160]
    said["who"] = _number(address)
    try:
        _waiting.put_nowait((address + "/report", json.dumps(said).encode()))
    except (queue.Full, TypeError, ValueError):
        return
    with _lock:
        if not _threads or not _threads[0].is_alive():
            _threads[:] = [threading.Thread(target=_work, daemon=True, name="tklearn-report")]
            _threads[0].start()


def _number(address: str) -> str:
    """The same for all notebooks of a learner, and no name."""
    from tklearn.course import attempts

    own = f"{attempts.seed()} {uuid.getnode()} {attempts.folder()} {address}"
    return hashlib.sha256(own.encode()).hexdigest()[:16]


def _work() -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while True:
        address, data = _waiting.get()
        kind = {"Content-Type": "application/json"}
        request = urllib.request.Request(address, data, kind)
        try:
            with opener.open(request, timeout=SECONDS) as reply:
                reply.read(1000)
        except (OSError, ValueError):
            time.sleep(PAUSE)
        finally:
            _waiting.task_done()
