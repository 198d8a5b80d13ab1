"""The messages of a key or message ID: locations from the index, bodies from the log, compared.

::

    index   everything written is in it first; what is not makes the answer incomplete
    pages   entries newest first -> their messages, all of one page from the same files
    keep    a message that carries the very key (an index knows hashes), and has the level asked for

Depends on answer, levels, read_policy, reads and tail_reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from tierdex.log_service.answer import ExpiredMessage, FoundMessages, Message, MissingMessages
from tierdex.log_service.levels import Level
from tierdex.log_service.read.reads import QueuePosition
from tierdex.log_service.read_policy import ReadExplain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tierdex.index_service.answer import Answer, Entry, Unasked
    from tierdex.index_service.index import Index
    from tierdex.index_service.view.node_ages import NodeAges
    from tierdex.log_service.answer import ReadAnswer
    from tierdex.log_service.read.reads import LogReads
    from tierdex.log_service.read.tail_reads import TailReads
    from tierdex.log_service.read_policy import ReadLimits


class Lookup(NamedTuple):
    """What is looked for: a key of a topic, or a message ID of any topic. Times int64 ms, inclusive."""

    topic: str | None
    key: str | None
    message_id: str | None
    begin: int | None
    end: int | None
    max_count: int
    cursor: str | None
    fresh_within: float | None = None


class PartialGet(NamedTuple):
    """What the index, which lacks nothing, says first, and how fresh it was before."""

    answer: Answer
    as_of: int
    unasked: tuple[Unasked, ...]


class AskedIndex(Protocol):
    """The index of a log, its own or that of a log which another process writes, as lookups ask it."""

    @property
    def index(self) -> Index:
        """The index."""

    @property
    def node(self) -> str:
        """The node whose log it is."""

    @property
    def ages(self) -> NodeAges:
        """How fresh an answer is, of the log's node alone."""

    def lag(self) -> MissingMessages | None:
        """Return what the index lacks for long, None when nothing."""

    def unindexed(self, lookup: Lookup) -> list[QueuePosition]:
        """Return the places of matching messages that the index lacks."""


def find_messages(
    log_index: AskedIndex,
    reads: LogReads,
    lookup: Lookup,
    limits: ReadLimits,
    tail: TailReads | None = None,
    begun: PartialGet | None = None,
) -> FoundMessages:
    """Return the messages, newest first, each read with `limits`, by `tail` where it can.

    `begun` is the first answer of the index, if it was asked already.

    Raises InvalidRequestError and what the index raises.
    """
    lag = None if begun is not None else log_index.lag()
    index = log_index.index
    if begun is None:  # before the files: the answer must not promise more than they hold
        ages = log_index.ages
        as_of, unasked = ages.as_of(), ages.unasked()
    else:
        _, as_of, unasked = begun
    missing = [] if lag is None else [lag]
    missing += reads.quarantined()
    found: list[Message] = []
    expired: list[ExpiredMessage] = []
    newest: list[Message] = []  # that are not indexed: beyond `max_count`
    cursor = lookup.cursor
    explain = ReadExplain()
    unindexed: set[QueuePosition] = set()
    is_first = cursor is None
    while True:
        answer = begun.answer if is_first and begun is not None else index.query(
            lookup.topic, key=lookup.key, message_id=lookup.message_id, begin=lookup.begin,
            end=lookup.end, max_count=lookup.max_count - len(found), cursor=cursor,
            fresh_within=lookup.fresh_within,
        )  # fmt: skip
        if is_first:  # the question is legal; what is not indexed is newer than all that is
            is_first = False
            places = list(dict.fromkeys(log_index.unindexed(lookup)))  # a file may be walked again
            unindexed = set(places)
            for one in reads.read_many(places, limits) if places else ():
                explain.add(one.explain)
                newest += [each for each in _messages_of(one, missing) if _is_it(each, lookup)]
        others = [each for each in answer.missing if _is_other(each.file, log_index.node)]
        missing += [MissingMessages(*each) for each in answer.missing if each not in others]
        own = [_place(entry) for entry in answer.entries if entry.node == log_index.node]
        indexed = [place for place in own if place not in unindexed]
        for place, one in zip(indexed, _read(indexed, reads, limits, tail), strict=True):
            explain.add(one.explain)
            if place.offset < one.begin_offset:
                expired.append(ExpiredMessage(*place))
                continue
            found += [each for each in _messages_of(one, missing) if _is_it(each, lookup)]
        cursor = answer.next_cursor
        if cursor is None or len(found) >= lookup.max_count:
            messages = (*newest, *found)
            return FoundMessages(
                messages,
                _distinct(missing),
                cursor,
                tuple(expired),
                explain,
                as_of,
                unasked,
            )


def _read(
    places: list[QueuePosition], reads: LogReads, limits: ReadLimits, tail: TailReads | None
) -> Sequence[ReadAnswer]:
    """Read the message at each place: in the journal that grows by one call of a kernel each."""
    if tail is None or limits.level is Level.REMOTE:
        return reads.read_many(places, limits)
    found: list[ReadAnswer | None] = [
        tail.read(*place, limits.max_count, limits.max_bytes, limits.level) for place in places
    ]
    others = [place for place, one in zip(places, found, strict=True) if one is None]
    rest = iter(reads.read_many(others, limits) if others else ())
    return [next(rest) if one is None else one for one in found]


def _is_other(missing: str, node: str) -> bool:
    """Return whether it is another node, unread or too old: it has none of this log's messages."""
    return missing.startswith("node:") and missing != f"node:{node}"


def _place(entry: Entry) -> QueuePosition:
    assert entry.queue_id is not None and entry.offset is not None, entry  # noqa: PT018
    return QueuePosition(entry.topic, entry.queue_id, entry.offset)


def _messages_of(answer: ReadAnswer, missing: list[MissingMessages]) -> Sequence[Message]:
    """Return the message that was read, none where it has not got the level."""
    if len(answer) and not answer.from_begin:
        return answer.messages
    missing += answer.missing
    return ()


def _is_it(message: Message, lookup: Lookup) -> bool:
    if lookup.message_id is not None:
        return message.message_id == lookup.message_id
    return lookup.key in message.keys


def _distinct(missing: list[MissingMessages]) -> tuple[MissingMessages, ...]:
    return tuple(dict.fromkeys(missing))
