"""Checked lookups as columns: what every door makes of its request, and what the executor takes.

A single query is a batch of one. Depends on numpy, cursor and indexfile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tierdex.index_service.requests.cursor import digest_query
from tierdex.indexfile.hashing import signed_bits

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
    kinds: np.ndarray  # integers: 0 for a key, 1 for a message ID
    topics: list[str]
    topic_index: np.ndarray  # integers
    begin: np.ndarray  # i8
    end: np.ndarray  # i8
    max_count: np.ndarray  # i8
    text_of: Callable[[int], str]

    @property
    def count(self) -> int:
        return len(self.hashes)

    @property
    def names_topics(self) -> bool:
        """Return whether every lookup names its topic."""
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
        # One array a column would be most of what a single query takes here.
        rows = [
            [signed_bits(r.key_hash) for r in requests],
            [r.kind for r in requests],
            [numbers[r.topic] for r in requests],
            [r.begin for r in requests],
            [r.end for r in requests],
            [r.max_count for r in requests],
        ]
        hashes, kinds, topic_index, begin, end, max_count = np.array(rows, np.int64)
        return cls(
            hashes.view(np.uint64),
            kinds,
            topics,
            topic_index,
            begin,
            end,
            max_count,
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
