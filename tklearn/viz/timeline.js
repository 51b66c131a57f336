// A block's run to step through, forwards and back: source lines, semaphores, shared tiles, copies.
// widgets.py appends this to explore.js, whose mount() calls stepper() where Python sent a timeline:
// its moments, and the rows and bars of its picture.

const STEPPER_CSS = `
.tkt { font: 13px/1.45 system-ui, sans-serif; color: #111; background: #fff; padding: 4px; max-width: 100%; }
.tkt:focus-visible { outline: 3px solid #0072B2; outline-offset: 2px; }
.tkt form { display: flex; flex-wrap: wrap; gap: 4px 8px; align-items: center; margin: 0 0 4px; }
.tkt button, .tkt select { font: inherit; color: #111; background: #f2f2f2; border: 1px solid #666; border-radius: 3px; padding: 1px 8px; }
.tkt button:hover { background: #ddd; } .tkt button:disabled { color: #888; }
.tkt input[type=range] { flex: 1 1 160px; min-width: 120px; }
.tkt .say { min-height: 1.5em; margin: 4px 0; font-weight: 600; }
.tkt .where { white-space: nowrap; color: #333; }
.tkt .fault { margin: 4px 0; padding: 4px 8px; border: 2px solid #D55E00; color: #7a2c00; background: #fff6f0; }
.tkt .fault p { margin: 0; white-space: pre-wrap; }
.tkt .chart { display: flex; border: 1px solid #bbb; max-height: 420px; overflow-y: auto; }
.tkt .chart > svg { flex: 0 0 112px; }
.tkt .chart .right { overflow-x: auto; flex: 1 1 auto; min-width: 0; }
.tkt svg { display: block; } .tkt svg text { font: 10px sans-serif; fill: #111; }
.tkt .b { cursor: pointer; } .tkt .later { opacity: .22; }
.tkt .now { stroke: #000; stroke-width: 2.5; } .tkt .mark { fill: none; stroke: #D55E00; stroke-width: 3; }
.tkt .panes { display: flex; flex-wrap: wrap; gap: 8px 16px; margin-top: 6px; align-items: flex-start; }
.tkt .source { font: 12px/1.35 monospace; max-height: 420px; overflow: auto; border: 1px solid #bbb; flex: 1 1 420px; position: relative; }
.tkt .source div { display: flex; white-space: pre; padding: 0 4px; }
.tkt .source .at { background: #fff3c4; box-shadow: inset 4px 0 0 #E69F00; }
.tkt .source .no { color: #666; min-width: 2.6em; text-align: right; padding-right: 8px; }
.tkt .source .who { margin-left: 10px; }
.tkt .chip { display: inline-block; font: 11px sans-serif; border: 1px solid #333; border-radius: 8px; padding: 0 5px; margin-left: 4px; background: #fff; }
.tkt .chip.waits { background: repeating-linear-gradient(45deg, #ddd 0 3px, #fff 3px 6px); }
.tkt .chip.now { background: #E69F00; font-weight: bold; }
.tkt .state { flex: 0 1 auto; } .tkt table { border-collapse: collapse; margin: 0 0 8px; background: #fff; }
.tkt caption { text-align: left; font-weight: 600; }
.tkt th, .tkt td { font: 12px sans-serif; text-align: left; padding: 1px 7px; border: 1px solid #bbb; color: #111; background: #fff; }
.tkt tr.changed td, .tkt tr.changed th { background: #fff3c4; font-weight: bold; }
.tkt td.arriving { background: repeating-linear-gradient(45deg, #D7ECF9 0 3px, #fff 3px 6px); }
.tkt td.unwritten { background: #eee; } .tkt td.full { background: #BFE3D8; }
.tkt td.partly { background: #F0D9E5; } .tkt details { margin-top: 4px; } .tkt .keys { color: #333; font-size: 12px; }
`;
const FILLS = {
  wait: "url(#tkw)", stuck: "url(#tks)", copying: "#56B4E9", product: "#E69F00", arriving: "url(#tka)",
  filling: "url(#tkf)", full: "#BFE3D8", using: "#E69F00", phase0: "#fff", phase1: "#c9c9c9",
};
const SVG = "http://www.w3.org/2000/svg";
const TALL = 17; // of a row of the picture, in pixels

