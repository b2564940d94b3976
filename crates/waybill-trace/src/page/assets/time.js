// Times: numbers of microseconds since 1970 inside, one way to write and to read them outside.

let local = false;

/** Whether times are shown in this computer's zone; in UTC otherwise. */
export function useLocalZone(wanted) {
  local = wanted;
}

export function zoneName() {
  if (!local) return "UTC";
  const minutes = -new Date().getTimezoneOffset();
  const sign = minutes < 0 ? "−" : "+";
  const size = Math.abs(minutes);
  return `UTC${sign}${Math.floor(size / 60)}${size % 60 ? `:${two(size % 60)}` : ""}`;
}

const DAYS = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

function two(number) {
  return String(number).padStart(2, "0");
}

/** Year, month, day, weekday, hour, minute, second as they are shown. */
function parts(time) {
  const date = new Date(time / 1000);
  return local
    ? [date.getFullYear(), date.getMonth(), date.getDate(), date.getDay(), date.getHours(), date.getMinutes(), date.getSeconds()]
    : [date.getUTCFullYear(), date.getUTCMonth(), date.getUTCDate(), date.getUTCDay(), date.getUTCHours(), date.getUTCMinutes(), date.getUTCSeconds()];
}

/** `02:13:07` */
export function clock(time) {
  const [, , , , hour, minute, second] = parts(time);
  return `${two(hour)}:${two(minute)}:${two(second)}`;
}

/** `02:13:07.120` */
export function fineClock(time) {
  const milliseconds = Math.floor(time / 1000) % 1000;
  return `${clock(time)}.${String(milliseconds).padStart(3, "0")}`;
}

/** `Tue 17 Nov 2026` */
export function day(time) {
  const [year, month, date, weekday] = parts(time);
  return `${DAYS[weekday]} ${date} ${MONTHS[month]} ${year}`;
}

/** The same for all times of one day. */
export function dayKey(time) {
  const [year, month, date] = parts(time);
  return (year * 12 + month) * 31 + date;
}

/** `17 Nov` */
export function shortDay(time) {
  const [, month, date] = parts(time);
  return `${date} ${MONTHS[month]}`;
}

/** `2026-11-17 02:13:07`, as fields show and take it. */
export function stamp(time) {
  const [year, month, date, , hour, minute, second] = parts(time);
  return `${year}-${two(month + 1)}-${two(date)} ${two(hour)}:${two(minute)}:${two(second)}`;
}

/** RFC 3339, for addresses and servers. */
export function rfc3339(time) {
  return new Date(Math.round(time / 1000)).toISOString().replace(".000Z", "Z");
}

/** `6 m 37 s` */
export function span(microseconds) {
  const ms = Math.max(0, microseconds / 1000);
  if (ms < 1) return `${Math.round(microseconds)} µs`;
  if (ms < 1000) return `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.floor(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} m ${two(Math.floor(seconds % 60))} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${two(minutes % 60)} m`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

const AGO = /^(\d{1,9})([smhd])$/;
const CLOCK = /^(?:(\d{4})-(\d{1,2})-(\d{1,2})[ T])?(\d{1,2}):(\d{2})(?::(\d{2})(?:\.\d+)?)?$/;
const SECONDS = { s: 1, m: 60, h: 3600, d: 86400 };

/** Microseconds before now that `15m` and the like mean. */
export function ago(text) {
  const [, count, unit] = AGO.exec(text) ?? [];
  return unit ? Number(count) * SECONDS[unit] * 1e6 : undefined;
}

/**
 * What somebody typed: a span as `15m`, or a time in the zone that is shown. A time without a date is the last such time before
 * `now`, or the first after `after`. Returns the text for the address, or undefined.
 */
export function parseTyped(text, now, after) {
  const typed = text.trim();
  if (AGO.test(typed)) return typed;
  const found = CLOCK.exec(typed);
  if (!found) {
    // Years beyond four digits, and words that engines take for dates, are not meant.
    const whole = /^\d{4}-\d\d-\d\dT/.test(typed) ? Date.parse(typed) : NaN;
    return Number.isNaN(whole) ? undefined : rfc3339(whole * 1000);
  }
  const [year, month, date, hour, minute, second] = found.slice(1).map((part) => (part === undefined ? undefined : Number(part)));
  if (hour > 23 || minute > 59 || (second ?? 0) > 59) return undefined;
  if (year !== undefined) {
    if (month < 1 || month > 12 || date < 1 || date > 31) return undefined;
    return rfc3339(moment(year, month - 1, date, hour, minute, second ?? 0));
  }
  const [thisYear, thisMonth, thisDate] = parts(after ?? now);
  const day = 86400e6;
  let time = moment(thisYear, thisMonth, thisDate, hour, minute, second ?? 0);
  if (after !== undefined) {
    if (time < after) time += day;
  } else if (time > now) {
    time -= day;
  }
  return rfc3339(time);
}

function moment(year, month, date, hour, minute, second) {
  const ms = local
    ? new Date(year, month, date, hour, minute, second).getTime()
    : Date.UTC(year, month, date, hour, minute, second);
  return ms * 1000;
}

/** The time that a part of an address means: RFC 3339, or a span before now. */
export function meant(text, now) {
  if (!text) return undefined;
  const before = ago(text);
  if (before !== undefined) return now - before;
  const time = Date.parse(text);
  return Number.isNaN(time) ? undefined : time * 1000;
}

/** Steps between marks on an axis, in microseconds. */
const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500].map((ms) => ms * 1e3)
  .concat([1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 1209600, 2592000, 7776000, 31536000].map((s) => s * 1e6));

/** Marks between two times, at most `most`: where, what to write, and whether a new day begins. */
export function marks(from, to, most) {
  const step = STEPS.find((one) => (to - from) / one <= most) ?? STEPS.at(-1);
  // Marks stand on whole steps of the zone that is shown.
  const shift = local ? -new Date(from / 1000).getTimezoneOffset() * 60e6 : 0;
  const all = [];
  let before;
  for (let at = Math.ceil((from + shift) / step) * step - shift; at <= to; at += step) {
    const key = dayKey(at);
    const newDay = before !== key;
    before = key;
    all.push({ at, text: label(at, step), day: newDay ? shortDay(at) : undefined });
  }
  return all;
}

function label(at, step) {
  if (step >= 86400e6) return "";
  if (step >= 60e6) return clock(at).slice(0, 5);
  return step >= 1e6 ? clock(at) : fineClock(at);
}
