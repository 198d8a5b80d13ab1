"""`entries` and `messages`: scans of the rows that their arguments select; `key_is`: a row's condition.

The selection is part of the relation, like the options of `spark.read`: no other plan inherits what
it prunes.

Depends on registration, options, log_options, entry_rules, indexfile and times.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tierdex.errors import InvalidRequestError
from tierdex.index_service.requests.entry_rules import check_key, check_topic
from tierdex.indexfile.hashing import key_hash, signed_bits
from tierdex.pipeline.jobs.options import ReadOptions
from tierdex.pipeline.logs.log_options import LogOptions
from tierdex.pipeline.registration import register
from tierdex.times import to_ms

if TYPE_CHECKING:
    import datetime
    from collections.abc import Mapping, Sequence


def entries(
    spark: Any,
    store_url: str,
    *,
    topic: str | Sequence[str] | None = None,
    keys: str | Sequence[str] | None = None,
    message_ids: str | Sequence[str] | None = None,
    begin: int | str | datetime.datetime | None = None,
    end: int | str | datetime.datetime | None = None,
    nodes: str | Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    on_error: str = "fail",
    options: Mapping[str, str] | None = None,
) -> Any:
    """Return the entries of these keys of one topic, of these message IDs, topics, times, nodes.

    An argument that is None selects everything. Times are inclusive: milliseconds, RFC 3339, or
    datetimes with a zone. The arguments prune files, filters and pages, as the options of the same
    names of ``spark.read.format("tierdex")`` do; with `keys` or `message_ids` there is a column
    `key` or `message_id`. Spark evaluates a condition of a later `where` on each row of this scan.

    Lazy; the first query takes the snapshot, which is kept. Raises InvalidRequestError.
    """
    lists = {
        "topic": topic,
        "keys": keys,
        "messageIds": message_ids,
        "nodes": nodes,
        "columns": columns,
    }
    chosen = {name: listed(value) for name, value in lists.items() if value is not None}
    for name, time in (("beginTime", begin), ("endTime", end)):
        if time is not None:
            chosen[name] = str(to_ms(time, name, is_end=name.startswith("end")))
    chosen |= {"onError": on_error, **(options or {})}
    ReadOptions.parse({"path": store_url, **chosen})  # raises here, before Spark does
    register(spark)
    return spark.read.format("tierdex").options(**chosen).load(store_url)


def listed(names: str | Sequence[str]) -> str:
    """Return names as an option's JSON list: a key may hold a comma, and spaces at its ends."""
    return json.dumps([names] if isinstance(names, str) else list(names))


def messages(
    spark: Any,
    store_url: str,
    *,
    topic: str | Sequence[str] | None = None,
    queue_id: int | Sequence[int] | None = None,
    begin_offset: int | None = None,
    end_offset: int | None = None,
    begin: int | str | datetime.datetime | None = None,
    end: int | str | datetime.datetime | None = None,
    nodes: str | Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    options: Mapping[str, str] | None = None,
) -> Any:
    """Return the published messages of these topics, queues, offsets, times and nodes.

    An argument that is None selects everything. `begin_offset` is the first offset of each queue,
    `end_offset` the one behind the last; times are inclusive: milliseconds, RFC 3339, or datetimes with a
    zone. They leave out files and pages, as the options of ``spark.read.format("tierdex-log")`` do; Spark
    evaluates a condition of a later `where` on each row of this scan.

    Lazy; the first query takes the snapshot, which is kept. Raises InvalidRequestError.
    """
    chosen = {"topic": topic, "nodes": nodes, "columns": columns}
    given = {name: listed(value) for name, value in chosen.items() if value is not None}
    if queue_id is not None:
        ids = [queue_id] if isinstance(queue_id, int) else queue_id
        given["queueId"] = ",".join(str(one) for one in ids)
    for name, offset in (("beginOffset", begin_offset), ("endOffset", end_offset)):
        if offset is not None:
            given[name] = str(offset)
    for name, time in (("beginTime", begin), ("endTime", end)):
        if time is not None:
            given[name] = str(to_ms(time, name, is_end=name.startswith("end")))
    given |= options or {}
    LogOptions.parse({"path": store_url, **given})  # raises here, before Spark does
    register(spark)
    return spark.read.format("tierdex-log").options(**given).load(store_url)


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