function svg(tag, attributes = {}, ...children) {
  const e = document.createElementNS(SVG, tag);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  e.append(...children);
  return e;
}

// 0-3, 8
export function ranges(numbers) {
  const out = [];
  for (const n of [...numbers].sort((a, b) => a - b)) {
    const last = out[out.length - 1];
    if (last && last[1] === n - 1) last[1] = n; else out.push([n, n]);
  }
  return out.map(([a, b]) => (a === b ? `${a}` : `${a}-${b}`)).join(", ");
}

// The state after moment n: "warp 3", "semaphore full[0]", "tile a[0]", ... -> what is known of it.
export function stateAt(moments, n) {
  const state = {};
  for (let i = 0; i <= n; i++) Object.assign(state, moments[i].changes);
  return state;
}

// Moments that began something which has not ended by n.
export function underWay(moments, n) {
  const open = new Map();
  for (let i = 0; i <= n; i++) {
    for (const j of moments[i].ends) open.delete(j);
    if (["load", "store", "copy", "wgmma"].includes(moments[i].kind)) open.set(i, moments[i]);
  }
  return [...open.values()];
}

// Whether moment m is one of what is followed: "", "warp 3", "semaphore full[0]", "tile a[0]".
export function follows(m, follow) {
  if (!follow) return true;
  const [kind, ...rest] = follow.split(" "), name = rest.join(" ");
  if (kind === "warp") return m.warp === Number(name) && !["land", "phase", "bytes", "start", "gap"].includes(m.kind);
  if (follow in m.changes && m.kind !== "start" && m.kind !== "gap") return true;
  return m.what.split(", ").includes(name);
}

function patterns() {
  const make = (id, back, line, path) => svg("pattern", { id, width: 6, height: 6, patternUnits: "userSpaceOnUse" },
    svg("rect", { width: 6, height: 6, fill: back }), svg("path", { d: path, stroke: line, "stroke-width": 1 }));
  return svg("defs", {}, make("tkw", "#efefef", "#999", "M1 1h1M4 4h1"), make("tks", "#fbe3d6", "#D55E00", "M0 0L6 6M6 0L0 6"),
    make("tka", "#d7ecf9", "#0072B2", "M0 6L6 0"), make("tkf", "#f0d9e5", "#CC79A7", "M0 0L6 6"));
}

