"""tklearn: write one GPU kernel in tiles, run it on a simulator and on a GPU.

The public names, nothing else. `import tklearn as tk` loads neither CuPy nor torch.
"""

from tklearn import access as access
from tklearn.comparison import compare
from tklearn.doctor import doctor
from tklearn.explained import explain
from tklearn.kernel import Kernel, device, intrinsic, kernel, torch_op
from tklearn.lang.errors import Deadlock, KernelFault, LaunchError, Race, SourceError, TkError
from tklearn.lang.names import (
    DeviceName,
    arrive,
    block,
    blockDim,
    blockIdx,
    gridDim,
    init_semaphore,
    invalidate_semaphore,
    laneid,
    threadIdx,
    tma,
    wait,
    warp,
    warpgroup,
    warpid,
)
from tklearn.lang.types import (
    bf16,
    col,
    col_vec,
    const,
    e4m3,
    e5m2,
    f16,
    f32,
    gl,
    gl_bf,
    gl_fl,
    gl_hf,
    i32,
    i64,
    reg_array,
    ring,
    row,
    row_vec,
    rt,
    rt_bf,
    rt_fl,
    rt_hf,
    rv,
    semaphore,
    st,
    st_bf,
    st_fl,
    st_hf,
    sv,
    u8,
    u32,
)
from tklearn.lang.types import bool_ as bool_
from tklearn.tuning import tune

__version__ = "0.1.0"

# What only a kernel can say. The op table (docs/language.md) describes each.
shared, shared_array, alias = (DeviceName(n) for n in ("shared", "shared_array", "alias"))
static_range, vec, fma = (DeviceName(n) for n in ("static_range", "vec", "fma"))
commit_group, wait_group = DeviceName("commit_group"), DeviceName("wait_group")
exp, exp2, log, log2 = (DeviceName(n) for n in ("exp", "exp2", "log", "log2"))
sqrt, rsqrt, rcp, tanh = (DeviceName(n) for n in ("sqrt", "rsqrt", "rcp", "tanh"))
sin, cos, relu, cdiv = (DeviceName(n) for n in ("sin", "cos", "relu", "cdiv"))
row_max, row_min, row_sum = (DeviceName(n) for n in ("row_max", "row_min", "row_sum"))
col_max, col_min, col_sum = (DeviceName(n) for n in ("col_max", "col_min", "col_sum"))
abs, max, min, sum = (DeviceName(n) for n in ("abs", "max", "min", "sum"))
copy, convert, swap_layout, transpose = (
    DeviceName(n) for n in ("copy", "convert", "swap_layout", "transpose")
)
atomic_add, atomic_max, atomic_min = (
    DeviceName(n) for n in ("atomic_add", "atomic_max", "atomic_min")
)
atomic_exch, atomic_cas = DeviceName("atomic_exch"), DeviceName("atomic_cas")


_COURSE = {"check": "check", "hint": "check", "predict": "check", "submit": "submit"}


def __getattr__(name: str) -> object:
    """What is imported when first used: two modules, and what the course adds."""
    import importlib

    if name in ("access", "numerics"):
        return importlib.import_module(f"tklearn.{name}")
    if name in _COURSE:
        return getattr(importlib.import_module(f"tklearn.course.{_COURSE[name]}"), name)
    raise AttributeError(f"module 'tklearn' has no attribute {name!r}")


# `from tklearn import *` must not take Python's own abs, max, min and sum away.
__all__ = [n for n in dir() if not n.startswith("_") and n not in ("abs", "max", "min", "sum")]
__all__ += _COURSE
