"""What a warp has started and not yet waited for, in groups that complete in order.

cp.async: data is there for the issuing warp at its wait_group; for other warps a barrier must
follow. TMA stores and wgmma: likewise, with their own waits. This file knows groups; how a tile
is moved is copies.py's and tma.py's, and what is wrong with using one early is races.py's.
"""

from __future__ import annotations

from typing import Any


class Flight:
    """One warp's part of one copy: what to do when it has landed."""

    __slots__ = ("copy", "pending", "log")

    def __init__(self, copy: Any, pending: Any, log: Any) -> None:
        self.copy, self.pending, self.log = copy, pending, log

    def land(self, w: Any) -> None:
        self.copy.arrive()
        if self.log is not None:
            self.log.land(w, self.pending)


class Copies:
    """The groups of one warp."""

    __slots__ = ("open", "groups", "issued")

    def __init__(self) -> None:
        self.open: list[Flight] = []
        self.groups: list[list[Flight]] = []
        self.issued = 0

    def start(self, f: Flight) -> None:
        self.open.append(f)

    def commit(self) -> None:
        """Close the group of the copies started since the last one; an empty group counts too."""
        self.issued += 1
        for f in self.open:
            if f.pending is not None:
                f.pending.group = self.issued
        self.groups.append(self.open)
        self.open = []

    def wait(self, w: Any, n: int) -> None:
        """Land all groups but the newest n."""
        while len(self.groups) > n:
            for f in self.groups.pop(0):
                f.land(w)


class Stores:
    """The TMA stores of one warp, in groups that complete in order.

    Of a group, the reads of shared memory are known to be over after tma.store_async_read_wait, and
    the writes of global memory after tma.store_async_wait.
    """

    def __init__(self, w: Any) -> None:
        self.w = w
        self.open: list[Any] = []
        self.groups: list[list[Any]] = []
        self.read = 0  # groups whose sources may be reused

    def start(self, f: Any) -> None:
        self.open.append(f)

    def commit(self) -> None:
        """Close the group of the stores started since the last one."""
        self.groups.append(self.open)
        for f in self.open:
            f.commit(len(self.groups))
        self.open = []

    def wait(self, n: int, read: bool) -> None:
        """All groups but the newest n are over; read: their reads of shared memory."""
        w, over = self.w, max(len(self.groups) - n, 0)
        late = [f for group in self.groups[:over] for f in group if not f.landed]
        w.batch.land(late)
        agents = w.launch.agents
        self.read = max(self.read, over)
        w.vc[agents.store_reads(w.id)] = self.read
        if not read:
            done = agents.store_writes(w.id)
            w.vc[done] = max(w.vc[done], over)

    def end(self) -> None:
        """The warp ends: nothing may still read the block's shared memory."""
        late = [f for group in self.groups[self.read :] for f in group] + self.open
        if late and self.w.checking:
            s = late[0].site
            raise self.w.fault(
                "TK525",
                f"warp {self.w.id} ends while the TMA store of line {s.line} may still read shared "
                "memory",
                s,
                hint="end with tma.store_async_wait(): a block's shared memory is given to the "
                "next block when its warps have ended",
            )


class Group:
    """wgmma operations that complete together: the records of what they read, and their tiles."""

    __slots__ = ("warp", "site", "records", "tiles", "clock")

    def __init__(self, warp: Any) -> None:
        self.warp = warp
        self.site: Any = None
        self.clock = 0  # of its warp, when it was committed
        self.records: list[Any] = []
        self.tiles: list[Any] = []

    def touched(self, tile: Any, how: str) -> None:
        """The kernel reads or writes a tile that the tensor core is working with."""
        w = self.warp
        if not w.checking:
            return
        s = w.here()
        between = f"between line {self.site.line} and line {s.line}"
        if self.site.line >= s.line:
            between = f"after line {self.site.line}, before line {s.line} runs again"
        hint = f"put warpgroup.mma_async_wait() {between}"
        if self is w.products.open:
            hint = (
                f"put warpgroup.mma_commit_group() after line {self.site.line}, or leave "
                "commit=False out: mma_async_wait waits only for groups that were committed"
            )
        raise w.fault(
            "TK521",
            f"'{tile.name}' ({tile.type}) is {how} while the wgmma of line {self.site.line} may "
            f"still be using it (lines {self.site.line} and {s.line})",
            s,
            hint=hint,
        )


class Products:
    """The wgmma operations of one warp, in groups that complete in order."""

    def __init__(self, w: Any) -> None:
        self.w = w
        self.open = Group(w)
        self.groups: list[Group] = []
        self.done = 0
        self.fenced = 0  # when the registers were last fenced (wgmma.py)
        self.followed: list[tuple[int, dict[int, int]]] = []  # its clock, and what that comes after

    def commit(self) -> None:
        """Close the group of what was started since the last one; an empty group counts, too."""
        self.groups.append(self.open)
        self.open.clock = self.w.clock
        for r in self.open.records:
            r.clock = len(self.groups)
        self.open = Group(self.w)

    def wait(self, n: int) -> None:
        """All groups but the newest n are over: their tiles and shared operands are free."""
        w, over = self.w, max(len(self.groups) - n, 0)
        for group in self.groups[self.done : over]:
            for t in group.tiles:
                if t.busy is group:
                    t.busy = None
        self.done = max(self.done, over)
        first = w.id - w.id % 4
        for peer in range(first, first + 4):  # a group is one of all four warps, PTX ISA, wgmma
            agent = w.launch.agents.wgmma(peer)
            w.vc[agent] = max(w.vc[agent], self.done)
        if self.done:
            peers = w.batch.warps[first : first + 4]
            clocks = {p.id: p.products.groups[self.done - 1].clock for p in peers}
            self.followed = [*self.followed[-7:], (w.clock, clocks)]

    def follows(self, warp: int, clock: int, mine: int) -> bool:
        """Whether what this warp did up to its clock `mine` came after what `warp` did at `clock`.

        The four warps of a warpgroup issue a wgmma together: nobody has waited for one that another
        has not reached. That orders their steps, though not their memory accesses.
        """
        return any(t <= mine and c.get(warp, -1) >= clock for t, c in self.followed)

    def end(self) -> None:
        """The warp ends: what nobody waited for has no result."""
        late = [g for g in [*self.groups[self.done :], self.open] if g.site is not None]
        if late and self.w.checking:
            s = late[0].site
            raise self.w.fault(
                "TK521",
                f"warp {self.w.id} ends while the wgmma of line {s.line} may still run",
                s,
                hint="end with warpgroup.mma_async_wait(), in all four warps",
            )
