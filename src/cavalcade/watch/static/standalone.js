// A game in a file of its own: the data lies in the page, nothing is loaded.
import { about, showGames } from "./board.js";
import { el, number } from "./element.js";
import { showEpisode } from "./grid.js";

const game = JSON.parse(document.getElementById("game").textContent);
const root = document.getElementById("main");
const dark = matchMedia("(prefers-color-scheme: dark)");
const theme = (name) => { document.documentElement.dataset.theme = name; dispatchEvent(new Event("themechange")); };
theme(dark.matches ? "dark" : "light");
document.getElementById("theme").addEventListener("click", () => theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
if (game.kind === "grid") {
  root.append(el("div", { class: "page page-game" }));
  showEpisode(root.lastChild, game);
} else {
  document.title = `${game.meta.blue} against ${game.meta.red}`;
  const page = el("div", { class: "page page-game" }, el("header", { class: "head" }, el("div", {}, el("h1", {}, game.meta.blue), el("p", { class: "muted" }, about(game))),
    el("p", { class: "final" }, number(game.steps[game.steps.length - 1].total))));
  root.append(page);
  showGames(page, [game]);
}
