"""What this machine can do, in one screen: `tklearn doctor`, `tk.doctor()`.

This layer knows operating systems, packages and drivers, and nothing about kernels. It imports
only the standard library, and no module of tklearn, because `./course` loads this file by its path
before anything is installed. It never imports CuPy or torch: their versions are read from package
metadata, and the CUDA driver is asked in a child process that is given up after a few seconds, so
a broken driver can neither crash nor hang the caller.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

TIMEOUT_S = 6.0
"""Longest wait for one child process, in seconds (a cold driver needs 1 to 3)."""

OLDEST_SM = 75
"""Smallest compute capability (10 * major + minor) that the CUDA backend compiles for."""

RECORDED = Path(__file__).with_name("recorded")

CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

# Runs in a child. cuDriverGetVersion answers 1000 * major + 10 * minor; attributes 75 and 76 are
# the compute capability (CUDA driver API, CUdevice_attribute).
_ASK_DRIVER = r"""
import ctypes, json, sys
names = ["nvcuda.dll"] if sys.platform == "win32" else ["libcuda.so.1", "libcuda.so"]
lib = None
for name in names:
    try:
        lib = ctypes.CDLL(name)
        break
    except OSError:
        pass
if lib is None:
    print(json.dumps({"problem": "no driver"}))
    sys.exit()
n, version, gpus = ctypes.c_int(), ctypes.c_int(), []
lib.cuDriverGetVersion(ctypes.byref(version))
code = lib.cuInit(0)
if code == 0:
    lib.cuDeviceGetCount(ctypes.byref(n))
    for i in range(n.value):
        name, memory = ctypes.create_string_buffer(200), ctypes.c_size_t()
        major, minor = ctypes.c_int(), ctypes.c_int()
        lib.cuDeviceGetName(name, 200, i)
        lib.cuDeviceTotalMem_v2(ctypes.byref(memory), i)
        lib.cuDeviceGetAttribute(ctypes.byref(major), 75, i)
        lib.cuDeviceGetAttribute(ctypes.byref(minor), 76, i)
        gpus.append([name.value.decode(), 10 * major.value + minor.value, memory.value])
problem = "" if code == 0 else "cuInit failed with code %d" % code
tma = hasattr(lib, "cuTensorMapEncodeTiled")
print(json.dumps({"version": version.value, "gpus": gpus, "problem": problem, "tma": tma}))
"""


def run_quick(command: list[str], timeout_s: float = TIMEOUT_S) -> str | None:
    """Standard output of `command`, or None if it is missing, fails, or takes too long.

    A child that ignores the kill (stuck in a driver) is left behind, never waited for.
    """
    try:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
    except OSError:
        return None
    try:
        out, _ = child.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        child.kill()
        return None
    return out.decode(errors="replace") if child.returncode == 0 else None


def installed_version(distribution: str) -> str | None:
    """Version of an installed distribution, without importing it; None if it is not there."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


@dataclass(frozen=True)
class Look:
    """The four ways in which the doctor looks at a machine; tests put fakes in their place."""

    which: Callable[[str], str | None] = shutil.which
    run: Callable[[list[str]], str | None] = run_quick
    version: Callable[[str], str | None] = installed_version
    env: Mapping[str, str] = field(default_factory=lambda: os.environ)
    system: str = sys.platform
    recorded: Path = RECORDED


@dataclass(frozen=True)
class Gpu:
    """One NVIDIA GPU: its name, compute capability (90 for 9.0) and memory in bytes."""

    name: str
    sm: int
    memory_bytes: int


@dataclass(frozen=True)
class Driver:
    """The CUDA driver: newest CUDA it runs, as (major, minor), its GPUs, or what is wrong.

    `tma`: it has cuTensorMapEncodeTiled, which describes arrays to the copy engine.
    """

    cuda: tuple[int, int] | None = None
    gpus: tuple[Gpu, ...] = ()
    problem: str = ""
    tma: bool = False

    @property
    def extra(self) -> str | None:
        """The extra of pyproject.toml for this driver: "gpu", "gpu12", or None without a GPU."""
        if not self.gpus or self.cuda is None or self.cuda < (12, 0):
            return None
        return "gpu" if self.cuda >= (13, 0) else "gpu12"


