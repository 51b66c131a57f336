// Clickable pictures of layouts, banks, swizzles and sectors: the widgets' and the explorer's one script.
// It loads nothing. The formulas in its first part equal tklearn/lang/layouts.py and tklearn/access.py;
// tests/test_viz_explorer.py compares them on every setting.

// ---------------------------------------------------------------------------------- formulas
const BITS = { 0: 0, 32: 1, 64: 2, 128: 3 };

export function swizzleAddress(address, swizzle) {
  return address ^ (((address >> 7) & ((1 << BITS[swizzle]) - 1)) << 4);
}

// A learner's own function: whole numbers, names, + - * // % << >> & ^ | and parentheses, with
// Python's precedences. Nothing else is read and nothing is run: the text becomes a tree of these.
const OWN = -1; // as a tile's swizzle
const NAMES = ["row", "piece", "word", "addr"];
const LEVELS = [["|"], ["^"], ["&"], ["<<", ">>"], ["+", "-"], ["*", "//", "%"]];
const DO = {
  "|": (a, b) => a | b, "^": (a, b) => a ^ b, "&": (a, b) => a & b, "<<": (a, b) => a << b, ">>": (a, b) => a >> b,
  "+": (a, b) => a + b, "-": (a, b) => a - b, "*": (a, b) => a * b, "//": (a, b) => Math.floor(a / b),
  "%": (a, b) => a - b * Math.floor(a / b),
};

// {names, at(values)}; an Error says what is wrong with the text.
export function expression(text) {
  const tokens = text.match(/\d+|[A-Za-z_]\w*|<<|>>|\/\/|\S/g) || [], names = new Set();
  let i = 0;
  if (text.length > 120) throw new Error("it is longer than 120 characters");
  function level(n) {
    if (n === LEVELS.length) return atom();
    let left = level(n + 1);
    while (LEVELS[n].includes(tokens[i])) {
      const f = DO[tokens[i++]], a = left, b = level(n + 1);
      left = (v) => f(a(v), b(v));
    }
    return left;
  }
  function atom() {
    const t = tokens[i++];
    if (t === undefined) throw new Error("something is missing at its end");
    if (/^\d+$/.test(t)) { const n = Number(t); return () => n; }
    if (NAMES.includes(t)) { names.add(t); return (v) => v[t]; }
    if (t === "(") {
      const inner = level(0);
      if (tokens[i++] !== ")") throw new Error("a ) is missing");
      return inner;
    }
    throw new Error(/^\w/.test(t) ? `there is no ${t}; there are ${NAMES.join(", ")}` : `${t} is not expected there`);
  }
  const at = level(0);
  if (i < tokens.length) throw new Error(`${tokens[i]} is not expected there`);
  return { names, at };
}

// Where a tile's elements lie by its own function: {unit, place(row, byte of the row)}. `addr` gives
// the new byte address of an element; else the function says in which piece of 16 bytes (with
// `word`: in which word) of its row a piece is stored.
function ownPlaces(t) {
  const { names, at } = expression(t.own), pitch = t.cols * t.itemsize;
  if (names.has("addr")) {
    const place = (row, b) => at({ addr: row * pitch + b, row, piece: b >> 4, word: b >> 2 });
    const whole = count(t.rows).every((r) => count(pitch / 16).every((p) => count(16 / t.itemsize).every((k) =>
      place(r, 16 * p + k * t.itemsize) === place(r, 16 * p) + k * t.itemsize)));
    return { unit: whole ? 16 : t.itemsize, step: t.itemsize, free: true, place };
  }
  const unit = names.has("word") ? 4 : 16;
  const place = (row, b) => {
    const p = Math.floor(b / unit);
    return row * pitch + at({ row, piece: p, word: p, addr: 0 }) * unit + (b % unit);
  };
  return { unit, step: unit, place };
}

const kept = new Map(); // tile -> its places, or why not
function own(t) {
  const key = [t.own, t.rows, t.cols, t.itemsize].join(" ");
  if (kept.size > 64) kept.clear();
  if (!kept.has(key)) kept.set(key, checked(t));
  return kept.get(key);
}

function checked(t) {
  let made;
  try { made = ownPlaces(t); } catch (e) { return { wrong: `in your function, ${e.message}` }; }
  const pitch = t.cols * t.itemsize, taken = new Map();
  for (let r = 0; r < t.rows; r++) for (let b = 0; b < pitch; b += made.step) {
    const a = made.place(r, b), what = `row ${r}, byte ${b}`;
    const inside = made.free ? a >= 0 && a < t.rows * pitch : a >= r * pitch && a < (r + 1) * pitch;
    if (!Number.isInteger(a) || !inside || a % made.step) return { wrong: `your function puts ${what} at byte ${a}, outside its place` };
    if (taken.has(a)) return { wrong: `your function puts ${what} where ${taken.get(a)} is` };
    taken.set(a, what);
  }
  return made;
}

