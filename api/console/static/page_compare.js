// SPDX-License-Identifier: Apache-2.0
// Compare: the differences between two points in time.

import { pages } from "./api.js";
import { ChangePanel, withPanel, openCell } from "./change_panel.js";
import { h, put } from "./dom.js";
import { fromForm } from "./from_form.js";
import { between, cliOptions, filters, sqlBetween } from "./page_audit.js";
import { link } from "./place.js";
import { Table } from "./table.js";
import { both } from "./times.js";
import { arrow, brief } from "./words.js";

const MOST_PAGES = 50;
const OPS = { i: "only later", d: "only earlier", u: "different" };

/** The page. */
export function comparePage() {
  let at = null;
  const from = fromForm("Compare from", h("span", null, " with the time of the bar"));
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
        sql: sqlBetween("diff_between", asked, ["command", "outcome", "user"]), path: "v1/diff", params: asked,
        cli: ["history", "diff", ...cliOptions(asked)],
      };
    },
  });

  return {
    element: h("div", null, from.element, filters(), said, withPanel(table, panel)),
    async load(now) {
      at = now;
      const asked = between(now);
      from.show();
      if (asked.from === null) {
        put(said);
        await now.showTime();
        table.empty = "Enter the earlier time in \"Compare from\", or mark a range on the time bar (m).";
        table.setRows([]);
        return;
      }
      const rows = [];
      const found = await pages("v1/diff", asked, { signal: now.signal, most: MOST_PAGES, take: (body) => rows.push(...body.differences) });
      const { from: earlier, to: later } = found.body;
      put(said, `Before is epoch ${earlier.epoch} of ${both(earlier.eventTime)}. After is epoch ${later.epoch} of ${both(later.eventTime)}. `,
        found.body.nextCursor ? `More than ${rows.length} rows are different. These are the first.` : `${rows.length} rows are different.`);
      now.showEpoch({ epoch: later.epoch, eventTime: later.eventTime });
      table.empty = "Nothing is different. Enter an earlier time, or remove a filter.";
      table.setRows(rows);
      panel.update();
    },
  };
}
