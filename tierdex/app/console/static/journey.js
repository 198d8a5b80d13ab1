// The journey view: one key over all topics, on a time line, messages side by side, the time between them. The
// fragment is the truth: `#journey?key=…`.

import { ApiError, NewestRequest } from "./api.js";
import { byId, element, shape, showNote } from "./dom.js";
import { formatMilliseconds, plural } from "./format.js";
import { writeLink } from "./link.js";
import { writeJson } from "./lossless_json.js";
import { messageDrawer } from "./message_drawer.js";
import { completenessBanner } from "./results.js";
import { formatTime, zoneName } from "./times.js";

const WIDTH = 1000;
const UNITS = [["d", 86_400_000], ["h", 3_600_000], ["min", 60_000], ["s", 1000]];

export class JourneyView {
  #request = new NewestRequest();

  constructor({ zone, wantKey }) {
    Object.assign(this, { zone, wantKey, found: null });
    byId("journey-form").addEventListener("submit", (event) => {
      event.preventDefault();
      const link = writeLink("journey", { key: byId("journey-key").value });
      if (location.hash === link) this.open({ key: byId("journey-key").value });
      else location.hash = link;
    });
  }

  /** Show the journey of the key that a link names. */
  async open({ key }) {
    this.close();
    byId("journey-key").value = key ?? "";
    byId("journey-answer").replaceChildren();
    showNote(byId("journey-note"), null);
    if (!key) return;
    try {
      this.found = await this.#ask(key);
    } catch (error) {
      if (error.name === "AbortError") return;
      if (!(error instanceof ApiError)) throw error;
      showNote(byId("journey-note"), error.message);
      this.wantKey(error);
      return;
    }
    this.#draw();
  }

  close() {
    this.found = null;
    this.#request.end();
  }

  zoneChanged() {
    this.#draw();
  }

  /** Ask with messages; without them where this service, or this key, does not show any. */
  async #ask(key) {
    try {
      return await this.#request.get("v1/journeys", { key, message: "true" });
    } catch (error) {
      if (!(error instanceof ApiError) || ![403, 404].includes(error.status)) throw error;
      return this.#request.get("v1/journeys", { key });
    }
  }

  #draw() {
    if (this.found === null) return;
    const { entries, duration_ms: duration, topics, more } = this.found;
    const save = element("button", { type: "button", class: "quiet-button", on: { click: () => download(this.found) } }, "Save as JSON");
    byId("journey-answer").replaceChildren(
      completenessBanner(this.found, this.zone()),
      element(
        "div", { class: "answer-head" },
        element("h2", {}, entries.length ? `${plural(entries.length, "message")} in ${formatSpan(duration)}` : "No message"),
        element("span", { class: "quiet" }, `${plural(topics, "topic")} asked${more.length ? `; older ones in ${more.join(", ")}` : ""}`), save,
      ),
      ...(entries.length > 1 ? [line(entries, Number(duration))] : []),
      element("ol", { class: "journey" }, entries.map((entry, number) => card(entry, number, this.zone()))),
    );
  }
}

function download(found) {
  const href = URL.createObjectURL(new Blob([writeJson(found)], { type: "application/json" }));
  element("a", { download: "journey.json", href }).click();
  URL.revokeObjectURL(href);
}

/** Return a span of time in its two greatest units. */
export function formatSpan(milliseconds) {
  let rest = Number(milliseconds);
  if (rest < 60_000) return formatMilliseconds(rest);
  const parts = [];
  for (const [unit, size] of UNITS) {
    const count = Math.floor(rest / size);
    rest -= count * size;
    if (count) parts.push(`${count} ${unit}`);
  }
  return parts.slice(0, 2).join(" ");
}

function card(entry, number, zone) {
  const gap = entry.gap_ms === null ? null : element("p", { class: "gap" }, `+ ${formatSpan(entry.gap_ms)}`);
  const place = entry.queue_id === null ? entry.source ?? "" : `queue ${entry.queue_id}, offset ${entry.offset}`;
  return element(
    "li", { class: "panel", id: `stop-${number}`, tabindex: "0" }, gap,
    element("strong", {}, entry.topic), " ", element("span", { class: "code" }, formatTime(entry.timestamp, zone)), ` ${zoneName(zone)}`,
    element("p", { class: "quiet" }, place), entry.message ? messageDrawer(entry.message) : null,
  );
}

/** Return the stops on a line, as far apart as their times are; a click goes to the card. */
function line(entries, duration) {
  const first = Number(entries[0].timestamp);
  const stops = entries.map((entry, number) => {
    const x = 10 + ((Number(entry.timestamp) - first) / (duration || 1)) * (WIDTH - 20);
    const stop = shape("circle", { cx: x, cy: 12, r: 6, class: "stop", on: { click: () => byId(`stop-${number}`).focus() } });
    stop.append(shape("title", {}, `${entry.topic}: ${formatSpan(Number(entry.timestamp) - first)} after the first`));
    return stop;
  });
  return shape("svg", { viewBox: `0 0 ${WIDTH} 24`, class: "journey-line", role: "img", "aria-label": "Messages over time" }, shape("line", { x1: 10, y1: 12, x2: WIDTH - 10, y2: 12 }), stops);
}
