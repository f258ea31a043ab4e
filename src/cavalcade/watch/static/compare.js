// Several runs over each other: their curves, final numbers, and the settings in which they differ.

import { short } from "./chart.js";
import { follow, panel, RunCurves } from "./curves.js";
import { badge, duration } from "./list.js";
import { card, table } from "./run.js";
import { api, crumbs, el, empty, runLink } from "./shell.js";

const MOST = 8;
const shown = (value) => (Array.isArray(value) ? value.join(", ") : value === undefined || value === null ? "–" : String(value));

export async function show(root, { runs: given = "" }) {
  crumbs(["runs", "#/"], ["compare"]);
  const paths = [...new Set(given.split(",").filter(Boolean))].slice(0, MOST);
  const all = (await api("/api/runs")).runs.filter((run) => run.kind === "training");
  const link = (list) => `#/compare?runs=${list.map(encodeURIComponent).join(",")}`;
  const add = el("select", { "aria-label": "Add a run", onchange: (event) => { location.hash = link([...paths, event.target.value]); } },
    el("option", { value: "" }, "Add a run …"), all.filter((run) => !paths.includes(run.path)).map((run) => el("option", { value: run.path }, run.name)));
  root.append(el("div", { class: "head" }, el("h1", {}, "Compare runs"), paths.length < MOST ? add : el("span")));
  const found = (await Promise.all(paths.map((path) => api("/api/run", { path }).catch(() => null)))).filter(Boolean);
  if (!found.length) {
    root.append(empty("No runs chosen", "Choose runs in the list, or add one here."));
    return undefined;
  }
  const runs = found.map(({ summary }, i) => new RunCurves(summary.path, summary.name, i));
  await Promise.all(runs.map((run) => run.load().catch(() => {})));
  const place = el("div", { class: "stack" });
  const below = el("div", { class: "columns" });
  root.append(place, below);
  const drawn = panel(place, runs);
  drawn.draw();

  const without = (path) => el("a", { href: link(paths.filter((other) => other !== path)), "aria-label": `remove ${path}` }, "remove");
  const names = [...new Set(found.flatMap((one) => Object.keys(one.config)))];
  const differing = names.filter((name) => new Set(found.map((one) => JSON.stringify(one.config[name]))).size > 1);
  below.append(
    card("Runs", table(["run", "state", "return", "updates", "time", "steps/s", ""], found.map(({ summary: s }) => [el("a", { href: runLink(s.path) }, s.name), badge(s.state), short(s.score, 4), short(s.update), duration(s.seconds), short(s.speed), without(s.path)]), [2, 3, 4, 5, 6])),
    found.length < 2 ? "" : card("Settings that differ", differing.length ? table(["setting", ...found.map((one) => one.summary.name)], differing.map((name) => [el("code", {}, name), ...found.map((one) => shown(one.config[name]))])) : el("p", { class: "muted" }, "All settings are the same.")),
  );
  const stop = follow(runs, { draw: () => drawn.draw(), zoomed: () => drawn.state.zoom, gone: (path) => root.prepend(el("p", { class: "notice", role: "alert" }, `${path} was deleted; what you see is its last state.`)) });
  return () => { stop(); drawn.stop(); };
}
