// Curves of runs that grow: loads them, appends what arrives, and offers axis, smoothing, band, logarithms and zoom.

import { Chart, seriesColour } from "./chart.js";
import { api, el, live } from "./shell.js";

const AXES = { update: "updates", steps: "steps", episodes: "episodes", seconds: "seconds" };
const POINTS = 800;
const FIRST = ["return", "task", "total", "entropy", "value_loss", "policy_loss", "kl"];

/** The curves of one run, as the server sends them and as rows are added. */
export class RunCurves {
  constructor(path, name, place) {
    Object.assign(this, { path, name, colour: seriesColour(place), data: { axes: {}, metrics: {}, end: 0, rows: 0 }, shown: true });
  }

  async load(axis = "update", zoom = null) {
    const range = zoom ? { axis, low: zoom[0], high: zoom[1] } : {};
    const found = await api("/api/metrics", { path: this.path, points: POINTS, ...range });
    this.take(found, zoom);
  }

  take(found, zoom = null) {
    this.data = found;
    if (!zoom) this.end = found.end;
  }

  /** Adds rows; true if there are now so many points that the server should thin them. */
  add(more) {
    for (const [name, values] of Object.entries(more.axes)) (this.data.axes[name] ??= []).push(...values);
    for (const [name, metric] of Object.entries(more.metrics)) {
      const mine = (this.data.metrics[name] ??= { ...metric, mean: [] , lines: metric.lines?.map(() => []), low: metric.low && [], high: metric.high && [], half: metric.half && [] });
      for (const key of ["mean", "low", "high", "half"]) if (mine[key] && metric[key]) mine[key].push(...metric[key]);
      metric.lines?.forEach((line, p) => mine.lines?.[p]?.push(...line));
    }
    this.end = more.end;
    return (this.data.axes.update?.length || 0) > 2 * POINTS;
  }

  series(metric, axis) {
    const found = this.data.metrics[metric];
    if (!found || !this.data.axes[axis]) return null;
    const lineColours = found.lines?.map((_, p) => seriesColour(p));
    return { name: this.name, colour: this.colour, x: this.data.axes[axis], ...found, allLines: found.lines, lineColours, shown: this.shown };
  }
}

/** Names of metrics, those that people look at first in front. */
export function metricNames(runs) {
  const names = [...new Set(runs.flatMap((run) => Object.keys(run.data.metrics)))];
  const rank = (name) => (FIRST.includes(name) ? FIRST.indexOf(name) : FIRST.length);
  return names.sort((a, b) => rank(a) - rank(b));
}

const words = (name) => name.replaceAll("_", " ");

