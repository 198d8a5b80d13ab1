"""Runs one function in tasks, once for each of n numbers, and returns its bytes to the driver.

For jobs over a list that the driver made (files, merges) rather than over a DataFrame.

Depends on nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def run_numbered(
    spark: Any, count: int, run_one: Callable[[int], bytes], title: str
) -> list[bytes]:
    """Return run_one(0), ..., run_one(count - 1), each computed in a task of its own.

    `run_one` is pickled. Raises Spark's error for a failed task.
    """
    if not count:
        return []
    spark.sparkContext.setJobDescription(f"tierdex {title}")
    try:
        found = numbered_frame(spark, count, run_one).collect()
    finally:
        spark.sparkContext.setJobDescription(None)
    results = {row["number"]: bytes(row["result"]) for row in found}
    return [results[number] for number in range(count)]


def numbered_frame(spark: Any, count: int, run_one: Callable[[int], bytes]) -> Any:
    """Return the lazy DataFrame (number bigint, result binary) of `run_numbered`."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                result = pa.array([run_one(number)], pa.binary())
                yield pa.record_batch([pa.array([number]), result], names=["number", "result"])

    # A range has one slice a task and costs no shuffle.
    numbers = spark.range(0, count, 1, numPartitions=max(1, count))
    return numbers.mapInArrow(run, "number bigint, result binary")
