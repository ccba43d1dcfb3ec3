// SPDX-License-Identifier: Apache-2.0
// A chart over time, drawn by uPlot (vendored), with a table of the same data. Each row of the table has a link to the changes of
// its point, so no pointer is needed.

import { h, plainTable, put } from "./dom.js";
import { toSecond } from "./times.js";

const HEIGHT = 150;
const DRAGGED_PX = 4;
const NEAR = [0, 1, -1, 2, -2]; // a click beside a thin bar means it
const COLOURS = ["--c0", "--c1", "--c2", "--c3", "--c4", "--c5"];
const drawn = new Set();
let library = null;

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawn.forEach((plot) => plot.draw()));

/** uPlot and its style sheet, fetched when the first chart is drawn, so that no other page waits for them. */
function uPlot() {
  library ??= Promise.all([import("./uPlot.esm.js"), new Promise((done) => {
    document.head.prepend(h("link", { rel: "stylesheet", href: "uPlot.min.css", on: { load: done, error: done } }));
  })]).then(([found]) => found.default);
  return library;
}

export class Plot {
  /**
   * @param {Object} told
   * @param {string} told.title what it shows, with its unit
   * @param {boolean} told.isStacked bars, one on the other; else a line of steps
   * @param {Array<string>} told.colours names of CSS variables, of the series in order
   * @param {function} told.linkTo the address of some points' changes, or null
   * @param {function} told.onSelect gets the points over which the pointer was dragged
   * @param {boolean} told.hasTable false: the page has a table of the same data
   */
  constructor({ title, isStacked = false, colours = COLOURS, linkTo, onSelect, hasTable = true }) {
    Object.assign(this, { title, isStacked, colours, linkTo, onSelect, data: null });
    this.picture = h("div", { class: "picture", "aria-hidden": "true" });
    this.none = h("p", { class: "empty", hidden: true });
    this.table = h("div", { class: "numbers", tabindex: 0, role: "region", "aria-label": `${title}, numbers` });
    this.more = h("details", { on: { toggle: () => this.fill() } }, h("summary", null, "Table", h("span", { class: "unseen" }, `: ${title}`)), this.table);
    this.element = h("figure", { class: "plot" }, h("figcaption", null, title), this.none, this.picture, hasTable ? this.more : null);
    new ResizeObserver(() => this.resized()).observe(this.picture);
  }

  /**
   * Show others.
   * @param {Array} points of the activity
   * @param {Array<{name, values}>} series a number for each point
   * @param {string} empty what is said instead of a picture of nothing; null: draw it
   */
  set(points, series, empty = null) {
    this.data = { points, series };
    this.none.hidden = empty === null;
    put(this.none, empty);
    this.picture.hidden = empty !== null;
    this.more.hidden = empty !== null;
    this.draw();
    this.fill();
  }

  async draw() {
    if (!this.data || this.picture.hidden) return;
    const make = await uPlot();
    if (!this.picture.isConnected) {
      drawn.delete(this);
      return;
    }
    drawn.add(this);
    this.chart?.destroy();
    this.chart = new make(this.options(make), this.columns(), put(this.picture));
    this.chart.over.addEventListener("click", () => this.clicked());
  }

  resized() {
    const width = this.picture.clientWidth;
    if (this.chart && width && Math.abs(width - this.chart.width) > 1) this.chart.setSize({ width, height: HEIGHT });
  }

  /** Stacked series are sums of themselves and all below, the tallest first, so that the others are drawn over it. */
  columns() {
    const { points, series } = this.data;
    const times = points.map((point) => point.start / 1000);
    if (!this.isStacked) return [times, ...series.map((each) => each.values)];
    const sums = points.map(() => 0);
    const stacked = series.map((each) => each.values.map((value, index) => (sums[index] += value)));
    return [times, ...stacked.reverse()];
  }

