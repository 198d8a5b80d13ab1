// What there is to read in a message log: its topics, or the queues of one, a page at a time however many there are.

import { element } from "./dom.js";
import { formatCount, plural } from "./format.js";
import { offerFirst } from "./keyboard.js";
import { writeLink } from "./link.js";

const PAGE = 100;

/** Return the log's topics as links to their queues. */
export async function topicList(request) {
  const { topics } = await request.get("v1/queues");
  if (!topics.length) return element("p", { class: "note" }, "No topics: the message log holds no message that you may see.");
  const shown = topics.slice(0, 10 * PAGE);
  const rows = shown.map((topic) => row([element("a", { href: writeLink("messages", { topic }), class: "code" }, topic)]));
  const rest = topics.length - shown.length;
  return table(plural(topics.length, "topic"), ["Topic"], rows, rest ? `${formatCount(rest)} more: type the topic's name.` : null);
}

/** Return a topic's queues as links to their newest messages. */
export async function queueList(request, topic) {
  const ask = (from) => request.get("v1/queues", { topic, from_queue_id: from, max_count: PAGE });
  const first = await ask(0);
  const list = table(`Queues of ${topic}`, ["Queue", "Begin", "End", "Messages"], first.queues.map((queue) => queueRow(topic, queue)));
  const addButton = (next) => {
    if (next === null) return;
    const more = element("button", { type: "button", on: { click: async () => {
      const page = await ask(next);
      const rows = page.queues.map((queue) => queueRow(topic, queue));
      list.querySelector("tbody").append(...rows);
      more.remove();
      addButton(page.next_queue_id);
      offerFirst(rows);
      rows[0]?.focus();
    } } }, `Queues from ${next} on`);
    list.append(more);
  };
  addButton(first.next_queue_id);
  return list;
}

function queueRow(topic, { queue_id: queueId, begin_offset: begin, end_offset: end }) {
  const link = element("a", { href: writeLink("messages", { topic, queue_id: queueId }), class: "code" }, String(queueId));
  return row([link, formatCount(begin), formatCount(end), formatCount(BigInt(end) - BigInt(begin))]);
}

function row([link, ...numbers]) {
  return element("tr", {}, element("th", { scope: "row" }, link), numbers.map((text) => element("td", { class: "number code" }, text)));
}

function table(title, heads, rows, note = null) {
  offerFirst(rows);
  return element(
    "div", {},
    element("div", { class: "answer-head" }, element("h2", { id: "queues-title" }, title)),
    element("div", { class: "table-scroll panel", tabindex: "0", role: "region", "aria-labelledby": "queues-title" }, element(
      "table", { id: "queues" },
      element("thead", {}, element("tr", {}, heads.map((head, place) => element("th", { scope: "col", class: place ? "number" : null }, head)))),
      element("tbody", {}, rows),
    )),
    note ? element("p", { class: "quiet" }, note) : null,
  );
}