// tile: {rows, cols, itemsize, swizzle, pad, own}; swizzle -1 is the function `own`. Why it is not
// possible, or "".
export function problem(t) {
  if (t.swizzle === OWN) return t.pad ? "a tile is either swizzled or padded" : own(t).wrong || "";
  if (t.swizzle && t.pad) return "a tile is either swizzled or padded";
  if (t.swizzle && (t.cols * t.itemsize) % t.swizzle)
    return `rows of ${t.cols * t.itemsize} bytes do not divide into ${t.swizzle}-byte swizzles`;
  return "";
}

export function offset(t, row, col) {
  if (t.swizzle === OWN) return own(t).place(row, col * t.itemsize);
  if (!t.swizzle) return (row * (t.cols + t.pad) + col) * t.itemsize;
  const sub = t.swizzle / t.itemsize;
  const linear = (Math.floor(col / sub) * t.rows + row) * sub + (col % sub);
  return swizzleAddress(linear * t.itemsize, t.swizzle);
}

function merges(off) {
  const same = (x) => off.every((o, i) => o === off[i ^ x] || o < 0 || off[i ^ x] < 0);
  return same(1) || same(2);
}

// Active lanes of each transaction of one access; kind ld, st, atom, ldmatrix or stmatrix.
export function transactions(kind, width, off) {
  let size = 32, lanes = 32;
  if (kind === "ldmatrix" || kind === "stmatrix") [size, lanes] = [8, 8 * width];
  else if (kind !== "atom") {
    size = Math.min(32, 128 / width);
    if (kind === "ld" && width > 4 && merges(off)) size *= 2;
  }
  const out = [];
  for (let i = 0; i < lanes; i += size) {
    const group = [];
    for (let k = i; k < Math.min(i + size, lanes); k++) if (off[k] >= 0) group.push(k);
    if (group.length) out.push(group);
  }
  return out;
}

// cells: "pass,bank" -> lanes. In each bank the words queue up by their first lane.
export function queue(kind, width, lanes, off) {
  const bytes = kind === "ldmatrix" || kind === "stmatrix" ? 16 : width;
  const banks = new Map();
  for (const lane of lanes) {
    const end = Math.floor((off[lane] + Math.max(bytes, 4)) / 4);
    for (let word = Math.floor(off[lane] / 4); word < end; word++) {
      const key = kind === "atom" ? `${word},${lane}` : word;
      if (!banks.has(word % 32)) banks.set(word % 32, new Map());
      const words = banks.get(word % 32);
      words.set(key, [...(words.get(key) || []), lane]);
    }
  }
  const cells = {};
  let passes = 0;
  for (const [bank, words] of banks) {
    [...words.values()].forEach((who, p) => { cells[`${p},${bank}`] = who; });
    passes = Math.max(passes, words.size);
  }
  return { cells, passes };
}

export function cost(kind, width, off) {
  if (kind === "async") return { wavefronts: 0, ideal: 0 };
  const groups = transactions(kind, width, off);
  const wavefronts = groups.reduce((n, g) => n + queue(kind, width, g, off).passes, 0);
  return { wavefronts, ideal: groups.length };
}

// The accesses that the explorer offers: 32 byte offsets into a tile, -1 for an idle lane.
export const ACCESSES = {
  column: "lane i reads row i of a column",
  row: "lane i reads column i of a row",
  wide: "lane i reads 16 bytes of row i",
  ldmatrix: "ldmatrix.x4 of 16 x 16",
};

export function access(t, how, at) {
  const off = [];
  for (let i = 0; i < 32; i++) {
    if (how === "column") off.push(offset(t, i % t.rows, at % t.cols));
    else if (how === "row") off.push(i < t.cols ? offset(t, at % t.rows, i) : -1);
    else if (how === "wide") off.push(offset(t, i % t.rows, ((at * 16) / t.itemsize) % t.cols));
    else off.push(offset(t, i & 15, ((at * 16 + 16 * (i >> 4)) / t.itemsize) % t.cols));
  }
  const kind = how === "ldmatrix" ? "ldmatrix" : "ld";
  const width = how === "ldmatrix" ? 4 : how === "wide" ? 16 : t.itemsize;
  const step = how === "ldmatrix" || how === "wide" ? 16 : t.itemsize;
  const bad = off.some((o) => o >= 0 && o % step), torn = t.swizzle === OWN && step > own(t).unit;
  const why = torn ? "your function tears 16 bytes apart" : bad ? "rows are not aligned to 16 bytes" : "";
  return { kind, width, offsets: off, problem: why };
}

