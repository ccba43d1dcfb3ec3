// SPDX-License-Identifier: Apache-2.0
// Asks for an answer that costs the gateway much, and no oftener than it costs: one request is under way at a time, the
// newest question wins, and the same is asked again only when the gateway has rested.

import { get } from "./api.js";

const REST = 20; // the gateway is left alone for so many times as long as its last answer took
const REST_AT_LEAST_MS = 5000;

export class Asker {
  /**
   * @param {string} path of the endpoint
   * @param {function} isWanted whether somebody still looks at the answer; asked when a load of the page ends early
   */
  constructor(path, isWanted = () => true) {
    Object.assign(this, { path, isWanted, question: null, found: null, error: null, next_ms: 0, underway: null });
  }

  /** Milliseconds until the same question is asked of the gateway again. */
  get rest_ms() {
    return Math.max(0, this.next_ms - performance.now());
  }

  /**
   * The newest answer there is; null where a newer question has taken the place of this one.
   * @param {Object} params of the request
   * @param {AbortSignal} signal of the load that asks: the request goes on for the next load that asks the same
   * @param {number} epoch an answer of this epoch or a later one is good without rest
   */
  async ask(params, signal = null, epoch = Infinity) {
    const question = JSON.stringify(params);
    signal?.addEventListener("abort", () => this.isWanted() || this.stop(), { once: true });
    if (this.underway?.question === question) return this.underway.answer;
    if (question === this.question && (this.rest_ms > 0 || this.found?.epoch >= epoch)) {
      this.stop();
      if (this.error) throw this.error;
      return this.found;
    }
    const before = this.underway;
    const own = { question, stopping: new AbortController() };
    this.underway = own;
    before?.stopping.abort();
    own.answer = this.send(own, params, before);
    return own.answer;
  }

  async send(own, params, before) {
    await before?.answer.catch(() => null);
    const began_ms = performance.now();
    try {
      if (own.stopping.signal.aborted) return null;
      const { body } = await get(this.path, params, { signal: own.stopping.signal });
      this.settle(own, REST_AT_LEAST_MS, REST * (performance.now() - began_ms), { found: body, error: null });
      return body;
    } catch (error) {
      if (own.stopping.signal.aborted) return null;
      this.settle(own, 0, performance.now() - began_ms, { found: null, error });
      throw error;
    } finally {
      if (this.underway === own) this.underway = null;
    }
  }

  settle(own, least_ms, rest_ms, outcome) {
    if (!own.stopping.signal.aborted) Object.assign(this, outcome, { question: own.question, next_ms: performance.now() + Math.max(least_ms, rest_ms) });
  }

  /** Ask no more for what is under way. */
  stop() {
    this.underway?.stopping.abort();
    this.underway = null;
  }
}
