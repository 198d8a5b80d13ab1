// The nodes view: whether this service is ready and what its owner has to do, and how far each node has published.

import { get } from "./api.js";
import { jobsOf, partsOf, stoppedBy } from "./compaction.js";
import { byId, element, redraw } from "./dom.js";
import { formatAge, formatBytes, formatCount } from "./format.js";
import { Polling } from "./polling.js";
import { formatTime, zoneName } from "./times.js";

const POLL_MS = 5_000;
const STANDING_STATE = { live: "uploaded", late: "sealed", silent: "sealed", shared: "compacted", unknown: "unsealed" };

export class NodesView {
  constructor({ zone, wantKey }) {
    this.zone = zone;
    this.polling = new Polling({
      ask: askAll, pauseMs: POLL_MS, note: byId("nodes-note"), zone, wantKey, onAnswer: (answer) => this.#show(answer),
    });
  }

  open() {
    return this.polling.start();
  }

  close() {
    this.polling.stop();
  }

  zoneChanged() {
    if (this.answer) this.#show(this.answer);
  }

  #show(answer) {
    this.answer = answer;
    const { nodes, compaction, readiness } = answer;
    redraw(byId("nodes-body"), health(readiness, compaction, nodes), table(nodes.nodes, this.zone()));
  }
}

async function askAll(signal) {
  const [nodes, compaction, readiness] = await Promise.all([
    get("v1/admin/nodes", {}, signal), get("v1/admin/compaction", {}, signal),
    get("readyz", {}, signal).catch((error) => {
      if (error.status !== 503) throw error;
      return { status: error.message };
    }),
  ]);
  return { nodes, compaction, readiness };
}

function health({ status }, compaction, { clock_skew_s: skew }) {
  const isReady = status === "ready";
  const error = stoppedBy(compaction);
  const hasFailed = partsOf(compaction).some(([, part]) => part.last_error);
  const tiles = [
    ["This service", isReady ? "ready" : "not ready", isReady ? "requests may be sent here" : status],
    ["Waiting", formatCount(compaction.backlog_files), `files, ${formatBytes(compaction.backlog_bytes)}`],
    ["Oldest unpublished", formatAge(compaction.oldest_unpublished_age_s), "age of its first entry here"],
    ["Compactor", error ? "stopped" : jobsOf(compaction).length ? "working" : "idle", error ?? (hasFailed ? "its last error: see Compaction" : "no error")],
    ["Clock", skew === null ? "–" : `${Number(skew).toFixed(1)} s`, "ahead of the store's"],
  ];
  return element("dl", { class: `facts panel health ${isReady && !error ? "" : "is-ill"}` }, tiles.map(([name, value, more]) => element(
    "div", {}, element("dt", {}, name), element("dd", {}, value), element("dd", { class: "hint" }, more),
  )));
}

function table(nodes, zone) {
  const most = nodes.reduce((longest, { lag_s: lag }) => Math.max(longest, Number(lag ?? 0)), 60);
  const titles = [["Node"], ["Lag", "number"], ["", "wide bar-cell"], ["Liveness"], ["Published through"], ["Clock", "number"], ["Files", "number"], ["Address"]];
  return element(
    "div", { class: "table-scroll panel", id: "nodes-table", tabindex: "0", role: "region", "aria-labelledby": "nodes-title" },
    element(
      "table", { id: "nodes" },
      element("thead", {}, element("tr", {}, titles.map(([title, kind]) => element(
        "th", { scope: "col", class: kind }, title, title === "Published through" ? element("small", {}, ` ${zoneName(zone)}`) : null,
      )))),
      element("tbody", {}, nodes.map((node) => row(node, most, zone))),
    ),
  );
}

function row(node, most, zone) {
  const number = (text) => element("td", { class: "number code" }, text);
  const lag = element("meter", { max: most, high: most / 2, value: Number(node.lag_s ?? 0), "aria-hidden": "true" });
  return element(
    "tr", {},
    element("th", { scope: "row", class: "code" }, node.node || "the store", node.problem ? element("p", { class: "bad-text" }, node.problem) : null),
    number(formatAge(node.lag_s)),
    element("td", { class: "wide bar-cell" }, node.lag_s === null ? null : lag),
    element(
      "td", {}, element("span", { class: "state", "data-state": STANDING_STATE[node.standing] ?? "expired" }, node.standing),
      typeof node.heard_at !== "number" ? null : element("small", {}, ` at ${formatTime(node.heard_at, zone).slice(11, 19)}`),
      node.holds_unpublished ? element("span", { class: "tag" }, "held unpublished entries then") : null,
    ),
    element("td", { class: "code" }, node.published_through === null ? "not known" : formatTime(node.published_through, zone).slice(0, 19)),
    number(node.skew_s === null ? "–" : `${Number(node.skew_s).toFixed(1)} s`),
    number(formatCount(node.files)),
    element("td", { class: "code" }, node.url ?? "–"),
  );
}
