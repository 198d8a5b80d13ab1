// An empty answer: what it proves, and what the user may have meant instead.
//
// "Every file was asked" is true of a topic without entries, too. So an unknown topic is said
// before anything else, and what the service found instead (`hints`) gets a link to the query that was meant.

import { element } from "./dom.js";
import { writeQuery } from "./link.js";
import { completenessBanner, formatFreshness, isHeldBack, unaskedInWords } from "./results.js";

const WORDS = {
  near_topic: "Did you mean topic ", other_topic: "The same key in topic ", other_spelling: "In another spelling: ",
  as_message_id: "A message has this ID: ",
};

/** Return the banner of an answer without entries, and the queries that may have been meant. */
export function nothingFound(query, answer, zone) {
  const banner = answer.complete ? completeBanner(query, answer, zone) : completenessBanner(answer, zone);
  const offers = offersFor(query, answer.hints ?? []);
  if (offers.length) banner.append(element("ul", { id: "offers" }, offers.map((offer) => element("li", {}, offer))));
  return banner;
}

function completeBanner(query, answer, zone) {
  const fresh = ` · as of ${formatFreshness(answer.as_of, zone)}`;
  if ((answer.hints ?? []).some(({ kind }) => kind === "no_topic")) {
    return element(
      "div", { class: "note warn", role: "status" },
      element("strong", {}, `No topic “${query.topic}”`), " is known here", fresh, unaskedInWords(answer, zone),
    );
  }
  const range = query.begin || query.end ? " in this range" : "";
  const what = query.message_id ? "message ID" : query.topic ? `key in topic ${query.topic}` : "key in any topic";
  return element(
    "div", { class: isHeldBack(answer) ? "note warn" : "note", role: "status" },
    element("strong", {}, "Nothing found"), `: every file was asked, and none holds this ${what}${range}`, fresh, unaskedInWords(answer, zone),
  );
}

/** Return links to what may have been meant, the likeliest first. */
function offersFor(query, hints) {
  const offers = new Map(); // by link: a near topic may have the key as well
  const offer = (words, text, meant) => {
    const href = writeQuery(meant);
    if (!offers.has(href)) offers.set(href, [words, element("a", { href }, text)]);
  };
  const { topic, key, message_id: messageId, ...rest } = query;
  if ((topic || messageId) && (query.begin || query.end)) offer("At ", "any time", { ...query, begin: null, end: null });
  for (const { kind, topic: meant, key: otherKey, message_id: otherId } of hints) {
    if (kind === "near_topic") offer(WORDS[kind], meant, { ...query, topic: meant });
    else if (otherId) offer(WORDS[kind], otherId, { ...rest, message_id: otherId });
    else if (kind === "as_key") offer(`As a key of topic ${meant}: `, otherKey, { ...rest, topic: meant, key: otherKey });
    else if (kind in WORDS) offer(WORDS[kind], kind === "other_spelling" ? otherKey : meant, { ...rest, topic: meant, key: otherKey });
  }
  return [...offers.values()];
}
