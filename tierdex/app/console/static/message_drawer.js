// One message as people read it: decoded, raw or in hex, with what was undone and what is masked; or, in the
// service's words, why there is none.

import { copyText, element } from "./dom.js";
import { writeLink } from "./link.js";
import { bodyView, bytesOf } from "./message_body.js";

const TABS = { json: "JSON", raw: "raw", hex: "hex" };
const FORM_NAMES = { json: "JSON", text: "text", binary: "hex" };
const WITHOUT = {
  gone: "Gone from the log", mismatch: "Not shown", unavailable: "The log does not answer", too_large: "Too long",
  withheld: "Withheld", unresolved: "No message",
};

/** Return the message of an entry (`message=true`) as an element. Of the message log, a link leads to its queue. */
export function messageDrawer(entry, message) {
  if (message.outcome !== "shown") {
    return element("p", { class: "quiet drawer", "data-outcome": message.outcome }, `${WITHOUT[message.outcome] ?? message.outcome}: ${message.reason ?? ""}`);
  }
  const holder = element("div", {});
  // Where the body is no JSON, the first way to show it is what it is; the same way is not offered twice.
  const names = { ...TABS, json: FORM_NAMES[message.form] ?? TABS.json };
  const isRaw = message.form === "text" && message.body !== null && message.text === textOf(message.body, message.encoding);
  const isTwice = (tab) => tab !== "json" && (names[tab] === names.json || (tab === "raw" && isRaw));
  const tabs = Object.keys(TABS).filter((tab) => !isTwice(tab)).map((tab) => element(
    "button", { type: "button", class: "quiet-button", "data-tab": tab, on: { click: () => show(tab) } }, names[tab],
  ));
  const show = (tab) => {
    for (const button of tabs) button.setAttribute("aria-pressed", String(button.dataset.tab === tab));
    holder.replaceChildren(contentOf(message, tab));
  };
  show("json");
  const link = message.where?.startsWith("the message log") ? writeLink("messages", { topic: entry.topic, queue_id: entry.queue_id, offset: entry.offset }) : null;
  const said = [
    link ? null : message.where, message.reason, message.decoded.length ? `decoded: ${message.decoded.join(", ")}` : null,
    message.masked.length ? `masked: ${message.masked.join(", ")}` : null,
  ].filter(Boolean);
  const parts = [message.key === null ? null : ["key", message.key], ...message.headers.map(({ name, value }) => [name, value])].filter(Boolean);
  return element(
    "div", { class: "drawer", "data-outcome": "shown" },
    element(
      "div", { class: "drawer-head" }, tabs,
      element("button", { type: "button", class: "quiet-button", on: { click: (event) => copyText(event.currentTarget, holder.textContent) } }, "Copy"),
      link ? element("a", { href: link }, "In its queue") : null,
      element("span", { class: "quiet" }, said.join(" · ")),
    ),
    parts.length ? element("p", { class: "quiet code" }, parts.map(([name, value]) => `${name}: ${textOf(value, message.encoding)}`).join(" · ")) : null,
    holder,
  );
}

function contentOf(message, tab) {
  if (message.body === null) return element("span", { class: "quiet" }, "no value");
  if (tab === "json" && message.text !== null) return bodyView(new TextEncoder().encode(message.text), message.form === "json" ? "json" : "text");
  const isHex = tab === "hex" || (tab === "json" && message.form === "binary");
  return bodyView(bytesOf(message.body, message.encoding), isHex ? "hex" : "text");
}

function textOf(value, encoding) {
  return new TextDecoder().decode(bytesOf(value, encoding));
}
