// SPDX-License-Identifier: Apache-2.0
// GET /v1/events, by fetch: EventSource does not tell why it was refused. Comes again by itself, from the last epoch that it was told.
//
// A hidden tab does not listen: a browser has six connections to a gateway for all tabs together.

import { open } from "./api.js";

const RETRY_MS = 2000;

/** One listener. `onEpoch` gets each event's data, `onReset` hears that too much was missed, `onState` whether it listens. */
export class Live {
  constructor({ onEpoch, onReset, onState }) {
    this.told = { onEpoch, onReset, onState };
    this.lastId = null;
    this.stopping = null;
    this.wanted = false;
    document.addEventListener("visibilitychange", () => this.settle());
  }

  /** Listen, or do not. */
  set(isWanted) {
    this.wanted = isWanted;
    this.settle();
  }

  settle() {
    const isOn = this.wanted && document.visibilityState !== "hidden";
    if (isOn && this.stopping === null) {
      this.stopping = new AbortController();
      this.run(this.stopping.signal);
    } else if (!isOn && this.stopping !== null) {
      this.stopping.abort();
      this.stopping = null;
      this.told.onState("off");
    }
  }

  async run(signal) {
    while (!signal.aborted) {
      try {
        const headers = this.lastId === null ? {} : { "last-event-id": this.lastId };
        const answer = await open("v1/events", headers, signal);
        this.told.onState("on");
        await this.read(answer.body.getReader());
      } catch (error) {
        if (signal.aborted) return;
        this.told.onState(error.status === 401 || error.status === 403 ? "refused" : "lost");
      }
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }

  async read(reader) {
    const decoder = new TextDecoder();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      rest += decoder.decode(value, { stream: true });
      const events = rest.split("\n\n");
      rest = events.pop();
      for (const event of events) this.take(event);
    }
  }

  take(text) {
    const found = { event: "message", data: "" };
    for (const line of text.split("\n")) {
      const [, name, value] = /^(\w+): ?(.*)$/.exec(line) ?? [];
      if (name === "id") this.lastId = value;
      else if (name === "event") found.event = value;
      else if (name === "data") found.data += value;
    }
    if (!found.data) return;
    if (found.event === "epoch") this.told.onEpoch(JSON.parse(found.data));
    else if (found.event === "reset") this.told.onReset(JSON.parse(found.data));
  }
}
