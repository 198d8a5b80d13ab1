"""`Rule`: the parts of a record by which its topic was indexed; it finds a message's names again.

Depends on following and key_texts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tierdex.following.extraction import Extraction
from tierdex.following.records import RecordBatch
from tierdex.following.selectors import Selector
from tierdex.key_texts import same_number

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from typing import Self

    from tierdex.following.records import Record

_LONGEST = (
    1 << 20
)  # a key in a message may be longer than any that is indexed: then it is another one


class Names(NamedTuple):
    """The keys and message IDs of a message; None: which part of it they are is not known."""

    keys: Collection[str] | None
    message_ids: Collection[str] | None

    def holds(self, key: str | None, message_id: str | None) -> bool | None:
        """Return whether the key, or else the message ID, is among them; None: not known.

        A number may be spelled otherwise: earlier versions indexed ``1e+15`` where it is its digits now.
        """
        known, wanted = self.message_ids, message_id
        if key is not None:
            known, wanted = self.keys, key
        if known is None or wanted is None:
            return None if known is None else False
        return wanted in known or any(same_number(wanted, each) for each in known if each)


@dataclass(frozen=True)
class Rule:
    """Selectors of keys and of the message ID, as `tierdex follow` took them; none: not known."""

    keys: tuple[Selector, ...] = ()
    message_id: Selector | None = None

    @classmethod
    def parse(cls, keys: Sequence[str], message_id: str | None) -> Self:
        """Return the rule. Raises InvalidRequestError naming `keys` or `message_id`."""
        return cls(
            tuple(Selector.parse(key, field="keys") for key in keys),
            None if message_id is None else Selector.parse(message_id, field="message_id"),
        )

    def names_of(self, record: Record) -> Names:
        """Return the names of a record; what cannot be read gives none."""
        if not self.keys and self.message_id is None:
            return Names(None, None)
        found = Extraction(self.keys, self.message_id, max_key_bytes=_LONGEST).entries_of(
            _one(record)
        )
        keys = {text for text in _texts(found.keys) if text is not None} if self.keys else None
        ids = {text for text in _texts(found.message_ids) if text is not None}
        return Names(keys, ids if self.message_id is not None else None)


def _texts(column: Any) -> list[str | None]:
    return [] if column is None else column.to_pylist()


def _one(record: Record) -> RecordBatch:
    return RecordBatch(
        np.array([record.partition], np.int32), np.array([record.offset], np.int64),
        np.zeros(1, np.uint32), np.array([record.timestamp], np.int64), {},
        [record.key], [record.value], [record.headers],
    )  # fmt: skip
