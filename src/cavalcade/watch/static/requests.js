// Requests of pages. The first ones of the page that the address names begin here, before its modules have arrived.

/** What the address names: page, path and parameters. `#/run/a/b?x=1` is { page: "run", path: "a/b", x: "1" }. */
export function parse(hash) {
  const [route, query = ""] = hash.replace(/^#\/?/, "").split("?");
  const [page, ...rest] = route.split("/");
  return { ...Object.fromEntries(new URLSearchParams(query)), page, path: rest.map(decodeURIComponent).join("/") };
}

const FIRST = {
  "": () => [["/api/runs", { most: 24 }]], // the others arrive as events
  run: ({ path }) => [["/api/run", { path: path || "." }], ["/api/metrics", { path: path || ".", points: 300, lines: 0 }]],
};
const begun = new Map();

/** GET or, with a body, POST of JSON; an error carries the message of the server. */
export async function api(path, params = {}, body = undefined) {
  const query = new URLSearchParams(Object.entries(params).filter(([, value]) => value !== undefined && value !== null));
  const options = body === undefined ? {} : { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  const answer = await fetch(`${path}${query.size ? `?${query}` : ""}`, options);
  const plain = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(plain.error || `${answer.status} ${answer.statusText}`);
  return plain;
}

/** Promises of the first answers of a page: those that began when it was opened, or new ones. */
export function first(page, params = {}) {
  return FIRST[page](params).map((request) => {
    const key = JSON.stringify(request);
    const answer = begun.get(key) ?? begin(request);
    begun.delete(key);
    return answer;
  });
}

function begin(request) {
  const answer = api(...request);
  answer.catch(() => {}); // its caller reports the error
  return answer;
}

const opened = parse(location.hash);
if (Object.hasOwn(FIRST, opened.page)) for (const request of FIRST[opened.page](opened)) begun.set(JSON.stringify(request), begin(request));
