// Elements of HTML and SVG. Whatever comes from a run is text, never markup.

/** Creates an element: `el("a", { href, class: "x", onclick }, "text", child, …)`. Text is always a text node. */
export function el(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** The same for SVG. */
export function svg(name, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function filled(made, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined) continue;
    if (key.startsWith("data-")) made.setAttribute(key, String(value));
    else if (value === false) continue;
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

/** Makes nodes the children of an element. Those that are there already stay untouched: they keep focus, and clicks in the middle of an update. */
export function arrange(parent, nodes) {
  let next = parent.firstChild;
  for (const node of nodes.filter(Boolean)) {
    if (node === next) next = next.nextSibling;
    else parent.insertBefore(node, next);
  }
  while (next) {
    const gone = next;
    next = next.nextSibling;
    gone.remove();
  }
}

/** Remembers nodes by name: `keep(name, data, make)` makes one anew only if its data changed. */
export function keeper() {
  const kept = new Map();
  return (name, data, make) => {
    const text = JSON.stringify(data);
    if (kept.get(name)?.text !== text) kept.set(name, { text, node: make() });
    return kept.get(name).node;
  };
}

/** A number with a real minus sign. */
export function number(value, digits = 1) {
  const text = Math.abs(value).toFixed(digits);
  return value < 0 && Number(text) !== 0 ? `−${text}` : text;
}
