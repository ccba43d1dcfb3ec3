// SPDX-License-Identifier: Apache-2.0
// The dashboard's charts: how much there was, and how much changed, in the window of the time bar.

import { Activity, placeOf, windowOf } from "./activity.js";
import { ProblemError } from "./api.js";
import { copyButton, sqlStart, sqlTime } from "./copyas.js";
import { h, put } from "./dom.js";
import { link, set } from "./place.js";
import { Plot } from "./plot.js";
import { toSecond, utc } from "./times.js";

const POINTS = 120;
const COMMANDS = 5; // of their own colour; the others are added up
const MINUTE_MS = 60000;

/** {element, load(at)}: not waited for by the page, whose tables are there before. */
export function overview() {
  const isShown = () => element.isConnected;
  const counted = new Activity(isShown);
  const summed = new Activity(isShown);
  let asked = { from: null, to: null };
  const changesOf = (params) => (points) => {
    const place = placeOf(points);
    return place && link("audit", "", { ...place, ...params });
  };
  const onSelect = (points) => {
    const place = placeOf(points);
    if (place) set({ from: place.from ?? "1", as_of: place.as_of });
  };
  const plot = (title, params = {}, told = {}) => new Plot({ title, linkTo: changesOf(params), onSelect, ...told });
  const totals = {
    topics: plot("Topics"), brokers: plot("Live brokers (addresses)"), queues: plot("Write queues"),
  };
  const changes = plot("Changed rows per minute, by command", {}, { isStacked: true });
  const refusals = plot("Refusals", { outcome: "rejected" }, { isStacked: true, colours: ["--c4"] });
  const expiries = plot("Brokers expired (addresses)", { command: "BROKER_EXPIRED", tableName: "brokerLiveTable" }, { isStacked: true, colours: ["--c1"] });
  const said = h("span", { role: "status", class: "quiet grow" }, "The charts are being loaded.");
  const charts = [totals.topics, totals.brokers, totals.queues, changes, refusals, expiries];
  const element = h("section", { "aria-label": "Activity" }, h("h2", null, "Activity"),
    h("div", { class: "tools" }, said, copyButton(() => ({
      sql: `SELECT date_trunc('minute', eventTime) AS minute, command, count(*) FROM changes_between(${sqlStart(asked.from)}, ${sqlTime(asked.to)}) WHERE tableName IS NOT NULL GROUP BY ALL ORDER BY minute`,
      path: "v1/activity", params: { ...asked, totals: "true" },
    }))),
    h("div", { class: "plots" }, charts.map((each) => each.element)));

  async function load(at) {
    const own = { ...windowOf(at), points: POINTS };
    asked = own;
    try {
      const found = await counted.ask(own, { signal: at.signal });
      if (found) showChanges(found);
      if (!isShown() || JSON.stringify(own) !== JSON.stringify(asked)) return; // a newer window is asked for
      const sums = await summed.ask({ ...own, totals: "true" }, { signal: at.signal });
      if (sums) showTotals(sums);
    } catch (error) {
      if (at.signal.aborted) return;
      if (!(error instanceof ProblemError)) throw error;
      put(said, `The charts cannot be drawn: ${error.message}`);
    }
  }

  function showChanges({ points, width, first, last }) {
    put(said, points.length ? `${toSecond(first)} to ${utc(last).replace(/\.\d+/, "")}, one point is ${duration(width)}. Click a point to see its changes. Drag to select a window.`
      : "Nothing has changed in this window.");
    const commands = mostOften(points);
    const rate = (value) => (value * MINUTE_MS) / width;
    const series = commands.slice(0, COMMANDS).map((command) => ({ name: command, values: points.map((point) => rate(point.changes[command] ?? 0)) }));
    if (commands.length > COMMANDS) {
      series.push({ name: "others", values: points.map((point) => rate(commands.slice(COMMANDS).reduce((sum, command) => sum + (point.changes[command] ?? 0), 0))) });
    }
    const one = (name, of) => [{ name, values: points.map(of) }];
    const none = (of, text) => (points.some((point) => of(point) > 0) ? null : text);
    changes.set(points, series, commands.length ? null : "No row changed in this window.");
    refusals.set(points, one("refused", (point) => point.refusals), none((point) => point.refusals, "No command or registration was refused in this window."));
    expiries.set(points, one("expired", (point) => point.expiries), none((point) => point.expiries, "No broker expired in this window."));
  }

  function showTotals({ points }) {
    for (const [name, chart] of Object.entries(totals)) {
      chart.set(points, [{ name, values: points.map((point) => point[name] ?? null) }], points.length ? null : "Nothing is registered in this window.");
    }
  }

  return { element, load };
}

function mostOften(points) {
  const sums = new Map();
  for (const point of points) {
    for (const [command, value] of Object.entries(point.changes)) sums.set(command, (sums.get(command) ?? 0) + value);
  }
  return [...sums].sort(([a, one], [b, other]) => other - one || (a < b ? -1 : 1)).map(([command]) => command);
}

/** 300000 as "5 min". */
export function duration(ms) {
  for (const [size, unit] of [[86400000, "d"], [3600000, "h"], [60000, "min"], [1000, "s"]]) if (ms >= size) return `${ms / size} ${unit}`;
  return `${ms} ms`;
}
