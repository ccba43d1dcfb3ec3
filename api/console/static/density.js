// SPDX-License-Identifier: Apache-2.0
// The strip above the time bar: the number of changes by epoch, colored by kind, with marks for admin commands and expiries.
// Drag selects a window, the wheel zooms. Keys and the Audit Log do the same without a pointer.

import { Activity, KINDS, adminCommands, byKind } from "./activity.js";
import { h, put, svg } from "./dom.js";
import { zoom } from "./place.js";

const POINTS = 160;
const WIDTH = 1000;
const HEIGHT = 34;
const MARKS = 9; // the marks are above the bars
const ZOOM = 1.5;
const LEAST = 8; // epochs that can be zoomed to
const REST_MS = 150;
const DRAGGED_PX = 4;

export class Density {
  /**
   * @param {Object} told
   * @param {function} told.view the epochs that the bar shows: {low, high, newest}
   * @param {function} told.loaded returns a promise: the page is loaded
   * @param {function} told.onZoom gets {low, high}
   * @param {function} told.onSelect gets {low, high} of a window
   * @param {function} told.onPick gets an epoch
   */
  constructor(told) {
    this.told = told;
    this.activity = new Activity();
    this.answer = null;
    this.bars = svg("svg", { class: "bars", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" });
    this.selection = h("span", { class: "band", hidden: true });
    this.legend = h("span", { class: "legend", "aria-hidden": "true" }, Object.entries(KINDS).map(([kind, words]) => [h("i", { class: kind }), words]));
    this.element = h("div", { class: "density", title: "Drag to select a window. Turn the wheel to zoom.", on: {
      pointerdown: (event) => this.begin(event), pointermove: (event) => this.drag(event),
      pointerup: (event) => this.end(event), pointercancel: () => this.cancel(), dblclick: () => this.told.onZoom(null),
    } }, this.bars, this.selection);
    this.element.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
  }

  /** Draw the part that the bar shows, and load it. */
  show() {
    clearTimeout(this.resting);
    this.resting = setTimeout(() => this.load().catch(() => null), REST_MS); // without it the bar is as it was
    this.draw();
  }

  async load() {
    await this.told.loaded(); // the page first
    const { low, high, newest } = this.told.view();
    if (!newest) return;
    const params = { by: "epoch", points: POINTS, from: low > 1 ? low - 1 : null, to: high < newest ? high : null };
    const found = await this.activity.ask(params);
    if (found) {
      this.answer = found;
      this.draw();
    }
  }

  /** Heights are logarithms: a broker that brings 10,000 topics does not hide a single command. */
  draw() {
    const { low, high } = this.told.view();
    const { points, width } = this.answer ?? { points: [], width: 1 };
    const most = Math.log1p(Math.max(1, ...points.map((point) => sum(byKind(point)))));
    const x = (epoch) => (WIDTH * (epoch - low)) / Math.max(1, high - low + 1);
    const found = [];
    for (const point of points) {
      const kinds = byKind(point);
      const total = sum(kinds);
      const [left, right] = [x(point.start), x(point.start + width)];
      if (right <= 0 || left >= WIDTH || !point.firstEpoch) continue;
      const size = Math.max(1, right - left - 0.6);
      let top = HEIGHT;
      for (const [kind, number] of Object.entries(kinds)) {
        if (!number) continue;
        const height = Math.max(2, ((HEIGHT - MARKS) * Math.log1p(total) * number) / (most * total));
        top -= height;
        found.push(svg("rect", { class: kind, x: left, width: size, y: Math.max(MARKS, top), height }));
      }
      const marks = [adminCommands(point) > 0 && "admin", point.expiries > 0 && "expiry"].filter(Boolean);
      marks.forEach((kind, index) => found.push(svg("rect", { class: `${kind} mark`, x: left, width: Math.max(3, size), y: 4 * index, height: 3 })));
    }
    put(this.bars, found);
  }

  epochAt(event) {
    const { low, high } = this.told.view();
    const box = this.element.getBoundingClientRect();
    const part = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
    return Math.min(high, low + Math.floor(part * (high - low + 1)));
  }

  begin(event) {
    if (event.button !== 0) return;
    this.element.setPointerCapture(event.pointerId);
    this.start = { x: event.clientX, epoch: this.epochAt(event) };
  }

  drag(event) {
    if (!this.start || Math.abs(event.clientX - this.start.x) < DRAGGED_PX) return;
    const box = this.element.getBoundingClientRect();
    const [left, right] = [this.start.x, event.clientX].sort((a, b) => a - b).map((x) => Math.min(box.width, Math.max(0, x - box.left)));
    this.selection.hidden = false;
    this.selection.style.left = `${left}px`;
    this.selection.style.width = `${right - left}px`;
  }

  end(event) {
    if (!this.start) return;
    const [low, high] = [this.start.epoch, this.epochAt(event)].sort((a, b) => a - b);
    const isDrag = Math.abs(event.clientX - this.start.x) >= DRAGGED_PX;
    this.cancel();
    if (isDrag) this.told.onSelect({ low, high });
    else this.told.onPick(high);
  }

  cancel() {
    this.start = null;
    this.selection.hidden = true;
  }

  wheel(event) {
    if (event.ctrlKey || !event.deltaY) return;
    event.preventDefault();
    this.zoom(event.deltaY < 0 ? 1 / ZOOM : ZOOM, this.epochAt(event));
  }

  /** Around an epoch, which stays where it is. */
  zoom(by, around) {
    const { low, high, newest } = this.told.view();
    const size = Math.min(newest, Math.max(LEAST, Math.round((high - low + 1) * by)));
    const part = (around - low) / Math.max(1, high - low);
    const first = Math.min(Math.max(1, Math.round(around - part * (size - 1))), Math.max(1, newest - size + 1));
    this.told.onZoom(size >= newest ? null : { low: first, high: first + size - 1 });
  }
}

const sum = (kinds) => Object.values(kinds).reduce((a, b) => a + b, 0);

/** The epochs that the bar shows: those of the address, or all. */
export function zoomed(newest) {
  const all = { low: 1, high: Math.max(1, newest), newest };
  const { low, high } = zoom() ?? all;
  const last = Math.min(all.high, high ?? all.high);
  return low < last ? { low, high: last, newest } : all;
}
