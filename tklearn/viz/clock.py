"""Where each moment of a timeline lies from left to right.

Three axes. The order of execution: one step a moment, moments of different warps side by side
where neither waits for the other, round after round of the simulator's scheduler. Units: what must
wait for what, with durations that the caller names, so that one can reason about a pipeline by
hand. Times: those that a model of time gives. This file knows moments and numbers, and no drawing.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from tklearn.report import Moment, Timeline

# Kinds of moments that are a box on their warp's row; of these, equal ones in a row share a box.
BOXES = (
    "init", "expect", "arrive", "pass", "go", "barrier", "named", "load", "store", "stored",
    "fence", "wgmma", "multiplied", "copy", "copied", "mma", "read", "write", "global read",
    "global write", "atomic", "fault",
)  # fmt: skip
SHARE = {"init", "load", "copy", "copied", "mma", "read", "write", "global read", "global write"}
WAITS = {
    "pass",
    "go",
    "multiplied",
    "barrier",
    "copied",
    "stored",
}  # what a warp may have waited for
ENDS = {"land", "multiplied", "copied"}  # what ends something that ran beside the warps


@dataclass(frozen=True)
class Units:
    """Durations of the axis "units": a step of a warp is 1, and reading global memory a copy."""

    copy: float = 6
    product: float = 4


@dataclass
class Box:
    """Moments that are drawn as one box on a warp's row."""

    warp: int
    kind: str
    line: int
    start: float
    end: float
    moments: list[int] = field(default_factory=list)
    waited: float | None = None  # since when the warp had waited before it


@dataclass
class Places:
    """boxes: on the rows of warps. at: moment -> (start, end). open: warp -> since when it still
    waits at the end. rounds: where each round begins; end: of it all."""

    boxes: list[Box] = field(default_factory=list)
    at: dict[int, tuple[float, float]] = field(default_factory=dict)
    open: dict[int, float] = field(default_factory=dict)
    rounds: dict[int, float] = field(default_factory=dict)
    flown: dict[int, float] = field(default_factory=dict)
    products: list[tuple[int, float, float, list[int]]] = field(default_factory=list)
    end: float = 0


