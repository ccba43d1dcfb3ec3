// SPDX-License-Identifier: Apache-2.0
// A command as a line, and the panel next to a table of changes: each row before and after, client, result, and other changes of
// the same client. The address has the key of the change.

import { get } from "./api.js";
import { button, h, plainTable, put, show } from "./dom.js";
import { changesOf, here, link, set, topicLink } from "./place.js";
import { both, plainUtc, toSecond } from "./times.js";
import { arrow, brief, outcome, perm } from "./words.js";

const OTHERS = 20;
const OTHER_ROWS = 1000; // a registration alone may have hundreds
const TOPICS = 100;
const PARTS = 20;
const TIMES = /(Timestamp|^dataVersionTimestamp)$/;

/**
 * A line for each command, with its rows in `all`. Changes without a client, which are expiries, have a line for each broker.
 * The line is like the first of its rows, those with a topic before others.
 */
export function commands(rows) {
  const found = new Map();
  for (const row of rows) {
    const same = JSON.stringify([row.epoch, row.offset, row.command, row.outcome, row.actor ? null : row.brokerName]);
    if (found.has(same)) found.get(same).push(row);
    else found.set(same, [row]);
  }
  return [...found.values()].map((all) => {
    const first = all.find((row) => row.tableName && row.topic) ?? all.find((row) => row.tableName) ?? all[0];
    return { ...first, all: [first, ...all.filter((row) => row !== first)] };
  });
}

/** The rows of a line that changed a table. Those that differ in their topic alone are the first of them, all of them in `alike`. */
function parts(line) {
  const found = new Map();
  for (const row of (line.all ?? [line]).filter((each) => each.tableName)) {
    const { topic, ...key } = row.key ?? {};
    const same = JSON.stringify([row.tableName, key, row.before, row.after, topic === undefined]);
    if (found.has(same)) found.get(same).alike.push(row);
    else found.set(same, { ...row, alike: [row] });
  }
  return [...found.values()];
}

/** What a line changed, in a few words: "perm 6 → 4", or for several kinds of rows "+45 topicQueueTable, ~1 brokerLiveTable". */
export function difference(line) {
  const own = parts(line);
  if (own.length < 2) return own.length ? arrow(own[0].before, own[0].after) : "";
  const numbers = new Map();
  for (const { tableName, before, after, alike } of own) {
    const name = `${!before ? "+" : !after ? "−" : "~"} ${tableName}`;
    numbers.set(name, (numbers.get(name) ?? 0) + alike.length);
  }
  return [...numbers].map(([name, number]) => name.replace(" ", `${number} `)).join(", ");
}

export class ChangePanel {
  /** @param {function} find a row by its key, or undefined; what the address names is looked up by it */
  constructor(find) {
    this.find = find;
    this.key = null;
    this.title = h("h2", { tabindex: -1 });
    this.body = h("div");
    this.others = h("div");
    this.element = h("aside", { class: "panel", "aria-label": "The change in full", hidden: true, on: { keydown: (event) => this.keyed(event) } },
      h("div", { class: "panelhead" }, this.title, button("Close", () => this.close(), { "aria-label": "Close the panel" })),
      this.body, this.others);
  }

  /** Open, from a table's button. */
  open(key, opener) {
    this.opener = opener;
    set({ change: key }, { replace: true });
    this.update();
    this.title.focus({ preventScroll: true });
  }

  close() {
    const { key } = this;
    set({ change: null }, { replace: true });
    this.update();
    const again = lines().find((line) => line.dataset.key === key);
    (again?.querySelector("button.open") ?? this.opener)?.focus();
  }

  keyed(event) {
    if (event.key !== "Escape") return;
    event.preventDefault();
    event.stopPropagation();
    this.close();
  }

  /** Show the change of the address. Rows are loaded again while the panel is open, so the same change is not drawn again. */
  update() {
    const key = here().params.get("change");
    const row = key === null ? undefined : this.find(key);
    show(this.element, row !== undefined);
    for (const line of lines()) line.ariaCurrent = line.dataset.key === key ? "true" : null;
    if (row === undefined || key === this.key) {
      if (row === undefined) this.key = null;
      return;
    }
    this.key = key;
    const own = parts(row);
    put(this.title, row.command ?? brief(row.key));
    put(this.body, facts(row), own.slice(0, PARTS).map((each) => [sides(each), topics(each)]),
      own.length ? null : h("p", { class: "quiet" }, "No row is different."), own.length > PARTS ? more(own.length - PARTS) : null);
    put(this.others);
    this.askOthers(row).catch(() => put(this.others)); // the panel goes without them
  }

