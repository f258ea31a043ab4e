// Time line of a game: what each step cost and why, where Red got in and Blue restored; and the controls of a player.
import { el, number, svg } from "./element.js";

export const PARTS = [["User", "users"], ["Enterprise", "enterprise"], ["Operational", "operational"], ["impact", "service"], ["restore", "restores"]];
const ICONS = { play: "M6 4l14 8-14 8z", pause: "M6 4h4v16H6zM14 4h4v16h-4z", first: "M5 5h2v14H5zM20 5v14L9 12z", last: "M17 5h2v14h-2zM4 5v14l11-7z",
  back: "M17 5v14L6 12z", forward: "M7 5v14l11-7z" };
const SPEEDS = [1, 2, 4, 8, 16];
const HEIGHT = 84;
const EDGE = 8; // half a thumb of the slider

/** Cost of a step by part, as positive numbers. */
export function costs(game, step) {
  const found = { User: 0, Enterprise: 0, Operational: 0, impact: -step.parts.impact, restore: -step.parts.restore };
  step.hosts.forEach((host, i) => { found[game.hosts[i].subnet] += host.cost || 0; });
  return found;
}

const level = (host) => ({ privileged: 2, user: 1 })[host.held] || 0;

/** Steps in which Red got a session or more rights, Blue restored, the service went down; and the worst step. */
export function events(game) {
  const found = { compromise: [], restore: [], down: [], worst: 0 };
  game.steps.forEach((step, t) => {
    if (!t) return;
    const before = game.steps[t - 1];
    if (step.hosts.some((host, i) => level(host) > level(before.hosts[i]))) found.compromise.push(t);
    if (step.blue?.kind === "Restore") found.restore.push(t);
    if (step.service === "down" && before.service !== "down") found.down.push(t);
    if (step.reward < (game.steps[found.worst].reward ?? 0)) found.worst = t;
  });
  return found;
}

/** The strip of one game. */
export class Strip {
  constructor(game, onSeek) {
    Object.assign(this, { game, onSeek, events: events(game), t: 0 });
    this.costs = game.steps.map((step) => costs(game, step));
    this.most = Math.max(1, ...this.costs.map((cost) => sum(Object.values(cost))));
    this.root = el("div", { class: "strip" });
    this.legend = el("dl", { class: "sums" }, PARTS.map(([part, name]) => el("div", { "data-part": part }, el("dt", {}, name), el("dd"))));
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(this.root);
    const seek = (event) => {
      const box = this.root.getBoundingClientRect();
      onSeek(Math.round(((event.clientX - box.left - EDGE) / (box.width - 2 * EDGE)) * (game.steps.length - 1)));
    };
    this.root.addEventListener("pointerdown", (event) => { this.root.setPointerCapture(event.pointerId); seek(event); });
    this.root.addEventListener("pointermove", (event) => event.buttons && seek(event));
  }

  stop() {
    this.observer.disconnect();
  }

  x(t) {
    return EDGE + (t / Math.max(1, this.game.steps.length - 1)) * (this.width - 2 * EDGE);
  }

  draw() {
    this.width = this.root.clientWidth;
    if (!this.width) return;
    const thick = Math.max(1, Math.min(14, (this.width - 2 * EDGE) / this.game.steps.length - 1));
    const bars = this.costs.flatMap((cost, t) => this.bar(cost, this.x(t) - thick / 2, thick));
    const mark = (kind, shape, y) => this.events[kind].map((t) => svg("path", { class: `mark ${kind}`, d: shape(this.x(t), y) }));
    this.cursor = svg("g", { class: "cursor" }, svg("line", { y1: 0, y2: HEIGHT }), svg("circle", { cy: HEIGHT - 1, r: 3 }));
    this.root.replaceChildren(svg("svg", { width: this.width, height: HEIGHT, "aria-hidden": "true" },
      svg("line", { class: "axis", x1: 0, x2: this.width, y1: 27, y2: 27 }), bars,
      mark("compromise", triangle, 7), mark("restore", square, 19), mark("down", cross, 7), this.cursor));
    this.show(this.t);
  }

  /** Height grows with the square root of the cost, so that a tenth stays visible beside an impact; shares are exact. */
  bar(cost, x, width) {
    const total = sum(Object.values(cost));
    const scale = total ? (Math.sqrt(total / this.most) * (HEIGHT - 32)) / total : 0;
    let y = 28;
    return PARTS.filter(([part]) => cost[part] > 0).map(([part]) => {
      const height = Math.max(1, cost[part] * scale);
      y += height;
      return svg("rect", { class: "part", "data-part": part, x, y: y - height, width, height });
    });
  }

