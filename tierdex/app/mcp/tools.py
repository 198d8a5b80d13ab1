"""The tools that an assistant calls: each is one request of the HTTP API, told in words first.

The service behind `Ask` decides what the caller may see, masks it and writes the audit line. What a tool adds
is `says`: a sentence that a model cannot overlook, since an empty list reads like "it was never sent".

Depends on pydantic.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import Field

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Ask = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]

INSTRUCTIONS: Final = (
    "Tierdex knows where every message of a log lies, by key (an order number, say) and by message ID. Read "
    "`says` of each answer first: only a COMPLETE answer without entries means that nothing was sent. An "
    "INCOMPLETE one names what could not be read; say so, and do not conclude that something is absent. What "
    "retention removed, or was asked to be forgotten, counts as never put."
)
_MOST: Final = 20

Topic = Annotated[str, Field(description="topic of the log; `topics` lists them")]
Key = Annotated[str, Field(description="key of the message, exactly as it was sent")]
TopicOfKey = Annotated[str | None, Field(description="topic of the key; not with message_id")]
KeyInTopic = Annotated[str | None, Field(description="key, exactly as it was sent")]
MessageId = Annotated[str | None, Field(description="instead of topic and key")]
Moment = Annotated[
    str | None, Field(description="ISO 8601, milliseconds since 1970, or back from now: 7d, 12h")
]
Count = Annotated[int, Field(ge=1, le=200, description="largest number of entries")]


class Tools:
    """The tools over one service."""

    def __init__(self, ask: Ask) -> None:
        """`ask(path, parameters)` sends a GET of the HTTP API and returns its JSON, or raises a refusal."""
        self._ask = ask

    async def find_message(
        self,
        topic: TopicOfKey = None,
        key: KeyInTopic = None,
        message_id: MessageId = None,
        begin: Moment = None,
        end: Moment = None,
        max_count: Count = _MOST,
        show: Annotated[bool, Field(description="fetch the messages themselves, too")] = True,
    ) -> dict[str, Any]:
        """Find messages by topic and key, or by message ID: where they lie, when sent, and what they say."""
        asked = {
            "topic": topic, "key": key, "message_id": message_id, "begin": begin, "end": end,
            "max_count": max_count, "hints": "true",
        }  # fmt: skip
        answer = await self._ask("/v1/entries", {**asked, "message": "true" if show else None})
        name = f"message ID {message_id}" if key is None else f"key {key} in topic {topic}"
        return {"says": told(answer, f"the {name}{_within(begin, end)}"), **answer}

    async def journey(
        self, key: Key, begin: Moment = None, end: Moment = None, max_count: Count = _MOST
    ) -> dict[str, Any]:
        """Follow one key over all topics, in order of time: what became of an order."""
        asked = {"key": key, "begin": begin, "end": end, "max_count": max_count, "message": "true"}
        answer = await self._ask("/v1/journeys", asked)
        return {"says": told(answer, f"the key {key} in any topic{_within(begin, end)}"), **answer}

    async def read_queue(
        self,
        topic: Topic,
        queue_id: Annotated[int, Field(ge=0, description="number of the queue")],
        offset: Annotated[int, Field(ge=0, description="the first message to read")],
        max_count: Count = _MOST,
    ) -> dict[str, Any]:
        """Read messages of the message log in order, from an offset of one queue."""
        asked = {"topic": topic, "queue_id": queue_id, "offset": offset, "max_count": max_count}
        answer = await self._ask("/v1/messages", asked)
        count = len(answer.get("messages", ()))
        where = f"queue {queue_id} of topic {topic}, from offset {offset} on"
        return {"says": f"{count} messages were read of {where}.", **answer}

    async def explain(
        self,
        topic: TopicOfKey = None,
        key: KeyInTopic = None,
        message_id: MessageId = None,
        begin: Moment = None,
        end: Moment = None,
    ) -> dict[str, Any]:
        """Tell how a lookup was answered: which files and nodes were asked, what each said, what it cost."""
        asked = {
            "topic": topic, "key": key, "message_id": message_id, "begin": begin, "end": end,
            "explain": "true", "max_count": 1,
        }  # fmt: skip
        answer = await self._ask("/v1/entries", asked)
        return {"says": told(answer, f"that name{_within(begin, end)}"), **answer}

    async def topics(self) -> dict[str, Any]:
        """List the topics that can be looked up, with the times of their first and last entries."""
        answer = await self._ask("/v1/topics", {"details": "true"})
        more = " More exist that this key may not read." if answer.get("restricted") else ""
        known = f"{len(answer['topics'])} topics may be looked up.{more}"
        return {"says": f"{known} {_standing(answer)}", **answer}


def told(answer: dict[str, Any], what: str) -> str:
    """Return what an answer means, in a sentence or two."""
    count, more = len(answer["entries"]), ""
    if answer["complete"]:
        if _has_more(answer):  # perhaps without an entry so far
            more = " There are more: ask for a larger max_count or a shorter range."
        found = f"{count} entries were found" if count or more else "Nothing was ever put"
        return f"COMPLETE. {found} for {what}.{more} {_standing(answer)}"
    found = f"{count} entries were found for {what}, and there may be others" if count else (
        f"No entry was found for {what}, which does NOT mean that there is none"
    )  # fmt: skip
    return f"INCOMPLETE. {found}: {_missing(answer)} {_standing(answer)}"


def _within(begin: str | None, end: str | None) -> str:
    """Return the range of time that a lookup was narrowed to, as a part of what it asked for."""
    if begin is None and end is None:
        return ""
    return f" with a time from {begin or 'the first'} to {end or 'the last'}"


def _has_more(answer: dict[str, Any]) -> bool:
    return bool(answer.get("next_cursor") or answer.get("more"))


def _missing(answer: dict[str, Any]) -> str:
    reasons = [f"{each.get('what') or each.get('file_id') or each}" for each in answer["missing"]]
    return f"{len(reasons)} parts of the index could not be read ({'; '.join(reasons)[:500]})."


def _standing(answer: dict[str, Any]) -> str:
    """Tell what the answer does not know: later puts, nodes not asked, gaps of a followed log."""
    as_of = answer.get("as_of")
    moment = None if as_of is None else datetime.fromtimestamp(as_of / 1000, UTC)
    said = [] if moment is None else [f"It knows all that was put before {moment.isoformat()}."]
    if answer.get("unasked"):
        said.append(f"{len(answer['unasked'])} nodes have files that were not asked.")
    if answer.get("lost"):
        said.append("Parts of the followed log were lost before they could be indexed.")
    return " ".join(said)
