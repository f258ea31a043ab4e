// A line chart on a canvas: bands, hover, zoom by dragging, smoothing, logarithmic axes. Knows nothing of runs.

import { el } from "./shell.js";

const ROOM = { left: 58, right: 14, top: 12, bottom: 30 };
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Colour of the i-th series, as the name of a CSS variable. */
export const seriesColour = (i) => `--series-${(i % 8) + 1}`;

/** A number for people: 12,300 · 1.2M · 0.0031. */
export function short(value, digits = 3) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e9) return `${trim(value / 1e9, digits)}G`;
  if (size >= 1e6) return `${trim(value / 1e6, digits)}M`;
  if (size >= 1e3) return (size >= 1e4 ? Math.round(value) : Number(value.toPrecision(Math.max(4, digits)))).toLocaleString("en").replace("-", "−");
  if (size !== 0 && size < 1e-3) return value.toExponential(1).replace("-", "−").replace("e−", "e-");
  return trim(value, size >= 100 ? 4 : digits).replace("-", "−");
}
const trim = (value, digits) => String(Number(value.toPrecision(digits)));

/** Exponential moving average, corrected for its start; weight 0 leaves values as they are. */
export function smooth(values, weight) {
  if (!weight) return values;
  let sum = 0;
  let mass = 0;
  return values.map((value) => {
    if (value === null || value === undefined) return null;
    sum = weight * sum + (1 - weight) * value;
    mass = weight * mass + (1 - weight);
    return sum / mass;
  });
}

/** Round ticks of an axis. */
export function ticks(low, high, count, log) {
  if (log) {
    const found = [];
    for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e++) found.push(10 ** e);
    const inside = found.filter((x) => x >= low && x <= high);
    if (inside.length > 1) return inside;
  }
  const raw = (high - low) / Math.max(1, count) || 1;
  const unit = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * unit).find((s) => s >= raw) || raw;
  const found = [];
  for (let x = Math.ceil(low / step) * step; x <= high + step * 1e-9; x += step) found.push(Math.abs(x) < step * 1e-9 ? 0 : x);
  return found;
}

/**
 * Series: { name, colour, x: [], mean: [], low, high, half, lines, shown }. Options: band ("range", "interval", "none"),
 * smoothing (0 to 1), logX, logY, lines (draw every policy), zoom ([low, high] or null).
 */
export class Chart {
  constructor(host, { label, height = 320, small = false, onzoom = null }) {
    this.series = [];
    this.options = { band: "range", smoothing: 0, logX: false, logY: false, lines: false, zoom: null };
    this.height = height;
    this.small = small;
    this.onzoom = onzoom;
    this.cursor = null;
    this.drag = null;
    this.canvas = el("canvas", { class: "chart", role: "img", tabindex: small ? null : "0", "aria-label": label });
    this.tip = el("div", { class: "tip", hidden: true });
    host.classList.add("chart-host");
    host.append(this.canvas, this.tip);
    this.label = label;
    this.watch = new ResizeObserver(() => this.draw());
    this.watch.observe(host);
    this.redraw = () => this.draw();
    addEventListener("themechange", this.redraw);
    this.canvas.addEventListener("pointermove", (event) => this.move(event));
    this.canvas.addEventListener("pointerleave", () => { this.cursor = null; this.draw(); });
    if (onzoom) {
      this.canvas.addEventListener("pointerdown", (event) => { this.drag = [this.at(event), this.at(event)]; this.canvas.setPointerCapture(event.pointerId); });
      this.canvas.addEventListener("pointerup", () => this.release());
      this.canvas.addEventListener("dblclick", () => onzoom(null));
      this.canvas.addEventListener("keydown", (event) => this.key(event));
    }
  }

  stop() {
    this.watch.disconnect();
    removeEventListener("themechange", this.redraw);
  }

  set(series, options = {}) {
    this.series = series;
    Object.assign(this.options, options);
    const last = series.map((s) => `${s.name} ${short(s.mean.findLast((v) => v !== null))}`).join(", ");
    this.canvas.setAttribute("aria-label", `${this.label}. Latest: ${last || "none"}`);
    this.draw();
  }

  at(event) {
    const box = this.canvas.getBoundingClientRect();
    return this.unscaleX(event.clientX - box.left);
  }

  move(event) {
    const x = this.at(event);
    if (this.drag) this.drag[1] = x;
    this.cursor = x;
    this.draw();
  }

  release() {
    const [a, b] = this.drag || [0, 0];
    this.drag = null;
    if (Math.abs(this.scaleX(a) - this.scaleX(b)) > 8) this.onzoom([Math.min(a, b), Math.max(a, b)]);
    else this.draw();
  }

