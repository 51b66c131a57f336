"""What a run tells: counters by source line and in total, times, compiler facts, a listing.

Both machines return this one type. It knows numbers and source lines, and neither machine. A GPU
run's report is lazy: nothing is timed or synchronised until `seconds` is read.
"""

from __future__ import annotations

import html
import inspect
import linecache
import tokenize
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tklearn.lang.errors import LaunchError

# Short key -> (the profiler's metric, what one unit is). FACTS.md 1 and 2 give the rules. The
# metrics of global loads include the reads of cp.async, which have a counter of their own, too.
METRICS: dict[str, tuple[str, str]] = {
    "global_ld_requests": ("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum", "warp instructions"),
    "global_ld_sectors": ("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", "32-byte sectors"),
    "global_ld_ideal": ("", "32-byte sectors, if every byte moved were used"),
    "global_st_requests": ("l1tex__t_requests_pipe_lsu_mem_global_op_st.sum", "warp instructions"),
    "global_st_sectors": ("l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum", "32-byte sectors"),
    "global_st_ideal": ("", "32-byte sectors, if every byte moved were used"),
    "shared_ld_wavefronts": (
        "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
        "passes over the 32 banks",
    ),
    "shared_ld_ideal": ("", "passes without bank conflicts"),
    "shared_ld_conflicts": (
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
        "extra passes",
    ),
    "shared_st_wavefronts": (
        "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
        "passes over the 32 banks",
    ),
    "shared_st_ideal": ("", "passes without bank conflicts"),
    "shared_st_conflicts": (
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
        "extra passes",
    ),
    "shared_atomic_wavefronts": ("", "passes of shared atomics"),
    "tensor_instructions": (
        "sm__inst_executed_pipe_tensor_op_hmma.sum",  # less TENSOR_MOVES
        "mma.sync warp instructions",
    ),
    "tensor_flops": ("sm__ops_path_tensor_op_hmma_src_bf16_dst_fp32.sum", "2*M*N*K"),
    "cp_async_bytes": ("", "bytes"),
    "cp_async_sectors": (
        "smsp__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_ldgsts.sum",
        "32-byte sectors",
    ),
    "tma_load_instructions": (
        "smsp__inst_executed_op_tma_ld.sum",
        "TMA instructions: a tile is one for each column block as wide as its swizzle",
    ),
    "tma_load_bytes": ("", "bytes of whole boxes, zeros past the end among them"),
    "tma_load_sectors": (
        "l1tex__m_xbar2l1tex_read_sectors_mem_global_op_tma_ld.sum",
        "32-byte sectors, and as many as would be outside the array",
    ),
    "tma_store_instructions": ("smsp__inst_executed_op_tma_st.sum", "TMA instructions"),
    "tma_store_bytes": ("", "bytes of whole boxes, those past the end among them"),
    "tma_store_sectors": (
        "l1tex__m_l1tex2xbar_write_sectors_pipe_tma.sum",
        "32-byte sectors inside the array",
    ),
    "wgmma_instructions": (
        "sm__inst_executed_pipe_tensor_op_gmma.sum",
        "warp instructions: four for each 32 bytes of the inner size (16 of bf16)",
    ),
    "wgmma_flops": ("sm__ops_path_tensor_op_hgmma_src_bf16_dst_fp32.sum", "2*M*N*K"),
    "wgmma_wavefronts": (
        "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_gmma.sum",
        "128-byte reads of operands in shared memory; they never conflict",
    ),
    "barriers": ("", "warp arrivals at block.sync"),
    "atomics": ("", "lane operations"),
}

HOPPER = ("tma_", "wgmma_")  # how the counters that only sm_90 has begin
SUMMED = (
    "tensor_instructions", "wgmma_instructions", "cp_async_bytes", "tma_load_bytes",
    "tma_store_bytes", "barriers", "atomics",
)  # fmt: skip

