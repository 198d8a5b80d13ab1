// A route that is asked again and again while its view is open; what goes wrong stands in the view's note.

import { ApiError, NewestRequest } from "./api.js";
import { showNote } from "./dom.js";
import { formatTime, zoneName } from "./times.js";

const PAUSE_MAX_MS = 30_000;

export class Polling {
  #request = new NewestRequest();
  #timer = null;

  /** `pauseMs` lies between an answer and the next request; errors double it. `seenMs` is the last answer's time, or null. */
  constructor({ path, pauseMs, note, zone, wantKey, onAnswer }) {
    Object.assign(this, { path, pauseMs, note, zone, wantKey, onAnswer });
    this.errors = 0;
    this.seenMs = null;
  }

  /** Ask now, and from then on. */
  async start() {
    clearTimeout(this.#timer);
    try {
      const answer = await this.#request.get(this.path);
      this.errors = 0;
      this.seenMs = Date.now();
      showNote(this.note, null);
      this.onAnswer(answer);
    } catch (error) {
      if (error.name === "AbortError") return; // stopped, or started anew
      if (!(error instanceof ApiError)) throw error;
      this.errors += 1;
      showNote(this.note, `${error.message}${this.#age()}`);
      if (error.wantsKey) this.wantKey();
    }
    this.#wait();
  }

  stop() {
    clearTimeout(this.#timer);
    this.#request.end();
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
