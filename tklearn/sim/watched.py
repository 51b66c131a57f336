"""The logs of shared tiles, told to the recorder: who reads, writes and copies what.

A `Watched` stands before the log of a tile (races.py) and passes everything on. It knows the
recorder (recorder.py) and no rules.
"""

from __future__ import annotations

from typing import Any

from tklearn.lang.errors import KernelFault


class Watched:
    """The log of a shared tile that tells the recorder of each access before it checks it."""

    def __init__(self, log: Any, mem: Any, recorder: Any) -> None:
        self.log, self.mem, self.recorder = log, mem, recorder
        self.same_instruction = log.same_instruction

    def read(self, w: Any, place: Any, s: Any, collective: bool = False) -> None:
        self.recorder.access(w, s, "read", self.mem)
        self.log.read(w, place, s, collective)

    def write(self, w: Any, place: Any, s: Any, *atomic: bool) -> None:
        m = self.recorder.access(w, s, "write", self.mem)
        self.log.write(w, place, s, *atomic)
        self.recorder.tile(m, self.mem, f"warp {w.id} (line {s.line})")

    def atomic(self, w: Any, place: Any, s: Any) -> None:
        m = self.recorder.access(w, s, "write", self.mem)
        self.log.atomic(w, place, s)
        self.recorder.tile(m, self.mem, f"warp {w.id} (line {s.line})")

    def scatter(
        self, w: Any, rows: Any, idx: Any, lanes: Any, s: Any, write: bool, atomic: bool = False
    ) -> None:
        m = self.recorder.access(w, s, "write" if write else "read", self.mem)
        self.log.scatter(w, rows, idx, lanes, s, write, atomic)
        if write:
            self.recorder.tile(m, self.mem, f"warp {w.id} (line {s.line})")

    def issue(self, w: Any, place: Any, s: Any) -> Any:
        r = self.recorder
        m = r.access(w, s, "copy", self.mem)
        m.says = f"warp {w.id} starts its part of the cp.async into {self.mem.name}"
        pending = self.log.issue(w, place, s)
        r.flights[id(pending)] = m.n
        r.parts[self.mem.name].add(id(pending))
        r.tile(m, self.mem, f"cp.async (line {s.line})")
        return pending

    def land(self, w: Any, pending: Any) -> None:
        r = self.recorder
        m = r.access(w, w.here(), "copied", self.mem)
        m.says = f"warp {w.id}: its part of the copy into {self.mem.name} is there"
        m.ends = tuple({*m.ends, r.flights.pop(id(pending), -1)})
        self.log.land(w, pending)
        r.parts[self.mem.name].discard(id(pending))
        r.tile(m, self.mem)

    def fly(self, w: Any, agent: int, place: Any, s: Any, *rest: Any) -> Any:
        r = self.recorder
        try:
            rec = self.log.fly(w, agent, place, s, *rest)
        except KernelFault:
            effect = s.node.op.effect
            kind = {"tma_load": "load", "tma_store": "store"}.get(effect, "wgmma")
            m = r.add(kind, w.id, s.line, self.mem.name)
            what = {"load": "the TMA load of", "store": "the TMA store of"}.get(kind, "a wgmma on")
            m.says = f"warp {w.id} starts {what} {self.mem.name}"
            r.goes(m)
            raise
        r.operands.setdefault(w.id, []).append(self.mem.name)
        return rec

    def arrived(self, place: Any) -> None:
        self.log.arrived(place)


def written(mem: Any) -> str:
    log = mem.log
    while hasattr(log, "log"):
        log = log.log
    if log is None:
        return "full"
    return "full" if log.full else "partly written" if log.init.any() else "unwritten"
