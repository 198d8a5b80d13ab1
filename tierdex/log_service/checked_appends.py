"""Appends as a caller asks for them: arguments checked, rows staged, the refusal of a wrong `expect_offset`.

Depends on errors, value_rules and the rest of log_service.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tierdex.errors import InvalidRequestError, OffsetMismatchError
from tierdex.log_service.append.appender import ExpectationFailedError
from tierdex.log_service.append.commit import PendingAppend, PendingBatch
from tierdex.log_service.append.message_columns import (
    check_deliver_at,
    check_due,
    check_message,
    check_messages,
)
from tierdex.value_rules import INT64_MAX, check_integer, check_key

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tierdex.log_service.append.appender import Appended, AppendRows
    from tierdex.log_service.append.given_messages import GivenMessages
    from tierdex.log_service.levels import Level
    from tierdex.log_service.log_components import LogComponents, LogWriting


class CheckedAppends:
    """The appending half of a `MessageLog`. Any thread may call it."""

    def __init__(
        self, components: LogComponents, end_offsets: Callable[[str, int], Mapping[str, int | None]]
    ) -> None:
        """`end_offsets` returns where a queue ends, by level."""
        self._components = components
        self._settings = components.options.settings
        self._clock = components.seams.clock
        self._end_offsets = end_offsets

    def one(
        self, writing: LogWriting, given: GivenMessages, expect_offset: int | None, durability: str
    ) -> PendingAppend:
        """Stage one message in the log's writing half."""
        level = self._components.level(durability, "durability")
        if expect_offset is not None:
            check_integer(expect_offset, "expect_offset", 0, INT64_MAX)
            if given.deliver_at is not None:
                raise InvalidRequestError(
                    "is not for a message with `deliver_at`, which gets its offset when it is delivered",
                    field="expect_offset",
                )
        now_ms = self._clock.now_ms()
        taken = writing.singles.append(given, now_ms, expect_offset, level)
        if taken is not None:
            return PendingAppend(*taken, level)
        plain = check_message(self._settings, given, now_ms)
        if given.deliver_at is not None:
            due = check_due(given.deliver_at)
            if given.timestamp is None:
                plain = plain._replace(timestamp=max(due, now_ms))
            return PendingAppend(*writing.timer.append_one(plain, due, level), level)
        try:
            return PendingAppend(
                *writing.singles.append_checked(plain, expect_offset, level), level
            )
        except ExpectationFailedError as failed:
            raise self._mismatch(failed, plain, level, expect_offset) from None

    def refuse_key(self, key: Any) -> None:
        """Raise InvalidRequestError where it is the one `key` of a refused message that is wrong."""
        if key is not None:
            check_key(key, "key", self._settings.max_key_bytes)

    def one_at_once(
        self, given: GivenMessages, expect_offset: int | None, durability: str
    ) -> PendingAppend | None:
        """Stage one message where memory alone does it and a thread commits; else do nothing.

        Raises InvalidRequestError for a written time that is none.
        """
        writing = self._components.need_writing()
        level = self._components.level(durability, "durability")
        if writing.committer.wake is None or not writing.singles.is_loaded:
            return None
        taken = writing.singles.append(given, self._clock.now_ms(), expect_offset, level)
        return None if taken is None else PendingAppend(*taken, level)

    def batch(self, given: GivenMessages, durability: str) -> PendingBatch:
        """Stage many messages."""
        writing = self._components.need_writing()
        level = self._components.level(durability, "durability")
        rows = check_messages(self._settings, given, self._clock.now_ms())
        if not rows.row_count:
            with writing.committer.append_lock:
                return PendingBatch(rows.bodies.offsets[:0], writing.committer.join(level), level)
        if given.deliver_at is None:
            appended = writing.appender.append(rows, level)
        else:
            appended = _append_later(writing, given, rows, level)
        return PendingBatch(appended.offsets, appended.commit, level)

    def _mismatch(
        self,
        failed: ExpectationFailedError,
        message: GivenMessages,
        level: Level,
        expected: int | None,
    ) -> OffsetMismatchError:
        """Return the refusal, once everything below the right offset has the level."""
        self._components.need_writing().committer.wait(failed.commit, level)
        name, queue_id = message.topic, message.queue_id
        ends = self._end_offsets(name, queue_id)
        return OffsetMismatchError(
            f"offset {failed.next_offset} is next in {name!r} queue {queue_id}, not {expected}",
            next_offset=failed.next_offset,
            end_offsets={level: end for level, end in ends.items() if end is not None},
        )


def _append_later(
    writing: LogWriting, given: GivenMessages, rows: AppendRows, level: Level
) -> Appended:
    """Stage rows of which some are to be delivered later."""
    deliver_at = check_deliver_at(given, rows.row_count)
    if given.timestamp is None:
        rows = rows._replace(times=np.maximum(deliver_at, rows.times))
    return writing.timer.append(rows, deliver_at, level)
