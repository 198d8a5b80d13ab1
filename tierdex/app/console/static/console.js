// The console's start: which view is open, the time zone, the API key. Views know nothing of each other.
//
// What the key allows is asked first: without it no view opens, and those that need more are not offered.

import { ApiError, get } from "./api.js";
import { CompactionView } from "./compaction.js";
import { byId, showNote } from "./dom.js";
import { FilesView } from "./files.js";
import { JourneyView } from "./journey.js";
import { KeyDialog } from "./key_dialog.js";
import { watchKeyboard } from "./keyboard.js";
import { readLink, VIEWS } from "./link.js";
import { Lookup } from "./lookup.js";
import { MessagesView } from "./messages.js";
import { NodesView } from "./nodes.js";

const ZONE_NAME = "tierdex-zone";
const ADMIN_VIEWS = ["files", "compaction", "nodes"];

let access = null; // what the caller may do; null while that is not known
const keyDialog = new KeyDialog({ onChange: learnAccess });
const seams = { zone: () => byId("zone").value, access: () => access ?? {}, wantKey };
const views = {
  lookup: new Lookup(seams), journey: new JourneyView(seams), messages: new MessagesView(seams),
  files: new FilesView(seams), compaction: new CompactionView(seams), nodes: new NodesView(seams),
};

function open() {
  const { view, parameters, unknown } = readLink(location.hash);
  const refusal = refusalOf(view);
  for (const name of VIEWS) {
    byId(`view-${name}`).hidden = name !== view || Boolean(refusal);
    const link = document.querySelector(`[data-view="${name}"]`);
    if (name === view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
    link.hidden = Boolean(refusalOf(name)) || (name === "messages" && access?.log === false);
    if (name !== view) views[name].close();
  }
  byId("refused").hidden = !refusal;
  byId("refused-reason").textContent = refusal ?? "";
  byId("refused-key").textContent = access?.wantsKey ? "Enter a key" : "Use another key";
  document.title = `${view[0].toUpperCase()}${view.slice(1)} · Tierdex`;
  showNote(byId("link-note"), unknown.length ? `This link says ${unknown.join(", ")}, which this page does not know: it was left out.` : null);
  if (!refusal) views[view].open(parameters);
}

/** Say why a view is not to be opened with this key; null when it is. */
function refusalOf(view) {
  if (access?.wantsKey) return "This service asks for an API key.";
  if (!ADMIN_VIEWS.includes(view) || !access || access.admin) return null;
  return `This page needs the right admin; yours: ${access.rights.join(", ")}.`;
}

/** Learn what the key allows, or take what is told; then open the view anew. */
async function learnAccess(told = null) {
  try {
    access = told ?? (await get("v1/access"));
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    access = error.status === 401 ? { wantsKey: true } : null; // views tell of all else
    wantKey(error);
  }
  byId("key-button").textContent = access?.name ? `Key ${access.name} · ${access.rights.join(", ")}` : "API key";
  open();
}

/** Ask for a key where there is none; what a key may not do the view says itself. */
function wantKey(error) {
  if (error.status === 401) keyDialog.open("This service asks for an API key.");
}

function watchZone() {
  let before;
  byId("zone").value = before = localStorage.getItem(ZONE_NAME) === "local" ? "local" : "utc";
  byId("zone").addEventListener("change", () => {
    localStorage.setItem(ZONE_NAME, byId("zone").value);
    for (const view of Object.values(views)) view.zoneChanged(before);
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

watchZone();
watchKeyboard();
byId("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the fragment is the query's: move the focus without it
  byId("main").focus();
});
byId("refused-key").addEventListener("click", () => keyDialog.open(byId("refused-reason").textContent));
addEventListener("hashchange", open);
learnAccess();
showVersion();