/** A large chart of a metric with its controls, and a small one of each other; returns { draw, stop }. */
export function panel(root, runs) {
  const state = { metric: null, axis: "update", smoothing: 0, band: "range", lines: false, logX: false, logY: false, zoom: null };
  const heading = el("h2");
  const choose = el("select", { "aria-label": "Metric", onchange: (event) => { state.metric = event.target.value; draw(); } });
  const axis = el("select", { "aria-label": "Horizontal axis", onchange: (event) => { state.axis = event.target.value; zoom(null); } }, Object.entries(AXES).map(([value, text]) => el("option", { value }, text)));
  const slider = el("input", { type: "range", min: 0, max: 0.99, step: 0.01, value: 0, "aria-label": "Smoothing", oninput: (event) => { state.smoothing = Number(event.target.value); draw(); } });
  const band = el("select", { "aria-label": "Band", onchange: (event) => { state.band = event.target.value; draw(); } }, [["range", "minimum to maximum"], ["interval", "95 % interval"], ["none", "no band"]].map(([value, text]) => el("option", { value }, text)));
  const switches = [["lines", "policies"], ["logX", "log x"], ["logY", "log y"]].map(([key, text]) => el("button", { type: "button", "aria-pressed": "false", onclick: (event) => { state[key] = !state[key]; event.target.setAttribute("aria-pressed", String(state[key])); draw(); } }, text));
  const whole = el("button", { type: "button", hidden: true, onclick: () => zoom(null) }, "Whole run");
  const legend = el("div", { class: "legend" });
  const place = el("div");
  const note = el("p", { class: "muted small" });
  const controls = el("div", { class: "row controls" }, choose, el("label", { class: "field" }, "over", axis), el("label", { class: "field" }, "smoothing", slider), el("label", { class: "field band" }, "band", band), el("span", { class: "group" }, switches), whole);
  const others = el("div", { class: "grid smalls" });
  root.append(el("section", { class: "card" }, heading, controls, legend, place, note), others);
  const chart = new Chart(place, { label: "Learning curve", height: 340, onzoom: (range) => zoom(range) });
  const smalls = new Map();

  async function zoom(range) {
    state.zoom = range;
    whole.hidden = !range;
    await Promise.all(runs.map((run) => run.load(state.axis, range).catch(() => {})));
    draw();
  }

  function options(names) {
    if (choose.options.length !== names.length) choose.replaceChildren(...names.map((name) => el("option", { value: name }, words(name))));
    if (!names.includes(state.metric)) state.metric = names[0] ?? null;
    choose.value = state.metric;
  }

  function draw() {
    const names = metricNames(runs);
    options(names);
    const series = runs.map((run) => run.series(state.metric, state.axis)).filter(Boolean);
    heading.textContent = state.metric ? words(state.metric) : "curves";
    const several = series.some((one) => one.policies > 1);
    switches[0].hidden = !(series.length === 1 && series[0].allLines);
    band.parentElement.hidden = !several;
    const { band: chosen, smoothing, lines, logX, logY } = state;
    chart.set(series, { band: chosen, smoothing, lines: lines && series.length === 1, logX, logY, zoom: state.zoom, axis: state.axis });
    legend.replaceChildren(...(runs.length > 1 ? runs.map(entry) : []));
    const damaged = runs.reduce((sum, run) => sum + (run.data.damaged || 0), 0);
    const parts = [
      series[0] && several ? `Line: mean over ${[...new Set(series.map((one) => one.policies))].join(" or ")} policies${series.length > 1 ? " each" : ""}.` : "",
      runs.some((run) => run.data.sampled) ? "A long log: evenly spaced samples of it; drag over a part to see it in full." : "Drag to zoom, double-click to see all.",
      damaged ? `${damaged} damaged lines were skipped.` : "",
    ];
    note.textContent = parts.filter(Boolean).join(" ");
    drawSmalls(names.filter((name) => name !== state.metric));
  }

  function entry(run) {
    const dot = el("i", { class: "dot" });
    dot.style.background = `var(${run.colour})`;
    return el("button", { type: "button", class: "chip", "aria-pressed": String(run.shown), onclick: () => { run.shown = !run.shown; draw(); } }, dot, run.name);
  }

  function drawSmalls(names) {
    for (const [name, small] of smalls) if (!names.includes(name)) { small.chart.stop(); small.card.remove(); smalls.delete(name); }
    for (const name of names) {
      let small = smalls.get(name);
      if (!small) {
        const inside = el("div");
        const card = el("section", { class: "card small-chart" }, el("button", { type: "button", class: "plain", title: "Show large", onclick: () => { state.metric = name; draw(); root.scrollIntoView({ block: "start" }); } }, words(name)), inside);
        others.append(card);
        small = { card, chart: new Chart(inside, { label: words(name), height: 130, small: true }) };
        smalls.set(name, small);
      }
      const { band: chosen, smoothing, logX } = state;
      small.chart.set(runs.map((run) => run.series(name, state.axis)).filter(Boolean), { band: chosen, smoothing, logX, zoom: state.zoom, axis: state.axis });
    }
  }

  return { draw, state, stop: () => { chart.stop(); for (const small of smalls.values()) small.chart.stop(); } };
}

/** Follows runs: adds rows to their curves and calls `draw`; `changed(path)` and `gone(path)` for everything else. */
export function follow(runs, { draw, zoomed, changed = () => {}, gone = () => {} }) {
  let events = null;
  let closed = false;
  function open() {
    const query = new URLSearchParams(runs.flatMap((run) => [["run", run.path], ["offset", run.end ?? 0]]));
    events = new EventSource(`/api/events?${query}`);
    events.onopen = () => live("live");
    events.onerror = () => { live("offline"); events.close(); if (!closed) setTimeout(() => !closed && open(), 2000); };
    const by = (path) => runs.find((run) => run.path === path);
    events.addEventListener("rows", async (event) => {
      const more = JSON.parse(event.data);
      const run = by(more.path);
      if (zoomed()) { run.end = more.end; return; }
      if (run.add(more)) await run.load().catch(() => {});
      draw();
    });
    events.addEventListener("reset", async (event) => {
      await by(JSON.parse(event.data).path).load().catch(() => {});
      draw();
    });
    events.addEventListener("change", (event) => changed(JSON.parse(event.data).path));
    events.addEventListener("gone", (event) => { closed = runs.length === 1; if (closed) { events.close(); live(""); } gone(JSON.parse(event.data).path); });
  }
  open();
  return () => { closed = true; events.close(); };
}
