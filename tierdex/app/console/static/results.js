// An answer as a banner (is it complete?) and a table of entries.

import { element } from "./dom.js";
import { formatAny, formatCount, formatName, plural, shortFileId } from "./format.js";
import { writeLink } from "./link.js";
import { formatTime, zoneName } from "./times.js";

const KNOWN = ["timestamp", "topic", "queue_id", "offset", "size", "state", "file_id", "node"];
const TITLES = {
  topic: "Topic", queue_id: "Queue", offset: "Offset", size: "Size", state: "State",
  file_id: "File", node: "Node",
};
const NUMERIC = new Set(["queue_id", "offset", "size"]);
const MISSING_SHOWN = 8;

/** Return the banner over entries: complete or not, what was missing and why, how fresh the answer is. */
export function completenessBanner(answer, zone) {
  const fresh = `as of ${formatFreshness(answer.as_of, zone)}`;
  if (answer.complete) {
    const what = "Complete: every file that could hold the key was asked";
    return element(
      "p", { class: isHeldBack(answer) ? "note warn" : "note good", role: "status" }, element("strong", {}, what), ` · ${fresh}`, unaskedInWords(answer, zone),
    );
  }
  const missing = answer.missing ?? [];
  return element(
    "div", { class: "note warn", role: "status" },
    element("strong", {}, `Incomplete: ${notAsked(missing)}`),
    ` · ${fresh}. There may be more entries than these.`,
    unaskedInWords(answer, zone),
    missing.length ? missingList(missing) : null,
  );
}

/** Return the table of entries in their order, which `sort()` turns round; columns that an answer of another schema adds come last. `linksFiles`: the caller may see files. */
export function entriesTable(entries, zone, { isNewestFirst, sort, linksFiles }) {
  const others = new Set(entries.flatMap((entry) => Object.keys(entry)).filter((name) => !KNOWN.includes(name)));
  const isUsed = (name) => entries.some((entry) => entry[name] !== null && entry[name] !== undefined);
  const columns = [...KNOWN, ...others].filter(isUsed);
  const head = columns.map((name) => (name === "timestamp"
    ? element(
      "th", { scope: "col", "aria-sort": isNewestFirst ? "descending" : "ascending" },
      element("button", { type: "button", id: "sort-time", class: "sort", on: { click: sort } }, `Time ${isNewestFirst ? "↓" : "↑"}`),
      element("small", {}, ` ${zoneName(zone)}`),
    )
    : element("th", { scope: "col", class: NUMERIC.has(name) ? "number" : null }, TITLES[name] ?? formatName(name))));
  return element(
    "div", { class: "table-scroll panel", tabindex: "0", role: "region", "aria-labelledby": "answer-title" },
    element(
      "table", { id: "entries" },
      element("thead", {}, element("tr", {}, head)),
      element("tbody", {}, entries.map((entry) => element("tr", {}, columns.map((name) => cell(name, entry[name], zone, linksFiles))))),
    ),
  );
}

/** Return a state's name with its colour. */
export function stateBadge(state) {
  return element("span", { class: "state", "data-state": state }, state);
}

function cell(name, value, zone, linksFiles) {
  if (name === "timestamp") return element("td", { class: "code", title: `${value} ms` }, formatTime(value, zone));
  if (name === "state") return element("td", {}, stateBadge(String(value)));
  if (name === "file_id") {
    const href = linksFiles ? writeLink("files", { file: value }) : null;
    return element("td", { class: "code" }, element(href ? "a" : "span", { href, title: String(value) }, shortFileId(value)));
  }
  if (NUMERIC.has(name)) return element("td", { class: "number code", title: String(value ?? "") }, formatCount(value));
  return element("td", { class: "code" }, typeof value === "string" ? value : formatAny(value));
}

/** Say how many files and whole nodes are missing; a node is written `node:<name>`. */
function notAsked(missing) {
  const nodes = missing.filter(({ file }) => String(file).startsWith("node:")).length;
  const files = missing.length - nodes;
  const parts = [files ? plural(files, "file") : null, nodes ? plural(nodes, "node") : null].filter(Boolean);
  return parts.length ? `${parts.join(" and ")} could not be asked` : "not every file was asked";
}

function missingList(missing) {
  const line = ({ file, reason }) => element("li", {}, element("code", {}, String(file)), `: ${reason}`);
  const rest = missing.slice(MISSING_SHOWN);
  return [
    element("ul", {}, missing.slice(0, MISSING_SHOWN).map(line)),
    rest.length
      ? element("details", {}, element("summary", {}, `${rest.length} more`), element("ul", {}, rest.map(line)))
      : null,
  ];
}

/** Return whether a node that may hold more gave no sign for longer than it should, so that `as_of` stands still. */
export function isHeldBack(answer) {
  return (answer.unasked ?? []).some(({ standing }) => standing !== "live");
}

/** Say which nodes hold entries that are not published and were not asked themselves; null when none do. */
export function unaskedInWords(answer, zone) {
  const unasked = answer.unasked ?? [];
  if (!unasked.length) return null;
  const told = unasked.slice(0, MISSING_SHOWN).map(({ node, standing, published_through: through, heard_at: heard }) => {
    const known = through === null ? "not known how far it has published" : `published through ${formatTime(through, zone)}`;
    const last = typeof heard === "number" ? `, last heard ${formatTime(heard, zone)}` : "";
    return `${node} (${standing}, ${known}${last})`;
  });
  const more = unasked.length > MISSING_SHOWN ? ` and ${unasked.length - MISSING_SHOWN} more` : "";
  return element("span", { class: "unasked" }, ` · Entries newer than that may lie on nodes that were not asked: ${told.join(", ")}${more}`);
}

/** Return how fresh an answer is: a time, or one a node. */
export function formatFreshness(asOf, zone) {
  if (typeof asOf === "number" || typeof asOf === "bigint") return `${formatTime(asOf, zone)} ${zoneName(zone)}`;
  if (asOf && typeof asOf === "object") {
    return Object.entries(asOf).map(([node, time]) => `${node} ${formatFreshness(time, zone)}`).join(", ");
  }
  return String(asOf ?? "now");
}
