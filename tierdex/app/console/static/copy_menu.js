// A lookup to take along: its link, and the same question for a shell or a program; and what to begin with.

import { readKey } from "./api.js";
import { copyText, element } from "./dom.js";

const TIMES = ["begin", "end"];
const [YEAR_1, YEAR_9999] = [-62_135_596_800_000, 253_402_300_799_999];
const FIELDS = ["topic", "key", "message_id", "begin", "end", "max_count"];

/** Return a menu that copies a query as text; `messages()` says whether the page shows messages: then so do these. */
export function copyMenu(query, { messages = () => false } = {}) {
  const asked = () => ({ ...query, message: messages() });
  const texts = { link: () => location.href, curl: () => asCurl(asked()), CLI: () => asCommand(asked()), Python: () => asPython(asked()) };
  const buttons = Object.entries(texts).map(([name, text]) => element(
    "button", { type: "button", class: "quiet-button", on: { click: (event) => copyText(event.currentTarget, text()) } }, name,
  ));
  return element("span", { class: "copies", role: "group", "aria-label": "Copy as" }, "Copy as", buttons);
}

export function asCurl(query) {
  const data = given(query).map(([name, value]) => ` --data-urlencode ${quote(`${name}=${value}`)}`);
  const key = readKey() ? ' -H "Authorization: Bearer $TIERDEX_API_KEY"' : "";
  const message = query.message ? " --data-urlencode message=true" : "";
  return `curl -sG${key} ${quote(`${service()}/v1/entries`)}${data.join("")}${message}`;
}

export function asCommand(query) {
  const options = given(query).map(([name, value]) => ` --${name.replace("_", "-")}=${quote(value)}`);
  return `tierdex query --url=${quote(service())}${options.join("")}${query.message ? " --show" : ""}`; // the key: TIERDEX_API_KEY
}

export function asPython(query) {
  const inWords = (name, value) => (name === "max_count" || /^-?\d+$/.test(value) && TIMES.includes(name) ? value : JSON.stringify(value));
  const values = [...given(query).map(([name, value]) => `${name}=${inWords(name, value)}`), ...(query.message ? ["message=True"] : [])];
  const key = readKey() ? ', api_key=os.environ["TIERDEX_API_KEY"]' : "";
  return [
    ...(key ? ["import os", ""] : []), "import tierdex", "", `with tierdex.Client(${JSON.stringify(service())}${key}) as client:`,
    `    answer = client.query(${values.join(", ")})`, "", "for entry in answer.entries:",
    query.message ? "    print(entry.timestamp, entry.message.text or entry.message.reason)" : "    print(entry)", "",
  ].join("\n");
}

function given(query) {
  return FIELDS.filter((name) => ![undefined, null, ""].includes(query[name])).map((name) => [name, written(name, String(query[name]))]);
}

/** Return a time of milliseconds as people write it, where a calendar has it; anything else as it is. */
function written(name, text) {
  const isTime = TIMES.includes(name) && /^-?\d+$/.test(text);
  const time = new Date(Number(text));
  return isTime && time.getTime() >= YEAR_1 && time.getTime() <= YEAR_9999 ? time.toISOString() : text;
}

/** Return a command that puts something into an empty service: a message where it has a log, else an entry. */
export function asFirstCommand({ log }) {
  return `tierdex ${log ? "log append" : "put"} --url=${quote(service())} --topic=orders --key=ORDER-1 ${log ? "hello" : "--offset=0"}`;
}

function service() {
  return new URL(".", location.href).href.replace(/\/$/, "");
}

/** Return a text as one word of a POSIX shell. */
function quote(text) {
  return /^[\w.,:/=@%+-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
