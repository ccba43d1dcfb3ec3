// SPDX-License-Identifier: Apache-2.0
// How much changed when: GET /v1/activity as rows without a hole, and what its commands are to a reader.

import { Asker } from "./asker.js";
import { here } from "./place.js";

const BROKERS = new Set(["REGISTER_BROKER", "UNREGISTER_BROKER", "CHANNEL_CLOSED", "BROKER_HEARTBEAT", "RESUME"]);

/** Kinds of changes, in the order in which they are drawn, with the words of the legend. */
export const KINDS = { broker: "brokers' own", expiry: "expiries", admin: "admin commands", refusal: "refusals" };

/** Which kind a command is. */
export function kindOfCommand(command) {
  return command === "BROKER_EXPIRED" ? "expiry" : BROKERS.has(command) ? "broker" : "admin";
}

/** The window that is looked at: the marked range, else the part of the bar that is zoomed to, else everything. */
export function windowOf(at) {
  const { params } = here();
  const marked = params.get("from");
  if (marked !== null) {
    const isAfter = /^\d+$/.test(marked) && /^\d+$/.test(at.asOf ?? "") && Number(marked) > Number(at.asOf);
    return isAfter ? { from: at.asOf, to: marked } : { from: marked, to: at.asOf };
  }
  const [low, high] = (params.get("zoom") ?? "").split("-");
  const to = high && (at.asOf === null || Number(high) < Number(at.asOf)) ? high : at.asOf;
  return { from: Number(low) > 1 && (to === null || !/^\d+$/.test(to) || Number(low) - 1 < Number(to)) ? String(Number(low) - 1) : null, to };
}

/** One asker of the activity. */
export class Activity {
  /** @param {function} isWanted whether somebody looks at the answer */
  constructor(isWanted) {
    this.asker = new Asker("v1/activity", isWanted);
    this.body = null;
  }

  /** The activity; null where it is as good as what was given before, or a newer question took the place of this one. */
  async ask(params, signal) {
    const body = await this.asker.ask(params, signal);
    if (body === null || body === this.body) return null;
    this.body = body;
    return { ...body, points: whole(body) };
  }
}

/** Points without a hole: nothing changed in what is added, and there was as much as before. */
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
  return { from: first > 1 ? String(first - 1) : null, as_of: String(last) };
}
