// SPDX-License-Identifier: Apache-2.0
// GET /v1/events by fetch, because EventSource does not tell why a request is refused. It reconnects by itself from its last epoch.
//
// A hidden tab is not connected: a browser has six connections to a gateway for all tabs together.

import { open } from "./api.js";

const RETRY_MS = 2000;

/** A subscriber. `onEpoch` gets the data of each event, `onReset` is called after a gap, `onState` gets the state of the connection. */
export class Live {
  constructor({ onEpoch, onReset, onState }) {
    this.told = { onEpoch, onReset, onState };
    this.lastId = null;
    this.stopping = null;
    this.wanted = false;
    document.addEventListener("visibilitychange", () => this.settle());
  }

  /** Connect or disconnect. */
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