@dataclass(frozen=True)
class Fact:
    """One line of the table. `found` is False where the thing is missing."""

    name: str
    text: str
    found: bool = True


@dataclass(frozen=True)
class Skip:
    """Something this machine will leave out, why, and what to do about it ("" if nothing)."""

    what: str
    why: str
    remedy: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """What `doctor()` found. `print(diagnosis)` is the screen; the fields are for programs.

    Attributes:
        can: "simulator", "simulator + GPU" or "simulator + recorded GPU numbers".
        extra: the extra that fits the driver ("gpu", "gpu12"), or None.
        facts: the table, in order.
        skips: what will be left out here.
        driver: the CUDA driver and its GPUs.
        compiles: CuPy and NVRTC are installed, so kernels compile (a GPU is not needed for that).
    """

    can: str
    extra: str | None
    facts: tuple[Fact, ...]
    skips: tuple[Skip, ...]
    driver: Driver
    compiles: bool

    def __str__(self) -> str:
        width = max(len(fact.name) for fact in self.facts)
        lines = [f"This machine can: {self.can}", ""]
        lines += [
            f"  {'ok' if fact.found else '--'}  {fact.name:<{width}}  {fact.text}"
            for fact in self.facts
        ]
        if self.skips:
            lines += ["", "Left out here (the simulator needs none of it):"]
        for skip in self.skips:
            lines.append(f"  {skip.what}: {skip.why}")
            if skip.remedy:
                lines.append(f"      -> {skip.remedy}")
        return "\n".join(lines)

    __repr__ = __str__