  key(event) {
    const step = (this.maxX - this.minX) / 60;
    const moves = { ArrowLeft: -step, ArrowRight: step };
    if (event.key === "Escape") this.onzoom(null);
    else if (event.key in moves) this.cursor = Math.min(this.maxX, Math.max(this.minX, (this.cursor ?? this.minX) + moves[event.key]));
    else return;
    event.preventDefault();
    this.draw();
  }

  scaleX(x) { return ROOM.left + ((this.fx(x) - this.fx(this.minX)) / (this.fx(this.maxX) - this.fx(this.minX) || 1)) * this.inner; }
  unscaleX(p) { return this.gx(this.fx(this.minX) + ((p - ROOM.left) / this.inner) * (this.fx(this.maxX) - this.fx(this.minX))); }
  scaleY(y) { return ROOM.top + (1 - (this.fy(y) - this.fy(this.minY)) / (this.fy(this.maxY) - this.fy(this.minY) || 1)) * this.innerHeight; }

  prepare() {
    const { logX, logY, smoothing, band, lines } = this.options;
    this.drawn = this.series.filter((s) => s.shown !== false && s.x.length).map((s) => {
      const mean = smooth(s.mean, smoothing);
      const bands = { none: [null, null], range: [s.low, s.high], interval: [s.half?.map((h, i) => (h === null ? null : s.mean[i] - h)), s.half?.map((h, i) => (h === null ? null : s.mean[i] + h))] };
      const [low, high] = bands[band].map((values) => (values ? smooth(values, smoothing) : null));
      return { ...s, mean, low, high, lines: lines && s.lines ? s.lines.map((line) => smooth(line, smoothing)) : [] };
    });
    const xs = this.drawn.flatMap((s) => [s.x[0], s.x[s.x.length - 1]]);
    [this.minX, this.maxX] = this.options.zoom || [Math.min(...xs), Math.max(...xs)];
    const least = Math.min(...this.drawn.flatMap((s) => s.x.filter((x) => x > 0).slice(0, 1)));
    const log = logX && this.maxX > 0 && Number.isFinite(least);
    if (log) this.minX = Math.max(this.minX, least);
    this.fx = log ? (x) => Math.log10(Math.max(x, 1e-12)) : (x) => x;
    this.gx = log ? (x) => 10 ** x : (x) => x;
    let [low, high] = [Infinity, -Infinity];
    for (const s of this.drawn) {
      for (let i = 0; i < s.x.length; i++) {
        if (s.x[i] < this.minX || s.x[i] > this.maxX) continue;
        for (const values of [s.mean, s.low, s.high, ...s.lines]) {
          const value = values?.[i];
          if (value === null || value === undefined || (logY && value <= 0)) continue;
          low = Math.min(low, value);
          high = Math.max(high, value);
        }
      }
    }
    this.logY = logY && high > 0;
    this.fy = this.logY ? (y) => Math.log10(Math.max(y, low)) : (y) => y;
    if (low > high) [low, high] = [0, 1];
    const room = this.logY ? 0 : (high - low) * 0.05 || Math.abs(high) * 0.05 || 1;
    [this.minY, this.maxY] = [low - room, high + room];
  }

