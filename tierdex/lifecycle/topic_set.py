"""The topics of a file, as a set of 64-bit hashes, for plans and retention.

A manifest holds no topic's name: names grow with what callers send, and lie in each file's own
dictionary. A row has the hashes of its file's topics while they are few (`TOPICS_LISTED_MAX`: at
most 683 bytes of text), else None: any topic. None never excludes a file that holds an answer, and
never lets a file expire too soon.

The hash is the seed of the topic's keys, which identifies topics everywhere else too.

Depends on indexfile.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np

from tierdex.indexfile.hashing import topic_seed

if TYPE_CHECKING:
    from collections.abc import Iterable

TOPICS_LISTED_MAX: Final = 64

TopicSet = frozenset[int] | None  # None: any topic

topic_hash = lru_cache(maxsize=65_536)(topic_seed)  # every plan needs some


def topic_set(topics: Iterable[str]) -> frozenset[int]:
    """Return the hashes of all of `topics`."""
    return frozenset(map(topic_seed, topics))


def listed_topics(topics: Iterable[str]) -> TopicSet:
    """Return the topics for a manifest row; None when there are too many to list."""
    hashes = topic_set(topics)
    return hashes if len(hashes) <= TOPICS_LISTED_MAX else None


def may_hold(topics: TopicSet, topic: str) -> bool:
    """Return whether a file with these topics may hold entries of `topic`."""
    return topics is None or topic_hash(topic) in topics


def encode_topics(topics: TopicSet) -> str | None:
    """Return the text of a set, None for any topic."""
    if topics is None:
        return None
    return b64encode(np.sort(np.fromiter(topics, "<u8", len(topics))).tobytes()).decode()


@lru_cache(maxsize=1024)
def decode_topics(text: str | None) -> TopicSet:
    """Return the set that `encode_topics` spelled; files with the same topics share it.

    Raises ValueError, TypeError.
    """
    if text is None:
        return None
    return frozenset(np.frombuffer(b64decode(text, validate=True), "<u8").tolist())
