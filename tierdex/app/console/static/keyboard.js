// Keys: `/` goes to the search field of the open view; the arrows walk the results, Enter opens and shuts a message.

import { byId } from "./dom.js";

const SEARCH = ["key", "message-id", "journey-key", "queue-topic"];
const WALKED = "#entries tbody tr:not(.message-of), .journey > li";

/** Listen for the keys of the whole page. */
export function watchKeyboard() {
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const isTyping = event.target.closest?.("input, select, textarea");
    if (event.key === "/" && !isTyping) {
      const field = SEARCH.map(byId).find((each) => each.offsetParent !== null);
      if (!field) return;
      event.preventDefault();
      field.focus();
      field.select();
    }
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const stops = [...document.querySelectorAll(WALKED)].filter((each) => each.offsetParent !== null);
    const at = stops.indexOf(event.target);
    if (step && stops.length && (at >= 0 || event.target === document.body || byId("main") === event.target)) {
      event.preventDefault();
      const next = stops[Math.max(0, Math.min(stops.length - 1, at + step))];
      next.tabIndex = 0;
      next.focus();
    }
    if (event.key === "Enter" && at >= 0) {
      const message = stops[at].nextElementSibling;
      if (message?.classList.contains("message-of")) message.hidden = !message.hidden;
    }
  });
}