function chart(d, pick) {
  const span = Math.max(d.end, 1), px = Math.min(18, Math.max(9, 900 / span)), gaps = [];
  d.rows.forEach((r, i) => gaps.push((gaps[i - 1] ?? 0) + (i && r[1] !== d.rows[i - 1][1] ? 6 : 0)));
  const y = (r) => 2 + TALL * r + gaps[r], height = y(d.rows.length - 1) + TALL + 3;
  const left = svg("svg", { width: 112, height, "aria-hidden": "true" });
  d.rows.forEach(([label], r) => left.append(svg("text", { x: 106, y: y(r) + 12, "text-anchor": "end" }, label)));
  const right = svg("svg", { width: span * px, height, role: "img" });
  right.setAttribute("aria-label", `rows of warps, copies and tensor cores; ${d.axis}`);
  right.append(patterns());
  const shapes = d.bars.map(([row, start, end, style, text, moments]) => {
    const look = d.look[style], box = look && look[0];
    const g = svg("g", { class: "b" });
    const x = start * px + (box ? 1 : 0), width = Math.max((end - start) * px - (box ? 2 : 0), style === "ended" ? 2 : 1);
    const thin = style === "full" ? 4 : 1.5;
    const rect = svg("rect", { x, y: y(row) + thin, width, height: TALL - 2 * thin, stroke: "#555", "stroke-width": 0.6,
      fill: box ? look[1] : FILLS[style] || "#333" });
    const words = box ? look[0] : ["arriving", "using", "filling", "full", "ended"].includes(style) ? "" : text;
    g.append(svg("title", {}, [look ? look[2] : style, text].filter(Boolean).join(": ")), rect);
    if (words && words.length * 5.6 < width + 4) {
      const dark = box && ["#0072B2"].includes(look[1]);
      g.append(svg("text", { x: x + width / 2, y: y(row) + 12, "text-anchor": "middle", style: dark ? "fill:#fff" : "" }, words));
    }
    if (moments.length) g.addEventListener("click", () => pick(moments[0]));
    else g.addEventListener("click", () => pick(nearest(d, start)));
    right.append(g);
    return { g, rect, start, moments };
  });
  for (const i of d.marks) {
    const [row, start, end] = d.bars[i];
    right.append(svg("rect", { class: "mark", x: start * px - 1, y: y(row) - 1, width: (end - start) * px + 2, height: TALL + 2 }));
  }
  if (d.marks.length === 2) {
    const [a, b] = d.marks.map((i) => d.bars[i]).map(([row, start, end]) => [((start + end) / 2) * px, y(row) + TALL / 2]);
    right.append(svg("line", { x1: a[0], y1: a[1], x2: b[0], y2: b[1], stroke: "#D55E00", "stroke-width": 2, "stroke-dasharray": "5 3" },
      svg("title", {}, "nothing orders these")));
  }
  const cursor = svg("line", { y1: 0, y2: height, stroke: "#D55E00", "stroke-width": 1.5, "stroke-dasharray": "4 2" });
  right.append(cursor);
  const scroll = el("div", { className: "right" }, right);
  const box = el("div", { className: "chart" }, left, scroll);
  const show = (n) => {
    const at = d.at[n][1];
    for (const s of shapes) {
      const later = s.moments.length ? Math.min(...s.moments) > n : s.start >= at;
      s.g.classList.toggle("later", later);
      s.rect.classList.toggle("now", s.moments.includes(n));
    }
    cursor.setAttribute("x1", at * px);
    cursor.setAttribute("x2", at * px);
    const seen = scroll.scrollLeft, wide = scroll.clientWidth;
    if (wide && (at * px < seen + 20 || at * px > seen + wide - 40)) scroll.scrollLeft = at * px - wide / 2;
  };
  return { box, show };
}

function nearest(d, x) {
  let best = 0;
  d.at.forEach(([, end], i) => { if (end <= x) best = i; });
  return best;
}

function grid(name, heads, rows, changes) {
  const body = rows.map(({ key, title, cells }) => {
    const tr = el("tr", { className: key in changes ? "changed" : "" }, el("th", { scope: "row", textContent: title }));
    tr.dataset.key = key;
    for (const [text, kind] of cells) tr.append(el("td", { textContent: text, className: kind || "" }));
    return tr;
  });
  return el("table", {}, el("caption", { textContent: name }),
    el("thead", {}, el("tr", {}, ...["", ...heads].map((h) => el("th", { textContent: h, scope: "col" })))),
    el("tbody", {}, ...body));
}

// "wgmma of warps 0-3" for one of each warp.
function together(users) {
  const warps = users.map((x) => /^wgmma of warp (\d+)$/.exec(x)).filter(Boolean).map((x) => Number(x[1]));
  const others = users.filter((x) => !x.startsWith("wgmma of warp "));
  return [...(warps.length ? [`wgmma of warp${warps.length > 1 ? "s" : ""} ${ranges(warps)}`] : []), ...others].join(", ");
}

