"""Markers for tests that need a GPU, a browser or a sandbox, and settings for all tests.

A GPU test has a time limit, since a kernel may never end: see watchdog.py.

Where the part is missing, a marked test is skipped with the reason. Where TKLEARN_REQUIRE names the
marker (a comma-separated list; .ci/run names what it has installed), it fails instead.
"""

from __future__ import annotations

import os

# Before anything imports NumPy: the products of a tile are small, and more threads slow them down.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"
os.environ.setdefault("MPLBACKEND", "agg")

import importlib.util
import sys
import tempfile
from collections.abc import Iterator
from functools import cache

import pytest
from watchdog import LIMIT, watchdog

if importlib.util.find_spec("hypothesis") is not None:
    from hypothesis import settings

    # Two busy cores: no deadlines. In CI the same examples each time.
    settings.register_profile("tklearn", deadline=None, derandomize="CI" in os.environ)
    settings.load_profile("tklearn")


# Attempts at exercises are kept in a file: not in the working folder of who runs the tests.
_attempts = os.path.join(tempfile.gettempdir(), f"tklearn-attempts-{os.getpid()}")
os.environ.setdefault("TKLEARN_COURSE_DIR", _attempts)


@cache
def why_not(marker: str) -> str:
    """Why tests with this marker cannot run here; "" when they can."""
    from tklearn.doctor import OLDEST_SM, ask_driver, bwrap_problem, find_chromium

    if marker == "gpu":
        driver = ask_driver()
        if not driver.gpus:
            return driver.problem
        if driver.gpus[0].sm < OLDEST_SM:
            return f"sm_{driver.gpus[0].sm} is older than sm_{OLDEST_SM}"
        return "" if importlib.util.find_spec("cupy") else "CuPy is not installed"
    if marker == "browser":
        if find_chromium() is None:
            return "Chromium is not installed"
        return "" if importlib.util.find_spec("playwright") else "playwright is not installed"
    return bwrap_problem()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a marked test, or fail it where its part was promised."""
    required = os.environ.get("TKLEARN_REQUIRE", "").split(",")
    for marker in ("gpu", "browser", "sandbox"):
        if item.get_closest_marker(marker) is None:
            continue
        reason = why_not(marker)
        if reason and marker in required:
            pytest.fail(f"TKLEARN_REQUIRE names {marker!r}, but {reason}", pytrace=False)
        if reason:
            pytest.skip(reason)


STDERR: list[int] = []  # the file that messages go to while pytest captures the usual one


def pytest_configure(config: pytest.Config) -> None:
    """Keeps standard error, as it is before tests run."""
    STDERR.append(os.dup(2 if sys.__stderr__ is None else sys.__stderr__.fileno()))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Each GPU test has a time limit: @pytest.mark.gpu(limit=seconds)."""
    marker = item.get_closest_marker("gpu")
    if marker is None:
        return (yield)
    with watchdog(item.nodeid, marker.kwargs.get("limit", LIMIT), STDERR[0]):
        return (yield)
