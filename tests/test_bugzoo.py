"""Each planted fault is reported at its line, whatever the schedule; its correct twin is silent."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from bugzoo import KERNELS, zoo
from bugzoo.zoo import ZOO, Fault

import tklearn as tk

assert KERNELS

SEEDS = 20


def schedules(f: Fault):
    """Options of the runs: three orders, twenty seeds, and each warp late."""
    yield {}
    yield {"schedule": "reverse"}
    for seed in range(SEEDS):
        yield {"schedule": "random", "seed": seed}
    for warp in range(warps(f)):
        yield {"delay": {warp: 3}}


@functools.cache
def _warps(make) -> int:
    threads = make(True).threads
    return -(-int(np.prod(threads)) // 32)


def warps(f: Fault) -> int:
    return _warps(f.make)


def report(f: Fault, good: bool, **options):
    """(the report or None, the arguments after the run)."""
    args = (f.twin_args if good else f.args)()
    try:
        f.launch(good, args, **options)
    except tk.TkError as e:
        return e, args
    return None, args


@pytest.mark.parametrize("name", ZOO)
def test_fault(name):
    f = ZOO[name]
    for options in schedules(f):
        e, _ = report(f, False, **options)
        assert e is not None, options
        assert e.code in f.codes, (options, str(e))
        assert isinstance(e, f.error), (options, type(e), str(e))
        assert not zoo.misplaced(f, e), (options, zoo.misplaced(f, e), str(e))
        assert any(x in e.hint for x in f.hint.split("|")), (options, str(e))
        if isinstance(e, tk.SourceError | tk.LaunchError):
            break


@pytest.mark.parametrize("name", ZOO)
def test_twin(name):
    f = ZOO[name]
    for options in schedules(f):
        e, args = report(f, True, **options)
        assert e is None, (options, str(e))
        if f.want is not None:
            want = np.asarray(f.want(*args)).astype(args[-1].dtype)
            np.testing.assert_array_equal(args[-1], want, err_msg=str(options))
