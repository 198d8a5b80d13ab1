"""Key hashes: `XXH64(key, seed = XXH64(topic, seed = 42))`, unsigned 64 bit.

Spark SQL's `xxhash64(topic, key)` gives the same number (signed there). A message ID is found without
its topic: it is hashed with a reserved topic name that holds U+0000, which no legal topic may.

Single hashes use the xxhash package, columns the kernel. Depends on columns, kernels.hashing, xxhash,
key_column and layout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import xxhash

from tierdex.indexfile import layout
from tierdex.indexfile.columns import check_topic_index

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tierdex.indexfile.columns import StringColumn

HASH_XXH64_TOPIC_SEEDED: Final = layout.HASH_XXH64_TOPIC_SEEDED
MESSAGE_ID_TOPIC: Final = "\0message-id"  # on disk through every message ID's hash: never change


def signed_bits(value: int) -> int:
    """Return the bits of an u8 (a hash, a seed) as an i8: what kernels and Spark's bigint take."""
    return value - (1 << 64) if value >> 63 else value


def topic_seed(topic: str) -> int:
    """Return the seed of `topic`'s keys."""
    return int(xxhash.xxh64_intdigest(topic.encode(), layout.HASH_SEED))


MESSAGE_ID_SEED: Final = topic_seed(MESSAGE_ID_TOPIC)


def key_hash(topic: str, key: str) -> int:
    """Return the hash of one key."""
    seed = xxhash.xxh64_intdigest(topic.encode(), layout.HASH_SEED)
    return int(xxhash.xxh64_intdigest(key.encode(), seed))


def seeded_hash(text: str, seed: int) -> int:
    """Return the hash of a key whose topic's seed is known, or of a message ID (MESSAGE_ID_SEED)."""
    return int(xxhash.xxh64_intdigest(text.encode(), seed))


def message_id_hash(message_id: str) -> int:
    """Return the hash of one message ID."""
    return int(xxhash.xxh64_intdigest(message_id.encode(), MESSAGE_ID_SEED))


def topic_seeds(topics: Iterable[str]) -> np.ndarray:
    """Return the seeds (u8) of `topics`."""
    return np.array([topic_seed(topic) for topic in topics], np.uint64)


def key_hashes(
    keys: StringColumn, topics: Iterable[str], topic_index: np.ndarray | None = None
) -> np.ndarray:
    """Return the hash (u8) of each key; rows without a valid key have the empty string's.

    `topics` are distinct names; `topic_index` (i4) says which one a row has, None when there is one.
    """
    seeds = topic_seeds(topics)
    if topic_index is None and keys.indices is None and len(seeds) == 1:
        return column_hashes(keys, int(seeds[0]))
    return _hash_column(keys, seeds, topic_index)


def message_id_hashes(message_ids: StringColumn) -> np.ndarray:
    """Return the hash (u8) of each message ID."""
    return _hash_column(message_ids, np.array([MESSAGE_ID_SEED], np.uint64), None)


def column_hashes(column: StringColumn, seed: int) -> np.ndarray:
    """Return the hash (u8) of each string, all with one seed; the column has no indices."""
    hashes = plain_hashes(column, seed, len(column.data), is_text=True)
    if hashes is None:  # an empty string is one, too
        return _hash_column(column, np.array([seed], np.uint64), None)
    return hashes


def plain_hashes(
    column: StringColumn, seed: int, most_bytes: int, *, is_text: bool = False
) -> np.ndarray | None:
    """Return the hash (u8) of each string, None unless all are 1 to `most_bytes` bytes of ASCII.

    Of any bytes when the caller knows that the column `is_text`. It has no indices.
    """
    from tierdex.indexfile.kernels.key_column import hash_key_column  # numba loads only when needed

    offsets, width, data, indices = column.addresses()
    assert not indices
    out = np.empty(len(column), np.uint64)
    is_plain = hash_key_column(
        offsets,
        width,
        data,
        len(column.data),
        len(column),
        most_bytes,
        signed_bits(seed),
        is_text,
        out.ctypes.data,
    )
    return out if is_plain else None


def _hash_column(
    column: StringColumn, seeds: np.ndarray, topic_index: np.ndarray | None
) -> np.ndarray:
    from tierdex.fileparts.kernels.hashing import hash_strings  # numba loads only when needed

    out = np.empty(len(column), np.uint64)
    if topic_index is not None:
        topic_index = check_topic_index(topic_index, len(column), len(seeds))
    hash_strings(
        column.addresses(),
        topic_index.ctypes.data if topic_index is not None else 0,
        seeds.ctypes.data,
        len(column),
        out.ctypes.data,
    )
    return out
