// SPDX-License-Identifier: Apache-2.0
// The table of changes of Dashboard, History and Audit Log.

import { ChangePanel, commands, difference, openCell, outcomeCell, withPanel } from "./change_panel.js";
import { h } from "./dom.js";
import { brokerLink, link, topicLink } from "./place.js";
import { Table } from "./table.js";
import { both, toSecond } from "./times.js";
import { brief, outcome } from "./words.js";

const changeColumns = (panel) => [
  { name: "time", title: "Time (UTC)", width: 20, value: (row) => row.eventTime, cell: (row) => h("time", { datetime: row.eventTime, title: both(row.eventTime) }, toSecond(row.eventTime)) },
  { name: "epoch", title: "Epoch", numeric: true, isExtra: true, width: 8, cell: (row) => h("a", { href: at(row), title: "See everything as it was then" }, row.epoch) },
  { name: "operation", title: "Operation Type", width: 29, value: (row) => row.command, cell: (row) => h("span", { title: row.command }, row.command) },
  { name: "operator", title: "Operator", isExtra: true, value: (row) => row.actor?.user ?? "" },
  { name: "address", title: "IP Address", isExtra: true, value: (row) => row.actor?.peer ?? "" },
  { name: "target", title: "Target", width: 27, value: target, cell: targetCell },
  { name: "change", title: "Before → After", value: difference, width: 16, isRest: true, cell: (row) => openCell(panel, changeKey(row), row) },
  { name: "result", title: "Result", width: 10, isExtra: true, value: outcome, cell: outcomeCell },
];

/** The rows that a command changed are one line, until "each row" is ticked. CSV has each row. */
export class ChangesTable extends Table {
  constructor({ tools = [], ...told }) {
    const panel = new ChangePanel((key) => this.rows.find((row) => changeKey(row) === key) ?? this.each.find((row) => changeKey(row) === key));
    const box = h("input", { type: "checkbox", on: { change: () => this.setRows(this.each) } });
    super({ ...told, key: changeKey, columns: changeColumns(panel), tools: [tools, h("label", { title: "A line for each changed row, instead of one for each command" }, box, " each row")] });
    this.box_each = box;
    this.each = [];
    this.panel = panel;
    this.element = withPanel(this, panel);
  }

  setRows(rows) {
    this.each = rows;
    super.setRows(this.box_each.checked ? rows : commands(rows));
    this.panel.update();
  }

  /** A line is found by each of its topics. */
  text(row) {
    if (!this.texts.has(row)) this.texts.set(row, [super.text(row), ...namesOf(row, "topic")].join("\u0001").toLowerCase());
    return this.texts.get(row);
  }

  exported() {
    return this.shown.flatMap((row) => row.all ?? [row]);
  }
}

/** The identity of a change. */
const changeKey = (row) => `${row.epoch}/${row.offset}/${row.seq}/${row.tableName ?? ""}/${brief(row.key)}`;

const namesOf = (row, name) => [...new Set((row.all ?? [row]).map((each) => each[name]).filter(Boolean))];

/** The target as texts and [name, link]: "orders of broker-a", or "broker-a: orders and 3 more". */
function pieces(row) {
  const [topics, brokers] = [namesOf(row, "topic"), namesOf(row, "brokerName")];
  if (!topics.length && !brokers.length) return [brief(row.key)];
  const some = (names, linkTo) => (names.length ? [[names[0], linkTo], names.length > 1 ? ` and ${names.length - 1} more` : ""] : []);
  const [one, other] = [some(topics, topicLink), some(brokers, brokerLink)];
  const between = (text) => (one.length && other.length ? text : "");
  return topics.length > 1 ? [...other, between(": "), ...one] : [...one, between(" of "), ...other];
}

const target = (row) => `${row.all ? "" : `${row.tableName ?? ""} `}${pieces(row).map((piece) => (Array.isArray(piece) ? piece[0] : piece)).join("")}`;

function targetCell(row) {
  return h("span", { title: row.all ? null : `${row.tableName ?? "the command"} ${brief(row.key)}` },
    pieces(row).map((piece) => (Array.isArray(piece) ? piece[1](piece[0]) : piece)));
}

function at(row) {
  return row.topic ? link("topic", row.topic, { as_of: row.epoch }) : link("cluster", "", { as_of: row.epoch });
}
