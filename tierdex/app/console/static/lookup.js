// The lookup view: the form, the running query, its pages. The fragment is the truth: submitting writes
// it, and reading it fills the form and runs the query.
//
// What stands under the form belongs to `query`: whoever changes or refuses the query clears it first, and
// an answer that comes after that is thrown away. `pages` is empty until the first answer is there.

import { ApiError, NewestRequest } from "./api.js";
import { byId, element, showNote } from "./dom.js";
import { explainView } from "./explain.js";
import { drawMessages, fetchMessages } from "./found_messages.js";
import { isQuery, readLink, writeLink, writeQuery } from "./link.js";
import { nothingFound } from "./nothing_found.js";
import { completenessBanner, entriesTable } from "./results.js";
import { saveLookup, showSavedLookups } from "./saved_lookups.js";
import { plural, formatMilliseconds } from "./format.js";
import { formatTime, parseTime, zoneName } from "./times.js";

const FIELD_INPUTS = {
  topic: "topic", key: "key", message_id: "message-id", begin: "begin", end: "end", max_count: "max-count",
};

export class Lookup {
  /** `zone()` says "utc" or "local"; `wantKey()` asks the user for an API key. */
  constructor({ zone, wantKey }) {
    this.zone = zone;
    this.wantKey = wantKey;
    this.byId = false;
    this.request = new NewestRequest();
    this.topicsRequest = new NewestRequest();
    this.query = null;
    this.pages = [];
    byId("lookup-form").addEventListener("submit", (event) => this.#submit(event));
    this.#watchTabs();
    for (const name of ["begin", "end"]) this.#watchTime(name);
    showSavedLookups();
  }

  /** Fill the form from a link's parameters and run the query that they make. */
  show(parameters) {
    for (const [name, id] of Object.entries(FIELD_INPUTS)) {
      byId(id).value = parameters[name] ?? (name === "max_count" ? "64" : "");
    }
    for (const name of ["begin", "end"]) this.#showTimeAsWritten(name);
    byId("explain").checked = parameters.explain !== "0";
    this.#choose("message_id" in parameters);
    this.#clear();
    if (isQuery(parameters)) this.#run(parameters);
  }

  /** Offer the topics that the service knows. */
  async loadTopics() {
    try {
      const { topics } = await this.topicsRequest.get("v1/topics");
      byId("topics").replaceChildren(...topics.map((name) => element("option", { value: name })));
      if (topics.length && !byId("topic").value) byId("topic").placeholder = `e.g. ${topics[0]}`;
    } catch (error) {
      if (error.name === "AbortError") return;
      if (!(error instanceof ApiError)) throw error;
      if (error.wantsKey) this.wantKey(); // the list is a convenience: topics can be typed all the same
    }
  }

  /** Write the same moments again after the zone changed from `before`. */
  zoneChanged(before) {
    for (const name of ["begin", "end"]) {
      try {
        const moment = parseTime(byId(name).value, { zone: before, isEnd: name === "end" });
        byId(name).value = moment ?? "";
      } catch {
        // not a time yet: it stays as typed, and the hint below the field says so
      }
      this.#showTimeAsWritten(name);
    }
    if (this.pages.length) this.#draw();
  }

  #submit(event) {
    event.preventDefault();
    this.#clear(); // also when the form is refused: nothing may stand there as its answer
    let link;
    try {
      link = writeQuery(this.#readForm());
    } catch (error) {
      showNote(byId("form-note"), error.message);
      return;
    }
    if (location.hash === link) this.show(readLink(link).parameters);
    else location.hash = link; // the hashchange shows it
  }

  #readForm() {
    const query = this.byId
      ? { message_id: byId("message-id").value }
      : { topic: byId("topic").value, key: byId("key").value };
    for (const [name, value] of Object.entries(query)) {
      if (value === "") this.#refuse(FIELD_INPUTS[name], `Enter a ${name.replace("_", " ")}.`);
    }
    for (const name of ["begin", "end"]) {
      try {
        query[name] = parseTime(byId(name).value, { zone: this.zone(), isEnd: name === "end" });
      } catch (error) {
        this.#refuse(name, error.message);
      }
    }
    if (query.begin !== null && query.end !== null && query.begin > query.end) {
      this.#refuse("begin", "“From” is after “To”.");
    }
    query.max_count = byId("max-count").value.trim();
    if (!/^[1-9]\d{0,8}$/.test(query.max_count)) this.#refuse("max-count", "“Most entries” is a number from 1.");
    query.explain = byId("explain").checked ? "1" : "0";
    return query;
  }

