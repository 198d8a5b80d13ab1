// The messages view: one queue, a page at a time, or its tail as it grows. The fragment is the truth:
// `#messages?topic=…&queue_id=…&offset=…&form=…`; `begin` instead of `offset` is the first message of a time, and
// without both it is the end of the queue. Without a queue the topic's queues are shown, without a topic the topics.
//
// Messages stand in order of offsets, the newest last. While the tail is followed, one request at a time waits
// for more at the end; leaving the view, or any other question, ends it.

import { ApiError, NewestRequest, get } from "./api.js";
import { byId, element, redraw, showFieldError, showNote } from "./dom.js";
import { formatBytes, formatCount, plural } from "./format.js";
import { offerFirst } from "./keyboard.js";
import { readLink, writeLink } from "./link.js";
import { FORMS, bodyView, bytesOf } from "./message_body.js";
import { queueList, topicList } from "./queue_list.js";
import { TimeField, momentsOf } from "./time_field.js";
import { formatTime, zoneName } from "./times.js";

const PAGE = 50;
const OFFERED = 100; // queues: who has more types a number
const TAIL_ROWS_MAX = 1000;
const WAIT_MS = 20_000;
const PAUSE_MS = 2_000; // after an error
const FIELDS = { topic: "queue-topic", queue_id: "queue-id", offset: "queue-offset", timestamp: "queue-begin" };
const NUMBERS = { queue_id: /^\d{1,10}$/, offset: /^\d{0,19}$/ };

export class MessagesView {
  #request = new NewestRequest();
  #pause = null;

