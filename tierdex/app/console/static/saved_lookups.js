// Lookups that this browser keeps: links, the newest first. They never leave it.

import { byId, element } from "./dom.js";
import { readLink } from "./link.js";

const NAME = "tierdex-saved-lookups";
const MOST = 20;

/** Keep the lookup at this address. */
export function saveLookup(link) {
  write([link, ...read().filter((each) => each !== link)].slice(0, MOST));
}

/** Show the kept lookups as links, each with a button that forgets it. */
export function showSavedLookups() {
  byId("saved-lookups").replaceChildren(...read().map((link) => {
    const { parameters } = readLink(link);
    const name = parameters.message_id ?? `${parameters.topic} / ${parameters.key}`;
    const forget = () => write(read().filter((each) => each !== link));
    return element(
      "span", { class: "saved" }, element("a", { href: link }, name),
      element("button", { type: "button", class: "quiet-button", "aria-label": `Forget ${name}`, on: { click: forget } }, "×"),
    );
  }));
}

function read() {
  try {
    const kept = JSON.parse(localStorage.getItem(NAME) ?? "[]");
    return Array.isArray(kept) ? kept.filter((each) => typeof each === "string" && each.startsWith("#lookup?")) : [];
  } catch {
    return [];
  }
}

function write(links) {
  localStorage.setItem(NAME, JSON.stringify(links));
  showSavedLookups();
}