export function sectors(off, width) {
  const found = new Set();
  off.forEach((o) => { if (o >= 0) found.add(Math.floor(o / 32)); });
  return [...found].sort((a, b) => a - b);
}

// ------------------------------------------------------------------------------------ drawing
const PALETTE = ["#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#000000"];
const WHITE_ON = new Set(["#0072B2", "#000000"]);
const CSS = `
.tkx { font: 13px/1.45 system-ui, sans-serif; color: #111; background: #fff; padding: 4px; max-width: 100%; }
.tkx form { display: flex; flex-wrap: wrap; gap: 4px 14px; margin: 0 0 6px; }
.tkx label { white-space: nowrap; }
.tkx select, .tkx input { font: inherit; color: #111; background: #fff; border: 1px solid #666; padding: 1px 3px; }
.tkx input { width: 4.5em; }
.tkx input[type=text] { width: 17em; font-family: monospace; }
.tkx .scroll { overflow: auto; max-height: 560px; }
.tkx table { border-collapse: collapse; margin: 2px 0 8px; width: auto; }
.tkx th { font: 11px sans-serif; color: #444; padding: 0 4px; text-align: right; white-space: nowrap; background: #fff; }
.tkx thead th { text-align: center; max-width: 22px; padding: 0; overflow: visible; }
.tkx thead th:first-child { max-width: none; padding: 0 4px; }
.tkx td { border: 1px solid #999; min-width: 24px; height: 22px; padding: 0 1px; text-align: center;
  font: 12px/1.05 sans-serif; cursor: pointer; white-space: nowrap; }
.tkx td small { display: block; font-size: 9px; }
.tkx table.wide td { min-width: 19px; font-size: 11px; }
.tkx table.wide thead th { max-width: 19px; font-size: 10px; }
.tkx td.tall, .tkx table.wide td.tall { min-width: 30px; height: 31px; }
.tkx td.edge { border-left: 3px solid #111; }
.tkx td.mark { box-shadow: inset 0 0 0 2px #111, inset 0 0 0 3px #fff; font-weight: bold; }
.tkx td:focus { outline: 3px solid #111; outline-offset: 1px; position: relative; }
.tkx td.idle { background: repeating-linear-gradient(45deg, #d9d9d9 0 3px, #f4f4f4 3px 6px); }
.tkx table.code td { text-align: left; white-space: pre; font: 12px/1.3 monospace; border-width: 0 1px; padding: 0 6px; }
.tkx table.code thead th { text-align: left; max-width: none; }
.tkx th.bars { text-align: left; } .tkx .bar { display: inline-block; height: 11px; background: #56B4E9; }
.tkx .bar.over { background: repeating-linear-gradient(45deg, #D55E00 0 3px, #fff 3px 5px); }
.tkx .say { min-height: 3em; margin: 4px 0; } .tkx .more { color: #a33c00; font-weight: bold; }
`;

function el(tag, props = {}, ...children) {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(props))
    if (k in e && k !== "list") e[k] = v; else e.setAttribute(k, v);
  e.append(...children);
  return e;
}

function choice(name, label, options, value, change) {
  const box = el("select", { name });
  for (const [v, text] of options) box.append(el("option", { value: v, textContent: text }));
  box.value = String(value);
  box.addEventListener("change", () => change(box.value));
  return el("label", {}, `${label} `, box);
}

function number(name, label, value, max, change) {
  const box = el("input", { name, type: "number", min: 0, max, value });
  box.addEventListener("input", () => {
    const n = Math.floor(Number(box.value));
    if (box.value !== "" && n >= 0 && n <= max) change(n);
  });
  return el("label", {}, `${label} `, box);
}

function field(name, label, value, change) {
  const box = el("input", { name, type: "text", value, maxLength: 120, spellcheck: false });
  box.addEventListener("input", () => change(box.value));
  return el("label", {}, `${label} `, box);
}

