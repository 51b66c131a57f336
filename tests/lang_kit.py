"""Kernels written to a file of their own, as a learner would, for the tests of the language."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import tklearn as tk
from tklearn.kernel import Kernel
from tklearn.lang import ir
from tklearn.lang import types as T

HEAD = """import math
import numpy as np
import tklearn as tk
from tklearn import block, blockDim, blockIdx, gridDim, laneid, threadIdx, warp, warpid, \
arrive, init_semaphore, invalidate_semaphore, tma, wait, warpgroup
N = 4
"""


def load(folder: Path, text: str, name: str = "learner", head: str = HEAD) -> ModuleType:
    """A module with this text; its kernel is called k."""
    path = folder / f"{name}.py"
    path.write_text(head + text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def typed(k: Kernel, **consts: Any) -> ir.Kernel:
    """The IR of a kernel, its arrays' dimensions taken from how it indexes them."""
    static = {
        n: consts.get(n, k.defaults.get(n))
        for n, t in k.params.items()
        if isinstance(t, T.ConstType)
    }
    return k.specialise(k.types_of(static), static)


def message(folder: Path, text: str) -> str:
    """What a learner reads when this kernel is defined and specialised; "" if nothing."""
    try:
        typed(load(folder, text).k)
    except tk.TkError as e:
        return str(e).replace(str(folder) + "/", "")
    return ""


def result(folder: Path, text: str, *args: Any, n: int = 8, dtype: Any = np.float32) -> list[Any]:
    """What the kernel k(y, *args) writes into n elements of y; one block on the simulator."""
    y = np.zeros(n, dtype)
    load(folder, text).k.sim[1](y, *args)
    return y.tolist()
