// SPDX-License-Identifier: Apache-2.0
// A request that is expensive for the gateway. One request is in progress at a time, the newest parameters win, and the
// same request is sent again only after a pause. The pause grows with the time that the last answer took.

import { get } from "./api.js";

const PAUSE = 20; // times the duration of the last request
const MIN_PAUSE_MS = 5000;

export class ThrottledQuery {
  /**
   * @param {string} path of the endpoint
   * @param {function} isWanted false: a load of the page that ends early also ends the request
   */
  constructor(path, isWanted = () => true) {
    Object.assign(this, { path, isWanted, key: null, found: null, error: null, next_ms: 0, running: null });
  }

  get pause_ms() {
    return Math.max(0, this.next_ms - performance.now());
  }

  /**
   * The newest answer. null: newer parameters have replaced these.
   * @param {Object} params of the request
   * @param {Object} at `signal` of the load that asks: the request goes on for the next load with the same parameters;
   *   `epoch()`: a kept answer of this epoch or a later one is current, without a pause
   */
  async ask(params, { signal = null, epoch = () => Infinity } = {}) {
    const key = JSON.stringify(params);
    signal?.addEventListener("abort", () => this.isWanted() || this.stop(), { once: true });
    if (this.running?.key === key) return this.running.answer;
    if (key === this.key && (this.pause_ms > 0 || this.found?.epoch >= epoch())) {
      this.stop();
      if (this.error) throw this.error;
      return this.found.body;
    }
    const before = this.running;
    const own = { key, stopping: new AbortController() };
    this.running = own;
    before?.stopping.abort();
    own.answer = this.send(own, params, before);
    return own.answer;
  }

  async send(own, params, before) {
    await before?.answer.catch(() => null);
    const began_ms = performance.now();
    const { signal } = own.stopping;
    try {
      if (signal.aborted) return null;
      const found = await get(this.path, params, { signal });
      this.keep(own, MIN_PAUSE_MS, PAUSE * (performance.now() - began_ms), { found, error: null });
      return found.body;
    } catch (error) {
      if (signal.aborted) return null;
      this.keep(own, 0, performance.now() - began_ms, { found: null, error });
      throw error;
    } finally {
      if (this.running === own) this.running = null;
    }
  }

  keep(own, least_ms, pause_ms, outcome) {
    if (!own.stopping.signal.aborted) Object.assign(this, outcome, { key: own.key, next_ms: performance.now() + Math.max(least_ms, pause_ms) });
  }

  /** If the answer is of an earlier epoch than the console knows, reload the page after the pause. */
  reloadIfOld(at) {
    if (this.found === null || this.found.epoch >= at.epoch()) return;
    const timer = setTimeout(at.reload, this.pause_ms);
    at.signal.addEventListener("abort", () => clearTimeout(timer), { once: true });
  }

  /** End the request in progress. */
  stop() {
    this.running?.stopping.abort();
    this.running = null;
  }
}