  async askOthers(row) {
    const address = hostOf(row.actor?.peer);
    if (!address) return;
    const { body } = await get("v1/changes", { peer: address, limit: OTHER_ROWS, to: here().params.get("as_of") });
    if (this.key !== here().params.get("change")) return;
    const others = commands(body.changes).filter((each) => each.offset !== row.offset).slice(0, OTHERS);
    put(this.others, h("h3", null, `Other changes from ${address}`),
      others.length ? h("ul", { class: "others" }, others.map((each) => h("li", null,
        h("a", { href: link("audit", "", { ...changesOf(each.epoch), peer: address }) }, toSecond(each.eventTime)),
        ` ${each.command} ${[each.topic, each.brokerName].filter(Boolean).join(" of ")}`)))
        : h("p", { class: "quiet" }, body.nextCursor ? `None in the newest ${OTHER_ROWS} rows.` : "None."),
      h("p", null, h("a", { href: link("audit", "", { from: null, peer: address }) }, `All changes from ${address}`)));
  }
}

function facts(row) {
  const { actor } = row;
  const entries = [
    ["Time", row.eventTime && both(row.eventTime)],
    ["Epoch", row.epoch !== undefined && h("a", { href: link("compare", "", { from: String(Math.max(1, row.epoch - 1)), as_of: String(row.epoch) }), title: "Everything that this epoch changed" }, row.epoch)],
    ["Log offset", row.offset],
    ["Result", row.outcome && outcomeCell(row)],
    ["User", actor?.user],
    ["From", actor?.peer ?? (row.command === "BROKER_EXPIRED" ? "no client: the deadline of the broker passed" : null)],
    ["Gateway", actor && [actor.gateway, actor.via && ` by ${actor.via}`]],
  ];
  return definitions(entries.filter(([, value]) => value !== null && value !== undefined && value !== false && value !== ""));
}

const definitions = (entries) => h("dl", { class: "whole" }, entries.map(([name, value]) => [h("dt", null, name), h("dd", null, value)]));

/** The fields of a row side by side, those that are different first. */
function sides({ tableName, key, before, after }) {
  const names = [...new Set([...Object.keys(before ?? {}), ...Object.keys(after ?? {})])];
  const isSame = (name) => before && after && JSON.stringify(before[name] ?? null) === JSON.stringify(after[name] ?? null);
  const [same, different] = [names.filter(isSame), names.filter((name) => !isSame(name))];
  const table = (some) => plainTable(["Field", "Before", "After"], some.map((name) => [h("th", { scope: "row" }, name),
    h("td", { class: before && !isSame(name) ? "was" : null }, before ? typed(name, before[name]) : "no row"),
    h("td", { class: after && !isSame(name) ? "is" : null }, after ? typed(name, after[name]) : "no row")]), { class: "sides" });
  return [h("h3", null, `${before && after ? "Changed" : before ? "Removed" : "Added"}: ${tableName}`),
    definitions(Object.entries(key ?? {}).map(([name, value]) => [name, typed(name, value)])),
    different.length ? table(different) : null,
    same.length ? h("details", null, h("summary", null, `${same.length} unchanged fields`), table(same)) : null];
}

/** A value by its type: permissions as letters, times as times, texts in quotes. */
function typed(name, value) {
  if (value === null || value === undefined) return h("span", { class: "quiet" }, "none");
  if (name === "perm") return perm(value);
  if (TIMES.test(name) && typeof value === "number" && value > 0) return [plainUtc(value), " UTC"];
  if (typeof value === "object") {
    return h("dl", { class: "inner" }, Object.entries(value).map(([inner, each]) => [h("dt", null, inner), h("dd", null, typed(inner, each))]));
  }
  return h("code", { class: typeof value }, typeof value === "string" ? `"${value}"` : String(value));
}

function topics(row) {
  if (row.alike.length < 2) return null;
  return h("details", null, h("summary", null, `The same for ${row.alike.length} topics`),
    h("ul", { class: "others" }, row.alike.slice(0, TOPICS).map((each) => h("li", null, topicLink(each.topic)))),
    row.alike.length > TOPICS ? more(row.alike.length - TOPICS) : null);
}

const more = (number) => h("p", { class: "quiet" }, `and ${number} more: tick "each row", or take the CSV.`);

/** An address without its port, as the filter of the Audit Log takes it. */
function hostOf(peer) {
  return peer ? peer.replace(/:\d+$/, "").replace(/^\[|\]$/g, "") : "";
}

const lines = () => [...document.querySelectorAll("tr[data-key]")];

/** A cell that shows the result of a command. */
export const outcomeCell = (row) => h("span", { class: row.outcome === "rejected" ? "bad" : null }, outcome(row));

/** A cell that shows "before → after" and opens the panel. */
export function openCell(panel, key, row) {
  const text = difference(row);
  const props = { class: "open", title: text || "Show the change in full", "aria-label": `Show in full: ${row.command ?? ""} ${text}` };
  return button(text || "details", (event) => panel.open(key, event.currentTarget), props);
}

/** A table with the panel next to it. */
export function withPanel(table, panel) {
  return h("div", { class: "beside" }, table.element, panel.element);
}