  constructor({ zone, wantKey }) {
    Object.assign(this, { zone, wantKey, shown: null, isOpen: false });
    this.begin = new TimeField({ holder: byId("queue-times"), id: "queue-begin", label: "Or from a time", zone });
    byId("queue-form").addEventListener("submit", (event) => this.#submit(event));
    byId("queue-topic").addEventListener("change", () => this.#offerQueues());
    byId("body-form").addEventListener("change", () => this.#draw());
    byId("queue-older").addEventListener("click", () => this.shown && this.#go(this.#olderThan(BigInt(this.shown.first))));
    byId("queue-newer").addEventListener("click", () => this.shown && this.#go(BigInt(this.shown.next)));
    byId("queue-newest").addEventListener("click", () => this.#go(null));
    byId("queue-tail").addEventListener("change", () => this.#follow());
  }

  /** Show the queue that a link names. */
  async open(parameters) {
    this.close();
    this.isOpen = true;
    for (const [name, id] of Object.entries(FIELDS)) byId(id).value = parameters[name] ?? "";
    this.begin.write(parameters.begin ?? "", "utc");
    if (FORMS.includes(parameters.form)) byId("body-form").value = parameters.form;
    byId("queue-tail").checked = parameters.tail === "1";
    this.shown = null;
    this.#clearErrors();
    byId("queue-view").replaceChildren();
    this.#offerTopics();
    if (parameters.topic && parameters.queue_id) await this.#load(parameters.offset ?? null, momentsOf(parameters).begin);
    else await this.#list(parameters.topic);
    if (!this.shown) byId("queue-pages").hidden = true; // until then the focus stays on them
  }

  /** End what is under way. */
  close() {
    this.isOpen = false;
    clearTimeout(this.#pause);
    this.#request.end();
  }

  zoneChanged(before) {
    this.begin.zoneChanged(before);
    this.#draw();
  }

  #submit(event) {
    event.preventDefault();
    this.#go(byId("queue-offset").value.trim() || null, this.begin.text);
  }

  /** Go to an offset, or a time, null for the end: by the address, so that it can be sent and gone back to. */
  #go(offset, begin = "") {
    this.#clearErrors();
    const queue = { topic: byId("queue-topic").value, queue_id: byId("queue-id").value.trim() || "0" };
    const fault = this.#faultOf({ ...queue, offset: String(offset ?? ""), begin });
    if (fault) {
      const [input, message] = fault;
      input.focus();
      showFieldError(input, message);
      return;
    }
    const isTail = byId("queue-tail").checked && offset === null && !begin;
    const link = writeLink("messages", {
      ...queue, offset, begin: begin && this.begin.value(), form: byId("body-form").value, tail: isTail ? "1" : null,
    });
    if (location.hash === link) this.open(readLink(link).parameters);
    else location.hash = link; // the hashchange shows it
  }

  #olderThan(first) {
    return first > BigInt(PAGE) ? first - BigInt(PAGE) : 0n;
  }

  /** Return the field that is wrong, and what is wrong with it. */
  #faultOf({ topic, queue_id: queueId, offset, begin }) {
    if (!topic) return [byId("queue-topic"), "Enter a topic."];
    if (!NUMBERS.queue_id.test(queueId)) return [byId("queue-id"), "A whole number from 0."];
    if (!NUMBERS.offset.test(offset)) return [byId("queue-offset"), "A whole number from 0; nothing: the end."];
    if (offset && begin) return [byId("queue-begin"), "An offset or a time, not both."];
    try {
      this.begin.moment();
      return null;
    } catch (error) {
      return [byId("queue-begin"), error.message];
    }
  }

  /** Show what there is to read: the queues of a topic, or the topics. */
  async #list(topic) {
    await this.#try(async () => {
      byId("queue-view").replaceChildren(await (topic ? queueList(this.#request, topic) : topicList(this.#request)));
    });
  }

  /** Show messages from an offset, or from a time on; null: the newest. */
  async #load(offset, begin) {
    await this.#try(async () => {
      const queue = { topic: byId("queue-topic").value, queue_id: byId("queue-id").value };
      let from = offset;
      if (from === null && begin) {
        from = (await this.#request.get("v1/offsets", { ...queue, timestamp: begin })).offset;
      } else if (from === null) {
        const { end_offsets: ends } = await this.#request.get("v1/offsets", queue);
        from = this.#olderThan(BigInt(ends.disk));
      }
      const answer = await this.#request.get("v1/messages", { ...queue, offset: from, max_count: PAGE, encoding: "base64" });
      this.shown = { queue, answer, messages: answer.messages, first: answer.first_offset, next: answer.next_offset };
      this.#draw();
      if (byId("queue-tail").checked) this.#follow();
    });
  }

  /** Run a request's work; show what the service refuses. */
  async #try(work) {
    try {
      await work();
      this.#clearErrors();
      return true;
    } catch (error) {
      if (error.name === "AbortError") return false;
      if (!(error instanceof ApiError)) throw error;
      if (error.field in FIELDS) showFieldError(byId(FIELDS[error.field]), error.message);
      else showNote(byId("queue-note"), error.message);
      this.wantKey(error);
      return false;
    }
  }

  #clearErrors() {
    showNote(byId("queue-note"), null);
    for (const id of Object.values(FIELDS)) showFieldError(byId(id), null);
  }

