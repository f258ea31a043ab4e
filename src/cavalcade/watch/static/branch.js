// "What would another action have been worth here?": both futures of a step, each continued many times.
import { el, number, svg } from "./element.js";

const WIDTH = 300;

/** The panel; ask(step, action) returns the answer of the server, watch(step, action) shows both futures. */
export class BranchPanel {
  constructor(game, actions, ask, watch) {
    Object.assign(this, { game, ask, watch, step: 0 });
    const blocks = new Map();
    for (const action of actions) {
      const [kind] = action.split(" ");
      if (!blocks.has(kind)) blocks.set(kind, []);
      blocks.get(kind).push(action);
    }
    const alone = [...blocks].filter(([, members]) => members.length === 1).flatMap(([, members]) => members);
    const options = (members) => members.map((action) => el("option", { value: action }, action));
    this.select = el("select", { "aria-label": "Another action" }, options(alone),
      ["Restore", "Remove", "Analyse", ...[...blocks.keys()].filter((kind) => kind.startsWith("Decoy"))].filter((kind) => blocks.has(kind))
        .map((kind) => el("optgroup", { label: kind.replace("Decoy", "Decoy ") }, options(blocks.get(kind)))));
    this.quick = el("div", { class: "row tight quick" });
    this.answer = el("div", { class: "answer", "aria-live": "polite" });
    this.go = el("button", { type: "button", class: "primary", onclick: () => this.run(this.select.value) }, "Branch");
    this.root = el("section", { class: "card branch-panel" }, el("h2", {}, "What if?"), this.lead = el("p"), this.quick,
      el("div", { class: "row tight" }, this.select, this.go), this.answer);
  }

  show(t, playing) {
    if (t === this.step && this.answer.hasChildNodes()) return;
    this.step = t;
    this.answer.replaceChildren();
    if (playing) return;
    this.root.dataset.ready = t > 0;
    const step = this.game.steps[t];
    this.lead.textContent = t ? `In step ${t} Blue played ${step.blue.action}. What would another action have been worth?` : "Choose a step: branching replaces the action that Blue played in it.";
    this.quick.replaceChildren(...(t ? this.ideas(t) : []).map((action) => el("button", { type: "button", class: "idea", onclick: () => { this.select.value = action; this.run(action); } }, action)));
  }

  /** Restores of what Red holds, then what the policy liked second. */
  ideas(t) {
    const [step, before] = [this.game.steps[t], this.game.steps[t - 1]];
    const held = this.game.hosts.filter((host, i) => host.name !== "User0" && before.hosts[i].held).map((host) => `Restore ${host.name}`);
    const liked = (step.policy?.best || []).map(([action]) => action);
    return [...new Set([...held.slice(0, 3), ...liked, "Sleep"])].filter((action) => action !== step.blue.action).slice(0, 4);
  }

  async run(action) {
    const step = this.step;
    if (!step) return;
    this.answer.replaceChildren(el("p", { class: "muted" }, "Playing both futures …"));
    this.go.disabled = true;
    try {
      const found = await this.ask(step, action);
      if (step === this.step) this.answer.replaceChildren(...this.result(found));
    } catch (error) {
      this.answer.replaceChildren(el("p", { class: "refused" }, error.message));
    } finally {
      this.go.disabled = false;
    }
  }

  result(found) {
    const { taken, other, difference } = found;
    const sure = Math.abs(difference.mean) > difference.interval;
    const verdict = sure ? `${other.action} would have been worth ${number(Math.abs(difference.mean), 2)} ${difference.mean > 0 ? "more" : "less"}` : "No difference can be told";
    return [el("p", { class: "worth", "data-better": sure ? difference.mean > 0 : null }, verdict, el("span", { class: "muted" }, ` (difference ${number(difference.mean, 2)} ± ${number(difference.interval, 2)})`)),
      bars(taken, other),
      el("p", { class: "muted small" }, `Mean return of the ${found.steps_left} steps from here, ${found.continuations.toLocaleString("en")} continuations each, the same draws on both sides; 95 % intervals; ${Math.round(1000 * found.seconds)} ms.`),
      el("button", { type: "button", onclick: () => this.watch(found.step, other.action) }, "Watch both futures side by side")];
  }
}

function bars(taken, other) {
  const low = Math.min(0, taken.mean - taken.interval, other.mean - other.interval);
  const high = Math.max(0, taken.mean + taken.interval, other.mean + other.interval);
  const x = (value) => 4 + ((value - low) / (high - low || 1)) * (WIDTH - 8);
  const row = (side, name) => el("div", { class: "future" }, el("span", { class: "what" }, `${name} ${side.action}`), el("b", {}, `${number(side.mean, 2)} ± ${number(side.interval, 2)}`),
    svg("svg", { viewBox: `0 0 ${WIDTH} 16`, "aria-hidden": "true" },
      svg("rect", { class: `mean ${name}`, x: Math.min(x(side.mean), x(0)), y: 1, width: Math.abs(x(side.mean) - x(0)), height: 14, rx: 3 }),
      svg("path", { class: "whisker", d: `M${x(side.mean - side.interval)} 8H${x(side.mean + side.interval)}M${x(side.mean - side.interval)} 4v8M${x(side.mean + side.interval)} 4v8` })));
  return el("div", { class: "futures" }, row(taken, "played"), row(other, "instead"));
}
