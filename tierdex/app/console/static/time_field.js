// A field for one end of a range of times: what people write, what it means below it, and a picker.
//
// A link holds milliseconds, or what counts back from now as it was written (`7d`), so that a kept link means the
// last week next month, too.

import { element, showFieldError } from "./dom.js";
import { formatTime, isBeforeNow, parseTime, zoneName } from "./times.js";

export class TimeField {
  /** Put the field into `holder`; `zone()` says "utc" or "local". `isEnd`: the last moment of a range. */
  constructor({ holder, id, label, isEnd = false, zone, onChange = () => {} }) {
    Object.assign(this, { zone, isEnd, onChange });
    this.input = element("input", {
      id, class: "code", placeholder: isEnd ? "any time" : "any time, 7d, 2013-01-07", spellcheck: "false", "aria-describedby": `${id}-read`,
      on: { input: () => this.#explain() },
    });
    this.picker = element("input", {
      type: "datetime-local", step: "0.001", id: `${id}-pick`, tabindex: "-1", "aria-hidden": "true", class: "picker",
      on: { input: () => this.write(this.picker.value.replace("T", " "), this.zone()) },
    });
    this.read = element("span", { class: "hint", id: `${id}-read` });
    const pick = element(
      "button", { type: "button", class: "pick", "aria-label": `Pick the ${isEnd ? "last" : "first"} moment`, title: "Pick", on: { click: () => this.picker.showPicker() } }, "▾",
    );
    holder.append(element(
      "div", { class: "field time-field" }, element("label", { for: id }, label),
      element("span", { class: "time-inputs" }, this.input, pick, this.picker), this.read,
    ));
  }

  get text() {
    return this.input.value.trim();
  }

  /** Return the milliseconds that it means now, null for any time. Throws an Error that says what to do. */
  moment() {
    return this.#moment(this.zone());
  }

  /** Return what a link holds of it. Throws as `moment`. */
  value() {
    const moment = this.moment();
    return isBeforeNow(this.text) ? this.text : moment;
  }

  /** Write a text, in `zone` where it names none, as this zone's wall clock; what no calendar holds stays. */
  write(text, zone) {
    this.input.value = text;
    try {
      const written = isBeforeNow(this.text) ? "" : formatTime(this.#moment(zone), this.zone());
      if (/^\d{4}-/.test(written)) this.input.value = written;
    } catch {
      // not a time: it stays as it is, and the hint below the field says so
    }
    this.#explain();
  }

  /** Write the same moment again after the zone changed from `before`. */
  zoneChanged(before) {
    this.write(this.text, before);
  }

  #moment(zone) {
    return parseTime(this.text, { zone, isEnd: this.isEnd });
  }

  #explain() {
    showFieldError(this.input, null);
    this.read.title = "";
    try {
      const value = this.moment();
      const read = value === null ? "" : formatTime(value, this.zone());
      // what was typed in full needs no repetition: then the epoch milliseconds say more
      this.read.textContent = read === this.text ? value ?? "" : `${read} ${zoneName(this.zone())}`;
      if (value !== null) this.read.title = `${value} ms since the epoch`;
    } catch {
      this.read.textContent = "not a time yet";
    }
    this.onChange();
  }
}

/** Return {begin, end} as a link holds them; `fault(name, message)` is told what is wrong. */
export function readRange(fields, fault) {
  const moments = {};
  const range = {};
  for (const name of ["begin", "end"]) {
    try {
      moments[name] = fields[name].moment();
      range[name] = fields[name].value();
    } catch (error) {
      fault(name, error.message);
    }
  }
  const isTurned = ![moments.begin, moments.end].some((moment) => moment === null || moment === undefined) && moments.begin > moments.end;
  if (isTurned) fault("begin", "“From” is after “To”.");
  return range;
}

/** Return a link's range in milliseconds, what counts back from now by this call; of what is no time the service says why. */
export function momentsOf({ begin, end }) {
  const moment = (text, isEnd) => {
    try {
      return parseTime(text ?? "", { isEnd })?.toString();
    } catch {
      return text;
    }
  };
  return { begin: moment(begin, false), end: moment(end, true) };
}

