"""Pictures to click through: the same data as the figure, drawn by explore.js.

An `Interactive` shows its picture as plain HTML, and that is all that is stored in the notebook.
While a kernel runs, the widget's model puts itself into that place (`attach` in explore.js) and
hides the picture. So a saved notebook, a page made from it, and a front end that cannot load
widgets show the picture. VS Code and Colab draw widgets only where an output asks for one: there
the widget follows the picture as an output of its own, which hides it when it loads. The script is
sent with the widget: nothing of ours comes from a network.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tklearn.lang import layouts
from tklearn.lang.errors import FigureError
from tklearn.report import Report
from tklearn.viz.banks import Banks
from tklearn.viz.coalescing import Sectors
from tklearn.viz.layout import Ownership, ownership
from tklearn.viz.picture import Picture
from tklearn.viz.roofline import Roofline
from tklearn.viz.rows import LOOK, OTHERS
from tklearn.viz.swizzle import AddressMap
from tklearn.viz.timeline import Drawn, fault_lines

SCRIPT = Path(__file__).with_name("explore.js")
STEPPER = Path(__file__).with_name("timeline.js")  # more of it, for timelines


def ownership_data(o: Ownership) -> dict[str, Any]:
    """One map of who holds what, as explore.js takes it."""
    rows, cols = o.shape
    return {
        "axes": list(o.axes),
        "rows": rows,
        "cols": cols,
        "threads": o.threads,
        "bits": o.bits,
        "thread": o.thread.ravel().tolist(),
        "register": o.register.ravel().tolist(),
    }


@cache
def fragments() -> dict[str, dict[str, Any]]:
    """Every mma.sync fragment that layouts.py knows, and two of wgmma."""
    names = [f"{i} {x}" for i in layouts.FRAGMENTS for x in "ABC"] + ["wgmma A", "wgmma m64n32 D"]
    return {n: ownership_data(ownership(n)) for n in names}


def _layout(o: Ownership) -> tuple[dict[str, Any], dict[str, Any]]:
    known = fragments()
    others = known if o.name in known or o.axes != ("row", "col") else {}
    data = {"layouts": {o.name: ownership_data(o), **others}}
    return data, {"view": "layout", "what": o.name}


def _banks(b: Banks) -> tuple[dict[str, Any], dict[str, Any]]:
    access = {
        "name": b.name or b.kind,
        "kind": b.kind,
        "width": b.width,
        "offsets": list(b.offsets),
    }
    return {"access": access}, {"view": "banks"}


def _swizzle(panels: list[AddressMap]) -> tuple[dict[str, Any], dict[str, Any]]:
    maps = [{"name": m.name, "unit": m.unit, "place": m.place[:32].tolist()} for m in panels]
    return {"maps": maps}, {"view": "swizzle", "map": panels[-1].name, "row": 0}


def _sectors(s: Sectors) -> tuple[dict[str, Any], dict[str, Any]]:
    access = {"name": s.name or s.kind, "width": s.width, "offsets": list(s.offsets)}
    return {"sectors": access}, {"view": "sectors", "itemsize": 4}


def _lines(r: Report) -> tuple[dict[str, Any], dict[str, Any]]:
    keys = [k for k in r.columns() if not k.endswith("_ideal")]
    ideals = {k: k.rpartition("_")[0] + "_ideal" for k in keys}
    ideals = {k: v for k, v in ideals.items() if k.endswith(("_wavefronts", "_sectors"))}
    ideals = {k: v for k, v in ideals.items() if v in r.columns()}
    rows = r.rows([])
    lines = [{"line": n, "text": t, "counts": r.lines.get(n, {})} for n, t, _ in rows]
    if not keys or not lines:
        raise FigureError("TK600", f"this run of {r.kernel} has no source or counted nothing")
    most = max(range(len(rows)), key=lambda i: r.lines.get(rows[i][0], {}).get(keys[0], 0))
    listing = {"counters": keys, "ideals": ideals, "lines": lines}
    return {"listing": listing}, {"view": "lines", "row": most}


def _roofs(r: Roofline) -> tuple[dict[str, Any], dict[str, Any]]:
    roofs = {
        d.device: {
            "bandwidth": d.bandwidth,
            "flops": d.tensor_flops,
            "points": [
                {"name": p.name, "intensity": p.intensity, "bound": p.bound, "measured": p.measured}
                for p in d.points
            ],
        }
        for d in (r, *r.others)
    }
    return {"roofs": roofs}, {"view": "roofs", "device": r.device, "row": 0}


def _timeline(d: Drawn) -> tuple[dict[str, Any], dict[str, Any]]:
    t, rows = d.timeline, d.rows
    kept = ("round", "warp", "kind", "line", "what", "says", "count", "changes", "ends")
    data = {
        "kernel": t.kernel,
        "warps": t.warps,
        "roles": list(t.roles),
        "source": {str(n): text for n, text in t.source.items()},
        "semaphores": list(t.semaphores),
        "tiles": list(t.tiles),
        "moments": [{k: getattr(m, k) for k in kept} for m in t.moments],
        "at": [list(x) for x in rows.at],
        "rows": [list(r) for r in rows.rows],
        "bars": [[b.row, b.start, b.end, b.style, b.text, b.moments] for b in rows.bars],
        "marks": [i for i in rows.marks if i >= 0],
        "end": rows.end,
        "axis": rows.axis,
        "look": {k: list(v) for k, v in LOOK.items()} | {k: ["", "", v] for k, v in OTHERS.items()},
        "fault": fault_lines(t),
    }  # fmt: skip
    n = len(t.moments) - 1 if t.fault is not None else 0
    return {"timeline": data}, {"view": "timeline", "n": n, "follow": ""}


def widget_data(data: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a picture's data are for explore.js, and the state to start in. Error TK600."""
    if isinstance(data, Ownership):
        return _layout(data)
    if isinstance(data, Banks):
        return _banks(data)
    if isinstance(data, Sectors):
        return _sectors(data)
    if isinstance(data, list) and data and isinstance(data[0], AddressMap):
        return _swizzle(data)
    if isinstance(data, Report):
        return _lines(data)
    if isinstance(data, Roofline):
        return _roofs(data)
    if isinstance(data, Drawn):
        return _timeline(data)
    raise FigureError(
        "TK600",
        "this picture has no widget",
        hint="those of layout, banks, swizzle, coalescing, lines, roofline and timeline have one",
    )


