// The message itself under each found entry, where the service keeps messages: one request an entry, a few at a
// time, and no word where there is no log.

import { ApiError, get } from "./api.js";
import { element } from "./dom.js";
import { writeLink } from "./link.js";
import { bodyView, bytesOf } from "./message_body.js";

const AT_ONCE = 4;
let hasLog = null; // of this service: not known yet

/** Put the message of each entry below its row in `table`; `query` says by what they were found. */
export async function showMessages(table, entries, query) {
  if (hasLog === false) return;
  const rows = [...table.querySelectorAll("tbody tr")];
  const waiting = entries.map((entry, place) => ({ entry, row: rows[place] }));
  const work = async () => {
    for (let next = waiting.shift(); next && hasLog !== false && table.isConnected; next = waiting.shift()) {
      await showMessage(next.row, next.entry, query);
    }
  };
  await showFirst(waiting, query);
  await Promise.all(Array.from({ length: AT_ONCE }, work));
}

/** Show the first message alone: it tells whether there is a log at all. */
async function showFirst(waiting, query) {
  const first = waiting.shift();
  if (first) await showMessage(first.row, first.entry, query);
}

async function showMessage(row, entry, query) {
  if (entry.queue_id === null || entry.offset === null) return;
  const place = { topic: entry.topic, queue_id: entry.queue_id, offset: entry.offset };
  try {
    const { messages, missing } = await get("v1/messages", { ...place, max_count: 1, encoding: "base64" });
    hasLog = true;
    row.after(element("tr", { class: "message-of" }, element("td", { colspan: row.children.length }, content(messages[0], missing, entry, query))));
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    if (error.status === 404) hasLog = false;
    else row.after(element("tr", { class: "message-of" }, element("td", { colspan: row.children.length }, error.message)));
  }
}

function content(message, missing, entry, query) {
  if (missing.length) return `The message cannot be read: ${missing[0].file}: ${missing[0].reason}`;
  const isIt = message && String(message.offset) === String(entry.offset)
    && (query.message_id ? message.message_id === query.message_id : message.keys.includes(query.key));
  if (!isIt) return element("span", { class: "quiet" }, "This service's log does not hold the message.");
  const link = writeLink("messages", { topic: entry.topic, queue_id: entry.queue_id, offset: entry.offset });
  return [bodyView(bytesOf(message.body, message.encoding), "json"), element("a", { href: link }, "In its queue")];
}
