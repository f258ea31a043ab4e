// A game, or two beside each other, with one player for both.
import { el, number } from "./element.js";
import { Network, described } from "./network.js";
import { PolicyPanel, StepPanel, TablePanel } from "./panels.js";
import { Player, Strip } from "./timeline.js";

/** Shows games in `root`; options: at (first step), onStep(t), aside (an element beside the first game). Returns what stops it. */
export function showGames(root, games, { at = 0, onStep = null, aside = null } = {}) {
  const last = Math.max(...games.map((game) => game.steps.length - 1));
  const two = games.length > 1;
  const sides = games.map((game) => ({ game, strip: new Strip(game, (t) => player.go(t)), network: new Network(game), step: new StepPanel(), policy: new PolicyPanel(game), table: new TablePanel(game) }));
  const said = el("p", { class: "unseen", "aria-live": "polite" });
  const next = (kind) => (t) => minimum(sides.flatMap(({ strip }) => strip.events[kind].filter((at) => at > t)));
  const worst = () => sides.map(({ strip, game }) => [game.steps[strip.events.worst].reward, strip.events.worst]).sort((a, b) => a[0] - b[0])[0][1];
  const player = new Player(last, show, [["Next compromise", "n", next("compromise")], ["Next restore", "r", next("restore")], ["Worst step", "w", worst]]);

  function show(t, playing) {
    for (const { game, ...parts } of sides) {
      const step = game.steps[Math.min(t, game.steps.length - 1)];
      Object.values(parts).forEach((part) => part.show(part === parts.strip ? Math.min(t, game.steps.length - 1) : step));
    }
    if (!playing) said.textContent = sides.map(({ game }) => described(game.steps[Math.min(t, game.steps.length - 1)], game)).join(" ");
    onStep?.(t, playing);
  }

  const time = el("section", { class: "card time", "aria-label": "Time line" }, player.controls,
    sides.map(({ game, strip }) => el("div", { class: "lane" }, two ? el("h3", {}, game.meta.blue) : null, strip.root, strip.legend)), player.slider,
    el("p", { class: "signs small muted" }, el("span", { class: "compromise" }, "▲ Red got further"), el("span", { class: "restore" }, "■ Restore"), el("span", { class: "down" }, "✕ service down"), el("span", {}, "bars: √ of the cost of a step")));
  if (two) {
    root.append(el("div", { class: "boards two" }, time, sides.map(({ game, network, step, policy, table }) =>
      el("div", { class: "side" }, heading(game), el("section", { class: "card" }, network.root), step.root, policy.root, table.root))), said);
  } else {
    const [{ network, step, policy, table }] = sides;
    root.append(el("div", { class: "boards" }, el("div", { class: "main" }, el("section", { class: "card picture" }, network.root), time, table.root),
      el("div", { class: "beside" }, step.root, policy.root, aside)), said);
  }
  player.go(Math.min(at, last));
  return { player, stop: () => { player.stop(); sides.forEach(({ network, strip }) => { network.stop(); strip.stop(); }); } };
}

const minimum = (values) => (values.length ? Math.min(...values) : undefined);

function heading(game) {
  const final = game.steps[game.steps.length - 1].total;
  return el("div", { class: "row spread" }, el("h3", {}, game.meta.blue), el("span", { class: "final" }, number(final)));
}

/** Title and facts of a game. */
export function about(game) {
  const m = game.meta;
  const facts = [`against ${m.red}`, `${m.horizon} steps`, `revision ${m.revision}`];
  if (m.trace) facts.push(`episode ${m.episode} of ${m.trace}`);
  if (m.ranking) facts.push(`${m.rank} of ${m.ranking.episodes.toLocaleString("en")} games of ${m.cell} (mean ${number(m.ranking.mean, 2)} ± ${number(m.ranking.interval, 2)})`);
  else if (m.seed !== undefined) facts.push(`seed ${m.seed}`);
  if (m.green) facts.push("with Green");
  if (m.changes) facts.push(`not the challenge: ${m.changes.join(", ")}`);
  if (m.note) facts.push(m.note);
  for (const [step, action] of m.edits || []) facts.push(`step ${step}: ${action} by hand`);
  return facts.join(" · ");
}
