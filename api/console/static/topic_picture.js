// SPDX-License-Identifier: Apache-2.0
// A topic as a picture: a box for each cluster, a card for each broker group, a square for each queue. With the route of
// another time, what was added, removed and changed since stands on the cards.

import { h, put } from "./dom.js";
import { brokerLink } from "./place.js";
import { brokerNo, canRead, canWrite, perm } from "./words.js";

const MOST_QUEUES = 64; // squares of a broker; the numbers say the rest
const FIELDS = ["readQueueNums", "writeQueueNums", "perm"];
const SIGNS = { added: "+ added", removed: "− removed", changed: "~ changed", same: "" };
const QUEUES = { rw: "read and write", r: "read only", w: "write only", off: "neither" };

/** The brokers of a route, and how they differ from those of another time; null: of no other time. */
function brokersOf(route, other = null) {
  const now = groups(route);
  const then = other === null ? now : groups(other);
  return [...new Set([...now.keys(), ...then.keys()])].sort().map((name) => {
    const [one, before] = [now.get(name) ?? null, then.get(name) ?? null];
    const changes = one && before ? differences(before, one) : [];
    return { ...(one ?? before), before, changes, kind: !before ? "added" : !one ? "removed" : changes.length ? "changed" : "same" };
  });
}

function groups(route) {
  const found = new Map();
  const datas = new Map(route.brokerDatas.map((data) => [data.brokerName, data]));
  for (const queue of route.queueDatas) {
    const data = datas.get(queue.brokerName);
    found.set(queue.brokerName, { name: queue.brokerName, cluster: data?.cluster ?? "no address", addresses: data?.brokerAddrs ?? {}, queue });
  }
  return found;
}

function differences(before, after) {
  const text = (name, value) => (name === "perm" ? perm(value) : value);
  const found = FIELDS.filter((name) => before.queue[name] !== after.queue[name])
    .map((name) => `${name} ${text(name, before.queue[name])} → ${text(name, after.queue[name])}`);
  const ids = [...new Set([...Object.keys(before.addresses), ...Object.keys(after.addresses)])].sort((a, b) => a - b);
  for (const id of ids) {
    const [old, own] = [before.addresses[id], after.addresses[id]];
    if (old !== own) found.push(`${brokerNo(id)} ${old ?? "none"} → ${own ?? "none"}`);
  }
  return found;
}

/** The picture. `words` says since when, where there is another time. */
export function picture(brokers, isCompared) {
  const clusters = new Map();
  for (const broker of brokers) clusters.set(broker.cluster, [...(clusters.get(broker.cluster) ?? []), broker]);
  return h("div", { class: "topicpicture" },
    [...clusters].map(([cluster, own]) => h("section", { class: "clusterbox", "aria-label": `Cluster ${cluster}` },
      h("h3", null, `Cluster ${cluster}`), h("ul", { class: "cards" }, own.map(card)))),
    h("p", { class: "legend wide", "aria-hidden": "true" }, Object.entries(QUEUES).map(([kind, words]) => [h("i", { class: `queue ${kind}` }), words]),
      isCompared ? [h("i", { class: "queue rw new" }), "new queue", h("i", { class: "queue gone" }), "queue that is gone"] : null));
}

function card(broker) {
  const { queue, before, kind, changes } = broker;
  const text = `${queue.readQueueNums} read, ${queue.writeQueueNums} write, ${perm(queue.perm)}`;
  return h("li", { class: `card ${kind}` },
    h("div", { class: "cardhead" }, brokerLink(broker.name), kind === "same" ? null : h("b", { class: "sign" }, SIGNS[kind])),
    h("div", { class: "queues", "aria-hidden": "true" }, squares(queue, before?.queue ?? null, kind)),
    h("div", null, text),
    changes.map((each) => h("div", { class: "half" }, each)),
    Object.entries(broker.addresses).map(([id, address]) => h("div", { class: "quiet" }, `${brokerNo(id)} ${address}`)),
    Object.keys(broker.addresses).length ? null : h("div", { class: "bad" }, "no address"));
}

function squares(queue, before, kind) {
  const count = Math.max(queue.readQueueNums, queue.writeQueueNums);
  const earlier = before ? Math.max(before.readQueueNums, before.writeQueueNums) : kind === "added" ? 0 : count;
  const most = Math.max(count, earlier);
  const found = Array.from({ length: Math.min(most, MOST_QUEUES) }, (_, index) => {
    const may = (canRead(queue.perm) && index < queue.readQueueNums ? "r" : "") + (canWrite(queue.perm) && index < queue.writeQueueNums ? "w" : "");
    const isGone = index >= count || kind === "removed";
    return h("i", { class: `queue ${isGone ? "gone" : may || "off"}${!isGone && index >= earlier ? " new" : ""}`, title: `queue ${index}: ${isGone ? "gone" : QUEUES[may || "off"]}` });
  });
  return [found, most > MOST_QUEUES ? ` and ${most - MOST_QUEUES} more` : null];
}

/** Where the queues of a static topic are: which broker's queue is behind each logical one. Empty: it is not static. */
export function staticQueues(route) {
  const rows = new Map();
  for (const [broker, mapping] of Object.entries(route.topicQueueMappingByBroker ?? {})) {
    for (const [logical, physical] of Object.entries(mapping.currIdMap ?? {})) {
      rows.set(Number(logical), { logical: Number(logical), broker: mapping.bname ?? broker, physical, epoch: mapping.epoch, scope: mapping.scope ?? "", total: mapping.totalQueues });
    }
  }
  const total = Math.max(0, ...Object.values(route.topicQueueMappingByBroker ?? {}).map((mapping) => mapping.totalQueues ?? 0));
  for (let logical = 0; logical < Math.min(total, 10000); logical += 1) {
    if (!rows.has(logical)) rows.set(logical, { logical, broker: "", physical: null, epoch: null, scope: "", total });
  }
  return [...rows.values()].sort((a, b) => a.logical - b.logical);
}

/** Say what is different, for those who do not see the picture. */
export function summary(brokers) {
  const of = (kind) => brokers.filter((broker) => broker.kind === kind).map((broker) => broker.name);
  const parts = ["added", "removed", "changed"].map((kind) => [kind, of(kind)]).filter(([, names]) => names.length)
    .map(([kind, names]) => `${kind}: ${names.slice(0, 20).join(", ")}${names.length > 20 ? ` and ${names.length - 20} more` : ""}`);
  return parts.length ? parts.join("; ") : "no difference";
}

/** Put another picture into an element. */
export function redraw(element, route, other) {
  const brokers = brokersOf(route, other);
  put(element, brokers.length ? picture(brokers, other !== null) : null);
  return brokers;
}
