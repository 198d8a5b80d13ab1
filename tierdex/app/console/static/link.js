// The address of a view and of a query: `#lookup?topic=UA&key=N37422&begin=…`.
//
// Everything stands in the fragment, which a browser never sends: keys stay out of proxies' and servers'
// logs. Times are epoch milliseconds, so that a link means the same in every zone.

const FIELDS = ["topic", "key", "message_id", "begin", "end", "max_count", "explain"];
const KNOWN = {
  lookup: FIELDS, journey: ["key", "begin", "end"], messages: ["topic", "queue_id", "offset", "begin", "form", "tail"],
  files: ["file"], compaction: [], nodes: [],
};
export const VIEWS = Object.keys(KNOWN);

/** Return the fragment of a view; null, undefined and empty parameters are left out. */
export function writeLink(view, parameters = {}) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== null && value !== undefined && value !== "") search.set(name, String(value));
  }
  const text = search.toString();
  return `#${view}${text ? `?${text}` : ""}`;
}

/** Return {view, parameters, unknown} of a fragment; an unknown view is the lookup. `unknown` are names that its view does not know. */
export function readLink(fragment) {
  const text = fragment.replace(/^#/, "");
  const cut = text.indexOf("?");
  const name = cut < 0 ? text : text.slice(0, cut);
  const view = VIEWS.includes(name) ? name : "lookup";
  const given = [...new URLSearchParams(cut < 0 ? "" : text.slice(cut + 1))];
  const isKnown = ([each]) => KNOWN[view].includes(each);
  return {
    view, parameters: Object.fromEntries(given.filter(isKnown)),
    unknown: given.filter((pair) => !isKnown(pair)).map(([each]) => each),
  };
}

/** Return the fragment of a query as `readLink` understands it. */
export function writeQuery(query) {
  return writeLink("lookup", Object.fromEntries(FIELDS.map((name) => [name, query[name]])));
}

/** Say whether these parameters are a query that can be sent. */
export function isQuery(parameters) {
  return "message_id" in parameters || ("topic" in parameters && "key" in parameters);
}
