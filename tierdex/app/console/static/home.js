// The home page, under an empty form: the topics, how many keys each has, over which times, and one of them to try.
//
// An example is a key of the newest message of a topic's first queue, so there are examples where there is a log.

import { ApiError, NewestRequest } from "./api.js";
import { asFirstCommand } from "./copy_menu.js";
import { byId, element, shape } from "./dom.js";
import { formatCount, plural } from "./format.js";
import { offerFirst } from "./keyboard.js";
import { writeLink, writeQuery } from "./link.js";
import { formatTime, zoneName } from "./times.js";

const SHOWN = 50;
const EXAMPLES = 20; // two small requests each

export class Home {
  #request = new NewestRequest();

  constructor({ zone, access, wantKey }) {
    Object.assign(this, { zone, access, wantKey, topics: null, examples: new Map(), isOpen: false, isWhole: false });
  }

  async open() {
    this.isOpen = true;
    byId("home").hidden = false;
    try {
      const { details } = await this.#request.get("v1/topics", { details: "true" });
      this.topics = details;
      byId("topics").replaceChildren(...details.map(({ topic }) => element("option", { value: topic })));
      this.draw();
      if (this.access().log) await this.#findExamples();
    } catch (error) {
      if (error.name === "AbortError") return;
      if (!(error instanceof ApiError)) throw error;
      byId("home").replaceChildren(element("p", { class: "note bad", role: "alert" }, error.message));
      this.wantKey(error);
    }
  }

  close() {
    this.isOpen = false;
    this.#request.end();
    byId("home").hidden = true;
  }

  draw() {
    if (!this.isOpen || !this.topics) return;
    byId("home").replaceChildren(...(this.topics.length ? this.#table() : [nothingYet(this.access())]));
    offerFirst(byId("home").querySelectorAll("tbody tr"));
  }

  async #findExamples() {
    for (const { topic } of this.topics.slice(0, EXAMPLES)) {
      if (this.examples.has(topic)) continue;
      const { queues } = await this.#request.get("v1/queues", { topic, max_count: 1 });
      if (!queues.length) continue;
      const [{ queue_id, end_offset: end }] = queues;
      this.examples.set(topic, await this.#exampleOf({ topic, queue_id, offset: BigInt(end) - 1n, max_count: 1 }));
    }
    this.draw();
  }

  /** Return a key of a message; null where there is none, or the key of the API may not see messages of the topic. */
  async #exampleOf(place) {
    try {
      const { messages } = await this.#request.get("v1/messages", place);
      return messages[0]?.keys[0] ?? null;
    } catch (error) {
      if (error instanceof ApiError && error.status === 403) return null;
      throw error;
    }
  }

  #table() {
    const { topics } = this;
    const zone = this.zone();
    const shown = this.isWhole ? topics : topics.slice(0, SHOWN);
    const times = topics.flatMap(({ min_time: first, max_time: last }) => (first === null ? [] : [Number(first), Number(last)]));
    const range = [times.reduce((a, b) => Math.min(a, b), Infinity), times.reduce((a, b) => Math.max(a, b), -Infinity)];
    const hasExamples = topics.some(({ topic }) => this.examples.get(topic));
    const titles = [["Topic"], ["Keys", "number"], ...(hasExamples ? [["For example"]] : []), ["First entry"], ["Last entry"], ["", "wide bar-cell"]];
    const head = titles.map(([title, kind]) => element(
      "th", { scope: "col", class: kind }, title, title.endsWith("entry") ? element("small", { class: "wide" }, ` ${zoneName(zone)}`) : null,
    ));
    const showAll = () => {
      this.isWhole = true;
      this.draw();
    };
    return [
      element("div", { class: "answer-head" }, element("h2", { id: "home-title" }, plural(topics.length, "topic")), element("span", { class: "quiet" }, "what can be looked up here")),
      element("div", { class: "table-scroll panel", tabindex: "0", role: "region", "aria-labelledby": "home-title" }, element(
        "table", { id: "home-topics" }, element("thead", {}, element("tr", {}, head)),
        element("tbody", {}, shown.map((topic) => this.#row(topic, range, hasExamples))),
      )),
      ...(shown.length < topics.length ? [element("button", { type: "button", on: { click: showAll } }, `Show all ${formatCount(topics.length)}`)] : []),
    ];
  }

  #row(info, range, hasExamples) {
    const zone = this.zone();
    const key = this.examples.get(info.topic);
    const moment = (time) => {
      if (time === null) return element("td", {}, "–");
      const written = formatTime(time, zone).slice(0, 19);
      return element("td", { class: "code", title: `${time} ms` }, written.slice(0, 10), element("span", { class: "wide" }, written.slice(10)));
    };
    return element(
      "tr", {},
      element("th", { scope: "row" }, element("a", { href: writeLink("lookup", { topic: info.topic }), class: "code" }, info.topic)),
      element("td", { class: "number code", title: countInWords(info) }, counted(info)),
      hasExamples ? element("td", {}, key ? element("a", { href: writeQuery({ topic: info.topic, key }), class: "code" }, key) : null) : null,
      moment(info.min_time), moment(info.max_time),
      element("td", { class: "wide bar-cell", "aria-hidden": "true" }, info.min_time === null ? null : spanBar(info, range)),
    );
  }
}

/** Return how many keys and IDs a topic has, as far as its files tell. */
function counted({ item_count: known, uncounted }) {
  if (!BigInt(uncounted)) return formatCount(known);
  const most = formatCount(BigInt(known) + BigInt(uncounted));
  return BigInt(known) ? `${formatCount(known)} to ${most}` : `up to ${most}`;
}

function countInWords({ item_count: counted, uncounted, files }) {
  const more = BigInt(uncounted) ? `, and at most ${formatCount(uncounted)} more in files that do not count by topic` : "";
  return `${formatCount(counted)} keys and message IDs${more}; ${plural(files, "file")}`;
}

function spanBar({ min_time: first, max_time: last }, [begin, end]) {
  const x = (time) => ((Number(time) - begin) / (end - begin || 1)) * 1000;
  return shape(
    "svg", { class: "bar", viewBox: "0 0 1000 10", preserveAspectRatio: "none" },
    shape("rect", { class: "bar-track", width: 1000, height: 10 }),
    shape("rect", { "data-outcome": "read", x: Math.min(x(first), 994), y: 2, height: 6, width: Math.max(x(last) - x(first), 6) }),
  );
}

function nothingYet(access) {
  return element("p", { class: "note" }, "No topics: nothing has been put here yet, or nothing of it can be read. To begin, try ", element("code", {}, asFirstCommand(access)), ", or see ", element("a", { href: "docs" }, "the HTTP API"), ".");
}
