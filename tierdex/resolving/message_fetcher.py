"""`MessageFetcher`: puts the messages themselves into an answer, fetched in parallel within bounds.

::

    entries --> resolver of the topic --> fetch, at most `message_fetches` of one log at a time
            --> decode --> is what was looked up in it, by the rule that indexed it? --> mask --> shown

Whatever goes wrong with a message is said where it would stand, and its entry is in the answer all the
same. What has not come after `message_timeout` is `unavailable`; the thread that waits for it is one of its
log's own few, so a log that hangs holds up no other.

Depends on errors, seams, index_service and the other modules of this folder.
"""

from __future__ import annotations

import logging
import threading
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotInTimeError
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tierdex.errors import InvalidRequestError, NotFoundError, TierdexError
from tierdex.index_service.shown_message import ShownMessage
from tierdex.resolving.resolver import ChangedError, TooLargeError, Wanted
from tierdex.resolving.show_settings import load_show_settings
from tierdex.resolving.topic_resolvers import TopicResolvers
from tierdex.seams import Seams

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from typing import Self

    from tierdex.index_service.answer import Answer, Entry, LostOffsets
    from tierdex.index_service.journey import Journey
    from tierdex.index_service.shown_message import Outcome
    from tierdex.index_service.tables.followed_tables import FollowedTables
    from tierdex.resolving.decoding import Readable
    from tierdex.resolving.resolver import Found, Resolver
    from tierdex.resolving.show_settings import ShowSettings


logger = logging.getLogger(__name__)
A = TypeVar("A", "Answer", "Journey")
_MESSAGES_MAX: Final = (
    10_000  # of one answer, or of a batch: as many entries as one lookup may have
)


class MessageFetcher:
    """Fetches the messages of entries. Safe to share between threads; close it at the end."""

    def __init__(
        self,
        data: Path | None,
        settings: ShowSettings | None = None,
        *,
        log: Any = None,
        others: Resolver | None = None,
        seams: Seams | None = None,
        tables: FollowedTables | None = None,
    ) -> None:
        """`data` is the data folder, `log` its open message log. It connects when it is first asked.

        `others` fetches messages of all other topics, `tables` are followed ones of a store. Raises
        InvalidRequestError for a `resolvers.toml` that cannot be, OSError.
        """
        self._settings = settings or load_show_settings()
        self._seams = seams or Seams.of()
        self._topics = TopicResolvers(
            self._settings.resolvers, data, log, others, self._seams, tables
        )
        self._lock = threading.Lock()
        self._threads: dict[int, ThreadPoolExecutor] = {}
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the resolvers, once their running fetches have ended. Idempotent."""
        with self._lock:
            self._is_closed = True
            threads, self._threads = self._threads, {}
        for each in threads.values():
            each.shutdown(wait=True, cancel_futures=True)
        self._topics.close()

    def lost(self, topic: str | None) -> tuple[LostOffsets, ...]:
        """Return what the followed log of a topic lost unread; None: of every topic."""
        return self._topics.followed.lost(topic)

    def has_masks(self, topic: str) -> bool:
        """Return whether parts of the topic's messages are masked."""
        return self._topics.has_masks(topic)

    def with_messages(
        self,
        answer: A,
        *,
        key: str | None = None,
        message_id: str | None = None,
        max_message_bytes: int | None = None,
        message_timeout: float | None = None,
        note: Callable[[ShownMessage], None] | None = None,
    ) -> A:
        """Return the answer, or journey, with `message` in each of its entries.

        `key` or `message_id` is what was looked up. The limits are lowered by these, never raised.
        `note` is called with each message.
        """
        (found,) = self.with_messages_of_batch(
            [answer],
            [{"key": key, "message_id": message_id}],
            max_message_bytes=max_message_bytes,
            message_timeout=message_timeout,
            note=note,
        )
        return found

    def with_messages_of_batch(
        self,
        answers: Sequence[A],
        lookups: Sequence[Mapping[str, Any]],
        *,
        max_message_bytes: int | None = None,
        message_timeout: float | None = None,
        note: Callable[[ShownMessage], None] | None = None,
    ) -> list[A]:
        """Return the answers of some lookups with messages; the bounds hold for all of them together.

        A lookup's `key` or `message_id` is what was looked up. The rest is as for one answer.
        """
        settings = self._settings
        most = int(_least(settings.max_message_bytes, max_message_bytes, "max_message_bytes"))
        patience_s = _least(settings.message_timeout, message_timeout, "message_timeout")
        looked_up = [Wanted(each.get("key"), each.get("message_id"), most) for each in lookups]
        messages = self._fetch(
            [(e, w) for a, w in zip(answers, looked_up, strict=True) for e in a.entries], patience_s
        )
        if note is not None:
            for message in messages:
                note(message)
        rest = iter(messages)
        shown = [
            replace(answer, entries=[e._replace(message=next(rest)) for e in answer.entries])
            for answer in answers
        ]
        for answer in shown:
            _count_messages(answer)
        return shown

    def _fetch(
        self, wanted: Sequence[tuple[Entry, Wanted]], patience_s: float
    ) -> list[ShownMessage]:
        """Return the message of each entry, in order."""
        settings = self._settings
        give_up = self._seams.clock.monotonic() + patience_s
        started: list[Future[ShownMessage] | ShownMessage] = []
        room = settings.max_shown_bytes
        for number, (entry, each) in enumerate(wanted):
            room -= entry.size or 0
            if number >= _MESSAGES_MAX:
                why = f"an answer has at most {_MESSAGES_MAX} messages: ask for fewer"
                started.append(ShownMessage("too_large", why, size=entry.size))
            elif room < 0:
                why = f"the messages before it have {settings.max_shown_bytes} bytes: ask for fewer"
                started.append(ShownMessage("too_large", why, size=entry.size))
            else:
                started.append(self._start(entry, each))
        messages, room = [], settings.max_shown_bytes
        for (entry, _), begun in zip(wanted, started, strict=True):
            message = (
                begun if isinstance(begun, ShownMessage) else self._awaited(entry, begun, give_up)
            )
            room -= len(message.body or b"") + len(message.text or "")
            if room < 0 and message.body is not None:
                message = ShownMessage("too_large", "the answer is full", message.where)
            messages.append(message)
        return messages

    def _start(self, entry: Entry, wanted: Wanted) -> Future[ShownMessage] | ShownMessage:
        try:
            resolver = self._topics.resolver(entry.topic)
        except (NotFoundError, InvalidRequestError, OSError) as error:
            return ShownMessage("unresolved", str(error))
        except Exception as error:  # noqa: BLE001 - of a resolver of the caller's own: anything
            return ShownMessage("unresolved", _unforeseen(error))
        with self._lock:
            if self._is_closed:
                return ShownMessage("unavailable", "the service is stopping")
            threads = self._threads.get(id(resolver))
            if threads is None:
                count = self._settings.message_fetches
                threads = ThreadPoolExecutor(count, thread_name_prefix="tierdex-message")
                self._threads[id(resolver)] = threads
            return threads.submit(self._fetched, resolver, entry, wanted)

    def _awaited(self, entry: Entry, started: Future[ShownMessage], give_up: float) -> ShownMessage:
        try:
            return started.result(max(0.0, give_up - self._seams.clock.monotonic()))
        except CancelledError:
            return ShownMessage("unavailable", "the service is stopping")
        except NotInTimeError:
            started.cancel()
            where = _where(self._topics.resolver(entry.topic), entry)
            return ShownMessage("unavailable", "its log did not answer in time", where)

    def _fetched(self, resolver: Resolver, entry: Entry, wanted: Wanted) -> ShownMessage:
        def none(outcome: Outcome, reason: str, size: int | None = None) -> ShownMessage:
            return ShownMessage(outcome, _as_text(reason), _where(resolver, entry), size=size)

        try:
            decoder = self._topics.decoder(entry.topic, resolver)
            found = resolver.fetch(entry, wanted)
            if found is None:
                return none("gone", f"gone from the log: it was at {_where(resolver, entry)}")
            readable = decoder.read(found.record.value, wanted.max_bytes)
            if not _is_it(found, readable, wanted):
                return none("mismatch", _MISMATCH)
            shown = decoder.shown(found.record, readable, _where(resolver, entry))
            return replace(shown, cost=found.cost)
        except TooLargeError as error:
            return none("too_large", f"has {error.size} bytes or more", error.size)
        except ChangedError as error:
            return none("mismatch", str(error))
        except NotFoundError as error:
            return none("gone", str(error))
        except InvalidRequestError as error:
            return none("unresolved", str(error))
        except TierdexError as error:
            return none("unavailable", str(error))
        except OSError as error:  # its text may name paths of this machine
            return none("unavailable", error.strerror or type(error).__name__)
        except Exception as error:  # noqa: BLE001 - one message's trouble is never the answer's
            return none("unavailable", _unforeseen(error))


