// The files view: states as a legend that filters, the time line, and the chosen file's facts.

import { ApiError, get } from "./api.js";
import { byId, element, showNote } from "./dom.js";
import { formatAny, formatBytes, formatCount, formatName, plural } from "./format.js";
import { writeLink } from "./link.js";
import { stateBadge } from "./results.js";
import { Timeline, hasSpan } from "./timeline.js";
import { formatTime, zoneName } from "./times.js";

const STATES = ["unsealed", "sealed", "compacted", "uploaded", "expired"];
const REFRESH_MS = 10_000;

export class FilesView {
  constructor({ zone, wantKey }) {
    this.zone = zone;
    this.wantKey = wantKey;
    this.files = [];
    this.hidden = new Set();
    this.timer = null;
    this.timeline = new Timeline({
      axis: byId("files-axis"), scroller: byId("files-chart"), zone, onChoose: (file) => this.#details(file),
    });
    byId("files-refresh").addEventListener("click", () => this.#load());
    byId("files-fit").addEventListener("click", () => this.timeline.fit());
  }

  /** Load and keep fresh while the view is open; `parameters.file` is chosen. */
  async open(parameters) {
    this.#details(null);
    await this.#load();
    if (parameters.file) this.timeline.choose(parameters.file);
    clearInterval(this.timer);
    this.timer = setInterval(() => document.hidden || this.#load(), REFRESH_MS);
  }

  close() {
    clearInterval(this.timer);
  }

  zoneChanged() {
    this.timeline.draw();
  }

  async #load() {
    try {
      const { files } = await get("v1/admin/files");
      this.files = files.sort(newestFirst);
      showNote(byId("files-note"), null);
      this.#draw();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      showNote(byId("files-note"), error.message);
      if (error.wantsKey) this.wantKey();
    }
  }

  #draw() {
    const states = [...STATES, ...new Set(this.files.map((file) => file.state))];
    const buttons = [...new Set(states)].flatMap((state) => {
      const own = this.files.filter((file) => file.state === state);
      return own.length ? [this.#legendButton(state, own)] : [];
    });
    byId("files-legend").replaceChildren(...buttons);
    this.timeline.show(this.files.filter((file) => !this.hidden.has(file.state)));
    if (this.timeline.chosen < 0) this.#details(null);
  }

  #legendButton(state, own) {
    const items = own.reduce((sum, file) => sum + BigInt(file.item_count ?? 0), 0n);
    const bytes = own.reduce((sum, file) => sum + Number(file.bytes ?? 0), 0);
    const toggle = () => {
      if (!this.hidden.delete(state)) this.hidden.add(state);
      this.#draw();
    };
    return element(
      "button",
      { type: "button", "aria-pressed": String(!this.hidden.has(state)), title: `${formatCount(items)} items`, on: { click: toggle } },
      stateBadge(state), element("b", {}, formatCount(own.length)), element("span", { class: "quiet" }, formatBytes(bytes)),
    );
  }

  #details(file) {
    byId("file-details").replaceChildren(...(file ? this.#fileFacts(file) : this.#summary()));
  }

  #summary() {
    const items = this.files.reduce((sum, file) => sum + BigInt(file.item_count ?? 0), 0n);
    const bytes = this.files.reduce((sum, file) => sum + Number(file.bytes ?? 0), 0);
    const nodes = new Set(this.files.map((file) => file.node));
    return [
      element("h2", {}, plural(this.files.length, "file")),
      facts([["Items", formatCount(items)], ["Bytes", formatBytes(bytes)], ["Nodes", formatAny([...nodes])]]),
      element("p", { class: "hint" }, "Point at a row, or walk with the arrow keys, for its facts."),
    ];
  }

  #fileFacts(file) {
    const zone = this.zone();
    const moment = (value) => `${formatTime(value, zone)} ${zoneName(zone)}`;
    const time = (value) => (hasSpan(file) ? moment(value) : "–");
    const known = ["file_id", "state", "begin", "min_time", "max_time", "item_count", "slot_count", "bytes", "node"];
    const others = Object.keys(file).filter((name) => !known.includes(name) && file[name] !== null);
    return [
      element("h2", { class: "code wrap" }, String(file.file_id)),
      element("p", {}, stateBadge(String(file.state))),
      facts([
        ["Begun", moment(file.begin)],
        ["First entry", time(file.min_time)],
        ["Last entry", time(file.max_time)],
        ["Items", formatCount(file.item_count)],
        ["Slots", formatCount(file.slot_count)],
        ["Bytes", formatBytes(file.bytes)],
        ["Bytes an item", Number(file.item_count) ? (Number(file.bytes) / Number(file.item_count)).toFixed(1) : "–"],
        ["Node", String(file.node)],
        ...others.map((name) => [formatName(name), name.endsWith("_at") ? moment(file[name]) : formatAny(file[name])]),
      ]),
      hasSpan(file)
        ? element("p", {}, element("a", { href: writeLink("lookup", { begin: file.min_time, end: file.max_time }) }, "Look up in this time range"))
        : null,
    ].filter(Boolean);
  }
}

/** Return a definition list of [name, value] pairs. */
export function facts(pairs) {
  return element("dl", { class: "list" }, pairs.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
}

function newestFirst(one, other) {
  return one.file_id < other.file_id ? 1 : one.file_id > other.file_id ? -1 : 0;
}
