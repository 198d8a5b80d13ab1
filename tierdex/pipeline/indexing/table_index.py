"""`index_table`: makes rows that stay in place findable, without rewriting them.

| format | location of a row |
|---|---|
| Parquet | `source` (path), `row_group`, `row` in that group |
| JSON lines, CSV | `source`, `offset` and `size` of the line in bytes |

Keys, topic and time are expressions over the table's columns, evaluated by Spark. A row with
neither key nor message ID is skipped and counted.

The commit that publishes a table's files notes the table in the manifest of its node, as the first batch of
a stream of that name: its files with their sizes and times, and the expressions. So both are there, or none.

Depends on following, lake_table, source_files, build_job, job_store, options, registration, snapshot,
key_texts, settings, value_rules and hashlib.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import Observation
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DecimalType, DoubleType, FloatType, StructType

from tierdex.errors import InvalidRequestError
from tierdex.following.tables.follow_table import TableAsked, is_table
from tierdex.key_texts import key_texts
from tierdex.pipeline.indexing.build_job import shape_by_size
from tierdex.pipeline.indexing.lake_table import index_lake_table
from tierdex.pipeline.indexing.source_files import (
    BLOCK,
    FILE,
    LENGTH,
    Blocks,
    lines_of,
    measure_blocks,
    row_group_starts,
    source_of,
    with_offsets,
)
from tierdex.pipeline.jobs.job_store import StoreLink
from tierdex.pipeline.jobs.options import DEFAULT_NODE, TARGET_ENTRIES
from tierdex.pipeline.jobs.snapshot import open_log
from tierdex.pipeline.registration import register
from tierdex.settings import load_settings
from tierdex.value_rules import MAX_TOPIC_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_PLACES_SHOWN: Final = 20
_FORMATS: Final = {
    "parquet": "parquet",
    "json": "json",
    "jsonl": "json",
    "ndjson": "json",
    "csv": "csv",
    "tsv": "csv",
}


@dataclass(frozen=True, slots=True)
class IndexReport:
    """`rows` of the source; `skipped` of them have neither key nor message ID.

    `bad_rows` were left out by `skip_bad`; `bad_places` names the first of them.
    """

    rows: int
    skipped: int
    files: int
    bad_rows: int = 0
    bad_places: tuple[str, ...] = ()


def index_table(
    spark: Any,
    source: str | Sequence[str],
    store_url: str,
    *,
    key: Any = (),
    topic: Any,
    timestamp: Any = None,
    message_id: Any = None,
    format: str | None = None,
    schema: str | None = None,
    node: str = DEFAULT_NODE,
    target_entries: int = TARGET_ENTRIES,
    read_options: Mapping[str, str] | None = None,
    options: Mapping[str, str] | None = None,
    again: bool = False,
    skip_bad: bool = False,
) -> IndexReport:
    """Index the rows of the Parquet, JSON-lines or CSV files at `source`, which stay where they are.

    `key` is a column's name or SQL expression, or a list of them; `message_id` and `timestamp`
    (milliseconds or a timestamp) likewise; `topic` the name of a column, a Column, or a fixed text.
    `format` is taken from the path's ending when absent; `schema` (DDL) saves inferring the columns.
    `read_options` are Spark's for the format, `options` the sink's. Publishes by one commit of `node`.
    A table that `node` has indexed like this, none of its files changed since, is refused unless `again`
    (its entries would be stored twice; lookups return them once). A row without a time or a topic, or with a
    key that is too long, ends the job and is named by file and row; with `skip_bad` such rows are left out,
    counted, and the first of them named. Keys are what `tierdex load` makes of the same values.

    A `source` ``delta:…`` or ``iceberg://…`` is a table of a lake: what is new in its newest snapshot is
    indexed, as `tierdex follow` does, by columns or templates of them; `timestamp` may be left out, and
    `read_options` are the source's. `live_rows` filters what a lookup finds of it.

    Raises InvalidRequestError naming the argument, and what Spark and the store raise.
    """
    if is_table(source):
        return _of_lake(
            spark, str(source), StoreLink.of(store_url, options), [key, message_id, timestamp, topic],
            dict(read_options or {}),
            {"node": node, "path": store_url, "targetEntries": str(target_entries)} | dict(options or {}),
        )  # fmt: skip
    if timestamp is None:
        raise InvalidRequestError("name a column, or an expression", field="timestamp")
    paths = [source] if isinstance(source, str) else list(source)
    kind = _format_of(paths, format)
    link = StoreLink.of(store_url, options)  # before anything is read
    register(spark)
    wish = _Wish(spark, key, topic, timestamp, message_id)
    given = dict(read_options or {})
    table = _table_of(spark, paths, given, [kind, key, topic, timestamp, message_id])
    if not again and table in open_log(link.open(), node).load().streams:
        raise InvalidRequestError(
            f"node {node} has indexed these files by these columns, and none has changed since: "
            "again=True indexes them once more",
            field="source",
        )
    if kind == "parquet":
        entries, rows, files = _of_parquet(spark, paths, wish, given)
    else:
        entries, rows, files = _of_lines(spark, paths, wish, kind, schema, given)
    findable = entries.where(wish.is_findable())
    bad_rows = 0
    bad_places: tuple[str, ...] = ()
    if skip_bad:
        bad = findable.where(wish.is_bad())
        bad_rows = bad.count()
        bad_places = tuple(map(_place_of, bad.limit(_PLACES_SHOWN).collect())) if bad_rows else ()
        findable = findable.where(~wish.is_bad())
    seen = Observation()
    counted = findable.observe(seen, F.count(F.lit(1)).alias("rows"))
    shaped = shape_by_size(counted, rows, target_entries)
    writer = shaped.write.format("tierdex").mode("append").option("node", node)
    if not again:
        writer.option("table", table)
    writer.option("targetEntries", str(target_entries)).options(**dict(options or {})).save(
        store_url
    )
    skipped = rows - int(seen.get["rows"]) - bad_rows
    return IndexReport(rows, skipped, files, bad_rows, bad_places)


def _of_lake(
    spark: Any,
    source: str,
    link: StoreLink,
    wanted: list[Any],
    read_options: Mapping[str, str],
    sink: Mapping[str, str],
) -> IndexReport:
    """Index a lake's table; `wanted` are its keys, message ID, time and topic."""
    key, message_id, timestamp, topic = wanted
    keys = list(key) if isinstance(key, (list, tuple)) else [key]
    for name, value in [("key", each) for each in keys] + [("topic", topic)]:
        if not isinstance(value, str):
            raise InvalidRequestError("is a text, of a lake's table", field=name)
    asked = TableAsked(keys, message_id, timestamp, "UTC", topic, read_options, True, None, False)
    rows, files = index_lake_table(spark, source, link, asked, sink)
    return IndexReport(rows, 0, files)


