// Something that is asked for again and again while its view is open; what goes wrong stands in the view's note.

import { ApiError } from "./api.js";
import { showNote } from "./dom.js";
import { formatTime, zoneName } from "./times.js";

const PAUSE_MAX_MS = 30_000;

export class Polling {
  #running = null;
  #timer = null;

  /** `ask(signal)` sends the requests. `pauseMs` lies between an answer and the next request; errors double it. `seenMs` is the last answer's time, or null. */
  constructor({ ask, pauseMs, note, zone, wantKey, onAnswer }) {
    Object.assign(this, { ask, pauseMs, note, zone, wantKey, onAnswer });
    this.errors = 0;
    this.seenMs = null;
  }

  /** Ask now, and from then on. */
  async start() {
    this.stop();
    const { signal } = (this.#running = new AbortController());
    try {
      const answer = await this.ask(signal);
      signal.throwIfAborted(); // the answer may have been complete already
      this.errors = 0;
      this.seenMs = Date.now();
      showNote(this.note, null);
      this.onAnswer(answer);
    } catch (error) {
      if (error.name === "AbortError") return; // stopped, or started anew
      if (!(error instanceof ApiError)) throw error;
      this.errors += 1;
      showNote(this.note, `${error.message}${this.#age()}`);
      if (this.errors === 1) this.wantKey(error);
    }
    this.#wait();
  }

  stop() {
    clearTimeout(this.#timer);
    this.#running?.abort();
  }

  #wait() {
    const pause = Math.min(this.pauseMs * 2 ** this.errors, PAUSE_MAX_MS);
    this.#timer = setTimeout(() => (document.hidden ? this.#wait() : this.start()), pause);
  }

  /** Say that what stands below an error is older than the error. */
  #age() {
    const zone = this.zone();
    return this.seenMs === null ? "" : ` What is shown was seen at ${formatTime(this.seenMs, zone).slice(0, 19)} ${zoneName(zone)}.`;
  }
}
