"""What the reports about races and asynchronous accesses of shared memory say.

Each names both lines, who did what, and what to write. This file decides nothing: that two accesses
are not ordered was found by races.py or shadow.py.
"""

from __future__ import annotations

from typing import Any

from tklearn.lang.errors import Race
from tklearn.sim.places import MANY, Place, lane_of
from tklearn.sim.semaphores import idle, said

PAST = {"writes": "wrote", "reads": "read", "overwrites": "overwrote"}
PLURAL = {"writes": "write", "reads": "read", "overwrites": "overwrite"}
DOING = {"writes": "writing", "reads": "reading"}
SAME_PLACE = (
    "give each lane a place of its own; which lane wins is undefined. Where all of them mean one "
    "element, use an atomic, or let one lane store"
)
_OPERATIONS = {"tma_load": "TMA load", "tma_store": "TMA store", "wgmma": "wgmma"}
_END = {
    "TMA load": "wait for the semaphore of the load, with the phase that it completes,",
    "TMA store": "tma.store_async_read_wait() in the warp that stores, and a barrier for others,",
    "wgmma": "warpgroup.mma_async_wait() in the warps that issued it, and an arrival or barrier "
    "for others,",
}


def operation(site: Any) -> str:
    """What the async proxy does at this place; "" for plain accesses."""
    return _OPERATIONS.get(getattr(getattr(site.node, "op", None), "effect", ""), "")


def _lines(site: Any, s: Any) -> str:
    return f"lines {site.line} and {s.line}" if site.line != s.line else f"line {s.line}"


def unfenced(region: Any, w: Any, s: Any, e: int, now: str, warp: int, site: Any) -> Race:
    """A plain store that the async proxy may not see."""
    what = region.element(e)
    w.event("clash", s, warp, site, what)
    return w.fault(
        "TK520",
        f"the {operation(s)} of line {s.line} {now} {what} through the async proxy, and warp "
        f"{warp} stored to it on line {site.line} without a proxy fence ({_lines(site, s)})",
        s,
        (0, None),
        f"put tma.fence() after the stores of line {site.line}, in the warps that store, then "
        f"a barrier before line {s.line}",
        kind=Race,
    )


def copying(region: Any, w: Any, p: Any, s: Any, at: int, now: str) -> Exception:
    """An access of what a cp.async (a races.Pending) is writing."""
    what, line = region.element(at), p.site.line
    w.event("clash", s, p.warp, p.site, what)
    whose = "" if p.warp == w.id else f" of warp {p.warp}"
    if p.group is None:
        hint = (
            f"commit_group() is missing after line {line}: wait_group waits only for "
            "groups that were committed"
        )
    elif p.warp == w.id:
        hint = (
            "wait_group(n) leaves the newest n groups running: wait for the group that brings "
            "this data"
        )
    else:
        hint = (
            "if this data is what is wanted: wait_group waits for a warp's own copies, then "
            f"block.sync() tells the other warps; if it is older data: line {line} refills it "
            "too early, put block.sync() before that"
        )
    return w.fault(
        "TK508",
        f"warp {w.id} {now} {what} while the copy{whose} of line {line} may still be writing it",
        s,
        (0, None),
        hint,
    )


def same_instruction(region: Any, w: Any, s: Any, e: int, lanes: Any, block: int) -> Race:
    """Lanes of one store that write different values to one element."""
    names = ", ".join(map(str, lanes[:4])) + (", ..." if len(lanes) > 4 else "")
    return w.fault(
        "TK501",
        f"lanes {names} of warp {w.id} write different values to {region.element(e)} at once",
        s,
        (block, None),
        SAME_PLACE,
        kind=Race,
    )


def race(
    region: Any,
    w: Any,
    s: Any,
    e: int,
    place: Any,
    now: str,
    other: int,
    site: Any,
    lane: int,
    then: str,
    block: int = 0,
) -> Race:
    """Two unordered accesses of element e: `other` is the earlier's agent."""
    what = region.element(e)
    w.event("clash", s, other, site, what)  # the recorder shows the two
    if w.batch.suspected is not None and site is w.batch.suspected_at:
        return _early(w, s, what, other, site, block)
    if other >= w.launch.agents.warps or operation(s):
        return _proxies(w, s, what, now, other, site, then, block)
    if other != w.id:
        msg = (
            f"warp {w.id} {now} {what}, which warp {other} {PAST[then]} on line {site.line}; "
            f"nothing orders the two ({_lines(site, s)})"
        )
        hint = _order(w, s, site)
        if now == then == "writes" and getattr(region, "family", None) is not None:
            hint = f"views of one memory (tk.alias) overlap here: check their offsets, or {hint}"
        return w.fault("TK500", msg, s, (block, None), hint, kind=Race)
    mine = lane_of(place, e, lane) if isinstance(place, Place) else int(place)
    who = f"several lanes of warp {w.id} {PLURAL[now]}"
    if mine < MANY:
        who = f"lane {mine} of warp {w.id} {now}"
    whom = "several lanes" if lane >= MANY else f"lane {lane}"
    msg = (
        f"{who} {what}, which {whom} {PAST[then]} on line {site.line}; "
        f"nothing orders the two ({_lines(site, s)})"
    )
    return w.fault("TK501", msg, s, (block, None), _order_lanes(w, s, site), kind=Race)


def _order_lanes(w: Any, s: Any, site: Any) -> str:
    """What to write between plain accesses of two lanes of a warp, first at `site`, then at `s`.

    Which warps share the memory is not known yet: that they do shows in a barrier of the block.
    """
    hint = _order(w, s, site)
    if w.launch.agents.warps == 1:
        return hint.replace("block.sync()", "warp.sync()")
    together = any(_operation(x).startswith(("block.", "warpgroup.")) for x in (s, site))
    if "block.sync()" in hint and not together and not _all_barriers(w):
        hint += "; warp.sync() is enough only where no warp reads what another one stores"
    return hint


