// SPDX-License-Identifier: Apache-2.0
// Compare: what is different between two moments, whatever happened in between.

import { pages } from "./api.js";
import { ChangePanel, besides, openCell } from "./change_panel.js";
import { sqlMoment } from "./copyas.js";
import { h, put } from "./dom.js";
import { between, cliOptions, filters } from "./page_audit.js";
import { link, here, set } from "./place.js";
import { Table } from "./table.js";
import { both, moment } from "./times.js";
import { arrow, brief } from "./words.js";

const MOST_PAGES = 50;
const OPS = { i: "only later", d: "only earlier", u: "different" };

/** The page. */
export function comparePage() {
  let at = null;
  const from = h("input", { type: "text", "aria-label": "Compare from: epoch, time, -2h", placeholder: "epoch, time, -2h", value: here().params.get("from") ?? "" });
  const said = h("p", { role: "status" });
  const keyOf = (row) => `${row.tableName}/${brief(row.key)}`;
  const panel = new ChangePanel((key) => table.rows.find((row) => keyOf(row) === key));
  const table = new Table({
    caption: "Differences", isMain: true, key: keyOf,
    columns: [
      { name: "table", title: "Table", value: (row) => row.tableName },
      { name: "what", title: "What", value: (row) => OPS[row.op] },
      { name: "target", title: "Target", value: (row) => brief(row.key), cell: (row) => (row.key.topic ? h("a", { href: link("history", row.key.topic) }, brief(row.key)) : brief(row.key)) },
      { name: "before", title: "Before", isExported: true, value: (row) => brief(row.before) },
      { name: "after", title: "After", isExported: true, value: (row) => brief(row.after) },
      { name: "change", title: "Before → After", value: (row) => arrow(row.before, row.after), cell: (row) => openCell(panel, keyOf(row), row) },
    ],
    copy: () => {
      const asked = between(at);
      return {
        sql: `FROM diff_between(${sqlMoment(asked.from ?? "1")}, ${sqlMoment(asked.to)})`, path: "v1/diff", params: asked,
        cli: ["history", "diff", ...cliOptions(asked)],
      };
    },
  });

  function begin(event) {
    event.preventDefault();
    const found = moment(from.value);
    if (found === null || found === "now") put(said, "from: an epoch, a time such as 2026-01-31 03:00, 02:55, or -2h");
    else set({ from: found });
  }

  return {
    element: h("div", null,
      h("form", { class: "filters", on: { submit: begin } }, h("label", null, "from ", from), h("button", null, "Compare"), h("span", null, " with the moment of the bar")),
      filters(), said, besides(table, panel)),
    async load(now) {
      at = now;
      const asked = between(now);
      if (document.activeElement !== from) from.value = here().params.get("from") ?? "";
      if (asked.from === null) {
        put(said, "Enter a time in \"from\", or mark a range on the time bar (m), to see what is different.");
        table.setRows([]);
        return;
      }
      const rows = [];
      const found = await pages("v1/diff", asked, { signal: now.signal, most: MOST_PAGES, take: (body) => rows.push(...body.differences) });
      const { from: earlier, to: later } = found.body;
      put(said, `Before is epoch ${earlier.epoch} of ${both(earlier.eventTime)}; after is epoch ${later.epoch} of ${both(later.eventTime)}. `,
        found.body.nextCursor ? `More than ${rows.length} rows are different; these are the first.` : `${rows.length} rows are different.`);
      now.cut({ epoch: later.epoch, eventTime: later.eventTime });
      table.setRows(rows);
      panel.update();
    },
  };
}
