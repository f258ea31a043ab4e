// The page of a run: state, curves, held-out scores, timings, checkpoints, history, notes, settings.

import { short } from "./chart.js";
import { follow, panel, RunCurves } from "./curves.js";
import { arrange, keeper } from "./element.js";
import { ago, badge, duration, meter, progress } from "./list.js";
import { first } from "./requests.js";
import { api, crumbs, el } from "./shell.js";

/** A titled box. */
export const card = (title, ...content) => el("section", { class: "card" }, el("h2", {}, title), ...content);

/** A table: names of columns, rows of cells; `numbers`: columns aligned to the right. */
export function table(head, rows, numbers = []) {
  const side = (i) => (numbers.includes(i) ? "num" : null);
  return el("div", { class: "scroll" }, el("table", {},
    el("thead", {}, el("tr", {}, head.map((text, i) => el("th", { class: side(i), scope: "col" }, text)))),
    el("tbody", {}, rows.map((row) => el("tr", {}, row.map((cell, i) => el("td", { class: side(i) }, cell ?? "–")))))));
}

/** A value with what it is. */
export const fact = (name, value, extra = "") => el("div", { class: "fact" }, el("span", {}, name), el("b", {}, value), el("small", {}, extra));

const shown = (value) => (Array.isArray(value) ? value.join(", ") || "none" : value === null || value === "" ? "none" : typeof value === "object" ? JSON.stringify(value) : String(value));
const bytes = (n) => (n > 1e6 ? `${(n / 1e6).toFixed(1)} MB` : `${Math.ceil(n / 1e3)} kB`);

function facts(run) {
  const share = progress(run);
  const left = run.state === "running" && share > 0 && run.seconds ? `${duration((run.seconds * (1 - share)) / share)} left` : "";
  const spread = run.spread && run.policies > 1 ? `${short(run.spread[0], 4)} to ${short(run.spread[1], 4)} over ${run.policies} policies` : "last 20 updates";
  return el("div", { class: "facts" },
    fact(run.kind === "search" ? "best score" : "return", run.score === null ? "–" : short(run.score, 4), run.kind === "search" ? `${run.trainings ?? 0} trainings` : run.score === null ? "no episode has ended" : spread),
    fact("update", short(run.update), run.updates ? `of ${run.updates.toLocaleString("en")}` : ""),
    fact("steps", short(run.steps), run.episodes ? `${short(run.episodes)} episodes` : ""),
    fact("speed", run.speed ? short(run.speed) : "–", "steps per second"),
    fact("time", duration(run.seconds), left || `changed ${ago(run.changed)}`));
}

function phases(seconds) {
  const total = Object.values(seconds).reduce((a, b) => a + b, 0);
  if (!total) return null;
  const bar = el("div", { class: "phases", role: "img", "aria-label": "Seconds by phase" });
  const names = Object.entries(seconds).sort((a, b) => b[1] - a[1]);
  names.forEach(([, value], i) => {
    const part = el("i");
    part.style.width = `${(100 * value) / total}%`;
    part.style.background = `var(--series-${(i % 8) + 1})`;
    bar.append(part);
  });
  return card("Time by phase", bar, table(["phase", "seconds", "share"], names.map(([name, value], i) => {
    const dot = el("i", { class: "dot" });
    dot.style.background = `var(--series-${(i % 8) + 1})`;
    return [el("span", {}, dot, " ", name.replaceAll("_", " ")), value.toFixed(1), `${((100 * value) / total).toFixed(1)} %`];
  }), [1, 2]));
}

function heldout(found) {
  if (!Array.isArray(found.scores)) return null;
  const member = found.member ? [el("p", { class: "muted small" }, `evaluate, export and play use ${found.member}.`)] : [];
  return card("Held-out episodes", table(["score", "mean ± 95 %", "episodes"], found.scores.map((s) => [s.name, `${short(s.mean, 4)} ± ${short(s.interval, 2)}`, short(s.episodes)]), [1, 2]), ...member);
}

function events(history, notes) {
  const said = (event) => (event.init ? `initial weights of ${event.init.path}` : Object.entries(event.changes || {}).map(([name, [a, b]]) => `${name} ${shown(a)} → ${shown(b)}`).join(", "));
  const rows = [...history.map((event) => [event.date, event.update, said(event)]), ...notes.map((note) => [note.date, note.update, note.note])];
  if (!rows.length) return null;
  rows.sort((a, b) => String(b[0]).localeCompare(String(a[0])));
  return card("History and notes", table(["date", "update", ""], rows.map(([date, update, text]) => [String(date).slice(0, 19).replace("T", " "), short(update), String(text)]), [1]));
}

