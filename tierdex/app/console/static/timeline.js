// Files over time: one row a file, its bar from its first to its last entry, or over another span of it.
//
// Only the rows in sight are drawn, so that thousands of files stay light; rows shrink until they all
// fit or are two pixels high. A zoom in time keeps only the files that reach into it, so that its rows
// grow again. The list box keeps the chosen row for keyboards and screen readers.

import { element, shape } from "./dom.js";
import { watchDrag } from "./drag.js";
import { formatCount, shortFileId } from "./format.js";
import { timeTicks } from "./time_axis.js";
import { formatTime } from "./times.js";

const LABEL_WIDTH = 176;
const LABEL_WIDTH_NARROW = 118; // where the drawing has less than 600 pixels
const LABEL_ROW = 15; // rows at least this high carry their file's name
const ROW_MIN = 2;
const ROW_MAX = 20;
const MARGIN = 10;
const DATE_MAX = 8.64e15;
const TICK_WIDTH = 84;

export class Timeline {
  /** `onChoose(file)` is called with the file under the pointer or the keyboard's choice, or null. */
  constructor({ axis, scroller, zone, onChoose }) {
    this.axis = axis;
    this.scroller = scroller;
    this.zone = zone;
    this.onChoose = onChoose;
    this.all = []; // every file given
    this.files = []; // those that have a row
    this.chosen = -1;
    this.span = null; // what a drag zoomed to; null: the whole range
    this.spanOf = spanOfEntries; // a file's bar: [first, last] in milliseconds, null for none
    this.height = element("div", { class: "chart-height", role: "presentation" });
    this.drawing = shape("svg", { class: "chart", role: "presentation" });
    this.scroller.replaceChildren(this.height, this.drawing);
    this.scroller.addEventListener("scroll", () => this.#drawRows());
    this.scroller.addEventListener("keydown", (event) => this.#key(event));
    this.#watchPointer();
    new ResizeObserver(() => this.draw()).observe(this.scroller);
  }

  /** Show these files (newest first), keeping the choice, the zoom and the scroll position. */
  show(files) {
    this.all = files;
    this.draw();
  }

  /** Draw other spans of the files. */
  showSpans(spanOf) {
    this.spanOf = spanOf;
    this.fit();
  }

  /** Choose a file by its id and bring it into sight; an unknown one chooses nothing. */
  choose(fileId) {
    if (!this.files.some((file) => file.file_id === fileId)) this.fit(); // it may lie outside the zoom
    this.#chooseRow(this.files.findIndex((file) => file.file_id === fileId), true);
  }

  /** Leave the zoom. */
  fit() {
    this.span = null;
    this.draw();
  }

  draw() {
    const chosenId = this.files[this.chosen]?.file_id;
    const [begin, end] = this.span ?? wholeSpan(this.all.map(this.spanOf));
    this.files = this.span ? this.all.filter((file) => reachesInto(this.spanOf(file), begin, end)) : this.all;
    this.chosen = this.files.findIndex((file) => file.file_id === chosenId);
    this.width = Math.max(this.scroller.clientWidth, LABEL_WIDTH + 120);
    const labelWidth = this.width < 600 ? LABEL_WIDTH_NARROW : LABEL_WIDTH;
    const room = this.scroller.clientHeight || 480;
    this.row = Math.min(ROW_MAX, Math.max(ROW_MIN, Math.floor(room / Math.max(this.files.length, 1))));
    this.begin = begin;
    this.end = end;
    this.labelWidth = this.row >= LABEL_ROW ? labelWidth : MARGIN;
    this.height.style.height = `${this.row * this.files.length}px`;
    this.#drawAxis();
    this.#drawRows();
  }

  #x(time) {
    const share = (Number(time) - this.begin) / (this.end - this.begin);
    return this.labelWidth + share * (this.width - this.labelWidth - MARGIN);
  }

  #time(x) {
    const share = (x - this.labelWidth) / (this.width - this.labelWidth - MARGIN);
    return this.begin + Math.min(Math.max(share, 0), 1) * (this.end - this.begin);
  }

