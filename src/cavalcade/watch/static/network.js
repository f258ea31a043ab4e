// The network of CAGE-2 as a picture: three subnets, 13 hosts, who holds what, and the moves of the latest step.
// Red acts from its foothold on User0, Blue from the Defender.
import { el, number, svg } from "./element.js";

const COLUMNS = [
  ["User", ["User0", "User1", "User2", "User3", "User4"]],
  ["Enterprise", ["Enterprise1", "Enterprise0", "Enterprise2", "Defender"]],
  ["Operational", ["Op_Server0", "Op_Host0", "Op_Host1", "Op_Host2"]],
];
const LEADS = [["User1", "Enterprise1"], ["User2", "Enterprise1"], ["User3", "Enterprise0"], ["User4", "Enterprise0"],
  ["Enterprise2", "Op_Server0"]];
const WIDE = { width: 960, card: 248, height: 66, pitch: 80, top: 44 };
const NARROW = { width: 400, card: 184, height: 66, pitch: 82, top: 36 };
const ICONS = {
  user: "M3 5h18v11H3zM9 20h6M12 16v4",
  enterprise: "M5 3h14v7H5zM5 13h14v7H5zM8 6.5h3M8 16.5h3M17 6.5v0M17 16.5v0",
  op_host: "M4 4h16v12H4zM8 12l2-4 2 3 2-4 2 5M9 20h6",
  op_server: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8M12 2v4M12 18v4M2 12h4M18 12h4M5 5l3 3M16 16l3 3M19 5l-3 3M8 16l-3 3",
  defender: "M12 3l8 3v6c0 5-3.5 8-8 9-4.5-1-8-4-8-9V6z",
};
const STATES = { privileged: "◆ privileged", user: "▲ user" };
const RED_WORDS = { DiscoverRemoteSystems: "sweep", DiscoverNetworkServices: "scan", ExploitRemoteService: "exploit",
  PrivilegeEscalate: "escalate", Impact: "impact", InvalidAction: "invalid", Sleep: "sleep" };
let made = 0;

/** A picture of one game; `show(step)` draws a step. */
export class Network {
  constructor(game) {
    this.game = game;
    this.facts = Object.fromEntries(game.hosts.map((host, index) => [host.name, { ...host, index }]));
    this.id = `network${++made}`;
    this.root = el("div", { class: "network" });
    this.narrow = null;
    this.observer = new ResizeObserver(() => this.fit());
    this.observer.observe(this.root);
    this.step = null;
  }

  stop() {
    this.observer.disconnect();
  }

  fit() {
    const narrow = this.root.clientWidth < 700;
    if (narrow === this.narrow || !this.root.clientWidth) return;
    this.narrow = narrow;
    this.root.dataset.narrow = narrow;
    this.build();
    if (this.step) this.show(this.step);
  }

  build() {
    const size = this.narrow ? NARROW : WIDE;
    const { height, zones, spots } = this.narrow ? stacked(size) : beside(size);
    Object.assign(this, { size, spots, zones, cards: {} });
    this.moves = svg("g", { class: "moves" });
    this.service = svg("text", { class: "service", "text-anchor": "end" });
    const op = zones.Operational;
    this.service.setAttribute("x", op.x + op.width - 12);
    this.service.setAttribute("y", op.y + 22);
    this.links = LEADS.map(([from, to]) => [from, svg("path", { class: "lead", d: curve(spots[from], spots[to], size) })]);
    this.picture = svg("svg", { viewBox: `0 0 ${size.width} ${height}`, role: "img" }, this.defs(),
      Object.entries(zones).map(([name, zone]) => this.zone(name, zone)), this.links.map(([, path]) => path),
      Object.keys(spots).map((name) => this.card(name)), this.service, this.moves);
    this.root.replaceChildren(this.picture);
  }

