// Small pictures of a search as SVG: intervals in the rows of a table, and scatter plots.

import { short, ticks } from "./chart.js";
import { svg } from "./element.js";

/** An interval with its mean and further dots, on the scale from `from` to `to`. */
export function interval({ mean, low, high, dots = [] }, [from, to], label) {
  const width = 260;
  const at = (x) => 6 + ((x - from) / (to - from || 1)) * (width - 12);
  const made = svg("svg", { viewBox: `0 0 ${width} 18`, class: "interval", role: "img", "aria-label": label, preserveAspectRatio: "none" });
  if (from < 0 && to > 0) made.append(svg("line", { x1: at(0), x2: at(0), y1: 0, y2: 18, class: "zero" }));
  made.append(svg("line", { x1: at(low), x2: at(high), y1: 9, y2: 9, class: "whisker" }));
  for (const dot of dots) made.append(svg("circle", { cx: at(dot), cy: 9, r: 2.5, class: "again" }));
  made.append(svg("circle", { cx: at(mean), cy: 9, r: 4, class: "mean" }));
  return made;
}

/** Points { x, y, kind, label } with axes; `line`: points that are joined. */
export function scatter(points, { xName, yName, line = [], height = 240 }) {
  const [width, left, bottom, top] = [560, 52, 34, 10];
  const known = points.filter((p) => Number.isFinite(p.x) && Number.isFinite(p.y));
  const made = svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "scatter", role: "img", "aria-label": `${yName} against ${xName}, ${known.length} points` });
  if (!known.length) {
    made.append(svg("text", { x: width / 2, y: height / 2, "text-anchor": "middle" }, "nothing yet"));
    return made;
  }
  const range = (values) => { const [a, b] = [Math.min(...values), Math.max(...values)]; const room = (b - a) * 0.06 || Math.abs(b) * 0.05 || 1; return [a - room, b + room]; };
  const [x0, x1] = range(known.map((p) => p.x));
  const [y0, y1] = range(known.map((p) => p.y));
  const px = (x) => left + ((x - x0) / (x1 - x0)) * (width - left - 10);
  const py = (y) => top + (1 - (y - y0) / (y1 - y0)) * (height - top - bottom);
  for (const y of ticks(y0, y1, 4)) made.append(svg("line", { x1: left, x2: width - 10, y1: py(y), y2: py(y), class: "gridline" }), svg("text", { x: left - 8, y: py(y) + 4, "text-anchor": "end" }, short(y)));
  for (const x of ticks(x0, x1, 5)) made.append(svg("text", { x: px(x), y: height - 16, "text-anchor": "middle" }, short(x)));
  made.append(svg("text", { x: width - 10, y: height - 2, "text-anchor": "end", class: "axis" }, xName), svg("text", { x: left + 6, y: top + 8, class: "axis" }, yName));
  if (line.length) made.append(svg("polyline", { points: line.map((p) => `${px(p.x)},${py(p.y)}`).join(" "), class: "joined" }));
  for (const p of known) made.append(svg("circle", { cx: px(p.x), cy: py(p.y), r: 3.5, class: `point ${p.kind}` }, svg("title", {}, p.label)));
  return made;
}
