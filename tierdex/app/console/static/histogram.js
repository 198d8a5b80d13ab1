// Entries over time: a bar for each part of their range. A drag across it narrows the lookup to these times, and
// so does Enter on a bar that the arrow keys chose.

import { element, shape } from "./dom.js";
import { watchDrag } from "./drag.js";
import { plural } from "./format.js";
import { timeTicks } from "./time_axis.js";
import { formatTime, zoneName } from "./times.js";

const BARS = 60;
const HEIGHT = 44;
const DATE_MAX = 8_640_000_000_000_000n;

/** Return the histogram of entries; `onNarrow(begin, end)` gets milliseconds, both inclusive. */
export function histogram(entries, { zone, onNarrow }) {
  const times = entries.map(({ timestamp }) => BigInt(timestamp)).filter((time) => time >= -DATE_MAX && time <= DATE_MAX).map(Number);
  const begin = times.reduce((least, time) => Math.min(least, time), Infinity);
  const end = times.reduce((most, time) => Math.max(most, time), -Infinity);
  if (!(end > begin)) return element("span"); // one moment has no shape
  const width = Math.max(1, Math.ceil((end - begin + 1) / BARS));
  const counts = new Array(Math.ceil((end - begin + 1) / width)).fill(0);
  for (const time of times) counts[Math.floor((time - begin) / width)] += 1;

  const told = element("p", { class: "hint", "aria-live": "polite" });
  const selection = shape("rect", { class: "selection", y: 0, height: HEIGHT, width: 0 });
  const drawing = shape("svg", {
    class: "histogram", viewBox: `0 0 ${counts.length} ${HEIGHT}`, preserveAspectRatio: "none", tabindex: "0", role: "application",
    "aria-label": "Entries over time. Drag across to narrow; arrow keys choose a bar, Enter narrows to it.",
  }, bars(counts), selection);
  const tell = (from, to) => {
    const count = counts.slice(from, to + 1).reduce((sum, each) => sum + each, 0);
    const written = (time) => formatTime(BigInt(time), zone).slice(0, 19);
    told.textContent = `${plural(count, "entry")} from ${written(begin + from * width)} to ${written(Math.min(begin + (to + 1) * width - 1, end))} ${zoneName(zone)}`;
  };
  const select = (from, to) => {
    selection.setAttribute("x", from);
    selection.setAttribute("width", to + 1 - from);
    tell(from, to);
  };
  const narrow = (from, to) => onNarrow(begin + from * width, Math.min(begin + (to + 1) * width - 1, end));
  const barAt = (x) => Math.min(counts.length - 1, Math.max(0, Math.floor((x / drawing.clientWidth) * counts.length)));
  watchDrag(drawing, { onMove: (from, to) => select(barAt(from), barAt(to)), onEnd: (from, to) => narrow(barAt(from), barAt(to)) });
  let chosen = -1;
  drawing.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step) select((chosen = (chosen + step + counts.length) % counts.length), chosen);
    else if (event.key === "Enter" && chosen >= 0) narrow(chosen, chosen);
    else return;
    event.preventDefault();
  });
  tell(0, counts.length - 1);
  return element("div", { class: "panel chart-of-entries" }, drawing, axis(begin, begin + counts.length * width, zone), told);
}

function bars(counts) {
  const most = Math.max(...counts);
  return counts.map((count, place) => {
    const height = count ? Math.max((count / most) * (HEIGHT - 2), 2) : 0;
    return shape("rect", { class: "entries-bar", x: place + 0.08, width: 0.84, y: HEIGHT - height, height });
  });
}

function axis(begin, end, zone) {
  const labels = timeTicks(begin, end, 8, zone).map(({ at, label }) => {
    const tick = element("span", {}, label);
    tick.style.left = `${((at - begin) / (end - begin)) * 100}%`;
    return tick;
  });
  return element("div", { class: "ticks", "aria-hidden": "true" }, labels);
}
