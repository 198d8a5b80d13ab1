// A time axis: which moments get a tick between two times, and what is written there.

import { element } from "./dom.js";
import { formatTime, zoneOffset } from "./times.js";

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const YEAR = 365.25 * DAY;
const STEPS = [
  1, 2, 5, 10, 20, 50, 100, 200, 500,
  ...[1, 2, 5, 10, 15, 30].map((n) => n * SECOND),
  ...[1, 2, 5, 10, 15, 30].map((n) => n * MINUTE),
  ...[1, 2, 3, 6, 12].map((n) => n * HOUR),
  ...[1, 2, 7, 14].map((n) => n * DAY),
];
const MONTH_STEPS = [1, 2, 3, 6, 12, 24, 60, 120, 240, 600, 1200, 12_000];

/** Return at most about `count` ticks as {at, label}, `at` in milliseconds, in the zone's round moments. */
export function timeTicks(begin, end, count, zone) {
  const wanted = (end - begin) / Math.max(count, 1);
  const step = STEPS.find((size) => size >= wanted);
  const moments = step ? evenMoments(begin, end, step, zone) : monthMoments(begin, end, wanted);
  return moments.map((at) => ({ at, label: label(at, step ?? DAY * 30, zone) }));
}

/** Return an axis as an element: labels at their places between two times, for below a drawing of the same width. */
export function ticksBelow(begin, end, zone) {
  const share = ({ at }) => (at - begin) / (end - begin);
  const ticks = timeTicks(begin, end, 8, zone).filter((tick) => share(tick) < 0.89); // a label stands right of its tick
  const labels = ticks.map((tick) => {
    const mark = element("span", { class: share(tick) > 0.75 ? "wide" : null }, tick.label);
    mark.style.left = `${share(tick) * 100}%`;
    return mark;
  });
  return element("div", { class: "ticks", "aria-hidden": "true" }, labels);
}

function evenMoments(begin, end, step, zone) {
  const shift = zoneOffset(begin, zone) * MINUTE; // round in the zone's wall clock, not in UTC
  const moments = [];
  for (let at = Math.ceil((begin - shift) / step) * step + shift; at <= end; at += step) moments.push(at);
  return moments;
}

function monthMoments(begin, end, wanted) {
  const months = MONTH_STEPS.find((size) => size * (YEAR / 12) >= wanted) ?? MONTH_STEPS.at(-1) * 10;
  const first = new Date(begin);
  const moments = [];
  let month = Math.ceil((first.getUTCFullYear() * 12 + first.getUTCMonth()) / months) * months;
  for (;;) {
    const at = new Date(0);
    at.setUTCFullYear(Math.floor(month / 12), month % 12, 1);
    if (!(at.getTime() <= end)) return moments; // also beyond the calendar, where it is not a number
    if (at.getTime() >= begin) moments.push(at.getTime());
    month += months;
  }
}

function label(at, step, zone) {
  const text = formatTime(BigInt(Math.round(at)), zone);
  const [day, time] = text.split(" ");
  if (step >= DAY * 30) return day.slice(0, -3);
  if (step >= DAY) return day;
  if (time.startsWith("00:00:00.000")) return day;
  if (step >= MINUTE) return time.slice(0, 5);
  return step >= SECOND ? time.slice(0, 8) : time.slice(3);
}
