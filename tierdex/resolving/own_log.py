"""Messages of our own message log: an entry of its index names the queue and the offset.

Depends on following, resolver, rule, errors and index_service.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tierdex.errors import UnavailableError
from tierdex.following.records import Record
from tierdex.resolving.resolver import ChangedError, Found, TooLargeError, refuse_rows
from tierdex.resolving.rule import Names

if TYPE_CHECKING:
    from tierdex.index_service.answer import Entry
    from tierdex.resolving.resolver import Wanted


class OwnLog:
    """The messages of a `MessageLog`, which its opener closes. See `Resolver`."""

    name = "the message log"

    def __init__(self, log: Any) -> None:
        self._log = log

    def where(self, entry: Entry) -> str:
        return f"{self.name}, queue {entry.queue_id}, offset {entry.offset}"

    def fetch(self, entry: Entry, wanted: Wanted) -> Found | None:
        refuse_rows(entry)
        if entry.size > wanted.max_bytes:
            raise TooLargeError(entry.size)
        answer = self._log.read(
            entry.topic, entry.queue_id, entry.offset, max_count=1, visible="os"
        )
        if answer.missing:
            raise UnavailableError(f"{answer.missing[0].file}: {answer.missing[0].reason}")
        if answer.begin_offset > entry.offset:
            return None
        if not len(answer):
            raise ChangedError(
                f"this log ends at offset {answer.end_offset}: the entry is of another node's"
            )
        (message,) = answer.messages
        ids = () if message.message_id is None else (message.message_id,)
        record = Record(
            entry.queue_id, message.offset, message.timestamp, None, message.body, message.headers
        )
        return Found(record, Names(message.keys, ids))

    def close(self) -> None:
        pass
