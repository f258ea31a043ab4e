// The router: shows the module that the address names, and the theme. Each page module exports
// `async function show(root, params)`, which fills `root` and may return a function that stops timers and streams.

import { el } from "./element.js";
import { api, parse } from "./requests.js";

const PAGES = { "": "list", run: "run", compare: "compare", game: "game" };
const STYLES = new Set(["game"]); // pages with a stylesheet of their own
const main = document.getElementById("main");
let stop = null;
let turn = 0;

export { api, el };

/** Address of a run's page. */
export const runLink = (path) => `#/run/${path.split("/").map(encodeURIComponent).join("/")}`;

/** Sets the breadcrumb: pairs of text and address, the last without one. */
export function crumbs(...items) {
  document.title = [...items.map(([text]) => text), "Cavalcade"].join(" · ");
  document.getElementById("crumbs").replaceChildren(
    ...items.map(([text, href]) => (href ? el("a", { href }, text) : el("span", { "aria-current": "page" }, text))),
  );
}

/** Says in the bar whether the page is live: "live", "offline" or "". */
export function live(state) {
  const place = document.getElementById("live");
  place.dataset.state = state;
  place.textContent = { live: "live", offline: "reconnecting" }[state] || "";
}

/** A box in the place of content: why there is none. */
export const empty = (title, text) => el("div", { class: "empty" }, el("h2", {}, title), el("p", {}, text));

async function route() {
  const mine = ++turn;
  stop?.();
  stop = null;
  live("");
  const params = parse(location.hash);
  const name = PAGES[params.page];
  const root = el("div", { class: `page page-${name || "none"}` });
  main.replaceChildren(root);
  scrollTo(0, 0);
  if (!name) {
    crumbs(["not found"]);
    root.append(empty("There is no such page", "The list of runs is one click away: choose Cavalcade above."));
    return;
  }
  if (STYLES.delete(name)) document.head.append(el("link", { rel: "stylesheet", href: `/static/${name}.css` }));
  try {
    const page = await import(`/static/${name}.js`);
    const ended = await page.show(root, params);
    if (mine === turn) stop = ended || null;
    else ended?.();
  } catch (error) {
    if (mine === turn) root.replaceChildren(empty("This cannot be shown", error.message));
  }
}

function theme(name) {
  document.documentElement.dataset.theme = name;
  dispatchEvent(new Event("themechange"));
}

const dark = matchMedia("(prefers-color-scheme: dark)");
const remembered = () => { try { return localStorage.getItem("theme"); } catch { return null; } };
const system = () => (dark.matches ? "dark" : "light");
theme(remembered() || system());
dark.addEventListener("change", () => remembered() || theme(system()));
document.getElementById("theme").addEventListener("click", () => {
  const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  try { localStorage.setItem("theme", next); } catch { /* a private window */ }
  theme(next);
});
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
addEventListener("hashchange", route);
route();