  #ticks() {
    if (!this.files.length) return [];
    const count = Math.floor((this.width - this.labelWidth) / TICK_WIDTH);
    return timeTicks(this.begin, this.end, count, this.zone()).map((tick) => ({ ...tick, x: this.#x(tick.at) }));
  }

  #drawAxis() {
    const anchor = (x) => (x < this.labelWidth + 30 ? "start" : x > this.width - 40 ? "end" : "middle");
    const ticks = this.#ticks();
    const labels = ticks.map(({ x, label }) => shape("text", { x, y: 15, "text-anchor": anchor(x) }, label));
    const isTold = ticks.some(({ label }) => /^\d{4}-/.test(label)) || this.labelWidth === MARGIN || !ticks.length;
    if (!isTold) labels.unshift(shape("text", { x: MARGIN, y: 15 }, formatTime(BigInt(Math.round(this.begin)), this.zone()).slice(0, 10)));
    this.axis.replaceChildren(shape(
      "svg", { class: "chart", width: this.width, height: 22, "aria-hidden": "true" }, labels,
    ));
  }

  #drawRows() {
    const room = this.scroller.clientHeight;
    const top = this.scroller.scrollTop;
    const first = Math.max(0, Math.floor(top / this.row) - 2);
    const last = Math.min(this.files.length, Math.ceil((top + room) / this.row) + 2);
    const lines = this.#ticks().map(({ x }) => shape("line", { class: "grid", x1: x, x2: x, y1: 0, y2: room }));
    const rows = [];
    for (let index = first; index < last; index += 1) rows.push(this.#drawRow(index, index * this.row - top));
    this.drawing.setAttribute("width", this.width);
    this.drawing.setAttribute("height", room);
    this.selection = shape("rect", { class: "selection", y: 0, height: room, width: 0 });
    this.drawing.replaceChildren(...lines, ...rows, this.selection);
    if (this.chosen >= 0) this.scroller.setAttribute("aria-activedescendant", rowId(this.chosen));
    else this.scroller.removeAttribute("aria-activedescendant");
  }

  #drawRow(index, y) {
    const file = this.files[index];
    const inset = this.row > 8 ? 3 : this.row > 4 ? 1 : 0.5;
    const parts = [shape("rect", { class: "row", x: 0, y, width: this.width, height: this.row })];
    if (this.row >= LABEL_ROW) {
      parts.push(shape("text", { x: MARGIN, y: y + this.row / 2 + 4, class: "row-label" }, clip(shortFileId(file.file_id))));
    }
    const span = this.spanOf(file);
    if (span) {
      const left = Math.max(this.#x(span[0]), this.labelWidth);
      const right = Math.min(this.#x(span[1]), this.width - MARGIN);
      if (right >= this.labelWidth && left <= this.width - MARGIN) {
        const width = Math.max(right - left, 3);
        parts.push(shape("rect", {
          class: "span", "data-state": file.state, x: Math.min(left, this.width - MARGIN - 3), y: y + inset,
          width, height: this.row - 2 * inset, rx: this.row > 8 ? 2 : 0,
        }));
      }
    } else if (this.row >= LABEL_ROW) {
      parts.push(shape("text", { x: this.labelWidth, y: y + this.row / 2 + 4, class: "row-label" }, "empty"));
    }
    return shape("g", {
      id: rowId(index), role: "option", "aria-selected": String(index === this.chosen), "data-index": index,
      "aria-posinset": index + 1, "aria-setsize": this.files.length, "aria-label": this.#describe(file),
    }, parts);
  }

  #describe(file) {
    const span = this.spanOf(file);
    const times = span ? span.map((time) => formatTime(time, this.zone())).join(" to ") : "no entries";
    return `${shortFileId(file.file_id)}, ${file.state}, ${formatCount(file.item_count)} items, ${times}`;
  }

  #chooseRow(index, bringIntoSight) {
    this.chosen = index;
    if (index >= 0 && bringIntoSight) {
      const y = index * this.row;
      const room = this.scroller.clientHeight;
      if (y < this.scroller.scrollTop) this.scroller.scrollTop = y;
      else if (y + this.row > this.scroller.scrollTop + room) this.scroller.scrollTop = y + this.row - room;
    }
    this.#drawRows();
    this.onChoose(this.files[index] ?? null);
  }

  #key(event) {
    const page = Math.max(1, Math.floor(this.scroller.clientHeight / this.row) - 1);
    const moves = {
      ArrowDown: this.chosen + 1, ArrowUp: this.chosen - 1, PageDown: this.chosen + page,
      PageUp: this.chosen - page, Home: 0, End: this.files.length - 1,
    };
    if (event.key === "Escape") this.fit();
    if (!(event.key in moves) || !this.files.length) return;
    event.preventDefault();
    this.#chooseRow(Math.min(Math.max(moves[event.key], 0), this.files.length - 1), true);
  }

  #watchPointer() {
    watchDrag(this.scroller, {
      from: () => this.labelWidth,
      onMove: (from, to) => {
        this.selection.setAttribute("x", from);
        this.selection.setAttribute("width", to - from);
      },
      onEnd: (from, to) => {
        const span = [this.#time(from), this.#time(to)];
        if (span[1] - span[0] >= 1) this.span = span;
        this.draw();
      },
    });
    this.scroller.addEventListener("pointermove", (event) => {
      if (event.buttons) return;
      const y = event.clientY - this.scroller.getBoundingClientRect().top + this.scroller.scrollTop;
      const index = Math.floor(y / this.row);
      if (index !== this.chosen && index < this.files.length) this.#chooseRow(index, false);
    });
  }
}

/** Say whether a file has entries, and so a place on the time line. */
export function hasSpan(file) {
  return Boolean(file.item_count) && file.min_time !== null && file.max_time !== null;
}

/** Return from a file's first to its last entry; null without entries. */
export function spanOfEntries(file) {
  return hasSpan(file) ? [file.min_time, file.max_time] : null;
}

/** Return from a file's birth to its seal, or to now. */
export function spanOfLife(file) {
  return file.begin ? [file.begin, file.sealed_at ?? Date.now()] : null;
}

function reachesInto(span, begin, end) {
  return span && Number(span[0]) <= end && Number(span[1]) >= begin;
}

function wholeSpan(spans) {
  let begin = Infinity;
  let end = -Infinity;
  for (const [first, last] of spans.filter(Boolean)) {
    begin = Math.min(begin, Math.max(Number(first), -DATE_MAX));
    end = Math.max(end, Math.min(Number(last), DATE_MAX));
  }
  if (begin > end) return [0, 1];
  const air = Math.max((end - begin) * 0.01, 1);
  return [begin - air, end + air];
}

function rowId(index) {
  return `file-row-${index}`;
}

function clip(text) {
  return text.length > 25 ? `${text.slice(0, 24)}…` : text;
}
