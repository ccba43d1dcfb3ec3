// SPDX-License-Identifier: Apache-2.0
// A table of any length. Only the visible rows are in the document; a screen reader is told of all of them (aria-rowcount,
// aria-rowindex). It has a filter, an order, CSV of the filtered rows, "Copy as", and a button in each cell that is cut off.

import { copyButton } from "./copyas.js";
import { button, dialog, h, put, show } from "./dom.js";
import { here, set } from "./place.js";

const ROW_PX = 32; // as in style.css
const SPARE_ROWS = 8;
const REST_MS = 300;
const room = (text) => text.length + 0.3 * (text.match(/[A-Z_]/g)?.length ?? 0); // capitals are wider
const CONTROLS = "a, button:not(.whole)";
const MOST_CH = 32;
const LETTER_CH = 0.9; // of what is not digits, on the average
const SAMPLE = 500; // rows that a column's width is taken from
// What a spreadsheet may take for a formula: the rule of lake/history/change_json.py, FORMULA.
const RISKY = /^[\s\u0000-\u0020\u007f-\u00a0\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff\u0022'\u2018-\u201f\uff02\uff07]*[=+\-@\t\r\n\u2212\ufe62\ufe63\ufe66\ufe6b\uff0b\uff0d\uff1d\uff20]/;

export class Table {
  /**
   * @param {Object} told
   * @param {string} told.caption what it is, for those who do not see it
   * @param {Array<{name, title, value, cell, numeric, width, narrow, isRest, isExtra, isExported}>} told.columns `value(row)` is what is sorted, filtered
   *   and exported, without it the member of this name; `cell(row)` what is shown, where that is more; `title`, without it the
   *   name; `width` is in characters, without it as wide as its values; the last one, or that of `isRest`, has the
   *   rest; `isExtra`: not shown in a narrow window; `narrow`: the width there; `isExported`: in the CSV alone
   * @param {function} told.key identity of a row, across reloads
   * @param {function} told.copy the query of the table for copyButton, when it is pressed
   * @param {function} told.accept a condition on rows beside the filter
   * @param {function} told.onVisible gets the rows in sight when scrolling has come to rest
   * @param {Array} told.tools more controls
   * @param {boolean} told.isMain its filter is in the address: one table of a page
   * @param {string|Array} told.empty shown if there are no rows: why, and what to do
   * @param {function} told.elsewhere gets the filter if no row matches: where else to look
   */
  constructor({ caption, columns, key, copy, accept = () => true, onVisible = null, tools = [], isMain = false, empty = "There are no rows.", elsewhere = () => null }) {
    const all = columns.map((column) => ({ title: column.name, value: (row) => row[column.name], ...column }));
    Object.assign(this, { all, columns: all.filter((column) => !column.isExported), key, accept, onVisible, caption, isMain, empty, elsewhere });
    this.rows = [];
    this.shown = [];
    this.order = null; // {column, isDown}
    this.filter = h("input", {
      type: "search", placeholder: "Filter", "aria-label": `Filter ${caption}`, value: isMain ? here().params.get("q") ?? "" : "",
      on: { input: () => this.narrow() },
    });
    this.count = h("output", { class: "count" });
    this.heads = this.columns.map((column) => h("th", { scope: "col", class: classOf(column) },
      button(column.title, () => this.sort(column))));
    this.widths = this.columns.map((column) => column.width ?? room(column.title) + 4);
    this.body = h("tbody");
    this.table = h("table", null, h("caption", { class: "unseen" }, caption),
      h("thead", null, h("tr", { "aria-rowindex": 1 }, this.heads)), this.body);
    this.box = h("div", {
      class: "scroll", tabindex: 0, role: "region", "aria-label": caption, on: { scroll: () => this.later() },
    }, this.table);
    this.none = h("p", { class: "empty", hidden: true });
    this.element = h("div", { class: "table" },
      h("div", { class: "tools" }, this.filter, tools, this.count, button("CSV", () => this.save()), copy ? copyButton(copy) : null),
      this.none, this.box);
    new ResizeObserver(() => {
      this.later();
      this.markLater();
    }).observe(this.box);
    this.fit();
  }

  /** Show others; the place that is scrolled to, the filter and the focus stay. */
  setRows(rows) {
    this.rows = rows;
    this.texts = new Map();
    this.fit();
    this.narrow();
  }

  /** Columns become as wide as what they hold, and no narrower again: a live update moves nothing. */
  fit() {
    const step = Math.max(1, Math.floor(this.rows.length / SAMPLE));
    this.columns.forEach((column, index) => {
      if (column.width) return;
      for (let at = 0; at < this.rows.length; at += step) {
        this.widths[index] = Math.max(this.widths[index], Math.min(MOST_CH, room(String(column.value(this.rows[at]) ?? "")) + 1));
      }
    });
    const rest = this.columns.find((column) => column.isRest) ?? this.columns.at(-1);
    this.heads.forEach((head, index) => { head.style.width = this.columns[index] === rest ? "" : `calc(${LETTER_CH * this.widths[index]}ch + 1rem)`; });
    const least = (some) => `calc(${LETTER_CH * some.reduce((sum, [width]) => sum + width, 0)}ch + ${some.length}rem)`;
    const widths = this.columns.map((column, index) => [this.widths[index], column]);
    this.table.style.setProperty("--wide", least(widths));
    this.table.style.setProperty("--narrow", least(widths.filter(([, column]) => !column.isExtra).map(([width, column]) => [column.narrow ?? width])));
  }

  /** Values of some rows have come in: paint them again. */
  refresh(row) {
    this.texts?.delete(row);
    this.paint(true, false);
  }

  narrow() {
    const words = this.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const q = this.filter.value.trim();
    if (this.isMain && q !== (here().params.get("q") ?? "")) set({ q }, { replace: true });
    this.shown = this.rows.filter((row) => this.accept(row) && words.every((word) => this.text(row).includes(word)));
    if (this.order) {
      const { column, isDown } = this.order;
      const sign = isDown ? -1 : 1;
      this.shown.sort((a, b) => sign * compare(column.value(a), column.value(b)));
    }
    put(this.count, this.shown.length === this.rows.length ? `${this.rows.length}` : `${this.shown.length} of ${this.rows.length}`);
    this.table.setAttribute("aria-rowcount", this.shown.length + 1);
    put(this.none, this.rows.length || q ? ["No row matches the filter. ", this.elsewhere(q)] : this.empty);
    show(this.none, !this.shown.length);
    show(this.box, this.shown.length > 0);
    this.paint(true);
  }

  sort(column) {
    const isDown = this.order?.column === column && !this.order.isDown;
    this.order = { column, isDown };
    this.heads.forEach((head, index) => {
      if (this.columns[index] === column) head.setAttribute("aria-sort", isDown ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    this.narrow();
  }

  later() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      this.paint(false);
    });
  }

  paint(isNew, isAsking = true) {
    const first = Math.max(0, Math.floor(this.box.scrollTop / ROW_PX) - SPARE_ROWS);
    const room = Math.ceil((this.box.clientHeight || 640) / ROW_PX) + 2 * SPARE_ROWS;
    const last = Math.min(this.shown.length, first + room);
    if (!isNew && first === this.first && last === this.last) return;
    [this.first, this.last] = [first, last];
    const focused = this.focused();
    put(this.body, gap(first), this.shown.slice(first, last).map((row, index) => this.line(row, first + index)),
      gap(this.shown.length - last));
    if (focused) this.focus(focused);
    this.markLater();
    if (this.onVisible && isAsking) {
      clearTimeout(this.resting);
      this.resting = setTimeout(() => this.onVisible(this.shown.slice(first, last)), REST_MS);
    }
  }

  line(row, index) {
    const key = this.key(row);
    return h("tr", { "data-key": key, "aria-current": key === here().params.get("change") ? "true" : null, "aria-rowindex": index + 2, class: index % 2 ? "odd" : null },
      this.columns.map((column) => h("td", { class: classOf(column) }, (column.cell ?? column.value)(row))));
  }

  focused() {
    const at = document.activeElement?.closest?.("tr[data-key]");
    if (!at || !this.body.contains(at)) return null;
    const { activeElement } = document;
    return { key: at.dataset.key, index: [...at.querySelectorAll(CONTROLS)].indexOf(activeElement), cell: activeElement.closest("td").cellIndex };
  }

  focus({ key, index, cell }) {
    this.lineOf(key)?.querySelectorAll(CONTROLS)[index]?.focus({ preventScroll: true });
    if (index < 0) this.unmarked = { key, cell }; // its button comes again with the next marks
  }

  lineOf(key) {
    return [...this.body.children].find((each) => each.dataset.key === key);
  }

  /** When scrolling has come to rest: to find the cells that are cut off needs their layout. */
  markLater() {
    clearTimeout(this.marking);
    this.marking = setTimeout(() => this.mark(), REST_MS);
  }

  mark() {
    this.body.querySelectorAll(".whole").forEach((each) => each !== document.activeElement && each.remove());
    const cut = [...this.body.querySelectorAll("tr[data-key] > td")].filter((cell) => cell.scrollWidth > cell.clientWidth && !cell.querySelector(".open, .whole"));
    for (const cell of cut) {
      const { title } = this.columns[cell.cellIndex];
      const text = cell.textContent;
      const place = { key: cell.parentElement.dataset.key, cell: cell.cellIndex };
      cell.append(button("…", () => {
        const box = dialog(title, { onClose: () => this.focusWhole(place) }, h("h2", null, title), h("p", { class: "full" }, text), button("Close", () => box.close()));
      }, { class: "whole", "aria-label": `Show in full: ${title}`, "aria-haspopup": "dialog" }));
    }
    const { unmarked } = this;
    this.unmarked = null;
    if (unmarked && document.activeElement === document.body) this.focusWhole(unmarked);
  }

  /** Focus the button of a cell that is cut off, now or with the next marks: the row may be drawn again at any time. */
  focusWhole({ key, cell }) {
    const whole = this.lineOf(key)?.children[cell].querySelector(".whole");
    if (whole) whole.focus({ preventScroll: true });
    else this.unmarked = { key, cell };
  }

  text(row) {
    let found = this.texts.get(row);
    if (found === undefined) {
      found = this.columns.map((column) => column.value(row) ?? "").join("\u0001").toLowerCase();
      this.texts.set(row, found);
    }
    return found;
  }

  /** The rows that a CSV has. */
  exported() {
    return this.shown;
  }

  save() {
    const lines = [this.all.map((column) => column.name), ...this.exported().map((row) => this.all.map((column) => column.value(row)))];
    saveAs(`${this.caption.replace(/\W+/g, "-")}.csv`, "text/csv", lines.map((line) => `${line.map(field).join(",")}\r\n`).join(""));
  }
}

/** Hand a text over as a file. */
export function saveAs(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

const classOf = ({ numeric, isExtra }) => [numeric && "n", isExtra && "extra"].filter(Boolean).join(" ") || null;

function gap(rows) {
  if (!rows) return null;
  const cell = h("td", { class: "gap" });
  cell.style.height = `${rows * ROW_PX}px`;
  return h("tr", { "aria-hidden": "true" }, cell);
}

function field(value) {
  const text = String(value ?? "");
  const safe = typeof value === "string" && RISKY.test(text) ? `'${text}` : text;
  return /[",;\t\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

function compare(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  if (a === null || a === undefined) return b === null || b === undefined ? 0 : 1;
  if (b === null || b === undefined) return -1;
  return String(a) < String(b) ? -1 : String(a) > String(b) ? 1 : 0;
}
