// SPDX-License-Identifier: Apache-2.0
// Router: a topic's route as clients get it, who set what of it, and what is odd about it.

import { deleteTopic } from "./actions.js";
import { ProblemError, get } from "./api.js";
import { h, put, show } from "./dom.js";
import { link } from "./place.js";
import { routeSql } from "./page_topics.js";
import { actionButton } from "./session.js";
import { Table } from "./table.js";
import { utc } from "./times.js";
import { canWrite, perm, who } from "./words.js";

/** The page of one topic. */
export function topicPage(topic) {
  let at = null;
  let route = null;
  const path = `v1/topics/${encodeURIComponent(topic)}`;
  const copy = () => ({
    sql: routeSql(topic, at.asOf), path: `${path}/route`, params: { as_of: at.asOf },
    cli: ["history", "blame", topic, ...(at.isNow ? [] : ["--as-of", at.asOf])],
  });
  const addresses = new Table({
    caption: "Broker Datas", key: (row) => `${row.broker}/${row.id}`, copy,
    columns: [
      { name: "broker", title: "Broker", value: (row) => row.broker, cell: (row) => h("a", { href: link("history", row.broker, { of: "broker" }) }, row.broker) },
      { name: "cluster", title: "Cluster", value: (row) => row.cluster },
      { name: "index", title: "Index", numeric: true, value: (row) => row.id },
      { name: "address", title: "Address", value: (row) => row.address },
      { name: "zone", title: "zone", value: (row) => row.zone },
    ],
  });
  const queues = new Table({
    caption: "queueDatas", key: (row) => row.brokerName, copy,
    columns: [
      { name: "brokerName", title: "Broker name", value: (row) => row.brokerName },
      ...["readQueueNums", "writeQueueNums", "perm"].map((name) => ({
        name, title: name, numeric: name !== "perm", value: (row) => row[name],
        cell: (row) => h("span", { title: row.blame?.[name] ?? "" }, name === "perm" ? perm(row.perm) : row[name]),
      })),
      { name: "lastChangedBy", title: "last changed by", value: (row) => row.last ?? "" },
    ],
  });
  const past = h("a", null, "History of this topic");
  const odd = h("ul", { class: "odd" });
  const gone = h("p", { class: "bad", hidden: true });
  const remove = actionButton({ class: "danger", on: { click: () => deleteTopic(topic, at) } }, "Delete topic…");
  return {
    title: `Router: ${topic}`,
    element: h("div", null,
      h("p", null, past, " ", remove),
      gone, odd, h("h2", null, "Broker Datas"), addresses.element, h("h2", null, "queueDatas"), queues.element),
    async load(now) {
      at = now;
      past.href = link("history", topic);
      show(remove, now.isNow);
      const found = await get(`${path}/route`, { as_of: now.asOf }, { signal: now.signal, fine: [404] });
      const isThere = found.status === 200;
      if (!isThere && found.body.code !== 17) throw new ProblemError(found.status, found.body);
      now.cut(found);
      route = isThere ? found.body : { brokerDatas: [], queueDatas: [] };
      show(gone, !isThere);
      put(gone, isThere ? null : [`No topic route info for ${topic} at this moment. `, h("a", { href: link("history", topic) }, "What became of it")]);
      addresses.setRows(route.brokerDatas.flatMap((data) => Object.entries(data.brokerAddrs).map(([id, address]) => ({
        broker: data.brokerName, cluster: data.cluster, id: Number(id), address, zone: data.zoneName ?? "",
      }))));
      queues.setRows(route.queueDatas);
      put(odd, diagnostics(route).map((text) => h("li", null, text)));
      if (!isThere) return;
      const blame = await get(`${path}/blame`, { as_of: now.asOf }, { signal: now.signal, fine: [404] });
      if (blame.status === 200) queues.setRows(blamed(route.queueDatas, blame.body.fields));
    },
  };
}

/** Rows of queues, with who set each field. */
function blamed(rows, fields) {
  const text = (field) => `${who(field.setBy.actor) || "time"} · ${field.setBy.command} · ${utc(field.eventTime)}`;
  return rows.map((row) => {
    const own = fields.filter((field) => field.brokerName === row.brokerName && field.tableName === "topicQueueTable");
    const newest = own.reduce((best, field) => (!best || field.eventTime > best.eventTime ? field : best), null);
    return { ...row, blame: Object.fromEntries(own.map((field) => [field.field, text(field)])), last: newest ? text(newest) : "" };
  });
}

/** What is odd about a route: whoever looks at it at three in the morning wants to know that first. */
export function diagnostics(route) {
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
