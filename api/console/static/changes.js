// SPDX-License-Identifier: Apache-2.0
// The table of changes of Dashboard, History and Audit Log.

import { ChangePanel, besides, openCell } from "./change_panel.js";
import { h } from "./dom.js";
import { brokerLink, link, topicLink } from "./place.js";
import { Table } from "./table.js";
import { both, plainUtc, utc } from "./times.js";
import { arrow, brief, who } from "./words.js";

const changeColumns = (panel) => [
  { name: "time", title: "Time (UTC)", width: 25, value: (row) => row.eventTime, cell: (row) => h("time", { datetime: row.eventTime, title: both(row.eventTime) }, plainUtc(row.eventTime)) },
  { name: "epoch", title: "Epoch", numeric: true, cell: (row) => h("a", { href: at(row), title: "See everything as it was then" }, row.epoch) },
  { name: "operation", title: "Operation Type", value: (row) => row.command, cell: (row) => h("span", { title: row.command }, row.command) },
  { name: "operator", title: "Operator", value: (row) => row.actor?.user ?? "" },
  { name: "address", title: "IP Address", value: (row) => row.actor?.peer ?? "" },
  { name: "target", title: "Target", value: target, cell: targetCell },
  { name: "change", title: "Before → After", value: (row) => arrow(row.before, row.after), width: 26, cell: (row) => openCell(panel, changeKey(row), row) },
  { name: "result", title: "Result", value: (row) => row.outcome + (row.reason ? `: ${row.reason}` : ""), cell: (row) => h("span", { class: row.outcome === "rejected" ? "bad" : null }, row.outcome, row.reason ? `: ${row.reason}` : "") },
];

/** Rows that one cause changed alike in several topics are one line, until "each row" is ticked. CSV has each row. */
export class ChangesTable extends Table {
  constructor({ tools = [], ...told }) {
    const panel = new ChangePanel((key) => this.rows.find((row) => changeKey(row) === key) ?? this.each.find((row) => changeKey(row) === key));
    const box = h("input", { type: "checkbox", on: { change: () => this.setRows(this.each) } });
    super({ ...told, key: changeKey, columns: changeColumns(panel), tools: [tools, h("label", null, box, " each row")] });
    this.box_each = box;
    this.each = [];
    this.panel = panel;
    this.element = besides(this, panel);
  }

  setRows(rows) {
    this.each = rows;
    super.setRows(this.box_each.checked ? rows : together(rows));
    this.panel.update();
  }

  /** A line is found by each of its topics. */
  text(row) {
    return [super.text(row), ...(row.alike ?? []).slice(1).map((each) => each.topic.toLowerCase())].join("\u0001");
  }

  exported() {
    return this.shown.flatMap((row) => row.alike ?? [row]);
  }
}

/** Rows that differ in their topic alone become the first of them, with all of them in `alike`. */
function together(rows) {
  const found = new Map();
  for (const row of rows) {
    const { topic, ...key } = row.key ?? {};
    const same = topic === undefined ? changeKey(row)
      : JSON.stringify([row.epoch, row.offset, row.tableName, row.command, row.outcome, key, row.before, row.after]);
    const first = found.get(same);
    if (first) first.alike.push(row);
    else found.set(same, { ...row, alike: [row] });
  }
  return [...found.values()];
}

/** The identity of a change. */
const changeKey = (row) => `${row.epoch}/${row.offset}/${row.seq}/${row.tableName ?? ""}/${brief(row.key)}`;

/** Sender, command and time of a change, in one line. */
export function lastChange(row) {
  return row ? `${who(row.actor) || "time"} · ${row.command} · ${utc(row.eventTime)}` : "";
}

function target(row) {
  return [row.tableName, row.topic, more(row), row.brokerName].filter(Boolean).join(" ");
}

const more = (row) => (row.alike?.length > 1 ? `and ${row.alike.length - 1} more` : "");

function targetCell(row) {
  return h("span", { title: `${row.tableName ?? "the command"} ${brief(row.key)}` },
    row.topic ? topicLink(row.topic) : null,
    more(row) && ` ${more(row)}`,
    row.topic && row.brokerName ? " of " : null,
    row.brokerName ? brokerLink(row.brokerName) : null,
    !row.topic && !row.brokerName ? brief(row.key) : null);
}

function at(row) {
  return row.topic ? link("topic", row.topic, { as_of: row.epoch }) : link("cluster", "", { as_of: row.epoch });
}
