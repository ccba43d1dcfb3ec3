// SPDX-License-Identifier: Apache-2.0
// Lifelines: a lane for each address of each broker, in the window of the time bar. The lanes are cells of a table, so a
// thousand of them scroll, are filtered and sorted, and have words for those who do not see them.

import { windowOf } from "./activity.js";
import { get } from "./api.js";
import { h, put, svg } from "./dom.js";
import { brokerLink, changesOf, link } from "./place.js";
import { Table } from "./table.js";
import { ThrottledQuery } from "./throttled_query.js";
import { plainUtc, span, toSecond } from "./times.js";
import { brokerNo, byAddress } from "./words.js";

const WIDTH = 1000;
const HEIGHT = 30;
const TICKS = 5;
const END = { BROKER_EXPIRED: "expired", CHANNEL_CLOSED: "connection closed", UNREGISTER_BROKER: "unregistered" };
const LEGEND = [
  ["life", "registered"], ["silent", "missing heartbeats"], ["expired", "expired or connection closed"], ["left", "unregistered"],
  ["wiped", "write permission wiped"],
];

/** The page. */
export function lifelinesPage() {
  let at = null;
  let shown = { begin: 0, end: 1 };
  const query = new ThrottledQuery("v1/lifelines", () => table.element.isConnected);
  const axis = h("div", { class: "axis lanes" });
  const said = h("p", { role: "status" });
  const legend = h("p", { class: "legend wide" }, LEGEND.map(([kind, words]) => [h("i", { class: kind }), words]));
  const table = new Table({
    caption: "Lifelines", isMain: true, empty: "No broker was registered in this window. Mark another range on the time bar, or go to now (n).", key: (row) => `${row.brokerName}/${row.clusterName}/${row.brokerAddr}`,
    columns: [
      { name: "cluster", title: "Cluster", width: 9, isExtra: true, value: (row) => row.clusterName },
      { name: "broker", title: "Broker", value: (row) => row.brokerName, cell: (row) => brokerLink(row.brokerName) },
      { name: "no", title: "NO.", width: 10, isExtra: true, value: (row) => brokerNo(row.brokerId) },
      { name: "address", title: "Address", value: (row) => row.brokerAddr },
      { name: "state", title: "State", width: 12, isExtra: true, cell: (row) => h("span", { class: row.isAlive ? "good" : "bad" }, row.state) },
      { name: "restarts", title: "Restarts", numeric: true, width: 9, isExtra: true },
      { name: "lives", title: "Lifeline", width: 40, narrow: 12, value: inWords, cell: lane },
    ],
    copy: () => ({
      sql: "SELECT brokerName, key->>'brokerAddr' AS brokerAddr, validFrom, validTo, begunBy, endedBy FROM spans WHERE tableName = 'brokerLiveTable' ORDER BY brokerName, validFrom",
      path: "v1/lifelines", params: windowOf(at),
    }),
  });
  put(table.heads.at(-1), h("div", { class: "lanehead" }, h("span", { class: "unseen" }, "Lifeline"), axis));

  const x = (ms) => (WIDTH * (Math.min(Math.max(ms, shown.begin), shown.end) - shown.begin)) / (shown.end - shown.begin);

  function lane(row) {
    const rect = (from, to, y, height, kind) => svg("rect", { x: x(from), width: Math.max(1.5, x(to) - x(from)), y, height, class: kind });
    const found = Array.from({ length: TICKS - 1 }, (_, index) => svg("line", { class: "grid", x1: (WIDTH * (index + 1)) / TICKS, x2: (WIDTH * (index + 1)) / TICKS, y1: 0, y2: HEIGHT }));
    for (const life of row.lives) {
      const end = life.to ?? shown.end;
      const quiet = Math.max(life.from, Math.min(life.silentFrom ?? end, end));
      found.push(rect(life.from, quiet, 7, 14, "life"));
      if (quiet < end) found.push(rect(quiet, end, 11, 6, "silent"));
      if (life.from > shown.begin) found.push(rect(life.from, life.from, 4, 20, "begin"));
      if (life.to !== null) found.push(svg("rect", { x: x(life.to) - 1.5, width: 3, y: 2, height: 24, class: life.endedBy === "UNREGISTER_BROKER" ? "left" : "expired" }));
    }
    for (const wipe of row.wiped) found.push(rect(wipe.from, wipe.to ?? shown.end, 24, 4, "wiped"));
    return svg("svg", {
      class: "lane", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-label": inWords(row), role: "img",
      on: { click: (event) => follow(row, event) },
    }, svg("title", null, inWords(row)), found);
  }

  /** What a click means: the nearest turn of the lane. */
  function follow(row, event) {
    const box = event.currentTarget.getBoundingClientRect();
    const ms = shown.begin + ((event.clientX - box.left) / box.width) * (shown.end - shown.begin);
    const turns = row.lives.flatMap((life) => [[life.from, life.fromEpoch], ...(life.to === null ? [] : [[life.to, life.toEpoch]])])
      .concat(row.wiped.map((wipe) => [wipe.from, wipe.epoch]));
    const [, epoch] = turns.reduce((best, turn) => (Math.abs(turn[0] - ms) < Math.abs(best[0] - ms) ? turn : best));
    location.hash = link("audit", "", { brokerName: row.brokerName, ...changesOf(epoch) });
  }

  return {
    element: h("div", null,
      said, legend, table.element),
    async load(now) {
      at = now;
      const asked = windowOf(now);
      const [body, live] = await Promise.all([
        query.ask(asked, now),
        asked.to === null ? get("v1/brokers", {}, { signal: now.signal }) : null,
        now.showTime(),
      ]);
      if (body === null) return; // another window is asked for
      query.reloadIfOld(now);
      shown = { begin: Date.parse(body.from), end: Math.max(Date.parse(body.to), Date.parse(body.from) + 1) };
      if (live) shown.end = Math.max(shown.end, ...live.body.brokers.map((row) => row.lastUpdateTimestamp));
      put(axis, Array.from({ length: TICKS }, (_, index) => {
        const text = plainUtc(shown.begin + (index * (shown.end - shown.begin)) / TICKS);
        return h("span", { title: `${text} UTC` }, index === 0 ? text.slice(5, 16) : text.slice(11, 19));
      }));
      const rows = lanes(body, live?.body.brokers ?? [], shown);
      put(said, rows.length ? `${rows.length} addresses from ${toSecond(body.from)} to ${toSecond(body.to)} UTC.` : null,
        body.leftOut ? ` ${body.leftOut} older lives are left out. Mark a shorter range.` : null,
        body.writeTurnsLeftOut ? ` ${body.writeTurnsLeftOut} older changes of the write permission are left out. Mark a shorter range.` : null);
      table.setRows(rows);
    },
  };
}

