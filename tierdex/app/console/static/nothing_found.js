// An empty answer: what it proves, and what the user may have meant instead.
//
// "Every file was asked" is true of a topic that nobody ever wrote, too. So an unknown topic is said
// before anything else, and texts that are often typed by mistake get a link to the query that was meant.

import { element } from "./dom.js";
import { formatName, plural } from "./format.js";
import { writeQuery } from "./link.js";
import { nearNames } from "./near_names.js";
import { completenessBanner, formatFreshness, isHeldBack, unaskedInWords } from "./results.js";

const TOPICS_TOLD = 8;

/**
 * Return the banner of an answer without entries, and the queries that may have been meant.
 *
 * `topics` are the service's topics, or null when it does not tell them.
 */
export function nothingFound(query, answer, topics, zone) {
  const banner = answer.complete ? completeBanner(query, answer, topics, zone) : completenessBanner(answer, zone);
  const offers = offersFor(query, topics);
  if (offers.length) banner.append(element("ul", { id: "offers" }, offers.map((offer) => element("li", {}, offer))));
  return banner;
}

/** Say whether the answer is empty because its topic is; false while the topics are not known. */
function isUnknownTopic({ topic }, topics) {
  return Boolean(topic && topics && !topics.includes(topic));
}

function completeBanner(query, answer, topics, zone) {
  const fresh = ` · as of ${formatFreshness(answer.as_of, zone)}`;
  if (isUnknownTopic(query, topics)) {
    return element(
      "div", { class: "note warn", role: "status" },
      element("strong", {}, `No topic “${query.topic}”`), `: ${topicsInWords(topics)}`, fresh, unaskedInWords(answer, zone),
    );
  }
  const range = query.begin || query.end ? " in this range" : "";
  const what = query.message_id ? "message ID" : topics ? `key in topic ${query.topic}` : "key";
  return element(
    "div", { class: isHeldBack(answer) ? "note warn" : "note", role: "status" },
    element("strong", {}, "Nothing found"), `: every file was asked, and none holds this ${what}${range}`, fresh, unaskedInWords(answer, zone),
  );
}

function topicsInWords(topics) {
  if (!topics.length) return "this index holds no topic";
  if (topics.length <= TOPICS_TOLD) return `this index holds ${topics.map((name) => `“${name}”`).join(", ")}`;
  return `it is none of the ${plural(topics.length, "topic")} here`;
}

/** Return links to what may have been meant, the likeliest first. */
function offersFor(query, topics) {
  const offers = [];
  const offer = (words, link, meant) => link && offers.push([words, element("a", { href: writeQuery(meant) }, link)]);
  const { topic, key, message_id: messageId, ...rest } = query;
  const name = messageId === undefined ? "key" : "message_id";
  const text = query[name].trim();
  if (isUnknownTopic(query, topics)) {
    for (const near of nearNames(topic, topics)) offer("Did you mean topic ", near, { ...query, topic: near });
  }
  if (text !== query[name]) offer(`Without the spaces around the ${formatName(name)}: `, text, { ...query, [name]: text });
  if (query.begin || query.end) offer("At ", "any time", { ...query, begin: null, end: null });
  if (messageId === undefined) offer("As a message ID: ", text, { ...rest, message_id: text });
  else offer("As a key: ", text, { ...rest, key: text, topic: topics?.length === 1 ? topics[0] : null }); // else the user says the topic
  return offers;
}
