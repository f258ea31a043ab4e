// What a search has found so far: verdict, ranking, posterior over all orders, effects, course, compliance, decisions.

import { Chart, short } from "./chart.js";
import { card, table } from "./run.js";
import { api, el } from "./shell.js";
import { interval, scatter } from "./plots.js";

const TOP = 12;
const BOTTOM = 4;
const Z = 1.96;
const signed = (x) => (x > 0 ? "+" : "") + short(x);
const words = (order) => el("span", { class: "order" }, order.split(">").map((part) => el("span", {}, part.replaceAll("_", " "))));

function verdict(found, running) {
  const answer = found?.verdict?.answer;
  const title = { yes: "Yes, the order matters", no: "No, the order does not matter" }[answer] || (running ? "No verdict yet" : "Cannot tell whether the order matters");
  const text = running && !answer ? "The best orders and controls are trained again from scratch before there is a verdict." : found.answer;
  const notes = [found?.headline, ...(found?.notes || [])].filter(Boolean);
  return el("section", { class: "card verdict", "data-answer": answer || "open" }, el("h2", {}, running ? "Verdict so far" : "Verdict"), el("p", { class: "answer" }, title), el("p", {}, text || ""), ...notes.map((note) => el("p", { class: "muted small" }, note)));
}

function ranking(found, trainings) {
  const rows = found.ranking;
  const again = (order) => trainings.filter((t) => t.purpose === "confirm" && t.order === order).map((t) => t.heldout ?? t.score);
  const picked = rows.length > TOP + BOTTOM ? [...rows.slice(0, TOP), ...rows.slice(-BOTTOM)] : rows;
  const ends = picked.flatMap((r) => [r.mean - Z * r.deviation, r.mean + Z * r.deviation, ...again(r.order)]);
  const scale = [Math.min(...ends), Math.max(...ends)];
  const line = (r) => {
    const [low, high] = [r.mean - Z * r.deviation, r.mean + Z * r.deviation];
    const place = rows.indexOf(r) + 1;
    const confirmed = r.confirmed === null ? "" : `${short(r.confirmed, 4)} (${short(r.low)} to ${short(r.high)})`;
    return [place, words(r.order), `${short(r.mean, 4)} ± ${short(Z * r.deviation, 2)}`, interval({ mean: r.mean, low, high, dots: again(r.order) }, scale, `${short(low)} to ${short(high)}`), confirmed, r.compliance === null ? "–" : r.compliance.toFixed(2), r.trainings];
  };
  return card("Ranking", table(["", "order", "posterior ± 95 %", "", "confirmed", "compliance", "trainings"], picked.map(line), [0, 2, 4, 5, 6]),
    el("p", { class: "muted small" }, `${rows.length} orders trained${picked.length < rows.length ? `; the best ${TOP} and the worst ${BOTTOM} are shown` : ""}. Orange dots: trained again from scratch on fresh seeds, scored on held-out games.`));
}

function effects(found) {
  const rows = found.effects.toSorted((a, b) => Math.abs(b.mean) - Math.abs(a.mean));
  const ends = rows.flatMap((e) => [e.low, e.high]);
  const scale = [Math.min(0, ...ends), Math.max(0, ...ends)];
  return card("What comes first?", table(["first", "before", "gain", "", "binds"], rows.map((e) => [e.a.replaceAll("_", " "), e.b.replaceAll("_", " "), `${signed(e.mean)}${e.low > 0 || e.high < 0 ? " *" : ""}`, interval(e, scale, `${short(e.low)} to ${short(e.high)}`), e.binding ? short(e.binding) : "never"]), [2, 4]),
    el("p", { class: "muted small" }, "Gain in score of orders that put one before the other, all else equal, with 95 % intervals corrected for the number of pairs; * beyond its uncertainty. Binds: decisions per episode."));
}

function groups(found) {
  const rows = Object.entries(found.groups || {}).filter(([, scores]) => scores.length);
  if (!rows.length) return null;
  const mean = (scores) => scores.reduce((a, b) => a + b, 0) / scores.length;
  return card("Controls", table(["trained as", "mean", "each training"], rows.map(([name, scores]) => [name, short(mean(scores), 4), scores.map((x) => x.toFixed(2)).join("  ")]), [1]));
}

