"""`lookup`: millions of keys against all files of a store, each page fetched at most once a job.

::

    driver    snapshot -> directory of every file (not its filter) -> the pages on the borders of ranges
    JVM       hash = xxhash64(topic, key) -> repartitioned by range of hashes, sorted by hash
    a task    its range of hashes, all files, newest first:
              filter partitions of the range -> pages that hold what the filter lets through -> rows

A range of hashes is the same part of every file, so a task brings only that part of each filter and
of the pages, and no other task brings it again. A page that lies across the border of two ranges is
brought by the driver and travels with the job. What a lookup costs is the pages it touches, not keys
times files. All of a key's files are asked by one task, so `max_count` stops early there.

Depends on lookup_task, snapshot, remote_file, indexfile, requests, arrow_columns, job_store, lookup_batch,
lookup_file, log_index_node, message_join, scan_report, settings and storage_layer.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tierdex.errors import FILE_ERRORS, InvalidRequestError
from tierdex.index_service.requests.id_time import check_form
from tierdex.indexfile.hashing import MESSAGE_ID_TOPIC
from tierdex.pipeline.jobs.job_store import StoreLink
from tierdex.pipeline.jobs.scan_report import (
    ScanReport,
    TaskNotes,
    await_notes,
    new_scan_name,
    note_plan,
    session_folder,
)
from tierdex.pipeline.jobs.snapshot import take_log_snapshot, take_snapshot
from tierdex.pipeline.logs.log_index_node import log_node_of
from tierdex.pipeline.lookups.lookup_batch import ORDER, IdTime
from tierdex.pipeline.lookups.lookup_file import FileHead
from tierdex.pipeline.lookups.lookup_task import COMPLETE, LookupJob, LookupTask
from tierdex.pipeline.lookups.message_join import (
    PLACE_COLUMNS,
    MessageJoin,
    check_messages,
    with_messages,
)
from tierdex.pipeline.scan.arrow_columns import COLUMN_DDL
from tierdex.pipeline.scan.remote_file import RemoteFile
from tierdex.settings import load_settings
from tierdex.storage_layer.metered import RequestCounts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from tierdex.pipeline.jobs.snapshot import ListedFile
    from tierdex.storage_layer.base import Store

ENTRY_COLUMNS: Final = ("queue_id", "offset", "size", "timestamp", "file_id", "node")
_NOT_OF_ENTRIES: Final = frozenset({"key", "key_hash", "message_id"})
_TIME_TYPES: Final = frozenset({"bigint", "int", "timestamp"})
_HEADS_AT_ONCE: Final = 16
_SIGN: Final = -(1 << 63)


def lookup(
    spark: Any,
    store_url: str,
    keys_df: Any,
    *,
    how: str = "left",
    max_count: int | None = None,
    on_error: str = "fail",
    columns: Sequence[str] | None = None,
    nodes: Sequence[str] | None = None,
    partitions: int | None = None,
    with_body: bool = False,
    fresh_within: float | None = None,
    id_time: str | None = None,
    options: Mapping[str, str] | None = None,
) -> Any:
    """Return `keys_df` with the entries of each row: its columns, then the entry's.

    A row of `keys_df` has `topic` and `key`, or `message_id`, and may have `begin` and `end`
    (milliseconds or timestamps, inclusive). A row with several entries comes once for each, newest
    first; a row with none once with nulls (``how="left"``) or not at all (``"inner"``). A null topic,
    key or ID finds nothing. `max_count` limits the entries of one row. `columns` chooses the entry's
    columns (see arrow_columns). ``on_error="partial"`` leaves files that cannot be read out and adds a
    column `complete`, false where such a file might have had an answer.

    Published entries alone are looked up: `last_scan` says until when these are all (`as_of`), and which
    nodes hold more (`unasked`). ``fresh_within`` (seconds; None: the setting) fails for an older snapshot,
    with ``on_error="partial"`` no row of it is complete, and `last_scan().missing` names the nodes.

    ``with_body=True`` joins the messages of logs: columns `headers` and `body`, null of a message that has
    expired. An entry whose message has another key of the same hash is none; rows come in any order.

    With `id_time` (`uuidv7`, `ulid`, `snowflake:EPOCH_MS`, `off`; None: the setting) a message ID of that
    form is looked for in its own time only, widened by the setting `id_time_slack`.

    Lazy, but the snapshot is taken now. Raises InvalidRequestError, IncompleteAnswerError, and what the
    store raises.
    """
    asked = tuple(columns) if columns is not None else _default_columns(keys_df)
    job_of = _check(keys_df, how, max_count, on_error, asked)
    job_of["id_time"] = _id_time(id_time)
    wanted = _with_places(keys_df, asked) if with_body else asked
    link = StoreLink.of(store_url, options)
    snapshot = take_snapshot(link.open(), nodes)
    too_old = snapshot.too_old(fresh_within, is_partial=on_error == "partial")
    count = partitions or max(1, spark.sparkContext.defaultParallelism)
    report = ScanReport(
        kind="lookup", store=link.url, manifest=dict(snapshot.numbers), partitions=count,
        as_of=snapshot.ages.as_of(), unasked=[*snapshot.ages.unasked()], missing=too_old,
    )  # fmt: skip
    report.files_considered = len(snapshot.files)
    counts = RequestCounts()
    scoped = link.open().scoped(counts)
    heads = _heads(scoped, snapshot.files, count, is_partial=on_error == "partial")
    report.requests, report.bytes = counts.requests, counts.bytes_read
    report.pages_read = sum(len(head.pages) for head in heads)
    notes = spark.sparkContext.accumulator({}, TaskNotes())
    job = LookupJob(
        link, tuple(heads), wanted, new_scan_name(), notes, is_too_old=bool(too_old), **job_of
    )
    note_plan(session_folder(), job.scan, report)
    await_notes(job.scan, notes)

    def answer(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return LookupTask(job).answer_all(batches)

    names = [f"`{name}`" for name in keys_df.columns]
    prepared = _with_order(keys_df, job.by_id, count).select(*names, ORDER)
    schema = _result_schema(keys_df, wanted, is_partial=on_error == "partial")
    found = prepared.mapInArrow(answer, schema)
    if not with_body:
        return found
    # After the entries: what they point at was published before them.
    name = "message_id" if job.by_id else "key"
    join = MessageJoin(link, _log_files(link, nodes), name, wanted, job.is_left)
    return with_messages(found, join, asked, count)


def _with_places(keys_df: Any, asked: tuple[str, ...]) -> tuple[str, ...]:
    """Return the entry's columns with those that say where its message is. Raises InvalidRequestError."""
    check_messages(keys_df.columns)
    known = {*asked, *keys_df.columns}
    return (*asked, *(name for name in PLACE_COLUMNS if name not in known))


