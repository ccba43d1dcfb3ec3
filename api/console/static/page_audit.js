// SPDX-License-Identifier: Apache-2.0
// Audit Log: every change and refusal, with filters.

import { get, host } from "./api.js";
import { ChangesTable } from "./changes.js";
import { options, quoted, sqlStart, sqlTime } from "./copyas.js";
import { button, h, show } from "./dom.js";
import { here, markedWindow, set } from "./place.js";
import { saveAs } from "./table.js";

const PAGE = 500;
const FILTERS = {
  topic: "Topic", brokerName: "Broker", cluster: "Cluster", command: "Operation Type", peer: "IP Address", user: "Operator",
};
const OF_CLI = { brokerName: "broker", tableName: "table" };
const IN_SQL = { topic: "topic", brokerName: "brokerName", tableName: "tableName", command: "command", outcome: "outcome", user: "(actor->>'user')" };

/** Parameters of a request for the changes between two points in time, from the address. */
export function between(at) {
  const { params } = here();
  const asked = markedWindow(at.asOf);
  for (const name of [...Object.keys(FILTERS), "outcome", "tableName"]) asked[name] = params.get(name);
  return asked;
}

/** The same as options of `routelake history`. */
export function cliOptions(asked) {
  return options(Object.fromEntries(Object.entries(asked).map(([name, value]) => [OF_CLI[name] ?? name, value])));
}

/** SQL that selects from a macro between the two times, with the filters; null: it cannot filter by cluster or address. */
export function sqlBetween(macro, { from, to, ...asked }, without = []) {
  const wanted = Object.entries(asked).filter(([, value]) => value);
  if (wanted.some(([name]) => !(name in IN_SQL) || without.includes(name))) return null;
  const terms = wanted.map(([name, value]) => `${IN_SQL[name]} = ${quoted(value)}`);
  return `FROM ${macro}(${sqlStart(from)}, ${sqlTime(to)})${terms.length ? ` WHERE ${terms.join(" AND ")}` : ""}`;
}

/** Fields that filter; what is typed there goes into the address. */
export function filters() {
  const { params } = here();
  return h("form", { class: "filters", on: { submit: (event) => event.preventDefault() } },
    Object.entries(FILTERS).map(([name, title]) => h("label", null, title, h("input", {
      name, value: params.get(name) ?? "", on: { change: (event) => set({ [name]: event.target.value.trim() }) },
    }))),
    h("label", null, "Result", h("select", { on: { change: (event) => set({ outcome: event.target.value }) } },
      ["", "applied", "unchanged", "rejected"].map((value) => h("option", { value, selected: value === (params.get("outcome") ?? "") }, value || "any")))));
}

/** The page. */
export function auditPage() {
  let at = null;
  let rows = [];
  let cursor = null;
  const older = button("Older", more);
  const whole = button("CSV from the gateway", csv);
  const table = new ChangesTable({
    caption: "Audit Log", isMain: true, empty: "No change matches. Remove a filter, or mark a longer range on the time bar.", tools: [older, whole],
    copy: () => {
      const asked = between(at);
      const sql = sqlBetween("changes_between", asked);
      return {
        sql: sql && `${sql} ORDER BY epoch DESC, "offset" DESC`,
        path: "v1/changes", params: { ...asked, limit: PAGE }, cli: ["history", "changes", ...cliOptions(asked)],
      };
    },
  });

  async function page(from) {
    const found = await get("v1/changes", { ...between(at), limit: PAGE, cursor: from }, { signal: at.signal });
    cursor = found.body.nextCursor ?? null;
    show(older, cursor !== null);
    return found.body.changes;
  }

  async function more() {
    rows = [...rows, ...await page(cursor)];
    table.setRows(rows);
  }

  /** With gateway, via, key, before and after in columns of their own. */
  async function csv() {
    const found = await get("v1/changes", { ...between(at), limit: 1000 }, { accept: "text/csv" });
    saveAs(`changes-${host.replace(/\W/g, "-")}.csv`, "text/csv", found.body);
  }

  return {
    element: h("div", null, filters(), table.element),
    async load(now) {
      at = now;
      [rows] = await Promise.all([page(null), now.showTime()]);
      table.setRows(rows);
    },
  };
}
