// SPDX-License-Identifier: Apache-2.0
// Times as people read them, always with the zone beside them.

const LOCAL = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const LOCAL_TIME = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });

/** 2026-11-21 05:21:02.133 UTC, from RFC 3339 or milliseconds; empty without a time (0: not kept). */
export function utc(time) {
  const date = dateOf(time);
  return date ? `${date.toISOString().replace("T", " ").replace("Z", "")} UTC` : "";
}

/** The same for a column whose head says that it is UTC. */
export const plainUtc = (time) => utc(time).replace(" UTC", "");

/** The same to the second. */
export const toSecond = (time) => plainUtc(time).slice(0, 19);

/** UTC, and the time in this browser's zone, with the date if it is another. */
export function both(time) {
  const date = dateOf(time);
  if (!date) return "";
  return `${utc(time)} (${(date.getDate() === date.getUTCDate() ? LOCAL_TIME : LOCAL).format(date)} here)`;
}

/** "in 12 s", "3 min ago": from now. */
export function fromNow(time, now_ms = Date.now()) {
  const date = dateOf(time);
  if (!date) return "";
  const s = Math.round((date - now_ms) / 1000);
  const size = Math.abs(s);
  const text = size < 120 ? `${size} s` : size < 7200 ? `${Math.round(size / 60)} min`
    : size < 172800 ? `${Math.round(size / 3600)} h` : `${Math.round(size / 86400)} d`;
  return s > 0 ? `in ${text}` : `${text} ago`;
}

/** How long, from one time to another (null: until the time that is shown). */
export function span(from, to, end_ms = Date.now()) {
  const ms = (to === null ? end_ms : Date.parse(to)) - Date.parse(from);
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  const text = fromNow(Date.now() - ms);
  return text.replace(" ago", "");
}

/**
 * A point in time as `as_of` takes it, from what the user typed: an epoch, a time ago (-2h, -1d12h), a date and time (of this
 * browser's zone unless it carries one), a time of day (the last one).
 * @returns {?string} null: not understood
 */
export function readTime(text, now = new Date()) {
  const typed = text.trim();
  if (typed === "" || typed === "now") return "now";
  if (/^\d{1,18}$/.test(typed)) return typed;
  const ago = /^-((?:\d+[dhms])+)$/.exec(typed);
  if (ago) {
    const units_s = { d: 86400, h: 3600, m: 60, s: 1 };
    const s = [...ago[1].matchAll(/(\d+)([dhms])/g)].reduce((sum, [, n, unit]) => sum + n * units_s[unit], 0);
    return new Date(now - s * 1000).toISOString();
  }
  const clock = /^(\d{1,2}):(\d{2})(?::(\d{2}))?$/.exec(typed);
  if (clock) {
    const date = new Date(now);
    date.setHours(Number(clock[1]), Number(clock[2]), Number(clock[3] ?? 0), 0);
    if (date > now) date.setDate(date.getDate() - 1);
    return Number(clock[1]) < 24 && Number(clock[2]) < 60 ? date.toISOString() : null;
  }
  const day = /^\d{4}-\d{2}-\d{2}$/.test(typed) ? `${typed}T00:00:00` : typed.replace(/^(\d{4}-\d{2}-\d{2}) /, "$1T");
  if (!/^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}/.test(day)) return null;
  const date = new Date(day.replace(/ UTC$/, "Z"));
  return Number.isNaN(date.valueOf()) ? null : date.toISOString();
}

/** The forms that `readTime` takes, for messages. */
export const TIME_FORMS = "Enter an epoch, a time such as 2026-01-31 03:00, a time of day such as 02:55, or a time ago such as -2h.";

/** Whether a text is an epoch rather than a time. */
export const isEpoch = (text) => /^\d+$/.test(text ?? "");

function dateOf(time) {
  if (time === null || time === undefined || time === 0 || time === "") return null;
  const date = new Date(time);
  return Number.isNaN(date.valueOf()) ? null : date;
}
