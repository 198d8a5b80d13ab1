"""Finds the messages of some names in a log, and the other names under which the index has them.

::

    index    every entry under the names -> its message, read: the very name is compared in it
    timer    messages that are held, and the copies of those that were delivered, are read one by one

    before   messages that an earlier request hides already, where files are to be written anew at once

What is damaged or has expired cannot be compared: it is meant, since its entry is. Depends on errors,
indexfile, logfile and the rest of log_service.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from tierdex.errors import InvalidRequestError, UnavailableError
from tierdex.indexfile.hashing import key_hash, message_id_hash
from tierdex.indexfile.layout import KIND_KEY, KIND_MESSAGE_ID
from tierdex.log_service.levels import Level
from tierdex.log_service.read.reads import QueuePosition
from tierdex.log_service.read_policy import ReadLimits
from tierdex.log_service.timer.delayed_rows import TIMER_TOPIC
from tierdex.logfile.layout import MARKS_QUEUE
from tierdex.logfile.layout import TIMER_TOPIC as TIMER_TOPIC_BYTES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from tierdex.index_service.requests.query import QueryRequest
    from tierdex.lifecycle.table.file_handle import FileHandle
    from tierdex.log_service.answer import ReadAnswer
    from tierdex.log_service.files.queue_table import QueueTable
    from tierdex.log_service.keys.log_index import LogIndex
    from tierdex.log_service.notes.forgotten_messages import ForgottenMessages
    from tierdex.log_service.notes.forgotten_names import Name
    from tierdex.log_service.read.reads import LogReads
    from tierdex.logfile.extras import Extra
    from tierdex.logfile.forgotten import ForgottenPlaces

MESSAGES_MOST: Final = 1_000_000  # of one request
_PAGE: Final = 1000  # entries
_ONE_MESSAGE: Final = ReadLimits(1, 1 << 30, Level.DISK)
_WINDOW: Final = ReadLimits(65_536, 8 << 20, Level.DISK)


@dataclass(slots=True)
class FoundPlaces:
    """What a search found: places with the names of their messages, in the timer's queues as well."""

    places: dict[QueuePosition, set[Name]] = field(default_factory=dict)
    unsearched: list[tuple[str, str]] = field(default_factory=list)
    elsewhere: set[str] = field(default_factory=set)

    def add(self, place: QueuePosition, names: Iterable[Name]) -> None:
        self.places.setdefault(place, set()).update(names)

    def keep(self, meant: Collection[tuple[int, int]]) -> None:
        """Keep the messages that have an offset, and lie at one of these (queue, offset)."""
        self.places = {
            place: names
            for place, names in self.places.items()
            if place.topic != TIMER_TOPIC and (place.queue_id, place.offset) in meant
        }


class Searched(NamedTuple):
    """Where a search looks."""

    log_index: LogIndex
    reads: LogReads
    queues: QueueTable


def find_places(log: Searched, requests: Sequence[QueryRequest]) -> FoundPlaces:
    """Return where the messages of these names lie that are durable, and not forgotten yet.

    Raises UnavailableError where some cannot be looked at now, InvalidRequestError for too many.
    """
    lag = log.log_index.lag()
    if lag is not None:
        raise UnavailableError(f"{lag.reason}; nothing was forgotten: try again", retry_after_s=1.0)
    found = FoundPlaces()
    for request in requests:
        _find(log, request, found)
    _find_held(log, requests, found)
    found.unsearched = list(dict.fromkeys(found.unsearched))
    return found


def add_forgotten(
    forgotten: ForgottenMessages, requests: Sequence[QueryRequest], found: FoundPlaces
) -> None:
    """Add what files may hold yet of messages that were forgotten before: no search finds these."""
    for request in requests:
        for (name, queue_id, offset), names in forgotten.under((request.kind, request.key_hash)):
            place = QueuePosition(name.decode(), queue_id, offset)
            if request.topic in (None, place.topic) or place.topic == TIMER_TOPIC:
                found.add(place, names)


