// The lookup view: the running query and its pages. The fragment is the truth: submitting writes it, and
// reading it fills the form and runs the query; without a query it is the home page.
//
// What stands under the form belongs to `query`: code that changes or refuses the query clears it first, and
// an answer that comes after that is thrown away. `pages` is empty until the first answer is there, `shown` has the messages that came. `counts` are
// those of all pages, once the service has told them; it is asked when there is more than one page.

import { ApiError, NewestRequest } from "./api.js";
import { copyMenu } from "./copy_menu.js";
import { byId, element } from "./dom.js";
import { explainView } from "./explain.js";
import { exportMenu } from "./export.js";
import { drawMessages, fetchMessages, withMessage } from "./found_messages.js";
import { formatCount, formatMilliseconds, plural } from "./format.js";
import { countsOf, fetchCounts, histogram } from "./histogram.js";
import { Home } from "./home.js";
import { offerFirst } from "./keyboard.js";
import { isQuery, readLink, writeLink, writeQuery } from "./link.js";
import { LookupForm } from "./lookup_form.js";
import { nothingFound } from "./nothing_found.js";
import { completenessBanner, entriesTable } from "./results.js";
import { saveLookup, showSavedLookups } from "./saved_lookups.js";
import { momentsOf } from "./time_field.js";
import { formatTime, zoneName } from "./times.js";

export class Lookup {
  /** `zone()` says "utc" or "local", `access()` what the caller may do; `wantKey(error)` asks the user for an API key. */
  constructor({ zone, access, wantKey }) {
    Object.assign(this, { zone, access, wantKey, query: null, pages: [], shown: new Map(), counts: null, isNewestFirst: true });
    this.request = new NewestRequest();
    this.counting = new NewestRequest();
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
    this.query = { ...query, ...momentsOf(query) };
    byId("answer").replaceChildren(element("p", { class: "quiet" }, "Looking up …"));
    return this.#fetchPage(null);
  }

