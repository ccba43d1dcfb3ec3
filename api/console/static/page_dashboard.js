// SPDX-License-Identifier: Apache-2.0
// Dashboard: readiness, counts, charts, brokers near expiry, last changes.

import { get } from "./api.js";
import { ChangesTable } from "./changes.js";
import { h, put, show } from "./dom.js";
import { overview } from "./overview.js";
import { brokerLink } from "./place.js";
import { Table } from "./table.js";
import { fromNow, plainUtc } from "./times.js";

const LAST = 500;

/** The page. */
export function dashboardPage() {
  let at = null;
  const facts = h("dl", { class: "facts" });
  const checks = h("ul", { class: "checks" });
  const health = h("section", { "aria-label": "Readiness" }, h("h2", null, "Readiness"), checks);
  const near = new Table({
    caption: "Brokers near expiry", key: (row) => `${row.brokerName}/${row.brokerAddr}`,
    columns: [
      { name: "broker", title: "Broker", value: (row) => row.brokerName, cell: (row) => brokerLink(row.brokerName) },
      { name: "address", title: "Address", value: (row) => row.brokerAddr },
      { name: "lastUpdateTimestamp", title: "lastUpdateTimestamp (UTC)", width: 30, cell: (row) => plainUtc(row.lastUpdateTimestamp) },
      { name: "expires", value: (row) => row.expireTimestamp, cell: (row) => fromNow(row.expireTimestamp) },
    ],
    copy: () => ({ sql: "FROM live_at(now())", path: "v1/brokers" }),
  });
  const none = h("p", { class: "quiet" }, "No broker has been silent for more than half of its timeout.");
  const silent = h("section", { "aria-label": "Brokers near expiry" }, h("h2", null, "Silent for more than half of their timeout"), none, near.element);
  const charts = overview();
  const changes = new ChangesTable({
    caption: "Last changes", empty: "Nothing has changed yet. The first registration of a broker is the first change.",
    copy: () => ({
      sql: `SELECT * FROM changes ORDER BY epoch DESC, "offset" DESC LIMIT ${LAST}`, path: "v1/changes", params: { to: at.asOf, limit: LAST },
      cli: ["history", "changes", ...(at.isNow ? [] : ["--to", at.asOf])],
    }),
  });

  return {
    element: h("div", null, facts, health, charts.element, silent, h("h2", null, "Last changes"), changes.element),
    async load(now) {
      at = now;
      await Promise.all([state(now), last(now)]);
      charts.load(now);
    },
  };

  async function last({ asOf, signal }) {
    changes.setRows((await get("v1/changes", { to: asOf, limit: LAST }, { signal })).body.changes);
  }

  async function state({ asOf, isNow, showEpoch, signal }) {
    const asked = { as_of: asOf };
    const [topics, clusters, brokers, ready] = await Promise.all([
      get("v1/topics", { ...asked, limit: 1 }, { signal }), get("v1/clusters", asked, { signal }), get("v1/brokers", asked, { signal }),
      isNow ? get("readyz", {}, { signal, fine: [503] }) : null,
    ]);
    showEpoch(topics);
    show(health, isNow);
    show(silent, isNow);
    const counts = {
      topics: topics.body.total, clusters: Object.keys(clusters.body.clusterAddrTable).length,
      "broker groups": Object.keys(clusters.body.brokerAddrTable).length, "live brokers": brokers.body.brokers.length, epoch: topics.epoch,
      ...(ready && readiness(ready.body)),
    };
    put(facts, Object.entries(counts).map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))));
    const quiet = isNow ? brokers.body.brokers.filter(isNear) : [];
    near.setRows(quiet);
    show(near.element, quiet.length > 0);
    show(none, quiet.length === 0);
  }

  /** Show the readiness checks; return the age of the routes. */
  function readiness({ checks: found, routesAgeSeconds: age_s }) {
    put(checks, Object.entries(found).map(([name, check]) =>
      h("li", { class: check.ok ? "good" : "bad" }, `${name}: ${check.ok ? "ok" : check.reason}`)));
    return age_s === undefined ? {} : { "age of routes": `${age_s.toFixed(1)} s` };
  }
}

function isNear(row) {
  return row.expireTimestamp - Date.now() < row.heartbeatTimeoutMillis / 2;
}
