// The plan that ran, as a waterfall: totals, the way from all files to the few that were read, the
// stages, and one line a file with the time it took.

import { element, shape } from "./dom.js";
import { formatBytes, formatCost, formatCount, formatMilliseconds, shortFileId } from "./format.js";
import { stateBadge } from "./results.js";

const OUTCOMES = {
  read: "read", missing: "missing", pruned_by_filter: "pruned by filter", pruned_by_time: "pruned by time",
  pruned_by_topic: "pruned by topic", skipped: "skipped: enough found",
};
const LINES_SHOWN = 100;
const CHART_WIDTH = 1000; // units of the drawing; it stretches to the column

/** Return the section that shows one `explain`. */
export function explainView(explain) {
  const files = explain.files ?? [];
  return element(
    "section", { class: "panel explain", "aria-labelledby": "explain-title" },
    element("h2", { id: "explain-title" }, "Explain"),
    totals(explain),
    element("div", { class: "explain-split" }, funnel(explain), stages(explain.stages ?? [], explain.milliseconds)),
    files.length ? fileLines(files, explain.milliseconds) : null,
  );
}

function totals(explain) {
  const aside = (explain.manifest_requests ?? 0) + (explain.sidecar_requests ?? 0);
  const facts = [
    ["Time", formatMilliseconds(explain.milliseconds)],
    ["Requests", formatCount(explain.requests), aside ? `+${explain.manifest_requests ?? 0} manifest, +${explain.sidecar_requests ?? 0} sidecar` : "to the store"],
    ["Bytes", formatBytes(explain.bytes), "read from the store"],
    ["False positives", formatCount(explain.false_positives), "of the filters"],
    ["Cost", formatCost(explain.cost_usd), "at the set price"],
  ];
  return element(
    "dl", { class: "facts" },
    facts.map(([name, value, more]) => element(
      "div", {}, element("dt", {}, name), element("dd", {}, value), more ? element("dd", { class: "hint" }, more) : null,
    )),
  );
}

function funnel(explain) {
  const considered = Number(explain.files_considered ?? 0);
  const rows = [
    ["considered", considered, "considered"],
    ["pruned by time", Number(explain.files_pruned_by_time ?? 0), "pruned_by_time"],
    ["pruned by filter", Number(explain.files_pruned_by_filter ?? 0), "pruned_by_filter"],
    ["read", Number(explain.files_read ?? 0), "read"],
  ];
  const others = { pruned_by_topic: "pruned by topic", skipped: "not needed", missing: "missing" };
  for (const [outcome, name] of Object.entries(others)) {
    const count = (explain.files ?? []).filter((file) => file.outcome === outcome).length;
    if (count) rows.splice(-1, 0, [name, count, outcome]);
  }
  let left = 0; // what earlier rows took away shifts the next bar, as in a waterfall
  const bars = rows.map(([name, count, outcome]) => {
    const start = outcome === "considered" ? 0 : left;
    left += outcome === "considered" ? 0 : count;
    return [name, formatCount(count), outcome, start, count];
  });
  return barTable("Files", bars, Math.max(considered, 1));
}

function stages(list, total) {
  let start = 0;
  const bars = list.map(({ name, ms }) => {
    const bar = [name.replaceAll("_", " "), formatMilliseconds(ms), "stage", start, Number(ms)];
    start += Number(ms);
    return bar;
  });
  return bars.length ? barTable("Stages", bars, Math.max(start, Number(total ?? 0), 0.001)) : null;
}

function barTable(caption, bars, scale) {
  return element(
    "table", { class: "bars" },
    element("caption", {}, caption),
    element("tbody", {}, bars.map(([name, text, outcome, start, length]) => element(
      "tr", {},
      element("th", { scope: "row" }, name),
      element("td", { class: "number code" }, text),
      element("td", { class: "bar-cell", "aria-hidden": "true" }, bar(outcome, start / scale, length / scale)),
    ))),
  );
}

