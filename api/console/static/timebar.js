// SPDX-License-Identifier: Apache-2.0
// The time bar: a slider over epochs, with the marked range. It is linear in epochs, so quiet times take no room. Its state is in
// the address (as_of, from, zoom).

import { get } from "./api.js";
import { Density, zoomed } from "./density.js";
import { button, h, put, show, svg } from "./dom.js";
import { timeForm } from "./from_form.js";
import { here, link, set } from "./place.js";
import { both, isEpoch, utc } from "./times.js";

const REST_MS = 120;
const PLAY_MS = 700;
const PLAY_STEPS = 200;
const KNOWN_AT_START = 200;

export class TimeBar {
  /** @param {Element} root @param {function} loaded returns a promise: the page is loaded */
  constructor(root, loaded) {
    this.loaded = loaded;
    this.newest = 0;
    this.times = new Map(); // epoch -> eventTime
    this.shown = null; // the epoch that the page shows: {epoch, eventTime}
    this.range = h("input", {
      type: "range", min: 1, max: 1, step: 1, value: 1, id: "epoch", "aria-label": "Epoch",
      on: { input: () => this.dragged(), keydown: (event) => this.keyed(event) },
    });
    this.band = h("span", { class: "band", hidden: true });
    this.ticks = svg("svg", { class: "ticks", "aria-hidden": "true", preserveAspectRatio: "none", viewBox: "0 0 1000 8" });
    this.density = new Density({
      view: () => zoomed(this.newest),
      loaded,
      onZoom: (part) => this.zoomTo(part),
      onSelect: ({ low, high }) => set({ from: String(Math.max(1, low - 1)), as_of: high >= this.newest ? null : String(high) }),
      onPick: (epoch) => this.move(epoch),
    });
    this.wholeButton = button("Whole history", () => this.zoomTo(null), { hidden: true });
    this.text = h("output", { class: "when", for: "epoch" });
    const go = timeForm({ label: "Go to", verb: "Go", isNowTaken: true, take: (asOf) => set({ as_of: asOf === "now" ? null : asOf }), id: "goto" });
    this.playing = button("Play", () => this.play(), { "aria-pressed": "false" });
    this.nowButton = button("Now", () => this.now());
    this.markButton = button("Mark", () => this.mark());
    this.marked = h("span", { class: "marked" });
    put(root,
      h("div", { class: "bar" },
        button("‹", () => this.step(-1), { "aria-label": "One epoch back" }),
        h("div", { class: "track" }, this.density.element, this.range, this.band, this.ticks),
        button("›", () => this.step(1), { "aria-label": "One epoch on" }),
        this.playing, this.nowButton),
      h("div", { class: "under" }, this.text, go.element, this.markButton, this.marked, this.wholeButton, this.density.legend));
  }

  /** Load the newest epochs. */
  async begin() {
    const { body } = await get("v1/epochs", { limit: KNOWN_AT_START });
    for (const found of body.epochs) this.times.set(found.epoch, found.eventTime);
    this.grown(body.epochs[0]?.epoch ?? 0, body.epochs[0]?.eventTime);
  }

  /** There is a newer epoch. */
  grown(epoch, eventTime) {
    if (eventTime) this.times.set(epoch, eventTime);
    this.newest = epoch;
    this.show();
  }

  /** The page shows this epoch: {epoch, eventTime}. */
  showEpoch(shown) {
    this.shown = shown;
    if (shown.eventTime) this.times.set(shown.epoch, shown.eventTime);
    this.show();
  }

  /** Show the state of the address. */
  show() {
    const { params } = here();
    const { low, high } = zoomed(this.newest);
    [this.range.min, this.range.max] = [low, high];
    show(this.wholeButton, high - low + 1 < this.newest);
    if (this.newest) this.density.show();
    const asOf = params.get("as_of");
    const epoch = asOf === null ? this.newest : isEpoch(asOf) ? Number(asOf) : this.shown?.epoch ?? this.newest;
    if (!this.isDragged) {
      this.range.value = epoch;
      this.say(epoch, asOf);
    }
    this.nowButton.disabled = asOf === null;
    this.showMark(params.get("from"), epoch);
    this.showTicks();
  }

  say(epoch, asOf) {
    const time = asOf !== null && !isEpoch(asOf) ? asOf : this.times.get(epoch);
    const when = time ? utc(time) : "";
    this.range.setAttribute("aria-valuetext", `${asOf === null ? "now, " : ""}epoch ${epoch}${when && `, ${when}`}`);
    put(this.text, asOf === null ? h("b", null, "now") : null, ` epoch ${epoch}${when ? ` · ${both(time)}` : ""}`);
    if (!time && epoch > 0) this.ask(epoch);
  }