// A table to click in and to walk through with the arrow keys. cell(r, c): {text, small, lane, idle,
// mark, label} or null. Lanes are coloured modulo 8 and written.
function table(spec) {
  const t = el("table", { role: "grid" });
  t.setAttribute("aria-label", spec.label);
  if (spec.cols > 16) t.className = "wide";
  if (spec.heads) {
    const head = el("tr", {}, el("th", { textContent: spec.corner || "" }));
    for (const h of spec.heads) head.append(el("th", { textContent: h }));
    t.append(el("thead", {}, head));
  }
  const body = el("tbody");
  let first = null, active = null;
  for (let r = 0; r < spec.rows; r++) {
    const tr = el("tr", { role: "row" }, el("th", { textContent: spec.names(r), scope: "row" }));
    for (let c = 0; c < spec.cols; c++) {
      const x = spec.cell(r, c);
      const td = el("td", { tabIndex: -1, role: "gridcell" });
      td.dataset.at = `${r},${c}`;
      if (spec.edge && c % spec.edge === 0) td.classList.add("edge");
      if (x) {
        td.textContent = x.text;
        if (x.small) td.append(el("small", { textContent: x.small }));
        if (x.lane !== undefined) {
          const colour = PALETTE[x.lane % 8];
          td.style.background = colour;
          td.style.color = WHITE_ON.has(colour) ? "#fff" : "#000";
        }
        if (x.small) td.classList.add("tall");
        if (x.idle) td.classList.add("idle");
        if (x.mark) td.classList.add("mark");
        td.setAttribute("aria-selected", x.mark ? "true" : "false");
        td.setAttribute("aria-label", x.label);
        first = first || td;
        if (x.here) active = td;
      } else td.setAttribute("aria-label", "empty");
      tr.append(td);
    }
    body.append(tr);
  }
  t.append(body);
  const start = active || first || t.querySelector("td");
  if (start) start.tabIndex = 0;
  const pick = (td) => {
    const [r, c] = td.dataset.at.split(",").map(Number);
    if (spec.cell(r, c)) spec.pick(r, c);
  };
  t.addEventListener("click", (e) => { const td = e.target.closest("td"); if (td) pick(td); });
  t.addEventListener("keydown", (e) => {
    const td = e.target.closest("td");
    if (!td) return;
    if (e.key === "Enter" || e.key === " ") { e.preventDefault(); e.stopPropagation(); pick(td); return; }
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[e.key];
    if (!step) return;
    e.preventDefault();
    e.stopPropagation();
    const [r, c] = td.dataset.at.split(",").map(Number);
    const next = t.querySelector(`td[data-at="${r + step[0]},${c + step[1]}"]`);
    if (next) { td.tabIndex = -1; next.tabIndex = 0; next.focus(); }
  });
  return t;
}

const DTYPES = [[4, "f32 (4 bytes)"], [2, "bf16, f16 (2 bytes)"], [1, "fp8 (1 byte)"]];
const plural = (n, word) => `${n} ${word}${n === 1 ? "" : word.endsWith("s") ? "es" : "s"}`;
const count = (n) => [...Array(n).keys()];

// ------------------------------------------------------------------------------------- views
// Each takes (state, data, set): the choices so far, what Python sent, and set(changes) to redraw.
function layoutView(s, data, set) {
  const names = Object.keys(data.layouts);
  const name = names.includes(s.what) ? s.what : names[0];
  const o = data.layouts[name], n = o.threads, who = n > 32 ? "thread" : "lane";
  const thread = Math.min(s.lane, n - 1);
  const at = (r, c) => r * o.cols + c;
  const held = [];
  o.thread.forEach((t, i) => { if (t === thread) held[o.register[i]] = `(${Math.floor(i / o.cols)}, ${i % o.cols})`; });
  const shown = held.length > 16 ? [...held.slice(0, 16), "..."] : held;
  let said = `${who[0].toUpperCase()}${who.slice(1)} ${thread} holds ${o.axes.join(", ")} = ${shown.join(" ")}`;
  if (s.row >= 0 && s.row < o.rows && s.col < o.cols) {
    const i = at(s.row, s.col);
    said = `Element (${s.row}, ${s.col}): ${who} ${o.thread[i]}, register ${o.register[i]}. ` + said;
  }
  const cols = Math.min(o.cols, 64);
  return {
    form: [
      choice("what", "show", names.map((x) => [x, `${x}, ${data.layouts[x].bits}-bit`]), name, (what) => set({ what, row: -1, lane: 0 })),
      number("lane", who, thread, n - 1, (lane) => set({ lane, row: -1 })),
    ],
    say: said,
    parts: [table({
      label: `Who holds each element of ${name}: rows ${o.axes[0]}, columns ${o.axes[1]}`,
      rows: o.rows, cols, heads: count(cols), names: (r) => r, corner: `${o.axes[0]} \\ ${o.axes[1]}`,
      cell: (r, c) => {
        const t = o.thread[at(r, c)], g = o.register[at(r, c)];
        return { text: t, small: `r${g}`, lane: t, mark: t === thread, here: r === s.row && c === s.col,
          label: `element ${r}, ${c}: ${who} ${t}, register ${g}` };
      },
      pick: (row, col) => set({ row, col, lane: o.thread[at(row, col)] }),
    })],
  };
}