  defs() {
    const arrow = (side) => svg("marker", { id: `${this.id}-${side}`, viewBox: "0 0 10 10", refX: 9, refY: 5, markerWidth: 9,
      markerHeight: 9, markerUnits: "userSpaceOnUse", orient: "auto-start-reverse" }, svg("path", { class: `tip ${side}`, d: "M0 0 10 5 0 10z" }));
    const hatch = svg("pattern", { id: `${this.id}-hatch`, width: 7, height: 7, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
      svg("rect", { class: "stripe", width: 2, height: 7 }));
    return svg("defs", {}, arrow("red"), arrow("blue"), hatch);
  }

  zone(name, zone) {
    return svg("g", { class: "zone" },
      svg("rect", { class: "ground", x: zone.x, y: zone.y, width: zone.width, height: zone.height, rx: 12 }),
      svg("text", { class: "title", x: zone.x + 14, y: zone.y + 22 }, name));
  }

  card(name) {
    const { card, height } = this.size;
    const { x, y } = this.spots[name];
    const at = (dx, dy, attributes = {}) => svg("text", { x: x + dx, y: y + dy, ...attributes });
    const parts = {
      title: svg("title"),
      state: at(48, 41, { class: "state" }),
      sees: at(card - 10, 23, { class: "sees", "text-anchor": "end" }),
      believes: at(card - 10, 58, { class: "believes", "text-anchor": "end" }),
      cost: at(card - 10, 41, { class: "cost", "text-anchor": "end" }),
      decoys: svg("g", { class: "decoys" }),
      differs: svg("g", { class: "differs" }, svg("circle", { cx: x + card - 2, cy: y + 2, r: 9 }),
        svg("text", { x: x + card - 2, y: y + 6.5, "text-anchor": "middle" }, "≠")),
    };
    const group = svg("g", { class: "host" }, parts.title,
      svg("rect", { class: "box", x, y, width: card, height, rx: 9 }),
      svg("rect", { class: "hatch", x, y, width: card, height, rx: 9, fill: `url(#${this.id}-hatch)` }),
      svg("rect", { class: "disc", x: x + 9, y: y + 11, width: 30, height: 30, rx: 8 }),
      svg("path", { class: "icon", d: ICONS[this.facts[name].type], transform: `translate(${x + 13} ${y + 15}) scale(0.917)` }),
      at(48, 24, { class: "name" }), parts.state, parts.sees, parts.believes, parts.cost, parts.decoys, parts.differs);
    group.querySelector(".name").append(name.replace("_", " "));
    this.cards[name] = { group, ...parts };
    return group;
  }

  show(step) {
    this.step = step;
    if (!this.cards) return;
    for (const [name, card] of Object.entries(this.cards)) this.showHost(name, card, step.hosts[this.facts[name].index]);
    for (const [from, path] of this.links) path.dataset.known = step.hosts[this.facts[from].index].held === "privileged";
    this.service.dataset.state = step.service;
    this.service.textContent = { runs: "● service runs", "at risk": "▲ service at risk", down: "✕ service DOWN" }[step.service];
    this.moves.replaceChildren(...this.move("red", step.red, "User0"), ...this.move("blue", step.blue, "Defender"));
    this.picture.setAttribute("aria-label", described(step, this.game));
  }

  showHost(name, card, host) {
    const { x, y } = this.spots[name];
    const foothold = name === "User0" && host.held === "privileged";
    const state = foothold ? "foothold" : host.held || (host.scanned ? "scanned" : "clean");
    card.group.dataset.state = state;
    card.state.textContent = foothold ? "⚑ Red's foothold" : STATES[host.held] || (host.scanned ? "◌ scanned" : "clean");
    card.cost.textContent = host.cost ? number(-host.cost) + (this.narrow ? "" : " a step") : "";
    card.sees.textContent = host.sees ? `${this.narrow ? "" : "sees "}${host.sees}` : "";
    card.sees.dataset.sees = host.sees || "";
    card.believes.textContent = host.believes ? (this.narrow ? `${host.believes}?` : `believes ${host.believes}`) : "";
    card.differs.toggleAttribute("hidden", !host.differs);
    const decoys = host.decoys || [];
    card.decoys.replaceChildren(...decoys.map((_, i) => svg("path", { class: "decoy", d: hexagon(x + 55 + 15 * i, y + 54) })));
    if (decoys.length && decoys.length < 3 && !this.narrow) card.decoys.append(svg("text", { x: x + 48 + 15 * decoys.length, y: y + 58 }, decoys.length === 1 ? "decoy" : "decoys"));
    card.title.textContent = hostText(name, host);
  }

  move(side, move, home) {
    if (!move) return [];
    const word = side === "red" ? RED_WORDS[move.action] || move.action : move.kind.replace("Decoy", "decoy ");
    const failed = move.success === false;
    const label = `${word}${failed ? " ✕" : ""}`;
    if (move.subnet) {
      const zone = this.zones[move.subnet];
      return [svg("rect", { class: `aim ${side}`, x: zone.x, y: zone.y, width: zone.width, height: zone.height, rx: 12 }),
        ...chip(side, zone.x + zone.width / 2, zone.y + 17, label, this.size.width)];
    }
    if (!move.host) return [];
    const [from, to, { card, height }] = [this.spots[home], this.spots[move.host], this.size];
    const found = [svg("rect", { class: `aim ${side}`, "data-failed": failed, x: to.x - 3, y: to.y - 3, width: card + 6, height: height + 6, rx: 11 })];
    if (home !== move.host) {
      found.push(svg("path", { class: `arrow ${side}`, "data-failed": failed, d: curve(from, to, this.size, side === "red" ? -1 : 1), "marker-end": `url(#${this.id}-${side})` }));
    }
    return [...found, ...chip(side, to.x + card * (side === "red" ? 0.25 : 0.66), to.y + height + 3, label, this.size.width)];
  }
}

function beside(size) {
  const [zones, spots] = [{}, {}];
  const gap = (size.width - 3 * (size.card + 28)) / 2;
  const height = size.top + 5 * size.pitch + 8;
  COLUMNS.forEach(([name, hosts], column) => {
    const x = column * (size.card + 28 + gap);
    zones[name] = { x, y: 0, width: size.card + 28, height };
    const first = size.top + ((5 - hosts.length) * size.pitch) / 2;
    hosts.forEach((host, row) => { spots[host] = { x: x + 14, y: first + row * size.pitch, column }; });
  });
  return { zones, spots, height };
}

function stacked(size) {
  const [zones, spots] = [{}, {}];
  let y = 0;
  for (const [name, hosts] of COLUMNS) {
    const rows = Math.ceil(hosts.length / 2);
    zones[name] = { x: 0, y, width: size.width, height: size.top + rows * size.pitch };
    hosts.forEach((host, i) => { spots[host] = { x: 10 + (i % 2) * (size.card + 12), y: y + size.top + Math.floor(i / 2) * size.pitch, column: i % 2 }; });
    y += size.top + rows * size.pitch + 10;
  }
  return { zones, spots, height: y - 10 };
}

/** A curve between two cards; within a column around the side given, −1 for left. */
function curve(from, to, { card, height }, side = -1) {
  const [y0, y1] = [from.y + height / 2, to.y + height / 2];
  if (from.column === to.column) {
    const x = side < 0 ? from.x : from.x + card;
    const bulge = x + side * (14 + Math.min(24, Math.abs(y1 - y0) / 12));
    return `M${x} ${y0}C${bulge} ${y0} ${bulge} ${y1} ${x + side * 4} ${y1}`;
  }
  const ahead = to.x > from.x;
  const [x0, x1] = ahead ? [from.x + card, to.x - 4] : [from.x, to.x + card + 4];
  const middle = (x0 + x1) / 2;
  return `M${x0} ${y0}C${middle} ${y0} ${middle} ${y1} ${x1} ${y1}`;
}

/** A label at x, or as near to it as a picture of a width allows. */
function chip(side, wanted, y, label, most) {
  const width = 18 + 7 * label.length;
  const x = Math.max(width / 2, Math.min(most - width / 2, wanted));
  return [svg("rect", { class: `label ${side}`, x: x - width / 2, y: y - 9, width, height: 18, rx: 9 }),
    svg("text", { class: "labeltext", x, y: y + 4, "text-anchor": "middle" }, label)];
}

function hexagon(x, y) {
  const points = [0, 1, 2, 3, 4, 5].map((i) => `${(x + 6 * Math.cos((Math.PI / 3) * i)).toFixed(1)} ${(y + 6 * Math.sin((Math.PI / 3) * i)).toFixed(1)}`);
  return `M${points.join("L")}z`;
}

/** A host in words. */
export function hostText(name, host) {
  const parts = [host.held ? `Red is ${host.held}` : "Red has no session"];
  if (host.removable) parts.push("Remove would end its user session");
  if (host.malware) parts.push("Analyse would find malware");
  if (host.scanned_ports) parts.push(`Red knows ports ${host.scanned_ports.join(", ")}`);
  if (host.decoys) parts.push(`decoys ${host.decoys.join(", ")}`);
  parts.push(host.sees ? `Blue sees ${host.sees}` : "Blue sees nothing", `believes ${host.believes || "clean"}`);
  if (host.differs) parts.push(`differs from the truth: ${host.differs}`);
  return `${name}: ${parts.join("; ")}.`;
}

/** A step in words. */
export function described(step, game) {
  const held = game.hosts.filter((host, i) => host.name !== "User0" && step.hosts[i].held).map((host) => `${host.name} (${step.hosts[game.hosts.indexOf(host)].held})`);
  const moves = step.blue ? `Blue: ${moveText(step.blue)}. Red: ${moveText(step.red)}. ` : "The game begins. ";
  return `Step ${step.step}. ${moves}Reward ${number(step.reward)}, ${number(step.total)} so far. Red holds ${held.join(", ") || "only its foothold"}. The service ${step.service === "runs" ? "runs" : `is ${step.service}`}.`;
}

/** A move in words. */
export function moveText(move) {
  const where = move.subnet || (move.kind ? "" : move.host);
  return `${move.action}${where ? ` ${where}` : ""}${move.by ? ` by ${move.by}` : ""}${move.success === false ? ", failed" : ""}`;
}