def _find(log: Searched, request: QueryRequest, found: FoundPlaces) -> None:
    asked, cursor = request.asked(), None
    while True:
        answer = log.log_index.index.query(
            asked.get("topic"), key=asked.get("key"), message_id=asked.get("message_id"),
            max_count=_PAGE, cursor=cursor,
        )  # fmt: skip
        found.unsearched += [(each.file, each.reason) for each in answer.missing]
        own = []
        for entry in answer.entries:
            if entry.node == log.log_index.node:
                own.append(QueuePosition(entry.topic, entry.queue_id or 0, entry.offset or 0))
            else:
                found.elsewhere.add(entry.node)
        for place, one in zip(own, log.reads.read_many(own, _ONE_MESSAGE), strict=True):
            _take(place, one, request, found)
        if len(found.places) > MESSAGES_MOST:
            raise InvalidRequestError(
                f"more than {MESSAGES_MOST:,} messages: forget fewer names at a time",
                field="lookups",
            )
        cursor = answer.next_cursor
        if cursor is None:
            return


def _take(
    place: QueuePosition, answer: ReadAnswer, request: QueryRequest, found: FoundPlaces
) -> None:
    """Take the message at a place if it is meant."""
    names = {(request.kind, request.key_hash)}
    if place.offset < answer.begin_offset or (answer.missing and not len(answer)):
        away = next((each for each in answer.missing if each.is_away), None)
        if away is not None:
            raise UnavailableError(
                f"{away.file}: {away.reason}; nothing was forgotten: try again", retry_after_s=5.0
            )
        found.add(place, names)
    for message in answer.batch:
        if _is_meant(message.extra, request):
            found.add(place, {*names, *_names_of(place.topic, message.extra)})


def _is_meant(extra: Extra, request: QueryRequest) -> bool:
    if request.kind == KIND_MESSAGE_ID:
        return extra.message_id == request.text
    return request.text in extra.keys


def _names_of(topic: str, extra: Extra) -> Iterator[Name]:
    """Yield (kind, hash) of every name under which the index has a message."""
    for key in extra.keys:
        yield KIND_KEY, key_hash(topic, key)
    if extra.message_id is not None:
        yield KIND_MESSAGE_ID, message_id_hash(extra.message_id)


def _find_held(log: Searched, requests: Sequence[QueryRequest], found: FoundPlaces) -> None:
    """Find what the timer's queues have of the names: the index knows none of it."""
    for hour in log.queues.queues(TIMER_TOPIC_BYTES):
        if hour == MARKS_QUEUE:
            continue
        for answer in _windows(log.reads, hour):
            found.unsearched += [(each.file, each.reason) for each in answer.missing]
            for message in answer.batch:
                target = message.extra.target
                if target is not None and any(
                    request.topic in (None, target.topic) and _is_meant(message.extra, request)
                    for request in requests
                ):
                    place = QueuePosition(TIMER_TOPIC, hour, message.offset)
                    found.add(place, _names_of(target.topic, message.extra))


def _windows(reads: LogReads, hour: int) -> Iterable[ReadAnswer]:
    """Yield all that is durable of an hour's queue, up to what cannot be read."""
    offset = 0
    while True:
        answer = reads.read(QueuePosition(TIMER_TOPIC, hour, offset), _WINDOW)
        yield answer
        if not len(answer):
            return
        offset = answer.next_offset


def has_any(handle: FileHandle, places: ForgottenPlaces) -> bool:
    """Return whether a file has messages at any of the places, as it was written."""
    for topic, queue_id, offsets in places.queues():
        extent = handle.reader.extent(topic, queue_id, Level.RECEIVED)
        if extent is not None and extent.first_offset <= offsets[-1] and (
            len(places.within(topic, queue_id, *extent))
        ):  # fmt: skip
            return True
    return False