function tileForm(s, set) {
  return [
    choice("itemsize", "dtype", DTYPES, s.itemsize, (v) => set({ itemsize: Number(v) })),
    choice("cols", "columns", [16, 32, 64, 128].map((x) => [x, x]), s.cols, (v) => set({ cols: Number(v) })),
    choice("swizzle", "swizzle", [0, 32, 64, 128, OWN].map((x) => [x, x > 0 ? `${x} bytes` : x ? "my own" : "none"]), s.swizzle,
      (v) => set({ swizzle: Number(v), pad: Number(v) ? 0 : s.pad })),
    ...(s.swizzle === OWN ? [field("own", "new piece (or word, or addr) =", s.own, (text) => set({ own: text }))] : []),
    choice("pad", "padding", [0, 1, 2, 4, 8, 16].map((x) => [x, x]), s.pad,
      (v) => set({ pad: Number(v), swizzle: Number(v) ? 0 : s.swizzle })),
  ];
}

const tileOf = (s) => ({ rows: 32, cols: s.cols, itemsize: s.itemsize, swizzle: s.swizzle, pad: s.pad, own: s.own });

function banksView(s, data, set) {
  const own = data.access && s.source !== "tile";
  const form = data.access ? [choice("source", "access", [["own", data.access.name], ["tile", "of a tile:"]],
    s.source === "tile" ? "tile" : "own", (source) => set({ source }))] : [];
  let a = data.access, wrong = "";
  if (!own) {
    const t = tileOf(s);
    form.push(...tileForm(s, set),
      choice("how", "read", Object.entries(ACCESSES), s.how, (how) => set({ how })),
      number("at", s.how === "row" ? "row" : s.how === "column" ? "column" : "16-byte piece", s.at, 127, (at) => set({ at })));
    wrong = problem(t);
    a = wrong ? null : access(t, s.how, s.at);
    if (a) wrong = a.problem;
  }
  form.push(number("lane", "lane", s.lane, 31, (lane) => set({ lane })));
  if (wrong || !a) return { form, say: `Not possible: ${wrong}.`, parts: [] };
  if (a.kind === "async") return { form, say: "cp.async of 16 bytes goes past L1: no wavefronts are counted.", parts: [] };
  const { wavefronts, ideal } = cost(a.kind, a.width, a.offsets);
  const conflicts = wavefronts - ideal;
  let mine = `Lane ${s.lane} is not active.`;
  const parts = transactions(a.kind, a.width, a.offsets).map((lanes, i) => {
    const q = queue(a.kind, a.width, lanes, a.offsets);
    if (lanes.includes(s.lane)) {
      const where = Object.entries(q.cells).filter(([, who]) => who.includes(s.lane)).map(([k]) => k.split(",").map(Number));
      const banks = where.map((x) => x[1]).sort((x, y) => x - y), pass = Math.max(...where.map((x) => x[0])) + 1;
      mine = `Lane ${s.lane}: byte ${a.offsets[s.lane]}, ` +
        (banks.length > 1 ? `banks ${banks[0]}-${banks[banks.length - 1]}` : `bank ${banks[0]}`) +
        `, transaction ${i + 1}, pass ${pass} of ${q.passes}.`;
    }
    return el("div", {}, el("div", {}, `transaction ${i + 1}: lanes ${lanes[0]} to ${lanes[lanes.length - 1]}, `,
      el("span", { className: q.passes > 1 ? "more" : "", textContent: plural(q.passes, "pass") })),
    table({
      label: `Transaction ${i + 1}: passes down, banks across`, rows: q.passes, cols: 32, heads: count(32), corner: "bank",
      names: (p) => `pass ${p + 1}`,
      cell: (p, bank) => {
        const who = q.cells[`${p},${bank}`];
        if (!who) return null;
        const mark = who.includes(s.lane);
        return { text: who.length > 1 ? `${who[0]}+` : who[0], lane: who[0], mark, here: mark,
          label: `pass ${p + 1}, bank ${bank}: lane ${who.join(", ")}` };
      },
      pick: (p, bank) => set({ lane: q.cells[`${p},${bank}`][0] }),
    }));
  });
  const said = `${plural(wavefronts, "wavefront")} (ideal ${ideal}): ${conflicts ? plural(conflicts, "bank conflict") : "no bank conflicts"}. `;
  return { form, say: said + mine, parts };
}

