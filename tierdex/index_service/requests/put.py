"""Checks a single put by the rules of `entry_rules`, and names the field that is wrong.

The kernels of direct puts check plain messages themselves; this module gets everything else.

Depends on errors, entry_rules and times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tierdex.errors import InvalidRequestError
from tierdex.index_service.requests.entry_rules import (
    check_key,
    check_location,
    check_topic,
    no_name,
)
from tierdex.times import to_ms

if TYPE_CHECKING:
    from collections.abc import Iterable


class CheckedPut(NamedTuple):
    """One message, its names, and where it is."""

    topic: str
    keys: tuple[str, ...]
    message_id: str | None
    timestamp: int
    offset: int
    size: int
    queue_id: int


class PutChecker:
    """Checks single puts."""

    def __init__(self, max_key_bytes: int, max_items: int) -> None:
        """`max_items` is the most keys and message IDs of one entry: what one file holds."""
        self._max_key_bytes = max_key_bytes
        self._max_items = max_items

    def check(
        self,
        topic: Any,
        keys: Any,
        message_id: Any,
        queue_id: Any,
        offset: Any,
        size: Any,
        timestamp: Any,
    ) -> CheckedPut:
        """Return the entry. Raises InvalidRequestError naming the field that is wrong."""
        return CheckedPut(
            check_topic(topic, "topic"),
            self._keys(keys, message_id),
            message_id,
            to_ms(timestamp, "timestamp"),
            check_location("offset", offset),
            check_location("size", size),
            check_location("queue_id", queue_id),
        )

    def _keys(self, keys: Iterable[str] | str | None, message_id: str | None) -> tuple[str, ...]:
        if message_id is not None:
            check_key(message_id, "message_id", self._max_key_bytes)
        if keys is None:
            keys = ()
        if isinstance(keys, str):
            keys = (keys,)
        try:
            checked = tuple(keys)
        except TypeError as error:
            raise InvalidRequestError("must be a list of strings", field="keys") from error
        for number, key in enumerate(checked):
            check_key(key, f"keys[{number}]", self._max_key_bytes)
        if not checked and message_id is None:
            raise no_name("keys")
        if (
            len(checked) >= self._max_items
            and len(checked) + (message_id is not None) > self._max_items
        ):
            raise InvalidRequestError(
                f"at most {self._max_items} keys and message ID together (`item_capacity`)",
                field="keys",
            )
        return checked
