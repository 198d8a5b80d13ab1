// Numbers as people read them. Every function takes Number or BigInt; null and undefined become a dash.

const NONE = "–";
const SPANS = [["d", 86_400_000], ["h", 3_600_000], ["min", 60_000], ["s", 1000]];
const BYTE_UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** 336776 -> "336,776", exact for any int64. */
export function formatCount(value) {
  if (isNone(value)) return NONE;
  const [whole, fraction] = String(value).split(".");
  const grouped = whole.replace(/\B(?=(\d{3})+(?!\d))/g, ",");
  return fraction ? `${grouped}.${fraction.slice(0, 3)}` : grouped;
}

/** 1536 -> "1.5 KiB". */
export function formatBytes(value) {
  if (isNone(value)) return NONE;
  let number = Number(value);
  let unit = 0;
  while (Math.abs(number) >= 1024 && unit < BYTE_UNITS.length - 1) {
    number /= 1024;
    unit += 1;
  }
  return `${unit === 0 || number >= 100 ? Math.round(number) : number.toFixed(1)} ${BYTE_UNITS[unit]}`;
}

/** Milliseconds of work: "0.04 ms", "12.3 ms", "2.41 s". */
export function formatMilliseconds(value) {
  if (isNone(value)) return NONE;
  const number = Number(value);
  if (number >= 1000) return `${(number / 1000).toFixed(2)} s`;
  return `${number.toFixed(number < 1 ? 2 : number < 100 ? 1 : 0)} ms`;
}

/** Milliseconds between two moments, in the two greatest units: "2 d 10 h", "1 min 30 s", "250 ms". */
export function formatSpan(milliseconds) {
  let rest = Number(milliseconds);
  if (rest < 1000) return `${rest} ms`;
  if (rest < 60_000) return formatMilliseconds(rest);
  const parts = [];
  for (const [unit, size] of SPANS) {
    const count = Math.floor(rest / size);
    rest -= count * size;
    if (count) parts.push(`${count} ${unit}`);
  }
  return parts.slice(0, 2).join(" ");
}

/** Seconds of waiting or age: "42 s", "7 min", "3 h 20 min", "12 d 4 h". */
export function formatAge(seconds) {
  if (isNone(seconds)) return NONE;
  const s = Math.round(Number(seconds));
  if (s < 120) return `${s} s`;
  const minutes = Math.round(s / 60);
  if (minutes < 120) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** A bill: "$0.0000008". */
export function formatCost(value) {
  if (isNone(value)) return NONE;
  const number = Number(value);
  if (number === 0) return "$0";
  return `$${number < 0.01 ? number.toFixed(9).replace(/0+$/, "") : number.toFixed(2)}`;
}

/** 1 -> "1 file", 2 -> "2 files", 2 -> "2 entries". */
export function plural(count, noun) {
  const many = noun.endsWith("y") ? `${noun.slice(0, -1)}ies` : `${noun}s`;
  return `${formatCount(count)} ${Number(count) === 1 ? noun : many}`;
}

/** Any value of an answer as one line of text. */
export function formatAny(value) {
  if (isNone(value)) return NONE;
  if (Array.isArray(value)) return value.map(formatAny).join(", ");
  if (typeof value === "object") {
    return Object.entries(value)
      .map(([name, inner]) => `${name} ${formatAny(inner)}`)
      .join(", ");
  }
  return typeof value === "number" || typeof value === "bigint" ? formatCount(value) : String(value);
}

/** "last_done_items" -> "last done items". */
export function formatName(name) {
  return name.replaceAll("_", " ");
}

/** A file id without the leading zeros of its number. */
export function shortFileId(fileId) {
  return String(fileId).replace(/^0+(?=\d)/, "");
}

function isNone(value) {
  return value === null || value === undefined;
}