function tables(d, state, n) {
  const changes = d.moments[n].changes, out = [];
  const waiting = (name) => ranges([...Array(d.warps).keys()].filter((w) => {
    const s = state[`warp ${w}`];
    return s && s.does === "waits" && s.for === name;
  }));
  if (d.semaphores.length) out.push(grid("Semaphores", ["phase", "arrivals missing", "bytes missing", "warps that wait"],
    d.semaphores.map((name) => {
      const key = `semaphore ${name}`, s = state[key] || {};
      const live = s.count !== null && s.count !== undefined;
      return { key, title: name, cells: live
        ? [[s.phase], [`${s.pending} of ${s.count}`], [s.bytes], [waiting(name)]]
        : [["not initialised"], [""], [""], [waiting(name)]] };
    }), changes));
  const barriers = Object.keys(state).filter((k) => k.startsWith("barrier ")).sort();
  const others = ["block.sync()", "wgmma", "registers", ...barriers].map((name) => [name, waiting(name)])
    .filter(([name, who]) => who || barriers.includes(name));
  if (others.length) out.push(grid("Other waits", ["warps that came", "warps that wait"], others.map(([name, who]) => ({
    key: name, title: name, cells: [[state[name] && state[name].came ? ranges(state[name].came) : ""], [who]],
  })), changes));
  if (d.tiles.length) out.push(grid("Shared memory", ["state", "last written by", "being read by"], d.tiles.map((name) => {
    const key = `tile ${name}`, s = state[key] || { state: "unwritten", by: "", using: [] };
    return { key, title: name, cells: [[s.state, s.state.split(" ")[0]], [s.by], [together(s.using)]] };
  }), changes));
  const flying = new Map(), verb = { load: "TMA load of ", store: "TMA store of ", copy: "cp.async into ", wgmma: "wgmma on " };
  for (const m of underWay(d.moments, n)) {
    const key = `${verb[m.kind]}${m.what}|${m.line}`;
    flying.set(key, [...(flying.get(key) || []), m.warp]);
  }
  if (flying.size) out.push(grid("Under way", ["since line", "started by"], [...flying].map(([key, warps]) => {
    const [what, line] = key.split("|");
    return { key: `under way ${what}`, title: what, cells: [[line], [`warp${warps.length > 1 ? "s" : ""} ${ranges(warps)}`]] };
  }), {}));
  return out;
}

function source(d, state, n) {
  const now = d.moments[n];
  const lines = Object.keys(d.source).map(Number).sort((a, b) => a - b);
  const on = new Map();
  for (let w = 0; w < d.warps; w++) {
    const s = state[`warp ${w}`];
    if (!s || s.does === "ended") continue;
    const key = `${s.line} ${s.does}`;
    on.set(key, [...(on.get(key) || []), w]);
  }
  const rows = lines.map((line) => {
    const row = el("div", { className: line === now.line ? "at" : "" },
      el("span", { className: "no", textContent: line }), el("span", { textContent: d.source[line] || " " }));
    row.dataset.line = line;
    const who = el("span", { className: "who" });
    for (const does of ["runs", "waits"]) {
      const warps = on.get(`${line} ${does}`);
      if (!warps) continue;
      const mine = line === now.line && warps.includes(now.warp) ? " now" : "";
      who.append(el("span", { className: `chip ${does}${mine}`, textContent: `${does === "waits" ? "waiting: " : ""}warp${warps.length > 1 ? "s" : ""} ${ranges(warps)}` }));
    }
    row.append(who);
    return row;
  });
  return rows;
}

