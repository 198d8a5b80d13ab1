// The lookup view: the running query and its pages. The fragment is the truth: submitting writes it, and
// reading it fills the form and runs the query; without a query it is the home page.
//
// What stands under the form belongs to `query`: whoever changes or refuses the query clears it first, and
// an answer that comes after that is thrown away. `pages` is empty until the first answer is there.

import { ApiError, NewestRequest } from "./api.js";
import { copyMenu } from "./copy_menu.js";
import { byId, element } from "./dom.js";
import { explainView } from "./explain.js";
import { drawMessages, fetchMessages } from "./found_messages.js";
import { formatMilliseconds, plural } from "./format.js";
import { histogram } from "./histogram.js";
import { Home } from "./home.js";
import { isQuery, readLink, writeLink, writeQuery } from "./link.js";
import { LookupForm } from "./lookup_form.js";
import { nothingFound } from "./nothing_found.js";
import { completenessBanner, entriesTable } from "./results.js";
import { saveLookup, showSavedLookups } from "./saved_lookups.js";
import { isBeforeNow, parseTime } from "./times.js";

export class Lookup {
  /** `zone()` says "utc" or "local", `access()` what the caller may do; `wantKey(error)` asks the user for an API key. */
  constructor({ zone, access, wantKey }) {
    Object.assign(this, { zone, wantKey, query: null, pages: [], isNewestFirst: true });
    this.request = new NewestRequest();
    this.home = new Home({ zone, access, wantKey });
    this.form = new LookupForm({ zone, onSubmit: (query) => this.#go(query), onRefuse: () => this.#clear() });
    showSavedLookups();
  }

  /** Fill the form from a link's parameters and run the query that they make. */
  open(parameters) {
    this.form.fill(parameters);
    this.#clear();
    if (isQuery(parameters)) {
      this.home.close();
      this.#run(parameters);
      return;
    }
    this.home.open();
    if (parameters.topic) byId("key").focus();
  }

  close() {
    this.home.close();
  }

  zoneChanged(before) {
    this.form.zoneChanged(before);
    this.home.draw();
    if (this.pages.length) this.#draw();
  }

  #go(query) {
    const link = writeQuery(query);
    if (location.hash === link) this.open(readLink(link).parameters);
    else location.hash = link; // the hashchange shows it
  }

  /** Run a query. A time that counts back from now is one moment for all its pages. */
  #run(query) {
    const asked = { ...query };
    for (const name of ["begin", "end"]) {
      if (!isBeforeNow(query[name] ?? "")) continue;
      asked[name] = parseTime(query[name]);
    }
    this.query = asked;
    byId("answer").replaceChildren(element("p", { class: "quiet" }, "Looking up …"));
    return this.#fetchPage(null);
  }

  async #fetchPage(cursor) {
    const { explain, ...parameters } = this.query;
    const answerNode = byId("answer");
    this.form.clearErrors();
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
      this.#clear();
      this.form.refuse(error.field, error.message);
      this.wantKey(error);
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
    const { topics } = this.pages.at(-1);
    const answer = joinPages(this.pages.map((page) => page.answer));
    const zone = this.zone();
    const entries = inOrderOfTime(answer.entries, this.isNewestFirst);
    const found = [this.#head(answer)];
    if (entries.length) {
      const sort = () => {
        this.isNewestFirst = !this.isNewestFirst;
        this.#draw();
        byId("sort-time").focus();
      };
      found.push(
        histogram(entries, { zone, onNarrow: (begin, end) => this.form.narrow(String(begin), String(end)) }),
        entriesTable(entries, zone, { isNewestFirst: this.isNewestFirst, sort }),
      );
    }
    if (answer.next_cursor) found.push(this.#pager(answer));
    const isNothing = !entries.length && !answer.next_cursor;
    byId("answer").replaceChildren(
      isNothing ? nothingFound(this.query, answer, topics, zone) : completenessBanner(answer, zone), ...found,
    );
    if (entries.length) this.#showMessages(byId("entries"), entries);
    byId("explain-view").replaceChildren(...(answer.explain ? [explainView(answer.explain)] : []));
    if (isNextPage) byId("next-page")?.focus();
  }

  #head({ entries, next_cursor: more }) {
    const milliseconds = this.pages.reduce((sum, page) => sum + page.milliseconds, 0);
    return element(
      "div", { class: "answer-head" },
      element("h2", { id: "answer-title" }, entries.length ? `${plural(entries.length, "entry")}${more ? ", and more" : ""}` : "No entry"),
      element("span", { class: "quiet" }, `${this.pages.length > 1 ? `${this.pages.length} pages, ` : ""}answered in ${formatMilliseconds(milliseconds)}`),
      element(
        "span", { class: "actions" },
        this.query.key ? element("a", { href: writeLink("journey", { key: this.query.key }) }, "Journey") : null,
        element("button", { type: "button", class: "quiet-button", on: { click: () => saveLookup(location.hash) } }, "Save"),
        copyMenu(this.query),
      ),
    );
  }

  /** Return how far the pages have come, and the way to the next. */
  #pager({ entries, next_cursor: cursor }) {
    const next = () => this.#fetchPage(cursor);
    return element(
      "div", { class: "pager" },
      element("button", { type: "button", id: "next-page", on: { click: next } }, `Next ${this.query.max_count ?? 64}`),
      element("span", { class: "quiet" }, `${plural(entries.length, "entry")} on ${plural(this.pages.length, "page")} so far, in order of time among themselves: files that were not asked yet may hold newer ones.`),
    );
  }

  /** Put messages under the rows as they come, page by page. */
  async #showMessages(table, entries) {
    for (const { messages } of this.pages) {
      const found = await messages;
      if (found) drawMessages(table, entries, found);
    }
  }

  /** End what is under way and leave nothing of it, nor of what it was asked, in sight. */
  #clear() {
    this.request.end();
    this.query = null;
    this.pages = [];
    byId("answer").replaceChildren();
    byId("answer").setAttribute("aria-busy", "false");
    byId("explain-view").replaceChildren();
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

function inOrderOfTime(entries, isNewestFirst) {
  const sign = isNewestFirst ? -1 : 1;
  return entries.toSorted(({ timestamp: one }, { timestamp: other }) => (one < other ? -sign : one > other ? sign : 0));
}
