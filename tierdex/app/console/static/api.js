// Calls to the service: relative addresses, the key as a bearer token, errors with words.

import { parseJson } from "./lossless_json.js";

const KEY_NAME = "tierdex-api-key";

/** What the service (status, problem+json) or the network (status 0) answered instead of a result. */
export class ApiError extends Error {
  constructor(status, message, field = null) {
    super(message);
    this.status = status;
    this.field = field;
  }
}

/** The key lives as long as the tab and is never written into an address. */
export function readKey() {
  return sessionStorage.getItem(KEY_NAME) ?? "";
}

export function writeKey(key) {
  if (key) sessionStorage.setItem(KEY_NAME, key);
  else sessionStorage.removeItem(KEY_NAME);
}

/** The requests of one part of a view, of which only the newest counts: it ends the one before it. */
export class NewestRequest {
  #running = null;

  /** As `get`. Throws AbortError when a newer request or `end` took its place. */
  async get(path, parameters = {}) {
    this.end();
    const { signal } = (this.#running = new AbortController());
    const answer = await get(path, parameters, signal);
    signal.throwIfAborted(); // the answer may have been complete already
    return answer;
  }

  end() {
    this.#running?.abort();
  }
}

/** GET a route; empty parameters are left out. Throws ApiError, or AbortError when `signal` fires. */
export async function get(path, parameters = {}, signal = undefined) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== null && value !== undefined && value !== "") search.set(name, String(value));
  }
  const key = readKey();
  const isWaiting = "wait_ms" in parameters; // for what may come: that is no loading
  let response, text;
  try {
    if (!isWaiting) countRequests(1);
    response = await fetch(search.size ? `${path}?${search}` : path, {
      headers: { Accept: "application/json", ...(key ? { Authorization: `Bearer ${key}` } : {}) },
      cache: "no-store",
      signal,
    });
    text = await response.text();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The service does not answer. Is it running, and is the network there?");
  } finally {
    if (!isWaiting) countRequests(-1);
  }
  if (!response.ok) throw problem(response.status, text);
  try {
    return parseJson(text);
  } catch (error) {
    throw new ApiError(response.status, `What answers here is not Tierdex: ${error.message}.`);
  }
}

let underWay = 0;

/** Show the loading bar while a request is under way. */
function countRequests(more) {
  underWay += more;
  document.body.classList.toggle("loading", underWay > 0);
}

function problem(status, text) {
  let body = {};
  try {
    body = parseJson(text) ?? {};
  } catch {
    body = { detail: text.slice(0, 500) }; // a proxy's page, not ours: show its beginning as text
  }
  const detail = body.detail ?? body.title ?? `The service answered ${status}.`;
  const message = typeof detail === "string" ? detail : JSON.stringify(detail);
  return new ApiError(status, `${message} (${status})`, body.field ?? null);
}
