// The console's start: which view is open, the time zone, the API key. Views know nothing of each other.

import { ApiError, get, readKey, writeKey } from "./api.js";
import { CompactionView } from "./compaction.js";
import { byId } from "./dom.js";
import { FilesView } from "./files.js";
import { JourneyView } from "./journey.js";
import { watchKeyboard } from "./keyboard.js";
import { readLink, VIEWS } from "./link.js";
import { Lookup } from "./lookup.js";
import { MessagesView } from "./messages.js";

const ZONE_NAME = "tierdex-zone";

const seams = { zone: () => byId("zone").value, wantKey };
const lookup = new Lookup(seams);
const journey = new JourneyView(seams);
const messages = new MessagesView(seams);
const files = new FilesView(seams);
const compaction = new CompactionView(seams);

function open() {
  const { view, parameters } = readLink(location.hash);
  for (const name of VIEWS) {
    byId(`view-${name}`).hidden = name !== view;
    const link = document.querySelector(`[data-view="${name}"]`);
    if (name === view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${view[0].toUpperCase()}${view.slice(1)} · Tierdex`;
  if (view !== "journey") journey.close();
  if (view !== "messages") messages.close();
  if (view !== "files") files.close();
  if (view !== "compaction") compaction.close();
  if (view === "lookup") lookup.show(parameters);
  if (view === "journey") journey.open(parameters);
  if (view === "messages") messages.open(parameters);
  if (view === "files") files.open(parameters);
  if (view === "compaction") compaction.open();
}

function wantKey() {
  const field = byId("api-key");
  field.setAttribute("aria-invalid", "true");
  field.focus();
}

function watchKey() {
  byId("api-key").value = readKey();
  byId("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    byId("api-key").removeAttribute("aria-invalid");
    writeKey(byId("api-key").value.trim());
    lookup.loadTopics();
    open();
  });
}

function watchZone() {
  let before;
  byId("zone").value = before = localStorage.getItem(ZONE_NAME) === "local" ? "local" : "utc";
  byId("zone").addEventListener("change", () => {
    localStorage.setItem(ZONE_NAME, byId("zone").value);
    for (const view of [lookup, journey, messages, files, compaction]) view.zoneChanged(before);
    before = byId("zone").value;
  });
}

async function showVersion() {
  try {
    const { version } = await get("version");
    byId("version").textContent = version ? `version ${version}` : "";
  } catch (error) {
    if (!(error instanceof ApiError)) throw error; // without it the corner stays empty
  }
}

watchKey();
watchZone();
watchKeyboard();
byId("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the fragment is the query's: move the focus without it
  byId("main").focus();
});
addEventListener("hashchange", open);
open();
lookup.loadTopics();
showVersion();
