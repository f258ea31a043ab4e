// What stands beside the picture: the step in words, the policy's decision, and Blue's table beside the truth.
import { el, number } from "./element.js";
import { hostText, moveText } from "./network.js";

const DIFFERENCES = { missed: "missed", "false alarm": "false alarm", underrated: "underrated", overrated: "overrated", unsure: "unsure" };

/** Reward and moves of a step. */
export class StepPanel {
  constructor() {
    this.root = el("section", { class: "card step-panel", "aria-label": "This step" });
  }

  show(step) {
    const figure = (label, value) => el("div", {}, el("dt", {}, label), el("dd", {}, value));
    const rows = [["red", "Red", step.red], ["blue", "Blue", step.blue]].filter(([, , move]) => move).map(([side, name, move]) =>
      el("p", { class: `move ${side}` }, el("b", {}, name), el("span", {}, moveText({ ...move, success: null })), outcome(move.success)));
    if (step.green) rows.push(el("p", { class: "move green" }, el("b", {}, "Green"), el("span", {}, `scans ${step.green}`)));
    this.root.replaceChildren(
      el("dl", { class: "figures" }, figure("step", String(step.step)), figure("reward", number(step.reward)), figure("so far", number(step.total))),
      ...(rows.length ? rows : [el("p", { class: "muted" }, "Nothing has happened yet. Red holds its foothold on User0.")]));
  }
}

const outcome = (success) => (success === null || success === undefined ? null : el("span", { class: "outcome", "data-success": success }, success ? "✓ succeeded" : "✕ failed"));

/** The best actions of the policy with their probabilities, and its value. */
export class PolicyPanel {
  constructor(game) {
    this.edits = new Map(game.meta.edits || []);
    this.root = el("section", { class: "card policy-panel" }, el("h2", {}, "Blue's decision"), el("div"));
    this.explained = game.steps.some((step) => step.policy);
  }

  show(step) {
    const body = this.root.lastChild;
    if (!step.policy) {
      body.replaceChildren(el("p", { class: "muted" }, this.explained ? "The first decision is in step 1." : "No probabilities: Blue is scripted, or the game was recorded."));
      return;
    }
    const { best, value } = step.policy;
    const rows = best.map(([action, chance]) => {
      const fill = el("i");
      fill.style.width = `${100 * chance}%`;
      return el("li", { "data-taken": action === step.blue.action }, el("span", { class: "what" }, action), el("span", { class: "bar" }, fill), el("span", { class: "num" }, `${(100 * chance).toFixed(1)} %`));
    });
    const edited = this.edits.get(step.step);
    body.replaceChildren(el("ol", { class: "chances" }, rows),
      el("p", { class: "muted small" }, value === null ? "no value" : `value ${number(value, 2)}`,
        edited ? ` · replaced by ${edited}` : ""));
  }
}

/** Blue's table beside the truth. */
export class TablePanel {
  constructor(game) {
    this.game = game;
    this.rows = game.hosts.map((host) => {
      const cells = { truth: el("td"), sees: el("td"), believes: el("td"), likely: el("td"), differs: el("td", { class: "differs" }) };
      const row = el("tr", {}, el("th", { scope: "row" }, host.name.replace("_", " ")), ...Object.values(cells));
      return { row, ...cells };
    });
    this.count = el("span", { class: "muted" });
    const head = ["Host", "True", "Blue sees", "Blue's table", "Likely", "Difference"].map((text) => el("th", { scope: "col" }, text));
    this.root = el("section", { class: "card table-panel" }, el("div", { class: "row spread" }, el("h2", {}, "What is true, what Blue believes"), this.count),
      el("table", {}, el("thead", {}, el("tr", {}, head)), el("tbody", {}, this.rows.map(({ row }) => row))));
  }

  show(step) {
    let differ = 0;
    step.hosts.forEach((host, i) => {
      const cells = this.rows[i];
      differ += host.differs ? 1 : 0;
      cells.row.dataset.differs = host.differs || "";
      cells.row.title = hostText(this.game.hosts[i].name, host);
      fill(cells.truth, { privileged: "◆ privileged", user: "▲ user" }[host.held] || (host.scanned ? "scanned" : ""), host.held);
      fill(cells.sees, host.sees || "", host.sees);
      fill(cells.believes, host.believes || "", host.believes);
      fill(cells.likely, ...likely(step.belief, i));
      cells.differs.textContent = host.differs ? `≠ ${DIFFERENCES[host.differs]}` : "";
    });
    const agents = Object.entries(step.belief?.agent || {}).sort(([, a], [, b]) => b - a).map(([name, p]) => `${name} ${percent(p)}`);
    this.count.textContent = (agents.length ? `attacker: ${agents.join(", ")} · ` : "") + (differ ? `${differ} of 13 differ` : "no difference");
  }
}

const percent = (p) => `${Math.round(100 * p)} %`;

/** What Blue can conclude about a host from all that it has seen: text and kind of the likelier level. */
function likely(belief, i) {
  const [user, privileged] = belief?.hosts[i] || [0, 0];
  if (Math.max(user, privileged) < 0.02) return ["", ""];
  return privileged >= user ? [`privileged ${percent(privileged)}`, "privileged"] : [`user ${percent(user)}`, "user"];
}

function fill(cell, text, kind) {
  cell.textContent = text || "–";
  cell.dataset.kind = kind || "";
}
