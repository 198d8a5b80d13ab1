// The lookup's form: fields to a query and back, times as people write them, errors beside their fields.
//
// A query is what a link holds. Its times are milliseconds, or count back from now (`7d`): those stay as they
// were written, so that a kept link means the last week next month, too.

import { byId, element, showFieldError, showNote } from "./dom.js";
import { formatTime, isBeforeNow, parseTime, zoneName } from "./times.js";

const INPUTS = {
  topic: "topic", key: "key", message_id: "message-id", begin: "begin", end: "end", max_count: "max-count",
};
const TIMES = ["begin", "end"];
const RANGES = { "15m": "15 min", "1h": "1 h", "24h": "24 h", "7d": "7 d", "30d": "30 d", "": "any time" };

export class LookupForm {
  /** `onSubmit(query)` gets a query without faults, `onRefuse()` is called where there are some. */
  constructor({ zone, onSubmit, onRefuse }) {
    Object.assign(this, { zone, onSubmit, onRefuse, byMessageId: false });
    byId("lookup-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.submit();
    });
    this.#watchTabs();
    TIMES.forEach((name) => this.#watchTime(name));
    byId("ranges").replaceChildren(...Object.entries(RANGES).map(([range, label]) => element(
      "button", { type: "button", "data-range": range, on: { click: () => this.narrow(range, "") } }, label,
    )));
  }

  /** Show a query; times of a link are UTC where they name no zone, as in the API. */
  fill(query) {
    for (const [name, id] of Object.entries(INPUTS)) byId(id).value = query[name] ?? (name === "max_count" ? "64" : "");
    for (const name of TIMES) this.#writeTime(name, "utc");
    byId("explain").checked = query.explain !== "0";
    this.#choose("message_id" in query);
    this.clearErrors();
  }

  /** Give the query to `onSubmit`, or show what is wrong with it. */
  submit() {
    this.clearErrors();
    const query = this.#read();
    if (query) this.onSubmit(query);
    else this.onRefuse();
  }

  /** Set the times, and look up where the form says what. */
  narrow(begin, end) {
    byId("begin").value = begin;
    byId("end").value = end;
    for (const name of TIMES) this.#writeTime(name, "utc");
    const what = this.byMessageId ? ["message-id"] : ["topic", "key"];
    if (what.every((id) => byId(id).value)) this.submit();
  }

  /** Show an error at the field of a query that it is about, else below the form. */
  refuse(field, message) {
    const input = INPUTS[field] && byId(INPUTS[field]);
    if (input?.checkVisibility()) showFieldError(input, message);
    else showNote(byId("form-note"), message);
  }

  clearErrors() {
    showNote(byId("form-note"), null);
    for (const id of Object.values(INPUTS)) showFieldError(byId(id), null);
  }

  /** Write the same moments again after the zone changed from `before`. */
  zoneChanged(before) {
    for (const name of TIMES) this.#writeTime(name, before);
  }

  #read() {
    const query = this.byMessageId
      ? { message_id: byId("message-id").value }
      : { topic: byId("topic").value, key: byId("key").value };
    const faults = [];
    const fault = (name, message) => faults.push([name, message]);
    for (const [name, value] of Object.entries(query)) {
      if (value === "") fault(name, `Enter a ${name.replace("_", " ")}.`);
    }
    const moments = {};
    for (const name of TIMES) {
      try {
        moments[name] = this.#moment(name, this.zone());
        query[name] = isBeforeNow(byId(name).value.trim()) ? byId(name).value.trim() : moments[name];
      } catch (error) {
        fault(name, error.message);
      }
    }
    if (moments.begin && moments.end && moments.begin > moments.end) fault("begin", "“From” is after “To”.");
    query.max_count = byId("max-count").value.trim();
    if (!/^[1-9]\d{0,8}$/.test(query.max_count)) fault("max_count", "A number from 1.");
    query.explain = byId("explain").checked ? "1" : "0";
    for (const [name, message] of faults) this.refuse(name, message);
    if (faults.length) byId(INPUTS[faults[0][0]]).focus();
    return faults.length ? null : query;
  }

  #moment(name, zone) {
    return parseTime(byId(name).value, { zone, isEnd: name === "end" });
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
    this.byMessageId = byMessageId;
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

  /** Write what a field holds, in `zone` where it names none, as this zone's wall clock; what no calendar holds stays. */
  #writeTime(name, zone) {
    const field = byId(name);
    try {
      const moment = isBeforeNow(field.value.trim()) ? null : this.#moment(name, zone);
      const written = formatTime(moment, this.zone());
      if (/^\d{4}-/.test(written)) field.value = written;
    } catch {
      // not a time: it stays as it is, and the hint below the field says so
    }
    this.#explainTime(name);
  }

  #explainTime(name) {
    const note = byId(`${name}-read`);
    const text = byId(name).value.trim();
    showFieldError(byId(name), null);
    note.title = "";
    try {
      const value = this.#moment(name, this.zone());
      const read = value === null ? "" : formatTime(value, this.zone());
      // what was typed in full needs no repetition: then the epoch milliseconds say more
      note.textContent = read === text ? value ?? "" : `${read} ${zoneName(this.zone())}`;
      if (value !== null) note.title = `${value} ms since the epoch`;
    } catch {
      note.textContent = "not a time yet";
    }
    for (const button of byId("ranges").children) {
      button.setAttribute("aria-pressed", String(byId("end").value === "" && button.dataset.range === byId("begin").value.trim().replace(/^-/, "")));
    }
  }
}