def wants_view(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether the front end draws a widget only where an output asks for it: VS Code and Colab."""
    return "VSCODE_PID" in environ or "COLAB_RELEASE_TAG" in environ


class Interactive:
    """A picture with its widget: click a cell, or walk with the arrow keys and press Enter.

    `state` is what has been chosen so far; `view` is the anywidget, None where that is missing.
    """

    def __init__(self, picture: Picture) -> None:
        self.picture = picture
        self.data, start = widget_data(picture.data)
        self.view = _make(self.data, start)

    @property
    def state(self) -> dict[str, Any]:
        return dict(self.view.state) if self.view is not None else {}

    def _ipython_display_(self) -> None:
        from IPython.display import display

        place = f"tk-still-{secrets.token_hex(4)}"
        still = f'<div id="{place}">{self.picture.img()}</div>'
        display({"text/html": still, "text/plain": self.picture.alt}, raw=True)
        if self.view is not None:
            self.view.places = [*self.view.places, place]
            if self.view.apart:
                display(self.view)


def _make(data: dict[str, Any], state: dict[str, Any]) -> Any:
    try:
        import anywidget
        import traitlets
    except ImportError:
        return None

    script = SCRIPT.read_text(encoding="utf-8")
    if "timeline" in data:
        script += STEPPER.read_text(encoding="utf-8")

    class Explorer(anywidget.AnyWidget):
        _esm = script
        data = traitlets.Dict().tag(sync=True)
        state = traitlets.Dict().tag(sync=True)
        places = traitlets.List(traitlets.Unicode()).tag(sync=True)  # of the pictures shown
        apart = traitlets.Bool(False).tag(sync=True)  # shown by an output of its own

        def __repr__(self) -> str:
            return "(the picture above, to click through)"

    return Explorer(data=data, state=state, apart=wants_view())