// Draws into `root` and calls changed(state) after every step.
export function stepper(root, data, given, changed = () => {}) {
  const d = data.timeline, last = d.moments.length - 1;
  let state = { view: "timeline", n: 0, follow: "", ...given }, timer = null;
  const box = el("div", { className: "tkt", tabIndex: 0, role: "group" });
  box.setAttribute("aria-label", `${d.kernel}, step by step: arrow right and left step, arrow up and down go to what is followed`);
  box.setAttribute("data-lm-suppress-shortcuts", "true"); // JupyterLab leaves the keys to us
  const button = (name, text, title, act) => {
    const b = el("button", { type: "button", textContent: text, title });
    b.setAttribute("aria-label", title);
    b.dataset.act = name;
    b.addEventListener("click", act);
    return b;
  };
  const go = (n) => {
    const to = Math.min(Math.max(n, 0), last);
    state = { ...state, n: to };
    draw();
    changed(state);
  };
  const jump = (by) => {
    for (let i = state.n + by; i >= 0 && i <= last; i += by) if (follows(d.moments[i], state.follow)) return go(i);
    return undefined;
  };
  const stop = () => { clearInterval(timer); timer = null; play.textContent = "Play"; };
  const toggle = () => {
    if (timer) return stop();
    if (state.n === last) go(0);
    play.textContent = "Pause";
    timer = setInterval(() => (state.n >= last || !box.isConnected ? stop() : jump(1) ?? (state.n >= last && stop())), 450);
    return undefined;
  };
  const slider = el("input", { type: "range", min: 0, max: last, value: state.n, name: "n" });
  slider.setAttribute("aria-label", "moment");
  slider.addEventListener("input", () => { stop(); go(Number(slider.value)); });
  const follow = el("select", { name: "follow" }, el("option", { value: "", textContent: "everything" }));
  for (let w = 0; w < d.warps; w++) follow.append(el("option", { value: `warp ${w}`, textContent: `warp ${w}${d.roles[w] ? `, ${d.roles[w]}` : ""}` }));
  for (const s of d.semaphores) follow.append(el("option", { value: `semaphore ${s}`, textContent: s }));
  for (const t of d.tiles) follow.append(el("option", { value: `tile ${t}`, textContent: `tile ${t}` }));
  follow.value = state.follow;
  follow.addEventListener("change", () => { state = { ...state, follow: follow.value }; draw(); changed(state); });
  const where = el("span", { className: "where" });
  const play = button("play", "Play", "play or pause (space)", toggle);
  const form = el("form", {},
    button("first", "|<", "first moment (home)", () => go(0)), button("back", "<", "one moment back (arrow left)", () => go(state.n - 1)),
    button("on", ">", "one moment on (arrow right)", () => go(state.n + 1)), button("last", ">|", "last moment (end)", () => go(last)),
    play, slider, where, el("label", {}, "follow ", follow),
    button("previous", "previous of it", "previous moment of what is followed (arrow up)", () => jump(-1)),
    button("next", "next of it", "next moment of what is followed (arrow down)", () => jump(1)));
  form.addEventListener("submit", (e) => e.preventDefault());
  const say = el("p", { className: "say", role: "status" });
  say.setAttribute("aria-live", "polite");
  const fault = el("div", { className: "fault" }, ...d.fault.map((x) => el("p", { textContent: x })));
  const picture = chart(d, go), code = el("div", { className: "source", tabIndex: -1 }), side = el("div", { className: "state" });
  const keys = el("div", { className: "keys", textContent: "Keys: left and right one moment, up and down the moments of what is followed, home, end, space to play. Click a box to go there." });
  root.append(el("style", { textContent: STEPPER_CSS }), box);
  box.append(form, say, fault, picture.box, el("div", { className: "panes" }, code, side), keys);
  box.addEventListener("keydown", (e) => {
    if (e.target === follow) return;
    const act = { ArrowRight: () => go(state.n + 1), ArrowLeft: () => go(state.n - 1), ArrowDown: () => jump(1), ArrowUp: () => jump(-1),
      Home: () => go(0), End: () => go(last), " ": toggle }[e.key];
    if (!act || (e.key === " " && e.target.tagName === "BUTTON")) return;
    e.preventDefault();
    e.stopPropagation();
    if (e.key !== " ") stop();
    act();
  });
  function draw() {
    const m = d.moments[state.n], now = stateAt(d.moments, state.n);
    where.textContent = `moment ${state.n} of ${last}, round ${m.round}`;
    slider.value = state.n;
    follow.value = state.follow;
    say.textContent = `${m.line > 0 ? `line ${m.line}: ` : ""}${m.says}${m.count > 1 ? ` (${m.count} times)` : ""}`;
    fault.style.display = d.fault.length && state.n === last ? "" : "none";
    picture.show(state.n);
    code.replaceChildren(...source(d, now, state.n));
    const at = code.querySelector(".at");
    if (at && code.clientHeight) code.scrollTop = at.offsetTop - code.clientHeight / 2;
    side.replaceChildren(...tables(d, now, state.n));
  }
  draw();
  return { go, jump, state: () => state, stop };
}
