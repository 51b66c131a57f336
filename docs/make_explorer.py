"""Writes docs/explorer.html: layouts, banks and swizzles to click through, in one file.

    python docs/make_explorer.py

The page opens from disk and loads nothing; what is chosen stands in its address after the #. Its
maps come from tklearn's layout functions, its script is the widgets' (tklearn/viz/explore.js).
"""

import json
from pathlib import Path

from tklearn.viz.layout import ownership
from tklearn.viz.widgets import SCRIPT, fragments, ownership_data

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>tklearn explorer: layouts, banks, swizzles</title>
<style>body { margin: 16px; background: #fff; color: #111; font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 20px; margin: 0; } p { max-width: 62em; margin: 4px 0 10px; }</style>
<h1>Layouts, banks, swizzles</h1>
<p>Who holds each element of a tensor-core fragment, what one access of shared memory costs, where a
swizzle puts things, which sectors an access of global memory moves. Click a cell, or walk with Tab
and the arrow keys and press Enter. The page's address holds what you chose. A swizzle may be your
own: a formula of <code>row</code> and <code>piece</code> (16 bytes), <code>word</code> (4 bytes) or
<code>addr</code>, as in <code>piece ^ row %% 8</code>, <code>word ^ row</code> or
<code>addr ^ (addr >> 7 &amp; 7) &lt;&lt; 4</code>.</p>
<main id="app"></main>
<noscript>This page needs JavaScript; the notebooks show the same as pictures.</noscript>
<script type="module">
%(script)s
const DATA = %(data)s;
const NUMBERS = Object.keys(START).filter((k) => typeof START[k] === "number");
function fromHash() {
  const given = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  for (const k of Object.keys(given)) {
    if (!(k in START)) delete given[k];
    else if (NUMBERS.includes(k)) given[k] = Number.isFinite(+given[k]) ? +given[k] : START[k];
  }
  if (given.view && !DATA.views.some(([v]) => v === given.view)) delete given.view;
  return given;
}
function toHash(state) {
  const kept = Object.entries(state).filter(([k, v]) => v !== START[k]);
  history.replaceState(null, "", "#" + new URLSearchParams(kept));
}
const app = mount(document.getElementById("app"), DATA, fromHash(), toHash);
addEventListener("hashchange", () => app.set({ ...START, ...fromHash() }));
window.tkviz = {
  access, cost, expression, offset, problem, sectors, swizzleAddress, transactions, app,
};
</script>
</html>
"""


def page() -> str:
    """The whole page as text."""
    tiles = {str(t): ownership_data(ownership(t)) for t in _tiles()}
    data = {
        "views": [
            ["layout", "layouts: who holds what"],
            ["banks", "banks of shared memory"],
            ["swizzle", "swizzles"],
            ["sectors", "sectors of global memory"],
        ],
        "layouts": {**fragments(), **tiles},
    }
    text = json.dumps(data, separators=(",", ":"))
    return PAGE % {"script": SCRIPT.read_text(encoding="utf-8"), "data": text}


def _tiles() -> list:
    import tklearn as tk

    return [tk.rt_bf(32, 32), tk.rt_bf(32, 32, tk.col)]


def main() -> None:
    path = Path(__file__).parent / "explorer.html"
    path.write_text(page(), encoding="utf-8")
    print(f"{path}: {path.stat().st_size / 1024:.0f} kB")


if __name__ == "__main__":
    main()
