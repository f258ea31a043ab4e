// The list of runs: state, progress, speed and latest score of each, live; a filter, and a choice to compare.

import { short } from "./chart.js";
import { arrange } from "./element.js";
import { first } from "./requests.js";
import { crumbs, el, empty, live, runLink } from "./shell.js";

const STATES = ["running", "finished", "stopped", "failed", "damaged"];
const CELLS = { tick: "tick", name: "name", state: "state", progress: "progress", score: "score num", speed: "speed num", age: "age num" };
const SHOWN = 200; // rows at once; the filter finds the others

/** Time since a moment, in words. */
export function ago(seconds) {
  const passed = Date.now() / 1000 - seconds;
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60]]) if (passed >= size) return `${Math.floor(passed / size)} ${unit} ago`;
  return "just now";
}

/** A duration: 3 h 12 min, 4 min 10 s. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const [h, m, s] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, Math.floor(seconds % 60)];
  return h ? `${h} h ${m} min` : m ? `${m} min ${s} s` : seconds < 10 ? `${seconds.toFixed(1)} s` : `${s} s`;
}

/** State of a run as a badge. */
export const badge = (state) => el("span", { class: "badge", "data-state": state }, state);

/** Share of its budget that a run has spent, or null. */
export const progress = (run) => (run.updates ? Math.min(1, run.update / run.updates) : run.state === "finished" ? 1 : null);

/** A bar that shows progress. */
export function meter(share) {
  const fill = el("i");
  fill.style.width = `${100 * share}%`;
  return el("div", { class: "meter", role: "progressbar", "aria-valuenow": Math.round(100 * share), "aria-valuemin": 0, "aria-valuemax": 100, "aria-label": "progress" }, fill);
}

const speed = (run) => (run.speed ? `${short(run.speed)} steps/s` : "–");

function scoreOf(run) {
  if (run.score === null || run.score === undefined) return "–";
  return Math.abs(run.score) < 1000 ? run.score.toFixed(2).replace("-", "−") : short(run.score, 4);
}

export async function show(root) {
  crumbs(["runs"]);
  const { root: folder, runs, total } = await first("")[0];
  const known = new Map(runs.map((run) => [run.path, run]));
  const rows = new Map(); // kept, so that a click in the middle of an update is not lost
  const buttons = new Map();
  const chosen = new Set();
  const states = new Set();
  let words = "";
  let loading = true;

  const title = el("h1", {}, folder || "runs");
  const counts = el("p", { class: "muted" });
  const search = el("input", { type: "search", placeholder: "Filter runs", "aria-label": "Filter runs", oninput: (event) => { words = event.target.value.toLowerCase(); draw(); } });
  const chips = el("div", { class: "chips", role: "group", "aria-label": "States" });
  const compare = el("a", { class: "button primary", href: "#/", hidden: true }, "Compare");
  const body = el("div", { class: "runs", role: "table", "aria-label": "Runs" });
  root.append(el("div", { class: "head" }, el("div", {}, title, counts), el("div", { class: "row" }, chips, search, compare)), body);

  function toggle(set, value) {
    if (!set.delete(value)) set.add(value);
    draw();
  }

  function row(run) {
    const cells = Object.fromEntries(Object.entries(CELLS).map(([name, shown]) => [name, el("span", { class: shown, role: "cell" })]));
    const box = run.kind === "training" ? el("input", { type: "checkbox", "aria-label": `compare ${run.name}`, onchange: () => toggle(chosen, run.path) }) : el("span");
    const link = el("a", { href: runLink(run.path) }, run.name);
    cells.tick.append(box);
    return { element: el("div", { class: "run", role: "row" }, Object.values(cells)), box, link, cells };
  }

  function line(run) {
    const share = progress(run);
    const key = `${run.kind} ${run.path}`;
    if (!rows.has(key)) rows.set(key, row(run));
    const { element, box, link, cells } = rows.get(key);
    if (box.type) box.checked = chosen.has(run.path);
    const what = run.kind === "search" ? `search · ${run.target}` : run.target + (run.policies > 1 ? ` · ${run.policies} policies` : "");
    const done = share === null ? (run.kind === "search" ? `${run.trainings ?? 0} trainings` : `update ${short(run.update)}`) : share === 1 ? "" : `${Math.floor(100 * share)} %`;
    arrange(cells.name, [link, el("small", {}, run.note && run.state !== "finished" ? `${what} · ${run.note}` : what)]);
    arrange(cells.state, [badge(run.state)]);
    arrange(cells.progress, [share !== null && run.state !== "finished" ? meter(share) : null, el("small", {}, done || `${short(run.steps)} steps`)]);
    arrange(cells.score, [el("b", {}, scoreOf(run)), el("small", {}, run.kind === "search" ? "best score" : "return")]);
    cells.speed.replaceChildren(speed(run), el("small", {}, duration(run.seconds)));
    cells.age.textContent = ago(run.changed);
    return element;
  }

  function chip(state, number) {
    if (!buttons.has(state)) buttons.set(state, el("button", { type: "button", class: "chip", onclick: () => toggle(states, state) }));
    const button = buttons.get(state);
    button.setAttribute("aria-pressed", String(states.has(state)));
    button.textContent = `${number} ${state}`;
    return button;
  }

  function draw() {
    const all = [...known.values()].sort((a, b) => (b.state === "running") - (a.state === "running") || b.changed - a.changed);
    const found = all.filter((run) => (!states.size || states.has(run.state)) && (!words || `${run.name} ${run.target} ${run.kind}`.toLowerCase().includes(words)));
    const number = (state) => all.filter((run) => run.state === state).length;
    const count = Math.max(all.length, loading ? total : 0);
    counts.textContent = count === 1 ? "1 run" : `${count.toLocaleString("en")} runs`;
    arrange(chips, STATES.filter(number).map((state) => chip(state, number(state))));
    compare.hidden = !chosen.size;
    compare.textContent = `Compare ${chosen.size}`;
    compare.href = `#/compare?runs=${[...chosen].map(encodeURIComponent).join(",")}`;
    if (!all.length) return body.replaceChildren(empty("No runs here yet", "Start one: cavalcade train cage2 --run " + (folder || "runs") + "/first. It appears here by itself."));
    if (!found.length) return body.replaceChildren(empty("No run matches", "Change the filter to see the others."));
    const more = found.length > SHOWN ? [el("p", { class: "muted more" }, `${(found.length - SHOWN).toLocaleString("en")} more; the filter finds them.`)] : [];
    arrange(body, [...found.slice(0, SHOWN).map(line), ...more]);
    return undefined;
  }

  draw();
  const events = new EventSource("/api/events");
  events.onopen = () => live("live");
  events.onerror = () => live("offline");
  events.addEventListener("runs", (event) => {
    for (const run of JSON.parse(event.data).changed) known.set(run.path, run);
    draw();
  });
  events.addEventListener("paths", (event) => {
    loading = false;
    const there = new Set(JSON.parse(event.data));
    for (const path of known.keys()) if (!there.has(path)) { known.delete(path); chosen.delete(path); }
    draw();
  });
  return () => events.close();
}