/** A row for each address: master before slaves, groups together. */
function lanes({ lives, writeTurns }, live, { begin, end }) {
  const heard = new Map(live.map((row) => [`${row.brokerName}\u0001${row.brokerAddr}`, row]));
  const wiped = wipedTimes(writeTurns, begin, end);
  const rows = new Map();
  for (const each of lives) {
    const { brokerName, clusterName, brokerAddr, brokerId } = each;
    const key = [brokerName, clusterName, brokerAddr].join("\u0001");
    const row = rows.get(key) ?? { brokerName, clusterName, brokerAddr, brokerId: brokerId ?? null, lives: [], wiped: brokerId ? [] : wiped.get(brokerName) ?? [] };
    const to = each.to ? Date.parse(each.to) : null;
    row.lives.push({ ...each, from: Date.parse(each.from), to, silentFrom: to !== null && each.silentMillis ? to - each.silentMillis : null });
    rows.set(key, row);
  }
  for (const row of rows.values()) {
    const last = row.lives.at(-1);
    row.isAlive = last.to === null;
    const found = heard.get(`${row.brokerName}\u0001${row.brokerAddr}`);
    if (row.isAlive && found && end - found.lastUpdateTimestamp > found.heartbeatTimeoutMillis / 2) last.silentFrom = found.lastUpdateTimestamp;
    row.state = row.isAlive ? last.silentFrom ? "silent" : "alive" : END[last.endedBy] ?? last.endedBy;
    row.restarts = row.lives.filter((life, index) => index > 0 && life.from >= begin).length;
  }
  return [...rows.values()].sort(byAddress);
}

/** From when to when topics of a broker lacked the write permission. */
function wipedTimes(turns, begin, end) {
  const found = new Map();
  for (const { brokerName, time, epoch, lost, gained } of turns) {
    const own = found.get(brokerName) ?? [];
    found.set(brokerName, own);
    const last = own.at(-1);
    if (gained && last && last.to === null) last.to = Date.parse(time);
    else if (lost && (!last || last.to !== null)) own.push({ from: Date.parse(time), to: null, epoch });
  }
  for (const [name, own] of found) found.set(name, own.filter((each) => each.from <= end && (each.to ?? end) >= begin));
  return found;
}

function inWords(row) {
  const lives = row.lives.map((life) => `${toSecond(life.from)} registered, ${life.to === null ? "alive" : `${END[life.endedBy] ?? life.endedBy} after ${span(new Date(life.from).toISOString(), new Date(life.to).toISOString())}`}`);
  const wiped = row.wiped.map((each) => `write permission wiped ${toSecond(each.from)} to ${each.to === null ? "the end" : toSecond(each.to)}`);
  return [...lives, ...wiped].join("; ");
}
