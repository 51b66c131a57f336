"""Launching a compiled kernel on the stream that is current, without waiting for it.

Knows the driver: modules, the argument buffer, streams, limits and errors. An argument is either an
array object of tensor.py (run) or the caller's own torch or CuPy array (the quick way). It must not
know Python source or C++ text. CuPy and torch are imported inside functions only.
"""

from __future__ import annotations

import ctypes
import struct
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from tklearn.cuda import pool
from tklearn.cuda.compile import Cubin, compile_source
from tklearn.cuda.emit import emit
from tklearn.cuda.needs import hopper_only, tma_tiles
from tklearn.cuda.tma import MAP_BYTES, Maps
from tklearn.lang import ir
from tklearn.lang.errors import LaunchError
from tklearn.lang.types import GL, Scalar
from tklearn.report import Report

# How each parameter lies in the argument buffer: struct letters, bytes, alignment. An array is the
# header's gl: pointer, dim[4], stride[3] in elements.
GL_LAYOUT = ("Qiiiiqqq", 48, 8)
SCALAR_LAYOUT = {
    "i32": ("i", 4, 4),
    "u32": ("I", 4, 4),
    "i64": ("q", 8, 8),
    "f32": ("f", 4, 4),
    "bool": ("?", 1, 1),
}
MAP_ALIGN = 64  # of an array with tensor maps, and where they begin in it
NO_MAPS: Mapping[ir.Sym, Sequence[Any]] = MappingProxyType({})
DEFAULT_SHARED = 48 * 1024  # more has to be asked for
MAX_GRID = (2**31 - 1, 65535, 65535)
NO_CONTEXT = 201
# Driver errors after which every call of the process fails.
STICKY = {
    700: "an illegal memory access", 702: "a time-out", 710: "a failed assert",
    714: "a hardware stack error", 715: "an illegal instruction", 716: "a misaligned address",
    717: "an address of the wrong kind", 718: "an invalid program counter", 719: "a failed launch",
    999: "an unknown error",
}  # fmt: skip


def argument_format(
    params: list[ir.Sym], maps: Mapping[ir.Sym, Sequence[Any]] = NO_MAPS
) -> struct.Struct:
    """The argument buffer of a kernel, with the padding that C++ puts between parameters.

    maps: the tensor maps (their tiles) that follow an array's own fields.
    """
    text, at = "<", 0
    for p in params:
        letters, size, align = (
            GL_LAYOUT if isinstance(p.type, GL) else SCALAR_LAYOUT[p.type.dtype.name]
        )
        if n := MAP_BYTES * len(maps.get(p, ())):
            letters, size, align = f"{letters}{MAP_ALIGN - size}x{n}s", MAP_ALIGN + n, MAP_ALIGN
        pad = -at % align
        text += "x" * pad + letters
        at += pad + size
    return struct.Struct(text)


def argument_offsets(
    params: list[ir.Sym], maps: Mapping[ir.Sym, Sequence[Any]] = NO_MAPS
) -> list[int]:
    """Where each parameter lies in the argument buffer."""
    ends = [argument_format(params[: i + 1], maps).size for i in range(len(params))]
    sizes = [argument_format([p], maps).size for p in params]
    return [end - size for end, size in zip(ends, sizes, strict=True)]


