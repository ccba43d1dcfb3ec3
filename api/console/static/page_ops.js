// SPDX-License-Identifier: Apache-2.0
// OPS: KV config, NameServer config, self-preservation, quarantine and epochs.

import { putKv } from "./actions.js";
import { apiPath, get } from "./api.js";
import { copyButton, quoted, sqlTime } from "./copyas.js";
import { button, h, put, show } from "./dom.js";
import { here, set } from "./place.js";
import { actionButton, standing } from "./session.js";
import { Table } from "./table.js";
import { both } from "./times.js";

const NAMESPACE = "ORDER_TOPIC_CONFIG";
const EPOCHS = 200;

/** The page. */
export function opsPage() {
  let at = null;
  const shown = new Set(); // keys whose values may be seen
  const namespace = h("input", { "aria-label": "Namespace", value: here().params.get("namespace") ?? NAMESPACE, on: { change: (event) => { shown.clear(); set({ namespace: event.target.value.trim() }); } } });
  const key = h("input", { "aria-label": "Key", placeholder: "key", required: true });
  const value = h("input", { "aria-label": "Value", placeholder: "value" });
  const form = h("form", { class: "filters", on: { submit: (event) => { event.preventDefault(); putKv(namespace.value.trim(), key.value.trim(), value.value, at); } } },
    key, value, actionButton({ type: "submit" }, "Put…"));
  const kv = new Table({
    caption: "KV config", key: (row) => row.key, empty: "This namespace has no entries. Enter another namespace, or a key and a value.",
    columns: [
      { name: "key", title: "Key" },
      { name: "value", title: "Value", width: 40, value: (row) => (shown.has(row.key) ? row.value : "hidden"), cell: valueCell },
      { name: "actions", title: "Actions", width: 22, value: () => "", cell: (row) => (at?.isNow ? actionButton({ "aria-label": `Delete ${row.key}`, on: { click: () => putKv(namespace.value.trim(), row.key, null, at) } }, "Delete…") : null) },
    ],
    copy: () => ({
      sql: `SELECT * FROM rows_at('kvConfigTable', ${sqlTime(at.asOf)}) WHERE (key->>'namespace') = ${quoted(namespace.value.trim())}`,
      path: apiPath("kv", namespace.value.trim()), params: { as_of: at.asOf },
    }),
  });
  const config = new Table({
    caption: "NameServer config", key: (row) => row[0],
    columns: [{ name: "key", title: "Key", value: (row) => row[0] }, { name: "value", title: "Value", value: (row) => row[1] }],
    copy: () => ({ path: "v1/config" }),
  });
  const withheld = h("p", { role: "status" });
  const preservation = h("p");
  const epochs = new Table({
    caption: "Epochs", key: (row) => row.epoch, empty: "There is no epoch yet. The first event makes one.",
    columns: [
      { name: "epoch", title: "Epoch", numeric: true, width: 12, cell: (row) => button(row.epoch, () => set({ as_of: String(row.epoch) }), { "aria-label": `Go to epoch ${row.epoch}` }) },
      { name: "eventTime", title: "Time", width: 52, cell: (row) => both(row.eventTime) },
      { name: "logOffset", numeric: true, width: 12 },
      { name: "versions", title: "Versions", value: (row) => Object.entries(row.versions).map(([name, number]) => `${name} ${number}`).join(", ") },
      { name: "sql", title: "SQL", width: 12, value: () => "", cell: (row) => copyButton(() => ({
        sql: `FROM rows_at('topicQueueTable', ${row.epoch})`, path: "v1/topics", params: { as_of: row.epoch, details: "true" },
      })) },
    ],
    copy: () => ({ sql: "FROM routeCommitTable ORDER BY epoch DESC", path: "v1/epochs", params: { limit: EPOCHS } }),
  });
  const quarantine = copyButton(() => ({ sql: "FROM quarantineTable" }));

  function valueCell(row) {
    if (shown.has(row.key)) return h("code", null, row.value);
    return button("Show", () => { shown.add(row.key); kv.refresh(row); }, { "aria-label": `Show the value of ${row.key}` });
  }

  /** What is refused would be told of, in the history, too: so it is not asked for. */
  async function showConfig({ isNow, signal }) {
    const isAdmins = standing.takesTokens && !standing.mayWrite;
    put(withheld, isNow ? isAdmins ? "This needs the role admin." : null : "The config is shown as it is now. Go to now (n), or see its changes in the Audit Log.");
    show(config.element, isNow && !isAdmins);
    if (isNow && !isAdmins) config.setRows(Object.entries((await get("v1/config", {}, { signal })).body.config));
  }

  return {
    element: h("div", null, h("h2", null, "KV config"), h("p", null, h("label", null, "Namespace ", namespace)), form, kv.element,
      h("h2", null, "NameServer config"), withheld, config.element,
      h("h2", null, "Self-preservation"), preservation, h("h2", null, "Quarantine"), h("p", null, "Records of the event log that are no valid events are in quarantineTable. Read it with SQL: ", quarantine),
      h("h2", null, "Epochs"), epochs.element),
    async load(now) {
      at = now;
      const { signal } = now;
      const name = here().params.get("namespace") ?? NAMESPACE;
      const found = await get(apiPath("kv", name), { as_of: now.asOf, missing: "empty" }, { signal });
      const entries = Object.entries(found.body.table);
      kv.setRows(entries.map(([each, text]) => ({ key: each, value: text })));
      now.showEpoch(found);
      show(form, now.isNow);
      await showConfig(now);
      const kept = (await get("v1/self-preservation", {}, { signal })).body;
      put(preservation, kept.percent ? `Expiry stops if more than ${kept.percent} % of the brokers are silent. ` : "Self-preservation is off. ",
        `Now ${kept.live} brokers are live and ${kept.silent} are silent.`, kept.isOn ? ` Expiry has been stopped since ${both(kept.since)}.` : "");
      epochs.setRows((await get("v1/epochs", { limit: EPOCHS, before: now.isNow ? null : found.epoch + 1 }, { signal })).body.epochs);
    },
  };
}
