// The timeline of transactions on a canvas: a row a transaction, its spans as bars. It draws and answers the mouse and
// the keyboard; page.js asks the server for rows and shows what is picked.
"use strict";

// Style, words, and the moments between which a span lies.
const SPANS = [["metadata", "metadata", "begun", "metadata"], ["waiting", "waiting", "metadata", "started"],
  ["processing", "processing", "started", "processed"], ["turn", "waiting for its turn", "processed", "grouped"],
  ["commit", "commit phase", "grouped", "phases"], ["write", "Delta write", "phases", "ended"]];
const [OPEN, VISIBLE, FAILED, RETURNED, DEAD] = [0, 1, 2, 3, 4];
const OUTCOMES = ["open", "committed", "failed", "returned", "dead letter"];
const LEFT = 76, TOP = 24;      // pixels of the axes
const KEPT = 10000;             // rows
const ROW_MAX = 24;             // pixels
const BEHIND_MS = 700;          // the picture is behind the writer's flush and the poll, so that it moves evenly
const LOOK_BACK = 2000;         // rows in which "follow" looks for the lowest one in view
const CLICK_PIXELS = 4;
const JUMP_MS = 5000;
const QUIET_ROWS = 12;          // shown while nothing happens

function ago(ms) {
  const secs = Math.max(ms, 0) / 1000;
  return secs < 10 ? `${secs.toFixed(1)} s` : secs < 120 ? `${secs.toFixed(0)} s` : secs < 7200 ? `${(secs / 60).toFixed(0)} min` : `${(secs / 3600).toFixed(0)} h`;
}