  #refuse(inputId, message) {
    byId(inputId).setAttribute("aria-invalid", "true");
    byId(inputId).focus();
    throw new Error(message);
  }

  #run(query) {
    this.query = query;
    byId("answer").replaceChildren(element("p", { class: "quiet" }, "Looking up …"));
    return this.#fetchPage(null);
  }

  async #fetchPage(cursor) {
    const { explain, ...parameters } = this.query;
    const answerNode = byId("answer");
    this.#clearNotes();
    answerNode.setAttribute("aria-busy", "true");
    const started = performance.now();
    try {
      const answer = await this.request.get("v1/entries", { ...parameters, cursor, explain: explain === "0" ? null : "true" });
      const milliseconds = performance.now() - started;
      const isEmpty = cursor === null && !answer.entries.length;
      const messages = answer.entries.length ? fetchMessages({ ...parameters, cursor }) : null;
      this.pages.push({ answer, milliseconds, messages, topics: isEmpty ? await this.#topics() : null });
      this.#draw(cursor !== null);
    } catch (error) {
      if (error.name === "AbortError") return; // a newer query, or none, took its place
      if (!(error instanceof ApiError)) throw error;
      this.#showError(error);
    }
    answerNode.setAttribute("aria-busy", "false");
  }

  /** Return the topics, null where the service does not tell them: an empty answer must not depend on it. */
  async #topics() {
    try {
      return (await this.request.get("v1/topics")).topics;
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      return null;
    }
  }

  #draw(isNextPage = false) {
    const { milliseconds, topics } = this.pages.at(-1);
    const answer = joinPages(this.pages.map((page) => page.answer));
    const { entries } = answer;
    const isNothing = !entries.length && !answer.next_cursor;
    const more = element(
      "button",
      { type: "button", id: "next-page", on: { click: () => this.#fetchPage(answer.next_cursor) } },
      `Next ${this.query.max_count ?? 64}`,
    );
    const count = `${plural(entries.length, "entry")}${answer.next_cursor ? ", and more" : ""}`;
    const head = element(
      "div", { class: "answer-head" },
      element("h2", { id: "answer-title" }, entries.length ? count : "No entry"),
      element("span", { class: "quiet" }, `answered in ${formatMilliseconds(milliseconds)}`),
      element("button", { type: "button", class: "quiet-button", on: { click: () => saveLookup(location.hash) } }, "Save"),
      element("button", { type: "button", class: "quiet-button", on: { click: copyLink } }, "Copy link"),
      this.query.key ? element("a", { href: writeLink("journey", { key: this.query.key }) }, "Journey") : null,
    );
    byId("answer").replaceChildren(
      isNothing ? nothingFound(this.query, answer, topics, this.zone()) : completenessBanner(answer, this.zone()),
      head, ...(entries.length ? [entriesTable(entries, this.zone())] : []), ...(answer.next_cursor ? [more] : []),
    );
    if (entries.length) this.#showMessages(byId("entries"));
    byId("explain-view").replaceChildren(...(answer.explain ? [explainView(answer.explain)] : []));
    if (isNextPage) byId("next-page")?.focus();
  }

  /** Put messages under the rows as they come, page by page. */
  async #showMessages(table) {
    for (const [place, { messages }] of this.pages.entries()) {
      const found = await messages;
      const entries = this.pages.slice(0, place + 1).flatMap(({ answer }) => answer.entries);
      if (found) drawMessages(table, entries, found);
    }
  }

  #showError(error) {
    this.#clear();
    const input = FIELD_INPUTS[error.field];
    if (input) byId(input).setAttribute("aria-invalid", "true");
    showNote(byId("form-note"), error.message);
    if (error.wantsKey) this.wantKey();
  }

  /** End what is under way and leave nothing of it, nor of what it was asked, in sight. */
  #clear() {
    this.request.end();
    this.query = null;
    this.pages = [];
    this.#clearNotes();
    byId("answer").replaceChildren();
    byId("answer").setAttribute("aria-busy", "false");
    byId("explain-view").replaceChildren();
  }

  #clearNotes() {
    showNote(byId("form-note"), null);
    for (const id of Object.values(FIELD_INPUTS)) byId(id).removeAttribute("aria-invalid");
  }

  #watchTabs() {
    const tabs = [byId("tab-key"), byId("tab-id")];
    tabs.forEach((tab, index) => {
      tab.addEventListener("click", () => this.#choose(index === 1));
      tab.addEventListener("keydown", (event) => {
        if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
        this.#choose(index === 0);
        tabs[1 - index].focus();
      });
    });
  }

  #choose(byMessageId) {
    this.byId = byMessageId;
    for (const [tab, panel, chosen] of [["tab-key", "panel-key", !byMessageId], ["tab-id", "panel-id", byMessageId]]) {
      byId(tab).setAttribute("aria-selected", String(chosen));
      byId(tab).tabIndex = chosen ? 0 : -1;
      byId(panel).hidden = !chosen;
    }
  }

  #watchTime(name) {
    byId(name).addEventListener("input", () => this.#explainTime(name));
    const picker = byId(`${name}-pick`);
    document.querySelector(`[data-pick="${name}"]`).addEventListener("click", () => picker.showPicker());
    picker.addEventListener("input", () => {
      byId(name).value = picker.value.replace("T", " ");
      this.#explainTime(name);
    });
  }

  /** Write a time field's milliseconds as the zone's wall clock, which people can read and change. */
  #showTimeAsWritten(name) {
    const text = byId(name).value.trim();
    if (/^-?\d+$/.test(text)) {
      const written = formatTime(BigInt(text), this.zone());
      if (/^\d{4}-/.test(written)) byId(name).value = written;
    }
    this.#explainTime(name);
  }

  #explainTime(name) {
    const note = byId(`${name}-read`);
    try {
      const zone = this.zone();
      const value = parseTime(byId(name).value, { zone, isEnd: name === "end" });
      const read = value === null ? "" : formatTime(value, zone);
      // what was typed in full needs no repetition: then the epoch milliseconds say more
      note.textContent = read === byId(name).value.trim() ? value ?? "" : `${read} ${zoneName(zone)}`;
      note.title = value === null ? "" : `${value} ms since the epoch`;
      note.classList.remove("bad-text");
      byId(name).removeAttribute("aria-invalid");
    } catch (error) {
      note.textContent = "not a time yet";
      note.title = error.message;
      note.classList.add("bad-text");
    }
  }
}

/** Return pages as one answer: complete when all are, since a later page never brings what an earlier one missed. */
function joinPages(answers) {
  const missing = new Map(answers.flatMap((answer) => answer.missing ?? []).map((one) => [String(one.file), one]));
  return {
    ...answers.at(-1),
    entries: answers.flatMap((answer) => answer.entries),
    complete: answers.every((answer) => answer.complete),
    missing: [...missing.values()],
  };
}

async function copyLink(event) {
  const button = event.currentTarget;
  try {
    await navigator.clipboard.writeText(location.href);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Copy it from the address bar"; // browsers allow the clipboard on https and localhost only
  }
}
