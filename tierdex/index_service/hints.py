"""Hints: what a question that found nothing may have meant.

::

    is the topic known?   --no-->  near names of topics
    the same key          -------> in other topics, in another case, without blanks at its ends, as an ID

A hint never changes an answer: "not found" stays what it was. Hints take one list of topics and one batch
of lookups, each of one entry.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

from tierdex.index_service.answer import Hint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_NEAR_MOST: Final = 5
_TOPICS_MOST: Final = 1000  # asked for the same key: one batch
_NEAR: Final = 0.6


def find_hints(
    index: Any,
    topic: str | None,
    *,
    key: str | None = None,
    message_id: str | None = None,
    topics: Iterable[str] | None = None,
    may: Callable[[str], bool] = lambda _topic: True,
) -> tuple[Hint, ...]:
    """Return hints for a lookup without entries; none where all was said right and it is nowhere.

    `topics` are those that may be named (None: all), `may` says whether entries of one may be. Raises what
    `known_topics` and `query_batch` raise.
    """
    names = list(index.known_topics().names if topics is None else topics)
    found = list(topic_hints(topic, names))
    asked = list(_variants(topic, key, message_id, names))
    lookups = [lookup for lookup, _kind, _text in asked]
    if lookups:
        answers = index.query_batch(lookups, max_count=1)
        found += [
            Hint(kind, text, lookup.get("topic"), lookup.get("key"), lookup.get("message_id"))
            for (lookup, kind, text), answer in zip(asked, answers, strict=True)
            if any(may(entry.topic) for entry in answer.entries)
        ]
    return tuple(found)


def topic_hints(topic: str | None, names: list[str]) -> Iterator[Hint]:
    """Yield that a topic is none of `names`, and the names that are near to it."""
    if topic is None or topic in names:
        return
    yield Hint("no_topic", f"no topic {topic!r} is known", topic)
    for near in _near(topic, names):
        yield Hint("near_topic", f"there is a topic {near!r}", near)


def _near(topic: str, names: list[str]) -> list[str]:
    """Return names that differ in case, blanks, a few characters, or go on: nearest first."""
    folded = {name: name.strip().casefold() for name in names}
    wanted = topic.strip().casefold()
    begins = [name for name, text in folded.items() if _is_beginning(wanted, text)]
    close = get_close_matches(wanted, folded.values(), _NEAR_MOST, _NEAR)
    near = [name for text in close for name, other in folded.items() if other == text]
    return list(dict.fromkeys([*near, *begins]))[:_NEAR_MOST]


def _is_beginning(one: str, other: str) -> bool:
    return bool(one and other) and (one.startswith(other) or other.startswith(one))


def _variants(
    topic: str | None, key: str | None, message_id: str | None, names: list[str]
) -> Iterator[tuple[dict[str, Any], str, str]]:
    """Yield lookups of what may have been meant, with the kind and the text of their hints."""
    if key is None:
        assert message_id is not None
        for other in _spellings(message_id):
            yield {"message_id": other}, "other_spelling", f"there is the message ID {other!r}"
        for name in names[:_TOPICS_MOST]:
            text = f"topic {name!r} has {message_id!r} as a key"
            yield {"topic": name, "key": message_id}, "as_key", text
        return
    if topic in names:
        for other in _spellings(key):
            text = f"topic {topic!r} has the key {other!r}"
            yield {"topic": topic, "key": other}, "other_spelling", text
    for name in [name for name in names if name != topic][:_TOPICS_MOST]:
        yield {"topic": name, "key": key}, "other_topic", f"topic {name!r} has the key {key!r}"
    yield {"message_id": key}, "as_message_id", f"there is a message with the ID {key!r}"


def _spellings(text: str) -> list[str]:
    """Return the text without blanks at its ends and in other cases, each that differs once."""
    bare = text.strip()
    found = dict.fromkeys(
        (bare, *(t for each in (text, bare) for t in (each.upper(), each.lower())))
    )
    return [each for each in found if each and each != text]
