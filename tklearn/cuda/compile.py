"""C++ to a cubin: NVRTC, a disk cache, and what ptxas says about the result.

Knows the compiler, its options and its messages, and maps both errors and figures back to the
learner's Python. A hit in the disk cache imports neither CuPy nor NVRTC. Needs no GPU. It must not
know how kernels are launched.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import os
import re
import sys
import tempfile
import time
import warnings
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tklearn.lang.errors import LaunchError

if TYPE_CHECKING:
    from tklearn.cuda.emit import Source

INCLUDE = Path(__file__).parent / "include"
# Products and sums are fused where the source says so, never by the compiler: both machines agree.
OPTIONS = ("-std=c++17", "-fmad=false", "--ptxas-options=-v")
CACHE_LIMIT = 256 << 20  # bytes on disk; the least recently used entries go first
_MAGIC = b"tklearn cubin 1\n"
_WHEELS = (
    ("nvidia-cuda-nvrtc", "nvidia-cuda-runtime"),
    ("nvidia-cuda-nvrtc-cu12", "nvidia-cuda-runtime-cu12"),
)


@dataclass(frozen=True)
class Facts:
    """What ptxas reports: per lane registers and bytes of spills and stack; static shared bytes."""

    registers: int = 0
    spill_stores: int = 0
    spill_loads: int = 0
    stack: int = 0
    shared: int = 0
    notes: tuple[str, ...] = ()  # ptxas warnings, such as a serialised wgmma

    @property
    def spills(self) -> bool:
        return self.spill_stores + self.spill_loads > 0

    def __str__(self) -> str:
        text = f"registers a lane: {self.registers}"
        if self.spills:
            text += f" (spills {self.spill_stores} bytes: take smaller tiles)"
        return text + "".join(f"; {n}" for n in self.notes)


@dataclass(frozen=True)
class Cubin:
    """A compiled kernel: `image` for the driver, the symbol `entry`, what ptxas says of it.

    `seconds`: time in the compiler when it was made; `cached`: it came from the disk this time.
    """

    image: bytes = field(repr=False)
    entry: str
    arch: int
    facts: Facts
    log: str = field(repr=False)
    seconds: float = 0.0
    cached: bool = False
    key: str = ""


def arch_name(arch: int) -> str:
    """80 is sm_80; 90 is sm_90a, which has TMA and wgmma and which CuPy does not choose."""
    return "sm_90a" if arch == 90 else f"sm_{arch}"


def compile_source(
    source: Source, arch: int, *, counting: bool = False, options: tuple[str, ...] = ()
) -> Cubin:
    """The cubin of `source` for an architecture (75, 80, 86, 89, 90, 120), cached.

    counting: element accesses are volatile, so that a profiler counts what the source says; with
    line numbers, so that it can say where.
    Errors: TK421 without NVRTC, TK423 if the C++ does not compile.
    """
    options = (*OPTIONS, *(("-DTK_COUNTING", "-lineinfo") if counting else ()), *options)
    key = cache_key(source.text, arch, options)
    made = _memory.get(key)
    if made is None:
        made = read_entry(key) or _build(source, arch, options, key)
        _memory[key] = made
    return made


_memory: dict[str, Cubin] = {}  # part of the kernel cache: this process's cubins


# ----------------------------------------------------------------------------------- the compiler
def first_line(e: Exception) -> str:
    """An exception in one line."""
    return f"{type(e).__name__}: {e}".splitlines()[0]


def load_nvrtc() -> Any:
    """CuPy's NVRTC module; TK421 says what to install if it, or the library, is missing."""
    try:
        from cupy.cuda import nvrtc

        nvrtc.getVersion()
    except (ImportError, RuntimeError, OSError) as e:
        raise LaunchError(
            "TK421",
            f"the CUDA compiler NVRTC cannot be loaded ({first_line(e)})",
            hint="pip install 'tklearn[gpu]' (or 'tklearn[gpu12]' for a CUDA 12 driver); "
            "tklearn doctor says which; the simulator works without it",
        ) from e
    return nvrtc


