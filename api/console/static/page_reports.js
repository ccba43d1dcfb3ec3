// SPDX-License-Identifier: Apache-2.0
// Reports on the window of the time bar: a chart, a table, and a link from each row to the changes behind it. GET /v1/reports
// defines the reports, so this module names none of them.

import { windowOf } from "./activity.js";
import { apiPath, get } from "./api.js";
import { bars } from "./charts.js";
import { options } from "./copyas.js";
import { h, put, show } from "./dom.js";
import { brokerLink, changesOf, here, link, set, topicLink } from "./place.js";
import { Plot } from "./plot.js";
import { Table } from "./table.js";
import { ThrottledQuery } from "./throttled_query.js";
import { both, plainUtc } from "./times.js";

const MAX_ROWS = 5000; // of a page of GET /v1/reports/{name}
const TIME = /^\d{4}-\d\d-\d\dT.*Z$/;

/** The list of reports, or one of them. */
export function reportsPage(name) {
  let body = null; // the answer that is shown
  let asked = {};
  const names = h("nav", { class: "reports", "aria-label": "Reports" });
  const list = h("dl", { class: "list" });
  const title = h("h2");
  const row = h("p");
  const times = h("input", { type: "number", min: 0, on: { change: () => set({ times: times.value }) } });
  const timesField = h("p", { hidden: true }, h("label", null, "times ", times));
  const said = h("p", { role: "status" });
  const chart = h("div", { class: "chart" });
  const holder = h("div");
  const query = new ThrottledQuery(apiPath("reports", name), () => holder.isConnected);
  let table = null; // made when the answer names the columns

  const copy = () => ({
    sql: body?.sql, path: query.path, params: asked, cli: ["history", "report", name, ...options({ from: asked.from, to: asked.to, times: asked.times })],
  });

  function draw(spec) {
    const { columns, rows } = body;
    table ??= columns.length ? new Table({ caption: spec.title, isMain: true, copy, key: keyOf(spec), columns: columnsOf(spec, body), empty: "Nothing to report in this window. Mark a longer range on the time bar." }) : null;
    put(holder, table?.element);
    table?.setRows(rows);
    const until = body.to ? ` to ${both(body.to)}` : "";
    put(said, !columns.length ? "Nothing has happened yet. A report shows what the brokers of this routelake do."
      : `From ${body.from ? both(body.from) : "the beginning"}${until}. `,
    body.nextCursor ? `These are the first ${rows.length} rows. Mark a shorter range, or use the command of "Copy as", which has no limit.` : null);
    put(chart, picture(spec, body));
  }

  return {
    title: name ? `Report: ${name}` : undefined,
    element: h("div", null, names, list, title, row, timesField, said, chart, holder),
    async load(now) {
      const specs = (await get("v1/reports", {}, { signal: now.signal })).body.reports;
      const spec = specs.find((each) => each.name === name);
      await now.showTime();
      put(names, specs.map((each) => h("a", { href: link("reports", each.name), "aria-current": each === spec ? "page" : null }, each.name)));
      show(list, !spec);
      put(list, spec ? null : specs.map((each) => [h("dt", null, h("a", { href: link("reports", each.name) }, each.title)), h("dd", null, `A row is ${each.row}.`)]));
      put(said, name && !spec ? `There is no report ${name}.` : null);
      if (!spec) return;
      put(title, spec.title);
      put(row, `A row is ${spec.row}.`);
      show(timesField, spec.times !== undefined);
      times.value = here().params.get("times") ?? spec.times ?? "";
      asked = { ...windowOf(now), times: spec.times === undefined ? null : here().params.get("times") };
      const found = await query.ask({ ...asked, limit: MAX_ROWS }, now);
      if (found === null) return; // another window is asked for
      query.reloadIfOld(now);
      if (found === body) return;
      body = found;
      draw(spec);
    },
  };
}

const keyOf = (spec) => (row) => [row[spec.label], ...Object.values(spec.filters).map((column) => row[column]), row.firstEpoch].join("/");

/** Columns as the gateway names them. The two epochs become one link; CSV has both. */
function columnsOf(spec, { columns, rows }) {
  const of = (name) => {
    const some = rows.find((row) => row[name] !== null)?.[name];
    const isTime = TIME.test(some);
    return {
      name, title: isTime ? `${name} (UTC)` : name, numeric: typeof some === "number", width: isTime ? 26 : undefined,
      value: (row) => row[name] ?? "", cell: isTime ? (row) => (row[name] === null ? "" : plainUtc(row[name])) : LINKS[name] && ((row) => row[name] && LINKS[name](row[name])),
    };
  };
  return [
    { name: "firstEpoch", title: "Changes", width: 16, cell: (row) => changesLink(spec, row) },
    ...columns.filter((name) => !["firstEpoch", "lastEpoch"].includes(name)).map(of),
    { name: "lastEpoch", isExported: true },
  ];
}

const LINKS = { topic: topicLink, brokerName: brokerLink };

/** The changes behind a row, in the Audit Log. */
function changesLink(spec, row) {
  const { firstEpoch, lastEpoch } = row;
  const filters = Object.fromEntries(Object.entries(spec.filters).map(([filter, column]) => [filter, row[column]]));
  return h("a", { href: link("audit", "", { ...spec.fixedFilters, ...filters, ...changesOf(firstEpoch, lastEpoch) }) }, firstEpoch === lastEpoch ? `epoch ${firstEpoch}` : `epochs ${firstEpoch} to ${lastEpoch}`);
}

/** Over time, if the label is a time; otherwise a bar for each label. */
function picture(spec, { columns, rows, to }) {
  if (!rows.length) return null;
  if (!TIME.test(rows[0][spec.label])) return bars(rows, spec);
  const isState = columns.includes("validTo"); // a row is true until the next one, the last one until the end of the window
  const shown = isState ? [...rows, { ...rows.at(-1), [spec.label]: to }] : rows;
  const points = shown.map((row) => ({ start: Date.parse(row[spec.label]), ...row }));
  const plot = new Plot({
    title: `${spec.values.join(", ")} by ${spec.label}`, isStacked: !isState, hasTable: false,
    linkTo: ([point]) => changesLink(spec, point).getAttribute("href"),
    onSelect: (some) => some.length && set({ from: String(Math.max(1, some[0].firstEpoch - 1)), as_of: String(some.at(-1).lastEpoch) }),
  });
  plot.set(points, spec.values.map((name) => ({ name, values: shown.map((row) => row[name]) })));
  return plot.element;
}