  draw() {
    const width = this.canvas.parentElement?.clientWidth || 0;
    if (!width) return;
    const ratio = devicePixelRatio || 1;
    this.canvas.width = width * ratio;
    this.canvas.height = this.height * ratio;
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${this.height}px`;
    this.inner = width - ROOM.left - ROOM.right;
    this.innerHeight = this.height - ROOM.top - ROOM.bottom;
    this.prepare();
    const g = this.canvas.getContext("2d");
    g.scale(ratio, ratio);
    g.font = `11.5px ${colour("--sans")}`;
    this.grid(g);
    if (!this.drawn.length) {
      g.fillStyle = colour("--faint");
      g.textAlign = "center";
      g.fillText("no data yet", ROOM.left + this.inner / 2, ROOM.top + this.innerHeight / 2);
    }
    g.save();
    g.beginPath();
    g.rect(ROOM.left, ROOM.top - 2, this.inner, this.innerHeight + 4);
    g.clip();
    for (const s of this.drawn) this.band(g, s);
    for (const s of this.drawn) {
      s.lines.forEach((line, i) => this.line(g, s.x, line, s.lineColours ? colour(s.lineColours[i]) : colour(s.colour), 1, 0.55));
      this.line(g, s.x, s.mean, colour(s.colour), this.small ? 1.5 : 2, 1);
    }
    if (this.drag) {
      const [a, b] = this.drag.map((x) => this.scaleX(x));
      g.fillStyle = colour("--accent");
      g.globalAlpha = 0.12;
      g.fillRect(Math.min(a, b), ROOM.top, Math.abs(b - a), this.innerHeight);
      g.globalAlpha = 1;
    }
    g.restore();
    this.hover(g);
  }

  grid(g) {
    g.strokeStyle = colour("--line");
    g.fillStyle = colour("--muted");
    g.lineWidth = 1;
    g.textAlign = "right";
    g.textBaseline = "middle";
    for (const y of ticks(this.minY, this.maxY, this.innerHeight / (this.small ? 26 : 48), this.logY)) {
      const p = Math.round(this.scaleY(y)) + 0.5;
      g.beginPath();
      g.moveTo(ROOM.left, p);
      g.lineTo(ROOM.left + this.inner, p);
      g.stroke();
      g.fillText(short(y), ROOM.left - 8, p);
    }
    g.textAlign = "center";
    g.textBaseline = "top";
    if (!this.drawn.length) return;
    for (const x of ticks(this.minX, this.maxX, this.inner / (this.small ? 60 : 100), this.options.logX)) {
      g.fillText(short(x), Math.min(Math.max(this.scaleX(x), ROOM.left + 8), ROOM.left + this.inner - 12), ROOM.top + this.innerHeight + 9);
    }
  }

  line(g, xs, ys, stroke, width, alpha) {
    g.strokeStyle = stroke;
    g.lineWidth = width;
    g.globalAlpha = alpha;
    g.lineJoin = "round";
    g.beginPath();
    let pen = false;
    for (let i = 0; i < xs.length; i++) {
      if (ys[i] === null || ys[i] === undefined || (this.logY && ys[i] <= 0)) continue;
      const [x, y] = [this.scaleX(xs[i]), this.scaleY(ys[i])];
      if (pen) g.lineTo(x, y);
      else g.moveTo(x, y);
      pen = true;
    }
    g.stroke();
    g.globalAlpha = 1;
    if (xs.length === 1 && pen) { g.fillStyle = stroke; g.beginPath(); g.arc(this.scaleX(xs[0]), this.scaleY(ys[0]), 3, 0, 7); g.fill(); }
  }

  band(g, s) {
    if (!s.low || !s.high) return;
    g.fillStyle = colour(s.colour);
    g.globalAlpha = 0.13;
    g.beginPath();
    const known = s.x.map((_, i) => i).filter((i) => s.low[i] !== null && s.high[i] !== null && s.low[i] !== undefined);
    for (const i of known) g.lineTo(this.scaleX(s.x[i]), this.scaleY(s.high[i]));
    for (const i of known.reverse()) g.lineTo(this.scaleX(s.x[i]), this.scaleY(s.low[i]));
    g.fill();
    g.globalAlpha = 1;
  }

  hover(g) {
    this.tip.hidden = true;
    if (this.cursor === null || !this.drawn.length || this.cursor < this.minX || this.cursor > this.maxX) return;
    const rows = [];
    let place = null;
    for (const s of this.drawn) {
      const i = nearest(s.x, this.cursor);
      const value = s.mean[i];
      if (value === null || value === undefined) continue;
      place = place ?? s.x[i];
      const spread = s.low && s.low[i] !== null ? `${short(s.low[i])} … ${short(s.high[i])}` : "";
      rows.push([s.colour, s.name, short(value, 4), spread]);
      if (this.drawn.length === 1 && s.allLines) s.allLines.forEach((line, p) => rows.push([null, `policy ${p}`, short(line[i], 4), ""]));
      g.fillStyle = colour(s.colour);
      g.beginPath();
      g.arc(this.scaleX(s.x[i]), this.scaleY(value), 3.5, 0, 7);
      g.fill();
    }
    if (!rows.length) return;
    const x = Math.round(this.scaleX(place)) + 0.5;
    g.strokeStyle = colour("--faint");
    g.setLineDash([3, 3]);
    g.beginPath();
    g.moveTo(x, ROOM.top);
    g.lineTo(x, ROOM.top + this.innerHeight);
    g.stroke();
    g.setLineDash([]);
    this.tip.hidden = false;
    const shown = rows.slice(0, 14).map(([mark, ...cells]) => {
      const dot = el("i", { class: "dot" });
      dot.style.background = mark ? `var(${mark})` : "transparent";
      return el("tr", {}, el("td", {}, dot), cells.map((cell) => el("td", {}, cell)));
    });
    this.tip.replaceChildren(el("b", {}, `${this.options.axis || "x"} ${short(place, 6)}`), el("table", {}, shown));
    const side = x > ROOM.left + this.inner / 2;
    this.tip.style.left = side ? "" : `${x + 12}px`;
    this.tip.style.right = side ? `${ROOM.left + this.inner + ROOM.right - x + 12}px` : "";
    this.tip.style.top = `${ROOM.top + 4}px`;
  }
}

function nearest(xs, x) {
  let [low, high] = [0, xs.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xs[middle] < x) low = middle;
    else high = middle;
  }
  return Math.abs(xs[low] - x) <= Math.abs(xs[high] - x) ? low : high;
}