  /** Wait for more at the end of what is shown, for as long as the box is ticked. */
  async #follow() {
    clearTimeout(this.#pause);
    if (!byId("queue-tail").checked || !this.shown || !this.isOpen) {
      this.#request.end();
      return;
    }
    const wanted = { ...this.shown.queue, offset: this.shown.next, max_count: PAGE, encoding: "base64", wait_ms: WAIT_MS };
    const isWell = await this.#try(async () => {
      const answer = await this.#request.get("v1/messages", wanted);
      const messages = [...this.shown.messages, ...answer.messages].slice(-TAIL_ROWS_MAX);
      const first = messages.length ? messages[0].offset : answer.first_offset;
      this.shown = { ...this.shown, answer, messages, first, next: answer.next_offset };
      this.#draw();
      if (answer.messages.length) byId("queue-view").lastElementChild.scrollIntoView({ block: "end" });
    });
    if (this.isOpen) this.#pause = setTimeout(() => this.#follow(), isWell ? 0 : PAUSE_MS);
  }

  #draw() {
    byId("queue-pages").hidden = !this.shown;
    if (!this.shown) return;
    const { answer, messages, first, next } = this.shown;
    byId("queue-older").disabled = BigInt(first) <= BigInt(answer.begin_offset);
    byId("queue-newer").disabled = BigInt(next) >= BigInt(answer.end_offset);
    redraw(byId("queue-view"), ...[this.#head(), missingNote(answer), messages.length ? this.#table(messages) : null].filter(Boolean));
    offerFirst(byId("queue-view").querySelectorAll("tbody tr"));
  }

  #head() {
    const { answer, messages } = this.shown;
    const held = `the queue holds offsets ${formatCount(answer.begin_offset)} to below ${formatCount(answer.end_offset)}`;
    const begun = answer.from_begin ? "What was asked for is no longer there: from the begin. " : "";
    const what = messages.length ? plural(messages.length, "message") : "No message";
    return element("div", { class: "answer-head" }, element("h2", {}, what), element("span", { class: "quiet" }, `${begun}${held}`));
  }

  #table(messages) {
    const form = byId("body-form").value;
    const zone = this.zone();
    const rows = messages.map((message) => messageRow(message, form, zone));
    const head = ["Offset", "Time", "Keys and headers", "Body"].map((title, place) => element(
      "th", { scope: "col", class: place === 0 ? "number" : null }, title,
      place === 1 ? element("small", {}, ` ${zoneName(zone)}`) : null,
    ));
    return element(
      "div", { class: "panel messages", id: "queue-table", tabindex: "0", role: "region", "aria-label": "Messages" },
      element("table", { id: "messages" }, element("thead", {}, element("tr", {}, head)), element("tbody", {}, rows)),
    );
  }

  async #offerTopics() {
    await offer("queue-topics", async () => (await get("v1/queues")).topics);
    if (byId("queue-topic").value) await this.#offerQueues();
  }

  #offerQueues() {
    const topic = byId("queue-topic").value;
    return offer("queue-ids", async () => (await get("v1/queues", { topic, max_count: OFFERED })).queues.map((queue) => queue.queue_id));
  }
}

/** Fill a list of suggestions; where the service refuses, the view's own request says why. */
async function offer(listId, values) {
  try {
    byId(listId).replaceChildren(...(await values()).map((value) => element("option", { value })));
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
  }
}

function messageRow(message, form, zone) {
  const bytes = bytesOf(message.body, message.encoding);
  return element(
    "tr", { "data-offset": message.offset },
    element("td", { class: "number code" }, formatCount(message.offset)),
    element("td", { class: "code", title: `${message.timestamp} ms` }, formatTime(message.timestamp, zone)),
    element("td", {}, extrasOf(message)),
    element("td", { class: "body-cell", title: formatBytes(bytes.length) }, bodyView(bytes, form)),
  );
}

function extrasOf(message) {
  const decoder = new TextDecoder();
  const link = (key) => element("a", { href: writeLink("lookup", { topic: message.topic, key }), class: "code" }, key);
  return [
    ...message.keys.map((key) => element("div", {}, link(key))),
    message.message_id === null ? null : element("div", { class: "code quiet" }, message.message_id),
    ...message.headers.map(({ name, value }) => element("div", { class: "code quiet" }, `${name}: ${decoder.decode(bytesOf(value, message.encoding))}`)),
  ];
}

function missingNote(answer) {
  if (answer.complete) return null;
  const lines = answer.missing.map(({ file, reason }) => element("li", {}, element("code", {}, String(file)), `: ${reason}`));
  return element(
    "div", { class: "note warn", role: "status" },
    element("strong", {}, `Incomplete: offset ${formatCount(answer.next_offset)} could not be read`), element("ul", {}, lines),
  );
}