# ptxas moves constants by an HFMA2 on the tensor pipe, which the counter of its instructions takes
# in (once a warp in some kernels without a product); this counter has those only.
TENSOR_MOVES = "sm__inst_executed_pipe_tensor_op_hmma_type_hfma2.sum"


@dataclass(frozen=True)
class WarpAccess:
    """One access that one warp executed, kept by `kernel.sim[grid](..., trace=True)`.

    Attributes:
        space: "shared" or "global". kind: "ld", "st", "atom", "ldmatrix" or "async" (cp.async: its
            global side, and its shared side where it goes past L1).
        width: bytes a lane; for ldmatrix the number of 8x8 matrices.
        offsets: byte offset of each of the 32 lanes from the start of the array or tile, -1 for an
            inactive lane; of a global tile from the sector in which it starts.
        array: its name in the kernel. base: the byte of shared memory at which it starts (0 for
            tiles of `tk.shared`, which start on bank 0 as all tiles do).
        warp, block: who it was.
    """

    space: str
    kind: str
    width: int
    offsets: tuple[int, ...]
    array: str = ""
    base: int = 0
    warp: int = 0
    block: tuple[int, ...] = (0, 0, 0)


@dataclass(frozen=True)
class Moment:
    """One event in one block: something a warp did, or that happened to what it had started.

    Attributes:
        round: the warps that could go on ran once in each round; within one round the order
            between warps is the simulator's choice.
        warp: who did it, or who had started it. kind: see viz/timeline.py. line: in the source.
        what: the semaphore, tile, barrier or array, "" for none. says: the event in words.
        count: how often in a row. changes: what it changed in the state (see Timeline.at).
        ends: the moments whose work or wait ends here. cause: the moment that let it happen.
    """

    round: int
    warp: int
    kind: str
    line: int
    what: str = ""
    says: str = ""
    count: int = 1
    changes: dict[str, dict[str, Any]] = field(default_factory=dict)
    ends: tuple[int, ...] = ()
    cause: int = -1


@dataclass(frozen=True)
class Fault:
    """How a run ended in an error. moments: the two accesses of a race, or the last moment.

    waits: of a deadlock, (warp, line, what it waits for, in words).
    """

    kind: str
    code: str
    message: str
    hint: str
    line: int
    moments: tuple[int, ...] = ()
    waits: tuple[tuple[int, int, str], ...] = ()


@dataclass(frozen=True)
class Timeline:
    """What happened in one block, in the order of execution, from a run with timeline=True.

    Attributes:
        source: line -> text. warps: how many. roles: of each warp, "producer" (it starts TMA
            loads), "consumer" (it waits for what they bring) or "".
        semaphores, tiles: their names. moments: what happened. steps: (round, warp, from line,
            to line, first moment, moments) each time a warp ran, -1 for no line.
        dropped: moments left out in the middle of a long run. fault: how it ended, if in an error.
        times: start and end of each moment where a model of time gives them; None: only an order.
    """

    kernel: str
    file: str
    block: tuple[int, int, int]
    warps: int
    roles: tuple[str, ...]
    source: dict[int, str]
    semaphores: tuple[str, ...]
    tiles: tuple[str, ...]
    moments: tuple[Moment, ...]
    steps: tuple[tuple[int, int, int, int, int, int], ...] = ()
    dropped: int = 0
    fault: Fault | None = None
    times: tuple[tuple[float, float], ...] | None = None
    unit: str = ""

    def at(self, n: int) -> dict[str, dict[str, Any]]:
        """The state after moment n: "warp 3", "semaphore full[0]", "tile a[0]", "barrier 1" -> what
        is known of it."""
        state: dict[str, dict[str, Any]] = {}
        for m in self.moments[: n + 1]:
            state.update(m.changes)
        return state

    def timed(self, times: Any, unit: str) -> Timeline:
        """The same with a start and an end of each moment, from a model of time."""
        pairs = tuple((float(a), float(b)) for a, b in times)
        if len(pairs) != len(self.moments):
            raise ValueError(f"{len(pairs)} times for {len(self.moments)} moments")
        return replace(self, times=pairs, unit=unit)

    def json(self) -> dict[str, Any]:
        """The same as dictionaries and lists."""
        return asdict(self)

    def __repr__(self) -> str:
        return f"Timeline of {self.kernel}: {len(self.moments)} moments, {self.warps} warps"