def _count_messages(answer: Any) -> None:
    """Tell in the plan of an answer what its messages took."""
    explain = getattr(answer, "explain", None)
    if explain is not None:
        costs = [entry.message.cost for entry in answer.entries]
        answer.explain = replace(
            explain,
            message_requests=sum(requests for requests, _ in costs),
            message_bytes=sum(size for _, size in costs),
        )


def _where(resolver: Resolver, entry: Entry) -> str:
    """Return where a message is; of a resolver that fails at that, its name."""
    try:
        return _as_text(resolver.where(entry))
    except Exception as error:
        logger.error("no place of a message", exc_info=error)
        return _as_text(resolver.name)


def _as_text(place: str) -> str:
    """Return a place as text: names of files need not be any."""
    return place.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _unforeseen(error: Exception) -> str:
    """Return what is said of an error that was not foreseen: its text may hold parts of the message."""
    logger.error("a message cannot be shown", exc_info=error)
    return f"cannot be shown: {type(error).__name__}, see the log of the program"


def _least(limit: float, asked: float | None, field: str) -> float:
    if asked is not None and not asked > 0:
        raise InvalidRequestError("must be above 0", field=field)
    return limit if asked is None else min(limit, asked)


_MISMATCH = (
    "what is there now has another key: the log was made anew, this is another log, or two keys "
    "have one hash"
)


def _is_it(found: Found, readable: Readable, wanted: Wanted) -> bool:
    """Return whether a message has the name that was looked up, by the rule that indexed it.

    Where no rule is known, the name must occur somewhere in the message.
    """
    record = found.record
    holds = found.names.holds(wanted.key, wanted.message_id)
    if not holds and found.rule is not None and readable.decoded and readable.json is not None:
        decoded = replace(record, value=readable.json.encode())
        holds = found.rule.names_of(decoded).holds(wanted.key, wanted.message_id)
    if holds is not None:
        return holds
    raw = wanted.text.encode("utf-8", "surrogatepass")
    parts = [record.key or b"", record.value or b"", *(value for _, value in record.headers)]
    return any(raw in part for part in parts) or wanted.text in (
        readable.json or readable.text or ""
    )