class Gantt {
  constructor(canvas) {
    this.canvas = canvas;
    this.onmove = this.onhover = this.onpick = this.onopen = () => {};
    this.clear();
    Object.assign(this, {follow: true, aligned: false, quiet: false, live: true, showAll: false, isAll: false, secs: 0, picked: null, offset: null});
    this.view = {from: 0, to: 4000, low: 0, high: 20};  // ms after the base, or after the begin if aligned; txids
    this.colours();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.colours());
    new ResizeObserver(() => this.size()).observe(canvas);
    canvas.addEventListener("wheel", event => this.wheel(event), {passive: false});
    canvas.addEventListener("pointerdown", event => this.down(event));
    canvas.addEventListener("pointermove", event => this.drag ? this.pan(event) : this.hover(event));
    canvas.addEventListener("pointerup", event => this.up(event));
    canvas.addEventListener("pointercancel", () => { this.drag = null; });
    canvas.addEventListener("keydown", event => this.key(event));
    const frame = () => { this.draw(); requestAnimationFrame(frame); };
    requestAnimationFrame(frame);
  }

  clear() { Object.assign(this, {rows: [], byKey: new Map(), begins: new Map(), texts: {}, writes: new Map(), runs: [], ends: new Map(), last: 0, dirty: true}); }

  // ---- rows ----

  // Take an answer of the server. Return whether it follows the ones before; else all rows must be asked for again.
  add(data) {
    if (data.lost) this.clear();
    if (this.base !== data.base && this.rows.length) { this.clear(); this.base = data.base; return false; }
    Object.assign(this.texts, data.texts);
    Object.assign(this, {base: data.base, epoch: data.epoch, reported: data.now, dirty: true});
    // Between the two clocks, by the answer that came fastest; slowly forgotten, for clocks drift, and at once if one jumps.
    const offset = data.now - performance.now();
    this.offset = Math.abs(offset - (this.offset ?? offset)) > JUMP_MS ? offset : Math.max(offset, (this.offset ?? offset) - 0.5);
    for (const run of data.runs) if (!this.runs.some(each => each.epoch === run.epoch)) this.runs.push(run);
    const {attempts, writes} = data, count = attempts.txid.length;
    for (let i = 0; i < count; i++) this.put(attempts, i);
    for (let i = 0; i < writes.group.length; i++) {
      const key = `${writes.epoch[i]}/${writes.group[i]}`, of = this.writes.get(key) ?? [];
      of.push({state: writes.state[i], from: writes.prepared[i] || writes.from[i], to: writes.to[i]});
      this.writes.set(key, of);
    }
    if (count) this.rows.sort((a, b) => a.txid - b.txid || a.epoch - b.epoch || a.try - b.try);
    for (const row of this.rows.splice(0, this.rows.length - KEPT)) {
      this.byKey.delete(this.keyOf(row)); this.writes.delete(`${row.epoch}/${row.group}`); this.begins.delete(row.txid);
    }
    if (!this.secs && this.rows.length) this.secs = this.fitting();
    return true;
  }

  put(attempts, i) {
    const row = {};
    for (const name in attempts) row[name] = attempts[name][i];
    const key = this.keyOf(row), known = this.byKey.get(key);
    if (known) Object.assign(known, row); else { this.byKey.set(key, row); this.rows.push(row); }
    const last = Math.max(row.ended, row.phases, row.grouped, row.processed, row.started, row.metadata, row.begun);
    this.last = Math.max(this.last, last);
    this.ends.set(row.epoch, Math.max(this.ends.get(row.epoch) ?? 0, last));
    if (row.begun) this.begins.set(row.txid, Math.min(this.begins.get(row.txid) ?? Infinity, row.begun));
  }

  keyOf(row) { return `${row.epoch}/${row.txid}/${row.try}`; }

  fitting() {  // seconds that show some six transactions one after another
    const took = this.rows.slice(-100).filter(row => row.ended).map(row => row.ended - this.beginOf(row)).sort((a, b) => a - b);
    const middle = took[took.length >> 1] ?? 1000;
    return Math.min(Math.max(Math.ceil(middle * 6 / 1000), 2), 120);
  }

  beginOf(row) { return this.begins.get(row.txid) ?? row.begun; }

  // The end of what is open: now while its run lives, else the last sign of that run.
  endOf(row) { return row.ended || (row.epoch === this.epoch ? this.now() : this.ends.get(row.epoch)); }

  // Whether all rows begin at the same place: as long as nothing happens, too, or a slow source would show nothing.
  get fromLeft() { return this.aligned || this.quiet; }

  now() { return this.live && this.offset !== null ? performance.now() + this.offset - BEHIND_MS : Math.max(this.reported ?? 0, this.last) + 100; }

  firstRow(txid) {  // the first row whose txid is not lower
    let low = 0, high = this.rows.length;
    while (low < high) { const mid = (low + high) >> 1; if (this.rows[mid].txid < txid) low = mid + 1; else high = mid; }
    return low;
  }

  rowsOf(txid) {
    const found = [];
    for (let at = this.firstRow(txid); this.rows[at]?.txid === txid; at++) found.push(this.rows[at]);
    return found;
  }

  writesOf(row) { return row.group ? this.writes.get(`${row.epoch}/${row.group}`) : undefined; }

  // ---- drawing ----

  colours() {
    const style = getComputedStyle(this.canvas), names = ["text", "grid", "failed", "accent", ...SPANS.map(span => span[0])];
    this.colour = Object.fromEntries(names.map(name => [name, style.getPropertyValue(`--${name}`).trim()]));
    this.dirty = true;
  }

  size() {
    const ratio = devicePixelRatio, {width, height} = this.canvas.getBoundingClientRect();
    Object.assign(this.canvas, {width: Math.round(width * ratio), height: Math.round(height * ratio)});
    Object.assign(this, {width, height, pen: this.canvas.getContext("2d"), dirty: true});
    this.pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  }

  draw() {
    const moves = this.follow && this.live && !this.aligned;
    if (!this.pen || !this.width || !(moves || this.dirty)) return;
    if (this.showAll && this.rows.length) { this.all(); Object.assign(this, {showAll: false, isAll: true}); }
    if (this.follow) this.keepUp();
    this.dirty = false;
    const {view, pen, width, height} = this;
    const scale = (width - LEFT) / (view.to - view.from), tall = (height - TOP) / (view.high - view.low);
    const x = ms => LEFT + (ms - view.from) * scale, y = txid => TOP + (txid - view.low) * tall;
    pen.clearRect(0, 0, width, height);
    this.axes(x, y, tall);
    pen.save(); pen.beginPath(); pen.rect(LEFT, TOP, width - LEFT, height - TOP); pen.clip();
    this.bars(x, y, tall);
    if (!this.fromLeft) this.starts(x);
    if (this.quiet) this.ages(y, tall);
    if (this.picked !== null) {
      pen.strokeStyle = this.colour.accent; pen.lineWidth = 2;  // outside of the row, which may be a pixel high
      pen.strokeRect(LEFT + 1, y(this.picked) - 3, width - LEFT - 2, Math.max(tall, 2) + 5);
    }
    pen.restore();
    this.silence();
  }

  keepUp() {
    const {rows, view} = this, to = this.now(), from = to - (this.secs || 4) * 1000, last = rows.length ? rows[rows.length - 1].txid : 0;
    let shown = rows.slice(-LOOK_BACK).filter(row => this.endOf(row) > from && row.begun <= to);  // unless the clock was set back since
    this.quiet = rows.length > 0 && !shown.length;
    if (this.quiet) shown = rows.slice(this.firstRow(last + 1 - QUIET_ROWS));
    const low = Math.min(last, ...shown.map(row => row.txid)), longest = Math.max(0, ...shown.map(row => this.endOf(row) - this.beginOf(row)));
    Object.assign(view, {low, high: Math.max(last + 1, low + (this.height - TOP) / ROW_MAX)});
    Object.assign(view, this.fromLeft ? {from: 0, to: Math.max(longest * (this.quiet ? 1.4 : 1.1), 20)} : {from, to});
  }

  ages(y, tall) {  // how long ago each row in view has ended
    const {pen, view, rows, width, colour} = this, now = this.live ? this.now() : this.reported;
    pen.fillStyle = colour.text; pen.textAlign = "right";
    for (let at = this.firstRow(Math.floor(view.low)); at < rows.length; at++) {
      const row = rows[at];
      if (rows[at + 1]?.txid !== row.txid) pen.fillText(`${ago(now - this.endOf(row))} ago`, width - 8, y(row.txid) + Math.min(tall / 2, 10) + 4);
    }
  }

  bars(x, y, tall) {
    const {view, rows, pen, width, colour, fromLeft} = this;
    const paths = Object.fromEntries([...SPANS.map(span => span[0]), "failed"].map(name => [name, new Path2D()]));
    const bar = (name, from, to, top, high, least = 0.5) => {
      const a = Math.max(x(from), LEFT - 2), b = Math.min(x(to), width + 2);
      if (b >= a) paths[name].rect(a, top, Math.max(b - a, least), high);
    };
    const step = Math.max(1, Math.floor(1 / tall)), high = Math.max(tall * step - (tall > 4 ? 1 : 0), 1);
    for (let at = this.firstRow(Math.floor(view.low) - 1); at < rows.length && rows[at].txid <= view.high; at++) {
      const row = rows[at], shift = fromLeft ? this.beginOf(row) : 0, top = y(row.txid), end = this.endOf(row);
      if (row.outcome === FAILED || row.outcome === DEAD) {
        bar("failed", (row.started || row.begun) - shift, end - shift, top, Math.max(high, 3), 3);
        continue;
      }
      if (row.txid % step) continue;  // less than a pixel: one row for several; failures are always drawn
      for (const [name, , from, to] of SPANS) {
        if (!row[from]) break;
        const writes = name === "write" && tall > 8 ? this.writesOf(row) : null;
        if (writes) writes.forEach((each, n) => bar(name, each.from - shift, each.to - shift, top + n * high / writes.length, high / writes.length - (writes.length > 1 ? 1 : 0)));
        else bar(name, row[from] - shift, (row[to] || end) - shift, top, high);
        if (!row[to]) break;  // it is in this span, or a group that wrote nothing ended with its commit phase
      }
    }
    for (const name in paths) { pen.fillStyle = colour[name]; pen.fill(paths[name]); }
  }

  starts(x) {  // where runs began
    const {pen, colour, height} = this;
    pen.strokeStyle = pen.fillStyle = colour.text; pen.lineWidth = 1; pen.textAlign = "left";
    for (const [index, run] of this.runs.entries()) {
      if (run.at < this.view.from || run.at > this.view.to) continue;
      pen.setLineDash([4, 4]); pen.beginPath(); pen.moveTo(x(run.at), TOP); pen.lineTo(x(run.at), height); pen.stroke(); pen.setLineDash([]);
      const words = `run ${run.epoch} starts`, room = x(this.runs[index + 1]?.at ?? Infinity) - x(run.at);
      if (room > pen.measureText(words).width + 8) pen.fillText(words, x(run.at) + 4, height - 6);
    }
  }

  silence() {  // what is not moving says why
    const {pen, width, height, rows, colour} = this;
    const words = !rows.length ? "no transaction has begun yet" : this.quiet && this.live ? "nothing happens now: these are the last transactions, from the left" : "";
    pen.fillStyle = colour.text; pen.textAlign = "center"; pen.font = "14px system-ui, sans-serif";
    pen.fillText(words, LEFT + (width - LEFT) / 2, rows.length ? height - 10 : height / 2);
  }

  axes(x, y, tall) {
    const {pen, view, width, height, colour, fromLeft} = this;
    pen.font = "12px system-ui, sans-serif"; pen.fillStyle = colour.text; pen.strokeStyle = colour.grid; pen.lineWidth = 1;
    const nice = (range, parts) => { const raw = range / parts, p = 10 ** Math.floor(Math.log10(raw)); return p * [1, 2, 5, 10].find(f => p * f >= raw * 0.999); };
    const step = nice(view.to - view.from, Math.max(2, width / 140)), origin = fromLeft ? 0 : this.base ?? 0;
    pen.beginPath(); pen.textAlign = "left";
    for (let at = Math.ceil((origin + view.from) / step) * step - origin; at < view.to; at += step) {
      const label = fromLeft ? (step < 1000 ? `${Math.round(at)} ms` : `${(at / 1000).toFixed(step < 10000 ? 1 : 0)} s`)
        : new Date(origin + at + 0.01).toISOString().slice(11, step < 1000 ? 23 : 19);
      pen.moveTo(x(at), TOP); pen.lineTo(x(at), height);
      if (x(at) + 3 + pen.measureText(label).width < width) pen.fillText(label, x(at) + 3, 15);
    }
    const rows = Math.max(1, nice(view.high - view.low, (height - TOP) / 26)), end = this.rows.length ? this.rows[this.rows.length - 1].txid : 0;
    pen.textAlign = "right";
    for (let txid = Math.max(Math.ceil(view.low / rows) * rows, 1); txid < view.high && txid <= end; txid += rows) {
      const at = y(txid);
      pen.moveTo(LEFT - 4, at); pen.lineTo(width, at);
      if (at > TOP - 1 && at + 14 < height) pen.fillText(String(txid), LEFT - 8, at + 4 + Math.min(tall / 2, 10));
    }
    pen.stroke();
  }

  // ---- moving ----

  // Before the picture no longer follows: it stays as it is.
  stop() { this.aligned = this.fromLeft; this.quiet = this.follow = this.isAll = false; }

  move(from, to, low, high) {
    this.stop();
    Object.assign(this.view, {from, to, low, high: Math.max(high, low + 1)});
    this.dirty = true;
    this.onmove();
  }

  zoom(times, rows, px, py) {
    if (this.follow && px === undefined && !this.fromLeft) { this.secs = Math.min(Math.max(this.secs * times, 0.1), 3600); this.dirty = true; return; }
    const {from, to, low, high} = this.view, u = px === undefined ? 0.5 : (px - LEFT) / (this.width - LEFT), v = py === undefined ? 0.5 : (py - TOP) / (this.height - TOP);
    const t = from + (to - from) * u, r = low + (high - low) * v;
    this.move(t - (t - from) * times, t + (to - t) * times, r - (r - low) * rows, r + (high - r) * rows);
  }

  shift(right, down) {
    const {from, to, low, high} = this.view, t = (to - from) * right, r = (high - low) * down;
    this.move(from + t, to + t, low + r, high + r);
  }

  all() {
    if (!this.rows.length) return;
    this.quiet = false;
    const from = Math.min(...this.rows.slice(0, 200).map(row => row.begun || Infinity)), end = Math.max(this.last, this.live ? this.now() : 0);
    const longest = Math.max(...this.rows.map(row => this.endOf(row) - this.beginOf(row)));
    const high = this.rows[this.rows.length - 1].txid + 1, low = this.rows[0].txid;
    this.move(...(this.aligned ? [0, longest * 1.05] : [from, end]), low, Math.max(high, low + (this.height - TOP) / ROW_MAX));
  }

  setFollow(follow) { if (follow) this.follow = true; else this.stop(); this.dirty = true; this.onmove(); }

  align(aligned) {
    Object.assign(this, {aligned, quiet: false});
    if (!this.follow) {
      const of = this.rows.slice(this.firstRow(this.view.low), this.firstRow(this.view.high) + 1);
      if (of.length) {
        const begins = of.map(row => this.beginOf(row)), ends = of.map(row => this.endOf(row));
        Object.assign(this.view, aligned ? {from: 0, to: Math.max(...ends.map((end, i) => end - begins[i])) * 1.1} : {from: Math.min(...begins), to: Math.max(...ends)});
      }
    }
    this.dirty = true; this.onmove();
  }

  // Show a transaction: move there unless half of it is in view.
  pick(txid) {
    const rows = this.rowsOf(txid), {view} = this;
    this.picked = txid; this.stop(); this.dirty = true;
    if (rows.length) {
      const size = view.high - view.low, begin = this.beginOf(rows[0]), took = this.endOf(rows[rows.length - 1]) - begin;
      if (txid < view.low || txid + 1 > view.high) Object.assign(view, {low: txid - size / 2, high: txid + size / 2});
      const shown = Math.min(begin + took, view.to) - Math.max(begin, view.from), span = Math.max(view.to - view.from, took * 1.2);
      if (!this.aligned && shown < Math.min(took, view.to - view.from) / 2) Object.assign(view, {from: begin - span * 0.1, to: begin + span * 0.9});
    }
    this.onmove(); this.onpick(txid);
  }

  step(by) {
    const {view, rows} = this;
    if (!rows.length) return;
    const here = this.picked !== null && this.picked >= view.low && this.picked < view.high;
    const first = here ? this.picked + by : Math.max(rows[0].txid, Math.min(Math.floor((view.low + Math.min(view.high, rows[rows.length - 1].txid + 1)) / 2), rows[rows.length - 1].txid));
    if (first >= rows[0].txid && first <= rows[rows.length - 1].txid) this.pick(first);
  }

  // ---- mouse, touch, keyboard ----

  wheel(event) {
    if (document.activeElement !== this.canvas && !event.ctrlKey) return;  // else the page scrolls
    event.preventDefault();
    const by = Math.exp(event.deltaY / 400);
    this.zoom(event.shiftKey ? 1 : by, by, event.offsetX, event.offsetY);
  }

  down(event) {
    if (event.button) return;
    this.drag = this.pressed = {x: event.offsetX, y: event.offsetY};
    this.canvas.setPointerCapture(event.pointerId);
  }

  pan(event) {
    const at = {x: event.offsetX, y: event.offsetY};
    if (this.pressed && Math.hypot(at.x - this.pressed.x, at.y - this.pressed.y) < CLICK_PIXELS) return;
    this.pressed = null;
    this.shift((this.drag.x - at.x) / (this.width - LEFT), (this.drag.y - at.y) / (this.height - TOP));
    this.drag = at;
  }

  up(event) {
    const txid = this.pressed ? this.at(event) : null;
    this.drag = this.pressed = null;
    if (txid !== null) this.pick(txid);
  }

  at(event) {  // the transaction below the pointer
    const txid = Math.floor(this.view.low + (event.offsetY - TOP) / (this.height - TOP) * (this.view.high - this.view.low));
    return event.offsetY > TOP && this.rowsOf(txid).length ? txid : null;
  }

  hover(event) { const txid = this.at(event); if (txid !== null) this.onhover(txid); }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const does = {ArrowLeft: () => this.shift(-0.1, 0), ArrowRight: () => this.shift(0.1, 0), ArrowUp: () => this.step(-1), ArrowDown: () => this.step(1),
      PageUp: () => this.shift(0, -0.5), PageDown: () => this.shift(0, 0.5), "+": () => this.zoom(0.8, 0.8), "=": () => this.zoom(0.8, 0.8), "-": () => this.zoom(1.25, 1.25),
      f: () => this.setFollow(!this.follow), a: () => this.all(), l: () => this.align(!this.aligned), Enter: () => { if (this.picked !== null) this.onopen(this.picked); }}[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (does) { does(); event.preventDefault(); }
  }

  // A line about a transaction, as text: reasons come from users' code.
  describe(txid) {
    return this.rowsOf(txid).map(row => {
      const head = `transaction ${row.txid}, attempt ${row.try}${this.runs.length > 1 ? ` of run ${row.epoch}` : ""}`, names = [this.texts[row.component], this.texts[row.text]].filter(Boolean);
      if (row.outcome === FAILED || row.outcome === DEAD) return `${head} ${OUTCOMES[row.outcome]}: ${names.join(": ")}`;
      const spans = SPANS.filter(([, , from]) => row[from]).map(([, words, from, to]) => row[to] ? `${words} ${(row[to] - row[from]).toFixed(1)} ms` : row.ended ? "" : `${words} …`);
      return `${head} ${row.outcome === OPEN && row.epoch !== this.epoch ? "lost with its run" : OUTCOMES[row.outcome]}: ${spans.filter(Boolean).join(" · ")}`;
    }).join("\n");
  }
}
