"""Keeps what was measured when a kernel hangs: after a limit, what there is is written, and the
process ends."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable


def watch(seconds: float, write: Callable[[], None]) -> threading.Timer:
    """After `seconds` calls `write` and ends the process with 3; cancel() the timer to stop it."""

    def end() -> None:
        print(f"a launch has not ended after {seconds:.0f} s; written: what was measured before")
        write()
        os._exit(3)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    return timer
