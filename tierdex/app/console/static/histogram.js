// Entries over time: a bar for each part of their range. A drag across it narrows the lookup to these times, and
// so does Enter on a bar that the arrow keys chose.
//
// Counts are those of all pages: the service counts what is not fetched (`fetchCounts`). Until it has, and where it
// cannot, the bars are those of the fetched entries, and the chart says so.

import { ApiError } from "./api.js";
import { element, shape } from "./dom.js";
import { watchDrag } from "./drag.js";
import { formatCount, plural } from "./format.js";
import { ticksBelow } from "./time_axis.js";
import { formatTime, zoneName } from "./times.js";

const BARS = 60;
const HEIGHT = 44;
const DATE_MAX = 8_640_000_000_000_000n;

/** Return {begin, end, width_ms, counts} of fetched entries, as the service tells those of all. */
export function countsOf(entries) {
  const times = entries.map(({ timestamp }) => BigInt(timestamp)).filter((time) => time >= -DATE_MAX && time <= DATE_MAX).map(Number);
  const begin = times.reduce((least, time) => Math.min(least, time), Infinity);
  const end = times.reduce((most, time) => Math.max(most, time), -Infinity);
  const width = Math.max(1, Math.ceil((end - begin + 1) / BARS));
  const counts = times.length ? new Array(Math.ceil((end - begin + 1) / width)).fill(0) : [];
  for (const time of times) counts[Math.floor((time - begin) / width)] += 1;
  return { begin, end, width_ms: width, counts };
}

/** Return {begin, end, width_ms, counts, words} of all pages of a lookup; `request` asks for them. Times that no calendar holds are left out. */
export async function fetchCounts(request, { topic, key, message_id: messageId, begin, end }) {
  const within = (time, bound) => (time === null || time === undefined || time === "" ? bound : time);
  try {
    const found = await request.get("v1/histogram", {
      topic, key, message_id: messageId, begin: within(begin, -DATE_MAX), end: within(end, DATE_MAX), buckets: BARS,
    });
    return { ...found, words: wordsOf(found) };
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    return { counts: null, words: `Only the fetched entries: the others could not be counted. ${error.message}` };
  }
}

function wordsOf({ count, more, complete }) {
  if (more) return `The newest ${formatCount(count)} entries; older ones are not counted.`;
  return complete ? "All entries." : "All entries that could be asked.";
}

/** Return the chart of counts, `words` saying which those are; `onNarrow(begin, end)` gets milliseconds, both inclusive. */
export function histogram({ begin, end, width_ms: width, counts }, words, { zone, onNarrow }) {
  if (!(end > begin)) return element("span"); // one moment has no shape
  const told = element("p", { class: "hint", "aria-live": "polite" });
  const selection = shape("rect", { class: "selection", y: 0, height: HEIGHT, width: 0 });
  const drawing = shape("svg", {
    class: "histogram", viewBox: `0 0 ${counts.length} ${HEIGHT}`, preserveAspectRatio: "none", tabindex: "0", role: "application",
    "aria-label": "Entries over time. Drag across to narrow; arrow keys choose a bar, Enter narrows to it.",
  }, bars(counts), selection);
  const tell = (from, to) => {
    const count = counts.slice(from, to + 1).reduce((sum, each) => sum + each, 0);
    const written = (time) => formatTime(BigInt(time), zone).slice(0, 19);
    told.textContent = `${plural(count, "entry")} from ${written(begin + from * width)} to ${written(Math.min(begin + (to + 1) * width - 1, end))} ${zoneName(zone)}. ${words}`;
  };
  const select = (from, to) => {
    selection.setAttribute("x", from);
    selection.setAttribute("width", to + 1 - from);
    tell(from, to);
  };
  const narrow = (from, to) => onNarrow(begin + from * width, Math.min(begin + (to + 1) * width - 1, end));
  const barAt = (x) => Math.min(counts.length - 1, Math.max(0, Math.floor((x / drawing.clientWidth) * counts.length)));
  watchDrag(drawing, { onMove: (from, to) => select(barAt(from), barAt(to)), onEnd: (from, to) => narrow(barAt(from), barAt(to)) });
  let chosen = -1; // no bar: then the right arrow takes the first, the left arrow the last
  drawing.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step) {
      chosen = chosen < 0 && step < 0 ? counts.length - 1 : (chosen + step + counts.length) % counts.length;
      select(chosen, chosen);
    } else if (event.key === "Enter" && chosen >= 0) narrow(chosen, chosen);
    else return;
    event.preventDefault();
  });
  tell(0, counts.length - 1);
  return element("div", { class: "panel chart-of-entries" }, drawing, ticksBelow(begin, begin + counts.length * width, zone), told);
}

function bars(counts) {
  const most = Math.max(...counts);
  return counts.map((count, place) => {
    const height = count ? Math.max((count / most) * (HEIGHT - 2), 2) : 0;
    return shape("rect", { class: "entries-bar", x: place + 0.08, width: 0.84, y: HEIGHT - height, height });
  });
}
