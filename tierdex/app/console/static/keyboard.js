// Keys of the whole page. `/` goes to the search field of the open view. The arrows walk its results, of which one is
// a tab stop; Enter or the space bar opens and shuts a message, Escape shuts the one that the focus is in, and gives
// the focus back to its result.

import { byId } from "./dom.js";

const SEARCH = ["key", "message-id", "journey-key", "queue-topic"];
const WALKED = "#entries tbody tr:not(.message-of), .journey > li, #messages tbody tr, #home-topics tbody tr, #queues tbody tr";
const STEPS = { ArrowDown: (at) => at + 1, ArrowUp: (at) => at - 1, Home: () => 0, End: () => Infinity };

/** Listen for the keys of the whole page. */
export function watchKeyboard() {
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (event.key === "/") goToSearch(event);
    else if (event.key in STEPS) walk(event);
    else if (event.key === "Enter" || event.key === " ") toggle(event);
    else if (event.key === "Escape") shut(event);
  });
  addEventListener("focusin", ({ target }) => target.matches(WALKED) && makeStop(target));
}

/** Make the first of some results a tab stop: the way in, for the Tab key. */
export function offerFirst(results) {
  const [first] = results;
  if (first) first.tabIndex = 0;
}

/** Open or shut the message under a result. */
export function toggleMessage(result) {
  const message = messageUnder(result);
  if (message) message.hidden = !message.hidden;
  return Boolean(message);
}

function goToSearch(event) {
  if (event.target.closest("input, select, textarea")) return;
  const field = SEARCH.map(byId).find((each) => each.checkVisibility());
  if (!field) return;
  event.preventDefault();
  field.focus();
  field.select();
}

function walk(event) {
  const results = [...document.querySelectorAll(WALKED)].filter((each) => each.checkVisibility());
  const at = results.indexOf(event.target);
  const isAround = event.target === document.body || event.target === byId("main") || event.target.matches('[role="region"]');
  if (!results.length || (at < 0 && !isAround)) return;
  if (at < 0 && !event.key.startsWith("Arrow")) return; // the page itself scrolls
  event.preventDefault();
  const next = results[Math.max(0, Math.min(results.length - 1, STEPS[event.key](at)))];
  next.tabIndex = 0;
  next.focus();
}

/** Let Tab come back to the result that was walked to, and to no other of its list. */
function makeStop(result) {
  for (const each of result.parentNode.children) if (each.tabIndex === 0 && each !== result) each.tabIndex = -1;
}

function toggle(event) {
  if (!event.target.matches(WALKED)) return;
  event.preventDefault();
  if (!toggleMessage(event.target)) event.target.querySelector("a")?.click();
}

function shut(event) {
  const message = event.target.closest(".message-of") ?? messageUnder(event.target);
  if (!message || message.hidden) return;
  message.hidden = true;
  const result = message.previousElementSibling;
  result.tabIndex = 0;
  result.focus();
}

function messageUnder(result) {
  const next = result.nextElementSibling;
  return next?.classList.contains("message-of") ? next : null;
}