  async #fetchPage(cursor) {
    const { explain, ...parameters } = this.query;
    const answerNode = byId("answer");
    this.form.clearErrors();
    if (cursor !== null) byId("next-error").textContent = "";
    answerNode.setAttribute("aria-busy", "true");
    const started = performance.now();
    try {
      const answer = await this.request.get("v1/entries", { ...parameters, cursor, hints: "true", explain: explain === "0" ? null : "true" });
      const milliseconds = performance.now() - started;
      const messages = answer.entries.length ? fetchMessages({ ...parameters, cursor }) : null;
      this.pages.push({ answer, milliseconds, messages });
      this.#draw(cursor !== null);
      if (cursor === null && answer.next_cursor) this.#count();
    } catch (error) {
      if (error.name === "AbortError") return; // a newer query, or none, took its place
      if (!(error instanceof ApiError)) throw error;
      if (cursor === null) {
        this.#clear();
        this.form.refuse(error.field, error.message);
      } else byId("next-error").textContent = error.message; // the pages that stand are as true as before
      this.wantKey(error);
    }
    answerNode.setAttribute("aria-busy", "false");
  }

  /** Count the entries of all pages, beside the page that stands. */
  async #count() {
    try {
      this.counts = await fetchCounts(this.counting, this.query);
    } catch (error) {
      if (error.name === "AbortError") return;
      throw error;
    }
    this.#drawHistogram();
  }

  #draw(isNextPage = false) {
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
        element("div", { id: "over-time" }),
        ...(answer.next_cursor ? [element("p", { class: "quiet", id: "page-boundary" }, this.#boundary(entries))] : []),
        entriesTable(entries, zone, { isNewestFirst: this.isNewestFirst, sort, linksFiles: this.access().admin !== false }),
      );
    }
    if (answer.next_cursor) found.push(this.#pager(answer));
    const isNothing = !entries.length && !answer.next_cursor;
    byId("answer").replaceChildren(
      isNothing ? nothingFound(this.query, answer, zone) : completenessBanner(answer, zone), ...found,
    );
    if (entries.length) {
      this.#drawHistogram();
      this.#showMessages(byId("entries"), entries);
    }
    byId("explain-view").replaceChildren(...(answer.explain ? [explainView(answer.explain)] : []));
    offerFirst(byId("answer").querySelectorAll("#entries tbody tr"));
    if (isNextPage) (byId("next-page") ?? byId("answer-title")).focus();
  }

  /** Draw the counts that are known best: of all pages, or of the fetched ones. */
  #drawHistogram() {
    const answer = joinPages(this.pages.map((page) => page.answer));
    const waiting = answer.next_cursor ? "Only the fetched entries; counting the others …" : "";
    const counts = this.counts?.counts ? this.counts : countsOf(answer.entries);
    byId("answer-title").textContent = this.#title(answer);
    if (answer.next_cursor) byId("page-boundary").textContent = this.#boundary(answer.entries);
    const hadFocus = byId("over-time").contains(document.activeElement);
    const onNarrow = (begin, end) => this.form.narrow(String(begin), String(end));
    byId("over-time").replaceChildren(histogram(counts, this.counts?.words ?? waiting, { zone: this.zone(), onNarrow }));
    if (hadFocus) byId("over-time").querySelector(".histogram")?.focus();
  }

  /** Say how many entries stand here, and of how many. */
  #title({ entries, next_cursor: more }) {
    if (!entries.length) return "No entry";
    if (!more) return plural(entries.length, "entry");
    const { count, more: hasOlder } = this.counts ?? {};
    return count > entries.length
      ? `${formatCount(entries.length)} of ${hasOlder ? "more than " : ""}${plural(count, "entry")}`
      : `${plural(entries.length, "entry")}, and more`;
  }

  #head(answer) {
    const { entries } = answer;
    const milliseconds = this.pages.reduce((sum, page) => sum + page.milliseconds, 0);
    return element(
      "div", { class: "answer-head" },
      element("h2", { id: "answer-title", tabindex: "-1" }, this.#title(answer)),
      element("span", { class: "quiet" }, `${this.pages.length > 1 ? `${this.pages.length} pages, ` : ""}answered in ${formatMilliseconds(milliseconds)}`),
      element(
        "span", { class: "actions" },
        this.query.key ? element("a", { href: writeLink("journey", { key: this.query.key }) }, "Journey") : null,
        element("button", { type: "button", class: "quiet-button", on: { click: () => saveLookup(location.hash) } }, "Save lookup"),
        entries.length ? exportMenu("lookup", () => this.#exported()) : null,
        copyMenu(this.query, { messages: () => this.shown.size > 0 }),
      ),
    );
  }

  /** Return how far the pages have come, and the way to the next. */
  #pager({ next_cursor: cursor }) {
    const next = () => this.#fetchPage(cursor);
    return element(
      "div", { class: "pager" },
      element("button", { type: "button", id: "next-page", on: { click: next } }, `Next ${this.query.max_count ?? 64}`),
      element("span", { class: "bad-text", id: "next-error", role: "alert" }),
    );
  }

  /** Say what the order of time means as long as there are other pages. */
  #boundary(entries) {
    const said = `${plural(entries.length, "entry")} on ${plural(this.pages.length, "page")} so far, in order of time among themselves: `;
    const newest = entries.reduce((most, { timestamp }) => (timestamp > most ? timestamp : most), entries[0].timestamp);
    if (!this.counts?.counts) return `${said}entries that are not fetched yet may be newer.`;
    const zone = this.zone();
    return this.counts.end > newest
      ? `${said}the newest of all, of ${formatTime(this.counts.end, zone)} ${zoneName(zone)}, is on a later page.`
      : `${said}no counted entry is newer.`;
  }

  /** Put messages under the rows as they come, page by page. */
  async #showMessages(table, entries) {
    for (const { messages } of this.pages) {
      const found = await messages;
      if (found?.found.size) this.shown = new Map([...this.shown, ...found.found]);
      if (found) drawMessages(table, entries, found);
    }
  }

  /** Return what stands here as one answer, with the messages that came. */
  #exported() {
    const answer = joinPages(this.pages.map((page) => page.answer));
    return { ...answer, entries: answer.entries.map((entry) => withMessage(entry, this.shown)) };
  }

  /** End what is under way and leave nothing of it, nor of what it was asked, in sight. */
  #clear() {
    this.request.end();
    this.counting.end();
    this.query = null;
    this.pages = [];
    this.shown = new Map();
    this.counts = null;
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
