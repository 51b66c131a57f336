"""cp.async: copies that a warp has started, in groups, and when their data lands.

Data is there for the issuing warp at its wait_group; for other warps a barrier must follow. Groups
complete in order. This file knows groups; how a tile is copied is ops.py's, what is wrong with
using a destination early is races.py's.
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
