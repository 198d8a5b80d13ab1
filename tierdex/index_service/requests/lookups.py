"""Checked lookups as columns: what every door makes of its request, and what the executor takes.

A single query is a batch of one. Depends on numpy and cursor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tierdex.index_service.requests.cursor import digest_query

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tierdex.index_service.requests.query import QueryRequest

NO_TOPIC: Final = -1


@dataclass(frozen=True, slots=True)
class Lookups:
    """`count` valid lookups, times in inclusive ms.

    `topic_index` is an index into `topics`, NO_TOPIC for a message ID of any topic. `text_of` returns the
    key or message ID of one lookup: few need it.
    """

    hashes: np.ndarray  # u8
    kinds: np.ndarray  # u1
    topics: list[str]
    topic_index: np.ndarray  # i4
    begin: np.ndarray  # i8
    end: np.ndarray  # i8
    max_count: np.ndarray  # i8
    text_of: Callable[[int], str]

    @property
    def count(self) -> int:
        return len(self.hashes)

    @property
    def names_topics(self) -> bool:
        """Say whether every lookup names its topic."""
        return self.count == 0 or int(self.topic_index.min()) > NO_TOPIC

    @property
    def is_of_one_topic(self) -> bool:
        return len(self.topics) == 1 and self.names_topics

    @classmethod
    def of(cls, requests: Sequence[QueryRequest]) -> Lookups:
        """Return checked requests as columns."""
        topics = list(dict.fromkeys(r.topic for r in requests if r.topic is not None))
        numbers: dict[str | None, int] = {topic: number for number, topic in enumerate(topics)}
        numbers[None] = NO_TOPIC
        return cls(
            np.array([r.key_hash for r in requests], np.uint64),
            np.array([r.kind for r in requests], np.uint8),
            topics,
            np.array([numbers[r.topic] for r in requests], np.int32),
            np.array([r.begin for r in requests], np.int64),
            np.array([r.end for r in requests], np.int64),
            np.array([r.max_count for r in requests], np.int64),
            lambda number: requests[number].text,
        )

    def topic_of(self, number: int) -> str | None:
        """Return the topic of one lookup; None: a message ID of any."""
        index = int(self.topic_index[number])
        return None if index == NO_TOPIC else self.topics[index]

    def digest(self, number: int) -> bytes:
        """Return what binds a cursor to one lookup; `max_count` may change from page to page."""
        times = int(self.begin[number]), int(self.end[number])
        return digest_query(
            self.topic_of(number), int(self.kinds[number]), self.text_of(number), *times
        )