@dataclass(repr=False)
class Report:
    """One run of a kernel.

    Attributes:
        kernel, machine ("simulator" or "cuda"), device, grid, threads: what ran where.
        file, first_line: where the kernel's source stands.
        lines: source line -> metric key (METRICS) -> count; empty for a GPU run.
        clipped: source line -> elements past the end of an array that a tile access skipped.
        compiled: facts from ptxas (registers, spills, shared bytes) on the GPU.
        accesses: source line -> accesses of the first block, from a run with trace=True.
        timeline: what happened in the first block, from a run with timeline=True.
        wall: seconds the simulation took on this computer (not a GPU time).
        launched: the launch as the time estimate takes it (whatif.py).
    """

    kernel: str
    machine: str
    device: str
    grid: tuple[int, int, int]
    threads: tuple[int, int, int]
    file: str = ""
    first_line: int = 0
    lines: dict[int, dict[str, int]] = field(default_factory=dict)
    clipped: dict[int, int] = field(default_factory=dict)
    compiled: Any = None
    wall: float = 0.0
    notes: list[str] = field(default_factory=list)
    stats: dict[str, int] = field(default_factory=dict)
    accesses: dict[int, list[WarpAccess]] = field(default_factory=dict)
    timeline: Timeline | None = None
    timer: Callable[[], float] | None = field(default=None, repr=False)
    launched: Any = field(default=None, repr=False)
    _seconds: float | None = field(default=None, repr=False)

    @property
    def seconds(self) -> float | None:
        """Measured GPU time of one launch (median), or None on the simulator. Reading it
        measures."""
        if self._seconds is None and self.timer is not None:
            self._seconds = self.timer()
        return self._seconds

    def estimate(self, **options: Any) -> Any:
        """How long the launch would take on a GPU, by the model of sim/timing: an estimate.

        options: device= (a name of devices.DEVICES), warm=, ghz=, registers=. Errors: TK400 for a
        report that does not know its launch; ValueError where the model has no answer.
        """
        return self._known("estimate").estimate(**options)

    def what_if(self, **changes: Any) -> Any:
        """The estimate of this launch, and of the same with another compile-time value:
        `what_if(stages=3)`, `what_if(stages=[1, 2, 3])`, `what_if(grid=64, device="A100")`.

        Nothing is run. Errors: TK400 for a name that the kernel does not have.
        """
        return self._known("what_if").what_if(changes)

    def _known(self, what: str) -> Any:
        if self.launched is None:
            raise LaunchError(
                "TK400",
                f"this report of {self.kernel} does not know its launch, which {what} needs",
                hint="take the report of the first launch, or of kernel.sim[grid](...)",
            )
        return self.launched

    @property
    def total(self) -> dict[str, int]:
        """Each counter summed over all lines; a counter that never moved is 0."""
        out = dict.fromkeys(METRICS, 0)
        for counts in self.lines.values():
            for k, v in counts.items():
                out[k] = out.get(k, 0) + v
        return out

    def __getitem__(self, key: str) -> int:
        return self.total[key]

    def columns(self) -> list[str]:
        """The counters that moved, in the order of METRICS: an ideal stands after its counter."""
        total = self.total
        return [k for k in METRICS if total.get(k)]

    def listing(self) -> str:
        """The kernel's source with its counters beside each line."""
        cols = self.columns()
        rows = self.rows(cols)
        heads = [_head(c) for c in cols]
        widths = [max(len(h), *(len(r[2][i]) for r in rows), 1) for i, h in enumerate(heads)]
        numbers = "  ".join(h.rjust(w) for h, w in zip(heads, widths, strict=True))
        out = [f"{numbers}  line"] if cols else []
        for line, text, cells in rows:
            left = "  ".join(c.rjust(w) for c, w in zip(cells, widths, strict=True))
            out.append(f"{left}  {line:4d}  {text}" if cols else f"{line:4d}  {text}")
        return "\n".join(out)

    def rows(self, cols: list[str]) -> list[tuple[int, str, list[str]]]:
        """(line number, source text, one cell per counter) for each line of the kernel."""
        if not self.file:
            return []
        source = linecache.getlines(self.file)[self.first_line - 1 :]
        last = max(self.first_line + _length(source) - 1, *self.lines, 0)
        rows = []
        for n in range(self.first_line, last + 1):
            counts = self.lines.get(n, {})
            cells = [f"{counts[c]:,}" if counts.get(c) else "" for c in cols]
            rows.append((n, linecache.getline(self.file, n).rstrip("\n"), cells))
        return rows

    def summary(self) -> str:
        """One paragraph: what ran, and the counters that moved."""
        where = f"{self.kernel} on the {self.machine} ({self.device})"
        parts = [f"{where}, grid {self.grid}, block {self.threads}"]
        total = self.total
        for side in ("global_ld", "global_st"):
            if total[f"{side}_sectors"]:
                parts.append(_against(total, f"{side}_sectors", f"{side}_ideal"))
        for side in ("shared_ld", "shared_st"):
            if total[f"{side}_wavefronts"]:
                parts.append(_against(total, f"{side}_wavefronts", f"{side}_ideal"))
        for key in SUMMED:
            if total[key]:
                parts.append(f"  {key.replace('_', ' ')}: {total[key]:,}")
        if self.compiled is not None:
            parts.append(f"  {self.compiled}")
        if self.clipped:
            n, lines = sum(self.clipped.values()), ", ".join(map(str, sorted(self.clipped)))
            parts.append(
                f"  clipped: {n:,} elements past the end of an array (read as 0, not stored) "
                f"by line {lines}; coordinates count tiles"
            )
        parts += [f"  note: {n}" for n in self.notes]
        return "\n".join(parts)

    __str__ = summary

    def __repr__(self) -> str:
        table = self.listing() if self.lines else ""
        return self.summary() + (f"\n{table}" if table else "")

    def _repr_html_(self) -> str:
        cols = self.columns()
        head = "".join(f"<th style='text-align:right'>{html.escape(_head(c))}</th>" for c in cols)
        body = []
        for n, text, cells in self.rows(cols):
            tds = "".join(f"<td style='text-align:right'>{c}</td>" for c in cells)
            code = f"<code style='white-space:pre'>{html.escape(text)}</code>"
            number = f"<td style='text-align:right;opacity:.6'>{n}</td>"
            body.append(f"<tr>{tds}{number}<td style='text-align:left'>{code}</td></tr>")
        head += "<th></th><th style='text-align:left'>source</th>"
        table = f"<table><tr>{head}</tr>{''.join(body)}</table>"
        return f"<pre>{html.escape(self.summary())}</pre>" + (table if cols else "")


def _length(source: list[str]) -> int:
    """How many of these lines the function takes that begins with the first one."""
    try:
        return max(len(inspect.getblock(source)), 1)
    except (SyntaxError, tokenize.TokenError):  # the file has been changed since it ran
        return 1


def _head(key: str) -> str:
    return key.replace("global_", "").replace("shared_", "sh.").replace("_", " ")


def _against(total: dict[str, int], key: str, ideal: str) -> str:
    got, best = total[key], total[ideal]
    side = key.replace("_", " ")
    return f"  {side}: {got:,} (ideal {best:,}" + (f", {got / best:.2f}x)" if best else ")")
