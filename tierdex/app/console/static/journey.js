// The journey view: one key over all topics, on a time line, messages side by side, the time between them. The
// fragment is the truth: `#journey?key=…&begin=…&end=…`.

import { ApiError, NewestRequest } from "./api.js";
import { byId, element, showFieldError, showNote } from "./dom.js";
import { exportMenu } from "./export.js";
import { formatSpan, plural } from "./format.js";
import { offerFirst } from "./keyboard.js";
import { readLink, writeLink } from "./link.js";
import { messageDrawer } from "./message_drawer.js";
import { nothingFound } from "./nothing_found.js";
import { completenessBanner } from "./results.js";
import { ticksBelow } from "./time_axis.js";
import { TimeField, momentsOf, readRange } from "./time_field.js";
import { formatTime, zoneName } from "./times.js";

const INPUTS = { key: "journey-key", begin: "journey-begin", end: "journey-end" };

export class JourneyView {
  #request = new NewestRequest();

  constructor({ zone, wantKey }) {
    Object.assign(this, { zone, wantKey, found: null });
    const holder = byId("journey-times");
    this.times = {
      begin: new TimeField({ holder, id: INPUTS.begin, label: "From", zone }),
      end: new TimeField({ holder, id: INPUTS.end, label: "To", isEnd: true, zone }),
    };
    byId("journey-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#submit();
    });
  }

  /** Show the journey of the key that a link names. */
  async open({ key, begin, end }) {
    this.close();
    byId("journey-key").value = key ?? "";
    this.times.begin.write(begin ?? "", "utc");
    this.times.end.write(end ?? "", "utc");
    byId("journey-answer").replaceChildren();
    this.#clearErrors();
    if (!key) {
      byId("journey-answer").replaceChildren(element("p", { class: "note" }, "A journey is what one key went through: its messages in every topic, in order of time, and how long each step took."));
      return;
    }
    byId("journey-answer").replaceChildren(element("p", { class: "quiet" }, "Looking up …"));
    try {
      this.asked = { key, ...momentsOf({ begin, end }) };
      this.found = await this.#ask(this.asked);
    } catch (error) {
      if (error.name === "AbortError") return;
      if (!(error instanceof ApiError)) throw error;
      byId("journey-answer").replaceChildren();
      this.#refuse(error.field, error.message);
      this.wantKey(error);
      return;
    }
    this.#draw();
  }

  #submit() {
    this.#clearErrors();
    const faults = [];
    const asked = { key: byId("journey-key").value, ...readRange(this.times, (...fault) => faults.push(fault)) };
    if (!asked.key) faults.unshift(["key", "Enter a key."]);
    for (const [name, message] of faults) this.#refuse(name, message);
    if (faults.length) {
      this.close();
      byId("journey-answer").replaceChildren();
      byId(INPUTS[faults[0][0]]).focus();
      return;
    }
    const link = writeLink("journey", asked);
    if (location.hash === link) this.open(readLink(link).parameters);
    else location.hash = link; // the hashchange shows it
  }

  /** Show an error at the field that it is about, else below the form. */
  #refuse(field, message) {
    if (field in INPUTS) showFieldError(byId(INPUTS[field]), message);
    else showNote(byId("journey-note"), message);
  }

  #clearErrors() {
    showNote(byId("journey-note"), null);
    for (const id of Object.values(INPUTS)) showFieldError(byId(id), null);
  }

  close() {
    this.found = null;
    this.#request.end();
  }

  zoneChanged(before) {
    for (const field of Object.values(this.times)) field.zoneChanged(before);
    this.#draw();
  }

  /** Ask with messages; without them where this service, or this key, does not show any. */
  async #ask(asked) {
    try {
      return await this.#request.get("v1/journeys", { ...asked, message: "true" });
    } catch (error) {
      if (!(error instanceof ApiError) || ![403, 404].includes(error.status)) throw error;
      return this.#request.get("v1/journeys", asked);
    }
  }

  #draw() {
    if (this.found === null) return;
    const { entries, duration_ms: duration, topics, by_arrival: byArrival = [] } = this.found;
    const more = this.found.more.filter((topic) => !byArrival.includes(topic));
    byId("journey-answer").replaceChildren(
      entries.length ? completenessBanner(this.found, this.zone()) : nothingFound({ ...this.asked, topic: null }, this.found, this.zone()),
      element(
        "div", { class: "answer-head" },
        element("h2", {}, entries.length ? `${plural(entries.length, "message")} in ${formatSpan(duration)}` : "No message"),
        element("span", { class: "quiet" }, `${plural(topics, "topic")} asked${more.length ? `; older ones in ${more.join(", ")}` : ""}`),
        entries.length ? exportMenu("journey", () => this.found) : null,
      ),
      ...(byArrival.length ? [element(
        "p", { class: "note warn", role: "status" },
        `Newest arrivals of very many entries: newer ones may be left out in ${byArrival.join(", ")}. Narrow the times.`,
      )] : []),
      ...(entries.length > 1 ? [lines(entries, Number(duration), this.zone())] : []),
      element("ol", { class: "journey" }, entries.map((entry, number) => card(entry, number, this.zone()))),
    );
    offerFirst(byId("journey-answer").querySelectorAll(".journey > li"));
  }
}

function card(entry, number, zone) {
  const gap = entry.gap_ms === null ? null : element("p", { class: "gap" }, `+ ${formatSpan(entry.gap_ms)}`);
  const place = entry.queue_id === null ? entry.source ?? "" : `queue ${entry.queue_id}, offset ${entry.offset}`;
  return element(
    "li", { class: "panel", id: `stop-${number}`, tabindex: "-1" }, gap,
    element("strong", {}, entry.topic), " ", element("span", { class: "code" }, formatTime(entry.timestamp, zone)), ` ${zoneName(zone)}`,
    element("p", { class: "quiet" }, place), entry.message ? messageDrawer(entry, entry.message) : null,
  );
}

/** Return a line for each topic, the stops as far apart as their times are; a click goes to the card, as the arrow keys do. */
function lines(entries, duration, zone) {
  const first = Number(entries[0].timestamp);
  const stopsOf = (topic) => entries.flatMap((entry, number) => {
    if (entry.topic !== topic) return [];
    const since = Number(entry.timestamp) - first;
    const stop = element("span", { class: "stop", title: `${topic}: ${formatSpan(since)} after the first`, on: { click: () => byId(`stop-${number}`).focus() } });
    stop.style.left = `${(since / (duration || 1)) * 100}%`;
    return [stop];
  });
  const topics = [...new Set(entries.map(({ topic }) => topic))];
  return element(
    "div", { class: "journey-line panel", role: "img", "aria-label": "Messages over time, a line a topic" },
    topics.flatMap((topic) => [element("span", { class: "code wrap" }, topic), element("span", { class: "lane" }, stopsOf(topic))]),
    ...(duration ? [element("span"), ticksBelow(first, first + duration, zone)] : []),
  );
}