function course(trainings) {
  const mine = trainings.filter((t) => t.purpose === "search" && t.kind === "order" && t.score !== null);
  let best = -Infinity;
  const line = mine.map((t, i) => ({ x: i + 1, y: (best = Math.max(best, t.score)) }));
  const points = mine.map((t, i) => ({ x: i + 1, y: t.score, kind: t.purpose, label: `${t.order}: ${short(t.score, 4)}` }));
  return card("Course", scatter(points, { xName: "trainings of the search", yName: "score", line }), el("p", { class: "muted small" }, "Score of each training; line: the best so far."));
}

function compliance(trainings) {
  const points = trainings.filter((t) => t.compliance !== null && t.score !== null).map((t) => ({ x: t.compliance, y: t.score, kind: t.purpose, label: `${t.kind} ${t.order}: ${short(t.score, 4)}, compliance ${short(t.compliance)}` }));
  const key = ["search", "confirm", "control"].map((kind) => el("span", { class: `key ${kind}` }, kind));
  return card("Compliance and score", scatter(points, { xName: "compliance in fresh games", yName: "score" }), el("p", { class: "row small" }, key));
}

function decisions(list, trainings) {
  const by = new Map(trainings.map((t) => [t.number, t]));
  const rows = list.slice(-15).toReversed().map((d) => {
    const t = by.get(d.number);
    return [d.number, t ? words(t.order) : "in training", t?.posterior_mean === null || !t ? "–" : `${short(t.posterior_mean, 4)} ± ${short(Z * t.posterior_sd, 2)}`, t ? short(t.score, 4) : "–", d.known?.length ?? 0, d.pending?.length ?? 0];
  });
  if (!rows.length) return null;
  return card("Decisions", table(["training", "order", "expected ± 95 %", "score", "known", "in training"], rows, [0, 2, 3, 4, 5]), el("p", { class: "muted small" }, `The newest of ${list.length}. Known: results that the choice depended on.`));
}

/** Fills an element; returns { refresh, stop }. */
export async function fill(root, path) {
  const place = el("div", { class: "stack" });
  const posterior = el("div");
  const chartCard = el("section", { class: "card", hidden: true }, el("h2", {}, "Posterior over all orders"), posterior, el("p", { class: "muted small" }, "Orders by posterior mean, with 95 % intervals; also those that were never trained."));
  root.append(place);
  const chart = new Chart(posterior, { label: "Posterior over orders", height: 200 });
  let found = null;
  let stopped = false;

  function draw({ trainings, decisions: log, summary }) {
    const shown = found?.ranking ? found : summary;
    const parts = [];
    if (shown?.ranking) {
      parts.push(verdict(shown, !summary), ranking(shown, trainings), chartCard, el("div", { class: "columns" }, effects(shown), course(trainings), compliance(trainings), groups(shown) || ""), decisions(log, trainings) || "");
    } else {
      parts.push(verdict({ answer: "" }, true), el("div", { class: "columns" }, course(trainings), compliance(trainings)), decisions(log, trainings) || "");
    }
    place.replaceChildren(...parts);
    const rows = (found?.posterior || []).toSorted((a, b) => b.mean - a.mean);
    chartCard.hidden = !rows.length;
    if (rows.length) chart.set([{ name: "posterior", colour: "--series-1", x: rows.map((_, i) => i + 1), mean: rows.map((r) => r.mean), low: rows.map((r) => r.mean - Z * r.deviation), high: rows.map((r) => r.mean + Z * r.deviation) }], { axis: "rank" });
  }

  async function refresh() {
    const now = await api("/api/search", { path });
    draw(now);
    api("/api/search/findings", { path }).then((more) => { if (!stopped && more.ranking) { found = more; draw(now); } }).catch(() => {});
  }

  await refresh();
  return { refresh, stop: () => { stopped = true; chart.stop(); } };
}