def include_dirs() -> tuple[str, ...]:
    """Our headers and the CUDA runtime's (the wheel's, else CUDA_PATH's or CUDA_HOME's)."""
    for _, wheel in _WHEELS:
        try:
            files = importlib.metadata.files(wheel) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        for f in files:
            if f.name == "cuda_bf16.h":
                return str(INCLUDE), str(Path(str(f.locate())).parent)
    for home in (os.environ.get("CUDA_PATH"), os.environ.get("CUDA_HOME"), "/usr/local/cuda"):
        if home and (Path(home) / "include" / "cuda_bf16.h").is_file():
            return str(INCLUDE), str(Path(home) / "include")
    raise LaunchError(
        "TK421",
        "the CUDA headers (cuda_bf16.h) that NVRTC needs cannot be found",
        hint="pip install 'tklearn[gpu]' brings them, or set CUDA_PATH to a CUDA toolkit",
    )


@functools.cache
def compiler_version() -> str:
    """NVRTC's version: the wheel's, which needs no CuPy, else what the library itself says."""
    for wheel, _ in _WHEELS:
        try:
            return f"{wheel} {importlib.metadata.version(wheel)}"
        except importlib.metadata.PackageNotFoundError:
            continue
    return "nvrtc {}.{}".format(*load_nvrtc().getVersion())


def _build(source: Source, arch: int, options: tuple[str, ...], key: str) -> Cubin:
    nvrtc = load_nvrtc()
    flags = (f"-arch={arch_name(arch)}", *options, *(f"-I{d}" for d in include_dirs()))
    name = f"{source.entry}.cu"
    start = time.perf_counter()
    program = nvrtc.createProgram(source.text, name, (), ())
    try:
        nvrtc.compileProgram(program, flags)
        log = nvrtc.getProgramLog(program)
        image = nvrtc.getCUBIN(program) + b"\0"  # CuPy drops the last byte
    except nvrtc.NVRTCError as e:
        raise compile_error(source, name, nvrtc.getProgramLog(program) or str(e), arch) from e
    finally:
        nvrtc.destroyProgram(program)
    seconds = time.perf_counter() - start
    made = Cubin(image, source.entry, arch, read_facts(log), log, seconds, False, key)
    write_entry(made)
    return made


def compile_error(source: Source, name: str, log: str, arch: int) -> LaunchError:
    """The first error of NVRTC's log, at the Python line it comes from."""
    if "gpu-architecture" in log:
        return LaunchError(
            "TK421",
            f"this NVRTC ({compiler_version()}) does not know {arch_name(arch)}",
            hint="install the newest tklearn[gpu]; tklearn doctor says what fits the driver",
        )
    errors = re.findall(r"^(.*?)\((\d+)\): (?:catastrophic )?error:? ?(.*)$", log, re.M)
    where, line, message = errors[0] if errors else ("", "0", log.strip().splitlines()[0])
    cpp_line = int(line) if where.endswith(name) else 0
    if not cpp_line and (m := re.search(rf"at line (\d+) of {re.escape(name)}", log)):
        cpp_line = int(m[1])  # an error in a header, instantiated from here
    loc = source.loc_of(cpp_line) if cpp_line else None
    text = f"the generated CUDA did not compile for {arch_name(arch)}: {message.strip()}"
    if not where.endswith(name) and where:
        text += f" ({os.path.basename(where)}:{line})"
    if 0 < cpp_line <= len(source.lines):
        text += f"\n    {name}:{cpp_line}: {source.lines[cpp_line - 1][1].strip()}"
    error = LaunchError(
        "TK423",
        text,
        loc,
        "if the line is an intrinsic of yours, mend its CUDA; otherwise this is a fault of "
        "tklearn: please report it with kernel.source() and the log (error.log)",
    )
    error.log = log  # type: ignore[attr-defined]
    return error