def _log_files(link: StoreLink, nodes: Sequence[str] | None) -> dict[str, list[ListedFile]]:
    """Return the published log files of each node that has any; of `nodes`, and of the logs they index."""
    store = link.open()
    found: dict[str, list[ListedFile]] = {}
    for file in take_log_snapshot(store)[0]:
        found.setdefault(file.node, []).append(file)
    if nodes is None:
        return found
    named = {log_node_of(node, found) for node in nodes}
    return {node: files for node, files in found.items() if node in named}


def _default_columns(keys_df: Any) -> tuple[str, ...]:
    """Return the entry's columns; a lookup by ID does not know the topic before."""
    return ENTRY_COLUMNS if "topic" in keys_df.columns else ("topic", *ENTRY_COLUMNS)


def _check(
    keys_df: Any, how: str, max_count: int | None, on_error: str, wanted: Sequence[str]
) -> dict[str, Any]:
    """Return the arguments of a LookupJob that callers give. Raises InvalidRequestError."""
    types = dict(keys_df.dtypes)
    if how not in {"left", "inner"}:
        raise InvalidRequestError("must be left or inner", field="how")
    if on_error not in {"fail", "partial"}:
        raise InvalidRequestError("must be fail or partial", field="on_error")
    if max_count is not None and (isinstance(max_count, bool) or max_count < 1):
        raise InvalidRequestError("must be at least 1", field="max_count")
    by_id = "message_id" in types and "key" not in types
    for name in ("message_id",) if by_id else ("topic", "key"):
        if name not in types:
            raise InvalidRequestError(
                "is missing: a lookup has topic and key, or message_id", field=name
            )
        if types[name].split("(")[0] not in {"string", "varchar", "char"}:
            raise InvalidRequestError(f"is {types[name]}, not string", field=name)
    for name in ("begin", "end"):
        if types.get(name, "bigint") not in _TIME_TYPES:
            raise InvalidRequestError(f"is {types[name]}; expected bigint or timestamp", field=name)
    if not wanted:
        raise InvalidRequestError("name at least one", field="columns")
    for name in wanted:
        if name not in COLUMN_DDL or name in _NOT_OF_ENTRIES:
            raise InvalidRequestError(f"an entry has no column {name}", field="columns")
        if name in types:
            raise InvalidRequestError(
                "is a column of keys_df and of the entries: rename it, or choose `columns`",
                field=name,
            )
    for name in (ORDER, *((COMPLETE,) if on_error == "partial" else ())):
        if name in types:
            raise InvalidRequestError("is a name of the lookup's own: rename it", field=name)
    return {
        "is_left": how == "left",
        "max_count": max_count,
        "is_partial": on_error == "partial",
        "by_id": by_id,
    }


