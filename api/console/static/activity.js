// SPDX-License-Identifier: Apache-2.0
// GET /v1/activity: points without a gap, and commands by kind.

import { changesOf, markedWindow, zoom } from "./place.js";
import { ThrottledQuery } from "./throttled_query.js";
import { isEpoch } from "./times.js";

const BROKERS = new Set(["REGISTER_BROKER", "UNREGISTER_BROKER", "CHANNEL_CLOSED", "BROKER_HEARTBEAT", "RESUME"]);

/** Kinds of changes, in the order in which they are drawn, with the words of the legend. */
export const KINDS = { broker: "brokers' own", expiry: "expiries", admin: "admin commands", refusal: "refusals" };

/** The kind of a command. */
function kindOfCommand(command) {
  return command === "BROKER_EXPIRED" ? "expiry" : BROKERS.has(command) ? "broker" : "admin";
}

/** The window: the marked range, else the zoomed part of the time bar, else the whole history. */
export function windowOf(at) {
  const marked = markedWindow(at.asOf);
  const part = zoom();
  if (marked.from !== null || part === null) return marked;
  const to = part.high !== null && (at.asOf === null || part.high < Number(at.asOf)) ? String(part.high) : at.asOf;
  const from = part.low - 1; // an epoch before the first change that is shown
  return { from: from > 0 && (!isEpoch(to) || from < Number(to)) ? String(from) : null, to };
}

/** The activity of a window. `ask` returns null if the answer is the one it returned before, too. */
export class Activity extends ThrottledQuery {
  constructor(isWanted) {
    super("v1/activity", isWanted);
  }

  async ask(params, at) {
    const { last } = this;
    this.last = await super.ask(params, at) ?? last;
    return this.last === last ? null : { ...this.last, points: whole(this.last) };
  }
}

/** Add the points in which nothing changed, with the totals of the point before. */
function whole({ points, first, last, width, by }) {
  if (!points.length) return [];
  const known = new Map(points.map((point) => [point.start, point]));
  const begin = by === "time" ? first - (first % width) : first;
  const found = [];
  let before = {};
  for (let start = begin; start <= last; start += width) {
    const point = known.get(start) ?? {
      start, firstEpoch: 0, lastEpoch: 0, changes: {}, commands: {}, refusals: 0, expiries: 0,
      topics: before.topics, brokers: before.brokers, queues: before.queues,
    };
    before = point;
    found.push(point);
  }
  return found;
}

/** Changes and commands of a point by kind. */
export function byKind(point) {
  const found = { broker: 0, expiry: 0, admin: 0, refusal: point.refusals };
  for (const [command, number] of Object.entries(point.changes)) found[kindOfCommand(command)] += number;
  return found;
}

/** How many admin commands a point has. */
export function adminCommands(point) {
  return Object.entries(point.commands).filter(([command]) => kindOfCommand(command) === "admin").reduce((sum, [, number]) => sum + number, 0);
}

/** Parameters of the Audit Log that show the changes of a point; null without any. */
export function placeOf(points) {
  const some = points.filter((point) => point.firstEpoch > 0);
  if (!some.length) return null;
  const first = Math.min(...some.map((point) => point.firstEpoch));
  const last = Math.max(...some.map((point) => point.lastEpoch));
  return changesOf(first, last);
}
