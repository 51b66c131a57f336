"""A time limit for tests that run on a GPU: a kernel that never ends must not take the session.

While such a kernel runs, Python waits in the driver: no signal handler and no exception reaches the
test, and afterwards the process has no CUDA context. So the process ends, with a message that names
the test. Under pytest-xdist (`pytest -n 1 -m gpu`) that is one worker: its test fails, and another
worker goes on with the rest.
"""

from __future__ import annotations

import faulthandler
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

LIMIT = 300.0  # seconds for a test that names none: @pytest.mark.gpu(limit=20)
STATUS = 70  # of the process


@contextmanager
def watchdog(name: str, limit: float, stderr: int = 2) -> Iterator[None]:
    """Ends the process if the block is not left within `limit` seconds, and says so on a file
    descriptor."""
    timer = threading.Timer(limit, _end, (name, limit, stderr))
    timer.daemon = True
    timer.start()
    # The same from C, for a call that waits without letting other threads run.
    faulthandler.dump_traceback_later(limit + 5, exit=True, file=stderr)
    try:
        yield
    finally:
        timer.cancel()
        faulthandler.cancel_dump_traceback_later()


def _end(name: str, limit: float, stderr: int) -> None:
    text = (
        f"\n{name}: no end after {limit:g} s. A kernel hangs (or what waits for one); the CUDA "
        "context is lost, so this process ends here.\nWith `pytest -n 1` the other tests go on. "
        "Where Python waits:\n"
    )
    os.write(stderr, text.encode())
    faulthandler.dump_traceback(file=stderr)
    os._exit(STATUS)
