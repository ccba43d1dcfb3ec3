// SPDX-License-Identifier: Apache-2.0
// The place in the console: page, name and parameters. All are in the address, so a link shows the same.
//
//   #/topic/orders?as_of=17        page "topic", name "orders", as of epoch 17
//
// The place is behind the #: a gateway does not need it, and a proxy may put any path before /console.

import { h } from "./dom.js";
import { isEpoch } from "./times.js";

/** The place of the address: {page, name, params}. */
export function here() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  const words = path.split("/").map(plain);
  return { page: words[0] || "dashboard", name: words.slice(1).join("/"), params: new URLSearchParams(query) };
}

/**
 * The address of a page at the same time, with the same marked range and zoom.
 * @param {string} page
 * @param {string} name of a topic, a broker; empty for none
 * @param {Object} params more parameters; null removes one
 */
export function link(page, name = "", params = {}) {
  const now = here().params;
  const wanted = new URLSearchParams();
  for (const key of ["as_of", "from", "zoom"]) if (now.has(key)) wanted.set(key, now.get(key));
  return text(page, name, changed(wanted, params));
}

/** Links from names in tables to the histories of what they name. */
export const brokerLink = (name) => h("a", { href: link("history", name, { of: "broker" }) }, name);
export const topicLink = (name) => h("a", { href: link("history", name) }, name);

/** Parameters that show the changes of some epochs, the first and the last of them. */
export function changesOf(first, last = first) {
  return { from: first > 1 ? String(first - 1) : null, as_of: String(last) };
}

/** The window between the marked time and the time that is shown, whichever is earlier: {from, to}; null: the beginning, now. */
export function markedWindow(asOf) {
  const from = here().params.get("from");
  return isEpoch(from) && isEpoch(asOf) && Number(from) > Number(asOf) ? { from: asOf, to: from } : { from, to: asOf };
}

/** The epochs of the address to which the time bar is zoomed: {low, high}; `high` null: up to the newest. null: no zoom. */
export function zoom() {
  const [, low, high] = /^(\d+)-(\d*)$/.exec(here().params.get("zoom") ?? "") ?? [];
  return low === undefined ? null : { low: Math.max(1, Number(low)), high: high === "" ? null : Number(high) };
}

/** Change parameters of this page. `replace`: without an entry in the history of the browser, for the steps of a slider. */
export function set(params, { replace = false } = {}) {
  const now = here();
  const address = text(now.page, now.name, changed(new URLSearchParams(now.params), params));
  if (address === location.hash) return;
  if (replace) {
    history.replaceState(null, "", address);
    dispatchEvent(new HashChangeEvent("hashchange"));
  } else {
    location.hash = address;
  }
}

function changed(found, params) {
  for (const [key, value] of Object.entries(params)) {
    if (value === null || value === undefined || value === "") found.delete(key);
    else found.set(key, value);
  }
  return found;
}

function text(page, name, params) {
  const query = params.toString();
  return `#/${page}${name ? `/${encodeURIComponent(name)}` : ""}${query ? `?${query}` : ""}`;
}

function plain(word) {
  try {
    return decodeURIComponent(word);
  } catch {
    return word; // a % without two digits
  }
}