def ask_driver(look: Look | None = None) -> Driver:
    """Ask the CUDA driver for its version and GPUs, in a child process.

    Takes well under a second where there is no driver, and at most `TIMEOUT_S` seconds.
    """
    look = look or Look()
    if look.system == "darwin":
        return Driver(problem="macOS has no CUDA")
    answer = look.run([sys.executable, "-c", _ASK_DRIVER])
    if answer is None:
        return Driver(problem=f"the CUDA driver did not answer within {TIMEOUT_S:.0f} s")
    try:
        said = json.loads(answer)
    except json.JSONDecodeError:
        return Driver(problem=f"the CUDA driver gave an unreadable answer: {answer[:80]!r}")
    if "version" not in said:
        return Driver(problem="no NVIDIA driver on this machine")
    version = int(said["version"])
    cuda = (version // 1000, version % 1000 // 10) if version else None
    gpus = tuple(Gpu(str(name), int(sm), int(memory)) for name, sm, memory in said["gpus"])
    problem = str(said["problem"])
    if not gpus and not problem:
        problem = "the NVIDIA driver sees no GPU"
    return Driver(cuda, gpus, problem, bool(said.get("tma")))


def find_chromium(look: Look | None = None) -> str | None:
    """Path of a Chromium or Chrome that the browser tests can drive, or None."""
    look = look or Look()
    return next((path for name in CHROMIUM_NAMES if (path := look.which(name))), None)


def bwrap_problem(look: Look | None = None) -> str:
    """Why bubblewrap cannot make a sandbox here; "" when it can (it is tried, about 10 ms)."""
    look = look or Look()
    if not look.system.startswith("linux"):
        return "bubblewrap is for Linux only"
    bwrap = look.which("bwrap")
    if bwrap is None:
        return "bwrap is not installed"
    if look.run([bwrap, "--unshare-all", "--ro-bind", "/", "/", "true"]) is None:
        return "bwrap may not make namespaces here (a container or kernel setting forbids it)"
    return ""


def _packages(look: Look, *names: str) -> str:
    """The installed ones of `names`, as "name version, ..."."""
    found = [(name, look.version(name)) for name in names]
    return ", ".join(f"{name} {version}" for name, version in found if version)


def _major(text: str) -> int:
    return int(text.split(".")[0])


def _cuda_parts(look: Look, driver: Driver, install: str) -> tuple[list[Fact], list[Skip], bool]:
    """Facts on CuPy and NVRTC, what they leave out, and whether kernels compile."""
    cupys = ("cupy-cuda13x", "cupy-cuda12x", "cupy")
    cupy = _packages(look, *cupys)
    nvrtc = _packages(look, "nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12")
    headers = _packages(look, "nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12")
    facts = [
        Fact("CuPy", cupy or "not installed", bool(cupy)),
        Fact("NVRTC", nvrtc or "not installed", bool(nvrtc)),
        Fact("CUDA headers", headers or "not installed", bool(headers)),
    ]
    skips = []
    compiles = bool(cupy and nvrtc and headers)
    if look.system == "darwin":
        skips.append(Skip("compiling kernels", "CUDA has no macOS; source() and show() work"))
    elif not compiles:
        missing = ", ".join(fact.name for fact in facts if not fact.found)
        skips.append(
            Skip("compiling kernels", f"missing: {missing}; source() and show() work", install)
        )
    if sum(look.version(name) is not None for name in cupys) > 1:
        skips.append(Skip("CuPy", "two CuPy packages overwrite each other: uninstall one"))
    newest = max((_major(part.split()[1]) for part in nvrtc.split(", ") if part), default=0)
    if driver.gpus and driver.cuda and newest > driver.cuda[0]:
        why = f"NVRTC {newest} is newer than the driver's CUDA {driver.cuda[0]}.{driver.cuda[1]}"
        skips.append(Skip("running on the GPU", why, install))
        compiles = False
    return facts, skips, compiles


def _blas_threads(look: Look) -> Fact:
    name = "OPENBLAS_NUM_THREADS"
    value = look.env.get(name) or look.env.get("OMP_NUM_THREADS")
    cores = os.cpu_count() or 1
    if value == "1" or cores == 1:
        return Fact("BLAS threads", "1 (best for the simulator's small products)")
    return Fact("BLAS threads", f"{value or f'all {cores}'}; {name}=1 is faster for small tiles")


def _gpu_fact(look: Look, driver: Driver) -> Fact:
    if not driver.gpus:
        return Fact("GPU", driver.problem, False)
    gpu = driver.gpus[0]
    text = f"{gpu.name}, sm_{gpu.sm}, {gpu.memory_bytes / 2**30:.0f} GiB"
    if len(driver.gpus) > 1:
        text += f" (and {len(driver.gpus) - 1} more)"
    if driver.cuda:
        text += f"; driver runs CUDA {driver.cuda[0]}.{driver.cuda[1]}"
    smi = look.which("nvidia-smi")
    release = look.run([smi, "--query-gpu=driver_version", "--format=csv,noheader"]) if smi else ""
    if release and release.strip():
        text += f" (release {release.split()[0]})"
    return Fact("GPU", text)


def _hopper_fact(driver: Driver) -> Fact:
    """Whether kernels with TMA and wgmma run: sm_90a has both, newer GPUs TMA only."""
    name = "TMA, wgmma"
    if not driver.gpus:
        return Fact(name, "on the simulator only: no GPU", False)
    gpu = driver.gpus[0]
    if gpu.sm < 90:
        return Fact(name, f"on the simulator only: they need sm_90, this is sm_{gpu.sm}", False)
    if not driver.tma:
        why = "the driver has no cuTensorMapEncodeTiled (CUDA 12 brings it)"
        return Fact(name, f"on the simulator only: {why}", False)
    if gpu.sm > 90:
        return Fact(name, f"TMA yes, wgmma no: sm_{gpu.sm} lacks it (sm_90a has it: H100, H200)")
    return Fact(name, "both (sm_90a; the driver has cuTensorMapEncodeTiled)")


def _nvcc_fact(look: Look) -> Fact:
    nvcc = look.which("nvcc")
    said = look.run([nvcc, "--version"]) if nvcc else None
    if not nvcc:
        return Fact("nvcc", "not found (only kernel.export(...) builds need it)", False)
    release = next((line for line in (said or "").splitlines() if "release" in line), "")
    return Fact("nvcc", release.split("release")[-1].strip() or nvcc)


def _tool_parts(look: Look, course: str) -> tuple[list[Fact], list[Skip]]:
    """Facts on torch, numba, Jupyter, Chromium, bubblewrap; what their absence leaves out."""
    torch, lab = look.version("torch"), look.version("jupyterlab")
    numba, widgets = look.version("numba"), look.version("anywidget")
    chromium, playwright = find_chromium(look), look.version("playwright")
    bwrap = bwrap_problem(look)
    facts = [
        Fact("torch", torch or "not installed", bool(torch)),
        Fact("numba", numba or "not installed", bool(numba)),
        Fact("JupyterLab", lab or "not installed", bool(lab)),
        Fact("anywidget", widgets or "not installed", bool(widgets)),
        Fact("Chromium", chromium or "not found", bool(chromium)),
        Fact("bubblewrap", bwrap or "works", not bwrap),
    ]
    skips = []
    if not torch:
        skips.append(Skip("torch examples", "torch is not installed", f"{course} --extra torch"))
    if not numba:
        why = "numba is not installed; NumPy gives the same bits in four times the time"
        skips.append(Skip('fast mma="exact"', why, f"{course} --extra numba"))
    if not lab and not {"COLAB_RELEASE_TAG", "VSCODE_PID"} & set(look.env):
        skips.append(Skip("notebooks", "JupyterLab is not installed", course))
    if not widgets:
        skips.append(Skip("widgets", "anywidget is not installed; pictures come instead", course))
    if not (chromium and playwright):
        missing = [n for n, v in (("Chromium", chromium), ("playwright", playwright)) if not v]
        mend = "" if playwright else f"{course} --extra dev"
        skips.append(Skip("browser tests", f"missing: {', '.join(missing)}", mend))
    if bwrap:
        skips.append(Skip("sandboxed grading", bwrap))
    return facts, skips


def examine(look: Look) -> Diagnosis:
    """`doctor()` for a given way of looking."""
    course = "python course" if look.system == "win32" else "./course"
    driver = ask_driver(look)
    install = f"{course} --extra {driver.extra or 'gpu'}"
    cuda_facts, cuda_skips, compiles = _cuda_parts(look, driver, install)
    tool_facts, tool_skips = _tool_parts(look, course)
    numpy = look.version("numpy")
    facts = [
        Fact("system", f"{platform.platform()}, {os.cpu_count()} cores"),
        Fact("Python", f"{platform.python_version()} ({sys.executable})"),
        Fact("NumPy", numpy or "not installed", bool(numpy)),
        _blas_threads(look),
        _gpu_fact(look, driver),
        _hopper_fact(driver),
        *cuda_facts,
        _nvcc_fact(look),
        *tool_facts,
    ]
    skips = []
    recordings = sorted(look.recorded.glob("*.json")) if look.recorded.is_dir() else []
    able = [gpu for gpu in driver.gpus if gpu.sm >= OLDEST_SM]
    if able and compiles:
        can = "simulator + GPU"
    elif recordings:
        can = "simulator + recorded GPU numbers"
    else:
        can = "simulator"
    column = "the measured column comes from recordings" if recordings else "no measured column"
    if not driver.gpus:
        skips.append(Skip("running on a GPU", f"{driver.problem}; {column}"))
    elif not able:
        why = f"sm_{driver.gpus[0].sm} is older than sm_{OLDEST_SM}; {column}"
        skips.append(Skip("running on the GPU", why))
    elif driver.extra is None:
        why = f"the driver is older than CUDA 12; {column}"
        skips.append(Skip("running on the GPU", why, "update the NVIDIA driver"))
    return Diagnosis(
        can, driver.extra, tuple(facts), (*skips, *cuda_skips, *tool_skips), driver, compiles
    )


def doctor() -> Diagnosis:
    """Find out what this machine can do with tklearn, in about a second.

    Returns:
        A `Diagnosis`: printed, one screen; as data, what is here and what will be left out.
        Nothing heavy is imported and nothing is changed.
    """
    return examine(Look())
