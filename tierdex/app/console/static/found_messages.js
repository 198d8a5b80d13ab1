// The message under each found entry: the same lookup once more, with `message=true`, when the entries stand
// already. A service that shows no messages, or not to this key, leaves the entries as they are.

import { ApiError, get } from "./api.js";
import { element } from "./dom.js";
import { toggleMessage } from "./keyboard.js";
import { messageDrawer } from "./message_drawer.js";

/** Return {found, note}: the messages by the places of their entries; `parameters` are those that found them. */
export async function fetchMessages(parameters) {
  try {
    const { entries } = await get("v1/entries", { ...parameters, message: "true" });
    return { found: new Map(entries.map((entry) => [placeOf(entry), entry.message])), note: null };
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    const note = error.status === 403 ? "Messages need a key of the scope message." : null;
    return { found: new Map(), note };
  }
}

/** Put the messages below the rows of their entries in `table`, which has these entries in this order. */
export function drawMessages(table, entries, { found, note }) {
  if (!table.isConnected) return;
  if (note && !table.parentNode.querySelector(".message-note")) table.after(element("p", { class: "quiet message-note" }, note));
  const rows = [...table.querySelectorAll("tbody tr:not(.message-of)")];
  entries.forEach((entry, number) => {
    const message = found.get(placeOf(entry));
    if (message && !rows[number].nextElementSibling?.classList.contains("message-of")) addDrawer(rows[number], entry, message);
  });
}

function addDrawer(row, entry, message) {
  row.title = "Click, or Enter: shut or open the message";
  row.addEventListener("click", (event) => {
    if (!event.target.closest("a, button") && getSelection().isCollapsed) toggleMessage(row);
  });
  row.after(element("tr", { class: "message-of" }, element("td", { colspan: row.children.length }, messageDrawer(entry, message))));
}

/** Return an entry with its message, where that came. */
export function withMessage(entry, found) {
  const message = found.get(placeOf(entry));
  return message ? { ...entry, message } : entry;
}

function placeOf(entry) {
  return [entry.topic, entry.queue_id, entry.offset, entry.timestamp, entry.file_id, JSON.stringify(entry.location ?? null, (_, each) => (typeof each === "bigint" ? String(each) : each))].join("\n");
}
