// The files view: states as a legend that filters, the time line, and the chosen file's facts.

import { ApiError, get } from "./api.js";
import { byId, element, redraw } from "./dom.js";
import { formatAny, formatBytes, formatCount, formatMilliseconds, formatName, formatSpan, plural } from "./format.js";
import { writeLink } from "./link.js";
import { Polling } from "./polling.js";
import { stateBadge } from "./results.js";
import { Timeline, hasSpan, spanOfEntries, spanOfLife } from "./timeline.js";
import { formatTime, zoneName } from "./times.js";

const STATES = ["unsealed", "sealed", "compacted", "uploaded", "expired"];
const POLL_MS = 10_000;
const PAUSE_MS = 150; // the pointer may only pass by

export class FilesView {
  constructor({ zone, wantKey }) {
    this.zone = zone;
    this.files = [];
    this.hidden = new Set(); // states and kinds
    this.lives = new Map(); // what one file tells beyond the list, by file and state
    this.chosen = null; // the file whose facts are shown
    this.wantedId = null; // the link's file, until the files are there
    this.timeline = new Timeline({
      axis: byId("files-axis"), scroller: byId("files-chart"), zone, onChoose: (file) => this.#choose(file),
    });
    this.polling = new Polling({
      ask: (signal) => get("v1/admin/files", {}, signal), pauseMs: POLL_MS, note: byId("files-note"), zone, wantKey,
      onAnswer: ({ files }) => this.#show(files),
    });
    byId("files-refresh").addEventListener("click", () => this.polling.start());
    byId("files-fit").addEventListener("click", () => this.timeline.fit());
    byId("files-times").addEventListener("change", (event) => (
      this.timeline.showSpans(event.currentTarget.value === "life" ? spanOfLife : spanOfEntries)
    ));
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
      return own.length ? [this.#legendButton(state, own, stateBadge(state))] : [];
    });
    redraw(byId("files-legend"), ...buttons);
    const kinds = ["index", "log"].map((kind) => [kind, this.files.filter((file) => (file.kind ?? "index") === kind)]);
    const isOneKind = kinds.some(([, own]) => !own.length);
    redraw(byId("files-kinds"), ...(isOneKind ? [] : kinds.map(([kind, own]) => this.#legendButton(kind, own, kind))));
    this.timeline.show(this.files.filter((file) => !this.hidden.has(file.state) && !this.hidden.has(file.kind ?? "index")));
    this.#choose(this.timeline.files[this.timeline.chosen] ?? null);
  }

  #legendButton(state, own, name) {
    const items = own.reduce((sum, file) => sum + BigInt(file.item_count ?? 0), 0n);
    const bytes = own.reduce((sum, file) => sum + Number(file.bytes ?? 0), 0);
    const toggle = () => {
      if (!this.hidden.delete(state)) this.hidden.add(state);
      this.#draw();
    };
    return element(
      "button",
      { type: "button", id: `show-${state}`, "aria-pressed": String(!this.hidden.has(state)), title: `${formatCount(items)} items`, on: { click: toggle } },
      name, element("b", {}, formatCount(own.length)), element("span", { class: "quiet" }, formatBytes(bytes)),
    );
  }

  #choose(file) {
    this.chosen = file;
    redraw(byId("file-details"), ...(file ? this.#fileFacts(file) : this.#summary()));
    clearTimeout(this.asking);
    if (file && hasMoreToTell(file) && !this.lives.has(lifeId(file))) this.asking = setTimeout(() => this.#askLife(file), PAUSE_MS);
  }

  /** The list does not tell it: that takes requests to the store for each file. */
  async #askLife(file) {
    try {
      this.lives.set(lifeId(file), await get(`v1/admin/files/${encodeURIComponent(file.file_id)}`));
    } catch (error) {
      if (!(error instanceof ApiError)) throw error; // the list says all else
      return;
    }
    if (this.chosen?.file_id === file.file_id) redraw(byId("file-details"), ...this.#fileFacts(this.chosen));
  }

  #summary() {
    const items = this.files.reduce((sum, file) => sum + BigInt(file.item_count ?? 0), 0n);
    const bytes = this.files.reduce((sum, file) => sum + Number(file.bytes ?? 0), 0);
    const nodes = new Set(this.files.map((file) => file.node));
    if (!this.files.length) return [element("p", {}, "No files: nothing has been put here yet.")];
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
    const known = ["file_id", "state", "begin", "min_time", "max_time", "item_count", "slot_count", "bytes", "node", "sealed_at", "published_at", "compacted_at", "compaction_s", "kind"];
    const others = Object.keys(file).filter((name) => !known.includes(name) && file[name] !== null);
    return [
      element("h2", { class: "code wrap" }, String(file.file_id)),
      element("p", {}, stateBadge(String(file.state)), file.kind === "log" ? " · of the message log" : ""),
      life(file, hasMoreToTell(file) ? this.lives.get(lifeId(file)) : {}, moment),
      facts([
        ["First entry", time(file.min_time)],
        ["Last entry", time(file.max_time)],
        [file.kind === "log" ? "Messages" : "Items", formatCount(file.item_count)],
        ...(file.kind === "log" ? [] : [["Slots", formatCount(file.slot_count)]]),
        ["Bytes", formatBytes(file.bytes)],
        ["Bytes an item", Number(file.item_count) ? (Number(file.bytes) / Number(file.item_count)).toFixed(1) : "–"],
        ["Node", String(file.node)],
        ...others.map((name) => [formatName(name), name.endsWith("_at") ? moment(file[name]) : formatAny(file[name])]),
      ]),
      hasSpan(file)
        ? element("p", {}, element("a", { id: "file-range", href: writeLink("lookup", { begin: file.min_time, end: file.max_time }) }, "Look up in this time range"))
        : null,
    ].filter(Boolean);
  }
}

/** Say whether a file's own route tells when it was compacted, and published. */
function hasMoreToTell({ kind, state }) {
  return kind !== "log" && ["compacted", "uploaded"].includes(state);
}

function lifeId({ file_id: fileId, state }) {
  return `${fileId} ${state}`;
}

/** Return the steps of a file's life, with their times where they are kept, and the time between them; `told` is undefined until the file's own route has answered. */
function life(file, told, moment) {
  const reached = STATES.indexOf(file.state);
  const kept = (time) => (told === undefined ? undefined : time ?? null);
  const steps = [["born", file.begin], ["sealed", file.sealed_at ?? null], ["compacted", kept(told?.compacted_at)], ["uploaded", kept(told?.published_at)]];
  let before = null;
  return element("ol", { class: "life", "aria-label": "Life of the file" }, steps.map(([name, time], state) => {
    const since = before && time ? ` (+ ${formatSpan(Math.max(0, Number(time) - Number(before)))})` : "";
    before = time ?? before;
    const known = time ? `${moment(time)}${since}` : time === undefined ? "…" : "its time is not kept";
    const took = name === "compacted" && time && told.compaction_s !== null ? `, in ${formatMilliseconds(1000 * Number(told.compaction_s))}` : "";
    return element(
      "li", { class: reached >= state ? "is-reached" : null, "data-state": STATES[state] },
      element("b", {}, name), " ", element("span", { class: "quiet" }, reached < state ? "not yet" : `${known}${took}`),
    );
  }));
}

/** Return a definition list of [name, value] pairs. */
export function facts(pairs) {
  return element("dl", { class: "list" }, pairs.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
}

function newestFirst(one, other) {
  return one.file_id < other.file_id ? 1 : one.file_id > other.file_id ? -1 : 0;
}