def read_facts(log: str) -> Facts:
    """The figures in a ptxas -v report of one kernel."""

    def number(pattern: str) -> int:
        found = re.findall(pattern, log)
        return max(map(int, found)) if found else 0

    notes = re.findall(
        r"^ptxas .*?(?:warning|info)\s*:? ?(.*?C75\d\d.*|.*[Pp]otential Performance Loss.*)$",
        log,
        re.M,
    )
    return Facts(
        registers=number(r"Used (\d+) registers"),
        spill_stores=number(r"(\d+) bytes spill stores"),
        spill_loads=number(r"(\d+) bytes spill loads"),
        stack=number(r"(\d+) bytes stack frame"),
        shared=number(r"(\d+) bytes smem"),
        notes=tuple(n.strip(" :") for n in notes),
    )


# --------------------------------------------------------------------------------- the disk cache
def cache_dir() -> Path:
    """TKLEARN_CACHE, else the platform's place for caches."""
    if own := os.environ.get("TKLEARN_CACHE"):
        return Path(own) / "cubin"
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "tklearn" / "cubin"


def cache_key(text: str, arch: int, options: tuple[str, ...]) -> str:
    """A name for all that decides the cubin; comments, with a cell's file name, do not."""
    code = "\n".join(t for t in text.splitlines() if not t.lstrip().startswith("//"))
    parts = (code, headers_hash(), arch_name(arch), compiler_version(), *options)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def headers_hash() -> str:
    """A hash of our headers' text; read again only when a file changed."""
    stats = [(p, p.stat()) for p in sorted(INCLUDE.rglob("*.cuh"))]
    return _hash_files(tuple((str(p), s.st_mtime_ns, s.st_size) for p, s in stats))


@functools.lru_cache(maxsize=4)
def _hash_files(files: tuple[tuple[str, int, int], ...]) -> str:
    h = hashlib.sha256()
    for name, _, _ in files:
        h.update(os.path.basename(name).encode() + b"\0" + Path(name).read_bytes())
    return h.hexdigest()


def read_entry(key: str) -> Cubin | None:
    """The cubin of this key, or None if there is none or its file is damaged."""
    path = cache_dir() / key
    try:
        data = path.read_bytes()
        head, digest, rest = (
            data[: len(_MAGIC)],
            data[len(_MAGIC) : len(_MAGIC) + 32],
            data[len(_MAGIC) + 32 :],
        )
        if head != _MAGIC or hashlib.sha256(rest).digest() != digest:
            return None
        meta_text, image = rest.split(b"\n", 1)
        meta = json.loads(meta_text)
        meta["facts"]["notes"] = tuple(meta["facts"]["notes"])
        made = Cubin(image=image, cached=True, key=key, **{**meta, "facts": Facts(**meta["facts"])})
    except (OSError, ValueError, KeyError, TypeError):
        return None
    with contextlib.suppress(OSError):  # a read-only cache still serves
        os.utime(path)  # used just now
    return made


def write_entry(made: Cubin) -> None:
    """Keep a cubin on disk; other processes see all of it or nothing."""
    meta = {
        "entry": made.entry,
        "arch": made.arch,
        "log": made.log,
        "seconds": made.seconds,
        "facts": asdict(made.facts),
    }
    rest = json.dumps(meta).encode() + b"\n" + made.image
    folder = cache_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=".new-")
        with os.fdopen(handle, "wb") as f:
            f.write(_MAGIC + hashlib.sha256(rest).digest() + rest)
        os.replace(temporary, folder / made.key)
        trim_cache(folder)
    except OSError as e:
        warnings.warn(
            f"tklearn cannot keep compiled kernels in {folder}: {e}; "
            "set TKLEARN_CACHE to another folder",
            stacklevel=4,
        )


def trim_cache(folder: Path, limit: int | None = None) -> None:
    """Delete the entries that were not used for longest, until the rest fits the limit."""
    limit = CACHE_LIMIT if limit is None else limit
    entries = []
    for e in os.scandir(folder):
        try:
            s = e.stat()
        except FileNotFoundError:  # another process was faster
            continue
        entries.append((s.st_mtime, s.st_size, e.path))
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries):
        if total <= limit:
            return
        try:
            os.unlink(path)
        except FileNotFoundError:
            continue
        total -= size