function swizzleView(s, data, set) {
  let form, unit = 16, place, name;
  if (data.maps) {
    const names = data.maps.map((m) => m.name), i = Math.max(0, names.indexOf(s.map));
    ({ unit, place, name } = data.maps[i]);
    form = [choice("map", "map", names.map((x) => [x, x]), name, (map) => set({ map }))];
  } else {
    const t = tileOf(s);
    form = tileForm(s, set);
    const wrong = problem(t) || (((t.cols + t.pad) * t.itemsize) % 16 ? "rows are not aligned to 16 bytes" : "");
    if (wrong) return { form, say: `Not possible: ${wrong}.`, parts: [] };
    if (t.swizzle === OWN && own(t).unit < 16) unit = 4;
    if (t.swizzle === OWN && (own(t).unit < 4 || t.itemsize > unit)) return { form, say: "Not possible to draw: words of 4 bytes are torn apart.", parts: [] };
    place = count(unit === 4 ? 32 : 16).map((r) => count((t.cols * t.itemsize) / unit).map((p) => offset(t, r, (p * unit) / t.itemsize)));
  }
  const words = unit === 4, step = words ? 32 : 8, rows = Math.min(place.length, words ? 32 : 16);
  const row = Math.min(Math.max(s.row, 0), rows - 1), col = Math.min(s.col, place[0].length - 1);
  const top = row - (row % step), down = place.slice(top, top + step).map((x) => x[col]);
  const off = count(32).map((i) => (i < down.length ? down[i] : -1));
  const passes = cost(words ? "ld" : "ldmatrix", words ? 4 : 1, off).wavefronts;
  const a = place[row][col], bank = (a >> 2) & 31;
  const what = words ? "word" : "piece", banks = words ? `bank ${bank}` : `banks ${bank}-${bank + 3}`;
  return {
    form,
    say: `Row ${row}, ${what} ${col}: byte ${a}, ${banks}. Rows ${top}-${top + down.length - 1} down ${what} ${col}: ${plural(passes, "pass")}.`,
    parts: [table({
      label: `Where each ${what} lies: rows down, ${what}s across`,
      rows, cols: place[0].length, heads: count(place[0].length), names: (r) => r, corner: `row \\ ${what}`,
      cell: (r, c) => {
        const g = Math.floor(place[r][c] / unit) % (128 / unit);
        return { text: g, lane: g, mark: c === col && r >= top && r < top + step, here: r === row && c === col,
          label: `row ${r}, ${what} ${c}: byte ${place[r][c]}, ${words ? "bank" : "group of banks"} ${g}` };
      },
      pick: (r, c) => set({ row: r, col: c }),
    })],
  };
}

function sectorsView(s, data, set) {
  const own = data.sectors && s.source !== "stride";
  const form = data.sectors ? [choice("source", "access", [["own", data.sectors.name], ["stride", "a stride:"]],
    s.source === "stride" ? "stride" : "own", (source) => set({ source }))] : [];
  let { width, offsets: off } = data.sectors || {};
  if (!own) {
    width = s.itemsize;
    off = count(32).map((i) => (i * s.stride + s.shift) * width);
    form.push(choice("itemsize", "bytes a lane", [1, 2, 4, 8, 16].map((x) => [x, x]), s.itemsize, (v) => set({ itemsize: Number(v) })),
      number("stride", "stride", s.stride, 64, (stride) => set({ stride })),
      number("shift", "first element", s.shift, 64, (shift) => set({ shift })));
  }
  form.push(number("lane", "lane", s.lane, 31, (lane) => set({ lane })));
  const words = new Map();
  off.forEach((o, lane) => {
    if (o < 0) return;
    for (let w = Math.floor(o / 4); w * 4 < o + width; w++) words.set(w, [...(words.get(w) || []), lane]);
  });
  const moved = sectors(off, width), lines = [...new Set(moved.map((x) => Math.floor(x / 4)))];
  const used = new Set();
  off.forEach((o) => { if (o >= 0) for (let b = o; b < o + width; b++) used.add(b); });
  const mine = off[s.lane] < 0 ? `Lane ${s.lane} is not active.`
    : `Lane ${s.lane}: byte ${off[s.lane]}, sector ${Math.floor(off[s.lane] / 32)}.`;
  return {
    form, say: `${plural(moved.length, "sector")} of 32 bytes: ${moved.length * 32} bytes moved, ${used.size} used. ${mine}`,
    parts: [table({
      label: "Lines of 128 bytes down, words across; four sectors of 8 words each", rows: lines.length, cols: 32, edge: 8,
      heads: count(32).map((w) => (w % 8 ? "" : `sector ${w / 8}`)), names: (r) => `byte ${lines[r] * 128}`,
      cell: (r, c) => {
        const w = lines[r] * 32 + c, who = words.get(w);
        if (who) return { text: who.length > 1 ? `${who[0]}+` : who[0], lane: who[0], mark: who.includes(s.lane),
          here: who.includes(s.lane), label: `byte ${w * 4}: lane ${who.join(", ")}` };
        return moved.includes(Math.floor(w / 8)) ? { text: "", idle: true, label: `byte ${w * 4}: moved, not used` } : null;
      },
      pick: (r, c) => { const who = words.get(lines[r] * 32 + c); if (who) set({ lane: who[0] }); },
    })],
  };
}

