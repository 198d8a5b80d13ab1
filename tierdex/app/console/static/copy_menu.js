// A lookup to take along: its link, and the same question for a shell or a program; and what to begin with.

import { readKey } from "./api.js";
import { copyText, element } from "./dom.js";

const FIELDS = ["topic", "key", "message_id", "begin", "end", "max_count"];

/** Return a menu that copies a query as text. */
export function copyMenu(query) {
  const texts = { link: () => location.href, curl: () => asCurl(query), CLI: () => asCommand(query), Python: () => asPython(query) };
  const buttons = Object.entries(texts).map(([name, text]) => element(
    "button", { type: "button", class: "quiet-button", on: { click: (event) => copyText(event.currentTarget, text()) } }, name,
  ));
  return element("span", { class: "copies", role: "group", "aria-label": "Copy as" }, "Copy as", buttons);
}

export function asCurl(query) {
  const data = given(query).map(([name, value]) => ` --data-urlencode ${quote(`${name}=${value}`)}`);
  const key = readKey() ? ' -H "Authorization: Bearer $TIERDEX_API_KEY"' : "";
  return `curl -sG${key} ${quote(`${service()}/v1/entries`)}${data.join("")}`;
}

export function asCommand(query) {
  const options = given(query).map(([name, value]) => ` --${name.replace("_", "-")}=${quote(value)}`);
  return `tierdex query --url=${quote(service())}${options.join("")}`; // the key: TIERDEX_API_KEY
}

export function asPython(query) {
  const inWords = (name, value) => (name === "max_count" || /^-?\d+$/.test(value) && ["begin", "end"].includes(name) ? value : JSON.stringify(value));
  const values = given(query).map(([name, value]) => `${name}=${inWords(name, value)}`);
  const key = readKey() ? ', api_key=os.environ["TIERDEX_API_KEY"]' : "";
  return [
    ...(key ? ["import os", ""] : []), "import tierdex", "", `with tierdex.Client(${JSON.stringify(service())}${key}) as client:`,
    `    answer = client.query(${values.join(", ")})`, "", "for entry in answer.entries:", "    print(entry)", "",
  ].join("\n");
}

function given(query) {
  return FIELDS.filter((name) => ![undefined, null, ""].includes(query[name])).map((name) => [name, String(query[name])]);
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
