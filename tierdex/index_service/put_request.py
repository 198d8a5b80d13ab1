"""A checked single put, whatever the caller gave.

`Index.put` spells the checks of the common case out for itself, with what this remembers (topics
found legal, a length that surely fits); everything else comes here, where a wrong field is named.

Depends on errors and request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tierdex.errors import InvalidRequestError
from tierdex.index_service.request import (
    INT32_MAX,
    INT64_MAX,
    UINT32_MAX,
    check_integer,
    check_key,
    check_topic,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tierdex.index_service.put_buffer import BufferedPut


class PutChecker:
    """Checks single puts; remembers topics that were found legal."""

    _TOPICS_REMEMBERED = 65_536

    def __init__(self, max_key_bytes: int, max_items: int) -> None:
        """`max_items` is the most keys and message IDs of one entry: what one file holds."""
        self._max_key_bytes = max_key_bytes
        self._max_items = max_items
        # A string of so many characters surely fits, whatever they are (4 bytes each at most).
        self.surely_short = max_key_bytes // 4
        self.topics: set[str] = set()

    def check(
        self,
        topic: Any,
        keys: Any,
        message_id: Any,
        queue_id: Any,
        offset: Any,
        size: Any,
        timestamp: Any,
    ) -> BufferedPut:
        """Return the entry. Raises InvalidRequestError naming the field that is wrong."""
        if type(topic) is not str or topic not in self.topics:
            self._learn(topic)
        checked_keys = self._keys(keys, message_id)
        has_one_name = message_id is None and len(checked_keys) == 1
        return (
            topic,
            checked_keys[0] if has_one_name else (checked_keys, message_id),
            check_integer(timestamp, "timestamp"),
            check_integer(offset, "offset", 0, INT64_MAX),
            check_integer(size, "size", 0, UINT32_MAX),
            check_integer(queue_id, "queue_id", 0, INT32_MAX),
        )

    def _keys(self, keys: Iterable[str] | str | None, message_id: str | None) -> tuple[str, ...]:
        if message_id is not None:
            self._check_text(message_id, "message_id")
        if keys is None:
            keys = ()
        if isinstance(keys, str):
            raise InvalidRequestError("must be a list of strings, not one string", field="keys")
        try:
            checked = tuple(keys)
        except TypeError as error:
            raise InvalidRequestError("must be a list of strings", field="keys") from error
        for number, key in enumerate(checked):
            self._check_text(key, "keys", number)
        if not checked and message_id is None:
            raise InvalidRequestError("give at least one key or a message ID", field="keys")
        if (
            len(checked) >= self._max_items
            and len(checked) + (message_id is not None) > self._max_items
        ):
            raise InvalidRequestError(
                f"at most {self._max_items} keys and message ID together (`item_capacity`)",
                field="keys",
            )
        return checked

    def _check_text(self, text: Any, field: str, number: int | None = None) -> None:
        if type(text) is str and text.isascii() and 0 < len(text) <= self.surely_short:
            return
        check_key(text, field if number is None else f"{field}[{number}]", self._max_key_bytes)

    def _learn(self, topic: Any) -> None:
        check_topic(topic, "topic")
        if len(self.topics) >= self._TOPICS_REMEMBERED:
            self.topics.clear()
        self.topics.add(topic)
