// An episode on a grid: arenas of MettaGrid, the gridworld of the search. Drawn on a canvas, with a legend.
import { el, number, svg } from "./element.js";
import { Player } from "./timeline.js";

const SERIES = ["--series-1", "--series-2", "--series-3", "--series-4", "--series-5", "--series-8", "--series-6", "--series-7"];
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const initials = (name) => name.split(/[_ ]/).map((word) => word.slice(0, 1)).join("").toUpperCase().slice(0, 2);
const isWall = (name) => name.includes("wall");

/** Shows an episode; setup: an element below its title. Returns what stops it. */
export function showEpisode(root, data, setup = null) {
  const { meta, map, steps } = data;
  const canvas = el("canvas", { class: "arena", role: "img" });
  const context = canvas.getContext("2d");
  const said = el("p", { class: "unseen", "aria-live": "polite" });
  const [height, width] = [map.rows.length, map.rows[0].length];
  const totals = steps.map((step) => step.total.reduce((a, b) => a + b, 0));
  const figures = el("dl", { class: "figures" });
  const holdings = el("dl", { class: "pairs" });
  const agents = el("tbody");
  const maps = [];
  for (const step of steps) maps.push(step.rows ?? maps.at(-1) ?? map.rows);
  let t = 0;

  function draw() {
    const size = Math.max(8, Math.min(72, Math.floor(Math.min(canvas.parentNode.clientWidth, 720) / width)));
    const scale = devicePixelRatio || 1;
    canvas.width = width * size * scale;
    canvas.height = height * size * scale;
    canvas.style.width = `${width * size}px`;
    canvas.style.height = `${height * size}px`;
    context.setTransform(scale, 0, 0, scale, 0, 0);
    maps[t].forEach((row, r) => row.forEach((code, c) => cell(context, map.kinds, code, c * size, r * size, size)));
    const step = steps[t];
    step.at.forEach(([r, c], i) => agent(context, i, c * size, r * size, size, step.reward[i], step.at.length));
  }

  function show(now, playing) {
    t = now;
    draw();
    const step = steps[t];
    const figure = (label, value) => el("div", {}, el("dt", {}, label), el("dd", {}, value));
    figures.replaceChildren(figure("step", String(t)), figure("reward", number(step.reward.reduce((a, b) => a + b, 0), 2)), figure("so far", number(totals[t], 2)));
    holdings.replaceChildren(...meta.resources.flatMap((name, r) => [el("dt", {}, name), el("dd", {}, String(step.holds.reduce((sum, held) => sum + held[r], 0)))]));
    agents.replaceChildren(...step.at.map((at, i) => el("tr", {}, el("th", { scope: "row" }, String(i)), el("td", {}, step.action ? meta.actions[step.action[i]] : "–"),
      el("td", {}, meta.resources.filter((_, r) => step.holds[i][r]).map((name) => `${name} ${step.holds[i][meta.resources.indexOf(name)]}`).join(", ") || "–"), el("td", { class: "num" }, number(step.total[i], 2)))));
    const text = `Step ${t}: return ${number(totals[t], 2)} over ${meta.agents} ${meta.agents === 1 ? "agent" : "agents"}.`;
    canvas.setAttribute("aria-label", text);
    if (!playing) said.textContent = text;
  }

  const paid = steps.map((step, i) => (step.reward.some((reward) => reward > 0) ? i : -1)).filter((i) => i > 0);
  const player = new Player(steps.length - 1, show, [["Next reward", "n", (now) => paid.find((i) => i > now)]]);
  const legend = el("ul", { class: "kinds" }, map.kinds.map((name, i) => el("li", {}, swatch(name, i), name)), el("li", {}, svg("svg", { width: 16, height: 16, "aria-hidden": "true" }, svg("circle", { class: "agent", cx: 8, cy: 8, r: 6 })), "agent"));
  root.append(el("header", { class: "head" }, el("div", {}, el("h1", {}, meta.title), el("p", { class: "muted" }, [meta.game, meta.order, meta.seed === undefined ? null : `seed ${meta.seed}`, `${meta.horizon} steps`, meta.note].filter(Boolean).join(" · "))),
    el("p", { class: "final" }, number(totals[totals.length - 1], 2))), ...(setup ? [setup] : []),
    el("div", { class: "boards" },
      el("div", { class: "main" }, el("section", { class: "card picture" }, el("div", {}, canvas), legend), el("section", { class: "card time", "aria-label": "Time line" }, player.controls, player.slider)),
      el("div", { class: "beside" }, el("section", { class: "card step-panel" }, figures, el("h2", {}, meta.agents === 1 ? "Done" : "All agents hold"), holdings),
        el("section", { class: "card agents" }, el("h2", {}, "Agents"), el("div", { class: "tall" }, el("table", {}, el("thead", {}, el("tr", {}, ["", "Action", "Holds", "Return"].map((text) => el("th", { scope: "col" }, text)))), agents))))), said);
  const again = () => draw();
  addEventListener("themechange", again);
  addEventListener("resize", again);
  player.go(0);
  return () => { player.stop(); removeEventListener("themechange", again); removeEventListener("resize", again); };
}

function cell(context, kinds, code, x, y, size) {
  context.fillStyle = colour("--raised");
  context.fillRect(x, y, size, size);
  context.strokeStyle = colour("--line");
  context.lineWidth = 0.5;
  context.strokeRect(x, y, size, size);
  if (!code) return;
  const name = kinds[code - 1];
  if (isWall(name)) {
    context.fillStyle = colour("--faint");
    context.fillRect(x, y, size, size);
    return;
  }
  context.fillStyle = colour(SERIES[(code - 1) % SERIES.length]);
  context.beginPath();
  context.roundRect(x + 2, y + 2, size - 4, size - 4, 4);
  context.fill();
  letter(context, initials(name), x, y, size, colour("--surface"));
}

function agent(context, i, x, y, size, reward, count) {
  context.beginPath();
  context.arc(x + size / 2, y + size / 2, size * 0.38, 0, 2 * Math.PI);
  context.fillStyle = colour("--text");
  context.fill();
  if (reward > 0) {
    context.strokeStyle = colour("--good");
    context.lineWidth = 3;
    context.stroke();
  }
  if (count > 1 && size >= 16) letter(context, String(i), x, y, size, colour("--surface"));
}

function letter(context, text, x, y, size, fill) {
  context.fillStyle = fill;
  context.font = `600 ${Math.round(size * 0.42)}px system-ui, sans-serif`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.fillText(text, x + size / 2, y + size / 2 + 0.5);
}

function swatch(name, i) {
  const rect = svg("rect", { x: 1, y: 1, width: 14, height: 14, rx: 3 });
  rect.style.fill = isWall(name) ? "var(--faint)" : `var(${SERIES[i % SERIES.length]})`;
  return svg("svg", { width: 16, height: 16, "aria-hidden": "true" }, rect, svg("text", { x: 8, y: 11.5, "text-anchor": "middle" }, isWall(name) ? "" : initials(name)));
}
