// The files view: states as a legend that filters, the time line, and the chosen file's facts.

import { byId, element } from "./dom.js";
import { formatAny, formatBytes, formatCount, formatName, plural } from "./format.js";
import { writeLink } from "./link.js";
import { Polling } from "./polling.js";
import { stateBadge } from "./results.js";
import { Timeline, hasSpan } from "./timeline.js";
import { formatTime, zoneName } from "./times.js";

const STATES = ["unsealed", "sealed", "compacted", "uploaded", "expired"];
const POLL_MS = 10_000;

export class FilesView {
  constructor({ zone, wantKey }) {
    this.zone = zone;
    this.files = [];
    this.hidden = new Set();
    this.chosen = null; // the file whose facts are shown
    this.wantedId = null; // the link's file, until the files are there
    this.timeline = new Timeline({
      axis: byId("files-axis"), scroller: byId("files-chart"), zone, onChoose: (file) => this.#choose(file),
    });
    this.polling = new Polling({
      path: "v1/admin/files", pauseMs: POLL_MS, note: byId("files-note"), zone, wantKey,
      onAnswer: ({ files }) => this.#show(files),
    });
    byId("files-refresh").addEventListener("click", () => this.polling.start());
    byId("files-fit").addEventListener("click", () => this.timeline.fit());
  }

  /** Load and keep fresh while the view is open; `parameters.file` is chosen. */
  open(parameters) {
    this.#choose(null);
    this.wantedId = parameters.file ?? null;
    return this.polling.start();
  }

  close() {
    this.polling.stop();
  }

  zoneChanged() {
    this.timeline.draw();
    this.#choose(this.chosen);
  }

  #show(files) {
    this.files = files.sort(newestFirst);
    this.#draw();
    if (this.wantedId !== null) this.timeline.choose(this.wantedId);
    this.wantedId = null;
  }

  #draw() {
    const states = [...STATES, ...new Set(this.files.map((file) => file.state))];
    const buttons = [...new Set(states)].flatMap((state) => {
      const own = this.files.filter((file) => file.state === state);
      return own.length ? [this.#legendButton(state, own)] : [];
    });
    byId("files-legend").replaceChildren(...buttons);
    this.timeline.show(this.files.filter((file) => !this.hidden.has(file.state)));
    this.#choose(this.timeline.files[this.timeline.chosen] ?? null);
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

  #choose(file) {
    this.chosen = file;
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
