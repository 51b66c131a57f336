"""Device names: what a kernel calls but plain Python cannot run.

A name only carries its path ("warp.load"). Every Python operator on it raises, so that nothing in a
kernel is folded by accident, and calling one outside a kernel says what to do.
"""

from __future__ import annotations

from tklearn.lang.errors import SourceError


class DeviceName:
    """A dotted path known to the front end."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __getattr__(self, name: str) -> DeviceName:
        if name.startswith("_"):  # Python and Jupyter ask for such names
            raise AttributeError(name)
        return DeviceName(f"{self.path}.{name}")

    def __repr__(self) -> str:
        return f"tk.{self.path}"

    def _outside(self, *_: object, **__: object):
        raise SourceError(
            "TK107",
            f"tk.{self.path} has a meaning only inside a kernel",
            hint="use it in a function marked @tk.kernel or @tk.device",
        )

    __call__ = __getitem__ = __iter__ = __len__ = __bool__ = __int__ = __float__ = __index__ = (
        _outside
    )
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = _outside  # type: ignore[assignment]
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = (
        _outside
    )
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = __neg__ = __abs__ = (
        _outside
    )
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __lshift__ = __rshift__ = _outside
    __invert__ = __matmul__ = __rmatmul__ = _outside
    __hash__ = object.__hash__


warp, block = DeviceName("warp"), DeviceName("block")
warpgroup, tma = DeviceName("warpgroup"), DeviceName("tma")
init_semaphore, invalidate_semaphore = (
    DeviceName("init_semaphore"),
    DeviceName("invalidate_semaphore"),
)
wait, arrive = DeviceName("wait"), DeviceName("arrive")
threadIdx, blockIdx = DeviceName("threadIdx"), DeviceName("blockIdx")
blockDim, gridDim = DeviceName("blockDim"), DeviceName("gridDim")
laneid, warpid = DeviceName("laneid"), DeviceName("warpid")
SPECIALS = {f"{n}.{a}" for n in ("threadIdx", "blockIdx", "blockDim", "gridDim") for a in "xyz"}
SPECIAL_CALLS = {
    "laneid",
    "warpid",
    "warpgroup.groupid",
    "warpgroup.warpid",
    "warpgroup.laneid",
}