function linesView(s, data, set) {
  const { counters, ideals, lines } = data.listing;
  const key = counters.includes(s.counter) ? s.counter : counters[0];
  const words = (k) => k.replaceAll("_", " "), get = (x, k) => x.counts[k] || 0;
  const most = Math.max(1, ...lines.map((x) => get(x, key)));
  const i = Math.min(Math.max(s.row, 0), lines.length - 1), at = lines[i];
  const moved = counters.filter((k) => get(at, k)).map((k) => {
    const best = ideals[k] ? ` (ideal ${get(at, ideals[k]).toLocaleString("en")})` : "";
    return `${words(k)} ${get(at, k).toLocaleString("en")}${best}`;
  });
  const grid = table({
    label: `Source lines with ${words(key)}`, rows: lines.length, cols: 1, heads: [words(key)], corner: "",
    names: (r) => lines[r].line,
    cell: (r) => ({ text: lines[r].text || " ", mark: r === i, here: r === i,
      label: `line ${lines[r].line}: ${lines[r].text.trim()}: ${words(key)} ${get(lines[r], key)}` }),
    pick: (row) => set({ row }),
  });
  grid.classList.add("code");
  [...grid.querySelectorAll("tbody tr")].forEach((tr, r) => {
    const n = get(lines[r], key), best = ideals[key] ? Math.min(n, get(lines[r], ideals[key]) || n) : n;
    if (!n) return;
    const bar = el("span", { className: "bar" }), extra = el("span", { className: "bar over" });
    bar.style.width = `${(140 * best) / most}px`;
    extra.style.width = `${(140 * (n - best)) / most}px`;
    tr.append(el("th", { className: "bars" }, bar, extra, ` ${n.toLocaleString("en")}`));
  });
  return {
    form: [choice("counter", "counter", counters.map((k) => [k, words(k)]), key, (counter) => set({ counter }))],
    say: `Line ${at.line}: ${moved.length ? moved.join(", ") : "no counter moved"}.`,
    parts: [grid],
  };
}

function roofsView(s, data, set) {
  const names = Object.keys(data.roofs), device = names.includes(s.device) ? s.device : names[0];
  const r = data.roofs[device], ridge = r.flops / r.bandwidth, tera = (x) => `${(x / 1e12).toFixed(1)} TFLOP/s`;
  const i = Math.min(Math.max(s.row, 0), r.points.length - 1), p = r.points[i];
  const side = p.intensity < ridge ? "memory" : "arithmetic";
  const grid = table({
    label: `Kernels under the roofs of ${device}`, rows: r.points.length, cols: 1, heads: ["kernel"], corner: "",
    names: () => "",
    cell: (k) => ({ text: r.points[k].name, mark: k === i, here: k === i,
      label: `${r.points[k].name}: at most ${tera(r.points[k].bound)}` }),
    pick: (row) => set({ row }),
  });
  grid.classList.add("code");
  [...grid.querySelectorAll("tbody tr")].forEach((tr, k) => {
    const bar = el("span", { className: "bar" }), share = r.points[k].bound / r.flops;
    bar.style.width = `${Math.max(2, 260 * share)}px`;
    tr.append(el("th", { className: "bars" }, bar, ` ${tera(r.points[k].bound)}, ${(100 * share).toFixed(0)} % of the roof`));
  });
  return {
    form: [choice("device", "device", names.map((x) => [x, x]), device, (to) => set({ device: to }))],
    say: `${p.name} on ${device}: ${p.intensity.toFixed(1)} FLOP a byte (the roofs meet at ${ridge.toFixed(0)}), ` +
      `a bound of ${tera(p.bound)}, on the side of ${side}${p.measured ? `; measured ${tera(p.measured)}` : ""}. ` +
      "Bounds from counters and data sheet, every sector from DRAM; not measurements.",
    parts: [grid],
  };
}

