// SPDX-License-Identifier: Apache-2.0
// What the keys do.

import { button, dialog, h } from "./dom.js";
import { PAGES } from "./pages.js";

const pages = Object.values(PAGES).filter(({ key }) => key);
const KEYS = [
  [", .", "an epoch back, an epoch on (on the bar: arrows)"],
  ["< >", "ten epochs (on the bar: Page Up, Page Down)"],
  ["Shift + arrow", "on the bar: mark a range"],
  ["m, Esc", "mark a range from here; let it go"],
  ["+ - 0", "zoom the time bar in, out, to the whole history (or the wheel)"],
  ["p", "play, from the mark or from here; pause"],
  ["n", "now"],
  ["g", "go to an epoch or a time"],
  ["/", "filter"],
  ["r", "read again"],
  [pages.map(({ key }) => key).join(" "), pages.map(({ title }) => title).join(", ")],
];

/** Show them. */
export function help() {
  const box = dialog("Keys", {}, h("h2", null, "Keys"),
    h("dl", null, KEYS.map(([key, does]) => [h("dt", null, h("kbd", null, key)), h("dd", null, does)])),
    button("Close", () => box.close()));
}
