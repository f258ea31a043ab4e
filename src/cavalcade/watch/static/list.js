import { api, crumbs, el, runLink } from "./shell.js";
export async function show(root) {
  crumbs(["runs"]);
  const { runs } = await api("/api/runs");
  root.append(el("ul", {}, runs.map((run) => el("li", {}, el("a", { href: runLink(run.path) }, run.path)))));
}