const VIEWS = { roofs: roofsView, lines: linesView, layout: layoutView, banks: banksView, swizzle: swizzleView, sectors: sectorsView };
export const START = { view: "layout", what: "", lane: 0, row: -1, col: 0, source: "own", itemsize: 2, cols: 64,
  swizzle: 0, pad: 0, how: "ldmatrix", at: 0, map: "", stride: 1, shift: 0, counter: "", device: "",
  own: "piece ^ row % 8" };

// Draws into `root` and calls changed(state) after every choice.
export function mount(root, data, given, changed = () => {}) {
  if (data.timeline) return stepper(root, data, given, changed); // timeline.js, appended for these
  let state = { ...START, ...given };
  const box = el("div", { className: "tkx" });
  const form = el("form", {}), out = el("div", { className: "scroll" });
  const say = el("p", { className: "say", role: "status" });
  say.setAttribute("aria-live", "polite");
  box.setAttribute("data-lm-suppress-shortcuts", "true"); // JupyterLab leaves the arrow keys to us
  form.addEventListener("submit", (e) => e.preventDefault());
  root.append(el("style", { textContent: CSS }), box);
  box.append(form, say, out);
  const set = (changes) => { state = { ...state, ...changes }; draw(); changed(state); };
  function draw() {
    const focus = box.getRootNode().activeElement; // of the page or of our shadow root
    const grid = focus && box.contains(focus) && focus.tagName === "TD";
    const kept = focus && form.contains(focus) ? focus.name : "";
    const tabs = data.views ? [choice("view", "view", data.views, state.view, (view) => set({ view, row: -1, col: 0 }))] : [];
    const v = VIEWS[state.view](state, data, set);
    const fresh = [...tabs, ...v.form];
    // A field that is being typed in stays: replacing it would take the cursor away.
    const old = kept && form.querySelector(`[name="${kept}"]`);
    const same = old && fresh.findIndex((x) => x.querySelector(`[name="${kept}"]`));
    if (old && same >= 0 && old.tagName === "INPUT" && focus === old) {
      const value = fresh[same].querySelector("input").value; // another one if the state came from outside
      if (old.value !== value && (old.type === "text" || Number(old.value) !== Number(value))) old.value = value;
      const nodes = fresh.map((x, i) => (i === same ? old.closest("label") : x));
      [...form.children].forEach((x) => { if (!nodes.includes(x)) x.remove(); });
      nodes.forEach((x, i) => { if (x !== old.closest("label")) form.insertBefore(x, i < same ? old.closest("label") : null); });
    } else {
      form.replaceChildren(...fresh);
      const again = kept && form.querySelector(`[name="${kept}"]`);
      if (again) again.focus();
    }
    say.textContent = v.say;
    out.replaceChildren(...v.parts);
    if (grid) { const td = out.querySelector("td[tabindex='0'].mark") || out.querySelector("td.mark"); if (td) td.focus(); }
  }
  draw();
  return { set, state: () => state };
}

// ------------------------------------------------------------------------------ as a widget
function show(root, model) {
  mount(root, model.get("data"), model.get("state"), (state) => {
    model.set("state", state);
    model.save_changes();
  });
}

// In JupyterLab: the model itself looks for the pictures of its outputs and takes their places, now
// and whenever an output is drawn again. No output asks for the widget, so a page without a kernel
// has only the picture. A shadow root keeps the page's styles out.
function initialize({ model }) {
  if (model.get("apart")) return () => {};
  const taken = new Map(); // place -> [the picture's box, ours]
  const look = () => {
    for (const id of model.get("places")) {
      const still = document.getElementById(id);
      if (!still || taken.get(id)?.[0] === still) continue;
      const host = el("div");
      host.setAttribute("data-lm-suppress-shortcuts", "true");
      still.querySelector("img").style.display = "none";
      still.append(host);
      show(host.attachShadow({ mode: "open" }), model);
      taken.set(id, [still, host]);
    }
  };
  const watch = new MutationObserver(look);
  watch.observe(document.body, { childList: true, subtree: true });
  model.on("change:places", look);
  look();
  return () => {
    watch.disconnect();
    for (const [still, host] of taken.values()) {
      host.remove();
      still.querySelector("img").style.display = "";
    }
  };
}

// Where an output asks for the widget: VS Code, Colab.
function render({ model, el: root }) {
  const stills = model.get("places").map((id) => document.getElementById(id)).filter((x) => x);
  for (const x of stills) x.style.display = "none"; // the picture showed until the widget was there
  show(root, model);
  return () => { for (const x of stills) x.style.display = ""; };
}

export default { initialize, render };
