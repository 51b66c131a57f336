"""tk.tune: all choices measured, the best kept, those that cannot run told."""

import types

import numpy as np
import pytest

import tklearn as tk
from tklearn import tuning
from tklearn.lang.errors import LaunchError


class Fake:
    """A kernel whose measured time is known."""

    __name__ = "fake"

    def __init__(self) -> None:
        self.gpu = self
        self.grids: list = []

    def __getitem__(self, grid):
        self.grids.append(grid)

        def run(*args, BM, S):
            if BM == 256:
                raise LaunchError("TK409", "too many registers")
            if BM == 1:
                raise LaunchError("TK400", "wrong")
            return types.SimpleNamespace(seconds=BM * S * 1e-6)

        return run


@pytest.fixture(autouse=True)
def on_a_gpu(monkeypatch):
    monkeypatch.setattr(tuning.tensor, "describe", lambda a: types.SimpleNamespace(device="cuda:0"))


def test_the_fastest_is_first() -> None:
    k = Fake()
    found = tuning.tune(k, {"BM": (128, 64, 256), "S": (3, 2)}, (1,), grid=lambda BM, S: BM)
    assert found.best == {"BM": 64, "S": 2}
    assert [c.seconds for c in found.tried[:4]] == sorted(c.seconds for c in found.tried[:4])
    assert [c.why for c in found.tried[4:]] == ["TK409: too many registers"] * 2
    assert k.grids == [128, 128, 64, 64, 256, 256]
    assert "128.00 us  BM=64, S=2" in str(found)


def test_a_list_of_choices() -> None:
    found = tuning.tune(Fake(), [{"BM": 64, "S": 1}, {"BM": 32, "S": 1}], (1,), grid=1)
    assert found.best == {"BM": 32, "S": 1}


def test_mistakes_are_not_swallowed() -> None:
    with pytest.raises(LaunchError, match="TK400: wrong"):
        tuning.tune(Fake(), {"BM": (1,), "S": (1,)}, (1,), grid=1)
    with pytest.raises(LaunchError, match="no choice for fake can run: TK409"):
        tuning.tune(Fake(), {"BM": (256,), "S": (1,)}, (1,), grid=1)
    with pytest.raises(LaunchError, match="the space is empty"):
        tuning.tune(Fake(), {"BM": ()}, (1,), grid=1)


def test_without_a_gpu(monkeypatch) -> None:
    monkeypatch.undo()

    @tk.kernel(threads=32)
    def nothing(x: tk.gl_fl, N: tk.const):
        x[0] = float(N)

    with pytest.raises(LaunchError) as e:
        tk.tune(nothing, {"N": (1, 2)}, (np.zeros(1, np.float32),), grid=1)
    assert e.value.code == "TK420"


@pytest.mark.gpu
def test_on_a_gpu(monkeypatch) -> None:
    monkeypatch.undo()
    import cupy

    @tk.kernel(threads=32)
    def spin(x: tk.gl_fl, N: tk.const):
        v = x[0]
        for _i in range(N):
            v = v * 1.5 - v
        x[0] = v

    x = cupy.ones(1, dtype=cupy.float32)
    found = tk.tune(spin, {"N": (20000, 10)}, (x,), grid=1)
    assert found.best == {"N": 10}