def _operation(site: Any) -> str:
    """The name of the operation at a place, "" for an access by index."""
    return getattr(getattr(site.node, "op", None), "name", "")


def _all_barriers(w: Any) -> list[Any]:
    """Where the kernel's warps meet; of a block of one warp, where its lanes do."""
    meet = ["block.sync", "warpgroup.sync"] + ["warp.sync"] * (w.launch.agents.warps == 1)
    sites = w.launch.code.sites
    return [x for x in sites if _operation(x) in meet]


def _barriers(w: Any, a: Any, b: Any) -> list[Any]:
    """The barriers that stand between two lines of the kernel."""
    low, high = sorted((a.line, b.line))
    every = _all_barriers(w)
    return [x for x in every if low < x.line < high and x.loc.file == b.loc.file]


def _order(w: Any, s: Any, site: Any) -> str:
    """What to write between plain accesses of two warps, first at `site`, then at `s`."""
    partial = next((x for x in _all_barriers(w) if x.node.partial), None)
    if partial is not None:
        return (
            f"the block.sync() of line {partial.line} stands where only some warps come, and "
            "orders nothing for the others: move it out of its 'if', so that every warp reaches it"
        )
    if "async" in _operation(site):
        return "wait_group is for the warp's own copies only: put block.sync() after it"
    if site.line == s.line:
        return "let each thread use an element of its own, or use an atomic"
    if site.line > s.line:
        return (
            f"line {s.line} has run again: put block.sync() after line {site.line}, before line "
            f"{s.line} runs again"
        )
    barriers = _barriers(w, site, s)
    for x in barriers:
        if x.node.args:
            return (
                f"the named barrier of line {x.line} does not order these two warps: both must "
                "come to one barrier, and it must count them both"
            )
    if barriers:
        return (
            f"there is a barrier between the lines, so line {site.line} has run again: put "
            f"block.sync() after line {s.line}, before line {site.line} runs again"
        )
    return f"put block.sync() between line {site.line} and line {s.line}"


def _early(w: Any, s: Any, what: str, other: int, site: Any, block: int) -> Race:
    """The read came first in this run and found nothing: tell it as the reader meant it."""
    agents = w.launch.agents
    me = w.batch.warps[other % agents.warps]
    reader = f"the {operation(site)} of line {site.line}" if operation(site) else f"warp {other}"
    lines = _lines(site, s)
    if operation(s):
        sem = w.loading
        hint = f"put wait({sem.name}, phase) before line {site.line}"
        if sem in me.idle:
            hint = said(me, sem, *me.idle[sem])
        msg = (
            f"{reader} reads {what} before the {operation(s)} of line {s.line} brings it; "
            f"nothing orders the two ({lines})"
        )
    else:
        msg = (
            f"{reader} reads {what} before warp {w.id} writes it on line {s.line}; "
            f"nothing orders the two ({lines})"
        )
        hint = _order(w, site, s)
    return me.fault("TK500", msg, site, (block, None), hint, kind=Race)


def _proxies(
    w: Any, s: Any, what: str, now: str, other: int, site: Any, then: str, block: int
) -> Race:
    """Two unordered accesses, at least one of them by TMA or wgmma."""
    agents = w.launch.agents
    mine, theirs = operation(s), operation(site)
    who = f"the {mine} of line {s.line} (warp {w.id})" if mine else f"warp {w.id}"
    if other < agents.warps:
        whom = f"warp {other} may still be {DOING[then]} on line {site.line}"
    elif theirs:
        whom = f"the {theirs} of line {site.line} may still be {DOING[then]}"
    else:
        whom = f"{agents.who(other)} may still be {DOING[then]} (line {site.line})"
    message = f"{who} {now} {what}, which {whom}; nothing orders the two ({_lines(site, s)})"
    return w.fault("TK500", message, s, (block, None), _advice(w, s, other, site), kind=Race)


def _advice(w: Any, s: Any, other: int, site: Any) -> str:
    """What to write between an access at `site` and this one at `s`."""
    theirs = operation(site)
    between = f"between line {site.line} and line {s.line}"
    if theirs == "TMA load":
        sem = w.batch.semaphores[other - w.launch.agents.semaphore(0)]
        if sem in w.idle:
            return said(w, sem, *w.idle[sem])
        if sem.expected < sem.came + sem.coming:
            return (
                f"no tma.expect({sem.name}, ...) has named the bytes of line {site.line}, so that "
                "the phase ended without them: it stands before the load, in place of arrive"
            )
        hint = f"put wait({sem.name}, phase) {between}: it passes when the data is there"
        if sem.known(w) == sem.base:
            return hint
        return (
            f"if this data is what is wanted: {hint}; if it is older data: line {site.line} "
            f"refills it too early: arrive on a semaphore after line {s.line}, and wait for that "
            f"before line {site.line}"
        )
    old = idle(w)
    if old and operation(s) == "TMA load":
        return old
    if theirs:
        if site.line >= s.line:
            between = f"after line {site.line}, before line {s.line} runs again"
        return f"{_END[theirs]} {between}"
    if site.line < s.line and _barriers(w, site, s):
        return (
            f"there is a barrier between the lines, so line {site.line} has run again: put "
            f"block.sync() after line {s.line}, before line {site.line} runs again"
        )
    ends = f"let warp {other} arrive on a semaphore, or use a barrier,"
    return f"{ends} after line {site.line}; wait for that before line {s.line}"