def _place_of(row: Any) -> str:
    if "row" in row:
        return f"{row.source}: row group {row.row_group}, row {row.row}"
    return f"{row.source}: byte {row.offset}"


def _table_of(
    spark: Any, paths: Sequence[str], given: Mapping[str, str], expressions: Sequence[Any]
) -> str:
    """Return the name of a table as it is now: of its files, and of what is indexed of them."""
    listed = spark.read.format("binaryFile").options(**given).load(list(paths))
    files = listed.select("path", "length", F.unix_micros("modificationTime")).collect()
    said = repr([sorted(map(tuple, files)), [str(one) for one in expressions]])
    return f"table:{sha256(said.encode()).hexdigest()}"


class _Wish:
    """The expressions that a caller gave, as columns of an entry."""

    def __init__(self, spark: Any, key: Any, topic: Any, timestamp: Any, message_id: Any) -> None:
        self._keys = list(key) if isinstance(key, (list, tuple)) else [key]
        self._topic = topic
        self._timestamp = timestamp
        self._message_id = message_id
        if not self._keys and message_id is None:
            raise InvalidRequestError("name a column, or give message_id", field="key")

    def columns(self, table: Any, names: Sequence[str]) -> list[Any]:
        """Return topic, keys, timestamp and perhaps message_id over a table with columns `names`."""
        keys = [_key_text(table, _expression(one, names)) for one in self._keys]
        listed = F.filter(F.array(*keys), lambda one: one.isNotNull() & (one != F.lit("")))
        topic = self._topic
        if isinstance(topic, str):
            topic = F.col(f"`{topic}`") if topic in names else F.lit(topic)
        found = [
            topic.cast("string").alias("topic"),
            _expression(self._timestamp, names).alias("timestamp"),
        ]
        if self._keys:
            found.append(listed.alias("keys"))
        if self._message_id is not None:
            text = _key_text(table, _expression(self._message_id, names))
            found.append(F.nullif(text, F.lit("")).alias("message_id"))
        return found

    def is_bad(self) -> Any:
        """Return which rows an index refuses: without a time or a topic, or with names that are too long."""
        longest = load_settings().max_key_bytes
        bad = F.col("timestamp").isNull() | F.col("topic").isNull()
        bad = bad | ~F.octet_length("topic").between(1, MAX_TOPIC_BYTES)
        if self._keys:
            bad = bad | F.exists("keys", lambda one: F.octet_length(one) > longest)
        if self._message_id is not None:
            bad = bad | F.coalesce(F.octet_length("message_id") > longest, F.lit(False))
        return F.coalesce(bad, F.lit(True))

    def is_findable(self) -> Any:
        found = F.lit(False)
        if self._keys:
            found = found | (F.size("keys") > 0)
        if self._message_id is not None:
            found = found | F.col("message_id").isNotNull()
        return found


