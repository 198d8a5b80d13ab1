// Times in and out: int64 milliseconds since the epoch, as BigInt, in UTC or the browser's zone. What the API
// reads (tierdex/times.py) is read here, and wall-clock times of the zone.

const INT64_MAX = 2n ** 63n - 1n;
const DATE_MAX = 8_640_000_000_000_000n; // beyond it a Date cannot say the day
const TIME =
  /^(\d{4})-(\d\d)-(\d\d)(?:[Tt ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?)?\s*([Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)?$/;
const AGO = /^(?:now|-?(\d{1,9})(ms|s|m|h|d|w))$/;
const UNITS = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 };
const SECONDS = [1_000_000_000n, 9_999_999_999n]; // as milliseconds all of them are in early 1970
const HINT = "Write 7d or 2h (before now), 2013-01-07, 2013-01-07 05:00, an RFC 3339 time, or epoch milliseconds.";

/**
 * Return the milliseconds of what a user typed, null for nothing. Throws an Error that says what to do.
 *
 * A time without a zone is in `zone` ("utc" or "local"). With `isEnd`, what was left out is filled up:
 * a bare day means its last millisecond, since both ends are inclusive.
 */
export function parseTime(text, { zone = "utc", isEnd = false } = {}) {
  const trimmed = text.trim();
  if (trimmed === "") return null;
  if (/^-?\d+$/.test(trimmed)) return checkedMilliseconds(BigInt(trimmed));
  if (isBeforeNow(trimmed)) return BigInt(Date.now()) - millisecondsAgo(trimmed);
  const match = TIME.exec(trimmed);
  if (!match) throw new Error(`“${trimmed}” is not a time. ${HINT}`);
  const [year, month, day] = match.slice(1, 4).map(Number);
  const [hour, minute, second] = [
    match[4] ?? (isEnd ? 23 : 0),
    match[5] ?? (isEnd ? 59 : 0),
    match[6] ?? (isEnd ? 59 : 0),
  ].map(Number);
  const millisecond = Number((match[7] ?? (isEnd && !match[6] ? "999" : "0")).padEnd(3, "0").slice(0, 3));
  const plain = new Date(0);
  plain.setUTCFullYear(year, month - 1, day); // Date.UTC takes the year 50 for 1950
  plain.setUTCHours(hour, minute, second, millisecond);
  if (year < 1 || plain.getUTCMonth() !== month - 1 || plain.getUTCDate() !== day || hour > 23 || minute > 59 || second > 59) {
    throw new Error(`“${trimmed}” is not in the calendar. ${HINT}`);
  }
  return BigInt(plain.getTime() - offsetMinutes(match[8], zone, plain) * 60_000);
}

/** Say whether a time counts back from now, so that it means another moment tomorrow. */
export function isBeforeNow(text) {
  return AGO.test(text);
}

/** "2013-01-07 05:00:00.000" in the zone; a time that no calendar holds stays milliseconds. */
export function formatTime(value, zone) {
  if (value === null || value === undefined) return "–";
  const milliseconds = BigInt(value);
  if (milliseconds > DATE_MAX || milliseconds < -DATE_MAX) return `${milliseconds} ms`;
  const shifted = Number(milliseconds) - zoneOffset(Number(milliseconds), zone) * 60_000;
  return new Date(shifted).toISOString().replace("T", " ").replace("Z", "");
}

/** The zone as it stands behind a time: "UTC", or the browser's own name. */
export function zoneName(zone) {
  return zone === "utc" ? "UTC" : Intl.DateTimeFormat().resolvedOptions().timeZone;
}

/** Minutes to subtract from UTC milliseconds to read them as the zone's wall clock (as Date does). */
export function zoneOffset(milliseconds, zone) {
  return zone === "utc" ? 0 : new Date(milliseconds).getTimezoneOffset();
}

function offsetMinutes(written, zone, plain) {
  if (written && /z/i.test(written)) return 0;
  if (written) {
    const [hours, minutes] = written.slice(1).split(":").map(Number);
    return (written[0] === "-" ? -1 : 1) * (hours * 60 + minutes);
  }
  if (zone === "utc") return 0;
  const local = new Date(0);
  local.setFullYear(plain.getUTCFullYear(), plain.getUTCMonth(), plain.getUTCDate());
  local.setHours(plain.getUTCHours(), plain.getUTCMinutes(), plain.getUTCSeconds(), plain.getUTCMilliseconds());
  return -local.getTimezoneOffset();
}

function millisecondsAgo(text) {
  const [, count, unit] = AGO.exec(text);
  return unit ? BigInt(count) * BigInt(UNITS[unit]) : 0n;
}

function checkedMilliseconds(value) {
  if (value > INT64_MAX || value < -INT64_MAX - 1n) throw new Error(`${value} does not fit in 64 bits.`);
  if (value >= SECONDS[0] && value <= SECONDS[1]) throw new Error(`${value} looks like seconds: times are milliseconds (${value}000).`);
  return value;
}
