// SPDX-License-Identifier: Apache-2.0
// Small charts without a library: intervals as a strip of time, and bars by label. Tables have the same data.

import { h, svg } from "./dom.js";
import { utc } from "./times.js";

const WIDTH = 1000;
const HEIGHT = 24;
const MAX_BARS = 24;

/**
 * A strip of time, the earliest on the left, above its first and last time and a legend.
 * @param {Array<{from, to, kind, text}>} intervals newest first; to null: still; kind is a class: good, half, none
 * @param {Object} legend words by kind
 * @param {number} end_ms the time that is shown
 */
export function strip(intervals, legend, end_ms) {
  if (!intervals.length) return null;
  const begin = Date.parse(intervals.at(-1).from);
  const end = Math.max(end_ms, Date.parse(intervals[0].from) + 1);
  const x = (time) => (WIDTH * ((time === null ? end : Date.parse(time)) - begin)) / (end - begin);
  const bar = svg("svg", { class: "strip", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    intervals.map(({ from, to, kind, text }) => svg("rect", {
      x: x(from), y: 0, height: HEIGHT, width: Math.max(0.5, x(to) - x(from)), class: kind,
    }, svg("title", null, `${text}, ${utc(from)} to ${utc(to ?? end)}`))));
  return h("div", { "aria-hidden": "true" }, bar, h("div", { class: "axis" }, h("span", null, utc(begin)),
    h("span", null, Object.entries(legend).map(([kind, word]) => [h("i", { class: kind }), ` ${word} `])), h("span", null, utc(end))));
}

/**
 * A bar for each label, in as many parts as there are values: the largest of them, as `history report --html` draws them.
 * Decoration: the table has all rows.
 * @param {Array<Object>} rows values of one label are added up
 * @param {{label: string, values: Array<string>}} spec names of columns
 */
export function bars(rows, { label, values }) {
  const sums = new Map();
  for (const row of rows) {
    const parts = sums.get(row[label]) ?? values.map(() => 0);
    sums.set(row[label], parts.map((part, index) => part + (row[values[index]] ?? 0)));
  }
  const total = (parts) => parts.reduce((sum, part) => sum + part, 0);
  const largest = [...sums].sort(([, a], [, b]) => total(b) - total(a)).slice(0, MAX_BARS);
  const most = total(largest[0][1]);
  if (!most) return null;
  return h("figure", { class: "bars-by-label", "aria-hidden": "true" },
    h("figcaption", null, `${values.join(", ")} by ${label}`, sums.size > largest.length ? `: the ${largest.length} largest of ${sums.size}` : null),
    largest.map(([name, parts]) => {
      let x = 0;
      const rects = parts.map((part, index) => {
        const rect = svg("rect", { x, y: 0, width: (WIDTH * part) / most, height: HEIGHT, class: `part${index}` });
        x += (WIDTH * part) / most;
        return rect;
      });
      return [h("span", { class: "name", title: name }, name ?? "none"), svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none" }, rects),
        h("span", { class: "n" }, total(parts).toLocaleString("en", { maximumFractionDigits: 3 }))];
    }));
}