function settings(config, meta) {
  const rows = Object.entries({ ...config, ...Object.fromEntries(Object.entries(meta).map(([k, v]) => [`machine.${k}`, v])) });
  const place = el("div");
  const draw = (words) => place.replaceChildren(table(["setting", "value"], rows.filter(([name]) => name.includes(words)).map(([name, value]) => [el("code", {}, name), shown(value)])));
  const filter = el("input", { type: "search", placeholder: "Filter settings", "aria-label": "Filter settings", oninput: (event) => draw(event.target.value) });
  draw("");
  return el("details", { class: "card settings" }, el("summary", {}, el("h2", {}, "Configuration"), el("span", { class: "muted small" }, `${rows.length} settings`)), filter, place);
}

function saved(list) {
  if (!list.length) return null;
  return card("Checkpoints", table(["update", "steps", "size", "written"], list.toReversed().map((c) => [short(c.update), short(c.steps), bytes(c.bytes), ago(c.date)]), [0, 1, 2, 3]));
}

const PLAYED = /^(cage2|cyborg|mettagrid|gridworld)/;

export async function show(root, { path }) {
  path ||= ".";
  crumbs(["runs", "#/"], [path === "." ? "this run" : path]);
  const head = el("div", { class: "head" });
  const numbers = el("div");
  const middle = el("div", { class: "stack" });
  const below = el("div", { class: "columns" });
  const keep = keeper(); // what a reader may click on, has unfolded or filtered
  root.append(head, numbers, middle, below);
  let inner = null;

  async function refresh(answer) {
    const found = await answer;
    const { summary: run } = found;
    const share = progress(run);
    const game = PLAYED.test(run.target) && found.checkpoints.length ? keep("game", path, () => el("a", { class: "button", href: `#/game?run=${encodeURIComponent(path)}` }, "Watch a game")) : null;
    const other = run.kind === "training" ? keep("compare", path, () => el("a", { class: "button", href: `#/compare?runs=${encodeURIComponent(path)}` }, "Compare")) : null;
    const title = el("div", {}, el("h1", {}, run.name), el("p", { class: "row" }, badge(run.state), el("span", { class: "muted" }, `${run.kind} on ${run.target}${run.note && run.state !== "finished" ? ` · ${run.note}` : ""}`)));
    const links = keep("links", "", () => el("div", { class: "row" }));
    arrange(links, [game, other]);
    arrange(head, [title, links]);
    numbers.replaceChildren(facts(run), share !== null && run.state === "running" ? meter(share) : "");
    const configuration = keep("settings", [found.config, found.meta], () => settings(found.config, found.meta));
    arrange(below, [heldout(found.heldout), phases(found.phases), saved(found.checkpoints), events(found.history, found.notes), configuration]);
    return run;
  }

  const [state, coarse] = first("run", { path });
  const run = await refresh(state);
  if (run.kind === "search") {
    const page = await import("./search.js");
    inner = await page.fill(middle, path);
  }
  const curves = new RunCurves(path, run.kind === "search" ? "mean of trainings" : "mean", 0);
  curves.take(await coarse);
  const place = el("div", { class: "stack" });
  middle.append(place);
  const drawn = panel(place, [curves]);
  drawn.draw();
  await new Promise((painted) => { requestAnimationFrame(() => setTimeout(painted)); });
  if (curves.data.rows) await curves.load(drawn.state.axis, drawn.state.zoom).catch(() => {});
  drawn.draw();
  const soon = later(async () => { await refresh(api("/api/run", { path })); await inner?.refresh(); }, 4000);
  const stop = follow([curves], {
    draw: () => { drawn.draw(); soon(); },
    zoomed: () => drawn.state.zoom,
    changed: soon,
    gone: () => { root.prepend(el("p", { class: "notice", role: "alert" }, "This run was deleted; what you see is its last state.")); },
  });
  return () => { stop(); drawn.stop(); inner?.stop(); soon.stop(); };
}

/** Calls a function once, some time after the last of several requests began; errors of a vanished run are left out. */
function later(call, wait) {
  let timer = null;
  const request = () => { timer ??= setTimeout(async () => { await Promise.resolve(call()).catch(() => {}); timer = null; }, wait); };
  request.stop = () => clearTimeout(timer);
  return request;
}

