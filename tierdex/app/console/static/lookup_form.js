// The lookup's form: fields to a query and back, times as people write them, errors beside their fields.

import { byId, element, showFieldError, showNote } from "./dom.js";
import { TimeField, readRange } from "./time_field.js";

const INPUTS = {
  topic: "topic", key: "key", message_id: "message-id", begin: "begin", end: "end", max_count: "max-count",
};
const TIMES = ["begin", "end"];
const RANGES = { "15m": "15 min", "1h": "1 h", "24h": "24 h", "7d": "7 d", "30d": "30 d", "": "any time" };

export class LookupForm {
  /** `onSubmit(query)` gets a query without faults, `onRefuse()` is called where there are some. */
  constructor({ zone, onSubmit, onRefuse }) {
    Object.assign(this, { onSubmit, onRefuse, byMessageId: false });
    byId("lookup-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.submit();
    });
    this.#watchTabs();
    const holder = byId("lookup-times");
    const onChange = () => this.#showRange();
    this.times = {
      begin: new TimeField({ holder, id: "begin", label: "From", zone, onChange }),
      end: new TimeField({ holder, id: "end", label: "To", isEnd: true, zone, onChange }),
    };
    byId("ranges").replaceChildren(...Object.entries(RANGES).map(([range, label]) => element(
      "button", { type: "button", "data-range": range, on: { click: () => this.narrow(range, "") } }, label,
    )));
  }

  /** Show a query; times of a link are UTC where they name no zone, as in the API. */
  fill(query) {
    for (const [name, id] of Object.entries(INPUTS)) byId(id).value = query[name] ?? (name === "max_count" ? "64" : "");
    for (const name of TIMES) this.times[name].write(query[name] ?? "", "utc");
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
    this.times.begin.write(begin, "utc");
    this.times.end.write(end, "utc");
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
    for (const name of TIMES) this.times[name].zoneChanged(before);
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
    Object.assign(query, readRange(this.times, fault));
    query.max_count = byId("max-count").value.trim();
    if (!/^[1-9]\d{0,8}$/.test(query.max_count)) fault("max_count", "A number from 1.");
    query.explain = byId("explain").checked ? "1" : "0";
    for (const [name, message] of faults) this.refuse(name, message);
    if (faults.length) byId(INPUTS[faults[0][0]]).focus();
    return faults.length ? null : query;
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

  /** Mark the quick range that the fields say, if any. */
  #showRange() {
    const { begin, end } = this.times;
    for (const button of byId("ranges").children) {
      button.setAttribute("aria-pressed", String(end.text === "" && button.dataset.range === begin.text.replace(/^-/, "")));
    }
  }
}
