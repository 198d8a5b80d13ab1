"""`key_is`: the condition that a row is an entry of one of these keys.

Depends on indexfile and index_service.
"""

from __future__ import annotations

from typing import Any

from tierdex.errors import InvalidRequestError
from tierdex.index_service.requests.entry_rules import check_key, check_topic
from tierdex.indexfile.hashing import key_hash, signed_bits

_KEY_BYTES_MAX = 65_535


def key_is(topic: str, *keys: str) -> Any:
    """Return the condition that an entry of `topic` has one of `keys`.

    Use it as ``df.where(key_is("orders", "ORDER-8841"))``, on rows that are read anyway: Spark
    evaluates it on every row, while `entries` reads only the pages of these keys. Files hold hashes
    of 64 bits, not keys: two keys of one topic with the same hash match both here. Raises
    InvalidRequestError.
    """
    from pyspark.sql import functions as F

    check_topic(topic, "topic")
    if not keys:
        raise InvalidRequestError("name at least one key", field="keys")
    for place, key in enumerate(keys):
        check_key(key, f"keys[{place}]", _KEY_BYTES_MAX)
    hashes = [signed_bits(key_hash(topic, key)) for key in keys]
    same_hash = (
        F.col("key_hash") == F.lit(hashes[0])
        if len(hashes) == 1
        else F.col("key_hash").isin(hashes)
    )
    return (F.col("topic") == F.lit(topic)) & (F.col("kind") == F.lit("key")) & same_hash