class Clock:
    """Goes through the moments in the order of execution and gives each its place."""

    def __init__(self, t: Timeline, units: Units | None) -> None:
        self.t, self.units, self.p = t, units, Places()
        self.free = [0.0] * t.warps  # when each warp has done what it did so far
        self.asked: dict[int, float] = {}  # since when it waits
        self.last: dict[int, tuple[int, Box]] = {}  # its last box, and that one's round
        self.came: dict[str, float] = defaultdict(float)  # what a phase or barrier waits for
        self.issued: dict[int, list[tuple[int, float]]] = defaultdict(list)  # wgmma, by warp
        self.product: dict[int, tuple[float, float]] = {}  # moment of a wgmma -> when it runs
        self.core: dict[int, float] = defaultdict(float)  # when a tensor core is free
        self.now, self.landing = -1, 0.0

    def run(self) -> Places:
        for n, m in enumerate(self.t.moments):
            if self.units is None and m.round != self.now:
                self.now = m.round
                base = max([*self.free, self.p.end])
                self.free = [base] * self.t.warps
                self.p.rounds[m.round] = base
            start, end = self._place(n, m)
            self.p.at[n] = (start, end)
            self.p.end = max(self.p.end, end)
        self.p.open = dict(self.asked)
        self._products()
        return self.p

    def _place(self, n: int, m: Moment) -> tuple[float, float]:
        if m.kind == "wait":
            self.asked[m.warp] = self.free[m.warp]
            return (self.free[m.warp],) * 2
        if m.kind in ("land", "bytes"):
            return self._land(n, m)
        if m.kind == "phase":
            x = self.came.pop("semaphore " + m.what, self.p.end)
            return x, x
        if m.kind not in BOXES:
            return (self.free[m.warp],) * 2
        return self._box(n, m)

    def _land(self, n: int, m: Moment) -> tuple[float, float]:
        since = max((self.p.at[i][1] for i in m.ends if i in self.p.at), default=0.0)
        if self.units is not None:
            x = since + self.units.copy
            at = x, x
        else:
            previous = self.t.moments[n - 1] if n else None
            if previous is None or previous.kind not in ("land", "bytes", "phase"):
                self.landing = max([*self.free, since, 0.0])
            at = self.landing, self.landing + 1
        for key in m.changes:
            if key.startswith("semaphore "):
                self.came[key] = max(self.came[key], at[1])
        return at

    def _box(self, n: int, m: Moment) -> tuple[float, float]:
        w = m.warp
        round, box = self.last.get(w, (-1, None))
        asked = self.asked.pop(w, None)
        if (
            box is not None and asked is None and m.kind in SHARE and round == m.round
            and (box.kind, box.line) == (m.kind, m.line) and box.end == self.free[w]
        ):  # fmt: skip
            box.moments.append(n)
            if m.kind == "copy":
                self._after(n, m, box)
            if m.kind == "copied" and self.units is not None and self._copied(m) > box.start:
                box.waited = box.start if box.waited is None else box.waited
                box.start = self._copied(m)
                box.end = self.free[w] = box.start + 1
            return box.start, box.end
        came = self.free[w] if self.units is not None or asked is None else asked
        start = max(self.free[w], self._since(n, m))
        length = 1.0
        if self.units is not None:
            length = {"mma": self.units.product, "global read": self.units.copy}.get(m.kind, 1.0)
        waited = came if start > came and m.kind in WAITS else None
        box = Box(w, m.kind, m.line, start, start + length, [n], waited)
        self.p.boxes.append(box)
        self.last[w] = (m.round, box)
        self.free[w] = box.end
        self._after(n, m, box)
        return box.start, box.end

    def _since(self, n: int, m: Moment) -> float:
        """When what the moment needs is there."""
        at = self.p.at
        if m.kind in ("pass", "stored"):
            return at[m.cause][1] if m.cause in at else 0.0
        if m.kind == "go":
            return self.came.get(f"open {m.cause}", at[m.cause][1] if m.cause in at else 0.0)
        if m.kind == "barrier":
            return self._barrier(n, m)
        if m.kind == "multiplied" and self.units is not None:
            return max(
                (self._ran(i)[1] for i in m.ends if i in at and self._is_product(i)), default=0
            )
        if m.kind == "multiplied":
            peers = range(m.warp // 4 * 4, m.warp // 4 * 4 + 4)
            done = len([i for i in m.ends if self._is_product(i)])
            mine = [i for i, _ in self.issued[m.warp]]
            last = max((mine.index(i) for i in m.ends if i in mine), default=-1) if done else -1
            times = [self.issued[p][last][1] for p in peers if 0 <= last < len(self.issued[p])]
            return max(times, default=0.0)
        if m.kind == "copied" and self.units is not None:
            return self._copied(m)
        return 0.0

    def _copied(self, m: Moment) -> float:
        assert self.units is not None
        return max((self.p.at[i][1] + self.units.copy for i in m.ends if i in self.p.at), default=0)

    def _is_product(self, i: int) -> bool:
        return self.t.moments[i].kind == "wgmma"

    def _barrier(self, n: int, m: Moment) -> float:
        """All warps that pass together: when the last of them came."""
        key = f"barrier {m.changes.get('block.sync()', {}).get('passed')}"
        if key not in self.came:
            others = [
                x.warp
                for x in self.t.moments[n : n + 32]
                if x.kind == "barrier"
                and x.changes.get("block.sync()") == m.changes["block.sync()"]
            ]
            self.came[key] = max(self.free[w] for w in others)
        return self.came[key]

    def _after(self, n: int, m: Moment, box: Box) -> None:
        """What others may wait for."""
        if m.kind in ("arrive", "expect", "init"):
            key = "semaphore " + m.what
            self.came[key] = max(self.came[key], box.end) if m.kind != "init" else 0.0
        if m.kind == "named":
            self.came[m.what] = max(self.came[m.what], box.end)
            if not m.changes[m.what]["came"]:  # it opens
                self.came[f"open {n}"] = self.came.pop(m.what)
                if self.units is not None:
                    self.free[m.warp] = max(self.free[m.warp], self.came[f"open {n}"])
        if m.kind == "copy" and self.units is not None:
            self.p.flown[n] = box.end + self.units.copy
        if m.kind == "wgmma":
            self.issued[m.warp].append((n, box.end))

    def _ran(self, i: int) -> tuple[float, float]:
        """When the wgmma of moment i runs: all four warps have issued it, the core is free."""
        assert self.units is not None
        if i in self.product:
            return self.product[i]
        w = self.t.moments[i].warp
        peers = range(w // 4 * 4, w // 4 * 4 + 4)
        k = [j for j, _ in self.issued[w]].index(i)
        for earlier in range(k + 1):
            same = [self.issued[p][earlier] for p in peers if earlier < len(self.issued[p])]
            if same[0][0] not in self.product:
                start = max([self.core[w // 4], *(x for _, x in same)])
                self.core[w // 4] = start + self.units.product
                for j, _ in same:
                    self.product[j] = (start, self.core[w // 4])
        return self.product[i]

    def _products(self) -> None:
        """When each tensor core works: (warpgroup, start, end, moments)."""
        by: dict[int, list[int]] = defaultdict(list)  # first moment -> all moments of one wgmma
        for group in {w // 4 for w in self.issued}:
            rows = [self.issued[w] for w in range(4 * group, 4 * group + 4) if w in self.issued]
            for k in range(max(map(len, rows))):
                same = [r[k] for r in rows if k < len(r)]
                by[group].append(k)
                if self.units is not None:
                    start, end = self._ran(same[0][0])
                else:
                    start = min(self.p.at[i][0] for i, _ in same)
                    ends = self._ended({i for i, _ in same})
                    end = max(ends, default=self.p.end)
                self.p.products.append((group, start, end, [i for i, _ in same]))
        for b in self.p.boxes:
            if b.kind == "mma":
                self.p.products.append((b.warp // 4, b.start, b.end, b.moments))

    def _ended(self, issued: set[int]) -> list[float]:
        return [
            self.p.at[n][1]
            for n, m in enumerate(self.t.moments)
            if m.kind == "multiplied" and issued & set(m.ends)
        ]


def places(t: Timeline, units: Units | None = None) -> Places:
    """The places of all moments of a timeline: by its own times if it has some, else by units if
    they are given, else in the order of execution."""
    if t.times is not None:
        return _timed(t)
    return Clock(t, units).run()


def _timed(t: Timeline) -> Places:
    """Places from a model of time."""
    assert t.times is not None
    p = Places()
    asked: dict[int, float] = {}
    ended: dict[int, float] = {}
    for n, (m, (start, end)) in enumerate(zip(t.moments, t.times, strict=True)):
        p.at[n] = (start, end)
        p.end = max(p.end, end)
        if m.kind == "wait":
            asked[m.warp] = start
        elif m.kind in BOXES:
            waited = asked.pop(m.warp, None) if m.kind in WAITS else None
            p.boxes.append(Box(m.warp, m.kind, m.line, start, end, [n], waited))
        if m.kind == "multiplied":
            ended |= dict.fromkeys(m.ends, start)
    p.open = asked
    for b in p.boxes:
        if b.kind in ("wgmma", "mma"):
            end = ended.get(b.moments[0], b.end)
            p.products.append((b.warp // 4, b.start, end, b.moments))
    return p