function bar(outcome, start, length) {
  return shape(
    "svg", { class: "bar", viewBox: `0 0 ${CHART_WIDTH} 10`, preserveAspectRatio: "none" },
    shape("rect", { class: "bar-track", width: CHART_WIDTH, height: 10 }),
    length > 0
      ? shape("rect", {
          "data-outcome": outcome, y: 1, height: 8, rx: 1,
          x: Math.min(start * CHART_WIDTH, CHART_WIDTH - 3), width: Math.max(length * CHART_WIDTH, 3),
        })
      : null,
  );
}

function fileLines(files, total) {
  const ends = files.map((file) => Number(file.start_ms ?? 0) + Number(file.ms ?? 0));
  const scale = ends.reduce((longest, end) => Math.max(longest, end), Math.max(Number(total ?? 0), 0.001));
  const body = element("tbody");
  const buttons = element("div", { class: "chips", role: "group", "aria-label": "Lines shown" });
  const groups = lineGroups(files);
  const show = (chosen, limit) => {
    const matching = groups.get(chosen);
    for (const button of buttons.children) button.setAttribute("aria-pressed", String(button.dataset.group === chosen));
    body.replaceChildren(...matching.slice(0, limit).map((file) => fileLine(file, scale)));
    if (matching.length > limit) body.append(moreLine(matching.length - limit, () => show(chosen, limit * 5)));
  };
  for (const [name, matching] of groups) {
    buttons.append(element(
      "button", { type: "button", "data-group": name, on: { click: () => show(name, LINES_SHOWN) } },
      `${name} ${formatCount(matching.length)}`,
    ));
  }
  show(groups.has("asked") && files.length > LINES_SHOWN / 2 ? "asked" : "all", LINES_SHOWN);
  const titles = [["File"], ["State"], ["Outcome"], ["Requests", 1], ["Bytes", 1], ["Items", 1], ["Entries", 1], ["Time", 1]];
  return element(
    "div", {},
    element("div", { class: "answer-head" }, element("h3", {}, "A line a file, newest first"), buttons),
    element("div", { class: "table-scroll tall", tabindex: "0", role: "region", "aria-label": "Files of the plan" }, element(
      "table", { class: "waterfall", id: "waterfall" },
      element("thead", {}, element(
        "tr", {},
        titles.map(([title, number]) => element("th", { scope: "col", class: number ? "number" : null }, title)),
        element("th", { scope: "col", class: "bar-cell" }, `0 – ${formatMilliseconds(scale)}`),
      )),
      body,
    )),
  );
}

/** Return the lines by group name: all, those that were or should have been asked, and an outcome each. */
function lineGroups(files) {
  const asked = files.filter((file) => file.outcome === "read" || file.outcome === "missing");
  const groups = new Map([["all", files], ["asked", asked]]);
  for (const [outcome, name] of Object.entries(OUTCOMES)) {
    if (outcome !== "read") groups.set(name, files.filter((file) => file.outcome === outcome));
  }
  for (const [name, matching] of [...groups]) if (!matching.length) groups.delete(name);
  return groups;
}

function fileLine(file, scale) {
  const number = (text) => element("td", { class: "number code" }, text);
  const quietZero = (value, format) => (value ? format(value) : "");
  return element(
    "tr", { "data-outcome": file.outcome },
    element("td", { class: "code", title: `${file.file_id}` }, shortFileId(file.file_id)),
    element("td", {}, stateBadge(String(file.state))),
    element(
      "td", {}, OUTCOMES[file.outcome] ?? String(file.outcome),
      file.false_positive ? element("span", { class: "tag" }, "false positive") : null,
    ),
    number(quietZero(file.requests, formatCount)),
    number(quietZero(file.bytes, formatBytes)),
    number(quietZero(file.items, formatCount)),
    number(quietZero(file.entries, formatCount)),
    number(quietZero(file.ms, formatMilliseconds)),
    element(
      "td", { class: "bar-cell", "aria-hidden": "true" },
      bar(file.outcome, Number(file.start_ms ?? 0) / scale, Number(file.ms ?? 0) / scale),
    ),
  );
}

function moreLine(count, show) {
  const button = element("button", { type: "button", on: { click: show } }, `Show more of ${formatCount(count)}`);
  return element("tr", {}, element("td", { colspan: 9 }, button));
}
