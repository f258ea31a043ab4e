// The page of a game: #/game?run=… (of a policy), ?blue=… (a scripted Blue) or ?trace=… (a recorded episode).
// `vs` names a second Blue, which plays on the same draws; `edits` are actions of Blue that were changed by hand.
import { about, showGames } from "./board.js";
import { BranchPanel } from "./branch.js";
import { el, number } from "./element.js";
import { showEpisode } from "./grid.js";
import { api, crumbs, empty, runLink } from "./shell.js";

const GAME = ["run", "blue", "order", "member", "sampled", "red", "revision", "green", "horizon", "seed", "cell", "rank", "episodes", "edits"];
const pick = (params) => Object.fromEntries(GAME.filter((name) => params[name]).map((name) => [name, params[name]]));
const link = (params) => `#/game?${new URLSearchParams(Object.entries(params).filter(([, value]) => value !== "" && value !== undefined && value !== null))}`;

export async function show(root, params) {
  const chosen = pick(params);
  const from = chosen.run ? [chosen.run, runLink(chosen.run)] : null;
  crumbs(...(from ? [from] : []), [params.trace ? "recorded game" : "game"]);
  const setup = await api("/api/game/options", chosen.run ? { run: chosen.run } : {});
  const form = params.trace ? null : chooser(setup, { ...chosen, vs: params.vs }, await others(chosen.run));
  if (!params.trace && !chosen.run && !chosen.blue) {
    root.append(el("h1", {}, "A game of CAGE-2"), form, await recordings());
    return undefined;
  }
  root.append(el("p", { class: "muted waiting", role: "status" }, "Playing the game …"));
  const games = await load(params, chosen).catch((error) => {
    root.replaceChildren(...(form ? [form] : []), empty("This game cannot be shown", error.message));
    return null;
  });
  if (!games) return undefined;
  root.replaceChildren();
  if (games[0].kind === "grid") {
    return showEpisode(root, games[0], grid(setup, chosen));
  }
  root.append(head(games, chosen, params), form || episodes(games[0].meta));
  return board(root, games, setup, params, chosen);
}

function board(root, games, setup, params, chosen) {
  const branches = !params.trace && games.length === 1;
  const ask = (step, action) => api("/api/game/branch", { ...chosen, at: step, action });
  const watch = (step, action) => { location.hash = link({ ...params, page: undefined, path: undefined, branch: `${step}:${action}`, at: step }); };
  const panel = branches ? new BranchPanel(games[0], setup.actions, ask, watch) : null;
  const shown = showGames(root, games, { at: Number(params.at) || 0, aside: panel?.root, onStep: (t, playing) => panel?.show(t, playing) });
  return shown.stop;
}

/** One game, or two: a second Blue on the same draws, or the future after another action. */
async function load(params, chosen) {
  if (params.trace) return [await api("/api/game/trace", { trace: params.trace, episode: params.episode, variant: params.variant })];
  const first = await api("/api/game/play", chosen);
  if (params.branch && first.kind === "cage2") {
    const before = (chosen.edits || "").split(",").filter((edit) => edit && Number(edit.split(":")[0]) < Number(params.branch.split(":")[0]));
    const second = await api("/api/game/play", { ...chosen, edits: [...before, params.branch].join(",") });
    const [step, action] = params.branch.split(":");
    first.meta.blue = `as played: ${first.steps[Number(step)].blue.action}`;
    second.meta.blue = `instead: ${action}`;
    return [first, second];
  }
  if (!params.vs || first.kind === "grid") return [first];
  const other = { ...same(first.meta, chosen), ...(params.vs.startsWith("run:") ? { run: params.vs.slice(4), blue: undefined } : { blue: params.vs, run: undefined }) };
  return [first, await api("/api/game/play", other)];
}

/** The parameters of the same game for another Blue; of a ranked game, the one with the same number. */
function same(meta, chosen) {
  const { order, member, edits, sampled, ...rest } = chosen;
  if (rest.cell) return { ...rest, revision: meta.revision, game: meta.game };
  return { ...rest, red: rest.red || meta.red, revision: meta.revision, horizon: meta.horizon, green: String(meta.green) };
}

function head(games, chosen, params) {
  const [game] = games;
  const final = (shown) => el("span", { class: "final" }, number(shown.steps[shown.steps.length - 1].total));
  const title = games.length > 1 ? (params.branch ? "Two futures" : "Two policies, the same draws") : game.meta.blue;
  const ranks = game.meta.ranking ? el("p", { class: "row ranks" }, Object.entries(game.meta.ranking.games).map(([rank, found]) => el("a", { href: link({ ...chosen, rank, vs: params.vs }), "aria-current": rank === game.meta.rank ? "true" : null }, `${rank} ${number(found.return)}`))) : null;
  const back = params.branch || params.vs ? el("a", { href: link({ ...chosen, at: params.at }) }, "← one game") : null;
  return el("header", { class: "head" }, el("div", {}, back, el("h1", {}, title), el("p", { class: "muted" }, about(game)), ranks), games.length > 1 ? null : final(game));
}

