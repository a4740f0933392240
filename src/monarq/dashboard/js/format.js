/* Figures, durations and times as people read them. Pure: no page, no clock but the one given. */

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const ONE = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const TWO = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });
const SHORT = [
  [1e12, "T"],
  [1e9, "G"],
  [1e6, "M"],
  [1e4, "k", 1e3],
];
const BYTES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const NONE = "–";

const missing = (value) => value === null || value === undefined || Number.isNaN(value);

/** 12,400 */
export function count(value) {
  return missing(value) ? NONE : WHOLE.format(value);
}

/** 12.4k: where there is little room. */
export function short(value) {
  if (missing(value)) return NONE;
  const size = Math.abs(value);
  for (const [from, suffix, unit = from] of SHORT) {
    if (size >= from) return ONE.format(value / unit) + suffix;
  }
  return size >= 100 || Number.isInteger(value) ? WHOLE.format(value) : TWO.format(value);
}

/** Per second, without the unit: 0.25, 12.4, 1,240. */
export function rate(value) {
  if (missing(value)) return NONE;
  const size = Math.abs(value);
  if (size >= 10_000) return short(value);
  if (size >= 100) return WHOLE.format(value);
  return size >= 10 ? ONE.format(value) : TWO.format(value);
}

export function bytes(value) {
  if (missing(value)) return NONE;
  let size = value;
  let unit = 0;
  while (Math.abs(size) >= 1024 && unit < BYTES.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${(unit && Math.abs(size) < 100 ? ONE : WHOLE).format(size)} ${BYTES[unit]}`;
}

/** 340 ms, 4.2 s, 8 min, 3 h 5 min, 12 d */
export function duration(seconds) {
  if (missing(seconds)) return NONE;
  const size = Math.abs(seconds);
  if (size === 0) return "0 s";
  if (size < 0.001) return `${TWO.format(seconds * 1000)} ms`;
  if (size < 1) return `${(size < 0.01 ? ONE : WHOLE).format(seconds * 1000)} ms`;
  if (size < 60) return `${(size < 10 ? ONE : WHOLE).format(seconds)} s`;
  const minutes = Math.round(size / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
  const days = Math.floor(hours / 24);
  if (days < 14 && hours % 24) return `${days} d ${hours % 24} h`;
  return `${WHOLE.format(days)} d`;
}

export function percent(part) {
  return missing(part) ? NONE : `${(part < 0.1 || part > 0.99 ? ONE : WHOLE).format(part * 100)} %`;
}

/** "3 min ago", "in 20 s". `time` and `now` in milliseconds. */
export function relative(time, now) {
  const seconds = (now - time) / 1000;
  if (Math.abs(seconds) < 1.5) return "now";
  const span = coarse(Math.abs(seconds));
  return seconds > 0 ? `${span} ago` : `in ${span}`;
}

function coarse(seconds) {
  if (seconds < 60) return `${Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.round(seconds / 60)} min`;
  if (seconds < 86_400) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86_400)} d`;
}

const two = (value) => String(value).padStart(2, "0");

/** 2026-03-01 14:05:09.123, in the reader's own zone. */
export function exact(time) {
  const at = new Date(time);
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  const milliseconds = String(at.getMilliseconds()).padStart(3, "0");
  return `${day} ${clock(time, true)}.${milliseconds}`;
}

/** 14:05 or 14:05:09 */
export function clock(time, seconds = false) {
  const at = new Date(time);
  const text = `${two(at.getHours())}:${two(at.getMinutes())}`;
  return seconds ? `${text}:${two(at.getSeconds())}` : text;
}

export function day(time) {
  return new Date(time).toLocaleDateString("en", { day: "numeric", month: "short" });
}

/** "1 message", "2 messages" */
export function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

/** Milliseconds of an ISO time, or null. */
export function parse(text) {
  const time = text ? Date.parse(text) : NaN;
  return Number.isNaN(time) ? null : time;
}

/** The first part of a long text. */
export function clipped(text, length) {
  return text.length > length ? `${text.slice(0, length - 1)}…` : text;
}
