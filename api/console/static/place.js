// SPDX-License-Identifier: Apache-2.0
// Where the console is: page, name, and parameters, all of them in the address, so that a link says everything.
//
//   #/topics/orders?as_of=17        page "topics", name "orders", as of epoch 17
//
// It stands behind the # because it is nobody's business but the browser's, and a proxy may put any path before it.

/** What the address says now: {page, name, params}. */
export function here() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  const words = path.split("/").map(plain);
  return { page: words[0] || "dashboard", name: words.slice(1).join("/"), params: new URLSearchParams(query) };
}

/**
 * The address of a page, at the same moment, with the same marked range and the same part of the time bar.
 * @param {string} page
 * @param {string} name of a topic, a broker; empty for none
 * @param {Object} params besides; null leaves one out
 */
export function link(page, name = "", params = {}) {
  const now = here().params;
  const wanted = new URLSearchParams();
  for (const key of ["as_of", "from", "zoom"]) if (now.has(key)) wanted.set(key, now.get(key));
  return text(page, name, changed(wanted, params));
}

/** Go there: another entry of the browser's history. */
export function go(page, name, params) {
  location.hash = link(page, name, params);
}

/** Change parameters of this page. Steps of a slider replace the entry of the browser's history, what one asks for makes one. */
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
    return word; // a % that somebody typed
  }
}