def _expression(given: Any, names: Sequence[str]) -> Any:
    if not isinstance(given, str):
        return given
    return F.col(f"`{given}`") if given in names else F.expr(given)


def _key_text(table: Any, expression: Any) -> Any:
    """Return the values as keys, by the rule of `key_texts`: Spark writes numbers with exponents."""
    kind = table.select(expression).schema[0].dataType
    if isinstance(kind, (DoubleType, FloatType, DecimalType, BinaryType)):
        return _key_texts()(expression)
    return expression.cast("string")


def _key_texts() -> Any:
    """Return `key_texts` as a function of Spark's."""
    pandas: Any = import_module("pandas")

    def texts(values: Any) -> Any:
        found = key_texts(pa.array(values, from_pandas=True)).to_pylist()
        return import_module("pandas").Series(found, dtype=object)

    texts.__annotations__ = {"values": pandas.Series, "return": pandas.Series}
    functions: Any = F
    return functions.pandas_udf(texts, "string")


def _format_of(paths: Sequence[str], given: str | None) -> str:
    if not paths:
        raise InvalidRequestError("name a path", field="source")
    ending = given if given is not None else paths[0].rstrip("/*").rpartition(".")[2].lower()
    if ending not in _FORMATS:
        raise InvalidRequestError(
            f"is none of {', '.join(_FORMATS)}; give `format`", field="format"
        )
    return _FORMATS[ending]


def _of_parquet(
    spark: Any, paths: Sequence[str], wish: _Wish, given: Mapping[str, str]
) -> tuple[Any, int, int]:
    """Return (entries, rows, files) of Parquet files."""
    table = spark.read.options(**given).parquet(*paths)
    placed = table.select(
        *wish.columns(table, table.columns),
        F.col("_metadata.file_path").alias(FILE),
        F.col("_metadata.row_index").alias("__index"),
    )
    counts = table.groupBy(F.col("_metadata.file_path").alias(FILE)).count().collect()
    starts = row_group_starts(spark, [row[FILE] for row in counts])
    known = spark.createDataFrame(
        [(name, source_of(name), found) for name, found in starts.items()] or [("", "", [0])],
        f"{FILE} string, source string, __starts array<bigint>",
    )
    group = F.size(F.filter("__starts", lambda start: start <= F.col("__index"))) - 1
    entries = (
        placed.join(F.broadcast(known), FILE)
        .withColumn("row_group", group)
        .withColumn("row", F.col("__index") - F.element_at("__starts", F.col("row_group") + 1))
        .drop(FILE, "__index", "__starts")
    )
    return entries, sum(row["count"] for row in counts), len(counts)


