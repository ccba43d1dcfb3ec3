// SPDX-License-Identifier: Apache-2.0
// History of a topic or a broker: its states and changes, newest first.

import { apiPath, get } from "./api.js";
import { ChangesTable } from "./changes.js";
import { strip } from "./charts.js";
import { options, quoted, sqlTime } from "./copyas.js";
import { h, put } from "./dom.js";
import { here, link } from "./place.js";
import { Table } from "./table.js";
import { isEpoch, plainUtc, span } from "./times.js";
import { brief, perm, who } from "./words.js";

const MOST = 1000;
const LEGEND = {
  topic: { good: "may be written", half: "may only be read", none: "may not be read or written" },
  broker: { good: "alive", none: "not alive" },
};

/** The page of a topic, or with of=broker of a broker group. */
export function historyPage(name) {
  const isBroker = here().params.get("of") === "broker";
  const path = apiPath(isBroker ? "brokers" : "topics", name, "timeline");
  const filter = isBroker ? { brokerName: name } : { topic: name };
  let at = null;
  let end_ms = Date.now(); // the time that is shown
  const empty = `Nothing of ${name} is recorded up to this time. Check the spelling, or go to a later time.`;
  const chart = h("div", { class: "chart" });
  const states = new Table({
    caption: "States", empty, key: (row) => `${row.fromEpoch}/${row.from}/${row.begunBy.offset}`,
    columns: [
      { name: "from", title: "from (UTC)", width: 26, cell: (row) => h("a", { href: link(isBroker ? "cluster" : "topic", isBroker ? "" : name, { as_of: row.from }) }, plainUtc(row.from)) },
      { name: "to", title: "to (UTC)", width: 26, value: (row) => row.to ?? "", cell: (row) => (row.to === null ? "still" : plainUtc(row.to)) },
      { name: "for", width: 10, value: (row) => span(row.from, row.to, end_ms) },
      { name: "state", title: isBroker ? "State" : "State: read/write queues, perm", width: 44, value: (row) => state(row), cell: (row) => h("span", { class: kind(row), title: state(row) }, state(row)) },
      { name: "begunBy", title: "begun by", width: 40, value: (row) => cause(row.begunBy) },
      { name: "endedBy", isExported: true, value: (row) => cause(row.endedBy) },
    ],
    copy: () => ({
      sql: `SELECT * FROM spans WHERE ${isBroker ? "brokerName" : "topic"} = ${quoted(name)}${at.isNow ? "" : ` AND shows(${sqlTime(at.asOf)}, fromEpoch, validFrom)`} ORDER BY validFrom DESC`,
      path, params: { to: at.asOf, limit: MOST },
      cli: ["history", "timeline", ...(isBroker ? ["--broker", name] : [name]), ...options({ to: at.asOf })],
    }),
  });
  const changes = new ChangesTable({
    caption: "Changes", empty,
    copy: () => ({
      sql: `SELECT * FROM changes WHERE ${isBroker ? "brokerName" : "topic"} = ${quoted(name)} ORDER BY epoch DESC, "offset" DESC`,
      path: "v1/changes", params: { ...filter, to: at.asOf, limit: MOST },
      cli: ["history", "changes", ...options({ [isBroker ? "broker" : "topic"]: name, to: at.asOf })],
    }),
  });
  const route = h("a", null, "Router of this topic");

  function state(row) {
    if (isBroker) return row.alive ? `alive ${brief(row.brokerAddrs)}` : row.brokerAddrs ? `silent ${brief(row.brokerAddrs)}` : "gone";
    if (!row.brokers.length) return "gone";
    return row.brokers.map((broker) => `${broker.brokerName} ${broker.readQueueNums}/${broker.writeQueueNums} ${perm(broker.perm)}`).join(", ");
  }

  function kind(row) {
    if (isBroker) return row.alive ? "good" : "none";
    return row.writable ? "good" : row.readable ? "half" : "none";
  }

  return {
    title: `History: ${isBroker ? "broker " : ""}${name}`,
    element: h("div", null, isBroker ? null : h("p", null, route), chart, h("h2", null, "States"), states.element, h("h2", null, "Changes"), changes.element),
    async load(now) {
      at = now;
      route.href = link("topic", name);
      const { signal } = now;
      const listed = get("v1/changes", { ...filter, to: now.asOf, limit: MOST }, { signal }).then(({ body }) => changes.setRows(body.changes));
      const [found, shown] = await Promise.all([get(path, { to: now.asOf, limit: MOST, missing: "empty" }, { signal }), now.showTime(), listed]);
      end_ms = shown ? Date.parse(isEpoch(now.asOf) ? shown.eventTime : now.asOf) : Date.now();
      const { intervals } = found.body;
      states.setRows(intervals);
      put(chart, strip(intervals.map((row) => ({ from: row.from, to: row.to, kind: kind(row), text: state(row) })), isBroker ? LEGEND.broker : LEGEND.topic, end_ms));
    },
  };
}

const cause = (found) => (found ? `${found.command} ${who(found.actor)}` : "");