  options(make) {
    const style = getComputedStyle(this.element);
    const ink = style.getPropertyValue("--quiet");
    const grid = { stroke: style.getPropertyValue("--line"), width: 1 };
    const { series, points } = this.data;
    const shown = this.isStacked ? [...series].reverse() : series;
    const drawnAs = this.isStacked ? make.paths.bars({ size: [0.9, 40], align: 1 }) : make.paths.stepped({ align: 1 });
    return {
      width: this.picture.clientWidth || 320, height: HEIGHT, padding: [6, 6, 0, 0],
      tzDate: (at) => make.tzDate(new Date(at * 1000), "Etc/UTC"),
      cursor: { sync: { key: "activity" }, drag: { x: true, y: false, setScale: false }, y: false, points: { show: !this.isStacked } },
      scales: { y: { range: (_, low, high) => range(low, high, this.isStacked) } },
      legend: { show: true, live: true },
      axes: [
        { stroke: ink, grid, ticks: grid, size: 26, space: 66, values: (_, splits) => splits.map((at, index) => clock(at, splits[index - 1])) },
        { stroke: ink, grid, ticks: { show: false }, size: 52, space: 28, values: (_, splits) => splits.map(short) },
      ],
      series: [
        { label: "UTC", value: (_, at) => (at === null || at === undefined ? "–" : toSecond(at * 1000)) },
        ...shown.map((each) => {
          const colour = style.getPropertyValue(this.colours[series.indexOf(each) % this.colours.length]);
          return {
            label: each.name, stroke: colour, width: this.isStacked ? 0 : 2, fill: this.isStacked ? colour : null, paths: drawnAs,
            points: { show: false }, value: (_u, _v, _s, index) => (index === null || index === undefined ? "–" : number(each.values[index])),
          };
        }),
      ],
      hooks: { setSelect: [(chart) => this.selected(chart, points)] },
    };
  }

  clicked() {
    const { idx } = this.chart.cursor;
    if (this.wasDragged || idx === null || idx === undefined) {
      this.wasDragged = false;
      return;
    }
    for (const by of NEAR) {
      const point = this.data.points[idx + by];
      const address = point && this.linkTo([point]);
      if (address) {
        location.hash = address;
        return;
      }
    }
  }

  selected(chart, points) {
    const { left, width } = chart.select;
    if (width <= DRAGGED_PX) return;
    this.wasDragged = true;
    const [from, to] = [chart.posToVal(left, "x") * 1000, chart.posToVal(left + width, "x") * 1000];
    const step = points.length > 1 ? points[1].start - points[0].start : 0;
    this.onSelect(points.filter((point) => point.start + step > from && point.start <= to));
    chart.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
  }

  /** The table is made when it is opened: the newest point first, without those in which nothing is different. */
  fill() {
    if (!this.more.open || !this.data) return;
    const { points, series } = this.data;
    const rows = points.map((point, index) => ({ point, index, values: series.map((each) => each.values[index]) }))
      .filter(({ values, index }) => (this.isStacked ? values.some(Boolean) : index === 0 || series.some((each) => each.values[index] !== each.values[index - 1])))
      .reverse();
    put(this.table, plainTable(["from (UTC)", ...series.map((each) => h("th", { scope: "col", class: "n" }, each.name))], rows.map(({ point, values }) => {
      const address = this.linkTo([point]);
      const when = toSecond(point.start);
      return [h("th", { scope: "row" }, address ? h("a", { href: address, title: "See the changes of this point" }, when) : when),
        ...values.map((value) => h("td", { class: "n" }, number(value)))];
    }), { caption: this.title }));
  }
}

function range(low, high, isStacked) {
  if (isStacked || low === null) return [0, Math.max(1, (high ?? 0) * 1.05)];
  const room = Math.max(1, (high - low) * 0.15);
  return [Math.max(0, Math.floor(low - room)), Math.ceil(high + room)];
}

/** 12:30 UTC, with the day where it is another than that of the tick before. */
function clock(at, before) {
  const text = new Date(at * 1000).toISOString();
  const isNewDay = before === undefined || new Date(before * 1000).toISOString().slice(0, 10) !== text.slice(0, 10);
  const time = at % 60 === 0 ? text.slice(11, 16) : text.slice(11, 19);
  return isNewDay && before !== undefined ? text.slice(5, 10) : time;
}

const number = (value) => (value === null || value === undefined ? "–" : value.toLocaleString("en", { maximumFractionDigits: 1 }));

/** 1200 as 1.2k. */
function short(value) {
  if (value === null || !Number.isFinite(value)) return "";
  if (Math.abs(value) >= 1e6) return `${+(value / 1e6).toFixed(2)}M`;
  if (Math.abs(value) >= 1e4) return `${+(value / 1e3).toFixed(1)}k`;
  return Number.isInteger(value) ? String(value) : value.toFixed(1);
}
