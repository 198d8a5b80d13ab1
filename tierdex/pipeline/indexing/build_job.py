"""`build`: publishes a DataFrame of entries as well-shaped files: repartitioned, then one commit.

A sink takes partitions as they are. `build` makes them the size of a file, and with a time bucket
puts near times together, so that a lookup with a time range reads few files.

Depends on job_store, options and registration.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from tierdex.errors import InvalidRequestError
from tierdex.pipeline.jobs.job_store import StoreLink
from tierdex.pipeline.jobs.options import DEFAULT_NODE, TARGET_ENTRIES
from tierdex.pipeline.registration import register

if TYPE_CHECKING:
    from collections.abc import Mapping

_UNITS: Final = {"second": 1000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000}
_BUCKET: Final = re.compile(r"(\d+)\s*(second|minute|hour|day)s?")


def build(
    df: Any,
    store_url: str,
    *,
    node: str = DEFAULT_NODE,
    target_entries: int = TARGET_ENTRIES,
    time_bucket: str | int | None = None,
    options: Mapping[str, str] | None = None,
) -> int:
    """Publish the entries of `df` as files of about `target_entries`, all by one commit.

    `df` has the sink's columns (see entry_form). `time_bucket` ("1 hour", "7 days", or milliseconds):
    no file holds entries of two buckets, and within one the latest time counts as the newest arrival.
    Counts the rows first, so an expensive `df` should be cached. Returns the number of rows. Raises
    InvalidRequestError, OwnershipError for an owned node, and what the tasks raise.
    """
    if isinstance(target_entries, bool) or target_entries < 1:
        raise InvalidRequestError("must be at least 1", field="target_entries")
    bucket_ms = 0 if time_bucket is None else parse_bucket(time_bucket)
    StoreLink.of(store_url, options)  # before the rows are counted
    register(df.sparkSession)
    if bucket_ms:
        shaped, count = _by_time(df, bucket_ms, target_entries)
    else:
        count = df.count()
        shaped = shape_by_size(df, count, target_entries)
    writer = shaped.write.format("tierdex").mode("append").option("node", node)
    writer = writer.option("targetEntries", str(target_entries))
    writer = writer.option("timeBucket", str(bucket_ms)).options(**dict(options or {}))
    writer.save(store_url)
    return int(count)


def parse_bucket(value: str | int) -> int:
    """Return a time bucket in milliseconds. Raises InvalidRequestError."""
    if isinstance(value, str) and (found := _BUCKET.fullmatch(value.strip())):
        value = int(found[1]) * _UNITS[found[2]]
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 1 << 31:
        raise InvalidRequestError(
            "must be like '1 hour' or '7 days' (at most 24), or milliseconds", field="time_bucket"
        )
    return value


def shape_by_size(df: Any, count: int, target: int) -> Any:
    """Return `df` with a partition a file, at least one a core, and without a needless shuffle."""
    wanted = max(1, -(-count // target))
    cores = df.sparkSession.sparkContext.defaultParallelism
    has = df.rdd.getNumPartitions()
    if has >= wanted:
        # Joining partitions costs nothing; a core without work costs time.
        return df.coalesce(max(wanted, min(has, cores)))
    return df.repartition(wanted)


def _by_time(df: Any, bucket_ms: int, target: int) -> tuple[Any, int]:
    """Return (`df` with each bucket's rows together and sorted by time, its rows)."""
    from pyspark.sql import functions as F

    millis = (
        F.unix_millis("timestamp")
        if dict(df.dtypes)["timestamp"] == "timestamp"
        else F.col("timestamp")
    )
    # Whole numbers all the way (a double is not exact), rounded down as the sink does.
    width = F.lit(bucket_ms).cast("bigint")
    bucket = F.call_function("div", millis - F.pmod(millis, width), width)
    counted = df.groupBy(bucket.alias("bucket")).count().orderBy("bucket").collect()
    places, partitions = _place_buckets([(row["bucket"], row["count"]) for row in counted], target)
    spark = df.sparkSession
    table = spark.createDataFrame(
        places or [(0, 0, 1)], "__bucket bigint, __first int, __share int"
    )
    named = df.withColumn("__bucket", bucket)
    joined = named.join(F.broadcast(table), "__bucket", "left")
    share = F.pmod(F.xxhash64(*[F.col(f"`{name}`") for name in df.columns]), F.col("__share"))
    placed = joined.withColumn(
        "__place", (F.coalesce("__first", F.lit(0)) + F.coalesce(share, F.lit(0))).cast("int")
    )
    shaped = placed.repartitionById(partitions, F.col("__place")).sortWithinPartitions("timestamp")
    return shaped.select(*[f"`{name}`" for name in df.columns]), sum(
        row["count"] for row in counted
    )


def _place_buckets(
    counts: list[tuple[int, int]], target: int
) -> tuple[list[tuple[int, int, int]], int]:
    """Return ((bucket, its first partition, how many it has), number of partitions).

    Small neighbours share a partition until it is full; the sink still writes files of their own.
    """
    places = []
    partition, filled = 0, 0
    for bucket, count in counts:
        if filled and filled + count > target:
            partition, filled = partition + 1, 0
        shares = max(1, -(-count // target))
        places.append((bucket, partition, shares))
        if shares > 1:
            partition, filled = partition + shares, 0
        else:
            filled += count
    return places, partition + 1 if filled or not places else partition