/** Links to the other episodes of a recording. */
function episodes(meta) {
  const go = (event) => { location.hash = link({ trace: meta.trace, episode: event.target.value }); };
  return el("label", { class: "field" }, "Episode", el("select", { onchange: go }, Array.from({ length: meta.episodes }, (_, i) => el("option", { value: i, selected: i === meta.episode }, String(i)))));
}

/** Other runs whose policies can play the same game. */
async function others(run) {
  const { runs } = await api("/api/runs").catch(() => ({ runs: [] }));
  return runs.filter(({ path, target }) => path !== run && (!target || target === "cage2" || target === "cyborg")).slice(0, 200).map(({ path }) => path);
}

/** The form that chooses a game. */
function chooser(setup, chosen, runs) {
  const field = (label, control) => el("label", { class: "field" }, label, control);
  const select = (name, values, text = (value) => value, usual = "") => el("select", { name }, values.map((value) => el("option", { value, selected: String(chosen[name] ?? usual) === String(value) }, text(value) || "as trained")));
  const trained = chosen.run ? [""] : []; // without a run there is nothing to fall back to
  const whole = (name, placeholder) => el("input", { type: "number", name, min: name === "horizon" ? 1 : 0, max: name === "horizon" ? 1000 : 2147483647, placeholder, value: chosen[name] ?? "" });
  const run = setup.run;
  const fields = [];
  if (!chosen.run) fields.push(field("Blue", select("blue", setup.blues)));
  if (run?.kind === "search") fields.push(field("Training", select("member", ["", ...run.trainings.map((row) => row.number)], (n) => (n === "" ? "best" : training(run, n)))));
  if (run?.policies > 1) fields.push(field("Policy", select("member", ["", ...Array.from({ length: Math.min(run.policies, 200) }, (_, i) => i)], (n) => (n === "" ? "best" : String(n)))));
  fields.push(field("Red", select("red", [...trained, ...setup.reds], undefined, chosen.run ? "" : "bline")), field("Revision", select("revision", [...trained, ...setup.revisions])), field("Steps", whole("horizon", run?.task?.horizon ?? "100")), field("Seed", whole("seed", "0")),
    field("Protocol", select("cell", ["", ...setup.cells], (cell) => cell || "none")), field("Rank", select("rank", ["median", "worst", "best"])),
    field("Compare with", select("vs", [...new Set(["", ...setup.blues, ...runs.map((path) => `run:${path}`), ...(chosen.vs ? [chosen.vs] : [])])], (blue) => blue.replace(/^run:/, "") || "nobody")));
  const form = el("form", { class: "chooser row", onsubmit: (event) => {
    event.preventDefault();
    const given = Object.fromEntries(new FormData(form));
    if (given.cell) given.red = given.horizon = "";
    else given.rank = "";
    const next = link({ ...(chosen.run ? { run: chosen.run } : {}), ...(chosen.order ? { order: chosen.order } : {}), ...given });
    if (next === location.hash) dispatchEvent(new HashChangeEvent("hashchange"));
    else location.hash = next;
  } }, fields, el("button", { class: "primary" }, "Play"));
  return el("details", { class: "card setup", open: !chosen.run && !chosen.blue }, el("summary", {}, "Another game"), form);
}

function training(run, number_) {
  const row = run.trainings.find((found) => found.number === Number(number_));
  return row ? `${row.number}: ${row.order} (${number(row.score, 2)})` : String(number_);
}

/** The form of an episode on a grid. */
function grid(setup, chosen) {
  const run = setup.run;
  const search = run?.kind === "search";
  const control = search ? el("select", { name: "member" }, el("option", { value: "" }, "best"), run.trainings.map((row) => el("option", { value: row.number, selected: String(row.number) === chosen.member }, training(run, row.number))))
    : el("input", { type: "number", name: "seed", min: 0, value: chosen.seed ?? 0 });
  const form = el("form", { class: "chooser row", onsubmit: (event) => {
    event.preventDefault();
    location.hash = link({ run: chosen.run, ...Object.fromEntries(new FormData(form)) });
  } }, el("label", { class: "field" }, search ? "Training" : "Seed", control), el("button", { class: "primary" }, "Play"));
  return el("details", { class: "card setup" }, el("summary", {}, "Another episode"), form);
}

/** Files of recorded episodes in the folder. */
async function recordings() {
  const { traces } = await api("/api/game/files");
  if (!traces.length) return el("p", { class: "muted" }, "Recorded episodes in this folder would be listed here.");
  return el("section", { class: "card" }, el("h2", {}, "Recorded episodes"), el("ul", { class: "files" }, traces.map((trace) => el("li", {}, el("a", { href: link({ trace }) }, trace)))));
}
