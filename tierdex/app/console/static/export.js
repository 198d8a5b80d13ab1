// An answer as a file: JSON as the API says it, CSV with a row an entry. All fetched pages, with their messages.

import { element } from "./dom.js";
import { writeJson } from "./lossless_json.js";

const COLUMNS = ["topic", "queue_id", "offset", "size", "timestamp", "file_id", "state", "node", "location", "source"];

/** Return two buttons that save what `found()` returns then, an answer with entries, under a name. */
export function exportMenu(name, found) {
  const kinds = { JSON: ["application/json", writeJson], CSV: ["text/csv", asCsv] };
  const buttons = Object.entries(kinds).map(([kind, [type, write]]) => element(
    "button",
    { type: "button", class: "quiet-button", "aria-label": `Export as ${kind}`, on: { click: () => download(`${name}.${kind.toLowerCase()}`, type, write(found())) } },
    kind,
  ));
  return element("span", { class: "copies", role: "group", "aria-label": "Export" }, "Export", buttons);
}

function download(name, type, text) {
  const href = URL.createObjectURL(new Blob([text], { type }));
  element("a", { download: name, href }).click();
  URL.revokeObjectURL(href);
}

/** Return entries as CSV (RFC 4180), as `tierdex query -o csv` writes them; with messages their text comes last. */
export function asCsv({ entries }) {
  const withMessages = entries.some(({ message }) => message);
  const rows = entries.map((entry) => [
    ...COLUMNS.map((column) => (column === "location" && entry.location ? writeJson(entry.location) : entry[column])),
    ...(withMessages ? [entry.message?.text ?? entry.message?.body ?? ""] : []),
  ]);
  return [[...COLUMNS, ...(withMessages ? ["shown"] : [])], ...rows].map((row) => `${row.map(cell).join(",")}\r\n`).join("");
}

function cell(value) {
  const text = String(value ?? "");
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
