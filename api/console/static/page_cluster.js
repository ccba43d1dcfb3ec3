// SPDX-License-Identifier: Apache-2.0
// Cluster: every address of every broker group.

import { writePerm } from "./actions.js";
import { get } from "./api.js";
import { sqlTime } from "./copyas.js";
import { h } from "./dom.js";
import { brokerLink } from "./place.js";
import { actionButton } from "./session.js";
import { Table } from "./table.js";
import { fromNow, plainUtc, utc } from "./times.js";
import { brokerNo, byAddress } from "./words.js";

/** The page. */
export function clusterPage() {
  let at = null;
  const table = new Table({
    caption: "Brokers", isMain: true,
    empty: "No broker is registered at this time. Start a broker with this gateway as its namesrvAddr, or go to another time.",
    key: (row) => `${row.brokerName}/${row.brokerAddr}`,
    columns: [
      { name: "cluster", title: "Cluster", isExtra: true, value: (row) => row.clusterName },
      { name: "broker", title: "Broker", value: (row) => row.brokerName, cell: (row) => brokerLink(row.brokerName) },
      { name: "no", title: "NO.", isExtra: true, value: (row) => brokerNo(row.brokerId) },
      { name: "address", title: "Address", value: (row) => row.brokerAddr },
      { name: "alive", width: 7, value: (row) => (row.isLive ? "yes" : "no"), cell: (row) => h("span", { class: row.isLive ? "good" : "bad" }, row.isLive ? "yes" : "no") },
      { name: "zone", isExtra: true, value: (row) => row.zoneName ?? "" },
      { name: "lastUpdateTimestamp", title: "lastUpdateTimestamp (UTC)", width: 30, value: (row) => row.lastUpdateTimestamp ?? null, cell: (row) => plainUtc(row.lastUpdateTimestamp) },
      { name: "expires", width: 10, value: (row) => row.expireTimestamp ?? null, cell: expires },
      { name: "dataVersion", isExtra: true, value: (row) => version(row.dataVersion) },
      { name: "actions", title: "Actions", width: 21, value: () => "", cell: actions },
    ],
    copy: () => ({
      sql: `FROM live_at(${sqlTime(at.asOf)})`, path: "v1/brokers", params: { as_of: at.asOf },
    }),
  });

  function expires(row) {
    if (!row.expireTimestamp) return "";
    return h("span", { title: utc(row.expireTimestamp) }, at.isNow ? fromNow(row.expireTimestamp) : plainUtc(row.expireTimestamp));
  }

  function actions(row) {
    if (!at?.isNow || !row.isFirst) return null;
    return h("span", null,
      actionButton({ "aria-label": `Wipe write permission of ${row.brokerName}`, on: { click: () => writePerm(row.brokerName, true, at) } }, "Wipe W…"), " ",
      actionButton({ "aria-label": `Add write permission to ${row.brokerName}`, on: { click: () => writePerm(row.brokerName, false, at) } }, "Add W…"));
  }

  return {
    element: table.element,
    async load(now) {
      at = now;
      const asked = { as_of: now.asOf };
      const [groups, live] = await Promise.all([
        get("v1/clusters", asked, { signal: now.signal }), get("v1/brokers", asked, { signal: now.signal }),
      ]);
      now.showEpoch(live);
      table.setRows(addresses(groups.body, live.body.brokers));
    },
  };
}

/** A row for each address that a group has or that is alive. */
function addresses({ brokerAddrTable }, live) {
  const rows = new Map();
  for (const group of Object.values(brokerAddrTable)) {
    for (const [id, brokerAddr] of Object.entries(group.brokerAddrs)) {
      rows.set(`${group.brokerName}\u0001${brokerAddr}`, {
        clusterName: group.cluster, brokerName: group.brokerName, brokerId: Number(id), brokerAddr, zoneName: group.zoneName, isLive: false,
      });
    }
  }
  for (const found of live) {
    const key = `${found.brokerName}\u0001${found.brokerAddr}`;
    rows.set(key, { ...rows.get(key), ...found, isLive: true });
  }
  const sorted = [...rows.values()].sort(byAddress);
  return sorted.map((row, index) => ({ ...row, isFirst: sorted[index - 1]?.brokerName !== row.brokerName }));
}

const version = (found) => (found ? `${found.stateVersion}/${found.timestamp}/${found.counter}` : "");
