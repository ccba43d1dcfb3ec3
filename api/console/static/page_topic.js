// SPDX-License-Identifier: Apache-2.0
// Router: the route of a topic as clients get it, the client that set each part, and warnings.

import { deleteTopic } from "./actions.js";
import { apiPath, get } from "./api.js";
import { quoted, sqlTime } from "./copyas.js";
import { button, h, put, show } from "./dom.js";
import { fromForm } from "./from_form.js";
import { brokerLink, here, link, set } from "./place.js";
import { actionButton } from "./session.js";
import { Table } from "./table.js";
import { both } from "./times.js";
import { redraw, staticQueues, summary } from "./topic_picture.js";
import { canWrite, lastChange, perm } from "./words.js";

/** The page of one topic. */
export function topicPage(topic) {
  let at = null;
  let route = null;
  const path = apiPath("topics", topic);
  const copy = () => ({
    sql: `FROM route_at(${quoted(topic)}, ${sqlTime(at.asOf)})`, path: `${path}/route`, params: { as_of: at.asOf },
    cli: ["history", "blame", topic, ...(at.isNow ? [] : ["--as-of", at.asOf])],
  });
  const addresses = new Table({
    caption: "Broker Datas", key: (row) => `${row.broker}/${row.id}`, copy, empty: "No broker has this topic at this time.",
    columns: [
      { name: "broker", title: "Broker", cell: (row) => brokerLink(row.broker) },
      { name: "cluster", title: "Cluster" },
      { name: "index", title: "Index", numeric: true, value: (row) => row.id },
      { name: "address", title: "Address" },
      { name: "zone" },
    ],
  });
  const queues = new Table({
    caption: "queueDatas", key: (row) => row.brokerName, copy, empty: "No broker has this topic at this time.",
    columns: [
      { name: "brokerName", title: "Broker name" },
      ...["readQueueNums", "writeQueueNums", "perm"].map((name) => ({
        name, numeric: name !== "perm",
        cell: (row) => h("span", { title: row.blame?.[name] ?? "" }, name === "perm" ? perm(row.perm) : row[name]),
      })),
      { name: "lastChangedBy", title: "last changed by", value: (row) => row.last ?? "" },
    ],
  });
  const mapped = new Table({
    caption: "Static topic", key: (row) => row.logical, copy,
    columns: [
      { name: "logicQueue", title: "Logic queue", numeric: true, value: (row) => row.logical },
      { name: "broker", title: "Broker", cell: (row) => (row.broker ? brokerLink(row.broker) : h("span", { class: "bad" }, "not mapped")) },
      { name: "queue", title: "Queue of the broker", numeric: true, value: (row) => row.physical },
      { name: "epoch", title: "Mapping epoch", value: (row) => row.epoch ?? "" },
      { name: "scope", title: "Scope" },
    ],
  });
  const fixed = h("section", { "aria-label": "Static topic", hidden: true }, h("h2", null, "Static topic"),
    h("p", null, "Each logic queue is behind one queue of a broker."), mapped.element);
  const drawn = h("div");
  const compare = fromForm("Compare with", button("Do not compare", () => set({ from: null })));
  const difference = h("p", { role: "status" });

  /** What is different from the route of the marked time. */
  async function showDifference({ signal }) {
    const from = here().params.get("from");
    compare.show();
    if (from === null) {
      redraw(drawn, route, null);
      put(difference);
      return;
    }
    const found = await get(`${path}/route`, { as_of: from, missing: "empty" }, { signal });
    const brokers = redraw(drawn, route, found.body);
    const when = found.eventTime ? `${both(found.eventTime)}, epoch ${found.epoch}` : from;
    put(difference, `Difference from ${when}: ${summary(brokers)}.`);
  }

  const past = h("a", null, "History of this topic");
  const odd = h("ul", { class: "odd" });
  const gone = h("p", { class: "bad", hidden: true });
  const remove = actionButton({ class: "danger", on: { click: () => deleteTopic(topic, at) } }, "Delete topic…");
  return {
    title: `Router: ${topic}`,
    element: h("div", null,
      h("p", null, past, " ", remove),
      gone, odd, compare.element, difference, drawn, fixed, h("h2", null, "Broker Datas"), addresses.element, h("h2", null, "queueDatas"), queues.element),
    async load(now) {
      at = now;
      past.href = link("history", topic);
      show(remove, now.isNow);
      const found = await get(`${path}/route`, { as_of: now.asOf, missing: "empty" }, { signal: now.signal });
      now.showEpoch(found);
      route = found.body;
      const isThere = route.queueDatas.length > 0;
      show(gone, !isThere);
      put(gone, isThere ? null : [`No topic route info for ${topic} at this time. Check the spelling, or see `, h("a", { href: link("history", topic) }, "what became of it"), "."]);
      addresses.setRows(route.brokerDatas.flatMap((data) => Object.entries(data.brokerAddrs).map(([id, address]) => ({
        broker: data.brokerName, cluster: data.cluster, id: Number(id), address, zone: data.zoneName ?? "",
      }))));
      queues.setRows(route.queueDatas);
      put(odd, diagnostics(route).map((text) => h("li", null, text)));
      const mappings = staticQueues(route);
      show(fixed, mappings.length > 0);
      mapped.setRows(mappings);
      await showDifference(now);
      if (!isThere) return;
      const blame = await get(`${path}/blame`, { as_of: now.asOf, missing: "empty" }, { signal: now.signal });
      queues.setRows(blamed(route.queueDatas, blame.body.fields));
    },
  };
}

/** Rows of queues, with who set each field. */
function blamed(rows, fields) {
  const text = (field) => lastChange({ ...field.setBy, eventTime: field.eventTime });
  return rows.map((row) => {
    const own = fields.filter((field) => field.brokerName === row.brokerName && field.tableName === "topicQueueTable");
    const newest = own.reduce((best, field) => (!best || field.eventTime > best.eventTime ? field : best), null);
    return { ...row, blame: Object.fromEntries(own.map((field) => [field.field, text(field)])), last: newest ? text(newest) : "" };
  });
}

/** Warnings about a route. */
function diagnostics(route) {
  const found = [];
  const groups = new Map(route.brokerDatas.map((data) => [data.brokerName, data]));
  const writable = route.queueDatas.filter((row) => canWrite(row.perm) && row.writeQueueNums > 0);
  if (route.queueDatas.length && !writable.length) found.push("No queue may be written: producers get no route to send to.");
  for (const row of route.queueDatas) {
    const group = groups.get(row.brokerName);
    if (!group || !Object.keys(group.brokerAddrs).length) found.push(`${row.brokerName} has queues and no address.`);
    else if (!("0" in group.brokerAddrs)) found.push(`${row.brokerName} has no master: its queues cannot be written.`);
    if (row.readQueueNums < row.writeQueueNums) found.push(`${row.brokerName} has fewer queues to read than to write: messages of ${row.writeQueueNums - row.readQueueNums} queues are not consumed.`);
  }
  const shapes = new Set(route.queueDatas.map((row) => `${row.readQueueNums}/${row.writeQueueNums}/${row.perm}`));
  if (shapes.size > 1) found.push("Its brokers do not have the same queues and permissions.");
  return found;
}
