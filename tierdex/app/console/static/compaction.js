// The compaction view: what runs, what waits, what went wrong. It asks every two seconds while it is open.

import { get } from "./api.js";
import { byId, element, redraw, shape } from "./dom.js";
import { facts } from "./files.js";
import { formatAge, formatAny, formatBytes, formatCount, formatName, shortFileId } from "./format.js";
import { Polling } from "./polling.js";
import { formatTime, zoneName } from "./times.js";

const POLL_MS = 2_000;
const HISTORY = 300; // answers kept for the curves: ten minutes

export class CompactionView {
  constructor({ zone, wantKey }) {
    this.zone = zone;
    this.history = [];
    this.polling = new Polling({
      ask: (signal) => get("v1/admin/compaction", {}, signal), pauseMs: POLL_MS, note: byId("compaction-note"), zone, wantKey,
      onAnswer: (status) => this.#show(status),
    });
  }

  open() {
    this.history = [];
    return this.polling.start();
  }

  close() {
    this.polling.stop();
  }

  zoneChanged() {
    if (this.status) this.#draw();
  }

  #show(status) {
    this.status = status;
    this.history = [...this.history, status].slice(-HISTORY);
    this.#draw();
  }

  #draw() {
    const { status } = this;
    const zone = this.zone();
    byId("compaction-age").textContent = `seen ${formatTime(this.polling.seenMs, zone).slice(11, 19)} ${zoneName(zone)}, every 2 s`;
    redraw(
      byId("compaction-body"), ...stopped(stoppedBy(status)), tiles(status, zone), ...running(jobsOf(status)), curves(this.history),
      ...partsOf(status).flatMap((part) => lastError(part, zone)), ...partsOf(status).map(totals),
    );
  }
}

/** Return [name, status] of the work on index files, and of that on the message log's: what there is of them. */
export function partsOf(status) {
  return [["index", status], ["message log", status.log]].filter(([, part]) => part?.totals);
}

/** Return the running jobs of both. */
export function jobsOf(status) {
  return [status, status.log].flatMap((part) => part?.jobs ?? [part?.running].filter(Boolean));
}

/** Return why background work has ended, null where it goes on. */
export function stoppedBy(status) {
  return status.worker_error ?? status.log?.worker_error ?? null;
}

function tiles(status, zone) {
  const parts = partsOf(status).map(([, part]) => part);
  const doneMs = parts.map((part) => Number(part.last_done_ms ?? 0)).reduce((a, b) => Math.max(a, b), 0);
  const age = Number(status.oldest_unpublished_age_s ?? 0);
  const list = [
    ["Waiting", formatCount(status.backlog_files), `files, ${formatBytes(status.backlog_bytes)}`],
    ["Oldest unpublished", status.oldest_unpublished_age_s === null ? "–" : formatAge(age), "age of its first entry here"],
    ["Last done", doneMs ? formatTime(doneMs, zone).slice(0, 19) : "–", doneMs ? zoneName(zone) : "nothing since the start"],
    ["State", parts.some(isRetrying) ? "retrying" : jobsOf(status).length ? "working" : "idle", parts.some((part) => part.last_error) ? "see the error below" : "no error"],
  ];
  return element("dl", { class: "facts panel" }, list.map(([name, value, more]) => element(
    "div", {}, element("dt", {}, name), element("dd", {}, value), element("dd", { class: "hint" }, more),
  )));
}

/** The background work itself has ended, which no retry mends. */
function stopped(error) {
  return error ? [element("p", { class: "note bad", role: "alert" }, element("strong", {}, "The compactor has stopped: "), formatAny(error))] : [];
}

/** Say whether the last error is newer than the last success: then its job waits for its next attempt. */
function isRetrying({ last_error: error, last_done_ms: doneMs }) {
  return Boolean(error) && Number(error.at_ms ?? Infinity) >= Number(doneMs ?? 0);
}

function running(jobs) {
  return jobs.length ? jobs.map(runningJob) : [element("p", { class: "panel quiet" }, "Nothing is running.")];
}

function runningJob(job, place) {
  const done = Number(job.done_items ?? 0);
  const total = Number(job.total_items ?? 0);
  const rate = Number(job.rate_items_s ?? 0);
  const share = total ? done / total : 0;
  const left = rate > 0 && total > done ? `, about ${formatAge((total - done) / rate)} left` : "";
  return element(
    "section", { class: "panel", "aria-labelledby": `job-${place}` },
    element(
      "div", { class: "answer-head" },
      element("h2", { id: `job-${place}` }, [...new Set([job.job, job.stage])].filter(Boolean).join(": ")),
      element("span", { class: "code quiet", title: String(job.file_id) }, shortFileId(job.file_id ?? "")),
    ),
    element("progress", { max: 1, value: share, "aria-labelledby": `job-${place}` }),
    element(
      "p", {}, element("b", {}, `${(share * 100).toFixed(1)} %`),
      ` · ${formatCount(done)} of ${formatCount(total)} items · ${formatBytes(job.done_bytes)} · ${formatCount(Math.round(rate))} items/s${left}`,
    ),
  );
}

function lastError([name, status], zone) {
  const error = status.last_error;
  if (!error) return [];
  const title = `Last error (${name}): ${isRetrying(status) ? "it is tried again, nothing is dropped" : "work went on since"}`;
  const pairs = typeof error === "object" ? Object.entries(error) : [["message", error]];
  return [element(
    "section", { class: `note ${isRetrying(status) ? "warn" : ""}`, "aria-label": title },
    element("h2", {}, title),
    facts(pairs.map(([name, value]) => [
      formatName(name.replace(/_ms$/, "")), name.endsWith("_ms") ? `${formatTime(value, zone)} ${zoneName(zone)}` : formatAny(value),
    ])),
  )];
}

function totals([part, status]) {
  const title = `Since the start: ${part}`;
  return element(
    "section", { class: "panel", "aria-label": title },
    element("h2", {}, title),
    element("dl", { class: "facts" }, Object.entries(status.totals).map(([name, value]) => element(
      "div", {}, element("dt", {}, formatName(name)),
      element("dd", {}, name.includes("bytes") ? formatBytes(value) : formatCount(value)),
    ))),
  );
}

/** Draw the backlog and the rate since the view was opened. */
function curves(history) {
  const backlog = history.map((status) => Number(status.backlog_files ?? 0));
  const rate = history.map((status) => jobsOf(status).reduce((sum, job) => sum + Number(job.rate_items_s ?? 0), 0));
  return element(
    "div", { class: "curves" },
    curve("Files waiting", backlog, (value) => formatCount(value)),
    curve("Items a second", rate, (value) => formatCount(Math.round(value))),
  );
}

function curve(title, values, format) {
  const most = Math.max(...values, 1);
  const x = (index) => 1000 - (values.length - 1 - index) * (1000 / (HISTORY - 1));
  const points = values.map((value, index) => `${x(index)},${58 - (value / most) * 54}`).join(" ");
  return element(
    "figure", { class: "panel" },
    element("figcaption", {}, title, element("span", { class: "quiet" }, ` now ${format(values.at(-1))}, most ${format(Math.max(...values))}`)),
    shape(
      "svg", { viewBox: "0 0 1000 60", preserveAspectRatio: "none", "aria-hidden": "true" },
      shape("line", { class: "grid", x1: 0, x2: 1000, y1: 59, y2: 59 }),
      shape("polyline", { class: "curve", points: values.length > 1 ? points : `995,${58 - (values[0] / most) * 54} ${points}` }),
    ),
  );
}