def _id_time(form: str | None) -> IdTime:
    """Return the form that is asked for, or that of the settings. Raises InvalidRequestError."""
    settings = load_settings()
    return IdTime(settings.id_time if form is None else check_form(form), settings.id_time_slack)


def _with_order(keys_df: Any, by_id: bool, count: int) -> Any:
    """Add the hash as a number whose signed order is the hashes' own, and range-partition by it."""
    from pyspark.sql import functions as F

    hashed = (
        F.xxhash64(F.lit(MESSAGE_ID_TOPIC), F.col("message_id"))
        if by_id
        else F.xxhash64(F.col("topic"), F.col("key"))
    )
    ordered = keys_df.withColumn(ORDER, hashed.bitwiseXOR(F.lit(_SIGN)))
    # The range's number: of the hash's upper 16 bits, see `borders`.
    upper = F.shiftrightunsigned(F.col(ORDER).bitwiseXOR(F.lit(_SIGN)), 48)
    number = F.shiftright(upper * F.lit(count), 16).cast("int")
    numbered = ordered.withColumn("__tierdex_range", number)
    return numbered.repartitionById(count, F.col("__tierdex_range")).sortWithinPartitions(ORDER)


def borders(count: int) -> list[int]:
    """Return the first hash of each of `count` ranges but the first."""
    return [-(-(number << 16) // count) << 48 for number in range(1, count)]


def _heads(
    store: Store, files: Sequence[ListedFile], count: int, *, is_partial: bool
) -> list[FileHead]:
    """Fetch what tasks need to know of every file, newest first, and the pages on borders."""

    def head_of(file: ListedFile) -> FileHead:
        try:
            return _head(store, file, count)
        except FILE_ERRORS:
            if not is_partial:
                raise
            return FileHead(file, None, {})  # the tasks that need it will say what is wrong

    with ThreadPoolExecutor(_HEADS_AT_ONCE) as pool:
        return list(pool.map(head_of, files))


def _head(store: Store, file: ListedFile, count: int) -> FileHead:
    remote = RemoteFile(store, file.row)
    compacted = remote.compacted
    first_hashes = compacted.directory.entries["first_hash"][: compacted.page_count]
    found = np.searchsorted(first_hashes, np.array(borders(count), np.uint64), side="left") - 1
    pages = {}
    for page in np.unique(found[found >= 0]).tolist():
        pages[page] = bytes(compacted.page_bytes(compacted.span(page, 1)))
    return FileHead(file, remote.head, pages)


def _result_schema(keys_df: Any, wanted: Sequence[str], *, is_partial: bool) -> Any:
    from pyspark.sql.types import StructType

    entry = ", ".join(f"`{name}` {COLUMN_DDL[name]}" for name in wanted)
    fields = list(keys_df.schema.fields)
    added: Any = StructType.fromDDL(entry if not is_partial else f"{entry}, {COMPLETE} boolean")
    fields += added.fields
    return StructType(fields)