def _of_lines(
    spark: Any,
    paths: Sequence[str],
    wish: _Wish,
    kind: str,
    schema: str | None,
    given: Mapping[str, str],
) -> tuple[Any, int, int]:
    """Return (entries, rows, files) of text files; blank lines and headers are no rows."""
    lines = lines_of(spark, paths)
    blocks = measure_blocks(lines)
    make_form = _json_form if kind == "json" else _csv_form
    form = make_form(spark, paths, schema, given)
    text = F.rtrim("value", F.lit("\r"))
    is_row = F.trim(text) != F.lit("")
    count = blocks.line_count
    if form.has_header:
        is_row = is_row & ~((F.col(BLOCK) == 0) & (text == F.lit(_one_header(blocks))))
        count -= len(blocks.first_lines)
    frame = lines.select(
        F.when(is_row, form.parse(text)).alias("parsed"),
        is_row.alias("__is_row"),
        F.octet_length(text).cast("bigint").alias("size"),
        FILE,
        BLOCK,
        LENGTH,
    )
    flat = frame.select("parsed.*", "__is_row", "size", FILE, BLOCK, LENGTH)
    chosen = flat.select(*wish.columns(flat, form.names), "__is_row", "size", FILE, BLOCK, LENGTH)
    entries = with_offsets(chosen, blocks.offsets).where("__is_row").drop("__is_row")
    return entries, count, len(blocks.first_lines)


@dataclass(frozen=True)
class _LineForm:
    """How a line becomes columns: `parse` makes a struct with the fields `names` of a text column."""

    parse: Callable[[Any], Any]
    names: list[str]
    has_header: bool


def _json_form(
    spark: Any, paths: Sequence[str], schema: str | None, given: Mapping[str, str]
) -> _LineForm:
    found: Any = (
        StructType.fromDDL(schema)
        if schema is not None
        else spark.read.options(**given).json(list(paths)).schema
    )
    options = {"mode": "FAILFAST", **given}
    return _LineForm(lambda text: F.from_json(text, found, options), found.names, False)


def _csv_form(
    spark: Any, paths: Sequence[str], schema: str | None, given: Mapping[str, str]
) -> _LineForm:
    header = given.get("header", "true").lower() != "false"
    reading = {"header": str(header).lower(), "escape": '"', **given}
    if schema is None:
        listed = spark.read.options(**reading, inferSchema="false").csv(list(paths)).schema
        schema = ", ".join(f"`{name}` string" for name in listed.names)
    found: Any = StructType.fromDDL(schema)
    ddl, options = schema, {name: value for name, value in reading.items() if name != "header"}

    def parse(text: Any) -> Any:
        quotes = F.length(text) - F.length(F.replace(text, F.lit('"')))
        told = F.raise_error(
            F.concat(F.lit("a quoted field goes over several lines: "), F.substring(text, 1, 80))
        )
        return F.when(quotes % 2 == 0, F.from_csv(text, F.lit(ddl), options)).otherwise(told)

    return _LineForm(parse, found.names, header)


def _one_header(blocks: Blocks) -> str:
    """Return the line that every file begins with. Raises InvalidRequestError when they differ."""
    headers = sorted(set(blocks.first_lines.values()))
    if len(headers) > 1:
        one = next(file for file, line in blocks.first_lines.items() if line == headers[1])
        raise InvalidRequestError(
            f"files begin with different headers, {source_of(one)} among them", field="source"
        )
    return headers[0] if headers else ""
