// The bytes of a message as people read them: JSON set out in lines, text, or hex. Every byte of a body is
// shown or counted; what is not what it was asked to be is shown in the next plainer form. Hex is named.

import { element } from "./dom.js";
import { formatCount } from "./format.js";
import { parseJson } from "./lossless_json.js";

export const FORMS = ["json", "text", "hex"];
const SHOWN_BYTES = 4096;
const HEX_WIDTH = 16;

/** Return the bytes of a message's body or header value, as its `encoding` says. */
export function bytesOf(value, encoding) {
  if (encoding !== "base64") return new TextEncoder().encode(value);
  return Uint8Array.from(atob(value), (character) => character.charCodeAt(0));
}

/** Return a body as an element: `form` is the form wanted; a long body can be opened whole. */
export function bodyView(bytes, form) {
  if (!bytes.length) return element("span", { class: "quiet" }, "empty");
  const view = element("pre", { class: "body code" });
  const show = (shown) => {
    const written = write(bytes.subarray(0, shown), form, shown < bytes.length);
    view.dataset.form = written.form;
    view.replaceChildren(written.text);
    if (written.form === "hex" && form !== "hex") view.append(element("small", { class: "quiet" }, `\nnot ${NAMES[form]}: shown as hex`));
    if (shown >= bytes.length) return;
    const rest = `${formatCount(bytes.length - shown)} bytes more`;
    view.append("\n", element("button", { type: "button", class: "quiet-button", on: { click: () => show(bytes.length) } }, rest));
  };
  show(Math.min(bytes.length, SHOWN_BYTES));
  return view;
}

const NAMES = { json: "JSON", text: "text" };

/** Return {form, text}: the bytes in the form, or in the first plainer one that can hold them. */
function write(bytes, form, isCut) {
  if (form === "hex") return { form, text: hexOf(bytes) };
  let text;
  try {
    // a character that was cut in two is left out: the bytes behind it are not shown either
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes, { stream: isCut });
  } catch {
    return { form: "hex", text: hexOf(bytes) };
  }
  if (form === "json" && (isCut || isJson(text))) return { form, text: isCut ? text : indent(text) };
  return { form: "text", text };
}

function isJson(text) {
  try {
    parseJson(text);
    return true;
  } catch {
    return false;
  }
}

/** Set JSON out in lines. The text of names, strings and numbers stays as it is written. */
function indent(text) {
  let depth = 0;
  const tokens = text.match(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g) ?? [];
  return tokens.map((token, place) => {
    const after = tokens[place + 1];
    if (token === "{" || token === "[") {
      if (after === "}" || after === "]") return token;
      depth += 1;
      return `${token}\n${"  ".repeat(depth)}`;
    }
    const closes = after === "}" || after === "]";
    const line = closes && token !== "{" && token !== "[" ? `\n${"  ".repeat(Math.max(0, --depth))}` : "";
    if (token === ",") return `,\n${"  ".repeat(depth)}`;
    return token === ":" ? ": " : `${token}${line}`;
  }).join("");
}

function hexOf(bytes) {
  const lines = [];
  for (let at = 0; at < bytes.length; at += HEX_WIDTH) {
    const row = [...bytes.subarray(at, at + HEX_WIDTH)];
    const hex = row.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const text = row.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${hex.padEnd(3 * HEX_WIDTH - 1)}  ${text}`);
  }
  return lines.join("\n");
}
