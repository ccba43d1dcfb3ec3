// SPDX-License-Identifier: Apache-2.0
// Values of the tables as text, in RocketMQ's words.

import { utc } from "./times.js";

const READ = 4;
const WRITE = 2;
const INHERIT = 1;
const ID_DIGITS = 19; // of the largest number of a broker, 2^63 - 1
const UNKNOWN_ID = "9".repeat(ID_DIGITS);

/** A permission: 6 as "6 (RW)". Source: PermName.perm2String. */
export function perm(bits) {
  const letters = (bits & READ ? "R" : "-") + (bits & WRITE ? "W" : "-") + (bits & INHERIT ? "X" : "");
  return `${bits} (${letters})`;
}

export const canRead = (bits) => (bits & READ) !== 0;
export const canWrite = (bits) => (bits & WRITE) !== 0;
export const withoutWrite = (bits) => bits & ~WRITE;

/** The kind of a topic by its name. Source: MixAll.RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX, TopicValidator. */
export function kindOf(topic) {
  if (topic.startsWith("%RETRY%")) return "RETRY";
  if (topic.startsWith("%DLQ%")) return "DLQ";
  return SYSTEM.has(topic) || topic.startsWith("rmq_sys_") ? "SYSTEM" : "NORMAL";
}

const SYSTEM = new Set([
  "TBW102", "SCHEDULE_TOPIC_XXXX", "BenchmarkTest", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRACE_TOPIC",
  "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT",
]);

/** 0 is a master. */
export const brokerNo = (id) => (id === null || id === undefined ? "" : `${id}(${Number(id) === 0 ? "master" : "slave"})`);

/** Compare addresses of brokers: by cluster, group, number (an unknown one last) and address. */
export function byAddress(a, b) {
  const [one, other] = [a, b].map((row) => [row.clusterName, row.brokerName, String(row.brokerId ?? UNKNOWN_ID).padStart(ID_DIGITS, "0"), row.brokerAddr].join("\u0001"));
  return one < other ? -1 : one > other ? 1 : 0;
}

/** The sender: the user if there are accounts, otherwise the address. */
export function who(actor) {
  if (!actor) return "";
  return actor.user ?? actor.peer ?? actor.gateway ?? "";
}

/** Sender, command and time of a change, in one line. */
export function lastChange(row) {
  return row ? `${who(row.actor) || "time"} · ${row.command} · ${utc(row.eventTime)}` : "";
}

/** "applied", or "rejected: why". */
export const outcome = (row) => (row.reason ? `${row.outcome}: ${row.reason}` : row.outcome);

/** {a: 1, b: null} as "a=1": a key or a state in one line. */
export function brief(values) {
  if (values === null || values === undefined) return "";
  return Object.entries(values).filter(([, value]) => value !== null).map(([name, value]) => `${name}=${typeof value === "object" ? JSON.stringify(value) : value}`).join(" ");
}

/** The difference of two states, "perm 6 → 4", or the only state. */
export function arrow(before, after) {
  if (!before) return after ? `+ ${brief(after) || "added"}` : "";
  if (!after) return `− ${brief(before) || "removed"}`;
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])];
  const text = (value) => (value === null || value === undefined ? "none" : typeof value === "object" ? JSON.stringify(value) : value);
  return names.filter((name) => text(before[name]) !== text(after[name]))
    .map((name) => `${name} ${text(before[name])} → ${text(after[name])}`).join(", ");
}
