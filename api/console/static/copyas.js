// SPDX-License-Identifier: Apache-2.0
// The query of a table as SQL, curl and a command. A token is never part of it.

import { host, origin, pathOf } from "./api.js";
import { button, dialog, h, put } from "./dom.js";
import { standing } from "./session.js";

/** A button that shows them. `make` gives those of {sql, path, params, cli} that ask for the same, when it is pressed; cli is a list of words. */
export function copyButton(make) {
  return button("Copy as", () => open(make()), { "aria-haspopup": "dialog" });
}

/** A word as a POSIX shell takes it. */
function shell(word) {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

/** A string as SQL takes it. */
export function quoted(text) {
  return `'${String(text).replaceAll("'", "''")}'`;
}

/** A point in time as the macros of `routelake sql` take it; null: now. */
export function sqlTime(asOf) {
  return asOf === null ? "now()" : quoted(asOf);
}

/** The same for the time after which changes are wanted; null: from the beginning. */
export function sqlStart(from) {
  return from === null ? "0" : sqlTime(from);
}

/** Options of `routelake history` from parameters of HTTP: those that are there. */
export function options(names) {
  return Object.entries(names).filter(([, value]) => value).flatMap(([name, value]) => [`--${name}`, String(value)]);
}

/** SQL is for a session; where no other command asks the same, it is an argument of `routelake sql`. */
function texts({ sql, path, params, cli }) {
  const words = cli ? [...cli, "--http", host] : sql && ["sql", sql];
  const token = standing.user === null ? [] : ["-H", '"authorization: Bearer $TOKEN"'];
  return {
    SQL: sql,
    curl: path && ["curl", "-s", shell(`${origin}/${pathOf(path, params)}`), ...token].join(" "),
    CLI: words && [standing.program, ...words].map(shell).join(" "),
  };
}

function open(found) {
  const said = h("output", { role: "status" });
  const box = dialog("Copy as", { class: "copy" },
    h("h2", null, "The same query elsewhere"),
    Object.entries(texts(found)).filter(([, text]) => text).map(([name, text]) => {
      const area = h("textarea", { readonly: true, rows: 3, "aria-label": name, spellcheck: "false" }, text);
      return h("div", { class: "way" }, h("b", null, name), area,
        button(`Copy ${name}`, () => copy(area, said, name)));
    }),
    said, button("Close", () => box.close()));
}

/** Pages over plain HTTP from another machine have no clipboard: then the text is selected. */
async function copy(area, said, name) {
  area.select();
  try {
    await navigator.clipboard.writeText(area.value);
    put(said, `${name} is copied`);
  } catch {
    put(said, "Selected: press Ctrl+C");
  }
}