  show(t) {
    this.t = t;
    this.cursor?.setAttribute("transform", `translate(${this.x(t)} 0)`);
    const so = this.costs.slice(0, t + 1);
    this.legend.childNodes.forEach((entry) => {
      const value = sum(so.map((cost) => cost[entry.dataset.part]));
      entry.lastChild.textContent = number(-value);
      entry.dataset.none = value === 0;
    });
  }
}

const icon = (name) => svg("svg", { viewBox: "0 0 24 24", width: 15, height: 15, "aria-hidden": "true" }, svg("path", { d: ICONS[name], fill: "currentColor" }));
const sum = (values) => values.reduce((a, b) => a + b, 0);
const triangle = (x, y) => `M${x - 4} ${y + 3.5}L${x} ${y - 4}L${x + 4} ${y + 3.5}z`;
const square = (x, y) => `M${x - 3} ${y - 3}h6v6h-6z`;
const cross = (x, y) => `M${x - 4} ${y - 4}l8 8M${x + 4} ${y - 4}l-8 8`;

/** The controls: calls `onStep(t)`; keys work wherever nothing is typed. `jumps`: name, key and function of each jump. */
export class Player {
  constructor(last, onStep, jumps = []) {
    Object.assign(this, { last, onStep, t: 0, timer: 0, jumps });
    const button = (label, name, onclick, more = {}) => el("button", { type: "button", "aria-label": label, title: label, onclick, ...more }, icon(name));
    this.toggleButton = button("Play (space)", "play", () => this.toggle(), { class: "primary play" });
    this.slider = el("input", { type: "range", min: 0, max: last, value: 0, "aria-label": "Step", oninput: () => this.go(Number(this.slider.value)) });
    this.speed = el("select", { "aria-label": "Steps per second", onchange: () => this.playing && this.play() },
      SPEEDS.map((speed) => el("option", { value: speed, selected: speed === 4 }, `${speed}/s`)));
    this.place = el("output", { class: "place" });
    this.controls = el("div", { class: "transport row" },
      el("div", { class: "row tight" }, button("First step (home)", "first", () => this.go(0)), button("Step back (left arrow)", "back", () => this.go(this.t - 1)),
        this.toggleButton, button("Step forward (right arrow)", "forward", () => this.go(this.t + 1)), button("Last step (end)", "last", () => this.go(this.last)), this.speed, this.place),
      el("div", { class: "row tight jumps" }, jumps.map(([name, key, jump]) => el("button", { type: "button", onclick: () => this.jump(jump) }, name, el("kbd", { "aria-hidden": "true" }, key)))));
    this.keys = (event) => this.key(event);
    document.addEventListener("keydown", this.keys);
  }

  get playing() {
    return this.timer !== 0;
  }

  stop() {
    this.pause();
    document.removeEventListener("keydown", this.keys);
  }

  go(t) {
    this.t = Math.max(0, Math.min(this.last, t));
    this.slider.value = this.t;
    this.place.textContent = `${this.t} / ${this.last}`;
    if (this.t === this.last) this.pause();
    this.onStep(this.t, this.playing);
  }

  jump(find) {
    const t = find(this.t);
    if (t !== undefined) this.go(t);
  }

  play() {
    this.pause();
    if (this.t === this.last) this.go(0);
    this.timer = setInterval(() => this.go(this.t + 1), 1000 / Number(this.speed.value));
    this.shown();
  }

  pause() {
    clearInterval(this.timer);
    this.timer = 0;
    this.shown();
  }

  toggle() {
    if (this.playing) {
      this.pause();
      this.onStep(this.t, false);
    } else this.play();
  }

  shown() {
    this.toggleButton.replaceChildren(icon(this.playing ? "pause" : "play"));
    const label = this.playing ? "Pause (space)" : "Play (space)";
    this.toggleButton.setAttribute("aria-label", label);
    this.toggleButton.title = label;
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const target = event.target;
    if (target.matches?.("input:not([type=range]), select, textarea") || (event.key === " " && target.matches?.("button, a, summary"))) return;
    const jump = this.jumps.find(([, key]) => key === event.key);
    const act = { " ": () => this.toggle(), ArrowLeft: () => this.go(this.t - 1), ArrowRight: () => this.go(this.t + 1),
      Home: () => this.go(0), End: () => this.go(this.last) }[event.key] || (jump && (() => this.jump(jump[2])));
    if (!act) return;
    event.preventDefault();
    act();
  }
}