  /** Load the time of an epoch to which the bar was moved. */
  ask(epoch) {
    clearTimeout(this.asking);
    this.asking = setTimeout(async () => {
      try {
        const { body } = await get("v1/epochs", { before: epoch + 1, limit: 1 });
        for (const found of body.epochs) this.times.set(found.epoch, found.eventTime);
        if (this.times.has(epoch)) this.show();
      } catch {
        // The text goes without a time.
      }
    }, REST_MS);
  }

  dragged() {
    const epoch = Number(this.range.value);
    this.isDragged = true;
    this.say(epoch, epoch >= this.newest ? null : String(epoch));
    clearTimeout(this.resting);
    this.resting = setTimeout(() => {
      this.isDragged = false;
      this.move(epoch);
    }, REST_MS);
  }

  /** Arrows and pages are the slider's own; with Shift they mark a range, as they mark text. */
  keyed(event) {
    const by = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -10, PageUp: 10 }[event.key];
    if (by === undefined || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    if (event.shiftKey && !here().params.has("from")) this.mark();
    this.step(by);
  }

  step(by) {
    this.move(Number(this.range.value) + by);
  }

  move(epoch) {
    const to = Math.min(Math.max(1, epoch), Math.max(1, this.newest));
    this.range.value = to;
    set({ as_of: to >= this.newest ? null : String(to), ...this.following(to) }, { replace: true });
  }

  /** Where a step leaves the part that is zoomed to, the part goes with it. */
  following(epoch) {
    const { low, high } = zoomed(this.newest);
    if (epoch >= low && epoch <= high) return {};
    const first = Math.min(Math.max(1, epoch - Math.floor((high - low) / 2)), Math.max(1, this.newest - (high - low)));
    return { zoom: `${first}-${first + high - low}` };
  }

  zoomTo(part) {
    set({ zoom: part && `${part.low}-${part.high >= this.newest ? "" : part.high}` }, { replace: true });
  }

  /** Nearer or farther, around where the bar stands. */
  zoom(by) {
    this.density.zoom(by, Number(this.range.value));
  }

  now() {
    this.stop();
    set({ as_of: null });
  }

  /** Begin a range here; press again to let it go. */
  mark() {
    set({ from: here().params.has("from") ? null : this.range.value });
  }

  showMark(from, epoch) {
    const isMarked = isEpoch(from);
    const { low: first, high: last } = zoomed(this.newest);
    show(this.band, isMarked && Math.min(Number(from), epoch) <= last && Math.max(Number(from), epoch) >= first);
    put(this.markButton, from === null ? "Mark" : "Unmark");
    put(this.marked, from === null ? null : [`from ${isMarked ? "epoch " : ""}${from} to here: `,
      h("a", { href: link("audit") }, "changes"), " ", h("a", { href: link("compare") }, "compare")]);
    if (!isMarked) return;
    const [low, high] = [Number(from), epoch].sort((a, b) => a - b).map((at) => 100 * this.part(at));
    this.band.style.left = `${low}%`;
    this.band.style.width = `${Math.max(0.3, high - low)}%`;
  }

  part(epoch) {
    const { low, high } = zoomed(this.newest);
    return high > low ? Math.min(1, Math.max(0, (epoch - low) / (high - low))) : 0;
  }

  /** A line where an hour of UTC begins, as far as times are known. */
  showTicks() {
    const known = [...this.times].sort(([a], [b]) => a - b);
    const lines = known.filter(([, time], index) => index > 0 && known[index - 1][1].slice(0, 13) !== time.slice(0, 13));
    const { low, high } = zoomed(this.newest);
    put(this.ticks, lines.filter(([epoch]) => epoch >= low && epoch <= high).map(([epoch]) => {
      const x = Math.round(1000 * this.part(epoch));
      return svg("line", { x1: x, x2: x, y1: 0, y2: 8 });
    }));
  }

  /** From the mark, or from here, up to now; or stop. */
  play() {
    if (this.timer) {
      this.stop();
      return;
    }
    const from = here().params.get("from");
    if (Number(this.range.value) >= this.newest) this.move(isEpoch(from) ? Number(from) : 1);
    const by = Math.max(1, Math.ceil((this.newest - Number(this.range.value)) / PLAY_STEPS));
    this.playing.setAttribute("aria-pressed", "true");
    put(this.playing, "Pause");
    const next = async () => {
      await this.loaded();
      if (!this.timer) return;
      this.step(by);
      if (Number(this.range.value) >= this.newest) this.stop();
      else this.timer = setTimeout(next, PLAY_MS);
    };
    this.timer = setTimeout(next, PLAY_MS);
  }

  stop() {
    clearTimeout(this.timer);
    this.timer = null;
    this.playing.setAttribute("aria-pressed", "false");
    put(this.playing, "Play");
  }
}