def gl_fields(ptr: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    """The fields of the header's gl for an array of 1 to 4 dimensions."""
    n = len(shape)
    if n == 2:
        return ptr, 1, 1, shape[0], shape[1], 0, 0, strides[0]
    if n == 1:
        return ptr, 1, 1, 1, shape[0], 0, 0, 0
    return ptr, *(1,) * (4 - n), *shape, *(0,) * (4 - n), *strides[:-1]


def check_grid(grid: tuple[int, int, int]) -> None:
    """TK407 for a grid that the driver refuses."""
    if grid[0] > MAX_GRID[0] or grid[1] > MAX_GRID[1] or grid[2] > MAX_GRID[2] or min(grid) < 0:
        raise LaunchError(
            "TK407",
            f"a grid of {grid} is not possible",
            hint="x is below 2**31, y and z are at most 65535, none is negative",
        )


def gpu_error(e: Exception, what: str) -> LaunchError:
    """What the learner is told for an error of the driver."""
    status = getattr(e, "status", None)
    if status in STICKY:
        return LaunchError(
            "TK424",
            f"the CUDA context is lost: {what} met {STICKY[status]} ({e}), "
            "perhaps of an earlier kernel",
            hint="restart the kernel (Jupyter: Kernel > Restart): every CUDA call of this process "
            "fails from now on. Before the next try, find the line with kernel.sim[grid](...)",
        )
    return LaunchError(
        "TK400", f"{what} failed: {e}", hint="tk.doctor() says what this machine can do"
    )


# --------------------------------------------------------------------------------------- devices
@cache
def device_facts(device: int) -> tuple[str, int, int]:
    """A GPU's name, compute capability (90) and most shared bytes of a block. Error TK420."""
    try:
        from cupy.cuda import runtime

        props = runtime.getDeviceProperties(device)
        optin = runtime.deviceGetAttribute(runtime.cudaDevAttrMaxSharedMemoryPerBlockOptin, device)
    except ImportError as e:
        raise LaunchError(
            "TK420",
            "a launch on the GPU needs CuPy, which is not installed",
            hint="pip install 'tklearn[gpu]'; tklearn doctor names the right extra",
        ) from e
    except RuntimeError as e:
        raise LaunchError(
            "TK420",
            f"there is no GPU {device} that CUDA can use ({e})",
            hint="tklearn doctor says what is missing; arrays in host memory run on the simulator",
        ) from e
    name = props["name"]
    return (
        (name.decode() if isinstance(name, bytes) else name),
        10 * props["major"] + props["minor"],
        optin,
    )


def device_name(device: int = 0) -> str:
    """The GPU's name, as the driver has it."""
    return device_facts(device)[0]


def driver_version() -> str:
    """The newest CUDA version that the driver runs, such as "13.0"."""
    from cupy.cuda import runtime

    version = runtime.driverGetVersion()
    return f"{version // 1000}.{version % 1000 // 10}"


def to_device(a: np.ndarray) -> Any:
    """A NumPy array copied to the current GPU: CuPy's, or torch's where CuPy lacks the dtype."""
    bits = {"bfloat16": "int16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8"}.get(a.dtype.name)
    if bits is None:
        import cupy

        return cupy.asarray(a)
    try:
        import torch
    except ImportError as e:
        raise LaunchError(
            "TK401",
            f"CuPy has no {a.dtype.name}, and torch, which has it, is not installed",
            hint="pip install 'tklearn[torch]'",
        ) from e
    raw = torch.from_numpy(np.ascontiguousarray(a).view(bits))
    return raw.cuda().view(getattr(torch, a.dtype.name))


def check_device(spec: ir.Kernel, device: int) -> None:
    """TK422 for a GPU that is too old, TK408 for one with too little shared memory, TK409 where
    warpgroups would wait for registers for ever."""
    name, capability, limit = device_facts(device)
    if spec.arch > capability:
        raise LaunchError(
            "TK422",
            f"'{spec.name}' needs an sm_{spec.arch} GPU; {name} is sm_{capability}",
            spec.arch_loc,
            "the simulator runs it on any machine; other dtypes may need less",
        )
    only = hopper_only(spec) if capability > 90 else None
    if only is not None:
        raise LaunchError(
            "TK422",
            f"'{spec.name}' needs an sm_90a GPU (H100, H200); {name} is sm_{capability}, "
            "which has neither wgmma nor its register pool",
            only,
            "warp.mma_AB and its kin run on every GPU from sm_80",
        )
    if spec.shared_bytes > limit:
        raise LaunchError(
            "TK408",
            f"'{spec.name}' needs {spec.shared_bytes} bytes of shared memory; "
            f"{name} gives a block at most {limit}",
            spec.shared[-1].loc if spec.shared else None,
            "take smaller tiles or fewer stages",
        )
    if wrong := pool.problem(spec):
        raise LaunchError("TK409", *wrong)


def current_stream(device: int, torch: Any) -> int:
    """The raw stream that is current: torch's for torch arrays, else CuPy's."""
    if torch is not None:
        stream: int = torch._C._cuda_getCurrentRawStream(device)
        return stream
    from cupy.cuda import get_current_stream

    return get_current_stream().ptr  # type: ignore[no-any-return]


# -------------------------------------------------------------------------------------- launchers
class Launcher:
    """One specialised kernel, loaded on one GPU.

    Attributes: `cubin` with what ptxas said of it; `device`; `handle` the driver's function;
    `buffer` the arguments in `format`, which the driver copies at a launch, and its `lock`; `maps`
    the tensor maps of each parameter that TMA works on, else None; `arguments` what the driver is
    given for them (kernelParams, extra).
    """

    def __init__(self, spec: ir.Kernel, device: int, counting: bool = False) -> None:
        check_device(spec, device)
        _, capability, _ = device_facts(device)
        self.cubin: Cubin = compile_source(emit(spec), capability, counting=counting)
        self.device = device
        self.name, self.threads, self.shared = spec.name, spec.threads, spec.shared_bytes
        self.file, self.first_line = spec.file, spec.loc.line
        self.arrays = tuple(isinstance(p.type, GL) for p in spec.params)
        self.written = tuple(i for i, p in enumerate(spec.params) if p.written)
        self.itemsizes = tuple(p.type.dtype.itemsize for p in spec.params)
        self._load()
        tiles, stored = tma_tiles(spec), tma_tiles(spec, stored=True)
        self.maps = tuple(
            Maps(p.name, p.loc, tiles[p], p in stored) if p in tiles else None for p in spec.params
        )
        self.format = argument_format(spec.params, tiles)
        self.lock = threading.Lock()
        size = self.format.size
        self._memory = ctypes.create_string_buffer(size + MAP_ALIGN)
        start = -ctypes.addressof(self._memory) % MAP_ALIGN
        self.buffer = (ctypes.c_char * max(1, size)).from_buffer(self._memory, start)
        self._size = ctypes.c_size_t(size)
        if any(self.maps):
            # ptxas aligns such parameters in its own way, which the driver knows: one pointer each.
            at = [ctypes.addressof(self.buffer) + o for o in argument_offsets(spec.params, tiles)]
            self._extra = (ctypes.c_void_p * len(at))(*at)
            self.arguments = ctypes.addressof(self._extra), 0
        else:
            # CU_LAUNCH_PARAM_BUFFER_POINTER, _SIZE, _END: the whole argument buffer in one piece.
            self._extra = (ctypes.c_void_p * 5)(
                1, ctypes.addressof(self.buffer), 2, ctypes.addressof(self._size), 0
            )
            self.arguments = 0, ctypes.addressof(self._extra)

    def _load(self) -> None:
        import cupy
        from cupy_backends.cuda.api import driver

        try:
            with cupy.cuda.Device(self.device):
                self._module = cupy.cuda.function.Module()
                self._module.load(self.cubin.image)
                self.handle: int = self._module.get_function(self.cubin.entry).ptr
                if self.shared > DEFAULT_SHARED:
                    driver.funcSetAttribute(
                        self.handle,
                        driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                        self.shared,
                    )
        except RuntimeError as e:
            raise gpu_error(e, f"loading '{self.name}'") from e
        self.driver_launch = driver.launchKernel
        self.get_device = cupy.cuda.runtime.getDevice

    def array_fields(
        self, i: int, ptr: int, shape: tuple[int, ...], strides: tuple[int, ...]
    ) -> tuple[Any, ...]:
        """The fields of the array that is argument i. Error TK402 if TMA cannot work on it."""
        fields = gl_fields(ptr, shape, strides)
        maps = self.maps[i]
        return fields if maps is None else (*fields, maps(ptr, shape, strides))

    def launch_packed(self, grid: tuple[int, int, int], stream: int) -> None:
        """Launch with what lies in `buffer`; the caller holds `lock` and has the device current."""
        rest = (*self.threads, self.shared, stream, *self.arguments)
        try:
            self.driver_launch(self.handle, *grid, *rest)
        except RuntimeError as e:
            if getattr(e, "status", None) != NO_CONTEXT:
                raise gpu_error(e, f"the launch of '{self.name}'") from e
            from cupy.cuda import runtime

            runtime.setDevice(self.device)  # a thread that has not used CUDA before
            self.driver_launch(self.handle, *grid, *rest)

    def enqueue(self, grid: tuple[int, int, int], values: list[Any], stream: int) -> None:
        """Put one launch on a stream; nothing is allocated and nothing waits."""
        if self.get_device() != self.device:
            import cupy

            with cupy.cuda.Device(self.device):
                return self.enqueue(grid, values, stream)
        with self.lock:
            self.format.pack_into(self.buffer, 0, *values)
            self.launch_packed(grid, stream)

    def report(self, grid: tuple[int, int, int], timer: Callable[[], float] | None) -> Report:
        """The report of a launch; it is timed only when its seconds are read."""
        return Report(
            self.name,
            "cuda",
            device_name(self.device),
            grid,
            self.threads,
            self.file,
            self.first_line,
            compiled=self.cubin.facts,
            timer=timer,
        )

    def timer(
        self, grid: tuple[int, int, int], values: list[Any], objects: Sequence[Any], torch: Any
    ) -> Callable[[], float]:
        """Measures this launch later, on copies of what it writes. `objects`: its arguments."""

        def seconds() -> float:
            from tklearn.cuda.profile import scratch, time_launches

            stream = current_stream(self.device, torch)
            fields, keep = scratch(self, values, objects)
            try:
                return time_launches(lambda s: self.enqueue(grid, fields, s), stream, self.device)
            except RuntimeError as e:
                raise gpu_error(e, f"timing '{self.name}'") from e
            finally:
                del keep

        return seconds


_launchers: WeakKeyDictionary[ir.Kernel, dict[tuple[int, bool], Launcher]] = WeakKeyDictionary()


def launcher(spec: ir.Kernel, device: int, counting: bool = False) -> Launcher:
    """The launcher of this specialisation on this GPU; compiled and loaded the first time."""
    kept = _launchers.setdefault(spec, {})
    if (device, counting) not in kept:
        kept[device, counting] = Launcher(spec, device, counting)
    return kept[device, counting]


def run(
    spec: ir.Kernel,
    grid: tuple[int, int, int],
    arguments: list[Any],
    where: str,
    counting: bool = False,
) -> Report:
    """Launch `spec` on the current stream of `where` ("cuda:0").

    arguments: array objects (ptr, shape, strides, size, library, obj) and numbers, checked already.
    Errors: TK407, TK408, TK420 to TK424.
    """
    check_grid(grid)
    one = launcher(spec, int(where.partition(":")[2] or 0), counting)
    values: list[Any] = []
    objects: list[Any] = []
    torch = None
    for i, (p, a) in enumerate(zip(spec.params, arguments, strict=True)):
        if isinstance(p.type, GL):
            values += one.array_fields(i, a.ptr if a.size else 0, tuple(a.shape), tuple(a.strides))
            objects.append(a.obj)
            torch = torch or (sys.modules["torch"] if a.library == "torch" else None)
        else:
            values.append(number(p.type, a))
            objects.append(a)
    if 0 in grid:
        return one.report(grid, None)
    one.enqueue(grid, values, current_stream(one.device, torch))
    return one.report(grid, one.timer(grid, values, objects, torch))


def object_values(one: Launcher, objects: tuple[Any, ...]) -> list[Any]:
    """The flat fields of run-time arguments: the caller's own arrays and numbers."""
    values: list[Any] = []
    for i, (is_array, a) in enumerate(zip(one.arrays, objects, strict=True)):
        if not is_array:
            values.append(a)
        elif hasattr(a, "data_ptr"):
            values += one.array_fields(i, a.data_ptr(), tuple(a.shape), a.stride())
        else:
            strides = tuple(s // a.itemsize for s in a.strides)
            values += one.array_fields(i, a.data.ptr, a.shape, strides)
    return values


def number(t: Any, v: Any) -> Any:
    """A Python number as struct packs it for a parameter of type t."""
    assert isinstance(t, Scalar)
    if t.dtype.kind == "f":
        try:
            struct.pack("<f", v)
        except OverflowError:  # as a conversion to float32 does
            return float("inf") if v > 0 else float("-inf")
    return v
