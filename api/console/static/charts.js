// SPDX-License-Identifier: Apache-2.0
// Intervals as a strip of time. Decoration: the table beside it says the same.

import { h, svg } from "./dom.js";
import { utc } from "./times.js";

const WIDTH = 1000;
const HEIGHT = 24;

/**
 * A strip, the earliest on the left, over its times and what the colours mean.
 * @param {Array<{from, to, kind, text}>} intervals newest first; to null: still; kind is a class: good, half, none
 * @param {Object} legend words by kind
 * @param {number} end_ms the moment that is shown
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
