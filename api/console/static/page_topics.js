// SPDX-License-Identifier: Apache-2.0
// Topic: every topic, with the sums of its queues.

import { get, pages } from "./api.js";
import { sqlTime } from "./copyas.js";
import { h, put } from "./dom.js";
import { here, link, set } from "./place.js";
import { Table } from "./table.js";
import { kindOf, lastChange, perm } from "./words.js";

const KINDS = ["NORMAL", "RETRY", "DLQ", "SYSTEM"];
const PAGE = 10000;
const MOST_PAGES = 3; // rows that a browser takes without a pause; beyond, the gateway filters, by the beginning of a name
const NEWEST = 1000; // changes that are asked for at once, before topics are asked for one by one
const TYPED_MS = 250;

/** The page. */
export function topicsPage() {
  let at = null;
  let isListed = new Set((here().params.get("kinds") ?? "NORMAL").split(","));
  const known = new Map(); // topic -> its last change, at the time that is shown
  let isNewestKnown = false;
  let isMany = false; // more than a browser takes
  let prefix = ""; // of the names that were asked for, where there are many
  let typing = null;
  const many = h("p", { role: "status" });
  let stopAsking = new AbortController();

  const kinds = KINDS.map((kind) => h("label", null, h("input", {
    type: "checkbox", checked: isListed.has(kind), on: { change: (event) => choose(kind, event.target.checked) },
  }), kind));
  const table = new Table({
    caption: "Topics", isMain: true, empty: "There is no topic at this time. A topic is listed when a broker registers it.",
    elsewhere: (name) => (name ? [`If ${name} was deleted, see `, h("a", { href: link("history", name) }, `the history of ${name}`), "."] : null),
    key: (row) => row.topicName,
    accept: (row) => isListed.has(kindOf(row.topicName)),
    tools: h("fieldset", { class: "kinds" }, h("legend", { class: "unseen" }, "Kinds of topics"), kinds),
    onVisible: askWho,
    columns: [
      { name: "topicName", cell: (row) => h("a", { href: link("topic", row.topicName) }, row.topicName) },
      { name: "clusters", value: (row) => row.clusters.join(" ") },
      { name: "brokers", numeric: true },
      { name: "readQueueNums", numeric: true },
      { name: "writeQueueNums", numeric: true },
      { name: "perm", value: (row) => row.perms.map(perm).join(" ") },
      { name: "lastChangedBy", title: "last changed by", width: 66, value: (row) => known.get(row.topicName) ?? "", cell: (row) => h("a", { href: link("history", row.topicName), title: known.get(row.topicName) ?? null }, known.get(row.topicName) ?? "history") },
    ],
    copy: () => ({
      sql: "SELECT state FROM rows_at('topicQueueTable', " + sqlTime(at?.asOf ?? null) + ")",
      path: "v1/topics", params: { details: "true", limit: PAGE, as_of: at?.asOf },
    }),
  });

  function choose(kind, isOn) {
    if (isOn) isListed.add(kind);
    else isListed.delete(kind);
    isListed = new Set(isListed);
    set({ kinds: [...isListed].join(",") }, { replace: true });
    table.narrow();
  }

  /** Of the rows in sight alone, and only when scrolling has come to rest: each is a question about the past. */
  async function askWho(rows) {
    stopAsking.abort();
    stopAsking = new AbortController();
    const { signal } = stopAsking;
    try {
      await askNewest(signal);
    } catch {
      return; // the page's own reads say what is wrong
    }
    for (const row of rows) {
      if (known.has(row.topicName)) continue;
      try {
        const { body } = await get("v1/changes", { topic: row.topicName, outcome: "applied", limit: 1, to: at?.asOf }, { signal });
        known.set(row.topicName, lastChange(body.changes[0]));
      } catch {
        return;
      }
      if (signal.aborted) return;
      table.refresh(row);
    }
  }

  /** The newest changes of all topics, in one question. */
  async function askNewest(signal) {
    if (isNewestKnown) return;
    const { body } = await get("v1/changes", { outcome: "applied", limit: NEWEST, to: at?.asOf }, { signal });
    for (const row of body.changes) if (row.topic && !known.has(row.topic)) known.set(row.topic, lastChange(row));
    isNewestKnown = true;
    table.refresh(null);
  }

  /** Where the list is cut off, what is typed is asked of the gateway. */
  function typed() {
    clearTimeout(typing);
    if (isMany) typing = setTimeout(() => at.reload(), TYPED_MS);
  }
  table.filter.addEventListener("input", typed);

  return {
    element: h("div", null, many, table.element),
    async load(now) {
      at = now;
      let rows = [];
      const ask = async (beginning) => {
        rows = [];
        const found = await pages("v1/topics", { details: "true", limit: PAGE, as_of: now.asOf, prefix: beginning }, {
          signal: now.signal, most: MOST_PAGES, take: (body) => rows.push(...body.topics),
        });
        prefix = beginning;
        return found;
      };
      const wanted = table.filter.value.trim().split(/\s+/)[0];
      let found = await ask(isMany ? wanted : "");
      if (!isMany && found.body.nextCursor && wanted) found = await ask(wanted);
      isMany = prefix !== "" || found.body.nextCursor !== undefined;
      const { total } = found.body;
      now.showEpoch(found);
      put(many, found.body.nextCursor || prefix
        ? `${found.body.nextCursor ? `The first ${rows.length} of ` : ""}${total} topics${prefix && ` that begin with ${prefix}`}. Enter the beginning of a name in the filter to see others.` : null);
      if (now.changed === null) known.clear();
      now.changed?.forEach((topic) => known.delete(topic));
      isNewestKnown = false;
      table.setRows(rows);
    },
  };
}
