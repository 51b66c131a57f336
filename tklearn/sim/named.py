"""Named barriers (bar.sync id, bar.arrive id): who has come, who may go on.

Sixteen a block; number 0 is block.sync's. A generation is complete when as many threads have come
as its participants say; those that synced are ordered after all that came. FACTS.md 5. This file
knows warps and clocks.
"""

from __future__ import annotations

from typing import Any

from tklearn.sim.agents import joined

AGAIN = (
    "each participant comes once for each time the barrier opens: let those that only arrive wait "
    "for something before they arrive again"
)


class Generation:
    """One opening of a named barrier."""

    __slots__ = ("id", "threads", "came", "clocks", "vc", "fenced", "open")

    def __init__(self, id: int, threads: int, agents: Any) -> None:
        self.id, self.threads = id, threads
        self.came: dict[int, Any] = {}  # warp -> the site at which it came
        self.clocks: dict[int, int] = {}
        self.vc = self.fenced = agents.clock()
        self.open = False

    def who(self) -> str:
        warps = sorted(self.came)
        return ("warp " if len(warps) == 1 else "warps ") + ", ".join(map(str, warps))


class Named:
    """The named barriers of all blocks of a batch."""

    def __init__(self, agents: Any) -> None:
        self.agents = agents
        self.running: dict[int, Generation] = {}
        self.last: dict[int, Generation] = {}

    def arrive(self, w: Any, s: Any, id: int, threads: int, group: bool) -> Generation:
        """Warp w comes to barrier `id`; group: it is a warpgroup's own (warpgroup.sync)."""
        if not 1 <= id <= 15:
            raise w.fault(
                "TK524",
                f"there is no named barrier {id}",
                s,
                hint="they are numbered 1 to 15; 0 is that of block.sync()",
            )
        g = self.running.get(id)
        if g is None:
            g = self.running[id] = Generation(id, threads, self.agents)
        self._check(w, s, g, threads, group)
        w.tick()
        g.came[w.id], g.clocks[w.id] = s, w.clock - 1
        vc = w.vc.copy()
        vc[w.id] = w.clock - 1
        g.vc, g.fenced = joined(g.vc, vc), joined(g.fenced, w.fenced)
        w.event("named", s, g)
        if 32 * len(g.came) >= g.threads:
            g.open = True
            self.last[id] = self.running.pop(id)
        return g

    def _check(self, w: Any, s: Any, g: Generation, threads: int, group: bool) -> None:
        if threads != g.threads:
            warp, site = next(iter(g.came.items()))
            raise w.fault(
                "TK524",
                f"warp {w.id} comes to named barrier {g.id} for {threads} threads, and warp {warp} "
                f"for {g.threads} on line {site.line}",
                s,
                hint="all that meet at one barrier must give the same number of threads",
            )
        if w.id in g.came:
            raise w.fault(
                "TK524",
                f"warp {w.id} comes to named barrier {g.id} a second time (first on line "
                f"{g.came[w.id].line}); {g.who()} of its {threads // 32} warps came",
                s,
                hint=AGAIN,
            )
        strangers = [x for x in g.came if x // 4 != w.id // 4] if group else []
        before = self.last.get(g.id)
        if before is not None and not strangers:
            late = any(w.vc[x] < c for x, c in before.clocks.items())
            if late and w.id in before.came and w.checking:
                raise self._ahead(w, s, g, before.came[w.id])
            strangers = list(before.came) if late else []
        if strangers and w.checking:
            raise w.fault(
                "TK524",
                f"warp {w.id} comes to named barrier {g.id}, which {_names(strangers)} "
                f"use{'s' * (len(strangers) == 1)} at the same time for {threads} threads",
                s,
                hint="either more warps meet here than the barrier counts, or two groups share its "
                "number: give each group a number of its own, as in warpgroup.sync("
                "warpgroup.groupid() + 1)",
            )

    @staticmethod
    def _ahead(w: Any, s: Any, g: Generation, first: Any) -> Exception:
        """A warp that only arrived, and arrives again."""
        lines = f"lines {first.line} and {s.line}" if first is not s else f"line {s.line}"
        return w.fault(
            "TK524",
            f"warp {w.id} comes to named barrier {g.id} a second time, and nothing has told it "
            f"that the barrier has opened since ({lines})",
            s,
            hint=AGAIN,
        )


def _names(warps: list[int]) -> str:
    return ("warp " if len(warps) == 1 else "warps ") + ", ".join(map(str, sorted(warps)))


class Waiting:
    """A warp that waits for a named barrier to open."""

    __slots__ = ("gen", "site")

    def __init__(self, gen: Generation, site: Any) -> None:
        self.gen, self.site = gen, site

    def ready(self, w: Any) -> bool:
        return self.gen.open

    def resume(self, w: Any) -> None:
        w.vc, w.fenced = joined(w.vc, self.gen.vc), joined(w.fenced, self.gen.fenced)
        w.vc[w.id] = w.clock

    def says(self) -> str:
        g = self.gen
        return f"named barrier {g.id}: {len(g.came)} of {g.threads // 32} warps came ({g.who()})"
