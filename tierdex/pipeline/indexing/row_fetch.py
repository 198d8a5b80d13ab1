"""`fetch_rows`: the rows that entries of an indexed table point at.

Spark reads the rows, from any path that it can read, and only the files that entries name. A
Parquet row is returned as JSON, a line as its text.

Depends on source_files.
"""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import functions as F

from tierdex.errors import InvalidRequestError
from tierdex.pipeline.indexing.source_files import (
    BLOCK,
    FILE,
    LENGTH,
    lines_of,
    measure_blocks,
    path_of,
    row_group_starts,
    source_of,
    with_offsets,
)

RECORD: Final = "record"
_PARQUET: Final = ("source", "row_group", "row")
_LINE: Final = ("source", "offset", "size")


def fetch_rows(spark: Any, answer_df: Any) -> Any:
    """Return `answer_df` with a column `record`: the row that each entry points at, null if none.

    `answer_df` has `source` and `row_group`, `row` (Parquet), or `offset`, `size` (lines), or all of
    them: what `lookup(…, columns=[…])` and scans with the option `columns` return. A record is the
    Parquet row as a JSON object, or the line. Looks at `answer_df` twice: cache it when it is costly.
    Raises InvalidRequestError for a missing column, and what Spark raises for a file that is gone.
    """
    names = set(answer_df.columns)
    for name in ("source",):
        if name not in names:
            raise InvalidRequestError("is missing: ask the lookup for it by `columns`", field=name)
    if RECORD in names:
        raise InvalidRequestError("is a name of fetch_rows' own: rename it", field=RECORD)
    has_rows, has_lines = set(_PARQUET) <= names, set(_LINE) <= names
    if not has_rows and not has_lines:
        raise InvalidRequestError("give row_group and row, or offset and size", field="row_group")
    in_parquet = F.col("row_group").isNotNull() if has_rows else F.lit(False)
    has_source = F.col("source").isNotNull()
    found = answer_df.where(~has_source).withColumn(RECORD, F.lit(None).cast("string"))
    if has_rows:
        wanted = answer_df.where(has_source & in_parquet)
        if sources := _sources(wanted):
            records = _parquet_records(spark, sources, wanted.select(*_PARQUET).distinct())
            found = found.unionByName(wanted.join(records, list(_PARQUET), "left"))
    if has_lines:
        wanted = answer_df.where(has_source & ~in_parquet)
        if sources := _sources(wanted):
            records = _line_records(spark, sources, wanted.select(*_LINE).distinct())
            found = found.unionByName(wanted.join(records, list(_LINE), "left"))
    return found.select(*[f"`{name}`" for name in answer_df.columns], RECORD)


def _sources(wanted: Any) -> list[str]:
    return sorted(row["source"] for row in wanted.select("source").distinct().collect())


def _parquet_records(spark: Any, sources: list[str], wanted: Any) -> Any:
    """Return (source, row_group, row, record) of the wanted rows."""
    table = spark.read.parquet(*[path_of(source) for source in sources])
    record = F.to_json(F.struct("*"), {"ignoreNullFields": "false"})
    rows = table.select(
        record.alias(RECORD),
        F.col("_metadata.file_path").alias(FILE),
        F.col("_metadata.row_index").alias("__index"),
    )
    files = [row[FILE] for row in rows.select(FILE).distinct().collect()]
    starts = row_group_starts(spark, files)
    groups = spark.createDataFrame(
        [
            (name, source_of(name), number, start)
            for name, found in starts.items()
            for number, start in enumerate(found)
        ],
        f"{FILE} string, source string, row_group int, __start bigint",
    )
    placed = wanted.join(F.broadcast(groups), ["source", "row_group"])
    placed = placed.withColumn("__index", F.col("__start") + F.col("row"))
    # The wanted places are broadcast: they are few, the table is large.
    found = rows.join(F.broadcast(placed), [FILE, "__index"])
    return found.select(*_PARQUET, RECORD)


def _line_records(spark: Any, sources: list[str], wanted: Any) -> Any:
    """Return (source, offset, size, record) of the wanted lines."""
    lines = lines_of(spark, [path_of(source) for source in sources])
    blocks = measure_blocks(lines)
    placed = with_offsets(lines.select("value", FILE, BLOCK, LENGTH), blocks.offsets)
    text = F.rtrim("value", F.lit("\r"))
    placed = placed.select(
        text.alias(RECORD), "source", "offset", F.octet_length(text).cast("bigint").alias("size")
    )
    return placed.join(F.broadcast(wanted), list(_LINE), "leftsemi")
